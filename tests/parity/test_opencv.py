"""The ``opencv`` profile against ``cv2.resize``; passes with OpenCV 4.11 and 5.0."""

import numpy as np
import pytest

import pixprep as pp
from images import png, scene
from pixprep.profiles import resampling
from resize_cases import assert_equal, cases, compare, images, photo_pixels, placement, resize, resized

cv2 = pytest.importorskip("cv2", reason="NO OPENCV: its profile was not compared with it")

FLAGS = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "area": cv2.INTER_AREA,
    "bicubic": cv2.INTER_CUBIC,
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


def test_there_are_enough_cases():
    assert len(images()) >= 40
    assert len({size for _, size in cases()}) >= 12


@pytest.mark.parametrize("filter_name", ["nearest", "bilinear", "area"])
def test_every_value_equals_opencv(filter_name):
    assert_equal(pairs(filter_name))


@pytest.mark.parametrize(
    ("size", "resized_size", "kind"),
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
def test_each_way_of_area_equals_opencv(size, resized_size, kind, channels):
    pixels = np.random.default_rng(size).integers(0, 256, (*size, channels), np.uint8)
    ours = resized(pixels, resized_size, "opencv", "area")
    assert_equal([(kind, ours, original(pixels, resized_size, "area"))])
    assert resampling(resize("opencv", "area", resized_size), placement(size, resized_size)).kind == kind


def test_half_of_both_axes_is_the_mean_of_four_for_bilinear_too():
    pixels = scene(64, 96)
    assert_equal(pairs("bilinear", [(pixels, (32, 48))]))
    quads = pixels.reshape(32, 2, 48, 2, 3).sum(axis=(1, 3))
    assert (resized(pixels, (32, 48), "opencv", "bilinear") == (quads + 2) >> 2).all()


def test_every_factor_equals_opencv():
    row = np.random.default_rng(1).integers(0, 256, (1, 2000, 1), np.uint8)
    some = [(row[:, :length], (1, out)) for out in (1, 2, 3, 7) for length in range(out + 1, 500, 3)]
    some += [(row[:, :length], (1, out)) for length in (1, 2, 3, 50) for out in range(length + 1, 500, 7)]
    for filter_name in ("nearest", "bilinear", "area"):
        assert_equal(pairs(filter_name, some))


def cubic(pixels, size):
    """INTER_CUBIC by its formula, value by value, in Python's own numbers and float32."""
    f32 = np.float32
    a = f32(-0.75)

    def windows(length, out_length):
        for i in range(out_length):
            x = f32((i + 0.5) * (1 / (out_length / length)) - 0.5)
            first = int(np.floor(x))
            t = f32(x - f32(first))
            far, rest = f32(t + f32(1)), f32(f32(1) - t)
            shares = [
                ((a * far - f32(5) * a) * far + f32(8) * a) * far - f32(4) * a,
                ((a + f32(2)) * t - (a + f32(3))) * t * t + f32(1),
                ((a + f32(2)) * rest - (a + f32(3))) * rest * rest + f32(1),
            ]
            shares.append(f32(1) - shares[0] - shares[1] - shares[2])
            positions = [min(max(first + k, 0), length - 1) for k in (-1, 0, 1, 2)]
            yield positions, [int(np.rint(share * f32(2048))) for share in shares]

    height, width = pixels.shape[:2]
    columns = [
        sum(pixels[:, p].astype(int) * w for p, w in zip(*each, strict=True)) for each in windows(width, size[1])
    ]
    middle = np.stack(columns, axis=1)
    rows = []
    for positions, weights in windows(height, size[0]):
        total = f32(0)
        for position, weight in reversed(list(zip(positions, weights, strict=True))):
            total = middle[position].astype(f32) * (f32(weight) * f32(2.0**-22)) + total
        rows.append(np.clip(np.rint(total), 0, 255).astype(np.uint8))
    return np.stack(rows)


def test_bicubic_equals_its_formula():
    some = [(pixels, size) for pixels, size in cases() if pixels.size < 10000]
    assert_equal((f"{p.shape} to {s}", resized(p, s, "opencv", "bicubic"), cubic(p, s)) for p, s in some)


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


NEIGHBOURS = [
    ("nearest", "pillow", "nearest", True, 100),
    ("nearest", "torchvision", "nearest_exact", True, 100),
    ("bilinear", "torchvision", "bilinear", False, 1),
    ("bilinear", "torchvision", "bilinear", True, 30),
    ("bilinear", "opencv", "area", False, 30),
    ("area", "pillow", "box", True, 10),
    ("area", "pillow", "bilinear", True, 10),
    ("bicubic", "torchvision", "bicubic", False, 1),
    ("bicubic", "pillow", "bicubic", False, 10),
]


@pytest.mark.parametrize(("filter_name", "like", "other", "antialias", "least"), NEIGHBOURS)
def test_a_neighbour_is_told_apart(filter_name, like, other, antialias, least):
    pixels = photo_pixels()
    size = (181, 203)
    wrong = resized(pixels, size, like, other, antialias=antialias)
    values, differing, largest, _ = compare([(like, wrong, original(pixels, size, filter_name))])
    assert differing > values * 0.05
    assert largest >= least


@pytest.mark.parametrize("filter_name", ["nearest", "bilinear", "area"])
@pytest.mark.parametrize("size", [(427, 640), (90, 61), (40, 250), (33, 47)])
def test_the_engine_gives_what_opencv_gives(filter_name, size):
    pixels = scene(*size)
    short, crop = 64, 49
    pipeline = pp.Pipeline(
        [
            pp.decode(),
            pp.flip(),
            pp.resize(short, like="opencv", filter=filter_name),
            pp.center_crop(crop),
            pp.flip("vertical"),
            pp.tensor(dtype="uint8", layout="hwc"),
        ]
    )
    with pp.Engine(pipeline) as engine:
        (tensor,) = engine.run([png(pixels)])
    scale = short / min(size)
    whole = original(
        np.ascontiguousarray(pixels[:, ::-1]), tuple(int(side * scale + 1e-9) for side in size), filter_name
    )
    top, left = (round((side - crop) / 2) for side in whole.shape[:2])
    assert_equal([(size, tensor, whole[top : top + crop, left : left + crop][::-1])])


def test_a_region_is_a_part_of_the_whole():
    pixels = scene(97, 131)
    for filter_name in FLAGS:
        whole = original(pixels, (60, 80), filter_name) if filter_name != "bicubic" else cubic(pixels, (60, 80))
        part = resized(pixels, (60, 80), "opencv", filter_name, region=(7, 11, 50, 80))
        assert_equal([(filter_name, part, whole[7:50, 11:80])])
