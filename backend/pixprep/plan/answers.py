"""Checks the size of responses against a limit, before the memory of the tensors is allocated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from threading import Lock

from pixprep.errors import ImageError
from pixprep.plan.output_plans import OutputPlan
from pixprep.plan.plan import Place, Placed


@dataclass(frozen=True)
class Answers:
    """Assignment of the images of a batch to responses, and the maximum size of a response.

    Attributes:
        parts: Slice of the batch that belongs to each response.
        max_bytes: Maximum total size in bytes of a response's tensors. Tensors that the request does not ask for are
            included.
    """

    parts: Sequence[slice]
    max_bytes: int

    def bound(
        self, places: Sequence[Place], counts: Sequence[int], outputs: Mapping[str, OutputPlan]
    ) -> tuple[list[Place], list[int]]:
        """Add a check of the response size to the ``place`` functions of a batch.

        Args:
            places: The ``place`` function of each image.
            counts: Number of rows of each image.
            outputs: Outputs of the plan.

        Returns:
            The ``place`` functions, and the number of rows to allocate for each image. The functions reject an image if
            its response is already too large. If a response is too large even with the smallest possible tensors, the
            number of rows is 1, so that no memory is allocated for further rows.
        """
        bounded, rows = list(places), list(counts)
        for part in self.parts:
            answer = _Answer(outputs, len(places[part]), sum(counts[part]), self.max_bytes)
            if answer.is_too_large:
                rows[part] = [1] * len(places[part])
            if answer.is_too_large or answer.is_open:
                bounded[part] = map(answer.bound, places[part])
        return bounded, rows


class _Answer:
    """Tracks the size of one response, whose tensors are padded to the largest image that has been placed so far."""

    def __init__(self, outputs: Mapping[str, OutputPlan], images: int, rows: int, max_bytes: int) -> None:
        self._specs = {name: output.spec for name, output in outputs.items() if output.spec.is_open}
        self._shapes = {name: spec.least for name, spec in self._specs.items()}
        self._fixed = [output.spec for name, output in outputs.items() if name not in self._specs]
        self._images = images
        self._rows = rows
        self._max_bytes = max_bytes
        self.is_open = bool(self._specs)
        self.is_too_large = self._n_bytes > max_bytes
        self._lock = Lock()  # because images of some formats are placed by the threads that decode them

    def bound(self, place: Place) -> Place:
        """Return a ``place`` function that raises TOO_LARGE_RESPONSE if the image makes the response too large."""

        def bounded(height: int, width: int, frames: int = 1) -> Placed:
            if self.is_too_large:
                raise self._refusal()
            placed = place(height, width, frames)
            with self._lock:
                self._add(placed)
            return placed

        return bounded

    def _add(self, placed: Placed) -> None:
        for name, spec in self._specs.items():
            rows = [row for row in placed.rows or (placed,) if isinstance(row, Placed)]
            shapes = (spec.shape_of(*row.placements[name].views) for row in rows)
            self._shapes[name] = tuple(map(max, zip(self._shapes[name], *shapes, strict=True)))
        if self._n_bytes > self._max_bytes:
            raise self._refusal()

    @property
    def _n_bytes(self) -> int:
        """Number of bytes of all tensors, given the images that have been placed so far."""
        sizes = (prod(shape) * self._specs[name].array_dtype.itemsize for name, shape in self._shapes.items())
        return self._rows * (sum(spec.n_bytes for spec in self._fixed) + sum(sizes))

    def _refusal(self) -> ImageError:
        largest = max(self._fixed, key=lambda spec: spec.n_bytes).shape if self._fixed else ()
        shapes = " and ".join(str([*shape]) for shape in self._shapes.values() or [largest])
        fix = "send a smaller image"
        if self._rows > 1:
            fix = f"send fewer {'images' if self._rows == self._images else 'boxes'} in a request"
        return ImageError(
            "TOO_LARGE_RESPONSE",
            f"the tensors of the request take at least {self._n_bytes:,} bytes, {self._rows} x {shapes}; "
            f"the limit is {self._max_bytes:,} (parameter max_response_bytes): {fix}",
        )
