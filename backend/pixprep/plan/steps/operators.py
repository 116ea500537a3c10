"""Implements custom operators, which are user functions on arrays. A pipeline refers to an operator by name.

A pipeline file contains only the name, the version and the fields of an operator, and never causes an import by itself.
The operator's function comes from one of two sources. Either the caller passes the operator in Python
(``pixprep.load(path, operators=[denoise])``), or an installed package provides it as an entry point of the group
``pixprep.operators``. An installed operator is used only if the administrator of the server allows it by name.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType, NoneType, UnionType
from typing import Any, ClassVar, Literal, NewType, NoReturn, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError, SetupError, in_words
from pixprep.plan.steps.step import Step
from pixprep.plan.steps.warps import Warp
from pixprep.registry import load
from pixprep.spec import DType, Layout, Matrix, OperatorDType, TensorSpec

log = logging.getLogger(__name__)

MAX_CHARS = 80
MAX_NAME, MAX_VERSION = 128, 1_000_000
Epoch = NewType("Epoch", int)
"""Index of an epoch, from 0. A custom operator receives the current epoch in a keyword argument of this type."""
Place = Literal["levels", "tensor"]
Arrays = Literal["numpy", "cupy"]
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)+")
_NAME_RULE = (
    'a name such as "acme.denoise": two or more parts of ASCII letters, digits and _, joined by dots, with at most '
    f"{MAX_NAME} characters"
)
_PLAIN = (bool, int, float, str, NoneType)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_COMMON_FIELDS = ("name", "from_", "only")  # fields that every op has


@dataclass(frozen=True, eq=False)
class Operator:
    """Custom operator that the decorator ``pixprep.operator`` creates. Calling the operator returns an op.

    Attributes:
        name, version: Name and version of the operator in pipeline files.
        function: The decorated function. Its arguments are an array, and the fields as keyword arguments.
        place: Input of the function: ``levels`` for the pixel values of the resized image, or ``tensor`` for a finished
            tensor.
        shape: Shape of the result, which is (height, width) for ``levels``. None means the shape of the input.
        dtype: Dtype of the result. None means the dtype of the input.
        arrays: Libraries whose arrays the function accepts.
        fields: Struct type of the fields, derived from the signature of the function.
        generator: Name of the parameter that receives a random generator, or None.
        epoch: Name of the parameter that receives the number of the epoch, or None.
        motion: Function that returns the coordinate transform of the operator, or None.
    """

    name: str
    version: int
    function: Callable[..., Any] = field(repr=False)
    place: Place
    shape: tuple[int, ...] | None
    dtype: OperatorDType | None
    arrays: tuple[Arrays, ...]
    fields: type[msgspec.Struct] = field(repr=False)
    generator: str | None = field(default=None, repr=False)
    epoch: str | None = field(default=None, repr=False)
    motion: Callable[..., Any] | None = field(default=None, repr=False)

    def __call__(
        self, *, name: str | None = None, from_: str | None = None, only: Any = None, **fields: Any
    ) -> OperatorCall:
        """Return an op for a pipeline: ``pixprep.Pipeline([..., denoise(strength=0.3), ...])``."""
        return OperatorCall(self, MappingProxyType(fields), name, from_, only)

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return _found, (self.function.__module__, self.function.__qualname__)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def use(self, fields: Mapping[str, Any]) -> Extern:
        """Return a step that calls the operator with these fields.

        Raises:
            PipelineError: The operator has no field of this name, a value has the wrong type, or a required field is
                missing.
        """
        names = self.fields.__struct_fields__
        for key in fields:
            if key not in names:
                shown = json.dumps(key)[:MAX_CHARS]
                known = ", ".join(names) or "none"
                raise PipelineError(f'"fields": {self} has no field {shown}; its fields are: {known}')
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
    """Return the operator at an import path. Operators are pickled as import paths."""
    found = load(f"{module}:{name}")
    if not isinstance(found, Operator):
        raise TypeError(f"{module}.{name} is not an operator")
    return found


@dataclass(frozen=True)
class OperatorCall:
    """A custom operator in the list of ops that is passed to ``pixprep.Pipeline``.

    Attributes:
        operator: The operator.
        fields: Keyword arguments of the operator's function.
        name, from_, only: Fields that all ops have.
    """

    operator: Operator
    fields: Mapping[str, Any]
    name: str | None = None
    from_: str | None = None
    only: Any = None


class Extern(Step, frozen=True):
    """Step that calls a custom operator.

    Attributes:
        operator: Operator to call.
        fields: Fields of the call, as pairs (name, value).
        key: Key of the step's random numbers. Empty if the operator has neither a random generator nor an epoch.
        seed: Seed of the operator's random generator for one image.
        epoch: Epoch of the image.
    """

    operator: Operator
    fields: tuple[tuple[str, Any], ...]
    key: str = ""
    seed: int | None = None
    epoch: int | None = None
    blocks: ClassVar[int] = 1
    is_call = True
    sees: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        fields = "".join(f", {name} {value}" for name, value in self.fields)
        result = f", result {self.size[0]} x {self.size[1]} pixels" if self.size else ""
        return f"call the operator {self.operator}{fields}{result}"

    @property
    def size(self) -> tuple[int, int] | None:
        """Size (height, width) of the resulting image. None means that the operator does not change the size."""
        if self.operator.place == "tensor" or self.operator.shape is None:
            return None
        height, width = self.operator.shape
        return height, width

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """See ``Step``."""
        return self.size or (height, width)

    @property
    def is_anywhere(self) -> bool:
        """Whether the positions of pixels in the result are unknown: the operator sets a size but has no ``motion``."""
        return self.size is not None and self.operator.motion is None

    @property
    def moves(self) -> bool:  # type: ignore[override]  # a class variable of most steps
        """See ``Traits``."""
        return self.is_anywhere or self.operator.motion is not None

    @property
    def no_places(self) -> str:  # type: ignore[override]  # as above
        """See ``Traits``."""
        what = f"after the operator {self.operator}, which has a shape but no motion: pass motion= to pixprep.operator"
        return f"the positions of pixels are unknown {what}" if self.is_anywhere else ""

    def words(self, height: int, width: int, numbers: Any, seen: Any = None) -> dict[str, int]:
        """Sample a 64-bit seed from the random numbers of the image, such as ``{"seed": 81985529216486895}``.

        If the operator has a parameter for the epoch, the result also contains ``epoch``.
        """
        del height, width, seen
        high, low, *_ = (numbers.blocks(self.key, 0, 1)[0] * 2.0**32).tolist()
        epoch = {} if self.operator.epoch is None else {"epoch": numbers.epoch}
        return {"seed": int(high) << 32 | int(low), **epoch}

    def placed(self, rows: Any, columns: Any, drawing: Any) -> tuple[Extern, ...]:
        """See ``Step``."""
        return (self.changed(**drawing.words(self, rows, columns)) if self.key else self,)

    def of_labels(self, height: int, width: int, fill: tuple[int, ...]) -> Warp | None:
        """See ``Step``."""
        motion = self.forward(height, width)
        if motion is None:
            return None
        back, size = np.linalg.inv(motion), self.size_after(height, width)
        depth = back[2, 2] or 1e-12 * np.abs(back[2]).max()  # it is 0 if (0, 0) is on the horizon
        numbers = (back / depth).ravel().tolist()
        matrix = cast("Matrix", tuple(numbers[: 8 if any(numbers[6:8]) else 6]))
        return Warp(matrix, size, 0, 0, *size, fill, "nearest", "pillow")

    def forward(self, height: int, width: int) -> npt.NDArray[np.float64] | None:
        """Return the coordinate transform from an image of this size to the result (see ``levels.motions``).

        The result is None if the operator has no ``motion``. Otherwise, it is a 3 x 3 matrix, whose sign is chosen so
        that w is positive for the point of the image at the center of the result.

        Raises:
            ImageError: OPERATOR: The ``motion`` function failed or returned an invalid transform. The traceback is
                written to the log.
        """
        operator = self.operator
        if operator.motion is None:
            return None
        rows, columns = self.size or (height, width)
        with _blaming(operator, "motion of "):
            motion = _motion(operator.motion(height, width, **self._named))
            return motion if np.linalg.inv(motion)[2] @ (columns / 2, rows / 2, 1) >= 0 else -motion

    @property
    def _named(self) -> dict[str, Any]:
        """Keyword arguments for the operator's functions, including a new random generator with the step's seed."""
        fields = dict(self.fields)
        if self.operator.generator is not None:
            fields[self.operator.generator] = np.random.Generator(np.random.Philox(key=self.seed or 0))
        if self.operator.epoch is not None:
            fields[self.operator.epoch] = self.epoch or 0
        return fields

    def result(self, spec: TensorSpec) -> TensorSpec:
        """Return the spec of the resulting tensor for an input tensor of this spec."""
        shape, dtype = self.operator.shape or spec.shape, self.operator.dtype or spec.dtype
        layout: Layout | None = spec.layout if shape == spec.shape else None
        largest = float(np.finfo(dtype).max if dtype.startswith("float") else np.iinfo(dtype).max)
        low = 0.0 if dtype == "uint8" else -largest
        return TensorSpec(shape=shape, dtype=dtype, layout=layout, low=low, high=largest)

    def run(self, array: Any, *, shape: Sequence[int], dtype: DType) -> Any:
        """Call the operator's function, and check its result.

        Args:
            array: Input of the function, a NumPy or CuPy array. The function may modify it.
            shape: Expected shape of the result.
            dtype: Expected dtype of the result.

        Raises:
            ImageError: OPERATOR: The function failed, in which case the traceback is written to the log; or its result
                has the wrong type, shape or dtype.
        """
        operator = self.operator
        kind = type(array)
        with _blaming(operator):
            result = operator.function(array, **self._named)
        if not isinstance(result, kind) or tuple(result.shape) != tuple(shape) or result.dtype != dtype:
            shaped = hasattr(result, "shape") and hasattr(result, "dtype")
            form = f"{result.dtype} {tuple(result.shape)}" if shaped else type(result).__name__
            detail = f"{operator} returned {form}, not {kind.__name__} of {dtype} {tuple(shape)}"
            log.error("the operator %s", detail.removeprefix("the operator "))
            raise ImageError("OPERATOR", detail)
        return result


@contextmanager
def _blaming(operator: Operator, what: str = "") -> Iterator[None]:
    """Convert the exceptions of a user's function to an ImageError, and log their traceback.

    Args:
        operator: Operator that the function belongs to.
        what: Description of the function, if it is not the operator itself.
    """
    try:
        yield
    except ImageError as error:  # the function raised it to send this message to the client
        raise ImageError("OPERATOR", f"{what}{operator}: {error.detail}") from None
    except (Exception, SystemExit) as error:
        log.exception("the %soperator %s failed", what and f"{what}the ", operator)
        name = type(error).__name__
        raise ImageError("OPERATOR", f"{what}{operator} failed on this image ({name}); see the log") from None


def _motion(found: Any) -> npt.NDArray[np.float64]:
    """Convert the result of a ``motion`` function to a 3 x 3 matrix.

    Raises:
        ValueError: The result is not a matrix of numbers.
        numpy.linalg.LinAlgError: The matrix is not invertible.
    """
    numbers = np.asarray(found, np.float64)
    if numbers.shape not in ((2, 3), (3, 3)):
        raise ValueError(f"a motion must have the shape (2, 3) or (3, 3), not {numbers.shape}")
    whole: npt.NDArray[np.float64] = np.concatenate([numbers, np.eye(3)[len(numbers) :]])
    if not np.isfinite(np.linalg.inv(whole)).all():
        raise ValueError("the numbers of a motion must be finite")
    return whole


def operator(
    name: str,
    *,
    version: int,
    place: Place = "levels",
    shape: Sequence[int] | None = None,
    dtype: OperatorDType | None = None,
    arrays: Arrays | Sequence[Arrays] = "numpy",
    motion: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Operator]:
    """Turn a function into a custom operator that pipelines can use.

    >>> import numpy as np, pixprep as pp
    >>> @pp.operator("acme.darker", version=1)
    ... def darker(pixels, *, by: int = 10):
    ...     return np.maximum(pixels, by) - np.uint8(by)
    >>> pipeline = pp.Pipeline([pp.pixels(), pp.crop(0, 0, 1, 1), darker(by=55), pp.tensor(dtype="uint8")])
    >>> pp.Engine(pipeline).run([np.full((2, 2, 3), 200, np.uint8)])[0].ravel()
    array([145, 145, 145], dtype=uint8)

    The function receives an array, which it may modify, and the fields as keyword-only arguments. The types of the
    fields are ``bool``, ``int``, ``float``, ``str`` and ``Literal``, and tuples and unions of these. Several threads
    call the function concurrently, each with one image.

    A keyword argument annotated as ``np.random.Generator`` is not a field: it receives a random generator, which is
    seeded from the seed, the epoch, the sample and the op. A keyword argument annotated as ``pixprep.Epoch`` receives
    the number of the epoch. Such an operator is supported in training only.

    If the function raises an exception, only this image fails, with an ImageError of the reason OPERATOR. To send a
    message to the client, raise ``ImageError("OPERATOR", message)``.

    Args:
        name: Name of the operator in pipeline files, such as ``acme.denoise``. It consists of at least two parts,
            separated by dots.
        version: Version of the operator, an integer of at least 1. A pipeline file requires exactly the version that it
            specifies.
        place: Input of the function. ``levels``: the image after its geometry, uint8 (height, width, channels), RGB or
            gray. The result has the same shape, or the size ``shape``. ``tensor``: the finished tensor of the op
            ``tensor``. The result has the shape ``shape`` and the dtype ``dtype``.
        shape: Shape of the result. Default: the shape of the input. For ``levels``, it is (height, width), and an
            operator with a ``shape`` may move pixels, for example to unwarp or align an image. Without a ``motion``,
            later ops then cannot output coordinates.
        dtype: Dtype of the result, for ``tensor`` only. Default: the dtype of the input.
        arrays: Libraries whose arrays the function accepts: ``numpy``, ``cupy``, or both. On a GPU, an operator that
            accepts only NumPy arrays receives a copy in host memory. On the CPU, an operator that accepts only CuPy
            arrays is rejected.
        motion: Function ``(height, width, **fields)`` that returns the coordinate transform of an operator on
            ``levels``, for an input of this size. The transform maps a point (x, y) of the input to the result, in
            pixels from the upper left corner. It is an affine matrix of shape (2, 3) or a homography of shape (3, 3).
            If the operator is random, the function receives a generator with the same seed. The boxes, points and masks
            of later ops are transformed accordingly. Default: pixels keep their positions, or with a ``shape``, their
            positions are unknown.

    Raises:
        TypeError: An argument is invalid, or the signature of the function is not supported.
    """
    libraries = (arrays,) if isinstance(arrays, str) else tuple(arrays)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise TypeError(f"an operator must have {_NAME_RULE}, not {name!r}")
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= MAX_VERSION:
        raise TypeError(f"{name}: version must be an integer from 1 to {MAX_VERSION}, not {version!r}")
    if place not in get_args(Place) or not libraries or not {*libraries} <= {*get_args(Arrays)}:
        raise TypeError(f'{name}: place must be "levels" or "tensor", and arrays must be "numpy", "cupy" or both')
    if dtype is not None and dtype not in get_args(OperatorDType):
        raise TypeError(f"{name}: dtype must be one of {', '.join(get_args(OperatorDType))}, not {dtype!r}")
    sides = None if shape is None else tuple(shape)
    if sides is not None and (not sides or not all(isinstance(side, int) and side > 0 for side in sides)):
        raise TypeError(f"{name}: shape must be a tuple of positive integers, not {shape!r}")
    if place == "levels" and (dtype is not None or len(sides or (1, 1)) != 2):
        raise TypeError(f'{name}: with place "levels", shape must be (height, width), and dtype must not be set')
    if motion is not None and (place != "levels" or not callable(motion)):
        raise TypeError(f'{name}: motion must be a function, and requires place "levels"')

    def made(function: Callable[..., Any]) -> Operator:
        fields, given = _fields_of(name, function)
        if given and place == "tensor":
            which = next(iter(given.values()))
            raise TypeError(f'{name}: {which}: a random generator or an epoch requires place="levels"')
        return Operator(name, version, function, place, sides, dtype, libraries, fields, **given, motion=motion)

    return made


def check_name(name: str) -> None:
    """Raise PipelineError if a string is not a valid name for an operator."""
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise PipelineError(f'"operator" must be {_NAME_RULE}')


def _is_finite(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or isfinite(value)


def _fields_of(name: str, function: Callable[..., Any]) -> tuple[type[msgspec.Struct], dict[str, str]]:
    """Derive the fields of an operator from the signature of its function.

    Returns:
        Struct type of the fields, and the names of the parameters that receive a random generator or the epoch, by the
        keys ``generator`` and ``epoch``.

    Raises:
        TypeError: The signature is not supported.
    """

    def refuse(what: str) -> NoReturn:
        raise TypeError(f"{name}: {what}")

    if not inspect.isfunction(function):
        refuse(f"an operator must be a Python function, not {type(function).__name__}")
    parameters = [*inspect.signature(function).parameters.values()]
    if not parameters or parameters[0].kind not in _POSITIONAL:
        refuse("the first parameter of its function must be the array")
    hints = get_type_hints(function)
    made: list[Any] = []
    given: dict[str, str] = {}
    for each in parameters[1:]:
        if each.kind is not each.KEYWORD_ONLY:
            refuse(f"fields must be keyword-only parameters: write * before {each.name}")
        if each.name in _COMMON_FIELDS:
            refuse(f"the field {each.name} must be renamed, because every op has a field of this name")
        kind = hints.get(each.name)
        if kind in (np.random.Generator, Epoch):
            given["epoch" if kind is Epoch else "generator"] = each.name
            continue
        if not _is_plain(kind):
            refuse(
                f"the type of the field {each.name} is not supported: use bool, int, float, str, Literal or tuple, "
                "or a union of these"
            )
        if each.default is each.empty:
            made.append((each.name, kind))
            continue
        try:
            default = msgspec.convert(msgspec.to_builtins(each.default), kind)
        except (msgspec.ValidationError, TypeError):
            refuse(f"the default of the field {each.name} does not match its type: {each.default!r}")
        made.append((each.name, kind, default))
    return msgspec.defstruct("Fields", made, kw_only=True, frozen=True, forbid_unknown_fields=True), given


def _is_plain(kind: Any) -> bool:
    """Return whether the values of a type are immutable and can be stored in JSON."""
    if get_origin(kind) is Literal:
        return all(isinstance(word, str | int) for word in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return all(map(_is_plain, get_args(kind)))
    if get_origin(kind) is tuple:
        return all(part is Ellipsis or _is_plain(part) for part in get_args(kind))
    return kind in _PLAIN


GROUP = "pixprep.operators"
VARIABLE = "PIXPREP_ALLOW_OPERATORS"
"""Name of the environment variable that lists the installed operators that may be loaded, separated by spaces.

``pixprep serve --allow-operators`` sets it.
"""


def listed(operators: Sequence[Operator | str]) -> Sequence[Operator | str]:
    """Check that the argument ``operators`` is a list of operators and names, and return it.

    Raises:
        PipelineError: The argument is not such a list.
    """
    is_list = isinstance(operators, Sequence) and not isinstance(operators, str)
    wrong = next((one for one in operators if not isinstance(one, Operator | str)), None) if is_list else operators
    if wrong is not None or not is_list:
        shown = repr(wrong)[:MAX_CHARS]
        raise PipelineError(f"operators must be a list of operators (made by pixprep.operator) or names, not {shown}")
    return operators


def find(name: str, version: int, operators: Sequence[Operator | str]) -> Operator:
    """Find the operator with this name and version, among ``operators`` and the allowed installed operators.

    Args:
        name: Name of the operator in the pipeline file.
        version: Version of the operator in the pipeline file.
        operators: Operators, and names of allowed installed operators. The environment variable ``VARIABLE`` allows
            further names.

    Raises:
        PipelineError: No operator with this name and version was found.
        SetupError: The package of the operator cannot be imported, or its entry point is not an operator of this name.
    """
    found = [one for one in operators if isinstance(one, Operator) and one.name == name]
    allowed = {one for one in operators if isinstance(one, str)} | {*os.environ.get(VARIABLE, "").split()}
    if not found and name in allowed:
        found = [_installed(name)]
    for one in found:
        if one.version == version:
            return one
    if found:
        versions = " and ".join(str(one.version) for one in found)
        raise PipelineError(f"needs operator {name} {version}, but found version {versions}: install version {version}")
    what = "allow it" if _entries(name) else "install it and allow it"
    raise PipelineError(
        f"needs operator {name} {version}: {what} with operators=[...] in pixprep.load, allow_operators in "
        f"config.pbtxt, `pixprep build --parameter allow_operators={name}`, `pixprep serve --allow-operators`, or, for "
        f"any command, the environment variable {VARIABLE}={name}"
    )


def _installed(name: str) -> Operator:
    """Import the operator that an installed package provides under this name."""
    entries = list({(entry.value, entry.dist.name if entry.dist else ""): entry for entry in _entries(name)}.values())
    if len(entries) != 1:
        why = "no installed package provides it" if not entries else f"{len(entries)} installed packages provide it"
        raise SetupError(f"operator {name} is allowed, but {why} (entry points of the group {GROUP})")
    try:
        made = entries[0].load()
    except Exception as error:
        log.exception("the operator %s does not load", name)
        raise SetupError(f"operator {name}: its package cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(made, Operator) or made.name != name:
        what = made.name if isinstance(made, Operator) else type(made).__name__
        raise SetupError(f"operator {name}: its entry point is {what}, which is not an operator of this name")
    return made


def check_installed(names: Sequence[str]) -> None:
    """Check that an installed package provides each of these operators.

    Raises:
        SetupError: An operator is not installed. The message contains the names of this operator and of the installed
            operators.
    """
    for name in names:
        if not _entries(name):
            known = ", ".join(sorted({entry.name for entry in _entries(None)})) or "none"
            fix = f"install its package in pixprep's environment; the installed operators are: {known}"
            raise SetupError(f"--allow-operators {name}: no installed package provides this operator: {fix}")


def _entries(name: str | None) -> Sequence[Any]:
    """Return the entry points of the installed operators with this name, or those of all installed operators."""
    from importlib.metadata import entry_points  # noqa: PLC0415  (importing it takes 30 ms, and is rarely necessary)

    return [entry for entry in entry_points(group=GROUP) if name in (None, entry.name)]
