"""Finds ops that compute the same numbers as the arithmetic of a DALI graph.

A graph can compute the size of a resize, the window of a crop, or an output from the size of an image. This module
tries candidate ops until one computes the same numbers as the graph for all image sizes in ``sizes.SIZES``. A resize
that is not preceded by other geometric ops is also compared for all sizes up to ``sizes.LARGEST``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError
from pixprep.importers.dali.sizes import (
    MAX_RATIO,
    SIZES,
    UNKNOWN,
    Rows,
    every_size,
    is_array_rule,
    lowered,
    sizes_after,
)
from pixprep.importers.dali.sizes import sides as resized_sides
from pixprep.importers.dali.sizes import sizes as resized
from pixprep.importers.dali.values import Canvas, Image, Numbers, ResizedError, size_of
from pixprep.pipeline import ops
from pixprep.pipeline.ops import MAX_SIDE, Anchor, Levels, Op
from pixprep.plan.geometry_steps import Window
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import NumbersPlan
from pixprep.spec import ImageSpec, Rounding, SideRounding, SizeOrder, TensorSpec

_ROUNDINGS: tuple[SideRounding, ...] = ("half_away", "down", "half_even", "up")
_STRIDE = 128
"""Stride of the subset of ``SIZES`` that is compared first."""
MAX_OPS = 32
"""Maximum number of ops before an output that is inserted into the ops of an image."""
_WINDOW_ROUNDINGS: tuple[Rounding, ...] = ("half_away", "down")
_SIZE_OUTPUTS = tuple(kind(order=order) for kind in (ops.OriginalSize, ops.ImageSize) for order in get_args(SizeOrder))
_SCALE_OUTPUTS = (ops.ScaleFactor(), ops.ScaleFactor(order="xy"), ops.Transform())


def resize_rule(
    image: Image,
    computed: Rows,
    how: dict[str, Any],
    recompute: Callable[[npt.NDArray[np.int64]], Rows | None] | None = None,
) -> ops.Resize:
    """Find the resize op that results in the sizes that a graph computes.

    Args:
        image: Image before the resize.
        computed: Height and width after the resize for each of ``SIZES``, as an array with shape (n, 2).
        how: Fields of the op other than its size.
        recompute: Function that computes the height and width for other image sizes. None if a preceding op changes
            the size of the image.

    Raises:
        PipelineError: No resize op results in these sizes.
    """
    before = size_of(image).rows
    known = (before > 0).all(1)
    if not known.any():
        raise PipelineError("the preceding operators reject images of every size")
    if (zero := known & (computed <= 0).any(1)).any():
        raise PipelineError(
            "its height or width is 0 for some images, and DALI then computes it from the other side, which is not "
            f"supported: use math.max(1.0, ...); for example, {_example(before[zero], computed[zero])}"
        )
    known &= (computed <= MAX_SIDE).all(1)  # narrow images can become larger
    sides = computed[known]
    is_integer = bool((sides == np.floor(sides)).all())
    expected = computed if is_integer else np.maximum(np.floor(computed + 0.5), 1)
    inexact: list[ops.Resize] = []
    differences: list[str] = []
    for fields in _candidates(sides, is_integer=is_integer):
        subpixel = None if {"multiple", "stretch"} & {*fields.values(), *fields} else how["subpixel"] and not is_integer
        op = ops.Resize(**{**how, "subpixel": subpixel, **fields})
        chain = image.then(op).chain
        step = lowered(chain)[0].resize
        if step and is_array_rule(step):
            if (resized(step, before[known]) - expected[known]).any():
                continue
            values = resized_sides(step, before[known])
        elif all(not (sizes_after(chain, n) - expected)[::n][known[::n]].any() for n in (_STRIDE, 1)):
            values = np.array([step.sides(*size) for size in before[known].tolist()]) if step else expected[known]
        else:
            continue
        if not is_integer and (values.astype(np.float32) - sides).any():
            inexact.append(op)
            continue
        if (difference := _difference(op, recompute, is_integer=is_integer)) is None:
            return op
        differences.append(difference)
    for op in inexact:
        if (difference := _difference(op, recompute, is_integer=is_integer)) is None:
            return op
        differences.append(difference)
    example = differences[0] if differences else _example(before[known], sides)
    raise PipelineError(f"its size is computed in a way that the op resize does not support; for example, {example}")


def _difference(
    op: ops.Resize, recompute: Callable[[npt.NDArray[np.int64]], Rows | None] | None, *, is_integer: bool
) -> str | None:
    """Compare an op with a graph for all image sizes up to ``LARGEST``.

    Returns:
        A size for which the results differ, as a text for an error message. None if they do not differ, or cannot be
        compared.
    """
    step = op._step  # noqa: SLF001  (the step before inputs of the request replace its numbers)
    if recompute is None or not is_array_rule(step):
        return None
    for before in every_size():
        try:
            computed = recompute(before)
        except ResizedError:
            return None
        assert computed is not None
        expected = computed if is_integer else np.maximum(np.floor(computed + 0.5), 1)
        after = resized(step, before.astype(np.float64))
        differs = ((after[:, 0] != expected[:, 0]) | (after[:, 1] != expected[:, 1])) & (computed.max(1) <= MAX_SIDE)
        differs &= before.max(1) <= MAX_RATIO * before.min(1)
        if differs.any():
            return _example(before[differs], computed[differs])
    return None


def _candidates(sides: Rows, *, is_integer: bool) -> Iterator[dict[str, Any]]:
    """Yield the fields of resize ops that may result in these sizes, beginning with the simplest op.

    Args:
        sides: Height and width after the resize, as an array with shape (n, 2).
        is_integer: Whether all heights and widths are integers.
    """
    high, low = (np.maximum(limits, 1).astype(int).tolist() for limits in (sides.max(0), sides.min(0)))
    if high == low:
        yield {"height": high[0], "width": high[1], "mode": "stretch"}
        return
    box = high
    for side, highest, lowest in zip(("height", "width"), high, low, strict=True):
        if highest == lowest:  # the maximum of the other side depends only on which sizes are tried
            box = [length if length == highest else MAX_SIDE for length in high]
            for rounding in _ROUNDINGS:
                yield {side: highest, "rounding": rounding}
    for (height, width), mode in ((box, "fit"), (low, "cover")):
        for rounding in _ROUNDINGS:
            yield {"height": height, "width": width, "mode": mode, "rounding": rounding}
    multiple = int(np.gcd.reduce(sides.astype(int).ravel())) if is_integer else 1
    multiples = {"multiple": multiple} if multiple > 1 else {}
    for size, side in ((min(low), "shorter"), (max(high), "longer")) if multiples else ():
        for rounding in _ROUNDINGS:
            yield {"size": size, "side": side, "rounding": rounding, **multiples}
    for side, lengths in (("longer", sides.max(1)), ("shorter", sides.min(1))):
        found, counts = np.unique(lengths, return_counts=True)
        common, distance = round(float(found[np.argmax(counts)])), min(multiple // 2, 32)  # the most frequent length
        nearby = sorted(range(common - distance, common + distance + 1), key=lambda size: abs(size - common))
        for size, scales, limit in product(nearby, ({"enlarge": False}, {"shrink": False}, {}), (None, max(high))):
            if size > 0 and (limit is None or (limit > size and (side == "shorter" or "shrink" in scales))):
                for rounding in _ROUNDINGS if limit is None or multiples else (*_ROUNDINGS, "half_away32"):
                    fields = {"size": size, "side": side, "mode": "scale", "rounding": rounding, "max_size": limit}
                    yield {**fields, **multiples, **scales}


def window_rule(image: Image, canvas: Canvas) -> Image:
    """Find the op that crops or pads an image to the window that a graph computes, and append it to the image.

    If the size of the window is variable and no op matches, the window becomes the ``canvas`` of the image, so that a
    crop to a fixed size can follow.

    Raises:
        PipelineError: No op results in this window.
    """
    if image.canvas is not None:
        canvas = _compose(image.canvas, canvas, size_of(image).values)
        image = replace(image, canvas=None)
    spec, size = lowered(image.chain)[1], size_of(image).values
    known = (size > 0).all(1)
    top, left, height, width = (side[known] for side in (canvas.top, canvas.left, canvas.height, canvas.width))
    if np.array_equal(np.stack([top, left, height, width], axis=1), np.pad(size[known], ((0, 0), (2, 0)))):
        return image
    if not (len({*height.tolist()}) == len({*width.tolist()}) == 1):
        if canvas.fill is None:
            raise PipelineError("its output size depends on the size of the image, which is not supported")
        sides = np.concatenate([height, width])
        multiples = int(np.gcd.reduce(sides.astype(int))) if (sides == np.floor(sides)).all() else 1
        squares: list[dict[str, Any]] = [{"square": True}, *[{"multiple": multiples}] * (multiples > 1)]
        for fields, anchor in product(squares, get_args(Anchor)):
            pad = ops.Pad(**fields, fill=canvas.fill, anchor=anchor)
            if np.array_equal(_windows_in(pad, spec, size[known]), np.stack([top, left, height, width], axis=1)):
                return image.then(pad)
        return replace(image, canvas=canvas)
    rows, columns = height[0], width[0]
    if not (1 <= rows <= MAX_SIDE and 1 <= columns <= MAX_SIDE and rows.is_integer() and columns.is_integer()):
        raise PipelineError(
            f"its height and width must be integers from 1 to {MAX_SIDE}, but are {rows:g} x {columns:g} pixels"
        )
    for op in _window_candidates(int(rows), int(columns), int(top[0]), int(left[0]), canvas.fill):
        try:
            op.infer(spec)
        except PipelineError:
            continue
        if np.array_equal(_windows_in(op, spec, size[known])[:, :2], np.stack([top, left], axis=1)):
            return image.then(op)
    index = _example_index(SIZES[known])
    raise PipelineError(
        "its window is computed in a way that the ops crop and pad do not support; for example, in an image of "
        f"{_size(size[known][index])} pixels, it has {rows:g} x {columns:g} pixels and begins at row {top[index]:g}, "
        f"column {left[index]:g}"
    )


def _windows_in(op: ops.ImageOp, spec: ImageSpec, sizes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the windows of an op for images of these sizes, as an array of (top, left, height, width)."""
    step = op.lower(Lowered(spec.color), spec, "").before[-1]
    assert isinstance(step, Window)
    return np.array([step.of(*pair) for pair in sizes.tolist()])


def _window_candidates(height: int, width: int, top: int, left: int, fill: Levels | None) -> Iterator[ops.ImageOp]:
    """Yield ops that crop or pad to a fixed size, beginning with the simplest op.

    Args:
        height: Height of the window in pixels.
        width: Width of the window in pixels.
        top: Row at which the window begins in images of the first size.
        left: Column at which the window begins in images of the first size.
        fill: Pixel value outside the image. None means that the window must not exceed the image.
    """
    if fill is None:
        for rounding in _WINDOW_ROUNDINGS:
            yield ops.CenterCrop(height, width, rounding=rounding, smaller="refuse")
    else:
        for anchor in get_args(Anchor):
            yield ops.Pad(height=height, width=width, fill=fill, anchor=anchor)
        for rounding in _WINDOW_ROUNDINGS:
            yield ops.Crop(0.5, 0.5, height, width, unit="free", rounding=rounding, smaller="pad", fill=fill)
    if max(abs(top), abs(left)) <= MAX_SIDE:
        yield ops.Crop(top, left, height, width, smaller="refuse" if fill is None else "pad", fill=fill or 0)


def _compose(canvas: Canvas, window: Canvas, size: npt.NDArray[Any]) -> Canvas:
    """Convert a window of a canvas to a window of the image."""
    is_inside = (
        (window.top >= 0)
        & (window.left >= 0)
        & (window.top + window.height <= canvas.height)
        & (window.left + window.width <= canvas.width)
    )
    if window.fill != canvas.fill and not is_inside.all():
        if window.fill is not None:
            raise PipelineError(
                "pads with a different colour than a preceding operator, which is not supported: use the same colour"
            )
        raise PipelineError("crops beyond the edge of the padded image for some image sizes, which is not supported")
    height, width = size.T
    contains_image = (np.maximum(canvas.top, canvas.left) <= 0) & (canvas.top + canvas.height >= height)
    contains_image &= canvas.left + canvas.width >= width
    if not (is_inside | contains_image | (size <= 0).any(1)).all():
        raise PipelineError("pads an image that was cropped before, which is not supported: crop only once")
    return Canvas(canvas.top + window.top, canvas.left + window.left, window.height, window.width, canvas.fill)


def _size(sides: npt.NDArray[Any]) -> str:
    return " x ".join(f"{side:.6g}" for side in sides)


def _example_index(sizes: npt.NDArray[Any]) -> int:
    """Return the index of the size for an error message, which is 480 x 640 or, if it is missing, the first size."""
    return int(np.argmax((sizes == (480, 640)).all(1)))


def _example(before: Rows, after: Rows) -> str:
    index = _example_index(before)
    return f"{_size(before[index])} pixels become {_size(after[index])}"


def output_rule(numbers: Numbers, images: Sequence[Image], name: str | None) -> tuple[Op, ...]:
    """Find an op that outputs the same numbers as a graph, such as ``original_size``.

    Args:
        numbers: Numbers that the graph outputs.
        images: Images that the graph outputs. The op is inserted into the ops of one of these images.
        name: Name of the output.

    Returns:
        The ops from ``decode`` to the output.

    Raises:
        PipelineError: No op outputs these numbers.
    """
    rows, shape, dtype = numbers.rows, numbers.values.shape[1:], str(numbers.values.dtype)
    for image in images:
        if not numbers.sources <= {image.source}:
            continue
        for chain, op in _output_candidates(image, dtype):
            if shape != op.infer(lowered(chain)[1]).shape:
                continue
            if all(_is_close(_output_numbers(chain, op, every), rows) for every in (_STRIDE, 1)):
                return (*chain, ops.changed(op, name=name))
    raise PipelineError(
        f"its {dtype} values of shape {list(shape)} are not equal to an output of pixprep; supported outputs: "
        "original_size, image_size, scale_factor, transform"
    )


def _output_candidates(image: Image, dtype: str) -> Iterator[tuple[tuple[Op, ...], Any]]:
    """Yield ops that output numbers, beginning with the simplest op, together with the ops before each op."""
    chains = [image.chain[:length] for length in range(1, min(len(image.chain), MAX_OPS) + 1)]
    if dtype in ("int32", "int64", "float32"):
        for op, chain in product(_SIZE_OUTPUTS, chains):
            if isinstance(op, ops.ImageSize) or chain is chains[0]:
                yield chain, ops.changed(op, dtype=dtype)
    if dtype == "float32":
        yield from ((chain, op) for chain in chains for op in _SCALE_OUTPUTS)


def _is_close(found: Rows, rows: Rows) -> bool:
    known = (found != UNKNOWN).any(1)
    return bool(known.any() and np.allclose(found[known], rows[known], rtol=2e-7, atol=0))


@lru_cache(maxsize=512)
def _output_numbers(chain: tuple[Op, ...], op: Any, every: int) -> Rows:
    """Return the numbers that an op outputs for each of ``SIZES``, as an array with one row per size.

    Args:
        chain: Ops before the op.
        op: Op that outputs numbers.
        every: Stride of the sizes to compute. The numbers for all other sizes are ``UNKNOWN``.
    """
    before, image = lowered(chain)
    spec: TensorSpec = op.infer(image)
    found = np.full((len(SIZES), spec.shape[0]), float(UNKNOWN))
    try:
        plan: NumbersPlan = op.lower(before, spec)
    except PipelineError:
        return found
    for index in range(0, len(SIZES), every):
        height, width = SIZES[index].tolist()
        with suppress(ImageError):
            placement = before.geometry.place(height, width)
            found[index] = plan.numbers(height, width, placement if plan.geometry else None)
    return found
