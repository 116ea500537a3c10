"""A source from words: what the command line takes for one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pixprep.errors import DataError
from pixprep.training import read
from pixprep.training.sources import Source
from pixprep.training.sources.storage import is_remote

_GIVEN = ("concat", "iterable", "rows", "subset")  # and not opened
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
_DEFAULTS: dict[str, dict[str, Any]] = {"tar": {"label": None}}  # an archive need not have labels to be looked at


def open_source(text: str, options: Mapping[str, Any]) -> Source:
    """Open the source ``KIND:PATH``, or a path whose kind follows from its name.

    A folder is ``voc`` if it has VOC's folders, else ``files``. ``.csv`` and ``.tsv`` are ``table``, ``.json`` is
    ``coco``, ``.tar`` is ``tar``, ``.parquet`` is ``parquet``, and a name that contains ``tfrecord`` is ``tfrecord``.

    Args:
        text: Text such as ``train/``, ``flowers-*.tfrecord``, ``coco:instances.json``.
        options: Arguments of the function of ``pixprep.read``; ``coco`` needs ``images``.

    Raises:
        DataError: the kind is not plain, an option is unknown or missing, or the source cannot be read.
    """
    kind, colon, path = text.partition(":")
    if not (colon and kind in KINDS):
        kind, path = _kind(text), text
    make = KINDS[kind]
    _check(kind, read.coco if kind == "coco" else make, options)
    if kind == "coco" and "images" not in options:
        raise DataError(f"{path}: specify the folder of the images: --option images=FOLDER")
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
        raise DataError(f"{text}: specify its kind: {', '.join(f'{kind}:' for kind in KINDS)} before the path")
    raise DataError(f"{text}: no such file or folder")


def _check(kind: str, make: Callable[..., Source], options: Mapping[str, Any]) -> None:
    """Refuse an option that the function does not have."""
    parameters = list(inspect.signature(make).parameters.values())
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters if each.name not in ("where", "path", "folder", "annotations")]
    for name in options:
        if name not in known:
            raise DataError(f"{kind} has no option {name!r}; it has {', '.join(known)}")
