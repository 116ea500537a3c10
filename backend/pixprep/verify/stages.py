"""pixprep's own result of each stage: every stage is a shorter pipeline, run by the engine as any other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep import ops
from pixprep.engine import Engine
from pixprep.pipeline import Pipeline
from pixprep.pipeline_file import FORMAT, to_dict

Array = npt.NDArray[Any]
Op = ops.AnyOp
Resizing = ops.Resize | ops.Letterbox


def resizing(chain: Sequence[Op]) -> Resizing | None:
    """The one resize of a chain, if there is one."""
    return next((op for op in chain if isinstance(op, Resizing)), None)


def is_real(chain: Sequence[Op]) -> bool:
    """Whether its resize gives float32 values, not levels."""
    op = resizing(chain)
    return op is not None and op.like == "tensorflow" and op.filter != "nearest"


class Stage:
    """A chain of ops; without a ``tensor`` at its end, one that holds the values as they are is added."""

    def __init__(self, chain: Sequence[Op]) -> None:
        if not isinstance(chain[-1], ops.Tensor):
            chain = (*chain, ops.Tensor(dtype="float32" if is_real(chain) else "uint8", layout="hwc"))
        assert isinstance(chain[-1], ops.Tensor)
        self._is_chw = chain[-1].layout == "chw"
        entries = [{key: x for key, x in to_dict(op).items() if key not in ("name", "from")} for op in chain]
        pipeline = Pipeline.from_json(json.dumps({"format": FORMAT, "ops": entries}))
        self._engine = Engine(pipeline, threads=1)

    def run(self, encoded: bytes) -> Array:
        """(height, width, channels), whatever the layout; raises the ImageError of an image that is refused."""
        (result,) = self._engine.run([encoded])
        if isinstance(result, Exception):
            raise result
        return np.asarray(result.transpose(1, 2, 0) if self._is_chw else result)


def decoded(decode: ops.Decode, encoded: bytes) -> Array:
    """The pixels after decoding: uint8 (height, width, channels); raises the ImageError of an image that is refused."""
    pixel = ops.Crop(top=0, left=0, height=1, width=1)
    probe = Pipeline([decode, ops.OriginalSize(), pixel, ops.Tensor(dtype="uint8")])
    batch = Engine(probe, threads=1).run_batch([encoded])
    if batch.errors[0] is not None:
        raise batch.errors[0]
    height, width = map(int, batch.outputs["original_size"][0])
    return Stage([decode, ops.Crop(top=0, left=0, height=height, width=width)]).run(encoded)
