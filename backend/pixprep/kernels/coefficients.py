"""The coefficients of Pillow's 8-bit resize, on the host.

One output value is ``clip8((2**21 + sum(level * coefficient)) >> 22)`` over a window of levels, along one axis, rounded
to uint8, and then along the other (Pillow, src/libImaging/Resample.c). Horizontal comes first; since Pillow 13.0
vertical does where the height shrinks and ``height - out_height > 2 * (width - out_width)``. An axis that keeps its
length has no pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import numpy.typing as npt

PRECISION_BITS = 22  # 32 bits less 8 for the level and 2 for the sum of negative lobes

_IS_PILLOW_13 = int(version("pillow").partition(".")[0]) >= 13

SUPPORT = {"box": 0.5, "bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0}


@dataclass(frozen=True)
class Windows:
    """For each output position the window it is made of.

    Attributes:
        first: (out,) int32: the first input position.
        count: (out,) int32: how many positions.
        weights: (out, taps) int32: fixed-point coefficients, 0 beyond ``count``.
    """

    first: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    weights: npt.NDArray[np.int32]


def windows(length: int, out_length: int, filter_name: str, *, antialias: bool, begin: int, end: int) -> Windows:
    """The windows of output positions ``begin`` to ``end`` when ``length`` positions are resized to ``out_length``.

    The centre of output position i lies at ``(i + 0.5) * scale``. The window is cut off at the border and its weights
    are normalized to 1: the border is not repeated. Computed in float64, as Pillow does.
    """
    scale = length / out_length
    stretch = max(scale, 1.0) if antialias else 1.0
    support = SUPPORT[filter_name] * stretch
    centers = (np.arange(begin, end) + 0.5) * scale
    first = np.maximum((centers - support + 0.5).astype(np.int64), 0)
    last = np.minimum((centers + support + 0.5).astype(np.int64), length)
    taps = np.arange(int((last - first).max()))
    weights = _filter(filter_name, (taps + first[:, None] - centers[:, None] + 0.5) / stretch)
    weights[taps >= (last - first)[:, None]] = 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    fixed = np.trunc(weights * (1 << PRECISION_BITS) + np.where(weights < 0, -0.5, 0.5))
    return Windows(first.astype(np.int32), (last - first).astype(np.int32), fixed.astype(np.int32))


def nearest(length: int, out_length: int, *, begin: int, end: int) -> npt.NDArray[np.int64]:
    """For output positions ``begin`` to ``end`` the input position that Pillow's NEAREST takes.

    Pillow adds up ``scale`` in float64, so that ties fall where they do; a product would move 5 % of them.
    """
    scale = length / out_length
    steps = np.full(end, scale)
    steps[0] = scale * 0.5
    return np.minimum(np.add.accumulate(steps).astype(np.int64), length - 1)[begin:]


def is_vertical_first(size: tuple[int, int], out_size: tuple[int, int]) -> bool:
    """Whether the installed Pillow resizes (height, width) to ``out_size`` vertically first, which rounds otherwise."""
    (height, width), (out_height, out_width) = size, out_size
    return _IS_PILLOW_13 and out_height < height and height - out_height > 2 * (width - out_width)


def _filter(name: str, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    a = np.abs(x)
    if name == "box":
        return ((x > -0.5) & (x <= 0.5)).astype(np.float64)
    if name == "bilinear":
        return np.maximum(1.0 - a, 0.0)
    if name == "bicubic":  # Keys 1981, a = -0.5
        near = (1.5 * a - 2.5) * a * a + 1.0
        far = ((-0.5 * a + 2.5) * a - 4.0) * a + 2.0
        return np.where(a < 1, near, np.where(a < 2, far, 0.0))
    return np.where((x >= -3) & (x < 3), np.sinc(x) * np.sinc(x / 3), 0.0)
