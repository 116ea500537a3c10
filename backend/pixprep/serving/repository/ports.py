"""Reads the inputs and outputs of a classifier from an ONNX file, or from a description of a TensorRT plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError, install, needing, printable
from pixprep.formats import content_of
from pixprep.pipeline.file import read_bytes
from pixprep.pipeline.ops.faults import quoted
from pixprep.serving.repository.labels import from_metadata
from pixprep.serving.repository.models import Tensor, suggest

_SAME_NAMES = ("STRING", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
FROM_ONNX = {"FLOAT": "TYPE_FP32", "FLOAT16": "TYPE_FP16", "DOUBLE": "TYPE_FP64", "BFLOAT16": "TYPE_BF16"}
FROM_ONNX |= {name: f"TYPE_{name}" for name in _SAME_NAMES}
PLAN_BYTES = 28
"""Number of bytes that ``plan_fault`` and ``plan_version`` need from the beginning of a file."""
_MAX_KEPT = 1 << 10  # maximum size in bytes of a weight whose values ``without_weights`` keeps
_MAX_LENGTH = 1 << 20  # maximum length of an input dimension for shape inference
_MAX_ONNX_BYTES = 1 << 31  # protobuf's limit
_CODE_SUFFIXES = (".py", ".pyc", ".so")
_OUR_FILES = ("model.onnx", "model.plan")
# the name may contain a colon, as in TensorFlow
_IO = re.compile(r"(.+):([^:]*):((?:-1|0*[1-9][0-9]*)(?:x(?:-1|0*[1-9][0-9]*))*)", re.DOTALL)
_IO_EXAMPLE = "input:FP32:3x224x224"


@dataclass(frozen=True)
class Classifier:
    """Inputs and outputs of a classifier.

    Attributes:
        source: Name of the file, for messages.
        inputs, outputs: Tensors of the classifier.
        data_files: Names of the files with external weights. They are in the folder of the ONNX file.
        labels: Labels in the metadata of the ONNX file. The tuple may be empty.
    """

    source: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    data_files: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


def plan_fault(head: bytes) -> str:
    """Check by the first bytes of a file whether it is a plan for Triton's TensorRT backend.

    Return the problem if the file is not such a plan, or an empty string if it is one.
    """
    if head.startswith((b"ftrt", b"ptrt")):
        return ""
    if head.startswith(b"vtrt"):
        return "is a plan of TensorRT for RTX, which Triton does not support: build it with trtexec of TensorRT"
    if head[4:5] == b"{":
        return (
            "begins with metadata of Ultralytics, which Triton does not support: remove the first "
            f"{4 + int.from_bytes(head[:4], 'little'):,} bytes"
        )
    return "is not a TensorRT plan: write one with trtexec --saveEngine"


def plan_version(head: bytes) -> str:
    """Read the version of TensorRT that built a plan, such as ``10.13.3.9``, from the first bytes of the plan.

    The version is read at the same position as by ``trtexec --getPlanVersionOnly``. If the plan has a different
    serialization version, or is too short, return an empty string.
    """
    is_known = head.startswith(b"ftrt") and head[4:8] == bytes(4) and len(head) >= 28
    return ".".join(map(str, head[24:28])) if is_known else ""


def parse_io(texts: Sequence[str], *, source: str) -> Classifier:
    """Parse the description of a classifier whose file does not declare inputs and outputs.

    Args:
        texts: Descriptions of the input and of each output, as ``NAME:TYPE:DIMS`` with Triton's data type and the dims
            of one image.
        source: Name of the file.

    Raises:
        PipelineError: A description does not have this form.
    """
    if len(texts) < 2:
        raise PipelineError(f"--classifier-io: pass the input and each output, such as {_IO_EXAMPLE} logits:FP32:1000")
    tensors = []
    for text in texts:
        match = _IO.fullmatch(text)
        if not match:
            raise PipelineError(f'--classifier-io: expected NAME:TYPE:DIMS such as {_IO_EXAMPLE}, not "{text}"')
        name, type_, dims = match.groups()
        types = [known.removeprefix("TYPE_") for known in FROM_ONNX.values()]
        if type_ not in types:
            raise PipelineError(f'--classifier-io: "{text}": unknown type "{type_}"; {suggest(type_.upper(), types)}')
        tensors.append(Tensor(name, f"TYPE_{type_}", (-1, *map(int, dims.split("x")))))
    return Classifier(source, tuple(tensors[:1]), tuple(tensors[1:]))


def load_onnx(path: Path) -> tuple[bytes, Any]:
    """Return the content of an ONNX file, without external weights, and its ``onnx.ModelProto``.

    Raises:
        PipelineError: The file is not an ONNX file.
        SetupError: onnx is not installed.
    """
    with needing(f"reading an ONNX file requires onnx: {install('classifier')}"):
        import onnx  # noqa: PLC0415  (optional, only required for ONNX files)
    if path.is_file() and path.stat().st_size > _MAX_ONNX_BYTES:
        raise PipelineError(f"{path.name}: an ONNX file cannot exceed 2 GiB: save its weights in a separate file")
    try:
        content = read_bytes(path, max_bytes=_MAX_ONNX_BYTES)
        model = onnx.load_model_from_string(content)
    except OSError as error:
        raise PipelineError(f"{path.name}: cannot be read: {error.strerror}") from None
    except MemoryError:  # not a problem with the file
        raise
    except Exception:  # noqa: BLE001  (protobuf's DecodeError, whose module depends on the version)
        raise PipelineError(_not_onnx(path, content)) from None
    if not model.graph.output:  # protobuf reads some files of other formats as an empty message
        raise PipelineError(_not_onnx(path, content))
    return content, model


def _not_onnx(path: Path, content: bytes) -> str:
    """Return the message about a file that is not an ONNX file, with the kind of its content if it is known."""
    what = content_of(content)
    if what and what != "an ONNX file":
        export = ": export the model, such as with torch.onnx.export" * ("PyTorch" in what)
        return f"{path.name}: not an ONNX file, but {what}{export}"
    return f"{path.name}: not an ONNX file" + ", or incomplete: export or copy it again" * (path.suffix == ".onnx")


def without_weights(model: Any) -> Any:
    """Return a copy of an ``onnx.ModelProto`` in which large weights have a shape but do not have values."""
    import onnx  # noqa: PLC0415  (optional, only required for ONNX files)

    slim = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    slim.metadata_props.extend(model.metadata_props)
    graph = model.graph
    parts = {key: getattr(graph, key) for key in ("name", "node", "input", "output", "sparse_initializer")}
    slim.graph.MergeFrom(onnx.GraphProto(**parts))
    for tensor in graph.initializer:
        if tensor.ByteSize() > _MAX_KEPT:
            weights = onnx.TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
            weights.external_data.extend(tensor.external_data)
            weights.data_location = tensor.data_location
            slim.graph.initializer.append(weights)
        else:
            slim.graph.initializer.append(tensor)
    return slim


def _rows(model: Any) -> dict[str, int]:
    """Return the first dimension of each output for which shape inference finds a fixed length."""
    import onnx  # noqa: PLC0415  (as above)

    lengths = [dim.dim_value for value in model.graph.input for dim in value.type.tensor_type.shape.dim]
    if max(lengths, default=0) > _MAX_LENGTH:  # shape inference may allocate memory for each element of a vector
        return {}
    with suppress(Exception):  # ONNX Runtime will report a broken graph
        outputs = onnx.shape_inference.infer_shapes(without_weights(model), data_prop=True).graph.output
        first = {value.name: value.type.tensor_type.shape.dim[:1] for value in outputs}
        return {name: dim.dim_value for name, dims in first.items() for dim in dims if dim.dim_value > 0}
    return {}


def declared(model: Any, source: str) -> Classifier:
    """Return the inputs and outputs of an ``onnx.ModelProto`` without reading its weights.

    Raises:
        PipelineError: The name of a tensor or of a file with weights is not safe in a terminal or in a repository.
    """
    import onnx  # noqa: PLC0415  (optional, only required for ONNX files)

    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}  # before IR version 4, weights are also listed as inputs
    files = {entry.value for tensor in _external(model) for entry in tensor.external_data if entry.key == "location"}
    for file in sorted(files):
        # Reject names of Python modules, which could replace code of a model, and names of files that ``build`` writes.
        is_name = file.isprintable() and file not in ("", "..", *_OUR_FILES) and Path(file).name == file
        if not is_name or Path(file).suffix in _CODE_SUFFIXES:
            problem = f'has weights in "{printable(file)}", which is not a data file in the same folder'
            raise PipelineError(f"{source}: {problem}: save it as one file")
    for value in (*graph.input, *graph.output):
        if not value.name.isprintable():
            raise PipelineError(f'{source}: "{printable(value.name)}" is not a valid tensor name: rename it')
    names = onnx.TensorProto.DataType.Name
    outputs = [_from_onnx(value, names) for value in graph.output]
    if any(output.shape and output.shape[0] == -1 for output in outputs):
        rows = _rows(model)
        outputs = [
            replace(each, shape=(rows.get(each.name, -1), *(each.shape or ())[1:]))
            if each.shape and each.shape[0] == -1
            else each
            for each in outputs
        ]
    return Classifier(
        source,
        tuple(_from_onnx(value, names) for value in graph.input if value.name not in weights),
        tuple(outputs),
        tuple(sorted(files)),
        from_metadata({entry.key: entry.value for entry in model.metadata_props}),
    )


def check_data_files(model: Any, folder: Path, source: str, *, allows_links: bool = False) -> None:
    """Check that the external weights of an ONNX file are complete.

    Args:
        model: The ``onnx.ModelProto``, after ``declared`` has accepted it.
        folder: Folder of the ONNX file.
        source: Name of the ONNX file in messages.
        allows_links: Whether the files may be symbolic links.

    Raises:
        PipelineError: A file is missing, is not a regular file, is a link, or ends before the end of a weight.
    """
    for tensor in _external(model):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        path = folder / entries.get("location", "")
        is_link = path.is_symlink() and not allows_links
        if is_link or not path.is_file():
            problem = "a link" if is_link else "not a file" if path.exists() else "missing"
            raise PipelineError(
                f'{source}: has weights in "{path.name}", which is {problem}: copy the file itself there'
            )
        extent = [entries.get(key, "0") for key in ("offset", "length")]
        if not all(re.fullmatch("[0-9]{1,18}", number) for number in extent):
            raise PipelineError(f"{source}: the weight {quoted(tensor.name)} does not have a valid offset and length")
        if (end := sum(map(int, extent))) > (size := path.stat().st_size):
            problem = f"has {size:,} bytes, but the weight {quoted(tensor.name)} ends at byte {end:,}"
            raise PipelineError(f'{source}: has weights in "{path.name}", which {problem}: copy the complete file')


def _external(model: Any) -> Iterator[Any]:
    """Yield the tensors of an ``onnx.ModelProto`` whose values are in a separate file."""
    parts = (model.graph, *model.functions)
    return (tensor for part in parts for tensor in _tensors(part) if tensor.data_location == tensor.EXTERNAL)


def _tensors(part: Any) -> Iterator[Any]:
    """Yield all constants of a graph or function: its weights, and the constants in nodes and in subgraphs."""
    yield from getattr(part, "initializer", ())
    for sparse in getattr(part, "sparse_initializer", ()):
        yield from (sparse.values, sparse.indices)
    for node in part.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            yield from (
                half for x in (attribute.sparse_tensor, *attribute.sparse_tensors) for half in (x.values, x.indices)
            )
            for graph in (attribute.g, *attribute.graphs):
                yield from _tensors(graph)


def _from_onnx(value: Any, type_name: Any) -> Tensor:
    tensor = value.type.tensor_type  # empty if the value is a sequence or a map
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
    data_type = FROM_ONNX.get(type_name(tensor.elem_type), "")
    dim_names = tuple(dim.dim_param or str(dim.dim_value) for dim in tensor.shape.dim)
    return Tensor(value.name, data_type, shape if tensor.HasField("shape") else None, dim_names=dim_names)
