"""PyTorch's ``interpolate`` of float32 tensors with antialias, rounded to uint8 (UpSampleKernel.cpp).

So torchvision's v1 transforms resize uint8 tensors, and with them every ``weights.transforms()``; v2 does where PyTorch
has no uint8 kernel. Pillow's windows, but computed in float32, and nothing is rounded to levels between the passes;
horizontally first. PyTorch's build for AVX2 and AVX-512 fuses products with sums (see ``float_fused``), and that of the
bicubic filter too, which is repeated here. So is a mistake of PyTorch 2.13: where the result has one column, and its
rows are resized, each of them is the first.
"""

from __future__ import annotations

from pixprep.plan.profiles.profile import Method, Profile, never_vertical_first, no_windows
from pixprep.plan.profiles.torchvision import LIBRARY
from pixprep.plan.profiles.windows import Axis, Formula, Passes


def passes(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Always float32."""
    del method, rows, columns
    return "float_fused"


def formula(method: Method, passes: Passes) -> Formula:
    """Rounded to float32 where PyTorch does; an axis that keeps its length has no pass."""
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
