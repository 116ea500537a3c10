"""Row groups of Parquet files by pyarrow: what a file has, and the columns of one."""

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

_MAX_BYTES, _MAX_TIMES = 128 << 20, 16
"""Maximum number of bytes of a row group in memory; or, if that is more, the multiple of its size in the file."""
_MAX_ROWS = 1024
"""Maximum number of rows that are read at once."""
Columns = Mapping[str, Any]
"""Values of a row group by the samples' fields, indexed by the row's number; ``as_py`` makes one Python's."""


class _Object(io.RawIOBase):
    """An object in a bucket, as pyarrow reads files."""

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
    """A file, whose footer is read unless it is given.

    Raises:
        OSError, pyarrow.ArrowException, DataError: it cannot be read.
    """
    is_far = is_remote(path)
    where = _Object(path) if is_far else path
    return pq.ParquetFile(where, metadata=metadata, pre_buffer=is_far, page_checksum_verification=True)


def described(path: str, fields: Mapping[str, str], *, is_label_typed: bool = False) -> tuple[Any, tuple[str, ...]]:
    """The footer of a file, and the classes that Hugging Face's has of its labels.

    Raises:
        DataError: The file is not a Parquet file, lacks a column, or a column has a different type.
    """
    try:
        file = opened(path)
    except pa.ArrowException as error:
        raise DataError(f"{path}: is not a Parquet file, or is damaged: {printable(error)[:200]}") from None
    for field, name in fields.items():
        found = _type_of(path, file.schema_arrow, name)
        if field == "image" and not _is_encoded(found):
            raise DataError(
                f"{path}: the column {name!r} is {found}, not encoded images: those must be binary, or a struct with "
                'binary "bytes"'
            )
        if field == "label" and not pa.types.is_integer(found) and not is_label_typed:
            remedy = 'declare it, such as types={"label": "float"} or "classes", or give another name'
            raise DataError(f"{path}: the column {name!r} is {found}, but labels must be integers: {remedy}")
    return file.metadata, _classes(file.schema_arrow.metadata or {}, fields.get("label"))


def _type_of(path: str, schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of a column, or that of a struct's field such as ``image.bytes``."""
    top, *steps = [name] if name in schema.names else name.split(".")
    found = pa.struct(list(schema))
    for step in (top, *steps):
        if not pa.types.is_struct(found) or found.get_field_index(step) < 0:
            raise DataError(f"{path}: has no column {name!r}; there are {', '.join(map(repr, schema.names))}")
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
    """Rows of each row group, and the bytes that the columns take when they are read."""
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
    """The columns of a row group, read a few rows at a time: a value of a dictionary may stand for many of them.

    Raises:
        ImageError: it is damaged, or takes far more memory than it has bytes in the file.
        OSError: the file is not there any more.
        DataError: the network is broken.
    """
    names = [*fields.values()]
    columns = [metadata.row_group(group).column(place) for place in _wanted(metadata, names)]
    most = max(_MAX_BYTES, _MAX_TIMES * min(sum(each.total_compressed_size for each in columns), _size_of(path)))
    said = sum(each.total_uncompressed_size for each in columns)
    try:
        table = _table(opened(path, metadata), group, names, said, most)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.strerror:  # it is not there; of damage Arrow raises one without
            raise
        raise ImageError("CORRUPT", f"its row group {group} cannot be read: {printable(error)[:200]}") from None
    if table is None:
        what = f"its row group {group} takes more than {most:,} bytes of memory"
        raise ImageError("TOO_LARGE_BYTES", f"{what}, far more than in the file: write smaller ones")
    return {field: column(table, name) for field, name in fields.items()}


def _table(file: pq.ParquetFile, group: int, names: Sequence[str], said: int, most: int) -> pa.Table | None:
    """Columns of a row group, of which the footer says a size; None if they take more than the most."""
    if said > most:
        return None
    rows = min(max(most // max(said, 1), 1), _MAX_ROWS)
    batches = []
    for batch in file.iter_batches(rows, row_groups=[group], columns=[*names], use_threads=False):
        batches.append(batch)
        most -= batch.nbytes
        if most < 0:
            return None
    return pa.Table.from_batches(batches)


def column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column, or a field of a struct."""
    if name in table.column_names:
        return table.column(name)
    top, *steps = name.split(".")
    return pc.struct_field(table.column(top), steps)
