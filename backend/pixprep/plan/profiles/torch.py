"""PyTorch's antialiased ``interpolate`` for float32 tensors, with the result rounded to uint8 (UpSampleKernel.cpp).

torchvision's v1 transforms, including all ``weights.transforms()``, resize uint8 tensors with this function. The v2
transforms use this function if PyTorch has no uint8 kernel. The filters are those of Pillow, but weights and sums are
float32, and the result of the first pass, which is horizontal, is not rounded. This module reproduces the fused
multiply-adds of PyTorch's builds for AVX2 and AVX-512 (see ``float_fused``), including those in the bicubic kernel. It
also reproduces a bug of PyTorch 2.13: if the result has only one column and the height changes, all rows equal the
first row.
"""

from __future__ import annotations

from pixprep.plan.profiles.profile import Method, Profile, never_vertical_first, no_windows
from pixprep.plan.profiles.torchvision import LIBRARY
from pixprep.plan.profiles.windows import Axis, Formula, Passes


def passes(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Return the arithmetic, which is the same for all filters."""
    del method, rows, columns
    return "float_fused"


def formula(method: Method, passes: Passes) -> Formula:
    """Return the formula of the filter, which includes PyTorch's rounding to float32."""
    del passes
    return Formula("torch_bilinear" if method.filter == "bilinear" else "torch_bicubic")


PROFILE = Profile(
    title="PyTorch",
    original=LIBRARY._replace(functions="torchvision.transforms.functional"),  # float32
    filters=(),
    antialiased=("bilinear", "bicubic"),
    antialias=True,
    across=("bilinear", "bicubic"),
    passes=passes,
    is_vertical_first=never_vertical_first,
    formula=formula,
    windows=no_windows,
)
