"""Runs plans that change the whole image before its geometry, or that resize it again after steps on pixel values.

The CUDA kernels of ``GpuKernel`` resize an image once, and then change its pixel values. Such a plan is therefore split
into stages: each one has at most one resize, at its beginning. All stages except for the last one produce images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import cupy
import numpy as np

from pixprep.engine.kernels import Kernel
from pixprep.engine.kernels.staged import image_plan
from pixprep.gpu.kernel import GpuKernel
from pixprep.plan.folding import Geometry
from pixprep.plan.geometry_steps import Resize
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.plan.profiles import PROFILES
from pixprep.plan.profiles.windows import Axis
from pixprep.plan.steps.levels import LevelStep, Resample

T = TypeVar("T")


def stages(plan: TensorPlan) -> list[TensorPlan]:
    """Return the plans of the stages. For most plans, the only stage is the plan itself."""
    whole = plan.geometry
    images = [Geometry((), resize, (), steps) for resize, steps in _split(whole.photo, Resize) if whole.photo]
    (_, first), *rest = _split(whole.levels, Resize)
    images.append(replace(whole, photo=(), levels=first, erasures=()))
    images += [Geometry((), resize, (), steps) for resize, steps in rest]
    if (small := _thumbnail_of_tiles(whole)) is not None:  # the last stage copies and resizes the tiles
        images.append(Geometry((), small, ()))
    last = replace(images.pop(), erasures=whole.erasures)
    return [*(image_plan(plan, geometry) for geometry in images), replace(plan, geometry=last)]


def placements_of(geometry: Geometry, placement: Placement, height: int, width: int) -> list[Placement]:
    """Return the placements of an image of this size in all stages.

    Args:
        geometry: Geometry of the whole plan.
        placement: Placement of the image in the whole plan.
        height: Height of the decoded image in pixels.
        width: Width of the decoded image in pixels.
    """
    found, size = list[Placement](), (height, width)
    for resample, steps in _split(placement.photo, Resample) if geometry.photo else ():
        found.append(_placed(resample, steps, *size))
        size = found[-1].size
    (_, first), *rest = _split(placement.levels, Resample)
    found.append(placement._replace(photo=(), levels=first, erasures=()))
    for resample, steps in rest:
        found.append(_placed(resample, steps, *found[-1].size))
    if _thumbnail_of_tiles(geometry) is not None:
        size, thumbnail = found[-1].size, placement.thumbnail
        small = None if thumbnail is None else _placed(cast("Resample", thumbnail.levels[-1]), (), *size)
        found.append(_placed(None, (), *size)._replace(thumbnail=small))
    found[-1] = found[-1]._replace(
        erasures=placement.erasures, cuts=placement.cuts, frames=placement.frames, frame=placement.frame
    )
    return found


def _thumbnail_of_tiles(geometry: Geometry) -> Resize | None:
    """Return the resize of the thumbnail, if the thumbnail is computed from the tiles instead of the photo."""
    thumbnail = geometry.thumbnail
    if thumbnail is None or len(thumbnail.levels) == len(geometry.levels):
        return None
    return cast("Resize", thumbnail.levels[-1])


def _split(steps: Iterable[Any], kind: type[T]) -> Iterator[tuple[T | None, tuple[Any, ...]]]:
    """Split steps before each step of a kind. Yield that step, or None for the first part, and the steps after it."""
    first, part = None, list[Any]()
    for step in steps:
        if isinstance(step, kind):
            yield first, tuple(part)
            first, part = step, []
        else:
            part.append(step)
    yield first, tuple(part)


def _placed(resample: Resample | None, steps: tuple[LevelStep, ...], height: int, width: int) -> Placement:
    """Return the placement of a stage that resizes a whole image, and then applies steps; see ``resampled``."""
    placement = Geometry((), None, ()).place(height, width)._replace(levels=steps)
    if resample is None or (resample.height, resample.width) == (height, width):
        return placement
    out, begin, (top, left) = (resample.height, resample.width), resample.begin, (0, 0)
    corner = PROFILES[resample.like].corner
    if corner is not None and begin != (0.0, 0.0):
        axes = zip((height, width), out, resample.ratio, begin, strict=True)
        top, left = corner(
            resample.method, *(Axis(length, side, ratio, 0, side, at) for length, side, ratio, at in axes)
        )
    return placement._replace(
        box=(top, left, height, width),
        resized=out,
        ratio=resample.ratio,
        region=(0, 0, *out),
        canvas=out,
        begin=(begin[0] - top, begin[1] - left),
    )


def gpu_kernel(plan: TensorPlan, *, plain: bool = False) -> Kernel:
    """Return the CUDA kernels of a plan. With ``plain=True``, no stage uses fast.cu."""
    kernels = [GpuKernel(stage, plain=plain) for stage in stages(plan)]
    return kernels[0] if len(kernels) == 1 else StagedGpuKernel(plan, kernels)


class StagedGpuKernel:
    """Kernel of a plan with several stages; see ``Kernel``.

    Args:
        plan: Plan with several stages.
        kernels: Kernels of the stages.
    """

    def __init__(self, plan: TensorPlan, kernels: Sequence[GpuKernel]) -> None:
        self._plan, self._kernels = plan, kernels

    def run(self, images: Sequence[Any], placements: Sequence[Placement], outs: Any, places: Sequence[int]) -> None:
        """See ``Kernel.run``. Images with the same placement object share their placements in each stage."""
        known: dict[int, list[Placement]] = {}
        for image, placement in zip(images, placements, strict=True):
            if id(placement) not in known:
                known[id(placement)] = placements_of(self._plan.geometry, placement, *image.shape[:2])
        staged = [known[id(placement)] for placement in placements]
        *first, last = self._kernels
        for stage, kernel in enumerate(first):
            these = [each[stage] for each in staged]
            results = [cupy.empty((*each.size, len(self._plan.channels)), np.uint8) for each in these]
            kernel.run(images, these, results, range(len(results)))
            images = results
        last.run(images, [each[-1] for each in staged], outs, places)
