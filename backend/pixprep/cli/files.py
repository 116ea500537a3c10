"""Functions that several commands use to read pipelines, photos and numeric inputs, and to write pictures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pixprep.cli.output import say
from pixprep.errors import ImageError, PixprepError, SetupError
from pixprep.files import PHOTOS, expand, named, skipped, write
from pixprep.pipeline.pipeline import Pipeline

Photo = tuple[str, bytes]
"""Name and bytes of a photo."""


def write_picture(output: Path, picture: Any) -> None:
    """Write a picture to a PNG file."""
    from pixprep.show.drawing import to_png

    with named(output, "cannot be written"):
        write(output, to_png(picture))


def check_picture(output: Path | None, photos: Sequence[Path]) -> None:
    """Raise ``PixprepError`` if the output does not end in .png, or would overwrite one of the photos."""
    if output is None:
        return
    if output.suffix.lower() != ".png":
        raise PixprepError(f"{output}: the picture is written as PNG: choose a file name that ends in .png")
    if output.exists() and any(photo.exists() and photo.samefile(output) for photo in expand(photos)):
        raise PixprepError(f"{output} is one of the input photos: choose a different output file")


def say_skipped(paths: Sequence[Path]) -> None:
    """Print to stderr which files in the given folders are skipped."""
    for text in skipped(paths):
        say(text, file=sys.stderr)


def numbers_of(inputs: Any) -> dict[str, Any]:
    """Return the values of the ``--input`` options by name. A string is the path of a JSON file with the value.

    ``inputs`` is the sequence of pairs that the parser creates, or None.
    """
    found = {}
    for name, value in inputs or ():
        found[name] = value
        if isinstance(value, str):
            if not Path(value).exists():
                raise PixprepError(f"{name}={value}: the value is neither JSON nor the path of an existing JSON file")
            with named(Path(value), "cannot be read"):
                text = Path(value).read_text(encoding="utf-8")
            try:
                found[name] = json.loads(text)
            except ValueError as error:
                raise PixprepError(f"{value}: not valid JSON: {error}") from None
    return found


def served_side(path: Path) -> Pipeline:
    """Load the serving side of a pipeline, adapted to input from files, and print to stderr which ops it omits."""
    pipeline = Pipeline.load(path).for_serving().for_files()
    if pipeline.left_out:
        say(f"{path}: {pipeline.left_out}", file=sys.stderr)
    return pipeline


def read_photo(image: Path | None) -> Photo:
    """Return the name and the bytes of the photo for a preview. If ``image`` is None, it is a built-in photo."""
    path = image or PHOTOS / "china.jpg"
    if path.is_dir():
        raise PixprepError(f"{path} is a folder: pass the path of a photo")
    with named(path, "cannot be read"):
        return str(path) if image else f"{path.name}, a photo that ships with pixprep", path.read_bytes()


def preview_lines(pipeline: Pipeline, encoded: bytes) -> Iterator[str]:
    """Return the lines of the preview of one photo."""
    from pixprep.show.preview import preview

    return preview(pipeline, encoded).lines()


def preview(photo: Photo, lines: Callable[[bytes], Iterator[str]]) -> None:
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
