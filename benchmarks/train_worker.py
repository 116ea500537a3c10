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
from loaders import task_of


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
        for images, targets in islice(prepared[str(argument)], asked["count"]):
            now = perf_counter()
            taken.append(now - start)
            facts = facts or _facts(task_of(name), images, targets)
            start = perf_counter()
        answers.write(json.dumps({"taken": taken, "versions": versions, **facts}) + "\n")
        answers.flush()


def _facts(task: str, images: Any, targets: Any) -> dict[str, Any]:
    """Return the facts about a batch that ``train.check`` verifies."""
    values = np.asarray(images)
    facts = {"shape": values.shape, "labels": len(targets), "dtype": str(values.dtype)}
    moments = {"mean": float(values.mean()), "std": float(values.std())}
    return {**facts, **moments, **({"fit": fit(values, targets)} if task in ("masks", "boxes") else {})}


def fit(images: np.ndarray, targets: Any) -> float:
    """Return how well masks or boxes match the brightness of their images, from which the benchmark computed them.

    For masks, the result is the correlation of class and brightness. For boxes, it is the mean brightness of their
    pixels minus that of the whole image, divided by the standard deviation of the image. A wrong crop window or a
    missing flip reduces both.

    Args:
        images: Tensors, (n, 3, height, width) or (n, height, width, 3).
        targets: Masks, (n, height, width) or (n, height, width, 1), or a list of boxes, (boxes, 4) xyxy in pixels.
    """
    gray = images.mean(axis=1 if images.shape[1] == 3 else 3)
    if not isinstance(targets, list):
        return float(np.corrcoef(gray.ravel(), np.asarray(targets).ravel())[0, 1])
    inside = []
    for image, boxes in zip(gray, targets, strict=True):
        for left, top, right, bottom in np.rint(boxes).astype(int):
            pixels = image[top:bottom, left:right]
            inside.append((pixels.mean() - image.mean()) / image.std() if pixels.size else 0.0)
    return float(np.mean(inside))


def _is_installed(package: str) -> bool:
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:  # for example, one of two builds of OpenCV
        return False


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
