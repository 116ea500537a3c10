"""The plan on the CPU: resize and table look-up in machine code or NumPy.

Without llvmlite, Pillow and cykooz-resizer resize like Pillow. Which serves what, and why, is in docs/decisions.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from types import ModuleType
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

log = logging.getLogger(__name__)

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
        self._compiled = _compiled(self._resize)

    def run(
        self, images: Sequence[U8], placements: Sequence[Placement], outs: Sequence[npt.NDArray[np.generic]]
    ) -> None:
        """See ``Kernel.run``."""
        for pixels, placement, out in zip(images, placements, outs, strict=True):
            planes = out if self._plan.spec.layout == "chw" else out.transpose(2, 0, 1)
            self._write(self._resample(pixels, placement), placement, planes)

    def _resample(self, pixels: U8, placement: Placement) -> U8 | F32:
        """What the canvas shows of the resized image: (rows, columns, channels), perhaps a view of ``pixels``."""
        top, left, bottom, right = placement.source
        source = pixels[top:bottom, left:right][_steps(placement.mirrors)]
        first_row, first_column, last_row, last_column = region = placement.region
        if placement.resized == source.shape[:2] or first_row == last_row or first_column == last_column:
            return source[first_row:last_row, first_column:last_column]
        rule = self._resize
        assert rule is not None
        is_pillow = rule.like == "pillow" and rule.filter != "nearest" and rule.antialias
        if is_pillow and self._compiled is None and not _is_small_part(source.shape, placement.resized, region):
            # Pillow maps a part without a copy where the stride of its last row lies in memory too.
            if any(placement.mirrors) or (left > 0 and bottom == len(pixels)):
                source = source.copy(order="C")
            return _resize(source, placement.resized, region, rule)
        block: U8 | F32 = resample(
            source, resampling(rule, placement), self._compiled.along if self._compiled else None
        )
        return block

    def _write(self, block: U8 | F32, placement: Placement, planes: npt.NDArray[np.generic]) -> None:
        """Arithmetic, channel order and layout in one pass over the block; the margin in its colour."""
        rows, columns = block.shape[:2]
        top, left = placement.at
        if (rows, columns) != placement.canvas:
            for plane, table, fill in zip(planes, self._table, self._plan.fill, strict=True):
                plane[...] = table[fill]
        if block.size == 0:
            return
        channels = self._plan.channels  # in order, or backwards
        block = block[:, :, : len(channels)][_steps(placement.flips)]
        ordered = block[:, :, ::-1] if channels[0] > 0 else block
        targets = planes[:, top : top + rows, left : left + columns]
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


def _compiled(resize: Resize | None) -> ModuleType | None:
    """``kernels.compiled``, where llvmlite is installed and the resize has a use for it.

    Imported on demand, before the first image: 60 ms and 72 MB, of which 63 are LLVM's library, which processes share.
    """
    if resize is None or resize.like not in ("pillow", "torchvision") or resize.filter.startswith("nearest"):
        return None
    try:
        from pixprep.kernels import compiled  # noqa: PLC0415
    except ImportError:
        return None
    except (OSError, RuntimeError) as error:  # LLVM's library does not load, or does not know this processor
        log.warning("llvmlite does not work here, so that Pillow resizes, more slowly: %s", error)
        return None
    return compiled


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
    filter_name = _PILLOW_FILTERS[rule.filter]
    # The ties of "box" are whole pixels: rounded the other way, they differ by up to 255 levels.
    if not rule.exact and rule.filter != "box" and _is_box_near((source.shape[0], source.shape[1]), resized, size):
        return _as_array(image.resize(size[::-1], filter_name, box=box))
    return _as_array(image.resize(resized[::-1], filter_name))[top:bottom, left:right]


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
