"""The picture of the worst image: ours, theirs, their difference, and the pixel that differs most."""

import numpy as np

from images import noise, scene
from pixprep.show.drawing import MARGIN, SIDE
from pixprep.show.worst import worst, worst_row
from pixprep.verify.report import Certificate, Row, Tolerance

CROP = (0xFF, 0x7A, 0x00)


def row(actual, expected, *, largest=0.0, stage="resize", name="china.jpg"):
    found = Row(output="tensor", stage=stage, original="Pillow", tolerance=Tolerance(largest, 0, "why"))
    found.add(name, actual, expected)
    return found


def larger(pixels, factor):
    return np.kron(pixels, np.ones((factor, factor, 1), np.uint8)).astype(np.uint8)


def top_of(page, block, column, after=0):
    left = MARGIN + column * (SIDE + MARGIN)
    strip = page[:, left : left + block.shape[1]]
    found = [y for y in range(after, len(page) - len(block) + 1) if np.array_equal(strip[y : y + len(block)], block)]
    assert found, f"no such block in column {column}"
    return found[0]


def test_where_nothing_differs_there_is_no_picture():
    same = row(scene(9, 9), scene(9, 9))
    assert worst_row(Certificate([same])) is None
    assert worst(Certificate([same])) is None


def test_the_first_row_beyond_its_tolerance_is_drawn_before_one_that_holds():
    near = row(np.full((4, 4, 3), 1, np.uint8), np.zeros((4, 4, 3), np.uint8), largest=1)
    broken = row(np.full((4, 4, 3), 9, np.uint8), np.zeros((4, 4, 3), np.uint8), largest=1)
    assert worst_row(Certificate([near, broken])) is broken
    assert worst_row(Certificate([near])) is near


def test_of_several_images_the_worst_is_kept():
    found = row(np.zeros((4, 4, 3), np.uint8), np.full((4, 4, 3), 7, np.uint8), name="worst.jpg")
    found.add("better.jpg", np.zeros((5, 5, 3), np.uint8), np.full((5, 5, 3), 6, np.uint8))
    assert found.worst == "worst.jpg"
    assert found.pair[0].shape == (4, 4, 3)


def test_both_results_stand_side_by_side_and_the_difference_is_amplified_to_white():
    expected = np.clip(scene(64, 64), 5, 250)
    expected[0, 0], expected[0, 1] = 0, 255  # the scale of both pictures
    actual = expected.copy()
    actual[40, 20, 1] += 4
    actual[10, 50, 2] += 2
    page = np.asarray(worst(Certificate([row(actual, expected)])))
    difference = np.zeros((64, 64, 3), np.uint8)
    difference[40, 20], difference[10, 50] = 255, 128
    marked = np.zeros((512, 512), bool)  # the frame, 3 wide, lies 6 around the pixel of 8 x 8
    marked[40 * 8 - 9 : 41 * 8 + 9, 20 * 8 - 9 : 21 * 8 + 9] = True
    marked[40 * 8 - 6 : 41 * 8 + 6, 20 * 8 - 6 : 21 * 8 + 6] = False
    for column, pixels in enumerate((actual, expected, difference)):
        block = larger(pixels, 8)
        block[marked] = CROP
        top = top_of(page, block, column)
        near = larger(pixels[32:49, 12:29], 30)
        assert top_of(page[:, :], near[:200], column, after=top + 512)


def test_a_single_pixel_of_a_large_photo_is_not_averaged_away():
    expected = noise(900, 1500)
    actual = expected.copy()
    actual[610, 1201, 2] ^= 1
    page = np.asarray(worst(Certificate([row(actual, expected)])))
    shown = np.zeros((300, 500, 3), np.uint8)  # squares of 3 x 3
    shown[610 // 3, 1201 // 3] = 255
    framed = slice(610 // 3 - 9, 610 // 3 + 10), slice(1201 // 3 - 9, 1201 // 3 + 10)
    shown[framed] = CROP
    inner = slice(610 // 3 - 6, 610 // 3 + 7), slice(1201 // 3 - 6, 1201 // 3 + 7)
    shown[inner] = 0
    shown[610 // 3, 1201 // 3] = 255
    top_of(page, shown, column=2)


def test_a_worst_pixel_in_a_corner_is_framed_too():
    actual = noise(40, 30)
    expected = actual.copy()
    expected[39, 29, 0] ^= 255
    image = worst(Certificate([row(actual, expected)]))
    page = np.asarray(image)
    assert (page == CROP).all(axis=2).sum() > 500


def test_other_shapes_and_values_that_are_no_numbers_are_drawn_too():
    shapes = worst(Certificate([row(scene(9, 9), scene(9, 8))]))
    assert shapes.height < 300
    broken = scene(20, 20).astype(np.float32)
    broken[3, 3, 0] = np.nan
    broken[5, 5, 1] = np.inf
    assert worst(Certificate([row(broken, scene(20, 20).astype(np.float32))])).height > 600
    nothing = np.full((4, 4, 1), np.nan, np.float32)
    assert worst(Certificate([row(nothing, nothing)])).height > 600
