"""Imports the preprocessing of an Ultralytics predictor from the metadata of an exported model.

Ultralytics, ONNX and TensorRT need not be installed. The pipeline follows ``engine/predictor.py``, ``data/augment.py``
and ``engine/exporter.py`` of Ultralytics 8.4.
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
from pixprep.pipeline import ops
from pixprep.pipeline.ops import Op, TensorDType
from pixprep.pipeline.pipeline import Pipeline

Geometry = Literal["letterbox", "stretch", "classify"]

TASKS: dict[str, Geometry] = {
    **dict.fromkeys(("detect", "segment", "pose", "obb", "semantic"), "letterbox"),
    "depth": "stretch",
    "classify": "classify",
}
MAX_METADATA_BYTES = 4 << 20
"""Maximum size of the metadata in bytes. The metadata consists mostly of class names; 4,585 names take 100 kB."""
MAX_ONNX_BYTES = (1 << 31) - 1  # maximum size of a Protocol Buffers message

_IGNORED = (
    *("description", "author", "date", "license", "docs", "stride", "batch", "names", "args", "end2end", "dla"),
    *("head", "kpt_shape", "kpt_names"),
)
_CODE_PATTERNS = {
    "pads": r"copyMakeBorder|expand2square|pad_to_square|ImageOps\.pad|np\.pad",
    "reorders channels": r"swapRB|COLOR_\w*(?:BGR|RGB)\w*",
    "resizes": r"blobFromImages?|cv2\.resize|\.resize(?=\()",
}
"""Regular expressions that find code which changes images, by the operation that such code performs."""
_MAX_SOURCE_BYTES = 1 << 20
_TORCHVISION_CLASSIFY = (8, 0, 233)
"""First version in which classification uses torchvision's Resize and CenterCrop instead of a crop with OpenCV."""


def from_ultralytics(
    source: str | Path | Mapping[str, Any],
    *,
    imgsz: int | tuple[int, int] | None = None,
    dtype: TensorDType = "float32",
) -> Pipeline:
    """Convert the preprocessing of an Ultralytics predictor (YOLO, RT-DETR) into a pipeline.

    The geometry depends on the task:

    - For detection, segmentation, pose and oriented boxes, the image is letterboxed to ``imgsz`` with OpenCV, and the
      padding has the pixel value 114.
    - For depth and RT-DETR, the image is stretched to ``imgsz`` with OpenCV.
    - For classification, the image is resized and centre-cropped with torchvision, as a PIL image.

    The tensor contains RGB values divided by 255, in the layout ``chw``. Unless the task is classification, there are
    two further outputs. The output ``transform`` maps boxes to the decoded image, like ``ops.scale_boxes``, but with a
    separate scale for each axis, because height and width are rounded separately. The output ``original_size`` is
    needed for clipping boxes to the image.

    The decoded image equals that of ``cv2.imread``, which applies the EXIF orientation. All images are resized to
    ``imgsz``, as with ``rect=False``, because the images of a batch in Triton must have the same size. (For a model
    with dynamic shapes, a predictor uses ``rect=True``, which pads images only to a multiple of the stride.)

    Args:
        source: An ``.onnx`` or ``.engine`` file from ``model.export()``, its metadata as a mapping, or a task such as
            ``"detect"``. (Before Triton can load an ``.engine`` file, the metadata at its beginning must be removed.)
        imgsz: (height, width) of the model's input in pixels, or the side of a square. Required if ``source`` does not
            contain the size. If ``source`` contains a size, ``imgsz`` must be equal to it.
        dtype: Data type of the tensor. Use ``float16`` for a model that was exported with half-precision inputs.

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
        fields.ignore(*_IGNORED)
    chain = [ops.Decode(), *_ops(geometry, height, width), ops.Tensor(dtype=dtype)]
    return assembled(chain, library="ultralytics", version=version, name=name, where=where)


def own_code(model: Path) -> Iterator[str]:
    """Search the Python package that contains a model file for code that preprocesses images.

    The metadata of an exported model describes only the preprocessing of Ultralytics' predictor. A Python package that
    contains the model may preprocess images differently, for example as BGR or with padding before the resize.
    Therefore, the Python files of such a package are searched for functions that change images.

    Args:
        model: Path of the model file.

    Yields:
        For each Python file with such functions, the name of the file and the operations.
    """
    folders = [folder for folder in (model.parent, model.parent.parent) if (folder / "__init__.py").is_file()]
    for path in sorted(path for folder in folders for path in folder.glob("*.py")):
        if path.is_file() and path.stat().st_size <= _MAX_SOURCE_BYTES:
            text = path.read_text(encoding="utf-8", errors="replace")
            found = {what: sorted({*re.findall(pattern, text)}) for what, pattern in _CODE_PATTERNS.items()}
            operations = [f"{what} ({', '.join(names)})" for what, names in found.items() if names]
            if operations:
                yield f"{path.name} in the same package {', '.join(operations)}"


def _geometry(fields: Fields) -> Geometry:
    if not fields.has("task"):
        raise PipelineError(
            "the file does not contain Ultralytics metadata, and other exporters do not record the preprocessing: pass "
            "the name of the model, such as timm:resnet50.a1_in1k, or write the pipeline file; for an Ultralytics "
            "detector without metadata, use ultralytics:detect --option imgsz=640"
        )
    geometry = fields.choice("task", TASKS)
    head, description = fields.text("head", ""), fields.text("description", "")
    # Models that were exported with a version before 8.4 do not contain the name of the head.
    is_rtdetr = head == "RTDETRDecoder" or (not head and re.match("ultralytics rt-?detr", description, re.IGNORECASE))
    return "stretch" if is_rtdetr else geometry


def _size(fields: Fields, option: int | tuple[int, int] | None) -> tuple[int, int]:
    """Return the input size (height, width) in pixels from the metadata or, if it is not there, from ``option``."""
    recorded = fields.take("imgsz")
    if isinstance(recorded, str):  # in ONNX files
        try:
            recorded = json.loads(recorded)
        except (ValueError, RecursionError):
            fields.refuse("imgsz")
    sizes = [Fields({"imgsz": size}, fields.where).pair("imgsz") for size in (recorded, option) if size is not None]
    if not sizes:
        fields.refuse("imgsz", "must be set, for example with --option imgsz=640")
    if sizes[0] != sizes[-1]:
        fields.refuse("imgsz", f"is the size that the model was exported with, but the option imgsz is {option}")
    return sizes[0]


def _ops(geometry: Geometry, height: int, width: int) -> list[Op]:
    divide = ops.Normalize(arithmetic="divide")
    if geometry == "letterbox":
        return [ops.Letterbox(height=height, width=width, like="opencv"), divide, ops.Transform(), ops.OriginalSize()]
    if geometry == "stretch":
        return [ops.Resize(height=height, width=width, like="opencv"), divide, ops.Transform(), ops.OriginalSize()]
    if height == width:
        return [ops.Resize(height), ops.CenterCrop(height), divide]
    return [ops.Resize(height=height, width=width), divide]


def _read(path: Path) -> dict[str, Any]:
    with error_prefix(path.name):
        if path.suffix == ".engine":
            data = read_file(
                path, max_bytes=4 + MAX_METADATA_BYTES, is_complete=False
            )  # length of the JSON, JSON, engine
            return parse_json(data[4:][: int.from_bytes(data[:4], "little")], "the Ultralytics metadata")
        try:
            return {**wire.onnx_metadata(read_file(path, max_bytes=MAX_ONNX_BYTES))}
        except wire.WireError as error:
            raise PipelineError(f"not an ONNX file: {error}") from None
