"""Runs a helper process that serves a port, such as the front or the web page, and restarts it whenever it exits.

The helper is separate from the supervisor, because Triton is killed when the supervisor exits. A crash, high memory use
or a busy core therefore affects only the helper. The supervisor keeps the listening socket open, so that clients that
connect during a restart of the helper only have to wait.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from threading import Event, Thread

from pixprep.serving.embedded.failure import ended
from pixprep.serving.embedded.processes import OF_MODEL, Waits, after

_END_S = 5.0
_MAX_CHARS = 2000
"""Maximum number of characters that are read from one line of the process's output."""
_logger = logging.getLogger(__name__)


class Helper:
    """Helper process, together with a thread that restarts the process.

    Args:
        name: Name of the process in log messages.
        module: Package that the process runs with ``python -m``.
        sockets: Sockets that the process inherits. The caller must close them.
    """

    def __init__(self, name: str, module: str, sockets: Sequence[socket.socket]) -> None:
        self._name = name
        self._module = module
        self._sockets = sockets
        self._ending = Event()
        self._thread: Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        """Start the process with these command-line arguments."""
        self._thread = Thread(target=self._look_after, args=arguments, name=f"pixprep-{self._name}", daemon=True)
        self._thread.start()

    def _look_after(self, *arguments: str) -> None:
        """Run the process again and again until ``close`` is called. Errors are logged and not raised."""
        waits = Waits(*OF_MODEL)
        while not self._ending.is_set():
            began_at = time.monotonic()
            try:
                how = ended(self._run(*arguments))
            except OSError as error:
                how = f"did not start: {error.strerror}"
            wait_s = waits.count(ran_s=time.monotonic() - began_at) or 0.0
            if not self._ending.is_set():
                _logger.error("the process of the %s %s; it is restarted%s", self._name, how, after(wait_s))
                self._ending.wait(wait_s)

    def _run(self, *arguments: str) -> int:
        """Run the process until it exits, log its output, and return its exit code."""
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, *arguments],
            cwd="/",  # with ``-m``, this is the first entry of sys.path, so it must not contain a user's modules
            env={name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            stdin=subprocess.PIPE,  # the helper exits when its stdin is closed, which happens if this process exits
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[each.fileno() for each in self._sockets],
            start_new_session=True,  # Ctrl-C must only reach this process and not the helper
        )
        if self._ending.is_set():  # ``close`` was called before the process existed
            process.kill()
        with process:
            assert process.stderr is not None
            while line := process.stderr.readline(_MAX_CHARS):
                _logger.warning("the %s: %s", self._name, line.decode(errors="replace").rstrip())
        return process.returncode

    def close(self) -> None:
        """End the process without restarting it."""
        self._ending.set()
        if self._process is not None:
            self._process.kill()
        if self._thread is not None:
            self._thread.join(_END_S)
