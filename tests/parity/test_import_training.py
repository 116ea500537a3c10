"""Tests imported training transforms of torchvision and timm against the originals.

If every range of a transform is a single number and every p is 1, the transform is not random, and its own ``forward``
is compared with the pipeline. Other ranges are compared as fields. Random parameters are compared by ``test_augment``,
``test_random_geometry`` and the parity tests of each op. torchvision samples float32 numbers, so most float64 values
cannot occur.
"""

import random
import re
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.engine.annotations import annotated
from pixprep.importers.timm import from_timm
from pixprep.importers.torchvision import from_torchvision
from support.images import noise, png, read, scene
from support.importing import photos, refusal

if find_spec("torchvision") is None:
    pytest.skip("NO TORCHVISION: its importer was not compared", allow_module_level=True)

import torch
import torchvision.transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BILINEAR = InterpolationMode.BILINEAR
NEAREST = v2.InterpolationMode.NEAREST
if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("NO AVX2: PyTorch rounds otherwise here", allow_module_level=True)
torch.set_num_threads(1)  # two threads would wait for each other on a busy machine: 20 times slower


def images():
    return [*photos(), *(png(noise(*size)) for size in [(97, 61), (41, 130), (64, 64)])]


def trained(pipeline, encoded, seed=0):
    """Return the tensors and the random parameters of each image in training."""
    side = pipeline.for_training()
    drawn = side.plan.draw(seed=seed, epoch=0, indices=range(len(encoded)))
    with pp.Engine(side, threads=2) as engine:
        batch = engine.run_batch(encoded, places=[side.plan.placing(each) for each in drawn])
    assert batch.errors == [None] * len(encoded)
    return batch["tensor"], [placed.draws for placed in batch.placed]


def theirs(transform, encoded, given):
    """Return the images after the transform, as arrays."""
    opened = [read(image).convert("RGB") for image in encoded]
    if given == "tensor":
        opened = [torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous() for image in opened]
    return [np.asarray(transform(image)) for image in opened]


# ------------------------------------------------------------------------------- complete transforms without randomness

ALWAYS = {
    "flips": lambda m: [m.RandomHorizontalFlip(1.0), m.RandomVerticalFlip(1.0)],
    "brightness": lambda m: [m.ColorJitter(brightness=(1.3, 1.3))],
    "contrast": lambda m: [m.ColorJitter(contrast=(0.43, 0.43))],
    "saturation": lambda m: [m.ColorJitter(saturation=(1.6, 1.6))],
    "hue": lambda m: [m.ColorJitter(hue=(0.13, 0.13))],
    "gray": lambda m: [m.RandomGrayscale(1.0)],
    "posterize": lambda m: [m.RandomPosterize(3, 1.0)],
    "solarize": lambda m: [m.RandomSolarize(131.5, 1.0)],
    "autocontrast": lambda m: [m.ColorJitter((0.6, 0.6)), m.RandomAutocontrast(1.0)],
    "equalize": lambda m: [m.RandomEqualize(1.0)],
    "invert": lambda m: [m.RandomInvert(1.0)],
    "sharpness": lambda m: [m.RandomAdjustSharpness(1.9, 1.0)],
    "rotation": lambda m: [m.RandomRotation((17.1, 17.1))],
    "rotation, bilinear": lambda m: [m.RandomRotation((-31.7, -31.7), BILINEAR, fill=(9, 80, 200))],
    "rotation about a point": lambda m: [m.RandomRotation((200.3, 200.3), center=(10, 20), fill=7)],
    "rotation, expanding": lambda m: [m.RandomRotation((33.3, 33.3), expand=True), m.CenterCrop(120)],
    "affine": lambda m: [m.RandomAffine((11.1, 11.1), scale=(1.2, 1.2), shear=(5.3, 5.3, -9.1, -9.1), fill=3)],
    "affine, bilinear": lambda m: [m.RandomAffine((0, 0), scale=(0.7, 0.7), interpolation=BILINEAR, center=(3, 4))],
    "a perspective of the image itself": lambda m: [m.RandomPerspective(0.0, 1.0, NEAREST, fill=5)],
    "a perspective, not at all": lambda m: [m.RandomPerspective(0.9, 0.0)],
    "padding": lambda m: [m.Pad((5, 80), padding_mode="reflect"), m.Pad(3, padding_mode="edge"), m.CenterCrop(101)],
    "a blur": lambda m: [m.GaussianBlur(5, (1.3, 1.3))],
    "not at all": lambda m: [m.RandomApply([m.RandomInvert(1.0)], p=0.0), m.RandomErasing(p=0.0)],
    "always": lambda m: [m.RandomApply([m.RandomInvert(1.0)], p=1.0)],
    "a jitter, always": lambda m: [m.RandomApply([m.ColorJitter(hue=(0.13, 0.13))], p=1.0)],
    "a jitter, not at all": lambda m: [m.RandomApply([m.ColorJitter(hue=(0.13, 0.13))], p=0.0)],
    "every step": lambda m: [
        m.RandomEqualize(1.0),
        m.RandomRotation((5.7, 5.7)),
        m.ColorJitter(hue=(-0.19, -0.19)),
        m.RandomHorizontalFlip(1.0),
        m.RandomAdjustSharpness(0.2, 1.0),
    ],
}
KINDS = {
    "v1 on PIL images": ("pil", v1, [v1.ToTensor()]),
    "v2 on PIL images": ("pil", v2, [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
    "v2 on tensors": ("tensor", v2, [v2.ToDtype(torch.float32, scale=True)]),
}
NEAR = {"a blur": 1}
"""Maximum number of pixel values that may differ. Chains that are not listed must be exact."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chain", ALWAYS)
def test_a_transform_with_a_single_outcome_gives_its_own_pixels(chain, kind):
    given, module, end = KINDS[kind]
    parts = ALWAYS[chain](module)
    last = [part for part in parts if type(part).__name__ == "RandomErasing"]
    before = [part for part in parts if part not in last]
    transform = module.Compose([module.Resize((90, 110)), *before, *end, module.Normalize(MEAN, STD), *last])
    ours, _ = trained(from_torchvision(training=transform, input=given), images())
    for actual, expected in zip(ours, theirs(transform, images(), given), strict=True):
        assert actual.shape == expected.shape
        if chain in NEAR:
            level = 1 / 255 / min(STD)
            assert abs(actual - expected).max() <= NEAR[chain] * level * 1.01
            assert np.mean(actual != expected) < 1e-4
        else:
            assert np.array_equal(actual, expected), f"{np.count_nonzero(actual != expected)} differ"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ratio", [(1.0, 1.0), (2.0, 2.0), (0.375, 0.375)])
def test_the_fallback_of_a_resized_crop_is_equal(kind, ratio):
    """The crop has the area of the whole image, but an aspect ratio that no test image has. It never fits, so the
    transform crops the centre.
    """
    given, module, end = KINDS[kind]
    transform = module.Compose([module.RandomResizedCrop((48, 56), (1.0, 1.0), ratio), *end])
    encoded = [png(noise(97, 61)), png(noise(41, 130))]
    ours, _ = trained(from_torchvision(training=transform, input=given), encoded)
    assert all(map(np.array_equal, ours, theirs(transform, encoded, given)))


@pytest.mark.parametrize("kind", ["v2 on PIL images", "v2 on tensors"])
@pytest.mark.parametrize(
    "part", [v2.RandomShortestSize(70, 90), v2.RandomShortestSize([51], 4000), v2.ScaleJitter((80, 60), (1.5, 1.5))]
)
def test_a_single_possible_size_gives_the_transforms_own_pixels_for_any_image_size(part, kind):
    given, _, end = KINDS[kind]
    transform = v2.Compose([part, v2.RandomHorizontalFlip(1.0), *end, v2.Normalize(MEAN, STD)])
    ours, _ = trained(from_torchvision(training=transform, input=given), images())
    assert len({each.shape for each in ours}) > 2
    assert all(map(np.array_equal, ours, theirs(transform, images(), given)))


TIES = [(s, r) for s in (0.0225, 0.2025, 0.3025, 0.9025, 0.25) for r in (1.0, 0.25, 2.25)]
"""Pairs of a scale and an aspect ratio. For an image of 10 x 10 pixels, they result in a side length that ends in .5,
except for float32 rounding."""


@pytest.mark.parametrize(("share", "ratio"), [*TIES, (0.36, 0.5625)])
def test_a_crop_of_one_area_and_one_ratio_has_the_same_size(share, ratio):
    crop = v2.RandomResizedCrop((9, 9), (share, share), (ratio, ratio))
    expected = crop.make_params([read(png(noise(10, 10)))])
    _, (draws,) = trained(from_torchvision(training=v2.Compose([crop, v2.ToImage()])), [png(noise(10, 10))])
    (window,) = draws.values()
    assert [window[side] for side in ("height", "width")] == [expected[side] for side in ("height", "width")]


@pytest.mark.parametrize(("share", "ratio"), [*TIES, (0.36, 0.4), (0.49, 0.81), (0.25, 1 / 1.21)])
def test_a_rectangle_of_one_area_and_one_ratio_has_the_same_size(share, ratio):
    erasing = v2.RandomErasing(1.0, (share, share), (ratio, ratio))
    expected = erasing.make_params([torch.zeros(3, 10, 10)])
    chain = v2.Compose([v2.CenterCrop(10), v2.ToImage(), v2.ToDtype(torch.float32), erasing])
    _, (draws,) = trained(from_torchvision(training=chain), [png(noise(10, 10))])
    (drawn,) = draws.values()
    assert [each[2:] for each in drawn["rectangles"]] == [[expected["h"], expected["w"]]] * (expected["v"] is not None)


NEIGHBOURS = [
    ("brightness", [v2.ColorJitter((1.40625, 1.40625))]),
    ("hue", [v2.ColorJitter(hue=(0.135, 0.135))]),
    ("rotation", [v2.RandomRotation((-17, -17))]),
    ("rotation", [v2.RandomRotation((17, 17), BILINEAR)]),
    ("affine", [v2.RandomAffine((11, 11), scale=(1.25, 1.25), shear=(-9, -9, 5, 5), fill=3)]),
    ("flips", [v2.RandomHorizontalFlip(1.0)]),
    ("every step", ALWAYS["every step"](v2)[::-1]),
]


@pytest.mark.parametrize(("chain", "others"), NEIGHBOURS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("kind", ["v2 on PIL images", "v2 on tensors"])
def test_a_different_transform_gives_different_pixels(chain, others, kind):
    given, _, end = KINDS[kind]
    ours, _ = trained(
        from_torchvision(training=v2.Compose([v2.Resize((90, 110)), *ALWAYS[chain](v2), *end]), input=given), images()
    )
    expected = theirs(v2.Compose([v2.Resize((90, 110)), *others, *end]), images(), given)
    assert not any(map(np.array_equal, ours[:3], expected[:3]))


@pytest.mark.parametrize("given", ["pil", "tensor"])
def test_the_other_input_kind_gives_different_pixels(given):
    transform = v2.Compose(
        [v2.Resize((90, 110)), v2.ColorJitter(hue=(0.13, 0.13)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    )
    ours, _ = trained(from_torchvision(training=transform, input=given), photos())
    other = "tensor" if given == "pil" else "pil"
    assert not any(map(np.array_equal, ours, theirs(transform, photos(), other)))


def test_an_erased_rectangle_is_at_the_recorded_position():
    transform = v2.Compose(
        [
            v2.Resize((64, 80)),
            *KINDS["v2 on PIL images"][2],
            v2.Normalize(MEAN, STD),
            v2.RandomErasing(1.0, value=(0.1, 0.2, 0.3)),
        ]
    )
    plain = v2.Compose(transform.transforms[:-1])
    ours, draws = trained(from_torchvision(training=transform), images())
    for actual, expected, draw in zip(ours, theirs(plain, images(), "pil"), draws, strict=True):
        ((top, left, height, width),) = draw["random_erasing#0"]["rectangles"]
        erased = v2.functional.erase(
            torch.from_numpy(expected.copy()), top, left, height, width, torch.tensor([0.1, 0.2, 0.3])[:, None, None]
        )
        assert np.array_equal(actual, erased.numpy())


# --------------------------------------------------------------------------------------------- ranges, as fields

FIELDS = {
    "v2.RandomResizedCrop(64)": [pp.random_resized_crop(64)],
    "v2.RandomResizedCrop((64, 48), (0.2, 0.9), (0.5, 2.0), v2.InterpolationMode.BICUBIC)": [
        pp.random_resized_crop(64, 48, (0.2, 0.9), (0.5, 2.0), "bicubic")
    ],
    "v2.RandomShortestSize((480, 512, 800), max_size=1333)": [pp.random_shortest_size((480, 512, 800), 1333)],
    "v2.RandomShortestSize(300, 500, 'bicubic')": [pp.random_shortest_size((300,), 500, filter="bicubic")],
    "v2.RandomResize(260, 1040, 'bicubic')": [pp.random_resize(260, 1040, filter="bicubic")],
    "v2.ScaleJitter((640, 480), (0.5, 1.5))": [pp.scale_jitter(480, 640, (0.5, 1.5))],
    "v2.RandomCrop(32, padding=4, fill=9)": [pp.random_crop(32, padding=(4, 4, 4, 4), fill=9)],
    "v2.RandomCrop(32, padding=(1, 2, 3, 4), pad_if_needed=True)": [
        pp.random_crop(32, padding=(1, 2, 3, 4), pad_if_needed=True)
    ],
    "v1.RandomCrop(32, padding=(1, 2))": [pp.random_crop(32, padding=(1, 2))],
    "v1.RandomCrop((32, 24), padding=(1, 2, 3, 4), fill=(1, 2, 3))": [
        pp.random_crop(32, 24, padding=(1, 2, 3, 4), fill=(1, 2, 3))
    ],
    "v2.RandomCrop(32, padding=4, padding_mode='reflect')": [
        pp.random_crop(32, padding=(4, 4, 4, 4), padding_mode="reflect")
    ],
    "v1.RandomCrop(32, padding=4, pad_if_needed=True, padding_mode='edge')": [
        pp.random_crop(32, padding=4, pad_if_needed=True, padding_mode="edge")
    ],
    "v2.RandomCrop(32, padding_mode='symmetric')": [pp.random_crop(32)],
    "v2.RandomPerspective(0.3, 0.7, 0, (1, 2, 3))": [pp.random_perspective(0.3, 0.7, filter="nearest", fill=(1, 2, 3))],
    "v2.ElasticTransform()": [pp.elastic((50.0, 50.0), (5.0, 5.0))],
    "v1.ElasticTransform(9.0, [2.0, 3.0], 0, 7)": [pp.elastic((9.0, 9.0), (2.0, 3.0), filter="nearest", fill=7)],
    "v2.RandomApply([v2.ElasticTransform(fill=(1, 2, 3))], 0.3)": [
        pp.elastic((50.0, 50.0), (5.0, 5.0), fill=(1, 2, 3), p=0.3)
    ],
    "v1.RandomPerspective()": [pp.random_perspective()],
    "v2.RandomPhotometricDistort()": [pp.random_photometric_distort()],
    "v2.RandomPhotometricDistort((0.5, 1.5), p=0.3)": [pp.random_photometric_distort((0.5, 1.5), p=0.3)],
    "v2.RandomVerticalFlip(0.3)": [pp.random_flip("vertical", 0.3)],
    "v2.ColorJitter(0.4, (0.5, 1.5), None, 0.1)": [pp.color_jitter((0.6, 1.4), (0.5, 1.5), None, (-0.1, 0.1))],
    "v1.ColorJitter(0, 0, 0.2, 0)": [pp.color_jitter(saturation=(0.8, 1.2))],
    "v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8)": [
        pp.color_jitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1), p=0.8)
    ],
    "v1.RandomApply([v1.ColorJitter(hue=0.5)])": [pp.color_jitter(hue=(-0.5, 0.5), p=0.5)],
    "v2.RandomGrayscale()": [pp.random_gray(p=0.1)],
    "v2.Grayscale(3)": [pp.grayscale()],
    "v2.RandAugment(3, 7, 20, v2.InterpolationMode.BILINEAR, (1, 2, 3))": [
        pp.rand_augment(3, 7, num_magnitude_bins=20, filter="bilinear", fill=(1, 2, 3))
    ],
    "v1.TrivialAugmentWide(fill=128)": [pp.trivial_augment(fill=128)],
    "v2.TrivialAugmentWide()": [pp.trivial_augment()],
    "v2.AutoAugment()": [pp.auto_augment()],
    "v2.AugMix()": [pp.aug_mix()],
    "v2.AugMix(5, 4, 0, 0.5, False, v2.InterpolationMode.NEAREST, (1, 2, 3))": [
        pp.aug_mix(severity=5, mixture_width=4, alpha=0.5, all_ops=False, filter="nearest", fill=(1, 2, 3))
    ],
    "v2.AugMix(chain_depth=2)": [pp.aug_mix(chain_depth=2)],
    "v1.AutoAugment(v1.AutoAugmentPolicy.SVHN, v1.InterpolationMode.BICUBIC, fill=[1, 2, 3])": [
        pp.auto_augment("svhn", filter="bicubic", fill=(1, 2, 3))
    ],
    "v2.RandomRotation(15, expand=False)": [pp.random_rotate((-15.0, 15.0))],
    "v2.RandomRotation(9, v2.InterpolationMode.BICUBIC)": [pp.random_rotate((-9.0, 9.0), filter="bicubic")],
    "v2.RandomAffine(10, (0.1, 0.2), (0.8, 1.2), (1, 2, 3, 4))": [
        pp.random_affine((-10.0, 10.0), (0.1, 0.2), (0.8, 1.2), (1.0, 2.0, 3.0, 4.0))
    ],
    "v1.RandomAffine(0, shear=5)": [pp.random_affine((-0.0, 0.0), shear=(-5.0, 5.0))],
    "v2.GaussianBlur((5, 9), (0.1, 5.0))": [pp.random_gaussian_blur((5, 9), (0.1, 5.0))],
    "v2.RandomApply([v2.GaussianBlur(23)], p=0.2)": [pp.random_gaussian_blur((23, 23), p=0.2)],
    "v1.RandomApply([v1.RandomGrayscale(0.5)], p=0.5)": [pp.random_gray(p=0.25)],
    "v2.RandomPosterize(4, 0.2)": [pp.random_posterize(4, p=0.2)],
    "v2.RandomSolarize(128, 0.2)": [pp.random_solarize(128.0, p=0.2)],
    "v2.RandomAdjustSharpness(2, 0.2)": [pp.random_sharpness(2.0, p=0.2)],
}


@pytest.mark.parametrize("source", FIELDS)
def test_the_ranges_of_a_transform_are_the_fields_of_its_op(source):
    transform = eval(source, {"v1": v1, "v2": v2})  # noqa: S307 - a line of the table above
    ends = [v2.Resize((64, 64)), v1.ToTensor()]
    is_bounded = any(word in source for word in ("Crop", "Size", "ScaleJitter"))
    bounded = [[], [v2.CenterCrop(64)]]["RandomResize(" in source]
    ends = ends[1:] if is_bounded or bounded else ends
    pipeline = from_torchvision(training=v2.Compose([*ends[:-1], transform, *bounded, ends[-1]]))
    assert list(pipeline.ops[len(ends) : -2 - len(bounded)]) == FIELDS[source]


ERASING = [
    (v2.RandomErasing(0.3), pp.random_erasing(0.3)),
    (v1.RandomErasing(0.3, (0.1, 0.2), (0.5, 2.0), value=1), pp.random_erasing(0.3, (0.1, 0.2), (0.5, 2.0), 1.0)),
    (v2.RandomErasing(value=(0.1, -0.2, 0.3)), pp.random_erasing(value=(0.1, -0.2, 0.3))),
    (v2.RandomErasing(0.3, value="random"), pp.random_erasing(0.3, value="random")),
    (v1.RandomErasing(0.3, value="random"), pp.random_erasing(0.3, value="random")),
]


@pytest.mark.parametrize(("transform", "op"), ERASING)
def test_erasing_after_the_normalization(transform, op):
    chain = [v1.RandomCrop(32), v1.ToTensor(), v1.Normalize(MEAN, STD), transform]
    assert from_torchvision(training=v1.Compose(chain)).ops[-2] == op


# ----------------------------------------------------------------------------------------------------- training and
# serving


def test_torchvisions_own_recipe_gives_one_file_for_both_modes():
    train = v1.Compose(
        [
            v1.RandomResizedCrop(176), v1.RandomHorizontalFlip(), v1.TrivialAugmentWide(), v1.PILToTensor(),
            v1.ConvertImageDtype(torch.float), v1.Normalize(MEAN, STD), v1.RandomErasing(0.1),
        ]
    )  # fmt: skip
    pipeline = from_torchvision("ResNet50_Weights.IMAGENET1K_V2", training=train)
    assert [str(op.__struct_config__.tag) + (f" {op.only}" if op.only else "") for op in pipeline.ops] == [
        "decode", "random_resized_crop", "random_flip", "trivial_augment", "resize serving", "center_crop serving",
        "normalize", "random_erasing", "tensor",
    ]  # fmt: skip
    assert pp.Pipeline.from_json(pipeline.to_json()) == pipeline
    assert pipeline.for_serving().plan == from_torchvision("ResNet50_Weights.IMAGENET1K_V2").plan
    assert pipeline.origin.name == "ResNet50_Weights.IMAGENET1K_V2"
    assert pipeline.outputs["tensor"].spec.shape == (3, 224, 224)
    assert pipeline.for_training().outputs["tensor"].spec.shape == (3, 176, 176)


V2_END = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
V2_CROP = [v2.RandomResizedCrop(176), v2.ToImage(), *V2_END]


@pytest.mark.parametrize(
    ("message", "chain"),
    [
        ("training[1] ColorJitter: is not supported for float32 values", [v1.ToTensor(), v1.ColorJitter(0.1)]),
        ("training[1] RandAugment: is not supported for float32 values", [v1.ToTensor(), v2.RandAugment()]),
        ("training[1] ColorJitter: is not supported for a uint8 tensor in v1", [v1.PILToTensor(), v1.ColorJitter(0.1)]),
        (
            'training[2] RandomErasing: "value": [0.1, 0.2] must be a number, one for each of 3 channels, or "random"',
            [v1.RandomCrop(9), v1.ToTensor(), v2.RandomErasing(value=(0.1, 0.2))],
        ),
        (
            'ops[2] "random_erasing": in training: "value": "random" fills with values of the tensor',
            [v1.RandomCrop(9), v2.PILToTensor(), v2.RandomErasing(value="random")],
        ),
        ("training[0] RandomErasing: does not accept a PIL image:", [v2.RandomErasing(), v1.ToTensor()]),
        (
            "training[0] RandomCrop: \"padding_mode\": 'reflect' with padding and pad_if_needed mirrors twice in v1, "
            "which is not",
            [v1.RandomCrop(9, 2, pad_if_needed=True, padding_mode="reflect")],
        ),
        (
            'RandomCrop: "padding_mode": \'edge\' must be "constant"',
            [v1.ToTensor(), v2.RandomCrop(9, 2, padding_mode="edge")],
        ),
        ('training[0] RandAugment: "interpolation": 1 must', [v2.RandAugment(interpolation=1)]),
        ('training[0] RandomRotation: "interpolation": 1 must', [v2.RandomRotation(3, interpolation=1)]),
        ("training[0] AugMix: is not supported in v1: use torchvision.transforms.v2", [v1.AugMix()]),
        (
            "training[0] RandomChoice: changes the type or the layout of the data only for some",
            [v2.RandomChoice([v1.ToTensor(), v2.RandomInvert()])],
        ),
        (
            "training[0] RandomApply: changes the type or the layout of the",
            [v2.RandomApply([v2.RandomInvert(), v1.ToTensor()])],
        ),
        (
            'training[0] ElasticTransform: "fill": [9.0, 9.0, 9.0] is not supported with bilinear interpolation:',
            [v1.ElasticTransform(fill=(9, 9, 9))],
        ),
        ('ops[1] "elastic": filter: "bicubic" is not supported', [v2.ElasticTransform(interpolation=3), v1.ToTensor()]),
        ("training: the last transform returns a PIL image", [v1.RandomCrop(9)]),
        (
            'transforms: ops[4] "normalize": in training: must come before random_erasing',
            [v1.RandomCrop(9), v1.ToTensor(), v1.RandomErasing(), v1.Normalize(MEAN, STD)],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_inexact_transforms_are_rejected_by_position(message, chain):
    assert message in refusal(from_torchvision, training=v2.Compose(chain))


@pytest.mark.parametrize(
    ("message", "transform"),
    [
        ('RandomRotation: "fill": None is not supported for tensors with', v2.RandomRotation(3, BILINEAR, fill=None)),
        (
            'RandAugment: rand_augment: "filter": "bicubic" is not supported by "like": "torchvision"',
            v2.RandAugment(interpolation=3),
        ),
        (
            'RandomAffine: "fill": None is not supported for tensors with',
            v2.RandomAffine(3, interpolation=BILINEAR, fill=None),
        ),
    ],
)
def test_a_fill_that_is_not_a_colour_is_rejected_where_it_matters(message, transform):
    assert message in refusal(from_torchvision, training=transform, input="tensor")


def test_incompatible_modes_are_rejected():
    serve = v2.Compose([v2.Resize((64, 64)), v2.ToImage(), *V2_END])
    train = v2.Compose([v2.RandomResizedCrop(64), v1.ToTensor(), v1.Normalize((0.5,) * 3, STD)])
    assert "must be the same in training" in refusal(from_torchvision, serve, training=train)


MIXED_MODES = {
    "weights that divide, a recipe that multiplies": (
        "ResNet50_Weights.IMAGENET1K_V2",
        v2.Compose([v2.RandomResizedCrop(176), v2.TrivialAugmentWide(), v2.PILToTensor(), *V2_END, v2.ToPureTensor()]),
        "divide",
    ),
    "an evaluation that multiplies, a recipe that divides": (
        v2.Compose([v2.Resize(232), v2.CenterCrop(224), v2.ToImage(), *V2_END]),
        v1.Compose([v1.RandomResizedCrop(176), v1.TrivialAugmentWide(), v1.ToTensor(), v1.Normalize(MEAN, STD)]),
        "multiply",
    ),
}


@pytest.mark.parametrize("case", MIXED_MODES)
def test_modes_of_v1_and_v2_are_one_file_with_the_arithmetic_of_serving(case, caplog):
    serve, train, kept = MIXED_MODES[case]
    pipeline = from_torchvision(serve, training=train)
    (note,) = [record.getMessage() for record in caplog.records]
    assert f'uses the "arithmetic" of serving for both, "{kept}".' in note
    assert [op.arithmetic for op in pipeline.ops if op.__struct_config__.tag == "normalize"] == [kept]
    assert pipeline.for_serving().plan == from_torchvision(serve).plan
    ours, _ = trained(pipeline, images())
    # both pipelines have the same random parameters
    theirs_alone, _ = trained(from_torchvision(training=train), images())
    largest = max(abs(actual - expected).max() for actual, expected in zip(ours, theirs_alone, strict=True))
    assert 0 < largest <= 7.2e-7  # this is the maximum over all 256 pixel values and these means


def test_modes_with_the_same_arithmetic_give_no_note(caplog):
    from_torchvision(
        MIXED_MODES["an evaluation that multiplies, a recipe that divides"][0], training=v2.Compose(V2_CROP)
    )
    assert not caplog.records


def test_a_python_file_can_name_both_modes(tmp_path):
    path = tmp_path / "transforms.py"
    path.write_text(
        "from torchvision.transforms import v2\nimport torch\n"
        "end = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]\n"
        "train = v2.Compose([v2.RandomResizedCrop(64), *end])\n"
        "serve = v2.Compose([v2.Resize(72), v2.CenterCrop(64), *end])\n"
    )
    pipeline = from_torchvision(f"{path}:serve", training=f"{path}:train")
    assert pipeline.for_training().side_ops[1] == pp.random_resized_crop(64)
    assert pipeline.side_ops[1] == pp.resize(72, only="serving")
    assert refusal(from_torchvision, f"{path}:nothing") == f"{path} does not define nothing"


# -------------------------------------------------------------------------------------------- recipes of detection

COLOUR = (123.0, 117.0, 104.0)
RECIPES = {  # augmentations of torchvision's reference scripts for detection, each with a fixed output size
    "hflip": lambda: [v2.RandomHorizontalFlip(0.5), v2.Resize(60, max_size=90)],
    "lsj": lambda: [
        v2.ScaleJitter((72, 96)),
        v2.RandomCrop((96, 72), pad_if_needed=True, fill=COLOUR),
        v2.RandomHorizontalFlip(0.5),
    ],
    "multiscale": lambda: [v2.RandomShortestSize((48, 51, 57, 80), max_size=99), v2.RandomHorizontalFlip(0.5)],
    "ssd": lambda: [
        v2.RandomPhotometricDistort(),
        v2.RandomZoomOut(fill=defaultdict(lambda: COLOUR, {tv_tensors.Mask: 0})),
        v2.RandomIoUCrop(),
        v2.RandomHorizontalFlip(0.5),
        v2.Resize((60, 70)),
    ],
    "ssd, a colour": lambda: [
        v2.RandomZoomOut({tv_tensors.Mask: 0, "others": COLOUR}, (1.0, 3.0), 0.8),
        v2.RandomIoUCrop(0.4, 0.9, 0.6, 1.8, [0.2, 0.6], 20),
        v2.Resize((60, 70)),
    ],
    "ssdlite": lambda: [v2.RandomIoUCrop(), v2.RandomHorizontalFlip(0.5), v2.Resize(None, max_size=64)],
}
BOXES_END = [v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes(), v2.ConvertBoundingBoxFormat("CXCYWH")]


def replay(part, words, kept):
    """Patch a transform so that it uses the recorded parameters."""
    own = part.make_params
    if "flip" in words:
        part.p = float(words["flip"])
    elif isinstance(part, v2.RandomPhotometricDistort):
        order, channels = list(words), words.get("channels")
        factors = {f"{kind}_factor": words.get(kind) for kind in ("brightness", "contrast", "saturation", "hue")}
        later = [order.index(kind) for kind in ("saturation", "hue") if kind in words]
        early = "contrast" in words and order.index("contrast") < min(later, default=9)
        channels = None if channels is None else torch.tensor(channels)
        part.make_params = lambda _: factors | {"contrast_before": early, "channel_permutation": channels}
    elif isinstance(part, v2.RandomZoomOut):
        part.p = 1.0

        def padded(inputs):
            height, width = v2.functional.get_size(inputs[0])
            left, top = -words["left"], -words["top"]
            return {"padding": [left, top, words["width"] - width - left, words["height"] - height - top]}

        part.make_params = padded
    elif isinstance(part, v2.RandomIoUCrop):

        def cut(inputs):
            whole = v2.functional.get_size(inputs[0]) == [words["height"], words["width"]]
            return {} if whole else words | {"is_within_crop_area": torch.from_numpy(kept)}

        part.make_params = cut
    elif isinstance(part, v2.RandomCrop):

        def window(inputs):
            left, top = (params := own(inputs))["padding"][:2]
            return params | {"top": top + words["top"], "left": left + words["left"]}

        part.make_params = window
    elif isinstance(part, v2.RandomShortestSize):
        part.min_size = [words["size"]]
    else:
        part.make_params = lambda _: {"size": [words["height"], words["width"]]}


@pytest.mark.parametrize("given", ["pil", "tensor"])
@pytest.mark.parametrize("name", RECIPES)
def test_a_detection_recipe_equals_its_original_with_the_same_parameters(name, given):
    draws = 300
    make = [v2.ToImage(), *V2_END, *BOXES_END, v2.ToPureTensor()]
    plan = (side := from_torchvision(training=v2.Compose([*RECIPES[name](), *make]), input=given).for_training()).plan
    numbers = np.random.default_rng(7)
    pixels = [scene(*size) for size in ((97, 61), (60, 80), (128, 120), (53, 131))]
    samples = []
    for index in range(draws):
        height, width, _ = pixels[index % 4].shape
        boxes = np.sort(numbers.uniform(0, 1, (1 + index % 5, 2, 2)), axis=1) * (width, height)
        boxes = boxes.reshape(-1, 4).astype(np.float32)
        boxes[: index % 2] = [0, 0, width, height]
        samples.append({"boxes": boxes, "labels": np.arange(len(boxes))})
    drawn = plan.draw(seed=3, epoch=0, indices=range(draws))
    places = [plan.placing(each, sample) for each, sample in zip(drawn, samples, strict=True)]
    with pp.Engine(side, threads=2) as engine:
        batch = engine.run_batch([png(pixels[index % 4]) for index in range(draws)], places=places)

    def expected(index, words):
        parts, kept = RECIPES[name](), next(iter(batch.placed[index].kept.values()), None)
        drawing = (part for part in parts if not isinstance(part, v2.Resize))
        for part, each in zip(drawing, words.values(), strict=True):
            replay(part, each, kept)
        image = Image.fromarray(pixels[index % 4])
        image = image if given == "pil" else tv_tensors.Image(np.moveaxis(pixels[index % 4], 2, 0).copy())
        boxes = tv_tensors.BoundingBoxes(
            samples[index]["boxes"], format="XYXY", canvas_size=v2.functional.get_size(image)
        )
        return v2.Compose([*parts, *make])({"image": image, "boxes": boxes, "labels": torch.arange(len(boxes))})

    wrong = of = farthest = dropped = 0
    for index in range(draws):
        result = expected(index, batch.placed[index].draws)
        ours, pixel = annotated(plan, batch.placed[index], samples[index]), batch["tensor"][index]
        wrong += pixel.size if pixel.shape != result["image"].shape else np.sum(pixel != result["image"].numpy())
        of += pixel.size
        assert ours["labels"].tolist() == result["labels"].tolist()
        dropped += len(samples[index]["labels"]) - len(ours["labels"])
        farthest = max(farthest, np.abs(ours["boxes"] - result["boxes"].numpy()).max(initial=0))
    print(f"{name}, {given}: {wrong} of {of:,} values differ, boxes {farthest:.2g} pixels, {dropped} dropped by both")
    assert wrong == 0
    assert farthest < 1e-4
    others = (expected(index, batch.placed[index + 4].draws)["image"] for index in range(40))
    assert sum(not np.array_equal(batch["tensor"][index], other) for index, other in enumerate(others)) > 10


def test_a_box_that_a_resize_rounds_out_of_the_image_is_kept_where_torchvision_drops_it():
    """In float32, the lower edge of a box over all 51 rows becomes 60.000004. With ``ClampBoundingBoxes``, torchvision
    also keeps the box.
    """
    height, width = 51, 60
    boxes = np.array([[3, 0, 50, height]], np.float32)
    parts = [v2.Resize((60, 60)), v2.SanitizeBoundingBoxes()]
    for clamp, count in ([], 0), ([v2.ClampBoundingBoxes()], 1):
        chain = v2.Compose([parts[0], *clamp, parts[1]])
        given = {"boxes": tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(height, width))}
        given |= {"image": tv_tensors.Image(np.zeros((3, height, width), np.uint8)), "labels": torch.arange(1)}
        assert len(chain(given)["labels"]) == count
        plan = from_torchvision(training=v2.Compose([chain, *LAST])).for_training().plan
        (drawn,) = plan.draw(seed=0, epoch=0, indices=[0])
        sample = {"boxes": boxes, "labels": [0]}
        assert annotated(plan, plan.placing(drawn, sample)(height, width), sample)["boxes"].tolist() == [[3, 0, 50, 60]]


LAST = [v2.ToImage(), *V2_END]
NOT_OURS = [
    (
        '[0] SanitizeBoundingBoxes: "min_area": 9.0 must not exceed the square of',
        [v2.SanitizeBoundingBoxes(min_area=9.0)],
    ),
    ('[0] SanitizeBoundingBoxes: "labels_getter"', [v2.SanitizeBoundingBoxes(labels_getter=None)]),
    ("SanitizeBoundingBoxes must come after", [v2.SanitizeBoundingBoxes(), v2.CenterCrop(9)]),
    ('[0] ClampBoundingBoxes: "clamping_mode": None leaves boxes outside', [v2.ClampBoundingBoxes(None)]),
    ("[0] ConvertBoundingBoxFormat: \"format\": 'XYWHR' must be one", [v2.ConvertBoundingBoxFormat("XYWHR")]),
    ("must be an integer from 0 to 255", [v2.RandomZoomOut(0.5)]),
    (
        "'torch.Tensor'>: 1} must be an integer from 0 to 255",
        [LAST[0], v2.RandomZoomOut({tv_tensors.Image: 0, torch.Tensor: 1})],
    ),
    ("no upper bound: add center_crop or letterbox", [v2.RandomIoUCrop()]),
]


@pytest.mark.parametrize(("message", "chain"), NOT_OURS, ids=lambda value: value if isinstance(value, str) else "")
def test_transforms_that_boxes_cannot_follow_are_rejected(message, chain):
    assert message in refusal(from_torchvision, training=v2.Compose([*chain, *LAST]))


@pytest.mark.parametrize(
    ("fill", "colours"),
    [
        ({tv_tensors.Image: 9, Image.Image: 8, "others": 7}, (8, 9)),
        ({"others": 7}, (7, 7)),
        ({tv_tensors.Mask: 5, "others": (1, 2, 3)}, ((1, 2, 3), (1, 2, 3))),
        (defaultdict(lambda: 4, {torch.Tensor: 3}), (0, 3)),
    ],
)
def test_a_fill_by_type_uses_the_value_for_images(fill, colours):
    for given, colour in zip(("pil", "tensor"), colours, strict=True):
        chain = v2.Compose([v2.RandomZoomOut(fill), v2.Resize((9, 9)), *LAST])
        assert from_torchvision(training=chain, input=given).ops[1].fill == colour


class PadIfSmaller(v2.Transform):
    """Transform of torchvision's reference scripts that pads on the right and below, up to a size."""

    def __init__(self, size, fill):
        super().__init__()
        self.size, self.fill = size, fill

    def transform(self, inpt, params):  # noqa: ARG002 - torchvision's
        height, width = v2.functional.get_size(inpt)
        padding = [0, 0, max(self.size - width, 0), max(self.size - height, 0)]
        return v2.functional.pad(inpt, padding, fill=self.fill.get(type(inpt), self.fill["others"]))


class SegmentationPresetTrain:
    """Preset of torchvision's reference scripts. It is not itself a torchvision transform, but applies several
    transforms.
    """

    def __init__(self, backend):
        image = tv_tensors.Image if backend == "tensor" else torch.Tensor
        dtypes = {image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
        parts = [v2.ToImage()] if backend == "tensor" else []
        parts += [v2.RandomResize(32, 128), v2.RandomHorizontalFlip(0.5)]
        parts += [PadIfSmaller(60, {tv_tensors.Mask: 255, "others": 0}), v2.RandomCrop(60)]
        parts += [v2.PILToTensor()] if backend == "pil" else []
        self.transforms = v2.Compose([*parts, v2.ToDtype(dtypes, scale=True), v2.Normalize(MEAN, STD)])

    def __call__(self, *inputs):
        return self.transforms(*inputs)


@pytest.mark.parametrize("given", ["pil", "tensor"])
def test_the_segmentation_preset_equals_its_original_with_the_same_parameters(given):
    """The test compares the pixels and the masks of 300 samples."""
    imported = from_torchvision(training=SegmentationPresetTrain(given), input=given)
    side = pp.Pipeline([*imported.ops[:-1], pp.mask(), imported.ops[-1]]).for_training()
    pixels = [scene(*size) for size in ((97, 61), (60, 80), (64, 64), (53, 131))]
    masks = [noise(*each.shape[:2])[..., 0] % 21 for each in pixels]
    drawn = side.plan.draw(seed=4, epoch=1, indices=range(300))
    samples = [{"mask": masks[index % 4]} for index in range(300)]
    places = [side.plan.placing(each, sample) for each, sample in zip(drawn, samples, strict=True)]
    with pp.Engine(side, threads=2) as engine:
        batch = engine.run_batch([png(pixels[index % 4]) for index in range(300)], places=places)
    seen = set()

    def expected(index, words):
        preset = SegmentationPresetTrain(given)
        resize, flip, crop = (
            each for each in preset.transforms.transforms if type(each).__name__ in ("RandomResize", *FLIP_AND_CROP)
        )
        resize.make_params = lambda _: {"size": [words["random_resize#0"]["size"]]}
        replay(flip, words["random_flip#0"], None)
        replay(crop, words["random_crop#0"], None)
        image = Image.fromarray(pixels[index % 4])
        image = image if given == "pil" else tv_tensors.Image(np.moveaxis(pixels[index % 4], 2, 0).copy())
        return [each.numpy() for each in preset(image, tv_tensors.Mask(masks[index % 4]))]

    for index, placed in enumerate(batch.placed):
        image, mask = expected(index, placed.draws)
        assert np.array_equal(batch["tensor"][index], image)
        assert np.array_equal(annotated(side.plan, placed, samples[index])["mask"], mask)
        other, _ = expected(index, batch.placed[index - 4].draws)
        assert not np.array_equal(batch["tensor"][index], other)
        seen.add(placed.draws["random_resize#0"]["size"])
    assert {min(seen), max(seen)} == {32, 127}


FLIP_AND_CROP = ("RandomHorizontalFlip", "RandomCrop")


# ------------------------------------------------------------------------------------------------------------ timm

if find_spec("timm"):
    from timm.data import create_transform, resolve_data_config

CONFIG = {"input_size": (3, 64, 80), "interpolation": "bicubic", "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)}
NOT_RANDOM = {"scale": (1.0, 1.0), "ratio": (1.0, 1.0), "hflip": 0.0, "color_jitter": None}


def timm_transform(**arguments):
    pytest.importorskip("timm", reason="NO TIMM: its training transform was not compared")
    resolved = resolve_data_config({}, pretrained_cfg=CONFIG)
    return create_transform(**{**resolved, "is_training": True, **arguments})


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"hflip": 1.0}, {"vflip": 1.0}, {"interpolation": "lanczos"}, {"ratio": (2.0, 2.0)},
        {"grayscale_prob": 1.0}, {"color_jitter": (0.0, 0.0, 0.0)}, {"color_jitter": 0.4, "color_jitter_prob": 0.0},
        {"no_aug": True}, {"no_aug": True, "interpolation": "random"}, {"color_jitter": 0, "crop_pct": 0.9},
    ],
    ids=str,
)  # fmt: skip
def test_a_timm_transform_with_a_single_outcome_gives_its_own_pixels(changes):
    arguments = {**NOT_RANDOM, **changes}
    ours, _ = trained(from_timm(CONFIG, training=arguments), [png(noise(97, 61)), png(noise(41, 130))])
    expected = theirs(timm_transform(**arguments), [png(noise(97, 61)), png(noise(41, 130))], "pil")
    assert all(map(np.array_equal, ours, expected))


def test_the_ranges_of_timms_transform_are_the_fields_of_ops():
    arguments = {
        "scale": (0.3, 0.8),
        "ratio": (0.5, 2.0),
        "hflip": 0.4,
        "vflip": 0.1,
        "color_jitter": (0.3, 0.2, 0.1, 0.05),
    }
    arguments |= {"grayscale_prob": 0.2, "gaussian_blur_prob": 0.3, "re_prob": 0.25, "re_count": 3}
    crop, across, down, jitter, gray, blur, _, _, erasing = timm_transform(**arguments).transforms
    ops = from_timm(CONFIG, training=arguments).for_training().side_ops
    assert len(ops) == 10
    assert (ops[1].scale, ops[1].ratio, (ops[1].height, ops[1].width)) == (crop.scale, crop.ratio, tuple(crop.size))
    assert (ops[2].p, ops[3].p, ops[3].axis) == (across.p, down.p, "vertical")
    spans = {name: pytest.approx(getattr(jitter, name)) for name in ops[4].spans}
    assert ops[4].spans == spans
    assert ops[5].p == gray.p
    assert (ops[6].p, list(ops[6].span), ops[6].taps) == (
        blur.p,
        list(blur.transforms[0].sigma),
        blur.transforms[0].kernel_size,
    )
    assert (ops[8].p, ops[8].scale) == (erasing.probability, (erasing.min_area, erasing.max_area))
    assert np.log(ops[8].ratio) == pytest.approx(erasing.log_aspect_ratio)
    assert ops[8].counts == (erasing.min_count, erasing.max_count)


def test_timms_probabilities_and_noise_are_the_fields_of_ops():
    arguments = {"color_jitter_prob": 0.8, "re_prob": 0.25, "re_mode": "pixel"}
    _, _, jitter, *_, erasing = timm_transform(**arguments).transforms
    ops = from_timm(CONFIG, training=arguments).for_training().side_ops
    assert ops[3].p == jitter.p
    assert ops[3].spans["brightness"] == pytest.approx(jitter.transforms[0].brightness)
    assert erasing.per_pixel
    assert (ops[5].p, ops[5].value) == (erasing.probability, "random")


def test_timms_defaults_are_the_fields_of_ops():
    crop, flip, jitter, *_ = timm_transform().transforms
    ops = from_timm(CONFIG, training={}).for_training().side_ops
    assert (ops[1].scale, ops[1].ratio) == (crop.scale, crop.ratio)
    assert ops[2].p == flip.p
    assert ops[3].spans == {
        name: getattr(jitter, name) and pytest.approx(getattr(jitter, name)) for name in ops[3].spans
    }
    assert len(ops) == 6


@pytest.mark.parametrize("policy", ["rand-m9-mstd0.5-inc1", "rand-m7-n3-tweights", "v0r-mstd0.5"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_a_timm_recipe_with_a_policy_equals_its_original_with_the_same_parameters(policy, interpolation):
    """The reference is timm's own transform. Its policy is replaced by one that applies the steps that pixprep has
    sampled.
    """
    arguments = {
        **NOT_RANDOM,
        "hflip": 1.0,
        "auto_augment": policy,
        "interpolation": interpolation,
        "grayscale_prob": 1.0,
    }
    encoded = [png(noise(97, 61)), png(noise(41, 130)), *photos()] * 4
    ours, draws = trained(from_timm(CONFIG, training=arguments), encoded, seed=5)
    transform = timm_transform(**{**arguments, "color_jitter": 0.4})
    (place,) = (place for place, each in enumerate(transform.transforms) if "Augment" in type(each).__name__)
    transform.transforms[place] = replay = Replay(interpolation)
    done = 0
    for image, actual, words in zip(encoded, ours, draws, strict=True):
        (replay.steps,) = (each["ops"] for each in words.values() if "ops" in each)
        done += len(replay.steps)
        assert np.array_equal(theirs(transform, [image], "pil")[0], actual)
    assert done > len(encoded) / 2


class Replay:
    """Policy that applies timm's functions for the recorded steps."""

    def __init__(self, interpolation):
        self.interpolation, self.fill = interpolation, tuple(round(255 * mean) for mean in CONFIG["mean"])

    def __call__(self, image):
        from timm.data.auto_augment import NAME_TO_OP  # noqa: PLC0415 - only if timm is installed

        for each in self.steps:
            is_factor = each["op"] in ("Color", "Contrast", "Brightness", "Sharpness")
            arguments = [each["magnitude"] + is_factor] if "magnitude" in each else []
            # the result is black; Pillow 13 raises an error, and earlier versions did not
            if each["op"] == "Posterize" and arguments[0] < 1:
                image = image.point(lambda _: 0)
                continue
            resample = Image.Resampling[each.get("filter", self.interpolation).upper()]
            image = NAME_TO_OP[each["op"]](image, *arguments, fillcolor=self.fill, resample=resample)
        return image


def test_a_random_interpolation_of_timm_gives_its_own_pixels_with_the_same_parameters():
    """The crop and each step of the policy have a random filter, as in timm's train.py."""
    arguments = {**NOT_RANDOM, "scale": (0.2, 0.9), "ratio": (0.6, 1.6), "interpolation": "random"}
    arguments["auto_augment"] = "rand-m9-mstd0.5-inc1"
    encoded = [png(noise(97, 61)), png(scene(41, 130)), png(noise(64, 64))] * 100
    ours, draws = trained(from_timm(CONFIG, training=arguments), encoded, seed=9)
    transform = timm_transform(**arguments)
    crop, both, seen = transform.transforms[0], tuple(transform.transforms[0].interpolation), {}
    (place,) = (place for place, each in enumerate(transform.transforms) if "Augment" in type(each).__name__)
    transform.transforms[place] = policy = Replay("never")
    other = {"bilinear": "bicubic", "bicubic": "bilinear"}
    for image, tensor, words in zip(encoded, ours, draws, strict=True):
        (chosen,) = words["random_choice#0"]["chosen"]
        window = words[f"random_choice#0.{chosen}.random_resized_crop#0"]
        crop.get_params = lambda *_, window=window: tuple(window[side] for side in ("top", "left", "height", "width"))
        (steps,) = (each["ops"] for each in words.values() if "ops" in each)
        turned = [each | ({"filter": other[each["filter"]]} if "filter" in each else {}) for each in steps]
        pixels = []
        for drawn, which in ((steps, chosen), (steps, 1 - chosen), (turned, chosen)):
            crop.interpolation, policy.steps = (both[which],), [{"filter": "nearest"} | each for each in drawn]
            pixels += theirs(transform, [image], "pil")
        assert np.array_equal(tensor, pixels[0]), words
        for each in (f"crop {chosen}", *(each["filter"] for each in steps if "filter" in each)):
            total = seen.setdefault(each, [0, 0])
            total[0] += 1
            total[1] += not np.array_equal(tensor, pixels[1 if "crop" in each else 2])
    assert len(seen) == 4
    assert min(count for count, _ in seen.values()) > 40
    assert all(differ > 0.8 * count for count, differ in seen.values()), seen


@pytest.mark.parametrize("mode", ["const", "rand", "pixel"])
def test_timms_erasing_equals_its_original_with_the_same_parameters(mode, monkeypatch):
    """timm's loop receives pixprep's noise and random numbers, in the order in which the loop requests them."""
    module = pytest.importorskip("timm.data.random_erasing", reason="NO TIMM: its erasing was not compared")
    arguments = {**NOT_RANDOM, "re_prob": 1.0, "re_mode": mode, "re_count": 3}
    encoded = [png(noise(97, 61)), png(scene(41, 130)), png(noise(64, 64))] * 100
    ours, draws = trained(from_timm(CONFIG, training=arguments), encoded, seed=5)
    plain, _ = trained(from_timm(CONFIG, training={**NOT_RANDOM}), encoded[:3])
    transform, most = timm_transform(**arguments).transforms[-1], 0
    transform.device = "cpu"
    for index, (tensor, words) in enumerate(zip(ours, draws, strict=True)):
        drawn = words["random_erasing#0"]
        numbers = Numbers(drawn["rectangles"], 64 * 80)
        monkeypatch.setattr(module, "random", numbers)
        values = [torch.tensor(each)[:, None, None] for each in drawn.get("colors", [])]

        def pixels(per_pixel, rand_color, shape, *, values=values, **_):
            assert (per_pixel, rand_color) == (mode == "pixel", mode == "rand")
            return torch.full(shape, float("nan")) if per_pixel else values.pop(0) if values else torch.zeros(3, 1, 1)

        monkeypatch.setattr(module, "_get_pixels", pixels)
        expected = transform(torch.from_numpy(plain[index % 3].copy())).numpy()
        same = np.isnan(expected) | (expected == tensor)
        assert same.all()
        assert mode != "pixel" or abs(tensor[np.isnan(expected)].std() - 1) < 0.5
        most = max(most, len(drawn["rectangles"]))
    assert most == 3


class Numbers:
    """Replacement for ``random`` that returns numbers with which timm's loop fills the given rectangles."""

    def __init__(self, rectangles, area):
        self.count, self.spans = len(rectangles), []
        for top, left, height, width in rectangles:
            self.spans += [height * width / area * self.count, np.log(height / width)], [top, left]
        self.spans = [each for pair in self.spans for each in pair]

    def random(self):
        return 0.0

    def randint(self, least, most):
        if (least, most) == (1, 3):
            return self.count
        assert least <= self.spans[0] <= most
        return self.spans.pop(0)

    def uniform(self, *_):
        return self.spans.pop(0)


def test_a_policy_disables_timms_jitter():
    for policy, count in ((None, 6), ("original", 6)):
        arguments = {"auto_augment": policy, "color_jitter": 0.4}
        ours = from_timm(CONFIG, training=arguments).for_training().side_ops
        assert len(timm_transform(**arguments).transforms) + 1 == len(ours) == count
        assert isinstance(ours[3], pp.auto_augment if policy else pp.color_jitter)


def test_the_operator_of_the_page_equals_timms_augmix_with_the_same_numbers():
    """The result does not depend on the number of threads, because only one thread at a time calls timm."""
    timm_mix = pytest.importorskip("timm.data.auto_augment").augment_and_mix_transform
    (program,) = (each for each in programs("own-operators.md") if "timm.data" in each)
    names = {}
    exec(program, names)  # noqa: S102 - a page of our own
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=60, width=70), names["augmix"](only="training"), *FINAL_OPS])
    ours, draws = trained(pipeline, [png(noise(97, 61)), png(scene(41, 130))] * 20, seed=3)
    mix = timm_mix("augmix-m5-w4-d2", {"img_mean": (124, 116, 104), "translate_pct": 0.3})
    resized = [read(png(make)).resize((70, 60), Image.Resampling.BILINEAR) for make in (noise(97, 61), scene(41, 130))]
    for index, (actual, words) in enumerate(zip(ours, draws, strict=True)):
        rng = np.random.Generator(np.random.Philox(key=words["extern#0"]["seed"]))
        random.seed(int(rng.integers(1 << 32)))
        np.random.seed(int(rng.integers(1 << 32)))  # noqa: NPY002 - timm's
        assert np.array_equal(actual, np.asarray(mix(resized[index % 2])))
    assert not np.array_equal(ours[0], ours[2])


FINAL_OPS = (pp.tensor(dtype="uint8", layout="hwc"),)


def programs(page):
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
