"""Write the tables of docs/scale.md from benchmarks/results/, and backend/pixprep/measured.json first.

That file is what `pixprep plan-capacity` computes with, and two of the tables: it is of the newest full benchmark.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from pixprep.capacity import plan_capacity

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TABLE = ROOT / "backend" / "pixprep" / "measured.json"
PAGE = ROOT / "docs" / "scale.md"
CORES, UTILISATION = 16, 0.6  # the defaults of the command
MS = 3  # digits after the point
MACHINES = (  # name, vCPUs, how many of them are a core, dollars an hour
    # List prices on demand, of Linux in the eastern or central United States, as remembered for 2025: check yours.
    ("AWS c7i.4xlarge", 16, 2, 0.714),
    ("AWS c7a.4xlarge", 16, 1, 0.821),
    ("Google n2-standard-16", 16, 2, 0.777),
    ("Google c3-standard-22", 22, 2, 1.109),
    ("Azure F16s v2", 16, 2, 0.677),
    ("AWS g6.4xlarge, its GPU", 16, None, 1.323),
)
WORKLOAD = re.compile(r"(\d+)x(\d+)( progressive)?")
CASES = {  # of tests/scale/test_balancing.py
    "test_one_that_is_killed_costs_no_request_and_gets_its_share_when_it_is_back": "is killed, and comes back",
    "test_all_are_replaced_one_by_one_and_no_request_is_lost": "ends and is replaced, each in its turn",
    "test_one_that_is_slow_costs_no_request_and_the_proxies_give_it_fewer": "takes 2 s longer for each batch",
    "test_one_that_is_frozen_for_a_while_costs_no_request": "stands still for 8 s",
}
WAYS = (("client", "grpc"), ("haproxy", "http"), ("haproxy", "grpc"), ("envoy", "http"), ("envoy", "grpc"))


def newest(pattern: str = "cpu-*-full.json") -> Path:
    """The result to take."""
    return max(RESULTS.glob(pattern))


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
    """The page with its tables made anew, from what ``pixprep plan-capacity`` computes, and from results."""
    found = json.loads(TABLE.read_text(encoding="utf-8"))
    made = {
        "served": _served(found),
        "batch": _batch(found),
        "machines": _machines(found),
        "balancing": _balancing(_read(RESULTS / "balancing.json")),
        "memory": _memory(_read(newest("ray-memory-*.json"))),
        "rates": _rates(_read(newest("ray-rates-*.json"))),
    }
    for name, rows in made.items():
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


def _machines(found: dict[str, Any]) -> Iterator[Sequence[str]]:
    """A billion images on one machine of each type; two hyperthreads do the work of one core."""
    sizes = list(_sizes(found))
    yield ("machine", "vCPUs", "cores", "$ an hour", *(name for _, name in sizes))
    yield ("---",) * (4 + len(sizes))
    for name, vcpus, of_a_core, price in MACHINES:
        cores = of_a_core and vcpus // of_a_core
        cells = [_cost(size, cores, price) if cores else "not measured" for size, _ in sizes]
        yield (name, str(vcpus), str(cores or ""), f"{price:.3f}", *cells)


def _cost(size: tuple[int, int], cores: int, price: float) -> str:
    core_ms = plan_capacity(images_per_second=1, size=size, cores=cores, offline=True).core_ms
    hours = 1e9 * core_ms / 1000 / cores / 3600
    return f"{hours:,.0f} h, ${hours * price:,.0f}"


def _balancing(result: dict[str, Any]) -> Iterator[Sequence[str]]:
    """What is right; and what is not, by its name."""
    yield ("one of three servers", "gRPC client", "HAProxy, HTTP", "gRPC", "Envoy, HTTP", "gRPC")
    yield ("---",) * (1 + len(WAYS))
    for case, words in CASES.items():
        cells = []
        for way, protocol in WAYS:
            counts = result["cases"][case][way]
            others = {name: count for name, count in counts.items() if not name.startswith("right")}
            cells.append(", ".join([f"{counts[f'right {protocol}']:,}", *(f"{n} {c}" for n, c in others.items())]))
        yield (words, *cells)


def _memory(result: dict[str, Any]) -> Iterator[Sequence[str]]:
    yield ("rows written", "MB of the command", "MB of Ray and its workers")
    yield ("---",) * 3
    for sample in result["samples"]:
        yield (f"{sample['rows']:,}", str(sample["driver_mb"]), str(sample["others_mb"]))


def _rates(result: dict[str, Any]) -> Iterator[Sequence[str]]:
    """The ratio is that of the rounds: both ran by turns."""
    yield ("workers", "rows/s, median", "of each round", "times one worker")
    yield ("---",) * 4
    one = result["rows_per_s"]["1"]
    for workers, rounds in result["rows_per_s"].items():
        ratio = median(rate / base for rate, base in zip(rounds, one, strict=True))
        each = ", ".join(f"{rate:.0f}" for rate in rounds)
        yield (workers, f"{median(rounds):.0f}", each, f"{ratio:.2f}")


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _sizes(found: dict[str, Any]) -> Iterator[tuple[tuple[int, int], str]]:
    for row in found["baseline"]:
        yield (row["height"], row["width"]), f"{row['width']}x{row['height']}"


if __name__ == "__main__":
    TABLE.write_text(text(newest()), encoding="utf-8")
    PAGE.write_text(tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
