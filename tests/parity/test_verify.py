"""Tests certificates that ``verify`` creates with the real libraries, if these are installed, and with the frozen
results.
"""

import importlib

import numpy as np
import pytest

import pixprep as pp
from pixprep.importers import import_pipeline
from pixprep.importers.verify import frozen, originals, verify, verify_training
from pixprep.importers.verify.libraries import find
from pixprep.importers.verify.originals import Originals
from pixprep.pipeline import ops
from pixprep.pipeline.presets import IMAGENET_MEAN, IMAGENET_STD
from pixprep.plan.profiles import PROFILES
from support.images import PHOTOS, noise

PHOTO_FILES = [PHOTOS / "china.jpg", PHOTOS / "flower.jpg"]


def need(like):
    """Skip the test with a message if the library is not installed."""
    library = find(PROFILES[like].original.key)
    if not library.version:
        pytest.skip(f"NO {library.title.upper()}: {library.problem}: {library.remedy}")


def pipeline(like, **fields):
    return pp.Pipeline(
        [
            pp.decode(idct="fast" if like == "tensorflow" else "accurate"),
            pp.resize(200, like=like, **fields),
            pp.center_crop(192, rounding="half_away" if like == "dali" else "half_even"),
            pp.normalize(
                mean=IMAGENET_MEAN,
                std=IMAGENET_STD,
                arithmetic={"dali": "fused_multiply", "torch": "multiply", "opencv": "fused"}.get(like, "divide"),
            ),
            pp.tensor(),
        ]
    )


UNVERIFIED = {"scipy", "torch_float", "torch_corners", "slanext"}
"""Profiles that cannot be verified here: ``normalize`` may precede a float resize; SLANeXt resizes the longer side."""


@pytest.mark.parametrize("like", sorted(PROFILES.keys() - UNVERIFIED))
def test_each_profile_equals_its_own_library_end_to_end(like):
    need(like)
    certificate = verify(pipeline(like), images=PHOTO_FILES, frozen=False)
    assert certificate.is_exact, certificate
    assert [row.stage for row in certificate.rows] == ["decode", "resize", "tensor", "end to end"]
    assert not any(row.frozen for row in certificate.rows)
    assert {row.images for row in certificate.rows} == {28}


@pytest.mark.parametrize("like", ["pillow", "torchvision"])
def test_colours_equal_their_own_library_end_to_end(like):
    need(like)
    colours = [
        pp.brightness(factor=1.2, like=like),
        pp.hue(factor=-0.1, like=like),
        pp.contrast(factor=0.8, like=like),
        pp.saturation(factor=1.5, like=like),
        pp.gamma(gamma=1.3, like=like),
    ]
    chain = pipeline(like).ops
    certificate = verify(pp.Pipeline([*chain[:2], *colours, *chain[2:]]), images=PHOTO_FILES, frozen=False)
    assert certificate.is_exact, certificate
    assert [row.stage for row in certificate.rows] == ["decode", "resize", "levels", "tensor", "end to end"]


@pytest.mark.parametrize("op", frozen.every(), ids=frozen.key)
def test_the_frozen_results_equal_the_installed_library(op):
    name, outputs = frozen.outputs(op)
    is_decoding = isinstance(op, ops.Decode)
    originals = Originals()
    makes = (
        originals.decoder if is_decoding else originals.resizer if isinstance(op, ops.Resize) else originals.colourist
    )
    for case, expected in zip(frozen.cases(op), outputs, strict=True):
        original = makes(case.op)
        if str(original) != name:
            pytest.skip(f"FROZEN WITH {name}, and here is {original}: {original.library.problem}")
        pixels = Originals().decoder(ops.Decode()).run(case.encoded)
        assert np.array_equal(original.run(case.encoded if is_decoding else pixels), expected), case.name


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("timm:resnet50.a1_in1k", {}),
        ("timm:tf_efficientnet_lite0.in1k", {}),
        ("torchvision:ResNet50_Weights.IMAGENET1K_V2", {}),
        ("torchvision:ResNet50_Weights.IMAGENET1K_V2", {"input": "tensor"}),
        ("keras:resnet50", {}),
        ("keras:mobilenet_v2", {"loader": "image_dataset"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value.values()),
)
def test_an_imported_pipeline_is_imported_again_by_its_name_and_options(source, options):
    library, _, name = source.partition(":")
    pytest.importorskip(library, reason=f"NO {library.upper()}: pip install {library}", exc_type=Exception)
    certificate = verify(import_pipeline(source, **options), images=PHOTO_FILES)
    assert certificate.is_exact, certificate
    assert (certificate.source.partition(",")[0], certificate.differences, certificate.uncompared) == (name, (), "")
    assert (certificate.rows[-1].stage, certificate.rows[-1].images) == ("end to end", 28)


def test_the_crop_of_the_originals_equals_torchvision_at_every_offset():
    need("torch")
    functional = importlib.import_module("torchvision.transforms.v2.functional")
    torch = importlib.import_module("torch")
    for height in range(1, 24):
        for width in (1, 8, 13, 30):
            pixels = noise(height, width)
            for window in ((8, 8), (9, 6), (1, 12)):
                planes = torch.from_numpy(pixels.transpose(2, 0, 1).copy())
                expected = functional.center_crop(planes, list(window)).numpy().transpose(1, 2, 0)
                op = ops.CenterCrop(*window)
                assert np.array_equal(originals.geometry([op], np.asarray, pixels), expected), (height, width, window)


@pytest.mark.parametrize("side", ["shorter", "longer"])
def test_the_size_rule_of_the_originals_equals_torchvision(side):
    need("torch")
    transforms = importlib.import_module("torchvision.transforms.functional")
    rule = transforms._compute_resized_output_size
    for height in (1, 3, 37, 256, 427):
        for width in (1, 2, 50, 255, 640):
            op = ops.Resize(size=64, side=side)
            size = originals.size_of(op, np.zeros((height, width, 3), np.uint8))
            arguments = {"size": [64]} if side == "shorter" else {"size": None, "max_size": 64, "allow_size_none": True}
            assert size == tuple(max(1, side) for side in rule((height, width), **arguments)), (height, width)


CHAINS = {
    "colours": [
        *(pp.random_resized_crop(40, 44), pp.random_flip(), pp.color_jitter(0.4, 0.4, 0.4, 0.1, p=0.8)),
        *(pp.random_gray(p=0.3), pp.random_posterize(bits=3), pp.random_solarize(threshold=99), pp.random_invert()),
    ],
    "places": [
        *(pp.resize(48), pp.random_rotate(30, filter="bilinear", expand=True), pp.center_crop(48)),
        pp.random_affine(10, translate=(0.1, 0.2), scale=(0.8, 1.2), shear=9, filter="bilinear", fill=(1, 2, 3)),
        *(pp.random_crop(33, 40), pp.random_flip("vertical", 0.7), pp.random_sharpness(2)),
    ],
    "policies": [
        *(pp.random_resized_crop(40), pp.rand_augment(3, 11, fill=7), pp.trivial_augment()),
        pp.auto_augment("svhn", fill=(1, 2, 3)),
    ],
    "timm's policies": [
        pp.random_resized_crop(40),
        pp.timm_rand_augment(6, 12, 3.0, 30, 1.0, increasing=True),
        pp.auto_augment("v0", 0.5, filter="bilinear", fill=7),
    ],
    "tilted": [
        *(pp.resize(48), pp.random_perspective(0.4, 0.9, fill=(9, 8, 7)), pp.random_crop(40)),
        pp.random_photometric_distort(p=0.8),
    ],
    "a blur": [pp.random_resized_crop(40), pp.random_autocontrast(), pp.random_gaussian_blur(5, p=0.7)],
}


@pytest.mark.parametrize(
    ("chain", "like"),
    [(chain, like) for chain in CHAINS for like in ("pillow", "torchvision")[: 1 + (chain != "timm's policies")]],
)
def test_training_ops_are_certified_sample_by_sample(chain, like):
    need("torch")
    those = [ops.changed(op, like=like) if getattr(op, "like", "") == "pillow" else op for op in CHAINS[chain]]
    end = [pp.normalize(), pp.random_erasing(value="random"), pp.tensor(only="training")]
    certificate = verify_training(pp.Pipeline([pp.decode(), *those, *end]), seed=3, images=PHOTO_FILES)
    assert certificate.is_exact, certificate
    assert ([row.stage for row in certificate.rows if row.tolerance.largest] != []) == (chain == "a blur")
    (draw,) = (row for row in certificate.rows if row.stage == "draw")
    assert (draw.max, draw.images) == (0, len(PHOTO_FILES) + 26 - len(certificate.refused))
    assert len(certificate.refused) < 10
    assert "levels" in [row.stage for row in certificate.rows]
