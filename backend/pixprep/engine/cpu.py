"""The CPU device, with one thread per core.

Each thread decodes and transforms one image before it starts the next. The pixels of the image thus stay in the cache
of one core, and a thread needs memory for a single image only. If a batch of 64 photos with 12 megapixels were decoded
before any of them is transformed, it would take 3 GB.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.cores import cores
from pixprep.engine.decoders import Decoder
from pixprep.engine.decoders.images import CpuDecoder
from pixprep.engine.decoders.pixels import PixelsDecoder, host_array
from pixprep.engine.kernels import Array, Kernel
from pixprep.engine.kernels.resize import forget
from pixprep.engine.kernels.staged import kernel_of
from pixprep.engine.options import EngineOptions
from pixprep.errors import SetupError, needed
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.plan import Plan

_NO_LANE = nullcontext()
_MIN_REUSED, _MAX_REUSED = 32 << 20, 256 << 20
"""Minimum and maximum size in bytes of an array whose memory is reused for the next batch.

The C library maps new memory for an array of at least the minimum size. The kernel clears the pages of this memory,
which takes up to a fifth of the time of a batch.
"""


class _PooledMemory:
    """Owner of an array's memory, which returns it to ``spare`` when the array and all its views have been deleted."""

    def __init__(self, memory: npt.NDArray[np.uint8], spare: deque[npt.NDArray[np.uint8]]) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory, self._spare = memory, weakref.ref(spare)

    def __del__(self) -> None:
        spare = self._spare()
        if spare is not None:
            spare.append(self._memory)


class Cpu:
    """See ``Device``."""

    def __init__(self, threads: int | None) -> None:
        self.lanes = threads or cores()
        self._decoder: Decoder | None = None
        self._spare: deque[npt.NDArray[np.uint8]] = deque(maxlen=1)

    def decoder(self, plan: Plan, options: EngineOptions) -> Decoder:
        """See ``Device``."""
        if plan.clip:
            self._decoder = needed("clips")(plan, options.limits, lambda frame: frame)
        elif plan.takes:
            self._decoder = PixelsDecoder(plan, options.limits, of=host_array)
        else:
            self._decoder = CpuDecoder(plan, options.limits, damage=options.damage or "strict")
        return self._decoder

    def kernel(self, plan: TensorPlan) -> Kernel:
        """See ``Device``.

        Raises:
            SetupError: A custom operator of the plan does not accept NumPy arrays.
        """
        for each in plan.operators:
            if "numpy" not in each.operator.arrays:
                raise SetupError(f'the operator {each.operator} accepts only CuPy arrays: use device="gpu"')
        return kernel_of(plan)

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """See ``Device``. A large array reuses the memory of an earlier array that has been deleted."""
        n_bytes = prod(shape) * np.dtype(dtype).itemsize
        if not _MIN_REUSED <= n_bytes <= _MAX_REUSED:
            return np.empty(shape, dtype)
        try:
            memory = self._spare.pop()  # without checking first, because another thread might pop in between
        except IndexError:
            memory = np.empty(0, np.uint8)
        if len(memory) < n_bytes:
            memory = np.empty(n_bytes, np.uint8)
        return np.asarray(_PooledMemory(memory, self._spare))[:n_bytes].view(dtype).reshape(shape)

    def array(self, value: Any) -> Array:
        """See ``Device``."""
        return host_array(value)

    def on_host(self, array: Array) -> Array:
        """See ``Device``."""
        return array

    def follow(self) -> None:
        """See ``Device``."""

    def lane(self, queued: list[Any] | None = None) -> AbstractContextManager[None]:  # noqa: ARG002
        """See ``Device``."""
        return _NO_LANE

    def trim(self) -> None:
        """See ``Device``. Also release the free memory of the C library, if it has a function for this."""
        if self._decoder is not None:
            self._decoder.trim()
        forget()
        self._spare = deque(maxlen=1)  # arrays in use refer to the old deque, so that their memory is freed with them
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # a function of glibc
        if trim is not None:
            trim(0)

    def is_working(self) -> bool:
        """See ``Device``."""
        return True

    def close(self) -> None:
        """See ``Device``."""
        self.trim()
