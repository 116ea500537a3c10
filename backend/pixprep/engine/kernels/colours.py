"""Steps on colours, by the kernels in C: formulas.h has the formulas, colours.c and levels.c the steps."""

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
    """An image of three channels on whose colours steps are done: a copy, of four bytes a pixel.

    Args:
        image: uint8 (height, width, 3), any strides; it is not written to.

    Attributes:
        count: of its pixels.
        image: after the steps so far.
    """

    def __init__(self, image: U8) -> None:
        height, width, _ = image.shape
        self.count = height * width
        self._memory = np.empty(-(-self.count // LANES) * LANES, np.uint32)
        self.image = self._memory[: self.count].view(np.uint8).reshape(height, width, 4)[:, :, :3]
        move(image, self.image)

    def look_up(self, tables: U8) -> None:
        """Replace levels by those of a table, (channels, 256)."""
        tables = np.ascontiguousarray(tables)
        self._do("look_up_colours", curves=tables.ctypes.data)

    def histograms(self) -> npt.NDArray[Any]:
        """(channels, 256): how often each level is there."""
        counts = np.zeros((3, 256), np.uint32)
        self._do("count_levels", counts=counts.ctypes.data)
        return counts

    def total(self, like: BlendLike) -> int:
        """The sum of the luma of every pixel."""
        self._memory[self.count :] = 0
        return int(self._do("add_luma", like).total)

    def fade(self, gray: float, factor: float, like: BlendLike) -> None:
        """Blend with one gray."""
        self._do("fade", like, gray=gray, factor=factor, rest=rest_of(factor))

    def blend(self, factor: float, like: BlendLike) -> None:
        """Blend with the gray of each pixel."""
        self._do("blend", like, factor=factor, rest=rest_of(factor))

    def turn(self, shift: float, like: BlendLike) -> None:
        """Turn the hue."""
        self._do("turn", like, turn=turn_of(shift, like))

    def mix(self, numbers: tuple[float, ...]) -> None:
        """Take sums of the channels: see ``ColorMatrix``."""
        self._do("mix", matrix=numbers)

    def shift(self, hues: U8, saturation: int, value: int) -> None:
        """Replace hues of OpenCV by those of a table, (256,), and add to the other two."""
        self._do("shift", curves=hues.ctypes.data, width=self.image.shape[1], saturation=saturation, value=value)

    def _do(self, name: str, like: BlendLike = "pillow", **what: Any) -> Any:
        arguments = STRUCTS["colours"](self._memory.ctypes.data, self.count, like=LIKES.index(like), **what)
        getattr(library(), name)(byref(arguments))
        return arguments


class Gray:
    """``Words`` of an image of one channel: its levels go the way of a ramp of all 256."""

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
        """(1, 256): what each level has become."""
        return np.ascontiguousarray(self._ramp.image[:, :, 0])

    def histograms(self) -> npt.NDArray[Any]:
        """See ``Words``: three that are alike."""
        return np.bincount(self.image.ravel(), minlength=256)[None].repeat(3, axis=0)

    def total(self, like: BlendLike) -> int:
        """See ``Words``: a level is its own luma."""
        del like
        return int(self.image.sum(dtype=np.int64))

    def mix(self, numbers: tuple[float, ...]) -> None:
        """See ``Words``: by the first row, so that the three stay alike."""
        self._ramp.mix(numbers[:4] * 3)

    def blend(self, factor: float, like: BlendLike) -> None:
        """Change nothing: a level is its own gray."""

    def turn(self, shift: float, like: BlendLike) -> None:
        """Change nothing: a level has no hue."""

    def shift(self, hues: U8, saturation: int, value: int) -> None:
        """Change nothing: the hue alone is shifted, and a level has none."""


def rest_of(factor: float) -> float:
    """``float32(1 - factor)``, where ``1 - factor`` is of float64."""
    return float(np.float32(1 - factor))


def turn_of(shift: float, like: BlendLike) -> float:
    """Number by which kernels turn a hue."""
    turn = COLOURS[like].turn
    assert turn is not None
    return turn(shift)
