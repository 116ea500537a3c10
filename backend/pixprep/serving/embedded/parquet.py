"""Writes rows to a Parquet file. Requires pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

_CHUNK = 1000
"""Number of rows that are converted at once."""


def write(file: BinaryIO, read: Callable[[], Iterable[dict[str, Any]]]) -> None:
    """Write rows, which are JSON objects, with one column per key. Lists and objects become nested columns.

    Args:
        file: File that is opened for writing.
        read: Function that returns an iterator over the rows. It is called twice: the first iteration determines the
            types of the columns.
    """
    types = [pa.schema(pa.array(rows).type) for rows in _chunks(read())]
    schema = pa.unify_schemas(types, promote_options="permissive")
    with pq.ParquetWriter(file, schema) as writer:
        for rows in _chunks(read()):
            writer.write_batch(pa.RecordBatch.from_struct_array(pa.array(rows, pa.struct(schema))))


def _chunks(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    left = iter(rows)
    return iter(lambda: list(islice(left, _CHUNK)), [])
