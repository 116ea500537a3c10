"""Tests that the pictures show the engine's pixels at the claimed positions, and always have the same width and a small
size.
"""

import numpy as np
import pytest
from PIL import ImageOps

import pixprep as pp
from pixprep.importers.verify.report import Certificate, Row, Tolerance
from pixprep.show.drawing import MARGIN, SIDE, WIDTH, fitted, fitted_size, levels_of, shown_as, to_png, with_grid
from pixprep.show.pictures import panels, photo_of, stages
from pixprep.show.preview import preview
from pixprep.show.worst import worst, worst_row
from support.images import jpeg, noise, photo, png, read, scene, with_exif

CROP, WRONG = (0xFF, 0x7A, 0x00), (0xB4, 0x23, 0x18)
SQUARE = pp.resize(height=64, width=64)


def picture_of(*ops, encoded=None, color="rgb", **options):
    """Return the picture of a pipeline, as uint8 (height, width, 3)."""
    pipeline = pp.Pipeline([pp.decode(color=color, **options), *ops])
    return np.asarray(stages(pipeline, encoded or photo()))


def panels_of(*ops, encoded=None, color="rgb", **options):
    pipeline = pp.Pipeline([pp.decode(color=color, **options), *ops])
    encoded = encoded or photo()
    found = preview(pipeline, encoded)
    return panels(pipeline, found, photo_of(pipeline, encoded, found), found.tensors[0])


def result(*ops, encoded=None, color="rgb"):
    """Return the engine's first output as (height, width, channels)."""
    (tensor,) = pp.Engine(pp.Pipeline([pp.decode(color=color), *ops]), threads=1).run([encoded or photo()])
    return tensor


def enlarged(pixels, factor):
    return np.kron(pixels, np.ones((factor, factor, 1), np.uint8)).astype(np.uint8)


def top_of(page, block, column, inside=0, after=0):
    """Return the row at which a block of pixels occurs unchanged in one of the three columns. Fail if the block is
    missing.
    """
    left = MARGIN + column * (SIDE + MARGIN) + inside
    strip = page[:, left : left + block.shape[1]]
    for row in range(after, len(page) - len(block) + 1):
        if np.array_equal(strip[row], block[0]) and np.array_equal(strip[row : row + len(block)], block):
            return row
    raise AssertionError(f"no such block in column {column}")


LEVELS = pp.tensor(dtype="uint8", layout="hwc")


@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_the_second_picture_has_the_engines_pixel_values_in_true_colours(color):
    ops = [pp.resize(72), pp.center_crop(64)]
    page = picture_of(*ops, pp.normalize(), pp.tensor(), color=color)
    expected = result(*ops, LEVELS, color="gray" if color == "gray" else "rgb")
    top_of(page, enlarged(np.broadcast_to(expected, (64, 64, 3)), 8), column=1)


@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_the_third_picture_shows_the_first_channel_as_red(color):
    ops = [pp.resize(72), pp.center_crop(64), pp.normalize(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.2))]
    tensor = result(*ops, pp.tensor(layout="hwc"), color=color).astype(np.float64)
    low, high = tensor.min(), tensor.max()
    shown = panels_of(*ops, pp.tensor(), color=color)[2].pixels[::8, ::8].astype(int)
    assert np.abs(shown - 255 * (tensor - low) / (high - low)).max() <= 0.51
    page = picture_of(*ops, pp.tensor(), color=color)
    top_of(page, enlarged(levels_of(tensor, low, high), 8), column=2)


def test_a_bgr_tensor_is_labelled_and_an_rgb_tensor_is_not():
    words = "Blue is channel 0 (BGR), shown as red. This is correct only if the model was trained on BGR."
    assert words in panels_of(SQUARE, pp.tensor(), color="bgr")[2].words
    assert words not in panels_of(SQUARE, pp.tensor(), color="rgb")[2].words


def test_unrounded_values_are_shown_rounded():
    ops = [pp.resize(height=64, width=64, like="tensorflow")]
    expected = np.rint(result(*ops, pp.tensor(layout="hwc"))).astype(np.uint8)
    top_of(picture_of(*ops, pp.normalize(), pp.tensor()), enlarged(expected, 8), column=1)


@pytest.mark.parametrize("flips", [[], [pp.flip("horizontal")]])
def test_the_frame_shows_the_region_that_the_model_sees_and_the_rest_is_dark(flips):
    ops = [pp.resize(256), pp.center_crop(224), *flips, pp.tensor()]
    # The photo of 427 x 640 is resized to 256 x 383. The crop keeps rows 16 to 240 and columns 80 to 304 (79.5 rounds
    # to even, which is 80).
    top, bottom = (round(row * 342 / 256) for row in (16, 240))  # the photo is displayed at 342 x 512
    left, right = (round(column * 512 / 383) for column in (80, 304))
    panel = panels_of(*ops)[0]
    assert panel.frame == (top, left, bottom, right)
    assert panel.words == ["The model sees rows 27 to 399, columns 134 to 507 (the frame)."]
    whole = result(pp.resize(height=342, width=512), LEVELS)
    assert np.array_equal(panel.pixels[top:bottom, left:right], whole[top:bottom, left:right])
    outside = np.ones(whole.shape[:2], bool)
    outside[top:bottom, left:right] = False
    assert (panel.pixels[outside] <= whole[outside] * 0.31).all()
    page = picture_of(*ops)
    y, x = top_of(page, whole[top:bottom, left:right], 0, left), MARGIN + left
    height, width = bottom - top, right - left
    for row, column in ((-1, 0), (-3, -3), (9, width), (height, 9), (height + 2, width + 2)):
        assert tuple(page[y + row, x + column]) == CROP
    for row, column in ((-4, 0), (0, -4), (height + 3, 0), (0, width + 3)):
        assert tuple(page[y + row, x + column]) != CROP


def test_padding_has_its_colour_and_the_photo_an_outline():
    page = picture_of(pp.letterbox(256, 256, fill=(10, 200, 30)), pp.tensor())
    photo_part = result(pp.resize(height=171, width=256), LEVELS)
    row = top_of(page, enlarged(photo_part, 2), column=1)
    left = MARGIN + SIDE + MARGIN
    assert (page[row - 1, left : left + 512] == CROP).all()
    assert (page[row - 2, left : left + 512] == (10, 200, 30)).all()
    panel = panels_of(pp.letterbox(256, 256, fill=(10, 200, 30)), pp.tensor())[1]
    assert panel.title == "2  resized, padded"
    assert panel.words[-1] == "The padding has the pixel value 10, 200, 30."
    assert (
        panels_of(pp.letterbox(64, 64, fill=(7, 7, 7)), pp.tensor())[1].words[-1]
        == "The padding has the pixel value 7."
    )


def test_the_grid_of_tiles_and_merge_windows_is_drawn_on_the_second_picture():
    tiles = pp.resize_to_tiles(tile_size=64, max_tiles=6), pp.tiles(tile_size=64, thumbnail="last")
    panel = panels_of(*tiles, encoded=png(np.zeros((200, 300, 3), np.uint8)))[1]
    assert panel.words[1:] == [
        "The grid has 2 rows and 3 columns of 64 x 64 pixels.",
        "The last of the 7 tiles is a thumbnail, which shows the whole image.",
    ]
    lines = panel.pixels.any(axis=2)
    assert np.flatnonzero(lines.all(axis=1)).tolist() == [panel.pixels.shape[0] // 2]
    assert np.flatnonzero(lines.all(axis=0)).tolist() == [panel.pixels.shape[1] // 3, 2 * panel.pixels.shape[1] // 3]

    patches = pp.resize(height=56, width=84), pp.patches(patch_size=14, merge_size=2)
    panel = panels_of(*patches, encoded=png(np.zeros((200, 300, 3), np.uint8)))[1]
    assert panel.words[1:] == [
        "The grid has 4 rows and 6 columns of 14 x 14 pixels.",
        "The lines separate merge windows of 2 x 2 patches.",
        "The 6 windows become the image tokens of the language model.",
    ]
    lines = panel.pixels.any(axis=2)
    assert (lines.all(axis=1).sum(), lines.all(axis=0).sum()) == (1, 2)


def test_the_grid_of_slices_is_drawn_and_outputs_with_many_numbers_are_described():
    slices = pp.resize_to_slices(rule="minicpm", slice_size=64, multiple=8, max_slices=6), pp.slice_patches(8)
    encoded = png(np.zeros((200, 300, 3), np.uint8))
    panel = panels_of(*slices, encoded=encoded)[1]
    assert panel.words[1:] == [
        "The image is cut into 2 x 3 slices. The first view is the whole image in a size of its own."
    ]
    assert panel.pixels.any(axis=2).all(axis=0).sum() == 2
    numbers = pp.slice_grids(8, name="grids"), pp.slice_count(8, order="hw", name="cuts")
    page = stages(pp.Pipeline([pp.decode(), *slices, *numbers]), encoded, title="", name="")
    assert page.size[0] > 0


def test_the_lines_of_a_grid_do_not_hide_the_picture():
    drawn = with_grid(np.zeros((40, 40, 3), np.uint8), rows=2, columns=9)
    assert (drawn.any(axis=(1, 2)).sum(), drawn.any(axis=(0, 2)).sum()) == (1, 40)  # columns of 4 pixels have no lines


@pytest.mark.parametrize("orientation", [3, 6, 8])
@pytest.mark.parametrize("is_applied", [True, False])
def test_a_photo_is_shown_rotated_as_by_the_pipeline(orientation, is_applied):
    encoded = with_exif(orientation)
    image = ImageOps.exif_transpose(read(encoded)) if is_applied else read(encoded)
    panel = panels_of(SQUARE, pp.tensor(), encoded=encoded, apply_exif_orientation=is_applied)[0]
    assert np.array_equal(panel.pixels, enlarged(np.asarray(image), 512 // 40))
    applied = "applied" if is_applied else "ignored"
    assert panel.line == f"{image.width} wide, {image.height} high, RGB, EXIF orientation {applied}"
    assert panel.words == ["The model sees the whole photo."]


@pytest.mark.parametrize(
    ("encoded", "ops"),
    [
        (png(noise(1, 1)), [pp.letterbox(640, 640)]),
        (png(noise(7, 5)), [pp.resize(height=5, width=2000)]),
        (png(noise(1, 300)), [pp.letterbox(640, 640)]),
        (jpeg(noise(16000, 20)), [pp.resize(height=1, width=1)]),
        (jpeg(np.tile(scene(250, 400), (12, 12, 1))), [pp.letterbox(640, 640)]),
    ],
    ids=["1x1", "7x5", "1x300", "16000x20", "3000x4800"],
)
def test_for_all_sizes_the_picture_has_the_same_width_and_is_small(encoded, ops):
    image = stages(pp.Pipeline([pp.decode(), *ops, pp.normalize(), pp.tensor()]), encoded)
    assert image.width == WIDTH
    assert image.height < 1400
    assert len(to_png(image)) < 4 << 20


@pytest.mark.parametrize(
    ("normalize", "low", "high"), [(pp.normalize(), 0, 1), (pp.normalize(mean=0.5, std=0.5), -1, 1)]
)
def test_the_bars_are_at_the_values_and_nowhere_else(normalize, low, high):
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:32, :, 0] = 255
    page = picture_of(pp.center_crop(64), normalize, pp.tensor(), encoded=png(pixels))
    # The axis covers -2.12 to 2.64, plus 3 % on both sides.
    first, last = -2.12 - 0.03 * 4.76, 2.64 + 0.03 * 4.76
    expected = {round((value - first) / (last - first) * 511) for value in (low, high)}
    row = np.flatnonzero((page == (0xE5, 0x48, 0x4D)).all(axis=2).any(axis=1))[-2]
    columns = np.flatnonzero((page[row] == (0xE5, 0x48, 0x4D)).all(axis=1)) - MARGIN
    assert all(min(abs(column - at) for at in expected) <= 5 for column in columns)
    assert all(min(abs(column - at) for column in columns) <= 5 for at in expected)


def test_four_of_many_tensors_are_drawn_and_the_others_counted():
    ops = [pp.decode(), pp.resize(height=8, width=8), *(pp.tensor(name=f"t{index}") for index in range(9))]
    many, four = (stages(pp.Pipeline(ops[:count]), photo()) for count in (11, 6))
    assert four.height < many.height < four.height + 60


def has_colour(page, colour):
    return bool((page == colour).all(axis=2).any())


def test_an_odd_range_and_black_padding_are_reported_in_red():
    usual = [pp.resize(64), pp.center_crop(64), pp.normalize(), pp.tensor()]
    assert not has_colour(picture_of(*usual), WRONG)
    assert has_colour(
        picture_of(pp.resize(64), pp.center_crop(64), pp.normalize(mean=127.5, std=127.5), pp.tensor()), WRONG
    )
    assert has_colour(picture_of(pp.resize(64), pp.center_crop(96), pp.tensor()), WRONG)


def test_a_photo_that_is_not_visible_is_dark_and_has_no_frame():
    ops = [pp.pad(64, 64, anchor="top_left"), pp.center_crop(8), pp.tensor()]
    first, second, _ = panels_of(*ops, encoded=png(scene(4, 4)))
    assert first.words == ["The model does not see any part of the photo."]
    assert (first.frame, second.frame) == (None, None)
    assert not second.pixels.any()


def test_names_of_any_length_and_kind_fit_on_the_page():
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor(name="x" * 128), pp.tensor(name="y")])
    page = np.asarray(stages(pipeline, photo(), title="t\x1b[31m" * 4000, name="\n" * 4000))
    assert page.shape[1] == WIDTH
    assert (page[:, -MARGIN // 2 :] == 255).all()


ENLARGED = (((224, 224), (448, 448)), ((256, 200), (512, 400)), ((300, 300), (300, 300)), ((1, 1), (512, 512)))


@pytest.mark.parametrize(("shape", "size"), [*ENLARGED, ((640, 320), (512, 256)), ((5, 4000), (1, 512))])
def test_a_picture_is_enlarged_by_integer_factors_or_reduced(shape, size):
    pixels = noise(*shape)
    shown = fitted(pixels)
    assert shown.shape == (*size, 3)
    assert fitted_size(shape) == size
    if size[0] >= shape[0]:
        assert np.array_equal(shown, enlarged(pixels, size[0] // shape[0]))


def test_only_some_pixels_of_a_large_tensor_are_used():
    values = np.broadcast_to(np.linspace(-1, 1, 9000, dtype=np.float32)[None, :, None], (6000, 9000, 1))
    shown = shown_as(values, -1, 1)
    assert shown.shape == (341, 512, 3)
    assert np.abs(shown[100, :, 0] - np.linspace(0, 255, 512)).max() <= 2


def test_values_are_shown_from_black_to_white():
    assert levels_of(np.array([-1.0, 0, 1, 3, np.nan]), -1, 1).tolist() == [0, 128, 255, 255, 0]
    assert levels_of(np.ones(2), 1, 1).tolist() == [128, 128]


# Tests of the picture that shows the worst image of a certificate.


def row(actual, expected, *, largest=0.0, stage="resize", name="china.jpg"):
    found = Row(output="tensor", stage=stage, original="Pillow", tolerance=Tolerance(largest, 0, "why"))
    found.add(name, actual, expected)
    return found


def test_without_a_difference_there_is_no_picture():
    same = row(scene(9, 9), scene(9, 9))
    assert worst_row(Certificate([same])) is None
    assert worst(Certificate([same])) is None


def test_the_first_row_beyond_its_tolerance_is_drawn_before_one_within_it():
    near = row(np.full((4, 4, 3), 1, np.uint8), np.zeros((4, 4, 3), np.uint8), largest=1)
    broken = row(np.full((4, 4, 3), 9, np.uint8), np.zeros((4, 4, 3), np.uint8), largest=1)
    assert worst_row(Certificate([near, broken])) is broken
    assert worst_row(Certificate([near])) is near


def test_the_worst_of_several_images_is_kept():
    found = row(np.zeros((4, 4, 3), np.uint8), np.full((4, 4, 3), 7, np.uint8), name="worst.jpg")
    found.add("better.jpg", np.zeros((5, 5, 3), np.uint8), np.full((5, 5, 3), 6, np.uint8))
    assert found.worst == "worst.jpg"
    assert found.pair[0].shape == (4, 4, 3)


def test_both_results_are_side_by_side_and_the_difference_is_amplified_to_white():
    expected = np.clip(scene(64, 64), 5, 250)
    expected[0, 0], expected[0, 1] = 0, 255  # both pictures use this scale
    actual = expected.copy()
    actual[40, 20, 1] += 4
    actual[10, 50, 2] += 2
    page = np.asarray(worst(Certificate([row(actual, expected)])))
    difference = np.zeros((64, 64, 3), np.uint8)
    difference[40, 20], difference[10, 50] = 255, 128
    # a frame with a width of 3, at a distance of 6 from the pixel, which is enlarged to 8 x 8
    marked = np.zeros((512, 512), bool)
    marked[40 * 8 - 9 : 41 * 8 + 9, 20 * 8 - 9 : 21 * 8 + 9] = True
    marked[40 * 8 - 6 : 41 * 8 + 6, 20 * 8 - 6 : 21 * 8 + 6] = False
    for column, pixels in enumerate((actual, expected, difference)):
        block = enlarged(pixels, 8)
        block[marked] = CROP
        top = top_of(page, block, column)
        near = enlarged(pixels[32:49, 12:29], 30)
        top_of(page, near[:200], column, after=top + 512)


def test_a_single_pixel_of_a_large_photo_is_not_averaged_away():
    expected = noise(900, 1500)
    actual = expected.copy()
    actual[610, 1201, 2] ^= 1
    page = np.asarray(worst(Certificate([row(actual, expected)])))
    shown = np.zeros((300, 500, 3), np.uint8)  # each pixel is shown as a square of 3 x 3
    shown[610 // 3, 1201 // 3] = 255
    framed = slice(610 // 3 - 9, 610 // 3 + 10), slice(1201 // 3 - 9, 1201 // 3 + 10)
    shown[framed] = CROP
    inner = slice(610 // 3 - 6, 610 // 3 + 7), slice(1201 // 3 - 6, 1201 // 3 + 7)
    shown[inner] = 0
    shown[610 // 3, 1201 // 3] = 255
    top_of(page, shown, column=2)


def test_different_shapes_and_non_finite_values_are_also_drawn():
    shapes = worst(Certificate([row(scene(9, 9), scene(9, 8))]))
    assert shapes.height < 300
    broken = scene(20, 20).astype(np.float32)
    broken[3, 3, 0] = np.nan
    broken[5, 5, 1] = np.inf
    assert worst(Certificate([row(broken, scene(20, 20).astype(np.float32))])).height > 600
    nothing = np.full((4, 4, 1), np.nan, np.float32)
    assert worst(Certificate([row(nothing, nothing)])).height > 600
