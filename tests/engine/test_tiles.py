"""Tests of tiles: the grid that each criterion chooses, the pixels of each tile, and the thumbnail."""

from itertools import product
from typing import get_args

import numpy as np
import pytest

import pixprep as pp
from pixprep.errors import ImageError, PipelineError
from pixprep.plan.side_rules import Rule
from support.asking import ask
from support.compare import assert_close
from support.images import noise, png, scene

NORMALIZE = pp.normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
TILE = 16
CHOICES = ("aspect_ratio", "scale", "resolution", "coverage", "canvas")
RULES = {
    "shrink": {"size": 60, "width": 50, "multiple": 8},
    "contain": {"size": 60, "width": 50},
    "longer": {"size": 70, "min_size": 30},
    "longer_even": {"size": 70, "min_size": 30},
    "longer_half_up": {"size": 70},
    "bounded": {"size": 70, "min_size": 30},
    "multiple": {"multiple": 6},
    "shorter_up": {"size": 30, "multiple": 8},
    "shorter_even": {"size": 30, "multiple": 8},
    "shorter_down": {"size": 48, "multiple": 8},
    "detr": {"size": 48, "max_size": 90, "multiple": 8},
    "half": {"size": 40, "max_size": 120, "multiple": 8},
    "idefics3": {"size": 70},
    "up": {"multiple": 24},
    "thumbnail": {"size": 60, "width": 50},
    "contain_down": {"size": 60, "width": 50},
    "pillow_contain": {"size": 60, "width": 50},
    "pillow_thumbnail": {"size": 60, "width": 50},
    "keep": {"size": 1000},
    "square": {"size": 70},
    "longer_down": {"size": 70},
    "text_max": {"size": 70, "max_size": 200, "multiple": 8},
    "text_min": {"size": 70, "max_size": 90, "multiple": 8},
    "text_long": {"size": 70, "max_size": 64, "multiple": 8},
    "nearer": {"size": 64, "width": 80, "multiple": 8},
    "nearer_32": {"size": 64, "width": 80},
    "shorter_half_up": {"size": 30, "max_size": 90},
    "text_line": {"size": 32, "min_size": 32, "max_size": 120, "multiple": 4},
    "thumbnail_gap": {"size": 60, "width": 50},
    "idefics3_capped": {"size": 100, "multiple": 24, "max_tiles": 5},
}
"""Fields of each formula of ``resize_by_rule``."""
SIZES = [*product((1, 7, 16, 40, 100, 331), (1, 9, 16, 50, 160, 640))]


def cropped_tiles(image):
    """Return the tiles of an image (channels, height, width), which are cropped one by one."""
    _, height, width = image.shape
    return [image[:, y : y + TILE, x : x + TILE] for y in range(0, height, TILE) for x in range(0, width, TILE)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("place", ["first", "last", None])
@pytest.mark.parametrize("fit", ["stretch", "center", "top_left"])
def test_each_tile_is_a_part_of_the_resized_image_and_the_thumbnail_is_the_whole_photo(fit, place, dtype):
    resize = pp.resize_to_tiles(tile_size=TILE, max_tiles=6, choose="resolution", fit=fit, filter="bicubic")
    arithmetic = [] if dtype == "uint8" else [NORMALIZE]
    shared = [pp.decode(name="photo"), resize, *arithmetic]
    tensor = pp.tensor(dtype=dtype, name="whole", max_size=4096)
    count = pp.tile_count(TILE, thumbnail=place, name="count")
    found = ask(
        [*shared, tensor, pp.tiles(TILE, thumbnail=place, dtype=dtype, name="tiles"), count], png(scene(50, 90))
    )
    small = [pp.decode(), pp.resize(height=TILE, width=TILE, filter="bicubic"), *arithmetic, pp.tensor(dtype=dtype)]
    thumbnail = ask(small, png(scene(50, 90)))["tensor"]
    expected = cropped_tiles(found["whole"])
    assert len(expected) > 1
    if place is not None:
        expected.insert(0 if place == "first" else len(expected), thumbnail)
    assert found["tiles"].dtype == np.dtype(dtype)
    assert found["count"].tolist() == [len(expected)]
    assert_close(found["tiles"], np.stack(expected))


@pytest.mark.parametrize("before", [[], [pp.pad(square=True)]], ids=["", "a black pad"])
def test_padding_is_black_and_centred_and_the_image_keeps_its_aspect_ratio(before):
    resize = pp.resize_to_tiles(tile_size=TILE, grids=[(1, 2)], choose="resolution", fit="center")
    ops = [pp.decode(), *before, resize, pp.tensor(dtype="uint8", layout="hwc")]
    whole = ask(ops, png(noise(60, 60) // 2 + 100))["tensor"]
    assert whole.shape == (16, 32, 3)
    assert not whole[:, :8].any()
    assert not whole[:, 24:].any()
    assert whole[:, 8:24].all()


@pytest.mark.parametrize("always", [False, True])
def test_an_image_of_one_tile_has_a_thumbnail_only_if_requested(always):
    resize = pp.resize_to_tiles(tile_size=TILE, max_tiles=4)
    tiles = pp.tiles(TILE, thumbnail="last", thumbnail_of_one=always, dtype="uint8", name="tiles")
    found = ask([pp.decode(), resize, tiles], png(noise(9, 9)))["tiles"]
    assert len(found) == 1 + always
    assert np.array_equal(found[0], found[-1])


def test_a_thumbnail_of_the_tiles_is_a_second_resize_of_the_tiled_image():
    resize = pp.resize_to_tiles(tile_size=TILE, max_tiles=6, filter="lanczos")
    outputs = [
        pp.tensor(dtype="uint8", name="whole", layout="hwc", max_size=4096),
        pp.tiles(TILE, thumbnail="last", thumbnail_of="tiles", dtype="uint8", name="tiles"),
    ]
    found = ask([pp.decode(), resize, *outputs], png(scene(50, 90)))
    again = [pp.decode(), pp.resize(height=TILE, width=TILE, filter="lanczos"), pp.tensor(dtype="uint8")]
    assert np.array_equal(found["tiles"][-1], ask(again, png(found["whole"]))["tensor"])


def test_steps_on_the_photo_change_its_thumbnail_too():
    """A reduced decode and the EXIF orientation affect both the tiles and the thumbnail."""
    ops = [pp.crop(5, 9, 40, 80), pp.flip(), pp.resize_to_tiles(tile_size=TILE, max_tiles=4), NORMALIZE]
    found = ask([pp.decode(), *ops, pp.tiles(TILE, thumbnail="first")], png(scene(50, 90)))["tiles"]
    small = [*ops[:2], pp.resize(height=TILE, width=TILE), NORMALIZE, pp.tensor()]
    assert_close(found[0], ask([pp.decode(), *small], png(scene(50, 90)))["tensor"])


@pytest.mark.parametrize("choose", CHOICES)
def test_a_grid_has_a_permitted_number_of_tiles_for_an_image_of_any_size(choose):
    sizer, counts = pp.resize_to_tiles(tile_size=TILE, max_tiles=7, choose=choose).sizer, set()
    for height, width in SIZES:
        try:
            rows, columns = sizer.grid(height, width)
        except ImageError:  # too long and narrow
            continue
        counts.add((rows, columns))
        assert 1 <= rows * columns <= 7
        assert sizer.canvas(height, width) == (rows * TILE, columns * TILE)
    assert len(counts) > 5


def test_criteria_choose_different_grids():
    """As a negative control, ``scale`` and ``resolution`` choose the same grid if all grids of up to 7 tiles are
    permitted.
    """
    sizes = [(height, width) for height in range(10, 200, 17) for width in range(10, 200, 19)]
    sizers = {choose: pp.resize_to_tiles(tile_size=TILE, max_tiles=7, choose=choose).sizer for choose in CHOICES}
    chosen = {choose: [sizer.grid(*size) for size in sizes] for choose, sizer in sizers.items()}
    assert len({tuple(grids) for grids in chosen.values()}) == len(CHOICES) - 1
    # the second grid has less padding, and the first reduces the image less
    grids = {"tile_size": TILE, "grids": ((1, 20), (2, 9))}
    assert pp.resize_to_tiles(**grids, choose="scale").sizer.grid(14, 100) == (1, 20)
    assert pp.resize_to_tiles(**grids, choose="resolution").sizer.grid(14, 100) == (2, 9)


REAL = pp.resize(height=32, width=32, like="tensorflow")
RESIZES = {
    "roi": (pp.resize(height=48, width=32, like="dali", roi=(5, 5, 30, 40)), {}),
    "multiple": (pp.resize(size=50, multiple=32, max_size=128, rounding="half_even"), {}),
    "input": (pp.resize(size="size", max_size=128), {"size": [40]}),
}


@pytest.mark.parametrize("case", RESIZES)
def test_a_thumbnail_of_the_tiles_shows_them_after_any_resize(case):
    resize, inputs = RESIZES[case]
    pad = [] if case == "roi" else [pp.pad(multiple=TILE)]
    outputs = [
        pp.tensor(dtype="uint8", name="whole", layout="hwc", max_size=4096),
        pp.tiles(TILE, thumbnail="last", thumbnail_of="tiles", dtype="uint8", name="tiles"),
    ]
    found = ask([pp.decode(), resize, *pad, *outputs], png(scene(50, 90)), **inputs)
    again = [pp.decode(), pp.resize(height=TILE, width=TILE, like=resize.like), pp.tensor(dtype="uint8")]
    assert np.array_equal(found["tiles"][-1], ask(again, png(found["whole"]))["tensor"])


def test_a_reduced_decode_keeps_enough_pixels_for_the_thumbnail():
    """A padded image may be smaller than its thumbnail, which is stretched to a square."""
    resize = pp.resize_to_tiles(tile_size=64, grids=((1, 1),), choose="resolution", fit="center")
    tiles = pp.tiles(64, thumbnail="last", thumbnail_of_one=True)
    plan = pp.Pipeline([pp.decode(reduced=True), resize, tiles]).plan
    assert plan.place(200, 3200).denominator == 1
    assert plan.place(3200, 3200).denominator > 1


def test_the_number_of_tiles_is_at_most_the_declared_maximum():
    big = [pp.decode(), pp.resize(height=160, width=320), pp.tile_count(TILE, name="count"), pp.tiles(TILE)]
    pipeline = pp.Pipeline(big)
    assert pipeline.outputs["count"].spec.high == 200
    assert ask(big, png(scene(50, 90)))["count"] == 200


def test_fields_of_a_rule_are_those_that_it_uses():
    assert {*RULES} == {*get_args(Rule)}
    for rule, fields in RULES.items():
        pp.resize_by_rule(rule=rule, **fields)
        for name, value in {"width": 9, "multiple": 3, "min_size": 4, "max_size": 99}.items():
            if name not in fields:
                with pytest.raises(PipelineError, match="has no effect"):
                    pp.resize_by_rule(rule=rule, **fields, **{name: value})
        if "size" in fields:
            with pytest.raises(PipelineError, match='"size" is required with "rule"'):
                pp.resize_by_rule(rule=rule, **{name: fields[name] for name in fields if name != "size"})


@pytest.mark.parametrize("rule", RULES)
def test_a_size_is_within_the_bounds_that_the_pipeline_declares(rule):
    op, compared = pp.resize_by_rule(rule=rule, **RULES[rule]), 0
    spec = pp.Pipeline([pp.decode(), op, pp.tensor(max_size=4096)]).outputs["tensor"].spec
    for height, width in SIZES:
        try:
            rows, columns = op.sizer.size(height, width)
        except ImageError:  # too long and narrow
            continue
        compared += 1
        assert min(rows, columns) >= 1
        if max(rows, columns) <= 4096:
            assert rows <= spec.largest[1]
            assert columns <= spec.largest[2]
        if "multiple" in RULES[rule] and rule != "idefics3_capped":  # here it is the size of a tile
            multiple = RULES[rule]["multiple"]
            assert rows % multiple == columns % multiple == 0
    assert compared > 5


def test_an_image_is_resized_twice_only_if_again_is_set():
    first = pp.resize(height=40, width=60)
    second = pp.resize_by_rule(rule="up", multiple=16, again=True)
    tensor = pp.tensor(dtype="uint8", layout="hwc", max_size=99)
    found = ask([pp.decode(), first, second, tensor], png(scene(50, 90)))["tensor"]
    once = ask([pp.decode(), first, pp.tensor(dtype="uint8", layout="hwc")], png(scene(50, 90)))["tensor"]
    twice = ask([pp.decode(), pp.resize(height=48, width=64), tensor], png(once))["tensor"]
    assert np.array_equal(found, twice)


NARROW = {
    "naflex": pp.resize_to_patches(patch_size=7, max_patches=5000),
    "gemma": pp.resize_to_patches(patch_size=7, max_patches=5000, rule="gemma"),
    "muse": pp.resize_to_patches(patch_size=7, max_patches=45000, merge_size=3, rule="muse"),
    "pixels": pp.resize_to_pixels(multiple=28, min_pixels=90_000, max_pixels=90_855, max_ratio=16384),
}


@pytest.mark.parametrize("rule", NARROW)
def test_no_side_exceeds_the_limit_of_a_rule(rule):
    op, rejected = NARROW[rule], 0
    most = op.sizer.bounds.max_sides
    for size in product((1, 7, 100, 4095, 16000, 16384), repeat=2):
        try:
            sides = op.size_of(*size)
        except ImageError:
            rejected += 1
            continue
        assert sides[0] <= most[0]
        assert sides[1] <= most[1]
    assert 0 < rejected < 36


def test_positions_and_tokens_are_those_of_the_patches():
    resize = pp.resize_to_patches(rule="gemma", patch_size=4, merge_size=2, max_patches=40)
    outputs = [
        pp.patches(4, max_patches=40, layout="hwc", dtype="uint8", name="patches"),
        pp.patch_positions(4, max_patches=40, name="positions"),
        pp.token_count(4, 2, max_patches=40, name="tokens"),
        pp.patch_grid(4, name="grid"),
    ]
    found = ask([pp.decode(), resize, *outputs], png(scene(30, 70)))
    rows, columns = found["grid"]
    count = rows * columns
    assert found["tokens"].tolist() == [count // 4]
    assert found["positions"][:count].tolist() == [[x, y] for y in range(rows) for x in range(columns)]
    assert (found["positions"][count:] == -1).all()
    assert 4 < count < 40


def test_a_fixed_number_of_tiles_is_filled_with_zeros_and_the_grid_has_a_number():
    grids = ((1, 1), (1, 2), (2, 1), (2, 2))
    resize = pp.resize_to_tiles(tile_size=TILE, grids=grids, choose="scale", fit="top_left")
    outputs = [
        pp.tensor(name="whole", max_size=4096),
        pp.tiles(TILE, max_tiles=5, name="tiles"),
        pp.tile_grid_id(name="id"),
        pp.patch_mask(TILE, max_patches=5, dtype="int64", name="mask"),
    ]
    pipeline = pp.Pipeline([pp.decode(), resize, NORMALIZE, *outputs])
    assert pipeline.outputs["tiles"].spec.shape == (5, 3, TILE, TILE)
    photos = [png(scene(20, 60)), png(scene(90, 95)), png(scene(9, 9))]
    with pp.Engine(pipeline, threads=1) as engine:
        batch = engine.run_batch(photos)
    counts = [len(cropped_tiles(whole)) for whole in batch.outputs["whole"]]
    assert counts == [2, 4, 1]
    assert batch.outputs["id"].tolist() == [[2], [4], [1]]
    assert batch.outputs["mask"].tolist() == [[1] * count + [0] * (5 - count) for count in counts]
    for tiles, whole, count in zip(batch.outputs["tiles"], batch.outputs["whole"], counts, strict=True):
        assert_close(tiles[:count], np.stack(cropped_tiles(whole)))
        assert not tiles[count:].any()


def test_a_mask_of_tiles_has_a_one_for_each_pixel_of_each_tile_and_of_the_thumbnail():
    resize, place = pp.resize_to_tiles(tile_size=TILE, max_tiles=4), {"thumbnail": "last"}
    outputs = [pp.tiles(TILE, **place, name="tiles"), pp.tile_mask(TILE, **place, dtype="bool", name="mask")]
    with pp.Engine(pp.Pipeline([pp.decode(), resize, NORMALIZE, *outputs]), threads=1) as engine:
        batch = engine.run_batch([png(scene(20, 60)), png(scene(9, 9)), b"no image"])
    tiles, masks = batch.outputs["tiles"], batch.outputs["mask"]
    assert [len(each) for each in tiles] == [4, 1, 0]
    for each, mask in zip(tiles, masks, strict=True):
        assert mask.dtype == bool
        assert mask.shape == (len(each), TILE, TILE)
        assert mask.all()
    assert batch.packed("mask").shape == (5, TILE, TILE)


def cubic(length, size):
    """Return the weights of a cubic interpolation (a = -0.75) without antialiasing, as a matrix (size, length)."""
    weights = np.zeros((size, length))
    for row in range(size):
        at = (row + 0.5) * length / size - 0.5
        for position in range(int(np.floor(at)) - 1, int(np.floor(at)) + 3):
            x = abs(at - position)
            near, far = (1.25 * x - 2.25) * x * x + 1, -0.75 * (((x - 5) * x + 8) * x - 4)
            weights[row, min(max(position, 0), length - 1)] += near if x < 1 else far
    return weights


def test_a_thumbnail_of_the_values_is_interpolated_from_the_finished_tiles():
    side = 66
    resize = pp.resize_to_tiles(tile_size=side, max_tiles=6, choose="unscaled", fit="inside", fill=255)
    fields = {"thumbnail": "first", "thumbnail_of": "values", "thumbnail_filter": "bicubic", "thumbnail_of_one": True}
    outputs = [pp.tiles(side, **fields, name="tiles"), pp.tensor(max_size=4096, name="whole")]
    plan = pp.Pipeline([pp.decode(), resize, NORMALIZE, *outputs]).plan
    assert plan.tensors["tiles"].unsupported_by_cuda == ("thumbnail of values",)
    for size in ((150, 100), (60, 300), (40, 66)):
        found = ask([pp.decode(color="bgr"), resize, NORMALIZE, *outputs], png(scene(*size)))
        whole, thumbnail = found["whole"], found["tiles"][0]
        rows, columns = (cubic(length, side) for length in whole.shape[1:])
        np.testing.assert_allclose(thumbnail, rows @ whole @ columns.T, atol=2e-5)
        assert_close(found["tiles"][1:], np.stack([*map(np.array, blocks(whole, side))]))


def blocks(whole, side):
    """Return the square blocks of a tensor (channels, height, width) in row-major order."""
    rows, columns = (length // side for length in whole.shape[1:])
    return [whole[:, y * side : (y + 1) * side, x * side : (x + 1) * side] for y in range(rows) for x in range(columns)]


def test_a_mask_of_patches_is_0_for_patches_that_contain_only_padding():
    side, patch = 32, 8
    place = {"thumbnail": "first", "thumbnail_of_one": True}
    resize = pp.resize_to_tiles(tile_size=side, max_tiles=6, choose="unscaled", fit="inside", fill=255)
    outputs = [
        pp.tile_mask(side, patch_size=patch, **place, dtype="float32", name="mask"),
        pp.tile_token_count(side, patch, name="tokens"),
        pp.tiles(side, name="tiles", dtype="uint8"),
        pp.tensor(max_size=4096, dtype="uint8", name="whole"),
    ]
    for size, is_padded in (((70, 61), True), ((30, 70), True), ((31, 33), True), ((64, 32), False)):
        found = ask([pp.decode(), resize, *outputs], png(noise(*size) // 2))
        assert (found["mask"][0] == 1).all()
        cells = np.stack([np.stack(blocks(tile, patch)) for tile in found["tiles"]]) != 255
        expected = cells.any(axis=(2, 3, 4)).reshape(found["mask"][1:].shape)
        assert np.array_equal(found["mask"][1:], expected)
        assert is_padded == (not expected.all())
        tokens, columns = expected[:, ::2, ::2], found["whole"].shape[2] // side
        assert found["tokens"] == 273 + tokens.sum() + tokens[::columns, :, 0].sum()


def test_a_small_image_is_enlarged_at_most_to_one_tile_at_the_top_left():
    resize = pp.resize_to_tiles(tile_size=TILE, grids=[(2, 2)], choose="scale", fit="top_left")
    whole = ask([pp.decode(), resize, pp.tensor(dtype="uint8", layout="hwc")], png(noise(4, 8) // 2 + 100))["tensor"]
    assert whole.shape == (32, 32, 3)
    assert whole[:8, :16].all()
    assert not whole[8:].any()
    assert not whole[:, 16:].any()
