"""Batch: what an engine has made of images, and a Loader of samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels import Array
from pixprep.errors import ImageError, PipelineError
from pixprep.plan.output_plans import AnnotationPlan, MaskPlan, OutputPlan
from pixprep.plan.plan import Placed
from pixprep.registry import BATCHES, HTML, load

NO_ROW = -1
"""Value of each number of a row that no object has."""


@dataclass(eq=False, repr=False)
class Batch:
    """The results of one batch: a row for each image, or, of a pipeline that takes boxes, for each box.

    All that is said of an image below is then said of a box.

    Attributes:
        outputs: for each output that was asked for an array (images, *shape); the row of a failed image is zeros. Of a
            tensor whose sides follow the image a list of arrays, each of its own size.
        errors: for each image None, or why it has no result.
        decode_s, transform_s: for each image the seconds spent on it, once its header is read; 0 for a stage it did not
            reach.
        recovered: how many of the images are damaged JPEGs that were decoded all the same (``damage="lenient"``).
        fallbacks: how many of the images the GPU's decoders refused and the CPU decoded.
        placed: for each image its size, where it lies in every output, and what was drawn; None where it has no result.
        fields: what came with the samples of a ``Loader`` and is no output: see there.
        rows: for each encoded image its rows: one; or one for each box, and one that failed where there is none.
        plans: of the outputs, by name.
        annotations: plans of those of the samples of a ``Loader``, by name.
    """

    outputs: dict[str, Array]
    errors: list[ImageError | None]
    decode_s: list[float]
    transform_s: list[float]
    recovered: int = 0
    fallbacks: int = 0
    placed: list[Placed | None] = field(default_factory=list)
    fields: Mapping[str, Any] = field(default_factory=dict)
    rows: Sequence[slice] = field(default_factory=list)
    plans: Mapping[str, OutputPlan] = field(default_factory=dict)
    annotations: Mapping[str, AnnotationPlan] = field(default_factory=dict)

    def __repr__(self) -> str:
        count, failed = len(self), sum(error is not None for error in self.errors)
        values = [f"{name} {_described(self[name])}" for name in self.keys()]
        return f"<Batch: {', '.join([f'{count:,} images', *[f'{failed:,} failed'] * bool(failed), *values])}>"

    def __getitem__(self, name: str) -> Any:
        """An output or a field by its name.

        Raises:
            KeyError: there is none of that name in this batch.
        """
        for found in (self.outputs, self.fields):
            if name in found:
                return found[name]
        raise KeyError(f'no "{name}" in this batch; there are {", ".join([*self.outputs, *self.fields])}')

    def keys(self) -> list[str]:
        """The names of the outputs and fields: ``dict(batch)`` has them all."""
        return list(dict.fromkeys((*self.outputs, *self.fields)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.outputs or name in self.fields

    def rows_of(self, index: int) -> range:
        """The rows of an encoded image, by its place among these."""
        return range(self.rows[index].start, self.rows[index].stop)

    def __len__(self) -> int:
        """Number of images; of a pipeline that takes boxes, of boxes."""
        return len(self.errors)

    def padded(self, name: str, rows: slice = slice(None)) -> Array:
        """An output or a field as one array.

        Tensors of their own sizes are padded to the largest of them, as ``tensor`` says, and masks to the same height
        and width, with ``ignore``. Boxes, labels, points and other fields of objects get rows of -1: integers are then
        int64. ``batch["sizes"]`` has the height and width of each image in its tensor.

        Args:
            name: of the output or field.
            rows: which; default: all.

        Raises:
            KeyError: there is none of that name in this batch.
            PipelineError: it is a list of other things than arrays.
        """
        values = self[name][rows]
        if not isinstance(values, list):
            return values
        if name not in self.outputs:
            return _padded_field(name, values, self.annotations.get(name), self._sides(rows))
        if len(values) == 1:
            return values[0][None]
        spec = self.plans[name].spec
        shape = [max(sides) for sides in zip(spec.least, *(value.shape for value in values), strict=True)]
        if any(hasattr(value, "get") for value in values):  # CuPy's
            return load(BATCHES["on_gpu"])(values, shape, spec)
        whole = np.full((len(values), *shape), spec.margin)
        for one, value in zip(whole, values, strict=True):
            one[tuple(map(slice, value.shape))] = value
        return whole

    def _sides(self, rows: slice) -> tuple[int, int]:
        """(height, width) of the first tensor of images, padded; (0, 0) if there is none."""
        for name, plan in self.plans.items():
            if name in self.outputs and "h" in plan.spec.lengths and "t" not in plan.spec.lengths:
                lengths = plan.spec.lengths_of(self.padded(name, rows).shape[1:])
                return lengths["h"], lengths["w"]
        return 0, 0

    @property
    def draws(self) -> list[Mapping[str, Mapping[str, Any]]]:
        """Draws of each image, by op, as JSON holds them: see ``Plan.replaying``."""
        return [placed.draws if placed else {} for placed in self.placed]

    def torch(
        self, *names: str, padded: bool = False, device: Any = None, non_blocking: bool = False, dtype: Any = None
    ) -> Any:
        """Outputs and fields as PyTorch has them, without a copy where they are on the device already.

        >>> images, labels = batch.torch("tensor", "label", device="cuda")          # doctest: +SKIP

        Args:
            names: which; default: all, as a dict.
            padded: each list of arrays as one array: see ``padded``.
            device: of PyTorch; default: where they are.
            non_blocking: copy to a GPU beside the host and the GPU's other work. Kernels of the stream that is the
                current one now wait for it; a Loader's later batches lie in pinned memory, which is used again when it
                has ended.
            dtype: one of PyTorch's floats, such as ``"bfloat16"``, of arrays of floats; others stay as they are.

        Returns:
            A tensor for each array of numbers, a list of tensors for a list of arrays; all else as it is. For one name
            the thing itself, for several a tuple in this order.

        Raises:
            KeyError: there is none of that name in this batch.
            PipelineError: ``dtype`` is none.
            SetupError: PyTorch is not installed.
        """
        return self._handed_over(
            names, "torch", is_padded=padded, device=device, non_blocking=non_blocking, dtype=dtype
        )

    def jax(self, *names: str, padded: bool = False, device: Any = None, dtype: Any = None) -> Any:
        """The same as JAX arrays. JAX makes 32-bit numbers of 64-bit ones, unless ``jax_enable_x64`` is set."""
        return self._handed_over(names, "jax", is_padded=padded, device=device, dtype=dtype)

    def tf(self, *names: str, padded: bool = False, dtype: Any = None) -> Any:
        """The same as TensorFlow tensors, texts too; a list of arrays is a list of tensors."""
        return self._handed_over(names, "tensorflow", is_padded=padded, dtype=dtype)

    def cupy(self, *names: str, non_blocking: bool = False) -> Any:
        """The same as CuPy arrays, on the GPU. A copy from pinned memory is queued on the current stream."""
        return self._handed_over(names, "cupy", non_blocking=non_blocking)

    def _handed_over(self, names: Sequence[str], library: Any, **options: Any) -> Any:
        return load(BATCHES["handed_over"])(self, names, library, **options)

    def _repr_html_(self) -> str:
        html: str = load(HTML["Batch"])(self)
        return html


def _described(value: Any) -> str:
    """Type and shape of an output or a field, such as ``float32 [64, 3, 224, 224]``."""
    if hasattr(value, "shape"):
        return f"{value.dtype} {[*value.shape]}"
    return (
        f"list of {len(value)}, such as {_described(value[0])}"
        if isinstance(value, list) and value
        else type(value).__name__
    )


def _padded_field(
    name: str, values: Sequence[Any], plan: AnnotationPlan | None, sides: tuple[int, int]
) -> npt.NDArray[Any]:
    """A field of several images as one array.

    Args:
        name: of the field.
        values: of each image an array, or None, which has no row.
        plan: of a mask: its labels where no image is; of others None.
        sides: (height, width) that a mask has at least: those of the padded tensor.

    Returns:
        (images, most rows, ...), -1 in the rows that an image lacks; of a mask (images, height, width), and of masks
        (images, most rows, height, width), with what ``ignore`` says below, on the right, and in rows that are missing.

    Raises:
        PipelineError: they are no arrays of numbers that differ in rows alone.
    """
    arrays = [np.asarray(each) if each is not None else None for each in values]
    some = [each for each in arrays if each is not None]
    is_mask, rank = isinstance(plan, MaskPlan), max((each.ndim for each in some), default=0)
    alike = {(each.ndim, *(() if is_mask else each.shape[1:])) for each in some if each.size or is_mask}
    if not rank or len(alike) > 1 or any(each.dtype.kind not in "biuf" for each in some):
        raise PipelineError(f'padded: "{name}" is no list of arrays that differ in their rows alone')
    shape = [max(lengths) for lengths in zip(*(each.shape for each in some if each.ndim == rank), strict=True)]
    dtype = np.result_type(*some)
    if is_mask:
        assert isinstance(plan, MaskPlan)
        shape[-2:] = [max(pair) for pair in zip(shape[-2:], sides, strict=True)]
        whole = np.full((len(arrays), *shape), plan.ignore, dtype)
    else:
        whole = np.full((len(arrays), *shape), NO_ROW, np.int64 if dtype.kind in "bu" else dtype)
    for one, array in zip(whole, arrays, strict=True):
        if array is not None and array.size:
            one[tuple(map(slice, array.shape))] = array
    return whole
