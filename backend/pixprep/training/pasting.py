"""Mosaic and copy-paste augmentations, which combine several images of a batch with their boxes and masks.

``Mosaic`` is Ultralytics' mosaic of four images, without the affine transform that follows it. ``CopyPaste`` is the
augmentation of Ghiasi et al. (2021) as in torchvision's detection reference, without blending. The random parameters
are a pure function of the seed, the epoch and the batch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pixprep.engine.batch import Batch
from pixprep.errors import DataError, PipelineError
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.boxes import from_corners, to_corners
from pixprep.training.mixing import Key, generator, partners
from pixprep.training.order import Order

log = logging.getLogger(__name__)

F64 = npt.NDArray[np.float64]
Objects = dict[str, npt.NDArray[Any]]
"""The objects of an image: boxes, float64 (n, 4) xyxy in pixels, under the key ``_CORNERS``, and by name all other
arrays with one value per box, such as masks."""
_CORNERS = ""


@dataclass(frozen=True, kw_only=True)
class _Pasting:
    """Base class of augmentations that paste parts of some images of a batch into others, in tensor coordinates.

    Attributes:
        p: Probability that an image is changed.
        image: Name of the tensor that contains the images.
        min_images: Minimum batch size.
        word: Last word of the Philox counter, distinct from those of ``training.mixing``.
    """

    p: float = 1.0
    image: str = "tensor"
    min_images: ClassVar[int]
    word: ClassVar[int]

    def __post_init__(self) -> None:
        """Check ``p``."""
        if not 0 <= self.p <= 1:
            raise PipelineError(f"{type(self).__name__}: p must be from 0 to 1, not {self.p!r}")

    def check(self, pipeline: Pipeline, order: Order) -> None:
        """Check that the annotations of the pipeline match its tensor, and that the batches are large enough.

        Raises:
            PipelineError: The tensor does not exist or has a variable size, an annotation is not supported or
                uses other coordinates than the tensor, or the batches are too small.
        """
        name, plan = type(self).__name__, pipeline.plan
        output = plan.tensors.get(self.image)
        if output is None:
            raise PipelineError(
                f'{name}: the pipeline has no output "{self.image}"; its outputs are {", ".join(plan.outputs)}'
            )
        if output.spec.is_open or output.spec.layout is None:
            raise PipelineError(f'{name}: all images must have the same size, but "{self.image}" is {output.spec}')
        for each, annotation in plan.annotations.items():
            if each in plan.points or each in plan.targets:
                raise PipelineError(f'{name} supports only boxes and masks, but "{each}" is neither: remove that op')
            theirs, ours = annotation.geometry, output.geometry
            if (theirs.before, theirs.resize, theirs.after) != (ours.before, ours.resize, ours.after):
                raise PipelineError(
                    f'{name}: "{each}" is in the coordinates of a different image than '
                    f'"{self.image}": place it before the op of that image'
                )
        if len(plan.boxes) > 1:
            raise PipelineError(f"{name} supports only one output of boxes, but the pipeline has several: keep one")
        if order.batch_size < self.min_images:
            raise PipelineError(
                f"{name} combines {self.min_images} images of a batch: batch_size must be at least {self.min_images}, "
                f"not {order.batch_size}"
            )

    def mixed(self, batch: Batch, key: Key, pipeline: Pipeline) -> Batch:
        """Apply the augmentation to a batch in place, and return it. ``batch["mix"]`` describes each image's change."""
        images = pipeline.outputs[self.image].spec.planes(batch.outputs[self.image])
        work, rng = _Work(batch, pipeline.plan.annotations, images), generator(key, self.word)
        work.put_back(batch, [self._changed(row, work, rng) for row in range(len(batch))])
        if work.is_overfull:
            _warn_overfull(type(self).__name__, work.pad)
        return batch

    def _changed(self, row: int, work: _Work, rng: np.random.Generator) -> dict[str, Any]:
        """Modify one image in place, and return a description of the change: ``{}`` if there is none."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Mosaic(_Pasting):
    """Combine four images into one: ``pp.Loader(..., mix=pp.Mosaic())``. All images must have the same size.

    Four images of the batch meet at a random point: each image is at the upper left of its own mosaic, and the three
    previous images of the batch are at the upper right, lower left and lower right. The result equals the central part
    of Ultralytics' mosaic with an identity affine transform, except that the padding of a ``letterbox`` is part of each
    image here. Boxes are clipped to their quadrant, and removed according to ``min_size``, ``min_area`` and
    ``min_visible`` of the op ``boxes``.

    ``batch["mix"]`` contains ``{"mosaic": [y, x], "of": [index, ...]}`` for each image: the point in pixels, and the
    indices of the four samples. It contains ``{}`` if the image did not change. An image also remains unchanged if its
    mosaic would have more boxes than ``pad`` of the op ``boxes`` allows.

    Args:
        p: Probability that an image becomes a mosaic.
        image: Name of the tensor that is changed.

    Raises:
        PipelineError: An argument is invalid.
    """

    min_images: ClassVar[int] = 4
    word: ClassVar[int] = 4

    def _changed(self, row: int, work: _Work, rng: np.random.Generator) -> dict[str, Any]:
        chance, y, x = rng.random(3).tolist()
        if chance >= self.p:
            return {}
        (height, width), count = work.size, len(work.indices)
        tiles, center = [(row - back) % count for back in range(4)], (int(y * height), int(x * width))
        quadrants = [*zip(tiles, _quadrants(center, work.size), strict=True)]
        parts = [work.moved(work.objects_before[tile], *quadrant) for tile, quadrant in quadrants]
        if not work.enter(row, parts):
            return {}
        for tile, (into, out, _) in quadrants:
            for now, before in zip(work.planes, work.planes_before, strict=True):
                now[row][(..., *into)] = before[tile][(..., *out)]
        return {"mosaic": [*center], "of": [int(work.indices[tile]) for tile in tiles]}


@dataclass(frozen=True, kw_only=True)
class CopyPaste(_Pasting):
    """Paste objects of one image into another: ``pp.Loader(..., mix=pp.CopyPaste(p=0.5))``.

    The pipeline must contain the ops ``boxes`` and ``masks``. Objects of a different image of the batch are pasted into
    each image at their original positions; each object is selected with a probability of 0.5. The pasted objects hide
    parts of the existing ones: these parts are removed from the masks, and the boxes become the bounding boxes of the
    visible parts. An object that is completely hidden, or that is too small for ``min_size`` or ``min_area`` of the op
    ``boxes``, is removed. A segmentation map ``mask`` receives the labels of the pasted pixels.

    ``batch["mix"]`` contains ``{"of": index, "pasted": [number, ...]}`` for each image: the sample index of the other
    image, and the numbers of its pasted objects. It contains ``{}`` if the image did not change. An image also remains
    unchanged if it would have more boxes than ``pad`` of the op ``boxes`` allows.

    Args:
        p: Probability that objects are pasted into an image.
        image: Name of the tensor that is changed.

    Raises:
        PipelineError: An argument is invalid.
    """

    min_images: ClassVar[int] = 2
    word: ClassVar[int] = 5

    def check(self, pipeline: Pipeline, order: Order) -> None:
        """See ``_Pasting.check``. The pipeline must also contain the ops ``boxes`` and ``masks``."""
        super().check(pipeline, order)
        fields = {each.field for each in pipeline.plan.annotations.values()}
        if not {"boxes", "masks"} <= fields:
            raise PipelineError("CopyPaste requires the boxes and masks of objects: add the ops boxes and masks")

    def _changed(self, row: int, work: _Work, rng: np.random.Generator) -> dict[str, Any]:
        other, (masks,) = work.partners[row], work.masks
        theirs, old = work.objects_before[other], dict(work.objects_before[row])
        chance, pasted = rng.random(), np.flatnonzero(rng.random(len(theirs[_CORNERS])) < 0.5)
        if chance >= self.p or not len(pasted) or work.indices[row] == work.indices[other]:
            return {}
        new = {name: values[pasted] for name, values in theirs.items()}
        hides = new[masks].any(axis=0)
        left = old[masks] * ~hides
        corners = old[_CORNERS].copy()
        for number in np.flatnonzero((old[masks] != left).any(axis=(1, 2))):
            corners[number] = _around(left[number])
        if not work.enter(row, [work.large_enough({**old, masks: left, _CORNERS: corners}), new]):
            return {}
        for now, before in zip(work.planes, work.planes_before, strict=True):
            at = np.asarray(hides, like=now)  # a CuPy array if the images are on a GPU
            now[row] = now[row] * ~at + before[other] * at
        return {"of": int(work.indices[other]), "pasted": pasted.tolist()}


class _Work:
    """The images and annotations of a batch while they are being modified.

    Attributes:
        size: (height, width) of the tensors.
        indices: Sample indices, int64 (n,).
        partners: Row of the image with which each row is combined; see ``partners``.
        objects: Objects of each image, without padding, which the augmentation replaces.
        objects_before: Objects of each image before the augmentation.
        planes: Images, and segmentation maps if there are any, each (n, ..., height, width), modified in place.
        planes_before: Copies of ``planes`` before the augmentation.
        masks: Names of the fields that contain masks of objects: at most one.
        pad: Number of rows to which boxes are padded by the op ``boxes``, or None.
        is_overfull: Whether an image would have received more boxes than ``pad``.
    """

    def __init__(self, batch: Batch, plans: Mapping[str, Any], images: Any) -> None:
        self.size, self.indices = images.shape[-2:], batch.fields["index"]
        self.partners = partners(self.indices).tolist()
        named = {each.field: (name, each) for name, each in plans.items()}
        self._boxes, self._plan = named.get("boxes", ("", None))
        self.pad, self.is_overfull = self._plan and self._plan.pad, False
        self.masks = [named["masks"][0]] if "masks" in named else []
        follow = [name for name in batch.fields if self._plan and self._plan.takes_along(name)]
        for name in follow:
            if any(values is None for values in batch.fields[name]):
                raise DataError(f'some samples have no "{name}": Mosaic and CopyPaste need it for every sample')
        self._names = [self._boxes, *self.masks, *follow] if self._plan else []
        self.planes = [images, batch.fields[named["mask"][0]]] if "mask" in named else [images]
        self.planes_before = [each.copy("K") for each in self.planes]
        self.objects = [self._taken(batch, row) for row in range(len(batch))]
        self.objects_before = list(self.objects)

    def _taken(self, batch: Batch, row: int) -> Objects:
        if self._plan is None:
            return {}
        boxes = batch.fields[self._boxes][row]
        count = len(boxes) if self.pad is None else int((boxes >= 0).any(axis=1).sum())
        taken = {name: np.asarray(batch.fields[name][row])[:count] for name in self._names}
        height, width = self.size if self._plan.normalized else (1, 1)
        corners = to_corners(boxes[:count].astype(np.float64), self._plan.format)
        return {**taken, _CORNERS: corners * (width, height, width, height)}

    def moved(self, objects: Objects, into: Window, out: Window, shift: tuple[int, int]) -> Objects:
        """Return the objects of a tile that are visible in its quadrant, in the coordinates of the mosaic.

        Args:
            objects: Objects of the tile.
            into: Window of the mosaic that the tile fills.
            out: Window of the tile that is visible.
            shift: (y, x) offset from tile coordinates to mosaic coordinates.
        """
        if not objects:
            return {}
        (top, bottom), (left, right) = ((side.start, side.stop) for side in into)
        moved = objects[_CORNERS] + (shift[1], shift[0], shift[1], shift[0])
        seen = moved.clip((left, top, left, top), (right, bottom, right, bottom))
        visible, full = seen[:, 2:] - seen[:, :2], moved[:, 2:] - moved[:, :2]
        kept = (visible > 0).all(axis=1) & (visible.prod(axis=1) >= self._plan.min_visible * full.prod(axis=1))
        made = {name: values[kept] for name, values in objects.items()}
        for name in self.masks:
            made[name] = np.zeros((int(kept.sum()), *self.size), objects[name].dtype)
            made[name][(slice(None), *into)] = objects[name][kept][(slice(None), *out)]
        return self.large_enough({**made, _CORNERS: (seen if self._plan.clip else moved)[kept]})

    def large_enough(self, objects: Objects) -> Objects:
        """Remove the objects whose boxes are smaller than ``min_size`` or ``min_area`` of the op ``boxes``."""
        sides = objects[_CORNERS][:, 2:] - objects[_CORNERS][:, :2]
        kept = (sides >= max(self._plan.min_size, 1e-9)).all(axis=1) & (sides.prod(axis=1) >= self._plan.min_area)
        return {name: values[kept] for name, values in objects.items()}

    def enter(self, row: int, parts: Sequence[Objects]) -> bool:
        """Set the objects of an image to those of several parts.

        Returns:
            Whether the image was changed. False if it would have more boxes than ``pad``.
        """
        count = sum(len(part.get(_CORNERS, ())) for part in parts)
        if self.pad is not None and count > self.pad:
            self.is_overfull = True
            return False
        self.objects[row] = _joined(parts)
        return True

    def put_back(self, batch: Batch, changes: Sequence[Mapping[str, Any]]) -> None:
        """Store the objects in the fields of the batch, in the box format and with the padding of the plan.

        Args:
            batch: Batch that receives the fields.
            changes: Description of each image's change, for the field ``mix``.
        """
        fields = {**batch.fields, "mix": list(changes)}
        for name in self._names:
            columns = [self._formed(name, objects) for objects in self.objects]
            fields[name] = columns if self.pad is None else np.stack(columns)
        batch.fields = MappingProxyType(fields)

    def _formed(self, name: str, objects: Objects) -> npt.NDArray[Any]:
        values = objects[name]
        if name == self._boxes:
            height, width = self.size if self._plan.normalized else (1, 1)
            corners = from_corners(objects[_CORNERS], self._plan.format)
            values = (corners / (width, height, width, height)).astype(np.float32)
        if self.pad is None:
            return values
        missing = np.full((self.pad - len(values), *values.shape[1:]), 0 if name in self.masks else -1, values.dtype)
        return np.concatenate([values, missing])


Window = tuple[slice, slice]


def _quadrants(center: tuple[int, int], size: tuple[int, int]) -> list[tuple[Window, Window, tuple[int, int]]]:
    """Return the quadrants of a mosaic: upper left, upper right, lower left and lower right.

    Args:
        center: Point (y, x) at which the quadrants meet.
        size: (height, width) of the mosaic and of each tile.

    Returns:
        For each quadrant, its window in the mosaic, the window of the tile that is visible, and the (y, x) offset from
        tile coordinates to mosaic coordinates.
    """
    halves = []
    for at, length in zip(center, size, strict=True):
        first = slice(0, at), slice(length - at, length), at - length
        halves.append((first, (slice(at, length), slice(0, length - at), at)))
    return [((y[0], x[0]), (y[1], x[1]), (y[2], x[2])) for y in halves[0] for x in halves[1]]


def _around(mask: npt.NDArray[Any]) -> tuple[float, float, float, float]:
    """Return the bounding box of a mask as (x1, y1, x2, y2) with exclusive ends. All zeros for an empty mask."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return 0.0, 0.0, 0.0, 0.0
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


@cache
def _warn_overfull(kind: str, pad: int) -> None:
    """Warn once that images with too many boxes remain unchanged."""
    log.warning('%s: images with more boxes than "pad": %d remain unchanged: increase "pad" of the op boxes', kind, pad)


def _joined(parts: Sequence[Objects]) -> Objects:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
