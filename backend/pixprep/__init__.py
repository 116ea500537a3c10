"""pixprep: converts encoded images to model-ready tensors, in Python and in Triton Inference Server.

The steps for one JPEG::

    client        JPEG bytes                      input  "image"  BYTES [n, 1]   (or UINT8 [length])
    Triton        many requests, dynamic batch    up to max_batch_size images
    triton/model  requests -> list of bytes       remembers which request each image belongs to
    decoders      bytes -> pixels                 uint8 (height, width, channel), sizes differ
    kernels       pixels -> tensor                resize, crop, flip, scale, normalize, layout
    triton/model  slices -> responses             a bad image fails only its own request

>>> import pixprep as pp
>>> pipeline = pp.Pipeline([pp.decode(), pp.resize(256), pp.center_crop(224), pp.tensor(dtype="uint8")])
>>> pp.Pipeline.from_json(pipeline.to_json()) == pipeline
True
"""

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from pixprep import registry

__version__ = "0.1.0"

LATE = {
    "Batch": "pixprep.engine.batch:Batch",
    "DataError": "pixprep.errors:DataError",
    "Detections": "pixprep.postprocessing.detections:Detections",
    "Engine": "pixprep.engine.engine:Engine",
    "Epoch": "pixprep.plan.steps.operators:Epoch",
    "ImageError": "pixprep.errors:ImageError",
    "ImageSpec": "pixprep.spec:ImageSpec",
    "Limits": "pixprep.engine.options:Limits",
    "Loader": "pixprep.training.loader:Loader",
    "Chain": "pixprep.training.chain:Chain",
    "CopyPaste": "pixprep.training.chain:CopyPaste",
    "Mix": "pixprep.training.mixing:Mix",
    "MixUp": "pixprep.training.chain:MixUp",
    "Mosaic": "pixprep.training.chain:Mosaic",
    "Operator": "pixprep.plan.steps.operators:Operator",
    "Origin": "pixprep.pipeline.file:Origin",
    "Pipeline": "pixprep.pipeline.pipeline:Pipeline",
    "PipelineError": "pixprep.errors:PipelineError",
    "PixprepError": "pixprep.errors:PixprepError",
    "SetupError": "pixprep.errors:SetupError",
    "TensorSpec": "pixprep.spec:TensorSpec",
    "apply": "pixprep.engine.apply:apply",
    "boxes_to_original": "pixprep.postprocessing.coordinates:boxes_to_original",
    "boxes_to_tensor": "pixprep.postprocessing.coordinates:boxes_to_tensor",
    "detections": "pixprep.postprocessing.detections:detections",
    "load": "pixprep.pipeline.pipeline:Pipeline.load",
    "mask_to_original": "pixprep.postprocessing.coordinates:mask_to_original",
    "operator": "pixprep.plan.steps.operators:operator",
    "ops": "pixprep.pipeline.ops",
    "points_to_original": "pixprep.postprocessing.coordinates:points_to_original",
    "points_to_tensor": "pixprep.postprocessing.coordinates:points_to_tensor",
    "presets": "pixprep.pipeline.presets",
    "quads_of": "pixprep.postprocessing.coordinates:quads_of",
    "read": "pixprep.training.read",
    "rotated_to_original": "pixprep.postprocessing.coordinates:rotated_to_original",
    "views": "pixprep.pipeline.views:views",
}
"""Public names except the ops, and the objects that they refer to. An object is imported when its name is first used,
so that ``pixprep --help`` does not import NumPy, and a server does not import the training code."""


def __getattr__(name: str) -> Any:
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module 'pixprep' has no attribute {name!r}")
    if name in LATE:
        globals()[name] = registry.load(LATE[name])
        return globals()[name]
    ops = registry.load("pixprep.pipeline.ops:OPS")
    public = [*LATE, *ops]
    globals().update(ops, OPS=ops, __all__=public)
    if name not in globals():
        names = registry.load("pixprep.names")
        suggestion = names.hint(names.meant(name, public, names.OPS), "'")
        raise AttributeError(f"module 'pixprep' has no attribute {name!r}{suggestion}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(["OPS", "__version__", *__getattr__("__all__")])


class _Package(ModuleType):
    """Package whose public name ``boxes`` is the op, although a submodule has the same name."""

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        # Pickle the package by name, because cloudpickle (used by Spark and Ray) supports only plain modules by itself.
        return import_module, (self.__name__,)

    def __setattr__(self, name: str, value: object) -> None:
        if name != "boxes" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
