"""Tests that the Loader on a GPU matches the CPU: epochs, random parameters and states, the device of the batches, and
memory.
"""

import gc
import json
import threading
import time
import weakref

import numpy as np
import pytest

import pixprep as pp
from support.images import JUNK
from support.loading import samples

pytestmark = pytest.mark.gpu

LARGEST_MEAN = 4.0  # maximum mean difference of pixel values over an image, as in tests/gpu/hardware/test_engine.py
KEPT = 40 << 20
"""Maximum growth in bytes of CUDA's own memory pool. Five batches would exceed it."""
SAMPLES = [*samples(39), {"image": JUNK["text"], "label": 0, "name": "junk"}]


RANDOM = [
    pp.random_resized_crop(height=24, width=24),
    pp.random_flip(),
    pp.color_jitter(brightness=0.4, hue=0.1),
    pp.resize(height=24, width=24, only="serving"),
]
PIPELINE = pp.Pipeline([pp.decode(), *RANDOM, pp.tensor(dtype="uint8")]).for_training()


@pytest.fixture
def loader(gpu):  # noqa: ARG001  (first it must be there)
    """Return ``loader(device)``, which creates a Loader with a shuffled order and a broken sample.

    The Loader is closed after the test.
    """
    made = []

    def loader(device="gpu", **options):
        given = {"batch_size": 8, "shuffle": True, "seed": 3, "on_error": "replace", "max_errors": 1} | options
        made.append(pp.Loader(SAMPLES, PIPELINE, device=device, **given))
        return made[-1]

    yield loader
    for each in made:
        each.close()


def assert_same(ours, expected, largest_mean):
    """Compare samples and random parameters exactly, and each image's tensor by its mean difference."""
    assert len(ours) == len(expected)
    for batch, their in zip(ours, expected, strict=True):
        assert batch.draws == their.draws
        assert batch["name"] == their["name"]
        for name in ("index", "attempt", "is_padding", "label"):
            assert np.array_equal(batch[name], their[name]), name
        levels = np.abs(batch["tensor"].get().astype(int) - their["tensor"]).mean(axis=(1, 2, 3))
        assert levels.max() <= largest_mean, f"image {levels.argmax()}: a mean difference of {levels.max():.3f} levels"


@pytest.mark.parametrize(
    ("decoder", "largest_mean"),
    [("consistent", LARGEST_MEAN), ("cuda", LARGEST_MEAN), ("cpu", 0)],
)
def test_epochs_equal_those_of_the_cpu(loader, decoder, largest_mean):
    """With libjpeg-turbo as the decoder, every value is equal, even after colour ops."""
    ours, theirs = loader(decoder=decoder), loader("cpu")
    for _ in range(2):
        assert_same(list(ours), list(theirs), largest_mean)
    assert [(each.index, str(each.error)) for each in ours.errors] == [
        (each.index, str(each.error)) for each in theirs.errors
    ]
    assert [each.name for each in ours.errors] == ["junk"]


def test_a_different_seed_is_detected(loader):
    """As a negative control, the same samples with different random parameters exceed the bound."""
    options = {"shuffle": False, "decoder": "cpu"}
    ours, theirs = list(loader(seed=4, **options)), list(loader("cpu", seed=3, shuffle=False))
    for batch, their in zip(ours, theirs, strict=True):
        levels = np.abs(batch["tensor"].get().astype(int) - their["tensor"]).mean(axis=(1, 2, 3))
        assert levels.max() > LARGEST_MEAN


def test_an_epoch_begun_on_the_cpu_ends_on_the_gpu(loader):
    theirs = loader("cpu")
    batches = iter(theirs)
    for _ in range(2):
        next(batches)
    state = json.loads(json.dumps(theirs.state_dict()))
    rest = list(batches)
    ours = loader(decoder="cpu")
    ours.load_state_dict(state)
    assert len(rest) == 3
    assert_same(list(ours), rest, 0)
    assert_same(list(ours), list(theirs), 0)  # the next epoch is also equal


def test_batches_stay_on_the_gpu_and_are_handed_over_without_a_copy(cupy, loader):
    kept = []
    for batch in loader():
        assert isinstance(batch["tensor"], cupy.ndarray)
        assert batch["tensor"].flags.c_contiguous
        images, labels, names = batch.cupy("tensor", "label", "name")
        assert isinstance(images, cupy.ndarray)
        assert images.data.ptr == batch["tensor"].data.ptr
        assert isinstance(labels, cupy.ndarray)
        assert labels.get().tolist() == batch["label"].tolist()
        assert names == batch["name"]
        kept.append((images, images.get()))
    assert len({images.data.ptr for images, _ in kept}) == 5
    for images, before in kept:  # no later batch has overwritten one that is still in use
        assert np.array_equal(images.get(), before)


def threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("pixprep")}


def partly_iterated(batch_size=16):
    """Return a Loader in the middle of an epoch of four batches, its iterator, and the batch that it delivered, which
    has 9.6 MB.
    """
    steps = [pp.random_resized_crop(height=224, width=224), pp.resize(height=224, width=224, only="serving")]
    plain = pp.Pipeline([pp.decode(), *steps, pp.tensor()]).for_training()
    ours = pp.Loader(samples(4 * batch_size), plain, batch_size=batch_size, device="gpu")
    batches = iter(ours)
    return ours, batches, next(batches)


@pytest.mark.parametrize("is_closed", [True, False])
def test_an_iterator_deleted_mid_epoch_frees_its_memory(gpu, free_bytes, record, is_closed):  # noqa: ARG001
    already = threads()

    def cycle():
        ours, batches, batch = partly_iterated()
        dropped = weakref.ref(batch)
        del batch, batches
        gc.collect()
        assert dropped() is None
        if is_closed:
            ours.close()
        del ours

    def free_once_ended():
        gc.collect()
        deadline = time.monotonic() + 20
        while threads() - already and time.monotonic() < deadline:
            time.sleep(0.01)
        assert threads() <= already
        return free_bytes()

    cycle()
    before = free_once_ended()
    for _ in range(6):
        cycle()
    after = free_once_ended()
    record("device memory", what=f"6 epochs left, closed: {is_closed}", free_before=before, free_after=after)
    assert before - after <= KEPT


def test_an_abandoned_epoch_keeps_no_memory_in_a_live_loader(gpu, free_bytes, record):  # noqa: ARG001
    ours, batches, batch = partly_iterated()
    del batches, batch
    before = free_bytes()
    for _ in range(6):
        batches = iter(ours)
        next(batches)
        del batches
    after = free_bytes()
    record("device memory", what="6 epochs left, of one Loader", free_before=before, free_after=after)
    assert before - after <= KEPT
    assert len(list(ours)) == 4
    ours.close()
