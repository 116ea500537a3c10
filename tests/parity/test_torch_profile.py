"""Tests that ``"like": "torch"`` equals PyTorch's own ``interpolate`` of float32 values in all pixel values.

The tests need a CPU with AVX2. Without AVX2, PyTorch does not fuse operations, and a few of 10,000 values differ by
one.
"""

from hashlib import sha256

import numpy as np
import pytest

from pixprep.plan.profiles import PROFILES
from support.compare import EQUAL, assert_close
from support.images import noise
from support.resize_cases import resized
from support.torch_vectors import FROZEN

torch = pytest.importorskip("torch", reason="NO PYTORCH: the profile was not compared")

if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("NO AVX2: PyTorch rounds otherwise here", allow_module_level=True)


def theirs(pixels, size, filter_name):
    tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].float()
    levels = torch.nn.functional.interpolate(tensor, size, mode=filter_name, antialias=True, align_corners=False)
    return levels.clamp(0, 255).round()[0].permute(1, 2, 0).numpy().astype(np.uint8)


@pytest.mark.parametrize("filter_name", PROFILES["torch"].antialiased)
def test_every_value_is_equal_from_and_to_one_row_or_column(filter_name):
    """The sizes include one column with many rows, for which a bug in PyTorch 2.13 repeats the first row."""
    lengths, others = (1, 2, 3, 4, 5, 9, 16, 31, 64, 97, 200, 333), (1, 2, 3, 8, 17, 40)
    for n in lengths:
        for m in others:
            pixels = noise(n, m)
            sizes = [(1, m), (n, 1), (1, 1), (m, 1), (1, n), (9, 1), (1, 9), (7, 2), (m, n)]
            for image in (pixels, pixels.transpose(1, 0, 2), pixels[:, :1], pixels[:1]):
                for size in sizes:
                    ours = resized(image, size, "torch", filter_name, antialias=True)
                    assert_close(ours, theirs(image, size, filter_name), EQUAL)


def test_the_frozen_vectors_equal_pytorch():
    for (filter_name, size, wanted), digest in FROZEN.items():
        levels = theirs(noise(*size), wanted, filter_name).transpose(2, 0, 1)
        assert sha256(levels.tobytes()).hexdigest() == digest
