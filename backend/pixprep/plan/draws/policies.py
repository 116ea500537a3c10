"""Implements augmentation policies, which choose random operations and magnitudes from the tables in ``kinds``."""

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
    """Parameters of a policy, and the choice of its operations for an image.

    Attributes:
        table: Table of operations and magnitudes (see ``kinds.KINDS``).
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
