"""Describes the differences between the ops of two pipelines. Default values are included; pixels are not compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

import msgspec

from pixprep.pipeline.file import to_dict
from pixprep.pipeline.ops import Op, op_name
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.walk import op_label

MAX_SHOWN = 200
"""Maximum number of characters of a value in the description of a difference."""


def differences(pipeline: Pipeline, source: Pipeline) -> tuple[str, ...]:
    """Return one sentence for each difference between the ops of a pipeline and the ops of its source.

    A difference is an additional op, a missing op, or a field with a different value. The origins of the pipelines are
    not compared, because they do not affect the pixels.
    """
    if pipeline.ops == source.ops:
        return ()
    found: list[str] = []
    ours, theirs = pipeline.ops, source.ops
    matcher = SequenceMatcher(a=[*map(op_name, ours)], b=[*map(op_name, theirs)], autojunk=False)
    for kind, first, last, begin, end in matcher.get_opcodes():
        if kind == "equal":
            for index, op, other in zip(range(first, last), ours[first:last], theirs[begin:end], strict=True):
                found += (f"{op_label(index, op)}: {each}" for each in _fields(op, other))
            continue
        found += (
            f"{op_label(index, ours[index])}: the source does not have this op here" for index in range(first, last)
        )
        where = f"after {op_label(last - 1, ours[last - 1])}" if last else "at the start"
        found += (f"{where}: the op {_shown(to_dict(op))} of the source is missing" for op in theirs[begin:end])
    return tuple(found)


def in_short(found: Sequence[str]) -> str:
    """Return the description of the first difference, followed by the number of further differences."""
    return f"{found[0]}, and {len(found) - 1} more" if len(found) > 1 else found[0]


def _fields(op: Op, other: Op) -> Iterator[str]:
    """Yield a description of each field that differs between two ops of the same type."""
    ours, theirs = (msgspec.to_builtins(each, builtin_types=()) for each in (op, other))
    for field, value in ours.items():
        if value != theirs[field]:
            yield f"{field} is {_shown(value)}, but {_shown(theirs[field])} in the source"


def _shown(value: Any) -> str:
    """Return a value as JSON, truncated to ``MAX_SHOWN`` characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} ..."
