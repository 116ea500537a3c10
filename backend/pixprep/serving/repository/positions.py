"""Outputs of a detector that are positions, and the outputs that map them back to the photo."""

from __future__ import annotations

from collections.abc import Mapping

from pixprep.pipeline.ops import CenterCrop, Transform
from pixprep.pipeline.pipeline import Pipeline
from pixprep.serving.repository.models import Tensor
from pixprep.serving.repository.ports import Classifier
from pixprep.spec import TensorSpec

_GRIDS = ((8, 16, 32), (8, 16, 32, 64))
"""Strides of YOLO's heads."""
_SCORES = ("class", "label", "logit", "prob", "score")


def lost_boxes(classifier: Classifier, pipeline: Pipeline, pairs: Mapping[str, str]) -> list[str]:
    """Return a note if outputs look like boxes, and the pipeline has no output that maps them back to the photo."""
    tensors = [pipeline.outputs[name] for name in pairs.values() if pipeline.outputs[name].spec.layout is not None]
    if not tensors or len(tensors) < len(pairs) or any(isinstance(op, Transform) for op in pipeline.side_ops):
        return []  # a model that takes the photo's size or scale may bring boxes back by itself
    boxes = [output for output in classifier.outputs if are_boxes(output, tensors[0].spec)]
    if not boxes:
        return []
    lost = " center_crop cuts off what the detector then cannot find." * any(
        isinstance(op, CenterCrop) for op in tensors[0].chain
    )
    return [
        f'{classifier.source}: "{boxes[0].name}" {list((boxes[0].shape or ())[1:])} looks like boxes, and no client '
        f"could tell where in the photo they are.{lost} Put original_size behind decode and transform before tensor: "
        "docs/detection.md"
    ]


def are_boxes(output: Tensor, image: TensorSpec) -> bool:
    """Return whether an output resembles boxes: by name, four to seven numbers per row, or YOLO's grid counts."""
    dims, name = (output.shape or ())[1:], output.name.lower()
    if "box" in name or any(word in name for word in _SCORES):
        return "box" in name
    if len(dims) == 2 and 4 <= dims[1] <= 7:
        return True
    if image.is_open:
        return False
    height, width = image.lengths["h"], image.lengths["w"]
    places = [sum((height // stride) * (width // stride) for stride in grids) for grids in _GRIDS]
    return len(dims) == 2 and any(count * anchors in dims for count in places for anchors in (1, 3))
