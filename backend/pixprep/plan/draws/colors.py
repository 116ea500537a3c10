"""Ops on levels whose numbers are drawn, or follow from the size of the image, and the level steps that they become.

Each class says which numbers it draws (``words``), and what these make of an image of known size (``steps``). The rules
are torchvision v2's; docs/decisions.md says where they differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pixprep.plan.draws.augments import Augment
from pixprep.plan.draws.philox import F64, Numbers, Span, Words, between, span_words
from pixprep.plan.steps import levels
from pixprep.plan.steps.levels import Blend, Hue, LevelStep, Permute
from pixprep.spec import ColorLike


@dataclass(frozen=True, kw_only=True)
class Jitter(Augment):
    """torchvision's ``ColorJitter``: a factor of each kind, uniform, and their order.

    Attributes:
        brightness, contrast, saturation, hue: from and to; None: not at all.
        like: whose rounding.
        p: how often.
    """

    brightness: Span | None
    contrast: Span | None
    saturation: Span | None
    hue: Span | None
    like: ColorLike
    p: float
    keeps_places: ClassVar[bool] = True
    moves: ClassVar[bool] = False

    @property
    def blocks(self) -> int:
        """Four factors; four ranks of the order; whether, unless it is done to all."""
        return 2 if self.p == 1 else 3

    @property
    def _spans(self) -> dict[str, Span | None]:
        return {name: getattr(self, name) for name in ("brightness", "contrast", "saturation", "hue")}

    @property
    def _shown(self) -> list[str]:
        return [f"{kind} {span_words(span)}" for kind, span in self._spans.items() if span is not None]

    @property
    def is_pointwise(self) -> bool:
        """The mean luma of the contrast is the whole image's."""
        return self.contrast is None

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """The factors in their order: ``{"hue": 0.02, "brightness": 1.1}``; none where nothing is done."""
        del height, width, boxes
        factors, ranks, *more = numbers.blocks(self.key, 0, self.blocks).tolist()
        if more and more[0][0] >= self.p:
            return {}
        drawn = sorted(zip(ranks, self._spans.items(), factors, strict=True), key=lambda each: each[0])
        return {kind: between(span, u) for _, (kind, span), u in drawn if span is not None}

    def __str__(self) -> str:
        some = "" if self.p == 1 else f"{self.p:g} of the images "
        shown = ", ".join(self._shown) or "nothing"
        return f"change {some}at random, in random order, {shown} ({self.like}'s rounding)"

    def steps(self, words: Words, height: int, width: int) -> tuple[LevelStep, ...]:
        """One step each, in the order drawn."""
        del height, width
        return tuple(_jitter(kind, factor, self.like) for kind, factor in words.items())


class Distort(Jitter):
    """torchvision's ``RandomPhotometricDistort``: each kind by ``p``, and the channels in another order."""

    is_pointwise: ClassVar[bool] = False
    blocks: ClassVar[int] = 4  # whether of each kind; four factors; contrast first, whether to permute; three ranks

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """The factors in their order, and the channels: ``{"brightness": 1.1, "hue": 0.02, "channels": [2, 0, 1]}``."""
        del height, width, boxes
        applied, factors, (early, permuted, *_), (*ranks, _) = numbers.blocks(self.key, 0, self.blocks).tolist()
        drawn: dict[str, Any] = {
            kind: between(span, u)
            for whether, (kind, span), u in zip(applied, self._spans.items(), factors, strict=True)
            if span is not None and whether < self.p
        }
        if "contrast" in drawn and early >= 0.5:
            drawn["contrast"] = drawn.pop("contrast")
        if permuted < self.p:
            drawn["channels"] = sorted(range(3), key=ranks.__getitem__)
        return drawn

    def __str__(self) -> str:
        shown = ", ".join([*self._shown, "permute channels"])
        return f"to {self.p:g} of the images each: {shown} ({self.like}'s rounding)"


def _jitter(kind: str, factor: Any, like: ColorLike) -> LevelStep:
    if kind == "channels":
        return Permute(tuple(factor))
    if kind == "brightness":
        return levels.brightness(factor, like)
    if kind == "hue":
        return Hue(factor, like)
    return Blend("mean" if kind == "contrast" else "own", factor, like)


@dataclass(frozen=True, kw_only=True)
class Sometimes(Augment):
    """Steps that are done to some of the images.

    Attributes:
        p: how often.
        those: what is done.
    """

    p: float
    those: tuple[LevelStep, ...]
    blocks: ClassVar[int] = 1  # whether

    @property
    def is_pointwise(self) -> bool:
        """Tell whether all steps are."""
        return all(levels.is_pointwise(step) for step in self.those)

    @property
    def keeps_places(self) -> bool:
        """Tell whether all steps do."""
        return all(levels.keeps_places(step) for step in self.those)

    @property
    def moves(self) -> bool:
        """Tell whether a step does."""
        return any(levels.moves(step) for step in self.those)

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """Whether."""
        del height, width, boxes
        return {"apply": bool(numbers.blocks(self.key, 0, 1)[0, 0] < self.p)}

    def __str__(self) -> str:
        return f"to {self.p:g} of the images: {', '.join(map(str, self.those))}"

    def steps(self, words: Words, height: int, width: int) -> tuple[LevelStep, ...]:
        """Give all steps, or none."""
        del height, width
        return self.those if words["apply"] else ()
