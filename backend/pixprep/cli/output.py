"""Prints the results of commands, as one line or one JSON object per file.

The output may contain untrusted text, such as file names. Control characters are escaped before printing, so that they
cannot change the state of the terminal.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from shutil import which
from typing import IO, TYPE_CHECKING, Any

from pixprep.errors import printable
from pixprep.show.summary import summary

if TYPE_CHECKING:
    from pixprep.serving.embedded.client import Answer

_EXTRA = ("model", "http", "grpc", "metrics", "page", "models", "triton_log")
"""Names of the extra fields of a log record that are included in the JSON object of the record."""
# A result of Triton's classification extension: score:class:label, without the label if the model has no label file
_CLASS = re.compile(r"(-?\d+\.\d+):(\d+)(?::(.*))?")


def say(*lines: object, file: IO[str] | None = None) -> None:
    """Print lines in one write, and escape characters that are not printable, including line breaks.

    Args:
        lines: One or more lines.
        file: Output stream. Default: stdout.
    """
    print("\n".join(map(printable, lines)), file=file, flush=True)


def print_text(text: str, *, file: IO[str] | None = None) -> None:
    """Print a string like ``say``, but preserve its line breaks."""
    say(*text.removesuffix("\n").split("\n"), file=file)


def forget_output() -> None:
    """Discard buffered output that cannot be written, because Python would retry at exit and print an error."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def pixprep_command() -> str:
    """Return the shell command that starts pixprep: ``pixprep`` if it is on the PATH, or the path of its script."""
    ours, found = Path(sys.executable).with_name("pixprep"), which("pixprep")
    if not ours.exists():
        return f"{shlex.quote(sys.executable)} -m pixprep"
    if found and Path(found).samefile(ours):
        return "pixprep"
    here = Path.cwd()
    return shlex.quote(str(ours.relative_to(here) if ours.is_relative_to(here) else ours))


class _Formatter(logging.Formatter):
    """Log formatter that escapes control characters in messages, but not in tracebacks."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (name defined by logging)
        return printable(super().formatMessage(record))


class _JsonFormatter(logging.Formatter):
    """Log formatter that writes one JSON object per line.

    The keys are ``time`` (UTC), ``level``, ``logger`` and ``message``, the fields in ``_EXTRA`` that the record has,
    and ``traceback`` if the record has an exception.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        row = {"time": time, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        row |= {name: value for name, value in vars(record).items() if name in _EXTRA}
        if record.exc_info:
            row["traceback"] = self.formatException(record.exc_info)
        return json.dumps(row)


def log_to_stderr(*, as_json: bool = False) -> None:
    """Write log records to stderr if their level is at least WARNING or, with ``as_json``, at least INFO."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if as_json else _Formatter("pixprep: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO if as_json else logging.WARNING)
    logging.captureWarnings(as_json)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the warnings that pixprep logs inside the block, for callers that print this information themselves."""
    logger = logging.getLogger("pixprep")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _summary_text(summary: dict[str, Any]) -> str:
    return "{dtype} {shape}  min {min:.4g}  max {max:.4g}  mean {mean:.4g}".format(**summary)


def print_row(row: dict[str, Any], *, as_json: bool) -> None:
    """Print one result of ``pixprep run``: the summary of one output of a file, or an error.

    Args:
        row: Dict with the key ``file``, and either ``error`` or the keys of ``summary``. Optional keys: ``name``, the
            name of the output if there are several outputs; ``output``, the path of the written file; and ``box``, the
            number of the box if the pipeline returns one tensor per box.
        as_json: Whether to print the row as JSON.
    """
    file = f"{row['file']} {row['box']}" if "box" in row else row["file"]
    if as_json:
        say(json.dumps(row))
    elif "error" in row:
        say(f"{file}: {row['error']}", file=sys.stderr)
    else:
        where = f"  -> {row['output']}" if "output" in row else ""
        name = f"{row['name']}  " if "name" in row else ""
        say(f"{file}: {name}{_summary_text(row)}{where}")


def print_answer(answer: Answer, *, as_json: bool) -> None:
    """Print the server's response to one image file, or to several files if the model compares images."""
    files = " ".join(map(str, (answer.path, *answer.others)))
    if as_json:
        row: dict[str, Any] = {"file": str(answer.path), "latency_ms": answer.latency_ms}
        row |= {"others": list(map(str, answer.others))} if answer.others else {}
        outputs = {name: _json_value(array) for name, array in answer.outputs.items()}
        say(json.dumps(row | ({"error": answer.error} if answer.error else {"outputs": outputs})))
    elif answer.error:
        say(f"{files}: {answer.error}", file=sys.stderr)
    else:
        say(f"{files}  {answer.latency_ms:.1f} ms")
        for name, array in answer.outputs.items():
            for label, part in _parts(name, array):
                for line in _lines(part):
                    say(f"    {label}  {line}")


def _parts(name: str, array: Any) -> Iterator[tuple[str, Any]]:
    """Yield an output with its name. If it contains classes per box, yield the classes of each box, numbered from 1."""
    if array.dtype == object and array.ndim > 1:
        yield from ((f"{name} {number}", part) for number, part in enumerate(array, 1))
    else:
        yield name, array


def _json_value(array: Any) -> Any:
    """Convert an output for JSON: classes to objects, a 1-D array to a list, and a larger array to its summary."""
    if array.dtype == object and array.ndim > 1:  # classes of each box
        return [_json_value(part) for part in array]
    if array.dtype == object:
        return [
            {"score": float(match[1]), "class": int(match[2]), "label": match[3]} if match else text
            for text, match in _classes(array)
        ]
    return array.tolist() if array.ndim <= 1 else summary(array)


def _lines(array: Any) -> Iterator[str]:
    """Yield the lines of an output: one line per class, or one line with all values (up to 16) or with a summary."""
    if array.dtype == object:
        for text, match in _classes(array):
            yield f"{float(match[1]):9.4f}  class {match[2]:>3}  {match[3] or ''}".rstrip() if match else text
    else:
        yield str(array.tolist()) if array.size <= 16 else _summary_text(summary(array))


def _classes(array: Any) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Yield each string of an array, with the match of ``_CLASS`` or None."""
    for value in array.reshape(-1):
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        yield text, _CLASS.fullmatch(text)
