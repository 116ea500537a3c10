"""Measures throughput and latency of a running Triton with perf_analyzer, in closed loops or with Poisson arrivals.

tritonclient 2.51 contains the program perf_analyzer. Two libraries that this program requires are part of
nvidia-pytriton, but with different file names.
"""

from __future__ import annotations

import base64
import csv
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy.typing as npt

from pixprep.errors import PixprepError, SetupError, install
from pixprep.serving.embedded.client import check_batch
from pixprep.serving.embedded.connection import Spent, Triton
from pixprep.serving.embedded.request import ModelInput
from pixprep.serving.options import MeasureOptions, Protocol

_PROGRAM = "perf_analyzer"
_LIBRARIES = {"libb64.so.0d": "libb64-*.so.0d", "libcudart.so.12": "libcudart-*.so.12*"}
_REQUEST_ERROR = " had error: "  # perf_analyzer prints "Thread [0] had error: ", followed by the server's message
# perf_analyzer measures three windows. A window lasts 1.2 times as long as requested: three windows of 1 s took 3.61 s.
_WINDOWS, _STRETCH = 3, 1.2
_LONGER = (1, 4, 16)  # factors by which the duration is multiplied as long as no request completes within a window
_TOO_SHORT = (
    "No valid requests recorded within time interval",
    "failed to find the requested model version",  # printed if the statistics of the model did not change
)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Result of the measurement of one load.

    The result does not contain a number of errors, because perf_analyzer exits without a result at the first failed
    request.

    Attributes:
        protocol, model: Protocol and model of the requests.
        load: Load that was measured: ``concurrency N`` for N requests in flight, or ``poisson R/s`` for an average of R
            requests per second.
        batch: Number of images per request.
        images_per_s: Number of images, or clips, that the server processed per second. For a Poisson load,
            perf_analyzer replays one fixed sequence that begins slowly: the first 80 requests reach 80 % of the rate,
            and the first 2,000 requests reach 97 %.
        frames_per_s: Video frames per second. None for images, or if the configuration does not declare ``frames``.
        p50_ms, p90_ms, p95_ms, p99_ms: Percentiles of the request latency at the client, in milliseconds.
        mean_batch: Average number of images per execution of the model. For an ensemble, it is the average of the first
            model.
        late_percent: Percentage of requests that the client sent late. If the percentage is high, the true latencies
            are higher than measured.
    """

    protocol: Protocol
    model: str
    load: str
    batch: int
    images_per_s: float
    frames_per_s: float | None = None
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    mean_batch: float | None
    late_percent: float


def measure(
    images: Sequence[bytes], *, on_progress: Callable[[Measurement], None] | None = None, **options: Any
) -> list[Measurement]:
    """Measure a model under several loads in sequence.

    Args:
        images: Encoded images or clips, which are sent in a loop. Pass many different images, because caches are more
            effective for a few images than they are in production.
        on_progress: Function that is called with each measurement as soon as it is complete.
        options: Fields of ``MeasureOptions``.

    Raises:
        SetupError: No server responds at ``url``, the model does not exist, or perf_analyzer cannot run here.
        PixprepError: perf_analyzer failed, for example because the server rejected an image.
    """
    if not images:
        raise PixprepError("no images to send: pass at least one")
    given = MeasureOptions(**options)
    measurements: list[Measurement] = []
    with TemporaryDirectory(prefix="pixprep-perf-") as name, Triton(given.url, protocol=given.protocol) as triton:
        report = Path(name) / "report.csv"
        command, environment = _command(triton, Path(name), images, given)
        model_input = triton.model_input(given.model)
        counted = triton.first(given.model, model_input.name)
        for load, flags in _loads(given.concurrency, given.rate):
            report.unlink(missing_ok=True)
            before = triton.spent().get(counted, Spent())
            printed = _run_for(given.seconds, [*command, *flags, "-f", str(report), "--verbose-csv"], environment)
            done = triton.spent()[counted].since(before)
            numbers = parse_report(report.read_text(encoding="utf-8"))
            frames = model_input.frames
            measurement = Measurement(
                protocol=given.protocol,
                model=given.model,
                load=load,
                batch=given.batch,
                mean_batch=round(done.images / done.executions, 2) if done.executions else None,
                late_percent=_late_percent(printed),
                frames_per_s=round(frames * numbers["images_per_s"], 1) if frames else None,
                **numbers,
            )
            measurements.append(measurement)
            if on_progress:
                on_progress(measurement)
    return measurements


def command_lines(images: Sequence[bytes], folder: Path, **options: Any) -> list[str]:
    """Return the shell command lines of perf_analyzer, one per load.

    The images and links to libraries are written to ``folder``, which must exist as long as the commands run. All other
    arguments are the same as those of ``measure``.

    Raises:
        SetupError, PixprepError: See ``measure``.
    """
    given = MeasureOptions(**options)
    with Triton(given.url, protocol=given.protocol) as triton:
        command, environment = _command(triton, folder, images, given)
    libraries = f"LD_LIBRARY_PATH={shlex.quote(environment['LD_LIBRARY_PATH'])}"
    windows = _window_flags(given.seconds)
    return [
        f"{libraries} {shlex.join([*command, *flags, *windows])}" for _, flags in _loads(given.concurrency, given.rate)
    ]


def _command(
    triton: Triton, folder: Path, images: Sequence[bytes], given: MeasureOptions
) -> tuple[list[str], dict[str, str]]:
    """Write the files for perf_analyzer to ``folder``, and return its command and environment variables.

    The command does not contain the options for the load.
    """
    model, batch = given.model, given.batch
    model_input = triton.model_input(model)
    check_batch(batch, model, model_input)
    program, environment = find_perf_analyzer(folder)
    input_json = folder / "input.json"
    rows = model_input.rows(given.inputs or {})
    numbers = rows if model_input.has_rows else {name: array[0] for name, array in rows.items()}
    write_input_json(images, input_json, model_input, numbers=numbers)
    command = [program, "-m", model, "-u", triton.url, "-i", triton.protocol, "-b", str(batch)]
    command += ["--input-data", str(input_json)]
    if given.shared_memory:  # one region per output, large enough for the largest output of a batch
        largest = max(array.nbytes for array in triton.infer(model, model_input, images[:1], [rows]).values())
        command += ["--shared-memory", "system", "--output-shared-memory-size", str(batch * largest)]
    return command, environment


def _loads(concurrency: Sequence[int], rate: Sequence[float]) -> list[tuple[str, list[str]]]:
    """Return the name of each load, and its options for perf_analyzer."""
    # with an end of the range, perf_analyzer uses one thread per request in flight; without, at most 16 threads
    closed = [(f"concurrency {count}", ["--concurrency-range", f"{count}:{count}"]) for count in concurrency]
    # -a (asynchronous): by default, perf_analyzer waits for responses in 4 threads, and sends requests late if the
    # responses are slow. With an overloaded server (120 of 150 requests/s), perf_analyzer sent 97 % of the requests
    # late, and reported a p99 latency of 42 ms instead of 1,065 ms.
    how = ["--request-distribution", "poisson", "-a"]
    return closed + [(f"poisson {each:g}/s", ["--request-rate-range", f"{each:g}", *how]) for each in rate]


def _window_flags(seconds: float) -> list[str]:
    """Return the options for exactly three windows, whose results ``-s`` accepts even if they differ greatly.

    With Poisson arrivals, the results of windows always differ. A fixed number of windows makes the duration
    predictable.
    """
    window_ms = max(1, round(1000 * seconds / (_WINDOWS * _STRETCH)))
    return ["-p", str(window_ms), "-r", str(_WINDOWS), "-s", "1000000"]


def write_input_json(
    images: Sequence[bytes],
    path: Path,
    model_input: ModelInput,
    *,
    numbers: Mapping[str, npt.NDArray[Any]] | None = None,
) -> None:
    """Write images as a JSON file for perf_analyzer's ``--input-data``, with one step per image.

    An element of a BYTES tensor consists of the length of the encoded image as a 4-byte little-endian integer, followed
    by the encoded image. A UINT8 tensor consists of the encoded image or of the pixels. A model that compares images
    receives the same image in every input.

    Args:
        images: Encoded images.
        path: JSON file to write.
        model_input: Description of the model's inputs.
        numbers: Values of the numeric inputs by name, which are sent with every image.

    Raises:
        PixprepError: The model requires pixels, but an image cannot be decoded.
    """
    other_inputs = {
        name: {"content": {"b64": base64.b64encode(array.tobytes()).decode("ascii")}, "shape": list(array.shape)}
        for name, array in (numbers or {}).items()
    }

    def entry(image: bytes) -> dict[str, object]:
        array = model_input.images([image])
        array = array if model_input.is_packed else array[0]
        is_bytes = model_input.datatype == "BYTES"
        content = struct.pack("<I", len(image)) + image if is_bytes else array.tobytes()
        return {"content": {"b64": base64.b64encode(content).decode("ascii")}, "shape": list(array.shape)}

    steps = [dict.fromkeys(model_input.names, entry(image)) | other_inputs for image in images]
    path.write_text(json.dumps({"data": steps}), encoding="ascii")


def find_perf_analyzer(folder: Path, *, search: str | None = None) -> tuple[str, dict[str, str]]:
    """Find perf_analyzer and check that it starts.

    Args:
        folder: Folder for links to the libraries that the program requires. It must exist as long as the program runs.
        search: Folders to search, in the format of ``PATH``. Default: the scripts folder of this Python, followed by
            the folders in ``PATH``.

    Returns:
        The path of the program, and the environment variables with which it must run.

    Raises:
        SetupError: perf_analyzer is not installed, or does not start. The message contains the fix.
    """
    default = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    program = shutil.which(_PROGRAM, path=default if search is None else search)
    if program is None:
        raise SetupError(f"{_PROGRAM} is not installed: {install('server')}")
    spec = importlib.util.find_spec("pytriton")
    if spec is not None and spec.origin is not None:
        for name, pattern in _LIBRARIES.items():
            for library in (Path(spec.origin).parents[1] / "nvidia_pytriton.libs").glob(pattern):
                (folder / name).symlink_to(library)
    paths = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(paths)}
    started = subprocess.run([program, "--version"], env=environment, capture_output=True, text=True, check=False)
    if started.returncode:
        reason = reason_in(started.stderr)
        if "GLIBC" in reason:
            remedy = "run bench on Debian 12, Ubuntu 22.04 or later; with --url, the server may be on another machine"
        elif any(name in reason for name in _LIBRARIES):
            remedy = install("server")
        else:
            remedy = "apt-get install libssl3 libstdc++6 zlib1g"
        raise SetupError(f"{_PROGRAM} does not start: {reason}: {remedy}")
    return program, environment


def _run_for(seconds: float, command: Sequence[str], environment: dict[str, str]) -> str:
    """Run perf_analyzer. If no request completes within a window, run it up to twice again with longer windows."""
    for longer in _LONGER:
        try:
            limit_s = 60 + 10 * longer * seconds
            return _run([*command, *_window_flags(longer * seconds)], environment, limit_s=limit_s)
        except PixprepError as error:
            if not any(text in str(error) for text in _TOO_SHORT) or longer == _LONGER[-1]:
                raise
    raise AssertionError


def _run(command: Sequence[str], environment: dict[str, str], *, limit_s: float) -> str:
    try:
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise PixprepError(
            f"{_PROGRAM} did not finish within {limit_s:g} s: check that the server still responds"
        ) from None
    if ended.returncode:
        reason, hint = reason_in(ended.stderr or ended.stdout), ""
        if _REQUEST_ERROR in ended.stderr:
            hint = "; a measurement ends at the first failed request: find the images that fail with `pixprep send`"
        elif "shared memory" in reason:
            hint = ": the server must allow shared memory (`pixprep serve --allow-shared-memory`)"
        raise PixprepError(f"{_PROGRAM}: {reason}{hint}")
    return ended.stdout


def reason_in(printed: str) -> str:
    r"""Return the error of the first failed request in perf_analyzer's output, or the last line if no request failed.

    >>> reason_in("Failed to maintain requested inference load.\nThread [0] had error: no such model")
    'no such model'
    """
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    of_requests = [line.split(_REQUEST_ERROR, 1)[1] for line in lines if _REQUEST_ERROR in line]
    return (of_requests or lines[-1:] or ["no error message"])[0].removeprefix("error: ")


def _late_percent(printed: str) -> float:
    """Return the percentage of requests that were sent late. It is 0 if perf_analyzer does not print a percentage."""
    found = re.search(r"([\d.]+)% of the requests were delayed", printed)
    return float(found[1]) if found else 0.0


def parse_report(text: str) -> dict[str, float]:
    """Read throughput and latency percentiles from perf_analyzer's CSV report.

    Returns:
        Values by the names of the attributes of ``Measurement``. Latencies are converted from microseconds to
        milliseconds.

    Raises:
        PixprepError: The CSV file does not have exactly one row, or columns are missing.
    """
    rows = list(csv.DictReader(io.StringIO(text)))
    columns = {f"p{percent}_ms": f"p{percent} latency" for percent in (50, 90, 95, 99)}
    try:
        (row,) = rows
        numbers = {name: float(row[column]) / 1000 for name, column in columns.items()}
        return {"images_per_s": round(float(row["Inferences/Second"]), 1), **numbers}
    except (KeyError, ValueError, TypeError):
        raise PixprepError(
            f"{_PROGRAM}'s report is not one row with Inferences/Second and {', '.join(columns.values())}: "
            "use version 2.51"
        ) from None


def to_table(rows: Sequence[Measurement]) -> str:
    """Format measurements as a text table with aligned columns."""
    found = _reported(rows)
    are_clips = any("frames_per_s" in row for row in found)
    columns = []
    for name in found[0]:
        shown = (name.replace("images", "clips") if are_clips else name).replace("_", " ")
        column = [shown, *(_cell(row[name]) for row in found)]
        width = max(map(len, column))
        is_text = name in ("protocol", "model", "load")
        columns.append([cell.ljust(width) if is_text else cell.rjust(width) for cell in column])
    return "".join("  ".join(line).rstrip() + "\n" for line in zip(*columns, strict=True))


def _reported(rows: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return the fields of each measurement. ``frames_per_s`` is omitted if it is None in all measurements."""
    are_clips = any(row.frames_per_s is not None for row in rows)
    return [{name: value for name, value in asdict(row).items() if are_clips or name != "frames_per_s"} for row in rows]


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def to_json(rows: Sequence[Measurement]) -> str:
    """Format measurements as a JSON list of objects."""
    return json.dumps(_reported(rows), indent=2) + "\n"
