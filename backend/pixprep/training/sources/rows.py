"""Sources that read the rows of a sequence, such as a Hugging Face dataset, or the rows of an iterable."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from pixprep.errors import DataError, ImageError, PipelineError
from pixprep.plan.boxes import check_source_format
from pixprep.spec import BoxSource
from pixprep.training.sources import DRAW, Draw, Sample, Source
from pixprep.training.sources.storage import fingerprint
from pixprep.training.sources.types import FieldType, named, typed

_Key = str | int


class Rows(Source):
    """The rows of a sequence; see ``Source``. Returned by ``rows``."""

    def __init__(self, items: Any, fields: Mapping[str, _Key], classes: tuple[str, ...], tag: str) -> None:
        self.classes = classes
        self._items = items
        self._fields = dict(fields)
        self._tag = tag

    @property
    def fingerprint(self) -> str:
        """Hash of the tag, the fields, and the number of rows, but not of their contents."""
        return fingerprint("rows", self._tag, self._fields, len(self), *self._tags)

    @property
    def labels(self) -> Any:
        """Label of each row of a Hugging Face dataset. None for other sequences, which are read only on request."""
        key = self._fields.get("label")
        if key is None or not hasattr(self._items, "column_names"):
            return None
        return self.types.labels(self._items[key]) if self._type_tag else np.array(self._items[key])

    def __len__(self) -> int:
        return len(self._items)

    def _sample(self, index: int) -> Sample:
        name = f"row {index}"
        try:
            row = self._items[index]
        except DataError:
            raise
        except Exception as error:
            raise ImageError("UNREADABLE", f"{name}: {type(error).__name__}: {error}") from error
        sample: Sample = {"name": name}
        for field, key in self._fields.items():
            try:
                value = row[key]
            except (KeyError, IndexError, TypeError):
                is_dict = isinstance(row, Mapping)
                known = f"its keys are {', '.join(map(repr, row))}" if is_dict else f"the row is a {_kind(row)}"
                raise ImageError("BAD_RECORD", f"{name}: has no {key!r}; {known}") from None
            if field == "image":
                value, path = _encoded(value, name)
                sample |= {"name": f"{name}, {path}"} if path else {}
            sample[field] = value
        return sample


def rows(
    items: Any,
    *,
    image: _Key = "image",
    classes: Sequence[str] = (),
    tag: str = "",
    box_format: BoxSource = "xyxy",
    types: Mapping[str, FieldType] | None = None,
    **fields: _Key | None,
) -> Rows:
    """Read the rows of a sequence as samples.

    A row is a mapping or a tuple. A dict of columns is read row by row. The image of a row is encoded: bytes, a path,
    or the dict ``{"bytes": …, "path": …}`` of Hugging Face. For a pipeline that begins with ``pixels``, it is an array,
    a PyTorch tensor or a Pillow image. The rows of a Hugging Face dataset are read as plain Python values, without
    decoding images, and its class names are used.

    >>> mnist = rows(datasets.load_dataset("mnist", split="train"), label="label")       # doctest: +SKIP
    >>> pets = rows(torchvision.datasets.ImageFolder("pets").samples, image=0, label=1)   # doctest: +SKIP

    Args:
        items: A sequence that several threads can read concurrently, or a dict of columns of equal length.
        image: Key or position of the image in a row.
        classes: Names of the classes, in the order of their indices.
        tag: Text that identifies these rows. It is part of the fingerprint, which does not cover the contents of rows.
        box_format: Format of the field ``boxes``: ``xyxy``, ``xywh`` (left, top, width, height) or ``cxcywh`` (center,
            width, height), in pixels; or ``xyxy_normalized``, ``xywh_normalized`` or ``cxcywh_normalized``, relative to
            the size of the image.
        types: Types of fields; see ``table``. The values of fields without a type are not converted.
        **fields: Further fields: the name of each, and its key or position in a row, such as ``label="label"``.

    Raises:
        DataError: ``items`` is not a sequence, is empty, or lacks a column.
    """
    check_source_format(box_format)
    if isinstance(items, Mapping):
        items = _Columns(items)
    if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
        raise DataError(
            f"items must support len() and indexing, which {_kind(items)} does not: convert it to a list, or use "
            "pixprep.read.iterable"
        )
    if len(items) == 0:
        raise DataError("items must contain at least one row, but it is empty")
    keys = named(image=image, **fields)
    items, known = plain(items, keys)
    return typed(Rows(items, keys, tuple(classes or known), tag), types, keys, box_format)


def plain(items: Any, fields: Mapping[str, _Key]) -> tuple[Any, tuple[str, ...]]:
    """Configure a Hugging Face dataset to return plain Python values and encoded images. Return it and its class names.

    Other objects are returned unchanged.

    Args:
        items: Dataset or other object.
        fields: Column of each field.

    Raises:
        DataError: The dataset lacks a column.
    """
    features = getattr(items, "features", None)
    if not (isinstance(features, Mapping) and hasattr(items, "cast_column")):
        return items, ()
    for key in fields.values():
        if key not in features:
            raise DataError(f"the dataset has no column {key!r}; its columns are {', '.join(map(repr, features))}")
    if getattr(items, "format", {}).get("type") is not None:  # such as with_format("torch")
        items = items.with_format(None)
    image = fields["image"]
    if getattr(features[image], "decode", False):
        items = items.cast_column(image, type(features[image])(decode=False))
    return items, tuple(getattr(features[fields["label"]], "names", ()) if "label" in fields else ())


class _Columns:
    """The rows of a dict of columns, as dicts.

    Raises:
        DataError: The columns have different lengths, or are not sequences.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = dict(columns)
        lengths = {name: len(each) if hasattr(each, "__len__") else -1 for name, each in columns.items()}
        if len({*lengths.values()}) > 1 or -1 in lengths.values():
            found = ", ".join(f"{name!r} has {length:,}" for name, length in lengths.items() if length >= 0)
            raise DataError(f"columns must be sequences of the same length: {found or 'these have no length'}")
        self._length = next(iter(lengths.values()), 0)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: each[index] for name, each in self._columns.items()}


def _encoded(value: Any, name: str) -> tuple[Any, str]:
    """Return an encoded image and its path, if it has one. An array is returned unchanged, and the Loader checks it."""
    if isinstance(value, Mapping) and {"bytes", "path"} & set(value):
        path = value.get("path")
        if value.get("bytes") is not None:
            return value["bytes"], path or ""
        value = path
    if isinstance(value, str | Path):
        return Path(value), str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return value, ""
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return value, ""
    hint = "pass the encoded bytes or a path, so that pixprep decodes the image"
    raise ImageError("BAD_RECORD", f"{name}: the type of the image, {_kind(value)}, is not supported: {hint}")


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


_POSSIBLE = {"shuffle": (False,), "repeats": (1,), "on_error": ("raise", "skip")}
"""Values of the Loader's arguments, besides None, that do not require random access to samples."""


class _Passes:
    """Indexing for an iterable. Rows between two indices are skipped.

    A smaller index, or another epoch, restarts the iteration.

    Args:
        begin: Function that returns a new iterator over the rows.
        samples: Number of rows per iteration.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]], samples: int) -> None:
        self._begin, self._samples = begin, samples
        self._lock = Lock()
        self._rows: Iterator[Any] = iter(())
        self._next, self._epoch = samples, -1

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> Any:
        drawing = DRAW.get()
        try:
            with self._lock:
                return self._row(index, drawing)
        finally:
            DRAW.set(drawing)

    def _row(self, index: int, drawing: Draw | None) -> Any:
        """Return a row. The rows before it are computed with their own random numbers, as if they were samples."""
        epoch = -1 if drawing is None else drawing.epoch
        is_new = index < self._next or epoch != self._epoch
        try:
            for at in range(0 if is_new else self._next, index + 1):
                if drawing is not None:
                    DRAW.set(drawing if at == index else Draw(drawing.seed, epoch, at, drawing.attempt))
                if is_new:
                    self._rows, self._next, self._epoch, is_new = self._begin(), 0, epoch, False
                row, self._next = next(self._rows), at + 1
        except StopIteration:
            self._next = self._samples
        except Exception as error:
            raise DataError(f"row {index:,} of the iterable: {type(error).__name__}: {error}") from error
        else:
            return row
        raise DataError(
            f"the iterable ended before row {index:,}, although samples={self._samples:,}: set samples to its "
            "number of rows"
        )


def iterable(
    items: Iterable[Any] | Callable[[], Iterable[Any]],
    *,
    samples: int | None = None,
    image: str | int = "image",
    classes: Sequence[str] = (),
    tag: str = "",
    box_format: BoxSource = "xyxy",
    types: Mapping[str, FieldType] | None = None,
    **fields: str | int | None,
) -> Rows:
    """Read the rows of an iterable as samples, in sequence.

    A Loader reads them in a single thread and does not support ``shuffle``: shuffle the iterable itself. Each epoch
    starts a new iteration. Each shard reads all rows and keeps its own, and a resumed epoch skips the rows before its
    position. A broken sample is skipped or ends the epoch, because it cannot be replaced. ``replay`` starts a new
    iteration.

    >>> laion = iterable(datasets.load_dataset("laion", split="train", streaming=True),  # doctest: +SKIP
    ...                  samples=100_000, image="jpg", caption="txt")                    # doctest: +SKIP

    Args:
        items: An object that can be iterated repeatedly, or a function that returns an iterable.
        samples: Number of rows per epoch. Default: the length of ``items``.
        image: Key or position of the image in a row; see ``rows``.
        classes: Names of the classes, in the order of their indices.
        tag: Text that identifies these rows; see ``rows``.
        box_format: Format of the field ``boxes``; see ``rows``.
        types: Types of fields; see ``table``.
        **fields: Further fields; see ``rows``.

    Raises:
        DataError: ``items`` cannot be iterated, can be iterated only once, or has no length while ``samples`` is not
            given.
    """
    check_source_format(box_format)
    if not callable(items) and not hasattr(items, "__iter__"):
        raise DataError(
            f"items must be an iterable or a function that returns one, not {type(items).__name__}: see pixprep.read"
        )
    if isinstance(items, Iterator):
        raise DataError(
            f"items is a {type(items).__name__}, which can be iterated only once, but every epoch iterates over it: "
            "pass the function that creates it"
        )
    if samples is None:
        if not isinstance(items, Sized):
            raise DataError("the iterable has no length: pass the number of rows per epoch as samples")
        samples = len(items)
    if not isinstance(samples, int) or not 1 <= samples <= sys.maxsize:
        raise DataError(f"samples must be an integer from 1 to {sys.maxsize:,}, not {samples!r}")
    keys = named(image=image, **fields)
    rows, known = plain(items, keys)
    passes = _Passes(lambda: iter(rows() if callable(rows) else rows), samples)
    made = typed(Rows(passes, keys, tuple(classes or known), tag), types, keys, box_format)
    made.is_in_order = True
    return made


def check_in_order(source: object, **arguments: object) -> None:
    """Reject arguments of a Loader that require random access if the source can be read only in sequence.

    Args:
        source: Source of the Loader.
        **arguments: Arguments of the Loader, by name.

    Raises:
        PipelineError: An argument is not supported by the source.
    """
    if not getattr(source, "is_in_order", False):
        return
    for name, value in arguments.items():
        if value is not None and not (isinstance(value, bool | int | str) and value in _POSSIBLE.get(name, ())):
            what = f"{name}={value!r}" if isinstance(value, str | bool | int) else name
            hint = 'use "skip" or "raise"' if name == "on_error" else "shuffle or sample in the iterable itself"
            raise PipelineError(f"{what} is not supported for an iterable, which can be read only in sequence: {hint}")
