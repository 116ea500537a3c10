"""Tests of deploy/Dockerfile.cpu, whose instructions run in a Debian created by debootstrap: the resulting image serves
requests.

Both Dockerfiles are also checked for mistakes.
"""

import re
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from pixprep.cli.parser import main
from scale.kubelet import free_ports
from support.containers import Image, compose_mounts, copied, instructions, skip_unless_possible
from support.serving import PHOTO, ClientError, Oracle, ask_grpc, ask_http, wait_until, write_repository

tritonclient = pytest.importorskip("tritonclient.grpc")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILES = [DEPLOY / "Dockerfile", DEPLOY / "Dockerfile.cpu"]


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    skip_unless_possible()
    folder = tmp_path_factory.mktemp("container")
    context = folder / "context"
    sources = [name for names, _ in copied(DEPLOY / "Dockerfile.cpu") for name in names]
    for name in {*sources} - {"model_repository"}:
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, context / name)
    write_repository(context / "model_repository")
    yield Image(DEPLOY / "Dockerfile.cpu", context, folder / "root")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.server
def test_the_cpu_image_serves_with_a_read_only_root(image, tmp_path):
    ports = free_ports(("http", "grpc", "metrics"))
    words = [word for word in image.command if word not in ("--host", "0.0.0.0", "--allow-remote")]  # noqa: S104
    assert len(words) == len(image.command) - 3
    options = [f"--{name}-port={port}" for name, port in ports.items()]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(image.inside([*words, *options], is_sealed=True), stdout=log, stderr=log)
    oracle = Oracle()
    expected = oracle.tensors("ensemble", [PHOTO])
    oracle.close()

    def answer():
        assert process.poll() is None, (tmp_path / "log").read_text()
        try:
            return ask_http(f"127.0.0.1:{ports['http']}", "ensemble", [PHOTO])
        except (OSError, ClientError):
            return None

    try:
        deadline = time.monotonic() + 60
        while (got := answer()) is None:
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.2)
        assert got.tobytes() == expected.tobytes()
        with tritonclient.InferenceServerClient(f"127.0.0.1:{ports['grpc']}") as client:
            assert ask_grpc(client, "ensemble", [PHOTO]).tobytes() == expected.tobytes()
        health = ["pixprep", "health", "--model", "ensemble", "--url", f"127.0.0.1:{ports['http']}"]
        done = subprocess.run(image.inside(health, is_sealed=True), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("ok  ensemble")
        (first,) = psutil.Process(process.pid).children()  # in its own process namespace, the server is process 1
        first.terminate()
        wait_until(lambda: process.poll() is not None)
        assert process.returncode == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()


def test_the_container_is_not_root_and_can_only_write_to_tmp(image):
    script = "id -u; touch /x 2>&1; touch /models/x 2>&1; touch /tmp/x && echo tmp"
    done = subprocess.run(
        image.inside(["sh", "-c", script], is_sealed=True), capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [
        "1000",
        "touch: cannot touch '/x': Read-only file system",
        "touch: cannot touch '/models/x': Read-only file system",
        "tmp",
    ]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_has_no_common_mistake(path):
    lines = instructions(path)
    words = [word for word, _ in lines]
    last = dict(lines)
    # the image has a version, not "latest"
    assert all(":" in rest or "${" in rest for word, rest in lines if word == "FROM")
    assert not re.search(r":latest\b", path.read_text())
    assert "ADD" not in words
    assert last["USER"] == "1000:1000"
    assert last["CMD"].startswith("[")  # no shell, because a shell would not forward SIGTERM to the server
    assert words.index("USER") > max(index for index, word in enumerate(words) if word in ("RUN", "COPY"))
    for rest in (rest for word, rest in lines if word == "RUN"):
        assert "sudo" not in rest
        if "apt-get install" in rest:
            assert "--no-install-recommends" in rest
            assert "rm -rf /var/lib/apt/lists/*" in rest


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_installs_only_locked_packages_and_our_own_wheel(path):
    """If hashes are given, pip rejects packages from an index that have no given hash."""
    calls = [call.split() for word, rest in instructions(path) if word == "RUN" for call in rest.split("&&")]
    calls = [call[1:] for call in calls if call[0].endswith("pip")]
    assert {call[0] for call in calls} == {"install", "wheel"}
    for kind, *options in calls:
        assert {"--no-cache-dir", "--no-deps"} <= {*options}
        if kind == "wheel":
            assert options[-1] == "/source"
            assert "--no-build-isolation" in options
        elif "--no-index" in options:
            assert options[-1] == "/wheels/pixprep-*.whl"
        else:
            assert "--require-hashes" in options
            files = [options[index + 1] for index, option in enumerate(options) if option == "--requirement"]
            assert files
            for file in files:
                folder, _, name = file.rpartition("/")
                assert (["requirements"], folder) in copied(path)
                for cuda in ("12", "13"):
                    assert (ROOT / "requirements" / name.replace("${CUDA}", cuda)).exists()


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_files_that_a_dockerfile_copies_exist(path):
    assert all((ROOT / source).exists() for sources, _ in copied(path) for source in sources)


def test_compose_permits_stubs_in_tmp_but_no_programs_in_shared_memory():
    assert compose_mounts() == {
        "/tmp": "noexec,nosuid,nodev,mode=1777,exec",  # mount uses the last mode
        "/dev/shm": "noexec,nosuid,nodev,mode=1777,size=512m",
    }


def test_the_parts_of_compose_match_each_other():
    """The file has not been run with Docker, so the test compares the paths, names and ports that must match."""
    yaml = pytest.importorskip("yaml", reason="NO YAML: make scale")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    mounts = {}
    for name, service in services.items():
        for mount in service.get("volumes", []):
            source, target, mode = mount.split(":")
            assert (DEPLOY / source).exists(), mount
            assert mode == "ro", mount
            mounts[name, target] = DEPLOY / source
    build = services["pixprep"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile.cpu")
    kind, *probe = services["pixprep"]["healthcheck"]["test"]
    assert kind == "CMD"
    assert probe[0] == "pixprep"
    # fails because no server is running; invalid usage would exit
    assert main([*probe[1:], "--url", "127.0.0.1:1"]) == 1
    prometheus = yaml.safe_load(mounts["prometheus", "/etc/prometheus/prometheus.yml"].read_text(encoding="utf-8"))
    (scrape,) = prometheus["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": ["pixprep:8002"]}]
    for rules in prometheus["rule_files"]:
        assert ("prometheus", f"/etc/prometheus/{rules}") in mounts
    provisioning = mounts["grafana", "/etc/grafana/provisioning"]
    (source,) = yaml.safe_load(next(provisioning.glob("datasources/*.yaml")).read_text(encoding="utf-8"))["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load(next(provisioning.glob("dashboards/*.yaml")).read_text(encoding="utf-8"))["providers"]
    assert (mounts["grafana", provider["options"]["path"]] / "dashboard.json").is_file()
