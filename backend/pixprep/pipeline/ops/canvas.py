"""Ops that lay the image on a larger canvas or a smaller one, or mirror it."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.geometry import check_like, resize_step, resized
from pixprep.pipeline.ops.limits import (
    MAX_SIDE,
    Length,
    MarginOrInput,
    Within,
    fill_input,
    need_fill,
    need_levels,
    need_whole_levels,
)
from pixprep.pipeline.ops.op import WHOLE, Array, ImageOp, Libraries, settle
from pixprep.plan import geometry_steps, inputs
from pixprep.plan.geometry_steps import Window
from pixprep.plan.lowered import Lowered
from pixprep.spec import Anchor, Fill, Filter, ImageSpec, InputSpec, Like, PaddingMode, Rounding


class CenterCrop(ImageOp, frozen=True, tag="center_crop"):
    """Cut the middle out; give ``height`` and ``width``, or ``fraction``.

    Like torchvision's ``CenterCrop``: the margin above is half of ``H - height``, rounded, and a smaller image is
    padded with zeros, unless ``smaller`` refuses it. Unlike torchvision's, a crop before the resize must fit inside the
    image.

    Args:
        height: in pixels.
        width: in pixels; default: ``height``.
        fraction: in place of both: a square of ``int(fraction * shorter side)``, as in TensorFlow's ImageNet code.
        rounding: of half an odd margin: ``half_even`` (torchvision, timm), ``down`` (Hugging Face, Keras),
            ``half_away`` (DALI, TensorFlow's EfficientNet).
        smaller: what becomes of an image that is lower or narrower than ``height`` and ``width``: ``pad``, the default,
            or ``refuse``, as in DALI.
    """

    height: Length | None = None
    width: Length | None = None
    fraction: float | None = None
    rounding: Rounding = "half_even"
    smaller: Literal["pad", "refuse"] | None = None

    def check(self) -> None:
        if (self.height is None) == (self.fraction is None) or (self.height is None and self.width is not None):
            raise PipelineError('needs either "height" and "width", or "fraction"')
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise PipelineError(f'"fraction" must be over 0 and at most 1, not {self.fraction:g}')
        settle(self, "width", self.height)
        if self.fraction is None:
            settle(self, "smaller", "pad")
        elif self.smaller is not None:
            raise PipelineError('"smaller" goes with "height" and "width"')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the middle; refuses to pad normalized values, where level 0 is no longer 0."""
        if self.height is not None and self.width is not None:
            if self._may_pad(image):
                need_levels(image)
            for side, most in ((self.height, image.max_height), (self.width, image.max_width)):
                if self.smaller == "refuse" and most is not None and side > most:
                    raise PipelineError(f"no image fits: {side} pixels of a side that has at most {most}")
            return image.sized(self.height, self.width)
        assert self.fraction is not None
        if image.height is not None and image.width is not None:
            side = max(1, int(self.fraction * min(image.height, image.width)))
            return image.sized(side, side)
        sides = [most for most in (image.max_height, image.max_width) if most is not None]
        most = max(1, int(self.fraction * min(sides))) if sides else None
        return image.within((1, 1), (most, most))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        window = Window(
            height=self.height,
            width=self.width,
            fraction=self.fraction or 1.0,
            place="center",
            rounding=self.rounding,
            beyond="refuse_smaller" if self.smaller == "refuse" else "fill",
        )
        return before.then(window, fill=0 if self._may_pad(image) else None)

    def _may_pad(self, image: ImageSpec) -> bool:
        is_over = (self.height or 0) > image.min_height or (self.width or 0) > image.min_width
        return is_over and self.smaller != "refuse"

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        # torchvision's: pad with zeros to the window, then round half of what is left over
        side = max(1, int((self.fraction or 1) * min(pixels.shape[:2])))
        height, width = self.height or side, self.width or side
        missing = [max(0, window - length) for window, length in zip((height, width), pixels.shape, strict=False)]
        pixels = np.pad(pixels, [*((d // 2, d - d // 2) for d in missing), (0, 0)])
        top = int(WHOLE[self.rounding]((pixels.shape[0] - height) / 2))
        left = int(WHOLE[self.rounding]((pixels.shape[1] - width) / 2))
        return pixels[top : top + height, left : left + width]


class Crop(ImageOp, frozen=True, tag="crop"):
    """Cut out a window: a fixed one, or the boxes that come with the image; each box then gives a tensor.

    Like torchvision's functional ``crop``, but an image that the window does not fit inside is refused, not padded.

    A box is left, top, right, bottom in pixels of the decoded image, whatever ops are in between: upright, as a client
    sees it, where ``decode`` turns the image. Its edges are rounded to whole pixels as Pillow's ``Image.crop`` rounds
    them, half to even; what reaches over the image's edge is cut off. A box of which no whole pixel is left is refused.

    Args:
        top, left: the window's first row and column.
        height, width: its size.
        box: in place of these: the name of an input, float32 [n, 4].
    """

    top: Annotated[int, Within(0, MAX_SIDE)] | None = None
    left: Annotated[int, Within(0, MAX_SIDE)] | None = None
    height: Length | None = None
    width: Length | None = None
    box: str | None = None

    def check(self) -> None:
        fixed = (self.top, self.left, self.height, self.width)
        if (self.box is None) == (fixed == (None,) * 4) or (self.box is None and None in fixed):
            raise PipelineError('needs either "top", "left", "height" and "width", or "box"')

    @property
    def _window(self) -> tuple[int, int, int, int]:
        """(top, left, height, width), where there is no box."""
        return self.top or 0, self.left or 0, self.height or 1, self.width or 1

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the window; refuses one that no image could hold."""
        if self.box is not None:
            return image.within((1, 1), (image.max_height, image.max_width))
        top, left, height, width = self._window
        for name, end, side in (("height", top + height, image.height), ("width", left + width, image.width)):
            if side is not None and end > side:
                raise PipelineError(f"the window ends at {end}, but the {name} of the image is {side}")
        return image.sized(height, width)

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        return () if self.box is None else (InputSpec(name=self.box, kind="box", count=4),)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        if self.box is not None:
            return before.then(inputs.Box(key=key, input=self.box))
        top, left, height, width = self._window
        return before.then(
            Window(height=height, width=width, place="fixed", top=top, left=left, beyond="refuse_smaller")
        )

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        top, left, height, width = self._window
        return pixels[top : top + height, left : left + width]


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

    height: Length | None = None
    width: Length | None = None
    fill: MarginOrInput = 0
    anchor: Anchor = "center"
    square: bool = False
    padding_mode: PaddingMode = "constant"

    def check(self) -> None:
        pair = (self.height, self.width)
        if self.square == (pair != (None, None)) or (not self.square and None in pair):
            raise PipelineError('needs either "height" and "width", or "square": true')
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
        return fill_input(self.fill, image)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.then(_canvas(self), fill=self.fill, mode=self.padding_mode)

    def original(self, pixels: Array, libraries: Libraries) -> Array:
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

    height: Length
    width: Length
    fill: MarginOrInput = 114
    anchor: Anchor = "center"
    enlarge: bool = True
    filter: Filter = "bilinear"
    antialias: bool | None = None
    like: Like = "pillow"
    rounding: Literal["half_even", "down"] = "half_even"

    def check(self) -> None:
        check_like(self)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the canvas."""
        need_fill(self.fill, image)
        return resized(self, image).sized(self.height, self.width)

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        return fill_input(self.fill, image)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        rule: geometry_steps.Rule = "letterbox" if self.enlarge else "shrink"
        resize = resize_step(self, rule, self.height, self.width, rounding=self.rounding)
        return before.resized(resize).then(_canvas(self), fill=self.fill)

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        return _padded(self, libraries.resize(self, pixels))


class Flip(ImageOp, frozen=True, tag="flip"):
    """Mirror the image; never at random.

    Args:
        axis: ``horizontal`` swaps left and right, ``vertical`` top and bottom.
        when: the name of an input, bool, that says for each image whether; default: always.
    """

    axis: Literal["horizontal", "vertical"] = "horizontal"
    when: str | None = None

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        return () if self.when is None else (InputSpec(name=self.when, kind="flag"),)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.then(
            inputs.Flip(key=key, input=self.when, axis=self.axis) if self.when else geometry_steps.Flip(self.axis)
        )

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        return pixels[:, ::-1] if self.axis == "horizontal" else pixels[::-1]


def check_padding(mode: PaddingMode, fill: Fill) -> None:
    """Raise PipelineError where a margin has a colour, and is the image's."""
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
