"""Finds the operators that a pipeline file names.

A file contains the name, the version and the fields of an operator, and never imports anything. The function comes from
the caller in Python (``pixprep.load(path, operators=[denoise])``), or from an installed package by an entry point of
the group ``pixprep.operators``. The administrator of the server allows such an operator by its name.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from pixprep.errors import PipelineError, SetupError
from pixprep.plan.steps.operators import MAX_LETTERS, Operator

log = logging.getLogger(__name__)

GROUP = "pixprep.operators"
VARIABLE = "PIXPREP_ALLOW_OPERATORS"
"""Environment variable with the names of the installed operators that this process may load, separated by spaces.
``pixprep serve --allow-operators`` sets it."""


def listed(operators: Sequence[Operator | str]) -> Sequence[Operator | str]:
    """Return the argument ``operators`` if it is a list of operators and names.

    Raises:
        PipelineError: The argument is not such a list.
    """
    is_list = isinstance(operators, Sequence) and not isinstance(operators, str)
    wrong = next((one for one in operators if not isinstance(one, Operator | str)), None) if is_list else operators
    if wrong is not None or not is_list:
        said = repr(wrong)[:MAX_LETTERS]
        raise PipelineError(f"operators: a list of operators, as pixprep.operator makes them, or names, not {said}")
    return operators


def find(name: str, version: int, operators: Sequence[Operator | str]) -> Operator:
    """Find the operator of this name and version among ``operators`` and the installed operators that are allowed.

    Args:
        name: Name of the operator in the file.
        version: Version of the operator in the file.
        operators: Operators, and names of installed operators that are allowed; ``VARIABLE`` allows further names.

    Raises:
        PipelineError: No operator of this name and version is found.
        SetupError: The package of the operator does not load, or its entry point is not an operator of this name.
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
        raise PipelineError(f"needs operator {name} {version}, and version {versions} is here: install the other")
    what = "allow it" if _entries(name) else "install it and allow it"
    raise PipelineError(
        f"needs operator {name} {version}: {what}, by operators=[...] of pixprep.load, allow_operators in "
        f"config.pbtxt, `pixprep build --parameter allow_operators={name}`, `pixprep serve --allow-operators`, or for "
        f"any command {VARIABLE}={name}"
    )


def _installed(name: str) -> Operator:
    """Load the operator that an installed package offers under a name."""
    entries = list({(entry.value, entry.dist.name if entry.dist else ""): entry for entry in _entries(name)}.values())
    if len(entries) != 1:
        why = "no installed package has it" if not entries else f"{len(entries)} installed packages have it"
        raise SetupError(f"operator {name} is allowed, but {why} (entry points of the group {GROUP})")
    try:
        made = entries[0].load()
    except Exception as error:
        log.exception("the operator %s does not load", name)
        raise SetupError(f"operator {name}: its package does not load: {type(error).__name__}: {error}") from error
    if not isinstance(made, Operator) or made.name != name:
        what = made.name if isinstance(made, Operator) else type(made).__name__
        raise SetupError(f"operator {name}: its package has {what} under this name")
    return made


def check_installed(names: Sequence[str]) -> None:
    """Reject names that no installed package offers.

    Raises:
        SetupError: A name is not installed; the message contains the first such name and all installed names.
    """
    for name in names:
        if not _entries(name):
            known = ", ".join(sorted({entry.name for entry in _entries(None)})) or "none"
            remedy = f"install its package beside pixprep, or name one of these: {known}"
            raise SetupError(f"--allow-operators {name}: no installed package has this operator: {remedy}")


def _entries(name: str | None) -> Sequence[Any]:
    """Return the entry points of the installed operators of this name, or all entry points of the group."""
    from importlib.metadata import entry_points  # noqa: PLC0415  (30 ms, and few name an operator)

    return [entry for entry in entry_points(group=GROUP) if name in (None, entry.name)]
