"""Clips to tensors beside peers: one command, one JSON file.

    python benchmarks/video.py          16 of 300 frames of 720p H.264, one and two threads; about 3 minutes

As in ``train.py`` each contender runs in a process group of its own, and is stopped while others have their turn. Its
threads share as many cores, and each decoder has one thread.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import av
import measure
import numpy as np
from loaders.clips import CLIPS, SIDE
from measure import say
from PIL import Image
from train import ENVIRONMENTS, AbsentError, Group

PHOTO = measure.ROOT / "client_examples" / "images" / "china.jpg"
CONTENDERS = ("pixprep", "torchcodec", "decord", "opencv")
HEIGHT, WIDTH, COUNT, RATE = 720, 1280, 300, 30
FRAMES = 16
ROUNDS, BATCHES = 5, 3


def write_clips(folder: Path) -> int:
    """A camera that moves over a photo, with some noise, by x264's defaults; the bytes of one clip."""
    photo = Image.open(PHOTO).resize((WIDTH + COUNT, HEIGHT + COUNT // 2), Image.Resampling.BICUBIC)
    pixels = np.asarray(photo)
    numbers = np.random.default_rng(0)
    noise = numbers.integers(-4, 5, (8, HEIGHT, WIDTH, 3))
    path = folder / "0.mp4"
    with av.open(str(path), "w") as file:
        track = file.add_stream("libx264", rate=RATE)
        track.width, track.height, track.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for index in range(COUNT):
            seen = pixels[index // 2 : index // 2 + HEIGHT, index : index + WIDTH]
            frame = (seen + noise[index % 8]).clip(0, 255).astype(np.uint8)
            file.mux(track.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        file.mux(track.encode())
    for index in range(1, CLIPS):
        (folder / f"{index}.mp4").write_bytes(path.read_bytes())
    return path.stat().st_size


def run_cell(names: dict[str, Path], folder: Path, threads: int, frames: int, absent: dict[str, str]) -> dict[str, Any]:
    """The numbers of one number of threads and of frames."""
    with ExitStack() as stack:
        groups: dict[str, Group] = {}
        for name, python in names.items():
            log = stack.enter_context((folder / f"{name}-{threads}-{frames}.log").open("w+", encoding="utf-8"))
            group = Group(python, f"clips.{name}", folder, threads, workers=frames, log=log)
            stack.callback(group.stop)
            try:
                facts = group.take(1)
            except AbsentError as error:
                absent[name] = str(error)
                say(f"MISSING {name}: {error}")
                continue
            shape = tuple(facts["shape"])
            if facts["dtype"] != "float32" or shape not in (
                (CLIPS, frames, 3, SIDE, SIDE),
                (CLIPS, frames, SIDE, SIDE, 3),
            ):
                raise SystemExit(f"{name} gives {facts['dtype']} {shape}")
            groups[name] = group
        for index in range(ROUNDS):
            for name in list(groups) if index % 2 == 0 else list(reversed(groups)):
                groups[name].rounds.append(groups[name].take(BATCHES))
        results = {
            name: {
                **measure.summary([found["taken"] for found in group.rounds], CLIPS),
                "cpu_ms_per_clip": round(
                    1e3 * sum(found["cpu_s"] for found in group.rounds) / (CLIPS * BATCHES * ROUNDS), 2
                ),
                "versions": group.rounds[0]["versions"],
            }
            for name, group in groups.items()
        }
    ours = results["pixprep"]
    for name, theirs in results.items():
        theirs["pixprep_is"] = measure.ratio(ours, theirs)
        rate, cpu = theirs["images_per_s"], theirs["cpu_ms_per_clip"]
        say(f"{frames} frames, {threads} threads, {name}: {rate:.2f} clips/s, {cpu:.0f} ms CPU, {theirs['pixprep_is']}")
    return {"frames": frames, "threads": threads, "contenders": results}


def main() -> None:
    """Measure, and write the result after each cell."""
    arguments = measure.options(__doc__).parse_args()
    load = os.getloadavg()[0]
    names, absent = {}, {}
    for name in CONTENDERS:
        python, reason = measure.find(f"loaders.clips.{name}", ENVIRONMENTS)
        if python is None:
            absent[name] = reason
            say(f"MISSING {name}: {reason}")
        else:
            names[name] = python
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        results: dict[str, Any] = {
            **measure.surroundings(("pixprep", "numpy", "av", "llvmlite")),
            "date": arguments.date,
            "load_average": load,
            "clip": {"height": HEIGHT, "width": WIDTH, "frames": COUNT, "rate": RATE, "bytes": write_clips(folder)},
            "absent": absent,
            "cells": [],
        }
        for frames, threads in ((FRAMES, 1), (FRAMES, 2), (1, 1)):
            results["cells"].append(run_cell(names, folder, threads, frames, absent))
            measure.write(arguments, f"video-{arguments.date}", results)


if __name__ == "__main__":
    main()
