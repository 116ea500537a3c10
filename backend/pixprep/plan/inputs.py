"""Validates per-image inputs, which are numbers that are passed with each image, and defines the steps that use them.

An input has one row of numbers per tensor. An image is usually converted to a single tensor. If boxes are an input of
the pipeline, an image is converted to one tensor per box. A step that reads its numbers from an input is handled like a
step with random parameters (see ``Drawing``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError, PixprepError
from pixprep.plan.boxes import checked
from pixprep.plan.canvas_steps import Draws, GeometryStep
from pixprep.plan.draws.augments import Augment, RandomStep, Seen
from pixprep.plan.draws.philox import F64, Numbers, Words
from pixprep.plan.placement import Span, moved
from pixprep.plan.steps.operators import Extern
from pixprep.spec import Bound, InputSpec

_KINDS = {"float32": "fiu", "float64": "fiu", "bool": "biu", "uint8": "iu"}
"""NumPy dtype kinds that are accepted for each dtype of an input."""


Row = Mapping[str, npt.NDArray[Any]]
"""Numbers of all inputs for one tensor: one row of each input, by the name of the input."""


def check_inputs(specs: Mapping[str, InputSpec], inputs: Mapping[str, Sequence[Any]], count: int) -> None:
    """Check that the inputs of a batch match the pipeline and the number of images.

    Args:
        specs: Inputs of the pipeline.
        inputs: Values of each input, with one element per image.
        count: Number of images in the batch.

    Raises:
        PipelineError: An input is missing, the pipeline has no input of this name, or an input does not have one
            element per image.
    """
    if not isinstance(inputs, Mapping):
        raise PipelineError('inputs must be a mapping by name, such as {"boxes": [[[left, top, right, bottom]]]}')
    for name in inputs:
        if name not in specs:
            known = ", ".join(specs) or "none"
            raise PipelineError(f'inputs: the pipeline has no input "{name}"; its inputs are: {known}')
    if missing := [name for name in specs if name not in inputs]:
        raise PipelineError(f'inputs: "{missing[0]}" is missing: {needed(specs)}')
    for name, each in inputs.items():
        if isinstance(each, str | bytes) or not hasattr(each, "__len__") or len(each) != count:
            found = f"{len(each)} elements" if hasattr(each, "__len__") else type(each).__name__
            raise PipelineError(
                f'inputs: "{name}" must be a list with one element per image ({count}), not {found}: an element is '
                "the row of an image, or the list of its rows"
            )


def needed(specs: Mapping[str, InputSpec]) -> str:
    """Return the error message for a call without the pipeline's inputs."""
    each = ", ".join(f'"{name}": [...]' for name in specs)
    forms = ", ".join(f'"{name}" as {spec}' for name, spec in specs.items())
    return f"the pipeline requires {forms} for each image: pass inputs={{{each}}}"


def rows(specs: Mapping[str, InputSpec], values: Mapping[str, Any], *, most: int | None) -> list[Row | ImageError]:
    """Convert the inputs of one image to rows, with one row for each tensor.

    Args:
        specs: Inputs of the pipeline, at least one.
        values: Values of each input, either (rows, count) or a single row.
        most: Maximum number of rows. None means that each input must have exactly one row.

    Returns:
        For each row, its numbers, or an error if they are invalid.

    Raises:
        ImageError: EMPTY, BAD_INPUT: The inputs are invalid, so the image cannot be converted to any tensor.
    """
    arrays = {name: _array(spec, values[name]) for name, spec in specs.items()}
    counts = {name: len(array) for name, array in arrays.items()}
    first, count = next(iter(counts.items()))
    for name, other in counts.items():
        if most is None and other != 1:
            raise ImageError("BAD_INPUT", f'"{name}" must have one row per image, not {other:,}')
        if other != count:
            raise ImageError("BAD_INPUT", f'"{name}" must have as many rows as "{first}" ({count:,}), not {other:,}')
    if count == 0:
        raise ImageError("EMPTY", f'"{first}" has no rows, so the image has no tensors (parameter no_rows)')
    if most is not None and count > most:
        raise ImageError("BAD_INPUT", f'{count:,} rows of "{first}"; the limit is {most:,} (parameter max_boxes)')
    return [_row(specs, arrays, index, count) for index in range(count)]


def _array(spec: InputSpec, values: Any) -> npt.NDArray[Any]:
    """Convert the values of an input to an array (rows, count) of its dtype.

    Values beyond the range of float32 become infinite.

    Raises:
        ImageError: BAD_INPUT: The shape or the dtype of the values does not match the spec, or a colour or a flag is
            out of range.
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
        form = f"{array.dtype} {list(array.shape)}" if array.dtype != object else "an array of objects"
        raise ImageError("BAD_INPUT", f'"{spec.name}" must be {spec}, not {form}')
    limit = {"color": 255, "flag": 1}.get(spec.kind)
    if limit and array.size and not 0 <= array.min() <= array.max() <= limit:
        what = "pixel values" if spec.kind == "color" else "flags"
        raise ImageError(
            "BAD_INPUT", f'"{spec.name}" must be {what} from 0 to {limit}, not {array.min()} to {array.max()}'
        )
    with np.errstate(over="ignore"):  # `_row` rejects infinite values
        return array.astype(spec.dtype, copy=False)


def _row(specs: Mapping[str, InputSpec], arrays: Row, index: int, count: int) -> Row | ImageError:
    for name, spec in specs.items():
        numbers = arrays[name][index]
        where = named(name, index, count)
        if spec.dtype.startswith("float") and not np.isfinite(numbers).all():
            return ImageError("BAD_INPUT", f"{where}all numbers must be finite, not {shown(numbers)}")
        if spec.kind == "box" and not (numbers[:2] < numbers[2:]).all():
            what = "must be left, top, right, bottom with left < right and top < bottom"
            return ImageError("BAD_INPUT", f"{where}{what}, not {shown(numbers)}")
        for number, bound in zip(numbers.tolist(), spec.limits, strict=True):
            if not bound.holds(number):
                row = f"{shown(numbers)}: " * (spec.count > 1)
                return ImageError("BAD_INPUT", f"{where}{row}{number:.10g} must be {bound}")
    return {name: array[index] for name, array in arrays.items()}


def named(name: str, index: int, count: int) -> str:
    """Return the prefix of an error message about one row of an input, such as ``"boxes", row 3 of 5: ``."""
    return f'"{name}", row {index + 1:,} of {count:,}: '


def shown(numbers: npt.NDArray[Any]) -> str:
    """Format the numbers of a row for an error message."""
    return ", ".join(f"{number:.6g}" for number in numbers.tolist())


MAX_BOX = 1 << 16
"""Maximum width and height in pixels of a box, if boxes may extend beyond the image. The area outside is padded."""
MAX_COUNT = 16
"""Maximum number of values per row of an input."""
_REFERENCE = re.compile(r"(?P<name>[^\[\]]*)(?:\[(?P<index>[0-9]{1,2})\])?")


class Number(NamedTuple):
    """Reference to one number in the rows of an input.

    Attributes:
        input: Name of the input.
        place: Index of the number within a row.
        bound: Limits of the number.
    """

    input: str
    place: int
    bound: Bound

    @property
    def spec(self) -> InputSpec:
        """Spec of an input whose last number is this one."""
        count = self.place + 1
        return InputSpec(name=self.input, kind="number", count=count, bounds=(*[Bound()] * self.place, self.bound))

    def of(self, row: Row | None) -> float:
        """Return the number from a row, or the example value of the number if the row is None.

        The result is an int if the limits of the number require an integer, and a float in all other cases.
        """
        number = self.bound.example if row is None else row[self.input][self.place].item()
        return int(number) if self.bound.is_whole else float(number)

    def __str__(self) -> str:
        return f'"{self.input}"' if self.place == 0 else f'"{self.input}[{self.place}]"'


def number(reference: str, bound: Bound = Bound()) -> Number:  # noqa: B008  (a Bound is immutable)
    """Parse a reference to a number: ``name`` is the first number of an input, and ``name[1]`` is the second.

    Raises:
        PipelineError: The reference is invalid.
    """
    match = _REFERENCE.fullmatch(reference)
    index = int(match["index"] or 0) if match else MAX_COUNT
    if match is None or index >= MAX_COUNT:
        raise PipelineError(
            f'an input must be written as "name", or as "name[1]" for its second number (up to [{MAX_COUNT - 1}]), '
            f'not as "{reference[:40]}"'
        )
    return Number(match["name"], index, bound)


@dataclass(frozen=True, kw_only=True)
class Requested(GeometryStep):
    """Window, or size of a resize, with fields that are read from inputs.

    Attributes:
        key: Key of the op.
        numbers: Pairs (name of a field, number that replaces the field's value).
        window: ``Window`` whose fields are set. None means that the fields of a ``Resize`` are set, whose attribute
            ``drawn`` is this object.
    """

    key: str
    numbers: tuple[tuple[str, Number], ...]
    window: Any = None

    @property
    def input(self) -> str:
        """Name of the input that the first field is read from."""
        return self.numbers[0][1].input

    @property
    def is_inside(self) -> bool:
        """Whether the window must be entirely inside the image."""
        return self.window is None or self.window.beyond == "refuse_smaller"

    def apply(self, rows: Span, columns: Span, drawing: Draws) -> None:
        """See ``GeometryStep``."""
        replace(self.window, **drawing.words(self, rows, columns)).apply(rows, columns, drawing)

    def given(self, row: Row | None, rows: Span, columns: Span) -> Words:
        """See ``Box``."""
        del rows, columns
        return {field: number.of(row) for field, number in self.numbers}

    def __str__(self) -> str:
        fields = ", ".join(f"{field} {number}" for field, number in self.numbers)
        return f"crop or pad to a window with {fields}" if self.window else fields


@dataclass(frozen=True, kw_only=True)
class Box(GeometryStep):
    """Crop to a box that is read from an input.

    Attributes:
        key: Key of the op.
        input: Name of the input that contains the box.
        is_inside: Whether a box that extends beyond the image is clipped to the image. If False, the crop is padded.
    """

    key: str
    input: str
    is_inside: bool = True
    late: ClassVar[str] = "because its boxes refer to the decoded image"

    def given(self, row: Row | None, rows: Span, columns: Span) -> Words:
        """Return the parameters that the step's input specifies for an image.

        Args:
            row: Row of each input. None means an example.
            rows: Vertical axis of the canvas before the step.
            columns: Horizontal axis of the canvas before the step.

        Raises:
            ImageError: BAD_INPUT, DOES_NOT_FIT: The row is invalid, or it is not valid for a canvas of this size.
        """
        box = None if row is None else _on_canvas(row[self.input].astype(np.float64)[None], rows, columns)[0]
        return self.words(rows.canvas, columns.canvas, box)

    def words(self, height: int, width: int, box: F64 | None) -> Words:
        """Return the window of a box in integer pixels.

        The edges are rounded half to even, as in Pillow's ``Image.crop``.

        Args:
            height: Height of the canvas (the image after earlier steps).
            width: Width of the canvas.
            box: Box (left, top, right, bottom) in pixels of the canvas, float64 (4,). None means the whole canvas.

        Raises:
            ImageError: DOES_NOT_FIT: The box does not contain a pixel of the canvas, or it is too large.
        """
        if box is None:
            return {"top": 0, "left": 0, "height": height, "width": width}
        sides = (width, height, width, height)
        left, top, right, bottom = (round(edge) for edge in np.clip(box, 0, sides).tolist())
        is_empty = left >= right or top >= bottom
        if not self.is_inside:
            left, top, right, bottom = map(round, box.tolist())
            if max(right - left, bottom - top) > MAX_BOX:
                raise ImageError("DOES_NOT_FIT", f"{shown(box)} is more than {MAX_BOX:,} pixels wide or high")
        if is_empty or left >= right or top >= bottom:
            is_outside = box[0] >= width or box[1] >= height or box[2] <= 0 or box[3] <= 0
            what = f"is outside the image of {height} x {width} pixels" if is_outside else "does not contain a pixel"
            what += ": pass coordinates in pixels, not normalized ones" * bool(not is_outside and box.max() <= 1)
            raise ImageError("DOES_NOT_FIT", f"{shown(box)} {what}")
        return {"top": top, "left": left, "height": bottom - top, "width": right - left}

    def __str__(self) -> str:
        return f'crop to the box of the input "{self.input}"'


@dataclass(frozen=True, kw_only=True)
class Flip(GeometryStep):
    """Flip that is applied if an input is true.

    Attributes:
        key: Key of the op.
        input: Name of the input, which contains one boolean per image.
        axis: Direction of the flip, as in ``geometry_steps.Flip``.
    """

    key: str
    input: str
    axis: Literal["horizontal", "vertical"] = "horizontal"

    def given(self, row: Row | None, rows: Span, columns: Span) -> Words:
        """See ``Box``."""
        del rows, columns
        return {"flip": row is not None and bool(row[self.input][0])}

    def __str__(self) -> str:
        return f'flip {self.axis}ly if the input "{self.input}" is true'


@dataclass(frozen=True)
class Fill:
    """Fill color of all padding, which is read from an input.

    Attributes:
        input: Name of the input.
        channels: Number of values in the color. The values are in the order of the tensor's channels.
    """

    input: str
    channels: int

    @property
    def key(self) -> str:
        """Key of the step, which is the name of the input. This name differs from the keys of all ops."""
        return self.input

    def given(self, row: Row | None, rows: Span, columns: Span) -> Words:
        """See ``Box``."""
        del rows, columns
        return {"fill": [0] * self.channels if row is None else row[self.input].tolist()}


InputStep = Box | Flip | Requested
"""Steps of a geometry that read their numbers from inputs."""


def is_given(step: object) -> bool:
    """Return whether a step reads its numbers from an input."""
    return getattr(step, "input", None) is not None


class Drawing:
    """Determines the parameters of the steps for one image, from random numbers and from inputs.

    The parameters of each op are sampled only once, even if several outputs depend on the op.

    Args:
        numbers: Random numbers of the sample, or the recorded parameters of each op, by its key.
        annotation: Fields of the sample by name, for ops that depend on them: ``boxes``, (n, 4) xyxy, and ``points``,
            both in pixels of the image. None means an example without annotations.
        row: One row of each input. None means example values, such as a box of the whole image, a flag that is false,
            and black padding.
        mask: Function that returns the labels of the sample on a canvas; see ``plan.Mask``.
        frames: Number of frames of the clip, or 1 for an image.

    Attributes:
        draws: Parameters that have been sampled so far, by the key of the op.
        kept: Mask of the boxes that each op that removes boxes keeps, bool (n,), by the key of the op.
        labels: Function that returns the labels of the pixels at the next step; ``Geometry.place`` sets it for steps
            that depend on the mask of the sample.
    """

    def __init__(
        self,
        numbers: Numbers | Mapping[str, Words],
        annotation: Mapping[str, Any] | None = None,
        row: Row | None = None,
        mask: Callable[..., npt.NDArray[Any]] | None = None,
        frames: int = 1,
    ) -> None:
        self.frames = frames
        self._numbers = numbers
        self._annotation = annotation
        self.mask = mask
        self.labels: Callable[[], npt.NDArray[Any]] | None = None
        self._row = row
        self.draws: dict[str, Words] = {}
        self.kept: dict[str, npt.NDArray[np.bool_]] = {}

    def words(
        self,
        step: RandomStep | InputStep | Fill | Extern,
        rows: Span,
        columns: Span,
    ) -> Words:
        """Return the parameters of a step, which are sampled in the first call with the step's key.

        Args:
            step: Step with random parameters, or with numbers that are inputs.
            rows: Vertical axis of the canvas before the step.
            columns: Horizontal axis of the canvas before the step.

        Raises:
            PipelineError: The recorded parameters lack this op.
            ImageError: BAD_RECORD, BAD_INPUT, DOES_NOT_FIT: The annotated boxes or the inputs are invalid.
        """
        if step.key in self.draws:
            return self.draws[step.key]
        fields: Sequence[str] = getattr(step, "sees", ())
        seen = self._seen(fields, rows, columns) if fields else None
        if not isinstance(self._numbers, Numbers):
            if step.key not in self._numbers:
                known = ", ".join(self._numbers) or "none"
                raise PipelineError(f'the recorded parameters lack the op "{step.key}"; they contain: {known}')
            words = self._numbers[step.key]
        elif is_given(step):
            words = cast("InputStep | Fill | Augment", step).given(self._row, rows, columns)
        else:
            words = cast("RandomStep", step).words(rows.canvas, columns.canvas, self._numbers, seen)
        if seen is not None and seen.boxes is not None:
            kept = cast("RandomStep", step).op.keeps(words, seen.boxes)
            if kept is not None:
                self.kept[step.key] = kept
        self.draws[step.key] = words
        return words

    def _seen(self, fields: Sequence[str], rows: Span, columns: Span) -> Seen | None:
        """Return these fields of the sample in pixels of the canvas, or None for an example.

        Raises:
            ImageError: BAD_RECORD: A field is not an array of numbers of its shape.
        """
        if self._annotation is None:
            return None
        found = {name: self._annotation.get(name) for name in fields if name != "mask"}
        boxes, points = (_numbers(name, found.get(name), last) for name, last in (("boxes", 4), ("points", 2)))
        visible = self._annotation.get("visible") if "points" in found else None
        if points is not None:
            (scale_y, offset_y), (scale_x, offset_x) = rows.transform, columns.transform
            points = points * (scale_x, scale_y) + (offset_x, offset_y)
        return Seen(
            None if boxes is None else _on_canvas(boxes, rows, columns),
            points,
            None if visible is None else np.asarray(visible),
            self.labels,
        )


def _numbers(name: str, values: Any, last: int) -> F64 | None:
    """Return boxes, float64 (n, 4), or points, float64 (n, ..., 2), or None if the sample does not have them.

    Raises:
        ImageError: BAD_RECORD: The values do not have this shape.
    """
    if values is None:
        return None
    try:
        array = checked(name, values, last)
    except (TypeError, ValueError, PixprepError):
        shape = "(n, 4)" if name == "boxes" else "(n, 2) or (n, k, 2)"
        raise ImageError("BAD_RECORD", f'"{name}" must be an array of numbers with the shape {shape}') from None
    return array.reshape(-1, 4) if name == "boxes" else array


def _on_canvas(boxes: F64, rows: Span, columns: Span) -> F64:
    """Convert boxes, float64 (n, 4) xyxy, from pixel coordinates of the image to pixel coordinates of the canvas."""
    (scale_y, offset_y), (scale_x, offset_x) = rows.transform, columns.transform
    return moved(boxes, (scale_y, scale_x, offset_y, offset_x))
