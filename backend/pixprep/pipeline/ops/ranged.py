"""Base class of the ops with numeric fields that are constant or random."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import Fraction, ends, shown
from pixprep.pipeline.ops.op import Drawn, Op, SteadyOp, bare, changed, drawn
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import Span, Words, span_words
from pixprep.plan.steps.levels import LevelStep
from pixprep.spec import Color, Side, as_tuple


def odd(span: Span, uniform: float) -> int:
    """Map a uniform random number in [0, 1) to an odd integer in a range whose ends are odd."""
    return int(span[0]) + 2 * int(uniform * ((span[1] - span[0]) // 2 + 1))


def whole(span: Span, uniform: float) -> int:
    """Map a uniform random number in [0, 1) to an integer in a range."""
    return int(span[0]) + int(uniform * (span[1] - span[0] + 1))


class Ranged(Drawn, SteadyOp, frozen=True, kw_only=True):
    """Base class of ops on pixel values whose numeric fields are constant or are sampled for each image.

    A field in ``ranges`` contains a number, or the minimum and the maximum of a uniform distribution. The op is random,
    and supported in training only, if such a field contains a range, or if ``p`` is less than 1.

    Attributes:
        ranges: For each field with a number or a range, the function that maps a uniform random number to the range.
        phrase: Format string of ``in_words``. ``{field}`` is replaced by the number or the range of a field.
        needs_seed: Whether the op also requires random numbers for noise. Such an op is always random.
    """

    ranges: ClassVar[Mapping[str, Callable[[Span, float], float]]] = {}
    phrase: ClassVar[str] = ""
    needs_seed: ClassVar[bool] = False
    may_add_color: ClassVar[bool] = False
    is_hosts: ClassVar[bool] = True

    p: Fraction = 1.0

    @property
    def is_random(self) -> bool:
        """Whether the result for an image depends on random numbers."""
        return self.needs_seed or self.p < 1 or any(len({*as_tuple(getattr(self, name))}) > 1 for name in self.ranges)

    @property
    def home(self) -> Side | None:  # type: ignore[override]  # a constant of most ops
        return "training" if self.is_random else None

    def check(self) -> None:
        for name in self.ranges:
            low, high = ends(getattr(self, name))
            if low > high:
                raise PipelineError(f'"{name}" must be (low, high) with low <= high, not {shown((low, high))}')

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers: one number for ``p``, one per range, and two for the seed."""
        return -(-(1 + len(self.ranges) + 2 * self.needs_seed) // 4)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample a number for each field: ``{"alpha": 0.25}``. The result is empty if the op is not applied.

        If the op requires noise, the result also contains a seed, two integers below 2^32: ``{"seed": [5, 7]}``.
        """
        u_apply, *u_fields = uniforms(0, self.blocks).ravel().tolist()
        if u_apply >= self.p:
            return {}
        words: dict[str, Any] = {
            name: of(ends(getattr(self, name)), u) for (name, of), u in zip(self.ranges.items(), u_fields, strict=False)
        }
        if self.needs_seed:
            first = len(self.ranges)
            words["seed"] = [int(u * 2**32) for u in u_fields[first : first + 2]]
        return words

    def in_words(self) -> str:
        fields = {name: span_words(ends(getattr(self, name))) for name in self.ranges}
        return self.phrase.format(self, **fields) + (f", in {self.p:g} of the images" if self.p < 1 else "")

    def fixed_ops(self, words: Words) -> list[Op]:
        if not self.is_random:
            return [changed(self, only=None)]
        if self.needs_seed and words:
            return super().fixed_ops(words)
        return [drawn(bare(self), p=1.0, **words)] if words else []

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        if self.is_random and not words:
            return ()
        numbers = {name: ends(getattr(self, name))[0] for name in self.ranges} | {**words}
        numbers.pop("seed", None)
        return drawn(self, **numbers).fixed_steps(words, height, width, color)

    def fixed_steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        """Return the steps for an image of this size; see ``LevelsOp.steps``.

        Each field must contain a single number.
        """
        raise NotImplementedError
