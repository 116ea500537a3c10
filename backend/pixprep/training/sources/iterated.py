"""A source that reads an iterable, which supports no indexing, in sequence and from the start for each epoch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice
from threading import Lock
from typing import Any

from pixprep.errors import DataError, PipelineError
from pixprep.plan.boxes import check_source_format
from pixprep.spec import BoxSource
from pixprep.training.sources.rows import Rows, plain
from pixprep.training.sources.types import FieldType, named, typed

_POSSIBLE = {"shuffle": (False,), "repeats": (1,), "on_error": ("raise", "skip")}
"""Values of the Loader's arguments, besides None, that do not require random access to samples."""


class _Passes:
    """Indexing for an iterable. Rows between two indices are skipped, and a smaller index restarts the iteration.

    Args:
        begin: Function that returns a new iterator over the rows.
        samples: Number of rows per iteration.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]], samples: int) -> None:
        self._begin, self._samples = begin, samples
        self._lock = Lock()
        self._rows: Iterator[Any] = iter(())
        self._next = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> Any:
        with self._lock:
            if index < self._next:
                self._rows, self._next = self._begin(), 0
            try:
                for row in islice(self._rows, index - self._next, None):
                    self._next = index + 1
                    return row
            except Exception as error:
                raise DataError(f"row {index:,} of the iterable: {type(error).__name__}: {error}") from error
            self._next = self._samples
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
