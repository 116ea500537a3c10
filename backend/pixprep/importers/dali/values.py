"""Values in a DALI graph: encoded images, images between operators, and numbers that depend on an image's size.

Numbers are computed for each of ``SIZES``, in the same way and with the same types as in DALI. Therefore arithmetic on
shapes needs no algebra: it is imported if a rule reproduces its numbers at every size (``rules``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError
from pixprep.importers.dali.sizes import MAX_RATIO, is_array_rule, sizes
from pixprep.importers.fields import Fields, finite
from pixprep.pipeline.ops import MAX_SIDE, ColorMatrix, FirstOp, ImageOp, Levels, Normalize, Op, Resize, TensorDType
from pixprep.plan.lowered import Lowered
from pixprep.spec import ImageSpec, Layout

_TYPES = "uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 bool"
TYPES: dict[int, str] = dict(enumerate(_TYPES.split()))
"""NumPy's names of the types in DALI's enumeration DALIDataType."""
TENSOR_DTYPES: dict[int, TensorDType] = {0: "uint8", 8: "float16", 9: "float32"}


def _sizes() -> npt.NDArray[np.int64]:
    """Return sizes of images, (n, 2), height first.

    They are pairs of common sides, then random, narrow, small and large sizes.
    """
    usual = (16, 31, 32, 99, 100, 224, 225, 333, 375, 427, 480, 500, 639, 640, 641, 720, 960, 1080, 1280, 1281)
    pairs = [(height, width) for height in (*usual, 1920, 2560, 3024, 4032) for width in (*usual, 1920, 2560, 4032)]
    numbers = np.random.default_rng(0)
    drawn = np.exp(numbers.uniform(np.log(16), np.log(5000), (3600, 2))).astype(np.int64)
    side, ratio = np.exp(numbers.uniform([0, np.log(16)], np.log([84, 60]), (300, 2))).T
    narrow = np.stack([side, side * ratio], axis=1).astype(np.int64)
    small = [(height, width) for height in range(1, 16) for width in range(1, 16)]
    large = np.exp(numbers.uniform(np.log([5000, 90]), np.log(MAX_SIDE), (150, 2))).astype(np.int64)
    made = (np.array(pairs), drawn, narrow, narrow[:, ::-1], np.array(small), large, large[:, ::-1])
    every: npt.NDArray[np.int64] = np.concatenate(made)
    return every.compress(every.max(1) <= MAX_RATIO * every.min(1), axis=0)


SIZES = _sizes()
"""Sizes that numbers are computed for: sides of 1 to ``MAX_SIDE`` pixels, with an aspect ratio of at most 60."""
_TRIED: ContextVar[npt.NDArray[np.int64]] = ContextVar("_TRIED", default=SIZES)
Rows = npt.NDArray[np.float64]
MAX_SIZE = 4096
"""Maximum side of a tensor for which the graph does not specify a bound.

DALI has no bound, and pixprep requires one.
"""
UNKNOWN = -(1 << 40)
"""Placeholder for a number that does not depend on the size, or for a side of an image that is rejected."""
Source = tuple[str, bool]
"""Name of an encoded image, and whether its size is the one after EXIF orientation."""


@dataclass(frozen=True)
class Encoded:
    """An input of a request: an encoded image, numbers, or pixels.

    Attributes:
        name: Name of the input for clients.
        layout: Layout that the graph specifies, such as ``HWC``. Empty if it specifies none.
        dtype: Data type that the graph specifies. None if it specifies none.
        index: Index of the selected number. None selects all numbers.
        cast: Data type that the input is cast to.
    """

    name: str
    layout: str = ""
    dtype: str | None = None
    index: int | None = None
    cast: str | None = None

    def __repr__(self) -> str:
        return "(an input of the request)"

    def at(self, place: int) -> str:
        """Return the value of an op's field that refers to one number of this input.

        Raises:
            PipelineError: The input is already a single number.
        """
        if self.index is not None and place:
            raise PipelineError(f'the input "{self.name}" provides one number, but {place + 1} are required')
        index = place if self.index is None else self.index
        return f"{self.name}[{index}]" if index else self.name


@dataclass(frozen=True, eq=False)
class Canvas:
    """A window of an image, or a canvas that contains the image, for each of ``SIZES``, in pixels of the image.

    Attributes:
        fill: Color outside the image. None: the window must be inside the image.
    """

    top: Rows
    left: Rows
    height: Rows
    width: Rows
    fill: Levels | None


@dataclass(frozen=True)
class Image:
    """An image between operators.

    Attributes:
        encoded: Name of the encoded tensor.
        chain: Ops so far, from ``decode``.
        layout: Layout of the array.
        dtype: Data type of the array.
        canvas: Canvas that contains the image, if the canvas's size depends on the image's size.
        padding: Height, width and value of the tensor's padding on the bottom and the right.
        fourth: Value of a fourth channel after red, green and blue. None: the image does not have one.
        stride: Frame stride of a clip.
        is_gray: Whether the image has one channel in DALI, which pixprep stores as three equal channels.
        is_expanded: Whether the image went through ``expand_dims``, after which DALI does not know the layout.
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
        """Return the encoded image and the orientation that sizes must belong to."""
        return self.encoded, bool(getattr(self.chain[0], "apply_exif_orientation", True))

    @property
    def channels(self) -> int:
        """Return 1 for gray, 4 with ``fourth``, and 3 for all others."""
        return 1 if self.is_gray or getattr(self.chain[0], "color", "") == "gray" else 3 + (self.fourth is not None)

    @property
    def is_normalized(self) -> bool:
        """Return whether arithmetic has changed the integer pixel values."""
        return any(isinstance(op, Normalize) for op in self.chain)

    def then(self, *ops: Op) -> Image:
        """Return a copy with more ops."""
        if ops:
            self.check_laid()
        return replace(self, chain=(*self.chain, *ops))

    def check_laid(self) -> None:
        """Reject an image on a canvas of variable size, or with a padded tensor, before further operators."""
        if self.canvas is not None:
            raise PipelineError(
                "its canvas depends on the size of the image, which is not supported: crop to a fixed size first"
            )
        if self.padding is not None or self.fourth is not None:
            raise PipelineError("comes after the padding of normalized values, which must be last")

    def padded(self, height: int, width: int, value: float) -> Image:
        """Return a copy whose tensor has at least this number of rows and columns."""
        self.check_laid()
        spec = lowered(self.chain)[1]
        if (spec.max_height or height + 1) > height or (spec.max_width or width + 1) > width:
            raise PipelineError(
                f"normalized values are padded to {height} x {width}, but an image may be larger: limit its size first"
            )
        return replace(self, padding=(height, width, value))

    @property
    def tensor(self) -> dict[str, Any]:
        """Return the fields of its ``tensor``."""
        if self.canvas is not None:
            self.check_laid()
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
        """Return a copy with a different dtype, if no value changes before the last rounding."""
        to = fields.choice(argument, TENSOR_DTYPES, default)
        if self.is_normalized and to == "uint8":
            return self._as_levels(fields, argument)
        if to != self.dtype:
            self.check_unrounded()
        return replace(self, dtype=to)

    def _as_levels(self, fields: Fields, argument: str) -> Image:
        """Return a copy whose arithmetic results in integer pixel values. DALI rounds half up and clips."""
        self.check_unrounded()
        steps = [op for op in self.chain if isinstance(op, Normalize)]
        kept = self.chain[: -len(steps)]
        if any(isinstance(op, Normalize) for op in kept) or (self.padding, self.fourth) != (None, None):
            fields.refuse(argument, "is supported only directly after the arithmetic that it rounds")
        pairs = [(1.0, 0.0)] * self.channels
        for op in steps:
            made = op.coefficients(self.channels)
            pairs = [(a * scale, b * scale + offset) for (a, b), (scale, offset) in zip(pairs, made, strict=True)]
        pairs *= 3 // self.channels
        if getattr(self.chain[0], "color", "rgb") == "bgr":
            pairs = pairs[::-1]
        rows = [(*(scale * (at == own) for at in range(3)), offset) for own, (scale, offset) in enumerate(pairs)]
        return replace(self, chain=(*kept, ColorMatrix(matrix=tuple(rows))), dtype="uint8")

    def check_levels(self, fields: Fields) -> None:
        """Reject an operator that supports and returns only integer pixel values."""
        if self.dtype != "uint8" or self.layout != "hwc" or self.is_normalized:
            raise PipelineError("is supported only for uint8 images in HWC, before a cast or a normalization")
        fields.expect("dtype", 0, why="must be 0 (uint8), the type of the image")

    def check_unrounded(self) -> None:
        """Reject further operators after values were rounded to float16."""
        if self.is_normalized and self.dtype == "float16":
            raise PipelineError(
                "comes after a cast to float16, which must be last, because values are rounded only once"
            )


@dataclass(frozen=True, eq=False)
class Numbers:
    """Numbers in a graph, such as a constant array or the shape of an image.

    Attributes:
        values: Array (n, ...) for n ``SIZES``, with ``UNKNOWN`` where an image of that size is rejected; (1, ...) for a
            constant.
        sources: Images whose sizes determine the numbers.
        again: Function that computes the numbers for the sizes of ``trying``. None: they are not an argument.
    """

    values: npt.NDArray[Any]
    sources: frozenset[Source] = frozenset()
    again: Callable[[], Numbers] | None = None

    def __repr__(self) -> str:
        return "(computed for each image)"

    @property
    def plain(self) -> Any:
        """Return a constant as a plain number or list, and other numbers unchanged."""
        is_constant = not self.sources and len(self.values) == 1
        return (
            self.values[0].ravel().tolist()
            if is_constant and self.values.ndim > 1
            else (self.values[0].item() if is_constant else self)
        )

    @property
    def rows(self) -> npt.NDArray[np.float64]:
        """Return the numbers for each of ``SIZES``, (n, count)."""
        values = self.values.reshape(len(self.values), -1).astype(np.float64)
        return np.broadcast_to(values, (len(tried()), values.shape[1]))


Value = Encoded | Image | Numbers


def constant(values: Any, dtype: str) -> Numbers:
    """Return numbers that are equal for every image."""
    return Numbers(np.asarray(values, dtype)[None])


def short(value: Any) -> Any:
    """Return the shortest decimal of a float32 value. A name is returned unchanged."""
    return value if isinstance(value, str) else float(str(np.float32(value)))


class MovedError(PipelineError):
    """Numbers depend on an image whose size differs from its file's, so they can be computed only for ``SIZES``."""


@contextmanager
def trying(these: npt.NDArray[np.int64]) -> Iterator[None]:
    """Compute numbers for these image sizes, (n, 2), in place of ``SIZES``."""
    token = _TRIED.set(these)
    try:
        yield
    finally:
        _TRIED.reset(token)


def tried() -> npt.NDArray[np.int64]:
    """Return the sizes that numbers are computed for: ``SIZES``, or those of ``trying``."""
    return _TRIED.get()


def is_unmoved(image: Image) -> bool:
    """Return whether no op so far changes the size of an image."""
    return np.array_equal(sizes_after(image.chain), SIZES)


def size_of(image: Image) -> Numbers:
    """Return the current (height, width) of an image."""
    if tried() is not SIZES and not is_unmoved(image):
        raise MovedError
    here = sizes_after(image.chain) if tried() is SIZES else tried()
    return Numbers(here, frozenset({image.source}))


@lru_cache(maxsize=64)
def sizes_after(chain: tuple[Op, ...], every: int = 1) -> npt.NDArray[np.int64]:
    """Return the sizes after ops for one in ``every`` of ``SIZES``. All others, and rejected sizes, are ``UNKNOWN``."""
    before, spec = lowered(chain)
    geometry = before.geometry
    if geometry.takes_inputs and None in (spec.height, spec.width):
        raise PipelineError("uses an image size that is an input of the request, which is not supported")
    if len(chain) == 1 and every == 1:
        return SIZES
    step = before.resize
    if every == 1 and step is not None and isinstance(chain[-1], Resize) and is_array_rule(step):
        behind = sizes_after(chain[:-1])
        is_seen = (behind > 0).all(1)
        made = sizes(step, np.maximum(behind, 1).astype(np.float64)).astype(np.int64)
        return np.where((is_seen & (made <= MAX_SIDE).all(1))[:, None], made, UNKNOWN)
    found = np.full((len(SIZES), 2), UNKNOWN)
    for index in range(0, len(SIZES), every):
        with suppress(ImageError):
            found[index] = geometry.place(*SIZES[index].tolist()).size
    return found


@lru_cache(maxsize=64)
def lowered(chain: tuple[Op, ...]) -> tuple[Lowered, ImageSpec]:
    """Return the lowered ops, and the spec of their image.

    Raises:
        PipelineError: The ops are not compatible.
    """
    first = cast("FirstOp", chain[0])
    before, spec = first.lower(), first.infer()
    for op in chain[1:]:
        assert isinstance(op, ImageOp)
        after = op.infer(spec)
        before, spec = op.lower(before, spec, ""), after
    return before, spec


def needed(value: Any, image: Image, fields: Fields, argument: str) -> npt.NDArray[np.float64]:
    """Return the numbers of an argument for each of ``SIZES``, (n, count).

    They must depend on the operator's own image.
    """
    if not isinstance(value, Numbers):
        values = finite(value) or fields.refuse(argument, "must be finite numbers")
        return np.broadcast_to(np.array(values), (len(tried()), len(values)))
    if not value.sources <= {image.source}:
        fields.refuse(
            argument,
            "depends on the size of another image, or on the size before EXIF orientation, which is not supported",
        )
    return value.rows


def one_source(*values: Numbers) -> frozenset[Source]:
    """Return the common sources of these numbers.

    Raises:
        PipelineError: The numbers depend on several images.
    """
    sources = frozenset[Source]().union(*(value.sources for value in values))
    if len(sources) > 1:
        raise PipelineError("combines the sizes of several images, which is not supported")
    return sources
