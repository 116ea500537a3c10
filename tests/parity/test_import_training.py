"""Tests imported training transforms of torchvision and timm against the originals.

``test_import_torchvision`` compares single transforms of torchvision. The distributions of random parameters are
compared by ``test_augment``, ``test_random_geometry`` and the parity tests of each op. torchvision samples float32
numbers, so most float64 values cannot occur.
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
from torchvision.transforms import v2

from parity.torchvision_images import as_theirs
from parity.torchvision_replay import replayed

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
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


def test_a_fill_for_several_types_of_tensors_is_rejected():
    chain = v2.Compose([v2.ToImage(), v2.RandomZoomOut({tv_tensors.Image: 0, torch.Tensor: 1})])
    assert "'torch.Tensor'>: 1} must be an integer from 0 to 255" in refusal(from_torchvision, training=chain)


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
        image = as_theirs(pixels[index % 4], "pillow" if given == "pil" else "torchvision")
        return [each.numpy() for each in replayed(preset.transforms, words)(image, tv_tensors.Mask(masks[index % 4]))]

    for index, placed in enumerate(batch.placed):
        image, mask = expected(index, placed.draws)
        assert np.array_equal(batch["tensor"][index], image)
        assert np.array_equal(annotated(side.plan, placed, samples[index])["mask"], mask)
        other, _ = expected(index, batch.placed[index - 4].draws)
        assert not np.array_equal(batch["tensor"][index], other)
        seen.add(placed.draws["random_resize#0"]["size"])
    assert {min(seen), max(seen)} == {32, 127}


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
