"""File helpers of the commands: pictures to write, skipped files, and numbers from JSON files."""

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
    """Write a picture as a PNG file."""
    from pixprep.show.drawing import to_png

    with named(output, "cannot be written"):
        write(output, to_png(picture))


def check_picture(output: Path | None, photos: Sequence[Path]) -> None:
    """Reject an output that is not a .png file, or that would overwrite one of the photos."""
    if output is None:
        return
    if output.suffix.lower() != ".png":
        raise PixprepError(f"{output}: the picture is a PNG file: name it .png")
    if output.exists() and any(photo.exists() and photo.samefile(output) for photo in expand(photos)):
        raise PixprepError(f"{output}: is one of the photos: name another file")


def say_skipped(paths: Sequence[Path]) -> None:
    """Print which files of the folders are skipped."""
    for text in skipped(paths):
        say(text, file=sys.stderr)


def numbers_of(inputs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the numbers that ``--input`` contains, or those in the JSON file that it names."""
    found = {}
    for name, value in inputs:
        found[name] = value
        if isinstance(value, str):
            with named(Path(value), "cannot be read"):
                text = Path(value).read_text(encoding="utf-8")
            try:
                found[name] = json.loads(text)
            except ValueError as error:
                raise PixprepError(f"{value}: is not JSON: {error}") from None
    return found
