"""Measure `pixprep batch` on Ray on one machine: memory over many rows, and rows/s with one and two workers.

    .venv-ray/bin/python benchmarks/ray_batch.py

The photos are JPEGs of 500x375, derived from the two demo photos. docs/scale.md contains the results.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import measure
import psutil
from measure import ROOT, say
from workloads import WORKLOADS, make

import pixprep as pp
import pixprep.ray

PHOTOS = sorted((ROOT / "client_examples" / "images").glob("*.jpg"))
SMALL = pp.Pipeline([pp.decode(), pp.resize(height=32, width=32), pp.tensor(dtype="uint8")])
FULL = pp.Pipeline([pp.decode(), pp.resize(256), pp.center_crop(224), pp.tensor(dtype="uint8")])
WORKERS = (1, 2)
MB = 1 << 20


def main() -> None:
    """Run each part and write its result."""
    parser = measure.options(__doc__)
    parser.add_argument("--only", choices=["memory", "rates"], nargs="+", default=["memory", "rates"])
    parser.add_argument("--rows", type=int, default=100_000, help="number of rows in the run whose memory is measured")
    parser.add_argument("--rate-rows", type=int, default=4000, help="number of rows in each timed run")
    parser.add_argument("--rounds", type=int, default=3, help="number of timed runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photos, _ = make(WORKLOADS["500x375"], PHOTOS)
        for index, photo in enumerate(photos):
            (folder / f"{index}.jpg").write_bytes(photo)
        for part in arguments.only:
            where = measure.surroundings(("pixprep", "numpy", "pyarrow", "ray", "simplejpeg"))
            load = os.getloadavg()[0]
            if part == "memory":
                found = memory(folder, arguments.rows)
            else:
                found = rates(folder, arguments.rate_rows, arguments.rounds)
            result = {**where, "date": arguments.date, "load_average": load, **found}
            measure.write(arguments, f"ray-{part}-{arguments.date}", result)


def memory(folder: Path, rows: int) -> dict[str, Any]:
    """Measure the unique set size (USS) of all processes at ten points of a run."""
    samples: list[dict[str, int]] = []

    def look(done: int, failed: int) -> None:
        if done * 10 // rows > len(samples) or not samples:
            driver = psutil.Process()
            workers = sum(map(_uss, driver.children(recursive=True)))
            samples.append({"rows": done, "failed": failed, "driver_mb": _uss(driver), "others_mb": workers})
            say(f"{done:,} rows: {samples[-1]['driver_mb']} MB in the driver, {workers} MB in Ray and its workers")

    done = _run(folder, SMALL, rows, workers=2, progress=look)
    return {"rows": done.rows, "failed": done.errors, "workers": 2, "seconds": round(done.seconds, 1),
            "samples": samples}  # fmt: skip


def _uss(process: psutil.Process) -> int:
    try:
        return round(process.memory_full_info().uss / MB)
    except psutil.Error:  # the process has ended
        return 0


def rates(folder: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Measure rows/s between the first and the last output file, alternating between the numbers of workers."""
    found: dict[str, list[float]] = {str(workers): [] for workers in WORKERS}
    for _ in range(rounds):
        for workers in WORKERS:
            times: list[tuple[float, int]] = []
            _run(folder, FULL, rows, workers=workers, rows_per_file=100,
                 progress=lambda done, _, times=times: times.append((time.perf_counter(), done)))  # fmt: skip
            (first, before), (last, after) = times[0], times[-1]
            found[str(workers)].append(round((after - before) / (last - first), 1))
            say(f"{workers} workers: {found[str(workers)][-1]} rows/s")
    return {"rows": rows, "rows_per_s": found}


def _run(folder: Path, pipeline: pp.Pipeline, rows: int, *, workers: int, progress: Callable[[int, int], None],
         rows_per_file: int = 1000) -> pixprep.ray.Done:  # fmt: skip
    manifest = folder / "manifest.txt"
    names = sorted(path.name for path in folder.glob("*.jpg"))
    manifest.write_text("\n".join(islice(cycle(names), rows)) + "\n", encoding="utf-8")
    with tempfile.TemporaryDirectory() as output:
        return pixprep.ray.batch(manifest, pipeline, Path(output), rows_per_file=rows_per_file, workers=workers,
                                 progress=progress)  # fmt: skip


if __name__ == "__main__":
    main()
