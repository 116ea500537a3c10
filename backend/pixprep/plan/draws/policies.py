"""Policies choose steps on pixel values and their magnitudes for each image, with the tables of ``kinds``."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, inf, log, sqrt, tau
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.kinds import KINDS, MOVING, POLICIES, TIMM, WEIGHTS, Choice, Table
from pixprep.plan.draws.philox import Words, quantiles
from pixprep.plan.profiles import COLOURS
from pixprep.spec import ColorLike


class Rules(NamedTuple):
    """Rules that choose the steps of a policy in order.

    Attributes:
        table: Table of kinds and magnitudes (see ``kinds.KINDS``).
        steps: Number of steps; sub-policies have two.
        magnitude: Bin of every step that is chosen by itself; None: The bin is drawn.
        bins: Number of magnitudes of a kind.
        p: Probability of a step that is chosen by itself.
        std: Standard deviation of the bin in timm's policies; inf: The bin is uniform from 0.
        most: Maximum bin in timm's policies.
    """

    table: Table
    steps: int
    magnitude: float | None
    bins: int
    p: float = 1.0
    std: float = 0.0
    most: float = inf

    def drawn(self, rows: Sequence[Sequence[float]], height: int, width: int) -> list[Words]:
        """Return the steps for the random numbers.

        Each row makes one step. It contains the numbers for the kind, the magnitude, the sign and the probability, and
        optionally for the filter. Example:
        ``[{"op": "ShearX", "magnitude": -0.09, "filter": "bicubic"}, {"op": "Equalize"}]``.
        """
        chosen: list[Words] = []
        for (name, p, index), (_, place, sign, whether, *which) in zip(self._chosen(rows), rows, strict=True):
            if whether >= p:
                continue
            kind = KINDS[self.table][name]
            words: dict[str, str | float] = {"op": name}
            if kind.magnitude is not None:
                size = kind.magnitude(self._index(index, place), self.bins, height, width)
                words["magnitude"] = max(kind.least, 0.0 - size if kind.is_signed and sign < 0.5 else size)
            if which and name in MOVING:
                words["filter"] = "bilinear" if which[0] < 0.5 else "bicubic"
            chosen.append(words)
        return chosen

    def _chosen(self, rows: Sequence[Sequence[float]]) -> Sequence[Choice]:
        """Return the choices: the parts of a sub-policy, or one kind per row."""
        if policies := POLICIES.get(self.table):
            return policies[int(rows[0][0] * len(policies))]
        names = list(KINDS[self.table])
        if self.table != "timm_weighted":
            return [(names[int(which * len(names))], self.p, self.magnitude) for which, *_ in rows]
        found: list[Choice] = []
        for which, *_ in rows:  # no kind is chosen twice
            sums = np.cumsum([WEIGHTS[name] for name in names])
            name = names.pop(int(np.searchsorted(sums, which * sums[-1], "right")))
            found.append((name, self.p, self.magnitude))
        return found

    def _index(self, index: float | None, uniform: float) -> float:
        """Return the bin of a step."""
        if index is None:
            return int(uniform * self.bins)
        if self.std == inf:
            index *= uniform
        elif self.std:
            index += self.std * float(quantiles()[int(uniform * 65536)])
        return max(0.0, min(index, self.most))

    def __str__(self) -> str:
        spread = f", give or take {self.std:g}" if 0 < self.std < inf else ""
        if policies := POLICIES.get(self.table):
            return f"do one of the {len(policies)} pairs of steps of the policy {self.table}{spread}"
        upto = "0 to " if self.std == inf else ""
        how = "any strength" if self.magnitude is None else f"strength {upto}{self.magnitude:g}{spread}"
        some = "" if self.p == 1 else f", each in {self.p:g} of the images"
        name = {"rand": "RandAugment", "trivial": "TrivialAugmentWide"}.get(self.table, f"RandAugment ({self.table})")
        choice = f"{self.steps} of {name}'s {len(KINDS[self.table])} steps"
        return f"do {choice}{some}, {how} of 0 to {self.bins - 1}"


def shares(parts: Sequence[float]) -> npt.NDArray[np.float32]:
    """Return each part divided by the sum of all parts."""
    return (np.array(parts) / sum(parts)).astype(np.float32)


def gammas(alpha: float, uniforms: Uniforms, begin: int, count: int) -> list[float]:
    """Return numbers of the gamma distribution of shape ``alpha``; divided by their sum, they have a Dirichlet one.

    The method is Marsaglia and Tsang, "A simple method for generating gamma variables" (2000): a variable with the
    shape ``alpha + 1`` is multiplied by ``U ** (1 / alpha)``. A trial reads one block per number: two uniform numbers
    for Box and Muller's normal number, one for the acceptance, and U. On average, 19 of 20 trials succeed. After 16
    failed trials, which happens once in 10^20, the mean replaces the number.
    """
    large = alpha + 1 - 1 / 3
    made: dict[int, float] = {}
    for trial in range(16):
        for place, row in enumerate(uniforms(begin + trial * count, count).tolist()):
            radius, angle, whether, share = row
            normal = sqrt(-2 * log(1 - radius)) * cos(tau * angle)
            cube = (1 + normal / sqrt(9 * large)) ** 3
            if place not in made and cube > 0 and log(1 - whether) < normal**2 / 2 + large * (1 - cube + log(cube)):
                made[place] = large * cube * (1 - share) ** (1 / alpha)
        if len(made) == count:
            break
    return [made.get(place, alpha) for place in range(count)]


def threshold_of(table: Table, magnitude: float, like: ColorLike) -> float:
    """Return the pixel value from which a ``Solarize`` inverts."""
    return magnitude if table in TIMM else COLOURS[like].threshold(255 * magnitude)
