"""Tests of the supervision by `pixprep serve`: it restarts dead processes, completes pending requests before a
shutdown, and removes everything that it created.
"""

import json
import mmap
import os
import re
import shutil
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from threading import Event

import numpy as np
import psutil
import pytest

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.serving.embedded.processes import OF_MODEL, OF_TRITON, Waits
from pixprep.serving.embedded.server import Server, State
from pixprep.serving.embedded.stubs import Stub, stubs
from pixprep.serving.embedded.supervisor import SILENCES, look_after
from pixprep.serving.embedded.wheel import find_wheel
from pixprep.serving.repository import check
from support import serving
from support.serving import (
    GOOD,
    LARGE,
    PHOTO,
    PIPELINE,
    TIMEOUT_S,
    Clients,
    ask_http,
    is_alive,
    post,
    wait_until,
    write_model,
    write_repository,
)

pytestmark = pytest.mark.server

PROBE_S = 0.8  # probe period; the default of 2 seconds would make these tests slow
HURRIED = (
    f"from pixprep.serving.embedded import control, supervisor as care; control._LIVE_S = care.PROBE_S = {PROBE_S}"
)
Serve = partial(serving.Serve, program=f"{HURRIED}; care.DISK_S = 0.4; {serving.PROGRAM}")
DOWN = r"^pixprep: model {} is down: 1 of its 1 processes {}; it is reloaded( in (\d+) s)?$"
BACK = r"^pixprep: model {} is ready again after \d+\.\d s$"


def start_server(folder):
    """Start a server. Its folder contains the repository ``models``, and ``tmp`` for its temporary files."""
    (folder / "tmp").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder / "tmp"))
        return Serve(write_repository(folder / "models"), triton_log=folder / "triton.log")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("supervised")


@pytest.fixture(scope="module")
def serve(folder):
    with start_server(folder) as serve:
        yield serve


@pytest.fixture
def own_server(tmp_path):
    """Return a server that only this test uses."""
    with start_server(tmp_path) as serve:
        yield serve


@pytest.fixture
def clients(serve, oracle):
    with Clients(serve, oracle) as clients:
        yield clients


def kill(serve, model, number=signal.SIGKILL):
    """Send a signal to the model's only stub process. Return the number of lines in the log before the signal."""
    after = len(serve.log)
    os.kill(serve.stub(model).pid, number)
    return after


def is_down_and_back(serve, model, after, *, how):
    """Wait until the log reports that the model is down, and then that it is ready again."""
    serve.wait_for(DOWN.format(model, how), after=after)
    serve.wait_for(BACK.format(model), after=after)


def assert_one_answer_each(clients):
    assert clients.counts["lost"] == clients.counts["wrong"] == 0, clients.notes


@pytest.mark.parametrize(("number", "how"), [(signal.SIGKILL, "died"), (signal.SIGSTOP, "were stopped")])
def test_preprocess_recovers_after_its_process_dies_in_the_middle_of_a_batch(serve, clients, number, how):
    classifier = serve.stub("classifier")
    with clients.load(4, images=[LARGE]):
        wait_until(lambda: clients.counts["right"] >= 4)
        after = kill(serve, "preprocess", number)
        is_down_and_back(serve, "preprocess", after, how=how)
        rights = clients.counts["right"]
        wait_until(lambda: clients.counts["right"] >= rights + 4, lambda: clients.notes)
    assert_one_answer_each(clients)
    assert clients.counts["error"] >= 1
    http, grpc = {"500", "404", "400", "503"}, {"INTERNAL", "NOT_FOUND", "INVALID_ARGUMENT", "UNAVAILABLE"}
    assert set(clients.codes) <= http | grpc
    assert serve.stub("classifier") == classifier


@pytest.mark.parametrize(("number", "how"), [(signal.SIGKILL, "died"), (signal.SIGSTOP, "were stopped")])
def test_while_a_classifier_is_restarted_preprocess_responds_to_every_request(serve, clients, number, how):
    preprocess = serve.stub("preprocess")
    with Clients(serve, clients.oracle) as others, clients.load(2, models=["ensemble"]):
        with others.load(2, models=["preprocess"]):
            wait_until(lambda: clients.counts["right"] >= 4)
            after = kill(serve, "classifier", number)
            is_down_and_back(serve, "classifier", after, how=how)
        rights = clients.counts["right"]
        wait_until(lambda: clients.counts["right"] >= rights + 4, lambda: clients.notes)
    assert_one_answer_each(clients)
    assert clients.counts["error"] >= 1
    assert others.counts["right"] == others.sent > 4, others.notes
    assert serve.stub("preprocess") == preprocess


@pytest.mark.slow(reason="half a minute of supervision's waits")
def test_an_idle_model_that_dies_repeatedly_is_restarted_with_growing_delays(own_server, oracle):
    waits = []
    with Clients(own_server, oracle) as clients:
        for _ in range(3):
            after = kill(own_server, "classifier")
            waits.append(int(own_server.wait_for(DOWN.format("classifier", "died"), after=after)[2] or 0))
            own_server.wait_for(BACK.format("classifier"), after=after)
            for image in GOOD:
                clients.ask([image], model="ensemble")
        assert clients.counts["right"] == clients.sent, clients.notes
    assert waits == [0, 1, 2]


def test_both_models_and_their_ensemble_recover_together(own_server, oracle):
    after = len(own_server.log)
    for model in ("preprocess", "classifier"):
        kill(own_server, model)
    for model in ("preprocess", "classifier"):
        own_server.wait_for(BACK.format(model), after=after)
    with Clients(own_server, oracle) as clients:
        clients.recover()


@pytest.mark.slow(reason="half a minute of supervision's waits")
def test_a_model_that_no_longer_loads_reports_why_and_recovers_after_a_repair(own_server, oracle, tmp_path):
    """The test edits the served copy directly, which users do not do."""
    (path,) = (tmp_path / "tmp").glob("pixprep-*/models/preprocess/1/pipeline.json")
    text = path.read_text()
    path.write_text(text.replace('"resize"', '"rezise"'))
    after = kill(own_server, "preprocess")
    own_server.wait_for(
        r'^pixprep: model preprocess does not load: pipeline.json: ops\[1\] "rezise": no such op; '
        r'did you mean "resize"\?; again in 1 s$',
        after=after,
    )
    with Clients(own_server, oracle) as clients:
        assert clients.ask([PHOTO]) == clients.ask([PHOTO], model="ensemble") == "error", clients.notes
        path.write_text(text)
        own_server.wait_for(BACK.format("preprocess"), after=after)
        clients.recover()
        assert_one_answer_each(clients)


@pytest.mark.slow(reason="half a minute of supervision's waits")
def test_a_busy_model_is_not_mistaken_for_a_hung_one(serve, clients):
    """Sixteen clients send four images of 12 megapixels each, so that a response takes longer than the timeout of a
    probe.
    """
    after, until = len(serve.log), time.monotonic() + 8

    def work(_):
        while time.monotonic() < until:
            clients.ask([LARGE] * 4)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert serve.log[after:] == []
    assert_one_answer_each(clients)
    assert clients.counts["right"] >= 16
    assert set(clients.codes) <= {"503"}  # some requests were queued for more than 2 s


def test_more_connections_than_the_soft_limit_are_served(tmp_path, oracle):
    limited = ("/bin/sh", "-c", 'ulimit -Sn 400 && exec "$@"', "sh")
    models = write_repository(tmp_path / "models")
    with (
        Serve(models, triton_log=tmp_path / "triton.log", before=limited) as serve,
        Clients(serve, oracle) as clients,
        ExitStack() as stack,
    ):
        triton = serve.triton.pid
        for _ in range(600):
            stack.enter_context(socket.create_connection(serve.address.split(":"), TIMEOUT_S))
        until = time.monotonic() + SILENCES * PROBE_S + 3
        while time.monotonic() < until:
            clients.ask([PHOTO])
        assert clients.counts["right"] == clients.sent > 10, clients.notes
        assert (serve.log, serve.triton.pid) == ([], triton)


UNHEALTHY = """\
import threading
from pathlib import Path
from pixprep.serving.triton.model import TritonPythonModel as Model, pb_utils
class TritonPythonModel(Model):
    def execute(self, requests):
        if Path({path!r}).exists():
            {symptom}
        return super().execute(requests)
"""
FAILS = """\
error = pb_utils.TritonError("sick", pb_utils.TritonError.INTERNAL)
            return [pb_utils.InferenceResponse(error=error) for _ in requests]"""
HANGS = pytest.param(
    "threading.Event().wait()", marks=pytest.mark.slow(reason="half a minute of supervision's waits"), id="hangs"
)


@pytest.mark.parametrize("symptom", [HANGS, pytest.param(FAILS, id="fails")])
def test_a_model_that_hangs_or_fails_every_request_is_killed_and_recovers(tmp_path, oracle, symptom):
    flag = tmp_path / "ill"
    files = {"model.py": UNHEALTHY.format(path=str(flag), symptom=symptom), "pipeline.json": PIPELINE.to_json()}
    write_model(tmp_path / "models", "preprocess", 'backend: "python"\n', files)
    with (
        Serve(tmp_path / "models", triton_log=tmp_path / "triton.log") as serve,
        Clients(serve, oracle) as clients,
        ThreadPoolExecutor(1) as pool,
    ):
        clients.recover(models=["preprocess"])
        before = serve.stub("preprocess")
        flag.touch()
        asked = pool.submit(clients.ask, [PHOTO])
        serve.wait_for(
            "^pixprep: model preprocess is down: it did not respond to 2 probe images in a row; it is reloaded$"
        )
        flag.unlink()
        serve.wait_for(BACK.format("preprocess"))
        assert asked.result() == "error", clients.notes
        clients.recover(models=["preprocess"])
        assert not before.state  # the model has a new process
        assert_one_answer_each(clients)


@pytest.mark.slow(reason="half a minute of supervision's waits")
def test_a_dead_instance_of_two_is_replaced_while_the_other_serves(tmp_path, oracle):
    with (
        Serve(write_repository(tmp_path / "models", instances=2), triton_log=tmp_path / "triton.log") as serve,
        Clients(serve, oracle) as clients,
        clients.load(4, models=["preprocess"]) as ended,
    ):
        old = serve.stubs("preprocess")
        assert len(old) == 2
        os.kill(old[0].pid, signal.SIGKILL)
        serve.wait_for(r"^pixprep: model preprocess is down: 1 of its 2 processes died; it is reloaded$")
        rights = clients.counts["right"]
        serve.wait_for(BACK.format("preprocess"), within_s=120)
        assert clients.counts["right"] > rights + 4
        assert len(set(serve.stubs("preprocess")) - set(old)) == 2
        wait_until(lambda: clients.counts["right"] > rights + 100)
        errors = clients.counts["error"]
        wait_until(lambda: clients.counts["right"] > rights + 200)
        ended.set()
        assert_one_answer_each(clients)
        assert clients.counts["error"] == errors  # Triton no longer uses the dead process
        assert set(clients.codes) <= {"500", "INTERNAL"}


@pytest.mark.slow(reason="half a minute of supervision's waits")
def test_a_request_that_ends_a_process_costs_few_threads_and_does_not_affect_other_models(tmp_path, oracle):
    """Triton computes the size of 64 rows of 2^58 bytes modulo 2^64, which is 0. NumPy rejects the array as too
    large.
    """
    models = write_repository(tmp_path / "models")
    dali = 'backend: "pixprep"\ninput { name: "image" data_type: TYPE_UINT8 dims: [ -1 ] }\n'
    write_model(models, "dali", dali, {"pipeline.json": PIPELINE.to_json()})
    image = {"name": "image", "shape": [64, 2**58], "datatype": "UINT8", "parameters": {"binary_data_size": 0}}
    text = json.dumps({"inputs": [image]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    with (
        Serve(models, triton_log=tmp_path / "triton.log") as serve,
        Clients(serve, oracle) as clients,
        clients.load(2, images=GOOD),
    ):
        wait_until(lambda: clients.counts["right"] >= 100, lambda: clients.notes)
        before = serve.triton.num_threads()
        for _ in range(4):
            after = len(serve.log)
            assert post(serve.address, "/v2/models/dali/infer", headers, text)[0] == 500
            serve.wait_for(BACK.format("dali"), after=after)
        assert serve.triton.num_threads() - before < 4 * 12  # it would be 4 * 36 with 32 additional threads per process
        assert set(clients.counts) == {"right"}, (clients.codes, clients.notes)


SAME = """\
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", values)]) for values in inputs]
"""


def test_a_repository_without_a_pixprep_model_is_also_supervised(tmp_path):
    config = 'backend: "python"\ninput { name: "x" data_type: TYPE_FP32 dims: [ 1 ] }\n'
    config += 'output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }\n'
    write_model(tmp_path / "models", "same", config, {"model.py": SAME})
    body = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.5]}]}).encode()
    with Serve(tmp_path / "models", triton_log=tmp_path / "triton.log") as serve:
        after = kill(serve, "same")
        serve.wait_for(BACK.format("same"), after=after)
        status, _, answer = post(serve.address, "/v2/models/same/infer", {}, body)
    assert (status, json.loads(answer)["outputs"][0]["data"]) == (200, [1.5])


@pytest.mark.parametrize(
    ("waits", "expected"), [(OF_MODEL, [0, 1, 2, 2, 2, 5, 5, 5]), (OF_TRITON, [0, 1, 2, 3, 3, 3, 3, 3, 3, 3, None])]
)
def test_the_delays_grow_and_end_only_for_triton_and_are_reset_after_a_quiet_period(waits, expected):
    waits = Waits(*waits)
    assert [waits.count(ran_s=5) for _ in expected] == expected
    assert [waits.count(ran_s=11), waits.count(ran_s=0)] == [0, 1]


# Tests of models that never finish loading and restarts of Triton itself.

RESTARTED = r"^pixprep: {}; it is restarted( in (\d+) s)?$"
ALL_BACK = r"^pixprep: all models are ready again after \d+\.\d s$"


@pytest.mark.slow(reason="half a minute of supervision's waits")
def test_a_process_that_dies_during_a_reload_recovers(own_server, oracle):
    with Clients(own_server, oracle, is_closing=True) as clients:
        for delay_s in (0.1, 0.4, 0.8):
            after, old = len(own_server.log), own_server.stubs("preprocess")
            kill(own_server, "preprocess")
            (new,) = wait_until(lambda old=old: set(own_server.stubs("preprocess")) - set(old))
            time.sleep(delay_s)
            new.kill()
            own_server.wait_for(rf"({BACK.format('preprocess')})|({ALL_BACK})", after=after)
            clients.recover()
        assert_one_answer_each(clients)


def test_a_triton_that_dies_or_hangs_is_restarted_on_the_same_ports(serve, oracle):
    starts = serve.triton_log.read_text().count("Started HTTPService")
    with Clients(serve, oracle, is_closing=True) as clients:
        for number, why in (
            (signal.SIGKILL, r"was ended by signal 9 \(SIGKILL: killed, or out of memory\)"),
            (signal.SIGSTOP, "did not respond to 5 HTTP probes in a row"),
        ):
            old, after = serve.triton, len(serve.log)
            family = [old, *old.children(recursive=True)]
            old.send_signal(number)
            serve.wait_for(RESTARTED.format(f"Triton {why}"), after=after)
            serve.wait_for(ALL_BACK, after=after)
            assert not list(filter(is_alive, family))
            clients.recover()
        assert clients.counts["wrong"] == 0, clients.notes
        assert serve.triton_log.read_text().count("Started HTTPService") == starts + 2
        after = kill(serve, "preprocess")  # the new process is also supervised
        serve.wait_for(BACK.format("preprocess"), after=after)
        clients.recover()


def test_a_triton_that_dies_too_often_is_given_up(tmp_path):
    models = write_repository(tmp_path / "models")
    log = tmp_path / "triton.log"
    with Server(models, http_port=0, grpc_port=0, metrics_port=0, grace_s=0, log_file=log) as server:
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(pp.PixprepError) as caught:
            look_after(server, Event(), waits=Waits(None))
    assert str(caught.value) == (
        "Triton was ended by signal 9 (SIGKILL: killed, or out of memory), after 0 restarts in a row; Triton's log: "
        f"{log}"
    )


# Tests of changes on disk.


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


CHANGED = r"^pixprep: model {} has changed on disk: restart `pixprep serve` to deploy the change, or use --watch$"


def test_changes_on_disk_are_not_loaded_by_a_restart(serve, oracle, folder):
    models, begin = folder / "models", len(serve.log)
    with Clients(serve, oracle, is_closing=True) as clients:
        clients.recover()
        edit(models / "preprocess" / "1" / "pipeline.json", "0.485", "0.585")
        edit(models / "classifier" / "1" / "model.py", "class TritonPythonModel", "class Broken")
        for model in ("preprocess", "classifier"):
            serve.wait_for(CHANGED.format(model), after=begin)
            after = kill(serve, model)
            serve.wait_for(BACK.format(model), after=after)
            clients.recover()
        edit(models / "preprocess" / "1" / "pipeline.json", '"resize"', '"rezise"')
        after = len(serve.log)
        serve.triton.kill()
        serve.wait_for(ALL_BACK, after=after)
        clients.recover()
        assert clients.counts["wrong"] == 0, clients.notes
    assert sum("changed on disk" in line for line in serve.log[begin:]) <= 3  # the log reports each change at most once


def test_the_guard_that_ends_triton_is_restarted_when_it_is_killed(serve, folder):
    """This must be the last test that uses this server, because it stops the server."""
    guard = next(child for child in psutil.Process(serve.process.pid).children() if child.name() == "sh")
    guard.kill()
    serve.wait_for(
        r"^pixprep: the guard process, which ends Triton if `serve` is killed, was ended by .*; it was restarted"
    )
    serve.triton.suspend()  # only SIGKILL ends a stopped process
    serve.process.kill()
    wait_until(lambda: not serve.left() and not list((folder / "tmp").iterdir()), serve.left)


def test_watch_deploys_a_valid_edit_and_rejects_a_broken_one(tmp_path, oracle):
    models = write_repository(tmp_path / "models")
    pipeline, classifier = models / "preprocess" / "1" / "pipeline.json", models / "classifier" / "1" / "model.py"
    hashed = "[0-9a-f]{12}"
    with (
        Serve(models, "--watch", triton_log=tmp_path / "triton.log") as serve,
        Clients(serve, oracle, is_closing=True) as clients,
        clients.load(2) as ended,
    ):
        files = next(line for line in serve.process.stdout if line.startswith("files  "))
        first = dict(re.findall(rf"(\S+) ({hashed})", files))
        edit(classifier, "class TritonPythonModel", "class Broken")
        stays = f"^pixprep: model classifier still serves {first['classifier']}"
        no_class = serve.wait_for(rf"{stays}: the version on disk \(({hashed})\) was not deployed: .+")
        assert no_class[1] != first["classifier"]
        edit(pipeline, '"resize"', '"rezise"')
        serve.wait_for(
            r"^pixprep: model preprocess still serves .* was not deployed: .*no such op; did you mean \"resize\"\?$"
        )
        edit(pipeline, '"rezise"', '"resize"')
        edit(classifier, "class Broken", "class TritonPythonModel")
        (models / "preprocess" / "warmup").mkdir()
        (models / "preprocess" / "warmup" / "photo").write_bytes(bytes(4))
        config = models / "preprocess" / "config.pbtxt"
        text = config.read_text()
        entry = 'key: "image" value { data_type: TYPE_STRING dims: [ 1 ] input_data_file: "photo" }'
        config.write_text(f'{text}model_warmup {{ name: "w" batch_size: 1 inputs {{ {entry} }} }}\n')
        serve.wait_for(r"^pixprep: model preprocess still serves .*: preprocess/config.pbtxt: model_warmup .*EMPTY")
        config.write_text(text)
        shutil.rmtree(models / "preprocess" / "warmup")
        (models / "classifier" / "1" / "more.py").symlink_to(tmp_path / "triton.log")
        serve.wait_for(
            f"{stays}: .* not deployed: classifier/1/more.py: links to a path outside the repository: replace it "
            "with a copy$"
        )
        (models / "classifier" / "1" / "more.py").unlink()
        rights = clients.counts["right"]
        wait_until(lambda: clients.counts["right"] > rights + 20)
        ended.set()
        assert clients.counts["right"] == clients.sent, clients.notes
        edit(classifier, "places = set()", "places = set()  # edited")
        edit(pipeline, "0.485", "0.585")
        deployed = rf"now serves ({hashed}) from disk instead of"
        serve.wait_for(f"^pixprep: model classifier {deployed} {first['classifier']}$")
        new = serve.wait_for(f"^pixprep: model preprocess {deployed} {first['preprocess']}$")
        other = pp.Pipeline.load(pipeline)
        with pp.Engine(other) as engine:
            (expected,) = engine.run([PHOTO])
        assert np.array_equal(ask_http(serve.address, "preprocess", [PHOTO])[0], expected)
        wait_until(lambda: len(serve.stubs("preprocess")) == 1)  # Triton has unloaded the model's other copy
        after = kill(serve, "preprocess")
        serve.wait_for(BACK.format("preprocess"), after=after)
        assert np.array_equal(ask_http(serve.address, "preprocess", [PHOTO])[0], expected)
        assert new[1] not in first.values()


def test_triton_is_restarted_while_an_edit_is_read_which_is_deployed_later(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("pixprep.serving.embedded.supervisor.DISK_S", 0.4)
    models = write_repository(tmp_path / "models")
    reading, may_read, stopping = Event(), Event(), Event()

    def slow_check(folder):
        if folder == models:  # only the repository, not its copy
            reading.set()
            assert may_read.wait(TIMEOUT_S)
        return check(folder)

    def said(pattern):
        return wait_until(lambda: re.search(pattern, caplog.text), lambda: caplog.text)

    with Server(models, http_port=0, grpc_port=0, metrics_port=0, grace_s=0) as server, ThreadPoolExecutor(1) as pool:
        care = pool.submit(look_after, server, stopping, watch=slow_check)
        edit(models / "preprocess" / "1" / "pipeline.json", "0.485", "0.585")
        assert reading.wait(TIMEOUT_S)
        os.kill(server.pid, signal.SIGKILL)
        said("all models are ready again after")
        assert "now serves" not in caplog.text
        may_read.set()
        said("model preprocess now serves [0-9a-f]{12}")
        assert server.state is State.SERVING
        stopping.set()
        care.result()
    assert server.state is State.ENDED


def test_a_failed_copy_is_named_and_removed_and_the_next_edit_is_deployed(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    models = write_repository(tmp_path / "models")
    huge = models / "preprocess" / "1" / "huge"
    # the limit is 32 MiB per file, in blocks of 512 bytes
    limited = ("/bin/sh", "-c", 'ulimit -f 65536 && exec "$@"', "sh")
    with Serve(models, "--watch", triton_log=tmp_path / "triton.log", before=limited) as serve:
        huge.write_bytes(b"x" * (33 << 20))
        serve.wait_for(f"^pixprep: model preprocess still serves .* on disk was not deployed: {huge}: File too large$")
        (folder,) = (tmp_path / "tmp").glob("pixprep-*")
        assert sorted(path.name for path in folder.iterdir()) == ["backends", "cwd", "models"]
        huge.unlink()
        edit(models / "preprocess" / "1" / "pipeline.json", "0.485", "0.585")
        serve.wait_for("^pixprep: model preprocess now serves [0-9a-f]{12} from disk instead of [0-9a-f]{12}$")


# Tests of ``pixprep health``.


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Run an unsupervised server with response caches, and with a model that rejects the image of the health probe."""
    models = write_repository(tmp_path_factory.mktemp("alone") / "models")
    large = pp.Pipeline([pp.decode(), pp.crop(top=0, left=0, height=600, width=600), pp.tensor(dtype="uint8")])
    write_model(models, "large", 'backend: "pixprep"\n', {"pipeline.json": large.to_json()})
    for model in ("classifier", "ensemble"):
        with (models / model / "config.pbtxt").open("a") as config:
            config.write("response_cache { enable: true }\n")
    cache = ["--cache-config=local,size=67108864", f"--cache-directory={find_wheel().server.parents[1] / 'caches'}"]
    with Server(models, http_port=0, grpc_port=0, metrics_port=0, grace_s=0, extra_args=cache) as server:
        yield server


@pytest.fixture
def health(alone, capsys):
    """Return a function that runs `pixprep health` and returns its exit code, stdout and stderr."""

    def run(*arguments, url=None, protocol="http"):
        default = alone.http_url.removeprefix("http://") if protocol == "http" else alone.grpc_url
        words = ["health", "--protocol", protocol, "--url", url or default, *arguments]
        return (main(words), *capsys.readouterr())

    return run


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("model", ["ensemble", "preprocess", "large"])
def test_health_is_0_for_a_model_that_responds_or_rejects_the_image_for_its_size(health, model, protocol):
    code, out, err = health("--model", model, protocol=protocol)
    assert (code, err) == (0, "")
    assert re.fullmatch(rf"ok  {model}  \d+\.\d ms\n", out)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_health_meets_its_deadline_if_a_model_hangs_and_is_1_if_its_process_is_dead(alone, health, protocol):
    """The test kills the classifier's process, which no other test needs. Triton reports this model as ready the whole
    time.
    """
    (stub,) = (stub for stub in stubs(alone.pid) if stub.model == "classifier") if protocol == "http" else (None,)
    dead = "pixprep: in ensemble 'ensemble', Stub process 'classifier_0_0' is not healthy.\n"
    if stub:
        assert health()[0] == 0  # the response comes from the cache
        os.kill(stub.pid, signal.SIGSTOP)
        code, out, err = health("--timeout", "1")
        assert (code, out) == (1, "")
        # Triton reports the dead process after about the same time
        assert err in ("pixprep: no response within 1 s\n", dead)
        os.kill(stub.pid, signal.SIGKILL)
    code, out, err = health(protocol=protocol)
    assert (code, out, err) == (1, "", dead)
    assert post(alone.http_url.removeprefix("http://"), "/v2/health/ready", {}, b"")[0] in (200, 400, 405)


# Tests that the resources of a dead stub are freed.


def test_memory_of_a_stub_that_triton_keeps_mapped_is_freed(tmp_path):
    region = tmp_path / "region"
    region.write_bytes(b"x" * (1 << 20))
    with region.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        Stub(pid=2**22 + 1, model="gone", region=region).clear()
        assert mapped[:8] == bytes(8)
        assert os.fstat(file.fileno()).st_blocks == 0
    assert not region.exists()
