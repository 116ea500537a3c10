"""The walk over transforms that are made of transforms: the ops so far, and what the data is after them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Self

from pixprep.errors import PipelineError
from pixprep.pipeline.ops import RandomApply, RandomChoice, changed
from pixprep.spec import Side


class Walk:
    """The ops of one side so far; a library's own walk also knows what the data is after them.

    Attributes:
        STATE: Names of the attributes that a transform of some draws alone must not change. Their values are replaced
            and never changed in place, so that a branch shares them.
        side: Side that the transforms are of.
        ops: Ops so far.
    """

    STATE: ClassVar[tuple[str, ...]] = ()

    def __init__(self, side: Side) -> None:
        self.side = side
        self.ops: list[Any] = []

    def branch(self) -> Self:
        """A walk from here, with ops of its own."""
        made = copy(self)
        made.ops = []
        return made

    def join(self, *branches: Walk) -> None:
        """Go on behind branches of which each image takes one, or none.

        Raises:
            PipelineError: A branch has changed what the data is.
        """
        if any(getattr(each, name) != getattr(self, name) for each in branches for name in self.STATE):
            raise PipelineError("changes what the data is in some draws alone: put that behind it")

    def choose(self, branches: Sequence[Walk], weights: Sequence[float]) -> None:
        """Add the choice of one of several branches; equal weights are the op's default."""
        self.join(*branches)
        lists = tuple(tuple(each.ops) for each in branches)
        self.ops.append(RandomChoice(lists, tuple(weights) if len({*weights}) > 1 else None))

    def at_times(self, branch: Walk, p: float) -> None:
        """Add the ops of a branch for a share of the images: one that has a ``p`` by that, others as a list."""
        self.join(branch)
        own = getattr(branch.ops[0], "p", None) if len(branch.ops) == 1 else None
        if own is not None:
            self.ops.append(changed(branch.ops[0], p=p * own))
        elif branch.ops:
            self.ops.append(RandomApply(tuple(branch.ops), p))
