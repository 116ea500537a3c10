"""Watchdog of a model's process: ends a process whose batch hangs, and reports idle periods.

A hung decoder is worse than a crashed one, so the process exits and its supervisor starts it again. In idle periods,
the model frees the memory that it keeps for the next batch.
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
"""The slowest image within the limits (50 megapixels in 100 scans) takes 3 s on one core."""
IDLE_S, GPU_IDLE_S = 10.0, 120.0
"""The GPU period is longer, because freeing memory there means creating the decoder again."""
IDLE_SHARE = 0.01
"""A process that is busy for less than this fraction of the period counts as idle. It is not 0, because health probes
send images."""


class Watchdog:
    """A thread that ends the process at a deadline, and detects idle periods.

    Args:
        log: Function that logs why the process ends; the stacks of its threads follow on stderr.
        on_idle: Function that is called at the end of an idle period, if a batch ran since the last call. A new batch
            may arrive during the call.
        idle_s: Length of the period in seconds.
        period_s: Seconds between two checks.
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
        """End the process unless the block ends within ``seconds``. Only time with ``is_work`` counts as busy."""
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
        """End the process; its supervisor starts it again."""
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
