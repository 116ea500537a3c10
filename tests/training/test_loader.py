"""Loader: every sample once an epoch, the same batches after a resume, and nothing left behind."""

import fcntl
import gc
import json
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import tracemalloc
import weakref
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import broken_data
import pixprep as pp
from loading import PLAIN, encoded, expected, same, samples

TESTS = Path(__file__).parents[1]


def loader(source=None, pipeline=PLAIN, **options):
    return pp.Loader(samples() if source is None else source, pipeline, **{"batch_size": 8, "threads": 2} | options)


def loader_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("pixprep")]


# What a batch has


def test_a_batch_has_the_pixels_of_the_engine_and_the_fields_of_its_samples():
    with loader(shuffle=True, seed=4) as ours:
        batches = list(ours)
    assert len(batches) == len(ours) == 5
    assert sorted(index for batch in batches for index in batch["index"].tolist()) == list(range(40))
    for batch in batches:
        assert batch["tensor"].shape == (8, 3, 24, 24)
        assert batch["label"].dtype == np.int64
        for row, index in enumerate(batch["index"].tolist()):
            assert np.array_equal(batch["tensor"][row], expected(index))
            assert batch["label"][row] == index % 3
            assert batch["name"][row] == f"photo {index}"
    with pytest.raises(KeyError, match='no "depth" in this batch; there are tensor, label, name, index'):
        batches[0]["depth"]


def test_a_batch_is_a_mapping_of_its_outputs_and_fields():
    with loader() as ours:
        batch = ours.example()
    assert list(batch) == ["tensor", "label", "name", "index", "attempt", "is_padding"]
    assert "label" in batch
    assert "depth" not in batch
    assert dict(batch)["label"] is batch["label"]
    assert len(batch) == 1  # image


def test_paths_views_and_arrays_are_images_too(tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(0))
    source = [
        {"image": tmp_path / "a.jpg"},
        {"image": memoryview(encoded(1))},
        {"image": bytearray(encoded(2))},
        {"image": np.frombuffer(encoded(3), np.uint8)},
    ]
    with loader(source, batch_size=4) as ours:
        (batch,) = list(ours)
    for row in range(4):
        assert np.array_equal(batch["tensor"][row], expected(row))


def test_a_loader_says_what_it_is():
    with loader(shuffle=True, seed=4) as ours:
        assert repr(ours) == (
            "<Loader: 5 batches of 8, 40 samples of list, shuffle=True, seed=4, shard=(0, 1), epoch=0>"
        )
        assert repr(next(iter(ours))).startswith("<Batch: 8 images, tensor uint8 [8, 3, 24, 24], label int64 [8], ")


def test_arrays_of_one_shape_are_one_array_but_not_what_belongs_to_boxes():
    source = samples(4)
    for index, sample in enumerate(source):
        sample |= {"text": np.full(5, index), "words": np.ones(1 + index), "points": np.ones((2, 3, 2), np.float32)}
    with loader(source, batch_size=2) as ours:
        batch = next(ours)
    assert batch["text"].tolist() == [[0] * 5, [1] * 5]
    assert [type(batch[name]) for name in ("words", "points")] == [list, list]


def test_the_kind_of_a_field_does_not_depend_on_the_samples_that_meet():
    source = samples(4)
    for index, sample in enumerate(source):
        sample |= {"area": index / 2, "boxes": np.zeros((3, 4), np.float32), "is_day": index > 1}
    del source[3]["area"]
    with loader(source, batch_size=2) as ours:
        first, second = list(ours)
    assert (first["area"].dtype, first["is_day"].dtype) == (np.float64, np.bool_)
    assert second["area"] == [1.0, None]
    assert [box.shape for box in first["boxes"]] == [(3, 4), (3, 4)]


def test_last_pad_says_what_only_fills_the_batch_up_and_short_is_shorter():
    with loader(samples(11), last="pad") as ours:
        padded = list(ours)[-1]
    assert padded["index"].tolist() == [8, 9, 10, 0, 1, 2, 3, 4]
    assert padded["is_padding"].tolist() == [False] * 3 + [True] * 5
    with loader(samples(11), last="short") as ours:
        assert [len(batch) for batch in ours] == [8, 3]


def test_by_default_an_unshuffled_epoch_has_every_sample_once():
    with loader(samples(11)) as ours:
        assert [batch["index"].tolist() for batch in ours] == [[*range(8)], [8, 9, 10]]
        assert len(ours) == 2
    indices = []
    for rank in range(2):
        with loader(samples(11), shard=(rank, 2), batch_size=4) as ours:
            batches = list(ours)
        assert [len(batch) for batch in batches] == [4, 4]
        indices += [index for batch in batches for index in batch["index"][~batch["is_padding"]].tolist()]
    assert sorted(indices) == list(range(11))
    with loader(samples(11), shuffle=True) as ours:
        assert [len(batch) for batch in ours] == [8]


def test_padding_that_nobody_would_see_is_said(caplog):
    """A validation would count these samples twice."""
    with loader(samples(11), shard=(0, 2), batch_size=4) as ours:
        ours.tuples("tensor", "label", "is_padding")
        ours.tuples("is_padding")
        assert not caplog.records
        ours.tuples("tensor", "label")
    (record,) = caplog.records
    assert record.getMessage() == (
        'an epoch is filled up with 5 samples that come twice: name "is_padding", too, and leave those rows '
        'out of what you count, or take last="drop"'
    )
    for options in ({"shard": (0, 1)}, {"shuffle": True, "last": "pad"}, {"last": "drop"}, {"source": samples(16)}):
        with loader(**{"source": samples(11), "shard": (0, 2), "batch_size": 4} | options) as ours:
            ours.tuples("tensor")
    assert len(caplog.records) == 1


def test_tuples_have_what_is_named():
    with loader(shuffle=True) as ours:
        pairs = list(ours.tuples("tensor", "label"))
        assert len(ours.tuples("label")) == len(pairs) == 5
    assert all(images.shape == (8, 3, 24, 24) and labels.shape == (8,) for images, labels in pairs)
    with pytest.raises(pp.PipelineError, match="tuples: name outputs and fields"):
        ours.tuples()


# Epochs and states


def test_it_goes_on_with_the_next_epoch_whose_order_is_another():
    with loader(shuffle=True) as ours:
        epochs = [[batch["index"].tolist() for batch in ours] for _ in range(2)]
        last = iter(ours)
        epochs.append([batch["index"].tolist() for batch in last])
        assert next(last, None) is None  # it stays at its end
        assert ours.epoch == 3
    assert epochs[0] != epochs[1] != epochs[2]
    with loader(shuffle=True) as again:
        assert [batch["index"].tolist() for batch in again] == epochs[0]


def test_next_goes_on_with_an_epoch_and_then_with_the_next_one():
    with loader(shuffle=True) as ours, loader(shuffle=True) as other:
        expected = [*other, *other]
        found = [next(ours) for _ in range(5)]
        with pytest.raises(StopIteration):
            next(ours)
        assert all(map(same, [*found, *(next(ours) for _ in range(5))], expected))


def test_an_epoch_may_be_set_by_the_one_that_counts_them():
    with loader(shuffle=True) as whole, loader(shuffle=True, epoch=1) as second, loader(shuffle=True) as ours:
        list(whole)
        expected = list(whole)
        assert all(map(same, second, expected))
        ours.set_epoch(1)
        next(ours)
        ours.set_epoch(1)  # from its beginning: a batch of it has come
        assert all(map(same, ours, expected))
        ours.load_state_dict(whole.state_dict() | {"epoch": 1, "position": 16})
        ours.set_epoch(1)  # as frameworks do behind a resume
        assert all(map(same, ours, expected[2:]))
        assert ours.epoch == 2


def test_a_loader_that_is_made_anew_in_each_epoch_is_told_that_it_repeats(caplog):
    for epoch in (0, 1):
        for options in ({"seed": 5}, {"seed": 6, "epoch": epoch}, {"seed": 7, "shuffle": False}):
            with loader(**{"shuffle": True} | options) as ours:
                list(ours)
    (record,) = caplog.records
    assert record.getMessage() == (
        "a Loader with the same arguments has had epoch 0, and this one repeats its order and draws: keep one Loader "
        "for all epochs, or give each its epoch=1, 2, ..."
    )


def test_an_epoch_that_was_left_is_over():
    with loader(shuffle=True) as ours:
        whole = list(ours)
        next(iter(ours))
        assert ours.epoch == 1
        third = list(ours)
        assert ours.epoch == 3
        assert not same(whole[0], third[0])


def test_an_iterator_without_a_batch_takes_no_epoch():
    with loader(shuffle=True) as ours:
        iter(ours)
        iter(ours)
        next(iter(ours))
        assert ours.epoch == 0


@pytest.mark.parametrize("done", range(6))
def test_a_state_goes_on_at_any_batch(done):
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


def test_a_state_behind_the_last_batch_is_the_beginning_of_the_next_epoch():
    with loader(last="drop", batch_size=7) as ours:
        batches = iter(ours)
        for _ in range(5):
            next(batches)
        state = ours.state_dict()
        assert (state["epoch"], state["position"], ours.epoch) == (1, 0, 0)
        assert next(batches, None) is None
        assert ours.state_dict() == state
        ours.load_state_dict(state | {"epoch": 0, "position": 35})  # of a smaller batch, which left five samples
        assert len(list(ours)) == 5
        assert ours.epoch == 2


def test_a_state_of_a_run_that_dropped_the_rest_goes_on_and_gives_it():
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


def test_a_state_counts_what_was_delivered_and_not_what_was_made_ahead():
    with loader(prefetch=4) as ours:
        next(iter(ours))
        assert ours.state_dict()["position"] == 8


def test_a_state_fits_another_world_size():
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


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"seed": 2}, pp.PipelineError, "the state is of seed=1, and this Loader has seed=2"),
        ({"shuffle": False}, pp.PipelineError, "the state is of shuffle=True, and this Loader has shuffle=False"),
        ({"source": samples(41)}, pp.DataError, "the state is of another source: 40 samples"),
        ({"source": samples(40)[::-1]}, pp.DataError, "the state is of another source: 40 samples"),
    ],
)
def test_a_state_of_something_else_is_refused(options, kind, words):
    with loader(shuffle=True, seed=1) as ours:
        state = ours.state_dict()
    with loader(**{"shuffle": True, "seed": 1} | options) as other, pytest.raises(kind, match=re.escape(words)):
        other.load_state_dict(state)
    for wrong in ({"epoch": 3}, None, [1]):
        with loader() as other, pytest.raises(pp.PipelineError, match="this is no state of a Loader"):
            other.load_state_dict(wrong)


@pytest.mark.parametrize(
    ("name", "value"),
    [("position", -8), ("position", 41), ("position", "8"), ("position", 8.0), ("epoch", -1), ("samples", "40")],
)
def test_a_damaged_state_is_refused_and_changes_nothing(name, value):
    """A position below 0 would begin with samples from the end of the order, and give some twice."""
    with loader() as ours:
        next(iter(ours))
        state = ours.state_dict()
        with pytest.raises(pp.PipelineError, match=f"^the state's {name} is .*: it is damaged$"):
            ours.load_state_dict(state | {name: value})
        assert ours.state_dict() == state


def test_a_state_may_have_numpys_numbers_as_checkpoints_give_them_back():
    with loader() as ours:
        next(iter(ours))
        state = ours.state_dict()
    with loader() as other:
        other.load_state_dict(state | {name: np.int64(state[name]) for name in ("epoch", "position")})
        assert json.loads(json.dumps(other.state_dict())) == state


def test_nothing_depends_on_threads_batch_size_or_prefetch():
    batches = {}
    for threads, batch_size, prefetch in ((1, 4, 1), (4, 8, 2), (2, 20, 3)):
        with loader(threads=threads, batch_size=batch_size, prefetch=prefetch, shuffle=True, seed=5) as ours:
            found = list(ours)
        batches[batch_size] = {name: np.concatenate([each[name] for each in found]) for name in ("index", "tensor")}
    for name in ("index", "tensor"):
        assert np.array_equal(batches[4][name], batches[8][name])
        assert np.array_equal(batches[4][name], batches[20][name])


# Broken samples


@pytest.fixture(scope="module")
def broken_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken")
    return folder, broken_data.make(folder, count=160)


def broken_loader(broken_files, **options):
    source = pp.read.files(broken_files[0])
    return loader(source, **{"on_error": "replace", "max_errors": 0.05, "shuffle": True, "seed": 2} | options)


def test_broken_samples_are_replaced_and_named(broken_files, caplog):
    with broken_loader(broken_files) as ours:
        batches = list(ours)
        names = {each.name: each.error.reason for each in ours.errors}
        assert names == broken_files[1]
        for each in ours.errors:
            assert str(each).startswith(f"epoch 0, sample {each.index}: [{each.error.reason}] {each.name}: ")
            assert str(each).endswith(f"sample {each.replaced_by} came in its place")
        assert "8 broken samples were replaced: " in caplog.text
        assert str(ours.stats()).endswith("8 samples are broken: see loader.errors")
    assert [len(batch) for batch in batches] == [8] * 20
    replaced = {each.replaced_by for each in ours.errors}
    indices = np.concatenate([batch["index"] for batch in batches])
    attempts = np.concatenate([batch["attempt"] for batch in batches])
    assert set(indices[attempts > 0].tolist()) == replaced
    assert not replaced & {each.index for each in ours.errors}
    for batch in batches:
        assert batch["name"] == [ours.source[index]["name"] for index in batch["index"].tolist()]


@pytest.mark.parametrize(("on_error", "count"), [("replace", 800), ("skip", 792)])
def test_one_in_a_hundred_broken_in_eight_ways_is_what_an_epoch_bears_by_default(on_error, count, tmp_path):
    broken = broken_data.make(tmp_path, 800)
    with loader(pp.read.files(tmp_path), on_error=on_error, shuffle=True) as ours, pp.Engine(PLAIN) as engine:
        batches = list(ours)
        assert {each.name: each.error.reason for each in ours.errors} == broken
        assert sum(map(len, batches)) == count
        for batch in batches:
            photos = [ours.source[index]["image"].read_bytes() for index in batch["index"].tolist()]
            assert np.array_equal(batch["tensor"], np.stack(engine.run(photos)))


def test_replacements_are_the_same_after_a_resume_and_in_a_shard(broken_files):
    with broken_loader(broken_files) as ours:
        whole = list(ours)
        batches = iter(ours)
        state = [ours.state_dict() for _ in zip(range(8), batches, strict=False)][-1]
        second = list(batches)
    with broken_loader(broken_files, threads=1) as again:
        again.load_state_dict(state)
        rest = list(again)
    assert all(same(one, other) for one, other in zip(rest, second, strict=True))
    shards = []
    for rank in range(2):
        with broken_loader(broken_files, batch_size=4, shard=(rank, 2), max_errors=8) as shard:
            shards.append(list(shard))
    for batch, *parts in zip(whole, *shards, strict=True):
        assert np.array_equal(batch["tensor"], np.concatenate([part["tensor"] for part in parts]))


def test_skipped_samples_are_missing_and_all_others_are_there(broken_files, caplog):
    with broken_loader(broken_files, on_error="skip") as ours:
        batches = list(ours)
        broken = {each.index for each in ours.errors}
        assert {each.name: each.error.reason for each in ours.errors} == broken_files[1]
        assert "left out" in caplog.text
        assert all(str(each).endswith("left out") for each in ours.errors)
    indices = [index for batch in batches for index in batch["index"].tolist()]
    assert sorted(indices) == sorted(set(range(160)) - broken)
    for batch in batches:
        assert len(batch) == len(batch["tensor"]) == len(batch["label"]) == len(batch.placed)


def test_a_broken_sample_ends_the_epoch_by_default_and_is_named(broken_files):
    with broken_loader(broken_files, on_error="raise", shuffle=False) as ours:
        with pytest.raises(pp.ImageError, match=r"\[EMPTY\] china/00010-empty\.jpg: no bytes") as caught:
            list(ours)
        assert caught.value.reason == "EMPTY"
        assert ours.errors == []
        assert not [thread for thread in loader_threads() if thread.name == "pixprep-loader"]


def test_a_jpeg_that_only_pillow_takes_is_refused_with_the_level_that_takes_it():
    junk = encoded(0).replace(b"\xff\xc0", b"\0\xff\0\1\xff\xc0", 1)
    source = [{"image": junk, "name": "odd.jpg"}]
    with loader(source, batch_size=1) as ours, pytest.raises(pp.ImageError) as caught:
        list(ours)
    assert str(caught.value) == (
        "[CORRUPT] odd.jpg: libjpeg-turbo: 4 extraneous bytes before marker 0xc0: "
        'damage="pillow" takes what Pillow loads, and on_error="replace" another sample'
    )
    with loader(source, batch_size=1, damage="pillow") as ours:
        assert next(iter(ours)).recovered == 1
    source[0]["image"] = encoded(0)[:-99]
    with (
        loader(source, batch_size=1, damage="pillow") as ours,
        pytest.raises(pp.ImageError, match=r"before its last row$"),
    ):
        list(ours)


def test_too_many_broken_samples_end_the_epoch(broken_files):
    with broken_loader(broken_files, max_errors=3) as ours, pytest.raises(pp.DataError) as caught:
        list(ours)
    assert re.match(r"4 samples of epoch 0 are broken, and max_errors allows 3: .*, …; the last: \[", str(caught.value))
    with broken_loader(broken_files, max_errors=0.01) as ours, pytest.raises(pp.DataError, match="allows 2"):
        list(ours)  # 1 % of 160, rounded up


def test_a_source_of_broken_samples_alone_ends(caplog):
    source = [{"image": b"not an image"}] * 8
    with loader(source, on_error="replace", max_errors=1.0) as ours, pytest.raises(pp.DataError, match="100 attempts"):
        list(ours)
    with loader(source, on_error="skip", max_errors=1.0) as ours:
        assert list(ours) == []
    assert "8 broken samples were left out" in caplog.text


def test_a_mistake_of_the_source_is_no_broken_sample():
    class Wrong(list):
        def __getitem__(self, index):
            raise ZeroDivisionError

    with loader(Wrong(samples()), on_error="replace", max_errors=1.0) as ours, pytest.raises(ZeroDivisionError):
        list(ours)
    for wrong, words in (
        ({"picture": b""}, 'sample 0 has no "image"; it has picture'),
        ({"image": "a.jpg"}, 'sample 0: "image" is the bytes of a file, or its pathlib.Path, not str'),
        ({"image": np.zeros((8, 8, 3), np.uint8)}, "is the bytes of a file, or its pathlib.Path, not ndarray"),
        (9, 'sample 0 is no dict with an "image", but int: pixprep.read.rows takes other rows'),
    ):
        with loader([wrong] * 8, on_error="skip") as ours, pytest.raises(pp.DataError, match=re.escape(words)):
            list(ours)


def test_a_photo_that_lies_against_its_annotation_is_refused():
    source = samples(8)
    for index, sample in enumerate(source):
        sample["size"] = (30 + index % 7, 40 + index % 5)
    with loader(source) as ours:
        assert len(list(ours)) == 1
    source[3]["size"] = source[3]["size"][::-1]
    with loader(source) as ours, pytest.raises(pp.ImageError) as caught:
        list(ours)
    assert str(caught.value).startswith("[BAD_RECORD] photo 3: 33 x 43 pixels, but annotated as 43 x 33: turned by its")


# Random ops

RANDOM = pp.Pipeline(
    [
        pp.decode(),
        pp.random_resized_crop(height=24, width=24),
        pp.random_flip(),
        pp.resize(height=24, width=24, only="serving"),
        pp.tensor(dtype="uint8"),
    ]
).for_training()


def test_draws_come_back_and_a_sample_can_be_replayed():
    with loader(pipeline=RANDOM, shuffle=True, seed=6) as ours:
        list(ours)
        second = list(ours)
        batch = second[2]
        assert set(batch.draws[0]) == {"random_resized_crop#0", "random_flip#0"}
        assert json.loads(json.dumps(batch.draws)) == batch.draws
        for row, index in enumerate(batch["index"].tolist()):
            again = ours.replay(1, index)
            assert np.array_equal(again["tensor"][0], batch["tensor"][row])
            assert again.draws == [batch.draws[row]]
            first = ours.replay(0, index)
            assert first.draws != again.draws


def test_a_replacement_can_be_replayed_too(broken_files):
    with broken_loader(broken_files, pipeline=RANDOM) as ours:
        for batch in ours:
            for row, attempt in enumerate(batch["attempt"].tolist()):
                if attempt:
                    again = ours.replay(0, int(batch["index"][row]), attempt)
                    assert np.array_equal(again["tensor"][0], batch["tensor"][row])
        with pytest.raises(pp.ImageError):
            ours.replay(0, ours.errors[0].index)


def test_random_batches_are_the_same_on_any_number_of_shards_and_after_a_resume():
    with loader(pipeline=RANDOM, shuffle=True) as ours:
        whole = list(ours)
    shards = []
    for rank in range(4):
        with loader(pipeline=RANDOM, shuffle=True, shard=(rank, 4), batch_size=2, threads=1) as shard:
            next(batches := iter(shard))
            state = shard.state_dict()
            del batches
            shard.load_state_dict(state)
            shards.append(list(shard))
    for batch, *parts in zip(whole[1:], *shards, strict=True):
        assert np.array_equal(batch["tensor"], np.concatenate([part["tensor"] for part in parts]))


# The cache


def test_cached_pixels_give_the_same_batches_and_files_are_not_read_again(tmp_path):
    source = []
    for index in range(16):
        (tmp_path / f"{index}.jpg").write_bytes(encoded(index))
        source.append({"image": tmp_path / f"{index}.jpg", "label": index})
    with loader(source, pipeline=RANDOM, shuffle=True) as plain:
        epochs = [list(plain) for _ in range(2)]
    with loader(source, pipeline=RANDOM, shuffle=True, cache="pixels") as ours:
        first = list(ours)
        assert ours.stats().cached == 16
        for sample in source:
            sample["image"].unlink()
        second = list(ours)
    assert all(same(one, other) for one, other in zip(first + second, epochs[0] + epochs[1], strict=True))


def test_the_cache_is_bounded():
    largest = 36 * 44 * 4
    with loader(cache="pixels", cache_bytes=5 * largest) as ours:
        list(ours)
        list(ours)
        assert 5 <= ours.stats().cached < 10
        assert f"the pixels of {ours.stats().cached} samples are kept" in str(ours.stats())


# Memory, threads and processes


def test_memory_and_threads_go_when_the_iterator_is_dropped_in_mid_epoch():
    with loader(prefetch=4, batch_size=4) as ours:
        batch = next(batches := iter(ours))
        gone = weakref.ref(batch)
        assert any(thread.name == "pixprep-loader" for thread in threading.enumerate())
        del batches, batch
        assert gone() is None
        assert not any(thread.name.startswith(("pixprep-loader", "pixprep-read")) for thread in threading.enumerate())
        assert len(list(ours)) == 10


def test_memory_is_kept_for_the_next_epoch_and_given_back_when_one_is_left():
    tracemalloc.start()
    try:
        with loader(batch_size=8) as ours:
            for batch in ours:  # noqa: B007
                pass
            n_bytes = batch["tensor"].nbytes
            del batch
            assert _traced("recycling.py") >= n_bytes
            next(batches := iter(ours))
            del batches
            assert _traced("recycling.py") < n_bytes
            list(ours)
        assert _traced("recycling.py") < n_bytes
    finally:
        tracemalloc.stop()


def _traced(name):
    """Bytes that were allocated in a file and are not free."""
    only = tracemalloc.Filter(inclusive=True, filename_pattern=f"*/{name}")
    return sum(each.size for each in tracemalloc.take_snapshot().filter_traces([only]).traces)


def test_a_batch_is_made_ahead_only_as_far_as_prefetch_says():
    class Counted(list):
        asked = 0

        def __getitem__(self, index):
            self.asked += 1
            return super().__getitem__(index)

    source = Counted(samples(400))
    with loader(source, prefetch=2) as ours:
        batches = iter(ours)
        next(batches)
        deadline = time.monotonic() + 20
        while len(batches._ready._ready) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        # delivered 1, ready or being made 2, read for the engine 1, read ahead 2
        assert source.asked <= 8 * (1 + 2 + 1 + 2)


def test_arrays_are_used_again_only_when_the_consumer_has_let_go():
    with loader(samples(40), batch_size=4) as ours:
        kept = list(ours)
    assert len({batch["tensor"].ctypes.data for batch in kept}) == 10
    for batch in kept:
        for row, index in enumerate(batch["index"].tolist()):
            assert np.array_equal(batch["tensor"][row], expected(index))
    with loader(samples(40), batch_size=4, prefetch=1) as ours:
        view = None
        places = set()
        for number, batch in enumerate(ours):
            if number == 0:
                view = batch["tensor"][1:2, 0]
                first = batch["index"].tolist()
            places.add(batch["tensor"].ctypes.data)
        assert np.array_equal(view[0], expected(first[1])[0])
    assert len(places) < 6
    assert all(place % 64 == 0 for place in places)


def test_a_newer_epoch_ends_the_older_one():
    with loader() as ours:
        older = iter(ours)
        next(older)
        newer = iter(ours)
        next(newer)
        with pytest.raises(pp.SetupError, match="this epoch is over: another one has begun"):
            next(older)
        assert len(list(newer)) == 4


def test_a_loader_that_is_dropped_leaves_no_thread():
    before = {thread.ident for thread in threading.enumerate()}
    ours = loader()
    next(iter(ours))
    list(ours)
    del ours
    gc.collect()
    deadline = time.monotonic() + 20
    while {thread.ident for thread in threading.enumerate()} - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert {thread.ident for thread in threading.enumerate()} <= before


def run(code, **options):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    head = "from loading import PLAIN, samples\nimport pixprep as pp\n"
    head += "loader = pp.Loader(samples(400), PLAIN, batch_size=8, threads=2)\n"
    command = [sys.executable, "-W", "error", "-c", head + code]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run(command, text=True, env=environment, timeout=120, check=False, **options)


@pytest.mark.parametrize(
    ("code", "returned", "said"),
    [
        ("batches = iter(loader); next(batches)", 0, ""),
        ("for batch in loader: raise SystemExit(3)", 3, ""),
        (
            "import os, signal\nfor batch in loader: os.kill(os.getpid(), signal.SIGINT)",
            -signal.SIGINT,
            "KeyboardInterrupt",
        ),
        ("for batch in loader: 1 / 0", 1, "ZeroDivisionError"),
    ],
    ids=["the end of the program", "exit", "Ctrl-C", "an exception"],
)
def test_a_process_ends_cleanly_in_mid_epoch(code, returned, said):
    result = run(code)
    assert result.returncode == returned
    assert said in result.stderr if said else result.stderr == ""
    assert "Exception ignored" not in result.stderr
    assert "Fatal" not in result.stderr


def test_ctrl_c_ends_an_epoch_that_waits_for_a_slow_source():
    code = (
        "import threading, time\n"
        "class Slow(list):\n"
        "    def __getitem__(self, index):\n"
        "        time.sleep(0.2)\n"
        "        return super().__getitem__(index)\n"
        "slow = pp.Loader(Slow(samples(64)), PLAIN, batch_size=32, threads=2)\n"
        "import _thread\n"
        "try:\n"
        "    threading.Timer(0.3, _thread.interrupt_main).start()\n"
        "    for batch in slow: pass\n"
        "except KeyboardInterrupt:\n"
        "    left = [thread.name for thread in threading.enumerate() if thread.name.startswith('pixprep-')]\n"
        "    print(left)\n"
    )
    result = run(code)
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "[]", "")


def test_a_fork_is_refused_and_ends():
    code = (
        "import os, sys\n"
        "batches = iter(loader); next(batches)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    for each in (lambda: next(batches), lambda: iter(loader), lambda: loader.replay(0, 1)):\n"
        "        try: each()\n"
        "        except pp.SetupError as error: print(error, flush=True)\n"
        "    sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(list(batches)))\n"
    )
    result = run(code)
    words = (
        "a Loader works in the process that made it, and this is a fork of it: make one there. In a PyTorch DataLoader "
        "take num_workers=0: the Loader's own threads do what its workers would do"
    )
    assert result.stdout.splitlines() == [words] * 3 + ["7 49"]
    assert result.stderr == ""


def test_it_cannot_be_sent_to_another_process():
    with loader() as ours, pytest.raises(pp.SetupError, match="a Loader cannot be sent to another process: make one"):
        pickle.dumps(ours)


# What it says


def test_stats_say_who_waited_for_whom():
    with loader() as ours:
        assert str(ours.stats()) == "no batch has been delivered yet"
        batches = iter(ours)
        next(batches)
        begun_s = ours.stats().total_s
        list(batches)
        stats = ours.stats()
        assert 0 < begun_s < stats.total_s == ours.stats().total_s
    assert (stats.batches, stats.samples, stats.threads, stats.broken) == (5, 40, 2, 0)
    assert 0 < stats.starved_s <= stats.total_s
    assert 0 < stats.reading_s + stats.working_s + stats.blocked_s <= stats.total_s
    assert stats.decode_s > 0 < stats.transform_s
    assert str(stats).startswith(f"5 batches, 40 samples in {stats.total_s:.1f} s: ")


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({"starved_s": 0.5}, "for 5% of the time: the Loader keeps up"),
        ({"starved_s": 5, "reading_s": 5, "working_s": 4}, "for 50% of the time: it waits for files"),
        ({"starved_s": 5, "reading_s": 1, "working_s": 8}, "for 50% of the time: it waits for decoding and resizing"),
        ({"decode_s": 3, "transform_s": 1}, "75% was decoding, 25% resizing and arithmetic"),
    ],
)
def test_stats_name_what_to_do(times, words):
    from pixprep.training.timeline import Stats  # noqa: PLC0415

    zeros = dict.fromkeys(("starved_s", "reading_s", "working_s", "blocked_s", "decode_s", "transform_s"), 0.0)
    stats = Stats(batches=1, samples=8, broken=0, cached=0, threads=2, total_s=10.0, **zeros | times)
    assert words in str(stats)


def test_a_trace_has_a_track_for_each_thread(tmp_path):
    with loader() as ours:
        list(ours)
        ours.trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    tracks = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert "pixprep-loader" in tracks
    assert any(track.startswith("pixprep-read") for track in tracks)
    spans = [event for event in events if event["ph"] == "X"]
    assert sum(event["args"]["samples"] for event in spans if event["name"] == "read") == 40
    assert len([event for event in spans if event["name"] == "decode and transform"]) == 5
    assert {event["name"] for event in spans} >= {"epoch", "wait for a batch", "wait for files", "wait for room"}
    assert all(event["dur"] > 0 for event in spans)


def test_a_slow_source_gets_more_threads(tmp_path):
    class Slow(list):
        delay_s = 0.005

        def __getitem__(self, index):
            time.sleep(self.delay_s)
            return super().__getitem__(index)

    source = Slow(samples(96))
    shares, deadline = {4}, time.monotonic() + 60  # of a batch, which two threads read
    with loader(source, batch_size=8) as ours:
        while min(shares) > 1 and time.monotonic() < deadline:
            list(ours)
            ours.trace(tmp_path / "t.json")
            events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
            shares = {event["args"]["samples"] for event in events if event["name"] == "read"}
            source.delay_s *= 2  # until it is slower than this machine decodes
    assert (min(shares), max(shares)) == (1, 4)


def test_a_progress_bar_is_shown_where_stderr_is_a_terminal():
    code = "shown = pp.Loader(samples(), PLAIN, batch_size=8, progress=True)\nfor _ in range(2): list(shown)\n"
    assert run(code).stderr == ""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))  # else tqdm finds no room
    result = run(code, stderr=theirs)
    assert result.returncode == 0
    os.set_blocking(ours, False)
    assert os.read(ours, 1 << 16).decode().count("0/5 [") == 2
    os.close(ours)
    os.close(theirs)


def test_a_progress_bar_is_shown_in_a_notebook_in_one_line(tmp_path):
    code = (
        "import sys; sys.modules['ipykernel'] = sys\nlist(pp.Loader(samples(), PLAIN, batch_size=8, progress=True))\n"
    )
    with (tmp_path / "shown").open("wb") as file:
        run(code, stderr=file)
    shown = (tmp_path / "shown").read_bytes()
    assert b"0/5 [" in shown
    assert b"\n" not in shown  # a notebook draws what follows a \r over what came before


def test_a_closed_loader_says_so():
    ours = loader()
    ours.close()
    for use in (ours.__iter__, ours.example, lambda: ours.replay(0, 0)):
        with pytest.raises(pp.SetupError, match="this Loader was closed: make another one"):
            use()
    ours.close()


@pytest.mark.parametrize("index", [-1, 40])
def test_a_sample_that_is_not_there_is_not_replayed(index):
    with loader() as ours, pytest.raises(IndexError, match=f"no sample {index}: there are 40"):
        ours.replay(0, index)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("sides", [True, False])
def test_who_trains_with_the_serving_side_is_told(shuffle, sides, caplog):
    only = {"only": "serving"} if sides else {}
    flips = [pp.random_flip()] if sides else []
    pipeline = pp.Pipeline([pp.decode(), *flips, pp.resize(height=8, width=8), pp.center_crop(8, **only), pp.tensor()])
    loader(pipeline=pipeline.at("serving"), shuffle=shuffle).close()
    words = 'the Loader shuffles, and serving leaves out ops[1] "random_flip": pipeline.for_training() is the other'
    assert (words in caplog.text) == (shuffle and sides)
    caplog.clear()
    loader(pipeline=pipeline.for_training(), shuffle=True).close()
    assert caplog.text == ""


def test_a_field_that_the_batch_hides_is_told_once(caplog):
    source = [{**sample, "index": 7, "tensor": 7} for sample in samples(16)]
    with loader(source) as ours:
        for batch in ours:
            assert batch["tensor"].ndim == 4
            assert len(set(batch["index"].tolist())) == len(batch)
    for name in ("index", "tensor"):
        assert caplog.text.count(f'batch["{name}"] is not the field of that name of the samples') == 1


def test_several_processes_without_a_shard_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(pp.PipelineError, match="shard: WORLD_SIZE is 2, and no shard is given"):
        loader()
    with loader(shard=(0, 1)) as ours:
        assert len(list(ours)) == 5


# Boxes

CORNERS = [[2, 3, 20, 25], [0, 0, 4, 4], [10, 10, 30, 28]]


def boxed(*ops, count=12):
    """Photos with 0 to 3 boxes, and a pipeline with the ops before its tensor."""
    source = samples(count)
    for index, sample in enumerate(source):
        n = index % 4
        sample |= {"boxes": np.array(CORNERS[:n], np.float32).reshape(-1, 4), "labels": np.arange(n), "id": index}
    pipeline = pp.Pipeline(
        [pp.decode(), pp.random_flip(), pp.resize(height=24, width=24), *ops, pp.tensor(dtype="uint8")]
    )
    return source, pipeline.for_training()


def test_boxes_and_what_belongs_to_them_follow_the_geometry():
    source, pipeline = boxed(pp.boxes(min_size=3))
    with loader(source, pipeline=pipeline, batch_size=4, shuffle=True) as ours:
        for batch in ours:
            assert batch["id"].dtype == np.int64
            for row, index in enumerate(batch["index"].tolist()):
                boxes, (height, width) = np.array(CORNERS[: index % 4], np.float32).reshape(-1, 4), size(index)
                if batch.draws[row]["random_flip#0"]["flip"]:
                    boxes[:, [0, 2]] = width - boxes[:, [2, 0]]
                moved = boxes * np.array([24 / width, 24 / height] * 2)
                kept = (moved[:, 2:] - moved[:, :2] >= 3).all(axis=1)
                assert np.allclose(batch["boxes"][row], moved[kept], atol=1e-4)
                assert batch["labels"][row].tolist() == np.flatnonzero(kept).tolist()


def size(index):
    return 30 + index % 7, 40 + index % 5


def test_boxes_of_another_name_are_not_beside_those_of_the_photo():
    source, pipeline = boxed(pp.boxes(name="found", min_size=3))
    with loader(source, pipeline=pipeline, batch_size=4) as ours:
        batch = next(iter(ours))
        assert "boxes" not in batch.fields
        assert list(map(len, batch["found"])) == list(map(len, batch["labels"]))


@pytest.mark.parametrize("pad", [None, 4])
def test_what_only_some_samples_say_of_their_boxes_is_missing_in_the_others(pad):
    source, pipeline = boxed(pp.boxes(pad=pad))
    source[3]["iscrowd"] = [0, 1, 0]
    with loader(source, pipeline=pipeline, batch_size=4) as ours:
        first, second = next(batches := iter(ours)), next(batches)
        assert "iscrowd" not in second.fields
        if pad:
            assert first["iscrowd"].tolist() == [[-1] * 4] * 3 + [[0, 1, 0, -1]]
        else:
            assert first["iscrowd"][:3] == [None] * 3
            assert first["iscrowd"][3].tolist() == [0, 1, 0]


def test_padded_boxes_are_one_array():
    source, pipeline = boxed(pp.boxes(pad=5))
    with loader(source, pipeline=pipeline, batch_size=4) as ours:
        for batch in ours:
            assert batch["boxes"].shape == (4, 5, 4)
            assert (batch["labels"] >= 0).sum(axis=1).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("on_error", ["replace", "skip"])
def test_boxes_stay_with_their_images_where_samples_are_broken(on_error):
    source, pipeline = boxed(pp.boxes())
    source[2]["labels"] = np.arange(7)  # for two boxes
    source[5]["size"] = (99, 99)
    source[8]["image"] = b""
    with loader(source, pipeline=pipeline, batch_size=6, on_error=on_error, max_errors=3) as ours:
        batches = list(ours)
        assert {each.index: each.error.reason for each in ours.errors} == {2: "BAD_RECORD", 5: "BAD_RECORD", 8: "EMPTY"}
        for batch in batches:
            for row, index in enumerate(batch["index"].tolist()):
                again = ours.replay(0, index, int(batch["attempt"][row]))
                assert np.array_equal(batch["boxes"][row], again["boxes"][0])
                assert np.array_equal(batch["tensor"][row], again["tensor"][0])
                assert len(batch["labels"][row]) == len(batch["boxes"][row]) == index % 4
    assert sum(map(len, batches)) == (9 if on_error == "skip" else 12)


@pytest.mark.parametrize(
    ("ops", "name", "value", "words"),
    [
        ([], "boxes", [[0, 0, 9, 9]], "they are in pixels of the photos, not of the tensors: add the op boxes"),
        (["points"], "boxes", [[0, 0, 9, 9]], "add the op boxes"),
        (["boxes"], "points", [[[5, 5]]] * 3, "add the op points"),
        (["boxes"], "keypoints", [[5, 5]], 'call the field "points", which the op points moves'),
        (["boxes"], "mask", b"PNG", "not of the tensors: add the op mask"),
        (["boxes"], "masks", np.zeros((3, 33, 43)), "add the op masks"),
        ([], "segmentation", b"PNG", 'call the field "mask", which the op mask moves'),
        ([], "depth", np.zeros((33, 43)), "it is not cropped"),
        ([], "parts", np.zeros((5, 33, 43)), "it is not cropped"),
        ([], "drawn", Image.new("L", (43, 33)), "it is not cropped"),
        ([], "embedding", np.zeros((43, 33)), None),
        ([], "text", "a mask", None),
        (["boxes", "points"], "boxes", CORNERS, None),
    ],
)
def test_what_lies_in_the_photo_and_is_not_moved_is_told_of_once(ops, name, value, words, caplog):
    _, pipeline = boxed(*(getattr(pp, op)() for op in ops))
    annotation = {"boxes": CORNERS, "points": [[5, 5]] * 3}
    source = [{"image": encoded(3), **{op: annotation[op] for op in ops}, name: value}]
    with loader(source, pipeline=pipeline, batch_size=1) as ours:
        list(ours)
        list(ours)
    told = [record.message for record in caplog.records if record.message.startswith("no op moves")]
    assert len(told) == (words is not None)
    if words is not None:
        assert f'no op moves batch["{name}"]: ' in told[0]
        assert words in told[0]


def test_a_pipeline_that_wants_boxes_of_a_source_without_says_so():
    _, pipeline = boxed(pp.boxes())
    with (
        loader(pipeline=pipeline, on_error="replace") as ours,
        pytest.raises(pp.PipelineError, match='have no "boxes"'),
    ):
        list(ours)


# Numbers that come with a sample


BOXED = pp.Pipeline(
    [
        pp.decode(), pp.crop(box="boxes"), pp.random_flip(), pp.flip("vertical", when="over"),
        pp.resize(height=24, width=24), pp.tensor(dtype="uint8"),
    ]
).for_training()  # fmt: skip


def cut(count=12):
    return [
        sample | {"boxes": np.array([[1, 2, 20.4, 15 + index % 9]], np.float32), "over": index % 3 == 0}
        for index, sample in enumerate(samples(count))
    ]


def test_the_fields_of_a_sample_are_a_pipelines_inputs():
    with loader(cut(), BOXED, batch_size=4, shuffle=True, seed=3) as ours:
        batches = list(ours)
        again = [ours.replay(0, int(index)) for index in batches[0]["index"]]
    flips = set()
    for batch in batches:
        for row, index in enumerate(batch["index"].tolist()):
            is_flipped, over = batch.draws[row]["random_flip#0"]["flip"], index % 3 == 0
            flips.add((is_flipped, over))
            ops = [pp.crop(2, 1, 13 + index % 9, 19), *[pp.flip()] * is_flipped, *[pp.flip("vertical")] * over]
            plain = pp.Pipeline([pp.decode(), *ops, pp.resize(height=24, width=24), pp.tensor(dtype="uint8")])
            assert np.array_equal(batch["tensor"][row], expected(index, plain)), index
            assert batch["boxes"][row].tolist() == [[1, 2, np.float32(20.4), 15 + index % 9]]
    assert len(flips) == 4
    for row, alone in enumerate(again):
        assert np.array_equal(alone["tensor"][0], batches[0]["tensor"][row])


BROKEN_BOXES = [
    ([[1, 2, 3]], '"boxes" is float32 [n, 4]'),
    ([[0, 0, 9, 9]] * 2, '"boxes" has 2 rows; one tensor is made of one'),
    ([[900, 0, 999, 9]], "900, 0, 999, 9 lies outside the 33 x 43 pixels"),
]


@pytest.mark.parametrize(("boxes", "words"), BROKEN_BOXES, ids=[words for _, words in BROKEN_BOXES])
def test_a_sample_whose_box_is_none_is_a_broken_sample(boxes, words):
    source = cut()
    source[3]["boxes"] = boxes
    with loader(source, BOXED, batch_size=4, on_error="replace", max_errors=2) as ours:
        assert sum(map(len, list(ours))) == 12
        (broken,) = ours.errors
    assert broken.index == 3
    assert broken.error.detail.startswith(f"photo 3: {words}")


def test_a_source_without_a_pipelines_input_is_refused():
    with (
        loader(samples(), BOXED) as ours,
        pytest.raises(pp.PipelineError, match=r'the pipeline takes "boxes", float32 .n, 4.* which the samples of its'),
    ):
        list(ours)
