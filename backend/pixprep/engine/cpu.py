"""The CPU device, with one thread per core.

Each thread decodes and transforms one image before it starts the next. The pixels of the image thus stay in the cache
of one core, and a thread needs memory for a single image only. If a batch of 64 photos with 12 megapixels were decoded
before any of them is transformed, it would take 3 GB.
"""

from __future__ import annotations

import ctypes
import weakref
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
_MIN_REUSED, _MAX_REUSED = 1 << 20, 512 << 20
"""Minimum size in bytes of an array whose memory is reused, and maximum size of all memory that is kept for reuse.

The C library returns the memory of large arrays to the kernel, which clears the pages of new memory. This takes up to a
third of the time of a batch.
"""


class _Spare(dict[tuple[int, int], npt.NDArray[np.uint8]]):
    """Memory that is kept for reuse, by its size and address. The oldest memory is first.

    Any thread may call these methods, and ``keep`` is called by destructors. They therefore use single operations of
    the dict instead of a lock.
    """

    def take(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Return memory of at least ``n_bytes``. Kept memory is reused if it is at most twice as large."""
        fitting = [key for key in list(self) if n_bytes <= key[0] <= 2 * n_bytes]
        memory = self.pop(min(fitting), None) if fitting else None  # another thread might have taken it
        return np.empty(n_bytes, np.uint8) if memory is None else memory

    def keep(self, memory: npt.NDArray[np.uint8]) -> None:
        """Keep unused memory, and free the oldest memory beyond the limit."""
        address = memory.__array_interface__["data"][0]  # `memory.ctypes` would import a module, also at Python's exit
        self[len(memory), address] = memory
        keys = list(self)
        excess = sum(size for size, _ in keys) - _MAX_REUSED
        for key in keys:
            if excess <= 0:
                break
            self.pop(key, None)
            excess -= key[0]


class _PooledMemory:
    """Owner of an array's memory, which returns it to ``spare`` when the array and all its views have been deleted."""

    def __init__(self, memory: npt.NDArray[np.uint8], spare: _Spare) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory, self._spare = memory, weakref.ref(spare)

    def __del__(self) -> None:
        spare = self._spare()
        if spare is not None:
            spare.keep(self._memory)


class Cpu:
    """See ``Device``."""

    def __init__(self, threads: int | None) -> None:
        self.lanes = threads or cores()
        self._decoder: Decoder | None = None
        self._spare = _Spare()

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
        memory = self._spare.take(n_bytes)
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
        self._spare = _Spare()  # arrays in use refer to the old one, so that their memory is freed with them
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # a function of glibc
        if trim is not None:
            trim(0)

    def is_working(self) -> bool:
        """See ``Device``."""
        return True

    def close(self) -> None:
        """See ``Device``."""
        self.trim()
