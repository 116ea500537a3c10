"""PyTorch's ``interpolate`` for float32 tensors, without rounding the result (UpSampleKernel.cpp).

torchvision resizes float32 tensors with this function, for example in the image processors of transformers that rescale
or normalize the values before the resize. With antialiasing, the arithmetic is that of the module ``torch``, except
that the values need not be integers, and that the result is not rounded.

Without antialiasing, a value is interpolated from two (``bilinear``) or four (``bicubic``, a = -0.75) pixels per axis,
first horizontally, with the fused multiply-adds of PyTorch's builds for AVX2 and AVX-512 (see ``float_pairs``). The
position is ``ratio * (i + 0.5) - 0.5``, computed with a fused multiply-add. For ``bilinear`` and results whose height
and width add up to at most 128, PyTorch computes a weighted sum of all four pixels instead. Such results are rejected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pixprep.plan.profiles import torch
from pixprep.plan.profiles.profile import Method, Size
from pixprep.plan.profiles.torchvision import LIBRARY, UNFUSED_SIDES
from pixprep.plan.profiles.windows import Axis, Formula, Passes


def passes(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Return the arithmetic, which depends only on antialiasing."""
    del rows, columns
    return "float_fused" if method.antialias else "float_pairs"


def formula(method: Method, passes: Passes) -> Formula:
    """Return the formula of the filter, which includes PyTorch's rounding to float32."""
    if method.antialias:
        return torch.formula(method, passes)
    return Formula("torch_two" if method.filter == "bilinear" else "torch_four")


def original(functional: Any, planes: Any, op: Any, size: Size) -> Any:
    """Resize a contiguous tensor with torchvision's ``resize``, after its values are converted to float32."""
    return LIBRARY.resize(functional, planes.float().contiguous(), op, size)


PROFILE = replace(
    torch.PROFILE,
    title="PyTorch in float32",
    original=LIBRARY._replace(resize=original),
    filters=torch.PROFILE.antialiased,
    real=torch.PROFILE.antialiased,
    takes_real=True,
    passes=passes,
    formula=formula,
    min_sides=UNFUSED_SIDES + 1,
)
