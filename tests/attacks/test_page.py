"""Attack: A website makes the browser of a user of `pixprep serve --page` send requests to the page. Or a client sends
a request that never ends.

Defence: Requests are accepted or rejected by their Host, their Origin and the site that initiated them, before their
path and body are read. A body must declare its length, which may be at most the model's limit. The number of
connections and the duration of each connection are limited.

Outcome: The client receives an error message, and no photo reaches a model. Meanwhile, the page serves other clients.
"""

import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection

import pytest

from pixprep.errors import ImageError, PixprepError, SetupError
from pixprep.serving.embedded.connection import RequestError
from pixprep.serving.page.handler import CONNECTIONS, PageServer

OCTETS = {"Content-Type": "application/octet-stream"}
LIMIT = 1000
TIMEOUT_S = 120


class Photos:
    """Mock of the models. The photo b"gate" blocks until the test releases it."""

    def __init__(self):
        self.asked = []
        self.gate, self.waiting = threading.Event(), threading.Semaphore(0)
        self.failure = None

    def models(self):
        return [{"name": "ensemble", "limit_bytes": LIMIT}]

    def limit_bytes(self, model):
        if model != "ensemble":
            raise PixprepError("the page does not offer this model any more: reload the page")
        return LIMIT

    def answer(self, model, encoded, *, names):
        (encoded,), name = encoded, "".join(names)
        self.asked.append((model, encoded, name))
        if encoded == b"gate":
            self.waiting.release()
            assert self.gate.wait(TIMEOUT_S)
        if self.failure:
            raise self.failure
        return {"name": name}

    def stages(self, model, encoded):
        self.asked.append((model, encoded, None))


class Page:
    def __init__(self, **options):
        self.photos = Photos()
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        self._server = PageServer(listening, self.photos, **options)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self):
        self.photos.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def ask(self, method, path, headers=(), body=None):
        """Send a request, and return the status, headers and body of the response."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.putrequest(method, path, skip_host=True)
            for name, value in {"Host": self.host, **dict(headers)}.items():
                connection.putheader(name, value)
            if body is not None and "Content-Length" not in dict(headers):
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def send(self, body=b"photo", path="/photo?model=ensemble", **headers):
        """Send a photo, and return the status and the message of the response."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        status, _, reply = self.ask("POST", path, {**OCTETS, **named}, body)
        return status, json.loads(reply)

    def raw(self, data):
        """Send bytes, and return the bytes of the response."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as connection:
            connection.sendall(data)
            return connection.makefile("rb").read()

    @contextmanager
    def asked(self, count):
        """Start ``count`` requests whose photos block, and yield their futures. Afterwards, assert that all requests
        succeeded.
        """
        with ThreadPoolExecutor(count) as pool:
            answers = [pool.submit(self.send, b"gate") for _ in range(count)]
            for _ in answers:
                assert self.photos.waiting.acquire(timeout=TIMEOUT_S)
            try:
                yield answers
            finally:
                self.photos.gate.set()
        assert [answer.result()[0] for answer in answers] == [200] * count


@pytest.fixture
def page():
    with closing(Page()) as page:
        yield page


FOREIGN_HOSTS = (
    *("evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "localhost.evil.example"),
    *("localhost:{port}@evil.example", "LOCALHOST.:{port}", "", "localhost:", "2130706433"),
)


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", "/models"), ("POST", "/photo?model=ensemble")])
def test_a_foreign_name_that_resolves_to_this_machine_is_rejected(page, host, method, path):
    headers = {"Host": host.format(port=page.port), **(OCTETS if method == "POST" else {})}
    status, _, reply = page.ask(method, path, headers, b"photo" if method == "POST" else None)
    assert status == 403
    assert json.loads(reply) == {"error": "open this page at 127.0.0.1 or localhost: other host names are not accepted"}
    assert page.photos.asked == []


def test_no_host_and_two_hosts_are_rejected(page):
    for hosts in ("", f"Host: {page.host}\r\nHost: evil.example\r\n"):
        assert page.raw(f"GET / HTTP/1.1\r\n{hosts}\r\n".encode()).startswith(b"HTTP/1.0 403 ")


def test_its_own_names_are_accepted(page):
    for host in (page.host, f"localhost:{page.port}", "localhost", "[::1]:9000"):  # port 9000 is forwarded by ssh
        assert page.ask("GET", "/", {"Host": host})[0] == 200
        assert page.send(Host=host, Origin=f"http://{host}", Sec_Fetch_Site="same-origin")[0] == 200
    assert len(page.photos.asked) == 4


FOREIGN = (
    *({"Origin": origin} for origin in ("http://evil.example", "null", "https://{host}", "http://localhost:{port}")),
    *({"Origin": origin} for origin in ("http://{host}.evil.example", "http://127.0.0.1", "http://127.0.0.1:1", "")),
    *({"Sec-Fetch-Site": site} for site in ("cross-site", "same-site", "odd")),
    {"Origin": "http://{host}", "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
)


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_other_sites_cannot_send_a_photo_or_read_the_models(page, headers):
    named = {name: value.format(host=page.host, port=page.port) for name, value in headers.items()}
    refused = {"error": "only the page itself may send requests to this server"}
    assert page.send(**named) == (403, refused)
    assert page.photos.asked == []
    if "Sec-Fetch-Mode" not in headers:  # a navigation from another site may only load the page
        status, _, reply = page.ask("GET", "/models", named)
        assert (status, json.loads(reply)) == (403, refused)


def test_a_link_on_another_site_can_lead_to_the_page(page):
    assert page.ask("GET", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})[0] == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "image/jpeg", ""]
)
def test_requests_that_a_form_of_any_site_could_send_are_rejected(page, kind):
    assert page.send(Content_Type=kind) == (
        415,
        {"error": "send the photo as the request body, with Content-Type application/octet-stream"},
    )
    assert page.photos.asked == []


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "TRACE", "HEAD", "CONNECT", "<script>"])
def test_there_are_no_other_methods(page, method):
    answer = page.raw(f"{method} / HTTP/1.1\r\nHost: {page.host}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.0 501 ")
    assert b"Access-Control" not in answer
    assert b"<script>" not in answer


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd", "/%2e%2e/page.html", "//etc/passwd", "/page.html", "/answer.py", "/photo", "/models/",
        "//[x",
    ],
)  # fmt: skip
def test_there_are_no_other_paths(page, path):
    status, _, reply = page.ask("GET", path)
    assert (status, json.loads(reply)) == (404, {"error": "this path does not exist"})
    assert page.ask("POST", f"{path}/", OCTETS, b"photo")[0] == 404
    assert page.photos.asked == []


def test_a_model_must_be_one_of_the_served_models(page):
    for model in ("", "../ensemble", "ensemble/../x", "%00", "ENSEMBLE"):
        status, reply = page.send(path=f"/photo?model={model}")
        assert (status, reply) == (400, {"error": "the page does not offer this model any more: reload the page"})
    assert page.photos.asked == []


def test_a_photo_over_the_limit_is_rejected_before_it_is_received(page):
    for size in (LIMIT + 1, 8 << 20):  # a client that is still sending also receives the reason
        words = {"error": f"the photo has {size:,} bytes, but the limit is {LIMIT:,}"}
        assert page.send(b"x" * size) == (413, words)
    head = f"POST /photo?model=ensemble HTTP/1.1\r\nHost: {page.host}\r\nContent-Type: {OCTETS['Content-Type']}\r\n"
    for length, status in (("999999999999", 413), (str(LIMIT + 1), 413), ("9" * 40, 411)):
        assert page.raw(f"{head}Content-Length: {length}\r\n\r\n".encode()).startswith(b"HTTP/1.0 %d " % status)
    assert page.photos.asked == []
    assert page.send(b"x" * LIMIT)[0] == 200


@pytest.mark.parametrize(
    "length",
    [
        *("", "Content-Length: -1", "Content-Length: 1_0", "Content-Length: +5", "Content-Length: \u0665"),
        *("Content-Length: 5\r\nContent-Length: 5", "Transfer-Encoding: chunked"),
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
    ],
)
def test_a_body_must_declare_its_length(page, length):
    head = f"POST /photo?model=ensemble HTTP/1.1\r\nHost: {page.host}\r\nContent-Type: application/octet-stream\r\n"
    answer = page.raw(f"{head}{length}\r\n\r\nphoto".encode())
    assert answer.startswith(b"HTTP/1.0 411 ")
    assert page.photos.asked == []


def test_every_response_has_the_security_headers(page):
    for method, path, headers in (
        ("GET", "/", {}),
        ("GET", "/models", {}),
        ("GET", "/none", {}),
        ("POST", "/photo?model=ensemble", OCTETS),
        ("GET", "/", {"Host": "evil.example"}),
        ("PUT", "/", {}),
    ):
        _, found, _ = page.ask(method, path, headers, b"photo" if method == "POST" else None)
        assert found["Server"] == "pixprep"
        assert found["X-Content-Type-Options"] == "nosniff"
        assert found["Cross-Origin-Resource-Policy"] == "same-origin"
        assert found["Referrer-Policy"] == "no-referrer"
        assert found["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in found
        policy = dict(part.split(" ", 1) for part in found["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
        assert policy["connect-src"] == "'self'"
        assert policy["img-src"] == "blob: data:"
        assert re.fullmatch(r"'sha256-[\w+/]{43}='", policy["script-src"])
        assert re.fullmatch(r"'sha256-[\w+/]{43}='", policy["style-src"])


def test_the_page_loads_nothing_from_elsewhere_and_makes_no_html_from_text(page):
    html = page.ask("GET", "/")[2].decode()
    # this URL is a namespace, which is never requested
    assert re.findall(r"https?://[^\"'\s]*", html) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", html)
    assert not re.search(r"<[^>]* (on\w+|style)=", html)  # the Content-Security-Policy would block these
    assert len(html) < 40_000


def test_the_reason_of_a_failure_is_only_logged(page, capfd):
    page.photos.failure = ValueError("secret of /etc/passwd")
    assert page.send() == (500, {"error": "internal error of the page: see the log of `pixprep serve`"})
    assert "ValueError: secret of /etc/passwd" in capfd.readouterr().err
    page.photos.failure = None
    assert page.send(path="/photo?model=ensemble&name=a%20b.jpg") == (200, {"name": "a b.jpg"})


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (RequestError("no", is_refusal=True), 400),
        (RequestError("no"), 502),
        (SetupError("no"), 503),
        (ImageError("CORRUPT", "no"), 400),
    ],
)
def test_a_rejection_has_its_status(page, failure, status):
    page.photos.failure = failure
    assert page.send() == (status, {"error": str(failure)})


def test_a_name_of_any_length_is_cut(page):
    assert page.send(path=f"/photo?model=ensemble&name={'n' * 1000}") == (200, {"name": "n" * 255})


# slow clients


@pytest.fixture
def hurried_page():
    """Return a page that gives its clients half a second."""
    with closing(Page(read_s=0.5)) as page:
        yield page


HEAD = "POST /photo?model=ensemble HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\n"


@pytest.mark.parametrize(
    "start", ["", "GET / HT", "GET / HTTP/1.1\r\nHost: ", HEAD + "Content-Length: 900\r\n\r\nphoto"]
)
def test_a_request_that_does_not_arrive_is_aborted(hurried_page, start):
    assert hurried_page.raw(start.format(host=hurried_page.host).encode()) == b""
    assert hurried_page.photos.asked == []


def test_a_request_that_arrives_too_slowly_is_aborted_however_much_was_received(hurried_page):
    data = (HEAD.format(host=hurried_page.host) + "Content-Length: 900\r\n\r\n").encode() + b"x" * 900
    with socket.create_connection(("127.0.0.1", hurried_page.port), timeout=TIMEOUT_S) as connection:
        start = time.monotonic()
        with pytest.raises(OSError):  # noqa: PT012  (closed, sooner or later)
            for index in range(len(data)):
                connection.sendall(data[index : index + 1])
                time.sleep(0.05)
                assert time.monotonic() < start + TIMEOUT_S
    assert hurried_page.photos.asked == []


def test_a_browser_that_does_not_read_is_disconnected(hurried_page):
    hurried_page.photos.models = lambda: ["x" * 1000] * 20_000  # the response exceeds the socket's buffers
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(TIMEOUT_S)
        connection.connect(("127.0.0.1", hurried_page.port))
        connection.sendall(f"GET /models HTTP/1.1\r\nHost: {hurried_page.host}\r\n\r\n".encode())
        time.sleep(1.0)
        assert hurried_page.ask("GET", "/")[0] == 200
        with pytest.raises(OSError):  # noqa: PT012
            while connection.recv(1 << 20):
                pass
            raise ConnectionError("the answer ended early")


def test_more_clients_than_the_limit_wait_for_their_turn(page):
    with ThreadPoolExecutor(1) as pool, page.asked(CONNECTIONS):
        late = pool.submit(page.send)
        time.sleep(0.3)
        assert len(page.photos.asked) == CONNECTIONS
    assert late.result()[0] == 200
    assert len(page.photos.asked) == CONNECTIONS + 1


def connections(page, stack, count):
    address = ("127.0.0.1", page.port)
    return [stack.enter_context(socket.create_connection(address, timeout=TIMEOUT_S)) for _ in range(count)]


def test_slow_clients_do_not_block_an_honest_one():
    """There are three times as many slow clients as the limit allows.

    Without a shorter timeout while other clients wait, they would block the page until ``read_s`` has passed, which is
    later than this test waits.
    """
    starts = ["", "GET / HTTP/1.1\r\nHost: ", HEAD + "Content-Length: 900\r\n\r\nphoto"]
    with closing(Page(read_s=10 * TIMEOUT_S)) as page, ExitStack() as stack:
        for index, connection in enumerate(connections(page, stack, 3 * CONNECTIONS)):
            connection.sendall(starts[index % len(starts)].format(host=page.host).encode())
        assert page.send()[0] == 200
        assert len(page.photos.asked) == 1


def test_a_photo_that_is_being_processed_has_no_time_limit(page):
    with ExitStack() as stack, page.asked(CONNECTIONS - 1):
        connections(page, stack, 3)
        assert page.send()[0] == 200
