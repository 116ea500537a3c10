"""A source for COCO object annotations, which are stored in one JSON file for all images."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from pixprep.errors import DataError, ImageError
from pixprep.pipeline.file import read_bytes
from pixprep.training.sources import Sample, Source, naming
from pixprep.training.sources.shapes import Shape, Shapes
from pixprep.training.sources.storage import (
    I64,
    Names,
    StrPath,
    fingerprint,
    folder_of,
    image_at,
    inside,
    noted,
    opening,
)

_Id = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]  # must fit in int64
_MAX_PIXELS = 1e9
_MAX_JSON_BYTES = 2 << 30


class _Image(msgspec.Struct):
    id: _Id
    file_name: str
    height: int | None = None
    width: int | None = None


class _Annotation(msgspec.Struct):
    image_id: _Id
    category_id: _Id
    bbox: tuple[float, float, float, float]
    id: _Id = -1
    iscrowd: int = 0
    area: float = 0.0


class _OfImage(msgspec.Struct):
    image_id: _Id


class _Keypoints(msgspec.Struct):
    keypoints: list[float] = []


class _Category(msgspec.Struct):
    id: _Id
    name: str
    keypoints: list[str] = []


class _File(msgspec.Struct):
    """A COCO file. Images and annotations are decoded separately, so that an invalid one does not affect the others."""

    images: list[msgspec.Raw]
    categories: list[_Category]
    annotations: list[msgspec.Raw]


class CocoImages(Source):
    """The images of a COCO file with their boxes; see ``Source``. Returned by ``coco``.

    A sample has ``image`` (a path), ``name``, ``id``, ``size`` if the file contains it, ``boxes`` and ``labels``, and
    for each box ``ids``, ``iscrowd`` and ``area``. With ``keypoints``, it also has ``points``, and ``visible``, uint8
    (n, k) with the values of COCO: 0 (not labeled), 1 (labeled but hidden) and 2 (visible). With ``masks``, it has
    ``masks``, which are rasterized when NumPy requests the array.

    Attributes:
        category_ids: Category id in the file for each class index.
        sizes: Annotated (height, width) of each image, int32 (n, 2). Zeros if the file does not contain the size.
    """

    def __init__(
        self,
        root: str,
        names: Names,
        images: Mapping[str, npt.NDArray[Any]],
        boxes: Mapping[str, npt.NDArray[Any]],
        categories: Mapping[int, str],
        *,
        broken: Mapping[int, ImageError],
        notes: Sequence[str],
        shapes: Names | None = None,
    ) -> None:
        self.classes = tuple(categories.values())
        self.category_ids = tuple(categories)
        self.notes = noted("coco", notes)
        self._root = root
        self._names = names
        self._images = dict(images)
        self.sizes: npt.NDArray[np.int32] = images["size"]
        self._boxes = dict(boxes)
        self._broken = dict(broken)
        self._shapes = shapes

    @property
    def fingerprint(self) -> str:
        """Hash of the images, the classes and the annotations."""
        columns = (*self._images.values(), *self._boxes.values())
        shapes = () if self._shapes is None else (self._shapes.blob,)
        return fingerprint("coco", self.classes, self.category_ids, self._names.blob, *columns, *shapes)

    def __len__(self) -> int:
        return len(self._names)

    def _sample(self, index: int) -> Sample:
        name, number = self._names[index], int(self._images["id"][index])
        with naming(f"image {number}"):
            image = image_at(inside(self._root, name))
        start, end = (int(value) for value in self._images["ends"][index : index + 2])
        sample: Sample = {"image": image, "name": name, "id": number}
        height, width = (int(value) for value in self.sizes[index])
        if height:
            sample["size"] = height, width
        for field, column in self._boxes.items():
            sample[field] = column[start:end].astype(np.int64) if field == "labels" else column[start:end].copy()
        if self._shapes is not None:
            sample["masks"] = Shapes([self._shapes[at] for at in sample.pop("shape").tolist()], (height, width))
        return sample


def coco(
    images: StrPath,
    annotations: StrPath,
    *,
    keypoints: bool = False,
    masks: bool = False,
    crowd: bool = False,
    empty: bool = True,
) -> CocoImages:
    """Read COCO object annotations, optionally with keypoints and masks.

    Class indices start at 0 and follow the order of the category ids, which have gaps. Images are ordered by their ids,
    as in torchvision's ``CocoDetection``. COCO's boxes (left, top, width and height in float pixels) are converted to
    corners; boxes that extend beyond the image are not clipped. An image with an invalid annotation is a broken sample,
    because training would otherwise treat the object as background. Annotations of missing images are reported in
    ``notes``.

    >>> train = coco("train2017", "annotations/instances_train2017.json")      # doctest: +SKIP

    Args:
        images: Folder of the images. All image files must be inside it.
        annotations: Path of the JSON file.
        keypoints: Whether to read keypoints. All categories must define the same number of keypoints.
        masks: Whether to read polygons and run-length encodings, for the op ``masks``. The masks are identical to those
            of pycocotools.
        crowd: Whether to keep boxes around crowds (``iscrowd``), which a detector should not learn as a single object.
            torchvision's detection reference removes them, in training and in evaluation.
        empty: Whether to keep images without boxes. False keeps only images that have a box larger than one pixel in
            both dimensions, as torchvision's detection reference does in training, but not in evaluation.

    Raises:
        DataError: The file cannot be read, or is not a valid COCO annotation file.
    """
    where, root = os.fspath(annotations), folder_of(images)
    with opening(where):
        if os.stat(where).st_size > _MAX_JSON_BYTES:  # noqa: PTH116
            raise DataError(f"{where}: is larger than the limit of {_MAX_JSON_BYTES:,} bytes")
        text = read_bytes(Path(where), max_bytes=_MAX_JSON_BYTES)
    try:
        file = msgspec.json.decode(text, type=_File)
    except msgspec.ValidationError as error:
        raise DataError(f"{where}: is not a valid COCO annotation file: {error}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DataError(f"{where}: is not valid JSON: {error}") from None
    if not file.images:
        raise DataError(f"{where}: contains no images")
    categories = {each.id: each.name for each in sorted(file.categories, key=lambda each: each.id)}
    if len(categories) != len(file.categories):
        raise DataError(f"{where}: two categories have the same id")
    points = {len(each.keypoints) for each in file.categories} if keypoints else {0}
    if len(points) != 1 or (keypoints and points == {0}):
        raise DataError(
            f"{where}: keypoints=True requires that all categories define the same number of keypoints, at least one; "
            f"they define {sorted(points)}"
        )
    name = Path(where).name
    broken: dict[int, ImageError] = {}
    names, images_, places = _read_images(file.images, name, broken)
    shapes: list[str] | None = [] if masks else None
    boxes, notes = _read_boxes(file.annotations, name, places, categories, broken, points=points.pop(), shapes=shapes)
    if not crowd and (count := int(boxes["iscrowd"].sum())):
        notes.append(f"{count:,} boxes around crowds are ignored: use crowd=True to keep them")
        boxes = {field: column[~boxes["iscrowd"]] for field, column in boxes.items()}
    if not empty:
        names, images_, broken = _without_empty(names, images_, boxes, broken)
    ends = np.searchsorted(boxes.pop("image"), np.arange(len(names) + 1)).astype(np.int64)
    notes += [error.detail for _, error in sorted(broken.items())][:100]
    return CocoImages(
        root,
        names,
        images_ | {"ends": ends},
        boxes,
        categories,
        broken=broken,
        notes=notes,
        shapes=None if shapes is None else Names([shapes]),
    )


def _without_empty(
    names: Names,
    images: Mapping[str, npt.NDArray[Any]],
    boxes: dict[str, npt.NDArray[Any]],
    broken: Mapping[int, ImageError],
) -> tuple[Names, dict[str, npt.NDArray[Any]], dict[int, ImageError]]:
    """Return only the images that are broken, or that have a box larger than one pixel in both dimensions.

    ``boxes`` is updated in place to the boxes of these images.

    Raises:
        DataError: No image is left.
    """
    corners = boxes["boxes"]
    is_kept = np.zeros(len(names), np.bool_)
    is_kept[boxes["image"][(corners[:, 2:] - corners[:, :2] > 1).all(axis=1)]] = True
    is_kept[list(broken)] = True
    kept = np.flatnonzero(is_kept).tolist()
    if not kept:
        raise DataError("empty=False: no image has a box larger than one pixel in both dimensions: remove empty=False")
    places, of_kept = np.cumsum(is_kept) - 1, is_kept[boxes["image"]]
    boxes |= {field: column[of_kept] for field, column in boxes.items()}
    boxes["image"] = places[boxes["image"]]
    return (
        Names([[names[index] for index in kept]]),
        {field: column[is_kept] for field, column in images.items()},
        {int(places[index]): error for index, error in broken.items()},
    )


def _read_images(
    raws: Sequence[msgspec.Raw], where: str, broken: dict[int, ImageError]
) -> tuple[Names, dict[str, npt.NDArray[Any]], I64]:
    """Decode the images of a COCO file.

    Args:
        raws: Images as JSON.
        where: Name of the file, for messages.
        broken: Receives the errors, by the position of the image in the result.

    Returns:
        File names, the columns ``id`` and ``size``, and the sorted ids of the valid images. Names and columns are in
        the order of the ids, with invalid images last.
    """
    decode = msgspec.json.Decoder(_Image).decode
    read, invalid = [], []
    for number, raw in enumerate(raws):
        try:
            read.append(decode(raw))
            if "\0" in read[-1].file_name:
                read.pop()
                invalid.append((number, "the file name contains a NUL character"))
        except msgspec.MsgspecError as error:
            invalid.append((number, str(error)))
    read.sort(key=lambda image: image.id)
    ids = np.array([image.id for image in read], np.int64)
    for at in np.flatnonzero(ids[1:] == ids[:-1]).tolist():
        for index in (at, at + 1):
            broken[index] = ImageError("BAD_RECORD", f"{where}, image {ids[at]}: several images have this id")
    sizes = np.zeros((len(raws), 2), np.int32)
    for index, image in enumerate(read):
        if image.height is not None and image.width is not None:
            if 0 < image.height < 1 << 31 and 0 < image.width < 1 << 31:
                sizes[index] = image.height, image.width
            else:
                text = f"has the invalid size {image.height} x {image.width}"
                broken[index] = ImageError("BAD_RECORD", f"{where}, image {image.id}: {text}")
    for index, (number, text) in enumerate(invalid, len(read)):
        broken[index] = ImageError("BAD_RECORD", f"{where}, images[{number}]: {text}")
    names = Names([[image.file_name for image in read] + [""] * len(invalid)])
    return names, {"id": np.append(ids, [-1] * len(invalid)).astype(np.int64), "size": sizes}, ids


def _read_boxes(
    raws: Sequence[msgspec.Raw],
    where: str,
    ids: I64,
    categories: Mapping[int, str],
    broken: dict[int, ImageError],
    *,
    points: int,
    shapes: list[str] | None,
) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
    """Decode the annotations of a COCO file.

    Args:
        raws: Annotations as JSON.
        where: Name of the file, for messages.
        ids: Sorted ids of the images.
        categories: Names of the categories by id.
        broken: Receives the errors, with the position of the image as the key.
        points: Number of keypoints per object. If it is 0, the keypoints are not read.
        shapes: Receives the segmentations of all annotations, as JSON. If it is None, they are not read.

    Returns:
        Columns with one value per box, in the order of the images, and notes about annotations without an image. The
        column ``image`` contains positions of images, and ``shape`` indices into ``shapes``.
    """
    decode = msgspec.json.Decoder(_Annotation).decode
    decode_points = msgspec.json.Decoder(_Keypoints).decode
    decode_shape = msgspec.json.Decoder(Shape).decode
    owner, category, number = array("q"), array("q"), array("q")
    corners, area, crowd, keypoints = array("d"), array("f"), array("b"), array("f")
    notes, failed = [], list[tuple[int, int, str]]()
    for at, raw in enumerate(raws):
        try:
            each = decode(raw)
            shape = None if shapes is None else msgspec.json.encode(decode_shape(raw)).decode()
            if points:
                found = decode_points(raw).keypoints or [0.0] * (3 * points)
                if len(found) != 3 * points:
                    raise msgspec.ValidationError(f"{points} keypoints require {3 * points} numbers, not {len(found)}")
                keypoints.extend(found)
        except msgspec.MsgspecError as error:
            failed.append((at, _image_of(raw), str(error)))
            continue
        if shapes is not None and shape is not None:
            shapes.append(shape)
        owner.append(each.image_id)
        category.append(each.category_id)
        number.append(each.id)
        corners.extend(each.bbox)
        area.append(each.area)
        crowd.append(bool(each.iscrowd))
    owners, known = np.frombuffer(owner, np.int64), np.array(list(categories), np.int64)
    xywh = np.frombuffer(corners, np.float64).reshape(-1, 4)
    wrong = ~((np.abs(xywh) < _MAX_PIXELS) & (xywh >= (-np.inf, -np.inf, 0, 0))).all(axis=1)
    sides = np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1)
    boxes = np.where(wrong[:, None], 0, sides).astype(np.float32)
    labels, has_label = _found(known, np.frombuffer(category, np.int64))
    images, has_image = _found(ids, owners)
    numbers = np.frombuffer(number, np.int64)
    for at in np.flatnonzero(has_image & (wrong | ~has_label)).tolist():
        what = f"has the invalid box {xywh[at].tolist()}" if wrong[at] else f"has the unknown category {category[at]}"
        text = f"annotation {number[at]}: {what}"
        broken.setdefault(int(images[at]), ImageError("BAD_RECORD", f"{where}, image {owner[at]}: {text}"))
    for at, image, text in failed:
        place_, is_there = _found(ids, np.array([image], np.int64))
        if is_there[0]:
            message = f"{where}, image {image}: annotations[{at}]: {text}"
            broken.setdefault(int(place_[0]), ImageError("BAD_RECORD", message))
        else:
            notes.append(f"annotations[{at}]: {text}")
    if lost := int(np.count_nonzero(~has_image)):
        first = int((~has_image).argmax())
        notes.append(
            f"{lost:,} annotations refer to missing images, such as annotation {number[first]} to image {owner[first]}"
        )
    kept = np.flatnonzero(has_image & has_label & ~wrong)
    kept = kept[np.argsort(images[kept], kind="stable")]
    columns: dict[str, npt.NDArray[Any]] = {
        "image": images[kept],
        "boxes": boxes[kept],
        "labels": labels[kept].astype(np.int32),
        "ids": numbers[kept],
        "iscrowd": np.frombuffer(crowd, np.bool_)[kept],
        "area": np.frombuffer(area, np.float32)[kept],
    }
    if shapes is not None:
        columns["shape"] = kept
    if points:
        triples = np.frombuffer(keypoints, np.float32).reshape(-1, points, 3)[kept]
        columns |= {"points": np.ascontiguousarray(triples[:, :, :2]), "visible": triples[:, :, 2].astype(np.uint8)}
    return columns, notes


def _found(sorted_: I64, values: I64) -> tuple[I64, npt.NDArray[np.bool_]]:
    """Return the position of each value in a sorted array, and whether the array contains it."""
    places = np.minimum(np.searchsorted(sorted_, values), len(sorted_) - 1)
    return places, sorted_[places] == values if len(sorted_) else np.zeros(len(values), np.bool_)


def _image_of(raw: msgspec.Raw) -> int:
    """Return the image id of an invalid annotation, or -1 if the id is also invalid."""
    try:
        return msgspec.json.decode(raw, type=_OfImage).image_id
    except msgspec.MsgspecError:
        return -1
