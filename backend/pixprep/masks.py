"""Masks of a sample: read, and laid where their image lies.

Each pixel of the result has the label of one pixel of the decoded image, or the one that says that none is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError
from pixprep.kernels.levels import done
from pixprep.plan.output_plans import MaskPlan
from pixprep.plan.placement import Placement
from pixprep.profiles import PROFILES, Method, Profile
from pixprep.profiles.windows import Axis
from pixprep.steps.levels import moving

Labels = npt.NDArray[Any]
_NEAREST = Method("nearest", antialias=False)


def labels(plan: MaskPlan, sample: Mapping[str, Any], check_size: Callable[[tuple[int, ...]], None]) -> Labels:
    """The mask of a sample, or its masks: whole numbers (height, width), or (n, height, width).

    Args:
        plan: says which, and which labels it holds.
        sample: has an array, a Pillow image, or the bytes of a PNG.
        check_size: refuses what has not the (height, width) of the image.

    Raises:
        PipelineError: the sample has none.
        ImageError: BAD_RECORD.
    """
    name = plan.field
    if name not in sample:
        raise PipelineError(f'the pipeline gives {name}, and the samples of its source have no "{name}"')
    try:
        return _labels(plan, sample[name], check_size)
    except ImageError as error:
        raise ImageError(error.reason, f'"{name}": {error.detail}') from None


def _labels(plan: MaskPlan, value: Any, check_size: Callable[[tuple[int, ...]], None]) -> Labels:
    if isinstance(value, bytes | bytearray | memoryview):
        from pixprep.decoders.pillow import labels_of  # noqa: PLC0415  (Pillow, where a PNG comes)

        value = labels_of(value, check_size)
    if isinstance(getattr(value, "shape", None), tuple):  # one that is made when it is asked for may be very large
        check_size(value.shape[-2:])
    found = np.asarray(value)
    if found.dtype.kind not in "bui":
        what = "an array of whole numbers, the bytes of a PNG, or its pathlib.Path"
        raise ImageError("BAD_RECORD", f"{what}, not {type(value).__name__}")
    if found.ndim != (2 if plan.field == "mask" else 3):
        shape = "(height, width)" if plan.field == "mask" else "(n, height, width)"
        raise ImageError("BAD_RECORD", f"{shape}, not {found.shape}")
    check_size(found.shape[-2:])
    if found.dtype == np.bool_:
        return found.astype(np.uint8)  # no view: Pillow's true is 255
    if plan.dtype == "uint8" and found.dtype != np.uint8 and found.size:
        least, most = int(found.min()), int(found.max())
        if least < 0 or most > 255:
            remedy = '"dtype": "int64" of the op holds them'
            raise ImageError("BAD_RECORD", f"labels from {least} to {most}: {remedy}")
    return found


def laid(plan: MaskPlan, placement: Placement, mask: Labels) -> Labels:
    """A mask, or several, where a placement lays their image.

    Args:
        plan: says the label where no image is.
        placement: of the image.
        mask: whole numbers (height, width) of the decoded image, or (n, height, width); it is not written to.

    Returns:
        (height, width) or (n, height, width) of the image here, of ``plan.dtype``; memory of its own.
    """
    if mask.dtype != np.uint8 or not 0 <= plan.ignore <= 255:
        mask = mask.astype(plan.dtype)
    resize = plan.geometry.resize
    profile = PROFILES["dali" if resize is not None and resize.subpixel else "torchvision"]
    rows, columns = (_looked_at(placement, axis, profile) for axis in (0, 1))
    result: Labels = mask.take(rows, axis=-2, mode="clip").take(columns, axis=-1, mode="clip")
    if rows.size and rows.min() < 0:
        result[..., rows < 0, :] = plan.ignore
    if columns.size and columns.min() < 0:
        result[..., columns < 0] = plan.ignore
    if steps := moving(placement.levels, *placement.canvas, (plan.ignore,)):
        image = result[:, :, None] if result.ndim == 2 else result.transpose(1, 2, 0)
        result = done(steps, image).transpose(2, 0, 1).reshape(*result.shape[:-2], *placement.size)
    return np.ascontiguousarray(result, plan.dtype)


def _looked_at(placement: Placement, axis: int, profile: Profile) -> npt.NDArray[np.int32]:
    """The row or column of the decoded image at which each of the canvas looks; -1: at none."""
    begin, end = placement.box[axis::2]
    first, last = placement.region[axis::2]
    canvas = np.full(placement.canvas[axis], -1, np.int32)
    if first == last:
        return canvas
    lengths = placement.laid[axis], placement.resized[axis]
    read = Axis(*lengths, placement.ratio[axis], first, last, is_vertical=axis == 0)
    there = canvas[placement.at[axis] : placement.at[axis] + last - first][:: -1 if placement.flips[axis] else 1]
    positions = profile.windows(_NEAREST, "fixed", read).first
    margin = placement.margins[axis]
    there[:] = end - 1 + margin - positions if placement.mirrors[axis] else begin - margin + positions
    there[(there < begin) | (there >= end)] = -1
    return canvas
