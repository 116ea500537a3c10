"""Computes the output sizes of a resize op for many image sizes at once with NumPy.

The formulas are those of ``plan.geometry_steps.Resize.size``. A test compares the results of both implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from pixprep.plan.geometry_steps import Resize
from pixprep.spec import DALIS, SideRounding

Rows = npt.NDArray[np.float64]
LARGEST = 4096
"""Maximum height and width of the images for which a resize op is compared with a graph."""
_HEIGHTS_PER_ARRAY = 64
MAX_RATIO = 60
"""Maximum aspect ratio of the images for which a resize op is compared with a graph."""

_ROUNDING: dict[SideRounding, Callable[[Rows], Rows]] = {
    "down": np.floor,
    "half_even": np.rint,
    "up": np.ceil,
    **dict.fromkeys(DALIS, lambda side: np.floor(side + 0.5)),
}


def is_array_rule(step: Resize) -> bool:
    """Return whether ``sizes`` and ``sides`` support a resize step."""
    return (
        step.rounding in _ROUNDING
        and step.rule in ("both", "shorter", "longer", "height", "width", "fit", "cover")
        and (step.drawn, step.roi, step.up_to) == (None, None, None)
    )


def every_size() -> Iterator[npt.NDArray[np.int64]]:
    """Yield all image sizes up to ``LARGEST``, in several arrays of (height, width) with shape (n, 2).

    Sizes whose aspect ratio is much larger than ``MAX_RATIO`` are omitted.
    """
    every = np.arange(1, LARGEST + 1)
    for first in range(1, LARGEST + 1, _HEIGHTS_PER_ARRAY):
        heights = np.arange(first, min(first + _HEIGHTS_PER_ARRAY, LARGEST + 1))
        columns = every[(every >= heights[0] // MAX_RATIO) & (every <= heights[-1] * MAX_RATIO)]
        yield np.stack([np.repeat(heights, len(columns)), np.tile(columns, len(heights))]).T


def sizes(step: Resize, before: Rows) -> Rows:
    """Return the (height, width) of images after a resize.

    Args:
        step: Resize step.
        before: (height, width) of the images before the resize, as an array with shape (n, 2).

    Returns:
        (height, width) of the images after the resize, as an array with shape (n, 2).
    """
    rounded: list[Rows] = []
    for side, after in zip(("height", "width"), sides(step, before).T, strict=True):
        factor = 1 if step.rule == side else step.multiple
        rounded.append(np.asarray(np.maximum(_ROUNDING[step.rounding](after / factor), 1) * factor))
    return np.stack(rounded).T


def sides(step: Resize, before: Rows) -> Rows:
    """Return the same heights and widths as ``sizes``, but before they are rounded."""
    height, width = before.T
    if step.rule == "both":
        return np.broadcast_to(np.array([step.height, step.width], np.float64), before.shape)
    if step.scales is not None and (step.rounding != "half_away" or step.most is None or step.multiple > 1):
        return _with_common_scale(step, height, width)
    ratios = height / step.height, width / step.width
    height_given = ratios[0] >= ratios[1] if step.rule in ("longer", "fit") else ratios[0] <= ratios[1]
    if step.rule in ("height", "width"):
        height_given = np.full(len(before), step.rule == "height")
    size = np.where(height_given, float(step.height), float(step.width))
    given, dependent = _given_and_dependent(
        step, size, np.where(height_given, height, width), np.where(height_given, width, height)
    )
    result = np.where(height_given, given, dependent), np.where(height_given, dependent, given)
    if step.rounding in DALIS and step.rule not in ("height", "width"):
        both_given = _as_float32(step.height / height) == _as_float32(step.width / width)
        result = np.where(both_given, step.height, result[0]), np.where(both_given, step.width, result[1])
    return np.stack(result).T if step.scales is None else _with_common_scale(step, height, width, result)


def _with_common_scale(step: Resize, height: Rows, width: Rows, without_limit: tuple[Rows, Rows] | None = None) -> Rows:
    """Return height and width, both multiplied by the same scale and not yet rounded.

    Args:
        step: Resize step with ``mode="scale"``.
        height: Heights before the resize.
        width: Widths before the resize.
        without_limit: Height and width without ``max_size``, if the step has DALI's ``max_size``.
    """
    longest = np.maximum(height, width)
    assert step.scales is not None
    scale = step.height / (np.minimum(height, width) if step.rule == "shorter" else longest)
    if not all(step.scales):
        scale = np.minimum(scale, 1.0) if step.scales[0] else np.maximum(scale, 1.0)
    if step.most is not None and step.multiple == 1 and step.rounding not in DALIS:
        limited = np.minimum(scale, step.most / longest)
        is_kept = _ROUNDING[step.rounding](longest * scale) <= step.most
        scale = np.where(is_kept, scale, limited) if step.subpixel else limited
    scaled = [_scale(step, side, scale) for side in (height, width)]
    if step.multiple > 1:
        scaled = [np.floor(side) for side in scaled]
        if step.most is not None:
            longer = np.maximum(scaled[0], scaled[1])
            factor = step.most / np.maximum(longer, 1)
            scaled = [np.where(longer > step.most, np.floor(_scale(step, side, factor)), side) for side in scaled]
    elif step.rounding in DALIS and step.most is not None:
        limit = step.most / longest
        if step.rounding == "half_away32":
            limit = _as_float32(limit)
        elif without_limit is not None:
            pairs = zip((height, width), without_limit, strict=True)
            scaled = [np.where(scale == 1, side, result) for side, result in pairs]
        is_limited = limit < _as_float32(scale)
        limited_sides = (_as_float32(side * limit) for side in (height, width))
        scaled = [np.where(is_limited, limited, side) for limited, side in zip(limited_sides, scaled, strict=True)]
    return np.stack(scaled).T


def _given_and_dependent(step: Resize, size: Rows, side: Rows, length: Rows) -> tuple[Rows, Rows]:
    """Return the given side of the result, and the side that is computed from the aspect ratio.

    Args:
        step: Resize step.
        size: Given lengths after the resize.
        side: Lengths of the same side before the resize.
        length: Lengths of the other side before the resize.
    """
    if step.rule in ("fit", "cover") and step.rounding == "half_even":
        dependent = length / (side / size)
    elif step.rule in ("height", "width") and step.rounding not in DALIS:
        dependent = size * (length / side) if step.rounding == "up" else length * (size / side)
    elif step.rounding in DALIS:
        dependent = _as_float32(length * _as_float32(size / side))
    else:
        dependent = size * length / side
    if step.most is None:
        return size, dependent
    if step.rule != "shorter":
        return size, np.minimum(dependent, step.most)
    rounded = _ROUNDING[step.rounding](dependent)
    is_over = rounded > step.most
    return np.where(is_over, step.most * size / np.maximum(rounded, 1), size), np.where(is_over, step.most, dependent)


def _scale(step: Resize, side: Rows, scale: Rows) -> Rows:
    """Multiply lengths by a scale, in float32 if the rounding is DALI's."""
    return _as_float32(side * _as_float32(scale)) if step.rounding in DALIS else np.asarray(side * scale)


def _as_float32(values: Rows) -> Rows:
    """Round numbers to float32, and return them as float64."""
    rounded: Rows = values.astype(np.float32).astype(np.float64)
    return rounded
