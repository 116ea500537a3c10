"""Parsers of command-line values, and options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pixprep.formats import FORMATS


def read_parameter(text: str, such: str = "threads=2") -> tuple[str, str]:
    """Read NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as {such}")
    return name, value


def read_option(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE, where the value may be JSON."""
    from pixprep.importers import assembly

    _, written = read_parameter(text, "input=tensor")
    name, value = assembly.read_option(text)
    if written.startswith(("[", "{")) and isinstance(value, str):
        raise argparse.ArgumentTypeError(f"{text!r}: not JSON")
    return name, value


def read_named_file(text: str) -> tuple[str, Path]:
    """Read FILE or NAME=FILE. An existing file whose name contains ``=`` is read as FILE."""
    name, equals, file = text.partition("=")
    if not equals or Path(text).exists():
        return "", Path(text)
    if not (name and file):
        raise argparse.ArgumentTypeError(f"{text!r} is not INPUT=FILE, such as left=left.json")
    return name, Path(file)


def read_formats(text: str) -> tuple[str, ...]:
    """Read names of formats, separated by commas."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in FORMATS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(FORMATS)}")
    return names


def read_size(text: str) -> tuple[int, int]:
    """Read HEIGHTxWIDTH within the default limits."""
    from pixprep.engine.decoders import Limits
    from pixprep.errors import ImageError

    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not HEIGHTxWIDTH, such as 480x640")
    try:
        Limits().check_size(int(height), int(width))
    except ImageError as error:
        raise argparse.ArgumentTypeError(error.detail) from None
    return int(height), int(width)


def whole(least: int) -> Callable[[str], int]:
    """Return a parser of integers of at least ``least``."""

    def read(text: str) -> int:
        if not (text.isdecimal() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least {least}")
        return int(text)

    return read


def read_collector(text: str) -> str:
    """Read the URL of an OTLP collector."""
    try:
        url = urlsplit(text)
        is_whole = url.scheme in ("http", "https") and url.hostname and url.path.strip("/") and url.port != 0
    except ValueError:  # an invalid port
        is_whole = False
    if not is_whole:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the URL of a collector, such as http://localhost:4318/v1/traces"
        )
    return text


def read_positive(text: str) -> float:
    """Read a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


DIRECTORY: dict[str, Any] = {"type": Path, "metavar": "DIR"}
FILE: dict[str, Any] = {"type": Path, "metavar": "FILE"}
PIPELINE: dict[str, Any] = {"type": Path, "metavar": "PIPELINE", "help": "a pipeline file"}
IMAGES: dict[str, Any] = {**FILE, "nargs": "+", "help": "an image, or a folder of images"}
SOURCE: dict[str, Any] = {
    "metavar": "SOURCE",
    "help": "KIND:PATH, a folder, a pattern such as train-*.tar, or a .csv, .json (COCO) or .tfrecord file; "
    "kinds: files, table, tfrecord, coco, voc, tar, videos",
}
SOURCE_OPTION: dict[str, Any] = {
    "type": read_option,
    "action": "append",
    "default": [],
    "metavar": "NAME=VALUE",
    "help": "argument of the kind's function in pixprep.read, such as images=train2017, label=null, image=jpg; "
    "may be repeated",
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
    "help": "numeric input for each image, such as boxes=[[0,0,99,99]], or a JSON file of rows, which may map the "
    "name of each image file to its rows; may be repeated",
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
    """An option with a few choices, whose default is the first one."""
    return {"choices": choices, "default": choices[0]}


def as_json(text: str) -> dict[str, Any]:
    """Return an option that prints JSON."""
    return {"action": "store_true", "dest": "as_json", "help": f"print {text}"}


def add_request(command: argparse.ArgumentParser, *, has_images: bool) -> None:
    """Add the arguments of a command that sends requests; ``has_images``: the user names the images."""
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
