"""Warns about pipelines that are valid but suspicious.

The warnings concern unusual ranges of values, padding that a crop adds, and resize filters that differ between training
and serving.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops import CenterCrop, Letterbox, Normalize, Op, Pad, changed
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.walk import Output
from pixprep.plan.output_plans import TensorPlan

_MIN_WIDTH, _MAX_VALUE = 0.5, 20.0
"""Minimum width of a usual range, and maximum absolute value in a usual range."""
_PIXEL_WIDTH = (254.0, 256.0)
"""Minimum and maximum width of a range that counts as pixel values 0 to 255, with or without a subtracted mean."""
_SCALES = ((1.0, "1"), (1 / 255, "1/255, the default"))
_PHOTOS = ((480, 640), (640, 480), (3000, 4000), (4000, 3000))
"""Common sizes of photos, (height, width)."""


def odd_ranges(pipeline: Pipeline) -> list[str]:
    """Return a warning for each tensor whose values have an unusual range: the op, the reason, and a suggested fix.

    The usual ranges are 0 to 1, -1 to 1, about -2 to 3, and 0 to 255 minus a mean. A range is unusual if

    - the width of the range is less than 0.5. A likely reason is that a mean and std for values of 0 to 255 were
      applied to values of 0 to 1;
    - the range exceeds -20 to 20. A likely reason is that a mean or std for values of 0 to 1 was applied to values of 0
      to 255. Ranges of width 255 are allowed, unless the subtracted mean is between 0 and 1;
    - the distance of the range from 0 is greater than the width of the range.
    """
    return [text for output in pipeline.outputs.values() if (text := _range_warning(pipeline, output))]


def _range_warning(pipeline: Pipeline, output: Output) -> str:
    """Return the warning about the range of a tensor, or an empty string if the range is usual."""
    places = [index for index, op in enumerate(pipeline.ops) if isinstance(op, Normalize) and op in output.chain]
    plan = pipeline.plan.tensors.get(output.name)
    if not places or plan is None or plan.calls:  # a custom operator may return any values
        return ""
    reason = _problem(extremes(pipeline, output.name))
    if not reason:
        return ""
    place, name, low, high = places[-1], output.name, output.spec.low, output.spec.high
    op = pipeline.ops[place]
    fix = "compare mean, std and scale with those of the training"
    for scale, text in reversed(_SCALES):
        if _usual_range(pipeline, place, name, changed(op, scale=scale)) is not None:
            fix = f'did you mean "scale": {text}?'
    without = _usual_range(pipeline, place, name) if len(places) > 1 else None
    if without is not None and np.ptp(without, axis=1).max() < _PIXEL_WIDTH[0]:  # still normalized
        fix = f"ops[{places[-2]}] already normalizes: remove this op"
    return f'ops[{place}] "normalize": the values of "{name}" range from {low:.4g} to {high:.4g} ({reason}): {fix}'


def extremes(pipeline: Pipeline, name: str) -> npt.NDArray[np.float64]:
    """Return the minimum and the maximum value of each channel of a tensor, as an array (channels, 2)."""
    plan = pipeline.plan.tensors[name]
    pixels = np.tile(np.array([0, 255], np.float32), (len(plan.channels), 1))
    if plan.resized_values is not None:
        pixels = plan.resized_values[list(plan.channels)][:, [0, 255]]
    return np.sort(plan.values(pixels).astype(np.float64), axis=1)


def _problem(ranges: npt.NDArray[np.float64]) -> str:
    """Describe the problem with the first unusual range, or return an empty string if all ranges are usual.

    Args:
        ranges: Minimum and maximum value of each channel, (channels, 2).
    """
    for low, high in ranges:
        width = high - low
        if width < _MIN_WIDTH:
            return f"a range of only {width:.2g}"
        is_unscaled = _PIXEL_WIDTH[0] <= width <= _PIXEL_WIDTH[1]
        if is_unscaled and -1 <= low < 0:
            return f"pixel values of 0 to 255 minus a mean of {-low:.3g}"
        if not is_unscaled and max(-low, high) > _MAX_VALUE:
            return "neither pixel values of 0 to 255 nor normalized values"
        if max(low, -high) > width:
            return "far from 0"
    return ""


def _usual_range(pipeline: Pipeline, index: int, name: str, *others: Op) -> npt.NDArray[np.float64] | None:
    """Replace the op at ``index`` by other ops, and return the ``extremes`` of the resulting output.

    Returns:
        None if the resulting pipeline is invalid, or the range of the output is unusual.
    """
    ops = pipeline.ops
    try:
        ranges = extremes(Pipeline([*ops[:index], *others, *ops[index + 1 :]], operators=pipeline.operators), name)
    except PipelineError:
        return None
    return None if _problem(ranges) else ranges


def unlike_sides(pipeline: Pipeline) -> list[str]:
    """Return a warning for each tensor that training and serving resize with different filters."""
    if not pipeline.has_sides or len(pipeline.sides) < 2:
        return []
    training = pipeline.for_training().plan.tensors
    return [
        f'"{name}": training resizes with {ours}, but serving with {theirs}: the pixels differ'
        for name, plan in pipeline.for_serving().plan.tensors.items()
        if (ours := _filter(training[name])) != (theirs := _filter(plan)) and ours and theirs
    ]


def _filter(plan: TensorPlan) -> str:
    """Return the fields that define a tensor's resize filter, or an empty string if the tensor is not resized."""
    resize = plan.geometry.resize
    if resize is None:
        return ""
    return f'"like": "{resize.like}", "filter": "{resize.filter}", "antialias": {str(resize.antialias).lower()}'


def black_margins(pipeline: Pipeline) -> list[str]:
    """Return a warning for each tensor with black padding, which a crop adds to smaller photos."""
    return [text for output in pipeline.outputs.values() if (text := _padding_warning(pipeline, output))]


def _padding_warning(pipeline: Pipeline, output: Output) -> str:
    """Return a warning with the first common photo size that is padded, or an empty string if no size is padded."""
    plan = pipeline.plan.tensors.get(output.name)
    is_intended = any(isinstance(op, Pad | Letterbox) for op in output.chain)
    crops = [index for index, op in enumerate(pipeline.ops) if isinstance(op, CenterCrop) and op in output.chain]
    if plan is None or is_intended or not crops:
        return ""
    for photo, content in _content_sizes(plan):
        height, width = plan.geometry.place(*photo).canvas
        if content[0] < height or content[1] < width:
            return (
                f'ops[{crops[-1]}] "center_crop": a photo of {photo[0]} x {photo[1]} fills only {content[0]} x '
                f'{content[1]} pixels of "{output.name}", and the rest of its {height} x {width} pixels is black: '
                "increase the size of the resize, or decrease the size of the crop"
            )
    return ""


def _content_sizes(plan: TensorPlan) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield each common size of a photo, and the size of the part of the tensor that such a photo fills."""
    for photo in _PHOTOS:
        try:
            top, left, bottom, right = plan.geometry.place(*photo).region
        except ImageError:
            continue
        yield photo, (bottom - top, right - left)
