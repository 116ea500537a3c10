"""A source for Pascal VOC object annotations, which are stored in one XML file per image.

VOC's pixel coordinates start at 1, and the end of a box is inclusive. Its boxes are therefore converted to
``xmin - 1, ymin - 1, xmax, ymax``; see section 3 of the VOC2012 development kit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np

from pixprep.errors import DataError, ImageError
from pixprep.pipeline.file import read_bytes
from pixprep.training.sources import Sample, Source, naming
from pixprep.training.sources.files import SUFFIXES
from pixprep.training.sources.storage import (
    Names,
    StrPath,
    absolute,
    fingerprint,
    image_at,
    is_remote,
    noted,
    opening,
    remote,
)

# fmt: off
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair",
    "cow", "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep",
    "sofa", "train", "tvmonitor",
)
# fmt: on
"""Classes of VOC2007 and VOC2012, in alphabetical order."""
_MAX_XML_BYTES = 4 << 20
_MAX_LIST_BYTES = 1 << 30


class VocImages(Source):
    """The images of a Pascal VOC folder with their boxes; see ``Source``. Returned by ``voc``.

    A sample has ``image`` (a path), ``name``, ``size`` if the XML file contains it, ``boxes`` and ``labels``, and for
    each box the flags ``difficult`` and ``truncated``.
    """

    def __init__(self, root: str, stems: Names, images: Names, classes: tuple[str, ...], notes: Sequence[str]) -> None:
        self.classes = classes
        self.notes = noted(root, notes)
        self._root = root
        self._stems = stems
        self._images = images
        self._labels = {name: number for number, name in enumerate(classes)}

    @property
    def fingerprint(self) -> str:
        """Hash of the names of the images and classes, but not of the contents of the XML files."""
        return fingerprint("voc", self.classes, self._stems.blob, self._images.blob)

    def __len__(self) -> int:
        return len(self._stems)

    def _sample(self, index: int) -> Sample:
        stem, image = self._stems[index], self._images[index]
        name = f"Annotations/{stem}.xml"
        with naming(name):
            if not image:
                raise ImageError("UNREADABLE", "JPEGImages does not contain an image with this name")
            annotated = self._annotated(_parsed(f"{self._root}/{name}"))
            return {"image": image_at(f"{self._root}/JPEGImages/{image}"), "name": image} | annotated

    def _annotated(self, root: ET.Element) -> Sample:
        objects = root.findall("object")
        boxes = np.zeros((len(objects), 4), np.float64)
        labels = np.zeros(len(objects), np.int64)
        for number, each in enumerate(objects):
            kind = (each.findtext("name") or "").strip()
            if kind not in self._labels:
                raise ImageError(
                    "BAD_RECORD", f"object {number}: the class {kind[:80]!r} is unknown: pass classes with its name"
                )
            labels[number] = self._labels[kind]
            boxes[number] = [_real(each, f"bndbox/{side}", number) for side in ("xmin", "ymin", "xmax", "ymax")]
        boxes[:, :2] -= 1
        if (boxes[:, 2:] < boxes[:, :2]).any():
            number = int((boxes[:, 2:] < boxes[:, :2]).any(axis=1).argmax())
            raise ImageError("BAD_RECORD", f"object {number}: the box must have xmin <= xmax and ymin <= ymax")
        flags = {
            field: np.array([(each.findtext(field) or "0").strip() == "1" for each in objects], np.bool_)
            for field in ("difficult", "truncated")
        }
        size = tuple((root.findtext(f"size/{side}") or "").strip() for side in ("height", "width"))
        sized = {"size": tuple(map(int, size))} if all(_is_side(text) for text in size) else {}
        return {"boxes": boxes.astype(np.float32), "labels": labels, **flags, **sized}


def voc(folder: StrPath, split: str | None = None, *, classes: Sequence[str] = CLASSES) -> VocImages:
    """Read a Pascal VOC folder, with the subfolders ``JPEGImages``, ``Annotations`` and ``ImageSets/Main``.

    An XML file is read when its sample is requested. A sample is broken if its XML file is invalid or contains an
    object of an unknown class. XML files with a document type, which could define entities, and XML files larger than
    4 MiB are rejected.

    >>> train = voc("VOCdevkit/VOC2007", "trainval")                     # doctest: +SKIP

    Args:
        folder: Path or URL of the folder.
        split: Name of the list of images, ``ImageSets/Main/SPLIT.txt``, which also determines their order. Default: all
            images that have an XML file.
        classes: Names of the classes, in the order of their indices. Default: the twenty classes of VOC.

    Raises:
        DataError: A folder or the list is missing or empty.
    """
    root = absolute(folder)
    images = {name.rpartition(".")[0]: name for name in _names(f"{root}/JPEGImages") if name.lower().endswith(SUFFIXES)}
    notes = []
    if split is None:
        stems = sorted(name[:-4] for name in _names(f"{root}/Annotations") if name.endswith(".xml"))
    else:
        where = f"{root}/ImageSets/Main/{split}.txt"
        with opening(where):
            text = _bytes(where, _MAX_LIST_BYTES)
        rows = [line.split() for line in text.decode(errors="surrogateescape").splitlines()]
        stems = [row[0] for row in rows if row]
        if bad_ones := [stem for stem in stems if "/" in stem or "\0" in stem or stem in (".", "..")]:
            raise DataError(f"{where}: {bad_ones[0][:80]!r} is not a valid name of an image")
    if not stems:
        raise DataError(f"{root}: contains no annotated images")
    found = [images.get(stem, "") for stem in stems]
    if missing := [stem for stem, image in zip(stems, found, strict=True) if not image]:
        if len(missing) == len(stems):
            raise DataError(f"{root}: JPEGImages contains none of the {len(stems):,} annotated images")
        notes.append(f"{len(missing):,} annotated images are not in JPEGImages, such as {missing[0]}")
    return VocImages(root, Names([stems]), Names([found]), tuple(classes), notes)


def _names(path: str) -> list[str]:
    with opening(path):
        return [name for name, _ in remote().listed(path)] if is_remote(path) else os.listdir(path)  # noqa: PTH208


def _bytes(path: str, limit: int) -> bytes:
    """Return the contents of a local file or a remote object, truncated to one byte more than the limit."""
    if not is_remote(path):
        return read_bytes(Path(path), max_bytes=limit)
    data: bytes = remote().read(path, 0, limit + 1)
    return data


def _parsed(path: str) -> ET.Element:
    """Parse an XML file, and return its root element.

    A file cannot define entities without the bytes ``<!DOCTYPE``. The parser assumes UTF-8 regardless of the declared
    encoding, and the only other encoding that it detects, UTF-16, contains zero bytes, which are rejected. Without
    entities, the cost of parsing is proportional to the size of the file.

    Raises:
        ImageError: BAD_RECORD: The file is too large, has a document type, or is not valid XML in UTF-8.
    """
    data = _bytes(path, _MAX_XML_BYTES)
    if len(data) > _MAX_XML_BYTES:
        raise ImageError("BAD_RECORD", f"is larger than the limit of {_MAX_XML_BYTES:,} bytes")
    if b"\0" in data:
        raise ImageError("BAD_RECORD", "contains NUL bytes: save it as UTF-8 text")
    if b"<!DOCTYPE" in data:
        raise ImageError("BAD_RECORD", "defines a document type, which is rejected because it can define entities")
    try:
        return ET.fromstring(data, ET.XMLParser(encoding="utf-8"))  # noqa: S314  (without entities, this is safe)
    except ET.ParseError as error:
        raise ImageError("BAD_RECORD", f"is not valid XML: {error}") from None


def _real(each: ET.Element, path: str, number: int) -> float:
    """Return a number in an object's XML element.

    Args:
        each: XML element of the object.
        path: Path of the number inside the element.
        number: Index of the object, for messages.

    Raises:
        ImageError: BAD_RECORD: It is not a finite number, or is too large.
    """
    text = (each.findtext(path) or "").strip()
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < 1e9:
        raise ImageError("BAD_RECORD", f"object {number}: {path} must be a number below 1e9, not {text[:80]!r}")
    return value


def _is_side(text: str) -> bool:
    return text.isdecimal() and len(text) < 9 and int(text) > 0
