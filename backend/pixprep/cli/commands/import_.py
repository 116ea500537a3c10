"""The command ``pixprep import``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pixprep.cli.arguments import ImporterOptions, Photo
from pixprep.errors import PipelineError, PixprepError, shown
from pixprep.options import Shell

if TYPE_CHECKING:
    from pixprep.pipeline.pipeline import Pipeline
    from pixprep.serving.repository.dali_model import DaliModel
    from pixprep.serving.repository.writer import Content

_MAX_NOTES = 50
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
        training: Source of the training transforms: train.py:NAME for torchvision, a JSON file with the
            arguments of create_transform for timm, model.keras for Keras.
        run_python: Run the Python file that defines the DALI pipeline, to serialize it.
        force: Overwrite existing files.
    """
    from pixprep import importers
    from pixprep.cli.files import preview, preview_lines, read_photo
    from pixprep.cli.output import pixprep_command, say
    from pixprep.files import named
    from pixprep.importers.verify.comparison import reject_unverifiable

    if file.exists() and not force:
        raise PixprepError(f"{file} already exists: choose a different file, or pass --force to overwrite it")
    photo = read_photo(image)
    given = {**dict(option), **({} if training is None else {"training": training})}
    given |= {"run_python": True} if run_python else {}
    folder = Path(source.removeprefix("dali:"))
    if folder.is_dir():
        from pixprep.serving.repository.dali_model import find_dali_model

        if models := find_dali_model(folder):
            return _import_dali_model(models, file, given, photo)
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
    try:
        reject_unverifiable(pipeline.for_serving().for_photos())
        command = "verify"
    except PipelineError:
        command = "explain"
    say(f"next  {pixprep_command()} {command} {shlex.quote(str(file))}", file=sys.stderr)
    return 0


def _import_dali_model(
    models: Sequence[DaliModel], folder: Path, options: dict[str, Any], photo: tuple[str, bytes]
) -> int:
    """Convert all versions of a dali_backend model and write them as one pixprep model folder."""
    from pixprep.cli.files import preview, preview_lines
    from pixprep.cli.output import pixprep_command, say
    from pixprep.serving.repository.dali_model import check_replaceable
    from pixprep.serving.repository.warmups import FOLDER, warmup_files
    from pixprep.serving.repository.writer import write
    from pixprep.serving.triton.config import CONFIG_FILE

    files: dict[str, Content] = {}
    for model in models:
        pipeline, made, notes = _translated(model, options)
        if files.get(CONFIG_FILE, made[CONFIG_FILE]) != made[CONFIG_FILE]:
            raise PixprepError(
                f"{model.file}: the inputs or outputs differ from those of earlier versions, but all versions of a "
                f"model share one {CONFIG_FILE}: remove version_policy to import only the newest version"
            )
        files |= made
    photos = warmup_files(model.folder, model.config.get("model_warmup", []))
    files |= {f"{FOLDER}/{name}": content for name, content in photos.items()}
    check_replaceable(folder)
    write(folder.absolute().parent, {folder.absolute().name: files})
    for name in files:
        path = folder / name
        say(f"{path}: copied from {model.folder / name}" if name.startswith(f"{FOLDER}/") else path)
    for note in notes[:_MAX_NOTES]:
        say(f"{model.folder.name}: {shown(note)}", file=sys.stderr)
    if len(notes) > _MAX_NOTES:
        say(f"{model.folder.name}: {len(notes) - _MAX_NOTES:,} more fields are omitted", file=sys.stderr)
    if folder.name != model.folder.name:
        say(
            f"the new model is named {folder.name}: change the model name in clients that call {model.folder.name}",
            file=sys.stderr,
        )
    preview(photo, lambda encoded: preview_lines(pipeline, encoded))
    say(f"next  {pixprep_command()} check {shlex.quote(str(folder.parent))}", file=sys.stderr)
    return 0


def _translated(model: DaliModel, options: dict[str, Any]) -> tuple[Pipeline, dict[str, str], list[str]]:
    """Convert one version of a dali_backend model.

    Returns:
        The pipeline; a dict from file names to the contents of the files to write; and notes about fields of the
        configuration that are omitted.
    """
    from pixprep.importers import importer_of
    from pixprep.importers.dali import interface, read_graph
    from pixprep.serving.repository.dali_model import translated

    from_dali = importer_of("dali", options)
    if "dtypes" in options:
        raise PixprepError(
            "the option dtypes is not supported for a model folder: its config.pbtxt declares the types of the inputs"
        )
    script = ("pipeline", "python", "run_python")
    data = read_graph(model.file, **{name: options[name] for name in script if name in options})
    others = {name: value for name, value in options.items() if name not in script}
    inputs, outputs, batch_size = interface(data, model.file.name)
    chosen = {name: model.output_of(value, outputs) for name, value in others.items() if name == "output"}
    pipeline = from_dali(data, dtypes=model.dtypes, **{**others, **chosen})
    return pipeline, *translated(model, pipeline, inputs, outputs, batch_size=batch_size, **chosen)


def source_of(source: str | None, options: dict[str, Any]) -> str | Pipeline | None:
    """Return the pipeline of the newest version if the source is a folder of dali_backend, or the source itself."""
    if source is None or not (folder := Path(source.removeprefix("dali:"))).is_dir():
        return source
    from pixprep.pipeline.pipeline import Pipeline
    from pixprep.serving.repository.dali_model import find_dali_model

    models = find_dali_model(folder)
    if not models:
        return source
    _, files, _ = _translated(models[-1], options)
    return Pipeline.from_json(next(text for name, text in files.items() if name.endswith("pipeline.json")))
