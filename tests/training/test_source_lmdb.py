"""Tests LMDB databases: numeric keys, values that contain only an image, and damaged files."""

import pickle

import pytest

import pixprep as pp
from pixprep import read
from pixprep.training.opening import open_source
from support.broken_data import small_jpeg
from support.loading import PLAIN
from support.records import refusals, write_lmdb

pytest.importorskip("lmdb", reason="NO LMDB: pip install lmdb", exc_type=ImportError)


def test_numbered_keys_have_an_image_and_its_text(tmp_path):
    write_lmdb(tmp_path / "words", 3)
    source = read.lmdb(tmp_path / "words", image="image-%09d", text="label-%09d")
    assert source[2] == {"name": "image-000000003", "image": small_jpeg(2), "text": "word 3 é"}
    assert pickle.loads(pickle.dumps(source))[0]["text"] == "word 1 é"  # noqa: S301
    zero = read.lmdb(tmp_path / "words", image="image-%09d", first=0)
    assert refusals(zero) == {0: "[BAD_RECORD] image-000000000: the LMDB has no key 'image-000000000'"}


def test_without_a_pattern_each_value_is_an_image(tmp_path):
    write_lmdb(tmp_path / "photos", 0, b=small_jpeg(1), a=small_jpeg(0))
    source = open_source(f"lmdb:{tmp_path / 'photos'}", {})
    assert [sample["name"] for sample in source] == ["a", "b"]
    with pp.Loader(source, PLAIN, batch_size=2) as loader:
        assert len(next(loader)) == 2


def test_a_broken_value_breaks_only_itself(tmp_path):
    write_lmdb(tmp_path / "words", 3, **{"label-000000002": b"\xff"})
    source = read.lmdb(tmp_path / "words", image="image-%09d", text="label-%09d")
    assert refusals(source) == {
        1: "[BAD_RECORD] image-000000002: the value of the key 'label-000000002' is not valid UTF-8"
    }
    loader = pp.Loader(source, PLAIN, batch_size=1, limits=pp.Limits(max_image_bytes=10))
    with loader, pytest.raises(pp.ImageError, match="TOO_LARGE_BYTES"):
        next(loader)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"num-samples": b"many"}, "the key \"num-samples\" must contain the number of samples, not b'many'"),
        ({}, "the key \"num-samples\" must contain the number of samples, not b''"),
        ({"num-samples": b"0"}, "contains no samples"),
        (
            {"num-samples": b"100000000000000000"},
            'the key "num-samples" declares 100,000,000,000,000,000 samples, but there are only 2 keys: store the '
            "correct number of samples under that key",
        ),
    ],
)
def test_a_database_without_a_count_is_rejected(tmp_path, others, words):
    write_lmdb(tmp_path / "words", 0, x=b"x", **others)
    with pytest.raises(pp.DataError) as caught:
        read.lmdb(tmp_path / "words", image="image-%09d")
    assert str(caught.value) == f"{tmp_path}/words: {words}"


def test_a_file_that_is_not_lmdb_is_rejected(tmp_path):
    (tmp_path / "x").write_bytes(b"x" * 9999)
    with pytest.raises(pp.DataError, match=r"x: cannot be opened as an LMDB: "):
        read.lmdb(tmp_path / "x")
