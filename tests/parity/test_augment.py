"""rand_augment and trivial_augment against torchvision v2: the tables, what is drawn from them, and the pixels."""

from collections import Counter

import numpy as np
import pytest

import pixprep as pp
from images import noise, photo, png, read, scene
from pixprep.draws.policies import KINDS
from policy_cases import FROZEN, digest, frozen_draws

torch = pytest.importorskip("torch", reason="NO PYTORCH: its policies were not compared with")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its policies were not compared with")

from torchvision.transforms import InterpolationMode, v2  # noqa: E402

from torchvision_images import as_array, as_theirs  # noqa: E402

THEIRS = {"rand": v2.RandAugment, "trivial": v2.TrivialAugmentWide}
LIKES = ["pillow", "torchvision"]
FILL = (123, 117, 104)
DRAWS = 300
"""Of each kind."""
if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("NO AVX2: PyTorch rounds otherwise here", allow_module_level=True)


torch.set_num_threads(1)  # two of them wait for each other where a machine is busy: 20 times slower


# ----------------------------------------------------------------------------------------------------- the tables


@pytest.mark.parametrize("table", THEIRS)
def test_every_magnitude_of_every_table_is_torchvisions(table):
    theirs = THEIRS[table]._AUGMENTATION_SPACE
    assert list(theirs) == list(KINDS[table])
    compared = 0
    for name, (magnitudes, is_signed) in theirs.items():
        kind = KINDS[table][name]
        assert kind.is_signed == is_signed
        for bins in (2, 3, 10, 30, 31, 32, 101, 1000):
            for height, width in ((1, 1), (224, 176), (331, 997), (480, 640), (3000, 4001)):
                expected = magnitudes(bins, height, width)
                if expected is None:
                    assert kind.ends is None
                    continue
                ours = [kind.magnitude(index, bins, height, width) for index in range(bins)]
                assert ours == expected.tolist(), (name, bins, height, width)
                compared += bins
    assert compared > 40_000


def test_the_middle_of_a_table_tells_a_rounding_twice_from_once():
    """What is reckoned from the nearer end, and what is not, differ: the comparison above sees it."""
    last = 150.0 / 331.0 * 640
    step = np.float32(last) / np.float32(30)
    once = [KINDS["rand"]["TranslateX"].magnitude(index, 31, 480, 640) for index in range(31)]
    assert once != [float(np.float32(index) * step) for index in range(31)]


# ----------------------------------------------------------------------------------------------------- the pixels


def photos():
    """Pieces of a photo, a scene and noise, of sizes that no rule favours; one is square."""
    flower = np.asarray(read(photo("flower")))
    return [
        np.ascontiguousarray(flower[100:140, 200:260]),
        scene(57, 31),
        noise(23, 80),
        np.ascontiguousarray(flower[60:104, 80:124]),
        noise(20, 31),
    ]


def expected_of(pixels, steps, op):
    """What torchvision's own step makes, for the kind and the magnitude drawn."""
    theirs = v2.RandAugment(interpolation=InterpolationMode(op.filter), fill=op.fill)
    image = as_theirs(pixels, op.like)
    for each in steps:
        image = theirs._apply_image_or_video_transform(
            image, each["op"], each.get("magnitude", 0.0), theirs.interpolation, theirs._fill
        )
    return as_array(image)


def differing(op, count, change=lambda steps: steps):
    """For each kind (draws, values that differ, values, the largest difference) of many draws of an op."""
    ops = [pp.decode(), op, pp.tensor(dtype="uint8", layout="hwc", only="training")]
    found = {}
    key = f"{type(op).__struct_config__.tag}#0"
    for number, pixels in enumerate(photos()):
        height, width = pixels.shape[:2]
        window = pp.crop(top=0, left=0, height=height, width=width)
        pipeline = pp.Pipeline([ops[0], window, *ops[1:]])
        drawn = pipeline.plan.draw(seed=7, epoch=number, indices=range(count // 5))
        with pp.Engine(pipeline, threads=2) as engine:
            batch = engine.run_batch([png(pixels)] * len(drawn), places=[pipeline.plan.placing(n) for n in drawn])
        for row, ours in enumerate(batch["tensor"]):
            steps = batch.placed[row].draws[key]["ops"]
            off = abs(ours.astype(int) - expected_of(pixels, change(steps), op))
            for kind in {each["op"] for each in steps}:
                total = found.setdefault(kind, Counter())
                total["draws"] += 1
                total["differing"] += np.count_nonzero(off)
                total["values"] += off.size
                total["largest"] = max(total["largest"], int(off.max()))
    return found


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize(("filter_", "fill"), [("nearest", FILL), ("bilinear", None), ("bilinear", FILL)], ids=str)
def test_every_value_of_a_trivial_augment_is_torchvisions(like, filter_, fill):
    found = differing(pp.trivial_augment(filter=filter_, fill=fill, like=like), 16 * DRAWS + 1000)
    for kind, total in sorted(found.items()):
        print(f"{like}, {filter_}, {kind}: {total['differing']} of {total['values']:,}, by {total['largest']}")
    assert set(found) == set(KINDS["trivial"])
    assert min(total["draws"] for total in found.values()) >= DRAWS
    assert {kind: total["differing"] for kind, total in found.items() if total["differing"]} == {}


@pytest.mark.parametrize("like", LIKES)
def test_every_value_of_a_rand_augment_is_torchvisions(like):
    found = differing(pp.rand_augment(num_ops=3, magnitude=17, fill=FILL, like=like), 6 * DRAWS)
    assert min(total["draws"] for total in found.values()) >= DRAWS
    assert {kind: total["differing"] for kind, total in found.items() if total["differing"]} == {}


def negated(steps):
    return [{**each, "magnitude": -each["magnitude"]} if each["op"] == "ShearX" else each for each in steps]


def swapped(steps):
    names = {"TranslateX": "TranslateY", "TranslateY": "TranslateX"}
    return [{**each, "op": names.get(each["op"], each["op"])} for each in steps]


def whole(steps):
    return [
        {**each, "magnitude": float(round(each["magnitude"]))} if each["op"] == "Rotate" else each for each in steps
    ]


def reversed_(steps):
    return steps[::-1]


@pytest.mark.parametrize("change", [negated, swapped, whole, reversed_])
@pytest.mark.parametrize("like", LIKES)
def test_another_step_would_be_seen(change, like):
    found = differing(pp.rand_augment(num_ops=3, magnitude=10, num_magnitude_bins=32, like=like), 500, change)
    assert sum(total["differing"] for total in found.values()) > 10_000


@pytest.mark.parametrize("case", FROZEN, ids=" ".join)
def test_what_was_frozen_for_machines_without_torchvision_is_still_its_own(case):
    pixels, op, draws, _ = frozen_draws(*case)
    assert digest(np.stack([expected_of(pixels, steps, op) for steps in draws])) == FROZEN[case]
