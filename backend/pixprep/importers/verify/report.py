"""Certificate of a verification: comparisons, differences, and whether the pipeline stays within its tolerances."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from pixprep.pipeline.differences import in_short
from pixprep.registry import HTML, load

Array = npt.NDArray[Any]
StageName = Literal["decode", "draw", "resize", "levels", "tensor", "end to end"]

SMALLEST = 2.0**-20
"""Minimum magnitude for ulps. Smaller values result from a subtraction in which digits common to both sides cancel."""


@dataclass(frozen=True)
class Tolerance:
    """Tolerance of a stage.

    Attributes:
        largest: Maximum difference of any value, in the unit of the stage: levels, or the tensor's values.
        ulps: Additional tolerance, in units in the last place of the original's value.
        why: Reason for the tolerance.
    """

    largest: float
    ulps: int
    why: str

    def allowed(self, expected: Array) -> Array:
        """Return the maximum allowed difference for each value of the original."""
        if not self.ulps:
            return np.full(expected.shape, self.largest)
        size = np.maximum(np.abs(expected), np.asarray(SMALLEST, expected.dtype))
        return np.asarray(self.largest + self.ulps * np.spacing(size).astype(np.float64))

    def __str__(self) -> str:
        parts = [f"{self.largest:.3g}"] * bool(self.largest) + [f"{self.ulps} ulp"] * bool(self.ulps)
        return " + ".join(parts) or "0"


@dataclass(kw_only=True)
class Row:
    """Comparison of one stage with one original, which accumulates all images.

    Attributes:
        output: Output of the pipeline. Empty for ``decode``, which all outputs share.
        stage: Stage of the comparison. ``decode``: pixel values after decoding. ``draw``: on the training side, the
            tensor, compared with that of ops fixed to the drawn parameters. ``resize``: pixel values after all
            geometric ops, both computed from the pixels that pixprep decoded. ``levels``: pixel values after the color
            ops, both computed from pixprep's result before the first of them. ``tensor``: values of the tensor, both
            computed from pixprep's pixel values. ``end to end``: values of the tensor, both computed from the encoded
            image, op by op.
        original: Names and versions of the libraries.
        tolerance: Tolerance that the pipeline guarantees.
        frozen: Whether the original consists of frozen vectors, which have sizes of their own.
        images, values: Number of images and of values that were compared.
        max, mean: Maximum and mean difference, in the unit of the stage.
        differing: Fraction of the values that are not equal.
        beyond: Number of values outside the tolerance.
        worst: Image with the largest difference. None if all values are equal.
        pair: pixprep's values and the original's for that image, each (height, width, channels).
    """

    output: str
    stage: StageName
    original: str
    tolerance: Tolerance
    frozen: bool = False
    images: int = 0
    values: int = 0
    max: float = 0.0
    mean: float = 0.0
    differing: float = 0.0
    beyond: int = 0
    worst: str | None = None
    pair: tuple[Array, Array] | None = field(default=None, repr=False, compare=False)

    @property
    def holds(self) -> bool:
        """Return whether every value is within the tolerance."""
        return self.beyond == 0

    def add(self, image: str, actual: Array, expected: Array) -> None:
        """Compare one image. If the shapes differ, the difference of every value is infinity."""
        self.images += 1
        if not actual.size:
            return
        difference, allowed = np.full(actual.shape, np.inf), np.zeros(actual.shape)
        if actual.shape == expected.shape:
            difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
            difference[np.isnan(difference)] = np.inf
            allowed = self.tolerance.allowed(expected)
        before, self.values = self.values, self.values + actual.size
        self.mean = (self.mean * before + float(difference.sum())) / self.values
        self.differing = (self.differing * before + int(np.count_nonzero(difference))) / self.values
        self.beyond += int(np.count_nonzero(difference > allowed))
        if difference.max() > self.max:
            self.max, self.worst, self.pair = float(difference.max()), image, (actual, expected)


@dataclass(frozen=True)
class Omission:
    """A library or an image that was not compared.

    Attributes:
        what: Name of the library or image.
        why: Reason why it was not compared.
        instead: Comparison that was made in its place.
        remedy: Command that makes the comparison possible. Empty if no command helps.
    """

    what: str
    why: str
    instead: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}{f' ({self.remedy})' if self.remedy else ''}; {self.instead}"


@dataclass
class Certificate:
    """Findings of ``verify``.

    Attributes:
        rows: Comparisons, in the order of the data.
        absent: Libraries that were not compared with.
        refused: Images that were not compared.
        source: Name of the source that was imported again, with the options of that import. Empty if no source was
            imported.
        differences: Differences of the pipeline from its source, one for each op and each field that differs.
        uncompared: Reason why no op and no field was compared with a source. Empty if all were compared.
        is_imported: Whether the pipeline has an origin, and therefore a source.
    """

    rows: list[Row] = field(default_factory=list)
    absent: list[Omission] = field(default_factory=list)
    refused: list[Omission] = field(default_factory=list)
    source: str = ""
    differences: tuple[str, ...] = ()
    uncompared: str = ""
    is_imported: bool = False

    @property
    def holds(self) -> bool:
        """Return whether every row is within its tolerance. Differences from the source do not count."""
        return all(row.holds for row in self.rows)

    @property
    def is_exact(self) -> bool:
        """Return whether every row holds and the pipeline equals its source.

        The exit code of ``pixprep verify`` depends on this value. An imported pipeline whose source was not read again
        is not exact. A pipeline without an origin does not have a source.
        """
        return self.holds and not self.differences and not (self.uncompared and self.is_imported)

    @property
    def summary(self) -> str:
        """Return a summary in one line."""
        for row in self.rows:
            if not row.holds:
                where = f'{row.stage} of "{row.output}"' if row.output else row.stage
                return (
                    f"NOT exact: {where}: {_percent(row.differing)} of the values differ from {row.original}, by up to "
                    f"{row.max:.4g} (allowed: {row.tolerance}); worst: {row.worst}"
                )
        if self.differences:
            return f"differs from its source {self.source}: {in_short(self.differences)}"
        live, frozen = self._libraries(frozen=False), self._libraries(frozen=True)
        frozen = frozen and f"according to frozen results, the pixels of {frozen}"
        pixels = "; ".join(part for part in (live and f"the pixels of {live}", frozen) if part)
        if self.source:
            return f"exact: every op and every field of {self.source}; {pixels}"
        if self.is_imported:
            return f"not compared with its source, so not exact; op by op {pixels}"
        return f"exact, op by op: {pixels}"

    def _libraries(self, *, frozen: bool) -> str:
        """Return the libraries whose pixel values were compared. Definitions in NumPy do not count."""
        names = [
            row.original for row in self.rows if row.stage in ("decode", "resize", "levels") and row.frozen is frozen
        ]
        return ", ".join(name for name in dict.fromkeys(names) if not name.startswith("NumPy"))

    def to_json(self) -> str:
        """Return the certificate as JSON, with null for infinity."""
        found: dict[str, Any] = {"is_exact": self.is_exact, "summary": self.summary, "source": self.source}
        found |= {"differences": self.differences, "uncompared": self.uncompared}
        rows = [msgspec.to_builtins(replace(row, pair=None)) | {"holds": row.holds} for row in self.rows]
        for row in rows:
            del row["pair"]
        omitted = {"absent": msgspec.to_builtins(self.absent), "refused": msgspec.to_builtins(self.refused)}
        document = found | {"rows": rows} | omitted
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"

    def table(self) -> list[tuple[str, ...]]:
        """Return the header, and the cells of each row."""
        table: list[tuple[str, ...]] = [
            ("output", "stage", "original", "images", "max", "mean", "differing", "allowed", "worst image")
        ]
        for row in self.rows:
            original = f"{row.original}, frozen" if row.frozen else row.original
            numbers = (str(row.images), f"{row.max:.4g}", f"{row.mean:.4g}", _percent(row.differing))
            table.append((row.output or "-", row.stage, original, *numbers, str(row.tolerance), row.worst or "-"))
        return table

    def notes(self) -> list[str]:
        """Return lines about differences from the source, and about omitted comparisons."""
        differing = [f"differs from {self.source}: {each}" for each in self.differences]
        uncompared = [f"the ops and their fields were not compared with a source: {self.uncompared}"] * bool(
            self.uncompared
        )
        return [*differing, *uncompared, *map(str, (*self.absent, *self.refused))]

    def _repr_html_(self) -> str:
        html: str = load(HTML["Certificate"])(self)
        return html

    def __str__(self) -> str:
        table = self.table()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        aligned = ("<", "<", "<", ">", ">", ">", ">", "<", "<")
        lines = [
            "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, aligned, widths, strict=True)).rstrip()
            for line in table
        ]
        return "\n".join([*lines, "", *self.notes(), self.summary])


def _percent(share: float) -> str:
    """Format a fraction as a percentage. A small fraction is never shown as zero."""
    return f"{share:.2%}" if share == 0 or share >= 0.0001 else "<0.01%"
