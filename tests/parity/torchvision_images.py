"""Converts images between the formats of pixprep and torchvision, and calls torchvision's functions with recorded
parameters.
"""

import numpy as np
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F  # noqa: N812

JITTER = {"brightness": 0.4, "contrast": 0.5, "saturation": 0.6, "hue": 0.1}


def as_theirs(pixels, like):
    """Return an image in the form that torchvision expects: a Pillow image or a tensor."""
    if like == "pillow":
        return Image.fromarray(pixels)
    return tv_tensors.Image(torch.from_numpy(pixels).permute(2, 0, 1).contiguous())


def as_array(image):
    """Return the image as uint8 (height, width, 3)."""
    return np.asarray(image) if isinstance(image, Image.Image) else image.permute(1, 2, 0).numpy()


def window(words):
    return [words[name] for name in ("top", "left", "height", "width")]


def flipped(image, words):
    return F.horizontal_flip(image) if words["flip"] else image


def padded(image, words, **how):
    """Return the part of an image or mask inside a window that may extend outside of it."""
    (height, width), (top, left, rows, columns) = F.get_size(image), window(words)
    margins = [max(0, margin) for margin in (-left, -top, left + columns - width, top + rows - height)]
    return F.crop(F.pad(image, margins, **how), max(0, top), max(0, left), rows, columns)


def shortest(image, words, most):
    """Return the size to which ``RandomShortestSize`` resizes an image if the sampled size is its only choice."""
    return v2.RandomShortestSize([words["size"]], most).make_params([image])["size"]


def jittered(words):
    """Return torchvision's ``ColorJitter.transform`` with the given parameters."""
    order = list(JITTER)
    fn_idx = [order.index(kind) for kind in words] + [index for index, kind in enumerate(order) if kind not in words]
    params = {"fn_idx": torch.tensor(fn_idx)} | {f"{kind}_factor": words.get(kind) for kind in order}
    return lambda image: v2.ColorJitter(**JITTER).transform(image, params)


def some_boxes(seed, height, width):
    """Return float32 (n, 4) xyxy boxes inside an image."""
    generator = np.random.default_rng(seed)
    ends = np.sort(generator.uniform(0, 1, (1 + seed % 5, 2, 2)), axis=1) * (width, height)
    return ends.reshape(-1, 4).astype(np.float32)
