"""The code of Triton's Python example: Pillow decodes the photos, and torchvision transforms them."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from contenders import MEAN, STD, Run, each

PACKAGES = ("torchvision", "torch", "pillow", "numpy")
MEAN_LEVELS = 0.0

_spec = importlib.util.find_spec("torchvision")
if _spec is None or _spec.origin is None:
    raise ImportError("no torchvision", name="torchvision")
try:
    for _extension in Path(_spec.origin).parent.glob("_C*.so"):
        torch.ops.load_library(str(_extension))
# define two missing ops, which are never called, so that torchvision for CUDA works with PyTorch for the CPU
except OSError:
    _library = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from torchvision import transforms  # noqa: E402


def prepare(filter_name: str, threads: int) -> Run:
    """See ``contenders``."""
    torch.set_num_threads(1)  # the photos are distributed over threads instead
    how = transforms.InterpolationMode(filter_name)
    loader = transforms.Compose(
        [
            transforms.Resize(256, interpolation=how),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize(mean=MEAN, std=STD),
        ]
    )

    def one(encoded: bytes, out: np.ndarray) -> None:
        image = Image.open(io.BytesIO(encoded)).convert("RGB")
        out[...] = loader(image).numpy()

    return each(one, threads)
