"""Results as the command line prints them: a line or an object for each file.

Whatever is printed may hold words of others, such as a file's name. Nothing of them reaches the terminal as a control.
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
"""Keys of an object of the log, besides its words."""
# Triton's classification extension: score:class:label, and without the label where the model has no file of them
_CLASS = re.compile(r"(-?\d+\.\d+):(\d+)(?::(.*))?")


def say(*lines: object, file: IO[str] | None = None) -> None:
    """Print lines, at once; what is no printable character in one, a line break among them, is escaped.

    Args:
        lines: one at least.
        file: default: stdout.
    """
    print("\n".join(map(printable, lines)), file=file, flush=True)


def say_text(text: str, *, file: IO[str] | None = None) -> None:
    """The same of a text of lines, whose line breaks are its own."""
    say(*text.removesuffix("\n").split("\n"), file=file)


def forget_output() -> None:
    """Drop output that cannot be written, so that Python does not try again at its end, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def called() -> str:
    """Name by which a shell calls this command, or else its path beside this Python."""
    ours, found = Path(sys.executable).with_name("pixprep"), which("pixprep")
    if not ours.exists():
        return f"{shlex.quote(sys.executable)} -m pixprep"
    if found and Path(found).samefile(ours):
        return "pixprep"
    here = Path.cwd()
    return shlex.quote(str(ours.relative_to(here) if ours.is_relative_to(here) else ours))


class _Formatter(logging.Formatter):
    """A line of the log, escaped; a traceback follows as it is."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        return printable(super().formatMessage(record))


class _JsonFormatter(logging.Formatter):
    """An object a line: time (UTC), level, logger, message, what ``extra`` holds, and a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        row = {"time": time, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        row |= {name: value for name, value in vars(record).items() if name in _EXTRA}
        if record.exc_info:
            row["traceback"] = self.formatException(record.exc_info)
        return json.dumps(row)


def log_to_stderr(*, as_json: bool = False) -> None:
    """Send what pixprep logs to stderr: warnings and errors; as JSON, what is only worth knowing too."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if as_json else _Formatter("pixprep: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO if as_json else logging.WARNING)
    logging.captureWarnings(as_json)


@contextmanager
def quiet() -> Iterator[None]:
    """Log no warnings inside: what they say is printed."""
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
    """Print what ``run`` made of a file: the ``summary`` of an output, or ``error``.

    ``name`` is of the output, where there are several; ``output`` is where it was written; ``box`` is its number, where
    each box gives an output.
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
    """Print what the server said of a file."""
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
    """An output under its name; the classes of each box under the box's number."""
    if array.dtype == object and array.ndim > 1:
        yield from ((f"{name} {number}", part) for number, part in enumerate(array, 1))
    else:
        yield name, array


def _json_value(array: Any) -> Any:
    """An output for programs: classes as objects, a list of numbers in full, an image's tensor as its summary."""
    if array.dtype == object and array.ndim > 1:  # of each box
        return [_json_value(part) for part in array]
    if array.dtype == object:
        return [
            {"score": float(match[1]), "class": int(match[2]), "label": match[3]} if match else text
            for text, match in _classes(array)
        ]
    return array.tolist() if array.ndim <= 1 else summary(array)


def _lines(array: Any) -> Iterator[str]:
    """An output for people: a class a line, a few numbers as they are, more of them as their summary."""
    if array.dtype == object:
        for text, match in _classes(array):
            yield f"{float(match[1]):9.4f}  class {match[2]:>3}  {match[3] or ''}".rstrip() if match else text
    else:
        yield str(array.tolist()) if array.size <= 16 else _summary_text(summary(array))


def _classes(array: Any) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Each text of an array, and its parts if it is a class."""
    for value in array.reshape(-1):
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        yield text, _CLASS.fullmatch(text)
