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
from pixprep.apply import apply
from pixprep.coordinates import boxes_to_original, boxes_to_tensor, points_to_original, points_to_tensor
from pixprep.decoders import Limits
from pixprep.engine import Batch, Engine
from pixprep.errors import DataError, ImageError, PipelineError, PixprepError, SetupError
from pixprep.file import Origin
from pixprep.ops import OPS
from pixprep.pipeline import Pipeline
from pixprep.spec import ImageSpec, TensorSpec
from pixprep.steps.operators import Operator, operator

if TYPE_CHECKING:  # for editors; below, each operator gets its name in the file
    from pixprep.data import read
    from pixprep.data.loader import Loader
    from pixprep.ops import Affine as affine
    from pixprep.ops import Autocontrast as autocontrast
    from pixprep.ops import Boxes as boxes
    from pixprep.ops import Brightness as brightness
    from pixprep.ops import CenterCrop as center_crop
    from pixprep.ops import ColorJitter as color_jitter
    from pixprep.ops import Contrast as contrast
    from pixprep.ops import Crop as crop
    from pixprep.ops import Decode as decode
    from pixprep.ops import DecodeVideo as decode_video
    from pixprep.ops import Equalize as equalize
    from pixprep.ops import Extern as extern
    from pixprep.ops import Flip as flip
    from pixprep.ops import Gamma as gamma
    from pixprep.ops import GaussianBlur as gaussian_blur
    from pixprep.ops import Grayscale as grayscale
    from pixprep.ops import Hue as hue
    from pixprep.ops import Invert as invert
    from pixprep.ops import Letterbox as letterbox
    from pixprep.ops import Normalize as normalize
    from pixprep.ops import OpticalFlow as optical_flow
    from pixprep.ops import OriginalSize as original_size
    from pixprep.ops import Pad as pad
    from pixprep.ops import Pixels as pixels
    from pixprep.ops import Points as points
    from pixprep.ops import Posterize as posterize
    from pixprep.ops import RandAugment as rand_augment
    from pixprep.ops import RandomAffine as random_affine
    from pixprep.ops import RandomAutocontrast as random_autocontrast
    from pixprep.ops import RandomCrop as random_crop
    from pixprep.ops import RandomEqualize as random_equalize
    from pixprep.ops import RandomErasing as random_erasing
    from pixprep.ops import RandomFlip as random_flip
    from pixprep.ops import RandomGaussianBlur as random_gaussian_blur
    from pixprep.ops import RandomGray as random_gray
    from pixprep.ops import RandomInvert as random_invert
    from pixprep.ops import RandomIouCrop as random_iou_crop
    from pixprep.ops import RandomPosterize as random_posterize
    from pixprep.ops import RandomResizedCrop as random_resized_crop
    from pixprep.ops import RandomRotate as random_rotate
    from pixprep.ops import RandomSharpness as random_sharpness
    from pixprep.ops import RandomSolarize as random_solarize
    from pixprep.ops import RandomZoomOut as random_zoom_out
    from pixprep.ops import Resize as resize
    from pixprep.ops import Rotate as rotate
    from pixprep.ops import Saturation as saturation
    from pixprep.ops import Sharpness as sharpness
    from pixprep.ops import Solarize as solarize
    from pixprep.ops import Tensor as tensor
    from pixprep.ops import Transform as transform
    from pixprep.ops import TrivialAugment as trivial_augment

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
