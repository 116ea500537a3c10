"""Detects models whose inputs match the tensors of a pipeline although the pipeline is probably wrong for the model."""

from __future__ import annotations

from collections.abc import Mapping

from pixprep.errors import printable
from pixprep.pipeline.ops import CenterCrop, Transform
from pixprep.pipeline.pipeline import Pipeline
from pixprep.serving.repository.fit import PIPELINE_PER_INPUT, listed, order_of, swapped
from pixprep.serving.repository.models import Tensor
from pixprep.serving.repository.ports import Classifier
from pixprep.spec import TensorSpec

_GRIDS = ((8, 16, 32), (8, 16, 32, 64))
"""Common sets of strides of the detection heads in YOLO models."""
_SCORES = ("class", "label", "logit", "prob", "score")


def fit_notes(classifier: Classifier, pipeline: Pipeline, pairs: Mapping[str, str]) -> list[str]:
    """Return a note for each sign that a pipeline is wrong for a model, although the shapes match.

    The signs are: several inputs receive the same image; the names of an input's dims swap height and width; and an
    output looks like boxes, but the pipeline lacks the output ``transform``, which maps boxes to the photo.

    Args:
        classifier: Inputs and outputs of the model.
        pipeline: Pipeline that computes inputs of the model.
        pairs: Name of the pipeline's output for each of these inputs.
    """
    images = {port: output for port, name in pairs.items() if (output := pipeline.outputs[name]).spec.layout}
    notes = []
    if len(images) > 1:
        notes.append(
            f"the inputs {listed(list(images))} receive the same image of a request: if the model compares images, "
            f"{PIPELINE_PER_INPUT}"
        )
    for tensor in classifier.inputs:
        layout = images[tensor.name].spec.layout if tensor.name in images else None
        if layout and order_of(tensor.dim_names) not in ("", order_of(layout)):
            notes.append(
                f'the dims of input "{tensor.name}" are named {", ".join(tensor.dim_names[1:])}: if that is their '
                f'order, set tensor layout to "{swapped(layout)}"'
            )
    # a model that also receives the size or scale of the photo may map the boxes by itself
    first = next(iter(images.values()), None) if len(images) == len(pairs) else None
    if first and not any(isinstance(op, Transform) for op in pipeline.side_ops):
        is_cropped = any(isinstance(op, CenterCrop) for op in first.chain)
        lost = " The detector cannot find objects that center_crop cuts off." * is_cropped
        notes += [
            f'"{output.name}" {list((output.shape or ())[1:])} looks like boxes, but clients cannot map them to the '
            f"photo.{lost} Add original_size after decode and transform before tensor: docs/detection.md"
            for output in classifier.outputs
            if _are_boxes(output, first.spec)
        ][:1]
    return [printable(f"{classifier.source}: {note}") for note in notes]


def _are_boxes(output: Tensor, image: TensorSpec) -> bool:
    """Return whether an output looks like boxes.

    The criteria are the name of the output, rows of four to seven values, or a dimension that equals the number of
    cells in YOLO's grids.
    """
    dims, name = (output.shape or ())[1:], output.name.lower()
    if "box" in name or any(word in name for word in _SCORES):
        return "box" in name
    if len(dims) != 2 or 4 <= dims[1] <= 7 or image.is_open:
        return len(dims) == 2 and 4 <= dims[1] <= 7
    height, width = image.lengths["h"], image.lengths["w"]
    cells = [sum((height // stride) * (width // stride) for stride in grids) for grids in _GRIDS]
    return any(count * anchors in dims for count in cells for anchors in (1, 3))
