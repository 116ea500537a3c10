"""Sources of image files and clips: folders as classes, lists of paths, and tables."""

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
_MAX_FOLDERS = 64
"""Maximum nesting depth of folders."""


class ImageFiles(Source):
    """Image files or clips; see ``Source``. Returned by ``files``, ``table`` and ``videos``.

    A sample has ``image`` (a path), ``name`` (the path relative to the folder, or to the common folder of a list),
    ``label`` if there are labels, and the other columns of a table as text.

    Attributes:
        labels: Label of each sample, which determines balanced weights and the counts per class. None if there are no
            labels.
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
        """Hash of the names, labels and columns."""
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

    A folder that contains folders is read like torchvision's ``ImageFolder``: each folder is a class, classes and files
    are sorted by name, and a class may contain nested folders. Samples from a folder that contains only images have no
    labels. Names that begin with a dot are ignored. A pattern such as ``train/*/*.jpg`` stands for the sorted list of
    matching files, without labels.

    >>> train = files("train/")                                            # doctest: +SKIP
    >>> valid = files("valid/", classes=train.classes)                     # doctest: +SKIP

    Args:
        where: A folder, a pattern, or a list of paths.
        labels: Labels for a list of paths: one class index or float per path, or an array with one row per path.
        classes: Names of the classes, in the order of their indices. For a folder, these are the names of its folders;
            pass them to use the same labels for several data sets. Default: all folders, sorted.

    Raises:
        DataError: The folder does not exist, or the folder or a class contains no images.
    """
    return _files(where, labels, classes, SUFFIXES)


def videos(
    where: StrPath | Sequence[StrPath], *, labels: npt.ArrayLike | None = None, classes: Sequence[str] | None = None
) -> ImageFiles:
    """Read clips from a folder or a list, for a pipeline that begins with ``decode_video``; see ``files``.

    >>> train = videos("train/")                                           # doctest: +SKIP

    Args:
        where: A folder that contains a folder per class, or a list of paths.
        labels: Labels for a list of paths; see ``files``.
        classes: Names of the classes; see ``files``.

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
            raise DataError(
                f"{os.fspath(where)}: the labels of a folder are determined by its folders: remove labels, or pass a "
                "list of paths"
            )
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
        root = os.path.commonprefix(names).rpartition("/")[0]  # noqa: RUF071  (cut at its last slash)
        if not is_remote(root):
            raise DataError("the files of a list must all be on the same server, in the same bucket, or local")
    else:
        root = os.path.commonpath([os.path.dirname(name) for name in names])  # noqa: PTH120
    inner = [name[len(root) :].lstrip("/") for name in names]
    if any("\0" in name for name in inner):
        raise DataError("a file name must not contain a NUL character")
    return ImageFiles(root, Names([inner]), numbers, tuple(classes or ()))


def _numbers(labels: npt.ArrayLike, count: int) -> npt.NDArray[Any]:
    """Validate the labels of a list, and return them as an array: int64 or floats, with one entry or row per file."""
    try:
        found = np.array(labels)
    except ValueError:
        raise DataError("labels must be one number per file, or rows of equal length") from None
    if found.ndim == 0 or len(found) != count:
        raise DataError(f"labels must contain one entry per file: there are {found.size:,} for {count:,} files")
    if found.dtype.kind not in "biuf":
        raise DataError(f"labels must be numbers, not {found.ravel()[0]!r}: use pixprep.read.table for class names")
    if found.dtype.kind == "u" and found.size and int(found.max()) > np.iinfo(np.int64).max:
        raise DataError(f"labels must fit in signed 64-bit integers, but {found.max()} is larger")
    return found if found.dtype.kind == "f" else found.astype(np.int64)


def _is_pattern(where: StrPath) -> bool:
    """Return whether a path is a pattern.

    In a URL, ``?`` starts the query and is not a wildcard. A path that exists, such as a folder with ``[`` in its name,
    is not a pattern.
    """
    is_there = not is_remote(where) and Path(where).exists()
    return any(sign in os.fspath(where) for sign in ("*{" if is_remote(where) else "*?[{")) and not is_there


def _folder(root: str, classes: Sequence[str] | None, suffixes: tuple[str, ...]) -> ImageFiles:
    folders, images, others = _listed(root, suffixes)
    kind = "clip" if suffixes is CLIP_SUFFIXES else "image"
    notes = []
    inside_folders = (found for name in folders for found, _ in _walk(root, name, suffixes))
    if not folders or (images and classes is None and not any(inside_folders)):
        if classes is not None:
            raise DataError(f"{root}: contains no folders, which would be the classes: remove classes, or add folders")
        if not images:
            raise DataError(f"{root}: contains no {kind} file ({' '.join(suffixes)})")
        if others or folders:
            notes.append(f"skipped, because these are not {kind} files: {_some([*folders, *others])}")
        return ImageFiles(root, Names([images]), None, (), notes=notes)
    if images:
        notes.append(f"skipped, because these files are not in the folder of a class: {_some(images)}")
    if classes is not None:
        if missing := [name for name in classes if name not in folders]:
            raise DataError(f"{root}: has no folder for the classes {_some(missing)}; its folders are {_some(folders)}")
        if unknown := [name for name in folders if name not in classes]:
            raise DataError(
                f"{root}: the folders {_some(unknown)} are not classes; the classes are {_some(list(classes))}"
            )
    names = tuple(classes or folders)
    counts, parts, skipped = [], [], []
    for name in names:
        part: list[str] = []
        for found, left in _walk(root, name, suffixes):
            part += found
            skipped += left
        if not part:
            raise DataError(
                f"{root}: the folder of class {name!r} contains no {kind} file ({' '.join(suffixes)}): remove it"
            )
        parts.append(part)
        counts.append(len(part))
    if skipped:
        notes.append(f"skipped, because these are not {kind} files: {_some(skipped)}")
    labels = np.repeat(np.arange(len(names)), counts)
    return ImageFiles(root, Names(parts), labels, names, notes=notes)


def _walk(
    root: str, folder: str, suffixes: tuple[str, ...], above: tuple[tuple[int, int], ...] = ()
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the images and the other files of a folder and of all folders in it, in the order of a sorted ``os.walk``.

    Args:
        root: Folder to which the paths are relative.
        folder: Folder to walk, relative to ``root``.
        suffixes: Suffixes of images.
        above: Device and inode number of each parent folder, to detect loops of links.
    """
    here = (0, len(above))
    if not is_remote(root):
        status = os.stat(f"{root}/{folder}")  # noqa: PTH116
        here = (status.st_dev, status.st_ino)
    if here in above or len(above) >= _MAX_FOLDERS:
        raise DataError(
            f"{root}/{folder}: links form a loop, or folders are nested more than {_MAX_FOLDERS} levels deep"
        )
    folders, images, others = _listed(f"{root}/{folder}", suffixes)
    yield [f"{folder}/{name}" for name in images], [f"{folder}/{name}" for name in others]
    for name in folders:
        yield from _walk(root, f"{folder}/{name}", suffixes, (*above, here))


def _listed(path: str, suffixes: tuple[str, ...]) -> tuple[list[str], list[str], list[str]]:
    """Return the sorted names of the folders, images and other files in a folder. Links are followed."""
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
    """Read the image files that a table lists: a CSV file, or a TSV file with the suffix ``.tsv``.

    The first line contains the names of the columns, and each further line is a sample. All columns except those of the
    image and the label become fields of the sample. They contain text unless ``types`` declares them. A line that
    cannot be read is a broken sample.

    If all labels are integers, they remain integers. If all labels are words, they become class indices. In ambiguous
    cases, such as 0.5, an empty label, or a mix of numbers and words, ``types`` must declare the type.

    >>> train = table("train.csv", image="file", label="species")        # doctest: +SKIP

    Args:
        path: Path of the table, in UTF-8. A quoted field must end on the line on which it begins.
        image: Name of the column that contains the paths. All files must be inside ``root``.
        label: Name of the column that contains the labels. None means that the samples have no labels.
        root: Folder to which paths are relative. Default: the folder of the table. ``"/"`` allows all absolute paths.
        classes: Names of the classes, in the order of their indices. A line with a different label is a broken sample.
            Default: the sorted values of the column.
        types: Types of columns, such as ``{"label": "float", "age": "int"}``: ``int``, ``float``, ``str``, ``classes``
            (one of the class names, converted to its index) or ``multi_hot`` (class names separated by spaces,
            converted to a float32 array of zeros and ones). The key of the label column is ``label``. A line with an
            invalid value is a broken sample.

    Raises:
        DataError: The table cannot be read, lacks a column or is empty, or the type of its labels is ambiguous.
    """
    where = os.fspath(path)
    folder = folder_of(root if root is not None else Path(where).parent)
    lines = _lines(where)
    first = next(lines, None)
    header = first[1] if first else []
    if not header or not isinstance(header, list) or len(set(header)) != len(header):
        raise DataError(f"{where}: the first line must contain the names of the columns, without repetition")
    for column in (image, *([label] if label is not None else [])):
        if column not in header:
            known = ", ".join(map(repr, header[:20])) or "none"
            hint = "" if column == image else "; use label=None for a table without labels"
            raise DataError(f"{where}: has no column {column!r}; its columns are {printable(known)}{hint}")
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
            problem = f"has {len(row)} fields, but the table has {len(header)} columns"
        elif any("\0" in field for field in row):
            problem = "contains a NUL character"
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
                f'the column {label!r} with types={{"label": "float"}}, or "int", "classes", "multi_hot" or "str"'
            )
        if kind in ("classes", "multi_hot"):
            names = names or found_classes(kind, texts)
        values, errors = _labels(kind, texts, names)
        for index, text in enumerate(columns[label] if errors else ()):
            if index not in broken and text in errors:
                message = f"{Path(where).name}, line {numbered[index]}: the label {errors[text]}"
                broken[index] = ImageError("BAD_RECORD", message)
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
    """Yield the number of each nonempty line, with its fields or an error message.

    Lines are parsed separately, so that an unterminated quote breaks only its own line and not all following ones.
    Lines without quotes are split at the delimiter, which takes a tenth of the time of the CSV parser.
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
    """Convert the labels. Return the converted values and the error messages, both by the text of the label."""
    made, errors = {}, {}
    for text in texts:
        try:
            made[text] = converted(kind, text, classes)
        except ValueError as error:
            errors[text] = str(error)
    return made, errors
