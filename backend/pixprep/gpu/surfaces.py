"""Frames as a GPU's video decoder has them, NV12, to RGB: the coefficients of surface.cu, and its formula in NumPy.

The formula is libswscale's on x86-64; on another processor it may have another, as another PyAV may have other colours.
So a matrix is not believed by its number: ``coefficients`` takes those that give the host's pixels of a frame of noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.gpu.structs import SURFACE

U8 = npt.NDArray[np.uint8]

_TABLES = (
    (104597, 132201, 25675, 53279),  # BT.601, and where none is named
    (117489, 138438, 13975, 34925),  # BT.709
    (110013, 140363, 12277, 42626),  # BT.2020
    (104448, 132798, 24759, 53109),  # FCC
    (117579, 136230, 16907, 35559),  # SMPTE 240M
)
"""Red of V, blue of U, minus green of U and of V: 65536 for each level, of a limited range."""


class Coefficients(NamedTuple):
    """See ``Surface`` in surface.cu."""

    scale: int
    offset: int
    v_red: int
    u_green: int
    v_green: int
    u_blue: int


class Planes(NamedTuple):
    """Planes of a frame: (height, width), and twice (height / 2, width / 2)."""

    luma: U8
    u: U8
    v: U8


class Surface(NamedTuple):
    """A frame in the memory of a GPU.

    Attributes:
        luma, chroma: addresses of the planes.
        pitch: bytes from a row of either to the next.
        height, width: in pixels, even.
        turn: quarters, anticlockwise, by which it is turned to be shown.
    """

    luma: int
    chroma: int
    pitch: int
    height: int
    width: int
    turn: int


def rgb(planes: Planes, numbers: Coefficients) -> U8:
    """(height, width, 3): what ``show_surface`` makes of a frame."""
    u, v = (8 * plane.repeat(2, axis=0).repeat(2, axis=1).astype(np.int32) - 1024 for plane in planes[1:])
    luma = (8 * planes.luma.astype(np.int32) - numbers.offset) * numbers.scale >> 16
    red = luma + (v * numbers.v_red >> 16)
    green = luma + (u * numbers.u_green >> 16) + (v * numbers.v_green >> 16)
    blue = luma + (u * numbers.u_blue >> 16)
    pixels: U8 = np.stack([red, green, blue], axis=-1).clip(0, 255).astype(np.uint8)
    return pixels


def coefficients(planes: Planes, expected: U8) -> Coefficients | None:
    """Coefficients that make ``expected`` of a frame; None: no known matrix does."""
    return next((each for each in _known() if np.array_equal(rgb(planes, each), expected)), None)


def _known() -> Iterator[Coefficients]:
    """Coefficients of each matrix, of limited and full range; ``ff_yuv2rgb_c_init_tables`` of libswscale."""
    for v_red, u_blue, u_green, v_green in _TABLES:
        numbers = (v_red, -u_green, -v_green, u_blue)
        yield Coefficients(_rounded((1 << 16) * 255 // 219), 16 * 8, *map(_rounded, numbers))
        yield Coefficients(_rounded(1 << 16), 0, *(_rounded(int(each * 224 / 255)) for each in numbers))


def _rounded(number: int) -> int:
    """65536ths to 8192nds."""
    return (number + 4) >> 3


def struct(surface: Surface, numbers: Coefficients, pixels: int) -> npt.NDArray[np.void]:
    """The ``Surface`` of surface.cu, (1,) of ``SURFACE``; ``pixels`` is the address of the RGB."""
    made = np.zeros(1, SURFACE)
    made[0] = (surface.luma, surface.chroma, pixels, *surface[2:], *numbers)
    return made
