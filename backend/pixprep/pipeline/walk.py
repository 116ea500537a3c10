"""One walk over the ops of a side: each is wired, inferred and folded, and its outputs get their plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from pixprep.errors import PipelineError
from pixprep.pipeline.ops import AnnotationOp, Extern, FirstOp, ImageOp, Op, OutputOp, Tensor, op_name
from pixprep.pipeline.ops.choices import whether
from pixprep.pipeline.ops.faults import quoted
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import AnnotationPlan, BoxesPlan, OutputPlan, PointsPlan, TensorPlan
from pixprep.plan.plan import Plan
from pixprep.plan.steps.finding import find
from pixprep.plan.steps.operators import Extern as Call
from pixprep.plan.steps.operators import Operator
from pixprep.spec import ImageSpec, InputSpec, TensorSpec

MAX_NAME = 128
MAX_OUTPUT_BYTES = (1 << 31) - 1
"""Maximum size of the outputs of one image, and of a batch, which is gRPC's limit for a response."""
RESERVED_NAMES = ("image", "status")  # the input, and the output that on_error "zero" adds


@dataclass(frozen=True, slots=True)
class Node:
    """An op in its pipeline, with the spec of its result.

    Attributes:
        index: Index of the op in the file.
        op: The op.
        key: Key of the op's random parameters.
        taken: Index of the op whose image this op receives; the first op has its own index.
        image: Spec of the image that the op returns.
        chain: Ops that change the image, from the first op to this one.
        lowered: The chain, folded.
        inputs: Inputs that the op requires per image.
        call: Call of the custom operator, if this is an ``extern`` after ``tensor``.
    """

    index: int
    op: Op
    key: str
    taken: int
    image: ImageSpec
    chain: tuple[Op, ...]
    lowered: Lowered
    inputs: tuple[InputSpec, ...] = ()
    call: Call | None = None


@dataclass(frozen=True)
class Output:
    """One output of a pipeline.

    Attributes:
        name: Name of the output in Triton: the op's ``name``, or else the type of the op.
        spec: Spec of the output for one image.
        chain: Ops from ``decode`` to the output.
    """

    name: str
    spec: TensorSpec
    chain: tuple[Op, ...]


@dataclass(frozen=True)
class Walked:
    """The ops of one side, checked, inferred and compiled; ``Pipeline`` has the attributes."""

    nodes: tuple[Node, ...]
    outputs: dict[str, Output]
    plan: Plan


class Item(NamedTuple):
    """An op of a side.

    Attributes:
        place: Index of the op in the file.
        op: The op.
        key: Key of the op's random parameters.
        is_chosen: Whether the op is part of a choice.
    """

    place: int
    op: Op
    key: str
    is_chosen: bool = False


def items(ops: Iterable[tuple[int, Op]]) -> Iterator[Item]:
    """Return the ops of a side with their keys: the name, or the type and the number of such ops before."""
    counts: Counter[str] = Counter()
    for index, op in ops:
        yield Item(index, op, op.name or f"{op_name(op)}#{counts[op_name(op)]}")
        counts[op_name(op)] += op.name is None


def nodes(ops: Iterable[Item], operators: tuple[Operator | str, ...] = (), where: str = "") -> Iterator[Node]:
    """Connect, infer and fold the ops one by one, lazily.

    Args:
        ops: Result of ``items``.
        operators: Custom operators that ``extern`` may refer to.
        where: Side, as the prefix of a message.

    Raises:
        PipelineError: An op does not fit the ops before it.
    """
    found: dict[int, Node] = {}
    names: dict[str, int] = {}
    tensors: set[int] = set()  # the last ops that made them
    last: int | None = None
    for index, op, key, is_chosen in ops:
        with at(index, op, where):
            taken = _taken(index, op, names, last)
            if isinstance(op, FirstOp):
                node = Node(index, op, key, index, op.infer(), (op,), op.lower(operators))
            else:
                node = replace(found[taken], index=index, op=op, key=key, taken=taken, inputs=(), call=None)
            if isinstance(op, Extern) and taken in tensors:
                called = find(op.operator, op.version, operators)
                if called.place == "tensor":
                    node = replace(node, call=called.use(op.fields))
                    tensors.remove(taken)
            if isinstance(op, Tensor) or node.call is not None:
                tensors.add(index)
            elif isinstance(op, ImageOp):
                before, image = node.lowered, node.image
                done, own = whether(op, key)
                assert isinstance(done, ImageOp)
                made = op.infer(image)
                lowered = done.lower(replace(before, resizes_again=is_chosen), image, own)
                if isinstance(op, Extern):
                    (*_, call) = lowered.levels
                    made = made.sized(*call.size) if isinstance(call, Call) and call.size else made
                node = replace(node, inputs=op.inputs(image), image=made, chain=(*node.chain, op), lowered=lowered)
        found[index] = node
        last = index
        yield node


def walked(ops: Iterable[Item], operators: tuple[Operator | str, ...], where: str = "", size_hint: str = "") -> Walked:
    """The ops of a side, with their outputs and plan.

    Args:
        ops: Result of ``items``.
        operators: Custom operators that ``extern`` may refer to.
        where: Side, as the prefix of a message.
        size_hint: Hint for a tensor whose size has no bound.

    Raises:
        PipelineError: An op is invalid, or the ops do not fit together.
    """
    plans: dict[str, OutputPlan] = {}
    annotations: dict[str, AnnotationPlan] = {}
    outputs: dict[str, Output] = {}
    tensors: dict[int, str] = {}  # by the index of the last op that made them
    inputs: dict[str, InputSpec] = {}
    passed: list[Node] = []
    for node in nodes(ops, operators, where):
        index, op = node.index, node.op
        passed.append(node)
        with at(index, op, where):
            for spec in node.inputs:
                _add_input(spec, inputs)
            call = node.lowered.levels[-1] if isinstance(op, Extern) and node.call is None else None
            if isinstance(call, Call) and call.key and op.only != "training":
                raise PipelineError('draws random numbers, which serving does not support: write "only": "training"')
            if isinstance(op, OutputOp):
                is_bound = None not in (node.image.max_height, node.image.max_width)
                if isinstance(op, Tensor) and op.max_size is None and not is_bound and size_hint:
                    raise PipelineError(size_hint)
                name = op.name or op_name(op)
                _check_output(name, (*outputs, *annotations))
                plans[name] = op.lower(node.lowered, op.infer(node.image))
                outputs[name] = Output(name, plans[name].spec, (*node.chain, op))
                if isinstance(op, Tensor):
                    tensors[index] = name
            elif node.call is not None:
                old = outputs.pop(tensors.pop(node.taken))
                if "t" in old.spec.lengths:
                    raise PipelineError("takes the tensor of an image, and this is that of a clip")
                if old.spec.is_open:
                    raise PipelineError(f"takes tensors of one shape, and here they are {list(old.spec.shape)}")
                before = plans.pop(old.name)
                output = Output(op.name or old.name, node.call.result(old.spec), (*old.chain, op))
                _check_output(output.name, (*outputs, *annotations))
                _check_size(old.spec.n_bytes, where)  # it is made, too
                assert isinstance(before, TensorPlan)
                outputs[output.name], tensors[index] = output, output.name
                plans[output.name] = replace(before, calls=(*before.calls, node.call))
            elif isinstance(op, AnnotationOp):
                name = op.name or op_name(op)
                _check_output(name, (*outputs, *annotations))
                annotations[name] = op.lower(node.lowered, node.image)
                kinds = Counter(type(each) for each in annotations.values())
                if max(kinds[BoxesPlan], kinds[PointsPlan]) > 1:
                    raise PipelineError("there is one already, and labels can follow only one")
    if not any(isinstance(plan, TensorPlan) for plan in plans.values()):
        raise PipelineError("ops: no op gives a tensor: end with tensor")
    _check_annotations(passed, where)
    _check_size(n_bytes(outputs), f"ops: {where}")
    names = [node.op.name for node in passed if node.op.name is not None]
    for name in inputs:
        _check_input(name, [*names, *outputs, *annotations], annotations)
    first = passed[0].op
    assert isinstance(first, FirstOp)
    return Walked(tuple(passed), outputs, first.plan(outputs=plans, annotations=annotations, inputs=inputs))


def _check_annotations(passed: Sequence[Node], where: str) -> None:
    """Reject boxes, points or masks that do not share their geometry with a tensor: they would not match its image."""
    motions = [node.lowered.geometry.motion for node in passed]
    shown = [motion for node, motion in zip(passed, motions, strict=True) if isinstance(node.op, Tensor)]
    right = {type(node.op) for node, motion in zip(passed, motions, strict=True) if motion in shown}
    for place, node in enumerate(passed):
        if isinstance(node.op, AnnotationOp) and type(node.op) not in right:
            name = op_name(node.op)
            behind = zip(passed[place:], motions[place:], strict=True)
            movers = (each for each, motion in behind if motion != motions[place] and isinstance(each.op, ImageOp))
            mover = next(movers, None)
            with at(node.index, node.op, where):
                if mover is None:
                    raise PipelineError(f"no tensor shows the image here: put {name} before a tensor that does")
                said = at_place(mover.index, mover.op)
                raise PipelineError(f"{said} moves the image, and not the {name} before it: put {name} behind {said}")


def meaning(spec: TensorSpec, plan: TensorPlan) -> dict[str, object]:
    """Meaning of a tensor to a model."""
    return {
        "dtype": spec.dtype,
        "layout": spec.layout,
        "channels": plan.channels if plan.spec.channels > 1 else "gray",
        "value of a fourth channel": "none" if plan.spec.fourth is None else f"{plan.spec.fourth:g}",
        "operators": " and ".join(map(str, plan.calls)) or "none",
        "values": f"{spec.low:.4g}..{spec.high:.4g}{' of a resize that does not round' * plan.is_real}",
        "arithmetic": plan.arithmetic,
    }


@contextmanager
def at(index: int, op: Op, where: str = "") -> Iterator[None]:
    """Begin what is wrong with the place of the op."""
    try:
        yield
    except PipelineError as error:
        raise PipelineError(f"{at_place(index, op)}: {where}{error}") from None


def at_place(index: int, op: Op) -> str:
    """Name an op by its place: ``ops[2] "tensor"``; a user's by the operator."""
    return f'ops[{index}] "{op.operator if isinstance(op, Extern) else op_name(op)}"'


def _check_size(size: int, where: str) -> None:
    if size > MAX_OUTPUT_BYTES:
        raise PipelineError(
            f"{where}the outputs of one image take {size:,} bytes; at most {MAX_OUTPUT_BYTES:,} "
            "leave the server in one answer"
        )


def n_bytes(outputs: Mapping[str, Output]) -> int:
    """Bytes of the outputs of one image."""
    return sum(output.spec.n_bytes for output in outputs.values())


def _check_output(name: str, others: Sequence[str]) -> None:
    if name in RESERVED_NAMES:
        raise PipelineError(
            f'name: "{name}" is kept for Triton: choose another; the one tensor goes to a model\'s input of any name'
        )
    if name in others:
        raise PipelineError(f'there is an output "{name}" already: give this one another "name"')


def _add_input(spec: InputSpec, others: dict[str, InputSpec]) -> None:
    """Enter an input that an op names; several ops may share it."""
    _check_name(spec.name, "an input")
    if spec.name in RESERVED_NAMES:
        raise PipelineError(f'an input "{spec.name}": the name is kept for Triton')
    shared = others.get(spec.name, spec).and_(spec)
    if shared is None:
        raise PipelineError(f'the input "{spec.name}" is {others[spec.name]} of an earlier op, and here {spec}')
    others[spec.name] = shared


def _check_input(name: str, others: Sequence[str], annotations: Mapping[str, AnnotationPlan]) -> None:
    """Refuse an input that a client or a source could take for something else."""
    if name in others:
        raise PipelineError(f'ops: the input "{name}" has the name of an op or an output: give it another')
    if name in ("boxes", "points", "mask", "masks") and annotations:
        raise PipelineError(f'ops: the input "{name}" has the name of a sample\'s annotation: give it another')


def _check_name(name: str, what: str) -> None:
    """Refuse what is no name of an op or an input."""
    if not (name.isascii() and name.isidentifier()):  # in other letters it may look like another name
        raise PipelineError(f"{what}: ASCII letters, digits and _, not {quoted(name)}")
    if len(name) > MAX_NAME:
        raise PipelineError(f"{what}: {len(name):,} letters; at most {MAX_NAME}")


def _taken(index: int, op: Op, names: dict[str, int], last: int | None) -> int:
    """The index of the op whose image ``op`` takes; enters its own name into ``names``."""
    if isinstance(op, FirstOp) != (last is None):
        raise PipelineError("the first op, and no other, must be decode, or pixels where nothing is encoded")
    if op.from_ is not None and op.from_ not in names:
        named = ", ".join([*list(names)[:8], *["..."] * (len(names) > 8)]) or "none"
        raise PipelineError(f"from: no earlier op is named {quoted(op.from_)}; named are: {named}")
    if op.name is not None:
        _check_name(op.name, "name")
        if op.name in names:
            raise PipelineError(f'name: "{op.name}" is the name of ops[{names[op.name]}] already')
    taken = -1 if last is None else last if op.from_ is None else names[op.from_]
    if op.name is not None:
        names[op.name] = index
    return taken
