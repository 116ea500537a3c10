"""Imports torchvision's transforms: ``weights.transforms()``, or a ``Compose`` of v1 or v2 transforms.

The random parameters of training transforms have the same distributions as in torchvision, but the random numbers
differ.

The result of a transform depends on the type of its input. Therefore, ``Walk.data`` tracks this type. It is a PIL
image, which Pillow resizes; a uint8 tensor, which PyTorch resizes; or float32 values, which pixprep cannot resize.
Classes are compared by name, so that this module does not import torchvision.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from runpy import run_path
from typing import Any, Literal

from pixprep.errors import PipelineError, SetupError
from pixprep.importers.assembly import assembled, library_module
from pixprep.importers.fields import error_prefix, reading
from pixprep.importers.torchvision_transforms import (
    NOT_FOR_SERVING,
    RANDOM,
    REFERENCE_TRANSFORMS,
    TRANSFORMS,
    Data,
    Walk,
    for_images,
)
from pixprep.pipeline import ops
from pixprep.pipeline.ops import Op
from pixprep.pipeline.pipeline import Pipeline
from pixprep.spec import Side

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
