"""Tests that files written by a command are either complete or unchanged."""

import os
import resource
import stat
import subprocess
import sys

import pytest

import pixprep as pp
from pixprep.cli import main
from pixprep.files import atomic_file, locked, write
from support.images import PHOTOS, photo
from support.limits import limited

PIPELINE = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor()])
LOCKING_PROGRAM = """
import sys, time; from pathlib import Path; from pixprep.files import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["import", "keras:resnet50", "old", "--force"], "old"),
        (["run", "pipeline.json", "photo.jpg", "--output", "."], "photo.npy"),
        (["explain", "pipeline.json", "--image", "photo.jpg", "--output", "old.png"], "old.png"),
        (["preview", "pipeline.json", str(PHOTOS), "--serving", "--output", "old.png"], "old.png"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_file_that_cannot_be_written_completely_leaves_the_old_one(words, file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    PIPELINE.save("pipeline.json")
    (tmp_path / "photo.jpg").write_bytes(photo())
    (tmp_path / file).write_bytes(b"of before")
    before = contents(tmp_path)
    with limited(resource.RLIMIT_FSIZE, 100):
        assert main(words) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"{file}: cannot be written: File too large")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("words", [["build", "--output"], ["install-backend"]], ids=["build", "install-backend"])
def test_a_folder_that_cannot_be_written_completely_leaves_the_old_one(words, tmp_path, capsys):
    folder = tmp_path / "there"
    assert main([*words, str(folder)]) == 0
    before = contents(tmp_path)
    with limited(resource.RLIMIT_FSIZE, 1000):
        assert main([*words, str(folder)]) == 1
    assert "File too large" in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_an_overwritten_file_keeps_its_mode_and_its_links(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    before = os.umask(0o027)
    try:
        write(file, "first")
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    file.chmod(0o604)
    link.symlink_to(file)
    write(link, "äöü")
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == "äöü"
    assert stat.S_IMODE(file.stat().st_mode) == 0o604
    assert sorted(tmp_path.iterdir()) == [file, link]


def test_a_pipe_is_written_to_and_remains_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    write(pipe, b"through")
    assert reader.communicate()[0] == b"through"
    assert pipe.is_fifo()


def test_a_name_of_the_maximum_length_can_be_written(tmp_path):
    file = tmp_path / ("n" * 255)
    write(file, "")
    assert file.exists()


def test_an_error_during_writing_names_the_file(tmp_path):
    file = tmp_path / "missing" / "file"
    with pytest.raises(OSError, match="No such file or directory") as error:
        write(file, "")
    assert error.value.filename == str(file)


def test_a_failed_writer_leaves_no_file(tmp_path):
    file = tmp_path / "file"
    with pytest.raises(KeyboardInterrupt), atomic_file(file):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_locked_until_its_process_ends(tmp_path):
    with subprocess.Popen([sys.executable, "-c", LOCKING_PROGRAM, tmp_path], stdout=subprocess.PIPE) as first:
        try:
            assert first.stdout.readline() == b"locked\n"
            with pytest.raises(pp.PixprepError) as error, locked(tmp_path):
                pass
        finally:
            first.kill()
    assert (
        str(error.value)
        == f"{tmp_path}: another process is writing to this folder: wait until it ends, or use a different folder"
    )
    with locked(tmp_path):
        pass


def test_a_folder_that_cannot_be_locked_is_rejected(tmp_path):
    (tmp_path / ".pixprep.lock").mkdir()
    with (
        pytest.raises(pp.PixprepError, match="cannot be locked \\(Is a directory\\): use a different folder"),
        locked(tmp_path),
    ):
        pass
