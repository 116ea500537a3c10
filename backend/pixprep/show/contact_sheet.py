"""Draws a contact sheet of training samples, which shows their tensors, boxes, masks and random parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.engine.batch import Batch
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.boxes import around, convert
from pixprep.plan.output_plans import AnnotationPlan, BoxesPlan, OutputPlan, TensorPlan
from pixprep.plan.plan import Placed, Plan
from pixprep.show.drawing import (
    FAINT,
    INK,
    SIDE,
    U8,
    Panel,
    Picture,
    Sheet,
    columns,
    fitted,
    true_colours,
    with_arrows,
    with_boxes,
    with_labels,
)
from pixprep.training.loader import Loader
from pixprep.training.sources import Source

_EVERY = 16
_MAX_SHARE = 0.5  # maximum fraction of broken samples; it is higher than in training, as the sheet is only for viewing


def contact_sheet(
    source: Source, pipeline: Pipeline, *, count: int = 12, seed: int = 0, epoch: int = 0, title: str = ""
) -> Picture:
    """Draw the first samples of an epoch as the Loader returns them, with every tensor in its true colors.

    Args:
        source: Source of samples from ``pixprep.read``.
        pipeline: Pipeline to run, usually the training side of a pipeline file.
        count: Number of samples to draw.
        seed: Seed of the Loader, which runs with ``shuffle=True``.
        epoch: Number of the epoch.
        title: Title of the picture.

    Returns:
        RGB picture, about 1,700 pixels wide.

    Raises:
        DataError: Most of the samples that were tried are broken.
    """
    size = min(count, len(source))
    options: dict[str, Any] = {"shuffle": True, "seed": seed, "shard": (0, 1)}
    with Loader(source, pipeline, batch_size=size, on_error="replace", max_errors=_MAX_SHARE, **options) as loader:
        loader.load_state_dict({**loader.state_dict(), "epoch": epoch})
        epoch_ = iter(loader)
        batch = next(epoch_)
        epoch_.close()
        broken = loader.errors
    sheet = Sheet()
    sheet.heading(title or "training samples", f"seed {seed}, epoch {epoch}: {size} of {len(source):,} samples")
    shown = panels(pipeline, batch, getattr(source, "classes", ()))
    of_one = len(shown) // size
    count, width = columns(max(panel.pixels.shape[1] for panel in shown))
    in_row = count - count % of_one if of_one <= count else of_one  # do not split a sample over two rows
    for start in range(0, len(shown), in_row):
        for first in range(start, min(start + in_row, len(shown)), count):
            sheet.panels(shown[first : min(first + count, start + in_row)], width)
            sheet.gap(16)
    if "boxes" in source[int(batch["index"][0])] and not pipeline.plan.boxes:
        sheet.text(
            "note: the samples have boxes, but training does not receive them: add the op boxes to the pipeline",
            16,
            INK,
        )
    for each in broken:
        sheet.text(f"broken: {each.error}", 16, FAINT)
    return sheet.image()


def panels(pipeline: Pipeline, batch: Batch, classes: tuple[str, ...] = ()) -> list[Panel]:
    """Return one panel per tensor of each sample. A panel shows boxes, masks, name, label and random parameters."""
    names = [*pipeline.plan.tensors]
    side = SIDE if len(names) == 1 else columns(0)[1]
    made = []
    for row in range(len(batch)):
        for name in names:
            panel = _panel(pipeline, batch, row, name=name, classes=classes, side=side)
            made.append(panel if len(names) == 1 else replace(panel, line=f'"{name}": {panel.line}'))
    return made


def _panel(pipeline: Pipeline, batch: Batch, row: int, *, name: str, classes: tuple[str, ...], side: int) -> Panel:
    placed = batch.placed[row]
    assert placed is not None
    drawn = pipeline.plan.of(placed)
    plan = drawn.tensors[name]
    tensor = batch[name][row]
    if "t" in plan.spec.lengths:
        flows = [batch[flow][row] for flow in pipeline.plan.flows]
        pixels = _film(plan, tensor, flows[0] if flows else None, side)
    else:
        pixels = true_colours(plan, np.asarray(tensor))
        for labels in _masks(drawn, batch, row, plan):
            if labels.shape == pixels.shape[:2]:
                pixels = with_labels(pixels, labels)
        pixels = fitted(pixels, side)
    factor = pixels.shape[1] / plan.spec.padding.size(*placed.placements[name].size)[1]
    for boxes_name, boxes_plan in drawn.boxes.items():
        if _keys(boxes_plan) <= _keys(plan):  # boxes do not match the tensor if their random crop differs
            boxes = _on_tensor(boxes_plan, batch[boxes_name][row], placed, boxes_name, name)
            found = batch["labels"][row] if "labels" in batch.fields else [None] * len(boxes)
            numbers = [None if label is None else int(label) for label in found[: len(boxes)]]
            words = [_class(number, classes) for number in numbers]
            pixels = with_boxes(pixels, boxes * factor, words, numbers)
    every = (*drawn.outputs.values(), *drawn.annotations.values())
    others = {key for each in every for key in _keys(each)} - _keys(plan)
    words = [
        f"{key}: {', '.join(f'{word} {_shown(value)}' for word, value in drawn.items())}"
        for key, drawn in placed.draws.items()
        if key not in others
    ]
    label = f"label {_class(batch['label'][row], classes)}, " if "label" in batch.fields else ""
    title = batch["name"][row] if "name" in batch.fields else f"sample {batch['index'][row]}"
    line = f"{label}{placed.height} x {placed.width}, sample {int(batch['index'][row]):,}"
    return Panel(title, line, pixels, words)


def _keys(plan: OutputPlan | AnnotationPlan) -> set[str]:
    """Return the keys of the random ops that precede an output."""
    return {step.key for step in plan.geometry.random_steps} if plan.geometry else set()


def _film(plan: TensorPlan, clip: Any, flow: Any | None, side: int) -> U8:
    """Return four evenly spaced frames of a clip in one picture, with arrows of the optical flow every 16 pixels."""
    axes = "".join(axis for axis in "nt" if axis in plan.spec.lengths)
    frames = plan.spec.view(np.asarray(clip), f"{axes}{plan.frame.spec.layout}")
    frames = frames.reshape(-1, *frames.shape[len(axes) :])
    shown = [index * (len(frames) - 1) // 3 for index in range(4)]
    pictures = []
    for index in shown:
        pixels = true_colours(plan.frame, frames[index])
        pixels = np.repeat(pixels, 3 // pixels.shape[2], axis=2)
        if flow is not None and index < len(flow) and flow.shape[2:] == pixels.shape[:2]:
            pixels = with_arrows(pixels, flow[index], _EVERY)
        pictures.append(pixels)
    rows = [np.concatenate(pictures[start : start + 2], axis=1) for start in (0, 2)]
    return fitted(np.concatenate(rows), side)


def _masks(whole: Plan, batch: Batch, row: int, tensor: TensorPlan) -> Iterator[npt.NDArray[Any]]:
    """Yield the masks of a sample as labels (height, width), with -1 for the background.

    The label of an object is its class, or its index if the class is unknown.
    """
    for name, each in whole.masks.items():
        if _keys(each) <= _keys(tensor):
            mask = np.asarray(batch[name][row])
            if each.field == "masks":
                numbers = np.asarray(batch["labels"][row] if "labels" in batch.fields else range(len(mask)), np.int64)
                yield np.where(mask != 0, numbers[: len(mask), None, None], -1).max(axis=0, initial=-1)
            else:
                yield np.where((mask == each.ignore) | (mask == 0), -1, mask.astype(np.int64))


def _on_tensor(plan: BoxesPlan, boxes: Any, placed: Placed, name: str, tensor: str) -> npt.NDArray[np.float64]:
    """Return boxes (n, 4), xyxy, in pixels of the tensor, because a resize may follow after the op ``boxes``."""
    found = np.asarray(boxes, np.float64).reshape(-1, 4)
    if plan.pad is not None:
        found = found[(found != -1).any(axis=1)]
    here, there = placed.placements[name], placed.placements[tensor]
    if plan.normalized:
        found = found * (*here.size[::-1], *here.size[::-1])
    corners = np.asarray(convert(found, plan.format, "xyxy"), np.float64)
    if np.array_equal(here.matrix, there.matrix):
        return corners
    return around(corners, there.matrix @ np.linalg.inv(here.matrix))


def _class(label: Any, classes: tuple[str, ...]) -> str:
    if label is None:
        return ""
    number = int(label)
    return classes[number] if 0 <= number < len(classes) else str(number)


def _shown(value: Any) -> str:
    """Format the value of a random parameter, such as ``3`` or ``[ShearX -0.09, Equalize]``."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, Mapping):
        return " ".join(map(_shown, value.values()))
    return "none" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
