"""Prints a server's responses for image files, as text lines or as JSON objects."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from pixprep.cli.output import say, summary_text
from pixprep.serving.embedded.client import Answer
from pixprep.serving.embedded.rows import MAX_ROW, are_rows, classes, row_of
from pixprep.show.summary import summary


def print_answer(answer: Answer, *, as_json: bool) -> None:
    """Print the server's response to one image file, or to several files if the model compares images."""
    files, row = " ".join(answer.files), row_of(answer)
    if as_json:
        say(json.dumps(row))
    elif answer.error:
        say(f"{files}: {answer.error}", file=sys.stderr)
    else:
        say(f"{files}  {answer.latency_ms:.1f} ms")
        for name, array in answer.outputs.items():
            for label, part in _parts(name, array):
                for line in _lines(part):
                    say(f"    {label}  {line}")
        for name, path in answer.saved.items():
            say(f"    {name}  -> {path}")
        for found in row.get("objects", ()):
            box = ", ".join(f"{side:.1f}" for side in found["box"])
            say(f"    object  {found['score']:9.4f}  class {found['class']:>3}  [{box}]")


def _parts(name: str, array: Any) -> Iterator[tuple[str, Any]]:
    """Yield an output with its name. If it contains classes per box, yield the classes of each box, numbered from 1."""
    if array.dtype == object and array.ndim > 1:
        yield from ((f"{name} {number}", part) for number, part in enumerate(array, 1))
    else:
        yield name, array


def _lines(array: Any) -> Iterator[str]:
    """Yield the lines of an output: one line per class or row.

    Other outputs have a single line, which contains up to 16 values or a summary.
    """
    if array.dtype == object:
        for text, match in classes(array):
            yield f"{float(match[1]):9.4f}  class {match[2]:>3}  {match[3] or ''}".rstrip() if match else text
    elif array.size <= MAX_ROW:
        yield str(array.tolist())
    elif are_rows(array):
        yield f"{len(array):,} rows"
        yield from map(str, array[:MAX_ROW].tolist())
        if len(array) > MAX_ROW:
            yield f"... and {len(array) - MAX_ROW:,} more (all rows: --json)"
    else:
        yield summary_text(summary(array))
