"""NumPy dtypes and constants that Python shares with the CUDA kernels. They are read from the CUDA sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.layout import numbers, packer, structs
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.steps.arithmetic import Operation

_FILES = [Path(__file__).with_name(name) for name in ("structs.h", "canvas.cu", "steps.cu", "surface.cu")]
_NUMBERS = numbers(*_FILES)
TILE = _NUMBERS["TILE_WIDTH"], _NUMBERS["TILE_HEIGHT"]
"""Number of threads per block in the two resize passes, (x, y)."""
TILE_ROWS = _NUMBERS["TILE_ROWS"]
PIXELS = _NUMBERS["PIXELS"]
TAPS = _NUMBERS["TAPS"]
ALIGNMENT = _NUMBERS["ALIGNMENT"]
LEVEL_THREADS = _NUMBERS["LEVEL_THREADS"]
"""Number of threads per block in levels.cu. Each block processes one image."""
STEPS = get_args(Operation)
"""Operations of arithmetic steps, in the order of their numbers in steps.cu."""

_STRUCTS = structs(*_FILES)
_TYPES: dict[str, Any] = {name: np.dtype(struct) for name, struct in _STRUCTS.items()}
WINDOWS, IMAGE, LAYOUT, STEP, PLAN = (_TYPES[name] for name in ("Coefficients", "Image", "Layout", "Step", "Plan"))
CANVAS, LEVEL_STEP, ERASURE, SURFACE = (_TYPES[name] for name in ("Canvas", "LevelStep", "Erasure", "Surface"))
pack_step = packer(_STRUCTS["LevelStep"]).pack


def constants(plan: TensorPlan) -> npt.NDArray[np.uint8]:
    """Return the constants of a plan for the kernels, as bytes: its look-up table, followed by its steps."""
    steps = np.zeros(len(plan.arithmetic), STEP)
    for struct, step in zip(steps, plan.arithmetic, strict=True):
        struct["operation"] = STEPS.index(step.operation)
        for name, operand in zip(("scale", "offset"), step.operands, strict=True):
            struct[name][: len(operand)] = operand
    return np.concatenate([plan.table.reshape(-1).view(np.uint8), steps.view(np.uint8)])


def layout(planes: Any) -> tuple[Any, ...]:
    """Return the ``Layout`` struct of a tensor without patches, (channels, height, width) with any strides."""
    _, height, width = planes.shape
    return height, width, tuple(stride // planes.itemsize for stride in planes.strides), 0, 0, 0, 0


def plan_struct(plan: TensorPlan, address: int) -> npt.NDArray[np.void]:
    """Return the ``Plan`` struct of canvas.cu, as an array (1,) of ``PLAN``.

    Args:
        plan: Plan of the tensor.
        address: Device address of the ``constants``.
    """
    struct = np.zeros(1, PLAN)
    count, bits = len(plan.channels), f"u{plan.table.itemsize}"
    struct["tables"], struct["steps"] = address, address + plan.table.nbytes
    struct["step_count"] = len(plan.arithmetic)
    struct["fourth"] = plan.spec.cast(plan.spec.fourth or 0).view(bits)
    if plan.fill_value is not None:
        struct["fill_value"][0, :count] = plan.spec.cast(plan.fill_value).view(bits)
    struct["channel"][0, :count], struct["fill"][0, :count] = plan.channels, plan.fill
    return struct
