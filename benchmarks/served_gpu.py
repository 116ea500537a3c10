"""What Triton serves of the engine on a GPU: images/s and latencies, with the engine's own images/s beside them.

    python benchmarks/served_gpu.py                three minutes on an H200
    python benchmarks/served_gpu.py --device cpu   a rehearsal without one

``preprocess`` and ``ensemble`` are what ``pixprep build --classifier torch`` writes for the task of the other
benchmarks, in a Triton with the CUDA pool that ``pixprep serve`` makes. The engine runs before, between and after them.
Shares are of its median with batches as large as the models'.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import measure
import served

from pixprep.triton.config import DEFAULT_MAX_BATCH_SIZE

LOADS = {1: (1, 16, 64), 8: (1, 4, 16, 64)}  # images a request: requests in flight; the pool is made for 512 images
WAYS = {"preprocess": (False, True), "ensemble": (False,)}  # its 4 KB of logits travel as well as they are shared
MEAN_LEVELS = 3.0  # as in gpu.py: nvJPEG's pixels are not libjpeg-turbo's
PACKAGES = ("pixprep", "numpy", "cupy-cuda12x", "cupy-cuda13x", "nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu13")
PACKAGES += ("nvidia-nvjpeg-cu12", "nvidia-nvjpeg", "nvidia-pytriton", "tritonclient", "torch", "onnx")


def main() -> None:
    """Measure, and write one JSON file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=measure.ROOT / "benchmarks" / "results", help="folder")
    parser.add_argument("--date", default=datetime.now(timezone.utc).strftime("%Y-%m-%d"), help="default: today")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="of the engine beside it")
    parser.add_argument("--size", choices=measure.SIZES, default="500x375")
    parser.add_argument("--photos", type=int, default=128, help="different ones")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each load, about")
    arguments = parser.parse_args()

    machine = importlib.import_module("gpu").machine() if arguments.device == "gpu" else {"gpu": "none"}
    images = measure.photos(*measure.SIZES[arguments.size], arguments.photos)
    engine_round = partial(
        served.engine_round, images, arguments.seconds / 2, device=arguments.device, batch=DEFAULT_MAX_BATCH_SIZE
    )
    rounds = [engine_round()]
    results: dict[str, Any] = {
        "benchmark": "served_gpu",
        "date": arguments.date,
        **measure.surroundings(PACKAGES),
        "machine": machine,
        "photos": {"size": arguments.size, "count": len(images), "mean_bytes": sum(map(len, images)) // len(images)},
        "loads": [],
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"served-{arguments.date}-{machine['gpu'].replace(' ', '-').lower()}.json"

    def save() -> None:  # after each model: a run that is cut off leaves what it measured
        results["engine"] = measure.summary([times for times, _ in rounds], DEFAULT_MAX_BATCH_SIZE)
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    options = {"seconds": arguments.seconds}
    with served.serve({}, classifier="torch") as server:
        for model in served.OWN:
            served.put(server, model, "grpc", 8, images, concurrency=[8], **options)  # warm
        served.check(server, "preprocess", images[:4], mean_levels=MEAN_LEVELS)
        single = partial(served.put, server, "preprocess", "grpc", 1, images[:1], concurrency=[1], **options)
        results["overhead_ms"] = served.between(server, single)
        for model, ways in WAYS.items():
            for batch, levels in LOADS.items():
                for shared_memory in ways:
                    what = {"concurrency": levels, "shared_memory": shared_memory, **options}
                    results["loads"] += served.put_load(server, model, "grpc", batch, images, **what)
            rounds.append(engine_round())
            save()
    sys.stderr.writelines(f"{line}\n" for line in [*served.summary(results), f"written: {path}"])


if __name__ == "__main__":
    main()
