"""CRC-32C as TFRecord files have it: rotated by 15 bits and shifted by a number."""

from __future__ import annotations

import google_crc32c


def masked(data: bytes) -> int:
    """The checksum of some bytes. Source: tensorflow/core/lib/hash/crc32c.h."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFF_FFFF
