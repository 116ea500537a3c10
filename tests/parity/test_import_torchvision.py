"""Tests that imported torchvision transforms equal torchvision to the last bit, on PIL images and on uint8 tensors."""

from collections import defaultdict
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest

from pixprep import PipelineError
from pixprep.importers.torchvision import from_torchvision
from pixprep.pipeline.ops import Resize
from support.compare import assert_close
from support.images import jpegs, noise, others, png, read, with_exif
from support.importing import ours, photos, refusal

if find_spec("torchvision") is None:
    pytest.skip("NO TORCHVISION: its importer was not compared", allow_module_level=True)

import torch
import torchvision
from torchvision import models
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms import transforms as v1

INPUTS = ("pil", "tensor")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


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


def assert_exact(transforms, given, images):
    pipeline = from_torchvision(transforms, input=given)
    for actual, expected in zip(ours(pipeline, images), theirs(transforms, images, given), strict=True):
        assert actual.dtype == expected.dtype
        assert_close(actual, expected)
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


FLOAT = v2.ToDtype(torch.float32, scale=True)
CHAINS = {
    "v2 on PIL images": ("pil", [v2.Resize(64), v2.CenterCrop(56), v2.ToImage(), FLOAT, v2.Normalize(MEAN, STD)]),
    "one number for every channel": ("pil", [v1.Resize((9, 9)), v1.ToTensor(), v1.Normalize([0.5], [0.25])]),
    "an image, then a resize": ("pil", [v2.ToImage(), v2.Resize(64), v2.CenterCrop(56), FLOAT]),
    "PILToTensor, then a resize": ("pil", [v2.PILToTensor(), v2.Resize(64), v2.CenterCrop(56), FLOAT]),
    "v1 PILToTensor, then a v2 resize": ("pil", [v1.PILToTensor(), v2.Resize(64), v2.CenterCrop(56), FLOAT]),
    "a bound, v1": ("pil", [v1.Resize(64, max_size=99), v1.ToTensor()]),
    "a bound, v2": ("tensor", [v2.Resize(64, max_size=71), FLOAT]),
    "the longer side": ("tensor", [v2.Resize(None, max_size=73), FLOAT]),
    "no scale": ("tensor", [v2.Resize((40, 50)), v2.ToDtype(torch.float32), v2.Normalize((120.0,) * 3, (60.0,) * 3)]),
    "no normalize": ("pil", [v1.Resize((40, 50)), v1.ToTensor()]),
    "two normalizes": ("pil", [v1.Resize(64), v1.CenterCrop(56), v1.ToTensor(), *[v1.Normalize(MEAN, STD)] * 2]),
    "a crop after ToTensor": ("pil", [v1.Resize(64), v1.ToTensor(), v1.CenterCrop((56, 51)), v1.Normalize(MEAN, STD)]),
    "a crop that pads after ToTensor": ("pil", [v1.Resize(64), v1.ToTensor(), v1.CenterCrop(99)]),
    "a crop after normalize": ("pil", [v1.Resize(64), v1.ToTensor(), v1.Normalize(MEAN, STD), v1.CenterCrop(56)]),
    "levels": ("tensor", [v2.Resize(64), v2.CenterCrop(56)]),
    "levels of a PIL image": ("pil", [v1.Resize(64), v1.CenterCrop(56), v1.PILToTensor()]),
    "uint8 to uint8": ("tensor", [v2.Resize(64), v2.CenterCrop(56), v2.ToDtype(torch.uint8, scale=True)]),
    "padding": ("pil", [v1.Resize((40, 50)), v1.Pad(3, fill=7), v1.ToTensor()]),
    "padding of one colour": ("pil", [v1.Resize((40, 50)), v1.Pad((3, 5), fill=(1, 2, 3)), v1.ToTensor()]),
    **{
        f"padding, {mode}": ("pil", [v1.Resize((40, 50)), v1.Pad((3, 5), padding_mode=mode), v1.ToTensor()])
        for mode in ("edge", "reflect", "symmetric")
    },
    "odd padding": ("tensor", [v2.Resize((40, 50)), v2.Pad((3, 5, 4, 6), fill=9), FLOAT]),
    "padding on one side": ("pil", [v1.Resize((40, 50)), v1.Pad((0, 0, 9, 1)), v1.ToTensor()]),
    "padding after ToTensor": ("pil", [v1.Resize((40, 50)), v1.ToTensor(), v1.Pad(3), v1.Normalize(MEAN, STD)]),
    "one channel": ("pil", [v1.Resize((40, 50)), v1.Grayscale(), v1.ToTensor(), v1.Normalize(0.5, 0.25)]),
    "one channel of the whole photo": ("pil", [v1.Grayscale(1), v1.Resize(64, 3), v1.CenterCrop(56), v1.ToTensor()]),
    "v2 one channel of a tensor": ("tensor", [v2.Grayscale(1), v2.Resize(64), v2.CenterCrop(60), v2.Pad(3, 9), FLOAT]),
    "v2 one channel is gray already": ("tensor", [v2.Resize((40, 50)), v2.Grayscale(), v2.Grayscale(), FLOAT]),
    "v2 one channel, and three again": ("tensor", [v2.Resize((40, 50)), v2.Grayscale(), v2.RGB(), FLOAT]),
    "v2 one channel blurred": ("pil", [v2.Resize((40, 50)), v2.Grayscale(1), v2.GaussianBlur(5, 1.1), v1.ToTensor()]),
    "a Compose in a Compose": ("pil", [v1.Compose([v1.Resize(64), v1.CenterCrop(56)]), v1.ToTensor()]),
    "a Sequential": ("tensor", [torch.nn.Sequential(v2.Resize(64), torch.nn.Identity(), v2.CenterCrop(56)), FLOAT]),
    "no-ops": ("pil", [v2.Identity(), v2.RGB(), v1.Resize((9, 9)), v2.ToImage(), FLOAT, v2.ToPureTensor()]),
    "v2 ConvertImageDtype": ("tensor", [v2.Resize(64), v2.CenterCrop(56), v2.ConvertImageDtype(torch.float32)]),
    "numbers for Pillow's filters": ("pil", [v1.Resize(64, 3), v1.CenterCrop(56), v1.ToTensor()]),
    "a number for a v2 filter": ("tensor", [v2.Resize(64, 3), v2.CenterCrop(56), FLOAT]),
    "a mean in a tensor": ("pil", [v1.Resize((9, 9)), v1.ToTensor(), v1.Normalize(*map(torch.tensor, (MEAN, STD)))]),
    "ToTensor of v2": ("pil", [v2.Resize(64), v2.CenterCrop(56), v1.ToTensor(), v2.Normalize(MEAN, STD)]),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_of_transforms(chain):
    given, transforms = CHAINS[chain]
    compose = v2.Compose if chain.startswith("v2") else v1.Compose
    pipeline = assert_exact(compose(transforms), given, all_sizes())
    assert pipeline.origin.profile == next(op.like for op in pipeline.ops if isinstance(op, Resize))


@pytest.mark.parametrize("given", INPUTS)
def test_images_are_decoded_like_pil(given):
    """As with PIL, the EXIF orientation is not applied, and alpha is removed."""
    images = [with_exif(6), others()["png alpha"], others()["png palette"], jpegs()["gray"], jpegs()["cmyk"]]
    assert_exact(models.ResNet18_Weights.DEFAULT.transforms(), given, images)


@pytest.mark.parametrize(
    ("given", "transforms", "neighbour"),
    [
        ("pil", classic(), classic(size=65)),
        ("pil", classic(), classic(crop=58)),
        ("pil", classic(), classic(mode="bicubic")),
        ("pil", classic(), classic(mean=(0.485, 0.456, 0.4061))),
        ("pil", classic(), classic(std=(0.229, 0.224, 0.2251))),
        ("tensor", modern(), modern(antialias=False)),
        ("tensor", modern(), v1.Compose([classic().transforms[0], *modern().transforms[1:]])),
        (
            "tensor",
            modern(),
            v1.Compose([*modern().transforms[:2], v1.ConvertImageDtype(torch.float32), v1.Normalize(MEAN, STD)]),
        ),
    ],
)
def test_a_different_transform_gives_a_different_tensor(given, transforms, neighbour):
    pipeline = from_torchvision(transforms, input=given)
    for actual, expected in zip(ours(pipeline, photos()), theirs(neighbour, photos(), given), strict=True):
        with pytest.raises(AssertionError, match=r"worst at|shape"):
            assert_close(actual, expected)


def test_the_input_kind_matters():
    weights = models.ResNet50_Weights.IMAGENET1K_V2.transforms()
    expected = theirs(weights, photos(), "tensor")
    for actual, expect in zip(ours(from_torchvision(weights, input="pil"), photos()), expected, strict=True):
        with pytest.raises(AssertionError, match="worst at"):
            assert_close(actual, expect)


COMPOSE = [v1.Resize(64), v1.CenterCrop(56)]
REFUSED = {
    "transforms[0] RandomResizedCrop: is random, which is not supported for serving": [v1.RandomResizedCrop(224)],
    "transforms[1] RandomHorizontalFlip: is random, which": [v1.Resize(9), v2.RandomHorizontalFlip(0)],
    "transforms[0] RandomApply: is random, which is not supported for serving": [v1.RandomApply([v1.Resize(9)])],
    "transforms[0] RandomPerspective: is random, which is not supported for serving": [v1.RandomPerspective()],
    'transforms[0] Grayscale: "num_output_channels": 2 must be one of 1 (1), 3': [v1.Grayscale(2)],
    'ops[4] "tensor": "channels": 1 requires three equal channels': [
        v2.Resize((9, 9)),
        v2.Grayscale(1),
        v2.Pad(2, fill=(1, 2, 3)),
        v2.PILToTensor(),
    ],
    "transforms[0] FiveCrop: this transform is not supported": [v1.FiveCrop(9)],
    "transforms[0] Lambda: this transform is not supported": [v1.Lambda(abs)],
    "transforms[2] Normalize: expects float32 values, but its input is a PIL image": [
        *COMPOSE,
        v1.Normalize(MEAN, STD),
    ],
    "transforms[3] Normalize: expects float32 values, but its input is a uint8 tensor": [
        *COMPOSE,
        v1.PILToTensor(),
        v1.Normalize(MEAN, STD),
    ],
    "transforms[1] Resize: is not supported for float32 values: move it before ToTensor or": [
        v1.ToTensor(),
        v1.Resize(64),
    ],
    "transforms[1] ToTensor: expects a PIL image, but its input is a uint8 tensor": [v2.ToImage(), v1.ToTensor()],
    "transforms[1] PILToTensor: expects a PIL image, but its input is float32 values": [
        v1.ToTensor(),
        v1.PILToTensor(),
    ],
    "transforms[0] ConvertImageDtype: has no effect on a PIL image: add": [v2.ConvertImageDtype(torch.float32)],
    'transforms[1] ToDtype: "dtype": torch.float16 must be torch.float32': [v2.ToImage(), v2.ToDtype(torch.float16)],
    'transforms[1] Resize: "antialias": False is not supported for a uint8 tensor in v1': [
        v2.ToImage(),
        v1.Resize(64, antialias=False),
    ],
    'transforms[1] Resize: resize: "filter": "box" with "antialias": true is not supported by': [
        v2.ToImage(),
        v2.Resize(64, InterpolationMode.BOX),
    ],
    'transforms[0] Pad: "padding": 3 is not supported for images of': [v1.Pad(3)],
    'transforms[1] Pad: "padding": (9, 0, 0, 0) must not be negative, and must be equal on opposite sides or 0 on '
    "the left and the top": [
        v1.Resize((9, 9)),
        v1.Pad((9, 0, 0, 0)),
    ],
    'transforms[2] Pad: "padding_mode": \'reflect\' must be "constant" after ToTensor': [
        v1.Resize((9, 9)),
        v1.ToTensor(),
        v1.Pad(3, padding_mode="reflect"),
    ],
    'transforms[2] Pad: "fill": 0.5 must be an integer from 0 to 255': [
        v1.Resize((9, 9)),
        v1.ToTensor(),
        v1.Pad(3, fill=0.5),
    ],
    "transforms: the last transform returns a PIL image": COMPOSE,
    'transforms: ops[2] "tensor": the size differs from image to image': [v1.Resize(64), v1.PILToTensor()],
    "the image is already resized": [v1.Resize(64), *COMPOSE, v1.ToTensor()],
    "must come before normalize": [v1.Resize(64), v1.ToTensor(), v1.Normalize(MEAN, STD), v1.CenterCrop(99)],
    "transforms[0] ReLU: this class is defined in torch.nn": [torch.nn.ReLU()],
}


@pytest.mark.parametrize("message", REFUSED)
def test_unsupported_transforms_are_rejected_by_name(message):
    assert message in refusal(from_torchvision, v1.Compose(REFUSED[message]))


def test_a_subclass_is_rejected_because_it_may_behave_differently():
    class Shrink(v1.Resize):
        pass

    Shrink.__name__ = "Resize"
    text = refusal(from_torchvision, v1.Compose([Shrink(64), v1.CenterCrop(56), v1.ToTensor()]))
    assert text.startswith("transforms[0] Resize: this class is defined in ")


@pytest.mark.parametrize("name", ["ResNet50_Weights.V9", "NoSuch_Weights.DEFAULT", "resnet50", "", "a.b.c"])
def test_unknown_weights_are_rejected(name):
    assert refusal(from_torchvision, name).startswith('torchvision has no weights "')
