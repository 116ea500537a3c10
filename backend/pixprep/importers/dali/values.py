"""Defines the inputs and outputs of operators in a DALI graph: encoded images, decoded images, and numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError
from pixprep.importers.dali.sizes import SIZES, Rows, current_sizes, lowered, sizes_after
from pixprep.importers.fields import Fields, finite
from pixprep.pipeline.ops import ColorMatrix, Levels, Normalize, Op, TensorDType
from pixprep.spec import Color, Layout

_TYPES = "uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 bool"
TYPES: dict[int, str] = dict(enumerate(_TYPES.split()))
"""NumPy dtypes by the values of DALI's enumeration ``DALIDataType``."""
COLOR_TYPES: dict[int, Color] = {0: "rgb", 1: "bgr", 2: "gray"}
"""Channel orders by the values of DALI's enumeration ``DALIImageType``."""
TENSOR_DTYPES: dict[int, TensorDType] = {0: "uint8", 8: "float16", 9: "float32"}
MAX_SIZE = 4096
"""Maximum height and width of a tensor if the graph does not limit them. Unlike DALI, pixprep requires a limit."""
Source = tuple[str, bool]
"""Name of an encoded image, and whether the EXIF orientation is applied before its size is determined."""


@dataclass(frozen=True)
class Encoded:
    """Input of a request, which contains an encoded image, numbers, or pixels.

    Attributes:
        name: Name of the input, as clients use it.
        layout: Layout in the graph, such as ``HWC``, or an empty string if the graph does not specify it.
        dtype: Data type in the graph, or None if the graph does not specify it.
        index: Index of the selected number. None means that all numbers are selected.
        cast: Data type after a cast. None means that the input is not cast.
    """

    name: str
    layout: str = ""
    dtype: str | None = None
    index: int | None = None
    cast: str | None = None

    def __repr__(self) -> str:
        return "(an input of the request)"

    def at(self, position: int) -> str:
        """Return the field value with which an op refers to one number of this input, such as ``roi[2]``.

        Raises:
            PipelineError: The input has been reduced to a single number, and ``position`` is not 0.
        """
        if self.index is not None and position:
            raise PipelineError(f'the input "{self.name}" provides one number, but {position + 1} are required')
        index = position if self.index is None else self.index
        return f"{self.name}[{index}]" if index else self.name


@dataclass(frozen=True, eq=False)
class Canvas:
    """Crop of an image, or canvas that contains the image, as arrays with one entry for each size in ``SIZES``.

    Attributes:
        top: Row of the image at which the canvas begins.
        left: Column of the image at which the canvas begins.
        height: Height of the canvas in pixels.
        width: Width of the canvas in pixels.
        fill: Pixel value outside the image. None means that the canvas must not exceed the image.
    """

    top: Rows
    left: Rows
    height: Rows
    width: Rows
    fill: Levels | None


@dataclass(frozen=True)
class Image:
    """Decoded image between two operators.

    Attributes:
        encoded: Name of the input with the encoded image.
        chain: Ops that result in this image, beginning with ``decode``.
        layout: Layout of the array.
        dtype: Data type of the array.
        canvas: Canvas around the image if the size of the canvas depends on the size of the image.
        padding: (height, width, value) of the tensor after padding at the bottom and the right.
        fourth: Value of the fourth channel, after red, green and blue. None if there are fewer channels.
        stride: Frame stride of a clip.
        is_gray: Whether the image has one channel in DALI. In pixprep, it has three equal channels.
        is_expanded: Whether ``expand_dims`` was applied, after which DALI does not know the layout.
    """

    encoded: str
    chain: tuple[Op, ...]
    layout: Layout = "hwc"
    dtype: TensorDType = "uint8"
    canvas: Canvas | None = None
    padding: tuple[int, int, float] | None = None
    fourth: float | None = None
    stride: int = 1
    is_gray: bool = False
    is_expanded: bool = False

    @property
    def source(self) -> Source:
        """Return the encoded image, and whether its EXIF orientation is applied."""
        return self.encoded, bool(getattr(self.chain[0], "apply_exif_orientation", True))

    @property
    def channels(self) -> int:
        """Return the number of channels: 1, 3 or 4."""
        return 1 if self.is_gray or getattr(self.chain[0], "color", "") == "gray" else 3 + (self.fourth is not None)

    @property
    def is_normalized(self) -> bool:
        """Return whether the pixel values have been normalized, or changed by other float32 arithmetic."""
        return any(isinstance(op, Normalize) for op in self.chain)

    def then(self, *ops: Op) -> Image:
        """Return a copy of the image with further ops."""
        if ops:
            self.check_not_padded()
        return replace(self, chain=(*self.chain, *ops))

    def check_not_padded(self) -> None:
        """Raise PipelineError if the image has a canvas of variable size or padding after the normalization.

        Further operators are not supported in either case.
        """
        if self.canvas is not None:
            raise PipelineError(
                "its canvas depends on the size of the image, which is not supported: crop to a fixed size first"
            )
        if self.padding is not None or self.fourth is not None:
            raise PipelineError("follows the padding of normalized values, which must be the last operator")

    def padded(self, height: int, width: int, value: float) -> Image:
        """Return a copy whose tensor is padded to this size.

        Raises:
            PipelineError: An image can be larger.
        """
        self.check_not_padded()
        spec = lowered(self.chain)[1]
        if (spec.max_height or height + 1) > height or (spec.max_width or width + 1) > width:
            raise PipelineError(
                f"normalized values are padded to {height} x {width}, but an image may be larger: limit its size first"
            )
        return replace(self, padding=(height, width, value))

    @property
    def tensor(self) -> dict[str, Any]:
        """Return the fields of the op ``tensor`` for this image."""
        if self.canvas is not None:
            self.check_not_padded()
        fields: dict[str, Any] = {"dtype": self.dtype, "layout": self.layout}
        if self.is_gray or self.fourth is not None:
            fields |= {"channels": self.channels, "pad_value": self.fourth or None}
        if self.padding:
            height, width, value = self.padding
            values = value if self.fourth in (None, value) else (value, value, value, self.fourth)
            fields |= {"min_height": height, "min_width": width, "pad_value": values}
        spec = lowered(self.chain)[1]
        if spec.max_height is None or spec.max_width is None:
            fields["max_size"] = MAX_SIZE
        return fields

    def cast(self, fields: Fields, argument: str, default: int | None = None) -> Image:
        """Return a copy with the dtype that an argument specifies."""
        to = fields.choice(argument, TENSOR_DTYPES, default)
        if self.is_normalized and to == "uint8":
            return self._as_uint8(fields, argument)
        if to != self.dtype:
            self.check_unrounded()
        return replace(self, dtype=to)

    def _as_uint8(self, fields: Fields, argument: str) -> Image:
        """Return a copy whose float32 arithmetic is replaced by a ``color_matrix``, which rounds and clips to uint8."""
        self.check_unrounded()
        steps = [op for op in self.chain if isinstance(op, Normalize)]
        kept = self.chain[: -len(steps)]
        if any(isinstance(op, Normalize) for op in kept) or (self.padding, self.fourth) != (None, None):
            fields.refuse(argument, "is supported only directly after the arithmetic that it rounds")
        pairs = [(1.0, 0.0)] * self.channels
        for op in steps:
            step = op.coefficients(self.channels)
            pairs = [(a * scale, b * scale + offset) for (a, b), (scale, offset) in zip(pairs, step, strict=True)]
        pairs *= 3 // self.channels
        if getattr(self.chain[0], "color", "rgb") == "bgr":
            pairs = pairs[::-1]
        rows = [(*(scale * (at == own) for at in range(3)), offset) for own, (scale, offset) in enumerate(pairs)]
        return replace(self, chain=(*kept, ColorMatrix(matrix=tuple(rows))), dtype="uint8")

    def check_levels(self, fields: Fields) -> None:
        """Raise PipelineError unless the image is uint8 in HWC and the operator's ``dtype`` is also uint8."""
        if self.dtype != "uint8" or self.layout != "hwc" or self.is_normalized:
            raise PipelineError("is supported only for uint8 images in HWC, before a cast or a normalization")
        fields.expect("dtype", 0, why="must be 0 (uint8), the type of the image")

    def check_unrounded(self) -> None:
        """Raise PipelineError if normalized values were cast to float16. Such a cast must be the last operator."""
        if self.is_normalized and self.dtype == "float16":
            raise PipelineError(
                "follows a cast to float16, but this cast must be the last operator, so that values are rounded once"
            )


@dataclass(frozen=True, eq=False)
class Numbers:
    """Tensor of numbers in a graph, such as a constant or the shape of an image.

    Attributes:
        values: Array whose first axis is the image size. The length of this axis is the number of sizes in ``SIZES``,
            or 1 for a constant. If images of a size are rejected, the numbers for this size are ``UNKNOWN``.
        sources: Encoded images whose sizes determine the numbers.
        recompute: Function that computes the numbers again for the sizes that ``using_sizes`` sets. None, except for
            numbers that are arguments of operators.
    """

    values: npt.NDArray[Any]
    sources: frozenset[Source] = frozenset()
    recompute: Callable[[], Numbers] | None = None

    def __repr__(self) -> str:
        return "(computed for each image)"

    @property
    def plain(self) -> Any:
        """Return a constant as a Python number or list. All other numbers are returned unchanged."""
        is_constant = not self.sources and len(self.values) == 1
        return (
            self.values[0].ravel().tolist()
            if is_constant and self.values.ndim > 1
            else (self.values[0].item() if is_constant else self)
        )

    @property
    def rows(self) -> npt.NDArray[np.float64]:
        """Return the numbers as an array of shape (n, count), with one row for each of ``SIZES``."""
        values = self.values.reshape(len(self.values), -1).astype(np.float64)
        return np.broadcast_to(values, (len(current_sizes()), values.shape[1]))


Value = Encoded | Image | Numbers


def constant(values: Any, dtype: str) -> Numbers:
    """Return a tensor of numbers that does not depend on the image."""
    return Numbers(np.asarray(values, dtype)[None])


class ResizedError(PipelineError):
    """Raised if numbers depend on the size after an op that resizes the image.

    Such numbers are known only for ``SIZES``, and cannot be computed for other sizes.
    """


def keeps_size(image: Image) -> bool:
    """Return whether none of the ops changes the size of the image."""
    return np.array_equal(sizes_after(image.chain), SIZES)


def size_of(image: Image) -> Numbers:
    """Return the (height, width) of an image after its ops, for each of the current sizes."""
    if current_sizes() is not SIZES and not keeps_size(image):
        raise ResizedError
    size = sizes_after(image.chain) if current_sizes() is SIZES else current_sizes()
    return Numbers(size, frozenset({image.source}))


def argument_rows(value: Any, image: Image, fields: Fields, argument: str) -> npt.NDArray[np.float64]:
    """Return the numbers of an argument as an array of shape (n, count), with one row for each of ``SIZES``.

    Raises:
        PipelineError: The numbers depend on the size of a different image than the operator's input.
    """
    if not isinstance(value, Numbers):
        values = finite(value) or fields.refuse(argument, "must be finite numbers")
        return np.broadcast_to(np.array(values), (len(current_sizes()), len(values)))
    if not value.sources <= {image.source}:
        fields.refuse(
            argument,
            "depends on the size of another image, or on the size before EXIF orientation, which is not supported",
        )
    return value.rows


def common_sources(*values: Numbers) -> frozenset[Source]:
    """Return the image on whose size these numbers depend, as a set with at most one element.

    Raises:
        PipelineError: The numbers depend on the sizes of several images.
    """
    sources = frozenset[Source]().union(*(value.sources for value in values))
    if len(sources) > 1:
        raise PipelineError("combines the sizes of several images, which is not supported")
    return sources


def number_of(fields: Fields, name: str, default: float | None = None) -> Any:
    """Return a number, or the name of the request's input that contains it."""
    value = fields.take(name)
    return value.at(0) if isinstance(value, Encoded) else fields.number(name, default)


def side_of(fields: Fields, name: str) -> Any:
    """Return a height or width in pixels, or the name of the request's input that contains it."""
    value = fields.take(name)
    return value.at(0) if isinstance(value, Encoded) else fields.side(name)


def pair_of(fields: Fields, name: str) -> tuple[Any, Any]:
    """Return (height, width) in pixels, or the names of the request's inputs that contain them."""
    value = fields.take(name)
    return (value.at(0), value.at(1)) if isinstance(value, Encoded) else fields.pair(name)
