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
from support.images import PHOTOS, noise
from support.refusals import rows

torch = pytest.importorskip("torch", reason="NO PYTORCH: its colours were not compared")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its colours were not compared")

from PIL import Image  # noqa: E402
from torchvision.transforms import v2  # noqa: E402 - needs what conftest.py defines
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812

from parity.torchvision_replay import replayed  # noqa: E402

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
    drawn = {name for name in names if name.startswith("random_")} - elsewhere
    assert names - elsewhere - drawn == set(CASES)
    assert all(any(f"{name}(" in result for _, result in rows("importers", "imports.txt")) for name in drawn)


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
        replay = replayed(transform, {"random_photometric_distort#0": expected})
        assert torch.equal(transform.transform(image, params), replay(image)), seed
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
