"""Attack: An image file of a data set is a FIFO, a device, a link to a FIFO or device, a folder, or gigabytes in size.

Defence: Files are opened without blocking, and must be regular. Their size is checked before they are read.

Outcome: The sample is rejected with its name, and without delay.
"""

import os
from pathlib import Path

import pytest

import pixprep as pp
from attacks.repositories import patience, sparse
from pixprep import read
from pixprep.training.sources import read_image

MAKERS = {
    "a FIFO": (os.mkfifo, "UNREADABLE", "is not a regular file"),
    "a folder": (Path.mkdir, "UNREADABLE", "is not a regular file"),
    "a link to /dev/zero": (lambda path: path.symlink_to("/dev/zero"), "UNREADABLE", "is not a regular file"),
    "a link to nowhere": (lambda path: path.symlink_to("nowhere"), "UNREADABLE", "No such file or directory"),
    "a link to itself": (lambda path: path.symlink_to(path), "UNREADABLE", "Too many levels of symbolic links"),
    "4 GiB": (sparse(4 << 30), "TOO_LARGE_BYTES", "(parameter max_image_bytes)"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_special_file_is_rejected_without_delay(tmp_path, name):
    make, reason, words = MAKERS[name]
    make(tmp_path / "x.jpg")
    source = read.files([tmp_path / "x.jpg"])
    with patience(), pytest.raises(pp.ImageError) as caught:
        read_image(source[0], pp.Limits())
    assert caught.value.reason == reason
    assert caught.value.detail.startswith("x.jpg: ")
    assert caught.value.detail.endswith(words)


def test_a_name_with_a_nul_breaks_its_sample():
    with pytest.raises(
        pp.ImageError, match=r"^\[UNREADABLE\] x: is not a valid file name, because it contains a NUL character$"
    ):
        read_image({"image": Path("a\0b.jpg"), "name": "x"}, pp.Limits())
