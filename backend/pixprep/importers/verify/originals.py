"""Computes the result of each op with the original library.

The functions of this module call the library. If the library does not have an equivalent function, the result is
computed from the op's definition. The functions do not use any code of pixprep that computes pixels, such as kernels or
decoders, so that the comparison is independent.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from operator import truediv
from typing import Any, cast, get_args

import numpy as np
import PIL
from PIL import Image, ImageOps

from pixprep.errors import unreachable
from pixprep.importers.verify.images import Array
from pixprep.importers.verify.libraries import Library, find
from pixprep.importers.verify.twins import gray_by_opencv, has_one_channel, library_of, planes, recoloured
from pixprep.pipeline import ops
from pixprep.plan.profiles import PROFILES, dali
from pixprep.spec import DALIS, DETRS, BorderMode, Like, PaddingMode, SideRounding

Resizing = ops.Resize | ops.Letterbox
Size = tuple[int, int]

ROUND: Mapping[SideRounding, Callable[[float], float]] = {
    "down": np.floor,
    "half_even": np.rint,
    **dict.fromkeys(DALIS, lambda value: np.floor(value + 0.5)),
    "up": np.ceil,
    **dict.fromkeys(DETRS, np.floor),
}
"""NumPy functions by rounding mode."""
ORDER = 13 if int(PIL.__version__.partition(".")[0]) >= 13 else 12
"""Order of the resize passes in the installed Pillow: 13 for Pillow 13 and later, 12 for all earlier versions."""


@dataclass(frozen=True)
class Original:
    """Function of a library that computes a stage of the pipeline.

    Attributes:
        library: Library that computes the stage. If the library cannot be used, ``run`` must not be called.
        run: Function that computes the stage.
        stands_for: Library that should compute the stage but is not installed, so that ``run`` computes the stage from
            its definition.
        note: Description of the difference from the library's default.
    """

    library: Library
    run: Callable[[Any], Array]
    stands_for: Library | None = None
    note: str = ""

    def __str__(self) -> str:
        return f"{self.library} ({self.note})" if self.note else str(self.library)


FORMULA = Original(Library("NumPy", np.__version__), np.asarray)
"""Original for a stage without ops. Stages that are computed from a definition also have NumPy as their library."""


class Originals:
    """Reference implementations of all ops, which call the original libraries.

    Args:
        find: Function that returns the library for a key of ``libraries.TABLE``.
    """

    def __init__(self, find: Callable[[str], Library] = find) -> None:
        self._find = find

    def decoder(self, op: ops.Decode) -> Original:
        """Return a decoder for encoded images, which returns uint8 arrays of shape (height, width, channels).

        The decoder is Pillow, unless the op uses the fast IDCT or fast chroma upsampling, which only TensorFlow
        supports.
        """
        if op.idct == "accurate" and op.chroma == "fancy":
            return Original(self._find("pillow"), lambda encoded: _decode(encoded, op))
        return Original(self._find("tensorflow"), lambda encoded: _decode(encoded, op, _tensorflow_jpeg))

    def resizer(self, op: Resizing | None) -> Original:
        """Return a function that resizes uint8 images of shape (height, width, channels).

        The result is float32 for TensorFlow, and uint8 for all other libraries. For a letterbox, the function does not
        add the padding.
        """
        if op is None:
            return FORMULA
        profile = PROFILES[op.like].original
        library, note = self._find(profile.key), _note(op.like)
        if profile.order is not None and not op.antialias and op.filter != "nearest":  # not possible with Pillow
            library, note = FORMULA.library, ""
        elif isinstance(op, ops.Resize) and op.like == "dali" and op.subpixel and op.rounding != "half_away":
            library = Library(library.title, None, f'does not support the rounding "{op.rounding}"')
        return Original(library, lambda pixels: _resized(pixels, op), note=note)

    def colourist(self, op: ops.SteadyOp) -> Original:
        """Return a function for a colour op, which converts uint8 images of shape (height, width, channels), RGB."""
        if getattr(op, "like", "") == "dali":
            return Original(Library("DALI", None, "is not used for a single rotation or affine transform"), np.asarray)
        return Original(self._find(library_of(op)), lambda pixels: recoloured(op, pixels))

    def normalizer(self, op: ops.Normalize, *, is_real: bool, origin: str = "") -> Original:
        """Return a function that normalizes pixel values, as an array of shape (height, width, channels).

        The result is float64 if the arithmetic is ``float64``, and float32 for all others.

        Args:
            op: Normalization.
            is_real: Whether the pixel values are float32 and not integers.
            origin: Library that the pipeline was imported from.
        """
        formula = replace(FORMULA, run=lambda values: _normalize(values, op))
        is_real |= isinstance(op.scale, str)
        key, run = NORMALIZERS.get(op.arithmetic, ("", _normalize))
        if (key, origin, op.scale) == ("dali", "albumentations", 1):  # both libraries compute in the same way
            key, run = origin, _albumentations_normalize
        # The functions of the libraries require integer pixel values, and torchvision's always divides by 255.
        if not key or is_real or (key == "torchvision" and op.scale != 1 / 255):
            return formula
        library = self._find(key)
        if not library.version:
            return replace(formula, stands_for=library)
        return Original(library, lambda values: (run if values.dtype == np.uint8 else _normalize)(values, op))


def geometry(
    chain: Sequence[ops.Op],
    resize: Callable[[Array], Array],
    pixels: Array,
    *,
    recolour: Callable[[ops.SteadyOp, Array], Array] | None = None,
) -> Array:
    """Apply the geometric ops and colour ops of a chain to an image in order.

    Args:
        chain: Ops to apply.
        resize: Function that resizes the image.
        pixels: uint8 image of shape (height, width, channels). The channel order is that of the ``decode`` at the start
            of the chain, or RGB if the chain does not begin with it.
        recolour: Function that applies a colour op to an RGB image.
    """
    is_bgr, is_gray = isinstance(chain[0], ops.Decode) and chain[0].color == "bgr", False
    for op in chain:
        is_gray = has_one_channel(op, was_gray=is_gray)
        match op:
            case ops.ImageOp(home="training"):
                raise AssertionError(f"{op!r} is compared with nothing")
            case ops.Resize():
                pixels = resize(pixels[:, :, :1]).repeat(3, 2) if is_gray and op.like == "dali" else resize(pixels)
            case ops.Letterbox():
                pixels = _padded(op, resize(pixels))
            case ops.Pad():
                pixels = _padded(op, pixels, op.padding_mode)
            case ops.Flip():
                pixels = pixels[:, ::-1] if op.axis == "horizontal" else pixels[::-1]
            case ops.CenterCrop():
                pixels = _center_crop(op, pixels)
            case ops.Crop():
                rows = _crop_range(op, op.top, op.height, pixels.shape[0])
                pixels = pixels[rows, _crop_range(op, op.left, op.width, pixels.shape[1])]
            case ops.Trim():
                assert recolour is not None
                luma = recolour(ops.Grayscale(like=op.like), pixels[:, :, :: -1 if is_bgr else 1])[:, :, 0]
                pixels = pixels[_dark(luma, op)]
            case ops.SteadyOp():
                assert recolour is not None
                order = -1 if is_bgr and not op.moves else 1  # a warp fills with a colour in the order of the image
                pixels = recolour(op, pixels[:, :, ::order])[:, :, ::order]
            case ops.ImageOp() if not isinstance(op, ops.Normalize):  # its arithmetic is compared separately
                raise AssertionError(f"{op!r} is compared with nothing")
    return pixels


def _dark(luma: Array, op: ops.Trim) -> tuple[slice, slice]:
    """Return the rows and the columns of the bounding box of all pixels with a dark luma."""
    stretched = (luma - luma.min()).astype(np.float32 if op.like == "torchvision" else np.float64)
    stretched = stretched / np.ptp(luma).astype(stretched.dtype) * 255 if np.ptp(luma) else stretched
    (top, bottom), (left, right) = ((each.min(), each.max() + 1) for each in np.nonzero(stretched < op.threshold))
    return slice(top, bottom), slice(left, right)


def _crop_range(op: Any, begin: Any, size: Any, length: int) -> slice:
    """Return the rows or columns of a crop.

    Args:
        op: Crop, whose ``unit`` applies to ``begin`` and ``size``.
        begin: First row or column.
        size: Number of rows or columns.
        length: Height or width of the image.
    """
    round_ = ROUND[op.rounding or "down"]
    if op.unit in ("share", "share32"):
        dtype = np.float32 if op.unit == "share32" else np.float64
        end = (float(dtype(begin)) + float(dtype(size))) * length
        return slice(int(round_(float(dtype(begin) * dtype(length)))), int(round_(end)))
    first = int(begin if op.unit == "pixels" else round_(begin * (length - size)))
    return slice(first, first + int(size))


def _center_crop(op: ops.CenterCrop, pixels: Array) -> Array:
    """Crop the centre of an image, after padding it with zeros if it is smaller than the crop, as torchvision does."""
    side = max(1, int((op.fraction or 1) * min(pixels.shape[:2])))
    height, width = op.height or side, op.width or side
    missing = [max(0, window - length) for window, length in zip((height, width), pixels.shape, strict=False)]
    pixels = np.pad(pixels, [*((d // 2, d - d // 2) for d in missing), (0, 0)])
    top = int(ROUND[op.rounding]((pixels.shape[0] - height) / 2))
    left = int(ROUND[op.rounding]((pixels.shape[1] - width) / 2))
    return pixels[top : top + height, left : left + width]


def _padded(op: Any, pixels: Array, mode: BorderMode = "constant") -> Array:
    """Pad an image, as ``pad`` and ``letterbox`` are defined."""
    side = max(pixels.shape[:2])
    height, width = op.height or side, op.width or side
    if isinstance(op, ops.Pad) and op.multiple:
        height, width = (math.ceil(each / op.multiple) * op.multiple for each in pixels.shape[:2])
    if getattr(op, "larger", None) == "keep":
        height, width = max(height, pixels.shape[0]), max(width, pixels.shape[1])
    free = (height - pixels.shape[0], width - pixels.shape[1])
    top, left = (round(d / 2 - 0.1) if op.anchor == "center" else 0 for d in free)
    if isinstance(op, ops.Pad) and op.border is not None:
        above, below, before, after = (op.border,) * 4 if isinstance(op.border, int) else op.border
        height, width, top, left = pixels.shape[0] + above + below, pixels.shape[1] + before + after, above, before
        free = (above + below, before + after)
    if mode in get_args(PaddingMode)[1:]:
        return np.pad(pixels, [(top, free[0] - top), (left, free[1] - left), (0, 0)], cast("PaddingMode", mode))
    canvas = np.empty((height, width, pixels.shape[2]), pixels.dtype)
    canvas[...] = pixels[0, 0] if mode == "first_pixel" else op.fill
    canvas[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return canvas


def size_of(op: Any, pixels: Array) -> Size:
    """Return the (height, width) of an image after a resize."""
    height, width = pixels.shape[:2]
    round_ = ROUND[op.rounding or "down"]
    if isinstance(op, ops.Letterbox):
        scale = min(op.height / height, op.width / width)
        scale = scale if op.enlarge else min(scale, 1.0)
        return max(1, int(round_(height * scale))), max(1, int(round_(width * scale)))
    if op.mode == "stretch":
        return op.height, op.width
    if op.size is not None:
        sides = _unrounded_size(op, height, width)
    elif op.width is None or op.height is None:
        given, lengths = (op.height, (height, width)) if op.width is None else (op.width, (width, height))
        dependent = given * (lengths[1] / lengths[0]) if op.rounding == "up" else lengths[1] * (given / lengths[0])
        dependent = int(dependent) if op.up_to and dependent > op.up_to else dependent
        dependent = min(dependent, op.max_size or dependent)
        dependent = max(1, int(round_(dependent / (op.multiple or 1)))) * (op.multiple or 1)
        return (given, dependent) if op.width is None else (dependent, given)
    else:
        divide = truediv if op.rounding == "half_even" else Fraction  # timm divides in floating point
        ratio = (max if op.mode == "fit" else min)(divide(height, op.height), divide(width, op.width))
        sides = (float(height / ratio), float(width / ratio))
    rows, columns = (max(1, int(round_(side / (op.multiple or 1)))) * (op.multiple or 1) for side in sides)
    return rows, columns


def _unrounded_size(op: Any, height: int, width: int) -> tuple[float, float]:
    """Return the (height, width) after a resize with ``size``, before they are rounded."""
    base = (min if op.side == "shorter" else max)(height, width)
    if op.side == "nearer":
        base = width if abs(1 - op.size / width) < abs(1 - op.size / height) else height
    if op.rounding in DETRS:
        is_over = max(height, width) / base * op.size > op.max_size
        raw = op.max_size * base / max(height, width) if is_over else op.size
        raw = raw if op.rounding == "detr" else round(raw)
        if round(raw) == base and (height <= width or not op.multiple):
            return height, width
        longest = raw * max(height, width) / base
        return (longest, round(raw)) if width < height else (round(raw), longest)
    if op.mode == "scale":
        scale = min(max(op.size / base, 0 if op.shrink else 1), math.inf if op.enlarge else 1)
        if op.multiple is None:
            scale = min(scale, op.max_size / max(height, width) if op.max_size else scale)
            return height * scale, width * scale
        rows, columns = int(height * scale), int(width * scale)
        factor = op.max_size / max(rows, columns) if op.max_size and max(rows, columns) > op.max_size else 1.0
        return int(rows * factor), int(columns * factor)
    longer = int(ROUND[op.rounding or "down"](op.size * max(height, width) / base))
    if op.max_size is not None and longer > op.max_size:
        shorter = op.max_size * op.size / longer
        return (shorter, op.max_size) if height <= width else (op.max_size, shorter)
    return op.size * height / base, op.size * width / base


def _decode(encoded: bytes, op: ops.Decode, jpeg: Callable[[bytes, ops.Decode], Array] | None = None) -> Array:
    """Decode an image as ``op`` specifies, with ``jpeg`` if it is a JPEG, and with Pillow for all other formats."""
    image: Image.Image = Image.open(io.BytesIO(encoded))
    image_format, orientation = image.format, image.getexif().get(0x0112, 1)
    if op.color == "gray":
        image.draft("L", None)
    image.load()
    if image_format == "JPEG" and jpeg is not None:
        levels = jpeg(encoded, op)
        image = Image.fromarray(levels[:, :, 0] if levels.shape[2] == 1 else levels)
        image.getexif()[0x0112] = orientation
    elif image_format != "JPEG" and op.gray_like == "opencv":
        image = Image.fromarray(gray_by_opencv(encoded))
        image.getexif()[0x0112] = orientation
    if op.apply_exif_orientation:
        image = ImageOps.exif_transpose(image)
    if image.mode == "I;16":
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if op.alpha == "white" and (image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255)), image)
    if image.mode == "P":  # Pillow warns if a palette with alpha is converted to a mode other than RGBA
        image = image.convert("RGBA")
    levels = np.asarray(image.convert("L" if op.color == "gray" else "RGB")).reshape(image.height, image.width, -1)
    return levels[:, :, ::-1] if op.color == "bgr" else levels


def _tensorflow_jpeg(encoded: bytes, op: ops.Decode) -> Array:
    pixels = import_module("tensorflow").io.decode_jpeg(
        encoded,
        channels=1 if op.color == "gray" else 3,
        fancy_upscaling=op.chroma == "fancy",
        dct_method="INTEGER_FAST" if op.idct == "fast" else "INTEGER_ACCURATE",
    )
    return np.asarray(pixels.numpy())


def _note(like: Like) -> str:
    order = PROFILES[like].original.order
    return f"one pass at a time in the order of Pillow {order}" if order not in (None, ORDER) else ""


def _resized(pixels: Array, op: Resizing) -> Array:
    """Resize an image with the library of the op's profile."""
    original = PROFILES[op.like].original
    functions, size = import_module(original.functions), size_of(op, pixels)
    if original.takes_planes:
        return np.asarray(original.resize(functions, planes(pixels), op, size).numpy().transpose(1, 2, 0))
    return np.asarray(original.resize(functions, pixels, op, size))


def _bfloat16(values: Array) -> Array:
    """Round float32 values to bfloat16, with ties to even, and return them as float32."""
    bits = values.view(np.uint32)
    return (bits + (bits >> 16 & 1) + 0x7FFF & 0xFFFF0000).astype(np.uint32).view(np.float32)


def _normalize(values: Array, op: ops.Normalize) -> Array:
    """Normalize pixel values as the op is defined, in float64 or with the float32 operations of its library."""
    mean, std = np.array(ops.as_tuple(op.mean)), np.array(ops.as_tuple(op.std))
    if isinstance(op.scale, str):
        divisor = float(values.max() if op.scale == "max" else values.mean()) or 1.0
        if op.arithmetic == "float64":
            return np.asarray((values / divisor - mean) / std)
        return np.asarray(((values / divisor).astype(np.float32) - mean.astype(np.float32)) / std.astype(np.float32))
    if op.arithmetic == "float64":
        return np.asarray((values.astype(np.float64) * op.scale - mean) / std)
    if op.arithmetic == "fused_multiply":
        return np.asarray((values - np.float32(mean / op.scale)) * np.float32(op.scale / std), np.float32)
    real, scale, inverse = values.astype(np.float32), np.float32(op.scale), np.float32(1 / op.scale)
    mean, std = mean.astype(np.float32), std.astype(np.float32)
    match op.arithmetic:
        case "divide":
            values = (real / inverse - mean) / std
        case "multiply":
            values = (real * scale - mean) / std
        case "fused":
            values = (real - mean * inverse) / (std * inverse)
        case "bfloat16":
            values = _bfloat16(_bfloat16(_bfloat16(real * scale) - _bfloat16(mean)) / _bfloat16(std))
        case _ as never:
            unreachable(never)
    return values


def _per_channel(value: ops.Reals, values: Array) -> list[float]:
    numbers = ops.as_tuple(value)
    return list(numbers * (values.shape[2] if len(numbers) == 1 else 1))


def _torchvision_normalize(values: Array, op: ops.Normalize) -> Array:
    mean, std = _per_channel(op.mean, values), _per_channel(op.std, values)
    if op.arithmetic == "divide":
        functional = import_module("torchvision.transforms.functional")
        real = functional.to_tensor(np.ascontiguousarray(values))
    else:
        functional = import_module("torchvision.transforms.v2.functional")
        real = functional.to_dtype(planes(values), import_module("torch").float32, scale=True)
    return np.asarray(functional.normalize(real, mean, std).numpy().transpose(1, 2, 0))


def _transformers_normalize(values: Array, op: ops.Normalize) -> Array:
    processor = import_module("transformers").ViTImageProcessor(
        do_resize=False,
        rescale_factor=op.scale,
        image_mean=_per_channel(op.mean, values),
        image_std=_per_channel(op.std, values),
    )
    tensor = processor(planes(values), return_tensors="pt", input_data_format="channels_first")["pixel_values"][0]
    return np.asarray(tensor.numpy().transpose(1, 2, 0))


def _dali_normalize(values: Array, op: ops.Normalize) -> Array:
    assert not isinstance(op.scale, str)
    mean, std = ([x / op.scale for x in _per_channel(x, values)] for x in (op.mean, op.std))
    library = import_module("nvidia.dali")
    how: dict[str, Any] = {"dtype": library.types.FLOAT, "output_layout": "HWC", "mean": mean, "std": std}
    return np.asarray(dali.run(library, values, lambda image: library.fn.crop_mirror_normalize(image, **how)))


def _albumentations_normalize(values: Array, op: ops.Normalize) -> Array:
    normalize = import_module("albumentations").Normalize(op.mean, op.std, max_pixel_value=1.0)
    return np.asarray(normalize.apply(np.ascontiguousarray(values)))


NORMALIZERS: Mapping[ops.Arithmetic, tuple[str, Callable[[Array, ops.Normalize], Array]]] = {
    "divide": ("torchvision", _torchvision_normalize),
    "multiply": ("torchvision", _torchvision_normalize),
    "fused": ("transformers", _transformers_normalize),
    "fused_multiply": ("dali", _dali_normalize),
}
"""Library and reference function for each ``arithmetic``. ``float64`` and ``bfloat16`` are missing, because their
reference is the formula itself."""
