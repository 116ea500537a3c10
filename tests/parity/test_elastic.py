"""Tests the elastic transform against torchvision v2: the pixels for given displacement fields, and the field for given
noise.
"""

import math

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.kernels import elastic
from pixprep.engine.kernels.levels import apply_steps
from pixprep.plan.draws.philox import philox
from pixprep.plan.steps.warps import Elastic
from support.images import scene

torch = pytest.importorskip("torch", reason="NO PYTORCH: its elastic transform was not compared")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its elastic transform was not compared")

from torchvision.transforms import functional as v1  # noqa: E402 - needs what conftest.py defines
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812

from parity.torchvision_images import as_array, as_theirs  # noqa: E402

torch.set_num_threads(1)
if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("NO AVX2: PyTorch fuses nothing here", allow_module_level=True)

SIZES = ((60, 81), (97, 51), (33, 121), (64, 64), (21, 31), (3, 7), (1, 2), (2, 1), (5, 300))
DRAWS = 306
FILL = (123, 117, 104)
FIELDS = {
    "as it is": {},
    "strong": {"alpha": (200.0, 90.0), "sigma": (1.5, 2.6)},
    "hardly blurred": {"alpha": 20.0, "sigma": 0.12, "fill": FILL},
    "not blurred": {"alpha": (3.0, 7.0), "sigma": 0.0, "fill": FILL},
    "of some": {"alpha": 400.0, "sigma": 2.0, "p": 0.5, "fill": 9},
}


def displaced_samples(fields, draws=DRAWS):
    """Yield (photo, our pixels, our displacement field in torchvision's format) for each sample.

    The images are large enough for the blur.
    """
    op = pp.elastic(**fields)
    sigma, alpha = (np.broadcast_to(each, 2).tolist() for each in (op.sigma, op.alpha))
    sizes = [size for size in SIZES if Elastic((0, 0), tuple(sigma), 0).reach < min(size)]
    for place, size in enumerate(sizes):
        photo = scene(*size)
        ops = [pp.decode(), pp.crop(0, 0, *size), op, pp.tensor(dtype="uint8", only="training")]
        plan = pp.Pipeline(ops).for_training().plan
        for numbers in plan.draw(seed=3, epoch=place, indices=range(-(-draws // len(sizes)))):
            placed = plan.placing(numbers)(*size)
            seed = placed.draws["elastic#0"]["seed"]
            field = np.zeros((2, *size), np.float32)
            if seed is not None:
                field = elastic.displacement(Elastic(tuple(alpha), tuple(sigma), seed), *size)
            yield (
                photo,
                apply_steps(placed.placements["tensor"].levels, photo),
                torch.from_numpy(field).permute(1, 2, 0)[None],
            )


@pytest.mark.parametrize("like", ["pillow", "torchvision"])
@pytest.mark.parametrize("how", ["nearest", "bilinear"])
@pytest.mark.parametrize("name", FIELDS)
def test_pixels_of_a_field_equal_torchvision_for_tensors_and_images(name, how, like):
    count, fields = 0, FIELDS[name]
    colour = np.broadcast_to(fields.get("fill", 0), 3).tolist()
    for photo, ours, field in displaced_samples(fields | {"filter": how}, DRAWS):
        np.testing.assert_array_equal(as_array(F.elastic(as_theirs(photo, like), field, how, colour)), ours)
        count += ours.size
    assert count > 1_000_000


@pytest.mark.parametrize(("how", "fill"), [("nearest", 9), ("bilinear", 0)])
def test_pixels_of_v1_are_equal_except_for_blended_fill(how, fill):
    wrong = [0, 0]
    for index, colour in enumerate((fill, 255)):
        for photo, ours, field in displaced_samples(FIELDS["strong"] | {"filter": how, "fill": colour}, 60):
            theirs = v1.elastic_transform(as_theirs(photo, "pillow"), field, v2.InterpolationMode(how), [colour] * 3)
            wrong[index] += np.count_nonzero(as_array(theirs) != ours)
    assert wrong[0] == 0
    assert (wrong[1] == 0) == (how == "nearest")


def test_positions_without_displacement_equal_pytorch_for_every_size():
    for side in range(1, 2500):
        theirs = torch.linspace((-side + 1) / side, (side - 1) / side, side)
        assert np.array_equal(elastic.identity(side), theirs), side


def noise_of(seed, height, width):
    """Return float64 (2, height, width): uniformly distributed integers from -2^23 to 2^23 - 1 for x and for y."""
    count = height * width
    counters = np.zeros((2, -(-count // 4), 4), np.uint32)
    counters[:, :, 0], counters[1, :, 1] = np.arange(counters.shape[1]), 1
    words = philox(counters, (seed >> 32, seed & 0xFFFFFFFF)) >> np.uint32(8)
    return words.reshape(2, -1)[:, :count].reshape(2, height, width) - 2.0**23


@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 2e-7), (torch.float32, 5e-6)], ids=str)
@pytest.mark.parametrize("fields", [{}, {"alpha": [30.0, 80.0], "sigma": [1.7, 4.3]}, {"sigma": 0.0}], ids=str)
def test_the_field_of_given_noise_equals_torchvision(fields, dtype, most, monkeypatch):
    """The expected blur is computed in float64 and rounded, because PyTorch's float32 sum is less accurate.

    Without a blur, the fields are equal.
    """
    theirs = v2.ElasticTransform(**fields)
    farthest = largest = 0
    for seed in range(12):
        height, width = 41 + 13 * seed, 160 - 7 * seed
        noise = noise_of(seed << 40 | 77, height, width)
        rand = iter(torch.from_numpy((noise + 2.0**23) * 2.0**-24).to(dtype)[:, None, None])
        monkeypatch.setattr(torch, "rand", lambda *_, rand=rand: next(rand))
        expected = theirs.make_params([torch.zeros(3, height, width)])["displacement"][0].numpy()
        monkeypatch.undo()
        ours = elastic.displacement(Elastic(tuple(theirs.alpha), tuple(theirs.sigma), seed << 40 | 77), height, width)
        farthest = max(farthest, np.abs(np.moveaxis(ours, 0, -1) - expected).max())
        largest = max(largest, np.abs(ours).max())
    print(f"{fields}, {dtype}: {farthest:.2g} apart at most, of fields of up to {largest:.2g}")
    assert farthest <= most * largest
    assert farthest == 0 or theirs.sigma[0] or dtype == torch.float64


def test_fields_have_the_amplitude_and_smoothness_of_torchvisions():
    height, width, count = 72, 90, 60
    theirs = v2.ElasticTransform(sigma=[2.0, 4.0])
    torch.manual_seed(5)
    fields = {
        "ours": [elastic.displacement(Elastic((50.0,) * 2, (2.0, 4.0), seed), height, width) for seed in range(count)],
        "theirs": [
            theirs.make_params([torch.zeros(3, height, width)])["displacement"].numpy()[0].transpose(2, 0, 1)
            for _ in range(count)
        ],
    }
    said = {}
    for who, each in fields.items():
        field = np.stack(each)
        power = (field**2).mean(axis=(0, 2, 3))
        along = [(field[..., lag:] * field[..., :-lag]).mean(axis=(0, 2, 3)) / power for lag in (2, 4)]
        down = [(field[..., lag:, :] * field[..., :-lag, :]).mean(axis=(0, 2, 3)) / power for lag in (4, 8)]
        said[who] = np.stack([np.sqrt(power), *along, *down])
        assert abs(field.mean()) < power.max() ** 0.5 / 20
    print(said)
    # the autocorrelation of white noise after a Gaussian blur is exp(-lag^2 / (4 sigma^2))
    assert said["ours"][1:] == pytest.approx(np.repeat(np.exp([-0.25, -1.0] * 2), 2).reshape(4, 2), abs=0.06)
    assert said["ours"][0] == pytest.approx(said["theirs"][0], rel=0.05)
    assert said["ours"][1:] == pytest.approx(said["theirs"][1:], abs=0.06)
    assert math.isclose(said["ours"][0][0] * width, said["ours"][0][1] * height, rel_tol=0.1)
