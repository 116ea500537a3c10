"""CuPy played on the CPU: arrays are NumPy's, and kernels run through the shim. Only what pixprep uses is there."""

import contextlib
import ctypes
import threading
from types import SimpleNamespace

import numpy as np
from nvidia import nvimgcodec

import cuda_shim

TURN = threading.Lock()  # the shim is one GPU: its threads and shared memory are static


class Array(np.ndarray):
    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def asarray(values):
    return np.array(np.asarray(values)).view(Array)


def empty(shape, dtype):
    return np.full(shape, 99, dtype).view(Array)


class Stream(contextlib.nullcontext):
    made = 0

    def __init__(self, *, non_blocking):
        assert non_blocking
        super().__init__(self)
        Stream.made += 1
        self.ptr = 0

    def synchronize(self):
        pass


class Device(contextlib.nullcontext):
    def __init__(self, index):
        super().__init__(self)
        self.index = index
        self.id = nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY


def modules(plan, folder):
    """A ``cupy`` whose RawModule runs fused.cu, built for the types of ``plan``."""

    class RawModule:
        def __init__(self, *, code, options):
            assert "second_pass" in code
            assert options[0] == "-std=c++11"
            self._library = cuda_shim.build(plan, folder)

        def get_function(self, name):
            run = getattr(self._library, f"run_{name}")

            def launch(grid, block, arguments):
                assert block == (64, 4)
                pointers = [ctypes.c_void_p(argument.ctypes.data) for argument in arguments]
                with TURN:
                    run((ctypes.c_uint * 3)(*grid), *pointers)

            return launch

    pool = SimpleNamespace(free_all_blocks=lambda: None)
    runtime = SimpleNamespace(getDeviceCount=lambda: 1, CUDARuntimeError=RuntimeError)
    cuda = SimpleNamespace(
        runtime=runtime, Device=Device, Stream=Stream, get_current_stream=lambda: Stream(non_blocking=True)
    )
    return SimpleNamespace(
        asarray=asarray,
        empty=empty,
        RawModule=RawModule,
        cuda=cuda,
        get_default_memory_pool=lambda: pool,
        get_default_pinned_memory_pool=lambda: pool,
    )
