"""Attack: A malicious TFRecord file contains lengths of exabytes with valid checksums, messages that claim more data
than they have, a million fields, or arbitrary changed bytes.

Defence: Each record's length is compared with the remaining size of the file before the record is read. Lengths inside
the record are compared with the record's size.

Outcome: Invalid records are rejected with their names, and the memory used is at most that of the record. If the length
of a record is invalid, the rest of the file counts as one sample, which is rejected.
"""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pixprep as pp
from attacks.repositories import patience
from pixprep import read
from support.records import example, flower, masked_crc, message, record, refusals

LENGTHS = [1 << 20, 1 << 31, 1 << 32, 1 << 62, (1 << 63) - 16, 1 << 63, (1 << 64) - 16, (1 << 64) - 1]
GOOD = record(flower(0))


def errors_and_peak(source):
    """Return the errors of the unreadable samples, and the peak of the memory that Python allocated."""
    tracemalloc.start()
    with patience(60):
        errors = [*refusals(source).values()]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return errors, peak


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_length_of_exabytes_ends_the_file(tmp_path, length, checksums):
    if checksums:
        pytest.importorskip("google_crc32c", reason="pip install google-crc32c")
    header = struct.pack("<Q", length)
    (tmp_path / "t").write_bytes(GOOD + header + struct.pack("<I", masked_crc(header)) + bytes(99))
    source = read.tfrecord(tmp_path / "t", checksums=checksums)
    assert len(source) == 2
    errors, peak = errors_and_peak(source)
    assert len(errors) == 1
    assert errors[0].startswith("[TRUNCATED] t, record 1: the file is truncated in the record at byte")
    assert peak < 1 << 20


DATA = {
    "a length of 2 GiB": b"\x0a\xff\xff\xff\xff\x07" + bytes(99),
    "a length of 16 EiB": b"\x0a" + b"\xff" * 9 + b"\x01" + bytes(99),
    "a number without an end": b"\xff" * 9999,
    "groups in groups": b"\x0b" * 99_999,
    "messages in messages": b"\x0a\x80\x80\x10" * 9999,
    "100,000 features": message(1, message(1, b"\x0a\x00") * 100_000),
    "a name that is no text": message(1, message(1, message(1, b"\xff\xfe") + message(2, b""))),
    "numbers without an end": example(image__encoded=[b"x"]).replace(b"\x0a\x01x", b"\x1a\x01\xff"),
    "nothing": b"",
}


@pytest.mark.parametrize("name", DATA)
def test_a_lying_message_breaks_its_record(tmp_path, name):
    (tmp_path / "t").write_bytes(GOOD + record(DATA[name]) + GOOD)
    errors, peak = errors_and_peak(read.tfrecord(tmp_path / "t", checksums=False))
    assert len(errors) == 1
    assert errors[0].startswith("[BAD_RECORD] t, record 1: ")
    assert len(errors[0]) < 2000
    assert errors[0].isprintable()
    assert peak < 64 << 20


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 3 * len(GOOD) - 1), st.integers(0, 255)), max_size=4), st.booleans())
def test_any_change_leaves_samples_or_named_errors(tmp_path_factory, changes, is_cut):
    data = bytearray(GOOD * 3)
    for at, value in changes:
        data[at] = value
    if is_cut and changes:
        del data[changes[0][0] :]
    path = tmp_path_factory.mktemp("fuzz") / "t"
    path.write_bytes(data)
    try:
        source = read.tfrecord(path, checksums=False, label="image/class/label")
    except pp.DataError as error:
        assert str(path) in str(error)  # noqa: PT017  (or else there is a source)
        return
    errors, _ = errors_and_peak(source)
    assert all(text.startswith("[") and "t, record " in text for text in errors)
