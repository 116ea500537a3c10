"""Provides Loaders over small photos for the tests of every framework."""

from contextlib import suppress

import pytest

import pixprep as pp
from support.images import jpeg, scene
from support.loading import DETECTION, TRAINING, samples


@pytest.fixture
def loader():
    """Yield a Loader of 40 photos of three classes in batches of 8."""
    with pp.Loader(samples(), TRAINING, batch_size=8, shuffle=True, seed=5, threads=2) as ours:
        yield ours


@pytest.fixture
def again():
    """Yield a new Loader of the same data set, for the expected results."""
    with pp.Loader(samples(), TRAINING, batch_size=8, shuffle=True, seed=5, threads=1) as ours:
        yield ours


@pytest.fixture
def open_sizes():
    """Yield a Loader of photos of several widths, in order."""
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=24, max_size=60), pp.tensor(pad_value=-1.0)])
    with pp.Loader(samples(16), pipeline, batch_size=4, threads=2) as ours:
        yield ours


@pytest.fixture
def detection():
    """Yield a Loader of 16 photos that have 0 to 3 boxes."""
    source = samples(16)
    for index, sample in enumerate(source):
        corners = [[2 + n, 3, 20 + n, 25] for n in range(index % 4)]
        sample |= {"boxes": corners, "labels": list(range(index % 4))}
    with pp.Loader(source, DETECTION, batch_size=4, threads=2) as ours:
        yield ours


@pytest.fixture
def learnable():
    """Yield a Loader of 40 photos, half of which are negatives."""
    photos = [scene(40, 40, seed) for seed in range(40)]
    source = [
        {"image": jpeg(255 - photo if seed % 2 else photo), "label": seed % 2} for seed, photo in enumerate(photos)
    ]
    with pp.Loader(source, TRAINING, batch_size=8, shuffle=True, threads=2) as ours:
        yield ours


with suppress(ImportError, OSError):
    import torch

    # torchvision registers fake implementations for these two ops at import; its C++ extension, which no registry has
    # for the CPU, would define them
    LIBRARY = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
