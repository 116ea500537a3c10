"""Tests that follow the README literally: its blocks of commands run in order, in a folder with the contents of a
clone.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
CLASS = re.compile(r"    logits +(\d+\.\d{4})  class +(\d+)  (.+)")
MAKE, DEMO, FILE, MISTAKE, IMPORT, SERVE, CURL, REFUSAL, PYTHON = range(9)


def classes(text):
    return [(int(number), label) for _, number, label in CLASS.findall(text)]


def scores(text):
    return [float(score) for score, *_ in CLASS.findall(text)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function that runs lines in a shell, as after `activate`, and returns their output."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "client_examples", folder / "client_examples")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def run(lines):
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(
            ["/bin/sh", "-ec", lines], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    run.folder, run.path = folder, path
    # runs the same commands as `make demo` if .venv exists
    run.demo = run("pixprep demo client_examples/images --model-repository model_repository")
    return run


def test_each_block_is_followed_here():
    assert [language for language, _ in BLOCKS] == ["", "text", "json", "", "", "", "", "text", "python"]


def test_the_two_commands_and_the_install_match_the_makefile_and_the_package():
    makefile = (ROOT / "Makefile").read_text()
    assert [line.split()[:2] for line in BLOCKS[MAKE][1].splitlines()] == [["make", "demo"], ["make", "test"]]
    assert "pixprep demo $(PHOTOS) --model-repository model_repository" in makefile
    assert '`pip install ".[demo]"`' in TEXT  # tests/package tests the installation
    assert re.search(r"^demo = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


def test_the_demo_prints_the_shown_output_and_the_next_command(run):
    code, out, err = run.demo
    assert (code, err) == (0, "")
    shown = BLOCKS[DEMO][1]
    for line in shown.splitlines()[:2]:
        assert f"{line}\n" in out
    sent = out[out.index("client_examples/images/flower.jpg") :]
    assert classes(sent)[:2] == classes(shown)
    assert scores(sent)[:2] == pytest.approx(scores(shown), abs=0.01)
    assert out.endswith("\nstopped\nnext      pixprep serve --model-repository model_repository\n")


def test_the_python_code_makes_a_tensor_and_batches(run):
    lines = f"{BLOCKS[PYTHON][1]}print(tensor.dtype, tensor.shape, [len(batch) for batch in batches])\n"
    code, out, err = run(f"python - <<'END'\n{lines}END\n")
    assert (code, out, err) == (0, "float32 (3, 224, 224) [2]\n", "")


def test_the_demos_file_is_shown_and_a_mistake_in_it_is_found(run):
    file = run.folder / "model_repository" / "preprocess" / "1" / "pipeline.json"
    assert BLOCKS[FILE][1] == file.read_text()
    *commands, shown = BLOCKS[MISTAKE][1].splitlines()
    assert run("\n".join(command.removeprefix("$ ") for command in commands)) == (1, f"{shown}\n", "")


def test_the_imported_pipeline_can_be_verified_and_explained(run):
    code, out, err = run(BLOCKS[IMPORT][1])
    assert (code, out.splitlines()[0]) == (0, "pipeline.json: resnet50 of keras, pixels as in pillow")
    assert out.endswith("\nexact: every op and every field of resnet50; the pixels of Pillow 13.0.0\n")
    assert err.endswith("\nnext  pixprep verify pipeline.json\n")
    (explain,) = re.findall(r"`(pixprep explain .*?)`", TEXT)
    shutil.copy(run.folder / "client_examples" / "images" / "flower.jpg", run.folder / "photo.jpg")
    assert run(explain)[0] == 0
    assert (run.folder / "stages.png").stat().st_size > 10_000


def test_the_built_repository_serves_the_clients(run):
    build, serve = BLOCKS[SERVE][1].strip().rsplit("\n", 1)
    code, _, err = run(build)
    assert code == 0
    preview, next_ = err.splitlines()[-2:]
    assert preview.startswith('  "logits": palace ')
    assert next_ == f"next  {serve}"
    free = " ".join(f"--{port}-port 0" for port in ("http", "grpc", "metrics"))
    with subprocess.Popen(
        ["/bin/sh", "-c", f"exec {serve} {free}"],
        cwd=run.folder,
        env={**os.environ, "PATH": run.path},
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            host = re.search(r"http://(\S+)", server.stdout.readline())[1]
            curl = BLOCKS[CURL][1].replace("localhost:8000", host)
            assert host in curl
            assert run(curl)[0] == 0
            answer = (run.folder / "answer.bin").read_bytes()
            assert answer.startswith(b"{")
            assert np.frombuffer(answer[-4000:], np.float32).argmax() == 985
            (run.folder / "client_examples" / "no_image").write_bytes(b"not an image")
            no_image = curl.replace("images/flower.jpg", "no_image").replace("-o answer.bin", "")
            assert run(no_image)[1] == BLOCKS[REFUSAL][1].strip()
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=120)
