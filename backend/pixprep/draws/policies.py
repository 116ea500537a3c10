"""Policies: which steps on levels are done to an image, and how strong, by the tables of ``kinds``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import atan, degrees, inf
from typing import ClassVar, cast

import numpy as np

from pixprep.draws.erasing import quantiles
from pixprep.draws.kinds import KINDS, POLICIES, TIMM, WEIGHTS, Choice, Table
from pixprep.draws.philox import F64, Numbers, Words
from pixprep.draws.warps import Look, Motion, mapped, rotated
from pixprep.errors import PipelineError
from pixprep.spec import ColorLike
from pixprep.steps import levels
from pixprep.steps.levels import Blend, Filter, LevelStep, Matrix, Tone, Warp

_TIMM_MATRIX = (("", 1.0), ("ShearX", 0.0), ("TranslateX", 0.0), ("ShearY", 0.0), ("", 1.0), ("TranslateY", 0.0))
"""Matrix of timm's warps: the step whose magnitude stands there, and the number where it is another step."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Steps that are chosen for each image, one after the other.

    Attributes:
        key: names its numbers.
        table: whose kinds and magnitudes, see ``kinds.KINDS``.
        count: of steps; of sub-policies two.
        magnitude: the bin of every step that is chosen by itself; None: drawn.
        bins: how many magnitudes a kind has.
        look: how a step moves pixels; ``like`` is whose rounding every step has.
        p: how often a step that is chosen by itself is done.
        std: of timm's: the standard deviation of a bin; inf: it is uniform, from 0.
        most: of timm's: the highest bin.
    """

    key: str
    table: Table
    count: int
    magnitude: float | None
    bins: int
    look: Look
    p: float = 1.0
    std: float = 0.0
    most: float = inf
    is_pointwise: ClassVar[bool] = False
    keeps_places: ClassVar[bool] = False

    @property
    def blocks(self) -> int:
        """One a step: which, how strong, its sign, and whether."""
        return self.count

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """The steps: ``{"ops": [{"op": "ShearX", "magnitude": -0.09}, {"op": "Equalize"}]}``."""
        del boxes
        rows = numbers.blocks(self.key, 0, self.count).tolist() if self.count else []
        chosen = []
        for (name, p, index), (_, place, sign, whether) in zip(self._chosen(rows), rows, strict=True):
            if whether >= p:
                continue
            kind = KINDS[self.table][name]
            words: dict[str, str | float] = {"op": name}
            if kind.magnitude is not None:
                size = kind.magnitude(self._index(index, place), self.bins, height, width)
                words["magnitude"] = max(kind.least, 0.0 - size if kind.is_signed and sign < 0.5 else size)
            chosen.append(words)
        return {"ops": chosen}

    def _chosen(self, rows: Sequence[Sequence[float]]) -> Sequence[Choice]:
        """What is done: the parts of a sub-policy, or as many kinds as there are rows."""
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


def threshold_of(table: Table, magnitude: float, like: ColorLike) -> float:
    """Level from which a ``Solarize`` inverts; torchvision compares levels of tensors with a float32."""
    if table in TIMM:
        return magnitude
    return float(np.float32(255 * magnitude)) if like == "torchvision" else 255 * magnitude
