"""Tests what every source must fulfil: indices, names, threads, pickling and fingerprints."""

import operator
import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pixprep as pp
from pixprep.training.sources import read_image
from pixprep.training.sources.storage import fingerprint
from support.broken_data import small_jpeg
from support.records import MAKERS

COUNT = 6


@pytest.fixture(params=MAKERS)
def make(request, tmp_path):
    """Return a function that creates a source with a given number of samples in its own folder."""

    def made(count=COUNT, folder="a"):
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        return MAKERS[request.param](path, count)

    return made


def comparable(sample):
    """Return a sample as values that can be compared with ``==``."""
    return {
        key: (str(value.dtype), value.tolist())
        if isinstance(value, np.ndarray)
        else bytes(value)
        if isinstance(value, memoryview)
        else value
        for key, value in sample.items()
    }


def test_samples_are_indexed_like_a_list(make):
    source = make()
    assert len(source) == COUNT
    samples = [comparable(source[index]) for index in range(COUNT)]
    assert [comparable(sample) for sample in source] == samples
    assert comparable(source[-1]) == samples[-1]
    assert comparable(source[np.int64(2)]) == samples[2]
    assert len({sample["name"] for sample in samples}) == COUNT
    for index in (COUNT, -COUNT - 1):
        with pytest.raises(IndexError, match=f"index must be from -6 to 5, not {index}"):
            source[index]
    with pytest.raises(TypeError):
        source["1"]


def test_the_repr_of_a_source_describes_it(make):
    source = make()
    some = ", ".join([*source.classes[:3], *["…"][: len(source.classes) > 3]])
    classes = f", {len(source.classes)} classes: {some}" if source.classes else ""
    assert repr(source) == f"<{type(source).__name__}: 6 samples{classes}>"


def test_the_images_are_those_that_were_written(make):
    source = make()
    found = {bytes(read_image(sample, pp.Limits())) for sample in source}
    assert found == {small_jpeg(index) for index in range(COUNT)}


def test_eight_threads_read_the_same_from_a_pickled_source_as_one(make):
    source = make()
    expected = [comparable(source[index]) for index in range(COUNT)]
    fresh = pickle.loads(pickle.dumps(source))  # noqa: S301  (our own source; its files are not open yet)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda index: comparable(fresh[index % COUNT]), range(50 * COUNT)))
    assert found == expected * 50
    assert (fresh.fingerprint, fresh.classes, fresh.notes) == (source.fingerprint, source.classes, source.notes)


def test_a_fingerprint_depends_on_the_samples_and_not_on_the_folder(make):
    prints = [make().fingerprint, make(folder="a").fingerprint, make(COUNT - 1, "c").fingerprint]
    assert all(re.fullmatch(r"[0-9a-f]{32}", text) for text in prints)
    assert prints[0] == prints[1] != prints[2]


def test_a_fingerprint_depends_on_the_boundaries_of_parts():
    assert fingerprint(b"cat", b"dog") != fingerprint(b"ca", b"tdog")
    assert fingerprint(np.arange(2), np.arange(0)) != fingerprint(np.arange(0), np.arange(2))


def test_labels_are_integers_and_boxes_have_labels(make):
    for sample in make():
        if "label" in sample:
            assert operator.index(sample["label"]) >= 0
        if "boxes" in sample:
            assert sample["boxes"].dtype == np.float32
            assert sample["labels"].dtype == np.int64
            lengths = {len(value) for value in sample.values() if isinstance(value, np.ndarray)}
            assert lengths == {len(sample["boxes"])}
            assert sample["boxes"].shape[1:] == (4,)
            sample["boxes"][:] = 7  # the caller may change a sample
