"""Intermediate representation between a pipeline and its plan. The compiler builds it op by op (lowering)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from typing import cast

import numpy as np

from pixprep.errors import PipelineError
from pixprep.plan import geometry_steps, inputs
from pixprep.plan.canvas_steps import GeometryStep
from pixprep.plan.draws.augments import Augment
from pixprep.plan.folding import Geometry
from pixprep.plan.geometry_steps import LevelsStep, Move, are_gray, traits
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.profiles import PROFILES
from pixprep.plan.profiles.windows import Order
from pixprep.plan.steps.arithmetic import EXAMPLE, Affine, ArithmeticStep, Float32, Standardize, statistic_of
from pixprep.plan.steps.operators import Operator
from pixprep.spec import BorderMode, Color, Fill, Levels, Luma, TensorSpec, as_tuple

CHANNELS: dict[Color, tuple[int, ...]] = {"rgb": (0, 1, 2), "bgr": (2, 1, 0), "gray": (0,)}
"""Indices of the decoded channels (red, green, blue or gray), in the channel order of an image."""


@lru_cache
def colour(fill: Levels, color: Color) -> tuple[int, ...]:
    """Reorder a color from the channel order of the image to that of the decoded channels.

    Args:
        fill: One pixel value for all channels, or one per channel of the image.
        color: Channel order of the image.
    """
    levels, channels = [int(level) for level in as_tuple(fill)], CHANNELS[color]
    levels *= len(channels) if len(levels) == 1 else 1
    return tuple(levels[channels.index(channel)] for channel in range(len(channels)))


@dataclass(frozen=True)
class Lowered:
    """Steps of all ops of a pipeline up to a given op. The methods that add a step return a changed copy.

    Attributes:
        color: Channel order of the image that the first op produces.
        is_reduced: Whether a JPEG may be decoded at a reduced size.
        has_alpha: Whether the alpha of the file is a fourth channel of the image.
        before, resize, after: Geometric steps before the resize, the resize, and the geometric steps after it.
        fill: Color of the padding that the steps have added so far. None means that the image is not padded.
        levels: Steps on the pixel values, after the geometric steps.
        arithmetic: Steps that convert pixel values to tensor values.
        erasures: Steps that erase rectangles of the tensor.
        fill_value: Value of the padding per channel, which replaces ``fill``. None means that the padding has the
            color ``fill``.
        fill_after: Number of steps of ``arithmetic`` that are not applied to ``fill_value``.
        luma: Library whose arithmetic converts the values to gray after ``arithmetic``, or None.
        operators: Custom operators that the op ``extern`` may refer to, see ``operators.find``.
        photo: Steps on the pixel values of the whole image, before the geometric steps.
        resizes_again: Whether the next op may resize an image that has already been resized. Ops in a random choice may
            do this.
    """

    color: Color
    is_reduced: bool = False
    has_alpha: bool = False
    before: tuple[GeometryStep, ...] = ()
    resize: geometry_steps.Resize | None = None
    after: tuple[GeometryStep, ...] = ()
    fill: tuple[int, ...] | inputs.Fill | None = None
    levels: tuple[LevelsStep, ...] = ()
    arithmetic: tuple[ArithmeticStep, ...] = ()
    erasures: tuple[Augment, ...] = ()
    fill_value: tuple[float, ...] | None = None
    fill_after: int = 0
    luma: Luma | None = None
    operators: tuple[Operator | str, ...] = ()
    photo: tuple[LevelsStep, ...] = ()
    resizes_again: bool = False

    @property
    def channels(self) -> tuple[int, ...]:
        """Index of the decoded channel for each channel of the image."""
        return CHANNELS[self.color] + (3,) * self.has_alpha

    @property
    def geometry(self) -> Geometry:
        """Geometry of the steps so far. Without a resize, all geometric steps are in ``Geometry.after``."""
        fill = self.fill if isinstance(self.fill, inputs.Fill) else None
        before, after = ((), self.before) if self.resize is None else (self.before, self.after)
        return Geometry(before, self.resize, after, self.levels, self.erasures, fill, self.photo)

    def tensor(self, spec: TensorSpec) -> TensorPlan:
        """Return the plan of a tensor of the image.

        Raises:
            PipelineError: The arithmetic exceeds the range of its dtype, or one channel is requested although the three
                channels may differ.
        """
        geometry = self.geometry
        if geometry.trim is not None and (spec.is_open or geometry.random_steps or geometry.takes_inputs):
            raise PipelineError(
                "after trim, a tensor must have a fixed size, and random ops and per-image inputs are not supported"
            )
        fill = self.fill if self.fill and not isinstance(self.fill, inputs.Fill) else (0,)
        plan = TensorPlan(
            spec=spec,
            geometry=geometry,
            fill=fill * (len(self.channels) if len(fill) == 1 else 1),
            channels=self.channels,
            arithmetic=self.arithmetic,
            fill_value=self._fill_value,
            luma=self.luma,
        )
        if spec.channels < len(plan.channels):
            self._check_gray(plan)
        return plan

    @property
    def _fill_value(self) -> tuple[float, ...] | None:
        """Tensor value of the padding per channel, if it is not a pixel value."""
        if self.fill_value is None:
            return None
        values = np.array(self.fill_value, np.float32)
        for step in self.arithmetic[self.fill_after :]:
            values = step.of(values, EXAMPLE).astype(np.float32)
        return tuple(values.tolist())

    def then(self, step: GeometryStep, *, fill: Fill | None = None, mode: BorderMode = "constant") -> Lowered:
        """Add a geometric step.

        Args:
            step: Geometric step to add.
            fill: Color of the padding that the step may add, or the name of the input that contains the color. None
                means that the step does not pad.
            mode: Padding mode of the step.

        Raises:
            PipelineError: The image is already padded with a different color, or the step must come before an earlier
                op.
        """
        if self.erasures:
            raise PipelineError("must come before random_erasing, which is applied to the tensor")
        if self.luma is not None and not step.is_flip:
            raise PipelineError(
                'must come before a normalize with "luma", because luma depends on all pixels of the tensor'
            )
        if self.fill_value is not None and not step.is_flip:
            raise PipelineError('must come before a pad with a "value"')
        if statistic_of(self.arithmetic) and not step.is_flip:
            raise PipelineError("must come before normalize, whose scale is computed from all pixels of the tensor")
        if mode != "constant" or not self._can_come_first(step, leaves_margin=fill is not None):
            if isinstance(fill, str):
                raise PipelineError('padding with a per-image "fill" must come before ops that change pixel values')
            if step.late:
                raise PipelineError(f"must come before ops that change pixel values, {step.late}")
            if step.early:
                return self._before_geometry(step.early).then(step)
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
                raise PipelineError("its padding has a different colour than that of an earlier op: use the same fill")
        if self.resize is None:
            return replace(self, before=(*self.before, step), fill=margin)
        return replace(self, after=(*self.after, step), fill=margin)

    def resized(self, resize: geometry_steps.Resize) -> Lowered:
        """Add a resize.

        A center crop before the resize must be inside the image, but ``pad`` and random ops may add padding before the
        resize. At its border with the image, the padding is resampled together with the image. Elsewhere, the padding
        keeps its color exactly. Padding before the resize therefore requires a resize that returns uint8.

        Raises:
            PipelineError: An earlier op does not support a later resize, or does not support this resize.
        """
        if self.luma is not None:
            raise PipelineError(
                'must come before a normalize with "luma", because luma depends on all pixels of the tensor'
            )
        if self.fill_value is not None:
            raise PipelineError('must come before a pad with a "value", because this padding is not resampled')
        if resize.gap is not None and (self.before or self.levels or self.photo or self.resize or self.arithmetic):
            raise PipelineError('"reducing_gap" requires that this op directly follows decode')
        if resize.gap is not None and self.is_reduced:
            raise PipelineError(
                '"reducing_gap" is not supported with "reduced": true in decode: remove "reduced", or replace it by '
                '"draft": true in this op'
            )
        resize = replace(resize, order=Order.ONE if self.is_gray else Order(self.color == "bgr"))
        if PROFILES[resize.like].reads_all and (padded := self._padded_photo()) is not None:
            return padded.resized(resize)
        if self.arithmetic:  # the resize receives float32 values
            arithmetic = tuple(step for step in self.arithmetic if isinstance(step, Affine | Float32 | Standardize))
            if self.levels and not self.geometry.may_warp and all(step.repeats for step in self.levels):
                return self._padded_first().resized(resize)
            if len(arithmetic) < len(self.arithmetic) or self.levels or self.resize is not None or self.before:
                raise PipelineError(
                    "follows normalize: a resize after normalize is supported only if all ops between decode and "
                    'normalize only pad the image, and if normalize does not have "scale": "max" or "mean", "clip": '
                    'true, or "arithmetic": "bfloat16"'
                )
            return replace(self, arithmetic=()).resized(replace(resize, arithmetic=arithmetic))
        if self.is_repeated:
            return self._padded_first().resized(resize)
        if self.geometry.may_warp or (self.resize is not None and self.resizes_again):
            return self._resampled(resize)
        if self.levels:
            return self._before_geometry("they are applied to the resized image").resized(resize)
        if self.resize is not None:
            raise PipelineError("the image is already resized, and pixels should be resampled only once")
        if self.is_reduced:
            _check_reduced(resize)
        steps = tuple(step.before_resize() for step in self.before)
        is_padded = Geometry(steps, resize, ()).is_padded
        is_drawn = any(step.is_random and not step.is_inside for step in steps)
        first = "must not follow an op that adds random padding" if is_drawn else "must come before pad"
        if is_padded and resize.is_real:
            raise PipelineError(
                f'{first}: padding is not resampled with "like": "{resize.like}" and "filter": "{resize.filter}", '
                "which do not round to uint8"
            )
        if is_padded and self.is_reduced:
            raise PipelineError(f'{first}: padding is not resampled with "reduced": true in decode')
        return replace(self, before=steps, resize=resize, fill=self.fill if is_padded else None)

    def _padded_first(self) -> Lowered:
        """Move the padding, which repeats parts of the image, before all other steps, so that it pads the whole image.

        Raises:
            PipelineError: Other steps precede the padding.
        """
        is_alone = self.resize is None and not self.before and not self.erasures and not self.is_reduced
        if not (is_alone and all(step.repeats for step in self.levels)):
            raise PipelineError(
                'must come before a pad with a "padding_mode" other than constant, unless this pad directly follows '
                "decode"
            )
        return replace(self, levels=(), photo=(*self.photo, *self.levels))

    def _padded_photo(self) -> Lowered | None:
        """Move padding before all other steps, so that it pads the whole image, or return None if it cannot be moved.

        The padding must be the only geometric step. It must not be random, and its color must not be an input.
        """
        is_padding = self.before and all(step.may_pad and not step.is_random for step in self.before)
        if not (is_padding and isinstance(self.fill, tuple)) or self.levels or self.resize or self.is_reduced:
            return None
        steps = [Move(step, colour(self.fill, self.color), has_margin=True) for step in self.before]
        return replace(self, before=(), fill=None, photo=(*self.photo, *steps))

    def filled(self, step: GeometryStep, value: tuple[float, ...]) -> Lowered:
        """Add a step that pads the image with values, which may be outside the range of pixel values.

        Only the steps of ``arithmetic`` that follow are applied to these values.

        Raises:
            PipelineError: The image is already padded, or an op changes pixel values.
        """
        if self.levels or self.erasures or self.fill is not None or self.fill_value is not None:
            raise PipelineError('"value" is not supported after another pad, or after ops that change pixel values')
        value = value * (len(self.channels) if len(value) == 1 else 1)
        return replace(self.then(step, fill=0), fill_value=value, fill_after=len(self.arithmetic))

    def _resampled(self, resize: geometry_steps.Resize) -> Lowered:
        """Add a resize as a step on pixel values, after a warp or another resize.

        Raises:
            PipelineError: This or the earlier resize does not return uint8, the resize has a ``roi`` or pads its
                result, or it follows a random erasing; or a JPEG may be decoded at a reduced size.
        """
        if self.erasures:
            raise PipelineError("must come before random_erasing, which is applied to the tensor")
        if resize.roi is not None:
            raise PipelineError('"roi" is not supported after a warp or another resize: use crop instead')
        if resize.pads:
            raise PipelineError('"fit" must be "stretch" after a warp or another resize, whose result is not padded')
        if self.resize is not None and self.resize.is_real:
            raise PipelineError(
                f'follows a resize with "like": "{self.resize.like}" and "filter": "{self.resize.filter}", which does '
                'not round to uint8, so its values cannot be resized again: write "like": "pillow" there'
            )
        if resize.is_real:
            raise PipelineError(
                f'"like": "{resize.like}" and "filter": "{resize.filter}" do not round to uint8, which is required '
                'after a rotation, a warp or an operator: move the resize before it, or write "like": "pillow"'
            )
        if self.is_reduced:
            raise PipelineError(
                'follows an op that warps the whole image, which is not supported with "reduced": true in decode'
            )
        return self.do(resize)

    def do(self, *steps: LevelsStep) -> Lowered:
        """Add steps on pixel values.

        Raises:
            PipelineError: The padding has values that are not pixel values.
        """
        if self.fill_value is not None:
            raise PipelineError('must come before a pad with a "value"')
        return replace(self, levels=(*self.levels, *steps))

    def _before_geometry(self, why: str) -> Lowered:
        """Move the steps on pixel values before the geometry, so that they are applied to the whole image.

        Geometric steps that followed the steps on pixel values become part of the geometry again. The result does not
        change.

        Args:
            why: Reason why the new op requires this order, for the error message.

        Raises:
            PipelineError: The order of the steps cannot be changed.
        """
        first = tuple(takewhile(lambda step: not step.is_move, self.levels))
        moves = cast("list[Move]", [step for step in self.levels[len(first) :] if step.is_move])
        is_alone = self.resize is None and len(first) + len(moves) == len(self.levels)
        is_free = all(each.is_pointwise for each in traits(*first)) and self.fill is None
        is_first = not (self.before or moves or any(each.moves for each in traits(*first)))  # keeps its order
        keeps_places = all(each.keeps_places for each in traits(*first))
        is_movable = keeps_places and (is_free or all(step.is_flip for step in self.before))
        if not (is_alone and not self.is_repeated and (is_first or is_movable)):
            raise PipelineError(f"must come before ops that change pixel values: {why}")
        if self.is_reduced:
            raise PipelineError(f'must come before ops that change pixel values if decode has "reduced": true: {why}')
        lowered = replace(self, levels=(), photo=(*self.photo, *first))
        for each in moves:
            fill = tuple(each.fill[channel] for channel in self.channels) if each.has_margin else None
            lowered = lowered.then(each.step, fill=fill)
        return lowered

    def _check_gray(self, plan: TensorPlan) -> None:
        """Raise PipelineError unless all channels of the tensor are equal for every image."""
        values = (getattr(step.op, "value", "") for step in self.erasures)
        is_erased_alike = all(isinstance(value, str) or _is_uniform(value) for value in values)  # a str means noise
        are_alike = is_erased_alike and len({*map(bytes, plan.table)}) == 1
        if not (are_alike and self.is_gray):
            raise PipelineError(
                '"channels": 1 requires three equal channels: add grayscale (or a color_matrix with three equal rows) '
                "without later ops that may add colour, and use the same mean and std for all channels in normalize"
            )

    @property
    def is_gray(self) -> bool:
        """Whether all channels are equal after the steps, for every image."""
        is_gray = are_gray(self.photo, was_gray=False) and (self.fill is None or _is_uniform(self.fill))
        return are_gray(self.levels, was_gray=is_gray)

    @property
    def is_moved(self) -> bool:
        """Whether the coordinates of a pixel may differ from those in the decoded image."""
        return bool(self.before or self.resize) or self.geometry.motion[3:] != ()

    @property
    def is_repeated(self) -> bool:
        """Whether the image may have padding that repeats parts of the image (``edge``, ``reflect``, ``symmetric``)."""
        return any(step.repeats for step in self.levels)

    def check_boxes(self) -> None:
        """Check that boxes and points can be transformed together with the image.

        Padding that repeats parts of the image is rejected, because objects would be repeated without their boxes.
        torchvision accepts such padding, but does not repeat the boxes.

        Raises:
            PipelineError: Padding repeats parts of the image, an op does not support boxes, or the coordinate transform
                is unknown (see ``check_places``).
        """
        self.check_places()
        if why := next(filter(None, (each.no_boxes for each in traits(*self.levels))), ""):
            raise PipelineError(why)
        if self.is_repeated:
            raise PipelineError(
                'a "padding_mode" other than constant repeats objects without their boxes or points: use constant'
            )

    def check_matrix(self) -> None:
        """Check that a homography describes the coordinate transform, and that boxes can be transformed.

        Raises:
            PipelineError: An op displaces each pixel separately, or ``check_boxes`` raises an error.
        """
        self.check_boxes()
        if why := next(filter(None, (each.no_matrix for each in traits(*self.levels))), ""):
            raise PipelineError(why)

    def check_places(self) -> None:
        """Check that the coordinate transform from the decoded image is known.

        The transform is unknown after a custom operator that has a ``shape`` without a ``motion``, and after a weighted
        sum of images that are transformed differently.

        Raises:
            PipelineError: The transform is unknown.
        """
        if why := next(filter(None, (each.no_places for each in traits(*self.photo, *self.levels))), ""):
            raise PipelineError(why)
        if any(step.is_move for step in self.photo):
            raise PipelineError("coordinates are not supported if the image is padded before a resize")

    def _can_come_first(self, step: GeometryStep, *, leaves_margin: bool) -> bool:
        """Return whether a geometric step can be moved before the steps on pixel values without changing the result."""
        if step.is_flip:
            return all(each.keeps_places for each in traits(*self.levels))
        return not self.levels or (not leaves_margin and all(each.is_pointwise for each in traits(*self.levels)))


def _check_reduced(resize: geometry_steps.Resize) -> None:
    """Raise PipelineError if a resize does not support JPEGs that are decoded at a reduced size.

    Resizes that guarantee the exact values of a library are not supported, and neither are filters that sample single
    pixels or have discontinuous weights.
    """
    reducible = PROFILES[resize.like].reducible
    refused = {
        f'"like": "{resize.like}"': (not reducible, '"like": "pillow"'),
        f'"filter": "{resize.filter}"': (resize.filter not in reducible, '"filter": "bilinear"'),
        '"antialias": false': (not resize.antialias, '"antialias": true'),
        '"roi" or "mode": "crop"': (resize.roi is not None, "a crop before the resize"),
    }
    for field, (is_refused, fix) in refused.items():
        if is_refused:
            raise PipelineError(
                f'{field} is not supported with "reduced": true in decode, which changes pixel values: '
                f'write {fix}, or remove "reduced"'
            )


def _is_uniform(fill: object) -> bool:
    """Return whether a fill has the same value in all channels."""
    return isinstance(fill, tuple) and len({*fill}) == 1
