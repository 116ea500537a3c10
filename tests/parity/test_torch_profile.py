"""``"like": "torch"`` against PyTorch's own ``interpolate`` of float32 values: 0 different levels.

It asks for a CPU with AVX2: without, PyTorch fuses nothing, and of 10,000 values a few differ by a level.
"""

from hashlib import sha256

import numpy as np
import pytest

import pixprep as pp
from compare import ONE_LEVEL, assert_close
from images import noise, photo, read, scene
from pixprep.compiler import compile_pipeline
from pixprep.kernels.cpu import CpuKernel
from pixprep.plan import Resize
from pixprep.profiles import torch as profile
from pixprep.profiles.taps import Axis
from torch_vectors import FROZEN

torch = pytest.importorskip("torch", reason="NO PYTORCH: the profile was not compared with it")

if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("NO AVX2: PyTorch rounds otherwise here", allow_module_level=True)

FILTERS = ("bilinear", "bicubic")
# None of one column and many rows: to that PyTorch 2.13 resizes by repeating the first row, a mistake of its own.
SIZES = [
    *((1, 1), (1, 40), (33, 2), (7, 5), (16, 16), (31, 64), (56, 56), (63, 90), (64, 61)),
    *((97, 96), (128, 40), (150, 211), (224, 224), (300, 301)),
]


def pictures():
    """41 of them: noise, which finds every rounding, scenes, and a photo."""
    sides = [1, 2, 3, 5, 8, 13, 31, 32, 57, 64, 90, 128, 199, 300, 333]
    for index, height in enumerate(sides):
        yield noise(height, sides[-1 - index])
        yield noise(height, height, seed=1)
        if index % 3 == 0:
            yield scene(height + 20, sides[(index * 7 + 3) % len(sides)] + 20)
            yield np.full((height, 40, 3), 255, np.uint8)
    yield np.asarray(read(photo()))


def ours(pixels, size, filter_name, **options):
    options = {"like": "torch", "filter": filter_name} | options
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=size[0], width=size[1], **options), pp.tensor(dtype="uint8")])
    plan = compile_pipeline(pipeline).outputs["tensor"]
    out = np.empty(plan.spec.shape, np.uint8)
    decoded = np.dstack([pixels, np.zeros(pixels.shape[:2], np.uint8)])  # the decoder gives four bytes a pixel
    CpuKernel(plan).run([decoded], [plan.geometry.place(*pixels.shape[:2])], [out])
    return out


def theirs(pixels, size, filter_name):
    tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].float()
    if tensor.shape[2:] == size:
        return tensor[0].numpy().astype(np.uint8)
    resized = torch.nn.functional.interpolate(tensor, size, mode=filter_name, antialias=True, align_corners=False)
    return resized.clamp(0, 255).round()[0].numpy().astype(np.uint8)


@pytest.mark.parametrize("filter_name", FILTERS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_value_is_equal(size, filter_name):
    images = list(pictures())
    assert len(images) > 40
    for pixels in images:
        assert_close(ours(pixels, size, filter_name), theirs(pixels, size, filter_name))


def test_the_frozen_vectors_are_pytorchs():
    for (filter_name, size, resized), digest in FROZEN.items():
        assert sha256(theirs(noise(*size), resized, filter_name).tobytes()).hexdigest() == digest


@pytest.mark.parametrize("neighbour", [{"like": "pillow"}, {"like": "torchvision"}], ids=str)
def test_a_neighbouring_profile_is_only_near(neighbour):
    pixels = np.asarray(read(photo()))
    actual, expected = ours(pixels, (224, 224), "bilinear", **neighbour), theirs(pixels, (224, 224), "bilinear")
    assert_close(actual, expected, ONE_LEVEL)
    assert 0.05 < (actual != expected).mean() < 0.25


def test_without_fusing_a_few_values_differ():
    """A negative control of ``float_fused``: NumPy's own products and sums."""
    pixels = noise(300, 333)
    rows, columns = (torch_taps(length, out) for length, out in ((300, 224), (333, 224)))
    middle = sum(pixels[:, first].astype(np.float32) * weight[:, None] for first, weight in columns)
    plain = sum(middle[first] * weight[:, None, None] for first, weight in rows)
    actual = np.clip(np.rint(plain), 0, 255).astype(np.uint8).transpose(2, 0, 1)
    expected = theirs(pixels, (224, 224), "bilinear")
    assert_close(actual, expected, ONE_LEVEL)
    assert 0 < (actual != expected).mean() < 0.001


def torch_taps(length, out_length):
    """(positions, weights) of each tap."""
    resize = Resize(rule="both", height=224, width=224, filter="bilinear", antialias=True, like="torch")
    axis = Axis(length=length, out_length=out_length, scale=length / out_length, begin=0, end=out_length)
    taps = profile.taps(resize, "float_fused", axis)
    for index in range(taps.weights.shape[1]):
        yield np.minimum(taps.first + index, length - 1), taps.weights[:, index]
