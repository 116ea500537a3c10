"""Tests batches of images of different sizes: padded outputs have the shape of the tensor, and no data are lost."""

import numpy as np
import pytest

import pixprep as pp
from support.images import png, scene

SIZES = [(40, 60), (64, 48), (30, 90)]
OPS = [
    pp.decode(),
    pp.image_size(),
    pp.boxes(),
    pp.points(),
    pp.mask(ignore=9),
    pp.masks(),
    pp.tensor(multiple=16, max_size=200),
]


def sample(height, width, count):
    boxes = [[2 + i, 3, 20 + i, 25] for i in range(count)]
    return {
        "image": png(scene(height, width)),
        "boxes": np.reshape(np.array(boxes, np.float32), (-1, 4)),
        "labels": np.arange(count),
        "points": np.zeros((count, 2, 2), np.float32) + 5,
        "mask": np.ones((height, width), np.uint8),
        "masks": np.ones((count, height, width), np.uint8),
        "caption": "a photo",
        "box_score": np.full(count, 0.5, np.float32),
    }


def batch(side="training", source=None):
    source = source or [sample(*size, count) for size, count in zip(SIZES, (2, 0, 3), strict=True)]
    with pp.Loader(source, pp.Pipeline(OPS).at(side), batch_size=len(source)) as loader:
        (made,) = loader
    return made


@pytest.mark.parametrize("side", ["training", "serving"])
def test_a_padded_batch_has_the_shape_of_its_tensor(side):
    made = batch(side)
    assert made.padded("tensor").shape == (3, 3, 64, 96)
    assert made["sizes"].tolist() == [list(size) for size in SIZES] == made["image_size"].tolist()
    mask, masks = made.padded("mask"), made.padded("masks")
    assert (mask.shape, masks.shape) == ((3, 64, 96), (3, 3, 64, 96))
    for one, size, own in zip(mask, SIZES, made["mask"], strict=True):
        rows, columns = size
        assert own.shape == size
        assert np.array_equal(one[:rows, :columns], own)
        assert (one[rows:] == 9).all()
        assert (one[:, columns:] == 9).all()
    assert [int(each.sum()) for each in masks] == [int(each.sum()) for each in made["masks"]]


@pytest.mark.parametrize("pad", [None, 3])
@pytest.mark.parametrize("nothing", [[], np.array([])], ids=["a list", "an array"])
def test_labels_of_a_photo_without_objects_are_integers(nothing, pad):
    empty = {"boxes": nothing, "labels": nothing, "box_track": nothing, "area": nothing, "box_name": nothing}
    full = {"boxes": [[2, 3, 20, 25]], "labels": [4], "box_track": [7], "area": [484.0], "box_name": ["cat"]}
    pipeline = pp.Pipeline([pp.decode(), pp.boxes(pad=pad), pp.tensor(max_size=200)]).for_training()
    if pad:
        del empty["box_name"], full["box_name"]
    for fields in ([empty], [empty, full]):
        with pp.Loader([{**each, "image": png(scene(40, 60))} for each in fields], pipeline, batch_size=2) as loader:
            (made,) = loader
        for name, dtype in {"labels": np.int64, "box_track": np.int64, "area": np.float64, "boxes": np.float32}.items():
            assert {each.dtype for each in made[name]} == {np.dtype(dtype)}


def test_rows_without_objects_are_minus_one():
    made = batch()
    for name, shape in {"boxes": (3, 3, 4), "labels": (3, 3), "points": (3, 3, 2, 2), "box_score": (3, 3)}.items():
        padded = made.padded(name)
        assert padded.shape == shape, name
        for one, own in zip(padded, made[name], strict=True):
            assert np.array_equal(one[: len(own)], own)
            assert (one[len(own) :] == -1).all()
    assert made.padded("boxes", slice(1, 2)).shape == (1, 0, 4)
    flags = batch(
        source=[
            sample(40, 60, 1) | {"box_truncated": np.array([True])},
            sample(40, 60, 2) | {"box_truncated": np.array([True, False])},
        ]
    )
    assert flags.padded("box_truncated").tolist() == [[1, -1], [1, 0]]


def test_an_output_that_cannot_be_padded_reports_the_reason():
    made = batch()
    with pytest.raises(KeyError, match='the batch does not contain "maks"; it contains'):
        made.padded("maks")
    with pytest.raises(pp.PipelineError, match='"caption" cannot be padded: its arrays may differ only'):
        made.padded("caption")


def test_images_of_equal_size_have_no_sizes():
    ops = [pp.decode(), pp.center_crop(30), pp.boxes(), pp.tensor()]
    with pp.Loader([sample(40, 60, 2)], pp.Pipeline(ops), batch_size=1) as loader:
        (made,) = loader
    assert "sizes" not in made
    assert made.padded("boxes").shape == (1, 2, 4)
