"""Runs plans without a CUDA kernel: the CPU decodes the images and computes the tensors, which are copied to the GPU.

Such a plan contains a custom operator, or a step that is not implemented in CUDA, such as an elastic deformation
(``Plan.unsupported_by_cuda``). The GPU does not decode the images, because the decoded pixels would have to be copied
to the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import cupy
import numpy as np

from pixprep.engine.kernels.staged import kernel_of
from pixprep.errors import ImageError
from pixprep.gpu.kernel import lay
from pixprep.gpu.lanes import current_lane
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.plan.steps.operators import Extern


class HostKernel:
    """Computes the tensors of a plan on the host, and copies them to the GPU. See ``Kernel`` for the interface."""

    def __init__(self, plan: TensorPlan) -> None:
        self._kernel = kernel_of(plan, _call)

    def run(
        self, images: Sequence[Any], placements: Sequence[Placement], outs: Any, places: Sequence[int]
    ) -> Mapping[int, ImageError]:
        """See ``Kernel.run``. The images are on the host, and each tensor is copied to the GPU."""
        # in the patches of a clip, all frames have the same place, and are written to one array
        hosts = {place: _pinned(outs[place].shape, outs[place].dtype) for place in places}
        failed = self._kernel.run(images, placements, hosts, places)
        lane = current_lane()
        for place, host in hosts.items():
            if outs[place].flags.c_contiguous:
                outs[place].data.copy_from_host_async(host.ctypes.data, host.nbytes, lane.stream)
            else:
                lay(cupy.asarray(host), outs[place])
        lane.held += hosts.values()
        return failed or {}


def _call(call: Extern, array: Any, **result: Any) -> Any:
    """See ``staged.Run``."""
    if "cupy" not in call.operator.arrays:
        return call.run(array, **result)
    made = cupy.ascontiguousarray(call.run(cupy.asarray(array), **result))
    return made.get()


def _pinned(shape: Sequence[int], dtype: Any) -> Any:
    """Return an uninitialized array in pinned memory, so that it can be copied asynchronously."""
    n_bytes = prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer(cupy.cuda.alloc_pinned_memory(max(1, n_bytes)), np.uint8, n_bytes).view(dtype).reshape(shape)
