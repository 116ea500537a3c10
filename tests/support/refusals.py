"""Tables of refusals: on each line a call, and the whole words of the error that it ends in.

    rotate(4000) -> rotate: "angle" must be -3600 to 3600, not 4000

The words may begin a line of their own. A list is a pipeline. The kind of an error stands before its words, but for
PipelineError. A line in the table is a test: it runs, and it fails where a word differs.
"""

from pathlib import Path

import pytest

import pixprep as pp

PUBLIC = {name: getattr(pp, name) for name in pp.__all__}


def rows(room, table):
    """(call, result) of each line of a room's table."""
    text = (Path(__file__).parents[1] / room / table).read_text(encoding="utf-8").replace("\n    ->", " ->")
    return [line.split(" -> ", 1) for line in text.splitlines() if line and not line.startswith("#")]


def refusals(room, table="refusals.txt", result="words"):
    """Parametrize a test by the ``call`` and the ``words`` of each line of a room's table."""
    lines = rows(room, table)
    return pytest.mark.parametrize(("call", result), lines, ids=[call for call, _ in lines])


def refusal(call, **names):
    """Words of the error that a call ends in; ``names``: what it may use beside the public names."""
    call = f"Pipeline({call})" if call.startswith("[") else call
    with pytest.raises((pp.PixprepError, TypeError, ValueError)) as caught:
        eval(call, PUBLIC | names)  # noqa: S307 - lines of our own
    kind = type(caught.value).__name__
    return str(caught.value) if kind == "PipelineError" else f"{kind}: {caught.value}"
