"""Writes the source code of a Python program that sends the same request to a model as the page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pixprep.serving.embedded.request import DTYPES, ModelInput

BEST = 5
"""Number of classes that are shown for each output."""


def python_program(
    address: str, model: str, model_input: ModelInput, scores: Sequence[str], *, photos: Sequence[str]
) -> str:
    """Return the source code of a program that sends photos and prints the best classes or the shape of each output.

    Args:
        address: Address HOST:PORT at which Triton accepts HTTP.
        model: Name of the model.
        model_input: Description of the model's inputs.
        scores: Names of the outputs with one score per class. If the list is not empty, the program prints only the
            best classes of these outputs.
        photos: File names of the photos, one per image input.
    """
    libraries = ["from PIL import Image, ImageOps"] if model_input.pixels else ["from pathlib import Path"]
    inputs, asked = [], []
    for name, photo in zip(model_input.names, photos, strict=True):
        if model_input.pixels:
            frames = model_input.pixels
            mode, order = ("L", "[:, :, None]") if frames.order == "gray" else ("RGB", "")
            order = "[:, :, ::-1]" if frames.order == "bgr" else order
            order += ".transpose(2, 0, 1)" * (frames.layout == "chw")
            order += ".astype(np.float32)" * (frames.dtype == "float32")
            tensor = f"np.asarray(ImageOps.exif_transpose(Image.open({photo!r})).convert({mode!r})){order}"
        elif model_input.datatype == "BYTES":
            tensor = f"np.array([Path({photo!r}).read_bytes()], dtype=np.object_)"
        else:
            tensor = f"np.frombuffer(Path({photo!r}).read_bytes(), np.uint8)"
        inputs += [
            f"tensor = {tensor}{'' if model_input.has_rows else '[None]'}",
            f"inputs.append(triton.InferInput({name!r}, tensor.shape, {model_input.datatype!r}))",
            "inputs[-1].set_data_from_numpy(tensor)",
        ]
    for each in model_input.numbers:
        dtype = "bool" if each.datatype == "BOOL" else f"np.{DTYPES[each.datatype]}"
        inputs += [
            f"inputs.append(triton.InferInput({each.name!r}, {[1, *np.shape(each.example)]}, {each.datatype!r}))",
            f"inputs[-1].set_data_from_numpy(np.array({[each.example]}, {dtype}))",
        ]
    say = [
        "for output in answer.get_response()['outputs']:",
        "    print(output['name'], answer.as_numpy(output['name']).shape)",
    ]
    if scores:
        wanted = ", ".join(f"triton.InferRequestedOutput({name!r}, class_count={BEST})" for name in scores)
        asked = [f"outputs = [{wanted}]"]
        say = [f"print(answer.as_numpy({name!r})[0])" for name in scores]
    lines = [
        *libraries,
        "import numpy as np",
        "import tritonclient.http as triton",
        "",
        "inputs = []",
        *inputs,
        *asked,
        f"with triton.InferenceServerClient({address!r}) as client:",
        f"    answer = client.infer({model!r}, inputs{', outputs=outputs' * bool(scores)})",
        *say,
    ]
    return "\n".join(lines)
