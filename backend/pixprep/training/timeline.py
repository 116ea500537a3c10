"""Uses of an epoch's time: in words for ``Loader.stats``, as a file for Perfetto for ``Loader.trace``."""

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
"""Number of most recent events that are kept: those of an hour, or of a few epochs. They take 15 MB."""


class Timeline:
    """Clock of a Loader: spans of time, each on the track of its thread. Any thread may write to it.

    Attributes:
        seconds: Total duration of the completed spans in seconds, by name.
    """

    def __init__(self) -> None:
        self._events: deque[tuple[str, str, float, float, dict[str, Any]]] = deque(maxlen=EVENTS)
        self._begin = perf_counter()
        self._lock = threading.Lock()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def now(self) -> float:
        """Seconds since it was made."""
        return perf_counter() - self._begin

    def span(self, name: str, **facts: Any) -> Span:
        """A span that begins now; everything inside its ``with`` belongs to it."""
        return Span(self, name, self.now(), facts)

    def end(self, span: Span) -> None:
        """End a span."""
        seconds = self.now() - span.begin
        self.add(span.name, seconds)
        self._events.append((threading.current_thread().name, span.name, span.begin, seconds, span.facts))

    def add(self, name: str, seconds: float) -> None:
        """Count time that was measured elsewhere."""
        with self._lock:
            self.seconds[name] += seconds

    def save(self, path: str | Path) -> None:
        """Write the events in the JSON of Chrome's traces, which ui.perfetto.dev opens."""
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
        """See ``Timeline.span``: it has begun."""

    def __exit__(self, *_: object) -> None:
        self.timeline.end(self)


@dataclass(frozen=True, kw_only=True)
class Stats:
    """Times for which the training loop and the Loader waited for each other; ``str`` returns a summary.

    Attributes:
        batches, samples: Number of batches and samples delivered so far.
        broken: Number of samples that were skipped or replaced, in all epochs.
        cached: Number of samples whose pixels are cached.
        total_s: Time from each ``iter`` to the end of its epoch, in seconds. The next four times are parts of it.
        starved_s: Time for which the training loop waited for a batch.
        reading_s: Time for which the Loader waited for files.
        working_s: Time for which the engine decoded and transformed images.
        blocked_s: Time for which the Loader, with batches ready, waited for the training loop.
        decode_s, transform_s: Time for decoding, and for resizing and the following ops, summed over all threads.
        threads: Number of threads that work at once.
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
            f"{self.samples / total:,.0f} samples a second",
            f"the training loop waited for batches for {self.starved_s / total:.0%} of the time: {self._verdict()}",
            f"the Loader read for {self.reading_s / total:.0%} of the time, decoded and transformed for "
            f"{self.working_s / total:.0%}, and waited for the training loop for {self.blocked_s / total:.0%}",
        ]
        busy = self.decode_s + self.transform_s
        if busy:
            lines.append(
                f"of the work on {self.threads} thread{'s' * (self.threads > 1)}, {self.decode_s / busy:.0%} was "
                f"decoding, {self.transform_s / busy:.0%} resizing and arithmetic"
            )
        if self.cached:
            lines.append(f"the pixels of {self.cached:,} samples are kept")
        if self.broken:
            lines.append(f"{self.broken:,} samples are broken: see loader.errors")
        return "\n".join(lines)

    def _verdict(self) -> str:
        if self.starved_s < 0.1 * self.total_s:
            return "the Loader keeps up"
        if self.reading_s > self.working_s:
            return "it waits for files; a faster disk, or files in fewer and larger pieces, would help"
        return 'it waits for decoding and resizing; more cores, a GPU, or cache="pixels" would help'
