"""Ops that define outputs of a Loader: the boxes, points, masks and targets of a sample, transformed like the image.

These ops do not change the image, so several of them may follow each other.
"""

from __future__ import annotations

from math import inf
from typing import Annotated, Literal

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import MAX_SIDE, Fraction, Pair, Within
from pixprep.pipeline.ops.op import AnnotationOp, own_fields
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import AnnotationPlan, BoxesPlan, MaskPlan, PointsPlan, TargetPlan
from pixprep.spec import BoxFormat, ImageSpec, MaskDType, TargetDType

MAX_ROWS = 100_000
RowCount = Annotated[int, Within(1, MAX_ROWS, " rows")]
_FIELDS_OF_OPS = ("boxes", "points", "mask", "masks")


class Boxes(AnnotationOp, frozen=True, tag="boxes"):
    """Defines an output of a Loader: the sample's boxes in coordinates of the image at this op, float32 (n, 4).

    The boxes of a sample are xyxy in pixels of the decoded image. Every op before this one transforms them like the
    image. Boxes outside the image are removed, and so are their entries in ``labels`` and in other fields: see
    docs/training.md.

    Args:
        format: Format of a box: ``xyxy`` (left, top, right, bottom), ``xywh`` (left, top, width, height) or ``cxcywh``
            (center x, center y, width, height).
        normalized: Whether the coordinates are divided by the width and the height of the image at this op.
        clip: Whether boxes are clipped to the image.
        min_size: Minimum width and height of a box, in pixels of the image at this op, after ``clip``. Smaller boxes
            are removed.
        min_visible: Minimum visible fraction of a box's area, 0 to 1. Boxes with a smaller visible fraction are
            removed.
        min_area: Minimum area of a box, in square pixels of the image at this op, after ``clip``. Smaller boxes are
            removed.
        pad: Fixed number of rows per image, so that a batch has one array of boxes. Rows without a box, and their
            labels, contain -1. An image with more boxes than this number is rejected.
        follow: Names of additional sample fields with one value per box, such as ``["cls"]``. If a box is removed, its
            values in these fields are also removed.

    Example:
        {"op": "boxes", "format": "cxcywh", "normalized": true}
    """

    description = "output the boxes of the image at this point"

    format: BoxFormat = "xyxy"
    normalized: bool = False
    clip: bool = True
    min_size: Annotated[float, Within(0, MAX_SIDE, " pixels")] = 1.0
    min_visible: Fraction = 0.0
    min_area: Annotated[float, Within(0, MAX_SIDE**2, " pixels")] = 0.0
    pad: RowCount | None = None
    follow: tuple[str, ...] = ()

    def check(self) -> None:
        for name in self.follow:
            if not name.isidentifier() or name in ("image", "name", "boxes", "points", "mask", "masks", "size"):
                raise PipelineError(f'"follow" must list names of fields with one value per box, not {name!r}')

    def lower(self, before: Lowered, image: ImageSpec) -> AnnotationPlan:
        before.check_boxes()
        return BoxesPlan(geometry=before.geometry, **own_fields(self))


class Points(AnnotationOp, frozen=True, tag="points"):
    """Defines an output of a Loader: the sample's points in coordinates of the image at this op.

    The output is float32 (n, 2) or (n, k, 2). A point is (x, y), and the points of a sample are in pixels of the
    decoded image. Every op before this one transforms them like the image. If the sample also has boxes, row n belongs
    to box n and is removed with it.

    In a mirrored image, a left eye becomes a right eye. Therefore, if an odd number of horizontal or vertical flips was
    applied before this op, the pairs of keypoints in ``flip_pairs`` are exchanged, together with their ``visible``
    values.

    Args:
        flip_pairs: Pairs of keypoint indices, from 0, that are left and right counterparts. For COCO's person: ``[[1,
            2], [3, 4], ..., [15, 16]]``.
        normalized: Whether the coordinates are divided by the width and the height of the image at this op.
        clip: Whether points outside the image move to the nearest position inside it. By default, they do not move.
        pad: as in ``boxes``.

    Example:
        {"op": "points", "flip_pairs": [[1, 2], [3, 4]]}
    """

    description = "output the points of the image at this point"

    flip_pairs: tuple[tuple[int, int], ...] = ()
    normalized: bool = False
    clip: bool = False
    pad: RowCount | None = None

    def check(self) -> None:
        for pair in self.flip_pairs:
            Pair.check("flip_pairs", pair)
        paired = [point for pair in self.flip_pairs for point in pair]
        if len({*paired}) < len(paired) or not all(0 <= point < MAX_ROWS for point in paired):
            raise PipelineError(
                '"flip_pairs" must be pairs of keypoint indices, which begin at 0 and occur only once, not '
                f"{self.flip_pairs}"
            )

    def lower(self, before: Lowered, image: ImageSpec) -> AnnotationPlan:
        before.check_boxes()
        return PointsPlan(geometry=before.geometry, **own_fields(self))


class Mask(AnnotationOp, frozen=True, tag="mask"):
    """Defines an output of a Loader: the sample's segmentation map (height, width), transformed like the image.

    The field ``mask`` of a sample contains one label per pixel of the decoded image. The mask is an array (height,
    width), or a grayscale or palette PNG whose stored values are the labels. Every geometric op before this one
    transforms the mask with nearest-neighbor interpolation; color ops do not change it. The mask is resized as
    torchvision v2 resizes a ``Mask``, except that a resize with ``"like": "opencv"`` uses OpenCV's ``nearest``, and a
    resize with ``subpixel`` uses DALI's. Rotations and affine maps round coordinates like the library that ``like``
    names.

    Args:
        ignore: Label of pixels outside the image, such as in padding and in the corners of a rotated image.
        dtype: Dtype of the mask: ``uint8``, or ``int64`` for labels outside 0 to 255.

    Example:
        {"op": "mask", "dtype": "int64"}
    """

    description = "output the segmentation map, {0.ignore} outside the image"

    ignore: int = 255
    dtype: MaskDType = "uint8"

    def check(self) -> None:
        if self.dtype == "uint8" and not 0 <= self.ignore <= 255:
            raise PipelineError(
                f'"ignore" must be 0 to 255, not {self.ignore}: write "dtype": "int64" for labels outside this range'
            )

    def lower(self, before: Lowered, image: ImageSpec) -> AnnotationPlan:
        before.check_places()
        is_one_size = None not in (image.height, image.width)
        return MaskPlan(geometry=before.geometry, field="mask", is_one_size=is_one_size, **own_fields(self))


class Masks(AnnotationOp, frozen=True, tag="masks"):
    """Defines an output of a Loader: the sample's instance masks, transformed like the image, uint8 (n, height, width).

    The field ``masks`` of a sample is an array (n, height, width), in which each mask is 0 outside its object. The
    masks are transformed like a ``mask``, and pixels outside the image become 0. If the sample also has boxes, mask n
    belongs to box n and is removed with it.

    Example:
        {"op": "masks"}
    """

    description = "output the mask of each object"

    def lower(self, before: Lowered, image: ImageSpec) -> AnnotationPlan:
        before.check_places()
        is_one_size = None not in (image.height, image.width)
        return MaskPlan(geometry=before.geometry, field="masks", ignore=0, dtype="uint8", is_one_size=is_one_size)


class Target(AnnotationOp, frozen=True, tag="target"):
    """Defines an output of a Loader: an image-like target of the sample, transformed like the image.

    The output is an array (channels, height, width). A target is depth, a surface normal, an optical flow, a second
    image, or a stack of channels for each pixel of the decoded image. It is an array (height, width) or (height, width,
    channels), a ``.npy`` file, a PNG of 8 or 16 bits, or a TIFF, whose pages become channels. Every geometric op before
    this one transforms the target; color ops do not change it. ``nearest`` copies values as in ``mask``. ``bilinear``
    samples the target once, without antialiasing, at the position that corresponds to each output pixel in the decoded
    image. At the border, it repeats the edge pixels of the target.

    Args:
        field: Name of the sample's field.
        filter: Interpolation filter: ``nearest`` or ``bilinear``.
        dtype: Dtype of the output. Integers are rounded half to even.
        ignore: Value outside of the image.
        kind: ``values`` are not changed by the geometry. ``alpha`` selects the last channel of a gray image with alpha
            or of an RGBA image, such as the alpha of the photo's own PNG. ``flow`` contains the motion vector (x, y) of
            each pixel, in pixels. The vectors are resized, flipped and rotated like the image. ``normals`` contains
            unit vectors (x, y, z) with x to the right and y downwards, which are flipped and rotated like the image,
            but not resized.
        zoom: Factor by which the target is larger than the image, and the output is larger than the tensor, such as 4
            for pairs of images in super-resolution.

    Example:
        {"op": "target", "field": "depth", "filter": "bilinear"}
    """

    description = 'output the target "{0.field}", {0.filter}'

    field: str = "target"
    filter: Literal["nearest", "bilinear"] = "nearest"
    dtype: TargetDType = "float32"
    ignore: float = 0.0
    kind: Literal["values", "alpha", "flow", "normals"] = "values"
    zoom: Annotated[int, Within(1, 16)] = 1

    def check(self) -> None:
        if not self.field.isidentifier() or self.field in (*_FIELDS_OF_OPS, "image", "name", "label", "size"):
            raise PipelineError(f'"field" must be the name of a field that no other op uses, not {self.field!r}')
        most = {"float32": inf, "uint8": 255, "uint16": 65535}[self.dtype]
        if self.dtype != "float32" and not (self.ignore % 1 == 0 and 0 <= self.ignore <= most):
            raise PipelineError(f'"ignore" must be a valid {self.dtype}, not {self.ignore:g}')
        if self.kind in ("flow", "normals") and self.dtype != "float32":
            raise PipelineError(f'"kind": "{self.kind}" requires "dtype": "float32"')

    def lower(self, before: Lowered, image: ImageSpec) -> AnnotationPlan:
        (before.check_matrix if self.kind in ("flow", "normals") else before.check_places)()
        is_one_size = None not in (image.height, image.width)
        return TargetPlan(geometry=before.geometry, is_one_size=is_one_size, **own_fields(self))
