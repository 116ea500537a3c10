"""Functions that several commands use to write pictures, report skipped files, and read numeric inputs from JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pixprep.cli.output import say
from pixprep.errors import PixprepError
from pixprep.files import expand, named, skipped, write


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


def numbers_of(inputs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values of the ``--input`` options by name. If a value is a string, read it from that JSON file."""
    found = {}
    for name, value in inputs:
        found[name] = value
        if isinstance(value, str):
            with named(Path(value), "cannot be read"):
                text = Path(value).read_text(encoding="utf-8")
            try:
                found[name] = json.loads(text)
            except ValueError as error:
                raise PixprepError(f"{value}: not valid JSON: {error}") from None
    return found
