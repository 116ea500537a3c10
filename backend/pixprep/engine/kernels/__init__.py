"""Kernels turn decoded pixels into finished tensors. Each device has its own module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pixprep.engine.decoders import Pixels
from pixprep.errors import ImageError
from pixprep.plan.placement import Placement

Array = Any
"""Array on the kernel's device: NumPy or CuPy."""


class Kernel(Protocol):
    """Kernel that runs one tensor plan for one engine. Several threads of the engine may call it."""

    def run(
        self, images: Sequence[Pixels], placements: Sequence[Placement], outs: Array, places: Sequence[int]
    ) -> Mapping[int, ImageError] | None:
        """Write the tensor of each image.

        Args:
            images: Decoded images on this kernel's device. Sizes may differ.
            placements: Geometry of the plan at each image's size, and the region of the image that its pixels contain.
            outs: C-contiguous array (n, *plan.spec.shape) of the spec's dtype. If the shape is open, a list of arrays,
                each at least as large as ``shape_of`` returns.
            places: Index in ``outs`` of each image's tensor. The kernel writes all values of these tensors, and no
                others.

        Returns:
            Errors of custom operators by index in ``images``; None if the plan does not contain custom operators.
        """
