"""Tests folding: a placement must move pixels like the ops applied one by one to an image whose pixels contain their
own coordinates.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

import pixprep as pp
from pixprep.pipeline import ops as op
from pixprep.plan.folding import Geometry
from pixprep.plan.geometry_steps import Resize
from pixprep.plan.sizes import max_detr_side
from support import reference

NOWHERE = -1


def index_image(height, width):
    """Return an int array (height, width, 2) in which each pixel contains its row and column."""
    return np.stack(np.indices((height, width)), axis=2)


def apply(step, image):
    """Apply one op to an index image in the simplest way. Padding has the value NOWHERE, and a resize takes the nearest
    pixel.
    """
    height, width = image.shape[:2]
    if isinstance(step, op.Flip):
        return image[::-1] if step.axis == "vertical" else image[:, ::-1]
    if isinstance(step, op.Crop):
        assume(step.top + step.height <= height and step.left + step.width <= width)
        return image[step.top : step.top + step.height, step.left : step.left + step.width]
    if isinstance(step, op.CenterCrop):
        side = max(1, int((step.fraction or 1) * min(height, width)))
        return _center(image, step.height or side, step.width or side)
    if isinstance(step, op.Letterbox):
        canvas = (step.height, step.width)
        size = reference.letterbox_size(height, width, canvas=canvas, enlarge=step.enlarge)
        image = reference.nearest(image, *size)
        return _canvas(image, step)
    if isinstance(step, op.Pad):
        return _canvas(image, step)
    assert isinstance(step, op.Resize)
    size = (step.height, step.width) if step.height else reference.resized_size(height, width, size=step.size)
    return reference.nearest(image, *size)


def _center(image, height, width):
    missing = [max(0, want - have) for want, have in zip((height, width), image.shape[:2], strict=True)]
    image = np.pad(image, [(d // 2, d - d // 2) for d in missing] + [(0, 0)], constant_values=NOWHERE)
    top, left = (round((have - want) / 2) for want, have in zip((height, width), image.shape[:2], strict=True))
    return image[top : top + height, left : left + width]


def _canvas(image, step):
    height, width = (step.height, step.width) if step.height else (max(image.shape[:2]),) * 2
    spare = (height - image.shape[0], width - image.shape[1])
    assume(min(spare) >= 0)
    before = [round(d / 2 - 0.1) if step.anchor == "center" else 0 for d in spare]
    return np.pad(image, [(b, d - b) for b, d in zip(before, spare, strict=True)] + [(0, 0)], constant_values=NOWHERE)


def canvas_of(placement, image):
    """Return the canvas that a placement produces from an index image."""
    top, left, bottom, right = placement.box
    vertical, horizontal = placement.mirrors
    image = image[top:bottom, left:right][:: -1 if vertical else 1, :: -1 if horizontal else 1]
    above, before, below, behind = placement.margins
    if image.size:
        image = np.pad(image, [(above, below), (before, behind), (0, 0)], constant_values=NOWHERE)
    if placement.resized != image.shape[:2] and image.size:
        image = reference.nearest(image, *placement.resized)
    top, left, bottom, right = placement.region
    vertical, horizontal = placement.flips
    image = image[top:bottom, left:right][:: -1 if vertical else 1, :: -1 if horizontal else 1]
    canvas = np.full((*placement.canvas, 2), NOWHERE)
    top, left = placement.at
    canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
    return canvas


def place(steps, height, width):
    # this output keeps the pipeline valid if the steps do not end in a tensor of known size
    other = [pp.center_crop(4, from_="start"), pp.tensor()]
    pipeline = pp.Pipeline([pp.decode(name="start"), *steps, pp.transform(), *other])
    return pipeline.plan.outputs["transform"].geometry.place(height, width)


small = st.integers(1, 40)
flips = st.builds(pp.flip, st.sampled_from(["horizontal", "vertical"]))
crops = st.builds(pp.crop, st.integers(0, 9), st.integers(0, 9), st.integers(1, 15), st.integers(1, 15))
centers = st.builds(pp.center_crop, small, small)
fractions = st.builds(pp.center_crop, fraction=st.floats(0.05, 1))
anchors = st.sampled_from(["center", "top_left"])
pads = st.builds(pp.pad, st.integers(1, 60), st.integers(1, 60), anchor=anchors)
squares = st.builds(lambda anchor: pp.pad(square=True, anchor=anchor), anchors)
resizes = st.one_of(
    st.builds(pp.resize, st.integers(1, 30), filter=st.just("nearest")),
    st.builds(pp.resize, height=small, width=small, filter=st.just("nearest")),
    st.builds(partial(pp.letterbox, fill=0, filter="nearest"), small, small, anchor=anchors, enlarge=st.booleans()),
)
before_resize = st.lists(st.one_of(flips, crops, fractions, pads, squares), max_size=3)
after_resize = st.lists(st.one_of(flips, crops, centers, pads, squares, fractions), max_size=4)


@settings(max_examples=100, derandomize=True)
@given(before_resize, st.lists(resizes, max_size=1), after_resize, small, small)
def test_folded_ops_sample_the_same_pixels_as_the_ops_one_by_one(before, resize, after, height, width):
    steps = [*before, *resize, *after]
    image = expected = index_image(height, width)
    for step in steps:
        expected = apply(step, expected)
    try:
        placement = place(steps, height, width)
    except pp.PipelineError as error:
        assume("smaller than the image" not in str(error) and "the window extends to" not in str(error))
        raise
    assert placement.canvas == expected.shape[:2]
    assert (canvas_of(placement, image) == expected).all()


def followed(steps, point, height, width):
    """Return the position to which the ops, applied one by one, move a point (y, x) of an image of this size."""
    for step in steps:
        old = resized = (height, width)
        height, width = new = apply(step, index_image(height, width)).shape[:2]
        if isinstance(step, op.Resize):
            resized = new
        elif isinstance(step, op.Letterbox):
            resized = reference.letterbox_size(*old, canvas=new, enlarge=step.enlarge)
        for axis in (0, 1):
            point[axis] *= resized[axis] / old[axis]
            spare = new[axis] - resized[axis]
            if isinstance(step, op.Flip) and axis == (step.axis == "horizontal"):
                point[axis] = new[axis] - point[axis]
            elif isinstance(step, op.Crop):
                point[axis] -= (step.top, step.left)[axis]
            elif isinstance(step, op.CenterCrop):
                point[axis] += spare // 2 if spare > 0 else -round(-spare / 2)
            elif isinstance(step, op.Pad | op.Letterbox):
                point[axis] += spare // 2 if step.anchor == "center" else 0
    return point


@settings(max_examples=100, derandomize=True)
@given(before_resize, st.lists(resizes, max_size=1), after_resize, small, small)
def test_the_transform_maps_points_like_the_ops_one_by_one(before, resize, after, height, width):
    """The transform must be right even if no pixel of the image is visible any more."""
    steps = [*before, *resize, *after]
    try:
        placement = place(steps, height, width)
    except (pp.PipelineError, pp.ImageError):
        reject()
    for point in ((0, 0), (height, width), (0.3, 7)):
        expected = followed(steps, list(point), height, width)
        assert reference.transform_point(point, placement.transform) == pytest.approx(expected, abs=1e-9)


def test_the_crop_of_the_demo_equals_tensorflows_efficientnet():
    """TensorFlow computes ``padded_center_crop_size = int(224 / (224 + 32) * shorter)`` and ``offset = (d + 1) // 2``
    on each axis.
    """
    plan = pp.presets.efficientnet_lite0().plan.outputs["tensor"]
    differ = 0
    for height in range(2, 601):
        for width in (2, 3, height, height + 1, 599, 600):
            side = int(224 / (224 + 32) * min(height, width))
            top, left = ((length - side + 1) // 2 for length in (height, width))
            assert plan.geometry.place(height, width).box == (top, left, top + side, left + side)
            differ += top != round((height - side) / 2)
    assert differ > 500


@pytest.mark.parametrize(("height", "width"), [(16384, 1), (1, 16384)])
def test_padding_before_the_resize_is_only_read_as_far_as_filters_reach(height, width):
    """The square has 268 million pixels, of which 99 % are padding that need not be computed."""
    placement = place([pp.pad(square=True), pp.resize(height=224, width=224, filter="lanczos")], height, width)
    assert placement.laid == (16384, 16384)
    top, left, bottom, right = placement.region
    assert sorted((bottom - top, right - left)) == [10, 224]


@pytest.mark.parametrize(
    ("op", "size", "became"),
    [(pp.rotate(45, expand=True), (65_535, 1), "46341 x 46341"), (pp.resize(64), (65_535, 20), "209712 x 64")],
)
def test_an_image_with_colour_ops_cannot_grow_beyond_the_limit(op, size, became):
    """Otherwise, a JPEG of 5 KB could require gigabytes, or more rows than the grid of a GPU can have."""
    place = pp.Pipeline([pp.decode(), op, pp.contrast(1.1), pp.center_crop(9), pp.tensor()]).plan.place
    assert place(*(side // 100 + 1 for side in size))
    with pytest.raises(
        pp.ImageError, match=f"^\\[BAD_DIMENSIONS\\] its pixel values would be changed at a size of {became};"
    ):
        place(*size)


def test_a_resize_beyond_the_limit_is_rejected():
    resize = Resize(rule="shorter", height=16384, width=16384, filter="box", antialias=True)
    with pytest.raises(pp.ImageError) as caught:
        Geometry((), resize, ()).place(1, 2)
    assert str(caught.value) == (
        "[BAD_DIMENSIONS] its 1 x 2 pixels would be resized to 16384 x 32768, which exceeds the limit of "
        "268,435,456 pixels"
    )


def test_arithmetic_is_folded_into_one_factor_and_one_offset_per_channel():
    twice = [pp.normalize(mean=(1, 2, 3), std=2, scale=1), pp.normalize(mean=0.5, std=(1, 2, 4), scale=10)]
    plan = pp.Pipeline([pp.decode(), pp.center_crop(2), *twice, pp.tensor()]).plan.outputs["tensor"]
    (affine,) = plan.arithmetic
    assert affine.scale == pytest.approx((5, 2.5, 1.25))
    assert affine.offset == pytest.approx((-5.5, -5.25, -3.875))
    assert plan.table.shape == (3, 256)
    assert plan.table[1, 100] == np.float32(100 * 2.5 - 5.25)


def test_the_fill_colour_has_one_value_per_channel():
    def fill(*steps, color="rgb"):
        return pp.Pipeline([pp.decode(color=color), *steps, pp.tensor()]).plan.outputs["tensor"].fill

    assert fill(pp.letterbox(4, 4)) == (114, 114, 114)
    assert fill(pp.letterbox(4, 4, fill=(1, 2, 3))) == (1, 2, 3)
    assert fill(pp.letterbox(4, 4, fill=9), color="gray") == (9,)
    assert fill(pp.center_crop(4)) == (0, 0, 0)


def resize_rule(rule, size, **changes):
    defaults = {"filter": "bilinear", "antialias": True}
    return Resize(rule=rule, height=size[0], width=size[1], **defaults | changes)


@pytest.mark.parametrize("rounding", ["down", "half_even", "half_away"])
@pytest.mark.parametrize("rule", ["fit", "cover"])
def test_the_requested_side_is_met_exactly(rule, rounding):
    """In float arithmetic, 225 / (225 / 224) is slightly less than 224, which was once truncated to 223."""
    for height in range(1, 700):
        rows, columns = resize_rule(rule, (224, 224), rounding=rounding).size(height, 301)
        assert (rows if (height > 301) == (rule == "fit") else columns) == 224


@pytest.mark.parametrize("rounding", ["down", "half_even", "half_away", "up"])
def test_equal_aspect_ratios_fill_the_box_and_others_fit_into_it(rounding):
    """A 900 x 900 image once became 224 x 223, because 900 / (900 / 224) is slightly less than 224."""
    fit, cover = (resize_rule(rule, (224, 160), rounding=rounding) for rule in ("fit", "cover"))
    for times in range(1, 586):
        assert fit.size(7 * times, 5 * times) == cover.size(7 * times, 5 * times) == (224, 160)
    for box in (224, 232, 416):
        steps = [resize_rule(rule, (box, box), rounding=rounding) for rule in ("fit", "cover")]
        assert all(step.size(side, side) == (box, box) for step in steps for side in range(1, 4097))
    rng = np.random.default_rng(0)
    for height, width in rng.integers(1, 4097, (4000, 2)).tolist():
        assert all(np.array(cover.size(height, width)) >= (224, 160)), (height, width)
        assert all(np.array(fit.size(height, width)) <= (224, 160)), (height, width)
        if rounding == "down":
            rows, columns = (224, 224 * width // height), (160 * height // width, 160)
            ours, other = (rows, columns) if height * 160 >= width * 224 else (columns, rows)
            assert fit.size(height, width) == tuple(max(1, side) for side in ours), (height, width)
            assert cover.size(height, width) == other, (height, width)


def test_ties_of_a_side_are_rounded_like_dalis_float32():
    """The exact value of ``224 * 195 / 192`` is 227.5, but DALI 2.4 computes 227, because float32(224 / 192) is
    slightly too small.
    """
    resize = resize_rule("shorter", (224, 224), rounding="half_away")
    assert resize.size(192, 195) == (224, 227)
    assert resize.size(192, 196) == (224, 229)


def test_detrs_rounding_may_leave_an_image_above_the_maximum():
    """1333 * 600 / 1334 is rounded to 600, which is already the side's length, so the image is not resized."""
    resize = resize_rule("shorter", (800, 800), rounding="detr", most=1333)
    assert [resize.size(*size) for size in ((600, 1334), (600, 1335), (480, 640))] == [
        (600, 1334),
        (599, 1333),
        (800, 1066),
    ]
    assert pp.resize(800, max_size=1333, rounding="detr").infer(pp.ImageSpec()).max_width == max_detr_side(1333) == 1376
    original = resize_rule("shorter", (800, 800), rounding="detr_original", most=1333)
    assert [original.size(*size) for size in ((600, 1334), (64, 3900))] == [(600, 1334), (22, 1340)]
    with pytest.raises(
        pp.ImageError, match="6 x 1400 pixels would be resized to 6 x 1400, but the longer side must not exceed 1333"
    ):
        resize.size(6, 1400)


def test_a_subpixel_scale_is_that_of_the_sides_before_rounding():
    resize = resize_rule("shorter", (256, 256), rounding="half_away", like="dali", subpixel=True)
    assert resize.size(427, 640) == (256, 384)
    assert Geometry((), resize, ()).place(427, 640).ratio == (427 / 256, pytest.approx(427 / 256, rel=1e-7))
    whole = Geometry((), replace(resize, subpixel=False), ()).place(427, 640)
    assert (whole.ratio, whole.begin) == ((427 / 256, 640 / 384), (0, 0))


def test_a_subpixel_scale_enlarges_the_sampled_region_at_most_tenfold():
    """A side of 0.0225 pixels is rounded up to 1. DALI then samples ten times the image's width, instead of 44
    times.
    """
    resize = resize_rule("longer", (9, 9), rounding="half_away", like="dali", subpixel=True)
    assert resize.size(400, 1) == (9, 1)
    assert Geometry((), resize, ()).place(400, 1).ratio == (400 / 9, 10)
