"""The op ``resize``, and functions that all ops with a resize share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, Protocol

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.limits import MAX_SIDE, Bounded, Length, LengthOrInput, need_pixel_values, requested
from pixprep.pipeline.ops.op import ImageOp, Op, settle
from pixprep.plan import geometry_steps
from pixprep.plan.inputs import Number, Requested
from pixprep.plan.lowered import Lowered
from pixprep.plan.parts import EDGES, Fitted, Roi
from pixprep.plan.profiles import PROFILES
from pixprep.plan.sizes import max_detr_side
from pixprep.spec import DETRS, Bound, Filter, ImageSpec, InputSpec, Like, SideRounding, rounded


class Resizing(Protocol):
    """Fields that every op with a resize has; ``Resize`` describes them."""

    @property
    def filter(self) -> Filter: ...
    @property
    def antialias(self) -> bool | None: ...
    @property
    def like(self) -> Like: ...


class Resize(ImageOp, frozen=True, tag="resize"):
    """Resizes the image with a separable filter to a given ``size``, or to a given ``height``, ``width`` or both.

    ``like`` selects the library whose pixel values the op reproduces, exactly and on every device:

    - ``pillow``: ``Image.resize`` of Pillow 13, which torchvision and timm call for PIL images. The result of each of
      the two passes is rounded to uint8. The vertical pass is first if the height shrinks by more than twice as many
      pixels as the width. Without ``antialias``, the support of the filter is not widened when the image shrinks.
    - ``pillow12``: ``Image.resize`` of Pillow before version 13, where the horizontal pass is always first.
    - ``torchvision``: torchvision v2's ``resize`` of uint8 tensors on a CPU with AVX2, with 16-bit coefficients.
    - ``torch``: PyTorch's antialiased ``interpolate`` of float32 values on a CPU with AVX2, rounded to uint8.
      torchvision's v1 transforms, and every ``weights.transforms()``, resize tensors in this way.
    - ``torch_float``: the same function, but without the rounding, so the result is float32. ``normalize`` may precede
      this resize, which then receives the normalized values (DINOv3). Without ``antialias``,
      ``bilinear`` requires that the height and the width of the result add up to at least 129.
    - ``torch_corners``: the same as ``torch_float`` without ``antialias``, but with ``align_corners``: the centers of
      the pixels in the corners stay in the corners (ZoeDepth). Boxes and ``transform`` do not include this shift.
    - ``scipy``: SciPy's ``zoom`` with ``order=1``, ``mode="mirror"`` and ``grid_mode=True`` of float32 values. With
      ``antialias``, ``gaussian_filter`` first smooths the sides that shrink, as in scikit-image's ``resize`` (OWLv2).
      The result is float32. ``pad`` and ``normalize`` may precede this resize. A GPU engine computes the tensor on the
      CPU.
    - ``slanext``: the integer arithmetic with which transformers resizes images for SLANeXt.
    - ``opencv``: ``cv2.resize`` of uint8 images, with ``dsize``, or with ``fx`` and ``fy`` if ``subpixel`` is set.
      ``bicubic`` is OpenCV's own implementation, not that of Intel IPP. OpenCV computes a row of the result in vectors
      of eight values, and the last ``width * channels % 8`` values in integers; these may differ by 1.
    - ``tensorflow``: ``tf.image.resize`` of TensorFlow 2. The result is float32 and is not rounded.
    - ``dali``: DALI 2.4's ``resize`` of uint8 images on a CPU. Ties are rounded as in DALI's x86-64 vector code.

    ``size``, ``height`` and ``width`` may be names of inputs, float32 [n, 1], which contain one value per image.
    ``name[1]`` is the second number in a row of the input. If the size is an input, ``max_size`` is required, and
    limits the values that a request may contain.

    Args:
        size: Length in pixels of the side that ``side`` selects. The aspect ratio is kept, except for rounding.
        side: Side to which ``size`` applies. Default: ``shorter``. ``nearer`` is the side whose scale factor is nearer
            to 1, as for DPT and Depth Anything (``keep_aspect_ratio``).
        height, width: Height and width of the result in pixels. If only one of them is given, the other is computed
            from the aspect ratio. With ``"rounding": "down"`` or ``half_even``, it is computed from the scale of the
            given side, such as ``int(image_width * (height / image_height))``. With ``up``, it is computed from the
            aspect ratio, as ``ceil(height * (image_width / image_height))``, as in text recognizers.
        mode: Method to compute the size. With ``height`` and ``width``, ``stretch`` (the default) resizes to exactly
            this size. ``fit`` and ``cover`` keep the aspect ratio of the image: ``fit`` resizes to the largest size
            that fits inside ``height`` x ``width``, and ``cover`` to the smallest size that covers ``height`` x
            ``width``. With ``size``, ``scale`` multiplies both sides by the same factor, so that the selected side may
            differ from ``size`` by one pixel, as in torchvision's detectors (``min_size``) and in PaddleOCR.
        max_size: Maximum length of the other side in pixels. If the size is a per-image input, ``max_size`` limits both
            sides. If only ``height`` or only ``width`` is given, ``max_size`` does not affect the given side. If
            ``size`` applies to the shorter side and the longer side would exceed ``max_size``, both sides are reduced,
            as with torchvision's ``max_size``.
        multiple: Divisor of both sides: each side is rounded to a multiple of this number, as specified by
            ``rounding``, but not to 0. If only ``height`` or only ``width`` is given, that side does not change. With
            ``"mode": "scale"``, the sides are first truncated to integers, and again after they are limited to
            ``max_size``, as in PaddleOCR.
        enlarge, shrink: Whether ``"mode": "scale"`` enlarges small images and shrinks large images. Default: true.
        up_to: Maximum length in pixels of a side that ``"rounding": "up"`` rounds up. A longer side is rounded down, as
            in PaddleOCR's recognizers for widths over 320. Requires that only ``height`` or only ``width`` is given.
        filter: Interpolation filter: ``nearest`` (never antialiased), ``nearest_exact`` (torchvision's), ``box``,
            ``bilinear``, ``hamming``, ``bicubic``, ``lanczos`` (3 lobes), ``lanczos4`` (4 lobes, OpenCV's) or ``area``
            (OpenCV's). Each library supports only some of these filters.
        antialias: Whether the support of the filter is widened by the scale factor when the image shrinks. Default:
            false for ``opencv`` and ``tensorflow``, as in these libraries, and true for all others.
        like: Library whose pixel values the op reproduces; see above.
        rounding: Rounding of a side that is computed from the other side. The result is at least 1. ``down`` truncates,
            like torchvision's ``int(size * other / side)``. ``half_even`` rounds to the nearest integer with ties to
            even, like timm. ``half_away`` rounds to the nearest integer with ties away from zero, like DALI.
            ``half_away32`` does the same, but computes the scale in float32. It reproduces a DALI graph that computes
            one scale for both sides and limits it by ``max_size``; DALI's own ``resize_shorter`` uses float64. ``up``
            rounds up. Default: ``half_away`` for ``dali`` and ``down`` for all other libraries. Not supported with
            ``"mode": "stretch"``. ``detr`` requires ``size`` and ``max_size``, and computes sizes like transformers 5
            for DETR and related models. If ``multiple`` is also set, it computes sizes like transformers 5 for YOLOS.
            If ``max_size`` is exceeded, the shorter side is rounded half to even and the longer side is truncated. An
            image whose shorter side already has that length does not change. ``detr_original`` reproduces the original
            code of DETR and Grounding DINO, which computes the longer side from the rounded shorter side.
        subpixel: Whether the resize uses the exact scale factor instead of the ratio of the rounded sizes. With
            ``dali``, the resized region is adjusted so that both axes have the same scale (``subpixel_scale``). The
            default for ``dali`` is true, except with ``max_size``, ``multiple`` or ``"mode": "scale"``. With ``"mode":
            "scale"`` and the shorter side, it reproduces DALI's ``resize_shorter`` with ``max_size``. With ``opencv``
            and ``"mode": "scale"``, it corresponds to ``cv2.resize`` with ``fx`` and ``fy``, as in RetinaFace; the
            filter ``area`` does not support it. If the scale is exactly one half and the number of rows or columns is
            odd, values in the last row or column may differ by 1 with ``bilinear``, where the exact result is halfway
            between two integers.
        roi: Region to resize with ``pillow`` (``box`` of ``Image.resize``) or ``dali`` (``roi_start`` and ``roi_end``):
            top, left, bottom and right, which need not be integers and may be names of inputs. In contrast to a
            ``crop``, the filter also reads pixels outside the region. With ``dali``, the image is mirrored along an
            axis if bottom is less than top, or right is less than left. Outside the image, the pixels of its edge are
            repeated. With ``pillow`` or ``nearest``, the region must be inside the image.
        roi_unit: Unit of ``roi``: ``pixels``, the default, or ``share``, a fraction of the image's sides
            (DALI's ``roi_relative``).

    Example:
        {"op": "resize", "size": 256, "filter": "bicubic"}
    """

    size: LengthOrInput | None = None
    side: Literal["shorter", "longer", "nearer"] | None = None
    height: LengthOrInput | None = None
    width: LengthOrInput | None = None
    mode: Literal["stretch", "crop", "fit", "cover", "scale"] | None = None
    max_size: Length | None = None
    multiple: Length | None = None
    enlarge: bool | None = None
    shrink: bool | None = None
    up_to: Length | None = None
    filter: Filter = "bilinear"
    antialias: bool | None = None
    like: Like = "pillow"
    rounding: SideRounding | None = None
    subpixel: bool | None = None
    roi: tuple[int | float | str, ...] | None = None
    roi_unit: Literal["pixels", "share"] | None = None

    def check(self) -> None:
        pair = (self.height, self.width)
        is_alone = self.size is None and None in pair
        if (self.size is None) == (pair == (None, None)):
            raise PipelineError('requires either "size", or "height", "width", or both')
        check_like(self)
        profile = PROFILES[self.like]
        if self.subpixel is not None and profile.subpixel is None and not profile.takes_scale:
            raise PipelineError('"subpixel" requires "like": "dali" or "opencv"')
        if self.subpixel and profile.takes_scale:
            settle(self, "rounding", "half_even")
            if self.mode != "scale" or self.multiple or self.filter == "area" or self.rounding != "half_even":
                raise PipelineError(
                    '"subpixel" with "like": "opencv" requires "mode": "scale" and "rounding": "half_even", and does '
                    'not support "multiple" and "filter": "area"'
                )
        if self.size is None:
            if self.side is not None:
                raise PipelineError('"side" requires "size" instead of "height" and "width"')
            if not is_alone:
                settle(self, "mode", "stretch")
                sides = [side if isinstance(side, int) else MAX_SIDE for side in pair]
                if self.filter == "bilinear" and not self.antialias and sum(sides) < profile.min_sides:
                    raise PipelineError(
                        f'"height" and "width" must add up to at least {profile.min_sides} with "like": "{self.like}", '
                        '"filter": "bilinear" and "antialias": false'
                    )
            if self.mode == "scale" or (is_alone and self.mode is not None):
                raise PipelineError(
                    '"mode" must be "stretch", "crop", "fit" or "cover" with "height" and "width", or "scale" with '
                    '"size"'
                )
        else:
            if self.mode not in (None, "scale"):
                raise PipelineError(
                    '"mode" must be "scale" with "size": for "fit" or "cover", use "height" and "width"'
                )
            settle(self, "side", "shorter")
            if self.side == "nearer" and (self.mode or isinstance(self.size, str)):
                raise PipelineError('"side": "nearer" requires a number as "size", and does not support "mode"')
        self._check_open(is_alone=is_alone)
        check_max_size(self.max_size, self._sides, is_only=False)
        if self.mode == "crop" and (PROFILES[self.like].roi != "inside" or self._is_requested):
            raise PipelineError('"mode": "crop" requires "like": "pillow", and numbers as "height" and "width"')
        if self.mode not in ("stretch", "crop"):
            settle(self, "rounding", PROFILES[self.like].rounding)
            is_cut = bool(self.max_size and not self._is_requested)
            is_whole = is_cut or self.multiple or self.mode == "scale"
            if self.subpixel and (self.multiple or (is_cut and self.mode != "scale")):
                raise PipelineError(
                    '"subpixel" does not support "multiple", and supports "max_size" only with "mode": "scale"'
                )
            settle(self, "subpixel", PROFILES[self.like].subpixel and not is_whole)
        elif (self.rounding, self.subpixel) != (None, None):
            field = "rounding" if self.rounding is not None else "subpixel"
            raise PipelineError(
                f'"{field}" has no effect when "height" and "width" are both given: remove it, or '
                'write "mode": "fit" or "cover"'
            )
        self._check_roi()

    def _check_roi(self) -> None:
        if self.roi is None:
            if self.roi_unit is not None:
                raise PipelineError('"roi_unit" requires "roi"')
            return
        supported = PROFILES[self.like].roi
        if supported is None:
            raise PipelineError('"roi" requires "like": "dali" or "pillow": use crop for other libraries')
        if self.mode == "crop":
            raise PipelineError('"roi" is not supported with "mode": "crop", which computes the region itself')
        numbers = [0 if isinstance(edge, str) else edge for edge in self.roi]
        if supported == "inside" and (min(numbers, default=0) < 0 or any(map(self._is_reversed, (0, 1)))):
            raise PipelineError(f'"roi" with "like": "{self.like}" must be inside the image and must not be reversed')
        if len(self.roi) != len(EDGES) or self.roi[0] == self.roi[2] or self.roi[1] == self.roi[3]:
            raise PipelineError('"roi" must be four numbers (top, left, bottom, right), and must not be empty')
        for edge, bound in self._edges.values():
            Bounded(bound).check("roi", edge)

    def _is_reversed(self, axis: int) -> bool:
        """Return whether the region ends before it begins on axis 0 (rows) or 1 (columns).

        The result is False if an edge is a per-image input.
        """
        ends = [edge for edge in (self.roi or ())[axis::2] if not isinstance(edge, str)]
        return ends != sorted(ends)

    @property
    def _edges(self) -> dict[str, tuple[Any, Bound]]:
        """Edges of ``roi`` by name, with the limits of each edge."""
        limits = (-1, 2) if self.roi_unit == "share" else (-MAX_SIDE, 4 * MAX_SIDE)
        edges = enumerate(zip(EDGES, self.roi or (), strict=False))
        return {name: (edge, Bound(*limits, example=index // 2)) for index, (name, edge) in edges}

    def _check_open(self, *, is_alone: bool) -> None:
        """Check the fields that apply to a side whose length depends on the image."""
        is_detr = self.rounding in DETRS
        if is_detr and (self.side != "shorter" or self.mode is not None or self.max_size is None):
            raise PipelineError(
                f'"rounding": "{self.rounding}" requires "size" for the shorter side and "max_size", and does not '
                'support "mode"'
            )
        if self.mode == "scale":
            settle(self, "enlarge", value=True)
            settle(self, "shrink", value=True)
            if not (self.enlarge or self.shrink):
                raise PipelineError('"enlarge" or "shrink" must be true, or both')
        elif (self.enlarge, self.shrink) != (None, None):
            raise PipelineError('"enlarge" and "shrink" require "mode": "scale"')
        if self.rounding == "half_away32" and (self.mode != "scale" or not self.max_size or self.multiple):
            raise PipelineError(
                '"rounding": "half_away32" requires "mode": "scale" and "max_size", and does not support "multiple"'
            )
        if self.max_size is not None and not self._is_requested:
            if not (is_alone or self.side in ("shorter", "nearer") or (self.mode == "scale" and not self.shrink)):
                raise PipelineError(
                    '"max_size" requires "size" for the shorter side, or only one of "height" and "width"'
                )
            assert not isinstance(self.size, str)
            if self.size is not None and self.mode is None and self.max_size <= self.size and not is_detr:
                raise PipelineError(f'"max_size" must be greater than "size", {self.size}, not {self.max_size}')
        if self.multiple is not None and not (is_alone or self.size is not None):
            raise PipelineError('"multiple" requires "size", or only one of "height" and "width"')
        if self.up_to is not None and not (is_alone and self.rounding == "up"):
            raise PipelineError('"up_to" requires "rounding": "up" and only one of "height" and "width"')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the resized image. Reject images that are already normalized."""
        image = resized(self, image)
        if not self._requested and image.height is not None and image.width is not None:
            try:
                return image.sized(*self._step.size(image.height, image.width))
            except ImageError as error:
                raise PipelineError(error.detail) from None
        return image.within(*self._bounds)

    @property
    def _sides(self) -> tuple[int | str | None, ...]:
        return self.size, self.height, self.width

    @property
    def _requested(self) -> tuple[tuple[str, Number], ...]:
        """Numbers that the request provides, with the names of their fields."""
        bound = side_bound(self.max_size)
        sides = {"size": (self.size, bound), "height": (self.height, bound), "width": (self.width, bound)}
        return requested(**sides, **self._edges)

    @property
    def _is_requested(self) -> bool:
        return any(isinstance(side, str) for side in self._sides)

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        return tuple(number.spec for _, number in self._requested)

    @property
    def _bounds(self) -> tuple[tuple[int, int], tuple[int | None, int | None]]:
        """Minimum and maximum (height, width) of the result, for images of any size."""
        longest = self._to_multiple(
            max_detr_side(self.max_size) if self.max_size and self.rounding in DETRS else self.max_size
        )
        one = self._to_multiple(1) or 1
        if self.size is None:
            height, width = (self.max_size if isinstance(side, str) else side for side in (self.height, self.width))
            rows, columns = (1 if isinstance(side, str) else side or one for side in (self.height, self.width))
            if height is None or width is None:
                return (rows, columns), (height or longest, width or longest)
            return ((1, 1) if self.mode == "fit" else (rows, columns)), (
                (None, None) if self.mode == "cover" else (height, width)
            )
        if isinstance(self.size, str):
            return (one, one), (longest, longest)
        size, shortest = self._to_multiple(self.size), one
        if self.side == "longer":
            longest = size if self.shrink in (None, True) else longest
        elif self.side == "shorter" and self.mode is None and self.max_size is None:
            shortest = size or 1
        return (shortest, shortest), (longest, longest)

    def _to_multiple(self, side: int | None) -> int | None:
        """Round a side to a multiple of ``multiple``."""
        if side is None or self.multiple is None:
            return side
        return max(1, rounded(side / self.multiple, self.rounding or "down")) * self.multiple

    @property
    def _step(self) -> geometry_steps.Resize:
        """Step of the plan. Fields that a request provides have example values."""
        rule: geometry_steps.Rule
        roi: Roi | Fitted | None
        is_pair = None not in (self.height, self.width)
        example = self.max_size or 1
        examples = tuple(bound.example if isinstance(edge, str) else edge for edge, bound in self._edges.values())
        size, height, width = (example if isinstance(side, str) else side for side in self._sides)
        if size is not None:
            rule, height, width = self.side or "shorter", size, size
        else:
            rule = "width" if height is None else "height" if width is None else "both"
            rule = self.mode if self.mode in ("fit", "cover") else rule
            height, width = height or width or 1, width or height or 1
        roi = Roi(examples, self.roi_unit == "share") if examples else None
        if self.mode == "crop":
            roi = Fitted(height, width)
        return resize_step(
            self,
            rule,
            height,
            width,
            rounding=self.rounding or "down",
            subpixel=bool(self.subpixel),
            most=None if is_pair else self.max_size,
            multiple=self.multiple or 1,
            up_to=self.up_to,
            scales=(bool(self.shrink), bool(self.enlarge)) if self.mode == "scale" else None,
            roi=roi,
        )

    def box(self, height: int, width: int) -> tuple[float, ...] | None:
        """Return the region that is resized in an image of this size: left, top, right, bottom. None: the whole image.

        This is the argument ``box`` of Pillow's ``Image.resize``.
        """
        step = self._step
        if step.roi is None:
            return None
        rows, columns = step.extents(height, width, step.size(height, width))
        return columns.begin, rows.begin, columns.end, rows.end

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        drawn = Requested(key=key, numbers=self._requested) if self._requested else None
        return before.resized(replace(self._step, drawn=drawn))


def side_bound(max_size: int | None) -> Bound:
    """Return the limits of a side that a request provides."""
    return Bound(1, max_size or MAX_SIDE, is_whole=True, example=max_size or 1)


def check_max_size(max_size: int | None, sides: Iterable[object], *, is_only: bool = True) -> None:
    """Raise PipelineError if ``max_size`` is required but missing, or given without effect.

    Args:
        max_size: Maximum length of the sides that a request provides.
        sides: Lengths of sides, or names of inputs that contain them.
        is_only: Whether ``max_size`` has no effect on sides that are numbers.
    """
    if (name := next((side for side in sides if isinstance(side, str)), None)) is None:
        if max_size is not None and is_only:
            raise PipelineError('"max_size" requires the name of an input as "height" or "width"')
    elif max_size is None:
        raise PipelineError(f'"max_size" is missing: set it to the maximum number of pixels that "{name}" may request')


def resized(op: Resizing, image: ImageSpec) -> ImageSpec:
    """Return the spec with the values that a resize by ``op`` returns. Reject images that are already normalized."""
    if PROFILES[op.like].takes_real and image.values == "normalized":
        return image
    need_pixel_values(image)
    return replace(image, values="real") if op.filter in PROFILES[op.like].real else image


def resize_step(
    op: Resizing, rule: geometry_steps.Rule, height: int, width: int, **fields: Any
) -> geometry_steps.Resize:
    """Return the step of a plan for a resize by ``op``; ``fields`` are additional fields of the step."""
    antialias = bool(op.antialias)
    return geometry_steps.Resize(
        rule=rule, height=height, width=width, filter=op.filter, antialias=antialias, like=op.like, **fields
    )


def check_like(op: Resizing) -> None:
    """Set the default of ``antialias`` for ``like``, and reject filters that this library does not support."""
    profile = PROFILES[op.like]
    assert isinstance(op, Op)
    settle(op, "antialias", profile.antialias)
    filters = _filters(op.like, antialias=bool(op.antialias))
    if not filters:
        raise PipelineError(
            f'"antialias" must be {str(not op.antialias).lower()} with "like": "{op.like}", which supports the filters '
            f"{', '.join(_filters(op.like, antialias=not op.antialias))}"
        )
    if op.filter not in filters:
        likes = [like for like in PROFILES if op.filter in PROFILES[like].filters + PROFILES[like].antialiased]
        others = [like for like in likes if op.filter in _filters(like, antialias=bool(op.antialias))]
        fix = f'"like": {" or ".join(f"{chr(34)}{like}{chr(34)}" for like in others or likes)}'
        if not others:
            fix += f' and "antialias": {str(not op.antialias).lower()}'
        raise PipelineError(
            f'"filter": "{op.filter}" with "antialias": {str(op.antialias).lower()} is not supported by "like": '
            f'"{op.like}": use {fix}, or one of the filters {", ".join(filters)}'
        )


def _filters(like: Like, *, antialias: bool) -> tuple[Filter, ...]:
    """Return the filters that a library supports with or without antialiasing."""
    return PROFILES[like].antialiased if antialias else PROFILES[like].filters
