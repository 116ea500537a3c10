"""Chains of augmentations that combine several samples before the pipeline: mosaic, mixup and copy-paste.

The partners of a sample are drawn from the whole source. All random parameters are a pure function of the seed, the
epoch, the sample and the attempt, so a chain can be resumed at any sample, and ``Loader.replay`` repeats it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pixprep.engine.annotations import moving
from pixprep.engine.batch import Batch
from pixprep.engine.engine import Engine
from pixprep.errors import DataError, ImageError, PipelineError
from pixprep.names import CHAIN, COMBINED, MOSAIC, explained
from pixprep.pipeline.ops import AnnotationOp, Boxes, Decode, Op, Pixels, Points, Target, Tensor
from pixprep.pipeline.ops.limits import MAX_SIDE
from pixprep.pipeline.ops.op import changed
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.plan import Plan
from pixprep.plan.steps.operators import OperatorCall
from pixprep.training.cache import PixelCache
from pixprep.training.fields import Annotated, run_annotated
from pixprep.training.mixing import is_within
from pixprep.training.order import CHAINS, COPY, Indices, Order, generator, is_integer
from pixprep.training.reading import Reader, Sample

Fields = dict[str, Any]
_PATH_BITS = 16
MAX_TRIES = 100
"""Maximum number of times that a partner is drawn until it is not broken."""
_BY_NAME = "pass all arguments by name, such as p=0.5"


@dataclass(frozen=True)
class Request:
    """Request for a sample from a chain.

    Attributes:
        index: Index of the sample in the source.
        attempt: Attempt number of the sample.
        path: 0 for a sample of a batch. For a partner, a hash of the stage, of its number among the partners, and of
            the path of the sample that it is combined with. Each partner therefore has its own random parameters.
    """

    index: int
    attempt: int
    path: int = 0

    @property
    def key(self) -> int:
        """Attempt number, combined with ``path``, with which the random parameters are sampled."""
        return self.attempt | self.path << 24

    def partner(self, number: int, which: int, index: int) -> Request:
        """Return the request for a partner.

        Args:
            number: Number of the stage in the chain.
            which: Number of the partner, from 1.
            index: Index of the partner's sample in the source.
        """
        return Request(index, self.attempt, self._path(number, which))

    def stage_key(self, number: int) -> int:
        """Return the attempt number with which a pipeline of the chain samples its random parameters.

        Ops of different pipelines may have the same key. Different attempt numbers make their random parameters
        independent.

        Args:
            number: Number of the pipeline in the chain.
        """
        return replace(self, path=self._path(number, 0)).key

    def _path(self, *position: int) -> int:
        return crc32(repr((*position, self.path)).encode()) % ((1 << _PATH_BITS) - 1) + 1


@dataclass(frozen=True)
class Item:
    """Sample between two stages of a chain.

    Attributes:
        sample: Sample, whose image is an array, uint8 (height, width, channels), or an error.
        history: Random parameters of the previous stages. A pipeline without random ops does not have an entry.
    """

    sample: Sample
    history: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_broken(self) -> bool:
        """Whether the sample could not be read or decoded."""
        return isinstance(self.sample.image, ImageError)


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Base class of augmentations that combine a sample with others.

    Attributes:
        partners: Number of other samples that each sample is combined with.
        min_recent: Minimum number of recent samples that are required with ``recent``, including the sample itself.
    """

    p: float = 1.0
    recent: int | None = None
    partners: ClassVar[int]
    min_recent: ClassVar[int]

    def __post_init__(self) -> None:
        """Check the arguments."""
        name = type(self).__name__
        if not is_within(self.p, 0, 1):
            raise PipelineError(f"{name}: p must be from 0 to 1, not {self.p!r}")
        if self.recent is not None and not is_integer(self.recent, self.min_recent):
            raise PipelineError(f"{name}: recent must be an integer of at least {self.min_recent}, not {self.recent!r}")

    def check(self, plan: Plan) -> None:
        """Raise a PipelineError if the augmentation does not support the annotations of a plan."""

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Sample the random parameters. JSON can represent the result."""
        raise NotImplementedError

    def mixed(self, words: Mapping[str, Any], parts: Sequence[_Part], plan: Plan) -> _Part | None:
        """Combine a sample with its partners.

        Args:
            words: Random parameters from ``draw``.
            parts: The sample and its partners.
            plan: Plan with the annotations of the samples.

        Returns:
            The result, or None if the sample does not change.
        """
        raise NotImplementedError


@explained(MOSAIC, _BY_NAME)
@dataclass(frozen=True, kw_only=True)
class Mosaic(Mixture):
    """Place four images around a random point of a canvas: a stage of the argument ``mix`` of a ``Loader``.

    The image itself is at the upper left of the point, and three other images are at the upper right, lower left and
    lower right. The canvas has ``2 * height`` x ``2 * width`` pixels. The parts of images outside of it are cut off.
    This is the mosaic of YOLOX, Ultralytics and mmdetection (RTMDet), whose images are first resized to fit ``height``
    x ``width``, by ops before the mosaic. Boxes are clipped to the canvas, and boxes outside it are removed.

    Args:
        height: Height of an image's area in pixels.
        width: Width of an image's area in pixels. Default: ``height``.
        p: Probability that an image becomes a mosaic.
        center: Minimum and maximum position of the point, as a fraction of ``height`` and ``width``.
        fill: Pixel value of the canvas, 0 to 255.
        recent: Maximum number of recent samples from which the three other images are drawn. Recent samples are the
            image itself and the samples of this shard before it in the epoch. They are cached, as in RTMDet's
            ``CachedMosaic`` with ``random_pop=False``. The first four images of an epoch do not change. Default: images
            of the whole source.

    Raises:
        PipelineError: An argument is invalid.
    """

    height: int
    width: int | None = None
    center: tuple[float, float] = (0.5, 1.5)
    fill: int = 114
    partners: ClassVar[int] = 3
    min_recent: ClassVar[int] = 5

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        for name, side in zip(("height", "width"), self._area, strict=True):
            if not is_integer(side, 1, 8192):
                raise PipelineError(f"Mosaic: {name} must be an integer from 1 to 8192, not {side!r}")
        is_pair = isinstance(self.center, list | tuple | np.ndarray) and len(self.center) == 2
        if not (is_pair and all(is_within(each, 0, 2) for each in self.center) and self.center[0] <= self.center[1]):
            raise PipelineError(
                f"Mosaic: center must be two numbers from 0 to 2 in ascending order, not {self.center!r}"
            )
        if not is_integer(self.fill, 0, 255):
            raise PipelineError(f"Mosaic: fill must be an integer from 0 to 255, not {self.fill!r}")

    @property
    def _area(self) -> tuple[int, int]:
        """Height and width of an image's area in pixels."""
        return self.height, self.height if self.width is None else self.width

    def check(self, plan: Plan) -> None:
        """See ``Mixture``."""
        _check_zoom("Mosaic", plan)

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Return the point (y, x) on the canvas in pixels, ``{"mosaic": [y, x]}``."""
        low, high = self.center
        y, x = rng.random(2).tolist()
        sides = zip((y, x), self._area, strict=True)
        return {"mosaic": [int(low * side + u * (high * side - low * side)) for u, side in sides]}

    def mixed(self, words: Mapping[str, Any], parts: Sequence[_Part], plan: Plan) -> _Part:
        """See ``Mixture``."""
        y, x = words["mosaic"]
        upper, left = (True, True, False, False), (True, False, True, False)
        sizes = [part.size for part in parts]
        corners = [(y - size[0] * up, x - size[1] * at) for size, up, at in zip(sizes, upper, left, strict=True)]
        height, width = self._area
        return _pasted(parts, corners, (2 * height, 2 * width), self.fill, plan)


@explained(COMBINED, _BY_NAME)
@dataclass(frozen=True, kw_only=True)
class MixUp(Mixture):
    """Blend an image with another image, and keep the boxes of both: a stage of the argument ``mix`` of a ``Loader``.

    This is the mixup of YOLOX, Ultralytics and mmdetection (RTMDet). ``Mix`` is the mixup of classifiers. Both images
    must have the same size, and the pipeline must not contain ``mask`` or ``target``. If the pipeline contains the op
    ``boxes`` and the other image does not have any boxes, the image does not change. YOLOX draws a different image in
    this case.

    Args:
        p: Probability that an image changes.
        alpha: Parameter of the beta distribution of the image's weight; Ultralytics uses 32. Default: both weights are
            0.5, as in YOLOX and RTMDet.
        partner: Stages that compute the other image, in place of the preceding stages of the chain. Default: the
            preceding stages, such as a mosaic.
        recent: Maximum number of recent samples from which the other image is drawn; see ``Mosaic``. The first
            image of an epoch does not change.

    Raises:
        PipelineError: An argument is invalid.
    """

    alpha: float | None = None
    partner: Sequence[Any] | None = None
    partners: ClassVar[int] = 1
    min_recent: ClassVar[int] = 2

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        if self.alpha is not None and not (is_within(self.alpha, 0) and self.alpha > 0):
            raise PipelineError(f"MixUp: alpha must be greater than 0, not {self.alpha!r}")
        if self.partner is not None:
            _check_stages("MixUp: partner", self.partner)
        if self.partner is not None and self.recent is not None:
            raise PipelineError(
                "MixUp: recent images come from the preceding stages, and not from partner: remove partner or recent"
            )

    def check(self, plan: Plan) -> None:
        """See ``Mixture``."""
        for name in _planes(plan):
            raise PipelineError(f'MixUp: "{name}" has one value per pixel, which MixUp cannot blend: remove its op')

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Return the weight of the image itself, such as ``{"mixup": 0.5}``."""
        return {"mixup": 0.5 if self.alpha is None else float(rng.beta(self.alpha, self.alpha))}

    def mixed(self, words: Mapping[str, Any], parts: Sequence[_Part], plan: Plan) -> _Part | None:
        """See ``Mixture``."""
        own, other = parts
        _check_sizes("MixUp", parts)
        if plan.boxes and not len(other.boxes):
            return None
        weight = words["mixup"]
        if weight == 0.5:
            image = ((own.image.astype(np.uint16) + other.image) >> 1).astype(np.uint8)
        else:
            image = (own.image * weight + other.image * (1 - weight)).astype(np.uint8)
        return own.joined([other], image, plan)


@explained(COMBINED, _BY_NAME)
@dataclass(frozen=True, kw_only=True)
class CopyPaste(Mixture):
    """Paste objects of another image into each image: a stage of the argument ``mix`` of a ``Loader``.

    The pipeline must contain the ops ``boxes`` and ``masks``, and both images must have the same size. Objects are
    pasted at their original positions; each object is selected with a probability of 0.5. The pasted objects hide parts
    of the existing ones: these parts are removed from the masks, and the boxes become the bounding boxes of the visible
    parts. An object that is completely hidden is removed. ``mask`` and ``target`` receive the values of the pasted
    pixels. The augmentation is that of Ghiasi et al. (2021) as in torchvision's detection reference, without blending.

    Args:
        p: Probability that objects are pasted into an image.
        recent: Maximum number of recent samples from which the other image is drawn; see ``Mosaic``. The first
            image of an epoch does not change.

    Raises:
        PipelineError: An argument is invalid.
    """

    partners: ClassVar[int] = 1
    min_recent: ClassVar[int] = 2

    def check(self, plan: Plan) -> None:
        """See ``Mixture``."""
        if not {"boxes", "masks"} <= {each.field for each in plan.annotations.values()}:
            raise PipelineError("CopyPaste requires the boxes and masks of objects: add the ops boxes and masks")
        _check_zoom("CopyPaste", plan)

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Return a seed for the selection of objects, such as ``{"seed": 81985529216486895}``."""
        return {"seed": int(rng.integers(1 << 63))}

    def mixed(self, words: Mapping[str, Any], parts: Sequence[_Part], plan: Plan) -> _Part | None:
        """See ``Mixture``."""
        own, other = parts
        _check_sizes("CopyPaste", parts)
        rng = np.random.Generator(np.random.Philox(key=words["seed"]))
        pasted = np.flatnonzero(rng.random(len(other.boxes)) < 0.5)
        if not len(pasted):
            return None
        new = other.selected(pasted, plan)
        hides = new.fields["masks"].any(axis=0)
        masks = own.fields["masks"] * ~hides
        boxes = own.boxes.copy()
        for number in np.flatnonzero((own.fields["masks"] != masks).any(axis=(1, 2))):
            boxes[number] = _around(masks[number])
        visible = own.changed({"masks": masks, "boxes": boxes})
        visible = visible.selected(np.flatnonzero((boxes[:, 2:] > boxes[:, :2]).all(axis=1)), plan)
        image = np.where(hides[:, :, None], other.image, own.image)
        made = visible.joined([new], image, plan)
        planes = {name: own.fields[name].copy() for name in _planes(plan)}
        for name, plane in planes.items():
            plane[hides] = other.fields[name][hides]
        return made.changed(planes)


@explained(CHAIN, "pass the stages as one list")
@dataclass(frozen=True)
class Chain:
    """Stages that change each decoded image before the pipeline: ``pp.Loader(..., mix=pp.Chain([...]))``.

    A stage is an op, a list of ops, ``Mosaic``, ``MixUp`` or ``CopyPaste``. Consecutive ops form a pipeline, which also
    transforms the annotations of the Loader's pipeline. The op ``boxes`` of the Loader's pipeline determines which
    boxes remain, unless the consecutive ops contain ``boxes``. A list of ops is a separate pipeline. ``mix=[...]`` is
    short for ``mix=pp.Chain([...])``.

    The partners of an image are drawn from the whole source. A broken partner is replaced by another one, unless
    ``on_error`` is "raise". ``batch["mix"]`` contains a list for each image, with the random parameters of its stages.
    The entry of random ops is ``{"draws": ...}``. The entry of an augmentation contains its parameters and the list
    ``of``. For each partner, this list contains the ``index`` of the partner and, in ``mix``, its random parameters.
    The entry is ``{}`` if the augmentation did not change the image. The stages run on the CPU.

    Args:
        stages: The stages, in order.
        until: First epoch in which ``stages`` are not applied. For example, YOLOX trains 300 epochs with
            ``no_aug_epochs=15``, which is ``until=285``. Ultralytics names this argument ``close_mosaic``. Default: the
            stages are applied in all epochs.
        then: Ops that replace the stages from the epoch ``until`` on.

    Raises:
        PipelineError: An argument is invalid.
    """

    stages: Sequence[Any]
    until: int | None = None
    then: Sequence[Any] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Check the arguments."""
        _check_stages("Chain: stages", self.stages)
        _check_stages("Chain: then", self.then)
        if self.until is not None and not is_integer(self.until, 0):
            raise PipelineError(f"Chain: until must be the number of an epoch, not {self.until!r}")
        if self.then and self.until is None:
            raise PipelineError("Chain: then requires until, the first epoch in which it replaces the stages")


def _check_stages(name: str, stages: object) -> None:
    """Raise a PipelineError if an argument is not a list of stages. The stages themselves are checked by ``Mixer``."""
    if not isinstance(stages, list | tuple):
        raise PipelineError(f"{name} must be a list of ops and augmentations, not {stages!r}")


def _check_zoom(name: str, plan: Plan) -> None:
    """Raise a PipelineError if a plan has a target whose resolution differs from that of the image."""
    if zoomed := next((each.field for each in plan.targets.values() if each.zoom > 1), None):
        raise PipelineError(f'{name}: the target "{zoomed}" has a "zoom", which is not supported: remove it')


class _Part:
    """Image and annotations of a sample, in the form in which a stage of a chain receives them.

    Attributes:
        image: Pixels, uint8 (height, width, channels).
        fields: Fields of the sample.
    """

    def __init__(self, image: npt.NDArray[Any], fields: Mapping[str, Any]) -> None:
        self.image, self.fields = image, fields

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the image."""
        height, width = self.image.shape[:2]
        return height, width

    @property
    def boxes(self) -> npt.NDArray[Any]:
        """Boxes, float32 (n, 4) xyxy in pixels."""
        boxes: npt.NDArray[Any] = self.fields["boxes"]
        return boxes

    def changed(self, fields: Mapping[str, Any]) -> _Part:
        """Return a copy with other values of some fields."""
        return _Part(self.image, {**self.fields, **fields})

    def selected(self, kept: npt.NDArray[Any], plan: Plan) -> _Part:
        """Return a copy that contains only the selected boxes and their fields."""
        return self.changed({name: self.fields[name][kept] for name in _of_boxes(self.fields, plan)})

    def joined(self, others: Sequence[_Part], image: npt.NDArray[Any], plan: Plan) -> _Part:
        """Return a copy with a different image, and with the objects of this part and of others."""
        fields = dict(self.fields)
        every = [self.fields, *(other.fields for other in others)]
        for name in dict.fromkeys(name for each in every for name in _of_objects(each, plan)):
            if any(name not in each for each in every):
                raise DataError(
                    f'some samples have no "{name}": a mosaic, mixup or copy-paste needs it for every sample'
                )
            # a sample without objects may have an empty list, whose dtype and number of axes are arbitrary
            values = [np.asarray(each[name]) for each in every]
            values = [each for each in values if len(each)] or values[:1]
            if len({each.shape[1:] for each in values}) > 1:
                shapes = " and ".join(str(each.shape) for each in values)
                raise DataError(
                    f'"{name}" of several samples cannot be concatenated, because the shapes do not match: {shapes}'
                )
            fields[name] = np.concatenate(values)
        return _Part(image, fields)


def _pasted(
    parts: Sequence[_Part], corners: Sequence[tuple[int, int]], size: tuple[int, int], fill: int, plan: Plan
) -> _Part:
    """Paste several images with their annotations on a canvas. Boxes that are outside the canvas are removed.

    Args:
        parts: Images with their annotations. The first one provides the fields that do not belong to objects or pixels.
        corners: Row and column of the canvas at which each image begins. They may be negative.
        size: (height, width) of the canvas.
        fill: Pixel value of the canvas outside the images.
        plan: Plan with the annotations of the samples.
    """
    first, moved = parts[0], []
    canvas = np.full((*size, *first.image.shape[2:]), fill, np.uint8)
    planes = {
        name: np.full((*size, *first.fields[name].shape[2:]), ignore, first.fields[name].dtype)
        for name, ignore in _planes(plan).items()
    }
    boxes_plan = next(iter(plan.boxes.values()), None)
    for part, (top, left) in zip(parts, corners, strict=True):
        height, width = part.size
        ends = min(top + height, size[0]), min(left + width, size[1])
        outer = slice(max(top, 0), max(ends[0], 0)), slice(max(left, 0), max(ends[1], 0))
        inner = tuple(slice(each.start - at, each.stop - at) for each, at in zip(outer, (top, left), strict=True))
        canvas[outer] = part.image[inner]
        for name, plane in planes.items():
            plane[outer] = part.fields[name][inner]
        fields, shift = {}, np.array([left, top], np.float32)
        objects = _of_objects(part.fields, plan)
        if "points" in objects:
            fields["points"] = part.fields["points"] + shift
        if "masks" in objects:
            masks = part.fields["masks"]
            fields["masks"] = np.zeros((len(masks), *size), masks.dtype)
            fields["masks"][(slice(None), *outer)] = masks[(slice(None), *inner)]
        if boxes_plan is not None:
            boxes = part.boxes + np.tile(shift, 2)
            seen = boxes.clip(0, np.array([size[1], size[0]] * 2, np.float32))
            fields["boxes"] = seen if boxes_plan.clip else boxes
            kept = np.flatnonzero((seen[:, 2:] > seen[:, :2]).all(axis=1))
            moved.append(part.changed(fields).selected(kept, plan))
        else:
            moved.append(part.changed(fields))
    return moved[0].joined(moved[1:], canvas, plan).changed(planes)


def _planes(plan: Plan) -> dict[str, float]:
    """Return the fields with one value per pixel, each with the value that fills the area outside the image."""
    masks = {each.field: each.ignore for each in plan.masks.values() if each.field == "mask"}
    return masks | {each.field: each.ignore for each in plan.targets.values()}


def _of_boxes(fields: Mapping[str, Any], plan: Plan) -> list[str]:
    """Return the fields with one value per box, including ``boxes``. Empty if the plan has no boxes."""
    boxes = next(iter(plan.boxes.values()), None)
    if boxes is None:
        return []
    masks = {each.field for each in plan.masks.values()} & {"masks"}
    return [name for name in fields if name == "boxes" or name in masks or boxes.takes_along(name)]


def _of_objects(fields: Mapping[str, Any], plan: Plan) -> list[str]:
    """Return the fields whose values are concatenated when samples are combined."""
    moved = {each.field for each in plan.annotations.values()} & {"points", "masks"}
    moved |= {"visible"} if "points" in moved else set()
    return [*dict.fromkeys([*_of_boxes(fields, plan), *(name for name in fields if name in moved)])]


def _check_sizes(name: str, parts: Sequence[_Part]) -> None:
    """Raise a PipelineError if images differ in size."""
    sizes = {part.size for part in parts}
    if len(sizes) > 1:
        these = " and ".join(f"{height} x {width}" for height, width in sorted(sizes))
        raise PipelineError(
            f"{name}: the images have different sizes, {these}: add an op before it that returns images of one size, "
            "such as letterbox, or random_crop with pad_if_needed"
        )


def _around(mask: npt.NDArray[Any]) -> tuple[float, float, float, float]:
    """Return the bounding box of a mask as (x1, y1, x2, y2) with exclusive ends. All zeros for an empty mask."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return 0.0, 0.0, 0.0, 0.0
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


@dataclass(frozen=True, eq=False)
class _Node:
    """Compiled stage of a chain.

    Attributes:
        mixture: Augmentation, or None for a pipeline.
        engine: Engine of a pipeline, or None for an augmentation.
        number: Number of the stage in the chain, from 1.
        partner: Stages that compute the partners; None means the preceding stages.
        kept: Cached inputs of an augmentation with ``recent``, by request.
    """

    mixture: Mixture | None = None
    engine: Engine | None = None
    number: int = 0
    partner: tuple[_Node, ...] | None = None
    kept: OrderedDict[Request, Item] = field(default_factory=OrderedDict)


class Mixer:
    """Applies a chain to the samples of a Loader. Only one thread at a time may use it.

    Args:
        chain: The chain.
        pipeline: Pipeline of the Loader.
        order: Order of the samples.
        engine: Function that creates an engine on the CPU for a pipeline.
        cache: Cache of decoded images, if enabled.

    Attributes:
        pipeline: Pipeline that is applied to the results of the chain. It begins with ``pixels``.
        plan: Plan of the first stage, which specifies the fields of the samples that it reads.

    Raises:
        PipelineError: The chain does not support the pipeline, or a stage is invalid.
    """

    def __init__(
        self,
        chain: Chain,
        pipeline: Pipeline,
        order: Order,
        engine: Callable[[Pipeline], Engine],
        cache: PixelCache | None,
    ) -> None:
        first, *ops = pipeline.ops
        if not isinstance(first, Decode | Pixels):
            raise PipelineError(
                "mix: a chain does not support video clips: use a pipeline that begins with decode or pixels"
            )
        if pipeline.inputs:
            raise PipelineError(
                f"mix: a chain does not support the input {next(iter(pipeline.inputs))} of the pipeline"
            )
        self._first, self._engine, self._order, self._cache = first, engine, order, cache
        self._operators, self._epoch, self._until, self._count = pipeline.operators, -1, chain.until, 0
        found = {_kind(op): op for op in pipeline.side_ops if isinstance(op, AnnotationOp)}
        self._annotations = [_plain(op) for op in found.values()]
        pixels = Pixels(color=first.color, name=first.name)
        self.pipeline = Pipeline([pixels, *ops], operators=pipeline.operators).at(pipeline.side)
        self._reader: Reader | None = None
        self._given: dict[Request, Sample] = {}
        self._placed: tuple[int, tuple[Indices, Indices, Indices]] | None = None
        self.broken: list[tuple[Sample, ImageError]] = []
        self._stages, self._then = self._compiled(chain.stages), self._compiled(chain.then)

    def _compiled(self, stages: Sequence[Any]) -> tuple[_Node, ...]:
        """Compile stages. The first compiled stage is always the pipeline that decodes the images."""
        groups: list[Any] = [[]]
        for stage in stages:
            if isinstance(stage, Op | OperatorCall) and isinstance(groups[-1], list):
                groups[-1].append(stage)
            elif isinstance(stage, Op | OperatorCall):
                groups.append([stage])
            elif isinstance(stage, list | tuple):
                groups += [tuple(stage)]
            elif isinstance(stage, Mixture):
                groups.append(stage)
            else:
                raise PipelineError(
                    f"mix: a stage must be an op, a list of ops, Mosaic, MixUp or CopyPaste, not {stage!r}"
                )
        nodes: list[_Node] = []
        for group in groups:
            self._count += 1
            number = self._count
            if isinstance(group, Mixture):
                group.check(nodes[0].engine.plan)  # type: ignore[union-attr]
                partner = getattr(group, "partner", None)
                partner = None if partner is None else self._compiled(partner)
                nodes.append(_Node(group, number=number, partner=partner))
                continue
            begin = self._first if not nodes else Pixels(color=self._first.color)
            tensor = Tensor(layout="hwc", dtype="uint8", max_size=MAX_SIDE, only="training")
            own = {_kind(op) for op in group if isinstance(op, AnnotationOp)}
            ops = [begin, *group, *(op for op in self._annotations if _kind(op) not in own), tensor]
            try:
                made = Pipeline(ops, operators=self._operators).for_training()
            except PipelineError as error:
                raise PipelineError(f"mix: {error}") from None
            nodes.append(_Node(engine=self._engine(made), number=number))
        return tuple(nodes)

    @property
    def plan(self) -> Plan:
        """See the class."""
        assert self._stages[0].engine is not None
        return self._stages[0].engine.plan

    def close(self) -> None:
        """Close the engines."""
        for node in _flat((*self._stages, *self._then)):
            if node.engine is not None:
                node.engine.close()

    def mixed(self, samples: Sequence[Sample], attempts: Sequence[int], epoch: int, reader: Reader) -> list[Item]:
        """Apply the chain to samples.

        Afterwards, ``broken`` contains the broken partners that were replaced, with their errors.

        Args:
            samples: Samples that were read.
            attempts: Attempt number of each sample.
            epoch: Number of the epoch.
            reader: Reader of the partners.
        """
        if epoch != self._epoch:
            for node in _flat((*self._stages, *self._then)):
                node.kept.clear()
        self._epoch, self._reader, self.broken = epoch, reader, []
        requests = [Request(sample.index, attempt) for sample, attempt in zip(samples, attempts, strict=True)]
        self._given = dict(zip(requests, samples, strict=True))
        try:
            stages = self._stages if self._until is None or epoch < self._until else self._then
            items = self._made(stages, requests)
        finally:
            self._given = {}
        return items

    def _made(self, stages: tuple[_Node, ...], requests: Sequence[Request]) -> list[Item]:
        """Return the results of several stages for each request. Without stages, read the samples."""
        if not stages:
            missing = [each for each in dict.fromkeys(requests) if each not in self._given]
            keys = [each.key for each in missing]
            assert self._reader is not None
            read = self._reader.samples([each.index for each in missing], self._epoch, keys) if missing else []
            found = {**self._given, **dict(zip(missing, read, strict=True))}
            return [Item(found[each]) for each in requests]
        *before, node = stages
        if node.mixture is None:
            items = self._made(tuple(before), requests)
            return self._applied(node, requests, items, is_original=not before)
        return self._combined(node, tuple(before), requests)

    def _applied(
        self, node: _Node, requests: Sequence[Request], items: Sequence[Item], *, is_original: bool
    ) -> list[Item]:
        """Apply a pipeline to images."""
        assert node.engine is not None
        batch, places = run_annotated(
            node.engine,
            [item.sample for item in items],
            seed=self._order.seed,
            epoch=self._epoch,
            attempts=[each.stage_key(node.number) for each in requests],
            cache=self._cache if node in (self._stages[0], *self._then[:1]) else None,
            is_original=is_original,
        )
        return [self._item(batch, row, items[row], place, node.engine.plan) for row, place in enumerate(places)]

    @staticmethod
    def _item(batch: Batch, row: int, item: Item, place: Annotated, plan: Plan) -> Item:
        """Return the result of a pipeline for one row of its batch."""
        sample, error = item.sample, batch.errors[row]
        if error is not None:
            return Item(replace(sample, image=sample.error(error)))
        rest = {name: value for name, value in sample.fields.items() if name not in (*moving(plan), "size")}
        fields = {**rest, **place.fields}
        for target in plan.targets.values():
            fields[target.field] = np.moveaxis(fields[target.field], 0, -1)
        placed = batch.placed[row]
        assert placed is not None
        history = (*item.history, *([{"draws": dict(placed.draws)}] if placed.draws else []))
        return Item(replace(sample, image=batch["tensor"][row], fields=fields, identity=None), history)

    def _combined(self, node: _Node, before: tuple[_Node, ...], requests: Sequence[Request]) -> list[Item]:
        """Apply an augmentation to images."""
        mixture = node.mixture
        assert mixture is not None
        rngs = [
            generator((self._order.seed, self._epoch, each.index, each.key), node.number << 8 | CHAINS)
            for each in requests
        ]
        pools = [self._pool(mixture, each) for each in requests]
        changes = [
            rng.random() < mixture.p and (pool is None or len(pool) >= mixture.min_recent)
            for rng, pool in zip(rngs, pools, strict=True)
        ]
        words = [mixture.draw(rng) for rng in rngs]
        owns = self._inputs(node, before, requests)
        changes = [change and not own.is_broken for change, own in zip(changes, owns, strict=True)]
        partners: list[list[Item | None]] = [[None] * mixture.partners for _ in requests]
        left = [(row, which) for row, change in enumerate(changes) if change for which in range(mixture.partners)]
        for _ in range(MAX_TRIES):
            wanted = [self._partner(node, requests[row], pools[row], rngs[row], which + 1) for row, which in left]
            found = self._made(node.partner, wanted) if node.partner else self._inputs(node, before, wanted)
            for (row, which), item in zip(left, found, strict=True):
                partners[row][which] = item
            self.broken += [
                (each.sample, each.sample.image) for each in found if isinstance(each.sample.image, ImageError)
            ]
            left = [place for place, item in zip(left, found, strict=True) if item.is_broken]
            if not left:
                break
        else:
            raise DataError(f"all {MAX_TRIES} samples that were drawn as the partner of a sample are broken")
        made = []
        for own, others, change, each in zip(owns, partners, changes, words, strict=True):
            made.append(self._joined(node, own, [item for item in others if item is not None] if change else [], each))
        return made

    def _joined(self, node: _Node, own: Item, others: Sequence[Item], words: Mapping[str, Any]) -> Item:
        """Combine an image with its partners, if there are any."""
        if own.is_broken:
            return own
        plan = self.plan
        assert node.mixture is not None
        result = None
        if others:
            parts = [_Part(item.sample.image, item.sample.fields) for item in (own, *others)]  # type: ignore[arg-type]
            result = node.mixture.mixed(words, parts, plan)
        if result is None:
            return replace(own, history=(*own.history, {}))
        of = [{"index": item.sample.index, "mix": [*item.history]} for item in others]
        sample = replace(own.sample, image=result.image, fields=result.fields)
        return Item(sample, (*own.history, {**words, "of": of}))

    def _inputs(self, node: _Node, before: tuple[_Node, ...], requests: Sequence[Request]) -> list[Item]:
        """Return the images that an augmentation receives. With ``recent``, the images of recent samples are cached."""
        assert node.mixture is not None
        if node.mixture.recent is None:
            return self._made(before, requests)
        missing = [each for each in dict.fromkeys(requests) if each not in node.kept]
        node.kept.update(zip(missing, self._made(before, missing), strict=True))
        found = [node.kept[each] for each in requests]
        while len(node.kept) > node.mixture.recent + self._order.batch_size:
            node.kept.popitem(last=False)
        return found

    def _partner(
        self, node: _Node, request: Request, pool: Sequence[Request] | None, rng: np.random.Generator, which: int
    ) -> Request:
        """Draw a partner from the whole source, or from the recent samples."""
        if pool is not None:
            return pool[int(rng.random() * len(pool))]
        return request.partner(node.number, which, int(rng.random() * self._order.samples))

    def _pool(self, mixture: Mixture, request: Request) -> list[Request] | None:
        """Return the recent samples: the sample itself and those before it in the epoch.

        None means that the augmentation does not have ``recent``.
        """
        if mixture.recent is None:
            return None
        order, places, starts = self._places()
        copy = request.attempt // COPY
        begin, end = starts[request.index], starts[request.index + 1]
        if begin + copy >= end:  # a replacement that is not in the order of the epoch
            return []
        world, size, place = self._order.shard[1], self._order.batch_size, int(places[begin + copy])
        lane, own = place // size % world, place // (size * world) * size + place % size
        numbers = np.arange(max(own - mixture.recent + 1, 0), own + 1)
        those = (numbers // size * world + lane) * size + numbers % size
        copies = np.array(
            [np.searchsorted(places[starts[i] : starts[i + 1]], at) for i, at in zip(order[those], those, strict=True)]
        )
        return [Request(int(i), int(c) * COPY) for i, c in zip(order[those], copies, strict=True)]

    def _places(self) -> tuple[Indices, Indices, Indices]:
        """Return the order of the epoch, its positions sorted by sample, and each sample's first index in them."""
        if self._placed is None or self._placed[0] != self._epoch:
            order = self._order.order(self._epoch)
            places = np.argsort(order, kind="stable")
            starts = np.searchsorted(order[places], np.arange(self._order.samples + 1))
            self._placed = self._epoch, (order, places, starts)
        return self._placed[1]


def _kind(op: Op) -> object:
    """Return a value that is equal for two ops if they transform the same field."""
    return op.field if isinstance(op, Target) else type(op)


def _plain(op: Op) -> Op:
    """Convert an annotation op for the stages of a chain. Their results must have the format of samples again."""
    plain: Fields = {"name": None, "from_": None, "only": None}
    if isinstance(op, Boxes):
        plain |= {"format": "xyxy", "normalized": False, "pad": None}
    elif isinstance(op, Points):
        plain |= {"normalized": False, "clip": False, "pad": None}
    elif isinstance(op, Target):
        plain["name"] = op.field
        if op.filter == "bilinear" and op.dtype == "float32":
            plain["ignore"] = nan  # interpolation between a value and NaN is NaN, which becomes ``ignore`` at the end
    return changed(op, **plain)


def _flat(nodes: Sequence[_Node]) -> Iterator[_Node]:
    """Yield all stages, including those of partners."""
    for node in nodes:
        yield node
        yield from _flat(node.partner or ())
