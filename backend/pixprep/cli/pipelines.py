"""Implements the commands for a pipeline or a model repository: build, check, import, verify, explain.

Modules are imported inside the functions of the commands, so that ``pixprep run`` works without Triton's packages.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pixprep.cli.files import check_picture, say_skipped, write_picture
from pixprep.cli.output import called, print_text, say
from pixprep.errors import ImageError, PixprepError, SetupError, shown
from pixprep.files import PHOTOS, expand, named
from pixprep.pipeline import presets
from pixprep.pipeline.differences import differences
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.warnings import black_margins
from pixprep.progress import Progress

if TYPE_CHECKING:
    from pixprep.serving.repository import Problem
    from pixprep.serving.repository.dali_model import DaliModel

_MAX_NOTES = 50


def write_repository(
    *,
    output: Path,
    pipeline: Sequence[tuple[str, Path]] | None,
    preset: str | None,
    image: Path | None,
    explain: Path | None,
    labels: Sequence[tuple[str, Path]] | None,
    **options: Any,
) -> int:
    """Run ``pixprep build``."""
    if explain:
        from pixprep.serving.repository import explain_onnx

        if not explain.is_file():
            raise PixprepError(f"{explain}: no such file")
        for line in explain_onnx(explain):
            say(line)
        return 0
    from pixprep.serving.repository import build, try_out
    from pixprep.serving.triton.config import operator_names

    photo = _photo(image)
    if options["parameters"] is not None:
        options["parameters"] = dict(options["parameters"])
    allowed = operator_names((options["parameters"] or {}).get("allow_operators", ""))
    if labels:
        heads = [head for head, _ in labels]
        if len(heads) > 1 and len(set(heads) - {""}) < len(heads):
            raise PixprepError(
                "with several --labels files, pass each as OUTPUT=FILE, where OUTPUT is an output of the model"
            )
        options["labels"] = dict(labels).get("", dict(labels))
    loaded: Any = getattr(presets, preset)() if preset else None
    if pipeline:
        names = [name for name, _ in pipeline]
        if len(names) > 1 and len(set(names) - {""}) < len(names):
            raise PixprepError(
                "with several --pipeline files, pass each as INPUT=FILE, where INPUT is an input of the model"
            )
        files = {name: Pipeline.load(path, operators=allowed) for name, path in pipeline}
        loaded = files.get("", files)
    built = build(output, pipeline=loaded, **options)
    for path in built.paths:
        say(path)
    for note in built.notes:
        print_text(note, file=sys.stderr)
    _preview(photo, lambda encoded: try_out(output, encoded, name=options["name"]))
    if (
        options["plan"] or options["classifier"] != "tensorrt"
    ):  # without a plan, the next step is to create one, as a note of the build explains
        say(f"next  {called()} serve --model-repository {shlex.quote(str(output))}", file=sys.stderr)
    return 0


def check_path(
    *,
    path: Path,
    image: Path | None,
    odd_range: bool,
    source: str | None,
    option: Sequence[tuple[str, Any]],
    as_json: bool,
) -> int:
    """Run ``pixprep check``."""
    from pixprep.importers.source import note
    from pixprep.serving.repository import check, check_pipeline, side_notes, try_out
    from pixprep.serving.repository.repository import Repository
    from pixprep.serving.triton.config import PIPELINE_FILE

    photo = _photo(image)
    if not path.exists():
        raise PixprepError(f"{path}: no such file or folder")
    if source and path.is_dir():
        raise PixprepError(f"--source requires a pipeline file, and {path} is a folder")
    repository = Repository(path) if path.is_dir() else None
    problems = check(repository) if repository else check_pipeline(path, odd_range=odd_range)
    found: list[str] = []
    if source and not problems:
        problems, found = _compared(path, source, dict(option))
    files: dict[Path, Callable[[], Pipeline] | None] = {} if source else {path: None}
    if repository:
        versions = repository.pipelines.values()
        files = {version.folder / PIPELINE_FILE: partial(getattr, version, "pipeline") for version in versions}
    if as_json:
        print_text(json.dumps([asdict(problem) for problem in problems], indent=2))
    else:
        for problem in problems:
            say(problem)
        for margin in [] if problems or repository else black_margins(Pipeline.load(path)):
            say(f"{path.name}: {margin}", file=sys.stderr)
        if len(problems) != 1:  # for a single problem, a count would add nothing
            say(f"{path}: {f'{len(problems)} problems' if problems else 'no problem found'}")
    found += [f"{file}: {words}" for file, load in files.items() if (words := note(file, load))]
    for line in (*side_notes(repository or path, odd_range=odd_range), *found):
        say(line, file=sys.stderr if as_json else sys.stdout)
    if image and not problems:
        try:
            lines = try_out(repository, photo[1]) if repository else _lines(Pipeline.load(path), photo[1])
            for line in lines:
                say(line, file=sys.stderr if as_json else sys.stdout)
        except ImageError as error:
            raise PixprepError(f"{image}: {error}") from None
    return 1 if problems else 0


def _compared(path: Path, source: str, options: dict[str, Any]) -> tuple[list[Problem], list[str]]:
    """Compare a pipeline file with its source.

    Returns:
        The differences as a list of problems, and a list of lines. If the pipeline does not differ, the second list
        contains a line that confirms this.
    """
    from pixprep.importers.source import imported_again, is_equal
    from pixprep.serving.repository import Problem

    pipeline = Pipeline.load(path)
    given, name = imported_again(pipeline, source=_source(source, options), options=options, folder=path.parent)
    problems = [Problem(path.name, f"differs from {name}: {each}") for each in differences(pipeline, given)]
    return problems, [] if problems else [f"{path}: {is_equal(name)}"]


def import_pipeline(
    *,
    source: str,
    file: Path,
    option: Sequence[tuple[str, Any]],
    training: str | None,
    run_python: bool,
    image: Path | None,
    force: bool,
) -> int:
    """Run ``pixprep import``."""
    from pixprep import importers

    if file.exists() and not force:
        raise PixprepError(f"{file} already exists: choose a different file, or pass --force to overwrite it")
    photo = _photo(image)
    options = {**dict(option), **({} if training is None else {"training": training})}
    options |= {"run_python": True} if run_python else {}
    folder = Path(source.removeprefix("dali:"))
    if folder.is_dir():
        from pixprep.serving.repository.dali_model import find_dali_model

        if models := find_dali_model(folder):
            return _import_dali_model(models, file, options, photo)
    pipeline = importers.import_pipeline(source, **options)
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
    _preview(photo, lambda encoded: _lines(pipeline, encoded))
    say(f"next  {called()} verify {shlex.quote(str(file))}", file=sys.stderr)
    return 0


def _import_dali_model(
    models: Sequence[DaliModel], folder: Path, options: dict[str, Any], photo: tuple[str, bytes]
) -> int:
    """Convert all versions of a dali_backend model and write them as one pixprep model folder."""
    from pixprep.serving.repository.dali_model import refuse_strangers
    from pixprep.serving.repository.warmups import FOLDER, warmup_files
    from pixprep.serving.repository.writer import Content, write
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
    _preview(photo, lambda encoded: _lines(pipeline, encoded))
    say(f"next  {called()} check {shlex.quote(str(folder.parent))}", file=sys.stderr)
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


def _source(source: str | None, options: dict[str, Any]) -> str | Pipeline | None:
    """Return the pipeline of the newest version if the source is a dali_backend model folder, else the source."""
    if source is None or not (folder := Path(source.removeprefix("dali:"))).is_dir():
        return source
    from pixprep.serving.repository.dali_model import find_dali_model

    models = find_dali_model(folder)
    if not models:
        return source
    _, files, _ = _translated(models[-1], options)
    return Pipeline.from_json(next(text for name, text in files.items() if name.endswith("pipeline.json")))


def _photo(image: Path | None) -> tuple[str, bytes]:
    """Return the name and the bytes of the photo for a preview. Default: a built-in photo."""
    path = image or PHOTOS / "china.jpg"
    if path.is_dir():
        raise PixprepError(f"{path} is a folder: pass the path of a photo")
    with named(path, "cannot be read"):
        return str(path) if image else f"{path.name}, a photo that ships with pixprep", path.read_bytes()


def _lines(pipeline: Pipeline, encoded: bytes) -> Iterator[str]:
    from pixprep.show.preview import preview

    return preview(pipeline, encoded).lines()


def _preview(photo: tuple[str, bytes], lines: Callable[[bytes], Iterator[str]]) -> None:
    """Print a preview of one photo to stderr. If the photo cannot be processed, print the error instead.

    Raises:
        PipelineError: The pipeline would fail for every photo.
    """
    name, encoded = photo
    say(f"preview of {name}:", file=sys.stderr)
    try:
        for line in lines(encoded):
            say(f"  {line}", file=sys.stderr)
    except (ImageError, SetupError, OSError, MemoryError) as error:
        another = "" if isinstance(error, SetupError) else "; to preview a different photo, pass --image FILE"
        say(f"  no preview: {error or 'out of memory'}{another}", file=sys.stderr)


def verify_pipeline(
    *,
    pipeline: Path,
    images: Sequence[Path],
    source: str | None,
    option: Sequence[tuple[str, Any]],
    training: bool,
    seed: int,
    output: Path | None,
    as_json: bool,
) -> int:
    """Run ``pixprep verify``."""
    from pixprep.importers.verify import verify, verify_training

    check_picture(output, images)
    paths = expand(images)
    say_skipped(images)
    loaded = Pipeline.load(pipeline)
    if not training and (left_out := loaded.for_serving().left_out):
        say(f"{pipeline}: {left_out}", file=sys.stderr)
    options = dict(option)
    beside: dict[str, Any] = {"source": _source(source, options), "options": options, "folder": pipeline.parent}
    with Progress("images") as progress:
        if training:
            certificate = verify_training(loaded, seed=seed, images=paths, on_progress=progress.to, **beside)
        else:
            certificate = verify(loaded, images=paths, on_progress=progress.to, **beside)
    print_text(certificate.to_json() if as_json else str(certificate))
    if output:
        from pixprep.show.worst import worst

        picture = worst(certificate)
        if picture:
            write_picture(output, picture)
        result = "shows the image that differs most" if picture else "not written, because no image differs"
        say(f"{output}: {result}", file=sys.stderr)
    return 0 if certificate.is_exact else 1


def explain_pipeline(*, pipeline: Path, size: tuple[int, int], image: Path | None, output: Path | None) -> int:
    """Run ``pixprep explain``."""
    from pixprep.show.preview import preview, still
    from pixprep.show.words import explain

    check_picture(output, [image] if image else [])
    loaded = Pipeline.load(pipeline)
    if not image and not output:
        print_text(explain(loaded, height=size[0], width=size[1]))
        return 0
    name, encoded = _photo(image)
    try:
        encoded = bytes(still(loaded, encoded))
        found = preview(loaded, encoded)
        print_text(explain(loaded, height=found.height, width=found.width))
        for line in found.lines():
            say(line)
        if output:
            from pixprep.show.pictures import stages

            write_picture(output, stages(loaded, encoded, title=pipeline.name, name=Path(name).name))
            say(f"{output}: shows the stages of the pipeline", file=sys.stderr)
    except ImageError as error:
        raise PixprepError(f"{name}: {error}") from None
    return 0
