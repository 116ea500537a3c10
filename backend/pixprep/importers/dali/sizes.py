"""Sizes after a resize for many images at once, and the check of a rule at every size up to ``LARGEST``.

The arrays use the formulas of ``plan.geometry_steps.Resize.size``; the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from pixprep.plan.geometry_steps import Resize
from pixprep.spec import DALIS, SideRounding

Rows = npt.NDArray[np.float64]
LARGEST = 4096
"""Maximum number of pixels of a side at which each rule is checked."""
_CHUNK = 64
MAX_RATIO = 60
"""Maximum ratio of the sides of the images at which a rule is checked."""

_ROUND: dict[SideRounding, Callable[[Rows], Rows]] = {
    "down": np.floor,
    "half_even": np.rint,
    "up": np.ceil,
    **dict.fromkeys(DALIS, lambda side: np.floor(side + 0.5)),
}


def is_array_rule(step: Resize) -> bool:
    """Return whether ``sizes`` and ``sides`` support a resize."""
    return (
        step.rounding in _ROUND
        and step.rule in ("both", "shorter", "longer", "height", "width", "fit", "cover")
        and (step.drawn, step.roi, step.up_to) == (None, None, None)
    )


def every_size() -> Iterator[npt.NDArray[np.int64]]:
    """Yield all sizes up to ``LARGEST``, in arrays (n, 2) of several rows each.

    Some are narrower than ``MAX_RATIO``.
    """
    every = np.arange(1, LARGEST + 1)
    for first in range(1, LARGEST + 1, _CHUNK):
        heights = np.arange(first, min(first + _CHUNK, LARGEST + 1))
        columns = every[(every >= heights[0] // MAX_RATIO) & (every <= heights[-1] * MAX_RATIO)]
        yield np.stack([np.repeat(heights, len(columns)), np.tile(columns, len(heights))]).T


def sizes(step: Resize, before: Rows) -> Rows:
    """Return the (height, width) after a resize of images of these sizes, (n, 2)."""
    made: list[Rows] = []
    for side, after in zip(("height", "width"), sides(step, before).T, strict=True):
        factor = 1 if step.rule == side else step.multiple
        made.append(np.asarray(np.maximum(_ROUND[step.rounding](after / factor), 1) * factor))
    return np.stack(made).T


def sides(step: Resize, before: Rows) -> Rows:
    """Return the height and width before they are rounded."""
    height, width = before.T
    if step.rule == "both":
        return np.broadcast_to(np.array([step.height, step.width], np.float64), before.shape)
    if step.scales is not None and (step.rounding != "half_away" or step.most is None or step.multiple > 1):
        return _by_one_scale(step, height, width)
    ratios = height / step.height, width / step.width
    is_row = ratios[0] >= ratios[1] if step.rule in ("longer", "fit") else ratios[0] <= ratios[1]
    if step.rule in ("height", "width"):
        is_row = np.full(len(before), step.rule == "height")
    size = np.where(is_row, float(step.height), float(step.width))
    named, follows = _named(step, size, np.where(is_row, height, width), np.where(is_row, width, height))
    found = np.where(is_row, named, follows), np.where(is_row, follows, named)
    if step.rounding in DALIS and step.rule not in ("height", "width"):
        is_given = _single(step.height / height) == _single(step.width / width)
        found = np.where(is_given, step.height, found[0]), np.where(is_given, step.width, found[1])
    return np.stack(found).T if step.scales is None else _by_one_scale(step, height, width, found)


def _by_one_scale(step: Resize, height: Rows, width: Rows, others: tuple[Rows, Rows] | None = None) -> Rows:
    """Return sides with a common scale. ``others``: sides of the rule, which DALI's own ``max_size`` needs."""
    longest = np.maximum(height, width)
    assert step.scales is not None
    scale = step.height / (np.minimum(height, width) if step.rule == "shorter" else longest)
    if not all(step.scales):
        scale = np.minimum(scale, 1.0) if step.scales[0] else np.maximum(scale, 1.0)
    if step.most is not None and step.multiple == 1 and step.rounding not in DALIS:
        limited = np.minimum(scale, step.most / longest)
        is_kept = _ROUND[step.rounding](longest * scale) <= step.most
        scale = np.where(is_kept, scale, limited) if step.subpixel else limited
    made = [_times(step, side, scale) for side in (height, width)]
    if step.multiple > 1:
        made = [np.floor(side) for side in made]
        if step.most is not None:
            most = np.maximum(made[0], made[1])
            over = step.most / np.maximum(most, 1)
            made = [np.where(most > step.most, np.floor(_times(step, side, over)), side) for side in made]
    elif step.rounding in DALIS and step.most is not None:
        limit = step.most / longest
        if step.rounding == "half_away32":
            limit = _single(limit)
        elif others is not None:
            made = [np.where(scale == 1, side, other) for side, other in zip((height, width), others, strict=True)]
        is_limited = limit < _single(scale)
        limited_sides = (_single(side * limit) for side in (height, width))
        made = [np.where(is_limited, limited, side) for limited, side in zip(limited_sides, made, strict=True)]
    return np.stack(made).T


def _named(step: Resize, size: Rows, side: Rows, length: Rows) -> tuple[Rows, Rows]:
    """Return the side that the rule names, and the dependent side.

    The dependent side is ``length``, scaled as ``side`` is scaled to ``size``.
    """
    if step.rule in ("fit", "cover") and step.rounding == "half_even":
        follows = length / (side / size)
    elif step.rule in ("height", "width") and step.rounding not in DALIS:
        follows = size * (length / side) if step.rounding == "up" else length * (size / side)
    elif step.rounding in DALIS:
        follows = _single(length * _single(size / side))
    else:
        follows = size * length / side
    if step.most is None:
        return size, follows
    if step.rule != "shorter":
        return size, np.minimum(follows, step.most)
    whole = _ROUND[step.rounding](follows)
    is_over = whole > step.most
    return np.where(is_over, step.most * size / np.maximum(whole, 1), size), np.where(is_over, step.most, follows)


def _times(step: Resize, side: Rows, scale: Rows) -> Rows:
    """Return a side multiplied by a scale, in float32 for DALI."""
    return _single(side * _single(scale)) if step.rounding in DALIS else np.asarray(side * scale)


def _single(values: Rows) -> Rows:
    single: Rows = values.astype(np.float32).astype(np.float64)
    return single
