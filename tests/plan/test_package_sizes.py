"""Tests that resizes have the sizes that other packages compute, with the formulas of these packages."""

from math import ceil

import cv2
import numpy as np
import pytest

import pixprep as pp
from pixprep.errors import ImageError
from support.asking import ask
from support.images import png, scene


def detectron2(height, width, size=800, longest=1333):
    scale = size / min(height, width)
    sides = np.array([size, scale * width] if height < width else [scale * height, size])
    if sides.max() > longest:
        sides = sides * (longest / sides.max())
    return int(sides[0] + 0.5), int(sides[1] + 0.5)


def mmcv(height, width):
    scale = min(1333 / max(height, width), 800 / min(height, width))
    return int(height * scale + 0.5), int(width * scale + 0.5)


def retinanet(height, width):
    scale = 800 / min(height, width)
    scale = 1333 / max(height, width) if max(height, width) * scale > 1333 else scale
    return round(height * scale), round(width * scale)


def midas(method, side=518, multiple=14):
    def size(height, width):
        scale = {
            "lower_bound": max(side / height, side / width),
            "upper_bound": min(side / height, side / width),
            "minimal": min((side / height, side / width), key=lambda scale: abs(1 - scale)),
        }[method]
        sides = [int(np.round(scale * length / multiple) * multiple) for length in (height, width)]
        if method == "lower_bound":
            sides = [
                ceil(scale * length / multiple) * multiple if found < side else found
                for length, found in zip((height, width), sides, strict=True)
            ]
        return tuple(sides)

    return size


def psenet(height, width):
    scale = 736 / max(height, width)
    return tuple((int(length * scale) + 127) // 128 * 128 for length in (height, width))


def mmocr(height, width):
    columns = min(max(48, ceil(48.0 / height * width)), 160)
    return 48, columns if columns % 4 == 0 else round(columns / 4) * 4


LINE = pp.resize_by_rule(rule="text_line", size=48, min_size=48, max_size=160, multiple=4, like="opencv")
PACKAGES = {
    "detectron2": (detectron2, pp.resize_by_rule(rule="shorter_half_up", size=800, max_size=1333)),
    "mmcv": (mmcv, pp.resize(800, max_size=1333, mode="scale", rounding="half_away")),
    "keras-retinanet": (retinanet, pp.resize(800, max_size=1333, mode="scale", rounding="half_even", like="opencv")),
    "Depth Anything": (midas("lower_bound"), pp.resize(518, multiple=14, rounding="half_even")),
    "MiDaS": (midas("upper_bound"), pp.resize(518, side="longer", multiple=14, rounding="half_even")),
    "DPT": (midas("minimal"), pp.resize(518, side="nearer", multiple=14, rounding="half_even")),
    "PSENet": (psenet, pp.resize(736, side="longer", mode="scale", multiple=128, rounding="up")),
    "MMOCR": (mmocr, LINE),
}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_resize_has_the_size_of_a_package(package):
    formula, op = PACKAGES[package]
    place = pp.Pipeline([pp.decode(), op, pp.tensor(max_size=2072)]).plan.place
    count = 0
    for height, width in np.random.default_rng(5).integers(100, 1400, (1500, 2)).tolist():
        try:
            (placement,) = place(height, width).placements.values()
        except ImageError:  # the result exceeds ``max_size``
            assert max(formula(height, width)) > 2072
            continue
        assert placement.canvas == formula(height, width), (height, width)
        count += 1
    assert count > 1000


@pytest.mark.parametrize("size", [(31, 100), (64, 40), (20, 200), (97, 130)])
def test_a_line_for_mmocr_is_resized_and_padded(size):
    pixels = scene(*size)
    rows, columns = mmocr(*size)
    expected = np.zeros((48, 160, 3), np.float32)
    expected[:, :columns] = cv2.resize(pixels[:, :, ::-1], (columns, rows), interpolation=cv2.INTER_LINEAR)
    pad = pp.pad(height=48, width=160, anchor="top_left")
    normalize = pp.normalize(mean=127, std=127, scale=1)
    found = ask([pp.decode(color="bgr"), LINE, pad, normalize, pp.tensor(layout="hwc")], png(pixels))["tensor"]
    np.testing.assert_allclose(found, (expected - 127) / 127, atol=1e-6)


def test_a_width_is_limited_before_it_is_rounded():
    rule = pp.resize_by_rule(rule="text_line", size=32, min_size=10, max_size=30, multiple=8)
    place = pp.Pipeline([pp.decode(), rule, pp.tensor(max_size=64)]).plan.place
    sizes = [next(iter(place(32, width).placements.values())).canvas for width in (1, 12, 20, 300)]
    assert sizes == [(32, 8), (32, 16), (32, 16), (32, 32)]
    assert str(rule.sizer).endswith(
        "the width to at most 30, rounded half to even to multiples of 8, at least 10 columns"
    )
