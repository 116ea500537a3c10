"""Plan: the compiled form of a pipeline, which contains all that the CPU and the GPU read of it.

A plan consists of three parts. The geometry determines where each output pixel samples the image: ``Window`` and
``Flip`` steps before and after at most one ``Resize``, which fold into one ``Placement`` for an image of known size.
The steps of ``levels`` change the resulting uint8 image. The arithmetic computes the tensor's values in a few steps,
which become a table of 256 values if the resize returns uint8.
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
"""Minimum number of decoded pixels per resized pixel on each axis, if a JPEG is decoded to a fraction of its size.

docs/decisions-training.md describes the cost of a smaller number.
"""

NEEDS_NUMBERS = (
    "random ops need numbers: use a Loader, or give places=[plan.placing(numbers) for numbers in "
    "plan.draw(seed=..., epoch=..., indices=...)]"
)

RECENT_SIZES = 512
"""Number of image sizes whose placements are cached; each takes 1 kB, and 10 us to compute."""


_NOTHING: Mapping[str, Any] = MappingProxyType({})


Place = Callable[[int, int], "Placed"]
"""``place(height, width)`` returns the position of an image of this size in every output.

The size is that of the EXIF-oriented image if the plan applies the orientation.

Raises:
    ImageError: DOES_NOT_FIT, BAD_DIMENSIONS: The image does not fit one of the outputs.
"""


@dataclass(frozen=True)
class ClipPlan:
    """Selection of the frames of a clip, and their orientation.

    Attributes:
        sampling: Rule that selects the frames.
        drawn: Step that draws the random numbers of the selection; None: Nothing is drawn.
        apply_rotation: Whether the frames are rotated according to the container.
    """

    sampling: Sampling
    drawn: RandomStep | None
    apply_rotation: bool


@dataclass(frozen=True)
class Fork:
    """Several plans and the step that selects one of them: ``{"chosen": [1]}``.

    Attributes:
        step: Step that draws.
        plans: Plans by the drawn choice; each may have a fork of its own.
    """

    step: RandomStep
    plans: Mapping[tuple[int, ...], Plan]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A compiled pipeline.

    Attributes:
        clip: Selection of the frames of a clip; None: The inputs are images.
        is_gray: Whether images are decoded to one channel; if False, to RGB.
        takes: Form of decoded pixels as the input; None: The inputs are encoded images.
        apply_exif_orientation: Whether the EXIF orientation is applied.
        chroma, idct, reduced, alpha, window: Fields of the ``decode`` op.
        outputs: Outputs by name, in the order of the pipeline.
        annotations: Outputs that are made of a sample's annotation, by name.
        inputs: Inputs of each image, by name.
        fork: Choice between plans with a different geometry. ``outputs`` then describe the properties that all of them
            share, with the geometry of the first leaf.
        leaf: Number of a plan that a fork leads to (see ``Placement.leaf``).
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
        """The plans that forks lead to, by number; a plan without a fork is its own leaf."""
        plans = () if self.fork is None else self.fork.plans.values()
        return tuple(leaf for plan in plans for leaf in plan.leaves) or (self,)

    def of(self, placed: Placed) -> Plan:
        """Return the leaf that placed an image."""
        return self.leaves[placed.leaf]

    @property
    def is_packed(self) -> bool:
        """Return whether the patches of several images are concatenated, because their number depends on the image."""
        outputs = self.outputs.values()
        return any(output.spec.patches is not None and output.spec.is_open for output in outputs)

    @property
    def takes_boxes(self) -> bool:
        """Tell whether an image makes one tensor per box, or per other region from inputs, instead of one tensor."""
        return any(spec.is_region for spec in self.inputs.values())

    @cached_property
    def random_steps(self) -> tuple[RandomStep | IouCrop | Extern, ...]:
        """The steps with random parameters, each once."""
        if self.fork is not None:
            forked = {step.key: step for plan in self.fork.plans.values() for step in plan.random_steps}
            return tuple(({self.fork.step.key: self.fork.step} | forked).values())
        steps = {step.key: step for each in self._geometries for step in each.random_steps}
        first = (self.clip.drawn,) if self.clip is not None and self.clip.drawn is not None else ()
        return (*first, *steps.values())

    @property
    def is_random(self) -> bool:
        """Tell whether the position of an image depends on more than its size."""
        return bool(self.random_steps)

    @cached_property
    def _needs_boxes(self) -> bool:
        return any(isinstance(step, IouCrop) for step in self.random_steps)

    @cached_property
    def _boxes(self) -> tuple[str, ...]:
        """The keys of the steps whose windows are boxes or other regions from inputs, each once."""
        regions = {name for name, spec in self.inputs.items() if spec.is_region}
        steps: list[Any] = [step for each in self._geometries for step in (*each.before, *each.after, *each.levels)]
        return tuple(dict.fromkeys(step.key for step in steps if getattr(step, "input", None) in regions))

    @cached_property
    def _geometries(self) -> Mapping[Geometry, tuple[Sequence[str], bool]]:
        """The outputs of each geometry, and whether one is a tensor; an image is placed once per geometry."""
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
        """Reach of the resize filter of each tensor."""
        tensors = ((name, each.geometry.resize) for name, each in self.outputs.items() if isinstance(each, TensorPlan))
        return [(name, resize.reach if resize else 0) for name, resize in tensors]

    def part(self, placed: Placed) -> Part | None:
        """Return the part of an EXIF-oriented image that its tensors read; None: They read nothing, or all of it."""
        parts = set[Part]()
        rows = (row for row in placed.rows or (placed,) if isinstance(row, Placed))
        for row in rows:
            for name, reach in self.of(row).reaches:
                placement = row.placements[name]
                if placement.photo:  # for example, the mean of a contrast depends on the whole image
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
        """The function that places images, for a plan without random ops and inputs; it caches recent sizes.

        Raises:
            PipelineError: The plan has random ops or inputs.
        """
        if self.is_random:
            raise PipelineError(NEEDS_NUMBERS)
        if any(geometry.takes_inputs for geometry in self._geometries):
            raise PipelineError(inputs.needed(self.inputs))
        return lru_cache(RECENT_SIZES)(lambda height, width: self._place(height, width, Drawing(EXAMPLE)))

    def draw(
        self, *, seed: int, epoch: int, indices: Sequence[int], attempts: Sequence[int] | int = 0
    ) -> list[Numbers]:
        """Draw the random numbers of samples, which depend only on these arguments and the op.

        Args:
            seed: Seed, 0 to 2^32 - 1.
            epoch: Epoch, 0 to 2^32 - 1.
            indices: Indices of the samples in their source.
            attempts: Attempt of each sample, or one for all samples; each attempt draws different numbers.
        """
        return philox.draw(self.random_steps, seed=seed, epoch=epoch, indices=indices, attempts=attempts)

    def placing(self, numbers: Numbers | Mapping[str, Words], annotation: Mapping[str, Any] | None = None) -> Place:
        """Return the function that places one sample with its random numbers.

        Args:
            numbers: Result of ``draw``, or the draws for ``replaying``.
            annotation: Annotation of the sample: ``boxes``, float32 (n, 4) xyxy in pixels of the decoded image, for
                ``random_iou_crop``; and one row of each input, by name.

        Raises:
            PipelineError: ``random_iou_crop`` lacks its boxes, or an input is missing.
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

    def placing_rows(self, rows: Sequence[Row | ImageError], *, max_pixels: int) -> Place:
        """Return the function that places an image in each of its tensors, with the inputs of the image.

        Args:
            rows: Result of ``inputs.rows``.
            max_pixels: Maximum number of pixels that all boxes of the image may cover together.

        Returns:
            Function whose result contains, for each row, its placement or the error that prevents it (see
            ``Placed.rows``).
        """
        return lambda height, width: self._place_rows(height, width, rows, max_pixels)

    def replaying(self, draws: Mapping[str, Words], annotation: Mapping[str, Any] | None = None) -> Place:
        """Return the function that places one sample again, with the ``Placed.draws`` of its first placement.

        Raises:
            PipelineError: ``draws`` lacks an op of the plan, or ``placing`` raises this error.
        """
        return self.placing(draws, annotation)

    def _place_rows(self, height: int, width: int, rows: Sequence[Row | ImageError], max_pixels: int) -> Placed:
        placements: list[Placed | ImageError] = []
        left = max_pixels
        for index, row in enumerate(rows):
            try:
                placed = self._place(height, width, Drawing(EXAMPLE, row=_or_raise(row)))
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
        if len(placements) == 1 and isinstance(placements[0], ImageError):  # the image need not be decoded
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
        least = inf  # decoded pixels per pixel of a tensor
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
    """Position of an image of known size in every output of a plan.

    Attributes:
        height, width: Size of the whole image in pixels, after the EXIF orientation if the plan applies it.
        placements: Placements by output; an output that reports the image's size has no placement.
        denominator: Denominator of the fraction to which a JPEG may be decoded: 1, 2, 4 or 8. It is the largest that
            leaves ``SPARE`` decoded pixels per resized pixel for every tensor on both axes.
        draws: Random parameters of this image by the key of each random op; JSON can represent them.
        kept: Annotated boxes that the window of each ``random_iou_crop`` keeps, by the op's key: bool (n,).
        frames: Indices of a clip's frames in the file, in presentation order.
        rows: For an image with inputs, its position in each of its tensors, or the error that prevents it. The elements
            then contain the ``placements``.
        leaf: Number of the leaf, see ``Plan.leaves``.
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
        """Return the same image in pixels that were decoded to a fraction of its size."""
        placements = {name: each.reduced(reduction) for name, each in self.placements.items()}
        rows = tuple(row if isinstance(row, ImageError) else row.reduced(reduction) for row in self.rows)
        return self._replace(placements=placements, rows=rows)


def _check_pixels(pixels: int, left: int, most: int) -> None:
    """Reject a box that covers more pixels than the earlier boxes have left."""
    if pixels > left:
        raise ImageError(
            "TOO_MANY_PIXELS",
            f"it covers {pixels:,} pixels, and {left:,} are left of {most:,} for all boxes (parameter max_box_pixels)",
        )


def _or_raise(row: Row | ImageError | None) -> Row | None:
    if isinstance(row, ImageError):
        raise ImageError(row.reason, row.detail)
    return row
