"""Reference implementation in float64 NumPy, written from the definitions. It does not import pixprep.

Images are uint8 (height, width, channels). The definitions of the filters come from Pillow's documentation: box, hat,
Hamming, Keys 1981 with a = -0.5, and Lanczos with three lobes. The support grows when the image is reduced, and is cut
off at the border. Other definitions come from torchvision's documentation of ``Resize``, ``CenterCrop`` and
``Normalize``, and from Ultralytics' documentation of ``LetterBox``.
"""

import numpy as np


def _kernel(name, x):
    x = np.abs(x)
    if name == "bilinear":
        return np.where(x < 1, 1 - x, 0)
    if name == "hamming":
        return np.where(x < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0)
    if name == "bicubic":
        inner = 1.5 * x**3 - 2.5 * x**2 + 1
        outer = -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
        return np.where(x <= 1, inner, np.where(x < 2, outer, 0))
    assert name == "lanczos"
    return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)


def _radius(name):
    return {"box": 0.5, "bilinear": 1, "hamming": 1, "bicubic": 2, "lanczos": 3}[name]


def matrix(length, out_length, filter_name, *, antialias=True):
    """Return the weight of each input pixel in each output pixel: float64 (out_length, length)."""
    ratio = length / out_length
    centers = (np.arange(out_length) + 0.5) * ratio
    positions = np.arange(length) + 0.5
    width = max(ratio, 1.0) if antialias else 1.0
    distance = (positions - centers[:, None]) / width
    if filter_name == "box":
        # the box filter includes only one of its edges; 1e-9 resolves ties despite rounding errors
        weights = ((distance > -0.5 + 1e-9) & (distance <= 0.5 + 1e-9)).astype(float)
    else:
        weights = _kernel(filter_name, distance)
    weights[np.abs(distance) > _radius(filter_name) + 1e-9] = 0
    return weights / weights.sum(axis=1, keepdims=True)


def is_down_first(size, resized, like="pillow"):
    """Return whether the vertical pass comes first.

    In Pillow 13, it does if the height loses more than twice as many pixels as the width. In older versions
    (``pillow12``), the horizontal pass always comes first.
    """
    rows, columns = size[0] - resized[0], size[1] - resized[1]
    return like == "pillow" and rows > 0 and rows > 2 * columns


def resize(pixels, height, width, filter_name, *, antialias=True, like="pillow"):
    """Resize along one axis and round to uint8, and then do the same along the other axis. The sums are float64."""
    if filter_name == "nearest":
        return nearest(pixels, height, width)
    result = pixels.astype(float)
    for axis in (0, 1) if is_down_first(pixels.shape, (height, width), like) else (1, 0):
        length, out_length = pixels.shape[axis], (height, width)[axis]
        if length != out_length:
            weights = matrix(length, out_length, filter_name, antialias=antialias)
            result = _round(np.moveaxis(np.tensordot(weights, result, (1, axis)), 0, axis))
    return result.astype(np.uint8)


def nearest(pixels, height, width):
    """Return the pixels at the centres of the output pixels. On a tie, the result follows from adding the ratio
    repeatedly.
    """
    rows, columns = (_nearest_positions(n, m) for n, m in zip(pixels.shape[:2], (height, width), strict=True))
    return pixels[rows][:, columns]


def _nearest_positions(length, out_length):
    ratio = length / out_length
    position, positions = ratio * 0.5, []
    for _ in range(out_length):
        positions.append(min(int(position), length - 1))
        position += ratio
    return positions


def _round(values):
    return np.clip(np.floor(values + 0.5), 0, 255)


def resized_size(height, width, *, size, side="shorter"):
    """Return the size of an image after torchvision's ``Resize``."""
    short, long = min(height, width), max(height, width)
    new_short, new_long = (size, int(size * long / short)) if side == "shorter" else (int(size * short / long), size)
    new_short, new_long = max(new_short, 1), max(new_long, 1)
    return (new_short, new_long) if height <= width else (new_long, new_short)


def center_crop(pixels, height, width):
    """Crop like torchvision: pad with zeros if the image is smaller than the crop, and round half offsets to even.

    If the amount of padding is odd, the bottom or right side gets the additional pixel.
    """
    missing = [max(0, want - have) for want, have in zip((height, width), pixels.shape[:2], strict=True)]
    pixels = np.pad(pixels, [(d // 2, d - d // 2) for d in missing] + [(0, 0)])
    top, left = (round((have - want) / 2) for want, have in zip((height, width), pixels.shape[:2], strict=True))
    return pixels[top : top + height, left : left + width]


def fraction_crop(pixels, fraction):
    side = max(1, int(fraction * min(pixels.shape[:2])))
    return center_crop(pixels, side, side)


def pad(pixels, height, width, *, fill=0, anchor="center"):
    """Place an image on a canvas, at Ultralytics' offset ``round(d / 2 - 0.1)`` or at the top left."""
    canvas = np.empty((height, width, pixels.shape[2]), np.uint8)
    canvas[:] = fill
    spare = (height - pixels.shape[0], width - pixels.shape[1])
    top, left = (round(d / 2 - 0.1) if anchor == "center" else 0 for d in spare)
    canvas[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return canvas


def letterbox_size(height, width, *, canvas, enlarge=True):
    scale = min(canvas[0] / height, canvas[1] / width)
    scale = scale if enlarge else min(scale, 1.0)
    return max(1, round(height * scale)), max(1, round(width * scale))


def normalize(pixels, mean, std, scale=1 / 255):
    """Return (value * scale - mean) / std in float64."""
    return (pixels.astype(float) * scale - np.asarray(mean)) / np.asarray(std)


def transform_point(point, transform):
    """Map a point (y, x) of the decoded image to the tensor, using the values of a ``transform`` output."""
    scale_y, scale_x, offset_y, offset_x = map(float, transform)
    return point[0] * scale_y + offset_y, point[1] * scale_x + offset_x
