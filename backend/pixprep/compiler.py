"""Pipeline -> Plan: geometry folded with geometry, arithmetic with arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from pixprep import ops, plan
from pixprep.errors import PipelineError
from pixprep.pipeline import Output, Pipeline
from pixprep.plan import Affine, Geometry, OutputPlan, Plan, SizePlan, TensorPlan, TransformPlan, Window
from pixprep.spec import ImageSpec

Step = plan.Window | plan.Flip


def compile_pipeline(pipeline: Pipeline) -> Plan:
    """What is to be done for one image, with everything decided that does not depend on its size.

    Raises:
        PipelineError: the ops are right one by one, but cannot be folded into one resize.
    """
    decode = pipeline.ops[0]
    assert isinstance(decode, ops.Decode)
    return Plan(
        is_gray=decode.color == "gray",
        apply_exif_orientation=decode.apply_exif_orientation,
        chroma=decode.chroma,
        decoder=decode.decoder,
        idct=decode.idct,
        scale=decode.scale,
        alpha=decode.alpha,
        damage=decode.damage,
        outputs={name: _output(output, decode) for name, output in pipeline.outputs.items()},
    )


def _output(output: Output, decode: ops.Decode) -> OutputPlan:
    if isinstance(output.chain[-1], ops.OriginalSize):
        return SizePlan(spec=output.spec)
    try:
        if decode.scale == "auto":
            _check_scale(output.chain)
        geometry, fill = _fold(output.chain, decode.infer())
    except PipelineError as error:
        raise PipelineError(f'output "{output.name}": {error}') from None
    if isinstance(output.chain[-1], ops.Transform):
        return TransformPlan(spec=output.spec, geometry=geometry)
    count = decode.infer().channels
    return TensorPlan(
        spec=output.spec,
        geometry=geometry,
        fill=tuple(int(level) for level in fill) * (count if len(fill) == 1 else 1),
        channels={"rgb": (0, 1, 2), "bgr": (2, 1, 0), "gray": (0,)}[decode.color],
        arithmetic=_arithmetic([op for op in output.chain if isinstance(op, ops.Normalize)], count),
    )


def _check_scale(chain: Sequence[ops.AnyOp]) -> None:
    """Refuse the resizes that ``"scale": "auto"`` contradicts.

    Their values are to be some library's, or they look at single pixels, or cut them at a hard edge (``box``: 76
    levels).
    """
    for op in chain:
        if not isinstance(op, ops.Resize | ops.Letterbox):
            continue
        refused = {
            f'"like": "{op.like}"': (op.like != "pillow", '"like": "pillow"'),
            f'"filter": "{op.filter}"': (op.filter in ("nearest", "box"), '"filter": "bilinear"'),
            '"antialias": false': (not op.antialias, '"antialias": true'),
        }
        for field, (is_refused, remedy) in refused.items():
            if is_refused:
                raise PipelineError(
                    f'{ops.op_name(op)}: {field} contradicts "scale": "auto" of decode, which changes pixels: '
                    f'write {remedy}, or "scale": "full"'
                )


def _arithmetic(chain: Sequence[ops.Normalize], count: int) -> tuple[Affine | plan.Step, ...]:
    """The steps of a chain; what is done in float64 folds together."""
    steps: list[Affine | plan.Step] = []
    for op in chain:
        if op.arithmetic != "float64":
            steps += _float32_steps(op, count)
            continue
        last = Affine((1.0,) * count, (0.0,) * count)
        if steps and isinstance(steps[-1], Affine):
            last = steps[-1]
            steps.pop()
        pairs = list(zip(op.coefficients(count), last.scale, last.offset, strict=True))
        steps.append(Affine(tuple(s * a for (a, _), s, _ in pairs), tuple(o * a + b for (a, b), _, o in pairs)))
    return tuple(steps)


def _float32_steps(op: ops.Normalize, count: int) -> list[Affine | plan.Step]:
    """One ``normalize`` in the order of operations that it names; a step that changes nothing is left out."""
    mean, std = (ops.as_tuple(value) * (count if len(ops.as_tuple(value)) == 1 else 1) for value in (op.mean, op.std))
    scale = (op.scale,) * count
    steps = {
        "divide": (
            plan.Step("divide", tuple(1 / s for s in scale)),
            plan.Step("subtract", mean),
            plan.Step("divide", std),
        ),
        "multiply": (plan.Step("multiply", scale), plan.Step("subtract", mean), plan.Step("divide", std)),
        "fused": (
            plan.Step("subtract", _float32_product(mean, 1 / op.scale)),
            plan.Step("divide", _float32_product(std, 1 / op.scale)),
        ),
        "fused_multiply": (
            plan.Step("subtract", tuple(m / s for m, s in zip(mean, scale, strict=True))),
            plan.Step("multiply", tuple(s / d for d, s in zip(std, scale, strict=True))),
        ),
    }[op.arithmetic]
    return [step for step in steps if any(x != (step.kind != "subtract") for x in step.by)]


def _float32_product(values: Sequence[float], factor: float) -> tuple[float, ...]:
    """The product as PyTorch forms it, of two float32: it may end in another bit than the rounded quotient."""
    with np.errstate(all="ignore"):  # TensorPlan refuses what is not finite
        return tuple(float(np.float32(value) * np.float32(factor)) for value in values)


def _fold(chain: Sequence[ops.AnyOp], image: ImageSpec) -> tuple[Geometry, tuple[float, ...]]:
    """The geometry of a chain of ops, and the colour of its margins."""
    before: list[Step] = []
    after: list[Step] = []
    resize: plan.Resize | None = None
    fill: tuple[float, ...] | None = None
    for op in chain[1:]:
        steps: list[Step] = []
        colour: ops.Levels | None = None
        match op:
            case ops.Resize() | ops.Letterbox():
                if resize is not None:
                    raise PipelineError(
                        f"{ops.op_name(op)}: the image is resized already, and pixels should be resampled once"
                    )
                if fill is not None:
                    raise PipelineError(f"{ops.op_name(op)}: must come before pad: margins are not resampled")
                resize = _resize(op)
                if isinstance(op, ops.Letterbox):
                    colour = op.fill
                    steps = [_canvas(op)]
            case ops.CenterCrop():
                may_fill = _is_over(op.height, image.min_height) or _is_over(op.width, image.min_width)
                will_resize = resize is None and any(isinstance(o, ops.Resize | ops.Letterbox) for o in chain)
                colour = 0 if may_fill and not will_resize else None
                steps = [
                    Window(
                        height=op.height,
                        width=op.width,
                        fraction=op.fraction or 1.0,
                        place="center",
                        rounding=op.rounding,
                        beyond="refuse_smaller" if will_resize else "fill",
                    )
                ]
            case ops.Crop():
                where = {"height": op.height, "width": op.width, "top": op.top, "left": op.left}
                steps = [Window(**where, place="fixed", beyond="refuse_smaller")]  # type: ignore[arg-type]
            case ops.Pad():
                colour = op.fill
                steps = [_canvas(op)]
            case ops.Flip():
                steps = [plan.Flip(op.axis)]
            case _:
                pass
        (before if resize is None else after).extend(steps)
        if colour is not None:
            if fill is not None and ops.as_tuple(colour) != fill:
                raise PipelineError(
                    f"{ops.op_name(op)}: its margin has another colour than an earlier one: use one fill"
                )
            fill = ops.as_tuple(colour)
        if isinstance(op, ops.ImageOp):
            image = op.infer(image)
    if resize is None:
        before, after = [], before
    return Geometry(tuple(before), resize, tuple(after)), fill or (0,)


def _resize(op: ops.Resize | ops.Letterbox) -> plan.Resize:
    rule: Literal["both", "shorter", "longer", "fit", "cover", "letterbox", "shrink"]
    if isinstance(op, ops.Letterbox):
        rule, height, width = ("letterbox" if op.enlarge else "shrink"), op.height, op.width
    elif op.size is not None and op.side is not None:
        rule, height, width = op.side, op.size, op.size
    else:
        assert op.height is not None
        assert op.width is not None
        rule = "both" if op.mode is None or op.mode == "stretch" else op.mode
        height, width = op.height, op.width
    return plan.Resize(
        rule=rule,
        height=height,
        width=width,
        filter=op.filter,
        antialias=bool(op.antialias),
        like=op.like,
        rounding="half_even" if isinstance(op, ops.Letterbox) else op.rounding or "down",
        subpixel=isinstance(op, ops.Resize) and bool(op.subpixel),
    )


def _canvas(op: ops.Pad | ops.Letterbox) -> Window:
    place: Literal["middle", "top_left"] = "middle" if op.anchor == "center" else "top_left"
    return Window(height=op.height, width=op.width, place=place, beyond="refuse_larger")


def _is_over(window: int | None, least: int) -> bool:
    return window is not None and window > least
