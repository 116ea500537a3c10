"""Every operator, as frozen data: its checks and the spec of its result. No arrays, no devices.

An op takes the image of the op before it. ``Tensor``, ``OriginalSize`` and ``Transform`` are outputs: they
pass the image on unchanged, so that several outputs may stand one after the other.

Sizes are in pixels, height before width. Coordinates: x to the right, y down, the centre of the first pixel
is (0.5, 0.5).
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import Literal

import msgspec

from pixprep.errors import PipelineError
from pixprep.spec import (
    Alpha,
    Chroma,
    Codec,
    Color,
    Damage,
    Filter,
    Idct,
    ImageSpec,
    Layout,
    Like,
    Rounding,
    Scale,
    TensorSpec,
    keep_aspect,
)

Arithmetic = Literal["float64", "divide", "multiply", "fused", "fused_multiply"]
Anchor = Literal["center", "top_left"]
TensorDType = Literal["float32", "float16", "uint8"]
Levels = int | tuple[int, ...]
Reals = float | tuple[float, ...]

MAX_SIDE = 16384
FILTERS: dict[tuple[Like, bool], tuple[Filter, ...]] = {
    ("pillow", True): ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"),
    ("pillow", False): ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"),
    ("torchvision", True): ("nearest", "nearest_exact", "bilinear", "bicubic", "lanczos"),
    ("torchvision", False): ("nearest", "nearest_exact", "bilinear", "bicubic"),
    ("torch", True): ("bilinear", "bicubic"),
    ("opencv", False): ("nearest", "bilinear", "bicubic", "area"),
    ("tensorflow", True): ("bilinear",),
    ("tensorflow", False): ("nearest", "bilinear"),
    ("dali", True): ("nearest", "bilinear", "bicubic", "lanczos"),
    ("dali", False): ("nearest", "bilinear", "bicubic", "lanczos"),
}
"""The filters of each library, with and without antialias; ``nearest`` is the same either way."""
LARGEST: dict[TensorDType, float] = {"float32": 3.4028234663852886e38, "float16": 65504.0, "uint8": 255.0}


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", kw_only=True):
    """What all operators share.

    Attributes:
        name: what later ops call this one in ``from``; of an output, its name in Triton.
        from_: the op whose image this one takes, ``from`` in the file; None: the op before.
    """

    name: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")

    def __post_init__(self) -> None:
        try:
            self.check()
        except (TypeError, OverflowError):  # only from Python: msgspec has checked the types of what a file says
            raise PipelineError(f"{op_name(self)}: a value of the wrong type in {self!r}") from None

    def check(self) -> None:
        """Raise PipelineError where the values contradict each other or a limit."""

    def _default(self, field: str, value: object) -> None:
        """Give a field a value that depends on others, so that the file says it."""
        if getattr(self, field) is None:
            msgspec.structs.force_setattr(self, field, value)


class Decode(Op, frozen=True, tag="decode", kw_only=True):
    """Decode one encoded image (JPEG; also PNG, WebP, BMP, TIFF, the first frame of a GIF) to uint8.

    Like torchvision's ``decode_image`` with mode RGB or GRAY, but with the EXIF orientation applied by default.
    JPEG as libjpeg-turbo does by default, and so Pillow, OpenCV and torchvision: accurate integer IDCT, "fancy" chroma
    upsampling. Gray is the luma plane of a JPEG, and Pillow's ``convert("L")`` of other formats. 16-bit values keep
    their high byte, CMYK becomes RGB as in Pillow.

    Args:
        color: order of the channels.
        apply_exif_orientation: turn the image upright by its EXIF data (not XMP); False keeps the pixels as they are
            stored, but for TIFF, which Pillow turns while it reads.
        chroma: how the colour of a subsampled JPEG is enlarged. ``fancy``: interpolated, as in nearly all training
            code; ``fast``: repeated, a few percent quicker, up to 73 levels off.
        idct: the inverse cosine transform of JPEG. ``accurate``; ``fast``: TensorFlow's default (64 % of the values
            differ, by up to 18 levels); the CPU decodes such images on a GPU too.
        scale: ``full``; ``auto``: a JPEG may be decoded to 1/2, 1/4 or 1/8 of its size, as long as the resize of every
            tensor finds at least two pixels for each that it makes. Its cost, measured on photos of 500 x 375 to
            4032 x 3024 with shorter sides of 40 to 256 made of them: 0.1 to 1.0 levels on average, up to 16, and up to
            27 at the edge of a crop before the resize. Photos of 1920 x 1080 made 256 high: 0.5 and 10; of 4032 x 3024:
            0.4 and 6. Sizes, windows and ``transform`` stay those of the whole image. A permission: libjpeg-turbo on
            the CPU does so, for JPEGs of one or three components; everything else, and a GPU, decodes whole. Not with a
            resize like another library than Pillow, without antialias, or by ``nearest`` or ``box``.
        alpha: of transparent images: ``drop`` keeps the colours as they are stored, like Pillow's ``convert("RGB")``;
            ``white`` lays them on white first, like Hugging Face's ``do_convert_rgb``.
        damage: of a JPEG, where libjpeg-turbo warns that the data ends early or does not fit. ``strict``: an error;
            ``lenient``: what libjpeg-turbo makes of it, as Pillow and browsers show it, and a counter goes up. Of the
            other formats, what Pillow refuses is an error either way.
        decoder: on a GPU, what may decode. ``consistent``: the CUDA decoder alone, so that an image gets the same
            pixels whatever the load; libjpeg-turbo looks for damage first, so that it gets the CPU's answer too.
            ``fastest``: the hardware engine beside it, and damage is what nvImageCodec finds. ``cpu``: libjpeg-turbo.
    """

    color: Color = "rgb"
    apply_exif_orientation: bool = True
    chroma: Chroma = "fancy"
    idct: Idct = "accurate"
    scale: Scale = "full"
    alpha: Alpha = "drop"
    damage: Damage = "strict"
    decoder: Codec = "consistent"

    def infer(self) -> ImageSpec:
        """The spec of the decoded image: any size."""
        return ImageSpec(color=self.color)


class Resize(Op, frozen=True, tag="resize"):
    """Resize by a separable filter; give ``size``, or ``height`` and ``width``.

    ``like`` names the library whose values these are, after decoding, on every device; exactly, but for ``dali``:

    - ``pillow``: ``Image.resize`` of the installed Pillow, which torchvision and timm use on PIL images; two passes,
      each rounded to uint8. Without antialias the filter is not widened when the image shrinks: Pillow's formula at
      support scale 1.
    - ``torchvision``: v2's ``resize`` of uint8 tensors on a CPU with AVX2: coefficients of 16 bits.
    - ``torch``: PyTorch's antialiased ``interpolate`` of float32 values, rounded to uint8, on a CPU with AVX2: what
      torchvision's v1 transforms, and so every ``weights.transforms()``, do to tensors.
    - ``opencv``: ``cv2.resize`` of uint8 images; ``bicubic`` by its formula, not by Intel IPP.
    - ``tensorflow``: ``tf.image.resize`` of TensorFlow 2: float32 values, which nothing rounds.
    - ``dali``: DALI's ``resize`` of uint8 images. Its geometry, and its float32 values within a level.

    Args:
        size: of the side that ``side`` names; the aspect ratio is kept up to ``rounding``.
        side: which side ``size`` is for; default: ``shorter``.
        height, width: both sides.
        mode: with ``height`` and ``width``. ``stretch``: to exactly that. ``fit``: the largest size inside of the same
            aspect ratio; ``cover``: the smallest around. Default: ``stretch``.
        filter: ``nearest`` (never antialiased), ``nearest_exact`` (torchvision's), ``box``, ``bilinear``, ``hamming``,
            ``bicubic``, ``lanczos`` (3 lobes), ``area`` (OpenCV's); each library has its own choice of them.
        antialias: widen the filter by the scale when shrinking. Default: False for opencv and tensorflow, as there.
        like: see above.
        rounding: of a side that follows from the other: ``down`` (torchvision's ``int(size * other / side)``),
            ``half_even`` (timm's ``round``), ``half_away`` (DALI's). At least 1. Default: DALI's for dali, else
            ``down``; none where both sides are given.
        subpixel: of dali: look at the part of the image that makes the scale of both axes equal in spite of the
            rounding (``subpixel_scale``). Default: True for dali.
    """

    size: int | None = None
    side: Literal["shorter", "longer"] | None = None
    height: int | None = None
    width: int | None = None
    mode: Literal["stretch", "fit", "cover"] | None = None
    filter: Filter = "bilinear"
    antialias: bool | None = None
    like: Like = "pillow"
    rounding: Rounding | None = None
    subpixel: bool | None = None

    def check(self) -> None:
        """See ``Op.check``."""
        pair = (self.height, self.width)
        if (self.size is None) == (pair == (None, None)) or (self.size is None and None in pair):
            raise PipelineError('needs either "size" or both "height" and "width"')
        _check_like(self)
        if self.subpixel is not None and self.like != "dali":
            raise PipelineError('"subpixel" goes with "like": "dali"')
        if self.size is None:
            if self.side is not None:
                raise PipelineError('"side" goes with "size", not with "height" and "width"')
            _check_sides(self.height, self.width)
            self._default("mode", "stretch")
        else:
            if self.mode is not None:
                raise PipelineError('"mode" goes with "height" and "width", not with "size"')
            _check_side("size", self.size)
            self._default("side", "shorter")
        if self.mode != "stretch":
            self._default("rounding", "half_away" if self.like == "dali" else "down")
            if self.like == "dali":
                self._default("subpixel", value=True)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec after the resize; refuses values that are not the decoder's levels."""
        _need_levels(image)
        if self.like == "tensorflow" and self.filter != "nearest":
            image = replace(image, values="real")
        if self.mode == "stretch":
            assert self.height is not None
            assert self.width is not None
            return image.sized(self.height, self.width)
        if self.mode is not None:
            least = (1, 1) if self.mode == "fit" else (self.height or 1, self.width or 1)
            return replace(image, height=None, width=None, min_height=least[0], min_width=least[1])
        assert self.size is not None
        assert self.side is not None
        assert self.rounding is not None
        if image.height is not None and image.width is not None:
            return image.sized(*keep_aspect(self.size, self.side, image.height, image.width, self.rounding))
        shortest = self.size if self.side == "shorter" else 1
        return replace(image, height=None, width=None, min_height=shortest, min_width=shortest)


class CenterCrop(Op, frozen=True, tag="center_crop"):
    """Cut the middle out; give ``height`` and ``width``, or ``fraction``.

    Like torchvision's ``CenterCrop``: the margin above is half of ``H - height``, rounded, and a smaller image is
    padded with zeros. Unlike it, a crop before the resize must fit inside the image.

    Args:
        height: in pixels.
        width: in pixels; default: ``height``.
        fraction: in place of both: a square of ``int(fraction * shorter side)``, as in TensorFlow's ImageNet code.
        rounding: of half an odd margin: ``half_even`` (torchvision, timm), ``down`` (Hugging Face, Keras),
            ``half_away`` (DALI).
    """

    height: int | None = None
    width: int | None = None
    fraction: float | None = None
    rounding: Rounding = "half_even"

    def check(self) -> None:
        """See ``Op.check``."""
        if (self.height is None) == (self.fraction is None) or (self.height is None and self.width is not None):
            raise PipelineError('needs either "height" and "width", or "fraction"')
        if self.fraction is not None:
            if not 0 < self.fraction <= 1:
                raise PipelineError(f'"fraction" must be over 0 and at most 1, not {self.fraction:g}')
            return
        if self.width is None:
            msgspec.structs.force_setattr(self, "width", self.height)
        _check_sides(self.height, self.width)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the middle; refuses to pad normalized values, where level 0 is no longer 0."""
        if self.height is not None and self.width is not None:
            if self.height > image.min_height or self.width > image.min_width:
                _need_levels(image)
            return image.sized(self.height, self.width)
        assert self.fraction is not None
        if image.height is not None and image.width is not None:
            side = max(1, int(self.fraction * min(image.height, image.width)))
            return image.sized(side, side)
        return replace(image, height=None, width=None, min_height=1, min_width=1)


class Crop(Op, frozen=True, tag="crop"):
    """Cut out a fixed window.

    Like torchvision's functional ``crop``, but an image that the window does not fit inside is refused, not padded.

    Args:
        top, left: the window's first row and column.
        height, width: its size.
    """

    top: int
    left: int
    height: int
    width: int

    def check(self) -> None:
        """See ``Op.check``."""
        _check_sides(self.height, self.width)
        for name, value in (("top", self.top), ("left", self.left)):
            if not 0 <= value <= MAX_SIDE:
                raise PipelineError(f'"{name}" must be 0 to {MAX_SIDE}, not {value}')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the window; refuses one that no image could hold."""
        for name, end, side in (
            ("height", self.top + self.height, image.height),
            ("width", self.left + self.width, image.width),
        ):
            if side is not None and end > side:
                raise PipelineError(f"the window ends at {end}, but the {name} of the image is {side}")
        return image.sized(self.height, self.width)


class Pad(Op, frozen=True, tag="pad"):
    """Put the image on a larger canvas of one colour.

    Takes the size of the canvas, where torchvision's ``Pad`` takes margins. An odd margin is one pixel wider below
    and on the right. An image larger than the canvas is refused.

    Args:
        height, width: of the canvas.
        fill: the colour, 0 to 255: one number, or one a channel in the order of the channels.
        anchor: where the image lies: ``center`` or ``top_left``.
    """

    height: int
    width: int
    fill: Levels = 0
    anchor: Anchor = "center"

    def check(self) -> None:
        """See ``Op.check``."""
        _check_sides(self.height, self.width)
        _check_fill(self.fill)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the canvas."""
        _need_levels(image)
        _need_channels("fill", self.fill, image)
        if image.min_height > self.height or image.min_width > self.width:
            raise PipelineError(
                f"the canvas {self.height} x {self.width} is smaller than the image, "
                f"which is at least {image.min_height} x {image.min_width}"
            )
        return image.sized(self.height, self.width)


class Letterbox(Op, frozen=True, tag="letterbox"):
    """Resize to fit inside ``height`` x ``width``, keeping the aspect ratio, and pad the rest.

    The geometry of Ultralytics' ``LetterBox``: sides are ``round(side * scale)`` with the smaller of the two scales;
    the margin above is ``round(d / 2 - 0.1)`` of the ``d`` rows that are free. Its filter is ``"like": "opencv"``; the
    default is the antialiased one of ``resize``.

    Args:
        height, width: of the canvas.
        fill: the colour, 0 to 255: one number, or one a channel.
        anchor: where the image lies: ``center`` or ``top_left``.
        enlarge: also scale small images up.
        filter, antialias, like: as in ``resize``.
    """

    height: int
    width: int
    fill: Levels = 114
    anchor: Anchor = "center"
    enlarge: bool = True
    filter: Filter = "bilinear"
    antialias: bool | None = None
    like: Like = "pillow"

    def check(self) -> None:
        """See ``Op.check``."""
        _check_like(self)
        _check_sides(self.height, self.width)
        _check_fill(self.fill)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the canvas."""
        _need_levels(image)
        _need_channels("fill", self.fill, image)
        if self.like == "tensorflow" and self.filter != "nearest":
            image = replace(image, values="real")
        return image.sized(self.height, self.width)


class Flip(Op, frozen=True, tag="flip"):
    """Mirror the image; always, never at random.

    Args:
        axis: ``horizontal`` swaps left and right, ``vertical`` top and bottom.
    """

    axis: Literal["horizontal", "vertical"] = "horizontal"

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change."""
        return image


class Normalize(Op, frozen=True, tag="normalize"):
    """Per channel ``(value * scale - mean) / std``.

    Like torchvision's ``Normalize`` after ``ToTensor`` (which is the default ``scale`` of 1/255). By default it is
    computed in float64 and rounded once, to the tensor's dtype; training code rounds to float32 at each step, which
    ``arithmetic`` repeats to the last bit.

    Args:
        mean, std: one number, or one a channel in the order of the channels.
        scale: multiplies the levels 0 to 255 first.
        arithmetic: ``float64``; or in float32, each constant and each step rounded: ``divide``
            ``(value / (1 / scale) - mean) / std`` (torchvision's ToTensor and Normalize, timm, Keras), ``multiply``
            ``(value * scale - mean) / std`` (torchvision v2's ToDtype and Normalize), ``fused``
            ``(value - mean * (1 / scale)) / (std * (1 / scale))`` (Hugging Face), ``fused_multiply``
            ``(value - mean / scale) * (scale / std)`` (DALI).
    """

    mean: Reals = 0.0
    std: Reals = 1.0
    scale: float = 1 / 255
    arithmetic: Arithmetic = "float64"

    def check(self) -> None:
        """See ``Op.check``."""
        for name, values in (("mean", self.mean), ("std", self.std), ("scale", self.scale)):
            if not all(isfinite(value) for value in as_tuple(values)):
                raise PipelineError(f'"{name}" must be finite, not {_shown(values)}')
        if any(value <= 0 for value in as_tuple(self.std)):
            raise PipelineError(f'"std" must be over 0, not {_shown(self.std)}')
        if self.scale == 0:
            raise PipelineError('"scale" must not be 0: every pixel would become the same value')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec with the new range of values."""
        _need_channels("mean", self.mean, image)
        _need_channels("std", self.std, image)
        ends = [
            image_end * a + b for a, b in self.coefficients(image.channels) for image_end in (image.low, image.high)
        ]
        return replace(image, low=min(ends) + 0.0, high=max(ends) + 0.0, values="normalized")  # + 0.0: no -0

    def coefficients(self, channels: int) -> list[tuple[float, float]]:
        """For each channel the factor and the offset that this op amounts to."""
        means, stds = (as_tuple(v) * (channels if len(as_tuple(v)) == 1 else 1) for v in (self.mean, self.std))
        return [(self.scale / std, -mean / std) for mean, std in zip(means, stds, strict=True)]


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


ImageOp = Resize | CenterCrop | Crop | Pad | Letterbox | Flip | Normalize
OutputOp = Tensor | OriginalSize | Transform
AnyOp = Decode | ImageOp | OutputOp
OPS: dict[str, type[Op]] = {
    str(cls.__struct_config__.tag): cls
    for cls in (
        Decode,
        Resize,
        CenterCrop,
        Crop,
        Pad,
        Letterbox,
        Flip,
        Normalize,
        Tensor,
        OriginalSize,
        Transform,
    )
}


def op_name(op: Op) -> str:
    """The op's name in the file, such as ``center_crop``."""
    return str(op.__struct_config__.tag)


def as_tuple(value: Reals) -> tuple[float, ...]:
    """One number as a tuple of one; Python callers may also give a list."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _shown(value: Reals) -> str:
    values = as_tuple(value)
    return ", ".join([*(f"{v:g}" for v in values[:4]), *["..."] * (len(values) > 4)])


def _check_side(name: str, value: int) -> None:
    if not 1 <= value <= MAX_SIDE:
        raise PipelineError(f'"{name}" must be 1 to {MAX_SIDE} pixels, not {value}')


def _check_sides(height: int | None, width: int | None) -> None:
    assert height is not None
    assert width is not None
    _check_side("height", height)
    _check_side("width", width)


def _check_fill(fill: Levels) -> None:
    for value in as_tuple(fill):
        if not 0 <= value <= 255:
            raise PipelineError(f'"fill" must be 0 to 255, not {_shown(fill)}')


def _need_channels(name: str, value: Reals, image: ImageSpec) -> None:
    count = len(as_tuple(value))
    if count not in (1, image.channels):
        raise PipelineError(
            f'"{name}" has {count} values, but the image has {image.channels} channel{"s" * (image.channels > 1)}'
        )


def _check_like(op: Resize | Letterbox) -> None:
    """Fill in what follows from ``like``, and refuse what its library cannot do."""
    op._default("antialias", op.like not in ("opencv", "tensorflow"))  # noqa: SLF001
    filters = FILTERS.get((op.like, bool(op.antialias)))
    if filters is None:
        if op.like == "torch":
            raise PipelineError('"antialias" must be true with "like": "torch"')
        raise PipelineError('"antialias" must be false: OpenCV has none, and shrinks well with the filter "area"')
    if op.filter not in filters:
        others = [
            like for like, antialias in FILTERS if antialias == op.antialias and op.filter in FILTERS[like, antialias]
        ]
        raise PipelineError(
            f'"{op.filter}" with antialias {str(op.antialias).lower()} is not for "like": "{op.like}", which has '
            f"{', '.join(filters)}; of the others {', '.join(others) or 'none'} has it"
        )


def _need_levels(image: ImageSpec) -> None:
    """Refuse normalized values, where no level is what it was."""
    if image.values == "normalized":
        raise PipelineError("must come before normalize: it works on the levels 0 to 255")
