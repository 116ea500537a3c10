"""Converts images between the formats of pixprep and torchvision, and returns boxes for them."""

import numpy as np
import torch
from PIL import Image
from torchvision import tv_tensors


def as_theirs(pixels, like):
    """Return an image in the form that torchvision expects: a Pillow image or a tensor."""
    if like == "pillow":
        return Image.fromarray(pixels)
    return tv_tensors.Image(torch.from_numpy(pixels).permute(2, 0, 1).contiguous())


def as_array(image):
    """Return the image as uint8 (height, width, 3)."""
    return np.asarray(image) if isinstance(image, Image.Image) else image.permute(1, 2, 0).numpy()


def some_boxes(seed, height, width):
    """Return float32 (n, 4) xyxy boxes inside an image."""
    generator = np.random.default_rng(seed)
    ends = np.sort(generator.uniform(0, 1, (1 + seed % 5, 2, 2)), axis=1) * (width, height)
    return ends.reshape(-1, 4).astype(np.float32)
