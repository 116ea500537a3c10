"""The serving layer: perf_analyzer on the embedded Triton, the engine's own rate beside it, and what lies between.

``preprocess`` and ``ensemble`` are what ``pixprep build`` writes for the task of the contenders; ``peer_NAME`` is a
contender in Triton's Python backend, with an instance for each core, or with as many threads.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import measure
from pixels import difference, reference
from tritonclient import grpc

import pixprep as pp
from pixprep.triton import perf, pool, repository
from pixprep.triton.client import Triton
from pixprep.triton.server import Server
from pixprep.triton.supervisor import stubs

PEERS = ("torchvision", "dali")
PROTOCOLS = ("grpc", "http")
CONCURRENCY = (1, 4, 16)
SHARES = (0.5, 0.8)  # of the closed loop's rate: what Poisson arrivals offer
BATCH = 8
MEAN_LEVELS = 1.0
LONGEST_S = 20  # of a load whose requests take longer than a window of perf_analyzer
OWN = ("preprocess", "ensemble")
_STAGES = ("queue", "compute_input", "compute_infer", "compute_output")
_METRIC = re.compile(r'^pixprep_(\w+)\{[^}]*model="preprocess"[^}]*\} (\S+)$', re.MULTILINE)
_CONFIG = """backend: "python"
max_batch_size: 64
input {{ name: "image" data_type: TYPE_STRING dims: [ 1 ] }}
output {{ name: "tensor" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }}
instance_group {{ count: {count} kind: KIND_CPU }}
dynamic_batching {{ }}
parameters {{ key: "CONTENDER" value {{ string_value: "{name}" }} }}
parameters {{ key: "THREADS" value {{ string_value: "{threads}" }} }}
parameters {{ key: "FOLDER" value {{ string_value: "{folder}" }} }}
parameters {{ key: "LIBRARIES" value {{ string_value: "{libraries}" }} }}
"""


def measure_all(
    images: Sequence[bytes], interpreters: dict[str, Path], *, seconds: float, full: bool
) -> dict[str, Any]:
    """Every load on every model.

    Args:
        images: encoded, sent by turns.
        interpreters: by contender, whose libraries its model uses.
        seconds: of the engine's rounds; a load lasts four times as long.
        full: HTTP, single images and Poisson arrivals for every model too.
    """
    rows: list[dict[str, Any]] = []
    engine: list[tuple[list[float], float]] = []
    peers = [name for name in PEERS if name in interpreters]
    loads = [(protocol, batch) for protocol in (PROTOCOLS if full else PROTOCOLS[:1]) for batch in (1, BATCH)]
    length = max(2.0, 4 * seconds)
    with serve({name: interpreters[name] for name in peers}) as server:

        def load(*what: Any, **kind: Any) -> list[dict[str, Any]]:
            found = put_load(server, *what, images, seconds=length, **kind)
            rows.extend(found)
            return found

        for model in [*OWN, *(f"peer_{name}" for name in peers)]:
            put(server, model, "grpc", BATCH, images, seconds=length, concurrency=[2])  # warm
            if model != "ensemble":  # its tensor stays inside
                check(server, model, images[:2])
        single = partial(put, server, "preprocess", "grpc", 1, images[:1], seconds=length, concurrency=[1])
        overhead = between(server, single)
        for protocol, batch in loads:
            engine.append(engine_round(images, seconds))
            for model in OWN:
                levels = CONCURRENCY if model == "preprocess" or batch == 1 else CONCURRENCY[:2]
                closed = load(model, protocol, batch, concurrency=levels)  # the classifier's 128 images take seconds
                if model == "preprocess" and protocol == "grpc":
                    load(model, protocol, batch, concurrency=levels, shared_memory=True)
                rate = closed[-1]["images_per_s"] / batch
                load(model, protocol, batch, rate=[round(share * rate, 1) for share in SHARES])
            for name in peers if protocol == "grpc" else ():
                load(f"peer_{name}", protocol, batch, concurrency=CONCURRENCY)
                load(f"peer_{name}", protocol, batch, concurrency=CONCURRENCY, shared_memory=True)
        engine.append(engine_round(images, seconds))
    return {
        "engine": measure.summary([times for times, _ in engine], BATCH),
        "engine_cpu_ms_per_image": round(1e3 * sum(cpu_s for _, cpu_s in engine) / len(engine), 3),
        "loads": rows,
        "overhead_ms": overhead,
    }


def put(
    server: Server,
    model: str,
    protocol: perf.Protocol,
    batch: int,
    images: Sequence[bytes],
    *,
    seconds: float,
    **kind: Any,
) -> list[perf.Measurement]:
    """Put loads on a model, for longer where a window of perf_analyzer is too short for a request."""
    url = server.grpc_url if protocol == "grpc" else server.http_url
    while True:
        try:
            options = {"url": url, "protocol": protocol, "model": model, "batch": batch, "seconds": seconds}
            return perf.measure(images, **options, **kind)
        except pp.PixprepError as error:
            if "larger time window" not in str(error) or seconds > LONGEST_S:
                raise pp.PixprepError(f"{model}, {protocol}, batch {batch}, {kind}: {error}") from error
            seconds *= 3


def put_load(server: Server, model: str, *what: Any, **kind: Any) -> list[dict[str, Any]]:
    """The same, as rows: each measurement, and what an image took of the cores in all of them."""
    before = cpu(server)
    images_before = _statistics(server, model)["images"]
    found = put(server, model, *what, **kind)
    served = _statistics(server, model)["images"] - images_before
    spent = {name: round(1e3 * (now - before[name]) / served, 3) for name, now in cpu(server).items()}
    shared = bool(kind.get("shared_memory"))
    return [asdict(row) | {"shared_memory": shared, "cpu_ms_per_image": spent} for row in found]


@contextmanager
def serve(
    interpreters: dict[str, Path], *, classifier: Literal["onnxruntime", "torch"] = "onnxruntime"
) -> Iterator[Server]:
    """Triton with all models, and with the CUDA pool that ``pixprep serve`` makes."""
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="pixprep-benchmark-") as name:
        models = Path(name) / "models"
        repository.build(models, pipeline=pp.presets.imagenet(), classifier=classifier)
        for peer, python in interpreters.items():
            folder = models / f"peer_{peer}" / "1"
            folder.mkdir(parents=True)
            here = Path(__file__).parent
            shutil.copy(here / "peer_model.py", folder / "model.py")
            command = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
            libraries = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            threads = cores if peer == "dali" else 1
            config = _CONFIG.format(
                name=peer, threads=threads, count=cores // threads, folder=here, libraries=libraries
            )
            (folder.parent / "config.pbtxt").write_text(config, encoding="utf-8")
        arguments = pool.server_arguments(models)
        if arguments:
            os.environ[pool.VARIABLE] = str(pool.pool_in(arguments))
        with Server(models, http_port=0, grpc_port=0, metrics_port=0, extra_args=arguments) as server:
            yield server


def check(server: Server, model: str, images: Sequence[bytes], *, mean_levels: float = MEAN_LEVELS) -> None:
    """Refuse a model whose tensors are not those of the task."""
    with Triton(server.grpc_url, protocol="grpc") as triton:
        tensors = triton.infer(model, triton.model_input(model), images)["tensor"]
    found = difference(tensors, [reference(image, "bilinear") for image in images])
    if found["mean"] > mean_levels:
        raise pp.PixprepError(f"{model}: not timed: its pixels are {found['mean']:g} levels off on average")


def engine_round(
    images: Sequence[bytes], seconds: float, *, device: str = "cpu", batch: int = BATCH
) -> tuple[list[float], float]:
    """The engine alone in this process, with batches of one size: seconds of each; of a core, an image."""
    with pp.Engine(pp.presets.imagenet(), device=device) as engine:
        source = measure.batches(images, batch)
        engine.run_batch(next(source))
        before = time.process_time()
        times = measure.time_round(engine.run_batch, source, seconds)
        return times, (time.process_time() - before) / (batch * len(times))


def between(server: Server, run: Callable[[], object]) -> dict[str, float]:
    """Where a request's time goes, on average of those that ``run`` sends one after the other, in milliseconds.

    ``backend`` is what the engine does not account for: ``compute_infer`` less decode and transform. These two the
    backend samples, so that ``run`` should send one photo only.
    """
    statistics, metrics = _statistics(server), _metrics(server)
    run()
    stages = _less(_statistics(server), statistics)
    counted = _less(_metrics(server), metrics)
    parts = {name: stages[name] / stages["success"] / 1e6 for name in _STAGES}
    for name in ("decode", "transform"):
        parts[name] = 1e3 * counted[f"{name}_seconds_sum"] / counted[f"{name}_seconds_count"]
    parts["backend"] = parts["compute_infer"] - parts["decode"] - parts["transform"]
    numbers = {name: round(value, 4) for name, value in parts.items()}
    return {**numbers, "requests": stages["success"], "sampled": counted["decode_seconds_count"]}


def cpu(server: Server) -> dict[str, float]:
    """Seconds of a core so far: of Triton itself, of the processes of its Python models, and of perf_analyzer."""
    client = resource.getrusage(resource.RUSAGE_CHILDREN)
    models = sum(stub.cpu_s for stub in stubs(server.pid))
    return {"triton": _cpu_s(server.pid), "models": models, "client": client.ru_utime + client.ru_stime}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime


def _less(now: dict[str, float], then: dict[str, float]) -> dict[str, float]:
    return {name: value - then.get(name, 0) for name, value in now.items()}


def _statistics(server: Server, name: str = "preprocess") -> dict[str, float]:
    """Nanoseconds of each stage of a model so far, and how many requests succeeded."""
    with grpc.InferenceServerClient(server.grpc_url) as client:
        (model,) = client.get_inference_statistics(name, as_json=True)["model_stats"]
    stages = model["inference_stats"]  # gRPC leaves out what is 0
    times = {name: float(stages.get(name, {}).get("ns", 0)) for name in _STAGES}
    done = float(stages["success"].get("count", 0))
    return {**times, "success": done, "images": float(model.get("inference_count", 0))}


def _metrics(server: Server) -> dict[str, float]:
    """The backend's metrics, once they hold every image and stand still: it counts behind its answers."""
    wanted = _statistics(server)["images"]
    deadline = time.monotonic() + 30
    last: dict[str, float] = {}
    while time.monotonic() < deadline:
        with urllib.request.urlopen(server.metrics_url) as answer:  # noqa: S310  (our own server)
            found = {name: float(value) for name, value in _METRIC.findall(answer.read().decode())}
        if found == last and found.get("images_total", 0) >= wanted:
            return found
        last = found
        time.sleep(0.2)
    raise TimeoutError(f"{last.get('images_total', 0):g} of {wanted:g} images in the metrics after 30 s")


def summary(results: dict[str, Any]) -> Iterator[str]:
    """Lines for who waits."""
    own = results["engine"]["images_per_s"]
    yield f"serving: the engine alone {own:.1f}/s; of a single request, in ms: {results['overhead_ms']}"
    for row in results["loads"]:
        share = row["images_per_s"] / own
        way = "shm" if row["shared_memory"] else row["protocol"]
        what = f"{row['model']:17} {way:5} batch {row['batch']} {row['load']:16}"
        yield f"  {what} {row['images_per_s']:7.1f}/s {share:5.2f} x engine  p50 {row['p50_ms']} p99 {row['p99_ms']} ms"
