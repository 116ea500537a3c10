"""Converts images with more than 8 bits per sample (PNG and TIFF) to 8 bits.

Pillow has a mode for such images if they are gray. Of the others it keeps the high byte of each sample, so that the
low bytes are read by a second decode, in which Pillow takes the file for one of the other byte order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile

from pixprep.errors import ImageError

_OTHER_BYTE = {
    "RGB;16B": "RGB;16L", "RGB;16L": "RGB;16B", "RGB;16N": "RGB;16B",
    "RGBA;16B": "RGBA;16L", "RGBA;16L": "RGBA;16B", "RGBA;16N": "RGBA;16B",
    "RGBX;16L": "RGBX;16B", "RGBX;16B": "RGBX;16L", "RGBX;16N": "RGBX;16B",
}  # fmt: skip
"""Pillow's names for the order of samples and bytes: how the low bytes are read in place of the high ones."""
_GRAY_ALPHA = "LA;16B"
_FEW_LEVELS = 64


def levels(
    image: Any,
    again: Callable[[], Any] | None,
    *,
    bits: int,
    window: tuple[int, int] | None,
    is_inverted: bool,
    is_on_white: bool,
    warn: Callable[[str, str], None],
) -> Image.Image:
    """Return an image with 8 bits per sample, in a mode with one channel per sample.

    Args:
        image: Pillow's, whose pixels are not decoded yet.
        again: Opens the same file once more; None: Pillow gives the high bytes alone, as of planes.
        bits: Number of bits of a sample; a signed sample has 16.
        window: The values that become 0 and 255; None: a sample keeps its high byte.
        is_inverted: White is 0.
        is_on_white: Transparent pixels matter.
        warn: Called with a kind and words where fewer levels remain than the values could have.

    Raises:
        ImageError: UNSUPPORTED: a window of values that Pillow does not give whole; signed values without a window.
    """
    transparent = image.info.get("transparency") if is_on_white else None
    if image.mode == "I" and window is None:
        raise ImageError("UNSUPPORTED", 'signed values of 16 bits, of which only a "window" of decode makes levels')
    if len(image.getbands()) > 1 and window is None and transparent is None:
        return _warned(image, bits, warn)
    values = _values(image, again)
    if is_inverted:
        values = (1 << bits) - 1 - values
    count = 3 if values.shape[2] > 2 else 1
    colors, alpha = values[:, :, :count], values[:, :, count:]
    if transparent is not None:
        alpha = np.where((colors == transparent).all(2, keepdims=True), 0, (1 << bits) - 1)
    made = (windowed(colors, window) if window else colors >> (bits - 8)).astype(np.uint8)
    channels = np.concatenate([made, (alpha >> (bits - 8)).astype(np.uint8)], axis=2)
    found = Image.fromarray(channels[:, :, 0] if channels.shape[2] == 1 else channels)
    return found if window else _warned(found, bits, warn)


def windowed(values: npt.NDArray[Any], window: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """Levels of a window of values, uint16 or int16: see the op ``decode``."""
    low, high = window
    above = np.clip(np.arange(1 << 16, dtype=np.uint16).view(values.dtype).astype(np.int64), low, high) - low
    table: npt.NDArray[np.uint8] = ((510 * above + high - low) // (2 * (high - low))).astype(np.uint8)
    return np.take(table, values.view(np.uint16))


def _values(image: Any, again: Callable[[], Any] | None) -> npt.NDArray[Any]:
    """Samples (height, width, channels) of an image: uint16, or int16 of signed ones."""
    if len(image.getbands()) == 1:
        return np.asarray(image).astype(np.int16 if image.mode == "I" else np.uint16)[:, :, None]
    (kind,) = {_kind(tile) for tile in image.tile}
    if kind == _GRAY_ALPHA:  # four bytes, as of a pixel of RGBA
        return np.array(np.asarray(_with_kind(image, "RGBA")).view(">u2"), np.uint16)
    if again is None or kind not in _OTHER_BYTE:
        raise ImageError(
            "UNSUPPORTED",
            'a "window" of decode needs gray or RGB samples of 16 bits, not in planes, nor multiplied by alpha',
        )
    low = np.asarray(_with_kind(again(), _OTHER_BYTE[kind]))
    values: npt.NDArray[np.uint16] = np.asarray(image).astype(np.uint16) << 8 | low
    return values


def _kind(tile: Any) -> str:
    return str(tile.args if isinstance(tile.args, str) else (tile.args or [""])[0])


def _with_kind(image: ImageFile.ImageFile, kind: str) -> Image.Image:
    """Make Pillow interpret the bytes of an image as a different kind of samples (raw mode)."""
    image.tile = [
        tile._replace(args=kind if isinstance(tile.args, str) else (kind, *(tile.args or ())[1:]))
        for tile in image.tile
    ]
    return image


def _warned(image: Image.Image, bits: int, warn: Callable[[str, str], None]) -> Image.Image:
    """Warn of an image whose high bytes are nearly all alike."""
    ends: Any = image.getextrema()
    bands = [ends] if len(image.getbands()) == 1 else ends[: 1 if image.mode == "LA" else 3]
    low, high = min(low for low, _ in bands), max(high for _, high in bands)
    if high - low < _FEW_LEVELS:
        shift = bits - 8
        warn(
            "bits",
            f"the values of an image with {bits} bits per sample become {high - low + 1} of 256 levels, because decode "
            f'keeps the high byte: give decode a "window", as [{low << shift}, {(high + 1 << shift) - 1}] for this one',
        )
    return image
