"""Reads tables of error messages: each line contains a call and the full message of the error that it raises.

    rotate(4000) -> rotate: "angle" must be between -3600 and 3600, not 4000

The message may begin on a new line. A list is a pipeline. The type of an error precedes its message, except for
PipelineError. Each line of a table is a test, which fails if one word of the message differs.
"""

from pathlib import Path

import pytest

import pixprep as pp

PUBLIC = {name: getattr(pp, name) for name in pp.__all__}


def rows(room, table):
    """Return (call, result) for each line of a folder's table."""
    text = (Path(__file__).parents[1] / room / table).read_text(encoding="utf-8").replace("\n    ->", " ->")
    return [line.split(" -> ", 1) for line in text.splitlines() if line and not line.startswith("#")]


def refusals(room, table="refusals.txt", result="words"):
    """Parametrize a test with the ``call`` and the ``words`` of each line of a folder's table."""
    lines = rows(room, table)
    return pytest.mark.parametrize(("call", result), lines, ids=[call for call, _ in lines])


def refusal(call, **names):
    """Return the message of the error that a call raises.

    ``names`` are the names that it may use besides the public ones.
    """
    call = f"Pipeline({call})" if call.startswith("[") else call
    with pytest.raises((pp.PixprepError, TypeError, ValueError)) as caught:
        eval(call, PUBLIC | names)  # noqa: S307 - lines of our own
    kind = type(caught.value).__name__
    return str(caught.value) if kind == "PipelineError" else f"{kind}: {caught.value}"
