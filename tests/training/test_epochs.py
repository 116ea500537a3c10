"""Tests the epochs of a Loader: every sample occurs once, and a resumed epoch has the same batches."""

import json

import numpy as np
import pytest

import pixprep as pp
from support.loading import loader, same, samples


def test_iterating_again_runs_the_next_epoch_in_a_different_order():
    with loader(shuffle=True) as ours:
        epochs = [[batch["index"].tolist() for batch in ours] for _ in range(2)]
        last = iter(ours)
        epochs.append([batch["index"].tolist() for batch in last])
        assert next(last, None) is None  # a finished iterator stays at its end
        assert ours.epoch == 3
    assert epochs[0] != epochs[1] != epochs[2]
    with loader(shuffle=True) as again:
        assert [batch["index"].tolist() for batch in again] == epochs[0]


def test_next_continues_an_epoch_and_then_the_next_one():
    with loader(shuffle=True) as ours, loader(shuffle=True) as other:
        expected = [*other, *other]
        found = [next(ours) for _ in range(5)]
        with pytest.raises(StopIteration):
            next(ours)
        assert all(map(same, [*found, *(next(ours) for _ in range(5))], expected))


def test_the_caller_can_set_the_epoch():
    with loader(shuffle=True) as whole, loader(shuffle=True, epoch=1) as second, loader(shuffle=True) as ours:
        list(whole)
        expected = list(whole)
        assert all(map(same, second, expected))
        ours.set_epoch(1)
        next(ours)
        ours.set_epoch(1)  # the epoch starts from its beginning, because one of its batches was delivered
        assert all(map(same, ours, expected))
        ours.load_state_dict(whole.state_dict() | {"epoch": 1, "position": 16})
        ours.set_epoch(1)  # frameworks call set_epoch after a resume
        assert all(map(same, ours, expected[2:]))
        assert ours.epoch == 2


def test_a_loader_created_in_each_epoch_warns_that_it_repeats(caplog):
    for epoch in (0, 1):
        for options in ({"seed": 5}, {"seed": 6, "epoch": epoch}, {"seed": 7, "shuffle": False}):
            with loader(**{"shuffle": True} | options) as ours:
                list(ours)
    (record,) = caplog.records
    assert record.getMessage() == (
        "a Loader with the same arguments has already run epoch 0, and this one repeats its order and random "
        "parameters: use one Loader for all epochs, or pass epoch=1, 2, ... to each new one"
    )


def test_an_abandoned_epoch_is_over():
    with loader(shuffle=True) as ours:
        whole = list(ours)
        next(iter(ours))
        assert ours.epoch == 1
        third = list(ours)
        assert ours.epoch == 3
        assert not same(whole[0], third[0])


def test_an_iterator_without_a_batch_does_not_use_up_an_epoch():
    with loader(shuffle=True) as ours:
        iter(ours)
        iter(ours)
        next(iter(ours))
        assert ours.epoch == 0


@pytest.mark.parametrize("done", range(6))
def test_a_state_can_be_resumed_at_any_batch(done):
    with loader(shuffle=True, seed=3) as ours:
        list(ours)
        second = list(ours)
        third = next(iter(ours))
    with loader(shuffle=True, seed=3) as ours:
        list(ours)
        batches = iter(ours)
        for _ in range(done):
            next(batches)
        state = json.loads(json.dumps(ours.state_dict()))
    with loader(shuffle=True, seed=3, threads=1, prefetch=1) as ours:
        ours.load_state_dict(state)
        rest = list(ours) if done < 5 else []
        assert len(rest) == 5 - done
        assert all(same(one, other) for one, other in zip(rest, second[done:], strict=True))
        assert same(third, next(iter(ours))) or done == 5


def test_a_state_after_the_last_batch_is_the_beginning_of_the_next_epoch():
    with loader(last="drop", batch_size=7) as ours:
        batches = iter(ours)
        for _ in range(5):
            next(batches)
        state = ours.state_dict()
        assert (state["epoch"], state["position"], ours.epoch) == (1, 0, 0)
        assert next(batches, None) is None
        assert ours.state_dict() == state
        # this state has five samples left, for a smaller batch size
        ours.load_state_dict(state | {"epoch": 0, "position": 35})
        assert len(list(ours)) == 5
        assert ours.epoch == 2


def test_a_state_of_a_run_that_drops_the_last_batch_resumes_and_delivers_it():
    with loader(samples(11), last="drop", batch_size=4) as ours:
        next(iter(ours))
        state = ours.state_dict()
        list(ours)
        behind = ours.state_dict()
    with loader(samples(11), batch_size=4) as ours:
        ours.load_state_dict(state)
        assert [batch["index"].tolist() for batch in ours] == [[4, 5, 6, 7], [8, 9, 10]]
        ours.load_state_dict(behind)
        assert next(iter(ours))["index"].tolist() == [0, 1, 2, 3]


def test_a_state_counts_delivered_and_not_prefetched_batches():
    with loader(prefetch=4) as ours:
        next(iter(ours))
        assert ours.state_dict()["position"] == 8


def test_a_state_can_be_used_with_a_different_world_size():
    one = loader(shuffle=True, last="pad")
    with one:
        batches = iter(one)
        seen = [index for _ in range(2) for index in next(batches)["index"].tolist()]
        state = one.state_dict()
    for rank in range(3):
        with loader(shuffle=True, last="pad", shard=(rank, 3), batch_size=3) as shard:
            shard.load_state_dict(state)
            seen += [index for batch in shard for index in batch["index"][~batch["is_padding"]].tolist()]
    assert sorted(seen) == list(range(40))


@pytest.mark.parametrize("source", [samples(41), samples(40)[::-1]], ids=["longer", "reversed"])
def test_a_state_of_a_different_source_is_rejected(source):
    with loader(shuffle=True, seed=1) as ours:
        state = ours.state_dict()
    words = "the state belongs to a different source: it has 40 samples"
    with loader(source, shuffle=True, seed=1) as other, pytest.raises(pp.DataError, match=words):
        other.load_state_dict(state)


def test_a_damaged_state_is_rejected_without_changes():
    """A negative position would begin with samples from the end of the order, and would repeat some samples."""
    with loader() as ours:
        next(iter(ours))
        state = ours.state_dict()
        with pytest.raises(pp.PipelineError, match="the state is damaged"):
            ours.load_state_dict(state | {"position": -8})
        assert ours.state_dict() == state


def test_a_state_can_contain_numpy_numbers_as_checkpoints_return_them():
    with loader() as ours:
        next(iter(ours))
        state = ours.state_dict()
    with loader() as other:
        other.load_state_dict(state | {name: np.int64(state[name]) for name in ("epoch", "position")})
        assert json.loads(json.dumps(other.state_dict())) == state


def test_results_do_not_depend_on_threads_batch_size_or_prefetch():
    batches = {}
    for threads, batch_size, prefetch in ((1, 4, 1), (4, 8, 2), (2, 20, 3)):
        with loader(threads=threads, batch_size=batch_size, prefetch=prefetch, shuffle=True, seed=5) as ours:
            found = list(ours)
        batches[batch_size] = {name: np.concatenate([each[name] for each in found]) for name in ("index", "tensor")}
    for name in ("index", "tensor"):
        assert np.array_equal(batches[4][name], batches[8][name])
        assert np.array_equal(batches[4][name], batches[20][name])
