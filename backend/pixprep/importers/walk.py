"""Defines the base class of walks over a library's nested transforms.

A walk collects the ops of the transforms, and tracks the state of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar

from pixprep.errors import PipelineError
from pixprep.pipeline.ops import RandomApply, RandomChoice, changed
from pixprep.spec import Side

if TYPE_CHECKING:
    from typing_extensions import Self


class Walk:
    """Ops of the transforms that were visited so far. Subclasses also track the state of the data after these ops.

    Attributes:
        STATE: Names of the attributes with the state of the data, which a transform must not change if it applies only
            to some images. Their values are immutable, so that branches can share them.
        side: Whether the transforms are for training or for serving.
        ops: Ops of the transforms that were visited so far.
    """

    STATE: ClassVar[tuple[str, ...]] = ()

    def __init__(self, side: Side) -> None:
        self.side = side
        self.ops: list[Any] = []

    def branch(self) -> Self:
        """Return a walk that starts in the current state of the data, with an empty list of ops."""
        branch = copy(self)
        branch.ops = []
        return branch

    def join(self, *branches: Walk) -> None:
        """Continue after several branches. Each image goes through at most one of them.

        Raises:
            PipelineError: A branch changed the state of the data, which would then differ between images.
        """
        if any(getattr(each, name) != getattr(self, name) for each in branches for name in self.STATE):
            raise PipelineError(
                "changes the type or the layout of the data only for some images, which is not supported: "
                "apply that change after the random transform"
            )

    def choose(self, branches: Sequence[Walk], weights: Sequence[float]) -> None:
        """Add a random choice between several branches. Equal weights are omitted, because they are the default."""
        self.join(*branches)
        lists = tuple(tuple(each.ops) for each in branches)
        self.ops.append(RandomChoice(lists, tuple(weights) if len({*weights}) > 1 else None))

    def apply_randomly(self, branch: Walk, p: float) -> None:
        """Apply the ops of a branch with probability ``p``.

        If the branch consists of a single op with a field ``p``, the two probabilities are multiplied. All other
        branches become a ``random_apply``.
        """
        self.join(branch)
        own = getattr(branch.ops[0], "p", None) if len(branch.ops) == 1 else None
        if own is not None:
            self.ops.append(changed(branch.ops[0], p=p * own))
        elif branch.ops:
            self.ops.append(RandomApply(tuple(branch.ops), p))
