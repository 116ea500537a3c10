"""Tests an engine on a GPU that runs out of memory: only the images that do not fit fail."""

import numpy as np
import pytest

import pixprep as pp

pytest.importorskip("nvidia.nvimgcodec", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
from gpu.fake_cupy import Memory, OutOfMemoryError
from gpu.played import baseline, jpeg, on_gpu, same
from support.images import noise, png

SQUARE = pp.Pipeline([pp.decode(), pp.resize(height=36, width=36, like="pillow12"), pp.tensor(dtype="uint8")])
OPEN = pp.Pipeline([pp.decode(), pp.resize(40, max_size=9000), pp.normalize(), pp.tensor()])
HUGE = {
    "its intermediate image": (SQUARE, jpeg(16000, 40, quality=20)),
    "its decoded pixels": (SQUARE, png(noise(900, 900))),
    "its tensor": (OPEN, jpeg(40, 8000, quality=20)),
}


@pytest.fixture
def free(monkeypatch):
    """Return ``free(n)``, which limits the free memory to ``n`` bytes."""

    def limited(n_bytes):
        monkeypatch.setattr(Memory, "limit", Memory.settled() + n_bytes)

    return limited


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", HUGE)
@pytest.mark.parametrize("place", [0, 9, 16])
def test_only_an_image_that_does_not_fit_fails(free, monkeypatch, name, place):
    pipeline, huge = HUGE[name]
    images = baseline(16)
    images.insert(place, huge)
    with on_gpu(pipeline) as engine, pp.Engine(pipeline) as cpu:
        expected = cpu.run_batch(images)
        engine.trim()
        free(1_500_000)
        batch = engine.run_batch(images)
        failed = {row: error.reason for row, error in enumerate(batch.errors) if error is not None}
        assert failed == {place: "NO_MEMORY"}
        assert not batch["tensor"][place].any()
        monkeypatch.setattr(Memory, "limit", None)
        for rows in ({*range(17)} - {place}, range(17)):
            assert all(np.array_equal(batch["tensor"][row], expected["tensor"][row]) for row in rows)
            batch = engine.run_batch(images)


@pytest.mark.usefixtures("gpu")
def test_cached_memory_is_freed_before_an_image_fails(free):
    """The engine caches the memory for the intermediate images of the large batch."""
    large, small = [jpeg(2000, 64, seed, quality=20) for seed in range(4)] * 4, baseline(64)
    with on_gpu(SQUARE) as engine, pp.Engine(SQUARE) as cpu:
        engine.run_batch(large)
        free(0)
        same(engine.run_batch(small), cpu.run_batch(small))


@pytest.mark.usefixtures("gpu")
def test_outputs_that_do_not_fit_raise_an_error_and_the_next_batch_works(free):
    with on_gpu(SQUARE) as engine, pp.Engine(SQUARE) as cpu:
        free(0)
        engine.trim()
        with pytest.raises(OutOfMemoryError, match="Out of memory allocating"):
            engine.run_batch(baseline(4) * 200)
        same(engine.run_batch(baseline(4)), cpu.run_batch(baseline(4)))
