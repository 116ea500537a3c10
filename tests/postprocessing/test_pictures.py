"""Tests of the pictures that are drawn from a model's outputs according to declarations."""

import cv2
import numpy as np
import pytest

import pixprep as pp
from pixprep.errors import PixprepError
from pixprep.postprocessing.pictures import Picture, draw

STRETCH = {"transform": np.float32([2 / 3, 0.5, 0, 0]), "original_size": np.int32([3, 4])}  # to a tensor of 2 x 2
MAP = np.float32([[[0, 0.5], [1, 2]]])
PHOTO = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)


def drawn(array, text, photo=None):
    return draw({"output": np.asarray(array), **STRETCH}, "output", Picture.parse(text), photo)


@pytest.mark.parametrize(
    ("array", "text", "pixels"),
    [
        (MAP, "map,range=0..1,size=output", [[0, 128], [255, 255]]),
        (MAP[0], "map,range=each,size=output", [[0, 64], [128, 255]]),
        (MAP.transpose(1, 2, 0), "map,range=-1..1,size=output,layout=hwc", [[128, 191], [255, 255]]),
        ([[3, 0], [255, 1]], "classes,size=output", [[3, 0], [255, 1]]),
        (MAP, "classes,size=output,threshold=0.5", [[0, 0], [1, 1]]),
        (np.float32([[[1, 0]], [[2, 0]], [[0, 9]]]), "classes,size=output", [[1, 2]]),
        (np.float32([[[0]], [[0.2]], [[1]]]), "image,range=0..1", [[[0, 51, 255]]]),
        (np.float32([[[0]], [[0.2]], [[1]]]), "image,range=0..1,color=bgr", [[[255, 51, 0]]]),
        (np.uint8([[[7, 8, 9]]]), "image,range=0..255,layout=hwc", [[[7, 8, 9]]]),
        (np.int64([[1, 2], [0, 0]]), "classes", [[1, 1, 2, 2], [0] * 4, [0] * 4]),
    ],
)
def test_the_declaration_determines_the_pixels(array, text, pixels):
    found = drawn(array, text)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, pixels)


@pytest.mark.parametrize("kind", ["bilinear", "area"])
def test_a_map_gets_the_size_of_the_photo(kind):
    expected = pp.mask_to_original(MAP[0], STRETCH["transform"], [3, 4], filter=kind)
    np.testing.assert_array_equal(drawn(MAP, f"map,range=0..2,filter={kind}"), np.rint(expected * 127.5))
    expected = pp.mask_to_original(MAP[0] + 1, STRETCH["transform"] / 2, [3, 4], filter=kind)
    np.testing.assert_array_equal(drawn(MAP + 1, f"map,range=0..2,stride=2,filter={kind}"), np.rint(expected * 127.5))


def test_a_map_is_the_alpha_channel_of_the_photo_and_classes_are_blended_over_it():
    found = drawn(MAP, "map,range=0..2,draw=alpha", PHOTO)
    np.testing.assert_array_equal(found[..., :3], PHOTO)
    np.testing.assert_array_equal(found[..., 3], drawn(MAP, "map,range=0..2"))
    found = drawn([[0, 1], [0, 8]], "classes,draw=overlay", PHOTO)
    np.testing.assert_array_equal(found[:, :2], PHOTO[:, :2])
    orange = (PHOTO[:, 2:].astype(int) + (255, 122, 0) + 1) // 2  # class 8 has the color of class 1
    np.testing.assert_array_equal(found[:, 2:], orange)


@pytest.mark.parametrize(
    ("array", "text", "message"),
    [
        (MAP, "matte", "'matte': kind must be map or classes or image, not 'matte'"),
        (MAP, "map", "'map': a picture of kind map needs range=LOW..HIGH, the values that become black and white"),
        (MAP, "map,range=1..0", "'map,range=1..0': range must be LOW..HIGH with LOW < HIGH"),
        (MAP, "map,range=1", "'map,range=1': range must be LOW..HIGH, such as 0..1, or each, not '1'"),
        (MAP, "classes,draw=alpha", "'classes,draw=alpha': draw=alpha is only for pictures of kind map with the size "
         "of the photo"),
        (MAP, "map,scale=2", "'map,scale=2': unknown field 'scale': choose from range, layout, color, threshold, "
         "size, stride, filter, draw"),
        (MAP, "classes", 'output "output" [1, 2, 2] has a single score per pixel: declare threshold=NUMBER'),
        (MAP, "map,range=0..1,layout=hwc", 'output "output" [1, 2, 2] has 2 channels with layout=hwc, but kind map has '
         "1: declare a different layout or kind"),
        (MAP * np.nan, "map,range=0..1", 'output "output" has values that are NaN or infinite'),
        ([[256]], "classes", 'output "output" has the classes 256 to 256, not 0 to 255'),
        ([b"a"], "classes", 'output "output" |S1 [1] is not a picture: expected two or three dimensions'),
        (MAP, "map,range=0..1,draw=alpha", "the photo has 4 x 3 pixels, and the picture 3 x 4: the pipeline must apply "
         "the EXIF orientation"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_one_line(array, text, message):
    with pytest.raises(PixprepError) as caught:
        drawn(array, text, PHOTO.transpose(1, 0, 2))
    assert str(caught.value) == message


def test_a_declaration_survives_a_round_trip():
    for text in ("map,range=each", "map,range=-1.5..0.1,draw=alpha,filter=area,stride=4", "classes,threshold=0.5"):
        assert Picture.parse(str(Picture.parse(text))) == Picture.parse(text)


@pytest.mark.parametrize(
    ("mask", "size"),
    [((64, 48), (200, 333)), ((64, 64), (32, 16)), ((64, 64), (43, 21)), ((64, 64), (96, 21)), ((64, 64), (21, 96))],
)
def test_maps_at_the_size_of_the_photo_are_those_of_opencv(mask, size):
    values = np.random.default_rng(0).random(mask, np.float32)
    padded = np.full((mask[0] + 16, mask[1]), 9, np.float32)  # a letterbox
    padded[8:-8] = values
    scale = np.divide(mask, size)
    for kind, how in (("bilinear", cv2.INTER_LINEAR), ("area", cv2.INTER_AREA)):
        expected = cv2.resize(values, size[::-1], interpolation=how)
        for array, top in ((values, 0), (padded, 8)):
            found = pp.mask_to_original(array, [*scale, top, 0], size, filter=kind)
            np.testing.assert_allclose(found, expected, rtol=0, atol=2e-7)
    flipped = pp.mask_to_original(values, [scale[0], -scale[1], 0, mask[1]], size, filter="area")
    np.testing.assert_allclose(
        flipped, cv2.resize(values, size[::-1], interpolation=cv2.INTER_AREA)[:, ::-1], atol=1e-6
    )
