"""Base classes of all ops.

The input of an op is the image of the preceding op, or of the op that ``from`` names. Sizes are (height, width) in
pixels. Coordinates are (x, y): x increases to the right and y downwards, and the centre of the upper left pixel is
(0.5, 0.5).

The annotation of a field contains its limits; see ``limits``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import force_setattr

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.faults import OpMeta
from pixprep.pipeline.ops.limits import Limit, Pair, need_8bit_values, need_fill
from pixprep.plan.draws.augments import Augment, Changing, Drawing, RandomStep, Uniforms
from pixprep.plan.draws.philox import Words
from pixprep.plan.geometry_steps import Chosen
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import AnnotationPlan, OutputPlan
from pixprep.plan.plan import Plan
from pixprep.plan.steps.levels import LevelStep
from pixprep.plan.steps.operators import Operator
from pixprep.spec import Color, ImageSpec, InputSpec, Side, TensorSpec, as_tuple

AnOp = TypeVar("AnOp", bound="Op")
KINDS: list[type[Op]] = []
"""All subclasses of ``Op`` in the order of their definition, including base classes, which ``ops.OPS`` omits."""


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", kw_only=True, metaclass=OpMeta):
    """Base class of all ops.

    Attributes:
        name: Name by which the ``from`` of later ops refers to this op. The name of an output is its name in Triton.
        from_: Name of the op whose image this op receives (``from`` in the file). None means the preceding op.
        only: Side of the pipeline that contains this op, training or serving. None means both sides.
        home: Side that ops of this kind are restricted to. None means that both sides support them.
        description: Format string that ``described`` uses. ``{0.field}`` is replaced by the value of a field.
    """

    home: ClassVar[Side | None] = None
    description: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        KINDS.append(cls)

    name: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    only: Side | None = None

    def __post_init__(self) -> None:
        if self.home not in (None, self.only or self.home):
            raise PipelineError(f'"only": {op_name(self)} is supported in {self.home} only, not in {self.only}')
        for field, limit in _limits(type(self)):
            if (value := getattr(self, field)) is not None:
                limit.check(field, value)
        self.check()

    def check(self) -> None:
        """Raise PipelineError if fields contradict each other, or violate a limit that is not in an annotation."""

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        """Return the per-request inputs whose names the fields contain.

        Args:
            image: Spec of the image that the op receives.
        """
        return ()

    def described(self, image: ImageSpec, before: Lowered) -> str:
        """Describe the op in words, such as ``resize the shorter side to 256 (bilinear, ...)``.

        Args:
            image: Spec of the image that the op returns.
            before: Lowered first op of the pipeline.
        """
        return self.description.format(self)

    def fixed_ops(self, words: Words) -> list[Op]:
        """Return deterministic ops that repeat what this op did to one image, for ``pixprep verify``.

        Args:
            words: Random parameters of the image; see ``Placed.draws``.

        Raises:
            PipelineError: No deterministic op is equivalent.
        """
        if self.home is None:
            return [changed(self, only=None)]
        raise PipelineError(
            f"{op_name(self)}: no deterministic op is equivalent to this random op: verify the pipeline without it"
        )


class FirstOp(Op, frozen=True):
    """Base class of the ops that begin a pipeline and specify the kind of its input images."""

    def infer(self) -> ImageSpec:
        """Return the spec of the image, whose size is unknown."""
        raise NotImplementedError

    def plan(self, **parts: Any) -> Plan:
        """Return the plan of the whole pipeline; ``parts`` contains its ``outputs``, ``annotations`` and ``inputs``."""
        raise NotImplementedError

    def lower(self, operators: tuple[Operator | str, ...] = ()) -> Lowered:
        """Lower this op, which has no steps of its own.

        Args:
            operators: Custom operators that ``extern`` may refer to.
        """
        is_reduced = bool(getattr(self, "reduced", False))
        image = self.infer()
        return Lowered(image.color, is_reduced=is_reduced, has_alpha=image.has_alpha, operators=operators)


class ImageOp(Op, frozen=True):
    """Base class of the ops that transform an image."""

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the resulting image. By default, the spec does not change.

        Raises:
            PipelineError: The op does not accept such an image.
        """
        return image

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """Lower this op, and combine it with the lowered ops before it.

        Args:
            before: Lowered ops that produce the image.
            image: Spec of that image.
            key: Key of the random parameters of a random op.

        Raises:
            PipelineError: The op is valid by itself, but not after the ops before it.
        """
        raise NotImplementedError

    def described(self, image: ImageSpec, before: Lowered) -> str:
        return ", ".join(self.lower(before, image, op_name(self)).geometry.words())


class LevelsOp(Changing, ImageOp, frozen=True):
    """Base class of the ops on 8-bit pixel values, which run after the crops and the resize.

    Attributes:
        requires_rgb: Whether the op requires three channels.
        profiles: Profiles of the libraries that ``like`` can select, if the GPU does not support all of them.
        may_add_color: Whether the op can turn gray pixels into coloured ones, apart from its ``fill``.
    """

    requires_rgb: ClassVar[bool] = False
    profiles: ClassVar[Mapping[Any, Any]] = {}
    may_add_color: ClassVar[bool] = True

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec unchanged. Reject normalized images and unsupported numbers of channels."""
        if self.requires_rgb and image.channels != 3:
            raise PipelineError(f"requires an image with three channels, but the image has {image.channels}")
        need_8bit_values(image)
        if (fill := getattr(self, "fill", None)) is not None:
            need_fill(fill, image)
        return image

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.do(self.augment(before, image, key))

    def augment(self, before: Lowered, image: ImageSpec, key: str) -> Augment:
        """Return the step that the op adds to the plan; see ``lower``."""
        source = next(iter(self.inputs(image)), None)
        key = key if source or self.home == "training" else ""
        return Augment(key=key, op=bare(self), color=before.color, input=source.name if source else None)

    @property
    def keeps_size(self) -> bool:
        """Whether the result has the same size as the image."""
        return not getattr(self, "expand", False)

    @property
    def keeps_gray(self) -> bool:
        return not self.may_add_color and len({*as_tuple(getattr(self, "fill", 0))}) == 1

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        """Return the steps for an image of this size. For a random op, they depend on the random parameters."""
        ops = cast("list[LevelsOp]", self.fixed_ops(words))
        return tuple([step for op in ops for step in op.steps({}, height, width, color)])


class SteadyOp(LevelsOp, frozen=True):
    """Base class of the deterministic ops on pixel values."""


class ColorOp(SteadyOp, frozen=True):
    """Base class of the ops that change only pixel values, by one step that is the same for every image size."""

    def step(self) -> LevelStep:
        """Return the step."""
        raise NotImplementedError

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.do(self.step())

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        return (self.step(),)


class Drawn(Drawing):
    """Mixin of the random ops, which are supported in training only."""

    __slots__ = ()

    home: ClassVar[Side | None] = "training"


class Whether(Drawn):
    """Mixin of the random ops with a field ``p``, the probability that the op is applied; see ``choices.as_choice``."""

    __slots__ = ()


class RandomlyApplied(Drawn):
    """Mixin that turns the other base class, a deterministic op, into an op that is applied with probability ``p``.

    The docstring of such a class is one sentence; the fields and the example of the deterministic op are appended.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        (kind,) = (base for base in cls.__bases__ if issubclass(base, Op))
        name = re.sub(r"\B(?=[A-Z])", "_", cls.__name__).lower()
        own = [field for field in kind.__struct_fields__ if field not in Op.__struct_fields__]
        note = "p: Probability that the op is applied, 0 to 1."
        fields = [*(f"{field}: as in ``{op_name(kind)}``." for field in own), note]
        example = (kind.__doc__ or "").partition("Example:\n")[2].strip().replace(f'"{op_name(kind)}"', f'"{name}"')
        cls.__doc__ = "\n    ".join([f"{cls.__doc__}\n\nArgs:", *fields]) + f"\n\nExample:\n    {example}"

    def lower(self: Any, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.do(Chosen(RandomStep(key, bare(self)), ((self.step(),),)))

    def draw(self: Any, height: int, width: int, uniforms: Uniforms) -> Words:
        return {"apply": bool(uniforms(0, 1)[0, 0] < self.p)}

    def in_words(self: Any) -> str:
        return f"for {self.p:g} of the images"

    def fixed_ops(self, words: Words) -> list[Op]:
        (kind,) = (base for base in type(self).__bases__ if issubclass(base, Op))
        return [as_kind(kind, self)] if words["apply"] else []


class OutputOp(Op, frozen=True):
    """Base class of the ops that define an output. They pass their image on unchanged."""

    def infer(self, image: ImageSpec) -> TensorSpec:
        """Return the spec of the output.

        Raises:
            PipelineError: The op does not accept such an image.
        """
        raise NotImplementedError

    def lower(self, before: Lowered, spec: TensorSpec) -> OutputPlan:
        """Return the plan of the output.

        Args:
            before: Lowered ops that produce the image.
            spec: Spec of the output.

        Raises:
            PipelineError: The op does not fit the ops before it.
        """
        raise NotImplementedError


class AnnotationOp(Op, frozen=True):
    """Base class of the ops that return boxes, points or masks of a Loader's samples. They pass their image on."""

    def lower(self, before: Lowered, image: ImageSpec) -> AnnotationPlan:
        """Return the plan of the output, in the coordinates of the image that this op receives."""
        raise NotImplementedError

    def fixed_ops(self, words: Words) -> list[Op]:
        """Return an empty list, because ``pixprep verify`` does not compare annotations."""
        return []


def is_on(op: Op, side: Side) -> bool:
    """Return whether a side of the pipeline contains this op."""
    return side == (op.only or op.home or side)


def settle(op: Op, field: str, value: object) -> None:
    """Set a field that was omitted to a default that depends on other fields."""
    if getattr(op, field) is None:
        put(op, field, value)


def put(op: Op, field: str, value: object) -> None:
    """Set a field of the frozen op during its construction."""
    force_setattr(op, field, value)


def changed(op: AnOp, **fields: object) -> AnOp:
    """Return a copy of the op with some fields replaced, and check it."""
    return msgspec.structs.replace(op, **fields)


def drawn(op: AnOp, **fields: object) -> AnOp:
    """Return a copy of the op with random values, without a check, because they may exceed the limits of a file."""
    made: AnOp = op.__copy__()  # type: ignore[attr-defined]  # three times as fast as a call
    for field, value in fields.items():
        force_setattr(made, field, value)
    return made


def bare(op: AnOp) -> AnOp:
    """Return a copy of the op without the fields that refer to its position in the pipeline."""
    return drawn(op, name=None, from_=None, only=None)


def own_fields(op: object, kind: type[Op] | None = None) -> dict[str, Any]:
    """Return the fields that an op has in common with ``kind``, without the fields of every op.

    Args:
        op: Op.
        kind: Class of ops. None means the class of ``op``.
    """
    own = (kind or type(op)).__struct_fields__  # type: ignore[attr-defined]
    return {field: getattr(op, field) for field in own if field not in Op.__struct_fields__ and hasattr(op, field)}


def as_kind(kind: type[AnOp], op: object, **fields: object) -> AnOp:
    """Return an op of the class ``kind`` with the fields that both classes have in common, and with ``fields``."""
    return kind(**own_fields(op, kind) | fields)


def op_name(op: Op | type[Op]) -> str:
    """Return the type of the op in the file, such as ``center_crop``."""
    return str(op.__struct_config__.tag)


@cache
def _limits(kind: type[Op]) -> tuple[tuple[str, Limit], ...]:
    """Return (field, limit) for each limit in the annotations of an op's fields."""
    hints, bare = get_type_hints(kind, include_extras=True), get_type_hints(kind)
    found: list[tuple[str, Limit]] = []
    for field in kind.__struct_fields__:
        kinds = [bare[field]] if get_origin(bare[field]) is tuple else get_args(bare[field])
        found += [(field, Pair()) for each in kinds if get_origin(each) is tuple and ... not in get_args(each)]
        for part in (hints[field], *get_args(hints[field])):
            found += [(field, limit) for limit in getattr(part, "__metadata__", ())]
    return tuple(found)
