"""Compares a plan's CUDA kernels with the CPU kernels on this GPU before an engine uses them."""

from __future__ import annotations

import logging
from typing import Any, get_args

import cupy
import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels import Kernel
from pixprep.engine.kernels.staged import kernel_of
from pixprep.errors import ImageError, SetupError
from pixprep.gpu import canvases, launch
from pixprep.gpu.staged import gpu_kernel, stages
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.plan.profiles import WARPS
from pixprep.plan.steps.curves import brightness, shifted_hsv, solarize
from pixprep.plan.steps.levels import (
    Blend,
    ColorMatrix,
    Erase,
    Filter,
    Hue,
    LevelStep,
    Permute,
    Resample,
    Take,
    Tone,
)
from pixprep.plan.steps.warps import Warp
from pixprep.spec import ColorLike, PaddingMode, WarpLike

log = logging.getLogger(__name__)

_CHECKED = ((375, 500), (700, 150), (100, 75), (2000, 3000))
"""Sizes (height, width) of the images for the comparison, which uses the first two sizes that the plan accepts. They
are the size of a photo, a size that Pillow 13 resizes vertically first, a size for small canvases, and a size with
filter positions far from the corner. All heights and widths are multiples of ``_BLOCK``."""
_BLOCK = 25
_MOTIONS = (
    (0.96, -0.28, 1.5, 0.28, 0.96, -2.25),
    (0.9, 0.0, 0.75, 0.0, 1.05, -1.5),
    (1.0, 0.1, 0.0, 0.0, 1.0, 0.0, 1e-3, 2e-3),
)
"""Matrices of the warps in the comparison. One matrix does not rotate, because Pillow's nearest-neighbor warp then uses
a different algorithm."""
_ROUNDING = 1e-4
"""Maximum difference between float values of the GPU and the CPU, relative to the largest value. A difference of one
pixel value would be 0.004."""


def checked_kernel(plan: TensorPlan) -> Kernel:
    """Return the plan's fast kernels. If their values differ from the CPU's, warn and return the plain kernels.

    Raises:
        SetupError: The values of the plain kernels also differ, or NVRTC is missing or does not support the GPU.
    """
    for plain in (False, True) if any(map(launch.is_fast, stages(plan))) else (True,):
        try:
            kernel = gpu_kernel(plan, plain=plain)
            fault = _fault(kernel, plan)
        except RuntimeError as error:  # raised by NVRTC and by CUDA
            fault = str(error).partition("\n")[0]
        if fault is None:
            return kernel
        if not plain:
            log.warning("using slower CUDA kernels, because the fast ones failed on this GPU: %s", fault)
    raise SetupError(
        f"the CUDA kernels do not work on this GPU ({fault}): "
        'run pip install ".[gpu-cuda12]" (or gpu-cuda13, to match the CUDA version of the driver) in a checkout of '
        'pixprep, or use the device "cpu"'
    )


def _fault(kernel: Kernel, plan: TensorPlan) -> str | None:
    """Describe how the values of a GPU kernel differ from the CPU's. Return None if they do not differ."""
    numbers, channels = np.random.default_rng(0), len(plan.channels)
    images: list[npt.NDArray[np.uint8]] = []
    placements: list[Placement] = []
    for height, width in _CHECKED:
        try:
            placement = plan.geometry.place(height, width)
        except ImageError:
            continue
        placements.append(placement)
        # the CPU decoder returns RGB images with an unused fourth channel
        images.append(_blocks(numbers, height, width, 4 if channels == 3 else channels))
        if len(images) == 2:
            break
    if not images:
        return None
    if canvases.needs_canvases(plan):  # also run every step of levels.cu, which the placements may not use
        images.append(images[0])
        placements.append(_with_all_steps(placements[0], plan))
    shapes = [plan.spec.shape_of(*placement.views) for placement in placements]
    is_clip = plan.spec.patches is not None and plan.spec.patches.is_clip  # each placement describes one frame
    whole: Any
    outs: Any
    whole, outs = (
        [empty(shape, plan.spec.array_dtype) for shape in shapes]
        if plan.spec.is_open or is_clip
        else empty((len(shapes), *plan.spec.shape), plan.spec.array_dtype)
        for empty in (np.empty, cupy.empty)
    )
    kernel_of(plan).run(images, placements, whole, range(len(images)))
    pixels = [cupy.asarray(np.ascontiguousarray(image[:, :, :channels])) for image in images]
    kernel.run(pixels, placements, outs, range(len(images)))
    ours, expected = (np.concatenate([np.ravel(one) for one in ones]) for ones in ([o.get() for o in outs], whole))
    if np.array_equal(ours, expected):
        return None
    ours, expected = plan.spec.floats(ours), plan.spec.floats(expected)
    apart = np.abs(ours.astype(np.float64) - expected)
    if plan.spec.dtype != "uint8" and apart.max() <= _ROUNDING * np.abs(expected).max():
        return None
    count = np.count_nonzero(ours != expected)
    return f"{count:,} of {apart.size:,} values differ from the CPU's, by up to {apart.max():g}"


def _with_all_steps(placement: Placement, plan: TensorPlan) -> Placement:
    """Return a copy of a placement that uses all steps of levels.cu and two erasures.

    The steps of levels.cu are used only if the last stage of the plan has such steps. They replace the steps after the
    last resize. The two erasures are used only if the plan has erasures.
    """
    (height, width), channels = placement.size, len(plan.channels)
    erase = Erase(0, 0, max(1, height // 3), max(1, width // 3), (1.0,) * channels)
    noise = erase.changed(top=height // 2, left=width // 2, noise=(1, 2, 3))
    erasures = (erase, noise) if plan.geometry.erasures else ()
    if not stages(plan)[-1].geometry.levels:
        return placement._replace(erasures=erasures)
    resizes = [index for index, step in enumerate(placement.levels, 1) if isinstance(step, Resample)]
    before = placement.levels[: max(resizes, default=0)]
    fill, size = (9, 120, 250)[:channels], (height + 8, width + 6)
    steps: list[LevelStep] = [
        Take(-3, -2, *size, (True, True), fill), solarize(100), Erase(5, 4, 4, 3, fill), Filter("blur", "torchvision",
        rows=(0.25, 0.5, 0.25), columns=(0.125, 0.25, 0.25, 0.25, 0.125))
    ]  # fmt: skip
    for like in get_args(ColorLike):
        steps += [Filter("sharpness", like, 1.5), Blend("own", 1.25, like), Hue(0.1, like), Blend("mean", 0.75, like)]
        for matrix in _MOTIONS:
            steps += [Warp(matrix, size, 0, 0, *size, fill, way, like) for way in WARPS[like].filters]
        steps += [Tone("equalize", like), brightness(0.8, like), Tone("autocontrast", like)]
    for motion, mode in zip(_MOTIONS, get_args(PaddingMode)[1:], strict=True):
        numbers = (*motion, 1.0) if len(motion) > 6 else motion
        ways = WARPS["opencv"].filters
        steps += [Warp(numbers, size, 0, 0, *size, fill, way, "opencv", padding_mode=mode) for way in ways]
    others: tuple[WarpLike, ...] = ("dali", "scipy")
    steps += [Warp(_MOTIONS[0], size, 0, 0, *size, fill, way, like) for like in others for way in WARPS[like].filters]
    steps += [Filter("blur", "opencv", rows=(0.25, 0.5, 0.25), columns=(0.125, 0.25, 0.25, 0.25, 0.125))]
    steps += [ColorMatrix((0.6, -0.2, 0.5, 9.0, 0.1, 1.2, -0.4, 3.0, 0.3, 0.3, 0.3, -20.0))]
    steps += [Blend("own", 1.25, "opencv"), Blend("mean", 0.75, "opencv"), shifted_hsv(-20.5, 30, -9)]
    steps += [Permute((2, 0, 1)), *(Take(-3, -2, *size, (False, True), fill, mode) for mode in get_args(PaddingMode))]
    return placement._replace(
        levels=(*before, *steps, Take(2, 3, height, width, (False, False), fill)), erasures=erasures
    )


def _blocks(numbers: np.random.Generator, height: int, width: int, channels: int) -> npt.NDArray[np.uint8]:
    """Return an image of black, white and noise blocks. At their edges, filters overshoot and values are clipped."""
    choices = numbers.integers(0, 3, (height // _BLOCK, width // _BLOCK, channels))
    choices = choices.repeat(_BLOCK, axis=0).repeat(_BLOCK, axis=1)
    return np.where(choices == 2, numbers.integers(0, 256, choices.shape), 255 * choices).astype(np.uint8)
