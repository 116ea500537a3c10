"""A pipeline, its plan and every shape, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pixprep.errors import ImageError
from pixprep.pipeline.file import settings
from pixprep.pipeline.ops import (
    Boxes,
    Decode,
    DecodeVideo,
    Extern,
    FirstOp,
    ImageOp,
    Mask,
    Masks,
    Normalize,
    Op,
    OpticalFlow,
    Pixels,
    Points,
    Tensor,
    op_name,
)
from pixprep.pipeline.ops.choices import Choice, whether
from pixprep.pipeline.ops.outputs import NumbersOp
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.folding import Geometry
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import (
    Affine,
    AnnotationPlan,
    ArithmeticStep,
    BoxesPlan,
    ByOwn,
    Float32,
    MaskPlan,
    NumbersPlan,
    OutputPlan,
    TensorPlan,
)
from pixprep.plan.plan import Plan
from pixprep.plan.steps.finding import find
from pixprep.spec import NO_PADDING, Frames, ImageSpec, InputSpec

_NUMBERS = {
    "original_size": "of the decoded image",
    "image_size": "of the image here",
    "scale_factor": "here = decoded * scale",
    "transform": "here = decoded * scale + offset",
}
_OWN = {"max": "the image's greatest level", "mean": "the mean of the image's levels"}
_SIGNS = {"subtract": "-", "multiply": "*", "divide": "/"}


def explain(pipeline: Pipeline, *, height: int = 480, width: int = 640) -> str:
    """Explain a pipeline to a reader; the numbers are worked out for one image of ``height`` x ``width``."""
    if pipeline.has_sides:
        sides = [_explain(pipeline.at(side), height, width, f" in {side}") for side in pipeline.sides]
        return "\n".join(sides)
    return _explain(pipeline, height, width)


def _explain(pipeline: Pipeline, height: int, width: int, where: str = "") -> str:
    plan = pipeline.plan
    lines = [f"pipeline{where}"]
    for index, op, image in ((node.index, node.op, node.image) for node in pipeline.nodes):
        specs = [output.spec for output in pipeline.outputs.values() if output.chain[-1] is op]
        result = f"output {specs[0]}" if specs else str(image)
        fields = ", ".join(f"{key} {_shown(value)}" for key, value in settings(op).items() if key != "op")
        lines.append(f"  {index:>2}  {op_name(op):<14} {result}" + (f"    ({fields})" if fields else ""))
    if pipeline.inputs:
        lines += ["", f"inputs{where}, beside each image"]
        lines += [f"  {name}: {spec}{_rows(spec, plan)}" for name, spec in pipeline.inputs.items()]
    upright = "turned upright by its EXIF orientation" if plan.apply_exif_orientation else "as it is stored"
    decode = f"decode to {'gray' if plan.is_gray else 'RGB'}, {upright}"
    lines += ["", f"plan{where}", f"  {decode if plan.takes is None else _taken(plan.takes)}"]
    if plan.reduced:
        lines.append("  on the CPU a JPEG to 1/2, 1/4 or 1/8, where each resized pixel still has two on both axes")
        lines.append("  the values are then near the library's, not equal")
        lines.append(f"  e.g. {height} x {width}: to 1/{_denominator(plan, height, width)}")
    for name in plan.outputs:
        spec = pipeline.outputs[name].spec
        lines += ["", f"  {name}: {spec}, {spec.n_bytes:,} bytes an image"]
        for label, leaf in _leaves(plan):
            own = list(_output(leaf.outputs[name], height, width))
            lines += [f"    {label}", *(f"      {line}" for line in own)] if label else [f"    {line}" for line in own]
    for name, annotation in plan.annotations.items():
        lines += ["", f"  {name}: {_annotation(annotation)}"]
        lines += (
            ["    moved as the image is"]
            if plan.fork
            else [f"    {line}" for line in geometry_words(annotation.geometry)]
        )
    return "\n".join(lines) + "\n"


def _leaves(plan: Plan, label: str = "") -> Iterator[tuple[str, Plan]]:
    """The plans that draws lead to, each with what is drawn; of a plan without a fork itself, and nothing."""
    if plan.fork is None:
        yield label, plan
        return
    for chosen, each in plan.fork.plans.items():
        which = f"{plan.fork.step.key} chooses {', '.join(map(str, chosen)) or 'none'}"
        yield from _leaves(each, f"{label}, {which}" if label else f"where {which}")


def _rows(spec: InputSpec, plan: Plan) -> str:
    """Words for the number of rows that an image has of an input."""
    if spec.kind == "box":
        return " in pixels of the decoded image; each gives a tensor"
    return ", a row for each box" if plan.takes_boxes else ", a row for each image"


def _output(output: OutputPlan, height: int, width: int) -> Iterator[str]:
    if output.geometry is not None:
        yield from geometry_words(output.geometry)
        yield from _example(output.geometry, height, width)
    if isinstance(output, NumbersPlan):
        yield f"{', '.join(output.words)}: {_NUMBERS[output.kind]}"
    if isinstance(output, TensorPlan):
        spec = output.spec
        for index, channel in enumerate(output.channels[: spec.channels]):
            name = "gray" if spec.channels == 1 else ("red", "green", "blue")[channel]
            yield f"{name}: {_formula(output.arithmetic, index)}"
        if spec.fourth is not None:
            yield f"fourth channel: {spec.fourth:g}"
        if spec.is_open or spec.padding != NO_PADDING:
            batch = ", and in a batch to its largest image" if spec.is_open else ""
            yield f"padded with {', '.join(f'{value:g}' for value in spec.padding.value)} below and on the right{batch}"
        for call in output.calls:
            yield str(call)


def _annotation(plan: AnnotationPlan) -> str:
    if isinstance(plan, MaskPlan):
        what = "label of each pixel" if plan.field == "mask" else "mask of each object"
        return f"{what} of the image here, by the nearest alone, {plan.dtype}, {plan.ignore} where no image is"
    rows = "one array an image" if plan.pad is None else f"{plan.pad} rows an image, -1 where there is none"
    kind = f"{plan.format} boxes" if isinstance(plan, BoxesPlan) else "points, x before y,"
    return f"{kind} in {'parts of the sides' if plan.normalized else 'pixels'} of the image here, {rows}"


def _denominator(plan: Plan, height: int, width: int) -> int:
    try:
        return plan.place(height, width).denominator
    except ImageError:  # the example of the output says why
        return 1


def _formula(arithmetic: Sequence[ArithmeticStep], channel: int) -> str:
    """Formula of a level, such as ``(level / 255 - 0.485) / 0.229, in float32``."""
    text, is_sum = "level", False
    for step in arithmetic:
        if is_sum and not (isinstance(step, Float32) and step.operation == "subtract"):
            text = f"({text})"
        if isinstance(step, Affine):
            scale, offset = step.scale[channel], step.offset[channel]
            text += f" * {scale:.6g}" if scale != 1 else ""
            text += f" {'+' if offset > 0 else '-'} {abs(offset):.6g}" if offset else ""
        elif isinstance(step, ByOwn):
            mean, std = step.mean[channel], step.std[channel]
            text += f" / {_OWN[step.number]}" + (f" - {mean:.6g}" if mean else "")
            text = (f"({text})" if mean else text) + f" / {std:.6g}" if std != 1 else text
        else:
            text += f" {_SIGNS[step.operation]} {step.by[channel]:.6g}"
        is_sum = isinstance(step, Affine) or (isinstance(step, Float32) and step.operation == "subtract")
    return text + (", in float32" if any(isinstance(step, Float32) for step in arithmetic) else "")


def op_words(pipeline: Pipeline) -> list[str]:
    """Words for each op, such as ``resize the shorter side to 256 (bilinear, ...)``."""
    first = pipeline.side_ops[0]
    assert isinstance(first, FirstOp)
    before = first.lower(pipeline.operators)
    return [_words(op, image, before) for op, image in zip(pipeline.side_ops, pipeline.images, strict=True)]


def _words(op: Op, image: ImageSpec, before: Lowered) -> str:
    """Words for an op; ``image``: what it gives, ``before``: its first op alone."""
    match op:
        case Decode():
            upright = "turned upright by its EXIF orientation" if op.apply_exif_orientation else "as it is stored"
            return f"decode to {op.color if op.color == 'gray' else op.color.upper()}, {upright}"
        case DecodeVideo():
            color = op.color if op.color == "gray" else op.color.upper()
            turned = ", turned as the container says" if op.apply_rotation else ""
            return f"decode {op.sampling} to {color}{turned}"
        case Pixels():
            return _taken(op.frames)
        case Tensor():
            count = f", {op.channels} channel{'s' * (op.channels > 1)}" if op.channels else ""
            return f"give the image as {op.dtype} {op.layout}{count}"
        case NumbersOp():
            numbers = op.lower(before, op.infer(image))
            return f"give {', '.join(numbers.words)}: {_NUMBERS[numbers.kind]}"
        case OpticalFlow():
            return f"give how pixels move from frame to frame (OpenCV's DIS, {op.preset})"
        case Boxes():
            return "give the boxes of the image here"
        case Points():
            return "give the points of the image here"
        case Mask():
            return f"give the label of each pixel of the image here, {op.ignore} where no image is"
        case Masks():
            return "give the mask of each object of the image here"
        case Extern():
            return str(find(op.operator, op.version, before.operators).use(op.fields))
        case Normalize():
            steps = op.lower(before, image, "").arithmetic
            formulas = dict.fromkeys(_formula(steps, channel) for channel in range(image.channels))
            return "; ".join(formulas)
        case Choice():
            parts = (", ".join(_words(each, image, before) for each in part) or "nothing" for part in op.parts)
            return f"{op.in_words()}: {'; or '.join(parts)}"
        case ImageOp():
            choice, key = whether(op, "")
            assert isinstance(choice, ImageOp)
            if choice is not op:
                return _words(choice, image, before)
            return ", ".join(geometry_words(op.lower(before, image, key).geometry))
        case _:
            raise AssertionError(f"no words for {op!r}")


def _taken(frames: Frames) -> str:
    shape = ", ".join(map(str, frames.shape("height", "width")))
    order = frames.order if frames.order == "gray" else frames.order.upper()
    return f"take pixels as they are: {frames.dtype} [{shape}], {order}"


def geometry_words(geometry: Geometry) -> Iterator[str]:
    """Each step of a geometry, such as ``take the middle 224 x 224``."""
    yield from (f"{step}, of the whole photo" for step in geometry.photo)
    yield from map(str, geometry.before)
    if geometry.resize is not None:
        yield str(geometry.resize)
    yield from map(str, (*geometry.after, *geometry.levels))
    if geometry.fill is not None:
        yield f'margins of the colour that "{geometry.fill.input}" says'
    yield from map(str, geometry.erasures)


def _example(geometry: Geometry, height: int, width: int) -> Iterator[str]:
    try:  # of inputs that say: all of it, not mirrored
        placement = geometry.place(height, width)
    except ImageError as error:
        yield f"e.g. an image of {height} x {width} is refused: {error}"
        return
    box, region = placement.box, placement.region
    steps = []
    if _size(box) != (height, width):
        steps.append(_window(box))
    if placement.laid != _size(box):
        steps.append(
            f"laid on {placement.laid[0]} x {placement.laid[1]} at row {placement.margins[0]}, "
            f"column {placement.margins[1]}"
        )
    if not placement.is_kept:
        part = "a part " * (geometry.resize is not None and geometry.resize.roi is not None)
        steps.append(f"{part}resized to {placement.resized[0]} x {placement.resized[1]}")
    is_whole = any(placement.margins) and placement.canvas == placement.resized  # a part is margin, which is known
    if 0 in _size(region):
        steps.append("of which nothing is seen")
    elif _size(region) != placement.resized and not is_whole:
        steps.append(f"of which only {_window(region)} are needed")
    if placement.canvas != _size(region) and 0 not in _size(region) and not is_whole:
        steps.append(f"laid at row {placement.at[0]}, column {placement.at[1]}")
    yield f"e.g. {height} x {width}: {', '.join(steps) or 'as it is'}"


def _size(box: tuple[int, int, int, int]) -> tuple[int, int]:
    return box[2] - box[0], box[3] - box[1]


def _window(box: tuple[int, int, int, int]) -> str:
    return f"rows {box[0]}..{box[2] - 1}, columns {box[1]}..{box[3] - 1}"


def _shown(value: object) -> str:
    if isinstance(value, dict) and "op" in value:
        return str(value["op"])
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
