"""A source for TFRecord files of ``tf.train.Example``, which requires neither TensorFlow nor an index file.

A record consists of ``u64 length, u32 checksum of the length, data, u32 checksum of the data``, little-endian. The
checksums are masked CRC-32C. Reference: tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pixprep import wire
from pixprep.errors import DataError, ImageError, needed
from pixprep.plan.boxes import Shares, check_source_format, to_xyxy
from pixprep.spec import BoxSource
from pixprep.training.sources import Sample, naming
from pixprep.training.sources.storage import I64, Archives, Opened, StrPath, archives, fingerprint, noted, scan
from pixprep.training.sources.types import FieldType, named, typed

_HEADER, _FOOTER = 12, 4
_MAX_INDEX_BYTES = 1 << 30
_EXAMPLE: wire.Message = {1: {1: {1: "text", 2: "bytes"}}}
_FEATURE: wire.Message = {1: {1: "bytes"}, 2: {1: "float"}, 3: {1: "integer"}}  # BytesList, FloatList or Int64List
_KINDS = {1: "bytes", 2: "floats", 3: "integers"}
_PACKED = {b"\x1f\x8b": "gunzip", b"\x78\x9c": "zlib-flate -uncompress <", b"\x78\x01": "zlib-flate -uncompress <"}

Feature = str | Sequence[str]
_Found = tuple[I64, I64, ImageError | None]
"""Offsets and sizes of the complete records of a file, and the error that follows the last record, or None.

A size includes the length field and both checksums.
"""


class Records(Archives):
    """The records of TFRecord files; see ``Source``. Returned by ``tfrecord``."""

    def __init__(
        self,
        paths: Sequence[str],
        found: Sequence[_Found],
        features: Mapping[str, Feature],
        *,
        classes: tuple[str, ...],
        box_format: BoxSource,
        checksum: Callable[[bytes], int] | None,
    ) -> None:
        super().__init__(paths, (len(offsets) + bool(problem) for offsets, _, problem in found))
        self.classes = classes
        problems = {file: problem for file, (_, _, problem) in enumerate(found) if problem}
        self.notes = noted("tfrecord", [f"{paths[file]}: {problem.detail}" for file, problem in problems.items()])
        self._broken = {
            self._ends[file] - 1: ImageError(
                problem.reason, f"{self._names[file]}, record {len(found[file][0])}: {problem.detail}"
            )
            for file, problem in problems.items()
        }
        self._offsets = [offsets for offsets, _, _ in found]
        self._sizes = [sizes for _, sizes, _ in found]
        self._features = dict(features)
        self._box_format = box_format
        self._checksum = checksum

    @property
    def fingerprint(self) -> str:
        """Hash of the file names and the offsets of all records."""
        tag = () if self._box_format in ("xyxy", "xyxy_normalized") else (self._box_format,)
        return fingerprint("tfrecord", self._names, self._features, *self._offsets, *self._sizes, *tag, *self._type_tag)

    def _sample(self, index: int) -> Sample:
        file, number = self._where(index)
        name = f"{self._names[file]}, record {number}"
        with naming(name):
            try:
                return {"name": name} | self._read(_example(self._record(file, number)))
            except wire.WireError as error:
                raise ImageError("BAD_RECORD", f"is not a valid tf.train.Example: {error}") from None

    def _record(self, file: int, number: int) -> memoryview:
        """Read the data of a record, and verify its length and checksums."""
        offset, size = int(self._offsets[file][number]), int(self._sizes[file][number])
        record = self._piece(file, offset, size)
        data = record[_HEADER:-_FOOTER]
        if int.from_bytes(record[:8], "little") != len(data):
            raise ImageError("CORRUPT", f"the stored length differs from the {len(data):,} bytes of the record")
        if self._checksum is not None:
            for part, check, what in ((record[:8], record[8:12], "length"), (data, record[-4:], "data")):
                if self._checksum(part) != int.from_bytes(check, "little"):
                    raise ImageError("CORRUPT", f"the checksum of the {what} is wrong")
        return memoryview(data)

    def _read(self, features: Mapping[str, memoryview]) -> Sample:
        sample: Sample = {}
        for field, feature in self._features.items():
            if field in ("boxes", "size"):
                continue
            if isinstance(feature, str):
                values = _values(features, feature)
                if len(values) != 1:
                    raise ImageError("BAD_RECORD", f"the feature {feature!r} must have one value, not {len(values):,}")
                sample[field] = _single(field, values[0], feature)
            else:
                sample[field] = _array(_values(features, feature[0]))
        if "size" in self._features:
            sample["size"] = tuple(_whole(features, name) for name in self._features["size"])
        if "boxes" in self._features:
            sample["boxes"] = self._boxes(features, sample.get("size"))
            count = len(sample["boxes"])
            if "labels" in sample and len(sample["labels"]) != count:
                raise ImageError("BAD_RECORD", f"has {len(sample['labels'])} labels, but {count} boxes")
        return sample

    def _boxes(self, features: Mapping[str, memoryview], size: tuple[int, int] | None) -> Any:
        """Return the boxes as xyxy in pixels, or as ``Shares`` if they are normalized and the image size is unknown."""
        columns = [np.asarray(_values(features, name), np.float64) for name in self._features["boxes"]]
        if len({len(column) for column in columns}) != 1:
            counts = ", ".join(str(len(column)) for column in columns)
            raise ImageError("BAD_RECORD", f"the four features of the boxes must have the same length, not {counts}")
        rows = np.stack(columns, axis=1)
        found = rows if self._box_format == "xyxy" else to_xyxy(rows, self._box_format)
        corners = np.asarray(found)
        if not np.isfinite(corners).all() or (corners[:, 2:] < corners[:, :2]).any():
            raise ImageError("BAD_RECORD", "boxes must be finite, with xmin <= xmax and ymin <= ymax")
        if isinstance(found, Shares):
            return found if size is None else found.pixels(*size)
        return corners.astype(np.float32)


def tfrecord(
    paths: StrPath | Sequence[StrPath],
    *,
    image: str = "image/encoded",
    boxes: tuple[str, str, str, str] | None = None,
    size: tuple[str, str] | None = None,
    normalized: bool = True,
    box_format: BoxSource | None = None,
    index: StrPath | Sequence[StrPath] | None = None,
    checksums: bool = True,
    classes: Sequence[str] = (),
    types: Mapping[str, FieldType] | None = None,
    **fields: Feature | None,
) -> Records:
    """Read the records of TFRecord files, each a ``tf.train.Example``.

    The records are located by a scan of the files, which takes about 2 us per record. Each argument names the feature
    for the field of the same name. A name as a string selects a single value; a list with one name selects all values,
    as an array, or as a list for bytes. ``labels`` always contains all values. A corrupt record affects only its own
    sample. If a length is corrupt or the file is truncated, a single broken sample represents the rest of the file, and
    a note reports it.

    >>> flowers = tfrecord("flowers-*.tfrecord", label="image/class/label")                           # doctest: +SKIP
    >>> objects = tfrecord("pets.tfrecord", boxes=tuple(f"image/object/bbox/{side}" for side in       # doctest: +SKIP
    ...     ("xmin", "ymin", "xmax", "ymax")), size=("image/height", "image/width"), labels="image/object/class/label")

    Args:
        paths: Paths, or patterns such as ``train-*.tfrecord``.
        image: Feature of the encoded image.
        boxes: Features of the four coordinates of the boxes: xmin, ymin, xmax and ymax, or those of ``box_format``.
        size: Features of the height and the width of the image.
        normalized: Whether boxes are relative to the size of the image. False: they are in pixels.
        box_format: Format of the boxes, which replaces ``normalized``; see ``rows``.
        index: DALI's index file for each TFRecord file, which replaces the scan. It is a text file with the offset and
            the size of each record.
        checksums: Whether to verify the checksum of each record when it is read.
        classes: Names of the classes, in the order of their indices.
        types: Types of fields; see ``table``. Fields without a type have the type of the feature.
        **fields: Features of further fields, such as ``label="image/class/label"``.

    Raises:
        DataError: A file is missing, or is not a TFRecord file.
        SetupError: ``checksums`` is True, but google-crc32c is not installed.
    """
    files = archives(paths)
    form: BoxSource = box_format or ("xyxy_normalized" if normalized else "xyxy")
    check_source_format(form)
    features: dict[str, Feature] = named(image=image, **fields)
    if isinstance(labels := features.get("labels"), str):
        features["labels"] = [labels]
    for field, feature in features.items():
        if not isinstance(feature, str) and len(feature) != 1:
            raise DataError(f"{field} must be the name of a feature, or a list with one name, not {feature!r}")
    features |= {name: value for name, value in (("boxes", boxes), ("size", size)) if value is not None}
    checksum = needed("checksums") if checksums else None
    if index is None:
        found = scan(files, lambda path: _scanned(path, checksum))
    else:
        indices = archives(index)
        if len(indices) != len(files):
            raise DataError(
                f"index must contain one file per TFRecord file: there are {len(indices):,} for {len(files):,} files"
            )
        by_file = dict(zip(files, indices, strict=True))
        found = scan(files, lambda path: _indexed(path, by_file[path]))
    if not any(len(offsets) for offsets, _, _ in found):
        problem = next((problem.detail for _, _, problem in found if problem), "contains no records")
        raise DataError(f"{files[0]}: {problem}" + f" ({len(files):,} files without records)" * (len(files) > 1))
    source = Records(files, found, features, classes=tuple(classes), box_format=form, checksum=checksum)
    return typed(source, types, features)


def _scanned(path: str, checksum: Callable[[bytes], int] | None) -> _Found:
    """Locate the records of a file by following their lengths.

    Args:
        path: Path or URL of the file.
        checksum: Checksum function to verify the lengths. None means that they are not verified.

    Raises:
        DataError: The file is compressed.
    """
    offsets: list[int] = []
    offset, problem = 0, None
    unpack = struct.Struct("<QI").unpack
    with Opened(path) as file:
        size = file.size
        while offset < size:
            header = file.read(min(_HEADER, size - offset), offset)
            if len(header) < _HEADER:
                problem = ImageError("TRUNCATED", f"the file is truncated in the record at byte {offset:,}")
                break
            length, check = unpack(header)
            end = offset + _HEADER + length + _FOOTER
            is_wrong = checksum is not None and checksum(header[:8]) != check
            if offset == 0 and header[:2] in _PACKED and (is_wrong or end > size):
                raise DataError(
                    f"{path}: is compressed: decompress it first, with {_PACKED[header[:2]]} {Path(path).name}"
                )
            if is_wrong:
                lost = f"the {size - offset:,} bytes from there cannot be read"
                problem = ImageError("CORRUPT", f"the checksum of the length at byte {offset:,} is wrong: {lost}")
                break
            if end > size:
                missing = f"{end - size:,} bytes are missing"
                problem = ImageError("TRUNCATED", f"the file is truncated in the record at byte {offset:,}: {missing}")
                break
            offsets.append(offset)
            offset = end
    starts = np.array(offsets, np.int64)
    return starts, np.diff(starts, append=offset), problem


def _indexed(path: str, index: str) -> _Found:
    """Read the records of a file from an index file of DALI.

    Raises:
        DataError: The index file is invalid, or a record is outside the file.
    """
    with Opened(path) as records, Opened(index) as lines:
        size = records.size
        if lines.size > _MAX_INDEX_BYTES:
            raise DataError(f"{index}: is larger than the limit of {_MAX_INDEX_BYTES:,} bytes")
        text = lines.read(lines.size, 0)
    try:
        rows = np.array(text.split(), np.int64).reshape(-1, 2)
    except (ValueError, OverflowError):
        raise DataError(
            f"{index}: is not a DALI index: each line must be the offset and the size of a record"
        ) from None
    offsets, sizes = np.ascontiguousarray(rows[:, 0]), np.ascontiguousarray(rows[:, 1])
    wrong = (offsets < 0) | (sizes < _HEADER + _FOOTER) | (offsets > size) | (sizes > size - offsets)
    if wrong.any():
        row = int(wrong.argmax())
        what = f"the record {offsets[row]} {sizes[row]} is outside the {size:,} bytes of {path}"
        raise DataError(f"{index}: line {row + 1}: {what}: create the index again")
    return offsets, sizes, None


def _example(data: memoryview) -> dict[str, memoryview]:
    """Return the encoded features of an Example, by name."""
    found = {}
    for features in wire.read(data, _EXAMPLE)[1]:
        for entry in features[1]:
            if entry[1] and entry[2]:
                found[entry[1][-1]] = entry[2][-1]
    return found


def _values(features: Mapping[str, memoryview], name: str) -> list[Any]:
    """Decode the values of a feature: integers, floats, or memoryviews.

    Raises:
        ImageError: BAD_RECORD: The feature does not exist.
    """
    if name not in features:
        known = ", ".join(map(repr, sorted(features)[:20])) or "none"
        raise ImageError("BAD_RECORD", f"has no feature {name!r}; its features are {known}")
    lists = wire.read(features[name], _FEATURE)
    return [value for kind in _KINDS for values in lists[kind] for value in values[1]]


def _whole(features: Mapping[str, memoryview], name: str) -> int:
    values = _values(features, name)
    if len(values) != 1 or not isinstance(values[0], int):
        raise ImageError("BAD_RECORD", f"the feature {name!r} must be a single integer")
    return values[0]


def _array(values: list[Any]) -> Any:
    if values and isinstance(values[0], memoryview):
        return [bytes(value) for value in values]
    return np.array(values, np.float32 if values and isinstance(values[0], float) else np.int64)


def _single(field: str, value: Any, feature: str) -> Any:
    """Convert a single value: an image stays a view of the record, a name becomes a string, other bytes are copied."""
    if field in ("image", "name") and not isinstance(value, memoryview):
        raise ImageError("BAD_RECORD", f"the feature {feature!r} must contain bytes, not a number")
    if field == "name":
        return str(value, "utf-8", "replace")
    return bytes(value) if isinstance(value, memoryview) and field != "image" else value
