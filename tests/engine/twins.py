"""Reference implementations of those C kernels in NumPy for which no installed library computes the same values."""

import numpy as np
from PIL import Image

from pixprep.plan.profiles.windows import Windows
from support.elastic_twin import looked_at

RADIUS = {"box": 0.5, "bilinear": 1.0, "hamming": 1.0, "bicubic": 2.0, "lanczos": 3.0, "two": 1.0, "four": 2.0}

F32 = np.float32

# ---------------------------------------------------------------------------------------------------- filter taps


def windows(formula, axis):
    """Return the filter taps that ``engine/kernels/coefficients.c`` computes for an axis whose length changes."""
    # the precision of an axis depends on all of its taps, whichever are requested
    whole = axis if formula.bits else axis._replace(begin=0, end=axis.out_length)
    first, count, weights, largest = (_nearest if formula.curve in ("two", "four") else _cut)(formula, whole)
    bits = formula.bits or next(n for n in range(23) if n == 22 or int(0.5 + largest * (1 << (n + 1))) >= 1 << 15)
    fixed = np.trunc(weights * (1 << bits) + np.where(weights < 0, -0.5, 0.5)).astype(np.int32)
    wanted = slice(axis.begin - whole.begin, axis.end - whole.begin)
    first, count = first.astype(np.int32)[wanted], count.astype(np.int32)[wanted]
    return Windows(first, count, fixed[wanted, : count.max()], bits)


def _cut(formula, axis):
    stretch = max(axis.ratio, 1.0) if formula.is_widened else 1.0
    support = RADIUS[formula.curve] * stretch
    middles = axis.offset + (np.arange(axis.begin, axis.end) + 0.5) * axis.ratio
    first = np.maximum((middles - support + 0.5).astype(np.int64), 0)
    last = np.minimum((middles + support + 0.5).astype(np.int64), axis.length)
    taps = np.arange(int((last - first).max()))
    weights = _value(formula.curve, (taps + first[:, None] - middles[:, None] + 0.5) * (1 / stretch))
    weights[taps >= (last - first)[:, None]] = 0.0
    weights /= np.add.accumulate(weights, axis=1)[:, -1:]  # in sequence, because ``sum`` adds pairwise
    return first, last - first, weights, float(weights.max())


def _value(curve, x):
    a = np.abs(x)
    if curve == "box":
        return ((x > -0.5) & (x <= 0.5)).astype(np.float64)
    if curve == "bilinear":
        return np.maximum(1.0 - a, 0.0)
    if curve == "hamming":  # Pillow's constants are float32
        return np.where(a < 1, np.sinc(x) * (float(F32(0.54)) + float(F32(0.46)) * np.cos(np.pi * x)), 0.0)
    if curve == "bicubic":  # Keys 1981, a = -0.5
        far = ((-0.5 * a + 2.5) * a - 4.0) * a + 2.0
        return np.where(a < 1, (1.5 * a - 2.5) * a * a + 1.0, np.where(a < 2, far, 0.0))
    return np.where((x >= -3) & (x < 3), np.sinc(x) * np.sinc(x / 3), 0.0)


def _nearest(formula, axis):
    """Return the maximum of all intermediate sums, which PyTorch reaches at the border."""
    middles = (np.arange(axis.begin, axis.end) + 0.5) * axis.ratio - 0.5
    if formula.curve == "two":
        middles = np.maximum(middles, 0.0)
    floor = np.minimum(np.floor(middles.astype(F32)).astype(np.int64), axis.length - 1)
    t = np.clip(middles - floor, 0.0, 1.0)
    shares = [1 - t, t] if formula.curve == "two" else [_far(1 + t), _near(t), _near(1 - t), _far(2 - t)]
    begin = floor - (len(shares) // 2 - 1)
    first = np.maximum(begin, 0)
    weights, largest, rows = np.zeros((len(floor), len(shares))), 0.0, np.arange(len(floor))
    for tap, share in enumerate(shares):
        slot = np.clip(begin + tap, 0, axis.length - 1) - first
        weights[rows, slot] += share
        largest = max(largest, float(weights[rows, slot].max()))
    return first, np.minimum(begin + len(shares), axis.length) - first, weights, largest


def _near(x):
    """Return the cubic kernel of Keys 1981 with a = -0.75, for 0 <= x <= 1."""
    return (1.25 * x - 2.25) * x * x + 1


def _far(x):
    """Return the same kernel for 1 <= x <= 2."""
    return ((-0.75 * x + 3.75) * x - 6) * x + 3


# --------------------------------------------------------------------------------------------------------------- warps


def warped(step, image):
    """Return the region of a ``Warp``, computed by Pillow, by OpenCV, or with the formulas of torchvision or DALI."""
    rows, columns = slice(step.top, step.top + step.height), slice(step.left, step.left + step.width)
    if step.like == "opencv":
        return _by_opencv(step, image)[rows, columns]
    if step.like == "dali":
        return _by_dali(step, image)[rows, columns]
    if step.like == "torchvision":
        return _by_torchvision(step, image, np.arange(step.whole[0])[rows], np.arange(step.whole[1])[columns])
    pil = Image.fromarray(np.ascontiguousarray(image[:, :, 0] if image.shape[2] == 1 else image))
    way = Image.Transform.PERSPECTIVE if step.is_perspective else Image.Transform.AFFINE
    fill = step.fill if step.fill is None or len(step.fill) > 1 else step.fill[0]
    made = pil.transform(step.whole[::-1], way, step.matrix, Image.Resampling[step.filter.upper()], fillcolor=fill)
    return np.asarray(made).reshape(*step.whole, -1)[rows, columns]


def _by_opencv(step, image):
    from engine.opencv4 import BORDERS, FLAGS, cv2  # noqa: PLC0415 - this import skips the test without OpenCV 4

    numbers, how = np.reshape(step.matrix, (-1, 3)), FLAGS[step.filter] | cv2.WARP_INVERSE_MAP
    warp = cv2.warpPerspective if step.is_perspective else cv2.warpAffine
    border = {"borderMode": BORDERS[step.padding_mode], "borderValue": step.fill or (0,)}
    made = warp(np.ascontiguousarray(image), numbers, step.whole[::-1], flags=how, **border)
    return made.reshape(*step.whole, image.shape[2])


def _by_dali(step, image):
    (height, width), places, is_nearest = image.shape[:2], [], step.filter == "nearest"
    down = np.arange(step.whole[0], dtype=F32)[:, None] + F32(0.5)
    for a, b, c in np.array(step.matrix, F32).reshape(2, 3):
        first, parts = (c + a * F32(0.5)) + b * down, []
        for k in range(0, step.whole[1], 256):
            steps = np.full((len(first), min(256, step.whole[1] - k)), a, F32)
            steps[:, :1] = first
            parts.append(np.add.accumulate(steps, axis=1, dtype=F32))
            first = first + a * F32(256)
        places.append(np.concatenate(parts, axis=1) - F32(0 if is_nearest else 0.5))
    x, y = (place.clip(-2, length + 2) for place, length in zip(places, (width, height), strict=True))
    i, j = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)

    def at(down, across):
        (rows, is_row), (columns, is_column) = (
            _bordered(place, length, step.padding_mode) for place, length in ((j + down, height), (i + across, width))
        )
        return np.where((is_row & is_column)[..., None], image[rows, columns], step.fill or (0,)).astype(F32)

    if is_nearest:
        return at(0, 0).astype(np.uint8)
    dx, dy = (x - i.astype(F32))[..., None], (y - j.astype(F32))[..., None]
    upper, lower = (at(down, 0) * (1 - dx) + at(down, 1) * dx for down in (0, 1))
    levels = upper + (lower - upper) * dy
    return (np.floor(levels) + (levels - np.floor(levels) >= 0.5)).astype(np.uint8)


def _bordered(places, length, mode):
    """Return positions inside the image for positions outside its border, and a mask of the positions that have a pixel
    value.
    """
    return places.clip(0, length - 1), (mode == "edge") | ((places >= 0) & (places < length))


def _by_torchvision(step, image, rows, columns):
    height, width, channels = image.shape
    x, y = _looked_at(step, height, width, rows, columns)
    x, y = (_fused(place + F32(1), side / 2, -0.5) for place, side in ((x, width), (y, height)))
    framed = np.zeros((height + 2, width + 2, channels + 1), F32)  # a channel of ones, which becomes the weight
    framed[1:-1, 1:-1, :channels], framed[1:-1, 1:-1, channels] = image, 1
    fill = np.array(step.fill or (0,), F32)

    def at(row, column):
        return framed[np.clip(row + 1, 0, height + 1), np.clip(column + 1, 0, width + 1)]

    if step.filter == "nearest":
        seen = at(np.rint(y).astype(np.int64), np.rint(x).astype(np.int64))
        return np.where(seen[..., channels:] > 0, seen[..., :channels], fill).astype(np.uint8)
    left, top = np.floor(x), np.floor(y)
    r, t, total = x - left, y - top, None
    for row, down in ((0, F32(1) - t), (1, t)):
        for column, share in ((0, F32(1) - r), (1, r)):
            those, share = at(top.astype(np.int64) + row, left.astype(np.int64) + column), (down * share)[..., None]  # noqa: PLW2901
            total = those * share if total is None else _fused(those, share, total)
    values, mask = total[..., :channels], total[..., channels:]
    return np.rint(values if step.fill is None else (values - fill) * mask + fill).astype(np.uint8)


def _looked_at(step, height, width, rows, columns):
    """Return float32 x and y coordinates in the image, from -1 to 1."""
    if step.elastic is not None:
        return looked_at(step.elastic, *step.whole)[:, rows[:, None], columns]
    middle = (-0.5, -0.5) if step.is_perspective else [(side - 1) / 2 for side in step.whole]
    along, down = (columns - middle[1]).astype(F32), (rows - middle[0]).astype(F32)[:, None]
    halves = np.array([[0.5 * width], [0.5 * height]], F32)
    (a, b, c), (d, e, f) = np.array(step.matrix[:6], F32).reshape(2, 3) / halves
    x, y = along * a + down * b + c, along * d + down * e + f
    if step.is_perspective:
        g, h = np.array(step.matrix[6:], F32)
        depth = along * g + down * h + F32(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            x, y = (np.nan_to_num(place / depth - F32(1), nan=-9, posinf=1e9, neginf=-1e9) for place in (x, y))
    return x, y


def _fused(a, b, c):
    """Return ``a * b + c`` of float32 numbers, rounded once, because float64 holds the exact product."""
    return (np.asarray(a, np.float64) * b + c).astype(F32)


# ------------------------------------------------------------------------------------------------ torchvision's colours


def luma_of_opencv(image):
    """Return OpenCV's gray image (height, width, 1) of a uint8 RGB image."""
    return ((image.astype(np.int64) * (9798, 19235, 3735)).sum(axis=2, keepdims=True) + 16384) >> 15


def rounded(values):
    """Return the values rounded to pixel values, half to even."""
    return np.rint(values).clip(0, 255).astype(np.uint8)


def shifted(step, image):
    """Return the image after OpenCV's conversion from uint8 RGB to HSV, the shifts, and the conversion back to RGB (see
    ``hsv.Hsv``).
    """
    red, green, blue = image.astype(np.int64).transpose(2, 0, 1)
    top = image.max(axis=2).astype(np.int64)
    span = top - image.min(axis=2)
    turn = np.where(top == red, green - blue, np.where(top == green, blue - red + 2 * span, red - green + 4 * span))
    by_span, by_top = (
        np.rint(unit / np.maximum(each, 1)).astype(np.int64)
        for unit, each in ((180 * 4096 / 6, span), (255 * 4096, top))
    )
    hue = (turn * by_span + 2048) >> 12
    hue = np.frombuffer(step.hues, np.uint8)[np.where(hue < 0, hue + 180, hue)].astype(np.float32)
    found = (span * by_top + 2048) >> 12
    saturation = np.where(found > 0, found + step.saturation, 0).clip(0, 255).astype(np.float32) * np.float32(1 / 255)
    value = (top + step.value).clip(0, 255).astype(np.float32) * np.float32(1 / 255)
    place = hue * np.float32(6 / 180)
    sector = place.astype(np.int64)
    part = place - sector.astype(np.float32)
    part = np.where(sector % 2 == 1, part, 1 - part)
    share = (1 - saturation.astype(np.float64) * part).astype(np.float32)  # fused
    levels = np.stack([value, value * (1 - saturation), value * share]) * np.float32(255)
    width = image.shape[1]
    levels = np.where(np.arange(width) < width - width % 32, np.trunc(levels), np.rint(levels))
    order = np.array([[0, 2, 1], [2, 0, 1], [1, 0, 2], [1, 2, 0], [2, 1, 0], [0, 1, 2]])[sector % 6]
    return np.take_along_axis(levels.transpose(1, 2, 0), order, 2).clip(0, 255).astype(np.uint8)


def luma(image):
    """Return the gray value of each pixel as an array (height, width)."""
    red, green, blue = image.transpose(2, 0, 1).astype(F32)
    gray = _fused(green, float(F32(0.587)), red * F32(0.2989))
    return _fused(blue, float(F32(0.114)), gray).astype(np.uint8)


def blended(image, gray, factor):
    """Blend an image with gray, which is an array (height, width, 1) or a number."""
    scaled = image.astype(F32) * F32(factor)
    return _fused(gray, float(F32(1 - factor)), scaled).clip(0, 255).astype(np.uint8)


def turned(image, shift):
    """Rotate the hue of an image as torchvision does, in float32."""
    red, green, _ = pixel = image.transpose(2, 0, 1).astype(F32) * F32(1 / 255)
    top, low = pixel.max(axis=0), pixel.min(axis=0)
    span, is_gray = top - low, top == low
    s = span / np.where(is_gray, F32(1), top)
    r, g, b = (top - pixel) / np.where(is_gray, F32(1), span)
    h = np.where(red == top, b - g, np.where(green == top, F32(2) + r - b, F32(4) + g - r))
    h = np.fmod(h * F32(1 / 6) + F32(1), F32(1)) + F32(shift)
    h = np.where(h >= 1, h - F32(1), np.where(h < 0, h + F32(1), h))
    y = h * F32(6)
    sector = np.floor(y)
    f = y - sector
    p, q, t = ((F32(1) - s) * top, (F32(1) - s * f) * top, (s * f + (F32(1) - s)) * top)
    p, q, t = (each.clip(0, 1) for each in (p, q, t))
    orders = [(top, t, p), (q, top, p), (p, top, t), (p, q, top), (t, p, top), (top, p, q)]
    made = np.choose(sector.astype(int)[None] % 6, [np.stack(order) for order in orders])
    return (made * F32(255.999)).astype(np.uint8).transpose(1, 2, 0)
