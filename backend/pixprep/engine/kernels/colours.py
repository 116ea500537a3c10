"""Run color steps and filters with the C kernels; formulas.h contains the formulas of the color steps."""

from __future__ import annotations

from ctypes import byref
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.native import LANES, STRUCTS, checked, library
from pixprep.engine.kernels.resize import copied, look_up, move
from pixprep.plan.profiles import COLOURS
from pixprep.plan.steps.levels import Filter
from pixprep.spec import BlendLike

U8 = npt.NDArray[np.uint8]
LIKES = get_args(BlendLike)


class ColorPixels:
    """Copy of a color image with four bytes per pixel, to which color steps are applied in place.

    Args:
        image: Array of uint8 (height, width, 3) with any strides. It is not modified.

    Attributes:
        count: Number of pixels.
        image: Image after the steps that have been applied.
    """

    def __init__(self, image: U8) -> None:
        height, width, _ = image.shape
        self.count = height * width
        self._memory = np.empty(-(-self.count // LANES) * LANES, np.uint32)
        self.image = self._memory[: self.count].view(np.uint8).reshape(height, width, 4)[:, :, :3]
        move(image, self.image)

    def look_up(self, tables: U8) -> None:
        """Replace pixel values with those of a look-up table, (channels, 256)."""
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
        """Blend all pixels with the same gray value."""
        self._do("fade", like, gray=gray, factor=factor, one_minus_factor=rest_of(factor))

    def blend(self, factor: float, like: BlendLike) -> None:
        """Blend each pixel with its own gray value."""
        self._do("blend", like, factor=factor, one_minus_factor=rest_of(factor))

    def rotate_hue(self, shift: float, like: BlendLike) -> None:
        """Rotate the hue of all pixels."""
        self._do("turn", like, hue_shift=turn_of(shift, like))

    def mix(self, numbers: tuple[float, ...]) -> None:
        """Replace each channel with a weighted sum of the channels; see ``ColorMatrix``."""
        self._do("mix", matrix=numbers)

    def shift(self, hues: U8, saturation: int, value: int) -> None:
        """Replace OpenCV's hue with that of a look-up table, (256,), and add to saturation and value."""
        self._do("shift", tables=hues.ctypes.data, width=self.image.shape[1], saturation=saturation, value=value)

    def _do(self, name: str, like: BlendLike = "pillow", **what: Any) -> Any:
        arguments = STRUCTS["colours"](self._memory.ctypes.data, self.count, like=LIKES.index(like), **what)
        getattr(library(), name)(byref(arguments))
        return arguments


class GrayPixels:
    """Gray image with the interface of ``ColorPixels``.

    The steps are applied to a ramp of all 256 pixel values, which is then used as a look-up table.
    """

    def __init__(self, image: U8) -> None:
        self._image = image
        self.count = image.size
        self._ramp = ColorPixels(np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (1, 256, 3)))
        self.look_up, self.fade = self._ramp.look_up, self._ramp.fade

    @property
    def image(self) -> U8:
        """See ``ColorPixels``."""
        result = np.empty(self._image.shape, np.uint8)
        look_up(self._image, self._table, result.transpose(2, 0, 1))
        return result

    @property
    def _table(self) -> U8:
        """Look-up table with the result for each pixel value, (1, 256)."""
        return np.ascontiguousarray(self._ramp.image[:, :, 0])

    def histograms(self) -> npt.NDArray[Any]:
        """See ``ColorPixels``. The three histograms are equal."""
        return np.bincount(self.image.ravel(), minlength=256)[None].repeat(3, axis=0)

    def total(self, like: BlendLike) -> int:
        """See ``ColorPixels``. The luma of a gray pixel is its value."""
        del like
        return int(self.image.sum(dtype=np.int64))

    def mix(self, numbers: tuple[float, ...]) -> None:
        """See ``ColorPixels``. The first row of the matrix is used for all channels, so that they remain equal."""
        self._ramp.mix(numbers[:4] * 3)

    def blend(self, factor: float, like: BlendLike) -> None:
        """Do nothing, because the gray value of a gray pixel is the pixel itself."""

    def rotate_hue(self, shift: float, like: BlendLike) -> None:
        """Do nothing, because a gray pixel does not have a hue."""

    def shift(self, hues: U8, saturation: int, value: int) -> None:
        """Do nothing, because the step does not change gray images; see ``Hsv``."""


def rest_of(factor: float) -> float:
    """Return ``1 - factor``, computed in float64 and rounded to float32."""
    return float(np.float32(1 - factor))


def turn_of(shift: float, like: BlendLike) -> float:
    """Return the shift of the hue in the unit of the kernels for a library."""
    turn = COLOURS[like].turn
    assert turn is not None
    return turn(shift)


def filtered(step: Filter, image: U8) -> U8:
    """Apply a filter to an image.

    Args:
        step: Filter step of a placement.
        image: Array of uint8 (height, width, channels) with 1 or 3 channels and any strides.
    """
    height, width, channels = image.shape
    if step.kind == "sharpness" and min(height, width) < 3:
        return image
    if image.strides[1:] not in ((channels, 1), (4, 1)) or image.strides[0] < 0:
        image = copied(image)
    pixel_stride = image.strides[1]
    result = np.empty((height, width, pixel_stride), np.uint8)
    rows, columns = (np.array(weights, np.float32) for weights in (step.rows, step.columns))
    arguments = STRUCTS["convolution"](
        image.ctypes.data, image.strides[0], height, (width - 1) * pixel_stride + channels, pixel_stride,
        result.ctypes.data, result.strides[0], LIKES.index(step.like), rest_of(step.factor),
        rows.ctypes.data, columns.ctypes.data, rows.size, columns.size, step.factor,
    )  # fmt: skip
    if step.kind == "sharpness":
        library().sharpen(byref(arguments))
    else:
        checked(library().blur(byref(arguments)))
    return result[:, :, :channels]
