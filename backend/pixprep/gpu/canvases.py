"""Prepares the arguments of levels.cu: the canvases of a chunk, and the steps of each image.

If a plan changes pixel values, the two resize passes write a uint8 canvas instead of the tensor. levels.cu then applies
the steps of each image, with one thread block per image, and writes the tensor. It also erases rectangles of the
tensor. This module does not require CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.colours import LIKES, turn_of
from pixprep.gpu.structs import ALIGNMENT, CANVAS, ERASURE, LEVEL_STEP, pack_step
from pixprep.plan.draws.philox import quantiles
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.plan.profiles.profile import ARITHMETICS
from pixprep.plan.steps.curves import Curve, Hsv
from pixprep.plan.steps.levels import (
    Blend,
    ColorMatrix,
    Erase,
    Filter,
    Hue,
    LevelStep,
    Permute,
    Take,
    Tone,
)
from pixprep.plan.steps.warps import Warp
from pixprep.spec import BlendLike, BorderMode, TensorSpec

U8 = npt.NDArray[np.uint8]
Size = tuple[int, int]

KINDS = (
    *("curve", "blend_own", "blend_mean", "hue", "hsv", "matrix", "autocontrast", "equalize", "own_max", "own_mean"),
    *("permute", "erase"),
    *("take", "sharpness", "blur", *(f"warp_{name}" for name in ARITHMETICS)),
)
"""Kinds of steps in levels.cu. Their indices are the values of the constants LEVEL_CURVE etc."""
MODES: tuple[str, ...] = get_args(BorderMode)
_ALIGNMENT = 16


def needs_canvases(plan: TensorPlan) -> bool:
    """Return whether a plan needs levels.cu."""
    return plan.has_canvas or bool(plan.geometry.erasures)


def canvas_plan(plan: TensorPlan) -> TensorPlan:
    """Return a plan whose tensors are the canvases, with the decoded channels in their original order.

    A plan without canvases is returned unchanged.
    """
    if not plan.has_canvas:
        return plan
    decoded = sorted(zip(plan.channels, plan.fill, strict=True))
    spec = TensorSpec(shape=(-1, -1, len(decoded)), dtype="uint8", layout="hwc", low=0.0, high=255.0)
    channels, fill = zip(*decoded, strict=True)
    return replace(plan, spec=spec, fill=fill, channels=channels, arithmetic=())


class Canvases:
    """Canvases of a chunk, and the steps of its images.

    Attributes:
        n_bytes: Total size of the structs and of the steps' data in bytes.
        scratch: Sizes of each image's two buffers in bytes, (n, 2). The first buffer is for the canvas, and the second
            for the result of steps that read other pixels of the canvas. All sizes are multiples of ``ALIGNMENT``.
    """

    def __init__(self, plan: TensorPlan, placements: Sequence[Placement]) -> None:
        first: dict[int, int] = {}  # images with the same placement have the same steps
        which = [first.setdefault(id(placement), index) for index, placement in enumerate(placements)]
        data = _Data()
        is_noisy = any(erase.noise for placement in placements for erase in placement.erasures)
        noise = data.put(_bits(quantiles(), plan).tobytes()) if is_noisy else 0
        steps: list[bytes] = []
        made: dict[int, tuple[int, ...]] = {}
        for index in first.values():
            placement = placements[index]
            these, areas = _packed(placement, plan, data) if plan.has_canvas else ([], (0, 0))
            erasures = data.put(_erasures(placement, plan)) if placement.erasures else 0
            room = [-(-area // ALIGNMENT) * ALIGNMENT for area in areas]
            made[index] = (*room, len(steps), erasures, len(these), len(placement.erasures))
            steps += these
        self._has_levels = plan.has_canvas
        self._canvases = np.zeros(len(placements), CANVAS)
        self._steps = np.frombuffer(bytearray().join(steps), LEVEL_STEP)
        self._data = np.frombuffer(data.whole, np.uint8)
        self.n_bytes = self._canvases.nbytes + self._steps.nbytes + self._data.nbytes
        table = np.array([made[index] for index in which], np.int64)
        self.scratch = table[:, :2]
        for name, column in zip(("steps", "erasures", "step_count", "erasure_count"), table.T[2:], strict=True):
            self._canvases[name] = column
        self._canvases["noise"] = noise
        self._canvases["height"], self._canvases["width"] = np.array([each.canvas for each in placements]).T

    def write(
        self,
        memory: U8,
        address: int,
        *,
        scratch: npt.NDArray[np.uint64],
        tensors: Sequence[int],
        layouts: npt.NDArray[np.void],
    ) -> None:
        """Write the structs and the steps' data to host memory.

        Args:
            memory: Host memory of ``n_bytes`` bytes, which is uploaded afterwards.
            address: Device address of the memory after the upload, a multiple of 16.
            scratch: Device address of each image's buffers; see ``scratch``.
            tensors: Device address of each image's output.
            layouts: ``LAYOUT`` of each output, or one for all of them.
        """
        canvases, steps = self._canvases, self._steps
        steps_at = address + canvases.nbytes
        data_at = np.uint64(steps_at + steps.nbytes)
        if self._has_levels:
            canvases["levels"], canvases["other"] = scratch, scratch + self.scratch[:, 0].astype(np.uint64)
        canvases["tensor"], canvases["layout"] = tensors, layouts
        canvases["steps"] = canvases["steps"] * np.uint64(LEVEL_STEP.itemsize) + np.uint64(steps_at)
        canvases["erasures"] += data_at
        canvases["noise"] += data_at
        steps["data"] += data_at
        np.concatenate((canvases.view(np.uint8), steps.view(np.uint8), self._data), out=memory)


class _Data:
    """Collects the tables and filter weights that steps refer to."""

    def __init__(self) -> None:
        self.whole = bytearray()
        self._places: dict[bytes, int] = {}

    def put(self, some: bytes) -> int:
        """Store bytes, unless the same bytes are already stored. Return their offset, which is a multiple of 16."""
        if some not in self._places:
            self._places[some] = len(self.whole)
            self.whole += some + bytes(-len(some) % _ALIGNMENT)
        return self._places[some]


def _packed(placement: Placement, plan: TensorPlan, data: _Data) -> tuple[list[bytes], Size]:
    """Return the steps of a placement as ``LEVEL_STEP``, and the sizes of its two buffers in bytes."""
    size, turn, steps, channels = placement.canvas, 0, [], len(plan.channels)
    areas = [size[0] * size[1] * channels, 0]
    for step in placement.levels:
        if channels == 1 and step.keeps_gray_values:
            continue
        steps.append(_RECORDS[type(step)](step, size, data))
        if isinstance(step, Filter) and step.kind == "blur":  # the result of the horizontal blur is float32
            areas[1 - turn] = max(areas[1 - turn], size[0] * size[1] * channels * 4)
        elif isinstance(step, Take | Warp | Filter):
            size, turn = step.size_after(*size), 1 - turn
            areas[turn] = max(areas[turn], size[0] * size[1] * channels)
    if plan.own:
        steps.append(_struct(f"own_{plan.own}"))
    return steps, (areas[0], areas[1])


def _erasures(placement: Placement, plan: TensorPlan) -> bytes:
    """Return the erasures of a placement as ``ERASURE`` structs, clipped to the tensor."""
    height, width = placement.size
    made = np.zeros(len(placement.erasures), ERASURE)
    for struct, step in zip(made, placement.erasures, strict=True):
        values = step.noise or _bits(np.array(step.values), plan)
        struct["values"][: len(values)], struct["is_noise"] = values, step.noise is not None
        struct["top"], struct["left"] = step.top, step.left
        struct["height"], struct["width"] = min(step.height, height - step.top), min(step.width, width - step.left)
    return made.tobytes()


def _bits(values: npt.NDArray[Any], plan: TensorPlan) -> npt.NDArray[Any]:
    """Convert values to the tensor's dtype, and return their bits as unsigned integers of the same size."""
    cast = plan.spec.cast(values)
    return cast.view(f"u{cast.itemsize}")


def _blend(step: Blend, _: Size, __: _Data) -> bytes:
    return _struct(f"blend_{step.gray}", step.like, factor=step.factor, matrix=(1 - step.factor,))


def _take(step: Take, _: Size, __: _Data) -> bytes:
    window = step.top, step.left, step.height, step.width
    return _struct("take", window=window, flips=step.flips, fill=step.fill, mode=MODES.index(step.mode))


def _permute(step: Permute, _: Size, __: _Data) -> bytes:
    return _struct("permute", mode=sum(channel << 2 * place for place, channel in enumerate(step.order)))


def _erase(step: Erase, _: Size, __: _Data) -> bytes:
    window = step.top, step.left, step.height, step.width
    return _struct("erase", window=window, fill=[int(level) for level in step.values])


def _filter(step: Filter, size: Size, data: _Data) -> bytes:
    weights = data.put(np.array([*step.columns, *step.rows], np.float32).tobytes())
    taps = len(step.rows), len(step.columns)
    return _struct(step.kind, step.like, factor=step.factor, window=(0, 0, *size), data=weights, whole=taps)


def _warp(step: Warp, size: Size, data: _Data) -> bytes:
    name, matrix, weights = step.computed(*size)
    return _struct(
        f"warp_{name}",
        matrix=matrix,
        data=0 if weights is None else data.put(weights.tobytes()),
        window=(step.top, step.left, step.height, step.width),
        fill=step.fill,
        whole=step.whole,
        mode=int(step.is_perspective) + 2 * MODES.index(step.padding_mode),
    )


_RECORDS: Mapping[type[LevelStep], Callable[[Any, Size, _Data], bytes]] = {
    Curve: lambda step, _, data: _struct("curve", data=data.put(step.table)),
    Blend: _blend,
    Hue: lambda step, *_: _struct("hue", step.like, factor=turn_of(step.shift, step.like)),
    ColorMatrix: lambda step, _, data: _struct("matrix", data=data.put(np.array(step.numbers, np.float32).tobytes())),
    Hsv: lambda step, size, data: _struct("hsv", window=(step.saturation, step.value, *size), data=data.put(step.hues)),
    Tone: lambda step, *_: _struct(step.kind, step.like),
    Take: _take,
    Permute: _permute,
    Erase: _erase,
    Filter: _filter,
    Warp: _warp,
}
"""Functions that return a step as a ``LEVEL_STEP`` struct for an image of the given size."""

_NONE = (0.0,) * 9
_KINDS = {kind: number for number, kind in enumerate(KINDS)}


def _struct(
    kind: str,
    like: BlendLike = "pillow",
    *,
    matrix: Sequence[float] = _NONE,
    data: int = 0,
    factor: float = 0.0,
    window: Sequence[int] = (0, 0, 0, 0),
    flips: tuple[bool, bool] = (False, False),
    fill: Sequence[int] | None = (),
    whole: tuple[int, int] = (0, 0),
    mode: int = 0,
) -> bytes:
    colour = -1 if fill is None else sum(level << 8 * channel for channel, level in enumerate(fill))
    numbers = _KINDS[kind], LIKES.index(like), factor, 1 - factor, *window, *flips, colour, *whole, mode
    return pack_step(*matrix, *_NONE[len(matrix) :], data, *numbers)
