"""Tests samplers: weights, fractions, repeats, epoch lengths and subsets. Each depends only on the seed and the
epoch.
"""

import json
import math
import os
from collections import Counter
from itertools import zip_longest

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep import read
from pixprep.training.order import Order
from support import broken_data
from support.images import jpeg, scene
from support.loading import PLAIN, TRAINING, samples

WEIGHTS = np.arange(40.0)
SAMPLERS = {
    "weights": {"weights": WEIGHTS},
    "shares": {"parts_of": (30, 10), "shares": (0.25, 0.75)},
    "repeats": {"repeats": 3},
    "epoch_samples": {"epoch_samples": 100},
    "all": {"parts_of": (30, 10), "shares": (0.25, 0.75), "repeats": 3, "epoch_samples": 92},
}
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)


def order(**fields):
    return Order(**{"samples": 40, "batch_size": 8, "shuffle": True, "seed": 5} | fields)


def rows(parts):
    return [tuple(row) for part in parts for row in zip(part.indices.tolist(), part.copies.tolist(), strict=True)]


@each_sampler
@pytest.mark.parametrize("last", ["drop", "short", "pad"])
def test_any_world_has_the_same_global_batches_and_a_resume_the_remaining_ones(sampler, last):
    whole = list(order(last=last, **sampler).parts(3))
    for world in (2, 4):
        shards = [
            list(order(last=last, batch_size=8 // world, shard=(n, world), **sampler).parts(3)) for n in range(world)
        ]
        for part, *parts in zip(whole, *shards, strict=True):
            taken = rows(parts)
            if "repeats" in sampler:  # the shards take the copies of a sample in turn
                taken = [row for turn in zip_longest(*(rows([each]) for each in parts)) for row in turn if row]
            assert taken == rows([part])
    for done, part in enumerate(whole[:-1], 1):
        assert rows(order(last=last, **sampler).parts(3, part.end)) == rows(whole[done:])


@each_sampler
def test_repeated_samples_of_an_epoch_are_counted(sampler):
    before = Counter()
    for index, copy in rows(order(last="short", **sampler).parts(1)):
        assert copy == before[index]
        before[index] += 1
    assert sum(before.values()) == order(**sampler).length
    assert max(before.values()) > 1


def test_samples_are_chosen_with_the_probability_of_their_weights():
    counts = np.zeros(40)
    for epoch in range(500):
        counts += np.bincount(order(weights=WEIGHTS).order(epoch), minlength=40)
    expected = 500 * 40 * WEIGHTS / WEIGHTS.sum()
    assert counts[0] == 0
    # the limit of chi-square for 38 degrees of freedom, exceeded once in a thousand cases
    assert ((counts - expected)[1:] ** 2 / expected[1:]).sum() < 70
    tiny = order(weights=np.array([1e-300] * 39 + [0.0])).order(0)
    assert tiny.max() < 39


def test_fractions_are_exact_and_samples_repeat_only_after_all_others_of_their_source():
    found = [order(parts_of=(30, 10), shares=(0.25, 0.75)).order(epoch) for epoch in range(6)]
    assert [np.count_nonzero(each < 30) for each in found] == [10] * 6
    # 30 samples are three epochs of the first source, and 10 are a third of an epoch of the second
    for first in (0, 3):
        assert sorted(index for each in found[first : first + 3] for index in each[each < 30]) == list(range(30))
    assert set(np.bincount(found[0][found[0] >= 30] - 30)) == {3}
    assert not np.array_equal(found[0], found[3])
    # the sources are mixed, instead of one following the other
    assert np.mean(np.diff((found[0] < 30).astype(int)) != 0) > 0.1


def test_repeats_are_adjacent_and_all_samples_occur_before_one_recurs():
    found = [order(samples=12, batch_size=4, repeats=3).order(epoch).reshape(4, 3) for epoch in range(3)]
    assert all((each == each[:, :1]).all() for each in found)
    assert sorted(index for each in found for index in each[:, 0]) == list(range(12))


def ra_sampler(permutation, rank, world, repetitions):
    """Return the indices of torchvision's ``RASampler`` (references/classification/sampler.py) for a result of
    ``randperm``.
    """
    num_samples = math.ceil(len(permutation) * float(repetitions) / world)
    total_size, selected = num_samples * world, math.floor(len(permutation) // 256 * 256 / world)
    indices = [each for each in permutation for _ in range(repetitions)]
    indices += indices[: total_size - len(indices)]
    return indices[rank:total_size:world][:selected]


@pytest.mark.parametrize(("repeats", "world"), [(3, 1), (3, 2), (3, 4), (4, 2), (4, 8), (2, 3)])
def test_shards_take_turns_with_the_copies_of_a_sample_like_torchvisions_ra_sampler(repeats, world):
    permutation = order(samples=600).order(0).tolist()
    taken = []
    for rank in range(world):
        fields = {"samples": 600, "batch_size": 16, "repeats": repeats, "shard": (rank, world)}
        found = [part.indices for part in order(**fields, last="pad").parts(0)]
        theirs = ra_sampler(permutation, rank, world, repeats)
        assert np.concatenate(found)[: len(theirs)].tolist() == theirs
        assert max(np.bincount(batch).max() for batch in found[:-1]) == math.ceil(repeats / world)
        taken += theirs
    assert len(taken) == 512 // world * world


@pytest.mark.parametrize("shuffle", [False, True, "blocks"])
def test_epochs_of_a_different_length_are_consecutive(shuffle):
    whole = np.concatenate([order(shuffle=shuffle).order(epoch) for epoch in range(5)])
    short = np.concatenate([order(shuffle=shuffle, epoch_samples=25).order(epoch) for epoch in range(8)])
    long = np.concatenate([order(shuffle=shuffle, epoch_samples=100).order(epoch) for epoch in range(2)])
    assert np.array_equal(short, whole)
    assert np.array_equal(long, whole)


# in a Loader


def loader(source=None, pipeline=PLAIN, **options):
    given = samples(40) if source is None else source
    return pp.Loader(given, pipeline, **{"batch_size": 8, "threads": 2, "shuffle": True, "seed": 5} | options)


def test_each_copy_of_a_sample_has_its_own_parameters_and_can_be_replayed():
    with loader(pipeline=TRAINING, repeats=4) as ours:
        batch = next(iter(ours))
        assert batch["attempt"].tolist() == [0, 128, 256, 384] * 2
        crops = [str(draws["random_resized_crop#0"]) for draws in batch.draws]
        assert len(set(crops)) == 8
        for row in range(4):
            again = ours.replay(0, batch["index"][row], batch["attempt"][row])
            assert np.array_equal(again["tensor"][0], batch["tensor"][row])


def test_the_thousandth_copy_has_its_own_parameters():
    with loader(samples(1), TRAINING, epoch_samples=1200, batch_size=1200) as ours:
        (batch,) = ours
    # some copies have equal parameters by chance
    assert len({str(draws["random_resized_crop#0"]) for draws in batch.draws}) > 1150


def test_classes_are_balanced_by_their_labels():
    source = [{**sample, "label": int(index >= 36)} for index, sample in enumerate(samples(40))]
    with loader(source, weights="balanced", epoch_samples=4000, batch_size=500) as ours:
        labels = np.concatenate([batch["label"] for batch in ours])
    assert 1800 < labels.sum() < 2200  # 2000 plus or minus six standard deviations


def test_sources_are_mixed_by_their_fractions():
    both = read.concat(samples(30), read.rows(samples(10), label="label"))
    with loader(both, shares=(0.5, 0.5)) as ours:
        for _ in range(2):
            indices = np.concatenate([batch["index"] for batch in ours])
            assert np.count_nonzero(indices < 30) == 20
            assert set(indices[indices >= 30]) == set(range(30, 40))


def photos(folder, **exif):
    """Write 24 photos to a folder, a third of them in portrait format. Return whether each photo is displayed in
    portrait format.
    """
    is_high = np.arange(24) % 3 == 0
    for index, high in enumerate(is_high):
        size = (50, 30) if high else (30, 40 - index % 9)
        (folder / f"{index:02}.jpg").write_bytes(jpeg(scene(*size, seed=index), **exif))
    return is_high


def rotated_exif():
    """Return EXIF data that declare a rotation by 90 degrees."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return {"exif": exif.tobytes()}


@pytest.mark.parametrize("is_turned", [False, True])
def test_photos_are_grouped_by_the_aspect_ratio_in_their_headers(tmp_path, is_turned):
    is_high = photos(tmp_path, **rotated_exif() if is_turned else {})
    source = read.files(tmp_path)
    ops = [pp.decode(), pp.resize(24, max_size=40), pp.tensor()]
    for pipeline, is_wide in ((pp.Pipeline(ops), is_high == is_turned), (stored(ops), ~is_high)):
        with loader(source, pipeline, batch_size=4, group_by="aspect") as ours:
            assert ours.order.groups.tolist() == is_wide.astype(int).tolist()
            batches = list(ours)
            assert len(batches) == 6
            assert all(len(set(is_high[batch["index"]])) == 1 for batch in batches)
            state = ours.state_dict()
        with loader(source, pipeline, batch_size=4, group_by=is_wide) as again:
            again.load_state_dict(state)
        with (
            loader(source, pipeline, batch_size=2, group_by="aspect") as other,
            pytest.raises(pp.PipelineError, match="or with group_by and a different global batch size"),
        ):
            other.load_state_dict(state)


def stored(ops):
    return pp.Pipeline([pp.decode(apply_exif_orientation=False), *ops[1:]])


def test_sizes_known_to_a_source_are_not_read_from_files(tmp_path):
    """COCO's annotation file contains the sizes, which subsets and concatenations keep.

    The samples of a list may also contain sizes. A broken image is reported.
    """
    images = [{"id": n, "file_name": f"{n}.jpg", "height": 30 + n % 2 * 20, "width": 40} for n in range(16)]
    (tmp_path / "a.json").write_text(json.dumps({"images": images, "categories": [], "annotations": []}))
    coco = read.coco(tmp_path, tmp_path / "a.json")
    known = [{"image": b"no image", "size": (50, 40)}, {"image": b"no image", "size": (30, 40)}] * 4
    some = read.concat(read.subset(coco, slice(8, 16)), known, samples(8))
    with loader(some, last="pad", group_by="aspect") as ours:
        assert ours.order.groups.tolist() == [1, 0] * 4 + [0, 1] * 4 + [1] * 8


def test_a_size_can_have_any_form_and_an_invalid_size_is_read_from_the_header():
    high = jpeg(scene(50, 40))
    forms = [
        *({"image": high}, {"image": np.frombuffer(high, np.uint8)}, {"image": memoryview(high)}),
        *({"image": high, "size": 17}, {"image": high, "size": "large"}, {"image": b"", "size": np.array([50, 40])}),
        *({"image": scene(50, 40)}, {"image": b"", "size": (50, 40)}),
    ]
    with loader([*forms, *samples(8)], batch_size=4, group_by="aspect") as ours:
        assert ours.order.groups.tolist() == [0] * 8 + [1] * 8


def test_an_image_without_a_size_is_reported(tmp_path, caplog):
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "fifo.jpg")
    broken = [{"image": b"no image"}, {"image": tmp_path / "pipe" / "fifo.jpg"}, {"image": tmp_path / "none.jpg"}]
    with loader([*samples(8), *broken, b"no dict"], last="pad", group_by="aspect") as ours:
        assert ours.order.groups.tolist() == [1] * 8 + [0] * 4
    assert "the sizes of 4 images cannot be read: they are put into group 0" in caplog.text


def test_a_repeated_broken_sample_is_replaced_each_time_and_named_once(tmp_path):
    broken_data.make(tmp_path, count=160)
    with loader(read.files(tmp_path), repeats=4, on_error="replace", max_errors=0.2, epoch_samples=640) as ours:
        batches = list(ours)
        assert len(ours.errors) == len({each.index for each in ours.errors}) == 8
    replaced = np.concatenate([batch["attempt"] for batch in batches]) % 128 > 0
    assert np.count_nonzero(replaced) >= 4 * 8


def test_a_state_belongs_to_one_sampler():
    with loader(repeats=2) as ours:
        next(iter(ours))
        state = ours.state_dict()
    with loader(repeats=2) as again:
        again.load_state_dict(state)
        assert len(list(again)) == 4
    for other in ({}, {"repeats": 3}, {"weights": WEIGHTS}):
        words = "the state was saved with different weights, shares, "
        with loader(**other) as ours, pytest.raises(pp.PipelineError, match=words):
            ours.load_state_dict(state)
    with loader() as ours:
        old = {name: value for name, value in ours.state_dict().items() if name != "sampler"}
        ours.load_state_dict(old)  # this state was written before samplers existed


# sources of sources


def test_a_subset_has_the_named_samples(tmp_path):
    broken_data.make(tmp_path, count=16)
    source = read.files(tmp_path)
    is_odd = np.arange(16) % 2 == 1
    for indices in (range(1, 16, 2), slice(1, None, 2), is_odd):
        some = read.subset(source, indices)
        assert [sample["name"] for sample in some] == [source[index]["name"] for index in range(1, 16, 2)]
        assert some.labels.tolist() == source.labels[1::2].tolist()
        assert (some.classes, some[-1]["name"]) == (source.classes, source[15]["name"])
    assert read.subset(source, is_odd).fingerprint != read.subset(source, ~is_odd).fingerprint


def test_concatenated_sources_are_one_source(tmp_path):
    broken_data.make(tmp_path, count=16)
    one, other = read.files(tmp_path), read.subset(read.files(tmp_path), slice(3))
    both = read.concat(one, other)
    assert [sample["name"] for sample in both] == [sample["name"] for each in (one, other) for sample in each]
    assert both.labels.tolist() == [*one.labels, *other.labels]
    assert (both.classes, both.notes) == (one.classes, one.notes)
    assert both.fingerprint != read.concat(other, one).fingerprint
    assert read.concat(one, samples(2)).labels is not None
