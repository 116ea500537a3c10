"""Tests that a command reads the expected files for its arguments, and writes files with the expected names."""

import pytest

from pixprep import files


@pytest.fixture
def folder(tmp_path):
    for name in ("b.JPG", "a.png", "c.webp", "notes.txt", "d.tiff", "e.jpeg.part"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "inner.jpg").mkdir()
    return tmp_path


def test_a_folder_stands_for_its_sorted_image_files(folder):
    assert [path.name for path in files.expand([folder])] == ["a.png", "b.JPG", "c.webp", "d.tiff"]


def test_a_named_file_is_accepted_with_any_suffix(folder):
    assert files.expand([folder / "notes.txt", folder / "a.png"]) == [folder / "notes.txt", folder / "a.png"]


def test_a_folder_without_images_stands_for_its_clips(tmp_path, folder):
    clips = tmp_path / "clips"
    clips.mkdir()
    for name in ("b.MP4", "a.mkv", "notes.txt", "c.flv"):
        (clips / name).write_bytes(b"x")
    assert [path.name for path in files.expand([clips])] == ["a.mkv", "b.MP4"]
    assert list(files.skipped([clips])) == [f"{clips}: skipped, because the suffix is not that of an image: c.flv"]
    (folder / "film.mp4").write_bytes(b"x")  # a video among images, as in a phone's photo folder
    assert "film.mp4" not in {path.name for path in files.expand([folder])}


def test_skipped_files_of_a_folder_are_named(folder):
    (folder / ".DS_Store").write_bytes(b"x")
    assert list(files.skipped([folder, folder / "notes.txt"])) == [
        f"{folder}: skipped, because the suffix is not that of an image: e.jpeg.part"
    ]
    for number in range(6):
        (folder / f"f{number}.CR2").write_bytes(b"x")
    (text,) = files.skipped([folder])
    assert text.endswith(": e.jpeg.part, f0.CR2, f1.CR2, f2.CR2, f3.CR2, and 2 more")
