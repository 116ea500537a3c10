"""Run a plan that forks at random choices, which select a leaf of the plan per image. Each leaf has its own kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pixprep.engine.decoders import Pixels
from pixprep.engine.kernels import Array, Kernel
from pixprep.errors import ImageError
from pixprep.plan.placement import Placement


@dataclass(frozen=True)
class ForkedKernel:
    """See ``Kernel``.

    Attributes:
        kernels: Kernels of the leaves of the plan, in the order of ``Placement.leaf``.
    """

    kernels: Sequence[Kernel]

    def run(
        self, images: Sequence[Pixels], placements: Sequence[Placement], outs: Array, places: Sequence[int]
    ) -> dict[int, ImageError]:
        """See ``Kernel.run``. The images of each leaf are processed together."""
        failed: dict[int, ImageError] = {}
        for leaf in dict.fromkeys(placement.leaf for placement in placements):
            indices = [index for index, placement in enumerate(placements) if placement.leaf == leaf]
            own, where = [images[index] for index in indices], [places[index] for index in indices]
            errors = self.kernels[leaf].run(own, [placements[index] for index in indices], outs, where)
            failed |= {indices[position]: error for position, error in (errors or {}).items()}
        return failed
