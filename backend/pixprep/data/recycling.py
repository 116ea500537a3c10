"""Arrays for batches, used again once nobody refers to them any more.

A large array is new memory of the kernel's each time, whose pages it clears when they are written: 3 of the 9 ms that
a batch of 38.5 MB takes. An array is used again where the count of references says that the consumer let go of it, of
every view of it, and of every tensor that shares its memory: these all hold a reference to it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from pixprep.spec import DType

ALIGNMENT = 64
"""Bytes: what JAX and TensorFlow share without a copy begins at a multiple of this."""
_IDLE = [np.empty(0, np.uint8)]
_UNUSED = sys.getrefcount(_IDLE[0])
"""References to an array that only a list holds."""


class Recycler:
    """Makes arrays, and gives those out again that came back. One thread at a time asks it.

    Args:
        most: how many arrays it remembers; more may be in use.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._memories: list[npt.NDArray[np.uint8]] = []

    def empty(self, shape: Sequence[int], dtype: DType) -> npt.NDArray[np.generic]:
        """An array whose values are not set, which begins at a multiple of 64 bytes."""
        n_bytes = prod(shape) * np.dtype(dtype).itemsize
        memory = self._memory(n_bytes)
        begin = -memory.ctypes.data % ALIGNMENT
        return memory[begin : begin + n_bytes].view(dtype).reshape(shape)

    def clear(self) -> None:
        """Forget all; an array that is in use stays its user's."""
        self._memories.clear()

    def _memory(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        for place in range(len(self._memories)):
            unused = sys.getrefcount(self._memories[place]) == _UNUSED
            if unused and self._memories[place].nbytes == n_bytes + ALIGNMENT:
                return self._memories[place]
        memory = np.empty(n_bytes + ALIGNMENT, np.uint8)
        if len(self._memories) == self._most:
            self._memories.pop(0)  # of another size, or still in use
        self._memories.append(memory)
        return memory
