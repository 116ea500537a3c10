"""Tests the profile ``torchvision`` against torchvision v2's ``resize`` of uint8 tensors on the CPU."""

import numpy as np
import pytest

import pixprep as pp
from pixprep.plan.profiles import PROFILES
from support.images import png, scene
from support.resize_cases import assert_equal, cases, resized

torch = pytest.importorskip("torch", reason="NO PYTORCH: its resize was not compared")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its resize was not compared")

from torchvision.transforms import InterpolationMode  # noqa: E402 - needs what conftest.py defines
from torchvision.transforms.v2 import functional  # noqa: E402

if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("NO AVX2: PyTorch computes bilinear in float32 here", allow_module_level=True)

MODES = {name: InterpolationMode[name.upper()] for name in PROFILES["torchvision"].antialiased}
FILTERS = PROFILES["torchvision"].methods


@pytest.mark.parametrize(("filter_name", "antialias"), FILTERS)
def test_a_contiguous_tensor_gives_the_same_as_a_channels_last_tensor(filter_name, antialias):
    """``decode_image`` returns contiguous tensors; test_profiles.py tests channels-last tensors.

    PyTorch 2.13 fails if the result is 1 x 1.
    """

    def original(pixels, size):
        tensor = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
        resized = functional.resize(tensor, list(size), interpolation=MODES[filter_name], antialias=antialias)
        return resized.permute(1, 2, 0).numpy()

    assert_equal(
        (
            f"{pixels.shape} to {size}",
            resized(pixels, size, "torchvision", filter_name, antialias=antialias),
            original(pixels, size),
        )
        for pixels, size in cases()
        if size != (1, 1)
    )


def test_a_batch_equals_that_of_the_detectors_transform():
    """TensorFlow's resize uses the formula of ``interpolate`` on float32 values, but adds in a different order."""
    from torchvision.models.detection.transform import GeneralizedRCNNTransform  # noqa: PLC0415

    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    theirs = GeneralizedRCNNTransform(80, 133, list(mean), list(std)).eval()
    resize = pp.resize(80, mode="scale", max_size=133, like="tensorflow")
    pipeline = pp.Pipeline(
        [pp.decode(), resize, pp.normalize(mean=mean, std=std), pp.image_size(), pp.tensor(multiple=32)]
    )
    sizes = [tuple(map(int, size)) for size in np.random.default_rng(8).integers(20, 700, (60, 2))]
    with pp.Engine(pipeline) as engine:
        for some in (sizes[at : at + 6] for at in range(0, len(sizes), 6)):
            photos = [scene(*size) for size in some]
            batch = engine.run_batch([png(photo) for photo in photos])
            images, _ = theirs([torch.from_numpy(photo).permute(2, 0, 1) / 255 for photo in photos])
            assert batch["image_size"].tolist() == [[*size] for size in images.image_sizes]
            ours = batch.padded("tensor")
            assert ours.shape == images.tensors.shape
            assert abs(ours - images.tensors.numpy()).max() < 2e-5
