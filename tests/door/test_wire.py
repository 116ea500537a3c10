"""Tests of the parser for Protocol Buffers' wire format: it skips unknown fields, and rejects field number 0, which is
invalid.
"""

import pytest

from pixprep import wire

OWN = bytes([2 << 3, 7])


@pytest.mark.parametrize(
    "other",
    [bytes([1 << 3]) + b"\x80\x01", bytes([1 << 3 | 1]) + bytes(8), bytes([1 << 3 | 2, 3]) + b"abc",
     bytes([1 << 3 | 5]) + bytes(4)],
    ids=["a number", "eight bytes", "bytes", "four bytes"],
)  # fmt: skip
def test_a_field_with_a_different_number_is_skipped_completely(other):
    assert wire.read(other + OWN, {2: "integer"}, is_open=True) == {2: [7]}
    with pytest.raises(wire.WireError, match="unexpected field number 1"):
        wire.read(other + OWN, {2: "integer"})


def test_no_message_has_a_field_0():
    with pytest.raises(wire.WireError, match="unexpected field number 0"):
        wire.read(b"\x00\x01", {2: "integer"}, is_open=True)
