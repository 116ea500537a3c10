"""Compare pixprep on the CPU with other libraries, and write one JSON file.

    python benchmarks/run.py --quick      three sizes and 300 sizes, bilinear, two threads; a little serving; 5 minutes
    python benchmarks/run.py --full       every workload, filter and layer; about 15 minutes
    python benchmarks/run.py --families   code of other libraries (``families``); writes a second file; 5 minutes

Each contender runs in its own process, with the first of this project's environments that can import it. A cell is a
workload, a filter and a number of threads. All contenders of a cell are started together and take turns with the same
photos, so that a slow minute affects all of them. Two cells whose ratio is reported also take turns. Before that, each
contender's tensors are compared with the reference, and contenders with large differences are not timed.
``benchmarks/report.py`` generates the page.
"""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import IO, Any

import measure
import numpy as np
import served
from contenders import pixprep_full, resized
from families import CELLS, ROWS, Row, comparison
from measure import say
from PIL import Image
from pixels import difference, reference
from workloads import EQUAL, MEDIUM, MIXED, SIZES, WORKLOADS, make, real_photos

import pixprep as pp

FOLDER = Path(__file__).parent
ENVIRONMENTS = (".venv", ".venv-parity", ".venv-tensorflow")
CONTENDERS = sorted(path.stem for path in (FOLDER / "contenders").glob("[!_]*.py"))
# twelve processes at the same time
SIDE_BY_SIDE = ("pixprep_full", "dali", "dali_region", "torchvision", "pillow", "opencv")
CHECKED = 2  # number of photos whose tensors are compared with the reference
LAYERS = ("kernel", "engine", "serving")
PACKAGES = ("pixprep", "numpy", "pillow", "simplejpeg", "nvidia-pytriton", "tritonclient")
BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Cell = tuple[str, str, int]
"""Key of a measurement: its workload, its filter or its row of ``families``, and its number of threads."""

OF_FAMILIES = {workload for workload, *_ in CELLS}
QUICK: list[list[Cell]] = [
    *([(size, "bilinear", 2)] for size in SIZES),
    [(MIXED, "bilinear", 2), (EQUAL, "bilinear", 2)],
]
FULL: list[list[Cell]] = [
    *QUICK,
    *([(size, name, 1)] for size in SIZES for name in ("bilinear", "bicubic", "lanczos")),
    [(MIXED, "bilinear", 1), (EQUAL, "bilinear", 1)],
    *([(name, "bilinear", 1)] for name in WORKLOADS if name not in {*SIZES, MIXED, EQUAL, *OF_FAMILIES - {MEDIUM}}),
]


class ContenderError(Exception):
    """A contender is not available, or its process has exited.

    The message is the last output of the process, or an empty string if the contender does not support the filter.
    """


class Worker:
    """Process of a contender; see ``worker.py``."""

    def __init__(self, interpreter: Path, name: str, cell: Cell, folder: Path, *, log: IO[str]) -> None:
        workload, filter_name, threads = cell
        batch, module = WORKLOADS[workload].batch, f"{'families' if filter_name in ROWS else 'contenders'}.{name}"
        self._batch, self._log = batch, log
        self._process = subprocess.Popen(
            [str(interpreter), str(FOLDER / "worker.py"), module, filter_name, str(threads), str(batch), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **dict.fromkeys(BLAS, str(threads))},
        )
        self.rounds: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}

    def start(self) -> None:
        """Wait until the process reports that it is ready, and store the facts that it reports."""
        self.facts = self._answer()
        if self.facts["state"] == "absent":
            raise ContenderError

    def check(self, compare: Callable[[np.ndarray], dict[str, float]], limit: float | None, folder: Path) -> None:
        """Compare the contender's tensors of the first photos with the reference.

        Reject it if the difference is too large.
        """
        if limit is None:
            return
        path = folder / "tensors.npy"
        self._ask(check=str(path), count=CHECKED)
        try:
            found = compare(np.load(path))
        except ValueError as error:
            raise ContenderError(f"not timed: {error}") from None
        self.facts["difference"] = found
        if found["mean"] > limit:
            raise ContenderError(
                f"not timed: its pixels differ by {found['mean']:g} on average, which is more than {limit:g}"
            )

    def round(self, first: int, count: int) -> float:
        """Return the total seconds of ``count`` batches of the endless sequence, starting at number ``first``."""
        self.rounds.append(self._ask(first=first, count=count))
        return float(sum(self.rounds[-1]["taken"]))

    def result(self) -> dict[str, Any]:
        """Return the results of the rounds."""
        taken = [found["taken"] for found in self.rounds]
        cpu_s = sum(found["cpu_s"] for found in self.rounds)
        return {
            **measure.summary(taken, self._batch),
            "cpu_s_per_1000": round(1000 * cpu_s / (self._batch * sum(map(len, taken))), 3),
            "cores_used": round(cpu_s / sum(map(sum, taken)), 2),
            "peak_mib": round(self.rounds[-1]["peak_mib"], 1),
            "import_ms": round(1000 * self.facts["import_s"], 1),
            "difference": self.facts.get("difference"),
        }

    def _ask(self, **words: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ContenderError(self._last_words()) from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ContenderError(self._last_words())
        return dict(json.loads(line))

    def _last_words(self) -> str:
        self._process.wait()
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().splitlines() if line.strip()]
        return " / ".join(lines[-3:]) or f"the process ended with exit code {self._process.returncode}"

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def workers(names: dict[str, Path], cell: Cell, folder: Path, refused: dict[str, str]) -> Iterator[dict[str, Worker]]:
    """Yield the contenders that start and produce the expected pixels.

    For each other contender, ``refused`` receives the reason.
    """
    if row := ROWS.get(cell[1]):
        compare: Callable[[np.ndarray], dict[str, float]] = comparison(row)
    else:
        photos = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))[:CHECKED]]
        compare = partial(difference, references=[reference(photo, cell[1]) for photo in photos])
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ready = {}
        for name, python in names.items():
            log = stack.enter_context((scratch / name).open("w+", encoding="utf-8"))
            worker = Worker(python, name, cell, folder, log=log)
            stack.callback(worker.stop)
            try:
                worker.start()
                worker.check(compare, row.max_difference if row else worker.facts["mean_levels"], scratch)
                ready[name] = worker
            except ContenderError as error:
                if error.args:
                    refused[name] = str(error)
                    say(f"MISSING {name}: {error}")
                if name == "pixprep":  # there is no reference for the others
                    break
        yield ready


def run_cells(
    names: dict[str, Path], folders: dict[Cell, Path], *, rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """Measure cells that take turns.

    Return the results of each contender, or the reason why the contender was not measured.

    Every round processes all photos of its cell. It repeats them until the median contender has been busy for at
    least ``seconds``.
    """
    refused: dict[Cell, dict[str, str]] = {cell: {} for cell in folders}
    with ExitStack() as stack:
        ready = {
            (cell, name): worker
            for cell, folder in folders.items()
            for name, worker in stack.enter_context(workers(names, cell, folder, refused[cell])).items()
        }

        def turn(index: int, passes: int) -> list[float]:
            order = list(ready)
            taken = []
            for cell, name in order[index % len(order) :] + order[: index % len(order)]:
                count = passes * WORKLOADS[cell[0]].count // WORKLOADS[cell[0]].batch
                try:
                    taken.append(ready[cell, name].round(index * count, count))
                except ContenderError as error:
                    refused[cell][name] = f"ended: {error}"
                    say(f"MISSING {name}: {refused[cell][name]}")
                    del ready[cell, name]
            return taken

        if not ready:
            reasons = "; ".join(f"{name}: {why}" for found in refused.values() for name, why in found.items())
            raise ContenderError(f"no contender can be timed: {reasons}")
        turn(0, 1)
        passes = max(1, math.ceil(seconds / float(np.median(turn(1, 1)))))
        for worker in ready.values():
            worker.rounds.clear()  # discard the warm-up
        for index in range(rounds):
            turn(index, passes)
        return [
            {
                "workload": cell[0],
                "filter": cell[1],
                "threads": cell[2],
                "batch": WORKLOADS[cell[0]].batch,
                "load_average": os.getloadavg()[0],
                "contenders": {name: worker.result() for (of, name), worker in ready.items() if of == cell},
                "versions": {name: worker.facts["versions"] for (of, name), worker in ready.items() if of == cell},
                "refused": refused[cell],
            }
            for cell in folders
        ]


def split(folder: Path) -> list[dict[str, Any]]:
    """Measure the kernels: the median time for one photo on one thread, in milliseconds.

    The timed parts are pixprep's decoder and kernel, and Pillow's resize of the whole photo, without a crop and without
    the arithmetic of the tensor.
    """
    photos = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
    found = []
    for filter_name in ("bilinear", "bicubic", "lanczos"):
        with pp.Engine(pixprep_full.pipeline(filter_name), threads=1) as engine:
            engine.run_batch(photos[:2])
            batch = engine.run_batch(photos)
        pillow_s = [_pillow_s(encoded, filter_name) for encoded in photos]
        times = {"decode_ms": batch.decode_s, "kernel_ms": batch.transform_s, "pillow_ms": pillow_s}
        medians = {name: round(1e3 * float(np.median(seconds)), 4) for name, seconds in times.items()}
        found.append({"filter": filter_name, **medians})
    return found


def _pillow_s(encoded: bytes, filter_name: str) -> float:
    with Image.open(io.BytesIO(encoded)) as image:
        pixels = image.convert("RGB")
    height, width = resized(pixels.height, pixels.width)
    start = perf_counter()
    pixels.resize((width, height), Image.Resampling[filter_name.upper()])
    return perf_counter() - start


def summary(cell: dict[str, Any]) -> Iterator[str]:
    """Yield lines that summarize the result."""
    yield f"{cell['workload']}, {cell['filter']}, threads {cell['threads']}, batch {cell['batch']}"
    base = "pixprep" if cell["filter"] in ROWS else "dali"
    peer = cell["contenders"].get(base)
    for name, numbers in sorted(cell["contenders"].items(), key=lambda item: -item[1]["images_per_s"]):
        ratio = f"{measure.ratio(numbers, peer):5.2f} x {base}" if peer else ""
        gap, cost = numbers["difference"] or {"mean": "-"}, numbers["cpu_s_per_1000"]
        yield f"  {name:16}{numbers['images_per_s']:8.1f}/s {ratio}{cost:8.2f} CPU s/1000  differs by {gap['mean']}"


def interpreters_of(names: dict[str, Path], row: Row) -> dict[str, Path]:
    """Return the interpreter of each available library of a row. pixprep runs with that of the first library."""
    found = {name: names[name] for name in row.libraries if name in names}
    return {"pixprep": next(iter(found.values())), **found} if found else {}


def main() -> None:
    """Run the benchmark and write one JSON file."""
    parser = measure.options(__doc__)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--quick", action="store_true")
    how.add_argument("--full", action="store_true")
    how.add_argument("--families", action="store_true")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS, metavar="ROW", help="of the families")
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=LAYERS)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=CONTENDERS, metavar="CONTENDER")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, metavar="WORKLOAD")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=0.4, help="minimum duration in seconds of each round of the median contender"
    )
    arguments = parser.parse_args()

    load = os.getloadavg()[0]
    if load >= measure.QUIET:
        say(f"NOT IDLE: load average {load:.2f}: other programs are running, so absolute numbers are unreliable")
    wanted = arguments.workloads or WORKLOADS
    groups = [[cell for cell in group if cell[0] in wanted] for group in (FULL if arguments.full else QUICK)]
    layers = arguments.layers
    if arguments.families:
        groups = [[cell] for cell in CELLS if cell[0] in wanted and cell[1] in arguments.rows]
        layers = ["engine"]
    results: dict[str, Any] = {
        "benchmark": "families" if arguments.families else "cpu",
        "date": arguments.date,
        **measure.surroundings(PACKAGES),
        "load_average": load,
        "rounds": arguments.rounds,
        "photos": {},
        "missing": {},
        "kernel": {},
        "cells": [],
        "serving": None,
    }
    title = "families-{}" if arguments.families else "cpu-{}-full" if arguments.full else "cpu-{}-quick"
    save = partial(measure.write, arguments, title.format(arguments.date), results)
    modules = {name: f"contenders.{name}" for name in arguments.only}
    if arguments.families:
        modules = {name: f"families.{name}" for group in groups for name in ROWS[group[0][1]].libraries}
    names: dict[str, Path] = {}
    for name, module in modules.items():
        python, reason = measure.find(module, ENVIRONMENTS)
        if python is None:
            results["missing"][name] = reason
            say(f"MISSING {name}: {reason}")
        else:
            names[name] = python
    with tempfile.TemporaryDirectory(prefix="pixprep-benchmark-") as folder:
        originals = real_photos()
        say(f"photos derived from {len(originals)} real ones")

        def photos(name: str) -> Path:
            place = Path(folder) / name
            if not place.exists():
                encoded, results["photos"][name] = make(WORKLOADS[name], originals)
                place.mkdir()
                for index, photo in enumerate(encoded):
                    (place / f"{index:03}.jpg").write_bytes(photo)
            return place

        for size in SIZES if "kernel" in layers else ():
            results["kernel"][size] = split(photos(size))
        for group in groups if "engine" in layers else ():
            folders = {cell: photos(cell[0]) for cell in group}
            if arguments.families:
                taking_part = interpreters_of(names, ROWS[group[0][1]])
            else:
                taking_part = {name: names[name] for name in names if len(group) == 1 or name in SIDE_BY_SIDE}
            if not (folders and taking_part):
                continue
            try:
                cells = run_cells(taking_part, folders, rounds=arguments.rounds, seconds=arguments.seconds)
            except ContenderError as error:
                results["missing"][row := ", ".join(group[0][:2])] = str(error)
                say(f"MISSING {row}: {error}")
                continue
            for found in cells:
                results["cells"].append(found)
                for line in summary(found):
                    say(line)
            save()
        if "serving" in layers:
            images = [image.read_bytes() for image in sorted(photos("500x375").glob("*.jpg"))]
            results["serving"] = served.measure_all(images, names, seconds=arguments.seconds, full=arguments.full)
            for line in served.summary(results["serving"]):
                say(line)
    save()


if __name__ == "__main__":
    main()
