"""Attack: A FIFO, a socket, a directory, a circular link or a file of gigabytes replaces a file of the repository.

Defence: Files are opened without blocking, must be regular, and are read up to a limit.

Outcome: Each problem is reported in one line. Before the fix, a FIFO named pipeline.json blocked ``check``, ``build``,
``serve`` and the loading of the model forever. A FIFO named config.pbtxt was treated as missing, and blocked Triton. A
config.pbtxt of 2 GB was read completely.
"""

import os
import socket

import pytest

import pixprep as pp
from attacks.repositories import CONFIG, PIPELINE, patience, problems, put, sparse
from pixprep.errors import SetupError
from pixprep.serving import repository
from pixprep.serving.repository.repository import Repository


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)  # a relative path, because a socket's path may have at most 107 bytes
        server.bind(path.name)


SPECIAL = {
    "a FIFO": (os.mkfifo, "cannot be read: Not a regular file"),
    "a socket": (make_socket, "cannot be read: No such device or address"),
    "a directory": (
        lambda path: path.mkdir(),
        {PIPELINE: "is a folder: pass the path of a pipeline file", CONFIG: "cannot be read: Is a directory"},
    ),
}


@pytest.mark.parametrize("file", [PIPELINE, CONFIG])
@pytest.mark.parametrize("kind", SPECIAL)
def test_special_files_are_reported_as_invalid(models, monkeypatch, file, kind):
    monkeypatch.chdir(models)
    make, message = SPECIAL[kind]
    put(models / file, make)
    assert problems(models) == [f"{file}: {message if isinstance(message, str) else message[file]}"]


def test_a_circular_link_ends(models):
    for file in (PIPELINE, CONFIG):
        put(models / file, lambda path: path.symlink_to(path))
    (models / "loop").symlink_to(models / "loop")
    assert problems(models) == [f"{CONFIG}: cannot be read: Too many levels of symbolic links"]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (PIPELINE, "not a pipeline file: it has more than 1,048,576 bytes"),
        (CONFIG, "the file exceeds the limit of 262,144 bytes"),
    ],
)
def test_gigabytes_are_not_read(models, file, message):
    put(models / file, sparse(8 << 30))
    assert problems(models) == [f"{file}: {message}"]


@pytest.mark.parametrize("load", [pp.load, lambda path: Repository(path.parents[2]).pipelines["m"].pipeline])
def test_loading_a_fifo_fails_at_once(models, load):
    put(models / PIPELINE, os.mkfifo)
    with patience(), pytest.raises(pp.PipelineError, match=r"^pipeline\.json: cannot be read: Not a regular file$"):
        load(models / PIPELINE)


@pytest.mark.parametrize("path", ["/dev/zero", "/proc/self/mem", "/proc/kmsg"])
def test_a_device_is_not_a_pipeline(path):
    with patience(), pytest.raises(pp.PipelineError):
        pp.load(path)


@pytest.mark.parametrize("make", [os.mkfifo, sparse((2 << 30) + 1)], ids=["a FIFO", "3 GB"])
def test_an_onnx_file_that_is_not_regular_is_not_read(models, make):
    (models / "c" / "1").mkdir(parents=True)
    make(models / "c" / "1" / "model.onnx")
    (models / "c" / "config.pbtxt").write_text('backend: "onnxruntime"\n')
    (line,) = problems(models)
    assert line.startswith("c/1/model.onnx: ")


def test_build_does_not_read_a_fifo(models, tmp_path):
    put(models / "fifo.onnx", os.mkfifo)
    with patience(), pytest.raises(SetupError, match="no such file"):
        repository.build(tmp_path / "out", pipeline=pp.load(models / PIPELINE), onnx=models / "fifo.onnx")
