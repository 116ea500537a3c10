"""Opens the source that a command-line argument specifies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pixprep.errors import DataError
from pixprep.training import read
from pixprep.training.sources import Source
from pixprep.training.sources.storage import is_remote

_GIVEN = ("concat", "draw", "iterable", "rows", "subset")  # these cannot be opened by path
KINDS: dict[str, Callable[..., Source]] = {
    **{name: getattr(read, name) for name in read.__all__ if name not in _GIVEN},
    "coco": lambda path, images, **options: read.coco(images, path, **options),
}
_SUFFIXES = {
    ".csv": "table",
    ".tsv": "table",
    ".json": "coco",
    ".tar": "tar",
    ".tfrecord": "tfrecord",
    ".parquet": "parquet",
}
_DEFAULTS: dict[str, dict[str, Any]] = {"tar": {"label": None}}  # the commands accept archives without labels


def open_source(text: str, options: Mapping[str, Any]) -> Source:
    """Open a source from ``KIND:PATH``, or from a path whose name determines the kind.

    A folder is opened as ``voc`` if it contains the folders of Pascal VOC, and as ``files`` otherwise. ``.csv`` and
    ``.tsv`` files are opened as ``table``, ``.json`` as ``coco``, ``.tar`` as ``tar``, ``.parquet`` as ``parquet``, and
    paths whose name contains ``tfrecord`` as ``tfrecord``.

    Args:
        text: The argument, such as ``train/``, ``flowers-*.tfrecord`` or ``coco:instances.json``.
        options: Keyword arguments for the function of ``pixprep.read``. ``coco`` requires ``images``.

    Raises:
        DataError: The kind cannot be determined, an option is unknown or missing, or the source cannot be read.
    """
    kind, colon, path = text.partition(":")
    if not (colon and kind in KINDS):
        kind, path = _kind(text), text
    make = KINDS[kind]
    _check(kind, read.coco if kind == "coco" else make, options)
    if kind == "coco" and "images" not in options:
        raise DataError(f"{path}: COCO annotations need the folder of the images: add --option images=FOLDER")
    return make(path, **{**_DEFAULTS.get(kind, {}), **options})


def _kind(text: str) -> str:
    path = Path(text)
    if path.is_dir():
        return "voc" if all((path / name).is_dir() for name in ("JPEGImages", "Annotations")) else "files"
    if "tfrecord" in path.name:
        return "tfrecord"
    if path.suffix.lower() in _SUFFIXES:
        return _SUFFIXES[path.suffix.lower()]
    if is_remote(text):
        return "files"
    if path.exists():
        kinds = ", ".join(f"{kind}:" for kind in KINDS)
        raise DataError(f"{text}: the kind of source cannot be determined from the name: prefix the path with {kinds}")
    raise DataError(f"{text}: no such file or folder")


def _check(kind: str, make: Callable[..., Source], options: Mapping[str, Any]) -> None:
    """Reject options that are not parameters of the function."""
    parameters = list(inspect.signature(make).parameters.values())
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters if each.name not in ("where", "path", "folder", "annotations")]
    for name in options:
        if name not in known:
            raise DataError(f"{kind} has no option {name!r}; its options are {', '.join(known)}")
