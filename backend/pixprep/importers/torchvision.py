"""torchvision's transforms, as a pipeline: ``weights.transforms()``, and ``Compose`` of v1 and v2 transforms.

Those of training are the training side. What is drawn there is drawn by the same rules, from other numbers.

What a transform computes depends on what it is given. So the walk over them keeps in mind what the data is by then:
a PIL image, which Pillow resizes; a uint8 tensor, which PyTorch does; float32 values, which no op of ours resizes.
Classes are told apart by their names: a transform object is the proof that torchvision is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from math import exp, log
from pathlib import Path
from runpy import run_path
from typing import Any, Literal, get_args

import numpy as np

from pixprep.draws.kinds import TorchvisionPolicy
from pixprep.errors import PipelineError, SetupError
from pixprep.importers.assembly import assembled, library_module, resize
from pixprep.importers.fields import PILLOW_FILTERS, Fields, finite, reading, reals
from pixprep.ops import (
    Anchor,
    Arithmetic,
    AutoAugment,
    Boxes,
    CenterCrop,
    ColorJitter,
    Decode,
    GaussianBlur,
    Grayscale,
    Levels,
    Normalize,
    Op,
    Pad,
    RandAugment,
    RandomAffine,
    RandomAutocontrast,
    RandomCrop,
    RandomEqualize,
    RandomErasing,
    RandomFlip,
    RandomGaussianBlur,
    RandomGray,
    RandomInvert,
    RandomIouCrop,
    RandomPerspective,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomResizedCrop,
    RandomRotate,
    RandomSharpness,
    RandomShortestSize,
    RandomSolarize,
    RandomZoomOut,
    Reals,
    ScaleJitter,
    Tensor,
    TrivialAugment,
    as_tuple,
    changed,
)
from pixprep.pipeline import Pipeline
from pixprep.spec import BoxFormat, ColorLike, Filter, PaddingMode, Side

_NO_OP = {
    "AugMix": ": it adds up several versions of an image as floats, and a step on levels has one image of whole levels",
    "RandomResize": ": RandomShortestSize is, which makes both sides by one scale",
}
"""Transforms that are refused for a reason of their own."""
_NOT_SERVED = "serving draws nothing: give these transforms as training"
Input = Literal["pil", "tensor"]
Data = Literal["a PIL image", "a uint8 tensor", "float32 values"]

DATA_OF: dict[Input, Data] = {"pil": "a PIL image", "tensor": "a uint8 tensor"}
FILTERS: dict[Any, Filter] = {
    **{name: name for name in PILLOW_FILTERS.values()},
    "nearest-exact": "nearest_exact",
    **PILLOW_FILTERS,
}
"""What the values of ``InterpolationMode``, and the numbers in its place, mean."""
MOVED = {name: filter_ for name, filter_ in FILTERS.items() if filter_ in ("nearest", "bilinear", "bicubic")}
"""The same, of what moves pixels."""


def from_torchvision(
    transforms: Any = None,
    *,
    training: Any = None,
    input: Input = "pil",  # noqa: A002
    name: str | None = None,
) -> Pipeline:
    """The pipeline of torchvision's transforms, bit for bit.

    Args:
        transforms: of serving: ``weights.transforms()``, a ``Compose``, a ``torch.nn.Sequential``, or one transform; or
            the name of weights, such as ``ResNet50_Weights.IMAGENET1K_V2``; or ``FILE.py:NAME``, where that file makes
            them. None: there is no serving side.
        training: of training, which may be random; default: the same.
        input: what the training code gave them: ``pil``, images of ``PIL.Image.open(…).convert("RGB")``; ``tensor``,
            uint8 tensors of ``torchvision.io.decode_image``. Both ignore the EXIF orientation.
        name: of the model, for the pipeline's origin; default: the weights', or the class of ``transforms``.

    Raises:
        PipelineError: a transform or one of its arguments is not understood, or stands where it cannot; there are no
            such weights; the sides do not go together.
        SetupError: the name of weights needs torchvision; a file cannot be run.
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
    walk = _Walk(data, side)
    walk.take(transforms, where)
    return walk.finished(where)


def _made(transforms: Any) -> Any:
    """The transforms that a string names."""
    if not isinstance(transforms, str):
        return transforms
    path, colon, name = transforms.rpartition(":")
    return _in_file(Path(path), name) if colon and path.endswith(".py") else _weights(transforms).transforms()


def _in_file(path: Path, name: str) -> Any:
    """Object of a name once a file of Python has run.

    Raises:
        PipelineError: it has no such name.
        SetupError: the file does not run.
    """
    try:
        found = run_path(str(path)).get(name)
    except Exception as error:
        raise SetupError(f"{path}: does not run: {type(error).__name__}: {error}") from error
    if found is None:
        raise PipelineError(f"{path}: has no {name}")
    return found


def _weights(name: str) -> Any:
    try:
        return library_module("torchvision.models", f'"{name}" is the name of weights').get_weight(name)
    except (ValueError, KeyError, AttributeError):
        raise PipelineError(
            f'torchvision has no weights "{name}": they are named like "ResNet50_Weights.IMAGENET1K_V2"'
        ) from None


Take = Callable[["_Walk", Fields], None]


class _Walk:
    """The ops so far, and what the data is after them.

    Attributes:
        data: see the module.
        side: which the transforms are of.
        scaling: of float32 values: what ``normalize`` must still do to the levels, (scale, arithmetic).
        size: (height, width), where it is known.
        boxes: the format of a sample's boxes.
        is_v2: whether the transform at hand is one of v2.
    """

    def __init__(self, data: Data, side: Side) -> None:
        self.ops: list[Op] = []
        self.side = side
        self.data = data
        self.scaling: tuple[float, Arithmetic] | None = None
        self.size: tuple[int, int] | None = None
        self.boxes: BoxFormat = "xyxy"
        self.is_v2 = False

    def take(self, transform: Any, where: str) -> None:
        """Take one transform, and those that it is made of."""
        cls = type(transform)
        package, name = cls.__module__, cls.__name__
        outer, where = where, f"{where} {name}"
        is_own = package.startswith("torchvision.transforms.")
        if name == "Sequential" or (name == "Compose" and is_own):
            for index, part in enumerate(transform if name == "Sequential" else transform.transforms):
                self.take(part, f"{where if '[' in outer else outer}[{index}]")
            return
        if name == "RandomApply" and is_own and self.side == "training":
            self.at_times(transform, where)
            return
        if name == "Identity" and package.split(".")[0] in ("torch", "torchvision"):
            return
        if not is_own:
            raise PipelineError(f"{where}: is a class of {package}, not of torchvision")
        is_random = name in {*_RANDOM, "RandomApply"}
        if name not in _TRANSFORMS and not is_random:
            why = _NO_OP.get(name, " (it is random)" * name.startswith("Random"))
            raise PipelineError(f"{where}: is not understood{why}")
        if is_random and self.side == "serving":
            raise PipelineError(f"{where}: is random, and {_NOT_SERVED}")
        self.is_v2 = package.startswith("torchvision.transforms.v2.")
        values = {k: v.value if isinstance(v, Enum) else v for k, v in vars(transform).items() if k[0] != "_"}
        if isinstance(values.get("fill"), Mapping):
            values["fill"] = _of_images(values["fill"], self.data)
        with reading(values, where) as fields:
            fields.ignore("training")
            (_TRANSFORMS | _RANDOM)[name](self, fields)

    def at_times(self, transform: Any, where: str) -> None:
        """``RandomApply`` of a transform that does something to some images anyway: to fewer."""
        before = len(self.ops)
        for part in transform.transforms:
            self.take(part, f"{where} of")
        made = self.ops[before:]
        p = getattr(made[0], "p", None) if len(made) == len(transform.transforms) == 1 else None
        if p is None:
            raise PipelineError(f"{where}: is not understood, unless of one transform whose op has a p")
        self.ops[-1] = changed(made[0], p=p * transform.p)

    def finished(self, where: str) -> list[Op]:
        """Give all ops, from ``decode`` to ``tensor``."""
        if self.data == "a PIL image":
            raise PipelineError(f"{where}: end with a PIL image: a tensor is needed: add ToTensor")
        self.normalize(0.0, 1.0)
        dtype: Literal["uint8", "float32"] = "uint8" if self.data == "a uint8 tensor" else "float32"
        places = [place for place, op in enumerate(self.ops) if isinstance(op, Boxes)]
        for place in places:
            if not all(isinstance(op, Boxes | Normalize | RandomErasing) for op in self.ops[place:]):
                raise PipelineError(f"{where}: SanitizeBoundingBoxes must stand behind what moves and resizes images")
            self.ops[place] = changed(self.ops[place], format=self.boxes)
        return [Decode(apply_exif_orientation=False), *self.ops, Tensor(dtype=dtype)]

    def resize(self, fields: Fields, sides: tuple[int, ...], **how: Any) -> None:
        self.ops.append(resize(sides, **self.resampled(fields), **how))
        self.size = (sides[0], sides[1]) if len(sides) > 1 else None

    def resampled(self, fields: Fields) -> dict[str, Any]:
        """Fields of an op that resamples: ``filter``, ``like`` and perhaps ``antialias``."""
        if self.data == "float32 values":
            raise PipelineError("would resize float32 values: put it before ToTensor or ToDtype")
        filter_, antialias = fields.choice("interpolation", FILTERS), fields.flag("antialias")
        how: dict[str, Any] = {"like": "torchvision"}
        if self.data == "a PIL image":
            how = {"like": "pillow"}
            filter_ = "nearest" if filter_ == "nearest_exact" else filter_
        elif not filter_.startswith("nearest"):
            how = {"like": "torchvision", "antialias": antialias} if self.is_v2 else {"like": "torch"}
            if not (self.is_v2 or antialias):
                fields.refuse("antialias", "of v1 transforms and a uint8 tensor is not understood: True is, and v2 is")
        return {"filter": filter_, **how}

    def levels_like(self) -> ColorLike:
        """Whose rounding a transform of levels has on what the data is."""
        if self.data == "float32 values":
            raise PipelineError("would change float32 values: put it before ToTensor or ToDtype")
        if self.data == "a uint8 tensor" and not self.is_v2:
            raise PipelineError("of v1 transforms and a uint8 tensor is not understood: v2 is")
        return "pillow" if self.data == "a PIL image" else "torchvision"

    def center_crop(self, size: tuple[int, int]) -> None:
        self.ops.append(CenterCrop(*size))
        self.size = size

    def to_float(self, scale: float, arithmetic: Arithmetic) -> None:
        if self.data == "a PIL image":
            raise PipelineError("does nothing to a PIL image: put PILToTensor or ToImage before it")
        if self.data == "a uint8 tensor":
            self.data = "float32 values"
            self.scaling = (scale, arithmetic)

    def normalize(self, mean: Reals, std: Reals) -> None:
        """Normalization that is left to do, if any."""
        if self.scaling is not None:
            scale, arithmetic = self.scaling
            self.ops.append(Normalize(mean=mean, std=std, scale=scale, arithmetic=arithmetic))
            self.scaling = None
        elif (mean, std) != (0.0, 1.0):
            self.ops.append(Normalize(mean=mean, std=std, scale=1, arithmetic="multiply"))


def _resize(walk: _Walk, fields: Fields) -> None:
    if not fields.has("size"):
        walk.resize(fields, (fields.side("max_size"),), side="longer")
    else:
        most = fields.side("max_size") if fields.has("max_size") else None
        walk.resize(fields, fields.sides("size"), max_size=most)


def _pad(walk: _Walk, fields: Fields) -> None:
    how = _margin(walk, fields)
    padding = fields.take("padding")
    margins = (padding,) if isinstance(padding, int) else tuple(padding)
    left, top, right, bottom = (margins * 4)[:4]  # one number, or two for both axes
    if walk.size is None:
        fields.refuse("padding", "of images of any size is not understood: resize or crop to a fixed size before")
    is_centered = 0 <= bottom - top <= 1 and 0 <= right - left <= 1
    if min(margins) < 0 or not (is_centered or top == left == 0):
        fields.refuse("padding", "must be the same on opposite sides")
    anchor: Anchor = "center" if is_centered else "top_left"
    walk.size = (walk.size[0] + top + bottom, walk.size[1] + left + right)
    walk.ops.append(Pad(*walk.size, anchor=anchor, **how))


def _to_tensor(walk: _Walk, fields: Fields) -> None:
    """``PILToTensor``, and a division by 255."""
    _pil_to_tensor(walk, fields)
    walk.to_float(1 / 255, "divide")


def _pil_to_tensor(walk: _Walk, _: Fields) -> None:
    if walk.data != "a PIL image":
        raise PipelineError(f"takes a PIL image, but here is {walk.data}")
    walk.data = "a uint8 tensor"


def _to_image(walk: _Walk, fields: Fields) -> None:
    if walk.data == "a PIL image":
        _pil_to_tensor(walk, fields)


def _to_dtype(walk: _Walk, fields: Fields) -> None:
    """v1 divides by 255, v2 multiplies by 1/255."""
    dtype, is_scaled = str(fields.take("dtype")), fields.flag("scale", default=True)
    if dtype == "torch.uint8" and walk.data == "a uint8 tensor":
        return
    if dtype != "torch.float32":
        fields.refuse("dtype", "must be torch.float32")
    walk.to_float(1 / 255 if is_scaled else 1.0, "multiply" if walk.is_v2 else "divide")


def _normalize(walk: _Walk, fields: Fields) -> None:
    fields.ignore("inplace")
    if walk.data != "float32 values":
        raise PipelineError(f"takes float32 values, but here is {walk.data}: put ToTensor or ToDtype before it")
    walk.normalize(fields.numbers("mean"), fields.numbers("std"))


def _image_classification(walk: _Walk, fields: Fields) -> None:
    """Resize, centre crop, division by 255, normalize: each of v1."""
    walk.resize(fields, fields.sides("resize_size"))
    walk.center_crop(fields.pair("crop_size"))
    walk.data = "a uint8 tensor"
    walk.to_float(1 / 255, "divide")
    walk.normalize(fields.numbers("mean"), fields.numbers("std"))


def _random_resized_crop(walk: _Walk, fields: Fields) -> None:
    size = fields.pair("size")
    ratio, drawn = fields.span("ratio"), _drawn_ratio(fields)
    if ratio[0] == ratio[1] != drawn[0]:
        fields.refuse(
            "ratio",
            f"must be two numbers, or one that float32 holds: it is drawn as {drawn[0]:.9g}, and "
            "used as it stands where no window fits",
        )
    walk.ops.append(RandomResizedCrop(*size, scale=_drawn(fields, "scale"), ratio=ratio, **walk.resampled(fields)))
    walk.size = size


def _random_shortest_size(walk: _Walk, fields: Fields) -> None:
    sizes = finite(fields.take("min_size"))
    if not sizes or not all(size.is_integer() for size in sizes):
        fields.refuse("min_size", "must be whole numbers of pixels")
    most = fields.side("max_size") if fields.has("max_size") else None
    walk.ops.append(RandomShortestSize(tuple(map(int, sizes)), most, **walk.resampled(fields)))
    walk.size = None


def _scale_jitter(walk: _Walk, fields: Fields) -> None:
    width, height = fields.pair("target_size")  # in this order
    walk.ops.append(ScaleJitter(height, width, _drawn(fields, "scale_range"), **walk.resampled(fields)))
    walk.size = None


def _zoom_out(walk: _Walk, fields: Fields) -> None:
    span, p = fields.span("side_range"), fields.number("p")
    walk.ops.append(RandomZoomOut(_fill(walk, fields), span, p))
    walk.size = None


def _iou_crop(walk: _Walk, fields: Fields) -> None:
    ends = ("min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio")
    how: dict[str, Any] = {name: fields.number(name) for name in ends}
    walk.ops.append(RandomIouCrop(**how, sampler_options=finite(fields.take("options")), trials=fields.whole("trials")))
    walk.size = None


def _box_format(walk: _Walk, fields: Fields) -> None:
    walk.boxes = fields.choice("format", {name.upper(): name for name in get_args(BoxFormat)})


def _clamped(_: _Walk, fields: Fields) -> None:
    """Boxes are cut off at the image's edges in any case."""
    if not fields.has("clamping_mode"):
        fields.refuse("clamping_mode", "leaves boxes outside of the image")


def _sanitized(walk: _Walk, fields: Fields) -> None:
    """Boxes of the training side."""
    least = fields.number("min_size")
    if fields.number("min_area") > least**2:
        fields.refuse("min_area", "must be the square of min_size at most: an op knows the least sides")
    if fields.take("labels_getter") not in ("default", "labels"):
        fields.refuse("labels_getter", 'must be "default" or "labels": what is said of a box goes with it')
    if walk.side == "training":
        walk.ops.append(Boxes(min_size=least))


def _random_crop(walk: _Walk, fields: Fields) -> None:
    size, padding = fields.pair("size"), fields.take("padding", 0)
    margins: int | tuple[int, ...] = padding if isinstance(padding, int) else tuple(padding)
    if isinstance(margins, tuple) and len(margins) == 4 and walk.is_v2:  # as v2 keeps it: left, right, top, bottom
        margins = (margins[0], margins[2], margins[1], margins[3])
    needs = fields.flag("pad_if_needed")
    how = _margin(walk, fields) if margins or needs else {}
    fields.ignore("fill", "padding_mode")
    if margins and needs and how["padding_mode"] in ("reflect", "symmetric") and not walk.is_v2:
        fields.refuse(
            "padding_mode", "of v1 with padding and pad_if_needed mirrors twice, and is not understood: v2 is"
        )
    walk.ops.append(RandomCrop(*size, padding=margins, pad_if_needed=needs, **how))
    walk.size = size


def _margin(walk: _Walk, fields: Fields) -> dict[str, Any]:
    """Fields of an op that pads: ``fill`` and ``padding_mode``."""
    mode, fill = fields.choice("padding_mode", get_args(PaddingMode), "constant"), _fill(walk, fields)
    if mode == "constant":
        return {"fill": fill, "padding_mode": mode}
    if walk.data == "float32 values":
        fields.refuse("padding_mode", "must be constant after ToTensor")
    return {"padding_mode": mode}


def _random_flip(axis: Literal["horizontal", "vertical"]) -> Take:
    return lambda walk, fields: walk.ops.append(RandomFlip(axis, fields.number("p")))


def _color_jitter(walk: _Walk, fields: Fields) -> None:
    how: dict[str, Any] = {"like": walk.levels_like()}
    for name in ("brightness", "contrast", "saturation", "hue"):
        how[name] = _drawn(fields, name) if fields.has(name) else None
    walk.ops.append(ColorJitter(**how))


def _grayscale(walk: _Walk, fields: Fields) -> None:
    fields.expect("num_output_channels", 3, why="must be 3: a tensor of one channel is another one")
    walk.ops.append(Grayscale(like=walk.levels_like()))


def _gaussian_blur(walk: _Walk, fields: Fields) -> None:
    """Random, unless its sigma is one number."""
    walk.levels_like()
    size, (least, most) = fields.pair("kernel_size"), _drawn(fields, "sigma")
    if least == most:
        walk.ops.append(GaussianBlur(size, least))
    elif walk.side == "training":
        walk.ops.append(RandomGaussianBlur(size, (least, most)))
    else:
        fields.refuse("sigma", f"is random, and {_NOT_SERVED}")


def _at_times(cls: type[Op], **named: str) -> Take:
    """A transform of some images, as the op that has a ``p``, too.

    Args:
        cls: of the op.
        named: for a field of the op the transform's.
    """

    def take(walk: _Walk, fields: Fields) -> None:
        like = walk.levels_like()
        how: dict[str, Any] = {field: fields.number(name) for field, name in named.items()}
        how = {field: int(value) if value.is_integer() else value for field, value in how.items()}
        how |= {"like": like} if "like" in cls.__struct_fields__ else {}
        how["p"] = fields.number("p")
        walk.ops.append(cls(**how))

    return take


def _random_rotation(walk: _Walk, fields: Fields) -> None:
    degrees, expand = _drawn(fields, "degrees"), fields.flag("expand")
    walk.ops.append(RandomRotate(degrees, expand, **_turned(walk, fields)))


def _random_affine(walk: _Walk, fields: Fields) -> None:
    translate = fields.span("translate") if fields.has("translate") else None
    scale = _drawn(fields, "scale") if fields.has("scale") else None
    shear = finite(fields.take("shear")) if fields.has("shear") else None
    if shear:
        shear = (*_as_drawn(shear[:2]), *_as_drawn(shear[2:]))
    walk.ops.append(RandomAffine(_drawn(fields, "degrees"), translate, scale, shear, **_turned(walk, fields)))


def _random_perspective(walk: _Walk, fields: Fields) -> None:
    how = _filled(walk, fields)
    walk.ops.append(RandomPerspective(fields.number("distortion_scale"), fields.number("p"), **how))


def _photometric_distort(walk: _Walk, fields: Fields) -> None:
    how: dict[str, Any] = {name: _drawn(fields, name) for name in ("brightness", "contrast", "saturation", "hue")}
    walk.ops.append(RandomPhotometricDistort(**how, like=walk.levels_like(), p=fields.number("p")))


def _elastic(_: _Walk, fields: Fields) -> None:
    fields.refuse(
        "alpha", "moves each pixel by noise of its own, and is not understood: RandomAffine or RandomPerspective is"
    )


def _turned(walk: _Walk, fields: Fields) -> dict[str, Any]:
    """``_filled``, about a point."""
    return {"center": fields.span("center") if fields.has("center") else None, **_filled(walk, fields)}


def _filled(walk: _Walk, fields: Fields) -> dict[str, Any]:
    """``_moved``, with a colour."""
    how = _moved(walk, fields)
    if how["fill"] is None:
        if (how["like"], how["filter"]) == ("torchvision", "bilinear"):
            fields.refuse("fill", "gives tensors other edges than 0 does, and is not understood: 0 is")
        how["fill"] = 0
    return how


def _random_erasing(walk: _Walk, fields: Fields) -> None:
    """Erase values of the tensor, once it is float32."""
    fields.ignore("inplace")
    if walk.data == "a PIL image":
        raise PipelineError("takes no PIL image: put it behind ToTensor")
    given = fields.take("value", "random")  # v2 keeps None of it
    value = finite(given)
    if given != "random" and len(value) not in (1, 3):
        fields.refuse("value", 'must be a number, one for each of 3 channels, or "random"')
    walk.normalize(0.0, 1.0)
    scale, ratio = _drawn(fields, "scale"), _drawn_ratio(fields)
    walk.ops.append(RandomErasing(fields.number("p"), scale, ratio, reals(value) if value else "random"))


def _rand_augment(walk: _Walk, fields: Fields) -> None:
    how = _policy(walk, fields)
    walk.ops.append(RandAugment(fields.whole("num_ops"), fields.whole("magnitude"), **how))


def _trivial_augment(walk: _Walk, fields: Fields) -> None:
    walk.ops.append(TrivialAugment(**_policy(walk, fields)))


def _auto_augment(walk: _Walk, fields: Fields) -> None:
    fields.ignore("policies")  # v1 keeps its table
    policy = fields.choice("policy", get_args(TorchvisionPolicy))
    walk.ops.append(AutoAugment(policy=policy, **_moved(walk, fields)))


def _policy(walk: _Walk, fields: Fields) -> dict[str, Any]:
    return {"num_magnitude_bins": fields.whole("num_magnitude_bins"), **_moved(walk, fields)}


def _moved(walk: _Walk, fields: Fields) -> dict[str, Any]:
    """Fields of an op that moves pixels: ``filter``, ``fill`` and ``like``."""
    fill = _fill(walk, fields) if fields.has("fill") else None
    return {"filter": fields.choice("interpolation", MOVED), "fill": fill, "like": walk.levels_like()}


def _drawn(fields: Fields, name: str) -> tuple[float, float]:
    """From and to of what is drawn; one number alone is the float32 that PyTorch draws."""
    first, last = _as_drawn(fields.span(name))
    return first, last


def _as_drawn(ends: tuple[float, ...]) -> tuple[float, ...]:
    rounded = tuple(float(np.float32(end)) for end in ends)
    return rounded if len({*rounded}) == 1 else ends


def _drawn_ratio(fields: Fields) -> tuple[float, float]:
    """The same of a ratio, of which PyTorch draws the logarithm."""
    first, last = _drawn(fields, "ratio")
    if first != last or first <= 0:
        return first, last
    drawn = float(np.float32(exp(np.float32(log(first)))))
    return drawn, drawn


def _of_images(fills: Mapping[Any, Any], data: Data) -> Any:
    """The colour of images in a ``fill`` by type; where it has none, black: no default of a ``defaultdict`` is used."""
    package = "PIL" if data == "a PIL image" else "torch"
    kinds = (kind for kind in fills if isinstance(kind, type) and kind.__module__.startswith(package))
    found = [fills[kind] for kind in kinds if kind.__name__ in ("Image", "Tensor")] or [fills.get("others")]
    return found[0] if len(found) == 1 else fills


def _fill(walk: _Walk, fields: Fields) -> Levels:
    """A colour: whole levels; None is black."""
    fill = as_tuple(fields.numbers("fill", 0.0))
    if not all(level.is_integer() for level in fill) or (walk.data == "float32 values" and any(fill)):
        fields.refuse("fill", "must be whole levels, and 0 after ToTensor")
    levels = tuple(int(level) for level in fill)
    return levels if len(levels) > 1 else levels[0]


_TRANSFORMS: dict[str, Take] = {
    "ImageClassification": _image_classification,
    "Resize": _resize,
    "CenterCrop": lambda walk, fields: walk.center_crop(fields.pair("size")),
    "Pad": _pad,
    "ToTensor": _to_tensor,
    "PILToTensor": _pil_to_tensor,
    "ToImage": _to_image,
    "ToPureTensor": lambda *_: None,  # changes the type alone
    "RGB": lambda *_: None,  # as decode gives it
    "ConvertImageDtype": _to_dtype,
    "ToDtype": _to_dtype,
    "Normalize": _normalize,
    "Grayscale": _grayscale,
    "GaussianBlur": _gaussian_blur,
    "ConvertBoundingBoxFormat": _box_format,
    "ClampBoundingBoxes": _clamped,
    "SanitizeBoundingBoxes": _sanitized,
}

_RANDOM: dict[str, Take] = {
    "RandomResizedCrop": _random_resized_crop,
    "RandomShortestSize": _random_shortest_size,
    "ScaleJitter": _scale_jitter,
    "RandomCrop": _random_crop,
    "RandomZoomOut": _zoom_out,
    "RandomIoUCrop": _iou_crop,
    "RandomHorizontalFlip": _random_flip("horizontal"),
    "RandomVerticalFlip": _random_flip("vertical"),
    "ColorJitter": _color_jitter,
    "RandomGrayscale": _at_times(RandomGray),
    "RandomPosterize": _at_times(RandomPosterize, bits="bits"),
    "RandomSolarize": _at_times(RandomSolarize, threshold="threshold"),
    "RandomAutocontrast": _at_times(RandomAutocontrast),
    "RandomEqualize": _at_times(RandomEqualize),
    "RandomInvert": _at_times(RandomInvert),
    "RandomAdjustSharpness": _at_times(RandomSharpness, factor="sharpness_factor"),
    "RandomRotation": _random_rotation,
    "RandomAffine": _random_affine,
    "RandomPerspective": _random_perspective,
    "RandomPhotometricDistort": _photometric_distort,
    "ElasticTransform": _elastic,
    "RandomErasing": _random_erasing,
    "RandAugment": _rand_augment,
    "TrivialAugmentWide": _trivial_augment,
    "AutoAugment": _auto_augment,
}
"""Of training alone."""
