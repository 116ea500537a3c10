"""Select the cells of a result that the page and its charts show."""

from __future__ import annotations

from typing import Any

from workloads import SIZES

CHART = "performance-{}.svg"

Result = dict[str, Any]


def contender_cells(result: Result, filter_name: str, threads: int) -> list[Result]:
    """Return the cells of the three photo sizes for a filter and a number of threads."""
    like = (filter_name, threads)
    return [cell for cell in result["cells"] if (cell["filter"], cell["threads"]) == like and cell["workload"] in SIZES]


def closed_loop(serving: Result, model: str, *, shared: bool, batch: int) -> list[Result]:
    """Return the gRPC loads with a constant number of requests in flight (closed loop)."""
    like = (model, shared, batch, "grpc", "concurrency")
    return [row for row in serving["loads"] if (row["model"], row["shared_memory"], row["batch"], *_load(row)) == like]


def poisson(serving: Result, model: str) -> list[Result]:
    """Return the gRPC loads with one photo per request and Poisson arrivals."""
    like = (model, 1, "grpc", "poisson")
    return [row for row in serving["loads"] if (row["model"], row["batch"], *_load(row)) == like]


def _load(row: Result) -> tuple[str, str]:
    return row["protocol"], row["load"].split()[0]
