"""Kernels convert decoded pixels to tensors. Each device has its own module with kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pixprep.engine.decoders import Pixels
from pixprep.errors import ImageError
from pixprep.plan.placement import Placement

Array = Any
"""Array on the kernel's device: NumPy or CuPy."""


class Kernel(Protocol):
    """Interface of a kernel, which runs the plan of one tensor. Several threads of an engine may call it."""

    def run(
        self, images: Sequence[Pixels], placements: Sequence[Placement], outs: Array, places: Sequence[int]
    ) -> Mapping[int, ImageError] | None:
        """Write the tensor of each image.

        Args:
            images: Decoded images on the device of the kernel. Their sizes may differ.
            placements: Placement of each image: the geometry of the plan, applied to the size of the image.
            outs: C-contiguous array (n, *plan.spec.shape) with the dtype of the spec. If the shape is dynamic, a list
                of arrays, each at least as large as ``plan.spec.shape_of`` returns.
            places: Index in ``outs`` of the tensor of each image. The kernel writes all values of these tensors, and
                does not modify any other tensor.

        Returns:
            Errors of custom operators, by index in ``images``. None if the plan does not contain custom operators.
        """
