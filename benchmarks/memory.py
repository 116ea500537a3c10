"""Measure whether the memory of a Loader over 50,000 images of 300 sizes stays constant and is freed.

    python benchmarks/memory.py     one JSON file, and a line of docs/performance-training.md; about a minute

The source lists the files of the training benchmark many times, and every image is read and decoded. The iterator is
deleted once, in the middle of an epoch.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import measure
import numpy as np
from loaders import BATCH, pixprep_loader
from train import PHOTOS, write_photos
from workloads import MIXED, WORKLOADS, make, real_photos

import pixprep as pp

IMAGES = 50_000
REPEATS = 98  # number of times that an epoch contains each file, for an epoch of 25,088 images
DROPPED_AT = 12_500  # number of images after which the iterator is deleted; the next ``for`` loop begins the next epoch
PARTS = 10


def resident_mib() -> float:
    """Return the resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def measured(
    folder: Path, *, images: int = IMAGES, dropped_at: int = DROPPED_AT, again: int = REPEATS
) -> dict[str, Any]:
    """Return the memory in MiB before the run, during the run, without an iterator, and after the Loader is closed."""
    paths = sorted((folder / "files").glob("*/*.jpg")) * again
    source = pp.read.files(paths, labels=[index % 2 for index in range(len(paths))])
    found: dict[str, Any] = {"batch_mib": round(BATCH * 3 * 224 * 224 * 4 / (1 << 20), 1)}
    with pp.Loader(source, pixprep_loader.pipeline(), batch_size=BATCH, shuffle=True) as loader:
        found["before_mib"] = round(resident_mib(), 1)
        samples: list[float] = []
        while len(samples) * BATCH < images:
            batches = iter(loader)
            for batch in batches:
                assert len(batch["label"]) == BATCH
                samples.append(resident_mib())
                count = len(samples) * BATCH
                if count >= images or ("dropped_mib" not in found and count >= dropped_at):
                    break
            del batch, batches
            if "dropped_mib" not in found:
                found["dropped_mib"] = round(resident_mib(), 1)
        found["images"] = len(samples) * BATCH
        found["parts_mib"] = [round(float(np.median(part)), 1) for part in np.array_split(samples, PARTS)]
        found["max_mib"] = round(max(samples), 1)
    found["closed_mib"] = round(resident_mib(), 1)
    return found


def main() -> None:
    """Run the measurement and write the result."""
    arguments = measure.options(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_photos(make(WORKLOADS[MIXED], real_photos())[0], Path(folder))
        found = measured(Path(folder))
    assert PHOTOS * REPEATS > DROPPED_AT
    results = {**measure.surroundings(("pixprep", "numpy", "simplejpeg")), "date": arguments.date, **found}
    measure.write(arguments, f"memory-{arguments.date}", results)
    measure.say(str(found))


if __name__ == "__main__":
    main()
