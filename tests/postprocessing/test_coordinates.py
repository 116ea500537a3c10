"""Tests that boxes and points are mapped correctly between photo and tensor. Squares are painted on photos, and then
located in the tensor.
"""

import doctest
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import pixprep as pp
from pixprep.postprocessing import coordinates
from support.images import png, save

boxes = import_module("pixprep.boxes")  # pp.boxes is the op, so the module is imported by name
RED = (255, 0, 0)
GEOMETRIES = {
    "letterbox": [pp.letterbox(320, 320, like="opencv")],
    "letterbox, top left, not enlarged": [pp.letterbox(320, 416, anchor="top_left", enlarge=False)],
    "stretch": [pp.resize(height=320, width=352, like="opencv")],
    "crop": [pp.resize(320), pp.center_crop(288, 300)],
    "square first": [pp.pad(square=True, anchor="top_left"), pp.resize(height=320, width=320, like="opencv")],
    "square first, in the middle": [pp.pad(square=True), pp.resize(height=320, width=320, filter="bicubic")],
    "mirrored": [pp.flip(), pp.letterbox(320, 320)],
    "upside down and mirrored": [pp.letterbox(320, 320), pp.flip("vertical"), pp.flip()],
}
SIZES = [(480, 640), (641, 479), (300, 301), (901, 700)]


def photo_with_box(height, width, box):
    """Return a gray photo with a red box, given as (left, top, right, bottom)."""
    pixels = np.full((height, width, 3), 110, np.uint8)
    left, top, right, bottom = box
    pixels[top:bottom, left:right] = RED
    return pixels


def locate_box(tensor):
    """Locate the red box in a tensor, uint8 (height, width, 3). Return [[left, top, right, bottom]] with subpixel
    precision.
    """
    # 0 for gray, 0.5 for a half-covered pixel
    redness = np.maximum(tensor[:, :, 0].astype(float) - tensor[:, :, 1], 0) / 255
    edges = []
    for axis in (0, 1):  # sum over the rows to find the columns, then the reverse
        profile = redness.sum(axis=axis) / redness.sum(axis=axis).max()
        middle = np.average(np.arange(len(profile)) + 0.5, weights=profile)
        edges.append((middle - profile.sum() / 2, middle + profile.sum() / 2))
    (left, right), (top, bottom) = edges
    return np.array([[left, top, right, bottom]], np.float32)


def run(encoded, ops, **decode):
    pipeline = pp.Pipeline(
        [pp.decode(**decode), *ops, pp.transform(), pp.original_size(), pp.tensor(dtype="uint8", layout="hwc")]
    )
    with pp.Engine(pipeline, threads=1) as engine:
        batch = engine.run_batch([encoded])
    assert batch.errors == [None]
    return batch.outputs["tensor"][0], batch.outputs["transform"][0], batch.outputs["original_size"][0]


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_boxes_in_the_tensor_are_mapped_back_to_the_photo(geometry, height, width):
    truth = np.array([[width // 3, height // 4, width // 3 + 90, height // 4 + 130]])
    tensor, transform, size = run(png(photo_with_box(height, width, truth[0])), GEOMETRIES[geometry])
    there = locate_box(tensor)
    assert np.abs(pp.boxes_to_original(there, transform, size) - truth).max() < 1
    assert np.abs(pp.boxes_to_tensor(truth, transform) - there).max() < 0.5


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_of_a_photo_with_exif_orientation_refer_to_the_oriented_photo(orientation):
    stored = photo_with_box(400, 300, (60, 80, 150, 240))
    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = save(Image.fromarray(stored), "PNG", exif=exif)
    turned = {
        1: stored, 2: stored[:, ::-1], 3: stored[::-1, ::-1], 4: stored[::-1],
        5: stored.transpose(1, 0, 2), 6: np.rot90(stored, -1), 7: np.rot90(stored, 2).transpose(1, 0, 2),
        8: np.rot90(stored),
    }[orientation]  # fmt: skip
    truth = locate_box(turned)
    tensor, transform, size = run(encoded, GEOMETRIES["letterbox"])
    assert tuple(size) == turned.shape[:2]
    assert np.abs(pp.boxes_to_original(locate_box(tensor), transform, size) - truth).max() < 0.5


numbers = st.floats(-2000, 2000, width=32)
sides = st.floats(0, 1000, width=32)
scales = st.floats(0.05, 20).flatmap(lambda scale: st.sampled_from([scale, -scale]))


@given(
    st.tuples(numbers, numbers, sides, sides),
    st.tuples(scales, scales, numbers, numbers),
    st.sampled_from(["xyxy", "xywh", "cxcywh"]),
)
def test_mapping_to_the_tensor_and_back_is_the_identity(whole, transform, layout):
    (left, top, *_), (scale_y, scale_x, y, x) = whole, transform
    box = boxes.convert([whole], "xywh", layout)
    there = boxes.boxes_to_tensor(box, transform, format=layout)
    assert there.dtype == np.float32
    assert boxes.boxes_to_original(there, transform, format=layout) == pytest.approx(box, abs=0.1)
    point = boxes.points_to_tensor([[left, top]], transform)
    assert point == pytest.approx(np.array([[left * scale_x + x, top * scale_y + y]]), rel=1e-6, abs=1e-3)
    assert boxes.points_to_original(point, transform) == pytest.approx(np.array([[left, top]]), abs=0.1)


def test_each_format_describes_the_same_box():
    same = {"xyxy": [[10, 20, 40, 80]], "xywh": [[10, 20, 30, 60]], "cxcywh": [[25, 50, 30, 60]]}
    for source, box in same.items():
        for target, expected in same.items():
            assert boxes.convert(box, source, target).tolist() == expected
        there = boxes.boxes_to_tensor(box, [2, -1, 0, 50], format=source)
        assert boxes.convert(there, source, "xyxy").tolist() == [[10, 40, 40, 160]]
        clipped = boxes.boxes_to_original(there, [2, -1, 0, 50], [60, 30], format=source)
        assert boxes.convert(clipped, source, "xyxy").tolist() == [[10, 20, 30, 60]]


def test_boxes_are_clipped_to_the_photo():
    locate_box = [[-5, -5, 700, 30], [900, 900, 950, 980]]
    back = boxes.boxes_to_original(locate_box, [1, 1, 0, 0], [480, 640])
    assert back.tolist() == [[0, 0, 640, 30], [640, 480, 640, 480]]
    assert boxes.boxes_to_original(locate_box, [1, 1, 0, 0]).tolist() == locate_box


def test_a_batch_has_a_transform_for_each_image():
    locate_box = np.arange(24).reshape(2, 3, 4)
    transforms, sizes = np.array([[1, 2, 3, 4], [0.5, 0.25, 0, -1]]), np.array([[30, 20], [500, 600]])
    back = boxes.boxes_to_original(locate_box, transforms, sizes)
    assert back.shape == (2, 3, 4)
    for index in (0, 1):
        alone = boxes.boxes_to_original(locate_box[index], transforms[index], sizes[index])
        assert np.array_equal(back[index], alone)
    points = boxes.points_to_original(locate_box[:, :, :2], transforms)
    assert np.array_equal(points[1], boxes.points_to_original(locate_box[1, :, :2], transforms[1]))


def test_an_empty_array_of_boxes_stays_empty():
    for none in ([], np.zeros((0, 4))):
        assert boxes.boxes_to_original(none, [1, 1, 0, 0], [5, 6]).shape == (0, 4)
    assert boxes.points_to_tensor([], [1, 1, 0, 0]).shape == (0, 2)


def test_the_example_of_the_module_is_right():
    assert doctest.testmod(coordinates).attempted == 6
    assert doctest.testmod(coordinates).failed == 0
