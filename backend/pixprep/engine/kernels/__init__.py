"""Kernels: pixels in, finished tensors out. One module a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pixprep.engine.decoders import Pixels
from pixprep.errors import ImageError
from pixprep.plan.placement import Placement

Array = Any
"""An array of the kernel's device: NumPy or CuPy."""


class Kernel(Protocol):
    """Runs one tensor plan for one engine; may be called from several of its threads."""

    def run(
        self, images: Sequence[Pixels], placements: Sequence[Placement], outs: Array, places: Sequence[int]
    ) -> Mapping[int, ImageError] | None:
        """Write the tensor of each image.

        Args:
            images: decoded, on this kernel's device; sizes may differ.
            placements: the plan's geometry at each image's size, and how the image lies in its pixels if that differs.
            outs: (n, *plan.spec.shape) of its dtype, C-contiguous; where that is open, a list of arrays, each of what
                ``shape_of`` says or larger.
            places: where each image's tensor lies in ``outs``; every value of it is written, and no other.

        Returns:
            By their place in ``images``, those that an operator of the user's failed on; None: it has none.
        """
