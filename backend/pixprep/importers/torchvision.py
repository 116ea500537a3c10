"""torchvision's transforms, as a pipeline: ``weights.transforms()``, and ``Compose`` of v1 and v2 transforms.

What a transform computes depends on what it is given. So the walk over them keeps in mind what the data is by then:
a PIL image, which Pillow resizes; a uint8 tensor, which PyTorch does; float32 values, which no op of ours resizes.
Classes are told apart by their names: a transform object is the proof that torchvision is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Literal, NoReturn, get_args

from pixprep.compiler import compile_pipeline
from pixprep.errors import PipelineError, SetupError
from pixprep.importers.fields import Fields, installed_version
from pixprep.ops import Anchor, Arithmetic, CenterCrop, Decode, Normalize, Op, Pad, Resize, Tensor
from pixprep.pipeline import Pipeline
from pixprep.pipeline_file import Source
from pixprep.spec import Filter, Like

Input = Literal["pil", "tensor"]
Data = Literal["a PIL image", "a uint8 tensor", "float32 values"]

PILLOW: dict[str, Filter] = {
    "nearest": "nearest",
    "nearest-exact": "nearest",
    "bilinear": "bilinear",
    "bicubic": "bicubic",
    "box": "box",
    "hamming": "hamming",
    "lanczos": "lanczos",
}
V1: dict[str, Filter] = {
    "nearest": "nearest",
    "nearest-exact": "nearest_exact",
    "bilinear": "bilinear",
    "bicubic": "bicubic",
}
"""The filters of uint8 tensors; v1 computes the last two in float32."""
NATIVE: dict[str, Filter] = {**V1, "lanczos": "lanczos"}
"""Of v2: bilinear, bicubic and lanczos in integers."""
PIL_CODES = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""What the numbers 0 to 5 mean in place of an ``InterpolationMode``."""
NOT_STILL = {
    "ObjectDetection": "its images keep their size, and a batch needs one",
    "SemanticSegmentation": "its images keep their aspect ratio, and a batch needs one size",
    "VideoClassification": "pixprep prepares images, not videos",
    "OpticalFlow": "pixprep prepares single images",
}


def load(weights: str, *, input: Input = "pil") -> Pipeline:  # noqa: A002
    """The pipeline of a model's weights by their name, such as ``ResNet50_Weights.IMAGENET1K_V2``.

    Args:
        weights: as ``torchvision.models.get_weight`` takes them.
        input: as in ``from_torchvision``.

    Raises:
        PipelineError: there are no such weights, or their transforms are not understood.
        SetupError: torchvision is missing.
    """
    try:
        models = import_module("torchvision.models")
    except (ImportError, RuntimeError) as error:  # RuntimeError: beside a PyTorch of another build
        raise SetupError(
            f'"{weights}" is the name of weights, which needs torchvision ({error}): pip install torchvision'
        ) from None
    try:
        found = models.get_weight(weights)
    except (ValueError, KeyError, AttributeError):
        raise PipelineError(
            f'torchvision has no weights "{weights}": they are named like "ResNet50_Weights.IMAGENET1K_V2"'
        ) from None
    return from_torchvision(found.transforms(), input=input, name=weights)


def from_torchvision(transforms: Any, *, input: Input = "pil", name: str | None = None) -> Pipeline:  # noqa: A002
    """The pipeline of torchvision's transforms, bit for bit.

    Args:
        transforms: ``weights.transforms()``, a ``Compose``, a ``torch.nn.Sequential``, or one transform.
        input: what the training code gave them: ``pil``, images of ``PIL.Image.open(…).convert("RGB")``; ``tensor``,
            uint8 tensors of ``torchvision.io.decode_image``. Both ignore the EXIF orientation.
        name: of the model, for the pipeline's source; default: the class of ``transforms``.

    Raises:
        PipelineError: a transform or one of its arguments is not understood, or stands where it cannot.
    """
    if input not in get_args(Input):
        raise PipelineError(f'input: must be "pil" or "tensor", not {input!r}')
    walk = _Walk("a PIL image" if input == "pil" else "a uint8 tensor")
    walk.go(transforms, "transforms")
    source = Source(
        library="torchvision",
        version=installed_version("torchvision"),
        name=(name or type(transforms).__name__)[:200],
        profile=walk.profile,
    )
    pipeline = Pipeline(walk.finished(), source=source)
    compile_pipeline(pipeline)
    return pipeline


class _Walk:
    """The ops so far, and what the data is after them.

    Attributes:
        data: see the module.
        profile: whose resize it is.
        scaling: of float32 values: what ``normalize`` must still do to the levels, (scale, arithmetic).
        size: (height, width), where it is known.
    """

    def __init__(self, data: Data) -> None:
        self.ops: list[Op] = []
        self.data = data
        self.profile: Like = "pillow" if data == "a PIL image" else "torchvision"
        self.scaling: tuple[float, Arithmetic] | None = None
        self.size: tuple[int, int] | None = None

    def go(self, transform: Any, where: str) -> None:
        """Take one transform, and those that it is made of."""
        cls = type(transform)
        package, name = cls.__module__, cls.__name__
        where = f"{where} {name}"
        is_v2 = package.startswith("torchvision.transforms.v2.")
        if name == "Sequential" or (name == "Compose" and package.startswith("torchvision.transforms.")):
            parts: Iterable[Any] = transform if name == "Sequential" else transform.transforms
            for index, part in enumerate(parts):
                self.go(part, f"transforms[{index}]" if where.startswith("transforms ") else f"{where}[{index}]")
            return
        if name == "Identity" and package.split(".")[0] in ("torch", "torchvision"):
            return
        if package == "torchvision.transforms._presets":
            if name in NOT_STILL:
                raise PipelineError(f"{where}: {NOT_STILL[name]}")
            handler: _Handler | None = _PRESETS.get(name)
        elif package == "torchvision.transforms.transforms" or is_v2:
            handler = _HANDLERS.get(name)
        else:
            raise PipelineError(f"{where}: is a class of {package}, not of torchvision")
        if handler is None:
            raise PipelineError(f"{where}: is not understood" + " (it is random)" * name.startswith("Random"))
        fields = Fields({k: v for k, v in vars(transform).items() if k[0] != "_" and k != "training"}, where)
        handler(self, fields, is_v2)
        fields.finish()

    def finished(self) -> list[Op]:
        """All ops, from ``decode`` to ``tensor``."""
        if self.data == "a PIL image":
            raise PipelineError("transforms: end with a PIL image: a tensor is needed: add ToTensor")
        self.normalize(0.0, 1.0)
        dtype: Literal["uint8", "float32"] = "uint8" if self.data == "a uint8 tensor" else "float32"
        return [Decode(apply_exif_orientation=False), *self.ops, Tensor(dtype=dtype)]

    def resize(self, fields: Fields, size: Any, *, is_v2: bool) -> None:
        mode = fields.take("interpolation", object)
        mode = PIL_CODES[mode] if isinstance(mode, int) and 0 <= mode < len(PIL_CODES) else getattr(mode, "value", mode)
        antialias = bool(fields.take("antialias", bool))
        height, width = _pair(size)
        sides: dict[str, Any] = {"size": height} if width is None else {"height": height, "width": width}
        self.size = None if width is None else (height, width)
        if self.data == "float32 values":
            _refuse(fields, "would resize float32 values: put it before ToTensor or ToDtype")
        if self.data == "a PIL image":
            if mode not in PILLOW:
                fields.refuse("interpolation")
            self.ops.append(Resize(**sides, filter=PILLOW[mode], like="pillow"))
            return
        known = NATIVE if is_v2 else V1
        if mode not in known:
            fields.refuse("interpolation", f"is not for a uint8 tensor: there are {', '.join(known)}")
        if mode.startswith("nearest"):
            self.ops.append(Resize(**sides, filter=known[mode], like="torchvision"))
        elif is_v2:
            self.ops.append(Resize(**sides, filter=known[mode], antialias=antialias, like="torchvision"))
        elif antialias:
            self.profile = "torch"
            self.ops.append(Resize(**sides, filter=known[mode], like="torch"))
        else:
            fields.refuse("antialias", "of v1 transforms and a uint8 tensor is not understood: True is, and v2 is")

    def center_crop(self, size: Any) -> None:
        height, width = _pair(size)
        self.ops.append(CenterCrop(height=height, width=width))
        self.size = (height, height if width is None else width)

    def to_float(self, fields: Fields, scale: float, arithmetic: Arithmetic) -> None:
        if self.data == "a PIL image":
            _refuse(fields, "does nothing to a PIL image: put PILToTensor or ToImage before it")
        if self.data == "a uint8 tensor":
            self.data = "float32 values"
            self.scaling = (scale, arithmetic)

    def normalize(self, mean: Any, std: Any) -> None:
        """What is left to do to the levels, if anything."""
        if self.scaling is not None:
            scale, arithmetic = self.scaling
            self.ops.append(Normalize(mean=mean, std=std, scale=scale, arithmetic=arithmetic))
            self.scaling = None
        elif (mean, std) != (0.0, 1.0):
            self.ops.append(Normalize(mean=mean, std=std, scale=1, arithmetic="multiply"))


_Handler = Callable[[_Walk, Fields, bool], None]


def _resize(walk: _Walk, fields: Fields, is_v2: bool) -> None:
    if fields.take("max_size", object) is not None:
        fields.refuse("max_size")
    size = fields.take("size", (int, list, tuple))
    if size is None:
        fields.refuse("size")
    walk.resize(fields, size, is_v2=is_v2)


def _center_crop(walk: _Walk, fields: Fields, is_v2: bool) -> None:
    del is_v2
    walk.center_crop(fields.take("size", (int, list, tuple)))


def _pad(walk: _Walk, fields: Fields, is_v2: bool) -> None:
    del is_v2
    if fields.take("padding_mode", str) != "constant":
        fields.refuse("padding_mode", 'must be "constant"')
    fill = fields.take("fill", (int, float, list, tuple), default=0)
    levels = tuple(fill) if isinstance(fill, list | tuple) else (fill,)
    if not all(float(level).is_integer() for level in levels) or (walk.data == "float32 values" and any(levels)):
        fields.refuse("fill", "must be whole levels, and 0 after ToTensor")
    padding = fields.take("padding", (int, list, tuple))
    margins = (padding,) if isinstance(padding, int) else tuple(padding)
    left, top, right, bottom = (margins * 4)[:4]  # one number, or two for both axes
    if walk.size is None:
        fields.refuse("padding", "of images of any size is not understood: resize or crop to a fixed size before")
    is_centered = 0 <= bottom - top <= 1 and 0 <= right - left <= 1
    if min(margins) < 0 or not (is_centered or top == left == 0):
        fields.refuse("padding", "must be the same on opposite sides")
    anchor: Anchor = "center" if is_centered else "top_left"
    walk.size = (walk.size[0] + top + bottom, walk.size[1] + left + right)
    whole = tuple(int(level) for level in levels)
    walk.ops.append(
        Pad(height=walk.size[0], width=walk.size[1], fill=whole if len(whole) > 1 else whole[0], anchor=anchor)
    )


def _to_tensor(walk: _Walk, fields: Fields, is_v2: bool) -> None:
    del is_v2
    if walk.data != "a PIL image":
        _refuse(fields, f"takes a PIL image, but here is {walk.data}")
    walk.data, walk.scaling = "float32 values", (1 / 255, "divide")


def _pil_to_tensor(walk: _Walk, fields: Fields, is_v2: bool) -> None:
    del is_v2
    if walk.data != "a PIL image":
        _refuse(fields, f"takes a PIL image, but here is {walk.data}")
    walk.data = "a uint8 tensor"


def _to_image(walk: _Walk, fields: Fields, is_v2: bool) -> None:
    del fields, is_v2
    if walk.data == "a PIL image":
        walk.data = "a uint8 tensor"


def _keep(walk: _Walk, fields: Fields, is_v2: bool) -> None:
    """``ToPureTensor`` changes the type alone; ``RGB`` nothing, as ``decode`` gives RGB."""
    del walk, fields, is_v2


def _to_dtype(walk: _Walk, fields: Fields, is_v2: bool) -> None:
    """v1 divides by 255, v2 multiplies by 1/255."""
    dtype = str(fields.take("dtype", object))
    scales = fields.take("scale", bool, default=True)
    if dtype == "torch.uint8" and walk.data == "a uint8 tensor":
        return
    if dtype != "torch.float32":
        fields.refuse("dtype", "must be torch.float32")
    walk.to_float(fields, 1 / 255 if scales else 1.0, "multiply" if is_v2 else "divide")


def _normalize(walk: _Walk, fields: Fields, is_v2: bool) -> None:
    del is_v2
    fields.ignore("inplace")
    if walk.data != "float32 values":
        _refuse(fields, f"takes float32 values, but here is {walk.data}: put ToTensor or ToDtype before it")
    walk.normalize(_numbers(fields, "mean"), _numbers(fields, "std"))


def _image_classification(walk: _Walk, fields: Fields, is_v2: bool) -> None:
    """Resize, centre crop, division by 255, normalize: each of v1."""
    del is_v2
    walk.resize(fields, fields.take("resize_size", (int, list, tuple)), is_v2=False)
    walk.center_crop(fields.take("crop_size", (int, list, tuple)))
    walk.data = "a uint8 tensor"
    walk.to_float(fields, 1 / 255, "divide")
    walk.normalize(_numbers(fields, "mean"), _numbers(fields, "std"))


_PRESETS: dict[str, _Handler] = {"ImageClassification": _image_classification}
_HANDLERS: dict[str, _Handler] = {
    "Resize": _resize,
    "CenterCrop": _center_crop,
    "Pad": _pad,
    "ToTensor": _to_tensor,
    "PILToTensor": _pil_to_tensor,
    "ToImage": _to_image,
    "ToPureTensor": _keep,
    "RGB": _keep,
    "ConvertImageDtype": _to_dtype,
    "ToDtype": _to_dtype,
    "Normalize": _normalize,
}


def _pair(size: int | Sequence[int]) -> tuple[int, int | None]:
    """(height, width) of two numbers, (size, None) of one."""
    sides = (size,) if isinstance(size, int) else tuple(size)
    return sides[0], sides[1] if len(sides) > 1 else None


def _numbers(fields: Fields, name: str) -> tuple[float, ...]:
    """A list, an array or a tensor of numbers."""
    value = fields.take(name, object)
    try:
        return tuple(float(number) for number in value)
    except (TypeError, ValueError):
        fields.refuse(name, "must be a number for each channel")


def _refuse(fields: Fields, why: str) -> NoReturn:
    raise PipelineError(f"{fields.where}: {why}")
