"""Derives the arguments of a command from its function, and parses their values."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from pixprep.engine.options import Limits
from pixprep.errors import ImageError
from pixprep.formats import FORMATS
from pixprep.options import Shell


def add_options(
    parser: argparse.ArgumentParser,
    function: Callable[..., int],
    groups: Mapping[str, Sequence[str]],
    either: Sequence[str],
) -> None:
    """Add the options of a command to its parser.

    Args:
        parser: Parser of the command.
        function: Function that runs the command. Its parameters are the arguments and options of the command. If a
            parameter is a dataclass, its fields are options.
        groups: Names of options by the title of their group in the help text.
        either: Names of options that exclude each other.
    """
    structs = _structs(function)
    declared: list[tuple[Any, Any]] = [(each, function) for each in inspect.signature(function).parameters.values()]
    declared = [each for each in declared if each[0].name not in structs]
    declared += [(each, struct) for struct in structs.values() for each in fields(struct)]
    options = [(each, _hints(owner)[each.name], _texts(owner).get(each.name, "")) for each, owner in declared]
    options.sort(key=lambda each: each[0].name in either)  # so that the usage shows the alternatives together
    group_of = {name: title for title, names in groups.items() for name in names}
    holders: dict[Any, Any] = {"": parser, **{title: parser.add_argument_group(title) for title in groups}}
    for each, hint, text in options:
        holder = holders[group_of.get(each.name, "")]
        if each.name in either:
            holder = holders.setdefault(either, None) or holder.add_mutually_exclusive_group()
            holders[either] = holder
        _add_option(holder, each, hint, text)


def call(function: Callable[..., int], values: Mapping[str, Any]) -> int:
    """Run a command with the values of the parsed arguments."""
    structs = {
        name: struct(**{each.name: values[each.name] for each in fields(struct) if each.name in values})
        for name, struct in _structs(function).items()
    }
    return function(**structs, **{name: values[name] for name in _hints(function).keys() - structs if name in values})


def _add_option(parser: Any, declared: Any, hint: Any, text: str) -> None:
    """Add the option that a parameter of a command or a field of a struct declares."""
    chosen: dict[str, Any] = {}
    while type(None) in get_args(hint) or get_origin(hint) is Annotated:  # such as ``Folder | None``
        hint, *properties = get_args(hint)
        chosen |= {name: value for each in properties if each is not type(None) for name, value in each.items()}
    if chosen.pop("is_hidden", False):
        return
    is_list = get_origin(hint) is Sequence
    item = get_args(hint)[0] if is_list else hint
    usual: dict[Any, Any] = {
        int: (integer(chosen.pop("least", 1)), "N"),
        float: (read_positive, "S"),
        Path: (Path, "FILE"),
    }
    if "kind" in chosen:
        settings: dict[str, Any] = {"type": READERS[chosen.pop("kind")]}
    elif item is bool or get_origin(item) is Literal:
        settings = {"action": "store_true"} if item is bool else {"choices": get_args(item)}
    else:
        settings = dict(zip(("type", "metavar"), usual.get(item, ()), strict=False))
        settings |= {"nargs": "+"} if is_list else {}
        settings |= {"metavar": "NAME"} if is_list and item is str else {}
    default, text = chosen.pop("default", declared.default), chosen.pop("help", text)
    is_required = default in (MISSING, inspect.Parameter.empty)
    if getattr(declared, "kind", None) is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        name = declared.name
    else:
        name = f"--{declared.name.removesuffix('_').removesuffix('_s').replace('_', '-')}"
        settings |= {"dest": declared.name, "required": is_required}
    if item is not bool and not is_required:
        settings["default"] = [] if default == () else default  # the action ``append`` needs a list
        if default not in (None, "", ()) and "default: " not in text:
            text = f"{text}; default: %(default){'g' if item is float else 's'}"
    parser.add_argument(chosen.pop("name", name), help=text, **{**settings, **chosen})


@cache
def _hints(declared: Any) -> dict[str, Any]:
    """Return the types of a function's parameters or a struct's fields by name."""
    return {name: hint for name, hint in get_type_hints(declared, include_extras=True).items() if name != "return"}


@cache
def _structs(function: Callable[..., int]) -> dict[str, type[Any]]:
    """Return the structs among the types of the parameters of a function."""
    return {name: hint for name, hint in _hints(function).items() if isinstance(hint, type) and is_dataclass(hint)}


@cache
def _texts(documented: Any) -> dict[str, str]:
    """Return the descriptions of parameters or attributes in a docstring, as noun phrases."""
    texts: dict[str, str] = {}
    for each in reversed(getattr(documented, "__mro__", [documented])):
        found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", inspect.cleandoc(each.__doc__ or ""), re.MULTILINE)
        texts |= {name: " ".join(text.split()).removesuffix(".") for name, text in found}
    # a phrase begins with a lower-case letter, unless its first word is an abbreviation such as HOST:PORT
    return {name: text if text[1:2].isupper() else f"{text[:1].lower()}{text[1:]}" for name, text in texts.items()}


def read_parameter(text: str, example: str = "threads=2") -> tuple[str, str]:
    """Parse ``NAME=VALUE``. The error message for invalid text contains ``example``."""
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE such as {example}, not {text!r}")
    return name, value


def read_option(text: str, example: str = "input=tensor") -> tuple[str, Any]:
    """Parse ``NAME=VALUE``. If the value is valid JSON, convert it to a Python object."""
    from pixprep.importers import assembly

    name, equals, written = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE such as {example}, not {text!r}")
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


def read_picture(text: str) -> tuple[str, Any]:
    """Parse an argument of the form ``OUTPUT=KIND,...``."""
    from pixprep.errors import PixprepError
    from pixprep.postprocessing.pictures import Picture

    name, written = text.partition("=")[::2]
    if not (name and written):
        raise argparse.ArgumentTypeError(f"expected OUTPUT=KIND,... such as alpha=map,range=0..1, not {text!r}")
    try:
        return name, Picture.parse(written)
    except PixprepError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def read_formats(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of image formats."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in FORMATS:
            raise argparse.ArgumentTypeError(f"{name!r} is not a supported format: choose from {', '.join(FORMATS)}")
    return names


def read_size(text: str) -> tuple[int, int]:
    """Parse ``HEIGHTxWIDTH``, and check that the size is within the default ``Limits``."""
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected HEIGHTxWIDTH such as 480x640, not {text!r}")
    try:
        Limits().check_size(int(height), int(width))
    except ImageError as error:
        raise argparse.ArgumentTypeError(error.detail) from None
    return int(height), int(width)


def integer(least: int) -> Callable[[str], int]:
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


READERS: dict[str, Callable[[str], Any]] = {
    "collector": read_collector,
    "formats": read_formats,
    "named file": read_named_file,
    "parameter": read_parameter,
    "picture": read_picture,
    "size": read_size,
    "value": read_option,
    "rows": partial(read_option, example="boxes=[[0,0,99,99]]"),
    "constant": partial(read_option, example="conf=0.4"),
}
"""Functions that parse the values of options by the property ``kind``."""
PipelineFile = Annotated[Path, Shell(metavar="PIPELINE", help="a pipeline file")]
Images = Annotated[Sequence[Path], Shell(help="an image, or a folder of images")]
Photo = Annotated[
    Path | None, Shell(help="photo or clip for the preview; default: a small photo that ships with pixprep")
]
Json = Annotated[bool, Shell(name="--json")]
DataSet = Annotated[
    str,
    Shell(
        metavar="SOURCE",
        help="the data set: a folder, a pattern such as train-*.tar, a .csv, .json (COCO) or .tfrecord file, or "
        "KIND:PATH, where KIND is files, table, tfrecord, coco, voc, tar or videos",
    ),
]
_Values = Annotated[
    Sequence[tuple[str, Any]], Shell(name="--option", kind="value", action="append", metavar="NAME=VALUE")
]
DataSetOptions = Annotated[
    _Values,
    Shell(
        help="keyword argument of the function in pixprep.read that reads the data set, such as images=train2017, "
        "label=null, image=jpg; may be repeated"
    ),
]
ImporterOptions = Annotated[
    _Values,
    Shell(help="option of the importer, such as input=tensor, backend=pil, loader=image_dataset; may be repeated"),
]
