"""Builds a pipeline from imported ops for training and serving, and records the pipeline's origin.

Every importer calls ``assembled`` as its last step.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import msgspec

from pixprep.errors import PipelineError, SetupError
from pixprep.importers.fields import error_prefix
from pixprep.pipeline.file import MAX_OPTION, Origin
from pixprep.pipeline.ops import Letterbox, Normalize, Op, RandomResizedCrop, Resize, Tensor, changed
from pixprep.pipeline.ops.sizes import BySize
from pixprep.pipeline.pipeline import Pipeline
from pixprep.spec import Like, Side

log = logging.getLogger(__name__)

RESIZES = (Resize, Letterbox, RandomResizedCrop, BySize)
UNRECORDED = ("python", "run_python", "name")
"""Options that are not recorded in the pipeline file.

``python`` is the path of an interpreter on this machine, ``run_python`` is the permission to execute a script, and
``Origin.name`` already contains the name.
"""

_EQUIVALENT = {"divide": "divides by 255", "multiply": "multiplies by 1/255"}
"""Values of ``arithmetic`` whose results differ only in the last bit of a float32, with descriptions for messages."""


def assembled(
    ops: Sequence[Op] | None,
    *,
    training: Sequence[Op] | None = None,
    library: str,
    name: str,
    where: str,
    version: str = "",
    like: Like = "pillow",
) -> Pipeline:
    """Build a pipeline from imported ops, and record its origin.

    Args:
        ops: Ops for serving, from ``decode`` to ``tensor``. None means that the pipeline is only for training.
        training: Ops for training, from ``decode`` to ``tensor``. None means that ``ops`` are also used for training.
        library: Library to record in the origin.
        name: Name of the model to record in the origin.
        where: Prefix of error messages.
        version: Version of the library to record in the origin. Default: the installed version, or ``unknown`` if the
            library is not installed.
        like: Profile to record in the origin if no op resizes the image. If an op does, the ``like`` of this op is
            recorded.

    Raises:
        PipelineError: The ops are not a valid pipeline.
    """
    resizes = (op for op in (*(ops or ()), *(training or ())) if isinstance(op, RESIZES))
    profile = next((op.like for op in resizes), like)
    version = version or _installed_version(library)
    with error_prefix(where):
        origin = Origin(library=library, version=version[:200], name=name[:200] or library, profile=profile)
        if ops is None:
            ops = [_only(op, "training") if isinstance(op, Tensor) else op for op in training or ()]
        elif training is not None:
            ops = both_sides(_normalized_alike(training, ops, where), ops)
        return Pipeline(ops, origin=origin)


def _normalized_alike(training: Sequence[Op], serving: Sequence[Op], where: str) -> Sequence[Op]:
    """Return the training ops with the ``arithmetic`` of the serving ops, if ``normalize`` differs in nothing else.

    The change is logged. It is needed when training uses transforms of torchvision v2, which multiply by 1/255, and
    serving uses those of v1, which divide by 255, or vice versa.
    """
    training_ops, serving_ops = ([op for op in ops if isinstance(op, Normalize)] for ops in (training, serving))
    if len(training_ops) != 1 or len(serving_ops) != 1:
        return training
    trained, served = training_ops[0], serving_ops[0]
    if not {trained.arithmetic, served.arithmetic} <= _EQUIVALENT.keys():
        return training
    if trained == served or changed(trained, arithmetic=served.arithmetic) != served:
        return training
    log.warning(
        "%s: training %s, but serving %s, so their float32 results can differ in the last bit. The pipeline uses the "
        '"arithmetic" of serving for both, "%s".',
        where,
        _EQUIVALENT[trained.arithmetic],
        _EQUIVALENT[served.arithmetic],
        served.arithmetic,
    )
    return [served if op is trained else op for op in training]


def both_sides(training: Sequence[Op], serving: Sequence[Op]) -> list[Op]:
    """Merge the ops for training and for serving into one list.

    Ops that are common to training and serving occur once. All other ops get ``only="training"`` or
    ``only="serving"``.

    Raises:
        PipelineError: The ``decode`` ops differ.
    """
    if training[0] != serving[0]:
        raise PipelineError(
            "training and serving decode images differently, but a pipeline decodes each image only once"
        )
    merged: list[Op] = []
    for kind, begin, end, first, last in SequenceMatcher(
        a=list(map(repr, training)), b=list(map(repr, serving)), autojunk=False
    ).get_opcodes():
        if kind == "equal":
            merged += training[begin:end]
            continue
        merged += [_only(op, "training") for op in training[begin:end]]
        merged += [_only(op, "serving") for op in serving[first:last]]
    return merged


def _only(op: Op, side: Side) -> Op:
    return op if op.home == side else changed(op, only=side)


def resize(sides: Sequence[int], **how: Any) -> Resize:
    """Return a resize op. ``sides`` contains either the length of the shorter side, or the height and the width."""
    return Resize(sides[0], **how) if len(sides) == 1 else Resize(height=sides[0], width=sides[1], **how)


def library_module(name: str, what: str, *, otherwise: str = "") -> Any:
    """Import a module of a library that pixprep uses only to look up names, such as ``timm.models``.

    Args:
        name: Name of the module.
        what: Beginning of the error message, which describes the feature that requires the module.
        otherwise: End of the error message, which describes an alternative to installing the library.

    Raises:
        SetupError: The module cannot be imported.
    """
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:  # torchvision raises RuntimeError if it was built for another PyTorch
        library = name.split(".", maxsplit=1)[0]
        raise SetupError(f"{what}, which requires {library} ({error}): run pip install {library}{otherwise}") from None


def _installed_version(distribution: str) -> str:
    """Return the version of a distribution without importing it, or ``unknown`` if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def recorded(pipeline: Pipeline, source: str, options: Mapping[str, Any]) -> Pipeline:
    """Return the pipeline with an origin that records how the pipeline can be imported again.

    The origin records the source and the options of the importer. If the source is a file, only its name is recorded,
    without the folder. Options that JSON cannot represent, such as a ``Compose``, and the options in ``UNRECORDED`` are
    left out.

    Args:
        pipeline: Imported pipeline.
        source: Source that was passed to the importer.
        options: Options that were passed to the importer.
    """
    origin = pipeline.origin
    assert origin is not None
    file, is_code, attribute = source.partition(".py:")
    path = Path(f"{file}.py" if is_code else source)
    name = path.resolve().name + is_code[3:] + attribute if path.exists() else source
    texts = [written_option(*each) for each in options.items() if each[0] not in UNRECORDED and each[1] is not None]
    kept = [each for each in texts if "=" in each and len(each) <= MAX_OPTION]
    return pipeline.with_origin(
        msgspec.structs.replace(origin, source=None if name in ("", origin.name) else name[:200], options=tuple(kept))
    )


def written_option(option: str, value: Any) -> str:
    """Return an option as ``NAME=VALUE``, or only its name if JSON cannot represent the value.

    If the option is ``training`` with the path of a file, only the name of the file is written, without the folder.
    """
    with suppress(TypeError):
        text = json.dumps(Path(value).name if option == "training" and isinstance(value, str) else value)
        is_plain = isinstance(value, str) and read_option(f"{option}={json.loads(text)}")[1] == json.loads(text)
        return f"{option}={json.loads(text) if is_plain else text}"
    return option


def read_option(text: str) -> tuple[str, Any]:
    """Split ``NAME=VALUE`` into name and value. The value is parsed as JSON, or is a string if it is not valid JSON."""
    name, _, value = text.partition("=")
    with suppress(ValueError, RecursionError):
        return name, msgspec.json.decode(value)  # unlike json.loads, it rejects NaN and lone surrogates
    return name, value
