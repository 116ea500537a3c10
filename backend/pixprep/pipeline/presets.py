"""Ready-made pipelines for the preprocessing of common models."""

from __future__ import annotations

from pixprep.pipeline.ops import CenterCrop, Decode, Letterbox, Normalize, Resize, Tensor, TensorDType, Transform
from pixprep.pipeline.pipeline import Pipeline

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def imagenet(*, dtype: TensorDType = "float32") -> Pipeline:
    """Return torchvision's preset for ImageNet classification.

    The shorter side is resized to 256 pixels with a bilinear filter. The image is then cropped to the central 224 x 224
    pixels.
    """
    normalize = Normalize(mean=IMAGENET_MEAN, std=IMAGENET_STD)
    return Pipeline([Decode(), Resize(256), CenterCrop(224), normalize, Tensor(dtype=dtype)])


def clip(*, size: int = 224, dtype: TensorDType = "float32") -> Pipeline:
    """Return the preprocessing of OpenAI's CLIP.

    The shorter side is resized to ``size`` pixels with a bicubic filter. The image is then cropped to the central
    ``size`` x ``size`` pixels.
    """
    normalize = Normalize(mean=CLIP_MEAN, std=CLIP_STD)
    return Pipeline([Decode(), Resize(size, filter="bicubic"), CenterCrop(size), normalize, Tensor(dtype=dtype)])


def efficientnet_lite0() -> Pipeline:
    """Return the preprocessing of EfficientNet-Lite0, the classifier of the demo.

    The image is cropped to the central square with 0.875 times the length of the shorter side. The square is resized to
    224 x 224 pixels with a bicubic filter, and normalized by ``(value - 127) / 128``. The crop window is the same as in
    the function ``_decode_and_center_crop`` of TensorFlow's EfficientNet: if d pixels are removed along an axis, the
    window begins at the pixel ``(d + 1) // 2``.
    """
    return Pipeline(
        [
            Decode(),
            CenterCrop(fraction=0.875, rounding="half_away"),
            Resize(height=224, width=224, filter="bicubic"),
            Normalize(mean=127, std=128, scale=1),
            Tensor(),
        ]
    )


def letterbox(*, size: int = 640, dtype: TensorDType = "float32") -> Pipeline:
    """Return the preprocessing of YOLO detectors.

    The image is letterboxed into a gray square of ``size`` x ``size`` pixels, and its values are scaled to the range 0
    to 1. The output ``transform`` contains the scale and offset with which boxes can be mapped back to the photo.
    """
    return Pipeline([Decode(), Letterbox(size, size), Normalize(), Transform(), Tensor(dtype=dtype)])
