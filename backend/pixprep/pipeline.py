"""Pipeline: an immutable graph of ops, checked, with every shape known, and compiled to its plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pixprep import pipeline_file
from pixprep.compiler import Lowered, lower, output_plan, whole_plan
from pixprep.errors import PipelineError
from pixprep.ops import AnyOp, Decode, Op, OutputOp, Tensor, op_name
from pixprep.pipeline_file import Origin
from pixprep.plan import OutputPlan, Plan
from pixprep.spec import ImageSpec, TensorSpec

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


class Pipeline:
    """The user's graph of ops, checked.

    >>> import pixprep as pp
    >>> pipeline = pp.Pipeline([pp.decode(), pp.resize(256), pp.center_crop(224), pp.tensor()])
    >>> print(pipeline.outputs["tensor"].spec)
    float32 [3, 224, 224] chw, values 0..255

    Args:
        ops: in the order of the data; the first is ``decode``, at least one is ``tensor``.
        origin: where an imported pipeline comes from.

    Raises:
        PipelineError: names the op by its place, ``ops[2] "tensor": …``.

    Attributes:
        ops: the ops, every field checked.
        origin: as given.
        images: for each op the spec of the image that leaves it.
        outputs: what the pipeline gives, by name, in the order of the ops.
        plan: what it is compiled to.
    """

    def __init__(self, ops: Sequence[Op], *, origin: Origin | None = None) -> None:
        if isinstance(ops, Op | str | Path):
            raise PipelineError("ops: a list such as [decode(), tensor()]; pixprep.load(path) reads a pipeline file")
        checked: list[AnyOp] = []
        for index, op in enumerate(ops):
            if not isinstance(op, Op):
                raise PipelineError(f"ops[{index}]: an op is made by a call such as decode(), not {op!r}")
            with _at(index, op):
                checked.append(pipeline_file.convert(op))
        self._make(checked, origin)

    def _make(self, ops: Sequence[AnyOp], origin: Origin | None) -> None:
        """Wire, infer and compile ops whose fields have been checked, in one walk over them."""
        nodes: list[_Node] = []
        names: dict[str, int] = {}
        plans: dict[str, OutputPlan] = {}
        self.outputs: dict[str, Output] = {}
        for index, op in enumerate(ops):
            with _at(index, op):
                taken = _taken(index, op, names)
                if isinstance(op, Decode):
                    node = _Node(op.infer(), (op,), Lowered(op))
                elif isinstance(op, OutputOp):
                    node = nodes[taken]
                    output = Output(op.name or op_name(op), op.infer(node.image), (*node.chain, op))
                    self._add(output)
                    plans[output.name] = output_plan(op, output.spec, node.lowered)
                else:
                    image, chain, lowered = nodes[taken]
                    node = _Node(op.infer(image), (*chain, op), lower(op, lowered, image))
                nodes.append(node)
        if not any(isinstance(op, Tensor) for op in ops):
            raise PipelineError("ops: no op gives a tensor: end with tensor")
        if self.n_bytes > MAX_OUTPUT_BYTES:
            raise PipelineError(
                f"ops: the outputs of one image take {self.n_bytes:,} bytes; at most {MAX_OUTPUT_BYTES:,} "
                "leave the server in one answer"
            )
        self.ops: tuple[AnyOp, ...] = tuple(ops)
        self.origin = origin
        self.images: tuple[ImageSpec, ...] = tuple(node.image for node in nodes)
        self.plan: Plan = whole_plan(nodes[0].lowered.decode, plans)

    @property
    def n_bytes(self) -> int:
        """What all outputs of one image take."""
        return sum(output.spec.n_bytes for output in self.outputs.values())

    def _add(self, output: Output) -> None:
        if output.name in RESERVED_NAMES:
            raise PipelineError(f'name: "{output.name}" is kept for Triton')
        if output.name in self.outputs:
            raise PipelineError(f'there is an output "{output.name}" already: give this one another "name"')
        self.outputs[output.name] = output

    @classmethod
    def from_json(cls, text: str | bytes) -> Pipeline:
        """The pipeline that the text of a pipeline file describes."""
        pipeline = cls.__new__(cls)
        pipeline._make(*pipeline_file.loads(text))
        return pipeline

    def to_json(self) -> str:
        """The canonical text of the pipeline file."""
        return pipeline_file.dumps(self.ops, self.origin)

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
            inside = [file for place in _PLACES for file in sorted(path.glob(place))] if path.is_dir() else []
            hint = f": did you mean {inside[0]}?" if inside else ": name the pipeline file in it" * path.is_dir()
            why = f"is a folder{hint}" if path.is_dir() else f"cannot be read: {error.strerror}"
            raise PipelineError(f"{path.name or path}: {why}") from None
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
        return (self.ops, self.origin) == (other.ops, other.origin)

    def __hash__(self) -> int:
        return hash((self.ops, self.origin))

    def __repr__(self) -> str:
        origin = f", origin={self.origin!r}" if self.origin else ""
        return f"Pipeline([{', '.join(map(repr, self.ops))}]{origin})"

    def _repr_html_(self) -> str:
        from pixprep.notebook import pipeline_html  # noqa: PLC0415  (for a notebook only)

        return pipeline_html(self)


def _taken(index: int, op: AnyOp, names: dict[str, int]) -> int:
    """The index of the op whose image ``op`` takes; enters its own name into ``names``."""
    if isinstance(op, Decode) != (index == 0):
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
    taken = index - 1 if op.from_ is None else names[op.from_]
    if op.name is not None:
        names[op.name] = index
    return taken


@contextmanager
def _at(index: int, op: Op) -> Iterator[None]:
    try:
        yield
    except PipelineError as error:
        raise PipelineError(f'ops[{index}] "{op_name(op)}": {error}') from None
