"""Tests padding that repeats the image before a resize, padding to a size computed by a formula, and padding with
values that may be outside the range of pixel values.
"""

from math import sqrt

import cv2
import numpy as np
import pytest

import pixprep as pp
from pixprep.errors import ImageError
from support.asking import ask
from support.compare import assert_close
from support.images import noise, png, scene

IMAGE = scene(37, 52)
TENSOR = pp.tensor(max_size=512)


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric"])
@pytest.mark.parametrize(
    "resize",
    [
        (pp.resize(height=24, width=30),),
        (pp.normalize(arithmetic="multiply"), pp.resize(height=90, width=70, antialias=False, like="torch_float")),
        (pp.normalize(0.3, 0.2), pp.resize(height=90, width=70, filter="bicubic", like="torch_corners")),
    ],
    ids=["of pixel values", "of rescaled values", "of values normalized in float64"],
)
def test_a_resize_samples_padding_that_repeats_the_image(mode, resize):
    padded = np.pad(IMAGE, ((13, 14), (6, 6), (0, 0)), mode)
    found = ask([pp.decode(), pp.pad(64, 64, padding_mode=mode), *resize, TENSOR], png(IMAGE))["tensor"]
    assert_close(found, ask([pp.decode(), *resize, TENSOR], png(padded))["tensor"])


def test_coordinates_are_rejected_if_the_image_is_padded_before_a_resize():
    ops = [pp.decode(), pp.pad(64, 64, padding_mode="edge"), pp.resize(height=24, width=30)]
    for op in (pp.transform(), pp.scale_factor(), pp.boxes(only="training"), pp.mask(only="training")):
        with pytest.raises(pp.PipelineError, match=r"coordinates are not supported|repeats objects"):
            pp.Pipeline([*ops, op, TENSOR])


LEVELS = pp.tensor(max_size=512, dtype="uint8", layout="hwc")


@pytest.mark.parametrize("border", [10, (3, 0, 7, 20), (0, 0, 0, 5)])
@pytest.mark.parametrize("size", [(5, 9), (200, 31)])
def test_a_border_has_the_pixels_of_opencv_before_and_after_a_resize(size, border):
    image, widths = scene(*size), (border,) * 4 if isinstance(border, int) else border
    resize = pp.resize(height=48, width=64, like="opencv")

    def bordered(pixels, value):
        return cv2.copyMakeBorder(pixels, *widths, cv2.BORDER_CONSTANT, value=value)

    for fields in ({"padding_mode": "first_pixel"}, {"fill": (9, 90, 200)}):

        def color(pixels, fields=fields):
            return fields.get("fill", pixels[0, 0].tolist())

        pad, small = pp.pad(border=border, **fields), cv2.resize(image, (64, 48))
        for ops, expected in (
            ([pad], bordered(image, color(image))),
            ([resize, pad], bordered(small, color(small))),
            ([pad, resize], cv2.resize(bordered(image, color(image)), (64, 48))),
        ):
            found = ask([pp.decode(), *ops, LEVELS], png(image))["tensor"]
            assert np.array_equal(found, expected)


@pytest.mark.parametrize("size", [(5, 9), (37, 52), (200, 31)])
def test_the_padding_of_a_root_is_added_before_and_after_each_side(size):
    found = ask([pp.decode(), pp.pad(root=3.0, fill=7), TENSOR], png(noise(*size)))["tensor"]
    margins = [int(sqrt(side / 2) * 3) for side in size]
    assert found.shape[1:] == tuple(side + 2 * margin for side, margin in zip(size, margins, strict=True))
    inside = found[:, margins[0] : -margins[0], margins[1] : -margins[1]]
    assert_close(inside, noise(*size).transpose(2, 0, 1).astype(np.float32))
    assert (found == 7).sum() >= found.size - inside.size


def test_an_image_that_is_shorter_than_the_padding_of_a_root_fails_alone():
    with pp.Engine(pp.Pipeline([pp.decode(), pp.pad(root=3.0, padding_mode="reflect"), TENSOR])) as engine:
        batch = engine.run_batch([png(noise(4, 60)), png(noise(5, 60))])
    assert isinstance(batch.errors[0], ImageError)
    assert "a side of 4 pixels is too short for a padding of 4" in batch.errors[0].detail
    assert batch.errors[1] is None


@pytest.mark.parametrize(
    ("always", "expected"), [(None, (40, 56)), ("both", (48, 64)), ("width", (40, 64))], ids=["none", "both", "width"]
)
def test_a_side_that_is_a_multiple_is_padded_only_if_requested(always, expected):
    ops = [pp.decode(), pp.crop(0, 0, 40, 56), pp.pad(multiple=8, always=always, anchor="top_left"), TENSOR]
    assert ask(ops, png(scene(60, 70)))["tensor"].shape[1:] == expected
    assert ask([ops[0], *ops[2:]], png(scene(41, 57)))["tensor"].shape[1:] == (48, 64)


MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)


@pytest.mark.parametrize("is_last", [False, True], ids=["before normalize", "after normalize"])
@pytest.mark.parametrize("arithmetic", ["float64", "fused"])
def test_padding_has_a_value_that_is_not_a_pixel_value(arithmetic, is_last):
    normalize, pad = pp.normalize(MEAN, STD, arithmetic=arithmetic), pp.pad(multiple=16, value=-1.0)
    ops = [pp.decode(), *((normalize, pad) if is_last else (pad, normalize))]
    found = ask([*ops, TENSOR], png(IMAGE))["tensor"]
    values = ask([pp.decode(), normalize, TENSOR], png(IMAGE))["tensor"]
    fill = (np.float64(-1.0 / 255) - MEAN) / STD if not is_last else np.full(3, -1.0)
    expected = np.empty((3, 48, 64))
    expected[...] = fill.reshape(3, 1, 1)
    expected[:, 5:42, 6:58] = values
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert_close(found[:, 5:42, 6:58], values)


@pytest.mark.parametrize("layout", ["chw", "hwc"])
@pytest.mark.parametrize("frames", [1, 2])
def test_patches_contain_padding_with_a_value(layout, frames):
    ops = [
        pp.decode(),
        pp.resize_by_rule(rule="keep", size=512),
        pp.pad(multiple=16, anchor="top_left", value=(-1, 0, 300)),
    ]
    patches = pp.patches(16, temporal_patch_size=frames, layout=layout, flat=False)
    found = ask([*ops, pp.normalize(MEAN, STD), patches], png(IMAGE))["patches"]
    whole = ask([*ops, pp.normalize(MEAN, STD), TENSOR], png(IMAGE))["tensor"]
    blocks = whole.reshape(3, 3, 16, 4, 16).transpose(1, 3, 0, 2, 4).reshape(12, 3, 16, 16)
    if layout == "chw":
        expected = np.repeat(blocks, frames, axis=1)
    else:
        expected = blocks.transpose(0, 2, 3, 1)
        expected = np.stack([expected] * frames, axis=1) if frames > 1 else expected
    assert_close(found, np.ascontiguousarray(expected))


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([pp.pad(64, 64, value=-1.0), pp.resize(height=9, width=9)], '"value", because this padding is not resampled'),
        ([pp.pad(64, 64, value=-1.0), pp.center_crop(9)], 'must come before a pad with a "value"'),
        ([pp.normalize(), pp.pad(64, 64, value=-1.0), pp.normalize()], 'must come before a pad with a "value"'),
        ([pp.pad(64, 64, value=-1.0), pp.contrast(1.5)], 'must come before a pad with a "value"'),
        ([pp.invert(), pp.pad(64, 64, value=-1.0)], "after ops that change pixel values"),
        ([pp.pad(64, 64), pp.pad(72, 72, value=-1.0)], "after another pad"),
        ([pp.crop(0, 0, 9, 9), pp.pad(12, 12, padding_mode="edge"), pp.resize(8)], "this pad directly follows"),
    ],
)
def test_an_order_that_would_change_the_padding_is_rejected(ops, message):
    with pytest.raises(pp.PipelineError, match=message):
        pp.Pipeline([pp.decode(), *ops, TENSOR])


def test_the_fields_of_pad_exclude_each_other():
    for fields in (
        {"multiple": 8, "root": 3.0},
        {"height": 9, "width": 9, "always": "both"},
        {"square": True, "root": 1},
    ):
        with pytest.raises(pp.PipelineError, match=r'"root"|"always"'):
            pp.pad(**fields)
    for fields in ({"fill": 3}, {"padding_mode": "edge"}):
        with pytest.raises(pp.PipelineError, match='"value" is not supported together'):
            pp.pad(multiple=8, value=1.0, **fields)
