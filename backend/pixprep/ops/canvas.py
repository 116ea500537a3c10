"""Ops that lay the image on a canvas, or mirror it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from pixprep.errors import PipelineError
from pixprep.ops.geometry import check_like
from pixprep.ops.op import (
    Array,
    ImageOp,
    Libraries,
    check_fill,
    check_sides,
    fill_input,
    need_fill,
    need_levels,
    need_whole_levels,
)
from pixprep.plan import geometry_steps, inputs
from pixprep.plan.geometry_steps import Window
from pixprep.plan.lowered import Lowered
from pixprep.profiles import PROFILES
from pixprep.spec import Anchor, Fill, Filter, ImageSpec, InputSpec, Like, PaddingMode


class Pad(ImageOp, frozen=True, tag="pad"):
    """Put the image on a larger canvas of one colour; give ``height`` and ``width``, or ``square``.

    Takes the size of the canvas, where torchvision's ``Pad`` takes margins. An odd margin is one pixel wider below
    and on the right. An image larger than the canvas is refused.

    A ``resize`` or ``letterbox`` may follow. The canvas is then resampled like one image, and what is padded later has
    the same colour. Not with ``"like": "tensorflow"``, nor with a reduced decode.

    Args:
        height, width: of the canvas.
        square: in place of both: a square of the longer side, as LLaVA's ``expand2square`` and the ``pad_to_square`` of
            transformers make it.
        fill: the colour, 0 to 255: one number, or one a channel in the order of the channels; or the name of an input,
            uint8 [channels], that says it for each image.
        anchor: where the image lies: ``center`` or ``top_left``.
        padding_mode: as in torchvision's ``Pad``: ``constant``: the colour; ``edge``: the nearest pixel; ``reflect``,
            ``symmetric``: the mirror image, without the pixel at the edge or with it. Only with the first one may a
            resize follow, or boxes and points; a mask is padded likewise.
    """

    height: int | None = None
    width: int | None = None
    fill: Fill = 0
    anchor: Anchor = "center"
    square: bool = False
    padding_mode: PaddingMode = "constant"

    def check(self) -> None:
        """See ``Op.check``."""
        pair = (self.height, self.width)
        if self.square == (pair != (None, None)) or (not self.square and None in pair):
            raise PipelineError('needs either "height" and "width", or "square": true')
        if not self.square:
            check_sides(self.height, self.width)
        check_padding(self.padding_mode, self.fill)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the canvas."""
        (need_levels if self.padding_mode == "constant" else need_whole_levels)(image)
        need_fill(self.fill, image)
        if self.height is None or self.width is None:
            side = max(image.min_height, image.min_width)
            if image.height is not None and image.width is not None:
                return image.sized(side, side)
            mosts = (image.max_height, image.max_width)
            most = None if None in mosts else max(filter(None, mosts))
            return image.within((side, side), (most, most))
        if image.min_height > self.height or image.min_width > self.width:
            raise PipelineError(
                f"the canvas {self.height} x {self.width} is smaller than the image, "
                f"which is at least {image.min_height} x {image.min_width}"
            )
        return image.sized(self.height, self.width)

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        """See ``Op.inputs``."""
        return fill_input(self.fill, image)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image, key
        return before.then(_canvas(self), fill=self.fill, mode=self.padding_mode)

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        """See ``Op.original``."""
        del libraries
        return _padded(self, pixels, self.padding_mode)


class Letterbox(ImageOp, frozen=True, tag="letterbox"):
    """Resize to fit inside ``height`` x ``width``, keeping the aspect ratio, and pad the rest.

    The geometry of Ultralytics' ``LetterBox``: sides are ``round(side * scale)`` with the smaller of the two scales;
    the margin above is ``round(d / 2 - 0.1)`` of the ``d`` rows that are free. Its filter is ``"like": "opencv"``; the
    default is the antialiased one of ``resize``. YOLOX's ``preproc`` is ``"rounding": "down"``, ``"anchor":
    "top_left"``, ``"like": "opencv"``, after ``decode`` to BGR.

    Args:
        height, width: of the canvas.
        fill: the colour, 0 to 255: one number, or one a channel; or the name of an input, as in ``pad``.
        anchor: where the image lies: ``center`` or ``top_left``.
        enlarge: also scale small images up.
        filter, antialias, like: as in ``resize``.
        rounding: of the two sides: ``half_even``, or ``down``.
    """

    height: int
    width: int
    fill: Fill = 114
    anchor: Anchor = "center"
    enlarge: bool = True
    filter: Filter = "bilinear"
    antialias: bool | None = None
    like: Like = "pillow"
    rounding: Literal["half_even", "down"] = "half_even"

    def check(self) -> None:
        """See ``Op.check``."""
        check_like(self)
        check_sides(self.height, self.width)
        check_fill(self.fill)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the canvas."""
        need_levels(image)
        need_fill(self.fill, image)
        if self.filter in PROFILES[self.like].real:
            image = replace(image, values="real")
        return image.sized(self.height, self.width)

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        """See ``Op.inputs``."""
        return fill_input(self.fill, image)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image, key
        resize = geometry_steps.Resize(
            rule="letterbox" if self.enlarge else "shrink",
            height=self.height,
            width=self.width,
            filter=self.filter,
            antialias=bool(self.antialias),
            like=self.like,
            rounding=self.rounding,
        )
        return before.resized(resize).then(_canvas(self), fill=self.fill)

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        """See ``Op.original``."""
        return _padded(self, libraries.resize(self, pixels))


class Flip(ImageOp, frozen=True, tag="flip"):
    """Mirror the image; never at random.

    Args:
        axis: ``horizontal`` swaps left and right, ``vertical`` top and bottom.
        when: the name of an input, bool, that says for each image whether; default: always.
    """

    axis: Literal["horizontal", "vertical"] = "horizontal"
    when: str | None = None

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change."""
        return image

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        """See ``Op.inputs``."""
        del image
        return () if self.when is None else (InputSpec(name=self.when, kind="flag"),)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        return before.then(
            inputs.Flip(key=key, input=self.when, axis=self.axis) if self.when else geometry_steps.Flip(self.axis)
        )

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        """See ``Op.original``."""
        del libraries
        return pixels[:, ::-1] if self.axis == "horizontal" else pixels[::-1]


def check_padding(mode: PaddingMode, fill: Fill) -> None:
    """``check_fill`` of a margin; raise PipelineError where it has a colour, and is the image's."""
    check_fill(fill)
    if mode != "constant" and fill != 0:
        raise PipelineError(f'"fill" goes with "padding_mode": "constant", not with {mode}')


def _canvas(op: Pad | Letterbox) -> Window:
    place: Anchor = "center" if op.anchor == "center" else "top_left"
    return Window(height=op.height, width=op.width, side="longer", place=place, rounding="down", beyond="refuse_larger")


def _padded(op: Pad | Letterbox, pixels: Array, mode: PaddingMode = "constant") -> Array:
    """An image on the canvas, as the definition has it."""
    side = max(pixels.shape[:2])
    height, width = op.height or side, op.width or side
    free = (height - pixels.shape[0], width - pixels.shape[1])
    top, left = (round(d / 2 - 0.1) if op.anchor == "center" else 0 for d in free)
    if mode != "constant":
        margins = [(top, free[0] - top), (left, free[1] - left), (0, 0)]
        return np.pad(pixels, margins, mode)
    canvas = np.empty((height, width, pixels.shape[2]), pixels.dtype)
    canvas[...] = op.fill
    canvas[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return canvas
