"""Tests Triton with pixprep's model on a GPU and a classifier in CuPy: the contents of the responses, and the memory.

These tests need additional packages (see SERVED). They also need NumPy 1, which the embedded Triton requires, and
therefore CuPy 13. If something is missing, the tests are skipped with a message, or fail if PIXPREP_REQUIRE_SERVED=1.
"""

import importlib.util
import os
import time

import numpy as np
import pytest

SERVED = ("pytriton", "tritonclient", "psutil")
missing = [f"NO {name.upper()}" for name in SERVED if importlib.util.find_spec(name) is None]
missing += [f"NUMPY {np.__version__}"] * (not np.__version__.startswith("1."))
if missing and os.environ.get("PIXPREP_REQUIRE_SERVED") != "1":
    pytest.skip(f"{', '.join(missing)}: nothing is served (make gpu)", allow_module_level=True)

from pixprep.serving import repository  # noqa: E402
from pixprep.serving.triton import pool  # noqa: E402
from pixprep.serving.triton.watchdog import IDLE_S  # noqa: E402
from support import ensemble  # noqa: E402  (it needs these packages)
from support.serving import GOOD, PIPELINE, Oracle, ask_grpc, write_repository  # noqa: E402

pytestmark = pytest.mark.gpu

REQUESTS, REFUSALS, RELOADS = 5000, 2000, 100
FULL = 128  # number of requests to a server whose pool is full
RELOADING_S = 400  # time limit for the loads, because calls to a GPU machine are limited; fewer loads must suffice then
# maximum growth of device memory after one-time allocations; one leaked tensor per load would exceed it
KEPT = 64 << 20
GROWTH_MIB = 64  # maximum growth of a process's private memory, which varies by an eighth in Triton
ON_GPU, ON_CPU = "the tensor lies on the GPU", "the tensor lies on the CPU"
BY_CPU = "output tensors are copied to host memory"


@pytest.fixture(scope="module")
def models(tmp_path_factory, gpu):  # noqa: ARG001  (first it must be there)
    return write_repository(tmp_path_factory.mktemp("served") / "models", device="GPU")


@pytest.fixture(scope="module")
def oracle(models):  # noqa: ARG001  (first it must be there)
    oracle = Oracle(device="gpu")
    yield oracle
    oracle.close()


@pytest.fixture(scope="module")
def images(oracle):
    images = ensemble.photos(64)
    ensemble.assert_answers_can_be_told_apart(oracle, images)
    return images


@pytest.fixture(scope="module")
def running_triton(tmp_path_factory, oracle, models):
    """Start Triton with the memory pool of ``pixprep serve``."""
    folder = tmp_path_factory.mktemp("served") / "it"
    with ensemble.serve(folder, oracle, models, pool_bytes=pool.needed(PIPELINE)) as running_triton:
        yield running_triton


def ask_all(running_triton, images):
    """Send requests that fill the pool, first with one image each, and then with eight images each. Return the seconds
    that the requests with one image took.
    """
    start = time.monotonic()
    options = {"concurrency": ensemble.CONCURRENCY, "images": images, "models": ("ensemble",)}
    running_triton.steady(REQUESTS, sizes=(1,), **options)
    took_s = time.monotonic() - start
    running_triton.steady(REQUESTS // 10, sizes=(8,), **options)
    ensemble.assert_all_right(running_triton, REQUESTS + REQUESTS // 10)
    return took_s


def test_with_a_sufficient_pool_every_response_is_right_and_tensors_stay_on_the_gpu(running_triton, images, record):
    took_s = ask_all(running_triton, images)
    record("served", what="a large pool", requests=REQUESTS, seconds=round(took_s, 2))
    assert not ensemble.tensors_pass_the_host(running_triton, images)
    assert len(ensemble.said(running_triton, ON_GPU)) == 1
    assert not ensemble.said(running_triton, ON_CPU)
    assert not ensemble.said(running_triton, BY_CPU)
    assert not ensemble.said(running_triton, "failed to copy")


def test_tensors_for_clients_equal_the_engines(running_triton, images):
    """This test runs after the previous test, because tensors for clients pass through host memory."""
    before = running_triton.clients.sent
    running_triton.steady(500, concurrency=ensemble.CONCURRENCY, images=images, models=("preprocess",), sizes=(1, 8))
    assert running_triton.clients.sent == before + 500
    assert not running_triton.clients.notes
    assert set(running_triton.clients.counts) == {"right"}


def test_many_invalid_images_do_not_affect_memory_and_valid_neighbours(running_triton, free_bytes, record):
    running_triton.steady(REFUSALS // 4, images=ensemble.STORM)
    free, held = free_bytes(), running_triton.held(idle_s=IDLE_S + 2)
    before = running_triton.clients.sent
    running_triton.steady(REFUSALS, images=ensemble.STORM)
    assert running_triton.clients.sent == before + REFUSALS
    assert not running_triton.clients.notes
    now_free, now_held = free_bytes(), running_triton.held(idle_s=IDLE_S + 2)
    record("served", what="a storm of bad images", free_before=free, free_after=now_free, before=str(held))
    record("served", what="a storm of bad images", after=str(now_held))
    assert set(running_triton.clients.counts) == {"right"}
    assert_no_more_is_held(free, now_free, held, now_held)


def assert_no_more_is_held(free, now_free, held, now_held):
    assert free - now_free <= KEPT
    for name in ("preprocess", "tritonserver"):
        assert now_held.private_mib[name] <= held.private_mib[name] + GROWTH_MIB, name
    assert now_held.regions == held.regions


def test_100_loads_free_their_memory(running_triton, images, free_bytes, record):
    running_triton.reload(2)
    running_triton.steady(200, images=images)
    free, held = free_bytes(), running_triton.held(idle_s=IDLE_S + 2)
    start, loads, slowest = time.monotonic(), 0, 0.0
    while loads < RELOADS and time.monotonic() - start < RELOADING_S:
        slowest = max(slowest, running_triton.reload(5))
        loads += 5
    running_triton.steady(200, images=images)
    now_free, now_held = free_bytes(), running_triton.held(idle_s=IDLE_S + 2)
    record("served", what="loads", loads=loads, slowest_s=round(slowest, 2), free_before=free, free_after=now_free)
    record("served", what="loads", before=str(held), after=str(now_held), counts=dict(running_triton.clients.counts))
    assert not running_triton.clients.notes
    assert_no_more_is_held(free, now_free, held, now_held)


def test_with_tritons_default_pool_tensors_pass_through_the_cpu_with_one_warning(
    tmp_path, oracle, models, images, record
):
    """A pool of 64 MiB cannot hold a batch in each step and a waiting batch."""
    with ensemble.serve(tmp_path / "it", oracle, models) as running_triton:
        took_s = ask_all(running_triton, images)
        numbers = {"requests": REQUESTS, "seconds": round(took_s, 2)}
        record("served", what="Triton's own pool", **numbers)
        assert ensemble.tensors_pass_the_host(running_triton, images)
        assert len(ensemble.said(running_triton, BY_CPU)) == 1
        assert len(ensemble.said(running_triton, ON_CPU)) == 1
        assert not ensemble.said(running_triton, ON_GPU)


def test_with_a_full_pool_every_response_is_right_without_pinned_memory(tmp_path, oracle, models, images, record):
    """The tensors that do not fit into the pool are in ordinary host memory."""
    assert dict(with_a_full_pool(tmp_path / "it", oracle, models, images, record, pinned=False)) == {"right": FULL}


def test_with_a_full_pool_responses_are_garbage_with_pinned_memory(tmp_path, oracle, models, images, record):
    """As a negative control, this test shows the error that the comparison must detect."""
    assert with_a_full_pool(tmp_path / "it", oracle, models, images, record, pinned=True)["right"] < FULL


def with_a_full_pool(folder, oracle, models, images, record, *, pinned):
    """Return the results of requests to a backend that assumes a larger pool than the server has."""
    told = pool.needed(PIPELINE)
    with ensemble.serve(folder, oracle, models, pool_bytes=1 << 20, told_bytes=told, pinned=pinned) as running_triton:
        running_triton.steady(FULL, concurrency=ensemble.CONCURRENCY, images=images, models=("ensemble",), sizes=(8,))
        record(
            "served", what="a pool of 1 MiB, told otherwise", pinned=pinned, counts=dict(running_triton.clients.counts)
        )
        return running_triton.clients.counts


def test_the_cpu_model_returns_the_same_pixel_values_as_the_gpu_model(tmp_path, oracle, images, record):
    pairs = ensemble.write_pairs(tmp_path / "models", ("CPU", "GPU"))
    with ensemble.serve(tmp_path / "it", oracle, pairs) as running_triton:
        apart = ensemble.levels_apart(running_triton.clients.grpc(), [*images[:32], *GOOD])
    record("served", what="levels between the CPU and the GPU", **apart)
    assert apart["cpu"] == {"max": 0, "mean": 0.0}
    assert 0 < apart["consistent"]["mean"] <= 3.0


def test_onnx_runtimes_cuda_provider_uses_the_tensors_in_place(tmp_path, oracle, images):
    """The repository of ``pixprep build --classifier onnxruntime-gpu`` is compared with the same network on the CPU."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="NO ONNXRUNTIME: pip install onnxruntime-gpu")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip(f"NO CUDA PROVIDER in ONNX Runtime {onnxruntime.__version__}: pip install onnxruntime-gpu")
    pytest.importorskip("onnx", reason="NO ONNX: the demo's network cannot be written")
    repository.build(tmp_path / "models", pipeline=PIPELINE, classifier="onnxruntime-gpu")
    path = str(tmp_path / "models" / "classifier" / "1" / "model.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with ensemble.serve(
        tmp_path / "it", oracle, tmp_path / "models", pool_bytes=pool.needed(PIPELINE)
    ) as running_triton:
        logits = ask_grpc(running_triton.clients.grpc(), "ensemble", images, timeout_s=120)
        assert len(ensemble.said(running_triton, "is read in GPU memory without a copy")) == 1
        assert not ensemble.said(running_triton, "is copied from host memory to the GPU")
    (expected,) = session.run(["logits"], {"input": oracle.tensors("preprocess", images)})
    np.testing.assert_allclose(logits, expected, rtol=0, atol=0.01)
