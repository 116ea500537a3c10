"""Tests that per-request crops and sizes, and pixels in other formats, give the same tensors as fixed numbers and
files.
"""

import math

import numpy as np
import pytest

import pixprep as pp
from pixprep.show.words import explain
from support.images import noise

ROWS, COLUMNS = 100, 80
PIXELS = noise(ROWS, COLUMNS)
TENSOR = pp.tensor("uint8", "hwc")


def run(ops, images=None, first=None, **inputs):
    count = len(next(iter(inputs.values())))
    with pp.Engine(pp.Pipeline([first or pp.pixels(), *ops, TENSOR])) as engine:
        return engine.run(images or [PIXELS] * count, inputs=inputs)


def fixed(*ops):
    (tensor,) = pp.Engine(pp.Pipeline([pp.pixels(), *ops, TENSOR])).run([PIXELS])
    return tensor


def half_away(value):
    return math.floor(value + 0.5)


CORNERS = [(0, 0), (7, 3), (80, 50), (1, 49)]
SIDES = [(1, 1), (64, 64), (10, 63), (33, 5)]
CROP_POSITIONS = [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (0.3, 0.71), (0.25, 0.75)]
SAME = {
    "a corner": ([pp.crop("y", "x", 20, 30)], lambda y, x: [pp.crop(y, x, 20, 30)], CORNERS),
    "a corner of one input": ([pp.crop("at[1]", "at", 20, 30)], lambda x, y: [pp.crop(y, x, 20, 30)], [(0, 0), (3, 7)]),
    "a size": ([pp.crop(3, 4, "y", "x", max_size=64)], lambda y, x: [pp.crop(3, 4, y, x)], SIDES),
    "what is free": (
        [pp.crop("y", "x", 20, 30, unit="free")],
        lambda y, x: [pp.crop(half_away(float(np.float32(y)) * 80), half_away(float(np.float32(x)) * 50), 20, 30)],
        CROP_POSITIONS,
    ),
    "both sides": (
        [pp.resize(height="y", width="x", max_size=64)],
        lambda y, x: [pp.resize(height=y, width=x)],
        SIDES,
    ),
    "both sides like dali": (
        [pp.resize(height="y", width="x", max_size=64, like="dali")],
        lambda y, x: [pp.resize(height=y, width=x, like="dali")],
        SIDES,
    ),
    "a side beside a fixed one": (
        [pp.resize(height="y", width=9, max_size=64)],
        lambda y, _: [pp.resize(height=y, width=9)],
        SIDES,
    ),
    "a part": (
        [pp.resize(height=20, width=31, like="dali", roi=("y", "x", 90, 51.5))],
        lambda y, x: [pp.resize(height=20, width=31, like="dali", roi=(y, x, 90, 51.5))],
        [(0, 0), (7.25, 3.125), (99, 79)],
    ),
    "a part in shares, and a size": (
        [pp.resize(height="at", width=31, like="dali", max_size=64, roi=(0.1, "at[1]", 0.9, 0.5), roi_unit="share")],
        lambda y, x: [pp.resize(height=y, width=31, like="dali", roi=(0.1, x, 0.9, 0.5), roi_unit="share")],
        [(9, 0.25), (40, 0.875)],
    ),
    "inside both": (
        [pp.resize(height="y", width="x", mode="fit", max_size=64, like="dali"), pp.pad("y", "x", max_size=64, fill=7)],
        lambda y, x: [pp.resize(height=y, width=x, mode="fit", like="dali"), pp.pad(y, x, fill=7)],
        SIDES,
    ),
    "the shorter side": (
        [pp.resize("y", max_size=64), pp.center_crop(20)],
        lambda y, _: [pp.resize(y, max_size=64), pp.center_crop(20)],
        [(24, 0), (51, 0)],
    ),
    "the width alone": (
        [pp.resize(width="y", max_size=64)],
        lambda y, _: [pp.resize(width=y, max_size=64)],
        [(30, 0), (51, 0)],
    ),
    "a corner behind colours": (
        [pp.resize(height=50, width=60), pp.grayscale(), pp.crop("y", "x", 20, 30)],
        lambda y, x: [pp.resize(height=50, width=60), pp.grayscale(), pp.crop(y, x, 20, 30)],
        [(0, 0), (30, 30), (7, 5)],
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_per_request_numbers_give_the_same_tensors_as_fixed_numbers(case):
    ops, same, numbers = SAME[case]
    pipeline = pp.Pipeline([pp.pixels(), *ops, TENSOR])
    assert pp.Pipeline.from_json(pipeline.to_json()) == pipeline
    names = list(pipeline.inputs)
    inputs = {"at": numbers} if names == ["at"] else {name: [row[name == "x"] for row in numbers] for name in names}
    words = explain(pipeline, height=ROWS, width=COLUMNS)
    assert all(f'"{name}"' in words.partition("plan")[2] for name in names)
    for row, ours in zip(numbers, run(ops, **inputs), strict=True):
        theirs = fixed(*same(*row))
        assert np.array_equal(ours, theirs), (row, ours)
        assert theirs.shape == pipeline.outputs["tensor"].spec.shape_of(*theirs.shape[:2])


def test_fractions_of_the_size_are_cropped_at_rounded_edges():
    starts, sizes = [(0.1, 0.2), (0.005, 0.0), (0.5, 0.505)], [(0.5, 0.3), (0.5, 1.0), (0.5, 0.49)]
    window = pp.crop("start[0]", "start[1]", "size[0]", "size[1]", unit="share")
    ours = run([window, pp.resize(height=9, width=8)], start=starts, size=sizes)
    for start, size, tensor in zip(starts, sizes, ours, strict=True):
        ends = [
            (half_away(float(np.float32(a)) * side), half_away((float(np.float32(a)) + float(np.float32(b))) * side))
            for a, b, side in zip(start, size, (ROWS, COLUMNS), strict=True)
        ]
        (top, bottom), (left, right) = ends
        cut = fixed(pp.crop(top, left, bottom - top, right - left), pp.resize(height=9, width=8))
        assert np.array_equal(tensor, cut)
        still = fixed(
            pp.crop(*map(float, map(np.float32, (*start, *size))), unit="share"), pp.resize(height=9, width=8)
        )
        assert np.array_equal(tensor, still)


@pytest.mark.parametrize(
    "op", [pp.crop("y", 0, 20, 30), pp.pad("y", 90, max_size=200), pp.resize(height="y", width=3, max_size=200)]
)
def test_an_invalid_number_fails_only_its_image(op):
    bad, fine = run([op], y=[-1, 80 if isinstance(op, pp.crop) else 120])
    assert bad.reason == "BAD_INPUT"
    assert isinstance(fine, np.ndarray)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.float16, np.float64])
def test_numbers_can_have_any_numeric_dtype(dtype):
    (ours,) = run([pp.crop("y", 3, 20, 30)], y=np.array([[7]], dtype))
    assert np.array_equal(ours, PIXELS[7:27, 3:33])


def test_an_input_shared_by_two_fields_must_satisfy_both_limits():
    window = pp.crop("n[0]", "n[1]", 20, 30)
    pipeline = pp.Pipeline([pp.pixels(), window, pp.resize(height="n[1]", width=8, max_size=50), TENSOR])
    assert str(pipeline.inputs["n"]) == ("float32 [n, 2] (an integer of 0 to 16384; an integer of 1 to 50)")
    assert pipeline.example_inputs() == {"n": [[0, 1]]}


FORMS = [
    ({"dtype": "float32"}, lambda pixels: pixels.astype(np.float32)),
    ({"dtype": "float32"}, lambda pixels: pixels),
    ({"layout": "chw"}, lambda pixels: pixels.transpose(2, 0, 1)),
    ({"layout": "chw", "dtype": "float32"}, lambda pixels: np.ascontiguousarray(pixels.transpose(2, 0, 1), np.float32)),
    ({"layout": "chw", "given": "bgr"}, lambda pixels: pixels[:, :, ::-1].transpose(2, 0, 1)),
]


@pytest.mark.parametrize(("fields", "form"), FORMS, ids=str)
@pytest.mark.parametrize("ops", [[pp.crop(3, 4, 20, 30)], [pp.resize(height=31, width=17)]], ids=["crop", "resize"])
def test_pixels_are_accepted_in_both_layouts_and_as_float32(fields, form, ops):
    (ours,) = pp.Engine(pp.Pipeline([pp.pixels(**fields), *ops, TENSOR])).run([form(PIXELS)])
    assert np.array_equal(ours, fixed(*ops))
    alone = pp.apply([pp.pixels(**fields), *ops], form(PIXELS))
    assert np.array_equal(alone, ours)


@pytest.mark.parametrize("value", [0.5, -1.0, 256.0, math.nan, math.inf, -math.inf, 2.0**31, 1e30])
def test_a_float32_value_that_is_not_a_pixel_value_fails_only_its_image(value):
    wrong = PIXELS.astype(np.float32)
    wrong[50, 40, 1] = value
    engine = pp.Engine(pp.Pipeline([pp.pixels(dtype="float32"), pp.crop(0, 0, 9, 9), TENSOR]))
    bad, fine = engine.run([wrong, PIXELS.astype(np.float32)])
    assert bad.reason == "BAD_INPUT"
    assert "integers from 0 to 255" in str(bad)
    assert np.array_equal(fine, PIXELS[:9, :9])
    with pytest.raises(TypeError, match="ndarray of float64: pixels must be float32 or uint8, 0 to 255"):
        engine.run([PIXELS.astype(np.float64)])


def test_a_loader_reads_samples_in_the_format_and_with_the_numbers_of_the_pipeline():
    rows = [{"image": PIXELS.transpose(2, 0, 1).astype(np.float32), "y": np.array([y])} for y in (0, 5, 70)]
    pipeline = pp.Pipeline([pp.pixels(layout="chw", dtype="float32"), pp.crop("y", 3, 20, 30), TENSOR])
    (batch,) = pp.Loader(pp.read.rows(rows, y="y"), pipeline, batch_size=3, shuffle=False)
    for y, tensor in zip((0, 5, 70), batch["tensor"], strict=True):
        assert np.array_equal(tensor, PIXELS[y : y + 20, 3:33])


def test_channels_last_pixels_are_rejected_if_channels_first_is_declared():
    engine = pp.Engine(pp.Pipeline([pp.pixels(layout="chw"), pp.crop(0, 0, 9, 9), TENSOR]))
    (error,) = engine.run([PIXELS])
    assert str(error) == "[UNSUPPORTED] the pixels must have the shape (3, height, width), not (100, 80, 3)"
