"""The resize of the SLANeXt image processor in transformers, which computes with integers in PyTorch.

``bilinear`` interpolates between two pixels per axis. Positions, ``(i + 0.5) * ratio - 0.5``, are computed in float32,
and the weights are rounded to multiples of 1/2048. The sums are not rounded between the passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pixprep.plan.profiles.profile import Method, Original, Profile, Size, never_vertical_first, no_windows
from pixprep.plan.profiles.windows import Axis, Formula, Passes


def passes(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Return the arithmetic: sums of integers, which are shifted after the second pass."""
    del method, rows, columns
    return "opencv_lanczos"


def formula(method: Method, passes: Passes) -> Formula:
    """Return the formula of the filter."""
    del method, passes
    return Formula("torch_linear")


def original(slanext: Any, planes: Any, op: Any, size: Size) -> Any:
    """Resize a tensor with the method of the image processor, whose sizes keep the aspect ratio."""
    del op
    processor = slanext.SLANeXtImageProcessor(size={"height": max(size), "width": max(size)})
    resized = processor._resize(planes[None], processor.size)[0]  # noqa: SLF001  (the class has no public method)
    if tuple(resized.shape[-2:]) != size:
        raise ValueError(f"SLANeXt resizes to {np.shape(resized)[-2:]}, not to {size}")
    return resized


PROFILE = Profile(
    title="SLANeXt",
    original=Original(
        "transformers",
        "transformers",
        "transformers torchvision",
        "transformers.models.slanext.image_processing_slanext",
        original,
        takes_planes=True,
    ),
    filters=("bilinear",),
    antialiased=(),
    antialias=False,
    passes=passes,
    is_vertical_first=never_vertical_first,
    formula=formula,
    windows=no_windows,
)
