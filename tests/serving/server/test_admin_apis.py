"""Attack: A client unloads models, moves the log file or enables tracing. Another user of the machine searches for the
key in the output of `ps`.

Defence: These Triton APIs are restricted. They require a key that is generated at every start and is overwritten in the
process list.

Outcome: Everyone except ``pixprep serve`` gets status 403, over HTTP and gRPC, while inference and health checks remain
accessible. Shared memory, with which a client can crash Triton, is accessible only with ``--allow-shared-memory``.
"""

import http.client
import subprocess
import sys
from pathlib import Path

import pytest
import tritonclient.grpc

from pixprep.errors import PixprepError
from pixprep.serving.embedded import perf
from support.serving import PHOTO, address

pytestmark = pytest.mark.server

EXAMPLE = Path(__file__).parents[3] / "client_examples" / "shared_memory.py"

CLOSED = {
    "/v2/repository/index": "POST",
    "/v2/repository/models/preprocess/unload": "POST",
    "/v2/repository/models/preprocess/load": "POST",
    "/v2/logging": "POST",
    "/v2/trace/setting": "POST",
    "/v2/models/preprocess/trace/setting": "POST",
}


def status(url, method, path, headers=()):
    connection = http.client.HTTPConnection(url, timeout=120)
    try:
        connection.request(method, path, "{}", dict(headers))
        return connection.getresponse().status
    finally:
        connection.close()


def key(server):
    """Return the key that is visible in the command line of Triton's process."""
    words = Path(f"/proc/{server.pid}/cmdline").read_text().split("\0")
    (restricted,) = (word for word in words if word.startswith("--http-restricted-api="))
    return restricted.rpartition("=")[2]


@pytest.mark.parametrize("path", CLOSED)
def test_an_admin_api_rejects_every_wrong_key(demo, path):
    for headers in ({}, {"admin-key": ""}, {"admin-key": "x" * 32}, {"admin-key": key(demo)}):
        assert status(address(demo), CLOSED[path], path, headers.items()) == 403


def test_an_admin_api_rejects_wrong_keys_over_grpc(demo):
    with tritonclient.grpc.InferenceServerClient(demo.grpc_url) as client:
        for call in (client.get_model_repository_index, client.get_log_settings, client.get_trace_settings):
            with pytest.raises(tritonclient.grpc.InferenceServerException, match="restricted"):
                call()


def test_the_key_is_not_in_the_process_list_and_works_for_its_owner(demo):
    assert set(key(demo)) == {"x"}
    assert demo.control.repository("index")[0] == 200
    assert "admin-key=" not in demo.log_file.read_text()


def test_health_metadata_and_allowed_shared_memory_are_accessible(demo):
    for path in (
        "/v2/health/ready",
        "/v2/models/ensemble",
        "/v2/models/ensemble/stats",
        "/v2/systemsharedmemory/status",
    ):
        assert status(address(demo), "GET", path) == 200


@pytest.mark.parametrize("kind", ["systemsharedmemory", "cudasharedmemory"])
def test_shared_memory_is_rejected_by_default(usual, kind):
    paths = {"status": "GET", "region/x/status": "GET", "region/x/register": "POST", "unregister": "POST"}
    found = {path: status(usual.address, method, f"/v2/{kind}/{path}") for path, method in paths.items()}
    assert found == dict.fromkeys(paths, 403)
    name = kind.replace("shared", "_shared_")
    with tritonclient.grpc.InferenceServerClient(usual.grpc) as client:
        for call in (getattr(client, f"get_{name}_status"), getattr(client, f"unregister_{name}")):
            with pytest.raises(tritonclient.grpc.InferenceServerException, match="restricted"):
                call()


def test_the_error_about_shared_memory_names_the_option_that_enables_it(usual):
    command = [sys.executable, str(EXAMPLE), "--url", usual.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "shared_memory.py: [403] This API is restricted, expecting header 'admin-key': shared memory requires "
        "`pixprep serve --allow-shared-memory`, or Triton without this restriction\n"
    )
    with pytest.raises(
        PixprepError, match=r"the server must allow shared memory \(`pixprep serve --allow-shared-memory`\)$"
    ):
        perf.measure(
            [PHOTO], url=usual.address, protocol="http", model="preprocess", concurrency=[1], shared_memory=True
        )
