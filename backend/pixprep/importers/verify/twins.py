"""Calls the original libraries' functions for colour ops and warps, for ``verify`` and the parity tests.

Pillow's functions are those that torchvision calls for PIL images, so that ``verify`` does not need torchvision for
``"like": "pillow"``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from pixprep.importers.verify.images import Array
from pixprep.pipeline import ops
from pixprep.pipeline.ops.limits import ends
from pixprep.plan.draws.motions import coefficients
from pixprep.plan.profiles.opencv import MODES


def planes(pixels: Array) -> Any:
    """Convert an array of shape (height, width, channels) to a PyTorch tensor of shape (channels, height, width)."""
    return import_module("torch").from_numpy(np.array(pixels.transpose(2, 0, 1)))


def _fill(op: Any, image: Any) -> list[int]:
    channels = len(image.getbands()) if isinstance(image, Image.Image) else image.shape[0]
    return [int(level) for level in np.broadcast_to(op.fill, channels)]


def _center(op: Any) -> list[float] | None:
    return op.center and list(op.center)


def _apply_lut(image: Any, curve: Callable[[int], int]) -> Any:
    return image.point([curve(level) for level in range(256)] * len(image.getbands()))


def _shift_hue(op: Any, image: Any) -> Any:
    if image.mode == "L":
        return image
    hue, *others = image.convert("HSV").split()
    turned = (np.asarray(hue).astype(int) + int(op.factor * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), *others)).convert("RGB")


def _perspective(functional: Any, op: Any, image: Any) -> Any:
    height, width = functional.get_size(image)
    found = coefficients(height, width, op.corners)
    how = {"interpolation": op.filter, "fill": _fill(op, image)}
    return functional.perspective(image, None, None, coefficients=list(found), **how) if found else image


_CV2_FILTERS = {"nearest": "INTER_NEAREST", "bilinear": "INTER_LINEAR", "bicubic": "INTER_CUBIC"}
_CV2_BORDERS = {"constant": "CONSTANT", "edge": "REPLICATE", "reflect": "REFLECT_101", "symmetric": "REFLECT"}


def _similarity_transform(points: Array, template: Array) -> Array:
    """Return the similarity transform from points to a template, as an array of shape (2, 3).

    As in scikit-image, the transform is computed with Umeyama's method, from a singular value decomposition.
    """
    source_mean, target_mean = points.mean(0), template.mean(0)
    source, target = points - source_mean, template - target_mean
    u, singular_values, v = np.linalg.svd(target.T @ source)
    signs = np.array([1.0, np.sign(np.linalg.det(u) * np.linalg.det(v))])
    linear = singular_values @ signs / (source**2).sum() * (u * signs) @ v
    return np.column_stack([linear, target_mean - linear @ source_mean])


def gray_by_opencv(encoded: bytes) -> Array:
    """Decode an image to gray with OpenCV, uint8 (height, width), in its stored orientation."""
    cv2 = import_module("cv2")
    flags = cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION
    gray: Array = cv2.imdecode(np.frombuffer(encoded, np.uint8), flags)
    return gray


def _warp_by_opencv(cv2: Any, op: ops.Warp, pixels: Array) -> Array:
    """Warp an image with OpenCV 4, with the matrix, the corners or the points of the op."""
    numbers = np.asarray(getattr(op, op.field), np.float64)
    step: Any = op.steps({}, pixels.shape[0], pixels.shape[1], "rgb")[0]
    height, width = step.height, step.width
    if op.field == "quad":
        bottom, right = height - op.align_corners, width - op.align_corners
        corners = np.array([[0, 0], [right, 0], [right, bottom], [0, bottom]], np.float32)
        numbers = cv2.getPerspectiveTransform(numbers.astype(np.float32), corners)
    elif op.template is not None:
        numbers = _similarity_transform(numbers, np.array(op.template))
    warp = cv2.warpAffine if len(numbers) == 2 else cv2.warpPerspective
    result: Array = warp(
        np.ascontiguousarray(pixels),
        numbers,
        (width, height),
        flags=getattr(cv2, _CV2_FILTERS[op.filter]),
        borderMode=getattr(cv2, f"BORDER_{_CV2_BORDERS[op.padding_mode]}"),
        borderValue=np.broadcast_to(op.fill, pixels.shape[2]).tolist(),
    )
    is_rotated = op.turn is not None and height / width >= op.turn
    result = result.reshape(height, width, -1)
    return np.rot90(result) if is_rotated else result


def _warp_by_scipy(op: ops.Warp, pixels: Array) -> Array:
    """Warp an image with SciPy's ``affine_transform``, whose matrix has rows and columns in the order y, x."""
    step: Any = op.steps({}, pixels.shape[0], pixels.shape[1], "rgb")[0]
    a, b, c, d, e, f = step.matrix
    fill = np.broadcast_to(op.fill, pixels.shape[2]).tolist()
    warp = import_module("scipy.ndimage").affine_transform
    how = {"output_shape": (op.height, op.width), "order": ("nearest", "bilinear").index(op.filter)}
    planes = [warp(pixels[:, :, k], [[e, d, f], [b, a, c]], cval=value, **how) for k, value in enumerate(fill)]
    return np.stack(planes, axis=2)


def _affine_by_opencv(cv2: Any, op: ops.Affine, pixels: Array) -> Array:
    """Apply an affine transform with OpenCV 4 and torchvision's inverse matrix, shifted to the centres of pixels."""
    height, width = pixels.shape[:2]
    inverse = import_module("torchvision.transforms.functional")._get_inverse_affine_matrix  # noqa: SLF001
    center = op.center or (width * 0.5, height * 0.5)
    matrix = np.array(inverse(list(center), op.angle, list(op.translate), op.scale, list(op.shears))).reshape(2, 3)
    matrix[:, 2] += 0.5 * (matrix[:, :2].sum(1) - 1)
    result: Array = cv2.warpAffine(
        np.ascontiguousarray(pixels),
        matrix,
        (width, height),
        flags=getattr(cv2, _CV2_FILTERS[op.filter]) | cv2.WARP_INVERSE_MAP,
        borderMode=getattr(cv2, f"BORDER_{_CV2_BORDERS[op.padding_mode or 'constant']}"),
        borderValue=np.broadcast_to(op.fill, pixels.shape[2]).tolist(),
    )
    return result.reshape(pixels.shape)


def _blur_by_opencv(cv2: Any, op: ops.GaussianBlur, pixels: Array) -> Array:
    """Blur an image with OpenCV's separable filter and the kernels of Albumentations."""
    taps = op.taps if op.kernel_size else [2 * int(3.5 * sigma) + 1 for sigma in op.sigmas]
    kernels = [
        np.exp(-0.5 * ((np.arange(count) - count // 2) / sigma) ** 2)
        for count, sigma in zip(taps, op.sigmas, strict=True)
    ]
    kernel_y, kernel_x = (kernel / kernel.sum() for kernel in kernels)
    blurred: Array = cv2.sepFilter2D(np.ascontiguousarray(pixels), -1, kernel_x, kernel_y)
    return blurred.reshape(pixels.shape)


def _equalize_by_opencv(cv2: Any, op: ops.Clahe, pixels: Array) -> Array:
    """Apply CLAHE with OpenCV. If the image has three channels, only its lightness in CIELAB is equalized."""
    equalizer = cv2.createCLAHE(ends(op.clip_limit)[0], op.grid)
    if pixels.shape[2] == 1:
        return np.asarray(equalizer.apply(pixels[:, :, 0]))
    lab = cv2.cvtColor(pixels, cv2.COLOR_RGB2LAB)
    lab[:, :, 0] = equalizer.apply(np.ascontiguousarray(lab[:, :, 0]))
    return np.asarray(cv2.cvtColor(lab, cv2.COLOR_LAB2RGB))


def _compress_by_opencv(cv2: Any, op: ops.Compression, pixels: Array) -> Array:
    """Compress an image with OpenCV. As in Albumentations, OpenCV receives RGB instead of BGR."""
    flag = {"jpeg": cv2.IMWRITE_JPEG_QUALITY, "webp": cv2.IMWRITE_WEBP_QUALITY}[op.format]
    _, encoded = cv2.imencode(f".{op.format}", pixels, (flag, int(ends(op.quality)[0])))
    return np.asarray(cv2.imdecode(encoded, cv2.IMREAD_GRAYSCALE if pixels.shape[2] == 1 else cv2.IMREAD_COLOR))


def _filter_by_opencv(cv2: Any, op: ops.MotionBlur | ops.Sharpen, pixels: Array) -> Array:
    """Correlate an image with the kernel of the op."""
    step: Any = op.steps({}, pixels.shape[0], pixels.shape[1], "rgb")[0]
    return np.asarray(cv2.filter2D(pixels, -1, np.array(step.weights, np.float32).reshape(-1, step.size)))


def _distort(_: Any, op: ops.OpticalDistortion, pixels: Array) -> Array:
    """Distort an image with the maps of Albumentations and OpenCV's ``remap``."""
    cv2, functional = import_module("cv2"), import_module("albumentations.augmentations.geometric.functional")
    names = {"camera": "get_camera_matrix_distortion_maps", "fisheye": "get_fisheye_distortion_maps"}
    x, y = getattr(functional, names[op.model])(pixels.shape[:2], ends(op.k)[0])
    border = getattr(cv2, f"BORDER_{_CV2_BORDERS[op.padding_mode]}")
    fill = np.broadcast_to(op.fill, pixels.shape[2]).tolist()
    how = {"interpolation": getattr(cv2, _CV2_FILTERS[op.filter]), "borderMode": border, "borderValue": fill}
    return np.asarray(cv2.remap(pixels, x.astype(np.float32), y.astype(np.float32), **how))


def _downscale_by_opencv(cv2: Any, op: ops.Downscale, pixels: Array) -> Array:
    down, up = (getattr(cv2, MODES[name]) for name in (op.down, op.up))
    scale = ends(op.scale)[0]
    small = cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=down)
    return np.asarray(cv2.resize(small, pixels.shape[1::-1], interpolation=up))


def _erase(op: ops.Erase, image: Any) -> Any:
    erased = image.copy()
    erased.paste(tuple(_fill(op, image)), (op.left, op.top, op.left + op.width, op.top + op.height))
    return erased


PILLOW: Mapping[type[ops.SteadyOp], Callable[[Any, Any], Any]] = {
    ops.Brightness: lambda op, image: ImageEnhance.Brightness(image).enhance(op.factor),
    ops.Contrast: lambda op, image: ImageEnhance.Contrast(image).enhance(op.factor),
    ops.Saturation: lambda op, image: ImageEnhance.Color(image).enhance(op.factor),
    ops.Sharpness: lambda op, image: ImageEnhance.Sharpness(image).enhance(op.factor),
    ops.Hue: _shift_hue,
    ops.Grayscale: lambda _, image: image.convert("L").convert(image.mode),
    ops.Gamma: lambda op, image: _apply_lut(image, lambda x: int((255 + 1 - 1e-3) * op.gain * (x / 255.0) ** op.gamma)),
    ops.Posterize: lambda op, image: ImageOps.posterize(image, op.bits),
    ops.Solarize: lambda op, image: ImageOps.solarize(image, op.threshold),
    ops.SolarizeAdd: lambda op, image: _apply_lut(image, lambda x: min(255, x + op.add) if x < op.threshold else x),
    ops.Autocontrast: lambda _, image: ImageOps.autocontrast(image),
    ops.Equalize: lambda _, image: ImageOps.equalize(image),
    ops.Invert: lambda _, image: ImageOps.invert(image),
    ops.PermuteChannels: lambda op, image: Image.merge("RGB", [image.split()[channel] for channel in op.permutation]),
    ops.ColorMatrix: lambda op, image: (
        image.convert("RGB").convert("RGB", [number for row in op.matrix for number in row]).getchannel(0)
        if image.mode == "L"
        else image.convert("RGB", [number for row in op.matrix for number in row])
    ),
    ops.Erase: _erase,
    ops.Rotate: lambda op, image: image.rotate(
        op.angle, Image.Resampling[op.filter.upper()], op.expand, op.center, fillcolor=tuple(_fill(op, image))
    ),
}
"""Pillow's functions by the class of the op. Their arguments are the op and a PIL image."""
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
        image, op.angle, interpolation=op.filter, expand=op.expand, center=_center(op), fill=_fill(op, image)
    ),
    ops.Affine: lambda f, op, image: f.affine(
        image, angle=op.angle, translate=list(op.translate), scale=op.scale, shear=list(op.shears),
        interpolation=op.filter, center=_center(op), fill=_fill(op, image),
    ),
    ops.Perspective: _perspective,
    ops.GaussianBlur: lambda f, op, image: f.gaussian_blur(
        image, list(op.taps[::-1]), None if op.sigma is None else [float(x) for x in ops.as_tuple(op.sigma)]
    ),
}  # fmt: skip
"""torchvision's functions by the class of the op.

Their arguments are the module ``torchvision.transforms.v2.functional``, the op, and a PIL image or a tensor of shape
(channels, height, width).
"""


OPENCV: Mapping[type[ops.SteadyOp], Callable[[Any, Any, Array], Array]] = {
    ops.Warp: _warp_by_opencv,
    ops.Affine: _affine_by_opencv,
    ops.GaussianBlur: _blur_by_opencv,
    ops.BoxBlur: lambda cv2, op, pixels: cv2.blur(pixels, (int(ends(op.kernel)[0]),) * 2),
    ops.MedianBlur: lambda cv2, op, pixels: cv2.medianBlur(pixels, int(ends(op.kernel)[0])),
    ops.MotionBlur: _filter_by_opencv,
    ops.Sharpen: _filter_by_opencv,
    ops.Clahe: _equalize_by_opencv,
    ops.Compression: _compress_by_opencv,
    ops.Downscale: _downscale_by_opencv,
}
"""OpenCV's functions by the class of the op.

Their arguments are the module ``cv2``, the op, and a uint8 array of shape (height, width, channels).
"""


ALBUMENTATIONS: Mapping[type[ops.SteadyOp], Callable[[Any, Any, Any], Any]] = {
    ops.Brightness: lambda f, op, image: f.adjust_brightness_torchvision(image, op.factor),
    ops.Contrast: lambda f, op, image: f.adjust_contrast_torchvision(image, op.factor),
    ops.Saturation: lambda f, op, image: f.adjust_saturation_torchvision(image, op.factor),
    ops.Hue: lambda f, op, image: f.adjust_hue_torchvision(image, op.factor),
    ops.Grayscale: lambda f, _, image: image if image.shape[2] == 1 else f.to_gray(image, 3, "weighted_average"),
    ops.HueSaturationValue: lambda f, op, image: f.shift_hsv(image, op.hue, op.saturation, op.value),
    ops.Gamma: lambda f, op, image: f.gamma_transform(image, ends(op.gamma)[0]),
    ops.OpticalDistortion: _distort,
    ops.ToneCurve: lambda f, op, image: f.move_tone_curve(image, op.low, op.high),
    ops.BrightnessContrast: lambda f, op, image: f.multiply_add(image, op.contrast, op.brightness),
}
"""Functions that call Albumentations, by the class of the op.

Their arguments are the module ``albumentations.augmentations.pixel.functional``, the op, and an array.
"""


_OF_ALBUMENTATIONS = (ops.HueSaturationValue, ops.BrightnessContrast, ops.ToneCurve, ops.OpticalDistortion)
"""Ops that reproduce only Albumentations."""


def has_one_channel(op: ops.Op, *, was_gray: bool) -> bool:
    """Return whether the image has one channel in DALI after an op.

    Args:
        op: Op of pixprep, whose image has three channels.
        was_gray: Whether the image has one channel in DALI before the op.
    """
    if not isinstance(op, ops.ColorMatrix):
        return was_gray or isinstance(op, ops.Grayscale)
    is_scaled = np.count_nonzero(np.array(op.matrix)[:, :3]) <= 3
    return len({*op.matrix}) == 1 or (was_gray and is_scaled)


def library_of(op: ops.SteadyOp) -> str:
    """Return the key of the library that ``recoloured`` calls for an op, as in ``libraries.TABLE``."""
    if type(op) in _OF_ALBUMENTATIONS or _is_blend_of_opencv(op):
        return "albumentations"
    like = str(getattr(op, "like", "opencv" if type(op) in OPENCV else "pillow"))
    return like if type(op) in PILLOW or like in ("opencv", "dali", "scipy") else "torchvision"


def _is_blend_of_opencv(op: ops.SteadyOp) -> bool:
    return type(op) in ALBUMENTATIONS and getattr(op, "like", "") == "opencv"


def recoloured(op: ops.SteadyOp, pixels: Array) -> Array:
    """Apply a colour op or a warp to an image with the library of the op.

    Args:
        op: Op to apply.
        pixels: uint8 array of shape (height, width, 1) or (height, width, 3), RGB.
    """
    if isinstance(op, ops.Warp) and op.like == "scipy":
        return _warp_by_scipy(op, pixels)
    if type(op) in OPENCV and library_of(op) != "torchvision":
        found = OPENCV[type(op)](import_module("cv2"), op, np.ascontiguousarray(pixels))
        return found.reshape(*found.shape[:2], pixels.shape[2])
    if library_of(op) == "albumentations":
        functional = import_module("albumentations.augmentations.pixel.functional")
        result = np.asarray(ALBUMENTATIONS[type(op)](functional, op, np.ascontiguousarray(pixels)))
        return result.reshape(pixels.shape)
    if getattr(op, "like", library_of(op)) == "torchvision":
        return np.asarray(by_torchvision(op, planes(pixels)).numpy().transpose(1, 2, 0))
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))
    result = np.asarray(PILLOW[type(op)](op, image) if type(op) in PILLOW else by_torchvision(op, image))
    return result.reshape(*result.shape[:2], pixels.shape[2])


def by_torchvision(op: ops.SteadyOp, image: Any) -> Any:
    """Apply an op with torchvision. ``image`` and the result are PIL images or tensors."""
    return TORCHVISION[type(op)](import_module("torchvision.transforms.v2.functional"), op, image)
