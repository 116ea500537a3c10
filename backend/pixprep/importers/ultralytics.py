"""Importer of Ultralytics, which reads a predictor's preprocessing from the metadata of an exported model.

It does not need Ultralytics, ONNX or TensorRT. The behavior is that of ``engine/predictor.py``, ``data/augment.py`` and
``engine/exporter.py`` of Ultralytics 8.4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pixprep import wire
from pixprep.errors import PipelineError
from pixprep.importers.assembly import assembled
from pixprep.importers.fields import Fields, error_prefix, parse_json, read_file, reading
from pixprep.pipeline.ops import (
    CenterCrop,
    Decode,
    Letterbox,
    Normalize,
    Op,
    OriginalSize,
    Resize,
    Tensor,
    TensorDType,
    Transform,
)
from pixprep.pipeline.pipeline import Pipeline

Geometry = Literal["letterbox", "stretch", "classify"]

TASKS: dict[str, Geometry] = {
    **dict.fromkeys(("detect", "segment", "pose", "obb", "semantic"), "letterbox"),
    "depth": "stretch",
    "classify": "classify",
}
MAX_METADATA_BYTES = 4 << 20
"""Maximum size of the metadata in bytes. Class names account for most of it: 4,585 of them need 100 kB."""
MAX_ONNX_BYTES = (1 << 31) - 1  # Protocol Buffers' own limit

_HARMLESS = (
    *("description", "author", "date", "license", "docs", "stride", "batch", "names", "args", "end2end", "dla"),
    *("head", "kpt_shape", "kpt_names"),
)
_OWN_CODE = {
    "pads": r"copyMakeBorder|expand2square|pad_to_square|ImageOps\.pad|np\.pad",
    "reorders channels": r"swapRB|COLOR_\w*(?:BGR|RGB)\w*",
    "resizes": r"blobFromImages?|cv2\.resize|\.resize(?=\()",
}
"""Regular expressions that find code in a package that changes an image."""
_MAX_SOURCE_BYTES = 1 << 20
_TORCHVISION_CLASSIFY = (8, 0, 233)
"""First version that classifies with torchvision's Resize and CenterCrop.

Earlier versions used their own OpenCV crop.
"""


def from_ultralytics(
    source: str | Path | Mapping[str, Any],
    *,
    imgsz: int | tuple[int, int] | None = None,
    dtype: TensorDType = "float32",
) -> Pipeline:
    """Create the pipeline of an Ultralytics predictor (YOLO, RT-DETR).

    For detection, segmentation, pose and oriented boxes, it is ``LetterBox`` to the whole ``imgsz`` with OpenCV, padded
    with 114. For depth and RT-DETR, the image is stretched to ``imgsz``. Both have the outputs ``transform``, which
    maps boxes to the decoded image as ``ops.scale_boxes`` does (with a gain per axis, since each side is rounded), and
    ``original_size``, for clipping. For classification, it is torchvision's ``Resize`` and ``CenterCrop`` of a PIL
    image. The result is RGB in the layout chw, divided by 255.

    Decoding equals ``cv2.imread``, which applies the EXIF orientation. A predictor pads the input of a model with
    dynamic shapes only to the next multiple of the stride (``rect=True``). A batch in Triton has one size, which
    corresponds to ``rect=False``.

    Args:
        source: An ``.onnx`` or ``.engine`` file written by ``model.export()`` (Triton itself needs the engine without
            the leading metadata), its metadata as a mapping, or a task such as ``"detect"``.
        imgsz: Height and width, or the side of a square. If ``source`` specifies it, it must be equal.
        dtype: Data type of the tensor: ``float16`` for a model exported with half-precision inputs.

    Raises:
        PipelineError: A task or a field of the metadata is not supported, or the file cannot be read.
    """
    if isinstance(source, Mapping):
        values, where, name = source, "metadata", "metadata"
    elif isinstance(source, str) and not source.endswith((".onnx", ".engine")):
        values, where, name = {"task": source}, "ultralytics", source
    else:
        values, where, name = _read(Path(source)), Path(source).name, Path(source).name
    with reading(values, where) as fields:
        geometry = _geometry(fields)
        height, width = _size(fields, imgsz)
        fields.expect("channels", 3, "3", why="must be 3: pixprep decodes images to RGB")
        version = fields.text("version", "")
        numbers = tuple(int(number) for number in re.findall(r"\d{1,9}", version)[:3])
        if version and geometry == "classify" and numbers < _TORCHVISION_CLASSIFY:
            fields.refuse(
                "version",
                "is not supported for classification, because it crops differently from 8.0.233 and later: "
                "export the model again with a newer version",
            )
        fields.ignore(*_HARMLESS)
    ops = [Decode(), *_ops(geometry, height, width), Tensor(dtype=dtype)]
    return assembled(ops, library="ultralytics", version=version, name=name, where=where)


def own_code(model: Path) -> Iterator[str]:
    """Yield the modules that prepare images in the Python package that contains a model, each with its operations.

    The metadata of an export describes the preprocessing of Ultralytics' predictor. A package that ships the model may
    use different preprocessing, such as BGR or padding before the resize. Only its code shows that, and this function
    searches the code for telltale words.
    """
    folders = [folder for folder in (model.parent, model.parent.parent) if (folder / "__init__.py").is_file()]
    for path in sorted(path for folder in folders for path in folder.glob("*.py")):
        if path.is_file() and path.stat().st_size <= _MAX_SOURCE_BYTES:
            text = path.read_text(encoding="utf-8", errors="replace")
            found = {what: sorted({*re.findall(words, text)}) for what, words in _OWN_CODE.items()}
            said = [f"{what} ({', '.join(words)})" for what, words in found.items() if words]
            if said:
                yield f"{path.name} in the same package {', '.join(said)}"


def _geometry(fields: Fields) -> Geometry:
    if not fields.has("task"):
        raise PipelineError(
            "the file does not contain Ultralytics metadata, and other exporters do not record the preprocessing: pass "
            "the name of the model, such as timm:resnet50.a1_in1k, or write the pipeline file; for an Ultralytics "
            "detector without metadata, use ultralytics:detect --option imgsz=640"
        )
    geometry = fields.choice("task", TASKS)
    head, description = fields.text("head", ""), fields.text("description", "")
    # Exports before 8.4 do not contain the name of their head.
    is_rtdetr = head == "RTDETRDecoder" or (not head and re.match("ultralytics rt-?detr", description, re.IGNORECASE))
    return "stretch" if is_rtdetr else geometry


def _size(fields: Fields, wanted: int | tuple[int, int] | None) -> tuple[int, int]:
    """Return (height, width) from the metadata (a string in ONNX files), or the requested size."""
    said = fields.take("imgsz")
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except (ValueError, RecursionError):
            fields.refuse("imgsz")
    sizes = [Fields({"imgsz": size}, fields.where).pair("imgsz") for size in (said, wanted) if size is not None]
    if not sizes:
        fields.refuse("imgsz", "must be set, for example with --option imgsz=640")
    if sizes[0] != sizes[-1]:
        fields.refuse(
            "imgsz", f"is the size that the model was exported with, and it differs from the option imgsz, {wanted}"
        )
    return sizes[0]


def _ops(geometry: Geometry, height: int, width: int) -> list[Op]:
    divide = Normalize(arithmetic="divide")
    if geometry == "letterbox":
        return [Letterbox(height=height, width=width, like="opencv"), divide, Transform(), OriginalSize()]
    if geometry == "stretch":
        return [Resize(height=height, width=width, like="opencv"), divide, Transform(), OriginalSize()]
    if height == width:
        return [Resize(height), CenterCrop(height), divide]
    return [Resize(height=height, width=width), divide]


def _read(path: Path) -> dict[str, Any]:
    with error_prefix(path.name):
        if path.suffix == ".engine":
            data = read_file(path, max_bytes=4 + MAX_METADATA_BYTES, is_complete=False)  # layout: length, JSON, engine
            return parse_json(data[4:][: int.from_bytes(data[:4], "little")], "the Ultralytics metadata")
        try:
            return {**wire.onnx_metadata(read_file(path, max_bytes=MAX_ONNX_BYTES))}
        except wire.WireError as error:
            raise PipelineError(f"not an ONNX file: {error}") from None
