"""Last step of every importer, which builds a pipeline with its origin from the ops of one or both sides."""

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
from pixprep.importers.fields import place
from pixprep.pipeline.file import MAX_OPTION, Origin
from pixprep.pipeline.ops import (
    Letterbox,
    Normalize,
    Op,
    RandomResizedCrop,
    Resize,
    ResizeToPatches,
    ResizeToPixels,
    Tensor,
    changed,
)
from pixprep.pipeline.pipeline import Pipeline
from pixprep.spec import Like, Side

log = logging.getLogger(__name__)

RESIZES = (Resize, Letterbox, RandomResizedCrop, ResizeToPixels, ResizeToPatches)
UNRECORDED = ("python", "run_python", "name")
"""Options that no pipeline file records.

They are a program of this machine, the permission to run one, and the name, which ``Origin.name`` already contains.
"""

_LAST_BIT = {"divide": "divides by 255", "multiply": "multiplies by 1/255"}
"""Variants of one formula whose float32 results differ only by rounding."""


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
    """Return the pipeline of these ops, with its origin.

    Args:
        ops: Ops from ``decode`` to ``tensor``, for the serving side or for both sides. None: build only a training
            side.
        training: Ops of the training side, in the same form. None: the training side does not exist or equals ``ops``.
        library: Library that the origin records.
        name: Name that the origin records.
        where: Prefix of error messages.
        version: Version of the library. Default: the installed version, or ``unknown`` if it is not installed.
        like: Profile that the origin records if no resize determines the library whose pixel values these are.

    Raises:
        PipelineError: The ops are not compatible.
    """
    resizes = (op for op in (*(ops or ()), *(training or ())) if isinstance(op, RESIZES))
    profile = next((op.like for op in resizes), like)
    version = version or _installed_version(library)
    with place(where):
        origin = Origin(library=library, version=version[:200], name=name[:200] or library, profile=profile)
        if ops is None:
            ops = [_only(op, "training") if isinstance(op, Tensor) else op for op in training or ()]
        elif training is not None:
            ops = both_sides(_normalized_alike(training, ops, where), ops)
        return Pipeline(ops, origin=origin)


def _normalized_alike(training: Sequence[Op], serving: Sequence[Op], where: str) -> Sequence[Op]:
    """Return the training ops with serving's arithmetic if their ``normalize`` ops differ only in it, and log this.

    torchvision's v1 divides by 255, and its v2 multiplies by 1/255.
    """
    ours, theirs = ([op for op in ops if isinstance(op, Normalize)] for ops in (training, serving))
    if len(ours) != 1 or len(theirs) != 1 or not {ours[0].arithmetic, theirs[0].arithmetic} <= _LAST_BIT.keys():
        return training
    trained, served = ours[0], theirs[0]
    if trained == served or changed(trained, arithmetic=served.arithmetic) != served:
        return training
    log.warning(
        "%s: training %s but serving %s, so their float32 results can differ in the last bit. Both sides of the "
        'pipeline use the "arithmetic" of serving, "%s".',
        where,
        _LAST_BIT[trained.arithmetic],
        _LAST_BIT[served.arithmetic],
        served.arithmetic,
    )
    return [served if op is trained else op for op in training]


def both_sides(training: Sequence[Op], serving: Sequence[Op]) -> list[Op]:
    """Merge the ops of both sides into one list: common ops once, all others with ``only`` for their side.

    Raises:
        PipelineError: The sides decode differently.
    """
    if training[0] != serving[0]:
        raise PipelineError(
            "training and serving decode images differently, but a pipeline decodes each image only once"
        )
    made: list[Op] = []
    for kind, begin, end, first, last in SequenceMatcher(
        a=list(map(repr, training)), b=list(map(repr, serving)), autojunk=False
    ).get_opcodes():
        if kind == "equal":
            made += training[begin:end]
            continue
        made += [_only(op, "training") for op in training[begin:end]]
        made += [_only(op, "serving") for op in serving[first:last]]
    return made


def _only(op: Op, side: Side) -> Op:
    return op if op.home == side else changed(op, only=side)


def resize(sides: Sequence[int], **how: Any) -> Resize:
    """Return a resize to a shorter side for one value, or to a height and a width for two."""
    return Resize(sides[0], **how) if len(sides) == 1 else Resize(height=sides[0], width=sides[1], **how)


def library_module(name: str, what: str, *, otherwise: str = "") -> Any:
    """Import a module of a library that is needed only to look up names, such as ``timm.models``.

    Raises:
        SetupError: The module cannot be imported, and ``what`` needs it.
    """
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:  # torchvision raises RuntimeError with a foreign PyTorch build
        library = name.split(".", maxsplit=1)[0]
        raise SetupError(f"{what}, which requires {library} ({error}): run pip install {library}{otherwise}") from None


def _installed_version(distribution: str) -> str:
    """Return the version of an installed distribution, without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def recorded(pipeline: Pipeline, source: str, options: Mapping[str, Any]) -> Pipeline:
    """Return the pipeline with an origin that records everything that a second import needs.

    The origin records the name of the source's file, without its folder, and the importer's options. Options that JSON
    cannot represent, such as a Compose, are left out, as are the options in ``UNRECORDED``.

    Args:
        pipeline: Imported pipeline.
        source: Source as it was passed to the importer.
        options: Options of the importer.
    """
    origin = pipeline.origin
    assert origin is not None
    file, is_code, attribute = source.partition(".py:")
    path = Path(f"{file}.py" if is_code else source)
    name = path.resolve().name + is_code[3:] + attribute if path.exists() else source
    made = [written_option(*each) for each in options.items() if each[0] not in UNRECORDED and each[1] is not None]
    kept = [each for each in made if "=" in each and len(each) <= MAX_OPTION]
    return pipeline.with_origin(
        msgspec.structs.replace(origin, source=None if name in ("", origin.name) else name[:200], options=tuple(kept))
    )


def written_option(option: str, value: Any) -> str:
    """Return an option as ``NAME=VALUE``, without the folder of a training file.

    If JSON cannot represent the value, return only the name.
    """
    with suppress(TypeError):
        text = json.dumps(Path(value).name if option == "training" and isinstance(value, str) else value)
        is_plain = isinstance(value, str) and read_option(f"{option}={json.loads(text)}")[1] == json.loads(text)
        return f"{option}={json.loads(text) if is_plain else text}"
    return option


def read_option(text: str) -> tuple[str, Any]:
    """Return name and value of ``NAME=VALUE``. The value is parsed as JSON if possible; if not, it is a string."""
    name, _, value = text.partition("=")
    with suppress(ValueError, RecursionError):
        return name, msgspec.json.decode(value)  # unlike json.loads, it rejects NaN and lone surrogates
    return name, value
