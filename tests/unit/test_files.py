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
