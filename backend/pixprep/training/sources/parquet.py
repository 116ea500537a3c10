"""A source for Parquet files with one sample per row, such as the datasets of Hugging Face.

Files are read in row groups. The most recent ones are cached, so ``shuffle=False`` and ``shuffle="blocks"`` read each
row group only once.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import DataError, ImageError, needed
from pixprep.plan.boxes import check_source_format
from pixprep.spec import BoxSource
from pixprep.training.daemons import Daemons
from pixprep.training.sources import Sample, naming
from pixprep.training.sources.storage import (
    I64,
    Archives,
    StrPath,
    archives,
    fingerprint,
    image_at,
    inside,
    noted,
    scan,
)
from pixprep.training.sources.types import FieldType, named, typed

_READERS = 8


class ParquetRows(Archives):
    """The rows of Parquet files; see ``Source``. Returned by ``parquet``.

    Attributes:
        blocks: Index of the first sample of each row group, int64 (n,). ``shuffle="blocks"`` shuffles the row groups,
            and then samples within pools of neighbouring ones.
    """

    def __init__(
        self,
        paths: Sequence[str],
        footers: Sequence[Any],
        fields: Mapping[str, str],
        classes: Sequence[str],
        max_bytes: int,
    ) -> None:
        self._footers, self._fields, self.classes, self._max_bytes = footers, dict(fields), tuple(classes), max_bytes
        sizes = [
            np.array(needed("parquet").sizes(each, [*fields.values()]), np.int64).reshape(-1, 2) for each in footers
        ]
        self._sizes = [each[each[:, 0] > 0] for each in sizes]
        self._numbers = [np.flatnonzero(each[:, 0]) for each in sizes]
        self._group_ends = [each[:, 0].cumsum() for each in self._sizes]
        super().__init__(paths, (each.num_rows for each in footers))
        largest = [int(each[:, 1].max(initial=0)) for each in self._sizes]
        self.notes = noted(
            "parquet",
            [
                f"{name}: a row group takes {size:,} bytes of memory, which is more than cache_bytes: write the file "
                "with smaller row groups"
                for name, size in zip(self._names, largest, strict=True)
                if size > max_bytes
            ],
        )
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._pool = Daemons(_READERS, "pixprep-parquet")
        self._kept: OrderedDict[tuple[int, int], Future[Any]] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_pool", "_kept")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    @property
    def fingerprint(self) -> str:
        """Hash of the file names and the sizes of all row groups."""
        return fingerprint("parquet", self._names, self._fields, *self._sizes, *self._tags)

    @property
    def blocks(self) -> I64:
        """Index of the first sample of each row group."""
        rows = np.concatenate([each[:, 0] for each in self._sizes])
        begins: I64 = rows.cumsum() - rows
        return begins

    @property
    def labels(self) -> npt.NDArray[Any] | None:
        """Label of each sample, or None if there are no labels. Reads the column of the labels."""
        if (name := self._fields.get("label")) is None:
            return None
        files = zip(self._files.paths, self._footers, strict=True)
        tables = [needed("parquet").opened(path, footer).read([name]) for path, footer in files]
        columns = [needed("parquet").column(table, name) for table in tables]
        if self._type_tag:
            return self.types.labels(value for column in columns for value in column.to_pylist())  # type: ignore[no-any-return]
        labels: npt.NDArray[Any] = np.concatenate([each.cast("int64").fill_null(-1).to_numpy() for each in columns])
        return labels

    def _sample(self, index: int) -> Sample:
        file, row = self._where(index)
        sample: Sample = {"name": f"{self._names[file]}, row {row}"}
        with naming(sample["name"]):
            group = int(np.searchsorted(self._group_ends[file], row, side="right"))
            columns = self._columns(file, group)
            row -= int(self._group_ends[file][group])  # a negative index, from the end of the row group
            for field, column in columns.items():
                value = column[row].as_py()
                if field == "image" and isinstance(value, Mapping):
                    sample["name"] += f", {value['path']}" if value.get("path") else ""
                    value = self._stored(file, value)
                if value is None:
                    raise ImageError("BAD_RECORD", f"the column {self._fields[field]!r} is null in this row")
                sample[field] = np.array(value) if isinstance(value, list) else value
        return sample

    def _stored(self, file: int, value: Mapping[str, Any]) -> Any:
        """Return the image of a struct: its bytes, or the file at its path, which is relative to the Parquet file."""
        if value["bytes"] is None and value.get("path"):
            folder = self._files.paths[file].rpartition("/")[0]
            return image_at(inside(folder, value["path"]))
        return value["bytes"]

    def _columns(self, file: int, group: int) -> Mapping[str, Any]:
        """Return the columns of a row group. After a sequential read, the next row group is read ahead."""
        if os.getpid() != self._process:  # threads do not survive a fork
            self._begin()
        with self._lock:
            found = self._requested(file, group)
            if (file, group - 1) in self._kept and group + 1 < len(self._sizes[file]):
                self._requested(file, group + 1)
            while len(self._kept) > 2 and sum(int(self._sizes[f][g][1]) for f, g in self._kept) > self._max_bytes:
                self._kept.popitem(last=False)
        try:
            columns: Mapping[str, Any] = found.result()
        except (DataError, OSError):
            with self._lock:
                self._kept.pop((file, group), None)  # try again on the next request, because the network may recover
            raise
        return columns

    def _requested(self, file: int, group: int) -> Future[Any]:
        """Return a future of the columns of a row group, and start reading it if it is not cached."""
        if (key := (file, group)) not in self._kept:
            number = int(self._numbers[file][group])
            path, footer = self._files.paths[file], self._footers[file]
            self._kept[key] = self._pool.submit(needed("parquet").read, path, footer, number, self._fields)
        self._kept.move_to_end(key)
        return self._kept[key]


def parquet(
    paths: StrPath | Sequence[StrPath],
    *,
    image: str = "image",
    classes: Sequence[str] = (),
    cache_bytes: int = 1 << 30,
    box_format: BoxSource = "xyxy",
    types: Mapping[str, FieldType] | None = None,
    **fields: str | None,
) -> ParquetRows:
    """Read the rows of Parquet files.

    The column of the images contains binary values, or structs with ``bytes`` and ``path`` as written by Hugging Face,
    whose class names are also used. A name with dots selects a field of a struct: ``image.bytes``. Lists become arrays.
    Row groups are read as a whole and cached. Therefore use ``shuffle="blocks"``, which shuffles the row groups, and
    then the samples within pools of 4,096.

    >>> food = parquet("food101/train-*.parquet", label="label")             # doctest: +SKIP

    Args:
        paths: Paths, or patterns such as ``train-*.parquet``.
        image: Column of the images.
        classes: Names of the classes, in the order of their indices.
        cache_bytes: Maximum size of the cached row groups in bytes. At least two row groups are cached.
        box_format: Format of the field ``boxes``; see ``rows``.
        types: Types of fields; see ``table``. Labels without a type must be integers.
        **fields: Further fields: the name of each, and its column, such as ``label="label"``.

    Raises:
        DataError: A file is missing or damaged, a column is missing or has an unsupported type, or there are no rows.
        SetupError: pyarrow is not installed.
    """
    check_source_format(box_format)
    columns = named(image=image, **fields)
    files = archives(paths)
    found = scan(
        files, lambda path: needed("parquet").described(path, columns, is_label_typed="label" in (types or {}))
    )
    if not any(footer.num_rows for footer, _ in found):
        raise DataError(f"{files[0]}: contains no rows" + f" ({len(files):,} files without rows)" * (len(files) > 1))
    source = ParquetRows(
        files,
        [footer for footer, _ in found],
        columns,
        classes or next((each for _, each in found if each), ()),
        cache_bytes,
    )
    return typed(source, types, columns, box_format)
