"""What every importer ends with: the ops as a pipeline, with its origin."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Any

from pixprep.errors import SetupError
from pixprep.importers.fields import place
from pixprep.ops import Letterbox, Op, Resize
from pixprep.pipeline import Pipeline
from pixprep.pipeline_file import Origin
from pixprep.spec import Like


def assembled(
    ops: Sequence[Op], *, library: str, name: str, where: str, version: str = "", like: Like = "pillow"
) -> Pipeline:
    """The pipeline of these ops, with its origin.

    Args:
        ops: from ``decode`` to ``tensor``.
        library: of the origin.
        name: of the origin.
        where: what errors begin with.
        version: of the library; default: of the installed one, ``unknown`` if there is none.
        like: the origin's profile where no resize says whose pixels these are.

    Raises:
        PipelineError: the ops do not go together.
    """
    profile = next((op.like for op in ops if isinstance(op, Resize | Letterbox)), like)
    version = version or _installed_version(library)
    with place(where):
        origin = Origin(library=library, version=version[:200], name=name[:200] or library, profile=profile)
        return Pipeline(ops, origin=origin)


def resize(sides: Sequence[int], **how: Any) -> Resize:
    """To a shorter side, if it is one; else to a height and a width."""
    return Resize(sides[0], **how) if len(sides) == 1 else Resize(height=sides[0], width=sides[1], **how)


def library_module(name: str, what: str, *, otherwise: str = "") -> Any:
    """A module of a library that only names need, such as ``timm.models``.

    Raises:
        SetupError: it cannot be imported: ``what`` needs it.
    """
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:  # RuntimeError: of torchvision, beside a PyTorch of another build
        library = name.split(".", maxsplit=1)[0]
        raise SetupError(f"{what}, which needs {library} ({error}): pip install {library}{otherwise}") from None


def _installed_version(distribution: str) -> str:
    """Found without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"
