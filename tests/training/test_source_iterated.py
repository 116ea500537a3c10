"""Tests ``read.iterable``: samples keep their order in each epoch, on each shard, and after a resume."""

import numpy as np
import pytest

import pixprep as pp
from pixprep import read
from support.loading import PLAIN, same, samples


class Stream:
    """Stream that counts the passes and the samples that are read."""

    def __init__(self, count=40):
        self.count, self.read, self.passes = count, 0, 0

    def __iter__(self):
        self.passes += 1
        for row in samples(self.count):
            self.read += 1
            yield row


def loader(stream, **options):
    source = read.iterable(stream, samples=stream.count, label="label")
    return pp.Loader(source, PLAIN, **{"batch_size": 8, "threads": 2} | options)


def test_an_epoch_reads_each_sample_once_in_order():
    stream = Stream()
    with loader(stream) as loading, pp.Loader(samples(), PLAIN, batch_size=8) as other:
        for number in (1, 2):
            batches = list(loading)
            assert (stream.passes, stream.read) == (number, 40 * number)
            assert all(map(same, batches, other))
    with pp.Loader(read.iterable(samples(1)), PLAIN, batch_size=1) as one:
        assert len([*one]) == 1


@pytest.mark.parametrize("world", [2, 3])
def test_shards_divide_the_samples_and_each_reads_them_all(world):
    streams = [Stream(48) for _ in range(world)]
    found = []
    for rank, stream in enumerate(streams):
        with loader(stream, shard=(rank, world)) as loading:
            found += [index for batch in loading for index in batch["index"].tolist()]
    assert sorted(found) == list(range(48))
    assert [stream.passes for stream in streams] == [1] * world


def test_a_resumed_epoch_skips_the_samples_before_its_state():
    with loader(Stream()) as first:
        batches = iter(first)
        next(batches), next(batches)
        state = first.state_dict()
        rest = list(batches)
    stream = Stream()
    with loader(stream) as second:
        second.load_state_dict(state)
        found = list(second)
    assert len(found) == len(rest)
    assert all(map(same, rest, found))
    assert (stream.passes, stream.read) == (1, 40)


def test_random_numbers_of_a_generator_do_not_depend_on_skipped_samples():
    rows = samples(40)

    def drawing():
        order = np.random.default_rng(read.draw().epoch).permutation(40)
        for number in order:
            draw = read.draw()
            yield {**rows[number], "drawn": [draw.rng.random(), draw.index, draw.epoch, int(number)]}

    def drawn(epochs=2, state=None, **options):
        source = read.iterable(drawing, samples=40, drawn="drawn")
        with pp.Loader(source, PLAIN, **{"batch_size": 8, "seed": 3} | options) as loading:
            if state is not None:
                loading.load_state_dict(state)
            batches = [batch for _ in range(epochs) for batch in loading]
            replayed = loading.replay(1, 33)["drawn"]
            return {(row[2], row[1]): row for batch in batches for row in batch["drawn"]}, replayed

    every, replayed = drawn()
    assert len(every) == 80
    assert len({row[0] for row in every.values()}) == 80
    assert list(replayed[0]) == every[1, 33]
    for rank in range(2):
        of_shard, _ = drawn(shard=(rank, 2), batch_size=4)
        assert len(of_shard) == 40
        assert of_shard.items() <= every.items()
    with pp.Loader(read.iterable(drawing, samples=40, drawn="drawn"), PLAIN, batch_size=8, seed=3) as loading:
        next(iter(loading))
        state = loading.state_dict()
        later = loading.replay(1, 35)["drawn"]  # another epoch, at a later row than the iteration
    assert list(later[0]) == every[1, 35]
    rest, _ = drawn(state=state)
    assert len(rest) == 72
    assert rest.items() <= every.items()


def test_replay_begins_another_pass_and_the_epoch_continues():
    stream = Stream()
    with loader(stream, prefetch=1) as loading:
        seen = []
        for batch in loading:
            seen += batch["index"].tolist()
            assert np.array_equal(loading.replay(0, 3)["index"], [3])
        assert seen == list(range(40))


def test_a_broken_sample_is_omitted():
    rows = [*samples(15), {"image": b"broken"}]
    source = read.iterable(rows)
    with pp.Loader(source, PLAIN, batch_size=8, on_error="skip", max_errors=1) as loading:
        assert [len(batch) for batch in loading] == [8, 7]
