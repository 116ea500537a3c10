"""Image files: folders as classes, a list, or a table."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pixprep.engine.decoders import KINDS, USUAL
from pixprep.errors import DataError, ImageError, printable
from pixprep.formats import CLIP_SUFFIXES
from pixprep.training.sources import Sample, Source, naming
from pixprep.training.sources.storage import (
    Names,
    StrPath,
    absolute,
    archives,
    fingerprint,
    folder_of,
    image_at,
    inside,
    is_remote,
    noted,
    opening,
    remote,
)
from pixprep.training.sources.types import NO_LABEL, FieldType, checked, converted, found_classes, guessed, typed

SUFFIXES = tuple(suffix for name in USUAL for suffix in KINDS[name].suffixes)
_MAX_FOLDERS = 64  # one in another


class ImageFiles(Source):
    """Image files, or clips, by their paths; see ``Source``. Made by ``files``, ``table`` and ``videos``.

    A sample has ``image`` (a path), ``name`` (the path relative to the folder or, for a list, to the common folder),
    ``label`` if there are labels, and the other columns of a table, as text.

    Attributes:
        labels: Label of each sample, used for weights and for counting classes.
    """

    holds: Literal["images", "clips"] = "images"

    def __init__(
        self,
        root: str,
        names: Names,
        labels: npt.NDArray[Any] | None,
        classes: tuple[str, ...],
        *,
        columns: Mapping[str, Names] | None = None,
        broken: Mapping[int, ImageError] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.classes = classes
        self.notes = noted(root, notes)
        self._root = root
        self._names = names
        self.labels = labels
        self._columns = dict(columns or {})
        self._broken = dict(broken or {})

    @property
    def fingerprint(self) -> str:
        """Hash of names, labels and columns."""
        labels = () if self.labels is None else self.labels
        columns = [part for name, texts in self._columns.items() for part in (name, texts.blob)]
        return fingerprint("files", self.classes, self._names.blob, labels, *columns, *self._tags)

    def __len__(self) -> int:
        return len(self._names)

    def _sample(self, index: int) -> Sample:
        name = self._names[index]
        sample: Sample = {column: texts[index] for column, texts in self._columns.items()}
        with naming(name):
            sample |= {"image": image_at(inside(self._root, name)), "name": name}
        if self.labels is not None:
            label = self.labels[index]
            sample["label"] = label.copy() if label.ndim else label.item()
        return sample


def files(
    where: StrPath | Sequence[StrPath], *, labels: npt.ArrayLike | None = None, classes: Sequence[str] | None = None
) -> ImageFiles:
    """Read image files from a folder or a list.

    A folder of folders is read like torchvision's ``ImageFolder``: each folder is a class, classes and files are sorted
    by
    name, and a class can contain nested folders. A folder that contains only images has no labels. Names that begin
    with a dot are ignored. A pattern such as ``train/*/*.jpg`` is the sorted list of the matching files, without
    labels.

    >>> train = files("train/")                                            # doctest: +SKIP
    >>> valid = files("valid/", classes=train.classes)                     # doctest: +SKIP

    Args:
        where: A folder, a pattern, or a list of paths.
        labels: For a list, the label of each path: the number of its class, a float, or a row of numbers.
        classes: Names of the labels. For a folder, the folders that are classes, in this order, so that two data sets
        get
            the same labels. Default: all folders.

    Raises:
        DataError: The folder does not exist, or the folder or a class does not contain images.
    """
    return _files(where, labels, classes, SUFFIXES)


def videos(
    where: StrPath | Sequence[StrPath], *, labels: npt.ArrayLike | None = None, classes: Sequence[str] | None = None
) -> ImageFiles:
    """Read clips from a folder or a list, for a pipeline that begins with ``decode_video``; see ``files``.

    >>> train = videos("train/")                                           # doctest: +SKIP

    Args:
        where: A folder whose folders are classes, or a list of paths.
        labels: For a list, the label of each path: the number of its class, a float, or a row of numbers.
        classes: Names of the labels.

    Raises:
        DataError: See ``files``.
    """
    found = _files(where, labels, classes, CLIP_SUFFIXES)
    found.holds = "clips"
    return found


def _files(
    where: StrPath | Sequence[StrPath],
    labels: npt.ArrayLike | None,
    classes: Sequence[str] | None,
    suffixes: tuple[str, ...],
) -> ImageFiles:
    if isinstance(where, str | os.PathLike) and _is_pattern(where):
        where = archives(where)
    if isinstance(where, str | os.PathLike):
        if labels is not None:
            raise DataError(f"{os.fspath(where)}: the labels of a folder are its folders: give labels with a list")
        if not is_remote(where) and Path(where).is_file():
            raise DataError(
                f"{os.fspath(where)}: is a file, not a folder: pass the list [path], or read a CSV "
                "with pixprep.read.table"
            )
        return _folder(folder_of(where), classes, suffixes)
    names = [absolute(path) for path in where]
    if not names:
        raise DataError("the list of files is empty")
    numbers = None if labels is None else _numbers(labels, len(names))
    if any(map(is_remote, names)):
        root = os.path.commonprefix(names).rpartition("/")[0]  # noqa: RUF071  (whose last slash ends it)
        if not is_remote(root):
            raise DataError("a list of files is of one bucket or server, or of none")
    else:
        root = os.path.commonpath([os.path.dirname(name) for name in names])  # noqa: PTH120
    inner = [name[len(root) :].lstrip("/") for name in names]
    if any("\0" in name for name in inner):
        raise DataError("a file's name has a NUL in it")
    return ImageFiles(root, Names([inner]), numbers, tuple(classes or ()))


def _numbers(labels: npt.ArrayLike, count: int) -> npt.NDArray[Any]:
    """Labels of a list: integers, floats, or a row of numbers for each file."""
    try:
        found = np.array(labels)
    except ValueError:
        raise DataError("labels must be one number per file, or rows of equal length") from None
    if found.ndim == 0 or len(found) != count:
        raise DataError(f"{found.size:,} labels for {count:,} files")
    if found.dtype.kind not in "biuf":
        raise DataError(f"labels must be numbers, not {found.ravel()[0]!r}: pixprep.read.table supports class names")
    if found.dtype.kind == "u" and found.size and int(found.max()) > np.iinfo(np.int64).max:
        raise DataError(f"labels must fit in signed 64-bit integers, but {found.max()} is larger")
    return found if found.dtype.kind == "f" else found.astype(np.int64)


def _is_pattern(where: StrPath) -> bool:
    """Tell whether a path names files by a pattern; a ``?`` begins a URL's query, and a folder may have a ``[``."""
    is_there = not is_remote(where) and Path(where).exists()
    return any(sign in os.fspath(where) for sign in ("*{" if is_remote(where) else "*?[{")) and not is_there


def _folder(root: str, classes: Sequence[str] | None, suffixes: tuple[str, ...]) -> ImageFiles:
    folders, images, others = _listed(root, suffixes)
    kind = "clip" if suffixes is CLIP_SUFFIXES else "image"
    notes = []
    inside_folders = (found for name in folders for found, _ in _walk(root, name, suffixes))
    if not folders or (images and classes is None and not any(inside_folders)):
        if classes is not None:
            raise DataError(f"{root}: has no folders, which would be the classes")
        if not images:
            raise DataError(f"{root}: no {kind} in this folder ({' '.join(suffixes)})")
        if others or folders:
            notes.append(f"{_some([*folders, *others])} passed over, as no {kind} by name")
        return ImageFiles(root, Names([images]), None, (), notes=notes)
    if images:
        notes.append(f"{_some(images)} passed over, as in no class's folder")
    if classes is not None:
        if missing := [name for name in classes if name not in folders]:
            raise DataError(f"{root}: has no folder for {_some(missing)}; there are {_some(folders)}")
        if unknown := [name for name in folders if name not in classes]:
            raise DataError(f"{root}: {_some(unknown)} is not a class; the classes are {_some(list(classes))}")
    names = tuple(classes or folders)
    counts, parts, strange = [], [], []
    for name in names:
        part: list[str] = []
        for found, left in _walk(root, name, suffixes):
            part += found
            strange += left
        if not part:
            raise DataError(f"{root}: no {kind} in the folder of class {name!r} ({' '.join(suffixes)}): remove it")
        parts.append(part)
        counts.append(len(part))
    if strange:
        notes.append(f"{_some(strange)} passed over, as no {kind} by name")
    labels = np.repeat(np.arange(len(names)), counts)
    return ImageFiles(root, Names(parts), labels, names, notes=notes)


def _walk(
    root: str, folder: str, suffixes: tuple[str, ...], above: tuple[tuple[int, int], ...] = ()
) -> Iterator[tuple[list[str], list[str]]]:
    """Walk a folder and those inside, in the order of os.walk's sorted rows: images, and files that are none."""
    here = (0, len(above))
    if not is_remote(root):
        status = os.stat(f"{root}/{folder}")  # noqa: PTH116
        here = (status.st_dev, status.st_ino)
    if here in above or len(above) >= _MAX_FOLDERS:
        raise DataError(f"{root}/{folder}: folders in a circle of links, or {_MAX_FOLDERS} deep")
    folders, images, others = _listed(f"{root}/{folder}", suffixes)
    yield [f"{folder}/{name}" for name in images], [f"{folder}/{name}" for name in others]
    for name in folders:
        yield from _walk(root, f"{folder}/{name}", suffixes, (*above, here))


def _listed(path: str, suffixes: tuple[str, ...]) -> tuple[list[str], list[str], list[str]]:
    """Return the sorted names of the folders, images and other files of a folder. Links are followed."""
    folders, images, others = [], [], []
    with opening(path):
        if is_remote(path):
            found = remote().listed(path)
        else:
            with os.scandir(path) as entries:
                found = [(entry.name, entry.is_dir()) for entry in entries if not entry.name.startswith(".")]
    for name, is_folder in found:
        if name.startswith("."):
            continue
        if is_folder:
            folders.append(name)
        elif name.lower().endswith(suffixes):
            images.append(name)
        else:
            others.append(name)
    return sorted(folders), sorted(images), sorted(others)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(printable(name) for name in names[:3]) + more


def table(
    path: StrPath,
    *,
    image: str = "image",
    label: str | None = "label",
    root: StrPath | None = None,
    classes: Sequence[str] | None = None,
    types: Mapping[str, FieldType] | None = None,
) -> ImageFiles:
    """Read the image files listed in a table: CSV, or TSV according to the suffix, with column names in the first line.

    Each further line is a sample. Columns other than image, name and label become fields of the sample, as text unless
    ``types`` declares them. A line that cannot be read is a broken sample.

    If all labels are integers, they stay integers. If all labels are words, they become classes. In ambiguous cases,
    such as 0.5, an empty label, or numbers mixed with words, ``types`` must declare the type.

    >>> train = table("train.csv", image="file", label="species")        # doctest: +SKIP

    Args:
        path: The table, in UTF-8. A quoted field must end in the line in which it begins.
        image: Column of the paths. The paths must not leave ``root``.
        label: Column of the labels, or None.
        root: Folder to which paths are relative. Default: the folder of the table. ``"/"`` allows any absolute path.
        classes: Names of the labels, in order. A line with a different label is a broken sample. Default: the sorted
            values of the column.
        types: Types of columns, such as ``{"label": "float", "age": "int"}``: ``int``, ``float``, ``str``, ``classes``
            (one name of ``classes``) or ``multi_hot`` (names of ``classes`` separated by blanks, as float32 of 0 and
            1).
            ``label`` refers to the column of the labels. A line with an invalid value is a broken sample.

    Raises:
        DataError: The table cannot be read, lacks a column, or is empty; or the type of its labels is ambiguous.
    """
    where = os.fspath(path)
    folder = folder_of(root if root is not None else Path(where).parent)
    lines = _lines(where)
    first = next(lines, None)
    header = first[1] if first else []
    if not header or not isinstance(header, list) or len(set(header)) != len(header):
        raise DataError(f"{where}: its first line must contain the names of its columns, each once")
    for column in (image, *([label] if label is not None else [])):
        if column not in header:
            known = ", ".join(map(repr, header[:20])) or "none"
            hint = "" if column == image else "; use label=None for a table without labels"
            raise DataError(f"{where}: has no column {column!r}; there are {printable(known)}{hint}")
    broken: dict[int, ImageError] = {}
    others = [name for name in header if name not in (image, label)]
    columns: dict[str, list[str]] = {name: [] for name in header}
    numbered: list[int] = []
    for index, (number, row) in enumerate(lines):
        numbered.append(number)
        fields = row if isinstance(row, list) else []
        problem = None
        if isinstance(row, str):
            problem = row
        elif len(row) != len(header):
            problem = f"{len(row)} fields for {len(header)} columns"
        elif any("\0" in field for field in row):
            problem = "a NUL"
        else:
            try:
                inside(folder, row[header.index(image)])
            except ImageError as error:
                problem = error.detail
        if problem is not None:
            broken[index] = ImageError("BAD_RECORD", f"{Path(where).name}, line {number}: {problem}")
            fields = [""] * len(header)
        for name, field in zip(header, fields, strict=True):
            columns[name].append(sys.intern(field) if name == label else field)
    if not columns[image]:
        raise DataError(f"{where}: has no rows after the header line")
    names = tuple(classes or ())
    declared = checked(types, [*others, *([] if label is None else ["label"])])
    numbers = None
    if label is not None:
        texts = dict.fromkeys(text for index, text in enumerate(columns[label]) if index not in broken)
        kind, doubtful = declared.get("label", "classes" if names else None), ""
        if kind is None:
            kind, doubtful = guessed(texts)
        if kind is None:
            number = numbered[columns[label].index(doubtful)]
            raise DataError(
                f"{where}: line {number}: the label {doubtful[:80]!r} may be a number or a class: declare the type of "
                f'the column {label!r}: types={{"label": "float"}}, or "int", "classes", "multi_hot", "str"'
            )
        if kind in ("classes", "multi_hot"):
            names = names or found_classes(kind, texts)
        values, errors = _labels(kind, texts, names)
        for index, text in enumerate(columns[label] if errors else ()):
            if index not in broken and text in errors:
                words = f"{Path(where).name}, line {numbered[index]}: the label {errors[text]}"
                broken[index] = ImageError("BAD_RECORD", words)
        if kind in ("str", "multi_hot"):
            others.append("label")
            columns["label"] = columns[label]
        else:
            numbers = np.array(
                [values.get(text, NO_LABEL if kind == "int" else -1) for text in columns[label]],
                float if kind == "float" else np.int64,
            )
            declared.pop("label", None)
    source = ImageFiles(
        folder,
        Names([columns[image]]),
        numbers,
        names,
        columns={name: Names([columns[name]]) for name in others},
        broken=broken,
        notes=[error.detail for error in islice(broken.values(), 100)],
    )
    return typed(source, declared, [*others, "label"])


def _lines(where: str) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the number of each line that is not empty, with its fields or its error.

    Lines are parsed one by one, so that a quote without an end costs its own line, and not all that follow. A line
    without quotes is its pieces, which takes a tenth of the time.
    """
    delimiter = "\t" if where.lower().endswith(".tsv") else ","
    if os.path.exists(where) and not os.path.isfile(where):  # noqa: PTH110, PTH113
        raise DataError(f"{where}: cannot be read: Not a regular file")
    with opening(where), open(where, encoding="utf-8-sig", errors="surrogateescape") as file:  # noqa: PTH123
        for number, line in enumerate(file, 1):
            text = line.rstrip("\n")
            if '"' not in text:
                if text:
                    yield number, text.split(delimiter)
                continue
            try:
                yield number, next(csv.reader([text], delimiter=delimiter, strict=True))
            except csv.Error as error:
                yield number, str(error)


def _labels(kind: FieldType, texts: Iterable[str], classes: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    """What each label becomes, and why some cannot."""
    made, errors = {}, {}
    for text in texts:
        try:
            made[text] = converted(kind, text, classes)
        except ValueError as error:
            errors[text] = str(error)
    return made, errors
