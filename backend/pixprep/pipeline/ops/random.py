"""Random crops and flips for training, which follow torchvision v2.

The random parameters are a pure function of (seed, epoch, sample, op).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.canvas import Flip, check_padding
from pixprep.pipeline.ops.crops import Crop
from pixprep.pipeline.ops.geometry import Resize, check_like, resize_step, resized
from pixprep.pipeline.ops.limits import (
    MAX_RATIO,
    MAX_SIDE,
    FillColor,
    Fraction,
    Length,
    OrderedPair,
    Ratio,
    Within,
    need_8bit_values,
    need_channels,
    need_pixel_values,
    shown,
)
from pixprep.pipeline.ops.op import Drawn, ImageOp, Op, Whether, as_kind, bare, settle
from pixprep.plan.draws.augments import RandomStep, Seen, Uniforms
from pixprep.plan.draws.crops import fallback, fitting, window, within
from pixprep.plan.draws.philox import F64, Span, Words, between, span_words
from pixprep.plan.lowered import Lowered
from pixprep.spec import Filter, ImageSpec, Like, PaddingMode, as_tuple

MAX_TRIALS = 1000
MAX_ZOOM = 16.0
SAMPLER_OPTIONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_RETRIES = 10
"""Maximum number of windows that ``random_crop`` rejects because of ``max_label``, as in mmsegmentation."""
_BELOW_ONE = 1 - 1e-9
"""Factor slightly below 1 that makes a bound safe against rounding errors."""
_CHOICES, _FIRST_CHOICES = 20, 4
"""Maximum number of times that ``random_iou_crop`` chooses an overlap, and number of choices sampled in advance.

torchvision repeats the choice until it finds a window or chooses the overlap 1.0, which keeps the whole image. If no
window fits, 95 % of the images have reached 1.0 after 20 choices; pixprep then also keeps the whole image for the
remaining 5 %. The random numbers of the first choices are generated for the whole batch at once, which takes 2 % of the
time of separate calls. The random numbers of the other choices are generated only if they are needed.
"""


class RandomResizedCrop(Whether, ImageOp, frozen=True, tag="random_resized_crop"):
    """Crops a random window of random size and aspect ratio, and resizes it to ``height`` x ``width``.

    The op reproduces torchvision v2's ``RandomResizedCrop``: it samples up to ten windows and uses the first one that
    fits into the image. Each window has the area ``H * W * U(scale)`` and the aspect ratio ``exp(U(log(ratio)))``,
    where ``U`` is uniformly distributed, and both sides are rounded. Its position is also uniformly distributed. If no
    window fits, the largest centered window with an allowed aspect ratio is used. An image that is too small for any
    window is rejected; torchvision raises an error, or returns a black PIL image.

    Args:
        height: Height of the result in pixels.
        width: Width of the result in pixels; default: ``height``.
        scale: Minimum and maximum of the window's area, as a fraction of the image's area.
        ratio: Minimum and maximum of the window's aspect ratio, its width divided by its height.
        filter, antialias, like: as in ``resize``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_resized_crop", "height": 224, "scale": [0.2, 1.0]}
    """

    blocks: ClassVar[int] = 10  # one block per attempt, with random numbers for the area, the ratio, top and left

    height: Length
    width: Length | None = None
    scale: Annotated[tuple[float, float], OrderedPair(0, 1, is_over=True)] = (0.08, 1.0)
    ratio: Ratio = (3 / 4, 4 / 3)
    filter: Filter = "bilinear"
    antialias: bool | None = None
    like: Like = "pillow"
    p: Fraction = 1.0

    def check(self) -> None:
        check_like(self)
        settle(self, "width", self.height)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the result; reject normalized values."""
        return resized(self, image).sized(self.height, self.width or self.height)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        resize = resize_step(self, "both", self.height, self.width or self.height)
        return before.then(RandomStep(key, bare(self))).resized(resize)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample a window: the first of ten attempts that fits into the image, or the result of ``fallback``.

        Raises:
            ImageError: DOES_NOT_FIT: A side of the fallback window is shorter than a pixel.
        """
        log_min, log_max = math.log(self.ratio[0]), math.log(self.ratio[1])
        for u_area, u_ratio, u_top, u_left in uniforms(0, self.blocks).tolist():
            area = between(self.scale, u_area)
            size = fitting(height, width, area, math.exp(log_min + u_ratio * (log_max - log_min)))
            if size is not None:
                return window(int(u_top * (height - size[0] + 1)), int(u_left * (width - size[1] + 1)), *size)
        rows, columns = fallback(height, width, self.ratio)
        if not (rows and columns):
            ratios = " to ".join(f"{limit:g}" for limit in self.ratio)
            # The digests of tests/golden/draws.json include this message.
            raise ImageError("DOES_NOT_FIT", f"{height} x {width} pixels have no window of the ratio {ratios}")
        return window((height - rows) // 2, (width - columns) // 2, rows, columns)

    def in_words(self) -> str:
        area, ratio = span_words(self.scale), span_words(self.ratio)
        return f"crop a random window with {area} of the area and an aspect ratio of {ratio}"

    def fixed_ops(self, words: Words) -> list[Op]:
        return [Crop(**words), as_kind(Resize, self)]


class RandomSizedCrop(Whether, ImageOp, frozen=True, tag="random_sized_crop"):
    """Crops a random window of random height and fixed aspect ratio, and resizes it to ``height`` x ``width``.

    The op reproduces Albumentations' ``RandomSizedCrop``: the height of the window is a uniformly distributed integer,
    its width is ``int(height * ratio)``, and both are clipped to the size of the image. The position is also uniformly
    distributed.

    Args:
        height: Height of the result in pixels.
        heights: Minimum and maximum height of the window in pixels.
        width: Width of the result in pixels; default: ``height``.
        ratio: Width of the window divided by its height.
        filter, antialias, like: as in ``resize``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_sized_crop", "height": 224, "heights": [180, 360]}
    """

    height: Length
    heights: Annotated[tuple[int, int], OrderedPair(1, MAX_SIDE)]
    width: Length | None = None
    ratio: Annotated[float, Within(1 / MAX_RATIO, MAX_RATIO)] = 1.0
    filter: Filter = "bilinear"
    antialias: bool | None = None
    like: Like = "pillow"
    p: Fraction = 1.0

    check = RandomResizedCrop.check
    infer = RandomResizedCrop.infer
    lower = RandomResizedCrop.lower
    fixed_ops = RandomResizedCrop.fixed_ops

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the window.

        Raises:
            ImageError: DOES_NOT_FIT: The window would be narrower than a pixel.
        """
        u_height, u_top, u_left, _ = uniforms(0, 1)[0].tolist()
        rows = self.heights[0] + int(u_height * (self.heights[1] - self.heights[0] + 1))
        rows, columns = min(rows, height), min(int(rows * self.ratio), width)
        if not columns:
            raise ImageError("DOES_NOT_FIT", f"a window with {rows} rows would be narrower than a pixel")
        return window(int(u_top * (height - rows + 1)), int(u_left * (width - columns + 1)), rows, columns)

    def in_words(self) -> str:
        return f"crop a random window of {span_words(self.heights)} rows and an aspect ratio of {self.ratio:.4g}"


class RandomCrop(Whether, ImageOp, frozen=True, tag="random_crop"):
    """Crops a window of fixed size at a random position.

    The op reproduces torchvision v2's ``RandomCrop``. An image that is smaller than the window is rejected, unless
    ``pad_if_needed`` is true.

    The window can depend on the annotations of the sample; the op must then come before rotations and other warps:

    - ``"around": "mask"`` chooses a pixel of the foreground and a random window that contains this pixel, like
      Albumentations' ``CropNonEmptyMaskIfExists``. The foreground is read from the field ``mask`` or, for samples
      without this field, from ``masks``. With ``"by_label": true`` and ``"centered": true``, it first chooses a label
      of the image and then a pixel of this label, which becomes the center of the window, as in nnU-Net's foreground
      patches. With ``"around_p": 0.33``, this applies to one third of the windows.
    - ``"around": "box"`` chooses the center of a box of the sample instead of a pixel, and ``"around": "point"``
      chooses a point. If the sample has the field ``visible``, points whose value is 0 are not chosen.
    - ``max_label`` corresponds to mmsegmentation's ``cat_max_ratio``: a window is sampled again, up to 10 times, unless
      it contains at least two labels and the most frequent one has less than this fraction of the pixels. Pixels with a
      label in ``ignore`` are not counted. mmsegmentation accepts images that are smaller than the window, and pads them
      later at the bottom and on the right.

    If the image at the op contains no foreground, center of a box, or point, the position is uniformly distributed.

    Args:
        height: Height of the window in pixels.
        width: Width of the window in pixels; default: ``height``.
        padding: Number of pixels by which the image is padded before the crop, as in torchvision: one number, [left and
            right, top and bottom] or [left, top, right, bottom].
        pad_if_needed: Whether to pad an image that is smaller than the window even after ``padding``. The same amount
            is added on both sides.
        fill: Color of the padding, 0 to 255: one number, or one per channel.
        padding_mode: Content of the padding, as in ``pad``.
        around: Annotation that the window contains: ``mask``, ``box`` or ``point``. Default: the position of the window
            does not depend on annotations.
        around_p: Probability, 0 to 1, that the window contains the annotation. All other windows have a uniformly
            distributed position.
        by_label: Whether the label of the pixel is chosen first, so that rare and frequent labels have the same
            probability. Requires ``"around": "mask"``.
        centered: Whether the pixel, or the point, is in row ``height // 2`` and column ``width // 2`` of the window. By
            default, its position in the window is uniformly distributed. In both cases, the window is then moved into
            the image with its ``padding``. With ``pad_if_needed``, a centered window that extends beyond the bottom or
            right edge is not moved, but padded, as in nnU-Net.
        max_label: Upper bound, greater than 0 and at most 1, on the fraction of the window's pixels with the most
            frequent label. The fraction must be less than this bound. The default, 1, allows every window.
        ignore: Labels that ``around`` and ``max_label`` ignore. ``around`` also ignores the label 0. Padding by earlier
            ops has the label ``ignore`` of the op ``mask``. If this label is not in the list, the padding counts like
            all other pixels with the label, as in Albumentations and mmsegmentation.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_crop", "height": 32, "padding": 4}
    """

    height: Length
    width: Length | None = None
    padding: int | tuple[int, ...] = 0
    pad_if_needed: bool = False
    fill: FillColor = 0
    padding_mode: PaddingMode = "constant"
    p: Fraction = 1.0
    around: Literal["mask", "box", "point"] | None = None
    around_p: Fraction = 1.0
    by_label: bool = False
    centered: bool = False
    max_label: Annotated[float, Within(1e-6, 1)] = 1.0
    ignore: tuple[int, ...] = (255,)

    def check(self) -> None:
        settle(self, "width", self.height)
        check_padding(self.padding_mode, self.fill)
        if self.around is None and (self.around_p, self.by_label, self.centered) != (1.0, False, False):
            raise PipelineError('"around_p", "by_label" and "centered" require "around"')
        if self.by_label and self.around != "mask":
            raise PipelineError('"by_label" requires "around": "mask"')
        if self.around is not None and self.max_label < 1:
            raise PipelineError('"around" and "max_label" are not supported together: remove one of them')
        if self.sees and self.padding_mode != "constant":
            raise PipelineError('"around" and "max_label" require "padding_mode": "constant"')
        padding = as_tuple(self.padding)
        if len(padding) not in (1, 2, 4) or not all(0 <= pixels <= 16384 for pixels in padding):
            raise PipelineError(
                f'"padding" must be 1, 2 or 4 numbers from 0 to 16384, as in torchvision, not {shown(self.padding)}'
            )
        if not self.may_pad and (self.fill, self.padding_mode) != (0, "constant"):
            raise PipelineError('"fill" and "padding_mode" require "padding" or "pad_if_needed"')

    @property
    def margins(self) -> tuple[int, int, int, int]:
        """Width of the padding in pixels: (top, left, bottom, right)."""
        left, top, right, bottom = (
            int(pixels) for pixels in as_tuple(self.padding) * (4 // len(as_tuple(self.padding)))
        )
        return top, left, bottom, right

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the window; reject a window that is larger than every image."""
        need_channels("fill", self.fill, image.channels)
        if self.may_pad:
            (need_pixel_values if self.padding_mode == "constant" else need_8bit_values)(image)
        width = self.width or self.height
        top, left, bottom, right = self.margins
        for name, length, padded in (
            ("height", self.height, image.height and image.height + top + bottom),
            ("width", width, image.width and image.width + left + right),
        ):
            if padded is not None and length > padded and not self.pad_if_needed:
                raise PipelineError(
                    f'"{name}" is {length}, but the {name} of the image with its padding is {padded}: write '
                    '"pad_if_needed": true to pad it'
                )
        return image.sized(self.height, width)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        if not self.may_pad:
            return before.then(RandomStep(key, bare(self)))
        return before.then(RandomStep(key, bare(self), is_inside=False), fill=self.fill, mode=self.padding_mode)

    @property
    def may_pad(self) -> bool:
        """Return whether the window may include padding."""
        return any(self.margins) or self.pad_if_needed

    @property
    def blocks(self) -> int:
        """Number of blocks: one for the position, one for the annotation, and one for each new attempt."""
        return 1 + (self.around is not None) + (_RETRIES if self.max_label < 1 else 0)

    @property
    def sees(self) -> tuple[str, ...]:
        if self.max_label < 1:
            return ("mask",)
        return () if self.around is None else ({"box": "boxes", "point": "points"}.get(self.around, self.around),)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the position of the window uniformly.

        Raises:
            ImageError: DOES_NOT_FIT: The image with its padding is smaller than the window.
        """
        return self._drawn(self._spans(height, width), *uniforms(0, 1)[0, :2].tolist())

    def draw_by(self, seen: Seen, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the position of the window, depending on the annotations of the sample; see ``draw``."""
        spans = self._spans(height, width)
        if self.around is None:
            return self._varied(seen, spans, uniforms)
        (u_top, u_left, u_around, u_label), (u_which, u_row, u_column, _) = uniforms(0, 2).tolist()
        found = self._around(seen, (height, width), u_label, u_which) if u_around < self.around_p else None
        if found is None:
            return self._drawn(spans, u_top, u_left)
        starts = []
        for at, side, uniform, (first, last) in zip(found, self._size, (u_row, u_column), spans, strict=True):
            start = at - side // 2 if self.centered else at - int(uniform * side)
            is_free = self.centered and self.pad_if_needed
            starts.append(max(start, first) if is_free else min(max(start, first), last))
        return window(starts[0], starts[1], *self._size)

    @property
    def _size(self) -> tuple[int, int]:
        return self.height, self.width or self.height

    def _drawn(self, spans: Sequence[tuple[int, int]], u_top: float, u_left: float) -> Words:
        """Return a window whose first row and column are uniformly distributed in these spans."""
        (first, last), (start, end) = spans
        return window(first + int(u_top * (last - first + 1)), start + int(u_left * (end - start + 1)), *self._size)

    def _spans(self, height: int, width: int) -> Sequence[tuple[int, int]]:
        """Return the ranges of the window's first row and first column, in coordinates of the image without padding.

        Raises:
            ImageError: DOES_NOT_FIT: The image with its padding is smaller than the window.
        """
        top, left, bottom, right = self.margins
        spans = []
        for length, side, before, after in zip((height, width), self._size, (top, left), (bottom, right), strict=True):
            missing = max(0, side - (before + length + after))
            if missing and not self.pad_if_needed:
                sides = f"{self._size[0]} x {self._size[1]}"
                raise ImageError("DOES_NOT_FIT", f"{height} x {width} pixels are too small for the window of {sides}")
            spans.append((-before - missing, length + after + missing - side))
        return spans

    def _around(self, seen: Seen, size: tuple[int, int], u_label: float, u_which: float) -> tuple[int, int] | None:
        """Return a random (row, column) of the annotation in an image of this size, or None if there is none."""
        if self.around == "mask":
            assert seen.labels is not None
            labels = seen.labels()
            counts = ~np.isin(labels, (0, *self.ignore))
            if self.by_label and counts.any():
                kinds = np.unique(labels[counts])
                counts = labels == kinds[int(u_label * len(kinds))]
            pixels = np.flatnonzero(counts)
            if not len(pixels):
                return None
            row, column = divmod(int(pixels[int(u_which * len(pixels))]), labels.shape[1])
            return row, column
        if self.around == "box":
            points = None if seen.boxes is None else (seen.boxes[:, :2] + seen.boxes[:, 2:]) / 2
        else:
            points = None if seen.points is None else seen.points.reshape(-1, 2)
            if points is not None and seen.visible is not None and seen.visible.size == len(points):
                points = points[seen.visible.reshape(-1) > 0]
        if points is None:
            return None
        points = points[((points >= 0) & (points <= size[::-1])).all(axis=1)]
        if not len(points):
            return None
        x, y = points[int(u_which * len(points))].tolist()
        return math.floor(y), math.floor(x)

    def _varied(self, seen: Seen, spans: Sequence[tuple[int, int]], uniforms: Uniforms) -> Words:
        """Return the first sampled window in which no label is too frequent. If there is none, return the last one."""
        assert seen.labels is not None
        labels = seen.labels()
        for trial, (u_top, u_left, *_) in enumerate(uniforms(0, self.blocks).tolist()):
            found = self._drawn(spans, u_top, u_left)
            corner = zip((found["top"], found["left"]), self._size, strict=True)
            rows, columns = (slice(max(at, 0), max(at + side, 0)) for at, side in corner)
            kinds, counts = np.unique(labels[rows, columns], return_counts=True)
            counts = counts[~np.isin(kinds, self.ignore)]
            if trial == _RETRIES or (len(counts) > 1 and counts.max() / counts.sum() < self.max_label):
                break
        return found

    def in_words(self) -> str:
        padding = f", after padding by {', '.join(map(str, self.margins))} pixels" if any(self.margins) else ""
        seen = ""
        if self.around is not None:
            often = "" if self.around_p == 1 else f" for {self.around_p:g} of the images"
            place = "centered on" if self.centered else "that contains"
            what = f"a {self.around}"
            if self.around == "mask":
                what = f"a pixel of {'a label' if self.by_label else 'the mask'}"
            seen = f" {place} {what}{often}"
        if self.max_label < 1:
            seen = f" in which no label fills {self.max_label:g} or more"
        return f"crop a random window of {self.height} x {self.width}{seen}{padding}"

    def fixed_ops(self, words: Words) -> list[Op]:
        return super().fixed_ops(words) if self.may_pad else [Crop(**words)]


class RandomSizeCrop(Whether, ImageOp, frozen=True, tag="random_size_crop"):
    """Crops a window of random size at a random position.

    The op reproduces DETR's ``RandomSizeCrop``. The height and the width of the window are uniformly distributed
    integers from ``min_size`` to ``max_size``, or to the height or width of the image if that is smaller. The position
    is also uniformly distributed. An image whose height or width is less than ``min_size`` is rejected.

    Args:
        min_size, max_size: Minimum and maximum length of each side in pixels.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_size_crop", "min_size": 384, "max_size": 600}
    """

    min_size: Length
    max_size: Length
    p: Fraction = 1.0

    def check(self) -> None:
        if self.min_size > self.max_size:
            raise PipelineError(f'"max_size" must be at least "min_size", {self.min_size}, not {self.max_size}')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the window, whose sides are between ``min_size`` and ``max_size``."""
        height, width = (min(side or self.max_size, self.max_size) for side in (image.max_height, image.max_width))
        return image.within((min(self.min_size, height), min(self.min_size, width)), (height, width))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.then(RandomStep(key, bare(self)))

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the size and the position of the window.

        Raises:
            ImageError: DOES_NOT_FIT: A side of the image is shorter than ``min_size``.
        """
        if min(height, width) < self.min_size:
            # The digests of tests/golden/draws.json include this message.
            raise ImageError(
                "DOES_NOT_FIT", f"{height} x {width} pixels are too small for a window of {self.min_size} a side"
            )
        u_height, u_width, u_top, u_left = uniforms(0, 1)[0].tolist()
        rows, columns = (
            self.min_size + int(uniform * (min(side, self.max_size) - self.min_size + 1))
            for uniform, side in ((u_height, height), (u_width, width))
        )
        return window(int(u_top * (height - rows + 1)), int(u_left * (width - columns + 1)), rows, columns)

    def in_words(self) -> str:
        return f"crop a random window with sides of {self.min_size} to {self.max_size} pixels"

    def fixed_ops(self, words: Words) -> list[Op]:
        return [Crop(**words)]


class RandomFlip(Drawn, ImageOp, frozen=True, tag="random_flip"):
    """Flips the image horizontally or vertically with probability ``p``.

    The op reproduces torchvision v2's ``RandomHorizontalFlip`` and ``RandomVerticalFlip``.

    Args:
        axis: Direction of the flip: ``horizontal`` swaps left and right, ``vertical`` swaps top and bottom.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_flip"}
    """

    axis: Literal["horizontal", "vertical"] = "horizontal"
    p: Fraction = 0.5

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.then(RandomStep(key, bare(self), axis=self.axis))

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample whether to flip the image."""
        return {"flip": bool(uniforms(0, 1)[0, 0] < self.p)}

    def in_words(self) -> str:
        return f"flip {self.p:g} of the images {self.axis}ly"

    def fixed_ops(self, words: Words) -> list[Op]:
        return [as_kind(Flip, self)] if words["flip"] else []


class RandomZoomOut(Drawn, ImageOp, frozen=True, tag="random_zoom_out"):
    """Places the image at a random position of a larger canvas with probability ``p``.

    The op reproduces torchvision v2's ``RandomZoomOut``. The height and width of the canvas are those of the image
    multiplied by a factor and truncated. The factor is uniformly distributed in ``side_range``. Only the part of the
    canvas that later ops keep is computed.

    Args:
        fill: Color of the canvas, 0 to 255: one number, or one per channel.
        side_range: Minimum and maximum ratio of the canvas's sides to the image's sides, 1 to 16.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_zoom_out", "side_range": [1, 2]}
    """

    fill: FillColor = 0
    side_range: Annotated[tuple[float, float], OrderedPair(1, MAX_ZOOM)] = (1.0, 4.0)
    p: Fraction = 0.5

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the canvas, whose size has no upper bound."""
        need_pixel_values(image)
        need_channels("fill", self.fill, image.channels)
        return image.within((image.min_height, image.min_width))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.then(RandomStep(key, bare(self), is_inside=False), fill=self.fill)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the canvas, as a window that contains the image; it equals the image if the op is not applied."""
        u_apply, u_factor, u_left, u_top = uniforms(0, 1)[0].tolist()
        if u_apply >= self.p:
            return window(0, 0, height, width)
        factor = between(self.side_range, u_factor)
        rows, columns = int(height * factor), int(width * factor)
        return window(-int((rows - height) * u_top), -int((columns - width) * u_left), rows, columns)

    def in_words(self) -> str:
        factor = span_words(self.side_range)
        return f"place {self.p:g} of the images at a random position of a canvas {factor} times as high and wide"


class RandomIouCrop(Whether, ImageOp, frozen=True, tag="random_iou_crop"):
    """Crops a random window that has a minimum IoU with at least one of the sample's boxes; samples must have boxes.

    The op reproduces torchvision v2's ``RandomIoUCrop``, from the SSD paper. It first chooses a minimum IoU at random.
    It then samples up to ``trials`` windows with sides ``int(side * U(min_scale, max_scale))``, and uses the first
    window that contains the center of at least one box and has at least this IoU with one of the boxes whose centers it
    contains. If no window qualifies, it chooses a minimum IoU again, at most 20 times in total; after that, the image
    does not change. torchvision does not limit the number of choices: it continues until a window qualifies, or until
    it chooses a minimum IoU of 1 or more, which keeps the whole image. Boxes whose center is outside the window are
    removed.

    Args:
        min_scale: Minimum height and width of the window, as a fraction of the image's height and width.
        max_scale: Maximum height and width of the window, as a fraction of the image's height and width.
        min_aspect_ratio: Minimum aspect ratio of the window, its width divided by its height.
        max_aspect_ratio: Maximum aspect ratio of the window, its width divided by its height.
        sampler_options: Minimum IoUs to choose from; default: 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1. A value of 1 or more
            keeps the whole image.
        trials: Number of windows to sample per chosen minimum IoU.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_iou_crop"}
    """

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: tuple[float, ...] | None = None
    trials: Annotated[int, Within(1, MAX_TRIALS)] = 40
    p: Fraction = 1.0

    def check(self) -> None:
        settle(self, "sampler_options", SAMPLER_OPTIONS)
        OrderedPair(0, 1, is_over=True).check("min_scale, max_scale", self.scale)
        OrderedPair(0, 1000, is_over=True).check("min_aspect_ratio, max_aspect_ratio", self.ratio)
        if not self.sampler_options or not all(0 <= overlap <= 1000 for overlap in self.sampler_options):
            raise PipelineError('"sampler_options" must be numbers from 0 to 1000; 1 or more keeps the whole image')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the window, whose size is at most that of the image."""
        return image.within((1, 1), (image.max_height, image.max_width))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.then(RandomStep(key, bare(self)))

    @property
    def sees(self) -> tuple[str, ...]:
        return ("boxes",)

    def keeps(self, words: Words, boxes: F64) -> npt.NDArray[np.bool_]:
        return within(words, boxes)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Return the window of an image without boxes, which is the whole image."""
        return window(0, 0, height, width)

    @property
    def scale(self) -> Span:
        """Range of the window's height and width, as fractions of those of the image."""
        return self.min_scale, self.max_scale

    @property
    def ratio(self) -> Span:
        """Range of the window's width divided by its height."""
        return self.min_aspect_ratio, self.max_aspect_ratio

    @property
    def blocks(self) -> int:
        """Number of blocks of random numbers for the first choices of an overlap. They suffice for most images."""
        return _FIRST_CHOICES * (1 + self.trials)

    def draw_by(self, seen: Seen, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample a window. Each choice uses one block for the overlap, and one per trial for the window."""
        assert self.sampler_options is not None
        boxes = seen.boxes
        if boxes is None or not len(boxes):
            return self.draw(height, width, uniforms)
        each = [
            ((x1 + x2) * 0.5, (y1 + y2) * 0.5, x1, y1, x2, y2, (x2 - x1) * (y2 - y1))
            for x1, y1, x2, y2 in boxes.tolist()
        ]
        # The IoU is at most the area of the box divided by the area of the window, so that small boxes can be skipped.
        min_area = int(width * self.min_scale) * int(height * self.min_scale) * _BELOW_ONE
        n_blocks = 1 + self.trials
        for choice, count in ((0, _FIRST_CHOICES), (_FIRST_CHOICES, _CHOICES - _FIRST_CHOICES)):
            several = uniforms(choice * n_blocks, count * n_blocks).reshape(count, n_blocks, 4)
            for uniform, trials in zip(several[:, 0, 0].tolist(), several[:, 1:], strict=True):
                overlap = self.sampler_options[int(uniform * len(self.sampler_options))]
                if overlap >= 1:
                    return window(0, 0, height, width)
                candidates = [box for box in each if box[-1] >= overlap * min_area]
                found = self._first_fitting(height, width, trials, candidates, overlap) if candidates else None
                if found is not None:
                    return found
        return window(0, 0, height, width)

    def _first_fitting(
        self, height: int, width: int, trials: F64, boxes: Sequence[tuple[float, ...]], overlap: float
    ) -> Words | None:
        """Return the first of several windows that has the required IoU with one of the boxes, or None.

        Args:
            height: Height of the image in pixels.
            width: Width of the image in pixels.
            trials: Uniform random numbers of each window, (trials, 4).
            boxes: For each box, x and y of the center, left, top, right, bottom, and the area.
            overlap: Minimum IoU.
        """
        min_scale, scale_range = self.min_scale, self.max_scale - self.min_scale
        (min_ratio, max_ratio), max_area = self.ratio, max(box[-1] for box in boxes) / _BELOW_ONE
        for u_width, u_height, u_left, u_top in trials.tolist():
            columns = int(width * (min_scale + scale_range * u_width))
            rows = int(height * (min_scale + scale_range * u_height))
            area = columns * rows
            if not min_ratio * rows <= columns <= max_ratio * rows or not (area > 0 and area * overlap <= max_area):
                continue
            left, top = int((width - columns) * u_left), int((height - rows) * u_top)
            right, bottom = left + columns, top + rows
            for x, y, x1, y1, x2, y2, own in boxes:
                if left < x < right and top < y < bottom:
                    shared = max(min(x2, right) - max(x1, left), 0) * max(min(y2, bottom) - max(y1, top), 0)
                    if shared >= overlap * (own + area - shared):
                        return window(top, left, rows, columns)
        return None

    def in_words(self) -> str:
        return f"crop to a random window around boxes, {span_words(self.scale)} of the height and width"
