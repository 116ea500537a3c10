"""Tests that an imported ``VitPoseImageProcessor`` and pixprep's ``ImageProcessor`` equal the class bit for bit."""

from importlib.util import find_spec

import numpy as np
import pytest

import pixprep as pp
from pixprep.importers.transformers import from_transformers
from pixprep.importers.transformers.processor import ImageProcessor
from pixprep.importers.verify.twins import recoloured
from pixprep.pipeline.ops import Warp, changed
from support.images import noise, png, read, scene, with_exif

if find_spec("transformers") is None or find_spec("torchvision") is None or find_spec("scipy") is None:
    pytest.skip("NO TRANSFORMERS OR SCIPY: the crops of persons were not compared", allow_module_level=True)

import torch
import transformers

NAME = "VitPoseImageProcessor"
BACKENDS = ("torchvision", "pil")
SIZES = ((70, 101), (240, 33), (5, 300), (480, 640))
FIELDS = {
    "default": {},
    "square": {"size": {"height": 64, "width": 64}, "do_normalize": False},
    "wide": {"size": {"height": 20, "width": 77}, "do_rescale": False},
    "pixels": {"size": {"height": 64, "width": 48}, "do_rescale": False, "do_normalize": False},
}


def pair(backend, **fields):
    """Return the class of transformers, and the pipeline with the same configuration."""
    cls = getattr(transformers, NAME + ("Pil" if backend == "pil" else ""))
    return cls(**fields), from_transformers({"image_processor_type": NAME, **fields}, backend=backend)


def boxes_in(height, width, seed, count=8):
    """Return random boxes, float64 (count, 4). Some extend beyond the image, and the last one has integer values."""
    rng = np.random.default_rng(seed)
    corners = rng.uniform(-0.2, 0.8, (count, 2)) * (width, height)
    boxes = np.hstack([corners, rng.uniform(0.25, 1, (count, 2)) * (width, height) + 2])
    boxes[-1:] = boxes[-1:].round()
    return boxes


def theirs(own, photo, boxes):
    return own(photo, boxes=[boxes], return_tensors="np")["pixel_values"]


def ours(pipeline, encoded, boxes):
    with pp.Engine(pipeline, threads=1, limits=pp.Limits(max_boxes=200)) as engine:
        batch = engine.run_batch([encoded], inputs={"boxes": [boxes]})
    assert batch.errors == [None] * len(boxes)
    return batch.outputs["tensor"]


def with_warp(pipeline, **fields):
    """Return the pipeline with these fields of its op ``warp`` changed."""
    return pp.Pipeline([changed(op, **fields) if isinstance(op, Warp) else op for op in pipeline.ops])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fields", FIELDS)
def test_the_persons_of_a_photo_equal_the_class(fields, backend):
    own, pipeline = pair(backend, **FIELDS[fields])
    single = with_warp(pipeline, box_format="xywh")
    for seed, size in enumerate(SIZES):
        for make in (scene, noise):
            encoded, boxes = png(make(*size)), boxes_in(*size, seed)
            for rows in (boxes.tolist(), boxes, boxes.astype(np.float32), boxes.astype(np.int64)):
                which = single if getattr(rows, "dtype", None) == np.float32 else pipeline
                expected, actual = theirs(own, read(encoded), rows), ours(which, encoded, rows)
                assert actual.dtype == expected.dtype
                assert np.array_equal(actual, expected), (size, make.__name__)


def test_boxes_refer_to_the_oriented_photo():
    encoded, boxes = with_exif(6, size=(60, 90)), [[10.5, 20.25, 30.0, 50.0]]
    own, pipeline = pair("torchvision")
    photo = transformers.image_utils.load_image(read(encoded))
    assert photo.size == (60, 90)
    assert np.array_equal(ours(pipeline, encoded, boxes), theirs(own, photo, boxes))


def test_a_shift_of_half_a_pixel_and_other_orders_of_the_numbers_are_detected():
    own, pipeline = pair("torchvision", **FIELDS["pixels"])
    encoded, boxes = png(noise(120, 160)), boxes_in(120, 160, 5)
    expected = theirs(own, read(encoded), boxes)
    assert np.array_equal(ours(pipeline, encoded, boxes), expected)
    corners = boxes + np.hstack([np.zeros((8, 2)), boxes[:, :2]])
    corners[:, 2:] = np.maximum(corners[:, 2:], 2)
    controls = {
        "half a pixel": (pipeline, boxes + np.array([0.5, 0, 0, 0])),
        "corners": (pipeline, corners),
        "y before x": (pipeline, boxes[:, [1, 0, 3, 2]]),
        "padding": (with_warp(pipeline, box_padding=1.2), boxes),
        "the nearest pixel": (with_warp(pipeline, filter="nearest"), boxes),
        "OpenCV": (
            with_warp(pipeline, like="opencv", box_format=None, align_corners=False),
            boxes + np.hstack([np.zeros((8, 2)), boxes[:, :2]]),
        ),
    }
    for name, (wrong, rows) in controls.items():
        different = (ours(wrong, encoded, rows) != expected).mean((1, 2, 3))
        assert (different > 0.15).all(), (name, different)


def test_the_dtype_of_boxes_changes_a_few_values():
    """The class returns different values for float32 boxes, which is why ``xywh`` and ``xywh64`` both exist."""
    own, pipeline = pair("torchvision", **FIELDS["pixels"])
    different = 0
    for seed in range(30):
        encoded = png(np.random.default_rng(seed).integers(0, 256, (120, 160, 3), dtype=np.uint8))
        boxes = boxes_in(120, 160, seed, 20).astype(np.float32)
        expected = theirs(own, read(encoded), boxes)
        assert np.array_equal(ours(with_warp(pipeline, box_format="xywh"), encoded, boxes), expected)
        different += np.count_nonzero(ours(pipeline, encoded, boxes) != expected)
    assert different > 0


@pytest.mark.parametrize("filter_", ["nearest", "bilinear"])
def test_a_matrix_equals_affine_transform(filter_):
    rng, compared = np.random.default_rng(3), 0
    for index in range(120):
        photo = rng.integers(0, 256, (*rng.integers(1, 60, 2), 3), dtype=np.uint8)
        matrix = np.hstack([rng.normal(size=(2, 2)) + np.eye(2), rng.uniform(-5, 20, (2, 1))])
        if index % 4 == 0:  # positions at pixels, halfway between them, and at the last row and column
            matrix = np.round(matrix * 2) / 2
        if abs(np.linalg.det(matrix[:, :2])) < 0.05:
            continue
        rows = tuple(map(tuple, matrix.tolist()))
        op = pp.warp(
            matrix=rows,
            inverse_map=True,
            like="scipy",
            filter=filter_,
            height=30,
            width=37,
            fill=int(rng.integers(256)),
        )
        (actual,) = pp.Engine(pp.Pipeline([pp.pixels(), op, pp.tensor(dtype="uint8", layout="hwc")]), threads=1).run(
            [photo]
        )
        assert np.array_equal(actual, recoloured(op, photo)), index
        compared += 1
    assert compared > 80


FORMS = {
    "lists": lambda boxes: boxes,
    "float64": lambda boxes: [np.array(each, np.float64).reshape(-1, 4) for each in boxes],
    "float32": lambda boxes: [np.array(each, np.float32).reshape(-1, 4) for each in boxes],
    "tensors": lambda boxes: [torch.tensor(each).reshape(-1, 4) for each in boxes],
    "scores": lambda boxes: [[[*box, 0.9] for box in each] for each in boxes],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMS)
def test_a_batch_equals_that_of_the_class(form, backend):
    fields = {"size": {"height": 64, "width": 48}}
    own, _ = pair(backend, **fields)
    processor = ImageProcessor({"image_processor_type": NAME, **fields}, backend=backend, threads=1)
    photos = [read(png(scene(*size))) for size in SIZES]
    boxes = FORMS[form]([boxes_in(*size, 9, count).tolist() for size, count in zip(SIZES, (2, 0, 70, 1), strict=True)])
    for which in (None, "np", "pt"):
        expected = own(photos, boxes=boxes, return_tensors=which)["pixel_values"]
        actual = processor(photos, boxes=boxes, return_tensors=which)["pixel_values"]
        assert type(actual) is type(expected)
        assert len(actual) == len(expected) == 73
        for one, two in zip(actual, expected, strict=True):
            assert type(one) is type(two)
            assert one.dtype == two.dtype
            assert np.array_equal(np.asarray(one), np.asarray(two))
    small = {"size": {"height": 32, "width": 24}, "return_tensors": "np"}
    expected = own(photos[0], boxes[:1], **small)["pixel_values"]
    assert np.array_equal(processor(photos[0], boxes[:1], **small)["pixel_values"], expected)


def test_other_boxes_are_passed_to_the_original():
    own, _ = pair("torchvision")
    processor = ImageProcessor({"image_processor_type": NAME}, original=own, threads=1)
    photo, boxes = read(png(scene(40, 50))), [[[np.float32(3), 4.5, 20.25, 30.1]]]
    expected = own(photo, boxes=boxes, return_tensors="np")["pixel_values"]
    assert np.array_equal(processor(photo, boxes=boxes, return_tensors="np")["pixel_values"], expected)
    with pytest.raises(pp.PipelineError, match=r"boxes with values of type float and float32: not supported"):
        ImageProcessor({"image_processor_type": NAME})(photo, boxes=boxes)
