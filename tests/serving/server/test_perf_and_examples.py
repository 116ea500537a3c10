"""Tests with a live Triton server: perf_analyzer, the client in `pixprep send`, and every program in
client_examples/.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import tritonclient.http

import pixprep as pp
from pixprep.errors import PixprepError, SetupError
from pixprep.serving.embedded import client, perf
from pixprep.serving.embedded.addresses import check_ports
from pixprep.serving.embedded.wheel import environment as environment_of
from pixprep.serving.embedded.wheel import find_wheel
from support.images import NO_IMAGE
from support.serving import address, run_program, wait_until, write_model, write_pipeline

pytestmark = pytest.mark.server

EXAMPLES = Path(__file__).parents[3] / "client_examples"
PHOTOS = sorted((EXAMPLES / "images").rglob("*.jpg"))
NOT_AN_IMAGE = f"[UNKNOWN_FORMAT] image 1 of 1: {NO_IMAGE}"

SHARED_MEMORY = Path("/dev/shm")
UINT8_CONFIG = """
backend: "pixprep"
max_batch_size: 8
input { name: "DALI_INPUT_0" data_type: TYPE_UINT8 dims: [ -1 ] }
"""
SLOW_CONFIG = """
backend: "python"
max_batch_size: 1
input { name: "image" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "scores" data_type: TYPE_FP32 dims: [ 1 ] }
"""
SLOW_MODEL = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(1.5)
        return [pb_utils.InferenceResponse([]) for request in requests]
"""


def regions_left():
    """Return the shared memory regions whose example has ended. An example in a concurrent test may still be
    running.
    """
    ended = [path for path in SHARED_MEMORY.glob("pixprep-*") if not Path("/proc", path.name.split("-")[1]).exists()]
    return [path for path in ended if path.exists()]


@pytest.fixture
def broken(tmp_path):
    path = tmp_path / "broken.jpg"
    path.write_bytes(b"not an image")
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    write_pipeline(repository, "dali", pp.presets.imagenet(), UINT8_CONFIG)
    write_model(repository, "slow", SLOW_CONFIG, {"model.py": SLOW_MODEL})
    return repository


def check(row, **expected):
    assert {name: getattr(row, name) for name in expected} == expected
    assert row.images_per_s > 1
    assert 0 < row.p50_ms <= row.p90_ms <= row.p95_ms <= row.p99_ms < 30_000
    assert row.mean_batch >= row.batch


def test_perf_analyzer_sends_uint8_like_clients_of_other_backends(server):
    images = [photo.read_bytes() for photo in PHOTOS]
    (row,) = perf.measure(
        images, url=address(server, "grpc"), protocol="grpc", model="dali", concurrency=[2], seconds=0.4
    )
    check(row, model="dali", batch=1)


def test_a_uint8_model_accepts_images_of_any_length(server):
    answers = list(client.send(PHOTOS, url=address(server, "grpc"), protocol="grpc", model="dali"))
    assert [answer.error for answer in answers] == [None] * len(PHOTOS)
    assert {answer.outputs["tensor"].shape for answer in answers} == {(3, 224, 224)}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_server_that_does_not_respond_in_time_is_reported(server, protocol):
    (answer,) = client.send(PHOTOS[:1], url=address(server, protocol), protocol=protocol, model="slow", timeout_s=0.5)
    assert answer.error == "no response within 0.5 s"
    assert answer.latency_ms >= 500


@pytest.mark.parametrize(
    ("protocol", "model", "options"),
    [
        ("http", "preprocess", {"batch": 8}),
        ("grpc", "ensemble", {"batch": 1, "rate": [20]}),
        ("grpc", "preprocess", {"batch": 2, "shared_memory": True}),
        ("http", "ensemble", {"batch": 2, "shared_memory": True}),
    ],
)
def test_perf_analyzer_measures_images_of_mixed_sizes_under_closed_and_open_loads(demo, protocol, model, options):
    images = [photo.read_bytes() for photo in PHOTOS]
    assert len({len(image) for image in images}) == 8
    seen = []
    where = {"url": address(demo, protocol), "protocol": protocol, "model": model}
    loop, *poisson = rows = perf.measure(
        images, concurrency=[2], seconds=0.6, on_progress=seen.append, **where, **options
    )
    assert seen == rows
    check(loop, protocol=protocol, model=model, load="concurrency 2", batch=options["batch"], late_percent=0.0)
    for row in poisson:
        check(row, protocol=protocol, model=model, load="poisson 20/s", batch=1)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_missing_model_is_named(demo, protocol):
    with pytest.raises(SetupError) as caught:
        next(client.send(PHOTOS, url=address(demo, protocol), protocol=protocol, model="resnet"))
    assert str(caught.value) == (
        f'no model "resnet" is ready on {address(demo, protocol)}: '
        "the models there are classifier, ensemble, preprocess"
    )


def test_images_are_not_sent_to_a_model_that_accepts_tensors(demo):
    with pytest.raises(PixprepError) as caught:
        next(client.send(PHOTOS, url=address(demo, "http"), model="classifier"))
    assert str(caught.value) == (
        'the input of model "classifier" is not an image but input TYPE_FP32 [3, 224, 224]: '
        "pass the name of an ensemble or of a model of the pixprep backend"
    )


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("batch", [1, 4])
def test_one_invalid_file_does_not_stop_the_others_with_any_batch_size(demo, broken, protocol, batch):
    unreadable = broken.with_name("gone.jpg")
    unreadable.symlink_to("/proc/self/mem")  # this file can be opened, but reading it fails
    # the unreadable files are sent in different requests
    paths = [PHOTOS[0], broken, *PHOTOS[1:3], unreadable, *PHOTOS]
    separate = {answer.path: answer.outputs["logits"] for answer in client.send(PHOTOS, url=address(demo, "http"))}
    assert not np.array_equal(*[separate[photo] for photo in PHOTOS[:2]])
    progress = []
    answers = list(
        client.send(
            paths,
            url=address(demo, protocol),
            protocol=protocol,
            batch=batch,
            on_progress=lambda *now: progress.append(now),
        )
    )
    assert [answer.path for answer in answers] == paths
    assert progress == [(done, len(paths)) for done in range(len(paths) + 1)]
    errors = {answer.path: answer.error for answer in answers if answer.error}
    assert errors == {broken: f"in ensemble 'ensemble', {NOT_AN_IMAGE}", unreadable: "Input/output error"}
    for answer in answers:
        assert set(answer.outputs) == (set() if answer.error else {"logits"})
        assert answer.error or (
            np.array_equal(answer.outputs["logits"], separate[answer.path]) and answer.latency_ms > 0
        )


def run_example(name, server, *arguments, cwd, is_alone=False):
    """Run an example in a different folder. With ``is_alone``, run it in a separate process, as users do."""
    url = server["grpc" if name.startswith("grpc") else "http"]
    if name.endswith(".py") and not is_alone:
        return run_program(EXAMPLES / name, "--url", url, *arguments, cwd=cwd)
    if name.endswith(".sh") and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = (
        ["/bin/sh", EXAMPLES / name] if name.endswith(".sh") else [sys.executable, "-I", EXAMPLES / name, "--url", url]
    )
    return subprocess.run(
        [*command, *arguments], cwd=cwd, env={**os.environ, "HOST": url}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


@pytest.fixture
def short_folder():
    """Return a folder with a short path. PyTriton creates a socket in it, whose path may have at most 107
    characters.
    """
    with TemporaryDirectory(prefix="pt-") as folder:
        yield folder


@pytest.fixture
def example(demo, tmp_path):
    server = {protocol: address(demo, protocol) for protocol in ("http", "grpc")}
    return lambda name, *arguments: run_example(name, server, *arguments, cwd=tmp_path)


def test_curl_prints_the_five_best_classes(example):
    done = example("curl.sh")
    assert (done.returncode, done.stderr) == (0, "")
    title, *classes = done.stdout.splitlines()
    assert title == f"{EXAMPLES}/images/flower.jpg"
    assert len(classes) == 5
    assert re.fullmatch(r"    logits     7\.4\d\d\d  class 985  daisy", classes[0])
    assert all(re.fullmatch(r"    logits +\d+\.\d{4}  class +\d+  [a-z ]+", line) for line in classes)


def test_curl_names_unreadable_files(example, tmp_path):
    for photo in ("gone.jpg", tmp_path):
        done = example("curl.sh", photo)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"curl.sh: cannot read {photo}\n")


def test_http_one_image_prints_the_five_best_classes_of_each_photo(example):
    done = example("http_one_image.py")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * 6
    assert lines[1].endswith("  class 698  palace")
    assert lines[7].endswith("  class 985  daisy")


def test_grpc_batch_classifies_eight_sizes_in_one_request(example):
    done = example("grpc_batch.py")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:8]] == [photo.name for photo in sorted(PHOTOS)]
    assert {line.split()[0] for line in lines if "class 985  daisy" in line} >= {"flower.jpg"}
    assert lines[8].startswith("8 images in one request: ")


def test_grpc_async_many_shows_that_only_the_broken_image_fails(example):
    done = example("grpc_async_many.py", "--requests", "16")
    assert (done.returncode, done.stderr) == (0, "")
    summary, failure = done.stdout.splitlines()
    assert summary.startswith("15 of 16 requests succeeded in ")
    assert failure.startswith("request 8 failed: in ensemble 'ensemble', [TRUNCATED] image 1 of 1: ")


def test_shared_memory_prints_the_tensor_and_leaves_no_region(example):
    done = example("shared_memory.py")
    assert (done.returncode, done.stderr) == (0, "")
    sizes, tensor = done.stdout.splitlines()
    assert sizes == "china.jpg: 196,657 bytes in, 602,112 bytes out"
    assert tensor.startswith("tensor (1, 3, 224, 224) float32: -0.9")
    assert not regions_left()


@pytest.mark.parametrize("name", ["curl.sh", "http_one_image.py", "grpc_batch.py", "shared_memory.py"])
def test_an_example_fails_with_the_servers_message_for_a_broken_photo(example, broken, name):
    done = example(name, broken)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert NOT_AN_IMAGE in done.stderr
    assert not regions_left()


@pytest.mark.parametrize(
    "name",
    ["curl.sh", "http_one_image.py", "grpc_batch.py", "grpc_async_many.py", "shared_memory.py", "detect.py", "clip.py"],
)
def test_an_example_without_a_server_fails_with_a_message(name, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"127.0.0.1:{unused.getsockname()[1]}"
    photo = [PHOTOS[0]] if name in ("detect.py", "clip.py") else []  # other examples contain their own images
    done = run_example(name, {"http": url, "grpc": url}, *photo, cwd=tmp_path, is_alone=True)
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"{name}: ")
    assert "Connection refused" in last or last == f"curl.sh: check that pixprep serve is running on {url}"


@pytest.mark.parametrize("name", ["http_one_image.py", "shared_memory.py"])
def test_an_example_that_connects_to_the_grpc_port_names_the_http_port(demo, name, tmp_path):
    done = run_example(name, {"http": address(demo, "grpc"), "grpc": ""}, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{name}: ")
    assert done.stderr.endswith(": check that `pixprep serve` is running and --url is its HTTP port\n")


def test_pytriton_server_returns_the_engines_tensors_and_image_errors(demo_repository, tmp_path, short_folder):
    pipeline = demo_repository / "preprocess" / "1" / "pipeline.json"
    ports = check_ports("127.0.0.1", {"http": 0, "grpc": 0, "metrics": 0})
    options = [word for name, port in ports.items() for word in (f"--{name}-port", str(port))]
    images = [photo.read_bytes() for photo in PHOTOS]
    images[1:1] = [b"not an image"]
    expected = pp.Engine(pp.load(pipeline)).run_batch(images)
    log = tmp_path / "log"
    environment = environment_of(find_wheel()) | {"PYTRITON_HOME": short_folder}
    command = [sys.executable, "-I", EXAMPLES / "pytriton_server.py", pipeline, *options]
    with log.open("w") as file, subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=file) as server:
        try:
            url = f"127.0.0.1:{ports['http']}"
            with tritonclient.http.InferenceServerClient(url) as triton:
                wait_until(lambda: is_ready(triton) or server.poll() is not None, log.read_text, within_s=120)
                image = tritonclient.http.InferInput("image", [len(images), 1], "BYTES")
                image.set_data_from_numpy(np.array([[each] for each in images], dtype=np.object_))
                answer = triton.infer("preprocess", [image])
        finally:
            server.terminate()
            assert server.wait(120) == 0, log.read_text()
    np.testing.assert_array_equal(answer.as_numpy("tensor"), expected.outputs["tensor"])
    assert [text.decode() for (text,) in answer.as_numpy("status")] == [str(error or "") for error in expected.errors]
    assert len(set(answer.as_numpy("tensor").mean(axis=(1, 2, 3)))) == len(images)


def is_ready(triton):
    try:
        return triton.is_model_ready("preprocess")
    except ConnectionError:
        return False


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_needs_only_tritonclient_and_numpy(path):
    text = path.read_text()
    imported = set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE))
    others = {
        "pytriton_server.py": {"numpy", "pytriton", "pixprep"},
        "detect.py": {"numpy", "tritonclient", "PIL", "pixprep"},
        "spark_batch.py": {"pandas", "pixprep", "pyspark"},
    }
    assert imported - sys.stdlib_module_names == others.get(path.name, {"numpy", "tritonclient"})
    line_limits = {
        "detect.py": 85,
        "shared_memory.py": 80,
    }  # limits of lines; these examples also draw boxes or clean up
    assert len(text.splitlines()) <= line_limits.get(path.name, 70)
