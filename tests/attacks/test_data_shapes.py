"""Attack: COCO shapes cost far more than their size in bytes suggests. There are polygons that extend far outside the
image, run lengths with a million digits, hundreds of masks of the largest image, and outlines that cross every column
thousands of times.

Defence: Only those columns of an outline that are within the image are drawn. A run length may have at most twelve
characters and a value of at most 2^40. Limits apply to the pixels of an image's masks, to the area around its polygons,
and to the number of columns that the outlines cross.

Outcome: The mask is returned at little cost, or only this sample is rejected, before it costs anything.
"""

import json
import time
import tracemalloc

import numpy as np
import pytest

import pixprep as pp
from attacks.repositories import patience
from pixprep import read
from pixprep.training.sources.shapes import Shapes
from support.records import coco_annotations, refusals

FAR = [[0, 0, 800_000, 0, 800_000, 9, 0, 9]]
ZIGZAG = [[value for x in range(2000) for value in ((0, 8000)[x % 2], x)]]
TRIANGLE = [[0, 0, 8000, 0, 8000, 8000]]


def draw(shapes, size):
    """Draw the masks of the shapes. Return the masks or the error, the seconds of processor time, and the peak memory
    in MiB.
    """
    texts = [json.dumps({"segmentation": shape}) for shape in shapes]
    tracemalloc.start()
    start = time.process_time()
    try:
        masks = np.asarray(Shapes(texts, size))
    except pp.ImageError as error:
        masks = error
    seconds, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return masks, seconds, peak / (1 << 20)


def test_a_polygon_far_outside_costs_only_its_visible_part():
    masks, seconds, mib = draw([FAR], (90, 120))
    assert masks[0, :9].all()
    assert not masks[0, 9:].any()
    assert seconds < 5
    assert mib < 1


@pytest.mark.parametrize(
    ("shapes", "size", "words"),
    [
        (
            [TRIANGLE] * 200,
            (8000, 8000),
            "200 masks of 8000 x 8000 pixels exceed the limit of 1,073,741,824 pixels per image",
        ),
        (
            [ZIGZAG],
            (8000, 8000),
            "segmentation 1 of 1: the polygons of the image cross more than 2,097,152 columns in total",
        ),
        (
            [[ZIGZAG[0][:200]]] * 9,
            (400, 8000),
            "segmentation 3 of 9: the polygons of the image cross more than 2,097,152 columns in total",
        ),
        (
            [TRIANGLE * 5000],
            (800, 8000),
            "segmentation 1 of 1: the bounding boxes of the polygons are more than 4 times as large",
        ),
        (
            [{"counts": "o" * 1_000_000, "size": [90, 120]}],
            (90, 120),
            "a compressed run length has more than 12 characters",
        ),
    ],
)
def test_a_shape_that_is_too_expensive_to_draw_is_rejected(shapes, size, words):
    with patience(60):
        error, seconds, mib = draw(shapes, size)
    assert words in str(error)
    assert error.reason in ("BAD_RECORD", "TOO_MANY_PIXELS")
    assert seconds < 20  # a generous limit, because the machine may be busy
    assert mib < 300


@pytest.mark.parametrize("number", ["9" * 30, "9" * 1_000_000, "-1", str(1 << 41)])
def test_a_run_of_more_pixels_than_the_image_breaks_its_image(tmp_path, number):
    content = coco_annotations(4)
    content["annotations"][0]["segmentation"] = {"counts": ["X", 1], "size": [90, 120]}
    (tmp_path / "i.json").write_text(json.dumps(content).replace('"X"', number))
    with patience():
        start = time.process_time()
        source = read.coco(tmp_path, tmp_path / "i.json", masks=True)
        (words,) = refusals(source).values()
    assert time.process_time() - start < 20
    assert words.startswith("[BAD_RECORD] i.json, image 110: annotations[0]: ")
    assert len(words) < 300
