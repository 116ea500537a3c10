"""Pipeline: an immutable graph of ops, checked, with every shape known, and compiled to its plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, get_args

from pixprep import pipeline_file
from pixprep.compiler import Lowered, lower, output_plan, whole_plan
from pixprep.errors import PipelineError
from pixprep.ops import AnyOp, Decode, Op, OutputOp, Tensor, is_on, op_name
from pixprep.pipeline_file import Origin
from pixprep.plan import OutputPlan, Plan, TensorPlan
from pixprep.spec import ImageSpec, Side, TensorSpec

SIDES: tuple[Side, ...] = get_args(Side)
MAX_NAME = 128
MAX_OUTPUT_BYTES = (1 << 31) - 1
"""Of the outputs of one image, and of a batch: gRPC carries no more in one answer, and a host holds many answers."""
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
        ops: in the order of the data; the first is ``decode``, at least one is ``tensor``.
        origin: where an imported pipeline comes from.

    Raises:
        PipelineError: names the op by its place, ``ops[2] "tensor": …``.

    Attributes:
        definition: the ops of both sides, every field checked.
        side: the one that the attributes below are of: ``serving``, unless there is none, or ``for_training`` was
            asked.
        ops: the ops of this side.
        origin: as given.
        images: for each op the spec of the image that leaves it.
        outputs: what the pipeline gives, by name, in the order of the ops.
        plan: what it is compiled to.
    """

    def __init__(self, ops: Sequence[Op], *, origin: Origin | None = None) -> None:
        checked: list[AnyOp] = []
        for index, op in enumerate(ops):
            if not isinstance(op, Op):
                raise PipelineError(f"ops[{index}]: an op is made by a call such as decode(), not {op!r}")
            with _at(index, op):
                checked.append(pipeline_file.convert(op))
        self._make(checked, origin)

    def _make(self, ops: Sequence[AnyOp], origin: Origin | None) -> None:
        """Wire, infer and compile ops whose fields have been checked."""
        self.definition: tuple[AnyOp, ...] = tuple(ops)
        self.origin = origin
        self._chains: dict[Side, _Chain] = {}
        with_tensor = [side for side in SIDES if any(isinstance(op, Tensor) and is_on(op, side) for op in ops)]
        if not with_tensor or all(is_on(op, side) for op in ops for side in SIDES):
            self._chains = dict.fromkeys(SIDES, _compiled(enumerate(ops)))
        else:
            for side in with_tensor:
                self._chains[side] = _compiled_side(ops, side)
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
    def plan(self) -> Plan:
        """See above."""
        return self._chains[self.side].plan

    def for_training(self) -> Pipeline:
        """This pipeline with its training side.

        Raises:
            PipelineError: it has none: every tensor is ``"only": "serving"``.
        """
        return self._for("training")

    def for_serving(self) -> Pipeline:
        """This pipeline with its serving side.

        Raises:
            PipelineError: it has none: every tensor is ``"only": "training"``.
        """
        return self._for("serving")

    def _for(self, side: Side) -> Pipeline:
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
    def left_out(self) -> tuple[AnyOp, ...]:
        """The ops of the other side alone, in order."""
        return tuple(op for op in self.definition if not is_on(op, self.side))

    @property
    def n_bytes(self) -> int:
        """What all outputs of one image take."""
        return _n_bytes(self.outputs)

    @classmethod
    def from_json(cls, text: str | bytes) -> Pipeline:
        """The pipeline that the text of a pipeline file describes."""
        pipeline = cls.__new__(cls)
        pipeline._make(*pipeline_file.loads(text))
        return pipeline

    def to_json(self) -> str:
        """The canonical text of the pipeline file."""
        return pipeline_file.dumps(self.definition, self.origin)

    @classmethod
    def load(cls, path: str | Path) -> Pipeline:
        """Read a pipeline file.

        Raises:
            PipelineError: the file cannot be read or is wrong; the message begins with its name.
        """
        path = Path(path)
        try:
            text = pipeline_file.read_bytes(path, most=pipeline_file.MAX_BYTES)
        except OSError as error:
            raise PipelineError(f"{path.name or path}: cannot be read: {error.strerror}") from None
        try:
            return cls.from_json(text)
        except PipelineError as error:
            raise PipelineError(f"{path.name}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the pipeline file."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

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
        from pixprep.notebook import pipeline_html  # noqa: PLC0415  (for a notebook only)

        return pipeline_html(self)


def _compiled_side(ops: Sequence[AnyOp], side: Side) -> _Chain:
    """The chain of one side."""
    return _compiled([(index, op) for index, op in enumerate(ops) if is_on(op, side)], f"in {side}: ")


def _compiled(ops: Iterable[tuple[int, AnyOp]], where: str = "") -> _Chain:
    """Wire, infer and compile, in one walk over the ops, each with its place in the file."""
    nodes: dict[int, _Node] = {}
    names: dict[str, int] = {}
    plans: dict[str, OutputPlan] = {}
    outputs: dict[str, Output] = {}
    chain: list[AnyOp] = []
    last: int | None = None
    for index, op in ops:
        with _at(index, op, where):
            taken = _taken(index, op, names, last)
            if isinstance(op, Decode):
                node = _Node(op.infer(), (op,), Lowered(op))
            elif isinstance(op, OutputOp):
                node = nodes[taken]
                output = Output(op.name or op_name(op), op.infer(node.image), (*node.chain, op))
                _add(output, outputs)
                plans[output.name] = output_plan(op, output.spec, node.lowered)
            else:
                image, before, lowered = nodes[taken]
                node = _Node(op.infer(image), (*before, op), lower(op, lowered, image))
            nodes[index] = node
            chain.append(op)
            last = index
    if not any(isinstance(op, Tensor) for op in chain):
        raise PipelineError("ops: no op gives a tensor: end with tensor")
    if _n_bytes(outputs) > MAX_OUTPUT_BYTES:
        raise PipelineError(
            f"ops: {where}the outputs of one image take {_n_bytes(outputs):,} bytes; at most {MAX_OUTPUT_BYTES:,} "
            "leave the server in one answer"
        )
    images = tuple(node.image for node in nodes.values())
    first = chain[0]
    assert isinstance(first, Decode)
    return _Chain(tuple(chain), images, outputs, whole_plan(first, plans))


def _n_bytes(outputs: dict[str, Output]) -> int:
    return sum(output.spec.n_bytes for output in outputs.values())


def _add(output: Output, outputs: dict[str, Output]) -> None:
    if output.name in RESERVED_NAMES:
        raise PipelineError(f'name: "{output.name}" is kept for Triton')
    if output.name in outputs:
        raise PipelineError(f'there is an output "{output.name}" already: give this one another "name"')
    outputs[output.name] = output


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
            ("values", _range(output.spec, served), _range(theirs, trained)),
            ("arithmetic", served.arithmetic, trained.arithmetic),
        ):
            if here != there:
                raise PipelineError(
                    f'ops: the tensor "{name}" has other {what} in training, {there}, than in serving, '
                    f"{here}: a model would be served what it was not trained on"
                )


def _range(spec: TensorSpec, plan: TensorPlan) -> str:
    return f"{spec.low:.4g}..{spec.high:.4g}{' of a resize that does not round' if plan.is_real else ''}"


def _taken(index: int, op: AnyOp, names: dict[str, int], last: int | None) -> int:
    """The index of the op whose image ``op`` takes; enters its own name into ``names``."""
    if isinstance(op, Decode) != (last is None):
        raise PipelineError("the first op, and no other, must be decode")
    if op.from_ is not None and op.from_ not in names:
        named = ", ".join([*list(names)[:8], *["..."] * (len(names) > 8)]) or "none"
        raise PipelineError(f"from: no earlier op is named {pipeline_file.quoted(op.from_)}; named are: {named}")
    if op.name is not None:
        if not (op.name.isascii() and op.name.isidentifier()):  # in other letters it may look like another name
            raise PipelineError(f"name: ASCII letters, digits and _, not {pipeline_file.quoted(op.name)}")
        if len(op.name) > MAX_NAME:
            raise PipelineError(f"name: {len(op.name):,} letters; at most {MAX_NAME}")
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
