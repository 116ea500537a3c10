"""Base of all ops, and checks that several of them make.

An op takes the image of the op before it, or of the one that ``from`` names. Sizes are in pixels, height before width.
Coordinates: x to the right, y down, the centre of the first pixel is (0.5, 0.5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from pixprep.draws import colors
from pixprep.draws.philox import Words
from pixprep.errors import PipelineError
from pixprep.ops.faults import Called
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import AnnotationPlan, OutputPlan
from pixprep.plan.plan import Plan
from pixprep.spec import Fill, ImageSpec, InputSpec, Reals, Side, SideRounding, TensorSpec, as_tuple
from pixprep.steps.levels import LevelStep
from pixprep.steps.operators import Operator

Array = npt.NDArray[Any]

_COLORS = {
    "black": "0",
    "white": "255",
    "gray": "128",
    "grey": "128",
    "silver": "192",
    "red": "[255, 0, 0]",
    "green": "[0, 128, 0]",
    "lime": "[0, 255, 0]",
    "blue": "[0, 0, 255]",
    "navy": "[0, 0, 128]",
    "yellow": "[255, 255, 0]",
    "cyan": "[0, 255, 255]",
    "magenta": "[255, 0, 255]",
    "orange": "[255, 165, 0]",
    "purple": "[128, 0, 128]",
}
"""Names of HTML's colours, and their levels: red, green, blue."""

MAX_SIDE = 16384
MAX_RATIO = 1000.0
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
    """The original libraries, as an op asks for them: see ``Op.original`` and ``verify.originals``."""

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
        self.check()

    def check(self) -> None:
        """Raise PipelineError where the values contradict each other or a limit."""

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        """The numbers that this op takes with each image, where a field names an input; ``image``: what it takes."""
        del image
        return ()

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        """Result of the original library for an image, for ``verify``: see docs/importing.md.

        Args:
            pixels: uint8 (height, width, channels), in the order of the pipeline's channels; float32 after a resize
                that rounds nothing.
            libraries: that do it, where NumPy does not.
        """
        del libraries
        return pixels

    def fixed(self, words: Words) -> list[Op]:
        """The ops that do to every image what this one did to one, for ``verify``.

        Args:
            words: what was drawn for the image; see ``Placed.draws``.

        Raises:
            PipelineError: no op does.
        """
        del words
        if self.home is None:
            return [changed(self, only=None)]
        raise PipelineError(f"{op_name(self)}: no fixed op has such margins or boxes: verify the pipeline without it")


class FirstOp(Op, frozen=True):
    """The first op of a pipeline: where its image comes from."""

    def infer(self) -> ImageSpec:
        """The spec of the image."""
        raise NotImplementedError

    def lower(self, operators: tuple[Operator | str, ...] = ()) -> Lowered:
        """Nothing, before the ops that follow.

        Args:
            operators: that ``extern`` may name.
        """
        raise NotImplementedError

    def plan(
        self,
        outputs: Mapping[str, OutputPlan],
        annotations: Mapping[str, AnnotationPlan],
        inputs: Mapping[str, InputSpec],
    ) -> Plan:
        """The plan of the whole pipeline, whose outputs have theirs."""
        raise NotImplementedError


class ImageOp(Op, frozen=True):
    """An op that makes an image of an image."""

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of its image.

        Raises:
            PipelineError: it does not take such an image.
        """
        raise NotImplementedError

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
        del pixels, libraries
        raise AssertionError(f"{self!r} is compared with nothing")


class SteadyOp(ImageOp, frozen=True):
    """An op that does the same to the levels of every image: no number is drawn."""

    is_warp: ClassVar[bool] = False
    """Tell whether it moves pixels; its ``fill`` is in the order of the channels."""

    @property
    def library(self) -> str:
        """The key of the library whose function ``twin`` calls: see ``verify.libraries``."""
        return str(getattr(self, "like", "pillow"))

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        """See ``Op.original``."""
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

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change; refuses values that are no levels."""
        need_whole_levels(image)
        return image

    def step(self) -> LevelStep:
        """Steps on the levels."""
        raise NotImplementedError

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image, key
        return before.do(self.step())


class Sometimes:
    """A mixin of ops that do to some of the images, at random, what their other base does to all; they have a ``p``."""

    __slots__ = ()

    home: ClassVar[Side | None] = "training"

    def check(self) -> None:
        """See ``Op.check``."""
        super().check()  # type: ignore[misc]
        check_range("p", self.p, 0, 1)  # type: ignore[attr-defined]

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        return before.do(colors.Sometimes(key=key, p=self.p, those=(self.step(),)))  # type: ignore[attr-defined]

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``."""
        (kind,) = (base for base in type(self).__bases__ if issubclass(base, Op))
        own = [field for field in kind.__struct_fields__ if field not in Op.__struct_fields__]
        return [kind(**{field: getattr(self, field) for field in own})] if words["apply"] else []

    def original(self, pixels: Array, libraries: Libraries) -> Array:
        """See ``ImageOp.original``."""
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

    def lower(self, before: Lowered, image: ImageSpec) -> AnnotationPlan:
        """The plan of the output, in the image here."""
        raise NotImplementedError

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``: a pipeline that is verified has none."""
        del words
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


def op_name(op: Op) -> str:
    """The op's name in the file, such as ``center_crop``."""
    return str(op.__struct_config__.tag)


def shown(value: Reals) -> str:
    """The numbers of a field, as a message shows them."""
    values = as_tuple(value)
    return ", ".join([*(f"{v:g}" for v in values[:4]), *["..."] * (len(values) > 4)])


def check_side(name: str, value: int) -> None:
    """Raise PipelineError where a side has no pixel, or too many."""
    if not 1 <= value <= MAX_SIDE:
        raise PipelineError(f'"{name}" must be 1 to {MAX_SIDE} pixels, not {value}')


def check_range(name: str, value: float, least: float, most: float) -> None:
    """Raise PipelineError where a number lies outside."""
    if not least <= value <= most:
        raise PipelineError(f'"{name}" must be {least:g} to {most:g}, not {value:g}')


def check_ratio(ratio: tuple[float, float]) -> None:
    """Raise PipelineError unless the ratio of two sides, from and to, rises and is one that a photo could have."""
    if not 1 / MAX_RATIO <= ratio[0] <= ratio[1] <= MAX_RATIO:
        raise PipelineError(
            f'"ratio" must rise from {1 / MAX_RATIO:g} to {MAX_RATIO:g} at most, not {shown(tuple(ratio))}'
        )


def check_sides(height: int | None, width: int | None) -> None:
    """``check_side`` of both, which must be given."""
    assert height is not None
    assert width is not None
    check_side("height", height)
    check_side("width", width)


def check_fill(fill: Fill) -> None:
    """Raise PipelineError where a colour has a level outside 0 to 255, or is a word that hardly is an input's name."""
    if isinstance(fill, str):
        if levels := _COLORS.get(fill.lower()):
            raise PipelineError(
                f'"fill" is levels, or the name of an input: for {fill} write {levels}; an input needs another name'
            )
        return
    for value in as_tuple(fill):
        if not 0 <= value <= 255:
            raise PipelineError(f'"fill" must be 0 to 255, not {shown(fill)}')


def need_channels(name: str, value: Reals, image: ImageSpec) -> None:
    """Raise PipelineError unless a field has one number, or one for each channel of the image."""
    count = len(as_tuple(value))
    if count not in (1, image.channels):
        raise PipelineError(
            f'"{name}" has {count} values, but the image has {image.channels} channel{"s" * (image.channels > 1)}'
        )


def need_fill(fill: Fill, image: ImageSpec) -> None:
    """``need_channels`` of a colour; an input has a level for each."""
    if not isinstance(fill, str):
        need_channels("fill", fill, image)


def fill_input(fill: Fill, image: ImageSpec) -> tuple[InputSpec, ...]:
    """The input that says a colour, if one does."""
    return (InputSpec(name=fill, kind="color", count=image.channels),) if isinstance(fill, str) else ()


def need_levels(image: ImageSpec) -> None:
    """Refuse normalized values, where no level is what it was."""
    if image.values == "normalized":
        raise PipelineError("must come before normalize: it works on the levels 0 to 255")


def need_whole_levels(image: ImageSpec) -> None:
    """Refuse values that are no levels, normalized or of a resize that rounds nothing."""
    need_levels(image)
    if image.values == "real":
        raise PipelineError('works on whole levels, and the resize before it rounds nothing: write "like": "pillow"')
