"""Tests the augmentation policies against torchvision v2 and timm: tables, distributions of the random parameters, and
pixels.
"""

import numpy as np
import pytest

import pixprep as pp
from pixprep.plan.draws.policies import KINDS, POLICIES
from support.policy_cases import FROZEN, chi_square, differing, digest, frozen_draws, pipeline_of, sampled

torch = pytest.importorskip("torch", reason="NO PYTORCH: its policies were not compared")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its policies were not compared")

from torchvision.transforms import InterpolationMode, v2  # noqa: E402

from parity.torchvision_images import as_array, as_theirs  # noqa: E402
from parity.torchvision_replay import replay_mix, with_steps  # noqa: E402

THEIRS = {"rand": v2.RandAugment, "trivial": v2.TrivialAugmentWide, "imagenet": v2.AutoAugment, "mix": v2.AugMix}
LIKES = ["pillow", "torchvision"]
FILL = (123, 117, 104)
DRAWS = 300
"""Number of random samples in each comparison."""
if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("NO AVX2: PyTorch rounds otherwise here", allow_module_level=True)


torch.set_num_threads(1)  # two threads would wait for each other on a busy machine: 20 times slower


# ----------------------------------------------------------------------------------------------------- the tables


@pytest.mark.parametrize("table", THEIRS)
def test_every_magnitude_of_every_table_equals_torchvision(table):
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
                    assert kind.magnitude is None
                    continue
                ours = [kind.magnitude(index, bins, height, width) for index in range(bins)]
                assert ours == expected.tolist(), (name, bins, height, width)
                compared += bins
    assert compared > 40_000


def test_aug_mix_without_all_ops_has_torchvisions_other_table():
    assert list(KINDS["mix_partial"]) == list(v2.AugMix._PARTIAL_AUGMENTATION_SPACE)
    assert all(KINDS["mix"][name] is kind for name, kind in KINDS["mix_partial"].items())


def test_the_middle_of_a_table_distinguishes_double_rounding():
    """Values that are computed from the nearer end differ from values that are rounded twice, so the comparison above
    detects the difference.
    """
    last = 150.0 / 331.0 * 640
    step = np.float32(last) / np.float32(30)
    once = [KINDS["rand"]["TranslateX"].magnitude(index, 31, 480, 640) for index in range(31)]
    assert once != [float(np.float32(index) * step) for index in range(31)]


# ----------------------------------------------------------------------------------------------------- the pixels


def expected_of(pixels, steps, op):
    """Return the image after torchvision's own step with the sampled operation and magnitude."""
    theirs = v2.RandAugment(interpolation=InterpolationMode(op.filter), fill=op.fill)
    return as_array(with_steps(theirs, as_theirs(pixels, op.like), steps))


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize(("filter_", "fill"), [("nearest", FILL), ("bilinear", None), ("bilinear", FILL)], ids=str)
def test_every_value_of_trivial_augment_equals_torchvision(like, filter_, fill):
    found = differing(pp.trivial_augment(filter=filter_, fill=fill, like=like), 16 * DRAWS + 1000, expected_of)
    for kind, total in sorted(found.items()):
        print(f"{like}, {filter_}, {kind}: {total['differing']} of {total['values']:,}, by {total['largest']}")
    assert set(found) == set(KINDS["trivial"])
    assert min(total["draws"] for total in found.values()) >= DRAWS
    assert {kind: total["differing"] for kind, total in found.items() if total["differing"]} == {}


@pytest.mark.parametrize("like", LIKES)
def test_every_value_of_rand_augment_equals_torchvision(like):
    found = differing(pp.rand_augment(num_ops=3, magnitude=17, fill=FILL, like=like), 6 * DRAWS, expected_of)
    assert min(total["draws"] for total in found.values()) >= DRAWS
    assert {kind: total["differing"] for kind, total in found.items() if total["differing"]} == {}


POLICIES_OF = {policy.value: policy for policy in v2.AutoAugmentPolicy}


@pytest.mark.parametrize("policy", POLICIES_OF)
def test_the_pairs_of_every_policy_equal_torchvision(policy):
    theirs = [
        [(kind, p, index or 0) for kind, p, index in pair] for pair in v2.AutoAugment(POLICIES_OF[policy])._policies
    ]
    assert [list(pair) for pair in POLICIES[policy]] == theirs


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("policy", POLICIES_OF)
def test_every_value_of_auto_augment_equals_torchvision(policy, like):
    op = pp.auto_augment(policy, fill=FILL, like=like, filter="bilinear" if policy == "svhn" else "nearest")
    found = differing(op, 2 * DRAWS, expected_of)
    assert len(found) >= 9
    assert {kind: total["differing"] for kind, total in found.items() if total["differing"]} == {}


def test_bicubic_warps_of_pil_images_equal_torchvision():
    found = differing(pp.trivial_augment(filter="bicubic", fill=FILL), 2 * DRAWS, expected_of)
    assert {kind: total["differing"] for kind, total in found.items() if total["differing"]} == {}


def mixed(pixels, words, op, like="torchvision"):
    """Return the image after torchvision's own AugMix with the sampled parameters."""
    theirs = v2.AugMix(interpolation=InterpolationMode(op.filter), fill=op.fill)
    replay_mix(theirs, words)
    return as_array(theirs(as_theirs(pixels, like)))


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize(
    "op",
    [
        pp.aug_mix(),
        pp.aug_mix(severity=10, mixture_width=1, chain_depth=5, alpha=0.3, filter="nearest", fill=FILL),
        pp.aug_mix(severity=7, mixture_width=4, chain_depth=2, alpha=3.0, all_ops=False, fill=9),
    ],
    ids=["usual", "one chain", "four"],
)
def test_every_value_of_aug_mix_equals_torchvision_for_images_and_tensors(op, like):
    found = differing(op, 4 * DRAWS, lambda *drawn: mixed(*drawn, like))
    print({kind: total["draws"] for kind, total in found.items()})
    assert set(found) == set(KINDS["mix" if op.all_ops else "mix_partial"])
    assert min(total["draws"] for total in found.values()) >= DRAWS
    assert {kind: total["differing"] for kind, total in found.items() if total["differing"]} == {}


# ------------------------------------------------------------------------------------------------------- the numbers


def theirs_drawn(transform, count):
    """Return the steps that torchvision's own generator samples, in pixprep's notation."""
    torch.manual_seed(2)
    image = as_theirs(np.zeros((24, 40, 3), np.uint8), "pillow")
    samples = []

    def note(image, kind, magnitude, **_):
        samples[-1].append((kind, magnitude))
        return image

    transform._apply_image_or_video_transform = note
    for _ in range(count):
        samples.append([])
        transform(image)
    return samples


@pytest.mark.parametrize(
    ("op", "theirs", "another"),
    [
        (pp.rand_augment(), v2.RandAugment(), pp.rand_augment(magnitude=10)),
        (pp.trivial_augment(), v2.TrivialAugmentWide(), pp.rand_augment(1)),
        (pp.auto_augment(), v2.AutoAugment(), pp.auto_augment("originalr")),
        (pp.aug_mix(mixture_width=1), v2.AugMix(mixture_width=1), pp.aug_mix(mixture_width=1, severity=4)),
        (
            pp.aug_mix(severity=9, mixture_width=1, all_ops=False),
            v2.AugMix(9, 1, all_ops=False),
            pp.aug_mix(severity=9, mixture_width=1, all_ops=False, chain_depth=2),
        ),
        (pp.auto_augment("cifar10"), v2.AutoAugment(POLICIES_OF["cifar10"]), pp.auto_augment("svhn")),
        (pp.auto_augment("svhn"), v2.AutoAugment(POLICIES_OF["svhn"]), pp.auto_augment("imagenet")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_steps_and_magnitudes_have_torchvisions_frequencies(op, theirs, another):
    expected = theirs_drawn(theirs, 4000)
    assert chi_square(sampled(op, 4000), expected) < 3.3
    assert chi_square(sampled(another, 4000), expected) > 10


def largest_gap(ours, theirs):
    """Return the Kolmogorov-Smirnov statistic of two samples, relative to the 0.1 % significance threshold."""
    places = np.concatenate([ours, theirs])
    shares = [np.searchsorted(np.sort(sample), places, "right") / len(sample) for sample in (ours, theirs)]
    return abs(shares[0] - shares[1]).max() / (1.949 * (1 / len(ours) + 1 / len(theirs)) ** 0.5)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_weights_have_torchvisions_distribution(alpha):
    """The test compares the distributions of the image's weight, of each chain's weight, of the maximum of these
    weights, and of each chain's fraction of the sum.
    """

    def drawn(alpha, count=4000):
        plan = pipeline_of(pp.aug_mix(alpha=alpha)).for_training().plan
        (step,) = plan.random_steps
        return np.array([step.words(24, 40, n)["weights"] for n in plan.draw(seed=4, epoch=0, indices=range(count))])

    def columns(weights):
        return [*weights.T, weights.max(axis=1), *(weights[:, 1:] / weights[:, 1:].sum(axis=1, keepdims=True)).T]

    torch.manual_seed(5)
    own, chains = (torch._sample_dirichlet(torch.full((4000, count), alpha)).numpy() for count in (2, 3))
    expected = columns(np.column_stack([own[:, 0], chains * own[:, 1:]]))
    gaps, others = (
        [largest_gap(*pair) for pair in zip(columns(weights), expected, strict=True)]
        for weights in (drawn(alpha), drawn(1.5 * alpha))
    )
    print(f"alpha {alpha}: {max(gaps):.2f}; of 1.5 times that {max(others):.2f}")
    assert max(gaps) < 1
    assert max(others) > 1.5
    assert abs(drawn(alpha).sum(axis=1) - 1).max() < 3e-7


@pytest.mark.parametrize("case", [case for case in FROZEN if not case[0].startswith("timm")], ids=" ".join)
def test_the_frozen_results_still_equal_torchvision(case):
    pixels, op, draws, _ = frozen_draws(*case)
    theirs = mixed if case[0] == "aug_mix" else expected_of
    assert digest(np.stack([theirs(pixels, steps, op) for steps in draws])) == FROZEN[case]
