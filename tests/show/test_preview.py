"""Tests of the preview of one photo: the visible region, the values, and notes on unusual values."""

import numpy as np
import pytest

import pixprep as pp
from pixprep.show.preview import notes, preview
from support.images import jpeg, noise, photo, png, scene


def previewed(*ops, encoded=None, color="rgb"):
    pipeline = pp.Pipeline([pp.decode(color=color), *ops])
    return preview(pipeline, encoded or photo())


RESIZE = pp.resize(height=8, width=8)


def test_a_line_shows_the_range_and_the_means_of_the_engines_tensor():
    pipeline = pp.presets.imagenet()
    (line,) = preview(pipeline, photo()).lines()
    (tensor,) = pp.Engine(pipeline, threads=1).run([photo()])
    red, green, blue = tensor.astype(np.float64).mean(axis=(1, 2))
    ends = f"{tensor.min():.4g} to {tensor.max():.4g}"
    assert line == f'"tensor": {ends}; mean red {red:.4g}, green {green:.4g}, blue {blue:.4g}'


@pytest.mark.parametrize("layout", ["chw", "hwc", "1cwh"])
def test_tensor_and_pixel_values_are_the_engines_in_any_layout(layout):
    ops = [pp.resize(40), pp.center_crop(32)]
    normalize = pp.normalize(mean=0.5, std=0.25)
    (shown,) = previewed(*ops, normalize, pp.tensor(layout=layout), color="bgr").tensors
    levels = pp.Pipeline([pp.decode(color="bgr"), *ops, pp.tensor(dtype="uint8", layout="hwc")])
    values = pp.Pipeline([pp.decode(color="bgr"), *ops, normalize, pp.tensor(layout="hwc")])
    assert np.array_equal(shown.levels, pp.Engine(levels, threads=1).run([photo()])[0])
    assert np.array_equal(shown.tensor, pp.Engine(values, threads=1).run([photo()])[0])
    assert shown.channels == ["blue", "green", "red"]


@pytest.mark.parametrize(
    ("ops", "source"),
    [
        ([], (0, 0, 427, 640)),
        ([RESIZE], (0, 0, 427, 640)),
        ([pp.crop(100, 200, 30, 40), RESIZE], (100, 200, 130, 240)),
        ([pp.crop(100, 200, 30, 40), pp.flip("horizontal"), RESIZE], (100, 200, 130, 240)),
        ([pp.flip("vertical"), pp.crop(0, 0, 7, 640), RESIZE], (420, 0, 427, 640)),
        ([pp.letterbox(64, 64)], (0, 0, 427, 640)),
        ([pp.resize(height=427 * 2, width=1280), pp.center_crop(100)], (188.5, 295, 238.5, 345)),
        ([pp.resize(height=427 * 2, width=1280), pp.center_crop(100), pp.flip("vertical")], (188.5, 295, 238.5, 345)),
    ],
)
def test_the_visible_region_of_the_photo_is_reported(ops, source):
    found = previewed(*ops, pp.tensor(max_size=1280))
    assert (found.height, found.width) == (427, 640)
    assert found.tensors[0].source == pytest.approx(source)


def test_several_tensors_use_the_same_reduced_decoding():
    ops = [pp.resize(60), pp.center_crop(56)]
    pipeline = pp.Pipeline([pp.decode(reduced=True), *ops, pp.tensor(), pp.center_crop(8), pp.tensor(name="b")])
    found = preview(pipeline, photo())
    batch = pp.Engine(pipeline, threads=1).run_batch([photo()])
    for shown in found.tensors:
        assert np.array_equal(shown.tensor.transpose(2, 0, 1), batch.outputs[shown.name][0])


@pytest.mark.parametrize(
    ("encoded", "ops", "said"),
    [
        (photo(), [RESIZE], []),
        (
            png(np.full((9, 9, 3), (10, 0, 255), np.uint8)),
            [RESIZE],
            [
                "red is constant, with pixel value 10 of 0 to 255",
                "green is constant, with pixel value 0 of 0 to 255",
                "blue is constant, with pixel value 255 of 0 to 255",
            ],
        ),
        (
            png(np.repeat(scene(16, 16)[:, :, :1], 3, axis=2)),
            [pp.center_crop(16)],
            ["the channels are equal (a gray photo), so the preview cannot show whether their order is correct"],
        ),
        (
            png(np.where(noise(64, 64) < 140, 0, noise(64, 64)).astype(np.uint8)),
            [pp.center_crop(64)],
            [
                f"{share:.0%} of {name} have the lowest value: the photo is very dark or bright, or clipped"
                for name, share in zip(("red", "green", "blue"), (noise(64, 64) < 140).mean(axis=(0, 1)), strict=True)
            ],
        ),
        (photo(), [pp.letterbox(64, 64)], ["33% of the tensor is padding"]),
        (
            jpeg(scene(4, 4)),
            [pp.pad(64, 64, anchor="top_left"), pp.center_crop(8)],
            ["no part of the photo is visible"],
        ),
    ],
)
def test_only_unusual_values_are_reported(encoded, ops, said):
    (shown,) = previewed(*ops, pp.tensor(), encoded=encoded).tensors
    assert list(notes(shown)) == said


@pytest.mark.parametrize("flips", [[], [pp.flip(), pp.flip("vertical")]])
def test_padding_before_the_resize_is_reported_as_padding(flips):
    """The filter taps at the border extend beyond the photo."""
    ops = [pp.pad(square=True), *flips, pp.resize(height=64, width=64, filter="lanczos"), *flips[:1]]
    (shown,) = previewed(*ops, pp.tensor()).tensors
    assert shown.window == (11, 0, 53, 64)  # the photo takes 427 / 640 of the 64 rows, which is 42.7
    assert shown.source == (0, 0, 427, 640)
    assert list(notes(shown)) == ["34% of the tensor is padding"]


@pytest.mark.parametrize(
    ("ops", "source", "margin"),
    [
        ([pp.rotate(180)], (0, 0, 427, 640), 0),
        ([pp.rotate(90, expand=True)], (0, 0, 427, 640), 0),
        ([pp.rotate(90, expand=True), pp.crop(40, 0, 200, 427)], (0, 400, 427, 600), 0),
        ([pp.brightness(0.5), pp.center_crop(427, 320)], (0, 160, 427, 480), 0),
        ([pp.rotate(90)], (0, 106, 427, 534), 1 - 427 / 640),
        ([pp.affine(translate=(64, 0), fill=255)], (0, 0, 427, 576), 0.1),
        ([pp.equalize(), pp.pad(640, 640)], (0, 0, 427, 640), 213 / 640),
    ],
)
def test_the_visible_region_of_a_rotated_photo_is_reported(ops, source, margin):
    (shown,) = previewed(pp.crop(0, 0, 427, 640), *ops, pp.tensor()).tensors
    assert shown.source == pytest.approx(source, abs=1)
    assert shown.margin == pytest.approx(margin, abs=0.002)
    seen = shown.of_photo(shown.levels)
    assert seen.shape[0] * seen.shape[1] == pytest.approx((1 - margin) * shown.levels[:, :, 0].size, rel=0.01)


def test_the_corners_after_a_rotation_are_padding():
    (shown,) = previewed(
        pp.center_crop(80), pp.rotate(45, fill=9), pp.tensor(), encoded=png(np.full((80, 80, 3), 200, np.uint8))
    ).tensors
    assert shown.margin == pytest.approx(1 - 2 * (2**0.5 - 1), abs=0.01)  # only a regular octagon shows the photo
    assert set(shown.of_photo(shown.levels).ravel().tolist()) == {200}
    assert not shown.is_empty


def test_an_image_that_is_rejected_is_an_error():
    with pytest.raises(pp.ImageError, match="UNKNOWN_FORMAT"):
        preview(pp.presets.imagenet(), b"not an image")


def test_random_ops_are_rejected():
    @pp.operator("acme.noise", version=1)
    def random_op(pixels, *, rng: np.random.Generator):
        return pixels ^ rng.integers(0, 2, pixels.shape, np.uint8)

    for op in (pp.extern(operator="acme.noise", version=1, only="training"), pp.random_flip()):
        training = pp.Pipeline([pp.decode(), RESIZE, op, pp.tensor()], operators=[random_op])
        with pytest.raises(pp.PipelineError, match=r"does not support random ops: use for_serving\(\)"):
            preview(training.for_training(), photo())
        assert preview(training.for_serving(), photo()).tensors
