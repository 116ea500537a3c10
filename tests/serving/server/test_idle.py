"""Tests that a model under `pixprep serve` frees its memory when it receives no requests, and that its metrics do not
change.
"""

import re
import urllib.request
from pathlib import Path

import pytest

from support.serving import LARGE, PIPELINE, TIMEOUT_S, Clients, Serve, wait_until, write_model

pytestmark = pytest.mark.server

KEPT_MIB = 40  # a decoded image of 12 megapixels takes 46 MiB


@pytest.fixture
def serve(tmp_path):
    write_model(tmp_path / "models", "preprocess", 'backend: "pixprep"\n', {"pipeline.json": PIPELINE.to_json()})
    with Serve(tmp_path / "models", triton_log=tmp_path / "triton.log") as serve:
        yield serve


def private_mib(pid):
    return int(re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def counted(serve, name):
    """Return the sum of a counter of preprocess over all labels."""
    with urllib.request.urlopen(f"http://{serve.metrics}/metrics", timeout=TIMEOUT_S) as answer:
        found = re.findall(rf'^{name}{{.*model="preprocess".*}} (\d+)', answer.read().decode(), re.MULTILINE)
    return sum(map(int, found))


@pytest.mark.slow(reason="it waits until a model is idle")
def test_a_model_that_is_only_probed_frees_memory_and_counts_nothing(serve, oracle):
    stub = serve.stub("preprocess")
    before = private_mib(stub.pid)
    with Clients(serve, oracle) as clients:
        assert clients.ask([LARGE]) == "right", clients.notes
    held = private_mib(stub.pid)
    assert held > before + KEPT_MIB
    wait_until(lambda: private_mib(stub.pid) < held - KEPT_MIB, lambda: private_mib(stub.pid), within_s=90)
    wait_until(lambda: counted(serve, "nv_inference_request_success") >= 4)
    assert counted(serve, "pixprep_images_total") == 1
    assert counted(serve, "pixprep_encoded_bytes_total") == len(LARGE)
    assert serve.log == []
