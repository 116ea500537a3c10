"""Reference implementation of every resize in NumPy, which mirrors the C code operation by operation.

The filters follow ``engine/kernels/library_filters.c``, and the passes follow ``passes.c``. The module ``twins``
computes the coefficients of the other filters.
"""

import math

import numpy as np

from engine import twins
from pixprep.plan.profiles.windows import Order, Windows, multiply_add, single

F32 = np.float32

# ------------------------------------------------------------------------------------------------------------- passes


def resample(pixels, how, around=None, flips=(False, False)):
    """Return the requested region (rows, columns, channels) as uint8, or as float32 if values are not rounded.

    ``how`` is a ``Resampling`` and ``around`` its ``Margins``. ``flips`` are the flips of the result: (vertical,
    horizontal).
    """
    windows = how.windows or tuple(windows_of(how, axis) for axis in (how.rows, how.columns))
    values, (rows, columns) = _read(pixels, windows, around)
    first, second = _PASSES[how.passes]
    if how.passes == "dali":
        return _tied(resample(pixels, how._replace(passes="real"), around, flips), how, flips[1])
    if how.vertical_first:
        values = second(_across(first(values, rows, how.factor)), columns, how.factor)
        values = _across(values)
    else:
        values = _across(first(_across(values), columns, how.factor))
        values = second(values, rows, how.factor)
    return values[:: -1 if flips[0] else 1, :: -1 if flips[1] else 1]


def windows_of(how, axis):
    """Return the filter taps along an axis, computed by the formula of a ``Resampling``."""
    if how.formula.is_rule:
        return _RULES[how.formula.curve](how.formula, axis)
    if axis.length == axis.out_length:
        return single(np.arange(axis.begin, axis.end))
    return twins.windows(how.formula, axis)


def _read(pixels, windows, around):
    """Return the pixels that the taps read, with the border repeated or filled. Also return the taps relative to these
    pixels.
    """
    above, before = around.before if around else (0, 0)
    laid = around.laid if around else pixels.shape
    canvas = pixels
    if around:
        canvas = np.full((*laid, pixels.shape[2]), around.fill, np.uint8)
        canvas[above : above + pixels.shape[0], before : before + pixels.shape[1]] = pixels
    inside = []
    for axis, each in enumerate(windows):
        begin, end = int(each.first.min()), int(each.first.max()) + each.weights.shape[1]
        canvas = canvas.take(np.clip(np.arange(begin, end), 0, laid[axis] - 1), axis)
        inside.append(Windows(each.first - np.int32(begin), each.count, each.weights, each.bits))
    return canvas, inside


def _across(values):
    return values.transpose(1, 0, 2)


def _taps(values, windows, dtype):
    """Yield the pixel values (out, other axis, channels) and the weights for each tap."""
    for tap in range(windows.weights.shape[1]):
        yield values[windows.first + tap].astype(dtype), windows.weights[:, tap, None, None].astype(dtype)


def _whole(values, windows, _=None):
    return sum(p * w for p, w in _taps(values, windows, np.int32))


def _real(values, windows, _=None, *, is_fused=False):
    (p, w), *others = _taps(values, windows, F32)
    total = p * w
    for tap, (p, w) in enumerate(others, 1):
        late = (tap > (windows.count - 1) // 4 * 4)[:, None, None] & is_fused
        total = np.where(late, multiply_add(p, w, total) if is_fused else 0, total + p * w)
    return total


def _fused(values, windows, _=None):
    return _real(values, windows, is_fused=True)


def _lerp(values, windows, _=None):
    (left, _), (right, t) = _taps(values, windows, F32)
    return left + (right - left) * t


def _shifted(values, windows, _=None):
    return _levels((_whole(values, windows) + (1 << windows.bits - 1)) >> windows.bits)


def _linear(values, windows, _=None):
    return _levels((sum(p * w >> 16 for p, w in _taps(values, windows, np.int32)) + 2) >> 2)


def _cubic(values, windows, _=None):
    total = 0
    for p, w in reversed(list(_taps(values, windows, F32))):
        total = p * (w * F32(2.0**-22)) + total
    return _even(total)


def _even(values):
    return _levels(np.rint(values))


def _levels(values):
    return np.clip(values, 0, 255).astype(np.uint8)


def _tied(values, how, is_mirrored):
    """Round DALI's values to pixel values.

    DALI's vector code rounds ties to even. In the remainder of a run, it rounds ties away from 0.
    """
    axis, channels = how.columns, values.shape[2]
    places = np.arange(axis.begin, axis.end)[:: -1 if is_mirrored else 1, None]
    ends = np.array([axis.out_length])
    places = axis.out_length - 1 - places if axis.ratio < 0 else places
    if how.vertical_first:
        windows = _dali(how.formula, axis._replace(begin=0, end=axis.out_length))
        first = windows.first[:: -1 if axis.ratio < 0 else 1]
        begins_inside, ends_inside = first >= 0, first + windows.count <= axis.length
        ends = np.flatnonzero(np.diff(2 * begins_inside + ends_inside, append=-1)) + 1
    elif channels > 1 and how.order != Order.ONE:
        order = [2, 1, 0, 0] if how.order == Order.BACKWARDS else [0, 1, 2, 2]  # the fourth value is unused
        places, ends = 3 * places + order[:channels], 3 * ends
    begins = np.append(0, ends)
    run = np.searchsorted(ends, places, side="right").clip(0, len(ends) - 1)
    whole = (ends - begins[:-1]) // 16 * 16
    is_even = (places - begins[run] < whole[run]) | ((np.arange(channels) == 3) & (not how.vertical_first))
    return np.where(is_even, _even(values), _levels(np.floor(values.astype(float) + 0.5)))


_PASSES = {
    "fixed": (_shifted, _shifted),
    "opencv_linear": (lambda *how: _whole(*how) >> 4, _linear),
    "opencv_cubic": (_whole, _cubic),
    "opencv_lanczos": (_whole, _shifted),
    "area": (_whole, lambda values, windows, factor: _even(_whole(values, windows).astype(F32) * F32(factor))),
    "float_even": (_real, lambda *how: _even(_real(*how))),
    "dali": (None, None),
    "float_fused": (_fused, lambda *how: _even(_fused(*how))),
    "real": (_real, _real),
    "lerp": (_lerp, _lerp),
}

# ------------------------------------------------------------------------------------------------------------ OpenCV

CUT = 1e-3
_S = math.sqrt(0.5)
_TURNS = ((1.0, 0.0), (-_S, -_S), (0.0, 1.0), (_S, -_S), (-1.0, 0.0), (_S, _S), (0.0, -1.0), (-_S, _S))
"""Factors (of sin(a), of cos(a)) for each tap k of ``lanczos4``: sin(a + 45 k degrees) with the sign of sin(x pi)."""


def _opencv(rule, axis):
    ratio, positions = _ratio(axis), np.arange(axis.begin, axis.end)
    if rule.curve == "opencv_repeated":
        first = np.floor(positions * ratio)
        t = ((positions + 1) - (first + 1) * (axis.out_length / axis.length)).astype(F32)
        t = np.where(t <= 0, F32(0), t - np.floor(t))
    else:
        middles = ((positions + 0.5) * ratio - 0.5).astype(F32)
        first = np.floor(middles)
        t = middles - first
    weights, before = {"opencv_cubic": (_keys, 1), "opencv_lanczos4": (_lanczos4, 3)}.get(rule.curve, (_two, 0))
    return _uniform(first - before, np.rint(weights(t) * F32(2048)).astype(np.int32))


def _ratio(axis):
    is_of_lengths = axis.ratio == axis.length / axis.out_length
    return 1.0 / (axis.out_length / axis.length) if is_of_lengths else axis.ratio


def _uniform(first, weights):
    return Windows(first.astype(np.int32), np.full(len(first), weights.shape[1], np.int32), weights)


def _two(t):
    return np.stack([1 - t, t], axis=1)


def _keys(t):
    a = F32(-0.75)
    one, far, rest = F32(1), t + F32(1), F32(1) - t
    first = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    second = ((a + 2) * t - (a + 3)) * t * t + one
    third = ((a + 2) * rest - (a + 3)) * rest * rest + one
    return np.stack([first, second, third, one - first - second - third], axis=1)


def _lanczos4(t):
    far = t + F32(3)
    angles = -far.astype(np.float64) * math.pi * 0.25
    sines, cosines = (np.array([of(angle) for angle in angles.tolist()]) for of in (math.sin, math.cos))
    weights, total = np.empty((len(t), len(_TURNS)), F32), np.zeros(len(t), F32)
    for tap, (of_sine, of_cosine) in enumerate(_TURNS):
        x = far - F32(tap)
        is_middle = np.abs(x) < F32(1e-6)
        y = np.where(is_middle, 1.0, -x.astype(np.float64) * math.pi * 0.25)
        weights[:, tap] = np.where(is_middle, F32(1e30), (of_sine * sines + of_cosine * cosines) / (y * y))
        total += weights[:, tap]
    return weights * (F32(1) / total)[:, None]


def _area(_, axis):
    factor, positions = round(_ratio(axis)), np.arange(axis.begin, axis.end)
    return _uniform(positions * factor, np.ones((len(positions), factor), np.int32))


def _cut(_, axis):
    ratio = _ratio(axis)
    begin = np.arange(axis.begin, axis.end) * ratio
    end = begin + ratio
    width = np.minimum(ratio, axis.length - begin)
    last = np.minimum(np.floor(end), axis.length - 1)
    first = np.minimum(np.ceil(begin), last)
    has_head, has_tail = first - begin > CUT, end - last > CUT
    count = (has_head + (last - first) + has_tail).astype(np.int32)
    weights = np.where(np.arange(int(count.max())) < count[:, None], (1 / width)[:, None], 0)
    weights[has_head, 0] = ((first - begin) / width)[has_head]
    tail = np.minimum(np.minimum(end - last, 1), width) / width
    weights[has_tail, count[has_tail] - 1] = tail[has_tail]
    return Windows((first - has_head).astype(np.int32), count, weights.astype(F32))


# ----------------------------------------------------------------------------------------------------------- PyTorch


def _torch(rule, axis):
    positions = np.arange(axis.begin, axis.end)
    if axis.out_length == axis.length:
        return single(positions, "float_fused")
    if axis.is_vertical and axis.across == 1:
        positions = np.zeros_like(positions)
    ratio = float(F32(axis.length) / F32(axis.out_length))
    stretch = max(ratio, 1.0)
    support = F32((2.0 if rule.curve == "torch_bicubic" else 1.0) * stretch)
    centers = ((positions + 0.5) * ratio).astype(F32)
    first = np.maximum(((centers - support).astype(np.float64) + 0.5).astype(np.int64), 0)
    last = np.minimum(((centers + support).astype(np.float64) + 0.5).astype(np.int64), axis.length)
    count = np.minimum(last - first, int(np.ceil(support)) * 2 + 1)
    index = np.arange(int(count.max()))
    offsets = (index + first[:, None]).astype(F32) - centers[:, None]
    x = np.abs(((offsets.astype(np.float64) + 0.5) * float(F32(1 / stretch))).astype(F32))
    weights = _bicubic(x) if rule.curve == "torch_bicubic" else np.maximum(F32(1) - x, F32(0))
    weights[index >= count[:, None]] = 0
    return Windows(first.astype(np.int32), count.astype(np.int32), weights / _total(weights))


def _bicubic(x):
    near = multiply_add(multiply_add(F32(1.5), x, F32(-2.5)) * x, x, F32(1))
    far = multiply_add(multiply_add(multiply_add(F32(-0.5), x, F32(2.5)), x, F32(-4)), x, F32(2))
    return np.where(x < 1, near, np.where(x < 2, far, F32(0)))


def _total(weights):
    """Return the sum as an array (out, 1). The weights are added in sequence, because ``sum`` adds them pairwise."""
    return np.add.accumulate(weights, axis=1)[:, -1:]


# -------------------------------------------------------------------------------------------------------------- DALI

_DALI = {"dali_bilinear": (1, 2), "dali_bicubic": (2, 128), "dali_lanczos": (3, 192)}
"""(radius, number of intervals in its table) for each filter of DALI."""


def _dali(rule, axis):
    begin, end = F32(axis.offset), F32(axis.offset + abs(axis.ratio) * axis.out_length)
    seen, out = end - begin, F32(axis.out_length)
    radius, intervals = map(F32, _DALI[rule.curve])
    if rule.is_widened and out < seen:
        radius = radius * seen / out
    ratio, density = seen / out, intervals / (F32(2) * radius)
    anchor, count = intervals / F32(2) / density, math.ceil(intervals / density)
    outputs = np.arange(axis.begin, axis.end, dtype=F32)
    if axis.ratio < 0:
        begin, ratio, outputs = end, -ratio, out - 1 - outputs
    lefts = outputs * ratio + (begin + (F32(0.5) * ratio - F32(0.5) - anchor))
    first = np.ceil(lefts)
    points = ((first - lefts)[:, None] + np.arange(count, dtype=F32)) * density
    table = np.append(_table(rule.curve), np.zeros(2, F32))
    whole = np.floor(points)
    index = np.minimum(whole.astype(np.int32), len(table) - 2)
    weights = table[index] + (points - whole) * (table[index + 1] - table[index])
    return _uniform(first, weights / _total(weights))


def _table(curve):
    radius, intervals = _DALI[curve]
    x = np.arange(-intervals / 2, intervals / 2 + 1, dtype=F32) * F32(2 * radius) / F32(intervals)
    a = np.abs(x)
    if curve == "dali_bilinear":
        return np.maximum(1 - a, F32(0))
    if curve == "dali_bicubic":  # Keys 1981, a = -0.5
        square, cube = a * a, a * a * a
        near = F32(1.5) * cube - F32(2.5) * square + 1
        return np.where(a > 1, F32(-0.5) * cube + F32(2.5) * square - 4 * a + 2, near)
    return np.where(a < 3, _sinc(x) * _sinc(x / F32(3)), F32(0))


_SINE = [1, *map(float.fromhex, ("-0x1.555545995a603p-3", "0x1.1107605230bc4p-7", "-0x1.994eb3774cf24p-13"))]
_COSINE = [
    1,
    *map(
        float.fromhex,
        ("-0x1.ffffffd0c621cp-2", "0x1.55553e1068f19p-5", "-0x1.6c087e89a359dp-10", "0x1.99343027bf8c3p-16"),
    ),
]
"""Coefficients of glibc's polynomials in the square of the angle."""


def _sinc(x):
    """Compute the sinc function with glibc's ``sinf``, which reduces the angle by a multiple of 90 degrees.

    The last bit of glibc's ``sinf`` differs from that of other libraries.
    """
    angles = (x.astype(np.float64) * np.pi).astype(F32)
    turns = np.rint(angles.astype(np.float64) * (2 / np.pi))
    rest = angles - turns * (np.pi / 2)
    square = rest * rest
    even = rest * np.polynomial.polynomial.polyval(square, _SINE)
    sines = np.where(turns % 2, np.polynomial.polynomial.polyval(square, _COSINE), even)
    sines = (sines * np.where(turns % 4 > 1, -1, 1)).astype(F32)
    return np.divide(sines, angles, out=np.ones_like(x), where=angles != 0)


# -------------------------------------------------------------------------------------------------------- TensorFlow


def _middles(axis):
    return np.arange(axis.begin, axis.end, dtype=F32) + F32(0.5)


def _tensorflow_linear(_, axis):
    positions = _middles(axis) * (F32(axis.length) / F32(axis.out_length)) - F32(0.5)
    return _uniform(np.floor(positions), _two(positions - np.floor(positions)))


def _tensorflow_triangle(_, axis):
    ratio, last = F32(1 / np.float64(F32(axis.out_length) / F32(axis.length))), axis.length - 1
    radius = max(ratio, F32(1))
    centers = _middles(axis) * ratio
    first = np.clip(np.ceil(centers - radius - F32(0.5)), 0, last).astype(np.int32)
    count = np.clip(np.floor(centers + radius - F32(0.5)), 0, last).astype(np.int32) + 1 - first
    offsets = np.arange(int(count.max()))
    positions = (first[:, None] + offsets).astype(F32)
    distances = np.abs((positions + F32(0.5) - centers[:, None]) * (F32(1) / radius))
    weights = np.where(offsets < count[:, None], np.maximum(1 - distances, F32(0)), F32(0))
    return Windows(first, count, weights * (F32(1) / _total(weights)))


_RULES = {
    **dict.fromkeys(("opencv_linear", "opencv_repeated", "opencv_cubic", "opencv_lanczos4"), _opencv),
    "opencv_area": _area,
    "opencv_cut": _cut,
    **dict.fromkeys(("torch_bilinear", "torch_bicubic"), _torch),
    **dict.fromkeys(_DALI, _dali),
    "tensorflow_linear": _tensorflow_linear,
    "tensorflow_triangle": _tensorflow_triangle,
}
