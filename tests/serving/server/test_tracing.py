"""Tests of `pixprep serve --trace`: an OpenTelemetry collector receives the spans of requests, and the spans of an
ensemble form one tree.
"""

import json
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support.serving import PHOTO, PROGRAM, Serve, ask_http, body_of, post, wait_until, write_repository

pytestmark = pytest.mark.server

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(ThreadingHTTPServer):
    """Server that receives OTLP over HTTP.

    Attributes:
        spans: Received spans, each with the name of its service.
        paths: Paths of the received requests.
    """

    daemon_threads = True

    def __init__(self):
        self.spans, self.paths, self.bodies = [], Counter(), []
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1/traces"

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.paths[self.path] += 1
        self.server.bodies.append(body)
        for resource in json.loads(body)["resourceSpans"]:
            values = {each["key"]: each["value"] for each in resource["resource"]["attributes"]}
            for scope in resource["scopeSpans"]:
                self.server.spans += [span | {"service": values["service.name"]} for span in scope["spans"]]
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return write_repository(tmp_path_factory.mktemp("models"))


@pytest.fixture
def collector():
    with Collector() as collector:
        yield collector


def model_of(span):
    values = {each["key"]: each["value"] for each in span.get("attributes", [])}
    return values.get("triton.model_name", {}).get("stringValue")


def children(spans, parent):
    """Return the names of the spans below a span, as nested dicts."""
    below = [span for span in spans if span.get("parentSpanId", "").lower() == parent.lower()]
    return {span["name"]: children(spans, span["spanId"]) for span in below}


def test_the_spans_of_an_ensembles_request_are_one_tree_below_the_clients_span(repository, oracle, collector, tmp_path):
    with Serve(repository, "--trace", collector.url, "--trace-rate", "1000000", triton_log=tmp_path / "log") as serve:
        for _ in range(3):
            assert oracle.agrees(ask_http(serve.address, "ensemble", [PHOTO]), oracle.tensors("ensemble", [PHOTO]))
        headers, body = body_of([PHOTO], output="logits")
        headers |= {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-secret": "of the client"}
        status, _, _ = post(serve.address, "/v2/models/ensemble/infer", headers, body)
        assert status == 200
        serve.stop()  # Triton sends pending spans when it stops; otherwise, it waits 5 s
    tree = children(collector.spans, PARENT)
    assert tree == {"InferRequest": {"ensemble": {"preprocess": {"compute": {}}, "classifier": {"compute": {}}}}}
    assert len(collector.spans) == 6  # one request in a million is traced, and also every request with a traceparent
    assert {span["traceId"].lower() for span in collector.spans} == {TRACE}
    assert {span["service"]["stringValue"] for span in collector.spans} == {"pixprep"}
    models = {span["name"]: model_of(span) for span in collector.spans if model_of(span)}
    assert models == {name: name for name in ("ensemble", "preprocess", "classifier")}
    for span in collector.spans:
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    sent = b"".join(collector.bodies)
    assert b"of the client" not in sent
    assert PHOTO[:16] not in sent


def test_at_a_rate_of_one_every_request_is_traced(repository, collector, tmp_path):
    with Serve(repository, "--trace", collector.url, "--trace-rate", "1", triton_log=tmp_path / "log") as serve:
        for _ in range(5):
            ask_http(serve.address, "ensemble", [PHOTO])
        wait_until(lambda: [span["name"] for span in collector.spans].count("classifier") == 5)
    assert set(collector.paths) == {"/v1/traces"}


def test_a_missing_collector_costs_no_request_and_no_grace_period(repository, oracle, tmp_path):
    with Collector() as gone:
        pass
    serve = Serve(repository, "--trace", gone.url, "--trace-rate", "1", triton_log=tmp_path / "log")
    try:
        for _ in range(20):
            assert oracle.agrees(ask_http(serve.address, "ensemble", [PHOTO]), oracle.tensors("ensemble", [PHOTO]))
    finally:
        code = serve.stop()
    assert code == 0
    assert serve.left() == []


@pytest.mark.parametrize(
    "url", ["collector", "localhost:4318", "http://localhost:4318", "http://localhost:port/v1/traces", "grpc://a/b"]
)
def test_an_invalid_collector_url_is_wrong_usage(url):
    command = [sys.executable, "-c", PROGRAM, "serve", "--trace", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    words = "--trace: expected the URL of a collector such as http://localhost:4318/v1/traces, not"
    assert f"{words} '{url}'" in done.stderr
