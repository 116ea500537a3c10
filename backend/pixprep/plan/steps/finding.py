"""Origin of the operators that a file names.

A file has a name, a version and fields, and never imports anything. The function comes with the call, in Python
(``pixprep.load(path, operators=[denoise])``), or from an installed package, by an entry point of the group
``pixprep.operators`` that whoever runs the server has allowed by its name.
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
"""The names of the installed operators that this process may take, with spaces between: what ``pixprep serve
--allow-operators`` sets."""


def listed(operators: Sequence[Operator | str]) -> Sequence[Operator | str]:
    """List what was given as ``operators``: operators and names.

    Raises:
        PipelineError: it is something else.
    """
    is_list = isinstance(operators, Sequence) and not isinstance(operators, str)
    wrong = next((one for one in operators if not isinstance(one, Operator | str)), None) if is_list else operators
    if wrong is not None or not is_list:
        said = repr(wrong)[:MAX_LETTERS]
        raise PipelineError(f"operators: a list of operators, as pixprep.operator makes them, or names, not {said}")
    return operators


def find(name: str, version: int, operators: Sequence[Operator | str]) -> Operator:
    """The operator of this name and version: one of ``operators``, or an installed one that is allowed.

    Args:
        name: as a file says it.
        version: as a file says it.
        operators: operators, and names of installed ones that are allowed; ``VARIABLE`` has more of these.

    Raises:
        PipelineError: there is none.
        SetupError: its package does not load, or is no such operator.
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
    """The operator that an installed package has under a name."""
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
    """Refuse names that no installed package has.

    Raises:
        SetupError: names the first, and those that there are.
    """
    for name in names:
        if not _entries(name):
            known = ", ".join(sorted({entry.name for entry in _entries(None)})) or "none"
            remedy = f"install its package beside pixprep, or name one of these: {known}"
            raise SetupError(f"--allow-operators {name}: no installed package has this operator: {remedy}")


def _entries(name: str | None) -> Sequence[Any]:
    """The installed operators of this name, or all."""
    from importlib.metadata import entry_points  # noqa: PLC0415  (30 ms, and few name an operator)

    return [entry for entry in entry_points(group=GROUP) if name in (None, entry.name)]
