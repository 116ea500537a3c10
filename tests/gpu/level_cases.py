"""Lists of steps for which levels.cu must compute the same values as the CPU: each kind of step alone, and long random
lists.
"""

from typing import get_args

import numpy as np

import pixprep as pp
from gpu.cuda_cases import plan_of
from pixprep.plan.profiles import WARPS
from pixprep.plan.steps.curves import Curve, brightness, shifted_hsv, solarize
from pixprep.plan.steps.levels import (
    Blend,
    ColorMatrix,
    Erase,
    Filter,
    Hue,
    Permute,
    Take,
    Tone,
    size_after,
)
from pixprep.plan.steps.warps import Warp
from pixprep.spec import BorderMode, ColorLike

LIKES, MODES = get_args(ColorLike), get_args(BorderMode)
TURNED = (0.6, -0.8, 3.25, 0.8, 0.6, -7.5)
"""An exact rotation by a quarter turn, and one by slightly more."""


SIZE = (31, 37)
TYPES = {
    "rgb": ("rgb", "chw", "uint8", {}),
    "bgr": ("bgr", "hwc", "float16", {}),
    "gray": ("gray", "chw", "float32", {}),
    "four": ("bgr", "hwc", "uint8", {"channels": 4, "pad_value": 200}),
    "one": ("bgr", "hwc", "float32", {"channels": 1}),
}


def plan_with_levels(name):
    """Return a plan of one of ``TYPES`` whose kernels support steps on pixel values. The tests replace the plan's
    steps.
    """
    color, layout, dtype, channels = TYPES[name]
    normalize = [] if dtype == "uint8" else [pp.normalize(mean=0.4, std=0.3)]
    resize = pp.resize(height=SIZE[0], width=SIZE[1])
    tensor = pp.tensor(dtype=dtype, layout=layout, **channels)
    return plan_of(resize, pp.grayscale(), pp.contrast(1.2), *normalize, tensor, color=color)


def photo(channels, seed=3):
    """Return noise with a uniform part and a gray part."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (60, 50, channels), dtype=np.uint8)
    image[:20] = rng.integers(0, 256, channels)
    image[20:30] = image[20:30, :, :1]
    return image


def cases(*, seed=0, count=20):
    """Yield (plan, images, placements) for each type, with lists of a single step and with random lists."""
    for name in TYPES:
        plan = plan_with_levels(name)
        image, channels = photo(len(plan.channels)), len(plan.channels)
        rng = np.random.default_rng((seed, len(name)))
        lists = [*lists_of(rng, SIZE, channels, count=count), *singles(channels)[1]]  # the last step is a blur
        placement = plan.geometry.place(*image.shape[:2])
        yield plan, [image] * len(lists), [placement._replace(levels=steps) for steps in lists]


def singles(channels):
    """Return (names, lists), where each list has one step."""
    made = dict(every_step(*SIZE, channels))
    return [*made], [(step, ending([step], SIZE, SIZE, channels)) for step in made.values()]


def every_step(height, width, channels):
    """Yield (name, step) for each kind and each variant of a step, for an image of this size."""
    fill = (200, 3, 90)[:channels]
    yield "curve", solarize(100)
    yield "erase", Erase(1, 2, max(1, height // 2), 2 * width, fill)
    yield (
        "take, cropped and mirrored",
        Take(height // 3, width // 4, height // 2 + 1, width // 2 + 1, (True, True), fill),
    )
    yield "take, with a margin", Take(-3, 2, height + 9, width + 5, (False, True), fill)
    for mode in MODES[1:]:
        yield f"take, {mode}", Take(-3, 2, height + 9, width + 5, (False, True), fill, mode)
        yield (
            f"take, {mode}, far outside",
            Take(-3 * height - 2, 2 * width + 3, height, width, (True, False), fill, mode),
        )
    yield "color matrix", ColorMatrix((0.6, -0.2, 0.5, 9.5, 0.1, 1.2, -0.4, 3.0, 0.3, 0.3, 0.3, -20.0))
    for factor in (0.0, 0.3, 1.7):
        yield f"blend with the mean, {factor}, opencv", Blend("mean", factor, "opencv")
        yield f"blend with its own gray, {factor}, opencv", Blend("own", factor, "opencv")
    for shifts in ((33.5, -40, 17), (-180, 0, 0), (0, 255, -255)):
        yield f"hue, saturation and value, {shifts}", shifted_hsv(*shifts)
    yield "permute", Permute((1, 2, 0))
    yield "take, of its fill alone", Take(-20, width + 7, 9, 11, (False, False), fill)
    for like in LIKES:
        for factor in (0.0, 0.3, 1.7):
            yield f"blend with the mean, {factor}, {like}", Blend("mean", factor, like)
            yield f"blend with its own gray, {factor}, {like}", Blend("own", factor, like)
            yield f"sharpness, {factor}, {like}", Filter("sharpness", like, factor)
        for shift in (-0.5, -0.21, 0.0, 0.37, 0.5):
            yield f"hue, {shift}, {like}", Hue(shift, like)
        yield f"autocontrast, {like}", Tone("autocontrast", like)
        yield f"equalize, {like}", Tone("equalize", like)
        for way in WARPS[like].filters:
            for name, matrix in matrices(height, width).items():
                whole = max(1, int(height * 1.2)), max(1, int(width * 0.9))
                window = whole[0] // 4, whole[1] // 5, max(1, whole[0] // 2), max(1, whole[1] // 2)
                warp = Warp(matrix, whole, *window, fill, way, like)
                yield f"warp, {name}, {way}, {like}", warp
        for way in ("bilinear", "nearest"):
            yield (
                f"warp without a fill, {way}, {like}",
                Warp(TURNED, (height, width), 0, 0, height, width, None, way, like),
            )
    for way in WARPS["opencv"].filters:
        for place, (name, matrix) in enumerate(matrices(height, width).items()):
            whole, mode = (height + 9, width + 99), MODES[place % 4]
            last = () if len(matrix) == 6 else (1.5,)
            warp = Warp((*matrix, *last), whole, 2, 61, height, width, fill, way, "opencv", None, mode)
            yield f"warp, {name}, {way}, {mode}, opencv", warp
    for way in WARPS["dali"].filters:
        for place, (name, matrix) in enumerate(matrices(height, width).items()):
            window = (height + 9, width + 560), 2, 250 * place, height, width + 30
            mode = MODES[place % 2]
            if len(matrix) == 6:
                yield f"warp, {name}, {way}, {mode}, dali", Warp(matrix, *window, fill, way, "dali", None, mode)
        yield f"warp without a fill, {way}, dali", Warp(TURNED, (height, width), 0, 0, height, width, None, way, "dali")
    for way in WARPS["scipy"].filters:
        for name, matrix in matrices(height, width).items():
            if len(matrix) == 6:
                warp = Warp(matrix, (height + 9, width + 50), 2, 7, height, width + 30, fill, way, "scipy")
                yield f"warp, {name}, {way}, scipy", warp
    for rows, columns in ((1, 3), (5, 1), (7, 2 * width + 5)):
        kernel = {"rows": gaussian(rows), "columns": gaussian(columns)}
        yield f"blur of {rows} x {columns}, opencv", Filter("blur", "opencv", **kernel)
    reach = min(3, (height - 1), (width - 1))
    yield "blur", Filter("blur", "torchvision", rows=gaussian(2 * min(reach, 1) + 1), columns=gaussian(2 * reach + 1))


def matrices(height, width):
    """Yield the name and the numbers of each matrix. Some matrices map far outside of the image."""
    return {
        "turned": TURNED,
        "scaled": (0.37, 0.0, 1.5, 0.0, 1.9, -2.0),
        "sheared": (1.0, 0.3, -0.2 * width, -0.15, 1.1, 0.1 * height),
        "mirrored": (-1.0, 0.0, float(width), 0.0, 1.0, 0.0),
        "far": (900.5, 3.0, -40000.0, 2.0, 700.25, 33000.0),
        "further than integers": (1e12, 3e11, -1e15, 2e12, 7e10, 3e14),
        "perspective": (1.1, 0.2, -3.0, -0.1, 0.9, 2.5, 0.3 / width, -0.2 / height),
        "perspective, a horizon in it": (0.7, 0.1, 1.0, 0.2, 1.2, -2.0, -1.7 / width, 0.25 / height),
        "perspective, divided by 0": (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, -2.0, 0.0),
    }


def gaussian(count):
    """Return weights whose sum is exactly or nearly 1 in float32."""
    weights = np.exp(-0.5 * (np.arange(count) - count // 2) ** 2 / max(0.3, 0.2 * count))
    return tuple((weights / weights.sum()).astype(np.float32).tolist())


def lists_of(rng, size, channels, *, count, longest=12):
    """Yield random lists of steps for an image, which may have any intermediate size."""
    for _ in range(count):
        steps, now = [], size
        for _ in range(rng.integers(1, longest + 1)):
            steps.append(_random(rng, now, channels))
            now = size_after(steps[-1:], *now)
        yield (*steps, ending(steps, size, size, channels, mirror=bool(rng.integers(2))))


def ending(steps, size, target, channels, *, mirror=False):
    """Return the last step, which crops the image after the steps to the tensor's size at its centre."""
    height, width = size_after(steps, *size)
    top, left = (height - target[0]) // 2, (width - target[1]) // 2
    return Take(top, left, *target, (mirror, False), (1, 2, 3)[:channels])


def _random(rng, size, channels):
    height, width = size
    like = LIKES[rng.integers(2)]
    factor = float(rng.uniform(0, 2.5))
    fill = tuple(rng.integers(0, 256, channels).tolist())
    kind = rng.integers(10)
    if kind == 0:
        return Curve(rng.permutation(256).astype(np.uint8).tobytes()) if rng.integers(2) else brightness(factor, like)
    if kind <= 2:
        return Blend(("own", "mean")[kind - 1], factor, like)
    if kind == 3 and rng.integers(2):
        return ColorMatrix(tuple(rng.normal(0.3, 1, 12).astype(np.float32).tolist()))
    if kind == 3:
        return Hue(float(rng.uniform(-0.5, 0.5)), like)
    if kind == 4:
        return Tone(("autocontrast", "equalize")[rng.integers(2)], like)
    if kind == 5:
        reaches = [int(rng.integers(0, min(6, side))) for side in size]
        if rng.integers(2):
            return Filter("sharpness", like, factor)
        return Filter("blur", "torchvision", rows=gaussian(2 * reaches[0] + 1), columns=gaussian(2 * reaches[1] + 1))
    top, left = (int(rng.integers(-4, side)) for side in size)
    sides = [int(rng.integers(1, 50)) for _ in size]
    if kind == 6:
        return Take(top, left, *sides, tuple(map(bool, rng.integers(0, 2, 2))), fill, MODES[rng.integers(5)])
    if kind == 9:
        return Permute(tuple(rng.permutation(3).tolist()))
    if kind == 7:
        return Erase(max(0, top), max(0, left), *sides, fill)
    matrix = tuple((np.array([1, 0, 0, 0, 1, 0]) + rng.normal(0, [0.4, 0.4, width / 4, 0.4, 0.4, height / 4])).tolist())
    if rng.integers(4) == 0:  # no rotation
        matrix = (matrix[0], 0.0, matrix[2], 0.0, *matrix[4:])
    elif rng.integers(3) == 0:
        matrix += tuple((rng.normal(0, 0.4, 2) / (width, height)).tolist())
    way = WARPS[like].filters[rng.integers(len(WARPS[like].filters))]
    whole = sides[0] + int(rng.integers(9)), sides[1] + int(rng.integers(9))
    window = *(int(rng.integers(0, room - side + 1)) for room, side in zip(whole, sides, strict=True)), *sides
    return Warp(matrix, whole, *window, fill if rng.integers(3) else None, way, like)
