"""Compare pixprep's conversion of clips to tensors with other libraries; write a JSON file and tables of docs/video.md.

    python benchmarks/video.py          16 frames of clips of three kinds, one and two threads; the first frame and
                                        the tensor of a single clip; about 5 minutes
    python benchmarks/video.py --quick  one cell, one round; 1 minute

As in ``train.py``, each contender runs in its own process group, with as many cores as threads, and is stopped while
others run. Each setting of a contender is tried on a few clips, and the best one is measured in the rounds. The last
cell repeats the first one, to show how far the machine's speed has drifted.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import av
import measure
import numpy as np
from loaders import SIDE
from measure import say
from PIL import Image
from train import ENVIRONMENTS, FOLDER, AbsentError, Group

PHOTO = measure.ROOT / "client_examples" / "images" / "china.jpg"
CONTENDERS = ("pixprep", "torchcodec", "decord", "opencv")
OURS, ALONE = "pixprep", "pixprep_alone"
FRAMES, RATE = 16, 30
ROUNDS = 5
TRIED = 2  # number of batches per setting; the faster one counts
HOPELESS = 2.0  # if a setting is slower than the best one by this factor, it runs only one batch
CLOSE = 0.02  # tolerance for the means and the standard deviations of two libraries' tensors


@dataclass(frozen=True)
class Kind:
    """Kind of synthetic clip: a camera moves over a photo, and noise is added."""

    title: str
    codec: str
    height: int
    width: int
    frames: int
    between_keys: int
    options: dict[str, str]


KINDS = {
    "long.mp4": Kind("720p H.264", "libx264", 720, 1280, 300, 250, {}),
    "short.mp4": Kind("720p H.264, a key frame every 12", "libx264", 720, 1280, 300, 12, {}),
    "h265.mp4": Kind("1080p H.265, 5 s", "libx265", 1080, 1920, 150, 250, {"preset": "superfast"}),
}


@dataclass(frozen=True)
class Cell:
    """Case that is measured: a clip, the number of clips per batch, and the number of threads."""

    clip: str
    threads: int
    clips: int
    frames: int = FRAMES
    is_again: bool = False


CELLS = (
    Cell("long.mp4", threads=1, clips=2),
    Cell("long.mp4", threads=2, clips=4),
    Cell("short.mp4", threads=1, clips=2),
    Cell("h265.mp4", threads=1, clips=2),
    Cell("long.mp4", threads=2, clips=1, frames=1),
    Cell("long.mp4", threads=2, clips=1),
    Cell("long.mp4", threads=1, clips=2, is_again=True),
)


def write_clip(path: Path, kind: Kind) -> int:
    """Encode a clip, and return its size in bytes."""
    height, width = kind.height, kind.width
    photo = Image.open(PHOTO).resize((width + kind.frames, height + kind.frames // 2), Image.Resampling.BICUBIC)
    pixels = np.asarray(photo).astype(np.int16)
    noise = np.random.default_rng(0).integers(-4, 5, (8, height, width, 3), np.int16)
    with av.open(str(path), "w") as file:
        track = file.add_stream(kind.codec, rate=RATE, options=kind.options)
        track.width, track.height, track.pix_fmt = width, height, "yuv420p"
        track.codec_context.gop_size = kind.between_keys
        for index in range(kind.frames):
            seen = pixels[index // 2 : index // 2 + height, index : index + width]
            frame = (seen + noise[index % 8]).clip(0, 255).astype(np.uint8)
            file.mux(track.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        file.mux(track.encode())
    return path.stat().st_size


class Contender:
    """Runs a contender in one process group per number of threads."""

    def __init__(self, name: str, python: Path, folder: Path, stack: ExitStack) -> None:
        self._groups: dict[int, Group] = {}
        self._make = name, python, folder, stack
        command = [str(python), "-c", f"import loaders.clips.{name} as found, json; print(json.dumps(found.SETTINGS))"]
        words = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=True).stdout
        self._settings: list[str] = json.loads(words.splitlines()[-1])

    def trials(self, threads: int) -> Iterator[tuple[str, int]]:
        """Yield pairs of a setting and a number of FFmpeg threads per clip."""
        for setting in self._settings or [""]:
            for own in sorted({1, threads}) if self._settings else [1]:
                yield setting, own

    def take(self, cell: Cell, trial: tuple[str, int]) -> dict[str, Any]:
        """Run one batch, and return the facts that the process reports."""
        name, python, folder, stack = self._make
        if cell.threads not in self._groups:
            log = stack.enter_context((folder / f"{name}-{cell.threads}.log").open("w+", encoding="utf-8"))
            self._groups[cell.threads] = Group(python, f"clips.{name}", folder, cell.threads, argument=None, log=log)
            stack.callback(self._groups[cell.threads].stop)
        group = self._groups[cell.threads]
        group.argument = (cell.clip, cell.clips, cell.frames, *trial)
        return group.take(1)


def check(name: str, found: dict[str, Any], cell: Cell, expected: dict[str, Any] | None) -> None:
    """Reject a contender that does not perform the whole task.

    Raises:
        AbsentError: The shape, dtype or range of values is wrong.
    """
    shape, clips = tuple(found["shape"]), (cell.clips, cell.frames)
    if found["dtype"] != "float32" or shape not in ((*clips, 3, SIDE, SIDE), (*clips, SIDE, SIDE, 3)):
        raise AbsentError(f"not timed: {name} returns {found['dtype']} {shape}")
    if expected and any(abs(found[key] - expected[key]) > CLOSE for key in ("mean", "std")):
        raise AbsentError(
            f"not timed: {name} returns tensors with mean {found['mean']:.3f} and standard deviation {found['std']:.3f}"
        )


def best(
    name: str, contender: Contender, cell: Cell, expected: dict[str, Any] | None
) -> tuple[tuple[str, int], dict[str, Any]]:
    """Return the fastest trial, and the facts about the tensors of the last trial with the rates of all trials."""
    best_times: dict[tuple[str, int], float] = {}
    found: dict[str, Any] = {}
    for trial in contender.trials(cell.threads):
        took: list[float] = []
        while len(took) < TRIED and not (took and best_times and took[0] > HOPELESS * min(best_times.values())):
            found = contender.take(cell, trial)
            check(name, found, cell, expected)
            took.append(found["taken"][0])
        best_times[trial] = min(took)
    rates = {f"{setting}, {own}": round(cell.clips / took, 2) for (setting, own), took in best_times.items() if setting}
    return min(best_times, key=lambda trial: best_times[trial]), {**found, "tried": rates}


def run_cell(contenders: dict[str, Contender], cell: Cell, rounds: int, absent: dict[str, str]) -> dict[str, Any]:
    """Measure one cell. With two threads, also measure pixprep with one thread for the same number of rounds."""
    entries: dict[str, tuple[Contender, Cell, tuple[str, int]]] = {}
    facts: dict[str, dict[str, Any]] = {}
    for name, contender in contenders.items():
        try:
            trial, facts[name] = best(name, contender, cell, facts.get(OURS))
        except AbsentError as error:
            absent[name] = str(error)
            say(f"MISSING {name}: {error}")
            continue
        entries[name] = contender, cell, trial
    if cell.threads > 1 and cell.clips > 1:
        entries[ALONE] = contenders[OURS], Cell(cell.clip, 1, cell.clips // cell.threads), entries[OURS][2]
    taken: dict[str, list[dict[str, Any]]] = {name: [] for name in entries}
    for index in range(rounds):
        for name in list(entries) if index % 2 == 0 else list(reversed(entries)):
            contender, its, trial = entries[name]
            taken[name].append(contender.take(its, trial))
    results = {}
    for name, (_, its, (setting, own)) in entries.items():
        cpu_s = [found["cpu_s"] for found in taken[name]]
        results[name] = {
            **measure.summary([found["taken"] for found in taken[name]], its.clips),
            "cpu_ms_per_clip": round(1e3 * float(np.median(cpu_s)) / its.clips, 1),
            "setting": setting,
            "ffmpeg_threads": own,
            "tried": facts[name]["tried"] if name in facts else {},
            "versions": taken[name][0]["versions"],
        }
        ratio = measure.ratio(results[OURS], results[name])
        say(f"{cell}: {name} ({setting}, {own}): {results[name]['images_per_s']:.2f} clips/s, {ratio:.2f}")
    return {**asdict(cell), "contenders": results}


def run(cells: Sequence[Cell], rounds: int, results: dict[str, Any]) -> Iterator[None]:
    """Measure each cell, and add the results to ``results``."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in {cell.clip: None for cell in cells}:
            results["clips"][name] = {**asdict(KINDS[name]), "bytes": write_clip(folder / name, KINDS[name])}
        contenders: dict[str, Contender] = {}
        for name in CONTENDERS:
            python, reason = measure.find(f"loaders.clips.{name}", ENVIRONMENTS)
            if python is None:
                results["absent"][name] = reason
                say(f"MISSING {name}: {reason}")
            else:
                contenders[name] = Contender(name, python, folder, stack)
        for cell in cells:
            results["cells"].append(run_cell(contenders, cell, rounds, results["absent"]))
            yield


def main() -> None:
    """Run the benchmark, and write the result after each cell."""
    parser = measure.options(__doc__)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else ROUNDS
    results: dict[str, Any] = {
        **measure.surroundings(("pixprep", "numpy", "av")),
        "date": arguments.date,
        "load_average": os.getloadavg()[0],
        "rounds": rounds,
        "clips": {},
        "absent": {},
        "cells": [],
    }
    for _ in run(CELLS[:1] if arguments.quick else CELLS, rounds, results):
        measure.write(arguments, f"video-{arguments.date}{'-quick' if arguments.quick else ''}", results)


if __name__ == "__main__":
    main()
