"""Run plans with custom operators. The operators split a plan into parts, and process the image between the parts.

The part before an operator on pixel values writes an image, uint8 (height, width, channels), and the part after it
reads the result of the operator as its pixels. Each part is a plan without operators, which ``CpuKernel`` runs. Steps
that process the complete image before its geometry form a separate part. After a ``Trim``, the placement is computed
again from the new size of the image. Each operator requires that the image is written and read once more, which takes
0.3 ms for 224 x 224 pixels on a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from pixprep.engine.kernels import Array, Kernel
from pixprep.engine.kernels.kernel import CpuKernel
from pixprep.engine.kernels.levels import trimmed
from pixprep.errors import ImageError
from pixprep.plan.folding import Geometry
from pixprep.plan.geometry_steps import LevelsStep
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.plan.steps.levels import size_after
from pixprep.plan.steps.operators import Extern
from pixprep.spec import TensorSpec

T = TypeVar("T", bound=LevelsStep)
Run = Callable[..., Any]
"""``Extern.run``, or a function with the same arguments that passes arrays of a different library to the operator."""


def kernel_of(plan: TensorPlan, run: Run = Extern.run) -> Kernel:
    """Return the CPU kernel of a plan. ``run`` calls its custom operators."""
    return StagedKernel(plan, run) if plan.operators or plan.geometry.photo else CpuKernel(plan)


class StagedKernel:
    """See ``Kernel`` and ``kernel_of``."""

    def __init__(self, plan: TensorPlan, run: Run) -> None:
        self._plan = plan
        self._call = run
        self._order = [plan.channels.index(channel) for channel in range(len(plan.channels))]
        self._levels = [steps for steps, _ in _split(plan.geometry.levels)]
        self._parts = [self._part(part) for part in range(len(self._levels))]
        trim, photo = plan.geometry.trim, plan.geometry.photo
        self._trim, photo = trim, photo[int(trim is not None) :]
        self._trimmed = replace(plan.geometry, photo=photo)
        self._photo = CpuKernel(image_plan(plan, Geometry((), None, (), photo))) if photo else None

    def run(
        self, images: Sequence[Array], placements: Sequence[Placement], outs: Array, places: Sequence[int]
    ) -> Mapping[int, ImageError]:
        """See ``Kernel.run``."""
        failed: dict[int, ImageError] = {}
        for index, (pixels, placement, place) in enumerate(zip(images, placements, places, strict=True)):
            try:
                self._run(pixels, placement, outs[place])
            except ImageError as error:
                failed[index] = error.as_value()
        return failed

    def _run(self, pixels: Array, placement: Placement, out: Array) -> None:
        erasures = placement.erasures  # applied to the tensor, not to the image
        if self._trim is not None:
            pixels = trimmed(self._trim, pixels)
            placement = self._trimmed.place(*pixels.shape[:2])
        if self._photo is not None:
            placed = Geometry((), None, ()).place(*pixels.shape[:2])._replace(levels=placement.photo)
            pixels = self._image(self._photo, pixels, placed)
        for part, (steps, call) in enumerate(_split(placement.levels)):
            placed = placement._replace(levels=steps, erasures=erasures if call is None else ())
            if call is not None and placed.fill is not None:
                placed = placed._replace(fill=tuple(placed.fill[index] for index in self._order))
            kernel = self._parts[part]
            if call is not None:
                image = self._image(kernel, pixels, placed)
                size = size_after([call], *placed.size)
                pixels = self._call(call, image, shape=(*size, len(self._order)), dtype="uint8")
                placed = Geometry((), None, ()).place(*size)
                placement = placed._replace(frames=placement.frames, frame=placement.frame)
            elif self._plan.calls:
                out[...] = self._tensor(kernel, pixels, placed)
            else:
                kernel.run([pixels], [placed], out[None], [0])

    def _image(self, kernel: CpuKernel, pixels: Array, placed: Placement) -> Array:
        """Run a part that produces an image, and return it as uint8 (height, width, channels)."""
        image: Array = np.empty((1, *placed.size, len(self._order)), np.uint8)
        kernel.run([pixels], [placed], image, [0])
        return image[0]

    def _tensor(self, kernel: CpuKernel, pixels: Array, placed: Placement) -> Array:
        """Run the last part, and return its tensor after the custom operators on tensors."""
        spec = self._plan.spec
        tensor: Array = np.empty((1, *spec.shape), spec.array_dtype)
        kernel.run([pixels], [placed], tensor, [0])
        value = tensor[0]
        for index, call in enumerate(self._plan.calls):
            if index:  # copy, because an operator may modify its input, and keep a reference to its result
                value = np.array(value, order="C")
            spec = call.result(spec)
            value = self._call(call, value, shape=spec.shape, dtype=spec.dtype)
        return value

    def _part(self, part: int) -> CpuKernel:
        """Return the kernel of one part, which supports any canvas size."""
        geometry = replace(self._plan.geometry, photo=()) if part == 0 else Geometry((), None, ())
        is_last = part == len(self._levels) - 1
        geometry = replace(
            geometry, levels=self._levels[part], erasures=self._plan.geometry.erasures if is_last else ()
        )
        return CpuKernel(
            replace(self._plan, calls=(), geometry=geometry) if is_last else image_plan(self._plan, geometry)
        )


def image_plan(plan: TensorPlan, geometry: Geometry) -> TensorPlan:
    """Return a plan with this geometry that produces an image, uint8 (height, width, channels), instead of a tensor."""
    channels = tuple(range(len(plan.channels)))
    fill = tuple(plan.fill[plan.channels.index(channel)] for channel in channels)  # in decoded channel order
    spec = TensorSpec(shape=(-1, -1, len(channels)), dtype="uint8", layout="hwc", low=0, high=255)
    return replace(
        plan,
        calls=(),
        geometry=geometry,
        spec=spec,
        fill=fill,
        channels=channels,
        arithmetic=(),
        fill_value=None,
        luma=None,
    )


def _split(steps: Iterable[T]) -> Iterator[tuple[tuple[T, ...], Any]]:
    """Split steps at custom operators: yield (steps before it, operator) for each, and last (remaining steps, None)."""
    part: list[T] = []
    for step in steps:
        if step.is_call:
            yield tuple(part), step
            part = []
        else:
            part.append(step)
    yield tuple(part), None
