"""The plan on the CPU: resize by cykooz-resizer, Pillow or NumPy, arithmetic by one table look-up a value.

Which library serves which filter, and why, is in docs/decisions.md.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
from PIL import Image

from pixprep.kernels.resample import resample
from pixprep.plan import Placement, Resize, TensorPlan
from pixprep.profiles import pillow, resampling

try:
    import cykooz_resizer as cykooz
except ImportError:  # no wheel for this processor: Pillow serves bilinear too, more slowly
    cykooz = None

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
_MODES = {1: "L", 4: "CMYK"}  # any mode of four independent bytes: Pillow maps it without a copy, and cykooz takes it


class CpuKernel:
    """See ``Kernel``."""

    def __init__(self, plan: TensorPlan) -> None:
        self._plan = plan
        self._table = plan.table
        self._is_identity = plan.spec.dtype == "uint8"
        self._is_real = plan.is_real
        self._resize = plan.geometry.resize

    def run(
        self, images: Sequence[U8], placements: Sequence[Placement], outs: Sequence[npt.NDArray[np.generic]]
    ) -> None:
        """See ``Kernel.run``."""
        for pixels, placement, out in zip(images, placements, outs, strict=True):
            planes = out if self._plan.spec.layout == "chw" else out.transpose(2, 0, 1)
            self._write(self._resample(pixels, placement), placement, planes)

    def _resample(self, pixels: U8, placement: Placement) -> U8 | F32:
        """What the canvas shows of the resized image: (rows, columns, channels), perhaps a view of ``pixels``."""
        if placement.reduction is not None:
            return self._of_reduced(pixels, placement)
        source = _cut(pixels, placement.source)
        if any(placement.mirrors):
            source = source[_steps(placement.mirrors)].copy(order="C")
        first_row, first_column, last_row, last_column = region = placement.region
        if placement.resized == source.shape[:2] or first_row == last_row or first_column == last_column:
            return source[first_row:last_row, first_column:last_column]
        rule = self._resize
        assert rule is not None
        is_pillow = rule.like == "pillow" and rule.filter != "nearest" and rule.antialias
        if is_pillow and not _is_small_part(source.shape, placement.resized, region):
            return _resize(source, placement.resized, region, rule)
        block: U8 | F32 = resample(source, resampling(rule, placement))
        return block

    def _of_reduced(self, pixels: U8, placement: Placement) -> U8:
        """The same of an image decoded to a fraction of its size, which shrinks, and which nothing equals exactly."""
        rows, columns = (placement.region[axis + 2] - placement.region[axis] for axis in (0, 1))
        if not rows or not columns:
            return np.empty((rows, columns, pixels.shape[2]), np.uint8)
        assert self._resize is not None
        source = _cut(pixels, placement.read)
        top, left, bottom, right = placement.box
        box = (max(left, 0), max(top, 0), min(right, source.shape[1]), min(bottom, source.shape[0]))
        if self._resize.filter == "bilinear" and cykooz is not None:
            block = _bilinear(source, box, (rows, columns))
        else:
            block = _as_array(_as_image(source).resize((columns, rows), _PILLOW_FILTERS[self._resize.filter], box=box))
        return block[_steps(placement.mirrors)]

    def _write(self, block: U8 | F32, placement: Placement, planes: npt.NDArray[np.generic]) -> None:
        """Arithmetic, channel order and layout in one pass over the block; the margin in its colour."""
        rows, columns = block.shape[:2]
        block = block[_steps(placement.flips)]
        top, left = placement.at
        levels = cast("U8", block)
        has_margin = (rows, columns) != placement.canvas
        for plane, table, channel, fill in zip(planes, self._table, self._plan.channels, self._plan.fill, strict=True):
            if has_margin:
                plane[...] = table[fill]
            target = plane[top : top + rows, left : left + columns]
            if self._is_identity:
                target[...] = block[:, :, channel]
            elif self._is_real:
                continue
            else:
                # "clip" only spares NumPy a second buffer: every level is inside the table
                np.take(table, levels[:, :, channel], out=target, mode="clip")
        if self._is_real:
            ordered = block.transpose(2, 0, 1)[list(self._plan.channels)].astype(np.float32)
            planes[:, top : top + rows, left : left + columns] = self._plan.values(ordered)


def _cut(pixels: U8, region: Region) -> U8:
    """A part of an image, which Pillow can map: without a copy where the stride of its last row lies in memory too."""
    top, left, bottom, right = region
    part = pixels[top:bottom, left:right]
    return part.copy(order="C") if left > 0 and bottom == len(pixels) else part


def _steps(backwards: tuple[bool, bool]) -> tuple[slice, slice]:
    vertical, horizontal = backwards
    return slice(None, None, -1 if vertical else 1), slice(None, None, -1 if horizontal else 1)


def _resize(source: U8, resized: tuple[int, int], region: Region, rule: Resize) -> U8:
    top, left, bottom, right = region
    scale_y, scale_x = source.shape[0] / resized[0], source.shape[1] / resized[1]
    size = (bottom - top, right - left)
    shrinks = resized[0] <= source.shape[0] and resized[1] <= source.shape[1]
    # The products may pass the edge by the last bit of a float, and both libraries refuse a box outside.
    box = (left * scale_x, top * scale_y, min(right * scale_x, source.shape[1]), min(bottom * scale_y, source.shape[0]))
    # Where an axis grows, two roundings may add up: cykooz was 2 levels off on noise of 40 x 40 made 150 x 150.
    if rule.filter == "bilinear" and not rule.exact and shrinks and cykooz is not None:
        return _bilinear(source, box, size)
    image = _as_image(source)
    filter_name = _PILLOW_FILTERS[rule.filter]
    # The ties of "box" are whole pixels: rounded the other way, they differ by up to 255 levels.
    if not rule.exact and rule.filter != "box" and _is_box_near((source.shape[0], source.shape[1]), resized, size):
        return _as_array(image.resize(size[::-1], filter_name, box=box))
    return _as_array(image.resize(resized[::-1], filter_name))[top:bottom, left:right]


def _bilinear(source: U8, box: tuple[float, float, float, float], size: tuple[int, int]) -> U8:
    """By cykooz-resizer: ``box`` (left, top, right, bottom) of an image, resized to ``size``, (rows, columns)."""
    out = np.empty((*size, source.shape[2]), np.uint8)
    options = cykooz.ResizeOptions(
        resize_alg=cykooz.ResizeAlg.convolution(cykooz.FilterType.bilinear),
        crop_box=cykooz.CropBox(box[0], box[1], box[2] - box[0], box[3] - box[1]),
    )
    _resizer().resize_pil(_as_image(source), _as_image(out), options)
    return out


def _is_small_part(source: tuple[int, ...], resized: tuple[int, int], region: Region) -> bool:
    """Whether the region is best computed alone: of an image that grows, where antialiasing changes nothing.

    Of 4 x 16384 pixels whose shorter side becomes 256, Pillow took 10 s and 3 GB for the whole.
    """
    wanted = (region[2] - region[0]) * (region[3] - region[1])
    grows = resized[0] >= source[0] and resized[1] >= source[1]
    return grows and resized[0] * resized[1] > 4 * wanted


def _is_box_near(source: tuple[int, int], resized: tuple[int, int], region: tuple[int, int]) -> bool:
    """Whether Pillow's resize of a box stays within one level of the same part of the whole resize.

    Pillow keeps the box in float32, so that some ties round the other way after each pass; the sum came to 2 levels in
    0.3 % of 40,000 regions of noise shrunk by 1 to 1.7, and in none of 75,000 shrunk by more. And a box may change the
    order of the passes: up to 43 levels, as the values are clipped between them.
    """
    shrinks = resized[0] * 1.75 <= source[0] and resized[1] * 1.75 <= source[1]
    return shrinks and not any(pillow.is_vertical_first(None, source, size) for size in (resized, region))


def _as_image(pixels: U8) -> Image.Image:
    """A Pillow image over the memory of ``pixels``, whose rows may be part of a larger image's, all of them whole."""
    height, width, channels = pixels.shape
    mode = _MODES[channels]
    stride = pixels.strides[0]
    flat: npt.NDArray[np.uint8] = np.lib.stride_tricks.as_strided(pixels, (height * stride,), (1,))
    return Image.frombuffer(mode, (width, height), flat, "raw", mode, stride, 1)


def _as_array(image: Image.Image) -> U8:
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


_local = threading.local()


def _resizer() -> cykooz.Resizer:
    """One a thread: it keeps a buffer between the two passes."""
    resizer = getattr(_local, "resizer", None)
    if resizer is None:
        resizer = _local.resizer = cykooz.Resizer()
    return resizer
