"""Attack: 64 images of 70 bytes, in portrait and landscape, to a pipeline with open sizes: 1.36 GB of tensors.

Defence: the size of a request's tensors, padded to the largest, is computed from the placements of its images before
any is allocated (``max_response_bytes``, by default 320 MiB). Each request of a batch has the whole limit. Outcome: the
request is rejected at no cost; other requests of the batch get their response.
"""

import tracemalloc

import numpy as np

import pixprep as pp
from pixprep.plan.answers import Answers
from support.images import png

SIZES = pp.resize(size=200, max_size=333)
PIPELINE = pp.Pipeline([pp.decode(), SIZES, pp.tensor()])
LYING, UPRIGHT = (png(np.zeros(shape, np.uint8)) for shape in ((6, 10, 3), (10, 6, 3)))
ONE, SQUARE = 3 * 200 * 333 * 4, 3 * 333 * 333 * 4


def run(images, *parts, most=320 << 20, **fields):
    with pp.Engine(fields.pop("pipeline", PIPELINE), threads=1) as engine:
        tracemalloc.start()  # NumPy reports every array to it
        try:
            batch = engine.run_batch(images, answers=Answers([slice(*part) for part in parts], most), **fields)
            return batch, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_a_request_of_kilobytes_does_not_use_a_gigabyte():
    images = [LYING, UPRIGHT] * 32
    assert sum(map(len, images)) < 6000
    detectors = pp.Pipeline([pp.decode(), pp.resize(size=800, max_size=1333), pp.tensor()])
    batch, most = run(images, (0, 64), pipeline=detectors)
    assert {error.reason for error in batch.errors} == {"TOO_LARGE_RESPONSE"}
    assert str(batch.errors[0]) == (
        f"[TOO_LARGE_RESPONSE] the tensors of the request take at least {64 * 3 * 800 * 1333 * 4:,} bytes, "
        "64 x [3, 800, 1333]; the limit is 335,544,320 (parameter max_response_bytes): send fewer images in a request"
    )
    assert most < 4 << 20


def test_the_memory_used_before_a_request_is_known_to_be_too_large_is_bounded():
    batch, most = run([LYING] * 10 + [UPRIGHT] * 6, (0, 16), most=16 * ONE)
    assert [error is None for error in batch.errors] == [True] * 10 + [False] * 6
    assert f"{16 * SQUARE:,} bytes, 16 x [3, 333, 333]" in str(batch.errors[-1])
    assert 10 * ONE < most < 16 * ONE


def test_each_request_of_a_batch_has_the_whole_limit():
    batch, _ = run([LYING] * 7, (0, 2), (2, 5), (5, 7), most=2 * ONE)
    assert [error is None for error in batch.errors] == [True] * 2 + [False] * 3 + [True] * 2
    for row, tensor in enumerate(batch.outputs["tensor"]):
        assert tensor.shape == ((3, 1, 1) if batch.errors[row] else (3, 200, 333))


def test_the_boxes_of_one_photo_count_as_one_response():
    boxes = pp.Pipeline([pp.decode(), pp.crop(box="boxes"), SIZES, pp.tensor()])
    given = {"boxes": [[[0, 0, 10, 6], [0, 0, 5, 3], [0, 0, 3, 5]]]}
    batch, _ = run([LYING], (0, 1), pipeline=boxes, inputs=given)
    assert batch.errors == [None] * 3
    batch, most = run([LYING], (0, 1), pipeline=boxes, inputs=given, most=3 * ONE)
    assert {str(error) for error in batch.errors} == {
        f"[TOO_LARGE_RESPONSE] the tensors of the request take at least {3 * SQUARE:,} bytes, "
        f"3 x [3, 333, 333]; the limit is {3 * ONE:,} (parameter max_response_bytes): send fewer boxes in a request"
    }
    assert most < 1 << 20


def test_every_output_counts_and_one_image_can_be_too_large():
    pipeline = pp.Pipeline(
        [
            pp.decode(),
            pp.resize(height=8, max_size=9, name="small"),
            pp.tensor(name="a", dtype="uint8"),
            pp.tensor(name="b", from_="small", layout="hwc", dtype="uint8"),
            pp.image_size(name="size", from_="small"),
        ]
    )
    needed = 2 * 3 * 8 * 9 + 2 * 4
    (error,) = run([LYING], (0, 1), pipeline=pipeline, most=needed)[0].errors
    assert error is None
    (error,) = run([LYING], (0, 1), pipeline=pipeline, most=needed - 1)[0].errors
    assert str(error).endswith(
        f"take at least {needed} bytes, 1 x [3, 8, 9] and [8, 9, 3]; the limit is {needed - 1} (parameter "
        "max_response_bytes): send a smaller image"
    )
