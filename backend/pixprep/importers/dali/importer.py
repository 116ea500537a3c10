"""Imports the serialized graph of an NVIDIA DALI ``@pipeline_def``, which is the file ``model.dali`` of dali_backend.

DALI need not be installed. The defaults of arguments were measured with DALI 2.4, because a serialized graph does not
contain the version of DALI.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pixprep import wire
from pixprep.errors import PipelineError
from pixprep.importers.assembly import assembled
from pixprep.importers.dali.geometry import CHANNEL_ORDER_HINT
from pixprep.importers.dali.graph import Operator, batch_size, graph
from pixprep.importers.dali.images import AFTER_EXPANDED, IMAGES
from pixprep.importers.dali.inputs import (
    DECODERS,
    STREAM,
    VIDEO,
    check_arguments,
    check_supports_clips,
    converted_input,
    decode_video,
    dtype_of,
    frame_of,
    is_number,
    sequences_of,
    source_of,
    strided,
)
from pixprep.importers.dali.numbers import NUMBERS
from pixprep.importers.dali.rules import output_rule
from pixprep.importers.dali.script import serialized
from pixprep.importers.dali.sizes import lowered
from pixprep.importers.dali.values import Encoded, Image, Numbers, ResizedError, Value
from pixprep.importers.fields import Fields, error_prefix, read_file, reading
from pixprep.pipeline.ops import MAX_SIDE, Decode, Op, Pad, Resize, Tensor, changed
from pixprep.pipeline.ops.faults import quoted
from pixprep.pipeline.pipeline import Pipeline
from pixprep.spec import Chroma

MAX_BYTES = 1 << 20
_SOURCES = ("ExternalSource", "readers__File")

# Arguments of all operators that do not affect the pixels.
_COMMON_ARGUMENTS = (
    *("device", "preserve", "preserve_name", "seed", "bytes_per_sample_hint", "image_type", "_module", "_display_name"),
    *("_origin_stack_filename", "_origin_stack_lineno", "_origin_stack_name", "_origin_stack_line"),
)

_CUSTOM_OPERATOR = "write a custom operator (docs/own-operators.md)"
_UNSUPPORTED = {
    "samples random parameters for each image, which is not supported: serialize a graph without it, and add the "
    "random op to the pipeline file": (*("random__", "decoders__ImageRandomCrop", "RandomResizedCrop"),),
    "selects a branch for each image, which is not supported: serialize a graph with a single branch": (
        "conditional__",
    ),
    f"calls a Python function, which the file does not contain: {_CUSTOM_OPERATOR}": (
        "PythonFunction",
        "NumbaFunction",
    ),
    f"displaces pixels by a formula of DALI's own, which is not supported: {_CUSTOM_OPERATOR}": (
        "Water",
        "Sphere",
        "Jitter",
    ),
    f"compresses the image again, which is not supported: {_CUSTOM_OPERATOR}": ("JpegCompressionDistortion",),
    f"combines channels or images, which is not supported: {CHANNEL_ORDER_HINT}": ("Cat", "Stack"),
    f"equalizes the image, which is not supported: {_CUSTOM_OPERATOR}": ("Clahe", "Equalize"),
}
"""Error messages for unsupported operators. The values are names of operators, or prefixes of such names."""


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
    """Convert a serialized DALI pipeline into a pipeline.

    The supported operators are listed in docs/dali.md. Each ``external_source`` becomes an input of the pipeline, with
    encoded images, numbers or frames, depending on how the graph uses it. A single output is named ``tensor``. Several
    outputs keep the names that the DALI pipeline assigns to them; outputs without a name become ``tensor_0``,
    ``tensor_1`` and so on.

    The tensors equal the results of DALI's CPU operators. They were not compared with the results of DALI's GPU
    operators.

    Args:
        source: Path or bytes of a serialized graph, or the path of a Python file such as ``1/dali.py``, which requires
            ``run_python``.
        output: Name of the only output to import. Operators that the output does not depend on are then ignored.
        chroma: Chroma upsampling of the op ``decode``. ``fancy`` is the upsampling of DALI's CPU decoder. Default:
            ``fast`` if the device of the graph's decoder is ``mixed`` and the decoder does not request fancy
            upsampling, and ``fancy`` in all other cases.
        pipeline: Name of the pipeline in a Python file. Default: the pipeline that is decorated with
            ``@autoserialize``, or the only pipeline.
        python: Path of a Python interpreter in which DALI is installed, used to serialize a Python file. Default: the
            current interpreter.
        run_python: Whether a Python file may be executed, in a separate process. If false, Python files are rejected.
        max_size: Maximum height and width in pixels that a request may specify. Required if an input determines the
            size of the tensor.
        clip: ``first`` imports only the first sequence of ``inputs.video``, which splits a clip into sequences. None
            rejects such graphs.
        dtypes: NumPy dtypes of the inputs whose dtype is not specified in the graph, such as ``int32``. The keys are
            the names of the inputs.

    Raises:
        PipelineError: The file cannot be read, or an operator or argument is not supported.
        SetupError: DALI, which is required to serialize a Python file, is not installed.
    """
    where = "model.dali" if isinstance(source, bytes) else Path(source).name
    options: Any = {"pipeline": pipeline, "python": python, "run_python": run_python}
    data = source if isinstance(source, bytes) else read_graph(Path(source), **options)
    if not isinstance(dtypes, Mapping | None):
        raise PipelineError(f'{where}: dtypes must map the names of inputs to dtypes, such as {{"x": "int32"}}')
    operators, names = _read(data, where)
    if output is not None and output not in names:
        raise PipelineError(f"{where}: unknown output {quoted(output)}; available outputs: {_listed(names)}")
    requested = names if output is None else [output]
    try:
        with error_prefix(where):
            values = _evaluate(operators, requested, clip, dtypes or {})
            ops = strided(bounded(_merged(_outputs(values, requested)), max_size), values.values())
    except PipelineError as error:
        others = (
            f"; to import a single output, set --option output=NAME to one of {_listed(names)}"
            if len(requested) > 1
            else ""
        )
        raise PipelineError(f"{error}{others}") from None
    if chroma is not None and isinstance(ops[0], Decode):
        ops[0] = changed(ops[0], chroma=chroma)
    return assembled(ops, library="dali", version="unknown", name=where, where=where, like="dali")


def read_graph(
    file: Path, *, pipeline: str | None = None, python: str | None = None, run_python: bool = False
) -> bytes:
    """Read a serialized graph from a file, or serialize a pipeline of a Python file. See ``from_dali``."""
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
    """Return the interface of a serialized graph.

    Returns:
        The dtypes of the inputs by name, the names of the outputs, and the maximum batch size. Dtypes and the batch
        size are None if the graph does not specify them.
    """
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
    operators: Sequence[Operator],
    requested: Sequence[str],
    clip: str | None = None,
    dtypes: Mapping[str, str] = MappingProxyType({}),
    before: Mapping[str, Value] = MappingProxyType({}),
) -> dict[str, Value]:
    """Evaluate the operators that the requested outputs depend on, and return all tensors by name.

    Args:
        operators: Operators of the graph, in topological order.
        requested: Names of the requested tensors.
        clip: Option of ``from_dali``.
        dtypes: Option of ``from_dali``.
        before: Tensors of a previous evaluation, by name. Only operators on numbers are then evaluated again, for the
            sizes that ``using_sizes`` sets.

    Raises:
        ResizedError: An operator computes numbers together with an image, which is not evaluated again.
    """
    needed = _needed(operators, requested)
    numbers = {name for name, value in before.items() if isinstance(value, Numbers)}
    values = {name: value for name, value in before.items() if name not in numbers}
    for operator in operators:
        if needed.isdisjoint(operator.outputs) or (before and numbers.isdisjoint(operator.outputs)):
            continue
        if before and any(name in before and name not in numbers for name in operator.outputs):
            raise ResizedError
        if operator.name in _SOURCES:
            values[operator.outputs[0]] = source_of(operator, dtypes)
            continue
        computed = {key: _argument(operators, values, name) for key, name in operator.computed.items()}
        with reading({**operator.arguments, **computed}, operator.where) as fields:
            fields.ignore(*_COMMON_ARGUMENTS)
            is_stream = operator.name == STREAM
            results = (sequences_of(operator, fields, clip),) if is_stream else _apply(operator, fields, values)
        values.update(zip(operator.outputs, results, strict=False))
    return values


def _argument(operators: Sequence[Operator], values: Mapping[str, Value], name: str) -> Any:
    """Return the value of an argument that a tensor provides. Constants are returned as Python numbers or lists."""

    def recompute() -> Numbers:
        result = _evaluate(operators, [name], before=values)[name]
        assert isinstance(result, Numbers)
        return result

    value = values.get(name)
    return replace(value, recompute=recompute).plain if isinstance(value, Numbers) else value


def _needed(operators: Sequence[Operator], requested: Sequence[str]) -> set[str]:
    """Return the names of the requested tensors and the tensors that they depend on."""
    needed = set(requested)
    for operator in reversed(operators):
        if not needed.isdisjoint(operator.outputs):
            needed.update(operator.inputs, operator.computed.values())
    return needed


def _apply(operator: Operator, fields: Fields, values: Mapping[str, Value]) -> tuple[Value, ...]:
    """Apply an operator to its inputs, and return its outputs.

    Some operators can be applied to images and to numbers. The types of the inputs then determine how the operator is
    converted.
    """
    inputs = [values[name] for name in operator.inputs if name in values]
    first = inputs[0] if inputs else None
    check_arguments(operator, values)
    if isinstance(first, Image):
        check_supports_clips(operator.name, first)
        if first.is_expanded and operator.name not in AFTER_EXPANDED:
            raise PipelineError("is not supported after expand_dims: move expand_dims to the end of the graph")
    if isinstance(first, Encoded) and operator.name not in (*DECODERS, VIDEO, "PeekImageShape"):
        if is_number(operator):
            return (converted_input(operator.name, first, fields),)
        inputs = [frame_of(first), *inputs[1:]]
    result: Value | tuple[Value, ...]
    if operator.name in DECODERS:
        max_inputs = 3 if operator.name == "decoders__ImageSlice" else 1
        if not isinstance(first, Encoded) or not len(inputs) == len(operator.inputs) <= max_inputs:
            raise PipelineError(f"its input {_listed(operator.inputs)} is not the encoded image")
        result = DECODERS[operator.name](first, fields, *inputs[1:])
    elif operator.name == VIDEO and isinstance(first, Encoded) and len(operator.inputs) == 1:
        result = decode_video(first, fields)
    elif operator.name in IMAGES and any(isinstance(value, Image) for value in inputs):
        result = IMAGES[operator.name](inputs, fields)
    elif operator.name in NUMBERS and len(inputs) == len(operator.inputs) and not isinstance(first, Image):
        result = NUMBERS[operator.name](inputs, fields)
    elif operator.name in IMAGES:
        raise PipelineError(f"its input {_listed(operator.inputs)} is not a decoded image")
    else:
        why = next((why for why, names in _UNSUPPORTED.items() if operator.name.startswith(names)), "")
        raise PipelineError(why or f"is not supported; supported operators: {', '.join((*DECODERS, *IMAGES))}")
    return result if isinstance(result, tuple) else (result,)


def _outputs(values: Mapping[str, Value], requested: Sequence[str]) -> list[tuple[Op, ...]]:
    """Return the ops for each requested output, from ``decode`` to the output."""
    found = [values.get(name) for name in requested]
    images = [value for value in found if isinstance(value, Image)]
    for name, value in zip(requested, found, strict=True):
        if not isinstance(value, Image | Numbers) or not images:
            raise PipelineError(
                f"the output {quoted(name)} is not computed from an image, which is not supported: serve the graph "
                "with DALI"
            )
    if len({(image.encoded, image.chain[0], image.stride) for image in images}) > 1:
        raise PipelineError("the outputs use different inputs or decoders, which is not supported")
    chains = []
    for index, (name, value) in enumerate(zip(requested, found, strict=True)):
        output_name = _tensor_name(requested, index)
        if isinstance(value, Image):
            chains.append((*_reject_larger(value.chain), Tensor(name=output_name, **value.tensor)))
        else:
            assert isinstance(value, Numbers)
            with error_prefix(f"the output {quoted(name)}"):
                chains.append(output_rule(value, images, output_name))
    return chains


def _reject_larger(chain: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return the ops of an image. If its size is variable, ``pad`` ops are changed so that they reject larger images.

    DALI does not change images that are larger than the padded size.
    """
    spec = lowered(chain)[1]
    if spec.height is not None and spec.width is not None:
        return chain
    return tuple(changed(op, larger="refuse") if getattr(op, "larger", None) == "keep" else op for op in chain)


def _tensor_name(requested: Sequence[str], index: int) -> str | None:
    """Return the name of an output, which is its name in the DALI pipeline or ``tensor_<index>``.

    Names that begin with an underscore are not used, because DALI generates them. For a single output, return None.
    """
    if len(requested) == 1:
        return None
    name = requested[index]
    is_name = name.isascii() and name.isidentifier() and not name.startswith("_")
    return name if is_name else f"tensor_{index}"


def _merged(chains: Sequence[tuple[Op, ...]]) -> list[Op]:
    """Merge the chains of several outputs into one list of ops. Ops at a common beginning of chains occur only once.

    The last common op gets a name, and the remaining ops of the other chains refer to this name.
    """
    ops: list[Op] = []
    positions: dict[tuple[Op, ...], int] = {}
    for chain in chains:
        at = -1
        for length, op in enumerate(chain, 1):
            if chain[:length] not in positions:
                merged_op = op
                if at != len(ops) - 1:
                    if ops[at].name is None:
                        ops[at] = changed(ops[at], name=f"branch_{at}")
                    merged_op = changed(op, from_=ops[at].name)
                positions[chain[:length]] = len(ops)
                ops.append(merged_op)
            at = positions[chain[:length]]
    return ops


def bounded(ops: Sequence[Op], max_size: int | None) -> list[Op]:
    """Limit the sizes that are inputs of the request, if the size of a tensor depends on these inputs.

    Args:
        ops: Ops of the pipeline.
        max_size: Maximum height and width in pixels. None is allowed only if no tensor size depends on the request.

    Raises:
        PipelineError: ``max_size`` is missing, or is specified although it has no effect.
    """
    resized = [op for op in ops if _requested_size(op)]
    if not resized:
        if max_size is not None:
            raise PipelineError(
                "the option max_size applies only to sizes that are inputs of the request, but the graph does not have "
                "such an input"
            )
        return list(ops)
    unlimited = [op if _requested_size(op) != "crop" else changed(op, max_size=MAX_SIDE) for op in ops]
    ops_with_min = [changed(op, min_height=1) if isinstance(op, Tensor) else op for op in unlimited]
    is_open = False
    try:
        is_open = any(output.spec.is_open for output in Pipeline(ops_with_min).outputs.values())
    except PipelineError as error:
        if error.limit != "response":
            raise
        is_open = True
    if not is_open:
        if max_size is not None:
            raise PipelineError(
                "the option max_size applies only to a tensor whose size is an input of the request, but the size of "
                "the tensor is fixed"
            )
        return [changed(op, max_size=None) if _requested_size(op) == "crop" else op for op in ops]
    if max_size is None:
        raise PipelineError(
            "the size of the tensor is an input of the request: limit its sides with the option max_size, such as "
            "--option max_size=1280"
        )
    for op in resized:
        if isinstance(op, Resize) and None in (op.height, op.width) and op.side != "longer":
            raise PipelineError(
                "a resize with an input of the request as its height, its width or its shorter side is supported only "
                "if a crop follows"
            )
    return [changed(op, max_size=max_size) if _requested_size(op) else op for op in ops]


def _requested_size(op: Op) -> str:
    """Return ``resize``, ``pad`` or ``crop`` if an op's size is an input of the request, and ``""`` if it is not."""
    names = ("size", "height", "width")
    is_requested = any(isinstance(getattr(op, name, None), str) for name in names)
    is_requested = is_requested and "share" not in getattr(op, "unit", "")
    return ("resize" if isinstance(op, Resize) else "pad" if isinstance(op, Pad) else "crop") if is_requested else ""
