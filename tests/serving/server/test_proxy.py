"""Tests of HAProxy and Envoy as proxies of the embedded Triton server: accepted requests are forwarded unchanged, and
rejected requests are counted.

The tests read the status of a rejection from the proxy's log, where they identify the client by its port. A client that
is still sending its body may only see a closed connection instead of the status.
"""

import gzip
import http.client
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import psutil
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

import pixprep as pp
from pixprep.errors import SetupError
from pixprep.serving.embedded.connection import Triton
from pixprep.serving.embedded.server import Server
from pixprep.serving.embedded.stubs import stubs
from support.proxies import DEPLOY, ENVOY, HAPROXY, KINDS, proxy_of
from support.serving import (
    BAD,
    GOOD,
    LARGE,
    PHOTO,
    PIPELINE,
    RAW,
    Clients,
    address,
    body_of,
    post,
    said,
    wait_until,
    write_model,
    write_repository,
)

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""Bytes with which an HTTP/2 connection begins: the preface, and an empty settings frame."""
INFER = "/v2/models/preprocess/infer"
TAIL = [pp.resize(height=32, width=32), pp.tensor()]
MAX_BODY_BYTES = 64 << 20
MAX_CONNECTIONS = 128
"""Maximum numbers of concurrent connections and requests per address."""

pytestmark = pytest.mark.server
haproxy_alone = pytest.mark.parametrize("proxy", KINDS[:1], indirect=True)


@pytest.fixture(scope="module")
def triton(tmp_path_factory):
    """Run a server with models whose input is not an encoded image: decoded frames, the input format of DALI's clients,
    and boxes.
    """
    folder = write_repository(tmp_path_factory.mktemp("behind") / "models")
    dali = 'backend: "pixprep"\ninput { name: "image" data_type: TYPE_UINT8 dims: [ -1 ] }\n'
    write_model(folder, "dali", dali, {"pipeline.json": PIPELINE.to_json()})
    crops = pp.Pipeline([pp.decode(), pp.crop(box="boxes"), *TAIL])
    for name, pipeline in (("frames", pp.Pipeline([pp.pixels(), *TAIL])), ("crops", crops)):
        write_model(folder, name, 'backend: "pixprep"\n', {"pipeline.json": pipeline.to_json()})
    with Server(folder, http_port=0, grpc_port=0, metrics_port=0, grace_s=0, allow_hosts=["proxy"]) as server:
        yield server


@pytest.fixture(scope="module", params=KINDS)
def proxy(request, triton):
    with proxy_of(request.param, [(triton.http_url.removeprefix("http://"), triton.grpc_url)]) as proxy:
        yield proxy


@pytest.fixture
def clients(triton, proxy, oracle):
    """Yield clients of the proxy. Afterwards, check that the same Triton process is running and responds correctly."""
    with Clients(proxy, oracle) as clients:
        yield clients
        before = clients.counts["right"]
        assert [clients.ask([PHOTO], model="ensemble", protocol=name) for name in ("http", "grpc")] == 2 * ["right"]
        assert clients.counts == {"right": before + 2}
        assert triton.poll() is None


def connect(proxy, host="127.0.0.1", *, is_grpc=False):
    """Connect to the proxy from a local address."""
    name, port = (proxy.grpc if is_grpc else proxy.address).split(":")
    return socket.create_connection((name, int(port)), timeout=120, source_address=(host, 0))


def head(method, path, headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: proxy", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def send_raw(proxy, request):
    """Send the bytes of a request until they are sent or the proxy closes the connection.

    Return the status, and whether Triton received the request.
    """
    after = len(proxy.log)
    with connect(proxy) as connection:
        port = connection.getsockname()[1]
        try:
            connection.sendall(request)
            connection.recv(1 << 16)
        # the proxy rejected the request and closed the connection while the body was being sent
        except ConnectionError:
            pass
        return proxy.said(port, after=after)


def ends(connection, *, within_s=120):
    """Return True as soon as the other side closes the connection. Raise TimeoutError if it does not close the
    connection in time.
    """
    connection.settimeout(within_s)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


NAMES = [f"PIXPREP_{name}" for name in ("LISTEN_HTTP", "LISTEN_GRPC", "HTTP", "GRPC")]
SECOND_SERVER, THIRD_SERVER = ([f"PIXPREP_{name}_{number}" for name in ("HTTP", "GRPC")] for number in (2, 3))


def checked_haproxy(names, **values):
    """Run HAProxy's configuration check with these environment variables set, and return its output."""
    addresses = {name: f"127.0.0.1:{8000 + number}" for number, name in enumerate(names)} | values
    command = [HAPROXY, "-c", "-f", DEPLOY / "haproxy.cfg"]
    return subprocess.run(command, env=os.environ | addresses, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not HAPROXY, reason="NO HAPROXY: apt-get install haproxy")
@pytest.mark.parametrize("more", [[], SECOND_SERVER, [*SECOND_SERVER, *THIRD_SERVER]])
def test_the_configuration_of_haproxy_has_no_warning(more):
    done = checked_haproxy([*NAMES, *more])
    assert done.returncode == 0, done.stderr
    assert "[WARNING]" not in done.stderr


@pytest.mark.skipif(not HAPROXY, reason="NO HAPROXY: apt-get install haproxy")
@pytest.mark.parametrize("missing", [*NAMES, *SECOND_SERVER, *THIRD_SERVER])
def test_haproxy_names_a_missing_address(missing):
    names = [name for name in (*NAMES, *SECOND_SERVER, *THIRD_SERVER) if name != missing]
    for values in ({}, {missing: ""}) if missing in NAMES else ({},):
        done = checked_haproxy(names, **values)
        assert done.returncode == 1
        assert f"set {missing} to " in done.stderr
        assert "expects" not in done.stderr


@pytest.mark.skipif(not ENVOY, reason="NO ENVOY: make scale")
def test_the_configuration_of_envoy_has_no_warning():
    command = [ENVOY, "--mode", "validate", "-c", DEPLOY / "envoy.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"\[(warning|error|critical)\]", done.stderr)


def test_every_response_equals_tritons_bit_for_bit(clients):
    for images in ([image] for image in (*GOOD, *BAD, LARGE)):
        for model in ("preprocess", "ensemble"):
            for protocol in ("http", "grpc"):
                clients.ask(images, model=model, protocol=protocol)
    for protocol in ("http", "grpc"):
        clients.ask(GOOD * 12, protocol=protocol)  # the request contains 60 images
    assert clients.counts == {"right": 4 * (len(GOOD) + len(BAD) + 1) + 2}, clients.notes


def test_an_image_as_the_whole_body_gets_tritons_response_byte_for_byte(triton, proxy, clients):
    bracket = PHOTO + b"[{" * 5000  # the data after the end of the JPEG is not JSON
    equal = [
        [post(address, INFER, RAW, image)[::2] for address in (proxy.address, triton.http_url.removeprefix("http://"))]
        for image in (*GOOD, *BAD, LARGE, bracket)
    ]
    assert [a == b for a, b in equal] == [True] * len(equal)
    assert Counter(a[0] for a, _ in equal) == {200: len(GOOD) + 2, 400: len(BAD)}
    assert clients.ask([PHOTO]) == "right"


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tritons_client_and_the_command_line_work_through_it(proxy, clients, protocol):
    module = {"http": tritonclient.http, "grpc": tritonclient.grpc}[protocol]
    url = {"http": proxy.address, "grpc": proxy.grpc}[protocol]
    rows = np.array([[PHOTO], [GOOD[1]]], np.object_)
    with module.InferenceServerClient(url) as client:
        image = module.InferInput("image", rows.shape, "BYTES").set_data_from_numpy(rows)
        got = client.infer("preprocess", [image]).as_numpy("tensor")
        assert clients.oracle.agrees(got, clients.oracle.tensors("preprocess", [PHOTO, GOOD[1]]))
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("preprocess")
        assert client.get_server_metadata()
        assert client.get_model_metadata("preprocess")
        assert client.get_model_config("preprocess")
    pixprep = Path(sys.executable).parent / "pixprep"
    to = ["--url", url, "--protocol", protocol, "--model", "preprocess"]
    images = Path(__file__).parents[3] / "client_examples" / "images"
    for arguments in (["health", *to], ["send", images, "--batch", "2", *to]):
        done = subprocess.run([pixprep, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_with_statistics_disabled_triton_reports_a_missing_model(proxy, protocol):
    url = proxy.address if protocol == "http" else proxy.grpc
    words = f"no model \"nope\" is ready on {url}: Request for unknown model: 'nope' is not found"
    with Triton(url, protocol=protocol) as connection, pytest.raises(SetupError, match=f"^{re.escape(words)}$"):
        connection.model_input("nope")


def test_no_client_can_make_triton_compress_its_response(triton, proxy, clients):
    headers = RAW | {"Accept-Encoding": "gzip"}
    addresses = (triton.http_url.removeprefix("http://"), proxy.address)
    said = [post(address, INFER, headers, PHOTO)[1].get("Content-Encoding") for address in addresses]
    assert said == ["gzip", None]
    assert clients.ask([PHOTO]) == "right"


def nested(count, *, around=b"%s"):
    """Return data nested to this depth."""
    return around % (b"[" * count + b"]" * count)


def inference_json(count):
    """Return the JSON of an inference request whose data is nested to this depth."""
    return nested(count, around=b'{"inputs":[{"name":"image","shape":[1,1],"datatype":"BYTES","data":%s}]}')


def with_json(text, *more):
    """Return the headers and the body of an inference request."""
    length = ("Inference-Header-Content-Length", len(text))
    body = text + b"".join(more)
    return [length, ("Content-Length", len(body))], body


DEEP = inference_json(40_000)
BOMB = gzip.compress(bytes(MAX_BODY_BYTES))
CHUNKS = b"1\r\nx\r\n" * 800_000 + b"0\r\n\r\n"
RAW_ZERO = ("Inference-Header-Content-Length", "0")


def with_length(body):
    return [("Content-Length", len(body))], body


REFUSED = {
    "deep JSON as the body": (400, "POST", INFER, *with_length(DEEP)),
    "shallow JSON as the body": (400, "POST", INFER, *with_length(b'{"inputs":[]}')),
    "deep JSON before the images": (400, "POST", INFER, *with_json(DEEP)),
    "deep JSON that is short": (400, "POST", INFER, *with_json(inference_json(4900), PHOTO)),
    "65 brackets": (400, "POST", INFER, *with_json(b'{"a":"' + b"[{" * 32 + b'"}', PHOTO)),
    "65 brackets that are closed": (400, "POST", INFER, *with_json(b'{"a":[' + b"[]," * 63 + b"1]}", PHOTO)),
    "JSON that is cut off": (
        400,
        "POST",
        INFER,
        [("Inference-Header-Content-Length", 500), ("Content-Length", 2)],
        b"{}",
    ),
    "JSON in no body": (400, "POST", INFER, [("Inference-Header-Content-Length", 5), ("Content-Length", 0)], b""),
    "two lengths of JSON": (400, "POST", INFER, [RAW_ZERO, *with_json(DEEP)[0]], DEEP),
    "two lengths in one": (400, "POST", INFER, [("Inference-Header-Content-Length", "0, 9")], b""),
    "a length below 0": (400, "POST", INFER, [("Inference-Header-Content-Length", -1), ("Content-Length", 2)], b"{}"),
    "a length in another base": (400, "POST", INFER, [("Inference-Header-Content-Length", "0x9")], b""),
    "deep JSON to generate": (403, "POST", "/v2/models/preprocess/generate", *with_length(DEEP)),
    "deep JSON to a stream": (403, "POST", "/v2/models/preprocess/generate_stream", *with_length(DEEP)),
    "shared memory, deep": (403, "POST", "/v2/systemsharedmemory/region/a/register", *with_length(DEEP)),
    "shared memory": (403, "POST", "/v2/systemsharedmemory/region/a/register", *with_length(b'{"key":"/a"}')),
    "CUDA shared memory": (403, "POST", "/v2/cudasharedmemory/region/a/register", *with_length(b"{}")),
    "shared memory's state": (403, "GET", "/v2/systemsharedmemory/status", [], b""),
    "statistics": (403, "GET", "/v2/models/preprocess/stats", [], b""),
    "all statistics": (403, "GET", "/v2/models/stats", [], b""),
    "the index": (403, "POST", "/v2/repository/index", *with_length(b"{}")),
    "load": (403, "POST", "/v2/repository/models/preprocess/load", *with_length(b"{}")),
    "unload": (403, "POST", "/v2/repository/models/preprocess/unload", *with_length(b"{}")),
    "log settings": (403, "GET", "/v2/logging", [], b""),
    "trace settings": (403, "POST", "/v2/trace/setting", *with_length(b"{}")),
    "a model's trace settings": (403, "POST", "/v2/models/preprocess/trace/setting", *with_length(b"{}")),
    "metrics": (403, "GET", "/metrics", [], b""),
    "the root": (403, "GET", "/", [], b""),
    "a path with dots": (403, "POST", "/v2/models/../repository/index", *with_length(b"{}")),
    "an escaped path": (403, "GET", "/v2/models/preprocess%2fstats", [], b""),
    "a whole URL": (403, "POST", "http://proxy/v2/repository/index", *with_length(b"{}")),
    "another method": (403, "DELETE", INFER, [RAW_ZERO], b""),
    "a body that is read": (413, "GET", "/v2/health/live", *with_length(DEEP)),
    "a chunked body that is read": (411, "GET", "/v2/health/live", [("Transfer-Encoding", "chunked")], CHUNKS),
    "800,000 chunks": (411, "POST", INFER, [RAW_ZERO, ("Transfer-Encoding", "chunked")], CHUNKS),
    "chunks with a length": (
        411,
        "POST",
        INFER,
        [RAW_ZERO, ("Content-Length", 4), ("Transfer-Encoding", "chunked")],
        CHUNKS,
    ),
    "no length": (411, "POST", INFER, [RAW_ZERO], b""),
    "two lengths": (400, "POST", INFER, [RAW_ZERO, ("Content-Length", 1), ("Content-Length", 2)], b"xx"),
    "a body over the limit": (
        413,
        "POST",
        INFER,
        [RAW_ZERO, ("Content-Length", MAX_BODY_BYTES + 1)],
        bytes(MAX_BODY_BYTES + 1),
    ),
    "a body of 4 GiB": (413, "POST", INFER, [RAW_ZERO, ("Content-Length", 1 << 32)], b"x"),
    "a body of exabytes": (413, "POST", INFER, [RAW_ZERO, ("Content-Length", 1 << 62)], b"x"),
    "a gzip bomb": (415, "POST", INFER, [RAW_ZERO, *with_length(BOMB)[0], ("Content-Encoding", "gzip")], BOMB),
    "a deflate bomb": (415, "POST", INFER, [RAW_ZERO, *with_length(BOMB)[0], ("Content-Encoding", "deflate")], BOMB),
    "headers of 20 kB": (400, "POST", INFER, [RAW_ZERO, ("Content-Length", 1), ("X", "x" * 20_000)], b"x"),
}
# These requests would otherwise be rejected for a missing length, before their actual fault is found.
for name in ("two lengths in one", "a length in another base"):
    status, method, path, headers, _ = REFUSED[name]
    REFUSED[name] = (status, method, path, [*headers, ("Content-Length", 2)], b"{}")
ENVOY_STATUSES = {"chunks with a length": 400, "a chunked body that is read": 413, "headers of 20 kB": 431}


def test_restricted_requests_are_rejected_by_the_proxy_with_their_status(proxy, clients):
    said = {name: send_raw(proxy, head(*parts[:2], parts[2]) + parts[3]) for name, (_, *parts) in REFUSED.items()}
    statuses = {name: status for name, (status, *_) in REFUSED.items()} | (
        ENVOY_STATUSES if proxy.kind == "envoy" else {}
    )
    assert said == {name: (status, False) for name, status in statuses.items()}
    assert clients.ask([PHOTO]) == "right"


def test_http2_is_only_accepted_for_grpc(proxy, clients):
    assert send_raw(proxy, HELLO) == (400, False)
    assert clients.ask([PHOTO]) == "right"


def test_json_of_64_brackets_is_forwarded_with_any_images(proxy, clients):
    headers, body = body_of([PHOTO])
    length = int(headers["Inference-Header-Content-Length"])
    extra = b', "x": [' + b"[]," * (63 - sum(body[:length].count(c) for c in b"[{")) + b"0]}"
    text = body[: length - 1] + extra
    assert sum(text.count(c) for c in b"[{") == 64
    request = head("POST", INFER, with_json(text, body[length:])[0]) + text + body[length:]
    assert send_raw(proxy, request) == (200, True)
    assert clients.ask([PHOTO + b"[{" * 5000]) == "right"


ADMIN = (
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    "ModelStatistics",
    "TraceSetting",
    "LogSettings",
    *(f"{kind}SharedMemory{call}" for kind in ("System", "Cuda") for call in ("Status", "Register", "Unregister")),
    "ModelStreamInfer",
    "Nothing",
)


def ask_grpc(proxy, method, message, *, metadata=()):
    """Send a message. Return the code and the message of the error, or empty strings for a successful response."""
    with grpc.insecure_channel(proxy.grpc, [("grpc.max_send_message_length", -1)]) as channel:
        call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
        try:
            call(message, timeout=120, metadata=metadata)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        return "", ""


def infer_message(**fields):
    return service_pb2.ModelInferRequest(model_name="preprocess", **fields).SerializeToString()


def test_restricted_grpc_requests_are_rejected_by_the_proxy(proxy, clients):
    said = Counter(ask_grpc(proxy, method, b"") for method in ADMIN)
    assert said == {("UNIMPLEMENTED", "proxy: this API is not allowed"): len(ADMIN)}
    encoded = [("grpc-encoding", "gzip")]
    assert ask_grpc(proxy, "ModelInfer", b"", metadata=encoded)[1] == "proxy: compressed messages are not supported"
    assert clients.ask([PHOTO], protocol="grpc") == "right"


MESSAGES = {
    "many inputs": infer_message() + b"\x2a\x00" * 500,
    "many outputs": infer_message() + b"\x32\x00" * 500,
    "many parameters": infer_message() + b"\x22\x00" * 500,
    "many tensors": infer_message() + b"\x3a\x00" * 500,
    "fields behind the tensor": infer_message(raw_input_contents=[bytes(1 << 20)]) + b"\x2a\x00" * 500,
    "a long name": service_pb2.ModelInferRequest(model_name="x" * 100_000).SerializeToString(),
    "a long parameter": infer_message(parameters={"x": service_pb2.InferParameter(string_param="x" * 100_000)}),
    "a tensor that is not raw": infer_message(
        inputs=[
            service_pb2.ModelInferRequest.InferInputTensor(
                name="image", contents=service_pb2.InferTensorContents(int_contents=[0] * 100_000)
            )
        ]
    ),
    "a number": b"\x08\x01",
    "a length that lies": b"\x0a\xff\xff\xff\xff\x0f",
    "a length without end": b"\x0a" + b"\xff" * 20,
}


def test_a_message_that_is_more_than_an_image_is_rejected_by_the_proxy(proxy, clients):
    said = {name: ask_grpc(proxy, "ModelInfer", message) for name, message in MESSAGES.items()}
    # The proxy may cut off a message that is still being sent, and the client may then miss the error.
    assert {name for name, (code, _) in said.items() if code not in ("INVALID_ARGUMENT", "CANCELLED")} == set()
    words = {said for code, said in said.values() if code == "INVALID_ARGUMENT"}
    assert words == {"proxy: send one image input, as raw contents"}
    assert clients.ask([LARGE] * 2, protocol="grpc") == "right"


SMALL = GOOD[1]  # so small that the proxy receives the whole request before it rejects it
ROW = len(SMALL).to_bytes(4, "little") + SMALL
FRAME, BOX = ("image", [1, 4, 4, 3], "UINT8", bytes(48)), ("boxes", [1, 4], "FP32", np.float32([0, 0, 9, 9]).tobytes())
IMAGE_INPUT = ("image", [1], "BYTES", ROW)
VALID_REQUESTS = {
    "a frame": ("frames", FRAME),
    "a client of DALI": ("dali", ("image", [1, len(PHOTO)], "UINT8", PHOTO)),
    "a box": ("crops", IMAGE_INPUT, BOX),
    "three boxes": ("crops", IMAGE_INPUT, ("boxes", [3, 4], "FP32", 3 * BOX[3])),
}
OVERFLOWING = {  # without the proxy, each of these crashes the process of its model, the last one only over gRPC
    "64 rows of nothing": ("dali", ("image", [64, 2**58], "UINT8", b"")),
    "a frame of nothing": ("frames", ("image", [1, 2**62, 4, 3], "UINT8", b"")),
    "boxes of nothing": ("crops", IMAGE_INPUT, ("boxes", [2**61, 4], "FP32", b"")),
    "a side of 0 beside a huge one": ("frames", ("image", [1, 0, 2**62, 3], "UINT8", b"")),
    "three rows that are one, times 2^64": ("dali", ("image", [3, (2**64 + 2) // 3], "UINT8", bytes(2))),
    "sides below 0": ("frames", ("image", [1, -2, -2, 3], "UINT8", bytes(12))),
}
OTHER_SIZES = {  # Triton itself rejects these, because their sizes do not overflow
    "a byte too few": ("frames", (*FRAME[:3], bytes(47))),
    "a byte too many": ("frames", (*FRAME[:3], bytes(49))),
    "a row too many": ("dali", ("image", [2, 24], "UINT8", bytes(24))),
    "a box too many": ("crops", IMAGE_INPUT, ("boxes", [2, 4], "FP32", BOX[3])),
    "a list of another length": ("frames", ("image", [1, 1, 4, 4, 3], "UINT8", bytes(48))),
}
TOO_MANY = "proxy: a shape has more elements than the request has bytes, or is not a list of integers"


def over_http(proxy, model, *tensors, change=lambda text: text):
    """Send a request, and return the status and the error message. ``change`` is a function that modifies the JSON."""
    inputs = [
        {"name": name, "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": len(data)}}
        for name, shape, datatype, data in tensors
    ]
    text = change(json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}})).encode()
    body = text + b"".join(data for *_, data in tensors)
    headers = {"Inference-Header-Content-Length": str(len(text))}
    status, _, answer = post(proxy.address, f"/v2/models/{model}/infer", headers, body)
    return status, "" if status == 200 else json.loads(answer)["error"]


def over_grpc(proxy, model, *tensors):
    """Send a request, and return the code and the message of the error."""
    input_of = service_pb2.ModelInferRequest.InferInputTensor
    inputs = [input_of(name=name, shape=shape, datatype=datatype) for name, shape, datatype, _ in tensors]
    raw = [data for *_, data in tensors]
    message = service_pb2.ModelInferRequest(model_name=model, inputs=inputs, raw_input_contents=raw)
    return ask_grpc(proxy, "ModelInfer", message.SerializeToString())


@contextmanager
def no_process_ends(triton, clients):
    """Check that no process ends inside the block, and that valid requests still get correct responses."""
    before = stubs(triton.pid)
    with clients.load(2, images=GOOD):
        yield
        rights = clients.counts["right"]
        wait_until(lambda: clients.counts["right"] >= rights + 8, lambda: clients.notes)
    assert set(clients.counts) == {"right"}, (clients.codes, clients.notes)
    assert stubs(triton.pid) == before


def test_an_overflowing_shape_is_rejected_by_the_proxy_and_a_wrong_size_by_triton(triton, proxy, clients):
    for ask, passed, refused in (
        (over_http, (200, ""), (400, TOO_MANY)),
        (over_grpc, ("", ""), ("INVALID_ARGUMENT", TOO_MANY)),
    ):
        with no_process_ends(triton, clients):
            for _ in range(2):
                assert {name: ask(proxy, *parts) for name, parts in VALID_REQUESTS.items()} == dict.fromkeys(
                    VALID_REQUESTS, passed
                )
                got = {name: ask(proxy, *parts) for name, parts in OVERFLOWING.items()}
                assert got == dict.fromkeys(OVERFLOWING, refused)
                others = {name: ask(proxy, *parts) for name, parts in OTHER_SIZES.items()}
                assert {code for code, _ in others.values()} == {refused[0]}, others
                assert not any(words.startswith("proxy: ") for _, words in others.values())


HUGE = "[1, 4611686018427387904, 4, 3]"
SHAPE = '"shape": [1, 4, 4, 3]'
DISGUISES = {
    "in other letters": lambda text: text.replace(SHAPE, f'"sh\\u0061pe": {HUGE}'),
    "first of two": lambda text: text.replace(SHAPE, f'"shape": {HUGE}, {SHAPE}'),
    "last of two": lambda text: text.replace(SHAPE, f'{SHAPE}, "shape": {HUGE}'),
    "with spaces": lambda text: text.replace(SHAPE, f'"shape"\t\r\n :\n{HUGE}'.replace(" ", "\n")),
    "behind quotes": lambda text: text.replace(SHAPE, f'"a": "\\\\\\"", "shape": {HUGE}'),
    "behind a colon": lambda text: text.replace(SHAPE, f'"a": ":", ":": "", "shape": {HUGE}'),
    "in floats": lambda text: text.replace(SHAPE, '"shape": [1, 4611686018427387904.0, 4, 3]'),
    "as an exponent": lambda text: text.replace(SHAPE, '"shape": [1, 4e18, 4, 3]'),
    "over 64 bits": lambda text: text.replace(SHAPE, '"shape": [1, 73786976294838206464, 4, 3]'),
    "in brackets": lambda text: text.replace(SHAPE, f'"shape": [{HUGE}]'),
    "as text": lambda text: text.replace(SHAPE, f'"shape": "{HUGE}"'),
    "with data in the JSON": lambda text: text.replace(SHAPE, f'"shape": {HUGE}, "data": []'),
}


def test_a_shape_disguised_in_json_is_rejected_by_the_proxy(triton, proxy, clients):
    with no_process_ends(triton, clients):
        got = {name: over_http(proxy, "frames", FRAME, change=change) for name, change in DISGUISES.items()}
        assert got == dict.fromkeys(DISGUISES, (400, TOO_MANY))
        for name in (
            'shape": [9, 9, 9e9]',
            "\\",
            '"',
            ":",
            "\u00e9: [",
            "\\u0073hape",
        ):  # unusual but valid requests
            words = json.dumps(name)
            assert (
                over_http(proxy, "frames", FRAME, change=lambda text, id_=words: f'{{"id": {id_}, {text[1:]}')[0] == 200
            )


def wire(number, *parts):
    """Encode a length-delimited field of a Protocol Buffers message."""
    body = b"".join(parts)
    return number_of(number << 3 | 2) + number_of(len(body)) + body


def number_of(value):
    """Encode a varint."""
    value, parts = value % 2**64, []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


HEAD, FRAMES, ENDS = wire(1, b"image") + wire(2, b"UINT8"), wire(1, b"frames"), wire(7, b"")
LIST = [*map(number_of, (1, 2**62, 4, 3))]
MESSAGES_OF_SHAPES = {
    "a shape in parts": wire(5, HEAD, *(wire(3, side) for side in LIST)),
    "a shape that is not packed": wire(5, HEAD, *(number_of(3 << 3) + side for side in LIST)),
    "a field by a number over 32 bits": b"\xaa\x80\x80\x80\x10" + wire(5, HEAD, wire(3, *LIST))[1:],
    "a shape by a number over 32 bits": wire(5, HEAD, b"\x9a\x80\x80\x80\x10" + wire(3, *LIST)[1:]),
    "a shape behind another": wire(5, HEAD, wire(3, b"\1\4\4\3")) + wire(5, HEAD, wire(3, *LIST)),
    "a shape beyond its input": wire(5, HEAD, b"\x1a\x7f") + wire(5, HEAD, wire(3, *LIST)),
    "1,000 sides of 1": wire(5, HEAD, wire(3, b"\1" * 1000)),
}


def test_a_shape_disguised_in_a_message_is_rejected_by_the_proxy(triton, proxy, clients):
    with no_process_ends(triton, clients):
        messages = {name: FRAMES + message + ENDS for name, message in MESSAGES_OF_SHAPES.items()}
        got = {name: ask_grpc(proxy, "ModelInfer", message) for name, message in messages.items()}
        assert {code for code, _ in got.values()} == {"INVALID_ARGUMENT"}, got
        assert all(words.startswith("proxy: ") for _, words in got.values()), got
        packed = wire(5, HEAD, wire(3, b"\1\4\4\3"))
        assert ask_grpc(proxy, "ModelInfer", FRAMES + packed + wire(7, FRAME[3])) == ("", "")


def test_a_message_over_the_limit_is_rejected_by_the_proxy(proxy, clients, tmp_path):
    large = infer_message(raw_input_contents=[bytes(MAX_BODY_BYTES)])
    code = {"haproxy": "RESOURCE_EXHAUSTED", "envoy": "UNKNOWN"}[proxy.kind]
    assert ask_grpc(proxy, "ModelInfer", large)[0] in (code, "CANCELLED")
    tensor = b"\x3a\xf9\xff\xff\xff\x0f"  # the length of the following field claims 4 GiB
    (tmp_path / "message").write_bytes(b"\0\xff\xff\xff\xff" + tensor + bytes(9000))
    target = f"http://{proxy.grpc}/inference.GRPCInferenceService/ModelInfer"
    options = ["-sS", "--http2-prior-knowledge", "-H", "te: trailers", "-D", "-", "-o", "/dev/null"]
    command = ["curl", *options, "--data-binary", f"@{tmp_path}/message", target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    # Envoy checks the received size, and HAProxy checks the declared size.
    words = {"haproxy": "the message exceeds 64 MiB", "envoy": "send one image input, as raw contents"}[proxy.kind]
    assert f"grpc-message: proxy: {words}" in done.stdout, done.stderr
    assert clients.ask([PHOTO], protocol="grpc") == "right"


def test_even_without_a_proxy_no_http_request_ends_a_process(triton, oracle):
    own = SimpleNamespace(address=address(triton), grpc=triton.grpc_url)
    split = {"Inference-Header-Content-Length": str(len(DEEP))}
    classes = {"inputs": [], "outputs": [{"name": "logits", "parameters": {"classification": 1}}]}
    attacks = {
        "deep": (400, INFER, {}, DEEP),
        "deep before an image": (400, INFER, split, DEEP + PHOTO),
        "deep text": (400, "/v2/models/preprocess/generate", {}, DEEP),
        "deep memory": (400, "/v2/systemsharedmemory/region/a/register", {}, DEEP),
        "a bomb": (413, INFER, RAW | {"Content-Encoding": "gzip"}, gzip.compress(bytes((96 << 20) + 1))),
        "a website's": (403, INFER, RAW | {"Origin": "https://evil.example"}, PHOTO),
        "a rebound name's": (403, INFER, RAW | {"Host": "evil.example"}, PHOTO),
    }
    refused = Counter()
    with Clients(own, oracle) as clients, no_process_ends(triton, clients):
        for _ in range(2):
            assert {name: over_http(own, *parts) for name, parts in VALID_REQUESTS.items()} == dict.fromkeys(
                VALID_REQUESTS, (200, "")
            )
            got = [over_http(own, *parts) for parts in OVERFLOWING.values()]
            got += [over_http(own, "frames", FRAME, change=change) for change in DISGUISES.values()]
            assert {status for status, _ in got} == {400}, got
            assert all(words.startswith("front: ") for _, words in got), got
            for name, (status, path, headers, body) in attacks.items():
                answer = post(own.address, path, headers, body)
                assert (answer[0], said(answer[2]).split()[0]) == (status, "front:"), name
            # the rows are complete, so Triton itself responds
            status, _, answer = post(own.address, "/v2/models/ensemble/infer", {}, json.dumps(classes).encode())
            assert (status, "front: " in said(answer)) == (400, False)
            refused.update(status for status, *_ in [*got, *attacks.values()])
    assert refused == {400: 2 * (len(OVERFLOWING) + len(DISGUISES) + 4), 413: 2, 403: 4}
    metrics = triton.metrics_url.removeprefix("http://").removesuffix("/metrics")
    statuses = [get(metrics, "/metrics", {"Host": host}) for host in ("localhost", "evil.example")]
    assert statuses == [200, 403]


def get(address, path, headers):
    connection = http.client.HTTPConnection(address, timeout=120)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_without_the_proxy_a_grpc_message_makes_triton_allocate_its_memory(tmp_path):
    models = write_repository(tmp_path / "models")
    with Server(models, http_port=0, grpc_port=0, metrics_port=0, grace_s=0) as server:
        process = psutil.Process(server.pid)
        before = process.memory_info().rss
        with grpc.insecure_channel(server.grpc_url) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            with pytest.raises(grpc.RpcError):
                call(infer_message() + b"\x2a\x00" * (1 << 20), timeout=120)
        assert process.memory_info().rss - before > 100 << 20  # the message itself has 2 MiB


@pytest.mark.slow(reason="it waits for the proxy's time limits")
def test_slow_clients_are_cut_off_and_the_others_are_served(proxy, clients):
    halves = [
        *20 * [b"POST " + INFER.encode()],  # incomplete headers
        *20 * [head("POST", INFER, with_json(b"{" + b" " * 5000)[0]) + b"{"],  # incomplete JSON
        *20 * [head("POST", INFER, [RAW_ZERO, ("Content-Length", 100)]) + b"x"],  # incomplete image
    ]
    after = len(proxy.log)
    with ExitStack() as stack:
        opened = [stack.enter_context(connect(proxy)) for _ in halves]
        ports = [connection.getsockname()[1] for connection in opened]
        for connection, half in zip(opened, halves, strict=True):
            connection.sendall(half)
        with clients.load(2, images=GOOD):
            closed = sum(map(ends, opened))
    assert closed == len(halves)
    said = Counter(proxy.said(port, after=after) for port in ports)
    # HAProxy 2.6 responds with status 400 if the timeouts of the body and of the connection expire at the same time.
    # Envoy starts to forward a raw image when the first byte arrives.
    other = {"haproxy": (400, False), "envoy": (408, True)}[proxy.kind]
    assert set(said) <= {(408, False), other}
    assert said[408, False] > said[other]
    assert set(clients.counts) == {"right"}, (clients.codes, clients.notes)


@pytest.mark.slow(reason="it waits for the proxy's time limits")
def test_a_slow_message_is_cut_off(proxy, clients):
    ended = threading.Event()

    def nothing():
        ended.wait(120)
        yield from ()

    with grpc.insecure_channel(proxy.grpc) as channel:
        call = channel.stream_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError, match=r"408|request timeout"):
            call(nothing(), timeout=120)
        ended.set()
    assert clients.ask([PHOTO], protocol="grpc") == "right"


@contextmanager
def held_connections(proxy, refusals, host="127.0.0.1", *, is_grpc=False):
    """Open connections and keep them open after the first response, until every kind of rejection has occurred. Yield
    the statuses.

    Status 0 means that the connection was closed. Over gRPC, the first response acknowledges the connection and counts
    as status 1.
    """
    hello = HELLO if is_grpc else head("GET", "/v2/health/live", [])
    statuses = []
    with ExitStack() as stack:
        while not refusals <= set(statuses) and len(statuses) < 2 * MAX_CONNECTIONS:
            try:
                connection = stack.enter_context(connect(proxy, host, is_grpc=is_grpc))
                connection.sendall(hello)
                answer = connection.recv(1 << 16)
            except ConnectionError:
                answer = b""
            statuses.append(int(bool(answer)) if is_grpc else int(answer.split()[1]) if answer else 0)
        yield statuses


@haproxy_alone
def test_connections_and_concurrent_requests_per_address_are_limited(proxy, clients):
    slack = 8  # a request may still be counted for a moment after its response
    with held_connections(proxy, {429, 0}, "127.0.0.2") as statuses:
        assert clients.ask([PHOTO]) == "right"  # this client has a different address
    assert set(statuses[: MAX_CONNECTIONS - slack]) == {200}
    assert statuses.count(200) < MAX_CONNECTIONS
    assert set(statuses) == {200, 429, 0}
    with held_connections(proxy, {0}, "127.0.0.3", is_grpc=True) as statuses:
        assert clients.ask([PHOTO], protocol="grpc") == "right"
    assert statuses == [*MAX_CONNECTIONS * [1], 0]


@pytest.mark.skipif(not ENVOY, reason="NO ENVOY: make scale")
def test_envoy_without_memory_returns_an_error_that_clients_retry(triton):
    tritons = [(triton.http_url.removeprefix("http://"), triton.grpc_url)]
    with proxy_of("envoy", tritons, heap_bytes=1 << 20) as proxy:  # less than Envoy uses after its start
        wait_until(lambda: post(proxy.address, INFER, RAW, PHOTO)[0] == 503, "it has room")
        assert ask_grpc(proxy, "ModelInfer", infer_message()) == ("UNAVAILABLE", "envoy overloaded")


@pytest.mark.parametrize("kind", KINDS)
def test_tritons_client_receives_the_reason_why_triton_is_unavailable(kind):
    words = {"haproxy": "proxy: no Triton server is ready; retry later", "envoy": "proxy: no healthy upstream"}[kind]
    said = []
    with proxy_of(kind, [("127.0.0.1:1", "127.0.0.1:1")]) as proxy:
        wait_until(lambda: post(proxy.address, INFER, RAW, PHOTO)[0] == 503, "there is a Triton")
        rows = np.array([[PHOTO]], np.object_)
        for module, url in ((tritonclient.http, proxy.address), (tritonclient.grpc, proxy.grpc)):
            image = module.InferInput("image", rows.shape, "BYTES").set_data_from_numpy(rows)
            with module.InferenceServerClient(url) as client, pytest.raises(InferenceServerException) as caught:
                client.infer("preprocess", [image])
            said.append(caught.value)
    assert (said[0].status(), said[0].message()) == ("503", words)
    assert said[1].status() == "StatusCode.UNAVAILABLE"


class FailingTriton(http.server.BaseHTTPRequestHandler):
    """Request handler of a server that is ready but fails at inference: it closes the connection for ``ends``, and
    never responds to ``hangs``.
    """

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if "hangs" in self.path:
            self.connection.recv(1)  # waits until HAProxy closes the connection

    def log_message(self, *_):
        pass


@pytest.mark.skipif(not HAPROXY, reason="NO HAPROXY: apt-get install haproxy")
def test_haproxys_own_errors_are_json(tmp_path):
    text = (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8")
    (tmp_path / "haproxy.cfg").write_text(text.replace("10s", "1s").replace("60s", "3s"))
    shutil.copy(DEPLOY / "inference.lua", tmp_path)

    def answer(proxy, request):
        with connect(proxy) as connection:
            connection.sendall(request)
            response = http.client.HTTPResponse(connection)
            response.begin()
            text = response.read()
            assert response.headers["Content-Type"] == "application/json", text
            return response.status, json.loads(text)["error"]

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), FailingTriton) as server:
        threading.Thread(target=server.serve_forever).start()
        address = f"127.0.0.1:{server.server_port}"
        try:
            with proxy_of("haproxy", [(address, address)], folder=tmp_path) as proxy:
                headers = [RAW_ZERO, ("Content-Length", 1)]
                requests = [head("POST", f"/v2/models/{name}/infer", headers) for name in ("slow", "ends", "hangs")]
                said = [answer(proxy, request + b"x" * bool(index)) for index, request in enumerate(requests)]
        finally:
            server.shutdown()
    assert said == [
        (408, "proxy: the request body arrives too slowly"),
        (502, "proxy: Triton ended before it responded; send the request again"),
        (504, "proxy: Triton did not respond in time"),
    ]


@haproxy_alone
def test_the_limit_also_applies_to_grpc_requests(proxy, clients):
    with tritonclient.grpc.InferenceServerClient(proxy.grpc) as client:

        def code():
            try:
                return "" if client.is_server_live() else "dead"
            except InferenceServerException as error:
                return error.status()

        assert code() == ""
        with held_connections(proxy, {429, 0}):
            assert code() == "StatusCode.RESOURCE_EXHAUSTED"
        wait_until(lambda: code() == "", "the places are not given back")
    assert clients.ask([PHOTO], protocol="grpc") == "right"
