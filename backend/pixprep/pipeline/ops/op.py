"""Base of all ops.

An op takes the image of the op before it, or of the one that ``from`` names. Sizes are in pixels, height before width.
Coordinates: x to the right, y down, the centre of the first pixel is (0.5, 0.5).

The annotation of a field says its limits: see ``limits``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.faults import Called
from pixprep.pipeline.ops.limits import Limit, Pair, need_fill, need_whole_levels
from pixprep.plan.draws import colors
from pixprep.plan.draws.philox import Words
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import AnnotationPlan, OutputPlan
from pixprep.plan.plan import Plan
from pixprep.plan.steps.levels import LevelStep
from pixprep.plan.steps.operators import Operator
from pixprep.spec import ImageSpec, InputSpec, Side, SideRounding, TensorSpec

Array = npt.NDArray[Any]

AnOp = TypeVar("AnOp", bound="Op")
KINDS: list[type[Op]] = []
"""Every class of an op, as it was made, and those that several of them share; see ``ops.OPS``."""
WHOLE: Mapping[SideRounding, Callable[[float], float]] = {
    "down": np.floor,
    "half_even": np.rint,
    "half_away": lambda value: np.floor(value + 0.5),
    "up": np.ceil,
    "detr": np.floor,
}
"""What a rounding means, for originals that NumPy computes."""


class Libraries(Protocol):
    """The original libraries, as an op asks for them: see ``Op.original`` and ``importers.verify.originals``."""

    def resize(self, op: Any, pixels: Array, /) -> Array:
        """The library that ``like`` names resizes uint8 (height, width, channels)."""

    def recolour(self, op: SteadyOp, pixels: Array, /) -> Array:
        """The library whose twin an op is changes uint8 (height, width, channels)."""


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", kw_only=True, metaclass=Called):
    """Base of all ops.

    Attributes:
        name: what later ops call this one in ``from``; of an output, its name in Triton.
        from_: the op whose image this one takes, ``from`` in the file; None: the op before.
        only: the side of the pipeline that has this op; None: both.
        home: the one side that an op of this kind can be on; None: either.
    """

    home: ClassVar[Side | None] = None

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
        """Raise PipelineError where the values contradict each other, or a limit that no annotation says."""

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        """The numbers that this op takes with each image, where a field names an input; ``image``: what it takes."""
        return ()

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        """Result of the original library for an image, for ``verify``: see docs/importing.md.

        Args:
            pixels: uint8 (height, width, channels), in the order of the pipeline's channels; float32 after a resize
                that rounds nothing.
            libraries: that do it, where NumPy does not.
        """
        return pixels

    def fixed(self, words: Words) -> list[Op]:
        """The ops that do to every image what this one did to one, for ``verify``.

        Args:
            words: what was drawn for the image; see ``Placed.draws``.

        Raises:
            PipelineError: no op does.
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
        """Nothing, before the ops that follow; ``operators``: that ``extern`` may name."""
        is_reduced = bool(getattr(self, "reduced", False))
        return Lowered(self.infer().color, is_reduced=is_reduced, operators=operators)


class ImageOp(Op, frozen=True):
    """An op that makes an image of an image."""

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of its image, which does not change where an op does not say it.

        Raises:
            PipelineError: it does not take such an image.
        """
        return image

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """Fold this op into what comes before it.

        Args:
            before: the ops whose image it takes.
            image: the spec of that image.
            key: of the numbers that a random op draws.

        Raises:
            PipelineError: the op is right by itself, but does not fold with what comes before it.
        """
        raise NotImplementedError

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        """See ``Op.original``; random ops and ``extern`` have none."""
        raise AssertionError(f"{self!r} is compared with nothing")


class LevelsOp(ImageOp, frozen=True):
    """An op on levels after the geometry; it may have a ``fill``."""

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change; refuses values that are no levels, and a ``fill`` of other channels."""
        need_whole_levels(image)
        if (fill := getattr(self, "fill", None)) is not None:
            need_fill(fill, image)
        return image


class SteadyOp(LevelsOp, frozen=True):
    """An op that does the same to the levels of every image: no number is drawn."""

    is_warp: ClassVar[bool] = False
    """Tell whether it moves pixels; its ``fill`` is in the order of the channels."""
    twin_of: ClassVar[str | None] = None
    """The library whose function ``twin`` calls; None: the one that ``like`` names, or Pillow."""

    @property
    def library(self) -> str:
        """The key of the library whose function ``twin`` calls: see ``importers.verify.libraries``."""
        return self.twin_of or str(getattr(self, "like", "pillow"))

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        return libraries.recolour(self, pixels)

    def twin(self, image: Any, library: Any) -> Any:
        """Result of the library's own function for an image, red first.

        Args:
            image: a PIL image, or a tensor of PyTorch (channels, height, width), as ``like`` says.
            library: ``PIL``, or ``torchvision.transforms.v2.functional``.
        """
        raise NotImplementedError


class ColorOp(SteadyOp, frozen=True):
    """An op on levels that is one step, whatever the size of the image."""

    def step(self) -> LevelStep:
        """Steps on the levels."""
        raise NotImplementedError

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.do(self.step())


class Drawn:
    """A mixin of ops that draw numbers: in training only."""

    __slots__ = ()

    home: ClassVar[Side | None] = "training"


class Sometimes(Drawn):
    """A mixin of ops that do to some of the images, at random, what their other base does to all; they have a ``p``."""

    __slots__ = ()

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.do(colors.Sometimes(key=key, p=self.p, those=(self.step(),)))  # type: ignore[attr-defined]

    def fixed(self, words: Words) -> list[Op]:
        (kind,) = (base for base in type(self).__bases__ if issubclass(base, Op))
        return [as_kind(kind, self)] if words["apply"] else []

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        return ImageOp.original(self, pixels, libraries)  # type: ignore[arg-type]


class OutputOp(Op, frozen=True):
    """An op that gives an output, and passes its image on."""

    def infer(self, image: ImageSpec) -> TensorSpec:
        """The spec of the output.

        Raises:
            PipelineError: it does not take such an image.
        """
        raise NotImplementedError

    def lower(self, before: Lowered, spec: TensorSpec) -> OutputPlan:
        """The plan of the output.

        Args:
            before: the ops whose image it takes.
            spec: of the output.

        Raises:
            PipelineError: the ops before it do not go with it.
        """
        raise NotImplementedError


class AnnotationOp(Op, frozen=True):
    """An op that gives a sample's boxes, points or masks, in training, and passes its image on."""

    home: ClassVar[Side | None] = "training"

    def lower(self, before: Lowered, image: ImageSpec) -> AnnotationPlan:
        """The plan of the output, in the image here."""
        raise NotImplementedError

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``: a pipeline that is verified has none."""
        return []


def is_on(op: Op, side: Side) -> bool:
    """Tell whether a side of the pipeline has this op."""
    return side == (op.only or op.home or side)


def settle(op: Op, field: str, value: object) -> None:
    """Give a field that was left out the default that follows from other fields."""
    if getattr(op, field) is None:
        msgspec.structs.force_setattr(op, field, value)


def changed(op: AnOp, **fields: object) -> AnOp:
    """The same op with other values of some fields."""
    return msgspec.structs.replace(op, **fields)


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
    """The limits of a kind's fields, as their annotations say them."""
    hints, bare = get_type_hints(kind, include_extras=True), get_type_hints(kind)
    found: list[tuple[str, Limit]] = []
    for field in kind.__struct_fields__:
        kinds = [bare[field]] if get_origin(bare[field]) is tuple else get_args(bare[field])
        found += [(field, Pair()) for each in kinds if get_origin(each) is tuple and ... not in get_args(each)]
        for part in (hints[field], *get_args(hints[field])):
            found += [(field, limit) for limit in getattr(part, "__metadata__", ())]
    return tuple(found)
