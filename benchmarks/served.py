"""Measure serving with perf_analyzer on the embedded Triton, and the rate of the engine alone.

``pixprep build`` writes the models ``preprocess`` and ``ensemble`` for the task of the contenders. ``peer_NAME`` is a
contender in Triton's Python backend, with one instance or one thread per core.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import measure
from pixels import difference, reference
from tritonclient import grpc

import pixprep as pp
from pixprep.cores import cores as usable_cores
from pixprep.serving import repository
from pixprep.serving.embedded import perf
from pixprep.serving.embedded.connection import Triton
from pixprep.serving.embedded.server import Server
from pixprep.serving.embedded.stubs import stubs
from pixprep.serving.triton.pool import IMAGES_IN_FLIGHT

PEERS = ("torchvision", "dali")
OWN = ("preprocess", "ensemble")
CONCURRENCY = (1, 4, 16)
POISSON_FRACTIONS = (0.5, 0.8)  # rate of the Poisson arrivals, as a fraction of the closed loop's rate
BATCH = 8
MEAN_LEVELS = 1.0
MAX_WINDOW_S = 20  # perf_analyzer's time window, for loads whose requests take longer than its default
CONFIG = """backend: "python"
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
    """Measure every load on every model.

    Args:
        images: Encoded images. The requests use them in turn.
        interpreters: Interpreters by contender. The model of a contender uses the libraries of its interpreter.
        seconds: Duration of the engine's rounds. A load takes four times as long.
        full: Whether to also measure single images and Poisson arrivals.
    """
    rows: list[dict[str, Any]] = []
    engine: list[tuple[list[float], float]] = []
    peers = {name: interpreters[name] for name in PEERS if name in interpreters}
    length = max(2.0, 4 * seconds)
    with serve(peers) as server:
        models = [*OWN, *(f"peer_{name}" for name in peers)]
        for model in models:
            put(server, model, BATCH, images, seconds=length, concurrency=[2])  # warm up
            if model != "ensemble":  # the client does not receive the tensor
                check(server, model, images[:2], MEAN_LEVELS)
        for batch in (1, BATCH) if full else (BATCH,):
            engine.append(engine_round(images, seconds))
            for model in models:
                levels = CONCURRENCY
                if model == "ensemble" and batch > 1:
                    levels = levels[:2]  # its classifier takes seconds for 128 images
                for shared in (False,) if model == "ensemble" else (False, True):  # 4 KB of logits
                    kind = {"seconds": length, "shared_memory": shared}
                    rows += put_load(server, model, batch, images, concurrency=levels, **kind)
                if full and model in OWN:
                    like = (model, batch, False)
                    closed = [row for row in rows if (row["model"], row["batch"], row["shared_memory"]) == like]
                    rate = closed[-1]["images_per_s"] / batch
                    rates = [round(share * rate, 1) for share in POISSON_FRACTIONS]
                    rows += put_load(server, model, batch, images, rate=rates, seconds=length)
        engine.append(engine_round(images, seconds))
    return {
        "engine": measure.summary([times for times, _ in engine], BATCH),
        "engine_cpu_ms_per_image": round(1e3 * sum(cpu_s for _, cpu_s in engine) / len(engine), 3),
        "loads": rows,
    }


def put(
    server: Server, model: str, batch: int, images: Sequence[bytes], *, seconds: float, **kind: Any
) -> list[perf.Measurement]:
    """Run loads on a model over gRPC, with a longer time window if perf_analyzer requires it."""
    while True:
        try:
            options = {"url": server.grpc_url, "protocol": "grpc", "model": model, "batch": batch}
            return perf.measure(images, seconds=seconds, **options, **kind)
        except pp.PixprepError as error:
            if "larger time window" not in str(error) or seconds > MAX_WINDOW_S:
                raise pp.PixprepError(f"{model}, batch {batch}, {kind}: {error}") from error
            seconds *= 3


def put_load(server: Server, model: str, *what: Any, **kind: Any) -> list[dict[str, Any]]:
    """Run a load. Return its measurements as rows, with the CPU time per image averaged over all measurements."""
    before, served = cpu(server), images_served(server, model)
    found = put(server, model, *what, **kind)
    served = images_served(server, model) - served
    spent = {name: round(1e3 * (now - before[name]) / served, 3) for name, now in cpu(server).items()}
    shared = bool(kind.get("shared_memory"))
    return [asdict(row) | {"shared_memory": shared, "cpu_ms_per_image": spent} for row in found]


@contextmanager
def serve(interpreters: dict[str, Path]) -> Iterator[Server]:
    """Start Triton with all models, and with the CUDA memory pool of ``pixprep serve``."""
    cores = usable_cores()
    with tempfile.TemporaryDirectory(prefix="pixprep-benchmark-") as name:
        models = Path(name) / "models"
        repository.build(models, pipeline=pp.presets.imagenet())
        for peer, python in interpreters.items():
            folder = models / f"peer_{peer}" / "1"
            folder.mkdir(parents=True)
            here = Path(__file__).parent
            shutil.copy(here / "peer_model.py", folder / "model.py")
            command = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
            libraries = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            threads = cores if peer == "dali" else 1
            config = CONFIG.format(name=peer, threads=threads, count=cores // threads, folder=here, libraries=libraries)
            (folder.parent / "config.pbtxt").write_text(config, encoding="utf-8")
        ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
        with Server(models, **ports, images_in_flight=IMAGES_IN_FLIGHT, allow_shared_memory=True) as server:
            yield server


def check(server: Server, model: str, images: Sequence[bytes], mean_levels: float) -> None:
    """Raise PixprepError if the tensors of a model differ from those of the task."""
    with Triton(server.grpc_url, protocol="grpc") as triton:
        tensors = triton.infer(model, triton.model_input(model), images)["tensor"]
    found = difference(tensors, [reference(image, "bilinear") for image in images])
    if found["mean"] > mean_levels:
        raise pp.PixprepError(f"{model}: not timed: its pixels differ by {found['mean']:g} on average")


def engine_round(images: Sequence[bytes], seconds: float, *, batch: int = BATCH) -> tuple[list[float], float]:
    """Run the engine alone in this process, with batches of one size.

    Return seconds per batch and CPU seconds per image.
    """
    with pp.Engine(pp.presets.imagenet()) as engine:
        endless = measure.batches(images, batch)
        engine.run_batch(next(endless))
        before = time.process_time()
        times = measure.time_round(engine.run_batch, endless, seconds)
        return times, (time.process_time() - before) / (batch * len(times))


def images_served(server: Server, name: str) -> float:
    """Return the number of images that a model has processed so far."""
    with grpc.InferenceServerClient(server.grpc_url) as client:
        (model,) = client.get_inference_statistics(name, as_json=True)["model_stats"]
    return float(model.get("inference_count", 0))  # gRPC omits fields that are 0


def cpu(server: Server) -> dict[str, float]:
    """Return the total CPU seconds of Triton, the processes of its Python models, and perf_analyzer."""
    client = resource.getrusage(resource.RUSAGE_CHILDREN)
    fields = Path(f"/proc/{server.pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    triton = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime
    models = sum(stub.cpu_s for stub in stubs(server.pid))
    return {"triton": triton, "models": models, "client": client.ru_utime + client.ru_stime}


def summary(results: dict[str, Any]) -> Iterator[str]:
    """Yield lines that summarize the result."""
    own = results["engine"]["images_per_s"]
    yield f"serving: the engine alone {own:.1f}/s"
    for row in results["loads"]:
        share = row["images_per_s"] / own
        what = f"{row['model']:17} {'shm' if row['shared_memory'] else 'grpc':5} batch {row['batch']} {row['load']:16}"
        yield f"  {what} {row['images_per_s']:7.1f}/s {share:5.2f} x engine  p50 {row['p50_ms']} p99 {row['p99_ms']} ms"
