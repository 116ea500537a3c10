"""The plan on the CPU: resize by cykooz-resizer or Pillow, arithmetic by one table look-up a value.

Which library serves which filter, and why, is in docs/decisions.md.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image

from pixprep.kernels import coefficients
from pixprep.plan import Placement, Resize, TensorPlan

try:
    import cykooz_resizer as cykooz
except ImportError:  # no wheel for this processor: Pillow serves bilinear too, more slowly
    cykooz = None

U8 = npt.NDArray[np.uint8]
Region = tuple[int, int, int, int]

_PILLOW_FILTERS = {
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
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
        self._resize = plan.geometry.resize

    def run(
        self, images: Sequence[U8], placements: Sequence[Placement], outs: Sequence[npt.NDArray[np.generic]]
    ) -> None:
        """See ``Kernel.run``."""
        for pixels, placement, out in zip(images, placements, outs, strict=True):
            planes = out if self._plan.spec.layout == "chw" else out.transpose(2, 0, 1)
            self._write(self._resample(pixels, placement), placement, planes)

    def _resample(self, pixels: U8, placement: Placement) -> U8:
        """What the canvas shows of the resized image: (rows, columns, channels), perhaps a view of ``pixels``."""
        top, left, bottom, right = placement.source
        source = pixels[top:bottom, left:right]
        # Pillow maps a part without a copy where the stride of its last row lies in memory too.
        if any(placement.mirrors) or (left > 0 and bottom == len(pixels)):
            source = source[_steps(placement.mirrors)].copy(order="C")
        first_row, first_column, last_row, last_column = region = placement.region
        if placement.resized == source.shape[:2] or first_row == last_row or first_column == last_column:
            return source[first_row:last_row, first_column:last_column]
        assert self._resize is not None
        if self._resize.filter == "nearest":
            return _nearest(source, placement.resized, region)
        if not self._resize.antialias or _is_small_part(source.shape, placement.resized, region):
            return _interpolate(source, placement.resized, region, self._resize.filter)
        return _resize(source, placement.resized, region, self._resize)

    def _write(self, block: U8, placement: Placement, planes: npt.NDArray[np.generic]) -> None:
        """Table, channel order and layout in one pass over the block; the margin in its colour."""
        rows, columns = block.shape[:2]
        block = block[_steps(placement.flips)]
        top, left = placement.at
        has_margin = (rows, columns) != placement.canvas
        for plane, table, channel, fill in zip(planes, self._table, self._plan.channels, self._plan.fill, strict=True):
            if has_margin:
                plane[...] = table[fill]
            target = plane[top : top + rows, left : left + columns]
            if self._is_identity:
                target[...] = block[:, :, channel]
            else:
                # "clip" only spares NumPy a second buffer: every level is inside the table
                np.take(table, block[:, :, channel], out=target, mode="clip")


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
    image = _as_image(source)
    # Where an axis grows, two roundings may add up: cykooz was 2 levels off on noise of 40 x 40 made 150 x 150.
    if rule.filter == "bilinear" and not rule.exact and shrinks and cykooz is not None:
        out = np.empty((*size, source.shape[2]), np.uint8)
        options = cykooz.ResizeOptions(
            resize_alg=cykooz.ResizeAlg.convolution(cykooz.FilterType.bilinear),
            crop_box=cykooz.CropBox(box[0], box[1], box[2] - box[0], box[3] - box[1]),
        )
        _resizer().resize_pil(image, _as_image(out), options)
        return out
    pillow_filter = _PILLOW_FILTERS[rule.filter]
    # The ties of "box" are whole pixels: rounded the other way, they differ by up to 255 levels.
    if not rule.exact and rule.filter != "box" and _is_box_near((source.shape[0], source.shape[1]), resized, size):
        return _as_array(image.resize(size[::-1], pillow_filter, box=box))
    return _as_array(image.resize(resized[::-1], pillow_filter))[top:bottom, left:right]


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
    return shrinks and not any(coefficients.is_vertical_first(source, size) for size in (resized, region))


def _nearest(source: U8, resized: tuple[int, int], region: Region) -> U8:
    rows = coefficients.nearest(source.shape[0], resized[0], begin=region[0], end=region[2])
    columns = coefficients.nearest(source.shape[1], resized[1], begin=region[1], end=region[3])
    return np.take(source[rows], columns, axis=1)


def _interpolate(source: U8, resized: tuple[int, int], region: Region, filter_name: str) -> U8:
    """Pillow's arithmetic without the widening of the filter: at most six taps, so that NumPy is quick enough."""
    size = (source.shape[0], source.shape[1])
    for axis in (0, 1) if coefficients.is_vertical_first(size, resized) else (1, 0):
        lines = source.swapaxes(0, axis)
        begin, end = region[axis], region[axis + 2]
        if resized[axis] == size[axis]:
            lines = lines[begin:end]
        else:
            lines = _pass(lines, _windows(size[axis], resized[axis], filter_name, begin, end))
        source = lines.swapaxes(0, axis)
    return source


def _pass(lines: U8, windows: coefficients.Windows) -> U8:
    """One pass along the first axis."""
    sums = np.full((len(windows.first), *lines.shape[1:]), 1 << (coefficients.PRECISION_BITS - 1), np.int32)
    for tap in range(windows.weights.shape[1]):
        taken = lines[np.minimum(windows.first + tap, len(lines) - 1)]
        sums += taken * windows.weights[:, tap, None, None]
    return np.clip(sums >> coefficients.PRECISION_BITS, 0, 255).astype(np.uint8)


@lru_cache(maxsize=1024)
def _windows(length: int, out_length: int, filter_name: str, begin: int, end: int) -> coefficients.Windows:
    return coefficients.windows(length, out_length, filter_name, antialias=False, begin=begin, end=end)


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
