"""The plan on the CPU: resize and table look-up in machine code or NumPy.

Without llvmlite, Pillow resizes like Pillow: the whole image, more slowly. Numbers are in docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
from PIL import Image

from pixprep.kernels import levels
from pixprep.kernels.margins import margins, taken
from pixprep.kernels.resample import resample
from pixprep.kernels.resampling import axes, machine_code, resampling
from pixprep.plan import Placement, Resize, TensorPlan
from pixprep.profiles import PROFILES

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]
Region = tuple[int, int, int, int]

_PILLOW_FILTERS = {
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
_MODES = {1: "L", 3: "RGB", 4: "CMYK"}  # any mode of four independent bytes: Pillow maps it without a copy


class CpuKernel:
    """See ``Kernel``."""

    def __init__(self, plan: TensorPlan) -> None:
        self._plan = plan
        self._table = plan.table
        self._is_identity = plan.spec.dtype == "uint8" and not plan.arithmetic
        self._is_real = plan.is_real
        self._resize = plan.geometry.resize
        self._formula = None
        if self._resize is not None:
            profile = PROFILES[self._resize.like]
            self._formula = profile.formula(self._resize.method) if profile.formula else None
        self._compiled = machine_code() if self._formula else None

    def run(
        self,
        images: Sequence[U8],
        placements: Sequence[Placement],
        outs: npt.NDArray[np.generic],
        places: Sequence[int],
    ) -> None:
        """See ``Kernel.run``."""
        for pixels, placement, place in zip(images, placements, places, strict=True):
            out = outs[place]
            planes = out if self._plan.spec.layout == "chw" else out.transpose(2, 0, 1)
            block = self._resample(pixels, placement)
            if placement.levels:
                canvas = levels.done(placement.levels, self._canvas(cast("U8", block), placement))
                self._look_up(canvas, planes)
            else:
                self._write(block, placement, planes)

    def _canvas(self, block: U8, placement: Placement) -> U8:
        """What the canvas shows, the fill around it: (height, width, channels), perhaps a view of the block."""
        count = len(self._plan.channels)
        block = block[:, :, :count][_directions(placement.flips)]
        if block.shape[:2] == placement.canvas:
            return block
        canvas = np.empty((*placement.canvas, count), np.uint8)
        canvas[:, :, list(self._plan.channels)] = self._plan.fill
        (top, left), (rows, columns) = placement.at, block.shape[:2]
        if block.size:
            canvas[top : top + rows, left : left + columns] = block
        return canvas

    def _resample(self, pixels: U8, placement: Placement) -> U8 | F32:
        """What the canvas shows of the resized image: (rows, columns, channels), perhaps a view of ``pixels``."""
        top, left, bottom, right = placement.read
        pixels = pixels[top:bottom, left:right][_directions(placement.mirrors)]
        first_row, first_column, last_row, last_column = region = placement.region
        if first_row == last_row or first_column == last_column:
            return pixels[:0]
        around = margins(self._plan, placement, pixels.shape[2])
        if around and placement.resized == around.laid:
            rows_read, columns_read = slice(first_row, last_row), slice(first_column, last_column)
            return taken(taken(pixels, 0, rows_read, around), 1, columns_read, around)
        if around is None and placement.resized == pixels.shape[:2]:
            return pixels[first_row:last_row, first_column:last_column]
        resize = self._resize
        assert resize is not None
        profile = PROFILES[resize.like]
        if self._compiled is not None:
            rows, columns = axes(resize, placement)
            is_vertical_first = profile.is_vertical_first(resize.method, rows, columns)
            block: U8 | F32 = self._compiled.resample(
                pixels, self._formula, rows, columns, vertical_first=is_vertical_first, around=around
            )
            return block
        how = resampling(resize, placement)
        is_whole = (
            placement.reduction is None
            and around is None
            and not _is_small_part(pixels.shape, placement.resized, region)
        )
        if is_whole and profile.is_pillow and resize.antialias and resize.filter in _PILLOW_FILTERS:
            whole = _by_pillow(pixels, placement.resized, resize, is_vertical_first=how.vertical_first)
            return whole[first_row:last_row, first_column:last_column]
        return resample(pixels, how, around)

    def _write(self, block: U8 | F32, placement: Placement, planes: npt.NDArray[np.generic]) -> None:
        """Arithmetic, channel order and layout in one pass over the block; the margin in its colour."""
        rows, columns = block.shape[:2]
        top, left = placement.at
        if (rows, columns) != placement.canvas:
            for plane, table, fill in zip(planes, self._table, self._plan.fill, strict=True):
                plane[...] = table[fill]
        if block.size == 0:
            return
        block = block[:, :, : len(self._plan.channels)][_directions(placement.flips)]
        self._look_up(block, planes[:, top : top + rows, left : left + columns])

    def _look_up(self, block: U8 | F32, targets: npt.NDArray[np.generic]) -> None:
        """The values of a block of decoded channels."""
        channels = self._plan.channels  # in order, or backwards
        ordered = block[:, :, ::-1] if channels[0] > 0 else block
        if self._is_real:
            targets[...] = self._plan.values(ordered.transpose(2, 0, 1).astype(np.float32))
        elif self._is_identity:
            targets[...] = ordered.transpose(2, 0, 1)
        elif self._compiled is not None:
            self._compiled.look_up(cast("U8", ordered), self._table, targets)
        else:
            for target, table, levels in zip(targets, self._table, ordered.transpose(2, 0, 1), strict=True):
                # "clip" only spares NumPy a second buffer: every level is inside the table
                np.take(table, levels, out=target, mode="clip")


def _directions(backwards: tuple[bool, bool]) -> tuple[slice, slice]:
    vertical, horizontal = backwards
    return slice(None, None, -1 if vertical else 1), slice(None, None, -1 if horizontal else 1)


def _by_pillow(pixels: U8, resized: tuple[int, int], resize: Resize, *, is_vertical_first: bool) -> U8:
    """The whole resize, one pass at a time: each Pillow has an order of its own for two."""
    image = _as_image(np.ascontiguousarray(pixels))
    between = (image.width, resized[0]) if is_vertical_first else (resized[1], image.height)
    for size in (between, resized[::-1]):
        image = image.resize(size, _PILLOW_FILTERS[resize.filter])
    result = np.asarray(image)
    return result if result.ndim == 3 else result[:, :, None]


def _is_small_part(size: tuple[int, ...], resized: tuple[int, int], region: Region) -> bool:
    """Whether the region is best computed alone: of an image that grows, where antialiasing changes nothing.

    Of 4 x 16384 pixels whose shorter side becomes 256, Pillow took 10 s and 3 GB for the whole.
    """
    wanted = (region[2] - region[0]) * (region[3] - region[1])
    grows = resized[0] >= size[0] and resized[1] >= size[1]
    return grows and resized[0] * resized[1] > 4 * wanted


def _as_image(pixels: U8) -> Image.Image:
    """A Pillow image over the memory of ``pixels``."""
    height, width, channels = pixels.shape
    return Image.frombuffer(_MODES[channels], (width, height), pixels, "raw", _MODES[channels], 0, 1)
