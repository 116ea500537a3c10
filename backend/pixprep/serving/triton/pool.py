"""Triton's memory pools, and when tensors may stay on the GPU.

Triton keeps the tensors between the steps of an ensemble in a CUDA pool of fixed size, by default 64 MiB per GPU. When
that pool is full, Triton 2.51 allocates from its pinned memory pool of 256 MiB, and its Python backend then returns
garbage without an error (reported as triton-inference-server/server #7148 and #8177). Without a pinned pool, Triton
allocates ordinary memory, which the Python backend reads correctly. Therefore the CUDA pool is sized from the model's
own numbers, and the pinned pool is disabled. If either is unknown, tensors leave through the CPU.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from typing import Any

from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.output_plans import TensorPlan
from pixprep.serving.triton import config as model_config

TRITONS_DEFAULT = 64 << 20
IMAGES_IN_FLIGHT = 512
VARIABLE = "PIXPREP_CUDA_POOL_BYTES"
"""Environment variable that passes Triton's ``--cuda-memory-pool-byte-size`` to the backend."""
PINNED_VARIABLE = "PIXPREP_PINNED_POOL_BYTES"
"""The same of ``--pinned-memory-pool-byte-size``, which is to be 0."""
NO_PINNED_POOL = "--pinned-memory-pool-byte-size=0"


def bytes_per_image(pipeline: Pipeline) -> int:
    """Bytes that one image's tensors take in the pool."""
    return sum(
        output.spec.n_bytes
        for name, output in pipeline.outputs.items()
        if isinstance(pipeline.plan.outputs[name], TensorPlan)
    )


def needed(pipeline: Pipeline, *, images_in_flight: int = IMAGES_IN_FLIGHT) -> int:
    """Pool size for this number of images between the steps of an ensemble, with a reserve of one half.

    Requests of 1 to 64 images come and go in any order and leave gaps. A simulation used the pool's rule (the smallest
    gap that is large enough) and a constant number of 512 images. Without a reserve, the pool rejects 11 to 81 % of the
    requests; with a reserve of a quarter up to 4 %, and with a reserve of one half 0.02 %.
    """
    return bytes_per_image(pipeline) * images_in_flight * 3 // 2


def size(pipelines: Iterable[Pipeline], *, images_in_flight: int) -> int:
    """The pool for the images of all pipelines that are served, and at least Triton's default."""
    return max(TRITONS_DEFAULT, sum(needed(pipeline, images_in_flight=images_in_flight) for pipeline in pipelines))


def options(n_bytes: int, *, gpus: int) -> list[str]:
    """The options of tritonserver that give each GPU a pool of that size, and the host no pinned one."""
    return [*(f"--cuda-memory-pool-byte-size={gpu}:{n_bytes}" for gpu in range(gpus)), NO_PINNED_POOL]


def variables(n_bytes: int) -> dict[str, str]:
    """Return environment variables that inform the backend of Triton's pool options."""
    return {VARIABLE: str(n_bytes), PINNED_VARIABLE: "0"}


def gpu_count() -> int:
    """Number of GPUs that the driver shows; 0 without one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    is_there = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if is_there else 0


def least(pipeline: Pipeline, config: Mapping[str, Any]) -> int:
    """Minimum pool size with dynamic batching: one batch in each step, and one that waits."""
    instances = sum(group.get("count", 1) for group in config.get("instance_group", [])) or 1
    batch = config.get("max_batch_size", model_config.DEFAULT_MAX_BATCH_SIZE)
    batch = model_config.options(config).engine.limits.max_boxes if pipeline.plan.takes_boxes else batch
    images = batch * (instances + 2)
    return needed(pipeline, images_in_flight=images)


def known_bytes(environment: Mapping[str, str] = os.environ) -> int:
    """The size of the pool as far as the backend can know it."""
    text = environment.get(VARIABLE, "")
    return int(text) if text.isdigit() else TRITONS_DEFAULT


def danger(
    pipeline: Pipeline, config: Mapping[str, Any], *, gpu: str, environment: Mapping[str, str] = os.environ
) -> str | None:
    """Reason why tensors may not stay on a GPU, and the remedy; None if they may."""
    pool_bytes, smallest = known_bytes(environment), least(pipeline, config)
    wanted = pool_bytes
    if pool_bytes < smallest:
        fault = f"the CUDA memory pool of {pool_bytes >> 20} MiB is too small"
        wanted = max(smallest, needed(pipeline))
    elif environment.get(PINNED_VARIABLE) != "0":
        fault = "with a pool of pinned memory, Triton answers with garbage when its CUDA memory pool is full"
    else:
        return None
    return (
        f"{fault}; start Triton with --cuda-memory-pool-byte-size={gpu}:{wanted} {NO_PINNED_POOL}, "
        f"{VARIABLE}={wanted} and {PINNED_VARIABLE}=0"
    )
