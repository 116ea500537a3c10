"""What each command does with its options, and its exit code; the docstrings are the help that users read.

A command imports what it needs when it runs: ``pixprep run`` works where nothing of Triton is installed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from pixprep import presets
from pixprep.engine import Engine
from pixprep.errors import ImageError, PixprepError
from pixprep.explain import explain
from pixprep.files import expand, named, npy_names, read
from pixprep.pipeline import Pipeline
from pixprep.printing import Progress, print_answer, print_row, summary

PRESETS = {name: getattr(presets, name) for name in ("imagenet", "clip", "efficientnet_lite0", "letterbox")}
CONCURRENCY = (1, 4, 16)


def write_repository(*, output: Path, pipeline: Path | None, preset: str | None, **options: Any) -> int:
    """Write a model repository: preprocess, classifier, ensemble. Without arguments, the demo.

    pixprep build --pipeline pipeline.json --onnx classifier.onnx --classifier tensorrt --output models
    """
    from pixprep.repository import build

    given = Pipeline.load(pipeline) if pipeline else None
    built = build(output, pipeline=PRESETS[preset]() if preset else given, **options)
    for path in built.paths:
        print(path)
    for note in built.notes:
        print(note, file=sys.stderr)
    return 0


def check_path(*, path: Path, as_json: bool) -> int:
    """Check a model repository or a pipeline file, without a server.

    pixprep check models
    """
    from pixprep.repository import check, check_pipeline

    if not path.exists():
        raise PixprepError(f"{path}: no such file or folder")
    problems = check(path) if path.is_dir() else check_pipeline(path)
    if as_json:
        print(json.dumps([asdict(problem) for problem in problems], indent=2))
    else:
        for problem in problems:
            print(problem)
        if len(problems) != 1:  # one says it all
            print(f"{path}: {f'{len(problems)} problems' if problems else 'no problem found'}")
    return 1 if problems else 0


def import_pipeline(*, source: str, file: Path, option: Sequence[tuple[str, Any]], force: bool) -> int:
    """Write a model's own preprocessing as a pipeline file: of torchvision, timm, transformers, Keras ...

    pixprep import timm:resnet50.a1_in1k pipeline.json
    """
    from pixprep import importers

    if file.exists() and not force:
        raise PixprepError(f"{file}: exists already; --force writes over it")
    pipeline = importers.import_pipeline(source, **dict(option))
    with named(file, "cannot be written"):
        pipeline.save(file)
    origin = pipeline.origin
    assert origin
    version = "" if origin.version == "unknown" else f" {origin.version}"
    print(f"{file}: {origin.name} of {origin.library}{version}, pixels as in {origin.profile}")
    return 0


def verify_pipeline(*, pipeline: Path, images: Sequence[Path], as_json: bool) -> int:
    """Compare a pipeline with the library whose pixels it claims to give, stage by stage.

    pixprep verify pipeline.json --images photos
    """
    from pixprep.verify import verify

    paths = expand(images)
    with Progress("images") as progress:
        certificate = verify(Pipeline.load(pipeline), images=paths, on_progress=progress.to)
    print(certificate.to_json() if as_json else certificate)
    return 0 if certificate.holds else 1


def explain_pipeline(*, pipeline: Path, size: tuple[int, int]) -> int:
    """Say what a pipeline does: ops, plan, shapes.

    pixprep explain pipeline.json --size 480x640
    """
    height, width = size
    print(explain(Pipeline.load(pipeline), height=height, width=width), end="")
    return 0


def run_files(*, pipeline: Path, files: Sequence[Path], output: Path | None, as_json: bool, **options: Any) -> int:
    """Run a pipeline on files, without a server: a summary, or one .npy a file.

    pixprep run pipeline.json cat.jpg dog.jpg --output tensors
    """
    paths = expand(files)
    failed = 0
    with Engine(Pipeline.load(pipeline), **options) as engine:
        if output:
            with named(output, "cannot be written"):
                output.mkdir(parents=True, exist_ok=True)
        for path, name, result in zip(paths, npy_names(paths), _results(engine, paths), strict=True):
            row: dict[str, Any] = {"file": str(path)}
            if isinstance(result, str | ImageError):
                failed += 1
                row["error"] = str(result)
            else:
                row |= summary(result)
                if output:
                    row["output"] = str(output / name)
                    with named(output / name, "cannot be written"):
                        np.save(row["output"], result)
            print_row(row, as_json=as_json)
    return 1 if failed else 0


def _results(engine: Engine, paths: Sequence[Path]) -> Iterator[Any]:
    """For each file its tensor, or why there is none; a few at once, so that every thread has work."""
    several = 2 * engine.lanes
    for start in range(0, len(paths), several):
        contents = [read(path) for path in paths[start : start + several]]
        results = iter(engine.run([content for content in contents if isinstance(content, bytes)]))
        for content in contents:
            result: Any = content if isinstance(content, str) else next(results)
            yield result.get() if hasattr(result, "get") else result  # a tensor that the engine left on a GPU


def serve_models(*, model_repository: Path, no_check: bool, watch: bool, **options: Any) -> int:
    """Serve a model repository with the embedded Triton, until Ctrl-C.

    pixprep serve --model-repository model_repository --http-port 8000
    """
    from pixprep.repository import check
    from pixprep.serve import supervisor
    from pixprep.serve.server import Server

    # what is no folder at all, the server refuses in its own words
    problems = check(model_repository) if model_repository.is_dir() and not no_check else []
    if problems:
        lines = "\n".join(map(str, problems))
        raise PixprepError(f"{model_repository} would not load; --no-check serves it all the same\n{lines}")
    server = Server(model_repository, **options)

    def say_ready() -> None:
        urls = f"http {server.http_url}  grpc {server.grpc_url}  metrics {server.metrics_url}"
        models = "  ".join(f"{name} {hash_}" for name, hash_ in server.snapshot.hashes.items())
        print(f"ready  {urls}\ntry    {server.curl}\nfiles  {models}", flush=True)

    logging.basicConfig(format="pixprep: %(message)s")
    find_problems: supervisor.Check = (lambda _: ()) if no_check else check
    supervisor.serve(server, on_ready=say_ready, watch=find_problems if watch else None)
    print("stopped", file=sys.stderr)
    return 0


def send_images(*, paths: Sequence[Path], as_json: bool, **options: Any) -> int:
    """Send images to a server: files, or folders of them.

    pixprep send photos --protocol grpc --model ensemble --batch 8
    """
    from pixprep.serve import client

    failed = 0
    with Progress("images") as progress:
        for answer in client.send(paths, on_progress=progress.to, **options):
            failed += answer.error is not None
            with progress.hidden():
                print_answer(answer, as_json=as_json)
    return 1 if failed else 0


def ask_health(*, model: str, **options: Any) -> int:
    """Send one image through a model: exit code 0 if it answers in time. For Kubernetes and load balancers.

    pixprep health --model ensemble --timeout 2
    """
    from pixprep.serve import client

    print(f"ok  {model}  {client.health(model=model, **options):.1f} ms")
    return 0


def measure_server(
    *,
    paths: Sequence[Path],
    concurrency: Sequence[int] | None,
    rate: Sequence[float],
    csv_file: Path | None,
    json_file: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure a server with perf_analyzer: throughput and latency.

    pixprep bench photos --protocol grpc --concurrency 1 4 16 --rate 50 --csv-file bench.csv
    """
    from pixprep.serve import perf

    reports = [(path, text) for path, text in ((csv_file, perf.to_csv), (json_file, perf.to_json)) if path]
    for path, _ in reports:  # before minutes of measuring
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PixprepError(f"{path}: cannot be written: name a file in a folder that you may write")
    images = []
    for path in expand(paths):
        with named(path, "cannot be read"):
            images.append(path.read_bytes())
    concurrency = concurrency or (() if rate else CONCURRENCY)
    loads = len(concurrency) + len(rate)
    done = count(1)
    with Progress("loads") as progress:
        progress.to(0, loads)
        rows = perf.measure(
            images,
            concurrency=concurrency,
            rate=rate,
            on_progress=lambda _: progress.to(next(done), loads),
            **options,
        )
    print(perf.to_json(rows) if as_json else perf.to_table(rows), end="")
    for path, text in reports:
        with named(path, "cannot be written"):
            path.write_text(text(rows), encoding="utf-8")
    return 0


def look_for_traps(*, as_json: bool) -> int:
    """Look for each trap that this machine may have, with the remedy.

    pixprep doctor
    """
    from pixprep.serve import doctor

    checks = doctor.checks()
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        marks = {True: "ok  ", False: "FAIL", None: "note"}
        for check in checks:
            print(f"{marks[check.ok]}  {check.name}: {check.found}")
            if not check.ok and check.remedy:
                print(f"      {check.remedy}")
    return 1 if any(check.ok is False for check in checks) else 0


def write_backend(*, directory: Path) -> int:
    """Write the backend, with the package in it, into a Triton's backend directory.

    pixprep install-backend /opt/tritonserver/backends
    """
    from pixprep.repository.backend import install_backend

    print(install_backend(directory))
    return 0
