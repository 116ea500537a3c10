"""Tests that padded batches contain one tensor per name in each framework, with the shapes of ``Batch.padded``."""

import numpy as np
import pytest

import pixprep as pp
from support.images import png, scene

NAMES = ("tensor", "mask", "boxes", "labels", "sizes")
SHAPES = [(3, 3, 64, 96), (3, 64, 96), (3, 3, 4), (3, 3), (3, 2)]
OPS = [pp.decode(), pp.boxes(), pp.mask(), pp.tensor(multiple=16, max_size=200)]
SAMPLES = [
    {
        "image": png(scene(height, width)),
        "boxes": np.array([[1, 1, 20, 20]] * count, np.float32).reshape(-1, 4),
        "labels": np.arange(count),
        "mask": np.ones((height, width), np.uint8),
    }
    for height, width, count in ((40, 60, 2), (64, 48, 0), (30, 90, 3))
]


def loader():
    return pp.Loader(SAMPLES, pp.Pipeline(OPS).for_training(), batch_size=3)


def shapes(values):
    return [tuple(each.shape) for each in values]


def test_pytorch_has_padded_tensors():
    pytest.importorskip("torch", reason="NO PYTORCH")
    with loader() as one:
        (values,) = one.torch(*NAMES, padded=True)
        (ragged,) = one.torch(*NAMES)
    assert shapes(values) == SHAPES
    assert [len(each) for each in ragged] == [3] * 5
    assert isinstance(ragged[2], list)


def test_tensorflow_and_keras_have_padded_tensors():
    pytest.importorskip("tensorflow", reason="NO TENSORFLOW")
    with loader() as one:
        (values,) = list(one.tf(*NAMES, padded=True))
        (ragged,) = list(one.tf(*NAMES))
        assert shapes(one.keras(*NAMES)[0]) == SHAPES
    assert shapes(values) == SHAPES
    assert tuple(ragged[1].shape) == SHAPES[1]
    assert ragged[2].shape[0] == 3
    assert ragged[2].row_lengths().numpy().tolist() == [2, 0, 3]
