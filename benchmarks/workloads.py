"""The photos of the CPU benchmarks: JPEGs of given sizes made of real photos, so that each costs what a real one does.

A large photo is a mosaic: one enlarged from 640 pixels would be smooth, and its Huffman codes, half of the decode, few.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from measure import GRAIN, QUALITY, ROOT, SIZES
from PIL import Image

TILE = 640  # of a mosaic, at most: about the size of the photos that it is made of
WHEELS = {"scikit-image": "0.25.2", "foolbox": "3.3.4"}
PHOTOS = (
    "skimage/data/astronaut.png",
    "skimage/data/coffee.png",
    "skimage/data/chelsea.png",
    "skimage/data/rocket.jpg",
)
IMAGENET = "foolbox/data/imagenet_"  # 20 photos of ImageNet's validation set


@dataclass(frozen=True)
class Workload:
    """Photos of one kind, and how many a batch has."""

    name: str
    sizes: tuple[str, ...]
    count: int
    batch: int
    subsampling: str = "4:2:0"
    progressive: bool = False


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("500x375", ("500x375",), 64, 32),
        Workload("1920x1080", ("1920x1080",), 32, 16),
        Workload("4032x3024", ("4032x3024",), 8, 4),
        Workload("mix", (*["500x375"] * 4, *["1920x1080"] * 2, "4032x3024"), 28, 14),
        Workload("500x375 one by one", ("500x375",), 64, 1),
        Workload("500x375 4:4:4", ("500x375",), 64, 32, subsampling="4:4:4"),
        Workload("1920x1080 4:4:4", ("1920x1080",), 16, 8, subsampling="4:4:4"),
        Workload("500x375 progressive", ("500x375",), 64, 32, progressive=True),
        Workload("1920x1080 progressive", ("1920x1080",), 16, 8, progressive=True),
    )
}


def sources(cache: Path) -> list[Path]:
    """Real photos: the two of this repository, and those inside two wheels where a registry gives them.

    Args:
        cache: where the wheels are, or come to.
    """
    found = sorted((ROOT / "client_examples" / "images").glob("*.jpg"))
    cache.mkdir(parents=True, exist_ok=True)
    for name, version in WHEELS.items():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        pattern = f"{name.replace('-', '_')}-*.whl"
        if not list(cache.glob(pattern)):
            subprocess.run([*command, "--dest", str(cache), f"{name}=={version}"], check=False, capture_output=True)
        for wheel in cache.glob(pattern):
            with zipfile.ZipFile(wheel) as archive:
                names = [entry for entry in archive.namelist() if entry in PHOTOS or entry.startswith(IMAGENET)]
                found += [Path(archive.extract(entry, cache)) for entry in sorted(names)]
    return found


def make(workload: Workload, folder: Path, photos: Sequence[Path], *, seed: int = 0) -> dict[str, Any]:
    """Write the workload's photos into ``folder``, which it makes; what they are."""
    folder.mkdir(parents=True)
    write = partial(_write, workload, folder, photos, seed)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        encoded = list(pool.map(write, range(workload.count)))
    pixels = [np.prod(SIZES[workload.sizes[index % len(workload.sizes)]]) for index in range(workload.count)]
    n_bytes = [len(image) for image in encoded]
    return {
        "count": workload.count,
        "batch": workload.batch,
        "quality": QUALITY,
        "subsampling": workload.subsampling,
        "progressive": workload.progressive,
        "mean_bytes": sum(n_bytes) // workload.count,
        "bits_per_pixel": round(8 * sum(n_bytes) / int(sum(pixels)), 2),
        "made_of": len(photos),
        "sha256": hashlib.sha256(b"".join(encoded)).hexdigest(),
    }


def _write(workload: Workload, folder: Path, photos: Sequence[Path], seed: int, index: int) -> bytes:
    height, width = SIZES[workload.sizes[index % len(workload.sizes)]]
    image = Image.fromarray(_mosaic(height, width, photos, np.random.default_rng((seed, index, height, width))))
    path = folder / f"{index:03}.jpg"
    subsampling, progressive = workload.subsampling, workload.progressive
    image.save(path, "JPEG", quality=QUALITY, subsampling=subsampling, progressive=progressive)
    return path.read_bytes()


def _mosaic(height: int, width: int, photos: Sequence[Path], rng: np.random.Generator) -> np.ndarray:
    """Tiles side by side, each a part of a photo, perhaps mirrored, with grain."""
    rows, columns = (np.linspace(0, side, -(-side // TILE) + 1).astype(int) for side in (height, width))
    pixels = np.empty((height, width, 3), np.uint8)
    for top, bottom in pairwise(rows):
        for left, right in pairwise(columns):
            pixels[top:bottom, left:right] = _tile(bottom - top, right - left, photos, rng)
    grain = rng.integers(-GRAIN, GRAIN + 1, pixels.shape, dtype=np.int8)
    return np.clip(pixels.astype(np.int16) + grain, 0, 255).astype(np.uint8)


def _tile(height: int, width: int, photos: Sequence[Path], rng: np.random.Generator) -> np.ndarray:
    with Image.open(photos[rng.integers(len(photos))]) as photo:
        scale = rng.uniform(0.7, 1.0) * min(photo.width / width, photo.height / height)
        left, top = rng.uniform(0, photo.width - width * scale), rng.uniform(0, photo.height - height * scale)
        box = (left, top, left + width * scale, top + height * scale)
        tile = photo.convert("RGB").resize((int(width), int(height)), Image.Resampling.BICUBIC, box=box)
    pixels = np.asarray(tile)
    return pixels[:, ::-1] if rng.integers(2) else pixels
