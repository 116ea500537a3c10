"""A source for LMDB, a key-value store in one file, as used by LSUN and by data sets for text recognition."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from pixprep.errors import DataError, ImageError, needed
from pixprep.training.sources import LIMITS, Sample, Source, naming
from pixprep.training.sources.storage import Names, StrPath, absolute, fingerprint, is_remote
from pixprep.training.sources.types import FieldType, named, typed

_COUNT = b"num-samples"
_LOCK = Lock()
_STORES: WeakValueDictionary[tuple[int, str], _Store] = WeakValueDictionary()
_NUMBERED = re.compile(r"[^%]*%0?\d*d[^%]*")


class LmdbValues(Source):
    """The values of an LMDB; see ``Source``. Returned by ``lmdb``."""

    def __init__(self, path: str, fields: Mapping[str, str], keys: Names | None, count: int, first: int) -> None:
        self._path, self._fields, self._keys, self._count, self._first = path, dict(fields), keys, count, first
        self._held: tuple[int, _Store] | None = None

    @property
    def fingerprint(self) -> str:
        """Hash of all keys, or of the patterns and the number of samples."""
        return fingerprint("lmdb", self._fields, self._count, self._keys.blob if self._keys else b"", *self._tags)

    def __len__(self) -> int:
        return self._count

    def _sample(self, index: int) -> Sample:
        keys = {field: pattern % (self._first + index) for field, pattern in self._fields.items()}
        keys = keys or {"image": self._keys[index] if self._keys else ""}
        sample: Sample = {"name": keys["image"]}
        with naming(keys["image"]), self._store().reading() as transaction:
            for field, key in keys.items():
                value = transaction.get(key.encode(errors="surrogateescape"))
                if value is None:
                    raise ImageError("BAD_RECORD", f"the LMDB has no key {key!r}")
                LIMITS.get().check_bytes(len(value))
                sample[field] = bytes(value) if field == "image" else _text(bytes(value), key)
        return sample

    def _store(self) -> _Store:
        if self._held is None or self._held[0] != os.getpid():
            self._held = os.getpid(), _store(self._path)
        return self._held[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_held": None}


def lmdb(
    path: StrPath,
    *,
    image: str | None = None,
    first: int = 1,
    classes: Sequence[str] = (),
    types: Mapping[str, FieldType] | None = None,
    **fields: str | None,
) -> LmdbValues:
    """Read an LMDB with the package ``lmdb``. Open only trusted files, because a malicious file can crash the process.

    >>> bedrooms = lmdb("bedroom_train_lmdb")                                             # doctest: +SKIP
    >>> words = lmdb("MJ_train", image="image-%09d", text="label-%09d")                   # doctest: +SKIP

    Args:
        path: Path of the LMDB: its folder or its file.
        image: Pattern of the images' keys, with a placeholder for the number of the sample, such as ``image-%09d``. The
            key ``num-samples`` contains the number of samples. Default: every value is an encoded image, in the order
            of the keys.
        first: Number of the first sample in the keys.
        classes: Names of the classes, in the order of their indices.
        types: Types of fields; see ``table``. Fields without a type are strings.
        **fields: Key patterns of further fields, whose values are UTF-8 text.

    Raises:
        DataError: The LMDB cannot be opened or is empty, or a pattern has no placeholder.
        SetupError: The package ``lmdb`` is not installed.
    """
    if is_remote(path) or not Path(path).exists():
        problem = "an LMDB must be a local file: download it" if is_remote(path) else "no such file or folder"
        raise DataError(f"{os.fspath(path)}: {problem}")
    patterns = named(image=image, **fields)
    if patterns and image is None:
        raise DataError(
            f'{", ".join(patterns)}: further fields require a key pattern for the images, such as image="image-%09d"'
        )
    for field, pattern in patterns.items():
        if not _NUMBERED.fullmatch(str(pattern)):
            raise DataError(f"{field}={pattern!r} must contain exactly one placeholder for a number, as in image-%09d")
    where = absolute(path)
    store = _store(where)
    with store.reading() as transaction:
        if patterns:
            declared = transaction.get(_COUNT)
            count, keys = _number(bytes(declared or b""), where), None
            if count > (entries := transaction.stat()["entries"]):
                raise DataError(
                    f'{where}: the key "{_COUNT.decode()}" declares {count:,} samples, but there are only {entries:,} '
                    "keys: store the correct number of samples under that key"
                )
        else:
            found = [bytes(key) for key in transaction.cursor().iternext(keys=True, values=False)]
            if any(b"\0" in key for key in found):
                raise DataError(f"{where}: a key contains a NUL character, which is not supported")
            keys = Names([[key.decode(errors="surrogateescape") for key in found]])
            count = len(keys)
    if count < 1:
        raise DataError(f"{where}: contains no samples")
    source = LmdbValues(where, {field: str(pattern) for field, pattern in patterns.items()}, keys, count, first)
    source.classes = tuple(classes)
    return typed(source, types, patterns)


class _Store:
    """An open LMDB. It is closed when it is no longer referenced.

    LMDB requires that a process opens each file only once.
    """

    def __init__(self, path: str) -> None:
        self._environment = _open(path)

    def reading(self) -> Any:
        """Return a read transaction. Its values are views, which are valid only until it ends."""
        return self._environment.begin(buffers=True)


def _store(path: str) -> _Store:
    with _LOCK:
        if (store := _STORES.get((os.getpid(), path))) is None:
            _STORES[os.getpid(), path] = store = _Store(path)
    return store


def _open(path: str) -> Any:
    library = needed("lmdb")
    try:
        return library.open(path, subdir=Path(path).is_dir(), readonly=True, lock=False, readahead=False, meminit=False)
    except library.Error as error:
        raise DataError(f"{path}: cannot be opened as an LMDB: {error}") from None


def _number(text: bytes, path: str) -> int:
    if not text.isdigit() or len(text) > 18:
        raise DataError(f'{path}: the key "{_COUNT.decode()}" must contain the number of samples, not {text[:40]!r}')
    return int(text)


def _text(value: bytes, key: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ImageError("BAD_RECORD", f"the value of the key {key!r} is not valid UTF-8") from None
