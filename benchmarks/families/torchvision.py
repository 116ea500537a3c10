"""torchvision: a model's ``weights.transforms()`` on tensors that Pillow decoded, and functions of v2 on tensors."""

from __future__ import annotations

import io
from functools import partial

import torch
from contenders import torchvision as contender
from PIL import Image
from torchvision.models import ResNet50_Weights
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F  # noqa: N812

from families import Run, of, on_arrays

PACKAGES = contender.PACKAGES


def weights() -> Run:
    """Return ``run`` for the common code: Pillow, ``pil_to_tensor``, the transforms, ``stack``."""
    transforms = ResNet50_Weights.IMAGENET1K_V1.transforms()

    def one(encoded: bytes) -> torch.Tensor:
        return transforms(F.pil_to_tensor(Image.open(io.BytesIO(encoded)).convert("RGB")))

    return lambda batch: torch.stack([one(encoded) for encoded in batch])


FUNCTIONS = {
    "brightness": partial(F.adjust_brightness, brightness_factor=1.3),
    "contrast": partial(F.adjust_contrast, contrast_factor=1.3),
    "saturation": partial(F.adjust_saturation, saturation_factor=1.3),
    "hue": partial(F.adjust_hue, hue_factor=0.1),
    "grayscale": partial(F.rgb_to_grayscale, num_output_channels=3),
    "gamma": partial(F.adjust_gamma, gamma=1.3),
    "posterize": partial(F.posterize, bits=4),
    "solarize": partial(F.solarize, threshold=128),
    "invert": F.invert,
    "autocontrast": F.autocontrast,
    "equalize": F.equalize,
    "flip": F.horizontal_flip,
    "gaussian_blur": partial(F.gaussian_blur, kernel_size=5, sigma=1.0),
    "rotate": partial(F.rotate, angle=15, interpolation=InterpolationMode.BILINEAR, fill=0),
    "elastic": v2.ElasticTransform(),
}
ROWS = {
    "weights": weights,
    **{
        name: partial(on_arrays, function, lambda pixels: torch.from_numpy(pixels).permute(2, 0, 1).contiguous())
        for name, function in FUNCTIONS.items()
    },
}


def prepare(row: str, threads: int) -> Run:
    """See ``families``."""
    torch.set_num_threads(1)
    return of(ROWS, row, threads)
