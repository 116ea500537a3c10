"""The plan on an NVIDIA GPU: the plan's CUDA kernels, compiled by NVRTC through CuPy when the engine is made.

CuPy keeps the compiled kernels on disk (``CUPY_CACHE_DIR``), so that NVRTC runs once for each plan's types and GPU.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from pixprep.kernels import launch
from pixprep.plan import Placement, TensorPlan

WINDOW_BYTES = 64 << 20
"""Windows kept on the device; a resize of 500 to 224 positions has 10 KB of them."""


class GpuKernel:
    """See ``Kernel``. Work is queued on CuPy's current stream, and ``run`` returns before it is done."""

    def __init__(self, plan: TensorPlan, *, plain: bool = False) -> None:
        self._plan = plan
        self._is_plain = plain
        self._constants = cupy.asarray(launch.constants(plan))
        self._struct = launch.plan_struct(plan, self._constants.data.ptr)
        options = ("-std=c++11", *launch.options(plan, plain=plain))
        module = cupy.RawModule(code=launch.source(plan, plain=plain), options=options)
        self._first_pass = module.get_function("first_pass")  # compiles
        self._second_pass = module.get_function("second_pass")
        cupy.cuda.get_current_stream().synchronize()  # the lanes' streams do not wait for this one
        self._windows = _Windows()
        self._local = threading.local()

    def run(self, images: Sequence[Any], placements: Sequence[Placement], outs: Sequence[Any]) -> None:
        """See ``Kernel.run``: ``images`` are uint8 (height, width, channels) on this device, ``outs`` on it too.

        Images and outputs must stay alive until the stream has done the work, and the same thread may not call again
        before: the memory between the passes and what the structs point at is kept for that long, and used again.
        """
        if not images:
            return
        sources = [launch.Source(image.data.ptr, image.shape[0], image.shape[1], image.strides[0]) for image in images]
        used: list[Any] = []
        prepared = launch.prepare(
            self._plan,
            sources,
            placements,
            [out.data.ptr for out in outs],
            upload=lambda packed: self._windows.address(packed, used),
            plain=self._is_plain,
        )
        middle = getattr(self._local, "middle", None)
        if middle is None or middle.nbytes < prepared.middle_bytes:
            middle = self._local.middle = cupy.empty(prepared.middle_bytes, np.uint8)
        prepared.images["middle"] += np.uint64(middle.data.ptr)
        structs = cupy.asarray(prepared.images.view(np.uint8))
        self._first_pass(prepared.first_grid, launch.TILE, (structs,))
        self._second_pass(prepared.second_grid, launch.TILE, (structs, self._struct))
        self._local.used = [*used, structs]


class _Windows:
    """The windows that lie on the device; the least used ones go first, once nobody holds them any more."""

    def __init__(self) -> None:
        self._arrays: OrderedDict[int, tuple[launch.Int32, Any]] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    def address(self, packed: launch.Int32, used: list[Any]) -> int:
        """The device address of an array, which is uploaded if it is not there; ``used`` keeps it there."""
        key = id(packed)  # the host array is kept beside it, so that its id is not given to another one
        with self._lock:
            if key not in self._arrays:
                self._arrays[key] = (packed, cupy.asarray(packed))
                cupy.cuda.get_current_stream().synchronize()  # the other lane's stream may read it next
                self._n_bytes += packed.nbytes
                while self._n_bytes > WINDOW_BYTES and len(self._arrays) > 1:
                    _, (old, _) = self._arrays.popitem(last=False)
                    self._n_bytes -= old.nbytes
            self._arrays.move_to_end(key)
            array = self._arrays[key][1]
        used.append(array)
        return int(array.data.ptr)
