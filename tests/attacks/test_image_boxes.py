"""Attack: A request contains millions of boxes, boxes that each cover the largest photo, or invalid numbers.

Defence: A photo may have at most 64 boxes (``max_boxes``), and they are counted before any box is read. Together, the
boxes may cover at most 256 megapixels of the photo (``max_box_pixels``). A box is clipped to the photo before its area
is computed. The total size of a request's tensors is limited (``max_response_bytes``), and no array is allocated for a
request that exceeds this limit.

Outcome: Requests above the limits are rejected at no cost. The most expensive accepted request has five boxes of the
largest photo's size.
"""

import tracemalloc

import numpy as np
import pytest

import pixprep as pp
from pixprep.plan.answers import Answers
from support.images import jpeg, photo

PIPELINE = pp.Pipeline([pp.decode(), pp.crop(box="boxes"), pp.resize(height=8, width=8), pp.tensor(dtype="uint8")])


def run(encoded, boxes):
    with pp.Engine(PIPELINE, threads=1) as engine:
        return engine.run([encoded], inputs={"boxes": [boxes]})


@pytest.mark.parametrize("count", [65, 1_000_000])
def test_more_boxes_than_the_limit_are_rejected_before_the_photo_is_decoded(count):
    damaged_late = jpeg(np.zeros((3000, 3000, 3), np.uint8))[:-200]
    for encoded in (photo(), damaged_late):
        (error,) = run(encoded, np.ones((count, 4), np.float32))
        assert str(error) == f'[BAD_INPUT] {count:,} rows of "boxes"; the limit is 64 (parameter max_boxes)'


def test_boxes_of_fixed_size_are_limited_by_the_total_bytes_of_their_tensors():
    pipeline = pp.Pipeline([pp.decode(), pp.crop(box="boxes"), pp.resize(height=1024, width=1024), pp.tensor()])
    boxes, tensor_bytes = np.tile(np.array([[0, 0, 50, 50]], np.float32), (64, 1)), 3 * 1024 * 1024 * 4
    with pp.Engine(pipeline, threads=1) as engine:
        tracemalloc.start()  # tracemalloc also counts NumPy arrays
        batch = engine.run_batch(
            [photo()] * 2,
            inputs={"boxes": [boxes, boxes[:2]]},
            answers=Answers([slice(0, 1), slice(1, 2)], 2 * tensor_bytes),
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert [error and error.reason for error in batch.errors] == ["TOO_LARGE_RESPONSE", None, None]
    assert f"{64 * tensor_bytes:,} bytes, 64 x [3, 1024, 1024]; the limit is {2 * tensor_bytes:,}" in str(
        batch.errors[0]
    )
    assert peak < 5 * tensor_bytes


def test_boxes_of_the_largest_photo_are_limited_in_total():
    largest = jpeg(np.zeros((7000, 7100, 3), np.uint8))
    results = run(largest, [[-1e30, -1e30, 1e30, 1e30]] * 64)
    assert [isinstance(each, pp.ImageError) for each in results] == [False] * 5 + [True] * 59
    assert {each.reason for each in results[5:]} == {"TOO_MANY_PIXELS"}
    assert str(results[63]).startswith(
        '[TOO_MANY_PIXELS] "boxes", row 64 of 64: it covers 49,700,000 pixels, but only 7,500,000'
    )


def test_a_sliver_is_not_enlarged_without_limit():
    pipeline = pp.Pipeline([pp.decode(), pp.crop(box="boxes"), pp.resize(16384), pp.center_crop(4), pp.tensor()])
    with pp.Engine(pipeline) as engine:
        (error,) = engine.run([photo()], inputs={"boxes": [[[0, 0, 640, 1]]]})
    assert error.reason == "BAD_DIMENSIONS"
    assert '"boxes", row 1 of 1: its 1 x 640 pixels would be resized to 16384 x' in str(error)


def test_every_bit_pattern_is_a_box_or_an_error():
    rng = np.random.default_rng(3)
    patterns = rng.integers(0, 1 << 32, (64, 4), dtype=np.uint32).view(np.float32)
    special_values = np.array(
        [0, -0.0, np.nan, np.inf, -np.inf, 1e-45, 3.4e38, -3.4e38, 0.5, 639.5, 640, 426.5], np.float32
    )
    for boxes in (patterns, *(rng.choice(special_values, (64, 4)) for _ in range(20))):
        for each in run(photo(), boxes):
            assert isinstance(each, np.ndarray) or each.reason in ("BAD_INPUT", "DOES_NOT_FIT")
