"""Defines the plan, which is the compiled form of a pipeline that the CPU and the GPU execute.

A plan consists of three kinds of steps. The geometric steps determine the position in the image that each output pixel
samples. They consist of at most one ``Resize``, with ``Window`` steps (crop or pad) and ``Flip`` steps before and after
it. As soon as the size of an image is known, the geometric steps are combined into one ``Placement``. The steps in
``levels`` then change the pixel values of the resulting uint8 image. Finally, the arithmetic converts pixel values to
tensor values. If the resize returns uint8, a look-up table with 256 entries replaces the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError
from pixprep.plan import inputs
from pixprep.plan.boxes import in_pixels
from pixprep.plan.clip_frames import Sampling
from pixprep.plan.draws import philox
from pixprep.plan.draws.augments import RandomStep
from pixprep.plan.draws.philox import EXAMPLE, Numbers, Words
from pixprep.plan.folding import Geometry
from pixprep.plan.inputs import Drawing, Row
from pixprep.plan.output_plans import (
    AnnotationPlan,
    BoxesPlan,
    FlowPlan,
    MaskPlan,
    NumbersPlan,
    OutputPlan,
    PointsPlan,
    TargetPlan,
    TensorPlan,
)
from pixprep.plan.placement import Part, Placement, ReducingGap, Reduction, Span
from pixprep.plan.steps.operators import Extern
from pixprep.spec import Alpha, Chroma, Frames, GrayLike, Idct, InputSpec

SPARE = 2
"""Minimum number of decoded pixels per resized pixel on each axis if a JPEG is decoded at 1/2, 1/4 or 1/8 of its size.

docs/decisions-training.md compares the pixels for this minimum with those for a smaller minimum.
"""

NEEDS_NUMBERS = (
    "random ops need random numbers: use a Loader, or pass places=[plan.placing(numbers) for numbers in "
    "plan.draw(seed=..., epoch=..., indices=...)]"
)

RECENT_SIZES = 512
"""Maximum number of image sizes whose placements are cached. A placement takes 1 kB, and is computed in 10 us."""


AnyPlan = TypeVar("AnyPlan")
_EMPTY: Mapping[str, Any] = MappingProxyType({})


class Place(Protocol):
    """Function that returns the placement of an image or clip in every output."""

    def __call__(self, height: int, width: int, frames: int = 1, /) -> Placed:
        """Return the placement of an image of this size.

        If the plan applies the EXIF orientation, the height and width are those of the oriented image.

        Raises:
            ImageError: DOES_NOT_FIT, BAD_DIMENSIONS: One of the outputs does not support images of this size.
        """


Mask = Callable[[Geometry, Placement, tuple[int, int]], npt.NDArray[Any]]
"""Function ``mask(geometry, placement, size)`` that returns the labels of a sample, (height, width), on the canvas of a
placement, which the geometry computed for an image of this (height, width)."""


@dataclass(frozen=True)
class ClipPlan:
    """Selection and orientation of the frames that a plan reads from a video clip.

    Attributes:
        sampling: Rule that selects the frames.
        drawn: Step that samples the random numbers for the selection. None means that the selection is not random.
        apply_rotation: Whether to rotate the frames as the metadata of the video container specifies.
    """

    sampling: Sampling
    drawn: RandomStep | None
    apply_rotation: bool


@dataclass(frozen=True)
class Fork:
    """Random choice between several plans, made per image.

    Attributes:
        step: Step that samples the choice. Its parameters have the form ``{"chosen": [1]}``.
        plans: Plan for each possible value of ``chosen``. Each of these plans may contain a further fork.
    """

    step: RandomStep
    plans: Mapping[tuple[int, ...], Plan]


def _by_kind(kind: type[AnyPlan]) -> cached_property[Mapping[str, AnyPlan]]:
    """Return a property of a plan that contains its outputs and annotations of one class, by name."""

    def found(plan: Plan) -> Mapping[str, AnyPlan]:
        every = {**plan.outputs, **plan.annotations}
        return {name: each for name, each in every.items() if isinstance(each, kind)}

    return cached_property(found)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Compiled pipeline.

    Attributes:
        is_gray: Whether images are decoded to one gray channel instead of RGB.
        clip: Frames to read, if the encoded inputs are video clips. None means that the inputs are images.
        takes: Format of the input, if the input consists of decoded pixels. None means that the input is encoded.
        apply_exif_orientation: Whether the EXIF orientation is applied.
        chroma, idct, reduced, alpha, window, gray_like: The fields of the op ``decode`` with these names.
        outputs: Outputs by name, in the order of the pipeline.
        annotations: Outputs that are computed from a sample's annotation (boxes, points, masks), by name.
        inputs: Specs of the per-image inputs, by name.
        fork: Random choice between plans with different geometries. If there is a fork, ``outputs`` describes the
            properties that all of these plans share, together with the geometry of the first leaf.
        leaf: Index of this plan in the ``leaves`` of the root plan (see ``Placement.leaf``).
        tensors, flows, numbers: The outputs with tensors, optical flow and numbers such as sizes, by name.
        boxes, points, masks, targets: The annotations with boxes, points, masks and image-like targets, by name.
    """

    is_gray: bool
    clip: ClipPlan | None = None
    takes: Frames | None = None
    apply_exif_orientation: bool = False
    chroma: Chroma = "fancy"
    idct: Idct = "accurate"
    reduced: bool = False
    alpha: Alpha = "drop"
    gray_like: GrayLike = "pillow"
    window: tuple[int, int] | None = None
    outputs: Mapping[str, OutputPlan]
    annotations: Mapping[str, AnnotationPlan] = field(default_factory=dict)
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    fork: Fork | None = None
    leaf: int = 0

    @cached_property
    def leaves(self) -> tuple[Plan, ...]:
        """All plans at the ends of nested forks, in the order of their indices. A plan without a fork is a leaf."""
        plans = () if self.fork is None else self.fork.plans.values()
        return tuple(leaf for plan in plans for leaf in plan.leaves) or (self,)

    def of(self, placed: Placed) -> Plan:
        """Return the leaf that computed the placement of an image."""
        return self.leaves[placed.leaf]

    @property
    def unsupported_by_cuda(self) -> tuple[str, ...]:
        """Names of the parts that have no CUDA kernel, for all tensors together; see ``TensorPlan``."""
        plans = [each for leaf in self.leaves for each in leaf.tensors.values()]
        plans += [each.frames for leaf in self.leaves for each in leaf.flows.values()]
        return tuple(dict.fromkeys(name for each in plans for name in each.unsupported_by_cuda))

    @property
    def is_packed(self) -> bool:
        """Whether the patches of all images are concatenated, because the number of patches depends on the image."""
        outputs = self.outputs.values()
        return any(output.spec.patches is not None and output.spec.is_open for output in outputs)

    @property
    def takes_boxes(self) -> bool:
        """Whether an image is converted to one tensor per box, or per other region, in the image's inputs."""
        return any(spec.is_region for spec in self.inputs.values())

    tensors = _by_kind(TensorPlan)
    flows = _by_kind(FlowPlan)
    numbers = _by_kind(NumbersPlan)
    boxes = _by_kind(BoxesPlan)
    points = _by_kind(PointsPlan)
    masks = _by_kind(MaskPlan)
    targets = _by_kind(TargetPlan)

    @cached_property
    def moving(self) -> tuple[str, ...]:
        """Fields of a sample that the ops transform. The ``name`` of an op may give the result a different name."""
        return tuple(dict.fromkeys(each.field for each in self.annotations.values()))

    @cached_property
    def random_steps(self) -> tuple[RandomStep | Extern, ...]:
        """Steps with random parameters, without duplicates."""
        if self.fork is not None:
            forked = {step.key: step for plan in self.fork.plans.values() for step in plan.random_steps}
            return tuple(({self.fork.step.key: self.fork.step} | forked).values())
        steps = {step.key: step for each in self._geometries for step in each.random_steps}
        first = (self.clip.drawn,) if self.clip is not None and self.clip.drawn is not None else ()
        return (*first, *steps.values())

    @property
    def is_random(self) -> bool:
        """Whether the plan has random parameters."""
        return bool(self.random_steps)

    @cached_property
    def sees(self) -> Mapping[str, str]:
        """Fields of a sample on which random parameters depend, each with the key of an op that depends on it."""
        return {field: step.key for step in self.random_steps for field in step.sees}

    @cached_property
    def _boxes(self) -> tuple[str, ...]:
        """Keys of the steps that crop to a box, or to another region, from an input. They have no duplicates."""
        regions = {name for name, spec in self.inputs.items() if spec.is_region}
        steps: list[Any] = [step for each in self._geometries for step in (*each.before, *each.after, *each.levels)]
        return tuple(dict.fromkeys(step.key for step in steps if getattr(step, "input", None) in regions))

    @property
    def geometries(self) -> tuple[Geometry, ...]:
        """All geometries of the outputs, without duplicates."""
        return tuple(self._geometries)

    @property
    def gap(self) -> ReducingGap | None:
        """First ``gap`` of a resize, or None."""
        resizes = [each.resize for leaf in self.leaves for each in leaf.geometries if each.resize is not None]
        return next((resize.gap for resize in resizes if resize.gap is not None), None)

    @cached_property
    def _geometries(self) -> Mapping[Geometry, tuple[Sequence[str], bool]]:
        """For each geometry, the names of the outputs that use it, and whether one of these outputs is a tensor.

        An image is placed once per geometry, not once per output.
        """
        names: dict[Geometry, list[str]] = {}
        for name, each in (*self.outputs.items(), *self.annotations.items()):
            if each.geometry is not None:
                names.setdefault(each.geometry, []).append(name)
        pixels = {*self.tensors, *self.flows}
        return {geometry: (group, not pixels.isdisjoint(group)) for geometry, group in names.items()}

    @cached_property
    def reaches(self) -> Sequence[tuple[str, int]]:
        """Name of each tensor, with the radius of the tensor's resize filter (``Resize.reach``)."""
        tensors = ((name, each.geometry.resize) for name, each in self.tensors.items())
        return [(name, resize.reach if resize else 0) for name, resize in tensors]

    def part(self, placed: Placed) -> Part | None:
        """Return the region of an EXIF-oriented image that the image's tensors are computed from.

        The result is None if the tensors depend on the whole image, or do not depend on any pixel.
        """
        if placed.gap is not None:
            return None
        parts = list[Part]()
        for row in placed.rows or (placed,):
            if isinstance(row, ImageError):
                continue
            for name, reach in self.of(row).reaches:
                placement = row.placements[name]
                if placement.photo:  # these steps may depend on all pixels, for example on their mean
                    return None
                if (part := placement.part(reach)) is not None:
                    parts.append(part)
        if len(parts) > 1:
            tops, lefts, bottoms, rights = zip(*parts, strict=True)
            parts = [(min(tops), min(lefts), max(bottoms), max(rights))]
        return None if not parts or parts[0] == (0, 0, placed.height, placed.width) else parts[0]

    @cached_property
    def place(self) -> Place:
        """Function that places an image only by its size. The placements of recent sizes are cached.

        Raises:
            PipelineError: The plan has random ops or per-image inputs.
        """
        if self.is_random:
            raise PipelineError(NEEDS_NUMBERS)
        if any(geometry.takes_inputs for geometry in self._geometries):
            raise PipelineError(inputs.needed(self.inputs))

        @lru_cache(RECENT_SIZES)
        def place(height: int, width: int, frames: int = 1) -> Placed:
            return self._place(height, width, Drawing(EXAMPLE, frames=frames))

        return place

    def draw(
        self, *, seed: int, epoch: int, indices: Sequence[int], attempts: Sequence[int] | int = 0
    ) -> list[Numbers]:
        """Return the random numbers of samples, which depend only on these arguments and the keys of the ops.

        Args:
            seed: Seed, 0 to 2^32 - 1.
            epoch: Epoch, 0 to 2^32 - 1.
            indices: Indices of the samples in their source.
            attempts: Attempt number of each sample, or one number for all samples. Each attempt has different random
                numbers.
        """
        return philox.draw(self.random_steps, seed=seed, epoch=epoch, indices=indices, attempts=attempts)

    def placing(
        self,
        numbers: Numbers | Mapping[str, Words],
        annotation: Mapping[str, Any] | None = None,
        mask: Mask | None = None,
    ) -> Place:
        """Return a function that computes the placements of one sample with its random parameters.

        Args:
            numbers: Random numbers of the sample, such as one element of the result of ``draw``, or recorded
                parameters, as in ``replaying``.
            annotation: Fields of the sample by name. Ops such as ``random_iou_crop`` require ``boxes``, float32 (n, 4)
                xyxy in pixels of the decoded image. Each per-image input requires one row of values.
            mask: Function that returns the labels of the sample on a canvas, for ops that depend on its mask.

        Raises:
            PipelineError: The sample lacks a field on which an op depends, or an input.
        """
        if not self.is_random and not self.inputs:
            return self.place
        sample = annotation or {}
        inputs_given = self.inputs if isinstance(numbers, Numbers) else {}
        for name, spec in inputs_given.items():
            if name not in sample:
                raise PipelineError(f'the pipeline has the input "{name}", {spec}, but the source\'s samples lack it')
        for name, key in self.sees.items():
            if sample.get(name) is None and (name != "mask" or sample.get("masks") is None):
                raise PipelineError(
                    f'{key.split("#")[0]} needs the "{name}" of each sample, but the source has no {name}'
                )

        def place(height: int, width: int, frames: int = 1) -> Placed:
            given = {**sample, "boxes": in_pixels(sample.get("boxes"), height, width)}
            rows = inputs.rows(inputs_given, given, most=None) if inputs_given else [None]
            drawing = Drawing(numbers, given, _or_raise(rows[0]), mask, frames)
            return self._place(height, width, drawing)

        return place

    def placing_rows(self, rows: Sequence[Row | ImageError], *, max_pixels: int) -> Place:
        """Return the function that places an image several times, once per row of its inputs.

        Args:
            rows: Rows of the inputs, as returned by ``inputs.rows``.
            max_pixels: Maximum total area of the image's boxes, in pixels.

        Returns:
            Function ``place``, whose result contains a placement or an error for each row (see ``Placed.rows``).
        """
        return lambda height, width, frames=1: self._place_rows(height, width, frames, rows, max_pixels)

    def replaying(self, draws: Mapping[str, Words], annotation: Mapping[str, Any] | None = None) -> Place:
        """Return the function that places one sample with recorded random parameters.

        Args:
            draws: Recorded parameters of each random op: the attribute ``draws`` of an earlier placement.
            annotation: Fields of the sample, as for ``placing``.

        Raises:
            PipelineError: ``draws`` lacks the parameters of an op, or the sample lacks the boxes or an input.
        """
        return self.placing(draws, annotation)

    def _place_rows(
        self, height: int, width: int, frames: int, rows: Sequence[Row | ImageError], max_pixels: int
    ) -> Placed:
        placements: list[Placed | ImageError] = []
        left = max_pixels
        for index, row in enumerate(rows):
            try:
                placed = self._place(height, width, Drawing(EXAMPLE, row=_or_raise(row), frames=frames))
                pixels = sum(placed.draws[key]["height"] * placed.draws[key]["width"] for key in self._boxes)
                _check_pixels(pixels, left, max_pixels)
                left -= pixels
                placements.append(placed)
            except ImageError as error:
                detail = error.detail
                if self.takes_boxes and not isinstance(row, ImageError):
                    box = next(name for name, spec in self.inputs.items() if spec.is_region)
                    detail = inputs.named(box, index, len(rows)) + detail
                placements.append(ImageError(error.reason, detail))
        if len(placements) == 1 and isinstance(placements[0], ImageError):  # the image does not have to be decoded
            raise placements[0]
        denominator = min((each.denominator for each in placements if isinstance(each, Placed)), default=1)
        return Placed(height, width, _EMPTY, denominator, rows=tuple(placements))

    def _place(self, height: int, width: int, drawing: Drawing) -> Placed:
        if self.fork is not None:
            words = drawing.words(self.fork.step, Span(height), Span(width))
            branch = self.fork.plans[tuple(words["chosen"])]
            return branch._place(height, width, drawing)  # noqa: SLF001  (a method of the same class)
        if self.clip is not None and self.clip.drawn is not None:
            drawing.words(self.clip.drawn, Span(height), Span(width))
        placements: dict[str, Placement] = {}
        min_ratio = inf  # decoded pixels per resized pixel
        gap: ReducingGap | None = None
        for geometry, (names, has_tensor) in self._geometries.items():
            placement = geometry.place(height, width, drawing)
            placement = placement._replace(leaf=self.leaf) if self.leaf else placement
            placements.update(dict.fromkeys(names, placement))
            for each in filter(None, (placement, placement.thumbnail)) if has_tensor else ():
                min_ratio = min(min_ratio, *each.ratio)
            if geometry.resize is not None and geometry.resize.gap is not None and not placement.is_kept:
                gap = replace(geometry.resize.gap, resized=placement.resized)
        fractions = (8, 4, 2) if self.reduced else ()
        denominator = next((fraction for fraction in fractions if fraction * SPARE <= min_ratio), 1)
        return Placed(height, width, placements, denominator, drawing.draws, drawing.kept, leaf=self.leaf, gap=gap)


class Placed(NamedTuple):
    """Placement of an image of known size in every output of a plan.

    Attributes:
        height, width: Size of the whole image in pixels, after the EXIF orientation if the plan applies it.
        placements: Placement in each output, by the name of the output. Outputs that only report the size of the
            decoded image do not have a placement.
        denominator: Denominator of the scale at which a JPEG may be decoded: 1, 2, 4 or 8. It is the largest of these
            numbers for which every tensor has at least ``SPARE`` decoded pixels per resized pixel on both axes.
        draws: Random parameters of this image, by the key of the random op. The parameters are JSON-serializable.
        kept: Mask of the annotated boxes that each op that removes boxes keeps, bool (n,), by the key of the op.
        frames: Indices of the selected frames in the video file, in presentation order.
        rows: Placement or error for each row of the image's inputs. If the plan does not have inputs, ``rows`` is
            empty. If it does, ``placements`` is empty, because each element of ``rows`` has its own placements.
        leaf: Index of the plan in ``Plan.leaves``.
        gap: Reduction of the decoded image before its resize. None means that it is not reduced.
    """

    height: int
    width: int
    placements: Mapping[str, Placement]
    denominator: int = 1
    draws: Mapping[str, Mapping[str, Any]] = _EMPTY
    kept: Mapping[str, npt.NDArray[np.bool_]] = _EMPTY
    frames: tuple[int, ...] = ()
    rows: tuple[Placed | ImageError, ...] = ()
    leaf: int = 0
    gap: ReducingGap | None = None

    @property
    def draft(self) -> int:
        """Denominator of the scale at which Pillow decodes a JPEG because of ``gap``: 1, 2, 4 or 8."""
        return 1 if self.gap is None else self.gap.denominator(self.height, self.width)

    def reduced(self, reduction: Reduction) -> Placed:
        """Return this placement for a JPEG that was decoded at a reduced size."""
        placements = {name: each.reduced(reduction) for name, each in self.placements.items()}
        rows = tuple(row if isinstance(row, ImageError) else row.reduced(reduction) for row in self.rows)
        return self._replace(placements=placements, rows=rows)


def _check_pixels(pixels: int, left: int, max_pixels: int) -> None:
    """Raise ImageError if the earlier boxes of an image leave too few pixels of the limit for another box."""
    if pixels > left:
        raise ImageError(
            "TOO_MANY_PIXELS",
            f"it covers {pixels:,} pixels, but only {left:,} of {max_pixels:,} are left for the boxes of an image "
            "(parameter max_box_pixels)",
        )


def _or_raise(row: Row | ImageError | None) -> Row | None:
    if isinstance(row, ImageError):
        raise ImageError(row.reason, row.detail)
    return row
