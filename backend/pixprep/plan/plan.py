"""Plan: what a pipeline is compiled to, and all that the CPU and the GPU read of it.

A plan has three small vocabularies. Geometry says where each output pixel looks: ``Window`` and ``Flip`` steps around
at most one ``Resize``; for an image of known size they fold into one ``Placement``. The steps of ``levels`` are done to
what is then an image of uint8. Arithmetic says what is done to the value, in a few steps, which become a table of 256
values where the resize gives whole levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError
from pixprep.plan import inputs
from pixprep.plan.boxes import in_pixels
from pixprep.plan.clip_frames import Sampling
from pixprep.plan.draws import philox
from pixprep.plan.draws.augments import RandomStep
from pixprep.plan.draws.crops import IouCrop
from pixprep.plan.draws.philox import EXAMPLE, Numbers, Words
from pixprep.plan.folding import Geometry
from pixprep.plan.inputs import Drawing, Row
from pixprep.plan.output_plans import AnnotationPlan, FlowPlan, OutputPlan, TensorPlan
from pixprep.plan.placement import Part, Placement, Reduction, Span
from pixprep.plan.steps.operators import Extern
from pixprep.spec import Alpha, Chroma, Frames, Idct, InputSpec

SPARE = 2
"""The decoded pixels that a resize keeps for each pixel that it makes, on each axis, when a JPEG is decoded to a
fraction of its size. docs/decisions.md has what fewer would cost."""

NEEDS_NUMBERS = (
    "random ops need numbers: use a Loader, or give places=[plan.placing(numbers) for numbers in "
    "plan.draw(seed=..., epoch=..., indices=...)]"
)

RECENT_SIZES = 512
"""Image sizes whose placements are cached: 1 kB each, and 10 us to make."""


_NOTHING: Mapping[str, Any] = MappingProxyType({})


Place = Callable[[int, int], "Placed"]
"""``place(height, width)``: where an image of this size, upright if the plan says so, lies in every output.

Raises:
    ImageError: DOES_NOT_FIT, BAD_DIMENSIONS: one of the outputs has no place for it.
"""


@dataclass(frozen=True)
class ClipPlan:
    """Choice of the frames of a clip that are decoded, and how.

    Attributes:
        sampling: which.
        drawn: the numbers that choose them; None: nothing is drawn.
        apply_rotation: turn them as the container says.
    """

    sampling: Sampling
    drawn: RandomStep | None
    apply_rotation: bool


@dataclass(frozen=True)
class Fork:
    """Plans of which a draw takes one: ``{"chosen": [1]}``.

    Attributes:
        step: which draws.
        plans: by what is chosen; each may have a fork of its own.
    """

    step: RandomStep
    plans: Mapping[tuple[int, ...], Plan]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A compiled pipeline.

    Attributes:
        clip: of clips their frames; None: images come.
        is_gray: decode to one channel; else to RGB.
        takes: the form of the pixels that come, which nothing decodes; None: encoded images come.
        apply_exif_orientation: turn the image upright.
        chroma, idct, reduced, alpha, window: as in the ``decode`` op.
        outputs: by name, in the order of the pipeline.
        annotations: what is made of a sample's annotation, by name.
        inputs: the numbers that come with each image, by name.
        fork: where a choice differs in geometry, what each of its draws comes to; ``outputs`` then say what all have in
            common, and their geometry is that of the first leaf.
        leaf: number of a plan that other forks lead to; see ``Placement.leaf``.
    """

    is_gray: bool
    clip: ClipPlan | None = None
    takes: Frames | None = None
    apply_exif_orientation: bool = False
    chroma: Chroma = "fancy"
    idct: Idct = "accurate"
    reduced: bool = False
    alpha: Alpha = "drop"
    window: tuple[int, int] | None = None
    outputs: Mapping[str, OutputPlan]
    annotations: Mapping[str, AnnotationPlan] = field(default_factory=dict)
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    fork: Fork | None = None
    leaf: int = 0

    @cached_property
    def leaves(self) -> tuple[Plan, ...]:
        """The plans that forks lead to, by their numbers; a plan without a fork is its own."""
        plans = () if self.fork is None else self.fork.plans.values()
        return tuple(leaf for plan in plans for leaf in plan.leaves) or (self,)

    def of(self, placed: Placed) -> Plan:
        """The leaf by which an image was placed."""
        return self.leaves[placed.leaf]

    @property
    def takes_boxes(self) -> bool:
        """Tell whether an image gives as many tensors as it has boxes, or other parts by numbers; else it gives one."""
        return any(spec.is_region for spec in self.inputs.values())

    @cached_property
    def random_steps(self) -> tuple[RandomStep | IouCrop | Extern, ...]:
        """The steps that differ from image to image, each once."""
        if self.fork is not None:
            forked = {step.key: step for plan in self.fork.plans.values() for step in plan.random_steps}
            return tuple(({self.fork.step.key: self.fork.step} | forked).values())
        steps = {step.key: step for each in self._geometries for step in each.random_steps}
        first = (self.clip.drawn,) if self.clip is not None and self.clip.drawn is not None else ()
        return (*first, *steps.values())

    @property
    def is_random(self) -> bool:
        """Tell whether an image's place depends on more than its size."""
        return bool(self.random_steps)

    @cached_property
    def _needs_boxes(self) -> bool:
        return any(isinstance(step, IouCrop) for step in self.random_steps)

    @cached_property
    def _boxes(self) -> tuple[str, ...]:
        """The keys of the steps that are windows of boxes, or other parts by numbers, each once."""
        regions = {name for name, spec in self.inputs.items() if spec.is_region}
        steps: list[Any] = [step for each in self._geometries for step in (*each.before, *each.after, *each.levels)]
        return tuple(dict.fromkeys(step.key for step in steps if getattr(step, "input", None) in regions))

    @cached_property
    def _geometries(self) -> Mapping[Geometry, tuple[Sequence[str], bool]]:
        """The outputs of each geometry, and whether a tensor is among them: an image is placed once in each."""
        names: dict[Geometry, list[str]] = {}
        for name, each in (*self.outputs.items(), *self.annotations.items()):
            if each.geometry is not None:
                names.setdefault(each.geometry, []).append(name)
        return {
            geometry: (group, any(isinstance(self.outputs.get(name), TensorPlan | FlowPlan) for name in group))
            for geometry, group in names.items()
        }

    @cached_property
    def reaches(self) -> Sequence[tuple[str, int]]:
        """Reach of the filter of each tensor's resize."""
        tensors = ((name, each.geometry.resize) for name, each in self.outputs.items() if isinstance(each, TensorPlan))
        return [(name, resize.reach if resize else 0) for name, resize in tensors]

    def part(self, placed: Placed) -> Part | None:
        """The part of an upright image that its tensors are made of; None: of nothing, or of all."""
        parts = set[Part]()
        rows = (row for row in placed.rows or (placed,) if isinstance(row, Placed))
        for row in rows:
            for name, reach in self.of(row).reaches:
                placement = row.placements[name]
                if placement.photo:  # as the mean of contrast
                    return None
                part = placement.part(reach)
                parts |= {part} if part else set()
        if not parts:
            return None
        tops, lefts, bottoms, rights = zip(*parts, strict=True)
        part = min(tops), min(lefts), max(bottoms), max(rights)
        return None if part == (0, 0, placed.height, placed.width) else part

    @cached_property
    def place(self) -> Place:
        """The place of an image in a plan without random ops and inputs; of a recent size the same object.

        Raises:
            PipelineError: there are random ops, or inputs.
        """
        if self.is_random:
            raise PipelineError(NEEDS_NUMBERS)
        if any(geometry.takes_inputs for geometry in self._geometries):
            raise PipelineError(inputs.needed(self.inputs))
        return lru_cache(RECENT_SIZES)(lambda height, width: self._place(height, width, Drawing(EXAMPLE)))

    def draw(
        self, *, seed: int, epoch: int, indices: Sequence[int], attempts: Sequence[int] | int = 0
    ) -> list[Numbers]:
        """The random numbers of samples, which depend on nothing else than these arguments and the op.

        Args:
            seed: 0 to 2^32 - 1.
            epoch: 0 to 2^32 - 1.
            indices: of the samples in their source.
            attempts: of each sample, or of all: other numbers for the same sample.
        """
        return philox.draw(self.random_steps, seed=seed, epoch=epoch, indices=indices, attempts=attempts)

    def placing(self, numbers: Numbers | Mapping[str, Words], annotation: Mapping[str, Any] | None = None) -> Place:
        """The place of one sample, by its numbers.

        Args:
            numbers: of ``draw``, or what ``replaying`` takes.
            annotation: of the sample: ``boxes``, float32 (n, 4) xyxy in pixels of the decoded image, for
                ``random_iou_crop``; and one row of each input, by its name.

        Raises:
            PipelineError: ``random_iou_crop`` is there, and no boxes are; or an input is missing.
        """
        if not self.is_random and not self.inputs:
            return self.place
        sample = annotation or {}
        inputs_given = self.inputs if isinstance(numbers, Numbers) else {}
        for name, spec in inputs_given.items():
            if name not in sample:
                raise PipelineError(f'the pipeline takes "{name}", {spec}, which the samples of its source do not have')
        if self._needs_boxes and sample.get("boxes") is None:
            raise PipelineError('random_iou_crop needs the "boxes" of each sample, which its source does not give')

        def place(height: int, width: int) -> Placed:
            boxes = in_pixels(sample.get("boxes"), height, width)
            rows = inputs.rows(inputs_given, {**sample, "boxes": boxes}, most=None) if inputs_given else [None]
            return self._place(height, width, Drawing(numbers, boxes, _or_raise(rows[0])))

        return place

    def placing_rows(self, rows: Sequence[Row | ImageError], *, most_pixels: int) -> Place:
        """The place of an image in each of its tensors, by the numbers that came with it.

        Args:
            rows: of ``inputs.rows``.
            most_pixels: that all its boxes may cover together.

        Returns:
            A place, whose result has for each row its own, or why there is none: see ``Placed.rows``.
        """
        return lambda height, width: self._place_rows(height, width, rows, most_pixels)

    def replaying(self, draws: Mapping[str, Words], annotation: Mapping[str, Any] | None = None) -> Place:
        """The place of one sample again, by the ``Placed.draws`` that came back with it.

        Raises:
            PipelineError: an op of the plan is not in ``draws``; or as ``placing``.
        """
        return self.placing(draws, annotation)

    def _place_rows(self, height: int, width: int, rows: Sequence[Row | ImageError], most_pixels: int) -> Placed:
        placements: list[Placed | ImageError] = []
        left = most_pixels
        for index, row in enumerate(rows):
            try:
                placed = self._place(height, width, Drawing(EXAMPLE, row=_or_raise(row)))
                pixels = sum(placed.draws[key]["height"] * placed.draws[key]["width"] for key in self._boxes)
                _check_pixels(pixels, left, most_pixels)
                left -= pixels
                placements.append(placed)
            except ImageError as error:
                detail = error.detail
                if self.takes_boxes and not isinstance(row, ImageError):
                    box = next(name for name, spec in self.inputs.items() if spec.is_region)
                    detail = inputs.named(box, index, len(rows)) + detail
                placements.append(ImageError(error.reason, detail))
        if len(placements) == 1 and isinstance(placements[0], ImageError):  # nothing is decoded for it
            raise placements[0]
        denominator = min((each.denominator for each in placements if isinstance(each, Placed)), default=1)
        return Placed(height, width, _NOTHING, denominator, rows=tuple(placements))

    def _place(self, height: int, width: int, drawing: Drawing) -> Placed:
        if self.fork is not None:
            words = drawing.words(self.fork.step, Span(height), Span(width))
            return self.fork.plans[tuple(words["chosen"])]._place(height, width, drawing)  # noqa: SLF001  (another of its kind)
        if self.clip is not None and self.clip.drawn is not None:
            drawing.words(self.clip.drawn, Span(height), Span(width))
        placements: dict[str, Placement] = {}
        least = inf  # decoded pixels for each pixel of a tensor
        for geometry, (names, has_tensor) in self._geometries.items():
            placement = geometry.place(height, width, drawing)
            placement = placement._replace(leaf=self.leaf) if self.leaf else placement
            placements.update(dict.fromkeys(names, placement))
            if has_tensor:
                least = min(least, *placement.ratio)
        fractions = (8, 4, 2) if self.reduced else ()
        denominator = next((fraction for fraction in fractions if fraction * SPARE <= least), 1)
        return Placed(height, width, placements, denominator, drawing.draws, drawing.kept, leaf=self.leaf)


class Placed(NamedTuple):
    """An image of known size in every output of a plan.

    Attributes:
        height, width: of the whole image, upright if the plan says so.
        placements: by output; an output that is the image's size has none.
        denominator: 1, 2, 4 or 8: a JPEG may be decoded to this fraction. It is the largest that leaves the resize of
            every tensor ``SPARE`` pixels for each that it makes, on both axes.
        draws: what was drawn for this image, by the key of each random op, in the op's own words; JSON holds it.
        kept: by the key of each ``random_iou_crop``, which of the annotated boxes its window keeps: bool (n,).
        frames: of a clip: the places of its frames in the file, in the order shown.
        rows: of an image with inputs, its place in each of its tensors, or why there is none; then ``placements`` are
            there.
        leaf: see ``Plan.leaves``.
    """

    height: int
    width: int
    placements: Mapping[str, Placement]
    denominator: int = 1
    draws: Mapping[str, Mapping[str, Any]] = _NOTHING
    kept: Mapping[str, npt.NDArray[np.bool_]] = _NOTHING
    frames: tuple[int, ...] = ()
    rows: tuple[Placed | ImageError, ...] = ()
    leaf: int = 0

    def reduced(self, reduction: Reduction) -> Placed:
        """The same image in pixels that were decoded to a fraction."""
        placements = {name: each._replace(reduction=reduction) for name, each in self.placements.items()}
        rows = tuple(row if isinstance(row, ImageError) else row.reduced(reduction) for row in self.rows)
        return self._replace(placements=placements, rows=rows)


def _check_pixels(pixels: int, left: int, most: int) -> None:
    """Refuse a box that covers more pixels than the boxes before it have left."""
    if pixels > left:
        raise ImageError(
            "TOO_MANY_PIXELS",
            f"it covers {pixels:,} pixels, and {left:,} are left of {most:,} for all boxes (parameter max_box_pixels)",
        )


def _or_raise(row: Row | ImageError | None) -> Row | None:
    if isinstance(row, ImageError):
        raise ImageError(row.reason, row.detail)
    return row
