"""The command ``pixprep demo``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pixprep.errors import SetupError
from pixprep.options import Folder, Shell
from pixprep.serving.options import Protocol, SendOptions

EXAMPLE = "demo cat.jpg holiday_photos --stay"


def run(
    photos: Annotated[Sequence[Path], Shell(nargs="*")] = (),
    *,
    model_repository: Folder = Path("model_repository"),
    force: bool = False,
    stay: bool = False,
) -> int:
    """Build the demo repository, serve it, and classify photos over HTTP and gRPC.

    Args:
        photos: Image files or folders; default: two photos that ship with pixprep.
        model_repository: The repository to write.
        force: Overwrite existing files.
        stay: Keep serving on ports 8000 to 8002 until Ctrl-C, with a web page on port 8003.
    """
    from pixprep.serving.embedded.wheel import find_wheel

    find_wheel()  # fail before writing or downloading anything if Triton does not support this version of Python
    from pixprep.cli.commands import send
    from pixprep.cli.commands.serve import PAGE_PORT
    from pixprep.cli.output import log_to_stderr, pixprep_command, say
    from pixprep.files import PHOTOS, expand
    from pixprep.serving.embedded import supervisor
    from pixprep.serving.embedded.server import Server
    from pixprep.serving.page.process import Page
    from pixprep.serving.repository import build, lite0

    folder, paths = model_repository, photos or [PHOTOS]
    expand(paths)
    server = Server(folder) if stay else Server(folder, http_port=0, grpc_port=0, metrics_port=0)
    codes = []

    def classify() -> None:
        say(f"ready     http {server.http_url}  grpc {server.grpc_url}")
        urls: dict[Protocol, str] = {"http": server.http_url, "grpc": server.grpc_url}
        for protocol, url in urls.items():
            words = ["send", *map(str, paths), "--protocol", protocol, "--url", url]
            say("", f"$ {pixprep_command()} {shlex.join(words)}")
            codes.append(send.run(paths, SendOptions(protocol=protocol, url=url, classes=5)))
        if stay:
            page.start(server)
            say("", f"page      {page.url}", "serving until Ctrl-C; try", *(f"$ {line}" for line in server.curls))

    say(f"building  {folder}: preprocess, classifier (EfficientNet-lite0), ensemble")
    try:
        lite0.find_checkpoint()
    except SetupError:
        say("fetching  the weights of the classifier (16 MB, only the first time)")
        lite0.fetch_checkpoint()
    try:
        build(folder, force=force)
    except SetupError as error:
        raise SetupError(*error.args, "to write the demo to a different folder, pass --model-repository DIR") from None
    say("starting  Triton")
    if stay:
        log_to_stderr()
        with Page(PAGE_PORT) as page:
            supervisor.serve(server, on_ready=classify)
    else:
        with server:
            classify()
    say("", "stopped")
    if not stay:
        say(f"next      {pixprep_command()} serve --model-repository {shlex.quote(str(folder))}")
    return max(codes)
