"""Runs a plan with random choices, which select a plan per image. Each of these plans has its own kernel."""

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
        kernels: Kernels of the plan's leaves, by the leaf's number.
    """

    kernels: Sequence[Kernel]

    def run(
        self, images: Sequence[Pixels], placements: Sequence[Placement], outs: Array, places: Sequence[int]
    ) -> dict[int, ImageError]:
        """See ``Kernel.run``. The images of each leaf run together."""
        failed: dict[int, ImageError] = {}
        for leaf in dict.fromkeys(placement.leaf for placement in placements):
            these = [index for index, placement in enumerate(placements) if placement.leaf == leaf]
            own, where = [images[index] for index in these], [places[index] for index in these]
            errors = self.kernels[leaf].run(own, [placements[index] for index in these], outs, where)
            failed |= {these[place]: error for place, error in (errors or {}).items()}
        return failed
