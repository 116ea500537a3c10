"""Outputs of transformers' image processors that are not pixel values: masks, sizes and constants.

The modules ``patches`` and ``sizes`` contain the outputs that belong to a grid of patches or tiles.
"""

from __future__ import annotations

from collections.abc import Callable

from pixprep.importers.fields import Fields
from pixprep.importers.transformers.classes import DETRS
from pixprep.pipeline.ops import Constant, ImageSize, Op, OriginalSize, PixelMask

_MASK = PixelMask(name="pixel_mask")
_ORIGINAL = OriginalSize(dtype="int64", name="original_sizes")


def _if_padded(mask: PixelMask) -> Callable[[Fields], list[Op]]:
    """Return a function for classes that output a mask only if ``do_pad`` is true."""
    return lambda fields: [mask] if fields.flag("do_pad") else []


def _always(*outputs: Op) -> Callable[[Fields], list[Op]]:
    """Return a function for classes with the same outputs in every configuration."""
    return lambda fields: [*outputs]  # noqa: ARG005


_FURTHER: dict[str, Callable[[Fields], list[Op]]] = {
    **dict.fromkeys((*DETRS, "RfDetrImageProcessor", "ViltImageProcessor"), _if_padded(_MASK)),
    "BridgeTowerImageProcessor": _if_padded(PixelMask(padding="one", name="pixel_mask")),
    **dict.fromkeys(
        ("Mask2FormerImageProcessor", "MaskFormerImageProcessor", "OneFormerImageProcessor"), _always(_MASK)
    ),
    "AriaImageProcessor": _always(PixelMask(dtype="bool", name="pixel_mask"), Constant((1,), name="num_crops")),
    "Gemma3ImageProcessor": _always(Constant((0,), name="num_crops")),
    "Idefics2ImageProcessor": _if_padded(PixelMask(name="pixel_attention_mask")),
    "LlavaOnevisionImageProcessor": _always(Constant((1,), name="batch_num_images")),
    **dict.fromkeys(("Sam2ImageProcessor", "Sam3ImageProcessor"), _always(_ORIGINAL)),
    "SamImageProcessor": _always(_ORIGINAL, ImageSize(dtype="int64", name="reshaped_input_sizes")),
    "VideoLlama3ImageProcessor": lambda fields: [
        Constant((fields.length("merge_size", 64),), name="image_merge_sizes")
    ],
}


def further_outputs(fields: Fields, processor: str) -> list[Op]:
    """Return the ops for the outputs of a class that are not pixel values.

    Args:
        fields: Fields of the configuration, with the defaults of the class for omitted fields.
        processor: Name of the class.
    """
    make = _FURTHER.get(processor)
    return make(fields) if make is not None else []
