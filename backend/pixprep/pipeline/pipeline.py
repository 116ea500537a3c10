"""Pipeline: an immutable graph of ops, checked, with every shape known, and compiled to its plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError
from pixprep.files import write
from pixprep.names import explained
from pixprep.pipeline import file
from pixprep.pipeline.file import Origin
from pixprep.pipeline.forks import compiled
from pixprep.pipeline.ops import (
    AnnotationOp,
    Decode,
    DecodeVideo,
    Extern,
    Op,
    OpticalFlow,
    Pixels,
    Tensor,
    changed,
    is_on,
    op_name,
)
from pixprep.pipeline.walk import Node, Output, Walked, at, at_place, meaning, n_bytes
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.plan import Plan
from pixprep.plan.steps.finding import listed
from pixprep.plan.steps.operators import Operator, OperatorCall
from pixprep.registry import HTML, load
from pixprep.spec import ImageSpec, InputSpec, Side

SIDES: tuple[Side, ...] = ("serving", "training")
_PLACES = ("pipeline.json", "1/pipeline.json", "*/1/pipeline.json")
"""Paths of pipeline files, relative to the folder of a version, of a model, and of a repository."""


class Pipeline:
    """A checked graph of ops, as the user wrote it.

    >>> import pixprep as pp
    >>> pipeline = pp.Pipeline([pp.decode(), pp.resize(256), pp.center_crop(224), pp.tensor()])
    >>> print(pipeline.outputs["tensor"].spec)
    float32 [3, 224, 224] chw, values 0..255

    A pipeline has two sides, ``training`` and ``serving``. An op is on both sides, unless its ``only`` names one side,
    or its kind exists on one side only. The constructor checks both sides, and compares them: see
    docs/pipeline-file.md.

    Args:
        ops: Ops in the order in which they run. The first is ``decode`` or ``pixels``, and at least one is ``tensor``.
            A custom operator is added by its call.
        origin: Origin of an imported pipeline.
        operators: Custom operators that ops of the kind ``extern`` refer to. An installed operator that is allowed is
            given by its name.

    Raises:
        PipelineError: An op is invalid. The message names it by its index, ``ops[2] "tensor": …``.

    Attributes:
        ops: Ops of both sides with their ``only``, every field checked: ``Pipeline(pipeline.ops)`` has both sides.
        side: Side that the attributes below describe: ``serving``, or ``training`` if the pipeline has no serving side
            or comes from ``for_training``.
        side_ops: Ops of this side.
        nodes: Ops of this side in their order, with the spec of each result.
        origin: Origin that the constructor received.
        operators: Custom operators that the constructor received, and those of the calls.
        images: Spec of the image that each op returns.
        outputs: Outputs of the pipeline by name, in the order of the ops.
        inputs: Inputs that a request contains in addition to the image, by name, in the order of the ops.
        plan: Compiled plan.
    """

    @explained({}, "the ops are one list, such as [decode(), tensor()]")
    def __init__(
        self,
        ops: Sequence[Op | OperatorCall],
        *,
        origin: Origin | None = None,
        operators: Sequence[Operator | str] = (),
    ) -> None:
        if isinstance(ops, Op | OperatorCall | str | Path):
            raise PipelineError("ops: a list such as [decode(), tensor()]; pixprep.load(path) reads a pipeline file")
        known = [*listed(operators)]
        self._make([checked(index, each, known) for index, each in enumerate(ops)], origin, known)

    def _make(self, ops: Sequence[Op], origin: Origin | None, operators: Sequence[Operator | str]) -> None:
        """Connect, infer and compile ops whose fields are already checked."""
        self.ops: tuple[Op, ...] = tuple(ops)
        self.origin = origin
        self.operators = tuple(dict.fromkeys(listed(operators)))
        self._walked: dict[Side, Walked] = {}
        with_tensor = [side for side in SIDES if any(isinstance(op, Tensor) and is_on(op, side) for op in ops)]
        if not with_tensor or all(is_on(op, side) for op in ops for side in SIDES):
            self._walked = dict.fromkeys(SIDES, compiled(enumerate(ops), self.operators))
        else:
            for side in with_tensor:
                these = [(index, op) for index, op in enumerate(ops) if is_on(op, side)]
                hint = _size_hint([op for op in ops if not is_on(op, side)], side)
                of_side = partial(compiled, operators=self.operators, where=f"in {side}: ", size_hint=hint)
                self._walked[side] = of_side(these) if side == "training" else _served(these, of_side)
            if len(with_tensor) == 2:
                _check_alike(self._walked["training"], self._walked["serving"])
        every = [node for walked in self._walked.values() for node in walked.nodes]
        for index, op in enumerate(ops):
            if isinstance(op, Tensor):
                with at(index, op):
                    op.check_padding([node.image for node in every if node.index == index])
        self._turn("serving" if "serving" in self._walked else "training")

    def _turn(self, side: Side) -> None:
        """Set the attributes that describe a side."""
        walked = self._walked[side]
        self.side: Side = side
        self.nodes: tuple[Node, ...] = walked.nodes
        self.side_ops: tuple[Op, ...] = tuple(node.op for node in walked.nodes)
        self.images: tuple[ImageSpec, ...] = tuple(node.image for node in walked.nodes)
        self.outputs: dict[str, Output] = walked.outputs
        self.plan: Plan = walked.plan
        self.inputs: Mapping[str, InputSpec] = walked.plan.inputs

    def example_inputs(self, count: int = 1) -> dict[str, list[list[float]]]:
        """Example inputs with one row per image: the whole image, not mirrored, zeros."""
        return {name: [spec.example] * count for name, spec in self.inputs.items()}

    def inserting(self, *ops: Op | OperatorCall, before: str | int = "tensor") -> Pipeline:
        """Return this pipeline with further ops, which are on both sides unless their ``only`` names one.

        >>> segmenting = pipeline.inserting(pp.mask(), before="tensor")            # doctest: +SKIP

        Args:
            *ops: Ops in their order.
            before: Name or kind of the op that follows them, or its place in ``ops``; -1 is the last place.

        Raises:
            PipelineError: no op, or more than one, is called so; or the ops do not go together.
        """
        named = [index for index, op in enumerate(self.ops) if before in (op.name, op_name(op))]
        count = len(self.ops)
        places = [i for i in (before, before + count) if 0 <= i < count] if isinstance(before, int) else named
        if len(places) != 1:
            known = ", ".join(at_place(index, op) for index, op in enumerate(self.ops) if not named or index in named)
            what = f"several ops: {known}: give a place, such as before={named[-1]}" if named else f"no op: {known}"
            raise PipelineError(f"inserting: before={before!r} names {what}")
        made = [*self.ops[: places[0]], *ops, *self.ops[places[0] :]]
        return Pipeline(made, origin=self.origin, operators=self.operators).at(self.side)

    def for_training(self) -> Pipeline:
        """Return this pipeline with its training side.

        Raises:
            PipelineError: The pipeline does not have this side: every tensor is ``"only": "serving"``.
        """
        return self.at("training")

    def for_serving(self) -> Pipeline:
        """Return this pipeline with its serving side.

        Raises:
            PipelineError: The pipeline does not have this side: every tensor is ``"only": "training"``.
        """
        return self.at("serving")

    def for_files(self) -> Pipeline:
        """Return this pipeline with ``decode`` instead of ``pixels``, so that it accepts encoded files."""
        return self.for_photos() if isinstance(self.side_ops[0], Pixels) else self

    def for_photos(self) -> Pipeline:
        """Return this pipeline with ``decode`` instead of ``pixels`` or ``decode_video``, so that it accepts photos."""
        if isinstance(self.side_ops[0], Decode):
            return self
        ops = [_for_photos(op) for op in self.ops if not isinstance(op, OpticalFlow)]
        other = Pipeline.__new__(Pipeline)
        other._make(ops, self.origin, self.operators)
        return other.at(self.side)

    def with_origin(self, origin: Origin) -> Pipeline:
        """This pipeline with another origin."""
        other = copy(self)
        other.origin = origin
        return other

    @property
    def sides(self) -> tuple[Side, ...]:
        """Sides of this pipeline, the serving side first."""
        return tuple(side for side in SIDES if side in self._walked)

    def at(self, side: Side) -> Pipeline:
        """This pipeline with the side of that name; raises as the two methods above."""
        if side not in self._walked:
            raise PipelineError(f'there is no {side} side: every tensor is "only": "{self.side}"')
        if side == self.side:
            return self
        other = copy(self)
        Pipeline._turn(other, side)
        return other

    @property
    def has_sides(self) -> bool:
        """Tell whether training and serving differ, or one of them is missing."""
        return len(self._walked) < 2 or self._walked["training"] is not self._walked["serving"]

    @property
    def left_out(self) -> str:
        """Name the ops that this side leaves out, in a sentence; empty if none."""
        ops = enumerate(self.ops)
        silent = AnnotationOp if self.side == "serving" else ()  # a request has none
        places = [at_place(index, op) for index, op in ops if not is_on(op, self.side) and not isinstance(op, silent)]
        return f"{self.side} leaves out {', '.join(places)}" if places else ""

    @property
    def n_bytes(self) -> int:
        """Bytes of all outputs of one image."""
        return n_bytes(self.outputs)

    @classmethod
    def from_json(cls, text: str | bytes, *, operators: Sequence[Operator | str] = ()) -> Pipeline:
        """The pipeline that the text of a pipeline file describes; see ``load``."""
        pipeline = cls.__new__(cls)
        pipeline._make(*file.loads(text), operators)
        return pipeline

    def to_json(self) -> str:
        """Return the canonical text of the pipeline file."""
        return file.dumps(self.ops, self.origin)

    @classmethod
    def load(cls, path: str | Path, *, operators: Sequence[Operator | str] = ()) -> Pipeline:
        """Read a pipeline file.

        Args:
            path: Path of the file.
            operators: Custom operators that the file may refer to. An installed operator that is allowed is given by
                its name. The environment variable ``PIXPREP_ALLOW_OPERATORS`` allows further installed operators.

        Raises:
            PipelineError: The file cannot be read or is invalid. The message begins with the file's name.
            SetupError: An installed operator cannot be loaded.
        """
        path = Path(path)
        try:
            text = file.read_bytes(path, most=file.MAX_BYTES)
        except OSError as error:
            inside = [file for place in _PLACES for file in sorted(path.glob(place))] if path.is_dir() else []
            hint = f": did you mean {inside[0]}?" if inside else ": name the pipeline file in it" * path.is_dir()
            why = f"is a folder{hint}" if path.is_dir() else f"cannot be read: {error.strerror}"
            raise PipelineError(f"{path.name or path}: {why}") from None
        try:
            return cls.from_json(text, operators=operators)
        except PipelineError as error:
            raise PipelineError(f"{path.name}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the pipeline file atomically: a failure never leaves a partial file."""
        write(path, self.to_json())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pipeline):
            return NotImplemented
        return (self.ops, self.origin, self.side) == (other.ops, other.origin, other.side)

    def __hash__(self) -> int:
        return hash((self.ops, self.origin, self.side))

    def __repr__(self) -> str:
        origin = f", origin={self.origin!r}" if self.origin else ""
        training = ".for_training()" if self.side == "training" and "serving" in self._walked else ""
        return f"Pipeline([{', '.join(map(repr, self.ops))}]{origin}){training}"

    def _repr_html_(self) -> str:
        html: str = load(HTML["Pipeline"])(self)
        return html


def not_a_pipeline(value: object) -> str:
    """End a message about a value that should be a Pipeline: its type, and how to make a Pipeline of it."""
    hint = "Pipeline([...]) is one of ops" if isinstance(value, list) else "pixprep.load(path) reads a pipeline file"
    return f"not {type(value).__name__}: {hint}"


def _for_photos(op: Op) -> Op:
    """Replace an op for pixels or clips by the op for encoded images."""
    if isinstance(op, Pixels | DecodeVideo):
        return Decode(color=op.color, name=op.name, only=op.only)
    if isinstance(op, Tensor) and "t" in op.layout:
        return changed(op, layout=op.layout.replace("t", ""))
    return op


def _served(ops: list[tuple[int, Op]], compile_: Callable[[list[tuple[int, Op]]], Walked]) -> Walked:
    """The serving side, with those annotations of both sides that follow the geometry of a serving tensor.

    Triton returns no annotations. The other annotations follow the training tensor, so a Loader of this side returns
    their fields unchanged and reports it.
    """
    placed = [entry for entry in ops if not (isinstance(entry[1], AnnotationOp) and entry[1].only is None)]
    if len(placed) == len(ops):
        return compile_(ops)
    with suppress(PipelineError):
        found = compile_(ops)
        if not found.plan.takes_boxes:
            return found
    found = compile_(placed)
    for entry in ops if not found.plan.takes_boxes else ():
        if entry not in placed:
            with suppress(PipelineError):
                found = compile_(sorted([*placed, entry], key=lambda each: each[0]))
                placed = sorted([*placed, entry], key=lambda each: each[0])
    return found


def _size_hint(others: Sequence[Op], side: Side) -> str:
    """Remedy where the size is open on one side, and ops of the other side give one; empty if none does."""
    for op in reversed(others):
        size = {"height": getattr(op, "height", None), "width": getattr(op, "width", None)}
        if size["height"]:
            other = "training" if side == "serving" else "serving"
            if side == "serving":
                crop = {"op": "center_crop", **size, "only": "serving"}
                such = f'{{"op": "resize", "size": ..., "only": "serving"}} and {json.dumps(crop)}'
            else:
                such = json.dumps({"op": "random_resized_crop", **size})
            return (
                f"the size differs from image to image, because {op_name(op)} is for {other} alone: "
                f"add what gives a size in {side}, such as {such}"
            )
    return ""


def _check_alike(training: Walked, serving: Walked) -> None:
    """Refuse sides whose tensors mean different things to the model; their sizes may differ.

    Raises:
        PipelineError: a tensor that is served is not trained on, or has another dtype, layout, channels or values.
    """
    for name, output in serving.outputs.items():
        served = serving.plan.outputs[name]
        if not isinstance(served, TensorPlan):
            continue
        trained = training.plan.outputs.get(name)
        if not isinstance(trained, TensorPlan):
            raise PipelineError(
                f'ops: serving has a tensor "{name}", and training has none of that name: '
                'write one tensor without "only", or give both the same "name"'
            )
        theirs = training.outputs[name].spec
        meanings, others = meaning(output.spec, served), meaning(theirs, trained)
        for what, here in meanings.items():
            if here != (there := others[what]):
                raise PipelineError(
                    f'ops: the tensor "{name}" has other {what} in training, {there}, than in serving, '
                    f"{here}: a model would be served what it was not trained on"
                )


def checked(index: int, op: Any, known: list[Operator | str]) -> Op:
    """Check the fields of an entry of a list; the operator of a call is added to ``known``.

    Raises:
        PipelineError: The entry is not an op, or a field is invalid.
    """
    if isinstance(op, OperatorCall):
        known.append(op.operator)
        op = _extern(op)
    if not isinstance(op, Op):
        what = f"the operator {op}: call it" if isinstance(op, Operator) else repr(op)[:80]
        raise PipelineError(f"ops[{index}]: an op is made by a call such as resize(256), not {what}")
    with at(index, op):
        return file.convert(op)


def _extern(call: OperatorCall) -> Extern:
    """The op that a file has for the call of an operator."""
    return Extern(
        operator=call.operator.name,
        version=call.operator.version,
        fields=dict(call.fields),
        name=call.name,
        from_=call.from_,
        only=call.only,
    )
