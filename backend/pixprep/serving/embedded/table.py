"""Writes the responses to many photos to a table, as CSV, JSON Lines or Parquet, and continues an interrupted run.

Each row is appended to a journal as soon as the response arrives. The journal of ``answers.csv`` is
``answers.csv.part``. A process that is killed therefore loses only the responses that it has not received. The next run
with the same table reads the journal, and sends the photos that are missing or that failed. When all photos are
answered, the table is written atomically, and the journal is removed.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pixprep.errors import PixprepError, needed
from pixprep.files import atomic_file, named

_FORMAT = "pixprep answers/1"
_OWN = ("file", "others", "error", "latency_ms", "objects")
"""Keys of a row that become columns before the outputs of the model."""
Row = dict[str, Any]


class Table:
    """A table of answers, as a context manager. Inside the block, ``add`` appends rows to the journal.

    At the end of the block, the table is written. If the block raises an exception, only the journal remains.

    Args:
        path: Path of the table. Its suffix selects the format: .csv, .jsonl or .parquet.
        origin: Values that must be the same for all rows, such as the name of the model.

    Attributes:
        answered: Files for which the journal already contains a row without an error, as in ``Answer.files``.

    Raises:
        PixprepError: The suffix is unknown; the table exists and is complete; its journal has a different origin, is
            damaged, or is used by another process; or, for Parquet, pyarrow is not installed.
    """

    def __init__(self, path: Path, origin: Mapping[str, Any]) -> None:
        if path.suffix.lower() not in WRITERS:
            raise PixprepError(f"{path}: choose a file name that ends in {', '.join(WRITERS)}")
        if path.suffix.lower() == ".parquet":
            needed("table")  # report a missing library before the first request
        self._path, self._journal = path, path.with_name(f"{path.name}.part")
        if path.exists() and not self._journal.exists():
            raise PixprepError(f"{path} is already complete: remove it, or choose a different file")
        self._offsets: dict[tuple[str, ...], int] = {}
        self.answered: set[tuple[str, ...]] = set()
        with named(path, "cannot be written"):
            self._file: BinaryIO = self._journal.open("a+b")
        try:
            self._open(json.dumps({"format": _FORMAT, **origin}).encode() + b"\n")
        except BaseException:
            self._file.close()
            raise

    def _open(self, head: bytes) -> None:
        """Lock the journal, read which files are answered, and remove a row that was not written completely."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PixprepError(f"{self._path}: another process is writing this table") from None
        self._file.seek(0)
        first = self._file.readline()
        if first.endswith(b"\n") and first != head:
            is_ours = first.startswith(f'{{"format": "{_FORMAT}"'.encode())
            what = (
                f"was begun with other options: {first.decode().strip()}" if is_ours else "is not a journal of pixprep"
            )
            raise PixprepError(f"{self._journal} {what}: remove it, or choose a different table")
        end = len(first) if first.endswith(b"\n") else 0
        for line in iter(self._file.readline, b""):
            if not line.endswith(b"\n"):
                break
            try:
                self._note(json.loads(line), end)
            except (ValueError, TypeError, KeyError, AttributeError):
                raise PixprepError(f"{self._journal} is damaged at byte {end}: remove it to start again") from None
            end += len(line)
        self._file.truncate(end)
        if not end:
            self._file.write(head)
            self._file.flush()

    def _note(self, row: Row, offset: int) -> None:
        files = (row["file"], *row.get("others", ()))
        self._offsets[files] = offset  # a photo that was sent again keeps its place in the table
        (self.answered.discard if "error" in row else self.answered.add)(files)

    def add(self, row: Row) -> None:
        """Append a row, as returned by ``row_of``.

        Raises:
            PixprepError: The disk is full, or the journal cannot be written for a different reason.
        """
        with named(self._journal, "cannot be written"):
            offset = self._file.seek(0, io.SEEK_END)
            self._file.write(json.dumps(row).encode() + b"\n")
            self._file.flush()
        self._note(row, offset)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._offsets)

    @property
    def failed(self) -> int:
        """Number of rows with an error."""
        return len(self._offsets) - len(self.answered)

    def _read(self) -> Iterator[Row]:
        for offset in self._offsets.values():
            self._file.seek(offset)
            row = json.loads(self._file.readline())
            yield row | {"file": row["file"].encode(errors="backslashreplace").decode()}  # may not be valid Unicode

    def __enter__(self) -> Table:  # noqa: PYI034  (typing.Self requires Python 3.11)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is None:
                with named(self._path, "cannot be written"), atomic_file(self._path) as file:
                    WRITERS[self._path.suffix.lower()](file, self._read)
            if kind is None or not self._offsets:
                self._journal.unlink()


def _json_lines(file: BinaryIO, read: Callable[[], Iterable[Row]]) -> None:
    file.writelines(json.dumps(row).encode() + b"\n" for row in read())


def _csv(file: BinaryIO, read: Callable[[], Iterable[Row]]) -> None:
    text = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", newline="", write_through=True)
    columns = list(dict.fromkeys(name for row in read() for name in _cells(row)))
    columns.sort(key=lambda name: _OWN.index(name) if name in _OWN else len(_OWN))
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(map(_cells, read()))
    text.detach()


def _cells(row: Row) -> Row:
    """Return the cells of a row of CSV by column.

    The best class of an output becomes the columns ``OUTPUT.label``, ``OUTPUT.class`` and ``OUTPUT.score``. Lists and
    objects are JSON texts.
    """
    cells = {name: row.get(name, "") for name in ("file", "error", "latency_ms")}
    cells |= {name: row[name] for name in ("others", "objects") if name in row}
    for output, value in row.get("outputs", {}).items():
        name = f"outputs.{output}" if output in _OWN else output
        if isinstance(value, list) and value and isinstance(value[0], dict):
            cells |= {f"{name}.{key}": value[0][key] for key in ("label", "class", "score")}
        if not (isinstance(value, list) and len(value) == 1):
            cells[name] = value
        elif not isinstance(value[0], dict):
            cells[name] = value[0]
    return {name: json.dumps(cell) if isinstance(cell, list | dict) else cell for name, cell in cells.items()}


def _parquet(file: BinaryIO, read: Callable[[], Iterable[Row]]) -> None:
    needed("table")(file, read)


WRITERS: dict[str, Callable[[BinaryIO, Callable[[], Iterable[Row]]], None]] = {
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
"""Functions that write a file of rows, by suffix. The second argument returns an iterator over the rows."""
