"""Tests that imported torchvision transforms equal torchvision to the last bit, on PIL images and on uint8 tensors.

The sources are the lines of `tests/importers/imports.txt` and `refusals.txt`, which this module reads with torchvision
itself. Where a transform has random parameters, torchvision's own transform gets those that pixprep has recorded.
"""

from collections import defaultdict
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest

import pixprep as pp
from pixprep import PipelineError
from pixprep.engine.annotations import annotated
from pixprep.importers.torchvision import from_torchvision
from support.compare import EQUAL, Tolerance, assert_close
from support.images import jpegs, noise, others, png, read, scene, with_exif
from support.importing import ours, photos, refusal
from support.refusals import PUBLIC, rows
from support.refusals import refusal as refused
from support.torchvision_objects import Reader

if find_spec("torchvision") is None:
    pytest.skip("NO TORCHVISION: its importer was not compared", allow_module_level=True)

import torch
import torchvision
import torchvision.transforms as v1
from torchvision import models, tv_tensors
from torchvision.transforms import AutoAugmentPolicy, InterpolationMode, v2

from parity.torchvision_images import as_theirs, some_boxes
from parity.torchvision_replay import replayed

if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("NO AVX2: PyTorch rounds otherwise here", allow_module_level=True)
torch.set_num_threads(1)  # two threads would wait for each other on a busy machine: 20 times slower

INPUTS = ("pil", "tensor")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BLURRED = Tolerance(1, 0.999, "PyTorch's convolution adds in a different order")
"""Tolerance for pixel values from 0 to 255 after a blur."""


@cache
def all_sizes():
    """Return photos and noise in sizes for which the filter extends beyond the image, has many taps, or has few output
    positions.
    """
    sizes = [(97, 61), (41, 300), (224, 224), (1, 7), (600, 33)]
    return [*photos(), *(png(noise(height, width)) for height, width in sizes)]


def theirs(transforms, images, given):
    images = [read(image).convert("RGB") for image in images]
    if given == "tensor":
        images = [torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in images]
    return [np.asarray(transforms(image)) for image in images]


def assert_exact(transforms, given, images, tolerance=EQUAL):
    pipeline = from_torchvision(transforms, input=given)
    for actual, expected in zip(ours(pipeline, images), theirs(transforms, images, given), strict=True):
        assert actual.dtype == expected.dtype
        assert_close(actual, expected, tolerance if expected.dtype == np.uint8 else scaled(tolerance))
    return pipeline


@cache
def all_weights():
    """Return the entries of all enumerations of weights, by name."""
    found = {}
    for model in models.list_models():
        for weights in models.get_model_weights(model):
            found[str(weights)] = weights
    return found


@pytest.mark.parametrize("given", INPUTS)
def test_all_weights_are_exact_or_rejected_by_their_preset(given, capsys):
    groups, refused = defaultdict(list), {}
    for name, weights in all_weights().items():
        try:
            pipeline = from_torchvision(name, input=given)
        except PipelineError as error:
            refused[name] = str(error).split()[1].rstrip(":")
            continue
        assert (pipeline.origin.library, pipeline.origin.name) == ("torchvision", name)
        groups[repr(vars(weights.transforms())), pipeline.ops].append(name)
    for names in groups.values():
        assert_exact(all_weights()[names[0]].transforms(), given, photos())
    exact = sum(map(len, groups.values()))
    with capsys.disabled():
        print(
            f"\ntorchvision {torchvision.__version__}, {given}: {exact} of {len(all_weights())} weights are exact "
            f"({exact / len(all_weights()):.1%}; {len(groups)} distinct), {len(refused)} are refused: "
            f"{sorted(set(refused.values()))}"
        )
    classifiers = [w for w in all_weights().values() if type(w.transforms()).__name__ == "ImageClassification"]
    assert exact == len(classifiers) > 100
    assert set(refused.values()) == {"ObjectDetection", "OpticalFlow", "SemanticSegmentation", "VideoClassification"}


MODES = {mode.value: mode for mode in InterpolationMode}


def classic(*, size=64, crop=56, mode="bilinear", antialias=True, mean=MEAN, std=STD):
    """Return common transforms for PIL images."""
    return v1.Compose(
        [v1.Resize(size, MODES[mode], antialias=antialias), v1.CenterCrop(crop), v1.ToTensor(), v1.Normalize(mean, std)]
    )


def modern(*, size=64, crop=56, mode="bilinear", antialias=True):
    return v2.Compose(
        [
            v2.Resize(size, MODES[mode], antialias=antialias),
            v2.CenterCrop(crop),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )


@pytest.mark.parametrize("size", [64, [64], (50, 71), 300], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_v1_on_pil_images(mode, size):
    pipeline = assert_exact(classic(size=size, mode=mode), "pil", all_sizes())
    assert pipeline.origin.profile == "pillow"


@pytest.mark.parametrize("size", [64, (50, 71), 300], ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_v1_on_tensors(mode, size):
    """The arithmetic is float32, as described in ``plan.profiles.torch``."""
    transforms = v1.Compose([v1.Resize(size, MODES[mode]), v1.CenterCrop(56), v1.ConvertImageDtype(torch.float32)])
    pipeline = assert_exact(transforms, "tensor", all_sizes())
    assert pipeline.origin.profile == ("torchvision" if mode.startswith("nearest") else "torch")


@pytest.mark.parametrize("antialias", [True, False, None])
@pytest.mark.parametrize("size", [64, (50, 71), 300], ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "lanczos"])
def test_v2_on_tensors(mode, size, antialias):
    transforms = modern(mode=mode, size=size, antialias=antialias)
    if mode == "lanczos" and not antialias:  # torchvision does not support this case either
        assert "lanczos" in refusal(from_torchvision, transforms, input="tensor")
        return
    assert assert_exact(transforms, "tensor", all_sizes()).origin.profile == "torchvision"


NAMES = Reader(
    v1,
    v2,
    **{name: getattr(torch, name) for name in ("float16", "float32", "uint8")},
    **{mode.name: mode for mode in InterpolationMode},
    Mask=tv_tensors.Mask,
    SVHN=AutoAugmentPolicy.SVHN,
).names
KINDS = ("served", "trained", "always")
LINES = [line for line in rows("importers", "imports.txt") if line[0].partition("(")[0] in KINDS]
REFUSALS = [line for line in rows("importers", "refusals.txt") if "v1." in line[0] or "v2." in line[0]]


def of_kind(kind):
    """Parametrize a test with the sources of the table for one kind of comparison."""
    sources = [source for source, _ in LINES if source.startswith(f"{kind}(")]
    return pytest.mark.parametrize(
        "source", [source for source in sources if kind != "served" or "Boxes" not in source]
    )


def parts_of(source, **modules):
    """Return the transforms of a line of the table, and the kind of input that the line names or None."""
    fixed = v2.Resize((90, 110))
    read = dict.fromkeys(KINDS, lambda *parts, input=None: (parts, input))  # noqa: A006 - as in from_torchvision
    return eval(source, NAMES | {"FIXED": fixed} | read | modules)  # noqa: S307 - lines of our own


@pytest.mark.parametrize(("source", "ops"), LINES)
def test_torchvisions_own_transforms_become_the_ops_of_the_table(source, ops):
    assert eval(source, NAMES) == eval(ops, PUBLIC)  # noqa: S307 - lines of our own


@pytest.mark.parametrize(("source", "words"), REFUSALS)
def test_torchvisions_own_transforms_are_rejected_with_the_message_of_the_table(source, words):
    assert refused(source, **NAMES) == words


@of_kind("served")
def test_transforms_for_serving_are_exact(source):
    parts, given = parts_of(source)
    blurred = BLURRED if "GaussianBlur" in source else EQUAL
    pipeline = assert_exact(v2.Compose(list(parts)), given or "pil", all_sizes(), blurred)
    assert pipeline.origin.profile == next(op.like for op in pipeline.ops if isinstance(op, pp.resize))


ENDS = {
    "v1 on PIL images": ("pil", v1, [v1.ToTensor()]),
    "v2 on PIL images": ("pil", v2, [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
    "v2 on tensors": ("tensor", v2, [v2.ToDtype(torch.float32, scale=True)]),
}


@pytest.mark.parametrize("kind", ENDS)
@of_kind("always")
def test_a_transform_with_a_single_outcome_gives_its_own_pixels(source, kind):
    given, module, end = ENDS[kind]
    parts, _ = parts_of(source, m=module)
    transform = module.Compose([module.Resize((90, 110)), *parts, *end, module.Normalize(MEAN, STD)])
    images = [*photos(), *(png(noise(*size)) for size in [(97, 61), (41, 130), (64, 64)])]
    blurred = BLURRED if "GaussianBlur" in source else EQUAL
    tensors = trained_on(from_torchvision(training=transform, input=given), images)["tensor"]
    for actual, expected in zip(tensors, theirs(transform, images, given), strict=True):
        assert_close(actual, expected, scaled(blurred))


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("ratio", [(1.0, 1.0), (2.0, 2.0), (0.375, 0.375)])
def test_the_fallback_of_a_resized_crop_is_equal(kind, ratio):
    """The crop has the area of the whole image, but an aspect ratio that no test image has. It never fits, so the
    transform crops the centre.
    """
    given, module, end = ENDS[kind]
    transform = module.Compose([module.RandomResizedCrop((48, 56), (1.0, 1.0), ratio), *end])
    encoded = [png(noise(97, 61)), png(noise(41, 130))]
    tensors = trained_on(from_torchvision(training=transform, input=given), encoded)["tensor"]
    assert all(map(np.array_equal, tensors, theirs(transform, encoded, given)))


def scaled(tolerance):
    """Return a tolerance of pixel values for normalized values."""
    return Tolerance(tolerance.largest * 1.01 / 255 / min(STD), tolerance.exact, tolerance.why)


DRAWS = 100
SIZES = ((60, 80), (97, 51), (33, 120), (128, 128), (20, 31))
PHOTOS = [scene(*size) for size in SIZES]
WARPS = ("RandomRotation", "RandomAffine", "RandomPerspective")
MARGINS = (*WARPS, "ElasticTransform", "padding=(")
IMAGES_ONLY = ("RandomErasing", "RandAugment", "TrivialAugmentWide", "AutoAugment", "AugMix")
"""Transforms that torchvision does not apply to boxes and masks."""
WITHOUT_BOXES = ("ElasticTransform", "padding_mode", "expand=True")
"""Transforms that pixprep does not apply to boxes, margins that would repeat objects, and rotations in which
torchvision shifts boxes and pixels differently: see test_warp.py.
"""
IGNORED = 250
"""Label that the table's ``FILL`` gives to the margins of masks."""


def placed_samples(side, samples):
    drawn = side.plan.draw(seed=3, epoch=5, indices=range(len(samples)))
    return [side.plan.placing(numbers, sample) for numbers, sample in zip(drawn, samples, strict=True)]


def trained_on(pipeline, images, samples=None):
    """Return the batch of images in training."""
    side = pipeline.for_training()
    with pp.Engine(side, threads=1) as engine:
        return engine.run_batch(images, places=placed_samples(side, samples or [{}] * len(images)))


def theirs_inputs(source):
    """Return the kinds of input for which a source of training is compared."""
    _, named = parts_of(source)
    return (named,) if named else INPUTS


DRAWN = [
    (source, given)
    for source, _ in LINES
    if source.startswith("trained(") and "v1." not in source
    for given in theirs_inputs(source)
]
drawn_sources = pytest.mark.parametrize(("source", "given"), DRAWN)


@drawn_sources
def test_pixels_and_boxes_equal_torchvision_with_the_same_parameters(source, given):
    parts, _ = parts_of(source)
    has_boxes = not any(name in source for name in (*IMAGES_ONLY, *WITHOUT_BOXES))
    ends = [] if "Sanitize" in source or not has_boxes else [v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes()]
    chain = v2.Compose([*parts, v2.ToImage(), *ends])
    pipeline = from_torchvision(training=chain, input=given)
    samples = [
        {"boxes": (boxes := some_boxes(index, *SIZES[index % 5])), "labels": np.arange(len(boxes))} if has_boxes else {}
        for index in range(DRAWS)
    ]
    batch = trained_on(pipeline, [png(PHOTOS[index % 5]) for index in range(DRAWS)], samples)

    def expected(index, placed):
        image = as_theirs(PHOTOS[index % 5], "pillow" if given == "pil" else "torchvision")
        sample = {"image": image}
        if has_boxes:
            sample["boxes"] = tv_tensors.BoundingBoxes(
                samples[index]["boxes"].copy(), format="XYXY", canvas_size=v2.functional.get_size(image)
            )
            sample["labels"] = torch.arange(len(sample["boxes"]))
        return replayed(chain, placed.draws, placed.kept)(sample)

    different = 0
    assert batch.errors == [None] * DRAWS
    for index, placed in enumerate(batch.placed):
        result = expected(index, placed)
        assert_close(batch["tensor"][index], result["image"].numpy(), BLURRED if "Blur" in source else EQUAL)
        if has_boxes:
            boxes = annotated(pipeline.for_training().plan, placed, samples[index])
            assert boxes["labels"].tolist() == result["labels"].tolist()
            assert_close(boxes["boxes"], result["boxes"].numpy(), NEAR)
        if index < 25:  # the parameters of another sample give other pixels
            other = expected(index, batch.placed[index + 5])["image"].numpy()
            different += not np.array_equal(batch["tensor"][index], other)
    is_fixed = len({str(placed.draws) for placed in batch.placed}) == 1 or "Grayscale(1)" in source
    assert different or is_fixed


NEAR = Tolerance(1e-3, 0, "torchvision adds and multiplies the coordinates of boxes in float32")


@pytest.mark.parametrize(
    ("source", "given"),
    [
        (source, given)
        for source, given in DRAWN
        if not any(name in source for name in (*IMAGES_ONLY, "Sanitize"))
        # torchvision does not warp masks in the way in which Pillow warps images
        and not (given == "pil" and any(name in source for name in WARPS))
        # without a fill for masks, torchvision fills their margins with the first class
        and ("Mask" in source or "FILL" in source or not any(name in source for name in MARGINS))
    ],
)
def test_masks_equal_torchvision_with_the_same_parameters(source, given):
    parts, _ = parts_of(source)
    imported = from_torchvision(training=v2.Compose([*parts, v2.ToImage()]), input=given)
    objects = [] if "padding_mode" in source else [pp.masks()]  # such margins would repeat objects
    masks = [pp.mask(ignore=IGNORED), *objects]
    side = pp.Pipeline([*imported.ops[:-1], *masks, imported.ops[-1]]).for_training()
    generator = np.random.default_rng(3)
    labels = [generator.integers(0, 200, size, np.uint8) for size in SIZES]
    samples = []
    for index in range(DRAWS):
        mask = labels[index % 5]
        pair = np.stack([mask, mask[::-1]]).astype(np.int32)
        samples.append({"boxes": some_boxes(1, *mask.shape), "mask": mask, "masks": pair})
    for index, (place, sample) in enumerate(zip(placed_samples(side, samples), samples, strict=True)):
        placed = place(*SIZES[index % 5])
        found = annotated(side.plan, placed, sample)
        both = torch.from_numpy(np.stack([sample["mask"], sample["mask"][::-1]]))
        image = as_theirs(PHOTOS[index % 5], "torchvision")
        theirs_ = {"image": image, "masks": tv_tensors.Mask(both)}
        if "IoU" in source:
            theirs_["boxes"] = tv_tensors.BoundingBoxes(sample["boxes"], format="XYXY", canvas_size=SIZES[index % 5])
        expected = replayed(v2.Compose(list(parts)), placed.draws, placed.kept)(theirs_)["masks"].numpy()
        assert np.array_equal(found["mask"], expected[0])
        expected[expected == IGNORED] = 0
        assert not objects or np.array_equal(found["masks"], expected)


@pytest.mark.parametrize("given", INPUTS)
def test_images_are_decoded_like_pil(given):
    """As with PIL, the EXIF orientation is not applied, and alpha is removed."""
    images = [with_exif(6), others()["png alpha"], others()["png palette"], jpegs()["gray"], jpegs()["cmyk"]]
    assert_exact(models.ResNet18_Weights.DEFAULT.transforms(), given, images)


def test_the_input_kind_matters():
    weights = models.ResNet50_Weights.IMAGENET1K_V2.transforms()
    expected = theirs(weights, photos(), "tensor")
    for actual, expect in zip(ours(from_torchvision(weights, input="pil"), photos()), expected, strict=True):
        with pytest.raises(AssertionError, match="worst at"):
            assert_close(actual, expect)


def test_a_subclass_is_rejected_because_it_may_behave_differently():
    class Shrink(v1.Resize):
        pass

    Shrink.__name__ = "Resize"
    text = refusal(from_torchvision, v1.Compose([Shrink(64), v1.CenterCrop(56), v1.ToTensor()]))
    assert text.startswith("transforms[0] Resize: this class is defined in ")


@pytest.mark.parametrize("name", ["ResNet50_Weights.V9", "NoSuch_Weights.DEFAULT", "resnet50", "", "a.b.c"])
def test_unknown_weights_are_rejected(name):
    assert refusal(from_torchvision, name).startswith('torchvision has no weights "')
