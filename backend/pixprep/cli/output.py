"""Prints the results of commands, as one line or one JSON object per file.

The output may contain untrusted text, such as file names. Control characters are escaped before printing, so that they
cannot change the state of the terminal.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from shutil import which
from typing import IO, Any

from pixprep.errors import printable

_EXTRA = ("model", "http", "grpc", "metrics", "page", "models", "triton_log")
"""Names of the extra fields of a log record that are included in the JSON object of the record."""


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


def summary_text(summary: dict[str, Any]) -> str:
    """Format the summary of an array, as returned by ``show.summary.summary``."""
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
        say(f"{file}: {name}{summary_text(row)}{where}")
