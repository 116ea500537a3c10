"""Tests that image-like targets are transformed with their image, for every dtype, size and format."""

import random
import zlib
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from support import forged
from support.images import png

HEIGHT, WIDTH = 60, 80
Y, X = np.mgrid[:HEIGHT, :WIDTH] + 0.5
PLACES = np.stack([X, Y], -1).astype(np.float32)
PHOTO = np.stack([X * 3, Y * 4, X + Y], -1).astype(np.uint8)
"""Photo whose red and green values are the position of each pixel."""


def batch_of(target, *ops, field="target", seed=0, photo=PHOTO, **fields):
    pipeline = pp.Pipeline([pp.decode(), *ops, pp.target(field=field, **fields), pp.tensor("uint8", max_size=200)])
    sample = {"image": png(photo), field: target}
    with pp.Loader([sample] * 4, pipeline.for_training(), batch_size=4, seed=seed, threads=1) as loader:
        return next(iter(loader))


MOVES = {
    "crop": [pp.random_crop(40)],
    "flip": [pp.random_flip(p=0.5), pp.random_flip("vertical", p=0.5)],
    "rotate": [pp.random_rotate(40, fill=0)],
    "resize": [pp.random_resized_crop(48, scale=(0.5, 1.0))],
    "affine": [pp.random_affine(20, (0.1, 0.1), (0.8, 1.2), filter="bilinear"), pp.center_crop(50)],
    "perspective": [pp.random_perspective(0.3, 1.0, filter="bilinear")],
    "grid": [pp.grid_distortion(3, 0.2), pp.random_crop(50)],
    "padding": [pp.pad(90, 100), pp.random_flip(p=0.5), pp.resize(70)],
    "choice": [pp.random_choice([[pp.rotate(90)], [pp.flip()]]), pp.center_crop(40)],
}


@pytest.mark.parametrize("filter_", ["nearest", "bilinear"])
@pytest.mark.parametrize("name", MOVES)
def test_a_target_shows_the_position_that_the_photo_shows(name, filter_):
    batch = batch_of(PLACES, *MOVES[name], filter=filter_, ignore=-1)
    for whole, target in zip(batch["tensor"], batch["target"], strict=True):
        tensor = whole[:, : target.shape[1], : target.shape[2]].astype(float)
        is_inside = (target >= 0).all(0) & (tensor[2] > 0)
        inner = np.all([np.roll(is_inside, shift, axis) for axis in (0, 1) for shift in (-2, 0, 2)], 0)
        inner[:2] = inner[-2:] = inner[:, :2] = inner[:, -2:] = False
        assert inner.mean() > 0.2
        # photo values are truncated to 1/3 and 1/4 pixel; each nearest-neighbor interpolation moves an axis by up to a
        # pixel
        tolerance = 1.0 if filter_ == "bilinear" else 2.2
        assert abs(tensor[0] / 3 - target[0])[inner].max() < tolerance
        assert abs(tensor[1] / 4 - target[1])[inner].max() < tolerance


def test_pixels_outside_of_the_photo_have_the_ignored_value():
    for filter_ in ("nearest", "bilinear"):
        (target, *_) = batch_of(np.ones((HEIGHT, WIDTH), np.float32), pp.pad(80, 100), filter=filter_, ignore=-7)[
            "target"
        ]
        assert target.shape == (1, 80, 100)
        assert (target[0, 10:70, 10:90] == 1).all()
        assert (target == -7).sum() == 80 * 100 - HEIGHT * WIDTH


@pytest.mark.parametrize("ignore", [7.0, 0.5, -1, 300])
@pytest.mark.parametrize("op", [pp.pad(80, 100), pp.rotate(20, expand=True)], ids=["pad", "rotate"])
def test_the_ignored_value_of_a_target_of_bytes_may_be_any_number(op, ignore):
    target = batch_of(np.full((HEIGHT, WIDTH), 9, np.uint8), op, ignore=ignore)["target"][0]
    assert np.unique(target).tolist() == sorted([ignore, 9])


def test_flow_keeps_its_correspondence():
    """A pixel at p with the flow v corresponds to the point p + v in the second frame, before and after the ops."""
    rng, flow = random.Random(1), np.stack([5 - 0.1 * X, 0.05 * Y - 2], -1).astype(np.float32)
    for name in ("crop", "flip", "rotate", "resize", "affine", "perspective"):
        seed = rng.randint(0, 99)
        moved = batch_of(flow, *MOVES[name], kind="flow", filter="bilinear", ignore=-99, seed=seed)
        place = batch_of(
            np.stack([X, Y], -1).astype(np.float32), *MOVES[name], filter="bilinear", ignore=-99, seed=seed
        )
        for new, (x, y), placed in zip(moved["target"], place["target"], moved.placed, strict=True):
            is_inside = (x > 2) & (x < WIDTH - 2) & (y > 2) & (y < HEIGHT - 2)
            there = np.stack([x + 5 - 0.1 * x, y + 0.05 * y - 2, np.ones(x.shape)])
            u, v, w = np.tensordot(placed.placements["target"].matrix, there, 1)
            rows, columns = np.mgrid[: x.shape[0], : x.shape[1]] + 0.5
            assert abs(columns + new[0] - u / w)[is_inside].max() < 0.05, name
            assert abs(rows + new[1] - v / w)[is_inside].max() < 0.05, name


def test_normals_are_flipped_and_rotated_but_not_resized():
    normals = np.zeros((HEIGHT, WIDTH, 3), np.float32) + np.float32([0.6, 0, 0.8])
    for ops, expected in (
        ([pp.flip()], (-0.6, 0, 0.8)),
        ([pp.flip("vertical")], (0.6, 0, 0.8)),
        ([pp.rotate(90, expand=True)], (0, -0.6, 0.8)),
        ([pp.resize(height=30, width=40)], (0.6, 0, 0.8)),
    ):
        target = batch_of(normals, *ops, kind="normals")["target"][0]
        np.testing.assert_allclose(target[:, 10, 10], expected, atol=1e-6)


def test_a_larger_target_has_the_same_crop_and_flips():
    large = np.random.default_rng(0).integers(0, 256, (4 * HEIGHT, 4 * WIDTH, 3), np.uint8)
    small = np.ascontiguousarray(large[1::4, 1::4])
    ops = [pp.random_crop(20), pp.random_flip(p=0.5)]
    batch = batch_of(png(large), *ops, field="high", dtype="uint8", zoom=4, photo=small)
    assert batch["target"].shape == (4, 3, 80, 80)
    for tensor, target, draws in zip(batch["tensor"], batch["target"], batch.draws, strict=True):
        shown = target[:, 1::4, 1::4] if not draws["random_flip#0"]["flip"] else target[:, 1::4, 2::4]
        assert np.array_equal(tensor, shown)


def files():
    depth = (X * 700 + Y).astype(np.uint16)
    stack = np.stack([depth, depth // 2, depth // 3], -1)
    numpy, tiff, page = BytesIO(), BytesIO(), [Image.fromarray(np.ascontiguousarray(stack[:, :, i])) for i in range(3)]
    np.save(numpy, stack.astype(np.float32))
    page[0].save(tiff, "TIFF", save_all=True, append_images=page[1:])
    one = BytesIO()
    page[0].save(one, "PNG")
    return {
        "npy": (numpy.getvalue(), stack),
        "tiff": (tiff.getvalue(), stack),
        "png": (one.getvalue(), depth[:, :, None]),
    }


@pytest.mark.parametrize("kind", ["npy", "tiff", "png"])
def test_a_file_has_its_values_as_bytes_and_as_a_path(kind, tmp_path):
    encoded, expected = files()[kind]
    path = tmp_path / "target.file"
    path.write_bytes(encoded)
    for value in (encoded, path):
        target = batch_of(value, pp.flip(), dtype="float32" if kind == "npy" else "uint16")["target"][0]
        assert np.array_equal(target, np.moveaxis(expected[:, ::-1], 2, 0))


def matte(kind, tmp_path):
    """Return a photo, a file with its alpha, and fields of ``target``. Alpha equals the red channel of ``PHOTO``."""
    red = np.ascontiguousarray(PHOTO[:, :, 0])
    path = tmp_path / "photo.png"
    Image.fromarray(np.dstack([PHOTO, red])).save(path)
    if kind == "own alpha":
        return path, path, {"kind": "alpha"}
    target = tmp_path / "matte.png"
    image = {"gray": red, "16 bits": red.astype(np.uint16) * 257, "gray and alpha": np.dstack([red * 0, red])}[kind]
    Image.fromarray(image).save(target)
    return path, target, {"kind": "alpha"} if kind == "gray and alpha" else {}


@pytest.mark.parametrize("kind", ["gray", "16 bits", "gray and alpha", "own alpha"])
def test_an_alpha_matte_is_transformed_with_its_photo(kind, tmp_path):
    path, alpha, fields = matte(kind, tmp_path)
    ops = [pp.random_crop(40), pp.random_flip(), pp.random_rotate(30)]
    tail = [pp.target(field="alpha", dtype="uint16", **fields), pp.tensor("uint8", max_size=200)]
    pipeline = pp.Pipeline([pp.decode(), *ops, *tail]).for_training()
    with pp.Loader([{"image": path, "alpha": alpha}] * 4, pipeline, batch_size=4, threads=1) as loader:
        batch = next(iter(loader))
    assert batch["target"].shape[:2] == (4, 1)
    factor = 257 if kind == "16 bits" else 1
    assert np.array_equal(batch["target"][:, 0], batch["tensor"][:, 0].astype(int) * factor)
    assert len(np.unique(batch["target"])) > 30


@pytest.mark.parametrize("kind", ["gray and alpha", "own alpha"])
def test_a_chain_selects_the_alpha_channel_once(kind, tmp_path):
    path, alpha, fields = matte(kind, tmp_path)
    target = pp.target(field="alpha", dtype="uint8", **fields)
    pipeline = pp.Pipeline([pp.decode(), pp.center_crop(40), target, pp.tensor("uint8")]).for_training()
    chain = pp.Chain([[pp.random_flip(p=0.5)], pp.Mosaic(height=HEIGHT, p=1.0, fill=0), [pp.center_crop(HEIGHT)]])
    with pp.Loader([{"image": path, "alpha": alpha}] * 4, pipeline, batch_size=4, threads=1, mix=chain) as loader:
        batch = next(iter(loader))
    assert np.array_equal(batch["target"][:, 0], batch["tensor"][:, 0])
    assert len(np.unique(batch["target"])) > 30


def deep_png(values):
    """Return a PNG of big-endian samples with 16 bits, (height, width, channels)."""
    rows = b"".join(b"\0" + row.tobytes() for row in values.astype(">u2"))
    height, width, channels = values.shape
    color = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    return forged.png(height, width, forged.chunk(b"IDAT", zlib.compress(rows)), depth=16, color=color)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_every_bit_of_a_png_with_16_bits_is_kept(channels):
    values = np.random.default_rng(0).integers(0, 1 << 16, (HEIGHT, WIDTH, channels), np.uint16)
    target = batch_of(deep_png(values), pp.flip(), dtype="uint16")["target"][0]
    assert np.array_equal(target, np.moveaxis(values[:, ::-1], 2, 0))


def rotated_png():
    file, exif = BytesIO(), Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(PHOTO[:, :, 0]).save(file, "PNG", exif=exif.tobytes())
    return file.getvalue()


@pytest.mark.parametrize("op", [pp.target(), pp.mask()], ids=["target", "mask"])
def test_an_annotation_with_an_exif_orientation_is_rejected(op):
    pipeline = pp.Pipeline([pp.decode(), op, pp.tensor(max_size=200)]).for_training()
    sample = {"image": png(PHOTO), "target": rotated_png(), "mask": rotated_png()}
    with (
        pp.Loader([sample], pipeline, batch_size=1) as loader,
        pytest.raises(pp.ImageError, match="has an EXIF orientation, which is supported only for photos"),
    ):
        next(iter(loader))


OBJECTS = b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (60, 80)}"
BROKEN = {
    "another size": (
        np.zeros((5, 6), np.float32),
        "but its annotation was made for 5 x 6",
    ),
    "text": ("depth", "must contain numbers"),
    "too large": (
        np.full((HEIGHT, WIDTH), 300, np.int32),
        'do not fit into uint8: set "dtype" in target',
    ),
    "garbage": (b"garbage", "cannot be read as .npy, PNG or TIFF"),
    "cut npy": (files()["npy"][0][:2000], "ends before its last value"),
    "objects": (
        b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (60, 80)}".ljust(127) + b"\n",
        "must be numeric with 2 or 3 axes",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_faulty_target_is_an_error_of_its_sample(name):
    value, message = BROKEN[name]
    pipeline = pp.Pipeline([pp.decode(), pp.target(dtype="uint8"), pp.tensor(max_size=200)]).for_training()
    good = {"image": png(PHOTO), "target": np.zeros((HEIGHT, WIDTH), np.uint8)}
    with pp.Loader([good, good | {"target": value}], pipeline, batch_size=2, on_error="skip", max_errors=2) as loader:
        batch = next(iter(loader))
        assert batch["index"].tolist() == [0]
        assert message in str(loader.errors[0].error)


def test_targets_of_different_sizes_are_padded_with_the_ignored_value_like_their_tensors():
    pipeline = pp.Pipeline([pp.decode(), pp.target(ignore=-5, zoom=2), pp.tensor("uint8", max_size=200)]).for_training()
    samples = [
        {"image": png(PHOTO[:height]), "target": np.ones((2 * height, 2 * WIDTH), np.float32)} for height in (30, 60)
    ]
    with pp.Loader(samples, pipeline, batch_size=2) as loader:
        batch = next(iter(loader))
    padded = batch.padded("target")
    assert padded.shape == (2, 1, 2 * batch.padded("tensor").shape[2], 2 * WIDTH)
    assert (padded[0, 0, :60] == 1).all()
    assert (padded[0, 0, 60:] == -5).all()
