"""Provides engines on a GPU that is mocked on the CPU (fixture ``gpu`` of ``tests/gpu``), and images for them."""

import sys

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.options import EngineOptions
from support.images import JUNK, jpegs, noise, others, photo, stills, with_exif
from support.images import jpeg as encode

AFTER_DECODE = [
    pp.original_size(), pp.resize(40, filter="bicubic"), pp.center_crop(36), pp.transform(), pp.tensor(dtype="uint8"),
]  # fmt: skip
PIPELINE = pp.Pipeline([pp.decode(), *AFTER_DECODE])


def on_gpu(pipeline=PIPELINE, **options):
    return pp.Engine(pipeline, device="gpu", **options)


def jpeg(height, width, seed=0, **options):
    return encode(noise(height, width, seed=seed), **{"quality": 75} | options)


def mixed():
    """Return images of every kind, and invalid files."""
    images = [*jpegs().values(), *others().values(), *stills().values(), *JUNK.values(), jpeg(80, 80, 2)[:900]]
    return [*images, *(with_exif(orientation) for orientation in range(1, 9)), jpeg(200, 90, 1, progressive=True)]


def damaged():
    """Return a hundred JPEGs that are truncated or have flipped bits, alternating with valid JPEGs."""
    numbers = np.random.default_rng(2)
    images = [photo(), jpeg(60, 50, 1)]
    for index in range(100):
        encoded = bytearray(jpeg(40 + index % 7, 56, index % 5, progressive=index % 3 == 0, subsampling=index % 3))
        for _ in range(3):
            encoded[numbers.integers(20, len(encoded))] = numbers.integers(256)
        images.append(bytes(encoded[: -1 - index * 3] if index % 4 == 0 else encoded))
    return images


def same(ours, theirs):
    assert [str(error) for error in ours.errors] == [str(error) for error in theirs.errors]
    assert ours.recovered == theirs.recovered
    for name, array in theirs.outputs.items():
        assert len(ours.outputs[name]) == len(array)
        assert all(map(np.array_equal, ours.outputs[name], array)), name


def decoder_of(gpu, budget=1 << 30, **options):
    """Return a decoder that does not belong to an engine, with a lane for its images."""
    options = EngineOptions(**{"threads": 16, "damage": "strict"} | options)
    with sys.modules["pixprep.gpu.lanes"].Lane() as lane:
        decoder = gpu.GpuDecoder(PIPELINE.plan, options, budget=budget)
    decoder.lane = lane
    return decoder


def pixels(decoder, images):
    """Return a copy of each decoded image and the number of images in each chunk."""
    found, sizes = [], []
    for chunk in decoder.chunks(images, [PIPELINE.plan.place] * len(images)):
        with decoder.lane, decoder.decode(chunk) as results:
            decoder.lane.stream.synchronize()
            found += [result if isinstance(result, pp.ImageError) else np.array(result.pixels) for result in results]
        sizes.append(len(chunk.images))
    return found, sizes


ONE = 3 * 50 * 70


def refusal(pipeline=PIPELINE, **options):
    with pytest.raises(pp.SetupError) as caught:
        on_gpu(pipeline, **options)
    return str(caught.value)


REMEDY = (
    'run pip install ".[gpu-cuda12]" (or gpu-cuda13, to match the CUDA version of the driver) in a checkout of '
    "pixprep, or "
)
NO_KERNELS = "the CUDA kernels do not work on this GPU ("


def baseline(count):
    return [jpeg(40 + index % 9, 56, index % 5) for index in range(count)]


TENSOR = pp.tensor(only="training")
