"""Finds the custom operators that a pipeline file refers to.

A pipeline file contains only the name, the version and the fields of an operator, and never causes an import by itself.
The operator's function comes from one of two sources. Either the caller passes the operator in Python
(``pixprep.load(path, operators=[denoise])``), or an installed package provides it as an entry point of the group
``pixprep.operators``. An installed operator is used only if the administrator of the server allows it by name.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from pixprep.errors import PipelineError, SetupError
from pixprep.plan.steps.operators import MAX_CHARS, Operator

log = logging.getLogger(__name__)

GROUP = "pixprep.operators"
VARIABLE = "PIXPREP_ALLOW_OPERATORS"
"""Name of the environment variable that lists the installed operators that may be loaded, separated by spaces.

``pixprep serve --allow-operators`` sets it.
"""


def listed(operators: Sequence[Operator | str]) -> Sequence[Operator | str]:
    """Check that the argument ``operators`` is a list of operators and names, and return it.

    Raises:
        PipelineError: The argument is not such a list.
    """
    is_list = isinstance(operators, Sequence) and not isinstance(operators, str)
    wrong = next((one for one in operators if not isinstance(one, Operator | str)), None) if is_list else operators
    if wrong is not None or not is_list:
        shown = repr(wrong)[:MAX_CHARS]
        raise PipelineError(f"operators must be a list of operators (made by pixprep.operator) or names, not {shown}")
    return operators


def find(name: str, version: int, operators: Sequence[Operator | str]) -> Operator:
    """Find the operator with this name and version, among ``operators`` and the allowed installed operators.

    Args:
        name: Name of the operator in the pipeline file.
        version: Version of the operator in the pipeline file.
        operators: Operators, and names of allowed installed operators. The environment variable ``VARIABLE`` allows
            further names.

    Raises:
        PipelineError: No operator with this name and version was found.
        SetupError: The package of the operator cannot be imported, or its entry point is not an operator of this name.
    """
    found = [one for one in operators if isinstance(one, Operator) and one.name == name]
    allowed = {one for one in operators if isinstance(one, str)} | {*os.environ.get(VARIABLE, "").split()}
    if not found and name in allowed:
        found = [_installed(name)]
    for one in found:
        if one.version == version:
            return one
    if found:
        versions = " and ".join(str(one.version) for one in found)
        raise PipelineError(f"needs operator {name} {version}, but found version {versions}: install version {version}")
    what = "allow it" if _entries(name) else "install it and allow it"
    raise PipelineError(
        f"needs operator {name} {version}: {what} with operators=[...] in pixprep.load, allow_operators in "
        f"config.pbtxt, `pixprep build --parameter allow_operators={name}`, `pixprep serve --allow-operators`, or, for "
        f"any command, the environment variable {VARIABLE}={name}"
    )


def _installed(name: str) -> Operator:
    """Import the operator that an installed package provides under this name."""
    entries = list({(entry.value, entry.dist.name if entry.dist else ""): entry for entry in _entries(name)}.values())
    if len(entries) != 1:
        why = "no installed package provides it" if not entries else f"{len(entries)} installed packages provide it"
        raise SetupError(f"operator {name} is allowed, but {why} (entry points of the group {GROUP})")
    try:
        made = entries[0].load()
    except Exception as error:
        log.exception("the operator %s does not load", name)
        raise SetupError(f"operator {name}: its package cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(made, Operator) or made.name != name:
        what = made.name if isinstance(made, Operator) else type(made).__name__
        raise SetupError(f"operator {name}: its entry point is {what}, which is not an operator of this name")
    return made


def check_installed(names: Sequence[str]) -> None:
    """Check that an installed package provides each of these operators.

    Raises:
        SetupError: An operator is not installed. The message contains the names of this operator and of the installed
            operators.
    """
    for name in names:
        if not _entries(name):
            known = ", ".join(sorted({entry.name for entry in _entries(None)})) or "none"
            fix = f"install its package in pixprep's environment; the installed operators are: {known}"
            raise SetupError(f"--allow-operators {name}: no installed package provides this operator: {fix}")


def _entries(name: str | None) -> Sequence[Any]:
    """Return the entry points of the installed operators with this name, or those of all installed operators."""
    from importlib.metadata import entry_points  # noqa: PLC0415  (importing it takes 30 ms, and is rarely necessary)

    return [entry for entry in entry_points(group=GROUP) if name in (None, entry.name)]
