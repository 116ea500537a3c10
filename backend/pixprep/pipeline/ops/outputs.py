"""Ops that define outputs: tensors, sizes, transforms, masks of padding, constants and optical flow.

These ops do not change the image, so several of them may follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, cast

from pixprep.bfloat16 import MAX_BFLOAT16
from pixprep.errors import PipelineError
from pixprep.patch_layout import PatchLayout
from pixprep.pipeline.ops.limits import FillColor, Length, need_8bit_values, need_channels, need_layout, shown
from pixprep.pipeline.ops.op import OutputOp, op_name
from pixprep.plan import inputs
from pixprep.plan.geometry_steps import traits
from pixprep.plan.lowered import Lowered, colour
from pixprep.plan.output_plans import FlowPlan, NumbersKind, NumbersPlan, OutputPlan
from pixprep.spec import (
    NO_PADDING,
    FlagDType,
    ImageSpec,
    Layout,
    Padding,
    Preset,
    Reals,
    ScaleOrder,
    SizeDType,
    SizeOrder,
    TensorDType,
    TensorSpec,
    as_tuple,
)

MIN_FLOW_SIDE = 32
"""Minimum height and width of a frame, in pixels, for OpenCV's optical flow."""
MAX_VALUES: dict[TensorDType, float] = {
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": MAX_BFLOAT16,
    "uint8": 255.0,
}
"""Largest finite value of each dtype."""


class Tensor(OutputOp, frozen=True, tag="tensor"):
    """Defines an output: the image as a tensor, whose height and width are fixed or have an upper bound.

    Values are cast and not scaled: without ``normalize``, a float tensor contains 0 to 255, whereas torchvision's
    ``ToTensor`` divides by 255.

    If the height or the width depends on the image, it is -1 in the shape of the output. The tensors of a Triton
    request are padded at the bottom and on the right to the size of the largest tensor: see docs/pipeline-file.md. If
    ``image_size`` precedes the tensor, the client also receives the size without the padding.

    Args:
        dtype: Dtype of the tensor. ``uint8`` does not support normalized values. Arrays of ``bfloat16`` in Python are
            uint16 with the bits of the values, because NumPy does not have this dtype: see docs/pipeline-file.md.
        layout: Order of the axes: ``chw`` (channel, height, width), ``hwc``, ``cwh`` and so on. A clip also has a frame
            axis, such as ``tchw`` or ``cthw``. Several clips of a file (``clips`` of ``decode_video``) also have a clip
            axis, such as ``ntchw`` or ``ncthw``. A ``1`` is a dimension of length 1: ``1chw`` adds such a dimension at
            the front, for example for the index of a camera.
        max_size: Maximum height and width in pixels before padding; a larger image is rejected. If the
            size of the tensor depends on the image, this bound is required, unless an earlier op limits the size.
        min_height, min_width: Minimum height and width in pixels; smaller images are padded.
        multiple: Divisor of the height and the width: the tensor is padded to the next multiple of this number of
            pixels.
        pad_value: Value of the padding in the tensor, after ``normalize``: one number, or one per channel; default: 0.
        pad_level: Pixel value of the padding, 0 to 255, instead of ``pad_value``: one number, or one per channel. This
            value is normalized like the image. If ``channels`` is 4, the padding of the fourth channel is 0.
        channels: Number of channels. 1 keeps one of three equal channels, for example after ``grayscale``. 4 appends a
            fourth channel that contains ``pad_value`` in every pixel, for TensorRT's formats CHW4 and HWC4; it is never
            the alpha channel of the file, which ``"alpha": "keep"`` of ``decode`` appends. Default: the number of
            channels of the image.

    Example:
        {"op": "tensor", "dtype": "float16"}
    """

    dtype: TensorDType = "float32"
    layout: Layout = "chw"
    max_size: Length | None = None
    min_height: Length | None = None
    min_width: Length | None = None
    multiple: Length | None = None
    pad_value: Reals | None = None
    pad_level: FillColor | None = None
    channels: Literal[1, 4] | None = None

    def described(self, image: ImageSpec, before: Lowered) -> str:
        count = f", {self.channels} channel{'s' * (self.channels > 1)}" if self.channels else ""
        return f"output the image as {self.dtype} {self.layout}{count}"

    def check(self) -> None:
        if None not in (self.pad_value, self.pad_level):
            raise PipelineError(
                '"pad_value" and "pad_level" cannot both be given: use "pad_value" for a value of the tensor, or '
                '"pad_level" for a pixel value before normalize'
            )
        for value in as_tuple(self.pad_value or 0.0):
            if not (value in range(256) if self.dtype == "uint8" else abs(value) <= MAX_VALUES[self.dtype]):
                raise PipelineError(f'"pad_value" must be representable as {self.dtype}, not {value:g}')

    def infer(self, image: ImageSpec) -> TensorSpec:
        """Return the spec of the output.

        Raises:
            PipelineError: The image's size has no upper bound, or the image is incompatible with the dtype, the layout
                or the number of channels.
        """
        if self.max_size is not None:
            if max(image.min_height, image.min_width) > self.max_size:
                size = f"{image.min_height} x {image.min_width}"
                raise PipelineError(
                    f'"max_size" is {self.max_size}, but the images are at least {size} pixels: increase it, or resize '
                    "the images first"
                )
            height, width = (min(self.max_size, side or self.max_size) for side in (image.max_height, image.max_width))
            image = image.within((image.min_height, image.min_width), (height, width))
        if image.max_height is None or image.max_width is None:
            raise PipelineError(
                "the size differs from image to image and has no upper bound: add center_crop or letterbox, set "
                '"height" and "width" or "max_size" in resize, or set "max_size" in tensor',
                limit="no bound",
            )
        if self.channels == 4 and image.channels != 3:
            raise PipelineError('"channels": 4 requires an image with three channels, but the image is grayscale')
        channels = self.channels or image.channels
        value = as_tuple(self.pad_value or 0.0)
        need_channels("pad_value", value, channels, "tensor" if self.channels else "image")
        need_channels("pad_level", self.pad_level or 0, min(channels, image.channels), "tensor's image")
        padding = Padding(value, self.min_height or 1, self.min_width or 1, self.multiple or 1)
        bounds = (image.min_height, image.min_width), (image.max_height, image.max_width)
        min_size, max_size = (padding.size(*sides) for sides in bounds)
        if min_size == max_size == bounds[0]:
            padding = NO_PADDING
        if image.is_frames_open:
            raise PipelineError(
                'the number of frames depends on the clip, because decode_video has "rate": remove "rate", or use '
                "patches or tiles instead of tensor"
            )
        if image.frames is not None and (min_size != max_size or padding[1:] != NO_PADDING[1:]):
            raise PipelineError(
                'all clips must have the same size, without padding: set "height" and "width" in resize, and remove '
                '"min_height", "min_width" and "multiple" from tensor'
            )
        need_layout(self.layout, "n" * (image.clips is not None) + "t" * (image.frames is not None) + "chw")
        if self.dtype == "uint8" and image.values == "normalized":
            raise PipelineError("uint8 cannot represent normalized values: use float32 or float16, or remove normalize")
        if self.dtype == "uint8" and image.values == "real":
            raise PipelineError(
                'uint8 cannot represent the resized values, because "like" selects a library that does not round them: '
                "use float32 or float16"
            )
        max_value = max(abs(image.low), abs(image.high))
        if not max_value <= MAX_VALUES[self.dtype]:
            raise PipelineError(
                f"the maximum of {self.dtype} is {MAX_VALUES[self.dtype]:g}, but values reach {max_value:g}"
            )
        clips = image.clips or 1
        lengths = {"1": 1, "n": clips, "t": (image.frames or 0) // clips}
        lengths |= {"c": channels, "h": max_size[0], "w": max_size[1]}
        max_shape = tuple(lengths[axis] for axis in self.layout)
        lengths |= {axis: -1 for axis, low, high in zip("hw", min_size, max_size, strict=True) if low < high}
        return TensorSpec(
            shape=tuple(lengths[axis] for axis in self.layout),
            most=max_shape if min_size != max_size else (),
            dtype=self.dtype,
            layout=self.layout,
            low=image.low,
            high=image.high,
            padding=padding,
            fourth=value[-1] if self.channels == 4 else None,
            max_values=channels * image.max_pixels if image.max_pixels and padding == NO_PADDING else None,
        )

    def check_padding(self, images: Sequence[ImageSpec]) -> None:
        """Raise PipelineError if ``pad_value`` or ``pad_level`` is given, but nothing is ever padded.

        Args:
            images: Specs of the image at this op, in serving and in training.
        """
        given = [name for name in ("pad_value", "pad_level") if getattr(self, name) is not None]
        is_used = self.min_height or self.min_width or self.multiple or (self.channels == 4 and self.pad_level is None)
        if given and not is_used and not any(self.infer(image).may_pad for image in images):
            size = f"{images[0].height} x {images[0].width}"
            raise PipelineError(
                f'"{given[0]}" has no effect, because every image is {size} pixels and is not padded: remove it'
            )

    def lower(self, before: Lowered, spec: TensorSpec) -> OutputPlan:
        plan = before.tensor(spec)
        plan = replace(plan, geometry=replace(plan.geometry, most=self.max_size))
        if self.pad_level is None or not spec.may_pad:
            return plan
        if plan.own:
            raise PipelineError(
                f'"pad_level" is not supported with "scale": "{plan.own}" in normalize, where its normalized value '
                "depends on the image: use the op pad before normalize"
            )
        levels = as_tuple(self.pad_level) * (len(plan.channels) // len(as_tuple(self.pad_level)))
        value = tuple(float(values[int(level)]) for values, level in zip(spec.floats(plan.table), levels, strict=True))
        value = value[: spec.channels] if spec.fourth is None else (*value, spec.fourth)
        return replace(plan, spec=replace(spec, padding=spec.padding._replace(value=value)))


class NumbersOp(OutputOp, frozen=True):
    """Base of the ops that output numbers about the image; some of them have a field ``order``."""

    def described(self, image: ImageSpec, before: Lowered) -> str:
        return f"output {self.lower(before, self.infer(image)).meaning}"

    def grid_of(self, before: Lowered) -> PatchLayout | None:
        """Return the layout of the patches or tiles that the numbers describe. None: they describe the image itself."""
        del before
        return None

    def lower(self, before: Lowered, spec: TensorSpec) -> NumbersPlan:
        kind = cast("NumbersKind", op_name(self))
        geometry = None if kind == "original_size" else before.geometry
        if geometry is not None and geometry.trim is not None:
            before.check_places()
        is_x_first = getattr(self, "order", None) in ("wh", "xy", "w")
        patches = self.grid_of(before)
        return NumbersPlan(spec=spec, kind=kind, geometry=geometry, is_x_first=is_x_first, patches=patches)


class _SizeOp(NumbersOp, frozen=True):
    """Base of the ops that output a size; ``OriginalSize`` documents the fields."""

    dtype: SizeDType = "int32"
    order: SizeOrder = "hw"

    def infer(self, image: ImageSpec) -> TensorSpec:
        return TensorSpec(shape=(len(self.order),), dtype=self.dtype, low=1, high=65535)

    def lower(self, before: Lowered, spec: TensorSpec) -> NumbersPlan:
        channels = len(before.channels) if self.order == "hwc" else 0
        return replace(super().lower(before, spec), channels=channels)


class OriginalSize(_SizeOp, frozen=True, tag="original_size"):
    """Defines an output: the size of the decoded image, with the EXIF orientation applied unless ``decode`` ignores it.

    RT-DETR's input ``orig_target_sizes`` has the dtype ``int64`` and the order ``wh``.

    Args:
        dtype: Dtype of the output.
        order: Order of the numbers: ``hw`` is ``[height, width]``, ``wh`` is ``[width, height]``, ``h`` is
            ``[height]``, ``w`` is ``[width]``, and ``hwc`` is ``[height, width, channels]``.

    Example:
        {"op": "original_size", "dtype": "int64", "order": "wh"}
    """


class ImageSize(_SizeOp, frozen=True, tag="image_size"):
    """Defines an output: the size of the image at this op, such as after a resize and before padding.

    PaddleDetection's input ``im_shape`` has the dtype ``float32`` and is the size after the resize.

    Args:
        dtype, order: as in ``original_size``.

    Example:
        {"op": "image_size", "dtype": "float32"}
    """


class PixelMask(NumbersOp, frozen=True, tag="pixel_mask"):
    """Defines an output: a mask ``[height, width]`` that is 1 for each pixel of the image, and 0 for padding.

    If the tensors of a batch are padded to the same size, the masks are also padded, with 0. The mask corresponds to
    ``pixel_mask`` of DETR and to ``pixel_attention_mask`` of Idefics 2.

    Args:
        padding: Value of the pixels that ops such as ``pad`` and ``center_crop`` add to the image: ``zero`` or, as for
            BridgeTower, ``one``.
        dtype: Dtype of the output.
        max_size, min_height, min_width, multiple: as in ``tensor``.

    Example:
        {"op": "pixel_mask"}
    """

    padding: Literal["zero", "one"] = "zero"
    dtype: FlagDType = "int64"
    max_size: Length | None = None
    min_height: Length | None = None
    min_width: Length | None = None
    multiple: Length | None = None

    def infer(self, image: ImageSpec) -> TensorSpec:
        """Return the spec of the output, whose height and width equal those of a ``tensor`` with the same fields.

        Raises:
            PipelineError: The image is a clip, or its size has no upper bound.
        """
        if image.frames is not None:
            raise PipelineError("supports images, not clips")
        sides = ("max_size", "min_height", "min_width", "multiple")
        spec = Tensor(**{side: getattr(self, side) for side in sides}).infer(image)
        pixels = spec.max_values and spec.max_values // spec.channels
        shape, most = spec.shape[1:], spec.most[1:]
        return replace(spec, shape=shape, most=most, dtype=self.dtype, layout=None, low=0, high=1, max_values=pixels)

    def lower(self, before: Lowered, spec: TensorSpec) -> NumbersPlan:
        before.check_places()
        is_zero = self.padding == "zero"
        if is_zero and any(each.moves for each in traits(*before.levels)):
            raise PipelineError("must come before any op that moves pixels and follows a change of the pixel values")
        if is_zero and before.resize is not None and any(step.may_pad for step in before.before):
            raise PipelineError(
                "does not support a pad before the resize, because the resize blends the image with the padding"
            )
        plan = super().lower(before, spec)
        return replace(plan, geometry=replace(before.geometry, most=self.max_size), is_full=not is_zero)


class Constant(NumbersOp, frozen=True, tag="constant"):
    """Defines an output: the same numbers for every image.

    Some models have inputs that do not depend on the image, such as ``batch_num_images`` of LLaVA-OneVision.

    Args:
        values: Numbers of one image. The shape of the output is ``[len(values)]``.
        dtype: Dtype of the output.

    Example:
        {"op": "constant", "values": [1], "name": "batch_num_images"}
    """

    values: tuple[int | float, ...]
    dtype: SizeDType = "int64"

    def check(self) -> None:
        if not self.values or not all(-(2**31) <= value < 2**31 for value in self.values):
            raise PipelineError('"values" must be one or more numbers from -2^31 to 2^31 - 1')
        if self.dtype != "float32" and any(value % 1 for value in self.values):
            raise PipelineError(f'"values" must be integers for "dtype": "{self.dtype}", not {shown(self.values)}')

    def infer(self, image: ImageSpec) -> TensorSpec:
        del image
        return TensorSpec(shape=(len(self.values),), dtype=self.dtype, low=min(self.values), high=max(self.values))

    def lower(self, before: Lowered, spec: TensorSpec) -> NumbersPlan:
        return replace(super().lower(before, spec), geometry=None, values=self.values)


class _MapOp(NumbersOp, frozen=True):
    """Base of the ops that output the transform from the decoded image to the image at this op, or a part of it."""

    def infer(self, image: ImageSpec) -> TensorSpec:
        is_transform = op_name(self) == "transform"
        shape = (3, 3) if getattr(self, "matrix", False) else (4,) if is_transform else (2,)
        return TensorSpec(shape=shape, dtype="float32", low=-float(2**31), high=float(2**31))

    def lower(self, before: Lowered, spec: TensorSpec) -> NumbersPlan:
        _check_geometry(before, is_axis_aligned=spec.shape != (3, 3))
        return super().lower(before, spec)


class ScaleFactor(_MapOp, frozen=True, tag="scale_factor"):
    """Defines an output: the scale from the decoded image to the image at this op, float32 ``[scale_y, scale_x]``.

    The output contains the first two numbers of ``transform``. PaddleDetection's models have an input named
    ``scale_factor``. Dividing boxes by the scale maps them to the decoded image only if no op crops, pads or flips the
    image.

    Args:
        order: Order of the numbers: ``yx`` is ``[scale_y, scale_x]``, and ``xy`` is ``[scale_x, scale_y]``.

    Example:
        {"op": "scale_factor"}
    """

    order: ScaleOrder = "yx"


class Transform(_MapOp, frozen=True, tag="transform"):
    """Defines an output: the transform from the decoded image to the image at this op.

    The output is float32 ``[scale_y, scale_x, offset_y, offset_x]``. In pixels, ``decoded * scale + offset`` is the
    coordinate in the image at this op, where ``decoded`` is the coordinate in the decoded image. To map a box back to
    the decoded image, compute ``(box - offset) / scale``. A flip makes a scale negative.

    Args:
        matrix: Whether to output a homography instead, float32 [3, 3], which can also describe warps and rotations. The
            homography maps (x, y, 1), where (x, y) is a point of the decoded image measured from the upper left corner,
            to (u, v, w). The corresponding point at this op is (u / w, v / w).

    Example:
        {"op": "transform", "matrix": true}
    """

    matrix: bool = False


class OpticalFlow(OutputOp, frozen=True, tag="optical_flow"):
    """Defines an output: the optical flow between consecutive frames, float32 ``[frames - 1, 2, height, width]``.

    The two channels are the displacements in x and in y, in pixels of the frames at this op. OpenCV's
    ``DISOpticalFlow`` computes them from the grayscale frames (``cvtColor``) on the CPU, even if the pipeline runs on a
    GPU. This op requires ``pip install ".[flow]"`` in a checkout.

    Args:
        preset: Preset of ``DISOpticalFlow``: ``ultrafast``, ``fast`` or ``medium``.

    Example:
        {"op": "optical_flow", "preset": "medium"}
    """

    description = "output the optical flow between consecutive frames (OpenCV's DIS, {0.preset})"

    preset: Preset = "fast"

    def infer(self, image: ImageSpec) -> TensorSpec:
        """Return the spec of the output.

        Raises:
            PipelineError: The input is not a clip of at least two frames, or the size of the frames is not fixed or too
                small.
        """
        need_8bit_values(image)
        if image.clips is not None:
            raise PipelineError('is not supported with "clips" of decode_video: add "clip" to select one of the clips')
        if image.frames is None or image.frames < 2 or image.is_frames_open:
            raise PipelineError("requires a video clip of at least 2 frames: start the pipeline with decode_video")
        if image.height is None or image.width is None:
            raise PipelineError(
                'all clips must have the same size: add center_crop, or set "height" and "width" in resize'
            )
        if min(image.height, image.width) < MIN_FLOW_SIDE:
            raise PipelineError(
                f"OpenCV's optical flow requires frames of at least {MIN_FLOW_SIDE} x {MIN_FLOW_SIDE} pixels, not "
                f"{image.height} x {image.width}"
            )
        shape = (image.frames - 1, 2, image.height, image.width)
        max_motion = float(max(image.height, image.width))
        return TensorSpec(shape=shape, dtype="float32", low=-max_motion, high=max_motion)

    def lower(self, before: Lowered, spec: TensorSpec) -> OutputPlan:
        if isinstance(before.fill, inputs.Fill) and before.color == "bgr":
            raise PipelineError(
                'a "fill" that is an input is not supported with "color": "bgr" in decode_video: use "rgb", or write '
                "the color into the file"
            )
        pairs, _, height, width = spec.shape
        channels = len(before.channels)
        shape = (pairs + 1, height, width, channels)
        frames = TensorSpec(shape=shape, dtype="uint8", layout="thwc", low=0, high=255)
        fill = 0 if before.fill is None or isinstance(before.fill, inputs.Fill) else before.fill
        frames_plan = replace(before.tensor(frames), channels=tuple(range(channels)), fill=colour(fill, before.color))
        return FlowPlan(spec=spec, frames=frames_plan, preset=self.preset)


def _check_geometry(before: Lowered, *, is_axis_aligned: bool) -> None:
    """Raise PipelineError if the geometry so far cannot be described by a scale and an offset, or by a homography.

    Args:
        before: Folded ops before the output.
        is_axis_aligned: Whether the output is a scale and an offset per axis, and not a homography.
    """
    before.check_places()
    if not is_axis_aligned:
        before.check_matrix()
    elif before.geometry.may_warp:
        raise PipelineError(
            "a scale and an offset cannot describe rotations, affine maps, perspectives, elastic deformations and "
            'operators that move pixels: use transform with "matrix": true, put this op before them, or transform '
            "boxes with the op boxes"
        )
