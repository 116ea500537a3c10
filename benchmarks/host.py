"""Measure the upper bound of the host: how many images/s Python can supply to an infinitely fast GPU.

    PYTHONPATH=tests python benchmarks/host.py                 every cell, about four minutes
    PYTHONPATH=tests python benchmarks/host.py --batches 64 --seconds 1

The engine and the Triton backend are real: ``TritonPythonModel.execute``, with one photo per request. All work of a GPU
is mocked: nvImageCodec's decoder, CuPy's uploads and the kernels return immediately. nvImageCodec's header parser is
real. The remaining time is that of the interpreter, and no GPU is needed. The cells include neither Triton's own part
of a request nor real arrays and images. ``objects_us`` contains the time for real arrays and images, measured
separately if CuPy can be imported.

The benchmark measures CPU time of the process, which other programs on the machine affect little. It subtracts the time
of native code that lets other threads run, and the time of the mocks. Only one thread at a time can use the remaining
time, so this time limits the rate of a process to ``1e6 / interpreter_us`` images/s.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle, islice, product
from pathlib import Path
from time import perf_counter, process_time, thread_time
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import measure
import numpy as np
import workloads
from contenders import pixprep_full
from PIL import Image

SIZES = {"equal": 1, "300 sizes": 300, "never twice": 1500}
"""Numbers of different photo sizes. A run repeats the sizes in order. The largest number exceeds the capacity of every
cache in pixprep."""
BATCHES = (1, 8, 64, 256)
LANES = CORES = (1, 2)
SAMPLE_S = 0.0005
PARTS = {
    "header": ("engine/decoders/header.py",),
    "code stream": ("code_stream",),
    "decoder": ("engine/decoders/",),
    "windows": (
        "engine/kernels/resize.py",
        "gpu/fill.py",
        "engine/kernels/native.py",
        "engine/kernels/resampl",
        "plan/profiles/",
        "machine_code",
    ),
    "placement": ("pixprep/plan/",),
    "structs, upload": ("gpu/launch.py", "gpu/structs.py", "gpu/kernel.py"),
    "lanes": ("engine.py", "devices/", "threading.py", "concurrent/", "contextlib.py"),
    "answer": ("triton/",),
    "stand-ins": ("host.py", "fake_cupy.py"),
}
"""Parts of the work, and the paths of their modules. A sample belongs to the first part that matches the innermost
running function of pixprep."""
ENVIRONMENTS = (".venv-gpu", *(f".venv-installs/cuda{each}" for each in ("13", "12", "13-server", "12-server")))
PACKAGES = ("pixprep", "numpy", "nvidia-nvimgcodec-cu12", "simplejpeg")


# mocks


class Mocks:
    """State that all mocks share: whether they return immediately instead of computing real results.

    While the engine verifies itself against the CPU, the mocks compute real results.
    """

    is_at_once = False


class Decoded:
    """Mock of a decoded nvImageCodec image. Its device memory is never read."""

    capacity = 1 << 20
    buffer_kind: Any = None
    address = 0

    def __init__(self, stream: int) -> None:
        self.shape: tuple[int, ...] = ()
        self.stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Return the array interface, with the same keys as nvImageCodec's images."""
        interface = {
            "shape": self.shape,
            "strides": None,
            "typestr": "|u1",
            "data": (self.address, False),
            "version": 3,
        }
        return interface | {"stream": self.stream}


def mock_gpu(folder: str) -> None:
    """Replace CuPy and nvImageCodec's decoder with mocks.

    Until ``Mocks.is_at_once`` is set, they compute the same results as the mocks of the tests.
    """
    from nvidia import nvimgcodec  # noqa: PLC0415  (the real one)

    from gpu import cuda_shim, fake_cupy  # noqa: PLC0415  (of tests/)

    build_code = cuda_shim.build_code
    fake_cupy.install(folder)
    cupy, codec = sys.modules["cupy"], sys.modules["nvidia.nvimgcodec"]
    Decoded.buffer_kind = codec.ImageBufferKind.STRIDED_DEVICE

    class Kernels:
        def __init__(self, *arguments: Any) -> None:
            self._library = build_code(*arguments)

        def __getattr__(self, name: str) -> Any:
            function = getattr(self._library, name)
            return lambda *arguments: None if Mocks.is_at_once else function(*arguments)

    class Decoder(codec.Decoder):  # type: ignore[misc,name-defined]
        def decode(self, streams: Sequence[Any], **options: Any) -> list[Any]:
            if not Mocks.is_at_once:
                return super().decode(streams, **options)  # type: ignore[no-any-return]
            found: list[Any] = options.get("images") or [Decoded(options["cuda_stream"]) for _ in streams]
            for image, stream in zip(found, streams, strict=True):
                image.shape = (stream.height, stream.width, 3)
            return found

    real = SimpleNamespace(
        ndarray=cupy.ndarray,
        empty=cupy.empty,
        code_stream=codec.CodeStream,
        copy=fake_cupy.Pointer.copy_from_host_async,
    )
    memory = np.empty(max(BATCHES) * 3 * 4 * 224 * 224, np.uint8)  # is never written to
    Decoded.address = memory.ctypes.data

    def copy(*arguments: Any) -> None:
        if not Mocks.is_at_once:
            real.copy(*arguments)

    def empty(shape: Any, dtype: Any) -> Any:
        return np.ndarray.__new__(real.ndarray, shape, dtype, memory) if Mocks.is_at_once else real.empty(shape, dtype)

    def ndarray(shape: Any, dtype: Any, memptr: Any, strides: Any = None) -> Any:
        return empty(shape, dtype) if Mocks.is_at_once else real.ndarray(shape, dtype, memptr, strides)

    def code_stream(encoded: Any) -> Any:
        return (nvimgcodec.CodeStream if Mocks.is_at_once else real.code_stream)(encoded)

    cupy.cuda.Stream.wait_event = lambda *_: None  # the tests' mock keeps a list of events
    cupy.empty, cuda_shim.build_code, fake_cupy.Pointer.copy_from_host_async = empty, Kernels, copy
    cupy.ndarray, codec.Decoder, codec.CodeStream = ndarray, Decoder, code_stream


class Tensor:
    """Mock of Triton's tensors in requests and responses."""

    def __init__(self, name: str, values: Any) -> None:
        self.name, self.values = name, values

    def is_cpu(self) -> bool:
        """Return True: BYTES are always in host memory."""
        return True

    def as_numpy(self) -> Any:
        """Return an array of shape (1, 1)."""
        elements = np.empty((1, 1), np.object_)
        elements[0, 0] = self.values[4:].tobytes()
        return elements

    from_dlpack = classmethod(lambda cls, name, values: cls(name, values))  # noqa: RUF100


class Request:
    """Mock of a request with one photo. Its BYTES tensor contains the length, followed by the bytes."""

    def __init__(self, photo: bytes) -> None:
        self.values = np.frombuffer(struct.pack("<I", len(photo)) + photo, np.uint8)

    def requested_output_names(self) -> set[str]:
        """Return the names of the requested outputs."""
        return {"tensor"}

    def is_cancelled(self) -> bool:
        """Return False, because the client still waits for the response."""
        return False


def triton() -> Any:
    """Return a mock of Triton's Python module."""
    return sys.modules["triton_python_backend_utils"]


class _Error:
    INVALID_ARG = INTERNAL = ""

    def __init__(self, message: str, _: str) -> None:
        sys.exit(f"host: a photo was rejected: {message}")


class _Metric:
    COUNTER = GAUGE = HISTOGRAM = ""

    def __init__(self, **_: Any) -> None:
        pass

    def increment(self, value: float) -> None:
        """Do nothing."""

    observe = set = increment
    Metric = type("Metric", (), {"__init__": __init__, "increment": increment, "observe": increment, "set": increment})


def mock_triton() -> None:
    """Replace Triton's Python module with a mock."""
    module: Any = ModuleType("triton_python_backend_utils")
    module.MetricFamily, module.Tensor = _Metric, Tensor
    module.TritonError = _Error
    module.Logger = SimpleNamespace(log_warn=measure.say, log_error=measure.say, log_info=measure.say)
    module.get_input_tensor_by_name = lambda request, name: Tensor(name, request.values)
    module.InferenceResponse = lambda output_tensors=(), error=None: (output_tensors, error)
    sys.modules[module.__name__] = module
    # the tensors stay on the GPU
    os.environ |= {"PIXPREP_CUDA_POOL_BYTES": str(1 << 40), "PIXPREP_PINNED_POOL_BYTES": "0"}


def photos(count: int) -> list[bytes]:
    """Return photos of ``count`` sizes.

    The photos are crops of one photo, so that 1,500 of them can be created in seconds.
    """
    around = workloads.SIZES["500x375"]
    workload = workloads.Workload("", [(2 * around[0], 2 * around[1])], 1, 1)
    (photo,), _ = workloads.make(workload, sorted((measure.ROOT / "client_examples" / "images").glob("*.jpg")))
    image = Image.open(io.BytesIO(photo)).convert("RGB")
    made = []
    for height, width in workloads.different_sizes(count, around) if count > 1 else [around]:
        file = io.BytesIO()
        image.crop((0, 0, width, height)).save(file, "JPEG", quality=workloads.QUALITY, subsampling="4:2:0")
        made.append(file.getvalue())
    return made


def model(folder: Path, decoder: str) -> Any:
    """Return the Triton model, initialized as an instance on a GPU."""
    from pixprep.serving.triton.model import TritonPythonModel  # noqa: PLC0415  (it imports Triton's module)

    (folder / "1").mkdir(exist_ok=True)
    pixprep_full.pipeline("bilinear").save(folder / "1" / "pipeline.json")
    words = {"decoder": decoder, "outputs": "gpu"}
    config = {
        "max_batch_size": max(BATCHES),
        "parameters": {name: {"string_value": word} for name, word in words.items()},
    }
    made = TritonPythonModel()
    made.initialize(
        {
            "model_config": json.dumps(config),
            "model_repository": str(folder),
            "model_version": "1",
            "model_name": "host",
            "model_instance_kind": "GPU",
            "model_instance_device_id": "0",
        }
    )
    return made


def objects(photo: bytes, repeats: int = 20_000) -> dict[str, float]:
    """Measure an engine's accesses to real nvImageCodec images and CuPy arrays, in microseconds per image.

    No driver is needed. Two details differ from a GPU. The image is in host memory, so its array interface is a
    different one. The engine does not query the current stream in order to compare it.
    """
    import cupy  # noqa: PLC0415  (in a separate environment)
    from nvidia import nvimgcodec  # noqa: PLC0415

    kinds = [nvimgcodec.Backend(nvimgcodec.CPU_ONLY)]
    decoder = nvimgcodec.Decoder(device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY, backends=kinds)
    (image,) = decoder.decode([nvimgcodec.CodeStream(photo)])
    memory = np.empty(image.shape, np.uint8)
    address = memory.ctypes.data

    def of_nvimagecodec() -> object:
        interface = image.__array_interface__
        return (
            tuple(image.shape[:2]),
            image.buffer_kind == nvimgcodec.ImageBufferKind.STRIDED_DEVICE,
            interface["strides"],
        )

    def of_cupy() -> object:
        owned = cupy.cuda.UnownedMemory(address, memory.nbytes, image, 0)
        array = cupy.ndarray(memory.shape, np.uint8, cupy.cuda.MemoryPointer(owned, 0), memory.strides)
        return array.data.ptr, array.shape[0], array.shape[1], array.strides[0]

    found = {}
    for name, ask in {"nvImageCodec": of_nvimagecodec, "CuPy": of_cupy}.items():
        start = process_time()
        for _ in range(repeats):
            ask()
        found[name] = round(1e6 * (process_time() - start) / repeats, 2)
    return found


def real_objects() -> dict[str, Any]:
    """Return the result of ``objects`` in the first environment that has CuPy, or the reason why CuPy is missing."""
    python, reason = measure.find("cupy, nvidia.nvimgcodec", ENVIRONMENTS)
    if python is None:
        return {"absent": reason}
    code = "import json, host; print(json.dumps(host.objects(host.photos(1)[0])))"
    done = subprocess.run([python, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    return {"environment": python.parents[1].name, **json.loads(done.stdout)}


class Machine:
    """Measures the time in the C kernels, during which other threads can run."""

    def __init__(self) -> None:
        from pixprep.engine.kernels import native  # noqa: PLC0415  (the engine has loaded it)

        self.seconds = 0.0
        lock = threading.Lock()

        def timed(function: Any) -> Any:
            def machine_code(*arguments: Any) -> int:
                start = thread_time()
                answer: int = function(*arguments)
                with lock:
                    self.seconds += thread_time() - start
                return answer

            return machine_code

        library = native.library()
        for name in ("fill_chunk", "make_windows", "walk_jpegs"):
            setattr(library, name, timed(getattr(library, name)))


def part(frame: FrameType | None) -> str:
    """Return the entry of ``PARTS`` that contains the running function."""
    while frame is not None:
        code = frame.f_code
        for name, words in PARTS.items():
            if any(word in code.co_filename or word == code.co_name for word in words):
                return name
        frame = frame.f_back
    return "lanes"


def cell(
    run: Any, requests: Iterator[list[Request]], batch: int, *, rounds: int, seconds: float, machine: Machine
) -> dict[str, Any]:
    """Measure one model with one set of sizes and one batch size, in microseconds per image.

    The fastest of many short rounds counts, because other programs can only add time. Its time is divided among the
    parts in proportion to their samples in all rounds.
    """
    parts: Counter[str] = Counter()
    signal.signal(signal.SIGALRM, lambda _, frame: parts.update([part(frame)]))
    for _ in range(-(-300 // batch)):
        run(next(requests))
    found = []
    for _ in range(rounds):
        count, machine.seconds = 0, 0.0
        signal.setitimer(signal.ITIMER_REAL, SAMPLE_S, SAMPLE_S)
        cpu, start = process_time(), perf_counter()
        while perf_counter() < start + seconds or count < 64:
            run(next(requests))
            count += batch
        cpu, wall = process_time() - cpu, perf_counter() - start
        signal.setitimer(signal.ITIMER_REAL, 0)
        found.append((1e6 * cpu / count, 1e6 * machine.seconds / count, count / wall))
    cpu_us, machine_us, _ = min(found)
    total = sum(parts.values())
    split = {name: round(cpu_us * parts[name] / total, 2) for name in PARTS}
    split["windows"] = round(split["windows"] - machine_us, 2)
    return {
        "python_us": round(cpu_us - machine_us, 2),
        "machine_code_us": round(machine_us, 2),
        "measured_images_per_s": round(max(rate for *_, rate in found)),
        "parts_us": split,
    }


def worker(arguments: argparse.Namespace) -> None:
    """Measure every cell for one number of lanes and cores, and print JSON lines."""
    (cores,), (lanes,) = arguments.cores, arguments.lanes
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    mock_gpu(arguments.folder)
    mock_triton()
    from pixprep.gpu.device import Gpu  # noqa: PLC0415  (uses the mocks)

    Gpu.lanes = lanes
    with tempfile.TemporaryDirectory() as folder:
        backend = model(Path(folder), arguments.decoder)
    Mocks.is_at_once = True
    machine = Machine()
    for sizes, batch in product(arguments.sizes, arguments.batches):
        requests = cycle([Request(photo) for photo in photos(SIZES[sizes])])
        batches = iter(lambda requests=requests, batch=batch: list(islice(requests, batch)), None)
        backend._engine.trim()  # noqa: SLF001  (images of the decoder before)
        how = {"rounds": arguments.rounds, "seconds": arguments.seconds, "machine": machine}
        row = cell(backend.execute, batches, batch, **how)
        what = {"sizes": sizes, "batch": batch, "lanes": lanes, "cores": cores}
        sys.stdout.write(json.dumps(what | row) + "\n")
    backend.finalize()


def finished(row: dict[str, Any], before: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the row with the time of the interpreter, and the images/s that this time allows.

    The parts are wall times of the main thread. With two lanes, this thread also waits for the other thread, so the
    time of the mocks is taken from the measurement with one lane.
    """
    same = ("sizes", "batch", "cores")
    (alone,) = [other for other in [*before, row] if other["lanes"] == 1 and all(other[x] == row[x] for x in same)]
    interpreter = row["python_us"] - alone["parts_us"]["stand-ins"]
    if row is not alone:
        del row["parts_us"]
    return row | {"interpreter_us": round(interpreter, 2), "ceiling_images_per_s": round(1e6 / interpreter)}


def main() -> None:
    """Run the benchmark and write one JSON file."""
    parser = measure.options(__doc__)
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--decoder", default="consistent")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.1, help="duration of each round in seconds")
    parser.add_argument("--cores", nargs="+", type=int, default=list(CORES))
    parser.add_argument("--lanes", nargs="+", type=int, default=list(LANES), help="1 among them")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.folder:
        worker(arguments)
        return
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        sys.exit("host: NO C++ COMPILER: install one, because the mocked GPU runs its kernels once on the CPU")
    results: dict[str, Any] = {
        "benchmark": "host",
        "date": arguments.date,
        **measure.surroundings(PACKAGES),
        "decoder": arguments.decoder,
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "load_average": round(os.getloadavg()[0], 2),
        "objects_us": real_objects(),
        "cells": [],
    }
    options = ["--decoder", arguments.decoder, "--seconds", str(arguments.seconds), "--rounds", str(arguments.rounds)]
    options += ["--batches", *map(str, arguments.batches), "--sizes", *arguments.sizes]
    with tempfile.TemporaryDirectory() as folder:
        for cores, lanes in product(arguments.cores, sorted(arguments.lanes)):
            command = [sys.executable, __file__, "--cores", str(cores), "--lanes", str(lanes), "--folder", folder]
            with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    results["cells"].append(finished(json.loads(line), results["cells"]))
                    measure.say(line.strip())
            if process.returncode:
                sys.exit(f"host: {' '.join(command)} failed")
    measure.write(arguments, f"host-{arguments.date}", results)


if __name__ == "__main__":
    main()
