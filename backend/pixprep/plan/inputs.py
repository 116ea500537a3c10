"""Numbers that come with an image: how they are checked, and what the steps of a plan make of them.

An input has a row of numbers for each tensor. Of a pipeline that takes boxes, a photo gives as many tensors as it has
boxes; of every other, one. A step whose numbers come with the image is placed like one whose numbers are drawn: see
``Drawing``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError
from pixprep.plan.draws.augments import Augment, RandomStep
from pixprep.plan.draws.crops import IouCrop, within
from pixprep.plan.draws.philox import F64, Numbers, Words
from pixprep.plan.placement import Span, moved
from pixprep.plan.steps.operators import Extern
from pixprep.spec import Bound, InputSpec

_KINDS = {"float32": "fiu", "float64": "fiu", "bool": "biu", "uint8": "iu"}
"""The kinds of NumPy's dtypes that hold such numbers."""


Row = Mapping[str, npt.NDArray[Any]]
"""One row of each input, by its name: the numbers of one tensor."""


def check_inputs(specs: Mapping[str, InputSpec], inputs: Mapping[str, Sequence[Any]], count: int) -> None:
    """Refuse inputs of a batch that are not those of a pipeline, or not of so many images.

    Raises:
        PipelineError: one is missing, or is none of the pipeline's, or is not of as many images.
    """
    if not isinstance(inputs, Mapping):
        raise PipelineError('inputs are given by name: {"boxes": [[[left, top, right, bottom]]]}')
    for name in inputs:
        if name not in specs:
            raise PipelineError(f'inputs: the pipeline has no "{name}"; it has {", ".join(specs) or "none"}')
    if missing := [name for name in specs if name not in inputs]:
        raise PipelineError(f'inputs: no "{missing[0]}": {needed(specs)}')
    for name, each in inputs.items():
        if isinstance(each, str | bytes) or not hasattr(each, "__len__") or len(each) != count:
            images = f"{len(each)} images" if hasattr(each, "__len__") else "no list"
            raise PipelineError(
                f'inputs: "{name}" is of {images}, and there are {count}: give for each image its row, or the list of '
                "its rows"
            )


def needed(specs: Mapping[str, InputSpec]) -> str:
    """Message where the numbers that come with each image are missing."""
    each = ", ".join(f'"{name}": [...]' for name in specs)
    forms = ", ".join(f'"{name}" as {spec}' for name, spec in specs.items())
    return f"the pipeline takes {forms} with each image: give inputs={{{each}}}"


def rows(specs: Mapping[str, InputSpec], values: Mapping[str, Any], *, most: int | None) -> list[Row | ImageError]:
    """Numbers of an image's tensors, one row after the other.

    Args:
        specs: the inputs, at least one.
        values: of each: numbers (rows, count), or one row alone.
        most: rows that the image may have; None: each input has one.

    Returns:
        For each row its numbers, or why it gives no tensor.

    Raises:
        ImageError: EMPTY, BAD_INPUT: the image gives none at all.
    """
    arrays = {name: _array(spec, values[name]) for name, spec in specs.items()}
    counts = {name: len(array) for name, array in arrays.items()}
    first, count = next(iter(counts.items()))
    for name, other in counts.items():
        if most is None and other != 1:
            raise ImageError("BAD_INPUT", f'"{name}" has {other:,} rows; one tensor is made of one')
        if other != count:
            raise ImageError("BAD_INPUT", f'"{name}" has {other:,} rows, and "{first}" {count:,}: each needs its own')
    if count == 0:
        raise ImageError("EMPTY", f'no row of "{first}", so that there is no tensor (parameter no_rows)')
    if most is not None and count > most:
        raise ImageError("BAD_INPUT", f'{count:,} rows of "{first}"; the limit is {most:,} (parameter max_boxes)')
    return [_row(specs, arrays, index, count) for index in range(count)]


def _array(spec: InputSpec, values: Any) -> npt.NDArray[Any]:
    """(rows, count) of the input's dtype, values that it cannot hold made infinite or refused.

    Raises:
        ImageError: BAD_INPUT.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # lists of different lengths
        array = np.empty(0, object)
    if array.shape[-2:] == spec.shape and array.ndim in (2, 3):
        array = array.reshape(-1, spec.count)
    elif array.shape == (spec.count,) and spec.count > 1:
        array = array[None]
    elif spec.count == 1 and array.ndim < 2:
        array = array.reshape(-1, 1)
    elif array.shape == (0,) and array.dtype != object:
        array = np.empty((0, spec.count), spec.dtype)
    is_numbers = array.size == 0 or array.dtype.kind in _KINDS[spec.dtype]
    if array.ndim != 2 or array.shape[1] != spec.count or not is_numbers:
        form = f"{array.dtype} {list(array.shape)}" if array.dtype != object else "something else"
        raise ImageError("BAD_INPUT", f'"{spec.name}" is {spec}; given was {form}')
    most = {"color": 255, "flag": 1}.get(spec.kind)
    if most and array.size and not 0 <= array.min() <= array.max() <= most:
        what = f"{'levels' if spec.kind == 'color' else 'flags'} of 0 to {most}"
        raise ImageError("BAD_INPUT", f'"{spec.name}" has {what}, not {array.min()} to {array.max()}')
    with np.errstate(over="ignore"):  # what is then infinite is refused in its row
        return array.astype(spec.dtype, copy=False)


def _row(specs: Mapping[str, InputSpec], arrays: Row, index: int, count: int) -> Row | ImageError:
    for name, spec in specs.items():
        numbers = arrays[name][index]
        where = named(name, index, count)
        if spec.dtype.startswith("float") and not np.isfinite(numbers).all():
            return ImageError("BAD_INPUT", f"{where}{shown(numbers)} has a number that is not finite")
        if spec.kind == "box" and not (numbers[:2] < numbers[2:]).all():
            return ImageError(
                "BAD_INPUT", f"{where}{shown(numbers)} ends before it begins, or is empty: left, top, right, bottom"
            )
        for number, bound in zip(numbers.tolist(), spec.limits, strict=True):
            if not bound.holds(number):
                row = f"{shown(numbers)}: " * (spec.count > 1)
                return ImageError("BAD_INPUT", f"{where}{row}{number:.10g} must be {bound}")
    return {name: array[index] for name, array in arrays.items()}


def named(name: str, index: int, count: int) -> str:
    """Beginning of an error about one row of an input: ``"boxes" 3 of 5: ``."""
    return f'"{name}" {index + 1:,} of {count:,}: '


def shown(numbers: npt.NDArray[Any]) -> str:
    """Numbers of a row, as an error shows them."""
    return ", ".join(f"{number:.6g}" for number in numbers.tolist())


MAX_BOX = 1 << 16
"""Pixels of a side of a box that has a margin where it reaches over the image's edge."""
MAX_COUNT = 16
"""Numbers in a row of an input."""
_REFERENCE = re.compile(r"(?P<name>[^\[\]]*)(?:\[(?P<index>[0-9]{1,2})\])?")


class Number(NamedTuple):
    """One number of an input.

    Attributes:
        input: its name.
        place: in the row.
        bound: its limits.
    """

    input: str
    place: int
    bound: Bound

    @property
    def spec(self) -> InputSpec:
        """The input, as far as this number says it."""
        count = self.place + 1
        return InputSpec(name=self.input, kind="number", count=count, bounds=(*[Bound()] * self.place, self.bound))

    def of(self, row: Row | None) -> float:
        """The number that came with the image, whole if it must be; of nothing its example."""
        number = self.bound.example if row is None else row[self.input][self.place].item()
        return int(number) if self.bound.is_whole else float(number)

    def __str__(self) -> str:
        return f'"{self.input}"' if self.place == 0 else f'"{self.input}[{self.place}]"'


def number(reference: str, bound: Bound = Bound()) -> Number:  # noqa: B008  (it is a tuple)
    """The number that a field names: ``name`` is the first of an input, ``name[1]`` its second.

    Raises:
        PipelineError: it is no such name.
    """
    match = _REFERENCE.fullmatch(reference)
    index = int(match["index"] or 0) if match else MAX_COUNT
    if match is None or index >= MAX_COUNT:
        raise PipelineError(
            f'an input is named by "name", or by "name[1]" for its second number, up to [{MAX_COUNT - 1}]: '
            f'not "{reference[:40]}"'
        )
    return Number(match["name"], index, bound)


@dataclass(frozen=True, kw_only=True)
class Requested:
    """A window or the size of a resize, some of whose numbers are inputs.

    Attributes:
        key: Key of the op.
        numbers: Inputs by the field that each sets.
        window: ``Window`` that contains the fields; None: the resize with this object contains them.
    """

    key: str
    numbers: tuple[tuple[str, Number], ...]
    window: Any = None
    axis: ClassVar[None] = None

    @property
    def input(self) -> str:
        """The first of the inputs."""
        return self.numbers[0][1].input

    @property
    def is_inside(self) -> bool:
        """Tell whether the window has to lie inside the image."""
        return self.window is None or self.window.beyond == "refuse_smaller"

    def of(self, words: Words) -> Any:
        """The window of one image."""
        return replace(self.window, **words)

    def __str__(self) -> str:
        said = ", ".join(f"{field} {number}" for field, number in self.numbers)
        return f"take a window: {said}" if self.window else said


@dataclass(frozen=True, kw_only=True)
class Box:
    """The window of a box.

    Attributes:
        key: Key of the op.
        input: Name of the input that contains the box.
        is_inside: Whether a box that extends beyond the image is cut off; otherwise, it is padded.
    """

    key: str
    input: str
    is_inside: bool = True
    axis: ClassVar[None] = None

    def words(self, height: int, width: int, box: F64 | None) -> Words:
        """The whole pixels of a box, as Pillow's ``Image.crop`` rounds its edges: half to even.

        Args:
            height: Height of the canvas.
            width: Width of the canvas.
            box: float64 (4,) left, top, right, bottom in pixels of the canvas; None: all of it.

        Raises:
            ImageError: DOES_NOT_FIT: No part of the box is inside the canvas.
        """
        if box is None:
            return {"top": 0, "left": 0, "height": height, "width": width}
        sides = (width, height, width, height)
        left, top, right, bottom = (round(edge) for edge in np.clip(box, 0, sides).tolist())
        is_empty = left >= right or top >= bottom
        if not self.is_inside:
            left, top, right, bottom = map(round, box.tolist())
            if max(right - left, bottom - top) > MAX_BOX:
                raise ImageError("DOES_NOT_FIT", f"{shown(box)} has a side of over {MAX_BOX:,} pixels")
        if is_empty or left >= right or top >= bottom:
            is_outside = box[0] >= width or box[1] >= height or box[2] <= 0 or box[3] <= 0
            what = f"lies outside the {height} x {width} pixels" if is_outside else "covers no whole pixel"
            what += ": its numbers are pixels, not shares of the sides" * bool(not is_outside and box.max() <= 1)
            raise ImageError("DOES_NOT_FIT", f"{shown(box)} {what}")
        return {"top": top, "left": left, "height": bottom - top, "width": right - left}

    def __str__(self) -> str:
        return f'take the box that "{self.input}" says'


@dataclass(frozen=True, kw_only=True)
class Flip:
    """A flip that an input enables per image.

    Attributes:
        key: Key of the op.
        input: Name of the input.
        axis: Axis, as in the plan's ``Flip``.
    """

    key: str
    input: str
    axis: Literal["horizontal", "vertical"]
    is_inside: ClassVar[bool] = True

    def __str__(self) -> str:
        return f'mirror, {self.axis}, where "{self.input}" says so'


@dataclass(frozen=True)
class Fill:
    """The color of all padding, which an input specifies.

    Attributes:
        input: Name of the input.
        channels: Number of values of the color, in the order of the tensor's channels.
    """

    input: str
    channels: int

    @property
    def key(self) -> str:
        """The input's name, which no op has."""
        return self.input


InputStep = Box | Flip | Requested
"""The steps of a geometry whose numbers come with the image."""


def is_given(step: object) -> bool:
    """Tell whether the numbers of a step come with the image."""
    return getattr(step, "input", None) is not None


class Drawing:
    """Random parameters and inputs for one image; each op draws once, whatever outputs depend on it.

    Args:
        numbers: Random numbers of the sample; or the parameters of each op, to repeat a draw.
        boxes: Boxes for ``random_iou_crop``, float32 (n, 4) xyxy in pixels of the image; None: the image has no boxes.
        row: Row of inputs for the image; None: an example: the whole image, not mirrored, with black padding.

    Attributes:
        draws: Parameters of each op that has drawn.
        kept: Boxes that the window of each ``random_iou_crop`` keeps, by the op's key.
    """

    def __init__(
        self,
        numbers: Numbers | Mapping[str, Words],
        boxes: npt.ArrayLike | None = None,
        row: Row | None = None,
    ) -> None:
        self._numbers = numbers
        self._boxes = boxes
        self._row = row
        self.draws: dict[str, Words] = {}
        self.kept: dict[str, npt.NDArray[np.bool_]] = {}

    def words(
        self,
        step: RandomStep | IouCrop | InputStep | Fill | Extern,
        rows: Span,
        columns: Span,
    ) -> Words:
        """Give a step its words; its canvas so far is ``rows`` x ``columns``."""
        if step.key in self.draws:
            return self.draws[step.key]
        boxes: F64 | None = None
        if isinstance(step, IouCrop) and self._boxes is not None:
            try:
                annotated = np.asarray(self._boxes, np.float64).reshape(-1, 4)
            except (TypeError, ValueError):
                raise ImageError("BAD_RECORD", '"boxes" are (n, 4) numbers') from None
            boxes = _on_canvas(annotated, rows, columns)
        if not isinstance(self._numbers, Numbers):
            if step.key not in self._numbers:
                raise PipelineError(f'no draw for "{step.key}"; there are {", ".join(self._numbers) or "none"}')
            words = self._numbers[step.key]
        elif is_given(step):
            words = self._input_words(cast("InputStep | Fill | Augment", step), rows, columns)
        else:
            words = cast("RandomStep", step).words(rows.canvas, columns.canvas, self._numbers, boxes)
        if boxes is not None:
            self.kept[step.key] = within(words, boxes)
        self.draws[step.key] = words
        return words

    def _input_words(self, step: InputStep | Fill | Augment, rows: Span, columns: Span) -> Words:
        """Words of a step that an input gives."""
        if isinstance(step, Requested):
            return {field: number.of(self._row) for field, number in step.numbers}
        assert step.input is not None
        numbers = None if self._row is None else self._row[step.input]
        if isinstance(step, Fill):
            return {"fill": [0] * step.channels if numbers is None else numbers.tolist()}
        if isinstance(step, Augment):
            return step.op.input_words(numbers, rows.canvas, columns.canvas)
        if isinstance(step, Flip):
            return {"flip": numbers is not None and bool(numbers[0])}
        box = None if numbers is None else _on_canvas(numbers.astype(np.float64)[None], rows, columns)[0]
        return step.words(rows.canvas, columns.canvas, box)


def _on_canvas(boxes: F64, rows: Span, columns: Span) -> F64:
    """Boxes of the image, float64 (n, 4) xyxy, on a canvas."""
    (scale_y, offset_y), (scale_x, offset_x) = rows.transform, columns.transform
    return moved(boxes, (scale_y, scale_x, offset_y, offset_x))
