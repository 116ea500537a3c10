"""Ops that lay the image on a larger canvas or a smaller one, or mirror it."""

from __future__ import annotations

from typing import Literal

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.geometry import check_like, check_most, resize_step, resized, side_bound
from pixprep.pipeline.ops.limits import (
    MAX_SIDE,
    SIDE,
    Bounded,
    Length,
    LengthOrInput,
    MarginOrInput,
    fill_input,
    need_fill,
    need_levels,
    need_whole_levels,
    requested,
)
from pixprep.pipeline.ops.op import ImageOp, changed, settle
from pixprep.plan import geometry_steps, inputs
from pixprep.plan.geometry_steps import Window
from pixprep.plan.lowered import Lowered
from pixprep.spec import Anchor, Bound, Fill, Filter, ImageSpec, InputSpec, Like, PaddingMode, Rounding, upward


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


Number = int | float | str
"""A number, or the name of the input that says it."""
_UNITS = {
    "pixels": (Bound(0, MAX_SIDE, is_whole=True), SIDE),
    "free": (Bound(0, 1, example=0.5), SIDE),
    "share": (Bound(0, 1), Bound(0, 1, example=1)),
    "share32": (Bound(0, 1), Bound(0, 1, example=1)),
}
"""Limits of the corner of a window and of its size, in each unit."""


class Crop(ImageOp, frozen=True, tag="crop"):
    """Cut out a window: by numbers, or by the boxes that come with the image; each box then gives a tensor.

    Like torchvision's functional ``crop``, but an image that the window does not fit inside is refused, unless
    ``smaller`` pads it. Then a window of ``free`` shares is DALI's ``crop`` with ``out_of_bounds_policy="pad"``: of an
    odd margin half a pixel more lies above, in the middle.

    Each number may be the name of an input, float32 [n, 1], whose value then comes with each image; or ``name[1]``, the
    second number of its row. They are pixels, or shares, of the image here. With a size that comes with the image, the
    tensor has that size, unless a resize follows.

    A box is left, top, right, bottom in pixels of the decoded image, whatever ops are in between: upright, as a client
    sees it, where ``decode`` turns the image. Its edges are rounded to whole pixels as Pillow's ``Image.crop`` rounds
    them, half to even; what reaches over the image's edge is cut off. A box of which no whole pixel is left is refused.

    Args:
        top, left: the window's first row and column.
        height, width: its size.
        box: in place of these: the name of an input, float32 [n, 4].
        unit: of the four numbers. ``pixels``; ``free``: ``top`` and ``left`` are shares, 0 to 1, of the rows and
            columns that the window leaves free, as DALI's ``crop_pos_y`` and ``crop_pos_x``; ``share``: all are shares
            of the height and the width, as of DALI's ``slice``, whose ends are rounded; ``share32``: the same, as of
            its ``rel_start`` and ``rel_shape``: the shares, and the begin in pixels, are float32.
        rounding: of a share that falls between pixels, as in ``center_crop``; default: ``half_away``, DALI's.
        max_size: the most pixels of a side that comes with the image; what asks for more is refused.
        smaller: what becomes of an image that the window does not fit inside: ``refuse``, the default, or ``pad``. With
            ``pad`` and pixels, ``top`` and ``left`` may be below 0.
        fill: the colour of what is padded, as in ``pad``.
    """

    top: Number | None = None
    left: Number | None = None
    height: Number | None = None
    width: Number | None = None
    box: str | None = None
    unit: Literal["pixels", "free", "share", "share32"] = "pixels"
    rounding: Rounding | None = None
    max_size: Length | None = None
    smaller: Literal["pad", "refuse"] = "refuse"
    fill: MarginOrInput = 0

    def check(self) -> None:
        fields = (self.top, self.left, self.height, self.width)
        if (self.box is None) == (fields == (None,) * 4) or (self.box is None and None in fields):
            raise PipelineError('needs either "top", "left", "height" and "width", or "box"')
        if self.box is not None and (self.unit != "pixels" or self.smaller == "pad"):
            raise PipelineError('"unit" and "smaller" go with "top", "left", "height" and "width"')
        if self.smaller == "refuse" and self.fill != 0:
            raise PipelineError('"fill" goes with "smaller": "pad"')
        for name, (value, bound) in self._numbers.items():
            if value is not None:
                Bounded(bound, " pixels" * (bound is SIDE)).check(name, value)
        if self.unit != "pixels":
            settle(self, "rounding", "half_away")
        elif self.rounding is not None:
            raise PipelineError('"rounding" goes with "unit": "free" or "share"')
        if self.max_size is not None and (self._is_share or str not in {type(self.height), type(self.width)}):
            raise PipelineError('"max_size" goes with a height or a width in pixels that comes with the image')

    @property
    def _is_share(self) -> bool:
        return self.unit.startswith("share")

    @property
    def _numbers(self) -> dict[str, tuple[Number | None, Bound]]:
        """The four fields, each with its limits."""
        corner, size = _UNITS[self.unit]
        if self.smaller == "pad" and self.unit == "pixels":
            corner = Bound(-MAX_SIDE, MAX_SIDE, is_whole=True)
        size = size if self.max_size is None else size.within(Bound(1, self.max_size))
        return {"top": (self.top, corner), "left": (self.left, corner)} | {
            "height": (self.height, size),
            "width": (self.width, size),
        }

    @property
    def _window(self) -> Window:
        """The window, where there is no box, with examples of what comes with the image."""
        top, left, height, width = (
            bound.example if isinstance(value, str) else value or 0 for value, bound in self._numbers.values()
        )
        return Window(
            height=height,
            width=width,
            top=top,
            left=left,
            place="fixed" if self.unit == "pixels" else self.unit,
            rounding=self.rounding or "down",
            beyond="pad" if self.smaller == "pad" else "refuse_smaller",
        )

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the window; refuses one that no image could hold, and to pad normalized values."""
        if self.smaller == "pad":
            need_levels(image)
            need_fill(self.fill, image)
        if self.box is not None:
            return image.within((1, 1), (image.max_height, image.max_width))
        named = {name for name, _ in requested(**self._numbers)}
        if self._is_share:
            if named or image.height is None or image.width is None:
                return image.within((1, 1), (image.max_height, image.max_width))
            top, left, height, width = self._window.of(image.height, image.width)
            if not (height and width):
                raise PipelineError(f"the window covers no whole pixel of {image.height} x {image.width}")
            self._check_end(image, top + height, left + width)
            return image.sized(height, width)
        top, left, height, width = (
            0 if isinstance(value, str) else int(value or 0) for value, _ in self._numbers.values()
        )
        at_top, at_left = (top, left) if self.unit == "pixels" else (0, 0)
        self._check_end(image, at_top + max(height, 1), at_left + max(width, 1))
        sides = {"height": (height, image.max_height), "width": (width, image.max_width)}
        least = tuple(1 if name in named else side for name, (side, _) in sides.items())
        most = tuple(
            min(filter(None, (self.max_size, bound)), default=None) if name in named else side
            for name, (side, bound) in sides.items()
        )
        return image.within(least, most)  # type: ignore[arg-type]

    def _check_end(self, image: ImageSpec, bottom: int, right: int) -> None:
        if self.smaller == "pad":
            return
        for name, end, side in (("height", bottom, image.height), ("width", right, image.width)):
            if side is not None and end > side:
                raise PipelineError(f"the window ends at {end}, but the {name} of the image is {side}")

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        if self.box is not None:
            return (InputSpec(name=self.box, kind="box", count=4),)
        return (*(number.spec for _, number in requested(**self._numbers)), *fill_input(self.fill, image))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        if self.box is not None:
            return before.then(inputs.Box(key=key, input=self.box))
        numbers, window = requested(**self._numbers), self._window
        fill = self.fill if self.smaller == "pad" else None
        return before.then(inputs.Requested(key=key, numbers=numbers, window=window) if numbers else window, fill=fill)


class Pad(ImageOp, frozen=True, tag="pad"):
    """Put the image on a larger canvas of one colour; give ``height`` and ``width``, ``square``, or ``multiple``.

    Takes the size of the canvas, where torchvision's ``Pad`` takes margins. An odd margin is one pixel wider below
    and on the right.

    A ``resize`` or ``letterbox`` may follow. The canvas is then resampled like one image, and what is padded later has
    the same colour. Not with ``"like": "tensorflow"``, nor with a reduced decode.

    Args:
        height, width: of the canvas; or the names of inputs, float32 [n, 1], that say them for each image.
        square: in place of both: a square of the longer side, as LLaVA's ``expand2square`` and the ``pad_to_square`` of
            transformers make it.
        multiple: in place of both: each side becomes the next multiple of it, as for models that halve an image some
            times: 32 with ``"anchor": "top_left"`` is CRAFT's, with the anchor in the middle Ultralytics' ``auto``.
        fill: the colour, 0 to 255: one number, or one a channel in the order of the channels; or the name of an input,
            uint8 [channels], that says it for each image.
        anchor: where the image lies: ``center`` or ``top_left``.
        padding_mode: as in torchvision's ``Pad``: ``constant``: the colour; ``edge``: the nearest pixel; ``reflect``,
            ``symmetric``: the mirror image, without the pixel at the edge or with it. Only with the first one may a
            resize follow, or boxes and points; a mask is padded likewise.
        max_size: the most pixels of a side that comes with the image.
        larger: what becomes of an image that is higher or wider than ``height`` and ``width``: ``refuse``, the default,
            or ``keep`` that side as it is, as Albumentations' ``PadIfNeeded``.
    """

    height: LengthOrInput | None = None
    width: LengthOrInput | None = None
    fill: MarginOrInput = 0
    anchor: Anchor = "center"
    square: bool = False
    multiple: Length | None = None
    padding_mode: PaddingMode = "constant"
    max_size: Length | None = None
    larger: Literal["refuse", "keep"] | None = None

    def check(self) -> None:
        pair = (self.height, self.width)
        if [pair != (None, None), self.square, self.multiple is not None].count(True) != 1 or pair.count(None) == 1:
            raise PipelineError('needs either "height" and "width", or "square": true, or "multiple"')
        if isinstance(self.height, int) and isinstance(self.width, int):
            settle(self, "larger", "refuse")
        elif self.larger is not None:
            raise PipelineError('"larger" goes with "height" and "width" that are numbers')
        check_padding(self.padding_mode, self.fill)
        check_most(self.max_size, pair)

    @property
    def _numbers(self) -> tuple[tuple[str, inputs.Number], ...]:
        bound = side_bound(self.max_size)
        return requested(height=(self.height, bound), width=(self.width, bound))

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the canvas."""
        need_levels(image, '; "multiple" and "pad_value" of tensor make margins behind it')
        if self.padding_mode != "constant":
            need_whole_levels(image)
        need_fill(self.fill, image)
        if self.multiple is not None:
            height, width = (upward(side, self.multiple) for side in (image.min_height, image.min_width))
            bounds = (most and upward(most, self.multiple) for most in (image.max_height, image.max_width))
            return image.within((height, width), (next(bounds), next(bounds)))
        if self.height is None or self.width is None:
            side = max(image.min_height, image.min_width)
            if image.height is not None and image.width is not None:
                return image.sized(side, side)
            mosts = (image.max_height, image.max_width)
            most = None if None in mosts else max(filter(None, mosts))
            return image.within((side, side), (most, most))
        least = self.max_size or 0
        height, width = (least if isinstance(side, str) else side for side in (self.height, self.width))
        if self.larger == "keep":
            ends = tuple(x and max(x, y) for x, y in ((image.max_height, height), (image.max_width, width)))
            return image.within((max(image.min_height, height), max(image.min_width, width)), (ends[0], ends[1]))
        if image.min_height > height or image.min_width > width:
            raise PipelineError(
                f"the canvas {height} x {width} is smaller than the image, "
                f"which is at least {image.min_height} x {image.min_width}"
            )
        sides = (self.height, height, image.min_height), (self.width, width, image.min_width)
        lower, upper = (low if isinstance(side, str) else most for side, most, low in sides)
        return image.within((lower, upper), (height, width))

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        return (*fill_input(self.fill, image), *(number.spec for _, number in self._numbers))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        numbers = self._numbers
        canvas = _canvas(changed(self, **{name: each.bound.example for name, each in numbers}, max_size=None))
        step = inputs.Requested(key=key, numbers=numbers, window=canvas) if numbers else canvas
        return before.then(step, fill=self.fill, mode=self.padding_mode)


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


def check_padding(mode: PaddingMode, fill: Fill) -> None:
    """Raise PipelineError where a margin has a colour, and is the image's."""
    if mode != "constant" and fill != 0:
        raise PipelineError(f'"fill" goes with "padding_mode": "constant", not with {mode}')


def _canvas(op: Pad | Letterbox) -> Window:
    place: Anchor = "center" if op.anchor == "center" else "top_left"
    assert not isinstance(op.height, str)
    assert not isinstance(op.width, str)
    return Window(
        height=op.height,
        width=op.width,
        multiple=op.multiple if isinstance(op, Pad) else None,
        side="longer",
        place=place,
        rounding="down",
        beyond="keep_larger" if isinstance(op, Pad) and op.larger == "keep" else "refuse_larger",
    )
