"""Tests of `pixprep serve --log-format json`: every line is a JSON object, and the log never contains data from
clients.
"""

import json
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from pixprep.serving.embedded.stubs import stubs
from support.serving import (
    PHOTO,
    PORTS,
    PROGRAM,
    ClientError,
    ask_http,
    post,
    wait_until,
    write_model,
    write_repository,
)

pytestmark = pytest.mark.server

SECRET = "MyGrandmothersPassport"  # noqa: S105  (what clients send)
SERVE = [sys.executable, "-c", PROGRAM, "serve", *PORTS, "--log-format", "json", "--model-repository"]


class JsonServe:
    """Runs a server and reads its stdout and stderr as one stream, as a container runtime does."""

    def __init__(self, repository, *arguments):
        self.lines = []
        self.process = subprocess.Popen(
            [*SERVE, str(repository), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def rows(self, **expected):
        """Return the objects logged so far that have these values. For ``message``, it is sufficient to contain the
        given text.
        """
        rows = [json.loads(line) for line in [*self.lines]]
        words = expected.pop("message", "")
        return [row for row in rows if words in row["message"] and expected.items() <= row.items()]

    def wait(self, **expected):
        return wait_until(lambda: self.rows(**expected), lambda: f"no {expected} in {self.lines}", within_s=120)[0]

    def end(self):
        code = self.process.wait(120)
        self._reader.join()
        self.process.stdout.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.end()


def send_invalid_requests(address):
    """Send requests with the secret in every part of a request that a client controls, except the id."""
    named = {"name": SECRET, "shape": [1, 1], "datatype": "BYTES", "data": [SECRET]}
    image = named | {"name": "image"}
    bodies = [
        ({"Inference-Header-Content-Length": "0"}, SECRET.encode() * 100),
        ({"Inference-Header-Content-Length": "0"}, PHOTO[:200] + SECRET.encode() * 100),
        ({}, json.dumps({"inputs": [named]}).encode()),
        ({}, json.dumps({"inputs": [image]}).encode()),
        ({}, json.dumps({"inputs": [image], "outputs": [{"name": SECRET}]}).encode()),
        ({}, json.dumps({"inputs": [image], "parameters": {SECRET: SECRET}}).encode()),
        ({}, b'{"' + SECRET.encode()),
        ({"Content-Encoding": SECRET}, SECRET.encode()),
        ({"Inference-Header-Content-Length": SECRET}, SECRET.encode()),
    ]
    for model in ("ensemble", "preprocess", SECRET):
        for headers, body in bodies:
            status, _, _ = post(address, f"/v2/models/{model}/infer", headers | {"x-secret": SECRET}, body)
            assert status >= 400, (headers, body)


def test_every_line_is_an_object_without_a_clients_data(tmp_path):
    with JsonServe(write_repository(tmp_path / "models")) as serve:
        ready = serve.wait(message="ready", level="info")
        address = ready["http"].removeprefix("http://")
        assert set(ready["models"]) == {"preprocess", "classifier", "ensemble"}
        triton_log = Path(ready["triton_log"])
        assert "successfully loaded 'preprocess'" in triton_log.read_text()
        ask_http(address, "ensemble", [PHOTO])
        send_invalid_requests(address)
        (triton,) = (each for each in psutil.Process(serve.process.pid).children() if each.name() == "tritonserver")
        (stub,) = (stub for stub in stubs(triton.pid) if stub.model == "preprocess")
        stub.kill()
        down = serve.wait(message="is down", level="error", model="preprocess")
        back = serve.wait(message="is ready again", level="warning", model="preprocess")
        assert datetime.fromisoformat(down["time"]) < datetime.fromisoformat(back["time"])
        wait_until(lambda: answers(address))
        said_by_triton = triton_log.read_text()
        serve.process.terminate()
        assert serve.end() == 0
        assert serve.rows()[-1]["message"] == "stopped"
        for row in serve.rows():
            assert {"time", "level", "message"} <= set(row)
            assert row["level"] in ("info", "warning", "error")
            assert datetime.fromisoformat(row["time"]).utcoffset().total_seconds() == 0
        assert SECRET not in "".join(serve.lines) + said_by_triton


def answers(address):
    try:
        return ask_http(address, "ensemble", [PHOTO]) is not None
    except ClientError:
        return False


def test_a_failed_start_is_reported_as_an_object(tmp_path):
    write_model(tmp_path / "models", "odd", 'backend: "python"\n', {"model.py": "raise ValueError('no')"})
    with JsonServe(tmp_path / "models", "--no-check") as serve:
        assert serve.end() == 1
        rows = serve.rows(level="critical")
        assert 'model "odd" does not load' in rows[0]["message"]
        assert rows[-1]["message"].startswith("Triton's complete log: ")
