"""Run one contender of ``loaders`` in its own process. Requests are lines of JSON with a number of batches.

    train_worker.py CONTENDER FOLDER THREADS

The process starts with as many cores as threads, which its worker processes inherit. The process imports only the
contender and the contender's dependencies.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from importlib import metadata
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np


def main(name: str, folder: str, threads: int) -> None:
    """Respond to requests until stdin is closed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of libraries must not mix with the responses
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    contender = importlib.import_module(f"loaders.{name}")
    versions = {each: metadata.version(each) for each in contender.PACKAGES if _is_installed(each)}
    prepared: dict[str, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        argument = asked["argument"]
        if str(argument) not in prepared:
            prepared[str(argument)] = contender.prepare(Path(folder), threads, argument)
        taken, facts = [], {}
        start = perf_counter()
        for images, labels in islice(prepared[str(argument)], asked["count"]):
            now = perf_counter()
            taken.append(now - start)
            facts = facts or {"shape": np.shape(images), "labels": len(labels), **_moments(images)}
            start = perf_counter()
        answers.write(json.dumps({"taken": taken, "versions": versions, **facts}) + "\n")
        answers.flush()


def _moments(images: np.ndarray) -> dict[str, float | str]:
    values = np.asarray(images)
    return {"dtype": str(values.dtype), "mean": float(values.mean()), "std": float(values.std())}


def _is_installed(package: str) -> bool:
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:  # for example, one of two builds of OpenCV
        return False


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
