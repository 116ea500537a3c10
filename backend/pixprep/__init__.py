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
from typing import TYPE_CHECKING, Any

from pixprep import presets
from pixprep.coordinates import boxes_to_original, boxes_to_tensor, points_to_original, points_to_tensor
from pixprep.decoders import Limits
from pixprep.engine import Batch, Engine
from pixprep.errors import DataError, ImageError, PipelineError, PixprepError, SetupError
from pixprep.ops import OPS
from pixprep.pipeline import Pipeline
from pixprep.pipeline_file import Origin
from pixprep.spec import ImageSpec, TensorSpec

if TYPE_CHECKING:  # for editors; below, each operator gets its name in the file
    from pixprep.data import read
    from pixprep.data.loader import Loader
    from pixprep.ops import Boxes as boxes
    from pixprep.ops import Brightness as brightness
    from pixprep.ops import CenterCrop as center_crop
    from pixprep.ops import ColorJitter as color_jitter
    from pixprep.ops import Contrast as contrast
    from pixprep.ops import Crop as crop
    from pixprep.ops import Decode as decode
    from pixprep.ops import DecodeVideo as decode_video
    from pixprep.ops import Flip as flip
    from pixprep.ops import Letterbox as letterbox
    from pixprep.ops import Normalize as normalize
    from pixprep.ops import OpticalFlow as optical_flow
    from pixprep.ops import OriginalSize as original_size
    from pixprep.ops import Pad as pad
    from pixprep.ops import Pixels as pixels
    from pixprep.ops import Points as points
    from pixprep.ops import RandomCrop as random_crop
    from pixprep.ops import RandomFlip as random_flip
    from pixprep.ops import RandomIouCrop as random_iou_crop
    from pixprep.ops import RandomResizedCrop as random_resized_crop
    from pixprep.ops import RandomZoomOut as random_zoom_out
    from pixprep.ops import Resize as resize
    from pixprep.ops import Saturation as saturation
    from pixprep.ops import Tensor as tensor
    from pixprep.ops import Transform as transform

__version__ = "0.1.0"

globals().update(OPS)
load = Pipeline.load


def __getattr__(name: str) -> Any:
    """The data side, when it is asked for: who serves needs none of it, and it takes 30 ms."""
    if name == "read":
        globals()[name] = import_module("pixprep.data.read")
    elif name == "Loader":
        globals()[name] = import_module("pixprep.data.loader").Loader
    else:
        raise AttributeError(f"module 'pixprep' has no attribute {name!r}")
    return globals()[name]


__all__ = [
    "Batch",
    "DataError",
    "Engine",
    "ImageError",
    "ImageSpec",
    "Limits",
    "Loader",
    "Origin",
    "Pipeline",
    "PipelineError",
    "PixprepError",
    "SetupError",
    "TensorSpec",
    "boxes_to_original",
    "boxes_to_tensor",
    "load",
    "points_to_original",
    "points_to_tensor",
    "presets",
    "read",
    *OPS,
]
