"""The plan on the CPU: resize and table look-up in machine code or NumPy.

Without llvmlite, Pillow resizes like Pillow: the whole image, more slowly. Numbers are in docs/decisions.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import ModuleType
from typing import cast

import numpy as np
import numpy.typing as npt
from PIL import Image

from pixprep.kernels.resample import resample
from pixprep.plan import Placement, Resize, TensorPlan
from pixprep.profiles import resampling

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
_MODES = {1: "L", 4: "CMYK"}  # any mode of four independent bytes: Pillow maps it without a copy


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
        top, left, bottom, right = placement.read
        source = pixels[top:bottom, left:right][_steps(placement.mirrors)]
        first_row, first_column, last_row, last_column = region = placement.region
        if placement.resized == source.shape[:2] or first_row == last_row or first_column == last_column:
            return source[first_row:last_row, first_column:last_column]
        rule = self._resize
        assert rule is not None
        is_pillow = rule.like == "pillow" and rule.filter != "nearest" and rule.antialias
        is_whole = placement.reduction is None and not _is_small_part(source.shape, placement.resized, region)
        if self._compiled is None and is_pillow and is_whole:
            return _by_pillow(source, placement.resized, rule)[first_row:last_row, first_column:last_column]
        along = self._compiled.along if self._compiled else None
        block: U8 | F32 = resample(source, resampling(rule, placement), along)
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


def _by_pillow(source: U8, resized: tuple[int, int], rule: Resize) -> U8:
    """The whole resize."""
    image = _as_image(np.ascontiguousarray(source))
    pixels = np.asarray(image.resize(resized[::-1], _PILLOW_FILTERS[rule.filter]))
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _is_small_part(source: tuple[int, ...], resized: tuple[int, int], region: Region) -> bool:
    """Whether the region is best computed alone: of an image that grows, where antialiasing changes nothing.

    Of 4 x 16384 pixels whose shorter side becomes 256, Pillow took 10 s and 3 GB for the whole.
    """
    wanted = (region[2] - region[0]) * (region[3] - region[1])
    grows = resized[0] >= source[0] and resized[1] >= source[1]
    return grows and resized[0] * resized[1] > 4 * wanted


def _as_image(pixels: U8) -> Image.Image:
    """A Pillow image over the memory of ``pixels``."""
    height, width, channels = pixels.shape
    return Image.frombuffer(_MODES[channels], (width, height), pixels, "raw", _MODES[channels], 0, 1)
