"""The engine on a GPU against nvImageCodec's decode alone, and the kernels against the memory's bandwidth.

    python benchmarks/gpu.py                      every size and batch, about five minutes on an H200
    python benchmarks/gpu.py --sizes 500x375 --batches 1 8

Contenders run by turns in one process, each batch timed until the device has done it:

    engine   pixprep: JPEG bytes -> float32 tensors, shorter side 256, bilinear, centre 224, normalized
    raw      nvImageCodec: the same bytes -> pixels, the same decoder settings, buffers reused; nothing after it
    dali     DALI's pipeline of the same task, if nvidia.dali is installed
    dali2    the same with its default queue of two, the next batch begun early: for images/s, its times mean nothing

Before anything is timed, the engine's tensors are compared with the CPU engine's: bit for bit with libjpeg-turbo as
the decoder of both, and within a mean of three levels with the decoder that is timed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import measure
import numpy as np

import pixprep as pp
from pixprep.compiler import compile_pipeline
from pixprep.plan import TensorPlan

try:
    import cupy
    from nvidia import nvimgcodec

    from pixprep.devices.gpu import Gpu
except ImportError as error:
    sys.exit(f'gpu: NO {(error.name or "CUPY").upper()}: pip install "pixprep[gpu-cuda12]" (or gpu-cuda13)')

BATCHES = (1, 8, 32, 128)
DECODERS = ("consistent", "fastest")
LARGEST_MEAN = 3.0  # levels; swapped channels or other geometry are further off
CHECKED = 4  # photos of each size
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


def pipeline(decoder: str, *, filter_name: str = "bilinear", dtype: str = "float32") -> pp.Pipeline:
    """The ImageNet preset of torchvision."""
    return pp.Pipeline(
        [
            pp.decode(decoder=decoder),  # type: ignore[arg-type]
            pp.resize(256, filter=filter_name),  # type: ignore[arg-type]
            pp.center_crop(224),
            pp.normalize(mean=pp.presets.IMAGENET_MEAN, std=pp.presets.IMAGENET_STD),
            pp.tensor(dtype=dtype),  # type: ignore[arg-type]
        ]
    )


def check(photos: Sequence[bytes], decoder: str) -> dict[str, float]:
    """The mean and largest difference to the CPU engine, in levels; ends the program where they are too large."""
    tensors = {}
    for name, device in (("cpu", "cpu"), ("cpu", "gpu"), (decoder, "gpu")):
        with pp.Engine(pipeline(name), device=device) as engine:
            batch = engine.run_batch(photos)
            if any(batch.errors):
                sys.exit(f"gpu: not timed: {device}, decoder {name}: {[str(error) for error in batch.errors]}")
            tensor = batch.outputs["tensor"]
            tensors[name, device] = tensor if device == "cpu" else tensor.get()
    if not np.array_equal(tensors["cpu", "gpu"], tensors["cpu", "cpu"]):
        sys.exit("gpu: not timed: with libjpeg-turbo as decoder the GPU's tensors are not the CPU's")
    levels = np.abs(tensors[decoder, "gpu"].astype(np.float64) - tensors["cpu", "cpu"])
    levels *= 255 * np.array(pp.presets.IMAGENET_STD).reshape(3, 1, 1)
    if levels.mean() > LARGEST_MEAN:
        sys.exit(f"gpu: not timed: decoder {decoder} is {levels.mean():.2f} levels off the CPU's tensors")
    return {"mean_levels": round(float(levels.mean()), 4), "max_levels": round(float(levels.max()), 2)}


@cache
def raw_stream() -> Any:
    """One for all of ``Raw``: nvImageCodec frees an image's memory on its stream, so it must not be destroyed first."""
    return cupy.cuda.Stream(non_blocking=True)


class Raw:
    """nvImageCodec alone, with the engine's settings."""

    def __init__(self, decoder: str) -> None:
        kinds = [nvimgcodec.GPU_ONLY, nvimgcodec.HYBRID_CPU_GPU]
        kinds = [nvimgcodec.HW_GPU_ONLY, *kinds] if decoder == "fastest" else kinds
        self._decoder = nvimgcodec.Decoder(
            device_id=0,
            backends=[nvimgcodec.Backend(kind) for kind in kinds],
            options=":fancy_upsampling=1",
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


def dali(photos: Sequence[bytes], decoder: str, batch: int, *, queue: int) -> Contender | None:
    """DALI's idiom of the same task, with batches of its own of the same photos; None where it does not work."""
    try:
        library = importlib.import_module("nvidia.dali")
    except ImportError as error:
        report(f"no DALI: {error}")
        return None
    fn, types = library.fn, library.types
    threads = len(os.sched_getaffinity(0))
    source = ([np.frombuffer(photo, np.uint8) for photo in group] for group in measure.batches(photos, batch))

    def definition() -> Any:
        images = fn.decoders.image(
            fn.external_source(source=source, dtype=types.UINT8, ndim=1),
            device="mixed",
            output_type=types.RGB,
            jpeg_fancy_upsampling=True,
            hw_decoder_load=0.9 if decoder == "fastest" else 0.0,
        )
        images = fn.resize(images, resize_shorter=256.0, interp_type=types.INTERP_LINEAR, antialias=True)
        return fn.crop_mirror_normalize(
            images,
            crop=(224, 224),
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=[255 * mean for mean in pp.presets.IMAGENET_MEAN],
            std=[255 * std for std in pp.presets.IMAGENET_STD],
        )

    options = {"batch_size": batch, "num_threads": threads, "device_id": 0, "prefetch_queue_depth": queue}
    running = library.pipeline_def(definition)(**options)
    try:
        running.build()
    except RuntimeError as error:  # the other contenders are worth the time of the GPU
        report(f"no DALI: {error}")
        return None
    return lambda _: running.run()  # without a stream: its results are there when it returns


def throughput(
    photos: Sequence[bytes], decoder: str, batch: int, *, rounds: int, seconds: float
) -> tuple[dict[str, Any], dict[str, float]]:
    """Each contender's numbers by its name, and the engine's images/s in proportion to the others'."""
    with pp.Engine(pipeline(decoder), device="gpu") as engine:
        contenders: dict[str, Contender] = {"engine": engine.run_batch, "raw": Raw(decoder)}
        for queue, name in ((1, "dali"), (2, "dali2")):
            other = dali(photos, decoder, batch, queue=queue)
            if other is not None:
                contenders[name] = other
        sources = {name: measure.batches(photos, batch) for name in contenders}
        for name, contender in contenders.items():
            measure.time_round(contender, sources[name], seconds)
            contender(next(sources[name]))  # a second batch at least: the first one allocates
        taken: dict[str, list[list[float]]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, contender in contenders.items():
                taken[name].append(measure.time_round(contender, sources[name], seconds))
    numbers = {name: measure.summary(times, batch) for name, times in taken.items()}
    return numbers, {name: measure.ratio(numbers["engine"], theirs) for name, theirs in numbers.items()}


def copy_bandwidth() -> float:
    """Bytes/s, read and written, of a copy within the device's memory: the roof that kernels are measured by."""
    source = cupy.arange(COPIED // 4, dtype=np.uint32)
    target = cupy.empty(COPIED // 4, np.uint32)

    def copy(_: int) -> None:
        target.data.copy_from_device_async(source.data, COPIED, cupy.cuda.get_current_stream())

    times, _ = device_seconds(copy, 20)
    return 2 * COPIED / float(np.median(times))


def device_seconds(queue: Callable[[int], None], samples: int) -> tuple[list[float], list[float]]:
    """Seconds of the device and of the host for what ``queue(sample)`` queues on the current stream.

    The device is kept busy until all is queued, so that events around it see the device's work and no waiting.
    """
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
    decoder = device.decoder(compile_pipeline(pipeline("consistent")), pp.Limits())
    arrays: list[Any] = []
    for begin in range(0, len(photos), 16):
        with device.lane():
            for image in decoder.decode(photos[begin : begin + 16]):
                assert not isinstance(image, pp.ImageError)
                arrays.append(image.pixels.copy())  # the decoder uses its own memory again
    return arrays


def kernel(pixels: Sequence[Any], roof: float, **options: str) -> dict[str, Any]:
    """The kernels' time for a batch, and the share of the roof that the bytes they must move come to."""
    plan = compile_pipeline(pipeline("consistent", **options)).outputs["tensor"]
    assert isinstance(plan, TensorPlan)
    run = Gpu(0).kernel(plan).run
    placements = [plan.geometry.place(*image.shape[:2]) for image in pixels]
    rotations = max(2, -(-ROTATED // sum(image.nbytes for image in pixels)))
    sets = [list(pixels), *([image.copy() for image in pixels] for _ in range(min(rotations, 64) - 1))]
    outs = [cupy.empty((len(pixels), *plan.spec.shape), plan.spec.dtype) for _ in sets]
    rows = [[out[index] for index in range(len(pixels))] for out in outs]

    def queue(sample: int) -> None:
        turn = sample % len(sets)
        run(sets[turn], placements, rows[turn])

    on_device, on_host = device_seconds(queue, SAMPLES)
    n_bytes = measure.least_bytes(plan, [image.shape[:2] for image in pixels])
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


def report(line: str) -> None:
    """For whoever waits."""
    sys.stderr.write(f"gpu: {line}\n")


def main() -> None:
    """Measure, and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=measure.ROOT / "benchmarks" / "results", help="folder")
    parser.add_argument("--date", default=datetime.now(timezone.utc).strftime("%Y-%m-%d"), help="default: today")
    parser.add_argument("--sizes", nargs="+", choices=measure.SIZES, default=list(measure.SIZES))
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
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"gpu-{arguments.date}-{results['machine']['gpu'].replace(' ', '-').lower()}.json"

    def save() -> None:  # after each cell: a run that is cut off leaves what it measured
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    roof = copy_bandwidth()
    results["copy_bytes_per_s"] = round(roof)
    report(f"{results['machine']['gpu']}, copy {roof / 1e12:.2f} TB/s")
    for size in arguments.sizes:
        photos = measure.photos(*measure.SIZES[size], arguments.photos)
        mean_bytes = sum(map(len, photos)) // len(photos)
        results["photos"][size] = {"count": len(photos), "mean_bytes": mean_bytes, "kind": "4:2:0, quality 90"}
        for decoder in arguments.decoders:
            results["checks"].append({"size": size, "decoder": decoder, **check(photos[:CHECKED], decoder)})
            for batch in arguments.batches:
                options = {"rounds": arguments.rounds, "seconds": arguments.seconds}
                numbers, ratios = throughput(photos, decoder, batch, **options)
                cell = {"size": size, "decoder": decoder, "batch": batch}
                results["throughput"].append(
                    {**cell, "contenders": numbers, "engine_to": {k: v for k, v in ratios.items() if k != "engine"}}
                )
                rates = ", ".join(f"{name} {row['images_per_s']:,.0f}/s" for name, row in numbers.items())
                report(f"{size}, {decoder}, batch {batch}: {rates}; engine/raw {ratios['raw']:.2f}")
                save()
        pixels = decoded(photos)
        for batch in arguments.batches:
            for options in (
                {"filter_name": "bilinear", "dtype": "float32"},
                {"filter_name": "bicubic", "dtype": "float16"},
            ):
                images = [pixels[index % len(pixels)] for index in range(batch)]
                row = {"size": size, "batch": batch, **options, **kernel(images, roof, **options)}
                results["kernels"].append(row)
                share, milliseconds = row["share_of_roof"], row["device_ms"]["median"]
                report(f"{size}, batch {batch}, kernels {options}: {milliseconds:.3f} ms, {share:.0%} of the roof")
                save()
    report(f"written: {path}")


if __name__ == "__main__":
    main()
