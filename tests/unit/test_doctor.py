"""Each trap is found, and its remedy said; the machine itself is played by patched look-ups."""

import socket
from importlib.metadata import PackageNotFoundError

import pytest

from pixprep.errors import SetupError
from pixprep.triton import doctor, server


@pytest.fixture
def versions(monkeypatch):
    table = {}

    def _version(name):
        found = table.get(name, "1.0")
        if found is None:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setattr(doctor, "version", _version)
    return table


def named(name):
    (check,) = [check for check in doctor.checks() if check.name == name]
    return check


def test_this_machine_is_fit():
    assert [check for check in doctor.checks() if check.ok is False] == []


def test_numpy_2_is_found(versions):
    versions["numpy"] = "2.3.1"
    assert named("numpy") == doctor.Check(
        "numpy", ok=False, found="2.3.1", remedy='Triton 2.51 misreads BYTES under NumPy 2: pip install "numpy<2"'
    )


def test_a_missing_package_is_named_with_its_command(versions):
    versions["onnxruntime"] = None
    check = named("onnxruntime")
    assert (check.ok, check.remedy) == (False, 'pip install "pixprep[classifier]"')


def test_a_stub_that_cannot_start_is_found(monkeypatch):
    def refuse(_):
        raise SetupError("libpython3.11.so.1.0 is missing: apt-get install libpython3.11")

    monkeypatch.setattr(server, "check_machine", refuse)
    check = named("triton's python stub")
    assert (check.ok, check.found) == (False, "libpython3.11.so.1.0 is missing")
    assert check.remedy == "apt-get install libpython3.11"


def test_little_shared_memory_is_found(monkeypatch):
    monkeypatch.setattr(doctor, "MIN_SHARED_MEMORY", 1 << 60)
    check = named("shared memory")
    assert check.ok is False
    assert check.remedy.endswith("docker run --shm-size=1g")


def test_a_port_in_use_is_worth_knowing(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(doctor, "DEFAULT_PORTS", (("http", port),))
        check = named("http port")
    assert (check.ok, check.found) == (None, f"{port} is in use")
    assert check.remedy == "serve with another --http-port"
