"""Memory pools that Triton is to have on this machine; ``triton.pool`` says why that matters."""

from __future__ import annotations

import ctypes
from pathlib import Path

from pixprep.triton import pool
from pixprep.triton.config import pipeline_files, read_pipeline


def settings(model_repository: Path, images_in_flight: int | None) -> tuple[list[str], dict[str, str]]:
    """The options of tritonserver, and the variables that tell the backend; none without a GPU, or a number."""
    if not images_in_flight or not (gpus := gpu_count()):
        return [], {}
    n_bytes = size(model_repository, images_in_flight=images_in_flight)
    return options(n_bytes, gpus=gpus), variables(n_bytes)


def size(model_repository: Path, *, images_in_flight: int) -> int:
    """The bytes for the tensors of all pixprep models of a repository, and at least Triton's default."""
    pipelines = map(read_pipeline, pipeline_files(model_repository))
    total = sum(pool.needed(pipeline, images_in_flight=images_in_flight) for pipeline in pipelines)
    return max(total, pool.TRITONS_DEFAULT)


def options(n_bytes: int, *, gpus: int) -> list[str]:
    """The options of tritonserver that give each GPU a pool of that size, and the host no pinned one."""
    return [*(f"--cuda-memory-pool-byte-size={gpu}:{n_bytes}" for gpu in range(gpus)), pool.NO_PINNED_POOL]


def variables(n_bytes: int) -> dict[str, str]:
    """Variables that tell the backend that Triton has these options."""
    return {pool.VARIABLE: str(n_bytes), pool.PINNED_VARIABLE: "0"}


def gpu_count() -> int:
    """Number of GPUs that the driver shows; 0 without one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    is_there = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if is_there else 0
