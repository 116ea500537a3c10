"""Ops that choose, for each image, which of their ops are done to it: in training only.

A draw names parts of the choice: ``{"chosen": [2]}``. What is done to the image is what these parts' ops do, one after
the other; each op draws by a key of its own, so that no other part changes its numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, permutations
from math import factorial, isfinite
from typing import Any, ClassVar

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.entries import read
from pixprep.pipeline.ops.erasing import RandomErasing
from pixprep.pipeline.ops.extern import Extern
from pixprep.pipeline.ops.limits import Share
from pixprep.pipeline.ops.op import Drawn, ImageOp, LevelsOp, Op, Whether, bare, changed, op_name, put
from pixprep.plan.draws.augments import RandomStep, Uniforms
from pixprep.plan.draws.philox import Words
from pixprep.plan.geometry_steps import Chosen
from pixprep.plan.lowered import Lowered
from pixprep.spec import ImageSpec

MAX_PARTS = 100
Keyed = tuple[Op, str]
"""An op, and the key of its numbers."""


class Choice(Drawn, ImageOp, frozen=True):
    """Base of the ops that choose.

    Attributes:
        is_one_list: its ops are one part; else each is a part, or a list that is one.
    """

    is_one_list: ClassVar[bool] = False

    ops: tuple[Any, ...]

    def check(self) -> None:
        if not isinstance(self.ops, list | tuple) or not 1 <= len(self.ops) <= MAX_PARTS:
            raise PipelineError(f'"ops" is a list of 1 to {MAX_PARTS} ops')
        put(self, "ops", tuple(self._entry(each, f"ops[{index}]") for index, each in enumerate(self.ops)))
        for op in (op for part in self.parts for op in part):
            if not isinstance(op, ImageOp):
                raise PipelineError(f"{op_name(op)} does not transform an image: put it outside")
            if (op.name, op.from_, op.only) != (None, None, None):
                raise PipelineError(f'{op_name(op)}: "name", "from" and "only" are for ops outside of a choice')
            if op.inputs(ImageSpec()):
                raise PipelineError(f"{op_name(op)} takes numbers with each image: put it outside")

    def _entry(self, entry: object, where: str) -> Op | tuple[Op, ...]:
        if isinstance(entry, Op):
            return entry
        if isinstance(entry, list | tuple) and not self.is_one_list:
            made = tuple(each if isinstance(each, Op) else read(each, f"{where}[{i}]") for i, each in enumerate(entry))
            return made[0] if len(made) == 1 else made
        return read(entry, where)

    @property
    def parts(self) -> tuple[tuple[Op, ...], ...]:
        """Lists of ops that are chosen from."""
        if self.is_one_list:
            return (self.ops,)
        return tuple(each if isinstance(each, tuple) else (each,) for each in self.ops)

    @property
    def is_levels(self) -> bool:
        """Tell whether all its ops are steps on levels that keep the size, whatever comes before and behind."""
        return all(_is_level(op) for part in self.parts for op in part)

    @property
    def count(self) -> int:
        """Number of ``sequences``."""
        return len(self.sequences)

    @property
    def sequences(self) -> Sequence[tuple[int, ...]]:
        """The sequences of parts that a draw may choose."""
        raise NotImplementedError

    @property
    def blocks(self) -> int:
        """One block."""
        return 1

    def keyed(self, key: str, chosen: Sequence[int]) -> Iterator[Keyed]:
        """The ops of some parts, each with the key of its numbers."""
        for part in chosen:
            counts: Counter[str] = Counter()
            for op in self.parts[part]:
                yield op, f"{key}.{part}.{op_name(op)}#{counts[op_name(op)]}"
                counts[op_name(op)] += 1

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change, if only levels do; refuses an image that one of the ops does not take."""
        for part in self.parts:
            for op in part:
                assert isinstance(op, ImageOp)
                op.infer(image)
        return image

    def described(self, image: ImageSpec, before: Lowered) -> str:
        parts = (", ".join(described(op, image, before) for op in part) or "nothing" for part in self.parts)
        return f"{self.in_words()}: {'; or '.join(parts)}"

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """Fold a choice of steps on levels; ``pipeline.forks`` has those whose parts differ in geometry."""
        assert self.is_levels
        parts = []
        for part in range(len(self.parts)):
            made = Lowered(before.color, operators=before.operators)
            for op, each in self.keyed(key, [part]):
                choice, own = whether(op, each)
                assert isinstance(choice, ImageOp)
                made = choice.lower(made, image, own)
            parts.append(made.levels)
        return before.do(Chosen(RandomStep(key, bare(self)), tuple(parts)))


class RandomChoice(Choice, frozen=True, tag="random_choice"):
    """Applies one of several ops, or lists of ops, chosen at random per image.

    The op equals torchvision v2's ``RandomChoice``, DETR's ``RandomSelect`` and Albumentations' ``OneOf``. The lists
    may produce images of different sizes, and resize with different filters. Later ops apply to the result of each
    list.

    Args:
        ops: Choices: each is an op, or a list of ops that may be empty.
        weights: Relative probabilities of the choices; default: equal.
        p: Probability that one of them is applied, 0 to 1.

    Example:
        {"op": "random_choice", "ops": [{"op": "random_posterize", "bits": 4}, {"op": "random_equalize"}]}
    """

    weights: tuple[float, ...] | None = None
    p: Share = 1.0

    def check(self) -> None:
        super().check()
        weights = self._weights
        if len(weights) != len(self.ops):
            raise PipelineError(f'"weights" is a number for each of "ops", {len(self.ops)}, not {len(weights)}')
        if not all(isfinite(weight) and weight >= 0 for weight in weights) or not sum(weights):
            raise PipelineError('"weights" must be numbers of at least 0, and one over 0')

    @property
    def _weights(self) -> tuple[float, ...]:
        return (1.0,) * len(self.ops) if self.weights is None else tuple(self.weights)

    @property
    def sequences(self) -> Sequence[tuple[int, ...]]:
        likely = [(part,) for part, weight in enumerate(self._weights) if weight] if self.p else []
        return (*likely, *[()] * (self.p < 1))

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        which, whether, *_ = uniforms(0, 1)[0].tolist()
        if whether >= self.p:
            return {"chosen": []}
        *sums, total = accumulate(self._weights)
        return {"chosen": [sum(each <= which * total for each in sums)]}

    def in_words(self) -> str:
        some = "" if self.p == 1 else f"to {self.p:g} of the images "
        shares = [f"{weight / sum(self._weights):.3g}" for weight in self._weights]
        return f"do {some}one of {len(shares)}, each in {', '.join(dict.fromkeys(shares))} of them"


class RandomApply(Choice, frozen=True, tag="random_apply"):
    """Applies a list of ops to some of the images.

    The op equals torchvision v2's ``RandomApply``, and Albumentations' ``Sequential`` with a ``p``. The other images do
    not change.

    Args:
        ops: Ops to apply, in this order.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_apply", "ops": [{"op": "random_gaussian_blur", "kernel_size": 5}], "p": 0.3}
    """

    is_one_list: ClassVar[bool] = True

    p: Share = 0.5

    @property
    def sequences(self) -> Sequence[tuple[int, ...]]:
        return (*[(0,)] * (self.p > 0), *[()] * (self.p < 1))

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        return {"chosen": [0] if uniforms(0, 1)[0, 0] < self.p else []}

    def in_words(self) -> str:
        return f"do to {self.p:g} of the images"


class RandomOrder(Choice, frozen=True, tag="random_order"):
    """Applies several ops, or lists of ops, in an order that is drawn at random per image.

    The op equals torchvision v2's ``RandomOrder``.

    Args:
        ops: Ops to apply: each is an op or a list of ops.

    Example:
        {"op": "random_order", "ops": [{"op": "random_autocontrast"}, {"op": "random_equalize"}]}
    """

    @property
    def count(self) -> int:
        return factorial(len(self.ops))

    @property
    def sequences(self) -> Sequence[tuple[int, ...]]:
        return tuple(permutations(range(len(self.ops))))

    @property
    def blocks(self) -> int:
        """A number for each part: its rank."""
        return -(-len(self.ops) // 4)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        ranks = uniforms(0, self.blocks).ravel().tolist()
        return {"chosen": sorted(range(len(self.ops)), key=ranks.__getitem__)}

    def in_words(self) -> str:
        return "do in random order"


class _Whether(RandomApply, frozen=True, tag="_Whether"):
    """An op with a ``p``: it keeps the key of its numbers, whether it is done to all images or to some."""

    def keyed(self, key: str, chosen: Sequence[int]) -> Iterator[Keyed]:
        for part in chosen:
            yield self.parts[part][0], key.removesuffix(".p")


def whether(op: Op, key: str) -> Keyed:
    """An op whose ``p`` is below 1 as the choice that it is, and the key of that; any other as it is."""
    if isinstance(op, Whether) and op.p < 1:  # type: ignore[attr-defined]  # each has one
        return _Whether((changed(op, p=1.0, name=None, from_=None, only=None),), p=op.p), f"{key}.p"  # type: ignore[attr-defined]
    return op, key


def described(op: Op, image: ImageSpec, before: Lowered) -> str:
    """See ``Op.described``: of an op whose ``p`` is below 1, that it is a choice, too."""
    return whether(op, "")[0].described(image, before)


def fixed(op: Op, key: str, draws: Mapping[str, Words]) -> list[Op]:
    """The ops that do to every image what an op did to one: see ``Op.fixed``.

    Args:
        op: of the key ``key``.
        key: names its numbers.
        draws: of the image: see ``Placed.draws``.
    """
    choice, own = whether(op, key)
    if isinstance(choice, Choice):
        chosen = draws[own]["chosen"]
        return [made for part, each in choice.keyed(own, chosen) for made in fixed(part, each, draws)]
    return op.fixed(draws.get(key, {}))


def _is_level(op: Op) -> bool:
    """Tell whether an op is steps on levels that keep the size, and that each device has in its kernels."""
    if isinstance(op, Choice):
        return op.is_levels
    is_apart = isinstance(op, Extern | RandomErasing)
    return isinstance(op, LevelsOp) and op.keeps_size and not op.is_hosts and not is_apart
