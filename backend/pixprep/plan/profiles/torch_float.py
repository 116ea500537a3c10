"""PyTorch's antialiased ``interpolate`` for float32 tensors, without rounding the result (UpSampleKernel.cpp).

torchvision resizes tensors of float32 with this function, for example in the image processors of transformers that
rescale or normalize the values before the resize. The arithmetic is that of the module ``torch``, except that the
values need not be integers, and that the result is not rounded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pixprep.plan.profiles import torch
from pixprep.plan.profiles.profile import Size
from pixprep.plan.profiles.torchvision import LIBRARY


def original(functional: Any, planes: Any, op: Any, size: Size) -> Any:
    """Resize a tensor with torchvision's ``resize``, after its values are converted to float32."""
    return LIBRARY.resize(functional, planes.float(), op, size)


PROFILE = replace(
    torch.PROFILE,
    title="PyTorch in float32",
    original=LIBRARY._replace(resize=original),
    real=torch.PROFILE.antialiased,
    takes_real=True,
    is_hosts=True,
)
