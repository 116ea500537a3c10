"""The certificate: what was compared, how much differs, and whether that is what the pipeline claims."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
StageName = Literal["decode", "resize", "tensor", "end to end", "source"]
Claim = Literal["exact", "near"]

SMALLEST = 2.0**-20
"""Ulps are counted of this value at least: nearer to 0 a subtraction has cancelled what both sides agree on."""


@dataclass(frozen=True)
class Tolerance:
    """How far a stage may be off.

    Attributes:
        largest: of any value, in the unit of the stage: levels, or the tensor's values.
        ulps: beside that, in units in the last place of the original's value.
        why: the reason.
    """

    largest: float
    ulps: int
    why: str

    def allowed(self, expected: Array) -> Array:
        """For each value of the original the largest difference."""
        if not self.ulps:
            return np.full(expected.shape, self.largest)
        size = np.maximum(np.abs(expected), np.asarray(SMALLEST, expected.dtype))
        return np.asarray(self.largest + self.ulps * np.spacing(size).astype(np.float64))

    def __str__(self) -> str:
        if not self.largest:
            return f"{self.ulps} ulp" if self.ulps else "0"
        return f"{self.largest:.3g}" + (f" + {self.ulps} ulp" if self.ulps else "")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One stage against one original.

    Attributes:
        output: of the pipeline; empty for ``decode``, which all share.
        stage: ``decode``: levels; ``resize``: levels after every op of the geometry, of the decoded pixels that
            pixprep has; ``tensor``: its values, of the resized ones that pixprep has; ``end to end``: the tensor, from
            the encoded image, op by op; ``source``: the same by the library's own transform.
        original: the library and its version.
        frozen: compared with frozen vectors, and at their sizes only.
        images, values: how many were compared.
        max, mean: of the differences, in the unit of the stage.
        differing: the share of the values that are not equal.
        worst: the image of the largest difference; None if there is none.
        allowed: the tolerance of what the pipeline claims, and why.
        beyond: how many values are outside of it.
    """

    output: str
    stage: StageName
    original: str
    frozen: bool
    images: int
    values: int
    max: float
    mean: float
    differing: float
    worst: str | None
    allowed: str
    why: str
    beyond: int

    @property
    def holds(self) -> bool:
        """Whether every value is within the tolerance."""
        return self.beyond == 0


class Tally:
    """A row while images are added to it."""

    def __init__(
        self, output: str, stage: StageName, originals: Sequence[str], tolerance: Tolerance, *, frozen: bool = False
    ) -> None:
        original = ", ".join(dict.fromkeys(originals))
        self._head: dict[str, Any] = {"output": output, "stage": stage, "original": original, "frozen": frozen}
        self._tolerance = tolerance
        self.images = self._values = self._differing = self._beyond = 0
        self._sum = self._max = 0.0
        self._worst: str | None = None

    def add(self, image: str, actual: Array, expected: Array) -> None:
        """Compare one image; a shape that differs counts as every value wrong by infinity."""
        self.images += 1
        self._values += actual.size
        if actual.shape != expected.shape:
            difference = np.full(actual.shape, np.inf)
        else:
            difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
            difference[np.isnan(difference)] = np.inf
        if not difference.size:
            return
        allowed = self._tolerance.allowed(expected) if actual.shape == expected.shape else 0
        self._differing += int(np.count_nonzero(difference))
        self._beyond += int(np.count_nonzero(difference > allowed))
        self._sum += float(difference.sum())
        largest = float(difference.max())
        if largest > self._max:
            self._max, self._worst = largest, image

    @property
    def row(self) -> Row:
        """What has come together."""
        values = max(self._values, 1)
        return Row(
            **self._head,
            images=self.images,
            values=self._values,
            max=self._max,
            mean=self._sum / values,
            differing=self._differing / values,
            worst=self._worst,
            allowed=str(self._tolerance),
            why=self._tolerance.why,
            beyond=self._beyond,
        )


@dataclass(frozen=True)
class Absence:
    """An original that was not compared with.

    Attributes:
        library: which.
        problem: why.
        remedy: the command that installs it; empty if that would not help.
        instead: what was done in its place.
    """

    library: str
    problem: str
    remedy: str
    instead: str

    def __str__(self) -> str:
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{self.library}: {self.problem}{remedy}; {self.instead}"


@dataclass(frozen=True)
class Refusal:
    """An image without a comparison: ``by`` refused it, and why."""

    image: str
    by: str
    reason: str

    def __str__(self) -> str:
        return f"{self.image}: not compared, {self.by} refuses it: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What ``verify`` found.

    Attributes:
        claim: ``exact``: no differing level, and the arithmetic that the pipeline declares; ``near``: within the
            tolerance of its resize.
        rows: what was compared, in the order of the data.
        absent: originals that were not to be had.
        refused: images that were not compared.
    """

    claim: Claim
    rows: tuple[Row, ...]
    absent: tuple[Absence, ...]
    refused: tuple[Refusal, ...]

    @property
    def holds(self) -> bool:
        """Whether the pipeline keeps what it claims: what the exit code of ``pixprep verify`` says."""
        return all(row.holds for row in self.rows)

    @property
    def is_exact(self) -> bool:
        """Whether it claims exactness, and keeps it."""
        return self.claim == "exact" and self.holds

    @property
    def summary(self) -> str:
        """One line."""
        for row in self.rows:
            if not row.holds:
                what = "NOT exact" if self.claim == "exact" else "NOT within its tolerance"
                where = f'{row.stage} of "{row.output}"' if row.output else row.stage
                return (
                    f"{what}: {where}: {row.differing:.2%} of the values differ from {row.original}, by up to "
                    f"{row.max:.4g} (allowed: {row.allowed}); worst: {row.worst}"
                )
        if self.is_exact:
            live, frozen = (
                _originals(row for row in self.rows if row.frozen is is_frozen) for is_frozen in (False, True)
            )
            clause = f"as far as frozen results say, those of {frozen}" if frozen else ""
            return "exact: " + ", and ".join(part for part in (live and f"the pixels of {live}", clause) if part)
        row = max((row for row in self.rows if row.stage == "resize"), key=lambda row: (row.allowed, row.max))
        level = "one level" if row.allowed == "1" else f"{row.allowed} levels"
        frozen = ", as far as frozen results say" if row.frozen else ""
        return (
            f"within {level} of {row.original}{frozen}, as claimed: "
            f"{_percent(row.differing)} of the values differ, by up to {row.max:.3g}"
        )

    def to_json(self) -> str:
        """Everything, for programs."""
        document = {
            "claim": self.claim,
            "is_exact": self.is_exact,
            "holds": self.holds,
            "summary": self.summary,
            "rows": [_finite(asdict(row) | {"holds": row.holds}) for row in self.rows],
            "absent": [asdict(absence) for absence in self.absent],
            "refused": [asdict(refusal) for refusal in self.refused],
        }
        return json.dumps(document, indent=2, allow_nan=False) + "\n"

    def __str__(self) -> str:
        table = [("output", "stage", "original", "images", "max", "mean", "differing", "allowed", "worst image")]
        for row in self.rows:
            original = f"{row.original}, frozen" if row.frozen else row.original
            shares = (f"{row.max:.4g}", f"{row.mean:.4g}", _percent(row.differing), row.allowed, row.worst or "-")
            table.append((row.output or "-", row.stage, original, str(row.images), *shares))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        numbers = range(3, 7)
        lines = [
            "  ".join(
                cell.rjust(width) if index in numbers else cell.ljust(width)
                for index, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in table
        ]
        return "\n".join([*lines, "", *map(str, (*self.absent, *self.refused)), self.summary])


def _originals(rows: Iterable[Row]) -> str:
    """Whose pixels were compared; a definition in NumPy has none of its own."""
    names = [row.original for row in rows if row.stage in ("decode", "resize")]
    return ", ".join(name for name in dict.fromkeys(names) if not name.startswith("NumPy"))


def _percent(share: float) -> str:
    """No difference is rounded away."""
    return f"{share:.2%}" if share == 0 or share >= 0.0001 else "<0.01%"


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: null."""
    return {key: None if isinstance(value, float) and not np.isfinite(value) else value for key, value in row.items()}
