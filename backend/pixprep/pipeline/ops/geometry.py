"""The op that resizes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, Protocol

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.limits import MAX_SIDE, Bounded, Length, LengthOrInput, need_levels, requested
from pixprep.pipeline.ops.op import ImageOp, Op, settle
from pixprep.plan import geometry_steps
from pixprep.plan.geometry_steps import past
from pixprep.plan.inputs import Number, Requested
from pixprep.plan.lowered import Lowered
from pixprep.plan.parts import EDGES, Roi
from pixprep.plan.profiles import PROFILES
from pixprep.spec import DETRS, Bound, Filter, ImageSpec, InputSpec, Like, SideRounding, rounded


class Resizing(Protocol):
    """Fields of every op that resizes: see ``Resize``."""

    @property
    def filter(self) -> Filter: ...
    @property
    def antialias(self) -> bool | None: ...
    @property
    def like(self) -> Like: ...


class Resize(ImageOp, frozen=True, tag="resize"):
    """Resizes the image with a separable filter, to a ``size`` or to a ``height``, a ``width`` or both.

    ``like`` selects the library whose values the result equals, exactly and on every device:

    - ``pillow``: ``Image.resize`` of Pillow 13, which torchvision and timm call for PIL images. It runs two passes and
      rounds each to uint8. The vertical pass is first if the height shrinks by more than twice as many pixels as the
      width. Without antialias, the filter is not widened when the image shrinks: Pillow's formula with the support of a
      ratio of 1.
    - ``pillow12``: the same for Pillow before 13, where the horizontal pass is always first.
    - ``torchvision``: v2's ``resize`` of uint8 tensors on a CPU with AVX2, with 16-bit coefficients.
    - ``torch``: PyTorch's antialiased ``interpolate`` of float32 values on a CPU with AVX2, rounded to uint8.
      torchvision's v1 transforms, and therefore every ``weights.transforms()``, do this to tensors.
    - ``opencv``: ``cv2.resize`` of uint8 images to a size, or with ``subpixel`` by ``fx`` and ``fy``. ``bicubic``
      follows OpenCV's own formula, not Intel IPP.
    - ``tensorflow``: ``tf.image.resize`` of TensorFlow 2. The result is float32 and is not rounded.
    - ``dali``: DALI 2.4's ``resize`` of uint8 images on a CPU. Ties round as in DALI's x86-64 vector code.

    ``size``, ``height`` and ``width`` may be names of inputs, float32 [n, 1], which contain the value per image.
    ``name[1]`` is the second number of a row. ``max_size`` then bounds the values that a request may contain.

    Args:
        size: Length in pixels of the side that ``side`` selects. The aspect ratio is kept, apart from ``rounding``.
        side: Side that ``size`` applies to; default: ``shorter``. ``nearer`` is the side whose scale is nearer to 1, as
            for DPT and Depth Anything (``keep_aspect_ratio``).
        height, width: Height and width of the result in pixels. If only one is given, the other side keeps the aspect
            ratio. For ``down`` and ``half_even`` it is ``int(width * (height / image_height))``, computed from the
            scale of the given side. For ``up`` it is ``ceil(height * (image_width / image_height))``, computed from the
            aspect ratio, as in text recognizers.
        mode: Method that computes the size. With ``height`` and ``width``: ``stretch``, the default, resizes to exactly
            that size; ``fit`` to the largest size inside it that keeps the aspect ratio; ``cover`` to the smallest size
            around it. With ``size``: ``scale`` uses one scale for both sides, so a side may differ from ``size`` by a
            pixel, as in torchvision's detectors (``min_size``) and in PaddleOCR.
        max_size: Maximum length of the other side in pixels. For sizes from a request, the maximum of either side. With
            ``height`` or ``width``, the given side does not change. With ``size`` for the shorter side, both sides
            shrink if the longer side would exceed the maximum, as with torchvision's ``max_size``.
        multiple: Number of which both sides become multiples, by ``rounding``, and at least one multiple. A side that
            is given alone does not change. With ``scale``, the sides are first truncated to integers, and again if they
            exceed ``max_size``, as in PaddleOCR.
        enlarge, shrink: Whether ``scale`` enlarges small images and shrinks large images. Default: true.
        up_to: Limit in pixels for ``"rounding": "up"`` with ``height`` or ``width`` alone. A side that exceeds it is
            rounded down, as PaddleOCR's recognizers do over 320.
        filter: Interpolation filter: ``nearest`` (never antialiased), ``nearest_exact`` (torchvision's), ``box``,
            ``bilinear``, ``hamming``, ``bicubic``, ``lanczos`` (3 lobes), ``lanczos4`` (4 lobes, OpenCV's) or ``area``
            (OpenCV's). Each library supports some of them.
        antialias: Whether the filter is widened by the scale when the image shrinks. Default: false for ``opencv`` and
            ``tensorflow``, as in these libraries, and true for the others.
        like: Library whose values the result equals, see above.
        rounding: Rounding of a side that is computed from the other one; the result is at least 1. ``down`` is
            torchvision's ``int(size * other / side)``, ``half_even`` timm's ``round``, ``half_away`` DALI's; ``up``
            rounds up. Default: DALI's for ``dali`` and ``down`` for the others; none if both sides are given. ``detr``,
            with ``size`` and ``max_size``, computes sizes as transformers 5 does for DETR and related models, and with
            ``multiple`` for YOLOS. If ``max_size`` is exceeded, the shorter side is rounded half to even and the longer
            side is truncated; an image whose shorter side already has that length does not change. ``half_away32``
            reproduces a DALI graph that computes one scale for both sides and its limit by ``max_size`` in float32,
            where DALI's own ``resize_shorter`` uses float64. ``detr_original`` reproduces the original code of DETR and
            Grounding DINO, where the longer side follows from the rounded shorter side.
        subpixel: Whether the resize uses the exact scale, before the size is rounded. With ``dali``, it reads the
            region that makes the scale of both axes equal after the rounding (``subpixel_scale``). Default for
            ``dali``: true, without ``max_size``, ``multiple`` and ``scale``; with ``scale`` and a shorter side it
            reproduces DALI's ``resize_shorter`` with ``max_size``. With ``opencv`` and ``scale``, it calls
            ``cv2.resize`` by ``fx`` and ``fy``, as for RetinaFace; ``area`` does not support it. At a scale of exactly
            one half, a last odd row or column differs by one pixel value where ``bilinear`` has a tie.
        roi: Region to resize with ``dali``: top, left, bottom and right (``roi_start``, ``roi_end``), which may be
            fractions of a pixel or names of inputs. The filter also reads pixels outside the region, which it cannot do
            after a ``crop``. Swapped ends mirror the image. Outside the image, its edge is repeated; ``nearest`` must
            stay inside.
        roi_unit: Unit of ``roi``: ``pixels``, the default, or ``share``, a fraction of the image's sides
            (``roi_relative``).

    Example:
        {"op": "resize", "size": 256, "filter": "bicubic"}
    """

    size: LengthOrInput | None = None
    side: Literal["shorter", "longer", "nearer"] | None = None
    height: LengthOrInput | None = None
    width: LengthOrInput | None = None
    mode: Literal["stretch", "fit", "cover", "scale"] | None = None
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
            raise PipelineError('needs either "size", or "height" or "width" or both')
        check_like(self)
        profile = PROFILES[self.like]
        if self.subpixel is not None and profile.subpixel is None and not profile.takes_scale:
            raise PipelineError('"subpixel" goes with "like": "dali" and "opencv"')
        if self.subpixel and profile.takes_scale:
            settle(self, "rounding", "half_even")
            if self.mode != "scale" or self.multiple or self.filter == "area" or self.rounding != "half_even":
                raise PipelineError(
                    '"subpixel" of opencv, its fx and fy, goes with "mode": "scale" and "rounding": "half_even", '
                    'without "multiple" and "filter": "area"'
                )
        if self.size is None:
            if self.side is not None:
                raise PipelineError('"side" goes with "size", not with "height" and "width"')
            if not is_alone:
                settle(self, "mode", "stretch")
            if self.mode == "scale" or (is_alone and self.mode is not None):
                raise PipelineError('"mode" is stretch, fit or cover with "height" and "width", and scale with "size"')
        else:
            if self.mode not in (None, "scale"):
                raise PipelineError('"mode" goes with "height" and "width", not with "size"')
            settle(self, "side", "shorter")
            if self.side == "nearer" and (self.mode or isinstance(self.size, str)):
                raise PipelineError('"side": "nearer" goes with a number as "size", without "mode"')
        self._check_open(is_alone=is_alone)
        check_most(self.max_size, self._sides, is_only=False)
        if self.mode != "stretch":
            settle(self, "rounding", PROFILES[self.like].rounding)
            is_cut = bool(self.max_size and not self._is_asked)
            is_whole = is_cut or self.multiple or self.mode == "scale"
            if self.subpixel and (self.multiple or (is_cut and self.mode != "scale")):
                raise PipelineError('"subpixel" goes without "multiple", and with "max_size" in "mode": "scale" alone')
            settle(self, "subpixel", PROFILES[self.like].subpixel and not is_whole)
        elif (self.rounding, self.subpixel) != (None, None):
            such = "rounding" if self.rounding is not None else "subpixel"
            raise PipelineError(
                f'"{such}" has no effect when "height" and "width" are both given: remove it, or '
                'write "mode": "fit" or "cover"'
            )
        self._check_roi()

    def _check_roi(self) -> None:
        if self.roi is None:
            if self.roi_unit is not None:
                raise PipelineError('"roi_unit" goes with "roi"')
            return
        if PROFILES[self.like].corner is None:
            raise PipelineError('"roi" goes with "like": "dali"; every library has crop')
        if len(self.roi) != len(EDGES) or self.roi[0] == self.roi[2] or self.roi[1] == self.roi[3]:
            raise PipelineError('"roi" is four numbers, top, left, bottom, right, and does not end where it begins')
        for edge, bound in self._edges.values():
            Bounded(bound).check("roi", edge)

    @property
    def _edges(self) -> dict[str, tuple[Any, Bound]]:
        """The edges of the part, each with its limits and an example."""
        limits = (-1, 2) if self.roi_unit == "share" else (-MAX_SIDE, 4 * MAX_SIDE)
        edges = enumerate(zip(EDGES, self.roi or (), strict=False))
        return {name: (edge, Bound(*limits, example=index // 2)) for index, (name, edge) in edges}

    def _check_open(self, *, is_alone: bool) -> None:
        """Check the fields of sides that follow the image."""
        is_detr = self.rounding in DETRS
        if is_detr and (self.side != "shorter" or self.mode is not None or self.max_size is None):
            raise PipelineError(
                f'"rounding": "{self.rounding}" goes with "size" of the shorter side and "max_size", without "mode"'
            )
        if self.mode == "scale":
            settle(self, "enlarge", value=True)
            settle(self, "shrink", value=True)
            if not (self.enlarge or self.shrink):
                raise PipelineError('"enlarge" or "shrink" must be true')
        elif (self.enlarge, self.shrink) != (None, None):
            raise PipelineError('"enlarge" and "shrink" go with "mode": "scale"')
        if self.rounding == "half_away32" and (self.mode != "scale" or not self.max_size or self.multiple):
            raise PipelineError(
                '"rounding": "half_away32" goes with "mode": "scale" and "max_size", without "multiple"'
            )
        if self.max_size is not None and not self._is_asked:
            if not (is_alone or self.side in ("shorter", "nearer") or (self.mode == "scale" and not self.shrink)):
                raise PipelineError(
                    '"max_size" goes with "size" of the shorter side, or with "height" or "width" alone'
                )
            assert not isinstance(self.size, str)
            if self.size is not None and self.mode is None and self.max_size <= self.size and not is_detr:
                raise PipelineError(f'"max_size" must be over "size", which is {self.size}, not {self.max_size}')
        if self.multiple is not None and not (is_alone or self.size is not None):
            raise PipelineError('"multiple" goes with "size", or with "height" or "width" alone')
        if self.up_to is not None and not (is_alone and self.rounding == "up"):
            raise PipelineError('"up_to" goes with "height" or "width" alone, and with "rounding": "up"')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec after the resize; refuses values that are not the decoder's levels."""
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
        """The numbers that come with the image, by their fields."""
        bound = side_bound(self.max_size)
        sides = {"size": (self.size, bound), "height": (self.height, bound), "width": (self.width, bound)}
        return requested(**sides, **self._edges)

    @property
    def _is_asked(self) -> bool:
        return any(isinstance(side, str) for side in self._sides)

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        return tuple(number.spec for _, number in self._requested)

    @property
    def _bounds(self) -> tuple[tuple[int, int], tuple[int | None, int | None]]:
        """The least and the most (height, width) of images of any size."""
        most = self._whole(past(self.max_size) if self.max_size and self.rounding in DETRS else self.max_size)
        one = self._whole(1) or 1
        if self.size is None:
            height, width = (self.max_size if isinstance(side, str) else side for side in (self.height, self.width))
            rows, columns = (1 if isinstance(side, str) else side or one for side in (self.height, self.width))
            if height is None or width is None:
                return (rows, columns), (height or most, width or most)
            return ((1, 1) if self.mode == "fit" else (rows, columns)), (
                (None, None) if self.mode == "cover" else (height, width)
            )
        if isinstance(self.size, str):
            return (one, one), (most, most)
        size, least = self._whole(self.size), one
        if self.side == "longer":
            most = size if self.shrink in (None, True) else most
        elif self.side == "shorter" and self.mode is None and self.max_size is None:
            least = size or 1
        return (least, least), (most, most)

    def _whole(self, side: int | None) -> int | None:
        """A side as ``multiple`` makes it."""
        if side is None or self.multiple is None:
            return side
        return max(1, rounded(side / self.multiple, self.rounding or "down")) * self.multiple

    @property
    def _step(self) -> geometry_steps.Resize:
        """The step of a plan that does it."""
        rule: geometry_steps.Rule
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
            roi=Roi(examples, self.roi_unit == "share") if examples else None,
        )

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        drawn = Requested(key=key, numbers=self._requested) if self._requested else None
        return before.resized(replace(self._step, drawn=drawn))


def side_bound(most: int | None) -> Bound:
    """Limits of a side that comes with the image, where ``max_size`` may bound it."""
    return Bound(1, most or MAX_SIDE, is_whole=True, example=most or 1)


def check_most(most: int | None, sides: Iterable[object], *, is_only: bool = True) -> None:
    """Raise PipelineError where sides come with the image, and nothing bounds them; or the other way round.

    Args:
        most: the field ``max_size``.
        sides: some of which may be the names of inputs.
        is_only: it is for nothing else.
    """
    if (name := next((side for side in sides if isinstance(side, str)), None)) is None:
        if most is not None and is_only:
            raise PipelineError('"max_size" goes with a height or a width that comes with the image')
    elif most is None:
        raise PipelineError(f'"max_size" is missing: the maximum number of pixels that "{name}" may request')


def resized(op: Resizing, image: ImageSpec) -> ImageSpec:
    """The image with values as the op's filter gives them; refuses values that are not the decoder's levels."""
    need_levels(image)
    return replace(image, values="real") if op.filter in PROFILES[op.like].real else image


def resize_step(
    op: Resizing, rule: geometry_steps.Rule, height: int, width: int, **fields: Any
) -> geometry_steps.Resize:
    """The step of a plan that does it; ``fields``: further ones of the step."""
    antialias = bool(op.antialias)
    return geometry_steps.Resize(
        rule=rule, height=height, width=width, filter=op.filter, antialias=antialias, like=op.like, **fields
    )


def check_like(op: Resizing) -> None:
    """Fill in what follows from ``like``, and refuse what its library cannot do."""
    profile = PROFILES[op.like]
    assert isinstance(op, Op)
    settle(op, "antialias", profile.antialias)
    filters = _filters(op.like, antialias=bool(op.antialias))
    if not filters:
        raise PipelineError(
            f'"antialias" must be {str(not op.antialias).lower()} with "like": "{op.like}": {profile.title} then has '
            f"{', '.join(_filters(op.like, antialias=not op.antialias))}"
        )
    if op.filter not in filters:
        likes = [like for like in PROFILES if op.filter in PROFILES[like].filters + PROFILES[like].antialiased]
        others = [like for like in likes if op.filter in _filters(like, antialias=bool(op.antialias))]
        remedy = f'"like": {" or ".join(f"{chr(34)}{like}{chr(34)}" for like in others or likes)}'
        if not others:
            remedy += f' with "antialias": {str(not op.antialias).lower()}'
        raise PipelineError(
            f'"{op.filter}" with antialias {str(op.antialias).lower()} is not for "like": "{op.like}", which has '
            f"{', '.join(filters)}: it is for {remedy}"
        )


def _filters(like: Like, *, antialias: bool) -> tuple[Filter, ...]:
    return PROFILES[like].antialiased if antialias else PROFILES[like].filters
