"""Tests the memory, threads and processes of a Loader, its cache, and that everything is cleaned up."""

import gc
import pickle
import signal
import threading
import time
import tracemalloc
import weakref

import numpy as np
import pytest

import pixprep as pp
from support.loading import RANDOM, encoded, expected, loader, run, same, samples


def test_cached_pixels_give_the_same_batches_without_reading_files_again(tmp_path):
    source = []
    for index in range(16):
        (tmp_path / f"{index}.jpg").write_bytes(encoded(index))
        source.append({"image": tmp_path / f"{index}.jpg", "label": index})
    with loader(source, pipeline=RANDOM, shuffle=True) as plain:
        epochs = [list(plain) for _ in range(2)]
    with loader(source, pipeline=RANDOM, shuffle=True, cache="pixels") as ours:
        first = list(ours)
        assert ours.stats().cached == 16
        for sample in source:
            sample["image"].unlink()
        second = list(ours)
    assert all(same(one, other) for one, other in zip(first + second, epochs[0] + epochs[1], strict=True))


def test_the_cache_is_bounded():
    largest = 36 * 44 * 4
    with loader(cache="pixels", cache_bytes=5 * largest) as ours:
        list(ours)
        list(ours)
        assert 5 <= ours.stats().cached < 10
        assert f"the pixels of {ours.stats().cached} samples are cached" in str(ours.stats())


def test_memory_and_threads_are_freed_when_the_iterator_is_deleted_mid_epoch():
    with loader(prefetch=4, batch_size=4) as ours:
        batch = next(batches := iter(ours))
        gone = weakref.ref(batch)
        assert any(thread.name == "pixprep-loader" for thread in threading.enumerate())
        del batches, batch
        assert gone() is None
        assert not any(thread.name.startswith(("pixprep-loader", "pixprep-read")) for thread in threading.enumerate())
        assert len(list(ours)) == 10


def test_memory_is_kept_for_the_next_epoch_and_freed_when_one_is_abandoned():
    tracemalloc.start()
    try:
        with loader(batch_size=8) as ours:
            for batch in ours:  # noqa: B007
                pass
            n_bytes = batch["tensor"].nbytes
            del batch
            assert _traced("recycling.py") >= n_bytes
            next(batches := iter(ours))
            del batches
            assert _traced("recycling.py") < n_bytes
            list(ours)
        assert _traced("recycling.py") < n_bytes
    finally:
        tracemalloc.stop()


def _traced(name):
    """Return how many bytes were allocated in a source file and are not freed."""
    only = tracemalloc.Filter(inclusive=True, filename_pattern=f"*/{name}")
    return sum(each.size for each in tracemalloc.take_snapshot().filter_traces([only]).traces)


def test_no_more_batches_are_prepared_than_prefetch_allows():
    class Counted(list):
        asked = 0

        def __getitem__(self, index):
            self.asked += 1
            return super().__getitem__(index)

    source = Counted(samples(400))
    with loader(source, prefetch=2) as ours:
        batches = iter(ours)
        next(batches)
        deadline = time.monotonic() + 20
        while len(batches._ready._ready) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        # 1 delivered, 2 ready or in preparation, 1 read for the engine, 2 read ahead
        assert source.asked <= 8 * (1 + 2 + 1 + 2)


def test_arrays_are_reused_only_after_the_consumer_has_released_them():
    with loader(samples(40), batch_size=4) as ours:
        kept = list(ours)
    assert len({batch["tensor"].ctypes.data for batch in kept}) == 10
    for batch in kept:
        for row, index in enumerate(batch["index"].tolist()):
            assert np.array_equal(batch["tensor"][row], expected(index))
    with loader(samples(40), batch_size=4, prefetch=1) as ours:
        view = None
        places = set()
        for number, batch in enumerate(ours):
            if number == 0:
                view = batch["tensor"][1:2, 0]
                first = batch["index"].tolist()
            places.add(batch["tensor"].ctypes.data)
        assert np.array_equal(view[0], expected(first[1])[0])
    assert len(places) < 6
    assert all(place % 64 == 0 for place in places)


def test_a_newer_epoch_ends_the_older_one():
    with loader() as ours:
        older = iter(ours)
        next(older)
        newer = iter(ours)
        next(newer)
        with pytest.raises(pp.SetupError, match="this epoch has ended, because a new one was started"):
            next(older)
        assert len(list(newer)) == 4


def test_a_deleted_loader_leaves_no_thread():
    before = {thread.ident for thread in threading.enumerate()}
    ours = loader()
    next(iter(ours))
    list(ours)
    del ours
    gc.collect()
    deadline = time.monotonic() + 20
    while {thread.ident for thread in threading.enumerate()} - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert {thread.ident for thread in threading.enumerate()} <= before


@pytest.mark.parametrize(
    ("code", "returned", "said"),
    [
        ("batches = iter(loader); next(batches)", 0, ""),
        ("for batch in loader: raise SystemExit(3)", 3, ""),
        (
            "import os, signal\nfor batch in loader: os.kill(os.getpid(), signal.SIGINT)",
            -signal.SIGINT,
            "KeyboardInterrupt",
        ),
        ("for batch in loader: 1 / 0", 1, "ZeroDivisionError"),
    ],
    ids=["the end of the program", "exit", "Ctrl-C", "an exception"],
)
def test_a_process_exits_cleanly_mid_epoch(code, returned, said):
    result = run(code)
    assert result.returncode == returned
    assert said in result.stderr if said else result.stderr == ""
    assert "Exception ignored" not in result.stderr
    assert "Fatal" not in result.stderr


@pytest.mark.parametrize(
    ("body", "returned", "said"),
    [
        ("interrupt()\nfor batch in hanging: pass", -signal.SIGINT, ""),
        ("interrupt()\ntry:\n    for batch in hanging: pass\nexcept KeyboardInterrupt: print('caught')", 0, "caught"),
        ("next(iter(hanging)); print('left')", 0, "left"),
        ("for batch in hanging: break\nlist(loader); hanging.close(); print('closed')", 0, "closed"),
        ("for batch in replacing: time.sleep(1); break\nreplacing.close(); print('closed')", 0, "closed"),
    ],
    ids=["Ctrl-C", "a Ctrl-C that is caught", "the end of the program", "break", "break while a sample is replaced"],
)
def test_an_abandoned_epoch_does_not_wait_for_a_sample_that_never_arrives(body, returned, said):
    code = (
        "import os, signal, threading, time\n"
        "class Hanging(list):\n"
        "    def __getitem__(self, index):\n"
        "        if index >= 8: threading.Event().wait()\n"
        "        return super().__getitem__(index)\n"
        "def interrupt(): threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "hanging = pp.Loader(Hanging(samples(64)), PLAIN, batch_size=4, threads=2)\n"
        "class Broken(Hanging):\n"  # the second batch has a broken sample, whose replacement never arrives
        "    seen = 0\n"
        "    def __getitem__(self, index):\n"
        "        Broken.seen += 1\n"
        "        if index == 5: return {'image': b'no image'}\n"
        "        return super().__getitem__(index if index < 8 and Broken.seen < 9 else 8)\n"
        "replacing = pp.Loader(Broken(samples(9)), PLAIN, batch_size=4, threads=2, last='drop', on_error='replace')\n"
    )
    result = run(code + body)
    assert (result.returncode, result.stdout.strip()) == (returned, said)
    assert not set(result.stderr.split()) & {"Fatal", "ignored"}


def test_no_sample_is_started_after_an_epoch_is_abandoned():
    begun, go_on = [], threading.Event()

    class Gated(list):
        def __getitem__(self, index):
            begun.append(index)
            if index >= 8:
                assert go_on.wait(60)
            return super().__getitem__(index)

    with loader(Gated(samples(64)), batch_size=8) as ours:
        next(batches := iter(ours))
        while len(begun) < 12:  # wait for the first samples of the threads' chunks
            time.sleep(0.001)
        readers = [thread for thread in threading.enumerate() if thread.name == "pixprep-read"]
        del batches
        go_on.set()
        for thread in readers:
            thread.join(60)
    assert not [index for index in begun if index >= 8 and index % 8 >= 4]  # at most four samples, one per thread


def test_cached_pixels_are_not_used_for_a_changed_image():
    source = samples(8)
    with loader(source, cache="pixels") as ours:
        list(ours)
        source[2], source[5] = {**source[2], "image": encoded(31)}, {**source[5], "label": 7}
        (batch,) = ours
    assert [*batch["label"]] == [0, 1, 2, 0, 1, 7, 0, 1]
    for index, tensor in enumerate(batch["tensor"]):
        assert np.array_equal(tensor, expected(31 if index == 2 else index))


def test_a_fork_is_rejected_and_exits():
    code = (
        "import os, sys\n"
        "batches = iter(loader); next(batches)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    for each in (lambda: next(batches), lambda: iter(loader), lambda: loader.replay(0, 1)):\n"
        "        try: each()\n"
        "        except pp.SetupError as error: print(error, flush=True)\n"
        "    sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(list(batches)))\n"
    )
    result = run(code)
    words = (
        "a Loader works only in the process that created it, not in a fork of it: create a Loader in each process that "
        "needs one; with a PyTorch DataLoader, use num_workers=0, because the Loader reads and decodes in its own "
        "threads"
    )
    assert result.stdout.splitlines() == [words] * 3 + ["7 49"]
    assert result.stderr == ""


def test_a_loader_cannot_be_sent_to_another_process():
    words = "a Loader cannot be pickled or sent to another process: create a Loader in each process"
    with loader() as ours, pytest.raises(pp.SetupError, match=words):
        pickle.dumps(ours)
