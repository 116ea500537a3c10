"""Tests that broken samples are replaced, skipped or rejected, and that messages name them."""

import re

import numpy as np
import pytest

import pixprep as pp
from support import broken_data
from support.loading import PLAIN, RANDOM, encoded, loader, loader_threads, same, samples


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
            assert str(each).endswith(f"replaced by sample {each.replaced_by}")
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
def test_by_default_an_epoch_tolerates_one_in_a_hundred_samples_broken_in_eight_ways(on_error, count, tmp_path):
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


def test_skipped_samples_are_missing_and_all_others_are_present(broken_files, caplog):
    with broken_loader(broken_files, on_error="skip") as ours:
        batches = list(ours)
        broken = {each.index for each in ours.errors}
        assert {each.name: each.error.reason for each in ours.errors} == broken_files[1]
        assert "were skipped" in caplog.text
        assert all(str(each).endswith("skipped") for each in ours.errors)
    indices = [index for batch in batches for index in batch["index"].tolist()]
    assert indices == [index for index in ours.order.order(0).tolist() if index not in broken]
    for batch in batches:
        assert len(batch) == len(batch["tensor"]) == len(batch["label"]) == len(batch.placed)


def test_by_default_a_broken_sample_ends_the_epoch_and_is_named(broken_files):
    with broken_loader(broken_files, on_error="raise", shuffle=False) as ours:
        with pytest.raises(pp.ImageError, match=r"\[EMPTY\] china/00010-empty\.jpg: the image is empty") as caught:
            list(ours)
        assert caught.value.reason == "EMPTY"
        assert ours.errors == []
        assert not [thread for thread in loader_threads() if thread.name == "pixprep-loader"]


def test_a_jpeg_that_only_pillow_decodes_is_rejected_with_the_policy_that_accepts_it():
    junk = encoded(0).replace(b"\xff\xc0", b"\0\xff\0\1\xff\xc0", 1)
    source = [{"image": junk, "name": "odd.jpg"}]
    with loader(source, batch_size=1) as ours, pytest.raises(pp.ImageError) as caught:
        list(ours)
    assert str(caught.value) == (
        "[CORRUPT] odd.jpg: libjpeg-turbo: 4 extraneous bytes before marker 0xc0 (parameter damage): "
        'damage="pillow" accepts the files that Pillow loads; on_error="replace" uses a different sample'
    )
    with loader(source, batch_size=1, damage="pillow") as ours:
        assert next(iter(ours)).recovered == 1
    source[0]["image"] = encoded(0)[:-99]
    with (
        loader(source, batch_size=1, damage="pillow") as ours,
        pytest.raises(pp.ImageError, match=r"before its last row \(parameter damage\)$"),
    ):
        list(ours)


def test_too_many_broken_samples_end_the_epoch(broken_files):
    with broken_loader(broken_files, max_errors=3) as ours, pytest.raises(pp.DataError) as caught:
        list(ours)
    assert re.match(
        r"4 samples of epoch 0 are broken, but max_errors allows only 3: .*, …; the last error: \[", str(caught.value)
    )
    with broken_loader(broken_files, max_errors=0.01) as ours, pytest.raises(pp.DataError, match="allows only 2"):
        list(ours)  # 1 % of 160 samples, rounded up


def test_a_source_with_only_broken_samples_ends(caplog):
    source = [{"image": b"not an image"}] * 8
    with (
        loader(source, on_error="replace", max_errors=1.0) as ours,
        pytest.raises(pp.DataError, match="all of the 100 samples"),
    ):
        list(ours)
    with loader(source, on_error="skip", max_errors=1.0) as ours:
        assert list(ours) == []
    assert "8 broken samples were skipped" in caplog.text


class Raising(list):
    """Source in which reading one of the samples raises an error."""

    def __init__(self, error, index):
        super().__init__(samples())
        self.error, self.index = error, index

    def __getitem__(self, index):
        if index == self.index:
            raise self.error
        return super().__getitem__(index)


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (StopIteration(), False),
        (ZeroDivisionError("by zero"), False),
        (TypeError("odd"), False),
        (IndexError("17"), False),
        (OSError(5, "Input/output error"), True),
        (ConnectionResetError("reset"), True),
        (KeyError("photo"), True),
        (TimeoutError("late"), True),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_an_error_of_a_source_is_a_data_error_or_counts_as_a_broken_sample(error, counts, batch_size):
    words = re.escape(f"sample 17 of the source: {type(error).__name__}: {error}")
    with loader(Raising(error, 17), batch_size=batch_size) as ours, pytest.raises(pp.DataError, match=f"^{words}$"):
        list(ours)
    with loader(Raising(error, 17), batch_size=batch_size, on_error="replace", max_errors=1) as ours:
        if not counts:
            with pytest.raises(pp.DataError, match=f"^{words}$"):
                list(ours)
            return
        assert sum(map(len, ours)) == len(ours) * batch_size == 40
        (broken,) = ours.errors
        assert (broken.index, broken.error.reason) == (17, "UNREADABLE")
        assert re.search(words, str(broken))


def test_a_photo_whose_rotation_contradicts_its_annotation_is_rejected():
    source = samples(8)
    for index, sample in enumerate(source):
        sample["size"] = (30 + index % 7, 40 + index % 5)
    with loader(source) as ours:
        assert len(list(ours)) == 1
    source[3]["size"] = source[3]["size"][::-1]
    with loader(source) as ours, pytest.raises(pp.ImageError) as caught:
        list(ours)
    assert str(caught.value).startswith(
        "[BAD_RECORD] photo 3: the image has 33 x 43 pixels, but its annotation was made for 43 x 33: if this is due"
    )


def test_a_replacement_can_also_be_replayed(broken_files):
    with broken_loader(broken_files, pipeline=RANDOM) as ours:
        for batch in ours:
            for row, attempt in enumerate(batch["attempt"].tolist()):
                if attempt:
                    again = ours.replay(0, int(batch["index"][row]), attempt)
                    assert np.array_equal(again["tensor"][0], batch["tensor"][row])
        with pytest.raises(pp.ImageError):
            ours.replay(0, ours.errors[0].index)
