"""Tensors that a model declares, and problems of its files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from pixprep.errors import shown

_MAX_SUGGESTED = 64  # maximum number of names that are compared with a mistyped one and listed in a message


@dataclass(frozen=True)
class Problem:
    """One problem of a repository.

    Attributes:
        where: Path of the file or directory inside the repository.
        what: Description of the problem.
        remedy: Fix of the problem; ``""`` if ``what`` contains it.
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
        name: Name in the model's file.
        data_type: Triton's data type, such as ``TYPE_FP32``; ``""`` if Triton does not support its type.
        shape: Shape, with the batch first if there is one; -1 for a variable length; None if the file does not declare
            it.
        is_optional: Whether a request may omit this input.
        is_batched: Whether the first length is the batch size.
        words: Name or number of each length in an ONNX file.
    """

    name: str
    data_type: str
    shape: tuple[int, ...] | None
    is_optional: bool = False
    is_batched: bool = False
    words: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        shape = "" if self.shape is None else f" {list(self.shape)}"
        return f"{self.data_type or 'no tensor'}{shape}"


@dataclass(frozen=True)
class Declared:
    """Inputs and outputs that a model declares.

    Attributes:
        config: Configuration in its JSON form, with everything filled in that pixprep derives.
    """

    config: Mapping[str, Any]

    @property
    def max_batch_size(self) -> int:
        """Maximum size of a batch; 0 if the model does not take batches."""
        return int(self.config.get("max_batch_size", 0))

    @cached_property
    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The declared tensors by ``input`` or ``output`` and name; without a side that only the backend knows."""
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
    """Suggestion of the closest known name, or else a list of all."""
    if len(known) > _MAX_SUGGESTED:
        return f"it is none of {len(known):,} names"
    near = get_close_matches(name, list(known), n=1)
    return f'did you mean "{near[0]}"?' if near else f"there are {', '.join(known) or 'none'}"
