"""Images to verify with, made from nothing: what resizers and decoders get wrong, and one that is like a photo."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

U8 = npt.NDArray[np.uint8]


def png(pixels: U8) -> bytes:
    """The lossless bytes of uint8 (height, width, 3)."""
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG", compress_level=1)
    return file.getvalue()


@cache
def generated() -> tuple[tuple[str, bytes], ...]:
    """Each image's name, with its height and width, and its encoded bytes."""
    images = []
    photo = like_photo(480, 640)
    for name, pixels, kind, options in (
        ("photo", photo, "JPEG", {"quality": 90}),
        ("photo progressive", like_photo(427, 300), "JPEG", {"quality": 85, "progressive": True}),
        ("photo 4:4:4", photo[:333, :251], "JPEG", {"quality": 95, "subsampling": 0}),
        ("photo 4:2:2", photo[:275, 3:400], "JPEG", {"quality": 75, "subsampling": 1}),
        ("photo large", like_photo(900, 1201), "JPEG", {"quality": 90}),
        ("photo coarse", photo[60:260, 40:240], "JPEG", {"quality": 10}),
        ("photo gray", photo[:300, :407, 1], "JPEG", {"quality": 90}),
        ("photo on its side", photo[:240, :320], "JPEG", {"quality": 90, "exif": _turned(6)}),
        ("photo small", photo[:97, :131], "JPEG", {"quality": 90}),
        ("photo tiny", photo[:7, :5], "PNG", {}),
        ("photo 224", photo[:224, :224], "PNG", {}),
        ("photo 448", photo[:448, :448], "PNG", {}),
        ("photo with alpha", _with_alpha(photo[100:300, 100:377]), "PNG", {}),
        ("gradient", gradient(320, 240), "PNG", {}),
        ("gradient upright", gradient(601, 83), "JPEG", {"quality": 92}),
        ("noise", noise(256, 341), "PNG", {}),
        ("noise small", noise(61, 47), "PNG", {}),
        ("noise 4:2:0", noise(173, 229), "JPEG", {"quality": 100}),
        ("checkerboard 1", checkerboard(300, 301, 1), "PNG", {}),
        ("checkerboard 3", checkerboard(259, 260, 3), "PNG", {}),
        ("text", text(280, 410), "PNG", {}),
        ("text 4:2:0", text(400, 251), "JPEG", {"quality": 80}),
        ("one pixel", noise(1, 1), "PNG", {}),
        ("one row", noise(1, 37), "PNG", {}),
        ("one column", noise(29, 1), "PNG", {}),
        ("strip", noise(16, 300), "PNG", {}),
    ):
        file = io.BytesIO()
        image = Image.fromarray(pixels)
        image.save(file, kind, **options)
        images.append((f"{name} {image.height}x{image.width}", file.getvalue()))
    return tuple(images)


def noise(height: int, width: int, seed: int = 0) -> U8:
    """uint8 (height, width, 3) without any pattern: equal on every machine, in every version of NumPy.

    A number of each value's place is mixed by multiplications and shifts (the finalizer of MurmurHash3, Appleby 2011).
    """
    x = np.arange(height * width * 3, dtype=np.uint32) + np.uint32((seed * 0x9E3779B9) & 0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    levels: U8 = (x >> np.uint32(24)).astype(np.uint8).reshape(height, width, 3)
    return levels


def gradient(height: int, width: int) -> U8:
    """Red grows to the right, green downwards, blue falls along both."""
    rows, columns = np.indices((height, width))
    red, green = columns * 255 // max(width - 1, 1), rows * 255 // max(height - 1, 1)
    levels: U8 = np.stack([red, green, 255 - (red + green) // 2], axis=2).astype(np.uint8)
    return levels


def checkerboard(height: int, width: int, cell: int) -> U8:
    """Black and white: what a filter that is too narrow turns into moiré."""
    rows, columns = np.indices((height, width)) // cell
    return np.repeat(((rows + columns) % 2 * 255).astype(np.uint8)[:, :, None], 3, axis=2)


def text(height: int, width: int) -> U8:
    """Lines of dark strokes of one to three pixels on white, as of print: sharp edges of every width and distance."""
    page = np.full((height, width, 3), 255, np.uint8)
    strokes = noise(height // 14 + 1, width // 4 + 1, seed=7)
    for line, top in enumerate(range(3, height - 10, 14)):
        for column, left in enumerate(range(2, width - 4, 4)):
            kind, thickness, ink = map(int, strokes[line, column])
            if kind > 50:
                page[top + kind % 5 : top + 10, left : left + 1 + thickness % 3] = ink // 4
    return page


def like_photo(height: int, width: int) -> U8:
    """Noise whose amplitude falls with the frequency, as in photographs (Field 1987), with some of a sharp edge."""
    values = np.random.default_rng((height, width)).standard_normal((height, width, 3))
    spectrum = np.fft.rfft2(values, axes=(0, 1))
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])[:, :, None]
    frequency[0, 0] = 1.0
    smooth = np.fft.irfft2(spectrum / frequency, s=(height, width), axes=(0, 1))
    smooth[height // 3 : height // 2, width // 5 : width // 2] -= smooth.std()
    levels = 128 + smooth / max(float(smooth.std()), 1e-9) * 55
    photo: U8 = np.clip(np.rint(levels), 0, 255).astype(np.uint8)
    return photo


def _with_alpha(pixels: U8) -> U8:
    alpha = gradient(*pixels.shape[:2])[:, :, :1]
    return np.concatenate([pixels, alpha], axis=2)


def _turned(orientation: int) -> Any:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif
