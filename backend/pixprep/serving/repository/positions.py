"""Detects models that return boxes, but whose pipeline lacks the outputs for mapping these boxes to the photo."""

from __future__ import annotations

from collections.abc import Mapping

from pixprep.pipeline.ops import CenterCrop, Transform
from pixprep.pipeline.pipeline import Pipeline
from pixprep.serving.repository.models import Tensor
from pixprep.serving.repository.ports import Classifier
from pixprep.spec import TensorSpec

_GRIDS = ((8, 16, 32), (8, 16, 32, 64))
"""Common sets of strides of the detection heads in YOLO models."""
_SCORES = ("class", "label", "logit", "prob", "score")


def lost_boxes(classifier: Classifier, pipeline: Pipeline, pairs: Mapping[str, str]) -> list[str]:
    """Return a note if an output looks like boxes, but the pipeline lacks an output that maps them to the photo.

    Args:
        classifier: Inputs and outputs of the model.
        pipeline: Pipeline that computes the model's inputs.
        pairs: Name of the pipeline's output for each input of the model.

    Returns:
        A list with at most one note.
    """
    tensors = [pipeline.outputs[name] for name in pairs.values() if pipeline.outputs[name].spec.layout is not None]
    if not tensors or len(tensors) < len(pairs) or any(isinstance(op, Transform) for op in pipeline.side_ops):
        return []  # a model that receives the size or scale of the photo may map the boxes by itself
    boxes = [output for output in classifier.outputs if _are_boxes(output, tensors[0].spec)]
    if not boxes:
        return []
    lost = " The detector cannot find objects that center_crop cuts off." * any(
        isinstance(op, CenterCrop) for op in tensors[0].chain
    )
    return [
        f'{classifier.source}: "{boxes[0].name}" {list((boxes[0].shape or ())[1:])} looks like boxes, but clients '
        f"cannot map them to the photo.{lost} Add original_size after decode and transform before tensor: "
        "docs/detection.md"
    ]


def _are_boxes(output: Tensor, image: TensorSpec) -> bool:
    """Return whether an output looks like boxes.

    The criteria are the name of the output, rows of four to seven values, or a dimension that equals the number of
    cells in YOLO's grids.
    """
    dims, name = (output.shape or ())[1:], output.name.lower()
    if "box" in name or any(word in name for word in _SCORES):
        return "box" in name
    if len(dims) == 2 and 4 <= dims[1] <= 7:
        return True
    if image.is_open:
        return False
    height, width = image.lengths["h"], image.lengths["w"]
    cells = [sum((height // stride) * (width // stride) for stride in grids) for grids in _GRIDS]
    return len(dims) == 2 and any(count * anchors in dims for count in cells for anchors in (1, 3))
