"""Specifications of images and tensors, which are known before any image is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf, prod
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.bfloat16 import bfloat16_bits, bfloat16_floats
from pixprep.patch_layout import PatchLayout, ViewLayout

Color = Literal["rgb", "bgr", "gray"]
OperatorDType = Literal["float32", "float16", "uint8", "int32", "int64"]
DType = OperatorDType | Literal["bool", "bfloat16"]
Layout = str
"""Order of the axes of a tensor, one letter per axis: c (channels), h (height), w (width), t (frames of a clip), n
(clips of a video), or 1 (an axis of length one)."""
FrameType = Literal["uint8", "int16", "uint16", "float32"]
FrameLayout = Literal["hwc", "chw"]
Chroma = Literal["fancy", "fast"]
Idct = Literal["accurate", "fast"]
Alpha = Literal["drop", "white", "checkerboard", "keep"]
Luma = Literal["torchvision", "numpy"]
GrayLike = Literal["pillow", "opencv"]
Like = Literal[
    "pillow",
    "pillow12",
    "torchvision",
    "torch",
    "torch_float",
    "torch_corners",
    "scipy",
    "slanext",
    "opencv",
    "tensorflow",
    "dali",
]
ColorLike = Literal["pillow", "torchvision"]
BlendLike = Literal["pillow", "torchvision", "opencv"]
WarpLike = Literal["pillow", "torchvision", "opencv", "dali", "scipy"]
BlurLike = Literal["torchvision", "opencv"]
Filter = Literal["nearest", "nearest_exact", "box", "bilinear", "hamming", "bicubic", "lanczos", "lanczos4", "area"]
WarpFilter = Literal["nearest", "bilinear", "bicubic"]
Matrix = tuple[float, ...]
"""Coefficients of a transform in row-major order: (a, ..., f) of an affine transform, (a, ..., h) of a homography whose
last coefficient is 1, or (a, ..., i) of a homography in OpenCV.

See ``plan.steps.warps.Warp``.
"""
Rounding = Literal["down", "half_even", "half_away"]
SideRounding = Literal["down", "half_even", "half_away", "half_away32", "up", "detr", "detr_original"]
DALIS: tuple[SideRounding, ...] = ("half_away", "half_away32")
DETRS: tuple[SideRounding, ...] = ("detr", "detr_original")
Values = Literal["levels", "real", "normalized"]
TensorDType = Literal["float32", "float16", "bfloat16", "uint8"]
MaskDType = Literal["uint8", "int64"]
TargetDType = Literal["float32", "uint8", "uint16"]
SizeDType = Literal["int32", "int64", "float32"]
FlagDType = Literal["int64", "int32", "uint8", "bool", "float32"]
SizeOrder = Literal["hw", "wh", "h", "w", "hwc"]
ScaleOrder = Literal["yx", "xy"]
Anchor = Literal["center", "top_left"]
Own = Literal["max", "mean", "standardize"]
"""Statistic of an image's own pixel values. ``standardize`` is both the mean and the standard deviation."""
Arithmetic = Literal["float64", "divide", "multiply", "fused", "fused_multiply", "bfloat16"]
PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]
BorderMode = Literal["constant", "edge", "reflect", "symmetric", "first_pixel"]
Preset = Literal["ultrafast", "fast", "medium"]
BoxFormat = Literal["xyxy", "xywh", "cxcywh"]
BoxSource = Literal["xyxy", "xywh", "cxcywh", "xyxy_normalized", "xywh_normalized", "cxcywh_normalized"]
Side = Literal["training", "serving"]
Levels = int | tuple[int, ...]
Reals = float | tuple[float, ...]
Fill = Levels | str
"""A color, or the name of the per-request input that contains the color."""


def as_tuple(value: Reals) -> tuple[float, ...]:
    """Convert a number to a tuple of length one, and a list to a tuple."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def rounded(value: float, rounding: SideRounding) -> int:
    """Round a non-negative value to an integer.

    ``down`` and ``DETRS`` truncate, ``up`` rounds up, and the other values round to the nearest integer, with ties to
    even (``half_even``) or up.
    """
    if rounding in ("half_even", "up"):
        return round(value) if rounding == "half_even" else ceil(value)
    return int(value + 0.5 if rounding in DALIS else value)


def upward(length: int, multiple: int) -> int:
    """Round a length up to a multiple of ``multiple``."""
    return -(-length // multiple) * multiple


def times(side: float, scale: float, rounding: SideRounding) -> float:
    """Return ``side * scale`` before rounding; for ``DALIS`` with float32 arithmetic, as in DALI."""
    return float(np.float32(side * float(np.float32(scale)))) if rounding in DALIS else side * scale


def scaled(length: float, size: int, side: float, rounding: SideRounding) -> float:
    """Return ``length * size / side`` before rounding; for ``DALIS`` with the arithmetic of ``times``."""
    return times(length, size / side, rounding) if rounding in DALIS else size * length / side


@dataclass(frozen=True, kw_only=True)
class ImageSpec:
    """An image between two ops: ``channels`` planes of ``height`` x ``width`` values.

    Attributes:
        frames: Number of frames, which all have the same size. None means a single image.
        clips: Number of clips of ``frames // clips`` frames each. None means that the frames are a single clip.
        is_frames_open: Whether the number of frames depends on the clip. ``frames`` is then the maximum.
        height, width: Size in pixels. None means that it differs from image to image.
        min_height, min_width: Minimum size in pixels.
        max_height, max_width: Maximum size in pixels. None means unlimited.
        color: Order of the channels.
        has_alpha: Whether the alpha of the file is a fourth channel, after those of ``color``.
        low, high: Range of the values.
        multiples: The height and the width are always multiples of these two numbers.
        max_pixels: Maximum number of pixels. None means the product of the maximum height and width.
        max_clip_pixels: Maximum number of pixels in all frames. None means ``frames`` times ``max_pixels``.
        values: ``levels``: uint8 from the decoder or the resize. ``real``: float32 in the same range, from a resize
            that does not round. ``normalized``: the result of ``normalize``.
    """

    frames: int | None = None
    clips: int | None = None
    is_frames_open: bool = False
    height: int | None = None
    width: int | None = None
    min_height: int = 1
    min_width: int = 1
    max_height: int | None = None
    max_width: int | None = None
    color: Color = "rgb"
    has_alpha: bool = False
    low: float = 0.0
    high: float = 255.0
    values: Values = "levels"
    multiples: tuple[int, int] = (1, 1)
    max_pixels: int | None = None
    max_clip_pixels: int | None = None

    @property
    def channels(self) -> int:
        """Number of channels: 1 for gray, 3 for RGB and BGR, and 4 for RGB with alpha."""
        return (1 if self.color == "gray" else 3) + self.has_alpha

    def sized(self, height: int, width: int) -> ImageSpec:
        """Return the same image with a fixed size."""
        return self.within((height, width), (height, width))

    def within(self, least: tuple[int, int], most: tuple[int | None, int | None] = (None, None)) -> ImageSpec:
        """Return the same image with ``least`` and ``most`` as bounds of (height, width), in pixels."""
        height, width = (low if low == high else None for low, high in zip(least, most, strict=True))
        bounds = dict(zip(("min_height", "min_width", "max_height", "max_width"), (*least, *most), strict=True))
        free = replace(self, multiples=(1, 1), max_pixels=None, max_clip_pixels=None)
        return replace(free, height=height, width=width, **bounds)  # type: ignore[arg-type]

    def __str__(self) -> str:
        frames = f"{'up to ' * self.is_frames_open}{self.frames} x " if self.frames else ""
        size = f"{frames}{self.height or '?'} x {self.width or '?'}"
        values = f"{self.low:g}..{self.high:g}" if self.values == "levels" else f"{self.low:.4g}..{self.high:.4g}"
        return f"{size} {self.color}{'a' * self.has_alpha}, {'uint8' if self.values == 'levels' else 'real'} {values}"


LARGEST = 16384
"""Right and lower edge of the example box, which is clipped to the image."""
FAR = 1 << 20
"""Maximum absolute coordinate of a point, in pixels from the upper left corner of the photo."""
InputKind = Literal["box", "xywh", "xywh64", "quad", "points", "matrix", "homography", "flag", "color", "number"]
InputDType = Literal["float32", "float64", "bool", "uint8"]


class Frames(NamedTuple):
    """Format of images that are passed as arrays of pixels.

    Attributes:
        order: Order of the channels.
        dtype: Type of the pixel values.
        layout: Order of the axes.
        window: Values that are mapped to 0 and 255. None means that the values range from 0 to 255.
    """

    order: Color
    dtype: FrameType = "uint8"
    layout: FrameLayout = "hwc"
    window: tuple[float, float] | None = None

    def __str__(self) -> str:
        order = self.order if self.order == "gray" else self.order.upper()
        shape = ", ".join(map(str, self.shape("height", "width")))
        window = f", {self.window[0]:g} to {self.window[1]:g}" if self.window else ""
        return f"accept pixel arrays: {self.dtype} [{shape}], {order}{window}"

    @property
    def channels(self) -> int:
        """Number of channels: 1 for gray, and 3 for RGB and BGR."""
        return 1 if self.order == "gray" else 3

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Accepted dtypes of arrays: the declared one and, without a window, uint8."""
        return (self.dtype,) if self.window else tuple(dict.fromkeys((self.dtype, "uint8")))

    def shape(self, height: Any, width: Any) -> list[Any]:
        """Return the shape of an array with an image of this size."""
        return [height, width, self.channels] if self.layout == "hwc" else [self.channels, height, width]


class Bound(NamedTuple):
    """Limits of one number of an input.

    Attributes:
        least, most: Minimum and maximum, inclusive.
        is_whole: Whether the number must be an integer.
        example: Example value, with which a pipeline can be tried.
    """

    least: float = -inf
    most: float = inf
    is_whole: bool = False
    example: float = 0

    def holds(self, number: float) -> bool:
        """Return whether a finite number satisfies the limits."""
        return self.least <= number <= self.most and not (self.is_whole and number % 1)

    def within(self, other: Bound) -> Bound:
        """Return the intersection of two limits, for a number that is used by two fields."""
        least, most = max(self.least, other.least), min(self.most, other.most)
        return Bound(least, most, self.is_whole or other.is_whole, min(max(self.example, least), most))

    def __str__(self) -> str:
        return f"{'an integer of ' * self.is_whole}{self.least:g} to {self.most:g}"


class Kind(NamedTuple):
    """Properties of the inputs of one kind.

    Attributes:
        dtype: Type of the numbers.
        bound: Limits of each number.
        row: Example of a row. If empty, the examples of the numbers are used.
        words: Description of a row, for messages.
        columns: Number of columns of a row that is a matrix. 0 means that a row is a vector.
        is_region: Whether each row specifies a region of the photo that becomes a tensor of its own.
    """

    dtype: InputDType
    bound: Bound
    row: tuple[float, ...] = ()
    words: str = ""
    columns: int = 0
    is_region: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the example ``row``."""
        return (len(self.row) // self.columns, self.columns) if self.columns else (len(self.row),)


_CORNERS = " (x and y of the upper left, upper right, lower right and lower left corner)"
KINDS: dict[InputKind, Kind] = {
    "box": Kind("float32", Bound(), (0, 0, LARGEST, LARGEST), " (left, top, right, bottom)", is_region=True),
    "xywh": Kind("float32", Bound(-FAR, FAR), (0, 0, 32, 32), " (left, top, width, height)", is_region=True),
    "xywh64": Kind("float64", Bound(-FAR, FAR), (0, 0, 32, 32), " (left, top, width, height)", is_region=True),
    "quad": Kind("float32", Bound(-FAR, FAR), (0, 0, 32, 0, 32, 32, 0, 32), _CORNERS, 2, is_region=True),
    "points": Kind("float32", Bound(-FAR, FAR), words=" (x and y of each point)", columns=2, is_region=True),
    "matrix": Kind("float64", Bound(), (1, 0, 0, 0, 1, 0), " (from the photo)", 3, is_region=True),
    "homography": Kind("float64", Bound(), (1, 0, 0, 0, 1, 0, 0, 0, 1), " (from the photo)", 3, is_region=True),
    "flag": Kind("bool", Bound(example=False)),
    "color": Kind("uint8", Bound(0, 255, is_whole=True), words=" (a pixel value per channel)"),
    "number": Kind("float32", Bound()),
}


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """Numeric input that a request contains for each image: one row of ``count`` numbers per tensor.

    Attributes:
        name: Name of the input, as in Triton.
        kind: ``box``: left, top, right, bottom in pixels of the decoded image; each row produces one tensor. ``xywh``
            and ``xywh64``: left, top, width and height of a box, in float32 and in float64. ``quad``, ``points``,
            ``matrix``, ``homography``: as in the op ``warp``; each row also produces one tensor. ``flag``: a boolean.
            ``color``: a pixel value per channel, in the order of the channels. ``number``: a value of the fields that
            name this input.
        count: Number of values in a row.
        bounds: Limits of each number in a row. If empty, the limits of the kind apply.
    """

    name: str
    kind: InputKind
    count: int = 1
    bounds: tuple[Bound, ...] = ()

    @property
    def dtype(self) -> InputDType:
        """Type of the numbers."""
        return KINDS[self.kind].dtype

    @property
    def is_region(self) -> bool:
        """Whether each row specifies a region of the photo that becomes a tensor of its own."""
        return KINDS[self.kind].is_region

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row."""
        columns = KINDS[self.kind].columns
        return (self.count // columns, columns) if columns else (self.count,)

    @property
    def limits(self) -> tuple[Bound, ...]:
        """Limits of each number in a row."""
        return self.bounds or (KINDS[self.kind].bound,) * self.count

    @property
    def example(self) -> list[float]:
        """Example of a row, such as a box that covers the whole image."""
        return list(KINDS[self.kind].row or (bound.example for bound in self.limits))

    def and_(self, other: InputSpec) -> InputSpec | None:
        """Return the input that two fields with this name share, or None if they need different inputs."""
        if self.kind != "number" or other.kind != "number":
            return self if self == other else None
        count = max(self.count, other.count)
        mine, others = ((*spec.limits, *[Bound()] * (count - spec.count)) for spec in (self, other))
        bounds = tuple(one.within(two) for one, two in zip(mine, others, strict=True))
        return replace(self, count=count, bounds=bounds) if all(b.least <= b.most for b in bounds) else None

    def __str__(self) -> str:
        limits = [str(bound) for bound in self.limits if bound.least > -inf or bound.most < inf]
        words = f" ({'; '.join(limits)})" if self.kind == "number" and limits else KINDS[self.kind].words
        return f"{self.dtype} [n, {', '.join(map(str, self.shape))}]{words}"


class Padding(NamedTuple):
    """Padding of a tensor, below the image and to its right.

    Attributes:
        value: Padding value in the tensor: one number, or one per channel.
        height, width: Minimum size of the tensor.
        multiple: Number to whose multiples the height and width of the tensor are padded.
    """

    value: tuple[float, ...] = (0.0,)
    height: int = 1
    width: int = 1
    multiple: int = 1

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Return the (height, width) of the padded tensor of an image of this size."""
        return upward(max(height, self.height), self.multiple), upward(max(width, self.width), self.multiple)


NO_PADDING = Padding()


@lru_cache(64)
def _axes(layout: str, order: str, first: int) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Return the index and the order of axes that convert ``layout`` to ``order``, after ``first`` leading axes."""
    axes = layout.replace("1", "")
    inside = (..., *(0 if axis == "1" else slice(None) for axis in layout))
    return inside, (*range(first), *(first + axes.index(axis) for axis in order))


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One output of a pipeline, for one image (no batch dimension).

    Attributes:
        shape: Shape of the tensor, with -1 for a side that depends on the image. Without -1, the tensors of a batch
            are stacked.
        most: Maximum shape. Empty if ``shape`` is fixed.
        layout: Order of the axes of ``shape``. None if the output is not an image.
        low, high: Range of the values of the image.
        padding: Padding of the tensor.
        fourth: Value of an additional fourth channel. None if the tensor does not have this channel.
        patches: Layout of a tensor of patches, (patches, values per patch). None for all other tensors.
        max_values: Maximum number of values. None means the number of values of the maximum shape.
    """

    shape: tuple[int, ...]
    most: tuple[int, ...] = ()
    dtype: DType
    layout: Layout | None = None
    low: float
    high: float
    padding: Padding = NO_PADDING
    fourth: float | None = None
    patches: PatchLayout | None = None
    max_values: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether the shape of the tensor depends on the image."""
        return -1 in self.shape

    @property
    def may_pad(self) -> bool:
        """Whether the tensor of an image may be padded, alone or in a batch."""
        return self.is_open or self.padding != NO_PADDING

    @property
    def largest(self) -> tuple[int, ...]:
        """Maximum shape of a tensor."""
        return self.most or self.shape

    @property
    def least(self) -> tuple[int, ...]:
        """Minimum shape of a tensor."""
        if isinstance(self.patches, ViewLayout):
            return tuple(max(0, side) for side in self.shape)
        sides = self.shape_of(1, 1) if self.is_open else self.shape
        return tuple(side if length == -1 else length for side, length in zip(sides, self.shape, strict=True))

    def shape_of(
        self,
        height: int,
        width: int,
        frames: int = 1,
        cuts: tuple[int, int] = (1, 1),
        whole: tuple[int, int] | None = None,
    ) -> tuple[int, ...]:
        """Return the shape of the tensor for an image that reaches this output with the size ``height`` x ``width``.

        ``frames`` is the number of frames of a clip. ``cuts`` and ``whole`` describe slices, as in ``ViewLayout``.
        """
        if self.patches is not None:
            return self.patches.shape_of(height, width, frames, cuts, whole)
        sides = dict(zip("hw", self.padding.size(height, width), strict=True))
        layout = self.layout or "hw"  # a mask has no layout
        return tuple(sides.get(axis, length) for axis, length in zip(layout, self.shape, strict=True))

    @property
    def lengths(self) -> dict[str, int]:
        """Length of each axis of ``layout``; empty if the output is not an image or a clip."""
        return self.lengths_of(self.shape)

    def lengths_of(self, shape: Sequence[int]) -> dict[str, int]:
        """Return the length of each axis of ``layout`` for a tensor of the given shape."""
        return dict(zip(self.layout, shape, strict=True)) if self.layout else {}

    def view(self, tensor: Any, order: str) -> Any:
        """Return a view of a tensor with its axes in a different order and without axes of length one.

        Args:
            tensor: NumPy or CuPy array in this layout. Leading axes, such as the batch, remain first.
            order: Order of all axes except those of length one, such as ``hwc``.
        """
        layout = self.layout or ""
        if layout == order:
            return tensor
        inside, axes = _axes(layout, order, tensor.ndim - len(layout))
        return tensor[inside].transpose(axes)

    def planes(self, tensors: Any) -> Any:
        """Return the ``view`` of tensors with height and width as the last two axes, without the ``fourth`` channel."""
        order = "".join(axis for axis in self.lengths if axis not in "hw1") + "hw"
        return self.view(tensors, order)[(..., *(slice(self.channels if axis == "c" else None) for axis in order))]

    @property
    def channels(self) -> int:
        """Number of channels of the image in the tensor."""
        if self.patches is not None:
            return self.patches.channels
        return self.lengths["c"] - (self.fourth is not None)

    @property
    def array_dtype(self) -> np.dtype[Any]:
        """NumPy dtype of the arrays of this output. It is uint16 for bfloat16; see the module ``bfloat16``."""
        return np.dtype("uint16" if self.dtype == "bfloat16" else self.dtype)

    def cast(self, values: Any) -> npt.NDArray[Any]:
        """Round values to the dtype of the output, and return them as an array of ``array_dtype``."""
        return bfloat16_bits(values) if self.dtype == "bfloat16" else np.asarray(values, self.dtype)

    def floats(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Convert an array of this output to float32 if it contains bits of bfloat16. Return other arrays unchanged."""
        return bfloat16_floats(array) if self.dtype == "bfloat16" else array

    @property
    def margin(self) -> npt.NDArray[np.generic]:
        """Padding value in the dtype of the tensor, with a shape that broadcasts to the tensor."""
        values = self.cast(self.padding.value)
        return values.reshape([len(values) if axis == "c" else 1 for axis in self.layout or ""])

    @property
    def n_bytes(self) -> int:
        """Maximum size of the tensor of one image, in bytes."""
        values = prod(self.largest)
        return min(values, self.max_values or values) * self.array_dtype.itemsize

    def __str__(self) -> str:
        if self.patches is not None:
            return f"{self.dtype} {list(self.shape)} {self.patches}, at most {self.largest[0]:,}"
        image = f" {self.layout}, values {self.low:.4g}..{self.high:.4g}" if self.layout else ""
        most = f", at most {list(self.most)}" if self.is_open else ""
        return f"{self.dtype} {list(self.shape)}{image}{most}"
