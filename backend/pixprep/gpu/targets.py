"""Computes where the kernels write the patches or tiles of an image.

An image is resized for its patches, and a second time for its thumbnail. Both resizes read the same decoded pixels, and
share the launches of their chunk as if they were two images. This module does not require CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.gpu import structs
from pixprep.patch_layout import PatchLayout, ViewLayout
from pixprep.plan.placement import Placement
from pixprep.spec import TensorSpec


class Targets(NamedTuple):
    """Arguments of ``launch.prepare``, with one entry per resize: pixels, placements, tensors and layouts."""

    images: list[Any]
    placements: list[Placement]
    tensors: list[int]
    layouts: npt.NDArray[np.void]


def split(
    spec: TensorSpec, images: Sequence[Any], placements: Sequence[Placement], tensors: Sequence[int]
) -> tuple[Targets, list[bool]]:
    """Return the resizes of images whose tensors consist of patches, and whether each tensor also contains padding.

    Args:
        spec: Spec of the tensors.
        images: Decoded images.
        placements: Placement of each image.
        tensors: Device address of the C-contiguous tensor of each image.
    """
    assert spec.patches is not None
    size = spec.array_dtype.itemsize
    keys = [_key(spec.patches, placement) for placement in placements]
    targets: dict[Any, Any] = {}
    for key, placement in zip(keys, placements, strict=True):
        if key not in targets:
            targets[key] = _targets(spec.patches, placement)
    found = [targets[key] for key in keys]
    rows = [
        (image, placement, tensor + (begin + offset) * size, layout)
        for image, whole, tensor, (parts, _) in zip(images, placements, tensors, found, strict=True)
        for begin in _begins(spec.patches, whole)
        for placement, offset, layout in parts
    ]
    layouts = np.array([row[3] for row in rows], structs.LAYOUT)
    all_targets = Targets([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], layouts)
    return all_targets, [is_padded for _, is_padded in found]


def _key(patches: PatchLayout, placement: Placement) -> Any:
    """Return a key that is equal for images with the same placement object, and for all frames of a clip.

    The filter coefficients are therefore computed once per clip.
    """
    return tuple(map(id, placement._replace(frame=0))) if patches.is_clip else id(placement)


def _begins(patches: PatchLayout, placement: Placement) -> list[int]:
    """Return the positions in the tensor, in values, at which an image or a frame of a clip is written.

    The kernels write an image to all frames of its patches, but a frame of a clip only to one frame of its patches.
    """
    if not patches.is_clip:
        return [0]
    group, slots = patches.slots(placement.frame, placement.frames)
    first = group * patches.total(*placement.size) * patches.values
    return [first + slot * patches.frame_size for slot in range(*slots)]


def _targets(patches: PatchLayout, placement: Placement) -> tuple[list[tuple[Placement, int, tuple[Any, ...]]], bool]:
    """Return the resizes of an image, and whether its tensor also contains padding.

    Each resize consists of its placement, the position of its first patch in the tensor in values, and its ``LAYOUT``.
    """
    thumbnail, cuts = placement.thumbnail, (1, 1)
    if isinstance(patches, ViewLayout):
        counts, cuts = [*map(prod, patches.views(*placement.views))], placement.cuts
        total, view = sum(counts), patches.fixed
        is_fitting, is_padded = max(counts) <= (view or total), min(counts) < (view or 0)
    else:
        count, total, view = patches.count(*placement.size), patches.total(*placement.size), None
        is_fitting, is_padded = patches.fits(*placement.size), total < (patches.fixed or 0)
        thumbnail = thumbnail if total > count else None
    assert is_fitting, f"{placement.views} for {patches}"  # if not, the kernels would write beyond the tensor
    parts = [(placement, cuts)] * (total > 0)
    if thumbnail is not None:
        parts.insert(0 if patches.thumbnail == "first" else 1, (thumbnail, (1, 1)))
    strides, patch_stride = patches.blocks(np.empty((1, *patches.shape), np.uint8))[0, 0].strides, patches.values
    if isinstance(patches, ViewLayout) and view is None:  # the patches are adjacent along the width of the tensor
        rows, patch_stride = patches.size
        strides = rows * total * patch_stride, total * patch_stride, 1
    made, offset = [], 0
    for part, (down, across) in parts:
        height, width = part.size
        grid = patches.grid(height // down, width // across)
        slice_stride = (view or prod(grid)) * patch_stride
        made.append((part, offset, (height, width, strides, *grid, patch_stride, slice_stride)))
        offset += down * across * slice_stride
    return made, is_padded
