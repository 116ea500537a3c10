"""A source for tar files in WebDataset's layout, where the members of a sample are adjacent and share a key.

``some/0001.jpg`` and ``some/0001.cls`` form the sample ``some/0001``: the key ends at the first dot of the base name,
and the rest is the suffix, which is converted to lower case. Files are never unpacked to disk. References: pax format
of POSIX.1-2008; manual of GNU tar; webdataset/tariterators.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pixprep.errors import DataError, ImageError
from pixprep.plan.boxes import check_source_format
from pixprep.spec import BoxSource
from pixprep.training.sources import Sample, naming
from pixprep.training.sources.storage import I64, Archives, Names, Opened, StrPath, archives, fingerprint, noted, scan
from pixprep.training.sources.types import FieldType, named, typed

_BLOCK = 512
_MAX_NAME_BYTES = 4096
_MAX_PAX_BYTES = 1 << 20
_PACKED = {b"\x1f\x8b": "gunzip", b"BZ": "bunzip2", b"\xfd7": "unxz", b"(\xb5": "unzstd"}
_IMAGES = ("jpg", "jpeg", "png", "webp")


@dataclass
class _Shard:
    """Index of a tar file.

    Attributes:
        keys: Key of each sample.
        members: Offset and size of the member for each sample and field, flattened. The offset is -1 if it is missing.
        problems: Errors of broken samples, by the number of the sample.
        notes: Problems of the file.
    """

    keys: list[str] = field(default_factory=list)
    members: array[int] = field(default_factory=lambda: array("q"))
    problems: dict[int, ImageError] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class TarSamples(Archives):
    """The samples of tar files; see ``Source``. Returned by ``tar``."""

    def __init__(
        self,
        paths: Sequence[str],
        shards: Sequence[_Shard],
        fields: Sequence[str],
        classes: tuple[str, ...],
    ) -> None:
        super().__init__(paths, (len(shard.keys) for shard in shards))
        self.classes = classes
        named = zip(self._names, shards, strict=True)
        self.notes = noted("tar", [f"{name}: {note}" for name, shard in named for note in shard.notes])
        self._fields = tuple(fields)
        self._keys = Names([shard.keys for shard in shards])
        self._members: I64 = np.concatenate(
            [np.frombuffer(shard.members, np.int64).reshape(-1, len(fields), 2) for shard in shards]
        )
        self._broken = {
            end - len(shard.keys) + number: ImageError(
                problem.reason, f"{name}, {shard.keys[number]}: {problem.detail}"
            )
            for name, shard, end in zip(self._names, shards, self._ends, strict=True)
            for number, problem in shard.problems.items()
        }

    @property
    def fingerprint(self) -> str:
        """Hash of the file names, the keys, and the position of each member."""
        return fingerprint("tar", self._names, self._fields, self._keys.blob, self._members, *self._tags)

    def _sample(self, index: int) -> Sample:
        file, _ = self._where(index)
        key = self._keys[index]
        sample: Sample = {"name": f"{self._names[file]}, {key}", "key": key}
        with naming(sample["name"]):
            for number, text in enumerate(self._fields):
                name, _, suffixes = text.partition("=")
                offset, size = (int(value) for value in self._members[index, number])
                if offset < 0:
                    raise ImageError("BAD_RECORD", f"has no member with the suffix .{suffixes.replace(';', ' or .')}")
                data = self._piece(file, offset, size)
                try:
                    is_text = self._type_tag and name in self.types.fields and not suffixes.endswith("json")
                    sample[name] = data if is_text else _value(suffixes, data)
                except (ValueError, RecursionError) as error:
                    raise ImageError("BAD_RECORD", f"the member .{suffixes} is invalid: {error}") from None
        return sample


def _value(suffixes: str, data: bytes) -> Any:
    """Convert the contents of a member according to its suffix."""
    match suffixes.rpartition(".")[2]:
        case "cls" | "index":
            if len(data) > 20:
                raise ValueError(f"an integer must have at most 20 bytes, not {len(data):,}")
            return int(data)
        case "json":
            return msgspec.json.decode(data)
        case "txt":
            return data.decode()
    return data


def tar(
    paths: StrPath | Sequence[StrPath],
    *,
    image: str = ";".join(_IMAGES),
    label: str | None = "cls",
    classes: Sequence[str] = (),
    box_format: BoxSource = "xyxy",
    types: Mapping[str, FieldType] | None = None,
    **fields: str | None,
) -> TarSamples:
    """Read the samples of tar files in WebDataset's layout.

    The headers are read once, when the source is created, which takes about 4 us per member. A sample has ``image``,
    ``label``, ``key``, ``name`` (the file and the key), and the requested fields. The suffix of a member determines its
    type: ``cls`` and ``index`` become integers, ``json`` is parsed, ``txt`` becomes a string, and all other members are
    bytes. A sample is broken if a member is missing or occurs twice, or if its members are not adjacent. If a header is
    corrupt, the rest of the file becomes a single broken sample.

    >>> samples = tar("train-*.tar", caption="txt", about="json")             # doctest: +SKIP

    Args:
        paths: Paths, or patterns such as ``train-*.tar``. Compressed files are rejected, because they do not allow
            random access.
        image: Suffix of the image, or several suffixes separated by semicolons.
        label: Suffix of the label. None means that the samples have no labels.
        classes: Names of the classes, in the order of their indices.
        box_format: Format of the field ``boxes``; see ``rows``.
        types: Types of fields, which take precedence over their suffixes; see ``table``.
        **fields: Further fields: the name of each, and the suffix of its member, such as ``caption="txt"``.

    Raises:
        DataError: A file is missing, compressed, or not a tar file, or there are no samples.
    """
    check_source_format(box_format)
    members: dict[str, str] = named(image=image, label=label, **fields)
    wanted = [f"{name}={suffixes.lower()}" for name, suffixes in members.items()]
    columns: dict[str, list[int]] = {}
    for number, suffixes in enumerate(members.values()):
        for suffix in suffixes.lower().split(";"):
            columns.setdefault(suffix, []).append(number)
    files = archives(paths)

    def scanned(path: str) -> _Shard:
        with Opened(path) as file:
            return _scanned(file, columns, len(wanted))

    shards = scan(files, scanned)
    if not any(shard.keys for shard in shards):
        note = next((note for shard in shards for note in shard.notes), "contains no samples")
        raise DataError(f"{files[0]}: {note}")
    return typed(TarSamples(files, shards, wanted, tuple(classes)), types, members, box_format)


@dataclass(frozen=True)
class _Member:
    """A member of a tar file: its name, the offset and size of its data, and the error if it cannot be used."""

    name: str
    offset: int
    size: int
    problem: ImageError | None = None


def _scanned(file: Opened, columns: Mapping[str, list[int]], count: int) -> _Shard:
    """Scan a tar file.

    Args:
        file: The file.
        columns: Numbers of the fields that use each suffix.
        count: Number of fields.
    """
    shard = _Shard()
    seen: dict[str, int] = {}
    suffixes: set[str] = set()
    skipped = 0
    for member in _members(file, shard.notes):
        stem, dot, suffix = member.name.rpartition("/")[2].partition(".")
        if not stem or not dot:
            skipped += 1  # like WebDataset, skip names without a suffix, and hidden files
            continue
        key, suffix = member.name[: -len(suffix) - 1], suffix.lower()
        if not shard.keys or key != shard.keys[-1]:
            suffixes = set()
            shard.keys.append(key)
            shard.members.extend((-1, 0) * count)
            if key in seen:
                text = "the members are not adjacent: members of other samples are between them"
                shard.problems[seen[key]] = shard.problems[len(shard.keys) - 1] = ImageError("BAD_RECORD", text)
            seen[key] = len(shard.keys) - 1
        number = len(shard.keys) - 1
        problem = member.problem
        if suffix in suffixes:
            problem = ImageError("BAD_RECORD", f"has two members with the suffix .{suffix[:80]}")
        elif key.startswith("/") or ".." in key.split("/"):
            problem = ImageError("BAD_RECORD", "the name is an absolute path, or contains ..")
        suffixes.add(suffix)
        if problem is not None:
            shard.problems.setdefault(number, problem)
        for column in [] if problem else columns.get(suffix, []):
            at = 2 * (number * count + column)
            if shard.members[at] >= 0:
                text = f"has several members for the same field, such as .{suffix}"
                shard.problems.setdefault(number, ImageError("BAD_RECORD", text))
            shard.members[at], shard.members[at + 1] = member.offset, member.size
    if skipped:
        shard.notes.append(f"{skipped:,} members were skipped, because the name has no suffix or begins with a dot")
    return shard


def _members(file: Opened, notes: list[str]) -> Iterator[_Member]:
    """Yield the members of a tar file except folders, in order.

    If the file is truncated or a header is corrupt, the last member represents the unreadable rest of the file.
    """
    total = file.size
    offset, long_name, pax = 0, "", dict[str, str]()

    def lost(what: str, reason: Any = "CORRUPT") -> _Member:
        text = f"{what} at byte {offset:,}: the {total - offset:,} bytes from there cannot be read"
        notes.append(text)
        return _Member(f"byte-{offset}.lost", 0, 0, ImageError(reason, text))

    while offset < total:
        header = file.read(_BLOCK, offset)
        if len(header) < _BLOCK:
            yield lost("the file is truncated in the header", "TRUNCATED")
            return
        if not any(header):
            _check_end(file, offset, notes)
            return
        size = _number(header[124:136])
        if size is None or not _is_intact(header):
            if offset == 0:
                tool = _PACKED.get(header[:2])
                hint = f"is compressed: decompress it first, with {tool} {Path(file.path).name}"
                raise DataError(f"{file.path}: {hint if tool else 'is not a tar file'}")
            yield lost("corrupt header")
            return
        kind = header[156:157]
        start = offset + _BLOCK
        if kind == b"S":  # old GNU format of sparse files, in which further headers may follow
            at = header[482]
            while at and start < total:
                at = (file.read(_BLOCK, start) + bytes(_BLOCK))[504]
                start += _BLOCK
        if kind not in b"xgLK" and "size" in pax:
            size = int(pax["size"])
        if kind in b"123456":  # links, devices, folders and FIFOs have no data, even if their header declares a size
            size = 0
        end = start + -(-size // _BLOCK) * _BLOCK
        if kind in b"xgLK":
            if size > _MAX_PAX_BYTES:
                yield lost(f"too large extended header ({size:,} bytes)")
                return
            data = file.read(size, start)
            if kind == b"L":
                long_name = _decoded(data)
            elif kind == b"x":
                found = _pax(data)
                if found is None:
                    yield lost("corrupt pax header")
                    return
                pax = found
        else:
            name = (pax.get("path") or long_name or _name(header)).partition("\0")[0]
            if (beyond := start + size - total) > 0:
                text = f"the tar file ends {beyond:,} byte{'s' * (beyond > 1)} before the end of this member"
                yield _Member(name, 0, 0, ImageError("TRUNCATED", text))
                notes.append(f"the file is truncated in the member {name}")
                return
            yield from _taken(name, kind, start, size, is_sparse=any(key.startswith("GNU.sparse") for key in pax))
            long_name, pax = "", {}
        offset = end


def _taken(name: str, kind: bytes, start: int, size: int, *, is_sparse: bool) -> Iterator[_Member]:
    """Yield a member, unless it is a folder."""
    problem = None
    if len(name) > _MAX_NAME_BYTES:
        problem = f"has a name of {len(name):,} characters, which is too long"
        name = f"{name[:80].partition('.')[0]}.long"
    elif kind in b"12":
        problem = "is a link, which is not followed"
    elif kind == b"S" or is_sparse:
        problem = "is a sparse file, which is not supported"
    elif kind == b"5":
        return
    elif kind not in b"0\x007":
        problem = f"is a special file of type {kind!r}, which is not supported"
    suffix = name.rpartition("/")[2].partition(".")[2]
    error = ImageError("BAD_RECORD", f"the member .{suffix[:80]} {problem}") if problem else None
    yield _Member(name, start, size, error)


def _check_end(file: Opened, offset: int, notes: list[str]) -> None:
    """Add a note if a second archive follows the end of the first one, as in the result of ``cat a.tar b.tar``."""
    rest = file.read(min(1 << 16, file.size - offset), offset)
    if any(rest):
        notes.append(f"the archive ends at byte {offset:,}, and the data after its end is ignored")


def _number(text: bytes) -> int | None:
    """Parse a number of a header, in octal or in GNU's base-256 format. None if it is invalid or negative."""
    if text[0] == 0x80:
        return int.from_bytes(text[1:], "big")
    digits = text.split(b"\0", 1)[0].strip()
    if len(digits) > 12 or digits.strip(b"01234567"):
        return None
    return int(digits or b"0", 8)


def _is_intact(header: bytes) -> bool:
    """Return whether the checksum of a header is valid.

    It is the sum of all bytes, with the checksum field itself counted as eight spaces. Some implementations sum signed
    bytes.
    """
    check = _number(header[148:156])
    total = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    return check == total or check == total - 256 * sum(byte > 127 for byte in header[:148] + header[156:])


def _name(header: bytes) -> str:
    name = _decoded(header[:100])
    prefix = _decoded(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _decoded(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode(errors="surrogateescape")


def _pax(data: bytes) -> dict[str, str] | None:
    """Parse the records ``length key=value`` of a pax header. None if the header is invalid."""
    found = {}
    while data:
        digits, blank, _ = data.partition(b" ")
        if not blank or not digits.isdigit() or len(digits) > 7:
            return None
        length = int(digits)
        key, equals, value = data[len(digits) + 1 : length - 1].partition(b"=")
        if not equals or length > len(data) or data[length - 1 : length] != b"\n":
            return None
        found[key.decode(errors="surrogateescape")] = value.decode(errors="surrogateescape")
        data = data[length:]
    if "size" in found and not (found["size"].isdecimal() and len(found["size"]) < 19):
        return None
    return found
