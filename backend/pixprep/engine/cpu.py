"""The CPU: a thread for each core, and each image on its own.

An image is decoded and transformed by one thread, one after the other: its pixels stay in that core's cache, and a
thread needs memory for one image only. A batch of 64 photos of 12 megapixels decoded at once would take 3 GB.
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
from pixprep.spec import DType

_NO_LANE = nullcontext()
_MAPPED, _KEPT = 32 << 20, 256 << 20
"""Bytes of an array. From the first on it is new memory, whose pages the kernel clears, in up to a fifth of the time of
its batch. Up to the second its memory is kept for the next batch."""


class _Loan:
    """Memory of an array. It comes back when nobody refers to the array or a view, if ``spare`` still lives."""

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
            SetupError: an operator of the plan takes no arrays of NumPy.
        """
        for each in plan.operators:
            if "numpy" not in each.operator.arrays:
                raise SetupError(f'the operator {each.operator} takes CuPy arrays: take device="gpu"')
        return kernel_of(plan)

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """See ``Device``: a large one in the memory of one that nobody refers to any more."""
        n_bytes = prod(shape) * np.dtype(dtype).itemsize
        if not _MAPPED <= n_bytes <= _KEPT:
            return np.empty(shape, dtype)
        try:
            memory = self._spare.pop()  # without a look before: another thread may take it in between
        except IndexError:
            memory = np.empty(0, np.uint8)
        if len(memory) < n_bytes:
            memory = np.empty(n_bytes, np.uint8)
        return np.asarray(_Loan(memory, self._spare))[:n_bytes].view(dtype).reshape(shape)

    def array(self, value: Any) -> Array:
        """See ``Device``."""
        return host_array(value)

    def on_host(self, array: Array) -> Array:
        """See ``Device``."""
        return array

    def lane(self) -> AbstractContextManager[None]:
        """See ``Device``."""
        return _NO_LANE

    def trim(self) -> None:
        """See ``Device``; the C library's own reserves too, where it has a call for that."""
        if self._decoder is not None:
            self._decoder.trim()
        forget()
        self._spare = deque(maxlen=1)  # arrays that are still in use do not know it
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
        if trim is not None:
            trim(0)

    def is_working(self) -> bool:
        """See ``Device``."""
        return True

    def close(self) -> None:
        """See ``Device``."""
        self.trim()
