"""Warnings about valid but suspicious pipelines: unusual value ranges, padding by a crop, sides that differ."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops import CenterCrop, Letterbox, Normalize, Op, Pad, changed
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.walk import Output
from pixprep.plan.output_plans import OutputPlan, TensorPlan

_NARROWEST, _FARTHEST = 0.5, 20.0
_LEVELS = (254.0, 256.0)
"""Width of values of 0 to 255, whatever was subtracted from them."""
_SCALES = ((1.0, "1"), (1 / 255, "1/255, the default"))
_PHOTOS = ((480, 640), (640, 480), (3000, 4000), (4000, 3000))
"""(height, width) of common photos."""


def odd_ranges(pipeline: Pipeline) -> list[str]:
    """Warn about each tensor whose values are outside the usual ranges: the op, the reason, and a suggestion.

    The usual ranges are 0 to 1, -1 to 1, about -2 to 3, and 0 to 255 minus a mean. A channel is unusual if its values

    - span less than 0.5: a mean for values of 0 to 255 was subtracted from values of 0 to 1;
    - exceed -20 or 20, unless they span 255 without a mean or with a mean for values of 0 to 255: a mean or std for
      values of 0 to 1 was applied to values of 0 to 255;
    - are farther from 0 than from each other.
    """
    return [text for output in pipeline.outputs.values() if (text := _odd_range(pipeline, output))]


def _odd_range(pipeline: Pipeline, output: Output) -> str:
    places = [index for index, op in enumerate(pipeline.ops) if isinstance(op, Normalize) and op in output.chain]
    plan = pipeline.plan.outputs[output.name]
    if not places or not isinstance(plan, TensorPlan) or plan.calls:  # an operator may give it any values
        return ""
    why = _why_odd(extremes(pipeline, output.name))
    if not why:
        return ""
    place, name, low, high = places[-1], output.name, output.spec.low, output.spec.high
    op = pipeline.ops[place]
    remedy = "compare its mean, std and scale with those of the training"
    for scale, text in reversed(_SCALES):
        if _ends_otherwise(pipeline, place, name, changed(op, scale=scale)) is not None:
            remedy = f'did you mean "scale": {text}?'
    without = _ends_otherwise(pipeline, place, name) if len(places) > 1 else None
    if without is not None and np.ptp(without, axis=1).max() < _LEVELS[0]:  # and are no levels
        remedy = f"ops[{places[-2]}] normalizes already: take this one out"
    return f'ops[{place}] "normalize": the values of "{name}" would be {low:.4g} to {high:.4g}, {why}: {remedy}'


def extremes(pipeline: Pipeline, name: str) -> npt.NDArray[np.float64]:
    """(channels, 2): the lowest and highest value of each channel."""
    plan = pipeline.plan.outputs[name]
    assert isinstance(plan, TensorPlan)
    levels = np.tile(np.array([0, 255], np.float32), (len(plan.channels), 1))
    return np.sort(plan.values(levels).astype(np.float64), axis=1)


def _why_odd(ends: npt.NDArray[np.float64]) -> str:
    """Words for the first channel that is odd; empty if none is."""
    for low, high in ends:
        apart = high - low
        if apart < _NARROWEST:
            return f"within {apart:.2g} of each other"
        is_levels = _LEVELS[0] <= apart <= _LEVELS[1]
        if is_levels and -1 <= low < 0:
            return f"levels less a mean of {-low:.3g}"
        if not is_levels and max(-low, high) > _FARTHEST:
            return "which is neither levels of 0 to 255 nor normalized"
        if max(low, -high) > apart:
            return "far from 0"
    return ""


def _ends_otherwise(pipeline: Pipeline, index: int, name: str, *others: Op) -> npt.NDArray[np.float64] | None:
    """``extremes`` with other ops in the place of one, where they are usual ones; None where they are odd, or none."""
    ops = pipeline.ops
    try:
        ends = extremes(Pipeline([*ops[:index], *others, *ops[index + 1 :]], operators=pipeline.operators), name)
    except PipelineError:
        return None
    return None if _why_odd(ends) else ends


def unlike_sides(pipeline: Pipeline) -> list[str]:
    """Warn about each tensor that training and serving resize differently."""
    if not pipeline.has_sides or len(pipeline.sides) < 2:
        return []
    training = pipeline.for_training().plan.outputs
    return [
        f'"{name}": training resizes with {ours}, and serving with {theirs}: other pixels'
        for name, output in pipeline.for_serving().plan.outputs.items()
        if isinstance(output, TensorPlan)
        and (ours := _way(training[name])) != (theirs := _way(output))
        and ours
        and theirs
    ]


def _way(plan: OutputPlan) -> str:
    """Describe the resize of a tensor; empty if it is not resized."""
    resize = plan.geometry.resize if isinstance(plan, TensorPlan) else None
    if resize is None:
        return ""
    return f'"like": "{resize.like}", "filter": "{resize.filter}", "antialias": {str(resize.antialias).lower()}'


def black_margins(pipeline: Pipeline) -> list[str]:
    """Warn about each tensor whose ``center_crop`` exceeds the resized size of a common photo, and is padded."""
    return [text for output in pipeline.outputs.values() if (text := _margins(pipeline, output))]


def _margins(pipeline: Pipeline, output: Output) -> str:
    plan = pipeline.plan.outputs[output.name]
    is_meant = any(isinstance(op, Pad | Letterbox) for op in output.chain)
    crops = [index for index, op in enumerate(pipeline.ops) if isinstance(op, CenterCrop) and op in output.chain]
    if not isinstance(plan, TensorPlan) or is_meant or not crops:
        return ""
    for photo, shown in _shown(plan):
        height, width = plan.geometry.place(*photo).canvas
        if shown[0] < height or shown[1] < width:
            return (
                f'ops[{crops[-1]}] "center_crop": of a photo of {photo[0]} x {photo[1]} pixels, "{output.name}" shows '
                f"{shown[0]} x {shown[1]} in black margins up to {height} x {width}: resize to more, or crop less"
            )
    return ""


def _shown(plan: TensorPlan) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Sizes of photos, and the height and width that show any of them."""
    for photo in _PHOTOS:
        try:
            top, left, bottom, right = plan.geometry.place(*photo).region
        except ImageError:
            continue
        yield photo, (bottom - top, right - left)
