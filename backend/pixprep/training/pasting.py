"""mosaic and copy-paste: images of a batch in one, or objects of one in another, with their boxes and masks.

``Mosaic`` is Ultralytics' of four images, before its affine map. ``CopyPaste`` is Ghiasi's (2021), as torchvision's
reference for detection has it, without the blending. The numbers are a pure function of seed, epoch and batch.
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
from pixprep.plan.output_plans import BoxesPlan, MaskPlan, TensorPlan
from pixprep.training.mixing import Key, generator, partners
from pixprep.training.order import Order

log = logging.getLogger(__name__)

F64 = npt.NDArray[np.float64]
Objects = dict[str, npt.NDArray[Any]]
"""The boxes of an image, float64 (n, 4) xyxy in pixels, under ``_CORNERS``, and by their names what belongs to them."""
_CORNERS = ""


@dataclass(frozen=True, kw_only=True)
class _Pasting:
    """Base of what puts images of a batch into each other, in the pixels of their tensors.

    Attributes:
        p: how often an image is changed.
        image: the tensor that is.
        least: images of a batch, at least.
        word: Last word of the Philox counter, distinct from those of ``training.mixing``.
    """

    p: float = 1.0
    image: str = "tensor"
    least: ClassVar[int]
    word: ClassVar[int]

    def __post_init__(self) -> None:
        """Check ``p``."""
        if not 0 <= self.p <= 1:
            raise PipelineError(f"{type(self).__name__}: p must be from 0 to 1, not {self.p!r}")

    def check(self, pipeline: Pipeline, order: Order) -> None:
        """Refuse a pipeline whose annotations are not of its tensor, and batches that are too small.

        Raises:
            PipelineError: see above.
        """
        name, plan = type(self).__name__, pipeline.plan
        output = plan.outputs.get(self.image)
        if not isinstance(output, TensorPlan):
            raise PipelineError(
                f'{name}: the pipeline has no output "{self.image}"; its outputs are {", ".join(plan.outputs)}'
            )
        if output.spec.is_open or output.spec.layout is None:
            raise PipelineError(f'{name}: all images must have the same size, but "{self.image}" is {output.spec}')
        for each, annotation in plan.annotations.items():
            if not isinstance(annotation, BoxesPlan | MaskPlan):
                raise PipelineError(f'{name} moves only boxes and masks, but "{each}" is neither')
            theirs, ours = annotation.geometry, output.geometry
            if (theirs.before, theirs.resize, theirs.after) != (ours.before, ours.resize, ours.after):
                raise PipelineError(
                    f'{name}: "{each}" is in the coordinates of a different image than '
                    f'"{self.image}": place it before the op of that image'
                )
        if sum(isinstance(each, BoxesPlan) for each in plan.annotations.values()) > 1:
            raise PipelineError(f"{name}: there are several outputs of boxes: keep one")
        if order.batch_size < self.least:
            raise PipelineError(f"{name} takes {self.least} images of a batch, but batch_size is {order.batch_size}")

    def mixed(self, batch: Batch, key: Key, pipeline: Pipeline) -> Batch:
        """A batch of such images; ``batch["mix"]`` says of each what was done."""
        images = pipeline.outputs[self.image].spec.planes(batch.outputs[self.image])
        work, rng = _Work(batch, pipeline.plan.annotations, images), generator(key, self.word)
        work.put_back(batch, [self._changed(row, work, rng) for row in range(len(batch))])
        if work.is_overfull:
            _warn_of(type(self).__name__, work.pad)
        return batch

    def _changed(self, row: int, work: _Work, rng: np.random.Generator) -> dict[str, Any]:
        """Modify one image in place, and return a description of the change."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Mosaic(_Pasting):
    """Combines four images into one: ``pp.Loader(..., mix=pp.Mosaic())``, for batches of tensors of equal size.

    Four images of the batch meet at a random point: this image is at the upper left, and the three preceding ones are
    at the
    upper right, lower left and lower right. The result equals the center of Ultralytics' mosaic with an identity affine
    matrix, except that the padding of a ``letterbox`` is part of a tensor. Boxes are clipped to their quarter, and
    removed
    according to ``min_size`` and ``min_visible`` of the op ``boxes``.

    ``batch["mix"]`` contains ``{"mosaic": [y, x], "of": [index, ...]}``; ``{}`` means that the image did not change. An
    image also does not change if its mosaic would have more boxes than ``pad`` of the op ``boxes`` allows.

    Args:
        p: Probability that an image becomes a mosaic.
        image: Name of the tensor that is changed.

    Raises:
        PipelineError: An argument is invalid.
    """

    least: ClassVar[int] = 4
    word: ClassVar[int] = 4

    def _changed(self, row: int, work: _Work, rng: np.random.Generator) -> dict[str, Any]:
        chance, y, x = rng.random(3).tolist()
        if chance >= self.p:
            return {}
        (height, width), count = work.size, len(work.indices)
        tiles, center = [(row - back) % count for back in range(4)], (int(y * height), int(x * width))
        quarters = [*zip(tiles, _quarters(center, work.size), strict=True)]
        parts = [work.moved(work.objects_before[tile], *quarter) for tile, quarter in quarters]
        if not work.enter(row, parts):
            return {}
        for tile, (into, out, _) in quarters:
            for now, before in zip(work.planes, work.planes_before, strict=True):
                now[row][(..., *into)] = before[tile][(..., *out)]
        return {"mosaic": [*center], "of": [int(work.indices[tile]) for tile in tiles]}


@dataclass(frozen=True, kw_only=True)
class CopyPaste(_Pasting):
    """Pastes objects of one image into another: ``pp.Loader(..., mix=pp.CopyPaste(p=0.5))``.

    The pipeline needs the op ``masks``. Each image receives objects of a different image of the batch at their
    positions, each object with probability 0.5. Hidden parts are removed from the existing masks. The boxes of these
    masks become the bounding boxes of the visible parts. An object without visible parts, or one that ``min_size`` of
    the op ``boxes`` rejects, is removed. A map ``mask`` receives the labels of the map from which the objects come.

    ``batch["mix"]`` contains ``{"of": index, "pasted": [number, ...]}``; ``{}`` means that the image did not change. An
    image also does not change if it would have more boxes than ``pad`` of the op ``boxes`` allows.

    Args:
        p: Probability that an image receives objects.
        image: Name of the tensor that is changed.

    Raises:
        PipelineError: An argument is invalid.
    """

    least: ClassVar[int] = 2
    word: ClassVar[int] = 5

    def check(self, pipeline: Pipeline, order: Order) -> None:
        """See ``_Pasting.check``. The pipeline must also return masks."""
        super().check(pipeline, order)
        fields = {each.field for each in pipeline.plan.annotations.values()}
        if not {"boxes", "masks"} <= fields:
            raise PipelineError("CopyPaste pastes objects, which need boxes and masks: add the ops boxes and masks")

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
            at = np.asarray(hides, like=now)  # CuPy's of a GPU's
            now[row] = now[row] * ~at + before[other] * at
        return {"of": int(work.indices[other]), "pasted": pasted.tolist()}


class _Work:
    """A batch's annotations, taken apart: without padding, the boxes as corners in pixels.

    Attributes:
        size: (height, width) of the tensors.
        indices: Indices of the samples.
        partners: Row of the image with which each row is combined; see ``partners``.
        objects: Objects of each image.
        planes: the images and the map of labels, if there is one, each (images, ..., height, width).
        objects_before, planes_before: the same, and copies of them.
        masks: names of the masks of objects.
        pad: rows of boxes, if the op ``boxes`` names a number.
        is_overfull: ``pad`` has had no room for the boxes of an image.
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
                raise DataError(f'"{name}" is of some samples only: images that are put together need it of all')
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
        """Return the objects of a tile that are visible in a window, in the coordinates of the window."""
        if not objects:
            return {}
        (top, bottom), (left, right) = ((side.start, side.stop) for side in into)
        moved = objects[_CORNERS] + (shift[1], shift[0], shift[1], shift[0])
        seen = moved.clip((left, top, left, top), (right, bottom, right, bottom))
        sides, whole = seen[:, 2:] - seen[:, :2], moved[:, 2:] - moved[:, :2]
        kept = (sides > 0).all(axis=1) & (sides.prod(axis=1) >= self._plan.min_visible * whole.prod(axis=1))
        made = {name: values[kept] for name, values in objects.items()}
        for name in self.masks:
            made[name] = np.zeros((int(kept.sum()), *self.size), objects[name].dtype)
            made[name][(slice(None), *into)] = objects[name][kept][(slice(None), *out)]
        return self.large_enough({**made, _CORNERS: (seen if self._plan.clip else moved)[kept]})

    def large_enough(self, objects: Objects) -> Objects:
        """The objects whose boxes ``min_size`` and ``min_area`` keep."""
        sides = objects[_CORNERS][:, 2:] - objects[_CORNERS][:, :2]
        kept = (sides >= max(self._plan.min_size, 1e-9)).all(axis=1) & (sides.prod(axis=1) >= self._plan.min_area)
        return {name: values[kept] for name, values in objects.items()}

    def enter(self, row: int, parts: Sequence[Objects]) -> bool:
        """Give an image the objects of several, unless ``pad`` has no room for them."""
        count = sum(len(part.get(_CORNERS, ())) for part in parts)
        if self.pad is not None and count > self.pad:
            self.is_overfull = True
            return False
        self.objects[row] = _joined(parts)
        return True

    def put_back(self, batch: Batch, words: Sequence[Mapping[str, Any]]) -> None:
        """Give the batch its annotations, in the form of the plan."""
        fields = {**batch.fields, "mix": list(words)}
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


def _quarters(center: tuple[int, int], size: tuple[int, int]) -> list[tuple[Window, Window, tuple[int, int]]]:
    """Quarters: window in the result, window in the tile, and the way from there to here, y before x."""
    ways = []
    for at, side in zip(center, size, strict=True):
        first = slice(0, at), slice(side - at, side), at - side
        ways.append((first, (slice(at, side), slice(0, side - at), at)))
    return [((y[0], x[0]), (y[1], x[1]), (y[2], x[2])) for y in ways[0] for x in ways[1]]


def _around(mask: npt.NDArray[Any]) -> tuple[float, float, float, float]:
    """Return the bounding box xyxy of a mask, whose end is exclusive; all zeros for an empty mask."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return 0.0, 0.0, 0.0, 0.0
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


@cache
def _warn_of(kind: str, pad: int) -> None:
    """Warn once of images that stay as they were."""
    log.warning('%s: images stay as they are where boxes has too few rows, "pad": %d: give it a larger one', kind, pad)


def _joined(parts: Sequence[Objects]) -> Objects:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
