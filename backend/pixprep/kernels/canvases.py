"""What levels.cu is launched with: the canvases of a chunk, and the steps of each image. No CUDA: it runs anywhere.

Where a plan has levels, the two passes write a canvas of uint8 in place of the tensor. levels.cu then does each image's
own list of steps, one block an image, and writes the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pixprep.errors import unreachable
from pixprep.kernels.structs import ALIGNMENT, CANVAS, LEVEL_STEP
from pixprep.levels import Blend, Curve, Erase, Filter, Hue, LevelStep, Take, Tone, Warp, size_after
from pixprep.plan import Placement, TensorPlan
from pixprep.spec import ColorLike

U8 = npt.NDArray[np.uint8]

KINDS = ("curve", "blend_own", "blend_mean", "hue", "autocontrast", "equalize", "erase", "take")
"""What levels.cu calls the steps: LEVEL_CURVE..."""
LIKES: tuple[str, ...] = get_args(ColorLike)


def canvas_plan(plan: TensorPlan) -> TensorPlan:
    """The plan whose tensors are the canvases: of the decoded channels in their order; without levels the plan itself."""
    if not plan.geometry.levels:
        return plan
    height, width = plan.spec.shape[1:] if plan.spec.layout == "chw" else plan.spec.shape[:2]
    decoded = sorted(zip(plan.channels, plan.fill, strict=True))
    spec = replace(plan.spec, shape=(height, width, len(decoded)), dtype="uint8", layout="hwc", low=0.0, high=255.0)
    channels, fill = zip(*decoded, strict=True)
    return replace(plan, spec=spec, fill=fill, channels=channels, arithmetic=())


class Canvases:
    """The canvases and the steps of a chunk.

    Attributes:
        n_bytes: of the structs and what belongs to the steps.
        scratch: (n, 2) bytes, multiples of ``ALIGNMENT``: what each image needs for its canvas, and for what a step
            makes of other places of it.
    """

    def __init__(self, placements: Sequence[Placement], channels: int) -> None:
        self._steps: list[tuple[Any, ...]] = []
        self._data: list[bytes] = []
        self._data_bytes = 0
        lists: dict[int, tuple[int, int]] = {}
        areas: dict[int, tuple[int, int]] = {}
        canvases = np.zeros(len(placements), CANVAS)
        for canvas, placement in zip(canvases, placements, strict=True):
            which = id(placement)
            if which not in lists:
                lists[which] = len(self._steps), len(placement.levels)
                self._steps.extend(map(self._packed, placement.levels))
                areas[which] = _areas(placement)
            canvas["steps"], canvas["step_count"] = lists[which]
            canvas["height"], canvas["width"] = placement.canvas
        self._canvases = canvases
        pixels = np.array([areas[id(placement)] for placement in placements], np.int64)
        self.scratch = -(-pixels * channels // ALIGNMENT) * ALIGNMENT

    def _packed(self, step: LevelStep) -> tuple[Any, ...]:
        """A step as ``LEVEL_STEP``; what it needs more of lies behind all steps."""
        data, begin = b"", self._data_bytes
        kind, like, factor, rest, window, flips, fill = "", LIKES[0], 0.0, 0.0, (0, 0, 0, 0), (False, False), ()
        match step:
            case Curve():
                kind, data = "curve", step.table
            case Blend():
                kind, like, factor, rest = f"blend_{step.gray}", step.like, step.factor, 1 - step.factor
            case Take():
                kind, window, flips, fill = "take", step[:4], step.flips, step.fill
            case Erase():
                kind, window, fill = "erase", step[:4], step.values
            case Hue() | Tone() | Filter() | Warp():
                raise NotImplementedError(type(step).__name__)
            case _ as never:
                unreachable(never)
        if data:
            self._data.append(data)
            self._data_bytes += len(data)
        colour = sum(level << 8 * channel for channel, level in enumerate(fill))
        return begin, KINDS.index(kind), LIKES.index(like), factor, rest, *window, *flips, colour, 0

    @cached_property
    def _records(self) -> npt.NDArray[np.void]:
        return np.array(self._steps, LEVEL_STEP)

    @property
    def n_bytes(self) -> int:
        """See above."""
        return self._canvases.nbytes + self._records.nbytes + self._data_bytes

    def write(self, memory: U8, address: int, *, levels: npt.NDArray[np.uint64], tensors: Sequence[int]) -> None:
        """Put all of it into memory of ``n_bytes``.

        Args:
            memory: to be uploaded.
            address: where the kernels will find it; a multiple of 16.
            levels: where each image's ``scratch`` begins.
            tensors: the address of each image's output.
        """
        canvases, records = self._canvases, self._records
        steps_at = address + canvases.nbytes
        canvases["levels"], canvases["other"] = levels, levels + self.scratch[:, 0].astype(np.uint64)
        canvases["tensor"] = tensors
        canvases["steps"] = canvases["steps"] * np.uint64(LEVEL_STEP.itemsize) + np.uint64(steps_at)
        records["data"] += np.uint64(steps_at + records.nbytes)
        whole = (canvases.view(np.uint8), records.view(np.uint8), np.frombuffer(b"".join(self._data), np.uint8))
        np.concatenate(whole, out=memory)


def _areas(placement: Placement) -> tuple[int, int]:
    """The most pixels of the canvas, and of what steps make of other places, in turns."""
    size, areas = placement.canvas, [0, 0]
    turn = 0
    areas[turn] = size[0] * size[1]
    for step in placement.levels:
        if is_elsewhere(step):
            size, turn = size_after([step], *size), 1 - turn
            areas[turn] = max(areas[turn], size[0] * size[1])
    return areas[0], areas[1]


def is_elsewhere(step: LevelStep) -> bool:
    """Whether a pixel depends on pixels of other places, so that it cannot be written over its own."""
    return isinstance(step, Take | Warp | Filter)
