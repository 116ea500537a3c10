"""Tests ``area`` and ``bicubic`` of the ``opencv`` profile against ``cv2.resize``, for OpenCV 4.9 to 4.14 and 5.0."""

import re
from pathlib import Path

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.kernels import resize
from pixprep.engine.kernels.resampling import resampling
from pixprep.importers.verify import Originals
from pixprep.pipeline import file, ops
from pixprep.plan.folding import Geometry
from pixprep.plan.profiles import PROFILES
from support.forged import chunk
from support.images import png
from support.resize_cases import assert_equal, cases, compare, resampling_of, resized

cv2 = pytest.importorskip("cv2", reason="NO OPENCV: its profile was not compared")


@pytest.fixture
def ipp():
    """Enable or disable Intel IPP if the build of OpenCV contains it."""
    was_used = cv2.ipp.useIPP()
    yield lambda *, used: cv2.ipp.setUseIPP(used)
    cv2.ipp.setUseIPP(was_used)


def original(pixels, size, flag):
    return cv2.resize(pixels, size[::-1], interpolation=flag).reshape(*size, pixels.shape[2])


def bicubic():
    for pixels, size in cases():
        theirs = original(pixels, size, cv2.INTER_CUBIC)
        yield f"{pixels.shape} to {size}", resized(pixels, size, "opencv", "bicubic"), theirs


@pytest.mark.parametrize(
    ("size", "resized_size", "passes"),
    [
        ((64, 96), (32, 48), "opencv_linear"),  # half: (a + b + c + d + 2) >> 2
        ((64, 96), (16, 96), "area"),  # reducing one axis to a quarter is rounded differently than halving both axes
        ((64, 96), (64, 24), "area"),
        ((60, 90), (20, 30), "area"),
        ((98, 49), (2, 1), "float_even"),  # 1 / (1 / 49) is not 49
        ((60, 90), (37, 31), "float_even"),
        ((60, 90), (59, 90), "float_even"),
        ((60, 90), (20, 91), "opencv_linear"),  # one axis is enlarged
        ((60, 90), (120, 180), "opencv_linear"),
        ((900, 3), (1, 3), "area"),
        ((3, 1500), (2, 1), "float_even"),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_each_method_of_area_equals_opencv(size, resized_size, passes, channels):
    pixels = np.random.default_rng(size).integers(0, 256, (*size, channels), np.uint8)
    ours = resized(pixels, resized_size, "opencv", "area")
    assert_equal([(passes, ours, original(pixels, resized_size, cv2.INTER_AREA))])
    assert resampling_of("opencv", "area", size, resized_size, antialias=False).passes == passes


def test_bicubic_equals_opencv_without_ipp_except_at_the_ends_of_rows(ipp):
    """OpenCV processes vectors of eight values. The values that remain at the end of a row are computed with integer
    rounding, so that they sometimes differ by 1.
    """
    ipp(used=False)

    def parts():
        for name, ours, theirs in bicubic():
            height, values = len(ours), ours.shape[1] * ours.shape[2]
            yield name, ours.reshape(height, values), theirs.reshape(height, values)

    everything = list(parts())
    assert_equal(
        (name, ours[:, : ours.shape[1] // 8 * 8], theirs[:, : ours.shape[1] // 8 * 8])
        for name, ours, theirs in everything
    )
    values, differing, largest, _ = compare(everything)
    print(f"bicubic without IPP: {differing:,} of {values:,} values differ, by up to {largest}")
    assert differing <= values // 100_000
    assert largest <= 1


def test_bicubic_is_within_one_of_opencv_with_ipp(ipp):
    ipp(used=True)
    values, differing, largest, _ = compare(bicubic())
    print(f"bicubic as built: {differing / values:.2%} of {values:,} values differ, by up to {largest}")
    assert differing <= values * 0.05
    assert largest <= 1


def by_scale(filter_name, count):
    """Yield (pixels, op, our values), with one scale for both sides, which is sometimes limited but never exactly a
    half.
    """
    rng = np.random.default_rng(3)
    while count:
        sides, size, limit = rng.integers(2, 260, 2).tolist(), int(rng.integers(1, 200)), float(rng.uniform(1, 2))
        side = ("shorter", "longer")[count % 2]
        most = int(size * limit) if side == "shorter" and count % 3 else None
        named = (min if side == "shorter" else max)(sides)
        how = {"side": side, "mode": "scale", "max_size": most, "like": "opencv", "filter": filter_name}
        op = ops.Resize(size, enlarge=count % 5 > 0, subpixel=True, **how)
        if 2 * size == named or min(sides) * size < named or (most and min(sides) * most < max(sides)):
            continue
        pixels = rng.integers(0, 256, (*sides, 3), np.uint8)
        placement = Geometry((), op._step, ()).place(*sides)
        yield pixels, op, resize.resize(pixels, resampling(op._step, placement))
        count -= 1


@pytest.mark.parametrize("filter_name", [name for name in PROFILES["opencv"].filters if name != "area"])
def test_fx_and_fy_equal_opencv(ipp, filter_name):
    """The test covers 600 sizes. For ``bicubic``, it excludes the ends of rows, as the test of given sizes does."""
    ipp(used=False)
    pairs, others = [], 0
    for pixels, op, ours in by_scale(filter_name, 600):
        theirs = Originals().resizer(op).run(pixels)
        end = ours.shape[1] * 3 // 8 * 8 if filter_name == "bicubic" else None
        pairs.append((f"{pixels.shape}, {op}", *(each.reshape(len(each), -1)[:, :end] for each in (ours, theirs))))
        others += not np.array_equal(resized(pixels, ours.shape[:2], "opencv", filter_name), ours)
    assert_equal(pairs)
    assert others > 300


@pytest.mark.parametrize("size", [(32, 47), (163, 130)])
def test_at_half_size_a_last_odd_row_or_column_differs_by_one_in_ties(size):
    """For the last row or column, OpenCV computes the mean and rounds ties to even."""
    pixels = np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8)
    op = ops.Resize(min(size) // 2, mode="scale", like="opencv", subpixel=True)
    ours = resize.resize(pixels, resampling(op._step, Geometry((), op._step, ()).place(*size))).astype(int)
    off = np.argwhere(np.abs(ours - Originals().resizer(op).run(pixels)))
    axis = int(np.argmax(size))
    assert {*off[:, axis].tolist()} == {size[axis] // 2}
    assert 0.1 < len(off) / (3 * min(ours.shape[:2])) < 0.4


def test_gray_of_a_png_by_imread_equals_the_matrix_of_the_page():
    """``docs/levels.md`` contains the matrix. If a PNG has a gamma chunk, the formula differs."""
    page = (Path(__file__).parents[2] / "docs" / "levels.md").read_text(encoding="utf-8")
    (recipe,) = [block for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if "0.29898" in block]
    matrix = next(op for op in file.loads(recipe)[0] if isinstance(op, ops.ColorMatrix))
    every = np.arange(1 << 24, dtype=np.uint32).view(np.uint8).reshape(-1, 4)[::5, :3]  # all values of each channel
    every = every[: len(every) // 4096 * 4096].reshape(-1, 4096, 3)
    encoded = png(every)
    theirs = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_GRAYSCALE)
    ours = pp.apply([matrix], np.ascontiguousarray(every))
    assert np.array_equal(ours, np.broadcast_to(theirs[:, :, None], every.shape))
    red, green, blue = np.moveaxis(every.astype(np.int32), 2, 0)
    assert np.array_equal(theirs, 9797 * red + 19234 * green + 3737 * blue >> 15)
    at = encoded.index(b"IDAT") - 4
    with_gamma = encoded[:at] + chunk(b"gAMA", (45455).to_bytes(4, "big")) + encoded[at:]
    assert not np.array_equal(cv2.imdecode(np.frombuffer(with_gamma, np.uint8), cv2.IMREAD_GRAYSCALE), theirs)
