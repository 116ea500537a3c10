"""Creates the photos of the benchmarks: JPEGs of given sizes.

They are derived from real photos, and decoding them takes about as long as decoding real photos.

Large photos are mosaics. A photo enlarged from 640 pixels would be smooth and have few Huffman codes, whose decoding
takes half of the time.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from measure import ROOT
from PIL import Image

from pixprep.cores import cores

Size = tuple[int, int]
"""(height, width) in pixels."""

SIZES: dict[str, Size] = {"500x375": (375, 500), "1920x1080": (1080, 1920), "4032x3024": (3024, 4032)}
QUALITY = 90
COUNT = 256
GRAIN = 6  # maximum noise in pixel values
TILE = 640  # maximum side length of a mosaic's tile, about the size of the original photos
MIXED, EQUAL = "300 sizes", "300 of one size"
MEDIUM = "640x480"
WHEELS = {"scikit-image": "0.25.2", "foolbox": "3.3.4"}
PHOTOS = tuple(f"skimage/data/{name}" for name in ("astronaut.png", "coffee.png", "chelsea.png", "rocket.jpg"))
IMAGENET = "foolbox/data/imagenet_"  # 20 photos of ImageNet's validation set
CARRIED = ROOT / "build" / "gpu_hour" / "photos"
"""Photos that prepare_hour.py has copied to a GPU machine; see tools/gpu_hour."""


@dataclass(frozen=True)
class Workload:
    """Set of photos whose sizes cycle through ``sizes``. The number of photos is a multiple of the batch size."""

    name: str
    sizes: Sequence[Size]
    count: int
    batch: int
    subsampling: str = "4:2:0"
    progressive: bool = False


def different_sizes(count: int, around: Size) -> list[Size]:
    """Return different sizes with a given mean area.

    Areas are 0.5 to 1.5 times the mean, and aspect ratios are from 9:16 to 16:9.

    Only sizes that all libraries resize to the same size are returned: some libraries round the longer side down, some
    to the nearest pixel.
    """
    rng = np.random.default_rng(count)
    found: dict[Size, None] = {}
    while len(found) < count:
        area, aspect = around[0] * around[1] * rng.uniform(0.5, 1.5), (16 / 9) ** rng.uniform(-1, 1)
        shorter, longer = sorted(size := (round((area / aspect) ** 0.5), round((area * aspect) ** 0.5)))
        if 256 * longer % shorter < 0.4 * shorter:
            found[size] = None
    return list(found)


_SMALL, _LARGE, _HUGE = SIZES.values()
WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("500x375", [_SMALL], 64, 32),
        Workload("1920x1080", [_LARGE], 32, 16),
        Workload("4032x3024", [_HUGE], 8, 4),
        Workload(MIXED, different_sizes(300, _SMALL), 300, 30),
        Workload(EQUAL, [_SMALL], 300, 30),
        Workload("500x375 one by one", [_SMALL], 64, 1),
        Workload("500x375 4:4:4", [_SMALL], 64, 32, subsampling="4:4:4"),
        Workload("1920x1080 4:4:4", [_LARGE], 16, 8, subsampling="4:4:4"),
        Workload("500x375 progressive", [_SMALL], 64, 32, progressive=True),
        Workload("1920x1080 progressive", [_LARGE], 16, 8, progressive=True),
        Workload("500x375 by 8", [_SMALL], 64, 8),
        Workload("320x240", [(240, 320)], 64, 32),
        Workload(MEDIUM, [(480, 640)], 32, 8),
        Workload("500x375 arrays", [_SMALL], 16, 16),
        Workload("text lines", [(64, 480)], 256, 32),
    )
}


def real_photos(cache: Path = ROOT / "build" / "benchmarks") -> list[Path]:
    """Return real photos: two from this repository, and others from two wheels if the registry provides them.

    A machine without a network uses the photos that were copied to it.

    Args:
        cache: Folder into which the wheels are downloaded.
    """
    if carried := sorted(CARRIED.glob("*")):
        return carried
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


def make(workload: Workload, photos: Sequence[Path], *, seed: int = 0) -> tuple[list[bytes], dict[str, Any]]:
    """Return the photos of a workload, derived from ``photos``, and a description of them."""
    with ThreadPoolExecutor(cores()) as pool:
        encoded = list(pool.map(partial(_photo, workload, photos, seed), range(workload.count)))
    pixels = sum(height * width for height, width in map(partial(_size, workload), range(workload.count)))
    n_bytes = sum(map(len, encoded))
    return encoded, {
        "count": workload.count,
        "batch": workload.batch,
        "quality": QUALITY,
        "subsampling": workload.subsampling,
        "progressive": workload.progressive,
        "megapixels": pixels / 1e6,
        "mean_bytes": n_bytes // workload.count,
        "bits_per_pixel": round(8 * n_bytes / pixels, 2),
        "made_of": len(photos),
        "sha256": hashlib.sha256(b"".join(encoded)).hexdigest(),
    }


def photos(name: str, count: int | None = None) -> list[bytes]:
    """Return the photos of the workload with this name.

    The default of ``count`` is 256, or the number of sizes of the workload.
    """
    sizes = WORKLOADS[name].sizes
    made, _ = make(Workload(name, sizes, count or max(len(sizes), COUNT), 1), real_photos())
    return made


def _size(workload: Workload, index: int) -> Size:
    return workload.sizes[index % len(workload.sizes)]


def _photo(workload: Workload, photos: Sequence[Path], seed: int, index: int) -> bytes:
    height, width = _size(workload, index)
    image = Image.fromarray(_mosaic(height, width, photos, np.random.default_rng((seed, index, height, width))))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY, subsampling=workload.subsampling, progressive=workload.progressive)
    return file.getvalue()


def _mosaic(height: int, width: int, photos: Sequence[Path], rng: np.random.Generator) -> np.ndarray:
    """Return a mosaic of tiles, which are crops of photos, randomly mirrored and with added noise."""
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
