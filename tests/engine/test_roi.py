"""Tests resizes of a region with fractional edges against their definition in float64."""

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.annotations import annotated
from pixprep.plan.geometry_steps import REACH
from pixprep.show.words import explain
from support.compare import Tolerance, assert_close
from support.images import noise, scene

TENSOR, OPEN = pp.tensor("uint8", "hwc"), pp.tensor("uint8", "hwc", max_size=4096)
NEARLY_EQUAL = Tolerance(1, 0.97, "DALI takes its curves from tables of 129 and 193 points")
CURVES = {
    "bilinear": lambda x: np.maximum(1 - x, 0),
    "bicubic": lambda x: np.select(
        [x < 1, x < 2], [1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2], 0
    ),
    "lanczos": lambda x: np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0),
}


def run(pixels, *ops, tensor=TENSOR):
    with pp.Engine(pp.Pipeline([pp.pixels(), *ops, tensor]), threads=1) as engine:
        return engine.run([pixels])[0]


def defined(pixels, size, roi, filter_name, *, antialias):
    """Return the resized region by definition: filter weights around each output pixel's centre, with the image's edges
    repeated.
    """
    values = pixels.astype(np.float64)
    for axis, out in enumerate(size):
        (begin, end), length = roi[axis::2], pixels.shape[axis]
        ratio = (end - begin) / out
        stretch = max(abs(ratio), 1.0) if antialias else 1.0
        reach = int(REACH[filter_name] * stretch) + 2
        centers = begin + (np.arange(out) + 0.5) * ratio
        taps = np.floor(centers).astype(int)[:, None] + np.arange(-reach, reach + 1)
        weights = CURVES[filter_name](np.abs(taps + 0.5 - centers[:, None]) / stretch)
        weights /= weights.sum(axis=1, keepdims=True)
        values = np.moveaxis(values, axis, 0)[np.clip(taps, 0, length - 1)]
        values = np.moveaxis(np.einsum("ot,ot...->o...", weights, values), 0, axis)
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def parts(seed, count, *, around=0.0):
    """Yield (pixels, size, roi) for regions of small and large images. One region in three is reversed."""
    rng = np.random.default_rng(seed)
    for index in range(count):
        height, width = map(int, rng.integers(1, (4, 130)[index % 5 > 0], 2))
        ends = rng.uniform(-around, 1 + around, 4) * (height, width, height, width)
        if index % 4 == 1:
            ends = np.array([0, 0, height, width]) + rng.integers(-1, 2, 4) * 0.25 * (around > 0)
        if index % 3:
            ends = np.concatenate([np.minimum(ends[:2], ends[2:]), np.maximum(ends[:2], ends[2:])])
        low, high = np.minimum(ends[:2], ends[2:]), np.maximum(ends[:2], ends[2:])
        if (high - low).min() > 0.02 and high.min() > 0.02 and (low < (height, width)).all():
            roi = tuple(map(float, ends.astype(np.float32)))
            yield noise(height, width, 3, seed=index), tuple(map(int, rng.integers(1, 90, 2))), roi


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("filter_name", CURVES)
def test_a_region_and_its_surroundings_are_filtered_as_defined(filter_name, antialias):
    made, expected, cropped = [], [], 0
    for pixels, size, roi in parts(len(filter_name), 50, around=0.3):
        how = {"height": size[0], "width": size[1], "like": "dali", "filter": filter_name, "antialias": antialias}
        made.append(run(pixels, pp.resize(**how, roi=roi)).ravel())
        expected.append(defined(pixels, size, roi, filter_name, antialias=antialias).ravel())
        top, left, bottom, right = (
            np.clip(edge, 0, side) for edge, side in zip(roi, pixels.shape[:2] * 2, strict=True)
        )
        if bottom - top > 3 and right - left > 3:
            crop = run(pixels, pp.crop(int(top), int(left), int(bottom - top), int(right - left)), pp.resize(**how))
            cropped += np.abs(crop.ravel().astype(int) - expected[-1]).max() > 1
    assert_close(np.concatenate(made), np.concatenate(expected), NEARLY_EQUAL)
    assert cropped > 10  # a crop before the resize gives different pixels


def test_nearest_takes_the_pixel_at_each_centre_of_a_region():
    differing = values = 0
    for pixels, size, roi in parts(2, 60):
        made = run(pixels, pp.resize(height=size[0], width=size[1], like="dali", filter="nearest", roi=roi))
        rows, columns = (
            np.floor(roi[axis] + (np.arange(out) + 0.5) * (roi[axis + 2] - roi[axis]) / out).astype(int)
            for axis, out in enumerate(size)
        )
        differing += np.count_nonzero((made != pixels[np.ix_(rows, columns)]).any(2))
        values += made[:, :, 0].size
    assert differing < values / 1000  # if a centre is exactly between two pixels, float32 rounding selects the pixel


def test_a_complete_image_is_a_region_of_itself():
    pixels = noise(37, 53)
    for filter_name in ("nearest", *CURVES):
        resize = {"like": "dali", "filter": filter_name}
        for size in ({"size": 20}, {"height": 37, "width": 53}, {"height": 90, "width": 9}):
            plain = run(pixels, pp.resize(**size, **resize), tensor=OPEN)
            for part in ({"roi": (0, 0, 37, 53)}, {"roi": (0, 0, 1, 1), "roi_unit": "share"}):
                assert np.array_equal(run(pixels, pp.resize(**size, **resize, **part), tensor=OPEN), plain)


SIZES = {
    "both sides": ({"height": 20, "width": 30}, (20, 30)),
    "the height": ({"height": 20}, (20, 17)),
    "the shorter side": ({"size": 20}, (24, 20)),
    "the longer side": ({"size": 21, "side": "longer"}, (21, 17)),
    "to fit": ({"height": 20, "width": 20, "mode": "fit"}, (20, 17)),
    "to cover": ({"height": 20, "width": 20, "mode": "cover"}, (24, 20)),
    "a shorter side that is limited": ({"size": 30, "mode": "scale", "max_size": 33}, (33, 27)),
}


@pytest.mark.parametrize("case", SIZES)
def test_the_size_follows_from_the_regions_sides(case):
    """The expected size is DALI 2.4's for a region of 33.4 x 27.7 pixels. It does not depend on the image's size."""
    fields, expected = SIZES[case]
    resize = pp.resize(**fields, like="dali", roi=(40.5, 3.2, 7.1, 30.9))
    for pixels in (noise(61, 47), noise(300, 80)):
        assert run(pixels, resize, tensor=OPEN).shape[:2] == expected
    share = pp.resize(**fields, like="dali", roi=(0.5, 0.25, 0.25, 0.75), roi_unit="share")
    whole = pp.resize(**fields, like="dali")
    assert run(noise(4 * 33, 2 * 33), share, tensor=OPEN).shape == run(noise(33, 33), whole, tensor=OPEN).shape


def test_crops_and_flips_around_the_resize_of_a_region_are_folded():
    pixels, how = scene(90, 120), {"height": 41, "width": 57, "like": "dali", "roi": (33.7, 4.2, 5.5, 60.3)}
    for filter_name in CURVES:
        resize = pp.resize(**how, filter=filter_name)
        before = run(np.ascontiguousarray(pixels[11:71, 9:99][:, ::-1]), resize)
        ours = run(pixels, pp.crop(11, 9, 60, 90), pp.flip(), resize, pp.flip("vertical"), pp.crop(5, 7, 20, 31))
        assert np.array_equal(ours, before[::-1][5:25, 7:38])
    padded = np.full((140, 160, 3), 9, np.uint8)
    padded[25:115, 20:140] = pixels
    for roi in ((0, 0, 140, 160), (30.3, 10.7, 1.5, 90), (100, 100, 139.5, 160)):
        resize = pp.resize(**how | {"roi": roi})
        assert np.array_equal(run(pixels, pp.pad(140, 160, fill=9), resize), run(padded, resize))


def test_edges_without_padding_are_repeated_if_other_edges_have_padding():
    pixels = noise(40, 50)
    padded = np.pad(pixels, ((0, 0), (0, 11), (0, 0)), constant_values=9)
    for filter_name in CURVES:
        for roi in ((-12.5, 20.2, 31, 60), (9.5, 20.2, 61, 75), (55, 61, 20.25, -9.5)):
            resize = pp.resize(height=41, width=57, like="dali", filter=filter_name, roi=roi)
            window = pp.crop(0, 0, 40, 61, smaller="pad", fill=9)
            assert np.array_equal(run(pixels, window, resize), run(padded, resize))


@pytest.mark.parametrize("is_swapped", [False, True])
def test_boxes_points_and_transform_follow_the_region(is_swapped):
    part = (40.5, 80.25, 10.5, 20.25) if is_swapped else (10.5, 20.25, 40.5, 80.25)
    ops = [pp.decode(), pp.resize(height=90, width=120, like="dali", roi=part), pp.transform(only="training")]
    annotations = [pp.boxes(clip=False), pp.points(flip_pairs=[[0, 1]], clip=False), pp.tensor(only="training")]
    plan = pp.Pipeline([*ops, *annotations]).for_training().plan
    (numbers,) = plan.draw(seed=1, epoch=0, indices=[0])
    sample = {"boxes": np.array([[20.25, 10.5, 80.25, 40.5], [0, 0, 30.25, 20.5]], np.float32)}
    sample["points"] = np.array([[[20.25, 10.5], [30.25, 20.5]], [[0, 0], [80.25, 40.5]]], np.float32)
    placed = plan.placing(numbers, sample)(60, 100)
    made = annotated(plan, placed, sample)
    transform = placed.placements["transform"].transform
    if is_swapped:
        assert transform == pytest.approx((-3, -2, 121.5, 160.5))
        assert made["boxes"] == pytest.approx(np.array([[0, 0, 120, 90], [100, 60, 160.5, 121.5]]))
        assert made["points"] == pytest.approx(np.array([[[120, 90], [100, 60]], [[160.5, 121.5], [0, 0]]]))
    else:
        assert transform == pytest.approx((3, 2, -31.5, -40.5))
        assert made["boxes"] == pytest.approx(np.array([[0, 0, 120, 90], [-40.5, -31.5, 20, 30]]))
        assert made["points"] == pytest.approx(np.array([[[0, 0], [20, 30]], [[-40.5, -31.5], [120, 90]]]))


def test_a_region_outside_fails_only_its_image():
    images = [noise(50, 50), noise(30, 60), noise(60, 30)]
    for filter_name, refused in (("bilinear", 1), ("nearest", 2)):
        resize = pp.resize(height=9, width=9, like="dali", filter=filter_name, roi=(31, 5, 55, 29.5))
        with pp.Engine(pp.Pipeline([pp.pixels(), resize, TENSOR]), threads=1) as engine:
            errors = [str(error) for error in engine.run_batch(images).errors]
        assert errors.count("None") == 3 - refused
        assert "the region from 31, 5 to 55, 29.5 of 30 x 60 pixels is outside" in errors[1]
        assert errors[2] == "None"


def test_the_edge_of_the_image_is_repeated_outside():
    pixels = noise(20, 30)
    around = np.pad(pixels, ((8, 8), (8, 8), (0, 0)), "edge")
    for filter_name in CURVES:
        resize = {"height": 50, "width": 40, "like": "dali", "filter": filter_name}
        inside = run(around, pp.resize(**resize, roi=(5.5, 3.25, 36, 44)))
        beyond = run(pixels, pp.resize(**resize, roi=(-2.5, -4.75, 28, 36)))
        assert_close(beyond, inside, Tolerance(1, 0.999, "the places in float32"))


def test_the_message_names_the_region():
    part = pp.resize(height=20, width=30, like="dali", roi=(4.5, 33.2, 37.1, 10.9))
    words = explain(pp.Pipeline([pp.decode(), part, pp.tensor()]), height=61, width=47)
    assert "resize the region from 4.5, 33.2 to 37.1, 10.9 to 20 x 30" in words
    asked = pp.resize(height=20, width=30, like="dali", roi=("y", 0, "y[1]", 1), roi_unit="share")
    words = explain(pp.Pipeline([pp.decode(), asked, pp.tensor()]), height=61, width=47)
    assert 'resize to 20 x 30, with per-image inputs: top "y", bottom "y[1]"' in words
