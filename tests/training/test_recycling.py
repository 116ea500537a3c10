"""Tests that memory for encoded files is reused when nothing refers to it, and never earlier."""

import random

import numpy as np

from pixprep.training.recycling import BLOCK_BYTES, Blocks


def address(view):
    return np.frombuffer(view, np.uint8).ctypes.data


def test_memory_is_never_used_twice_and_is_reused_after_release():
    blocks, numbers = Blocks(), random.Random(3)
    held, places = {}, []
    for count in range(2000):
        size = numbers.choice([1, 100_000, BLOCK_BYTES // 3, BLOCK_BYTES, BLOCK_BYTES + 1])
        view = blocks.take(size)
        assert len(view) == size
        view[0] = view[-1] = count % 256
        held[count] = np.frombuffer(view, np.uint8)  # decoders make such an object of the view
        places.append(address(view))
        del view
        while len(held) > 10:
            gone = held.pop(numbers.choice(list(held)))
            del gone
        assert all(array[0] == array[-1] == number % 256 for number, array in held.items())
    assert len({place // BLOCK_BYTES for place in places}) < 60


def test_a_small_view_keeps_its_whole_block_and_a_cleared_block_stays_with_its_user():
    blocks = Blocks()
    view = blocks.take(BLOCK_BYTES)
    view[5] = 7
    part = view[5:6]
    del view
    other = blocks.take(BLOCK_BYTES)
    other[5] = 9
    blocks.clear()
    third = blocks.take(BLOCK_BYTES)
    third[5] = 11
    assert (part[0], other[5]) == (7, 9)
    begin = address(third)
    del third
    assert address(blocks.take(BLOCK_BYTES)) == begin
