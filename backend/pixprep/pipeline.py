"""Pipeline: an immutable graph of ops, checked, with every shape known, and compiled to its plan."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from pixprep import file
from pixprep.compiler import Lowered, annotation_plan, lower, output_plan, whole_plan
from pixprep.errors import PipelineError
from pixprep.file import Origin
from pixprep.ops import (
    AnnotationOp,
    AnyOp,
    CenterCrop,
    Crop,
    Decode,
    DecodeVideo,
    Extern,
    Letterbox,
    Op,
    OpticalFlow,
    OutputOp,
    Pad,
    Pixels,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    Tensor,
    changed,
    is_on,
    op_name,
)
from pixprep.plan.plan import AnnotationPlan, BoxesPlan, OutputPlan, Plan, PointsPlan, TensorPlan
from pixprep.spec import ImageSpec, InputSpec, Side, TensorSpec
from pixprep.steps.operators import Operator, OperatorCall, find, listed
from pixprep.writing import write

SIDES: tuple[Side, ...] = ("serving", "training")
FIRST = (Decode, DecodeVideo, Pixels)
MAX_NAME = 128
MAX_OUTPUT_BYTES = (1 << 31) - 1
"""Of the outputs of one image, and of a batch: gRPC carries no more in one answer, and a host holds many answers."""
_PLACES = ("pipeline.json", "1/pipeline.json", "*/1/pipeline.json")
"""Where pipeline files are in the folder of a version, of a model, and in a repository."""
RESERVED_NAMES = ("image", "status")  # the input, and the output that on_error "zero" adds


@dataclass(frozen=True)
class Output:
    """One output of a pipeline.

    Attributes:
        name: as in Triton: the op's ``name``, or what the op is called.
        spec: for one image.
        chain: the ops from ``decode`` to the output itself.
    """

    name: str
    spec: TensorSpec
    chain: tuple[AnyOp, ...]


class _Node(NamedTuple):
    """What leaves an op: the spec of its image, and the ops from ``decode`` to it, as they are and folded."""

    image: ImageSpec
    chain: tuple[AnyOp, ...]
    lowered: Lowered


@dataclass(frozen=True)
class _Chain:
    """The ops of one side, checked, inferred and compiled; the attributes are those of ``Pipeline``."""

    ops: tuple[AnyOp, ...]
    images: tuple[ImageSpec, ...]
    outputs: dict[str, Output]
    plan: Plan


class Pipeline:
    """The user's graph of ops, checked.

    >>> import pixprep as pp
    >>> pipeline = pp.Pipeline([pp.decode(), pp.resize(256), pp.center_crop(224), pp.tensor()])
    >>> print(pipeline.outputs["tensor"].spec)
    float32 [3, 224, 224] chw, values 0..255

    It has two sides, ``training`` and ``serving``. An op is on both, unless its ``only`` names one, or its kind exists
    on one. Both sides are checked when the pipeline is made, also against each other: see docs/pipeline-file.md.

    Args:
        ops: in the order of the data; the first is ``decode`` or ``pixels``, at least one is ``tensor``. An operator of
            the user's is there by its call.
        origin: where an imported pipeline comes from.
        operators: that its ops of the kind ``extern`` name; of installed ones that are allowed, their names.

    Raises:
        PipelineError: names the op by its place, ``ops[2] "tensor": …``.

    Attributes:
        definition: the ops of both sides, every field checked.
        side: the one that the attributes below are of: ``serving``, unless there is none, or ``for_training`` was
            asked.
        ops: the ops of this side.
        origin: as given.
        operators: as given, and those of the calls.
        images: for each op the spec of the image that leaves it.
        outputs: what the pipeline gives, by name, in the order of the ops.
        inputs: the numbers that it takes beside each image, by name, in the order of the ops.
        plan: what it is compiled to.
    """

    def __init__(
        self,
        ops: Sequence[Op | OperatorCall],
        *,
        origin: Origin | None = None,
        operators: Sequence[Operator | str] = (),
    ) -> None:
        if isinstance(ops, Op | OperatorCall | str | Path):
            raise PipelineError("ops: a list such as [decode(), tensor()]; pixprep.load(path) reads a pipeline file")
        checked: list[AnyOp] = []
        known = [*listed(operators)]
        for index, each in enumerate(ops):
            op: Op | OperatorCall = each
            if isinstance(op, OperatorCall):
                known.append(op.operator)
                op = extern(op)
            if not isinstance(op, Op):
                what = f"the operator {op}: call it" if isinstance(op, Operator) else repr(op)
                raise PipelineError(f"ops[{index}]: an op is made by a call such as decode(), not {what}")
            with _at(index, op):
                checked.append(file.convert(op))
        self._make(checked, origin, known)

    def _make(self, ops: Sequence[AnyOp], origin: Origin | None, operators: Sequence[Operator | str]) -> None:
        """Wire, infer and compile ops whose fields have been checked."""
        self.definition: tuple[AnyOp, ...] = tuple(ops)
        self.origin = origin
        self.operators = tuple(dict.fromkeys(listed(operators)))
        self._chains: dict[Side, _Chain] = {}
        with_tensor = [side for side in SIDES if any(isinstance(op, Tensor) and is_on(op, side) for op in ops)]
        if not with_tensor or all(is_on(op, side) for op in ops for side in SIDES):
            self._chains = dict.fromkeys(SIDES, _compiled(enumerate(ops), self.operators))
        else:
            for side in with_tensor:
                self._chains[side] = _compiled_side(ops, side, self.operators)
            if len(with_tensor) == 2:
                _check_alike(self._chains["training"], self._chains["serving"])
        self.side: Side = "serving" if "serving" in self._chains else "training"

    @property
    def ops(self) -> tuple[AnyOp, ...]:
        """See above."""
        return self._chains[self.side].ops

    @property
    def images(self) -> tuple[ImageSpec, ...]:
        """See above."""
        return self._chains[self.side].images

    @property
    def outputs(self) -> dict[str, Output]:
        """See above."""
        return self._chains[self.side].outputs

    @property
    def inputs(self) -> Mapping[str, InputSpec]:
        """See above."""
        return self.plan.inputs

    def example_inputs(self, count: int = 1) -> dict[str, list[list[float]]]:
        """Numbers to try the pipeline with, a row for each of so many images: all of it, not mirrored, zeros."""
        return {name: [spec.example] * count for name, spec in self.inputs.items()}

    @property
    def plan(self) -> Plan:
        """See above."""
        return self._chains[self.side].plan

    def for_training(self) -> Pipeline:
        """This pipeline with its training side.

        Raises:
            PipelineError: it has none: every tensor is ``"only": "serving"``.
        """
        return self.at("training")

    def for_serving(self) -> Pipeline:
        """This pipeline with its serving side.

        Raises:
            PipelineError: it has none: every tensor is ``"only": "training"``.
        """
        return self.at("serving")

    def for_files(self) -> Pipeline:
        """This pipeline with ``decode`` in place of ``pixels``: what it makes of files that are decoded before."""
        return self.for_photos() if isinstance(self.ops[0], Pixels) else self

    def for_photos(self) -> Pipeline:
        """This pipeline with ``decode`` in place of ``pixels`` or ``decode_video``: a photo is what a frame is."""
        if isinstance(self.ops[0], Decode):
            return self
        ops = [_for_photos(op) for op in self.definition if not isinstance(op, OpticalFlow)]
        other = Pipeline.__new__(Pipeline)
        other._make(ops, self.origin, self.operators)
        return other.at(self.side)

    @property
    def sides(self) -> tuple[Side, ...]:
        """Those that there are: the serving side first."""
        return tuple(side for side in SIDES if side in self._chains)

    def at(self, side: Side) -> Pipeline:
        """This pipeline with the side of that name; raises as the two methods above."""
        if side not in self._chains:
            raise PipelineError(f'there is no {side} side: every tensor is "only": "{self.side}"')
        if side == self.side:
            return self
        other = copy(self)
        other.side = side
        return other

    @property
    def has_sides(self) -> bool:
        """Whether training and serving differ, or one of them is missing."""
        return len(self._chains) < 2 or self._chains["training"] is not self._chains["serving"]

    @property
    def left_out(self) -> str:
        """Which ops this side leaves out, in a sentence; empty if none."""
        places = [
            f'ops[{index}] "{op_name(op)}"' for index, op in enumerate(self.definition) if not is_on(op, self.side)
        ]
        return f"{self.side} leaves out {', '.join(places)}" if places else ""

    @property
    def n_bytes(self) -> int:
        """What all outputs of one image take."""
        return _n_bytes(self.outputs)

    @classmethod
    def from_json(cls, text: str | bytes, *, operators: Sequence[Operator | str] = ()) -> Pipeline:
        """The pipeline that the text of a pipeline file describes; see ``load``."""
        pipeline = cls.__new__(cls)
        pipeline._make(*file.loads(text), operators)
        return pipeline

    def to_json(self) -> str:
        """The canonical text of the pipeline file."""
        return file.dumps(self.definition, self.origin)

    @classmethod
    def load(cls, path: str | Path, *, operators: Sequence[Operator | str] = ()) -> Pipeline:
        """Read a pipeline file.

        Args:
            path: of the file.
            operators: of the user's that it may name; of installed ones that are allowed, their names. Those that the
                environment variable ``PIXPREP_ALLOW_OPERATORS`` names are allowed, too.

        Raises:
            PipelineError: the file cannot be read or is wrong; the message begins with its name.
            SetupError: an installed operator does not load.
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
        """Write the pipeline file: all of it, or nothing, whatever fails."""
        write(path, self.to_json())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pipeline):
            return NotImplemented
        return self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return self.definition, self.origin, self.side

    def __repr__(self) -> str:
        origin = f", origin={self.origin!r}" if self.origin else ""
        training = ".for_training()" if self.side == "training" and "serving" in self._chains else ""
        return f"Pipeline([{', '.join(map(repr, self.definition))}]{origin}){training}"

    def _repr_html_(self) -> str:
        from pixprep.show.html import pipeline_html  # noqa: PLC0415  (for a notebook only)

        return pipeline_html(self)


def _for_photos(op: AnyOp) -> AnyOp:
    """The op of an image in place of that of pixels or a clip."""
    if isinstance(op, Pixels | DecodeVideo):
        return Decode(color=op.color, name=op.name, only=op.only)
    if isinstance(op, Tensor) and "t" in op.layout:
        return changed(op, layout="hwc" if op.layout == "thwc" else "chw")
    return op


def _compiled_side(ops: Sequence[AnyOp], side: Side, operators: tuple[Operator | str, ...]) -> _Chain:
    """The chain of one side."""
    these = [(index, op) for index, op in enumerate(ops) if is_on(op, side)]
    hint = _size_hint([op for op in ops if not is_on(op, side)], side)
    return _compiled(these, operators, f"in {side}: ", hint)


def _size_hint(others: Sequence[AnyOp], side: Side) -> str:
    """What to add where the size is open on one side, and ops of the other side give one; empty if none does."""
    for op in reversed(others):
        if isinstance(op, RandomResizedCrop | RandomCrop | CenterCrop | Resize | Crop | Pad | Letterbox) and op.height:
            other = "training" if side == "serving" else "serving"
            if side == "serving":
                crop = {"op": "center_crop", "height": op.height, "width": op.width, "only": "serving"}
                such = f'{{"op": "resize", "size": ..., "only": "serving"}} and {json.dumps(crop)}'
            else:
                such = json.dumps({"op": "random_resized_crop", "height": op.height, "width": op.width})
            return (
                f"the size differs from image to image, because {op_name(op)} is for {other} alone: "
                f"add what gives a size in {side}, such as {such}"
            )
    return ""


def _compiled(
    ops: Iterable[tuple[int, AnyOp]], operators: tuple[Operator | str, ...], where: str = "", size_hint: str = ""
) -> _Chain:
    """Wire, infer and compile, in one walk over the ops, each with its place in the file."""
    nodes: dict[int, _Node] = {}
    names: dict[str, int] = {}
    plans: dict[str, OutputPlan] = {}
    annotations: dict[str, AnnotationPlan] = {}
    outputs: dict[str, Output] = {}
    tensors: dict[int, str] = {}  # by the place of the last op that made them
    given: dict[str, InputSpec] = {}
    counts: Counter[str] = Counter()
    chain: list[AnyOp] = []
    last: int | None = None
    for index, op in ops:
        with _at(index, op, where):
            taken = _taken(index, op, names, last)
            if isinstance(op, FIRST):
                node = _Node(op.infer(), (op,), Lowered(op, operators=operators))
            elif isinstance(op, OutputOp):
                node = nodes[taken]
                if isinstance(op, Tensor) and size_hint and None in (node.image.height, node.image.width):
                    raise PipelineError(size_hint)
                output = Output(op.name or op_name(op), op.infer(node.image), (*node.chain, op))
                _check_output(output.name, (*outputs, *annotations))
                outputs[output.name] = output
                plans[output.name] = output_plan(op, output.spec, node.lowered)
                if isinstance(op, Tensor):
                    tensors[index] = output.name
            elif isinstance(op, Extern) and taken in tensors and _of_tensors(op, operators):
                node = nodes[taken]
                old = outputs.pop(tensors.pop(taken))
                if "t" in (old.spec.layout or ""):
                    raise PipelineError("takes the tensor of an image, and this is that of a clip")
                before = plans.pop(old.name)
                step = find(op.operator, op.version, operators).use(op.fields)
                output = Output(op.name or old.name, step.result(old.spec), (*old.chain, op))
                _check_output(output.name, (*outputs, *annotations))
                _check_size(old.spec.n_bytes, where)  # it is made, too
                assert isinstance(before, TensorPlan)
                outputs[output.name], tensors[index] = output, output.name
                plans[output.name] = replace(before, calls=(*before.calls, step))
            elif isinstance(op, AnnotationOp):
                node = nodes[taken]
                name = op.name or op_name(op)
                _check_output(name, (*outputs, *annotations))
                annotations[name] = annotation_plan(op, node.lowered)
                _check_once(annotations)
            else:
                image, chained, lowered = nodes[taken]
                for spec in op.inputs(image):
                    _add_input(spec, given)
                key = op.name or f"{op_name(op)}#{counts[op_name(op)]}"
                counts[op_name(op)] += op.name is None
                node = _Node(op.infer(image), (*chained, op), lower(op, lowered, image, key))
            nodes[index] = node
            chain.append(op)
            last = index
    if not any(isinstance(op, Tensor) for op in chain):
        raise PipelineError("ops: no op gives a tensor: end with tensor")
    _check_size(_n_bytes(outputs), f"ops: {where}")
    for name in given:
        _check_input(name, [*names, *outputs, *annotations], annotations)
    images = tuple(node.image for node in nodes.values())
    first = chain[0]
    assert isinstance(first, FIRST)
    return _Chain(tuple(chain), images, outputs, whole_plan(first, plans, annotations, given))


def extern(call: OperatorCall) -> Extern:
    """The op that a file has for the call of an operator."""
    return Extern(
        operator=call.operator.name,
        version=call.operator.version,
        fields=dict(call.fields),
        name=call.name,
        from_=call.from_,
        only=call.only,
    )


def _of_tensors(op: Extern, operators: Sequence[Operator | str]) -> bool:
    return find(op.operator, op.version, operators).place == "tensor"


def _check_size(n_bytes: int, where: str) -> None:
    if n_bytes > MAX_OUTPUT_BYTES:
        raise PipelineError(
            f"{where}the outputs of one image take {n_bytes:,} bytes; at most {MAX_OUTPUT_BYTES:,} "
            "leave the server in one answer"
        )


def _n_bytes(outputs: dict[str, Output]) -> int:
    return sum(output.spec.n_bytes for output in outputs.values())


def _check_output(name: str, others: Sequence[str]) -> None:
    if name in RESERVED_NAMES:
        raise PipelineError(f'name: "{name}" is kept for Triton')
    if name in others:
        raise PipelineError(f'there is an output "{name}" already: give this one another "name"')


def _add_input(spec: InputSpec, others: dict[str, InputSpec]) -> None:
    """Enter an input that an op names; several ops may share it."""
    _check_name(spec.name, "an input")
    if spec.name in RESERVED_NAMES:
        raise PipelineError(f'an input "{spec.name}": the name is kept for Triton')
    if others.setdefault(spec.name, spec) != spec:
        raise PipelineError(f'the input "{spec.name}" is {others[spec.name]} of an earlier op, and here {spec}')


def _check_input(name: str, others: Sequence[str], annotations: Mapping[str, AnnotationPlan]) -> None:
    """Refuse an input that a client or a source could take for something else."""
    if name in others:
        raise PipelineError(f'ops: the input "{name}" has the name of an op or an output: give it another')
    if name in ("boxes", "points") and annotations:
        raise PipelineError(f'ops: the input "{name}" has the name of a sample\'s annotation: give it another')


def _check_once(annotations: dict[str, AnnotationPlan]) -> None:
    """One set of boxes at most, and one of points: labels follow them."""
    for kind in (BoxesPlan, PointsPlan):
        if sum(isinstance(each, kind) for each in annotations.values()) > 1:
            raise PipelineError("there is one already, and labels can follow only one")


def _check_alike(training: _Chain, serving: _Chain) -> None:
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
        for what, here, there in (
            ("dtype", output.spec.dtype, theirs.dtype),
            ("layout", output.spec.layout, theirs.layout),
            ("channels", served.channels, trained.channels),
            ("operators", _called(served), _called(trained)),
            ("values", _range(output.spec, served), _range(theirs, trained)),
            ("arithmetic", served.arithmetic, trained.arithmetic),
        ):
            if here != there:
                raise PipelineError(
                    f'ops: the tensor "{name}" has other {what} in training, {there}, than in serving, '
                    f"{here}: a model would be served what it was not trained on"
                )


def _called(plan: TensorPlan) -> str:
    return " and ".join(map(str, plan.calls)) or "none"


def _range(spec: TensorSpec, plan: TensorPlan) -> str:
    return f"{spec.low:.4g}..{spec.high:.4g}{' of a resize that does not round' if plan.is_real else ''}"


def _check_name(name: str, what: str) -> None:
    """Refuse what is no name of an op or an input."""
    if not (name.isascii() and name.isidentifier()):  # in other letters it may look like another name
        raise PipelineError(f"{what}: ASCII letters, digits and _, not {file.quoted(name)}")
    if len(name) > MAX_NAME:
        raise PipelineError(f"{what}: {len(name):,} letters; at most {MAX_NAME}")


def _taken(index: int, op: AnyOp, names: dict[str, int], last: int | None) -> int:
    """The index of the op whose image ``op`` takes; enters its own name into ``names``."""
    if isinstance(op, FIRST) != (last is None):
        raise PipelineError("the first op, and no other, must be decode, or pixels where nothing is encoded")
    if op.from_ is not None and op.from_ not in names:
        named = ", ".join([*list(names)[:8], *["..."] * (len(names) > 8)]) or "none"
        raise PipelineError(f"from: no earlier op is named {file.quoted(op.from_)}; named are: {named}")
    if op.name is not None:
        _check_name(op.name, "name")
        if op.name in names:
            raise PipelineError(f'name: "{op.name}" is the name of ops[{names[op.name]}] already')
    taken = -1 if last is None else last if op.from_ is None else names[op.from_]
    if op.name is not None:
        names[op.name] = index
    return taken


@contextmanager
def _at(index: int, op: Op, where: str = "") -> Iterator[None]:
    try:
        yield
    except PipelineError as error:
        raise PipelineError(f'ops[{index}] "{op_name(op)}": {where}{error}') from None
