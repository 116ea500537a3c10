"""Tests that ties are rounded like DALI rounds them, to even or away from 0. All or half of the values in these images
are ties.
"""

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.kernels import resize
from pixprep.plan.profiles.windows import Order
from support.images import png
from support.resize_cases import assert_equal, resampling_of


def halved(height, width, channels, *, down, order=Order.AS_DECODED, region=None, flips=(False, False), image=None):
    """Return the pixel values of an image that is resized to half its height or, if columns are added up last, to half
    its width.
    """
    if image is None:
        image = np.zeros((height, width, channels), np.uint8)
        image[slice(None, None, 2) if down else slice(None), :: 1 if down else 2] = 1
    size = (height // 2, width) if down else (height, width // 2)
    how = resampling_of("dali", "bilinear", image.shape[:2], size, antialias=False, region=region)
    how = how._replace(vertical_first=not down, order=order)
    return resize.resize(image, how, flips=flips)


@pytest.mark.parametrize(
    ("width", "channels", "order", "rounded_down"),
    [
        (21, 1, Order.AS_DECODED, [1] * 16 + [0] * 5),
        (21, 3, Order.AS_DECODED, [1] * 48 + [0] * 15),
        (23, 3, Order.AS_DECODED, [1] * 64 + [0] * 5),
        (23, 3, Order.BACKWARDS, [1] * 63 + [0, 0, 1] + [0] * 3),  # in OpenCV, blue is the first channel
        (15, 1, Order.AS_DECODED, [0] * 15),
        (21, 3, Order.ONE, [1] * 48 + [0] * 15),
        (15, 3, Order.ONE, [0] * 45),
        (32, 3, Order.BACKWARDS, [1] * 96),
    ],
)
def test_remainders_of_sixteen_values_in_rows_are_rounded_away_from_0(width, channels, order, rounded_down):
    levels = halved(4, width, channels, down=True, order=order)
    assert levels.shape == (2, width, channels)
    assert levels[1].ravel().tolist() == [1 - each for each in rounded_down]


def test_runs_of_columns_begin_where_filters_begin_and_end_to_be_inside_the_image():
    """For an enlargement by 2, the first filter begins before the image, and the last filter ends after the image.

    Each of these two columns is a separate run.
    """
    # values between the pixels are 0.5 and 1.5; 0.5 only rounds to 0 if ties are rounded to even
    image = np.tile(np.uint8([0, 2]), 22)[None, :, None]
    how = resampling_of("dali", "bilinear", (1, 44), (1, 88), antialias=False)._replace(vertical_first=True)
    levels = resize.resize(image, how)[0, :, 0].tolist()
    of_vectors, left_over = [0, 2, 2, 0] * 20, [1, 2, 2, 1, 1, 2]  # 86 columns whose filters are inside the image
    assert levels == [0, *of_vectors, *left_over, 2]


@pytest.mark.parametrize("down", [True, False])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_crops_flips_and_channel_orders_do_not_change_the_rounding_of_ties(down, channels):
    rng = np.random.default_rng(channels)

    def pairs():
        for index in range(60):
            height, width = (int(side) * 2 for side in rng.integers(1, (20, 80)))
            image = rng.integers(0, 256, (height, width, channels), np.uint8)
            high, wide = (height // 2, width) if down else (height, width // 2)
            top, left = int(rng.integers(high)), int(rng.integers(wide))
            bottom, right = int(rng.integers(top, high)) + 1, int(rng.integers(left, wide)) + 1
            order, flips = Order(index % 3), (index % 4 == 1, index % 5 < 2)
            whole = halved(height, width, channels, down=down, image=image, order=order)[..., :3]
            more = {"flips": flips, "region": (top, left, bottom, right)}
            part = halved(height, width, channels, down=down, image=image, order=order, **more)
            turned = whole[top:bottom, left:right][:: -1 if flips[0] else 1, :: -1 if flips[1] else 1]
            yield f"{image.shape}, {order}, {more}", part[..., :3], turned

    assert_equal(pairs())


def pipeline_pixels(image, *ops, color="rgb"):
    """Return the pixel values that a pipeline computes for an image."""
    tensor = pp.tensor(dtype="uint8", layout="hwc", max_size=200)
    with pp.Engine(pp.Pipeline([pp.decode(color=color), *ops, tensor])) as engine:
        return engine.run([png(image)])[0]


def doubling_resize(height=20, width=87):
    """Return a resize whose vertical pass is last. Between rows of 0 and 2, the second of each four values is 0.5."""
    return pp.resize(height=height, width=width, like="dali", antialias=False)


@pytest.mark.parametrize("color", ["rgb", "bgr"])
@pytest.mark.parametrize("size", [(20, 87), (87, 20)])
def test_a_crop_and_a_mirror_equal_the_complete_image(color, size):
    image = np.random.default_rng(1).integers(0, 256, (10, 87, 3), np.uint8)
    whole = pipeline_pixels(image, doubling_resize(*size), color=color)
    assert np.array_equal(
        pipeline_pixels(image, doubling_resize(*size), pp.crop(3, 5, 16, 15), color=color), whole[3:19, 5:20]
    )
    assert np.array_equal(pipeline_pixels(image, doubling_resize(*size), pp.flip(), color=color), whole[:, ::-1])


@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_the_channel_order_is_the_decoders_even_after_other_ops(color):
    """For 87 columns of three values, the remainder has 5 values: one whole pixel, and two thirds of the pixel before
    it.
    """
    image = np.zeros((10, 87, 3), np.uint8)
    image[1::2] = 2
    turned = pp.rotate(180, like="dali", expand=True), pp.rotate(180, like="dali", expand=True)
    for ops in ([], [pp.rotate(360, like="dali")], turned):
        levels = pipeline_pixels(image, *ops, doubling_resize(), color=color)[1::4]
        assert levels[:, -2:].reshape(5, 6).tolist() == [[0, 1, 1, 1, 1, 1]] * 5
        assert not levels[:, :-2].any()
