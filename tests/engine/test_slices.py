"""Tests slices of variable size, and the outputs that describe them."""

import numpy as np
import pytest

import pixprep as pp
from support.images import png, scene

MINICPM = {"rule": "minicpm", "slice_size": 32, "multiple": 8, "max_slices": 6}
LFM2 = {"rule": "lfm2", "slice_size": 32, "multiple": 16, "max_slices": 6, "min_slices": 2}
LFM2 |= {"min_pixels": 256, "max_pixels": 1024, "tolerance": 2.0, "patch_size": 8}


def run(*ops, image):
    with pp.Engine(pp.Pipeline([pp.decode(), *ops, pp.tensor("uint8")]), threads=1) as engine:
        return engine.run_batch([image])


def patches_of(pixels, size, order):
    """Return the patches of an image (channels, height, width) in row-major order."""
    rows, columns = (side // size for side in pixels.shape[1:])
    blocks = pixels.reshape(3, rows, size, columns, size)
    return blocks.transpose(1, 3, *order).reshape(rows * columns, *(3, size, size) if order == (0, 2, 4) else (-1,))


@pytest.mark.parametrize("size", [(60, 90), (20, 25), (150, 40), (33, 33)])
@pytest.mark.parametrize("name", ["minicpm", "lfm2"])
def test_slices_and_the_whole_image_equal_separate_resizes(name, size):
    image, is_first = png(scene(*size)), name == "minicpm"
    fields = MINICPM if is_first else LFM2
    sizer = pp.resize_to_slices(**fields).sizer
    grid, whole, canvas = sizer.grid(*size), sizer.whole(*size), sizer.size(*size)
    views = []
    if grid is not None:
        big = run(pp.resize(height=canvas[0], width=canvas[1]), image=image).outputs["tensor"][0]
        views = [part for row in np.split(big, grid[0], 1) for part in np.split(row, grid[1], 2)]
    small = [run(pp.resize(height=whole[0], width=whole[1]), image=image).outputs["tensor"][0]]
    views = [*small, *views] if is_first else [*views, *small]
    options = {} if is_first else {"max_patches": 64}
    outputs = [pp.slice_patches(8, **options, dtype="uint8", name="patches"), pp.slice_grids(8, name="grids")]
    outputs += [pp.slice_count(8, name="count"), pp.slice_count(8, order="hw", name="cuts")]
    outputs += [] if is_first else [pp.slice_mask(8, max_patches=64, name="mask")]
    with pp.Engine(pp.Pipeline([pp.decode(), pp.resize_to_slices(**fields), *outputs]), threads=1) as engine:
        batch = engine.run_batch([image, image])
    grids = [[each.shape[1] // 8, each.shape[2] // 8] for each in views]
    assert batch.outputs["grids"][0].tolist() == grids
    assert batch.packed("grids").tolist() == grids * 2
    assert batch.outputs["count"].tolist() == [[len(views)]] * 2
    assert batch.outputs["cuts"][0].tolist() == list(grid or (0, 0))
    if is_first:
        expected = np.concatenate([patches_of(view, 8, (0, 2, 4)) for view in views]).transpose(1, 2, 0, 3)
        assert np.array_equal(batch.outputs["patches"][0], expected.reshape(1, 3, 8, -1))
        assert batch.packed("patches").shape == (1, 3, 8, 2 * expected.shape[2] * 8)
    else:
        found, mask = batch.outputs["patches"][0], batch.outputs["mask"][0]
        for row, view in enumerate(views):
            expected = patches_of(view, 8, (2, 4, 0))
            assert np.array_equal(found[row, : len(expected)], expected)
            assert not found[row, len(expected) :].any()
            assert mask[row].sum() == len(expected)
        assert batch.packed("patches").shape == (2 * len(views), 64, 192)


def test_a_narrow_image_with_too_many_patches_is_rejected_without_its_batch_mates():
    ops = [pp.resize_to_slices(**LFM2), pp.slice_patches(8, max_patches=16, name="patches")]
    with pp.Engine(pp.Pipeline([pp.decode(), *ops]), threads=1) as engine:
        batch = engine.run_batch([png(scene(1, 900)), png(scene(20, 25))])
    assert "is too extreme for 1,024 pixels" in str(batch.errors[0])
    assert batch.errors[1] is None
    assert batch.outputs["patches"][1].shape == (1, 16, 192)


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([pp.resize(32), pp.center_crop(32), pp.slice_patches(8)], "must follow resize_to_slices"),
        (
            [pp.resize_to_slices(**LFM2), pp.slice_patches(8, max_patches=9)],
            '"max_patches" is 9, but a slice or the image may',
        ),
        ([pp.resize_to_slices(**MINICPM), pp.grayscale(), pp.slice_grids(8)], "must follow resize_to_slices"),
    ],
)
def test_slices_are_rejected_without_their_resize(ops, message):
    with pytest.raises(pp.PipelineError, match=message):
        pp.Pipeline([pp.decode(), *ops, pp.tensor()])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"min_pixels": 4}, '"min_pixels" has no effect with "rule": "minicpm"'),
        ({"rule": "lfm2"}, '"min_pixels" is required with "rule": "lfm2"'),
        ({"min_slices": 7}, '"min_slices" 7 must not exceed "max_slices" 6'),
    ],
)
def test_fields_that_contradict_each_other_are_rejected(change, message):
    with pytest.raises(pp.PipelineError, match=message):
        pp.resize_to_slices(**{**MINICPM, **change})
