"""Signatures of operators: the fields that a file may give, with their types."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

_PLAIN = (bool, int, float, str, NoneType)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_KEPT = ("name", "from_", "only")  # of every op


def fields_of(name: str, function: Callable[..., Any]) -> tuple[type[msgspec.Struct], str | None]:
    """The type of an operator's fields, by its function's signature, and the parameter that gets a generator.

    Raises:
        TypeError: a file could not fill this signature.
    """

    def refuse(what: str) -> NoReturn:
        raise TypeError(f"{name}: {what}")

    if not inspect.isfunction(function):
        refuse(f"an operator is made of a function, not of {type(function).__name__}")
    parameters = [*inspect.signature(function).parameters.values()]
    if not parameters or parameters[0].kind not in _POSITIONAL:
        refuse("its function takes an array first")
    hints = get_type_hints(function)
    made: list[Any] = []
    generator: str | None = None
    for each in parameters[1:]:
        if each.kind is not each.KEYWORD_ONLY:
            refuse(f"write * before {each.name}: fields are given by their names")
        if each.name in _KEPT:
            refuse(f"no field may be called {each.name}, which every op has")
        kind = hints.get(each.name)
        if kind is np.random.Generator:
            generator = each.name
            continue
        if not _is_plain(kind):
            refuse(f"the field {each.name} has no type that a file can hold: bool, int, float, str, Literal, tuple")
        if each.default is each.empty:
            made.append((each.name, kind))
            continue
        try:
            default = msgspec.convert(msgspec.to_builtins(each.default), kind)
        except (msgspec.ValidationError, TypeError):
            refuse(f"the default of the field {each.name} is not of its type: {each.default!r}")
        made.append((each.name, kind, default))
    return msgspec.defstruct("Fields", made, kw_only=True, frozen=True, forbid_unknown_fields=True), generator


def _is_plain(kind: Any) -> bool:
    """Tell whether JSON holds values of a type, and they never change."""
    if get_origin(kind) is Literal:
        return all(isinstance(word, str | int) for word in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return all(map(_is_plain, get_args(kind)))
    if get_origin(kind) is tuple:
        return all(part is Ellipsis or _is_plain(part) for part in get_args(kind))
    return kind in _PLAIN
