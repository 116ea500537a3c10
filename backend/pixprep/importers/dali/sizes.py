"""Computes the sizes of images before and after the ops of a graph.

Numbers that depend on the size of an image are not handled symbolically. Instead, they are computed for each size in
``SIZES``, with the same types and operations as in DALI. ``rules`` then searches for an op that results in the same
numbers for all sizes. The formulas for a resize of many sizes at once are those of ``plan.geometry_steps.Resize.size``.
A test compares the results of both implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline import ops
from pixprep.plan.geometry_steps import Resize
from pixprep.plan.lowered import Lowered
from pixprep.spec import DALIS, ImageSpec, SideRounding

Rows = npt.NDArray[np.float64]
MAX_RATIO = 60
"""A resize op is compared with the DALI graph for image sizes up to this aspect ratio."""
LARGEST = 4096
"""A resize op is compared with the DALI graph for images up to this height and width."""
_HEIGHTS_PER_ARRAY = 64
UNKNOWN = -(1 << 40)
"""Placeholder for an unknown number, such as the size after an op that rejects the image."""


def _sizes() -> npt.NDArray[np.int64]:
    """Return the (height, width) of images to test, as an array with shape (n, 2).

    The array contains combinations of common lengths, followed by random, narrow, small and large sizes.
    """
    common = (16, 31, 32, 99, 100, 224, 225, 333, 375, 427, 480, 500, 639, 640, 641, 720, 960, 1080, 1280, 1281)
    pairs = [(height, width) for height in (*common, 1920, 2560, 3024, 4032) for width in (*common, 1920, 2560, 4032)]
    rng = np.random.default_rng(0)
    random = np.exp(rng.uniform(np.log(16), np.log(5000), (3600, 2))).astype(np.int64)
    side, ratio = np.exp(rng.uniform([0, np.log(16)], np.log([84, 60]), (300, 2))).T
    narrow = np.stack([side, side * ratio], axis=1).astype(np.int64)
    small = [(height, width) for height in range(1, 16) for width in range(1, 16)]
    large = np.exp(rng.uniform(np.log([5000, 90]), np.log(ops.MAX_SIDE), (150, 2))).astype(np.int64)
    groups = (np.array(pairs), random, narrow, narrow[:, ::-1], np.array(small), large, large[:, ::-1])
    sizes: npt.NDArray[np.int64] = np.concatenate(groups)
    return sizes.compress(sizes.max(1) <= MAX_RATIO * sizes.min(1), axis=0)


SIZES = _sizes()
"""Image sizes for which numbers are computed. Their sides have 1 to ``MAX_SIDE`` pixels, and aspect ratios up to 60."""
_CURRENT_SIZES: ContextVar[npt.NDArray[np.int64]] = ContextVar("_CURRENT_SIZES", default=SIZES)


@contextmanager
def using_sizes(sizes: npt.NDArray[np.int64]) -> Iterator[None]:
    """Compute numbers for these image sizes, an array with shape (n, 2), instead of ``SIZES``."""
    token = _CURRENT_SIZES.set(sizes)
    try:
        yield
    finally:
        _CURRENT_SIZES.reset(token)


def current_sizes() -> npt.NDArray[np.int64]:
    """Return the image sizes for which numbers are computed: ``SIZES``, or those that ``using_sizes`` sets."""
    return _CURRENT_SIZES.get()


@lru_cache(maxsize=64)
def lowered(chain: tuple[ops.Op, ...]) -> tuple[Lowered, ImageSpec]:
    """Lower some ops, beginning with ``decode``, and return the result with the spec of the image after them.

    Raises:
        PipelineError: The ops cannot follow each other.
    """
    first = cast("ops.FirstOp", chain[0])
    before, spec = first.lower(), first.infer()
    for op in chain[1:]:
        assert isinstance(op, ops.ImageOp)
        after = op.infer(spec)
        before, spec = op.lower(before, spec, ""), after
    return before, spec


@lru_cache(maxsize=64)
def sizes_after(chain: tuple[ops.Op, ...], every: int = 1) -> npt.NDArray[np.int64]:
    """Return the image sizes after some ops for each of ``SIZES``, as an array with shape (n, 2).

    Args:
        chain: Ops, beginning with ``decode``.
        every: Stride of the sizes to compute. All others are ``UNKNOWN``, as are the sizes of rejected images.
    """
    before, spec = lowered(chain)
    geometry = before.geometry
    if geometry.takes_inputs and None in (spec.height, spec.width):
        raise PipelineError("uses an image size that is an input of the request, which is not supported")
    if len(chain) == 1 and every == 1:
        return SIZES
    step = before.resize
    if every == 1 and step is not None and isinstance(chain[-1], ops.Resize) and is_array_rule(step):
        input_sizes = sizes_after(chain[:-1])
        is_known = (input_sizes > 0).all(1)
        output_sizes = sizes(step, np.maximum(input_sizes, 1).astype(np.float64)).astype(np.int64)
        return np.where((is_known & (output_sizes <= ops.MAX_SIDE).all(1))[:, None], output_sizes, UNKNOWN)
    found = np.full((len(SIZES), 2), UNKNOWN)
    for index in range(0, len(SIZES), every):
        with suppress(ImageError):
            found[index] = geometry.place(*SIZES[index].tolist()).size
    return found


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
