"""Converts the response for one photo to a JSON object: its classes, values, detected objects, or the error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pixprep.errors import PixprepError
from pixprep.postprocessing.detections import TARGET_SIZES, detections
from pixprep.serving.embedded.client import Answer
from pixprep.show.summary import summary

# A result of Triton's classification extension: score:class:label, without the label if the model has no label file
_CLASS = re.compile(r"(-?\d+\.\d+):(\d+)(?::(.*))?")
MAX_ROW = 16
"""Maximum number of values of a row in a list of rows."""


def row_of(answer: Answer) -> dict[str, Any]:
    """Return the response for one photo as a JSON object.

    The keys are ``file``; ``others``, the other files of the request, if the model compares images; ``latency_ms``; and
    either ``error`` or ``outputs``, the outputs by name. The best classes of an output are a list of objects, a vector
    is a list, rows such as boxes are a list of lists, a larger array is its ``summary``, and a saved output is the path
    of its file. For a supported detector, ``objects`` is a list of the detected objects in the photo, in descending
    order of their scores.
    """
    row: dict[str, Any] = {"file": str(answer.path), "latency_ms": round(answer.latency_ms, 3)}
    row |= {"others": list(map(str, answer.others))} if answer.others else {}
    if answer.error:
        return row | {"error": answer.error}
    values = {name: _json_value(array) for name, array in answer.outputs.items()}
    return row | {"outputs": values | {name: str(path) for name, path in answer.saved.items()}, **_objects(answer)}


def classes(array: Any) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Yield each string of an array and its match with the groups score, class and label, or None for other text."""
    for value in array.reshape(-1):
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        yield text, _CLASS.fullmatch(text)


def _json_value(array: Any) -> Any:
    if array.dtype == object and array.ndim > 1:  # classes of each box
        return [_json_value(part) for part in array]
    if array.dtype == object:
        return [
            {"score": float(match[1]), "class": int(match[2]), "label": match[3]} if match else text
            for text, match in classes(array)
        ]
    return array.tolist() if array.ndim <= 1 or are_rows(array) else summary(array)


def are_rows(array: Any) -> bool:
    """Return whether an output is a list of short rows, such as boxes, instead of a map or a table of scores.

    The result depends only on the length of a row, so that an output has the same form for every photo.
    """
    return bool(array.ndim == 2 and array.shape[1] <= MAX_ROW)


def _objects(answer: Answer) -> Mapping[str, Any]:
    """Return the entry ``objects`` of a row. It is empty for a model that is not a supported detector.

    Each object has a ``box`` (left, top, right, bottom) in pixels of the photo, a ``score`` and a ``class``. Rotated
    boxes also have a ``quad`` of four points (x, y), and poses have ``keypoints`` (x, y, score).
    """
    if not {"original_size", TARGET_SIZES} & answer.outputs.keys():
        return {}
    try:
        found = detections(answer.outputs)
    except PixprepError:
        return {}
    columns: dict[str, Any] = {"box": found.boxes, "score": found.scores, "class": found.classes}
    columns |= {"quad": found.quads, "keypoints": found.keypoints}
    lists = {name: array.tolist() for name, array in columns.items() if array is not None}
    return {"objects": [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]}
