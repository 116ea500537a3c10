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
from pixprep.spec import Chroma, Codec, Color, ImageSpec, Layout, TensorSpec, keep_aspect

Filter = Literal["nearest", "box", "bilinear", "bicubic", "lanczos"]
Anchor = Literal["center", "top_left"]
TensorDType = Literal["float32", "float16", "uint8"]
Levels = int | tuple[int, ...]
Reals = float | tuple[float, ...]

MAX_SIDE = 16384
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


class Decode(Op, frozen=True, tag="decode", kw_only=True):
    """Decode one encoded image (JPEG; also PNG, WebP, BMP, TIFF, the first frame of a GIF) to uint8.

    Like torchvision's ``decode_image`` with mode RGB or GRAY, but with the EXIF orientation applied by default.
    JPEG as libjpeg-turbo does by default: accurate integer IDCT, "fancy" chroma upsampling. Gray is the luma
    plane of a JPEG, and Pillow's ``convert("L")`` of other formats. Alpha is dropped, 16-bit values keep their high
    byte, CMYK becomes RGB as in Pillow.

    Args:
        color: order of the channels.
        apply_exif_orientation: turn the image upright by its EXIF data (not XMP); False keeps the pixels as they are
            stored, but for TIFF, which Pillow turns while it reads.
        chroma: how the colour of a subsampled JPEG is enlarged. ``fancy``: interpolated, as in nearly all training
            code; ``fast``: repeated, a few percent quicker, up to 73 levels off.
        decoder: on a GPU, what may decode. ``consistent``: the CUDA decoder alone, so that an image gets the same
            pixels whatever the load; ``fastest``: the hardware engine beside it; ``cpu``: libjpeg-turbo.
    """

    color: Color = "rgb"
    apply_exif_orientation: bool = True
    chroma: Chroma = "fancy"
    decoder: Codec = "consistent"

    def infer(self) -> ImageSpec:
        """The spec of the decoded image: any size."""
        return ImageSpec(color=self.color)


class Resize(Op, frozen=True, tag="resize"):
    """Resize by a separable filter; give ``size``, or ``height`` and ``width``.

    Like torchvision v2's ``Resize`` on PIL images: with ``size``, one side becomes ``size`` and the other
    ``int(size * other / side)``, at least 1. Values equal the ``Image.resize`` of the installed Pillow (two passes,
    each rounded to uint8): exactly if ``exact``, else within one level. Without antialias the filter is not
    widened when the image shrinks: Pillow's formula at support scale 1. Of torchvision it differs in that
    antialias=False has its effect on every image.

    Args:
        size: of the side that ``side`` names; the aspect ratio is kept up to the rounding above.
        side: which side ``size`` is for; default: ``shorter``.
        height, width: both sides; the aspect ratio is not kept.
        filter: ``nearest`` (never antialiased), ``box``, ``bilinear``, ``bicubic`` (a = -0.5) or ``lanczos`` (3 lobes).
        antialias: widen the filter by the scale when shrinking.
        exact: 0 levels of difference to Pillow, on the CPU at the cost of the resize of the whole image.
    """

    size: int | None = None
    side: Literal["shorter", "longer"] | None = None
    height: int | None = None
    width: int | None = None
    filter: Filter = "bilinear"
    antialias: bool = True
    exact: bool = False

    def check(self) -> None:
        """See ``Op.check``."""
        pair = (self.height, self.width)
        if (self.size is None) == (pair == (None, None)) or (self.size is None and None in pair):
            raise PipelineError('needs either "size" or both "height" and "width"')
        if self.size is None:
            if self.side is not None:
                raise PipelineError('"side" goes with "size", not with "height" and "width"')
            _check_sides(self.height, self.width)
            return
        _check_side("size", self.size)
        if self.side is None:
            msgspec.structs.force_setattr(self, "side", "shorter")

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec after the resize; refuses normalized values, since the filter rounds to uint8."""
        _need_integer(image)
        if self.height is not None and self.width is not None:
            return image.sized(self.height, self.width)
        assert self.size is not None
        assert self.side is not None
        if image.height is not None and image.width is not None:
            return image.sized(*keep_aspect(self.size, self.side, image.height, image.width))
        least = self.size if self.side == "shorter" else 1
        return replace(image, height=None, width=None, min_height=least, min_width=least)


class CenterCrop(Op, frozen=True, tag="center_crop"):
    """Cut the middle out; give ``height`` and ``width``, or ``fraction``.

    Like torchvision's ``CenterCrop``: the margin above is ``round((H - height) / 2)``, ties to even, and a smaller
    image is padded with zeros. Unlike it, a crop before the resize must fit inside the image.

    Args:
        height: in pixels.
        width: in pixels; default: ``height``.
        fraction: in place of both: a square of ``int(fraction * shorter side)``, as in TensorFlow's ImageNet code.
    """

    height: int | None = None
    width: int | None = None
    fraction: float | None = None

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
                _need_integer(image)
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
        _need_integer(image)
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
    the margin above is ``round(d / 2 - 0.1)`` of the ``d`` rows that are free. Its filter is OpenCV's bilinear without
    antialias; ours is the antialiased one of ``resize`` unless ``antialias`` is False.

    Args:
        height, width: of the canvas.
        fill: the colour, 0 to 255: one number, or one a channel.
        anchor: where the image lies: ``center`` or ``top_left``.
        enlarge: also scale small images up.
        filter, antialias, exact: as in ``resize``.
    """

    height: int
    width: int
    fill: Levels = 114
    anchor: Anchor = "center"
    enlarge: bool = True
    filter: Filter = "bilinear"
    antialias: bool = True
    exact: bool = False

    def check(self) -> None:
        """See ``Op.check``."""
        _check_sides(self.height, self.width)
        _check_fill(self.fill)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the canvas."""
        _need_integer(image)
        _need_channels("fill", self.fill, image)
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
    """Per channel ``(value * scale - mean) / std``, computed in float64 and rounded once to the tensor's dtype.

    Like torchvision's ``Normalize`` after ``ToTensor`` (which is the default ``scale`` of 1/255); results differ from
    its float32 chain by the last bit.

    Args:
        mean, std: one number, or one a channel in the order of the channels.
        scale: multiplies the levels 0 to 255 first.
    """

    mean: Reals = 0.0
    std: Reals = 1.0
    scale: float = 1 / 255

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
        return replace(image, low=min(ends) + 0.0, high=max(ends) + 0.0, is_integer=False)  # + 0.0: no -0

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
        if self.dtype == "uint8" and not image.is_integer:
            raise PipelineError("uint8 cannot hold normalized values: use float32 or float16, or drop normalize")
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
    return ", ".join(f"{v:g}" for v in as_tuple(value))


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


def _need_integer(image: ImageSpec) -> None:
    if not image.is_integer:
        raise PipelineError("must come before normalize: it works on the uint8 levels")
