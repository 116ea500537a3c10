"""PyTorch's ``interpolate`` of float32 tensors with antialias, rounded to uint8 (UpSampleKernel.cpp).

torchvision's v1 transforms resize uint8 tensors in this way, and so does every ``weights.transforms()``; v2 does if
PyTorch lacks a uint8 kernel. The windows are Pillow's, but the weights and sums are float32, and values between the
passes are not rounded to integers. The horizontal pass is first. PyTorch's build for AVX2 and AVX-512 fuses products
with sums (see ``float_fused``), including those of the bicubic filter, and this module reproduces that. It also
reproduces an error of PyTorch 2.13: if the result has one column and its rows are resized, every row equals the first.
"""

from __future__ import annotations

from pixprep.plan.profiles.profile import Method, Profile, never_vertical_first, no_windows
from pixprep.plan.profiles.torchvision import LIBRARY
from pixprep.plan.profiles.windows import Axis, Formula, Passes


def passes(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Return the arithmetic, which is always float32."""
    del method, rows, columns
    return "float_fused"


def formula(method: Method, passes: Passes) -> Formula:
    """Return the formula with PyTorch's roundings to float32; an axis that keeps its length has no pass."""
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
