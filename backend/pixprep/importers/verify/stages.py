"""pixprep's own result of each stage: every stage is a shorter pipeline, run by the engine as any other."""

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
    """The one resize of a chain, if there is one."""
    return next((op for op in chain if isinstance(op, Resizing)), None)


def is_real(op: Resizing | None) -> bool:
    """Tell whether a resize gives float32 values, not levels."""
    return op is not None and op.filter in PROFILES[op.like].real


class Stage:
    """A chain of ops; where it does not end with ``tensor``, one that holds the values as they are is added."""

    def __init__(self, chain: Sequence[ops.Op]) -> None:
        if not isinstance(chain[-1], ops.Tensor):
            dtype: Literal["float32", "uint8"] = "float32" if is_real(resizing(chain)) else "uint8"
            chain = (*chain, ops.Tensor(dtype=dtype, layout="hwc", max_size=ops.MAX_SIDE))
        pipeline = Pipeline([msgspec.structs.replace(op, name=None, from_=None, only=None) for op in chain])
        self._spec = pipeline.outputs["tensor"].spec
        self._engine = Engine(pipeline, threads=1, odd_range=True)

    def run(self, encoded: bytes) -> Array:
        """(height, width, channels), whatever the layout; raises the ImageError of an image that is refused."""
        (result,) = self._engine.run([encoded])
        if isinstance(result, Exception):
            raise result
        return np.asarray(self._spec.view(result, "hwc"))


def decoded(decode: ops.Decode, encoded: bytes) -> Array:
    """The pixels after decoding: uint8 (height, width, channels); raises the ImageError of an image that is refused."""
    pixel = ops.Crop(top=0, left=0, height=1, width=1)
    probe = Pipeline([decode, ops.OriginalSize(), pixel, ops.Tensor(dtype="uint8")])
    batch = Engine(probe, threads=1).run_batch([encoded])
    if batch.errors[0] is not None:
        raise batch.errors[0]
    height, width = map(int, batch.outputs["original_size"][0])
    return Stage([decode, ops.Crop(top=0, left=0, height=height, width=width)]).run(encoded)
