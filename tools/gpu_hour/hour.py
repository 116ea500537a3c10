"""Run one call on the GPU machine.

A call consists of steps with time limits, and the results of each step are written immediately.

    python3 tools/gpu_hour/hour.py first       README.md in this folder lists the calls in their order

A step is a command. If it fails or takes too long, a row records this, and the next step begins. The rows are lines of
JSON in $OUT/CALL.jsonl; the output of the steps is in $OUT/CALL.log.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from gpu_page import forecasts

ROOT = Path(__file__).parents[2]
CARRIED = ROOT / "build" / "gpu_hour"
"""Folder that prepare_hour.py has created, with photos, kernels, and groups of wheels."""
PLACE = Path(os.environ.get("PIXPREP_HOUR") or Path(tempfile.gettempdir(), "pixprep-hour"))
LIMIT_S = 560.0
"""Maximum duration of a call in seconds. The machine kills a call after 600 s."""
SERVED = ("pytriton", "cupy13", "client")
"""Groups of wheels for the embedded Triton. They include an older NumPy, so only the steps with Triton use them."""
_OWN_PATH = "PIXPREP_HOUR_PATH"
_PTH = f"import os, sys; sys.path[:0] = [*filter(None, os.environ.get('{_OWN_PATH}', '').split(os.pathsep))]\n"
"""Line for a .pth file in site-packages, which is needed because Triton's Python models ignore PYTHONPATH."""
KEPT_CHARS = 4000  # number of characters to keep from the end of a step's output


class Step(NamedTuple):
    """Step of a call, with its command, its time limit, and whether the command uses the wheels in ``SERVED``."""

    seconds: float
    words: Sequence[str]
    is_served: bool = False


def _tests(file: str, only: str = "", before: Sequence[str] = ()) -> Sequence[str]:
    command = [
        *before,
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-m",
        "gpu",
        "-p",
        "no:cacheprovider",
        f"tests/gpu/hardware/{file}",
    ]
    return [*command, "-k", only] if only else command


def _speed(function: str, **options: Any) -> Sequence[str]:
    return [sys.executable, str(Path(__file__).with_name("gpu_speed.py")), function, json.dumps(options)]


_BATCHES, _SIZES = (1, 8, 32, 64, 128, 256), ("500x375", "1920x1080", "300 sizes")
_LEAKS, _FEW = "100_closed_engines or 2000_invalid", "large_canvases or rows_can_have or two_threads or every_tensor"
_NCU = ("ncu", "--clock-control", "none", "--set", "detailed", "--print-summary", "per-kernel")
_SANITIZER = ("compute-sanitizer", "--error-exitcode", "9", "--tool")
_TOOLS = ("memcheck", "racecheck", "synccheck")
_PIXELS = {
    **{f"pixels, {each}": each for each in ("legacy", "single", "default", "codes", "consistent")},
    "pixels, CUDA": "pixprep and cuda",
    "pixels, CPU": "CPU and not codes",
}
STEPS = {
    "stream order": Step(25, _speed("stream_order")),
    "machine": Step(40, _speed("facts")),
    **{name: Step(150, _tests("test_decode.py", only)) for name, only in _PIXELS.items()},
    "kernels against the CPU": Step(150, _tests("test_kernel.py", "every_case or every_tensor or fast_kernels")),
    "speed": Step(170, _speed("speeds", sizes=_SIZES, batches=_BATCHES, threads=(15, 8, 4))),
    "Huffman thresholds": Step(40, _speed("thresholds", sizes=_SIZES[:2])),
    "one and two processes": Step(40, _speed("processes")),
    "kernels against the roof": Step(45, _speed("kernels", sizes=_SIZES[:2], batches=(1, 32, 128))),
    "copies and JPEG engines": Step(30, _speed("limits")),
    "interpreter": Step(90, _speed("interpreter")),
    "models": Step(400, _speed("models", sizes=_SIZES[1:], batches=(1, 32))),
    "costs": Step(40, _speed("costs")),
    "hand-over": Step(20, _speed("handover")),
    "tests, engine": Step(300, _tests("test_engine.py", f"not ({_LEAKS})")),
    "tests, loader": Step(300, _tests("test_loader.py")),
    "tests, sizes": Step(300, _tests("test_kernel.py", "random_sizes")),
    "tests, kernels": Step(300, _tests("test_kernel.py", "not random_sizes and not every_case")),
    "tests, leaks": Step(240, _tests("test_engine.py", _LEAKS)),
    **{f"served, count {each}": Step(150, _speed("served", count=each), is_served=True) for each in (1, 2, 4)},
    **{each: Step(130, _tests("test_kernel.py", _FEW, [*_SANITIZER, each])) for each in _TOOLS},
    "ncu": Step(130, _tests("test_kernel.py", "large_canvases", _NCU)),
    "clips": Step(300, _tests("test_clips.py")),
    "beside DALI": Step(300, _speed("speeds", sizes=_SIZES[:2], batches=(1, 32, 128), threads=(15,), with_dali=True)),
}
CALLS: Mapping[str, Sequence[Sequence[str]]] = {
    "first": (
        ("stream order",),
        ("machine",),
        (*_PIXELS, "kernels against the CPU"),
        *(
            ("speed",),
            ("Huffman thresholds",),
            ("one and two processes",),
            ("kernels against the roof",),
            ("copies and JPEG engines",),
            ("costs",),
            ("hand-over",),
        ),
    ),
    "models": (("models",), ("interpreter",)),
    "tests": (("tests, engine", "tests, loader", "tests, sizes", "tests, kernels"), ("tests, leaks",)),
    "install": (),  # installs one more group of wheels, for a later call
    "served": tuple((name,) for name in STEPS if name.startswith("served")),
    "tools": (*((each,) for each in _TOOLS), ("ncu",)),
    "clips": (("clips",),),
    "dali": (("machine",), ("beside DALI",)),
}
"""Steps of each call. The steps of a group run in parallel and do not measure time."""


def write(out: Path, **row: Any) -> None:
    """Append a row to the results, with the forecasts of the quantities that it measures."""
    if forecast := forecasts(row):
        row["forecast"] = forecast
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def run(group: Sequence[str], steps: Mapping[str, Step], out: Path, *, deadline: float) -> None:
    """Run the steps of a group in parallel until each step has exited or reached its time limit."""
    started = {}
    for number, name in enumerate(group):
        if monotonic() >= deadline:
            write(out, step=name, ended="not started: the call ran out of time")
            continue
        output = (PLACE / f"said-{number}").open("w+b")
        results = {"PIXPREP_GPU_RESULTS": str(out), "PIXPREP_GPU_STEP": name, "PIXPREP_REQUIRE_GPU": "1"}
        where = os.environ | results | _environment(is_served=steps[name].is_served)
        try:
            process = subprocess.Popen(
                steps[name].words, stdout=output, stderr=subprocess.STDOUT, env=where, cwd=ROOT, start_new_session=True
            )
        except OSError as error:  # the tool is not installed
            output.close()
            write(out, step=name, ended=str(error))
            continue
        started[name] = output, monotonic(), process
    for name, (output, begun, process) in started.items():
        try:
            code: int | str = process.wait(max(0.0, min(begun + steps[name].seconds, deadline) - monotonic()))
        except subprocess.TimeoutExpired:
            code = "time-out"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
        output.close()
        with out.with_suffix(".log").open("a", encoding="utf-8") as log:
            log.write(f"== {name}\n{text}\n")
        write(out, step=name, ended=code, seconds=round(monotonic() - begun, 1), said=text[-KEPT_CHARS:])
        sys.stdout.write(f"{name}: {code or 'done'}\n")
        sys.stdout.flush()


def _environment(*, is_served: bool) -> dict[str, str]:
    sites = sorted(PLACE.glob("site-*"), key=lambda site: not _is_served(site.name))
    paths = [site for site in sites if is_served or not _is_served(site.name)]
    paths += [ROOT / name for name in ("backend", "tests", "benchmarks", "tools/gpu_hour")]
    added = {"PYTHONPATH": paths, "PATH": [site / "bin" for site in sites]}
    if is_served:
        added |= {"LD_LIBRARY_PATH": [PLACE], _OWN_PATH: paths}
    joined = {name: os.pathsep.join([*map(str, those), os.environ.get(name, "")]) for name, those in added.items()}
    return {"PYTHONUNBUFFERED": "1"} | {name: text.rstrip(os.pathsep) for name, text in joined.items()}


def _is_served(site: str) -> bool:
    return site.removeprefix("site-").partition("-")[0] in SERVED


def install() -> None:
    """Unpack the transferred C kernels and wheels. The wheels of a group are unpacked only once per machine."""
    PLACE.mkdir(parents=True, exist_ok=True)
    for pattern, folder in {
        "kernels/*.so": ROOT / "backend/pixprep/engine/kernels",
        "client/libpython*": PLACE,
    }.items():
        for library in CARRIED.glob(pattern):
            if not (folder / library.name).exists():  # do not replace wheels that running processes may have loaded
                shutil.copy(library, folder)
    for part in CARRIED.glob("*/*.whl.*"):  # parts of a wheel that is too large for one call
        shutil.move(part, PLACE / part.name)
        if whole := _joined(part.name):
            shutil.move(whole, part.parent / whole.name)
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--target"]
    for group in sorted({path.parent for path in CARRIED.glob("*/*.whl")}):
        if (site := PLACE / f"site-{group.name}").exists():
            continue
        wheels = map(str, sorted(group.glob("*.whl")))
        subprocess.run([sys.executable, "-m", "pip", "install", *options, str(site), *wheels], check=False)
        if _is_served(site.name):
            Path(sysconfig.get_path("purelib"), "pixprep_hour.pth").write_text(_PTH, encoding="utf-8")
        # NVIDIA's packages share the namespace ``nvidia``: a folder with an __init__.py would hide the others
        (site / "nvidia").mkdir(parents=True, exist_ok=True)
        whole_path = "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"
        (site / "nvidia" / "__init__.py").write_text(whole_path, encoding="utf-8")


def _joined(part: str) -> Path | None:
    """Join a wheel from its parts (NAME.whl.1of4, ...). Return None if a part is missing."""
    name, _, number = part.rpartition(".")
    count = int(number.partition("of")[2])
    parts = [PLACE / f"{name}.{place + 1}of{count}" for place in range(count)]
    if not all(each.exists() for each in parts):
        return None
    (PLACE / name).write_bytes(b"".join(each.read_bytes() for each in parts))
    return PLACE / name


def main(call: str) -> None:
    """Run the steps of a call."""
    deadline, out = monotonic() + LIMIT_S, Path(os.environ["OUT"], f"{call}.jsonl").absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    for each in (out, out.with_suffix(".log")):
        each.unlink(missing_ok=True)
    install()
    for group in CALLS[call]:
        run(group, STEPS, out, deadline=deadline)


if __name__ == "__main__":
    main(*sys.argv[1:])
