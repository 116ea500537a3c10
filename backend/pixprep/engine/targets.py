"""Read image-like targets of a sample, such as depth or optical flow, and transform them together with the image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.distortions import positions
from pixprep.errors import ImageError
from pixprep.plan.boxes import F64, carried
from pixprep.plan.output_plans import TargetPlan
from pixprep.plan.placement import Placement
from pixprep.plan.steps.warps import Warp

Values = npt.NDArray[Any]
_CHANNELS = {"flow": 2, "normals": 3}
_MAX_CHANNELS = 1024


def target_of(plan: TargetPlan, value: Any, check_size: Callable[[tuple[int, ...]], None]) -> Values:
    """Return the target of a sample, (channels, height, width).

    Args:
        plan: Plan of the target.
        value: Array (height, width) or (height, width, channels), or the bytes of a file: ``.npy``, PNG, or a TIFF
            whose pages become channels.
        check_size: Function that raises ImageError unless its argument is the (height, width) of the image.

    Raises:
        ImageError: BAD_RECORD: The value is not a target of the image.
    """

    def check(shape: tuple[int, ...]) -> None:
        sides = [side // plan.zoom if side % plan.zoom == 0 else -1 for side in shape[:2]]
        if plan.zoom > 1 and -1 in sides:
            raise ImageError("BAD_RECORD", f"has the size {shape[:2]}, which is not a multiple of {plan.zoom}")
        check_size(tuple(sides))

    is_bytes = isinstance(value, bytes | bytearray | memoryview)
    if is_bytes:
        from pixprep.engine.decoders.pillow import values_of  # noqa: PLC0415  (imports Pillow, which only a file needs)

        value = values_of(bytes(value), check)
    found = np.asarray(value)
    channels = found.shape[2:] or (1,)
    if found.ndim not in (2, 3) or found.dtype.kind not in "uif" or not 1 <= channels[0] <= _MAX_CHANNELS:
        what = "numbers (height, width) or (height, width, channels)"
        raise ImageError("BAD_RECORD", f"must contain {what}, not {found.dtype} of the shape {found.shape}")
    check(found.shape)
    if plan.kind == "alpha":
        if channels[0] not in (2, 4):
            fix = 'save it with 2 (gray, alpha) or 4 channels (RGBA), or, for a gray matte, remove "kind": "alpha"'
            raise ImageError("BAD_RECORD", f"must have an alpha channel, but it has {channels[0]} channels: {fix}")
        found, channels = found[:, :, -1:], (1,)
    if channels[0] != _CHANNELS.get(plan.kind, channels[0]):
        raise ImageError("BAD_RECORD", f"must have {_CHANNELS[plan.kind]} channels, not {channels[0]}")
    if plan.dtype != "float32" and found.size:
        limits = np.iinfo(plan.dtype)
        if found.dtype.kind == "f" or int(found.min()) < limits.min or int(found.max()) > limits.max:
            raise ImageError(
                "BAD_RECORD", f'values of {found.dtype} do not fit into {plan.dtype}: set "dtype" in target'
            )
    return np.moveaxis(found.reshape(*found.shape[:2], -1), 2, 0)


def transformed(plan: TargetPlan, placement: Placement, values: Values, nearest: Callable[..., Values]) -> Values:
    """Transform a target with the placement of its image.

    Args:
        plan: Plan of the target.
        placement: Placement of the image.
        values: Target (channels, height, width) at the size of the decoded image, times ``plan.zoom``.
        nearest: Function that transforms masks, which is used for ``nearest`` if the target has the size of the image.

    Returns:
        An array of ``plan.dtype``, (channels, height, width), at the size of the output times ``plan.zoom``.
    """
    if plan.filter == "nearest" and plan.zoom == 1 and plan.kind in ("values", "alpha"):
        return nearest(plan, placement, values)
    x, y, is_inside = _sources(placement, plan.zoom)
    made = _sampled(plan, values, x * plan.zoom, y * plan.zoom)
    if plan.kind == "flow":
        points, moved = np.stack([x, y], -1), np.moveaxis(made, 0, -1) / plan.zoom
        matrix = placement.matrix
        flow = carried(points + moved, matrix) - carried(points, matrix)
        made = np.moveaxis(flow, -1, 0) * plan.zoom
    if plan.kind == "normals":
        left, _, right = np.linalg.svd(placement.matrix[:2, :2])  # the nearest rotation or reflection
        made[:2] = np.tensordot(left @ right, made[:2], 1)
    made[:, ~is_inside] = plan.ignore
    if plan.dtype != "float32":
        limits = np.iinfo(plan.dtype)
        made = np.rint(made).clip(limits.min, limits.max)
    return made.astype(plan.dtype)


def _sources(placement: Placement, scale: int) -> tuple[F64, F64, npt.NDArray[np.bool_]]:
    """Return the position (x, y) in the image for each pixel of the result, and whether it is inside the image."""
    stages: list[tuple[F64 | Warp, tuple[int, int]]] = []
    height, width = placement.canvas
    for step in placement.levels:
        if (matrix := step.forward(height, width)) is not None:
            stages.append((step if isinstance(step, Warp) and step.is_displaced else matrix, (height, width)))
        height, width = step.size_after(height, width)
    x, y = np.meshgrid((np.arange(width * scale) + 0.5) / scale, (np.arange(height * scale) + 0.5) / scale)
    is_inside = np.ones(x.shape, bool)
    for motion, (height, width) in reversed(stages):
        if isinstance(motion, Warp):
            maps = positions(motion).astype(np.float64) + 0.5
            sides = ((x, motion.width), (y, motion.height))
            column, row = (np.floor(each).astype(int).clip(0, side - 1) for each, side in sides)
            x, y = maps[0][row, column] + x - column - 0.5, maps[1][row, column] + y - row - 0.5
        else:
            x, y = np.moveaxis(carried(np.stack([x, y], -1), np.linalg.inv(motion)), -1, 0)
        is_inside &= (x >= 0) & (x <= width) & (y >= 0) & (y <= height)
    scale_y, scale_x, offset_y, offset_x = placement.transform
    region, (top, left) = placement.region, placement.at
    bottom, right = top + region[2] - region[0], left + region[3] - region[1]
    is_inside &= (x >= left) & (x <= right) & (y >= top) & (y <= bottom)
    x, y = (x - offset_x) / scale_x, (y - offset_y) / scale_y
    top, left, bottom, right = placement.box
    is_inside &= (x >= left) & (x <= right) & (y >= top) & (y <= bottom)
    return x, y, is_inside


def _sampled(plan: TargetPlan, values: Values, x: F64, y: F64) -> F64:
    """Sample a target (channels, height, width) at positions in pixel coordinates.

    Outside the target, the edge pixels are repeated.
    """
    height, width = values.shape[1:]
    if plan.filter == "nearest":
        row, column = (np.floor(at).astype(int).clip(0, side - 1) for at, side in ((y, height), (x, width)))
        made: F64 = values[:, row, column].astype(np.float64)
        return made
    left, top = np.floor(x - 0.5), np.floor(y - 0.5)
    dx, dy = x - 0.5 - left, y - 0.5 - top
    # a neighbor with the weight 0 is not read, because it may be NaN, and NaN * 0 is NaN
    columns = [(left.astype(int) + step).clip(0, width - 1) for step in (0, dx > 0)]
    rows = [(top.astype(int) + step).clip(0, height - 1) for step in (0, dy > 0)]
    upper, lower = (values[:, row, columns[0]] * (1 - dx) + values[:, row, columns[1]] * dx for row in rows)
    mixed: F64 = upper * (1 - dy) + lower * dy
    return mixed
