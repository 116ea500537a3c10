"""What draws, placements and windows take of an image's time in training: CPU time in one thread, one process.

python benchmarks/draws.py           one JSON file, and a line of docs/performance-training.md; half a minute

The windows are measured in calls of their own, in memory that is there: in a batch the call that makes them resizes,
too.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from time import process_time

import measure
import numpy as np
from PIL import Image

import pixprep as pp
from pixprep.kernels.resampling import axes, machine_code
from pixprep.plan.plan import TensorPlan
from pixprep.profiles import PROFILES

BATCH, ROUNDS = 64, 7
PHOTO = Path(__file__).parents[1] / "client_examples" / "images" / "china.jpg"
SAMPLE = {"boxes": np.array([[10, 20, 200, 150], [100, 100, 300, 300]], np.float32), "labels": np.arange(2)}
CHAINS = {
    "random resized crop, flip": [pp.random_resized_crop(224), pp.random_flip()],
    "SSD": [pp.random_zoom_out(), pp.random_iou_crop(), pp.resize(height=300, width=300), pp.random_flip(), pp.boxes()],
}


def photos() -> list[bytes]:
    """JPEGs of about 375 x 500 pixels, no two of one size after the other."""
    files = []
    with Image.open(PHOTO) as photo:
        for index in range(BATCH):
            file = io.BytesIO()
            photo.crop((index, 0, index + 500 + index % 7, 375 + index % 5)).save(file, "JPEG", quality=90)
            files.append(file.getvalue())
    return files


def measured(ops: list[pp.ops.Op], encoded: list[bytes]) -> dict[str, float]:
    """Microseconds an image: the median of rounds in which every part has its turn."""
    training = pp.Pipeline([pp.decode(), *ops, pp.normalize(mean=0.5, std=0.5), pp.tensor(only="training")])
    plan, tensor = training.plan, training.plan.outputs["tensor"]
    assert isinstance(tensor, TensorPlan)
    resize, code = tensor.geometry.resize, machine_code()
    assert resize is not None
    assert code is not None, "windows are made in machine code: pip install pixprep[fast]"
    formula = PROFILES[resize.like].formula(resize.method)
    numbers = plan.draw(seed=0, epoch=0, indices=range(BATCH))
    placed = [plan.placing(each, SAMPLE)(375, 500).placements["tensor"] for each in numbers]

    memory, scratch = np.zeros(1 << 20, np.int32), np.empty(1 << 12)
    there = {"memory": memory.ctypes.data, "scratch": scratch.ctypes.data}

    def windows() -> None:
        for placement in placed:
            rows, columns = axes(resize, placement)
            for axis, group in ((rows, 1), (columns, code.neighbours(4))):
                if axis.length != axis.out_length:
                    taps = code.most_taps(formula, axis, group)
                    assert (2 + taps) * (axis.end - axis.begin) <= memory.size
                    assert taps <= scratch.size
                    code.make(formula, axis, group, taps, **there)

    with pp.Engine(training, threads=1) as engine:
        parts: dict[str, Callable[[], object]] = {
            "image": lambda: engine.run_batch(encoded, places=[plan.placing(each, SAMPLE) for each in numbers]),
            "draw": lambda: plan.draw(seed=0, epoch=1, indices=range(BATCH)),
            "place": lambda: [plan.placing(each, SAMPLE)(375, 500) for each in numbers],
            "windows": windows,
        }
        times: dict[str, list[float]] = {name: [] for name in parts}
        for _ in range(ROUNDS):
            for name, part in parts.items():
                start = process_time()
                part()
                times[name].append(1e6 * (process_time() - start) / BATCH)
    return {name: float(np.median(each)) for name, each in times.items()}


def main() -> None:
    """Measure, and write the result."""
    arguments = measure.options(__doc__).parse_args()
    encoded = photos()
    results = {
        **measure.surroundings(("pixprep", "numpy", "simplejpeg", "llvmlite")),
        "date": arguments.date,
        "load_average": os.getloadavg()[0],
        "chains": {},
    }
    for name, ops in CHAINS.items():
        found = measured(ops, encoded)
        found["image"] += found["draw"]
        share = sum(found[part] for part in ("draw", "place", "windows")) / found["image"]
        results["chains"][name] = {"share": round(share, 4), "us": {part: round(us, 1) for part, us in found.items()}}
        measure.say(f"{name}: {', '.join(f'{part} {us:,.1f} us' for part, us in found.items())}: {share:.1%}")
    measure.write(arguments, f"draws-{arguments.date}", results)


if __name__ == "__main__":
    main()
