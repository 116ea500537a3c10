"""Importer of the serialized graph of an NVIDIA DALI ``@pipeline_def``, which dali_backend calls ``model.dali``.

It does not need DALI. The defaults of operators are those observed in DALI 2.4. A file does not contain the version of
DALI that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pixprep import wire
from pixprep.errors import PipelineError
from pixprep.importers.assembly import assembled
from pixprep.importers.dali.clips import CLIPS, STREAM, check_clip, stream_of, strided
from pixprep.importers.dali.geometry import DECODERS
from pixprep.importers.dali.graph import Operator, batch_size, graph
from pixprep.importers.dali.numbers import NUMBERS
from pixprep.importers.dali.ops import AFTER_EXPANDED, IMAGES
from pixprep.importers.dali.requests import bounded, check_arguments, dtype_of, frames, is_number, reformed, source_of
from pixprep.importers.dali.rules import output_rule
from pixprep.importers.dali.script import serialized
from pixprep.importers.dali.values import Encoded, Image, MovedError, Numbers, Value, lowered
from pixprep.importers.dali.windows import EXCHANGED
from pixprep.importers.fields import Fields, error_prefix, read_file, reading
from pixprep.pipeline.ops import Decode, Op, Tensor, changed
from pixprep.pipeline.ops.faults import quoted
from pixprep.pipeline.pipeline import Pipeline
from pixprep.spec import Chroma

MAX_BYTES = 1 << 20
_SOURCES = ("ExternalSource", "readers__File")

# Common arguments of all operators that do not change pixels.
_ANYWHERE = (
    *("device", "preserve", "preserve_name", "seed", "bytes_per_sample_hint", "image_type", "_module", "_display_name"),
    *("_origin_stack_filename", "_origin_stack_lineno", "_origin_stack_name", "_origin_stack_line"),
)

_OWN = "write a custom operator (docs/own-operators.md)"
_REASONS = {
    "samples random parameters for each image, which is not supported: serialize a graph without it, or add the random "
    "op to the pipeline file": (*("random__", "decoders__ImageRandomCrop", "RandomResizedCrop"),),
    "selects a branch for each image, which is not supported: serialize a graph with a single branch": (
        "conditional__",
    ),
    f"calls a Python function, which the file does not contain: {_OWN}": ("PythonFunction", "NumbaFunction"),
    f"moves pixels by a formula specific to DALI, which is not supported: {_OWN}": ("Water", "Sphere", "Jitter"),
    f"compresses the image again, which is not supported: {_OWN}": ("JpegCompressionDistortion",),
    f"combines channels or images, which is not supported: {EXCHANGED}": ("Cat", "Stack"),
    f"equalizes the image, which is not supported: {_OWN}": ("Clahe", "Equalize"),
}
"""Reason and fix for unsupported operators, by name or prefix."""


def from_dali(
    source: str | Path | bytes,
    *,
    output: str | None = None,
    chroma: Chroma | None = None,
    pipeline: str | None = None,
    python: str | None = None,
    run_python: bool = False,
    max_size: int | None = None,
    clip: Literal["first"] | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> Pipeline:
    """Create the pipeline that is equivalent to a serialized DALI pipeline.

    docs/dali.md lists the supported operators. The origin of the encoded image does not matter: an ``external_source``
    is a photo, or per-request numbers or frames. A single output becomes ``tensor``. Several outputs keep the names
    that the pipeline gives them, or are called ``tensor_0``, ``tensor_1`` and so on.

    The values equal those of DALI's CPU operators. DALI's GPU operators were not compared.

    Args:
        source: The serialized file or its bytes, or a Python file such as ``1/dali.py``, which needs ``run_python``.
        output: Name of a single output to import; operators that lead only to other outputs may be unsupported.
        chroma: Chroma upsampling of ``decode``. Default: that of the decoder, which is ``fast`` with device ``mixed``
            unless the graph requests fancy upsampling. ``fancy`` reproduces the pixels of DALI's CPU decoder.
        pipeline: Name of the pipeline in a Python file. Default: the one with ``@autoserialize``, or the only one.
        python: Python executable with DALI that serializes the pipeline. Default: this Python.
        run_python: Whether a Python file may be executed, in a separate process. Without it, such a file is rejected.
        max_size: Maximum side in pixels that a request can ask for, if a request determines the size of the tensor.
        dtypes: Types of inputs for which the graph does not specify one, by name: NumPy's names, such as ``int32``.
        clip: ``first`` imports the first sequence of ``inputs.video``, whose clips consist of many sequences.

    Raises:
        PipelineError: The file cannot be read, or an operator or argument is not supported; the message names it.
        SetupError: DALI is needed to serialize a Python file and is not installed.
    """
    where = "model.dali" if isinstance(source, bytes) else Path(source).name
    options: Any = {"pipeline": pipeline, "python": python, "run_python": run_python}
    data = source if isinstance(source, bytes) else read_graph(Path(source), **options)
    if not isinstance(dtypes, Mapping | None):
        raise PipelineError(f'{where}: dtypes must map the names of inputs to types, such as {{"x": "int32"}}')
    operators, names = _read(data, where)
    if output is not None and output not in names:
        raise PipelineError(f"{where}: unknown output {quoted(output)}; available outputs: {_listed(names)}")
    wanted = names if output is None else [output]
    try:
        with error_prefix(where):
            values = _evaluate(operators, wanted, clip, dtypes or {})
            ops = strided(bounded(_merged(_outputs(values, wanted)), max_size), values.values())
    except PipelineError as error:
        others = (
            f"; to import a single output, set --option output=NAME to one of {_listed(names)}"
            if len(wanted) > 1
            else ""
        )
        raise PipelineError(f"{error}{others}") from None
    if chroma is not None and isinstance(ops[0], Decode):
        ops[0] = changed(ops[0], chroma=chroma)
    return assembled(ops, library="dali", version="unknown", name=where, where=where, like="dali")


def read_graph(
    file: Path, *, pipeline: str | None = None, python: str | None = None, run_python: bool = False
) -> bytes:
    """Return the serialized graph of a file or of a Python file; see ``from_dali``."""
    if file.suffix == ".py":
        if not run_python:
            raise PipelineError(
                f"{file.name}: a Python file is executed when it is imported: review its code and pass --run-python "
                "(in Python, run_python=True), or import a serialized model.dali, which contains only data"
            )
        return serialized(file, pipeline=pipeline, python=python)
    if (pipeline, python) != (None, None):
        raise PipelineError(
            f"{file.name}: the options pipeline and python apply only to a Python file, such as dali.py"
        )
    return read_file(file, max_bytes=MAX_BYTES)


def interface(data: bytes, where: str) -> tuple[dict[str, str | None], list[str], int | None]:
    """Return the inputs of a graph by name with their types, the names of its outputs, and its batch size."""
    operators, outputs = _read(data, where)
    sources = [operator for operator in operators if operator.name in (*_SOURCES, STREAM)]
    return {operator.outputs[0]: dtype_of(operator) for operator in sources}, outputs, batch_size(data)


def _read(data: bytes, where: str) -> tuple[list[Operator], list[str]]:
    try:
        return graph(data, where)
    except wire.WireError as error:
        raise PipelineError(
            f'{where}: not a serialized DALI pipeline: {error}; write one with pipe.serialize(filename="model.dali")'
        ) from None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names[:10])) + (", ..." if len(names) > 10 else "")


def _evaluate(
    operators: Sequence[Operator], wanted: Sequence[str], clip: str | None, dtypes: Mapping[str, str]
) -> dict[str, Value]:
    """Evaluate the tensors that the wanted tensors depend on."""
    needed, values = _needed(operators, wanted), dict[str, Value]()
    for operator in operators:
        if needed.isdisjoint(operator.outputs):
            continue
        if operator.name in _SOURCES:
            values[operator.outputs[0]] = source_of(operator, dtypes)
            continue
        recompute = partial(_again, operators, values)
        computed = {key: _argument(values, name, recompute) for key, name in operator.computed.items()}
        arguments = {**operator.arguments, **computed}
        with reading(arguments, operator.where) as fields:
            fields.ignore(*_ANYWHERE)
            is_stream = operator.name == STREAM
            results = (stream_of(operator, fields, clip),) if is_stream else _applied(operator, fields, values)
        values.update(zip(operator.outputs, results, strict=False))
    return values


def _argument(values: Mapping[str, Value], name: str, recompute: Callable[[str], Numbers]) -> Any:
    """Return the argument that a tensor provides, as a plain value if it is constant."""
    value = values.get(name)
    return replace(value, again=partial(recompute, name)).plain if isinstance(value, Numbers) else value


def _again(operators: Sequence[Operator], values: Mapping[str, Value], name: str) -> Numbers:
    """Compute the numbers of a tensor again, for the sizes of ``trying``. Values other than numbers are kept."""
    wanted = _needed(operators, [name])
    found: dict[str, Value] = {key: value for key, value in values.items() if not isinstance(value, Numbers)}
    for operator in operators:
        results = [values[output] for output in operator.outputs if output in values]
        if wanted.isdisjoint(operator.outputs) or not any(isinstance(result, Numbers) for result in results):
            continue
        if not all(isinstance(result, Numbers) for result in results):
            raise MovedError
        computed = {
            key: _argument(found, each, partial(_again, operators, values)) for key, each in operator.computed.items()
        }
        with reading({**operator.arguments, **computed}, operator.where) as fields:
            fields.ignore(*_ANYWHERE)
            found.update(zip(operator.outputs, _applied(operator, fields, found), strict=False))
    made = found[name]
    assert isinstance(made, Numbers)
    return made


def _needed(operators: Sequence[Operator], wanted: Sequence[str]) -> set[str]:
    """Return the names of all tensors that the wanted tensors depend on."""
    needed = set(wanted)
    for operator in reversed(operators):
        if not needed.isdisjoint(operator.outputs):
            needed.update(operator.inputs, operator.computed.values())
    return needed


def _applied(operator: Operator, fields: Fields, values: Mapping[str, Value]) -> tuple[Value, ...]:
    """Apply an operator to its inputs.

    Their types decide whether it is a decoder, or an operator on images or numbers.
    """
    inputs = [values[name] for name in operator.inputs if name in values]
    first = inputs[0] if inputs else None
    check_arguments(operator, values)
    if isinstance(first, Image):
        check_clip(operator.name, first)
        if first.is_expanded and operator.name not in AFTER_EXPANDED:
            raise PipelineError("is not supported after expand_dims: move expand_dims to the end of the graph")
    if isinstance(first, Encoded) and operator.name not in (*DECODERS, *CLIPS, "PeekImageShape"):
        if is_number(operator):
            return (reformed(operator.name, first, fields),)
        inputs = [frames(first), *inputs[1:]]
    result: Value | tuple[Value, ...]
    if operator.name in DECODERS:
        most = 3 if operator.name == "decoders__ImageSlice" else 1
        if not isinstance(first, Encoded) or not len(inputs) == len(operator.inputs) <= most:
            raise PipelineError(f"its input {_listed(operator.inputs)} is not the encoded image")
        result = DECODERS[operator.name](first, fields, *inputs[1:])
    elif operator.name in CLIPS and isinstance(first, Encoded) and len(operator.inputs) == 1:
        result = CLIPS[operator.name](first, fields)
    elif operator.name in IMAGES and any(isinstance(value, Image) for value in inputs):
        result = IMAGES[operator.name](inputs, fields)
    elif operator.name in NUMBERS and len(inputs) == len(operator.inputs) and not isinstance(first, Image):
        result = NUMBERS[operator.name](inputs, fields)
    elif operator.name in IMAGES:
        raise PipelineError(f"its input {_listed(operator.inputs)} is not a decoded image")
    else:
        why = next((why for why, names in _REASONS.items() if operator.name.startswith(names)), "")
        raise PipelineError(why or f"is not supported; supported operators: {', '.join((*DECODERS, *IMAGES))}")
    return result if isinstance(result, tuple) else (result,)


def _outputs(values: Mapping[str, Value], wanted: Sequence[str]) -> list[tuple[Op, ...]]:
    """Return the ops from ``decode`` to each output."""
    found = [values.get(name) for name in wanted]
    images = [value for value in found if isinstance(value, Image)]
    for name, value in zip(wanted, found, strict=True):
        if not isinstance(value, Image | Numbers) or not images:
            raise PipelineError(
                f"the output {quoted(name)} is not computed from an image, which is not supported: serve the graph "
                "with DALI"
            )
    if len({(image.encoded, image.chain[0], image.stride) for image in images}) > 1:
        raise PipelineError("the outputs use different inputs or decoders, which is not supported")
    made = []
    for index, (name, value) in enumerate(zip(wanted, found, strict=True)):
        called = _tensor_name(wanted, index)
        if isinstance(value, Image):
            made.append((*_padded(value.chain), Tensor(name=called, **value.tensor)))
        else:
            assert isinstance(value, Numbers)
            with error_prefix(f"the output {quoted(name)}"):
                made.append(output_rule(value, images, called))
    return made


def _padded(chain: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return the ops of a tensor.

    A tensor has a fixed size, so images larger than a ``pad``, which DALI keeps, are rejected.
    """
    spec = lowered(chain)[1]
    if spec.height is not None and spec.width is not None:
        return chain
    return tuple(changed(op, larger="refuse") if getattr(op, "larger", None) == "keep" else op for op in chain)


def _tensor_name(wanted: Sequence[str], index: int) -> str | None:
    """Return None for a single output, or the name that the author chose. DALI's own names begin with an underscore."""
    if len(wanted) == 1:
        return None
    name = wanted[index]
    is_name = name.isascii() and name.isidentifier() and not name.startswith("_")
    return name if is_name else f"tensor_{index}"


def _merged(chains: Sequence[tuple[Op, ...]]) -> list[Op]:
    """Merge chains with a common beginning into one list of ops.

    Common ops occur once, with a name where the chains split.
    """
    ops: list[Op] = []
    places: dict[tuple[Op, ...], int] = {}
    for chain in chains:
        at = -1
        for length, op in enumerate(chain, 1):
            if chain[:length] not in places:
                taken = op
                if at != len(ops) - 1:
                    if ops[at].name is None:
                        ops[at] = changed(ops[at], name=f"branch_{at}")
                    taken = changed(op, from_=ops[at].name)
                places[chain[:length]] = len(ops)
                ops.append(taken)
            at = places[chain[:length]]
    return ops
