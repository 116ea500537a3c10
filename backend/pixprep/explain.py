"""A pipeline, its plan and every shape, in words."""

from __future__ import annotations

from collections.abc import Iterator

from pixprep.compiler import compile_pipeline
from pixprep.errors import ImageError
from pixprep.ops import op_name
from pixprep.pipeline import Pipeline
from pixprep.pipeline_file import to_dict
from pixprep.plan import Flip, Geometry, OutputPlan, Resize, SizePlan, TensorPlan, TransformPlan, Window


def explain(pipeline: Pipeline, *, height: int = 480, width: int = 640) -> str:
    """What a pipeline does, for a reader; the numbers are worked out for one image of ``height`` x ``width``."""
    plan = compile_pipeline(pipeline)
    lines = ["pipeline"]
    for index, (op, image) in enumerate(zip(pipeline.ops, pipeline.images, strict=True)):
        name = op.name or op_name(op)
        is_output = name in pipeline.outputs
        result = f"output {pipeline.outputs[name].spec}" if is_output else str(image)
        settings = ", ".join(f"{key} {_shown(value)}" for key, value in to_dict(op).items() if key != "op")
        lines.append(f"  {index:>2}  {op_name(op):<14} {result}" + (f"    ({settings})" if settings else ""))
    upright = "turned upright by its EXIF orientation" if plan.apply_exif_orientation else "as it is stored"
    lines += ["", "plan", f"  decode to {'gray' if plan.is_gray else 'RGB'}, {upright}"]
    for name, output in plan.outputs.items():
        lines += ["", f"  {name}: {output.spec}, {output.spec.n_bytes:,} bytes an image"]
        lines += [f"    {line}" for line in _output(output, height, width)]
    return "\n".join(lines) + "\n"


def _output(output: OutputPlan, height: int, width: int) -> Iterator[str]:
    if isinstance(output, SizePlan):
        yield "height and width of the decoded image"
        return
    yield from _geometry(output.geometry)
    yield from _example(output.geometry, height, width)
    if isinstance(output, TransformPlan):
        yield "scale_y, scale_x, offset_y, offset_x: here = decoded * scale + offset"
    if isinstance(output, TensorPlan):
        names = "gray" if len(output.channels) == 1 else "rgb"
        for channel, scale, offset in zip(output.channels, output.scale, output.offset, strict=True):
            value = "level" if (scale, offset) == (1.0, 0.0) else f"level * {scale:.6g} {offset:+.6g}"
            yield f"{names if names == 'gray' else names[channel]}: {value}"


def _geometry(geometry: Geometry) -> Iterator[str]:
    for step in geometry.before:
        yield _step(step)
    if geometry.resize is not None:
        yield _resize(geometry.resize)
    for step in geometry.after:
        yield _step(step)


def _step(step: Window | Flip) -> str:
    if isinstance(step, Flip):
        return f"mirror, {step.axis}"
    if step.height is None:
        return f"take the middle square of {step.fraction:g} of the shorter side"
    size = f"{step.height} x {step.width}"
    if step.place == "fixed":
        return f"take {size} from row {step.top}, column {step.left}"
    if step.beyond == "refuse_larger":
        return f"lay on a canvas of {size}, {'in the middle' if step.place == 'middle' else 'at the top left'}"
    return f"take the middle {size}"


def _resize(resize: Resize) -> str:
    size = f"{resize.height} x {resize.width}"
    to = {
        "both": f"to {size}",
        "shorter": f"the shorter side to {resize.height}",
        "longer": f"the longer side to {resize.height}",
        "fit": f"to fit into {size}",
        "shrink": f"to fit into {size}, never enlarging",
    }[resize.rule]
    antialias = ", antialiased" if resize.antialias and resize.filter != "nearest" else ""
    exact = "exactly Pillow's levels" if resize.exact or resize.filter == "nearest" else "within one level of Pillow"
    return f"resize {to} ({resize.filter}{antialias}; {exact})"


def _example(geometry: Geometry, height: int, width: int) -> Iterator[str]:
    try:
        placement = geometry.place(height, width)
    except ImageError as error:
        yield f"e.g. an image of {height} x {width} is refused: {error}"
        return
    top, left, bottom, right = placement.source
    cut = "" if (bottom - top, right - left) == (height, width) else f"rows {top}..{bottom}, columns {left}..{right} "
    to = f"{cut}to {placement.resized[0]} x {placement.resized[1]}"
    top, left, bottom, right = placement.region
    only = "all of it"
    if (bottom - top, right - left) != placement.resized:
        only = f"of which only rows {top}..{bottom}, columns {left}..{right} are computed"
    yield f"e.g. {height} x {width}: {to}, {only}"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
