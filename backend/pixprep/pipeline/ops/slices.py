"""Image slices of variable size, each divided into patches, as some vision-language models require."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pixprep.errors import PipelineError
from pixprep.patch_layout import PatchOrder, ViewLayout
from pixprep.pipeline.ops.limits import Length, Within
from pixprep.pipeline.ops.op import OutputOp
from pixprep.pipeline.ops.outputs import NumbersOp
from pixprep.pipeline.ops.patches import Patches
from pixprep.pipeline.ops.sizes import BySize, Count, Pixels
from pixprep.pipeline.ops.tiles import MAX_TILES, TileNumber
from pixprep.plan.folding import Geometry
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import NumbersPlan, TensorPlan
from pixprep.plan.slices import SliceGrid, SliceRule, Whole
from pixprep.spec import ImageSpec, Padding, TensorDType, TensorSpec


class ResizeToSlices(BySize, frozen=True, kw_only=True, tag="resize_to_slices"):
    """Resizes a large image to a grid of slices, and any other image to a size with a limited number of pixels.

    ``slice_patches`` must follow. It cuts the grid into its slices and adds the whole image, which is resized
    separately. ``rule`` selects the formulas of a family of models in Hugging Face transformers:

    - ``minicpm``: an image with more than ``slice_size`` x ``slice_size`` pixels is cut into about ``pixels /
      slice_size ** 2`` slices. The op chooses the grid whose aspect ratio is closest to that of the image. The slices
      and the whole image have about ``slice_size`` x ``slice_size`` pixels each, and keep the aspect ratio (MiniCPM-V
      4.6, MiniCPM-OCR).
    - ``lfm2``: an image with more than ``max_pixels`` times ``tolerance`` pixels is cut into square slices. The op
      chooses the grid whose aspect ratio is closest to that of the image. The whole image has ``min_pixels`` to
      ``max_pixels`` pixels (LFM2-VL).

    Args:
        rule: Formulas.
        slice_size: Edge length of a slice in pixels.
        multiple: All sides are multiples of this number.
        max_slices: Maximum number of slices. With 1, an image is never cut.
        min_slices: Minimum number of slices if an image is cut, for ``lfm2``.
        min_pixels, max_pixels: Limits of the number of pixels of the whole image, for ``lfm2``.
        tolerance: Factor of ``max_pixels``: an image with more than ``max_pixels * tolerance`` pixels is cut, for
            ``lfm2``.
        patch_size: Height and width of a patch in pixels, as in ``slice_patches``; for ``lfm2``.
        enlarge: Whether an image that is not cut is enlarged until it has about as many pixels as a slice, for
            ``minicpm``.
        whole: Whether the whole image is added to the slices.
        filter, antialias, like: as in ``resize``.

    Example:
        {"op": "resize_to_slices", "rule": "minicpm", "slice_size": 448, "multiple": 56, "max_slices": 9}
    """

    rule: SliceRule
    slice_size: Length
    multiple: Length
    max_slices: TileNumber
    min_slices: TileNumber = 1
    min_pixels: Pixels | None = None
    max_pixels: Pixels | None = None
    tolerance: Annotated[float, Within(0.01, 1000)] = 1.0
    patch_size: Length | None = None
    enlarge: bool = True
    whole: bool = True

    def check(self) -> None:
        super().check()
        needed = {name: getattr(self, name) for name in ("min_pixels", "max_pixels", "patch_size")}
        for name, value in needed.items():
            if (value is not None) != (self.rule == "lfm2"):
                words = "is required" if value is None else "has no effect"
                raise PipelineError(f'"{name}" {words} with "rule": "{self.rule}"')
        if (self.min_pixels or 1) > (self.max_pixels or 1):
            raise PipelineError(f'"min_pixels" {self.min_pixels} must not exceed "max_pixels" {self.max_pixels}')
        if self.min_slices > self.max_slices:
            raise PipelineError(f'"min_slices" {self.min_slices} must not exceed "max_slices" {self.max_slices}')

    @property
    def sizer(self) -> SliceGrid:
        return SliceGrid(
            self.rule,
            self.slice_size,
            self.multiple,
            self.max_slices,
            self.min_slices,
            self.min_pixels or 1,
            self.max_pixels or 1,
            self.tolerance,
            self.patch_size or 1,
            self.enlarge,
            self.whole,
        )


class _SliceOp(OutputOp, frozen=True):
    """Base class of outputs that depend on the slices of an image."""

    patch_size: Length

    def views_of(self, before: Lowered) -> ViewLayout:
        """Return the layout of the slices.

        Raises:
            PipelineError: The image does not consist of slices.
        """
        resize = before.resize
        if resize is None or not isinstance(resize.sizer, SliceGrid) or before.after or before.levels:
            raise PipelineError("must follow resize_to_slices, with at most normalize between them")
        is_first = resize.sizer.rule == "minicpm"
        size, count = (self.patch_size, self.patch_size), resize.sizer.max_slices + 1
        return ViewLayout(size, len(before.channels), thumbnail="first" if is_first else "last", max_views=count)


class SlicePatches(_SliceOp, frozen=True, tag="slice_patches"):
    """Defines an output: the patches of the slices of an image, together with the patches of the whole image.

    With ``minicpm``, the whole image comes first, and with ``lfm2``, it comes last. Each view of the image, which is a
    slice or the whole image, is divided into patches in row-major order.

    Args:
        patch_size: Height and width of a patch in pixels.
        max_patches: Fixed number of patches per view. The shape is then ``[views, max_patches, values]``, and missing
            patches are filled with zeros. By default, the patches of all views are side by side, and the shape is ``[1,
            3, patch_size, patches * patch_size]``.
        layout: Order of the values within a patch if ``max_patches`` is given, as in ``patches``.
        dtype: Dtype of the values; ``uint8`` does not support normalized images.

    Example:
        {"op": "slice_patches", "patch_size": 14}
    """

    max_patches: Count | None = None
    layout: PatchOrder = "hwc"
    dtype: TensorDType = "float32"

    def infer(self, image: ImageSpec) -> TensorSpec:
        spec = Patches(self.patch_size, layout=self.layout, dtype=self.dtype).infer(image)
        assert spec.patches is not None
        views = MAX_TILES + 1
        layout = ViewLayout(
            spec.patches.size,
            spec.patches.channels,
            layout="chw" if self.max_patches is None else self.layout,
            fixed=self.max_patches,
            max_views=views,
        )
        count = spec.largest[0]
        if self.max_patches is None:
            shape: tuple[int, ...] = (1, image.channels, self.patch_size, -1)
            most = (*shape[:3], (2 * count) * self.patch_size)
        else:
            shape, most = (-1, self.max_patches, layout.values), (views, self.max_patches, layout.values)
        return replace(spec, shape=shape, most=most, padding=Padding((0.0,)), patches=layout)

    def lower(self, before: Lowered, spec: TensorSpec) -> TensorPlan:
        layout, resize = self.views_of(before), before.resize
        assert resize is not None
        assert isinstance(resize.sizer, SliceGrid)
        assert spec.patches is not None
        if self.max_patches is not None and self.max_patches * self.patch_size**2 < resize.sizer.max_view:
            raise PipelineError(
                f'"max_patches" is {self.max_patches:,}, but a slice or the image may have more patches'
            )
        views = replace(layout, layout=spec.patches.layout, fixed=self.max_patches)
        most = spec.most if self.max_patches is None else (layout.max_views, *spec.most[1:])
        plan = before.tensor(replace(spec, patches=views, most=most))
        if plan.is_real:
            raise PipelineError(
                f'is not supported with "like": "{resize.like}" and "filter": "{resize.filter}", which do not round to '
                'uint8: write "like": "pillow" in the resize'
            )
        if before.erasures or plan.operators or plan.own:
            raise PipelineError(
                "is not supported after random_erasing, a custom operator, or a normalize with image statistics"
            )
        return replace(plan, geometry=_with_whole(plan.geometry))

    def described(self, image: ImageSpec, before: Lowered) -> str:
        del image, before
        return f"output the slices as {self.dtype} patches of {self.patch_size} x {self.patch_size} pixels"


def _with_whole(geometry: Geometry) -> Geometry:
    """Return the geometry of the slices, together with the geometry of the whole image."""
    assert geometry.resize is not None
    assert isinstance(geometry.resize.sizer, SliceGrid)
    whole = replace(geometry.resize, sizer=Whole(geometry.resize.sizer))
    return replace(geometry, thumbnail=replace(geometry, resize=whole))


class _SliceNumbersOp(_SliceOp, NumbersOp, frozen=True):
    """Base class of outputs with numbers that describe the slices of an image."""

    def lower(self, before: Lowered, spec: TensorSpec) -> NumbersPlan:
        views = self.views_of(before)
        if spec.is_open:
            most = views.max_views, spec.shape[1]
            spec = replace(spec, most=most, patches=replace(views, numbers=spec.shape[1]))
        return replace(super().lower(before, spec), geometry=_with_whole(before.geometry), patches=views)


class SliceGrids(_SliceNumbersOp, frozen=True, tag="slice_grids"):
    """Defines an output: the number of rows and columns of patches of each view, ``[views, 2]``, see ``slice_patches``.

    The output corresponds to ``target_sizes`` of MiniCPM-V 4.6, and to ``spatial_shapes`` of LFM2-VL.

    Args:
        patch_size: as in ``slice_patches``.
        dtype: Dtype of the output.

    Example:
        {"op": "slice_grids", "patch_size": 14}
    """

    dtype: Literal["int64", "int32"] = "int64"

    def infer(self, image: ImageSpec) -> TensorSpec:
        del image
        return TensorSpec(shape=(-1, 2), most=(MAX_TILES + 1, 2), dtype=self.dtype, low=1, high=65535)


class SliceMask(_SliceNumbersOp, frozen=True, tag="slice_mask"):
    """Defines an output: a mask ``[views, max_patches]`` that is 1 for each patch of a view, and 0 for padding.

    The output corresponds to ``pixel_attention_mask`` of LFM2-VL.

    Args:
        patch_size, max_patches: as in ``slice_patches``.
        dtype: Dtype of the output.

    Example:
        {"op": "slice_mask", "patch_size": 16, "max_patches": 1024}
    """

    max_patches: Count
    dtype: Literal["int64", "int32"] = "int32"

    def infer(self, image: ImageSpec) -> TensorSpec:
        del image
        shape = -1, self.max_patches
        return TensorSpec(shape=shape, most=(MAX_TILES + 1, self.max_patches), dtype=self.dtype, low=0, high=1)


class SliceCount(_SliceNumbersOp, frozen=True, tag="slice_count"):
    """Defines an output: the number of views of the image, ``[1]``, or the grid of its slices.

    The number of views corresponds to ``num_patches_per_image`` of MiniCPM-V 4.6, and the grid to ``grids``.

    Args:
        patch_size: as in ``slice_patches``.
        order: ``count`` is the number of views. ``hw`` is the number of rows and columns of slices, ``[0, 0]`` if the
            image is not cut.
        dtype: Dtype of the output.

    Example:
        {"op": "slice_count", "patch_size": 14}
    """

    order: Literal["count", "hw"] = "count"
    dtype: Literal["int64", "int32"] = "int64"

    def infer(self, image: ImageSpec) -> TensorSpec:
        del image
        shape = (1,) if self.order == "count" else (2,)
        return TensorSpec(shape=shape, dtype=self.dtype, low=0, high=MAX_TILES + 1)
