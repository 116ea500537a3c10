"""Tests mixup and cutmix in the Loader: they are reproducible by seed, and labels are fractions of the classes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pixprep as pp
from pixprep.training.mixing import partners
from support.loading import TRAINING, samples

HWC = pp.Pipeline([pp.decode(), pp.resize(height=24, width=20), pp.normalize(), pp.tensor(layout="hwc")])
BOTH = pp.Mix(3, mixup=1.0, cutmix=1.0)


def loader(pipeline=TRAINING, mix=BOTH, **options):
    return pp.Loader(samples(40), pipeline, **{"batch_size": 8, "shuffle": True, "seed": 6, "mix": mix} | options)


def test_mixes_depend_on_the_seed_and_are_repeated_after_a_resume():
    with loader() as ours:
        batches = iter(ours)
        state = [ours.state_dict() for _ in zip(range(2), batches, strict=False)][-1]
        rest = list(batches)
        second = [str(batch["mix"][0]) for batch in ours]
    with loader(threads=1, prefetch=1) as again:
        again.load_state_dict(state)
        for one, other in zip(rest, again, strict=True):
            assert one["mix"] == other["mix"]
            assert np.array_equal(one["tensor"], other["tensor"])
            assert np.array_equal(one["label"], other["label"])
    assert len({*second, *(str(batch["mix"][0]) for batch in rest)}) == 8
    with loader(shard=(1, 2), batch_size=4) as shard, loader(shard=(0, 2), batch_size=4) as first:
        assert next(iter(shard))["mix"] != next(iter(first))["mix"]


def test_each_image_and_its_label_are_mixed_with_the_previous_ones():
    kinds = set()
    with loader(HWC) as mixed, loader(HWC, mix=None) as plain:
        for _ in range(4):
            for after, before in zip(mixed, plain, strict=True):
                ((kind, drawn),) = after["mix"][0].items()
                kinds.add(kind)
                own, other = before["tensor"], np.roll(before["tensor"], 1, 0)
                hot = np.eye(3)[before["label"]]
                if kind == "mixup":
                    share = drawn
                    assert np.allclose(after["tensor"], own * share + other * (1 - share), atol=1e-5)
                else:
                    top, left, bottom, right = drawn
                    own = own.copy()
                    own[:, top:bottom, left:right] = other[:, top:bottom, left:right]
                    share = 1 - (bottom - top) * (right - left) / (24 * 20)
                    assert np.array_equal(after["tensor"], own)
                assert np.allclose(after["label"], hot * share + np.roll(hot, 1, 0) * (1 - share), atol=1e-6)
                assert after["label"].dtype == np.float32
    assert kinds == {"mixup", "cutmix"}


@pytest.mark.parametrize(
    "options",
    [
        *({"repeats": repeats, "batch_size": size} for repeats in (3, 4) for size in (8, 9, 24, 40)),
        {"repeats": 3, "batch_size": 4, "shard": (1, 2)},
        {"repeats": 4, "batch_size": 8, "shard": (1, 3)},
        {"weights": np.arange(40.0), "batch_size": 40, "epoch_samples": 120},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_no_image_is_mixed_with_a_copy_of_itself(options, kind):
    """Each image keeps the reported fraction of itself, and the rest comes from exactly one other image."""
    source = [{**sample, "label": index} for index, sample in enumerate(samples(40))]
    options = {"batch_size": 8, "shuffle": True, "seed": 6} | options
    mix = pp.Mix(40, **{kind: 1.0})
    with pp.Loader(source, HWC, **options, mix=mix) as mixed, pp.Loader(source, HWC, **options) as plain:
        copies = 0
        for _ in range(3):
            for after, before in zip(mixed, plain, strict=True):
                own, soft = before["label"], after["label"]
                copies += len(own) - len(set(own.tolist()))
                drawn = after["mix"][0][kind]
                share = drawn if kind == "mixup" else 1 - (drawn[2] - drawn[0]) * (drawn[3] - drawn[1]) / (24 * 20)
                rows = np.arange(len(own))
                assert np.allclose(soft[rows, own], share, atol=1e-6)
                soft[rows, own] = 0
                others = np.array([own.tolist().index(label) for label in soft.argmax(1)]) if share < 1 else rows
                assert np.allclose(soft.max(1), 1 - share, atol=1e-6)
                images = before["tensor"]
                expected = images * share + images[others] * (1 - share)
                if kind == "cutmix":
                    top, left, bottom, right = drawn
                    expected = images.copy()
                    expected[:, top:bottom, left:right] = images[others][:, top:bottom, left:right]
                assert np.allclose(after["tensor"], expected, atol=1e-5)
        assert copies or options.get("repeats", 1) <= options.get("shard", (0, 1))[1]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_the_minimum_number_of_rows_is_mixed_with_their_own_sample(indices):
    indices = np.array(indices)
    others = partners(indices)
    assert sorted(others.tolist()) == list(range(len(indices)))
    most = np.bincount(indices).max()
    assert np.count_nonzero(indices[others] == indices) == max(0, 2 * most - len(indices))
    if most == 1:
        assert others.tolist() == np.roll(np.arange(len(indices)), 1).tolist()


def test_a_row_without_a_partner_is_unchanged():
    weights = np.eye(40)[7] * 30 + 1
    with (
        loader(weights=weights, epoch_samples=400) as ours,
        loader(weights=weights, epoch_samples=400, mix=None) as plain,
    ):
        stayed = 0
        for after, before in zip(ours, plain, strict=True):
            alone = np.array([not words for words in after["mix"]])
            assert np.array_equal(after["tensor"][alone], before["tensor"][alone])
            assert np.array_equal(after["label"][alone], np.eye(3)[before["label"][alone]])
            assert set(before["index"][alone]) <= {7}
            stayed += np.count_nonzero(alone)
            assert np.count_nonzero(alone) == max(0, 2 * np.count_nonzero(before["index"] == 7) - len(alone))
    assert stayed
    with loader(shuffle=False, batch_size=39) as short:
        *_, last = short
    assert last["mix"] == [{}]


def test_a_batch_with_too_few_partners_is_rejected():
    for size, repeats, shard in ((1, 1, (0, 1)), (5, 3, (0, 1)), (3, 4, (0, 2))):
        least = 2 * -(-repeats // shard[1])
        with pytest.raises(pp.PipelineError, match=f"a batch of {size} may .*: use a batch_size of at least {least}$"):
            loader(batch_size=size, repeats=repeats, shard=shard)
        loader(batch_size=least, repeats=repeats, shard=shard).close()


def test_some_batches_are_unchanged_with_probability_p():
    with loader(mix=pp.Mix(3, mixup=1.0, p=0.5)) as ours:
        found = [batch for _ in range(8) for batch in ours]
    still = [batch for batch in found if not batch["mix"][0]]
    assert 8 < len(still) < 32
    assert all(set(batch["label"].ravel().tolist()) == {0.0, 1.0} for batch in still)


def test_an_example_has_the_labels_of_a_batch_and_a_replay_the_previous_sample():
    with loader() as ours, loader(mix=None) as plain:
        assert ours.example()["label"].shape == (1, 3)
        batch = next(iter(plain))
        assert np.array_equal(ours.replay(0, batch["index"][3])["tensor"][0], batch["tensor"][3])


def test_a_label_must_be_one_of_the_classes():
    with (
        loader(mix=pp.Mix(2, mixup=1.0)) as ours,
        pytest.raises(pp.DataError, match=r'^Mix: "label" of each sample must be an integer from 0 to 1$'),
    ):
        list(ours)
