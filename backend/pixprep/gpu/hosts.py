"""Runs plans without a CUDA kernel. The GPU decodes the images, and the cores of the host run the CPU kernels.

Such a plan contains a custom operator, a step that is applied to the whole photo before the geometry, or a step that is
not implemented in CUDA, such as an elastic deformation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from math import prod
from typing import Any

import cupy
import numpy as np

from pixprep.engine.kernels.staged import kernel_of
from pixprep.errors import ImageError
from pixprep.gpu.kernel import lay
from pixprep.gpu.nvimagecodec import all_on_host
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.plan.steps.operators import Extern


class HostKernel:
    """Kernel of a plan that runs on the host; see ``Kernel``. The pixels and the tensors are on the GPU.

    Args:
        plan: Plan of the tensor.
        threads: Pool of threads that run the CPU kernel.
        lane: Function that returns a context manager for a CUDA stream. Operators on CuPy arrays run in it.
    """

    def __init__(self, plan: TensorPlan, threads: Executor, lane: Callable[[], AbstractContextManager[None]]) -> None:
        self._kernel, self._threads, self._lane = kernel_of(plan, self._call), threads, lane

    def run(
        self, images: Sequence[Any], placements: Sequence[Placement], outs: Any, places: Sequence[int]
    ) -> Mapping[int, ImageError]:
        """See ``Kernel.run``. Copies each image to the host once, and each tensor back to the GPU.

        The host waits twice: once until all images are copied, and once until all tensors are copied.
        """
        distinct = {id(image): image for image in images}
        pixels = dict(zip(distinct, all_on_host(list(distinct.values())), strict=True))
        hosts = [_pinned(outs[place].shape, outs[place].dtype) for place in places]

        def work(index: int) -> Mapping[int, ImageError] | None:
            return self._kernel.run([pixels[id(images[index])]], [placements[index]], hosts, [index])

        failed = list(self._threads.map(work, range(len(images))))
        stream = cupy.cuda.get_current_stream()
        for host, place in zip(hosts, places, strict=True):
            if outs[place].flags.c_contiguous:
                outs[place].data.copy_from_host_async(host.ctypes.data, host.nbytes, stream)
            else:
                lay(cupy.asarray(host), outs[place])
        stream.synchronize()
        return {index: errors[0] for index, errors in enumerate(failed) if errors}

    def _call(self, call: Extern, array: Any, **result: Any) -> Any:
        """See ``staged.Run``."""
        if "cupy" not in call.operator.arrays:
            return call.run(array, **result)
        with self._lane():
            made = cupy.ascontiguousarray(call.run(cupy.asarray(array), **result))
            return made.get()


def _pinned(shape: Sequence[int], dtype: Any) -> Any:
    """Return an uninitialized array in pinned memory, so that it can be copied asynchronously."""
    n_bytes = prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer(cupy.cuda.alloc_pinned_memory(max(1, n_bytes)), np.uint8, n_bytes).view(dtype).reshape(shape)
