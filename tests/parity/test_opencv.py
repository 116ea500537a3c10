"""The ``opencv`` profile against ``cv2.resize``; passes with OpenCV 4.11 and 5.0."""

import numpy as np
import pytest

import pixprep as pp
from images import png, scene
from resize_cases import assert_equal, cases, compare, factors, resampling_of, resized

cv2 = pytest.importorskip("cv2", reason="NO OPENCV: its profile was not compared with it")

FLAGS = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "area": cv2.INTER_AREA,
    "bicubic": cv2.INTER_CUBIC,
    "lanczos4": cv2.INTER_LANCZOS4,
}


@pytest.fixture
def ipp():
    """Switches Intel IPP, where the build has it."""
    was_used = cv2.ipp.useIPP()
    yield lambda *, used: cv2.ipp.setUseIPP(used)
    cv2.ipp.setUseIPP(was_used)


def original(pixels, size, filter_name):
    return cv2.resize(pixels, size[::-1], interpolation=FLAGS[filter_name]).reshape(*size, pixels.shape[2])


def pairs(filter_name, some=None):
    for pixels, size in some or cases():
        name = f"{pixels.shape} to {size}"
        yield name, resized(pixels, size, "opencv", filter_name), original(pixels, size, filter_name)


@pytest.mark.parametrize("filter_name", ["nearest", "bilinear", "lanczos4", "area"])
def test_every_value_equals_opencv(filter_name):
    assert_equal(pairs(filter_name))


@pytest.mark.parametrize(
    ("size", "resized_size", "passes"),
    [
        ((64, 96), (32, 48), "opencv_linear"),  # half: (a + b + c + d + 2) >> 2
        ((64, 96), (16, 96), "area"),  # a quarter of one axis is another rounding than half of both
        ((64, 96), (64, 24), "area"),
        ((60, 90), (20, 30), "area"),
        ((98, 49), (2, 1), "float_even"),  # 1 / (1 / 49) is not 49
        ((60, 90), (37, 31), "float_even"),
        ((60, 90), (59, 90), "float_even"),
        ((60, 90), (20, 91), "opencv_linear"),  # one axis grows
        ((60, 90), (120, 180), "opencv_linear"),
        ((900, 3), (1, 3), "area"),
        ((3, 1500), (2, 1), "float_even"),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_each_way_of_area_equals_opencv(size, resized_size, passes, channels):
    pixels = np.random.default_rng(size).integers(0, 256, (*size, channels), np.uint8)
    ours = resized(pixels, resized_size, "opencv", "area")
    assert_equal([(passes, ours, original(pixels, resized_size, "area"))])
    assert resampling_of("opencv", "area", size, resized_size, antialias=False).passes == passes


def test_every_factor_equals_opencv():
    some = list(factors((1, 2, 3, 7)))
    for filter_name in ("nearest", "bilinear", "lanczos4", "area"):
        assert_equal(pairs(filter_name, some))


def test_bicubic_equals_opencv_without_ipp_but_for_the_ends_of_rows(ipp):
    """What is left of a row after vectors of eight values, OpenCV rounds in integers: 1 level off now and then."""
    ipp(used=False)

    def parts():
        for name, ours, theirs in pairs("bicubic"):
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


def test_bicubic_is_within_a_level_of_opencv_with_ipp(ipp):
    ipp(used=True)
    values, differing, largest, _ = compare(pairs("bicubic"))
    print(f"bicubic as built: {differing / values:.2%} of {values:,} values differ, by up to {largest}")
    assert differing <= values * 0.05
    assert largest <= 1


@pytest.mark.parametrize("filter_name", ["nearest", "bilinear", "lanczos4", "area"])
@pytest.mark.parametrize("size", [(427, 640), (90, 61), (40, 250), (33, 47)])
def test_the_engine_gives_what_opencv_gives(filter_name, size):
    pixels = scene(*size)
    short, crop = 64, 49
    pipeline = pp.Pipeline(
        [
            pp.decode(), pp.flip(), pp.resize(short, like="opencv", filter=filter_name), pp.center_crop(crop),
            pp.flip("vertical"), pp.tensor(dtype="uint8", layout="hwc"),
        ]
    )  # fmt: skip
    with pp.Engine(pipeline) as engine:
        (tensor,) = engine.run([png(pixels)])
    scale = short / min(size)
    whole = original(
        np.ascontiguousarray(pixels[:, ::-1]), tuple(int(side * scale + 1e-9) for side in size), filter_name
    )
    top, left = (round((side - crop) / 2) for side in whole.shape[:2])
    assert_equal([(size, tensor, whole[top : top + crop, left : left + crop][::-1])])
