"""Parts that every benchmark needs: batches without end, rounds, their statistics, and where a result comes from."""

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
"""The load average below which nothing else runs."""


def batches(photos: Sequence[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield batches endlessly; each continues with the photos after the previous batch."""
    endless = cycle(photos)
    while True:
        yield list(islice(endless, size))


def time_round(run: Callable[[list[bytes]], object], endless: Iterator[list[bytes]], seconds: float) -> list[float]:
    """Seconds that each batch took: batches one after the other for at least ``seconds``, at least one."""
    taken: list[float] = []
    while not taken or sum(taken) < seconds:
        batch = next(endless)
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


def options(doc: str | None) -> argparse.ArgumentParser:
    """Options that the command line of every benchmark has."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder")
    parser.add_argument("--date", default=datetime.now(timezone.utc).strftime("%Y-%m-%d"), help="default: today")
    return parser


def write(arguments: argparse.Namespace, name: str, results: dict[str, Any]) -> None:
    """Write a result; called after each part, so that a run that is cut off leaves what it measured."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{name.replace(' ', '-').lower()}.json"
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def find(module: str, environments: Sequence[str]) -> tuple[Path | None, str]:
    """The interpreter that imports a contender's module, or why the last of them does not.

    This one is asked first, then those of the project's environments.
    """
    reason = "no environment here"
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
    """For whoever waits."""
    sys.stderr.write(f"benchmark: {line}\n")


def surroundings(packages: Sequence[str]) -> dict[str, Any]:
    """Where a result comes from: the commit (from git, or PIXPREP_COMMIT), the processor, the packages' versions."""
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
