"""Oracle of engine/kernels/filters.c: the formulas of ``levels.Filter`` in NumPy, operation by operation."""

import numpy as np


def filtered(step, image):
    """The image after it.

    Args:
        step: says how.
        image: uint8 (height, width, channels), any strides.
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
    along = _summed(image.astype(np.float32), 1, step.columns)
    return np.rint(_summed(along, 0, step.rows)).astype(np.uint8)


def _summed(values, axis, weights):
    """The weighted sums of neighbours along an axis, reflected at the edge."""
    reach = len(weights) // 2
    length = values.shape[axis]
    padded = np.pad(values, [(reach, reach) if each == axis else (0, 0) for each in range(3)], mode="reflect")
    total = np.zeros_like(values)
    for place, weight in enumerate(np.array(weights, np.float32)):
        part = padded[:, place : place + length] if axis else padded[place : place + length]
        total += part * weight
    return total
