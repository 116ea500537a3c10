"""Compiles the ops of one side: connects the ops, infers their specs, lowers them, and plans the outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from pixprep.errors import PipelineError
from pixprep.pipeline.ops import AnnotationOp, Extern, FirstOp, ImageOp, Op, OutputOp, Tensor, op_name
from pixprep.pipeline.ops.alpha import check_alpha
from pixprep.pipeline.ops.choices import as_choice
from pixprep.pipeline.ops.faults import quoted
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import AnnotationPlan, BoxesPlan, OutputPlan, PointsPlan, TensorPlan
from pixprep.plan.plan import Plan
from pixprep.plan.steps.operators import Extern as Call
from pixprep.plan.steps.operators import Operator, find
from pixprep.spec import ImageSpec, InputSpec, TensorSpec

MAX_NAME = 128
MAX_OUTPUT_BYTES = (1 << 31) - 1
"""Maximum size in bytes of the outputs of an image or a batch, which is gRPC's maximum for a response."""
_DRAFT = '"draft" of resize_by_rule requires'
RESERVED_NAMES = ("image", "status")
"""Names that an op must not have. ``image`` is the input with the encoded images, and ``status`` is the output that the
setting ``on_error`` adds if it is ``zero``."""


@dataclass(frozen=True, slots=True)
class Node:
    """Op of a pipeline, with the spec of its result.

    Attributes:
        index: Index of the op in the file.
        op: Op of the node.
        key: Key of the op's random parameters.
        source: Index of the op whose image this op receives. For the first op, this is the op's own index.
        image: Spec of the image that the op returns.
        chain: Ops that change the image, from the first op to this op.
        lowered: Result of lowering the ops of the chain.
        inputs: Per-request inputs of the op.
        call: Call of the custom operator if the op is an ``extern`` after ``tensor``. For all other ops it is None.
    """

    index: int
    op: Op
    key: str
    source: int
    image: ImageSpec
    chain: tuple[Op, ...]
    lowered: Lowered
    inputs: tuple[InputSpec, ...] = ()
    call: Call | None = None


@dataclass(frozen=True)
class Output:
    """Output of a pipeline.

    Attributes:
        name: Name of the output in Triton, which is the op's ``name`` or, if the op has no name, its type.
        spec: Spec of the output for one image.
        chain: Ops from ``decode`` to the output.
    """

    name: str
    spec: TensorSpec
    chain: tuple[Op, ...]


@dataclass(frozen=True)
class CompiledSide:
    """Compiled ops of one side. The attributes of ``Pipeline`` with the same names are documented there."""

    nodes: tuple[Node, ...]
    outputs: dict[str, Output]
    plan: Plan


class Item(NamedTuple):
    """Op of a side, with its index and key.

    Attributes:
        op_index: Index of the op in the file. For an op in the list of a choice, it is the index of the choice.
        op: Op of the side.
        key: Key of the op's random parameters.
        is_chosen: Whether the op was selected from the list of a choice.
    """

    op_index: int
    op: Op
    key: str
    is_chosen: bool = False


def items(ops: Iterable[tuple[int, Op]]) -> Iterator[Item]:
    """Yield the ops of a side with their keys. A key is the op's name, or the op's type and a running number."""
    counts: Counter[str] = Counter()
    for index, op in ops:
        yield Item(index, op, op.name or f"{op_name(op)}#{counts[op_name(op)]}")
        counts[op_name(op)] += op.name is None


def nodes(ops: Iterable[Item], operators: tuple[Operator | str, ...] = (), where: str = "") -> Iterator[Node]:
    """Connect the ops of a side, infer their specs and lower them, and yield a node for each op.

    Args:
        ops: Ops of the side, as returned by ``items``.
        operators: Custom operators that ``extern`` ops may refer to.
        where: Prefix of error messages, which names the side.

    Raises:
        PipelineError: An op does not match the result of the preceding ops.
    """
    by_index: dict[int, Node] = {}
    names: dict[str, int] = {}
    tensors: set[int] = set()  # for each tensor, the index of the op that last changed it
    last: int | None = None
    for index, op, key, is_chosen in ops:
        with at(index, op, where):
            source = _source(index, op, names, last)
            if isinstance(op, FirstOp):
                node = Node(index, op, key, index, op.infer(), (op,), op.lower(operators))
            else:
                node = replace(by_index[source], index=index, op=op, key=key, source=source, inputs=(), call=None)
                if node.image.has_alpha:
                    check_alpha(op, node.lowered, is_chosen=is_chosen)
            if isinstance(op, Extern) and source in tensors:
                operator = find(op.operator, op.version, operators)
                if operator.place == "tensor":
                    node = replace(node, call=operator.use(op.fields))
                    tensors.remove(source)
            if isinstance(op, Tensor) or node.call is not None:
                tensors.add(index)
            elif isinstance(op, ImageOp):
                before, image = node.lowered, node.image
                choice, choice_key = as_choice(op, key)
                assert isinstance(choice, ImageOp)
                result = op.infer(image)
                lowered = choice.lower(replace(before, resizes_again=is_chosen), image, choice_key)
                if isinstance(op, Extern):
                    (*_, call) = lowered.levels
                    result = result.sized(*call.size) if isinstance(call, Call) and call.size else result
                node = replace(node, inputs=op.inputs(image), image=result, chain=(*node.chain, op), lowered=lowered)
        by_index[index] = node
        last = index
        yield node


def compile_side(
    ops: Iterable[Item], operators: tuple[Operator | str, ...], where: str = "", size_hint: str = ""
) -> CompiledSide:
    """Compile the ops of a side, which must not contain a random choice between geometric ops.

    Args:
        ops: Ops of the side, as returned by ``items``.
        operators: Custom operators that ``extern`` ops may refer to.
        where: Prefix of error messages, which names the side.
        size_hint: Error message for a tensor of unlimited size. If it is empty, the op's own message is used.

    Raises:
        PipelineError: An op is invalid, or the ops do not fit together.
    """
    plans: dict[str, OutputPlan] = {}
    annotations: dict[str, AnnotationPlan] = {}
    outputs: dict[str, Output] = {}
    tensors: dict[int, str] = {}  # names of the tensors, by the index of the op that last changed them
    inputs: dict[str, InputSpec] = {}
    compiled: list[Node] = []
    for node in nodes(ops, operators, where):
        index, op = node.index, node.op
        compiled.append(node)
        with at(index, op, where):
            for spec in node.inputs:
                _add_input(spec, inputs)
            call = node.lowered.levels[-1] if isinstance(op, Extern) and node.call is None else None
            if isinstance(call, Call) and call.key and op.only != "training":
                raise PipelineError('uses random numbers, which serving does not support: add "only": "training"')
            if isinstance(op, OutputOp):
                is_bound = None not in (node.image.max_height, node.image.max_width)
                if isinstance(op, Tensor) and op.max_size is None and not is_bound and size_hint:
                    raise PipelineError(size_hint)
                name = op.name or op_name(op)
                _check_output(name, (*outputs, *annotations))
                plans[name] = op.lower(node.lowered, op.infer(node.image))
                result = plans[name].spec
                for each in getattr(plans[name], "calls", ()):
                    result = each.result(result)
                outputs[name] = Output(name, result, (*node.chain, op))
                if isinstance(op, Tensor):
                    tensors[index] = name
            elif node.call is not None:
                old = outputs.pop(tensors.pop(node.source))
                if "t" in old.spec.lengths:
                    raise PipelineError("supports the tensors of images, not of clips")
                if old.spec.is_open:
                    raise PipelineError(f"requires tensors of a fixed shape, not {list(old.spec.shape)}")
                before = plans.pop(old.name)
                output = Output(op.name or old.name, node.call.result(old.spec), (*old.chain, op))
                _check_output(output.name, (*outputs, *annotations))
                _check_size(old.spec.n_bytes, where)  # because the input of the call also uses memory
                assert isinstance(before, TensorPlan)
                outputs[output.name], tensors[index] = output, output.name
                plans[output.name] = replace(before, calls=(*before.calls, node.call))
            elif isinstance(op, AnnotationOp):
                name = op.name or op_name(op)
                _check_output(name, (*outputs, *annotations))
                annotations[name] = op.lower(node.lowered, node.image)
                kinds = Counter(type(each) for each in annotations.values())
                if max(kinds[BoxesPlan], kinds[PointsPlan]) > 1:
                    raise PipelineError(
                        "only one op of this type is supported, because the labels of a sample belong to one list"
                    )
    if not any(isinstance(plan, TensorPlan) for plan in plans.values()):
        raise PipelineError("ops: no op defines a tensor: add tensor at the end")
    _check_annotations(compiled, where)
    _check_size(n_bytes(outputs), f"ops: {where}")
    names = [node.op.name for node in compiled if node.op.name is not None]
    for name in inputs:
        _check_input(name, [*names, *outputs, *annotations], annotations)
    first = compiled[0].op
    assert isinstance(first, FirstOp)
    plan = first.plan(outputs=plans, annotations=annotations, inputs=inputs)
    _check_gap(plan)
    return CompiledSide(tuple(compiled), outputs, plan)


def _check_gap(plan: Plan) -> None:
    """Raise PipelineError if the pipeline has a ``reducing_gap`` that its outputs or its first op do not support."""
    gap = plan.gap
    if gap is None:
        return
    for is_wrong, problem in (
        (plan.takes or plan.clip, '"reducing_gap" requires that the pipeline begins with decode'),
        (len(plan.geometries) > 1, '"reducing_gap" requires that all outputs have the same resize'),
        (gap.requested and plan.apply_exif_orientation, f'{_DRAFT} "apply_exif_orientation": false in decode'),
        (gap.requested and plan.is_gray, f'{_DRAFT} a "color" of decode other than gray'),
        (plan.chroma == "fast" or plan.idct == "fast", '"reducing_gap" requires the default "chroma" and "idct"'),
    ):
        if is_wrong:
            raise PipelineError(f"ops: {problem}")


def _check_annotations(compiled: Sequence[Node], where: str) -> None:
    """Raise PipelineError if boxes, points or masks would not match the image of any tensor."""
    motions = [node.lowered.geometry.motion for node in compiled]
    of_tensors = [motion for node, motion in zip(compiled, motions, strict=True) if isinstance(node.op, Tensor)]
    right = {type(node.op) for node, motion in zip(compiled, motions, strict=True) if motion in of_tensors}
    for position, node in enumerate(compiled):
        if isinstance(node.op, AnnotationOp) and type(node.op) not in right:
            name = op_name(node.op)
            after = zip(compiled[position:], motions[position:], strict=True)
            movers = (each for each, motion in after if motion != motions[position] and isinstance(each.op, ImageOp))
            mover = next(movers, None)
            with at(node.index, node.op, where):
                if mover is None:
                    raise PipelineError(f"no tensor contains this image: move {name} before a tensor of the same image")
                later = op_label(mover.index, mover.op)
                raise PipelineError(
                    f"{later} transforms the image, but not the earlier {name}: move {name} after {later}"
                )


def meaning(spec: TensorSpec, plan: TensorPlan) -> dict[str, object]:
    """Return the properties of a tensor on which a model depends, such as the dtype, by the name of the property."""
    return {
        "dtype": spec.dtype,
        "layout": spec.layout,
        "channels": plan.channels if plan.spec.channels > 1 else "gray",
        "value of the fourth channel": "none" if plan.spec.fourth is None else f"{plan.spec.fourth:g}",
        "operators": " and ".join(map(str, plan.calls)) or "none",
        "values": f"{spec.low:.4g}..{spec.high:.4g}{' (not rounded by the resize)' * plan.is_real}",
        "arithmetic": plan.arithmetic,
    }


@contextmanager
def at(index: int, op: Op, where: str = "") -> Iterator[None]:
    """If the block raises a PipelineError, prepend the op's index and type, and ``where``, to its message."""
    try:
        yield
    except PipelineError as error:
        raise PipelineError(f"{op_label(index, op)}: {where}{error}", limit=error.limit) from None


def op_label(index: int, op: Op) -> str:
    """Return an op's index and type, such as ``ops[2] "tensor"``.

    For an ``extern`` op, the name of its custom operator is used instead of the type.
    """
    return f'ops[{index}] "{op.operator if isinstance(op, Extern) else op_name(op)}"'


def _check_size(size: int, where: str) -> None:
    if size > MAX_OUTPUT_BYTES:
        raise PipelineError(
            f"{where}the outputs of one image take {size:,} bytes, but a response of the server may contain at most "
            f"{MAX_OUTPUT_BYTES:,}",
            limit="response",
        )


def n_bytes(outputs: Mapping[str, Output]) -> int:
    """Return the maximum total size of the outputs of one image in bytes."""
    return sum(output.spec.n_bytes for output in outputs.values())


def _check_output(name: str, others: Sequence[str]) -> None:
    if name in RESERVED_NAMES:
        raise PipelineError(
            f'name: "{name}" is reserved: use a different name, which need not be the name of the model\'s input'
        )
    if name in others:
        raise PipelineError(f'the output "{name}" already exists: set a different "name"')


def _add_input(spec: InputSpec, others: dict[str, InputSpec]) -> None:
    """Add the input of an op to the inputs of the pipeline. Several ops may use the same input."""
    _check_name(spec.name, "the name of an input")
    if spec.name in RESERVED_NAMES:
        raise PipelineError(f'the name "{spec.name}" is reserved: use a different name for the input')
    shared = others.get(spec.name, spec).and_(spec)
    if shared is None:
        raise PipelineError(f'the input "{spec.name}" must be {spec}, but an earlier op uses it as {others[spec.name]}')
    others[spec.name] = shared


def _check_input(name: str, others: Sequence[str], annotations: Mapping[str, AnnotationPlan]) -> None:
    """Raise PipelineError if the name of an input is already the name of an op, an output or an annotation."""
    if name in others:
        raise PipelineError(f'ops: the input "{name}" has the same name as an op or an output: rename it')
    if name in ("boxes", "points", "mask", "masks") and annotations:
        raise PipelineError(f'ops: the input "{name}" has the same name as an annotation of the samples: rename it')


def _check_name(name: str, what: str) -> None:
    """Raise PipelineError if the name of an op or an input is invalid."""
    if not (name.isascii() and name.isidentifier()):  # different Unicode names may look alike
        raise PipelineError(f"{what} must consist of ASCII letters, digits and _, not {quoted(name)}")
    if len(name) > MAX_NAME:
        raise PipelineError(f"{what} must have at most {MAX_NAME} characters, not {len(name):,}")


def _source(index: int, op: Op, names: dict[str, int], last: int | None) -> int:
    """Return the index of the op whose image ``op`` receives, and add the op's own name to ``names``."""
    if isinstance(op, FirstOp) != (last is None):
        raise PipelineError(
            "the first op, and only the first op, must be decode (or pixels, for images that are already decoded)"
        )
    if op.from_ is not None and op.from_ not in names:
        named = ", ".join([*list(names)[:8], *["..."] * (len(names) > 8)]) or "none"
        raise PipelineError(f"from: no earlier op has the name {quoted(op.from_)}; existing names: {named}")
    if op.name is not None:
        _check_name(op.name, '"name"')
        if op.name in names:
            raise PipelineError(f'name: "{op.name}" is already the name of ops[{names[op.name]}]')
    source = -1 if last is None else last if op.from_ is None else names[op.from_]
    if op.name is not None:
        names[op.name] = index
    return source
