"""CuPy played on the CPU: arrays are NumPy's, and kernels run through the shim. Only what is used of it is there.

``codecs`` plays nvImageCodec, whose CPU decoder stands for its others. ``install`` puts both in their places for a
whole process.
"""

import ctypes
import sys
import threading
import weakref
from math import prod
from time import perf_counter
from types import ModuleType, SimpleNamespace

import numpy as np
import nvidia
from nvidia import nvimgcodec

import cuda_shim

TURN = threading.Lock()  # the shim is one GPU: its threads and shared memory are static
FREE = 100 << 30  # bytes of its memory


class CUDARuntimeError(RuntimeError):
    pass


class Pointer:
    def __init__(self, ptr, owner=None):
        self.ptr, self.owner = ptr, owner

    def copy_from_host_async(self, source, n_bytes, stream):
        assert isinstance(source, int)
        assert isinstance(stream, Stream)
        ctypes.memmove(self.ptr, source, n_bytes)

    def copy_from_device_async(self, source, n_bytes, stream):
        assert isinstance(stream, Stream)
        ctypes.memmove(self.ptr, source.ptr, n_bytes)


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id):
        assert device_id == RUNTIME.getDevice()
        self.ptr, self.size, self.owner = ptr, size, owner


class Array(np.ndarray):
    def __new__(cls, shape, dtype, memptr, strides=None):
        shape = (shape,) if isinstance(shape, int) else shape
        n_bytes = strides[0] * shape[0] if strides else prod(shape) * np.dtype(dtype).itemsize
        array = np.ndarray.__new__(cls, shape, dtype, (ctypes.c_char * n_bytes).from_address(memptr.ptr), 0, strides)
        array.owner = memptr
        return array

    @property
    def data(self):
        return Pointer(self.ctypes.data)

    def get(self):
        return np.array(self)


def asarray(values):
    if getattr(values, "buffer_kind", None) != nvimgcodec.ImageBufferKind.STRIDED_DEVICE:
        return np.array(np.asarray(values)).view(Array)
    interface = values.__cuda_array_interface__  # without a copy, after a wait
    Stream.synchronized = (*Stream.synchronized, interface["stream"])
    return Array(interface["shape"], np.uint8, Pointer(interface["data"][0], values), interface["strides"])


def full(shape, value, dtype):
    return np.full(shape, value, dtype).view(Array)


def empty(shape, dtype):
    return full(shape, 99, dtype)


class Stream:
    made = destroyed = 0
    waited_for = ()  # events, of all streams
    synchronized = ()  # numbers of streams, for one array each
    _current = threading.local()

    def __init__(self, *, non_blocking):
        assert non_blocking
        Stream.made += 1
        self.ptr = 0  # nvImageCodec sees it

    def __enter__(self):
        self._stack().append(self)
        return self

    def __exit__(self, *_):
        assert self._stack().pop() is self

    def __del__(self):
        type(self).destroyed += 1  # by itself: when Python ends, the module's names go first

    def synchronize(self):
        synchronize()

    def record(self):
        event = Event()
        event.record(self)
        return event

    def wait_event(self, event):
        Stream.waited_for = (*Stream.waited_for, event)

    @classmethod
    def _stack(cls):
        cls._current.__dict__.setdefault("stack", [])
        return cls._current.stack

    @classmethod
    def current(cls):
        stack = cls._stack()
        return stack[-1] if stack else DEFAULT


DEFAULT = Stream(non_blocking=True)


class Device:
    def __init__(self, index):
        self.index = index
        self.id = nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Event:
    done = False  # the fake GPU is busy with what was queued, until somebody synchronizes

    def record(self, stream):
        assert isinstance(stream, Stream)
        self.stream = stream
        self.time = perf_counter()


def synchronize():
    if RUNTIME.broken is not None:
        raise CUDARuntimeError(RUNTIME.broken)


RUNTIME = SimpleNamespace(
    broken=None,  # what every call that waits for the device raises, as after an illegal address
    CUDARuntimeError=CUDARuntimeError,
    deviceSynchronize=synchronize,
    getDevice=lambda: 0,
    getDeviceCount=lambda: 1,
    memGetInfo=lambda: (FREE, FREE),
    getDeviceProperties=lambda _: {"name": b"Fake GPU", "multiProcessorCount": 1},
    driverGetVersion=lambda: 13000,
    runtimeGetVersion=lambda: 13000,
)


def modules(folder):
    """A ``cupy`` whose RawModule builds its shims in a folder."""

    class RawModule:
        changes = ()  # texts of the kernels, and what this GPU does in their place

        def __init__(self, *, code, options):
            assert "second_pass" in code
            assert options[0] == "-std=c++11"
            for before, after in RawModule.changes:
                code = code.replace(before, after)
            self._library = cuda_shim.build_code(code, options[1:], folder)

        def get_function(self, name):
            run = getattr(self._library, f"run_{name}")

            def launch(grid, block, arguments):
                assert block == (64, 4)
                pointers = [ctypes.c_void_p(argument.ctypes.data) for argument in arguments]
                with TURN:
                    run((ctypes.c_uint * 3)(*grid), *pointers)

            return launch

    pool = SimpleNamespace(free_all_blocks=lambda: None)
    cuda = SimpleNamespace(
        compiler=SimpleNamespace(CompileException=type("CompileException", (Exception,), {})),
        runtime=RUNTIME,
        Device=Device,
        UnownedMemory=UnownedMemory,
        MemoryPointer=lambda memory, offset: Pointer(memory.ptr + offset, memory),
        Stream=Stream,
        Event=Event,
        get_current_stream=Stream.current,
        alloc_pinned_memory=lambda n_bytes: bytearray(b"\x63" * n_bytes),  # 99
        get_elapsed_time=lambda begin, end: 1e3 * (end.time - begin.time),
    )
    return SimpleNamespace(
        __version__="fake",
        ndarray=Array,
        asarray=asarray,
        asnumpy=np.array,
        empty=empty,
        full=full,
        arange=lambda count, dtype: np.arange(count, dtype=dtype).view(Array),
        RawModule=RawModule,
        RawKernel=lambda code, name: lambda grid, block, arguments: None,  # noqa: ARG005  (it would pass the time)
        cuda=cuda,
        get_default_memory_pool=lambda: pool,
        get_default_pinned_memory_pool=lambda: pool,
    )


def codecs():
    """An ``nvidia.nvimgcodec`` whose decoders all decode on the CPU."""
    played = ModuleType("nvidia.nvimgcodec")
    played.__dict__.update(vars(nvimgcodec))

    class Decoder:
        refused = ()  # the places of images in a call that it decodes to nothing
        reused = ()  # images of an earlier call, whose memory the last one may write into

        def __init__(self, *, device_id, backends, options):  # noqa: ARG002
            cpu = [nvimgcodec.Backend(nvimgcodec.CPU_ONLY)]
            none = nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY
            self._real = nvimgcodec.Decoder(device_id=none, backends=cpu, options=options)
            Decoder.alive.add(self)

        def decode(self, streams, **arguments):
            Decoder.reused = arguments.get("images", ())
            images = self._real.decode(streams, **arguments)
            return [None if index in Decoder.refused else image for index, image in enumerate(images)]

    Decoder.alive = weakref.WeakSet()
    played.Decoder = Decoder
    return played


def install(folder):
    """Play CuPy and nvImageCodec's GPU decoders from now on."""
    nvidia.nvimgcodec = sys.modules["nvidia.nvimgcodec"] = codecs()
    sys.modules["cupy"] = modules(folder)
