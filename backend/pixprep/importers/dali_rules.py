"""Rules that numbers computed by a graph amount to: the size of a resize, a window, an output of the image's place.

A rule is taken if it gives the graph's number at every one of ``dali_values.SIZES``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError
from pixprep.importers.dali_values import SIZES, UNKNOWN, Image, Numbers, lowered, size_of
from pixprep.pipeline.ops import MAX_SIDE, ImageSize, Op, OriginalSize, Resize, ScaleFactor, Transform, changed
from pixprep.plan.output_plans import NumbersPlan
from pixprep.spec import SideRounding, TensorSpec

Rows = npt.NDArray[np.float64]
_ROUNDINGS: tuple[SideRounding, ...] = ("half_away", "down", "half_even", "up")
_SIZES = (OriginalSize(), OriginalSize(order="wh"), ImageSize(), ImageSize(order="wh"))
_SCALES = (ScaleFactor(), ScaleFactor(order="xy"), Transform())


def resize_rule(image: Image, rows: Rows, columns: Rows, how: dict[str, Any]) -> Resize:
    """The resize of an image whose sides a graph computes.

    Args:
        image: before it.
        rows: height of the result for each of ``SIZES``.
        columns: its width.
        how: other fields of the op.

    Raises:
        PipelineError: no rule gives them.
    """
    before = size_of(image).rows
    seen = (before > 0).all(1)
    sides = np.stack([rows, columns], axis=1)[seen]
    most, least = sides.max(0), sides.min(0)
    if not (least >= 1).all() or not (most <= MAX_SIDE).all():
        raise PipelineError(f"its size has no bound: it is {_size(least)} to {_size(most)} for photos of usual sizes")
    candidates = (
        [(most, "stretch", None)]
        if (most == least).all()
        else [
            *((most, "fit", rounding) for rounding in _ROUNDINGS),
            *((least, "cover", rounding) for rounding in _ROUNDINGS),
        ]
    )
    is_whole = bool((sides == np.floor(sides)).all())
    for (height, width), mode, rounding in candidates:
        subpixel = None if mode == "stretch" else how.get("subpixel", True) and not is_whole
        fields = {"height": int(height), "width": int(width), "mode": mode, "rounding": rounding, "subpixel": subpixel}
        op = Resize(**{**how, **fields})
        after = size_of(image.then(op)).rows[seen]
        if np.array_equal(after, sides if is_whole else np.floor(sides + 0.5)):
            return op
    raise PipelineError(f"its size is no rule that resize has; {_example(before[seen], sides)}")


def _size(sides: npt.NDArray[Any]) -> str:
    return " x ".join(f"{side:.6g}" for side in sides)


def _example(before: Rows, after: Rows) -> str:
    index = int(np.argmax(before.sum(1) == 480 + 640)) if (before.sum(1) == 480 + 640).any() else 0
    return f"{_size(before[index])} pixels become {_size(after[index])}"


def output_rule(numbers: Numbers, images: Sequence[Image], name: str | None) -> tuple[Op, ...]:
    """The ops up to an output that gives a graph's numbers.

    Args:
        numbers: of one output.
        images: behind whose ops they may be said.
        name: of the output.

    Raises:
        PipelineError: none does.
    """
    rows, shape, dtype = numbers.rows, numbers.values.shape[1:], str(numbers.values.dtype)
    for image in images:
        if not numbers.sources <= {image.source}:
            continue
        for chain, op in _outputs(image, dtype):
            if shape != op.infer(lowered(chain)[1]).shape:
                continue
            found = _numbers_of(chain, op)
            seen = (found != UNKNOWN).any(1)
            if seen.any() and np.allclose(found[seen], rows[seen], rtol=2e-7, atol=0):
                return (*chain, changed(op, name=name))
    raise PipelineError(
        f"is {dtype} {list(shape)} computed of the image's size, and no output that pixprep has: "
        "original_size, image_size, scale_factor and transform are"
    )


def _outputs(image: Image, dtype: str) -> Iterator[tuple[tuple[Op, ...], Any]]:
    """Outputs that say numbers of an image, the simplest first, behind each of its ops."""
    chains = [image.chain[:length] for length in range(1, len(image.chain) + 1)]
    if dtype in ("int32", "int64", "float32"):
        for op, chain in product(_SIZES, chains):
            if isinstance(op, ImageSize) or chain is chains[0]:
                yield chain, changed(op, dtype=dtype)
    if dtype == "float32":
        yield from ((chain, op) for chain in chains for op in _SCALES)


def _numbers_of(chain: tuple[Op, ...], op: Any) -> Rows:
    before, image = lowered(chain)
    spec: TensorSpec = op.infer(image)
    found = np.full((len(SIZES), spec.shape[0]), float(UNKNOWN))
    try:
        plan: NumbersPlan = op.lower(before, spec)
    except PipelineError:
        return found
    seen = (size_of(Image("", chain)).values > 0).all(1)
    for index in np.flatnonzero(seen).tolist():
        height, width = SIZES[index].tolist()
        placement = plan.geometry.place(height, width) if plan.geometry else None
        found[index] = plan.numbers(height, width, placement)
    return found
