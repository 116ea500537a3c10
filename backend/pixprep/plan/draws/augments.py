"""What all random ops on levels have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from pixprep.plan.draws.philox import F64, Numbers, Words
from pixprep.plan.steps.levels import LevelStep


@dataclass(frozen=True, kw_only=True)
class Augment(ABC):
    """An op on levels whose numbers are drawn, or follow from the size of the image.

    Attributes:
        key: names its numbers; empty: nothing is drawn.
    """

    key: str = ""

    @property
    def blocks(self) -> int:
        """Number of blocks of four numbers it takes."""
        return 0

    @property
    def is_pointwise(self) -> bool:
        """Tell whether each pixel of the result depends on the same pixel alone, whatever is drawn."""
        return False

    @property
    def keeps_places(self) -> bool:
        """Tell whether a mirror may come before or after."""
        return False

    @property
    def moves(self) -> bool:
        """Tell whether it may move pixels, and with them what boxes and masks lie on."""
        return True

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """Draw for an image of this size; JSON holds the result."""
        del height, width, numbers, boxes
        return {}

    @abstractmethod
    def steps(self, words: Words, height: int, width: int) -> tuple[LevelStep, ...]:
        """Steps that the draw makes of it."""
