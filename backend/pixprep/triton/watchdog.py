"""What a clock says of a model's process: its batch takes for ever, or none has come for a while.

A hung decoder is worse than one that crashed, so the process ends, and is started anew. Memory that is kept for the
next batch is given back when none comes.
"""

from __future__ import annotations

import faulthandler
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import NoReturn

BATCH_S, IMAGE_S = 30.0, 10.0
"""The slowest image that the limits let in, 50 megapixels in 100 scans, takes 3 s on one core."""
IDLE_S = 10.0


class Watchdog:
    """A thread that looks at the clock.

    Args:
        log: takes the last words of the process; where its threads were follows on stderr.
        on_idle: called once when no batch has come for ``idle_s``, after at least one; a batch may come meanwhile.
        idle_s: how long.
        period_s: between two looks.
    """

    def __init__(
        self,
        log: Callable[[str], object],
        on_idle: Callable[[], object],
        *,
        idle_s: float = IDLE_S,
        period_s: float = 1.0,
    ) -> None:
        self._log = log
        self._on_idle = on_idle
        self._idle_s = idle_s
        self._period_s = period_s
        self._deadline = self._idle_at = math.inf
        self._closing = Event()
        Thread(target=self._watch, name="pixprep-watchdog", daemon=True).start()

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """A batch: end the process unless the block ends in time."""
        self._idle_at = math.inf
        self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = math.inf
            self._idle_at = time.monotonic() + self._idle_s

    def end(self, reason: str) -> NoReturn:
        """End the process; whoever watches it starts it anew."""
        self._log(f"{reason}: its process ends, and must be started again")
        faulthandler.dump_traceback()
        os._exit(1)

    def close(self) -> None:
        """End the thread."""
        self._closing.set()

    def _watch(self) -> None:
        while not self._closing.wait(self._period_s):
            now = time.monotonic()
            if now > self._deadline:
                self.end("a batch has not ended in time")
            if now > self._idle_at:
                self._idle_at = math.inf
                self._on_idle()
