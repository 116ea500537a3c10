"""The engine on a GPU against nvImageCodec's decode alone, and the kernels against the memory's bandwidth.

    python benchmarks/gpu.py                      every size and batch, about five minutes on an H200
    python benchmarks/gpu.py --sizes 500x375 --batches 1 8

Contenders run by turns in one process, each batch timed until the device has done it:

    engine   pixprep: JPEG bytes -> float32 tensors, shorter side 256, bilinear, centre 224, normalized
    raw      nvImageCodec: the same bytes -> pixels, the same decoder settings, buffers reused; nothing after it
    dali     DALI's pipeline of the same task, if nvidia.dali is installed

Before anything is timed, the engine's tensors are compared with Pillow's: they are equal with libjpeg-turbo as decoder,
and within a mean of three levels with the decoder that is timed.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from time import perf_counter
from typing import Any

import measure
import numpy as np
import workloads
from contenders import pixprep_full
from measure import say
from pixels import difference, least_bytes, reference

import pixprep as pp
from pixprep.plan.output_plans import TensorPlan

try:
    import cupy
    from nvidia import nvimgcodec

    from pixprep.devices.gpu import Gpu, on_host
    from pixprep.kernels import nvrtc
except ImportError as error:
    sys.exit(f'gpu: NO {(error.name or "CUPY").upper()}: pip install "pixprep[gpu-cuda12]" (or gpu-cuda13)')

BATCHES = (1, 8, 32, 128)
DECODERS = ("consistent", "fastest", "cuda")
LARGEST_MEAN = {"cpu": 0.0, "consistent": 3.0, "fastest": 3.0, "cuda": 3.0}  # levels; swapped channels are further off
CHECKED = 4  # photos of each size
SUPPORT = {"bilinear": 1, "bicubic": 2}  # of the kernels' filters, in pixels of the smaller image
LEVELS = {
    "kept": [],
    "jitter": [pp.brightness(1.2), pp.contrast(0.8), pp.saturation(1.3), pp.hue(0.05)],
    "turned": [pp.rotate(15, filter="bilinear")],
}
"""What is done to the levels."""
KERNELS = (
    *(("bilinear", "float32", levels) for levels in LEVELS),
    ("bicubic", "float16", "kept"),
)
ROTATED = 1 << 29  # bytes of pixels that a kernel's repetitions go round in, so that no cache holds them: L2 has 60 MB
SAMPLES = 50
COPIED = 1 << 31
SPIN = """
extern "C" __global__ void spin(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
}
"""
PACKAGES = (
    *("pixprep", "numpy", "cupy-cuda12x", "cupy-cuda13x", "nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu13"),
    *("nvidia-nvjpeg-cu12", "nvidia-nvjpeg", "nvidia-dali-cuda120", "nvidia-dali-cuda130", "simplejpeg", "pillow"),
)


Contender = Callable[[list[bytes]], object]
"""Makes a batch, and returns when the device has done it."""


def check(photos: Sequence[bytes], decoder: str) -> dict[str, float]:
    """How far the engine's tensors are from Pillow's, in levels; ends the program where that is too far."""
    with pp.Engine(pixprep_full.pipeline("bilinear"), device="gpu", decoder=decoder) as engine:
        batch = engine.run_batch(photos)
    if any(batch.errors):
        sys.exit(f"gpu: not timed: decoder {decoder}: {[str(error) for error in batch.errors]}")
    found = difference(batch.outputs["tensor"].get(), [reference(photo, "bilinear") for photo in photos])
    if found["mean"] > LARGEST_MEAN[decoder]:
        sys.exit(f"gpu: not timed: decoder {decoder}: its tensors are {found['mean']:.2f} levels off Pillow's")
    return found


@cache
def raw_stream() -> Any:
    """One for all of ``Raw``: nvImageCodec frees an image's memory on its stream, so it must not be destroyed first."""
    return cupy.cuda.Stream(non_blocking=True)


class Raw:
    """nvImageCodec alone, with the engine's settings."""

    def __init__(self, decoder: str) -> None:
        kinds = [nvimgcodec.GPU_ONLY, nvimgcodec.HYBRID_CPU_GPU]
        kinds = kinds if decoder == "cuda" else [nvimgcodec.HW_GPU_ONLY, *kinds]
        one_way = " nvjpeg_hw_decoder:force_legacy_batch=1" * (decoder == "consistent")
        self._decoder = nvimgcodec.Decoder(
            device_id=0,
            backends=[nvimgcodec.Backend(kind) for kind in kinds],
            options=f":fancy_upsampling=1{one_way}",
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
            sys.exit("gpu: nvImageCodec refused one of the benchmark's photos")


def dali(decoder: str) -> Contender | None:
    """DALI's idiom of the same task; None where it does not work."""
    hardware = 0.0 if decoder == "cuda" else 0.9
    try:
        library = importlib.import_module("contenders.dali")
        return library.prepare("bilinear", len(os.sched_getaffinity(0)), gpu=0, hardware=hardware)  # type: ignore[no-any-return]
    except (ImportError, RuntimeError) as error:  # the other contenders are worth the time of the GPU
        say(f"no DALI: {error}")
        return None


def throughput(
    photos: Sequence[bytes], decoder: str, batch: int, *, rounds: int, seconds: float
) -> tuple[dict[str, Any], dict[str, float]]:
    """Each contender's numbers by its name, and the engine's images/s in proportion to the others'."""
    with pp.Engine(pixprep_full.pipeline("bilinear"), device="gpu", decoder=decoder) as engine:
        contenders: dict[str, Contender] = {"engine": engine.run_batch, "raw": Raw(decoder)}
        if (other := dali(decoder)) is not None:
            contenders["dali"] = other
        endless = {name: measure.batches(photos, batch) for name in contenders}
        for name, contender in contenders.items():
            measure.time_round(contender, endless[name], seconds)
            contender(next(endless[name]))  # a second batch at least: the first one allocates
        taken: dict[str, list[list[float]]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, contender in contenders.items():
                taken[name].append(measure.time_round(contender, endless[name], seconds))
    numbers = {name: measure.summary(times, batch) for name, times in taken.items()}
    return numbers, {name: measure.ratio(numbers["engine"], theirs) for name, theirs in numbers.items()}


def copy_bandwidth() -> float:
    """Bytes/s, read and written, of a copy within the device's memory: the roof that kernels are measured by."""
    source = cupy.asarray(np.arange(COPIED // 4, dtype=np.uint32))
    target = cupy.empty(COPIED // 4, np.uint32)

    def copy(_: int) -> None:
        target.data.copy_from_device_async(source.data, COPIED, cupy.cuda.get_current_stream())

    times, _ = device_seconds(copy, 20)
    return 2 * COPIED / float(np.median(times))


def device_seconds(queue: Callable[[int], None], samples: int) -> tuple[list[float], list[float]]:
    """Seconds of the device and of the host for what ``queue(sample)`` queues on the current stream.

    The device is kept busy until all is queued, so that events around it see the device's work and no waiting.
    """
    nvrtc.library(cupy.cuda.runtime.runtimeGetVersion() // 1000)  # CuPy 13.6 does not find the wheel
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
                sys.exit("gpu: the host cannot queue a launch while the device is busy: kernels are not timed")
            else:
                cycles *= 2
    return on_device, on_host


def decoded(photos: Sequence[bytes]) -> list[Any]:
    """The pixels on the device, each in memory of its own."""
    device = Gpu(0)
    plan = pixprep_full.pipeline("bilinear").plan
    decoder = device.decoder(plan, pp.Limits(), damage="strict", codec="consistent")
    arrays: list[Any] = []
    for chunk in decoder.chunks(photos, [plan.place] * len(photos)):
        with device.lane(), decoder.decode(chunk) as images:
            for image in images:
                assert not isinstance(image, pp.ImageError)
                arrays.append(cupy.asarray(on_host(image.pixels)))  # the decoder uses its own memory again
    return arrays


def kernel(pixels: Sequence[Any], roof: float, *, filter_name: str, dtype: str, levels: str) -> dict[str, Any]:
    """The kernels' time for a batch, and the share of the roof that the bytes they must move come to."""
    ops = pixprep_full.pipeline(filter_name, dtype=dtype).ops
    plan = pp.Pipeline([*ops[:-2], *LEVELS[levels], *ops[-2:]]).plan.outputs["tensor"]
    assert isinstance(plan, TensorPlan)
    run = Gpu(0).kernel(plan).run
    placements = [plan.geometry.place(*image.shape[:2]) for image in pixels]
    rotations = max(2, -(-ROTATED // sum(image.nbytes for image in pixels)))
    sets = [list(pixels), *([image.copy() for image in pixels] for _ in range(min(rotations, 64) - 1))]
    outs = [cupy.empty((len(pixels), *plan.spec.shape), plan.spec.dtype) for _ in sets]

    def queue(sample: int) -> None:
        turn = sample % len(sets)
        run(sets[turn], placements, outs[turn], range(len(pixels)))

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


def machine() -> dict[str, Any]:
    """The GPU, as CUDA describes it."""
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    return {
        "gpu": properties["name"].decode(),
        "multiprocessors": properties["multiProcessorCount"],
        "memory_bytes": runtime.memGetInfo()[1],
        "driver_cuda": runtime.driverGetVersion(),
        "runtime_cuda": runtime.runtimeGetVersion(),
    }


def main() -> None:
    """Measure, and write one JSON file."""
    parser = measure.options(__doc__)
    parser.add_argument("--sizes", nargs="+", choices=workloads.SIZES, default=list(workloads.SIZES))
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
    parser.add_argument("--decoders", nargs="+", choices=DECODERS, default=list(DECODERS))
    parser.add_argument("--photos", type=int, default=128, help="different ones of each size")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each round, at least")
    arguments = parser.parse_args()

    results: dict[str, Any] = {
        "benchmark": "gpu",
        "date": arguments.date,
        **measure.surroundings(PACKAGES),
        "machine": machine(),
        "photos": {},
        "checks": [],
        "throughput": [],
        "kernels": [],
    }
    save = partial(measure.write, arguments, f"gpu-{arguments.date}-{results['machine']['gpu']}", results)
    originals = workloads.real_photos()
    roof = copy_bandwidth()
    results["copy_bytes_per_s"] = round(roof)
    say(f"{results['machine']['gpu']}, copy {roof / 1e12:.2f} TB/s")
    for size in arguments.sizes:
        workload = workloads.Workload(size, [workloads.SIZES[size]], arguments.photos, 1)
        photos, results["photos"][size] = workloads.make(workload, originals)
        for decoder in arguments.decoders:
            check(photos[:CHECKED], "cpu")
            results["checks"].append({"size": size, "decoder": decoder, **check(photos[:CHECKED], decoder)})
            for batch in arguments.batches:
                height, width = workloads.SIZES[size]
                if (held := 2 * 3 * batch * height * width) > cupy.cuda.runtime.memGetInfo()[0]:
                    say(f"{size}, batch {batch}: not timed: engine and raw decoder hold {held >> 20:,} MiB of pixels")
                    continue
                options = {"rounds": arguments.rounds, "seconds": arguments.seconds}
                numbers, ratios = throughput(photos, decoder, batch, **options)
                cell = {"size": size, "decoder": decoder, "batch": batch}
                results["throughput"].append(
                    {**cell, "contenders": numbers, "engine_to": {k: v for k, v in ratios.items() if k != "engine"}}
                )
                rates = ", ".join(f"{name} {row['images_per_s']:,.0f}/s" for name, row in numbers.items())
                say(f"{size}, {decoder}, batch {batch}: {rates}; engine/raw {ratios['raw']:.2f}")
                save()
        pixels = decoded(photos)
        for batch in arguments.batches:
            for filter_name, dtype, levels in KERNELS:
                options = {"filter_name": filter_name, "dtype": dtype, "levels": levels}
                images = [pixels[index % len(pixels)] for index in range(batch)]
                row = {"size": size, "batch": batch, **options, **kernel(images, roof, **options)}
                results["kernels"].append(row)
                share, milliseconds = row["share_of_roof"], row["device_ms"]["median"]
                say(f"{size}, batch {batch}, kernels {options}: {milliseconds:.3f} ms, {share:.0%} of the roof")
                save()


if __name__ == "__main__":
    main()
