"""The plan on the CPU: resize and table look-up by the kernels in C, or in NumPy.

Without the kernels in C, Pillow resizes like Pillow: the whole image, more slowly. Numbers are in docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref
from typing import cast

import numpy as np
import numpy.typing as npt
from PIL import Image

from pixprep.draws import erasing
from pixprep.kernels import fixed, levels, native
from pixprep.kernels.margins import margins, taken
from pixprep.kernels.resample import resample
from pixprep.kernels.resampling import axes, resampling
from pixprep.plan.geometry_steps import Resize
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import NO_MARGINS, Placement
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
        self._in_c = bool(self._formula or plan.geometry.levels) and native.library() is not None
        self._remembers = not plan.geometry.random_steps  # no window comes again where windows are random
        self._finish = fixed.finish(self._table, plan.channels, plan.lines) if self._in_c else None

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
            planes = self._unpadded(out if self._plan.spec.layout == "chw" else out.transpose(2, 0, 1), placement.size)
            if placement.levels:
                block = self._resample(pixels, placement)
                self._look_up(levels.done(placement.levels, self._canvas(cast("U8", block), placement)), planes)
            elif not self._write_at_once(pixels, placement, planes):
                self._write(self._resample(pixels, placement), placement, planes)
            for erase in placement.erasures:
                rows, columns = slice(erase.top, erase.top + erase.height), slice(erase.left, erase.left + erase.width)
                erased = planes[:, rows, columns]
                erased[:] = noise(erase.noise, erased.shape) if erase.noise else np.reshape(erase.values, (-1, 1, 1))

    def _unpadded(self, planes: npt.NDArray[np.generic], size: tuple[int, int]) -> npt.NDArray[np.generic]:
        """The part of a tensor that is image; around it the padding is written."""
        rows, columns = size
        if planes.shape[1:] == size:
            return planes
        planes[:, rows:] = planes[:, :rows, columns:] = self._plan.spec.padding.value
        return planes[:, :rows, :columns]

    def _write_at_once(self, pixels: U8, placement: Placement, planes: npt.NDArray[np.generic]) -> bool:
        """The usual image in one call; False where a step is missing, or there is one more."""
        formula, resize = self._formula, self._resize
        if self._finish is None or formula is None or resize is None:
            return False
        if pixels.shape[2] not in (1, 4) or pixels.strides[1:] != (pixels.shape[2], 1) or pixels.strides[0] < 0:
            return False  # pixels of the user's, which may lie in any way
        if placement.margins != NO_MARGINS or True in placement.mirrors:
            return False
        rows, columns = axes(resize, placement)
        if rows.length == rows.out_length or columns.length == columns.out_length or not formula.is_widened:
            return False
        if rows.begin == rows.end or columns.begin == columns.end:
            return False
        top, left, bottom, right = placement.read
        return fixed.write(
            pixels[top:bottom, left:right],
            formula,
            rows,
            columns,
            finish=self._finish,
            out=self._targets((rows.end - rows.begin, columns.end - columns.begin), placement, planes),
            vertical_first=PROFILES[resize.like].is_vertical_first(resize.method, rows, columns),
            flips=placement.flips,
            remembers=self._remembers,
        )

    def _canvas(self, block: U8, placement: Placement) -> U8:
        """Canvas with the fill around the image: (height, width, channels), perhaps a view of the block."""
        count = len(self._plan.channels)
        block = block[:, :, :count][_directions(placement.flips)]
        if block.shape[:2] == placement.canvas:
            return block
        canvas = levels.blank(*placement.canvas, count)
        canvas[:, :, list(self._plan.channels)] = placement.fill or self._plan.fill
        (top, left), (rows, columns) = placement.at, block.shape[:2]
        if block.size:
            canvas[top : top + rows, left : left + columns] = block
        return canvas

    def _resample(self, pixels: U8, placement: Placement) -> U8 | F32:
        """Part of the resized image that the canvas shows: (rows, columns, channels), perhaps a view of ``pixels``."""
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
        if self._formula and self._in_c:
            rows, columns = axes(resize, placement)
            is_vertical_first = profile.is_vertical_first(resize.method, rows, columns)
            return fixed.resample(pixels, self._formula, rows, columns, vertical_first=is_vertical_first, around=around)
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
        targets = self._targets(block.shape[:2], placement, planes)
        if block.size == 0:
            return
        self._look_up(block[:, :, : len(self._plan.channels)][_directions(placement.flips)], targets)

    def _look_up(self, block: U8 | F32, targets: npt.NDArray[np.generic]) -> None:
        """The values of a block of decoded channels."""
        channels = self._plan.channels  # in order, or backwards
        ordered = block[:, :, ::-1] if channels[0] > 0 else block
        if self._is_real:
            targets[...] = self._plan.values(ordered.transpose(2, 0, 1).astype(np.float32))
        elif self._is_identity:
            targets[...] = ordered.transpose(2, 0, 1)
        elif self._in_c:
            fixed.look_up(cast("U8", ordered), self._table, targets)
        else:
            for target, table, levels in zip(targets, self._table, ordered.transpose(2, 0, 1), strict=True):
                # "clip" only spares NumPy a second buffer: every level is inside the table
                np.take(table, levels, out=target, mode="clip")

    def _targets(
        self, size: tuple[int, ...], placement: Placement, planes: npt.NDArray[np.generic]
    ) -> npt.NDArray[np.generic]:
        """Targets of a block of (rows, columns); around it is the margin's colour."""
        rows, columns = size
        if (rows, columns) == placement.canvas:
            return planes
        for plane, table, fill in zip(planes, self._table, placement.fill or self._plan.fill, strict=True):
            plane[...] = table[fill]
        top, left = placement.at
        return planes[:, top : top + rows, left : left + columns]


def noise(words: tuple[int, int, int], shape: tuple[int, ...]) -> F32:
    """``erasing.noise``, by the kernels in C where there are any."""
    loaded = native.library()
    if loaded is None:
        return erasing.noise(words, shape)
    values = np.empty(shape, np.float32)
    told = native.Noise(values.ctypes.data, values.size, erasing.quantiles().ctypes.data, words[:2], words[2])
    loaded.make_noise(byref(told))
    return values


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
    """Tell whether the region is best computed alone: of an image that grows, where antialiasing changes nothing.

    Of 4 x 16384 pixels whose shorter side becomes 256, Pillow took 10 s and 3 GB for the whole.
    """
    wanted = (region[2] - region[0]) * (region[3] - region[1])
    grows = resized[0] >= size[0] and resized[1] >= size[1]
    return grows and resized[0] * resized[1] > 4 * wanted


def _as_image(pixels: U8) -> Image.Image:
    """A Pillow image over the memory of ``pixels``."""
    height, width, channels = pixels.shape
    return Image.frombuffer(_MODES[channels], (width, height), pixels, "raw", _MODES[channels], 0, 1)
