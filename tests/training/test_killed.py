"""Tests ``kill -9`` in the middle of an epoch: for every source and sampler, a new process continues with the remaining
samples.
"""

from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import pixprep as pp
from pixprep import read
from support.loading import TRAINING, encoded, killed, same, samples
from support.records import MAKERS, write_folder

COUNT, DONE = 24, 3
SAMPLERS = {
    "each once": {},
    "in order": {"shuffle": False},
    "blocks": {"shuffle": "blocks"},
    "weights": {"weights": [1 + index % 5 for index in range(COUNT)]},
    "weights and repeats": {"weights": [index % 3 for index in range(COUNT)], "repeats": 2},
    "repeats": {"repeats": 3},
    "epoch_samples": {"epoch_samples": 20},
    "shares": {"shares": (0.25, 0.75)},
    "shares and repeats": {"shares": (0.5, 0.5), "repeats": 2, "epoch_samples": 28},
    "groups": {"group_by": [index % 2 for index in range(COUNT)], "last": "short"},
    "one of two shards": {"shard": (1, 2), "batch_size": 2},
    "one of two shards, padded": {"shard": (0, 2), "batch_size": 2, "last": "pad", "shuffle": False},
    "mixup": {"mix": pp.Mix(1000, mixup=0.2, cutmix=1.0)},
    "mosaic": {"mix": [pp.Mosaic(height=24), pp.random_warp(9), pp.resize(height=40, width=40), pp.MixUp(p=0.7)]},
    "recent samples": {"mix": [pp.Mosaic(height=24, recent=6), pp.resize(height=40, width=40), pp.MixUp(recent=4)]},
    "recent mosaics": {"mix": [pp.random_flip(), pp.Mosaic(height=24, recent=6)]},
    "copy-paste": {"mix": [pp.resize(height=40, width=40), pp.CopyPaste(p=0.7)]},
}
OBJECTS = pp.Pipeline(
    [pp.decode(), pp.random_resized_crop(24), pp.boxes(), pp.masks(), pp.normalize(), pp.tensor(only="training")]
).for_training()
"""Pipeline for copy-paste. All other cases without a pipeline of their own use ``TRAINING``."""


def objects():
    """Return samples that each have two boxes and their masks."""
    boxes = np.array([[2, 3, 20, 25], [15, 8, 36, 28]])
    for index, sample in enumerate(samples(COUNT)):
        y, x = np.mgrid[: 30 + index % 7, : 40 + index % 5]
        masks = [(left <= x) & (x < right) & (top <= y) & (y < bottom) for left, top, right, bottom in boxes]
        masks = np.array(masks)
        labels = {"mask": masks.any(0).astype(np.uint8), "depth": masks.sum(0) * 0.5}
        yield {**sample, "boxes": boxes, "labels": [1, 2], "masks": masks, **labels}


class Drawing(list):
    """Source whose images depend on the random numbers of the Loader."""

    def __getitem__(self, index):
        draw = read.draw()
        sample = super().__getitem__(index)
        return {**sample, "image": encoded(int(draw.rng.integers(1 << 16))), "label": draw.epoch}


@pp.operator("test.noise", version=1)
def noise(pixels, *, rng: np.random.Generator, epoch: pp.Epoch):
    """Add noise that depends on the epoch and differs between samples."""
    return pixels + rng.integers(0, 9 + epoch, pixels.shape, np.uint8)


EXTRA_MAKERS = {
    "drawing source": lambda *_: Drawing(samples(COUNT)),
    "crops around annotations": lambda *_: [*objects()],
    "views and targets": lambda *_: [*objects()],
    "list of dicts": lambda *_: samples(COUNT),
    "objects": lambda *_: [*objects()],
    "iterable": lambda *_: read.iterable(samples(COUNT)),
    "iterable, made for each pass": lambda *_: read.iterable(lambda: iter(samples(COUNT)), samples=COUNT),
    "glob": lambda folder, count: write_folder(folder, count) or read.files(str(folder / "*" / "*.jpg")),
    "subset": lambda *_: read.subset(read.rows(samples(2 * COUNT), label="label"), slice(1, None, 2)),
    "concat": lambda *_: read.concat(samples(10), read.rows(samples(COUNT)[10:], label="label", name="name")),
}
KINDS = MAKERS | EXTRA_MAKERS
VIEW = [
    *(pp.random_resized_crop(26), pp.random_crop(24, around="mask", around_p=0.5)),
    *(pp.mask(), pp.target(field="depth", filter="bilinear"), pp.tensor(only="training")),
]
PIPELINES = {
    "objects": OBJECTS,
    "views and targets": pp.Pipeline([pp.decode(name="photo"), *pp.views("view", 2, VIEW)]).for_training(),
    "crops around annotations": pp.Pipeline(
        [
            *(pp.decode(), pp.random_resized_crop(26), pp.random_crop(25, around="mask", name="mask")),
            *(
                pp.random_crop(24, around="box"),
                noise(only="training"),
                pp.boxes(),
                pp.masks(),
                pp.tensor(only="training"),
            ),
        ]
    ).for_training(),
}
# Most samplers only ask the source for its length. "blocks" also asks where the source's files begin.
RANDOM_ACCESS_SAMPLERS = ("each once", "blocks")
SEQUENTIAL_SAMPLERS = ("in order", "one of two shards, padded")
"""Samplers for sources without random access. The other samplers are tested with sources that have random access."""
PAIRS = [
    (kind, each) for kind in KINDS for each in (SEQUENTIAL_SAMPLERS if "iterable" in kind else RANDOM_ACCESS_SAMPLERS)
]
PAIRS += [
    ({"shares": "concat", "copy-paste": "objects"}.get(each.partition(" ")[0], "list of dicts"), each)
    for each in SAMPLERS
    if each not in RANDOM_ACCESS_SAMPLERS
]
PAIRS += [("views and targets", "recent mosaics"), ("drawing source", "mosaic")]
MISSING_SOURCES = {kind for kind, name in (("parquet", "pyarrow"), ("lmdb", "lmdb")) if find_spec(name) is None}
# the tests of these sources cover the messages about missing libraries
PAIRS = [pair for pair in PAIRS if pair[0] not in MISSING_SOURCES]
CODE = """
import json, sys
from itertools import islice
from pathlib import Path
sys.path.append({here!r})
from test_killed import DONE, PAIRS, loader, mixes
kept = []
for kind, sampler in PAIRS:
    ours = loader(Path({folder!r}), kind, sampler, threads=2)
    for _ in ours:
        pass
    kept.append(iter(ours))  # all are in mid-epoch when the process ends
    draws = [[batch["index"].tolist(), batch.draws, mixes(batch)] for batch in islice(kept[-1], DONE)]
    print(json.dumps([ours.state_dict(), draws]), flush=True)
input()
"""


def mixes(batch):
    """Return the random parameters of a chain or a mixup, or an empty list."""
    return list(batch["mix"]) if "mix" in batch else []


def loader(folder, kind, sampler, *, threads):
    (folder / kind).mkdir(exist_ok=True)
    options = {"batch_size": 4, "shuffle": True, "seed": 9, "threads": threads} | SAMPLERS[sampler]
    return pp.Loader(KINDS[kind](folder / kind, COUNT), PIPELINES.get(kind, TRAINING), **options)


@pytest.fixture(scope="module")
def killed_runs(tmp_path_factory):
    """Return a folder. For each source and sampler, also return the state of the killed process's Loader, and its
    samples and parameters.
    """
    folder = tmp_path_factory.mktemp("killed")
    lines = killed(CODE.format(folder=str(folder), here=str(Path(__file__).parent)), len(PAIRS))
    return folder, dict(zip(PAIRS, lines, strict=True))


@pytest.mark.parametrize(("kind", "sampler"), PAIRS)
def test_a_new_process_continues_after_kill_9(killed_runs, kind, sampler):
    folder, lines = killed_runs
    state, draws = lines[kind, sampler]
    with loader(folder, kind, sampler, threads=1) as whole, loader(folder, kind, sampler, threads=1) as again:
        list(whole)
        expected = list(whole)
        assert draws == [[batch["index"].tolist(), batch.draws, mixes(batch)] for batch in expected[:DONE]]
        again.load_state_dict(state)
        rest = list(again)
        assert len(rest) == len(expected) - DONE > 0
        assert all(map(same, rest, expected[DONE:]))
        assert [*map(mixes, rest)] == [*map(mixes, expected[DONE:])]
        assert all(map(same, islice(again, 1), islice(whole, 1)))  # the next epoch is also the same
    draws = [str(each) for batch in expected for each in batch.draws]
    assert len({*draws}) == len(draws)  # if random parameters were equal, the comparison would not prove the order
