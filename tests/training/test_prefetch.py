"""Tests the prefetching of batches and samples, and its limits."""

import threading
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest

from pixprep.engine.decoders import Limits
from pixprep.training.epoch import Prefetch
from pixprep.training.order import Part
from pixprep.training.reading import MAX_THREADS, Reader
from pixprep.training.timeline import Timeline


def test_no_more_items_are_prepared_than_may_wait():
    begun = [threading.Event() for _ in range(8)]

    def items():
        for event in begun:
            event.set()
            yield event

    ahead = Prefetch(items(), size=2, name="test", timeline=Timeline())
    ahead.start()
    try:
        assert begun[1].wait(20)
        assert not begun[2].wait(0.5)
        assert next(ahead) is begun[0]
        assert begun[2].wait(20)
        assert not begun[3].wait(0.5)
    finally:
        ahead.close()


def test_two_batches_are_read_ahead_of_the_delivered_one():
    parts = iter([Part(np.array([index]), np.zeros(1, bool), np.zeros(1, int), index + 1) for index in range(8)])
    reader = Reader([{"image": b"x", "name": str(index)} for index in range(8)], Limits(), Timeline())
    try:
        given = reader.ahead(parts, 0)
        assert next(given)[1][0].fields == {"name": "0"}
        assert next(parts).end == 4
        given.close()
    finally:
        reader.close()


def test_a_stopped_reader_abandons_started_and_pending_samples():
    begun, go_on, ended = threading.Semaphore(0), threading.Event(), []

    class Hanging(list):
        def __getitem__(self, index):
            begun.release()
            assert go_on.wait(60)
            return super().__getitem__(index)

    reader = Reader(Hanging([{"image": b"x"}] * 40), Limits(), Timeline())
    reader.width = 40  # this width is enough for 32 threads
    part = Part(np.arange(40), np.zeros(40, bool), np.zeros(40, int), 40)

    def wait():
        with pytest.raises(CancelledError):
            next(reader.ahead(iter([part]), 0))
        ended.append(True)

    waiter = threading.Thread(target=wait)
    waiter.start()
    for _ in range(MAX_THREADS):
        assert begun.acquire(timeout=60)
    while not reader._awaited:
        time.sleep(0.001)
    reader.stop()
    waiter.join(60)
    assert ended == [True]
    go_on.set()
    threads = [*reader._pool._threads]
    reader.close()
    for thread in threads:
        thread.join(60)
    assert not begun.acquire(blocking=False)  # no other sample was started
