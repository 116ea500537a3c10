"""Memory for batches and for encoded files, used again once nobody refers to it any more.

A large array is new memory of the kernel's each time, whose pages it clears when they are written: 3 of the 9 ms that
a batch of 38.5 MB takes, and 0.08 of the 1 ms that an image of 110 kB takes. Memory is used again where the count of
references says that the consumer let go of the array, of every view of it, and of every tensor that shares its memory:
these all hold a reference to it. So does a copy to a GPU that is under way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import prod
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.spec import DType

ALIGNMENT = 64
"""Bytes: what JAX and TensorFlow share without a copy begins at a multiple of this."""
_IDLE = [np.empty(0, np.uint8)]
_UNUSED = sys.getrefcount(_IDLE[0])
"""References to an array that only a list holds."""


Memory = npt.NDArray[np.uint8]


class Copies:
    """Asynchronous copies to a GPU for all batches; thread-safe.

    Attributes:
        allocate: Function that allocates a number of bytes for batches. From the first copy on, the memory is pinned,
            so copies run concurrently with the host and the GPU's kernels.
    """

    def __init__(self) -> None:
        self.allocate: Callable[[int], Memory] = _pageable
        self._lock = Lock()
        self._under_way: list[tuple[Callable[[], bool], Any]] = []

    def hold(self, source: Any, is_done: Callable[[], bool]) -> None:
        """Keep a reference to the source of a copy until the event after the copy shows that it has ended."""
        self.let_go()
        with self._lock:
            self._under_way.append((is_done, source))

    def let_go(self) -> None:
        """Forget the copies that have ended."""
        with self._lock:
            self._under_way = [each for each in self._under_way if not each[0]()]


def _pageable(n_bytes: int) -> Memory:
    return np.empty(n_bytes, np.uint8)


COPIES = Copies()


class Recycler:
    """Makes arrays, and gives those out again that came back. One thread at a time asks it.

    Args:
        most: how many arrays it remembers; more may be in use.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._memories: list[Memory] = []
        self._allocate = COPIES.allocate

    def empty(self, shape: Sequence[int], dtype: DType) -> npt.NDArray[np.generic]:
        """An array whose values are not set, which begins at a multiple of 64 bytes."""
        n_bytes = prod(shape) * np.dtype(dtype).itemsize
        memory = self._memory(n_bytes)
        begin = -memory.ctypes.data % ALIGNMENT
        return memory[begin : begin + n_bytes].view(dtype).reshape(shape)

    def clear(self) -> None:
        """Forget all; an array that is in use stays its user's."""
        self._memories.clear()
        COPIES.let_go()

    def _memory(self, n_bytes: int) -> Memory:
        COPIES.let_go()
        if self._allocate != COPIES.allocate:
            self._allocate = COPIES.allocate
            self._memories.clear()
        for place in range(len(self._memories)):
            unused = sys.getrefcount(self._memories[place]) == _UNUSED
            if unused and self._memories[place].nbytes == n_bytes + ALIGNMENT:
                return self._memories[place]
        memory = self._allocate(n_bytes + ALIGNMENT)
        if len(self._memories) == self._most:
            self._memories.pop(0)  # the block has a different size, or is still in use
        self._memories.append(memory)
        return memory


BLOCK_BYTES = 4 << 20
"""Memory of encoded files, one after the other."""


class Blocks:
    """Memory for encoded files. Any thread may ask it.

    A block is used again when no file in it is referred to any more. So there are as many blocks as files were held at
    once, and one.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._blocks: list[Memory] = []
        self._free = memoryview(b"")

    def take(self, n_bytes: int) -> memoryview:
        """So many bytes, whose values are not set."""
        with self._lock:
            if n_bytes > len(self._free):
                self._free = memoryview(b"")  # what is left of a block is no reason to keep it
                self._free = self._block(n_bytes).data
            taken, self._free = self._free[:n_bytes], self._free[n_bytes:]
            return taken

    def clear(self) -> None:
        """Forget all; a block that is in use stays its user's."""
        with self._lock:
            self._blocks.clear()
            self._free = memoryview(b"")

    def _block(self, n_bytes: int) -> Memory:
        count = len(self._blocks)
        unused = [place for place in range(count) if sys.getrefcount(self._blocks[place]) == _UNUSED]
        for place in unused:
            if self._blocks[place].nbytes >= n_bytes:
                return self._blocks[place]
        self._blocks = [self._blocks[place] for place in range(count) if place not in unused]  # those are too small
        self._blocks.append(np.empty(max(n_bytes, BLOCK_BYTES), np.uint8))
        return self._blocks[-1]
