"""Tests ``read.tar``: WebDataset's keys and suffixes, for archives that were written by any program."""

import tarfile

import pytest

from pixprep import read
from support.broken_data import small_jpeg
from support.records import refusals, tar_bytes, tar_members


def write(path, *members, **options):
    path.write_bytes(tar_bytes(members, **options))
    return path


def test_a_sample_is_its_members_by_suffix(tmp_path):
    source = read.tar(write(tmp_path / "a.tar", *tar_members(3)), about="json", text="txt", raw="jpg")
    assert source[2] == {
        "name": "a.tar, some/0002",
        "key": "some/0002",
        "image": small_jpeg(2),
        "label": 0,
        "about": {"index": 2},
        "text": "photo 2 é",
        "raw": small_jpeg(2),
    }


def test_files_are_read_one_after_the_other(tmp_path):
    write(tmp_path / "1.tar", *tar_members(2, 3))
    write(tmp_path / "0.tar", *tar_members(3))
    assert [sample["key"] for sample in read.tar(tmp_path / "*.tar")] == [f"some/{n:04}" for n in range(5)]


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_kind_of_tar_is_read_with_long_and_non_ascii_names(tmp_path, kind):
    folder = "/".join(["a" * 40] * 4) if kind == tarfile.USTAR_FORMAT else "é" * 30 + "/" + "b" * 200
    members = [(f"{folder}/{n}.JPG", small_jpeg(n)) for n in range(3)]
    source = read.tar(write(tmp_path / "a.tar", ("d/", {"type": tarfile.DIRTYPE}), *members, format=kind), label=None)
    assert [(sample["key"], sample["image"]) for sample in source] == [
        (f"{folder}/{n}", small_jpeg(n)) for n in range(3)
    ]


def test_a_key_ends_at_the_first_dot_of_the_base_name(tmp_path):
    members = [("v1.0/x.left.jpg", b"L"), ("v1.0/x.right.jpg", b"R"), ("v1.0/x.cls", b" 7\n")]
    source = read.tar(write(tmp_path / "a.tar", *members), image="left.jpg", right="right.jpg")
    assert source[0] == {"name": "a.tar, v1.0/x", "key": "v1.0/x", "image": b"L", "right": b"R", "label": 7}


def test_members_without_a_suffix_and_hidden_ones_are_skipped(tmp_path):
    members = [("README", b"x"), (".DS_Store", b"x"), ("a.jpg", b"x"), ("x/._a.jpg", b"x")]
    source = read.tar(write(tmp_path / "a.tar", *members), label=None)
    assert [sample["key"] for sample in source] == ["a"]
    assert source.notes == ("a.tar: 3 members were skipped, because the name has no suffix or begins with a dot",)


def test_any_of_several_suffixes_is_the_image(tmp_path):
    source = read.tar(write(tmp_path / "a.tar", ("a.png", b"1"), ("b.JPEG", b"2")), label=None)
    assert [sample["image"] for sample in source] == [b"1", b"2"]


def test_an_invalid_sample_breaks_only_itself(tmp_path):
    good = [[(f"{name}.jpg", b"x"), (f"{name}.cls", b"1")] for name in "ac"]
    source = read.tar(write(tmp_path / "t.tar", *good[0], ("b.jpg", b"x"), *good[1]))
    assert refusals(source) == {1: "[BAD_RECORD] t.tar, b: has no member with the suffix .cls"}
    assert (len(source), source[2]["key"]) == (3, "c")


def test_separated_members_break_their_sample(tmp_path):
    members = [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"3"), ("b.cls", b"4"), ("c.jpg", b"5"), ("c.cls", b"6")]
    source = read.tar(write(tmp_path / "t.tar", *members))
    found = refusals(source)
    assert list(found) == [0, 1, 2, 3]
    assert all("the members are not adjacent" in text for text in found.values())
    assert source[4]["label"] == 6


@pytest.mark.parametrize("left", [100, 512, 700])
def test_a_truncated_file_breaks_its_last_sample(tmp_path, left):
    members = list(tar_members(2))
    start = len(tar_bytes(members[:4])) // 10240 and sum(512 + -(-len(data) // 512) * 512 for _, data in members[:4])
    data = tar_bytes(members)
    (tmp_path / "t.tar").write_bytes(data[: start + left])
    source = read.tar(tmp_path / "t.tar")
    (text,) = refusals(source).values()
    assert text.startswith("[TRUNCATED] t.tar, ") if left != 512 else "[TRUNCATED]" in text
    assert len(source) == 2
    assert source.notes


def test_the_last_member_may_end_at_the_end_of_the_file_but_not_after_it(tmp_path):
    """A file that is truncated directly after its last byte of data lacks only the padding of the block."""
    data = tar_bytes([("a.jpg", b"photo"), ("a.cls", b"17")])
    end = 3 * 512 + 2
    (tmp_path / "t.tar").write_bytes(data[:end])
    source = read.tar(tmp_path / "t.tar")
    assert (source[0]["image"], source[0]["label"], source.notes) == (b"photo", 17, ())
    (tmp_path / "t.tar").write_bytes(data[: end - 1])
    source = read.tar(tmp_path / "t.tar")
    assert refusals(source) == {0: "[TRUNCATED] t.tar, a: the tar file ends 1 byte before the end of this member"}
    assert source.notes == ("t.tar: the file is truncated in the member a.cls",)


def test_a_broken_header_breaks_the_following_samples_and_is_noted(tmp_path):
    data = bytearray(tar_bytes(list(tar_members(3))))
    first = sum(512 + -(-len(content) // 512) * 512 for _, content in tar_members(1))
    data[first + 3] ^= 1
    (tmp_path / "t.tar").write_bytes(data)
    source = read.tar(tmp_path / "t.tar")
    text = f"corrupt header at byte {first:,}: the {len(data) - first:,} bytes from there cannot be read"
    assert refusals(source) == {1: f"[CORRUPT] t.tar, byte-{first}: {text}"}
    assert source.notes == (f"t.tar: {text}",)


def test_a_concatenated_archive_is_noted(tmp_path):
    one = tar_bytes(list(tar_members(1)))
    (tmp_path / "t.tar").write_bytes(one + one)
    (note,) = read.tar(tmp_path / "t.tar").notes
    assert "the data after its end is ignored" in note
