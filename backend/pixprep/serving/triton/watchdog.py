"""Watchdog of a model's process, which ends the process if a batch hangs, and detects idle periods.

A hung decoder would block the model forever, so the process exits and the supervisor restarts it. After an idle period,
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
"""Time limit of a batch in seconds, and additional seconds per image. Decoding the slowest image that the default
limits allow (50 megapixels in 100 scans) takes 3 s on one core."""
IDLE_S, GPU_IDLE_S = 10.0, 120.0
"""Length in seconds of an idle period, after which cached memory is freed, on the CPU and on a GPU. The period is
longer on a GPU, because the decoder must be created again after its memory has been freed."""
IDLE_FRACTION = 0.01
"""A process that is busy for less than this fraction of a period counts as idle."""


class Watchdog:
    """Background thread that ends the process at a deadline, and detects idle periods.

    Args:
        log: Function that logs the reason before the process exits.
        on_idle: Function that is called after an idle period if a batch has run since the previous call. A new batch
            may arrive during the call.
        idle_s: Length of an idle period in seconds.
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
        self._busy_s = 0.0  # busy time within the current period
        self._has_worked = False
        self._closing = Event()
        Thread(target=self._watch, name="pixprep-watchdog", daemon=True).start()

    @contextmanager
    def limit(self, seconds: float, *, is_work: bool = True) -> Iterator[None]:
        """End the process if the block takes longer than ``seconds``. With ``is_work``, its time counts as busy."""
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
        """Log the reason, print the stacks of all threads to stderr, and exit. The supervisor restarts the process."""
        self._log(f"{reason}: the process of the model exits and must be restarted")
        faulthandler.dump_traceback()
        os._exit(1)

    def close(self) -> None:
        """End the background thread."""
        self._closing.set()

    def _watch(self) -> None:
        while not self._closing.wait(self._period_s):
            now = time.monotonic()
            if now > self._deadline:
                self.end("a batch exceeded its time limit")
            if now > self._period_ends and self._deadline == math.inf:
                is_idle = self._busy_s < IDLE_FRACTION * self._idle_s
                self._period_ends, self._busy_s = now + self._idle_s, 0.0
                if is_idle and self._has_worked:
                    self._has_worked = False
                    self._on_idle()
