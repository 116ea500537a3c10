"""Triton's log, handed on line by line to ``logging``: for who collects the lines of one program, each an object."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Event, Thread
from typing import IO

LOOK_S = 0.2
_logger = logging.getLogger("triton")

# I1122 08:00:00.123456 4711 http_server.cc:123] "Started HTTPService at 127.0.0.1:8000"
_LINE = re.compile(r'([IWEF])(\d{4} \d\d:\d\d:\d\d\.\d{6}) \d+ \S+\] (".*")?')
_TABLE = ("+-", "| ")
_LEVELS = {"I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL}
_REQUEST = re.compile(r"\[request id: (?!<id_unknown>)(.+?)\]")
_MODEL = re.compile(r"(?:loading: |load(?:ed)? '|ModelInstanceInitialize: )([\w.-]+?)(?:'|:\d|_\d+_\d+ )")


class Relay:
    """Hands on a log until it is closed, with what is written meanwhile; a context manager that does so."""

    def __init__(self) -> None:
        self._ending = Event()
        self._thread: Thread | None = None

    def start(self, log: Path) -> None:
        """Begin with the first line of a file, which may be deleted later."""
        self._thread = Thread(target=self._run, args=(log.open("rb"),), name="pixprep-relay", daemon=True)
        self._thread.start()

    def _run(self, log: IO[bytes]) -> None:
        with log:
            for line in self._lines(log):
                hand_on(line.decode(errors="replace").rstrip("\n"))

    def _lines(self, log: IO[bytes]) -> Iterator[bytes]:
        """Whole lines; the last one, however it ends."""
        begun = b""
        while True:
            is_last = self._ending.is_set()  # what was written before is read below
            while line := log.readline():
                begun += line
                if begun.endswith(b"\n"):
                    yield begun
                    begun = b""
            if is_last:
                if begun:
                    yield begun
                return
            self._ending.wait(LOOK_S)

    def close(self) -> None:
        """Hand on the rest."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Relay:  # noqa: PYI034  (Self is newer than Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def hand_on(line: str) -> None:
    """Log a line of Triton's as one of the logger ``triton``: its level, its time, and what it says it is about.

    The tables that Triton draws at its start are left out. A line that is not in Triton's form is a warning: a library
    inside it wrote it, or a model.
    """
    found = _LINE.match(line)
    if not line or line.startswith(_TABLE) or (found and found[3] is None):
        return
    record = _logger.makeRecord(_logger.name, logging.WARNING, "", 0, line, (), None)
    if found:
        record.levelno = _LEVELS[found[1]]
        record.levelname = logging.getLevelName(record.levelno)
        record.msg = str(json.loads(found[3], strict=False))
        record.created = _time_s(found[2])
        for name, pattern in (("request_id", _REQUEST), ("model", _MODEL)):
            if about := pattern.search(record.msg):
                setattr(record, name, about[1])
    if _logger.isEnabledFor(record.levelno):
        _logger.handle(record)


def _time_s(text: str) -> float:
    """Seconds since 1970 of a time such as ``1122 08:00:00.123456``, in UTC: the last one, give or take a day."""
    soon = datetime.now(timezone.utc) + timedelta(days=1)
    year = soon.year - (int(text[:2]) > soon.month)
    return datetime.strptime(f"{year}{text}Z", "%Y%m%d %H:%M:%S.%f%z").timestamp()
