"""Tiles of an image and a thumbnail of it, as vision-language models with a fixed input size require."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pixprep.errors import PipelineError
from pixprep.patch_layout import PatchLayout
from pixprep.pipeline.ops.limits import Length, Within
from pixprep.pipeline.ops.op import OutputOp
from pixprep.pipeline.ops.outputs import NumbersOp
from pixprep.pipeline.ops.patches import Patches
from pixprep.pipeline.ops.sizes import BySize
from pixprep.plan import geometry_steps
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import NumbersPlan, TensorPlan
from pixprep.plan.profiles import PROFILES
from pixprep.plan.tile_grids import Choice, Fit, TileGrid, grids_of
from pixprep.spec import FlagDType, ImageSpec, TensorDType, TensorSpec

MAX_TILES = 64
TileNumber = Annotated[int, Within(1, MAX_TILES, " tiles")]


class ResizeToTiles(BySize, frozen=True, kw_only=True, tag="resize_to_tiles"):
    """Resizes the image to a grid of square tiles, whose numbers of rows and columns are chosen for each image.

    The op ``tiles`` then returns each tile as a separate image. ``choose`` selects the criterion for the grid, as in a
    family of models in Hugging Face transformers:

    - ``aspect_ratio``: the grid whose aspect ratio is closest to that of the image (InternVL, GOT-OCR 2).
    - ``scale``: the grid that enlarges the image least, or shrinks it least if all grids shrink it (Command A Vision).
    - ``scale32``: the same, computed in float32 (Llama 4). ``max_scale32`` instead chooses the grid that enlarges the
      image most, if any grid enlarges it (``resize_to_max_canvas`` of Llama 4).
    - ``resolution``: the grid that preserves the largest number of the image's pixels, then the grid with the smallest
      padding (LLaVA-NeXT, LLaVA-OneVision).
    - ``unscaled``: the smallest grid that contains the image, or the grid with the closest aspect ratio if the smallest
      grid has more than ``max_tiles`` tiles (Phi-4).
    - ``coverage``: the grid with the fewest tiles that cover 90 % of the image's pixels (Ovis 2).
    - ``canvas``: the grid in which the image fits without shrinking and is enlarged most. If the image does not fit in
      any grid, the grid with the closest aspect ratio is chosen (PerceptionLM).

    Args:
        tile_size: Height and width of a tile in pixels.
        max_tiles: Maximum number of tiles.
        min_tiles: Minimum number of tiles, except for ``canvas``.
        grids: Grids to choose from, each as (rows, columns). Default: all grids with ``min_tiles`` to ``max_tiles``
            tiles.
        choose: Criterion, see above.
        fit: How the image fills the grid: ``stretch`` changes its aspect ratio. ``center`` keeps it, and pads the image
            on all sides (LLaVA-NeXT). ``top_left`` also keeps it, enlarges the image at most to one tile, and pads it
            at the bottom and on the right (Llama 3.2 Vision). ``top_left32`` does the same in float32 (Llama 4); with
            ``max_scale32``, the image is enlarged to the whole grid. ``inside`` is ``top_left`` without the limit of
            one tile; a result with a side below 10 pixels is rejected (Phi-4).
        fill: Pixel value of the padding, 0 to 255, if ``fit`` pads the image. Default: 0.
        keep_small: Whether an image that fits into one tile without being shrunk becomes one tile, even if
            ``min_tiles`` is larger (DeepSeek-OCR 2).
        filter, antialias, like: as in ``resize``.

    Example:
        {"op": "resize_to_tiles", "tile_size": 448, "max_tiles": 12, "filter": "bicubic"}
    """

    tile_size: Length
    max_tiles: TileNumber | None = None
    min_tiles: TileNumber = 1
    grids: tuple[tuple[int, int], ...] = ()
    choose: Choice = "aspect_ratio"
    fit: Fit = "stretch"
    fill: Annotated[int, Within(0, 255)] = 0
    keep_small: bool = False

    def check(self) -> None:
        super().check()
        if (self.max_tiles is None) == (not self.grids):
            raise PipelineError('needs either "max_tiles" or "grids"')
        if self.max_tiles is not None and self.min_tiles > self.max_tiles:
            raise PipelineError(f'"min_tiles" {self.min_tiles} must not exceed "max_tiles" {self.max_tiles}')
        if any(rows < 1 or columns < 1 or rows * columns > MAX_TILES for rows, columns in self.grids):
            raise PipelineError(f'"grids" must be pairs of rows and columns, each with 1 to {MAX_TILES} tiles')
        if self.fill and self.fit == "stretch":
            raise PipelineError('"fill" has no effect with "fit": "stretch": remove it')
        if self.choose == "canvas" and (self.grids or self.min_tiles > 1):
            raise PipelineError('"choose": "canvas" requires "max_tiles" alone, without "grids" and "min_tiles"')
        if self.tile_size**2 * max(rows * columns for rows, columns in self.sizer.grids) > 1 << 28:
            raise PipelineError("the tiles have more than 2^28 pixels in total: choose fewer or smaller tiles")

    @property
    def sizer(self) -> TileGrid:
        grids = self.grids or grids_of(self.min_tiles, self.max_tiles or 1, self.choose)
        return TileGrid(self.tile_size, grids, self.choose, self.fit, self.keep_small, self.fill)


class _TileOp(OutputOp, frozen=True):
    """An output that depends on the tiles of an image."""

    tile_size: Length
    thumbnail: Literal["first", "last"] | None = None
    thumbnail_of_one: bool = False
    omit_one: bool = False

    def check(self) -> None:
        if self.thumbnail_of_one and self.thumbnail is None:
            raise PipelineError('"thumbnail_of_one" requires "thumbnail": "first" or "last"')
        if self.thumbnail_of_one and self.omit_one:
            raise PipelineError('"thumbnail_of_one" contradicts "omit_one": remove one of them')

    def spec_of(self, image: ImageSpec, dtype: TensorDType) -> TensorSpec:
        """Return the spec of the tensor of all tiles.

        Raises:
            PipelineError: The image does not consist of complete tiles, or its values do not fit the dtype.
        """
        if image.frames is not None and (self.thumbnail or self.omit_one):
            raise PipelineError('"thumbnail" and "omit_one" support images, not clips: remove them')
        spec = Patches(self.tile_size, flat=False, dtype=dtype).infer(image)
        assert spec.patches is not None
        layout = replace(
            spec.patches, thumbnail=self.thumbnail, is_always=self.thumbnail_of_one, omits_one=self.omit_one
        )
        more = int(self.thumbnail is not None and (self.thumbnail_of_one or spec.largest[0] > 1))
        count = spec.shape[0] if spec.is_open else spec.shape[0] + more
        most = (spec.most[0] + more, *spec.most[1:]) if spec.most else ()
        return replace(spec, shape=(count, *spec.shape[1:]), most=most, patches=layout)


class Tiles(_TileOp, frozen=True, tag="tiles"):
    """Defines an output: the image divided into square tiles, and optionally a thumbnail of the same size.

    The shape is ``[tiles, 3, tile_size, tile_size]``, where the number of tiles depends on the image. Tiles are in
    row-major order. The image before this op must consist of complete tiles, as after ``resize_to_tiles``. The tiles of
    a clip are in the order of its frames.

    Args:
        tile_size: Height and width of a tile in pixels.
        thumbnail: Position of the thumbnail, a tile that shows the whole image before ``resize_to_tiles``, resized to
            ``tile_size`` x ``tile_size`` without keeping the aspect ratio. By default, no thumbnail is added.
        thumbnail_of_one: Whether a thumbnail is also added to an image that is a single tile, as for LLaVA-NeXT.
        omit_one: Whether the tensor is empty if the image is a single tile. DeepSeek-OCR 2 requires this, because its
            model receives the whole image from a different output.
        thumbnail_of: Source of the thumbnail. ``photo`` is the image before ``resize_to_tiles``. ``tiles`` is the image
            after ``resize_to_tiles``, which is resized again, as for Idefics 3. ``values`` are the finished float32
            values of the tiles, which are resized without antialiasing, as for Phi-4. A GPU engine computes such
            tensors on the CPU.
        thumbnail_filter: Filter of the thumbnail for ``values``: ``bilinear`` or ``bicubic``.
        max_tiles: Fixed number of tiles per tensor. Missing tiles are filled with zeros. Default: the number of tiles
            of the image.
        dtype: Dtype of the values; ``uint8`` does not support normalized images.

    Example:
        {"op": "tiles", "tile_size": 448, "thumbnail": "last"}
    """

    thumbnail_of: Literal["photo", "tiles", "values"] = "photo"
    thumbnail_filter: Literal["bilinear", "bicubic"] | None = None
    max_tiles: TileNumber | None = None
    dtype: TensorDType = "float32"

    def check(self) -> None:
        super().check()
        if self.max_tiles is not None and self.thumbnail is not None:
            raise PipelineError('"max_tiles" does not support "thumbnail": remove one of them')
        if (self.thumbnail_of == "values") != (self.thumbnail_filter is not None):
            raise PipelineError('"thumbnail_of": "values" and "thumbnail_filter" must be set together')
        least = PROFILES["torch_float"].min_sides
        if self.thumbnail_filter is not None and (self.dtype != "float32" or 2 * self.tile_size < least):
            raise PipelineError(
                f'"thumbnail_of": "values" requires "dtype": "float32" and a "tile_size" of at least {-(-least // 2)}'
            )

    def infer(self, image: ImageSpec) -> TensorSpec:
        spec = self.spec_of(image, self.dtype)
        if self.max_tiles is None:
            return spec
        if image.frames is not None:
            raise PipelineError('"max_tiles" supports images, not clips: remove it')
        if spec.largest[0] > self.max_tiles:
            raise PipelineError(f'"max_tiles" is {self.max_tiles}, but an image may have {spec.largest[0]} tiles')
        assert spec.patches is not None
        layout = replace(spec.patches, fixed=self.max_tiles)
        return replace(spec, shape=(self.max_tiles, *spec.shape[1:]), most=(), patches=layout)

    def lower(self, before: Lowered, spec: TensorSpec) -> TensorPlan:
        plan, resize = before.tensor(spec), before.resize
        if self.thumbnail is None:
            return plan
        if resize is None:
            raise PipelineError('"thumbnail" requires a resize before tiles')
        if before.erasures:
            raise PipelineError('"thumbnail" is not supported after random_erasing: remove one of the two')
        if plan.operators:
            raise PipelineError('"thumbnail" is not supported after a custom operator')
        small = geometry_steps.Resize(
            rule="both",
            height=self.tile_size,
            width=self.tile_size,
            filter=self.thumbnail_filter or resize.filter,
            antialias=resize.antialias and self.thumbnail_filter is None,
            like="torch_float" if self.thumbnail_filter else resize.like,
            order=resize.order,
        )  # without other fields of the resize, such as its region or its random size
        if self.thumbnail_filter and (plan.own or plan.fill_value is not None):
            raise PipelineError(
                '"thumbnail_of": "values" supports neither a normalize with "scale": "max" or "mean" nor a pad with a '
                '"value"'
            )
        if self.thumbnail_of != "photo":
            if resize.is_real:
                raise PipelineError(
                    f'"thumbnail_of": "{self.thumbnail_of}" requires that the resize before tiles returns uint8. With '
                    f'"like": "{resize.like}" and "filter": "{resize.filter}", it returns float32: set "like": '
                    '"pillow" in the resize'
                )
            thumbnail = replace(plan.geometry, levels=(*plan.geometry.levels, small))
            return replace(plan, geometry=replace(plan.geometry, thumbnail=thumbnail))
        if not isinstance(resize.sizer, TileGrid) or before.after or before.levels:
            raise PipelineError(
                '"thumbnail" requires that no op changes the image between resize_to_tiles and tiles, except normalize'
            )
        return replace(plan, geometry=replace(plan.geometry, thumbnail=replace(plan.geometry, resize=small)))

    def described(self, image: ImageSpec, before: Lowered) -> str:
        where = {"first": " after a thumbnail", "last": " and a thumbnail", None: ""}[self.thumbnail]
        return f"output the image as {self.dtype} tiles of {self.tile_size} x {self.tile_size} pixels{where}"


class TileCount(_TileOp, NumbersOp, frozen=True, tag="tile_count"):
    """Defines an output: the number of tiles of the image, including the thumbnail, as in ``tiles``.

    The output corresponds to ``num_patches`` of InternVL. To get the numbers of rows and columns, use ``patch_grid``
    with ``tile_size`` as ``patch_size``.

    Args:
        tile_size, thumbnail, thumbnail_of_one, omit_one: as in ``tiles``.
        dtype: Dtype of the output.

    Example:
        {"op": "tile_count", "tile_size": 448, "thumbnail": "last"}
    """

    dtype: Literal["int64", "int32"] = "int64"

    def infer(self, image: ImageSpec) -> TensorSpec:
        return TensorSpec(shape=(1,), dtype=self.dtype, low=0, high=self.spec_of(image, "float32").largest[0])

    def grid_of(self, before: Lowered) -> PatchLayout:
        layout = Patches(self.tile_size).grid_of(before)
        return replace(layout, thumbnail=self.thumbnail, is_always=self.thumbnail_of_one, omits_one=self.omit_one)


class TileMask(_TileOp, NumbersOp, frozen=True, tag="tile_mask"):
    """Defines an output: a mask ``[tiles, tile_size, tile_size]`` that is 1 for each pixel of each tile.

    The output corresponds to ``pixel_attention_mask`` of Idefics 3. If a client pads the tensors of several images to
    the same number of tiles, it must pad the masks with 0.

    Args:
        tile_size, thumbnail, thumbnail_of_one, omit_one: as in ``tiles``.
        patch_size: Height and width of a patch in pixels. If given, the shape is ``[tiles, tile_size // patch_size,
            tile_size // patch_size]``, and patches that contain only padding are 0, as in ``image_attention_mask`` of
            Phi-4. The image must be at the upper left corner of the grid.
        dtype: Dtype of the output.

    Example:
        {"op": "tile_mask", "tile_size": 364, "thumbnail": "last"}
    """

    patch_size: Length | None = None
    dtype: FlagDType = "int64"

    def check(self) -> None:
        super().check()
        if self.patch_size is not None and self.tile_size % self.patch_size:
            raise PipelineError(f'"tile_size" must be a multiple of patch_size, {self.patch_size}')

    def infer(self, image: ImageSpec) -> TensorSpec:
        spec = self.spec_of(image, "float32")
        size = (self.tile_size // (self.patch_size or 1),) * 2
        return TensorSpec(
            shape=(spec.shape[0], *size),
            most=(spec.most[0], *size) if spec.most else (),
            dtype=self.dtype,
            low=0,
            high=1,
            patches=self._layout,
        )

    def grid_of(self, before: Lowered) -> PatchLayout:
        del before
        return self._layout

    @property
    def _layout(self) -> PatchLayout:
        """Layout of the mask, whose tiles do not have a channel axis."""
        return PatchLayout(
            (self.tile_size, self.tile_size),
            0,
            is_flat=False,
            thumbnail=self.thumbnail,
            is_always=self.thumbnail_of_one,
            omits_one=self.omit_one,
            cells=self.patch_size or 1,
        )


class TileTokenCount(NumbersOp, frozen=True, tag="tile_token_count"):
    """Defines an output: the number of image tokens of Phi-4, as in ``num_img_tokens`` of its image processor.

    The thumbnail has 16 rows of 16 tokens. In the other tiles, each square of 2 x 2 patches becomes one token, unless
    it contains only padding. One more token is added at the end of each row of tokens, both in the thumbnail and in the
    grid of tiles. One further token separates the thumbnail from the other tiles.

    Args:
        tile_size, patch_size: as in ``tile_mask`` with ``"thumbnail": "first"`` and ``"thumbnail_of_one": true``.
        dtype: Dtype of the output.

    Example:
        {"op": "tile_token_count", "tile_size": 448, "patch_size": 14}
    """

    tile_size: Length
    patch_size: Length
    dtype: Literal["int64", "int32"] = "int64"

    @property
    def _mask(self) -> TileMask:
        return TileMask(self.tile_size, patch_size=self.patch_size, thumbnail="first", thumbnail_of_one=True)

    def check(self) -> None:
        self._mask.check()

    def infer(self, image: ImageSpec) -> TensorSpec:
        self._mask.infer(image)
        return TensorSpec(shape=(1,), dtype=self.dtype, low=1, high=2**31 - 1)

    def grid_of(self, before: Lowered) -> PatchLayout:
        return self._mask.grid_of(before)


class TileGridId(NumbersOp, frozen=True, tag="tile_grid_id"):
    """Defines an output: the number of the grid of tiles among the ``grids`` of ``resize_to_tiles``, from 1.

    It is the ``aspect_ratio_ids`` of Llama 3.2 Vision. ``resize_to_tiles`` must have ``grids``, whose order it follows.

    Args:
        dtype: Dtype of the output.

    Example:
        {"op": "tile_grid_id"}
    """

    dtype: Literal["int64", "int32"] = "int64"

    def infer(self, image: ImageSpec) -> TensorSpec:
        del image
        return TensorSpec(shape=(1,), dtype=self.dtype, low=1, high=MAX_TILES * MAX_TILES)

    def lower(self, before: Lowered, spec: TensorSpec) -> NumbersPlan:
        resize = before.resize
        if resize is None or not isinstance(resize.sizer, TileGrid) or before.after or before.levels:
            raise PipelineError("must follow resize_to_tiles, with at most normalize between them")
        return replace(super().lower(before, spec), tiles=resize.sizer)
