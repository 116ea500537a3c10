"""Reads tables of error messages. Each line contains a call and the complete message of the error that it raises.

``rotate(4000) -> rotate: "angle" must be between -3600 and 3600, not 4000``

The message may begin on a new line. If the call is a list, it contains the ops of a pipeline. Unless the error is a
PipelineError, its type precedes the message. Each line of a table is a separate test, which fails if a single word of
the message differs.
"""

from pathlib import Path

import pytest

import pixprep as pp

PUBLIC = {name: getattr(pp, name) for name in pp.__all__}


def rows(room, table):
    """Return (call, result) for each line of a table in a test folder."""
    text = (Path(__file__).parents[1] / room / table).read_text(encoding="utf-8").replace("\n    ->", " ->")
    return [line.split(" -> ", 1) for line in text.splitlines() if line and not line.startswith("#")]


def refusals(room, table="refusals.txt", result="words"):
    """Parametrize a test with the ``call`` and the ``words`` of each line of a table in a test folder."""
    lines = rows(room, table)
    return pytest.mark.parametrize(("call", result), lines, ids=[call for call, _ in lines])


def refusal(call, **names):
    """Return the message of the error that a call raises.

    ``names`` are names that the call may use in addition to the public names.
    """
    call = f"Pipeline({call})" if call.startswith("[") else call
    with pytest.raises((pp.PixprepError, TypeError, ValueError)) as caught:
        eval(call, PUBLIC | names)  # noqa: S307 - lines of our own
    kind = type(caught.value).__name__
    return str(caught.value) if kind == "PipelineError" else f"{kind}: {caught.value}"
