"""Augmentations that combine several samples before the pipeline: mosaic, mixup and copy-paste, and chains of them.

``training.mixer`` applies a chain to the samples of a Loader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from pixprep.errors import PipelineError
from pixprep.names import CHAIN, COMBINED, MOSAIC, explained
from pixprep.plan.plan import Plan
from pixprep.training.joining import Part, bounding_box, check_same_size, on_canvas, pixel_fields
from pixprep.training.mixing import is_within
from pixprep.training.order import is_integer

_BY_NAME = "pass all arguments by name, such as p=0.5"


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

    def mixed(self, words: Mapping[str, Any], parts: Sequence[Part], plan: Plan) -> Part | None:
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

    def mixed(self, words: Mapping[str, Any], parts: Sequence[Part], plan: Plan) -> Part:
        """See ``Mixture``."""
        y, x = words["mosaic"]
        upper, left = (True, True, False, False), (True, False, True, False)
        sizes = [part.size for part in parts]
        corners = [(y - size[0] * up, x - size[1] * at) for size, up, at in zip(sizes, upper, left, strict=True)]
        height, width = self._area
        return on_canvas(parts, corners, (2 * height, 2 * width), self.fill, plan)


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
        for name in pixel_fields(plan):
            raise PipelineError(f'MixUp: "{name}" has one value per pixel, which MixUp cannot blend: remove its op')

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Return the weight of the image itself, such as ``{"mixup": 0.5}``."""
        return {"mixup": 0.5 if self.alpha is None else float(rng.beta(self.alpha, self.alpha))}

    def mixed(self, words: Mapping[str, Any], parts: Sequence[Part], plan: Plan) -> Part | None:
        """See ``Mixture``."""
        own, other = parts
        check_same_size("MixUp", parts)
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

    def mixed(self, words: Mapping[str, Any], parts: Sequence[Part], plan: Plan) -> Part | None:
        """See ``Mixture``."""
        own, other = parts
        check_same_size("CopyPaste", parts)
        if not {"boxes", "masks"} <= {each.field for each in plan.annotations.values()}:
            return None  # in serving mode, samples may lack annotations
        rng = np.random.Generator(np.random.Philox(key=words["seed"]))
        pasted = np.flatnonzero(rng.random(len(other.boxes)) < 0.5)
        if not len(pasted):
            return None
        new = other.selected(pasted, plan)
        hides = new.fields["masks"].any(axis=0)
        masks = own.fields["masks"] * ~hides
        boxes = own.boxes.copy()
        for number in np.flatnonzero((own.fields["masks"] != masks).any(axis=(1, 2))):
            boxes[number] = bounding_box(masks[number])
        visible = own.changed({"masks": masks, "boxes": boxes})
        visible = visible.selected(np.flatnonzero((boxes[:, 2:] > boxes[:, :2]).all(axis=1)), plan)
        image = np.where(hides[:, :, None], other.image, own.image)
        made = visible.joined([new], image, plan)
        planes = {name: own.fields[name].copy() for name in pixel_fields(plan)}
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

    The boxes, points and masks of the combined images are concatenated, and so are the fields that have one value per
    box, such as ``labels``. Without the op ``boxes``, these fields have one value per object in ``masks`` or
    ``points``. All other fields of a batch, such as ``size`` and ``name``, are those of the image itself, as in
    Ultralytics and mmdetection.

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
