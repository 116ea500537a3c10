"""Structs that the CUDA kernels and their launches share: see canvas.cu and fast.cu."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pixprep.plan.output_plans import Affine, TensorPlan

TILE = (64, 4)  # threads a block, (x, y): TILE_WIDTH, TILE_HEIGHT of canvas.cu
TILE_ROWS = 32
PIXELS = 4  # of a row, that one thread of the second pass makes: PIXELS of fast.cu
TAPS = 4  # of a group, which one instruction weighs: TAPS of fast.cu
DIGITS = 3  # signed bytes of a weight
ALIGNMENT = 256  # bytes: of each image's part of the middle buffer
STEPS = ("affine", "subtract", "multiply", "divide")
LEVEL_THREADS = 512  # a block of levels.cu, which is one image: LEVEL_THREADS there

_POINTER = np.uint64
WINDOWS = np.dtype(
    [("first", _POINTER), ("count", _POINTER), ("weights", _POINTER), ("size", np.int32), ("bits", np.int32)]
)
IMAGE = np.dtype(
    [
        ("pixels", _POINTER),
        ("middle", _POINTER),
        ("tensor", _POINTER),
        ("begin", _POINTER),
        ("end", _POINTER),
        ("rows", WINDOWS),
        ("columns", WINDOWS),
        ("pitch", np.int64),
        *((name, np.int32) for name in ("stride", "height", "width", "vertical_first")),
        *((name, np.int32) for name in ("middle_top", "middle_height", "middle_width")),
        *((name, np.int32) for name in ("top", "left", "passes")),
        ("factor", np.float32),
        *((name, np.int32) for name in ("margin_top", "margin_left", "margin_bottom", "margin_right", "fill")),
    ]
)
STEP = np.dtype([("scale", np.float64, 3), ("offset", np.float64, 3), ("operation", np.int32), ("unused", np.int32)])
PLAN = np.dtype(
    [
        ("tables", _POINTER),
        ("steps", _POINTER),
        ("step_count", np.int32),
        ("canvas_height", np.int32),
        ("canvas_width", np.int32),
        ("channel", np.int32, 3),
        ("fill", np.int32, 3),
        ("unused", np.int32),
        ("canvases", _POINTER),
    ]
)
CANVAS = np.dtype(
    [
        ("levels", _POINTER),
        ("other", _POINTER),
        ("tensor", _POINTER),
        ("steps", _POINTER),
        ("erasures", _POINTER),
        ("noise", _POINTER),
        *((name, np.int32) for name in ("step_count", "erasure_count", "height", "width")),
    ]
)
LEVEL_STEP = np.dtype(
    [
        ("matrix", np.float64, 8),
        ("data", _POINTER),
        ("kind", np.int32),
        ("like", np.int32),
        ("factor", np.float32),
        ("rest", np.float32),
        *((name, np.int32) for name in ("top", "left", "height", "width", "flip_y", "flip_x", "fill")),
        *((name, np.int32) for name in ("whole_height", "whole_width", "mode")),
    ]
)
ERASURE = np.dtype(
    [
        *((name, np.int32) for name in ("top", "left", "height", "width")),
        ("values", np.uint32, 3),
        ("is_noise", np.int32),
    ]
)
SURFACE = np.dtype(
    [
        *((name, _POINTER) for name in ("luma", "chroma", "pixels")),
        *((name, np.int32) for name in ("pitch", "height", "width", "turn")),
        *((name, np.int32) for name in ("scale", "offset", "v_red", "u_green", "v_green", "u_blue")),
    ]
)


def constants(plan: TensorPlan) -> npt.NDArray[np.uint8]:
    """Constants that the kernels read beside the images: the plan's table, then its steps, as bytes."""
    steps = np.zeros(len(plan.arithmetic), STEP)
    for struct, step in zip(steps, plan.arithmetic, strict=True):
        count = len(plan.channels)
        if isinstance(step, Affine):
            struct["scale"][:count], struct["offset"][:count] = step.scale, step.offset
        else:
            struct["scale"][:count], struct["operation"] = step.by, STEPS.index(step.operation)
    return np.concatenate([plan.table.reshape(-1).view(np.uint8), steps.view(np.uint8)])


def plan_struct(plan: TensorPlan, address: int, size: tuple[int, int] | None = None) -> npt.NDArray[np.void]:
    """The ``Plan`` of canvas.cu, (1,) of ``PLAN``; the ``constants`` lie at ``address``.

    ``size`` is that of the images of one launch, height and width, where they follow from the images.
    """
    struct = np.zeros(1, PLAN)
    height, width = size or _canvas(plan)
    count = len(plan.channels)
    struct["tables"], struct["steps"] = address, address + plan.table.nbytes
    struct["step_count"], struct["canvas_height"], struct["canvas_width"] = len(plan.arithmetic), height, width
    struct["channel"][0, :count], struct["fill"][0, :count] = plan.channels, plan.fill
    return struct


def _canvas(plan: TensorPlan) -> tuple[int, int]:
    """(height, width)."""
    height, width = plan.spec.shape[1:] if plan.spec.layout == "chw" else plan.spec.shape[:2]
    return height, width
