"""Files of the commands: the photos that pixprep brings along, the files that a user names, and pictures."""

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
    """Write a picture as PNG."""
    from pixprep.show.drawing import to_png

    with named(output, "cannot be written"):
        write(output, to_png(picture))


def check_picture(output: Path | None, photos: Sequence[Path]) -> None:
    """Refuse a picture that no viewer would know, or that would take the place of a photo."""
    if output is None:
        return
    if output.suffix.lower() != ".png":
        raise PixprepError(f"{output}: the picture is a PNG file: name it .png")
    if output.exists() and any(photo.exists() and photo.samefile(output) for photo in expand(photos)):
        raise PixprepError(f"{output}: is one of the photos: name another file")


def say_skipped(paths: Sequence[Path]) -> None:
    """Say which files of the folders are passed over."""
    for text in skipped(paths):
        say(text, file=sys.stderr)


def numbers_of(inputs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Numbers of ``--input``, or of the JSON file that it names."""
    found = {}
    for name, value in inputs:
        found[name] = value
        if isinstance(value, str):
            with named(Path(value), "cannot be read"):
                text = Path(value).read_text(encoding="utf-8")
            try:
                found[name] = json.loads(text)
            except ValueError as error:
                raise PixprepError(f"{value}: is no JSON: {error}") from None
    return found
