"""Images of torchvision: of Pillow, or tensors; and back."""

import numpy as np
import torch
from PIL import Image
from torchvision import tv_tensors


def as_theirs(pixels, like):
    """An image of torchvision's: of Pillow, or a tensor."""
    if like == "pillow":
        return Image.fromarray(pixels)
    return tv_tensors.Image(torch.from_numpy(pixels).permute(2, 0, 1).contiguous())


def as_array(image):
    """uint8 (height, width, 3)."""
    return np.asarray(image) if isinstance(image, Image.Image) else image.permute(1, 2, 0).numpy()
