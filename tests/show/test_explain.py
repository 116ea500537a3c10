"""Tests of the output of `explain` for a pipeline: its ops, its plan and every shape."""

import pytest

import pixprep as pp
from pixprep.show.words import explain
from support.refusals import PUBLIC, refusals

EXPLANATION = """\
pipeline
   0  decode         ? x ? rgb, uint8 0..255    (color rgb, apply_exif_orientation true, chroma fancy, idct accurate, reduced false, alpha drop)
   1  resize         ? x ? rgb, uint8 0..255    (size 256, side shorter, filter bilinear, antialias true, like pillow, rounding down)
   2  center_crop    224 x 224 rgb, uint8 0..255    (height 224, width 224, rounding half_even, smaller pad)
   3  normalize      224 x 224 rgb, real -2.118..2.64    (mean [0.485, 0.456, 0.406], std [0.229, 0.224, 0.225], scale 0.00392157, arithmetic float64, clip false)
   4  tensor         output float32 [3, 224, 224] chw, values -2.118..2.64    (dtype float32, layout chw)

plan
  decode to RGB, rotated by its EXIF orientation

  tensor: float32 [3, 224, 224] chw, values -2.118..2.64, 602,112 bytes per image
    resize the shorter side to 256 (bilinear, antialiased; exactly Pillow's values)
    center crop to 224 x 224
    e.g. 480 x 640: resized to 256 x 341, of which only rows 16..239, columns 58..281 are used
    red: value * 0.0171248 - 2.1179
    green: value * 0.017507 - 2.03571
    blue: value * 0.0174292 - 1.80444
"""  # noqa: E501


def explained(*ops, height=480, width=640):
    return explain(pp.Pipeline(ops), height=height, width=width).splitlines()


def test_the_pipeline_its_plan_and_every_shape_are_explained():
    assert explain(pp.presets.imagenet(), height=480, width=640) == EXPLANATION


@refusals("show", "words.txt")
def test_each_step_is_explained(call, words):
    """A call in the table is either a single op that follows a resize, or a list of ops."""
    ops = eval(call, PUBLIC)  # noqa: S307 - lines of our own
    if not isinstance(ops, list):
        ops = [pp.decode(), pp.resize(height=64, width=64), ops, pp.center_crop(56)]
    assert words in [line.strip() for line in explain(pp.Pipeline([*ops, pp.tensor()]).for_training()).splitlines()]


RESIZE_AND_CROP = (pp.decode(), pp.resize(256), pp.center_crop(224), pp.tensor())


@pytest.mark.parametrize(
    ("ops", "height", "width", "example"),
    [
        (RESIZE_AND_CROP, 480, 640, "resized to 256 x 341, of which only rows 16..239, columns 58..281 are used"),
        (RESIZE_AND_CROP, 256, 256, "of which only rows 16..239, columns 16..239 are used"),
        ([pp.decode(), pp.resize(height=8, width=9), pp.tensor()], 8, 9, "unchanged"),
        ([pp.decode(), pp.letterbox(640, 640), pp.tensor()], 320, 640, "placed at row 160, column 0"),
        (
            [pp.decode(), pp.crop(1, 2, 30, 40), pp.resize(height=16, width=8), pp.pad(20, 24), pp.tensor()],
            90,
            80,
            "rows 1..30, columns 2..41, resized to 16 x 8, placed at row 2, column 8",
        ),
        (
            [pp.decode(), pp.pad(square=True), pp.resize(height=336, width=336), pp.tensor()],
            480,
            640,
            "padded to 640 x 640, with the image at row 80, column 0, resized to 336 x 336",
        ),
    ],
)
def test_the_example_lists_exactly_the_steps_that_change_the_image(ops, height, width, example):
    (line,) = (line for line in explained(*ops, height=height, width=width) if "e.g." in line)
    assert line == f"    e.g. {height} x {width}: {example}"


def test_an_image_that_the_pipeline_rejects_is_reported():
    lines = explained(pp.decode(), pp.crop(0, 0, 30, 40), pp.tensor(), height=20, width=20)
    assert any(line.startswith("    e.g. an image of 20 x 20 is rejected: [DOES_NOT_FIT] ") for line in lines)


def test_the_reduced_decoding_fraction_is_explained():
    ops = [pp.resize(100), pp.center_crop(1), pp.tensor()]
    lines = explained(pp.decode(reduced=True), *ops, height=427, width=640)
    start = lines.index(
        "  on the CPU, a JPEG is decoded at 1/2, 1/4 or 1/8, but at no less than twice the resized height and width"
    )
    assert lines[start + 1 : start + 3] == [
        "  the values then differ slightly from the library's",
        "  e.g. 427 x 640: at 1/2",
    ]
    assert not any("1/2" in line for line in explained(pp.decode(), *ops))


def test_parts_without_cuda_kernels_are_named():
    ops = [pp.resize(height=40, width=40), pp.elastic(), pp.aug_mix(), pp.tensor()]
    text = explain(pp.Pipeline([pp.decode(), *ops]))
    serving, training = text.split("pipeline in training")
    line = '  with device="gpu", the CPU runs this pipeline: no CUDA kernels for elastic, aug_mix\n'
    assert line in training
    assert "CUDA" not in serving


def test_per_request_inputs_are_explained():
    tail = [pp.flip(when="turned"), pp.letterbox(8, 8, fill="paint"), pp.tensor()]
    lines = explained(pp.decode(), pp.crop(box="boxes"), *tail)
    for line in (
        "inputs, passed with each image",
        "  boxes: float32 [n, 4] (left, top, right, bottom) in pixels of the decoded image, one tensor per box",
        "  turned: bool [n, 1], one row per box",
        "  paint: uint8 [n, 3] (a pixel value per channel), one row per box",
        '    crop to the box of the input "boxes"',
        '    flip horizontally if the input "turned" is true',
        '    padding in the colour of the input "paint"',
        "    e.g. 480 x 640: resized to 6 x 8, placed at row 1, column 0",
    ):
        assert line in lines, line
    assert "  turned: bool [n, 1], one row per image" in explained(pp.decode(), *tail)
    assert not any("inputs" in line for line in explained(pp.decode(), pp.letterbox(8, 8), pp.tensor()))


def test_the_size_of_frames_that_depends_on_their_number_has_an_example():
    budget = pp.resize_to_pixels(multiple=16, max_pixels=400_000, frames="clip", temporal_patch_size=2)
    pipeline = pp.Pipeline([pp.decode_video(frames=64, rate=2), budget, pp.patches(16, temporal_patch_size=2)])
    text = explain(pipeline)
    assert "up to 64 x ? x ? rgb" in text
    assert "decode 2 frames per second (up to 64 frames), evenly spaced from the first to the last to RGB" in text
    assert "e.g. 480 x 640, 20 frames: resized to 112 x 160" in text
    pairs = pp.decode_video(frames=64, rate=0.5, frames_multiple=2)
    assert "480 x 640, 4 frames: " in explain(pp.Pipeline([pairs, budget, pp.patches(16, temporal_patch_size=2)]))
