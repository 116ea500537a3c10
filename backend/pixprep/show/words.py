"""Describes a pipeline, its plan and all shapes as text."""

from __future__ import annotations

from collections.abc import Iterator

from pixprep.errors import ImageError
from pixprep.pipeline.file import settings
from pixprep.pipeline.ops import FirstOp, op_name
from pixprep.pipeline.ops.choices import described
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.draws.philox import EXAMPLE
from pixprep.plan.folding import Geometry
from pixprep.plan.inputs import Drawing
from pixprep.plan.output_plans import OutputPlan
from pixprep.plan.plan import Plan
from pixprep.spec import InputSpec


def explain(pipeline: Pipeline, *, height: int = 480, width: int = 640) -> str:
    """Describe a pipeline and its plan as text, with an example for an image of ``height`` x ``width``."""
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
        lines += ["", f"inputs{where}, passed with each image"]
        lines += [f"  {name}: {spec}{_rows(spec, plan)}" for name, spec in pipeline.inputs.items()]
    upright = "rotated by its EXIF orientation" if plan.apply_exif_orientation else "without EXIF rotation"
    color = "gray" if plan.is_gray else "RGB with alpha" if plan.alpha == "keep" else "RGB"
    decode = f"decode {plan.clip.sampling} to {color}" if plan.clip else f"decode to {color}, {upright}"
    lines += ["", f"plan{where}", f"  {decode if plan.takes is None else plan.takes}"]
    if plan.reduced:
        lines.append(
            "  on the CPU, a JPEG is decoded at 1/2, 1/4 or 1/8, but at no less than twice the resized height and width"
        )
        lines.append("  the values then differ slightly from the library's")
        lines.append(f"  e.g. {height} x {width}: at 1/{_denominator(plan, height, width)}")
    if unsupported := plan.unsupported_by_cuda:
        lines.append(f'  with device="gpu", the CPU runs this pipeline: no CUDA kernels for {", ".join(unsupported)}')
    frames = 1 if plan.clip is None else plan.clip.sampling.example
    for name in plan.outputs:
        spec = pipeline.outputs[name].spec
        lines += ["", f"  {name}: {spec}, {spec.n_bytes:,} bytes per image"]
        for label, leaf in _leaves(plan):
            own = list(_output(leaf.outputs[name], height, width, frames))
            lines += [f"    {label}", *(f"      {line}" for line in own)] if label else [f"    {line}" for line in own]
    for name, annotation in plan.annotations.items():
        lines += ["", f"  {name}: {annotation.meaning}"]
        lines += (
            ["    transformed like the image"] if plan.fork else [f"    {line}" for line in annotation.geometry.words()]
        )
    return "\n".join(lines) + "\n"


def _leaves(plan: Plan, label: str = "") -> Iterator[tuple[str, Plan]]:
    """Yield the plan of every combination of random choices, with a description of the choices."""
    if plan.fork is None:
        yield label, plan
        return
    for chosen, each in plan.fork.plans.items():
        which = f"{plan.fork.step.key} chooses {', '.join(map(str, chosen)) or 'none'}"
        yield from _leaves(each, f"{label}, {which}" if label else f"where {which}")


def _rows(spec: InputSpec, plan: Plan) -> str:
    """Describe what the rows of a numeric input refer to, such as one box or one image per row."""
    if spec.kind in ("box", "xywh", "xywh64"):
        return " in pixels of the decoded image, one tensor per box"
    return ", one row per box" if plan.takes_boxes else ", one row per image"


def _output(output: OutputPlan, height: int, width: int, frames: int) -> Iterator[str]:
    if output.geometry is not None:
        yield from output.geometry.words()
        yield from _example(output.geometry, height, width, frames)
    yield from output.described()


def _denominator(plan: Plan, height: int, width: int) -> int:
    try:
        return plan.place(height, width).denominator
    except ImageError:  # the example of the output contains the reason
        return 1


def op_words(pipeline: Pipeline) -> list[str]:
    """Return a description of each op of a pipeline, such as ``resize the shorter side to 256 (bilinear, ...)``."""
    first = pipeline.side_ops[0]
    assert isinstance(first, FirstOp)
    before = first.lower(pipeline.operators)
    return [described(op, image, before) for op, image in zip(pipeline.side_ops, pipeline.images, strict=True)]


def _example(geometry: Geometry, height: int, width: int, frames: int) -> Iterator[str]:
    try:  # if the geometry depends on inputs, the example assumes the whole image without mirroring
        placement = geometry.place(height, width, Drawing(EXAMPLE, frames=frames))
    except ImageError as error:
        yield f"e.g. an image of {height} x {width} is rejected: {error}"
        return
    box, region = placement.box, placement.region
    steps = []
    if _size(box) != (height, width):
        steps.append(_window(box))
    if placement.laid != _size(box):
        steps.append(
            f"padded to {placement.laid[0]} x {placement.laid[1]}, with the image at row {placement.margins[0]}, "
            f"column {placement.margins[1]}"
        )
    if not placement.is_kept:
        part = "a region " * (geometry.resize is not None and geometry.resize.roi is not None)
        steps.append(f"{part}resized to {placement.resized[0]} x {placement.resized[1]}")
    is_whole = any(placement.margins) and placement.canvas == placement.resized  # part of the padding is cropped
    if 0 in _size(region):
        steps.append("of which no part is visible")
    elif _size(region) != placement.resized and not is_whole:
        steps.append(f"of which only {_window(region)} are used")
    if placement.canvas != _size(region) and 0 not in _size(region) and not is_whole:
        steps.append(f"placed at row {placement.at[0]}, column {placement.at[1]}")
    is_by_frames = geometry.resize is not None and geometry.resize.of_frames(frames) is not geometry.resize
    clip = f", {frames} frames" if is_by_frames else ""
    yield f"e.g. {height} x {width}{clip}: {', '.join(steps) or 'unchanged'}"


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
