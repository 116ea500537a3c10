"""Ultralytics: what its predictors do to an image, from the metadata that its exporter writes into a model.

Read without Ultralytics, ONNX or TensorRT. The facts are those of ``engine/predictor.py``, ``data/augment.py`` and
``engine/exporter.py`` of Ultralytics 8.4.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pixprep.errors import PipelineError
from pixprep.importers import wire
from pixprep.importers.fields import Fields, installed_version
from pixprep.ops import (
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
from pixprep.pipeline import Pipeline
from pixprep.pipeline_file import Source

Geometry = Literal["letterbox", "stretch", "classify"]

TASKS: dict[str, Geometry] = {
    "detect": "letterbox",
    "segment": "letterbox",
    "pose": "letterbox",
    "obb": "letterbox",
    "semantic": "letterbox",
    "depth": "stretch",
    "classify": "classify",
}
MAX_METADATA_BYTES = 4 << 20
"""Class names are most of it: 4,585 of them take 100 kB."""
MAX_ONNX_BYTES = (1 << 31) - 1  # Protocol Buffers' own limit

_HARMLESS = (
    *("description", "author", "date", "license", "docs", "stride", "batch", "names", "args", "end2end", "dla"),
    *("head", "kpt_shape", "kpt_names"),
)
_TORCHVISION_CLASSIFY = (8, 0, 233)
"""The first version that classifies after torchvision's Resize and CenterCrop; before, it was its own OpenCV crop."""


def from_ultralytics(
    source: str | Path | Mapping[str, Any],
    *,
    imgsz: int | tuple[int, int] | None = None,
    dtype: TensorDType = "float32",
) -> Pipeline:
    """The pipeline of an Ultralytics predictor (YOLO, RT-DETR).

    Detection, segmentation, pose, oriented boxes: ``LetterBox`` to the whole of ``imgsz``, by OpenCV, with 114 around.
    Depth and RT-DETR: stretched to ``imgsz``. Both also give ``transform``, which maps boxes back to the decoded image
    as ``ops.scale_boxes`` does (each axis has its own gain, since each side is rounded), and ``original_size``, to clip
    them. Classification: torchvision's ``Resize`` and ``CenterCrop`` of a PIL image. Then RGB, chw, divided by 255.

    Decoding is ``cv2.imread``: upright by EXIF. Whereas a predictor pads a model of dynamic shape to the next multiple
    of the stride only (``rect=True``), a batch in Triton has one size: this is ``rect=False``.

    Args:
        source: an ``.onnx`` file, or an ``.engine`` file, that ``model.export()`` has written (Triton itself wants the
            engine without the metadata in front); or the metadata as a mapping; or a task such as ``"detect"``.
        imgsz: height and width, or the side of a square; where ``source`` says it, it must be the same.
        dtype: of the tensor: ``float16`` for a model exported with inputs of half precision.

    Raises:
        PipelineError: a task, or a field of the metadata, is not understood; the file cannot be read.
    """
    if isinstance(source, Mapping):
        fields, name = Fields(source, "metadata"), "metadata"
    elif isinstance(source, str) and not source.endswith((".onnx", ".engine")):
        fields, name = Fields({"task": source}, "ultralytics"), source
    else:
        path = Path(source)
        fields, name = Fields(_read(path), path.name), path.name
    geometry = _geometry(fields)
    height, width = _size(fields, imgsz)
    if str(fields.take("channels", (int, str), default=3)) != "3":
        fields.refuse("channels", "is not 3: pixprep decodes RGB")
    version = fields.take("version", str)
    if version and geometry == "classify" and _numbers(version) < _TORCHVISION_CLASSIFY:
        fields.refuse("version", "classified after an OpenCV crop of its own, which 8.0.233 replaced: export it anew")
    fields.ignore(*_HARMLESS)
    fields.finish()
    return Pipeline(
        [
            Decode(),
            *_resize(geometry, height, width),
            Normalize(arithmetic="divide"),
            *([] if geometry == "classify" else [Transform(), OriginalSize()]),
            Tensor(dtype=dtype),
        ],
        source=Source(
            library="ultralytics",
            version=(version or installed_version("ultralytics"))[:200],
            name=name[:200],
            profile="pillow" if geometry == "classify" else "opencv",
        ),
    )


load = from_ultralytics


def _geometry(fields: Fields) -> Geometry:
    task = fields.take("task", str)
    if task is None:
        fields.refuse("task", "is missing: no metadata of Ultralytics; give the task and imgsz instead of the file")
    if task not in TASKS:
        fields.refuse("task", f"is not understood; there are {', '.join(TASKS)}")
    head = fields.take("head", str)
    described = re.match("ultralytics rt-?detr", fields.take("description", str, default=""), re.IGNORECASE)
    # Exports before 8.4 do not name their head.
    is_rtdetr = head == "RTDETRDecoder" or (head is None and described is not None)
    return "stretch" if is_rtdetr else TASKS[task]


def _size(fields: Fields, wanted: int | tuple[int, int] | None) -> tuple[int, int]:
    """(height, width): what the metadata says, in ONNX as text, or what is wanted."""
    said = fields.take("imgsz", (list, tuple, int, str))
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except (ValueError, RecursionError):
            fields.refuse("imgsz")
    sizes = [_pair(fields, size) for size in (said, wanted) if size is not None]
    if not sizes:
        fields.refuse("imgsz", "is missing: give imgsz")
    if sizes[0] != sizes[-1]:
        fields.refuse("imgsz", f"is what the model was exported for, not {wanted}")
    return sizes[0]


def _pair(fields: Fields, size: object) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else size
    if not isinstance(pair, list | tuple) or [type(side) for side in pair] != [int, int]:
        fields.refuse("imgsz", f"must be one side, or height and width, not {size!r}")
    return pair[0], pair[1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d{1,9}", version)[:3])


def _resize(geometry: Geometry, height: int, width: int) -> list[Op]:
    if geometry == "letterbox":
        return [Letterbox(height=height, width=width, like="opencv")]
    if geometry == "stretch":
        return [Resize(height=height, width=width, like="opencv")]
    if height == width:
        return [Resize(height), CenterCrop(height)]
    return [Resize(height=height, width=width)]


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return _engine_metadata(file) if path.suffix == ".engine" else _onnx_metadata(file)
    except OSError as error:
        raise PipelineError(f"{path.name or path}: cannot be read: {error.strerror}") from None
    except PipelineError as error:
        raise PipelineError(f"{path.name}: {error}") from None


def _engine_metadata(file: BinaryIO) -> dict[str, Any]:
    """What Ultralytics writes before a TensorRT engine: the length in 4 bytes, little endian, and so much JSON."""
    length = int.from_bytes(file.read(4), "little")
    try:
        metadata = json.loads(file.read(length)) if 0 < length <= MAX_METADATA_BYTES else None
    except (ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        raise PipelineError("does not begin with the metadata of Ultralytics; give the task and imgsz instead")
    return metadata


def _onnx_metadata(file: BinaryIO) -> dict[str, Any]:
    """``metadata_props`` of a model, field 14 of onnx.proto's ModelProto; each entry has a key, 1, and a value, 2."""
    if os.fstat(file.fileno()).st_size > MAX_ONNX_BYTES:
        raise PipelineError(f"an ONNX file has at most {MAX_ONNX_BYTES:,} bytes")
    try:
        properties = wire.read(file.read(), {14: "bytes"}, is_open=True)[14]
        entries = [wire.read(entry, {1: "bytes", 2: "bytes"}) for entry in properties]
    except wire.WireError as error:
        raise PipelineError(f"not an ONNX file: {error}") from None
    texts = ([b"".join(entry[number][-1:]).decode(errors="replace") for number in (1, 2)] for entry in entries)
    return {key: value for key, value in texts if not key.startswith("onnx.")}  # of ONNX Runtime's quantizer
