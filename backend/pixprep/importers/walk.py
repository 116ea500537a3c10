"""Walk over nested transforms, which collects the ops and tracks the state of the data after them."""

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
    """The ops of one side so far. A library's own subclass also tracks the state of the data after them.

    Attributes:
        STATE: Names of the attributes that a transform must not change if it applies only to some images. Their values
            are replaced and never modified in place, so that branches can share them.
        side: Side that the transforms belong to.
        ops: Ops so far.
    """

    STATE: ClassVar[tuple[str, ...]] = ()

    def __init__(self, side: Side) -> None:
        self.side = side
        self.ops: list[Any] = []

    def branch(self) -> Self:
        """Return a walk that starts in the same state and has its own list of ops."""
        made = copy(self)
        made.ops = []
        return made

    def join(self, *branches: Walk) -> None:
        """Continue after branches. Each image goes through at most one of them.

        Raises:
            PipelineError: A branch has changed the state of the data.
        """
        if any(getattr(each, name) != getattr(self, name) for each in branches for name in self.STATE):
            raise PipelineError(
                "changes the type or the layout of the data only for some images, which is not supported: "
                "apply that change after the random transform"
            )

    def choose(self, branches: Sequence[Walk], weights: Sequence[float]) -> None:
        """Add a random choice between several branches. Equal weights are written as the op's default."""
        self.join(*branches)
        lists = tuple(tuple(each.ops) for each in branches)
        self.ops.append(RandomChoice(lists, tuple(weights) if len({*weights}) > 1 else None))

    def at_times(self, branch: Walk, p: float) -> None:
        """Add the ops of a branch with probability ``p``: a single op with its own ``p``, or a list."""
        self.join(branch)
        own = getattr(branch.ops[0], "p", None) if len(branch.ops) == 1 else None
        if own is not None:
            self.ops.append(changed(branch.ops[0], p=p * own))
        elif branch.ops:
            self.ops.append(RandomApply(tuple(branch.ops), p))
