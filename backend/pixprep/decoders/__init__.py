"""Decoders: encoded bytes in, pixels or the reason why not out. One module a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pixprep.errors import ImageError

Encoded = bytes | bytearray | memoryview
Pixels = Any
"""On the CPU a NumPy array: uint8, C-contiguous, (height, width, 4) RGB and one byte without meaning, so that Pillow
and cykooz-resizer read it without a copy; or (height, width, 1) gray."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is refused from the header, before anything is allocated.

    Attributes:
        max_image_bytes: of one encoded image.
        max_side: of either side, in pixels.
        max_pixels: height x width.
    """

    max_image_bytes: int = 20 << 20
    max_side: int = 16384
    max_pixels: int = 50_000_000

    def check_bytes(self, n_bytes: int) -> None:
        """Raise ImageError EMPTY or TOO_LARGE_BYTES."""
        if n_bytes == 0:
            raise ImageError("EMPTY", "no bytes")
        if n_bytes > self.max_image_bytes:
            raise ImageError("TOO_LARGE_BYTES", f"{n_bytes:,} bytes; the limit is {self.max_image_bytes:,}")

    def check_size(self, height: int, width: int) -> None:
        """Raise ImageError BAD_DIMENSIONS or TOO_MANY_PIXELS."""
        if not (1 <= height <= self.max_side and 1 <= width <= self.max_side):
            raise ImageError("BAD_DIMENSIONS", f"{height} x {width} pixels; a side has 1 to {self.max_side}")
        if height * width > self.max_pixels:
            raise ImageError("TOO_MANY_PIXELS", f"{height} x {width} pixels; the limit is {self.max_pixels:,}")


class Decoder(Protocol):
    """Decodes for one engine; may be called from several of its threads.

    Attributes:
        fallbacks: how many images so far the device refused and the CPU decoded after all.
    """

    fallbacks: int

    def decode(self, encoded: Sequence[Encoded]) -> list[Pixels | ImageError]:
        """Decode images.

        Returns:
            For each, in order, its pixels on the decoder's device or the reason why there are none. The memory belongs
            to the decoder and is reused by the next call from the same thread.
        """
