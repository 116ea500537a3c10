"""Types of options. A type contains the properties that an option has on the command line.

An option is declared once, as a parameter of a command in ``cli/commands``, or as a field of a struct in
``engine/options.py`` or ``serving/options.py``, which is a parameter of a command. ``cli/arguments.py`` derives the
command line from the names, types, defaults and docstrings.

The properties, a ``Shell``, are arguments of ``ArgumentParser.add_argument`` and:

- ``name``: name on the command line. Default: ``--`` and the name in Python, without a final ``_`` or ``_s``.
- ``kind``: function in ``cli.arguments.READERS`` that parses a value. Default: according to the type.
- ``least``: minimum of an integer. Default: 1.
- ``is_hidden``: whether the option exists only in Python.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any


class Shell(dict[str, Any]):
    """Properties of an option on the command line. Unlike a dict, it is hashable, as a part of a type must be."""

    def __hash__(self) -> int:  # type: ignore[override]  # in ``dict``, it is None
        return id(self)


Folder = Annotated[Path, Shell(metavar="DIR")]
Natural = Annotated[int, Shell(least=0)]
Port = Annotated[int, Shell(least=0)]
Name = Annotated[str, Shell(metavar="NAME")]
NamedFiles = Annotated[Any, Shell(kind="named file", action="append")]
"""Files with an optional name: on the command line, a list of pairs of the name and the path."""
Pictures = Annotated[
    Any,
    Shell(
        name="--picture",
        kind="picture",
        action="append",
        metavar="OUTPUT=KIND,...",
        help="output that is a picture, such as alpha=map,range=0..1,draw=alpha or mask=classes,draw=overlay; see "
        "docs/pictures.md; may be repeated",
    ),
]
"""Declarations of outputs that are pictures. On the command line, this is a list of pairs (name, ``Picture``)."""
Rows = Annotated[
    Any,
    Shell(
        name="--input",
        kind="rows",
        action="append",
        metavar="NAME=ROWS",
        help="numeric input NAME of each image: a JSON value such as boxes=[[0,0,99,99]], or a JSON file that contains "
        "the value, or an object with one value per image file name; may be repeated",
    ),
]
"""Numeric inputs by name. A value is either the rows to send with every image, or a mapping from file names to the rows
of each file. On the command line, a list of pairs."""
