"""Reads the schema and the row groups of Parquet files with pyarrow."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pixprep.errors import DataError, ImageError, printable
from pixprep.training.sources.storage import is_remote, remote

_MAX_BYTES, _MAX_RATIO = 128 << 20, 16
"""Maximum size of a row group in memory: a number of bytes, or a multiple of its size in the file if that is more."""
_MAX_ROWS = 1024
"""Maximum number of rows that are decoded at once."""
Columns = Mapping[str, Any]
"""Columns of a row group as pyarrow arrays, by the names of the samples' fields."""


class _Object(io.RawIOBase):
    """File-like object for pyarrow that reads a remote object."""

    def __init__(self, path: str) -> None:
        self._path, self._at = path, 0
        self._size: int = remote().size_of(path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        size = min(size if size >= 0 else self._size, self._size - self._at)
        data: bytes = remote().read(self._path, self._at, size) if size > 0 else b""
        self._at += len(data)
        return data


def _size_of(path: str) -> int:
    found: int = remote().size_of(path) if is_remote(path) else os.stat(path).st_size  # noqa: PTH116
    return found


def opened(path: str, metadata: Any = None) -> pq.ParquetFile:
    """Open a Parquet file. Its footer is read unless it is given as ``metadata``.

    Raises:
        OSError, pyarrow.ArrowException, DataError: The file cannot be read.
    """
    is_far = is_remote(path)
    where = _Object(path) if is_far else path
    return pq.ParquetFile(where, metadata=metadata, pre_buffer=is_far, page_checksum_verification=True)


def described(path: str, fields: Mapping[str, str], *, is_label_typed: bool = False) -> tuple[Any, tuple[str, ...]]:
    """Return the footer of a file, and the class names that Hugging Face has stored for its labels.

    Args:
        path: Path or URL of the file.
        fields: Column of each field.
        is_label_typed: Whether a type was declared for the label, so that it may have any type in the file.

    Raises:
        DataError: The file is not a Parquet file, lacks a column, or a column has a different type.
    """
    try:
        file = opened(path)
    except pa.ArrowException as error:
        raise DataError(f"{path}: is not a valid Parquet file: {printable(error)[:200]}") from None
    for field, name in fields.items():
        found = _type_of(path, file.schema_arrow, name)
        if field == "image" and not _is_encoded(found):
            raise DataError(
                f"{path}: the column {name!r} must contain encoded images, as binary values or structs with binary "
                f'"bytes", not {found}'
            )
        if field == "label" and not pa.types.is_integer(found) and not is_label_typed:
            hint = 'declare a type, such as types={"label": "float"} or "classes", or rename the field'
            raise DataError(f"{path}: labels must be integers, but the column {name!r} contains {found}: {hint}")
    return file.metadata, _classes(file.schema_arrow.metadata or {}, fields.get("label"))


def _type_of(path: str, schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of a column, or of a struct's field such as ``image.bytes``."""
    top, *steps = [name] if name in schema.names else name.split(".")
    found = pa.struct(list(schema))
    for step in (top, *steps):
        if not pa.types.is_struct(found) or found.get_field_index(step) < 0:
            raise DataError(f"{path}: has no column {name!r}; its columns are {', '.join(map(repr, schema.names))}")
        found = found.field(step).type
    return found


def _is_encoded(found: pa.DataType) -> bool:
    if pa.types.is_struct(found):
        return found.get_field_index("bytes") >= 0 and _is_encoded(found.field("bytes").type)
    return bool(pa.types.is_binary(found) or pa.types.is_large_binary(found))


def _classes(metadata: Mapping[bytes, bytes], label: str | None) -> tuple[str, ...]:
    try:
        return tuple(json.loads(metadata[b"huggingface"])["info"]["features"][label]["names"])
    except (KeyError, TypeError, ValueError):
        return ()


def sizes(metadata: Any, names: Sequence[str]) -> list[tuple[int, int]]:
    """Return the number of rows of each row group, and the size of the given columns in memory, in bytes."""
    wanted = _wanted(metadata, names)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [(each.num_rows, sum(each.column(place).total_uncompressed_size for place in wanted)) for each in groups]


def _wanted(metadata: Any, names: Sequence[str]) -> list[int]:
    """Return the indices of the columns and of their nested columns."""
    return [
        place
        for place in range(metadata.num_columns)
        if any(f"{metadata.schema.column(place).path}.".startswith(f"{name}.") for name in names)
    ]


def read(path: str, metadata: Any, group: int, fields: Mapping[str, str]) -> Columns:
    """Read columns of a row group.

    A few rows are decoded at a time, so that a small file cannot fill the memory: with dictionary encoding, a value
    that is stored once may occur in many rows.

    Args:
        path: Path or URL of the file.
        metadata: Footer of the file.
        group: Index of the row group.
        fields: Column of each field.

    Raises:
        ImageError: CORRUPT: The row group is damaged. TOO_LARGE_BYTES: The row group takes far
            more bytes in memory than in the file.
        OSError: The file does not exist any more, or cannot be read.
        DataError: The network fails.
    """
    names = [*fields.values()]
    columns = [metadata.row_group(group).column(place) for place in _wanted(metadata, names)]
    limit = max(_MAX_BYTES, _MAX_RATIO * min(sum(each.total_compressed_size for each in columns), _size_of(path)))
    declared = sum(each.total_uncompressed_size for each in columns)
    try:
        table = _table(opened(path, metadata), group, names, declared, limit)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.strerror:  # for corrupt data, Arrow raises an OSError without strerror
            raise
        raise ImageError("CORRUPT", f"the row group {group} cannot be read: {printable(error)[:200]}") from None
    if table is None:
        what = f"the row group {group} takes more than {limit:,} bytes of memory"
        raise ImageError("TOO_LARGE_BYTES", f"{what}, far more than in the file: write smaller row groups")
    return {field: column(table, name) for field, name in fields.items()}


def _table(file: pq.ParquetFile, group: int, names: Sequence[str], declared: int, limit: int) -> pa.Table | None:
    """Return columns of a row group, or None if they take too much memory.

    Args:
        file: The Parquet file.
        group: Index of the row group.
        names: Names of the columns.
        declared: Size of the columns in memory according to the footer, in bytes.
        limit: Maximum size in bytes.
    """
    if declared > limit:
        return None
    rows = min(max(limit // max(declared, 1), 1), _MAX_ROWS)
    batches = []
    for batch in file.iter_batches(rows, row_groups=[group], columns=[*names], use_threads=False):
        batches.append(batch)
        limit -= batch.nbytes
        if limit < 0:
            return None
    return pa.Table.from_batches(batches)


def column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column, or a field of a struct such as ``image.bytes``."""
    if name in table.column_names:
        return table.column(name)
    top, *steps = name.split(".")
    return pc.struct_field(table.column(top), steps)
