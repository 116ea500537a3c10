"""Tests of the copy of a model repository that Triton serves: its contents, and which edits count as a change."""

import os
from pathlib import Path
from threading import Event

import pytest

from pixprep.errors import SetupError
from pixprep.serving.embedded.snapshot import Snapshot


@pytest.fixture
def repository(tmp_path):
    for name in ("one", "two"):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "config.pbtxt").write_text(f'name: "{name}"')
        (tmp_path / "models" / name / "1" / "model.py").write_text("a = 1\n")
    return tmp_path / "models"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp" / "models"


@pytest.fixture
def second_folder(tmp_path):
    """Return a folder for a second copy."""
    (tmp_path / "later").mkdir()
    return tmp_path / "later" / "models"


def tree(folder):
    """Return the content of every file by its relative path; the content of a folder is None."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_everything_is_copied_with_its_mode_except_hidden_files_and_caches(repository, folder):
    (repository / "shared.txt").write_text("for both")
    (repository / "one" / "empty").mkdir()
    (repository / "one" / ".env").write_text("X=1")
    (repository / "one" / "1" / "stub").write_text("#!/bin/sh")
    (repository / "one" / "1" / "stub").chmod(0o755)
    expected = tree(repository)
    (repository / ".git").mkdir()
    (repository / "one" / "1" / "__pycache__").mkdir()
    snapshot = Snapshot(repository, folder)
    assert tree(folder) == expected
    assert os.access(folder / "one" / "1" / "stub", os.X_OK)
    assert list(snapshot.hashes) == ["one", "two"]
    assert snapshot.changes() == {}


def test_links_are_followed_and_dangling_or_circular_ones_are_omitted(repository, folder):
    (repository / "one" / "2").symlink_to("1")
    (repository / "three").symlink_to("two")
    (repository / "one" / "nothing").symlink_to("nowhere")
    (repository / "one" / "itself").symlink_to("itself")
    (repository / "one" / "1" / "up").symlink_to("..")
    os.mkfifo(repository / "one" / "1" / "pipe")
    Snapshot(repository, folder)
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    assert set(tree(folder / "one")) == {"config.pbtxt", "1", "1/model.py", "2", "2/model.py"}
    assert tree(folder / "three") == tree(folder / "two")


def test_a_hash_depends_on_names_and_contents(repository, folder, second_folder):
    first = Snapshot(repository, folder).hashes
    os.utime(repository / "one" / "1" / "model.py", (1, 1))
    (repository / "one" / ".swp").write_text("an editor is open")
    (repository / "two" / "1" / "model.py").rename(repository / "two" / "1" / "model2.py")
    second = Snapshot(repository, second_folder).hashes
    assert second["one"] == first["one"]
    assert second["two"] != first["two"]
    assert all(len(text) == 12 and int(text, 16) >= 0 for text in first.values())


def test_without_space_for_the_copy_the_error_names_the_folder_and_the_fix(repository):
    (repository / "one" / "1" / "weights").write_bytes(b"x" * (3 << 20))
    with pytest.raises(SetupError) as caught:
        Snapshot(repository, Path("/proc/self/models"))  # files cannot be created here, like on a full disk
    assert str(caught.value) == (
        f"not enough disk space in /proc for the copy of {repository} that is served "
        "(3 MiB are required, 0 MiB are free): set TMPDIR to a different folder"
    )


def test_a_failed_or_interrupted_copy_is_discarded_and_the_next_one_succeeds(repository, folder):
    snapshot = Snapshot(repository, folder)
    over = Event()
    over.set()
    with pytest.raises(InterruptedError):
        snapshot.stage("one", over)
    snapshot.discard()
    locked = repository / "one" / "1" / "locked"
    locked.symlink_to("/proc/self/mem")  # this file can be opened, but reading it fails
    with pytest.raises(OSError, match=f"Input/output error: '{locked}'"):
        snapshot.stage("one", Event())
    snapshot.discard()
    assert [path.name for path in folder.parent.iterdir()] == ["models"]
    locked.unlink()
    assert snapshot.stage("one", Event()) == snapshot.hashes["one"]


def test_a_change_is_installed_and_can_be_reverted(repository, folder):
    snapshot = Snapshot(repository, folder)
    before, old_hash = tree(folder), snapshot.hashes["one"]
    (repository / "one" / "1" / "model.py").write_text("a = 2\n")
    assert list(snapshot.changes()) == ["one"]
    assert tree(folder) == before
    new = snapshot.stage("one", Event())
    assert tree(folder) == before
    snapshot.swap("one")
    assert (folder / "one" / "1" / "model.py").read_text() == "a = 2\n"
    assert (snapshot.hashes["one"], snapshot.changes()) == (new, {})
    snapshot.swap("one")
    snapshot.discard()
    assert tree(folder) == before
    assert snapshot.hashes["one"] == old_hash
    assert list(snapshot.changes()) == ["one"]
    assert [path.name for path in folder.parent.iterdir()] == ["models"]


def test_added_and_removed_models_are_changes(repository, folder):
    snapshot = Snapshot(repository, folder)
    (repository / "two").rename(repository / "three")
    assert snapshot.changes().keys() == {"two", "three"}
    assert snapshot.changes()["two"] == ()


def test_a_touched_model_has_newer_folders_and_the_same_files(repository, folder):
    snapshot = Snapshot(repository, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    for path in before:
        os.utime(path, (1, 1))
    snapshot.touch("one")
    touched = {str(path.relative_to(folder)) for path in before if path.stat().st_mtime_ns > 10**9}
    assert touched == {"one/1"}
