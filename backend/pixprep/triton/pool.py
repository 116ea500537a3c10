"""Triton's CUDA memory pool, and when tensors may stay on the GPU.

Triton keeps the tensors between the steps of an ensemble in a pool of fixed size, 64 MiB a GPU unless it is told
otherwise. When it is full, Triton 2.51's Python backend answers with a success and garbage (reported as
triton-inference-server/server #7148 and #8177). So the pool is sized from the model's own numbers, and where it is
known to be too small, tensors leave by way of the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pixprep.pipeline import Pipeline
from pixprep.triton import config as model_config

TRITONS_DEFAULT = 64 << 20
IMAGES_IN_FLIGHT = 512
VARIABLE = "PIXPREP_CUDA_POOL_BYTES"
"""How ``pixprep serve``, or whoever starts Triton, tells the backend what ``--cuda-memory-pool-byte-size`` says."""


def bytes_per_image(pipeline: Pipeline) -> int:
    """What one image's tensors take in the pool."""
    return sum(output.spec.n_bytes for output in pipeline.outputs.values() if output.spec.layout is not None)


def needed(pipeline: Pipeline, *, images_in_flight: int = IMAGES_IN_FLIGHT) -> int:
    """The pool for this number of images between the steps of an ensemble."""
    return bytes_per_image(pipeline) * images_in_flight


def is_large_enough(pipeline: Pipeline, config: Mapping[str, Any], pool_bytes: int) -> bool:
    """Whether the pool holds the least that dynamic batching puts there: a batch in each step, and one that waits."""
    instances = sum(group.get("count", 1) for group in config.get("instance_group", [])) or 1
    images = config.get("max_batch_size", model_config.DEFAULT_MAX_BATCH_SIZE) * (instances + 2)
    return pool_bytes >= needed(pipeline, images_in_flight=images)


def known_bytes(environment: Mapping[str, str] = os.environ) -> int:
    """The size of the pool as far as the backend can know it."""
    text = environment.get(VARIABLE, "")
    return int(text) if text.isdigit() else TRITONS_DEFAULT
