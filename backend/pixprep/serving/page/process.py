"""Starts and ends the page's process for the supervisor, which does not decode photos in its own process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pixprep.serving.embedded.addresses import claim, listen
from pixprep.serving.embedded.helper import Helper
from pixprep.serving.embedded.server import Server

if TYPE_CHECKING:
    from typing_extensions import Self

_ADDRESS = "127.0.0.1"


class Page:
    """Web page of one server. As a context manager, it ends the page's process on exit.

    Args:
        port: Port on 127.0.0.1 on which the page listens. 0 selects any free port.

    Raises:
        SetupError: The port is in use, or not allowed.
    """

    def __init__(self, port: int = 0) -> None:
        self._socket = claim(_ADDRESS, port, "page")
        listen(self._socket, "page")
        self._helper = Helper("page", "pixprep.serving.page", [self._socket])

    @property
    def url(self) -> str:
        """URL of the page, ``http://127.0.0.1:PORT``."""
        return f"http://{_ADDRESS}:{self._socket.getsockname()[1]}"

    def start(self, server: Server) -> None:
        """Start the page's process, for a server whose models are ready."""
        settings = {
            "models": [*server.ensembles, *server.pipeline_models],
            "folder": str(server.snapshot.folder),
            "http_url": server.http_url,
            "grpc_url": server.grpc_url,
        }
        self._helper.start(str(self._socket.fileno()), json.dumps(settings))

    def close(self) -> None:
        """End the page's process and release the port."""
        self._helper.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
