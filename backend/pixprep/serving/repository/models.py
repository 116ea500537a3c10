"""Defines the inputs and outputs that a model declares, and the problems of a repository."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from pixprep.errors import shown

_MAX_SUGGESTED = 64  # maximum number of names that are compared with a misspelled name and listed in a message


@dataclass(frozen=True)
class Problem:
    """One problem in a model repository.

    Attributes:
        where: Path of the file or directory, relative to the repository.
        what: Description of the problem.
        remedy: Description of the fix, or ``""`` if ``what`` already describes the fix.
    """

    where: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return ": ".join(shown(part) for part in (self.where, self.what, self.remedy) if part)


@dataclass(frozen=True)
class Tensor:
    """One input or output of a model.

    Attributes:
        name: Name of the tensor.
        data_type: Triton's data type, such as ``TYPE_FP32``, or ``""`` if Triton does not support the type.
        shape: Shape, including the batch dimension if ``is_batched``. -1 represents a dynamic dimension. None means
            that the shape is not declared.
        is_optional: Whether a request may omit this input.
        is_batched: Whether the first dimension is the batch dimension.
        dim_names: Dimensions as declared in an ONNX file. A fixed dimension is a number as text.
    """

    name: str
    data_type: str
    shape: tuple[int, ...] | None
    is_optional: bool = False
    is_batched: bool = False
    dim_names: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        shape = "" if self.shape is None else f" {list(self.shape)}"
        return f"{self.data_type or 'of an unsupported type'}{shape}"


@dataclass(frozen=True)
class Declared:
    """Inputs and outputs that a model declares.

    Attributes:
        config: Configuration in its JSON form, including the fields that pixprep derives.
    """

    config: Mapping[str, Any]

    @property
    def max_batch_size(self) -> int:
        """Maximum batch size, or 0 if the model does not support batching."""
        return int(self.config.get("max_batch_size", 0))

    @cached_property
    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Declared tensors by name, under the keys ``input`` and ``output``. Either key may be missing."""
        batch = (-1,) * (self.max_batch_size > 0)
        return {
            side: {
                entry.get("name", ""): Tensor(
                    entry.get("name", ""),
                    entry.get("data_type", "TYPE_INVALID"),
                    (*batch, *map(int, entry.get("dims", []))),
                    entry.get("optional", False),
                    bool(batch),
                )
                for entry in self.config[side]
            }
            for side in ("input", "output")
            if self.config.get(side)
        }


def suggest(name: str, known: Collection[str]) -> str:
    """Return the hint that a message about an unknown name contains: a similar name, or a list of all names."""
    if len(known) > _MAX_SUGGESTED:
        return f"it is not one of {len(known):,} names"
    near = get_close_matches(name, list(known), n=1)
    return f'did you mean "{near[0]}"?' if near else f"available: {', '.join(known) or 'none'}"
