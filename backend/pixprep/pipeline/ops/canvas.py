"""Ops that pad or mirror the image: ``pad``, ``letterbox`` and ``flip``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.geometry import check_like, check_max_size, resize_step, resized, side_bound
from pixprep.pipeline.ops.limits import (
    FillColorOrInput,
    Length,
    LengthOrInput,
    Within,
    fill_input,
    need_8bit_values,
    need_channels,
    need_fill,
    need_pixel_values,
    requested,
)
from pixprep.pipeline.ops.op import ImageOp, changed, settle
from pixprep.plan import geometry_steps, inputs
from pixprep.plan.geometry_steps import Window
from pixprep.plan.lowered import Lowered
from pixprep.spec import Anchor, BorderMode, Fill, Filter, ImageSpec, InputSpec, Like, Reals, as_tuple

MAX_BORDER = 4096
"""Maximum number of rows or columns that ``border`` adds at one edge."""


class Pad(ImageOp, frozen=True, tag="pad"):
    """Pads the image with one color to ``height`` x ``width``, to a ``square``, or to a ``multiple``.

    The fields specify the size of the result, whereas torchvision's ``Pad`` accepts the width of the padding. If a
    centered image is padded by an odd number of rows or columns, the additional row is at the bottom, and the
    additional column is on the right.

    A ``resize`` or ``letterbox`` may follow. It then resamples the image together with the padding, and the padding of
    later ops must have the same color. Padding before a resize is not supported with ``"like": "tensorflow"``, or with
    ``"reduced": true`` in ``decode``.

    Args:
        height, width: Height and width of the result in pixels, or names of inputs, float32 [n, 1], which contain one
            value per image.
        fill: Color of the padding, 0 to 255: one number, or one per channel in the order of the channels; or the name
            of an input, uint8 [channels], which contains the color per image.
        anchor: Position of the image in the result: ``center`` or ``top_left``.
        square: Whether to pad the shorter side to the length of the longer side, like LLaVA's ``expand2square`` and
            transformers' ``pad_to_square``. This field replaces ``height`` and ``width``.
        multiple: Divisor of both sides: the image is padded to the next multiple of this number, for models that
            downsample by this factor. This field replaces ``height`` and ``width``. The value 32 reproduces CRAFT if
            ``anchor`` is ``top_left``, and Ultralytics' ``auto`` if it is ``center``.
        always: Sides that are padded even if their length is already a multiple: ``both`` (Swin2SR) or ``width``
            (Inkling). Such a side becomes longer by ``multiple`` pixels. By default, it does not change.
        root: Factor of the padding, as in ZoeDepth, where it is 3: ``int(sqrt(side / 2) * root)`` pixels are added at
            both ends of each axis, where ``side`` is the length of the image on this axis. This field replaces
            ``height`` and ``width``. Images with a side that is not longer than this padding are rejected.
        border: Number of pixels that are added at each edge: one number for all four edges, or the numbers of rows
            above and below and of columns on the left and on the right, in the order of ``cv2.copyMakeBorder``. This
            field replaces ``height`` and ``width``.
        padding_mode: Content of the padding, as in torchvision's ``Pad``. ``constant`` is the color ``fill``. ``edge``
            repeats the nearest pixel. ``reflect`` mirrors the image without repeating the pixels at its edge, and
            ``symmetric`` repeats them. ``first_pixel`` is the color of the image's own upper left pixel, as in
            ``cv2.copyMakeBorder(image, ..., value=image[0, 0].tolist())``. With any mode except ``constant``, masks are
            padded in the same way, and ``boxes`` and ``points`` must not follow. A resize may follow if no other
            geometric op is before this one; outputs with coordinates are then not supported.
        value: Value of the padding instead of ``fill``: one number, or one per channel, which may be outside 0 to 255.
            If ``normalize`` precedes this op, the padding has this value in the tensor (CHMv2). If ``normalize``
            follows, the value is normalized like a pixel value (Inkling). No resize and no op on pixel values may
            follow.
        max_size: Maximum height and width in pixels that a request may specify.
        larger: Treatment of an image that is higher than ``height`` or wider than ``width``. ``refuse`` (the default)
            rejects the image. ``keep`` does not pad the side that is too long, like Albumentations' ``PadIfNeeded``.
        rounding: Rounding of the padding above and on the left of a centered image, which is half of the total padding:
            ``down``, the default, or ``half_even``, like ``ImageOps.pad``.

    Example:
        {"op": "pad", "square": true}
    """

    height: LengthOrInput | None = None
    width: LengthOrInput | None = None
    fill: FillColorOrInput = 0
    anchor: Anchor = "center"
    square: bool = False
    multiple: Length | None = None
    always: Literal["both", "width"] | None = None
    root: Annotated[float, Within(0, 100)] | None = None
    border: Annotated[int | tuple[int, ...], Within(0, MAX_BORDER, " pixels", (1, 4))] | None = None
    padding_mode: BorderMode = "constant"
    value: Reals | None = None
    max_size: Length | None = None
    larger: Literal["refuse", "keep"] | None = None
    rounding: Literal["down", "half_even"] | None = None

    def check(self) -> None:
        pair = (self.height, self.width)
        lengths = (self.multiple, self.root, self.border)
        given = [pair != (None, None), self.square, *(each is not None for each in lengths)]
        if given.count(True) != 1 or pair.count(None) == 1:
            raise PipelineError(
                'requires either "height" and "width", or "square": true, or "multiple", "root" or "border"'
            )
        if self.always and self.multiple is None:
            raise PipelineError('"always" requires "multiple"')
        if self.value is not None and (self.fill != 0 or self.padding_mode != "constant"):
            raise PipelineError('"value" is not supported together with "fill" or "padding_mode"')
        if isinstance(self.height, int) and isinstance(self.width, int):
            settle(self, "larger", "refuse")
        elif self.larger is not None:
            raise PipelineError('"larger" requires numbers as "height" and "width"')
        if self.rounding is not None and self.anchor != "center":
            raise PipelineError('"rounding" requires "anchor": "center"')
        check_padding(self.padding_mode, self.fill)
        check_max_size(self.max_size, pair)

    @property
    def _numbers(self) -> tuple[tuple[str, inputs.Number], ...]:
        bound = side_bound(self.max_size)
        return requested(height=(self.height, bound), width=(self.width, bound))

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the padded image."""
        if self.value is None:
            need_pixel_values(image, ': to pad after normalize, set "value", or use "multiple" of tensor')
        else:
            need_channels("value", self.value, image.channels)
        if self.padding_mode != "constant":
            need_8bit_values(image)
        need_fill(self.fill, image)
        if not self.square and self.height is None:
            step = _padding_step(self)
            lows, highs = (image.min_height, image.min_width), (image.max_height, image.max_width)
            height, width = (side if self.root else step.padded(side, axis) for axis, side in enumerate(lows))
            bounds = [most and step.padded(most, axis) for axis, most in enumerate(highs)]
            padded = image.within((height, width), (bounds[0], bounds[1]))
            return padded if self.multiple is None else replace(padded, multiples=(self.multiple, self.multiple))
        if self.height is None or self.width is None:
            side = max(image.min_height, image.min_width)
            if image.height is not None and image.width is not None:
                return image.sized(side, side)
            max_sides = (image.max_height, image.max_width)
            longest = None if None in max_sides else max(filter(None, max_sides))
            return image.within((side, side), (longest, longest))
        max_size = self.max_size or 0
        height, width = (max_size if isinstance(side, str) else side for side in (self.height, self.width))
        if self.larger == "keep":
            largest = tuple(x and max(x, y) for x, y in ((image.max_height, height), (image.max_width, width)))
            return image.within((max(image.min_height, height), max(image.min_width, width)), (largest[0], largest[1]))
        if image.min_height > height or image.min_width > width:
            raise PipelineError(
                f'"height" x "width", {height} x {width}, must not be smaller than the image, which has at least '
                f"{image.min_height} x {image.min_width} pixels"
            )
        sides = (self.height, height, image.min_height), (self.width, width, image.min_width)
        min_height, min_width = (shortest if isinstance(side, str) else length for side, length, shortest in sides)
        return image.within((min_height, min_width), (height, width))

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        return (*fill_input(self.fill, image), *(number.spec for _, number in self._numbers))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        numbers = self._numbers
        canvas = _padding_step(changed(self, **{name: each.bound.example for name, each in numbers}, max_size=None))
        step = inputs.Requested(key=key, numbers=numbers, window=canvas) if numbers else canvas
        if self.value is not None:
            return before.filled(step, as_tuple(self.value))
        return before.then(step, fill=self.fill, mode=self.padding_mode)


class Letterbox(ImageOp, frozen=True, tag="letterbox"):
    """Resizes the image to fit inside ``height`` x ``width`` with its aspect ratio, and pads it to this size.

    The sizes are those of Ultralytics' ``LetterBox``: each side becomes ``round(side * scale)``, where ``scale`` is the
    smaller of the two scale factors. Of ``d`` rows of padding, ``round(d / 2 - 0.1)`` are at the top. To reproduce
    Ultralytics' pixels, set ``"like": "opencv"``; the default is the antialiased filter of ``resize``. To reproduce
    YOLOX's ``preproc``, set ``"rounding": "down"``, ``"anchor": "top_left"`` and ``"like": "opencv"``, and decode to
    BGR.

    Args:
        height, width: Height and width of the result in pixels.
        fill: Color of the padding, 0 to 255: one number, or one per channel; or the name of an input, as in ``pad``.
        anchor: Position of the image in the result: ``center`` or ``top_left``.
        enlarge: Whether to enlarge small images. If false, they are only padded.
        filter, antialias, like: as in ``resize``.
        rounding: Rounding of both sides of the resized image: to the nearest integer with ties to even, or down.

    Example:
        {"op": "letterbox", "height": 640, "width": 640, "like": "opencv"}
    """

    height: Length
    width: Length
    fill: FillColorOrInput = 114
    anchor: Anchor = "center"
    enlarge: bool = True
    filter: Filter = "bilinear"
    antialias: bool | None = None
    like: Like = "pillow"
    rounding: Literal["half_even", "down"] = "half_even"

    def check(self) -> None:
        check_like(self)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the padded image."""
        need_fill(self.fill, image)
        return resized(self, image).sized(self.height, self.width)

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        return fill_input(self.fill, image)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        rule: geometry_steps.Rule = "letterbox" if self.enlarge else "shrink"
        resize = resize_step(self, rule, self.height, self.width, rounding=self.rounding)
        return before.resized(resize).then(_padding_step(self), fill=self.fill)


class Flip(ImageOp, frozen=True, tag="flip"):
    """Mirrors every image, or the images that a request specifies. ``random_flip`` mirrors images at random.

    Args:
        axis: Direction: ``horizontal`` swaps left and right, ``vertical`` swaps top and bottom.
        when: Name of a bool input, which specifies for each image whether it is mirrored. By default, every image is
            mirrored.

    Example:
        {"op": "flip"}
    """

    axis: Literal["horizontal", "vertical"] = "horizontal"
    when: str | None = None

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        return () if self.when is None else (InputSpec(name=self.when, kind="flag"),)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.then(
            inputs.Flip(key=key, input=self.when, axis=self.axis) if self.when else geometry_steps.Flip(self.axis)
        )


def check_padding(mode: BorderMode, fill: Fill) -> None:
    """Raise PipelineError if a colour is given for padding that does not use it."""
    if mode != "constant" and fill != 0:
        raise PipelineError(f'"fill" requires "padding_mode": "constant", not "{mode}"')


def _padding_step(op: Pad | Letterbox) -> Window:
    """Return the step that pads the image."""
    place: Anchor = "center" if op.anchor == "center" else "top_left"
    assert not isinstance(op.height, str)
    assert not isinstance(op.width, str)
    step = Window(height=op.height, width=op.width, side="longer", place=place, rounding="down", beyond="refuse_larger")
    if not isinstance(op, Pad):
        return step
    border = None
    if op.border is not None:
        above, below, left, right = (op.border,) * 4 if isinstance(op.border, int) else op.border
        border = above, below, left, right
    return replace(
        step,
        multiple=op.multiple,
        always=op.always,
        root=op.root,
        border=border,
        padding_rounding=op.rounding or "down",
        beyond="keep_larger" if op.larger == "keep" else "refuse_larger",
    )
