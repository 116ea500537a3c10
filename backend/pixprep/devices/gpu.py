"""An NVIDIA GPU: two lanes, so that one chunk is decoded while the host reads, or the kernels work on, the other."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, get_args
from weakref import WeakSet

import cupy
import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from pixprep.decoders import Codec, Damage, Decoder, Limits
from pixprep.decoders.gpu import GpuDecoder
from pixprep.decoders.nvimagecodec import Memory, nvimgcodec
from pixprep.decoders.pixels import OfDevice, PixelsDecoder, host_array
from pixprep.devices import clip_decoder
from pixprep.errors import ImageError, SetupError
from pixprep.kernels import Array, canvases, launch
from pixprep.kernels.cpu import CpuKernel
from pixprep.kernels.gpu import GpuKernel, SurfaceKernel, span
from pixprep.kernels.resampling import forget
from pixprep.kernels.staged import StagedKernel, needs_stages
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.plan.plan import Plan
from pixprep.spec import ColorLike, DType, PaddingMode
from pixprep.steps.levels import (
    Blend,
    Erase,
    Filter,
    Hue,
    LevelStep,
    Permute,
    Take,
    Tone,
    brightness,
    solarize,
)
from pixprep.steps.operators import Arrays
from pixprep.steps.warps import WARP_FILTERS, Warp

log = logging.getLogger(__name__)

PIXEL_BYTES = 1 << 30
"""Pixels in device memory at once, in each lane: 30 photos of 12 megapixels, or 1,900 of 500 x 375."""
FREED_BYTES = 1 << 30
"""Freed memory that CUDA's own pool keeps until a trim. nvImageCodec takes its buffers from there; by default the pool
gives what is free back to the driver at every wait, and a buffer that grows waits for the driver again."""

_CHECKED = ((375, 500), (700, 150), (100, 75), (2000, 3000))
"""Sizes of images that kernels are checked with, the first two that the plan takes: a photo, one that Pillow 13 resizes
from row to row first, one for small canvases, and one for windows far from the corner. Multiples of ``_BLOCK``."""
_BLOCK = 25
_DLPACK_CUDA = 2  # of DLDeviceType
_MOTIONS = (
    (0.96, -0.28, 1.5, 0.28, 0.96, -2.25),
    (0.9, 0.0, 0.75, 0.0, 1.05, -1.5),
    (1.0, 0.1, 0.0, 0.0, 1.0, 0.0, 1e-3, 2e-3),
)
"""What warps are checked with: pillow's nearest has another way where nothing turns."""
_ROUNDING = 1e-4
"""How far a kernel's floating-point values may be from the CPU's, relative to the largest; a level is 0.004."""

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
    """See ``Device``, and ``staged.Parts``.

    Args:
        index: which GPU, as CUDA numbers them.
        threads: of the host, that read JPEGs; default: as many as this process may use cores.

    Raises:
        SetupError: there is no such GPU, or no driver.
    """

    lanes = 2
    library: Arrays = "cupy"

    def __init__(self, index: int, threads: int | None = None) -> None:
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise SetupError(f'device "gpu:{index}": no NVIDIA driver here ({error}); take the device "cpu"') from None
        if index >= count:
            raise SetupError(f'device "gpu:{index}": this machine has {count}, numbered from 0')
        self._device = cupy.cuda.Device(index)
        threshold = cupy.cuda.runtime.cudaMemPoolAttrReleaseThreshold
        self._change_pool(lambda pool: cupy.cuda.runtime.memPoolSetAttribute(pool, threshold, FREED_BYTES))
        self._threads = threads
        self._local = threading.local()
        self._decoder: Decoder | None = None
        self._kernels: WeakSet[GpuKernel] = WeakSet()
        self._queued: Any = None

    def decoder(self, plan: Plan, limits: Limits, *, damage: Damage | None, codec: Codec) -> Decoder:
        """See ``Device``.

        Raises:
            SetupError: nvImageCodec decodes nothing here, or something else than libjpeg-turbo does.
        """
        if plan.clip:
            with self.lane():
                self._decoder = clip_decoder(
                    plan, limits, ready=cupy.asarray, elsewhere=lambda: self._nvdec(damage, codec)
                )
            return self._decoder
        if plan.takes:
            self._decoder = PixelsDecoder(plan, limits, OfDevice(self.array, ready=_readable, budget=PIXEL_BYTES))
            return self._decoder
        with self.lane():
            self._decoder = GpuDecoder(
                plan,
                limits,
                damage=damage or "structural",
                codec=codec,
                budget=PIXEL_BYTES,
                threads=self._threads,
                device_id=self._device.id,
                memory=Memory(
                    to_array=_to_array,
                    to_host=on_host,
                    stream=lambda: int(cupy.cuda.get_current_stream().ptr),
                    settle=cupy.cuda.runtime.deviceSynchronize,
                    free_bytes=lambda: int(cupy.cuda.runtime.memGetInfo()[0]),
                    span=span,
                ),
            )
        return self._decoder

    def _nvdec(self, damage: Damage | None, codec: Codec) -> Callable[[Any], Any] | None:
        """``ffmpeg.Elsewhere`` of NVDEC; None where the CPU is to decode clips, or PyNvVideoCodec is not there."""
        if damage == "strict" or codec == "cpu":
            return None
        try:
            from pixprep.decoders.clips.nvdec import Nvdec  # noqa: PLC0415  (on demand: most have no clips)

            return Nvdec(_Screen(self._device.id)).frames
        except ImportError as error:
            log.info('the CPU decodes clips: no %s: pip install "pixprep[gpu-video]" lets the GPU do it', error.name)
        except RuntimeError as error:  # PyNvVideoCodec wants a driver with its parts for video; and NVRTC
            log.warning("the CPU decodes clips, as NVDEC is not to be had: %s", " ".join(str(error).split())[:300])
        return None

    def kernel(self, plan: TensorPlan) -> GpuKernel | StagedKernel:
        """See ``Device``; NVRTC compiles here.

        Raises:
            SetupError: no kernels compile here that compute what the CPU does.
        """
        if needs_stages(plan, self.library):
            return StagedKernel(plan, self)
        with self._device:
            kernel = _checked_kernel(plan)
        self._kernels.add(kernel)
        return kernel

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """See ``Device``; memory that the caller has given back, and that its queued work may still read."""
        with self._device:
            array = cupy.empty(shape, dtype)
            self._queued = cupy.cuda.get_current_stream().record()
            return array

    def array(self, value: Any) -> Array:
        """See ``Device``: CuPy's of what lies on a GPU, as CuPy, PyTorch, JAX or Triton have it; else NumPy's."""
        with self._device:
            return _array_of(value)

    def readable(self, array: Array) -> Array:
        """See ``Parts``."""
        return cupy.ascontiguousarray(array)

    def on_host(self, array: Array) -> Any:
        """See ``Parts``."""
        return array.get()

    def copy(self, value: Any, out: Array) -> None:
        """See ``Parts``: on the lane's stream, without a kernel of CuPy's for what is contiguous."""
        given = cupy.asarray(value) if isinstance(value, np.ndarray) else cupy.ascontiguousarray(value)
        out.data.copy_from_device_async(given.data, out.nbytes, cupy.cuda.get_current_stream())

    @contextmanager
    def lane(self) -> Iterator[None]:
        """See ``Device``: a CUDA stream for each thread, which waits for what was queued before ``empty``."""
        with self._device:
            lent: _Lent | None = getattr(self._local, "lent", None)
            if lent is None:
                lent = self._local.lent = _Lent(self._device.id)
            with lent.stream:
                if self._queued is not None:
                    lent.stream.wait_event(self._queued)
                try:
                    yield
                finally:
                    lent.stream.synchronize()

    def trim(self) -> None:
        """See ``Device``; of a GPU that has stopped working, nothing is given back."""
        if not self.is_working():
            return
        if self._decoder is not None:
            with self.lane():
                self._decoder.trim()
        for kernel in self._kernels:
            kernel.trim()
        forget()
        with self._device:
            cupy.get_default_memory_pool().free_all_blocks()
            cupy.get_default_pinned_memory_pool().free_all_blocks()
        self._change_pool(lambda pool: cupy.cuda.runtime.memPoolTrimTo(pool, 0))

    def _change_pool(self, change: Callable[[int], object]) -> None:
        """Change CUDA's own pool of memory; a GPU that has none does without."""
        with suppress(cupy.cuda.runtime.CUDARuntimeError), self._device:
            change(cupy.cuda.runtime.deviceGetDefaultMemPool(self._device.id))

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


class _Screen(SurfaceKernel):
    """See ``nvdec.Screen``."""

    def __init__(self, device_id: int) -> None:
        super().__init__()
        self.device_id = device_id

    def stream(self) -> int:
        """See ``nvdec.Screen``."""
        return int(cupy.cuda.get_current_stream().ptr)

    def settle(self) -> None:
        """See ``nvdec.Screen``."""
        cupy.cuda.get_current_stream().synchronize()

    def to_host(self, pixels: Any) -> npt.NDArray[np.uint8]:
        """See ``nvdec.Screen``."""
        return on_host(pixels)


def _checked_kernel(plan: TensorPlan) -> GpuKernel:
    """The plan's fast kernels; with a warning the plain ones, where the fast ones do not compute what the CPU does.

    Raises:
        SetupError: the plain ones do not either, or there is no NVRTC, or it knows no such GPU.
    """
    for plain in (False, True) if launch.is_fast(plan) else (True,):
        try:
            kernel = GpuKernel(plan, plain=plain)
            fault = _fault(kernel, plan)
        except RuntimeError as error:  # of NVRTC, and of CUDA
            fault = str(error).partition("\n")[0]
        if fault is None:
            return kernel
        if not plain:
            log.warning("the fast CUDA kernels are not used on this GPU, but slower ones: %s", fault)
    raise SetupError(
        f'no CUDA kernels that work on this GPU: {fault}: pip install "pixprep[gpu-cuda12]" (or gpu-cuda13, for the '
        'CUDA of the driver), or take the device "cpu"'
    )


def _fault(kernel: GpuKernel, plan: TensorPlan) -> str | None:
    """Difference of the kernels' values from the CPU's; None if there is none."""
    numbers, channels = np.random.default_rng(0), len(plan.channels)
    images: list[npt.NDArray[np.uint8]] = []
    placements: list[Placement] = []
    for height, width in _CHECKED:
        try:
            placement = plan.geometry.place(height, width)
        except ImageError:
            continue
        if not plan.spec.is_open and plan.spec.shape_of(*placement.size) != plan.spec.shape:
            continue  # a part of a plan, of another image: see kernels.staged
        placements.append(placement)
        images.append(_blocks(numbers, height, width, 4 if channels == 3 else channels))  # as the CPU decodes
        if len(images) == 2:
            break
    if not images:
        return None
    if canvases.needs_canvases(plan):  # other images have other steps than the example's
        images.append(images[0])
        placements.append(_with_all_steps(placements[0], plan))
    shapes = [plan.spec.shape_of(*placement.size) for placement in placements]
    whole: Any
    outs: Any
    whole, outs = (
        [empty(shape, plan.spec.dtype) for shape in shapes]
        if plan.spec.is_open
        else empty((len(shapes), *plan.spec.shape), plan.spec.dtype)
        for empty in (np.empty, cupy.empty)
    )
    CpuKernel(plan).run(images, placements, whole, range(len(images)))
    pixels = [cupy.asarray(np.ascontiguousarray(image[:, :, :channels])) for image in images]
    kernel.run(pixels, placements, outs, range(len(images)))
    ours, expected = (np.concatenate([np.ravel(one) for one in ones]) for ones in ([o.get() for o in outs], whole))
    if np.array_equal(ours, expected):
        return None
    apart = np.abs(ours.astype(np.float64) - expected)
    if plan.spec.dtype != "uint8" and apart.max() <= _ROUNDING * np.abs(expected).max():
        return None
    count = np.count_nonzero(ours != expected)
    return f"{count:,} of {apart.size:,} values are not the CPU's, by up to {apart.max():g}"


def _with_all_steps(placement: Placement, plan: TensorPlan) -> Placement:
    """The same placement with every step that levels.cu knows, one after the other, so far as the plan has any."""
    (height, width), channels = placement.size, len(plan.channels)
    erase = Erase(0, 0, max(1, height // 3), max(1, width // 3), (1.0,) * channels)
    noise = erase._replace(top=height // 2, left=width // 2, noise=(1, 2, 3))
    erasures = (erase, noise) if plan.geometry.erasures else ()
    if not plan.geometry.levels:
        return placement._replace(erasures=erasures)
    fill, size = (9, 120, 250)[:channels], (height + 8, width + 6)
    steps: list[LevelStep] = [
        Take(-3, -2, *size, (True, True), fill), solarize(100), Erase(5, 4, 4, 3, fill), Filter("blur", "torchvision",
        rows=(0.25, 0.5, 0.25), columns=(0.125, 0.25, 0.25, 0.25, 0.125))
    ]  # fmt: skip
    for like in get_args(ColorLike):
        steps += [Filter("sharpness", like, 1.5), Blend("own", 1.25, like), Hue(0.1, like), Blend("mean", 0.75, like)]
        for matrix in _MOTIONS:
            steps += [Warp(matrix, size, 0, 0, *size, fill, way, like) for way in WARP_FILTERS[like]]
        steps += [Tone("equalize", like), brightness(0.8, like), Tone("autocontrast", like)]
    steps += [Permute((2, 0, 1)), *(Take(-3, -2, *size, (False, True), fill, mode) for mode in get_args(PaddingMode))]
    return placement._replace(levels=(*steps, Take(2, 3, height, width, (False, False), fill)), erasures=erasures)


def _blocks(numbers: np.random.Generator, height: int, width: int, channels: int) -> npt.NDArray[np.uint8]:
    """Black, white and noise: filters overshoot at their edges, where values are clipped."""
    choices = numbers.integers(0, 3, (height // _BLOCK, width // _BLOCK, channels))
    choices = choices.repeat(_BLOCK, axis=0).repeat(_BLOCK, axis=1)
    return np.where(choices == 2, numbers.integers(0, 256, choices.shape), 255 * choices).astype(np.uint8)


def on_host(pixels: Any) -> npt.NDArray[np.uint8]:
    """A copy in host memory of pixels whose rows may lie apart; for these, CuPy's own would need a kernel of CuPy's."""
    height, width, channels = pixels.shape
    n_bytes = (height - 1) * pixels.strides[0] + width * channels
    whole = cupy.ndarray(n_bytes, np.uint8, memptr=pixels.data).get()
    return as_strided(whole, pixels.shape, pixels.strides)


def _array_of(value: Any) -> Any:
    if isinstance(value, cupy.ndarray):
        return value
    if hasattr(value, "__cuda_array_interface__"):
        return cupy.asarray(value)
    if hasattr(value, "__dlpack__") and value.__dlpack_device__()[0] == _DLPACK_CUDA:
        return cupy.from_dlpack(value)
    return host_array(value)


def _readable(pixels: Any) -> Any:
    """Pixels of whoever gave them, in device memory: one pixel behind the other, rows any number of bytes apart."""
    if isinstance(pixels, np.ndarray) and not isinstance(pixels, cupy.ndarray):
        return cupy.asarray(np.ascontiguousarray(pixels))
    is_readable = pixels.strides[1:] == (pixels.shape[2], 1) and pixels.strides[0] >= 0
    return pixels if is_readable else cupy.ascontiguousarray(pixels)


def _to_array(image: Any) -> Any:
    """An nvImageCodec image in device memory without a copy or a wait; anything in host memory is uploaded.

    nvImageCodec was given the lane's stream, and the image names the stream on which its pixels will be ready. What the
    lane queues there comes after them, so that nobody waits; ``cupy.asarray`` would, once for each image.
    """
    if isinstance(image, np.ndarray):
        with span("pixprep:copy"):
            return cupy.asarray(image)
    if image.buffer_kind == nvimgcodec.ImageBufferKind.STRIDED_HOST:
        return cupy.asarray(np.asarray(image))
    said = image.__cuda_array_interface__
    if said["stream"] != cupy.cuda.get_current_stream().ptr:
        return cupy.asarray(image)
    shape, strides = said["shape"], said["strides"]
    n_bytes = shape[0] * (strides[0] if strides else shape[1] * shape[2])
    memory = cupy.cuda.UnownedMemory(said["data"][0], n_bytes, image, cupy.cuda.runtime.getDevice())
    return cupy.ndarray(shape, np.uint8, cupy.cuda.MemoryPointer(memory, 0), strides)
