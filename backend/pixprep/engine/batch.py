"""``Batch``: the results of an engine for a list of images, or of a ``Loader`` for a list of samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels import Array
from pixprep.errors import ImageError, PipelineError
from pixprep.plan.output_plans import NO_ROW, AnnotationPlan, MaskPlan, OutputPlan, TargetPlan
from pixprep.plan.plan import Placed
from pixprep.registry import BATCHES, HTML, load


@dataclass(eq=False, repr=False)
class Batch:
    """The results of one batch, with one row per image, or one row per box for a pipeline with boxes.

    For a pipeline with boxes, "image" below means "box".

    Attributes:
        outputs: Outputs by name, as arrays (images, *shape). The row of a failed image contains zeros. If the shape of
            an output depends on the image, the output is a list with one array per image.
        errors: Error of each image, or None if the image was processed successfully.
        decode_s: Time in seconds for decoding each image, excluding the time for reading its header; 0 if the image was
            not decoded.
        transform_s: Time in seconds for computing the outputs of each image; 0 if the image failed earlier.
        recovered: Number of damaged images that were decoded (``damage="lenient"`` or ``"pillow"``).
        fallbacks: Number of images that the decoders of the GPU rejected and the CPU decoded.
        placed: Size of each image, its placement in every output, and its random parameters; None if the image failed.
        fields: Fields of the samples of a ``Loader`` that are not outputs, by name.
        rows: Slice of the rows of each encoded image: one row, or one row per box. An image without boxes has one row,
            which contains an error.
        plans: Plans of the outputs, by name.
        annotations: Plans of the annotations of a ``Loader``, by name.
        queued: Work that is queued on the device because ``run_batch`` did not wait for it.
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
    queued: list[Any] = field(default_factory=list)

    def __repr__(self) -> str:
        count, failed = len(self), sum(error is not None for error in self.errors)
        values = [f"{name} {_described(self[name])}" for name in self.keys()]
        specs = {name: plan.spec for name, plan in self.plans.items() if name in self.outputs}
        values += [f"{name} contains the bits of bfloat16" for name, spec in specs.items() if spec.dtype == "bfloat16"]
        return f"<Batch: {', '.join([f'{count:,} images', *[f'{failed:,} failed'] * bool(failed), *values])}>"

    def __getitem__(self, name: str) -> Any:
        """Return an output or a field by its name.

        Raises:
            KeyError: The batch does not contain an output or a field of this name.
        """
        for found in (self.outputs, self.fields):
            if name in found:
                return found[name]
        raise KeyError(f'the batch does not contain "{name}"; it contains {", ".join([*self.outputs, *self.fields])}')

    def keys(self) -> list[str]:
        """Return the names of the outputs and fields. ``dict(batch)`` contains all of them."""
        return list(dict.fromkeys((*self.outputs, *self.fields)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.outputs or name in self.fields

    def wait(self) -> None:
        """Wait until all outputs have been computed. This is only needed after ``run_batch`` with ``wait=False``.

        Any thread may call this method.
        """
        for each in self.queued:
            each.wait()

    def rows_of(self, index: int) -> range:
        """Return the range of the rows of an encoded image, given the index of the image in ``encoded``."""
        return range(self.rows[index].start, self.rows[index].stop)

    def __len__(self) -> int:
        """Return the number of images, or of boxes for a pipeline with boxes."""
        return len(self.errors)

    def padded(self, name: str, rows: slice = slice(None)) -> Array:
        """Return an output or a field as one padded array.

        Tensors of different sizes are padded to the largest size with the padding value of the op ``tensor``. Masks
        are padded to the same height and width with their ``ignore`` label. Boxes, labels, points and other fields
        with one row per object are padded with rows of -1, and integers are converted to int64. ``batch["sizes"]``
        contains the height and width of each image without padding.

        Args:
            name: Name of the output or field.
            rows: Rows to return. Default: all rows.

        Raises:
            KeyError: The batch does not contain an output or a field of this name.
            PipelineError: The field is not a list of numeric arrays that differ only in their number of rows.
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
        if any(hasattr(value, "get") for value in values):  # CuPy arrays
            return load(BATCHES["on_gpu"])(values, shape, spec)
        padded = np.full((len(values), *shape), spec.margin)
        for target, value in zip(padded, values, strict=True):
            target[tuple(map(slice, value.shape))] = value
        return padded

    def packed(self, name: str, rows: slice = slice(None)) -> Array:
        """Return an output as one array for a model without a batch dimension.

        The patches of all images are concatenated to one array (patches, values per patch). Any other output is
        returned as by ``padded``, with one row per image.

        Args:
            name: Name of the output.
            rows: Rows to return. Default: all rows.

        Raises:
            KeyError: The batch does not contain the output.
        """
        values = self.outputs[name][rows]
        if self.plans[name].spec.patches is None or not isinstance(values, list):
            return self.padded(name, rows)
        if len(values) == 1:
            return values[0]
        axis = self.plans[name].spec.shape.index(-1)
        if any(hasattr(value, "get") for value in values):  # CuPy arrays
            return load(BATCHES["joined"])(values, axis)
        return np.concatenate(values, axis=axis)

    def is_mask(self, name: str) -> bool:
        """Return whether a field contains masks, which have one value per pixel."""
        return name in self.annotations and self.annotations[name].is_mask

    def _sides(self, rows: slice) -> tuple[int, int]:
        """Return (height, width) of the first image tensor after padding, or (0, 0) without an image tensor."""
        for name, plan in self.plans.items():
            if name in self.outputs and "h" in plan.spec.lengths and "t" not in plan.spec.lengths:
                lengths = plan.spec.lengths_of(self.padded(name, rows).shape[1:])
                return lengths["h"], lengths["w"]
        return 0, 0

    @property
    def draws(self) -> list[Mapping[str, Mapping[str, Any]]]:
        """Random parameters of each image by op, as JSON-compatible values; see ``Plan.replaying``."""
        return [placed.draws if placed else {} for placed in self.placed]

    def torch(
        self, *names: str, padded: bool = False, device: Any = None, non_blocking: bool = False, dtype: Any = None
    ) -> Any:
        """Return outputs and fields as PyTorch tensors. Arrays that are already on ``device`` are not copied.

        >>> images, labels = batch.torch("tensor", "label", device="cuda")          # doctest: +SKIP

        Args:
            names: Names of the outputs and fields. Default: all of them, returned as a dict.
            padded: Whether to return each list of arrays as one padded tensor; see the method ``padded``.
            device: PyTorch device to copy to. Default: the device of each array.
            non_blocking: Whether to copy to a GPU asynchronously. Kernels that are later launched on the current stream
                wait for the copy. A ``Loader`` then allocates its next batches in pinned memory, and reuses this memory
                only after the copy has finished.
            dtype: Floating-point dtype of PyTorch, such as ``"bfloat16"``, to which floating-point arrays are
                converted. Other arrays keep their dtype.

        Returns:
            One value for a single name, a tuple for several names, and a dict if no names are passed. Numeric arrays
            become tensors, lists of arrays become lists of tensors, and other values are returned unchanged.

        Raises:
            KeyError: The batch does not contain an output or a field of this name.
            PipelineError: ``dtype`` is not a floating-point dtype of PyTorch.
            SetupError: PyTorch is not installed.
        """
        return self._handed_over(
            names, "torch", is_padded=padded, device=device, non_blocking=non_blocking, dtype=dtype
        )

    def jax(self, *names: str, padded: bool = False, device: Any = None, dtype: Any = None) -> Any:
        """Return outputs and fields as JAX arrays; see ``torch``.

        JAX converts 64-bit numbers to 32 bits unless ``jax_enable_x64`` is set.
        """
        return self._handed_over(names, "jax", is_padded=padded, device=device, dtype=dtype)

    def tf(self, *names: str, padded: bool = False, dtype: Any = None) -> Any:
        """Return outputs and fields as TensorFlow tensors, including strings; see ``torch``."""
        return self._handed_over(names, "tensorflow", is_padded=padded, dtype=dtype)

    def cupy(self, *names: str, non_blocking: bool = False) -> Any:
        """Return outputs and fields as CuPy arrays on the GPU; see ``torch``.

        With ``non_blocking``, a copy from pinned memory is queued on the current stream.
        """
        return self._handed_over(names, "cupy", non_blocking=non_blocking)

    def _handed_over(self, names: Sequence[str], library: Any, **options: Any) -> Any:
        return load(BATCHES["handed_over"])(self, names, library, **options)

    def _repr_html_(self) -> str:
        html: str = load(HTML["Batch"])(self)
        return html


def _described(value: Any) -> str:
    """Return the dtype and shape of an output or a field, such as ``float32 [64, 3, 224, 224]``."""
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
    """Combine a field of several images into one padded array.

    Args:
        name: Name of the field.
        values: One array per image. None stands for an array without rows.
        plan: Plan of the annotation, or None if the field is not an annotation. A mask is padded with ``ignore``.
        sides: Minimum (height, width) of a padded mask: the size of the padded tensor.

    Returns:
        An array (images, max_rows, ...), in which missing rows are filled with -1. The field ``mask`` is returned as
        (images, height, width), and ``masks`` as (images, max_rows, height, width). Both are padded with ``ignore`` at
        the bottom and on the right, and missing masks consist of ``ignore``.

    Raises:
        PipelineError: The values are not numeric arrays, or their shapes differ in more than the number of rows.
    """
    arrays = [np.asarray(each) if each is not None else None for each in values]
    some = [each for each in arrays if each is not None]
    mask, rank = plan if isinstance(plan, MaskPlan | TargetPlan) else None, max((each.ndim for each in some), default=0)
    fixed = slice(1, None) if mask is None else slice(0 if mask.field == "masks" else -2)  # axes of equal length
    kinds = {(each.ndim, *each.shape[fixed]) for each in some if each.size or mask}
    if not rank or len(kinds) > 1 or any(each.dtype.kind not in "biuf" for each in some):
        raise PipelineError(f'"{name}" cannot be padded: its arrays may differ only in their number of rows')
    shape = [max(lengths) for lengths in zip(*(each.shape for each in some if each.ndim == rank), strict=True)]
    dtype = np.result_type(*some)
    if mask is not None:
        shape[-2:] = [max(own, mask.zoom * side) for own, side in zip(shape[-2:], sides, strict=True)]
        padded = np.full((len(arrays), *shape), mask.margin, dtype)
    else:
        padded = np.full((len(arrays), *shape), NO_ROW, np.int64 if dtype.kind in "bu" else dtype)
    for target, array in zip(padded, arrays, strict=True):
        if array is not None and array.size:
            target[tuple(map(slice, array.shape))] = array
    return padded
