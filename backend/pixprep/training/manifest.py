"""Reads manifests: files that list the paths of many images."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pixprep.errors import PixprepError, needing
from pixprep.formats import content_of

_HEAD = 4096
"""Number of bytes that are read to detect a file that is not a list of paths."""


def manifest(path: Path, column: str | None = None) -> Iterator[str | None]:
    """Yield the paths of a manifest: one per line, or a column of a CSV or Parquet file.

    Relative paths are resolved against the folder of the manifest. None is yielded for rows without a path. Bytes that
    are not valid UTF-8 are replaced by escape sequences, so files with such names are not found.

    Raises:
        PixprepError: The file or column does not exist, or the file is not a valid table.
    """
    if not path.is_file():
        raise PixprepError(
            f"{path}: no such file: a manifest is a text file with one image path per line, or a .csv or .parquet file"
        )
    with path.open("rb") as file:
        head = file.read(_HEAD)
    what = "" if path.suffix.lower() in _READERS else content_of(head) or "a binary file" * (b"\0" in head)
    if what:
        raise PixprepError(
            f"{path} is {what}, not a list of images: pass a folder, or a text file with one path per line"
        )
    rows = _READERS.get(path.suffix.lower(), _lines)(path, column)
    return (str(path.parent / row) if row and isinstance(row, str) else None for row in rows)


def digest(path: Path) -> str:
    """Return the SHA-256 digest of a file, as 64 hexadecimal digits.

    Raises:
        PixprepError: The file cannot be read.
    """
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
    except OSError as error:
        raise PixprepError(f"{path}: {error.strerror}") from None
    return found.hexdigest()


def _lines(path: Path, column: str | None) -> Iterator[str]:
    if column is not None:
        raise PixprepError(
            f"{path}: a column can be selected only in .csv and .parquet files, and this is a text file with one image "
            "path per line"
        )
    with path.open(encoding="utf-8-sig", errors="backslashreplace") as file:
        yield from (line.rstrip("\n") for line in file if line.strip())


def _csv(path: Path, column: str | None) -> Iterator[Any]:
    with path.open(encoding="utf-8-sig", errors="backslashreplace", newline="") as file:
        rows = csv.DictReader(file)
        try:
            name = _column(path, column, rows.fieldnames or [])
            yield from (row[name] for row in rows)
        except csv.Error as error:
            raise PixprepError(f"{path}: is not a valid CSV file: line {rows.line_num}: {error}") from None


def _parquet(path: Path, column: str | None) -> Iterator[Any]:
    with needing("reading Parquet files needs pyarrow ({error}): pip install pyarrow"):
        import pyarrow as pa  # noqa: PLC0415  (only for this format)
        import pyarrow.parquet as pq  # noqa: PLC0415
    try:
        with pq.ParquetFile(path) as file:
            name = _column(path, column, file.schema_arrow.names)
            for batch in file.iter_batches(columns=[name]):
                yield from batch.column(0).to_pylist()
    except pa.ArrowException as error:
        first = str(error).partition("\n")[0]
        raise PixprepError(f"{path}: is not a valid Parquet file: {first}") from None


_READERS: dict[str, Callable[[Path, str | None], Iterator[Any]]] = {".csv": _csv, ".parquet": _parquet}


def _column(path: Path, column: str | None, names: Sequence[str]) -> str:
    if len(names) == 1 and (mark := next((each for each in ";\t" if each in names[0]), "")):
        raise PixprepError(f"{path}: the columns must be separated by commas, not by {mark!r}")
    name = column or ("path" if "path" in names else names[0] if len(names) == 1 else "")
    if name not in names:
        raise PixprepError(f"{path}: has no column {name or 'path'!r}: select one of {', '.join(names)}")
    return name
