"""The main job, end to end: build the demo repository, start Triton, classify photos over HTTP and gRPC, stop.

python -m pixprep.demo client_examples/images --model-repository model_repository
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from pixprep.errors import PixprepError
from pixprep.triton import client, repository
from pixprep.triton.server import Server
from pixprep.triton.supervisor import watch

STEPS = ("preprocess", "classifier")


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one request: in all, and in each model as Triton counted them."""

    total_ms: float
    steps_ms: dict[str, float]


def main() -> int:
    """Run the demo; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m pixprep.demo", description=__doc__)
    parser.add_argument("photos", type=Path, nargs="+", help="files or folders")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--stay", action="store_true", help="keep serving on ports 8000, 8001, 8002 until Ctrl-C")
    arguments = parser.parse_args()
    try:
        photos = client.expand(arguments.photos)
        say(f"building  {arguments.model_repository}: preprocess, classifier (EfficientNet-lite0), ensemble")
        repository.build(arguments.model_repository, force=True)
        ports = (8000, 8001, 8002) if arguments.stay else (0, 0, 0)
        server = Server(arguments.model_repository, http_port=ports[0], grpc_port=ports[1], metrics_port=ports[2])
        say("starting  Triton")
        start = time.perf_counter()
        with server:
            say(
                f"ready     after {time.perf_counter() - start:.1f} s at {server.http_url} and grpc {server.grpc_url}\n"
            )
            labels = (arguments.model_repository / "classifier" / "labels.txt").read_text(encoding="utf-8").splitlines()
            failed = classify(server, photos, labels)
            if arguments.stay:
                say("\nserving until Ctrl-C; try:")
                say(
                    f"  curl -s --data-binary @{photos[0]} -H 'Inference-Header-Content-Length: 0' \\\n"
                    f"       -H 'Content-Type: application/octet-stream' {server.http_url}/v2/models/ensemble/infer "
                    "| wc -c"
                )
                watch(server, ["preprocess"], Event())
        say("\nstopped")
    except PixprepError as error:
        sys.stderr.write(f"pixprep: {error}\n")
        return 1
    except KeyboardInterrupt:
        say("\nstopped")
        return 0
    return 1 if failed else 0


def classify(server: Server, photos: list[Path], labels: list[str]) -> int:
    """Send every photo over both protocols and print what came back; how many failed."""
    failed = 0
    for protocol, url in (("http", server.http_url), ("grpc", server.grpc_url)):
        module = import_module(f"tritonclient.{protocol}")
        triton = module.InferenceServerClient(url.removeprefix("http://"))
        try:
            for photo in photos:
                answer = ask(module, triton, photo.read_bytes())
                if isinstance(answer, str):
                    failed += 1
                    say(f"{protocol}  {photo.name}: {answer}\n")
                    continue
                logits, timing = answer
                # the steps do not add up to the whole: one begins before Triton has closed the books of the other
                steps = ", ".join(f"{name} {timing.steps_ms[name]:.1f} ms" for name in STEPS)
                say(f"{protocol}  {photo.name}  {timing.total_ms:.1f} ms  ({steps})")
                for label, share in top(logits, labels):
                    say(f"      {share:6.1%}  {label}")
                say("")
        finally:
            triton.close()
    return failed


def ask(module: Any, triton: Any, encoded: bytes) -> tuple[np.ndarray[Any, Any], Timing] | str:
    """One photo through the ensemble: its logits (1000,), or Triton's words why there are none."""
    image = module.InferInput("image", [1, 1], "BYTES")
    image.set_data_from_numpy(np.array([[encoded]], dtype=np.object_))
    before = {name: computed(triton, name) for name in STEPS}
    start = time.perf_counter()
    try:
        logits = triton.infer("ensemble", [image]).as_numpy("logits")[0]
    except import_module("tritonclient.utils").InferenceServerException as error:
        return str(error.message())
    total_ms = 1e3 * (time.perf_counter() - start)
    steps_ms = {}
    for name, (count, then) in before.items():
        deadline = time.monotonic() + 5
        while (now := computed(triton, name))[0] == count and time.monotonic() < deadline:
            time.sleep(0.002)  # Triton answers first and counts afterwards
        steps_ms[name] = (now[1] - then) / 1e6
    return logits, Timing(total_ms, steps_ms)


def computed(triton: Any, model: str) -> tuple[int, int]:
    """How many requests a model has answered, and the nanoseconds of its computing, input and output included."""
    statistics = triton.get_inference_statistics(model)
    if not isinstance(statistics, dict):  # gRPC
        statistics = import_module("google.protobuf.json_format").MessageToDict(statistics)
    stats = (statistics.get("model_stats") or statistics["modelStats"])[0]
    inference = stats.get("inference_stats") or stats["inferenceStats"]
    parts = ("compute_input", "compute_infer", "compute_output", "computeInput", "computeInfer", "computeOutput")
    spent = sum(int(inference[part].get("ns", 0)) for part in parts if part in inference)
    return int(inference["success"].get("count", 0)), spent


def top(logits: np.ndarray[Any, Any], labels: list[str], count: int = 5) -> Iterator[tuple[str, float]]:
    """The likeliest classes with their softmax."""
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    for index in np.argsort(-shares)[:count]:
        yield labels[index], float(shares[index])


def say(text: str) -> None:
    """Print at once, so that a slow step is seen to be under way."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
