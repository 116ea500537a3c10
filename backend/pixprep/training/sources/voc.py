"""Pascal VOC's annotations of objects: an XML file for each image.

A box of VOC's counts pixels from 1 and includes its last: ``xmin - 1, ymin - 1, xmax, ymax`` here. Source: the VOC2012
development kit, section 3.
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
"""Classes of VOC2007 and VOC2012, in the alphabet's order."""
_MAX_XML_BYTES = 4 << 20
_MAX_LIST_BYTES = 1 << 30


class VocImages(Source):
    """The images of a VOC folder with their boxes; see ``Source``. Made by ``voc``.

    A sample has ``image`` (a path), ``name``, ``size`` where the XML says it, ``boxes`` and ``labels``, and of each box
    ``difficult`` and ``truncated``.
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
        """Hash of the names of images and classes. The XML files are not read for it."""
        return fingerprint("voc", self.classes, self._stems.blob, self._images.blob)

    def __len__(self) -> int:
        return len(self._stems)

    def _sample(self, index: int) -> Sample:
        stem, image = self._stems[index], self._images[index]
        name = f"Annotations/{stem}.xml"
        with naming(name):
            if not image:
                raise ImageError("UNREADABLE", "there is no such image in JPEGImages")
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
                    "BAD_RECORD", f"object {number}: {kind[:80]!r} is not one of the classes: pass classes="
                )
            labels[number] = self._labels[kind]
            boxes[number] = [_real(each, f"bndbox/{side}", number) for side in ("xmin", "ymin", "xmax", "ymax")]
        boxes[:, :2] -= 1
        if (boxes[:, 2:] < boxes[:, :2]).any():
            number = int((boxes[:, 2:] < boxes[:, :2]).any(axis=1).argmax())
            raise ImageError("BAD_RECORD", f"object {number}: its box ends before it begins")
        flags = {
            field: np.array([(each.findtext(field) or "0").strip() == "1" for each in objects], np.bool_)
            for field in ("difficult", "truncated")
        }
        size = tuple((root.findtext(f"size/{side}") or "").strip() for side in ("height", "width"))
        sized = {"size": tuple(map(int, size))} if all(_is_side(text) for text in size) else {}
        return {"boxes": boxes.astype(np.float32), "labels": labels, **flags, **sized}


def voc(folder: StrPath, split: str | None = None, *, classes: Sequence[str] = CLASSES) -> VocImages:
    """Read a folder of Pascal VOC: ``JPEGImages``, ``Annotations``, ``ImageSets/Main``.

    An XML file is read when its sample is requested. An invalid XML file, or an object of an unknown class, makes its
    sample broken. Unsafe XML is rejected: document types, which can define entities, and files over 4 MiB.

    >>> train = voc("VOCdevkit/VOC2007", "trainval")                     # doctest: +SKIP

    Args:
        folder: Folder that contains these three, or its URL.
        split: Name of the list ``ImageSets/Main/SPLIT.txt`` of images, in its order. Default: all images that have an
        XML
            file.
        classes: Names of the labels. Default: the twenty classes of VOC.

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
        words = [line.split() for line in text.decode(errors="surrogateescape").splitlines()]
        stems = [row[0] for row in words if row]
        if bad_ones := [stem for stem in stems if "/" in stem or "\0" in stem or stem in (".", "..")]:
            raise DataError(f"{where}: {bad_ones[0][:80]!r} is not the name of an image")
    if not stems:
        raise DataError(f"{root}: no image is annotated")
    found = [images.get(stem, "") for stem in stems]
    if missing := [stem for stem, image in zip(stems, found, strict=True) if not image]:
        if len(missing) == len(stems):
            raise DataError(f"{root}: none of the {len(stems):,} annotated images is in JPEGImages")
        notes.append(f"{len(missing):,} annotated images are not in JPEGImages, such as {missing[0]}")
    return VocImages(root, Names([stems]), Names([found]), tuple(classes), notes)


def _names(path: str) -> list[str]:
    with opening(path):
        return [name for name, _ in remote().listed(path)] if is_remote(path) else os.listdir(path)  # noqa: PTH208


def _bytes(path: str, most: int) -> bytes:
    """The contents of a file or an object, or one byte more than the most."""
    if not is_remote(path):
        return read_bytes(Path(path), most=most)
    data: bytes = remote().read(path, 0, most + 1)
    return data


def _parsed(path: str) -> ET.Element:
    """The root of an XML file.

    The parser takes the bytes for UTF-8 whatever the file says of itself; it would only know UTF-16 by itself, which
    cannot do without zeros. So these bytes are the only way to write what can define entities. Without one, XML costs
    no more than its size.
    """
    data = _bytes(path, _MAX_XML_BYTES)
    if len(data) > _MAX_XML_BYTES:
        raise ImageError("BAD_RECORD", f"has more than {_MAX_XML_BYTES:,} bytes")
    if b"\0" in data:
        raise ImageError("BAD_RECORD", "is not UTF-8: it has zeros")
    if b"<!DOCTYPE" in data:
        raise ImageError("BAD_RECORD", "defines a document type, which is rejected because it can define entities")
    try:
        return ET.fromstring(data, ET.XMLParser(encoding="utf-8"))  # noqa: S314  (as said above)
    except ET.ParseError as error:
        raise ImageError("BAD_RECORD", f"is not XML: {error}") from None


def _real(each: ET.Element, path: str, number: int) -> float:
    """A finite number of an object."""
    text = (each.findtext(path) or "").strip()
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < 1e9:
        raise ImageError("BAD_RECORD", f"object {number}: its {path} is {text[:80]!r}")
    return value


def _is_side(text: str) -> bool:
    return text.isdecimal() and len(text) < 9 and int(text) > 0
