"""An NVIDIA GPU: two lanes, so that one chunk is decoded while the kernel works on the other."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cupy
import numpy as np
from nvidia import nvimgcodec

from pixprep.decoders import Encoded, Limits
from pixprep.decoders.cpu import sample_jpeg
from pixprep.decoders.gpu import REMEDY, GpuDecoder
from pixprep.errors import SetupError
from pixprep.kernels import Array
from pixprep.kernels.gpu import GpuKernel
from pixprep.plan import Plan, TensorPlan
from pixprep.spec import DType

PIXEL_BYTES = 1 << 30
"""Pixels in device memory at once, in each lane: 30 photos of 12 megapixels, or 1,900 of 500 x 375."""

_FREE: defaultdict[int, list[Any]] = defaultdict(list)
"""The streams of each GPU that no thread works on. None is ever destroyed: nvImageCodec frees memory on the stream that
it was allocated on, and an image or a decoder may go after the thread that had the stream."""


class _Lent:
    """A stream for a thread, until the thread or its device is gone."""

    def __init__(self, device_id: int) -> None:
        self._free = _FREE[device_id]
        try:
            self.stream = self._free.pop()
        except IndexError:
            self.stream = cupy.cuda.Stream(non_blocking=True)

    def __del__(self) -> None:
        self._free.append(self.stream)


class Gpu:
    """See ``Device``.

    Args:
        index: which GPU, as CUDA numbers them.

    Raises:
        SetupError: there is no such GPU, or no driver.
    """

    lanes = 2

    def __init__(self, index: int) -> None:
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise SetupError(f'device "gpu:{index}": no NVIDIA driver here ({error}); take the device "cpu"') from None
        if index >= count:
            raise SetupError(f'device "gpu:{index}": this machine has {count}, numbered from 0')
        self._device = cupy.cuda.Device(index)
        self._local = threading.local()
        self._decoder: GpuDecoder | None = None

    def decoder(self, plan: Plan, limits: Limits) -> GpuDecoder:
        """See ``Device``."""
        self._decoder = GpuDecoder(
            plan,
            limits,
            device_id=self._device.id,
            to_array=_to_array,
            stream=lambda: int(cupy.cuda.get_current_stream().ptr),
        )
        with self.lane():
            self._decoder.decode([sample_jpeg(16, 16)])
        if self._decoder.fallbacks:
            raise SetupError(f"nvImageCodec decodes no JPEG on this GPU: {REMEDY}")
        return self._decoder

    def kernel(self, plan: TensorPlan) -> GpuKernel:
        """See ``Device``; NVRTC compiles here, or its cache is read.

        Raises:
            SetupError: there is no NVRTC, or it knows no such GPU.
        """
        try:
            with self._device:
                return GpuKernel(plan)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise SetupError(
                f'CuPy makes no CUDA kernels here: {reason}: pip install "pixprep[gpu-cuda12]" (or gpu-cuda13, '
                'for the CUDA of the driver), or take the device "cpu"'
            ) from error

    def chunks(self, encoded: Sequence[Encoded]) -> Iterator[range]:
        """See ``Device``."""
        assert self._decoder is not None
        return self._decoder.chunks(encoded, budget=PIXEL_BYTES)

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """See ``Device``."""
        with self._device:
            return cupy.empty(shape, dtype)

    @contextmanager
    def lane(self) -> Iterator[None]:
        """See ``Device``: a CUDA stream for each thread."""
        with self._device:
            lent: _Lent | None = getattr(self._local, "lent", None)
            if lent is None:
                lent = self._local.lent = _Lent(self._device.id)
            with lent.stream:
                try:
                    yield
                finally:
                    lent.stream.synchronize()

    def trim(self) -> None:
        """See ``Device``."""
        if self._decoder is not None:
            self._decoder.trim()
        with self._device:
            cupy.get_default_memory_pool().free_all_blocks()
            cupy.get_default_pinned_memory_pool().free_all_blocks()

    def is_working(self) -> bool:
        """See ``Device``: a kernel that has read outside its memory, say, makes every later call of CUDA's fail."""
        try:
            with self._device:
                cupy.cuda.runtime.deviceSynchronize()
        except cupy.cuda.runtime.CUDARuntimeError:
            return False
        return True

    def close(self) -> None:
        """See ``Device``."""
        if self._decoder is not None:
            self._decoder.close()
        self.trim()


def _to_array(image: Any) -> Any:
    """An nvImageCodec image in device memory without a copy; anything in host memory is uploaded."""
    if not isinstance(image, np.ndarray) and image.buffer_kind == nvimgcodec.ImageBufferKind.STRIDED_HOST:
        image = np.asarray(image)
    return cupy.asarray(image)
