"""Device of an engine that runs on an NVIDIA GPU.

The device has two lanes. While one chunk is decoded, the host reads the other chunk or the kernels process it. If a
plan has a step without a CUDA kernel, the CPU runs the whole plan with one lane per core, and the tensors are copied to
the GPU.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from pixprep.engine.cpu import Cpu
from pixprep.engine.decoders import Decoder
from pixprep.engine.decoders.pixels import PixelsDecoder, host_array
from pixprep.engine.kernels import Array, Kernel
from pixprep.engine.kernels.resize import forget
from pixprep.engine.options import EngineOptions
from pixprep.errors import SetupError, needed
from pixprep.gpu.comparison import checked_kernel
from pixprep.gpu.decoder import GpuDecoder
from pixprep.gpu.hosts import HostKernel
from pixprep.gpu.lanes import Lane, Queued
from pixprep.gpu.nvimagecodec import on_host
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.plan import Plan

log = logging.getLogger(__name__)

PIXEL_BYTES = 1 << 30
"""Maximum size in bytes of the decoded pixels in device memory per lane. It suffices for 30 photos of 12 megapixels, or
for 1,900 photos of 500 x 375 pixels."""
FREED_BYTES = 1 << 30
"""Number of free bytes that CUDA's memory pool keeps until ``trim`` is called. nvImageCodec allocates its buffers from
this pool. By default, the pool returns free memory to the driver at every synchronization, so that each growing buffer
must wait for the driver."""

_DLPACK_CUDA = 2  # kDLCUDA of DLDeviceType

_IN_FLIGHT = 2
"""Number of batches whose work may be queued at the same time. Meanwhile, the host can read the next batch. A third
queued batch would need the memory of two more lanes."""


class Gpu:
    """Device for an NVIDIA GPU; see ``Device``.

    Args:
        index: Index of the GPU in CUDA's order.
        threads: Number of CPU threads for plans that the CPU runs. Default: number of cores that this process may use.

    Raises:
        SetupError: The GPU or its driver is missing.
    """

    lanes = 2

    def __init__(self, index: int, threads: int | None = None) -> None:
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise SetupError(
                f'device "gpu:{index}": the NVIDIA driver cannot be used ({error}): install it, or use the device "cpu"'
            ) from None
        if index >= count:
            raise SetupError(f'device "gpu:{index}": this machine has {count} GPU(s), numbered from 0')
        self._index = index
        self._device = cupy.cuda.Device(index)
        self._change_pool(_set_attributes)
        self._lanes: list[Lane] = []
        """Lanes that no thread uses, in the order in which they were returned. Some may still have queued work."""
        self._made = 0
        self._decoder: Decoder | None = None
        self._queued: dict[tuple[int, int], Any] = {}
        """Event after the work that the lanes must wait for, by the caller's thread and the address of its stream.

        CUDA's per-thread default stream has the same address in every thread.
        """
        self._lock = threading.Lock()
        self._threads = threads
        self._cpu: Cpu | None = None
        """CPU device that runs the plan, or None if all steps of the plan have CUDA kernels."""

    def decoder(self, plan: Plan, options: EngineOptions) -> Decoder:
        """See ``Device``.

        Raises:
            SetupError: nvImageCodec cannot decode on this machine, or its pixels differ from libjpeg-turbo's.
        """
        if unsupported := plan.unsupported_by_cuda:
            log.info(
                "the CPU runs this pipeline, because it has parts without CUDA kernels: %s", ", ".join(unsupported)
            )
            self._cpu = Cpu(self._threads)
            self.lanes = self._cpu.lanes
            if not plan.takes:
                self._decoder = self._cpu.decoder(plan, options)
            else:
                self._decoder = PixelsDecoder(plan, options.limits, of=self.array, ready=_on_host)
            return self._decoder
        with self.lane():
            if plan.clip:
                is_host = options.damage == "strict" or options.decoder == "cpu"
                make = needed("clips")
                self._decoder = make(plan, options.limits, cupy.asarray, None if is_host else _frames_of_nvdec())
            elif plan.takes:
                self._decoder = PixelsDecoder(plan, options.limits, of=self.array, ready=_readable, budget=PIXEL_BYTES)
            else:
                self._decoder = GpuDecoder(plan, options, budget=PIXEL_BYTES)
        return self._decoder

    def kernel(self, plan: TensorPlan) -> Kernel:
        """See ``Device``. Compiles the kernels with NVRTC, unless the CPU runs the plan.

        Raises:
            SetupError: The kernels do not compile, or their values differ from the CPU's.
        """
        if self._cpu is not None:
            return HostKernel(plan)
        assert not plan.unsupported_by_cuda, plan.unsupported_by_cuda
        with self.lane():
            return checked_kernel(plan)

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """See ``Device``."""
        with self._device:
            return cupy.empty(shape, dtype)

    def array(self, value: Any) -> Array:
        """See ``Device``.

        Arrays on this GPU (from CuPy, PyTorch, JAX or Triton) become CuPy arrays, and all other arrays NumPy arrays.
        DLPack is preferred, because the producer then lets the caller's current stream wait for the work that computes
        the array. ``__cuda_array_interface__`` of PyTorch does not name a stream.

        Raises:
            TypeError: The value is not an array, or it is in the memory of a different GPU, which the kernels cannot
                read.
        """
        with self._device:
            if isinstance(value, cupy.ndarray):
                self._check_device(value.device.id)
                array = value
            elif hasattr(value, "__dlpack__"):
                kind, index = value.__dlpack_device__()
                if kind != _DLPACK_CUDA:
                    return host_array(value)
                self._check_device(index)
                array = cupy.from_dlpack(value)
            elif hasattr(value, "__cuda_array_interface__"):
                array = cupy.asarray(value)
                self._check_device(array.device.id)
            else:
                return host_array(value)
            self.follow()
            return array

    def _check_device(self, index: int) -> None:
        if index != self._index:
            raise TypeError(
                f"is in the memory of GPU {index}, but the device of the engine is gpu:{self._index}: copy the array "
                f'to that GPU, or create an engine with device="gpu:{index}"'
            )

    def follow(self) -> None:
        """See ``Device``. For example, the caller's model may still read a tensor whose memory becomes an output."""
        with self._device:
            stream = cupy.cuda.get_current_stream()
            event = stream.record()
        with self._lock:  # several threads may call the engine
            queued = {caller: each for caller, each in self._queued.items() if not each.done}
            self._queued = queued | {(threading.get_ident(), stream.ptr): event}

    def on_host(self, array: Array) -> Any:
        """See ``Device``."""
        return array.get()

    @contextmanager
    def lane(self, queued: list[Queued] | None = None) -> Iterator[None]:
        """See ``Device``.

        The stream of the lane waits for the work that the callers' streams had queued at the latest call of ``follow``
        or ``array``.
        """
        with self._device:
            lane = self._taken()
            try:
                with lane:
                    for event in self._queued.values():
                        lane.wait_for(event)
                    yield
                    if queued is not None:
                        queued.append(lane.queued())
            finally:
                with self._lock:
                    self._lanes.append(lane)

    def _taken(self) -> Lane:
        """Return a lane whose work has finished. If the maximum number of lanes is reached, wait for the oldest one."""
        with self._lock:
            free = next((lane for lane in reversed(self._lanes) if lane.is_done), None)
            if free is None and self._lanes and self._made >= self.lanes * _IN_FLIGHT:
                free = self._lanes[0]
            if free is None:
                self._made += 1
                return Lane()
            self._lanes.remove(free)
        free.wait()
        return free

    def trim(self) -> None:
        """See ``Device``. If the GPU has stopped working, no memory is freed."""
        if not self.is_working():
            return
        if self._cpu is not None:
            self._cpu.trim()
        elif self._decoder is not None:
            with self.lane():
                self._decoder.trim()
        with self._lock:
            lanes, self._lanes = self._lanes, []
        with self._device:
            for lane in lanes:
                lane.trim()
            with self._lock:
                self._lanes += lanes
            forget()
            cupy.get_default_memory_pool().free_all_blocks()
            cupy.get_default_pinned_memory_pool().free_all_blocks()
        self._change_pool(lambda pool: cupy.cuda.runtime.memPoolTrimTo(pool, 0))

    def _change_pool(self, change: Callable[[int], object]) -> None:
        """Call ``change`` with CUDA's default memory pool, if the GPU supports memory pools."""
        with suppress(cupy.cuda.runtime.CUDARuntimeError), self._device:
            change(cupy.cuda.runtime.deviceGetDefaultMemPool(self._device.id))

    def is_working(self) -> bool:
        """See ``Device``. For example, if a kernel has accessed invalid memory, all later CUDA calls fail."""
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


def _set_attributes(pool: int) -> None:
    """Set the attributes of CUDA's memory pool, from which nvImageCodec allocates its buffers.

    The pool must not return memory that queued work of a different stream still uses, because nvJPEG's hardware decoder
    may start to write before earlier work in its stream has finished.
    """
    runtime = cupy.cuda.runtime
    runtime.memPoolSetAttribute(pool, runtime.cudaMemPoolAttrReleaseThreshold, FREED_BYTES)
    runtime.memPoolSetAttribute(pool, runtime.cudaMemPoolReuseAllowInternalDependencies, 0)


def _frames_of_nvdec() -> Callable[[Any], Any] | None:
    """Return NVDEC's decoding function, which is an ``ffmpeg.Elsewhere``, or None if NVDEC is not available."""
    try:
        from pixprep.gpu.nvdec import Nvdec  # noqa: PLC0415  (on demand: most pipelines have no clips)

        return Nvdec().frames
    except ImportError as error:
        log.info('the CPU decodes clips, because %s is missing: pip install "PyNvVideoCodec>=2.2"', error.name)
    except RuntimeError as error:  # the driver's video libraries or NVRTC are missing
        log.warning("the CPU decodes clips, because NVDEC is not available: %s", " ".join(str(error).split())[:300])
    return None


def _readable(pixels: Any) -> Any:
    """Return a caller's pixels in device memory, with contiguous rows. The pixels are copied only if necessary."""
    if isinstance(pixels, np.ndarray) and not isinstance(pixels, cupy.ndarray):
        return cupy.asarray(np.ascontiguousarray(pixels))
    is_readable = pixels.strides[1:] == (pixels.shape[2], 1) and pixels.strides[0] >= 0
    return pixels if is_readable else cupy.ascontiguousarray(pixels)


def _on_host(pixels: Any) -> Any:
    """Return a caller's pixels in host memory. Pixels in device memory are copied after the lane's queued work."""
    return on_host(_readable(pixels)) if isinstance(pixels, cupy.ndarray) else pixels
