"""Inputs: numbers that come with an image, their checks, and the steps of a plan that use them.

An input has one row of numbers per tensor. In a pipeline with boxes as inputs, a photo makes one tensor per box; in all
other pipelines it makes one tensor. A step whose numbers are inputs is placed like a step whose numbers are drawn (see
``Drawing``).
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
"""Kinds of NumPy dtypes that each dtype of an input accepts."""


Row = Mapping[str, npt.NDArray[Any]]
"""One row of each input by name: the numbers of one tensor."""


def check_inputs(specs: Mapping[str, InputSpec], inputs: Mapping[str, Sequence[Any]], count: int) -> None:
    """Reject inputs of a batch that do not match the pipeline or the number of images.

    Raises:
        PipelineError: An input is missing, the pipeline has no such input, or its number of images is wrong.
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
    """Return the message for missing inputs."""
    each = ", ".join(f'"{name}": [...]' for name in specs)
    forms = ", ".join(f'"{name}" as {spec}' for name, spec in specs.items())
    return f"the pipeline takes {forms} with each image: give inputs={{{each}}}"


def rows(specs: Mapping[str, InputSpec], values: Mapping[str, Any], *, most: int | None) -> list[Row | ImageError]:
    """Return the numbers of an image's tensors, one row per tensor.

    Args:
        specs: Specs of the inputs, at least one.
        values: Values of each input: numbers (rows, count), or a single row.
        most: Maximum number of rows of the image; None: Each input has exactly one.

    Returns:
        For each row its numbers, or the error that prevents its tensor.

    Raises:
        ImageError: EMPTY, BAD_INPUT: The whole image does not make a tensor.
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
    """Return the values as (rows, count) of the input's dtype.

    Values out of its range become infinite or are rejected.

    Raises:
        ImageError: BAD_INPUT: The values do not match the spec.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # the lists have different lengths
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
    with np.errstate(over="ignore"):  # infinite values are rejected in their row
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
    """Return the beginning of an error about one row of an input: ``"boxes" 3 of 5: ``."""
    return f'"{name}" {index + 1:,} of {count:,}: '


def shown(numbers: npt.NDArray[Any]) -> str:
    """Return the numbers of a row as text for an error."""
    return ", ".join(f"{number:.6g}" for number in numbers.tolist())


MAX_BOX = 1 << 16
"""Maximum side in pixels of a box that is padded where it extends beyond the image."""
MAX_COUNT = 16
"""Maximum number of values in a row of an input."""
_REFERENCE = re.compile(r"(?P<name>[^\[\]]*)(?:\[(?P<index>[0-9]{1,2})\])?")


class Number(NamedTuple):
    """One number of an input.

    Attributes:
        input: Name of the input.
        place: Index in the row.
        bound: Limits of the number.
    """

    input: str
    place: int
    bound: Bound

    @property
    def spec(self) -> InputSpec:
        """Spec of the input, as far as this number determines it."""
        count = self.place + 1
        return InputSpec(name=self.input, kind="number", count=count, bounds=(*[Bound()] * self.place, self.bound))

    def of(self, row: Row | None) -> float:
        """Return the number of an image's row, or the example if the row is None.

        It is an integer if its limits require one.
        """
        number = self.bound.example if row is None else row[self.input][self.place].item()
        return int(number) if self.bound.is_whole else float(number)

    def __str__(self) -> str:
        return f'"{self.input}"' if self.place == 0 else f'"{self.input}[{self.place}]"'


def number(reference: str, bound: Bound = Bound()) -> Number:  # noqa: B008  (it is a tuple)
    """Return the number that a field names: ``name`` is the first number of an input, and ``name[1]`` the second.

    Raises:
        PipelineError: The reference is invalid.
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
        """Name of the first input."""
        return self.numbers[0][1].input

    @property
    def is_inside(self) -> bool:
        """Tell whether the window must be entirely inside the image."""
        return self.window is None or self.window.beyond == "refuse_smaller"

    def of(self, words: Words) -> Any:
        """Return the window of one image."""
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
        is_inside: Whether a box that extends beyond the image is clipped; if False, it is padded.
    """

    key: str
    input: str
    is_inside: bool = True
    axis: ClassVar[None] = None

    def words(self, height: int, width: int, box: F64 | None) -> Words:
        """Return the integer pixels of a box; its edges are rounded half to even, as in Pillow's ``Image.crop``.

        Args:
            height: Height of the canvas.
            width: Width of the canvas.
            box: Box in pixels of the canvas, float64 (4,): left, top, right, bottom; None: The whole canvas.

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
        """Key of the step: the name of the input, which differs from the keys of all ops."""
        return self.input


InputStep = Box | Flip | Requested
"""Steps of a geometry whose numbers are inputs."""


def is_given(step: object) -> bool:
    """Tell whether the numbers of a step are inputs."""
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
        """Return the parameters of a step, whose canvas so far is ``rows`` x ``columns``."""
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
        """Return the parameters of a step from its input."""
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
    """Return boxes of the image, float64 (n, 4) xyxy, in pixels of a canvas."""
    (scale_y, offset_y), (scale_x, offset_x) = rows.transform, columns.transform
    return moved(boxes, (scale_y, scale_x, offset_y, offset_x))
