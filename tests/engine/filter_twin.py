"""Reference implementation of engine/kernels/filters.c, which computes the formulas of ``levels.Filter`` in NumPy."""

import numpy as np


def filtered(step, image):
    """Return the image with the filter applied.

    Args:
        step: Parameters of the filter.
        image: uint8 array (height, width, channels) with any strides.
    """
    return _sharpened(step, image) if step.kind == "sharpness" else _blurred(step, image)


def _sharpened(step, image):
    if min(image.shape[:2]) < 3:
        return image
    wide = image.astype(np.uint16)
    rows = wide[:-2] + wide[1:-1] + wide[2:]
    own = image[1:-1, 1:-1]
    sums = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] + 4 * wide[1:-1, 1:-1]
    smooth = ((2 * sums + 13) // 26).astype(np.float32)
    if step.like == "pillow":
        values = smooth + np.float32(step.factor) * (own - smooth)
    else:
        share = np.float64(np.float32(1 - step.factor))
        values = ((smooth - own).astype(np.float64) * share + own).astype(np.float32)
    out = image.copy()
    out[1:-1, 1:-1] = values.clip(0, 255)
    return out


def _blurred(step, image):
    along = _summed(_parts(image.astype(np.float32), 1, step.columns), step.columns, step.like)
    parts, weights = _parts(along, 0, step.rows), step.rows
    if step.like == "opencv":  # the kernel is symmetric, so the order of the sums is symmetric
        middle = len(weights) // 2
        pairs = zip(parts[middle + 1 :], parts[:middle][::-1], strict=True)
        parts, weights = [parts[middle], *(below + above for below, above in pairs)], weights[middle:]
    return np.rint(_summed(parts, weights, step.like)).astype(np.uint8)


def _parts(values, axis, weights):
    """Return one shifted copy of the values along an axis for each weight. Positions outside are reflected."""
    reach = len(weights) // 2
    padded = np.pad(values, [(reach, reach) if each == axis else (0, 0) for each in range(3)], mode="reflect")
    length = values.shape[axis]
    return [np.take(padded, range(place, place + length), axis) for place in range(len(weights))]


def _summed(parts, weights, like):
    """Return the weighted sum of the arrays. Each product is rounded to float32, except in OpenCV's arithmetic."""
    total = np.zeros_like(parts[0])
    for part, weight in zip(parts, np.array(weights, np.float32), strict=True):
        product = part.astype(np.float64) * weight if like == "opencv" else part * weight
        total = (total + product).astype(np.float32)
    return total
