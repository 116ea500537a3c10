"""Converts batches for other libraries, such as PyTorch. Each library has its own module, imported on demand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, Protocol

from pixprep.bfloat16 import Exported
from pixprep.engine.batch import Batch
from pixprep.errors import PipelineError, SetupError
from pixprep.registry import load
from pixprep.training.order import Order

log = logging.getLogger(__name__)

Library = Literal["torch", "jax", "tensorflow", "cupy", "keras"]


class Batches(Protocol):
    """The attributes and methods of ``Loader`` that the modules of this package use."""

    order: Order

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Batch]: ...

    def example(self) -> Batch: ...  # noqa: D102

    def set_epoch(self, epoch: int) -> None: ...  # noqa: D102

    def state_dict(self) -> dict[str, Any]: ...  # noqa: D102

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...  # noqa: D102


def library(name: Library) -> ModuleType:
    """Import the module for a library.

    Raises:
        SetupError: The library is not installed.
    """
    try:
        found: ModuleType = load(f"pixprep.training.frameworks.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pixprep"):
            raise
        package = "cupy-cuda12x" if name == "cupy" else name
        raise SetupError(f"this requires {error.name}, which is not installed: pip install {package}") from None
    return found


def checked_names(loader: Batches, names: Sequence[str]) -> Sequence[str]:
    """Return the names, and warn if the last batch is padded but the names do not include ``is_padding``.

    Args:
        loader: Loader whose batches are converted.
        names: Names of the outputs and fields that each batch contains. Empty: all.
    """
    order = loader.order
    padding = len(loader) * order.global_size - order.length
    if order.last == "pad" and order.shuffle is False and padding and names and "is_padding" not in names:
        log.warning(
            'the last batch is padded with %d samples that occur twice: add the name "is_padding", and exclude these '
            'samples from metrics, or use last="drop"',
            padding,
        )
    return names


def handed_over(batch: Batch, names: Sequence[str], name: Library, *, is_padded: bool = False, **options: Any) -> Any:
    """Convert arrays of a batch for a library. ``Batch.torch`` and similar methods call this.

    Args:
        batch: Batch to convert.
        names: Names of outputs and fields; see ``chosen``.
        name: Name of the library.
        is_padded: Whether a list of arrays is padded and stacked first.
        options: Options of the library's ``converted``.
    """
    convert = library(name).converted

    def found(each: str) -> Any:
        value = _found(batch, each, is_padded=is_padded)
        return convert(mapped(value, Exported) if is_bfloat16(batch, each) and name != "cupy" else value, **options)

    return chosen(names, (*batch.outputs, *batch.fields), found)


def is_bfloat16(batch: Batch, name: str) -> bool:
    """Return whether an output contains the bits of bfloat16 values."""
    return name in batch.outputs and name in batch.plans and batch.plans[name].spec.dtype == "bfloat16"


def chosen(names: Sequence[str], all_names: Sequence[str], value: Callable[[str], Any]) -> Any:
    """Return the value for a single name, a tuple for several names, or a dict of all values if there are no names."""
    if not names:
        return {name: value(name) for name in all_names}
    values = tuple(value(name) for name in names)
    return values[0] if len(names) == 1 else values


def value(batch: Batch, name: str, *, is_padded: bool = False) -> Any:
    """Return an output or a field for a library that does not accept lists of images.

    Lists of images and of masks are padded and stacked into one array. Other lists of arrays are padded only if
    ``is_padded`` is set.
    """
    if is_bfloat16(batch, name):
        raise PipelineError(
            f'"{name}" is bfloat16, which NumPy does not have: use "dtype": "float32" in tensor, and cast the result'
        )
    is_image = name in batch.outputs or batch.is_mask(name)
    return _found(batch, name, is_padded=is_padded or is_image)


def _found(batch: Batch, name: str, *, is_padded: bool) -> Any:
    """Return an output or a field. If ``is_padded``, a list of arrays is padded and stacked into one array."""
    found = batch[name]
    is_list = isinstance(found, list) and any(map(is_array, found)) and all(e is None or is_array(e) for e in found)
    return batch.padded(name) if is_padded and is_list else found


def mapped(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert an array, or each array of a list. All other values are returned unchanged."""
    if is_array(value):
        return convert(value)
    if isinstance(value, list) and value and all(map(is_array, value)):
        return [convert(each) for each in value]
    return value


def is_array(value: Any) -> bool:
    """Return whether a value is a numeric array, on any device."""
    return hasattr(value, "__dlpack__") and value.dtype.kind in "biufc"


class Tuples:
    """Iterable over the batches of a Loader as tuples; see ``Loader.tuples``. Each iteration is one epoch."""

    def __init__(self, loader: Batches, names: Sequence[str]) -> None:
        self._loader = loader
        self._names = checked_names(loader, names)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return map(self._tuple, self._loader)

    def _tuple(self, batch: Batch) -> tuple[Any, ...]:
        return tuple(batch[name] for name in self._names)
