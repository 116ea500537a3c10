"""Ops whose window or flip is drawn anew for each sample of each epoch: in training only, with torchvision v2's rules.

``draw`` has the formulas. The numbers are a pure function of (seed, epoch, sample, op).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from pixprep.draws import windows
from pixprep.draws.philox import Words
from pixprep.errors import PipelineError
from pixprep.ops.canvas import Crop, Flip, check_padding
from pixprep.ops.geometry import Resize, check_like
from pixprep.ops.op import (
    ImageOp,
    Op,
    check_fill,
    check_range,
    check_ratio,
    check_sides,
    need_channels,
    need_levels,
    need_whole_levels,
    settle,
    shown,
)
from pixprep.plan import geometry_steps
from pixprep.plan.lowered import Lowered
from pixprep.profiles import PROFILES
from pixprep.spec import Filter, ImageSpec, Levels, Like, PaddingMode, Side, as_tuple

MAX_TRIALS = 1000
MAX_ZOOM = 16.0
SAMPLER_OPTIONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


class RandomResizedCrop(ImageOp, frozen=True, tag="random_resized_crop"):
    """Cut out a random window of random size and shape, and resize it to ``height`` x ``width``.

    The window of torchvision v2's ``RandomResizedCrop``: of ten tries the first that fits, each of the area
    ``H * W * U(scale)`` and of the ratio ``exp(U(log(ratio)))``, with both sides rounded and every place as likely;
    else the largest window in the middle whose ratio is allowed. An image of so few pixels that it has none is refused;
    torchvision raises, or makes a PIL image black.

    Args:
        height: of the result, in pixels.
        width: of the result; default: ``height``.
        scale: of the window's area to the image's, from and to.
        ratio: of the window's width to its height, from and to.
        filter, antialias, like: as in ``resize``.
    """

    home: ClassVar[Side | None] = "training"

    height: int
    width: int | None = None
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    filter: Filter = "bilinear"
    antialias: bool | None = None
    like: Like = "pillow"

    def check(self) -> None:
        """See ``Op.check``."""
        check_like(self)
        settle(self, "width", self.height)
        check_sides(self.height, self.width)
        _check_ends("scale", self.scale, 0, 1)
        check_ratio(self.ratio)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the result; refuses values that are not the decoder's levels."""
        need_levels(image)
        if self.filter in PROFILES[self.like].real:
            image = replace(image, values="real")
        assert self.width is not None
        return image.sized(self.height, self.width)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        assert self.width is not None
        resize = geometry_steps.Resize(
            rule="both",
            height=self.height,
            width=self.width,
            filter=self.filter,
            antialias=bool(self.antialias),
            like=self.like,
        )
        return before.then(windows.ResizedCrop(key=key, scale=self.scale, ratio=self.ratio)).resized(resize)

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``."""
        resize = Resize(
            height=self.height, width=self.width, filter=self.filter, antialias=self.antialias, like=self.like
        )
        return [Crop(**words), resize]


class RandomCrop(ImageOp, frozen=True, tag="random_crop"):
    """Cut out a window of fixed size at a random place.

    The window of torchvision v2's ``RandomCrop``. An image that is too small is refused, unless ``pad_if_needed``.

    Args:
        height: of the window, in pixels.
        width: of the window; default: ``height``.
        padding: pixels of ``fill`` that are added first, as in torchvision: one number, [left and right, top and
            bottom] or [left, top, right, bottom].
        pad_if_needed: add what the image still lacks on both sides of it.
        fill: the colour of what is added, 0 to 255: one number, or one a channel.
        padding_mode: what is added: see ``pad``.
    """

    home: ClassVar[Side | None] = "training"

    height: int
    width: int | None = None
    padding: int | tuple[int, ...] = 0
    pad_if_needed: bool = False
    fill: Levels = 0
    padding_mode: PaddingMode = "constant"

    def check(self) -> None:
        """See ``Op.check``."""
        settle(self, "width", self.height)
        check_sides(self.height, self.width)
        check_padding(self.padding_mode, self.fill)
        margins = as_tuple(self.padding)
        if len(margins) not in (1, 2, 4) or not all(0 <= margin <= 16384 for margin in margins):
            raise PipelineError(
                f'"padding" must be 1, 2 or 4 numbers of 0 to 16384, as torchvision has them, not {shown(self.padding)}'
            )

    @property
    def margins(self) -> tuple[int, int, int, int]:
        """(top, left, bottom, right)."""
        left, top, right, bottom = (
            int(margin) for margin in as_tuple(self.padding) * (4 // len(as_tuple(self.padding)))
        )
        return top, left, bottom, right

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the window; refuses one that no image could hold."""
        need_channels("fill", self.fill, image)
        if any(self.margins) or self.pad_if_needed:
            (need_levels if self.padding_mode == "constant" else need_whole_levels)(image)
        assert self.width is not None
        top, left, bottom, right = self.margins
        for name, window, side in (
            ("height", self.height, image.height and image.height + top + bottom),
            ("width", self.width, image.width and image.width + left + right),
        ):
            if side is not None and window > side and not self.pad_if_needed:
                raise PipelineError(f"its {name} is {window}, but that of the image is {side}: pad_if_needed allows it")
        return image.sized(self.height, self.width)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        assert self.width is not None
        crop = windows.Crop(
            key=key, height=self.height, width=self.width, padding=self.margins, pad_if_needed=self.pad_if_needed
        )
        if crop.is_inside:
            return before.then(crop)
        return before.then(crop, fill=self.fill, mode=self.padding_mode)

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``."""
        return super().fixed(words) if any(self.margins) or self.pad_if_needed else [Crop(**words)]


class RandomFlip(ImageOp, frozen=True, tag="random_flip"):
    """Mirror some of the images, at random.

    torchvision v2's ``RandomHorizontalFlip`` and ``RandomVerticalFlip``.

    Args:
        axis: ``horizontal`` swaps left and right, ``vertical`` top and bottom.
        p: how often, 0 to 1.
    """

    home: ClassVar[Side | None] = "training"

    axis: Literal["horizontal", "vertical"] = "horizontal"
    p: float = 0.5

    def check(self) -> None:
        """See ``Op.check``."""
        check_range("p", self.p, 0, 1)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change."""
        return image

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        return before.then(windows.Flip(key=key, axis=self.axis, p=self.p))

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``."""
        return [Flip(self.axis)] if words["flip"] else []


class RandomZoomOut(ImageOp, frozen=True, tag="random_zoom_out"):
    """Lay some of the images at a random place of a larger canvas.

    torchvision v2's ``RandomZoomOut``: the canvas has ``int(side * U(side_range))``, the same factor for both sides.
    Only the part of the canvas that later ops leave is filled.

    Args:
        fill: the colour of the canvas, 0 to 255: one number, or one a channel.
        side_range: of the canvas's sides to the image's, from and to; at most 16.
        p: how often, 0 to 1.
    """

    home: ClassVar[Side | None] = "training"

    fill: Levels = 0
    side_range: tuple[float, float] = (1.0, 4.0)
    p: float = 0.5

    def check(self) -> None:
        """See ``Op.check``."""
        check_fill(self.fill)
        check_range("p", self.p, 0, 1)
        lowest, highest = self.side_range
        if not 1 <= lowest <= highest <= MAX_ZOOM:
            raise PipelineError(f'"side_range" must rise from 1 to {MAX_ZOOM:g} at most, not {shown(self.side_range)}')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the canvas: any size."""
        need_levels(image)
        need_channels("fill", self.fill, image)
        return image.within((image.min_height, image.min_width))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        return before.then(windows.ZoomOut(key=key, p=self.p, side_range=self.side_range), fill=self.fill)


class RandomIouCrop(ImageOp, frozen=True, tag="random_iou_crop"):
    """Cut out a random window that overlaps enough with one of the boxes, which the sample must have.

    torchvision v2's ``RandomIoUCrop``, of the SSD paper. An overlap is chosen. Of the trials, each of the sides
    ``int(side * U(min_scale, max_scale))``, the first is taken that has the middle of a box, and with one of these an
    IoU of at least the overlap. Where no trial has, another overlap is chosen: at most 20 times, then the image stays
    whole; torchvision goes on until it is one of 1 or more, which leaves it whole, too. Boxes whose middle is outside
    the window go.

    Args:
        min_scale, max_scale: of each side of the window to the image's.
        min_aspect_ratio, max_aspect_ratio: of the window's width to its height.
        sampler_options: the overlaps to choose from; default: 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1, which is the whole
            image.
        trials: windows for each choice.
    """

    home: ClassVar[Side | None] = "training"

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: tuple[float, ...] | None = None
    trials: int = 40

    def check(self) -> None:
        """See ``Op.check``."""
        settle(self, "sampler_options", SAMPLER_OPTIONS)
        _check_ends("min_scale, max_scale", (self.min_scale, self.max_scale), 0, 1)
        _check_ends("min_aspect_ratio, max_aspect_ratio", (self.min_aspect_ratio, self.max_aspect_ratio), 0, 1000)
        if not self.sampler_options or not all(0 <= overlap <= 1000 for overlap in self.sampler_options):
            raise PipelineError('"sampler_options" must be numbers of at least 0; 1 and more leave the image whole')
        if not 1 <= self.trials <= MAX_TRIALS:
            raise PipelineError(f'"trials" must be 1 to {MAX_TRIALS}, not {self.trials}')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the window: any size."""
        return image.within((1, 1), (image.max_height, image.max_width))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        assert self.sampler_options is not None
        return before.then(
            windows.IouCrop(
                key=key,
                scale=(self.min_scale, self.max_scale),
                ratio=(self.min_aspect_ratio, self.max_aspect_ratio),
                overlaps=self.sampler_options,
                trials=self.trials,
            )
        )


def _check_ends(name: str, ends: tuple[float, float], over: float, most: float) -> None:
    """Raise PipelineError unless ``over < from <= to <= most``."""
    if not over < ends[0] <= ends[1] <= most:
        raise PipelineError(f'"{name}" must rise from over {over:g} to {most:g} at most, not {shown(tuple(ends))}')
