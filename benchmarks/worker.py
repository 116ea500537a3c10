"""Run one contender in its own process. Requests and responses are lines of JSON.

    worker.py MODULE FILTER THREADS BATCH FOLDER        FOLDER contains the photos of a workload

The process imports only the contender and the contender's dependencies, so that their import time and memory can be
measured.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from time import perf_counter, process_time


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # not installed, for example one of two builds of OpenCV
    return found


def main(name: str, filter_name: str, threads: int, batch: int, folder: str) -> None:
    """Respond to requests until stdin is closed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of libraries must not mix with the responses
    start = perf_counter()
    contender = importlib.import_module(name)
    import_s = perf_counter() - start
    photos = [path.read_bytes() for path in sorted(Path(folder).glob("*.jpg"))]

    def group(index: int) -> list[bytes]:
        return [photos[(index * batch + place) % len(photos)] for place in range(batch)]

    def answer(**words: object) -> None:
        answers.write(json.dumps(words) + "\n")
        answers.flush()

    try:
        run = contender.prepare(filter_name, threads)
    except NotImplementedError:
        answer(state="absent")
        return
    answer(
        state="ready",
        import_s=import_s,
        python=sys.version.split()[0],
        versions=_versions(contender.PACKAGES),
        mean_levels=getattr(contender, "MEAN_LEVELS", None),
    )
    for line in sys.stdin:
        order = json.loads(line)
        if "check" in order:
            tensors = run(photos[: order["count"]])
            numpy = importlib.import_module("numpy")
            arrays = tensors.as_array() if hasattr(tensors, "as_array") else tensors
            numpy.save(order["check"], numpy.stack([numpy.asarray(each) for each in arrays]))
            answer()
        else:
            taken = []
            cpu_start = process_time()
            for index in range(order["first"], order["first"] + order["count"]):
                images = group(index)
                start = perf_counter()
                run(images)
                taken.append(perf_counter() - start)
            answer(taken=taken, cpu_s=process_time() - cpu_start, peak_mib=_peak_mib())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
