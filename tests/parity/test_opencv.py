"""``area`` and ``bicubic`` of the ``opencv`` profile against ``cv2.resize``; passes with OpenCV 4.9 to 4.14, 5.0."""

import numpy as np
import pytest

from resize_cases import assert_equal, cases, compare, resampling_of, resized

cv2 = pytest.importorskip("cv2", reason="NO OPENCV: its profile was not compared with it")


@pytest.fixture
def ipp():
    """Switches Intel IPP, where the build has it."""
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
    assert_equal([(passes, ours, original(pixels, resized_size, cv2.INTER_AREA))])
    assert resampling_of("opencv", "area", size, resized_size, antialias=False).passes == passes


def test_bicubic_equals_opencv_without_ipp_but_for_the_ends_of_rows(ipp):
    """OpenCV rounds in integers what vectors of eight values leave of a row: 1 level off now and then."""
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


def test_bicubic_is_within_a_level_of_opencv_with_ipp(ipp):
    ipp(used=True)
    values, differing, largest, _ = compare(bicubic())
    print(f"bicubic as built: {differing / values:.2%} of {values:,} values differ, by up to {largest}")
    assert differing <= values * 0.05
    assert largest <= 1
