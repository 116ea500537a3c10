"""Batches made and read ahead of who asks, and no more."""

import threading

import numpy as np

from pixprep.engine.decoders import Limits
from pixprep.training.order import Part
from pixprep.training.prefetch import Prefetch
from pixprep.training.reading import Reader
from pixprep.training.timeline import Timeline


def test_no_more_items_are_made_ahead_than_may_wait():
    begun = [threading.Event() for _ in range(8)]

    def items():
        for event in begun:
            event.set()
            yield event

    ahead = Prefetch(items(), most=2, name="test", timeline=Timeline())
    ahead.start()
    try:
        assert begun[1].wait(20)
        assert not begun[2].wait(0.5)
        assert next(ahead) is begun[0]
        assert begun[2].wait(20)
        assert not begun[3].wait(0.5)
    finally:
        ahead.close()


def test_two_batches_are_read_ahead_of_the_one_that_is_given():
    parts = iter([Part(np.array([index]), np.zeros(1, bool), np.zeros(1, int), index + 1) for index in range(8)])
    reader = Reader([{"image": b"x", "name": str(index)} for index in range(8)], Limits(), Timeline())
    try:
        given = reader.ahead(parts)
        assert next(given)[1][0].fields == {"name": "0"}
        assert next(parts).end == 4
        given.close()
    finally:
        reader.close()
