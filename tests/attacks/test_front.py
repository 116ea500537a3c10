"""Attack: A website makes the user's browser send requests to `pixprep serve`. A client sends a request that crashes
Triton, or sends two requests disguised as one.

Defence: The front validates Host, Origin, framing, JSON and shapes before Triton reads any byte, and rewrites the
request's head.

Outcome: The client receives an error message, and the mocked Triton receives nothing. All other requests reach Triton
unchanged.
"""

import gzip
import http.client
import http.server
import json
import socket
import socketserver
import threading
import time
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from pixprep.serving.embedded.helper import Helper
from support.serving import RAW, said, wait_until

LIMIT = 1 << 20
TIMEOUT_S = 120
INFER = "/v2/models/frames/infer"
PHOTO = bytes(range(256)) * 1000
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
CONFIG = {
    "output": [
        {"name": name, "data_type": f"TYPE_{kind}", "dims": dims}
        for name, kind, dims in (
            ("scores", "FP32", [1000]),
            ("rows", "FP32", [-1, 4]),
            ("text", "STRING", [1]),
            ("columns", "FP32", [4, -1]),
            ("none", "FP32", [0]),
        )
    ]
}


class Triton(http.server.BaseHTTPRequestHandler):
    """Mock of Triton that records requests and returns their bodies as responses."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            raise AssertionError("chunks")
        extra, body = {}, self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, self.headers, body))
        if "ends" in self.path:
            self.close_connection = True
            return
        if self.path.endswith("/config"):
            body = json.dumps(CONFIG).encode()
        elif b"outputs" in body:  # Triton's response format if JSON values are requested
            wanted = json.loads(body.partition(b"}]}")[0] + b"}]}")["outputs"]
            shape = [0, 4] if "empty" in self.path else [1, 4]
            values = [{"name": each["name"], "shape": shape} for each in wanted if "binary_data" in each["parameters"]]
            body = json.dumps({"outputs": values}).encode()
            extra = {"Inference-Header-Content-Length": len(body)} if values else {}
            body += bytes(16 * len(values))
        self.send_response(418 if "odd" in self.path else 200)
        for name, value in {"X-Odd": "as it was", **extra}.items():
            self.send_header(name, value)
        if "generate" in self.path:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
            return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if self.command != "HEAD" else b"")
        if "closes" in self.path:
            self.close_connection = True

    do_GET = do_HEAD = do_POST  # noqa: N815  (the standard library's names)

    def address_string(self):
        return "a Unix socket"

    def log_message(self, *_):
        pass


class Tritons(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, path):
        self.asked = []
        super().__init__(str(path), Triton)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()
        Path(self.server_address).unlink()


class Front:
    """Runs the front in its own process, with a mocked Triton as its server."""

    def __init__(self, folder, *, names=("localhost", "box")):
        self.path = folder / "http.sock"
        self.triton = Tritons(self.path)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._helper = Helper("front", "pixprep.serving.front", [self._socket])
        rules = {"names": names, "limit_bytes": LIMIT, "folder": str(folder)}
        self._helper.start(json.dumps([(self._socket.fileno(), "http.sock")]), json.dumps(rules))

    def close(self):
        self._helper.close()
        self._socket.close()
        self.triton.close()

    @property
    def asked(self):
        """Return the last request that reached the mocked Triton."""
        return self.triton.asked[-1]

    def raw(self, data):
        """Send bytes, and return everything that the front sends until it closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as connection:
            connection.sendall(data)
            return connection.makefile("rb").read()

    def ask(self, body=b"", headers=(), *, method="POST", path=INFER, kept=None):
        """Send a request, and return the status and body of the response."""
        connection = kept or http.client.HTTPConnection(self.address, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            if not kept:
                connection.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with closing(Front(tmp_path_factory.mktemp("front"))) as front:
        yield front


@pytest.fixture
def front(shared):
    shared.triton.asked.clear()
    return shared


def rejection_status(answer):
    """Return the status of an error response. Assert that the front sent the response, not the mock."""
    status, body = answer
    assert said(body).startswith("front: "), body
    return status


# websites


FOREIGN = (
    *({"Host": host} for host in ("evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil")),
    *({"Host": host} for host in ("localhost@evil.example", "LOCALHOST.:{port}", "localhost:", "2130706433", "")),
    *({"Host": host} for host in ("[evil]", "[::1", "0x7f000001", "127.1", "box.evil.example", "evil/127.0.0.1")),
    *({"Origin": origin} for origin in ("http://evil.example", "https://evil.example", "null", "", "file://")),
    *({"Origin": f"http://{host}"} for host in ("127.0.0.1.evil.example", "localhost@evil.example", "evil:8000")),
    *({"Origin": origin} for origin in ("http://203.0.113.5", "https://203.0.113.5:8443", "http://[2001:db8::1]")),
    {"Origin": "http://127.0.0.1 http://evil.example"},
    {"Origin": "chrome-extension://127.0.0.1"},
    *({"Sec-Fetch-Site": site} for site in ("cross-site", "same-site", "odd")),
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
)


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_website_reaches_no_model(front, headers):
    headers = {name: value.format(port=front.port) for name, value in headers.items()}
    assert rejection_status(front.ask(PHOTO, {**RAW, "Content-Type": "text/plain", **headers})) == 403
    if "Sec-Fetch-Mode" not in headers:
        assert rejection_status(front.ask(headers=headers, method="GET", path="/v2/models/stats")) == 403
    assert front.triton.asked == []


def test_two_hosts_and_two_origins_are_rejected(front):
    for name in ("Host", "Origin"):
        two = "".join(f"{name}: {value}localhost\r\n" for value in ("http://" * (name == "Origin"), "http://evil."))
        assert front.raw(f"GET /v2 HTTP/1.1\r\n{two}\r\n".encode()).startswith(b"HTTP/1.1 403 ")
    assert front.triton.asked == []


TRUSTED = (
    {},
    *({"Host": host} for host in ("localhost", "LOCALHOST:9000", "127.0.0.1", "[::1]:8000", "10.0.0.7:80", "Box:8000")),
    *({"Origin": origin} for origin in ("http://localhost:3000", "https://box", "http://127.0.0.1:{port}")),
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:{port}"},
)


@pytest.mark.parametrize("headers", TRUSTED, ids=str)
def test_programs_and_pages_with_the_servers_own_name_are_accepted(front, headers):
    headers = {name: value.format(port=front.port) for name, value in headers.items()}
    assert front.ask(PHOTO, {**RAW, **headers}) == (200, PHOTO)
    for name, value in headers.items():
        assert front.asked[2].get_all(name) == [value]


def test_a_link_on_another_site_can_lead_to_a_model_and_a_probe_can_omit_the_host(front):
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert front.ask(headers=visit, method="GET", path="/v2") == (200, b"")
    assert front.raw(b"GET /v2/health/ready HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_a_server_for_other_machines_accepts_any_name_but_only_its_own_pages(tmp_path):
    with closing(Front(tmp_path, names=None)) as front:
        for host, origin, status in (
            ("triton.svc:8000", None, 200),
            ("triton.svc:8000", "http://triton.svc:8000", 200),
            ("triton.svc:8000", "https://evil.example", 403),
            ("triton.svc:8000", "null", 403),
        ):
            headers = {**RAW, "Host": host, **({"Origin": origin} if origin else {})}
            assert front.ask(PHOTO, headers)[0] == status, (host, origin)


# JSON


def request(shape="[1, 4, 4, 3]", data="", extra=""):
    entry = f'{{"name": "image", "datatype": "UINT8", "shape": {shape}{data}}}'
    return f'{{"inputs": [{entry}]{extra}}}'


HUGE = "[1, 4611686018427387904, 4, 3]"
BAD_JSONS = {
    "deep data": request(data=f', "data": {"[" * 40_000}{"]" * 40_000}'),
    "33 levels": "[" * 33 + "]" * 33,
    "deep objects": '{"a":' * 40_000 + "1" + "}" * 40_000,
    "deep behind a string": request(extra=f', "id": "\\"]]", "x": {"[" * 99}{"]" * 99}'),
    "deep and not closed": "[" * 40_000,
    # took 14 s for 40 kB when each quote started a new search
    "a string that does not end": '{"a":"' + '\\"' * 400_000,
    "deep and of two kinds": '[{"a":' * 20_000,
    "a string that is not closed": '{"id": "' + "[" * 100,
    "no object": "[]",
    "null": "null",
    "nothing but a byte": "\0",
    "in UTF-16": request().encode("utf-16"),
    "a name twice": request(extra=', "id": "1", "id": "2"'),
    "a number of 5,000 digits": request(f"[{'9' * 5000}]"),
    "a shape that wraps": request(HUGE),
    "in other letters": request().replace("shape", "sh\\u0061pe").replace("[1, 4", "[1, 4611686018427387904"),
    "first of two": request(f'{HUGE}, "shape": [1, 4, 4, 3]'),
    "last of two": request(f'[1, 4, 4, 3], "shape": {HUGE}'),
    "in floats": request("[1, 4611686018427387904.0]"),
    "as an exponent": request("[1, 4e18]"),
    "over 64 bits": request("[73786976294838206464]"),
    "in brackets": request(f"[{HUGE}]"),
    "as text": request(f'"{HUGE}"'),
    "of a boolean": request("[true]"),
    "below 0": request("[1, -1]"),
    "behind a 0": request("[0, 4611686018427387904]"),
    "of none": '{"inputs": [{"name": "image"}]}',
    "more than the bytes": request("[1, 1000]"),
    "shared memory without a size": request(data=', "parameters": {"shared_memory_region": "x"}'),
    "shared memory of 2^63": request(
        HUGE, data=f', "parameters": {{"shared_memory_region": "x", "shared_memory_byte_size": {2**63}}}'
    ),
}


@pytest.mark.parametrize("name", BAD_JSONS)
def test_json_that_would_crash_triton_is_rejected(front, name):
    text = BAD_JSONS[name] if isinstance(BAD_JSONS[name], bytes) else BAD_JSONS[name].encode()
    for path in (INFER, "/v2/models/frames/versions/1/infer"):
        assert rejection_status(front.ask(text, path=path)) == 400
        assert (
            rejection_status(front.ask(text + PHOTO[:48], {"Inference-Header-Content-Length": str(len(text))})) == 400
        )
    assert front.triton.asked == []
    assert front.ask(text, RAW) == (200, text)  # a binary body is an image, not JSON


@pytest.mark.parametrize("path", ["/v2/models/m/generate", "/v2/systemsharedmemory/region/x/register", "/v2/logging"])
def test_json_is_checked_on_every_path_and_a_header_for_tensors_cannot_hide_it(front, path):
    assert rejection_status(front.ask(b"[" * 40_000, RAW, path=path)) == 400
    assert rejection_status(front.ask(b"[" * 40_000, RAW, path=f"{path}?/infer", method="GET")) == 400
    assert front.ask(b'{"text": "[[[["}', path=path)[0] == 200


VALID_JSONS = {
    "32 levels": '{"a":' + "[" * 31 + "]" * 31 + "}",
    "brackets in strings": request(data=f', "data": [{", ".join(["1"] * 48)}], "x": "{"[{" * 100}\\\\"'),
    "an odd id": request("[1, 4]", extra=', "id": "\\"shape\\": [9e9]"'),
    "floats that are not finite": request("[1, 2]", data=', "data": [NaN, -Infinity]'),
    "nested data": request("[2, 2]", data=', "data": [[1, 2], [3, 4]]'),
    "nothing": "",
    "shared memory": request(
        data=', "parameters": {"shared_memory_region": "x", "shared_memory_byte_size": 48}', extra=', "id": "\u00e9"'
    ),
}


@pytest.mark.parametrize("name", VALID_JSONS)
def test_other_json_arrives_as_it_was_sent(front, name):
    text = VALID_JSONS[name].encode()
    assert front.ask(text) == (200, text)
    assert front.ask(text + PHOTO, {"Inference-Header-Content-Length": str(len(text))}) == (200, text + PHOTO)


def test_a_large_json_is_read_while_other_requests_are_processed(front):
    text = request("[1, 100000]", data=f', "data": [{", ".join(["1"] * 100_000)}]').encode()
    assert front.ask(text) == (200, text)
    assert rejection_status(front.ask(text.replace(b"data", b"x" * 10 + b'": 1, "' + b"x" * 10))) == 400


def classes(*names):
    outputs = [{"name": each, "parameters": {"classification": 1}} for each in names]
    return json.dumps({"inputs": [], "outputs": outputs}).encode()


@pytest.mark.parametrize("name", ["rows", "text", "columns", "none"])
def test_classification_requests_that_crash_triton_are_rejected(front, name):
    """The requests concern string tensors, and tensors without elements, where Triton divides by 0.

    If an output may be empty, the front first requests the model configuration.
    """
    text = classes("scores", name)
    for path in ("/v2/models/empty/infer", "/v2/models/empty/versions/1/infer"):
        assert (
            rejection_status(front.ask(text + PHOTO, {"Inference-Header-Content-Length": str(len(text))}, path=path))
            == 400
        )
        paths = [path.replace("/infer", "/config"), *[path] * (name != "text")]
        assert [each[1] for each in front.triton.asked] == paths
        if name != "text":
            assert front.asked[3].endswith(PHOTO)
            assert b"classification" not in front.asked[3]
        front.triton.asked.clear()


def test_classification_requests_for_non_empty_tensors_are_forwarded(front):
    for names, count in ((["scores"], 2), (["rows", "scores"], 3), (["columns"], 3), (["gone"], 2)):
        front.triton.asked.clear()
        text = classes(*names)
        for headers, body in (({}, text), ({"Inference-Header-Content-Length": str(len(text))}, text + PHOTO)):
            status, answer = front.ask(body, headers)
            assert (status, front.asked[3]) == (200, body)
            assert json.loads(answer) == {"outputs": []}
        assert len(front.triton.asked) == 2 * count


# framing


HEAD = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: 0\r\n"
ODD_HEADS = {
    "two lengths": (400, HEAD + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx"),
    "a list of lengths": (400, HEAD + "Content-Length: 1, 1\r\n\r\nx"),
    "a length below 0": (400, HEAD + "Content-Length: -1\r\n\r\nx"),
    "a length with a sign": (400, HEAD + "Content-Length: +1\r\n\r\nx"),
    "a length of other digits": (400, HEAD + "Content-Length: \u0661\r\n\r\nx"),
    "a length and chunks": (400, HEAD + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "other chunks": (400, HEAD + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "chunks in disguise": (400, HEAD + "Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "a space before the colon": (400, HEAD + "Content-Length : 1\r\n\r\nx"),
    "a line that goes on": (400, HEAD + "X: 1\r\n Content-Length: 1\r\n\r\nx"),
    "a bare line feed": (400, HEAD + "X: 1\nContent-Length: 1\r\n\r\nx"),
    "a bare return": (400, HEAD + "X: 1\rContent-Length: 1\r\n\r\nx"),
    "a zero byte": (400, HEAD + "X: \0\r\n\r\n"),
    "a header without a name": (400, HEAD + ": 1\r\n\r\n"),
    "no version": (400, "GET /v2\r\n\r\n"),
    "another version": (400, "GET /v2 HTTP/2.0\r\n\r\n"),
    "another server's address": (400, "GET http://evil.example/v2 HTTP/1.1\r\n\r\n"),
    "a fragment": (400, HEAD.replace("/infer", "/generate#/infer") + "\r\n"),
    "a space in the path": (400, HEAD.replace("/infer", "/generate /infer") + "\r\n"),
    "a method of nobody": (405, HEAD.replace("POST", "BREW") + "\r\n"),
    "a preflight": (405, HEAD.replace("POST", "OPTIONS") + "Access-Control-Request-Method: POST\r\n\r\n"),
    "a body over the limit": (413, HEAD + f"Content-Length: {LIMIT + 1}\r\n\r\n"),
    "a length of 18 digits": (413, HEAD + f"Content-Length: {'9' * 18}\r\n\r\n"),
    "a length of 40 digits": (400, HEAD + f"Content-Length: {'9' * 40}\r\n\r\n"),
    "chunks over the limit": (413, HEAD + "Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n"),
    "a chunk without a length": (400, HEAD + "Transfer-Encoding: chunked\r\n\r\nx\r\n"),
    "a chunk below 0": (400, HEAD + "Transfer-Encoding: chunked\r\n\r\n-1\r\n"),
    "a chunk that is longer": (400, HEAD + "Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n"),
    "a head that never ends": (431, HEAD + "X: " + "x" * 40_000),
    "a header that Triton does not read": (431, HEAD + f"X: {'x' * 8200}\r\n\r\n"),
    "a target that Triton does not read": (431, HEAD.replace("/infer", f"/infer?{'x' * 8200}") + "\r\n"),
    "chunks of a byte": (413, f"{HEAD}Transfer-Encoding: chunked\r\n\r\n" + "1\r\nx\r\n" * 60_000),
    "trailers": (400, f"{HEAD}Transfer-Encoding: chunked\r\n\r\n0\r\n" + "a: b\r\n" * 200),
    "an unknown encoding": (415, HEAD + "Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx"),
    "two encodings": (400, HEAD + "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx"),
    "no gzip": (400, HEAD + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx"),
    "two lengths of the JSON": (400, HEAD + "Inference-Header-Content-Length: 5\r\nContent-Length: 1\r\n\r\nx"),
    "a length of the JSON that is none": (400, HEAD.replace(": 0", ": 0x0") + "Content-Length: 1\r\n\r\nx"),
    "more JSON than there is": (400, HEAD.replace(": 0", ": 9") + "Content-Length: 1\r\n\r\nx"),
}


@pytest.mark.parametrize("name", ODD_HEADS)
def test_an_ambiguously_framed_request_is_rejected(front, name):
    status, text = ODD_HEADS[name]
    head, _, body = front.raw(text.encode("utf-8")).partition(b"\r\n\r\n")
    assert rejection_status((int(head.split()[1]), body)) == status
    assert b"\r\nConnection: close" in head
    assert front.triton.asked == []


def test_a_rejection_is_received_by_a_client_that_is_still_sending(front):
    assert rejection_status(front.ask(bytes(8 << 20), RAW)) == 413


def test_chunked_and_compressed_bodies_arrive_complete(front):
    text, photo = json.dumps({"id": "1"}).encode(), PHOTO[:5000]
    split = {"Inference-Header-Content-Length": str(len(text))}
    for headers, body in (({}, text), (RAW, photo), (split, text + photo)):
        pieces = [body[:7], body[7:]]
        assert front.ask(iter(pieces), headers) == (200, body)  # the request's body is sent in chunks
        for encoding, encode in (("gzip", gzip.compress), ("deflate", zlib.compress)):
            assert front.ask(encode(body), {**headers, "Content-Encoding": encoding}) == (200, body)
            assert "Content-Encoding" not in front.asked[2]
    chunks = "3;odd=1\r\none\r\n0003\r\ntwo\r\n0\r\nX: 1\r\n\r\nGET /v2 HTTP/1.1\r\nConnection: close\r\n\r\n"
    answer = front.raw(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n{chunks}".encode())
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert b"onetwo" in answer


@pytest.mark.parametrize("body", [gzip.compress(bytes(200 * LIMIT)), gzip.compress(PHOTO)[:-9], gzip.compress(b"") * 2])
def test_a_bomb_and_a_truncated_archive_are_rejected(front, body):
    assert rejection_status(front.ask(body, {**RAW, "Content-Encoding": "gzip"})) == (
        413 if len(body) > 10_000 else 400
    )
    assert front.triton.asked == []


# accepted requests


CODINGS = {
    **dict.fromkeys(("gzip", "gzip, deflate, br, zstd", "gzip;q=0.5, *;q=0", "identity;q=1.000"), True),
    **dict.fromkeys(("gzip;q=1e999", "deflate;q=1e-999", "gzip;q=0x1p9999", f"gzip;q=0.{'1' * 99}"), False),
}
"""Values of ``Accept-Encoding``, and whether Triton receives them.

A weight outside the range of a double crashes Triton.
"""


def test_responses_are_forwarded_unchanged_and_connections_stay_open(front):
    with closing(http.client.HTTPConnection(front.address, timeout=TIMEOUT_S)) as kept:
        for _ in range(3):
            kept.request("POST", "/odd/infer?x=%20", b"{}", {"X-Mine": "1", "Accept-Encoding": "gzip", **FORM})
            response = kept.getresponse()
            assert (response.status, response.headers["X-Odd"], response.read()) == (418, "as it was", b"{}")
            method, path, headers, _ = front.asked
            assert (method, path, headers["X-Mine"]) == ("POST", "/odd/infer?x=%20", "1")
            assert headers["Accept-Encoding"] == "gzip"
            assert headers["Content-Type"] is None  # Triton parses forms, and crashes if they are large
            for coding, is_sound in CODINGS.items():
                kept.request("POST", "/odd/infer", b"{}", {"Accept-Encoding": coding})
                kept.getresponse().read()
                assert (front.asked[2].get("Accept-Encoding") == coding) == is_sound, coding
            assert front.ask(method="HEAD", path="/v2/health/ready", kept=kept) == (200, b"")
            photo = PHOTO * 4
            assert front.ask(photo, RAW, kept=kept) == (200, photo)


def test_a_connection_that_triton_has_closed_is_opened_again(front):
    with closing(http.client.HTTPConnection(front.address, timeout=TIMEOUT_S)) as kept:
        for _ in range(3):
            assert front.ask(b"{}", path="/closes", kept=kept) == (200, b"{}")
            time.sleep(0.1)


def test_a_client_that_expects_continue_is_told_to_send_or_rejected_at_once(front):
    head = f"{HEAD}Expect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", front.port), timeout=TIMEOUT_S) as connection:
        connection.sendall(head)
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"photo")
        assert connection.makefile("rb").read().endswith(b"\r\n\r\nphoto")
    assert "Expect" not in front.asked[2]
    assert front.raw(head.replace(b": 5", b": 99999999")).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("path", ["/v2/models/m/generate_stream", "/v2/models/m/generate"])
def test_a_response_of_unknown_length_is_forwarded_completely(front, path):
    assert front.ask(b"{}", path=path) == (200, b"onetwo")


def test_many_connections_stay_open_in_parallel(front):
    opened = [http.client.HTTPConnection(front.address, timeout=TIMEOUT_S) for _ in range(300)]
    try:
        for _ in range(2):
            for index, connection in enumerate(opened):
                body = b'{"id": "%d"}' % index
                assert front.ask(body, kept=connection) == (200, body)
    finally:
        for connection in opened:
            connection.close()


def test_a_front_that_dies_is_restarted_on_the_same_port_and_logs_no_rejections(tmp_path, caplog):
    with closing(Front(tmp_path)) as front:
        assert rejection_status(front.ask(b"x" * 100_000)) == 400
        assert front.ask(PHOTO, RAW) == (200, PHOTO)
        front._helper._process.kill()
        wait_until(lambda: "the process of the front was ended by signal 9 (SIGKILL" in caplog.text)
        assert front.ask(PHOTO, RAW) == (200, PHOTO)
        assert [record.getMessage().partition(" was ended")[0] for record in caplog.records] == [
            "the process of the front"
        ]


def test_if_triton_is_unavailable_the_client_gets_an_error_and_the_front_continues(tmp_path):
    with closing(Front(tmp_path)) as front:
        assert front.ask(PHOTO, RAW)[0] == 200
        assert front.ask(PHOTO, RAW, path="/v2/models/ends/infer") == (
            502,
            b'{"error": "front: Triton ended before it responded: send the request again"}',
        )
        front.triton.close()
        away = b'{"error": "front: Triton is not running and is being restarted: retry in a few seconds"}'
        assert front.ask(PHOTO, RAW) == (503, away)
        front.triton = Tritons(front.path)
        assert front.ask(PHOTO, RAW) == (200, PHOTO)
