"""Computes pixprep's result of each stage of a pipeline, by running a pipeline that ends after this stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from pixprep.engine.engine import Engine
from pixprep.importers.verify.images import Array
from pixprep.pipeline import ops
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.profiles import PROFILES

Resizing = ops.Resize | ops.Letterbox


def resizing(chain: Sequence[ops.Op]) -> Resizing | None:
    """Return the resize or letterbox op of a chain, or None."""
    return next((op for op in chain if isinstance(op, Resizing)), None)


def is_real(op: Resizing | None) -> bool:
    """Return whether a resize returns float32 values instead of integer pixel values."""
    return op is not None and op.filter in PROFILES[op.like].real


class Stage:
    """Chain of ops that can be run on images.

    Args:
        chain: Ops, beginning with ``decode``. If the last op is not ``tensor``, a ``tensor`` that does not change the
            values is appended.
    """

    def __init__(self, chain: Sequence[ops.Op]) -> None:
        if not isinstance(chain[-1], ops.Tensor):
            dtype: Literal["float32", "uint8"] = "float32" if is_real(resizing(chain)) else "uint8"
            chain = (*chain, ops.Tensor(dtype=dtype, layout="hwc", max_size=ops.MAX_SIDE))
        pipeline = Pipeline([msgspec.structs.replace(op, name=None, from_=None, only=None) for op in chain])
        self._spec = pipeline.outputs["tensor"].spec
        self._engine = Engine(pipeline, threads=1, odd_range=True)

    def run(self, encoded: bytes) -> Array:
        """Process an encoded image, and return the tensor with the shape (height, width, channels).

        Raises:
            ImageError: The image is rejected.
        """
        (result,) = self._engine.run([encoded])
        if isinstance(result, Exception):
            raise result
        return np.asarray(self._spec.view(result, "hwc"))


def decoded(decode: ops.Decode, encoded: bytes) -> Array:
    """Decode an image with pixprep, and return a uint8 array of shape (height, width, channels).

    Raises:
        ImageError: The image is rejected.
    """
    pixel = ops.Crop(top=0, left=0, height=1, width=1)
    probe = Pipeline([decode, ops.OriginalSize(), pixel, ops.Tensor(dtype="uint8")])
    batch = Engine(probe, threads=1).run_batch([encoded])
    if batch.errors[0] is not None:
        raise batch.errors[0]
    height, width = map(int, batch.outputs["original_size"][0])
    return Stage([decode, ops.Crop(top=0, left=0, height=height, width=width)]).run(encoded)
