"""Watch over a model's process: a batch that takes for ever, or nothing to do for a while.

A hung decoder is worse than one that crashed, so the process ends, and is started again. Memory that is kept for the
next batch is given back when hardly any comes.
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
IDLE_S, GPU_IDLE_S = 10.0, 120.0
"""On a GPU the decoder is made again to give memory back, which takes longer than many a pause."""
IDLE_SHARE = 0.01
"""A process is idle that works for less than this share of the time: whoever asks for its health sends images, too."""


class Watchdog:
    """A thread that looks at the clock.

    Args:
        log: takes the last words of the process; where its threads were follows on stderr.
        on_idle: called at the end of a period in which there was next to nothing to do, if a batch has come since it
            was called last; another may come meanwhile.
        idle_s: the period.
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
        self._deadline = math.inf
        self._period_ends = time.monotonic() + idle_s
        self._busy_s = 0.0  # within the period
        self._has_worked = False
        self._closing = Event()
        Thread(target=self._watch, name="pixprep-watchdog", daemon=True).start()

    @contextmanager
    def limit(self, seconds: float, *, is_work: bool = True) -> Iterator[None]:
        """A batch: end the process unless the block ends in time. One that is no work leaves the process idle."""
        start = time.monotonic()
        self._deadline = start + seconds
        try:
            yield
        finally:
            self._deadline = math.inf
            if is_work:
                self._busy_s += time.monotonic() - start
                self._has_worked = True

    def end(self, reason: str) -> NoReturn:
        """End the process; whoever watches it starts it again."""
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
            if now > self._period_ends and self._deadline == math.inf:
                is_idle = self._busy_s < IDLE_SHARE * self._idle_s
                self._period_ends, self._busy_s = now + self._idle_s, 0.0
                if is_idle and self._has_worked:
                    self._has_worked = False
                    self._on_idle()
