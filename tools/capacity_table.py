"""Write backend/pixprep/measured.json, what `pixprep plan-capacity` computes with, from the newest full benchmark.

The tables of docs/scale.md follow from it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pixprep.capacity import plan_capacity

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "backend" / "pixprep" / "measured.json"
PAGE = ROOT / "docs" / "scale.md"
CORES, UTILISATION = 16, 0.6  # the defaults of the command
MS = 3  # digits after the point
WORKLOAD = re.compile(r"(\d+)x(\d+)( progressive)?")


def newest() -> Path:
    """The result to take."""
    return max((ROOT / "benchmarks" / "results").glob("cpu-*-full.json"))


def table(path: Path) -> dict[str, Any]:
    """The few numbers of a result: milliseconds of one core for an image, by size, and what serving adds."""
    result = json.loads(path.read_text(encoding="utf-8"))
    rows: dict[str, list[dict[str, Any]]] = {"baseline": [], "progressive": []}
    for cell in result["cells"]:
        found = WORKLOAD.fullmatch(cell["workload"])
        if found and cell["threads"] == 1 and cell["filter"] == "bilinear":
            full, reduced = (cell["contenders"][name]["cpu_s_per_1000"] for name in ("pixprep_full", "pixprep_reduced"))
            rows["progressive" if found[3] else "baseline"].append({
                "width": int(found[1]),
                "height": int(found[2]),
                "bytes": result["photos"][cell["workload"]]["mean_bytes"],
                "ms": full,
                "reduced_ms": reduced,
            })  # fmt: skip
    serving = result["serving"]
    alone, both = (_cpu_ms(serving["loads"], model) for model in ("preprocess", "ensemble"))
    return {
        "result": path.name,
        **{name: result[name] for name in ("date", "commit", "processor", "cores")},
        **rows,
        "serving_ms": round(sum(alone.values()) - serving["engine_cpu_ms_per_image"], MS),
        "demo_classifier_ms": round(both["models"] - alone["models"], MS),
    }


def _cpu_ms(loads: list[dict[str, Any]], model: str) -> dict[str, float]:
    """Of Triton and of the models for an image: one image a request, over gRPC, at a rate that leaves them room."""
    load = next(
        load
        for load in loads
        if (load["model"], load["protocol"], load["batch"]) == (model, "grpc", 1) and load["load"].startswith("poisson")
    )
    return {name: load["cpu_ms_per_image"][name] for name in ("triton", "models")}


def text(path: Path) -> str:
    """The file's text."""
    return json.dumps(table(path), indent=2) + "\n"


def tables(page: str) -> str:
    """The page with its tables made anew, from what ``pixprep plan-capacity`` computes."""
    found = json.loads(TABLE.read_text(encoding="utf-8"))
    for name, rows in (("served", _served(found)), ("batch", _batch(found))):
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        body = "".join(f"| {' | '.join(row)} |\n" for row in rows)
        page = marks.sub(lambda at, body=body: at[1] + body + at[2], page)
    return page


def _served(found: dict[str, Any]) -> Iterator[Sequence[str]]:
    yield ("photos", "ms of a core", "images/s of a machine", "machines for 5,000 images/s", "network, to all")
    yield ("---",) * 5
    for size, name in _sizes(found):
        plan = plan_capacity(images_per_second=5000, size=size, cores=CORES)
        alone = CORES * UTILISATION / plan.core_ms * 1000
        network = f"{plan.gigabits_per_second:.1f} Gbit/s"
        yield (name, f"{plan.core_ms:.2f}", f"{alone:,.0f}", str(plan.machines), network)


def _batch(found: dict[str, Any]) -> Iterator[Sequence[str]]:
    yield ("photos", "ms of a core", "images/s of a machine", "hours of a machine", "reads", "writes float32", "uint8")
    yield ("---",) * 7
    for size, name in _sizes(found):
        plan = plan_capacity(images_per_second=1, size=size, cores=CORES, offline=True)
        rate = CORES / plan.core_ms * 1000
        read = rate * plan.gigabits_per_second
        write = rate * 3 * 224 * 224 * 8e-9  # of a byte for each value
        hours = 1e9 / rate / 3600
        yield (name, f"{plan.core_ms:.2f}", f"{rate:,.0f}", f"{hours:,.0f}",
               *(f"{value:.1f} Gbit/s" for value in (read, 4 * write, write)))  # fmt: skip


def _sizes(found: dict[str, Any]) -> Iterator[tuple[tuple[int, int], str]]:
    for row in found["baseline"]:
        yield (row["height"], row["width"]), f"{row['width']}x{row['height']}"


if __name__ == "__main__":
    TABLE.write_text(text(newest()), encoding="utf-8")
    PAGE.write_text(tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
