"""Converts DALI operators that change the values, the layout or the dtype of an image.

``IMAGES`` contains all operators on images. The defaults of arguments were measured with DALI 2.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from pixprep.errors import PipelineError
from pixprep.importers.dali.geometry import (
    CHANNEL_ORDER_HINT,
    GEOMETRY,
    Result,
    axes_of,
    colour,
    cropped,
    mirrors,
    pads,
    sliced,
    subscripted,
    warped,
)
from pixprep.importers.dali.numbers import expression, shape_of
from pixprep.importers.dali.sizes import lowered
from pixprep.importers.dali.values import COLOR_TYPES, TYPES, Image, Numbers, Value
from pixprep.importers.fields import Fields, finite, reals, shortest_decimal
from pixprep.pipeline.ops import ColorMatrix, Erase, GaussianBlur, Levels, Normalize, Op, Pixels, as_tuple, changed
from pixprep.pipeline.ops.limits import MAX_ONES
from pixprep.plan.lowered import Lowered
from pixprep.spec import ImageSpec, Layout, TensorSpec

_UINT8, _FLOAT = 0, 9
_LAYOUTS: dict[str, Layout] = {"CHW": "chw", "HWC": "hwc"}
_CLIP_LAYOUTS: dict[str, Layout] = {"FCHW": "tchw", "FHWC": "thwc", "CFHW": "cthw"}
# In color_twist.h of DALI, hue rotates the I and Q components of YIQ, and saturation scales them.
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]], np.float32)
_FROM_YIQ = np.linalg.inv(_TO_YIQ.astype(np.float64)).astype(np.float32)
_WHITE, _GRAY = np.float32(255), 128.0


def _layouts(image: Image) -> dict[str, Layout]:
    """Return the supported layouts of a tensor by DALI's names. Images and clips support different layouts."""
    return _LAYOUTS if len(image.layout) == 3 else _CLIP_LAYOUTS


def _crop_mirror_normalize(image: Image, fields: Fields) -> Image:
    """Convert ``crop_mirror_normalize``.

    The operator crops and flips the image, computes ``scale * (value - mean) / std + shift``, casts the values, and
    transposes the axes.
    """
    is_padded = fields.flag("pad_output") and image.channels == 3
    shift = fields.number("shift", 0.0)
    step = _add_normalize(replace(image, canvas=None), fields, "std", shift).chain[len(image.chain) :]
    fill_values, fourth = (finite(fields.take("fill_values", 0.0)), 0.0) if pads(fields) else (None, 0.0)
    dtype = "output_dtype" if fields.has("output_dtype") else "dtype"  # output_dtype is the name up to DALI 1.0
    if fill_values is not None:
        _check_fill_values(fill_values, step, fields, is_padded=is_padded, is_levels=fields.take(dtype) == _UINT8)
    if fill_values is not None and is_padded and len(fill_values) in (1, 4):
        fill_values, fourth = fill_values[:3], fill_values[-1]
    fill = None if fill_values is None else _pixel_value(fill_values, step)
    padded_size = None
    if fill_values is None or fill is not None or image.canvas is not None:
        image = cropped(image, fields, fill)
    else:
        padded_size = _padded_at_corner(fields)
    image = image.then(*mirrors(fields, "mirror", "horizontal", 0), *step)
    if fill_values is not None and padded_size is not None:
        image = image.padded(*padded_size, fill_values[0])
    image = image.cast(fields, dtype, _FLOAT)
    layout = fields.choice("output_layout", _layouts(image), "CHW")
    return replace(image, layout=layout, fourth=fourth if is_padded else image.fourth)


def _check_fill_values(
    values: Sequence[float], steps: Sequence[Op], fields: Fields, *, is_padded: bool, is_levels: bool
) -> None:
    """Raise PipelineError for ``fill_values`` for which DALI fails or returns a meaningless result."""
    is_single = {len(finite(fields.take(name, 1.0))) for name in ("mean", "std")} == {1}
    if is_padded and len(values) not in (1, 4) and (is_single or not steps):
        fields.refuse("fill_values", "must be one number or four numbers with pad_output, as DALI requires")
    if steps and is_single and len(values) > 1:
        fields.refuse(
            "fill_values",
            "requires a mean for each channel: with a single mean, DALI sets all channels except the first to 0",
        )
    if is_levels and not all(value.is_integer() and 0 <= value <= 255 for value in values):
        fields.refuse(
            "fill_values",
            "must be integers from 0 to 255 in a uint8 tensor, because DALI keeps only the low 8 bits of a value",
        )


def _pixel_value(values: Sequence[float], steps: Sequence[Op]) -> Levels | None:
    """Return the pixel value that is normalized to ``fill_values``. If such a value does not exist, return None.

    Args:
        values: Argument ``fill_values``, which contains one number, or one number per channel.
        steps: Ops ``normalize`` that are applied to the pixel values.
    """
    if len(values) not in (1, 3):
        raise PipelineError('"fill_values" must be one number, or one for each of 3 channels')
    spec = ImageSpec()
    plan = Lowered(spec.color)
    for op in steps:
        assert isinstance(op, Normalize)
        plan = op.lower(plan, spec, "")
    table = plan.tensor(TensorSpec(shape=(3, 1, 1), layout="chw", dtype="float32", low=0, high=0)).table
    found = []
    for channel, value in enumerate([*values] * (3 if len(values) == 1 else 1)):
        level = int(np.argmin(np.abs(table[channel] - value)))
        if abs(float(table[channel, level]) - value) > 1e-6 * max(1.0, abs(value)):
            return None
        found.append(level)
    return found[0] if len({*found}) == 1 else tuple(found)


def _padded_at_corner(fields: Fields) -> tuple[int, int]:
    """Return the size of a tensor that is padded at the bottom and the right after the normalization.

    Such padding is needed if no pixel value is normalized to ``fill_values``.
    """
    height, width = fields.pair("crop") if fields.has("crop") else (fields.side("crop_h"), fields.side("crop_w"))
    position = (fields.take("crop_pos_y", 0.5), fields.take("crop_pos_x", 0.5))
    values = {*finite(fields.take("fill_values", 0.0))}
    if position != (0.0, 0.0) or len(values) > 1 or mirrors(fields, "mirror", "horizontal", 0):
        raise PipelineError(
            "pads with values that are not equal to a normalized pixel value, which is not supported: pad with Crop "
            "before the normalization"
        )
    fields.ignore("rounding")
    return height, width


def _normalize(image: Image, fields: Fields) -> Image:
    """Convert ``normalize`` with a constant mean and standard deviation.

    Raises:
        PipelineError: DALI would compute the mean or the standard deviation from each image.
    """
    for name in ("mean", "stddev"):
        if not fields.has(name):
            raise PipelineError(
                f'without "{name}", DALI computes it from each image, which is not supported: pass the value for the '
                "data set, or write a custom operator"
            )
    fields.expect_false("batch")
    fields.expect("epsilon", 0.0, why="must be 0: set stddev to sqrt(stddev**2 + epsilon) instead")
    fields.ignore("ddof", "axis_names")
    axes = [image.layout[axis] for axis in range(3) if axis in finite(fields.take("axes", []))]
    if axes and "c" in axes and any(len(finite(fields.take(name))) > 1 for name in ("mean", "stddev")):
        fields.refuse("axes", "must not contain the channel axis if mean or stddev has one number per channel")
    shift = fields.number("shift", 0.0)
    image = _add_normalize(image, fields, "stddev", 0.0)
    add_shift = [Normalize(mean=-shift, scale=1.0, arithmetic="divide")] * bool(shift)
    return image.then(*add_shift).cast(fields, "dtype", _FLOAT)


def _add_normalize(image: Image, fields: Fields, std_name: str, shift: float) -> Image:
    """Append DALI's float32 arithmetic to an image: ``(value - (mean - shift * std / scale)) * (scale / std)``."""
    means = as_tuple(fields.numbers("mean", 0.0))
    stds = as_tuple(fields.numbers(std_name, 1.0, positive=True))
    scale = fields.number("scale", 1.0)
    if {*means} == {0.0} and {*stds} == {1.0} and (scale, shift) == (1.0, 0.0):
        return image
    if len(means) * len(stds) > 1 == image.channels:
        raise PipelineError("has a mean or a standard deviation for 3 channels, but the image has one channel")
    image.check_unrounded()
    if scale == 0:
        fields.refuse("scale", "must not be 0")
    if shift:
        count = max(len(means), len(stds))
        means, stds = (values * (count // len(values)) for values in (means, stds))
        means = tuple(mean - shift * std / scale for mean, std in zip(means, stds, strict=True))
    return image.then(
        Normalize(
            mean=tuple(shortest_decimal(mean) * scale for mean in means),
            std=tuple(shortest_decimal(std, scale) for std in stds),
            scale=scale,
            arithmetic="fused_multiply",
        )
    )


def _arithmetic(inputs: Sequence[Value], fields: Fields) -> Image:
    """Convert an expression that combines an image with a constant or with one constant per channel.

    An example is ``images / 255.``.
    """
    name, operands = expression(inputs, fields)
    image = next(operand for operand in operands if isinstance(operand, Image))
    if len(operands) != 2 or name not in ("fdiv", "mul", "add", "sub") or sum(x is image for x in operands) > 1:
        fields.refuse(
            "expression_desc", "is not supported: only +, -, * and / of an image and constant numbers can be imported"
        )
    is_first = operands[0] is image
    other = operands[is_first]
    if not isinstance(other, Numbers) or isinstance(other.plain, Numbers):
        fields.refuse("expression_desc", "is supported only with constant numbers")
    constants = _per_channel(other, image)
    is_integer = image.dtype == "uint8" and name != "fdiv"
    if other.values.dtype.kind != "f" and (is_integer or image.dtype == "float16"):
        result = "integers" if is_integer else "float16"
        fields.refuse(
            "expression_desc",
            f"computes in {result}, which is not supported: write the constant as a float, such as 127.0",
        )
    image.check_unrounded()
    if other.values.dtype.kind == "f":
        constants = tuple(map(shortest_decimal, constants))
    if name in ("fdiv", "mul") and 0 in constants:
        raise PipelineError("multiplies by 0 or divides by 0, which loses the pixel values")
    return replace(image.then(_as_normalize(name, constants, is_first, fields)), dtype="float32")


def _per_channel(numbers: Numbers, image: Image) -> tuple[float, ...]:
    """Return constants that can be broadcast to an image as a tuple: one number, or one per channel."""
    layout, shape = image.layout, numbers.values.shape[1:]
    full_shape = (1,) * (len(layout) - len(shape)) + shape
    lengths = zip(full_shape, layout, strict=True)
    if len(shape) > len(layout) or any(length > (image.channels if axis == "c" else 1) for length, axis in lengths):
        raise PipelineError(
            f"its array of shape {list(shape)} does not have one number per channel of an image in {layout.upper()}"
        )
    return tuple(float(value) for value in numbers.values.ravel())


def _as_normalize(name: str, constants: tuple[float, ...], is_first: bool, fields: Fields) -> Normalize:
    """Return the ``normalize`` op for an addition, subtraction, multiplication or division of pixel values.

    Args:
        name: DALI's name of the function.
        constants: Other operand, which consists of one number, or one number per channel.
        is_first: Whether the image is the first operand.
        fields: Arguments of the operator.
    """
    number, negative = reals(constants), reals([-constant for constant in constants])
    if name in ("add", "sub"):
        if is_first or name == "add":
            return Normalize(mean=number if name == "sub" else negative, scale=1.0, arithmetic="divide")
        return Normalize(mean=negative, scale=-1.0, arithmetic="multiply")
    if name == "fdiv" and not is_first:
        fields.refuse("expression_desc", "divides a number by an image, which is not supported")
    if len(constants) == 1:
        is_product = name == "mul"
        scale = constants[0] if is_product else 1 / constants[0]
        return Normalize(scale=scale, arithmetic="multiply" if is_product else "divide")
    if min(constants) < 0:
        fields.refuse("expression_desc", "is not supported with a negative number per channel")
    if name == "fdiv":
        return Normalize(std=number, scale=1.0, arithmetic="divide")
    return Normalize(std=reals([1 / constant for constant in constants]), scale=1.0, arithmetic="fused_multiply")


def _color_matrix(image: Image, fields: Fields) -> Image:
    """Convert an operator such as ``hsv`` or ``brightness_contrast`` to a ``color_matrix``.

    The operators share one conversion. Arguments that an operator does not have are set to their defaults.
    """
    image.check_levels(fields)
    hue, saturation, value, brightness, contrast = (
        np.float32(fields.number(name, default))
        for name, default in (("hue", 0.0), ("saturation", 1.0), ("value", 1.0), ("brightness", 1.0), ("contrast", 1.0))
    )
    center, shift = (
        np.float32(fields.number(*pair)) for pair in (("contrast_center", _GRAY), ("brightness_shift", 0.0))
    )
    factors = np.eye(3, dtype=np.float32)
    if hue != 0 or saturation != 1:
        if image.channels == 1:
            raise PipelineError("is supported only for three channels")
        angle = np.deg2rad(hue)
        sine, cosine = np.sin(angle), np.cos(angle)
        rotation = np.array([[1, 0, 0], [0, cosine, sine], [0, -sine, cosine]], np.float32)
        factors = _FROM_YIQ @ rotation @ np.diag(np.array([1, saturation, saturation], np.float32)) @ _TO_YIQ
    factors = factors * value * brightness * contrast
    offset = _WHITE * shift + brightness * (center - contrast * center)
    if getattr(image.chain[0], "color", "rgb") == "bgr":  # DALI treats the first channel as red
        factors = factors[::-1, ::-1]
    rows = [(*row, float(offset)) for row in factors.tolist()]
    return image.then(ColorMatrix(matrix=tuple(rows)))


def _gaussian_blur(image: Image, fields: Fields) -> Image:
    """Convert ``gaussian_blur`` with the same window size and sigma for both axes.

    As in DALI, if only the window size or only sigma is specified, it determines the other number.
    """
    image.check_levels(fields)
    size, sigma = (finite(fields.take(name, [0.0])) for name in ("window_size", "sigma"))
    if len({*size}) != 1 or len({*sigma}) != 1:
        raise PipelineError('requires a "window_size" and a "sigma" that are equal for both axes')
    kernel_size, deviation = int(size[0]), sigma[0]
    if not kernel_size and not deviation:
        raise PipelineError('requires "window_size" or "sigma"')
    kernel_size = kernel_size or 2 * ceil(deviation * 3) + 1
    deviation = deviation or ((kernel_size - 1) / 2 - 1) * 0.3 + 0.8
    return image.then(GaussianBlur(kernel_size=kernel_size, sigma=deviation))


def _erase(image: Image, fields: Fields) -> Image:
    """Convert ``erase``, which fills rectangles. Their positions and sizes are computed in float32, as in DALI."""
    image.check_levels(fields)
    axes = axes_of(image, fields, [0, 1])
    spec, fill = lowered(image.chain)[1], colour(fields, "fill_value")
    sides = [spec.height, spec.width]
    shapes = np.array(finite(fields.take("shape")) or fields.refuse("shape", "must be numbers"), np.float32)
    corners = np.array(finite(fields.take("anchor", [0.0] * len(shapes))), np.float32)
    if len(corners) != len(shapes) or len(corners) % len(axes):
        fields.refuse("shape", "must have as many numbers as anchor, with one for each axis of each rectangle")
    is_relative = {
        name: fields.flag(f"normalized_{name}", default=fields.flag("normalized")) for name in ("anchor", "shape")
    }
    is_centered = fields.flag("centered_anchor")
    if (any(is_relative.values()) or len(axes) == 1) and None in sides:
        raise PipelineError("is supported only for an image of fixed size: resize to a height and a width first")
    for begin in range(0, len(corners), len(axes)):
        window: dict[str, Any] = {"top": 0, "left": 0, "height": spec.height, "width": spec.width}
        for index, axis in enumerate(axes):
            at, length = corners[begin + index], shapes[begin + index]
            at *= np.float32(sides[axis] if is_relative["anchor"] else 1)
            length *= np.float32(sides[axis] if is_relative["shape"] else 1)
            at -= length / np.float32(2) if is_centered else np.float32(0)
            first, last = max(0, int(at)), int(at + length)
            window[("top", "left")[axis]], window[("height", "width")[axis]] = first, last - first
        if min(window["height"], window["width"]) > 0:
            image = image.then(Erase(fill=fill, **window))
    return image


def _transpose(image: Image, fields: Fields) -> Image:
    perm, axes = fields.take("perm", [2, 1, 0]), dict(enumerate(image.layout.upper().replace("T", "F")))
    numbers = perm if isinstance(perm, list) else [perm]
    transposed = "".join(axes.get(index, "?") if isinstance(index, int) else "?" for index in numbers)
    if transposed not in (layouts := _layouts(image)):
        names = " or ".join(sorted(layouts, reverse=True))
        fields.refuse("perm", f"must convert an image in {image.layout.upper()} to {names}")
    if not fields.flag("transpose_layout", default=True) and not fields.has("output_layout"):
        fields.refuse("transpose_layout")
    fields.expect("output_layout", transposed)
    return replace(image, layout=layouts[transposed])


def _reshape(image: Image, fields: Fields) -> Image:
    """Accept ``reshape`` and ``reinterpret`` if they do not change the shape, the layout and the dtype of the image."""
    layout = image.layout.upper()
    fields.expect(
        "layout", layout, "", why=f"must be {layout}, the layout of the image: use transpose to change the layout"
    )
    fields.expect("src_dims", [0, 1, 2])
    if {*finite(fields.take("rel_shape", [1.0]))} != {1.0}:
        fields.refuse("rel_shape", "must be 1 for each axis")
    spec = lowered(image.chain)[1]
    own = {"h": spec.height, "w": spec.width, "c": image.channels}
    shape = finite(fields.take("shape", []))
    is_same = len(shape) == 3 and all(side in (-1, own[axis]) for side, axis in zip(shape, image.layout, strict=False))
    if shape and not is_same:
        fields.refuse("shape", "must be the shape of the image")
    if fields.has("dtype") and fields.choice("dtype", TYPES) != image.dtype:
        fields.refuse("dtype", f"must be the type of the image, {image.dtype}")
    return image


def _expand_dims(image: Image, fields: Fields) -> Image:
    """Convert ``expand_dims``. Its ``axes`` are the indices of the inserted dimensions in the result."""
    fields.ignore("new_axis_names")
    axes = [*image.layout]
    for at in sorted(finite(fields.take("axes", []))):
        if at not in range(len(axes) + 1) or axes.count("1") == MAX_ONES:
            fields.refuse("axes", f"must contain at most {MAX_ONES} indices, each from 0 to the number of dimensions")
        axes.insert(int(at), "1")
    return replace(image, layout="".join(axes), is_expanded=True)


def _squeeze(image: Image, fields: Fields) -> Image:
    """Convert ``squeeze``, which is supported only for dimensions that ``expand_dims`` inserted."""
    axes = finite(fields.take("axes", []))
    if not axes or not {*axes} <= {at for at, axis in enumerate(image.layout) if axis == "1"}:
        fields.refuse(
            "axes",
            "must be dimensions that expand_dims inserted, because a tensor has height, width and channels: for other "
            "shapes, use reshape in the model's config.pbtxt",
        )
    return replace(image, layout="".join(axis for at, axis in enumerate(image.layout) if at not in axes))


def _color_space_conversion(image: Image, fields: Fields) -> Image:
    """Convert ``color_space_conversion``.

    A conversion between RGB and BGR changes the channel order of the decoder. A conversion to gray results in an image
    with three equal channels.
    """
    decode = image.chain[0]
    if 3 in (fields.take("image_type"), fields.take("output_type")):
        fields.refuse("output_type", "converts to or from YCbCr, which is not supported: try the op color_matrix")
    before, after = fields.choice("image_type", COLOR_TYPES), fields.choice("output_type", COLOR_TYPES)
    if before == after:
        return image
    own = getattr(decode, "color", None)
    if "gray" in (before, after) and image.is_gray == (before == "gray") and own != "gray":
        luma = (0.299, 0.587, 0.114)[:: 1 if own == before else -1]
        mixed = [ColorMatrix(matrix=((*luma, 0.0),) * 3)] * (after == "gray")
        return replace(image.then(*mixed), is_gray=after == "gray")
    if "gray" in (before, after) or own != before or image.layout != "hwc":
        how = "change the model to accept one channel" if own == "gray" else CHANNEL_ORDER_HINT
        how = "send frames with the channels of the model" if isinstance(decode, Pixels) else how
        fields.refuse("output_type", f"is not supported for an image in {own}: {how}")
    if any(isinstance(getattr(op, name, 0), tuple) for op in image.chain for name in ("fill", "mean", "std")):
        fields.refuse(
            "output_type",
            "is not supported after an operator with one number per channel: move it before that operator",
        )
    given = {"given": decode.given or before} if isinstance(decode, Pixels) else {}
    return replace(image, chain=(changed(decode, color=after, **given), *image.chain[1:]))


def _of_one_image(apply: Callable[[Image, Fields], Result]) -> Callable[[Sequence[Value], Fields], Result]:
    """Wrap a function of one image as a function of the operator's inputs."""

    def wrapper(inputs: Sequence[Value], fields: Fields) -> Result:
        image, *others = inputs
        if others or not isinstance(image, Image):
            raise PipelineError(f"requires one image as its input, but has {len(inputs)} inputs")
        return apply(image, fields)

    return wrapper


IMAGES: dict[str, Callable[[Sequence[Value], Fields], Result]] = {
    name: _of_one_image(apply)
    for name, apply in {
        **GEOMETRY,
        **dict.fromkeys(
            ("Brightness", "Contrast", "BrightnessContrast", "Hue", "Saturation", "Hsv", "ColorTwist"), _color_matrix
        ),
        "GaussianBlur": _gaussian_blur,
        "Erase": _erase,
        "CropMirrorNormalize": _crop_mirror_normalize,
        "Normalize": _normalize,
        "Transpose": _transpose,
        "Cast": lambda image, fields: image.cast(fields, "dtype"),
        "Copy": lambda image, _: image,
        "Shapes": shape_of,
        "Shape": shape_of,
        "Reshape": _reshape,
        "Reinterpret": _reshape,
        "ColorSpaceConversion": _color_space_conversion,
        "ExpandDims": _expand_dims,
        "Squeeze": _squeeze,
    }.items()
} | {
    "ArithmeticGenericOp": _arithmetic,
    "Slice": sliced,
    "TensorSubscript": subscripted,
    "WarpAffine": warped,
}
"""Functions that convert operators with an image as one of their inputs, by the name of the operator."""
AFTER_EXPANDED = ("ExpandDims", "Squeeze", "Cast", "Copy", "ArithmeticGenericOp")
"""Operators that are supported after ``expand_dims``."""
