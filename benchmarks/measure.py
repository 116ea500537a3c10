"""What every benchmark needs and no device: the photos, the statistics, and the bytes that a kernel must move."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image

from pixprep.kernels import launch
from pixprep.plan import TensorPlan
from pixprep.profiles import resampling

ROOT = Path(__file__).parents[1]
SIZES = {"500x375": (375, 500), "1920x1080": (1080, 1920), "4032x3024": (3024, 4032)}
QUALITY = 90
GRAIN = 6  # levels either way, so that an enlarged photo costs an entropy decoder what a photo of that size does


def photos(height: int, width: int, count: int, *, seed: int = 0) -> list[bytes]:
    """Different JPEGs, 4:2:0, of one size: crops of the two example photos, enlarged, mirrored or not, with grain."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(partial(_photo, height, width, seed), range(count)))


def _photo(height: int, width: int, seed: int, index: int) -> bytes:
    rng = np.random.default_rng((seed, index, height, width))
    name = ("china.jpg", "flower.jpg")[index % 2]
    with Image.open(ROOT / "client_examples" / "images" / name) as photo:
        share = rng.uniform(0.5, 1.0)
        scale = share * min(photo.width / width, photo.height / height)
        box_width, box_height = width * scale, height * scale
        left, top = rng.uniform(0, photo.width - box_width), rng.uniform(0, photo.height - box_height)
        box = (left, top, left + box_width, top + box_height)
        pixels = np.asarray(photo.resize((width, height), Image.Resampling.BICUBIC, box=box))
    if rng.integers(2):
        pixels = pixels[:, ::-1]
    grain = rng.integers(-GRAIN, GRAIN + 1, pixels.shape, dtype=np.int8)
    noisy = np.clip(pixels.astype(np.int16) + grain, 0, 255).astype(np.uint8)
    encoded: bytes = simplejpeg.encode_jpeg(noisy, QUALITY, colorsubsampling="420")
    return encoded


def batches(photos: Sequence[bytes], size: int) -> Iterator[list[bytes]]:
    """Batches without end, of photos that follow on from the batch before."""
    position = 0
    while True:
        yield [photos[(position + index) % len(photos)] for index in range(size)]
        position = (position + size) % len(photos)


def time_round(run: Callable[[list[bytes]], object], source: Iterator[list[bytes]], seconds: float) -> list[float]:
    """Seconds that each batch took, of batches run one after the other for at least ``seconds``, at least one."""
    taken: list[float] = []
    while not taken or sum(taken) < seconds:
        batch = next(source)
        start = perf_counter()
        run(batch)
        taken.append(perf_counter() - start)
    return taken


def summary(rounds: Sequence[Sequence[float]], batch: int) -> dict[str, Any]:
    """The numbers of one contender: images/s of each round and their median; median and p99 of all batches' times."""
    rates = [batch * len(taken) / sum(taken) for taken in rounds]
    times = [seconds for taken in rounds for seconds in taken]
    return {
        "images_per_s": round(float(np.median(rates)), 2),
        "images_per_s_of_rounds": [round(rate, 2) for rate in rates],
        "batch_ms": milliseconds(times),
    }


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and count."""
    return {
        "median": round(1e3 * float(np.median(seconds)), 4),
        "p99": round(1e3 * float(np.percentile(seconds, 99)), 4),
        "count": len(seconds),
    }


def ratio(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The median of the rounds' ratios: the two ran by turns, so that a slow minute slows both."""
    rates = zip(ours["images_per_s_of_rounds"], theirs["images_per_s_of_rounds"], strict=True)
    return round(float(np.median([our / their for our, their in rates])), 4)


def least_bytes(plan: TensorPlan, sizes: Sequence[tuple[int, int]]) -> int:
    """What must pass through device memory for images of these (height, width), however the kernels are written.

    The part of the source that the windows see, read once, and the tensor, written once. What lies between the two
    passes, the windows and the tables are not counted: they could stay in a cache.
    """
    return sum(_source_bytes(plan, height, width) + plan.spec.n_bytes for height, width in sizes)


def _source_bytes(plan: TensorPlan, height: int, width: int) -> int:
    placement = plan.geometry.place(height, width)
    top, left, bottom, right = placement.source
    how = resampling(plan.geometry.resize, placement)
    rows, columns = launch.axis(how.rows, bottom - top), launch.axis(how.columns, right - left)
    return (rows.end - rows.begin) * (columns.end - columns.begin) * len(plan.channels)


def surroundings(packages: Sequence[str]) -> dict[str, Any]:
    """Where a result comes from: the commit (from git, or PIXPREP_COMMIT), the processor, the packages' versions."""
    return {
        "commit": os.environ.get("PIXPREP_COMMIT") or _commit(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {name: version for name in packages if (version := _version(name))},
    }


def _commit() -> str | None:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)
