"""Outputs. They pass the image on unchanged, so several may follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, cast

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import (
    MAX_SIDE,
    Length,
    Margin,
    Pair,
    Share,
    Within,
    need_channels,
    need_layout,
    need_whole_levels,
)
from pixprep.pipeline.ops.op import AnnotationOp, OutputOp, op_name, own_fields
from pixprep.plan import inputs
from pixprep.plan.lowered import Lowered, colour
from pixprep.plan.output_plans import (
    AnnotationPlan,
    BoxesPlan,
    FlowPlan,
    MaskPlan,
    NumbersKind,
    NumbersPlan,
    OutputPlan,
    PointsPlan,
)
from pixprep.spec import (
    NO_PADDING,
    BoxFormat,
    ImageSpec,
    Layout,
    MaskDType,
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

MAX_ROWS = 100_000
Rows = Annotated[int, Within(1, MAX_ROWS, " rows")]
LEAST_FLOW_SIDE = 32
LARGEST: dict[TensorDType, float] = {"float32": 3.4028234663852886e38, "float16": 65504.0, "uint8": 255.0}


class Tensor(OutputOp, frozen=True, tag="tensor"):
    """Defines an output: the image as a tensor, whose sides are known in advance or have an upper bound.

    Values are cast and not scaled: without ``normalize``, a float tensor contains 0 to 255, whereas torchvision's
    ``ToTensor`` divides by 255.

    A side whose length depends on the image is -1 in the shape. A single image yields a tensor of its own size. The
    images of a batch are padded at the bottom and on the right to the largest of them: see docs/pipeline-file.md. With
    ``image_size`` before the tensor, the client receives the size of the image without the padding.

    Args:
        dtype: Dtype of the tensor; ``uint8`` requires that no op normalizes the image.
        layout: Order of the axes: ``chw`` (channel, height, width), ``hwc``, ``cwh`` and so on. A clip also has a frame
            axis, such as ``tchw`` or ``cthw``. A ``1`` is a dimension of length 1, such as one for a camera: ``1chw``.
        max_size: Maximum side in pixels before padding; a larger image is rejected. It bounds a tensor whose size
            depends on the image.
        min_height, min_width: Minimum height and width in pixels; smaller images are padded.
        multiple: Number to whose next multiple both sides are padded.
        pad_value: Value of the padding in the tensor, after ``normalize``: one number, or one per channel; default: 0.
        pad_level: Pixel value of the padding, 0 to 255, instead of ``pad_value``: one number, or one per channel.
            ``normalize`` applies to it as to the image. A fourth channel is then 0.
        channels: Number of channels. 1 keeps one of three equal channels, such as after ``grayscale``. 4 adds a fourth
            channel after three, which contains ``pad_value`` in every pixel (TensorRT's CHW4 and HWC4), and never the
            alpha of the file. Default: the channels of the image.

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
    pad_level: Margin | None = None
    channels: Literal[1, 4] | None = None

    def described(self, image: ImageSpec, before: Lowered) -> str:
        count = f", {self.channels} channel{'s' * (self.channels > 1)}" if self.channels else ""
        return f"give the image as {self.dtype} {self.layout}{count}"

    def check(self) -> None:
        if None not in (self.pad_value, self.pad_level):
            raise PipelineError('needs either "pad_value", of the tensor, or "pad_level", before normalize')
        for value in as_tuple(self.pad_value or 0.0):
            if not (value in range(256) if self.dtype == "uint8" else abs(value) <= LARGEST[self.dtype]):
                raise PipelineError(f'"pad_value" must be a value of {self.dtype}, not {value:g}')

    def infer(self, image: ImageSpec) -> TensorSpec:
        """The spec of the output; refuses an image whose size has no bound or does not fit the dtype."""
        if self.max_size is not None:
            if max(image.min_height, image.min_width) > self.max_size:
                size = f"{image.min_height} x {image.min_width}"
                raise PipelineError(f'"max_size" {self.max_size} is less than the {size} pixels that every image has')
            rows, columns = (min(self.max_size, side or self.max_size) for side in (image.max_height, image.max_width))
            image = image.within((image.min_height, image.min_width), (rows, columns))
        if image.max_height is None or image.max_width is None:
            raise PipelineError(
                "the size differs from image to image, and has no bound: add center_crop or letterbox, or give resize "
                "a height and a width, or a max_size, or tensor a max_size"
            )
        if self.channels == 4 and image.channels != 3:
            raise PipelineError('"channels": 4 adds a fourth channel to red, green and blue, but the image is gray')
        channels = self.channels or image.channels
        value = as_tuple(self.pad_value or 0.0)
        need_channels("pad_value", value, channels, "tensor" if self.channels else "image")
        need_channels("pad_level", self.pad_level or 0, min(channels, image.channels), "tensor's image")
        padding = Padding(value, self.min_height or 1, self.min_width or 1, self.multiple or 1)
        bounds = (image.min_height, image.min_width), (image.max_height, image.max_width)
        least, most = (padding.size(*sides) for sides in bounds)
        if least == most == bounds[0]:
            padding = NO_PADDING
        if image.frames is not None and (least != most or padding[1:] != NO_PADDING[1:]):
            raise PipelineError("the size differs from clip to clip: give resize a height and a width, and no padding")
        need_layout(self.layout, "chw" if image.frames is None else "tchw")
        if self.dtype == "uint8" and image.values == "normalized":
            raise PipelineError("uint8 cannot hold normalized values: use float32 or float16, or drop normalize")
        if self.dtype == "uint8" and image.values == "real":
            raise PipelineError("uint8 cannot hold what TensorFlow's resize gives: use float32 or float16")
        largest = max(abs(image.low), abs(image.high))
        if not largest <= LARGEST[self.dtype]:
            raise PipelineError(f"{self.dtype} ends at {LARGEST[self.dtype]:g}, but values reach {largest:g}")
        sizes = {"1": 1, "t": image.frames or 0, "c": channels, "h": most[0], "w": most[1]}
        shape = tuple(sizes[axis] for axis in self.layout)
        sizes |= {axis: -1 for axis, low, high in zip("hw", least, most, strict=True) if low < high}
        return TensorSpec(
            shape=tuple(sizes[axis] for axis in self.layout),
            most=shape if least != most else (),
            dtype=self.dtype,
            layout=self.layout,
            low=image.low,
            high=image.high,
            padding=padding,
            fourth=value[-1] if self.channels == 4 else None,
            max_values=channels * image.max_pixels if image.max_pixels and padding == NO_PADDING else None,
        )

    def check_padding(self, images: Sequence[ImageSpec]) -> None:
        """Raise PipelineError for what fills a padding that none of these images, of any side, has."""
        given = [name for name in ("pad_value", "pad_level") if getattr(self, name) is not None]
        asks = self.min_height or self.min_width or self.multiple or (self.channels == 4 and self.pad_level is None)
        if given and not asks and not any(self.infer(image).may_pad for image in images):
            size = f"{images[0].height} x {images[0].width}"
            raise PipelineError(f'"{given[0]}" has no effect: every image is {size}, so nothing is padded; remove it')

    def lower(self, before: Lowered, spec: TensorSpec) -> OutputPlan:
        plan = before.tensor(spec)
        plan = replace(plan, geometry=replace(plan.geometry, most=self.max_size))
        if self.pad_level is None or not spec.may_pad:
            return plan
        if plan.own:
            raise PipelineError(f'"pad_level" has no one value where normalize has "scale": "{plan.own}": use pad')
        levels = as_tuple(self.pad_level) * (len(plan.channels) // len(as_tuple(self.pad_level)))
        value = tuple(float(values[int(level)]) for values, level in zip(plan.table, levels, strict=True))
        value = value[: spec.channels] if spec.fourth is None else (*value, spec.fourth)
        return replace(plan, spec=replace(spec, padding=spec.padding._replace(value=value)))


class NumbersOp(OutputOp, frozen=True):
    """An output of a few numbers, which the place of the image says; ``order`` may be a field."""

    def described(self, image: ImageSpec, before: Lowered) -> str:
        return f"give {self.lower(before, self.infer(image)).meaning}"

    def infer(self, image: ImageSpec) -> TensorSpec:
        is_transform = op_name(self) == "transform"
        shape = (3, 3) if getattr(self, "matrix", False) else (4,) if is_transform else (2,)
        return TensorSpec(shape=shape, dtype="float32", low=-float(2**31), high=float(2**31))

    def lower(self, before: Lowered, spec: TensorSpec) -> NumbersPlan:
        kind = cast("NumbersKind", op_name(self))
        if kind in ("scale_factor", "transform"):
            _check_places(before, are_four=spec.shape != (3, 3))
        geometry = None if kind == "original_size" else before.geometry
        is_x_first = getattr(self, "order", None) in ("wh", "xy")
        return NumbersPlan(spec=spec, kind=kind, geometry=geometry, is_x_first=is_x_first)


class _SizeOp(NumbersOp, frozen=True):
    """An output of two sides; ``original_size`` says what the fields are."""

    dtype: SizeDType = "int32"
    order: SizeOrder = "hw"

    def infer(self, image: ImageSpec) -> TensorSpec:
        return TensorSpec(shape=(len(self.order),), dtype=self.dtype, low=1, high=65535)

    def lower(self, before: Lowered, spec: TensorSpec) -> NumbersPlan:
        channels = len(before.channels) if self.order == "hwc" else 0
        return replace(super().lower(before, spec), channels=channels)


class OriginalSize(_SizeOp, frozen=True, tag="original_size"):
    """Defines an output: the size of the decoded image, after the EXIF orientation if that is applied.

    RT-DETR's ``orig_target_sizes`` has the dtype ``int64`` and the order ``wh``.

    Args:
        dtype: Dtype of the output.
        order: Order of the numbers: ``hw`` is ``[height, width]``, ``wh`` is ``[width, height]``, and ``hwc`` is
            ``[height, width, channels]``.

    Example:
        {"op": "original_size", "dtype": "int64", "order": "wh"}
    """


class ImageSize(_SizeOp, frozen=True, tag="image_size"):
    """Defines an output: the size of the image at this op, such as after a resize and before padding.

    PaddleDetection's ``im_shape`` has the dtype ``float32`` and follows the resize.

    Args:
        dtype, order: as in ``original_size``.

    Example:
        {"op": "image_size", "dtype": "float32"}
    """


class ScaleFactor(NumbersOp, frozen=True, tag="scale_factor"):
    """Defines an output: float32, the scale of each side from the decoded image, the first half of ``transform``.

    PaddleDetection has an input of this name. A model that divides its boxes by it does not account for crops, padding
    or flips.

    Args:
        order: Order of the numbers: ``yx`` is ``[scale_y, scale_x]``, and ``xy`` is ``[scale_x, scale_y]``.

    Example:
        {"op": "scale_factor"}
    """

    order: ScaleOrder = "yx"


class Transform(NumbersOp, frozen=True, tag="transform"):
    """Defines an output: float32 ``[scale_y, scale_x, offset_y, offset_x]`` from the decoded image to the image here.

    In pixels, ``here = decoded * scale + offset``. To map a box back to the decoded image, compute ``(box - offset) /
    scale``. A flip makes a scale negative.

    Args:
        matrix: Whether the output is a homography instead, float32 [3, 3], which also describes warps, rotations and
            the like. It maps (x, y, 1) of the decoded image, measured from the upper left corner, to (u, v, w); the
            point is then (u / w, v / w).

    Example:
        {"op": "transform", "matrix": true}
    """

    matrix: bool = False


class OpticalFlow(OutputOp, frozen=True, tag="optical_flow"):
    """Defines an output: the motion of the pixels from frame to frame, float32 ``[frames - 1, 2, height, width]``.

    The values are in pixels of the frames at this op, to the right, then down. OpenCV's DIS computes them from the gray
    frames (``cvtColor``) on the CPU, even if the pipeline runs on a GPU. It requires ``pip install ".[flow]"`` in a
    checkout.

    Args:
        preset: Preset of OpenCV's DIS.

    Example:
        {"op": "optical_flow", "preset": "medium"}
    """

    said = "give how pixels move from frame to frame (OpenCV's DIS, {0.preset})"

    preset: Preset = "fast"

    def infer(self, image: ImageSpec) -> TensorSpec:
        """The spec of the output; refuses images, a clip of one frame, and frames whose size is not known."""
        need_whole_levels(image)
        if image.frames is None or image.frames < 2:
            raise PipelineError("needs a clip of at least 2 frames: begin with decode_video")
        if image.height is None or image.width is None:
            raise PipelineError(
                "the size differs from clip to clip: add center_crop, or give resize a height and a width"
            )
        if min(image.height, image.width) < LEAST_FLOW_SIDE:
            raise PipelineError(
                f"frames of {image.height} x {image.width}: OpenCV needs {LEAST_FLOW_SIDE} pixels a side"
            )
        shape = (image.frames - 1, 2, image.height, image.width)
        far = float(max(image.height, image.width))
        return TensorSpec(shape=shape, dtype="float32", low=-far, high=far)

    def lower(self, before: Lowered, spec: TensorSpec) -> OutputPlan:
        if isinstance(before.fill, inputs.Fill) and before.color == "bgr":
            raise PipelineError('not of margins whose colour comes with the clip, with "color": "bgr" of decode_video')
        count, _, height, width = spec.shape
        channels = len(before.channels)
        shape = (count + 1, height, width, channels)
        frames = TensorSpec(shape=shape, dtype="uint8", layout="thwc", low=0, high=255)
        fill = 0 if before.fill is None or isinstance(before.fill, inputs.Fill) else before.fill
        own = replace(before.tensor(frames), channels=tuple(range(channels)), fill=colour(fill, before.color))
        return FlowPlan(spec=spec, frames=own, preset=self.preset)


class Boxes(AnnotationOp, frozen=True, tag="boxes"):
    """Defines an output of a Loader: the sample's boxes in the image at this op, float32 (n, 4), with their fields.

    A sample contains boxes as xyxy in pixels of the decoded image. They follow every op before this one. Boxes outside
    the image are removed, together with their ``labels`` and their other fields: see docs/training.md.

    Args:
        format: Format of a box: ``xyxy`` (left, top, right, bottom), ``xywh`` (left, top, width, height) or ``cxcywh``
            (center x, center y, width, height).
        normalized: Whether the coordinates are divided by the width and the height of the image at this op.
        clip: Whether boxes are clipped to the image.
        min_size: Minimum width and height of a box, in pixels of the image at this op, after ``clip``. Smaller boxes
            are removed.
        min_visible: Minimum visible fraction of a box's area, 0 to 1. Boxes below it are removed.
        min_area: Minimum area of a box, measured as for ``min_size``. Boxes below it are removed.
        pad: Fixed number of rows, so that all images fit into one array. Rows without a box contain -1, and so do their
            labels. An image with more boxes is rejected.
        follow: Names of further fields of a sample with one value per box, such as ``["cls"]``. The values of removed
            boxes are also removed.

    Example:
        {"op": "boxes", "format": "cxcywh", "normalized": true}
    """

    said = "give the boxes of the image here"

    format: BoxFormat = "xyxy"
    normalized: bool = False
    clip: bool = True
    min_size: Annotated[float, Within(0, MAX_SIDE, " pixels")] = 1.0
    min_visible: Share = 0.0
    min_area: Annotated[float, Within(0, MAX_SIDE**2, " pixels")] = 0.0
    pad: Rows | None = None
    follow: tuple[str, ...] = ()

    def check(self) -> None:
        for name in self.follow:
            if not name.isidentifier() or name in ("image", "name", "boxes", "points", "mask", "masks", "size"):
                raise PipelineError(f'"follow" has names of fields with one value for each box, not {name!r}')

    def lower(self, before: Lowered, image: ImageSpec) -> AnnotationPlan:
        before.check_boxes()
        return BoxesPlan(geometry=before.geometry, **own_fields(self))


class Points(AnnotationOp, frozen=True, tag="points"):
    """Defines an output of a Loader: the sample's points in the image at this op, float32 (n, 2) or (n, k, 2).

    A point is (x, y). A sample contains points in pixels of the decoded image. They follow every op before this one. If
    the sample also has boxes, row n belongs to box n and is removed with it.

    In a mirrored image, a left eye becomes a right eye. ``flip_pairs`` lists the keypoints that then swap places,
    together with their ``visible`` values. They swap if an odd number of flips, horizontal or vertical, is between the
    photo and this op.

    Args:
        flip_pairs: Pairs of keypoint indices, from 0, that are left and right counterparts. For COCO's person: ``[[1,
            2], [3, 4], ..., [15, 16]]``.
        normalized: Whether the coordinates are divided by the width and the height of the image at this op.
        clip: Whether points outside the image move to the nearest position inside it. By default, they stay outside.
        pad: as in ``boxes``.

    Example:
        {"op": "points", "flip_pairs": [[1, 2], [3, 4]]}
    """

    said = "give the points of the image here"

    flip_pairs: tuple[tuple[int, int], ...] = ()
    normalized: bool = False
    clip: bool = False
    pad: Rows | None = None

    def check(self) -> None:
        for pair in self.flip_pairs:
            Pair.check("flip_pairs", pair)
        paired = [point for pair in self.flip_pairs for point in pair]
        if len({*paired}) < len(paired) or not all(0 <= point < MAX_ROWS for point in paired):
            raise PipelineError(f'"flip_pairs" has each keypoint once, by its number from 0, not {self.flip_pairs}')

    def lower(self, before: Lowered, image: ImageSpec) -> AnnotationPlan:
        before.check_boxes()
        return PointsPlan(geometry=before.geometry, **own_fields(self))


class Mask(AnnotationOp, frozen=True, tag="mask"):
    """Defines an output of a Loader: the sample's segmentation map in the image at this op, (height, width).

    A sample contains one label per pixel of the decoded image in its field ``mask``. The mask is an array (height,
    width), or a gray or palette PNG whose stored values are the labels. It follows all geometry before this op, always
    with the nearest pixel, and ignores color ops. It is resized as torchvision v2 resizes a ``Mask``, except that a
    resize with ``"like": "opencv"`` uses OpenCV's ``nearest`` and one with ``subpixel`` DALI's. A rotation and an
    affine map round as the op's ``like``.

    Args:
        ignore: Label outside the image: in padding, and in the corners of a rotation.
        dtype: Dtype of the mask: ``uint8``, or ``int64`` for labels outside 0 to 255.

    Example:
        {"op": "mask", "dtype": "int64"}
    """

    said = "give the label of each pixel of the image here, {0.ignore} where no image is"

    ignore: int = 255
    dtype: MaskDType = "uint8"

    def check(self) -> None:
        if self.dtype == "uint8" and not 0 <= self.ignore <= 255:
            raise PipelineError(f'"ignore" must be 0 to 255, not {self.ignore}: "dtype": "int64" holds any label')

    def lower(self, before: Lowered, image: ImageSpec) -> AnnotationPlan:
        before.check_places()
        is_one_size = None not in (image.height, image.width)
        return MaskPlan(geometry=before.geometry, field="mask", is_one_size=is_one_size, **own_fields(self))


class Masks(AnnotationOp, frozen=True, tag="masks"):
    """Defines an output of training: one mask per object in the image at this op, uint8 (n, height, width).

    A sample contains an array (n, height, width) in its field ``masks``, which is 0 outside the object. The masks
    follow the geometry as with ``mask``, and are 0 outside the image. If the sample also has boxes, mask n belongs to
    box n and is removed with it.

    Example:
        {"op": "masks"}
    """

    said = "give the mask of each object of the image here"

    def lower(self, before: Lowered, image: ImageSpec) -> AnnotationPlan:
        before.check_places()
        is_one_size = None not in (image.height, image.width)
        return MaskPlan(geometry=before.geometry, field="masks", ignore=0, dtype="uint8", is_one_size=is_one_size)


def _check_places(before: Lowered, *, are_four: bool) -> None:
    """Reject geometry that a matrix, or a scale and an offset, cannot describe."""
    before.check_places()
    if not are_four:
        before.check_boxes()
    elif before.geometry.may_warp:
        raise PipelineError(
            "four numbers cannot say where a pixel came from after a rotation, an affine map, a perspective, elastic "
            'or the motion of an operator: write "matrix": true, put it before, or move boxes by the op boxes'
        )
