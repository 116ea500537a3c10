"""Operators of the user: functions of arrays that a pipeline names."""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType, NoneType, UnionType
from typing import Any, ClassVar, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError, in_words
from pixprep.plan.steps.step import Step
from pixprep.registry import load
from pixprep.spec import DType, Layout, TensorSpec

log = logging.getLogger(__name__)

MAX_LETTERS = 80
MAX_NAME, MAX_VERSION = 128, 1_000_000
Place = Literal["levels", "tensor"]
Arrays = Literal["numpy", "cupy"]
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)+")
_PLAIN = (bool, int, float, str, NoneType)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_KEPT = ("name", "from_", "only")  # the common fields of all ops


@dataclass(frozen=True, eq=False)
class Operator:
    """A function that pipelines may name. ``pixprep.operator`` makes it; a call returns an op of a pipeline.

    Attributes:
        name, version: Name and version in pipeline files.
        function: The function; its arguments are an array, and the fields by name.
        place: Input of the function: the ``levels`` of the resized image, or a finished ``tensor``.
        shape, dtype: Shape and dtype of the result; None: Those of the input. For levels the shape is (height, width).
        arrays: Libraries whose arrays the function accepts.
        fields: Type of the fields, from the signature of the function.
        generator: Parameter that receives a random generator; None: The function draws nothing.
        motion: Function that returns the coordinate transform of the operator; None: The operator does not specify one.
    """

    name: str
    version: int
    function: Callable[..., Any] = field(repr=False)
    place: Place
    shape: tuple[int, ...] | None
    dtype: DType | None
    arrays: tuple[Arrays, ...]
    fields: type[msgspec.Struct] = field(repr=False)
    generator: str | None = field(default=None, repr=False)
    motion: Callable[..., Any] | None = field(default=None, repr=False)

    def __call__(
        self, *, name: str | None = None, from_: str | None = None, only: Any = None, **fields: Any
    ) -> OperatorCall:
        """Return the op for a pipeline: ``pixprep.Pipeline([..., denoise(strength=0.3), ...])``."""
        return OperatorCall(self, MappingProxyType(fields), name, from_, only)

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return _found, (self.function.__module__, self.function.__qualname__)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def use(self, fields: Mapping[str, Any]) -> Extern:
        """Return a step that calls the operator with these fields.

        Raises:
            PipelineError: The operator lacks a field of this name, or the value has a wrong type.
        """
        names = self.fields.__struct_fields__
        for key in fields:
            if key not in names:
                said = json.dumps(key)[:MAX_LETTERS]
                raise PipelineError(f'"fields": {self} has no field {said}; there are {", ".join(names) or "none"}')
        try:
            made = msgspec.convert(dict(fields), self.fields)
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(" - at `$")
            raise PipelineError(f'"fields"{path.rstrip("`")}: {in_words(text)}') from None
        values = tuple((name, getattr(made, name)) for name in names)
        if not all(map(_is_finite, values)):
            raise PipelineError('"fields": numbers must be finite')
        return Extern(self, values)


def _found(module: str, name: str) -> Operator:
    """Return the operator of a pickle, which contains its import path."""
    found = load(f"{module}:{name}")
    if not isinstance(found, Operator):
        raise TypeError(f"{module}.{name} is no operator")
    return found


@dataclass(frozen=True)
class OperatorCall:
    """An operator in the list of a pipeline that is made in Python.

    Attributes:
        operator: The operator.
        fields: Keyword arguments of its function.
        name, from_, only: Common fields of all ops.
    """

    operator: Operator
    fields: Mapping[str, Any]
    name: str | None = None
    from_: str | None = None
    only: Any = None


class Extern(Step, frozen=True):
    """One use of an operator, as a step of a plan.

    Attributes:
        operator: The operator.
        fields: Names and values of the fields.
        key: Key of the step's random numbers; empty: It draws nothing.
        seed: Seed of the random generator for one image.
    """

    operator: Operator
    fields: tuple[tuple[str, Any], ...]
    key: str = ""
    seed: int | None = None
    blocks: ClassVar[int] = 1

    def __str__(self) -> str:
        said = "".join(f", {name} {value}" for name, value in self.fields)
        makes = f", which makes {self.size[0]} x {self.size[1]} pixels" if self.size else ""
        return f"call the operator {self.operator}{said}{makes}"

    @property
    def size(self) -> tuple[int, int] | None:
        """The (height, width) of the result of an operator on levels; None: The operator keeps the size."""
        if self.operator.place == "tensor" or self.operator.shape is None:
            return None
        height, width = self.operator.shape
        return height, width

    @property
    def is_anywhere(self) -> bool:
        """Tell whether the origin of the result's pixels is unknown."""
        return self.size is not None and self.operator.motion is None

    @property
    def moves(self) -> bool:  # type: ignore[override]  # of most steps it is the same for all
        """See ``Traits``."""
        return self.is_anywhere or self.operator.motion is not None

    @property
    def no_places(self) -> str:  # type: ignore[override]  # as above
        """See ``Traits``."""
        what = f"behind the operator {self.operator}, which makes an image of its own: give the operator a motion"
        return f"nobody knows where a pixel came from {what}" if self.is_anywhere else ""

    def words(self, height: int, width: int, numbers: Any, boxes: Any = None) -> dict[str, int]:
        """Draw two words of the image's random numbers as one seed: ``{"seed": 81985529216486895}``."""
        del height, width, boxes
        high, low, *_ = (numbers.blocks(self.key, 0, 1)[0] * 2.0**32).tolist()
        return {"seed": int(high) << 32 | int(low)}

    def forward(self, height: int, width: int) -> npt.NDArray[np.float64] | None:
        """Return the 3 x 3 coordinate transform from an image of H x W pixels to the result (see ``levels.motions``).

        The sign is chosen so that w is positive for the point that the center of the result shows. The transform is
        None if the operator does not specify one.

        Raises:
            ImageError: OPERATOR: The function failed, or did not return a transform. The log contains the traceback.
        """
        operator = self.operator
        if operator.motion is None:
            return None
        rows, columns = self.size or (height, width)
        try:
            motion = _motion(operator.motion(height, width, **self._named))
            return motion if np.linalg.inv(motion)[2] @ (columns / 2, rows / 2, 1) >= 0 else -motion
        except ImageError as error:
            raise ImageError("OPERATOR", f"the motion of {operator}: {error.detail}") from None
        except (Exception, SystemExit) as error:
            log.exception("the motion of the operator %s failed", operator)
            said = f"{type(error).__name__}; the log says more"
            raise ImageError("OPERATOR", f"the motion of {operator} failed on this image ({said})") from None

    @property
    def _named(self) -> dict[str, Any]:
        """Keyword arguments of the functions. Each call receives a new generator with the same numbers."""
        fields = dict(self.fields)
        if self.operator.generator is not None:
            fields[self.operator.generator] = np.random.Generator(np.random.Philox(key=self.seed or 0))
        return fields

    def result(self, spec: TensorSpec) -> TensorSpec:
        """Return the spec of the operator's result for a tensor of this spec."""
        shape, dtype = self.operator.shape or spec.shape, self.operator.dtype or spec.dtype
        layout: Layout | None = spec.layout if shape == spec.shape else None
        largest = float(np.finfo(dtype).max if dtype.startswith("float") else np.iinfo(dtype).max)
        low = 0.0 if dtype == "uint8" else -largest
        return TensorSpec(shape=shape, dtype=dtype, layout=layout, low=low, high=largest)

    def run(self, array: Any, *, shape: Sequence[int], dtype: DType) -> Any:
        """Call the function with an array that it may write to, and check the result.

        Args:
            array: Array of a library that the function accepts.
            shape: Expected shape of the result.
            dtype: Expected dtype of the result.

        Raises:
            ImageError: OPERATOR: The function failed, or its result has a wrong type, shape or dtype. The log contains
                the traceback.
        """
        operator = self.operator
        kind = type(array)
        try:
            result = operator.function(array, **self._named)
        except ImageError as error:  # its words are for the sender of the image
            raise ImageError("OPERATOR", f"{operator}: {error.detail}") from None
        except (Exception, SystemExit) as error:
            log.exception("the operator %s failed", operator)
            name = type(error).__name__
            raise ImageError("OPERATOR", f"{operator} failed on this image ({name}); the log says more") from None
        if not isinstance(result, kind) or tuple(result.shape) != tuple(shape) or result.dtype != dtype:
            shaped = hasattr(result, "shape") and hasattr(result, "dtype")
            form = f"{result.dtype} {tuple(result.shape)}" if shaped else type(result).__name__
            detail = f"{operator} gave {form}, not {kind.__name__} of {dtype} {tuple(shape)}"
            log.error("the operator %s", detail.removeprefix("the operator "))
            raise ImageError("OPERATOR", detail)
        return result


def _motion(found: Any) -> npt.NDArray[np.float64]:
    """Return the 3 x 3 matrix for the result of a motion function.

    It raises ValueError if the result is not a matrix of numbers, or has no inverse.
    """
    numbers = np.asarray(found, np.float64)
    if numbers.shape not in ((2, 3), (3, 3)):
        raise ValueError(f"a motion has numbers (2, 3) or (3, 3), not {numbers.shape}")
    whole: npt.NDArray[np.float64] = np.concatenate([numbers, np.eye(3)[len(numbers) :]])
    if not np.isfinite(np.linalg.inv(whole)).all():
        raise ValueError("a motion has finite numbers")
    return whole


def operator(
    name: str,
    *,
    version: int,
    place: Place = "levels",
    shape: Sequence[int] | None = None,
    dtype: DType | None = None,
    arrays: Arrays | Sequence[Arrays] = "numpy",
    motion: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Operator]:
    """Make an operator of a function, as a decorator.

    >>> import numpy as np, pixprep as pp
    >>> @pp.operator("acme.darker", version=1)
    ... def darker(pixels, *, by: int = 10):
    ...     return np.maximum(pixels, by) - np.uint8(by)
    >>> pipeline = pp.Pipeline([pp.pixels(), pp.crop(0, 0, 1, 1), darker(by=55), pp.tensor(dtype="uint8")])
    >>> pp.Engine(pipeline).run([np.full((2, 2, 3), 200, np.uint8)])[0].ravel()
    array([145, 145, 145], dtype=uint8)

    The function accepts an array that it may write to, and the fields as keyword arguments of the types ``bool``,
    ``int``, ``float``, ``str`` and ``Literal``, and tuples and unions of these. Several threads call it at once, each
    with one image. A keyword argument of the type ``np.random.Generator`` is not a field: it receives a generator whose
    numbers are a pure function of seed, epoch, sample and op. Such an operator is for training only. An exception fails
    only its image, as ImageError with the reason OPERATOR. The client receives the text of
    ``ImageError("OPERATOR", text)``.

    Args:
        name: Name in pipeline files: parts with dots between them, such as ``acme.denoise``.
        version: Version, an integer of at least 1. A file names one version and accepts only this one.
        place: Input of the function. ``levels``: The image after its geometry, uint8 (height, width, channels), RGB or
            gray; the result has the same shape, or the size ``shape``. ``tensor``: A finished tensor of the op
            ``tensor``; the result has the shape ``shape`` and the type ``dtype``.
        shape: Shape of the result; default: the shape of the input. For levels it is (height, width). Such an operator
            may move pixels, as an unwarping or an alignment does, so later ops cannot report where a pixel came from.
        dtype: Type of the result of an operator on tensors; default: the type of the input.
        arrays: Libraries whose arrays the function accepts: ``numpy``, ``cupy``, or both. On a GPU, an operator that
            accepts only NumPy receives a copy on the host. On the CPU, an operator that accepts only CuPy is rejected.
        motion: Function ``(height, width, **fields)`` for an operator on levels, where (height, width) is the size of
            the input. It returns the map of a point (x, y) in pixels from the upper left corner: an array (2, 3), or
            (3, 3) for a perspective. It receives an equal generator if the operator draws numbers. Boxes, points and
            masks of later ops follow the map. None: Pixels are unmoved if the operator keeps the size; if it changes
            the size, their origin is unknown.

    Raises:
        TypeError: The name, the version or the signature does not fit into a pipeline file.
    """
    libraries = (arrays,) if isinstance(arrays, str) else tuple(arrays)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise TypeError(f"an operator's name has ASCII letters, digits and _, in parts with dots between: {name!r}")
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= MAX_VERSION:
        raise TypeError(f"{name}: version is an integer, 1 to {MAX_VERSION}, not {version!r}")
    if place not in get_args(Place) or not libraries or not {*libraries} <= {*get_args(Arrays)}:
        raise TypeError(f'{name}: place is "levels" or "tensor", and arrays "numpy", "cupy" or both')
    if dtype is not None and dtype not in get_args(DType):
        raise TypeError(f"{name}: dtype is one of {', '.join(get_args(DType))}, not {dtype!r}")
    sides = None if shape is None else tuple(shape)
    if sides is not None and (not sides or not all(isinstance(side, int) and side > 0 for side in sides)):
        raise TypeError(f"{name}: shape is a tuple of lengths, each at least 1, not {shape!r}")
    if place == "levels" and (dtype is not None or len(sides or (1, 1)) != 2):
        raise TypeError(f'{name}: of "levels" shape is (height, width), and the dtype uint8')
    if motion is not None and (place != "levels" or not callable(motion)):
        raise TypeError(f'{name}: motion is a function, of an operator on "levels"')

    def made(function: Callable[..., Any]) -> Operator:
        fields, generator = _fields_of(name, function)
        if generator is not None and place == "tensor":
            raise TypeError(f"{name}: {generator}: an operator on tensors draws no numbers; one on levels does")
        return Operator(name, version, function, place, sides, dtype, libraries, fields, generator, motion)

    return made


def check_name(name: str) -> None:
    """Raise PipelineError if a string is not a valid name of an operator."""
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise PipelineError(
            '"operator": a name such as "acme.denoise": ASCII letters, digits and _, in parts with dots between, at '
            f"most {MAX_NAME} letters"
        )


def _is_finite(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or isfinite(value)


def _fields_of(name: str, function: Callable[..., Any]) -> tuple[type[msgspec.Struct], str | None]:
    """Return the type of the fields from the function's signature, and the parameter that receives a generator.

    Raises:
        TypeError: A file could not supply the arguments of this signature.
    """

    def refuse(what: str) -> NoReturn:
        raise TypeError(f"{name}: {what}")

    if not inspect.isfunction(function):
        refuse(f"an operator is made of a function, not of {type(function).__name__}")
    parameters = [*inspect.signature(function).parameters.values()]
    if not parameters or parameters[0].kind not in _POSITIONAL:
        refuse("its function takes an array first")
    hints = get_type_hints(function)
    made: list[Any] = []
    generator: str | None = None
    for each in parameters[1:]:
        if each.kind is not each.KEYWORD_ONLY:
            refuse(f"write * before {each.name}: fields are given by their names")
        if each.name in _KEPT:
            refuse(f"no field may be called {each.name}, which every op has")
        kind = hints.get(each.name)
        if kind is np.random.Generator:
            generator = each.name
            continue
        if not _is_plain(kind):
            refuse(f"the field {each.name} has no type that a file can hold: bool, int, float, str, Literal, tuple")
        if each.default is each.empty:
            made.append((each.name, kind))
            continue
        try:
            default = msgspec.convert(msgspec.to_builtins(each.default), kind)
        except (msgspec.ValidationError, TypeError):
            refuse(f"the default of the field {each.name} is not of its type: {each.default!r}")
        made.append((each.name, kind, default))
    return msgspec.defstruct("Fields", made, kw_only=True, frozen=True, forbid_unknown_fields=True), generator


def _is_plain(kind: Any) -> bool:
    """Tell whether JSON holds values of a type, and they never change."""
    if get_origin(kind) is Literal:
        return all(isinstance(word, str | int) for word in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return all(map(_is_plain, get_args(kind)))
    if get_origin(kind) is tuple:
        return all(part is Ellipsis or _is_plain(part) for part in get_args(kind))
    return kind in _PLAIN
