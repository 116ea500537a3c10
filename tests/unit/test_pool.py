"""The CUDA memory pool: sized from the model's numbers, and tensors by way of the CPU where it is too small."""

import pytest

import pixprep as pp
from pixprep.serve import cuda_pool
from pixprep.triton import pool

PIPELINE = pp.presets.imagenet()
TENSOR = 4 * 3 * 224 * 224


def test_a_pool_holds_the_images_in_flight():
    assert pool.bytes_per_image(PIPELINE) == TENSOR
    assert pool.needed(PIPELINE, images_in_flight=100) == 100 * TENSOR


def test_outputs_that_are_no_images_take_no_place_in_the_pool():
    pipeline = pp.Pipeline(
        [pp.decode(), pp.original_size(), pp.letterbox(8, 8), pp.transform(), pp.tensor(dtype="uint8")]
    )
    assert pool.bytes_per_image(pipeline) == 3 * 8 * 8


@pytest.mark.parametrize(
    ("config", "pool_bytes", "expected"),
    [
        ({"max_batch_size": 64}, 64 << 20, False),  # Triton's default holds 111 float32 images of 3 x 224 x 224
        ({"max_batch_size": 64}, 3 * 64 * TENSOR, True),
        ({"max_batch_size": 64}, 3 * 64 * TENSOR - 1, False),
        ({"max_batch_size": 8, "instance_group": [{"count": 3}]}, 5 * 8 * TENSOR, True),
        ({"max_batch_size": 8, "instance_group": [{"count": 3}]}, 5 * 8 * TENSOR - 1, False),
    ],
)
def test_a_batch_in_each_step_and_one_that_waits_must_fit(config, pool_bytes, expected):
    assert pool.is_large_enough(PIPELINE, config, pool_bytes) is expected


def test_what_nobody_said_is_tritons_default():
    assert pool.known_bytes({}) == 64 << 20
    assert pool.known_bytes({pool.VARIABLE: "123"}) == 123


def test_the_pool_of_a_server_holds_the_images_of_every_pixprep_model(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "1").mkdir(parents=True)
        PIPELINE.save(tmp_path / name / "1" / "pipeline.json")
    assert cuda_pool.size(tmp_path, images_in_flight=512) == 2 * 512 * TENSOR
    assert cuda_pool.size(tmp_path, images_in_flight=1) == 64 << 20


def test_every_gpu_gets_the_pool():
    assert cuda_pool.options(123, gpus=2) == [f"--cuda-memory-pool-byte-size={gpu}:123" for gpu in (0, 1)]
    assert cuda_pool.options(123, gpus=0) == []
