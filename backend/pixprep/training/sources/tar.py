"""Tar files as WebDataset has them: the members of a sample share a key, and stand next to each other.

``some/0001.jpg`` and ``some/0001.cls`` are sample ``some/0001``: a key ends at the first dot of the base name, and what
follows is the suffix, in lower case. Nothing is ever unpacked to a disk. Sources: POSIX.1-2008's pax; GNU tar's manual;
webdataset/tariterators.py.
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
    """Index of one file: for each sample its key, and for each field the first byte and the size of its member."""

    keys: list[str] = field(default_factory=list)
    members: array[int] = field(default_factory=lambda: array("q"))
    problems: dict[int, ImageError] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class TarSamples(Archives):
    """The samples of tar files; see ``Source``. Made by ``tar``."""

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
        """Hash of the files' names, the keys, and the position of each member."""
        return fingerprint("tar", self._names, self._fields, self._keys.blob, self._members, *self._tags)

    def _sample(self, index: int) -> Sample:
        file, _ = self._where(index)
        key = self._keys[index]
        sample: Sample = {"name": f"{self._names[file]}, {key}", "key": key}
        with naming(sample["name"]):
            for number, text in enumerate(self._fields):
                word, _, suffixes = text.partition("=")
                offset, size = (int(value) for value in self._members[index, number])
                if offset < 0:
                    raise ImageError("BAD_RECORD", f"has no member .{suffixes.replace(';', ' or .')}")
                data = self._piece(file, offset, size)
                try:
                    is_text = self._type_tag and word in self.types.fields and not suffixes.endswith("json")
                    sample[word] = data if is_text else _value(suffixes, data)
                except (ValueError, RecursionError) as error:
                    raise ImageError("BAD_RECORD", f"its .{suffixes} is broken: {error}") from None
        return sample


def _value(suffixes: str, data: bytes) -> Any:
    """Value of a member, read by its suffix."""
    match suffixes.rpartition(".")[2]:
        case "cls" | "index":
            if len(data) > 20:
                raise ValueError(f"a number of {len(data):,} bytes")
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

    The headers are read once, which takes about 4 us per member. A sample has ``image``, ``label``, ``key``, ``name``
    (the
    file and the key), and the requested fields. Members ``cls`` and ``index`` become integers, ``json`` is parsed,
    ``txt``
    becomes a string, and other members are bytes. A sample is broken if a member is missing or occurs twice, or if its
    members are not adjacent. After a broken header, the rest of the file is one broken sample.

    >>> samples = tar("train-*.tar", caption="txt", about="json")             # doctest: +SKIP

    Args:
        paths: Files, or patterns such as ``train-*.tar``. Compressed files are rejected, because they do not allow
        random
            access.
        image: Suffix of the image, or several suffixes separated by semicolons.
        label: Suffix of the label, or None.
        classes: Names of the labels.
        box_format: Format of the field ``boxes``; see ``rows``.
        types: Types of fields; see ``table``. The suffix determines the type of other fields.
        **fields: Further fields, as name and suffix of the member.

    Raises:
        DataError: A file is missing, compressed, or not a tar file, or contains no sample.
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
    """One member: its name, the place and size of its data, and why it cannot be taken."""

    name: str
    offset: int
    size: int
    problem: ImageError | None = None


def _scanned(file: Opened, columns: Mapping[str, list[int]], count: int) -> _Shard:
    """The samples of one file."""
    shard = _Shard()
    seen: dict[str, int] = {}
    suffixes: set[str] = set()
    passed = 0
    for member in _members(file, shard.notes):
        stem, dot, suffix = member.name.rpartition("/")[2].partition(".")
        if not stem or not dot:
            passed += 1  # as WebDataset: a name without a suffix, or a hidden file
            continue
        key, suffix = member.name[: -len(suffix) - 1], suffix.lower()
        if not shard.keys or key != shard.keys[-1]:
            suffixes = set()
            shard.keys.append(key)
            shard.members.extend((-1, 0) * count)
            if key in seen:
                text = "its members are not next to each other: other samples are between them"
                shard.problems[seen[key]] = shard.problems[len(shard.keys) - 1] = ImageError("BAD_RECORD", text)
            seen[key] = len(shard.keys) - 1
        number = len(shard.keys) - 1
        problem = member.problem
        if suffix in suffixes:
            problem = ImageError("BAD_RECORD", f"has two members .{suffix[:80]}")
        elif key.startswith("/") or ".." in key.split("/"):
            problem = ImageError("BAD_RECORD", "its name leads out of where it would be unpacked")
        suffixes.add(suffix)
        if problem is not None:
            shard.problems.setdefault(number, problem)
        for column in [] if problem else columns.get(suffix, []):
            at = 2 * (number * count + column)
            if shard.members[at] >= 0:
                shard.problems.setdefault(number, ImageError("BAD_RECORD", f"has another image or field .{suffix}"))
            shard.members[at], shard.members[at + 1] = member.offset, member.size
    if passed:
        shard.notes.append(f"{passed:,} members passed over: they have no suffix, or begin with a dot")
    return shard


def _members(file: Opened, notes: list[str]) -> Iterator[_Member]:
    """The members that are no folders, in order; the last may stand for all that is lost behind a broken header."""
    total = file.size
    offset, long_name, pax = 0, "", dict[str, str]()

    def lost(what: str, reason: Any = "CORRUPT") -> _Member:
        text = f"{what} at byte {offset:,}: the {total - offset:,} bytes from there are lost"
        notes.append(text)
        return _Member(f"byte-{offset}.lost", 0, 0, ImageError(reason, text))

    while offset < total:
        header = file.read(_BLOCK, offset)
        if len(header) < _BLOCK:
            yield lost("the file ends in a header", "TRUNCATED")
            return
        if not any(header):
            _look_behind(file, offset, notes)
            return
        size = _number(header[124:136])
        if size is None or not _is_intact(header):
            if offset == 0:
                tool = _PACKED.get(header[:2])
                text = f"is compressed: unpack it first: {tool} {Path(file.path).name}" if tool else "is not a tar file"
                raise DataError(f"{file.path}: {text}")
            yield lost("a broken header")
            return
        kind = header[156:157]
        start = offset + _BLOCK
        if kind == b"S":  # GNU's old way of files with holes: more headers may follow
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
                yield lost(f"a header of {size:,} bytes")
                return
            data = file.read(size, start)
            if kind == b"L":
                long_name = _decoded(data)
            elif kind == b"x":
                found = _pax(data)
                if found is None:
                    yield lost("a broken pax header")
                    return
                pax = found
        else:
            name = (pax.get("path") or long_name or _name(header)).partition("\0")[0]
            if (beyond := start + size - total) > 0:
                text = f"the file ends {beyond:,} byte{'s' * (beyond > 1)} before it does"
                yield _Member(name, 0, 0, ImageError("TRUNCATED", text))
                notes.append(f"the file ends in its member {name}")
                return
            yield from _taken(name, kind, start, size, is_sparse=any(key.startswith("GNU.sparse") for key in pax))
            long_name, pax = "", {}
        offset = end


def _taken(name: str, kind: bytes, start: int, size: int, *, is_sparse: bool) -> Iterator[_Member]:
    """A member, unless it is a folder."""
    problem = None
    if len(name) > _MAX_NAME_BYTES:
        name, problem = f"{name[:80].partition('.')[0]}.long", f"has a name of {len(name):,} letters"
    elif kind in b"12":
        problem = "is a link, which is not followed"
    elif kind == b"S" or is_sparse:
        problem = "is a file with holes"
    elif kind == b"5":
        return
    elif kind not in b"0\x007":
        problem = f"is a special file of type {kind!r}"
    suffix = name.rpartition("/")[2].partition(".")[2]
    yield _Member(name, start, size, ImageError("BAD_RECORD", f"its .{suffix[:80]} {problem}") if problem else None)


def _look_behind(file: Opened, offset: int, notes: list[str]) -> None:
    """Report a second archive after the end of the first one, as ``cat a.tar b.tar`` creates."""
    rest = file.read(min(1 << 16, file.size - offset), offset)
    if any(rest):
        notes.append(f"there is data behind the end of the archive at byte {offset:,}, which is not read")


def _number(text: bytes) -> int | None:
    """Return a number of a header, in octal or in GNU's base 256; None if it is invalid or negative."""
    if text[0] == 0x80:
        return int.from_bytes(text[1:], "big")
    digits = text.split(b"\0", 1)[0].strip()
    if len(digits) > 12 or digits.strip(b"01234567"):
        return None
    return int(digits or b"0", 8)


def _is_intact(header: bytes) -> bool:
    """Tell whether a header's checksum holds: the sum of its bytes, its own eight as blanks; some sum signed bytes."""
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
    """Return the records ``length key=value`` of a pax header; None if the header is invalid."""
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
