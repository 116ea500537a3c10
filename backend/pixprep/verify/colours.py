"""What Pillow and torchvision make of the levels of an image, op by op, by their own functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from pixprep import ops
from pixprep.errors import unreachable
from pixprep.spec import ColorLike
from pixprep.verify.images import Array
from pixprep.verify.origins import planes


def like_of(op: ops.SteadyOp) -> ColorLike:
    """Whose levels an op makes; where both libraries agree, Pillow's, if it has the op."""
    match op:
        case ops.GaussianBlur():
            return "torchvision"
        case ops.Posterize() | ops.Solarize() | ops.Equalize() | ops.Invert():
            return "pillow"
        case _:
            return op.like


def _pillow(pixels: Array, op: ops.SteadyOp) -> Array:
    """On uint8 (height, width, 1 or 3), red first."""
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))
    made = np.asarray(_recoloured(image, op))
    return made.reshape(*made.shape[:2], pixels.shape[2])


def _recoloured(image: Image.Image, op: ops.SteadyOp) -> Image.Image:
    """As torchvision calls Pillow."""
    match op:
        case ops.Brightness():
            return ImageEnhance.Brightness(image).enhance(op.factor)
        case ops.Contrast():
            return ImageEnhance.Contrast(image).enhance(op.factor)
        case ops.Saturation():
            return ImageEnhance.Color(image).enhance(op.factor)
        case ops.Hue():
            return _turned(image, op.factor)
        case ops.Grayscale():
            return image.convert("L").convert(image.mode)
        case ops.Gamma():
            curve = [int((255 + 1 - 1e-3) * op.gain * pow(level / 255.0, op.gamma)) for level in range(256)]
            return image.point(curve * len(image.getbands()))
        case ops.Posterize():
            return ImageOps.posterize(image, op.bits)
        case ops.Solarize():
            return ImageOps.solarize(image, op.threshold)  # type: ignore[arg-type]  # torchvision gives a float, too
        case ops.Autocontrast():
            return ImageOps.autocontrast(image)
        case ops.Equalize():
            return ImageOps.equalize(image)
        case ops.Invert():
            return ImageOps.invert(image)
        case ops.Sharpness():
            return ImageEnhance.Sharpness(image).enhance(op.factor)
        case ops.Rotate():
            assert not isinstance(op.angle, str)  # a pipeline with inputs is refused before
            resample = Image.Resampling[op.filter.upper()]
            return image.rotate(op.angle, resample, op.expand, op.center, fillcolor=_fill(op, len(image.getbands())))
        case ops.Affine():
            moved: Image.Image = _affine(op, list(_fill(op, len(image.getbands()))))(image)
            return moved
        case ops.GaussianBlur():
            raise AssertionError("Pillow has another one")
        case _ as never:
            return unreachable(never)


def _turned(image: Image.Image, factor: float) -> Image.Image:
    if image.mode == "L":
        return image
    hue, *others = image.convert("HSV").split()
    turned = (np.asarray(hue).astype(int) + int(factor * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), *others)).convert("RGB")


def _affine(op: ops.Affine, fill: list[int]) -> Callable[[Any], Any]:
    """Of a PIL image or a tensor; Pillow itself knows matrices alone."""
    return partial(
        import_module("torchvision.transforms.v2.functional").affine,
        angle=op.angle,
        translate=list(op.translate),
        scale=op.scale,
        shear=[*np.atleast_1d(op.shear).tolist(), 0.0][:2],
        interpolation=op.filter,
        center=op.center and list(op.center),
        fill=fill,
    )


def _fill(op: ops.Rotate | ops.Affine, channels: int) -> tuple[int, ...]:
    return tuple(int(level) for level in np.broadcast_to(op.fill, channels))


def _torchvision(pixels: Array, op: ops.SteadyOp) -> Array:
    """As ``_pillow``; v2's functions on tensors."""
    functional = import_module("torchvision.transforms.v2.functional")
    run: Callable[[Any], Any]
    match op:
        case ops.Brightness():
            run = partial(functional.adjust_brightness, brightness_factor=op.factor)
        case ops.Contrast():
            run = partial(functional.adjust_contrast, contrast_factor=op.factor)
        case ops.Saturation():
            run = partial(functional.adjust_saturation, saturation_factor=op.factor)
        case ops.Hue():
            run = partial(functional.adjust_hue, hue_factor=op.factor)
        case ops.Grayscale():
            run = partial(functional.rgb_to_grayscale, num_output_channels=pixels.shape[2])
        case ops.Gamma():
            run = partial(functional.adjust_gamma, gamma=op.gamma, gain=op.gain)
        case ops.Posterize():
            run = partial(functional.posterize, bits=op.bits)
        case ops.Solarize():
            run = partial(functional.solarize, threshold=op.threshold)
        case ops.Autocontrast():
            run = functional.autocontrast
        case ops.Equalize():
            run = functional.equalize
        case ops.Invert():
            run = functional.invert
        case ops.Sharpness():
            run = partial(functional.adjust_sharpness, sharpness_factor=op.factor)
        case ops.GaussianBlur():
            sigma = None if op.sigma is None else [float(x) for x in np.atleast_1d(op.sigma)]
            run = partial(
                functional.gaussian_blur, kernel_size=np.broadcast_to(op.kernel_size, 2).tolist(), sigma=sigma
            )
        case ops.Rotate():
            run = partial(
                functional.rotate,
                angle=op.angle,
                interpolation=op.filter,
                expand=op.expand,
                center=op.center and list(op.center),
                fill=list(_fill(op, pixels.shape[2])),
            )
        case ops.Affine():
            run = _affine(op, list(_fill(op, pixels.shape[2])))
        case _ as never:
            return unreachable(never)
    return np.asarray(run(planes(pixels)).numpy().transpose(1, 2, 0))


COLOURISTS: Mapping[ColorLike, tuple[str, Callable[[Array, ops.SteadyOp], Array]]] = {
    "pillow": ("pillow", _pillow),
    "torchvision": ("torchvision", _torchvision),
}
"""The key of each library, and what it makes of pixels: uint8 (height, width, 1 or 3), red first."""
