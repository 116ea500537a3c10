"""Plan: what a pipeline is compiled to, and all that the CPU and the GPU read of it.

A plan has three small vocabularies. Geometry says where each output pixel looks: ``Window`` and ``Flip`` steps around
at most one ``Resize``; for an image of known size they fold into one ``Placement``. The steps of ``levels`` are done to
what is then an image of uint8. Arithmetic says what is done to the value, in a few steps, which become a table of 256
values where the resize gives whole levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import inf
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.draws import philox, windows
from pixprep.draws.colors import Augment
from pixprep.draws.philox import EXAMPLE, Numbers, Words
from pixprep.draws.windows import ClipFrames, RandomStep
from pixprep.errors import ImageError, PipelineError
from pixprep.plan import inputs
from pixprep.plan.clip_frames import Sampling
from pixprep.plan.folding import Geometry
from pixprep.plan.inputs import Drawing, Given
from pixprep.plan.placement import Placement, Reduction, Span
from pixprep.spec import (
    Alpha,
    BoxFormat,
    Chroma,
    Color,
    Idct,
    InputSpec,
    Preset,
    TensorSpec,
)
from pixprep.steps.operators import Extern

SPARE = 2
"""The decoded pixels that a resize keeps for each pixel that it makes, on each axis, when a JPEG is decoded to a
fraction of its size. docs/decisions.md has what fewer would cost."""

NEEDS_NUMBERS = (
    "random ops need numbers: use a Loader, or give places=[plan.placing(numbers) for numbers in "
    "plan.draw(seed=..., epoch=..., indices=...)]"
)

RECENT_SIZES = 512
"""Of images, whose placements are remembered: 1 kB each, and 10 us to make."""


@dataclass(frozen=True)
class Affine:
    """``value * scale + offset`` of each channel, in float64."""

    scale: tuple[float, ...]
    offset: tuple[float, ...]


@dataclass(frozen=True)
class Float32:
    """``value - x``, ``value * x`` or ``value / x`` of each channel, where value, x and result are float32."""

    operation: Literal["subtract", "multiply", "divide"]
    by: tuple[float, ...]


ArithmeticStep = Affine | Float32


_FLOAT32_OPERATIONS: dict[str, Any] = {"subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}


@dataclass(frozen=True, kw_only=True)
class TensorPlan:
    """Plan of one tensor of an image, or of each frame's part of one.

    Attributes:
        spec: of the tensor.
        geometry: where each pixel looks.
        fill: the level of each channel where the canvas shows no image, in the order of ``channels``.
        channels: for each channel of the tensor the decoded one it is made of: (0, 1, 2) RGB, (2, 1, 0) BGR, (0,) gray.
        arithmetic: what is done to the value, in this order.
        calls: operators that are then given the tensor, one after the other; ``spec`` is that of the first's tensor.
        is_real: the resize gives float32 values, not uint8 levels, and the arithmetic is done on every one of them.
    """

    spec: TensorSpec
    geometry: Geometry
    fill: tuple[int, ...]
    channels: tuple[int, ...]
    arithmetic: tuple[ArithmeticStep, ...]
    calls: tuple[Extern, ...] = ()

    def __post_init__(self) -> None:
        """Refuse arithmetic that overflows, or makes all levels one; every step is monotone, so black and white tell.

        Raises:
            PipelineError: a step leaves the numbers of its type.
        """
        ends: npt.NDArray[Any] = np.tile(np.array([0, 255], np.float32), (len(self.channels), 1))
        for index, step in enumerate(self.arithmetic, 1):
            dtype = self.spec.dtype if index == len(self.arithmetic) else "float32"
            with np.errstate(all="ignore"):
                ends = _done(step, ends.astype(np.float32)).astype(dtype)
            if not np.isfinite(ends).all():
                raise PipelineError(f"normalize: a step of its arithmetic leaves the range of {dtype}")
            difference = abs(np.subtract(*ends.T.astype(np.float64))).min()
            if difference < np.finfo(dtype).tiny:
                raise PipelineError(
                    f"normalize: black and white differ by {difference:.2g} in {dtype}, so that every pixel would "
                    'become the same value: choose a larger "scale", or a smaller "mean" or "std"'
                )

    @property
    def operators(self) -> tuple[Extern, ...]:
        """Every use of an operator, in its order."""
        return (*(step for step in self.geometry.levels if isinstance(step, Extern)), *self.calls)

    @property
    def frame(self) -> TensorPlan:
        """The plan of one frame; of an image, the plan itself."""
        layout = self.spec.layout
        assert layout is not None
        if "t" not in layout:
            return self
        shape = tuple(size for axis, size in zip(layout, self.spec.shape, strict=True) if axis != "t")
        return replace(self, spec=replace(self.spec, shape=shape, layout="hwc" if layout == "thwc" else "chw"))

    @property
    def is_real(self) -> bool:
        """See above."""
        return self.geometry.resize is not None and self.geometry.resize.is_real

    @property
    def table(self) -> npt.NDArray[np.generic]:
        """(channels, 256) of the tensor's dtype: the value of each level."""
        levels = np.tile(np.arange(256, dtype=np.float32), (len(self.channels), 1))
        return self.values(levels)

    @property
    def lines(self) -> npt.NDArray[np.float64]:
        """(channels, 2): scale and offset of the last ``Affine``; they give the table where there is no other step."""
        count = len(self.channels)
        affine = [step for step in self.arithmetic if isinstance(step, Affine)] or [
            Affine((1.0,) * count, (0.0,) * count)
        ]
        return np.stack([affine[-1].scale, affine[-1].offset], axis=1)

    def values(self, levels: npt.NDArray[np.float32]) -> npt.NDArray[np.generic]:
        """The tensor's values, of its dtype.

        Args:
            levels: float32 (channels, ...), 0 to 255, in the order of the tensor's channels.

        Every step but the last rounds to float32; the last result is rounded to the dtype.
        """
        values: npt.NDArray[Any] = levels
        for step in self.arithmetic:
            values = _done(step, values.astype(np.float32))
        result: npt.NDArray[np.generic] = values.astype(self.spec.dtype)
        return result


def _done(step: ArithmeticStep, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A step done to float32 values, the channels in the first axis: float32 or, by ``Affine``, float64."""
    shape = (-1,) + (1,) * (values.ndim - 1)
    if isinstance(step, Affine):
        scale, offset = (np.array(x).reshape(shape) for x in (step.scale, step.offset))
        values = values.astype(np.float64) * scale + offset
    else:
        by = np.array(step.by, np.float32).reshape(shape)
        values = _FLOAT32_OPERATIONS[step.operation](values, by)
    return values


@dataclass(frozen=True, kw_only=True)
class NumbersPlan:
    """An output of a few numbers that the place of an image says.

    Attributes:
        kind: the size of the decoded image, or of the image here; the scale, or the whole transform, between them.
        geometry: None of the decoded image, which has no place.
        is_x_first: the width, or the scale of x, comes first.
    """

    spec: TensorSpec
    kind: Literal["original_size", "image_size", "scale_factor", "transform"]
    geometry: Geometry | None = None
    is_x_first: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The name of each number."""
        if self.kind == "transform":
            return "scale_y", "scale_x", "offset_y", "offset_x"
        words = ("scale_y", "scale_x") if self.kind == "scale_factor" else ("height", "width")
        return words[::-1] if self.is_x_first else words

    def numbers(self, height: int, width: int, placement: Placement | None) -> tuple[float, ...]:
        """The numbers of an image of this size; ``placement``: where it lies in the geometry."""
        numbers: tuple[float, ...] = (height, width)
        if placement is not None:
            scale_x, _, offset_x, _, scale_y, offset_y = placement.matrix
            whole = (scale_y, scale_x, offset_y, offset_x)
            numbers = placement.size if self.kind == "image_size" else whole[: len(self.words)]
        return numbers[::-1] if self.is_x_first else numbers


_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class FlowPlan:
    """An output that is the optical flow between the frames of a clip.

    Attributes:
        frames: the tensor of the frames: uint8, thwc.
        preset: of OpenCV's DIS.
    """

    spec: TensorSpec
    frames: TensorPlan
    preset: Preset

    @property
    def geometry(self) -> Geometry:
        """Geometry of the frames."""
        return self.frames.geometry


OutputPlan = TensorPlan | NumbersPlan | FlowPlan


@dataclass(frozen=True, kw_only=True)
class BoxesPlan:
    """An output that is a sample's boxes; the fields are those of the op ``boxes``."""

    geometry: Geometry
    format: BoxFormat
    is_normalized: bool
    clips: bool
    min_size: float
    min_visible: float
    pad: int | None


@dataclass(frozen=True, kw_only=True)
class PointsPlan:
    """An output that is a sample's points; the fields are those of the op ``points``."""

    geometry: Geometry
    flip_pairs: tuple[tuple[int, int], ...] = ()
    is_normalized: bool
    clips: bool
    pad: int | None


AnnotationPlan = BoxesPlan | PointsPlan
"""An output that is made of a sample's annotation, and not by the engine."""


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
    drawn: ClipFrames | None
    apply_rotation: bool


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A compiled pipeline.

    Attributes:
        clip: of clips their frames; None: images come.
        is_gray: decode to one channel; else to RGB.
        takes: the order of the channels of the pixels that come, which nothing decodes; None: encoded images come.
        apply_exif_orientation: turn the image upright.
        chroma, idct, reduced, alpha: as in the ``decode`` op.
        outputs: by name, in the order of the pipeline.
        annotations: what is made of a sample's annotation, by name.
        inputs: the numbers that come with each image, by name.
    """

    is_gray: bool
    clip: ClipPlan | None = None
    takes: Color | None = None
    apply_exif_orientation: bool = False
    chroma: Chroma = "fancy"
    idct: Idct = "accurate"
    reduced: bool = False
    alpha: Alpha = "drop"
    outputs: Mapping[str, OutputPlan]
    annotations: Mapping[str, AnnotationPlan] = field(default_factory=dict)
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)

    @property
    def takes_boxes(self) -> bool:
        """Tell whether an image gives as many tensors as it has boxes; else it gives one."""
        return any(spec.kind == "box" for spec in self.inputs.values())

    @cached_property
    def random_steps(self) -> tuple[RandomStep | Augment | ClipFrames, ...]:
        """The steps that differ from image to image, each once."""
        steps = {step.key: step for each in self._geometries for step in each.random_steps}
        first = (self.clip.drawn,) if self.clip is not None and self.clip.drawn is not None else ()
        return (*first, *steps.values())

    @property
    def is_random(self) -> bool:
        """Tell whether an image's place depends on more than its size."""
        return bool(self.random_steps)

    @cached_property
    def _boxes(self) -> tuple[str, ...]:
        """The keys of the steps that are windows of boxes, each once."""
        steps = [step for each in self._geometries for step in (*each.before, *each.after)]
        return tuple(dict.fromkeys(step.key for step in steps if isinstance(step, inputs.Box)))

    @cached_property
    def _geometries(self) -> Mapping[Geometry, tuple[Sequence[str], bool]]:
        """The outputs of each geometry, and whether a tensor is among them: an image is placed once in each."""
        names: dict[Geometry, list[str]] = {}
        for name, each in (*self.outputs.items(), *self.annotations.items()):
            if each.geometry is not None:
                names.setdefault(each.geometry, []).append(name)
        return {
            geometry: (those, any(isinstance(self.outputs.get(name), TensorPlan | FlowPlan) for name in those))
            for geometry, those in names.items()
        }

    @cached_property
    def place(self) -> Place:
        """The place of an image in a plan without random ops and inputs; of a recent size the same object.

        Raises:
            PipelineError: there are random ops, or inputs.
        """
        if self.is_random:
            raise PipelineError(NEEDS_NUMBERS)
        if any(geometry.takes_inputs for geometry in self._geometries):
            raise PipelineError(self.needs_inputs)
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

    def placing(self, numbers: Numbers, annotation: Mapping[str, Any] | None = None) -> Place:
        """The place of one sample, by its numbers.

        Args:
            numbers: of ``draw``.
            annotation: of the sample: ``boxes``, float32 (n, 4) xyxy in pixels of the decoded image, for
                ``random_iou_crop``; and one row of each input, by its name.

        Raises:
            PipelineError: ``random_iou_crop`` is there, and no boxes are; or an input is missing.
        """
        return self._by(numbers, annotation)

    def placing_rows(self, given: Sequence[Given | ImageError], *, most_pixels: int) -> Place:
        """The place of an image in each of its tensors, by the numbers that came with it.

        Args:
            given: of ``inputs.rows``.
            most_pixels: that all its boxes may cover together.

        Returns:
            A place, whose result has for each row its own, or why there is none: see ``Placed.rows``.
        """
        return lambda height, width: self._place_rows(height, width, given, most_pixels)

    @property
    def needs_inputs(self) -> str:
        """Message where the numbers that come with each image are missing."""
        each = ", ".join(f'"{name}": [...]' for name in self.inputs)
        forms = ", ".join(f'"{name}" as {spec}' for name, spec in self.inputs.items())
        return f"the pipeline takes {forms} with each image: give inputs={{{each}}}"

    def replaying(self, draws: Mapping[str, Words], annotation: Mapping[str, Any] | None = None) -> Place:
        """The place of one sample again, by the ``Placed.draws`` that came back with it.

        Raises:
            PipelineError: an op of the plan is not in ``draws``; or as ``placing``.
        """
        return self._by(draws, annotation)

    def _by(self, numbers: Numbers | Mapping[str, Words], annotation: Mapping[str, Any] | None) -> Place:
        if not self.is_random and not self.inputs:
            return self.place
        given = self._given(annotation or {}) if self.inputs and isinstance(numbers, Numbers) else None
        boxes = None if annotation is None else annotation.get("boxes")
        if boxes is None and any(isinstance(step, windows.IouCrop) for step in self.random_steps):
            raise PipelineError('random_iou_crop needs the "boxes" of each sample, which its source does not give')
        return lambda height, width: self._place(height, width, Drawing(numbers, boxes, _or_raise(given)))

    def _given(self, annotation: Mapping[str, Any]) -> Given | ImageError:
        """One row of each input, out of a sample's fields."""
        for name, spec in self.inputs.items():
            if name not in annotation:
                raise PipelineError(f'the pipeline takes "{name}", {spec}, which the samples of its source do not have')
        try:
            return inputs.rows(self.inputs, annotation, most=None)[0]
        except ImageError as error:
            return error.as_value()

    def _place_rows(self, height: int, width: int, given: Sequence[Given | ImageError], most_pixels: int) -> Placed:
        rows: list[Placed | ImageError] = []
        left = most_pixels
        for index, row in enumerate(given):
            try:
                placed = self._place(height, width, Drawing(EXAMPLE, given=_or_raise(row)))
                pixels = sum(placed.draws[key]["height"] * placed.draws[key]["width"] for key in self._boxes)
                _check_pixels(pixels, left, most_pixels)
                left -= pixels
                rows.append(placed)
            except ImageError as error:
                detail = error.detail
                if self.takes_boxes and not isinstance(row, ImageError):
                    box = next(name for name, spec in self.inputs.items() if spec.kind == "box")
                    detail = inputs.named(box, index, len(given)) + detail
                rows.append(ImageError(error.reason, detail))
        if len(rows) == 1 and isinstance(rows[0], ImageError):  # nothing is decoded for it
            raise rows[0]
        denominator = min((row.denominator for row in rows if isinstance(row, Placed)), default=1)
        return Placed(height, width, _NOTHING, denominator, rows=tuple(rows))

    def _place(self, height: int, width: int, drawing: Drawing) -> Placed:
        if self.clip is not None and self.clip.drawn is not None:
            drawing.words(self.clip.drawn, Span(height), Span(width))
        placements: dict[str, Placement] = {}
        least = inf  # decoded pixels for each pixel of a tensor
        for geometry, (names, has_tensor) in self._geometries.items():
            placement = geometry.place(height, width, drawing)
            placements.update(dict.fromkeys(names, placement))
            if has_tensor:
                least = min(least, *placement.ratio)
        fractions = (8, 4, 2) if self.reduced else ()
        denominator = next((fraction for fraction in fractions if fraction * SPARE <= least), 1)
        return Placed(height, width, placements, denominator, drawing.draws, drawing.kept)


class Placed(NamedTuple):
    """An image of known size in every output of a plan.

    Attributes:
        height, width: of the whole image, upright if the plan says so.
        placements: by output; an output that is the image's size has none.
        denominator: 1, 2, 4 or 8: a JPEG may be decoded to this fraction. It is the largest that leaves the resize of
            every tensor ``SPARE`` pixels for each that it makes, on both axes.
        draws: what was drawn for this image, by the key of each random op, in the op's own words; JSON holds it.
        kept: by the key of each ``random_iou_crop``, which of the annotated boxes its window keeps: bool (n,).
        rows: of an image with inputs, its place in each of its tensors, or why there is none; then ``placements`` are
            there.
    """

    height: int
    width: int
    placements: Mapping[str, Placement]
    denominator: int = 1
    draws: Mapping[str, Mapping[str, Any]] = _NOTHING
    kept: Mapping[str, npt.NDArray[np.bool_]] = _NOTHING
    rows: tuple[Placed | ImageError, ...] = ()

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


def _or_raise(given: Given | ImageError | None) -> Given | None:
    if isinstance(given, ImageError):
        raise ImageError(given.reason, given.detail)
    return given
