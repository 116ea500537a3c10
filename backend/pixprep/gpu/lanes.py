"""Lanes of a GPU: CUDA streams, each with the memory that its queued work uses.

A thread processes a chunk in a lane, which it borrows from a pool. Memory use therefore does not grow with the number
of threads that call an engine. When a lane is borrowed again, all of its earlier work has finished. Its memory can
therefore be reused without waiting, even by nvJPEG's hardware decoder, which may start to write before earlier work in
the same stream has finished.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import cupy
import numpy as np

from pixprep.gpu.fill import U8
from pixprep.gpu.structs import ALIGNMENT

_FREE: defaultdict[int, list[Any]] = defaultdict(list)
"""Unused streams of each GPU, by the index of the GPU. Streams are never destroyed, because nvImageCodec frees memory
on the stream on which the memory was allocated, and an image or a decoder may outlive the lane that used the stream."""
_NOW = threading.local()


class Queued:
    """Work that a lane has queued.

    Attributes:
        held: Objects that own the memory that the work uses. They are released by ``wait``.
    """

    def __init__(self, event: Any) -> None:
        self._event = event
        self.held: Any = None

    @property
    def is_done(self) -> bool:
        """Whether the work has finished."""
        return bool(self._event.done)

    def wait(self) -> None:
        """Wait until the work has finished. Any thread may call this method."""
        self._event.synchronize()
        self.held = None


class Lane:
    """CUDA stream with its own memory.

    As a context manager, it makes its stream CuPy's current stream, and waits for the queued work on exit. Only one
    thread at a time may use a lane.

    Attributes:
        stream: CUDA stream of the lane.
        images: nvImageCodec images into which the next chunk is decoded.
        sizes: Size in bytes of the pixel buffer of each of these images.
        device: Device memory of the latest ``upload``, a CuPy array of uint8.
        held: Objects that own host memory. Queued work still reads this memory.
    """

    def __init__(self) -> None:
        self._free = _FREE[cupy.cuda.Device().id]
        try:
            self.stream = self._free.pop()
        except IndexError:
            self.stream = cupy.cuda.Stream(non_blocking=True)
        self.device: Any = None
        self._latest: Queued | None = None
        self._is_behind = False
        self._middle: Any = None
        self._used = 0
        self._drop()

    def __del__(self) -> None:
        self._free.append(self.stream)

    def __enter__(self) -> Lane:  # noqa: PYI034  (typing.Self begins with Python 3.11)
        self._outer = getattr(_NOW, "lane", None)
        _NOW.lane = self
        self.stream.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if self._latest is None:
                self.stream.synchronize()
                self._reuse()
        finally:
            self.stream.__exit__(*error)
            _NOW.lane = self._outer

    @property
    def is_done(self) -> bool:
        """Whether all work of the lane has finished."""
        return self._latest is None or self._latest.is_done

    def wait(self) -> None:
        """Wait for all work of the lane, and make its memory available for new work."""
        if self._latest is not None:
            self._latest.wait()
            self._latest = None
            self._reuse()

    def queued(self) -> Queued:
        """Return the work that has been queued so far. The context then does not wait for this work on exit."""
        self._latest = Queued(self.stream.record())
        return self._latest

    def wait_for(self, event: Any) -> None:
        """Make all work that is queued later wait for an event of a different stream."""
        if not event.done:
            self.stream.wait_event(event)
            self._is_behind = True

    def catch_up(self) -> None:
        """Wait on the host for the events of ``wait_for``.

        nvJPEG's hardware decoder needs this, because it may start to write before earlier work in its stream has
        finished (https://github.com/meta-pytorch/torchcodec/pull/1634).
        """
        if self._is_behind:
            self.stream.synchronize()
            self._is_behind = False

    def upload(self, n_bytes: int) -> tuple[U8, int]:
        """See ``launch.Room``. Successive uploads use separate buffers, so that no upload waits for the previous one.

        The host memory is pinned, so that it can be copied asynchronously.
        """
        host, device = self._blocks[-1]
        begin, end = self._used, self._used + n_bytes
        if end > len(host):
            whole = 1 << (max(n_bytes, 2 * len(host)) - 1).bit_length()
            host = np.frombuffer(cupy.cuda.alloc_pinned_memory(whole), np.uint8, whole)
            device = cupy.empty((whole,), np.uint8)
            self._blocks.append((host, device))
            begin, end = 0, n_bytes
        self._used = -(-end // ALIGNMENT) * ALIGNMENT
        self.device = device[begin:end]
        return host[begin:end], int(device.data.ptr) + begin

    def copy(self, memory: U8) -> None:
        """Queue a copy of the latest ``upload`` to the device."""
        self.device.data.copy_from_host_async(memory.ctypes.data, memory.nbytes, cupy.cuda.get_current_stream())

    def middle(self, n_bytes: int) -> int:
        """See ``launch.Room``. All launches of the lane share this memory, because they run one after the other."""
        if self._middle is None or self._middle.nbytes < n_bytes:
            self._middle = None  # released first, so that the pool can reuse it
            self._middle = cupy.empty(n_bytes, np.uint8)
        return int(self._middle.data.ptr)

    def trim(self) -> None:
        """Release the memory, after all work of the lane has finished."""
        self.wait()
        self._drop()

    def _drop(self) -> None:
        self._blocks: list[tuple[U8, Any]] = [(np.empty(0, np.uint8), None)]
        self._used = 0
        self._middle = None
        self.images: list[Any] = []
        self.sizes: list[int] = []
        self.held: list[Any] = []

    def _reuse(self) -> None:
        """Discard all blocks except the largest one, which is reused.

        Queued work must no longer use any of the blocks.
        """
        del self._blocks[:-1]
        self._used, self._is_behind = 0, False
        self.held.clear()


def current_lane() -> Lane:
    """Return the lane of this thread, which must be in the context of a lane."""
    lane: Lane | None = getattr(_NOW, "lane", None)
    assert lane is not None
    return lane
