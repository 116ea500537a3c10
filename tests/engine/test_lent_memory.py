"""Tests that the memory of large arrays is reused as soon as no array refers to it, and never earlier."""

import gc
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine import cpu
from pixprep.engine.cpu import Cpu
from support.images import jpeg, scene

SHAPE = 9, 3, 640, 640  # 44 MB of float32


def at(array):
    return array.ctypes.data


@pytest.fixture
def device():
    return Cpu(1)


def test_a_large_array_reuses_the_memory_of_a_freed_one():
    device = Cpu(1)
    array = device.empty(SHAPE, "float32")
    assert (array.shape, array.dtype, array.flags.writeable, array.flags.c_contiguous) == (
        SHAPE,
        np.float32,
        True,
        True,
    )
    where = at(array)
    del array
    assert at(device.empty((7, 3, 640, 640), "float32")) == where
    assert at(device.empty(SHAPE, "float32")) == where  # the smaller array did not shrink the kept memory


@pytest.mark.parametrize(
    "of",
    [
        lambda array: array[1],
        lambda array: array[0][::2].T,
        lambda array: memoryview(array)[3:],
        lambda array: np.frombuffer(array.data, np.uint8),
        lambda array: np.from_dlpack(array[2]),
        lambda array: np.asarray(array[2]).view(np.uint8),
    ],
)
def test_any_reference_to_an_array_keeps_its_memory(device, of):
    view = of(device.empty((9, 64, 64, 32), "float32"))
    gc.collect()
    others = [device.empty((9, 64, 64, 32), "float32") for _ in range(3)]
    for other in others:
        assert not np.shares_memory(np.asarray(view), other)
    assert len({at(other) for other in others}) == 3


def test_the_previous_batch_can_live_until_the_next_one_exists(device):
    places = set()
    batch = None
    for _ in range(9):
        batch = device.empty((1 << 20,), "uint8")
        places.add(at(batch))
    assert len(places) == 2


def test_larger_much_smaller_and_small_arrays_get_their_own_memory(device):
    kept = device.empty((1 << 21,), "uint8")
    where = at(kept)
    del kept
    larger = device.empty((1 << 22,), "uint8")
    larger[-1] = 1
    smaller = device.empty(((1 << 20) - 1,), "uint8")
    assert smaller.flags.owndata
    assert at(larger) != where
    assert at(device.empty((1 << 20,), "uint8")) == where  # half of the size of the kept memory


def test_the_arrays_of_a_batch_with_one_array_per_image_are_all_reused(device):
    sizes = [(1 << 20) + 4096 * n for n in (5, 0, 9, 3)]
    batch = [device.empty((size,), "uint8") for size in sizes]
    places = {at(array) for array in batch}
    del batch
    batch = [device.empty((size,), "uint8") for size in sizes]
    assert {at(array) for array in batch} == places
    assert not device._spare


def test_the_kept_memory_has_at_most_512_mib(device, monkeypatch):
    assert cpu._MAX_REUSED == 512 << 20
    monkeypatch.setattr(cpu, "_MAX_REUSED", 3 << 20)
    arrays = [device.empty((1 << 20,), "uint8") for _ in range(4)]
    places = [at(array) for array in arrays]
    while arrays:
        del arrays[0]
    assert [address for _, address in device._spare] == places[1:]
    assert device.empty(((3 << 20) + 1,), "uint8").flags.owndata


def test_trim_keeps_no_memory_after_arrays_in_use_are_freed(device):
    used = device.empty((1 << 20,), "uint8")
    del used
    used = device.empty((1 << 20,), "uint8")
    device.trim()
    used[:] = 7
    del used
    assert not device._spare


def test_trim_frees_unused_memory_while_another_array_is_in_use():
    device = Cpu(1)
    before = mapped()
    used, other = (device.empty(SHAPE, "float32") for _ in range(2))
    del other
    device.trim()
    assert mapped() < before + used.nbytes * 3 // 2


def test_arrays_that_outlive_their_device_keep_no_other_memory():
    device = Cpu(1)
    before = mapped()
    used, other = (device.empty(SHAPE, "float32") for _ in range(2))
    del device
    del other
    assert mapped() < before + used.nbytes * 3 // 2


def test_an_array_that_is_deleted_at_the_exit_of_python_causes_no_message():
    code = """import sys
from pixprep.engine.cpu import Cpu
device = Cpu(1)
sys.modules["both"] = device, device.empty((1 << 20,), "uint8")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def mapped():
    """Return the size of the process's virtual memory in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()


def test_another_thread_can_take_the_memory_after_a_lookup():
    class Raced(cpu._Spare):
        def pop(self, key, default):
            del self[key]
            return super().pop(key, default)

    spare = Raced()
    spare.keep(np.empty(1 << 20, np.uint8))
    assert spare.take(1 << 20).size == 1 << 20
    assert not spare


def test_a_failed_image_has_zeros_in_reused_memory(monkeypatch):
    monkeypatch.setattr(cpu, "_MIN_REUSED", 1 << 10)
    photos = [jpeg(scene(40, 50, seed)) for seed in range(3)]
    with pp.Engine(pp.Pipeline([pp.decode(), pp.resize(height=32, width=32), pp.tensor()]), threads=1) as engine:
        expected = engine.run_batch(photos).outputs["tensor"].copy()
        batch = engine.run_batch([photos[2], b"no image", photos[0]])
        assert len(engine._device._spare) == 0
    assert not batch.outputs["tensor"][1].any()
    assert np.array_equal(batch.outputs["tensor"][::2], expected[[2, 0]])
