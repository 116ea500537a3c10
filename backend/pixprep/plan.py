"""Plan: what is left of a pipeline after compiling; the one thing that the CPU and the GPU read.

A plan has two small vocabularies. Geometry says where each output pixel looks: ``Window`` and ``Flip`` steps around
at most one ``Resize``; for an image of known size they fold into one ``Placement``. Arithmetic says what is done to the
value: one factor and one offset a channel, which a kernel turns into a table of 256 values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError
from pixprep.spec import Chroma, Codec, TensorSpec, keep_aspect

MAX_RESIZED_PIXELS = 1 << 28
"""A resize whose whole result, before any crop, would have more pixels is refused (1 GB)."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """A new canvas laid over the image: it crops where it is smaller, and pads where it is larger.

    Attributes:
        height, width: of the canvas; None: a square of ``int(fraction * shorter side)``.
        place: where it lies. ``fixed``: at ``top``, ``left``. ``center``: torchvision's centre crop. ``middle``: the
            margin above is ``floor(d / 2)`` of ``d`` free rows (equal to ``round(d / 2 - 0.1)``). ``top_left``: no
            margin there.
        beyond: what happens where the canvas is larger, or the image is.
    """

    height: int | None
    width: int | None
    fraction: float = 1.0
    place: Literal["fixed", "center", "middle", "top_left"]
    top: int = 0
    left: int = 0
    beyond: Literal["fill", "refuse_smaller", "refuse_larger"]


@dataclass(frozen=True)
class Flip:
    """Mirror the canvas."""

    axis: Literal["horizontal", "vertical"]


@dataclass(frozen=True, kw_only=True)
class Resize:
    """One separable resize of the whole canvas.

    Attributes:
        rule: ``both``: to ``height`` x ``width``. ``shorter``, ``longer``: that side to ``height``, the other to
            ``int(height * other / side)``, at least 1. ``fit``: both to ``round(side * scale)`` with the smaller scale;
            ``shrink``: the same, but no scale over 1.
    """

    rule: Literal["both", "shorter", "longer", "fit", "shrink"]
    height: int
    width: int
    filter: Literal["nearest", "box", "bilinear", "bicubic", "lanczos"]
    antialias: bool
    exact: bool

    def size(self, height: int, width: int) -> tuple[int, int]:
        """The (height, width) that an image of this size is resized to."""
        if self.rule == "both":
            return self.height, self.width
        if self.rule in ("fit", "shrink"):
            scale = min(self.height / height, self.width / width)
            if self.rule == "shrink":
                scale = min(scale, 1.0)
            return max(1, round(height * scale)), max(1, round(width * scale))
        side: Literal["shorter", "longer"] = "shorter" if self.rule == "shorter" else "longer"
        return keep_aspect(self.height, side, height, width)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A geometry applied to an image of one size. Rows before columns; every number is in whole pixels.

    The image is cropped to ``source``; that is mirrored and resized to ``resized``; of the result only ``region`` is
    wanted; it is flipped and laid on the canvas with its first pixel at ``at``. The rest of the canvas is the fill.
    Mirror and flip are two, since the ties of ``nearest`` and ``box`` do not fall alike from both sides.

    Attributes:
        source, region: (top, left, bottom, right), the last two exclusive.
        resized, at, canvas: (rows, columns).
        mirrors, flips: (vertical, horizontal), before and after the resize.
    """

    source: tuple[int, int, int, int]
    mirrors: tuple[bool, bool]
    resized: tuple[int, int]
    region: tuple[int, int, int, int]
    flips: tuple[bool, bool]
    at: tuple[int, int]
    canvas: tuple[int, int]

    @property
    def transform(self) -> tuple[float, float, float, float]:
        """(scale_y, scale_x, offset_y, offset_x): canvas = image * scale + offset, in continuous pixel coordinates."""
        scales, offsets = [], []
        for axis in (0, 1):
            begin, end = self.source[axis], self.source[axis + 2]
            scale = self.resized[axis] / (end - begin)
            offset = -begin * scale
            if self.mirrors[axis]:
                scale, offset = -scale, self.resized[axis] - offset
            offset -= self.region[axis]
            if self.flips[axis]:
                scale, offset = -scale, self.region[axis + 2] - self.region[axis] - offset
            scales.append(scale)
            offsets.append(offset + self.at[axis])
        return (*scales, *offsets)  # type: ignore[return-value]


@dataclass(frozen=True)
class Geometry:
    """Where each output pixel looks, for images of any size."""

    before: tuple[Window | Flip, ...]
    resize: Resize | None
    after: tuple[Window | Flip, ...]

    def place(self, height: int, width: int) -> Placement:
        """Fold the steps for an image of this size.

        Raises:
            ImageError: DOES_NOT_FIT, BAD_DIMENSIONS: this image has no such window.
        """
        rows, columns = _Axis(height), _Axis(width)
        for step in self.before:
            _apply(step, rows, columns)
        source = (rows.begin, columns.begin, rows.begin + rows.length, columns.begin + columns.length)
        size = (rows.length, columns.length)
        resized = self.resize.size(*size) if self.resize else size
        if resized[0] * resized[1] > MAX_RESIZED_PIXELS:
            raise ImageError(
                "BAD_DIMENSIONS",
                f"its {size[0]} x {size[1]} pixels would be resized to {resized[0]} x {resized[1]}, "
                f"more than {MAX_RESIZED_PIXELS:,} pixels",
            )
        mirrors = (rows.is_flipped, columns.is_flipped)
        rows, columns = (_Axis(length) for length in resized)
        for step in self.after:
            _apply(step, rows, columns)
        return Placement(
            source=source,
            mirrors=mirrors,
            resized=resized,
            region=(rows.begin, columns.begin, rows.begin + rows.length, columns.begin + columns.length),
            flips=(rows.is_flipped, columns.is_flipped),
            at=(rows.at, columns.at),
            canvas=(rows.canvas, columns.canvas),
        )


class _Axis:
    """One axis while steps are folded: ``length`` pixels from ``begin`` are seen at ``at`` of a canvas, or mirrored."""

    def __init__(self, length: int) -> None:
        self.begin = 0
        self.length = length
        self.at = 0
        self.canvas = length
        self.is_flipped = False

    def window(self, start: int, length: int) -> None:
        """Lay a canvas of ``length`` over this one, beginning at ``start`` (negative: a margin before)."""
        first = max(self.at, start)
        last = max(first, min(self.at + self.length, start + length))
        cut_before, cut_after = first - self.at, self.at + self.length - last
        if last == first:  # nothing is seen: keep an empty range inside the image
            cut_before, cut_after = min(cut_before, self.length), max(0, self.length - cut_before)
        self.begin += cut_after if self.is_flipped else cut_before
        self.length -= cut_before + cut_after
        self.at = min(first - start, length)
        self.canvas = length

    def flip(self) -> None:
        self.at = self.canvas - self.at - self.length
        self.is_flipped = not self.is_flipped


def _apply(step: Window | Flip, rows: _Axis, columns: _Axis) -> None:
    if isinstance(step, Flip):
        (rows if step.axis == "vertical" else columns).flip()
        return
    side = int(step.fraction * min(rows.canvas, columns.canvas))
    height = max(1, side) if step.height is None else step.height
    width = max(1, side) if step.width is None else step.width
    top = step.top if step.place == "fixed" else _start(step.place, rows.canvas, height)
    left = step.left if step.place == "fixed" else _start(step.place, columns.canvas, width)
    larger = rows.canvas > height or columns.canvas > width
    is_inside = top >= 0 and left >= 0 and top + height <= rows.canvas and left + width <= columns.canvas
    if (step.beyond == "refuse_larger" and larger) or (step.beyond == "refuse_smaller" and not is_inside):
        what = "larger than the canvas of" if step.beyond == "refuse_larger" else "too small for the window of"
        where = f" at {top}, {left}" if step.place == "fixed" else ""
        raise ImageError(
            "DOES_NOT_FIT", f"{rows.canvas} x {columns.canvas} pixels are {what} {height} x {width}{where}"
        )
    rows.window(top, height)
    columns.window(left, width)


def _start(place: Literal["center", "middle", "top_left"], length: int, window: int) -> int:
    """Where a window begins on an axis; negative where it is longer than the axis."""
    if place == "top_left":
        return 0
    if place == "center" and window <= length:
        return round((length - window) / 2)
    return -((window - length) // 2) if window > length else (length - window) // 2


@dataclass(frozen=True, kw_only=True)
class TensorPlan:
    """How one image becomes one tensor.

    Attributes:
        geometry: where each pixel looks.
        fill: the level of each channel where the canvas shows no image, in the order of ``channels``.
        channels: for each channel of the tensor the decoded one it is made of: (0, 1, 2) RGB, (2, 1, 0) BGR, (0,) gray.
        scale, offset: for each channel of the tensor: value = level * scale + offset.
    """

    spec: TensorSpec
    geometry: Geometry
    fill: tuple[int, ...]
    channels: tuple[int, ...]
    scale: tuple[float, ...]
    offset: tuple[float, ...]

    @property
    def table(self) -> npt.NDArray[np.generic]:
        """(channels, 256) of the tensor's dtype: the value of each level, computed in float64 and rounded once."""
        levels = np.arange(256, dtype=np.float64)
        rows = [levels * scale + offset for scale, offset in zip(self.scale, self.offset, strict=True)]
        table: npt.NDArray[np.generic] = np.stack(rows).astype(self.spec.dtype)
        return table


@dataclass(frozen=True, kw_only=True)
class TransformPlan:
    """An output that is the transform of a geometry."""

    spec: TensorSpec
    geometry: Geometry


@dataclass(frozen=True, kw_only=True)
class SizePlan:
    """An output that is the size of the decoded image."""

    spec: TensorSpec


OutputPlan = TensorPlan | TransformPlan | SizePlan


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A compiled pipeline.

    Attributes:
        is_gray: decode to one channel; else to RGB.
        apply_exif_orientation: turn the image upright.
        chroma, decoder: as in the ``decode`` op.
        outputs: by name, in the order of the pipeline.
    """

    is_gray: bool
    apply_exif_orientation: bool
    chroma: Chroma
    decoder: Codec
    outputs: dict[str, OutputPlan]
