"""Implements ``Pipeline``, an immutable graph of ops that is validated and compiled to a plan."""

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
from pixprep.names import explained, field_hint
from pixprep.pipeline import file
from pixprep.pipeline.file import Origin
from pixprep.pipeline.forks import compiled
from pixprep.pipeline.ops import (
    AnnotationOp,
    Constant,
    Decode,
    DecodeVideo,
    Extern,
    Op,
    OpticalFlow,
    Pixels,
    ResizeToPixels,
    SecondsPerPatch,
    Tensor,
    changed,
    is_on,
    op_name,
)
from pixprep.pipeline.walk import CompiledSide, Node, Output, at, meaning, n_bytes, op_label
from pixprep.plan.plan import Plan
from pixprep.plan.steps.operators import Operator, OperatorCall, listed
from pixprep.registry import HTML, load
from pixprep.spec import ImageSpec, InputSpec, Side

SIDES: tuple[Side, ...] = ("serving", "training")
_FILE_PATTERNS = ("pipeline.json", "1/pipeline.json", "*/1/pipeline.json")
"""Patterns of the paths of pipeline files in the folder of a model version, a model, or a model repository."""


class Pipeline:
    """A validated graph of ops.

    >>> import pixprep as pp
    >>> pipeline = pp.Pipeline([pp.decode(), pp.resize(256), pp.center_crop(224), pp.tensor()])
    >>> print(pipeline.outputs["tensor"].spec)
    float32 [3, 224, 224] chw, values 0..255

    A pipeline has two sides, ``training`` and ``serving``. An op belongs to both sides, unless its ``only`` restricts
    it to one side, or its type supports one side only. The constructor checks both sides and compares their tensors:
    see docs/pipeline-file.md.

    Args:
        ops: Ops in the order in which they run. The first op must be ``decode``, ``decode_video`` or ``pixels``, and at
            least one op must be ``tensor``. A call of a custom operator is also an op.
        origin: Origin of an imported pipeline.
        operators: Custom operators that ``extern`` ops refer to, or names of installed operators that are allowed.

    Raises:
        PipelineError: An op is invalid. The message begins with its index and type, ``ops[2] "tensor": …``.

    Attributes:
        ops: Validated ops of both sides. ``Pipeline(pipeline.ops)`` has the same two sides.
        side: Side that the attributes ``side_ops``, ``nodes``, ``images``, ``outputs``, ``inputs`` and ``plan``
            describe. It is ``training`` if the pipeline has no serving side or was returned by ``for_training``, and
            ``serving`` in all other cases.
        side_ops: Ops of the side.
        nodes: Ops of the side in order, with the spec of each op's result.
        origin: Origin of an imported pipeline, or None.
        operators: Custom operators that were passed as ``operators``, or whose calls are in ``ops``.
        images: Specs of the images that the ops of the side return.
        outputs: Outputs of the side by name, in the order of the ops.
        inputs: Inputs that a request contains in addition to the image, by name, in the order of the ops.
        plan: Compiled plan of the side.
    """

    @explained({}, "pass the ops as one list, such as [decode(), tensor()]")
    def __init__(
        self,
        ops: Sequence[Op | OperatorCall],
        *,
        origin: Origin | None = None,
        operators: Sequence[Operator | str] = (),
    ) -> None:
        if isinstance(ops, Op | OperatorCall | str | Path):
            raise PipelineError(
                "ops must be a list such as [decode(), tensor()]; to read a pipeline file, use pixprep.load(path)"
            )
        known = [*listed(operators)]
        self._make([checked(index, each, known) for index, each in enumerate(ops)], origin, known)

    def _make(self, ops: Sequence[Op], origin: Origin | None, operators: Sequence[Operator | str]) -> None:
        """Connect the ops, infer the specs, and compile the plan. The fields of the ops must be valid."""
        self.ops: tuple[Op, ...] = tuple(ops)
        self.origin = origin
        self.operators = tuple(dict.fromkeys(listed(operators)))
        self._compiled: dict[Side, CompiledSide] = {}
        with_tensor = [side for side in SIDES if any(isinstance(op, Tensor) and is_on(op, side) for op in ops)]
        if not with_tensor or all(is_on(op, side) for op in ops for side in SIDES):
            self._compiled = dict.fromkeys(SIDES, compiled(enumerate(ops), self.operators))
        else:
            for side in with_tensor:
                side_ops = [(index, op) for index, op in enumerate(ops) if is_on(op, side)]
                hint = _size_hint([op for op in ops if not is_on(op, side)], side)
                of_side = partial(compiled, operators=self.operators, where=f"in {side}: ", size_hint=hint)
                self._compiled[side] = of_side(side_ops) if side == "training" else _compile_serving(side_ops, of_side)
            if len(with_tensor) == 2:
                _check_same_meaning(self._compiled["training"], self._compiled["serving"])
        all_nodes = [node for compiled_side in self._compiled.values() for node in compiled_side.nodes]
        for index, op in enumerate(ops):
            if isinstance(op, Tensor):
                with at(index, op):
                    op.check_padding([node.image for node in all_nodes if node.index == index])
        self._select("serving" if "serving" in self._compiled else "training")

    def _select(self, side: Side) -> None:
        """Set the attributes that depend on the side."""
        compiled_side = self._compiled[side]
        self.side: Side = side
        self.nodes: tuple[Node, ...] = compiled_side.nodes
        self.side_ops: tuple[Op, ...] = tuple(node.op for node in compiled_side.nodes)
        self.images: tuple[ImageSpec, ...] = tuple(node.image for node in compiled_side.nodes)
        self.outputs: dict[str, Output] = compiled_side.outputs
        self.plan: Plan = compiled_side.plan
        self.inputs: Mapping[str, InputSpec] = compiled_side.plan.inputs

    def example_inputs(self, count: int = 1) -> dict[str, list[list[float]]]:
        """Return example values of the per-request inputs by name, with one row for each of ``count`` images.

        The example box is the whole image, the example flag is false, and other numbers are 0 or the allowed value that
        is nearest to 0.
        """
        return {name: [spec.example] * count for name, spec in self.inputs.items()}

    def inserting(self, *ops: Op | OperatorCall, before: str | int = "tensor") -> Pipeline:
        """Return this pipeline with additional ops. They belong to both sides, unless their ``only`` restricts them.

        >>> segmenting = pipeline.inserting(pp.mask(), before="tensor")            # doctest: +SKIP

        Args:
            *ops: Ops to insert, in order.
            before: Name, type or index of the op before which the new ops are inserted. -1 is the index of the last op.

        Raises:
            PipelineError: The name or type does not match exactly one op, or the resulting pipeline is invalid.
        """
        place = self._place_of(before, f"inserting: before={before!r}", "before=")
        joined = [*self.ops[:place], *ops, *self.ops[place:]]
        return Pipeline(joined, origin=self.origin, operators=self.operators).at(self.side)

    def with_(self, which: str | int, /, **fields: Any) -> Pipeline:
        """Return a copy of this pipeline in which fields of one op have new values.

        >>> stronger = pipeline.with_("random_resized_crop", scale=(0.2, 1.0))     # doctest: +SKIP

        Args:
            which: Name, type or index of the op. -1 is the index of the last op.
            **fields: New values of fields of the op.

        Raises:
            PipelineError: The name or type does not match exactly one op, the op has no such field, or the resulting
                pipeline is invalid.
        """
        place = self._place_of(which, f"with_: {which!r}")
        op, label = self.ops[place], f"with_: {op_label(place, self.ops[place])}"
        known = op.__struct_fields__
        if unknown := next((name for name in fields if name not in known), None):
            raise PipelineError(f'{label}: no such field "{unknown}"{field_hint(unknown, known)}')
        if len({"height", "width"} & {*fields}) == 1 and None not in (
            getattr(op, each) for each in ("height", "width")
        ):
            raise PipelineError(f'{label}: set both "height" and "width", because the default of one may be the other')
        try:
            new = changed(op, **fields)
        except PipelineError as error:
            raise PipelineError(f"{label}: {error}") from None
        changed_ops = [*self.ops[:place], new, *self.ops[place + 1 :]]
        return Pipeline(changed_ops, origin=self.origin, operators=self.operators).at(self.side)

    def _place_of(self, which: str | int, what: str, keyword: str = "") -> int:
        """Return the index of the op with this name, type or index.

        Args:
            which: Name, type or index of the op.
            what: Beginning of the error message.
            keyword: Keyword of the argument, for the error message.

        Raises:
            PipelineError: No op or several ops match.
        """
        named = [index for index, op in enumerate(self.ops) if which in (op.name, op_name(op))]
        count = len(self.ops)
        indices = [i for i in (which, which + count) if 0 <= i < count] if isinstance(which, int) else named
        if len(indices) != 1:
            known = ", ".join(op_label(index, op) for index, op in enumerate(self.ops) if not named or index in named)
            matches = "several ops" if named else "no op"
            fix = f"{known}; use an index, such as {keyword}{named[-1]}" if named else f"the ops are {known}"
            raise PipelineError(f"{what} matches {matches}: {fix}")
        return indices[0]

    def for_training(self) -> Pipeline:
        """Return this pipeline with its training side.

        Raises:
            PipelineError: The pipeline has no training side, because every tensor is ``"only": "serving"``.
        """
        return self.at("training")

    def for_serving(self) -> Pipeline:
        """Return this pipeline with its serving side.

        Raises:
            PipelineError: The pipeline has no serving side, because every tensor is ``"only": "training"``.
        """
        return self.at("serving")

    def for_files(self) -> Pipeline:
        """Return this pipeline with ``decode`` instead of ``pixels``, so that it accepts encoded files."""
        return self.for_photos() if isinstance(self.side_ops[0], Pixels) else self

    def for_photos(self) -> Pipeline:
        """Return this pipeline with ``decode`` instead of ``pixels`` or ``decode_video``.

        The result accepts encoded images. ``optical_flow`` and the frame and clip axes of tensors are removed, and the
        output of ``seconds_per_patch`` is 0.
        """
        if isinstance(self.side_ops[0], Decode):
            return self
        ops = [_for_photos(op) for op in self.ops if not isinstance(op, OpticalFlow)]
        other = Pipeline.__new__(Pipeline)
        other._make(ops, self.origin, self.operators)
        return other.at(self.side)

    def with_origin(self, origin: Origin) -> Pipeline:
        """Return a copy of this pipeline with a different origin."""
        other = copy(self)
        other.origin = origin
        return other

    @property
    def sides(self) -> tuple[Side, ...]:
        """Sides of this pipeline. The serving side is first."""
        return tuple(side for side in SIDES if side in self._compiled)

    def at(self, side: Side) -> Pipeline:
        """Return this pipeline with the given side, like ``for_training`` or ``for_serving``.

        Raises:
            PipelineError: The pipeline does not have this side.
        """
        if side not in self._compiled:
            raise PipelineError(f'the pipeline has no {side} side, because every tensor is "only": "{self.side}"')
        if side == self.side:
            return self
        other = copy(self)
        Pipeline._select(other, side)
        return other

    @property
    def has_sides(self) -> bool:
        """Whether the training side and the serving side differ, or one of them does not exist."""
        return len(self._compiled) < 2 or self._compiled["training"] is not self._compiled["serving"]

    @property
    def left_out(self) -> str:
        """Sentence that lists the ops that this side omits. It is empty if this side omits no op."""
        ops = enumerate(self.ops)
        silent = AnnotationOp if self.side == "serving" else ()  # annotations never apply to serving
        places = [op_label(index, op) for index, op in ops if not is_on(op, self.side) and not isinstance(op, silent)]
        return f"{self.side} omits {', '.join(places)}" if places else ""

    @property
    def n_bytes(self) -> int:
        """Maximum total size of the outputs of one image in bytes."""
        return n_bytes(self.outputs)

    @classmethod
    def from_json(cls, text: str | bytes, *, operators: Sequence[Operator | str] = ()) -> Pipeline:
        """Create a pipeline from the text of a pipeline file; see ``load``."""
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
            operators: Custom operators that the file may refer to, or names of installed operators that are allowed.
                The environment variable ``PIXPREP_ALLOW_OPERATORS`` can allow more installed operators.

        Raises:
            PipelineError: The file cannot be read or is invalid. The message begins with the name of the file.
            SetupError: An installed operator cannot be loaded.
        """
        path = Path(path)
        try:
            text = file.read_bytes(path, max_bytes=file.MAX_BYTES)
        except OSError as error:
            inside = [file for place in _FILE_PATTERNS for file in sorted(path.glob(place))] if path.is_dir() else []
            hint = f": did you mean {inside[0]}?" if inside else ": pass the path of a pipeline file"
            reason = f"is a folder{hint}" if path.is_dir() else f"cannot be read: {error.strerror}"
            raise PipelineError(f"{path.name or path}: {reason}") from None
        try:
            return cls.from_json(text, operators=operators)
        except PipelineError as error:
            raise PipelineError(f"{path.name}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the pipeline file atomically, so that a failure does not leave a partial file."""
        write(path, self.to_json())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pipeline):
            return NotImplemented
        return (self.ops, self.origin, self.side) == (other.ops, other.origin, other.side)

    def __hash__(self) -> int:
        return hash((self.ops, self.origin, self.side))

    def __repr__(self) -> str:
        origin = f", origin={self.origin!r}" if self.origin else ""
        training = ".for_training()" if self.side == "training" and "serving" in self._compiled else ""
        return f"Pipeline([{', '.join(map(repr, self.ops))}]{origin}){training}"

    def _repr_html_(self) -> str:
        html: str = load(HTML["Pipeline"])(self)
        return html


def not_a_pipeline(value: object) -> str:
    """Return the end of an error message about a value that should be a Pipeline.

    The text contains the type of the value, and how to create a Pipeline.
    """
    fix = "use Pipeline([...])" if isinstance(value, list) else "to read a pipeline file, use pixprep.load(path)"
    return f"not {type(value).__name__}: {fix}"


def _for_photos(op: Op) -> Op:
    """Return the op for encoded images that corresponds to an op for decoded pixels or clips.

    An op that also supports encoded images is returned unchanged.
    """
    if isinstance(op, Pixels | DecodeVideo):
        return Decode(color=op.color, name=op.name, only=op.only)
    if isinstance(op, Tensor) and "t" in op.layout:
        return changed(op, layout=op.layout.replace("n", "").replace("t", ""))
    if isinstance(op, SecondsPerPatch):
        return Constant((0.0,), dtype="float32", name=op.name or op_name(op), from_=op.from_, only=op.only)
    if isinstance(op, ResizeToPixels) and op.frames == "clip":  # an image is repeated to fill one patch
        return changed(op, frames=op.temporal_patch_size, temporal_patch_size=1)
    return op


def _compile_serving(
    ops: list[tuple[int, Op]], compile_: Callable[[list[tuple[int, Op]]], CompiledSide]
) -> CompiledSide:
    """Compile the serving side with those annotations whose geometry is also the geometry of a serving tensor.

    Only a Loader uses the annotations of the serving side, because Triton does not return annotations. The other
    annotations match only the training tensor. Therefore, a Loader of the serving side returns their fields unchanged,
    and reports this.
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
    """Return a hint for a side whose tensors have no fixed size, if only the other side sets a size.

    The hint is empty if the other side does not set a size either.
    """
    for op in reversed(others):
        size = {"height": getattr(op, "height", None), "width": getattr(op, "width", None)}
        if size["height"]:
            other = "training" if side == "serving" else "serving"
            if side == "serving":
                crop = {"op": "center_crop", **size, "only": "serving"}
                example = f'{{"op": "resize", "size": ..., "only": "serving"}} and {json.dumps(crop)}'
            else:
                example = json.dumps({"op": "random_resized_crop", **size})
            return (
                f"the size differs from image to image, because {op_name(op)} is used in {other} only: "
                f"set the size in {side} also, for example with {example}"
            )
    return ""


def _check_same_meaning(training: CompiledSide, serving: CompiledSide) -> None:
    """Check that the training tensors have the same meaning as the serving tensors. Their sizes may differ.

    Raises:
        PipelineError: A serving tensor does not exist in training, or its dtype, layout, channels or values differ.
    """
    for name, served in serving.plan.tensors.items():
        trained = training.plan.tensors.get(name)
        if trained is None:
            raise PipelineError(
                f'ops: the serving tensor "{name}" does not exist in training: '
                'use one tensor without "only", or two tensors with the same "name"'
            )
        expected = meaning(training.outputs[name].spec, trained)
        meanings = meaning(serving.outputs[name].spec, served)
        for what, here in meanings.items():
            if here != (there := expected[what]):
                raise PipelineError(
                    f'ops: the {what} of the tensor "{name}" must be the same '
                    f"in training ({there}) and in serving ({here})"
                )


def checked(index: int, op: Any, known: list[Operator | str]) -> Op:
    """Check an entry of a list of ops, and return it as an op.

    Args:
        index: Index of the op, for messages.
        op: Op, or a call of a custom operator.
        known: Custom operators that are known so far. If ``op`` is a call, its operator is appended to this list.

    Raises:
        PipelineError: The entry is not an op, or a field is invalid.
    """
    if isinstance(op, OperatorCall):
        known.append(op.operator)
        op = _extern(op)
    if not isinstance(op, Op):
        what = f"the operator {op}: call it" if isinstance(op, Operator) else repr(op)[:80]
        raise PipelineError(f"ops[{index}] must be the result of a call such as resize(256), not {what}")
    with at(index, op):
        return file.convert(op)


def _extern(call: OperatorCall) -> Extern:
    """Return the op that represents the call of a custom operator in a file."""
    return Extern(
        operator=call.operator.name,
        version=call.operator.version,
        fields=dict(call.fields),
        name=call.name,
        from_=call.from_,
        only=call.only,
    )
