"""Generates test images: synthetic photos, and images that are difficult to decode or resize exactly."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Array = npt.NDArray[Any]
U8 = npt.NDArray[np.uint8]
PNG: dict[str, Any] = {"format": "PNG", "compress_level": 1}


def png(pixels: U8) -> bytes:
    """Encode a uint8 image of shape (height, width, 3) or (height, width) as PNG."""
    return encoded(pixels, **PNG)


def encoded(pixels: U8, *, format: str = "JPEG", **options: Any) -> bytes:  # noqa: A002
    """Encode a uint8 image with Pillow.

    Args:
        pixels: Image of shape (height, width), (height, width, 3) or (height, width, 4).
        format: Format as in ``PIL.Image.Image.save``.
        options: Options of the format.
    """
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, format, **options)
    return file.getvalue()


@cache
def generated() -> tuple[tuple[str, bytes], ...]:
    """Return the test images as pairs (name, encoded bytes). The name contains the height and width of the image."""
    photo, on_its_side = like_photo(480, 640), Image.Exif()
    on_its_side[0x0112] = 6
    images: list[tuple[str, U8, dict[str, Any]]] = [
        ("photo", photo, {"quality": 90}),
        ("photo progressive", like_photo(427, 300), {"quality": 85, "progressive": True}),
        ("photo 4:4:4", photo[:333, :251], {"quality": 95, "subsampling": 0}),
        ("photo 4:2:2", photo[:275, 3:400], {"quality": 75, "subsampling": 1}),
        ("photo large", like_photo(900, 1201), {"quality": 90}),
        ("photo coarse", photo[60:260, 40:240], {"quality": 10}),
        ("photo gray", photo[:300, :407, 1], {"quality": 90}),
        ("photo on its side", photo[:240, :320], {"quality": 90, "exif": on_its_side}),
        ("photo small", photo[:97, :131], {"quality": 90}),
        ("gradient upright", gradient(601, 83), {"quality": 92}),
        ("noise 4:2:0", noise(173, 229), {"quality": 100}),
        ("noise upright", noise(800, 301), {"quality": 80}),  # tall enough for Pillow 12 and 13 to differ
        ("photo tiny", photo[:7, :5], PNG),
        ("photo 224", photo[:224, :224], PNG),
        ("photo 448", photo[:448, :448], PNG),
        ("photo with alpha", np.dstack([photo[100:300, 100:377], gradient(200, 277)[:, :, 0]]), PNG),
        ("gradient", gradient(320, 240), PNG),
        ("noise", noise(256, 341), PNG),
        ("noise small", noise(61, 47), PNG),
        ("checkerboard 1", checkerboard(300, 301, 1), PNG),
        ("checkerboard 3", checkerboard(259, 260, 3), PNG),
        ("checkerboard 14", checkerboard(280, 410, 14), PNG),
        ("one pixel", noise(1, 1), PNG),
        ("one row", noise(1, 37), PNG),
        ("one column", noise(29, 1), PNG),
        ("strip", noise(16, 300), PNG),
    ]
    return tuple((f"{name} {len(x)}x{x.shape[1]}", encoded(x, **options)) for name, x, options in images)


def noise(height: int, width: int, seed: int = 0) -> U8:
    """Return an image of uniform noise, with shape (height, width, 3).

    The noise is the same on all machines and with all versions of NumPy. Each value is a hash of the value's index,
    computed with the finalizer of MurmurHash3 (Appleby 2011).
    """
    x = np.arange(height * width * 3, dtype=np.uint32) + np.uint32((seed * 0x9E3779B9) & 0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return (x >> np.uint32(24)).astype(np.uint8).reshape(height, width, 3)


def gradient(height: int, width: int) -> U8:
    """Return an image in which red increases to the right, green increases downwards, and blue decreases in both."""
    rows, columns = np.indices((height, width))
    red, green = columns * 255 // max(width - 1, 1), rows * 255 // max(height - 1, 1)
    return np.dstack([red, green, 255 - (red + green) // 2]).astype(np.uint8)


def checkerboard(height: int, width: int, cell: int) -> U8:
    """Return a black and white checkerboard, which results in moiré patterns if it is resized without antialiasing."""
    rows, columns = np.indices((height, width)) // cell
    return np.repeat(((rows + columns) % 2 * 255).astype(np.uint8)[:, :, None], 3, axis=2)


def like_photo(height: int, width: int) -> U8:
    """Return noise whose amplitude decreases with frequency, as in photos (Field 1987), and a dark rectangle."""
    values = np.random.default_rng((height, width)).standard_normal((height, width, 3))
    spectrum = np.fft.rfft2(values, axes=(0, 1))
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])[:, :, None]
    frequency[0, 0] = 1.0
    smooth = np.fft.irfft2(spectrum / frequency, s=(height, width), axes=(0, 1))
    smooth[height // 3 : height // 2, width // 5 : width // 2] -= smooth.std()
    levels: U8 = np.clip(np.rint(128 + smooth / smooth.std() * 55), 0, 255).astype(np.uint8)
    return levels
