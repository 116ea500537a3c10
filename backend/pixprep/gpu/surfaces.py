"""Conversion of NVDEC's NV12 frames to RGB: the coefficients of surface.cu, and its formula in NumPy.

The formula is that of libswscale on x86-64. On other processors, or with other versions of PyAV, libswscale may convert
frames differently. The color matrix of a clip therefore does not determine the coefficients. Instead, ``coefficients``
searches for coefficients with which the RGB pixels of a noise frame equal those of the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.gpu.structs import SURFACE

U8 = npt.NDArray[np.uint8]

_TABLES = (
    (104597, 132201, 25675, 53279),  # BT.601, which is also used if the color matrix is unspecified
    (117489, 138438, 13975, 34925),  # BT.709
    (110013, 140363, 12277, 42626),  # BT.2020
    (104448, 132798, 24759, 53109),  # FCC
    (117579, 136230, 16907, 35559),  # SMPTE 240M
)
"""Chroma coefficients of each color matrix for limited range, in units of 1/65536.

The order is V to red, U to blue, U to green, and V to green. The last two are negated.
"""


class Coefficients(NamedTuple):
    """Coefficients of the conversion; see ``Surface`` in surface.cu."""

    scale: int
    offset: int
    v_red: int
    u_green: int
    v_green: int
    u_blue: int


class Planes(NamedTuple):
    """Planes of a YUV 4:2:0 frame. Luma is (height, width); U and V are (height / 2, width / 2)."""

    luma: U8
    u: U8
    v: U8


class Surface(NamedTuple):
    """NV12 frame in GPU memory.

    Attributes:
        luma, chroma: Device addresses of the two planes.
        pitch: Row stride of both planes in bytes.
        height, width: Size of the frame in pixels. Both are even.
        turn: Number of counterclockwise rotations by 90 degrees that make the frame upright.
    """

    luma: int
    chroma: int
    pitch: int
    height: int
    width: int
    turn: int


def rgb(planes: Planes, numbers: Coefficients) -> U8:
    """Convert a frame to RGB pixels, (height, width, 3), with the same arithmetic as the kernel ``show_surface``."""
    u, v = (8 * plane.repeat(2, axis=0).repeat(2, axis=1).astype(np.int32) - 1024 for plane in planes[1:])
    luma = (8 * planes.luma.astype(np.int32) - numbers.offset) * numbers.scale >> 16
    red = luma + (v * numbers.v_red >> 16)
    green = luma + (u * numbers.u_green >> 16) + (v * numbers.v_green >> 16)
    blue = luma + (u * numbers.u_blue >> 16)
    pixels: U8 = np.stack([red, green, blue], axis=-1).clip(0, 255).astype(np.uint8)
    return pixels


def coefficients(planes: Planes, expected: U8) -> Coefficients | None:
    """Return the coefficients that convert a frame to ``expected``, or None if no known color matrix matches."""
    return next((each for each in _known() if np.array_equal(rgb(planes, each), expected)), None)


def _known() -> Iterator[Coefficients]:
    """Yield libswscale's coefficients for each color matrix, first for limited range and then for full range."""
    for v_red, u_blue, u_green, v_green in _TABLES:
        numbers = (v_red, -u_green, -v_green, u_blue)
        yield Coefficients(_rounded((1 << 16) * 255 // 219), 16 * 8, *map(_rounded, numbers))
        yield Coefficients(_rounded(1 << 16), 0, *(_rounded(int(each * 224 / 255)) for each in numbers))


def _rounded(number: int) -> int:
    """Convert a coefficient from units of 1/65536 to units of 1/8192, and round it."""
    return (number + 4) >> 3


def struct(surface: Surface, numbers: Coefficients, pixels: int) -> npt.NDArray[np.void]:
    """Return the ``Surface`` struct of surface.cu, as an array (1,) of ``SURFACE``.

    ``pixels`` is the device address of the RGB output.
    """
    made = np.zeros(1, SURFACE)
    made[0] = (surface.luma, surface.chroma, pixels, *surface[2:], *numbers)
    return made
