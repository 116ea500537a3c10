"""Parses the values of command-line options, and defines the options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pixprep.formats import FORMATS


def read_parameter(text: str, example: str = "threads=2") -> tuple[str, str]:
    """Parse ``NAME=VALUE``. The error message for invalid text contains ``example``."""
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE such as {example}, not {text!r}")
    return name, value


def read_option(text: str) -> tuple[str, Any]:
    """Parse ``NAME=VALUE``. If the value is valid JSON, convert it to a Python object."""
    from pixprep.importers import assembly

    _, written = read_parameter(text, "input=tensor")
    name, value = assembly.read_option(text)
    if written.startswith(("[", "{")) and isinstance(value, str):
        raise argparse.ArgumentTypeError(f"{text!r}: the value is not valid JSON")
    return name, value


def read_named_file(text: str) -> tuple[str, Path]:
    """Parse ``FILE`` or ``NAME=FILE``. If the whole text is the path of an existing file, it is parsed as ``FILE``."""
    name, equals, file = text.partition("=")
    if not equals or Path(text).exists():
        return "", Path(text)
    if not (name and file):
        raise argparse.ArgumentTypeError(f"expected INPUT=FILE such as left=left.json, not {text!r}")
    return name, Path(file)


def read_formats(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of image formats."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in FORMATS:
            raise argparse.ArgumentTypeError(f"{name!r} is not a supported format: choose from {', '.join(FORMATS)}")
    return names


def read_size(text: str) -> tuple[int, int]:
    """Parse ``HEIGHTxWIDTH``, and check that the size is within the default ``Limits``."""
    from pixprep.engine.decoders import Limits
    from pixprep.errors import ImageError

    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected HEIGHTxWIDTH such as 480x640, not {text!r}")
    try:
        Limits().check_size(int(height), int(width))
    except ImageError as error:
        raise argparse.ArgumentTypeError(error.detail) from None
    return int(height), int(width)


def whole(least: int) -> Callable[[str], int]:
    """Return a function that parses an integer of at least ``least``."""

    def read(text: str) -> int:
        if not (text.isdecimal() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"expected an integer of at least {least}, not {text!r}")
        return int(text)

    return read


def read_collector(text: str) -> str:
    """Check that a string is an HTTP(S) URL with a path, as the URL of an OTLP collector must be, and return it."""
    try:
        url = urlsplit(text)
        is_complete = url.scheme in ("http", "https") and url.hostname and url.path.strip("/") and url.port != 0
    except ValueError:  # an invalid port
        is_complete = False
    if not is_complete:
        raise argparse.ArgumentTypeError(
            f"expected the URL of a collector such as http://localhost:4318/v1/traces, not {text!r}"
        )
    return text


def read_positive(text: str) -> float:
    """Parse a finite number greater than 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number greater than 0, not {text!r}")
    return number


DIRECTORY: dict[str, Any] = {"type": Path, "metavar": "DIR"}
FILE: dict[str, Any] = {"type": Path, "metavar": "FILE"}
PIPELINE: dict[str, Any] = {"type": Path, "metavar": "PIPELINE", "help": "a pipeline file"}
IMAGES: dict[str, Any] = {**FILE, "nargs": "+", "help": "an image, or a folder of images"}
SOURCE: dict[str, Any] = {
    "metavar": "SOURCE",
    "help": "the data set: a folder, a pattern such as train-*.tar, a .csv, .json (COCO) or .tfrecord file, or "
    "KIND:PATH, where KIND is files, table, tfrecord, coco, voc, tar or videos",
}
SOURCE_OPTION: dict[str, Any] = {
    "type": read_option,
    "action": "append",
    "default": [],
    "metavar": "NAME=VALUE",
    "help": "keyword argument of the function in pixprep.read that reads the data set, such as images=train2017, "
    "label=null, image=jpg; may be repeated",
}
IMPORT_OPTION: dict[str, Any] = {
    **SOURCE_OPTION,
    "help": "option of the importer, such as input=tensor, backend=pil, loader=image_dataset; may be repeated",
}
NUMBERS: dict[str, Any] = {
    "type": read_option,
    "action": "append",
    "dest": "inputs",
    "metavar": "NAME=ROWS",
    "help": "value of the numeric input NAME for each image, such as boxes=[[0,0,99,99]], or a JSON file that contains "
    "the value, or an object with one value per image file name; may be repeated",
}
PHOTO: dict[str, Any] = {
    **FILE,
    "help": "photo or clip for the preview; default: a small photo that ships with pixprep",
}
COUNT: dict[str, Any] = {"type": whole(1), "metavar": "N"}
SECONDS: dict[str, Any] = {"type": read_positive, "metavar": "S"}
FORCE: dict[str, Any] = {"action": "store_true", "help": "overwrite existing files"}
ODD_RANGE: dict[str, Any] = {"action": "store_true", "help": "accept a value range that is unusual for classifiers"}
DEFAULT = "default: %(default)s"


def one_of(choices: tuple[str, ...]) -> dict[str, Any]:
    """Return the ``add_argument`` settings of an option with fixed choices. The first choice is the default."""
    return {"choices": choices, "default": choices[0]}


def as_json(text: str) -> dict[str, Any]:
    """Return the ``add_argument`` settings of ``--json``. ``text`` describes the JSON output in ``--help``."""
    return {"action": "store_true", "dest": "as_json", "help": f"print {text}"}


def add_request(command: argparse.ArgumentParser, *, has_images: bool) -> None:
    """Add the arguments of a command that sends requests; with ``has_images``, also the paths of images."""
    if has_images:
        command.add_argument("paths", **IMAGES)
    command.add_argument("--protocol", **one_of(("http", "grpc")), help=f"protocol of the requests; {DEFAULT}")
    command.add_argument(
        "--url", help="HOST:PORT of the server; default: localhost:8000 for HTTP, localhost:8001 for gRPC"
    )
    command.add_argument("--model", default="ensemble", help=f"model to call; {DEFAULT}")
    if has_images:
        command.add_argument("--batch", **COUNT, default=1, help=f"images per request; {DEFAULT}")
        command.add_argument("--input", **NUMBERS, default=[])
