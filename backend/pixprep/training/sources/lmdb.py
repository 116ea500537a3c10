"""LMDB: a store of keys and values in one file, such as LSUN's photos and the words of text recognition."""

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
    """The values of an LMDB; see ``Source``. Made by ``lmdb``."""

    def __init__(self, path: str, fields: Mapping[str, str], keys: Names | None, count: int, first: int) -> None:
        self._path, self._fields, self._keys, self._count, self._first = path, dict(fields), keys, count, first
        self._held: tuple[int, _Store] | None = None

    @property
    def fingerprint(self) -> str:
        """Hash of the keys, or hash of their patterns and number."""
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
                    raise ImageError("BAD_RECORD", f"no value of the key {key!r}")
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
    """Read an LMDB with the package ``lmdb``. Open only trusted files: a forged file can crash the process.

    >>> bedrooms = lmdb("bedroom_train_lmdb")                                             # doctest: +SKIP
    >>> words = lmdb("MJ_train", image="image-%09d", text="label-%09d")                   # doctest: +SKIP

    Args:
        path: Folder of the LMDB, or its file.
        image: Pattern of the keys of the images, with an integer in it; the key ``num-samples`` contains their number.
            Default: each value is an encoded image, in the order of the keys.
        first: Number of the first sample in the pattern.
        classes: Names of the labels.
        types: Types of fields; see ``table``. Fields without a type are strings.
        **fields: Patterns of the keys of further fields, whose values are UTF-8.

    Raises:
        DataError: The LMDB cannot be opened or is empty, or a pattern has no number.
        SetupError: The package is not installed.
    """
    if is_remote(path) or not Path(path).exists():
        raise DataError(
            f"{os.fspath(path)}: {'an LMDB is a local file' if is_remote(path) else 'no such folder or file'}"
        )
    patterns = named(image=image, **fields)
    if patterns and image is None:
        raise DataError(
            f'{", ".join(patterns)}: other keys also require a pattern for the images, such as image="image-%09d"'
        )
    for field, pattern in patterns.items():
        if not _NUMBERED.fullmatch(str(pattern)):
            raise DataError(f"{field}={pattern!r} is not a key pattern: it must contain one number, such as image-%09d")
    whole = absolute(path)
    store = _store(whole)
    with store.reading() as transaction:
        if patterns:
            said = transaction.get(_COUNT)
            count, keys = _number(bytes(said or b""), whole), None
            if count > (entries := transaction.stat()["entries"]):
                raise DataError(
                    f'{whole}: the key "{_COUNT.decode()}" declares {count:,} samples, but the total number of keys is '
                    f"{entries:,}: store the number of samples under that key"
                )
        else:
            found = [bytes(key) for key in transaction.cursor().iternext(keys=True, values=False)]
            if any(b"\0" in key for key in found):
                raise DataError(f"{whole}: a key has a NUL in it")
            keys = Names([[key.decode(errors="surrogateescape") for key in found]])
            count = len(keys)
    if count < 1:
        raise DataError(f"{whole}: contains no samples")
    source = LmdbValues(whole, {field: str(pattern) for field, pattern in patterns.items()}, keys, count, first)
    source.classes = tuple(classes)
    return typed(source, types, patterns)


class _Store:
    """An open file, which closes when nothing reads it any more. LMDB demands one for each process and file."""

    def __init__(self, path: str) -> None:
        self._environment = _open(path)

    def reading(self) -> Any:
        """A transaction; its values are views, which end with it."""
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
        raise DataError(f"{path}: is not an LMDB: {error}") from None


def _number(text: bytes, path: str) -> int:
    if not text.isdigit() or len(text) > 18:
        raise DataError(f'{path}: the key "{_COUNT.decode()}" must contain the number of samples, not {text[:40]!r}')
    return int(text)


def _text(value: bytes, key: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ImageError("BAD_RECORD", f"the value of the key {key!r} is not UTF-8") from None
