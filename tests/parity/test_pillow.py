"""The ``pillow`` profile against the installed Pillow's ``Image.resize``: every filter, bit for bit."""

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from images import png, scene
from pixprep.ops import FILTERS
from resize_cases import assert_equal, cases, compare, images, photo_pixels, resized

RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def original(pixels, size, filter_name):
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    return np.asarray(image.resize(size[::-1], RESAMPLING[filter_name])).reshape(*size, pixels.shape[2])


def test_there_are_enough_cases():
    assert len(images()) >= 40
    assert len({size for _, size in cases()}) >= 12
    assert set(RESAMPLING) == set(FILTERS["pillow", True])


@pytest.mark.parametrize("filter_name", RESAMPLING)
def test_every_value_equals_pillow(filter_name):
    assert_equal(
        (
            f"{pixels.shape} to {size}",
            resized(pixels, size, "pillow", filter_name, antialias=True),
            original(pixels, size, filter_name),
        )
        for pixels, size in cases()
    )


@pytest.mark.parametrize("filter_name", RESAMPLING)
def test_every_factor_equals_pillow(filter_name):
    row = np.random.default_rng(1).integers(0, 256, (1, 2000, 1), np.uint8)
    some = [(length, out) for out in (1, 2, 3, 7, 64) for length in range(out + 1, 500, 7)]
    some += [(length, out) for length in (1, 2, 3, 50) for out in range(length + 1, 500, 11)]
    for shape in ((1, -1, 1), (-1, 1, 1)):
        assert_equal(
            (
                f"{length} to {out}",
                resized(row[:, :length].reshape(shape), sides, "pillow", filter_name, antialias=True),
                original(row[:, :length].reshape(shape), sides, filter_name),
            )
            for length, out in some
            for sides in [(1, out) if shape[0] == 1 else (out, 1)]
        )


NEIGHBOURS = [
    ("nearest", "torchvision", "nearest"),
    ("nearest", "opencv", "nearest"),
    ("box", "opencv", "area"),
    ("bilinear", "pillow", "hamming"),
    ("hamming", "pillow", "bicubic"),
    ("bicubic", "pillow", "lanczos"),
    ("bicubic", "opencv", "bicubic"),
    ("lanczos", "pillow", "bicubic"),
]


@pytest.mark.parametrize("size", [(181, 203), (500, 700)])
@pytest.mark.parametrize(("filter_name", "like", "other"), NEIGHBOURS)
def test_a_neighbour_is_told_apart(filter_name, like, other, size):
    pixels = photo_pixels()
    wrong = resized(pixels, size, like, other, antialias=like != "opencv")
    values, differing, _, _ = compare([(like, wrong, original(pixels, size, filter_name))])
    assert differing > values * 0.05


@pytest.mark.parametrize("filter_name", ["bilinear", "bicubic", "lanczos"])
def test_torchvision_is_told_apart_by_a_few_values(filter_name):
    pixels = photo_pixels()
    size = (224, 336)
    wrong = resized(pixels, size, "torchvision", filter_name, antialias=True)
    values, differing, largest, _ = compare([(size, wrong, original(pixels, size, filter_name))])
    assert largest == 1
    assert 0 < differing < values * 0.01


@pytest.mark.parametrize("filter_name", RESAMPLING)
@pytest.mark.parametrize("size", [(427, 640), (90, 61), (40, 250), (33, 47), (700, 40)])
def test_the_engine_gives_what_pillow_gives(filter_name, size):
    pixels = scene(*size)
    short, crop = 64, 49
    pipeline = pp.Pipeline(
        [
            pp.decode(),
            pp.crop(top=3, left=1, height=size[0] - 5, width=size[1] - 4),
            pp.flip(),
            pp.resize(short, filter=filter_name),
            pp.center_crop(crop),
            pp.flip("vertical"),
            pp.tensor(dtype="uint8", layout="hwc"),
        ]
    )
    with pp.Engine(pipeline) as engine:
        (tensor,) = engine.run([png(pixels)])
    part = np.ascontiguousarray(pixels[3 : size[0] - 2, 1 : size[1] - 3][:, ::-1])
    sides = tuple(
        short if side == min(part.shape[:2]) else short * side // min(part.shape[:2]) for side in part.shape[:2]
    )
    whole = original(part, sides, filter_name)
    top, left = (round((side - crop) / 2) for side in sides)
    assert_equal([(size, tensor, whole[top : top + crop, left : left + crop][::-1])])


@pytest.mark.parametrize("filter_name", RESAMPLING)
def test_a_region_is_a_part_of_the_whole(filter_name):
    pixels = scene(131, 97)
    part = resized(pixels, (20, 80), "pillow", filter_name, antialias=True, region=(7, 11, 15, 80))
    assert_equal([(filter_name, part, original(pixels, (20, 80), filter_name)[7:15, 11:80])])
