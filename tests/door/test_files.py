"""Which files a command means, and under which names it writes."""

import pytest

from pixprep import files


@pytest.fixture
def folder(tmp_path):
    for name in ("b.JPG", "a.png", "c.webp", "notes.txt", "d.tiff", "e.jpeg.part"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "inner.jpg").mkdir()
    return tmp_path


def test_a_folder_means_its_image_files_sorted(folder):
    assert [path.name for path in files.expand([folder])] == ["a.png", "b.JPG", "c.webp", "d.tiff"]


def test_a_file_that_is_named_is_taken_whatever_its_suffix(folder):
    assert files.expand([folder / "notes.txt", folder / "a.png"]) == [folder / "notes.txt", folder / "a.png"]


def test_a_folder_without_an_image_means_its_clips(tmp_path, folder):
    clips = tmp_path / "clips"
    clips.mkdir()
    for name in ("b.MP4", "a.mkv", "notes.txt", "c.flv"):
        (clips / name).write_bytes(b"x")
    assert [path.name for path in files.expand([clips])] == ["a.mkv", "b.MP4"]
    assert list(files.skipped([clips])) == [f"{clips}: skipped, because the suffix is not that of an image: c.flv"]
    (folder / "film.mp4").write_bytes(b"x")  # among images, as on a phone
    assert "film.mp4" not in {path.name for path in files.expand([folder])}


def test_what_is_left_out_of_a_folder_is_named(folder):
    (folder / ".DS_Store").write_bytes(b"x")
    assert list(files.skipped([folder, folder / "notes.txt"])) == [
        f"{folder}: skipped, because the suffix is not that of an image: e.jpeg.part"
    ]
    for number in range(6):
        (folder / f"f{number}.CR2").write_bytes(b"x")
    (text,) = files.skipped([folder])
    assert text.endswith(": e.jpeg.part, f0.CR2, f1.CR2, f2.CR2, f3.CR2, and 2 more")
