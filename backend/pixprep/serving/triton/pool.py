"""Computes the sizes of Triton's memory pools, and determines whether output tensors may stay on the GPU.

Triton keeps the tensors between the steps of an ensemble in a CUDA memory pool of fixed size, by default 64 MiB per
GPU. When that pool is full, Triton 2.51 allocates from its pinned memory pool of 256 MiB, and its Python backend then
returns garbage without an error (triton-inference-server/server #7148 and #8177). Without a pinned memory pool, Triton
allocates pageable memory, which the Python backend reads correctly. The CUDA pool is therefore sized for the served
models, and the pinned pool is disabled. Environment variables inform the backend of both settings. Without these
variables, the backend returns tensors in host memory.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from typing import Any

from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.output_plans import TensorPlan
from pixprep.serving.options import IMAGES_IN_FLIGHT
from pixprep.serving.triton import config as model_config

TRITONS_DEFAULT = 64 << 20
VARIABLE = "PIXPREP_CUDA_POOL_BYTES"
"""Environment variable that informs the backend of the value of Triton's ``--cuda-memory-pool-byte-size``."""
PINNED_VARIABLE = "PIXPREP_PINNED_POOL_BYTES"
"""Environment variable that informs the backend of the value of ``--pinned-memory-pool-byte-size``. Output tensors stay
on the GPU only if it is 0."""
NO_PINNED_POOL = "--pinned-memory-pool-byte-size=0"


def bytes_per_image(pipeline: Pipeline) -> int:
    """Return the number of bytes that the tensors of one image occupy in the pool."""
    return sum(
        output.spec.n_bytes
        for name, output in pipeline.outputs.items()
        if isinstance(pipeline.plan.outputs[name], TensorPlan)
    )


def needed(pipeline: Pipeline, *, images_in_flight: int = IMAGES_IN_FLIGHT) -> int:
    """Return the pool size in bytes that one model needs for this number of images between the steps of an ensemble.

    The size includes a reserve of 50 % for fragmentation, because requests of different sizes are allocated and freed
    in any order. In a simulation of the pool's best-fit strategy with 512 images in requests of 1 to 64 images, 11 to
    81 % of the allocations failed without a reserve, up to 4 % failed with a reserve of 25 %, and 0.02 % failed with a
    reserve of 50 %.
    """
    return bytes_per_image(pipeline) * images_in_flight * 3 // 2


def size(pipelines: Iterable[Pipeline], *, images_in_flight: int) -> int:
    """Return the pool size in bytes for all served pipelines, but no less than Triton's default."""
    return max(TRITONS_DEFAULT, sum(needed(pipeline, images_in_flight=images_in_flight) for pipeline in pipelines))


def options(n_bytes: int, *, gpus: int) -> list[str]:
    """Return the options of tritonserver that set the CUDA pool size of each GPU and disable the pinned pool."""
    return [*(f"--cuda-memory-pool-byte-size={gpu}:{n_bytes}" for gpu in range(gpus)), NO_PINNED_POOL]


def variables(n_bytes: int) -> dict[str, str]:
    """Return the environment variables that pass Triton's pool options to the backend."""
    return {VARIABLE: str(n_bytes), PINNED_VARIABLE: "0"}


def gpu_count() -> int:
    """Return the number of GPUs that the CUDA driver reports; 0 if the driver is not installed."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    is_available = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if is_available else 0


def min_bytes(pipeline: Pipeline, config: Mapping[str, Any]) -> int:
    """Return the minimum pool size in bytes.

    It holds one full batch per instance, one batch in the next step of the ensemble, and one batch that waits.
    """
    instances = sum(group.get("count", 1) for group in config.get("instance_group", [])) or 1
    batch = config.get("max_batch_size", model_config.DEFAULT_MAX_BATCH_SIZE)
    batch = model_config.options(config).engine.limits.max_boxes if pipeline.plan.takes_boxes else batch
    images = batch * (instances + 2)
    return needed(pipeline, images_in_flight=images)


def known_bytes(environment: Mapping[str, str] = os.environ) -> int:
    """Return the size of the CUDA pool in bytes from the environment variable. If it is not set, return the default."""
    text = environment.get(VARIABLE, "")
    return int(text) if text.isdigit() else TRITONS_DEFAULT


def gpu_output_problem(
    pipeline: Pipeline, config: Mapping[str, Any], *, gpu: str, environment: Mapping[str, str] = os.environ
) -> str | None:
    """Return why output tensors must not stay on a GPU, followed by the fix. None: they may stay."""
    pool_bytes, smallest = known_bytes(environment), min_bytes(pipeline, config)
    wanted = pool_bytes
    if pool_bytes < smallest:
        fault = f"the CUDA memory pool of {pool_bytes >> 20} MiB is too small"
        wanted = max(smallest, needed(pipeline))
    elif environment.get(PINNED_VARIABLE) != "0":
        fault = "with a pinned memory pool, Triton returns garbage when its CUDA memory pool is full"
    else:
        return None
    return (
        f"{fault}; start Triton with --cuda-memory-pool-byte-size={gpu}:{wanted} {NO_PINNED_POOL}, "
        f"{VARIABLE}={wanted} and {PINNED_VARIABLE}=0"
    )
