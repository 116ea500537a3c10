"""Convert images with more than 8 bits per sample (PNG and TIFF) to 8 bits.

Pillow has a mode for such images if they are gray. From color images it keeps only the high byte of each sample. The
low bytes are read in a second decode, in which Pillow is made to assume the opposite byte order.
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
"""Raw mode of Pillow with the opposite byte order, which reads the low instead of the high bytes, for each raw mode."""
_GRAY_ALPHA = "LA;16B"
_FEW_VALUES = 64
"""A warning is logged if the pixel values of an image span fewer values than this."""


def levels(
    image: Any,
    again: Callable[[], Any] | None,
    *,
    bits: int,
    window: tuple[int, int] | None,
    is_inverted: bool,
    keeps_transparency: bool,
    warn: Callable[[str, str], None],
) -> Image.Image:
    """Return an image with 8 bits per sample, in a mode with one channel per sample.

    Args:
        image: Pillow image whose pixels are not decoded yet.
        again: Function that opens the same file again. None if Pillow cannot read the low bytes, for example in planar
            images.
        bits: Number of bits per sample. Signed samples have 16 bits.
        window: Sample values that are mapped to 0 and 255. None means that the high byte of each sample is kept.
        is_inverted: Whether the value 0 is white.
        keeps_transparency: Whether transparent pixels must be preserved, so that they can be composited later.
        warn: Function that is called with the kind of a warning and its message if the result has only a few distinct
            pixel values.

    Raises:
        ImageError: UNSUPPORTED: A window is specified and Pillow cannot read all bytes of the samples, or the samples
            are signed and no window is specified.
    """
    transparent = image.info.get("transparency") if keeps_transparency else None
    if image.mode == "I" and window is None:
        raise ImageError(
            "UNSUPPORTED", 'an image with signed 16-bit samples: set "window" in decode to convert them to 8 bits'
        )
    if len(image.getbands()) > 1 and window is None and transparent is None:
        return _warned(image, bits, warn)
    values = _values(image, again)
    if is_inverted:
        values = (1 << bits) - 1 - values
    count = 3 if values.shape[2] > 2 else 1
    colors, alpha = values[:, :, :count], values[:, :, count:]
    if transparent is not None:
        alpha = np.where((colors == transparent).all(2, keepdims=True), 0, (1 << bits) - 1)
    converted = (windowed(colors, window) if window else colors >> (bits - 8)).astype(np.uint8)
    channels = np.concatenate([converted, (alpha >> (bits - 8)).astype(np.uint8)], axis=2)
    found = Image.fromarray(channels[:, :, 0] if channels.shape[2] == 1 else channels)
    return found if window else _warned(found, bits, warn)


def stored(image: Any, again: Callable[[], Any]) -> npt.NDArray[Any]:
    """Return the samples of an image with all their bits, (height, width) or (height, width, channels).

    Args:
        image: Pillow image whose pixels are not decoded yet.
        again: Function that opens the same file again.

    Raises:
        ImageError: BAD_RECORD: Pillow cannot read the low bytes of the samples.
    """
    kinds = {_kind(tile) for tile in image.tile}
    if len(image.getbands()) == 1 or not any(";16" in kind for kind in kinds):
        return np.asarray(image)
    if len(kinds) > 1 or not kinds <= {*_OTHER_BYTE, _GRAY_ALPHA}:
        fix = "save the values as .npy or as a PNG"
        raise ImageError(
            "BAD_RECORD", f"has planar or premultiplied samples of 16 bits, which are not supported: {fix}"
        )
    return _values(image, again)


def windowed(values: npt.NDArray[Any], window: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """Map a window of uint16 or int16 values linearly to 0 to 255; see ``window`` of the op ``decode``."""
    low, high = window
    above = np.clip(np.arange(1 << 16, dtype=np.uint16).view(values.dtype).astype(np.int64), low, high) - low
    table: npt.NDArray[np.uint8] = ((510 * above + high - low) // (2 * (high - low))).astype(np.uint8)
    return np.take(table, values.view(np.uint16))


def _values(image: Any, again: Callable[[], Any] | None) -> npt.NDArray[Any]:
    """Return the samples of an image, (height, width, channels), as uint16, or int16 if they are signed."""
    if len(image.getbands()) == 1:
        return np.asarray(image).astype(np.int16 if image.mode == "I" else np.uint16)[:, :, None]
    (kind,) = {_kind(tile) for tile in image.tile}
    if kind == _GRAY_ALPHA:  # read the four bytes of a pixel as RGBA
        return np.array(np.asarray(_with_kind(image, "RGBA")).view(">u2"), np.uint16)
    if again is None or kind not in _OTHER_BYTE:
        raise ImageError(
            "UNSUPPORTED",
            '"window" of decode requires gray or RGB samples of 16 bits that are not planar or premultiplied by alpha',
        )
    low = np.asarray(_with_kind(again(), _OTHER_BYTE[kind]))
    values: npt.NDArray[np.uint16] = np.asarray(image).astype(np.uint16) << 8 | low
    return values


def _kind(tile: Any) -> str:
    return str(tile.args if isinstance(tile.args, str) else (tile.args or [""])[0])


def _with_kind(image: ImageFile.ImageFile, kind: str) -> Image.Image:
    """Make Pillow read the samples of an image in a different raw mode."""
    image.tile = [
        tile._replace(args=kind if isinstance(tile.args, str) else (kind, *(tile.args or ())[1:]))
        for tile in image.tile
    ]
    return image


def _warned(image: Image.Image, bits: int, warn: Callable[[str, str], None]) -> Image.Image:
    """Return the image, and warn if its pixel values span only a small part of the range 0 to 255."""
    ends: Any = image.getextrema()
    bands = [ends] if len(image.getbands()) == 1 else ends[: 1 if image.mode == "LA" else 3]
    low, high = min(low for low, _ in bands), max(high for _, high in bands)
    if high - low < _FEW_VALUES:
        shift = bits - 8
        warn(
            "bits",
            f"an image with {bits} bits per sample has only {high - low + 1} of 256 pixel values, because decode keeps "
            f'the high byte: set "window" in decode, such as [{low << shift}, {(high + 1 << shift) - 1}] here',
        )
    return image
