"""Plans the last step of an ensemble, which encodes outputs as pictures.

tensor ─► classifier ─► alpha, mask, … ─► picture (PNG or JPEG) ─► alpha_png, mask_png, …
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pixprep.errors import PipelineError, PixprepError
from pixprep.postprocessing.detections import GEOMETRY_OUTPUTS
from pixprep.postprocessing.pictures import Picture
from pixprep.serving.pictures import Encoding, check_outputs
from pixprep.serving.repository import pbtxt
from pixprep.serving.repository.pbtxt import Step
from pixprep.serving.repository.writer import Content
from pixprep.serving.triton.config import CONFIG_FILE, Config

_MODEL = Path(__file__).with_name("picture_model.py")


def picture_step(
    model: str,
    pictures: Mapping[str, Picture],
    encoding: Encoding,
    *,
    max_batch_size: int,
    image: Config,
    outputs: Sequence[Config],
) -> tuple[Mapping[str, Content], Step, list[Config]]:
    """Plan the model that encodes pictures, and the ensemble step that calls it.

    Args:
        model: Name of the model.
        pictures: Declarations of the pictures, by output of the ensemble.
        encoding: Format of the pictures.
        max_batch_size: Maximum batch size of the ensemble.
        image: Image input of the ensemble.
        outputs: Outputs of the ensemble without this step.

    Returns:
        The files of the model, the step, and the outputs of the ensemble. These are the outputs without a declaration,
        followed by the pictures, BYTES [1]. If ``transform`` and ``original_size`` are the only outputs without a
        declaration, they are omitted.

    Raises:
        PipelineError: An output is missing; a picture shows the photo, but the input is not an encoded image; or JPEG
            was chosen for a picture with an alpha channel.
    """
    entries: dict[str, Config] = {entry["name"]: entry for entry in outputs}
    try:
        check_outputs(pictures, entries)
    except PixprepError as error:
        raise PipelineError(*error.args) from None
    taken = [*pictures, *(needed for picture in pictures.values() for needed in picture.needs)]
    inputs = [entries[name] for name in dict.fromkeys(taken)]
    if shown := [name for name, picture in pictures.items() if picture.draw != "plain"]:
        if image["data_type"] != "TYPE_STRING":
            raise PipelineError(f"--picture {shown[0]} shows the photo, but requests do not contain an encoded image")
        inputs.append(image)
    for name in shown:
        if encoding == "jpeg" and pictures[name].draw == "alpha":
            raise PipelineError(f"--picture {name}: JPEG does not support an alpha channel: remove --encoding jpeg")
    made: list[Config] = [{"name": f"{name}_{encoding}", "data_type": "TYPE_STRING", "dims": [1]} for name in pictures]
    written = {"pictures": json.dumps({name: str(picture) for name, picture in pictures.items()})}
    text = pbtxt.picture(max_batch_size, inputs, made, {**written, "encoding": encoding, "image": image["name"]})
    step = Step(model, {each["name"]: each["name"] for each in inputs}, {each["name"]: each["name"] for each in made})
    files: dict[str, Content] = {CONFIG_FILE: text, "1/model.py": _MODEL}
    others = [entry for entry in outputs if entry["name"] not in pictures]
    is_geometry = {entry["name"] for entry in others} <= {*GEOMETRY_OUTPUTS}  # only needed to draw the pictures
    return files, step, [*([] if is_geometry else others), *made]
