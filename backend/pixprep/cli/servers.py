"""Implements the commands for a server: serve, send, health, bench, demo, doctor, install-backend.

Modules are imported inside the functions of the commands, so that ``pixprep run`` works without Triton's packages.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from pixprep.cli.files import numbers_of, say_skipped
from pixprep.cli.output import called, log_to_stderr, print_answer, print_text, say
from pixprep.errors import PixprepError, SetupError
from pixprep.files import PHOTOS, expand, named, write
from pixprep.progress import Progress

CONCURRENCY = (1, 4, 16)
PAGE_PORT = 8003
_logger = logging.getLogger(__name__)


def serve_models(
    *,
    model_repository: Path,
    no_check: bool,
    watch: bool,
    page: bool,
    page_port: int,
    log_format: str,
    allow_operators: Sequence[str],
    **options: Any,
) -> int:
    """Run ``pixprep serve``."""
    from pixprep.plan.steps import finding
    from pixprep.serving.embedded import supervisor
    from pixprep.serving.embedded.request import CLIP
    from pixprep.serving.embedded.server import Server
    from pixprep.serving.page.process import Page
    from pixprep.serving.repository import check
    from pixprep.serving.repository.repository import models_in

    as_json = log_format == "json"
    server = Server(model_repository, **options)
    shown = Page(page_port) if page else None
    progress = Progress("models")

    def say_ready() -> None:
        progress.close()
        urls = {"http": server.http_url, "grpc": server.grpc_url, "metrics": server.metrics_url}
        hashes = server.snapshot.hashes
        if shown:
            shown.start(server)
        if as_json:
            page_url = {"page": shown.url} if shown else {}
            log = {"triton_log": str(server.log_file)}
            _logger.info("ready", extra={**urls, **page_url, **log, "models": hashes})
            return
        models = "  ".join(f"{name} {hash_}" for name, hash_ in hashes.items())
        model = server.models_to_try[0]
        photos = PHOTOS.relative_to(Path.cwd()) if PHOTOS.is_relative_to(Path.cwd()) else PHOTOS
        model_input = server.control.model_input(model)
        file = CLIP if model_input and model_input.frames else photos
        of_model = ["--model", model] if model != "ensemble" else []
        for name, rows in model_input.example.items() if model_input else ():
            of_model += ["--input", f"{name}={json.dumps(rows)}"]
        send = f"{called()} {shlex.join(['send', str(file), '--url', server.http_url, *of_model])}"
        lines = [*[send] * bool(model_input), *server.curls]
        say(f"ready  {'  '.join(map(' '.join, urls.items()))}", *(f"try    {line}" for line in lines))
        say(f"files  {models}")
        if shown:
            say(f"page   {shown.url}")

    log_to_stderr(as_json=as_json)
    find_problems: supervisor.Check = (lambda _: ()) if no_check else check
    try:
        finding.check_installed(allow_operators)
        if allow_operators:  # Triton and its Python processes inherit the environment
            names = [*os.environ.get(finding.VARIABLE, "").split(), *allow_operators]
            os.environ[finding.VARIABLE] = " ".join(dict.fromkeys(names))
        # `supervisor.serve` reports a folder that does not exist or that contains no models
        if model_repository.is_dir() and models_in(model_repository) and (problems := find_problems(model_repository)):
            words = f"{model_repository} has problems that prevent loading; to serve it anyway, pass --no-check"
            raise PixprepError(words, *map(str, problems))  # noqa: TRY301  (also logged as JSON below)
        with shown or nullcontext(), progress:
            on_progress = None if as_json else progress.to
            supervisor.serve(
                server, on_ready=say_ready, on_progress=on_progress, watch=find_problems if watch else None
            )
    except PixprepError as error:
        if not as_json:
            raise
        for line in error.args:
            _logger.critical("%s", line)
        return 1
    if as_json:
        _logger.info("stopped")
    else:
        say("stopped", file=sys.stderr)
    return 0


def send_images(*, paths: Sequence[Path], as_json: bool, inputs: Sequence[tuple[str, Any]] = (), **options: Any) -> int:
    """Run ``pixprep send``."""
    from pixprep.serving.embedded import client

    failed = 0
    options["inputs"] = numbers_of(inputs)
    say_skipped(paths)
    with Progress("images") as progress:
        for answer in client.send(paths, on_progress=progress.to, **options):
            failed += answer.error is not None
            with progress.hidden():
                print_answer(answer, as_json=as_json)
    return 1 if failed else 0


def ask_health(*, model: str, **options: Any) -> int:
    """Run ``pixprep health``."""
    from pixprep.serving.embedded import client

    say(f"ok  {model}  {client.health(model=model, **options):.1f} ms")
    return 0


def measure_server(
    *,
    paths: Sequence[Path],
    concurrency: Sequence[int] | None,
    rate: Sequence[float],
    csv_file: Path | None,
    json_file: Path | None,
    print_command: bool,
    as_json: bool,
    inputs: Sequence[tuple[str, Any]],
    **options: Any,
) -> int:
    """Run ``pixprep bench``."""
    from pixprep.serving.embedded import perf

    reports = [(path, text) for path, text in ((csv_file, perf.to_csv), (json_file, perf.to_json)) if path]
    for path, _ in reports:  # fail before the measurement, which takes minutes
        if path.is_dir() or not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
            raise PixprepError(f"{path} cannot be written: choose a file in a writable folder")
    images = []
    say_skipped(paths)
    for path in expand(paths):
        with named(path, "cannot be read"):
            images.append(path.read_bytes())
    options["inputs"] = numbers_of(inputs)
    concurrency = concurrency or (() if rate else CONCURRENCY)
    if print_command:
        folder = Path(tempfile.mkdtemp(prefix="pixprep-bench-"))
        try:
            say(*perf.command_lines(images, folder, concurrency=concurrency, rate=rate, **options))
        except BaseException:
            shutil.rmtree(folder)
            raise
        say(f"the command uses files in {folder}: remove that folder when you are done", file=sys.stderr)
        return 0
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
    print_text(perf.to_json(rows) if as_json else perf.to_table(rows))
    for path, text in reports:
        with named(path, "cannot be written"):
            write(path, text(rows))
    return 0


def show_demo(*, photos: Sequence[Path], model_repository: Path, force: bool, stay: bool) -> int:
    """Run ``pixprep demo``."""
    from pixprep.serving.embedded.wheel import find_wheel

    find_wheel()  # fail before writing or downloading anything if Triton does not support this version of Python
    from pixprep.serving.embedded import supervisor
    from pixprep.serving.embedded.server import Server
    from pixprep.serving.page.process import Page
    from pixprep.serving.repository import build, lite0

    paths = photos or [PHOTOS]
    expand(paths)
    http, grpc, metrics = (8000, 8001, 8002) if stay else (0, 0, 0)
    server = Server(model_repository, http_port=http, grpc_port=grpc, metrics_port=metrics)
    codes = []

    def send() -> None:
        say(f"ready     http {server.http_url}  grpc {server.grpc_url}")
        for protocol, url in (("http", server.http_url), ("grpc", server.grpc_url)):
            words = ["send", *map(str, paths), "--protocol", protocol, "--url", url]
            say("", f"$ {called()} {shlex.join(words)}")
            codes.append(send_images(paths=paths, protocol=protocol, url=url, classes=5, as_json=False))
        if stay:
            page.start(server)
            say("", f"page      {page.url}", "serving until Ctrl-C; try", *(f"$ {line}" for line in server.curls))

    say(f"building  {model_repository}: preprocess, classifier (EfficientNet-lite0), ensemble")
    try:
        lite0.find_checkpoint()
    except SetupError:
        say("fetching  the weights of the classifier (16 MB, only the first time)")
        lite0.fetch_checkpoint()
    try:
        build(model_repository, force=force)
    except SetupError as error:
        raise SetupError(*error.args, "to write the demo to a different folder, pass --model-repository DIR") from None
    say("starting  Triton")
    if stay:
        log_to_stderr()
        with Page(PAGE_PORT) as page:
            supervisor.serve(server, on_ready=send)
    else:
        with server:
            send()
    say("", "stopped")
    if not stay:
        say(f"next      {called()} serve --model-repository {shlex.quote(str(model_repository))}")
    return max(codes)


def look_for_traps(*, as_json: bool) -> int:
    """Run ``pixprep doctor``."""
    from pixprep.serving.embedded import doctor

    checks = doctor.checks()
    if as_json:
        print_text(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        marks = {True: "ok  ", False: "FAIL", None: "note"}
        for check in checks:
            say(f"{marks[check.ok]}  {check.name}: {check.found}")
            if not check.ok and check.remedy:
                say(f"      {check.remedy}")
    return 1 if any(check.ok is False for check in checks) else 0


def write_backend(*, directory: Path) -> int:
    """Run ``pixprep install-backend``."""
    from pixprep.serving.repository.backend import install_backend

    say(install_backend(directory))
    return 0
