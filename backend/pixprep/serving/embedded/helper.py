"""A helper process that serves a port of pixprep, and that is restarted when it ends.

It is separate from the supervisor's process. A crash, a gigabyte of memory or a busy core then affects only the helper
and not the supervisor, whose end would also end Triton. The supervisor keeps the socket, so that a client that connects
between two helper processes only waits.
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
_MOST_LETTERS = 2000
"""Maximum length of a line that is read from the process."""
_logger = logging.getLogger(__name__)


class Helper:
    """A helper process, and the thread that starts it again.

    Args:
        name: Its name in the log.
        module: Package that the process runs.
        sockets: Sockets that it inherits; they are the caller's to close.
    """

    def __init__(self, name: str, module: str, sockets: Sequence[socket.socket]) -> None:
        self._name = name
        self._module = module
        self._sockets = sockets
        self._ending = Event()
        self._thread: Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        """Start it with arguments."""
        self._thread = Thread(target=self._look_after, args=arguments, name=f"pixprep-{self._name}", daemon=True)
        self._thread.start()

    def _look_after(self, *arguments: str) -> None:
        """Start the process, and start it again, until the end. The server continues in any case."""
        waits = Waits(*OF_MODEL)
        while not self._ending.is_set():
            began_at = time.monotonic()
            try:
                how = ended(self._run(*arguments))
            except OSError as error:
                how = f"does not start: {error.strerror}"
            wait_s = waits.count(ran_s=time.monotonic() - began_at) or 0.0
            if not self._ending.is_set():
                _logger.error("the %s's process %s; it is started again%s", self._name, how, after(wait_s))
                self._ending.wait(wait_s)

    def _run(self, *arguments: str) -> int:
        """Run the process until it ends, and log its output. Returns the exit code."""
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, *arguments],
            cwd="/",  # Python looks for modules there first
            env={name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            stdin=subprocess.PIPE,  # closed when this process ends for any reason; the helper then also ends
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[each.fileno() for each in self._sockets],
            start_new_session=True,  # Ctrl-C reaches only this process
        )
        if self._ending.is_set():  # ``close`` has not seen it
            process.kill()
        with process:
            assert process.stderr is not None
            while line := process.stderr.readline(_MOST_LETTERS):
                _logger.warning("the %s: %s", self._name, line.decode(errors="replace").rstrip())
        return process.returncode

    def close(self) -> None:
        """End the process."""
        self._ending.set()
        if self._process is not None:
            self._process.kill()
        if self._thread is not None:
            self._thread.join(_END_S)
