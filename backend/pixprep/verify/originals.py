"""What the original libraries make of an image, op by op.

Written from the libraries' own functions, and where there is none from the definition. It shares the ops' data with
pixprep, and none of what computes pixels: no profile, no kernel, no decoder.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL
from PIL import Image, ImageOps

from pixprep import ops
from pixprep.pipeline_file import Source
from pixprep.spec import Rounding
from pixprep.verify.images import png
from pixprep.verify.libraries import Library, find

Array = npt.NDArray[Any]
Size = tuple[int, int]
Resizing = ops.Resize | ops.Letterbox

PILLOW = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
OPENCV = {"nearest": "INTER_NEAREST", "bilinear": "INTER_LINEAR", "bicubic": "INTER_CUBIC", "area": "INTER_AREA"}
DALI = {"nearest": "INTERP_NN", "bilinear": "INTERP_LINEAR", "bicubic": "INTERP_CUBIC", "lanczos": "INTERP_LANCZOS3"}
_WHOLE: dict[Rounding, Callable[[float], float]] = {
    "down": np.floor,
    "half_even": np.rint,
    "half_away": lambda value: np.floor(value + 0.5),
}
_ARITHMETIC = {
    "divide": "torchvision",
    "multiply": "torchvision",
    "fused": "transformers",
    "fused_multiply": "dali",
}


@dataclass(frozen=True)
class Original:
    """One step as the original does it.

    Attributes:
        library: whose step it is; may not be usable here, and then ``run`` must not be called.
        run: the step itself.
        stands_for: the library that would have been compared with, were it here.
    """

    library: Library
    run: Callable[[Any], Array]
    stands_for: Library | None = None


class Originals:
    """The original of each op.

    Args:
        find: gives a library of ``libraries.TABLE``, usable or not.
    """

    def __init__(self, find: Callable[[str], Library] = find) -> None:
        self._find = find

    def decoder(self, op: ops.Decode) -> Original:
        """Encoded bytes to uint8 (height, width, channels), channels in the order of ``op.color``.

        Pillow; for JPEGs with the fast transform or the fast chroma TensorFlow, which offers both.
        """
        if op.idct == "accurate" and op.chroma == "fancy":
            return Original(self._find("pillow"), lambda encoded: _decode(encoded, op))
        return Original(self._find("tensorflow"), lambda encoded: _decode(encoded, op, _tensorflow_jpeg))

    @property
    def formula(self) -> Original:
        """Nothing at all, and what a definition says in NumPy."""
        return Original(self._find("numpy"), np.asarray)

    def resizer(self, op: Resizing | None) -> Original:
        """uint8 (height, width, channels) to uint8, or float32 of TensorFlow; of a letterbox before its margin."""
        if op is None:
            return self.formula
        if op.like == "pillow" and not op.antialias and op.filter != "nearest":
            return Original(self.formula.library, lambda pixels: _pillow_unwidened(pixels, op, size_of(op, pixels)))
        library = self._find("torchvision" if op.like == "torch" else op.like)
        if op.like == "dali" and isinstance(op, ops.Resize) and op.subpixel and op.rounding != "half_away":
            library = library.without(f'rounds no size like "{op.rounding}"')
        resize = {
            "pillow": _pillow,
            "torchvision": _torchvision,
            "torch": _torchvision,
            "opencv": _opencv,
            "tensorflow": _tensorflow,
            "dali": _dali,
        }[op.like]
        return Original(library, lambda pixels: resize(pixels, op, size_of(op, pixels)))

    def normalizer(self, op: ops.Normalize, *, is_real: bool) -> Original:
        """Levels (height, width, channels) to float64 (``float64``) or float32 (the others)."""
        formula = Original(self.formula.library, lambda values: _normalize(values, op))
        key = _ARITHMETIC.get(op.arithmetic)
        # The libraries' own functions are for levels, and torchvision's for 255 of them.
        if key is None or is_real or (key == "torchvision" and op.scale != 1 / 255):
            return formula
        library = self._find(key)
        if not library.is_usable:
            return Original(formula.library, formula.run, library)
        function = {"torchvision": _torchvision_normalize, "transformers": _fused, "dali": _fused_multiply}[key]
        return Original(
            library, lambda values: function(values, op) if values.dtype == np.uint8 else formula.run(values)
        )

    def complete(self, source: Source, size: Size) -> Original | None:
        """The whole transform of the library that a pipeline comes from: RGB levels to (*size, channels).

        None where a name alone does not say it.
        """
        make = {"timm": _timm, "torchvision": _weights, "keras": _application}.get(source.library)
        if make is None:
            return None
        library = self._find(source.library)
        if library.is_usable:
            try:
                return Original(library, make(source, size))
            except (ValueError, KeyError, AttributeError, RuntimeError) as error:
                library = library.without(f'has no transform of "{source.name}": {error}')
        return Original(library, np.asarray)


def geometry(chain: Sequence[ops.AnyOp], resize: Callable[[Array], Array], pixels: Array) -> Array:
    """Every op of a chain that moves pixels, one after the other."""
    for op in chain:
        match op:
            case ops.Resize():
                pixels = resize(pixels)
            case ops.Letterbox():
                pixels = _padded(resize(pixels), op)
            case ops.CenterCrop():
                pixels = _center_crop(pixels, op)
            case ops.Crop():
                pixels = pixels[op.top : op.top + op.height, op.left : op.left + op.width]
            case ops.Pad():
                pixels = _padded(pixels, op)
            case ops.Flip():
                pixels = pixels[:, ::-1] if op.axis == "horizontal" else pixels[::-1]
            case _:
                pass
    return pixels


def size_of(op: Resizing, pixels: Array) -> Size:
    """The (height, width) after the resize."""
    height, width = pixels.shape[:2]
    if isinstance(op, ops.Letterbox):
        scale = min(op.height / height, op.width / width)
        scale = scale if op.enlarge else min(scale, 1.0)
        return max(1, round(height * scale)), max(1, round(width * scale))
    rounding = op.rounding or "down"
    if op.size is not None:
        shorter, longer = sorted((height, width))
        base = shorter if op.side == "shorter" else longer
        return _side(op.size * height / base, rounding), _side(op.size * width / base, rounding)
    assert op.height is not None
    assert op.width is not None
    if op.mode == "stretch":
        return op.height, op.width
    ratios = (height / op.height, width / op.width)
    ratio = max(ratios) if op.mode == "fit" else min(ratios)
    return _side(height / ratio, rounding), _side(width / ratio, rounding)


def _side(value: float, rounding: Rounding) -> int:
    return max(1, int(_WHOLE[rounding](value)))


def _center_crop(pixels: Array, op: ops.CenterCrop) -> Array:
    """torchvision's: pad with zeros to the window, then round half of what is left over."""
    side = max(1, int((op.fraction or 1) * min(pixels.shape[:2])))
    height, width = op.height or side, op.width or side
    missing = [max(0, window - length) for window, length in zip((height, width), pixels.shape, strict=False)]
    pixels = np.pad(pixels, [*((d // 2, d - d // 2) for d in missing), (0, 0)])
    halves = ((pixels.shape[0] - height) / 2, (pixels.shape[1] - width) / 2)
    top, left = (int(_WHOLE[op.rounding](half)) for half in halves)
    return pixels[top : top + height, left : left + width]


def _padded(pixels: Array, op: ops.Pad | ops.Letterbox) -> Array:
    canvas = np.empty((op.height, op.width, pixels.shape[2]), pixels.dtype)
    canvas[...] = op.fill
    free = (op.height - pixels.shape[0], op.width - pixels.shape[1])
    top, left = (round(d / 2 - 0.1) if op.anchor == "center" else 0 for d in free)
    canvas[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return canvas


def _decode(encoded: bytes, op: ops.Decode, jpeg: Callable[[bytes, ops.Decode], Array] | None = None) -> Array:
    """By Pillow, but JPEGs by ``jpeg``."""
    image: Image.Image = Image.open(io.BytesIO(encoded))
    image_format, orientation = image.format, image.getexif().get(0x0112, 1)
    if op.color == "gray":
        image.draft("L", None)
    image.load()
    if image_format == "JPEG" and jpeg is not None:
        levels = jpeg(encoded, op)
        image = Image.fromarray(levels[:, :, 0] if levels.shape[2] == 1 else levels)
        image.getexif()[0x0112] = orientation
    if op.apply_exif_orientation:
        image = ImageOps.exif_transpose(image)
    if image.mode == "I;16":
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if op.alpha == "white" and (image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255)), image)
    if image.mode == "P":  # Pillow warns of a palette with alpha that becomes anything but RGBA
        image = image.convert("RGBA")
    levels = np.asarray(image.convert("L" if op.color == "gray" else "RGB"))
    levels = levels[:, :, None] if levels.ndim == 2 else levels
    return levels[:, :, ::-1] if op.color == "bgr" else levels


def _tensorflow_jpeg(encoded: bytes, op: ops.Decode) -> Array:
    tensorflow = import_module("tensorflow")
    pixels = tensorflow.io.decode_jpeg(
        encoded,
        channels=1 if op.color == "gray" else 3,
        fancy_upscaling=op.chroma == "fancy",
        dct_method="INTEGER_FAST" if op.idct == "fast" else "INTEGER_ACCURATE",
    )
    return np.asarray(pixels.numpy())


def _pillow(pixels: Array, op: Resizing, size: Size) -> Array:
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))
    return np.asarray(image.resize(size[::-1], PILLOW[op.filter])).reshape(*size, -1)


def _torchvision(pixels: Array, op: Resizing, size: Size) -> Array:
    """Of tensors: v2 has kernels for uint8, and v1 goes by way of float32."""
    torch = import_module("torch")
    functional = import_module(f"torchvision.transforms.{'v2.' if op.like == 'torchvision' else ''}functional")
    modes: Any = import_module("torchvision.transforms").InterpolationMode
    planes = torch.from_numpy(np.array(pixels.transpose(2, 0, 1)))
    # Its own rule for the other side, where that is the op's.
    has_rule = isinstance(op, ops.Resize) and op.side == "shorter" and op.rounding == "down"
    resized = functional.resize(
        planes,
        [min(size)] if has_rule else list(size),
        interpolation=modes[op.filter.upper()],
        antialias=op.antialias,
    )
    return np.asarray(resized.numpy().transpose(1, 2, 0))


def _opencv(pixels: Array, op: Resizing, size: Size) -> Array:
    cv2 = import_module("cv2")
    has_ipp = cv2.ipp.useIPP()
    if op.filter == "bicubic":  # Intel IPP, in the wheels for x86, has a bicubic of its own: 2 % of values off by one
        cv2.ipp.setUseIPP(False)
    try:
        resized = cv2.resize(np.ascontiguousarray(pixels), size[::-1], interpolation=getattr(cv2, OPENCV[op.filter]))
    finally:
        cv2.ipp.setUseIPP(has_ipp)
    return np.asarray(resized).reshape(*size, -1)


def _tensorflow(pixels: Array, op: Resizing, size: Size) -> Array:
    image = import_module("tensorflow").image
    resized = image.resize(np.ascontiguousarray(pixels), size, method=op.filter, antialias=bool(op.antialias)).numpy()
    # An image that keeps its size comes back as the levels it was.
    return np.asarray(resized, np.uint8 if op.filter == "nearest" else np.float32)


def _dali(pixels: Array, op: Resizing, size: Size) -> Array:
    fn, types = import_module("nvidia.dali.fn"), import_module("nvidia.dali.types")
    rule: dict[str, Any] = {"resize_y": size[0], "resize_x": size[1]}
    if isinstance(op, ops.Resize) and op.rounding == "half_away":  # as DALI itself computes the size
        if op.size is not None:
            rule = {f"resize_{op.side}": op.size}
        else:
            modes = {"stretch": "stretch", "fit": "not_larger", "cover": "not_smaller", None: "stretch"}
            rule = {"resize_y": op.height, "resize_x": op.width, "mode": modes[op.mode]}
        rule["subpixel_scale"] = bool(op.subpixel)
    return _run_dali(
        pixels,
        lambda levels: fn.resize(
            levels, interp_type=getattr(types, DALI[op.filter]), antialias=bool(op.antialias), **rule
        ),
    )


def _run_dali(pixels: Array, graph: Callable[[Any], Any]) -> Array:
    dali, fn = import_module("nvidia.dali"), import_module("nvidia.dali.fn")
    pipeline = dali.Pipeline(batch_size=1, num_threads=1, device_id=None)
    with pipeline:
        pipeline.set_outputs(graph(fn.external_source(source=lambda: [np.ascontiguousarray(pixels)], layout="HWC")))
    pipeline.build()
    return np.array(pipeline.run()[0].at(0))


_UNWIDENED: dict[str, tuple[float, Callable[[Array], Array]]] = {
    "box": (0.5, lambda x: ((x > -0.5) & (x <= 0.5)).astype(float)),
    "bilinear": (1.0, lambda x: np.maximum(1 - abs(x), 0)),
    "hamming": (1.0, lambda x: np.where(abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0)),
    "bicubic": (
        2.0,
        lambda x: np.select(
            [abs(x) < 1, abs(x) < 2],
            [(1.5 * abs(x) - 2.5) * x * x + 1, ((-0.5 * abs(x) + 2.5) * abs(x) - 4) * abs(x) + 2],
        ),
    ),
    "lanczos": (3.0, lambda x: np.where((x >= -3) & (x < 3), np.sinc(x) * np.sinc(x / 3), 0)),
}


def _pillow_unwidened(pixels: Array, op: Resizing, size: Size) -> Array:
    """Pillow's formula without the widening, for which Pillow has no function: dense matrices of 22-bit weights."""
    lost = [before - after for before, after in zip(pixels.shape, size, strict=False)]
    is_vertical_first = int(PIL.__version__.partition(".")[0]) >= 13 and lost[0] > 0 and lost[0] > 2 * lost[1]
    for axis in (0, 1) if is_vertical_first else (1, 0):
        length, out_length = pixels.shape[axis], size[axis]
        if length == out_length:
            continue
        support, function = _UNWIDENED[op.filter]
        centers = (np.arange(out_length)[:, None] + 0.5) * (length / out_length)
        positions = np.arange(length)
        is_inside = (positions >= np.trunc(centers - support + 0.5)) & (positions < np.trunc(centers + support + 0.5))
        weights = np.where(is_inside, function(positions - centers + 0.5), 0.0)
        weights /= weights.sum(axis=1, keepdims=True)
        whole = np.trunc(weights * (1 << 22) + np.where(weights < 0, -0.5, 0.5))
        # Sums of whole numbers below 2^53: float64 is exact.
        sums = np.tensordot(whole, pixels.astype(np.float64), (1, axis))
        levels = np.clip(np.floor((sums + (1 << 21)) / (1 << 22)), 0, 255).astype(np.uint8)
        pixels = np.moveaxis(levels, 0, axis)
    return pixels


def _normalize(values: Array, op: ops.Normalize) -> Array:
    """The definition, in float64, or step by step in float32 as the libraries do."""
    mean, std = np.array(ops.as_tuple(op.mean)), np.array(ops.as_tuple(op.std))
    if op.arithmetic == "float64":
        return np.asarray((values.astype(np.float64) * op.scale - mean) / std)
    real, scale, inverse = values.astype(np.float32), np.float32(op.scale), np.float32(1 / op.scale)
    if op.arithmetic == "fused_multiply":  # DALI is given both in levels
        mean, std = mean / op.scale, std / op.scale
    mean, std = mean.astype(np.float32), std.astype(np.float32)
    if op.arithmetic == "fused_multiply":
        return np.asarray((real - mean) * (1 / std))
    if op.arithmetic == "fused":
        return np.asarray((real - mean * inverse) / (std * inverse))
    return np.asarray(((real / inverse if op.arithmetic == "divide" else real * scale) - mean) / std)


def _per_channel(value: ops.Reals, values: Array) -> list[float]:
    numbers = ops.as_tuple(value)
    return list(numbers * (values.shape[2] if len(numbers) == 1 else 1))


def _torchvision_normalize(values: Array, op: ops.Normalize) -> Array:
    mean, std = _per_channel(op.mean, values), _per_channel(op.std, values)
    torch = import_module("torch")
    if op.arithmetic == "divide":
        functional = import_module("torchvision.transforms.functional")
        planes = functional.to_tensor(np.ascontiguousarray(values))
    else:
        functional = import_module("torchvision.transforms.v2.functional")
        planes = functional.to_dtype(torch.from_numpy(np.array(values.transpose(2, 0, 1))), torch.float32, scale=True)
    return np.asarray(functional.normalize(planes, mean, std).numpy().transpose(1, 2, 0))


def _fused(values: Array, op: ops.Normalize) -> Array:
    torch, transformers = import_module("torch"), import_module("transformers")
    processor = transformers.ViTImageProcessor(
        do_resize=False,
        rescale_factor=op.scale,
        image_mean=_per_channel(op.mean, values),
        image_std=_per_channel(op.std, values),
    )
    planes = torch.from_numpy(np.array(values.transpose(2, 0, 1)))
    tensor = processor(planes, return_tensors="pt", input_data_format="channels_first")["pixel_values"][0]
    return np.asarray(tensor.numpy().transpose(1, 2, 0))


def _fused_multiply(values: Array, op: ops.Normalize) -> Array:
    fn, types = import_module("nvidia.dali.fn"), import_module("nvidia.dali.types")
    return _run_dali(
        values,
        lambda levels: fn.crop_mirror_normalize(
            levels,
            dtype=types.FLOAT,
            output_layout="HWC",
            mean=[mean / op.scale for mean in _per_channel(op.mean, values)],
            std=[std / op.scale for std in _per_channel(op.std, values)],
        ),
    )


def _timm(source: Source, size: Size) -> Callable[[Array], Array]:
    """The evaluation transform of a model's pretrained configuration, on Pillow images."""
    del size
    models, data = import_module("timm.models"), import_module("timm.data")
    name, test_size, _ = source.name.partition(" (use_test_size)")
    found = models.get_pretrained_cfg(name, allow_unregistered=False)
    if found is None:
        raise ValueError("no such model")
    if found.tag and not name.endswith(f".{found.tag}"):
        raise ValueError("a name without a tag may mean another configuration")
    arguments = data.resolve_data_config(pretrained_cfg=found.to_dict(), use_test_size=bool(test_size))
    return _of_image(data.create_transform(**arguments, is_training=False), "pillow")


def _weights(source: Source, size: Size) -> Callable[[Array], Array]:
    """The transform of torchvision's weights, on what the profile says: Pillow images, or tensors."""
    del size
    weights = import_module("torchvision.models").get_weight(source.name)
    return _of_image(weights.transforms(), source.profile)


def _application(source: Source, size: Size) -> Callable[[Array], Array]:
    """``preprocess_input`` of a Keras application after ``load_img``, or after TensorFlow's resize."""
    keras = import_module("keras")
    functions = {name.lower(): x for name, x in vars(keras.applications).items() if callable(x)}
    model = functions[re.sub("[-_ ]", "", source.name).lower()]
    preprocess = import_module(model.__module__).preprocess_input

    def run(pixels: Array) -> Array:
        if source.profile == "pillow":
            values = keras.utils.img_to_array(keras.utils.load_img(io.BytesIO(png(pixels)), target_size=size))
        else:
            values = import_module("tensorflow").image.resize(np.ascontiguousarray(pixels), size).numpy()
        return np.asarray(preprocess(values))

    return run


def _of_image(transform: Any, profile: str) -> Callable[[Array], Array]:
    def run(pixels: Array) -> Array:
        if profile == "pillow":
            image: Any = Image.fromarray(np.ascontiguousarray(pixels))
        else:
            image = import_module("torch").from_numpy(np.array(pixels.transpose(2, 0, 1)))
        return np.asarray(transform(image).numpy().transpose(1, 2, 0))

    return run
