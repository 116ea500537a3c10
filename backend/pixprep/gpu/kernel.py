"""Runs a plan on an NVIDIA GPU. When the engine is created, NVRTC compiles the plan's CUDA kernels, which takes 0.5 s.

CuPy manages memory and streams, and launches the kernels. However, CuPy does not compile the kernels; see ``nvrtc``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import cupy
import numpy as np

from pixprep.gpu import launch, nvrtc, structs, surfaces
from pixprep.gpu.canvases import canvas_plan, needs_canvases
from pixprep.gpu.fill import PixelBuffer
from pixprep.gpu.lanes import current_lane
from pixprep.gpu.structs import IMAGE, LEVEL_THREADS, TILE
from pixprep.gpu.targets import split
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.spec import NO_PADDING, TensorSpec

MIDDLE_BYTES = 256 << 20
"""Maximum size in bytes of the intermediate images and canvases of one lane, unless a single image needs more. For
128 photos of 12 megapixels that are resized to 224 x 224, the intermediate images take 230 MB and the canvases 39 MB. A
malicious image can need far more memory than its size suggests: a JPEG of 16,384 x 8 pixels has only 5 KB, but its
intermediate image takes 11 MB if it is resized to 224 x 224 as in torchvision."""


class GpuKernel:
    """Kernel that runs a plan on the GPU; see ``Kernel``.

    ``run`` queues the work on the lane of the thread, and returns before the work is finished.
    """

    def __init__(self, plan: TensorPlan, *, plain: bool = False) -> None:
        self._plan = plan
        self.is_plain = plain
        device_id, passes = cupy.cuda.Device().id, canvas_plan(plan)
        self._constants = {each: cupy.asarray(structs.constants(each)) for each in (passes, plan)}
        self._is_fixed = not plan.spec.is_open and plan.spec.padding == NO_PADDING
        self._passes_struct, self._struct = (
            structs.plan_struct(each, self._constants[each].data.ptr) for each in (passes, plan)
        )
        module = _module(launch.code(plan, plain=plain), tuple(launch.options(plan, plain=plain)), device_id)
        self._first_pass = module.get_function("first_pass")
        self._second_pass = module.get_function("second_pass")
        if needs_canvases(plan):
            module = _module(launch.levels_code(), tuple(launch.levels_options(plan)), device_id)
            self._change_levels = module.get_function("change_levels")
        cupy.cuda.get_current_stream().synchronize()  # because the lanes' streams do not wait for the current stream

    def run(self, images: Sequence[Any], placements: Sequence[Placement], outs: Any, places: Sequence[int]) -> None:
        """See ``Kernel.run``. Images are uint8 (height, width, channels). Images and outputs are on this device.

        The images and outputs must stay alive until the lane has finished the work. Each kernel launch processes
        outputs of all sizes, and all other data is uploaded in a single copy.
        """
        if not images:
            return
        spec = self._plan.spec
        if spec.patches is not None:
            own = [outs[place] for place in places]
            assert all(tensor.flags.c_contiguous for tensor in own)  # ``split`` ignores strides
            begins = [tensor.data.ptr for tensor in own]
            (images, placements, tensors, layouts), is_padded = split(spec, images, placements, begins)
            _fill([tensor for tensor, is_one in zip(own, is_padded, strict=True) if is_one], spec)
            if not images:
                return
        elif self._is_fixed:
            first, stride, planes = outs.data.ptr, outs.strides[0], spec.view(outs[0], "chw")
            tensors = [first + stride * place for place in places]
            layouts = np.array([structs.layout(planes)], structs.LAYOUT)
        else:
            own = [outs[place] for place in places]
            views = [spec.view(tensor, "chw") for tensor in own]
            sizes = [placement.size for placement in placements]
            _fill([one for one, view, size in zip(own, views, sizes, strict=True) if view.shape[1:] != size], spec)
            views = [view[:, :height, :width] for view, (height, width) in zip(views, sizes, strict=True)]
            tensors = [view.data.ptr for view in views]
            layouts = np.array([structs.layout(view) for view in views], structs.LAYOUT)
        lane = current_lane()
        pixels = [PixelBuffer(image.data.ptr, image.shape[0], image.shape[1], image.strides[0]) for image in images]
        prepared = launch.prepare(
            self._plan,
            pixels,
            placements,
            tensors,
            layouts,
            room=lane,
            middle_bytes=MIDDLE_BYTES,
            plain=self.is_plain,
        )
        with span("pixprep:copy"):
            lane.copy(prepared.memory)
        with span("pixprep:kernels"):
            for part in prepared.parts:
                placed = lane.device[part.first * IMAGE.itemsize :]
                self._first_pass(part.first_grid, TILE, (placed,))
                self._second_pass(part.second_grid, TILE, (placed, self._passes_struct))
                if part.canvases is not None:
                    canvases = lane.device[part.canvases :]
                    self._change_levels(part.levels_grid, (LEVEL_THREADS,), (canvases, self._struct))


def stacked(values: Sequence[Any], shape: Sequence[int], spec: TensorSpec) -> Any:
    """Pad each image's tensor to ``shape``, and stack them into one array (n, *shape); see ``Batch.padded``."""
    arrays = [cupy.asarray(value) for value in values]
    with arrays[0].device if arrays else nullcontext():  # the current device may differ
        whole = cupy.empty((len(values), *shape), spec.array_dtype)
        _fill(list(whole), spec)
        for one, array in zip(whole, arrays, strict=True):
            lay(array, one)
        cupy.cuda.get_current_stream().synchronize()
    return whole


def joined(values: Sequence[Any], axis: int = 0) -> Any:
    """Concatenate arrays of equal dtype along an axis; see ``Batch.packed``.

    The other axes of the arrays must have equal lengths.
    """
    arrays = [cupy.asarray(value) for value in values]
    first, lengths = arrays[0], [array.shape[axis] for array in arrays]
    with first.device:  # the current device may differ
        whole = cupy.empty((*first.shape[:axis], sum(lengths), *first.shape[axis + 1 :]), first.dtype)
        end = 0
        for array, length in zip(arrays, lengths, strict=True):
            begin, end = end, end + length
            if length:
                lay(array, whole[(*[slice(None)] * axis, slice(begin, end))])
        cupy.cuda.get_current_stream().synchronize()
    return whole


def _fill(tensors: Sequence[Any], spec: TensorSpec) -> None:
    """Queue work that fills tensors with the padding value. Adjacent tensors are filled together.

    CuPy's own fill is not used, because CuPy would have to compile a kernel.
    """
    stream, margins = cupy.cuda.get_current_stream(), dict[tuple[int, ...], Any]()
    spans: list[list[int]] = []
    for tensor in tensors:
        begin = tensor.data.ptr
        if any(spec.padding.value):
            if tensor.shape not in margins:
                margins[tensor.shape] = cupy.asarray(np.full(tensor.shape, spec.margin))
            tensor.data.copy_from_device_async(margins[tensor.shape].data, tensor.nbytes, stream)
        elif spans and spans[-1][1] == begin:
            spans[-1][1] += tensor.nbytes
        else:
            spans.append([begin, begin + tensor.nbytes])
    for begin, end in spans:
        cupy.cuda.runtime.memsetAsync(begin, 0, end - begin, stream.ptr)


def lay(tensor: Any, out: Any) -> None:
    """Queue the copy of a dense tensor to the upper left corner of an array.

    Each call of ``memcpy2DAsync`` copies a whole plane. CuPy's own copy is not used, because CuPy would have to compile
    a kernel.
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
    """Converts NVDEC's frames to RGB. The constructor compiles the kernel with NVRTC."""

    def __init__(self) -> None:
        module = _module(launch.surface_code(), (), cupy.cuda.Device().id)
        self._show = module.get_function("show_surface")

    def show(self, surface: surfaces.Surface, numbers: surfaces.Coefficients) -> Any:
        """Queue the conversion of a surface on CuPy's current stream.

        Returns:
            Array of uint8 RGB pixels (height, width, 3), which are rotated upright.
        """
        height, width = surface.height, surface.width
        pixels = cupy.empty((width, height, 3) if surface.turn % 2 else (height, width, 3), np.uint8)
        struct = surfaces.struct(surface, numbers, pixels.data.ptr)
        with span("pixprep:show"):
            self._show((-(-width // TILE[0]), -(-height // TILE[1]), 1), TILE, (struct,))
        return pixels


@contextmanager
def span(name: str) -> Iterator[None]:
    """Mark the work that this thread queues in the block as an NVTX range for profilers such as Nsight Systems."""
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
    """Compile kernels for a GPU, and load them into the current GPU. The module is kept until the process exits."""
    module = cupy.cuda.Module()
    capability = int(cupy.cuda.Device(device_id).compute_capability)
    cuda = cupy.cuda.runtime.runtimeGetVersion() // 1000  # the driver supports machine code of CuPy's CUDA version
    module.load(nvrtc.compiled(code, options, capability=capability, cuda=cuda).image)
    return module
