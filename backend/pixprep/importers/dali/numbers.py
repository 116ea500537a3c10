"""Converts DALI operators that compute numbers: shapes of images, constants, arithmetic, and affine matrices.

The results have the same types as in DALI: float32 if one operand is float32, and also for a division of integers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError
from pixprep.importers.dali.sizes import UNKNOWN, current_sizes, lowered
from pixprep.importers.dali.values import TYPES, Encoded, Image, Numbers, Value, common_sources, constant, size_of
from pixprep.importers.fields import Fields, finite
from pixprep.plan.profiles.dali import glibc_sine

Array = npt.NDArray[Any]
_EXPRESSION = re.compile(r"(?P<name>\w+)\((?P<operands>[&$\w: ]*)\)")
_OPERAND = re.compile(r"(?P<kind>[&$])(?P<index>[0-9])(?::(?P<type>int32|float32))?")
_LAST_ROW = np.array([[[0, 0, 1]]], np.float32)  # last row of every affine matrix
MAX_NUMBERS = 64
"""Maximum number of values in a constant."""


def expression(inputs: Sequence[Value], fields: Fields) -> tuple[str, tuple[Value, ...]]:
    """Return the function and the operands of an ``expression_desc`` such as ``sub($0:int32 &0)``.

    ``&0`` is the first input, and ``$0`` is the first constant.
    """
    match = _EXPRESSION.fullmatch(fields.text("expression_desc"))
    constants = {
        "int32": (finite(fields.take("integer_constants", [])), "int32"),
        "float32": (finite(fields.take("real_constants", [])), "float32"),
    }
    operands: list[Value] = []
    for text in match["operands"].split() if match else ():
        operand = _OPERAND.fullmatch(text)
        if operand is None:
            fields.refuse("expression_desc")
        index = int(operand["index"])
        found: Sequence[Any] = inputs
        if operand["kind"] == "$":
            numbers, dtype = constants[operand["type"] or "int32"]
            found = [constant(number, dtype) for number in numbers]
        if index >= len(found):
            fields.refuse("expression_desc", "refers to an operand that does not exist")
        operands.append(found[index])
    if match is None or not operands:
        fields.refuse("expression_desc")
    return match["name"], tuple(operands)


def _divide(a: Array, b: Array) -> Array:
    """Compute ``//``. Quotients of integers are rounded towards zero, and quotients of floats are not rounded."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    return np.asarray(np.trunc(np.divide(a, b, dtype=np.float64)), a.dtype)


_BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "fdiv": np.divide,
    "div": _divide,
    "min": np.minimum,
    "max": np.maximum,
}
_UNARY: Mapping[str, Callable[[Array], Array]] = {
    "plus": np.positive,
    "minus": np.negative,
    "abs": np.abs,
    "fabs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "sqrt": np.sqrt,
}
_COMPARISONS = ("eq", "neq", "lt", "leq", "gt", "geq", "bitand", "bitor", "bitxor")
_FLOAT_RESULTS = ("fdiv", "fabs", "floor", "ceil", "sqrt")


def _arithmetic(inputs: Sequence[Value], fields: Fields) -> Numbers:
    name, operands = expression(inputs, fields)
    numbers = [operand for operand in operands if isinstance(operand, Numbers)]
    table: Mapping[str, Callable[..., Array]] = _UNARY if len(operands) == 1 else _BINARY
    if name in _COMPARISONS:
        fields.refuse(
            "expression_desc", "compares numbers, which is not supported: serialize a graph with a single branch"
        )
    if name not in table or len(numbers) < len(operands) or len(operands) > 2:
        fields.refuse("expression_desc", f"is not supported; supported functions: {', '.join({**_BINARY, **_UNARY})}")
    dtype = _result_type([number.values.dtype for number in numbers])
    if name in _FLOAT_RESULTS and dtype.kind != "f":
        dtype = np.dtype("float32")
    rank = max(number.values.ndim for number in numbers)
    arrays = [
        number.values.astype(dtype).reshape(
            len(number.values), *(1,) * (rank - number.values.ndim), *number.values.shape[1:]
        )
        for number in numbers
    ]
    with np.errstate(all="ignore"):
        return Numbers(np.asarray(table[name](*arrays), dtype), common_sources(*numbers))


def _result_type(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the dtype of a result in DALI: the largest float type, or the largest integer type without floats."""
    floats = [dtype for dtype in dtypes if dtype.kind == "f"]
    return max(floats or dtypes, key=lambda dtype: dtype.itemsize)


# Sources of numbers


def _peek_image_shape(inputs: Sequence[Value], fields: Fields) -> Numbers:
    """Convert ``peek_image_shape``: height, width, and number of channels, which is ``UNKNOWN``."""
    (encoded,) = inputs
    if not isinstance(encoded, Encoded):
        raise PipelineError("is supported only for an encoded image")
    applies_exif = fields.flag("adjust_orientation", default=True)
    fields.expect("image_type", 0, 1, 2)
    shape = np.stack([*current_sizes().T, np.full(len(current_sizes()), UNKNOWN)]).T
    return _cast(Numbers(shape, frozenset({(encoded.name, applies_exif)})), fields, 7)


def shape_of(image: Image, fields: Fields) -> Numbers:
    """Convert ``shapes``: height, width and number of channels, in the order of the image's layout."""
    spec = lowered(image.chain)[1]
    size = size_of(image) if None in (spec.height, spec.width) else constant([spec.height, spec.width], "int64")
    channels = np.full((len(size.values), 1), image.channels)
    sides = [size.values, channels] if image.layout == "hwc" else [channels, size.values]
    return _cast(Numbers(np.concatenate(sides, axis=1), size.sources), fields, 7)


def _constant(inputs: Sequence[Value], fields: Fields) -> Numbers:
    del inputs
    floats, integers = fields.take("fdata"), fields.take("idata")
    data = finite(floats if floats is not None else integers)
    shape = tuple(int(side) for side in finite(fields.take("shape", [])))
    fields.ignore("layout")
    if not 0 < len(data) <= MAX_NUMBERS or (shape and np.prod(shape) != len(data)):
        raise PipelineError(f"is supported only for 1 to {MAX_NUMBERS} finite numbers")
    dtype = fields.choice("dtype", TYPES, 9 if floats is not None else 6)
    return constant(np.array(data).reshape(shape or len(data)), dtype)


def rounded(values: Array) -> Array:
    """Round to the nearest integer, with ties away from zero."""
    return np.copysign(np.floor(np.abs(values) + 0.5), values)


def _cast(numbers: Numbers, fields: Fields, default: int | None = None, argument: str = "dtype") -> Numbers:
    """Cast numbers to the dtype that an argument specifies. Floats are rounded to integers, as in DALI."""
    if default is None and not fields.has(argument):
        return numbers
    dtype, values = fields.choice(argument, TYPES, default), numbers.values
    if values.dtype.kind == "f" and np.dtype(dtype).kind != "f":
        values = rounded(values.astype(np.float64))
    with np.errstate(all="ignore"):
        return Numbers(values.astype(dtype), numbers.sources)


# Operators on numbers


def _numbers_only(inputs: Sequence[Value]) -> list[Numbers]:
    numbers = [value for value in inputs if isinstance(value, Numbers)]
    if not numbers or len(numbers) < len(inputs):
        raise PipelineError("is supported only for tensors of numbers, such as constants and the shapes of images")
    return numbers


def _concatenate(inputs: Sequence[Value], fields: Fields, *, is_stack: bool) -> Numbers:
    fields.expect("axis", 0)
    fields.ignore("axis_name")
    numbers = _numbers_only(inputs)
    count = max(len(number.values) for number in numbers)
    arrays = [np.broadcast_to(number.values, (count, *number.values.shape[1:])) for number in numbers]
    if not is_stack:
        arrays = [array.reshape(count, -1) if array.ndim == 1 else array for array in arrays]
    if len({array.shape[1:] if is_stack else array.shape[2:] for array in arrays}) > 1:
        raise PipelineError("its inputs have different shapes")
    dtype = _result_type([array.dtype for array in arrays])
    joined = np.stack(arrays, axis=1) if is_stack else np.concatenate(arrays, axis=1)
    return Numbers(joined.astype(dtype), common_sources(*numbers))


def _slice(inputs: Sequence[Value], fields: Fields) -> Numbers:
    """Convert ``slice`` of a list of numbers, with a constant start and length."""
    numbers, *window = _numbers_only(inputs)
    fields.expect("axes", [0])
    for name in ("normalized_anchor", "normalized_shape"):
        fields.expect(name, bool(window) and are_fractions(window[0]))
    start, length = (
        [as_integer(value.plain) for value in window]
        if len(window) == 2
        else (as_integer(fields.take("start", 0)), as_integer(fields.take("shape", -1)))
    )
    if numbers.values.ndim != 2 or start is None or length is None or length < 1:
        raise PipelineError("is supported only for a list of numbers, with a constant start and a constant shape")
    if not 0 <= start < start + length <= numbers.values.shape[1]:
        raise PipelineError(
            f"selects {length} numbers from index {start}, but its input has only {numbers.values.shape[1]}"
        )
    return _cast(Numbers(numbers.values[:, start : start + length], numbers.sources), fields)


def are_fractions(start: Value) -> bool:
    """Return whether the start and the shape of a slice are fractions of the image by default.

    The default applies if no argument specifies the unit. As in DALI, they are fractions if they are floating-point
    tensors. An input whose type the graph does not specify is treated as float32, which is also the default in a model
    configuration.
    """
    if isinstance(start, Encoded):
        return (start.cast or start.dtype or "float32").startswith("float")
    return isinstance(start, Numbers) and start.values.dtype.kind == "f"


def as_integer(value: Any) -> int | None:
    """Return a number, or the only number of a list, as an int. Return None if it is not a single integer."""
    numbers = finite(value)
    return int(numbers[0]) if len(numbers) == 1 and numbers[0].is_integer() else None


def subscripts(fields: Fields) -> list[int | slice]:
    """Return the subscripts of an expression such as ``x[0]`` or ``x[1:3]``, one for each axis."""
    found: list[int | slice] = []
    for axis in range(int(fields.number("num_subscripts"))):
        names = [f"{name}_{axis}" for name in ("at", "lo", "hi", "step")]
        at, low, high, step = (None if fields.take(name) is None else as_integer(fields.take(name)) for name in names)
        for name, value in zip(names, (at, low, high, step), strict=True):
            if fields.has(name) and value is None:
                fields.refuse(name, "must be a constant integer")
        found.append(slice(low, high, step) if at is None else at)
    return found


def _subscript(inputs: Sequence[Value], fields: Fields) -> Numbers:
    (numbers,) = _numbers_only(inputs)
    where = subscripts(fields)
    if len(where) >= numbers.values.ndim:
        raise PipelineError(f"has {len(where)} subscripts, but its input has only {numbers.values.ndim - 1} axes")
    try:
        return Numbers(numbers.values[(slice(None), *where)], numbers.sources)
    except IndexError:
        raise PipelineError(
            f"has a subscript that exceeds the {numbers.values.shape[1]} numbers of its input"
        ) from None


def _reduction(of: Callable[..., Array]) -> Callable[[Sequence[Value], Fields], Numbers]:
    def apply(inputs: Sequence[Value], fields: Fields) -> Numbers:
        (numbers,) = _numbers_only(inputs)
        fields.expect("axes", [0])
        values = numbers.values.reshape(len(numbers.values), -1)
        is_kept = fields.flag("keep_dims")
        return Numbers(of(values, axis=1, keepdims=is_kept), numbers.sources)

    return apply


def _reshape(inputs: Sequence[Value], fields: Fields, reshaped: Callable[..., Array] = np.squeeze) -> Numbers:
    """Convert an operator that changes only the shape of a tensor: ``expand_dims``, ``squeeze`` or ``reshape``."""
    (numbers,) = _numbers_only(inputs)
    axes, shape = (tuple(int(side) for side in finite(fields.take(name, []))) for name in ("axes", "shape"))
    fields.ignore("layout", "new_axis_names")
    values = numbers.values
    try:
        if shape:
            values = values.reshape(len(values), *shape)
        elif axes:
            values = reshaped(values, tuple(axis + 1 for axis in axes))
    except ValueError as error:
        raise PipelineError(str(error)) from None
    return Numbers(values, numbers.sources)


# Affine matrices


def _combine(inputs: Sequence[Value], fields: Fields) -> Numbers:
    """Convert ``transforms.combine``, the product of float32 matrices of shape (2, 3).

    The first matrix is applied first.
    """
    numbers = _numbers_only(inputs)
    if any(number.values.shape[1:] != (2, 3) or number.values.dtype != np.float32 for number in numbers):
        raise PipelineError("is supported only for float32 matrices with 2 rows of 3 numbers")
    matrix, *others = [number.values for number in numbers][:: -1 if fields.flag("reverse_order") else 1]
    for other in others:  # the terms are added in the same order as in DALI
        x, y, one = (other[:, :, at, None] * row for at, row in enumerate((matrix[:, :1], matrix[:, 1:], _LAST_ROW)))
        matrix = x + y + one
    return Numbers(matrix, common_sources(*numbers))


def _transform(
    inputs: Sequence[Value], fields: Fields, cells: Callable[..., Sequence[Any]], **defaults: Any
) -> Numbers:
    """Convert an operator of ``transforms``, which appends a matrix to the matrix of its optional input.

    Args:
        inputs: Matrix that is applied before. Can be empty.
        fields: Arguments of the operator.
        cells: Function that returns the six values of the matrix, row by row, from the values of the arguments. Each
            value is a pair (x, y).
        defaults: Names of the operator's arguments, with their defaults.
    """
    fields.expect("ndim", 2)
    values = [fields.take(name, default) for name, default in defaults.items()]
    numbers = [value if isinstance(value, Numbers) else constant(finite(value), "float32") for value in values]
    for name, number in zip(defaults, numbers, strict=True):
        if number.values[0].size not in (1, 2):
            fields.refuse(name, "must be one finite number, or two numbers for x and y")
    arrays = [number.values.reshape(len(number.values), -1).astype(np.float32) for number in numbers]
    with np.errstate(all="ignore"):
        rows = cells(*(np.broadcast_to(array, (len(array), 2)).T for array in arrays))
    matrix = np.stack(np.broadcast_arrays(*rows), axis=-1).reshape(-1, 2, 3).astype(np.float32)
    return _combine([*inputs, Numbers(matrix, common_sources(*numbers))], fields)


def _scale_and_shift(scale: Any, shift: Any) -> Sequence[Any]:
    return scale[0], 0, shift[0], 0, scale[1], shift[1]


def _around_center(rows: Any, center: Array) -> Sequence[Any]:
    """Return the six values of an affine matrix with these 2 x 2 values that maps ``center`` to itself."""
    (a, b), (c, d) = rows
    x, y = center
    return a, b, a * -x + b * -y + x, c, d, c * -x + d * -y + y


def _trigonometric(function: Callable[[Array], Array], degrees: Array) -> Array:
    """Apply a trigonometric function to an angle in degrees, which is converted to radians in float32, as in DALI."""
    return function((degrees * np.float32(np.pi / 180)).astype(np.float64)).astype(np.float32)


def _rotation(angle: Array, center: Array) -> Sequence[Any]:
    radians = (angle[0] * np.float32(np.pi / 180)).tolist()
    sine, cosine = (np.array([glibc_sine(angle, quarters=n) for angle in radians]) for n in (0, 1))
    return _around_center(((cosine, -sine), (sine, cosine)), center)


def _shear(inputs: Sequence[Value], fields: Fields) -> Numbers:
    is_angle = fields.has("angles")

    def cells(shear: Array, center: Array) -> Sequence[Any]:
        x, y = _trigonometric(np.tan, shear) if is_angle else shear
        return _around_center(((1, x), (y, 1)), center)

    return _transform(inputs, fields, cells, **{"angles" if is_angle else "shear": None, "center": 0.0})


def _window(inputs: Sequence[Value], fields: Fields) -> Numbers:
    is_sorted = fields.flag("absolute")

    def cells(*bounds: Array) -> Sequence[Any]:
        before, after = (np.stack(np.broadcast_arrays(*pair)) for pair in (bounds[:2], bounds[2:]))
        first, last, start, end = (*np.sort(before, 0), *np.sort(after, 0)) if is_sorted else (*before, *after)
        scale = (end - start) / (last - first)
        return _scale_and_shift(scale, start - scale * first)

    return _transform(inputs, fields, cells, from_start=0.0, from_end=1.0, to_start=0.0, to_end=1.0)


NUMBERS: dict[str, Callable[[Sequence[Value], Fields], Numbers]] = {
    "PeekImageShape": _peek_image_shape,
    "Constant": _constant,
    "ArithmeticGenericOp": _arithmetic,
    "Cast": lambda inputs, fields: _cast(_numbers_only(inputs)[0], fields),
    "Copy": lambda inputs, _: _numbers_only(inputs)[0],
    "Cat": lambda inputs, fields: _concatenate(inputs, fields, is_stack=False),
    "Stack": lambda inputs, fields: _concatenate(inputs, fields, is_stack=True),
    "Slice": _slice,
    "TensorSubscript": _subscript,
    "reductions__Max": _reduction(np.max),
    "reductions__Min": _reduction(np.min),
    "reductions__Sum": _reduction(np.sum),
    "ExpandDims": lambda inputs, fields: _reshape(inputs, fields, np.expand_dims),
    "Squeeze": _reshape,
    "Reshape": _reshape,
    "Reinterpret": _reshape,
    "transforms__Translation": lambda inputs, fields: _transform(
        inputs, fields, lambda offset: _scale_and_shift((1, 1), offset), offset=None
    ),
    "transforms__Scale": lambda inputs, fields: _transform(
        inputs, fields, lambda scale, center: _scale_and_shift(scale, center * (1 - scale)), scale=None, center=0.0
    ),
    "transforms__Rotation": lambda inputs, fields: _transform(inputs, fields, _rotation, angle=None, center=0.0),
    "transforms__Shear": _shear,
    "transforms__Crop": _window,
    "transforms__Combine": _combine,
}
"""Functions that convert operators on numbers or on an encoded image, by the name of the operator."""
