"""Compare the engine on a GPU with nvImageCodec alone, and the kernels with the memory bandwidth.

The contenders take turns in one process. The time of a batch ends when the device has finished it:

    engine   pixprep: JPEG bytes -> float32 tensors, shorter side 256, bilinear, centre 224, normalized
    raw      nvImageCodec: the same bytes -> pixels, with the same decoder settings and reused buffers
    dali     DALI's pipeline for the same task

hour.py passes the name of a function, and the function's options as JSON.

Before anything is timed, the engine's tensors are compared with Pillow's: they must be equal with libjpeg-turbo as the
decoder, and differ by at most 3 of 255 on average with the decoders that are timed.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import cupy
import hour
import measure
import numpy as np
from contenders import pixprep_full
from nvidia import nvimgcodec
from pixels import difference, least_bytes, reference
from workloads import photos, real_photos

import pixprep as pp
from pixprep.engine.batch import Batch
from pixprep.engine.options import EngineOptions
from pixprep.gpu import nvrtc
from pixprep.gpu.device import Gpu
from pixprep.gpu.nvimagecodec import MAX_STREAMS, on_host, to_array
from pixprep.plan.output_plans import TensorPlan
from pixprep.training.recycling import COPIES, Copies, Recycler

DECODERS = ("consistent", "cuda")
# maximum mean difference of pixel values; swapped channels differ by more
LARGEST_MEAN = {"cpu": 0.0, "consistent": 3.0, "cuda": 3.0}
CHECKED = 4  # number of photos of each size whose tensors are compared
SUPPORT = {"bilinear": 1, "bicubic": 2}  # support of the kernels' filters, in pixels of the smaller image
LEVELS = {
    "kept": [],
    "jitter": [pp.brightness(1.2), pp.contrast(0.8), pp.saturation(1.3), pp.hue(0.05)],
    "turned": [pp.rotate(15, filter="bilinear")],
}
"""Operations on the pixel values."""
KERNELS = (
    *(("bilinear", "float32", levels) for levels in LEVELS),
    ("bicubic", "float16", "kept"),
)
_CLIP = pp.normalize(mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711))
_BICUBIC: dict[str, Any] = {"filter": "bicubic", "like": "torchvision"}
_GRIDS = ((1, 2), (2, 1), (2, 2), (1, 3), (3, 1))
MODELS = {
    "Qwen2-VL": [
        pp.resize_to_pixels(multiple=28, min_pixels=56 * 56, max_pixels=28 * 28 * 1280, **_BICUBIC), _CLIP,
        pp.patches(14, merge_size=2, temporal_patch_size=2), pp.patch_grid(14, merge_size=2, order="thw"),
    ],
    "SigLIP 2": [
        pp.resize_to_patches(patch_size=16, max_patches=256, like="torchvision"), pp.normalize(mean=0.5, std=0.5),
        pp.patches(16, max_patches=256, layout="hwc"), pp.patch_mask(16, max_patches=256),
    ],
    "InternVL": [
        pp.resize_to_tiles(tile_size=448, max_tiles=12, **_BICUBIC), pp.normalize(),
        pp.tiles(448, thumbnail="last"), pp.tile_count(448, thumbnail="last"),
    ],
    "LLaVA-NeXT": [
        pp.resize_to_tiles(tile_size=336, grids=_GRIDS, choose="resolution", fit="center", **_BICUBIC), _CLIP,
        pp.tiles(336, thumbnail="first", thumbnail_of_one=True),
    ],
    "Idefics 3": [
        pp.resize_by_rule(rule="idefics3", size=1456, filter="lanczos"),
        pp.resize_by_rule(rule="up", multiple=364, again=True, filter="lanczos"), pp.normalize(mean=0.5, std=0.5),
        pp.tiles(364, thumbnail="last", thumbnail_of="tiles"),
    ],
    "MiniCPM-V": [
        pp.resize_to_slices(rule="minicpm", slice_size=448, multiple=56, max_slices=9, **_BICUBIC),
        pp.normalize(mean=0.5, std=0.5), pp.slice_patches(14), pp.slice_grids(14),
    ],
}  # fmt: skip
"""Ops of vision-language models, with the sizes of their image processors."""
# size of the input in bytes that the repetitions of a kernel read in turn: more than the 60 MB of the L2 cache
ROTATED = 1 << 29
SAMPLES = 50
COPIED = 1 << 31
SPIN = """
extern "C" __global__ void spin(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
}
"""
PACKAGES = (
    *("numpy", "cupy-cuda12x", "cupy-cuda13x", "nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu13", "nvidia-nvjpeg"),
    *("nvidia-nvjpeg-cu12", "nvidia-dali-cuda130", "simplejpeg", "pillow"),
)
LIBRARIES = ("libcuda.so", "libcuda.so.1", "libnvcuvid.so.1", "libpython3.12.so.1.0")
THRESHOLDS = (1, 250_000, 1_000_000, 4_000_000, 1 << 30)
"""Numbers of pixels from which nvImageCodec decodes Huffman codes on the GPU. Its default is a million."""


Contender = Callable[[list[bytes]], object]
"""Function that processes a batch, and returns when the device has finished the work."""


def check(encoded: Sequence[bytes], decoder: str) -> dict[str, float]:
    """Return the differences between the engine's tensors and Pillow's in pixel values. Exit if they are too large."""
    with pp.Engine(pixprep_full.pipeline("bilinear"), device="gpu", decoder=decoder) as engine:  # type: ignore[arg-type]
        batch = engine.run_batch(encoded)
    if any(batch.errors):
        sys.exit(f"decoder {decoder} is not timed: it fails with {[str(error) for error in batch.errors]}")
    found = difference(batch.outputs["tensor"].get(), [reference(each, "bilinear") for each in encoded])
    if found["mean"] > LARGEST_MEAN[decoder]:
        sys.exit(f"decoder {decoder} is not timed: its tensors differ from Pillow's by {found['mean']:.2f} on average")
    return found


@cache
def raw_stream() -> Any:
    """Return the CUDA stream that all ``Raw`` objects share.

    It is never destroyed, because nvImageCodec frees the memory of an image on the stream that allocated it.
    """
    return cupy.cuda.Stream(non_blocking=True)


class Raw:
    """Decodes with nvImageCodec alone, with the engine's settings.

    With the decoder ``engines``, each call uses all hardware JPEG engines, and no other decoder.
    """

    def __init__(self, decoder: str, threads: int, option: str = "") -> None:
        cuda, hardware = [nvimgcodec.GPU_ONLY, nvimgcodec.HYBRID_CPU_GPU], [nvimgcodec.HW_GPU_ONLY]
        kinds = {"cuda": cuda, "engines": hardware}.get(decoder, [*hardware, *cuda])
        one_way = " nvjpeg_hw_decoder:force_legacy_batch=1" * (decoder == "consistent")
        self._decoder = nvimgcodec.Decoder(
            device_id=0,
            max_num_cpu_threads=threads,
            backends=[nvimgcodec.Backend(kind) for kind in kinds],
            options=f":num_cuda_streams={min(threads, MAX_STREAMS)} :fancy_upsampling=1{one_way} {option}",
        )
        self._params = nvimgcodec.DecodeParams(
            apply_exif_orientation=True, color_spec=nvimgcodec.SRGB, sample_format=nvimgcodec.I_RGB
        )
        self._images: list[Any] = []

    def __call__(self, batch: list[bytes]) -> None:
        """Decode a batch."""
        streams = [nvimgcodec.CodeStream(image) for image in batch]
        reused = {"images": self._images} if len(self._images) == len(batch) else {}
        stream = raw_stream()
        self._images = self._decoder.decode(streams, params=self._params, cuda_stream=int(stream.ptr), **reused)
        stream.synchronize()
        if any(image is None for image in self._images):
            sys.exit("nvImageCodec rejected one of the benchmark's photos")


def dali(decoder: str, threads: int) -> Contender:
    """Return a function that runs DALI's pipeline for the same task."""
    hardware = 0.0 if decoder == "cuda" else 0.9
    library = importlib.import_module("contenders.dali")
    return library.prepare("bilinear", threads, gpu=0, hardware=hardware)  # type: ignore[no-any-return]


def speeds(
    add: Callable[..., None],
    *,
    sizes: Sequence[str],
    batches: Sequence[int],
    threads: Sequence[int],
    decoders: Sequence[str] = DECODERS,
    with_dali: bool = False,
    rounds: int = 3,
    seconds: float = 0.15,
) -> None:
    """Measure each contender's images/s by image size, batch size, decoder and number of threads.

    Only the first number of threads is measured with all batch sizes. The other numbers are measured with one batch
    size.
    """
    made = {size: photos(size) for size in sizes}
    for size, encoded in made.items():
        check(encoded[:CHECKED], "cpu")
        for decoder in decoders:
            add(size=size, decoder=decoder, apart=check(encoded[:CHECKED], decoder))
    for count, decoder in product(threads, decoders):
        pipeline = pixprep_full.pipeline("bilinear")
        with pp.Engine(pipeline, device="gpu", decoder=decoder, threads=count) as engine:  # type: ignore[arg-type]
            contenders: dict[str, Contender] = {"engine": engine.run_batch, "raw": Raw(decoder, count)}
            if with_dali:
                contenders["dali"] = dali(decoder, count)
            middle = batches[len(batches) // 2]
            for size, batch in product(sizes, batches if count == threads[0] else (middle,)):
                if with_dali and batch > importlib.import_module("contenders.dali").LARGEST_BATCH:
                    continue
                cell = {"size": size, "decoder": decoder, "threads": count, "batch": batch}
                numbers = throughput(contenders, made[size], batch, rounds=rounds, seconds=seconds)
                ratios = {name: measure.ratio(numbers["engine"], theirs) for name, theirs in numbers.items()}
                add(**cell, contenders=numbers, engine_to={k: v for k, v in ratios.items() if k != "engine"})


def throughput(
    contenders: dict[str, Contender], encoded: Sequence[bytes], batch: int, *, rounds: int, seconds: float
) -> dict[str, dict[str, Any]]:
    """Return the results by contender."""
    endless = {name: measure.batches(encoded, batch) for name in contenders}
    for name, contender in contenders.items():
        for _ in range(3):  # the first batches allocate memory
            contender(next(endless[name]))
    taken: dict[str, list[list[float]]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            taken[name].append(measure.time_round(contender, endless[name], seconds))
    return {name: measure.summary(times, batch) for name, times in taken.items()}


def thresholds(add: Callable[..., None], *, sizes: Sequence[str], batch: int = 64, seconds: float = 0.3) -> None:
    """Measure nvImageCodec on CUDA cores, for several minimum sizes for decoding Huffman codes on the GPU."""
    options = {n: f"nvjpeg_cuda_decoder:hybrid_huffman_threshold={n}" for n in THRESHOLDS}
    for size in sizes:
        contenders: dict[str, Contender] = {str(n): Raw("cuda", 15, option) for n, option in options.items()}
        numbers = throughput(contenders, photos(size), batch, rounds=3, seconds=seconds)
        add(size=size, batch=batch, images_per_s={name: row["images_per_s"] for name, row in numbers.items()})


def models(
    add: Callable[..., None],
    *,
    sizes: Sequence[str],
    batches: Sequence[int],
    threads: int = 15,
    rounds: int = 3,
    seconds: float = 0.15,
) -> None:
    """Compare the tensors of vision-language models with the CPU engine's, and then measure the engine's images/s.

    Both engines decode with libjpeg-turbo for the comparison, so that all values must be equal. A model with a
    different value is not timed.
    """
    made, wrong = {size: photos(size) for size in sizes}, set[str]()
    for (name, ops), size in product(MODELS.items(), sizes):
        pipeline, encoded = pp.Pipeline([pp.decode(), *ops]), made[size][:CHECKED]
        with pp.Engine(pipeline, device="gpu", decoder="cpu") as engine, pp.Engine(pipeline) as cpu:
            ours, theirs = engine.run_batch(encoded), cpu.run_batch(encoded)
            differing = values = 0
            for output, row in product(theirs.outputs, range(len(encoded))):
                our, their = ours[output][row], theirs[output][row]
                our = our.get() if hasattr(our, "get") else our
                values += their.size
                differing += np.count_nonzero(our != their) if our.shape == their.shape else their.size
            unsupported = ", ".join(pipeline.plan.unsupported_by_cuda)
        add(model=name, size=size, values=values, differing=int(differing), by_the_cpu=unsupported)
        if differing:
            wrong.add(name)
    for name in (each for each in MODELS if each not in wrong):
        pipeline = pp.Pipeline([pp.decode(), *MODELS[name]])
        with pp.Engine(pipeline, device="gpu", threads=threads) as engine:
            contenders: dict[str, Contender] = {"engine": engine.run_batch, "raw": Raw("consistent", threads)}
            for size, batch in product(sizes, batches):
                numbers = throughput(contenders, made[size], batch, rounds=rounds, seconds=seconds)
                ratio = measure.ratio(numbers["engine"], numbers["raw"])
                add(
                    model=name,
                    size=size,
                    decoder="consistent",
                    batch=batch,
                    contenders=numbers,
                    engine_to={"raw": ratio},
                )
    if wrong:
        sys.exit(f"these models are not timed, because their tensors differ from the CPU's: {', '.join(sorted(wrong))}")


def processes(add: Callable[..., None], *, batch: int = 64, seconds: float = 4.0, ready_s: float = 12.0) -> None:
    """Measure images/s of one engine, and of two engines in separate processes."""
    for count in (1, 2):
        begin = monotonic() + ready_s  # the monotonic clock is the same in all processes
        code = f"import gpu_speed; gpu_speed.alone({begin}, {batch}, {seconds})"
        started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(count)]
        rates = [json.loads(each.communicate()[0].splitlines()[-1]) for each in started]
        add(processes=count, batch=batch, images_per_s=rates, sum=round(sum(rates), 1))


def alone(begin: float, batch: int, seconds: float) -> None:
    """Print an engine's images/s, measured from a given time. Exit if the engine is not ready by then."""
    endless = measure.batches(photos("500x375"), batch)
    with pp.Engine(pixprep_full.pipeline("bilinear"), device="gpu") as engine:
        for _ in range(3):
            engine.run_batch(next(endless))
        if (left := begin - monotonic()) < 0:
            sys.exit(f"an engine was ready {-left:.1f} s too late")
        sleep(left)
        taken = measure.time_round(engine.run_batch, endless, seconds)
    sys.stdout.write(f"{batch * len(taken) / sum(taken):.1f}\n")


def costs(add: Callable[..., None], *, repeats: int = 5, batch: int = 64, size: str = "1920x1080") -> None:
    """Measure the milliseconds for starting an engine, a batch, trimming the engine's memory, and the next batch."""
    times: dict[str, list[float]] = {}

    def timed(name: str, run: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        start = perf_counter()
        result = run(*arguments, **options)
        cupy.cuda.runtime.deviceSynchronize()
        times.setdefault(name, []).append(perf_counter() - start)
        return result

    encoded = photos(size, batch)
    for _ in range(repeats):
        engine = timed("engine", pp.Engine, pixprep_full.pipeline("bilinear"), device="gpu")
        for name in ("first batch", "second batch", "third batch"):
            timed(name, engine.run_batch, encoded)
        timed("trim", engine.trim)
        timed("batch after a trim", engine.run_batch, encoded)
        engine.close()
    add(size=size, batch=batch, ms={name: measure.milliseconds(taken) for name, taken in times.items()})


def handover(
    add: Callable[..., None], *, shape: Sequence[int] = (256, 3, 224, 224), batches: int = 20, cycles: int = 10_000_000
) -> None:
    """Measure the milliseconds for transferring a batch to the GPU, alone and before a training step of 5 ms.

    The batches are copied first from pageable memory, then from pinned memory in parallel with the steps. Exit if a
    buffer was overwritten before its copy had finished.
    """
    for library, is_beside in product(("cupy", "torch"), (False, True)):
        options: dict[str, Any] = {"non_blocking": is_beside}
        if library == "torch":
            if find_spec(library) is None:
                add(library=library, is_there=False)
                break
            options["device"] = "cuda"
            step = partial(importlib.import_module(library).cuda._sleep, cycles)  # noqa: SLF001  (it has no other)
        else:
            nvrtc.library(cupy.cuda.runtime.runtimeGetVersion() // 1000)
            step = partial(cupy.RawKernel(SPIN, "spin"), (1,), (1,), (np.int64(cycles),))
        COPIES.allocate = Copies().allocate
        recycler = Recycler(5)

        def filled(number: int, recycler: Recycler = recycler) -> Batch:
            made = recycler.empty(shape, "float32")
            made[...] = number
            return Batch(outputs={"tensor": made}, errors=[None] * len(made), decode_s=[], transform_s=[])

        def sent(batch: Batch, library: str = library, options: dict[str, Any] = options) -> Any:
            return getattr(batch, library)("tensor", **options)

        moved = [sent(filled(number)) for number in range(batches)]
        for number, array in enumerate(moved):
            values = array.get() if library == "cupy" else array.cpu().numpy()
            if (values != number).any():
                sys.exit(f"{library}: the memory of batch {number} was overwritten before its copy had finished")
        held = [filled(number) for number in range(4)]
        times: dict[str, list[float]] = {}
        for name, is_followed in (("alone", False), ("before a step", True)):
            cupy.cuda.runtime.deviceSynchronize()
            begin = perf_counter()
            for number in range(batches):
                start = perf_counter()
                moved[number] = sent(held[number % len(held)])
                times.setdefault(f"host, {name}", []).append(perf_counter() - start)
                if is_followed:
                    step()
            cupy.cuda.runtime.deviceSynchronize()
            times[name] = [(perf_counter() - begin) / batches]
        ms = {name: measure.milliseconds(taken)["median"] for name, taken in times.items()}
        add(library=library, non_blocking=is_beside, bytes=held[0]["tensor"].nbytes, ms=ms)


def copy_bandwidth() -> float:
    """Measure bytes/s, read and written, of a copy within device memory: the upper bound for the kernels."""
    source = cupy.asarray(np.arange(COPIED // 4, dtype=np.uint32))
    target = cupy.empty(COPIED // 4, np.uint32)

    def copy(_: int) -> None:
        target.data.copy_from_device_async(source.data, COPIED, cupy.cuda.get_current_stream())

    times, _ = device_seconds(copy, 20)
    return 2 * COPIED / float(np.median(times))


def device_seconds(queue: Callable[[int], None], samples: int) -> tuple[list[float], list[float]]:
    """Measure the device and host seconds of the work that ``queue(sample)`` queues on the current stream.

    A kernel keeps the device busy until all work is queued, so the events do not measure the host's delays.
    """
    nvrtc.library(cupy.cuda.runtime.runtimeGetVersion() // 1000)  # CuPy 13.6 does not find NVRTC in NVIDIA's wheel
    spin = cupy.RawKernel(SPIN, "spin")
    stream = cupy.cuda.Stream(non_blocking=True)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    cycles = 1 << 22  # 2 ms at 2 GHz
    on_device: list[float] = []
    on_host: list[float] = []
    with stream:
        for sample in range(3):
            queue(sample)
        stream.synchronize()
        while len(on_device) < samples:
            spin((1,), (1,), (np.int64(cycles),))
            begin.record(stream)
            start = perf_counter()
            queue(len(on_device))
            host = perf_counter() - start
            is_queued = not begin.done
            end.record(stream)
            stream.synchronize()
            if is_queued:
                on_device.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3)
                on_host.append(host)
            elif cycles > 1 << 36:
                sys.exit("the host cannot queue a launch while the device is busy, so the kernels are not timed")
            else:
                cycles *= 2
    return on_device, on_host


def decoded(encoded: Sequence[bytes]) -> list[Any]:
    """Decode images, and return their pixels in separate arrays on the device."""
    device = Gpu(0)
    plan = pixprep_full.pipeline("bilinear").plan
    decoder = device.decoder(plan, EngineOptions(damage="strict"))
    arrays: list[Any] = []
    for chunk in decoder.chunks(encoded, [plan.place] * len(encoded)):
        with device.lane(), decoder.decode(chunk) as images:
            for image in images:
                assert not isinstance(image, pp.ImageError)
                arrays.append(cupy.asarray(on_host(image.pixels)))  # the decoder reuses its memory
    return arrays


def stream_order(add: Callable[..., None], *, decodes: int = 20) -> None:
    """Test whether a decode writes its pixels before the work queued earlier in its stream has finished.

    The stream first runs a slow kernel, and then copies the pixels of a JPEG. A second JPEG is decoded into the same
    memory. If the copy differs from the first JPEG, the decode wrote too early.
    """
    first, second = (np.frombuffer(each, np.uint8) for each in photos("500x375", 2))
    spin, cycles = cupy.RawKernel(SPIN, "spin"), 1 << 27  # 67 ms at 2 GHz
    nvrtc.library(cupy.cuda.runtime.runtimeGetVersion() // 1000)
    kinds = {"hardware": (nvimgcodec.HW_GPU_ONLY,), "CUDA": (nvimgcodec.GPU_ONLY, nvimgcodec.HYBRID_CPU_GPU)}
    for name, those in kinds.items():
        stream = cupy.cuda.Stream(non_blocking=True)
        backends, options = [nvimgcodec.Backend(kind) for kind in those], {"cuda_stream": int(stream.ptr)}
        try:
            decoder = nvimgcodec.Decoder(device_id=0, max_num_cpu_threads=1, backends=backends, options="")
            images = decoder.decode([nvimgcodec.CodeStream(first)], **options)
        except RuntimeError as error:  # the machine has no such decoder
            add(order=name, why=str(error))
            continue
        if images == [None]:
            add(order=name, why="the decoder rejects the photo")
            continue
        early = 0
        with stream:
            for _ in range(decodes):
                decoder.decode([nvimgcodec.CodeStream(first)], images=images, **options)
                pixels = to_array(images[0])
                before = on_host(pixels)
                height, width, channels = pixels.shape
                n_bytes = (height - 1) * pixels.strides[0] + width * channels
                kept = cupy.empty(n_bytes, np.uint8)
                spin((1,), (1,), (np.int64(cycles),))
                kept.data.copy_from_device_async(pixels.data, n_bytes, stream)
                decoder.decode([nvimgcodec.CodeStream(second)], images=images, **options)
                copy = on_host(cupy.ndarray(pixels.shape, np.uint8, kept.data, pixels.strides))
                early += not np.array_equal(copy, before)
        add(order=name, early=early, decodes=decodes)


def kernel(pixels: Sequence[Any], roof: float, *, filter_name: str, dtype: str, levels: str) -> dict[str, Any]:
    """Measure the time of the kernels per batch, and the fraction of the bandwidth limit that the kernels reach."""
    ops = pixprep_full.pipeline(filter_name, dtype=dtype).ops
    plan = pp.Pipeline([*ops[:-2], *LEVELS[levels], *ops[-2:]]).plan.outputs["tensor"]
    assert isinstance(plan, TensorPlan)
    device = Gpu(0)
    run = device.kernel(plan).run
    placements = [plan.geometry.place(*image.shape[:2]) for image in pixels]
    rotations = max(2, -(-ROTATED // sum(image.nbytes for image in pixels)))
    sets = [list(pixels), *([image.copy() for image in pixels] for _ in range(min(rotations, 64) - 1))]
    outs = [cupy.empty((len(pixels), *plan.spec.shape), plan.spec.dtype) for _ in sets]

    def queue(sample: int) -> None:
        turn = sample % len(sets)
        run(sets[turn], placements, outs[turn], range(len(pixels)))

    with device.lane():
        on_device, on_host = device_seconds(queue, SAMPLES)
    n_bytes = least_bytes([image.shape[:2] for image in pixels], support=SUPPORT[filter_name], dtype=dtype)
    rate = n_bytes / float(np.median(on_device))
    return {
        "least_bytes": n_bytes,
        "device_ms": measure.milliseconds(on_device),
        "host_ms": measure.milliseconds(on_host),
        "bytes_per_s": round(rate),
        "share_of_roof": round(rate / roof, 4),
    }


def kernels(add: Callable[..., None], *, sizes: Sequence[str], batches: Sequence[int]) -> None:
    """Measure the times of the kernels, and the fraction of the copy bandwidth that the kernels reach."""
    roof = copy_bandwidth()
    add(copy_bytes_per_s=round(roof))
    for size in sizes:
        pixels = decoded(photos(size, max(batches)))
        for batch, (filter_name, dtype, levels) in product(batches, KERNELS):
            options = {"filter_name": filter_name, "dtype": dtype, "levels": levels}
            images = [pixels[index % len(pixels)] for index in range(batch)]
            add(size=size, batch=batch, **options, **kernel(images, roof, **options))


def limits(add: Callable[..., None], *, size: str = "500x375", batch: int = 256, seconds: float = 2.0) -> None:
    """Measure how many images/s the GPU can receive, and how many all of its hardware JPEG engines can decode.

    The JPEGs of a batch are copied from pinned memory in one copy. The hardware engines receive them in one call, which
    nvImageCodec distributes over the engines.
    """
    encoded = photos(size, batch)
    data = np.frombuffer(b"".join(encoded), np.uint8)
    host = np.frombuffer(cupy.cuda.alloc_pinned_memory(data.nbytes), np.uint8, data.nbytes)
    host[...] = data
    target = cupy.empty(data.nbytes, np.uint8)

    def copy(_: int) -> None:
        target.data.copy_from_host_async(host.ctypes.data, host.nbytes, cupy.cuda.get_current_stream())

    taken = float(np.median(device_seconds(copy, 20)[0]))
    add(alone="copy", batch=batch, bytes=host.nbytes, images_per_s=round(batch / taken))
    try:
        engines = Raw("engines", 15)
        times = measure.time_round(engines, measure.batches(encoded, batch), seconds)
    except (RuntimeError, SystemExit) as error:  # the machine has no hardware engine
        add(alone="JPEG engines", why=str(error))
        return
    add(alone="JPEG engines", batch=batch, images_per_s=round(batch * len(times) / sum(times)))


def interpreter(add: Callable[..., None], *, batch: int = 64, rounds: int = 5, seconds: float = 0.1) -> None:
    """Measure how many images/s the Python code could supply to an infinitely fast GPU; see benchmarks/host.py."""
    script = Path(measure.__file__).with_name("host.py")
    with tempfile.TemporaryDirectory() as folder:
        options = {"batches": batch, "cores": 1, "lanes": 1, "rounds": rounds, "seconds": seconds, "out": folder}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        subprocess.run([sys.executable, str(script), *words, "--sizes", "equal", "300 sizes"], check=True)
        (written,) = Path(folder).glob("*.json")
        cells = json.loads(written.read_text(encoding="utf-8"))["cells"]
    for row in cells:
        add(alone="interpreter", sizes=row["sizes"], batch=batch, images_per_s=row["ceiling_images_per_s"])


def served(
    add: Callable[..., None],
    *,
    count: int,
    device: str = "gpu",
    batches: Sequence[int] = (1, 8),
    concurrency: Sequence[int] = (1, 4, 16, 64),
    seconds: float = 2.0,
    images: int = 128,
) -> None:
    """Measure the throughput of several instances of the model ``preprocess`` in Triton.

    The client receives the tensors.
    """
    loads = importlib.import_module("served")  # needs Triton's client, which only the steps with Triton install
    from pixprep.serving.embedded.server import Server  # noqa: PLC0415
    from pixprep.serving.options import IMAGES_IN_FLIGHT  # noqa: PLC0415

    encoded = photos("500x375", images)
    with tempfile.TemporaryDirectory(prefix="pixprep-hour-") as name:
        model = Path(name) / "preprocess"
        (model / "1").mkdir(parents=True)
        pp.presets.imagenet().save(model / "1" / "pipeline.json")
        (model / "config.pbtxt").write_text(
            f'backend: "pixprep"\nmax_batch_size: 128\ndynamic_batching {{ }}\n'
            f"instance_group {{ count: {count} kind: KIND_{device.upper()} }}\n",
            encoding="utf-8",
        )
        ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
        with Server(Path(name), **ports, images_in_flight=IMAGES_IN_FLIGHT) as server:
            loads.put(server, model.name, 8, encoded, seconds=seconds, concurrency=[2])  # warm up
            loads.check(server, model.name, encoded[:2], 3.0)
            kind = {"concurrency": concurrency, "seconds": seconds}
            for row in (row for batch in batches for row in loads.put_load(server, model.name, batch, encoded, **kind)):
                add(count=count, **row)


def facts(add: Callable[..., None]) -> None:
    """Describe the machine, its libraries and its JPEG decoders."""
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    loaded = {}
    for name in LIBRARIES:
        try:
            loaded[name] = bool(ctypes.CDLL(name))
        except OSError as error:
            loaded[name] = str(error)
    add(
        **measure.surroundings(PACKAGES),
        gpu=properties["name"].decode(),
        multiprocessors=properties["multiProcessorCount"],
        memory_bytes=runtime.memGetInfo()[1],
        driver_cuda=runtime.driverGetVersion(),
        runtime_cuda=runtime.runtimeGetVersion(),
        libraries=loaded,
        photos=len(real_photos()),
    )
    for codec in ("consistent", "cuda", "cpu"):
        with pp.Engine(pixprep_full.pipeline("bilinear"), device="gpu", decoder=codec) as engine:  # type: ignore[arg-type]
            add(codec=codec, decoders=engine.decoders)


if __name__ == "__main__":
    results = Path(os.environ["PIXPREP_GPU_RESULTS"])
    add = partial(hour.write, results, step=os.environ["PIXPREP_GPU_STEP"])
    globals()[sys.argv[1]](add, **json.loads(sys.argv[2]))
