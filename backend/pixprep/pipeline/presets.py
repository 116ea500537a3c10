"""Preprocessing that many models share, each as a pipeline to start from."""

from __future__ import annotations

from pixprep.pipeline.ops import CenterCrop, Decode, Letterbox, Normalize, Resize, Tensor, TensorDType, Transform
from pixprep.pipeline.pipeline import Pipeline

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def imagenet(*, dtype: TensorDType = "float32") -> Pipeline:
    """The ImageNet preset of torchvision: shorter side 256, bilinear, centre 224."""
    normalize = Normalize(mean=IMAGENET_MEAN, std=IMAGENET_STD)
    return Pipeline([Decode(), Resize(256), CenterCrop(224), normalize, Tensor(dtype=dtype)])


def clip(*, size: int = 224, dtype: TensorDType = "float32") -> Pipeline:
    """OpenAI's CLIP: shorter side ``size``, bicubic, centre ``size``."""
    normalize = Normalize(mean=CLIP_MEAN, std=CLIP_STD)
    return Pipeline([Decode(), Resize(size, filter="bicubic"), CenterCrop(size), normalize, Tensor(dtype=dtype)])


def efficientnet_lite0() -> Pipeline:
    """The demo's classifier: centre square of 0.875 of the shorter side, bicubic to 224, (level - 127) / 128.

    The window is that of ``_decode_and_center_crop`` of TensorFlow's EfficientNet, which begins at ``(d + 1) // 2``.
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
    """A detector's input: fitted into a gray square, 0 to 1, and the ``transform`` that maps boxes back."""
    return Pipeline([Decode(), Letterbox(size, size), Normalize(), Transform(), Tensor(dtype=dtype)])
