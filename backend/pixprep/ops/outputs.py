"""Outputs: they pass the image on unchanged, so that several may stand one after the other."""

from __future__ import annotations

from typing import Literal

from pixprep.errors import PipelineError
from pixprep.ops.op import Op
from pixprep.spec import ImageSpec, Layout, TensorSpec

TensorDType = Literal["float32", "float16", "uint8"]

LARGEST: dict[TensorDType, float] = {"float32": 3.4028234663852886e38, "float16": 65504.0, "uint8": 255.0}


class Tensor(Op, frozen=True, tag="tensor"):
    """An output: the image as a tensor of known shape.

    Values are cast, not scaled: without ``normalize`` a float tensor holds 0 to 255 (torchvision's ``ToTensor`` divides
    by 255).

    Args:
        dtype: ``float32``, ``float16``, or ``uint8`` where nothing was normalized.
        layout: ``chw`` (channel, height, width) or ``hwc``.
    """

    dtype: TensorDType = "float32"
    layout: Layout = "chw"

    def infer(self, image: ImageSpec) -> TensorSpec:
        """The spec of the output; refuses an image whose size is not known or does not fit the dtype."""
        if image.height is None or image.width is None:
            raise PipelineError(
                "the size differs from image to image, and a batch needs one: add center_crop or letterbox, "
                "or give resize a height and a width"
            )
        if self.dtype == "uint8" and image.values == "normalized":
            raise PipelineError("uint8 cannot hold normalized values: use float32 or float16, or drop normalize")
        if self.dtype == "uint8" and image.values == "real":
            raise PipelineError("uint8 cannot hold what TensorFlow's resize gives: use float32 or float16")
        largest = max(abs(image.low), abs(image.high))
        if not largest <= LARGEST[self.dtype]:
            raise PipelineError(f"{self.dtype} ends at {LARGEST[self.dtype]:g}, but values reach {largest:g}")
        planes, size = (image.channels,), (image.height, image.width)
        shape = planes + size if self.layout == "chw" else size + planes
        return TensorSpec(shape=shape, dtype=self.dtype, layout=self.layout, low=image.low, high=image.high)


class OriginalSize(Op, frozen=True, tag="original_size"):
    """An output: int32 ``[height, width]`` of the image as decoded (upright where the EXIF orientation is applied)."""

    def infer(self, image: ImageSpec) -> TensorSpec:
        """Two numbers, whatever the image."""
        del image
        return TensorSpec(shape=(2,), dtype="int32", low=1, high=65535)


class Transform(Op, frozen=True, tag="transform"):
    """An output: float32 ``[scale_y, scale_x, offset_y, offset_x]`` from the decoded image to the image here.

    ``here = decoded * scale + offset`` in pixels, so that a box comes back by ``(box - offset) / scale``. A flip makes
    a scale negative.
    """

    def infer(self, image: ImageSpec) -> TensorSpec:
        """Four numbers, whatever the image."""
        del image
        return TensorSpec(shape=(4,), dtype="float32", low=-float(2**31), high=float(2**31))
