"""The command ``pixprep serve``."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

from pixprep.errors import PixprepError
from pixprep.options import Folder, Port
from pixprep.serving.options import ServerOptions

PAGE_PORT = 8003


EXAMPLE = "serve --model-repository model_repository --http-port 8000"


def run(
    options: ServerOptions,
    *,
    model_repository: Folder = Path("model_repository"),
    allow_operators: Sequence[str] = (),
    page: bool = False,
    page_port: Port = PAGE_PORT,
    log_format: Literal["text", "json"] = "text",
    watch: bool = False,
    no_check: bool = False,
) -> int:
    """Serve a model repository with the embedded Triton, until Ctrl-C.

    Args:
        model_repository: Folder of the model repository to serve.
        allow_operators: Names of installed custom operators that pipelines may call; see docs/own-operators.md.
        page: Also serve a web page to browsers on this machine, which shows a photo's stages, classes and latencies.
        page_port: Port of the page; 0: any free port.
        log_format: Format of the log; json: one object per line, including the lines of Triton's log.
        watch: Reload a model when its files change, if it passes `pixprep check` and loads.
        no_check: Start even if `pixprep check` finds problems in the repository.
    """
    import logging

    from pixprep.cli.output import log_to_stderr, pixprep_command, say
    from pixprep.files import PHOTOS
    from pixprep.plan.steps import operators
    from pixprep.progress import Progress
    from pixprep.serving.embedded import supervisor
    from pixprep.serving.embedded.request import CLIP
    from pixprep.serving.embedded.server import Server
    from pixprep.serving.page.process import Page
    from pixprep.serving.repository import check
    from pixprep.serving.repository.repository import models_in

    logger = logging.getLogger(__name__)
    folder, as_json = model_repository, log_format == "json"
    server = Server(folder, **vars(options))
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
            logger.info("ready", extra={**urls, **page_url, **log, "models": hashes})
            return
        models = "  ".join(f"{name} {hash_}" for name, hash_ in hashes.items())
        model = server.models_to_try[0]
        photos = PHOTOS.relative_to(Path.cwd()) if PHOTOS.is_relative_to(Path.cwd()) else PHOTOS
        model_input = server.control.model_input(model)
        file = CLIP if model_input and model_input.frames else photos
        of_model = ["--model", model] if model != "ensemble" else []
        for name, rows in model_input.example.items() if model_input else ():
            of_model += ["--input", f"{name}={json.dumps(rows)}"]
        send = f"{pixprep_command()} {shlex.join(['send', str(file), '--url', server.http_url, *of_model])}"
        lines = [*[send] * bool(model_input), *server.curls]
        say(f"ready  {'  '.join(map(' '.join, urls.items()))}", *(f"try    {line}" for line in lines))
        say(f"files  {models}")
        if shown:
            say(f"page   {shown.url}")

    log_to_stderr(as_json=as_json)
    find_problems: supervisor.Check = (lambda _: ()) if no_check else check
    try:
        operators.check_installed(allow_operators)
        if allow_operators:  # Triton and its Python processes inherit the environment
            names = [*os.environ.get(operators.VARIABLE, "").split(), *allow_operators]
            os.environ[operators.VARIABLE] = " ".join(dict.fromkeys(names))
        # `supervisor.serve` reports a folder that does not exist or that contains no models
        if folder.is_dir() and models_in(folder) and (problems := find_problems(folder)):
            words = f"{folder} has problems that prevent loading; to serve it anyway, pass --no-check"
            raise PixprepError(words, *map(str, problems))  # noqa: TRY301  (also logged as JSON below)
        with shown or nullcontext(), progress:
            on_progress = None if as_json else progress.to
            watched = find_problems if watch else None
            supervisor.serve(server, on_ready=say_ready, on_progress=on_progress, watch=watched)
    except PixprepError as error:
        if not as_json:
            raise
        for line in error.args:
            logger.critical("%s", line)
        return 1
    if as_json:
        logger.info("stopped")
    else:
        say("stopped", file=sys.stderr)
    return 0
