"""The proxy process of the front, which parses the head of each request and either rejects or forwards the request.

Image bytes are forwarded to Triton while they arrive, without buffering the whole body. Each client connection has its
own connection to Triton, through a Unix socket that other users cannot access. The front writes a new head from the
parsed fields, so that Triton cannot interpret a request differently than the front.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import gevent
from gevent import socket as waiting
from gevent.server import StreamServer

from pixprep.serving.front.body import Refusal, check_json, check_not_empty, classified, inflated, may_be_empty
from pixprep.serving.front.hosts import is_own, is_own_origin

MAX_HEAD = 32 << 10
MAX_VALUE = 8000
"""Maximum length in bytes of the request target and of a header value. At 8,192 bytes, Triton would close the
connection without a response."""
MAX_CHUNKS = 50_000
_MAX_TRAILERS = 100
_CHUNK_BYTES = 1 << 17
_LINGER_S = 2.0
_LARGE_BYTES = 64 << 10
"""Minimum size in bytes of data that is parsed in a separate thread, so that other clients do not have to wait."""
_ACCEPT_S = 2.0
_LOOK_S = 0.02
_HEAD = re.compile(
    rb"([A-Z]{1,16}) (/[!\"$-~]*) HTTP/1\.([01])\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*\r\n)*)\r\n"
)
_INFER = re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/infer")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)[ \t]*\r\n", re.IGNORECASE)
_CODINGS = re.compile(r"[a-z*-]*(;q=[01](\.[0-9]{0,3})?)?(, ?[a-z*-]+(;q=[01](\.[0-9]{0,3})?)?)*", re.IGNORECASE)
"""Regular expression for a valid ``Accept-Encoding`` header (RFC 9110). An invalid weight such as 1e999 crashes
Triton."""
_JSON_LENGTH = "inference-header-content-length"
_NOT_FORWARDED = {
    *("connection", "keep-alive", "proxy-connection", "te", "expect"),
    *("content-length", "content-encoding", "transfer-encoding", "content-type"),
}
"""Headers that are not forwarded, because they apply to one connection only, the front writes them itself, or they
crash Triton.

Triton does not use ``Content-Type``. However, its HTTP library parses a body of the type
``application/x-www-form-urlencoded`` (curl's default) as a query, and a body of more than 4 MB then crashes Triton
2.51.
"""


@dataclass(frozen=True)
class Rules:
    """Rules for accepting requests.

    Args:
        names: Accepted names in the ``Host`` header, in lower case. None means that every name is accepted.
        limit_bytes: Maximum size of a request body in bytes.
    """

    names: Sequence[str] | None
    limit_bytes: int


class Request:
    """Parsed head of an HTTP request: request line and headers.

    Args:
        head: Bytes of the head, including the empty line at the end.
        rules: Rules to check.

    Attributes:
        stays: Whether the client wants to keep the connection open.
        is_chunked: Whether the body has ``Transfer-Encoding: chunked``.
        length: Size of the body in bytes if it is not chunked.
        encoding: Value of ``Content-Encoding`` in lower case.
        json_length: Size of the JSON part of the body in bytes. None means that the whole body is JSON.

    Raises:
        Refusal: The head is not valid, or a website sent the request.
    """

    def __init__(self, head: bytes, rules: Rules) -> None:
        found = _HEAD.fullmatch(head)
        if not found:
            raise Refusal(400, "the request line or a header is not valid HTTP/1.1")
        self.method, self.target = found[1].decode(), found[2].decode()
        self.path = self.target.partition("?")[0]
        self.headers: dict[str, list[str]] = {}
        for line in found[4].decode("latin-1").split("\r\n")[:-1]:
            name, _, value = line.partition(":")
            self.headers.setdefault(name.lower(), []).append(value.strip(" \t"))
        if len(self.target) > MAX_VALUE or any(
            len(each) > MAX_VALUE for values in self.headers.values() for each in values
        ):
            raise Refusal(431, f"the request target or a header exceeds {MAX_VALUE:,} bytes")
        self.stays = found[3] == b"1" and "close" not in self._tokens("connection")
        self._refuse_websites(rules)
        if self.method not in ("GET", "HEAD", "POST"):
            raise Refusal(405, f"method {self.method} is not allowed: use GET, HEAD or POST")
        self.is_chunked, self.length = self._framing()
        if self.length > rules.limit_bytes:
            raise Refusal(413, _too_large(self.length, rules.limit_bytes))
        self.encoding = self._one("content-encoding", "identity").lower()
        self.json_length = self._json_length()

    def _refuse_websites(self, rules: Rules) -> None:
        hosts, origins = self.headers.get("host", []), self.headers.get("origin", [])
        host = (hosts or [""])[0]
        if len(hosts) > 1 or (hosts and rules.names is not None and not is_own(host, rules.names)):
            raise Refusal(403, "the Host header is not an accepted name: pass it to `pixprep serve --allow-hosts NAME`")
        site = self.headers.get("sec-fetch-site", ["none"])[0]
        is_visit = self.method == "GET" and self.headers.get("sec-fetch-mode") == ["navigate"]
        is_foreign = site not in ("none", "same-origin") and not is_visit
        if origins:
            is_foreign = len(origins) > 1 or not is_own_origin(origins[0], host, rules.names)
        if is_foreign:
            raise Refusal(
                403, "requests from other websites are not accepted: `pixprep serve --allow-hosts NAME` allows a host"
            )

    def _framing(self) -> tuple[bool, int]:
        lengths, codings = self.headers.get("content-length", []), self.headers.get("transfer-encoding", [])
        if codings:
            if lengths or [coding.lower() for coding in codings] != ["chunked"]:
                raise Refusal(400, "the request must have one valid Content-Length, or be chunked")
            return True, 0
        if len(lengths) > 1 or not re.fullmatch("[0-9]{1,18}", (lengths or ["0"])[0]):
            raise Refusal(400, "the request must have one valid Content-Length, or be chunked")
        return False, int((lengths or ["0"])[0])

    def _json_length(self) -> int | None:
        """Return the size in bytes of the JSON part before the binary tensors, or None if the whole body is JSON."""
        if _JSON_LENGTH not in self.headers or not _INFER.fullmatch(self.path):
            return None
        text = self._one(_JSON_LENGTH, "")
        if not re.fullmatch("[0-9]{1,12}", text):
            raise Refusal(400, "Inference-Header-Content-Length must be the size of the JSON part in bytes")
        return int(text)

    def _one(self, name: str, default: str) -> str:
        values = self.headers.get(name, [default])
        if len(values) > 1:
            raise Refusal(400, f"the request has more than one {name} header")
        return values[0]

    def _tokens(self, name: str) -> set[str]:
        return {token.strip().lower() for value in self.headers.get(name, []) for token in value.split(",")}

    @property
    def expects_continue(self) -> bool:
        """Whether the client expects_continue for the status ``100 Continue`` before it sends the body."""
        return "100-continue" in self._tokens("expect")

    @property
    def ends_with_connection(self) -> bool:
        """Whether the response may be chunked.

        If it is, Triton must close the connection at the end of the response.
        """
        return self.path.endswith(("/generate", "/generate_stream"))

    def _passed(self) -> list[tuple[str, list[str]]]:
        is_sound = all(map(_CODINGS.fullmatch, self.headers.get("accept-encoding", ())))
        left_out = _NOT_FORWARDED if is_sound else _NOT_FORWARDED | {"accept-encoding"}
        return [(name, values) for name, values in self.headers.items() if name not in left_out]

    def head(self, length: int) -> bytes:
        """Return the head to send to Triton. ``length`` is the size of the body in bytes."""
        lines = [f"{self.method} {self.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, values in self._passed() for value in values]
        lines += [f"content-length: {length}"] * (length > 0 or self.method == "POST")
        lines += ["connection: close"] * self.ends_with_connection
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Connection:
    """Connection of one client, together with the connection to Triton that serves this client.

    Args:
        client: Socket of the client.
        triton: Path of Triton's Unix socket.
        rules: Rules for accepting requests.
    """

    def __init__(self, client: Any, triton: str, rules: Rules) -> None:
        self._client = client
        self._path = triton
        self._rules = rules
        self._data = b""  # received bytes that have not been processed yet
        self._triton: Any = None
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stale = select.poll()

    def serve(self) -> None:
        """Handle requests until the client closes the connection or the front rejects a request."""
        try:
            while self._answer_one():
                pass
        except Refusal as refusal:
            with suppress(OSError):
                self._client.sendall(refusal.response())
                self._linger()
        except _ClientGone:
            pass
        finally:
            self._close_triton()
            self._client.close()

    def _answer_one(self) -> bool:
        """Handle the next request. Return whether the connection stays open for further requests."""
        request = Request(self._read_head(), self._rules)
        if request.expects_continue and not self._data:
            try:
                self._client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            except OSError:
                raise _ClientGone from None
        try:
            first, left = self._checked(request)
            self._connect()
            is_whole = self._pass_body(request.head(len(first) + left), first, left)
            return self._pass_answer(request) and is_whole
        except (ConnectionError, EOFError):
            raise Refusal(502, "Triton ended before it responded: send the request again") from None

    def _checked(self, request: Request) -> tuple[bytes, int]:
        """Read the JSON part of the body, and reject JSON that would crash Triton.

        A chunked or compressed body is read completely.

        Returns:
            The part of the body that has been read, decompressed if necessary, and the number of bytes that are still
            to be read from the client.
        """
        limit_bytes, n_json = self._rules.limit_bytes, request.json_length
        if request.is_chunked or request.encoding != "identity":
            body = self._read_chunks(limit_bytes) if request.is_chunked else self._read(request.length)
            if request.encoding != "identity":
                body = self._in_thread(inflated, body, request.encoding, limit_bytes)
            length = len(body)
        else:
            length = request.length
            body = b"" if n_json == 0 else self._read(length if n_json is None else min(n_json, length))
        n_json = length if n_json is None else n_json
        if n_json > length:
            raise Refusal(400, f"Inference-Header-Content-Length is {n_json}, but the body has only {length} bytes")
        if n_json:
            asked = self._in_thread(check_json, body[:n_json], length)
            if names := classified(asked):
                body += self._read(length - len(body))
                self._refuse_empty(request, asked, body[n_json:], names)
        return body, length - len(body)

    def _in_thread(self, function: Any, data: bytes, *arguments: Any) -> Any:
        """Call a function with data and return the result. If the data is large, the call runs in a separate thread."""
        if len(data) < _LARGE_BYTES:
            return function(data, *arguments)
        result = gevent.get_hub().threadpool.apply(_result_or_refusal, (function, data, *arguments))
        if isinstance(result, Refusal):
            raise result
        return result

    # Communication with the client

    def _receive(self, limit: int = _CHUNK_BYTES) -> bytes:
        try:
            data: bytes = self._client.recv(min(limit, _CHUNK_BYTES))
        except OSError:
            data = b""
        if not data:
            raise _ClientGone
        return data

    def _read_head(self) -> bytes:
        """Read the head of the next request."""
        while (end := self._data.find(b"\r\n\r\n")) < 0:
            if len(self._data) > MAX_HEAD:
                raise Refusal(431, f"the request headers exceed {MAX_HEAD:,} bytes")
            self._data += self._receive()
        return self._take(end + 4)

    def _take(self, count: int) -> bytes:
        taken, self._data = self._data[:count], self._data[count:]
        return taken

    def _read(self, count: int) -> bytes:
        """Read exactly ``count`` bytes."""
        pieces = [self._take(count)]
        left = count - len(pieces[0])
        while left:
            pieces.append(data := self._receive(left))
            left -= len(data)
        return b"".join(pieces)

    def _read_line(self) -> bytes:
        while (end := self._data.find(b"\r\n")) < 0:
            if len(self._data) > MAX_HEAD:
                raise Refusal(400, "a chunk of the request body does not have a valid size")
            self._data += self._receive()
        return self._take(end + 2)[:-2]

    def _read_chunks(self, limit_bytes: int) -> bytes:
        body = bytearray()
        for _ in range(MAX_CHUNKS):
            text = self._read_line().partition(b";")[0].strip(b" \t")
            if not re.fullmatch(b"[0-9A-Fa-f]{1,8}", text):
                raise Refusal(400, "a chunk of the request body does not have a valid size")
            count = int(text, 16)
            if len(body) + count > limit_bytes:
                raise Refusal(413, _too_large(len(body) + count, limit_bytes))
            if not count:
                break
            body += self._read(count)
            if self._read(2) != b"\r\n":
                raise Refusal(400, "a chunk of the request body is longer than its declared size")
        else:
            raise Refusal(413, f"the request body has more than {MAX_CHUNKS:,} chunks: send larger chunks")
        for _ in range(_MAX_TRAILERS):  # trailers are not forwarded
            if not self._read_line():
                return bytes(body)
        raise Refusal(400, f"the request body has more than {_MAX_TRAILERS} trailers")

    def _linger(self) -> None:
        """Read and discard bytes from the client for a moment before the connection is closed.

        Closing a connection with unread bytes sends a reset, which can discard the response.
        """
        self._client.shutdown(socket.SHUT_WR)
        with suppress(TimeoutError), gevent.Timeout(_LINGER_S, TimeoutError):
            while self._client.recv(_CHUNK_BYTES):
                pass

    # Communication with Triton

    def _connect(self) -> None:
        """Connect to Triton, unless an open connection already exists."""
        if self._triton is not None and not self._stale.poll(0):
            return
        self._close_triton()
        triton = self._triton = waiting.socket(socket.AF_UNIX)
        try:
            with gevent.Timeout(_ACCEPT_S, TimeoutError):
                triton.connect(self._path)
        except OSError:
            raise Refusal(503, "Triton is not running and is being restarted: retry in a few seconds") from None
        self._stale.register(triton.fileno(), select.POLLIN)

    def _refuse_empty(self, request: Request, asked: dict[str, Any], tensors: bytes, names: Sequence[str]) -> None:
        """Reject classification of an empty output, which would crash Triton.

        If an output may be empty, the front first sends the request without classification and checks the shapes.
        """
        path = request.path.rpartition("/")[0]
        if names := may_be_empty(self._ask(f"GET {path}/config", {}, b"") or {"output": ()}, names):
            outputs = [{"name": name, "parameters": {"binary_data": True}} for name in names]
            text = json.dumps({**asked, "outputs": outputs}).encode()
            lengths = {_JSON_LENGTH: len(text), "content-length": len(text) + len(tensors)}
            check_not_empty(self._ask(f"POST {request.path}", lengths, text + tensors) or {"outputs": ()})

    def _ask(self, request_line: str, headers: dict[str, int], body: bytes) -> dict[str, Any] | None:
        """Send Triton a request that originates from the front and not from the client.

        Args:
            request_line: HTTP method and request target.
            headers: Additional headers with numeric values.
            body: Body of the request.

        Returns:
            The JSON object of the response, or None if the status is not 200.
        """
        self._connect()
        lines = "".join(f"\r\n{name}: {value}" for name, value in headers.items())
        self._triton.sendall(f"{request_line} HTTP/1.1\r\nhost: localhost{lines}\r\n\r\n".encode() + body)
        data, end, length = self._read_answer()
        while len(data) < end + (length or 0):
            data += self._from_triton()
        if data.split(b" ", 2)[1] != b"200":
            return None
        split = re.search(rb"\r\n%s: *([0-9]+)" % _JSON_LENGTH.encode(), data[:end], re.IGNORECASE)
        return dict(json.loads(data[end : end + int(split[1]) if split else None]))

    def _close_triton(self) -> None:
        if self._triton is not None:
            with suppress(KeyError):
                self._stale.unregister(self._triton.fileno())
            self._triton.close()
            self._triton = None

    def _pass_body(self, head: bytes, first: bytes, left: int) -> bool:
        """Forward a request, and return whether Triton has read the whole request.

        Triton may respond and close the connection early.
        """
        data, left = b"".join((head, first, rest := self._take(left))), left - len(rest)
        while True:
            try:
                self._triton.sendall(data)
            except ConnectionError:
                return False
            if not left:
                return True
            data = self._receive(left)
            left -= len(data)

    def _pass_answer(self, request: Request) -> bool:
        """Forward the response unchanged, and return whether the client connection stays open."""
        data, end, length = self._read_answer()
        left = 0 if request.method == "HEAD" else -1 if length is None else end + length - len(data)
        try:
            self._client.sendall(data)
            while left:
                if not (data := self._triton.recv(_CHUNK_BYTES)):
                    break
                self._client.sendall(data)
                left -= len(data) if left > 0 else 0
        except OSError:
            raise _ClientGone from None
        return request.stays and left == 0 and not request.ends_with_connection

    def _read_answer(self) -> tuple[bytes, int, int | None]:
        """Receive the head of Triton's response.

        Returns:
            The bytes received so far; the offset of the body in these bytes; and the length of the body. The length is
            None if the end of the connection marks the end of the body.
        """
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._from_triton()
        length = _LENGTH.search(data, 0, end + 2)
        return data, end + 4, int(length[1]) if length else None

    def _from_triton(self) -> bytes:
        data: bytes = self._triton.recv(_CHUNK_BYTES)
        if not data:
            raise EOFError
        return data


def _result_or_refusal(function: Any, *arguments: Any) -> Any:
    """Call a function in a thread. Return a Refusal instead of raising it, because gevent would log the exception."""
    try:
        return function(*arguments)
    except Refusal as refusal:
        return refusal


class _ClientGone(Exception):  # noqa: N818  (not an error)
    pass


def _too_large(length: int, limit_bytes: int) -> str:
    return f"the request body has {length:,} bytes, but the limit is {limit_bytes:,} (--http-max-input-size)"


def main(sockets: str, settings: str) -> None:
    """Serve the inherited sockets as soon as they listen, until stdin is closed.

    Args:
        sockets: JSON list of pairs: the file descriptor of a socket, and the name of the Unix socket on which Triton
            receives the requests of this socket.
        settings: JSON object with the fields of ``Rules``, and with ``folder``, the folder of the Unix sockets.
    """
    fields = json.loads(settings)
    os.chdir(fields.pop("folder"))  # a relative path, because the path of a Unix socket has at most 107 bytes
    rules = Rules(**fields)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for number, triton in json.loads(sockets):
        gevent.spawn(_serve, waiting.socket(fileno=number), triton, rules)
    gevent.get_hub().threadpool.apply(sys.stdin.buffer.read)
    os._exit(0)


def _serve(listening: Any, triton: str, rules: Rules) -> None:
    while not listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        gevent.sleep(_LOOK_S)
    StreamServer(listening, lambda client, _: Connection(client, triton, rules).serve()).start()
