"""Ops that crop the image."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import (
    MAX_SIDE,
    SIDE,
    Bounded,
    FillColorOrInput,
    Length,
    Within,
    fill_input,
    need_8bit_values,
    need_fill,
    need_pixel_values,
    requested,
)
from pixprep.pipeline.ops.op import ImageOp, settle
from pixprep.plan import inputs
from pixprep.plan.geometry_steps import Window
from pixprep.plan.lowered import Lowered
from pixprep.plan.steps import levels
from pixprep.spec import Bound, ColorLike, ImageSpec, InputSpec, Rounding


class CenterCrop(ImageOp, frozen=True, tag="center_crop"):
    """Crops the center to ``height`` x ``width``, or to a square whose side is a ``fraction`` of the shorter side.

    The op reproduces torchvision's ``CenterCrop``: the first row of the crop is ``(H - height) / 2``, rounded, and its
    first column is ``(W - width) / 2``, rounded. An image that is smaller than the crop is padded with zeros, unless
    ``smaller`` is ``refuse``. In contrast to torchvision, a crop that precedes the resize must not be larger than the
    image.

    Args:
        height: Height of the crop in pixels.
        width: Width of the crop in pixels; default: ``height``.
        fraction: Side of a square crop as a fraction of the image's shorter side, greater than 0 and at most 1, instead
            of ``height`` and ``width``. The side is ``int(fraction * shorter side)`` pixels, as in TensorFlow's
            ImageNet code.
        rounding: Rounding of the crop's first row or column if an odd number of rows or columns is removed:
            ``half_even`` (torchvision, timm), ``down`` (Hugging Face, Keras) or ``half_away`` (DALI, TensorFlow's
            EfficientNet).
        padding_rounding: Rounding of the padding above and on the left of an image that is smaller than the crop, which
            is half of the total padding: ``down``, the default, or ``up`` (the PIL backend of transformers).
        smaller: Treatment of an image that is smaller than the crop in height or width: ``pad``, the default, pads it,
            and ``refuse`` rejects it, as DALI does. If ``fraction`` results in a side of 0 pixels, ``refuse`` rejects
            the image; by default, the side is then 1 pixel.

    Example:
        {"op": "center_crop", "height": 224}
    """

    height: Length | None = None
    width: Length | None = None
    fraction: float | None = None
    rounding: Rounding = "half_even"
    padding_rounding: Literal["down", "up"] | None = None
    smaller: Literal["pad", "refuse"] | None = None

    def check(self) -> None:
        if (self.height is None) == (self.fraction is None) or (self.height is None and self.width is not None):
            raise PipelineError('requires either "height" and "width", or "fraction"')
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise PipelineError(f'"fraction" must be greater than 0 and at most 1, not {self.fraction:g}')
        settle(self, "width", self.height)
        if self.fraction is None:
            settle(self, "smaller", "pad")
        elif self.smaller == "pad":
            raise PipelineError('"smaller": "pad" requires "height" and "width"')
        if self.padding_rounding is not None and self.smaller != "pad":
            raise PipelineError('"padding_rounding" requires "height" and "width", and "smaller": "pad"')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the crop; reject normalized images that would be padded, because 0 is then not black."""
        if self.height is not None and self.width is not None:
            if self._may_pad(image):
                need_pixel_values(image)
            for name, side, max_side in (
                ("height", self.height, image.max_height),
                ("width", self.width, image.max_width),
            ):
                if self.smaller == "refuse" and max_side is not None and side > max_side:
                    raise PipelineError(
                        f"the {name} of the crop is {side}, but the {name} of the image is at most {max_side}"
                    )
            return image.sized(self.height, self.width)
        assert self.fraction is not None
        if image.height is not None and image.width is not None:
            side = max(1, int(self.fraction * min(image.height, image.width)))
            return image.sized(side, side)
        max_sides = [side for side in (image.max_height, image.max_width) if side is not None]
        max_crop = max(1, int(self.fraction * min(max_sides))) if max_sides else None
        return image.within((1, 1), (max_crop, max_crop))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        window = Window(
            height=self.height,
            width=self.width,
            fraction=self.fraction or 1.0,
            refuses_empty=self.fraction is not None and self.smaller == "refuse",
            place="center",
            rounding=self.rounding,
            padding_rounding=self.padding_rounding or "down",
            beyond="refuse_smaller" if self.smaller == "refuse" else "fill",
        )
        return before.then(window, fill=0 if self._may_pad(image) else None)

    def _may_pad(self, image: ImageSpec) -> bool:
        may_exceed = (self.height or 0) > image.min_height or (self.width or 0) > image.min_width
        return may_exceed and self.smaller != "refuse"


class Trim(ImageOp, frozen=True, tag="trim"):
    """Crops the margins of a page: the result is the smallest window that contains all dark pixels.

    The luma of the image is stretched, so that its minimum becomes 0 and its maximum becomes 255. A pixel is dark if
    its stretched luma is less than ``threshold``. An image with a constant luma is not cropped. The op reproduces
    ``crop_margin`` of the image processors of Nougat and PP-FormulaNet in transformers.

    The op must directly follow ``decode``. Because the size of the result depends on the pixels, the tensor must have a
    fixed size, and random ops, per-image inputs, and outputs with coordinates or sizes must not follow. An image is
    rejected if the following ops do not support its size before or after the crop. A GPU engine computes the tensor on
    the CPU.

    Args:
        threshold: Threshold of the stretched luma, above 0 and at most 255.
        like: Library whose luma the op uses. torchvision truncates it, and Pillow rounds it.

    Example:
        {"op": "trim", "threshold": 200}
    """

    threshold: Annotated[float, Within(0, 255)] = 200
    like: ColorLike = "pillow"

    def check(self) -> None:
        if not self.threshold:
            raise PipelineError('"threshold" must be above 0, because no stretched luma is below 0')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the result, which is at most as large as the image."""
        need_8bit_values(image)
        if image.frames is not None:
            raise PipelineError("supports images, not clips")
        return image.within((1, 1), (image.max_height, image.max_width))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        if before != Lowered(before.color, operators=before.operators):
            raise PipelineError('must directly follow decode, whose field "reduced" must be false')
        return replace(before, photo=(self.step(),))

    def step(self) -> levels.Trim:
        """Return the step that crops the margins."""
        return levels.Trim(self.threshold, self.like)


Number = int | float | str
"""A number, or the name of the input that contains it."""
_UNITS = {
    "pixels": (Bound(0, MAX_SIDE, is_whole=True), SIDE),
    "free": (Bound(0, 1, example=0.5), SIDE),
    "share": (Bound(0, 1), Bound(0, 1, example=1)),
    "share32": (Bound(0, 1), Bound(0, 1, example=1)),
}
"""Limits for the corner coordinates and the size of a window, by unit."""


class Crop(ImageOp, frozen=True, tag="crop"):
    """Crops a window given by its position and size, or crops the boxes in the request. Each box yields one tensor.

    The op reproduces torchvision's functional ``crop``, but rejects an image that does not contain the window, unless
    ``smaller`` is ``pad``. With ``pad`` and ``"unit": "free"``, the op reproduces DALI's ``crop`` with
    ``out_of_bounds_policy="pad"``: if a centered window needs an odd number of padding rows, there is one more row at
    the top than at the bottom.

    Each of ``top``, ``left``, ``height`` and ``width`` may be the name of an input, float32 [n, 1], which contains one
    value per image; ``name[1]`` is the second number in a row of the input. The values refer to the image at this op,
    in pixels or as fractions. If a request specifies ``height`` and ``width`` and no resize follows, the size of the
    tensor varies with the request.

    A box is (left, top, right, bottom) in pixels of the decoded image, regardless of the ops before this one. If
    ``decode`` applies the EXIF orientation, the box refers to the oriented image. The edges of a box are rounded half
    to even, as in Pillow's ``Image.crop``. By default, a box that extends beyond the image is clipped to it, so a
    resize to a fixed size changes its aspect ratio. With ``"smaller": "pad"``, the box keeps its size and aspect ratio,
    as in recipes for top-down pose estimation and in Pillow's ``Image.crop``. A box that does not contain a whole pixel
    of the image is rejected.

    Args:
        top, left: First row and first column of the window.
        height, width: Height and width of the window.
        box: Name of an input with boxes, float32 [n, 4], instead of the four numbers.
        unit: Unit of the four numbers. With ``free``, ``top`` and ``left`` are fractions, 0 to 1, of the rows and
            columns outside the window, like DALI's ``crop_pos_y`` and ``crop_pos_x``, and ``height`` and ``width`` are
            in pixels. With ``share``, all four numbers
            are fractions of the image's height and width, as in DALI's ``slice``, which rounds the start and the end of
            the window. ``share32`` reproduces ``slice`` with ``rel_start`` and ``rel_shape``, where the fractions and
            the first row and column are float32.
        rounding: Rounding of fractional positions, as in ``center_crop``; default: ``half_away``, as in DALI.
        max_size: Maximum height and width in pixels that a request may specify; larger values are rejected.
        smaller: Treatment of an image that does not contain the window: ``refuse``, the default, rejects it, and
            ``pad`` pads it. With ``pad`` and pixels, ``top`` and ``left`` may be negative. For a ``box``, ``refuse``
            clips the box to the image, and ``pad`` pads the image.
        fill: Color of the padding, as in ``pad``.

    Example:
        {"op": "crop", "top": 10, "left": 20, "height": 224, "width": 224}
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
    fill: FillColorOrInput = 0

    def check(self) -> None:
        fields = (self.top, self.left, self.height, self.width)
        if (self.box is None) == (fields == (None,) * 4) or (self.box is None and None in fields):
            raise PipelineError('requires either "top", "left", "height" and "width", or "box"')
        if self.box is not None and self.unit != "pixels":
            raise PipelineError('"unit" requires "top", "left", "height" and "width"')
        if self.smaller == "refuse" and self.fill != 0:
            raise PipelineError('"fill" requires "smaller": "pad"')
        for name, (value, bound) in self._numbers.items():
            if value is not None:
                Bounded(bound, " pixels" * (bound is SIDE)).check(name, value)
        if self.unit != "pixels":
            settle(self, "rounding", "half_away")
        elif self.rounding is not None:
            raise PipelineError('"rounding" requires "unit": "free" or "share"')
        if self.max_size is not None and (self._is_relative or str not in {type(self.height), type(self.width)}):
            raise PipelineError(
                '"max_size" requires that "height" or "width" is the name of an input, with values in pixels'
            )

    @property
    def _is_relative(self) -> bool:
        """Return whether the numbers are fractions of the image's height and width."""
        return self.unit.startswith("share")

    @property
    def _numbers(self) -> dict[str, tuple[Number | None, Bound]]:
        """Value and limits of ``top``, ``left``, ``height`` and ``width``."""
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
        """Crop window of an op without ``box``. Example values replace the values that a request contains."""
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
        """Return the spec of the window.

        Raises:
            PipelineError: No image contains the window, or normalized values would be padded.
        """
        if self.smaller == "pad":
            need_pixel_values(image)
            need_fill(self.fill, image)
        if self.box is not None:
            return image.within((1, 1), (None, None) if self.smaller == "pad" else (image.max_height, image.max_width))
        input_fields = {name for name, _ in requested(**self._numbers)}
        if self._is_relative:
            if input_fields or image.height is None or image.width is None:
                return image.within((1, 1), (image.max_height, image.max_width))
            top, left, height, width = self._window.of(image.height, image.width)
            if not (height and width):
                raise PipelineError(
                    f"the window does not contain a whole pixel of the {image.height} x {image.width} image"
                )
            self._check_end(image, top + height, left + width)
            return image.sized(height, width)
        top, left, height, width = (
            0 if isinstance(value, str) else int(value or 0) for value, _ in self._numbers.values()
        )
        min_top, min_left = (top, left) if self.unit == "pixels" else (0, 0)
        self._check_end(image, min_top + max(height, 1), min_left + max(width, 1))
        sides = {"height": (height, image.max_height), "width": (width, image.max_width)}
        min_size = tuple(1 if name in input_fields else side for name, (side, _) in sides.items())
        max_size = tuple(
            min(filter(None, (self.max_size, bound)), default=None) if name in input_fields else side
            for name, (side, bound) in sides.items()
        )
        return image.within(min_size, max_size)  # type: ignore[arg-type]

    def _check_end(self, image: ImageSpec, bottom: int, right: int) -> None:
        """Raise PipelineError if the window extends beyond the image, unless ``smaller`` pads the image."""
        if self.smaller == "pad":
            return
        for name, axis, end, side in (
            ("height", "row", bottom, image.height),
            ("width", "column", right, image.width),
        ):
            if side is not None and end > side:
                raise PipelineError(f"the window extends to {axis} {end}, but the {name} of the image is {side}")

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        box = () if self.box is None else (InputSpec(name=self.box, kind="box", count=4),)
        numbers = (number.spec for _, number in requested(**self._numbers))
        return (*box, *numbers, *fill_input(self.fill, image))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        fill = self.fill if self.smaller == "pad" else None
        if self.box is not None:
            return before.then(inputs.Box(key=key, input=self.box, is_inside=fill is None), fill=fill)
        numbers, window = requested(**self._numbers), self._window
        return before.then(inputs.Requested(key=key, numbers=numbers, window=window) if numbers else window, fill=fill)
