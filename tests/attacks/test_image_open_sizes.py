"""Attack: A client sends 64 images of 70 bytes, in portrait and landscape, to a pipeline with open sizes. Their tensors
would take 1.36 GB.

Defence: The size of a request's tensors, which are all padded to the largest one, is computed before any tensor is
allocated (``max_response_bytes``, by default 320 MiB). The limit applies separately to each request in a batch.

Outcome: The request is rejected at no cost, and the other requests in the batch succeed.
"""

import tracemalloc

import numpy as np

import pixprep as pp
from pixprep.plan.answers import Answers
from support.images import png

SIZES = pp.resize(size=200, max_size=333)
PIPELINE = pp.Pipeline([pp.decode(), SIZES, pp.tensor()])
LANDSCAPE, PORTRAIT = (png(np.zeros(shape, np.uint8)) for shape in ((6, 10, 3), (10, 6, 3)))
TENSOR_BYTES, SQUARE_BYTES = 3 * 200 * 333 * 4, 3 * 333 * 333 * 4


def run(images, *parts, max_bytes=320 << 20, **fields):
    with pp.Engine(fields.pop("pipeline", PIPELINE), threads=1) as engine:
        tracemalloc.start()  # tracemalloc also counts NumPy arrays
        try:
            batch = engine.run_batch(images, answers=Answers([slice(*part) for part in parts], max_bytes), **fields)
            return batch, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_a_request_of_kilobytes_does_not_use_a_gigabyte():
    images = [LANDSCAPE, PORTRAIT] * 32
    assert sum(map(len, images)) < 6000
    detectors = pp.Pipeline([pp.decode(), pp.resize(size=800, max_size=1333), pp.tensor()])
    batch, peak = run(images, (0, 64), pipeline=detectors)
    assert {error.reason for error in batch.errors} == {"TOO_LARGE_RESPONSE"}
    assert str(batch.errors[0]) == (
        f"[TOO_LARGE_RESPONSE] the tensors of the request take at least {64 * 3 * 800 * 1333 * 4:,} bytes, "
        "64 x [3, 800, 1333]; the limit is 335,544,320 (parameter max_response_bytes): send fewer images in a request"
    )
    assert peak < 4 << 20


def test_the_memory_used_before_a_request_is_known_to_be_too_large_is_bounded():
    batch, peak = run([LANDSCAPE] * 10 + [PORTRAIT] * 6, (0, 16), max_bytes=16 * TENSOR_BYTES)
    assert [error is None for error in batch.errors] == [True] * 10 + [False] * 6
    assert f"{16 * SQUARE_BYTES:,} bytes, 16 x [3, 333, 333]" in str(batch.errors[-1])
    assert 10 * TENSOR_BYTES < peak < 16 * TENSOR_BYTES


def test_each_request_of_a_batch_has_the_whole_limit():
    batch, _ = run([LANDSCAPE] * 7, (0, 2), (2, 5), (5, 7), max_bytes=2 * TENSOR_BYTES)
    assert [error is None for error in batch.errors] == [True] * 2 + [False] * 3 + [True] * 2
    for row, tensor in enumerate(batch.outputs["tensor"]):
        assert tensor.shape == ((3, 1, 1) if batch.errors[row] else (3, 200, 333))


def test_the_boxes_of_one_photo_count_as_one_response():
    boxes = pp.Pipeline([pp.decode(), pp.crop(box="boxes"), SIZES, pp.tensor()])
    inputs = {"boxes": [[[0, 0, 10, 6], [0, 0, 5, 3], [0, 0, 3, 5]]]}
    batch, _ = run([LANDSCAPE], (0, 1), pipeline=boxes, inputs=inputs)
    assert batch.errors == [None] * 3
    batch, peak = run([LANDSCAPE], (0, 1), pipeline=boxes, inputs=inputs, max_bytes=3 * TENSOR_BYTES)
    assert {str(error) for error in batch.errors} == {
        f"[TOO_LARGE_RESPONSE] the tensors of the request take at least {3 * SQUARE_BYTES:,} bytes, "
        f"3 x [3, 333, 333]; the limit is {3 * TENSOR_BYTES:,} (parameter max_response_bytes): "
        "send fewer boxes in a request"
    }
    assert peak < 1 << 20


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
    (error,) = run([LANDSCAPE], (0, 1), pipeline=pipeline, max_bytes=needed)[0].errors
    assert error is None
    (error,) = run([LANDSCAPE], (0, 1), pipeline=pipeline, max_bytes=needed - 1)[0].errors
    assert str(error).endswith(
        f"take at least {needed} bytes, 1 x [3, 8, 9] and [8, 9, 3]; the limit is {needed - 1} (parameter "
        "max_response_bytes): send a smaller image"
    )
