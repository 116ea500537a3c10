"""torchvision's transforms as a pipeline: ``weights.transforms()``, and ``Compose`` of v1 and v2 transforms.

Training transforms become the training side. Their random parameters follow the same distributions, but the random
numbers differ.

The result of a transform depends on the type of its input. Therefore the walk tracks the data: a PIL image, which
Pillow resizes; a uint8 tensor, which PyTorch resizes; or float32 values, which no pixprep op can resize. Classes are
compared by name: the source is an object of the library, so torchvision is already imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from runpy import run_path
from typing import Any, Literal

from pixprep.errors import PipelineError, SetupError
from pixprep.importers.assembly import assembled, library_module
from pixprep.importers.fields import place, reading
from pixprep.importers.torchvision_transforms import (
    NOT_SERVED,
    OF_REFERENCES,
    RANDOM,
    TRANSFORMS,
    Data,
    Walk,
    of_images,
)
from pixprep.pipeline.ops import (
    Boxes,
    Decode,
    Normalize,
    Op,
    RandomErasing,
    RandomOrder,
    Tensor,
    changed,
)
from pixprep.pipeline.pipeline import Pipeline
from pixprep.spec import Side

_PRESETS = tuple(
    f"{task}Preset{of}" for task in ("Classification", "Detection", "Segmentation") for of in ("Train", "Eval")
)
"""Classes of torchvision's references that only apply their ``transforms``."""
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
    """Create the pipeline of torchvision's transforms, equal bit for bit.

    Args:
        transforms: The serving transforms: ``weights.transforms()``, a ``Compose``, a ``torch.nn.Sequential``, a single
            transform, a preset of torchvision's references such as ``ClassificationPresetEval``, the name of weights
            such as ``ResNet50_Weights.IMAGENET1K_V2``, or ``FILE.py:NAME`` for an object created by that file. None:
            build no serving side.
        training: The training transforms, which can be random. Default: the serving transforms.
        input: Type of the images in the training code. ``pil``: ``PIL.Image.open(…).convert("RGB")``. ``tensor``: uint8
            tensors of ``torchvision.io.decode_image``. Both ignore the EXIF orientation.
        name: Name of the model, for the origin of the pipeline. Default: the name of the weights, or the class of
            ``transforms``.

    Raises:
        PipelineError: A transform or one of its arguments is not supported, or is at an invalid position; the weights
            do not exist; or the two sides are not compatible.
        SetupError: The name of weights needs torchvision, or a file cannot be executed.
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
    _take(walk, transforms, where)
    return _finished(walk, where)


def _made(transforms: Any) -> Any:
    """Return the transforms that a string names."""
    if not isinstance(transforms, str):
        return transforms
    path, colon, name = transforms.rpartition(":")
    return _in_file(Path(path), name) if colon and path.endswith(".py") else _weights(transforms).transforms()


def _in_file(path: Path, name: str) -> Any:
    """Execute a Python file and return its object with the given name.

    Raises:
        PipelineError: The file does not define the name.
        SetupError: The file cannot be executed.
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


def _take(walk: Walk, transform: Any, where: str) -> None:
    """Add the ops of one transform and of the transforms inside it."""
    cls = type(transform)
    package, name = cls.__module__, cls.__name__
    outer, where = where, f"{where} {name}"
    is_own = package.startswith("torchvision.transforms.")
    if name == "Sequential" or (name == "Compose" and is_own):
        for index, part in enumerate(transform if name == "Sequential" else transform.transforms):
            _take(walk, part, f"{where if '[' in outer else outer}[{index}]")
        return
    if name in _PRESETS and not is_own and hasattr(transform, "transforms"):
        _take(walk, transform.transforms, f"{where}.transforms")
        return
    if name in _CHOICES and is_own and walk.side == "training":
        _take_choice(walk, transform, where)
        return
    if name == "Identity" and package.split(".")[0] in ("torch", "torchvision"):
        return
    if not (is_own or name in OF_REFERENCES):
        remedy = ": pass its .transforms if it only applies them" if hasattr(transform, "transforms") else ""
        remedy = ": create the preset with use_v2=True" if any(preset in outer for preset in _PRESETS) else remedy
        raise PipelineError(f"{where}: this class is defined in {package}, not in torchvision{remedy}")
    is_random, known = name in {*RANDOM, *_CHOICES}, TRANSFORMS if is_own else OF_REFERENCES
    if name not in known and not is_random:
        raise PipelineError(f"{where}: this {'random ' * name.startswith('Random')}transform is not supported")
    if is_random and walk.side == "serving":
        raise PipelineError(f"{where}: {NOT_SERVED}")
    walk.is_v2 = package.startswith("torchvision.transforms.v2.")
    values = {k: v.value if isinstance(v, Enum) else v for k, v in vars(transform).items() if k[0] != "_"}
    if isinstance(values.get("fill"), Mapping):
        values["fill"] = of_images(values["fill"], walk.data)
    with reading(values, where) as fields:
        fields.ignore("training")
        (known | RANDOM)[name](walk, fields)


def _take_choice(walk: Walk, transform: Any, where: str) -> None:
    """Add ``RandomChoice``, ``RandomApply`` or ``RandomOrder``: lists of ops that all start from the current state."""
    name, numbered = type(transform).__name__, enumerate(transform.transforms)
    branches = []
    for group in [list(numbered)] if name == "RandomApply" else [[each] for each in numbered]:
        branches.append(walk.branch())
        for index, part in group:
            _take(branches[-1], part, f"{where}[{index}]")
    with place(where):
        if name == "RandomApply":
            walk.at_times(branches[0], transform.p)
        elif name == "RandomOrder":
            walk.join(*branches)
            walk.ops.append(RandomOrder(tuple(tuple(each.ops) for each in branches)))
        else:
            walk.choose(branches, [*map(float, getattr(transform, "probabilities", None) or transform.p or ())])


def _finished(walk: Walk, where: str) -> list[Op]:
    """Return all ops, from ``decode`` to ``tensor``."""
    if walk.data == "a PIL image":
        raise PipelineError(f"{where}: the result is a PIL image, but a tensor is required: append ToTensor")
    walk.normalize(0.0, 1.0)
    dtype: Literal["uint8", "float32"] = "uint8" if walk.data == "a uint8 tensor" else "float32"
    for at, op in enumerate(walk.ops):
        if isinstance(op, Boxes):
            if not all(isinstance(each, Boxes | Normalize | RandomErasing) for each in walk.ops[at:]):
                raise PipelineError(
                    f"{where}: SanitizeBoundingBoxes must come after all transforms that move, crop or resize images"
                )
            walk.ops[at] = changed(op, format=walk.boxes)
    return [Decode(apply_exif_orientation=False), *walk.ops, Tensor(dtype=dtype, channels=walk.channels)]
