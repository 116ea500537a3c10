"""Tests that patches contain each value of the image at the position that the layout defines, with and without an
additional pass.
"""

import numpy as np
import pytest

import pixprep as pp
from pixprep.errors import ImageError
from pixprep.patch_layout import PatchLayout
from support.asking import ask
from support.compare import assert_close
from support.images import noise, png, scene

RESIZE = {"multiple": 8, "min_pixels": 1000, "max_pixels": 6000, "filter": "bicubic"}
NORMALIZE = pp.normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))


def expected(image, patch, merge=1, frames=1, layout="chw"):
    """Return the patches of an image (channels, height, width), which are cropped one by one."""
    _, height, width = image.shape
    rows = []
    for window_y in range(0, height, patch * merge):
        for window_x in range(0, width, patch * merge):
            for y in range(window_y, window_y + patch * merge, patch):
                for x in range(window_x, window_x + patch * merge, patch):
                    block = image[:, y : y + patch, x : x + patch]
                    if layout == "chw":
                        rows.append(np.concatenate([np.tile(plane.ravel(), frames) for plane in block]))
                    else:
                        rows.append(np.tile(block.transpose(1, 2, 0).ravel(), frames))
    return np.stack(rows)


LAYOUTS = {
    "plain": {},
    "merged": {"merge_size": 2},
    "of two frames": {"merge_size": 2, "temporal_patch_size": 2},
    "channels last": {"layout": "hwc"},
    "channels last, of three frames": {"layout": "hwc", "temporal_patch_size": 3},
    "of one pixel": {"patch_size": 1, "merge_size": 8},
    "of the width of a vector": {"patch_size": 4},
}
AROUND = {
    "resized": [pp.resize_to_pixels(**RESIZE)],
    "not resized": [pp.crop(3, 1, 40, 56)],
    "mirrored": [pp.resize_to_pixels(**RESIZE), pp.flip()],
    "upside down": [pp.resize_to_pixels(**RESIZE), pp.flip("vertical")],
    "padded": [pp.resize(height=40, width=48), pp.pad(64, 64, fill=(9, 8, 7))],
    "posterized": [pp.resize_to_pixels(**RESIZE), pp.posterize(3)],
    "blurred": [pp.resize_to_pixels(**RESIZE), pp.gaussian_blur(3)],
    "of float values": [pp.resize(height=40, width=48, like="tensorflow")],
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("around", AROUND)
def test_each_patch_contains_its_block_of_the_tensor(around, layout, dtype):
    if dtype == "uint8" and around == "of float values":
        pytest.skip("uint8 does not represent the result of TensorFlow's resize")
    fields = {"patch_size": 8 // LAYOUTS[layout].get("merge_size", 1), **LAYOUTS[layout]}
    shared = [pp.decode(), *AROUND[around], *([] if dtype == "uint8" else [NORMALIZE])]
    tensor = pp.tensor(dtype=dtype, name="tensor", max_size=4096)
    found = ask([*shared, tensor, pp.patches(**fields, dtype=dtype, name="patches")], png(scene(61, 83)))
    own = {name: fields[name] for name in fields if name not in ("patch_size", "merge_size", "temporal_patch_size")}
    whole = expected(
        found["tensor"], fields["patch_size"], fields.get("merge_size", 1), fields.get("temporal_patch_size", 1), **own
    )
    assert found["patches"].dtype == whole.dtype
    assert_close(found["patches"], whole)


def test_gray_images_have_patches_of_one_channel():
    ops = [pp.decode(color="gray"), pp.resize_to_pixels(**RESIZE), pp.normalize(0.5, 0.25)]
    found = ask([*ops, pp.tensor(name="tensor", max_size=4096), pp.patches(8, name="patches")], png(scene(50, 90)))
    assert found["patches"].shape[1] == 64
    assert_close(found["patches"], expected(found["tensor"], 8))


def test_bgr_is_the_order_of_the_channels_in_a_patch():
    ops = [pp.decode(color="bgr"), pp.resize_to_pixels(**RESIZE), NORMALIZE]
    found = ask([*ops, pp.tensor(name="tensor", max_size=4096), pp.patches(4, 2, name="patches")], png(scene(50, 90)))
    assert_close(found["patches"], expected(found["tensor"], 4, 2))


def test_a_patch_that_is_not_flattened_has_the_same_values():
    ops = [pp.decode(), pp.resize_to_pixels(**RESIZE), NORMALIZE]
    flat, whole = (pp.patches(4, temporal_patch_size=2, flat=flat, name=f"is_{flat}") for flat in (True, False))
    found = ask([*ops, flat, whole], png(scene(50, 90)))
    assert found["is_False"].shape[1:] == (6, 4, 4)
    assert_close(found["is_False"].reshape(found["is_True"].shape), found["is_True"])


def test_numbered_patches_begin_with_their_row_and_column():
    ops = [pp.decode(), pp.resize_to_patches(patch_size=8, max_patches=20, rule="pix2struct"), pp.normalize(0.2, 0.5)]
    fields = {"patch_size": 8, "max_patches": 20, "layout": "hwc"}
    outputs = [
        pp.patches(**fields, name="plain"),
        pp.patches(**fields, numbered=True, name="numbered"),
        pp.patch_mask(8, max_patches=20, dtype="float32", name="mask"),
        pp.patch_grid(8, order="h", name="rows"),
        pp.patch_grid(8, order="w", name="columns"),
        pp.image_size(order="h", name="height"),
        pp.image_size(order="w", name="width"),
    ]
    with pp.Engine(pp.Pipeline([*ops, *outputs]), threads=1) as engine:
        batch = engine.run_batch([png(scene(100, 90)), png(scene(9, 300)), png(noise(1, 1))])
    sizes = []
    for index in range(3):
        found = {name: rows[index] for name, rows in batch.outputs.items()}
        (rows,), (columns,) = found["rows"], found["columns"]
        sizes.append((rows, columns))
        assert (*found["height"], *found["width"]) == (8 * rows, 8 * columns)
        assert_close(found["numbered"][:, 2:], found["plain"])
        positions = [[row + 1, column + 1] for row in range(rows) for column in range(columns)]
        assert found["numbered"][: rows * columns, :2].tolist() == positions
        assert not found["numbered"][rows * columns :].any()
        assert found["mask"].dtype == np.float32
        assert found["mask"].tolist() == [1] * rows * columns + [0] * (20 - rows * columns)
    assert sizes == [(4, 4), (1, 20), (4, 4)]


def test_a_fixed_number_of_patches_is_padded_with_zeros_and_has_a_mask():
    ops = [pp.decode(), pp.resize_to_patches(patch_size=8, max_patches=20), pp.normalize(0.2, 0.5)]
    outputs = [
        pp.patches(8, max_patches=20, layout="hwc", name="patches"),
        pp.patch_mask(8, max_patches=20, name="mask"),
        pp.patch_grid(8, name="grid"),
        pp.tensor(name="tensor", max_size=4096),
    ]
    pipeline = pp.Pipeline([*ops, *outputs])
    assert pipeline.outputs["patches"].spec.shape == (20, 192)
    with pp.Engine(pipeline, threads=1) as engine:
        batch = engine.run_batch([png(scene(100, 90)), png(scene(9, 300)), b"no image"])
    for index in range(2):
        rows, columns = batch.outputs["grid"][index]
        count = rows * columns
        assert 15 < count <= 20
        assert batch.outputs["mask"][index].tolist() == [1] * count + [0] * (20 - count)
        patches = batch.outputs["patches"][index]
        assert_close(patches[:count], expected(batch.outputs["tensor"][index], 8, layout="hwc"))
        assert not patches[count:].any()
        assert patches[:count].any()
    assert isinstance(batch.errors[2], ImageError)
    assert not batch.outputs["patches"][2].any()


def test_the_patches_of_a_batch_are_padded_to_the_largest_number():
    pipeline = pp.Pipeline([pp.decode(), pp.resize_to_pixels(**RESIZE), NORMALIZE, pp.patches(4, 2, name="patches")])
    with pp.Engine(pipeline, threads=2) as engine:
        images = [png(noise(*size)) for size in ((40, 64), (64, 40), (30, 31), (200, 25))]
        batch = engine.run_batch([*images, b"no image"])
        alone = [engine.run_batch([image]).outputs["patches"][0] for image in images]
    whole = batch.padded("patches")
    most = max(map(len, alone))
    assert whole.shape == (5, most, 48)
    for row, one in zip(whole, alone, strict=False):
        assert_close(row[: len(one)], one)
        assert not row[len(one) :].any()
    assert len({len(one) for one in alone}) > 1
    assert pipeline.outputs["patches"].spec.largest[0] >= most


@pytest.mark.parametrize("order", ["hw", "thw"])
def test_the_grid_equals_the_number_of_patches(order):
    ops = [pp.decode(), pp.resize_to_pixels(**RESIZE), pp.patches(4, 2, name="patches", dtype="uint8")]
    found = ask([*ops, pp.patch_grid(4, 2, order=order, name="grid"), pp.image_size(name="size")], png(scene(33, 190)))
    assert found["grid"].dtype == np.int64
    assert found["grid"].tolist() == [1, *(found["size"] // 4)][-len(order) :]
    assert found["grid"].prod() == len(found["patches"])


def test_an_image_that_is_too_long_fails_alone():
    pipeline = pp.Pipeline([pp.decode(), pp.resize_to_pixels(multiple=4, max_pixels=6000), pp.patches(4)])
    with pp.Engine(pipeline, threads=1) as engine:
        errors = engine.run_batch([png(noise(2, 401)), png(noise(2, 400))]).errors
    assert str(errors[0]) == ("[DOES_NOT_FIT] one side of 2 x 401 pixels is more than 200 times as long as the other")
    assert errors[1] is None


SIZES = [(h, w) for h in (1, 2, 3, 7, 27, 28, 29, 55, 100, 641, 1080, 4000) for w in (1, 5, 28, 77, 640, 1920, 8000)]


@pytest.mark.parametrize("small", ["keep", "truncate", "round"])
@pytest.mark.parametrize("limits", [(1, 28 * 28), (3136, 3136), (3136, 1_003_520), (999, 50_000), (200_000, 200_001)])
@pytest.mark.parametrize(("multiple", "frames"), [(28, 1), (16, 2), (5, 1)])
def test_sizes_are_multiples_and_within_the_bounds_that_the_pipeline_declares(multiple, frames, limits, small):
    op = pp.resize_to_pixels(multiple=multiple, min_pixels=limits[0], max_pixels=limits[1], frames=frames, small=small)
    spec = pp.Pipeline([pp.decode(), op, pp.patches(1, dtype="uint8")]).outputs["patches"].spec
    compared = 0
    for height, width in SIZES:
        try:
            size = op.sizer.size(height, width)
        except ImageError:  # the image is too long, or too small without a minimum number of pixels
            continue
        compared += 1
        assert size[0] % multiple == size[1] % multiple == 0 < min(size)
        assert size[0] * size[1] <= spec.largest[0]
    assert compared > 40


def test_the_largest_size_of_complete_patches_within_the_budget_is_chosen():
    sizer = pp.resize_to_patches(patch_size=16, max_patches=256).sizer
    for height, width in SIZES:
        rows, columns = (side // 16 for side in sizer.size(height, width))
        assert 1 <= rows * columns <= 256
        if 16 < height < 2000 and 16 < width < 2000 and max(height, width) < 8 * min(height, width):
            assert rows * columns > 256 * 0.8


def test_the_layout_splits_an_image_like_the_kernel():
    layout = PatchLayout((4, 6), channels=3, merge=2, frames=2)
    image = noise(16, 24).transpose(2, 0, 1)
    tensor = np.zeros((layout.count(16, 24), layout.values), np.uint8)
    layout.split(image, layout.blocks(tensor))
    assert layout.fits(16, 24)
    assert not layout.fits(16, 18)
    assert np.array_equal(layout.blocks(tensor)[0, 0], image[:, :4, :6])
    assert np.array_equal(tensor[1].reshape(3, 2, 4, 6)[:, 1], image[:, :4, 6:12])
    assert np.array_equal(tensor[2].reshape(3, 2, 4, 6)[:, 0], image[:, 4:8, :6])
