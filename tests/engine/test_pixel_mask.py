"""Tests that ``pixel_mask`` is 1 where a tensor contains the image, and that ``constant`` outputs its numbers."""

import numpy as np
import pytest

import pixprep as pp
from support.asking import ask
from support.images import png

WHITE = [png(np.full((height, width, 3), 255, np.uint8)) for height, width in ((50, 90), (31, 20), (64, 64))]
"""White images, in which every pixel differs from black padding."""
PADDED = {
    "corner": [pp.resize(32, side="longer"), pp.pad(height=48, width=40, anchor="top_left")],
    "center and flip": [pp.letterbox(height=48, width=40, fill=0), pp.flip("horizontal")],
    "crop of a small image": [pp.resize(24, max_size=60), pp.center_crop(40)],
    "without a resize": [pp.pad(height=100, width=100, anchor="top_left")],
    "no padding": [pp.resize(height=30, width=20)],
    "changed pixel values": [pp.letterbox(height=48, width=40, fill=0), pp.posterize(4)],
}


@pytest.mark.parametrize("case", PADDED)
def test_a_mask_is_1_where_the_canvas_contains_the_image(case):
    ops = [pp.decode(), *PADDED[case], pp.pixel_mask(dtype="uint8"), pp.tensor(dtype="uint8")]
    for encoded in WHITE:
        found = ask(ops, encoded)
        assert found["pixel_mask"].dtype == np.uint8
        assert np.array_equal(found["pixel_mask"], found["tensor"].any(axis=0))


def test_padding_of_the_ops_is_1_on_request_but_padding_of_the_tensor_is_0():
    ops = [pp.decode(), pp.center_crop(100), pp.pixel_mask(padding="one", min_height=120)]
    mask = ask([*ops, pp.tensor(min_height=120)], WHITE[0])["pixel_mask"]
    assert mask.shape == (120, 100)
    assert mask[:100].all()
    assert not mask[100:].any()


@pytest.mark.parametrize("sides", [{}, {"multiple": 16}, {"min_height": 50, "min_width": 30}, {"max_size": 40}])
def test_a_mask_has_the_size_of_the_tensor_and_is_padded_with_it(sides):
    ops = [pp.decode(), pp.resize(24, max_size=60), pp.pixel_mask(**sides), pp.tensor(dtype="uint8", **sides)]
    pipeline = pp.Pipeline(ops)
    assert pipeline.outputs["pixel_mask"].spec.shape == pipeline.outputs["tensor"].spec.shape[1:]
    assert pipeline.outputs["pixel_mask"].spec.largest == pipeline.outputs["tensor"].spec.largest[1:]
    with pp.Engine(pipeline, threads=2) as engine:
        batch = engine.run_batch([*WHITE, b"no image"])
    mask = batch.padded("pixel_mask")
    assert mask.dtype == np.int64
    assert np.array_equal(mask, batch.padded("tensor").any(axis=1))
    assert [error is None for error in batch.errors] == ["max_size" not in sides, True, True, False]


def test_a_constant_is_the_same_for_every_image():
    ops = [pp.decode(), pp.constant([1, 2.5], dtype="float32", name="a"), pp.constant([7]), pp.tensor(max_size=99)]
    with pp.Engine(pp.Pipeline(ops), threads=1) as engine:
        batch = engine.run_batch([*WHITE[:2], b"no image"])
    assert batch["a"].dtype == np.float32
    assert batch["a"].tolist() == [[1, 2.5], [1, 2.5], [0, 0]]
    assert batch["constant"].dtype == np.int64
    assert batch["constant"].tolist() == [[7], [7], [0]]
