"""Tests ``"like": "torch"`` without PyTorch: its results against frozen ones, and the messages of the op."""

from hashlib import sha256

import pytest

from support.images import noise
from support.resize_cases import resized
from support.torch_vectors import FROZEN


def torch(pixels, size, filter_name):
    return resized(pixels, size, "torch", filter_name, antialias=True).transpose(2, 0, 1)


@pytest.mark.parametrize("case", FROZEN, ids=str)
def test_a_resize_gives_the_same_bytes_as_pytorch(case):
    filter_name, size, result = case
    assert sha256(torch(noise(*size), result, filter_name).tobytes()).hexdigest() == FROZEN[case]
