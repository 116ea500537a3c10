"""How many machines a load needs: arithmetic on what the benchmark measured, with everything that it assumes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

_TABLE = Path(__file__).parent / "measured.json"
GIGABIT = 1e9 / 8  # bytes


@dataclass(frozen=True)
class Capacity:
    """What a load needs.

    Attributes:
        core_ms: of one core, for one image.
        busy_cores: at that rate, without any reserve.
        machines: with the reserve, and with the spare ones.
        images_per_second: that each machine then does.
        gigabits_per_second: of encoded images to all machines together.
        hours: for all the images; None: no number was given.
        cost_per_hour, cost: of all machines, in the unit of the price; None: no price, or no number, was given.
        assumed: in words, one sentence each.
    """

    core_ms: float
    busy_cores: float
    machines: int
    images_per_second: float
    gigabits_per_second: float
    hours: float | None
    cost_per_hour: float | None
    cost: float | None
    assumed: tuple[str, ...]

    def lines(self) -> list[str]:
        """A table, and below it the assumptions."""
        rows = [
            ("machines", f"{self.machines}"),
            ("each does", f"{self.images_per_second:,.0f} images a second"),
            ("an image takes", f"{self.core_ms:.2f} ms of one core"),
            ("cores that compute", f"{self.busy_cores:,.1f}"),
            ("network, to all", f"{self.gigabits_per_second:,.2f} Gbit/s"),
        ]
        if self.hours is not None:
            rows.append(("all images take", f"{self.hours:,.1f} hours"))
        if self.cost_per_hour is not None:
            rows.append(("an hour costs", f"{self.cost_per_hour:,.2f}"))
        if self.cost is not None:
            rows.append(("all images cost", f"{self.cost:,.2f}"))
        return [*(f"{name:<20}{value}" for name, value in rows), "assumed", *(f"  - {text}" for text in self.assumed)]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def plan_capacity(
    *,
    images_per_second: float,
    size: tuple[int, int],
    cores: int,
    progressive: bool = False,
    reduced: bool = False,
    offline: bool = False,
    classifier_ms: float = 0.0,
    utilisation: float = 0.6,
    spare: int = 1,
    images: int | None = None,
    price: float | None = None,
) -> Capacity:
    """How many machines a load needs, on the CPU.

    Args:
        images_per_second: at the peak.
        size: height and width of the images.
        cores: of a machine, as its operating system counts them.
        progressive: their JPEGs are.
        reduced: the pipeline has ``decode(reduced=True)``.
        offline: a batch job, without Triton.
        classifier_ms: of a core for an image, if the classifier runs on the same machines.
        utilisation: the share of the cores that computes at the peak, above 0 and at most 1.
        spare: machines that may be missing.
        images: of the whole job.
        price: of a machine for an hour, in any unit.
    """
    found = json.loads(_TABLE.read_text(encoding="utf-8"))
    rows = found["progressive" if progressive else "baseline"]
    ms, how = _at(rows, size, "reduced_ms" if reduced else "ms")
    n_bytes, _ = _at(rows, size, "bytes")
    serving_ms = 0.0 if offline else found["serving_ms"]
    core_ms = ms + serving_ms + classifier_ms
    busy = images_per_second * core_ms / 1000
    machines = math.ceil(round(busy / (cores * utilisation), 9)) + spare
    hours = None if images is None else images / images_per_second / 3600
    hourly = None if price is None else machines * price
    measured = f"{found['processor']}, {found['cores']} cores, {found['date']}, {found['result']}"
    kind = f"{'progressive' if progressive else 'baseline'} JPEGs{', reduced decode' if reduced else ''}"
    height, width = size
    assumed = [
        f"{ms:.2f} ms decode, resize and normalize {height} x {width} pixels ({kind}): {how} ({measured})",
        "the photos are of quality 90, and the task is the benchmark's: shorter side 256, centre 224, float32",
        f"a file has {n_bytes / 1000:,.0f} kB; tensors that leave the machine are not in the network's figure",
        f"your cores are as fast as that machine's, and {cores} of them do {cores} times the work of one: "
        f"measured up to {found['cores']}",
        f"at the peak {utilisation:.0%} of the cores compute: a choice, not a measurement",
        f"{spare} of the {machines} machines may be missing",
    ]
    if offline:
        assumed.append("reading files and writing tensors takes no core's time and never waits: not measured")
    else:
        assumed.append(f"{serving_ms:.2f} ms are Triton's and the request's, measured at 60 kB; larger files take more")
    if classifier_ms:
        assumed.append(f"{classifier_ms:.2f} ms are the classifier's: your figure")
    elif not offline:
        demo = found["demo_classifier_ms"]
        assumed.append(f"no classifier runs on these cores; the demo's takes {demo:.2f} ms more: --classifier-ms")
    return Capacity(
        core_ms=core_ms,
        busy_cores=busy,
        machines=machines,
        images_per_second=images_per_second / machines,
        gigabits_per_second=images_per_second * n_bytes / GIGABIT,
        hours=hours,
        cost_per_hour=hourly,
        cost=None if hourly is None or hours is None else hourly * hours,
        assumed=tuple(assumed),
    )


def _at(rows: Sequence[dict[str, Any]], size: tuple[int, int], key: str) -> tuple[float, str]:
    """A measured value at a size, and how it was found: measured, between two, or beyond the last by its pixels."""
    pixels = size[0] * size[1]
    points = sorted((row["height"] * row["width"], float(row[key])) for row in rows)
    names = {row["height"] * row["width"]: f"{row['height']} x {row['width']}" for row in rows}
    if pixels in names:
        return dict(points)[pixels], "measured"
    if pixels < points[0][0]:
        return points[0][1], f"as measured at {names[points[0][0]]}, which is more"
    if pixels > points[-1][0]:
        most, value = points[-1]
        return value * pixels / most, f"in proportion to the pixels, from {names[most]}"
    (low, below), (high, above) = next(pair for pair in pairwise(points) if pair[0][0] < pixels < pair[1][0])
    value = below + (above - below) * (pixels - low) / (high - low)
    return value, f"between {names[low]} and {names[high]}, by the pixels"
