"""Converts model folders of dali_backend, which ``pixprep import``, ``check --source`` and ``verify --source`` read."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pixprep.cli.files import Photo, preview, preview_lines
from pixprep.cli.output import called, say
from pixprep.errors import PixprepError, shown
from pixprep.importers import importer_of
from pixprep.importers.dali import interface, read_graph
from pixprep.pipeline.pipeline import Pipeline
from pixprep.serving.repository.dali_model import DaliModel, find_dali_model, refuse_strangers, translated
from pixprep.serving.repository.warmups import FOLDER, warmup_files
from pixprep.serving.repository.writer import Content, write
from pixprep.serving.triton.config import CONFIG_FILE

_MAX_NOTES = 50


def import_dali_model(models: Sequence[DaliModel], folder: Path, options: dict[str, Any], photo: Photo) -> int:
    """Convert all versions of a dali_backend model and write them as one pixprep model folder."""
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
    refuse_strangers(folder)
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
    say(f"next  {called()} check {shlex.quote(str(folder.parent))}", file=sys.stderr)
    return 0


def _translated(model: DaliModel, options: dict[str, Any]) -> tuple[Pipeline, dict[str, str], list[str]]:
    """Convert one version of a dali_backend model.

    Returns:
        The pipeline; a dict from file names to the contents of the files to write; and notes about fields of the
        configuration that are omitted.
    """
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


def newest_pipeline(folder: Path, options: dict[str, Any]) -> Pipeline | None:
    """Return the pipeline of the newest version of a dali_backend model, or None if the folder is not such a model."""
    models = find_dali_model(folder)
    if not models:
        return None
    _, files, _ = _translated(models[-1], options)
    return Pipeline.from_json(next(text for name, text in files.items() if name.endswith("pipeline.json")))
