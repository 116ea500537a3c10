"""Write backend/pixprep/measured.json, what `pixprep plan-capacity` computes with, from the newest full benchmark."""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "backend" / "pixprep" / "measured.json"
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


if __name__ == "__main__":
    TABLE.write_text(text(newest()), encoding="utf-8")
