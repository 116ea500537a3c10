"""Batches as other libraries have them. One module a library, imported on demand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, Protocol

from pixprep.engine.batch import Batch
from pixprep.errors import SetupError
from pixprep.plan.output_plans import MaskPlan
from pixprep.registry import load
from pixprep.training.order import Order

log = logging.getLogger(__name__)

Library = Literal["torch", "jax", "tensorflow", "cupy", "keras"]


class Batches(Protocol):
    """Parts of a Loader that the modules here need; see there."""

    order: Order

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Batch]: ...

    def example(self) -> Batch: ...  # noqa: D102

    def set_epoch(self, epoch: int) -> None: ...  # noqa: D102

    def state_dict(self) -> dict[str, Any]: ...  # noqa: D102

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...  # noqa: D102


def library(name: Library) -> ModuleType:
    """Our module for a library.

    Raises:
        SetupError: the library is not installed.
    """
    try:
        found: ModuleType = load(f"pixprep.training.frameworks.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pixprep"):
            raise
        package = "cupy-cuda12x" if name == "cupy" else name
        raise SetupError(f"this needs {error.name}, which is not installed: pip install {package}") from None
    return found


def checked_names(loader: Batches, names: Sequence[str]) -> Sequence[str]:
    """The names of what a batch becomes, with a warning where rows would be counted twice unseen."""
    order = loader.order
    padding = len(loader) * order.global_size - order.length
    if order.last == "pad" and order.shuffle is False and padding and names and "is_padding" not in names:
        log.warning(
            'an epoch is filled up with %d samples that come twice: name "is_padding", too, and leave those '
            'rows out of what you count, or take last="drop"',
            padding,
        )
    return names


def handed_over(batch: Batch, names: Sequence[str], name: Library, *, is_padded: bool = False, **options: Any) -> Any:
    """Hand arrays over, for ``Batch.torch`` and the others."""
    convert = library(name).converted
    return chosen(
        names,
        (*batch.outputs, *batch.fields),
        lambda each: convert(_found(batch, each, is_padded=is_padded), **options),
    )


def chosen(names: Sequence[str], all_names: Sequence[str], value: Callable[[str], Any]) -> Any:
    """One value for one name, a tuple for several, and for none a dict of all."""
    if not names:
        return {name: value(name) for name in all_names}
    values = tuple(value(name) for name in names)
    return values[0] if len(names) == 1 else values


def value(batch: Batch, name: str, *, is_padded: bool = False) -> Any:
    """An output or a field, for a library that takes no list of images: these and masks as one padded array."""
    is_image = name in batch.outputs or isinstance(batch.annotations.get(name), MaskPlan)
    return _found(batch, name, is_padded=is_padded or is_image)


def _found(batch: Batch, name: str, *, is_padded: bool) -> Any:
    """An output or a field; padded, a list of arrays as one array, and all else as it is."""
    found = batch[name]
    is_list = isinstance(found, list) and any(map(is_array, found)) and all(e is None or is_array(e) for e in found)
    return batch.padded(name) if is_padded and is_list else found


def mapped(value: Any, convert: Callable[[Any], Any]) -> Any:
    """An array converted, a list of arrays as a list of what they become, and all else as it is."""
    if is_array(value):
        return convert(value)
    if isinstance(value, list) and value and all(map(is_array, value)):
        return [convert(each) for each in value]
    return value


def is_array(value: Any) -> bool:
    """Tell whether it is an array of numbers, on any device."""
    return hasattr(value, "__dlpack__") and value.dtype.kind in "biufc"


class Tuples:
    """See ``Loader.tuples``: an epoch for each ``for``."""

    def __init__(self, loader: Batches, names: Sequence[str]) -> None:
        self._loader = loader
        self._names = checked_names(loader, names)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return map(self._tuple, self._loader)

    def _tuple(self, batch: Batch) -> tuple[Any, ...]:
        return tuple(batch[name] for name in self._names)
