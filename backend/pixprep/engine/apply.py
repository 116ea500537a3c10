"""Apply ops directly to arrays, without a pipeline file, an engine or a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from os import PathLike
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pixprep.engine.annotations import read_field
from pixprep.engine.decoders.pixels import checked, levels, shaped
from pixprep.engine.devices import device_for
from pixprep.engine.kernels import Kernel
from pixprep.engine.kernels.levels import trimmed
from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.forks import drawn
from pixprep.pipeline.ops import AnnotationOp, Extern, FirstOp, Op, OutputOp, Pixels, Tensor, Trim
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.pipeline import checked as checked_op
from pixprep.pipeline.walk import Item, at, items, nodes
from pixprep.plan.draws import philox
from pixprep.plan.draws.augments import RandomStep
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.plan.plan import Plan
from pixprep.plan.steps.operators import Extern as Use
from pixprep.plan.steps.operators import Operator, OperatorCall, find, listed
from pixprep.spec import Color, Frames, ImageSpec, TensorSpec

Array = npt.NDArray[Any]
RECENT = 32
"""Number of op lists whose plans are cached."""
UNLIMITED = 1 << 31
"""Maximum height or width that a plan assumes for an image of unlimited size."""


def apply(
    ops: Op | OperatorCall | Sequence[Op | OperatorCall],
    pixels: Any,
    *,
    seed: int = 0,
    epoch: int = 0,
    index: int = 0,
    boxes: Any = None,
    operators: Sequence[Operator | str] = (),
) -> Any:
    """Apply ops on the CPU to an array, or to each array of a list.

    The result is identical to that of a pipeline with these ops.

    >>> import numpy as np, pixprep as pp
    >>> pp.apply([pp.resize(256)], np.zeros((480, 640, 3), np.uint8)).shape
    (256, 341, 3)

    Args:
        ops: One op, or a list of ops. The first op may be ``pixels``, which specifies the format of the input. After
            ``tensor``, which specifies the dtype and the layout of the result, only custom operators on tensors may
            follow.
        pixels: Array of uint8, (height, width, 3) RGB, or (height, width, 1) or (height, width) gray, as for
            ``Engine.run``; or a list of such arrays, whose sizes may differ. The arrays are not modified.
        seed: Seed of the random ops, 0 to 2^32 - 1. The random parameters depend only on ``seed``, ``epoch`` and
            ``index``, and equal those of a ``Loader`` with this seed for the same sample and epoch.
        epoch: Epoch, 0 to 2^32 - 1.
        index: Index of the sample. For a list, the index of its first sample; the i-th array has ``index + i``.
        boxes: Boxes of the image for ops such as ``random_iou_crop``, (n, 4), xyxy in pixels. For a list, one array per
            image.
        operators: Custom operators to which ``extern`` ops refer; see ``Pipeline``.

    Returns:
        A new array (height, width, channels), or (height, width) if the input had no channel axis; for a list, a list
        of arrays. The dtype is uint8, or float32 if the values are not integers from 0 to 255, as after ``normalize``.
        If the ops contain ``tensor``, it determines the dtype and the layout.

    Raises:
        PipelineError: The ops are invalid, or cannot be combined.
        ImageError: An image is too small for an op, or its shape does not fit the ops.
        TypeError: ``pixels`` is not an array of uint8 or a list of such arrays, or ``ops`` is a ``Pipeline``.
    """
    if isinstance(ops, Pipeline):
        raise TypeError("apply accepts ops, not a Pipeline: run a Pipeline with an Engine")
    single = isinstance(ops, Op | OperatorCall | Operator)
    listed_ops = (ops,) if single else tuple(ops)  # type: ignore[arg-type]
    chain = _chain(listed_ops, tuple(operators) if isinstance(operators, list) else operators, boxes is not None)
    dtypes = chain.first.frames.dtypes if chain.first else ("uint8",)
    if not isinstance(pixels, list | tuple):
        return _apply_to(chain, _array(pixels, dtypes), (seed, epoch, index), boxes)
    if boxes is not None and len(boxes) != len(pixels):
        raise PipelineError(f"boxes must contain one array per image, {len(pixels)}, not {len(boxes)}")
    results = []
    for i, one in enumerate(pixels):
        which = f"image {i + 1} of {len(pixels)}"
        array = _array(one, dtypes, which)
        try:
            sample = seed, epoch, index + i
            result = _apply_to(chain, array, sample, None if boxes is None else boxes[i])
        except ImageError as error:
            raise ImageError(error.reason, f"{which}: {error.detail}") from None
        results.append(result)
    return results


def _array(value: Any, dtypes: Sequence[str], which: str = "") -> Array:
    """Convert a value to the pixels of one image.

    Args:
        value: Array that the caller passed.
        dtypes: Accepted dtypes.
        which: Description of the image for error messages, such as ``image 1 of 2``.

    Raises:
        ImageError: UNSUPPORTED: The array contains several images.
        TypeError: The value is not an array of uint8.
    """
    begin = f"{which}: " * bool(which)
    if not isinstance(value, np.ndarray) and isinstance(value, str | bytes | bytearray | memoryview | PathLike):
        hint = "numpy.asarray(PIL.Image.open(path)) reads the pixels of a file"
        raise TypeError(f"{begin}apply accepts arrays, not {type(value).__name__}: {hint}")
    array: Array = checked(value, which=which, dtypes=dtypes)
    if array.ndim == 4:
        raise ImageError("UNSUPPORTED", f"{begin}an array {array.shape} contains {len(array)} images: pass list(array)")
    return array


def _cached(function: Callable[..., Any]) -> Callable[..., Any]:
    """Cache the last results of a function for hashable arguments, so that successive arrays share one plan."""
    kept = lru_cache(RECENT)(function)

    def call(*arguments: Any) -> Any:
        try:
            return kept(*arguments)
        except TypeError:  # an op has a field that is a list, which is not hashable
            return function(*arguments)

    return call


@dataclass(frozen=True, eq=False)
class _Chain:
    """A validated list of ops.

    Attributes:
        first: The op ``pixels`` at the beginning of the list, if any.
        ops: Ops on the image, with their indices in the list.
        tensor: The op ``tensor``, if any.
        calls: Calls of custom operators after ``tensor``.
        operators: Custom operators to which ``extern`` ops may refer.
    """

    first: Pixels | None
    ops: tuple[Item, ...]
    tensor: Tensor | None
    calls: tuple[Use, ...]
    operators: tuple[Operator | str, ...]

    @cached_property
    def chooses(self) -> bool:
        """Whether an op chooses between geometric ops at random."""
        return tuple(drawn(self.ops, lambda _: ())) != self.ops


class _Prepared(NamedTuple):
    """Ops that are prepared for an image of known size.

    Attributes:
        placement: Placement of the image.
        kernel: Kernel that computes the result.
        shape: Shape of the result.
        dtype: Dtype of the result.
        is_bgr: Whether the kernel receives the channels in reverse order.
    """

    placement: Placement
    kernel: Kernel
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_bgr: bool


@_cached
def _chain(ops: Sequence[Op | OperatorCall], operators: Sequence[Operator | str], has_boxes: bool) -> _Chain:
    first, tensor = None, None
    steps: list[tuple[int, Op]] = []
    calls: list[Use] = []
    known = [*listed(operators)]
    for index, each in enumerate(ops):
        op = checked_op(index, each, known)
        with at(index, op):
            if op.inputs(ImageSpec()):
                raise PipelineError("apply does not support per-request inputs: use an Engine")
            if op.from_ is not None or op.only is not None:
                raise PipelineError('apply runs all ops in order and does not support "from" and "only": remove them')
            if tensor is not None:
                if not isinstance(op, Extern):
                    raise PipelineError("only custom operators on tensors may follow tensor: move this op before it")
                call = find(op.operator, op.version, known).use(op.fields)
                if call.operator.place != "tensor":
                    raise PipelineError(f"the operator {call.operator} changes pixel values: move it before tensor")
                calls.append(call)
            elif isinstance(op, Pixels) and index == 0:
                first = op
            elif isinstance(op, Tensor):
                tensor = op
            elif isinstance(op, FirstOp):
                if isinstance(op, Pixels):
                    raise PipelineError("must be the first op")
                raise PipelineError("apply receives decoded pixels: remove this op")
            elif isinstance(op, OutputOp | AnnotationOp):
                raise PipelineError(
                    "apply returns only the image: use an Engine for other outputs, or a Loader for annotations"
                )
            elif fields := getattr(op, "sees", ()):
                if fields != ("boxes",):
                    raise PipelineError(
                        f'requires the sample field "{fields[-1]}", which apply does not support: use a Loader'
                    )
                if not has_boxes:
                    example = "apply(ops, pixels, boxes=[[left, top, right, bottom]])"
                    raise PipelineError(f"requires the boxes of the image, such as {example}")
                steps.append((index, op))
            else:
                steps.append((index, op))
    return _Chain(first, tuple(items(steps)), tensor, tuple(calls), tuple(known))


def _apply_to(chain: _Chain, array: Array, sample: tuple[int, int, int], boxes: Any) -> Array:
    """Apply the ops to one array; its random parameters depend on ``sample``, (seed, epoch, index)."""
    seed, epoch, index = sample
    is_gray = array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 1)
    color: Color = "gray" if is_gray else "rgb"
    pixels = levels(shaped(array, chain.first.frames if chain.first else Frames(color)))
    if 0 in pixels.shape:
        raise ImageError("BAD_DIMENSIONS", f"{array.shape[0]} x {array.shape[1]} pixels: the image is empty")
    if chain.ops and isinstance(op := chain.ops[0].op, Trim):
        order = -1 if chain.first is not None and chain.first.frames.order == "bgr" else 1
        pixels = trimmed(op.step(), pixels[:, :, ::order])[:, :, ::order]
        chain = _with_ops(chain, chain.ops[1:])
    if chain.chooses:
        chain = _with_ops(chain, tuple(drawn(chain.ops, lambda step: _selected(step, sample))))
    plan = _compiled(chain, color)[0]
    if boxes is None and seed == epoch == 0 <= index and not plan.is_random:  # ``draw`` checks all other numbers
        prepared = _prepared_by_size(chain, color, *pixels.shape[:2])
    else:
        (numbers,) = plan.draw(seed=seed, epoch=epoch, indices=[index])
        place = plan.placing(numbers, None if boxes is None else {"boxes": read_field({"boxes": boxes}, "boxes", 4)})
        prepared = _prepared(chain, color, place(*pixels.shape[:2]).placements["image"])
    out = np.empty((1, *prepared.shape), prepared.dtype)
    given = pixels[:, :, ::-1] if prepared.is_bgr else pixels
    failed = prepared.kernel.run([given], [prepared.placement], out, [0])
    if failed:
        raise failed[0]
    result: Array = out[0]
    return result[:, :, 0] if array.ndim == 2 and chain.tensor is None else result


def _selected(step: RandomStep, sample: tuple[int, int, int]) -> Sequence[int]:
    """Return the indices of the branches that a random choice selects for a sample."""
    seed, epoch, index = sample
    (numbers,) = philox.draw([step], seed=seed, epoch=epoch, indices=[index])
    parts: Sequence[int] = step.words(1, 1, numbers)["chosen"]
    return parts


@_cached
def _with_ops(chain: _Chain, ops: tuple[Item, ...]) -> _Chain:
    """Return a copy of the chain with different ops, for example the selected branches of its random choices.

    Results are cached, so that equal chains share one object and therefore one plan.
    """
    return replace(chain, ops=ops)


@lru_cache(RECENT)
def _compiled(chain: _Chain, color: Color) -> tuple[Plan, TensorPlan]:
    """Return the plan for images of any size, and the plan of its only output."""
    first = chain.first or Pixels(color=color)
    *_, last = nodes([*items([(-1, first)]), *chain.ops], chain.operators)
    image = replace(
        last.image, max_height=last.image.max_height or UNLIMITED, max_width=last.image.max_width or UNLIMITED
    )
    tensor = chain.tensor or Tensor(dtype="uint8" if image.values == "levels" else "float32", layout="hwc")
    output = cast("TensorPlan", tensor.lower(last.lowered, tensor.infer(image)))
    output = replace(output, calls=chain.calls)
    return first.plan(outputs={"image": output}), output


@lru_cache(RECENT)
def _prepared_by_size(chain: _Chain, color: Color, height: int, width: int) -> _Prepared:
    """Prepare a plan without random parameters for images of this size."""
    return _prepared(chain, color, _compiled(chain, color)[0].place(height, width).placements["image"])


def _prepared(chain: _Chain, color: Color, placement: Placement) -> _Prepared:
    plan, output = _compiled(chain, color)
    shape = output.spec.shape_of(*placement.views)
    kernel, spec = _kernel(chain, color, shape if chain.operators else None)
    is_bgr = plan.takes is not None and plan.takes.order == "bgr"
    return _Prepared(placement, kernel, spec.shape if chain.operators else shape, spec.array_dtype, is_bgr)


@lru_cache(RECENT)
def _kernel(chain: _Chain, color: Color, shape: tuple[int, ...] | None) -> tuple[Kernel, TensorSpec]:
    """Return the kernel and the spec of its output.

    Args:
        chain: The ops.
        color: Color of the image.
        shape: Shape of the tensor, which custom operators need to know in advance. None means any shape.
    """
    _, output = _compiled(chain, color)
    spec = output.spec if shape is None else replace(output.spec, shape=shape, most=())
    kernel = device_for("cpu", threads=1).kernel(replace(output, spec=spec))
    for call in chain.calls:
        spec = call.result(spec)
    return kernel, spec
