"""Tests that copies, lookups, elastic fields and filters in C are the same in every layout and at each x86-64 level."""

import ctypes
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance

import pixprep as pp
from pixprep.engine.kernels import colours, elastic, levels, native, resize
from pixprep.pipeline.ops.filters import weights
from pixprep.plan.steps.levels import Filter
from pixprep.plan.steps.warps import Elastic, Warp
from support.images import noise, scene

SIZES = [(1, 1), (3, 2), (2, 5), (4, 16), (3, 17), (2, 33), (5, 64), (3, 101)]


@pytest.fixture(params=native.levels())
def use_level(request, monkeypatch):
    """Return a function that replaces the kernels of this processor by those that are compiled for one x86-64 level."""
    library = native.library()
    if "/" not in str(os.environ.get(native.SETTING)):  # a library given by path is tested alone
        library = ctypes.CDLL(str(Path(native.__file__).with_name(f"pixprep-{request.param}.so")))
    return lambda: [monkeypatch.setattr(module, "library", lambda: library) for module in (resize, elastic, colours)]


def layouts(height, width, planes):
    """Yield (name, array) for each memory layout. The arrays are uint8 (height, width, planes), surrounded by other
    bytes.
    """
    yield "pixels", np.full((height + 2, width, planes), 99, np.uint8)[1:-1]
    yield "planes", np.full((planes + 2, height, width), 99, np.uint8)[1:-1].transpose(1, 2, 0)
    yield "window", np.full((height + 2, width + 3, planes), 99, np.uint8)[1:-1, 1:-2]
    if planes == 3:
        yield "words", np.full((height + 2, width, 4), 99, np.uint8)[1:-1, :, :3]
        yield "the end of words", np.full((height, width, 4), 99, np.uint8)[:, :, 1:]


@pytest.mark.parametrize("planes", [1, 3, 4])
def test_bytes_are_copied_and_looked_up_between_all_layouts_and_flips(planes, use_level):
    use_level()
    one = np.random.default_rng(2).permutation(256).astype(np.uint8)
    tables = [None, np.tile(one, (planes, 1)), np.stack([np.roll(one, 5 * plane) for plane in range(planes)])]
    levels_ = np.arange(256, dtype=np.uint8)
    tables += [np.tile(each, (planes, 1)) for each in (levels_ & 0xC0, 255 - levels_, levels_ ^ (levels_ == 77))]
    for number, (height, width) in enumerate(SIZES):
        for name, image in layouts(height, width, planes):
            image[...] = np.random.default_rng(number).integers(0, 256, image.shape)
            for direction in np.ndindex(2, 2, 2):
                turn = tuple(slice(None, None, -1 if each else 1) for each in direction)
                for table in tables:
                    view = image[turn]
                    expected = view if table is None else np.stack([t[view[..., p]] for p, t in enumerate(table)], 2)
                    for target, out in layouts(height, width, planes):
                        if target == "the end of words":
                            continue  # images are never written in this layout
                        for mirror in (1, -1):
                            resize.look_up(view, table, out[:, ::mirror].transpose(2, 0, 1))
                            what = name, target, (height, width), direction, mirror
                            assert np.array_equal(out[:, ::mirror], expected), what
                            assert_untouched(target, out.base)


def assert_untouched(target, around):
    """Assert that the bytes around an image are still 99. The unused bytes of four-byte pixels may have changed."""
    marks = np.array(around)
    inner = {
        "pixels": np.s_[1:-1],
        "planes": np.s_[1:-1],
        "window": np.s_[1:-1, 1:-2],
        "words": np.s_[1:-1],
    }[target]
    marks[inner] = 99
    assert (marks == 99).all(), target


@pytest.mark.parametrize("sigma", [(5.0, 5.0), (1.0, 0.3), (0.1, 9.0), (0.0, 0.0), (2.0, 6.5)], ids=str)
def test_elastic_fields_and_their_windows_are_the_same_at_each_level(sigma, use_level):
    sizes = [(60, 81, 5), (59, 66, 2**64 - 1), (75, 100, 77 << 33)]
    fields = [elastic.displacement(Elastic((50.0, -31.7), sigma, seed), *size) for *size, seed in sizes]
    use_level()
    for (height, width, seed), found in zip(sizes, fields, strict=True):
        field = Elastic((50.0, -31.7), sigma, seed)
        assert np.array_equal(elastic.displacement(field, height, width), found)
        across, down = elastic.identity(width), elastic.identity(height)[:, None]
        expected = np.stack([across + found[0], down + found[1]])
        for top, left, rows, columns in ((0, 0, height, width), (7, 5, 20, 33), (height - 3, width - 18, 3, 18)):
            step = Warp(
                (1, 0, 0, 0, 1, 0), (height, width), top, left, rows, columns, None, "nearest", "torchvision", field
            )
            places = np.zeros((2, rows * columns), np.float32)
            elastic.sampling_positions(step, places)
            window = expected[:, top : top + rows, left : left + columns]
            assert np.array_equal(places.reshape(2, rows, columns), window)


@pytest.mark.parametrize(
    "step",
    [
        *(Filter("sharpness", like, factor) for like in ("pillow", "torchvision") for factor in (0.0, 0.3, 1.9, 4.0)),
        Filter("blur", "torchvision", rows=weights(7, 2.0), columns=weights(5, 1.0)),
        Filter("blur", "torchvision", rows=(1.0,), columns=weights(3, 0.4)),
        Filter("blur", "torchvision", rows=weights(3, 0.4), columns=(1.0,)),
        Filter("blur", "torchvision", rows=(0.5, 0.0, 0.5), columns=(1.0,)),  # halves
        Filter("blur", "opencv", rows=weights(7, 2.0), columns=weights(5, 1.0)),
        Filter("blur", "opencv", rows=weights(3, 0.4), columns=weights(41, 9.0)),  # the edge is reflected repeatedly
    ],
    ids=str,
)
def test_filters_are_the_same_in_every_layout_and_at_each_level(step, use_level):
    found = {}
    for turn in range(2):
        for size in ((4, 3, 1), (5, 16, 1), (9, 23, 3), (21, 40, 3)):
            for name, image in layouts(*size):
                image[...] = noise(*size, seed=size[0])
                for view in (image, image[::-1][::-1], image[:, ::-1].copy()[:, ::-1]):
                    expected = found.setdefault(size, colours.filtered(step, np.ascontiguousarray(view)))
                    assert np.array_equal(colours.filtered(step, view), expected), name
                assert (colours.filtered(step, image[::-1])[::-1] == expected).all()
        if turn == 0:
            use_level()


@pytest.mark.parametrize("size", [(1, 9), (2, 40), (9, 23), (33, 70)])
def test_filters_equal_pillow_and_opencv(size):
    from engine.opencv4 import cv2  # noqa: PLC0415 - this import skips the test without OpenCV 4

    image = noise(*size)
    for factor in (0.0, 0.3, 1.9, 4.0):
        expected = ImageEnhance.Sharpness(Image.fromarray(image)).enhance(factor)
        assert np.array_equal(colours.filtered(Filter("sharpness", "pillow", factor), image), np.asarray(expected))
    for rows, columns in ((weights(7, 2.0), weights(5, 1.0)), (weights(3, 0.4), weights(41, 9.0))):
        step = Filter("blur", "opencv", rows=rows, columns=columns)
        expected = cv2.sepFilter2D(image, -1, np.array(columns, np.float32), np.array(rows, np.float32))
        assert np.array_equal(colours.filtered(step, image), expected)


CURVES = pp.posterize(3), pp.brightness(1.4), pp.solarize(99), pp.invert(), pp.gamma(0.7)
GEOMETRY = {
    "an array": [],
    "a mirror": [pp.flip("horizontal"), pp.flip("vertical")],
    "a margin": [pp.pad(height=53, width=61, fill=90)],
    "a resize": [pp.resize(30)],
    "a resize by area": [pp.resize(height=21, width=33, filter="area", like="opencv")],
}


@pytest.mark.parametrize("tensor", ["uint8", "float32"])
@pytest.mark.parametrize("geometry", GEOMETRY)
def test_final_lookup_tables_are_combined_with_the_table_of_values(geometry, tensor, monkeypatch):
    """The result is the same as with the tables applied one by one, although no step runs on the image."""
    image = scene(40, 50)
    for color in (image, image[:, :, :1]):
        ops = GEOMETRY[geometry]
        expected = pp.apply(ops, color)
        for curve in CURVES:
            expected = pp.apply([curve], expected)
        with monkeypatch.context() as patch:
            patch.setattr(levels, "apply_steps", lambda *_: pytest.fail("a step on levels was done"))
            made = pp.apply([*ops, *CURVES, pp.tensor(dtype=tensor, layout="hwc")], color)
        assert made.dtype == tensor
        assert np.array_equal(made, expected)
        mixed = pp.apply([*ops, pp.saturation(0.5), *CURVES], color)
        assert np.array_equal(mixed, pp.apply([*CURVES], pp.apply([*ops, pp.saturation(0.5)], color)))
