"""Tests that colour ops equal torchvision v2 in all values, on Pillow images and on uint8 tensors."""

import msgspec
import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.kernels import levels
from pixprep.importers.verify.twins import by_torchvision
from pixprep.pipeline import ops
from pixprep.plan.draws import philox
from pixprep.plan.inputs import Drawing
from support.images import PHOTOS, noise, png

torch = pytest.importorskip("torch", reason="NO PYTORCH: its colours were not compared")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its colours were not compared")

from PIL import Image  # noqa: E402
from torchvision.transforms import v2  # noqa: E402 - needs what conftest.py defines
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812

from parity.torchvision_images import JITTER, jittered  # noqa: E402

DRAWS = 300
LIKES = ["pillow", "torchvision"]
PHOTO_PIXELS = [np.asarray(Image.open(PHOTOS / name).convert("RGB")) for name in ("china.jpg", "flower.jpg")]
if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("NO AVX2: PyTorch multiplies and adds without fusing here", allow_module_level=True)


def image(index, channels=3):
    """Return a random image, uint8 (height, width, channels): a photo, a part of a photo, noise, or noise with few
    distinct values. The sizes start at 1 x 1.
    """
    rng = np.random.default_rng(index)
    height, width = (1 + index * 7 % 61, 1 + index * 13 % 53) if index % 10 else (224, 224)
    if index % 4 < 2:
        photo = PHOTO_PIXELS[index % len(PHOTO_PIXELS)]
        top, left = rng.integers(0, photo.shape[0] - height), rng.integers(0, photo.shape[1] - width)
        pixels = photo[top : top + height, left : left + width]
    else:
        pixels = noise(height, width, seed=index)
        if index % 4 == 3:
            pixels = (pixels // (1 + index % 7) + index % 100).astype(np.uint8)
    return np.ascontiguousarray(pixels[:, :, :channels])


def theirs(function, pixels, like):
    """Return the result of a torchvision function for a Pillow image or a tensor."""
    if like == "pillow":
        found = np.asarray(function(Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])))
        return found.reshape(pixels.shape)
    return function(torch.from_numpy(pixels.transpose(2, 0, 1).copy())).numpy().transpose(1, 2, 0)


def steps_of(op, channels=3):
    """Return the steps on pixel values of one op in serving."""
    chain = [pp.decode(color="gray" if channels == 1 else "rgb"), pp.crop(0, 0, 1, 1), op, pp.tensor(dtype="uint8")]
    placement = pp.Pipeline(chain).plan.outputs["tensor"].geometry.place(1, 1, Drawing({}))
    return placement.levels


def factor(rng):
    """Return a random factor. Most are sampled like torchvision's; the others are values that a user may choose."""
    return float(
        rng.choice([0.0, 0.5, 1.0, 2.0, 50.0, 1000.0]) if rng.integers(4) == 0 else np.float32(rng.uniform(0, 2))
    )


CASES = {
    "brightness": lambda rng: pp.brightness(factor=factor(rng)),
    "contrast": lambda rng: pp.contrast(factor=factor(rng)),
    "saturation": lambda rng: pp.saturation(factor=factor(rng)),
    "hue": lambda rng: pp.hue(factor=float(np.float32(rng.uniform(-0.5, 0.5)) * (rng.integers(9) > 0))),
    "grayscale": lambda _: pp.grayscale(),
    "gamma": lambda rng: pp.gamma(gamma=float(rng.uniform(0.2, 4)), gain=float(rng.choice([1.0, 0.7, 1.6]))),
    "posterize": lambda rng: pp.posterize(bits=int(rng.integers(1, 9))),
    "solarize": lambda rng: pp.solarize(threshold=float(rng.integers(0, 256))),
    "autocontrast": lambda _: pp.autocontrast(),
    "equalize": lambda _: pp.equalize(),
    "invert": lambda _: pp.invert(),
    "permute_channels": lambda rng: pp.permute_channels(tuple(rng.permutation(3).tolist())),
}
"""Functions that return an op with random fields. ``twins.TORCHVISION`` has torchvision's functions for the same
fields.
"""


def of(op, like):
    """Return the op with the rounding of a library, if the rounding of the op can be selected."""
    return msgspec.structs.replace(op, like=like) if "like" in op.__struct_fields__ else op


def differing(name, like, *, channels=3):
    """Return the number of values that differ, and the total number of values."""
    wrong = count = 0
    for index in range(DRAWS):
        op, pixels = of(CASES[name](np.random.default_rng(index)), like), image(index, channels)
        ours = levels.apply_steps(steps_of(op, channels), pixels)
        expected = theirs(lambda x, by=op: by_torchvision(by, x), pixels, like)
        wrong += np.count_nonzero(ours != expected)
        count += ours.size
    return wrong, count


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("name", CASES)
def test_every_value_of_an_op_equals_torchvision(name, like):
    wrong, count = differing(name, like)
    print(f"{name}, like {like}: {wrong} of {count:,} values differ")
    assert count > 5_000_000
    assert wrong == 0


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("name", [name for name in CASES if name != "permute_channels"])
def test_a_gray_image_equals_torchvision(name, like):
    assert differing(name, like, channels=1)[0] == 0


def test_every_colour_op_has_a_case():
    names = {name for name, cls in ops.OPS.items() if issubclass(cls, ops.ColorOp)}
    # test_warp.py and the tests of timm's policies cover these
    elsewhere = {"sharpness", "random_sharpness", "solarize_add"}
    elsewhere |= {
        "color_matrix",
        "hue_saturation_value",
        "brightness_contrast",
    }  # only the importers of DALI and Albumentations use these fields
    assert names - elsewhere == set(CASES) | {f"random_{name}" for name in RANDOM}


def test_every_colour_has_torchvisions_luma_and_hue():
    """The test covers all 16.7 million colours in several parts, each with a different shift of the hue."""
    rows, columns = (axis.astype(np.uint8) for axis in np.mgrid[:256, :256])
    for red in range(0, 256, 8):
        pixels = np.stack(
            [np.full((8 * 256, 256), 0, np.uint8), np.tile(rows, (8, 1)), np.tile(columns, (8, 1))], axis=2
        )
        pixels[:, :, 0] = np.repeat(np.arange(red, red + 8), 256)[:, None]
        for like in LIKES:
            gray = levels.apply_steps(steps_of(pp.grayscale(like=like)), pixels)
            assert np.array_equal(gray, theirs(lambda x: F.rgb_to_grayscale(x, 3), pixels, like)), (red, like)
            shift = red / 255 - 0.5
            turned = levels.apply_steps(steps_of(pp.hue(factor=shift, like=like)), pixels)
            assert np.array_equal(turned, theirs(lambda x, by=shift: F.adjust_hue(x, by), pixels, like)), (red, like)


# ------------------------------------------------------------------------------------------- pixels with given
# parameters


RANDOM = {
    "gray": (pp.random_gray(p=0.5), v2.RandomGrayscale(1), lambda x: {"num_input_channels": F.get_num_channels(x)}),
    "posterize": (pp.random_posterize(bits=3), v2.RandomPosterize(3, 1), lambda _: {}),
    "solarize": (pp.random_solarize(threshold=99.5), v2.RandomSolarize(99.5, 1), lambda _: {}),
    "autocontrast": (pp.random_autocontrast(), v2.RandomAutocontrast(1), lambda _: {}),
    "equalize": (pp.random_equalize(), v2.RandomEqualize(1), lambda _: {}),
    "invert": (pp.random_invert(), v2.RandomInvert(1), lambda _: {}),
}


def sometimes(name):
    """Return torchvision's transform with the given parameters."""
    _, transform, params = RANDOM[name]
    return lambda words: lambda x: transform.transform(x, params(x)) if words["apply"] else x


def cropped_samples(op, like, size, color="rgb"):
    """Apply a random crop and then the op. Yield (pixels of the crop, the op's parameters, our tensor)."""
    chain = [pp.decode(color=color), pp.random_crop(*size), of(op, like), pp.crop(0, 0, *size, only="serving")]
    pipeline = pp.Pipeline([*chain, pp.tensor(dtype="uint8", layout="hwc")]).for_training()
    photos = [*PHOTO_PIXELS, noise(97, 103, seed=1), (noise(80, 90, seed=2) // 3 + 40).astype(np.uint8)]
    encoded = [png(photo) for photo in photos]
    count = DRAWS // len(SIZES)
    numbers = pipeline.plan.draw(seed=3, epoch=5, indices=range(count))
    with pp.Engine(pipeline) as engine:
        batch = engine.run_batch(
            [encoded[index % len(photos)] for index in range(count)], places=[pipeline.plan.placing(n) for n in numbers]
        )
    for index in range(count):
        window, words = batch.placed[index].draws.values()
        top, left = window["top"], window["left"]
        pixels = photos[index % len(photos)][top : top + size[0], left : left + size[1]]
        yield np.ascontiguousarray(pixels), words, batch["tensor"][index]


SIZES = ((64, 61), (17, 5), (1, 3))


def differing_draws(op, like, expected):
    """Return the number of values that differ and the total number of values, as ``differing`` does, for random ops."""
    wrong = count = 0
    for size in SIZES:
        for pixels, words, ours in cropped_samples(op, like, size):
            wrong += np.count_nonzero(theirs(expected(words), pixels, like) != ours)
            count += ours.size
    return wrong, count


@pytest.mark.parametrize("like", LIKES)
def test_every_value_of_a_jitter_equals_torchvision(like):
    wrong, count = differing_draws(pp.color_jitter(**JITTER), like, jittered)
    print(f"color_jitter, like {like}: {wrong} of {count:,} values differ")
    assert count > 1_000_000
    assert wrong == 0


def distorted(words):
    """Return torchvision's functions in the order in which ``RandomPhotometricDistort`` applies them."""

    def of_image(image):
        image = jittered({kind: factor for kind, factor in words.items() if kind != "channels"})(image)
        return F.permute_channels(image, words["channels"]) if "channels" in words else image

    return of_image


def test_the_parameters_of_a_photometric_distort_match_torchvision():
    """Parameters from our random numbers must lead to the same functions as torchvision's own transform, in the same
    order.
    """
    op = pp.random_photometric_distort()
    (step,) = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), op, pp.tensor()]).for_training().plan.random_steps
    transform, image = v2.RandomPhotometricDistort(), torch.from_numpy(noise(17, 13)).permute(2, 0, 1)
    orders = set()
    for seed in range(DRAWS):
        torch.manual_seed(seed)
        params = transform.make_params([image])
        factors = {kind: params[f"{kind}_factor"] for kind in ("brightness", "contrast", "saturation", "hue")}
        early, order = params["contrast_before"], params["channel_permutation"]
        kinds = ["brightness", *["contrast"] * early, "saturation", "hue", *["contrast"] * (not early)]
        expected = {kind: factors[kind] for kind in kinds if factors[kind] is not None}
        expected |= {} if order is None else {"channels": order.tolist()}
        assert torch.equal(transform.transform(image, params), distorted(expected)(image)), seed
        spans = [(factor, *getattr(op, kind)) for kind, factor in factors.items()]
        blocks = [
            [0.49 if factor is not None else 0.51 for factor, _, _ in spans],
            [0 if factor is None else (factor - least) / (most - least) for factor, least, most in spans],
            [0.49 if early else 0.51, 0.51 if order is None else 0.49, 0, 0],
            [*([0, 0, 0] if order is None else np.argsort(order.tolist()) / 3), 0],
        ]
        words = step.words(1, 1, philox.Numbers(0, 0, 0, 0, {step.key: np.array(blocks, np.float64)}))
        assert list(words) == list(expected)
        assert words == {kind: pytest.approx(value, abs=1e-6) for kind, value in expected.items()}
        orders.add(tuple(words))
    assert len(orders) > 35  # 44 orders are possible


@pytest.mark.parametrize("like", LIKES)
def test_every_value_of_a_photometric_distort_equals_torchvision(like):
    op = pp.random_photometric_distort(hue=(-0.5, 0.5))
    wrong, count = differing_draws(op, like, distorted)
    print(f"random_photometric_distort, like {like}: {wrong} of {count:,} values differ")
    assert count > 1_000_000
    assert wrong == 0


@pytest.mark.parametrize("fields", [{"brightness": 0.4, "saturation": 0.7}, {"contrast": (0.2, 3), "hue": (0.1, 0.5)}])
@pytest.mark.parametrize("like", LIKES)
def test_a_jitter_of_some_properties_equals_torchvision(fields, like):
    assert differing_draws(pp.color_jitter(**fields), like, jittered)[0] == 0


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("name", RANDOM)
def test_every_value_of_a_random_op_equals_torchvision(name, like):
    assert differing_draws(RANDOM[name][0], like, sometimes(name)) == (0, 1_197_600)


def test_the_defaults_equal_torchvision():
    assert pp.random_gray().p == v2.RandomGrayscale().p == 0.1
    assert pp.random_posterize(bits=1).p == v2.RandomPosterize(1).p == 0.5
    for name in ("solarize", "autocontrast", "equalize", "invert"):
        fields = {"threshold": 1.0} if name == "solarize" else {}
        assert getattr(pp, f"random_{name}")(**fields).p == getattr(v2, f"Random{name.title()}")(**fields).p


def test_bgr_pixels_are_the_same_pixels():
    (first,) = {tuple(words) for _, words, _ in cropped_samples(pp.color_jitter(hue=0.3), "pillow", (9, 8), "bgr")}
    assert first == ("hue",)
    for pixels, words, ours in cropped_samples(pp.color_jitter(**JITTER), "pillow", (9, 8), "bgr"):
        assert np.array_equal(theirs(jittered(words), pixels, "pillow"), ours[:, :, ::-1])
