"""Tests that run every recipe of docs/clients.md verbatim against a live Triton server, and tests of the errors for
invalid requests.

Recipes that need third-party packages run only if `make clients` has installed these packages.
"""

import base64
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.serving.repository import build
from support.serving import run_program

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
PHOTO, OTHER = (ROOT / "client_examples" / "images" / name for name in ("flower.jpg", "china.jpg"))
ENVIRONMENTS = ROOT / ".venv-clients"
IS_ASKED = os.environ.get("PIXPREP_CLIENTS") == "1"  # if true, no recipe may be skipped
RAW = {"Inference-Header-Content-Length": "0"}
# Each environment, and the recipes that run in it.
WHERE = {
    "curl": ["ours"],
    "tritonclient over HTTP": ["ours", "newest"],
    "tritonclient over gRPC": ["ours", "newest"],
    "Labels": ["ours", "newest"],
    "tritonclient with asyncio": ["ours", "newest"],
    "A gRPC stream": ["ours", "newest"],
    "httpx": ["newest"],
    "fetch, in Node": ["node"],
    "gRPC, in Node": ["node"],
    "KServe's SDK": ["kserve"],
    "JSON with base64": ["newest"],
    "Clients of dali_backend": ["ours", "newest"],
    "perf_analyzer": ["ours"],
}
# Lines that the tests append to a program in order to save its result.
SAVE = {
    "python": "\nimport json, numpy\n"
    "if 'tensor' in globals(): numpy.save('tensor.npy', tensor)\n"
    "if 'labels' in globals(): print(json.dumps(labels))\n"
    "if 'best' in globals() and 'statistics' in globals(): print(json.dumps(best.tolist()), statistics.name)\n",
    "javascript": "\nimport { writeFileSync } from 'node:fs';\nwriteFileSync('tensor.f32', tensor);\n",
}


def sections():
    """Return the recipes by heading, language and program."""
    found = {}
    for section in DOC.split("\n## ")[1:]:
        programs = re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        if programs and not section.startswith("A folder of photos"):  # other tests run these commands
            found[section.partition("\n")[0]] = programs
    return found


SECTIONS = sections()


def required_file(path, name):
    """Return a file of an environment created by `make clients`. Skip the test if the file does not exist."""
    if not path.exists():
        if IS_ASKED:
            pytest.fail(f"{path}: not there")
        pytest.skip(f"NO CLIENTS OF {name.upper()}: make clients")
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory, demo_repository):
    """Return a repository with the demo, a model for clients of dali_backend, and a model for base64, each built as on
    the page.
    """
    repository = tmp_path_factory.mktemp("clients") / "models"
    shutil.copytree(demo_repository, repository)
    build(repository, name="dali", input_="dali")
    build(repository, name="json", parameters={"accept_base64": "true"})
    return repository


@pytest.fixture(scope="module")
def tensors(tmp_path_factory):
    """Return the tensor that ``pixprep run`` writes for each photo: float32 (1, 3, 224, 224)."""
    folder = tmp_path_factory.mktemp("tensors")
    pipeline = folder / "pipeline.json"
    pp.presets.efficientnet_lite0().save(pipeline)
    assert main(["run", str(pipeline), str(PHOTO), str(OTHER), "--output", str(folder)]) == 0
    tensors = [np.load(folder / f"{path.stem}.npy")[None] for path in (PHOTO, OTHER)]
    assert tensors[0].dtype == np.float32
    # negative control: the tensor of a different photo does not pass the comparison
    assert not np.array_equal(*tensors)
    return tensors


@pytest.fixture
def folder(tmp_path):
    """Return the user's folder with the photos."""
    shutil.copy(PHOTO, tmp_path / "photo.jpg")
    shutil.copy(OTHER, tmp_path / "other.jpg")
    return tmp_path


def run(program, name, server, folder):
    """Run a program of the page in its environment, with the address of the test's server. Return the output."""
    language, text = program
    for port, url in ((8000, server.http_url.removeprefix("http://")), (8001, server.grpc_url)):
        text = text.replace(f"localhost:{port}", url)
    file = folder / f"recipe.{'mjs' if language == 'javascript' else language}"
    file.write_text(text + SAVE.get(language, ""), encoding="utf-8")
    match language:
        case "python" if name == "ours":
            done = run_program(file, cwd=folder)
            assert done.returncode == 0, done.stderr
            return done.stdout
        case "python":
            command = [required_file(ENVIRONMENTS / name / "bin" / "python", name), file]
        case "javascript":
            (folder / "node_modules").symlink_to(required_file(ENVIRONMENTS / "node" / "node_modules", "node"))
            command = ["node", file]
        case "sh":
            if shutil.which("curl") is None:
                pytest.skip("curl is not installed")
            command = ["/bin/sh", "-e", file]
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": scripts, "TMPDIR": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def result(folder):
    """Return the tensor that a program has saved."""
    if (folder / "tensor.npy").exists():
        return np.load(folder / "tensor.npy")
    return np.fromfile(folder / "tensor.f32", np.float32).reshape(1, 3, 224, 224)


# each of these recipes has its own test
TESTED_SEPARATELY = ("Labels", "gRPC, in Node", "Clients of dali_backend", "perf_analyzer")
PROGRAMS = [
    pytest.param(program, name, id=f"{heading}, {name}{f' {number + 1}' * bool(number)}")
    for heading, names in WHERE.items()
    for name in names
    for number, program in enumerate(SECTIONS[heading])
    if heading not in TESTED_SEPARATELY
]


def test_every_program_on_the_page_is_run():
    assert set(SECTIONS) == set(WHERE)
    assert all(len(SECTIONS[heading]) == 1 + (heading == "gRPC, in Node") for heading in TESTED_SEPARATELY)


@pytest.mark.parametrize(("program", "name"), PROGRAMS)
def test_a_client_gets_the_tensor_that_run_writes(server, tensors, folder, program, name):
    run(program, name, server, folder)
    tensor = result(folder)
    assert tensor.dtype == np.float32
    np.testing.assert_array_equal(tensor, tensors[0])


def test_node_uses_grpc_with_the_proto_files_of_tritonclient(server, tensors, folder):
    description, client = SECTIONS["gRPC, in Node"]
    run(description, "ours", server, folder)
    run(client, "node", server, folder)
    np.testing.assert_array_equal(result(folder), tensors[0])


@pytest.mark.parametrize("name", WHERE["Labels"])
def test_the_first_label_is_right(server, folder, name):
    (program,) = SECTIONS["Labels"]
    labels = json.loads(run(program, name, server, folder))
    assert (labels[0], len(labels)) == ("daisy", 5)
    shutil.copy(OTHER, folder / "photo.jpg")
    assert json.loads(run(program, name, server, folder))[0] == "palace"


@pytest.mark.parametrize("name", WHERE["Clients of dali_backend"])
def test_clients_of_dali_backend_are_served(server, tensors, folder, name):
    (program,) = SECTIONS["Clients of dali_backend"]
    assert run(program, name, server, folder) == "[985, 698] dali\n"
    np.testing.assert_array_equal(result(folder), np.concatenate(tensors))


def test_perf_analyzer_runs_with_the_command_that_bench_prints(server, folder):
    (program,) = SECTIONS["perf_analyzer"]
    printed = run(program, "ours", server, folder)
    assert re.search(r"^Concurrency: 2, throughput: [\d.]+ infer/sec, latency \d+ usec$", printed, re.MULTILINE)


# Tests of invalid requests.


def post(server, body, headers=(), *, model="preprocess", method="POST"):
    """Send a request. Return the status, and the error message or the response."""
    connection = http.client.HTTPConnection(server.http_url.removeprefix("http://"), timeout=120)
    try:
        connection.request(method, f"/v2/models/{model}/infer", body, dict(headers))
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    return answer.status, content if answer.status == 200 else json.loads(content)["error"]


def kserve(element):
    return json.dumps({"inputs": [{"name": "image", "datatype": "BYTES", "shape": [1, 1], "data": [element]}]})


TEXT = base64.b64encode(PHOTO.read_bytes()).decode()
FORM = b'--frontier\r\nContent-Disposition: form-data; name="file"; filename="photo.jpg"\r\n\r\n' + PHOTO.read_bytes()
ROWS = re.findall(r"^\| (.*) \| `([^`]{30,})` \|$", DOC.partition("Errors of a malformed request")[2], re.MULTILINE)
WRONG = {  # keys are the texts in the page's table
    "an image or a form without `Inference-Header-Content-Length: 0`": (400, PHOTO.read_bytes(), FORM),
    '`{"b64": …}` or `{"instances": …}` without `Inference-Header-Content-Length: 0`': (
        500,
        json.dumps({"b64": TEXT}),
        json.dumps({"instances": [{}]}),
    ),
    '`{"inputs": [{…, "data": [{"b64": …}]}]}`': (500, kserve({"b64": TEXT})),
}
REQUEST = "send the unmodified bytes of the file: curl --data-binary @photo.jpg -H 'Inference-Header-Content-Length: 0'"
OUR_MESSAGES = {
    "base64": (kserve(TEXT), {}, f"base64 text; {REQUEST}; or set the model's parameter accept_base64"),
    "a data: URL": (
        kserve(f"data:image/jpeg;base64,{TEXT}"),
        {},
        f"a data: URL instead of an image; {REQUEST}; or set the model's parameter accept_base64",
    ),
    "JSON as an image": (
        json.dumps({"b64": TEXT}),
        RAW,
        f"JSON text instead of an image; {REQUEST}; for a JSON request of Triton, omit this header",
    ),
    "curl -d": (
        PHOTO.read_bytes().translate(None, b"\0\n\r"),
        RAW,
        f"an image whose bytes 0, 10 and 13 were removed, as by curl -d; {REQUEST}",
    ),
    "a form as an image": (FORM, RAW, f"a multipart form, as sent by curl -F; {REQUEST}"),
}


@pytest.mark.parametrize("sent", WRONG)
def test_errors_for_wrong_requests_equal_those_on_the_page(server, sent):
    rows = {case: said for case, said in ROWS if "PUT" not in case}
    assert set(rows) == set(WRONG)
    status, *bodies = WRONG[sent]
    assert [post(server, body) for body in bodies] == [(status, rows[sent])] * len(bodies)


@pytest.mark.parametrize("sent", OUR_MESSAGES)
def test_a_wrong_request_that_reaches_pixprep_is_answered_with_the_right_one(server, sent):
    body, headers, words = OUR_MESSAGES[sent]
    reason = "CORRUPT" if sent == "curl -d" else "UNKNOWN_FORMAT"
    assert post(server, body, headers) == (400, f"[{reason}] image 1 of 1: {words}")
    assert post(server, PHOTO.read_bytes(), RAW)[0] == 200


def test_the_page_shows_the_actual_error():
    (shown,) = re.findall(
        r"^```\n(.*?)^```$", DOC.partition("Errors of a malformed request")[2], re.MULTILINE | re.DOTALL
    )
    assert " ".join(shown.split()) == f"[UNKNOWN_FORMAT] image 1 of 1: {OUR_MESSAGES['base64'][2]}"


def test_a_large_form_is_read_as_a_photo(server, tensors):
    """Without the front, Triton crashes. The decoder ignores bytes after the end of a JPEG."""
    headers = {**RAW, "Content-Type": "application/x-www-form-urlencoded"}
    status, content = post(server, PHOTO.read_bytes() + bytes(8 << 20), headers)
    assert (status, content[-tensors[0].nbytes :]) == (200, tensors[0].tobytes())


@pytest.mark.parametrize("method", ["PUT"])
def test_a_put_is_rejected_as_documented(server, method):
    assert post(server, PHOTO.read_bytes(), RAW, method=method) == (
        405,
        "front: method PUT is not allowed: use GET, HEAD or POST",
    )
    assert "| `curl -T photo.jpg`, which is a PUT | `front: method PUT is not allowed: use GET, HEAD or POST` |" in DOC


def test_kserves_older_protocol_is_not_supported_as_documented(server):
    connection = http.client.HTTPConnection(server.http_url.removeprefix("http://"), timeout=120)
    with closing(connection):
        connection.request("POST", "/v1/models/preprocess:predict", '{"instances": []}')
        answer = connection.getresponse()
        assert (answer.status, answer.reason) == (404, "Not Found")
    assert "| `POST /v1/models/MODEL:predict`, KServe's version 1 protocol | `Not Found`" in DOC


@pytest.mark.parametrize("method", ["OPTIONS", "GET"])
def test_a_page_of_a_different_origin_gets_no_cors_headers_as_documented(server, method):
    connection = http.client.HTTPConnection(server.http_url.removeprefix("http://"), timeout=120)
    with closing(connection):
        connection.request(method, "/v2/models/preprocess", headers={"Origin": "https://shop.example"})
        assert [name for name, _ in connection.getresponse().getheaders() if "access-control" in name.lower()] == []
    assert "Triton does not send CORS headers" in DOC


# Base64


def test_a_model_that_accepts_base64_returns_the_same_tensor_for_every_form(server, tensors):
    """The forms include the raw bytes, and the ensemble is also tested."""
    encoded = PHOTO.read_bytes()
    ways = [TEXT, base64.encodebytes(encoded).decode(), base64.urlsafe_b64encode(encoded).decode().rstrip("=")]
    for way in (*ways, f"data:image/jpeg;base64,{TEXT}"):
        status, content = post(server, kserve(way), model="json_preprocess")
        assert status == 200
        (output,) = json.loads(content)["outputs"]
        np.testing.assert_array_equal(np.float32(output["data"]).reshape(output["shape"]), tensors[0])
    status, content = post(server, encoded, RAW, model="json_preprocess")
    assert (status, content[-tensors[0].nbytes :]) == (200, tensors[0].tobytes())
    logits = json.loads(post(server, kserve(TEXT), model="json")[1])["outputs"][0]["data"]
    assert int(np.argmax(logits)) == 985


BROKEN = f"invalid base64 text: it is truncated, or contains an invalid character; {REQUEST}"


@pytest.mark.parametrize(
    ("element", "words"),
    [
        (f"{TEXT[:-1]}!", f"[UNKNOWN_FORMAT] image 1 of 1: {BROKEN}"),
        ("A" * (21 << 20) * 4, "[TOO_LARGE_BYTES] the images of the request have "),
    ],
    ids=["broken", "a huge request"],
)
def test_invalid_base64_is_rejected_alone(server, element, words):
    status, error = post(server, kserve(element), model="json_preprocess")
    assert status == 400
    assert error.startswith(words)
    assert post(server, kserve(TEXT), model="json_preprocess")[0] == 200
