"""Base of all ops.

An op takes the image of the op before it, or of the one that ``from`` names. Sizes are in pixels, height before width.
Coordinates: x to the right, y down, the centre of the first pixel is (0.5, 0.5).

The annotation of a field says its limits: see ``limits``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import force_setattr

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.faults import Called
from pixprep.pipeline.ops.limits import Limit, Pair, need_fill, need_whole_levels
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
"""Every class of an op, as it was made, and those that several of them share; see ``ops.OPS``."""


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", kw_only=True, metaclass=Called):
    """Base of all ops.

    Attributes:
        name: Name that later ops refer to in ``from``. The name of an output is its name in Triton.
        from_: Name of the op whose image this op receives, ``from`` in the file; None: the op before.
        only: Side of the pipeline that has this op; None: both.
        home: Only side that supports ops of this kind; None: both.
        said: Template of the description, see ``described``; ``{0.field}`` is replaced by a field.
    """

    home: ClassVar[Side | None] = None
    said: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        KINDS.append(cls)

    name: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    only: Side | None = None

    def __post_init__(self) -> None:
        if self.home not in (None, self.only or self.home):
            raise PipelineError(f'"only": {op_name(self)} is for {self.home}, and not for {self.only}')
        for field, limit in _limits(type(self)):
            if (value := getattr(self, field)) is not None:
                limit.check(field, value)
        self.check()

    def check(self) -> None:
        """Raise PipelineError if values contradict each other or exceed a limit that no annotation contains."""

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        """Return the inputs that the fields of this op name; ``image`` is the spec of the image that it receives."""
        return ()

    def described(self, image: ImageSpec, before: Lowered) -> str:
        """Describe the op in words, such as ``resize the shorter side to 256 (bilinear, ...)``.

        Args:
            image: Spec of the image that the op returns.
            before: The first op alone, folded.
        """
        return self.said.format(self)

    def fixed(self, words: Words) -> list[Op]:
        """Return ops that apply to every image what this op applied to one image, for ``verify``.

        Args:
            words: Random parameters of the image; see ``Placed.draws``.

        Raises:
            PipelineError: No fixed op is equivalent.
        """
        if self.home is None:
            return [changed(self, only=None)]
        raise PipelineError(f"{op_name(self)}: no fixed op has such margins or boxes: verify the pipeline without it")


class FirstOp(Op, frozen=True):
    """The first op of a pipeline: where its image comes from."""

    def infer(self) -> ImageSpec:
        """The spec of the image: any size."""
        raise NotImplementedError

    def plan(self, **made: Any) -> Plan:
        """The plan of the whole pipeline; ``made`` are its ``outputs``, ``annotations`` and ``inputs``."""
        raise NotImplementedError

    def lower(self, operators: tuple[Operator | str, ...] = ()) -> Lowered:
        """Lower to an empty list of steps, for the ops that follow; ``operators``: that ``extern`` may name."""
        is_reduced = bool(getattr(self, "reduced", False))
        return Lowered(self.infer().color, is_reduced=is_reduced, operators=operators)


class ImageOp(Op, frozen=True):
    """An op that transforms an image."""

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the resulting image; by default, it does not change.

        Raises:
            PipelineError: The op does not accept such an image.
        """
        return image

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """Fold this op into the ops before it.

        Args:
            before: Folded ops whose image this op receives.
            image: Spec of that image.
            key: Key of the random parameters of a random op.

        Raises:
            PipelineError: The op is valid by itself, but cannot be folded with the ops before it.
        """
        raise NotImplementedError

    def described(self, image: ImageSpec, before: Lowered) -> str:
        return ", ".join(self.lower(before, image, op_name(self)).geometry.words())


class LevelsOp(Changing, ImageOp, frozen=True):
    """An op on levels after the geometry; it may have a ``fill``.

    Attributes:
        has_colours: Whether the op rejects images with one channel.
        profiles: rows of the libraries that ``like`` may name, if a GPU has no kernel for some of them.
        may_colour: it may make gray pixels colours, other than by its fill.
    """

    has_colours: ClassVar[bool] = False
    profiles: ClassVar[Mapping[Any, Any]] = {}
    may_colour: ClassVar[bool] = True

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec unchanged; reject normalized values, and channels that the op does not support."""
        if self.has_colours and image.channels != 3:
            raise PipelineError(f"needs red, green and blue, but the image has {image.channels} channel")
        need_whole_levels(image)
        if (fill := getattr(self, "fill", None)) is not None:
            need_fill(fill, image)
        return image

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.do(self.augment(before, image, key))

    def augment(self, before: Lowered, image: ImageSpec, key: str) -> Augment:
        """The step of a plan that it is; see ``lower``."""
        source = next(iter(self.inputs(image)), None)
        key = key if source or isinstance(self, Drawn) else ""
        return Augment(key=key, op=bare(self), color=before.color, input=source.name if source else None)

    @property
    def is_hosts(self) -> bool:
        return bool(self.profiles) and self.profiles[self.like].is_hosts  # type: ignore[attr-defined]

    @property
    def keeps_size(self) -> bool:
        """Tell whether the result is as large as the image."""
        return not getattr(self, "expand", False)

    @property
    def keeps_gray(self) -> bool:
        return not self.may_colour and len({*as_tuple(getattr(self, "fill", 0))}) == 1

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        """Return the steps for an image of this size; those of a random op depend on its random parameters."""
        ops = cast("list[LevelsOp]", self.fixed(words))
        return tuple([step for op in ops for step in op.steps({}, height, width, color)])


class SteadyOp(LevelsOp, frozen=True):
    """An op that does the same to the levels of every image: no number is drawn."""


class ColorOp(SteadyOp, frozen=True):
    """An op on levels that is one step, whatever the size of the image."""

    def step(self) -> LevelStep:
        """Steps on the levels."""
        raise NotImplementedError

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.do(self.step())

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        return (self.step(),)


class Drawn(Drawing):
    """A mixin of ops that draw numbers: in training only."""

    __slots__ = ()

    home: ClassVar[Side | None] = "training"


class Whether(Drawn):
    """A mixin of ops that draw, and have a ``p``: how often they are done; see ``choices.whether``."""

    __slots__ = ()


class Sometimes(Drawn):
    """A mixin of ops that do to some of the images, at random, what their other base does to all; they have a ``p``."""

    __slots__ = ()

    blocks: ClassVar[int] = 1  # whether

    def lower(self: Any, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.do(Chosen(RandomStep(key, bare(self)), ((self.step(),),)))

    def draw(self: Any, height: int, width: int, uniforms: Uniforms) -> Words:
        return {"apply": bool(uniforms(0, 1)[0, 0] < self.p)}

    def in_words(self: Any) -> str:
        return f"to {self.p:g} of the images"

    def fixed(self, words: Words) -> list[Op]:
        (kind,) = (base for base in type(self).__bases__ if issubclass(base, Op))
        return [as_kind(kind, self)] if words["apply"] else []


class OutputOp(Op, frozen=True):
    """An op that defines an output and passes its image on unchanged."""

    def infer(self, image: ImageSpec) -> TensorSpec:
        """The spec of the output.

        Raises:
            PipelineError: it does not take such an image.
        """
        raise NotImplementedError

    def lower(self, before: Lowered, spec: TensorSpec) -> OutputPlan:
        """The plan of the output.

        Args:
            before: Folded ops whose image this op receives.
            spec: Spec of the output.

        Raises:
            PipelineError: The op does not fit the ops before it.
        """
        raise NotImplementedError


class AnnotationOp(Op, frozen=True):
    """An op that gives a sample's boxes, points or masks, in a Loader, and passes its image on."""

    def lower(self, before: Lowered, image: ImageSpec) -> AnnotationPlan:
        """The plan of the output, in the image here."""
        raise NotImplementedError

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``; a verified pipeline does not contain annotations."""
        return []


def is_on(op: Op, side: Side) -> bool:
    """Tell whether a side of the pipeline has this op."""
    return side == (op.only or op.home or side)


def settle(op: Op, field: str, value: object) -> None:
    """Give a field that was left out the default that follows from other fields."""
    if getattr(op, field) is None:
        put(op, field, value)


def put(op: Op, field: str, value: object) -> None:
    """Write a field while the op is made."""
    force_setattr(op, field, value)


def changed(op: AnOp, **fields: object) -> AnOp:
    """The same op with other values of some fields."""
    return msgspec.structs.replace(op, **fields)


def drawn(op: AnOp, **fields: object) -> AnOp:
    """Return the op with drawn values, unchecked: a drawn canvas may exceed the limits of a file."""
    made: AnOp = op.__copy__()  # type: ignore[attr-defined]  # msgspec has it; a call takes three times as long
    for field, value in fields.items():
        force_setattr(made, field, value)
    return made


def bare(op: AnOp) -> AnOp:
    """The same op, whatever its place in the pipeline."""
    return drawn(op, name=None, from_=None, only=None)


def own_fields(op: object, kind: type[Op] | None = None) -> dict[str, Any]:
    """The fields that an op has, by its kind or by another; not those that every op has."""
    own = (kind or type(op)).__struct_fields__  # type: ignore[attr-defined]
    return {field: getattr(op, field) for field in own if field not in Op.__struct_fields__ and hasattr(op, field)}


def as_kind(kind: type[AnOp], op: object, **fields: object) -> AnOp:
    """An op of another kind with the fields that both have, and these."""
    return kind(**own_fields(op, kind) | fields)


def op_name(op: Op) -> str:
    """The op's name in the file, such as ``center_crop``."""
    return str(op.__struct_config__.tag)


@cache
def _limits(kind: type[Op]) -> tuple[tuple[str, Limit], ...]:
    """Return the limits that the annotations of an op's fields contain."""
    hints, bare = get_type_hints(kind, include_extras=True), get_type_hints(kind)
    found: list[tuple[str, Limit]] = []
    for field in kind.__struct_fields__:
        kinds = [bare[field]] if get_origin(bare[field]) is tuple else get_args(bare[field])
        found += [(field, Pair()) for each in kinds if get_origin(each) is tuple and ... not in get_args(each)]
        for part in (hints[field], *get_args(hints[field])):
            found += [(field, limit) for limit in getattr(part, "__metadata__", ())]
    return tuple(found)
