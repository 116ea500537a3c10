"""The plan on an NVIDIA GPU: the plan's CUDA kernels, compiled by NVRTC when the engine is made, in half a second.

CuPy has the memory and the streams, and launches. It compiles nothing here: see ``nvrtc``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import cupy
import numpy as np

from pixprep.kernels import launch, nvrtc
from pixprep.plan import Placement, TensorPlan

MIDDLE_BYTES = 256 << 20
"""Between the passes, in each thread, unless one image alone needs more. 128 photos of 12 megapixels to 224 take 230
MB; but of a JPEG of 16,384 x 8 pixels, as torchvision resizes it to 224 x 224, 5 KB on the wire become 11 MB."""


class GpuKernel:
    """See ``Kernel``. Work is queued on CuPy's current stream, and ``run`` returns before it is done."""

    def __init__(self, plan: TensorPlan, *, plain: bool = False) -> None:
        self._plan = plan
        self.is_plain = plain
        self._constants = cupy.asarray(launch.constants(plan))
        self._struct = launch.plan_struct(plan, self._constants.data.ptr)
        code, options = launch.code(plan, plain=plain), tuple(launch.options(plan, plain=plain))
        module = _module(code, options, cupy.cuda.Device().id)
        self._first_pass = module.get_function("first_pass")
        self._second_pass = module.get_function("second_pass")
        cupy.cuda.get_current_stream().synchronize()  # the lanes' streams do not wait for this one
        self._local = threading.local()
        self._middles = threading.local()

    def run(self, images: Sequence[Any], placements: Sequence[Placement], outs: Sequence[Any]) -> None:
        """See ``Kernel.run``: ``images`` are uint8 (height, width, channels) on this device, ``outs`` on it too.

        Images and outputs must stay alive until the stream has done the work, and the same thread may not call again
        before: the memory between the passes and what the structs point at is kept for that long, and used again.
        """
        used: list[Any] = []
        if images:
            self._launch(images, placements, outs, used)
        self._local.used = used

    def _launch(
        self, images: Sequence[Any], placements: Sequence[Placement], outs: Sequence[Any], used: list[Any]
    ) -> None:
        """Queue the two launches, or for halves of the images more, where too much memory would lie between the two."""
        pixels = [
            launch.PixelBuffer(image.data.ptr, image.shape[0], image.shape[1], image.strides[0]) for image in images
        ]
        prepared = launch.prepare(self._plan, pixels, placements, [out.data.ptr for out in outs], plain=self.is_plain)
        if prepared.middle_bytes > MIDDLE_BYTES and len(images) > 1:
            half = len(images) // 2
            self._launch(images[:half], placements[:half], outs[:half], used)
            self._launch(images[half:], placements[half:], outs[half:], used)
            return
        local = self._middles
        middle = getattr(local, "middle", None)
        if middle is None or middle.nbytes < prepared.middle_bytes:
            middle = local.middle = cupy.empty(prepared.middle_bytes, np.uint8)
        windows = cupy.asarray(prepared.windows)
        prepared.place(windows=windows.data.ptr, middle=middle.data.ptr)
        structs = cupy.asarray(prepared.images.view(np.uint8))
        used += [windows, structs]
        self._first_pass(prepared.first_grid, launch.TILE, (structs,))
        self._second_pass(prepared.second_grid, launch.TILE, (structs, self._struct))

    def trim(self) -> None:
        """Give the memory between the passes back to CuPy's pool; any thread may ask for it."""
        self._middles = threading.local()


@cache
def _module(code: str, options: tuple[str, ...], device_id: int) -> Any:
    """The kernels on a GPU, which is the current one: compiled once, and there until the process ends."""
    module = cupy.cuda.Module()
    capability = int(cupy.cuda.Device(device_id).compute_capability)
    cuda = cupy.cuda.runtime.runtimeGetVersion() // 1000  # what CuPy is built for: the driver knows its machine code
    module.load(nvrtc.compiled(code, options, capability=capability, cuda=cuda).image)
    return module
