"""Ops whose window or flip is drawn again for each sample of each epoch: in training only, with torchvision v2's rules.

The numbers are a pure function of (seed, epoch, sample, op).
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.canvas import Flip, check_padding
from pixprep.pipeline.ops.crops import Crop
from pixprep.pipeline.ops.geometry import Resize, check_like, resize_step, resized
from pixprep.pipeline.ops.limits import (
    Length,
    Margin,
    Ratio,
    Rising,
    Share,
    Within,
    need_channels,
    need_levels,
    need_whole_levels,
    shown,
)
from pixprep.pipeline.ops.op import Drawn, ImageOp, Op, Whether, as_kind, bare, settle
from pixprep.plan.draws.augments import RandomStep, Uniforms
from pixprep.plan.draws.crops import IouCrop, fallback, fitting, window
from pixprep.plan.draws.philox import Words, between, span_words
from pixprep.plan.lowered import Lowered
from pixprep.spec import Filter, ImageSpec, Like, PaddingMode, as_tuple

MAX_TRIALS = 1000
MAX_ZOOM = 16.0
SAMPLER_OPTIONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


class RandomResizedCrop(Whether, ImageOp, frozen=True, tag="random_resized_crop"):
    """Crops a random window of random size and aspect ratio, and resizes it to ``height`` x ``width``.

    The window is that of torchvision v2's ``RandomResizedCrop``. It is the first of ten attempts that fits. Each
    attempt has the area ``H * W * U(scale)`` and the ratio ``exp(U(log(ratio)))``, with both sides rounded, at a
    uniform position. If none fits, the largest centered window with an allowed ratio is used. An image with too few
    pixels for any window is rejected; torchvision raises an error, or returns a black PIL image.

    Args:
        height: Height of the result in pixels.
        width: Width of the result in pixels; default: ``height``.
        scale: Minimum and maximum of the window's area, as a fraction of the image's area.
        ratio: Minimum and maximum of the window's width divided by its height.
        filter, antialias, like: as in ``resize``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_resized_crop", "height": 224, "scale": [0.2, 1.0]}
    """

    blocks: ClassVar[int] = 10  # one a try: area, ratio, top, left

    height: Length
    width: Length | None = None
    scale: Annotated[tuple[float, float], Rising(0, 1, is_over=True)] = (0.08, 1.0)
    ratio: Ratio = (3 / 4, 4 / 3)
    filter: Filter = "bilinear"
    antialias: bool | None = None
    like: Like = "pillow"
    p: Share = 1.0

    def check(self) -> None:
        check_like(self)
        settle(self, "width", self.height)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the result; refuses values that are not the decoder's levels."""
        return resized(self, image).sized(self.height, self.width or self.height)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        resize = resize_step(self, "both", self.height, self.width or self.height)
        return before.then(RandomStep(key, bare(self))).resized(resize)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """The first of ten tries whose window fits, or ``fallback``.

        Raises:
            ImageError: DOES_NOT_FIT: the fallback has no pixel; torchvision raises there, or makes a PIL image black.
        """
        lowest, highest = math.log(self.ratio[0]), math.log(self.ratio[1])
        for area, ratio, top, left in uniforms(0, self.blocks).tolist():
            share = between(self.scale, area)
            size = fitting(height, width, share, math.exp(lowest + ratio * (highest - lowest)))
            if size is not None:
                return window(int(top * (height - size[0] + 1)), int(left * (width - size[1] + 1)), *size)
        rows, columns = fallback(height, width, self.ratio)
        if not (rows and columns):
            ratios = " to ".join(f"{end:g}" for end in self.ratio)
            raise ImageError("DOES_NOT_FIT", f"{height} x {width} pixels have no window of the ratio {ratios}")
        return window((height - rows) // 2, (width - columns) // 2, rows, columns)

    def in_words(self) -> str:
        area, ratio = span_words(self.scale), span_words(self.ratio)
        return f"take a random window of {area} of the area, {ratio} as wide as high"

    def fixed(self, words: Words) -> list[Op]:
        return [Crop(**words), as_kind(Resize, self)]


class RandomCrop(Whether, ImageOp, frozen=True, tag="random_crop"):
    """Crops a window of fixed size at a random position.

    The window is that of torchvision v2's ``RandomCrop``. An image that is too small is rejected, unless
    ``pad_if_needed`` is true.

    Args:
        height: Height of the window in pixels.
        width: Width of the window in pixels; default: ``height``.
        padding: Number of pixels of ``fill`` that are added first, as in torchvision: one number, [left and right, top
            and bottom] or [left, top, right, bottom].
        pad_if_needed: Whether an image that is still too small is padded on both sides.
        fill: Color of the padding, 0 to 255: one number, or one per channel.
        padding_mode: Content of the padding, see ``pad``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_crop", "height": 32, "padding": 4}
    """

    blocks: ClassVar[int] = 1  # top, left

    height: Length
    width: Length | None = None
    padding: int | tuple[int, ...] = 0
    pad_if_needed: bool = False
    fill: Margin = 0
    padding_mode: PaddingMode = "constant"
    p: Share = 1.0

    def check(self) -> None:
        settle(self, "width", self.height)
        check_padding(self.padding_mode, self.fill)
        margins = as_tuple(self.padding)
        if len(margins) not in (1, 2, 4) or not all(0 <= margin <= 16384 for margin in margins):
            raise PipelineError(
                f'"padding" must be 1, 2 or 4 numbers of 0 to 16384, as torchvision has them, not {shown(self.padding)}'
            )
        if not self.may_pad and (self.fill, self.padding_mode) != (0, "constant"):
            raise PipelineError('"fill" and "padding_mode" go with "padding" or "pad_if_needed"')

    @property
    def margins(self) -> tuple[int, int, int, int]:
        """(top, left, bottom, right)."""
        left, top, right, bottom = (
            int(margin) for margin in as_tuple(self.padding) * (4 // len(as_tuple(self.padding)))
        )
        return top, left, bottom, right

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the window; refuses one that no image could hold."""
        need_channels("fill", self.fill, image.channels)
        if self.may_pad:
            (need_levels if self.padding_mode == "constant" else need_whole_levels)(image)
        width = self.width or self.height
        top, left, bottom, right = self.margins
        for name, length, side in (
            ("height", self.height, image.height and image.height + top + bottom),
            ("width", width, image.width and image.width + left + right),
        ):
            if side is not None and length > side and not self.pad_if_needed:
                raise PipelineError(f"its {name} is {length}, but that of the image is {side}: pad_if_needed allows it")
        return image.sized(self.height, width)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        if not self.may_pad:
            return before.then(RandomStep(key, bare(self)))
        return before.then(RandomStep(key, bare(self), is_inside=False), fill=self.fill, mode=self.padding_mode)

    @property
    def may_pad(self) -> bool:
        """Tell whether the window may reach into a margin."""
        return any(self.margins) or self.pad_if_needed

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """A window, each place as likely as another.

        Raises:
            ImageError: DOES_NOT_FIT.
        """
        size = self.height, self.width or self.height
        u_top, u_left = uniforms(0, 1)[0, :2].tolist()
        above, before, below, behind = self.margins
        top = self._start(u_top, height, size[0], above, below)
        left = self._start(u_left, width, size[1], before, behind)
        if top is None or left is None:
            raise ImageError(
                "DOES_NOT_FIT", f"{height} x {width} pixels are too small for the window of {size[0]} x {size[1]}"
            )
        return window(top, left, *size)

    def _start(self, uniform: float, length: int, side: int, before: int, after: int) -> int | None:
        padded = before + length + after
        if padded < side:
            if not self.pad_if_needed:
                return None
            before += side - padded
            padded += 2 * (side - padded)
        return int(uniform * (padded - side + 1)) - before

    def in_words(self) -> str:
        padded = f", after margins of {', '.join(map(str, self.margins))}" if any(self.margins) else ""
        return f"take a random {self.height} x {self.width}{padded}"

    def fixed(self, words: Words) -> list[Op]:
        return super().fixed(words) if self.may_pad else [Crop(**words)]


class RandomSizeCrop(Whether, ImageOp, frozen=True, tag="random_size_crop"):
    """Crops a window of random size at a random position.

    The op equals DETR's ``RandomSizeCrop``. Each side is a uniform integer from ``min_size`` to ``max_size`` or the
    image's side, and the position is uniform. An image with a side below ``min_size`` is rejected.

    Args:
        min_size, max_size: Minimum and maximum length of each side in pixels.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_size_crop", "min_size": 384, "max_size": 600}
    """

    blocks: ClassVar[int] = 1  # height, width, top, left

    min_size: Length
    max_size: Length
    p: Share = 1.0

    def check(self) -> None:
        if self.min_size > self.max_size:
            raise PipelineError(f'"max_size" must be at least "min_size", {self.min_size}, not {self.max_size}')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the window: any size between both."""
        most = (min(side or self.max_size, self.max_size) for side in (image.max_height, image.max_width))
        height, width = most
        return image.within((min(self.min_size, height), min(self.min_size, width)), (height, width))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.then(RandomStep(key, bare(self)))

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Draw both sides, and the place.

        Raises:
            ImageError: DOES_NOT_FIT.
        """
        if min(height, width) < self.min_size:
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
        return f"take a random window of {self.min_size} to {self.max_size} pixels a side"

    def fixed(self, words: Words) -> list[Op]:
        return [Crop(**words)]


class RandomFlip(Drawn, ImageOp, frozen=True, tag="random_flip"):
    """Mirrors some of the images, at random.

    The op equals torchvision v2's ``RandomHorizontalFlip`` and ``RandomVerticalFlip``.

    Args:
        axis: Direction: ``horizontal`` swaps left and right, ``vertical`` swaps top and bottom.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_flip"}
    """

    blocks: ClassVar[int] = 1  # whether

    axis: Literal["horizontal", "vertical"] = "horizontal"
    p: Share = 0.5

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.then(RandomStep(key, bare(self), axis=self.axis))

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Draw whether to mirror."""
        return {"flip": bool(uniforms(0, 1)[0, 0] < self.p)}

    def in_words(self) -> str:
        return f"mirror {self.p:g} of the images, {self.axis}"

    def fixed(self, words: Words) -> list[Op]:
        return [as_kind(Flip, self)] if words["flip"] else []


class RandomZoomOut(Drawn, ImageOp, frozen=True, tag="random_zoom_out"):
    """Places some of the images at a random position of a larger canvas.

    The op equals torchvision v2's ``RandomZoomOut``: each side of the canvas is ``int(side * U(side_range))``, with the
    same factor for both sides. Only the part of the canvas that later ops keep is filled.

    Args:
        fill: Color of the canvas, 0 to 255: one number, or one per channel.
        side_range: Minimum and maximum of the canvas's side divided by the image's side, 1 to 16.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_zoom_out", "side_range": [1, 2]}
    """

    blocks: ClassVar[int] = 1  # whether, side, left, top

    fill: Margin = 0
    side_range: Annotated[tuple[float, float], Rising(1, MAX_ZOOM)] = (1.0, 4.0)
    p: Share = 0.5

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the canvas: any size."""
        need_levels(image)
        need_channels("fill", self.fill, image.channels)
        return image.within((image.min_height, image.min_width))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.then(RandomStep(key, bare(self), is_inside=False), fill=self.fill)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """The canvas as a window around the image; the image itself where it is left as it is."""
        whether, side, left, top = uniforms(0, 1)[0].tolist()
        if whether >= self.p:
            return window(0, 0, height, width)
        factor = between(self.side_range, side)
        rows, columns = int(height * factor), int(width * factor)
        return window(-int((rows - height) * top), -int((columns - width) * left), rows, columns)

    def in_words(self) -> str:
        sides = span_words(self.side_range)
        return f"lay {self.p:g} of the images at random on a canvas of {sides} times the sides"


class RandomIouCrop(Whether, ImageOp, frozen=True, tag="random_iou_crop"):
    """Crops a random window that overlaps sufficiently with one of the sample's boxes, which are required.

    The op equals torchvision v2's ``RandomIoUCrop``, from the SSD paper. First, it chooses a minimum overlap. Then it
    takes the first of several trial windows, each with sides ``int(side * U(min_scale, max_scale))``, that contains the
    center of a box and whose IoU with such a box is at least the overlap. If no trial succeeds, it chooses another
    overlap, at most 20 times; after that, the image does not change. torchvision continues until it chooses an overlap
    of 1 or more, which also keeps the whole image. Boxes whose center is outside the window are removed.

    Args:
        min_scale: Minimum of each side of the window, as a fraction of the image's side.
        max_scale: Maximum of each side of the window, as a fraction of the image's side.
        min_aspect_ratio: Minimum of the window's width divided by its height.
        max_aspect_ratio: Maximum of the window's width divided by its height.
        sampler_options: Minimum overlaps (IoU) to choose from; default: 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1, which keeps
            the whole image.
        trials: Number of trial windows per chosen overlap.
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
    p: Share = 1.0

    def check(self) -> None:
        settle(self, "sampler_options", SAMPLER_OPTIONS)
        ratio = (self.min_aspect_ratio, self.max_aspect_ratio)
        Rising(0, 1, is_over=True).check("min_scale, max_scale", (self.min_scale, self.max_scale))
        Rising(0, 1000, is_over=True).check("min_aspect_ratio, max_aspect_ratio", ratio)
        if not self.sampler_options or not all(0 <= overlap <= 1000 for overlap in self.sampler_options):
            raise PipelineError('"sampler_options" must be numbers of at least 0; 1 and more leave the image whole')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the window: any size."""
        return image.within((1, 1), (image.max_height, image.max_width))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        assert self.sampler_options is not None
        return before.then(
            IouCrop(
                key=key,
                scale=(self.min_scale, self.max_scale),
                ratio=(self.min_aspect_ratio, self.max_aspect_ratio),
                overlaps=self.sampler_options,
                trials=self.trials,
            )
        )
