"""The page's process: an HTTP server on the loopback address for the browser of the user who runs `pixprep serve`.

Any website can make the browser send requests to this server. A request is therefore accepted only if its ``Host`` is
localhost or an IP address (which excludes DNS rebinding), its ``Origin`` is the page itself, and no other website
caused the request.

    GET /                           return the page
    GET /models                     return the models that accept photos
    GET /sample                     return a sample photo
    POST /photo?model=M&name=FILE   return the model's outputs for the photo in the body; if the body consists of
                                    several photos, the query contains the `length` of each photo
    POST /stages?model=M&input=I    return pictures of the photo at each stage of the pipeline
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate, pairwise
from pathlib import Path
from threading import BoundedSemaphore, Thread
from typing import Any
from urllib.parse import parse_qs

from pixprep.errors import PixprepError, SetupError
from pixprep.files import PHOTOS
from pixprep.serving.embedded.connection import RequestError
from pixprep.serving.front.hosts import is_own
from pixprep.serving.page.answer import Photos

CONNECTIONS = 8
"""Maximum number of simultaneous connections. Further connections wait. A browser opens up to six connections."""
READ_S = 20.0
"""Time limit in seconds for receiving a request. The same limit applies separately to sending the response."""
MAX_CLIENT_WAIT_S = 1.0
"""Maximum number of seconds that a connection waits for its client while other connections are waiting to be
handled."""
_LINGER_S = 1.0
SAMPLE = "flower.jpg"
_OCTETS = "application/octet-stream"
_MAX_NAME_CHARS = 255  # maximum length of a file name in an example command

Refusal = tuple[HTTPStatus, str]


def refusal(method: str, headers: Message) -> Refusal | None:
    """Check the headers of a request before its path and body are processed.

    Args:
        method: HTTP method of the request, GET or POST.
        headers: Headers of the request.

    Returns:
        None if the request is accepted, or the HTTP status and the error message if it is rejected.
    """
    hosts, origin, site = headers.get_all("Host", []), headers.get("Origin"), headers.get("Sec-Fetch-Site")
    if len(hosts) != 1 or not is_own(hosts[0]):
        return HTTPStatus.FORBIDDEN, "open this page at 127.0.0.1 or localhost: other host names are not accepted"
    if origin is not None and origin != f"http://{hosts[0]}":
        return HTTPStatus.FORBIDDEN, "only the page itself may send requests to this server"
    # a link on another website may open the page, because that website cannot read the response
    is_visit = method == "GET" and headers.get("Sec-Fetch-Mode") == "navigate"
    if site not in (None, "none", "same-origin") and not is_visit:
        return HTTPStatus.FORBIDDEN, "only the page itself may send requests to this server"
    if method == "POST" and headers.get("Content-Type") != _OCTETS:  # forms of any website can send other types
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send the photo as the request body, with Content-Type {_OCTETS}"
    return None


def body_length(headers: Message, *, limit_bytes: int) -> int | Refusal:
    """Return the size of a request body in bytes. If it is not accepted, return the HTTP status and error message."""
    lengths = headers.get_all("Content-Length", [])
    if "Transfer-Encoding" in headers or len(lengths) != 1 or not re.fullmatch(r"[0-9]{1,12}", lengths[0]):
        return HTTPStatus.LENGTH_REQUIRED, "the request must have one valid Content-Length header"
    length = int(lengths[0])
    if length > limit_bytes:
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the photo has {length:,} bytes, but the limit is {limit_bytes:,}"
    return length


def cut(body: bytes, lengths: Sequence[str]) -> list[bytes] | None:
    """Split a request body into photos of the given lengths in bytes. Without lengths, the body is one photo.

    Returns:
        The photos, or None if the lengths are invalid or their sum differs from the length of the body.
    """
    if not lengths:
        return [body]
    if not all(re.fullmatch(r"[0-9]{1,12}", text) for text in lengths):
        return None
    ends = [0, *accumulate(map(int, lengths))]
    return [body[start:end] for start, end in pairwise(ends)] if ends[-1] == len(body) else None


def page() -> str:
    """Return the HTML of the page, including its style and script."""
    html, style, script = (
        Path(__file__).with_name(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js")
    )
    return html.replace("<style>", f"<style>\n{style}").replace("<script>", f"<script>\n{script}")


def policy(html: str) -> str:
    """Return the Content-Security-Policy of the page, with the hashes of the only script and style that may run."""

    def sources(tag: str) -> str:
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in texts)

    return (
        f"default-src 'none'; script-src {sources('script')}; style-src {sources('style')}; "
        "img-src blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


class PageServer(ThreadingHTTPServer):
    """HTTP server of the page. Each connection carries one request, which is handled in its own thread.

    Args:
        listening: Socket that is already listening.
        photos: Object that sends photos to the models.
        read_s: Time limit in seconds for receiving a request. The same limit applies separately to sending the
            response.
    """

    daemon_threads = True

    def __init__(self, listening: socket.socket, photos: Photos, *, read_s: float = READ_S) -> None:
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.photos = photos
        self.read_s = read_s
        self.html = page()
        self.policy = policy(self.html)
        self._slots = BoundedSemaphore(CONNECTIONS)
        self._waiting: dict[socket.socket, float] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Wait until fewer than ``CONNECTIONS`` connections are open, then handle the request in a thread."""
        while not self._slots.acquire(timeout=MAX_CLIENT_WAIT_S / 10):
            self._close_slowest()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle a request inside its thread, then allow the next connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    @contextmanager
    def waiting(self, connection: socket.socket, since: float) -> Iterator[None]:
        """For the duration of the block, register that a connection has been waiting for its client since ``since``."""
        self._waiting[connection] = since
        try:
            yield
        finally:
            self._waiting.pop(connection, None)

    def _close_slowest(self) -> None:
        """Close the connection that has waited longest for its client, if that is over ``MAX_CLIENT_WAIT_S``."""
        waiting = self._waiting.copy()
        slowest = min(waiting, key=waiting.__getitem__, default=None)
        if slowest is not None and time.monotonic() - waiting[slowest] > MAX_CLIENT_WAIT_S:
            with suppress(OSError):  # the connection has just been closed
                slowest.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Print the traceback of an error, unless the browser closed the connection or was too slow."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            traceback.print_exc()


class _Until(io.RawIOBase):
    """Stream that reads from a connection. It raises TimeoutError at a deadline, even if bytes are still arriving."""

    def __init__(self, server: PageServer, connection: socket.socket, within_s: float) -> None:
        self._server = server
        self._connection = connection
        self._since = time.monotonic()
        self._within_s = within_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._since + self._within_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        with self._server.waiting(self._connection, self._since):
            return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """Handles one request of a browser to the page."""

    server: PageServer

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Until(self.server, self.connection, self.server.read_s))

    def version_string(self) -> str:
        return "pixprep"

    def log_message(self, *_: Any) -> None:
        """Do not log requests. The standard library would print one line per request."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Send a JSON error response to a request that the standard library rejects."""
        self._say(HTTPStatus(code), {"error": HTTPStatus(code).phrase})

    def do_GET(self) -> None:
        """Handle a GET or POST request, and send a JSON error if it fails."""
        try:
            if refused := refusal(self.command, self.headers):
                self._refuse(*refused)
            elif self.command == "POST":
                self._post()
            else:
                self._get()
        except RequestError as error:
            self._refuse(HTTPStatus.BAD_REQUEST if error.is_refusal else HTTPStatus.BAD_GATEWAY, str(error))
        except SetupError as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except PixprepError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except (ConnectionError, TimeoutError):  # the browser closed the connection or was too slow
            raise
        except Exception:  # noqa: BLE001  (the traceback goes to the log, and the browser receives a response)
            traceback.print_exc()
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error of the page: see the log of `pixprep serve`")

    do_POST = do_GET  # noqa: N815  (name required by the standard library)

    def _get(self) -> None:
        match self.path.partition("?")[0]:
            case "/":
                self._send(HTTPStatus.OK, self.server.html.encode(), "text/html; charset=utf-8")
            case "/models":
                self._say(HTTPStatus.OK, {"models": self.server.photos.models()})
            case "/sample":
                self._send(HTTPStatus.OK, (PHOTOS / SAMPLE).read_bytes(), "image/jpeg")
            case _:
                self._refuse(HTTPStatus.NOT_FOUND, "this path does not exist")

    def _post(self) -> None:
        path, _, text = self.path.partition("?")
        query = parse_qs(text, keep_blank_values=True)
        (model, *_), photos = query.get("model", [""]), self.server.photos
        if path not in ("/photo", "/stages"):
            self._refuse(HTTPStatus.NOT_FOUND, "this path does not exist")
            return
        length = body_length(self.headers, limit_bytes=photos.limit_bytes(model))
        if isinstance(length, tuple):
            self._refuse(*length)
            return
        encoded = self.rfile.read(length)
        if len(encoded) < length:
            self._refuse(HTTPStatus.BAD_REQUEST, "the request body is shorter than its Content-Length")
        elif path == "/stages":
            self._say(HTTPStatus.OK, {"stages": photos.stages(model, encoded, port=query.get("input", [""])[0])})
        elif (parts := cut(encoded, query.get("length", []))) is None:
            self._refuse(HTTPStatus.BAD_REQUEST, "the parameters `length` do not match the size of the request body")
        else:
            names = [name[:_MAX_NAME_CHARS] for name in query.get("name", [])]
            self._say(HTTPStatus.OK, photos.answer(model, parts, names=names))

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Send an error response, then read and discard the rest of the request.

        Closing a connection with unread bytes could discard the response.
        """
        self._say(status, {"error": message})
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            rest = _Until(self.server, self.connection, _LINGER_S)
            while rest.readinto(bytearray(1 << 16)):
                pass

    def _say(self, status: HTTPStatus, what: dict[str, Any]) -> None:
        self._send(status, json.dumps(what, allow_nan=False).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": self.server.policy,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        self.connection.settimeout(self.server.read_s)  # the time limit applies to each call of ``write`` as a whole
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        with self.server.waiting(self.connection, time.monotonic()):
            self.end_headers()
            self.wfile.write(body)


def main(number: str, settings: str) -> None:
    """Serve the page on an inherited socket until stdin is closed.

    Args:
        number: File descriptor of the socket.
        settings: JSON object with the arguments of ``Photos``.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")  # Pillow's warnings about damaged files contain text from them
    with suppress(OSError):  # if the machine runs out of memory, the kernel should kill the page first
        Path("/proc/self/oom_score_adj").write_text("1000")
    Thread(target=_end_with_supervisor, daemon=True).start()
    fields = json.loads(settings)
    fields["folder"] = Path(fields["folder"])
    with PageServer(socket.socket(fileno=int(number)), Photos(**fields)) as server:
        server.serve_forever()


def _end_with_supervisor() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)
