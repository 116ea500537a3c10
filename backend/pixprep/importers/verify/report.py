"""Result of a verification: the comparisons, the differences, and whether all values are within their tolerances."""

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
"""Minimum magnitude for which ulps are computed.

A smaller value is the difference of two nearly equal numbers, so that its last digits are not significant.
"""


@dataclass(frozen=True)
class Tolerance:
    """Maximum difference between the values of pixprep and those of the original library.

    Attributes:
        largest: Maximum absolute difference, in pixel values or in values of the tensor.
        ulps: Additional difference, in units in the last place (ulps) of the original's value.
        why: Reason why the values can differ.
    """

    largest: float
    ulps: int
    why: str

    def allowed(self, expected: Array) -> Array:
        """Return the maximum difference for each of the original's values, as an array of the same shape."""
        if not self.ulps:
            return np.full(expected.shape, self.largest)
        size = np.maximum(np.abs(expected), np.asarray(SMALLEST, expected.dtype))
        return np.asarray(self.largest + self.ulps * np.spacing(size).astype(np.float64))

    def __str__(self) -> str:
        parts = [f"{self.largest:.3g}"] * bool(self.largest) + [f"{self.ulps} ulp"] * bool(self.ulps)
        return " + ".join(parts) or "0"


@dataclass(kw_only=True)
class Row:
    """Comparison of a stage with the original library, for all images.

    Attributes:
        output: Name of the output, or an empty string for ``decode``, which is common to all outputs.
        stage: Values that are compared. ``decode``: pixel values after decoding. ``draw``: the tensor of the training
            ops, compared with that of deterministic ops with the same parameters. ``resize``: pixel values after all
            geometric ops, computed from the pixels that pixprep decoded. ``levels``: pixel values after the colour ops,
            computed from pixprep's pixels before the first of them. ``tensor``: the tensor, computed from pixprep's
            pixel values. ``end to end``: the tensor, computed from the encoded image.
        original: Names and versions of the libraries, separated by commas.
        tolerance: Maximum difference that the pipeline guarantees.
        frozen: Whether the values are compared with stored results, instead of an installed library.
        images: Number of images that were compared.
        values: Number of values that were compared.
        max: Maximum absolute difference, in pixel values or in values of the tensor.
        mean: Mean absolute difference, in the same unit.
        differing: Fraction of the values that are not equal, 0 to 1.
        beyond: Number of values whose difference exceeds the tolerance.
        worst: Name of the image with the largest difference. None if all values are equal.
        pair: Values of pixprep and of the original for that image, as arrays of shape (height, width, channels).
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
        """Return whether all values are within the tolerance."""
        return self.beyond == 0

    def add(self, image: str, actual: Array, expected: Array) -> None:
        """Compare one image. If the shapes differ, all differences are infinite.

        Args:
            image: Name of the image.
            actual: Values of pixprep.
            expected: Values of the original.
        """
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
    """Library or image that was not compared.

    Attributes:
        what: Name of the library or image.
        why: Reason why it was not compared.
        instead: Comparison that was done instead.
        remedy: Command that makes the comparison possible, or an empty string.
    """

    what: str
    why: str
    instead: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}{f' ({self.remedy})' if self.remedy else ''}; {self.instead}"


@dataclass
class Certificate:
    """Result of ``verify``.

    Attributes:
        rows: Comparisons, in the order of the pipeline's stages.
        absent: Libraries that were not used.
        refused: Images that were not compared.
        source: Name of the source that was imported again, with the options of the import. Empty if the source was not
            imported.
        differences: Differences between the pipeline and its source, as one sentence for each op or field that differs.
        uncompared: Reason why the pipeline was not compared with a source. Empty if it was compared.
        is_imported: Whether the pipeline was imported, and therefore has a source.
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
        """Return whether all values are within their tolerances, regardless of differences from the source."""
        return all(row.holds for row in self.rows)

    @property
    def is_exact(self) -> bool:
        """Return whether all values are within their tolerances and the pipeline equals its source.

        The exit status of ``pixprep verify`` depends on this value. An imported pipeline that was not compared with its
        source is not exact. A pipeline that was not imported does not have a source, and can be exact.
        """
        return self.holds and not self.differences and not (self.uncompared and self.is_imported)

    @property
    def summary(self) -> str:
        """Return a one-line summary."""
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
        """Return the names of the libraries that were compared.

        NumPy is not included, because it computes ops from their definitions.
        """
        names = [
            row.original for row in self.rows if row.stage in ("decode", "resize", "levels") and row.frozen is frozen
        ]
        return ", ".join(name for name in dict.fromkeys(names) if not name.startswith("NumPy"))

    def to_json(self) -> str:
        """Return the certificate as JSON. Infinite numbers become null."""
        found: dict[str, Any] = {"is_exact": self.is_exact, "summary": self.summary, "source": self.source}
        found |= {"differences": self.differences, "uncompared": self.uncompared}
        rows = [msgspec.to_builtins(replace(row, pair=None)) | {"holds": row.holds} for row in self.rows]
        for row in rows:
            del row["pair"]
        omitted = {"absent": msgspec.to_builtins(self.absent), "refused": msgspec.to_builtins(self.refused)}
        document = found | {"rows": rows} | omitted
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"

    def table(self) -> list[tuple[str, ...]]:
        """Return the table of the certificate as rows of cells. The first row is the header."""
        table: list[tuple[str, ...]] = [
            ("output", "stage", "original", "images", "max", "mean", "differing", "allowed", "worst image")
        ]
        for row in self.rows:
            original = f"{row.original}, frozen" if row.frozen else row.original
            numbers = (str(row.images), f"{row.max:.4g}", f"{row.mean:.4g}", _percent(row.differing))
            table.append((row.output or "-", row.stage, original, *numbers, str(row.tolerance), row.worst or "-"))
        return table

    def notes(self) -> list[str]:
        """Return one line for each difference from the source and each omitted comparison."""
        differing = [f"differs from {self.source}: {difference}" for difference in self.differences]
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


def _percent(fraction: float) -> str:
    """Format a fraction as a percentage. Small fractions are formatted as ``<0.01%``, not as ``0.00%``."""
    return f"{fraction:.2%}" if fraction == 0 or fraction >= 0.0001 else "<0.01%"
