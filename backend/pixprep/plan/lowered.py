"""Intermediate form of a pipeline: geometric ops fold with geometric ops, and arithmetic with arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile

from pixprep.errors import PipelineError
from pixprep.plan import geometry_steps, inputs
from pixprep.plan.draws.augments import Augment, RandomStep
from pixprep.plan.draws.crops import IouCrop
from pixprep.plan.folding import Geometry
from pixprep.plan.geometry_steps import GeometryStep, LevelsStep, Move, Window, are_gray, traits
from pixprep.plan.output_plans import ArithmeticStep, ByOwn, TensorPlan
from pixprep.plan.profiles import PROFILES
from pixprep.plan.profiles.windows import Order
from pixprep.plan.steps.operators import Operator
from pixprep.spec import Color, Fill, Levels, PaddingMode, TensorSpec, as_tuple

CHANNELS: dict[Color, tuple[int, ...]] = {"rgb": (0, 1, 2), "bgr": (2, 1, 0), "gray": (0,)}
"""Decoded channel for each channel of an image."""


@lru_cache
def colour(fill: Levels, color: Color) -> tuple[int, ...]:
    """Convert a field's color from the image's channel order to one pixel value per decoded channel."""
    levels, channels = [int(level) for level in as_tuple(fill)], CHANNELS[color]
    levels *= len(channels) if len(levels) == 1 else 1
    return tuple(levels[channels.index(channel)] for channel in range(len(channels)))


@dataclass(frozen=True)
class Lowered:
    """The ops from the first one up to a position in the pipeline, folded.

    Attributes:
        color: Order of the channels that the first op produces.
        is_reduced: Whether a JPEG may be decoded at a fraction of its size.
        before, resize, after: Geometric steps before the resize, the resize, and the steps after it.
        fill: Color of the padding so far; None: the image is not padded.
        levels: Steps on the pixel values of the canvas.
        arithmetic: Normalization of the values.
        erasures: Steps on the tensor.
        operators: Custom operators that ``extern`` may refer to, see ``finding.find``.
        photo: Steps on the pixel values of the whole photo, before the geometry.
        resizes_again: Whether the next op belongs to a choice, which may resize an image that is already resized.
    """

    color: Color
    is_reduced: bool = False
    before: tuple[GeometryStep, ...] = ()
    resize: geometry_steps.Resize | None = None
    after: tuple[GeometryStep, ...] = ()
    fill: tuple[int, ...] | inputs.Fill | None = None
    levels: tuple[LevelsStep, ...] = ()
    arithmetic: tuple[ArithmeticStep, ...] = ()
    erasures: tuple[Augment, ...] = ()
    operators: tuple[Operator | str, ...] = ()
    photo: tuple[LevelsStep, ...] = ()
    resizes_again: bool = False

    @property
    def channels(self) -> tuple[int, ...]:
        """Decoded channel for each channel of the image."""
        return CHANNELS[self.color]

    @property
    def geometry(self) -> Geometry:
        """Geometry of the steps so far. Without a resize every step counts as one after it."""
        fill = self.fill if isinstance(self.fill, inputs.Fill) else None
        before, after = ((), self.before) if self.resize is None else (self.before, self.after)
        return Geometry(before, self.resize, after, self.levels, self.erasures, fill, self.photo)

    def tensor(self, spec: TensorSpec) -> TensorPlan:
        """Return the plan of the image as a tensor.

        Raises:
            PipelineError: The arithmetic leaves the range of float32, or one channel is requested of three that may
                differ.
        """
        fill = self.fill if self.fill and not isinstance(self.fill, inputs.Fill) else (0,)
        plan = TensorPlan(
            spec=spec,
            geometry=self.geometry,
            fill=fill * (len(self.channels) if len(fill) == 1 else 1),
            channels=self.channels,
            arithmetic=self.arithmetic,
        )
        if spec.channels < len(plan.channels):
            self._check_gray(plan)
        return plan

    def then(self, step: GeometryStep, *, fill: Fill | None = None, mode: PaddingMode = "constant") -> Lowered:
        """Add one more step, which may pad the image with a color or by a different padding mode.

        Raises:
            PipelineError: The image is already padded with a different color, or an earlier op has to come later.
        """
        if self.erasures:
            raise PipelineError("must come before random_erasing, which is done to the tensor")
        if any(isinstance(each, ByOwn) for each in self.arithmetic) and not _is_flip(step):
            raise PipelineError("must come before normalize, whose scale is measured in the whole image of the tensor")
        if mode != "constant" or not self._changes_places(step, leaves_margin=fill is not None):
            if isinstance(fill, str):
                raise PipelineError("a colour that comes with the image must come before what changes the levels")
            if isinstance(step, inputs.Box):
                raise PipelineError("must come before what changes the levels: boxes are in pixels of the photo")
            if isinstance(step, IouCrop):
                return self._on_photo("it chooses its window by the boxes").then(step)
            return replace(
                self, levels=(*self.levels, Move(step, colour(fill or 0, self.color), mode, fill is not None))
            )
        margin = self.fill
        if fill is not None:
            if isinstance(fill, str):
                margin = inputs.Fill(fill, len(self.channels))
            else:
                margin = tuple(int(level) for level in as_tuple(fill))
                margin = margin[:1] if len(set(margin)) == 1 else margin
            if self.fill not in (None, margin):
                raise PipelineError("its margin has another colour than an earlier one: use one fill")
        if self.resize is None:
            return replace(self, before=(*self.before, step), fill=margin)
        return replace(self, after=(*self.after, step), fill=margin)

    def resized(self, resize: geometry_steps.Resize) -> Lowered:
        """Add a resize. A center crop before it has to fit inside; ``pad`` and random ops may add padding.

        Padding is resampled where it meets the image, and keeps its color elsewhere. Therefore the result must have
        integer pixel values.

        Raises:
            PipelineError: An earlier op does not support a later resize, or not this one.
        """
        resize = replace(resize, order=Order.ONE if self.is_gray else Order(self.color == "bgr"))
        if self.is_repeated:
            raise PipelineError('must come before a "padding_mode" other than constant: no margin of it is resampled')
        if self.geometry.may_warp or (self.resize is not None and self.resizes_again):
            return self._resampled(resize)
        if self.levels:
            return self._on_photo("it is done to the resized image").resized(resize)
        if self.resize is not None:
            raise PipelineError("the image is resized already, and pixels should be resampled once")
        if self.is_reduced:
            _check_reduced(resize)
        steps = tuple(
            replace(step, beyond="refuse_smaller") if isinstance(step, Window) and step.beyond == "fill" else step
            for step in self.before
        )
        is_padded = Geometry(steps, resize, ()).is_padded
        is_drawn = any(isinstance(step, RandomStep) and not step.is_inside for step in steps)
        first = "must have no random margin before it" if is_drawn else "must come before pad"
        if is_padded and resize.is_real:
            raise PipelineError(
                f'{first}: with "like": "{resize.like}" and "filter": "{resize.filter}", '
                "which round nothing, margins are not resampled"
            )
        if is_padded and self.is_reduced:
            raise PipelineError(f'{first}: margins are not resampled with "reduced": true of decode')
        return replace(self, before=steps, resize=resize, fill=self.fill if is_padded else None)

    def _resampled(self, resize: geometry_steps.Resize) -> Lowered:
        """Add a resize of the result of a warp, which is treated as an image.

        Raises:
            PipelineError: The resize does not return integers, or a decode to a fraction depends on it.
        """
        if self.erasures:
            raise PipelineError("must come before random_erasing, which is done to the tensor")
        if resize.roi is not None:
            raise PipelineError('"roi" must come before what warps or resizes the image: crop instead')
        if resize.is_real:
            raise PipelineError(
                f'"like": "{resize.like}" and "filter": "{resize.filter}" round nothing, and behind a rotation, a warp '
                'or an operator the result has levels: put the resize before it, or write "like": "pillow"'
            )
        if self.is_reduced:
            raise PipelineError('comes behind what warps the whole photo, which "reduced": true of decode contradicts')
        return self.do(resize)

    def do(self, *steps: LevelsStep) -> Lowered:
        """Add steps on the pixel values."""
        return replace(self, levels=(*self.levels, *steps))

    def _on_photo(self, why: str) -> Lowered:
        """Apply the steps on pixel values to the whole photo, and move later geometric steps back into the geometry.

        Padding that follows these steps keeps its color, and the result of earlier steps does not change.

        Raises:
            PipelineError: The steps cannot come first; ``why`` is the reason why the new op requires it.
        """
        first = tuple(takewhile(lambda step: not isinstance(step, Move), self.levels))
        moves = [step for step in self.levels[len(first) :] if isinstance(step, Move)]
        is_alone = self.resize is None and len(first) + len(moves) == len(self.levels)
        is_free = all(each.is_pointwise for each in traits(*first)) and self.fill is None
        if not (
            is_alone
            and not self.is_repeated
            and all(each.keeps_places for each in traits(*first))
            and (is_free or all(map(_is_flip, self.before)))
        ):
            raise PipelineError(f"must come before what changes the levels: {why}")
        if self.is_reduced:
            raise PipelineError(f'must come before what changes the levels, with "reduced": true of decode: {why}')
        lowered = replace(self, levels=(), photo=(*self.photo, *first))
        for each in moves:
            fill = tuple(each.fill[channel] for channel in self.channels) if each.has_margin else None
            lowered = lowered.then(each.step, fill=fill)
        return lowered

    def _check_gray(self, plan: TensorPlan) -> None:
        """Raise PipelineError unless the steps make all channels equal for every image."""
        values = (getattr(step.op, "value", "") for step in self.erasures)
        is_erased_alike = all(isinstance(value, str) or _is_one(value) for value in values)  # any channel may be noise
        are_alike = is_erased_alike and len({*map(bytes, plan.table)}) == 1
        if not (are_alike and self.is_gray):
            raise PipelineError(
                '"channels": 1 needs three equal channels: put grayscale, or a color_matrix of three equal rows, in '
                "front of it, and nothing that may colour behind that; normalize has one mean and one std"
            )

    @property
    def is_gray(self) -> bool:
        """Tell whether the steps make all channels equal for every image."""
        is_gray = are_gray(self.photo, was_gray=False) and (self.fill is None or _is_one(self.fill))
        return are_gray(self.levels, was_gray=is_gray)

    @property
    def is_moved(self) -> bool:
        """Tell whether the coordinates of a pixel may differ from those in the photo."""
        return bool(self.before or self.resize) or self.geometry.motion[3:] != ()

    @property
    def is_repeated(self) -> bool:
        """Tell whether padding may repeat parts of the image."""
        return any(isinstance(step, Move) and step.mode != "constant" for step in self.levels)

    def check_boxes(self) -> None:
        """Reject boxes and points if padding repeats parts of the image, since they are not repeated with it.

        torchvision does not repeat them either.

        Raises:
            PipelineError: Padding repeats parts of the image, pixels are displaced, or ``check_places`` raises this
                error.
        """
        self.check_places()
        if why := next(filter(None, (each.no_boxes for each in traits(*self.levels))), ""):
            raise PipelineError(why)
        if self.is_repeated:
            raise PipelineError(
                'a "padding_mode" other than constant shows objects again, without boxes or points: use constant'
            )

    def check_places(self) -> None:
        """Reject an output with pixel coordinates if their origin is unknown.

        It is unknown after an operator without a motion, or after a sum of moved images.

        Raises:
            PipelineError: There is such a step.
        """
        if why := next(filter(None, (each.no_places for each in traits(*self.levels))), ""):
            raise PipelineError(why)

    def _changes_places(self, step: GeometryStep, *, leaves_margin: bool) -> bool:
        """Tell whether a geometric step may move before the steps on pixel values without a change of the result."""
        if _is_flip(step):
            return all(each.keeps_places for each in traits(*self.levels))
        return not self.levels or (not leaves_margin and all(each.is_pointwise for each in traits(*self.levels)))


def _check_reduced(resize: geometry_steps.Resize) -> None:
    """Reject the resizes that do not support a decode to a fraction.

    They reproduce a library's values exactly, read single pixels, or clip pixels at a hard edge.
    """
    reducible = PROFILES[resize.like].reducible
    refused = {
        f'"like": "{resize.like}"': (not reducible, '"like": "pillow"'),
        f'"filter": "{resize.filter}"': (resize.filter not in reducible, '"filter": "bilinear"'),
        '"antialias": false': (not resize.antialias, '"antialias": true'),
    }
    for field, (is_refused, remedy) in refused.items():
        if is_refused:
            raise PipelineError(
                f'{field} contradicts "reduced": true of decode, which changes pixels: '
                f'write {remedy}, or leave "reduced" out'
            )


def _is_one(fill: object) -> bool:
    """Tell whether all channels have the same number."""
    return isinstance(fill, tuple) and len({*fill}) == 1


def _is_flip(step: GeometryStep) -> bool:
    return isinstance(step, geometry_steps.Flip) or (isinstance(step, RandomStep) and step.axis is not None)
