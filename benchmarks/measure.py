"""Functions that all benchmarks share: endless batches, timed rounds, statistics, and a description of the machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from importlib import metadata
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from pixprep.cores import cores

ROOT = Path(__file__).parents[1]
QUIET = 0.3
"""Load average below which the machine counts as idle."""


def batches(photos: Sequence[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield batches endlessly. Each batch begins with the photo that follows the last photo of the previous batch."""
    endless = cycle(photos)
    while True:
        yield list(islice(endless, size))


def time_round(run: Callable[[list[bytes]], object], endless: Iterator[list[bytes]], seconds: float) -> list[float]:
    """Run batches for at least ``seconds``, and run at least one batch.

    Return the duration of each batch in seconds.
    """
    taken: list[float] = []
    while not taken or sum(taken) < seconds:
        batch = next(endless)
        start = perf_counter()
        run(batch)
        taken.append(perf_counter() - start)
    return taken


def summary(rounds: Sequence[Sequence[float]], batch: int) -> dict[str, Any]:
    """Return a contender's images/s per round, their median, and the median and p99 of all batch times."""
    rates = [batch * len(taken) / sum(taken) for taken in rounds]
    times = [seconds for taken in rounds for seconds in taken]
    return {
        "images_per_s": round(float(np.median(rates)), 2),
        "images_per_s_of_rounds": [round(rate, 2) for rate in rates],
        "batch_ms": milliseconds(times),
    }


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile of durations in milliseconds, and the number of durations."""
    return {
        "median": round(1e3 * float(np.median(seconds)), 4),
        "p99": round(1e3 * float(np.percentile(seconds, 99)), 4),
        "count": len(seconds),
    }


def ratio(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Return the ratio of our rate to their rate, as the median over the rounds.

    Because the contenders take turns, a slow minute affects both rates.
    """
    rates = zip(ours["images_per_s_of_rounds"], theirs["images_per_s_of_rounds"], strict=True)
    return round(float(np.median([our / their for our, their in rates])), 4)


def options(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder")
    parser.add_argument("--date", default=datetime.now(timezone.utc).strftime("%Y-%m-%d"), help="default: today")
    return parser


def write(arguments: argparse.Namespace, name: str, results: dict[str, Any]) -> None:
    """Write a result.

    The benchmarks call this function after each part, so that an interrupted run keeps its measurements.
    """
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{name.replace(' ', '-').lower()}.json"
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def find(module: str, environments: Sequence[str]) -> tuple[Path | None, str]:
    """Find an interpreter that can import a contender's module: the current one, or one of another environment.

    Returns:
        The interpreter and an empty string, or None and the last import error.
    """
    reason = "no environment exists"
    for python in (Path(sys.executable), *(ROOT / folder / "bin" / "python" for folder in environments)):
        if not python.exists():
            continue
        command = [str(python), "-c", f"import {module}"]
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return python, ""
        reason = (done.stderr.strip().splitlines() or ["no error message"])[-1]
    return None, reason


def say(line: str) -> None:
    """Print a progress message to stderr."""
    sys.stderr.write(f"benchmark: {line}\n")


def surroundings(packages: Sequence[str]) -> dict[str, Any]:
    """Return the commit (from git, or PIXPREP_COMMIT), the system, the processor and the package versions."""
    return {
        "commit": os.environ.get("PIXPREP_COMMIT") or _commit(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": cores(),
        "versions": {name: version for name in packages if (version := _version(name))},
    }


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str | None:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)
