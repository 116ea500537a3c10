"""The command ``pixprep import``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pixprep.cli.arguments import ImporterOptions, Photo
from pixprep.errors import PixprepError, shown
from pixprep.options import Shell

if TYPE_CHECKING:
    from pixprep.pipeline.pipeline import Pipeline

EXAMPLE = "import timm:resnet50.a1_in1k pipeline.json"


def run(
    source: Annotated[str, Shell(metavar="SOURCE")],
    file: Path,
    *,
    option: ImporterOptions = (),
    training: Annotated[str | None, Shell(metavar="SOURCE")] = None,
    run_python: bool = False,
    image: Photo = None,
    force: bool = False,
) -> int:
    """Import the preprocessing of a model as a pipeline file: from torchvision, timm, transformers, Keras ...

    Args:
        source: LIBRARY:NAME, or a file such as preprocessor_config.json, config.json, dali.py, model.onnx, or
            dali_backend's model folder.
        file: The pipeline file to write; if SOURCE is a model folder, the folder to write.
        training: Where to import the training transforms from: train.py:NAME for torchvision, a JSON file with the
            arguments of create_transform for timm, model.keras for Keras.
        run_python: Run the Python file that defines the DALI pipeline, to serialize it.
        force: Overwrite existing files.
    """
    from pixprep import importers
    from pixprep.cli.files import preview, preview_lines, read_photo
    from pixprep.cli.output import called, say
    from pixprep.files import named

    if file.exists() and not force:
        raise PixprepError(f"{file} already exists: choose a different file, or pass --force to overwrite it")
    photo = read_photo(image)
    given = {**dict(option), **({} if training is None else {"training": training})}
    given |= {"run_python": True} if run_python else {}
    folder = Path(source.removeprefix("dali:"))
    if folder.is_dir():
        from pixprep.cli.dali_folders import import_dali_model
        from pixprep.serving.repository.dali_model import find_dali_model

        if models := find_dali_model(folder):
            return import_dali_model(models, file, given, photo)
    pipeline = importers.import_pipeline(source, **given)
    with named(file, "cannot be written"):
        pipeline.save(file)
    origin = pipeline.origin
    assert origin
    version = "" if origin.version == "unknown" else f" {origin.version}"
    say(f"{file}: {origin.name} of {origin.library}{version}, pixels as in {origin.profile}")
    if origin.library == "ultralytics":
        from pixprep.importers.ultralytics import own_code

        for line in own_code(Path(source.removeprefix("ultralytics:"))):
            words = f"the pipeline contains Ultralytics' preprocessing only; {line} (docs/detection.md)"
            say(f"{origin.name}: {shown(words)}", file=sys.stderr)
    preview(photo, lambda encoded: preview_lines(pipeline, encoded))
    say(f"next  {called()} verify {shlex.quote(str(file))}", file=sys.stderr)
    return 0


def source_of(source: str | None, options: dict[str, Any]) -> str | Pipeline | None:
    """Return the pipeline of the newest version if the source is a dali_backend model folder, else the source."""
    if source is None or not (folder := Path(source.removeprefix("dali:"))).is_dir():
        return source
    from pixprep.cli.dali_folders import newest_pipeline

    return newest_pipeline(folder, options) or source
