"""Converts a model's outputs for one photo to JSON for the page: classes, values, heat maps and detections."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import PixprepError
from pixprep.postprocessing.detections import Detections, detections
from pixprep.serving.page.program import BEST
from pixprep.serving.pictures import encoded_picture
from pixprep.serving.repository.exports import Export
from pixprep.serving.repository.trial import to_probabilities
from pixprep.show.drawing import to_png
from pixprep.show.summary import summary

Array = npt.NDArray[Any]
JsonObject = dict[str, Any]
"""Part of a JSON response to the page.
"""

_MAX_LISTED = 16
"""Maximum number of values of an output that are shown individually."""
_MIN_SIDE, _MAX_SIDE = 8, 4096
_HEAT = ((20, 16, 60), (110, 30, 110), (220, 80, 50), (255, 235, 150))
_HEAT_POSITIONS = (0, 1 / 3, 2 / 3, 1)
"""Positions of the colors ``_HEAT`` of a heat map, between the minimum (0) and the maximum (1) of its values."""
_COLORS = ((255, 122, 0), (0, 150, 255), (40, 200, 80), (230, 60, 160), (250, 200, 0), (130, 90, 255), (0, 200, 200))
"""Colors of detected objects, used cyclically."""
_OPAQUE = 110
_MASK_SIDE = 1024
_MIN_KEYPOINT_SCORE = 0.5
"""Minimum score of a keypoint that is drawn."""


def describe_output(name: str, array: Array, labels: Sequence[str] | None, *, is_image: bool = True) -> JsonObject:
    """Describe one output for one photo as a JSON object.

    Args:
        name: Name of the output.
        array: Values of the output, without the batch dimension.
        labels: Labels of the classes, possibly empty. None means that the values are not class scores.
        is_image: Whether to draw an output with the shape of an image as a heat map. It is False for a detector,
            because its objects are drawn separately.
    """
    described: JsonObject = {"name": name, "shape": list(array.shape), "dtype": str(array.dtype)}
    if encoded := encoded_picture(array):
        content, suffix = encoded
        return described | {"kind": "picture", "file": f"{name}{suffix}", "data": b64encode(content).decode()}
    if array.dtype == object:
        texts = [value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in array.flat]
        return described | {"kind": "texts", "texts": texts[:_MAX_LISTED]}
    if labels is not None and np.isfinite(array).all():
        probabilities = to_probabilities(array)
        best = np.argsort(-probabilities, kind="stable")[:BEST].tolist()
        classes = [
            {"label": _label(labels, k), "class": k, "share": float(probabilities[k]), "score": float(array[k])}
            for k in best
        ]
        return described | {"kind": "scores", "classes": classes, "is_labelled": bool(labels)}
    if array.size <= _MAX_LISTED:
        return described | {"kind": "values", "values": [_finite(value) for value in array.flat]}
    numbers = summary(array)
    if is_image and (picture := heat_map(array)) is not None:
        described |= {"png": _png(picture)}
    return described | {"kind": "numbers"} | {key: _finite(numbers[key]) for key in ("min", "max", "mean")}


def heat_map(array: Array) -> Array | None:
    """Draw an output with the shape of an image as a heat map, in which the minimum is dark.

    Apart from dimensions of length 1, the output must have two dimensions, a height and a width of 8 to 4096.

    Returns:
        uint8 array of shape (height, width, 3), or None if the output does not have such a shape.
    """
    squeezed = array.reshape([side for side in array.shape if side != 1])
    if squeezed.ndim != 2 or squeezed.dtype.kind not in "fiu" or not np.isfinite(squeezed).all():
        return None
    if not (min(squeezed.shape) >= _MIN_SIDE and max(squeezed.shape) <= min(_MAX_SIDE, 8 * min(squeezed.shape))):
        return None
    low, high = float(squeezed.min()), float(squeezed.max())
    position = (squeezed.astype(np.float64) - low) / (high - low or 1)
    levels = [np.interp(position, _HEAT_POSITIONS, [color[channel] for color in _HEAT]) for channel in range(3)]
    return np.stack(levels, axis=-1).astype(np.uint8)


def describe_objects(outputs: Mapping[str, Array], export: Export) -> JsonObject | None:
    """Describe the objects that a detector found, with corners and keypoints in pixel coordinates of the photo.

    Args:
        outputs: All outputs of the model for one photo, by name.
        export: Metadata of the model.

    Returns:
        A JSON object with the objects and a picture of their masks, or None if the model is not a supported detector.
    """
    try:
        found = detections(outputs, export.task, keypoints=export.keypoints)
    except PixprepError:
        return None
    corners = found.boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]] if found.quads is None else found.quads
    points = found.keypoints if found.keypoints is not None else np.zeros((len(corners), 0, 3))
    height, width = found.size
    return {
        "height": height,
        "width": width,
        "png": _masks(found),
        "has_points": found.keypoints is not None,
        "objects": [
            {
                "label": _label(export.names, number),
                "score": float(score),
                "color": "rgb({}, {}, {})".format(*_COLORS[row % len(_COLORS)]),
                "corners": corners[row].tolist(),
                "points": points[row][points[row][:, 2] >= _MIN_KEYPOINT_SCORE, :2].tolist(),
            }
            for row, (score, number) in enumerate(zip(found.scores, found.classes, strict=True))
        ],
    }


def _masks(found: Detections) -> str | None:
    """Draw the masks of the objects, and return the picture as a base64 PNG with a transparent background.

    The object with the highest score is drawn on top. If the detector does not return masks, return None.
    """
    masks = list(found.masks(_MASK_SIDE))
    if not masks:
        return None
    picture = np.zeros((*masks[0].shape, 4), np.uint8)
    for index, mask in reversed([*enumerate(masks)]):
        picture[mask] = (*_COLORS[index % len(_COLORS)], _OPAQUE)
    return _png(picture)


def _label(names: Sequence[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else f"class {number}"


def _png(pixels: Array) -> str:
    return b64encode(to_png(pixels)).decode()


def _finite(value: Any) -> float | str:
    """Convert a number to a value that JSON supports: NaN and infinite values become strings."""
    return float(value) if np.isfinite(value) else str(value)
