"""The masked CRC-32C checksum of TFRecord files."""

from __future__ import annotations

import google_crc32c


def masked(data: bytes) -> int:
    """Return the CRC-32C of the data, rotated by 15 bits plus a constant, as in tensorflow/core/lib/hash/crc32c.h."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFF_FFFF
