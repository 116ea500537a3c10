"""Tests the order of samples: every sample occurs once per epoch, on any number of shards, after any resume."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pixprep as pp
from pixprep.training import order
from pixprep.training.order import Order, shard_of

SAMPLES = st.integers(1, 700)
SHUFFLES = st.sampled_from([False, True, "blocks"])
SEEDS = st.integers(0, (1 << 32) - 1)
EPOCHS = st.integers(0, 1000)
FIELDS = st.fixed_dictionaries(
    {"samples": SAMPLES, "batch_size": st.integers(1, 40), "shuffle": SHUFFLES, "seed": SEEDS}
)


def parts(position=0, epoch=0, **fields):
    return list(Order(**fields).parts(epoch, position))


def real_indices(found):
    """Return the indices in the parts, without those that only fill up a batch."""
    return [index for part in found for index in part.indices[~part.is_padding].tolist()]


@given(fields=FIELDS, epoch=EPOCHS)
@pytest.mark.parametrize("last", ["short", "pad"])
def test_every_sample_occurs_exactly_once_per_epoch(fields, epoch, last):
    assert sorted(real_indices(parts(epoch=epoch, last=last, **fields))) == list(range(fields["samples"]))


@given(fields=FIELDS, epoch=EPOCHS)
def test_drop_omits_less_than_a_batch_and_repeats_nothing(fields, epoch):
    samples, batch_size = fields["samples"], fields["batch_size"]
    assume(samples >= batch_size)
    found = parts(epoch=epoch, last="drop", **fields)
    indices = real_indices(found)
    assert len(set(indices)) == len(indices) == samples // batch_size * batch_size
    assert {len(part.indices) for part in found} == {batch_size}


@pytest.mark.parametrize(("shuffle", "world", "last"), [(False, 1, "short"), (False, 3, "pad"), (True, 3, "drop")])
def test_unshuffled_samples_are_not_dropped_by_default(shuffle, world, last):
    """Without a shuffle, the same samples would be dropped in every epoch. With a shuffle, different samples are
    dropped each time.
    """
    fields = {"samples": 50, "batch_size": 4, "shuffle": shuffle}
    for epoch in range(2):
        shards = [parts(epoch=epoch, shard=(rank, world), **fields) for rank in range(world)]
        indices = [index for shard in shards for index in real_indices(shard)]
        assert len(indices) == len(set(indices)) == (48 if last == "drop" else 50)
    assert {Order(shard=(rank, world), **fields).last for rank in range(world)} == {last}
    assert parts(samples=3, batch_size=4)[0].indices.tolist() == [0, 1, 2]


@given(
    samples=SAMPLES,
    eighth=st.integers(1, 6),
    shuffle=SHUFFLES,
    seed=SEEDS,
    last=st.sampled_from(["drop", "short", "pad"]),
)
def test_1_2_4_and_8_shards_have_the_same_global_batches(samples, eighth, shuffle, seed, last):
    fields = {"samples": samples, "shuffle": shuffle, "seed": seed, "last": last}
    rest = samples % (8 * eighth)
    assume(samples >= 8 * eighth if last == "drop" else last == "pad" or rest == 0 or rest >= 8)
    alone = parts(batch_size=8 * eighth, **fields)
    for world in (2, 4, 8):
        shards = [parts(batch_size=8 * eighth // world, shard=(rank, world), **fields) for rank in range(world)]
        assert {len(shard) for shard in shards} == {len(alone)}
        for whole, *pieces in zip(alone, *shards, strict=True):
            assert np.array_equal(np.concatenate([piece.indices for piece in pieces]), whole.indices)
            assert np.array_equal(np.concatenate([piece.is_padding for piece in pieces]), whole.is_padding)
            assert {piece.end for piece in pieces} == {whole.end}
            sizes = {len(piece.indices) for piece in pieces}
            assert max(sizes) - min(sizes) <= (1 if last == "short" else 0)


@given(fields=FIELDS, data=st.data())
@pytest.mark.parametrize("last", ["drop", "short", "pad"])
def test_a_resume_at_any_batch_gives_the_remaining_batches(fields, last, data):
    assume(last != "drop" or fields["samples"] >= fields["batch_size"])
    fields = fields | {"last": last}
    whole = parts(epoch=7, **fields)
    done = data.draw(st.integers(0, len(whole)))
    rest = parts(whole[done - 1].end if done else 0, epoch=7, **fields)
    assert [part.indices.tolist() for part in rest] == [part.indices.tolist() for part in whole[done:]]
    assert len(rest) == Order(**fields).batches(whole[done - 1].end if done else 0)


@given(samples=st.integers(40, 700), before=st.integers(1, 8), after=st.integers(1, 8), seed=SEEDS, data=st.data())
def test_a_resume_with_a_different_world_and_batch_size_has_every_sample_once(samples, before, after, seed, data):
    fields = {"samples": samples, "shuffle": True, "seed": seed, "last": "pad"}
    first = [parts(batch_size=5, shard=(rank, before), **fields) for rank in range(before)]
    done = data.draw(st.integers(0, len(first[0])))
    position = first[0][done - 1].end if done else 0
    second = [parts(position, batch_size=3, shard=(rank, after), **fields) for rank in range(after)]
    indices = [index for shard in first for index in real_indices(shard[:done])]
    indices += [index for shard in second for index in real_indices(shard)]
    assert sorted(indices) == list(range(samples))


@given(seed=SEEDS, epoch=EPOCHS)
def test_the_order_is_an_argsort_of_philox(seed, epoch):
    """Therefore, different epochs and seeds have different orders, and every sample is equally likely at every
    position.
    """
    words = np.random.Philox(key=np.array([seed, epoch], np.uint64)).random_raw(500)
    found = Order(samples=500, batch_size=4, shuffle=True, seed=seed).order(epoch)
    assert np.array_equal(found, np.argsort(words, kind="stable"))


def test_blocks_stay_together():
    samples = 40 * order.BLOCK + 17
    found = Order(samples=samples, batch_size=4, shuffle="blocks", seed=3).order(0)
    pool = order.POOL * order.BLOCK
    for first in range(0, samples, pool):
        blocks = set((found[first : first + pool] // order.BLOCK).tolist())
        assert len(blocks) <= order.POOL + 1  # one block is shorter than the others and shifts them
    assert np.mean(np.diff(found) == 1) < 0.01  # within a pool, all samples change their positions


def test_a_replacement_is_the_same_in_all_processes_and_different_at_each_attempt():
    alone = Order(samples=1000, batch_size=64, shuffle=True, seed=5)
    shard = Order(samples=1000, batch_size=8, shuffle=True, seed=5, shard=(3, 8))
    found = [[each.replacement(2, 17, attempt) for attempt in range(1, 20)] for each in (alone, shard)]
    assert found[0] == found[1]
    assert len(set(found[0])) > 15
    assert all(0 <= index < 1000 for index in found[0])
    assert alone.replacement(3, 17, 1) != alone.replacement(2, 17, 1) != alone.replacement(2, 18, 1)


@pytest.mark.parametrize(
    ("shard", "words"), [(None, "shard is not set"), ((1, 2), "shard is (1, 2)"), ((0, 8), "shard is (0, 8)")]
)
def test_shards_that_do_not_match_the_processes_are_rejected(shard, words):
    with pytest.raises(pp.PipelineError) as caught:
        shard_of(shard, {"WORLD_SIZE": "4", "RANK": "2"})
    assert words in str(caught.value)
    assert str(caught.value).startswith("WORLD_SIZE is 4, but ")
    assert str(caught.value).endswith(
        ": set shard=(rank, world), which is (2, 4) here, or shard=(0, 1) if every process should use all samples"
    )


def test_the_shard_is_the_given_or_the_only_one():
    assert shard_of(None, {}) == shard_of(None, {"WORLD_SIZE": "1", "RANK": "0"}) == (0, 1)
    assert shard_of((1, 2), {}) == shard_of((1, 2), {"WORLD_SIZE": "2"}) == (1, 2)
    assert shard_of((0, 1), {"WORLD_SIZE": "4"}) == (0, 1)


# groups


def grouped_batches(sampler, groups, batch_size):
    """Return the full batches of torchvision's ``GroupedBatchSampler``
    (references/detection/group_by_aspect_ratio.py).
    """
    buffers = {}
    for index in sampler:
        buffer = buffers.setdefault(groups[index], [])
        buffer.append(index)
        if len(buffer) == batch_size:
            yield buffer
            buffers[groups[index]] = []


COUNTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 19)), min_size=1, max_size=5)
"""(Number of full batches, number of remaining samples) of each group."""


def grouped(groups, **fields):
    return Order(samples=len(groups), groups=groups, **fields)


@settings(max_examples=40)
@given(counts=COUNTS, quarter=st.integers(1, 5), shuffle=SHUFFLES, seed=SEEDS, data=st.data())
@pytest.mark.parametrize("last", ["drop", "short", "pad"])
def test_a_global_batch_contains_one_group_on_any_number_of_shards(counts, quarter, shuffle, seed, last, data):  # noqa: PLR0917
    size, least = 4 * quarter, 4 if last == "short" else 0  # each shard has a sample of each batch
    lefts = np.array([left % size * (left % size >= least) for _, left in counts])
    groups = np.repeat(np.arange(len(counts)), lefts + [max(full, last == "drop") * size for full, _ in counts])
    assume(len(groups))
    groups = 2 * np.random.default_rng(seed).permutation(groups)
    fields = {"shuffle": shuffle, "seed": seed, "last": last}
    whole = list(grouped(groups, batch_size=size, **fields).parts(7))
    plain = Order(samples=len(groups), batch_size=1, shuffle=shuffle, seed=seed).order(7).tolist()
    theirs = list(grouped_batches(plain, groups, size))
    assert [part.indices.tolist() for part in whole[: len(theirs)]] == theirs
    assert all(len(set(groups[part.indices].tolist())) == 1 for part in whole)
    if last == "drop":
        assert len(whole) == len(theirs)
    else:
        assert sorted(real_indices(whole)) == list(range(len(groups)))
        assert {len(part.indices) for part in whole} <= {size, *(lefts if last == "short" else ())}
    for world in (2, 4):
        shards = [
            list(grouped(groups, batch_size=size // world, shard=(rank, world), **fields).parts(7))
            for rank in range(world)
        ]
        for part, *pieces in zip(whole, *shards, strict=True):
            assert np.concatenate([piece.indices for piece in pieces]).tolist() == part.indices.tolist()
            assert np.concatenate([piece.is_padding for piece in pieces]).tolist() == part.is_padding.tolist()
    done = data.draw(st.integers(0, len(whole)))
    position = whole[done - 1].end if done else 0
    order_ = grouped(groups, batch_size=size, **fields)
    rest = list(order_.parts(7, position))
    assert [part.indices.tolist() for part in rest] == [part.indices.tolist() for part in whole[done:]]
    assert order_.batches(position) == len(rest)


def test_a_broken_sample_is_replaced_with_one_of_its_group():
    groups = np.arange(90) % 3
    order_ = grouped(groups, batch_size=4)
    found = [order_.replacement(1, 7, attempt) for attempt in range(1, 60)]
    assert {groups[index] for index in found} == {groups[7]}
    assert len(set(found)) > 15


def test_sequential_order_takes_no_memory():
    """An index file may declare any number of samples, and a stream may contain any number."""
    samples = 10**17 + 1
    order = Order(samples=samples, batch_size=2, shard=(1, 2), last="pad")
    assert order.batches() == 25 * 10**15 + 1
    first = next(order.parts(0))
    assert (first.indices.tolist(), first.is_padding.tolist(), first.copies.tolist(), first.end) == (
        [2, 3], [False, False], [0, 0], 4,
    )  # fmt: skip
    *_, last = order.parts(3, samples - 5)
    assert (last.indices.tolist(), last.is_padding.tolist(), last.end) == ([1, 2], [True, True], samples)


@pytest.mark.parametrize("how", [{"shuffle": True}, {"shuffle": "blocks"}, {"shuffle": True, "epoch_samples": 10**17}])
def test_an_order_that_does_not_fit_into_memory_is_rejected(how, monkeypatch):
    words = "the order of 100,000,000,000,000,000 samples does not fit in memory"
    with pytest.raises(pp.DataError, match=words):
        Order(samples=9 if "epoch_samples" in how else 10**17, batch_size=2, **how)
    small = Order(samples=9, batch_size=2, shuffle=how["shuffle"])

    def words_of_none(*_):
        raise MemoryError

    monkeypatch.setattr("pixprep.training.order._random_uint64", words_of_none)
    with pytest.raises(pp.DataError, match="the order of 9 samples does not fit in memory"):
        small.order(0)
