"""The command ``pixprep check``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pixprep.cli.arguments import ImporterOptions, Json
from pixprep.errors import ImageError, PixprepError
from pixprep.options import Shell

if TYPE_CHECKING:
    from pixprep.pipeline.pipeline import Pipeline
    from pixprep.serving.repository import Problem


EXAMPLE = "check models"


def run(
    path: Annotated[Path, Shell(metavar="DIR|FILE")],
    *,
    image: Path | None = None,
    odd_range: bool = False,
    tensorrt: bool = False,
    source: Annotated[str | None, Shell(metavar="SOURCE")] = None,
    option: ImporterOptions = (),
    as_json: Json = False,
) -> int:
    """Check a model repository or a pipeline file without a server.

    Args:
        path: A model repository, or a pipeline file.
        image: Also preview the tensor of this photo.
        odd_range: Accept a value range that is unusual for classifiers.
        tensorrt: Check with TensorRT's parser, which needs no GPU, that TensorRT supports every ONNX file.
        source: For a pipeline file: import SOURCE again and report every difference from the file.
        as_json: Print a JSON list of objects with the keys where, what and remedy.
    """
    from pixprep.cli.files import preview_lines, read_photo
    from pixprep.cli.output import print_text, say
    from pixprep.importers.source import note
    from pixprep.pipeline.pipeline import Pipeline
    from pixprep.pipeline.warnings import black_margins
    from pixprep.serving.repository import check, check_pipeline, side_notes, try_out
    from pixprep.serving.repository.repository import Repository
    from pixprep.serving.triton.config import PIPELINE_FILE

    _, encoded = read_photo(image)
    if not path.exists():
        raise PixprepError(f"{path}: no such file or folder")
    if source and path.is_dir():
        raise PixprepError(f"--source requires a pipeline file, and {path} is a folder")
    if tensorrt and not path.is_dir():
        raise PixprepError(f"--tensorrt requires a model repository, and {path} is a file")
    repository = Repository(path) if path.is_dir() else None
    problems = check(repository, tensorrt=tensorrt) if repository else check_pipeline(path, odd_range=odd_range)
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
    text_file = sys.stderr if as_json else sys.stdout
    found += [f"{file}: {words}" for file, load in files.items() if (words := note(file, load))]
    for line in (*side_notes(repository or path, odd_range=odd_range), *found):
        say(line, file=text_file)
    if image and not problems:
        try:
            lines = try_out(repository, encoded) if repository else preview_lines(Pipeline.load(path), encoded)
            for line in lines:
                say(line, file=text_file)
        except ImageError as error:
            raise PixprepError(f"{image}: {error}") from None
    return 1 if problems else 0


def _compared(path: Path, source: str, options: dict[str, Any]) -> tuple[list[Problem], list[str]]:
    """Compare a pipeline file with its source.

    Returns:
        The differences as a list of problems, and a list of lines. If the pipeline does not differ, the second list
        contains a line that confirms this.
    """
    from pixprep.cli.commands.import_ import source_of
    from pixprep.importers.source import imported_again, is_equal
    from pixprep.pipeline.differences import differences
    from pixprep.pipeline.pipeline import Pipeline
    from pixprep.serving.repository import Problem

    pipeline = Pipeline.load(path)
    given, name = imported_again(pipeline, source=source_of(source, options), options=options, folder=path.parent)
    problems = [Problem(path.name, f"differs from {name}: {each}") for each in differences(pipeline, given)]
    return problems, [] if problems else [f"{path}: {is_equal(name)}"]
