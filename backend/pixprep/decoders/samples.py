"""JPEGs that a decoder is compared with the CPU's by, before it decodes anybody's."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cache

import numpy as np
import numpy.typing as npt
from PIL import Image

U8 = npt.NDArray[np.uint8]

LARGEST_MEAN = 4.0
"""How far a decoder may be from libjpeg-turbo, in levels, on average over a sample. On these, chroma that is not
interpolated is 2.4 to 3.4 levels away; what must not pass is further: chroma or the whole image shifted by a pixel (5.0
and 6.9), a luma of 16 to 235 (5.7), the matrix of BT.709 (5.7), swapped channels (40)."""

_CELL = 12
"""Pixels from colour to colour. Nearer ones bring the first number above and the last ones together."""


@cache
def samples() -> Mapping[str, bytes]:
    """JPEGs, by what they are: of every kind that decoders have ways of their own for. It takes 20 ms, once."""
    odd, upright = _colours(61, 83), _colours(48, 64)
    exif = Image.Exif()
    exif[0x0112] = 6
    encoded = {
        f"{css}{', progressive' * progressive}": _encoded(odd, subsampling=css, progressive=progressive)
        for css in ("4:2:0", "4:2:2", "4:4:4")
        for progressive in (False, True)
    }
    return encoded | {
        "gray": _encoded(odd[:, :, 0]),
        "turned": _encoded(upright, exif=exif.tobytes()),
        "RGB": _encoded(upright, keep_rgb=True),
        "over a megapixel": _encoded(_colours(1024, 1040)),  # Huffman codes of larger ones are decoded on the GPU
        "with restart markers": _encoded(odd, restart_marker_rows=1),
    }


def _colours(height: int, width: int) -> U8:
    """Colours that have nothing to do with each other, and what lies between."""
    rows, columns = height // _CELL + 1, width // _CELL + 1
    cells = np.random.default_rng(0).integers(0, 256, (rows, columns, 3), np.uint8)
    pixels = Image.fromarray(cells).resize((columns * _CELL, rows * _CELL), Image.Resampling.BICUBIC)
    return np.asarray(pixels)[:height, :width]


def _encoded(pixels: U8, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **{"quality": 90} | options)
    return file.getvalue()
