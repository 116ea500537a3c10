"""Tests that batches are handed to a GPU while it works, on a PyTorch mocked with NumPy whose streams run late and in
any order.
"""

import random
import sys
import weakref
from collections import defaultdict, deque
from itertools import chain
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import pixprep as pp
from pixprep.errors import PipelineError
from pixprep.training import recycling
from support.loading import TRAINING, samples

COUNT, SIZE = 80, 8


class Late:
    """GPU whose streams run only when the test requests it, and whose memory pools, one per stream, reuse memory."""

    def __init__(self, seed=0):
        self.random = random.Random(seed)
        self.streams, self.pinned, self.pool = [], [], defaultdict(list)
        self.current = self.default = Stream(self)

    def advance(self, steps):
        """Run up to ``steps`` steps. Each step is the next one of a random stream that is not waiting."""
        for _ in range(steps):
            ready = [each for each in self.streams if each.is_ready()]
            if not ready:
                return
            self.random.choice(ready).run()

    def memory(self, like):
        """Return memory for the current stream, either from the stream's pool or newly allocated."""
        pool = self.pool[self.current, like.shape]
        for place, (_, events) in enumerate(pool):
            if all(event.query() for event in events):
                return pool.pop(place)[0]
        return np.full_like(like, 99)


class Stream:
    def __init__(self, gpu):
        self.gpu, self.queue, self.done = gpu, deque(), 0
        gpu.streams.append(self)

    def add(self, work, wait=None):
        self.queue.append((work, wait))

    def is_ready(self):
        return bool(self.queue) and (self.queue[0][1] is None or self.queue[0][1].query())

    def run(self):
        self.queue.popleft()[0]()

    def record_event(self):
        event = Event()
        self.add(event.end)
        return event

    def wait_event(self, event):
        self.add(lambda: None, event)


class Event:
    is_over = False

    def end(self):
        self.is_over = True

    def query(self):
        return self.is_over


class Dtype(str):
    __slots__ = ()
    is_floating_point = property(lambda self: self != "uint8")


class Tensor:
    """Array on the host, or memory on the GPU that returns to the pool of its stream when it is no longer
    referenced.
    """

    def __init__(self, gpu, array, stream=None):
        self.gpu, self.array, self.stream, self.users = gpu, array, stream, []
        self.device = SimpleNamespace(type="cuda" if stream else "cpu")

    def __del__(self):
        if self.stream:
            self.gpu.pool[self.stream, self.array.shape].append(
                (self.array, [user.record_event() for user in self.users])
            )

    def is_floating_point(self):
        return self.array.dtype.kind == "f"

    def is_pinned(self):
        place = self.array.ctypes.data
        return any(0 <= place - begin.ctypes.data < begin.nbytes for begin in self.gpu.pinned)

    def pin_memory(self):
        pinned = self.gpu.empty(self.array.nbytes).view(self.array.dtype).reshape(self.array.shape)
        pinned[...] = self.array
        return Tensor(self.gpu, pinned)

    def numpy(self):
        return self.array

    def record_stream(self, stream):
        self.users.append(stream)

    def to(self, where, non_blocking=False):
        if isinstance(where, Dtype):
            target, source = np.full(self.array.shape, 99, np.float16), self.array
            self.gpu.current.add(lambda: target.__setitem__(..., source))
            return Tensor(self.gpu, target, self.gpu.current)
        if where.type == self.device.type:
            return self
        assert non_blocking
        assert self.is_pinned()
        target, place, like = self.gpu.memory(self.array), self.array.ctypes.data, self.array
        raw = np.frombuffer((np.ctypeslib.ctypes.c_char * like.nbytes).from_address(place), like.dtype).reshape(
            like.shape
        )
        # raw does not keep the array alive, because a GPU copies without a reference
        self.gpu.current.add(lambda: target.__setitem__(..., raw))
        return Tensor(self.gpu, target, self.gpu.current)


class Using:
    def __init__(self, gpu, stream):
        self.gpu, self.stream = gpu, stream

    def __enter__(self):
        self.before, self.gpu.current = self.gpu.current, self.stream

    def __exit__(self, *_):
        self.gpu.current = self.before


@pytest.fixture
def play(monkeypatch):
    """Return ``play(seed)``, which creates a ``Late`` GPU and mocks PyTorch on top of it."""

    def played(seed):
        gpu = Late(seed)

        def empty(n_bytes, **options):
            assert options in ({}, {"dtype": Dtype("uint8"), "pin_memory": True})
            memory = np.empty(n_bytes, np.uint8)
            gpu.pinned.append(memory)
            view = np.frombuffer(memory.data, np.uint8)
            return Tensor(gpu, view) if options else view

        gpu.empty = empty
        torch, data = ModuleType("torch"), ModuleType("torch.utils.data")
        data.IterableDataset = object
        torch.__dict__.update(
            empty=empty,
            dtype=Dtype,
            uint8=Dtype("uint8"),
            float16=Dtype("float16"),
            device=lambda name: SimpleNamespace(type=name, index=0),
            from_dlpack=lambda array: array if isinstance(array, Tensor) else Tensor(gpu, array),
            cuda=SimpleNamespace(
                current_stream=lambda _: gpu.current,
                current_device=lambda: 0,
                Stream=lambda _: Stream(gpu),
                stream=lambda stream: Using(gpu, stream),
            ),
        )
        side = Stream(gpu)
        for name, module in {"torch": torch, "torch.utils": ModuleType("u"), "torch.utils.data": data}.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.delitem(sys.modules, "pixprep.training.frameworks.torch", raising=False)
        import pixprep.training.frameworks.torch as ours  # noqa: PLC0415  (again)

        monkeypatch.setattr(ours, "_stream", lambda device, current: side)  # noqa: ARG005  (a namespace has no hash)
        return gpu, side

    monkeypatch.setattr(recycling.COPIES, "allocate", recycling.COPIES.allocate)
    yield played
    recycling.COPIES._running.clear()
    sys.modules.pop("pixprep.training.frameworks.torch", None)


def loader():
    return pp.Loader(samples(COUNT), TRAINING, batch_size=SIZE, shuffle=True, seed=5, threads=1)


def trained(gpu, steps, **options):
    """Return the batches that each training step of two epochs sees. After each step, the GPU runs a part of its queued
    work.
    """
    seen = []
    with loader() as ours:
        for _ in range(2):
            for batch in ours:
                images, labels = batch.torch("tensor", "label", device="cuda", non_blocking=True, **options)
                # arrays instead of tensors, because a kernel does not hold references to the tensors
                arrays = images.array, labels.array
                gpu.default.add(lambda arrays=arrays: seen.append([each.copy() for each in arrays]))
                gpu.advance(steps)
                del batch, images, labels
    gpu.advance(10_000)
    return seen


def expected():
    with loader() as ours:
        return [[batch["tensor"].copy(), batch["label"].copy()] for _ in range(2) for batch in ours]


def equal(seen, theirs):
    return len(seen) == len(theirs) and all(map(np.array_equal, chain.from_iterable(seen), chain.from_iterable(theirs)))


@pytest.mark.parametrize("steps", [1, 3, 6, 9, 12])
def test_every_step_sees_its_batch_however_late_the_copies_are(play, steps):
    for seed in range(3):
        gpu, _ = play(seed)
        assert equal(trained(gpu, steps), expected())


def test_memory_is_pinned_from_the_first_copy_on_and_reused(play):
    gpu, _ = play(0)
    trained(gpu, 50)
    images = {each.nbytes for each in gpu.pinned if each.nbytes > SIZE * 3 * 24 * 24 * 4}
    assert len(images) == 1
    large = [each for each in gpu.pinned if each.nbytes in images]
    assert 1 <= len(large) <= 5  # for 20 batches


def test_a_failed_copy_pins_nothing(play, monkeypatch):
    play(0)

    def missing(_):
        raise RuntimeError("no CUDA")

    monkeypatch.setattr(Tensor, "pin_memory", missing)
    monkeypatch.setattr(Tensor, "is_pinned", lambda _: False)
    with loader() as ours, pytest.raises(RuntimeError, match="no CUDA"):
        next(iter(ours)).torch("tensor", device="cuda", non_blocking=True)
    assert recycling.COPIES.allocate is recycling._pageable


def test_a_finished_copy_is_released_at_the_next_one():
    copies, first = recycling.Copies(), np.empty(3)
    copies.hold(first, lambda: True)
    there = weakref.ref(first)
    del first
    assert there() is not None
    copies.hold(np.empty(3), lambda: False)
    assert there() is None


def test_reuse_of_memory_that_a_copy_is_reading_is_detected(play, monkeypatch):
    """As a negative control, a step sees a wrong batch if the copies do not hold references, or if nothing waits for
    them.
    """
    gpu, _ = play(0)
    monkeypatch.setattr(type(recycling.COPIES), "hold", lambda *_: None)
    assert not equal(trained(gpu, 1), expected())


def test_a_copy_runs_in_parallel_with_the_previous_step(play):
    gpu, side = play(0)
    with loader() as ours:
        batches = iter(ours)
        first = next(batches).torch("tensor", device="cuda", non_blocking=True)
        gpu.default.add(lambda: None, Event())  # the previous step never ends
        second = next(batches).torch("tensor", device="cuda", non_blocking=True)
        gpu.advance(100)
        assert not side.queue
        assert gpu.default.queue
        assert len({each.array.tobytes() for each in (first, second)}) == 2
        del batches


def test_floats_are_converted_to_the_requested_type_and_integers_are_not(play):
    gpu, _ = play(0)
    seen = trained(gpu, 6, dtype="float16")
    assert {(images.dtype.name, labels.dtype.name) for images, labels in seen} == {("float16", "int64")}
    assert equal(seen, [[images.astype(np.float16), labels] for images, labels in expected()])
    with (
        loader() as ours,
        pytest.raises(
            PipelineError, match="must be a floating-point dtype of PyTorch, such as \"bfloat16\", not 'uint8'"
        ),
    ):
        next(iter(ours)).torch("tensor", dtype="uint8")
