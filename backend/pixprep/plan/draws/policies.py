"""Augmentation policies: tables of operations, magnitudes and sub-policies, and the random choices from them.

The tables with float32 numbers are those of torchvision v2's ``RandAugment``, ``TrivialAugmentWide``, ``AutoAugment``
and ``AugMix``. The tables with float64 numbers are those of timm's ``auto_augment``. docs/decisions-training.md
describes their details.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import cos, inf, log, sqrt, tau
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import Words, quantiles
from pixprep.plan.profiles import COLOURS
from pixprep.spec import ColorLike

TorchvisionPolicy = Literal["imagenet", "cifar10", "svhn"]
TimmPolicy = Literal["original", "originalr", "v0", "v0r"]
AutoPolicy = Literal[TorchvisionPolicy, TimmPolicy]
Table = Literal["rand", "trivial", "mix", "mix_partial", "timm", "timm_increasing", "timm_weighted"] | AutoPolicy
Magnitude = Callable[[float, int, int, int], float]
"""Function ``(bin, bins, height, width)`` that returns the absolute value of a magnitude.

``bin`` is the index of the magnitude bin, ``bins`` the number of bins, and (height, width) the size of the image.
"""
Choice = tuple[str, float, float | None]
"""Name of an operation, the operation's probability, and its magnitude bin. None means that the bin is random."""
_F32 = np.float32

TIMM: frozenset[Table] = frozenset(("timm", "timm_increasing", "timm_weighted", *get_args(TimmPolicy)))
TIMM_BINS = 11
"""Number of magnitude bins of timm. Its magnitudes range from 0 to 10, and fractions are allowed."""
MOVING = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
"""Geometric operations."""


class Kind(NamedTuple):
    """Operation of a policy.

    Attributes:
        magnitude: Function that returns the magnitude. None means that the operation does not have a magnitude.
        is_signed: Whether the magnitude is negated with a probability of 0.5.
        least: Minimum magnitude. Smaller magnitudes are replaced by the minimum.
    """

    magnitude: Magnitude | None = None
    is_signed: bool = False
    least: float = -inf


def spaced(first: float, last: float, count: int, index: int) -> float:
    """Return element ``index`` of ``torch.linspace(first, last, count)`` in float32.

    As in PyTorch, the element is computed from the nearer end, and rounded to float32 once.
    """
    step = float((_F32(last) - _F32(first)) / _F32(count - 1))
    if index < count // 2:
        return float(_F32(float(_F32(first)) + step * index))
    return float(_F32(float(_F32(last)) - step * (count - 1 - index)))


_BLENDS = ("Brightness", "Color", "Contrast", "Sharpness")


def _to(last: float, *, first: float = 0.0, of: Literal["height", "width"] | None = None) -> Magnitude:
    """Return a function for evenly spaced magnitudes.

    Args:
        last: Magnitude of the last bin.
        first: Magnitude of the first bin.
        of: Side of the image that ``last`` is a fraction of. None means that ``last`` is an absolute value.
    """

    def magnitude(index: float, bins: int, height: int, width: int) -> float:
        return spaced(first, last * {None: 1, "height": height, "width": width}[of], bins, int(index))

    return magnitude


def _bits(last: float, first: float = 8.0) -> Magnitude:
    """Return a function for rounded numbers of bits, from ``first`` in the first bin to ``last`` in the last bin.

    As in torchvision, the numbers are computed by a division instead of ``linspace``.
    """
    return lambda index, bins, *_: round(float(_F32(first) - _F32(int(index)) / _F32((bins - 1) / (first - last))))


def _torchvision(
    *, shear: float, x: Magnitude, y: Magnitude, angle: float, blend: float, bits: float
) -> dict[str, Kind]:
    """Return the operations by name, in torchvision's order.

    Args:
        shear: Maximum shear.
        x: Magnitude of ``TranslateX`` in pixels.
        y: Magnitude of ``TranslateY`` in pixels.
        angle: Maximum angle of ``Rotate`` in degrees.
        blend: Maximum change of the factor of ``Brightness``, ``Color``, ``Contrast`` and ``Sharpness``.
        bits: Minimum number of bits of ``Posterize``.
    """
    return {
        "Identity": Kind(),
        **dict.fromkeys(("ShearX", "ShearY"), Kind(_to(shear), is_signed=True)),
        "TranslateX": Kind(x, is_signed=True),
        "TranslateY": Kind(y, is_signed=True),
        "Rotate": Kind(_to(angle), is_signed=True),
        **dict.fromkeys(_BLENDS, Kind(_to(blend), is_signed=True)),
        "Posterize": Kind(_bits(bits)),
        "Solarize": Kind(_to(0.0, first=1.0)),
        "AutoContrast": Kind(),
        "Equalize": Kind(),
    }


def _posterize_bits(level: float) -> int:
    return int(level / 10.0 * 4)


def _threshold(level: float) -> int:
    return min(256, int(level / 10.0 * 256))


def _timm(*, blend: Kind, bits: Callable[[float], int], threshold: Callable[[float], int]) -> dict[str, Kind]:
    """Return the operations by name, in timm's order. Translations are in pixels.

    Args:
        blend: Definition of ``Brightness``, ``Color``, ``Contrast`` and ``Sharpness``. Their factor is 1 plus the
            magnitude.
        bits: Function that returns the number of bits of ``Posterize`` for a level from 0 to 10.
        threshold: Function that returns the threshold of ``Solarize`` for a level from 0 to 10.
    """
    return {
        "AutoContrast": Kind(),
        "Equalize": Kind(),
        "Invert": Kind(),
        "Rotate": Kind(lambda level, *_: level / 10.0 * 30.0, is_signed=True),
        "Posterize": Kind(lambda level, *_: bits(level)),
        "Solarize": Kind(lambda level, *_: threshold(level)),
        "SolarizeAdd": Kind(lambda level, *_: min(128, int(level / 10.0 * 110))),
        **dict.fromkeys(("Color", "Contrast", "Brightness", "Sharpness"), blend),
        **dict.fromkeys(("ShearX", "ShearY"), Kind(lambda level, *_: level / 10.0 * 0.3, is_signed=True)),
        "TranslateX": Kind(lambda level, _, __, width: level / 10.0 * 0.45 * width, is_signed=True),
        "TranslateY": Kind(lambda level, _, height, __: level / 10.0 * 0.45 * height, is_signed=True),
    }


_BLEND = Kind(lambda level, *_: level / 10.0 * 1.8 + 0.1 - 1.0)
_INCREASING_BLEND = Kind(lambda level, *_: level / 10.0 * 0.9, is_signed=True, least=-0.9)
_TRANSLATION = 150.0 / 331.0
_RAND = _torchvision(
    shear=0.3, x=_to(_TRANSLATION, of="width"), y=_to(_TRANSLATION, of="height"), angle=30.0, blend=0.9, bits=4.0
)
_AUTO = {**dict(list(_RAND.items())[1:]), "Invert": Kind()}  # without Identity
_MIX_PARTIAL = {
    **{name: kind for name, kind in _RAND.items() if name not in ("Identity", *_BLENDS)},
    "TranslateX": Kind(lambda index, bins, _, width: spaced(0.0, width / 3.0, bins, int(index)), is_signed=True),
    "TranslateY": Kind(lambda index, bins, height, _: spaced(0.0, height / 3.0, bins, int(index)), is_signed=True),
    "Posterize": Kind(_bits(0, first=4.0)),
}
_INCREASING = _timm(
    blend=_INCREASING_BLEND,
    bits=lambda level: 4 - _posterize_bits(level),
    threshold=lambda level: 256 - _threshold(level),
)
_TIMM_ORIGINAL = _timm(blend=_BLEND, bits=lambda level: 4 + _posterize_bits(level), threshold=_threshold)
_TIMM_V0 = _timm(blend=_BLEND, bits=_posterize_bits, threshold=_threshold)
_TIMM_RESEARCH = {**_TIMM_V0, "Posterize": _INCREASING["Posterize"]}

KINDS: Mapping[Table, Mapping[str, Kind]] = {
    "rand": _RAND,
    "trivial": _torchvision(shear=0.99, x=_to(32.0), y=_to(32.0), angle=135.0, blend=0.99, bits=2.0),
    **dict.fromkeys(get_args(TorchvisionPolicy), _AUTO),
    "mix": {**_MIX_PARTIAL, **{name: _RAND[name] for name in _BLENDS}},
    "mix_partial": _MIX_PARTIAL,
    "timm": _TIMM_V0,
    **dict.fromkeys(("timm_increasing", "timm_weighted"), _INCREASING),
    "original": _TIMM_ORIGINAL,
    "originalr": _TIMM_RESEARCH,
    "v0": _TIMM_V0,
    "v0r": _TIMM_RESEARCH,
}
"""Operations of each table, by name.

The table ``rand`` belongs to torchvision's ``RandAugment``, ``trivial`` to ``TrivialAugmentWide``, ``mix`` to
``AugMix``, and ``mix_partial`` to ``AugMix`` without ``all_ops``. The tables ``timm...`` belong to timm's
``RandAugment``. Every other table belongs to the ``AutoAugment`` policy of the same name.
"""

WEIGHTS: Mapping[str, float] = {
    "Rotate": 3.0,
    "ShearX": 2.0,
    "ShearY": 2.0,
    "TranslateX": 1.0,
    "TranslateY": 1.0,
    "Color": 0.25,
    "Sharpness": 0.25,
    "AutoContrast": 0.25,
    "Solarize": 0.05,
    "SolarizeAdd": 0.05,
    "Contrast": 0.05,
    "Brightness": 0.05,
    "Equalize": 0.05,
    "Posterize": 0.05,
    "Invert": 0.05,
}
"""Relative probability of each operation of ``timm_weighted``. No operation is chosen twice for an image."""


def _policy(text: str) -> tuple[tuple[Choice, ...], ...]:
    """Parse sub-policies, which are separated by newlines or semicolons.

    A sub-policy consists of two operations, separated by a comma. An operation is written as its name, its probability,
    and optionally its magnitude bin.
    """

    def choice(kind: str, p: str, index: str = "0") -> Choice:
        return kind, float(p), float(index)

    lines = text.replace("\n", ";").split(";")
    return tuple(tuple(choice(*each.split()) for each in line.split(",")) for line in lines)


_IMAGENET = _policy("""Posterize .4 8, Rotate .6 9; Solarize .6 5, AutoContrast .6; Equalize .8, Equalize .6
Posterize .6 7, Posterize .6 6; Equalize .4, Solarize .2 4; Equalize .4, Rotate .8 8; Solarize .6 3, Equalize .6
Posterize .8 5, Equalize 1; Rotate .2 3, Solarize .6 8; Equalize .6, Posterize .4 6; Rotate .8 8, Color .4 0
Rotate .4 9, Equalize .6; Equalize 0, Equalize .8; Invert .6, Equalize 1; Color .6 4, Contrast 1 8
Rotate .8 8, Color 1 2; Color .8 8, Solarize .8 7; Sharpness .4 7, Invert .6; ShearX .6 5, Equalize 1
Color .4 0, Equalize .6; Equalize .4, Solarize .2 4; Solarize .6 5, AutoContrast .6; Invert .6, Equalize 1
Color .6 4, Contrast 1 8; Equalize .8, Equalize .6""")
_V0 = _policy("""Equalize .8, ShearY .8 4; Color .4 9, Equalize .6; Color .4 1, Rotate .6 8; Solarize .8 3, Equalize .4
Solarize .4 2, Solarize .6 2; Color .2 0, Equalize .8; Equalize .4, SolarizeAdd .8 3; ShearX .2 9, Rotate .6 8
Color .6 1, Equalize 1; Invert .4, Rotate .6 0; Equalize 1, ShearY .6 3; Color .4 7, Equalize .6
Posterize .4 6, AutoContrast .4; Solarize .6 8, Color .6 9; Solarize .2 4, Rotate .8 9; Rotate 1 7, TranslateY .8 9
ShearX 0 0, Solarize .8 4; ShearY .8 0, Color .6 4; Color 1 0, Rotate .6 2; Equalize .8, Equalize 0
Equalize 1, AutoContrast .6; ShearY .4 7, SolarizeAdd .6 7; Posterize .8 2, Solarize .6 10; Solarize .6 8, Equalize .6
Color .8 6, Rotate .4 5""")
POLICIES: Mapping[Table, tuple[tuple[Choice, ...], ...]] = {
    **dict.fromkeys(("imagenet", "original", "originalr"), _IMAGENET),
    **dict.fromkeys(("v0", "v0r"), _V0),
    "cifar10": _policy("""Invert .1, Contrast .2 6; Rotate .7 2, TranslateX .3 9; Sharpness .8 1, Sharpness .9 3
ShearY .5 8, TranslateY .7 9; AutoContrast .5, Equalize .9; ShearY .2 7, Posterize .3 7; Color .4 3, Brightness .6 7
Sharpness .3 9, Brightness .7 9; Equalize .6, Equalize .5; Contrast .6 7, Sharpness .6 5; Color .7 7, TranslateX .5 8
Equalize .3, AutoContrast .4; TranslateY .4 3, Sharpness .2 6; Brightness .9 6, Color .2 8; Solarize .5 2, Invert 0
Equalize .2, AutoContrast .6; Equalize .2, Equalize .6; Color .9 9, Equalize .6; AutoContrast .8, Solarize .2 8
Brightness .1 3, Color .7 0; Solarize .4 5, AutoContrast .9; TranslateY .9 9, TranslateY .7 9
AutoContrast .9, Solarize .8 3; Equalize .8, Invert .1; TranslateY .7 9, AutoContrast .9"""),
    "svhn": _policy("""ShearX .9 4, Invert .2; ShearY .9 8, Invert .7; Equalize .6, Solarize .6 6
Invert .9, Equalize .6
Equalize .6, Rotate .9 3; ShearX .9 4, AutoContrast .8; ShearY .9 8, Invert .4; ShearY .9 5, Solarize .2 6
Invert .9, AutoContrast .8; Equalize .6, Rotate .9 3; ShearX .9 4, Solarize .3 3; ShearY .8 8, Invert .7
Equalize .9, TranslateY .6 6; Invert .9, Equalize .6; Contrast .3 3, Rotate .8 4; Invert .8, TranslateY 0 2
ShearY .7 6, Solarize .4 8; Invert .6, Rotate .8 4; ShearY .3 7, TranslateX .9 3; ShearX .1 6, Invert .6
Solarize .7 2, TranslateY .6 7; ShearY .8 4, Invert .8; ShearX .7 9, TranslateY .8 3; ShearY .8 5, AutoContrast .7
ShearX .7 2, Invert .1"""),
}
"""Sub-policies of each ``AutoAugment`` policy. One is chosen per image, and its operations are applied in order."""


class Rules(NamedTuple):
    """Parameters of a policy, and the choice of its operations for an image.

    Attributes:
        table: Table of operations and magnitudes (see ``KINDS``).
        steps: Number of operations per image. For sub-policies, it is two.
        magnitude: Magnitude bin of all operations. None means that the bin of each operation is random, or that the
            sub-policies specify the bins.
        bins: Number of magnitude bins.
        p: Probability with which each chosen operation is applied. It is ignored if there are sub-policies, because
            they specify the probabilities.
        std: Standard deviation of the normally distributed noise that timm's policies add to the magnitude bin. inf
            means that the bin is uniformly distributed from 0 to ``magnitude``.
        most: Maximum magnitude bin of timm's policies.
    """

    table: Table
    steps: int
    magnitude: float | None
    bins: int
    p: float = 1.0
    std: float = 0.0
    most: float = inf

    def drawn(self, rows: Sequence[Sequence[float]], height: int, width: int) -> list[Words]:
        """Choose the operations for an image, with their magnitudes.

        Args:
            rows: Uniform random numbers in [0, 1), one row per operation. They determine the operation, its magnitude,
                its sign, whether it is applied, and optionally the filter.
            height: Height of the image in pixels.
            width: Width of the image in pixels.

        Returns:
            Parameters of the operations, such as
            ``[{"op": "ShearX", "magnitude": -0.09, "filter": "bicubic"}, {"op": "Equalize"}]``.
        """
        chosen: list[Words] = []
        for (name, p, index), (_, u_bin, u_sign, u_apply, *u_filter) in zip(self._chosen(rows), rows, strict=True):
            if u_apply >= p:
                continue
            kind = KINDS[self.table][name]
            words: dict[str, str | float] = {"op": name}
            if kind.magnitude is not None:
                size = kind.magnitude(self._index(index, u_bin), self.bins, height, width)
                words["magnitude"] = max(kind.least, 0.0 - size if kind.is_signed and u_sign < 0.5 else size)
            if u_filter and name in MOVING:
                words["filter"] = "bilinear" if u_filter[0] < 0.5 else "bicubic"
            chosen.append(words)
        return chosen

    def _chosen(self, rows: Sequence[Sequence[float]]) -> Sequence[Choice]:
        """Return the chosen operations: those of one sub-policy, or one operation per row."""
        if policies := POLICIES.get(self.table):
            return policies[int(rows[0][0] * len(policies))]
        names = list(KINDS[self.table])
        if self.table != "timm_weighted":
            return [(names[int(u * len(names))], self.p, self.magnitude) for u, *_ in rows]
        found: list[Choice] = []
        for u, *_ in rows:  # sample without replacement
            sums = np.cumsum([WEIGHTS[name] for name in names])
            name = names.pop(int(np.searchsorted(sums, u * sums[-1], "right")))
            found.append((name, self.p, self.magnitude))
        return found

    def _index(self, index: float | None, uniform: float) -> float:
        """Return the magnitude bin of an operation, from its specified bin and a uniform random number."""
        if index is None:
            return int(uniform * self.bins)
        if self.std == inf:
            index *= uniform
        elif self.std:
            index += self.std * float(quantiles()[int(uniform * 65536)])
        return max(0.0, min(index, self.most))

    def __str__(self) -> str:
        spread = f" with standard deviation {self.std:g}" if 0 < self.std < inf else ""
        if policies := POLICIES.get(self.table):
            noise = f", magnitudes{spread}" if spread else ""
            return f"apply one of the {len(policies)} sub-policies of the policy {self.table}{noise}"
        upto = "0 to " if self.std == inf else ""
        how = "random magnitude" if self.magnitude is None else f"magnitude {upto}{self.magnitude:g}{spread}"
        some = "" if self.p == 1 else f", each with probability {self.p:g}"
        name = {"rand": "RandAugment", "trivial": "TrivialAugmentWide"}.get(self.table, f"RandAugment ({self.table})")
        choice = f"{self.steps} of {name}'s {len(KINDS[self.table])} operations"
        return f"apply {choice}{some}, {how} (of 0 to {self.bins - 1})"


def shares(parts: Sequence[float]) -> npt.NDArray[np.float32]:
    """Divide numbers by their sum, and round the results to float32."""
    return (np.array(parts) / sum(parts)).astype(np.float32)


def gammas(alpha: float, uniforms: Uniforms, begin: int, count: int) -> list[float]:
    """Sample ``count`` numbers from the gamma distribution of shape ``alpha``.

    If the numbers are divided by their sum, the results are a sample of the symmetric Dirichlet distribution.

    The method is that of Marsaglia and Tsang, "A simple method for generating gamma variables" (2000): a variable of
    shape ``alpha + 1`` is multiplied by ``U ** (1 / alpha)``. A trial uses one block of four uniform random numbers per
    variable: two for a normal variable (Box-Muller), one for the acceptance test, and U. On average, 19 of 20 trials
    are accepted. If 16 trials are rejected, which has a probability of 10^-20, the mean of the distribution is used.

    Args:
        alpha: Shape of the distribution.
        uniforms: Function that returns the blocks of uniform random numbers.
        begin: Index of the first block.
        count: Number of variables.
    """
    large = alpha + 1 - 1 / 3
    made: dict[int, float] = {}
    for trial in range(16):
        for index, row in enumerate(uniforms(begin + trial * count, count).tolist()):
            radius, angle, u_accept, u = row
            normal = sqrt(-2 * log(1 - radius)) * cos(tau * angle)
            cube = (1 + normal / sqrt(9 * large)) ** 3
            if index not in made and cube > 0 and log(1 - u_accept) < normal**2 / 2 + large * (1 - cube + log(cube)):
                made[index] = large * cube * (1 - u) ** (1 / alpha)
        if len(made) == count:
            break
    return [made.get(index, alpha) for index in range(count)]


def threshold_of(table: Table, magnitude: float, like: ColorLike) -> float:
    """Return the threshold of ``Solarize`` for a magnitude. Pixel values greater than or equal to it are inverted."""
    return magnitude if table in TIMM else COLOURS[like].threshold(255 * magnitude)
