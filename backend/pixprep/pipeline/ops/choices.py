"""Ops that contain other ops and apply a random selection of them to each image, for training.

Such an op consists of parts, which are lists of ops. The random parameters of an image are the indices of the parts
that are applied to it, in order: ``{"chosen": [2]}``. Every op in a part samples its own parameters with its own key,
so they do not depend on the other parts.
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
from pixprep.pipeline.ops.limits import Fraction
from pixprep.pipeline.ops.op import Drawn, ImageOp, LevelsOp, Op, Whether, bare, changed, op_name, put
from pixprep.plan.draws.augments import RandomStep, Uniforms
from pixprep.plan.draws.philox import Words
from pixprep.plan.geometry_steps import Chosen
from pixprep.plan.lowered import Lowered
from pixprep.spec import ImageSpec

MAX_PARTS = 100
Keyed = tuple[Op, str]
"""An op, and the key of its random parameters."""


class Choice(Drawn, ImageOp, frozen=True):
    """Base of the ops that apply a random selection of other ops.

    Attributes:
        is_one_list: Whether all ops together are one part. Otherwise, each entry of ``ops`` is a part.
        ops: Ops, or lists of ops, to choose from.
    """

    is_one_list: ClassVar[bool] = False

    ops: tuple[Any, ...]

    def check(self) -> None:
        if not isinstance(self.ops, list | tuple) or not 1 <= len(self.ops) <= MAX_PARTS:
            raise PipelineError(f'"ops" must be a list of 1 to {MAX_PARTS} ops')
        put(self, "ops", tuple(self._entry(each, f"ops[{index}]") for index, each in enumerate(self.ops)))
        for op in (op for part in self.parts for op in part):
            if not isinstance(op, ImageOp):
                raise PipelineError(f'{op_name(op)} does not transform the image: move it out of "ops"')
            if (op.name, op.from_, op.only) != (None, None, None):
                raise PipelineError(
                    f'{op_name(op)}: "name", "from" and "only" are not supported in the "ops" of another op'
                )
            if op.inputs(ImageSpec()):
                raise PipelineError(f'{op_name(op)} requires an input of the request: move it out of "ops"')

    def _entry(self, entry: object, where: str) -> Op | tuple[Op, ...]:
        """Convert an entry of ``ops`` to an op or a list of ops; ``where`` is its path for messages."""
        if isinstance(entry, Op):
            return entry
        if isinstance(entry, list | tuple) and not self.is_one_list:
            ops = tuple(each if isinstance(each, Op) else read(each, f"{where}[{i}]") for i, each in enumerate(entry))
            return ops[0] if len(ops) == 1 else ops
        return read(entry, where)

    @property
    def parts(self) -> tuple[tuple[Op, ...], ...]:
        """Lists of ops to choose from."""
        if self.is_one_list:
            return (self.ops,)
        return tuple(each if isinstance(each, tuple) else (each,) for each in self.ops)

    @property
    def is_levels(self) -> bool:
        """Return whether all ops change only pixel values, and keep the size of the image."""
        return all(_changes_only_values(op) for part in self.parts for op in part)

    @property
    def count(self) -> int:
        """Number of ``sequences``."""
        return len(self.sequences)

    @property
    def sequences(self) -> Sequence[tuple[int, ...]]:
        """All sequences of part indices that may be chosen for an image."""
        raise NotImplementedError

    def keyed(self, key: str, chosen: Sequence[int]) -> Iterator[Keyed]:
        """Yield the ops of the chosen parts, each with the key of its random parameters."""
        for part in chosen:
            counts: Counter[str] = Counter()
            for op in self.parts[part]:
                yield op, f"{key}.{part}.{op_name(op)}#{counts[op_name(op)]}"
                counts[op_name(op)] += 1

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec unchanged; reject an image that one of the ops does not support.

        Choices between ops that change the geometry are not inferred, because ``pipeline.forks`` replaces them.
        """
        for part in self.parts:
            for op in part:
                assert isinstance(op, ImageOp)
                op.infer(image)
        return image

    def described(self, image: ImageSpec, before: Lowered) -> str:
        parts = (", ".join(described(op, image, before) for op in part) or "nothing" for part in self.parts)
        return f"{self.in_words()}: {'; or '.join(parts)}"

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """Fold a choice between ops on pixel values; ``pipeline.forks`` compiles choices that differ in geometry."""
        assert self.is_levels
        parts = []
        for part in range(len(self.parts)):
            lowered = Lowered(before.color, operators=before.operators)
            for op, each in self.keyed(key, [part]):
                choice, choice_key = as_choice(op, each)
                assert isinstance(choice, ImageOp)
                lowered = choice.lower(lowered, image, choice_key)
            parts.append(lowered.levels)
        return before.do(Chosen(RandomStep(key, bare(self)), tuple(parts)))


class RandomChoice(Choice, frozen=True, tag="random_choice"):
    """Applies one of several ops or lists of ops, chosen at random for each image.

    The op reproduces torchvision v2's ``RandomChoice``, DETR's ``RandomSelect`` and Albumentations' ``OneOf``. The
    lists may produce images of different sizes, and may use different resize filters. The ops after this one are
    applied to the result, whichever list was chosen.

    Args:
        ops: Alternatives. Each is an op, or a list of ops, which may be empty.
        weights: Relative probabilities of the alternatives. By default, all are equally likely.
        p: Probability that one of the alternatives is applied, 0 to 1.

    Example:
        {"op": "random_choice", "ops": [{"op": "random_posterize", "bits": 4}, {"op": "random_equalize"}]}
    """

    weights: tuple[float, ...] | None = None
    p: Fraction = 1.0

    def check(self) -> None:
        super().check()
        weights = self._weights
        if len(weights) != len(self.ops):
            raise PipelineError(
                f'"weights" must contain one number per entry of "ops", {len(self.ops)} in total, not {len(weights)}'
            )
        if not all(isfinite(weight) and weight >= 0 for weight in weights) or not sum(weights):
            raise PipelineError('"weights" must be non-negative numbers with a positive sum')

    @property
    def _weights(self) -> tuple[float, ...]:
        return (1.0,) * len(self.ops) if self.weights is None else tuple(self.weights)

    @property
    def sequences(self) -> Sequence[tuple[int, ...]]:
        possible = [(part,) for part, weight in enumerate(self._weights) if weight] if self.p else []
        return (*possible, *[()] * (self.p < 1))

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        u_part, u_apply, *_ = uniforms(0, 1)[0].tolist()
        if u_apply >= self.p:
            return {"chosen": []}
        *sums, total = accumulate(self._weights)
        return {"chosen": [sum(each <= u_part * total for each in sums)]}

    def in_words(self) -> str:
        some = "" if self.p == 1 else f" to {self.p:g} of the images"
        probabilities = [f"{weight / sum(self._weights):.3g}" for weight in self._weights]
        unique = ", ".join(dict.fromkeys(probabilities))
        return f"apply{some} one of {len(probabilities)}, with probability {unique}"


class RandomApply(Choice, frozen=True, tag="random_apply"):
    """Applies a list of ops with probability ``p``.

    The op reproduces torchvision v2's ``RandomApply``, and Albumentations' ``Sequential`` with a ``p``.

    Args:
        ops: Ops to apply, in this order.
        p: Probability that the ops are applied, 0 to 1.

    Example:
        {"op": "random_apply", "ops": [{"op": "random_gaussian_blur", "kernel_size": 5}], "p": 0.3}
    """

    is_one_list: ClassVar[bool] = True

    p: Fraction = 0.5

    @property
    def sequences(self) -> Sequence[tuple[int, ...]]:
        return (*[(0,)] * (self.p > 0), *[()] * (self.p < 1))

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        return {"chosen": [0] if uniforms(0, 1)[0, 0] < self.p else []}

    def in_words(self) -> str:
        return f"apply to {self.p:g} of the images"


class RandomOrder(Choice, frozen=True, tag="random_order"):
    """Applies several ops or lists of ops in random order.

    The op reproduces torchvision v2's ``RandomOrder``.

    Args:
        ops: Ops to apply. Each entry is an op or a list of ops, whose order is kept.

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
        """Number of blocks of four random numbers, one number per part; their ranks determine the order."""
        return -(-len(self.ops) // 4)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        ranks = uniforms(0, self.blocks).ravel().tolist()
        return {"chosen": sorted(range(len(self.ops)), key=ranks.__getitem__)}

    def in_words(self) -> str:
        return "apply in random order"


class _ApplyWithP(RandomApply, frozen=True, tag="_ApplyWithP"):
    """Applies an op with the probability ``p`` of that op.

    The key of the op's random parameters is the same as for an op with a ``p`` of 1.
    """

    def keyed(self, key: str, chosen: Sequence[int]) -> Iterator[Keyed]:
        for part in chosen:
            yield self.parts[part][0], key.removesuffix(".p")


def as_choice(op: Op, key: str) -> Keyed:
    """Convert an op whose ``p`` is below 1 to an equivalent choice, which has a key of its own. Keep any other op."""
    if isinstance(op, Whether) and op.p < 1:  # type: ignore[attr-defined]  # every subclass defines p
        return _ApplyWithP((changed(op, p=1.0, name=None, from_=None, only=None),), p=op.p), f"{key}.p"  # type: ignore[attr-defined]
    return op, key


def described(op: Op, image: ImageSpec, before: Lowered) -> str:
    """Describe an op as ``Op.described`` does, including its ``p``."""
    return as_choice(op, "")[0].described(image, before)


def fixed_ops(op: Op, key: str, draws: Mapping[str, Words]) -> list[Op]:
    """Return deterministic ops that repeat what an op did to one image; see ``Op.fixed_ops``.

    Args:
        op: Op, which may choose between other ops.
        key: Key of the op's random parameters.
        draws: Random parameters of the image by their keys; see ``Placed.draws``.
    """
    choice, choice_key = as_choice(op, key)
    if isinstance(choice, Choice):
        chosen = draws[choice_key]["chosen"]
        return [
            fixed_op
            for part_op, part_key in choice.keyed(choice_key, chosen)
            for fixed_op in fixed_ops(part_op, part_key, draws)
        ]
    return op.fixed_ops(draws.get(key, {}))


def _changes_only_values(op: Op) -> bool:
    """Return whether an op changes only pixel values, keeps the image size, and has kernels on every device."""
    if isinstance(op, Choice):
        return op.is_levels
    is_special = isinstance(op, Extern | RandomErasing)
    return isinstance(op, LevelsOp) and op.keeps_size and not op.is_hosts and not is_special
