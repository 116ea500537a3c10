"""Tests that after SIGTERM, `pixprep serve` completes the requests in flight and rejects new ones over every protocol,
and leaves no process running.
"""

import json
import os
import re
import signal
import socket
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from queue import SimpleQueue

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from support.serving import LARGE, TIMEOUT_S, Serve, body_of, said, wait_until, write_model, write_repository

pytestmark = pytest.mark.server

# A model that is busy while it waits, as if it computed. Its response is too large for the buffers of a connection.
GATED = """\
from pathlib import Path
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        while Path({gate!r}).exists():
            pass
        numbers = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy()[0] for request in requests]
        tensors = [pb_utils.Tensor("y", np.full({length}, number, np.float32)) for number in numbers]
        return [pb_utils.InferenceResponse([tensor]) for tensor in tensors]
"""
SAME = """\
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        values = [pb_utils.get_input_tensor_by_name(request, "y").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("z", value)]) for value in values]
"""
LENGTH = 1_000_000
CONFIG = """\
{backend}
input {{ name: "{given}" data_type: TYPE_FP32 dims: [ {length} ] }}
output {{ name: "{gives}" data_type: TYPE_FP32 dims: [ {out_length} ] }}
"""
STEPS = """\
ensemble_scheduling {
  step { model_name: "gated" model_version: -1
    input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } }
  step { model_name: "same" model_version: -1
    input_map { key: "y" value: "y" } output_map { key: "z" value: "z" } }
}
"""
OUTPUTS = {"gated": "y", "both": "z"}  # output name of each model


def config(backend, given, length, gives, out_length=LENGTH):
    return CONFIG.format(backend=backend, given=given, length=length, gives=gives, out_length=out_length)


@pytest.fixture
def gate_file(tmp_path):
    """Return the path of a file. While the file exists, the model `gated` waits."""
    return tmp_path / "gate"


@pytest.fixture
def serving(tmp_path, gate_file, monkeypatch):
    """Return a function that starts `pixprep serve` with options. Its temporary files are in ``tmp_path / "tmp"``."""
    models = tmp_path / "models"
    gated = {"model.py": GATED.format(gate=str(gate_file), length=LENGTH)}
    write_model(models, "gated", config('backend: "python"', "x", 1, "y"), gated)
    write_model(models, "same", config('backend: "python"', "y", LENGTH, "z"), {"model.py": SAME})
    write_model(models, "both", config('platform: "ensemble"', "x", 1, "z") + STEPS, {".gitkeep": ""})
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))

    @contextmanager
    def start(*options):
        with Serve(models, *options, triton_log=tmp_path / "triton.log") as serve:
            yield serve

    return start


class Http:
    """Client that sends one request at a time over a single connection."""

    def __init__(self, serve, *, stays=True):
        self._connection = HTTPConnection(serve.address, timeout=TIMEOUT_S)
        self._stays = stays

    def ask(self, number, model="gated", *, version=""):
        """Send a request, and return ``right`` or a description of the error."""
        given = {"name": "x", "shape": [1], "datatype": "FP32", "data": [number]}
        wanted = {"name": OUTPUTS[model], "parameters": {"binary_data": True}}
        try:
            body = json.dumps({"inputs": [given], "outputs": [wanted]})
            self._connection.request("POST", f"/v2/models/{model}{version and f'/versions/{version}'}/infer", body)
            answer = self._connection.getresponse()
            data = answer.read()
        except (OSError, HTTPException) as error:
            return f"cut: {error!r}"
        finally:
            if not self._stays:
                self.close()
        if answer.status != 200:
            return f"{answer.status} {said(data)}"
        return "right" if data.endswith(np.full(LENGTH, number, np.float32).tobytes()) else "wrong"

    def close(self):
        self._connection.close()


class Grpc:
    """Client that sends separate requests, or a stream of requests, over a single gRPC channel."""

    def __init__(self, serve, *, streams):
        self._client = tritonclient.grpc.InferenceServerClient(serve.grpc)
        self._streams = streams
        self._answers = SimpleQueue()
        if streams:
            self._client.start_stream(lambda result, error: self._answers.put((result, error)))

    def ask(self, number, model="gated", *, version=""):
        """Send a request, and return ``right`` or a description of the error."""
        given = tritonclient.grpc.InferInput("x", [1], "FP32").set_data_from_numpy(np.float32([number]))
        try:
            if self._streams:
                self._client.async_stream_infer(model, [given], model_version=version)
                result, error = self._answers.get(timeout=TIMEOUT_S)
                if error is not None:
                    raise error
            else:
                result = self._client.infer(model, [given], model_version=version, client_timeout=TIMEOUT_S)
        except InferenceServerException as error:
            return f"{error.status()} {error.message()}"
        return "right" if np.array_equal(result.as_numpy(OUTPUTS[model]), np.full(LENGTH, number)) else "wrong"

    def close(self):
        if self._streams:
            self._client.stop_stream(cancel_requests=True)
        self._client.close()


STREAM = "grpc, streamed"
WAYS = {
    "http": lambda serve: Http(serve, stays=False),
    "http, kept alive": Http,
    "grpc": lambda serve: Grpc(serve, streams=False),
    STREAM: lambda serve: Grpc(serve, streams=True),
}
REFUSALS = {"http": "404 ", "http, kept alive": "404 ", "grpc": "StatusCode.NOT_FOUND ", STREAM: "None "}


def queued_requests(serve):
    """Return the number of requests that are queued for the model `gated`."""
    with urllib.request.urlopen(f"http://{serve.metrics}/metrics", timeout=TIMEOUT_S) as answer:
        text = answer.read().decode()
    return int(re.search(r'^nv_inference_pending_request_count{model="gated".*} (\d+)', text, re.MULTILINE)[1])


def is_refused(serve, model):
    """Return whether Triton rejects new requests for this model."""
    with closing(HTTPConnection(serve.address, timeout=TIMEOUT_S)) as connection:
        connection.request("GET", f"/v2/models/{model}/ready")
        return connection.getresponse().status == 400


@contextmanager
def clients(serve, ways=WAYS):
    """Yield one client per protocol and model. Each client has already received a response."""
    with ExitStack() as stack:
        clients_by_key = {
            (way, model): stack.enter_context(closing(WAYS[way](serve))) for way in ways for model in OUTPUTS
        }  # fmt: skip
        for (_, model), client in clients_by_key.items():
            assert client.ask(0, model) == "right"
        yield clients_by_key


@contextmanager
def in_flight(serve, gate_file, ways=WAYS):
    """Send one request from each of these clients. The first request runs and the others wait. Yield the pending
    responses.
    """
    with clients(serve, ways) as clients_by_key, ThreadPoolExecutor(len(clients_by_key)) as pool:
        gate_file.touch()
        try:
            answers = {
                key: pool.submit(client.ask, number, key[1])
                for number, (key, client) in enumerate(clients_by_key.items())
            }
            wait_until(lambda: queued_requests(serve) == len(answers) - 1)
            yield answers
        finally:
            gate_file.unlink(missing_ok=True)  # otherwise, the server's shutdown would wait for the model


def assert_all_right(answers):
    assert {key: answer.result() for key, answer in answers.items()} == dict.fromkeys(answers, "right")


def assert_refused(others):
    for (way, model), client in others.items():
        words = f"Request for unknown model: '{model}' has no available versions"
        assert client.ask(9, model) == REFUSALS[way] + words


def test_requests_in_flight_are_completed_and_new_ones_are_rejected(serving, gate_file, tmp_path):
    ways = WAYS.keys() - {STREAM}
    with (
        serving("--grace", "60") as serve,
        clients(serve, ways) as others,
        in_flight(serve, gate_file, ways) as answers,
    ):
        serve.process.terminate()
        wait_until(lambda: all(is_refused(serve, model) for model in OUTPUTS))
        assert_refused(others)
        for way, code in (("http", "503"), ("http, kept alive", "503"), ("grpc", "StatusCode.UNAVAILABLE")):
            refusal = others[way, "gated"].ask(9, "gated", version="1")
            assert refusal == f"{code} Request for unknown model: 'gated' version 1 is not at ready state"
        serve.process.terminate()  # a second SIGTERM has no effect
        assert not any(answer.done() for answer in answers.values())
        gate_file.unlink()
        assert_all_right(answers)
        assert (serve.end(), serve.log) == (0, ["stopped"])
    assert serve.left() == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow(reason="it waits for the whole grace period")
def test_open_streams_and_a_dead_process_use_the_grace_period_without_losing_responses(serving, gate_file):
    """Triton 2.51 does not unload a model that a stream has used until the stream ends, and never unloads a model whose
    process died.
    """
    with serving("--grace", "20") as serve, clients(serve, [STREAM]) as others, in_flight(serve, gate_file) as answers:
        os.kill(serve.stub("same").pid, signal.SIGKILL)
        serve.process.terminate()
        wait_until(lambda: is_refused(serve, "gated"))
        gate_file.unlink()
        assert_all_right({key: answer for key, answer in answers.items() if key[1] == "gated"})
        errors = {answer.result() for (_, model), answer in answers.items() if model == "both"}
        assert not any(error.startswith(("wrong", "cut")) for error in errors), errors
        assert_refused(others)
        assert serve.end() == 0
    assert serve.left() == []


def test_unfinished_requests_are_cut_off_after_the_grace_period(serving, gate_file):
    with serving("--grace", "4") as serve, in_flight(serve, gate_file) as answers:
        serve.process.terminate()
        assert (serve.end(), serve.log) == (0, ["stopped"])
        assert "right" not in {answer.result() for answer in answers.values()}
    assert serve.left() == []


def test_a_completely_sent_request_is_processed_although_triton_had_not_read_it(tmp_path):
    """Sixteen large photos are sent at the same time, so that some of them are queued when the shutdown begins."""
    headers, body = body_of([LARGE])
    words = {"Host": "localhost", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in words.items())
    request = f"POST /v2/models/preprocess/infer HTTP/1.1\r\n{head}\r\n".encode() + body
    with (
        Serve(write_repository(tmp_path / "models"), "--grace", "60", triton_log=tmp_path / "triton.log") as serve,
        ExitStack() as stack,
        ThreadPoolExecutor(16) as pool,
    ):
        address = serve.address.split(":")
        sockets = [stack.enter_context(socket.create_connection(address, TIMEOUT_S)) for _ in range(16)]
        list(pool.map(lambda each: each.sendall(request), sockets))
        serve.process.terminate()

        def status(connection):
            with closing(HTTPResponse(connection)) as answer:
                answer.begin()
                return answer.status, len(answer.read()) > 3 * 224 * 224 * 4

        answers = list(pool.map(status, sockets))
        assert answers == [(200, True)] * 16
        assert serve.end() == 0
