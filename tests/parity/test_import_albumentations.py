"""Tests that imported Albumentations pipelines equal Albumentations to the last bit, on photos and noise."""

import itertools
import json
import math
import random
import re
import warnings
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import pixprep as pp
from pixprep import ImageError
from pixprep.engine.annotations import annotated
from pixprep.engine.kernels.levels import apply_steps
from pixprep.engine.kernels.neighborhoods import noise_of
from pixprep.engine.kernels.noise import noise as noise_array
from pixprep.importers.albumentations import from_albumentations
from pixprep.importers.verify import verify, verify_training
from pixprep.pipeline.ops.neighborhoods import line_kernel
from pixprep.plan.draws.philox import Numbers, quantiles
from pixprep.plan.steps.neighborhoods import Noise
from support.compare import EQUAL, Tolerance, assert_close
from support.images import noise, photo, png, read, scene
from support.importing import ours
from support.refusals import rows
from support.sources import NAMES, compose

if find_spec("albumentations") is None:
    pytest.skip("NO ALBUMENTATIONS: its importer was not compared", allow_module_level=True)

import cv2

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the import would query PyPI for a newer version
    import albumentations as A  # noqa: N812 - this is the usual name
import albumentations.augmentations.geometric.functional as G  # noqa: N812
import albumentations.augmentations.pixel.functional as P  # noqa: N812
from albumentations.augmentations.blur.functional import create_motion_kernel
from albumentations.pytorch import ToTensorV2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZES = [(97, 61), (41, 300), (224, 224), (1, 7), (160, 33), (33, 64)]


@cache
def images():
    """Return encoded images together with their RGB pixels."""
    encoded = [photo("flower"), *(png(make(*size)) for make in (noise, scene) for size in SIZES)]
    return [(image, np.asarray(read(image).convert("RGB"))) for image in encoded]


def fill(rng):
    return rng.choice([0, 114, (9, 120, 250)])


def border(rng):
    mode = rng.choice([0, 0, 0, 1, 2, 4])
    return {"border_mode": mode, "fill": fill(rng)}


def random_sampling(rng):
    return {"interpolation": rng.choice([0, 1, 1, 2, 3]), "border_mode": rng.choice([0, 0, 1, 2, 4]), "fill": fill(rng)}


def affine(rng):
    x, y = (rising(rng, 0.3, 2.5) if rng.random() < 0.8 else (1.0, 1.0) for _ in range(2))
    move = {"x": rising(rng, -0.4, 0.4), "y": rising(rng, -0.4, 0.4)} if rng.random() < 0.7 else None
    how = random_sampling(rng) | {
        "rotate": rising(rng, -200, 200),
        "translate_percent": move,
        "scale": {"x": x, "y": y},
    }
    return A.Affine(shear={"x": rising(rng, -40, 40), "y": rising(rng, -40, 40)}, **how, p=1)


def resizes(rng):
    """Return a random resize, or several transforms that together resize the image."""
    how = {"interpolation": rng.choice([0, 1, 1, 3, 4])}
    side, pair = rng.randint(5, 90), (rng.randint(5, 90), rng.randint(5, 90))
    position = rng.choice(["center", "top_left"])
    return rng.choice(
        [
            [A.Resize(*pair, **how)],
            [A.LongestMaxSize(side, **how), A.PadIfNeeded(side, side, position=position, **border(rng))],
            [
                A.LongestMaxSize(max_size_hw=pair, **how),
                A.PadIfNeeded(*pair, border_mode=0, fill=fill(rng), position=position),
            ],
            [A.SmallestMaxSize(side, **how), A.CenterCrop(rng.randint(1, side), rng.randint(1, side))],
            [A.LongestMaxSize(max_size_hw=(side, None), **how), A.CenterCrop(*pair, pad_if_needed=True)],
            [A.SmallestMaxSize(max_size_hw=(None, side)), A.CenterCrop(*pair, pad_if_needed=True, **border(rng))],
            [
                A.Resize(*pair, **how),
                A.PadIfNeeded(
                    None, None, pad_height_divisor=16, pad_width_divisor=16, position=position, **border(rng)
                ),
            ],
            [A.PadIfNeeded(*pair, position=position, **border(rng)), A.CenterCrop(1, 5)],
            [A.PadIfNeeded(70, 90, border_mode=0, fill=fill(rng)), A.Crop(1, 2, 80, 70), A.Resize(*pair, **how)],
        ]
    )


def values(rng):
    mean, std = rng.choice([(MEAN, STD), ((0.5,), (0.5,)), ([rng.random() for _ in range(3)], STD), (0.3, 0.21)])
    return rng.choice(
        [
            [A.Normalize(mean, std)],
            [A.Normalize(mean, std, max_pixel_value=rng.choice([255.0, 1.0, 254.3]))],
            [A.ToFloat(rng.choice([None, 255.0, 127.5]))],
            [A.ToFloat(255.0), A.Normalize(mean, std, max_pixel_value=1.0)],
            [],
        ]
    )


def evaluation(seed):
    """Return a random chain of transforms, as users write them for evaluation."""
    rng = random.Random(seed)
    flips = [A.HorizontalFlip(p=rng.choice([0, 1])), A.VerticalFlip(p=rng.choice([0, 1])), A.NoOp(), A.Transpose(p=1)]
    sized, moved = resizes(rng), rng.sample(flips, rng.randint(0, 3))
    # a crop can also follow the conversion to float32
    if isinstance(sized[-1], A.CenterCrop) and not sized[-1].pad_if_needed:
        moved.append(sized.pop())
    place = rng.randint(0, len(moved))
    moved[place:place] = values(rng)
    return A.Compose([A.Compose(sized), *moved, *([ToTensorV2()] if rng.random() < 0.7 else [])])


@pytest.mark.parametrize("part", range(10))
def test_evaluation_is_exact(part):
    compared = 0
    for seed in range(50 * part, 50 * part + 50):
        transforms = evaluation(seed)
        pipeline = from_albumentations(json.loads(json.dumps(A.to_dict(transforms))))
        for encoded, pixels in random.Random(seed).sample(images(), 3):
            (actual,) = ours(pipeline, [encoded])
            try:
                expected = np.asarray(transforms(image=pixels)["image"])
            except ValueError:  # for example CropSizeError: the image is too small
                assert isinstance(actual, ImageError)
                continue
            assert not isinstance(actual, Exception), (transforms, actual)
            assert actual.dtype == expected.dtype
            assert_close(actual, expected)
            compared += 1
    assert compared > 100


# ------------------------------------------------------------------------------------------- training, given the
# parameters


def rising(rng, low, high):
    return tuple(sorted(rng.uniform(low, high) for _ in range(2)))


def jitter(rng):
    spans = [rising(rng, 0.2, 1.8) if rng.random() < 0.8 else (1.0, 1.0) for _ in range(3)]
    return A.ColorJitter(*spans, hue=rng.choice([(0, 0), rising(rng, -0.5, 0.5)]), p=1)


def window(coords):
    left, top, right, bottom = coords
    return {"top": top, "left": left, "height": bottom - top, "width": right - left}


def holes(rng):
    """Return bounds of holes, either in pixels or as fractions of the image size."""
    spans = [rising(rng, 0, 0.9), rising(rng, 0, 0.9)] if rng.random() < 0.5 else [(1, 5), (2, 30)]
    return A.CoarseDropout((1, 9), *spans, fill=rng.choice([0, (9, 120, 250)]), p=1)


def matrix(params, size):
    """Convert the matrix of a transform to the parameters of a warp op. For an affine map, these contain only the first
    two rows.
    """
    rows = np.array(params["matrix"])
    if "max_width" in params:
        rows = np.diag([size[1] / params["max_width"], size[0] / params["max_height"], 1.0]) @ rows
    else:
        rows = rows[:2]
    return {"matrix": rows.ravel().tolist(), "height": size[0], "width": size[1]}


def blur(rng):
    """Return a blur with a given kernel size, or with the size derived from its sigma."""
    size, sigma = rng.choice([0, 0, 3, 5, 8]), round(rng.uniform(0.1, 4), 3)
    return A.GaussianBlur((size, size), (sigma, sigma), p=1)


def deviation(params, _):
    """Return the random parameters of a blur, which contain the sigma of the kernel in thousandths of a pixel."""
    middle, *others = params["kernel"][len(params["kernel"]) // 2 :]
    return {"sigma": [round(math.sqrt(-0.5 / math.log(others[0] / middle)), 3) if others else 0.1] * 2}


def scaled(params, size):
    return {name: int(side * params["scale"]) for name, side in zip(("height", "width"), size, strict=True)}


def odd_size(params, _):
    return {"kernel": params["kernel"]}


def downscale(rng):
    filters = {name: rng.choice([0, 1, 3, 4]) for name in ("downscale", "upscale")}
    return A.Downscale((0.2, rng.uniform(0.2, 0.99)), filters, p=1)


def grid_dropout(rng):
    """Return a dropout whose grid has a random or a given number of cells, or the default number."""
    grid = rng.choice([{"unit_size_range": (4, 9)}, {"holes_number_xy": (rng.randint(1, 5), rng.randint(1, 5))}, {}])
    how = grid | {
        "random_offset": rng.random() < 0.7,
        "shift_xy": (rng.randint(0, 5), 2),
        "fill": rng.choice([0, (9, 120, 250)]),
    }
    return A.GridDropout(rng.random(), **how, p=1)


KINDS = ("brightness", "contrast", "saturation", "hue")
ELEMENTS = ("e", "v", "r90", "t", "r180", "h", "r270", "hvt")
DRAWN = {
    "RandomRotate90": (lambda _: A.RandomRotate90(p=1), lambda params, _: {"chosen": [int(params["factor"])]}),
    "D4": (lambda _: A.D4(p=1), lambda params, _: {"chosen": [ELEMENTS.index(params["group_element"])]}),
    "RandomCrop": (
        lambda rng: A.RandomCrop(rng.randint(1, 33), rng.randint(1, 33), p=1),
        lambda params, _: window(params["crop_coords"]),
    ),
    "RandomResizedCrop": (
        lambda rng: A.RandomResizedCrop((31, 44), rising(rng, 0.1, 1), interpolation=rng.choice([0, 1, 3, 4]), p=1),
        lambda params, _: window(params["crop_coords"]),
    ),
    "RandomScale": (
        lambda rng: A.RandomScale(rising(rng, -0.7, 0.9), interpolation=rng.choice([0, 1, 3, 4]), p=1),
        scaled,
    ),
    "GaussianBlur": (blur, deviation),
    "ColorJitter": (
        jitter,
        lambda params, _: {KINDS[kind]: params[KINDS[kind]] for kind in params["order"]},
    ),
    "RandomBrightnessContrast": (
        lambda rng: A.RandomBrightnessContrast(rising(rng, -0.6, 0.6), rising(rng, -0.9, 1), p=1),
        lambda params, _: {"contrast": params["alpha"], "brightness": params["beta"]},
    ),
    "CoarseDropout": (
        holes,
        lambda params, _: {"holes": [[*window(hole).values()] for hole in np.array(params["holes"]).tolist()]},
    ),
    "Affine": (affine, matrix),
    "ShiftScaleRotate": (
        lambda rng: A.ShiftScaleRotate(0.2, rising(rng, -0.6, 0.9), rising(rng, -90, 90), p=1, **random_sampling(rng)),
        matrix,
    ),
    "Rotate": (
        lambda rng: A.Rotate(rng.choice([(90, 90), (-180, 180), (0, 0), (3, 40)]), p=1, **random_sampling(rng)),
        matrix,
    ),
    "Perspective": (lambda rng: A.Perspective(rising(rng, 0, 0.5), p=1, **random_sampling(rng)), matrix),
    "Blur": (lambda rng: A.Blur((rng.choice([3, 5, 7]), rng.choice([9, 11, 31])), p=1), odd_size),
    "MedianBlur": (lambda rng: A.MedianBlur((3, rng.choice([5, 7, 21])), p=1), odd_size),
    "CLAHE": (
        lambda rng: A.CLAHE((1, rng.uniform(1, 40)), (rng.randint(1, 9), rng.randint(1, 9)), p=1),
        lambda params, _: dict(params),
    ),
    "RandomGamma": (lambda rng: A.RandomGamma((10, rng.uniform(20, 300)), p=1), lambda params, _: dict(params)),
    "RandomToneCurve": (
        lambda rng: A.RandomToneCurve(rng.uniform(0.05, 0.5), p=1),
        lambda params, _: {"low": float(params["low_y"]), "high": float(params["high_y"]), "std": 0.0},
    ),
    "ImageCompression": (
        lambda rng: A.ImageCompression(rng.choice(["jpeg", "webp"]), (1, rng.randint(20, 100)), p=1),
        lambda params, _: {"quality": params["quality"]},
    ),
    "ChannelShuffle": (
        lambda _: A.ChannelShuffle(p=1),
        lambda params, _: {"chosen": [[*itertools.permutations(range(3))].index((*params["channels_shuffled"],))]},
    ),
    "Downscale": (downscale, lambda params, _: dict(params)),
    "GridDropout": (
        grid_dropout,
        lambda params, _: {"holes": [[*window(h).values()] for h in params["holes"].tolist()]},
    ),
    "RandomSizedCrop": (
        lambda rng: A.RandomSizedCrop(
            (7, rng.randint(20, 99)), (31, 44), rng.uniform(0.3, 2), rng.choice([0, 1, 3, 4]), p=1
        ),
        lambda params, _: window(params["crop_coords"]),
    ),
    "HueSaturationValue": (
        lambda rng: A.HueSaturationValue(rising(rng, -180, 180), rising(rng, -99, 99), rising(rng, -99, 99), p=1),
        lambda params, _: dict(zip(("hue", "saturation", "value"), params.values(), strict=True)),
    ),
}
"""Functions by transform. The first one creates the transform, and the second one converts parameters that
``ReplayCompose`` has recorded to the parameters of the op."""


LEAST = {"RandomCrop": 33, "GridDropout": 20, "CLAHE": 8, "Downscale": 9}
"""Minimum height and width of the images, for transforms that reject smaller ones."""


def replayed(transform, words, encoded, pixels):
    """Run a transform once. Return our tensor for the same parameters, and the library's tensor."""
    end = [] if "Crop" in type(transform).__name__ else [A.CenterCrop(440, 640, pad_if_needed=True)]
    made = A.ReplayCompose([transform, *end])(image=pixels)
    params = made["replay"]["transforms"][0]["params"]
    params = {key: value for key, value in params.items() if key not in ("shape", "pad_params")}
    pipeline = from_albumentations(training=A.Compose([transform, *end])).for_training()
    (step,) = (node for node in pipeline.nodes if node.op.home == "training" and node.key)
    with pp.Engine(pipeline, threads=1) as engine:
        places = [pipeline.plan.replaying({step.key: words(params, pixels.shape[:2])})]
        batch = engine.run_batch([encoded], places=places)
    assert batch.errors == [None], batch.errors
    return batch["tensor"][0], made["image"]


@pytest.mark.filterwarnings("ignore:ShiftScaleRotate is")
@pytest.mark.parametrize("name", DRAWN)
def test_the_librarys_random_parameters_give_its_pixels(name):
    make, words = DRAWN[name]
    if words is matrix and cv2.__version__ >= "5":
        pytest.skip(f"OPENCV {cv2.__version__} INTERPOLATES IN ANOTHER WAY: warps were not compared with it")
    rng, changed = random.Random(name), 0
    for _ in range(300):
        encoded, pixels = rng.choice(images()[1:4] if name in ("RandomResizedCrop", "RandomScale") else images())
        if min(pixels.shape[:2]) < LEAST.get(name, 1):
            continue
        actual, expected = replayed(make(rng), words, encoded, pixels)
        assert_close(actual, expected)
        changed += not np.array_equal(expected, A.CenterCrop(440, 640, pad_if_needed=True)(image=pixels)["image"])
    assert changed > 150


CONSTANT = {
    "MotionBlur": lambda rng: A.MotionBlur(
        (size := rng.choice([3, 5, 7, 9, 11]), size),
        False,  # noqa: FBT003 - without a random shift
        (angle := rng.uniform(0, 360), angle),
        (direction := rng.choice([0, rng.uniform(-1, 1)]), direction),
        p=1,
    ),
    "Sharpen": lambda rng: A.Sharpen((alpha := rng.random(), alpha), (light := rng.uniform(0, 3), light), p=1),
    "OpticalDistortion": lambda rng: A.OpticalDistortion(
        (k := rng.uniform(-1, 1), k), mode=rng.choice(["camera", "fisheye"]), p=1, **random_sampling(rng)
    ),
}
"""Functions that create transforms with fixed parameters. ``ReplayCompose`` would not record all random ones."""
NEARLY_EQUAL = Tolerance(1, 0.9999, "OpenCV computes the last values of a row without fused operations")


@pytest.mark.parametrize("name", CONSTANT)
def test_the_same_constants_give_the_librarys_pixels(name):
    rng, changed, end = random.Random(name), 0, A.CenterCrop(440, 640, pad_if_needed=True)
    for _ in range(300):
        encoded, pixels = rng.choice(images())
        chain = A.Compose([CONSTANT[name](rng), end])
        (actual,) = ours(from_albumentations(chain), [encoded])
        expected = chain(image=pixels)["image"]
        assert_close(actual, expected, NEARLY_EQUAL if name == "MotionBlur" else EQUAL)
        changed += not np.array_equal(expected, end(image=pixels)["image"])
    assert changed > 150


@pytest.mark.parametrize("size", [3, 5, 7, 11])
def test_the_same_shift_gives_the_librarys_motion_kernel(size):
    rng = random.Random(size)
    for _ in range(300):
        angle, direction, *shift = rng.uniform(0, 360), rng.uniform(-1, 1), rng.uniform(-1, 1), rng.uniform(-1, 1)
        numbers = iter(shift)
        fake = SimpleNamespace(uniform=lambda *_, numbers=numbers: next(numbers))
        theirs = create_motion_kernel(size, angle, direction, allow_shifted=True, random_state=fake)
        assert_close(line_kernel(size, angle, direction, *shift), theirs.astype(np.float32) / np.sum(theirs))


def distorted(rng, size):
    """Return a random distortion, and the maps that the library computes with the parameters that pixprep sampled."""
    how = {
        "fill": rng.choice([0, 114, (9, 120, 250)]),
        "interpolation": rng.choice([0, 1, 2]),
        "border_mode": rng.choice([0, 1, 4]),
    }
    numbers = Numbers(rng.randint(0, 99), 0, 0, 0, {})
    if rng.random() < 0.5:
        cells, is_normalized = rng.randint(1, 7), rng.random() < 0.5
        transform = A.GridDistortion(cells, rising(rng, -0.5, 0.8), normalized=is_normalized, p=1, **how)
        words = op_of(transform).draw(*size, partial(numbers.blocks, "a"))
        steps = words["columns"], words["rows"]
        if is_normalized:
            steps = G.normalize_grid_distortion_steps(size, cells, *map(list, steps)).values()
        return transform, words, G.generate_grid(size, *steps, cells)
    alpha, sigma, is_same = rng.uniform(1, 90), rng.uniform(1, 9), rng.random() < 0.3
    transform = A.ElasticTransform(alpha, sigma, approximate=rng.random() < 0.5, same_dxdy=is_same, p=1, **how)
    words = op_of(transform).draw(*size, partial(numbers.blocks, "a"))
    values = noise_array((*words["seed"], 0), (1 if is_same else 2, *size))
    fake = SimpleNamespace(standard_normal=lambda shape, dtype: values.astype(dtype).reshape(shape).copy())
    kernel = (17, 17) if transform.approximate else (0, 0)
    field = G.generate_displacement_fields(
        size, alpha, sigma, same_dxdy=is_same, kernel_size=kernel, random_generator=fake, noise_distribution="gaussian"
    )
    x, y = np.meshgrid(np.arange(size[1]), np.arange(size[0]))
    return transform, words, ((x + field[0]).astype(np.float32), (y + field[1]).astype(np.float32))


def op_of(transform):
    return from_albumentations(training=A.Compose([transform]), max_size=640).ops[1]


def test_the_same_grid_or_noise_gives_the_librarys_pixels_masks_and_boxes():
    rng, shown = random.Random(3), 0
    for _ in range(300):
        size = rng.choice([(61, 97), (90, 300), (224, 224), (64, 64)])
        transform, words, maps = distorted(rng, size)
        pixels, labels = scene(*size), noise(*size, 1)[:, :, 0] % 9
        left, top = rng.randint(0, size[1] // 2), rng.randint(0, size[0] // 2)
        boxes = np.array([[left, top, left + rng.randint(9, size[1] // 2), top + rng.randint(9, size[0] // 2)]], float)
        is_constant = transform.border_mode == 0
        chain = A.Compose(
            [transform], bbox_params=A.BboxParams("pascal_voc", label_fields=["labels"]) if is_constant else None
        )
        ops = from_albumentations(training=chain, max_size=640, mask=is_constant).ops
        pipeline = pp.Pipeline([pp.pixels(), *ops[1:]]).for_training()
        (step,) = (
            node
            for node in pipeline.nodes
            if node.key and node.op.home == "training" and node.op is not ops[-1] and hasattr(node.op, "draw")
        )
        sample = {"boxes": boxes, "labels": np.arange(1), "mask": labels}
        with pp.Engine(pipeline, threads=1) as engine:
            batch = engine.run_batch([pixels], places=[pipeline.plan.replaying({step.key: words}, sample)])
        assert batch.errors == [None]
        expected = transform.apply(pixels, *maps)
        # a difference of 1e-6 can move a displacement across a multiple of 1/32 pixel
        tolerance = EQUAL if "rows" in words else Tolerance(255, 0.999, "the noise is blurred in another order")
        assert_close(batch["tensor"][0][: size[0], : size[1]], expected, tolerance)
        if is_constant:
            found = annotated(pipeline.plan, batch.placed[0], sample)
            assert_close(found["mask"], transform.apply_to_mask(labels, *maps), tolerance)
            theirs = transform.apply_to_bboxes(boxes / (*size[::-1], *size[::-1]), *maps, shape=size) * (
                *size[::-1],
                *size[::-1],
            )
            if len(found["boxes"]):
                np.testing.assert_allclose(found["boxes"], theirs[:, :4] + (0, 0, 1, 1), atol=4)
                shown += 1
    assert shown > 50


def test_the_same_noise_gives_the_librarys_pixels():
    rng = random.Random(4)
    for _ in range(100):
        std, mean, per_channel = rng.uniform(0, 0.5), rng.uniform(-0.3, 0.3), rng.random() < 0.5
        step = Noise(mean, std, (rng.getrandbits(32), rng.getrandbits(32)), is_shared=not per_channel)
        pixels = scene(40, 50)
        assert_close(
            apply_steps([step], pixels),
            P.add_noise(pixels, np.broadcast_to(noise_of(step, pixels.shape), pixels.shape)),
        )


OLD = ("mask_value", "max_holes")
"""Fields of earlier versions that Albumentations 2.0 ignores."""
TABLE = [call for call, _ in rows("importers", "imports.txt") if call.startswith("a(")]


@pytest.mark.parametrize("call", [call for call in TABLE if not any(name in call for name in OLD)])
def test_a_source_of_the_table_gives_the_librarys_pixels(call):
    source = eval(call, NAMES | {"a": compose})  # noqa: S307 - lines of our own
    transforms, compared = A.from_dict(source), 0
    for encoded, pixels in images():
        (actual,) = ours(from_albumentations(source, max_size=640), [encoded])
        if not isinstance(actual, ImageError):
            assert_close(actual, transforms(image=pixels)["image"])
            compared += 1
    assert compared > 5


def test_one_gray_channel_and_images_of_any_size_are_exact():
    gray = [A.ToGray(num_output_channels=1, p=1), A.PadIfNeeded(50, 60, border_mode=0, fill=9), A.Normalize(0.4, 0.3)]
    chains = [[A.Resize(40, 50), *gray, ToTensorV2()], [A.Resize(40, 50), A.InvertImg(p=1)], [A.Normalize(MEAN, STD)]]
    for chain in map(A.Compose, chains):
        for encoded, pixels in images():
            (actual,) = ours(from_albumentations(chain, max_size=640), [encoded])
            assert_close(actual, np.asarray(chain(image=pixels)["image"]))


@pytest.mark.parametrize("seed", range(40))
def test_labels_and_boxes_move_like_the_librarys(seed):
    rng = random.Random(seed)
    size, angle, side = (rng.randint(20, 90), rng.randint(20, 90)), rng.uniform(-90, 90), rng.randint(9, 90)
    moves = [A.Resize(*size), A.LongestMaxSize(side), A.Rotate((angle, angle), border_mode=0, fill_mask=255, p=1)]
    chain = [rng.choice(moves), A.Transpose(p=1), A.CenterCrop(50, 60, pad_if_needed=True, fill_mask=255)]
    kept = {"min_area": rng.choice([0, 90]), "min_visibility": 0.1, "clip": True}
    boxes = {"format": "pascal_voc", "label_fields": ["labels"], **kept}
    ops = list(from_albumentations(training=A.Compose(chain, bbox_params=A.BboxParams(**boxes))).ops)
    pixels, mask = scene(60, 90), noise(60, 90, 1)[:, :, 0] % 9
    corners = np.array([[5, 6, 40.5, 30], [50, 2, 89, 60], [0, 0, 7, 9]], np.float32)
    theirs = A.Compose([*chain], bbox_params=A.BboxParams(**boxes))(
        image=pixels, mask=mask, bboxes=corners, labels=[0, 1, 2]
    )
    sample = {"image": png(pixels), "mask": mask, "boxes": corners, "labels": np.arange(3)}
    pipeline = pp.Pipeline([*ops[:-1], pp.mask(), ops[-1]]).for_training()
    batch = next(iter(pp.Loader([sample], pipeline, batch_size=1)))
    assert_close(batch["tensor"][0], theirs["image"])
    assert np.array_equal(batch["mask"][0], theirs["mask"])
    assert batch["labels"][0].tolist() == [int(label) for label in theirs["labels"]]
    np.testing.assert_allclose(batch["boxes"][0], np.reshape(theirs["bboxes"], (-1, 4)), atol=1e-2)


@pytest.mark.parametrize("size", [(61, 97), (300, 41)])
def test_the_same_numbers_give_the_librarys_matrix(size):
    rng, image = random.Random(7), np.zeros((*size, 3), np.uint8)
    for _ in range(50):
        (angle, x, y, wide), (high, lean, slope) = (
            (rng.uniform(-30, 30), 0.3, -0.2, 0.7),
            (1.3, rng.uniform(-40, 40), 9),
        )
        move, scale, shear = ({"x": (i, i), "y": (j, j)} for i, j in ((x, y), (wide, high), (lean, slope)))
        one = A.Affine(scale, move, rotate=(angle, angle), shear=shear, p=1)
        theirs = A.ReplayCompose([one])(image=image)["replay"]["transforms"][0]["params"]
        op = pp.random_warp((angle, angle), (x, x, y, y), (wide, wide, high, high), (lean, lean, slope, slope))
        ours_ = op.draw(*size, lambda _, count: np.full((count, 4), 0.5))
        np.testing.assert_allclose(ours_["matrix"], np.array(theirs["matrix"])[:2].ravel(), rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("size", [(61, 97), (300, 41), (1, 1), (1, 37), (29, 1), (2, 3)])
def test_the_same_points_give_the_librarys_perspective(size):
    class Normal:
        def normal(self, _, scale, shape):
            places = (uniforms[:2].ravel() * 65536).astype(int)
            return scale * quantiles()[places].astype(np.float64).reshape(shape)

    rng = np.random.default_rng(7)
    for _ in range(50):
        uniforms = rng.random((3, 4))
        words_ = pp.random_warp_perspective((0.4, 0.4)).draw(*size, lambda _, count, u=uniforms: u[:count])
        points = G.order_points(G.generate_perspective_points(size, 0.4, Normal()))
        found, width, height = G.compute_perspective_params(points, size)
        expected = matrix({"matrix": found, "max_width": width, "max_height": height}, size)
        np.testing.assert_allclose(words_["matrix"], expected["matrix"], rtol=1e-3, atol=1e-5)  # the points are float32


def margin(level):
    return [A.Resize(40, 50), A.PadIfNeeded(60, 60, border_mode=0, fill=level)]


OTHERS = {
    "a filter": ([A.Resize(40, 50)], [A.Resize(40, 50, interpolation=3)]),
    "height and width": ([A.Resize(40, 50)], [A.Resize(50, 40), A.Transpose(p=1)]),
    "a mirror": ([A.Resize(40, 50)], [A.Resize(40, 50), A.HorizontalFlip(p=1)]),
    "a colour": (margin(9), margin(10)),
    "a mean": ([A.Resize(40, 50), A.Normalize(MEAN, STD)], [A.Resize(40, 50), A.Normalize(MEAN[::-1], STD)]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_different_chain_is_not_equal(name):
    chain, another = (A.Compose(transforms) for transforms in OTHERS[name])
    encoded, pixels = images()[0]
    (actual,) = ours(from_albumentations(chain), [encoded])
    assert_close(actual, chain(image=pixels)["image"])
    with pytest.raises(AssertionError):
        assert_close(actual, another(image=pixels)["image"])


def test_verify_compares_with_albumentations():
    chain = A.Compose([A.LongestMaxSize(64), A.PadIfNeeded(64, 96), A.Normalize(MEAN, STD), ToTensorV2()])
    certificate = verify(from_albumentations(chain), source=chain, generate=False, images=[("flower", photo("flower"))])
    assert certificate.is_exact
    assert certificate.rows[-1].original.endswith(f"Albumentations {A.__version__}")


def test_verify_compares_random_parameters_with_albumentations():
    chain = [A.RandomCrop(90, 80), jitter(random.Random(3)), A.HueSaturationValue(p=1), A.ToGray(p=0.5)]
    chain += [A.RandomBrightnessContrast(p=1), A.OneOf([A.HorizontalFlip(p=1), A.ToGray(p=3e-1)], p=1)]
    pipeline = from_albumentations(training=A.Compose([*chain, A.Normalize(MEAN, STD), ToTensorV2()]))
    certificate = verify_training(pipeline, generate=False, images=[(str(i), photo("flower")) for i in range(9)])
    assert certificate.holds
    assert any("Albumentations" in row.original for row in certificate.rows if row.stage == "levels")


def test_verify_compares_the_effects_with_albumentations_and_opencv():
    effects = [
        pp.box_blur(5),
        pp.median_blur(3, p=0.5),
        pp.sharpen(),
        pp.clahe((1, 4), (3, 2)),
        pp.gamma((0.5, 2), like="opencv"),
        pp.compression((30, 90)),
        pp.downscale((0.3, 0.9), "area", "bilinear"),
        pp.tone_curve(),
        pp.optical_distortion((-0.3, 0.3)),
    ]
    for effect in effects:
        ops = [pp.decode(), pp.resize(height=60, width=80, like="opencv"), effect]
        pipeline = pp.Pipeline([*ops, pp.tensor(only="training" if effect.home else None)])
        pictures = [(str(size), png(scene(*size))) for size in ((70, 90), (120, 100))]
        if effect.home:
            certificate = verify_training(pipeline, generate=False, images=pictures)
        else:
            certificate = verify(pipeline, generate=False, images=pictures)
        assert certificate.holds, effect


def test_the_operator_of_the_page_runs():
    text = (Path(__file__).parents[2] / "docs" / "own-operators.md").read_text(encoding="utf-8")
    (program,) = (
        code for code in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if "A.Emboss" in code
    )
    names = {}
    exec(program, names)  # noqa: S102 - a page of our own
    pixels = images()[0][1]
    expected = A.Emboss(alpha=(0.5, 0.5), strength=(0.7, 0.7), p=1.0)(image=pixels)["image"]
    assert_close(pp.apply(names["embossed"](), pixels), expected)
