"""PyTorch's ``interpolate`` for float32 tensors with ``align_corners=True`` (UpSampleKernel.cpp).

The position of output pixel i is ``i * ((length - 1) / (out_length - 1))`` in float32, so that the first and the last
pixel are copied. All other arithmetic is that of the module ``torch_float`` without antialiasing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pixprep.plan.profiles import torch_float
from pixprep.plan.profiles.profile import Method, Size
from pixprep.plan.profiles.windows import Formula, Passes


def formula(method: Method, passes: Passes) -> Formula:
    """Return the formula of the filter, which includes PyTorch's rounding to float32."""
    del passes
    return Formula("torch_corners_two" if method.filter == "bilinear" else "torch_corners_four")


def original(functional: Any, planes: Any, op: Any, size: Size) -> Any:
    """Resize a tensor with ``torch.nn.functional.interpolate``."""
    return functional.interpolate(planes.float()[None], size, mode=op.filter, align_corners=True)[0]


PROFILE = replace(
    torch_float.PROFILE,
    title="PyTorch in float32 with aligned corners",
    original=torch_float.PROFILE.original._replace(functions="torch.nn.functional", resize=original),
    antialiased=(),
    antialias=False,
    formula=formula,
)
