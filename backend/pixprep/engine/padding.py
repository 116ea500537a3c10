"""Lists of arrays as one array: what a batch has for images of their own sizes, or of several numbers of objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError
from pixprep.plan.output_plans import AnnotationPlan, MaskPlan

NO_ROW = -1
"""Value of each number of a row that no object has."""


def padded_field(
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
