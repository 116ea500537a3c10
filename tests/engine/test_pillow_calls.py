"""Tests that pipelines reproduce calls to Pillow bit for bit, at random sizes."""

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

import pixprep as pp
from pixprep.errors import PipelineError
from support.asking import ask
from support.images import scene

LEVELS = pp.tensor(dtype="uint8", layout="hwc", max_size=256)
FILTERS = ("box", "bilinear", "hamming", "bicubic", "lanczos", "nearest")
COLOR = (114, 3, 9)


def run(image, *ops):
    file = io.BytesIO()
    image.save(file, "PNG")
    pipeline = pp.Pipeline([pp.decode(), *ops, pp.tensor(dtype="uint8", layout="hwc", max_size=4096)])
    with pp.Engine(pipeline, threads=1) as engine:
        batch = engine.run_batch([file.getvalue()])
    assert batch.errors == [None]
    return batch["tensor"][0]


def region(rng, image):
    """Return a region (left, top, right, bottom) with random edges, which are integers in about a third of cases."""
    left, right = sorted(rng.uniform(0, image.width, 2))
    top, bottom = sorted(rng.uniform(0, image.height, 2))
    edges = (left, top, max(right, left + 0.9), max(bottom, top + 0.9))
    edges = tuple(map(round, edges)) if rng.integers(3) == 0 else edges
    return tuple(float(min(edge, side)) for edge, side in zip(edges, image.size * 2, strict=True))


def resized(rng, image, size, name):
    left, top, right, bottom = box = region(rng, image)
    if right - left < 1e-3 or bottom - top < 1e-3:
        return None
    ops = [pp.resize(height=size[1], width=size[0], roi=(top, left, bottom, right), filter=name)]
    return ops, image.resize(size, Image.Resampling[name.upper()], box)


def fitted(rng, image, size, name):
    del rng
    ops = [pp.resize(height=size[1], width=size[0], mode="crop", filter=name)]
    return ops, ImageOps.fit(image, size, Image.Resampling[name.upper()])


def padded(rng, image, size, name):
    del rng
    contain = pp.resize_by_rule(rule="pillow_contain", size=size[1], width=size[0], filter=name)
    ops = [contain, pp.pad(height=size[1], width=size[0], fill=COLOR, rounding="half_even")]
    return ops, ImageOps.pad(image, size, Image.Resampling[name.upper()], color=COLOR)


def shrunk(rng, image, size, name):
    del rng
    small = image.copy()
    small.thumbnail(size, Image.Resampling[name.upper()], reducing_gap=None)
    return [pp.resize_by_rule(rule="pillow_thumbnail", size=size[1], width=size[0], filter=name)], small


def encoded(image, kind, index):
    """Encode an image. The chroma subsampling of a JPEG depends on ``index``, and every third JPEG is progressive."""
    file, fields = io.BytesIO(), {"compress_level": 1} if kind == "PNG" else {}
    if kind == "JPEG":
        fields = {"quality": 70, "progressive": index % 3 == 0, "subsampling": index % 3}
    image.save(file, kind, **fields)
    return file.getvalue()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("kind", "draft"), [("PNG", False), ("JPEG", False), ("JPEG", True)])
def test_a_thumbnail_with_a_reducing_gap_is_reproduced(kind, draft, seed):
    """Pillow calls ``reduce`` and ``draft`` before it resizes, which changes the pixels of nearly every thumbnail."""
    rng, changed, whole = np.random.default_rng(seed), 0, scene(300, 300).repeat(3, 0).repeat(4, 1)
    for index in range(10):
        height, width = map(int, rng.integers(20, (900, 1200)))
        size = tuple(map(int, rng.integers(2, 100, 2)))
        file, name = encoded(Image.fromarray(whole[:height, -width:]), kind, index), FILTERS[index % 5]
        image = Image.open(io.BytesIO(file))
        image = image if draft else image.convert("RGB")
        image.thumbnail(size, Image.Resampling[name.upper()])
        fields = {"rule": "pillow_thumbnail", "size": size[1], "width": size[0], "filter": name}
        op = pp.resize_by_rule(**fields, reducing_gap=2.0, draft=draft)
        found, plain = (
            ask([pp.decode(apply_exif_orientation=not draft), each, LEVELS], file)["tensor"]
            for each in (op, pp.resize_by_rule(**fields))
        )
        np.testing.assert_array_equal(found, np.asarray(image), f"{(height, width)} {size} {name}")
        changed += not np.array_equal(plain, found)
    assert changed >= 5


def test_the_two_resizes_of_surya_are_reproduced():
    lanczos = Image.Resampling.LANCZOS
    for index, (height, width) in enumerate([(700, 500), (90, 80), (300, 1300), (96, 1000)]):
        image = Image.fromarray(scene(height, width))
        file = encoded(image, "PNG", index)
        image.thumbnail((96, 96), lanczos)
        first = pp.resize_by_rule(rule="pillow_thumbnail", size=96, filter="lanczos", reducing_gap=2.0)
        second = pp.resize_by_rule(rule="square", size=96, filter="lanczos", again=True)
        found = ask([pp.decode(), first, second, LEVELS], file)["tensor"]
        np.testing.assert_array_equal(found, np.asarray(image.resize((96, 96), lanczos)))


@pytest.mark.parametrize("mode", ["RGBA", "P", "LA", "1", "CMYK"])
def test_an_image_that_pillow_resizes_in_a_different_mode_is_rejected(mode):
    file = encoded(Image.fromarray(scene(60, 50)).convert(mode), "TIFF" if mode == "CMYK" else "PNG", 0)
    op = pp.resize_by_rule(rule="pillow_thumbnail", size=16, reducing_gap=2.0, draft=True)
    with pp.Engine(pp.Pipeline([pp.decode(apply_exif_orientation=False), op, LEVELS])) as engine:
        (error,) = engine.run_batch([file]).errors
    assert error.reason == "UNSUPPORTED"
    assert f"Pillow's mode {mode}, which Pillow resizes" in error.detail


@pytest.mark.parametrize("call", [resized, fitted, padded, shrunk])
def test_calls_of_pillow_are_reproduced(call):
    rng, count = np.random.default_rng(3), 0
    for index in range(60):
        height, width = map(int, rng.integers(12, 200, 2))
        image = Image.fromarray(scene(height, width))
        size = tuple(map(int, rng.integers(8, 120, 2)))
        size = (size[0], height) if index % 10 == 0 else size  # an axis that keeps its length
        if (found := call(rng, image, size, FILTERS[index % 6])) is None:
            continue
        ops, expected = found
        np.testing.assert_array_equal(run(image, *ops), np.asarray(expected), f"{(height, width)} {size} {ops}")
        count += 1
    assert count > 55


def test_the_transform_maps_the_region_to_the_tensor():
    ops = [pp.decode(), pp.resize(height=20, width=30, mode="crop"), pp.transform(), pp.original_size(), pp.tensor()]
    file = io.BytesIO()
    Image.fromarray(scene(41, 100)).save(file, "PNG")
    with pp.Engine(pp.Pipeline(ops), threads=1) as engine:
        transform = engine.run_batch([file.getvalue()])["transform"][0]
    np.testing.assert_allclose(transform, [20 / 41, 20 / 41, 0, -19.25 * 20 / 41], rtol=1e-6)  # 61.5 of 100 columns


def test_a_region_of_pillow_must_be_inside_the_image():
    for roi in ((-1, 0, 5, 5), (5, 0, 1, 5), (0, 5, 5, 1)):
        with pytest.raises(PipelineError, match='"roi" with "like": "pillow" must be inside the image'):
            pp.Pipeline([pp.decode(), pp.resize(height=4, width=4, roi=roi), pp.tensor()])
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=4, width=4, roi=(0, 0, 41, 10)), pp.tensor()])
    file = io.BytesIO()
    Image.fromarray(scene(40, 60)).save(file, "PNG")
    with pp.Engine(pipeline, threads=1) as engine:
        (error,) = engine.run_batch([file.getvalue()]).errors
    assert "the region from 0, 0 to 41, 10 of 40 x 60 pixels is outside" in str(error)
