"""Write docs/gpu.md from the rows that tools/gpu_hour/hour.py wrote: benchmarks/results/gpu/*.jsonl.

.venv/bin/python tools/gpu_hour/gpu_page.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE, RESULTS = ROOT / "docs" / "gpu.md", ROOT / "benchmarks" / "results" / "gpu"
LINE = 120
Row = dict[str, Any]
HEAD = (
    "This page is for engineers who consider the engine on a GPU. It contains the measurements of one hour on one "
    "machine. `tools/gpu_hour/README.md` lists the commands, and `tools/gpu_hour/gpu_page.py` generates this page from "
    "their results. The goals are at least 0.9 of the rate of nvImageCodec's decode alone with the same settings, at "
    "least the rate of DALI's GPU pipeline in the same run, the same pixels as on the CPU, and a median latency below "
    "3 ms for one image."
)
NOT_RUN = (
    "**Not run.** No GPU has been available. The steps were rehearsed on a CPU with mocks of CuPy, NVRTC and "
    "nvImageCodec (`tests/gpu/test_gpu_hour.py`), so this page does not contain measurements yet."
)
PIXELS = (
    "Each kind of JPEG is decoded in batches of 1, 8 and 64 of its own kind and together with 63 others, and compared "
    'with libjpeg-turbo. "Far" means that pixels differ by more than 4 on average, or that the shape differs. '
    '"Unsteady" means that the pixels of one JPEG depend on its batch or on its position in the batch.'
)
FORECASTS_HEAD = (
    "The forecasts were estimated on paper before the benchmark session, for an H100 and photos of 500 x 375 pixels. "
    "The last column contains the measured values; where several thread counts were measured, it contains the highest "
    "value."
)
OPS_OF_CPU = (
    *("elastic", "elastic_distortion", "grid_distortion", "optical_distortion", "aug_mix", "clahe"),
    *("box_blur", "median_blur", "motion_blur", "sharpen", "gauss_noise", "compression", "downscale"),
    *("color_ids", "trim"),
)
"""Ops on pixel values without a CUDA kernel."""
FALLBACKS = (
    'With `device="gpu"`, the CPU runs a pipeline that contains one of the following parts: the ops {} and {}, the '
    'field `luma` or `"scale": "standardize"` of `normalize`, `reducing_gap`, `"like": "scipy"` of a resize, '
    '`"numbered": true` of `patches`, `"alpha": "keep"` of `decode`, `"thumbnail_of": "values"`, a bfloat16 tensor '
    'after a resize without rounding to pixel values (such as `"like": "tensorflow"`), or a custom operator. The CPU '
    "then decodes the images and computes all tensors. Their values equal those of a CPU engine, and the tensors are "
    "copied to the GPU. "
    "`explain` and the log of the engine name the parts of the pipeline that require this. All other pipelines, "
    "including those with patches, tiles and slices, run on the GPU. The host computes sizes, grids, counts and masks, "
    "which remain in its memory. It also computes optical flow, and decodes the images that nvImageCodec does not "
    "support."
)
SIZE = "500x375"
FAR = 4.0
LEFT_OUT = ("step", "recorded", "forecast", "images_per_s_of_rounds", "p99", "system")


def _early(decoder: str) -> Callable[[Row], float | None]:
    """Return a function that computes, from a row, the fraction of decodes in which a decoder wrote too early."""
    return lambda row: row["early"] / row["decodes"] if row.get("order") == decoder and "early" in row else None


def _rate(batch: int, *, is_ratio: bool) -> Callable[[Row], float | None]:
    """Return a function that reads the rate of nvImageCodec alone, or the ratio of the engine's rate to it."""

    def rate(row: Row) -> float | None:
        if (
            "contenders" not in row
            or "model" in row
            or (row["size"], row["decoder"], row["batch"]) != (SIZE, "consistent", batch)
        ):
            return None
        engine, raw = (float(row["contenders"][name]["images_per_s"]) for name in ("engine", "raw"))
        return round(engine / raw, 3) if is_ratio else raw

    return rate


def _kernels(row: Row) -> float | None:
    """Return the images/s of the kernels, if the row contains their time for the largest batch."""
    is_it = "device_ms" in row and (row["size"], row["batch"], row["levels"]) == (SIZE, 128, "kept")
    return round(1e3 * row["batch"] / row["device_ms"]["median"]) if is_it else None


def _alone(part: str) -> Callable[[Row], float | None]:
    """Return a function that reads, from a row, the images/s of one part that was measured alone."""
    return lambda row: row["images_per_s"] if row.get("alone") == part and "images_per_s" in row else None


FORECASTS: Sequence[tuple[str, str, Callable[[Row], float | None]]] = (
    ("fraction of the hardware engine's decodes that write before their turn in the stream", "1", _early("hardware")),
    ("fraction of the CUDA decodes that write before their turn in the stream", "0", _early("CUDA")),
    ("nvImageCodec alone, batch 128, images/s", "12,000 to 22,000", _rate(128, is_ratio=False)),
    ("the engine's rate / that of nvImageCodec alone, batch 128", "0.9 or more", _rate(128, is_ratio=True)),
    ("the same, batch 32", "0.75 to 0.85", _rate(32, is_ratio=True)),
    ("the same, batch 8", "0.75 to 0.85", _rate(8, is_ratio=True)),
    ("kernels alone, batch 128, images/s", "2,000,000", _kernels),
    ("copying JPEGs to the GPU alone, images/s", "250,000 to 500,000", _alone("copy")),
    ("all hardware JPEG engines alone, images/s", "60,000", _alone("JPEG engines")),
    ("Python interpreter alone, images/s", "30,000 to 37,000", _alone("interpreter")),
)
"""Quantity, its forecast, and a function that reads the measured value from a row or returns None."""


def forecasts(row: Row) -> dict[str, str]:
    """Return the forecasts of the quantities that a row measures."""
    return {what: forecast for what, forecast, measured in FORECASTS if measured(row) is not None}


def page(rows: Sequence[Row]) -> str:
    """Return the text of the page."""
    parts = [*_wrong(rows), *_forecasts(rows), *_pixels(rows), *_steps(rows)]
    parts = parts if rows else [fill(NOT_RUN, LINE), *_forecasts(rows)]
    *ops, last = (f"`{name}`" for name in sorted(OPS_OF_CPU))
    text = FALLBACKS.format(", ".join(ops), last)
    parts += ["## Pipelines that run on the CPU", fill(text, LINE, break_on_hyphens=False)]
    return "\n\n".join(["# On a GPU", fill(HEAD, LINE), *parts]) + "\n"


def _table(names: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    shown = [[*names], *([_short(cell) for cell in line] for line in lines)]
    shown.insert(1, ["---"] * len(shown[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in shown)


def _short(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int | float) else str(value)
    return " ".join(text.split()).replace("|", "/")[-90:]


def _of(rows: Sequence[Row], *names: str) -> list[Row]:
    return [row for row in rows if all(name in row for name in names)]


def _wrong(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the steps and tests that failed, and the summaries that tools printed."""
    ended, tests = _of(rows, "ended"), _of(rows, "test", "outcome")
    outcomes = [row["outcome"] for row in tests]
    yield "## Failures"
    yield fill(
        f"{sum(not row['ended'] for row in ended)} of {len(ended)} steps succeeded, {outcomes.count('passed')} of "
        f"{len(tests)} tests passed, {outcomes.count('skipped')} were skipped.",
        LINE,
    )
    red = [(row["step"], row["ended"], row.get("said", "")) for row in ended if row["ended"]]
    red += [(row["step"], row["test"], row["why"]) for row in tests if row["outcome"] == "failed"]
    if red:
        yield _table(("step", "ended, or the test", "end of its output"), red)
    for row in ended:
        if summary := [line for line in row.get("said", "").splitlines() if "SUMMARY" in line]:
            yield f"{row['step']}: {'; '.join(summary)}"


def _forecasts(rows: Sequence[Row]) -> Iterator[str]:
    yield f"## Forecasts\n\n{fill(FORECASTS_HEAD, LINE)}"
    found = [[value for row in rows if (value := measured(row)) is not None] for *_, measured in FORECASTS]
    lines = [
        (what, forecast, max(values) if values else "not run")
        for (what, forecast, _), values in zip(FORECASTS, found, strict=True)
    ]
    yield _table(("what", "forecast", "measured"), lines)


def _pixels(rows: Sequence[Row]) -> Iterator[str]:
    table = _of(rows, "way", "kind")
    if not table:
        return
    yield f"## Pixels of each decoder\n\n{fill(PIXELS, LINE)}"
    lines, bad = [], []
    for way in dict.fromkeys(row["way"] for row in table):
        own = [row for row in table if row["way"] == way]
        far = [row for row in own if row.get("other_shape") or (row.get("mean") or 0) > FAR]
        unsteady = [row for row in own if row.get("distinct", 0) > 1]
        raised = _of(own, "raised")
        bad += [row for row in own if row in far or row in unsteady or row in raised]
        counts = [sum(bool(row.get(name)) for row in own) for name in ("fallbacks", "refused")]
        equal = sum(row.get("max") == 0 for row in own)
        lines.append((way, len(own), equal, len(far), len(unsteady), *counts, len(raised)))
    yield _table(("way", "kinds", "equal", "far", "unsteady", "by the CPU", "refused", "raised"), lines)
    names = ("way", "kind", "distinct", "mean", "max", "raised")
    if bad:
        yield _table(names, [[row.get(name, "") for name in names] for row in bad[:80]])
    if taken := sorted(row["kind"] for row in table if row.get("fallbacks") and row["way"] == "pixprep consistent"):
        yield fill(f"The CPU decodes {len(taken)} kinds with `consistent`: {'; '.join(taken)}.", LINE)


def _steps(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the rows of all other steps in tables. Rows with the same field names share a table."""
    others = [row for row in rows if not row.keys() & {"ended", "outcome", "way"}]
    for step in dict.fromkeys(row["step"] for row in others):
        yield f"## {step[0].upper()}{step[1:]}"
        tables: dict[tuple[str, ...], list[Row]] = {}
        for row in (dict(_flat(row)) for row in others if row["step"] == step):
            tables.setdefault(tuple(row), []).append(row)
        for names, found in tables.items():
            is_one = len(found) == 1 and len(names) > 6
            yield (
                _table(("field", "value"), found[0].items())
                if is_one
                else _table(names, (row.values() for row in found))
            )


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if name in LEFT_OUT:
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name} ")
        else:
            yield f"{before}{name}", value


def read(folder: Path = RESULTS) -> list[Row]:
    """Return the rows of all calls. If a call was interrupted and its last row is incomplete, this row is skipped."""
    rows = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                sys.stderr.write(f"gpu_page: {path.name}: skipped an incomplete row: {line[:80]}\n")
    return rows


if __name__ == "__main__":
    PAGE.write_text(page(read()), encoding="utf-8")
