"""Runs steps on colors with the C kernels: formulas.h contains the formulas, colours.c and levels.c the steps."""

from __future__ import annotations

from ctypes import byref
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.native import LANES, STRUCTS, library
from pixprep.engine.kernels.resize import look_up, move
from pixprep.plan.profiles import COLOURS
from pixprep.spec import BlendLike

U8 = npt.NDArray[np.uint8]
LIKES = get_args(BlendLike)


class Words:
    """Return a copy with three channels in four bytes per pixel, as steps on colors need it.

    Args:
        image: Array of uint8 (height, width, 3) with any strides; not modified.

    Attributes:
        count: Number of pixels.
        image: Image after the steps that were applied so far.
    """

    def __init__(self, image: U8) -> None:
        height, width, _ = image.shape
        self.count = height * width
        self._memory = np.empty(-(-self.count // LANES) * LANES, np.uint32)
        self.image = self._memory[: self.count].view(np.uint8).reshape(height, width, 4)[:, :, :3]
        move(image, self.image)

    def look_up(self, tables: U8) -> None:
        """Replace pixel values by a look-up table, (channels, 256)."""
        tables = np.ascontiguousarray(tables)
        self._do("look_up_colours", tables=tables.ctypes.data)

    def histograms(self) -> npt.NDArray[Any]:
        """Return the histogram of each channel, (channels, 256)."""
        counts = np.zeros((3, 256), np.uint32)
        self._do("count_levels", counts=counts.ctypes.data)
        return counts

    def total(self, like: BlendLike) -> int:
        """Return the sum of the luma of all pixels."""
        self._memory[self.count :] = 0
        return int(self._do("add_luma", like).luma_sum)

    def fade(self, gray: float, factor: float, like: BlendLike) -> None:
        """Blend all pixels with one gray value."""
        self._do("fade", like, gray=gray, factor=factor, one_minus_factor=rest_of(factor))

    def blend(self, factor: float, like: BlendLike) -> None:
        """Blend with the gray of each pixel."""
        self._do("blend", like, factor=factor, one_minus_factor=rest_of(factor))

    def turn(self, shift: float, like: BlendLike) -> None:
        """Rotate the hue."""
        self._do("turn", like, hue_shift=turn_of(shift, like))

    def mix(self, numbers: tuple[float, ...]) -> None:
        """Replace each channel by a weighted sum of the channels; see ``ColorMatrix``."""
        self._do("mix", matrix=numbers)

    def shift(self, hues: U8, saturation: int, value: int) -> None:
        """Replace OpenCV's hue by a look-up table, (256,), and add to saturation and value."""
        self._do("shift", tables=hues.ctypes.data, width=self.image.shape[1], saturation=saturation, value=value)

    def _do(self, name: str, like: BlendLike = "pillow", **what: Any) -> Any:
        arguments = STRUCTS["colours"](self._memory.ctypes.data, self.count, like=LIKES.index(like), **what)
        getattr(library(), name)(byref(arguments))
        return arguments


class Gray:
    """``Words`` for an image of one channel. Steps change a ramp of all 256 pixel values, a look-up table."""

    def __init__(self, image: U8) -> None:
        self._image = image
        self.count = image.size
        self._ramp = Words(np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (1, 256, 3)))
        self.look_up, self.fade = self._ramp.look_up, self._ramp.fade

    @property
    def image(self) -> U8:
        """See ``Words``."""
        made = np.empty(self._image.shape, np.uint8)
        look_up(self._image, self._levels, made.transpose(2, 0, 1))
        return made

    @property
    def _levels(self) -> U8:
        """Return the result for each pixel value, (1, 256)."""
        return np.ascontiguousarray(self._ramp.image[:, :, 0])

    def histograms(self) -> npt.NDArray[Any]:
        """See ``Words``. The three histograms are equal."""
        return np.bincount(self.image.ravel(), minlength=256)[None].repeat(3, axis=0)

    def total(self, like: BlendLike) -> int:
        """See ``Words``. The luma of a gray pixel is its value."""
        del like
        return int(self.image.sum(dtype=np.int64))

    def mix(self, numbers: tuple[float, ...]) -> None:
        """See ``Words``. Uses the first row of the matrix for all channels, so that they stay equal."""
        self._ramp.mix(numbers[:4] * 3)

    def blend(self, factor: float, like: BlendLike) -> None:
        """Do nothing, because a gray pixel is its own gray value."""

    def turn(self, shift: float, like: BlendLike) -> None:
        """Do nothing, because a gray pixel does not have a hue."""

    def shift(self, hues: U8, saturation: int, value: int) -> None:
        """Do nothing, because only the hue is shifted, which a gray pixel does not have."""


def rest_of(factor: float) -> float:
    """Return ``float32(1 - factor)``, with ``1 - factor`` computed in float64."""
    return float(np.float32(1 - factor))


def turn_of(shift: float, like: BlendLike) -> float:
    """Return the number by which the kernels rotate a hue."""
    turn = COLOURS[like].turn
    assert turn is not None
    return turn(shift)
