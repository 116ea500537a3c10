"""Records how the Loader spends its time: a summary for ``Loader.stats``, and a trace for ``Loader.trace``."""

from __future__ import annotations

import json
import os
import threading
from collections import defaultdict, deque
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from pixprep.files import write

EVENTS = 50_000
"""Maximum number of events that are kept, which covers about an hour or a few epochs and takes 15 MB. Older events are
dropped."""


class Timeline:
    """Records the time spans of a Loader, with one track per thread. Thread-safe.

    Attributes:
        seconds: Total duration of the completed spans in seconds, by name.
    """

    def __init__(self) -> None:
        self._events: deque[tuple[str, str, float, float, dict[str, Any]]] = deque(maxlen=EVENTS)
        self._begin = perf_counter()
        self._lock = threading.Lock()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def now(self) -> float:
        """Return the time since the Timeline was created, in seconds."""
        return perf_counter() - self._begin

    def span(self, name: str, **facts: Any) -> Span:
        """Return a span that begins now. Use it as a context manager: it ends at the end of the ``with`` block.

        Args:
            name: Name of the span.
            facts: Details that the trace shows, such as the number of samples.
        """
        return Span(self, name, self.now(), facts)

    def end(self, span: Span) -> None:
        """End a span, and record it."""
        seconds = self.now() - span.begin
        self.add(span.name, seconds)
        self._events.append((threading.current_thread().name, span.name, span.begin, seconds, span.facts))

    def add(self, name: str, seconds: float) -> None:
        """Add a duration that was measured elsewhere to the total of a name."""
        with self._lock:
            self.seconds[name] += seconds

    def save(self, path: str | Path) -> None:
        """Write the events to a file in Chrome's trace event format (JSON), which ui.perfetto.dev can open."""
        events, process = list(self._events), os.getpid()
        numbers = {track: number for number, track in enumerate(dict.fromkeys(track for track, *_ in events), 1)}
        rows: list[dict[str, Any]] = [
            {"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": track}}
            for track, number in numbers.items()
        ]
        rows += [
            {"ph": "X", "name": name, "pid": process, "tid": numbers[track], "args": facts}
            | {"ts": begin * 1e6, "dur": seconds * 1e6}  # microseconds
            for track, name, begin, seconds, facts in events
        ]
        write(path, json.dumps({"traceEvents": rows, "displayTimeUnit": "ms"}))


class Span(NamedTuple):
    """A span of time on a ``Timeline``."""

    timeline: Timeline
    name: str
    begin: float
    facts: dict[str, Any]

    def __enter__(self) -> None:
        """Do nothing, because the span began when ``Timeline.span`` created it."""

    def __exit__(self, *_: object) -> None:
        self.timeline.end(self)


@dataclass(frozen=True, kw_only=True)
class Stats:
    """Times that the training loop and the Loader spent waiting for each other. ``str`` returns a summary.

    All times are in seconds.

    Attributes:
        batches: Number of batches delivered so far.
        samples: Number of samples delivered so far.
        broken: Number of samples that were skipped or replaced, in all epochs.
        cached: Number of samples whose pixels are cached.
        total_s: Total duration of all epochs. The next four times are parts of it.
        starved_s: Time that the training loop spent waiting for a batch.
        reading_s: Time that the Loader spent waiting for files.
        working_s: Time that the engine spent decoding and transforming images.
        blocked_s: Time that the Loader spent waiting for the training loop, because enough batches were ready.
        decode_s: Time for decoding, summed over all threads.
        transform_s: Time for resizing and all following ops, summed over all threads.
        threads: Number of threads that decode and transform.
    """

    batches: int
    samples: int
    broken: int
    cached: int
    total_s: float
    starved_s: float
    reading_s: float
    working_s: float
    blocked_s: float
    decode_s: float
    transform_s: float
    threads: int

    def __str__(self) -> str:
        if not self.batches:
            return "no batch has been delivered yet"
        total = self.total_s or 1e-9
        lines = [
            f"{self.batches:,} batches, {self.samples:,} samples in {self.total_s:.1f} s: "
            f"{self.samples / total:,.0f} samples per second",
            f"the training loop waited for batches for {self.starved_s / total:.0%} of the time: {self._verdict()}",
            f"the Loader spent {self.reading_s / total:.0%} of the time waiting for files, "
            f"{self.working_s / total:.0%} decoding and transforming, and {self.blocked_s / total:.0%} waiting for the "
            "training loop",
        ]
        busy = self.decode_s + self.transform_s
        if busy:
            lines.append(
                f"{self.threads} thread{'s' * (self.threads > 1)} spent {self.decode_s / busy:.0%} of the computing "
                f"time on decoding, and {self.transform_s / busy:.0%} on resizing and other transforms"
            )
        if self.cached:
            lines.append(f"the pixels of {self.cached:,} samples are cached")
        if self.broken:
            lines.append(f"{self.broken:,} samples are broken: see loader.errors")
        return "\n".join(lines)

    def _verdict(self) -> str:
        if self.starved_s < 0.1 * self.total_s:
            return "the Loader keeps up"
        if self.reading_s > self.working_s:
            return "reading is the bottleneck; a faster disk, or fewer and larger files, would help"
        return 'decoding and resizing are the bottleneck; more cores, a GPU, or cache="pixels" would help'
