"""Ops on pixel values as their libraries compute them: one table for ``verify`` and for the parity tests.

torchvision's functions accept PIL images and PyTorch tensors. Pillow's functions are those that torchvision calls for
PIL images, so ``verify`` does not need torchvision for ``"like": "pillow"``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from pixprep.importers.verify.images import Array
from pixprep.pipeline import ops
from pixprep.plan.draws.motions import coefficients


def planes(pixels: Array) -> Any:
    """Return a PyTorch tensor (channels, height, width)."""
    return import_module("torch").from_numpy(np.array(pixels.transpose(2, 0, 1)))


def _fill(op: Any, image: Any) -> list[int]:
    channels = len(image.getbands()) if isinstance(image, Image.Image) else image.shape[0]
    return [int(level) for level in np.broadcast_to(op.fill, channels)]


def _point(op: Any) -> list[float] | None:
    return op.center and list(op.center)


def _looked_up(image: Any, curve: Callable[[int], int]) -> Any:
    return image.point([curve(level) for level in range(256)] * len(image.getbands()))


def _turned(op: Any, image: Any) -> Any:
    if image.mode == "L":
        return image
    hue, *others = image.convert("HSV").split()
    turned = (np.asarray(hue).astype(int) + int(op.factor * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), *others)).convert("RGB")


def _tilted(functional: Any, op: Any, image: Any) -> Any:
    height, width = functional.get_size(image)
    found = coefficients(height, width, op.corners)
    how = {"interpolation": op.filter, "fill": _fill(op, image)}
    return functional.perspective(image, None, None, coefficients=list(found), **how) if found else image


_CV2_FILTERS = {"nearest": "INTER_NEAREST", "bilinear": "INTER_LINEAR", "bicubic": "INTER_CUBIC"}
_CV2_BORDERS = {"constant": "CONSTANT", "edge": "REPLICATE", "reflect": "REFLECT_101", "symmetric": "REFLECT"}


def _aligned(points: Array, template: Array) -> Array:
    """Return Umeyama's similarity transform (2, 3), computed from singular values as in scikit-image."""
    middle, centre = points.mean(0), template.mean(0)
    there, goal = points - middle, template - centre
    u, sizes, v = np.linalg.svd(goal.T @ there)
    signs = np.array([1.0, np.sign(np.linalg.det(u) * np.linalg.det(v))])
    turn = sizes @ signs / (there**2).sum() * (u * signs) @ v
    return np.column_stack([turn, centre - turn @ middle])


def _by_opencv(cv2: Any, op: ops.Warp, pixels: Array) -> Array:
    """Warp with OpenCV 4 and the numbers of the pipeline file."""
    numbers = np.asarray(getattr(op, op.field), np.float64)
    step: Any = op.steps({}, pixels.shape[0], pixels.shape[1], "rgb")[0]
    height, width = step.height, step.width
    if op.field == "quad":
        bottom, right = height - op.align_corners, width - op.align_corners
        corners = np.array([[0, 0], [right, 0], [right, bottom], [0, bottom]], np.float32)
        numbers = cv2.getPerspectiveTransform(numbers.astype(np.float32), corners)
    elif op.template is not None:
        numbers = _aligned(numbers, np.array(op.template))
    warp = cv2.warpAffine if len(numbers) == 2 else cv2.warpPerspective
    made: Array = warp(
        np.ascontiguousarray(pixels),
        numbers,
        (width, height),
        flags=getattr(cv2, _CV2_FILTERS[op.filter]),
        borderMode=getattr(cv2, f"BORDER_{_CV2_BORDERS[op.padding_mode]}"),
        borderValue=np.broadcast_to(op.fill, pixels.shape[2]).tolist(),
    )
    is_turned = op.turn is not None and height / width >= op.turn
    made = made.reshape(height, width, -1)
    return np.rot90(made) if is_turned else made


def _mapped(cv2: Any, op: ops.Affine, pixels: Array) -> Array:
    """Warp with OpenCV 4 and torchvision's inverse matrix about the center of the pixels."""
    height, width = pixels.shape[:2]
    inverse = import_module("torchvision.transforms.functional")._get_inverse_affine_matrix  # noqa: SLF001
    center = op.center or (width * 0.5, height * 0.5)
    numbers = np.array(inverse(list(center), op.angle, list(op.translate), op.scale, list(op.shears))).reshape(2, 3)
    numbers[:, 2] += 0.5 * (numbers[:, :2].sum(1) - 1)
    made: Array = cv2.warpAffine(
        np.ascontiguousarray(pixels),
        numbers,
        (width, height),
        flags=getattr(cv2, _CV2_FILTERS[op.filter]) | cv2.WARP_INVERSE_MAP,
        borderMode=getattr(cv2, f"BORDER_{_CV2_BORDERS[op.padding_mode or 'constant']}"),
        borderValue=np.broadcast_to(op.fill, pixels.shape[2]).tolist(),
    )
    return made.reshape(pixels.shape)


def _blurred(cv2: Any, op: ops.GaussianBlur, pixels: Array) -> Array:
    """Apply OpenCV's separable filter with the kernels that Albumentations creates."""
    taps = op.taps if op.kernel_size else [2 * int(3.5 * sigma) + 1 for sigma in op.sigmas]
    curves = [
        np.exp(-0.5 * ((np.arange(count) - count // 2) / sigma) ** 2)
        for count, sigma in zip(taps, op.sigmas, strict=True)
    ]
    of_y, of_x = (curve / curve.sum() for curve in curves)
    made: Array = cv2.sepFilter2D(np.ascontiguousarray(pixels), -1, of_x, of_y)
    return made.reshape(pixels.shape)


def _erased(op: ops.Erase, image: Any) -> Any:
    erased = image.copy()
    erased.paste(tuple(_fill(op, image)), (op.left, op.top, op.left + op.width, op.top + op.height))
    return erased


PILLOW: Mapping[type[ops.SteadyOp], Callable[[Any, Any], Any]] = {
    ops.Brightness: lambda op, image: ImageEnhance.Brightness(image).enhance(op.factor),
    ops.Contrast: lambda op, image: ImageEnhance.Contrast(image).enhance(op.factor),
    ops.Saturation: lambda op, image: ImageEnhance.Color(image).enhance(op.factor),
    ops.Sharpness: lambda op, image: ImageEnhance.Sharpness(image).enhance(op.factor),
    ops.Hue: _turned,
    ops.Grayscale: lambda _, image: image.convert("L").convert(image.mode),
    ops.Gamma: lambda op, image: _looked_up(image, lambda x: int((255 + 1 - 1e-3) * op.gain * (x / 255.0) ** op.gamma)),
    ops.Posterize: lambda op, image: ImageOps.posterize(image, op.bits),
    ops.Solarize: lambda op, image: ImageOps.solarize(image, op.threshold),
    ops.SolarizeAdd: lambda op, image: _looked_up(image, lambda x: min(255, x + op.add) if x < op.threshold else x),
    ops.Autocontrast: lambda _, image: ImageOps.autocontrast(image),
    ops.Equalize: lambda _, image: ImageOps.equalize(image),
    ops.Invert: lambda _, image: ImageOps.invert(image),
    ops.PermuteChannels: lambda op, image: Image.merge("RGB", [image.split()[channel] for channel in op.permutation]),
    ops.ColorMatrix: lambda op, image: (
        image.convert("RGB").convert("RGB", [number for row in op.matrix for number in row]).getchannel(0)
        if image.mode == "L"
        else image.convert("RGB", [number for row in op.matrix for number in row])
    ),
    ops.Erase: _erased,
    ops.Rotate: lambda op, image: image.rotate(
        op.angle, Image.Resampling[op.filter.upper()], op.expand, op.center, fillcolor=tuple(_fill(op, image))
    ),
}
"""Pillow's function for each class of ops, for a PIL image."""
TORCHVISION: Mapping[type[ops.SteadyOp], Callable[[Any, Any, Any], Any]] = {
    ops.Brightness: lambda f, op, image: f.adjust_brightness(image, op.factor),
    ops.Contrast: lambda f, op, image: f.adjust_contrast(image, op.factor),
    ops.Saturation: lambda f, op, image: f.adjust_saturation(image, op.factor),
    ops.Sharpness: lambda f, op, image: f.adjust_sharpness(image, op.factor),
    ops.Hue: lambda f, op, image: f.adjust_hue(image, op.factor),
    ops.Grayscale: lambda f, _, image: f.rgb_to_grayscale(image, num_output_channels=f.get_num_channels(image)),
    ops.Gamma: lambda f, op, image: f.adjust_gamma(image, op.gamma, op.gain),
    ops.Posterize: lambda f, op, image: f.posterize(image, op.bits),
    ops.Solarize: lambda f, op, image: f.solarize(image, op.threshold),
    ops.Autocontrast: lambda f, _, image: f.autocontrast(image),
    ops.Equalize: lambda f, _, image: f.equalize(image),
    ops.Invert: lambda f, _, image: f.invert(image),
    ops.PermuteChannels: lambda f, op, image: f.permute_channels(image, list(op.permutation)),
    ops.Rotate: lambda f, op, image: f.rotate(
        image, op.angle, interpolation=op.filter, expand=op.expand, center=_point(op), fill=_fill(op, image)
    ),
    ops.Affine: lambda f, op, image: f.affine(
        image, angle=op.angle, translate=list(op.translate), scale=op.scale, shear=list(op.shears),
        interpolation=op.filter, center=_point(op), fill=_fill(op, image),
    ),
    ops.Perspective: _tilted,
    ops.GaussianBlur: lambda f, op, image: f.gaussian_blur(
        image, list(op.taps[::-1]), None if op.sigma is None else [float(x) for x in ops.as_tuple(op.sigma)]
    ),
}  # fmt: skip
"""torchvision's functions, for its module ``v2.functional`` and a PIL image or a tensor (channels, height, width)."""


OPENCV: Mapping[type[ops.SteadyOp], Callable[[Any, Any, Array], Array]] = {
    ops.Warp: _by_opencv,
    ops.Affine: _mapped,
    ops.GaussianBlur: _blurred,
}
"""OpenCV's functions, for its module and uint8 (height, width, channels)."""


ALBUMENTATIONS: Mapping[type[ops.SteadyOp], Callable[[Any, Any, Any], Any]] = {
    ops.Brightness: lambda f, op, image: f.adjust_brightness_torchvision(image, op.factor),
    ops.Contrast: lambda f, op, image: f.adjust_contrast_torchvision(image, op.factor),
    ops.Saturation: lambda f, op, image: f.adjust_saturation_torchvision(image, op.factor),
    ops.Hue: lambda f, op, image: f.adjust_hue_torchvision(image, op.factor),
    ops.Grayscale: lambda f, _, image: image if image.shape[2] == 1 else f.to_gray(image, 3, "weighted_average"),
    ops.HueSaturationValue: lambda f, op, image: f.shift_hsv(image, op.hue, op.saturation, op.value),
    ops.BrightnessContrast: lambda f, op, image: f.multiply_add(image, op.contrast, op.brightness),
}
"""Albumentations' functions, for OpenCV, its module ``augmentations.pixel.functional``, and an array."""


def has_one_channel(op: ops.Op, *, was_gray: bool) -> bool:
    """Return whether DALI's image has one channel after an op."""
    if not isinstance(op, ops.ColorMatrix):
        return was_gray or isinstance(op, ops.Grayscale)
    is_scaled = np.count_nonzero(np.array(op.matrix)[:, :3]) <= 3
    return len({*op.matrix}) == 1 or (was_gray and is_scaled)


def library_of(op: ops.SteadyOp) -> str:
    """Return the key of the library that ``recoloured`` calls; see ``libraries``."""
    if isinstance(op, ops.HueSaturationValue | ops.BrightnessContrast) or _is_blend_of_opencv(op):
        return "albumentations"
    like = str(getattr(op, "like", "pillow"))
    return like if type(op) in PILLOW or like in ("opencv", "dali") else "torchvision"


def _is_blend_of_opencv(op: ops.SteadyOp) -> bool:
    return type(op) in ALBUMENTATIONS and getattr(op, "like", "") == "opencv"


def recoloured(op: ops.SteadyOp, pixels: Array) -> Array:
    """Return the result of an op's library for uint8 (height, width, 1 or 3), red first."""
    if type(op) in OPENCV and library_of(op) != "torchvision":
        return OPENCV[type(op)](import_module("cv2"), op, pixels)
    if library_of(op) == "albumentations":
        functional = import_module("albumentations.augmentations.pixel.functional")
        made = np.asarray(ALBUMENTATIONS[type(op)](functional, op, np.ascontiguousarray(pixels)))
        return made.reshape(pixels.shape)
    if getattr(op, "like", library_of(op)) == "torchvision":
        return np.asarray(by_torchvision(op, planes(pixels)).numpy().transpose(1, 2, 0))
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))
    made = np.asarray(PILLOW[type(op)](op, image) if type(op) in PILLOW else by_torchvision(op, image))
    return made.reshape(*made.shape[:2], pixels.shape[2])


def by_torchvision(op: ops.SteadyOp, image: Any) -> Any:
    """Return the result of torchvision's own function, in the type of ``image``: a PIL image or a tensor."""
    return TORCHVISION[type(op)](import_module("torchvision.transforms.v2.functional"), op, image)
