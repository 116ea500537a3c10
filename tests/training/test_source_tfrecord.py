"""Tests ``read.tfrecord``: records, checksums, features, and DALI's index."""

import gzip
import os
import subprocess
import sys
import zlib
from importlib.util import find_spec

import numpy as np
import pytest

import pixprep as pp
from pixprep import read
from support.broken_data import small_jpeg
from support.records import example, flower, masked_crc, record, refusals, write_tfrecord

LABEL = {"label": "image/class/label"}

needs_crc = pytest.mark.skipif(
    find_spec("google_crc32c") is None, reason="google-crc32c is not installed: pip install google-crc32c"
)


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_the_helpers_checksum_is_crc32c():
    crc = masked_crc(b"123456789") - 0xA282EAD8 & 0xFFFFFFFF
    assert (crc >> 17 | crc << 15) & 0xFFFFFFFF == 0xE3069283  # this is the check value in the CRC catalogue


@needs_crc
def test_pixpreps_checksum_equals_the_helpers():
    from pixprep.training.sources.checksum import masked  # noqa: PLC0415  (only if google_crc32c is installed)

    for data in (b"", b"123456789", os.urandom(999)):
        assert masked(data) == masked_crc(data)


@needs_crc
def test_records_of_all_files_are_in_order(tmp_path):
    write_tfrecord(tmp_path / "b-1", 2, 3)
    write_tfrecord(tmp_path / "b-0", 3)
    (tmp_path / "b-2").write_bytes(b"")
    source = read.tfrecord(tmp_path / "b-*", name="name", **LABEL)
    assert [sample["name"] for sample in source] == ["n0", "n1", "n2", "n3", "n4"]
    assert [sample["label"] for sample in source] == [0, 1, 0, 1, 0]
    assert bytes(source[3]["image"]) == small_jpeg(3)
    assert read.tfrecord([tmp_path / "b-1", tmp_path / "b-0"])[0]["name"] == "b-1, record 0"


@needs_crc
def test_a_wrong_checksum_of_the_data_breaks_its_record(tmp_path):
    (_, (start, size), _) = write_tfrecord(tmp_path / "t", 3)
    data = (tmp_path / "t").read_bytes()
    (tmp_path / "t").write_bytes(flipped(data, start + size // 2))
    assert refusals(read.tfrecord(tmp_path / "t")) == {1: "[CORRUPT] t, record 1: the checksum of the data is wrong"}
    assert refusals(read.tfrecord(tmp_path / "t", checksums=False)) == {}


@needs_crc
def test_data_after_a_broken_length_is_one_sample_and_a_note(tmp_path):
    (_, (start, _), _, _) = write_tfrecord(tmp_path / "a", 4)
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(flipped(data, start + 1))
    write_tfrecord(tmp_path / "b", 2)
    source = read.tfrecord([tmp_path / "a", tmp_path / "b"])
    lost = f"the {len(data) - start:,} bytes from there cannot be read"
    text = f"the checksum of the length at byte {start:,} is wrong: {lost}"
    assert refusals(source) == {1: f"[CORRUPT] a, record 1: {text}"}
    assert len(source) == 4
    assert source.notes == (f"{tmp_path}/a: {text}",)


@pytest.mark.parametrize("checksums", [pytest.param(True, marks=needs_crc), False])
@pytest.mark.parametrize("left", [1, 11, 12, 13, 500])
def test_a_truncated_file_breaks_its_last_record(tmp_path, left, checksums):
    (_, (start, _)) = write_tfrecord(tmp_path / "t", 2)
    os.truncate(tmp_path / "t", start + left)
    source = read.tfrecord(tmp_path / "t", checksums=checksums)
    assert len(source) == 2
    (text,) = refusals(source).values()
    assert text.startswith("[TRUNCATED] t, record 1: the file is truncated in ")
    assert source.notes


def test_a_file_that_changes_after_the_scan_is_detected(tmp_path):
    (_, (start, size)) = write_tfrecord(tmp_path / "t", 2)
    source = read.tfrecord(tmp_path / "t", checksums=False)
    os.truncate(tmp_path / "t", start + 20)
    assert refusals(source) == {
        1: f"[TRUNCATED] t, record 1: only 20 of {size:,} bytes are left: the file has changed since it was opened"
    }


@pytest.mark.parametrize("checksums", [pytest.param(True, marks=needs_crc), False])
def test_dalis_index_replaces_the_scan(tmp_path, checksums):
    rows = write_tfrecord(tmp_path / "t", 4)
    (tmp_path / "t.idx").write_text("".join(f"{offset} {size}\n" for offset, size in rows[::2]))
    source = read.tfrecord(tmp_path / "t", index=tmp_path / "t.idx", checksums=checksums, name="name")
    assert [sample["name"] for sample in source] == ["n0", "n2"]


def test_an_index_of_a_different_file_breaks_its_records(tmp_path):
    rows = write_tfrecord(tmp_path / "t", 3)
    (tmp_path / "i").write_text(f"0 {rows[0][1]}\n{rows[1][0] + 1} 40\n")
    source = read.tfrecord(tmp_path / "t", index=tmp_path / "i", checksums=False)
    assert refusals(source) == {1: "[CORRUPT] t, record 1: the stored length differs from the 24 bytes of the record"}


def write(path, *examples):
    path.write_bytes(b"".join(map(record, examples)))
    return path


def test_a_feature_is_a_value_if_given_by_name_and_an_array_in_a_list(tmp_path):
    data = example(i=[b"x"], n=[7], ns=[-1, 5], f=[0.5], fs=[1.5, 2.5], b=[b"\xff"], bs=[b"1", b"2"], none=[])
    source = read.tfrecord(
        write(tmp_path / "t", data), image="i", checksums=False, n="n", ns=["ns"], f="f", fs=["fs"], b="b", bs=["bs"],
        none=["none"], labels="ns",
    )  # fmt: skip
    sample = source[0]
    assert (sample["n"], sample["f"], sample["b"], sample["bs"]) == (7, 0.5, b"\xff", [b"1", b"2"])
    assert [sample[name].tolist() for name in ("ns", "fs", "none", "labels")] == [[-1, 5], [1.5, 2.5], [], [-1, 5]]
    assert (sample["ns"].dtype, sample["fs"].dtype) == (np.int64, np.float32)


def test_normalized_boxes_are_converted_to_pixels(tmp_path):
    sides = ("xmin", "ymin", "xmax", "ymax")
    data = example(
        i=[b"x"], h=[100], w=[200], xmin=[0.25, 0.0], ymin=[0.5, 0.0], xmax=[0.75, 1.0], ymax=[1.0, 1.0], c=[3, 4]
    )
    fields = {"image": "i", "labels": "c", "checksums": False, "boxes": sides}
    sample = read.tfrecord(write(tmp_path / "t", data), size=("h", "w"), **fields)[0]
    assert sample["boxes"].tolist() == [[50, 50, 150, 100], [0, 0, 200, 100]]
    assert (sample["size"], sample["labels"].tolist(), sample["boxes"].dtype) == ((100, 200), [3, 4], np.float32)
    assert read.tfrecord(tmp_path / "t", normalized=False, **fields)[0]["boxes"][0].tolist() == [0.25, 0.5, 0.75, 1.0]
    assert read.tfrecord(tmp_path / "t", **fields)[0]["boxes"].pixels(100, 200).tolist() == sample["boxes"].tolist()
    corners = read.tfrecord(tmp_path / "t", box_format="xywh_normalized", size=("h", "w"), **fields)[0]["boxes"]
    assert corners.tolist() == [[50, 50, 200, 150], [0, 0, 200, 100]]


def test_a_record_of_a_different_kind_breaks_itself(tmp_path):
    good = example(image__encoded=[b"x"])
    source = read.tfrecord(write(tmp_path / "t", good, b"not a message", good), checksums=False)
    assert list(refusals(source)) == [1]


def test_invalid_boxes_break_their_record(tmp_path):
    sides = ("a", "b", "c", "d")
    good = {"image__encoded": [b"x"], "a": [1.0], "b": [1.0], "c": [2.0], "d": [2.0], "l": [1]}
    wrong = [good, good | {"c": [0.5]}, good | {"a": [float("nan")]}, good | {"a": [1.0, 1.0]}, good | {"l": [1, 2]}]
    path = write(tmp_path / "t", *(example(**features) for features in wrong))
    source = read.tfrecord(path, boxes=sides, normalized=False, labels="l", checksums=False)
    assert list(refusals(source)) == [1, 2, 3, 4]


@needs_crc
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"not a record at all", "the checksum of the length at byte 0 is wrong"),
        (b"", "contains no records"),
        (gzip.compress(record(flower(0))), "is compressed: decompress it first, with gunzip t"),
    ],
)
def test_a_file_that_is_not_tfrecord_is_one_error(tmp_path, content, text):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(pp.DataError) as caught:
        read.tfrecord(tmp_path / "t")
    assert str(caught.value).startswith(f"{tmp_path}/t: {text}")


@pytest.mark.parametrize(
    ("compress", "command"), [(gzip.compress, "gunzip"), (zlib.compress, "zlib-flate -uncompress <")]
)
def test_a_compressed_file_is_rejected_even_without_checksums(tmp_path, compress, command):
    (tmp_path / "t").write_bytes(compress(record(flower(0))))
    with pytest.raises(pp.DataError, match=f"t: is compressed: decompress it first, with {command} t$"):
        read.tfrecord(tmp_path / "t", checksums=False)


def test_without_the_checksum_library_the_error_names_the_fix(tmp_path):
    write_tfrecord(tmp_path / "t", 2)
    code = (
        "import sys; sys.modules['google_crc32c'] = None\n"  # imports fail as if the library was not installed
        "import pixprep as pp\n"
        "print(len(pp.read.tfrecord('t', checksums=False)))\n"
        "try:\n    pp.read.tfrecord('t')\nexcept pp.SetupError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == (
        "2\nchecksums of TFRecord files need google-crc32c: pip install google-crc32c, or pass checksums=False\n"
    )


def test_brackets_in_a_file_name_are_not_a_pattern(tmp_path):
    write_tfrecord(tmp_path / "t[1].tfrecord", 2)
    assert len(read.tfrecord(tmp_path / "t[1].tfrecord", checksums=False)) == 2


def test_300_files_are_read_with_256_open_files(tmp_path):
    for number in range(300):
        write(tmp_path / f"{number:03}", example(image__encoded=[b"%d" % number]))
    source = read.tfrecord(tmp_path / "*", checksums=False)
    assert [bytes(source[index]["image"]) for index in range(300)] == [b"%d" % number for number in range(300)]
    held = [link for link in os.listdir("/proc/self/fd") if is_open(link, tmp_path)]  # noqa: PTH208
    assert len(held) == 256
    del source
    assert not [link for link in os.listdir("/proc/self/fd") if is_open(link, tmp_path)]  # noqa: PTH208


def is_open(link, folder):
    try:
        return os.readlink(f"/proc/self/fd/{link}").startswith(str(folder))  # noqa: PTH115
    except OSError:
        return False
