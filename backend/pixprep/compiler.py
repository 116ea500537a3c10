"""Ops -> plan, one op at a time: geometry is folded with geometry, arithmetic with arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pixprep import ops
from pixprep.draws import colors, policies, warps, windows
from pixprep.draws.blurring import Blur
from pixprep.draws.erasing import Erasing
from pixprep.errors import PipelineError, unreachable
from pixprep.ops import as_tuple
from pixprep.plan import inputs, placement, plan
from pixprep.plan.placement import Geometry, GeometryStep, LevelsStep, Move, Window
from pixprep.plan.plan import (
    Affine,
    AnnotationPlan,
    ArithmeticStep,
    BoxesPlan,
    Float32,
    FlowPlan,
    OutputPlan,
    Plan,
    PointsPlan,
    SizePlan,
    TensorPlan,
    TransformPlan,
)
from pixprep.profiles import PROFILES
from pixprep.spec import ImageSpec, InputSpec, TensorSpec
from pixprep.steps import levels
from pixprep.steps.levels import LevelStep
from pixprep.steps.operators import Operator, find

_FLOAT32 = np.finfo(np.float32)
_CHANNELS = {"rgb": (0, 1, 2), "bgr": (2, 1, 0), "gray": (0,)}


@dataclass(frozen=True)
class Lowered:
    """The ops from the first to some place in the pipeline, folded.

    Attributes:
        decode: the first of them, or ``pixels`` in its place.
        before, resize, after: the geometry.
        fill: the colour of the margins so far; None: there is none.
        levels: what is done to the levels.
        arithmetic: what is done to the value.
        erasures: what is done to the tensor.
        operators: that ``extern`` may name, see ``operators.find``.
    """

    decode: ops.FirstOp
    before: tuple[GeometryStep, ...] = ()
    resize: placement.Resize | None = None
    after: tuple[GeometryStep, ...] = ()
    fill: tuple[int, ...] | inputs.Fill | None = None
    levels: tuple[LevelsStep, ...] = ()
    arithmetic: tuple[ArithmeticStep, ...] = ()
    erasures: tuple[Erasing, ...] = ()
    operators: tuple[Operator | str, ...] = ()

    @property
    def geometry(self) -> Geometry:
        """Without a resize every step counts as one after it."""
        fill = self.fill if isinstance(self.fill, inputs.Fill) else None
        if self.resize is None:
            return Geometry((), None, self.before, self.levels, self.erasures, fill=fill)
        return Geometry(self.before, self.resize, self.after, self.levels, self.erasures, fill=fill)

    def then(self, step: GeometryStep, *, fill: ops.Fill | None = None) -> Lowered:
        """With one more step, which may leave a margin of a colour.

        Raises:
            PipelineError: there is a margin of another colour, or what must come after.
        """
        if self.erasures:
            raise PipelineError("must come before random_erasing, which is done to the tensor")
        if not self._changes_places(step, leaves_margin=fill is not None):
            if isinstance(fill, str):
                raise PipelineError("a colour that comes with the image must come before what changes the levels")
            if isinstance(step, inputs.Box):
                raise PipelineError("must come before what changes the levels: boxes are in pixels of the photo")
            if isinstance(step, windows.IouCrop):
                raise PipelineError("must come before what changes the levels: it chooses its window by the boxes")
            return replace(self, levels=(*self.levels, Move(step, self.colour(fill or 0))))
        colour = self.fill
        if fill is not None:
            if isinstance(fill, str):
                colour = inputs.Fill(fill, len(_CHANNELS[self.decode.color]))
            else:
                colour = tuple(int(level) for level in as_tuple(fill))
            if self.fill not in (None, colour):
                raise PipelineError("its margin has another colour than an earlier one: use one fill")
        if self.resize is None:
            return replace(self, before=(*self.before, step), fill=colour)
        return replace(self, after=(*self.after, step), fill=colour)

    def _changes_places(self, step: GeometryStep, *, leaves_margin: bool) -> bool:
        """Whether a step of the geometry may come before what is done to the levels, with the same result."""
        if isinstance(step, placement.Flip | windows.Flip):
            return all(_keeps_places(each) for each in self.levels)
        return not self.levels or (not leaves_margin and all(_is_pointwise(each) for each in self.levels))

    def colour(self, fill: ops.Levels) -> tuple[int, ...]:
        """A level for each decoded channel, of what a field says in the order of the image's channels."""
        channels = _CHANNELS[self.decode.color]
        those = tuple(int(level) for level in as_tuple(fill))
        those *= len(channels) if len(those) == 1 else 1
        return tuple(those[channels.index(channel)] for channel in range(len(channels)))

    def do(self, *steps: LevelsStep) -> Lowered:
        """With steps done to the levels."""
        return replace(self, levels=(*self.levels, *steps))


def lower(op: ops.ImageOp, before: Lowered, image: ImageSpec, key: str = "") -> Lowered:
    """Fold one op into what comes before it.

    Args:
        op: which.
        before: the ops whose image it takes.
        image: the spec of that image.
        key: of the numbers that a random op draws.

    Raises:
        PipelineError: the op is right by itself, but does not fold with what comes before it.
    """
    if isinstance(op, ops.RandomColorOp):
        return before.do(colors.Sometimes(key=key, p=op.p, those=(_level_step(op),)))
    if isinstance(op, ops.ColorOp):
        return before.do(_level_step(op))
    match op:
        case ops.Resize():
            return _resized(before, _resize(op), op)
        case ops.Letterbox():
            rule: Literal["letterbox", "shrink"] = "letterbox" if op.enlarge else "shrink"
            resize = placement.Resize(
                rule=rule,
                height=op.height,
                width=op.width,
                filter=op.filter,
                antialias=bool(op.antialias),
                like=op.like,
                rounding="half_even",
            )
            return _resized(before, resize, op).then(_canvas(op), fill=op.fill)
        case ops.CenterCrop():
            window = Window(
                height=op.height,
                width=op.width,
                fraction=op.fraction or 1.0,
                place="center",
                rounding=op.rounding,
                beyond="fill",
            )
            may_fill = _is_over(op.height, image.min_height) or _is_over(op.width, image.min_width)
            return before.then(window, fill=0 if may_fill else None)
        case ops.Crop() if op.box is not None:
            return before.then(inputs.Box(key=key, input=op.box))
        case ops.Crop():
            assert op.top is not None
            assert op.left is not None
            window = Window(
                height=op.height,
                width=op.width,
                place="fixed",
                top=op.top,
                left=op.left,
                beyond="refuse_smaller",
            )
            return before.then(window)
        case ops.Pad():
            return before.then(_canvas(op), fill=op.fill)
        case ops.Flip():
            return before.then(
                inputs.Flip(key=key, input=op.when, axis=op.axis) if op.when else placement.Flip(op.axis)
            )
        case ops.RandomResizedCrop():
            assert op.width is not None
            resize = placement.Resize(
                rule="both",
                height=op.height,
                width=op.width,
                filter=op.filter,
                antialias=bool(op.antialias),
                like=op.like,
            )
            return _resized(before.then(windows.ResizedCrop(key=key, scale=op.scale, ratio=op.ratio)), resize, op)
        case ops.RandomCrop():
            assert op.width is not None
            crop = windows.Crop(
                key=key, height=op.height, width=op.width, padding=op.margins, pad_if_needed=op.pad_if_needed
            )
            return before.then(crop, fill=None if crop.is_inside else op.fill)
        case ops.RandomFlip():
            return before.then(windows.Flip(key=key, axis=op.axis, p=op.p))
        case ops.RandomZoomOut():
            return before.then(windows.ZoomOut(key=key, p=op.p, side_range=op.side_range), fill=op.fill)
        case ops.RandomIouCrop():
            assert op.sampler_options is not None
            return before.then(
                windows.IouCrop(
                    key=key,
                    scale=(op.min_scale, op.max_scale),
                    ratio=(op.min_aspect_ratio, op.max_aspect_ratio),
                    overlaps=op.sampler_options,
                    trials=op.trials,
                )
            )
        case ops.ColorJitter():
            return before.do(
                colors.Jitter(
                    key=key,
                    brightness=op.spans["brightness"],
                    contrast=op.spans["contrast"],
                    saturation=op.spans["saturation"],
                    hue=op.spans["hue"],
                    like=op.like,
                    p=op.p,
                )
            )
        case ops.Extern():
            call = find(op.operator, op.version, before.operators).use(op.fields)
            if call.operator.place == "tensor":
                raise PipelineError(f"{call.operator} takes a tensor: it stands right behind tensor")
            return before.do(call)
        case ops.RandAugment():
            return before.do(_policy(op, before, key, table="rand", count=op.num_ops, magnitude=op.magnitude))
        case ops.TrivialAugment():
            return before.do(_policy(op, before, key, table="trivial", count=1, magnitude=None))
        case ops.Rotate():
            look = _look(op, before)
            if isinstance(op.angle, str):
                given = warps.Rotation(key=key, input=op.angle, degrees=(0.0, 0.0), expand=op.expand, look=look)
                return before.do(given)
            return before.do(warps.Rotation(key="", degrees=(op.angle,) * 2, expand=op.expand, look=look))
        case ops.RandomRotate():
            return before.do(warps.Rotation(key=key, degrees=op.span, expand=op.expand, look=_look(op, before)))
        case ops.Affine():
            what = warps.Motion(op.angle, op.translate, op.scale, op.shears)
            return before.do(warps.AffineMap(motion=what, look=_look(op, before)))
        case ops.RandomAffine():
            return before.do(
                warps.RandomAffineMap(
                    key=key,
                    degrees=op.span,
                    translate=op.translate or (0.0, 0.0),
                    scale=op.scale or (1.0, 1.0),
                    shear=op.shears,
                    look=_look(op, before),
                )
            )
        case ops.RandomSharpness():
            step = levels.Filter("sharpness", op.like, op.factor)
            return before.do(colors.Sometimes(key=key, p=op.p, those=(step,)))
        case ops.Sharpness():
            return before.do(levels.Filter("sharpness", op.like, op.factor))
        case ops.GaussianBlur():
            of_y, of_x = op.sigmas
            return before.do(Blur(key="", taps=op.taps, sigma=((of_y, of_y), (of_x, of_x))))
        case ops.RandomGaussianBlur():
            return before.do(Blur(key=key, p=op.p, taps=op.taps, sigma=(op.span, op.span)))
        case ops.RandomErasing():
            return _erased(op, before, image, key)
        case ops.Normalize():
            if before.erasures:
                raise PipelineError("must come before random_erasing, which is done to its values")
            return replace(before, arithmetic=_with(op, before.arithmetic, image.channels))
        case _ as never:
            return unreachable(never)


def output_plan(op: ops.OutputOp, spec: TensorSpec, before: Lowered) -> OutputPlan:
    """The plan of an output.

    Raises:
        PipelineError: the arithmetic leaves the range of float32.
    """
    match op:
        case ops.Tensor():
            return _tensor_plan(spec, before)
        case ops.OpticalFlow():
            if isinstance(before.fill, inputs.Fill) and before.decode.color == "bgr":
                raise PipelineError(
                    'not of margins whose colour comes with the clip, with "color": "bgr" of decode_video'
                )
            count, _, height, width = spec.shape
            channels = len(_CHANNELS[before.decode.color])
            shape = (count + 1, height, width, channels)
            frames = TensorSpec(shape=shape, dtype="uint8", layout="thwc", low=0, high=255)
            fill = 0 if before.fill is None or isinstance(before.fill, inputs.Fill) else before.fill
            own = replace(_tensor_plan(frames, before), channels=tuple(range(channels)), fill=before.colour(fill))
            return FlowPlan(spec=spec, frames=own, preset=op.preset)
        case ops.OriginalSize():
            return SizePlan(spec=spec)
        case ops.Transform():
            if before.geometry.may_warp:
                raise PipelineError(
                    "four numbers cannot say where a pixel came from after a rotation or an affine map: "
                    "put it before, or move boxes by the op boxes"
                )
            return TransformPlan(spec=spec, geometry=before.geometry)
        case _ as never:
            return unreachable(never)


def _tensor_plan(spec: TensorSpec, before: Lowered) -> TensorPlan:
    channels = _CHANNELS[before.decode.color]
    fill = before.fill if before.fill and not isinstance(before.fill, inputs.Fill) else (0,)
    return TensorPlan(
        spec=spec,
        geometry=before.geometry,
        fill=fill * (len(channels) if len(fill) == 1 else 1),
        channels=channels,
        arithmetic=before.arithmetic,
    )


def annotation_plan(op: ops.AnnotationOp, before: Lowered) -> AnnotationPlan:
    """The plan of boxes or points."""
    match op:
        case ops.Boxes():
            return BoxesPlan(
                geometry=before.geometry,
                format=op.format,
                is_normalized=op.normalized,
                clips=op.clip,
                min_size=op.min_size,
                min_visible=op.min_visible,
                pad=op.pad,
            )
        case ops.Points():
            return PointsPlan(
                geometry=before.geometry,
                flip_pairs=op.flip_pairs,
                is_normalized=op.normalized,
                clips=op.clip,
                pad=op.pad,
            )
        case _ as never:
            return unreachable(never)


def whole_plan(
    first: ops.FirstOp,
    outputs: Mapping[str, OutputPlan],
    annotations: Mapping[str, AnnotationPlan],
    given: Mapping[str, InputSpec],
) -> Plan:
    """The plan of a pipeline, whose outputs have theirs."""
    if isinstance(first, ops.DecodeVideo):
        count = first.frames if first.sample == "random" else 1
        drawn = windows.ClipFrames(key=first.name or "decode_video#0", count=count) if first.is_random else None
        clip = plan.ClipPlan(first.sampling, drawn, first.apply_rotation)
        if any(spec.kind == "box" for spec in given.values()):
            raise PipelineError("ops: boxes are cut out of images, and decode_video gives clips")
        return Plan(is_gray=first.color == "gray", clip=clip, outputs=outputs, annotations=annotations, inputs=given)
    if isinstance(first, ops.Pixels):
        return Plan(
            is_gray=first.color == "gray", takes=first.order, outputs=outputs, annotations=annotations, inputs=given
        )
    return Plan(
        is_gray=first.color == "gray",
        apply_exif_orientation=first.apply_exif_orientation,
        chroma=first.chroma,
        idct=first.idct,
        reduced=first.reduced,
        alpha=first.alpha,
        outputs=outputs,
        annotations=annotations,
        inputs=given,
    )


def _resized(
    before: Lowered, resize: placement.Resize, op: ops.Resize | ops.Letterbox | ops.RandomResizedCrop
) -> Lowered:
    """What comes before, and a resize. A centre crop then has to fit inside; ``pad`` and random ops may make margins.

    A margin is resampled where the image ends, and its colour stays what it is: so the values have to be levels.
    """
    if before.levels:
        raise PipelineError("must come before what changes the levels, which is done to the resized image")
    if before.resize is not None:
        raise PipelineError("the image is resized already, and pixels should be resampled once")
    is_reduced = isinstance(before.decode, ops.Decode) and before.decode.reduced
    if is_reduced:
        _check_reduced(op)
    steps = tuple(
        replace(step, beyond="refuse_smaller") if isinstance(step, Window) and step.beyond == "fill" else step
        for step in before.before
    )
    is_padded = Geometry(steps, resize, ()).is_padded
    is_pads = any(isinstance(step, Window) and step.beyond == "refuse_larger" for step in steps)
    first = "must come before pad" if is_pads else "must have no random margin before it"
    if is_padded and resize.is_real:
        raise PipelineError(
            f'{first}: with "like": "{op.like}" and "filter": "{op.filter}", '
            "which round nothing, margins are not resampled"
        )
    if is_padded and is_reduced:
        raise PipelineError(f'{first}: margins are not resampled with "reduced": true of decode')
    return replace(before, before=steps, resize=resize, fill=before.fill if is_padded else None)


def _resize(op: ops.Resize) -> placement.Resize:
    rule: Literal["both", "shorter", "longer", "fit", "cover"]
    if op.size is not None:
        assert op.side is not None
        rule, height, width = op.side, op.size, op.size
    else:
        assert op.height is not None
        assert op.width is not None
        assert op.mode is not None
        rule, height, width = ("both" if op.mode == "stretch" else op.mode), op.height, op.width
    return placement.Resize(
        rule=rule,
        height=height,
        width=width,
        filter=op.filter,
        antialias=bool(op.antialias),
        like=op.like,
        rounding=op.rounding or "down",
        subpixel=bool(op.subpixel),
    )


def _check_reduced(op: ops.Resize | ops.Letterbox | ops.RandomResizedCrop) -> None:
    """Refuse the resizes that a decode to a fraction contradicts.

    Their values are to be some library's, or they look at single pixels, or cut them at a hard edge.
    """
    reducible = PROFILES[op.like].reducible
    refused = {
        f'"like": "{op.like}"': (not reducible, '"like": "pillow"'),
        f'"filter": "{op.filter}"': (op.filter not in reducible, '"filter": "bilinear"'),
        '"antialias": false': (not op.antialias, '"antialias": true'),
    }
    for field, (is_refused, remedy) in refused.items():
        if is_refused:
            raise PipelineError(
                f'{field} contradicts "reduced": true of decode, which changes pixels: '
                f'write {remedy}, or leave "reduced" out'
            )


def _level_step(op: ops.ColorOp) -> LevelStep:
    """What an op, or a random one of its kind, does to an image."""
    match op:
        case ops.Brightness():
            return levels.brightness(op.factor, op.like)
        case ops.Contrast():
            return levels.Blend("mean", op.factor, op.like)
        case ops.Saturation():
            return levels.Blend("own", op.factor, op.like)
        case ops.Hue():
            return levels.Hue(op.factor, op.like)
        case ops.Grayscale():
            return levels.grayscale(op.like)
        case ops.Gamma():
            return levels.gamma(op.gamma, op.gain, op.like)
        case ops.Posterize():
            return levels.posterize(op.bits)
        case ops.Solarize():
            return levels.solarize(op.threshold)
        case ops.Autocontrast():
            return levels.Tone("autocontrast", op.like)
        case ops.Equalize():
            return levels.Tone("equalize", "pillow")
        case ops.Invert():
            return levels.inverted()
        case _ as never:
            return unreachable(never)


def _policy(
    op: ops.PolicyOp, before: Lowered, key: str, *, table: policies.Table, count: int, magnitude: int | None
) -> policies.Policy:
    return policies.Policy(
        key=key,
        table=table,
        count=count,
        magnitude=magnitude,
        bins=op.num_magnitude_bins,
        look=warps.Look(filter=op.filter, fill=None if op.fill is None else before.colour(op.fill), like=op.like),
    )


def _look(op: ops.WarpOp, before: Lowered) -> warps.Look:
    return warps.Look(filter=op.filter, center=op.center, fill=before.colour(op.fill), like=op.like)


def _erased(op: ops.RandomErasing, before: Lowered, image: ImageSpec, key: str) -> Lowered:
    """Levels that are erased, or values of the tensor."""
    is_levels = image.values == "levels"
    those: tuple[float, ...] | None = None
    if not isinstance(op.value, str):
        values = as_tuple(op.value)
        whole = values * (image.channels if len(values) == 1 else 1)
        those = before.colour(tuple(map(int, values))) if is_levels else whole
    step = Erasing(key=key, p=op.p, scale=op.scale, ratio=op.ratio, count=op.counts, values=those)
    return before.do(step) if is_levels else replace(before, erasures=(*before.erasures, step))


def _canvas(op: ops.Pad | ops.Letterbox) -> Window:
    place: Literal["center", "top_left"] = "center" if op.anchor == "center" else "top_left"
    return Window(height=op.height, width=op.width, side="longer", place=place, rounding="down", beyond="refuse_larger")


def _keeps_places(step: LevelsStep) -> bool:
    """Whether a mirror may come before or after."""
    if isinstance(step, Move):
        return False
    return levels.keeps_places(step) if isinstance(step, levels.LevelStep) else step.keeps_places


def _is_pointwise(step: LevelsStep) -> bool:
    """Whether a crop may come before or after."""
    if isinstance(step, Move):
        return False
    return levels.is_pointwise(step) if isinstance(step, levels.LevelStep) else step.is_pointwise


def _is_over(window: int | None, least: int) -> bool:
    return window is not None and window > least


def _with(op: ops.Normalize, steps: tuple[ArithmeticStep, ...], count: int) -> tuple[ArithmeticStep, ...]:
    """The steps with those of one more op; what is done in float64 folds into one."""
    if op.arithmetic != "float64":
        return (*steps, *_float32_steps(op, count))
    last = Affine((1.0,) * count, (0.0,) * count)
    if steps and isinstance(steps[-1], Affine):
        last = steps[-1]
        steps = steps[:-1]
    pairs = list(zip(op.coefficients(count), last.scale, last.offset, strict=True))
    return (*steps, Affine(tuple(s * a for (a, _), s, _ in pairs), tuple(o * a + b for (a, b), _, o in pairs)))


def _float32_steps(op: ops.Normalize, count: int) -> list[Float32]:
    """One ``normalize`` in the order of operations that it names; a step that changes nothing is left out."""
    mean, std = (as_tuple(value) * (count if len(as_tuple(value)) == 1 else 1) for value in (op.mean, op.std))
    scale = (op.scale,) * count
    steps = {
        "divide": (
            Float32("divide", tuple(1 / s for s in scale)),
            Float32("subtract", mean),
            Float32("divide", std),
        ),
        "multiply": (Float32("multiply", scale), Float32("subtract", mean), Float32("divide", std)),
        "fused": (
            Float32("subtract", _float32_product(mean, 1 / op.scale)),
            Float32("divide", _float32_product(std, 1 / op.scale)),
        ),
        "fused_multiply": (
            Float32("subtract", tuple(m / s for m, s in zip(mean, scale, strict=True))),
            Float32("multiply", tuple(s / d for d, s in zip(std, scale, strict=True))),
        ),
    }[op.arithmetic]
    factors = (1 / op.scale, *mean, *std) if op.arithmetic == "fused" else ()
    _check_float32(op, [*factors, *(constant for step in steps for constant in step.by)])
    neutral = {"subtract": 0.0, "multiply": 1.0, "divide": 1.0}
    return [step for step in steps if any(x != neutral[step.operation] for x in step.by)]


def _check_float32(op: ops.Normalize, constants: Sequence[float]) -> None:
    """Refuse a constant that is infinite in float32, or 0, or has fewer digits than others."""
    for constant in constants:
        with np.errstate(all="ignore"):
            magnitude = abs(np.float32(constant))
        if constant != 0 and not _FLOAT32.tiny <= magnitude <= _FLOAT32.max:
            raise PipelineError(
                f'"arithmetic": "{op.arithmetic}" needs the number {constant:.3g}, which is none of float32: '
                'bring "scale", "mean" and "std" nearer to 1, or leave "arithmetic" out'
            )


def _float32_product(values: Sequence[float], factor: float) -> tuple[float, ...]:
    """The product as PyTorch forms it, of two float32: it may end in another bit than the rounded quotient."""
    with np.errstate(all="ignore"):  # what is not finite is refused later
        return tuple(float(np.float32(value) * np.float32(factor)) for value in values)
