"""Imports torchvision's transforms: ``weights.transforms()``, or a ``Compose`` of v1 or v2 transforms.

The random parameters of training transforms have the same distributions as in torchvision, but the random numbers
differ.

The result of a transform depends on the type of its input. Therefore, ``Walk.data`` tracks this type. It is a PIL
image, which Pillow resizes; a uint8 tensor, which PyTorch resizes; or float32 values, which pixprep cannot resize.
Classes are compared by name, so that this module does not import torchvision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from math import exp, log
from pathlib import Path
from runpy import run_path
from typing import Any, Literal, get_args

import numpy as np

from pixprep.errors import PipelineError, SetupError
from pixprep.importers.assembly import assembled, library_module, resize
from pixprep.importers.fields import PILLOW_FILTERS, Fields, error_prefix, finite, reading, reals
from pixprep.importers.walk import Walk as _Walk
from pixprep.pipeline import ops
from pixprep.pipeline.ops import Anchor, Arithmetic, Levels, Op, Reals, as_tuple
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.draws.policies import TorchvisionPolicy
from pixprep.spec import BoxFormat, ColorLike, Filter, PaddingMode, Side

_PRESETS = tuple(
    f"{task}Preset{mode}" for task in ("Classification", "Detection", "Segmentation") for mode in ("Train", "Eval")
)
"""Classes in torchvision's ``references`` scripts that only apply their attribute ``transforms``."""
_CHOICES = ("RandomChoice", "RandomApply", "RandomOrder")
Input = Literal["pil", "tensor"]

DATA_OF: dict[Input, Data] = {"pil": "a PIL image", "tensor": "a uint8 tensor"}


def from_torchvision(
    transforms: Any = None,
    *,
    training: Any = None,
    input: Input = "pil",  # noqa: A002
    name: str | None = None,
) -> Pipeline:
    """Convert torchvision's transforms into a pipeline whose tensors are bit-identical to torchvision's.

    Args:
        transforms: Transforms for serving: ``weights.transforms()``, a ``Compose``, a ``torch.nn.Sequential``, a single
            transform, a preset from torchvision's ``references`` scripts such as ``ClassificationPresetEval``, the name
            of weights such as ``ResNet50_Weights.IMAGENET1K_V2``, or ``FILE.py:NAME`` for an object that a Python file
            defines. If ``transforms`` is None and ``training`` is given, the pipeline is only for training.
        training: Transforms for training, which can be random. Default: the transforms for serving.
        input: Type of the images that the transforms receive in the training code. ``pil``: images from
            ``PIL.Image.open(…).convert("RGB")``. ``tensor``: uint8 tensors from ``torchvision.io.decode_image``. Both
            functions ignore the EXIF orientation.
        name: Name of the model to record in the pipeline. Default: the name of the weights, or the class name of
            ``transforms``.

    Raises:
        PipelineError: A transform or one of its arguments is not supported, or a transform is at an invalid position;
            the weights do not exist; or the transforms for training and for serving cannot be combined in one pipeline.
        SetupError: torchvision, which is required to look up the name of weights, is not installed, or the Python file
            cannot be executed.
    """
    with reading({"input": input}, "options") as options:
        data = options.choice("input", DATA_OF)
    served = trained = None
    if transforms is not None or training is None:
        served = _ops(_made(transforms), "transforms", data, "serving")
    if training is not None:
        trained = _ops(_made(training), "training", data, "training")
    first = training if transforms is None else transforms
    name = name or (first if isinstance(first, str) else type(first).__name__)
    return assembled(
        served,
        training=trained,
        library="torchvision",
        name=name,
        where="transforms",
        like="pillow" if data == "a PIL image" else "torchvision",
    )


def _ops(transforms: Any, where: str, data: Data, side: Side) -> list[Op]:
    walk = Walk(data, side)
    _add_transform(walk, transforms, where)
    return _finished(walk, where)


def _made(transforms: Any) -> Any:
    """Return the transforms that a string names. All other objects are returned unchanged."""
    if not isinstance(transforms, str):
        return transforms
    path, colon, name = transforms.rpartition(":")
    return _in_file(Path(path), name) if colon and path.endswith(".py") else _weights(transforms).transforms()


def _in_file(path: Path, name: str) -> Any:
    """Execute a Python file, and return the object that it defines by the given name.

    Raises:
        PipelineError: The file does not define the name.
        SetupError: The file does not exist, or raises an exception.
    """
    try:
        found = run_path(str(path)).get(name)
    except Exception as error:
        raise SetupError(f"{path} cannot be executed ({type(error).__name__}: {error})") from error
    if found is None:
        raise PipelineError(f"{path} does not define {name}")
    return found


def _weights(name: str) -> Any:
    try:
        return library_module("torchvision.models", f'"{name}" is the name of weights').get_weight(name)
    except (ValueError, KeyError, AttributeError):
        raise PipelineError(
            f'torchvision has no weights "{name}": use a name such as "ResNet50_Weights.IMAGENET1K_V2"'
        ) from None


def _add_transform(walk: Walk, transform: Any, where: str) -> None:
    """Convert a transform, including the transforms that it contains, and add its ops to the walk."""
    cls = type(transform)
    package, name = cls.__module__, cls.__name__
    outer, where = where, f"{where} {name}"
    is_own = package.startswith("torchvision.transforms.")
    if name == "Sequential" or (name == "Compose" and is_own):
        for index, part in enumerate(transform if name == "Sequential" else transform.transforms):
            _add_transform(walk, part, f"{where if '[' in outer else outer}[{index}]")
        return
    if name in _PRESETS and not is_own and hasattr(transform, "transforms"):
        _add_transform(walk, transform.transforms, f"{where}.transforms")
        return
    if name in _CHOICES and is_own and walk.side == "training":
        _add_choice(walk, transform, where)
        return
    if name == "Identity" and package.split(".")[0] in ("torch", "torchvision"):
        return
    if not (is_own or name in REFERENCE_TRANSFORMS):
        hint = ": if it only applies its .transforms, pass them instead" if hasattr(transform, "transforms") else ""
        hint = ": create the preset with use_v2=True" if any(preset in outer for preset in _PRESETS) else hint
        raise PipelineError(f"{where}: this class is defined in {package}, not in torchvision{hint}")
    is_random, known = name in {*RANDOM, *_CHOICES}, TRANSFORMS if is_own else REFERENCE_TRANSFORMS
    if name not in known and not is_random:
        raise PipelineError(f"{where}: this {'random ' * name.startswith('Random')}transform is not supported")
    if is_random and walk.side == "serving":
        raise PipelineError(f"{where}: {NOT_FOR_SERVING}")
    walk.is_v2 = package.startswith("torchvision.transforms.v2.")
    values = {k: v.value if isinstance(v, Enum) else v for k, v in vars(transform).items() if k[0] != "_"}
    if isinstance(values.get("fill"), Mapping):
        values["fill"] = for_images(values["fill"], walk.data)
    with reading(values, where) as fields:
        fields.ignore("training")
        (known | RANDOM)[name](walk, fields)


def _add_choice(walk: Walk, transform: Any, where: str) -> None:
    """Add the ops of ``RandomChoice``, ``RandomApply`` or ``RandomOrder``, which contain other transforms.

    Each alternative starts in the current state of the data.
    """
    name, numbered = type(transform).__name__, enumerate(transform.transforms)
    branches = []
    for group in [list(numbered)] if name == "RandomApply" else [[each] for each in numbered]:
        branches.append(walk.branch())
        for index, part in group:
            _add_transform(branches[-1], part, f"{where}[{index}]")
    with error_prefix(where):
        if name == "RandomApply":
            walk.apply_randomly(branches[0], transform.p)
        elif name == "RandomOrder":
            walk.join(*branches)
            walk.ops.append(ops.RandomOrder(tuple(tuple(each.ops) for each in branches)))
        else:
            walk.choose(branches, [*map(float, getattr(transform, "probabilities", None) or transform.p or ())])


def _finished(walk: Walk, where: str) -> list[Op]:
    """Return all ops of the pipeline, from ``decode`` to ``tensor``."""
    if walk.data == "a PIL image":
        raise PipelineError(f"{where}: the last transform returns a PIL image, not a tensor: append ToTensor")
    walk.normalize(0.0, 1.0)
    dtype: Literal["uint8", "float32"] = "uint8" if walk.data == "a uint8 tensor" else "float32"
    for at, op in enumerate(walk.ops):
        if isinstance(op, ops.Boxes):
            if not all(isinstance(other, ops.Boxes | ops.Normalize | ops.RandomErasing) for other in walk.ops[at:]):
                raise PipelineError(
                    f"{where}: SanitizeBoundingBoxes must come after all transforms that move, crop or resize images"
                )
            walk.ops[at] = ops.changed(op, format=walk.boxes)
    return [ops.Decode(apply_exif_orientation=False), *walk.ops, ops.Tensor(dtype=dtype, channels=walk.channels)]


NOT_FOR_SERVING = "is random, which is not supported for serving: pass these transforms as training"
Data = Literal["a PIL image", "a uint8 tensor", "float32 values"]

FILTERS: dict[Any, Filter] = {
    **{name: name for name in PILLOW_FILTERS.values()},
    "nearest-exact": "nearest_exact",
    **PILLOW_FILTERS,
}
"""Filters by the values of ``InterpolationMode``, and by the Pillow constants that torchvision accepts instead."""
WARP_FILTERS = {name: filter_ for name, filter_ in FILTERS.items() if filter_ in ("nearest", "bilinear", "bicubic")}
"""Filters that rotations, affine transforms and other warps support."""
_CHANNELS: dict[int, Literal[1] | None] = {1: 1, 3: None}


class Walk(_Walk):
    """Ops of the transforms that were visited so far, and the state of the data after them.

    Attributes:
        data: Type of the data: a PIL image, a uint8 tensor or float32 values.
        scaling: Scale and arithmetic of a conversion to float32 that is not yet part of the ops. The next ``normalize``
            op applies the scale to the pixel values.
        size: (height, width) of the image in pixels. None if the size differs between images.
        boxes: Format of the bounding boxes.
        channels: 1 if the image is grayscale with one channel. None if it has three channels.
        is_v2: Whether the current transform belongs to ``torchvision.transforms.v2``.
    """

    STATE = ("data", "scaling", "boxes", "channels")

    def __init__(self, data: Data, side: Side) -> None:
        super().__init__(side)
        self.data = data
        self.scaling: tuple[float, Arithmetic] | None = None
        self.size: tuple[int, int] | None = None
        self.boxes: BoxFormat = "xyxy"
        self.channels: Literal[1] | None = None
        self.is_v2 = False

    def join(self, *branches: _Walk) -> None:
        """Continue after several branches. If a branch changes the size, the size becomes unknown."""
        super().join(*branches)
        self.size = self.size if all(getattr(each, "size", None) == self.size for each in branches) else None

    def add(self, op: Op) -> None:
        """Append an op that does not change the size of the image."""
        self.ops.append(op)

    def add_resizing(self, op: Op) -> None:
        """Add an op whose output size differs between images."""
        self.ops.append(op)
        self.size = None

    def add_on_pixels(self, op: Op) -> None:
        """Add an op on uint8 pixel values whose result is the same in Pillow and torchvision."""
        self.rounding_library()
        self.ops.append(op)

    def gray(self, op: Op) -> None:
        """Add a conversion to grayscale, unless the image already has one channel."""
        if self.channels is None:
            self.ops.append(op)

    def resize(self, fields: Fields, sides: tuple[int, ...], **how: Any) -> None:
        """Add a resize op. ``sides`` contains either the length of the shorter side, or the height and the width."""
        self.ops.append(resize(sides, **self.resize_fields(fields), **how))
        self.size = (sides[0], sides[1]) if len(sides) > 1 else None

    def resize_fields(self, fields: Fields) -> dict[str, Any]:
        """Return the fields ``filter``, ``like`` and, if required, ``antialias`` of an op that resizes the image."""
        if self.data == "float32 values":
            raise PipelineError("is not supported for float32 values: move it before ToTensor or ToDtype")
        filter_, antialias = fields.choice("interpolation", FILTERS), fields.flag("antialias")
        how: dict[str, Any] = {"like": "torchvision"}
        if self.data == "a PIL image":
            how = {"like": "pillow"}
            filter_ = "nearest" if filter_ == "nearest_exact" else filter_
        elif not filter_.startswith("nearest"):
            how = {"like": "torchvision", "antialias": antialias} if self.is_v2 else {"like": "torch"}
            if not (self.is_v2 or antialias):
                fields.refuse(
                    "antialias",
                    "is not supported for a uint8 tensor in v1: use antialias=True, or torchvision.transforms.v2",
                )
        return {"filter": filter_, **how}

    def rounding_library(self) -> ColorLike:
        """Return the library whose rounding is used: Pillow for PIL images, and torchvision for uint8 tensors."""
        if self.data == "float32 values":
            raise PipelineError("is not supported for float32 values: move it before ToTensor or ToDtype")
        if self.data == "a uint8 tensor" and not self.is_v2:
            raise PipelineError("is not supported for a uint8 tensor in v1: use torchvision.transforms.v2")
        return "pillow" if self.data == "a PIL image" else "torchvision"

    def colour(self, fields: Fields) -> Levels:
        """Return the fill colour, which must be black for float32 values."""
        fill = fields.colour("fill")
        if self.data == "float32 values" and any(as_tuple(fill)):
            fields.refuse("fill", "must be 0 after ToTensor")
        return fill

    def warp_fields(self, fields: Fields) -> dict[str, Any]:
        """Return the fields ``filter``, ``fill`` and ``like`` of an op that warps the image."""
        fill = self.colour(fields) if fields.has("fill") else None
        return {"filter": fields.choice("interpolation", WARP_FILTERS), "fill": fill, "like": self.rounding_library()}

    def center_crop(self, size: tuple[int, int]) -> None:
        """Add a center crop to ``size``, which is (height, width) in pixels."""
        self.ops.append(ops.CenterCrop(*size))
        self.size = size

    def to_float(self, scale: float, arithmetic: Arithmetic) -> None:
        """Convert uint8 pixel values to float32. The scale is applied by the next ``normalize`` op."""
        if self.data == "a PIL image":
            raise PipelineError("has no effect on a PIL image: add PILToTensor or ToImage before it")
        if self.data == "a uint8 tensor":
            self.data = "float32 values"
            self.scaling = (scale, arithmetic)

    def normalize(self, mean: Reals, std: Reals) -> None:
        """Add a ``normalize`` op, which also applies the scale of a preceding conversion to float32.

        If the mean is 0 and the std is 1, the op is added only if such a scale must be applied.
        """
        if self.scaling is not None:
            scale, arithmetic = self.scaling
            self.ops.append(ops.Normalize(mean=mean, std=std, scale=scale, arithmetic=arithmetic))
            self.scaling = None
        elif (mean, std) != (0.0, 1.0):
            self.ops.append(ops.Normalize(mean=mean, std=std, scale=1, arithmetic="multiply"))


Reader = Callable[[Walk, Fields], None]


def _resize(walk: Walk, fields: Fields) -> None:
    if not fields.has("size"):
        walk.resize(fields, (fields.side("max_size"),), side="longer")
    else:
        walk.resize(fields, fields.sides("size"), max_size=_optional(fields, "max_size", Fields.side))


def _pad(walk: Walk, fields: Fields) -> None:
    how = _padding_fields(walk, fields)
    padding = fields.take("padding")
    widths = (padding,) if isinstance(padding, int) else tuple(padding)
    left, top, right, bottom = (widths * 4)[:4]  # torchvision also accepts one number, or two: horizontal and vertical
    if walk.size is None:
        fields.refuse("padding", "is not supported for images of variable size: resize or crop to a fixed size first")
    is_centered = 0 <= bottom - top <= 1 and 0 <= right - left <= 1
    if min(widths) < 0 or not (is_centered or top == left == 0):
        fields.refuse(
            "padding", "must not be negative, and must be equal on opposite sides or 0 on the left and the top"
        )
    anchor: Anchor = "center" if is_centered else "top_left"
    walk.size = (walk.size[0] + top + bottom, walk.size[1] + left + right)
    walk.ops.append(ops.Pad(*walk.size, anchor=anchor, **how))


def _pad_if_smaller(walk: Walk, fields: Fields) -> None:
    """Pad images that are smaller than ``size`` at the right and the bottom.

    Masks are padded with the class index in the ``ignore`` field of the op ``mask``.
    """
    size = fields.side("size")
    walk.add_resizing(ops.Pad(size, size, fill=walk.colour(fields), anchor="top_left", larger="keep"))


def _to_tensor(walk: Walk, fields: Fields) -> None:
    """Convert ``ToTensor``, which is ``PILToTensor`` followed by a division by 255."""
    _pil_to_tensor(walk, fields)
    walk.to_float(1 / 255, "divide")


def _pil_to_tensor(walk: Walk, _: Fields) -> None:
    if walk.data != "a PIL image":
        raise PipelineError(f"expects a PIL image, but its input is {walk.data}")
    walk.data = "a uint8 tensor"


def _to_image(walk: Walk, fields: Fields) -> None:
    if walk.data == "a PIL image":
        _pil_to_tensor(walk, fields)


def _to_dtype(walk: Walk, fields: Fields) -> None:
    """Convert ``ToDtype`` or ``ConvertImageDtype``: v1 divides by 255, and v2 multiplies by 1/255.

    If ``dtype`` is a dictionary of dtypes per input type, the dtype for images is used.
    """
    value, is_scaled = fields.take("dtype"), fields.flag("scale", default=True)
    if isinstance(value, Mapping):
        by_type, value = value, for_images(value, walk.data)
        if value is None and "others" in by_type:  # images keep their dtype
            return
    dtype = str(value)
    if dtype == "torch.uint8" and walk.data == "a uint8 tensor":
        return
    if dtype != "torch.float32":
        fields.refuse("dtype", "must be torch.float32")
    walk.to_float(1 / 255 if is_scaled else 1.0, "multiply" if walk.is_v2 else "divide")


def _normalize(walk: Walk, fields: Fields) -> None:
    fields.ignore("inplace")
    if walk.data != "float32 values":
        raise PipelineError(f"expects float32 values, but its input is {walk.data}: add ToTensor or ToDtype before it")
    walk.normalize(fields.numbers("mean"), fields.numbers("std"))


def _image_classification(walk: Walk, fields: Fields) -> None:
    """Convert ``ImageClassification``, which resizes, crops, divides by 255 and normalizes in the same way as v1."""
    walk.resize(fields, fields.sides("resize_size"))
    walk.center_crop(fields.pair("crop_size"))
    walk.data = "a uint8 tensor"
    walk.to_float(1 / 255, "divide")
    walk.normalize(fields.numbers("mean"), fields.numbers("std"))


def _grayscale(walk: Walk, fields: Fields) -> None:
    walk.gray(ops.Grayscale(like=walk.rounding_library()))
    walk.channels = fields.choice("num_output_channels", _CHANNELS)


def _to_rgb(walk: Walk, _: Fields) -> None:
    """Convert ``RGB``. The image is either already RGB, or one gray channel is repeated three times."""
    walk.channels = None


def _gaussian_blur(walk: Walk, fields: Fields) -> None:
    """Convert ``GaussianBlur``, which is random unless the minimum and the maximum of its sigma are equal."""
    walk.rounding_library()
    size, (low, high) = fields.pair("kernel_size"), _sampled_range(fields, "sigma")
    if low == high:
        walk.ops.append(ops.GaussianBlur(size, low))
    elif walk.side == "training":
        walk.ops.append(ops.RandomGaussianBlur(size, (low, high)))
    else:
        fields.refuse("sigma", NOT_FOR_SERVING)


def _box_format(walk: Walk, fields: Fields) -> None:
    walk.boxes = fields.choice("format", {name.upper(): name for name in get_args(BoxFormat)})


def _clamped(_: Walk, fields: Fields) -> None:
    """Accept ``ClampBoundingBoxes``, because pixprep always clips boxes to the image."""
    if not fields.has("clamping_mode"):
        fields.refuse("clamping_mode", "leaves boxes outside the image, which is not supported")


def _sanitized(walk: Walk, fields: Fields) -> None:
    """Convert ``SanitizeBoundingBoxes``, which removes invalid boxes. For serving, the transform is ignored."""
    min_size = fields.number("min_size")
    if fields.number("min_area") > min_size**2:
        fields.refuse("min_area", "must not exceed the square of min_size")
    if fields.take("labels_getter") not in ("default", "labels"):
        fields.refuse("labels_getter", 'must be "default" or "labels": labels are always removed with their boxes')
    if walk.side == "training":
        walk.ops.append(ops.Boxes(min_size=min_size))


def _padding_fields(walk: Walk, fields: Fields) -> dict[str, Any]:
    """Return the fields ``padding_mode`` and, if it is ``constant``, ``fill`` of an op that pads."""
    mode, fill = fields.choice("padding_mode", get_args(PaddingMode), "constant"), walk.colour(fields)
    if mode == "constant":
        return {"fill": fill, "padding_mode": mode}
    if walk.data == "float32 values":
        fields.refuse("padding_mode", 'must be "constant" after ToTensor')
    return {"padding_mode": mode}


def for_images(values: Mapping[Any, Any], data: Data) -> Any:
    """Return the entry for images of a ``fill`` or ``dtype``, if it is a dictionary with one value per input type.

    Without an entry for images, return the entry ``others``. If this entry is also absent, return None, even for a
    ``defaultdict``. If several types match, return the dictionary itself.
    """
    package = "PIL" if data == "a PIL image" else "torch"
    kinds = (kind for kind in values if isinstance(kind, type) and kind.__module__.startswith(package))
    found = [values[kind] for kind in kinds if kind.__name__ in ("Image", "Tensor")] or [values.get("others")]
    return found[0] if len(found) == 1 else values


def _sampled_range(fields: Fields, name: str) -> tuple[float, float]:
    """Return the minimum and maximum of a random parameter.

    If PyTorch would always sample the same float32 number, the minimum and the maximum are this number.
    """
    first, last = _as_float32(fields.span(name))
    return first, last


def _as_float32(limits: tuple[float, ...]) -> tuple[float, ...]:
    """Round the limits of a range to float32 if they are equal in float32. If not, return the limits unchanged."""
    rounded = tuple(float(np.float32(limit)) for limit in limits)
    return rounded if len({*rounded}) == 1 else limits


def _optional(fields: Fields, name: str, read: Callable[[Fields, str], Any]) -> Any:
    """Return the value of a field, or None if it is absent."""
    return read(fields, name) if fields.has(name) else None


def _sizes(fields: Fields) -> tuple[int, ...]:
    sizes = finite(fields.take("min_size"))
    if not sizes or not all(size.is_integer() for size in sizes):
        fields.refuse("min_size", "must be integers, in pixels")
    return tuple(map(int, sizes))


def _color_factors(walk: Walk, fields: Fields) -> dict[str, Any]:
    """Return the fields of an op that changes brightness, contrast, saturation and hue."""
    factors = fields.each(partial(_optional, read=_sampled_range), "brightness", "contrast", "saturation", "hue")
    return {**factors, "like": walk.rounding_library()}


def _int_or_float(fields: Fields, name: str) -> Any:
    """Return a number, as an int if it does not have a fractional part."""
    number = fields.number(name)
    return int(number) if number.is_integer() else number


def _random_resized_crop(walk: Walk, fields: Fields) -> None:
    size = fields.pair("size")
    ratio, sampled = fields.span("ratio"), _sampled_ratio(fields)
    if ratio[0] == ratio[1] != sampled[0]:
        fields.refuse(
            "ratio",
            "must be two different numbers, or one that float32 represents exactly: torchvision samples "
            f"{sampled[0]:.9g}, but uses the original number if no crop fits",
        )
    walk.ops.append(
        ops.RandomResizedCrop(*size, scale=_sampled_range(fields, "scale"), ratio=ratio, **walk.resize_fields(fields))
    )
    walk.size = size


def _random_rotation(walk: Walk, fields: Fields) -> None:
    expand = fields.flag("expand")
    (walk.add_resizing if expand else walk.add)(
        ops.RandomRotate(_sampled_range(fields, "degrees"), expand, **_rotation_fields(walk, fields))
    )


def _random_affine(walk: Walk, fields: Fields) -> None:
    translate, scale = _optional(fields, "translate", Fields.span), _optional(fields, "scale", _sampled_range)
    shear = finite(fields.take("shear")) if fields.has("shear") else None
    if shear:
        shear = (*_as_float32(shear[:2]), *_as_float32(shear[2:]))
    walk.add(
        ops.RandomAffine(_sampled_range(fields, "degrees"), translate, scale, shear, **_rotation_fields(walk, fields))
    )


def _random_crop(walk: Walk, fields: Fields) -> None:
    size, padding = fields.pair("size"), fields.take("padding", 0)
    widths: int | tuple[int, ...] = padding if isinstance(padding, int) else tuple(padding) if any(padding) else 0
    if isinstance(widths, tuple) and len(widths) == 4 and walk.is_v2:  # v2 stores left, right, top, bottom
        widths = (widths[0], widths[2], widths[1], widths[3])
    pads_if_needed = fields.flag("pad_if_needed")
    how = _padding_fields(walk, fields) if widths or pads_if_needed else {}
    fields.ignore("fill", "padding_mode")
    if widths and pads_if_needed and how["padding_mode"] in ("reflect", "symmetric") and not walk.is_v2:
        fields.refuse(
            "padding_mode",
            "with padding and pad_if_needed mirrors twice in v1, which is not supported: use torchvision.transforms.v2",
        )
    walk.ops.append(ops.RandomCrop(*size, padding=widths, pad_if_needed=pads_if_needed, **how))
    walk.size = size


def _elastic(walk: Walk, fields: Fields) -> None:
    """Convert ``ElasticTransform``.

    torchvision converts PIL images to tensors for this transform, so that the field ``like`` is not needed. v1 and v2
    use ``fill`` differently.
    """
    how = walk.warp_fields(fields)
    del how["like"]
    if how["filter"] == "bilinear" and (how["fill"] is None or (any(ops.as_tuple(how["fill"])) and not walk.is_v2)):
        fields.refuse(
            "fill",
            "is not supported with bilinear interpolation: use fill=0, or torchvision.transforms.v2 with any color",
        )
    how["fill"] = how["fill"] or 0
    walk.ops.append(ops.Elastic(fields.span("alpha"), fields.span("sigma"), **how))


def _random_erasing(walk: Walk, fields: Fields) -> None:
    """Convert ``RandomErasing``. torchvision erases values of a tensor, so the input must not be a PIL image."""
    fields.ignore("inplace")
    if walk.data == "a PIL image":
        raise PipelineError("does not accept a PIL image: move it after ToTensor")
    field = fields.take("value", "random")  # v2 stores "random" as None
    value = finite(field)
    if field != "random" and len(value) not in (1, 3):
        fields.refuse("value", 'must be a number, one for each of 3 channels, or "random"')
    walk.normalize(0.0, 1.0)
    scale, ratio = _sampled_range(fields, "scale"), _sampled_ratio(fields)
    walk.ops.append(ops.RandomErasing(fields.number("p"), scale, ratio, reals(value) if value else "random"))


def _auto_augment(walk: Walk, fields: Fields) -> None:
    fields.ignore("policies")  # attribute of v1 that contains the table of the policy's operations
    walk.add(ops.AutoAugment(policy=fields.choice("policy", get_args(TorchvisionPolicy)), **walk.warp_fields(fields)))


def _aug_mix(walk: Walk, fields: Fields) -> None:
    """Convert ``AugMix``. v2 converts a PIL image to a tensor and back, so the rounding is always that of tensors."""
    if not walk.is_v2:
        raise PipelineError("is not supported in v1: use torchvision.transforms.v2")
    how = {**walk.warp_fields(fields), "like": "torchvision"}
    how |= fields.each(Fields.integer, "severity", "mixture_width", "chain_depth")
    how |= {"alpha": fields.number("alpha"), "all_ops": fields.flag("all_ops")}
    if how["chain_depth"] <= 0:  # torchvision then samples the depth of each chain
        how["chain_depth"] = -1
    walk.ops.append(ops.AugMix(**how))


def _rotation_fields(walk: Walk, fields: Fields) -> dict[str, Any]:
    """Return the fields of an op that rotates the image: the fields of ``_warp_fields``, and the centre of rotation."""
    return {"center": _optional(fields, "center", Fields.span), **_warp_fields(walk, fields)}


def _warp_fields(walk: Walk, fields: Fields) -> dict[str, Any]:
    """Return the fields of ``Walk.warp_fields``, with black as the default fill colour."""
    how = walk.warp_fields(fields)
    if how["fill"] is None:
        if (how["like"], how["filter"]) == ("torchvision", "bilinear"):
            fields.refuse("fill", "is not supported for tensors with bilinear interpolation: use fill=0")
        how["fill"] = 0
    return how


def _sampled_ratio(fields: Fields) -> tuple[float, float]:
    """Return the minimum and maximum of an aspect ratio. PyTorch samples the logarithm of the ratio.

    If the minimum equals the maximum, return the exponential of its float32 logarithm, because PyTorch uses this ratio.
    """
    low, high = _sampled_range(fields, "ratio")
    if low != high or low <= 0:
        return low, high
    sampled = float(np.float32(exp(np.float32(log(low)))))
    return sampled, sampled


TRANSFORMS: dict[str, Reader] = {
    "ImageClassification": _image_classification,
    "Resize": _resize,
    "CenterCrop": lambda walk, fields: walk.center_crop(fields.pair("size")),
    "Pad": _pad,
    "ToTensor": _to_tensor,
    "PILToTensor": _pil_to_tensor,
    "ToImage": _to_image,
    "ToPureTensor": lambda *_: None,  # does not change the values
    "RGB": _to_rgb,
    "ConvertImageDtype": _to_dtype,
    "ToDtype": _to_dtype,
    "Normalize": _normalize,
    "Grayscale": _grayscale,
    "GaussianBlur": _gaussian_blur,
    "ConvertBoundingBoxFormat": _box_format,
    "ClampBoundingBoxes": _clamped,
    "SanitizeBoundingBoxes": _sanitized,
}
REFERENCE_TRANSFORMS: dict[str, Reader] = {"PadIfSmaller": _pad_if_smaller}
"""Transforms from torchvision's ``references`` scripts, which are not part of the package."""
RANDOM: dict[str, Reader] = {
    "RandomResizedCrop": _random_resized_crop,
    "RandomShortestSize": lambda walk, fields: walk.add_resizing(
        ops.RandomShortestSize(_sizes(fields), _optional(fields, "max_size", Fields.side), **walk.resize_fields(fields))
    ),
    "RandomResize": lambda walk, fields: walk.add_resizing(
        ops.RandomResize(fields.side("min_size"), fields.side("max_size"), **walk.resize_fields(fields))
    ),
    "ScaleJitter": lambda walk, fields: walk.add_resizing(  # ScaleJitter's target_size is (width, height)
        ops.ScaleJitter(
            *fields.pair("target_size")[::-1], _sampled_range(fields, "scale_range"), **walk.resize_fields(fields)
        )
    ),
    "RandomCrop": _random_crop,
    "RandomZoomOut": lambda walk, fields: walk.add_resizing(
        ops.RandomZoomOut(walk.colour(fields), fields.span("side_range"), fields.number("p"))
    ),
    "RandomIoUCrop": lambda walk, fields: walk.add_resizing(
        ops.RandomIouCrop(
            **fields.each(Fields.number, "min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio"),
            sampler_options=finite(fields.take("options")),
            trials=fields.integer("trials"),
        )
    ),
    "RandomHorizontalFlip": lambda walk, fields: walk.add(ops.RandomFlip("horizontal", fields.number("p"))),
    "RandomVerticalFlip": lambda walk, fields: walk.add(ops.RandomFlip("vertical", fields.number("p"))),
    "ColorJitter": lambda walk, fields: walk.add(ops.ColorJitter(**_color_factors(walk, fields))),
    "RandomGrayscale": lambda walk, fields: walk.gray(ops.RandomGray(walk.rounding_library(), fields.number("p"))),
    "RandomPosterize": lambda walk, fields: walk.add_on_pixels(
        ops.RandomPosterize(bits=_int_or_float(fields, "bits"), p=fields.number("p"))
    ),
    "RandomSolarize": lambda walk, fields: walk.add_on_pixels(
        ops.RandomSolarize(threshold=_int_or_float(fields, "threshold"), p=fields.number("p"))
    ),
    "RandomAutocontrast": lambda walk, fields: walk.add(
        ops.RandomAutocontrast(walk.rounding_library(), fields.number("p"))
    ),
    "RandomEqualize": lambda walk, fields: walk.add_on_pixels(ops.RandomEqualize(p=fields.number("p"))),
    "RandomInvert": lambda walk, fields: walk.add_on_pixels(ops.RandomInvert(p=fields.number("p"))),
    "RandomAdjustSharpness": lambda walk, fields: walk.add(
        ops.RandomSharpness(_int_or_float(fields, "sharpness_factor"), walk.rounding_library(), fields.number("p"))
    ),
    "RandomRotation": _random_rotation,
    "RandomAffine": _random_affine,
    "RandomPerspective": lambda walk, fields: walk.add(
        ops.RandomPerspective(fields.number("distortion_scale"), fields.number("p"), **_warp_fields(walk, fields))
    ),
    "RandomPhotometricDistort": lambda walk, fields: walk.add(
        ops.RandomPhotometricDistort(**_color_factors(walk, fields), p=fields.number("p"))
    ),
    "ElasticTransform": _elastic,
    "RandomErasing": _random_erasing,
    "RandAugment": lambda walk, fields: walk.add(
        ops.RandAugment(
            **fields.each(Fields.integer, "num_ops", "magnitude", "num_magnitude_bins"), **walk.warp_fields(fields)
        )
    ),
    "TrivialAugmentWide": lambda walk, fields: walk.add(
        ops.TrivialAugment(fields.integer("num_magnitude_bins"), **walk.warp_fields(fields))
    ),
    "AutoAugment": _auto_augment,
    "AugMix": _aug_mix,
}
"""Functions that convert random transforms, by the name of the transform. They are supported only for training."""
