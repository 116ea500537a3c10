"""Compare pixprep's Loader with other libraries; write a JSON file and the tables of docs/performance-training.md.

    python benchmarks/train.py --quick     500 x 375: classification, colour jitter, masks and boxes; one thread,
                                           three rounds
    python benchmarks/train.py             also 500 x 375 with two threads, and mixed sizes with one thread; five
                                           rounds; about 14 minutes

Each contender runs in its own process group, with the first of this project's environments that can import it. All
contenders are started together and take turns. A group is stopped (SIGSTOP) when its turn ends, so that it cannot read
ahead during the turn of a different group. Contenders with worker processes are tried with several numbers of them, and
the best result counts. The number of threads is the number of cores for the whole group.
"""

from __future__ import annotations

import ast
import io
import json
import os
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import measure
import numpy as np
from loaders import BATCH, SIDE, TASKS, task_of
from measure import say
from PIL import Image, ImageFilter
from workloads import MIXED, WORKLOADS, Workload, make, real_photos

FOLDER = Path(__file__).parent
ENVIRONMENTS = (".venv", ".venv-training", ".venv-parity", ".venv-tensorflow")
CONTENDERS = sorted(path.stem for path in (FOLDER / "loaders").glob("[!_]*.py"))
OURS = ("pixprep_loader", "colour_pixprep", "masks_pixprep", "boxes_pixprep")
PHOTOS = 256
BATCHES = 8  # number of batches per round, which is two epochs
TRIED = 2  # number of batches for each number of workers
MIN_FIT = 0.8  # minimum of ``train_worker.fit``, as a fraction of that of pixprep
WARM_UP = 5  # number of batches of 64 photos: one epoch and one further batch
BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class AbsentError(Exception):
    """A contender is not available, has exited, or returns wrong tensors. The message contains the reason."""


class Group:
    """Processes of one contender. The group is stopped while other contenders run."""

    def __init__(self, python: Path, name: str, folder: Path, threads: int, *, argument: Any, log: IO[str]) -> None:
        self._log = log
        self._process = subprocess.Popen(
            [str(python), str(FOLDER / "train_worker.py"), name, str(folder), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            env={**os.environ, **dict.fromkeys(BLAS, str(threads)), "CUDA_VISIBLE_DEVICES": ""},
        )
        self.argument = argument
        self.rounds: list[dict[str, Any]] = []

    def take(self, count: int) -> dict[str, Any]:
        """Run ``count`` batches of ``argument``, which is the third argument of the contender's ``prepare``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before = self._cpu_s()
        os.killpg(self._process.pid, signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps({"count": count, "argument": self.argument}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise AbsentError(self._last_words()) from None
        line = self._process.stdout.readline()
        if not line:
            raise AbsentError(self._last_words())
        os.killpg(self._process.pid, signal.SIGSTOP)
        return {**json.loads(line), "cpu_s": self._cpu_s() - before}

    def _cpu_s(self) -> float:
        """Return the CPU seconds of all processes of the group, including those that have ended."""
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
            except OSError:  # the process has just ended
                continue
            if int(fields[2]) == self._process.pid:
                ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def _last_words(self) -> str:
        self._process.wait()
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().splitlines() if line.strip()]
        return " / ".join(lines[-2:]) or f"the process ended with exit code {self._process.returncode}"

    def stop(self) -> None:
        """End all processes of the contender."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def write_photos(photos: Sequence[bytes], folder: Path) -> None:
    """Write photos as files in two classes, and as a WebDataset shard."""
    with tarfile.open(folder / "shard.tar", "w") as shard:
        for index in range(PHOTOS):
            encoded, label = photos[index % len(photos)], index % 2
            path = folder / "files" / f"class{label}" / f"{index:04}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded)
            for suffix, content in (("jpg", encoded), ("cls", str(label).encode())):
                entry = tarfile.TarInfo(f"{index:04}.{suffix}")
                entry.size = len(content)
                shard.addfile(entry, io.BytesIO(content))


def write_annotations(folder: Path) -> None:
    """Write masks and boxes that depend on the content of the photos, so that ``check`` can detect wrong results.

    Each mask is a PNG in the folder ``masks``, and contains eight classes of brightness. The boxes of a photo are the
    four brightest of 64 random rectangles. ``boxes.json`` contains them in COCO's format. An image id is the index of
    the photo in the sorted list of files.
    """
    images, annotations = list[Any](), list[Any]()
    for index, path in enumerate(sorted((folder / "files").glob("*/*.jpg"))):
        with Image.open(path) as photo:
            smooth = np.asarray(photo.convert("L").filter(ImageFilter.BoxBlur(8)))
        height, width = smooth.shape
        name = path.relative_to(folder / "files")
        mask = folder / "masks" / name.with_suffix(".png")
        mask.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(smooth // 32).save(mask)
        rng = np.random.default_rng(index)
        sides = (rng.uniform(0.2, 0.5, (64, 2)) * (width, height)).astype(int)
        corners = (rng.uniform(0, 1, (64, 2)) * ((width, height) - sides)).astype(int)
        boxes = np.hstack([corners, sides]).tolist()
        boxes.sort(key=lambda box: -smooth[box[1] : box[1] + box[3], box[0] : box[0] + box[2]].mean())
        images.append({"id": index, "file_name": str(name), "height": height, "width": width})
        for box in boxes[:4]:
            facts = {"id": len(annotations) + 1, "image_id": index, "category_id": 1, "iscrowd": 0}
            annotations.append({**facts, "bbox": box, "area": box[2] * box[3]})
    found = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "bright"}]}
    (folder / "boxes.json").write_text(json.dumps(found), encoding="utf-8")


def check(name: str, found: dict[str, Any], expected: dict[str, Any] | None) -> None:
    """Reject a contender that does not perform the whole task.

    Raises:
        AbsentError: The shape, dtype or range of values is wrong, or the masks or boxes do not match the images.
    """
    shape = tuple(found["shape"])
    if shape not in ((BATCH, 3, SIDE, SIDE), (BATCH, SIDE, SIDE, 3)) or found["labels"] != BATCH:
        raise AbsentError(
            f"not timed: {name} returns a batch of shape {shape} with {found['labels']} labels, not {BATCH} photos "
            "with their labels"
        )
    if found.get("fit", 1.0) < MIN_FIT * (expected or found).get("fit", 1.0):
        raise AbsentError(f"not timed: the masks or boxes of {name} do not match its images ({found['fit']:.2f})")
    if found["dtype"] != "float32":
        raise AbsentError(f"not timed: {name} returns {found['dtype']}")
    if expected and (abs(found["mean"] - expected["mean"]) > 0.3 or not 0.7 < found["std"] / expected["std"] < 1.4):
        raise AbsentError(f"not timed: the mean is {found['mean']:.2f} and the standard deviation {found['std']:.2f}")


def best(python: Path, name: str, folder: Path, threads: int, stack: ExitStack) -> Group:
    """Find the best number of workers of a contender.

    Return the warmed-up group with this number, and end the other groups.
    """
    command = [str(python), "-c", f"import loaders.{name} as found; print(dict(found.WORKERS).get({threads}, (0,)))"]
    words = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=True).stdout
    variants = ast.literal_eval(words.splitlines()[-1])
    groups: list[tuple[float, Group]] = []
    for workers in variants:
        log = (folder / f"{name}-{workers}.log").open("w+", encoding="utf-8")
        group = Group(python, name, folder, threads, argument=workers, log=stack.enter_context(log))
        stack.callback(group.stop)
        group.take(WARM_UP)
        seconds = sum(group.take(TRIED)["taken"]) if len(variants) > 1 else 0.0
        groups.append((seconds, group))
    groups.sort(key=lambda pair: pair[0])
    for _, group in groups[1:]:
        group.stop()
    return groups[0][1]


def run_cell(
    names: dict[str, Path], workload: Workload, threads: int, rounds: int, absent: dict[str, str], *, task: str
) -> dict[str, Any]:
    """Return the results of a task's contenders for one workload and number of threads."""
    names = {name: python for name, python in names.items() if task_of(name) == task}
    title = f"{workload.name}{TASKS[task]}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_photos(make(workload, real_photos())[0], folder)
        if task in ("masks", "boxes"):
            write_annotations(folder)
        groups: dict[str, Group] = {}
        expected = None
        for name, python in names.items():
            try:
                group = best(python, name, folder, threads, stack)
                facts = group.take(1)
                check(name, facts, expected)
            except AbsentError as error:
                absent[name] = str(error)
                say(f"MISSING {name}: {error}")
                continue
            expected = expected or facts
            groups[name] = group
        for index in range(rounds):
            order = list(groups) if index % 2 == 0 else list(reversed(groups))
            for name in order:
                groups[name].rounds.append(groups[name].take(BATCHES))
        results = {}
        for name, group in groups.items():
            images = BATCH * BATCHES * rounds
            results[name] = {
                **measure.summary([found["taken"] for found in group.rounds], BATCH),
                "cpu_ms_per_image": round(1e3 * sum(found["cpu_s"] for found in group.rounds) / images, 4),
                "workers": group.argument,
                "versions": group.rounds[0]["versions"],
            }
            say(f"{title}, {threads} threads, {name}: {results[name]['images_per_s']:.0f} images/s")
    return {"workload": title, "threads": threads, "contenders": results}


def main() -> None:
    """Run the benchmark, and write the result after each cell."""
    parser = measure.options(__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", choices=CONTENDERS, default=CONTENDERS)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    names, absent = {}, {}
    for name in sorted(arguments.only, key=lambda name: name not in OURS):
        python, reason = measure.find(f"loaders.{name}", ENVIRONMENTS)
        if python is None:
            absent[name] = reason
            say(f"MISSING {name}: {reason}")
        else:
            names[name] = python
    results: dict[str, Any] = {
        **measure.surroundings(("pixprep", "numpy", "simplejpeg")),
        "date": arguments.date,
        "load_average": load,
        "rounds": 3 if arguments.quick else 5,
        "absent": absent,
        "cells": [],
    }
    cells = [("500x375", 1, task) for task in TASKS]
    if not arguments.quick:
        cells[1:1] = [("500x375", 2, ""), (MIXED, 1, "")]
    for workload, threads, task in cells:
        cell = run_cell(names, WORKLOADS[workload], threads, results["rounds"], absent, task=task)
        results["cells"].append(cell)
        measure.write(arguments, f"train-{arguments.date}{'-quick' if arguments.quick else ''}", results)
    for cell in results["cells"]:
        ours = next((found for name, found in cell["contenders"].items() if name in OURS), None)
        for name, theirs in cell["contenders"].items():
            if ours and name not in OURS:
                ratio = measure.ratio(ours, theirs)
                cpu = theirs["cpu_ms_per_image"] / ours["cpu_ms_per_image"]
                say(f"{cell['workload']}, {cell['threads']} threads: {ratio:.2f} x {name} (CPU time {cpu:.2f})")


if __name__ == "__main__":
    main()
