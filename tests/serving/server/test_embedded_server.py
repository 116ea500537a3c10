"""Tests that the embedded Triton server, as a process, starts completely and removes all its processes and files when
it stops.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

import pixprep as pp
from pixprep.serving.embedded.server import Server
from pixprep.serving.embedded.stubs import stubs
from pixprep.serving.embedded.wheel import ENVIRONMENT_PREFIX, SHARED_MEMORY
from support.serving import wait_until, write_model, write_pipeline

pytestmark = pytest.mark.server

PORTS = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
CONFIG = """\
backend: "python"
input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
"""
DOUBLE = """\
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", self.x(r) * 2)]) for r in requests]
    def x(self, request):
        return pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
"""
INITIALIZE = """\
class TritonPythonModel:
    def initialize(self, args):
        {}
    def execute(self, requests):
        return []
"""
# Program that runs a server until it is killed. It prints Triton's process id, shared memory prefix and folder.
PARENT = """\
import sys
from contextlib import suppress
from pathlib import Path
from pixprep.serving.embedded.server import Server
server = Server(Path(sys.argv[1]), http_port=0, grpc_port=0, metrics_port=0, log_file=Path(sys.argv[2]))
server.start()
print(server.pid, server._prefix, server._processes.folder, flush=True)
server.poll(within_s=600)
"""


@pytest.fixture
def repository(tmp_path):
    """Return a repository whose path contains a space. Triton splits a model's command line at spaces, and would wait
    forever.
    """
    write_pipeline(tmp_path / "my models", "pre.pixprep", pp.presets.imagenet())
    return tmp_path / "my models"


@pytest.fixture
def double(tmp_path):
    """Return a repository with a small model that loads quickly."""
    write_model(tmp_path / "models", "double", CONFIG, {"model.py": DOUBLE})
    return tmp_path / "models"


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """Run a server with one model, in an environment whose HTTP proxy is unreachable."""
    models = tmp_path_factory.mktemp("models")
    write_pipeline(models, "pre.pixprep", pp.presets.imagenet())
    with pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            patch.setenv(name, "http://127.0.0.1:9")
        server = Server(models, **PORTS, host="localhost")
        server.start()
    yield server
    server.stop(timeout_s=0)


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=120) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def family(pid):
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def prefix_of(pid):
    """Return the shared memory prefix of the Triton server that this process started, or an empty string before the
    start.
    """
    for child in psutil.Process(pid).children():
        # a child may exit meanwhile, because the first child only tests whether a stub starts
        with suppress(psutil.NoSuchProcess):
            if found := re.search(r"shm-region-prefix-name=(\w+)", " ".join(child.cmdline())):
                return found[1]
    return ""


def folders_of(server):
    return set(server._processes.folder.glob(f"cwd/{ENVIRONMENT_PREFIX}*")) if server._processes else set()


def test_stopping_leaves_no_process_no_shared_memory_and_no_file(repository):
    server, seen = Server(repository, **PORTS), []
    server.start(on_progress=lambda *numbers: seen.append(numbers))
    try:
        processes, log = family(server.pid), server.log_file
        assert len(processes) >= 2  # these are Triton and its Python stub
        regions = list(SHARED_MEMORY.glob(f"{server._prefix}*"))
        assert regions
    finally:
        server.stop()
    assert (seen[0], seen[-1]) == ((0, 1), (1, 1))
    assert not psutil.wait_procs(processes, timeout=120)[1]
    assert not [region for region in regions if region.exists()]
    assert not log.exists()


def test_a_killed_tritons_shared_memory_is_removed_and_its_log_kept(double):
    server = Server(double, **PORTS)
    server.start()
    os.kill(server.pid, signal.SIGKILL)
    assert server.poll(within_s=120) == -signal.SIGKILL
    prefix = server._prefix
    assert list(SHARED_MEMORY.glob(f"{prefix}*"))
    server.stop()
    assert not list(SHARED_MEMORY.glob(f"{prefix}*"))
    assert server.log_file.parent == Path(tempfile.gettempdir())
    assert "Started HTTPService" in server.log_file.read_text()
    server.log_file.unlink()


@pytest.mark.parametrize("killed_first", [[], ["sh"], ["sh", "tritonserver"]])
def test_triton_does_not_outlive_a_killed_parent_whatever_was_killed_before(double, tmp_path, killed_first):
    command = [sys.executable, "-c", PARENT, str(double), str(tmp_path / "triton.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, prefix, folder = parent.stdout.readline().split()
        processes, children = family(int(pid)), {child.name(): child for child in psutil.Process(parent.pid).children()}
        assert list(SHARED_MEMORY.glob(f"{prefix}*"))
        for name in killed_first:
            children[name].kill()
        parent.kill()
    assert not psutil.wait_procs(processes, timeout=120)[1]
    if not killed_first:  # "sh" is the process that removes the shared memory and the folder
        wait_until(lambda: not list(SHARED_MEMORY.glob(f"{prefix}*")) and not Path(folder).exists())


def test_the_folders_of_a_killed_triton_are_removed_at_the_next_start(double, tmp_path):
    """Triton creates one folder per backend. They are in the server's folder, because /tmp may be read-only."""
    with Server(double, **PORTS, log_file=tmp_path / "log") as other_server, Server(double, **PORTS) as server:
        old, kept = folders_of(server), folders_of(other_server)
        assert len(old) == len(kept) == 1
        (next(iter(old)) / "unpacked").mkdir()
        os.kill(server.pid, signal.SIGKILL)
        assert server.poll(within_s=120) == -signal.SIGKILL
        assert folders_of(server) == old
        server.restart()
        assert len(folders_of(server)) == 1
        assert folders_of(server).isdisjoint(old)
        assert folders_of(other_server) == kept
    assert not any(path.exists() for path in old | kept)


def test_a_second_server_runs_in_parallel_and_restarts_on_the_same_ports(serving, repository):
    second = Server(repository, **PORTS)
    second.start()
    url = second.http_url
    second.stop(timeout_s=0)
    second.start()
    assert second.http_url == url
    for server in (serving, second):
        assert get(f"{server.http_url}/v2/models/pre.pixprep/ready") == 200
    prefix, processes = second._prefix, family(second.pid)
    second.stop(timeout_s=0)
    assert not psutil.wait_procs(processes, timeout=120)[1]
    assert not list(SHARED_MEMORY.glob(f"{prefix}*"))
    assert list(SHARED_MEMORY.glob(f"{serving._prefix}*"))
    assert get(f"{serving.http_url}/v2/models/pre.pixprep/ready") == 200


def test_ipv6_is_supported(double):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    server = Server(double, **PORTS, host="::1")
    server.start()
    try:
        assert server.http_url.startswith("http://[::1]:")
        assert get(f"{server.http_url}/v2/health/ready") == 200
        assert get(server.metrics_url) == 200
    finally:
        server.stop(timeout_s=0)


def test_another_server_on_the_port_is_not_mistaken_for_triton(tmp_path):
    """The test creates a race: the port is free when the server checks it, but in use when Triton opens it."""
    slow = INITIALIZE.format(f"import time; open({str(tmp_path / 'go')!r}, 'w'); time.sleep(2)")
    write_model(tmp_path / "models", "slow", CONFIG, {"model.py": slow})
    server = Server(tmp_path / "models", **PORTS, log_file=tmp_path / "triton.log")
    squatters = []

    def squat():
        wait_until((tmp_path / "go").exists)
        port = server._ports["http"]
        squatter = ThreadingHTTPServer(("127.0.0.1", port), AlwaysReady)
        squatters.append(squatter)
        squatter.serve_forever(poll_interval=0.05)

    with ThreadPoolExecutor(1) as pool:
        squatting = pool.submit(squat)
        try:
            with pytest.raises(pp.SetupError) as caught:
                server.start()
        finally:
            for squatter in squatters:
                squatter.shutdown()
                squatter.server_close()
        squatting.result()
    us = f"{Path('/proc/self/comm').read_text().strip()} (process {os.getpid()})"
    assert str(caught.value) == (
        f"port {server._ports['http']} is in use by {us}: stop that process, or choose a different --http-port"
    )


class AlwaysReady(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_failing_model_stops_the_start_and_its_log_is_kept(repository, tmp_path):
    path = repository / "pre.pixprep" / "1" / "pipeline.json"
    path.write_text(path.read_text().replace('"resize"', '"rezise"'))
    log = tmp_path / "triton.log"
    server = Server(repository, **PORTS, log_file=log)
    with pytest.raises(pp.PixprepError) as caught:
        server.start()
    assert str(caught.value) == (
        'model "pre.pixprep" does not load: pipeline.json: ops[1] "rezise": no such op; did you mean "resize"?\n'
        f"Triton's complete log: {log}"
    )
    assert not list(SHARED_MEMORY.glob(f"{server._prefix}*"))
    assert "model.py" in log.read_text()  # the log contains the complete traceback


AUTO_COMPLETE = """\
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        raise ValueError('output "y": is FP16')
    def execute(self, requests):
        return []
"""


def test_every_failing_model_is_one_line_with_its_cause(tmp_path):
    repository = tmp_path / "models"
    write_model(repository, "good", CONFIG, {"model.py": DOUBLE})
    write_model(repository, "auto", CONFIG, {"model.py": AUTO_COMPLETE})
    for name, end in {"crash": "os.abort()", "exit": "os._exit(3)"}.items():
        last = f"import os, sys, time; sys.stderr.write('{name} it is\\n'); sys.stderr.flush(); time.sleep(0.3); {end}"
        write_model(repository, name, CONFIG, {"model.py": INITIALIZE.format(last)})
    write_model(repository, "import", CONFIG, {"model.py": f"import no_such_module\n{DOUBLE}"})
    write_model(repository, "tensorrt", 'platform: "tensorrt_plan"\n', {"model.py": DOUBLE})
    log = tmp_path / "triton.log"
    with pytest.raises(pp.PixprepError) as caught:
        Server(repository, **PORTS, log_file=log).start()
    *lines, last = str(caught.value).splitlines()
    assert sorted(line for line in lines if line.startswith("model ")) == [
        'model "auto" does not load: ValueError: output "y": is FP16',
        'model "crash" does not load: its Python process was ended by signal 6 (SIGABRT) during the load',
        'model "exit" does not load: its Python process ended with exit code 3 during the load',
        "model \"import\" does not load: ModuleNotFoundError: No module named 'no_such_module'",
        'model "tensorrt" does not load: the embedded Triton does not have the backend "tensorrt": '
        "use NVIDIA's Triton container",
    ]
    assert {"last in the log: crash it is", "last in the log: exit it is"} <= set(lines)
    assert last == f"Triton's complete log: {log}"


def test_a_triton_killed_during_its_start_is_reported_as_killed(tmp_path):
    repository, log = tmp_path / "models", tmp_path / "triton.log"
    kill = f"import os, time; open({str(tmp_path / 'go')!r}, 'w'); time.sleep(60)"
    write_model(repository, "slow", CONFIG, {"model.py": INITIALIZE.format(kill)})
    server = Server(repository, **PORTS, log_file=log)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(server.start)
        wait_until((tmp_path / "go").exists)
        os.kill(server.pid, signal.SIGSEGV)
        with pytest.raises(pp.SetupError) as caught:
            starting.result()
    assert str(caught.value) == (
        f'Triton was ended by signal 11 (SIGSEGV) while loading "slow"\nTriton\'s complete log: {log}'
    )
    assert not list(folders_of(server))


def test_a_process_killed_while_its_model_is_reloaded_is_reported_as_killed(repository):
    with Server(repository, **PORTS, grace_s=0) as server, ThreadPoolExecutor(1) as pool:

        def killed():
            old = stubs(server.pid)
            loading = pool.submit(server.load, "pre.pixprep")
            while not loading.done():
                for stub in stubs(server.pid) - old:
                    time.sleep(0.3)  # gives the server time to notice the new stub
                    stub.kill()
                time.sleep(0.02)
            try:
                return loading.result()  # an empty string if the model was already loaded when the stub was killed
            # the stub was killed in an early phase of the load, which Triton does not notice
            except TimeoutError as stuck:
                return str(stuck).partition(": ")[2]

        error = wait_until(killed, "no load is slow enough to be killed")
    assert error == "its Python process was ended by signal 9 (SIGKILL: killed, or out of memory) during the load"


def test_a_model_that_loads_forever_is_named_after_the_timeout(tmp_path):
    repository = tmp_path / "models"
    write_model(repository, "slow", CONFIG, {"model.py": INITIALIZE.format("import time; time.sleep(60)")})
    log = tmp_path / "triton.log"
    server = Server(repository, **PORTS, log_file=log, ready_timeout_s=2)
    with pytest.raises(pp.SetupError) as caught:
        server.start()
    assert str(caught.value) == (
        'Triton was not ready after 2 s (0 of 1 models loaded, still loading "slow"): to wait longer, pass '
        "--ready-timeout; "
        f"Triton's complete log: {log}"
    )
    assert not list(SHARED_MEMORY.glob(f"{server._prefix}*"))


def test_a_signal_during_the_start_leaves_nothing(double):
    command = [str(Path(sys.executable).parent / "pixprep"), "serve", "--model-repository", str(double)]
    command += ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serve:
        wait_until(lambda: prefix_of(serve.pid))
        processes, prefix = family(serve.pid), prefix_of(serve.pid)
        serve.send_signal(signal.SIGTERM)
        serve.communicate(timeout=120)
    assert serve.returncode == 0
    assert not psutil.wait_procs(processes, timeout=120)[1]
    assert not list(SHARED_MEMORY.glob(f"{prefix}*"))
