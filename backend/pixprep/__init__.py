"""pixprep: encoded images in, model-ready tensors out; in Python, and in Triton Inference Server.

The path of one JPEG::

    client        JPEG bytes                      input  "image"  BYTES [n, 1]   (or UINT8 [length])
    Triton        many requests, dynamic batch    up to max_batch_size images
    triton/model  requests -> list of bytes       remembers which slice is whose
    decoders      bytes -> pixels                 uint8 (height, width, channel), sizes differ
    kernels       pixels -> tensor                resize, crop, flip, scale, normalize, layout
    triton/model  slices -> responses             a bad image fails only its own request

>>> import pixprep as pp
>>> pipeline = pp.Pipeline([pp.decode(), pp.resize(256), pp.center_crop(224), pp.tensor(dtype="uint8")])
>>> pp.Pipeline.from_json(pipeline.to_json()) == pipeline
True
"""

from importlib import import_module
from typing import Any

from pixprep import presets
from pixprep.apply import apply
from pixprep.batch import Batch
from pixprep.boxes import boxes_to_original, boxes_to_tensor, points_to_original, points_to_tensor
from pixprep.decoders import Limits
from pixprep.engine import Engine
from pixprep.errors import DataError, ImageError, PipelineError, PixprepError, SetupError
from pixprep.ops import OPS
from pixprep.pipeline import Pipeline
from pixprep.pipeline.file import Origin
from pixprep.spec import ImageSpec, TensorSpec
from pixprep.steps.operators import Operator, operator

__version__ = "0.1.0"

globals().update(OPS)
load = Pipeline.load


LATE = {"read": "pixprep.data.read", "Loader": "pixprep.data.loader.Loader", "Mix": "pixprep.data.mixing.Mix"}
"""The data side, which is imported when it is asked for: who serves needs none of it, and it takes 30 ms."""


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module 'pixprep' has no attribute {name!r}{_suggestion(name)}")
    module, _, attribute = LATE[name].rpartition(".")
    globals()[name] = import_module(LATE[name]) if name == "read" else getattr(import_module(module), attribute)
    return globals()[name]


def _suggestion(name: str) -> str:
    """Name of ours for one of another library, such as ``RandomHorizontalFlip``, or the nearest one."""
    if name.startswith("_"):
        return ""
    from pixprep import names

    return names.hint(names.meant(name, [*OPS, *__all__], names.OPS), "'")


def __dir__() -> list[str]:
    return sorted({*globals(), *LATE})


__all__ = [
    "Batch",
    "DataError",
    "Engine",
    "ImageError",
    "ImageSpec",
    "Limits",
    "Loader",
    "Mix",
    "Operator",
    "Origin",
    "Pipeline",
    "PipelineError",
    "PixprepError",
    "SetupError",
    "TensorSpec",
    "apply",
    "boxes_to_original",
    "boxes_to_tensor",
    "load",
    "operator",
    "points_to_original",
    "points_to_tensor",
    "presets",
    "read",
    *OPS,
]
