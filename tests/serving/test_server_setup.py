"""Tests of the setup before Triton starts: invalid setups are rejected with clear messages, and the cause of a failed
start is found in Triton's log.
"""

import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import pixprep as pp
from pixprep.serving.embedded import addresses
from pixprep.serving.embedded import wheel as wheel_module
from pixprep.serving.embedded.failure import DIED, ended, failure, load_failure, still_loading
from pixprep.serving.embedded.server import Server
from pixprep.serving.embedded.wheel import find_wheel
from support.serving import wait_until

# Log lines of Triton 2.51.0 with shortened timestamps and paths.
NOISE = """\
W1121 10:38:01.203595 12985 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory: no CUDA driver"
E1121 10:38:01.203730 12985 server.cc:241] "CudaDriverHelper has not been initialized."
I1121 10:38:01.204657 12985 model_lifecycle.cc:472] "loading: slow:1"
I1121 10:38:01.204657 12985 model_lifecycle.cc:472] "loading: good.pixprep:1"
I1121 10:38:02.138838 12985 model_lifecycle.cc:839] "successfully loaded 'good.pixprep'"
"""
END = "error: creating server: Internal - failed to load all models\n"
AT = "\n\nAt:\n  /srv/models/m/1/model.py(3): initialize\n"
LOAD = "failed to load 'm' version 1: "


def error_line(text):
    """Return a line of Triton's log with the text quoted and escaped as in JSON."""
    return f"E1121 10:38:02.138838 12985 model_lifecycle.cc:642] {json.dumps(text)}\n"


def refusal(repository, **arguments):
    with pytest.raises(pp.SetupError) as caught:
        Server(repository, **{"http_port": 0, "grpc_port": 0, "metrics_port": 0} | arguments).start()
    return str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"grpc_port": 18477, "http_port": 18477},
            "--grpc-port and --http-port are both 18477: choose different ports, or 0",
        ),
        ({"log_file": Path("gone/log")}, "--log-file gone/log: cannot be written: No such file or directory"),
        ({"metrics_port": 65536}, "--metrics-port must be 0 to 65535, not 65536"),
        (
            {"host": "0.0.0.0"},  # noqa: S104  (it is refused)
            "other machines can reach host 0.0.0.0, and this Triton (2.51.0) lacks later security fixes: "
            "use 127.0.0.1, or pass --allow-remote",
        ),
        ({"host": "no.such.host.invalid"}, "host no.such.host.invalid: Name or service not known: use 127.0.0.1, "),
        ({"host": "192.0.2.1", "allow_remote": True}, "host 192.0.2.1: Cannot assign requested address: use 127.0.0.1"),
        (
            {"host": "192.0.2.1", "allow_remote": True, "allow_shared_memory": True},
            "other machines can reach host 192.0.2.1, and shared memory is only for clients on this machine: ",
        ),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_named(tmp_path, arguments, words):
    message = refusal(tmp_path, **arguments)
    # without a network, resolving a host name fails with a different error
    assert message.startswith(words) or ("host" in arguments and message.startswith(f"host {arguments['host']}: "))


def test_free_ports_differ():
    for _ in range(20):
        assert len(set(addresses.check_ports("127.0.0.1", {"http": 0, "grpc": 0, "metrics": 0}).values())) == 3


def test_a_port_in_use_is_named_with_its_option_and_its_user(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refusal(tmp_path, grpc_port=port) == (
            f"port {port} is in use by {Path('/proc/self/comm').read_text().strip()} (process {os.getpid()}): stop "
            "that process, or choose a different --grpc-port"
        )
        assert addresses.listeners(port) == {os.getpid()}
    assert addresses.listeners(port) == set()


def test_a_python_that_is_not_called_python3_is_rejected(tmp_path):
    (tmp_path / "python3.11").touch()
    (tmp_path / "python3").symlink_to("/bin/sh")
    with pytest.raises(pp.SetupError) as caught:
        wheel_module.check_python(tmp_path / "python3.11")
    assert str(caught.value) == (
        f"{tmp_path}/python3, which Triton's stub processes use, is missing or a different Python: run pixprep in a "
        "virtual environment (python -m venv)"
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            "stub: error while loading shared libraries: libpython3.11.so.1.0: cannot open shared object file",
            127,
            "libpython3.11.so.1.0, which Triton's Python backend requires, is missing: apt-get install libpython3.11",
        ),
        (
            "stub: /lib/libc.so.6: version `GLIBC_2.34' not found",
            1,
            "Triton's Python stub does not start: stub: /lib/libc.so.6: version `GLIBC_2.34' not found",
        ),
        ("", 139, "Triton's Python stub does not start: exit code 139"),
    ],
)
def test_a_stub_that_cannot_start_is_one_line(tmp_path, words, code, message):
    stub = tmp_path / "stub"
    stub.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{words}\nEND\nexit {code}\n")
    stub.chmod(0o755)
    with pytest.raises(pp.SetupError) as caught:
        wheel_module.check_stub(stub, dict(os.environ))
    assert str(caught.value) == message


def test_too_little_shared_memory_is_rejected_with_the_needed_amount(tmp_path):
    for folder, message in (  # files cannot be created in /proc, like on a full disk
        (Path("/proc"), "/proc has 0 MiB free, but Triton's Python models need 32 MiB: in Docker, pass --shm-size=1g"),
        (tmp_path, f"{tmp_path}/shm: No such file or directory: mount shared memory there for Triton's Python models"),
    ):
        with pytest.raises(pp.SetupError) as caught:
            wheel_module.check_shared_memory(folder if folder == Path("/proc") else folder / "shm")
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            error_line(f'{LOAD}Internal: PipelineError: ops[1] "rezise": no such op; did you mean "resize"?{AT}'),
            'ops[1] "rezise": no such op; did you mean "resize"?',
        ),
        (error_line(f"{LOAD}Internal: KeyError: 'mean'{AT}"), "KeyError: 'mean'"),
        (error_line(f"{LOAD}Internal: ValueError: two\n lines{AT}"), "ValueError: two lines"),
        (
            error_line(f"{LOAD}Internal: Stub process 'm_0' is not healthy."),
            "its Python process ended during the load (crashed, exited, or ran out of memory)",
        ),
        (
            error_line(
                f"{LOAD}Invalid argument: unable to find backend library for backend 'tensorrt', try specifying"
            ),
            'the embedded Triton does not have the backend "tensorrt": use NVIDIA\'s Triton container',
        ),
        (
            error_line(f"{LOAD}Invalid argument: unable to find backend library for backend 'pixpep', try specifying"),
            'backend "pixpep" does not exist; did you mean "pixprep"?',
        ),
        (error_line("failed to load model 'm': no version is there"), "no version is there"),
        (
            "[libprotobuf ERROR /build/text_format.cc:337] Error parsing text-format inference.ModelConfig: 2:10: "
            'Message type "inference.ModelConfig" has no field named "max_batch".\n'
            + error_line("Poll failed for model directory 'm': failed to read text proto from /srv/m/config.pbtxt"),
            'config.pbtxt: 2:10: Message type "inference.ModelConfig" has no field named "max_batch".',
        ),
        (
            error_line("Invalid argument: ensemble m contains models that are not available or ambiguous: gone"),
            "contains models that are not available or ambiguous: gone",
        ),
        (
            error_line("Invalid argument: ensemble 'm' depends on 'pre' whose required version 0 is not loaded."),
            "depends on 'pre' whose required version 0 is not loaded.",
        ),
        (
            error_line("Invalid argument: in ensemble m, ensemble tensor t: inconsistent shape: [-1,8] is inferred"),
            "ensemble tensor t: inconsistent shape: [-1,8] is inferred",
        ),
    ],
)
def test_a_model_that_does_not_load_is_one_line_without_traceback_and_path(line, reason):
    error = failure(NOISE + line + END, 1)
    assert type(error) is pp.PixprepError
    assert str(error) == f'model "m" does not load: {reason}'


def test_each_failing_model_has_its_line_and_an_ensemble_that_only_lacks_it_has_none():
    log = (
        error_line(f"failed to load 'a' version 1: Internal: OSError: x{AT}")
        + error_line(f"failed to load 'b' version 3: Internal: OSError: y{AT}")
        + error_line(
            "Invalid argument: ensemble 'ens' depends on 'a' which has no loaded version. Model 'a' loading failed "
            f"with error: version 1 is at UNAVAILABLE state: Internal: OSError: x{AT};"
        )
    )
    assert str(failure(NOISE + log + END, 1)) == (
        'model "a" does not load: OSError: x\nmodel "b" does not load: OSError: y'
    )
    error = failure(NOISE + error_line("failed to load 'm\nok: fine' version 1: Internal: OSError: x\ny") + END, 1)
    assert error.args == ('model "m\nok: fine" does not load: OSError: x y',)


@pytest.mark.parametrize(
    ("log", "code", "message"),
    [
        (
            f"{NOISE}error: creating server: Invalid argument - no such thing\n",
            1,
            "Triton ended with exit code 1: creating server: Invalid argument - no such thing",
        ),
        (
            "/srv/bin/tritonserver: unrecognized option '--nonsense'\nUsage: tritonserver [options]\n  --help\n",
            1,
            "Triton ended with exit code 1: unrecognized option '--nonsense'",
        ),
        (
            NOISE + error_line("failed to start HTTP service: Unavailable - Socket '127.0.0.1:80' already in use"),
            1,
            "Triton ended with exit code 1: failed to start HTTP service: Unavailable - "
            "Socket '127.0.0.1:80' already in use",
        ),
        ("", 3, "Triton ended with exit code 3: its log contains no error"),
        ("", -9, "Triton was ended by signal 9 (SIGKILL: killed, or out of memory) while starting"),
        (
            f"{NOISE}terminate called after throwing\nan instance of 'std::bad_alloc'\n",
            -6,
            'Triton was ended by signal 6 (SIGABRT) while loading "slow"\nlast in the log: terminate called after '
            "throwing\nlast in the log: an instance of 'std::bad_alloc'",
        ),
        (
            NOISE + error_line("no room") + "| a | table |\n+---+\n\n",
            -35,
            'Triton was ended by signal 35 (a real-time signal) while loading "slow"\nlast error of Triton: no room',
        ),
    ],
)
def test_an_end_without_a_failing_model_reports_tritons_last_error(log, code, message):
    error = failure(log, code)
    assert type(error) is pp.SetupError
    assert str(error) == message


def test_a_models_dead_process_is_reported_with_its_exit_and_its_last_output():
    log = error_line(f"{LOAD}Internal: Stub process 'm_0' is not healthy.") + error_line(
        f"failed to load 'n' version 1: Internal: OSError: x{AT}"
    )
    words = (
        # these lines continue an earlier message
        'Fatal Python error: Segmentation fault\n\n  File "model.py", line 3\nAt:\n'
    )
    error = failure(NOISE + words + log + END, 1, deaths={"m": ended(-11), "n": ended(3)})
    assert error.args == (
        'model "m" does not load: its Python process was ended by signal 11 (SIGSEGV) during the load',
        'model "n" does not load: OSError: x',
        "last in the log: Fatal Python error: Segmentation fault",
    )


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Internal: Stub process 'm_0_0' is not healthy.", DIED),
        (f"Internal: PipelineError: ops[1]: no such op{AT}", "ops[1]: no such op"),
        ("Invalid argument: one\n two", "one two"),
    ],
)
def test_tritons_message_about_a_requested_model_is_one_line(reason, words):
    message = f"load failed for model 'm': version 1 is at UNAVAILABLE state: {reason}"
    assert [load_failure(f"{message}{end}") for end in (";", ";\n", "")] == [words] * 3


def test_a_low_limit_of_open_files_is_reported_first():
    """Otherwise, Triton would falsely report that a free port is in use, or that a missing CUDA driver is too old."""
    log = NOISE + error_line("failed to start HTTP service: Unavailable - Socket '127.0.0.1:80' already in use")
    assert str(failure(log, 1, files=1023)) == (
        "Triton ended with exit code 1; the limit of 1023 open files may be too low: run `ulimit -n 1024` first; "
        "last error: failed to start HTTP service: Unavailable - Socket '127.0.0.1:80' already in use"
    )


def test_models_that_are_still_loading_are_named():
    assert still_loading(NOISE) == ["slow"]


def test_this_python_comes_first_for_tritons_stub():
    environment = wheel_module.environment(find_wheel())
    assert environment["PATH"].split(":")[0] == str(Path(sys.executable).parent)


def test_unread_data_of_a_client_is_detected():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert addresses.unsent(port) == 0
        with socket.create_connection(server.getsockname()) as client, server.accept()[0] as served:
            client.sendall(b"x" * 1000)  # received but not yet read, so it counts as unread, not as unsent
            assert addresses.unsent(port) == 0
            assert len(addresses.unread(port)) == 1
            served.recv(1000)
            assert addresses.unread(port) == set()
            served.settimeout(0)
            with suppress(BlockingIOError):
                while True:
                    served.send(bytes(1 << 20))
            assert addresses.unsent(port) > 0
            served.shutdown(socket.SHUT_WR)
            while client.recv(1 << 20):
                pass
            wait_until(lambda: addresses.unsent(port) == 0)


def test_a_name_with_both_address_families_resolves_to_ipv4():
    assert addresses.resolve("localhost") == "127.0.0.1"  # even if /etc/hosts lists ::1 first
    assert addresses.resolve("::1") == "::1"


def test_a_server_is_equal_only_to_itself(tmp_path):
    first, second = Server(tmp_path / "first"), Server(tmp_path / "second")
    assert len({first, second}) == 2
    assert repr(first).startswith("<")
