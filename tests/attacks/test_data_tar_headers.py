"""Attack: A malicious tar file contains members of exabytes or of negative size, names of gigabytes, endless headers of
headers, circular sparse maps, sparse bombs, or arbitrary changed bytes.

Defence: Each size is compared with the remaining size of the file, and each step advances by at least one block. A
header that extends another header may have at most 1 MiB, and a name at most 4,096 characters. The holes of a sparse
file are never allocated.

Outcome: The file or sample is rejected with its name, at little cost of time and memory.
"""

import os
import tarfile
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pixprep as pp
from attacks.repositories import patience
from pixprep import read
from support.records import refusals, tar_bytes

PAIR = [("a.jpg", b"image"), ("a.cls", b"1")]
GOOD = tar_bytes(PAIR)[:2048]
END = bytes(1024)


def header(name="b.jpg", size=b"00000000005\0", kind=b"0", **parts):
    """Return a tar header with a valid checksum. Its fields may be invalid."""
    block = bytearray(tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT))
    block[124:136], block[156:157] = size, kind
    for at, data in parts.items():
        block[int(at[1:]) : int(at[1:]) + len(data)] = data
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data):
    return data + bytes(-len(data) % 512)


def pax(**fields):
    """Return a pax header that sets these fields of the next member."""
    text = b""
    for name, value in fields.items():
        line = f" {name.replace('__', '.')}={value}\n".encode()
        length = len(line) + 1
        while len(str(length)) + len(line) != length:
            length += 1
        text += str(length).encode() + line
    return header("x", b"%011o\0" % len(text), b"x") + padded(text)


FILES = {
    "a size of 8 EiB": GOOD + header(size=b"\x80" + b"\0" * 3 + b"\x7f" + b"\xff" * 7) + bytes(512) + END,
    "a negative size": GOOD + header(size=b"\xff" * 12) + bytes(512) + END,
    "a size of letters": GOOD + header(size=b"0000000000x\0") + bytes(512) + END,
    "a size of eights": GOOD + header(size=b"00000000088\0") + bytes(512) + END,
    "pax: a size of 19 digits": GOOD + pax(size="9" * 18) + header() + padded(b"image") + END,
    "pax: a negative size": GOOD + pax(size="-512") + header() + padded(b"image") + END,
    "pax: a size of a million digits": GOOD + pax(size="9" * 999_000) + header() + padded(b"image") + END,
    "pax: a record longer than all": GOOD + header("x", b"%011o\0" % 512, b"x") + padded(b"999999 a=b\n") + END,
    "pax: a record of no length": GOOD + header("x", b"%011o\0" % 512, b"x") + padded(b"0 a=b\n") + END,
    "pax of 2 GiB": GOOD + header("x", b"%011o\0" % (1 << 31), b"x") + bytes(512) + END,
    "a long name of 2 GiB": GOOD + header("x", b"%011o\0" % (1 << 31), b"L") + bytes(512) + END,
    "a long name of 1 MiB": GOOD
    + header("x", b"%011o\0" % (1 << 20), b"L")
    + b"n" * ((1 << 20) - 4)
    + b".jpg"
    + header()
    + END,
    "a sparse file of 8 EiB": GOOD + header(kind=b"S", _483=b"\x80" + b"\x7f" * 11) + padded(b"image") + END,
    "sparse maps without an end": GOOD + header(kind=b"S", _482=b"\1") + (bytes(504) + b"\1" + bytes(7)) * 999,
    "pax: a sparse bomb": GOOD + pax(GNU__sparse__size="9" * 18) + header() + padded(b"image") + END,
    "a path with a NUL": GOOD + pax(path="../\0b.jpg") + header() + padded(b"image") + END,
    "a control sequence": GOOD + pax(path="\x1b[31m/b.jpg") + header() + padded(b"image") + END,
    "5,000 headers for nothing": GOOD + pax(a="b") * 5_000 + END,
    "5,000 links": GOOD + header(kind=b"2") * 5_000 + END,
}


@pytest.mark.parametrize("name", FILES)
def test_a_lying_tar_breaks_only_the_affected_samples(tmp_path, name):
    (tmp_path / "t.tar").write_bytes(FILES[name])
    tracemalloc.start()
    with patience(20):
        source = read.tar(tmp_path / "t.tar")
        errors = refusals(source).values()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert source[0]["image"] == b"image"
    assert all(text.startswith("[") and len(text) < 9000 for text in errors)
    assert errors or name in ("5,000 headers for nothing", "a path with a NUL")
    assert peak < 32 << 20


@pytest.mark.parametrize("is_pax", [False, True])
@pytest.mark.parametrize("kind", [b"1", b"2", b"3", b"4", b"5", b"6"])
def test_links_devices_and_folders_have_no_data_whatever_they_declare(tmp_path, kind, is_pax):
    """If the declared data were skipped, the member that is hidden in the data would also be skipped. tarfile finds
    this member.
    """
    hidden = header("c.jpg") + padded(b"hello") + header("c.cls", b"00000000001\0") + padded(b"7")
    size = len(hidden)
    link = pax(size=str(size)) + header(kind=kind) if is_pax else header(size=b"%011o\0" % size, kind=kind)
    (tmp_path / "t.tar").write_bytes(GOOD + link + hidden + END)
    with tarfile.open(tmp_path / "t.tar") as archive:
        assert archive.getnames() == ["a.jpg", "a.cls", "b.jpg", "c.jpg", "c.cls"]
    source = read.tar(tmp_path / "t.tar")
    assert (source[0]["image"], len(source)) == (b"image", 2 if kind == b"5" else 3)
    last = source[len(source) - 1]
    assert (last["image"], last["label"]) == (b"hello", 7)


def test_members_after_a_sparse_file_with_several_maps_equal_tarfiles(tmp_path):
    """In GNU's old format, a flag announces that a further map follows. The header and every map except the last one
    contain this flag.
    """
    maps = bytes(504) + b"\1" + bytes(7) + bytes(512)
    sparse = header("s.bin", kind=b"S", _482=b"\1") + maps + padded(b"12345")
    (tmp_path / "t.tar").write_bytes(GOOD + sparse + header("c.jpg") + padded(b"hello") + END)
    with tarfile.open(tmp_path / "t.tar") as archive:
        assert archive.getnames() == ["a.jpg", "a.cls", "s.bin", "c.jpg"]
    source = read.tar(tmp_path / "t.tar")
    assert source[0]["image"] == b"image"
    assert refusals(source) == {
        1: "[BAD_RECORD] t.tar, s: the member .bin is a sparse file, which is not supported",
        2: "[BAD_RECORD] t.tar, c: has no member with the suffix .cls",
    }


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000])
def test_an_endlessly_nested_member_breaks_its_sample(tmp_path, data):
    (tmp_path / "t.tar").write_bytes(
        tar_bytes([*PAIR, ("b.jpg", b"image"), ("b.json", data), ("c.jpg", b"i"), ("c.json", b"[1]")])
    )
    source = read.tar(tmp_path / "t.tar", label="json")
    assert source[2]["label"] == [1]
    assert refusals(source)[1].startswith("[BAD_RECORD] t.tar, b: the member .json is invalid: ")


@pytest.mark.parametrize("name", ["b.jpg", "b.txt"])
def test_a_sparse_file_of_gigabytes_breaks_its_sample(tmp_path, name):
    """A sparse member of 3 GiB of zeros used to need 2 GiB of memory."""
    path = tmp_path / "t.tar"
    other = b"" if name == "b.jpg" else header() + padded(b"image")
    path.write_bytes(GOOD + other + header(name, b"%011o\0" % (3 << 30)))
    os.truncate(path, path.stat().st_size + (3 << 30))
    source = read.tar(path, label=None, text="txt" if name == "b.txt" else None)
    tracemalloc.start()
    with patience():
        text = refusals(source)[1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    what = "has 3,221,225,472 bytes, but the limit is 268,435,456 (parameter max_image_bytes)"
    assert text == f"[TOO_LARGE_BYTES] t.tar, b: {what}"
    assert peak < 32 << 20


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 255)), max_size=4), st.integers(1, 6144))
def test_any_change_leaves_samples_or_named_errors(tmp_path_factory, changes, size):
    data = bytearray(tar_bytes([*PAIR, ("b.jpg", b"image"), ("b.cls", b"2")]))
    for at, value in changes:
        data[at] = value
    path = tmp_path_factory.mktemp("fuzz") / "t.tar"
    path.write_bytes(data[:size])
    try:
        source = read.tar(path)
    except pp.DataError as error:
        assert str(path) in str(error)  # noqa: PT017  (or else there is a source)
        return
    assert all(text.startswith("[") for text in refusals(source).values())
