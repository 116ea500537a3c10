"""What one photo becomes: its tensors, the levels they are made of, and what is odd about the values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pixprep.decoders import Damage, Encoded, Limits
from pixprep.engine import Engine
from pixprep.ops import AnyOp, Normalize, OriginalSize, Tensor
from pixprep.pipeline import Output, Pipeline
from pixprep.plan import Placement, TensorPlan

Array = npt.NDArray[Any]

_COLORS = ("red", "green", "blue")
_DECODED = "decoded"
_CLIPPED = 0.4
"""Of a photo of a dark flower 27 % of one channel is at level 0; a clipped one has more."""


@dataclass(frozen=True)
class Shown:
    """One tensor of one photo.

    Attributes:
        name: of the output.
        plan: of the tensor.
        placement: of the photo in it.
        tensor: (height, width, channels), whatever the layout, as the engine gave it.
        levels: the same pixels before the arithmetic: uint8, or float32 where the resize does not round.
    """

    name: str
    plan: TensorPlan
    placement: Placement
    tensor: Array
    levels: Array

    @property
    def channels(self) -> list[str]:
        """What each channel of the tensor is called."""
        return ["gray"] if len(self.plan.channels) == 1 else [_COLORS[channel] for channel in self.plan.channels]

    @property
    def window(self) -> tuple[int, int, int, int]:
        """(top, left, bottom, right) of what the canvas shows of the photo; empty where it shows nothing."""
        (top, left), region = self.placement.at, self.placement.region
        bottom, right = top + region[2] - region[0], left + region[3] - region[1]
        if any(self.placement.margins):  # the region reaches as far as the filter does, the photo less far
            scales, offsets, box = self.placement.transform[:2], self.placement.transform[2:], self.placement.box
            ends = [sorted(round(edge * scales[i] + offsets[i]) for edge in box[i::2]) for i in (0, 1)]
            top, bottom = (min(max(end, top), bottom) for end in ends[0])
            left, right = (min(max(end, left), right) for end in ends[1])
        return top, left, bottom, right

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the photo is seen."""
        top, left, bottom, right = self.window
        return top == bottom or left == right

    @property
    def margin(self) -> float:
        """The share of the canvas that is not photo."""
        top, left, bottom, right = self.window
        height, width = self.placement.canvas
        return 1 - (bottom - top) * (right - left) / (height * width)

    @property
    def source(self) -> tuple[float, float, float, float]:
        """(top, left, bottom, right) of what is seen, in the pixels of the decoded photo."""
        *scales, y, x = self.placement.transform
        top, left, bottom, right = self.window
        if any(self.placement.margins):  # the photo may end within a pixel
            top, left, (bottom, right) = 0, 0, self.placement.canvas
        rows, columns = (
            sorted((edge - offset) / scale for edge in edges)
            for edges, scale, offset in zip(((top, bottom), (left, right)), scales, (y, x), strict=True)
        )
        if any(self.placement.margins):
            first, last = self.placement.box[:2], self.placement.box[2:]
            rows, columns = (
                [min(max(edge, first[i]), last[i]) for edge in edges] for i, edges in enumerate((rows, columns))
            )
        return rows[0], columns[0], rows[1], columns[1]

    def of_photo(self, pixels: Array) -> Array:
        """What of ``tensor`` or ``levels`` is photo, and no margin; all of it where nothing of the photo is seen."""
        top, left, bottom, right = self.window
        return pixels if self.is_empty else pixels[top:bottom, left:right]


@dataclass(frozen=True)
class Preview:
    """A photo in every tensor of a pipeline.

    Attributes:
        height, width: of the photo as decoded.
        tensors: in the order of the pipeline.
    """

    height: int
    width: int
    tensors: tuple[Shown, ...]

    def lines(self) -> Iterator[str]:
        """For each tensor a line with its range and its means; for each thing that is odd about it another."""
        for shown in self.tensors:
            means = [f"{name} {_short(mean)}" for name, mean in zip(shown.channels, _means(shown.tensor), strict=True)]
            ends = f"{_short(shown.tensor.min())} to {_short(shown.tensor.max())}"
            yield f'"{shown.name}": {ends}; mean {", ".join(means)}'
            for note in notes(shown):
                yield f'"{shown.name}": {note}'


def preview(
    pipeline: Pipeline, encoded: Encoded, *, limits: Limits | None = None, damage: Damage | None = None
) -> Preview:
    """Run a pipeline on one photo, on the CPU, and keep the levels of each tensor beside it.

    For a pipeline that takes pixels the photo is decoded first, upright.

    Args:
        pipeline: what to run.
        encoded: the photo.
        limits: what is refused; default: the engine's.
        damage: what becomes of a damaged JPEG; default: the engine's.

    Raises:
        ImageError: it cannot be decoded, or does not fit.
    """
    pipeline = pipeline.for_files()
    decode = msgspec.structs.replace(pipeline.ops[0], name=_DECODED)
    ops: list[AnyOp] = [decode, OriginalSize(name="size")]
    tensors = [output for output in pipeline.outputs.values() if isinstance(output.chain[-1], Tensor)]
    for index, output in enumerate(tensors):
        plan = pipeline.plan.outputs[output.name]
        assert isinstance(plan, TensorPlan)
        levels = Tensor(dtype="float32" if plan.is_real else "uint8", layout="hwc", name=f"levels_{index}")
        ops += _branch(output.chain[1:-1], msgspec.structs.replace(output.chain[-1], name=f"tensor_{index}"))
        ops += _branch([op for op in output.chain[1:-1] if not isinstance(op, Normalize)], levels)
    with Engine(Pipeline(ops), threads=1, limits=limits, damage=damage) as engine:
        batch = engine.run_batch([encoded])
    if batch.errors[0] is not None:
        raise batch.errors[0]
    height, width = map(int, batch.outputs["size"][0])
    placements = pipeline.plan.place(height, width).placements
    return Preview(
        height,
        width,
        tuple(
            _shown(
                pipeline, output, placements, batch.outputs[f"tensor_{index}"][0], batch.outputs[f"levels_{index}"][0]
            )
            for index, output in enumerate(tensors)
        ),
    )


def _branch(chain: Sequence[AnyOp], end: AnyOp) -> list[AnyOp]:
    """Ops from the decoded image to an output."""
    bare = [msgspec.structs.replace(op, name=None, from_=None, only=None) for op in chain]
    ops = [*bare, msgspec.structs.replace(end, from_=None, only=None)]
    return [msgspec.structs.replace(ops[0], from_=_DECODED), *ops[1:]]


def _shown(pipeline: Pipeline, output: Output, placements: Any, tensor: Array, levels: Array) -> Shown:
    plan = pipeline.plan.outputs[output.name]
    assert isinstance(plan, TensorPlan)
    if output.spec.layout == "chw":
        tensor = tensor.transpose(1, 2, 0)
    return Shown(output.name, plan, placements[output.name], tensor, levels)


def notes(shown: Shown) -> Iterator[str]:
    """What is odd about the values of one tensor of one photo."""
    if shown.is_empty:
        yield "nothing of the photo is seen"
        return
    if shown.margin:
        yield f"{shown.margin:.0%} of it is margin, not photo"
    levels = shown.of_photo(shown.levels)
    ends = [(channel.min(), channel.max()) for channel in np.moveaxis(levels, 2, 0)]
    for index, (name, (low, high)) in enumerate(zip(shown.channels, ends, strict=True)):
        channel = levels[:, :, index]
        if low == high and channel.size > 1:
            yield f"{name} is constant, level {low:.4g} of 0 to 255"
            continue
        for level, word in ((0, "lowest"), (255, "highest")):
            share = float(np.mean(channel == level))
            if share > _CLIPPED:
                yield f"{share:.0%} of {name} is at its {word} value: very dark or light parts, or a clipped photo"
    if levels.shape[2] == 3 and (levels == levels[:, :, :1]).all():
        yield "its channels are equal: a gray photo, which does not show whether their order is right"


def _means(tensor: Array) -> list[float]:
    return [float(mean) for mean in tensor.mean(axis=(0, 1), dtype=np.float64)]


def _short(value: float) -> str:
    return f"{float(value):.4g}"
