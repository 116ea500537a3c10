"""Cells of a result that the page and its charts show."""

from __future__ import annotations

from typing import Any

from workloads import SIZES

CHART = "performance-{}.svg"

Result = dict[str, Any]


def contender_cells(result: Result, filter_name: str, threads: int) -> list[Result]:
    """The cells of the three sizes."""
    like = (filter_name, threads)
    return [cell for cell in result["cells"] if (cell["filter"], cell["threads"]) == like and cell["workload"] in SIZES]


def closed_loop(serving: Result, model: str, *, shared: bool, batch: int) -> list[Result]:
    """The loads that keep a number of requests in flight, by gRPC."""
    like = (model, shared, batch, "grpc", "concurrency")
    return [row for row in serving["loads"] if (row["model"], row["shared_memory"], row["batch"], *_load(row)) == like]


def poisson(serving: Result, model: str) -> list[Result]:
    """The loads whose requests of one photo arrive at random, by gRPC."""
    like = (model, 1, "grpc", "poisson")
    return [row for row in serving["loads"] if (row["model"], row["batch"], *_load(row)) == like]


def _load(row: Result) -> tuple[str, str]:
    return row["protocol"], row["load"].split()[0]
