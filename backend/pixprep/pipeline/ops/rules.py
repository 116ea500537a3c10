"""The op that resizes by a formula of Pillow, detectron2, MMOCR, or an image processor of Hugging Face transformers."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import Length, Within
from pixprep.pipeline.ops.sizes import BySize
from pixprep.plan.lowered import Lowered
from pixprep.plan.placement import ReducingGap
from pixprep.plan.side_rules import Rule, SideRule
from pixprep.spec import ImageSpec, upward

_WITHOUT_MULTIPLE: tuple[Rule, ...] = (
    *("contain", "contain_down", "keep", "longer", "longer_down", "longer_even", "longer_half_up", "bounded"),
    *("shorter_half_up", "square"),
    *("idefics3", "thumbnail", "thumbnail_gap", "nearer_32", "pillow_contain", "pillow_thumbnail"),
)


class ResizeByRule(BySize, frozen=True, kw_only=True, tag="resize_by_rule"):
    """Resizes the image to a size that a formula of Pillow, detectron2, MMOCR or transformers computes.

    The formulas keep the aspect ratio and differ in their rounding. For some sizes, the result of the op ``resize``
    would have one row or column more or less. Each formula uses ``size`` in a different way:

    - ``shrink``: the image fits into ``size``, and is never enlarged. Both sides are rounded down, and then up to
      ``multiple`` (Pixtral).
    - ``contain``: the image fits into ``size``, and both sides are rounded down (``max_height`` and ``max_width``).
      ``contain_down`` does the same, but never enlarges an image (Fuyu).
    - ``keep``: the image is not resized. An image that does not fit into ``size`` is rejected.
    - ``longer``, ``longer_even``: the longer side becomes ``size``. Both sides are rounded down with ``longer`` (Aria),
      or to the nearest integer with ``longer_even`` (DeepSeek-VL and Janus), and are at least ``min_size``.
      ``longer_half_up`` rounds to the nearest integer with ties up (SAM). ``longer_down`` multiplies ``size`` by the
      aspect ratio of the image, and rounds the product down (TVP).
    - ``bounded``: the longer side is at most ``size``, and both sides are at least ``min_size`` (Idefics 2).
    - ``multiple``: both sides are rounded down to ``multiple`` (GLPN).
    - ``shorter_up``: the shorter side becomes ``size``, and both sides are rounded up to ``multiple`` (TextNet).
    - ``shorter_even``: like ``shorter_up``, but the sides are first rounded to the nearest integer (PP-LCNet).
    - ``shorter_half_up``: the shorter side becomes ``size`` and the longer one at most ``max_size``. Both are rounded
      to the nearest integer with ties up (``ResizeShortestEdge`` of detectron2).
    - ``shorter_down``: the shorter side becomes ``size`` and the longer one at most ``int(1333 / 800 * size)``. Both
      are rounded down to ``multiple`` (ViLT, BridgeTower).
    - ``detr``: the shorter side becomes ``size`` and the longer one at most ``max_size``, as for DETR. Both are rounded
      up to ``multiple`` (MaskFormer and Mask2Former).
    - ``half``: both sides are scaled so that the shorter one is at least ``size`` and the longer one at most
      ``max_size``, halved, and rounded to ``multiple`` (GLM-Image). The longer side may be at most four times as long
      as the shorter one.
    - ``idefics3``: the longer side becomes ``size``, and the shorter side is rounded up to an even number. If ``size``
      exceeds 4096, both sides are then scaled down, so that the longer side is 4096 (Idefics 3). ``idefics3_capped``
      subtracts ``multiple`` from ``size`` until the image is split into at most ``max_tiles`` tiles of ``multiple``
      pixels (UltraVBert).
    - ``up``: the longer side is rounded up to ``multiple``, and then the shorter side is computed and rounded up to
      ``multiple`` (Idefics 3).
    - ``text_max``, ``text_min``, ``text_long``: the longer side becomes at most ``size`` (``text_max``), the shorter
      side becomes at least ``size`` (``text_min``), or the longer side becomes ``size`` (``text_long``). Then the
      longer side is limited to ``max_size``, and both sides are rounded to the nearest ``multiple``, with ties to even
      (text detection of PP-OCRv5).
    - ``text_line``: the height becomes ``size``, and the width is rounded up, limited to ``min_size`` and ``max_size``,
      and rounded to the nearest ``multiple``, with ties to even (``RescaleToHeight`` of MMOCR).
    - ``nearer``: the height becomes ``size``, or the width becomes ``width``, whichever scales the image less. Both
      sides are rounded to the nearest ``multiple``, with ties to even (ZoeDepth). ``nearer_32`` rounds them to a
      multiple of 1/32, and then down to an integer.
    - ``square``: both sides become ``size``, without keeping the aspect ratio. With ``again``, it reproduces the second
      resize that SmolVLM applies to the frames of a clip.
    - ``thumbnail``: the image fits into ``size``, and is never enlarged (Donut).
    - ``thumbnail_gap``: as ``thumbnail``, but an image that shrinks by a factor of 4 or more is rejected, because
      Pillow resizes it in two steps with ``reducing_gap=2`` (Nougat).
    - ``pillow_contain``: the image fits into ``size``, like ``ImageOps.contain``. With a ``pad`` whose ``rounding`` is
      ``half_even``, it reproduces ``ImageOps.pad``.
    - ``pillow_thumbnail``: the image fits into ``size``, and is never enlarged, like ``Image.thumbnail``. The defaults
      of Pillow are ``"reducing_gap": 2`` and the filter ``bicubic``.

    An image is rejected if a side would become 0.

    Args:
        rule: Formula.
        size: Length in pixels that the formula uses; not supported by ``multiple`` and ``up``.
        width: Width in pixels, if it differs from the height ``size``; for ``shrink``, ``contain``, ``contain_down``,
            ``nearer``, ``nearer_32``, ``thumbnail``, ``thumbnail_gap`` and the rules of Pillow.
        multiple: Divisor of both sides: the formula rounds each side to a multiple of this number.
        min_size: Minimum length of both sides in pixels; for ``longer``, ``longer_even`` and ``bounded``. Minimum width
            for ``text_line``.
        max_size: Maximum length of the longer side in pixels; for ``shorter_half_up``, ``detr``, ``half``,
            ``text_max``, ``text_min`` and ``text_long``. Maximum width for ``text_line``.
        max_tiles: Maximum number of tiles; for ``idefics3_capped``.
        reducing_gap: Argument of ``Image.thumbnail``, for ``pillow_thumbnail``. The decoded image is first reduced by
            an integer factor per axis (``Image.reduce``), so that its size is still at least ``reducing_gap`` times the
            size of the result. The op must directly follow ``decode``, all outputs must have this resize, and a GPU
            engine computes the tensor on the CPU. Default: the image is not reduced.
        draft: Whether a JPEG is also decoded at 1/2, 1/4 or 1/8 of its size (``Image.draft``), as in
            ``image = Image.open(path)``, followed by ``image.thumbnail(size)``. After ``image.convert("RGB")`` or
            ``ImageOps.exif_transpose(image)``, Pillow does not do this. Requires ``reducing_gap``, and in ``decode``
            ``"apply_exif_orientation": false`` and a color other than ``gray``. An image is rejected if Pillow would
            resize it in a mode other than RGB or L. Examples are PNG files with a palette or with transparency.
        again: Whether this op may follow another resize. The pixels are then resampled a second time, as for Idefics 3,
            SmolVLM and Donut.
        filter, antialias, like: as in ``resize``.

    Example:
        {"op": "resize_by_rule", "rule": "shrink", "size": 1024, "multiple": 16, "filter": "bicubic"}
    """

    rule: Rule
    size: Length | None = None
    width: Length | None = None
    multiple: Length = 1
    min_size: Length | None = None
    max_size: Length | None = None
    max_tiles: Length | None = None
    reducing_gap: Annotated[float, Within(2, 64)] | None = None
    draft: bool = False
    again: bool = False

    def check(self) -> None:
        super().check()
        has = {
            "size": self.rule not in ("multiple", "up"),
            "max_size": self.rule in ("shorter_half_up", "detr", "half") or self.rule.startswith("text_"),
            "max_tiles": self.rule == "idefics3_capped",
            "width": self.rule
            in ("shrink", "contain", "contain_down", "nearer", "nearer_32", "thumbnail", "thumbnail_gap")
            or self.rule.startswith("pillow_"),
            "min_size": self.rule in ("longer", "longer_even", "bounded", "text_line"),
        }
        for field, is_used in has.items():
            is_given = getattr(self, field) is not None
            if is_given and not is_used:
                raise PipelineError(f'"{field}" has no effect with "rule": "{self.rule}": remove it')
            if is_used and not is_given and field in ("size", "max_size", "max_tiles"):
                raise PipelineError(f'"{field}" is required with "rule": "{self.rule}"')
        if self.reducing_gap is not None and (self.rule != "pillow_thumbnail" or not self.like.startswith("pillow")):
            raise PipelineError('"reducing_gap" requires "rule": "pillow_thumbnail" and "like": "pillow"')
        if self.reducing_gap is not None and (self.filter == "nearest" or not self.antialias):
            raise PipelineError('"reducing_gap" requires antialiasing, and a filter other than nearest')
        if self.draft and self.reducing_gap is None:
            raise PipelineError('"draft" requires "reducing_gap", which is 2 by default in Image.thumbnail')
        if self.multiple > 1 and self.rule in _WITHOUT_MULTIPLE:
            raise PipelineError(f'"multiple" has no effect with "rule": "{self.rule}": remove it')

    @property
    def sizer(self) -> SideRule:
        size = self.size or 1
        width, least = self.width or size, self.min_size or 0
        return SideRule(self.rule, size, width, self.multiple, least, self.max_size, self.max_tiles)

    @property
    def gap(self) -> ReducingGap | None:
        if self.reducing_gap is None:
            return None
        size = self.size or 1
        return ReducingGap(self.reducing_gap, (size, self.width or size) if self.draft else None)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the resized image. With ``up``, it has size limits only if the image has them."""
        result = super().infer(image)
        if self.rule != "up" or result.height is not None or not (image.max_height and image.max_width):
            return result
        longest = upward(max(image.max_height, image.max_width), self.multiple)
        return replace(result, max_height=longest, max_width=longest)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        lowered = super().lower(replace(before, resizes_again=True) if self.again else before, image, key)
        return replace(lowered, resizes_again=before.resizes_again)
