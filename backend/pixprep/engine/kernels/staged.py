"""Plans that are cut in two: by operators of the user's, each of which has the image between its parts to itself.

What comes before an operator on levels gives an image, uint8 (height, width, channels); what comes after takes it as
pixels. So the kernels of each device do both as they do any plan, and know no operator. On a GPU a ``Mix`` and an
elastic displacement are one, too, which the host does. Steps on the levels of the whole photo, before its geometry, are
a part of their own. The image is written and read once more for each operator: 0.3 ms for 224 x 224, on a busy machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from pixprep.engine.decoders import Pixels
from pixprep.engine.kernels import Array, Kernel
from pixprep.engine.kernels.levels import done
from pixprep.errors import ImageError, SetupError
from pixprep.plan.folding import Geometry
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.plan.steps.levels import LevelStep, size_after
from pixprep.plan.steps.operators import Arrays, Extern
from pixprep.spec import DType, TensorSpec

T = TypeVar("T")


class Parts(Protocol):
    """Parts of a device that operators need.

    Attributes:
        library: whose arrays it has.
    """

    library: Arrays

    def kernel(self, plan: TensorPlan) -> Kernel:
        """The kernel of a part."""

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """An array on the device, its values not set."""

    def readable(self, array: Array) -> Array:
        """Convert an operator's array to one that kernels read."""

    def on_host(self, array: Array) -> Any:
        """A copy of an array as NumPy's."""

    def copy(self, value: Any, out: Array) -> None:
        """Write what an operator gave, NumPy's or the device's, into an array of the same shape and dtype."""


class StagedKernel:
    """See ``Kernel``.

    Raises:
        SetupError: an operator takes no arrays of this device.
    """

    def __init__(self, plan: TensorPlan, device: Parts) -> None:
        for each in plan.operators:
            if "numpy" not in each.operator.arrays and device.library not in each.operator.arrays:
                raise SetupError(f'the operator {each.operator} takes CuPy arrays: take device="gpu"')
        self._plan = plan
        self._device = device
        self._order = [plan.channels.index(channel) for channel in range(len(plan.channels))]
        self._fill = tuple(plan.fill[place] for place in self._order)  # of decoded channels
        self._levels = [steps for steps, _ in _cut(plan.geometry.levels)]
        self._parts = [self._part(part) for part in range(len(self._levels))]
        photo = plan.geometry.photo
        self._photo = self._kernel(Geometry((), None, (), photo), is_last=False) if photo else None

    def run(
        self, images: Sequence[Pixels], placements: Sequence[Placement], outs: Array, places: Sequence[int]
    ) -> Mapping[int, ImageError]:
        """See ``Kernel.run``."""
        failed: dict[int, ImageError] = {}
        for index, (pixels, placement, place) in enumerate(zip(images, placements, places, strict=True)):
            try:
                self._run(pixels, placement, outs[place : place + 1])
            except ImageError as error:
                failed[index] = error.as_value()
        return failed

    def _run(self, pixels: Pixels, placement: Placement, out: Array) -> None:
        erasures = placement.erasures  # of the tensor
        if self._photo is not None:
            placed = Geometry((), None, ()).place(*pixels.shape[:2])._replace(levels=placement.photo)
            pixels = self._image(self._photo, pixels, placed)
        for part, (steps, call) in enumerate(_cut(placement.levels)):
            placed = placement._replace(levels=steps, erasures=erasures if call is None else ())
            if call is not None and placed.fill is not None:
                placed = placed._replace(fill=tuple(placed.fill[place] for place in self._order))
            kernel = self._parts[part]
            if call is not None:
                image = self._image(kernel, pixels, placed)
                size = size_after([call], *placed.size)
                pixels = self._called(call, image, (*size, len(self._order)), "uint8")
                placement = Geometry((), None, ()).place(*size)
            elif self._plan.calls:
                self._device.copy(self._changed(kernel, pixels, placed), out[0])
            else:
                kernel.run([pixels], [placed], out, [0])

    def _image(self, kernel: Kernel, pixels: Pixels, placed: Placement) -> Array:
        """The image after a part, uint8 (height, width, channels)."""
        image = self._device.empty((1, *placed.size, len(self._order)), "uint8")
        kernel.run([pixels], [placed], image, [0])
        return image[0]

    def _changed(self, kernel: Kernel, pixels: Pixels, placed: Placement) -> Array:
        """The tensor after its operators."""
        spec = self._plan.spec
        tensor = self._device.empty((1, *spec.shape), spec.dtype)
        kernel.run([pixels], [placed], tensor, [0])
        value = tensor[0]
        for index, call in enumerate(self._plan.calls):
            if index:  # an operator may write into what it gets, and keep what it gave
                own = self._device.empty(spec.shape, spec.dtype)
                self._device.copy(value, own)
                value = own
            spec = call.result(spec)
            value = self._called(call, value, spec.shape, spec.dtype)
        return value

    def _called(self, call: LevelStep, array: Array, shape: Sequence[int], dtype: DType) -> Array:
        """Call an operator with an array of this device: the result is one of this device again."""
        if isinstance(call, Extern) and self._device.library in call.operator.arrays:
            return self._device.readable(call.run(array, shape=shape, dtype=dtype))
        result = self._device.empty(shape, dtype)
        host = self._device.on_host(array)
        value = call.run(host, shape=shape, dtype=dtype) if isinstance(call, Extern) else done([call], host)
        self._device.copy(value, result)
        return result

    def _part(self, part: int) -> Kernel:
        """The kernel of what comes before, between or after operators on levels, whose canvases have any size."""
        geometry = replace(self._plan.geometry, photo=()) if part == 0 else Geometry((), None, ())
        is_last = part == len(self._levels) - 1
        erasures = self._plan.geometry.erasures if is_last else ()
        return self._kernel(replace(geometry, levels=self._levels[part], erasures=erasures), is_last=is_last)

    def _kernel(self, geometry: Geometry, *, is_last: bool) -> Kernel:
        """The kernel of a geometry that gives the tensor, or an image of the decoded channels."""
        plan = replace(self._plan, calls=(), geometry=geometry)
        if not is_last:
            channels = tuple(range(len(plan.channels)))
            spec = TensorSpec(shape=(-1, -1, len(channels)), dtype="uint8", layout="hwc", low=0, high=255)
            plan = replace(plan, spec=spec, fill=self._fill, channels=channels, arithmetic=())
        return self._device.kernel(plan)


def _cut(steps: Iterable[T]) -> Iterator[tuple[tuple[T, ...], Any]]:
    """The steps before each operator or host's step, and that; at last those behind the last one, and None."""
    part: list[T] = []
    for step in steps:
        if isinstance(step, Extern) or is_hosts(step):
            yield tuple(part), step
            part = []
        else:
            part.append(step)
    yield tuple(part), None


def needs_stages(plan: TensorPlan, library: Arrays) -> bool:
    """Tell whether a plan has operators, changes the levels of the whole photo, or has steps that a host has to do."""
    has_hosts = library != "numpy" and any(map(is_hosts, plan.geometry.levels))
    return bool(plan.operators or plan.geometry.photo or has_hosts)


def is_hosts(step: object) -> bool:
    """Tell whether a GPU has no kernel for a step, so that the host does it."""
    return bool(getattr(step, "is_hosts", False))
