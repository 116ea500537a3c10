"""torchvision's transforms, as a pipeline: ``weights.transforms()``, and ``Compose`` of v1 and v2 transforms.

What a transform computes depends on what it is given. So the walk over them keeps in mind what the data is by then:
a PIL image, which Pillow resizes; a uint8 tensor, which PyTorch does; float32 values, which no op of ours resizes.
Classes are told apart by their names: a transform object is the proof that torchvision is there.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Literal

from pixprep.errors import PipelineError
from pixprep.importers.assembly import assembled, library_module, resize
from pixprep.importers.fields import PILLOW_FILTERS, Fields, reading
from pixprep.ops import Anchor, Arithmetic, CenterCrop, Decode, Normalize, Op, Pad, Reals, Tensor, as_tuple
from pixprep.pipeline import Pipeline
from pixprep.spec import Filter, Like

Input = Literal["pil", "tensor"]
Data = Literal["a PIL image", "a uint8 tensor", "float32 values"]

DATA_OF: dict[Input, Data] = {"pil": "a PIL image", "tensor": "a uint8 tensor"}
FILTERS: dict[Any, Filter] = {
    **{name: name for name in PILLOW_FILTERS.values()},
    "nearest-exact": "nearest_exact",
    **PILLOW_FILTERS,
}
"""What the values of ``InterpolationMode``, and the numbers in its place, mean."""


def from_torchvision(transforms: Any, *, input: Input = "pil", name: str | None = None) -> Pipeline:  # noqa: A002
    """The pipeline of torchvision's transforms, bit for bit.

    Args:
        transforms: ``weights.transforms()``, a ``Compose``, a ``torch.nn.Sequential``, or one transform; or the name of
            weights, such as ``ResNet50_Weights.IMAGENET1K_V2``.
        input: what the training code gave them: ``pil``, images of ``PIL.Image.open(…).convert("RGB")``; ``tensor``,
            uint8 tensors of ``torchvision.io.decode_image``. Both ignore the EXIF orientation.
        name: of the model, for the pipeline's origin; default: the weights', or the class of ``transforms``.

    Raises:
        PipelineError: a transform or one of its arguments is not understood, or stands where it cannot; there are no
            such weights.
        SetupError: the name of weights needs torchvision.
    """
    with reading({"input": input}, "options") as options:
        walk = _Walk(options.choice("input", DATA_OF))
    if isinstance(transforms, str):
        name = name or transforms
        transforms = _weights(transforms).transforms()
    like: Like = "pillow" if walk.data == "a PIL image" else "torchvision"
    walk.take(transforms, "transforms")
    name = name or type(transforms).__name__
    return assembled(walk.finished(), library="torchvision", name=name, where="transforms", like=like)


def _weights(name: str) -> Any:
    try:
        return library_module("torchvision.models", f'"{name}" is the name of weights').get_weight(name)
    except (ValueError, KeyError, AttributeError):
        raise PipelineError(
            f'torchvision has no weights "{name}": they are named like "ResNet50_Weights.IMAGENET1K_V2"'
        ) from None


class _Walk:
    """The ops so far, and what the data is after them.

    Attributes:
        data: see the module.
        scaling: of float32 values: what ``normalize`` must still do to the levels, (scale, arithmetic).
        size: (height, width), where it is known.
        is_v2: whether the transform at hand is one of v2.
    """

    def __init__(self, data: Data) -> None:
        self.ops: list[Op] = []
        self.data = data
        self.scaling: tuple[float, Arithmetic] | None = None
        self.size: tuple[int, int] | None = None
        self.is_v2 = False

    def take(self, transform: Any, where: str) -> None:
        """Take one transform, and those that it is made of."""
        cls = type(transform)
        package, name = cls.__module__, cls.__name__
        where = f"{where} {name}"
        is_own = package.startswith("torchvision.transforms.")
        if name == "Sequential" or (name == "Compose" and is_own):
            for index, part in enumerate(transform if name == "Sequential" else transform.transforms):
                self.take(part, f"transforms[{index}]" if where.startswith("transforms ") else f"{where}[{index}]")
            return
        if name == "Identity" and package.split(".")[0] in ("torch", "torchvision"):
            return
        if not is_own:
            raise PipelineError(f"{where}: is a class of {package}, not of torchvision")
        if name not in _TRANSFORMS:
            why = " (it is random)" if name.startswith("Random") else ""
            raise PipelineError(f"{where}: is not understood{why}")
        self.is_v2 = package.startswith("torchvision.transforms.v2.")
        values = {k: v.value if isinstance(v, Enum) else v for k, v in vars(transform).items() if k[0] != "_"}
        with reading(values, where) as fields:
            fields.ignore("training")
            _TRANSFORMS[name](self, fields)

    def finished(self) -> list[Op]:
        """All ops, from ``decode`` to ``tensor``."""
        if self.data == "a PIL image":
            raise PipelineError("transforms: end with a PIL image: a tensor is needed: add ToTensor")
        self.normalize(0.0, 1.0)
        dtype: Literal["uint8", "float32"] = "uint8" if self.data == "a uint8 tensor" else "float32"
        return [Decode(apply_exif_orientation=False), *self.ops, Tensor(dtype=dtype)]

    def resize(self, fields: Fields, sides: tuple[int, ...]) -> None:
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
        self.ops.append(resize(sides, filter=filter_, **how))
        self.size = (sides[0], sides[1]) if len(sides) > 1 else None

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
        """What is left to do to the levels, if anything."""
        if self.scaling is not None:
            scale, arithmetic = self.scaling
            self.ops.append(Normalize(mean=mean, std=std, scale=scale, arithmetic=arithmetic))
            self.scaling = None
        elif (mean, std) != (0.0, 1.0):
            self.ops.append(Normalize(mean=mean, std=std, scale=1, arithmetic="multiply"))


def _resize(walk: _Walk, fields: Fields) -> None:
    fields.expect("max_size", why="is not understood")
    walk.resize(fields, fields.sides("size"))


def _pad(walk: _Walk, fields: Fields) -> None:
    fields.expect("padding_mode", "constant")
    fill = as_tuple(fields.numbers("fill", 0.0))
    if not all(level.is_integer() for level in fill) or (walk.data == "float32 values" and any(fill)):
        fields.refuse("fill", "must be whole levels, and 0 after ToTensor")
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
    levels = tuple(int(level) for level in fill)
    walk.ops.append(Pad(*walk.size, fill=levels if len(levels) > 1 else levels[0], anchor=anchor))


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


_TRANSFORMS: dict[str, Callable[[_Walk, Fields], None]] = {
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
}
