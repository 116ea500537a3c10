"""Draws of rand_augment and trivial_augment whose pixels were frozen from torchvision."""

from hashlib import sha256

import numpy as np

import pixprep as pp
from images import noise, png, scene

OPS = {"rand_augment": pp.rand_augment, "trivial_augment": pp.trivial_augment}

FROZEN = {
    ("rand_augment", "nearest", "pillow"): "af6b8da68a04ee32",
    ("rand_augment", "nearest", "torchvision"): "843ac1a40d88d985",
    ("trivial_augment", "nearest", "pillow"): "e381285c4bc13043",
    ("trivial_augment", "nearest", "torchvision"): "38d294837b49c455",
    ("trivial_augment", "bilinear", "pillow"): "ff34a4dd7fbd3f94",
    ("trivial_augment", "bilinear", "torchvision"): "1d894ef2874eadb7",
}
"""The digest of torchvision 0.28's pixels for the same draws: ``tests/parity/test_augment.py`` makes it anew."""


def frozen_draws(name, filter_, like):
    """What the hashes above are of: (pixels, op, the words of each draw, our results)."""
    op = OPS[name](filter=filter_, fill=(123, 117, 104), like=like)
    pixels = np.concatenate([scene(24, 20), noise(24, 20)], axis=1)
    pipeline = pipeline_of(op)
    drawn = pipeline.plan.draw(seed=3, epoch=1, indices=range(200))
    with pp.Engine(pipeline, threads=1) as engine:
        batch = engine.run_batch([png(pixels)] * 200, places=[pipeline.plan.placing(each) for each in drawn])
    return pixels, op, [placed.draws[f"{name}#0"]["ops"] for placed in batch.placed], batch["tensor"]


def digest(pixels):
    """Of uint8 arrays."""
    return sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()[:16]


def pipeline_of(op, height=24, width=40):
    ops = [
        pp.decode(),
        pp.resize(height=height, width=width),
        op,
        pp.tensor(dtype="uint8", layout="hwc", only="training"),
    ]
    return pp.Pipeline(ops)
