"""Tests ``read.rows``, which returns the samples of any sequence unchanged."""

from pathlib import Path

import pytest

import pixprep as pp
from pixprep import read


def test_rows_can_be_mappings_or_tuples():
    source = read.rows([{"jpg": b"a", "y": 3}, {"jpg": bytearray(b"b"), "y": 4}], image="jpg", label="y")
    assert source[1] == {"name": "row 1", "image": bytearray(b"b"), "label": 4}
    source = read.rows([("x/a.jpg", 0), (Path("b.jpg"), 1)], image=0, label=1)
    assert source[0] == {"name": "row 0, x/a.jpg", "image": Path("x/a.jpg"), "label": 0}


def test_hugging_faces_image_structs_are_images():
    rows = [{"bytes": b"a", "path": "a.jpg"}, {"bytes": None, "path": "/b.jpg"}, {"bytes": b"", "path": "c.jpg"}]
    source = read.rows([{"image": row} for row in rows])
    assert source[0] == {"name": "row 0, a.jpg", "image": b"a"}
    assert source[2] == {"name": "row 2, c.jpg", "image": b""}  # empty bytes are not replaced by the path
    assert source[1]["image"] == Path("/b.jpg")


class Raising:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        if index:
            raise RuntimeError("the disk is gone")
        return {"image": b"x"}


def test_an_unreadable_row_breaks_only_itself():
    source = read.rows(Raising())
    assert source[0]["image"] == b"x"
    with pytest.raises(pp.ImageError, match=r"\[UNREADABLE\] row 1: RuntimeError: the disk is gone"):
        source[1]


def test_a_tag_distinguishes_rows():
    assert read.rows([{"image": b"x"}], tag="a").fingerprint != read.rows([{"image": b"x"}], tag="b").fingerprint


def test_columns_are_read_as_rows():
    source = read.rows({"image": [b"a", b"b"], "label": [3, 4]}, label="label")
    assert source[1] == {"name": "row 1", "image": b"b", "label": 4}
