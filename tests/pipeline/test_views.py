"""Tests that views are branches of one image with their own random parameters."""

import numpy as np

import pixprep as pp
from support.images import png, scene


def test_views_are_the_branches_that_users_wrote_by_hand():
    ops = [pp.random_crop(20), pp.mask(), pp.tensor()]
    by_hand = [
        pp.decode(name="photo"),
        pp.random_crop(20, from_="photo"),
        pp.mask(name="a_0_mask", only="training"),
        pp.tensor(name="a_0", only="training"),
        pp.random_crop(20, from_="photo"),
        pp.mask(name="a_1_mask", only="training"),
        pp.tensor(name="a_1", only="training"),
        pp.random_crop(30, from_="photo"),
        pp.tensor("uint8", name="b_0_raw", only="training"),
    ]
    views = [*pp.views("a", 2, ops), *pp.views("b", 1, [pp.random_crop(30), pp.tensor("uint8", name="raw")])]
    pipeline = pp.Pipeline([pp.decode(name="photo"), *views])
    assert [op if op.home else pp.ops.changed(op, only=None) for op in pipeline.ops] == [
        op if op.home else pp.ops.changed(op, only=None) for op in by_hand
    ]
    assert pipeline.sides == ("training",)


def test_each_view_shows_its_own_part_of_the_photo_and_of_the_mask():
    pixels = scene(60, 80)
    sample = {"image": png(pixels), "mask": pixels[:, :, 1]}  # the label of a pixel is its green value
    ops = [pp.random_crop(20), pp.mask(), pp.tensor("uint8")]
    pipeline = pp.Pipeline([pp.decode(name="photo"), *pp.views("view", 3, ops)]).for_training()
    with pp.Loader([sample] * 4, pipeline, batch_size=4) as loader:
        batch = next(iter(loader))
    tensors = [batch[f"view_{view}"] for view in range(3)]
    for view, tensor in enumerate(tensors):
        assert np.array_equal(tensor[:, 1], batch[f"view_{view}_mask"])
    places = {str(draws[f"random_crop#{view}"]) for draws in batch.draws for view in range(3)}
    assert len(places) == 12
