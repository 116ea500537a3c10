"""Answers: the tensors of images that leave together, measured by their places before any is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from threading import Lock

import numpy as np

from pixprep.errors import ImageError
from pixprep.plan.output_plans import OutputPlan
from pixprep.plan.plan import Place, Placed


@dataclass(frozen=True)
class Answers:
    """Answers that the images of a batch are parts of; each has a bound of its own.

    Attributes:
        parts: the images of each answer.
        most_bytes: that the tensors of one answer may take, asked for or not.
    """

    parts: Sequence[slice]
    most_bytes: int

    def bound(self, places: Sequence[Place], counts: Sequence[int], outputs: Mapping[str, OutputPlan]) -> list[Place]:
        """The places of a batch, each of which refuses its image once the answer is too large.

        Args:
            places: of the images.
            counts: of the rows of each.
            outputs: of the plan; where no size follows the image, nothing is refused: ``max_batch_size`` is the bound.
        """
        bounded = list(places)
        if any(output.spec.is_open for output in outputs.values()):
            for part in self.parts:
                answer = _Answer(outputs, sum(counts[part]), self.most_bytes)
                bounded[part] = map(answer.bound, places[part])
        return bounded


class _Answer:
    """The tensors of one answer, each padded to the largest that was placed so far."""

    def __init__(self, outputs: Mapping[str, OutputPlan], rows: int, most_bytes: int) -> None:
        self._specs = {name: output.spec for name, output in outputs.items() if output.spec.is_open}
        self._shapes = {name: spec.least for name, spec in self._specs.items()}
        self._others = sum(output.spec.n_bytes for name, output in outputs.items() if name not in self._specs)
        self._rows = rows
        self._most_bytes = most_bytes
        self._lock = Lock()  # of some formats the size is known to the thread alone that has decoded the image

    def bound(self, place: Place) -> Place:
        """The same place, which raises TOO_LARGE_RESPONSE once the answer is too large with this image."""

        def bounded(height: int, width: int) -> Placed:
            placed = place(height, width)
            with self._lock:
                self._add(placed)
            return placed

        return bounded

    def _add(self, placed: Placed) -> None:
        n_bytes = self._others
        for name, spec in self._specs.items():
            rows = [row for row in placed.rows or (placed,) if isinstance(row, Placed)]
            shapes = (spec.shape_of(*row.placements[name].size) for row in rows)
            self._shapes[name] = tuple(map(max, zip(self._shapes[name], *shapes, strict=True)))
            n_bytes += prod(self._shapes[name]) * np.dtype(spec.dtype).itemsize
        if self._rows * n_bytes > self._most_bytes:
            largest = " and ".join(str([*shape]) for shape in self._shapes.values())
            remedy = "send fewer images in a request" if self._rows > 1 else "send a smaller image"
            raise ImageError(
                "TOO_LARGE_RESPONSE",
                f"the tensors of the request take at least {self._rows * n_bytes:,} bytes, {self._rows} x {largest}; "
                f"the limit is {self._most_bytes:,} (parameter max_response_bytes): {remedy}",
            )
