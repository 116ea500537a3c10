"""Tests that ``pixprep.apply`` runs every op alone on arrays, with the random parameters that a Loader would sample."""

import msgspec
import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.pipeline.ops import OPS, AnnotationOp, Decode, DecodeVideo, Extern, OutputOp, Pixels, Tensor
from plan.frozen_draws import OPTIONS
from support.images import scene

PHOTO = scene(48, 64)
FIELDS = {
    "resize": {"size": 32},
    "center_crop": {"height": 24},
    "crop": {"top": 1, "left": 2, "height": 10, "width": 12},
    "pad": {"height": 70, "width": 80},
    "letterbox": {"height": 50, "width": 50},
    "hue": {"factor": 0.2},
    "gamma": {"gamma": 1.5},
    "color_matrix": {"matrix": ((0.5, 0.5, 0, 3), (0, 1, 0, 0), (0.2, 0, 0.8, -9))},
    "erase": {"top": 4, "left": 5, "height": 10, "width": 12},
    "warp": {"quad": ((5, 2), (60, 5), (50, 40), (9, 47))},
    "resize_to_pixels": {"multiple": 8, "max_pixels": 1500},
    "resize_to_patches": {"patch_size": 8, "max_patches": 20},
    "resize_by_rule": {"rule": "shrink", "size": 40, "multiple": 8},
    "resize_to_tiles": {"tile_size": 16, "max_tiles": 6},
    "resize_to_slices": {"rule": "minicpm", "slice_size": 16, "multiple": 4, "max_slices": 6},
}
USUAL = {
    "factor": 0.7, "bits": 4, "threshold": 100, "add": 60, "angle": 30, "kernel_size": 3, "shift": 0.1,
    "corners": ((1, 0), (60, 5), (50, 40), (9, 47)), "permutation": (2, 0, 1),
}  # fmt: skip
"""Values of required fields, by field name. Random ops use the fields of their first frozen case."""
EXCLUDED_OPS = Extern | Decode | DecodeVideo | Pixels | OutputOp | AnnotationOp
OPS_ALONE = [name for name, cls in OPS.items() if not issubclass(cls, EXCLUDED_OPS)]
BOXES = [[10, 10, 30, 40]]


@pytest.mark.parametrize("name", OPS_ALONE)
def test_every_op_works_alone_and_is_reproducible(name):
    required = [field.name for field in msgspec.structs.fields(OPS[name]) if field.required]
    fields = FIELDS.get(name) or OPTIONS.get(name, [None])[0]
    op = OPS[name](**({field: USUAL[field] for field in required} if fields is None else fields))
    boxes = BOXES if "boxes" in getattr(op, "sees", ()) else None
    given = PHOTO.copy()
    first = pp.apply(op, given, seed=4, epoch=2, index=7, boxes=boxes)
    assert np.array_equal(given, PHOTO)
    assert not np.shares_memory(first, given)
    assert first.ndim == 3
    assert first.shape[2] == 3
    assert first.dtype == (np.float32 if name == "normalize" else np.uint8)
    assert np.array_equal(pp.apply([op], PHOTO, seed=4, epoch=2, index=7, boxes=boxes), first)
    several = pp.apply([op], [PHOTO, PHOTO], seed=4, epoch=2, index=6, boxes=boxes and [boxes, boxes])
    assert np.array_equal(several[1], first)


def test_an_array_gives_the_same_result_as_pillow():
    resized = Image.fromarray(PHOTO).resize((42, 32), Image.Resampling.BILINEAR)
    assert np.array_equal(pp.apply([pp.resize(32)], PHOTO), np.asarray(resized))
    assert np.array_equal(pp.apply(pp.flip(), PHOTO), PHOTO[:, ::-1])
    assert np.array_equal(pp.apply([], PHOTO), PHOTO)


def test_a_list_can_contain_arrays_of_different_sizes():
    photos = [PHOTO, scene(100, 30), scene(33, 33)]
    results = pp.apply([pp.resize(16)], photos)
    assert [result.shape for result in results] == [(16, 21, 3), (53, 16, 3), (16, 16, 3)]
    assert pp.apply([pp.resize(16)], []) == []


def test_gray_arrays_keep_their_number_of_dimensions():
    gray = PHOTO[:, :, 0]
    assert pp.apply([pp.resize(16)], gray).shape == (16, 21)
    assert pp.apply([pp.resize(16)], gray[:, :, None]).shape == (16, 21, 1)
    assert np.array_equal(pp.apply([pp.resize(16)], gray), pp.apply([pp.resize(16)], PHOTO)[:, :, 0])


def test_pixels_and_tensor_accept_options():
    ops = [pp.pixels(color="rgb", given="bgr"), pp.center_crop(24), pp.normalize(mean=0.5, std=0.5)]
    four, margin = {"channels": 4, "pad_value": 7}, {"multiple": 32, "pad_level": 200}
    for fields, shape in (({}, (3, 24, 24)), (four, (4, 24, 24)), (margin, (3, 32, 32))):
        end = pp.tensor(dtype="float16", **fields)
        tensor = pp.apply([*ops, end], PHOTO)
        assert (tensor.shape, tensor.dtype) == (shape, np.float16)
        (expected,) = pp.Engine(pp.Pipeline([*ops, end])).run([PHOTO])
        assert np.array_equal(tensor, expected)
    with pytest.raises(pp.ImageError, match=r"the limit is 32 per side \(max_size\)"):
        pp.apply(pp.tensor(max_size=32), PHOTO)
    values = pp.apply(ops, PHOTO)
    assert (values.shape, values.dtype) == ((24, 24, 3), np.float32)


def test_random_ops_sample_the_same_parameters_as_a_loader():
    ops = [pp.pixels(), pp.random_resized_crop(16), pp.random_flip(), pp.random_flip("vertical")]
    photos = [scene(40 + n, 60, n) for n in range(8)]
    pipeline = pp.Pipeline([*ops, pp.tensor(dtype="uint8", layout="hwc", only="training")])
    with pp.Loader([{"image": photo} for photo in photos], pipeline, batch_size=8, seed=9, threads=1) as loader:
        epochs = [next(iter(batches)) for batches in (loader, loader)]
    for epoch, batch in enumerate(epochs):
        assert np.array_equal(np.stack(pp.apply(ops, photos, seed=9, epoch=epoch)), batch["tensor"])
    assert not np.array_equal(epochs[0]["tensor"], epochs[1]["tensor"])
    others = pp.apply(ops, photos, seed=10)
    assert not np.array_equal(np.stack(others), epochs[0]["tensor"])


def test_the_tensor_op_equals_that_of_a_pipeline():
    assert isinstance(pp.tensor(), Tensor)
