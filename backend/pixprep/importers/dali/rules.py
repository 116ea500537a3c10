"""Search for rules that reproduce the numbers of a graph.

A rule is the size of a resize, a window, or an output with an image's geometry. It is accepted if it reproduces the
graph's numbers at every one of ``values.SIZES``. The rule for a resize of the whole photo is also compared with the
graph at every size up to ``sizes.LARGEST``.
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
from pixprep.importers.dali.sizes import MAX_RATIO, every_size, is_array_rule
from pixprep.importers.dali.sizes import sides as resized_sides
from pixprep.importers.dali.sizes import sizes as resized
from pixprep.importers.dali.values import (
    SIZES,
    UNKNOWN,
    Canvas,
    Image,
    Numbers,
    ResizedError,
    Rows,
    lowered,
    size_of,
    sizes_after,
)
from pixprep.pipeline.ops import (
    MAX_SIDE,
    Anchor,
    CenterCrop,
    Crop,
    ImageOp,
    ImageSize,
    Levels,
    Op,
    OriginalSize,
    Pad,
    Resize,
    ScaleFactor,
    Transform,
    changed,
)
from pixprep.plan.geometry_steps import Window
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import NumbersPlan
from pixprep.spec import ImageSpec, Rounding, SideRounding, SizeOrder, TensorSpec

_ROUNDINGS: tuple[SideRounding, ...] = ("half_away", "down", "half_even", "up")
_SOME = 128
"""Stride of the sizes that are current_sizes first."""
MAX_OPS = 32
"""Maximum number of ops after which numbers of the image are current_sizes."""
_SIGNED: tuple[Rounding, ...] = ("half_away", "down")
_SIZES = tuple(kind(order=order) for kind in (OriginalSize, ImageSize) for order in get_args(SizeOrder))
_SCALES = (ScaleFactor(), ScaleFactor(order="xy"), Transform())


def resize_rule(
    image: Image, computed: Rows, how: dict[str, Any], again: Callable[[npt.NDArray[np.int64]], Rows] | None = None
) -> Resize:
    """Return the resize of an image whose sides a graph computes.

    Args:
        image: Image before the resize.
        computed: Height and width of the result for each of ``SIZES``, (n, 2).
        how: Other fields of the op.
        again: Function that computes the same for other image sizes. None: the image's size differs from its file's.

    Raises:
        PipelineError: No rule reproduces the sides.
    """
    before = size_of(image).rows
    seen = (before > 0).all(1)
    if not seen.any():
        raise PipelineError("the operators before it reject images of every size")
    if (absent := seen & (computed <= 0).any(1)).any():
        raise PipelineError(
            "its size is 0 for some images, and DALI then derives it from the other side: use math.max(1.0, ...); "
            f"for example, {_example(before[absent], computed[absent])}"
        )
    seen &= (computed <= MAX_SIDE).all(1)  # very narrow images can exceed it
    sides = computed[seen]
    is_whole = bool((sides == np.floor(sides)).all())
    wanted = computed if is_whole else np.maximum(np.floor(computed + 0.5), 1)
    near: list[Resize] = []
    differing: list[str] = []
    for fields in _sizes(sides, is_whole=is_whole):
        subpixel = None if {"multiple", "stretch"} & {*fields.values(), *fields} else how["subpixel"] and not is_whole
        op = Resize(**{**how, "subpixel": subpixel, **fields})
        chain = image.then(op).chain
        step = lowered(chain)[0].resize
        if step and is_array_rule(step):
            if (resized(step, before[seen]) - wanted[seen]).any():
                continue
            values = resized_sides(step, before[seen])
        elif all(not (sizes_after(chain, n) - wanted)[::n][seen[::n]].any() for n in (_SOME, 1)):
            values = np.array([step.sides(*size) for size in before[seen].tolist()]) if step else wanted[seen]
        else:
            continue
        if not is_whole and (values.astype(np.float32) - sides).any():
            near.append(op)
            continue
        if (wrong := _unequal(op, again, is_whole=is_whole)) is None:
            return op
        differing.append(wrong)
    for op in near:
        if (wrong := _unequal(op, again, is_whole=is_whole)) is None:
            return op
        differing.append(wrong)
    if differing:
        raise PipelineError(f"its size does not match a rule of the op resize; for example, {differing[0]}")
    raise PipelineError(
        f"its size does not match a rule of the op resize; for example, {_example(before[seen], sides)}"
    )


def _unequal(op: Resize, again: Callable[[npt.NDArray[np.int64]], Rows] | None, *, is_whole: bool) -> str | None:
    """Describe a size up to ``LARGEST`` at which an op differs from a graph. None: they are equal at every size."""
    step = op._step  # noqa: SLF001  (the step before an input replaces its numbers)
    if again is None or not is_array_rule(step):
        return None
    for before in every_size():
        try:
            computed = again(before)
        except ResizedError:
            return None
        wanted = computed if is_whole else np.maximum(np.floor(computed + 0.5), 1)
        made = resized(step, before.astype(np.float64))
        differs = ((made[:, 0] != wanted[:, 0]) | (made[:, 1] != wanted[:, 1])) & (computed.max(1) <= MAX_SIDE)
        differs &= before.max(1) <= MAX_RATIO * before.min(1)
        if differs.any():
            return _example(before[differs], computed[differs])
    return None


def _sizes(sides: Rows, *, is_whole: bool) -> Iterator[dict[str, Any]]:
    """Yield fields of resizes that may result in these sides, (n, 2), the simplest first."""
    most, least = (np.maximum(ends, 1).astype(int).tolist() for ends in (sides.max(0), sides.min(0)))
    if most == least:
        yield {"height": most[0], "width": most[1], "mode": "stretch"}
        return
    box = most
    for side, highest, lowest in zip(("height", "width"), most, least, strict=True):
        if highest == lowest:  # only the choice of sizes bounds the other side
            box = [length if length == highest else MAX_SIDE for length in most]
            for rounding in _ROUNDINGS:
                yield {side: highest, "rounding": rounding}
    for (height, width), mode in ((box, "fit"), (least, "cover")):
        for rounding in _ROUNDINGS:
            yield {"height": height, "width": width, "mode": mode, "rounding": rounding}
    multiple = int(np.gcd.reduce(sides.astype(int).ravel())) if is_whole else 1
    several = {"multiple": multiple} if multiple > 1 else {}
    for size, side in ((min(least), "shorter"), (max(most), "longer")) if several else ():
        for rounding in _ROUNDINGS:
            yield {"size": size, "side": side, "rounding": rounding, **several}
    for side, lengths in (("longer", sides.max(1)), ("shorter", sides.min(1))):
        found, counts = np.unique(lengths, return_counts=True)
        usual, reach = round(float(found[np.argmax(counts)])), min(multiple // 2, 32)  # the most frequent scaled side
        near = sorted(range(usual - reach, usual + reach + 1), key=lambda size: abs(size - usual))
        for size, scales, limit in product(near, ({"enlarge": False}, {"shrink": False}, {}), (None, max(most))):
            if size > 0 and (limit is None or (limit > size and (side == "shorter" or "shrink" in scales))):
                for rounding in _ROUNDINGS if limit is None or several else (*_ROUNDINGS, "half_away32"):
                    fields = {"size": size, "side": side, "mode": "scale", "rounding": rounding, "max_size": limit}
                    yield {**fields, **several, **scales}


def window_rule(image: Image, canvas: Canvas) -> Image:
    """Return the image in a window that a graph computes.

    A canvas whose size depends on the image is kept until a window of fixed size is applied to it.

    Raises:
        PipelineError: No rule reproduces the window.
    """
    if image.canvas is not None:
        canvas = _over(image.canvas, canvas, size_of(image).values)
        image = replace(image, canvas=None)
    spec, size = lowered(image.chain)[1], size_of(image).values
    seen = (size > 0).all(1)
    top, left, height, width = (side[seen] for side in (canvas.top, canvas.left, canvas.height, canvas.width))
    if np.array_equal(np.stack([top, left, height, width], axis=1), np.pad(size[seen], ((0, 0), (2, 0)))):
        return image
    if not (len({*height.tolist()}) == len({*width.tolist()}) == 1):
        if canvas.fill is None:
            raise PipelineError("the size of its window depends on the size of the image, which is not supported")
        sides = np.concatenate([height, width])
        several = int(np.gcd.reduce(sides.astype(int))) if (sides == np.floor(sides)).all() else 1
        squares: list[dict[str, Any]] = [{"square": True}, *[{"multiple": several}] * (several > 1)]
        for fields, anchor in product(squares, get_args(Anchor)):
            pad = Pad(**fields, fill=canvas.fill, anchor=anchor)
            if np.array_equal(_laid(pad, spec, size[seen]), np.stack([top, left, height, width], axis=1)):
                return image.then(pad)
        return replace(image, canvas=canvas)
    rows, columns = height[0], width[0]
    if not (1 <= rows <= MAX_SIDE and 1 <= columns <= MAX_SIDE and rows.is_integer() and columns.is_integer()):
        raise PipelineError(f"its window of {rows:g} x {columns:g} pixels must have integer sides from 1 to {MAX_SIDE}")
    for op in _windows(int(rows), int(columns), int(top[0]), int(left[0]), canvas.fill):
        try:
            op.infer(spec)
        except PipelineError:
            continue
        if np.array_equal(_laid(op, spec, size[seen])[:, :2], np.stack([top, left], axis=1)):
            return image.then(op)
    index = _usual(SIZES[seen])
    raise PipelineError(
        "its window does not match a rule of the ops crop and pad; for example, in an image of "
        f"{_size(size[seen][index])} pixels, it has {rows:g} x {columns:g} pixels from row {top[index]:g}, column "
        f"{left[index]:g}"
    )


def _laid(op: ImageOp, spec: ImageSpec, sizes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return (top, left, height, width) of an op's window in images of these sizes."""
    step = op.lower(Lowered(spec.color), spec, "").before[-1]
    assert isinstance(step, Window)
    return np.array([step.of(*pair) for pair in sizes.tolist()])


def _windows(height: int, width: int, top: int, left: int, fill: Levels | None) -> Iterator[ImageOp]:
    """Yield ops with a window of fixed size, the simplest first. ``top`` and ``left`` are those of the first image."""
    if fill is None:
        for rounding in _SIGNED:
            yield CenterCrop(height, width, rounding=rounding, smaller="refuse")
    else:
        for anchor in get_args(Anchor):
            yield Pad(height=height, width=width, fill=fill, anchor=anchor)
        for rounding in _SIGNED:
            yield Crop(0.5, 0.5, height, width, unit="free", rounding=rounding, smaller="pad", fill=fill)
    if max(abs(top), abs(left)) <= MAX_SIDE:
        yield Crop(top, left, height, width, smaller="refuse" if fill is None else "pad", fill=fill or 0)


def _over(below: Canvas, above: Canvas, size: npt.NDArray[Any]) -> Canvas:
    """Convert a window of a canvas to a window of the image."""
    is_inside = (
        (above.top >= 0)
        & (above.left >= 0)
        & (above.top + above.height <= below.height)
        & (above.left + above.width <= below.width)
    )
    if above.fill != below.fill and not is_inside.all():
        if above.fill is not None:
            raise PipelineError("pads a canvas with a second color, which is not supported: use the same color")
        raise PipelineError("its window exceeds the canvas for some images")
    height, width = size.T
    is_around = (np.maximum(below.top, below.left) <= 0) & (below.top + below.height >= height)
    is_around &= below.left + below.width >= width
    if not (is_inside | is_around | (size <= 0).any(1)).all():
        raise PipelineError(
            "pads a cropped region whose surroundings are part of the image, which is not supported: crop only once"
        )
    return Canvas(below.top + above.top, below.left + above.left, above.height, above.width, below.fill)


def _size(sides: npt.NDArray[Any]) -> str:
    return " x ".join(f"{side:.6g}" for side in sides)


def _usual(sizes: npt.NDArray[Any]) -> int:
    """Return the index of a size for examples, preferably 480 x 640."""
    return int(np.argmax((sizes == (480, 640)).all(1)))


def _example(before: Rows, after: Rows) -> str:
    index = _usual(before)
    return f"{_size(before[index])} pixels become {_size(after[index])}"


def output_rule(numbers: Numbers, images: Sequence[Image], name: str | None) -> tuple[Op, ...]:
    """Return the ops up to an output that reproduces a graph's numbers.

    Args:
        numbers: Numbers of one output.
        images: Images after whose ops the output may be inserted.
        name: Name of the output.

    Raises:
        PipelineError: No output reproduces the numbers.
    """
    rows, shape, dtype = numbers.rows, numbers.values.shape[1:], str(numbers.values.dtype)
    for image in images:
        if not numbers.sources <= {image.source}:
            continue
        for chain, op in _outputs(image, dtype):
            if shape != op.infer(lowered(chain)[1]).shape:
                continue
            if all(_is_same(_numbers_of(chain, op, every), rows) for every in (_SOME, 1)):
                return (*chain, changed(op, name=name))
    raise PipelineError(
        f"its {dtype} values of shape {list(shape)} do not match an output of pixprep; supported outputs: "
        "original_size, image_size, scale_factor, transform"
    )


def _outputs(image: Image, dtype: str) -> Iterator[tuple[tuple[Op, ...], Any]]:
    """Yield outputs that contain numbers of an image, after each of its ops, the simplest first."""
    chains = [image.chain[:length] for length in range(1, min(len(image.chain), MAX_OPS) + 1)]
    if dtype in ("int32", "int64", "float32"):
        for op, chain in product(_SIZES, chains):
            if isinstance(op, ImageSize) or chain is chains[0]:
                yield chain, changed(op, dtype=dtype)
    if dtype == "float32":
        yield from ((chain, op) for chain in chains for op in _SCALES)


def _is_same(found: Rows, rows: Rows) -> bool:
    seen = (found != UNKNOWN).any(1)
    return bool(seen.any() and np.allclose(found[seen], rows[seen], rtol=2e-7, atol=0))


@lru_cache(maxsize=512)
def _numbers_of(chain: tuple[Op, ...], op: Any, every: int) -> Rows:
    """Return the numbers of an output after a chain for one in ``every`` of ``SIZES``. All others are ``UNKNOWN``."""
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
