"""Mock of CuPy on the CPU: arrays are NumPy arrays, and kernels run in the shim. The mock contains only what pixprep
uses.

Queued work runs as late as CUDA allows: when a thread waits for its stream, or for an event after it. A missing wait
therefore causes a wrong result every time. ``COUNTS`` counts the calls, and ``Memory`` limits the size of the memory.

``compiler`` mocks NVRTC: the compiled code is the source itself. ``codecs`` mocks nvImageCodec: all of its decoders use
the CPU decoder. ``install`` installs all mocks for a whole process.
"""

import ctypes
import gc
import importlib.util
import json
import sys
import threading
import weakref
from collections import Counter, deque
from math import prod
from time import perf_counter
from types import ModuleType, SimpleNamespace

import numpy as np
import nvidia
import PIL.Image
from nvidia import nvimgcodec

from gpu import cuda_shim
from pixprep import gpu
from pixprep.engine.decoders.header import read_jpeg_header
from pixprep.gpu.nvrtc import Compiled

# only one thread at a time runs queued work, because the threads and the shared memory of the shim are static
TURN = threading.RLock()
FREE = 100 << 30  # free memory of the mocked GPU in bytes
COUNTS = Counter()  # launches, copies, copied bytes, memsets, and waits of the host


def count(**calls):
    with TURN:
        COUNTS.update(calls)


class CUDARuntimeError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


class Memory:
    """Device memory that ``empty`` allocates."""

    limit = None  # maximum number of bytes, or None
    used = 0
    kept = []  # noqa: RUF012  (all arrays: queued work may use the memory of a deleted array, as with CuPy's pool)

    @classmethod
    def take(cls, shape, dtype):
        """Return an array, and count its bytes as used until the array is garbage-collected."""
        n_bytes = prod(shape) * np.dtype(dtype).itemsize
        if cls.limit is not None and cls.used + n_bytes > cls.limit:
            raise OutOfMemoryError(
                f"Out of memory allocating {n_bytes:,} bytes (allocated so far: {cls.used:,} bytes)."
            )
        array = np.full(shape, 99, dtype)
        cls.used += n_bytes
        weakref.finalize(array, cls._give, n_bytes)
        with TURN:
            cls.kept.append(array)
        return array.view(Array)

    @classmethod
    def release(cls):
        """Free the memory of deleted arrays, unless queued work may use it."""
        with TURN:
            if not any(stream.queue for stream in Stream.alive):
                cls.kept[:] = [array for array in cls.kept if sys.getrefcount(array) > 3]

    @classmethod
    def settled(cls):
        """Run all queued work, free deleted arrays (also of other tests), and return the number of used bytes."""
        gc.collect()
        for stream in [*Stream.alive]:
            stream.drain()
        cls.release()
        return cls.used

    @classmethod
    def _give(cls, n_bytes):
        cls.used -= n_bytes


def copied(to, source, n_bytes, stream):
    """Queue a copy. The source is read as late as possible."""
    count(copies=1, bytes=n_bytes)
    stream.enqueue(lambda: ctypes.memmove(to, source, n_bytes))


class Pointer:
    def __init__(self, ptr, owner=None):
        self.ptr, self.owner = ptr, owner

    def copy_from_host_async(self, source, n_bytes, stream):
        assert isinstance(source, int)
        copied(self.ptr, source, n_bytes, stream)

    def copy_to_host_async(self, target, n_bytes, stream):
        copied(target, self.ptr, n_bytes, stream)

    def copy_from_device_async(self, source, n_bytes, stream):
        copied(self.ptr, source.ptr, n_bytes, stream)


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id):
        assert device_id == RUNTIME.getDevice()
        self.ptr, self.size, self.owner = ptr, size, owner


class Array(np.ndarray):
    """Array that rejects every operation for which CuPy would compile a kernel, because the machine may lack the
    headers for the compilation.
    """

    def __new__(cls, shape, dtype, memptr, strides=None):
        shape = (shape,) if isinstance(shape, int) else shape
        n_bytes = strides[0] * shape[0] if strides else prod(shape) * np.dtype(dtype).itemsize
        array = np.ndarray.__new__(cls, shape, dtype, (ctypes.c_char * n_bytes).from_address(memptr.ptr), 0, strides)
        array.owner = memptr
        return array

    gpu_index = 0  # index of the GPU whose memory contains the array

    @property
    def data(self):
        return Pointer(self.ctypes.data)

    @property
    def device(self):
        return Place(self.gpu_index)

    def get(self):
        assert self.flags.c_contiguous
        count(copies=1, bytes=self.nbytes)
        Stream.current().synchronize()
        return np.array(self)

    def __setitem__(self, key, value):
        part = self[key]
        assert np.isscalar(value)
        assert value == 0
        assert part.flags.c_contiguous
        assert Device.depth(), ELSEWHERE
        count(memsets=1)
        Stream.current().enqueue(lambda: np.copyto(part, value))


def asarray(values):
    if isinstance(values, Array):
        return values
    if getattr(values, "buffer_kind", None) != nvimgcodec.ImageBufferKind.STRIDED_DEVICE:
        host = np.array(np.asarray(values))  # CuPy copies it to pinned memory before it returns
        array = empty(host.shape, host.dtype)
        count(copies=1, bytes=host.nbytes)
        Stream.current().enqueue(lambda: np.copyto(array, host))
        return array
    interface = values.__cuda_array_interface__  # shares the memory, after waiting for the stream
    Stream.synchronized = (*Stream.synchronized, interface["stream"])
    return Array(interface["shape"], np.uint8, Pointer(interface["data"][0], values), interface["strides"])


def ascontiguousarray(values):
    """Copy the values like CuPy, which compiles a kernel for arrays that are not contiguous."""
    if values.flags.c_contiguous:
        return values
    array = empty(values.shape, values.dtype)
    Stream.current().enqueue(lambda: np.copyto(array, values))
    return array


def from_dlpack(tensor):
    """Return a tensor of Triton in device memory as an array."""
    return tensor.__dlpack__()


def empty(shape, dtype):
    return Memory.take((shape,) if isinstance(shape, int) else shape, dtype)


class Stream:
    ptr = 0  # nvImageCodec receives this pointer
    made = destroyed = 0
    alive = weakref.WeakSet()  # noqa: RUF012
    waited_for = ()  # events of all streams
    synchronized = ()  # numbers of the streams, one for each array
    _current = threading.local()

    def __init__(self, *, non_blocking):
        assert non_blocking
        Stream.made += 1
        with TURN:
            Stream.alive.add(self)
        self.queue, self.queued, self.begun = deque(), 0, 0

    def __enter__(self):
        self._stack().append(self)
        return self

    def __exit__(self, *_):
        assert self._stack().pop() is self

    def __del__(self):
        type(self).destroyed += 1  # type(self), because the module's names are already deleted when Python exits

    def enqueue(self, work):
        """Queue work, which runs only when a thread waits for it."""
        with TURN:
            self.queue.append(work)
            self.queued += 1

    def drain(self, until=None):
        """Run the queued work. With ``until``, stop when ``begun`` reaches this number."""
        with TURN:
            while self.queue and (until is None or self.begun < until):
                self.begun += 1
                self.queue.popleft()()
            Memory.release()

    def synchronize(self):
        waited()
        self.drain()

    def record(self):
        event = Event()
        event.record(self)
        return event

    def wait_event(self, event):
        Stream.waited_for = (*Stream.waited_for, event)
        self.enqueue(lambda: event.stream.drain(event.until))

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
    _of_threads = threading.local()
    id = nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY
    compute_capability = "90"

    def __init__(self, device=None):
        self.index = device

    def __enter__(self):
        Device._of_threads.depth = Device.depth() + 1
        return self

    def __exit__(self, *_):
        Device._of_threads.depth -= 1

    @classmethod
    def depth(cls):
        """Return the number of nested device contexts in this thread. Outside of all contexts, the thread uses the
        first GPU.
        """
        return getattr(cls._of_threads, "depth", 0)


class Place(Device):
    """Device of an array."""

    def __init__(self, index):
        self.index = self.id = index


class Event:
    @property
    def done(self):
        return self.stream.begun >= self.until

    def record(self, stream):
        assert isinstance(stream, Stream)
        self.stream, self.until = stream, stream.queued
        self.time = perf_counter()

    def synchronize(self):
        waited()
        self.stream.drain(self.until)


class MemoryPool:
    def free_all_blocks(self):
        Memory.release()


def waited():
    """Count one wait of the host for the GPU. After an illegal memory access, every wait fails."""
    count(**{"waits": 1, f"waits of {threading.current_thread().name}": 1})
    if RUNTIME.broken is not None:
        raise CUDARuntimeError(RUNTIME.broken)


def synchronize():
    waited()
    for stream in [*Stream.alive]:
        stream.drain()


ELSEWHERE = "outside of a device context, CUDA uses the first GPU, which may not contain the array"


def memset(address, value, n_bytes, stream):
    assert Device.depth(), ELSEWHERE
    assert stream == Stream.ptr
    count(memsets=1)
    Stream.current().enqueue(lambda: ctypes.memset(address, value, n_bytes))


def memcpy_2d(*told):
    to, to_pitch, begin, pitch, n_bytes, rows, kind, stream = told
    assert Device.depth(), ELSEWHERE
    assert (kind, stream) == (RUNTIME.memcpyDeviceToDevice, Stream.ptr)
    assert min(pitch, to_pitch) >= n_bytes, "CUDA refuses it"
    count(copies=1, bytes=n_bytes * rows)

    def copy():
        for row in range(rows):
            ctypes.memmove(to + row * to_pitch, begin + row * pitch, n_bytes)

    Stream.current().enqueue(copy)


OWN_POOL = {}  # CUDA's own memory pool: the attributes that were set, and the size after the last trim


def own_pool(device):
    if RUNTIME.poolless:
        raise CUDARuntimeError("cudaErrorNotSupported")
    assert device == Device.id
    return id(OWN_POOL)


RUNTIME = SimpleNamespace(
    poolless=False,  # True on some virtual GPUs
    cudaMemPoolReuseAllowInternalDependencies=3,
    cudaMemPoolAttrReleaseThreshold=4,
    deviceGetDefaultMemPool=own_pool,
    memPoolSetAttribute=lambda pool, attr, value: OWN_POOL.update({attr: value}),  # noqa: ARG005
    memPoolTrimTo=lambda pool, size: OWN_POOL.update(trimmed=size),  # noqa: ARG005
    memsetAsync=memset,
    memcpy2DAsync=memcpy_2d,
    memcpyDeviceToDevice=3,
    broken=None,  # error that every call that waits raises, as after an illegal address
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
    """Return a mock of ``cupy``. Its Module builds the shims in a folder, from the code that ``compiler`` returns."""

    class Module:
        changes = ()  # replacements in the kernels' source, or functions that replace kernels on this GPU

        def load(self, cubin):
            self._code, self._options = json.loads(cubin)

        def get_function(self, name):
            code = self._code
            for before, after in Module.changes:
                code = code.replace(before, after)
            run = getattr(cuda_shim.build_code(code, self._options, folder), f"run_{name}")

            def launch(grid, block, args):
                assert block == ((512,) if name == "change_levels" else (64, 4))
                args = [each if isinstance(each, Array) else each.copy() for each in args]  # structs are copied
                pointers = [ctypes.c_void_p(argument.ctypes.data) for argument in args]
                count(launches=1)
                Stream.current().enqueue(lambda _=args: run((ctypes.c_uint * 3)(*grid), *pointers))

            return launch

    class Nvtx:
        available = True
        ranges = Counter()  # noqa: RUF012  (ranges that have ended, and their number)
        _open = threading.local()

        @classmethod
        def RangePush(cls, message, id_color=-1):  # noqa: ARG003
            cls._open.__dict__.setdefault("names", []).append(message)

        @classmethod
        def RangePop(cls):
            cls.ranges[cls._open.names.pop()] += 1

    cuda = SimpleNamespace(
        nvtx=Nvtx,
        MemoryPool=MemoryPool,
        PinnedMemoryPool=MemoryPool,
        Module=Module,
        runtime=RUNTIME,
        Device=Device,
        UnownedMemory=UnownedMemory,
        MemoryPointer=lambda memory, offset: Pointer(memory.ptr + offset, memory),
        Stream=Stream,
        Event=Event,
        get_current_stream=Stream.current,
        set_allocator=lambda allocator: None,  # noqa: ARG005
        alloc_pinned_memory=lambda n_bytes: bytearray(b"\x63" * n_bytes),  # 99
        get_elapsed_time=lambda begin, end: 1e3 * (end.time - begin.time),
    )
    return SimpleNamespace(
        __version__="fake",
        ndarray=Array,
        asarray=asarray,
        ascontiguousarray=ascontiguousarray,
        from_dlpack=from_dlpack,
        asnumpy=np.array,
        empty=empty,
        # the real kernel only waits
        RawKernel=lambda code, name: lambda grid, block, arguments: Stream.current().enqueue(lambda: None),  # noqa: ARG005
        cuda=cuda,
        get_default_memory_pool=MemoryPool,
        get_default_pinned_memory_pool=MemoryPool,
    )


def compiler():
    """Return a mock of ``pixprep.gpu.nvrtc`` whose machine code is the source, which ``Module`` accepts."""

    def compiled(code, options, *, capability, cuda):
        assert any(name in code for name in ("second_pass", "change_levels", "show_surface"))
        assert (capability, cuda) == (90, 13)
        return Compiled(json.dumps([code, options]).encode(), "")

    return SimpleNamespace(compiled=compiled, library=lambda cuda: None)  # noqa: ARG005


class Image:
    """Image with padded rows into which nvImageCodec decodes. A reused image keeps its memory."""

    buffer_kind = nvimgcodec.ImageBufferKind.STRIDED_DEVICE

    real = None  # nvImageCodec's image after decoding

    def __init__(self):
        self._memory = np.zeros(0, np.uint8)

    def fill(self, pixels, padding):
        height, width, channels = pixels.shape
        pitch = width * channels + padding
        if self._memory.size < height * pitch:
            self._memory = np.full(height * pitch, 99, np.uint8)
        rows = self._memory[: height * pitch].reshape(height, pitch)[:, : width * channels]
        rows[:] = pixels.reshape(height, -1)
        self._pixels = np.lib.stride_tricks.as_strided(rows, pixels.shape, (pitch, channels, 1))
        return self

    @property
    def capacity(self):
        return self._memory.size

    @property
    def shape(self):
        return self._pixels.shape

    @property
    def __array_interface__(self):
        return self._pixels.__array_interface__

    @property
    def __cuda_array_interface__(self):
        return self._pixels.__array_interface__ | {"stream": self.stream}


# pixels from nvImageCodec's CPU decoder, by options and file, because every engine decodes the same samples
DECODED = {}
TURNS = "apply_exif_orientation"


class CodeStream:
    """Mock of nvImageCodec's code stream. It keeps the bytes, because nvImageCodec does not copy them."""

    def __init__(self, encoded):
        self.encoded = np.frombuffer(encoded, np.uint8)
        self.real = nvimgcodec.CodeStream(encoded)
        self.height, self.width = self.real.height, self.real.width


def codecs():
    """Return a mock of ``nvidia.nvimgcodec``. All of its decoders decode on the CPU, but behave like the GPU
    decoders.
    """
    played = ModuleType("nvidia.nvimgcodec")
    played.__dict__.update(vars(nvimgcodec))

    class Decoder:
        refused = ()  # indices of the images for which a call returns nothing
        reused = ()  # images of an earlier call; the last call may overwrite their memory
        padding = 13  # bytes after each row
        hardware = None  # number of images that the hardware engine decodes at once, or None if there is no engine
        engines = 1  # number of hardware engines; with several, the decoding method of an image depends on the call
        shares = ()  # for each call, how many images the engine and CUDA have decoded
        changes = {}  # noqa: RUF012  (functions that change pixels, by "cuda" or a method of the hardware)
        largest = None  # maximum number of bytes of pixels for which there is memory
        fault = None  # error that a call raises
        is_turning = True  # whether the decoder applies the EXIF orientation
        made = ()  # arguments of each decoder that was created
        outside = 0  # number of calls outside of every device context

        def __init__(self, device_id=-1, max_num_cpu_threads=0, backends=(), options=""):
            kinds = {backend.backend_kind for backend in backends}
            self._is_hardware_alone = kinds == {nvimgcodec.HW_GPU_ONLY}
            if self._is_hardware_alone and Decoder.hardware is None:
                raise RuntimeError("Requested backends not among available processors.")
            self._hardware = Decoder.hardware if nvimgcodec.HW_GPU_ONLY in kinds else None
            self._is_legacy = "nvjpeg_hw_decoder:force_legacy_batch=1" in options.split()
            self._options, self._threads = options, max_num_cpu_threads
            self._most = 0  # number of images per call that the engine decodes, fixed by the first call
            cpu = [nvimgcodec.Backend(nvimgcodec.CPU_ONLY)]
            none = nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY
            self._real = nvimgcodec.Decoder(device_id=none, backends=cpu, options=options)
            arguments = SimpleNamespace(
                device_id=device_id, threads=max_num_cpu_threads, kinds=kinds, options=options.split()
            )
            Decoder.made = (*Decoder.made, arguments)
            Decoder.outside += Device.depth() == 0
            Decoder.alive.add(self)

        def decode(self, streams, *, images=(), **arguments):
            if Decoder.fault:
                raise RuntimeError(Decoder.fault)
            Decoder.outside += Device.depth() == 0
            Decoder.reused = images
            told = self._options, *(getattr(arguments.get("params"), name, None) for name in ("color_spec", TURNS))
            keys = [(told, stream.encoded.tobytes()) for stream in streams]
            new = [index for index, key in enumerate(keys) if key not in DECODED]
            again = {"images": [images[index] and images[index].real for index in new]} if images else {}
            reals = dict(zip(new, self._real.decode([streams[i].real for i in new], **again, **arguments), strict=True))
            DECODED.update((keys[index], None if real is None else np.array(real)) for index, real in reals.items())
            changed = {}  # changed pixels, cached by decoder, because a call contains many identical images
            by_hardware, hardware = self._by_hardware(streams), self._way(streams)
            results = []
            for index, (stream, key) in enumerate(zip(streams, keys, strict=True)):
                way = hardware if index in by_hardware else "cuda"
                is_none = index in Decoder.refused or DECODED[key] is None
                is_none = is_none or (self._is_hardware_alone and way == "cuda")
                if is_none or (Decoder.largest is not None and 3 * stream.height * stream.width > Decoder.largest):
                    results.append(None)
                    continue
                if (way, key) not in changed:
                    pixels = self._shown(DECODED[key], stream.encoded)
                    changed[way, key] = Decoder.changes.get(way, lambda same: same)(pixels)
                image = (images[index] if images else None) or Image()
                image.real = reals.get(index) or image.real
                image.stream = arguments.get("cuda_stream", 0)
                results.append(image.fill(changed[way, key], Decoder.padding))
            Decoder.shares = (*Decoder.shares, (len(by_hardware), len(streams) - len(by_hardware)))
            return results

        def _by_hardware(self, streams):
            """Return the baseline JPEGs that the engine decodes: the largest first, and at most as many as in the first
            call.
            """
            if self._hardware is None:
                return set()
            if not self._most:
                self._most = -(-len(streams) // self._hardware) * self._hardware
            order = sorted(range(len(streams)), key=lambda index: -streams[index].height * streams[index].width)
            headers = [read_jpeg_header(stream.encoded.data) for stream in streams]
            return set([index for index in order if headers[index].frame == 0xC0][: self._most])

        def _way(self, streams):
            """Return which of nvImageCodec 0.9's three methods the hardware decoder uses for a call."""
            if self._is_legacy or Decoder.engines == 1:
                return "hardware"
            if len(streams) == 1:
                return "single"
            samplings = {read_jpeg_header(stream.encoded.data).samplings for stream in streams}
            return "batch-single" if len(streams) > 12 and len(samplings) > 1 and self._threads > 1 else "hardware"

        def _shown(self, pixels, encoded):
            header = read_jpeg_header(encoded.data)
            if header.is_rgb:  # nvJPEG interprets three components as YCbCr
                pixels = np.asarray(PIL.Image.fromarray(pixels, "YCbCr").convert("RGB"))
            is_turned = pixels.shape[:2] != (header.height, header.width)
            return pixels if Decoder.is_turning or not is_turned else pixels.transpose(1, 0, 2)

    Decoder.alive = weakref.WeakSet()
    played.Decoder = Decoder
    played.CodeStream = CodeStream
    return played


def install(folder):
    """Mock CuPy, NVRTC, nvImageCodec's GPU decoders and, if PyAV is installed, PyNvVideoCodec, until the
    process exits.
    """
    gpu.nvrtc = sys.modules["pixprep.gpu.nvrtc"] = compiler()
    nvidia.nvimgcodec = sys.modules["nvidia.nvimgcodec"] = codecs()
    sys.modules["cupy"] = modules(folder)
    if importlib.util.find_spec("av"):
        from gpu import fake_nvdec  # noqa: PLC0415  (PyAV)

        sys.modules["PyNvVideoCodec"] = fake_nvdec.played()
