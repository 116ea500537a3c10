"""Policies: which steps on levels are done to an image, and how strong, by the tables of ``kinds``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import atan, cos, degrees, inf, log, sqrt, tau
from typing import ClassVar, cast

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError
from pixprep.plan.draws.augments import Augment
from pixprep.plan.draws.erasing import quantiles
from pixprep.plan.draws.kinds import KINDS, POLICIES, TIMM, WEIGHTS, Choice, Table
from pixprep.plan.draws.philox import F64, Numbers, Words
from pixprep.plan.draws.warps import Look, Motion, mapped, rotated
from pixprep.plan.steps import levels
from pixprep.plan.steps.levels import Blend, Filter, LevelStep, Mix, Tone
from pixprep.plan.steps.warps import Matrix, Warp
from pixprep.spec import ColorLike

_TIMM_MATRIX = (("", 1.0), ("ShearX", 0.0), ("TranslateX", 0.0), ("ShearY", 0.0), ("", 1.0), ("TranslateY", 0.0))
"""Matrix of timm's warps: the step whose magnitude stands there, and the number where it is another step."""


@dataclass(frozen=True, kw_only=True)
class Policy(Augment):
    """Steps that are chosen for each image, one after the other.

    Attributes:
        table: whose kinds and magnitudes, see ``kinds.KINDS``.
        count: of steps; of sub-policies two.
        magnitude: the bin of every step that is chosen by itself; None: drawn.
        bins: how many magnitudes a kind has.
        look: how a step moves pixels; ``like`` is whose rounding every step has.
        p: how often a step that is chosen by itself is done.
        std: the standard deviation of a bin, of timm's; inf: it is uniform, from 0.
        most: of timm's: the highest bin.
    """

    table: Table
    count: int
    magnitude: float | None
    bins: int
    look: Look
    p: float = 1.0
    std: float = 0.0
    most: float = inf

    @property
    def blocks(self) -> int:
        """One a step: which, how strong, its sign, and whether."""
        return self.count

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """The steps: ``{"ops": [{"op": "ShearX", "magnitude": -0.09}, {"op": "Equalize"}]}``."""
        del boxes
        rows = numbers.blocks(self.key, 0, self.count).tolist() if self.count else []
        return {"ops": self._drawn(rows, height, width)}

    def _drawn(self, rows: Sequence[Sequence[float]], height: int, width: int) -> list[Words]:
        """Steps that numbers make."""
        chosen: list[Words] = []
        for (name, p, index), (_, place, sign, whether) in zip(self._chosen(rows), rows, strict=True):
            if whether >= p:
                continue
            kind = KINDS[self.table][name]
            words: dict[str, str | float] = {"op": name}
            if kind.magnitude is not None:
                size = kind.magnitude(self._index(index, place), self.bins, height, width)
                words["magnitude"] = max(kind.least, 0.0 - size if kind.is_signed and sign < 0.5 else size)
            chosen.append(words)
        return chosen

    def _chosen(self, rows: Sequence[Sequence[float]]) -> Sequence[Choice]:
        """Choices: the parts of a sub-policy, or as many kinds as there are rows."""
        if policies := POLICIES.get(self.table):
            return policies[int(rows[0][0] * len(policies))]
        names = list(KINDS[self.table])
        if self.table != "timm_weighted":
            return [(names[int(which * len(names))], self.p, self.magnitude) for which, *_ in rows]
        found: list[Choice] = []
        for which, *_ in rows:  # none twice
            sums = np.cumsum([WEIGHTS[name] for name in names])
            name = names.pop(int(np.searchsorted(sums, which * sums[-1], "right")))
            found.append((name, self.p, self.magnitude))
        return found

    def _index(self, index: float | None, uniform: float) -> float:
        """Bin of a step."""
        if index is None:
            return int(uniform * self.bins)
        if self.std == inf:
            index *= uniform
        elif self.std:
            index += self.std * float(quantiles()[int(uniform * 65536)])
        return max(0.0, min(index, self.most))

    def steps(self, words: Words, height: int, width: int) -> tuple[LevelStep, ...]:
        """Steps for an image of this size."""
        those = (self._steps(each["op"], each.get("magnitude", 0.0), height, width) for each in words["ops"])
        return tuple(step for steps in those for step in steps)

    def _steps(self, name: str, magnitude: float, height: int, width: int) -> tuple[LevelStep, ...]:
        if name not in KINDS[self.table]:
            raise PipelineError(f'no draw of a policy is "{name}"; there are {", ".join(KINDS[self.table])}')
        like, is_x = self.look.like, name.endswith("X")
        match name:
            case "ShearX" | "ShearY" | "TranslateX" | "TranslateY" if self.table in TIMM:
                matrix = cast("Matrix", tuple(magnitude if each == name else one for each, one in _TIMM_MATRIX))
                size = (height, width)
                return (Warp(matrix, size, 0, 0, *size, self.look.fill, self.look.filter, like),)
            case "ShearX" | "ShearY":  # torchvision shears by an angle, about the first pixel
                angle = degrees(atan(magnitude))
                shear = (angle, 0.0) if is_x else (0.0, angle)
                return (mapped(height, width, Motion(shear=shear), replace(self.look, center=(0.0, 0.0))),)
            case "TranslateX" | "TranslateY":
                pixels = int(magnitude)
                return (mapped(height, width, Motion(translate=(pixels, 0) if is_x else (0, pixels)), self.look),)
            case "Rotate":
                return rotated(height, width, magnitude, self.look)
            case "Brightness":
                return (levels.brightness(1.0 + magnitude, like),)
            case "Color":
                return (Blend("own", 1.0 + magnitude, like),)
            case "Contrast":
                return (Blend("mean", 1.0 + magnitude, like),)
            case "Sharpness":
                return (Filter("sharpness", like, 1.0 + magnitude),)
            case "Posterize":
                return (levels.posterize(min(8, int(magnitude))),)  # timm's may be 12, and 0, which is black
            case "Solarize":
                return (levels.solarize(threshold_of(self.table, magnitude, like)),)
            case "SolarizeAdd":
                return (levels.solarize_add(int(magnitude), 128),)
            case "AutoContrast":
                return (Tone("autocontrast", like),)
            case "Equalize":
                return (Tone("equalize", "pillow"),)
            case "Invert":
                return (levels.inverted(),)
        return ()

    def __str__(self) -> str:
        spread = f", give or take {self.std:g}" if 0 < self.std < inf else ""
        if policies := POLICIES.get(self.table):
            return f"do one of the {len(policies)} pairs of steps of the policy {self.table}{spread}{self.look}"
        upto = "0 to " if self.std == inf else ""
        how = "any strength" if self.magnitude is None else f"strength {upto}{self.magnitude:g}{spread}"
        some = "" if self.p == 1 else f", each in {self.p:g} of the images"
        name = {"rand": "RandAugment", "trivial": "TrivialAugmentWide"}.get(self.table, f"RandAugment ({self.table})")
        steps = f"{self.count} of {name}'s {len(KINDS[self.table])} steps"
        return f"do {steps}{some}, {how} of 0 to {self.bins - 1}{self.look}"


@dataclass(frozen=True, kw_only=True)
class AugMix(Policy):
    """Chains of steps, each begun with the same image, and the sum of it and of them all.

    Attributes:
        count: of the steps of a chain; see ``is_deep``.
        width: number of chains.
        is_deep: every chain has ``count`` steps; else 1 to ``count``, as often.
        alpha: of Dirichlet's distribution, which the weights have.
    """

    width: int
    is_deep: bool
    alpha: float
    moves: ClassVar[bool] = False  # what it moves is added to what it does not

    @property
    def blocks(self) -> int:
        """One a step, the last number of a chain's first how many it has; one or more for each weight."""
        return self.width * (self.count + 1) + 2

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """``{"weights": [0.5, 0.2, 0.3], "chains": [[{"op": "Equalize"}], [{"op": "Rotate", "magnitude": 3.3}]]}``.

        The first weight is of the image itself.
        """
        del boxes
        rows = numbers.blocks(self.key, 0, self.width * self.count).tolist()
        chains = []
        for begin in range(0, len(rows), self.count):
            depth = self.count if self.is_deep else 1 + int(rows[begin][3] * self.count)
            chains.append(self._drawn(rows[begin : begin + depth], height, width))
        parts = gammas(self.alpha, numbers, self.key, len(rows), 2 + self.width)
        own, shared = _shares(parts[:2])
        return {"weights": [float(own), *(_shares(parts[2:]) * shared).tolist()], "chains": chains}

    def steps(self, words: Words, height: int, width: int) -> tuple[LevelStep, ...]:
        """One step, which has them all."""
        chains = (levels.folded(super(AugMix, self).steps({"ops": chain}, height, width)) for chain in words["chains"])
        return (Mix(tuple(words["weights"]), tuple(chains)),)

    def __str__(self) -> str:
        steps = self.count if self.is_deep else f"1 to {self.count}"
        kinds = f"AugMix's {len(KINDS[self.table])} steps, any of the {self.magnitude:g} least of {self.bins} strengths"
        return f"add the image and {self.width} chains of {steps} of {kinds}{self.look}"


def _shares(parts: Sequence[float]) -> npt.NDArray[np.float32]:
    """Each part of their sum."""
    return (np.array(parts) / sum(parts)).astype(np.float32)


def gammas(alpha: float, numbers: Numbers, key: str, begin: int, count: int) -> list[float]:
    """Numbers of the gamma distribution of shape ``alpha``, whose shares of their sum are Dirichlet's.

    Marsaglia and Tsang, "A simple method for generating gamma variables" (2000): of the shape ``alpha + 1``, times
    ``U ** (1 / alpha)``. A trial takes a block for each number: Box and Muller's two uniforms of a normal one, whether,
    and U. Of 20 trials 19 succeed; after 16 that fail, as once in 10^20, a number is its mean.
    """
    large = alpha + 1 - 1 / 3
    made: dict[int, float] = {}
    for trial in range(16):
        for place, row in enumerate(numbers.blocks(key, begin + trial * count, count).tolist()):
            radius, angle, whether, share = row
            normal = sqrt(-2 * log(1 - radius)) * cos(tau * angle)
            cube = (1 + normal / sqrt(9 * large)) ** 3
            if place not in made and cube > 0 and log(1 - whether) < normal**2 / 2 + large * (1 - cube + log(cube)):
                made[place] = large * cube * (1 - share) ** (1 / alpha)
        if len(made) == count:
            break
    return [made.get(place, alpha) for place in range(count)]


def threshold_of(table: Table, magnitude: float, like: ColorLike) -> float:
    """Level from which a ``Solarize`` inverts; torchvision compares levels of tensors with a float32."""
    if table in TIMM:
        return magnitude
    return float(np.float32(255 * magnitude)) if like == "torchvision" else 255 * magnitude
