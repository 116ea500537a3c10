"""Measure how long the interpreter's lock (GIL) is held per sample, and how many cores one process can therefore use.

    python benchmarks/lock.py [SAMPLES]

The script compiles ``unlocked.c`` with gcc, and starts itself again with this library preloaded. The library measures
the CPU time of native code that runs without the lock. The remaining CPU time of the process was spent under the lock.
Because CPU times are measured, other programs on the machine hardly change the result.
"""

from __future__ import annotations

import ctypes
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from PIL import Image

import pixprep as pp

PRELOADED = "LOCK_PRELOADED"
SIDE, HEIGHT, WIDTH = 224, 375, 500
TRAINING = [pp.random_resized_crop(height=SIDE, width=SIDE), pp.random_flip()]
END = [pp.normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)), pp.tensor()]
BATCH = 64


def photos(count: int) -> list[bytes]:
    """Return JPEGs of HEIGHT x WIDTH pixels: smooth shapes with noise, about 50 kB each."""
    made = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        small = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        image = np.asarray(Image.fromarray(small).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), np.int16)
        noisy = np.clip(image + rng.normal(0, 6, image.shape), 0, 255).astype(np.uint8)
        memory = io.BytesIO()
        Image.fromarray(noisy).save(memory, "JPEG", quality=90)
        made.append(memory.getvalue())
    return made


def mask(seed: int) -> bytes:
    """Return a PNG mask of 6 x 8 rectangles, which contain class numbers from 0 to 20."""
    small = np.random.default_rng(seed).integers(0, 21, (6, 8), dtype=np.uint8)
    memory = io.BytesIO()
    Image.fromarray(small).resize((WIDTH, HEIGHT), Image.Resampling.NEAREST).save(memory, "PNG")
    return memory.getvalue()


def boxes(seed: int) -> dict[str, Any]:
    """Return eight random boxes with their labels."""
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, (WIDTH / 2, HEIGHT / 2), (8, 2))
    return {"boxes": np.hstack([corners, corners + 100]).astype(np.float32), "labels": np.arange(8)}


def engine(encoded: list[bytes]) -> Iterator[int]:
    """Run batches of the serving pipeline without end, and yield the number of images in each batch."""
    ops = [pp.decode(), pp.resize(256), pp.center_crop(SIDE), *END]
    with pp.Engine(pp.Pipeline(ops), threads=1) as made:
        while True:
            yield len(made.run_batch(encoded[:BATCH]))


def loader(samples: Any, *ops: Any, **options: Any) -> Iterator[int]:
    """Run a Loader without end, and yield the number of samples in each batch."""
    serving = [pp.resize(256, only="serving"), pp.center_crop(SIDE, only="serving")]
    pipeline = pp.Pipeline([pp.decode(), *ops[:-2], *serving, *ops[-2:]]).for_training()
    with pp.Loader(samples, pipeline, batch_size=BATCH, shuffle=True, threads=1, **options) as made:
        while True:
            for batch in made:
                yield len(batch)


def cases(folder: Path) -> dict[str, Callable[[], Iterator[int]]]:
    """Return, for each workload, a function that returns an endless iterator over the sizes of its batches."""
    encoded = photos(4 * BATCH)
    for index, photo in enumerate(encoded):
        path = folder / "files" / f"class{index % 4}" / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photo)
    boxed = [{"image": photo, **boxes(index)} for index, photo in enumerate(encoded)]
    masked = [{"image": photo, "mask": mask(index)} for index, photo in enumerate(encoded)]
    files = pp.read.files(folder / "files")
    return {
        "Engine, serving pipeline": lambda: engine(encoded),
        "Loader, classification": lambda: loader(files, *TRAINING, *END),
        "Loader, boxes": lambda: loader(boxed, *TRAINING, pp.boxes(pad=16), *END),
        "Loader, PNG masks": lambda: loader(masked, *TRAINING, pp.mask(), *END),
    }


def measure(batches: Iterator[int], count: int) -> tuple[float, float, float]:
    """Return the CPU time per sample with the lock and without it, in ms, and how often a sample releases the lock."""
    library = ctypes.CDLL(os.environ[PRELOADED])
    for function in (library.total_unlocked_ns, library.total_releases):
        function.restype = ctypes.c_longlong

    def now() -> np.ndarray:
        return np.array([process_time() * 1e3, library.total_unlocked_ns() / 1e6, library.total_releases()])

    next(batches)
    start, samples = now(), 0
    while samples < count:
        samples += next(batches)
    cpu, unlocked, releases = (now() - start) / samples
    return cpu - unlocked, unlocked, releases


def say(line: str) -> None:
    """Write a line, and flush the standard output."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(count: int) -> None:
    """Measure all workloads, and print a table with one row per workload."""
    with tempfile.TemporaryDirectory() as folder:
        say("| workload | CPU time, ms per sample | under the lock, ms | releases per sample | cores |")
        say("|---|--:|--:|--:|--:|")
        for name, begin in cases(Path(folder)).items():
            rounds = [measure(begin(), count) for _ in range(3)]
            locked, unlocked, releases = np.median(rounds, axis=0)
            cores = (locked + unlocked) / locked
            say(f"| {name} | {locked + unlocked:.2f} | {locked:.3f} | {releases:.1f} | {cores:.1f} |")


def preloaded(folder: str) -> int:
    """Compile the library, run this script with the library preloaded, and return its exit status."""
    library = str(Path(folder) / "unlocked.so")
    source = Path(__file__).with_name("unlocked.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    environment = os.environ | {"LD_PRELOAD": library, PRELOADED: library}
    return subprocess.run([sys.executable, __file__, *sys.argv[1:]], env=environment, check=False).returncode


if __name__ == "__main__":
    if PRELOADED in os.environ:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 2048)
    else:
        with tempfile.TemporaryDirectory() as place:
            sys.exit(preloaded(place))
