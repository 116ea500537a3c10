"""The ``torchvision`` profile against v2's ``resize`` of uint8 tensors on the CPU."""

import numpy as np
import pytest

import pixprep as pp
from images import png, scene
from resize_cases import assert_equal, cases, compare, images, photo_pixels, resized

torch = pytest.importorskip("torch", reason="NO PYTORCH: its resize was not compared with")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its resize was not compared with")

from torchvision.transforms import InterpolationMode, v2  # noqa: E402 - needs what conftest.py defines
from torchvision.transforms.v2 import functional  # noqa: E402

if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("NO AVX2: PyTorch computes bilinear in float32 here", allow_module_level=True)

MODES = {
    "nearest": InterpolationMode.NEAREST,
    "nearest_exact": InterpolationMode.NEAREST_EXACT,
    "bilinear": InterpolationMode.BILINEAR,
    "bicubic": InterpolationMode.BICUBIC,
    "lanczos": InterpolationMode.LANCZOS,
}
FILTERS = [
    ("nearest", True),
    ("nearest_exact", True),
    ("bilinear", True),
    ("bilinear", False),
    ("bicubic", True),
    ("bicubic", False),
    ("lanczos", True),
]


def tensor_of(pixels, layout="chw"):
    """(channels, height, width), contiguous as ``decode_image`` gives it, or channels last as ``pil_to_tensor``."""
    if layout == "chw":
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def original(pixels, size, filter_name, antialias, layout="chw"):
    """PyTorch 2.13 asserts on (3, height, width) made 1 x 1: there the layout is channels last."""
    tensor = tensor_of(pixels, "last" if size == (1, 1) else layout)
    resized = functional.resize(tensor, list(size), interpolation=MODES[filter_name], antialias=antialias)
    return resized.permute(1, 2, 0).numpy()


def test_there_are_enough_cases():
    assert len(images()) >= 40
    assert len({size for _, size in cases()}) >= 12


@pytest.mark.parametrize("layout", ["chw", "last"])
@pytest.mark.parametrize(("filter_name", "antialias"), FILTERS)
def test_every_value_equals_torchvision(filter_name, antialias, layout):
    assert_equal(
        (
            f"{pixels.shape} to {size}",
            resized(pixels, size, "torchvision", filter_name, antialias=antialias),
            original(pixels, size, filter_name, antialias, layout),
        )
        for pixels, size in cases()
    )


@pytest.mark.parametrize(("filter_name", "antialias"), FILTERS)
def test_every_factor_equals_torchvision(filter_name, antialias):
    row = np.random.default_rng(1).integers(0, 256, (1, 2000, 1), np.uint8)
    some = [(length, out) for out in (2, 3, 7, 64) for length in range(out + 1, 500, 7)]
    some += [(length, out) for length in (1, 2, 3, 50) for out in range(length + 1, 500, 11)]
    assert_equal(
        (
            f"{length} to {out}",
            resized(row[:, :length], (1, out), "torchvision", filter_name, antialias=antialias),
            original(row[:, :length], (1, out), filter_name, antialias),
        )
        for length, out in some
    )


NEIGHBOURS = [
    ("nearest", True, "pillow", "nearest", True),
    ("nearest", True, "torchvision", "nearest_exact", True),
    ("bilinear", False, "torchvision", "bilinear", True),
    ("bilinear", False, "opencv", "bilinear", False),
    ("bicubic", False, "torchvision", "bicubic", True),
    ("bicubic", False, "opencv", "bicubic", False),
    ("bicubic", True, "torchvision", "bilinear", True),
    ("lanczos", True, "torchvision", "bicubic", True),
]


@pytest.mark.parametrize("size", [(181, 203), (500, 700)])
@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_a_neighbour_is_told_apart(neighbour, size):
    filter_name, antialias, like, other, other_antialias = neighbour
    pixels = photo_pixels()
    wrong = resized(pixels, size, like, other, antialias=other_antialias)
    values, differing, _, _ = compare([(like, wrong, original(pixels, size, filter_name, antialias))])
    grows = size[0] > len(pixels)
    if grows and (like, filter_name, other) == ("torchvision", "bilinear", "bilinear"):
        assert differing < values * 0.04  # antialias has nothing to widen
    else:
        assert differing > values * 0.04


@pytest.mark.parametrize("filter_name", ["bilinear", "bicubic", "lanczos"])
def test_pillow_is_told_apart_by_a_few_values(filter_name):
    """Coefficients of 22 bits against 16."""
    pixels = photo_pixels()
    size = (224, 336)
    wrong = resized(pixels, size, "pillow", filter_name, antialias=True)
    values, differing, largest, _ = compare([(size, wrong, original(pixels, size, filter_name, antialias=True))])
    print(f"pillow's {filter_name}: {differing / values:.3%} of the values differ")
    assert largest == 1
    assert 0 < differing < values * 0.01


@pytest.mark.parametrize(("filter_name", "antialias"), FILTERS)
@pytest.mark.parametrize("size", [(427, 640), (90, 61), (40, 250), (33, 47)])
def test_the_engine_gives_what_transforms_of_v2_give(filter_name, antialias, size):
    pixels = scene(*size)
    pipeline = pp.Pipeline(
        [
            pp.decode(),
            pp.flip(),
            pp.resize(64, like="torchvision", filter=filter_name, antialias=antialias),
            pp.center_crop(49),
            pp.flip("vertical"),
            pp.tensor(dtype="uint8"),
        ]
    )
    with pp.Engine(pipeline) as engine:
        (tensor,) = engine.run([png(pixels)])
    transform = v2.Compose(
        [
            v2.RandomHorizontalFlip(1),
            v2.Resize(64, interpolation=MODES[filter_name], antialias=antialias),
            v2.CenterCrop(49),
            v2.RandomVerticalFlip(1),
        ]
    )
    assert_equal([(size, tensor, transform(tensor_of(pixels)).numpy())])


@pytest.mark.parametrize(("filter_name", "antialias"), FILTERS)
def test_a_crop_before_and_a_region_after_equal_torchvision(filter_name, antialias):
    pixels = scene(97, 131)
    part = resized(
        pixels[5:90, 20:111], (60, 80), "torchvision", filter_name, antialias=antialias, region=(7, 11, 50, 80)
    )
    whole = original(np.ascontiguousarray(pixels[5:90, 20:111]), (60, 80), filter_name, antialias)
    assert_equal([(filter_name, part, whole[7:50, 11:80])])
