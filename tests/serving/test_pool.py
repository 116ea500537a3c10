"""Tests of the CUDA memory pool: its size is computed from the model, and tensors are copied through the CPU if it is
too small.
"""

import pytest

import pixprep as pp
from pixprep.serving.repository.repository import Repository
from pixprep.serving.triton import pool

PIPELINE = pp.presets.imagenet()
TENSOR = 4 * 3 * 224 * 224


def test_a_pool_holds_the_images_in_flight_and_half_as_many_more():
    assert pool.bytes_per_image(PIPELINE) == TENSOR
    assert pool.needed(PIPELINE, images_in_flight=100) == 150 * TENSOR


def test_outputs_that_are_not_images_use_no_space_in_the_pool():
    pipeline = pp.Pipeline(
        [pp.decode(), pp.original_size(), pp.letterbox(8, 8), pp.transform(), pp.tensor(dtype="uint8")]
    )
    assert pool.bytes_per_image(pipeline) == 3 * 8 * 8


@pytest.mark.parametrize(
    ("config", "images"),
    [
        ({}, 3 * 64),
        ({"max_batch_size": 32}, 3 * 32),
        ({"max_batch_size": 8, "instance_group": [{"count": 3}]}, 5 * 8),
        ({"max_batch_size": 64, "instance_group": [{"count": 8}]}, 10 * 64),
    ],
)
def test_a_batch_in_each_step_and_a_waiting_one_must_fit(config, images):
    smallest = pool.needed(PIPELINE, images_in_flight=images)
    for short in (0, 1):
        environment = pool.variables(smallest - short)
        said = pool.gpu_output_problem(PIPELINE, config, gpu="0", environment=environment)
        assert (said is None) == (short == 0)
    size = max(smallest, pool.needed(PIPELINE, images_in_flight=512))
    assert f"--cuda-memory-pool-byte-size=0:{size} " in said


def test_the_default_is_tritons():
    assert pool.known_bytes({}) == 64 << 20
    assert pool.known_bytes({pool.VARIABLE: "123"}) == 123


def test_the_pool_of_a_server_holds_the_images_of_every_pixprep_model(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "1").mkdir(parents=True)
        PIPELINE.save(tmp_path / name / "1" / "pipeline.json")
    pipelines = [version.pipeline for version in Repository(tmp_path).pipelines.values()]
    assert pool.size(pipelines, images_in_flight=512) == 3 * 512 * TENSOR
    assert pool.size(pipelines, images_in_flight=1) == 64 << 20


def test_every_gpu_gets_the_pool_and_the_host_no_pinned_memory():
    sizes = [f"--cuda-memory-pool-byte-size={gpu}:123" for gpu in (0, 1)]
    assert pool.options(123, gpus=2) == [*sizes, "--pinned-memory-pool-byte-size=0"]


CONFIG = {"max_batch_size": 8}
LARGE = pool.needed(PIPELINE)
REMEDY = (
    f"; start Triton with --cuda-memory-pool-byte-size=1:{LARGE} --pinned-memory-pool-byte-size=0, "
    f"PIXPREP_CUDA_POOL_BYTES={LARGE} and PIXPREP_PINNED_POOL_BYTES=0"
)


PINNED = "with a pinned memory pool, Triton returns garbage when its CUDA memory pool is full"
SMALL = "the CUDA memory pool of 5 MiB is too small"


@pytest.mark.parametrize(
    ("n_bytes", "pinned", "fault"),
    [
        (LARGE, "0", None),
        (LARGE, None, PINNED),
        (LARGE, "268435456", PINNED),
        (5 << 20, "0", SMALL),
        (5 << 20, None, SMALL),
    ],
)
def test_tensors_stay_on_the_gpu_if_the_pool_is_large_and_none_is_pinned_under_serve(n_bytes, pinned, fault):
    environment = pool.variables(n_bytes) | {"PIXPREP_PINNED_POOL_BYTES": pinned or ""}
    assert pool.gpu_output_problem(PIPELINE, CONFIG, gpu="1", environment=environment) == (fault and fault + REMEDY)
