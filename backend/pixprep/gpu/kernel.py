"""Runs a plan on an NVIDIA GPU. NVRTC compiles the plan's CUDA kernels in 0.5 s when the engine is created.

CuPy manages memory and streams, and launches the kernels. It does not compile anything; see ``nvrtc``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import cupy
import numpy as np

from pixprep.gpu import launch, nvrtc, structs, surfaces
from pixprep.gpu.canvases import canvas_plan, needs_canvases
from pixprep.gpu.fill import PixelBuffer
from pixprep.gpu.structs import IMAGE, LEVEL_THREADS, TILE
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.spec import NO_PADDING, TensorSpec

MIDDLE_BYTES = 256 << 20
"""Maximum number of bytes per thread for intermediate images and canvases, unless a single image needs more. For 128
photos of 12 megapixels resized to 224 x 224, the intermediate images take 230 MB and the canvases 39 MB. A hostile
image can need far more than its size suggests: a JPEG of 16,384 x 8 pixels has 5 KB, and its intermediate image 11 MB
when it is resized to 224 x 224 as in torchvision."""

_NOTHING = np.empty(0, np.uint8)


class _Room:
    """Memory for one launch, which its thread reuses for the next one; see ``launch.Room``."""

    def __init__(self, uploads: threading.local, middles: threading.local) -> None:
        self._uploads, self._middles = uploads, middles
        self.device: Any = None
        self._middle: Any = None  # a reference until the launch is queued, because another thread may call trim

    def upload(self, n_bytes: int) -> tuple[launch.U8, int]:
        """See ``launch.Room``. Host memory is pinned, so that the copy is asynchronous."""
        host: launch.U8
        host, self.device = getattr(self._uploads, "kept", (_NOTHING, None))
        if (copied := getattr(self._uploads, "copied", None)) is not None:
            copied.synchronize()  # the upload for this thread's previous launch may still read the host memory
        if len(host) < n_bytes:
            whole = 1 << (n_bytes - 1).bit_length()
            host = np.frombuffer(cupy.cuda.alloc_pinned_memory(whole), np.uint8, whole)
            self.device = cupy.empty((whole,), np.uint8)
            self._uploads.kept = host, self.device
        return host[:n_bytes], int(self.device.data.ptr)

    def copy(self, memory: launch.U8) -> None:
        """Queue the upload of the host memory."""
        stream = cupy.cuda.get_current_stream()
        self.device.data.copy_from_host_async(memory.ctypes.data, memory.nbytes, stream)
        self._uploads.copied = stream.record()

    def middle(self, n_bytes: int) -> int:
        """See ``launch.Room``."""
        self._middle = getattr(self._middles, "kept", None)
        if self._middle is None or self._middle.nbytes < n_bytes:
            self._middle = self._middles.kept = cupy.empty(n_bytes, np.uint8)
        return int(self._middle.data.ptr)


class GpuKernel:
    """See ``Kernel``. Work is queued on CuPy's current stream, and ``run`` returns before it has finished."""

    def __init__(self, plan: TensorPlan, *, plain: bool = False) -> None:
        self._plan = plan
        self.is_plain = plain
        device_id, passes = cupy.cuda.Device().id, canvas_plan(plan)
        self._constants = {each: cupy.asarray(structs.constants(each)) for each in (passes, plan)}
        self._is_fixed = not plan.spec.is_open and plan.spec.padding == NO_PADDING
        self._latest: tuple[Any, Any] = None, None
        """Shape and strides of the latest launch's tensors, and their ``Plan`` struct.

        The next launch often reuses it.
        """
        self._passes_struct = structs.plan_struct(passes, self._constants[passes].data.ptr)
        module = _module(launch.code(plan, plain=plain), tuple(launch.options(plan, plain=plain)), device_id)
        self._first_pass = module.get_function("first_pass")
        self._second_pass = module.get_function("second_pass")
        if needs_canvases(plan):
            module = _module(launch.levels_code(), tuple(launch.levels_options(plan)), device_id)
            self._change_levels = module.get_function("change_levels")
        cupy.cuda.get_current_stream().synchronize()  # the streams of the lanes do not wait for the current stream
        self._uploads = threading.local()
        self._middles = threading.local()

    def run(self, images: Sequence[Any], placements: Sequence[Placement], outs: Any, places: Sequence[int]) -> None:
        """See ``Kernel.run``. Images are uint8 (height, width, channels); images and outputs are on this device.

        Images and outputs must stay alive until the stream has finished the work. All other data is uploaded in one
        copy. The next call from the same thread waits for this copy; it must use the same stream.
        """
        if not images:
            return
        if self._is_fixed:
            first, stride, planes = outs.data.ptr, outs.strides[0], self._plan.spec.view(outs[0], "chw")
            self._launch(images, placements, [first + stride * place for place in places], planes)
            return
        alike: dict[Any, list[int]] = {}  # all images of a launch have the same size
        for index, placement in enumerate(placements):
            alike.setdefault((placement.canvas, placement.size), []).append(index)
        for (_, size), group in alike.items():
            planes = [self._unpadded(outs[places[index]], size) for index in group]
            tensors = [each.data.ptr for each in planes]
            self._launch([images[i] for i in group], [placements[i] for i in group], tensors, planes[0])

    def _unpadded(self, tensor: Any, size: tuple[int, int]) -> Any:
        """Queue the filling of a tensor's padding, and return the part without padding, (channels, height, width)."""
        planes = self._plan.spec.view(tensor, "chw")
        if planes.shape[1:] == size:
            return planes
        _fill(tensor, self._plan.spec)
        return planes[:, : size[0], : size[1]]

    def _launch(
        self, images: Sequence[Any], placements: Sequence[Placement], tensors: Sequence[int], planes: Any
    ) -> None:
        """Queue the kernels for a group of images.

        ``tensors`` are the addresses of the outputs, which all have the shape and strides of ``planes``.
        """
        laid, (latest, plan_struct) = (planes.shape, planes.strides), self._latest
        if laid != latest:
            plan_struct = structs.plan_struct(self._plan, self._constants[self._plan].data.ptr, planes)
            self._latest = laid, plan_struct
        room = _Room(self._uploads, self._middles)
        pixels = [PixelBuffer(image.data.ptr, image.shape[0], image.shape[1], image.strides[0]) for image in images]
        prepared = launch.prepare(
            self._plan, pixels, placements, tensors, room=room, middle_bytes=MIDDLE_BYTES, plain=self.is_plain
        )
        with span("pixprep:copy"):
            room.copy(prepared.memory)
        with span("pixprep:kernels"):
            for part in prepared.parts:
                placed = room.device if part.first == 0 else room.device[part.first * IMAGE.itemsize :]
                self._first_pass(part.first_grid, TILE, (placed,))
                if part.canvases is None:
                    self._second_pass(part.second_grid, TILE, (placed, plan_struct))
                    continue
                canvases = room.device[part.canvases :]
                struct = (self._passes_struct if self._plan.has_canvas else plan_struct).copy()
                struct["canvases"] = canvases.data.ptr
                self._second_pass(part.second_grid, TILE, (placed, struct))
                self._change_levels(part.levels_grid, (LEVEL_THREADS,), (canvases, plan_struct))

    def trim(self) -> None:
        """Return the memory between the passes to CuPy's pool. Any thread may call this.

        Memory for uploads is kept, because CuPy's pinned memory pool could reuse it during a copy.
        """
        self._middles = threading.local()


def stacked(values: Sequence[Any], shape: Sequence[int], spec: TensorSpec) -> Any:
    """Stack the tensors of images to one array (n, *shape), each padded to ``shape``; see ``Batch.padded``."""
    whole = cupy.empty((len(values), *shape), spec.dtype)
    for one, value in zip(whole, values, strict=True):
        _fill(one, spec)
        lay(cupy.asarray(value), one)
    cupy.cuda.get_current_stream().synchronize()
    return whole


def joined(values: Sequence[Any]) -> Any:
    """Return arrays of equal dtype and row shape as one array, along the first axis: see ``Batch.packed``."""
    counts = [len(value) for value in values]
    whole = cupy.empty((sum(counts), *values[0].shape[1:]), values[0].dtype)
    begin = 0
    for count, value in zip(counts, values, strict=True):
        if count:
            lay(cupy.asarray(value), whole[begin : begin + count])
        begin += count
    cupy.cuda.get_current_stream().synchronize()
    return whole


def _fill(tensor: Any, spec: TensorSpec) -> None:
    """Queue the filling of a tensor with the padding value. Does not use kernels of CuPy, which would be compiled."""
    stream = cupy.cuda.get_current_stream()
    if not any(spec.padding.value):
        cupy.cuda.runtime.memsetAsync(tensor.data.ptr, 0, tensor.nbytes, stream.ptr)
    else:
        host = np.full(tensor.shape, spec.margin)
        tensor.data.copy_from_host_async(host.ctypes.data, host.nbytes, stream)
        stream.synchronize()  # the host memory is freed when this function returns


def lay(tensor: Any, out: Any) -> None:
    """Queue the copy of a dense tensor to the upper left corner of an array, several lines at a time.

    Does not use kernels of CuPy, which would be compiled.
    """
    stream, runtime = cupy.cuda.get_current_stream(), cupy.cuda.runtime
    axis = tensor.ndim - 1  # axis of the lines; along later axes, such as channels, both arrays have the same strides
    while axis and tensor.strides[axis] == out.strides[axis]:
        axis -= 1
    (pitch, whole), lines = (each.strides[axis] for each in (tensor, out)), tensor.shape[axis]
    for plane in np.ndindex(*tensor.shape[:axis]):
        to, begin = (each.data.ptr + int(np.dot(plane, each.strides[:axis])) for each in (out, tensor))
        runtime.memcpy2DAsync(to, whole, begin, pitch, pitch, lines, runtime.memcpyDeviceToDevice, stream.ptr)


class SurfaceKernel:
    """Converts frames of a video decoder to RGB. NVRTC compiles the kernel in the constructor."""

    def __init__(self) -> None:
        module = _module(launch.surface_code(), (), cupy.cuda.Device().id)
        self._show = module.get_function("show_surface")

    def show(self, surface: surfaces.Surface, numbers: surfaces.Coefficients) -> Any:
        """Queue the conversion of a surface on CuPy's current stream, and return uint8 RGB pixels, rotated upright."""
        height, width = surface.height, surface.width
        pixels = cupy.empty((width, height, 3) if surface.turn % 2 else (height, width, 3), np.uint8)
        struct = surfaces.struct(surface, numbers, pixels.data.ptr)
        with span("pixprep:show"):
            self._show((-(-width // TILE[0]), -(-height // TILE[1]), 1), TILE, (struct,))
        return pixels


@contextmanager
def span(name: str) -> Iterator[None]:
    """Mark the work that this thread queues as an NVTX range, which profilers such as Nsight Systems show."""
    if not cupy.cuda.nvtx.available:
        yield
        return
    cupy.cuda.nvtx.RangePush(name)
    try:
        yield
    finally:
        cupy.cuda.nvtx.RangePop()


@cache
def _module(code: str, options: tuple[str, ...], device_id: int) -> Any:
    """Compile kernels for the current GPU and load them. The module is kept until the process ends."""
    module = cupy.cuda.Module()
    capability = int(cupy.cuda.Device(device_id).compute_capability)
    cuda = cupy.cuda.runtime.runtimeGetVersion() // 1000  # the driver supports machine code of CuPy's CUDA version
    module.load(nvrtc.compiled(code, options, capability=capability, cuda=cuda).image)
    return module
