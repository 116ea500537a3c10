"""The supervisor's side of the page: its port, and its process, which is started anew when it ends.

The page has a process of its own, since it decodes what is dropped on it: a crash, a gigabyte, a core that is busy are
then the page's, and not the supervisor's, whose end would be Triton's. The port stays here, so that a browser that
comes between two processes just waits.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
from threading import Event, Thread
from typing import TYPE_CHECKING

from pixprep.errors import SetupError
from pixprep.serving.embedded.addresses import check_ports
from pixprep.serving.embedded.failure import ended
from pixprep.serving.embedded.processes import OF_MODEL, Waits, after
from pixprep.serving.embedded.server import Server

if TYPE_CHECKING:
    from typing_extensions import Self

_ADDRESS = "127.0.0.1"
_END_S = 5.0
_MOST_LETTERS = 2000
"""Of a line that the process says."""
_logger = logging.getLogger(__name__)


class Page:
    """The page of one server; a context manager that leaves nothing behind.

    Args:
        port: on this machine's loopback, whatever the server listens on; 0: any free one.

    Raises:
        SetupError: the port is taken.
    """

    def __init__(self, port: int = 0) -> None:
        found = check_ports(_ADDRESS, {"page": port})["page"]
        try:
            self._socket = socket.create_server((_ADDRESS, found), backlog=64)
        except OSError as error:
            raise SetupError(f"port {found}: {error.strerror}: choose another --page-port") from None
        self._ending = Event()
        self._thread: Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://{_ADDRESS}:{self._socket.getsockname()[1]}"

    def start(self, server: Server) -> None:
        """Show the page of a server, which is ready."""
        settings = {
            "models": [*server.ensembles, *server.pipeline_models],
            "folder": str(server.snapshot.folder),
            "http_url": server.http_url,
            "grpc_url": server.grpc_url,
        }
        self._thread = Thread(target=self._look_after, args=(json.dumps(settings),), name="pixprep-page", daemon=True)
        self._thread.start()

    def _look_after(self, settings: str) -> None:
        """Start the process, and start it anew, until the end. Whatever becomes of it, the server goes on."""
        waits = Waits(*OF_MODEL)
        while not self._ending.is_set():
            began_at = time.monotonic()
            try:
                how = ended(self._run(settings))
            except OSError as error:
                how = f"does not start: {error.strerror}"
            wait_s = waits.count(ran_s=time.monotonic() - began_at) or 0.0
            if not self._ending.is_set():
                _logger.error("the page's process %s; it is started anew%s", how, after(wait_s))
                self._ending.wait(wait_s)

    def _run(self, settings: str) -> int:
        """Run the process until it ends, and log what it says; its exit code."""
        number = self._socket.fileno()
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "pixprep.serving.page", str(number), settings],
            cwd="/",  # Python looks for modules there first
            env={name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            stdin=subprocess.PIPE,  # it ends when nobody holds the other end: with us, however we end
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[number],
            start_new_session=True,  # Ctrl-C reaches us alone
        )
        if self._ending.is_set():  # ``close`` has not seen it
            process.kill()
        with process:
            assert process.stderr is not None
            while line := process.stderr.readline(_MOST_LETTERS):
                _logger.warning("the page: %s", line.decode(errors="replace").rstrip())
        return process.returncode

    def close(self) -> None:
        """End the process, and give the port back."""
        self._ending.set()
        if self._process is not None:
            self._process.kill()
        if self._thread is not None:
            self._thread.join(_END_S)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
