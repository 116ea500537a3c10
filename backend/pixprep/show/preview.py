"""Previews one photo: computes its tensors, their pixels before normalization, and notes on unusual values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pixprep.engine.annotations import visible
from pixprep.engine.decoders import Encoded, Limits
from pixprep.engine.decoders.header import sniff
from pixprep.engine.engine import Engine
from pixprep.engine.kernels.levels import apply_steps
from pixprep.engine.options import DEFAULT, EngineOptions
from pixprep.errors import PipelineError, needed
from pixprep.pipeline.ops import Normalize, Op, OriginalSize, Patches, SlicePatches, Tensor, Tiles
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.boxes import around
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement, moved
from pixprep.plan.steps.levels import motions, moving
from pixprep.show.drawing import to_png
from pixprep.spec import TensorDType

Array = npt.NDArray[Any]

_COLORS = ("red", "green", "blue", "alpha")
_DECODED = "decoded"
_CLIPPED = 0.4
"""Fraction of clipped values in a channel above which there is a note.

The fraction must be higher than in ordinary photos: in a photo of a dark flower, 27 % of the values in a channel are 0.
"""


@dataclass(frozen=True)
class Shown:
    """One tensor of one photo.

    Attributes:
        name: Name of the output.
        plan: Plan of the tensor.
        placement: Placement of the photo in the tensor.
        tensor: Values from the engine as (height, width, channels), regardless of the layout and without a fourth
            channel.
        levels: The same pixels before normalization, as uint8, or as float32 if the resize does not round.
    """

    name: str
    plan: TensorPlan
    placement: Placement
    tensor: Array
    levels: Array

    @property
    def channels(self) -> list[str]:
        """Names of the tensor's channels."""
        return ["gray"] if self.tensor.shape[2] == 1 else [_COLORS[channel] for channel in self.plan.channels]

    @property
    def shape(self) -> list[int]:
        """Shape of the tensor for this photo. For a pipeline for clips, it includes all frames."""
        spec = self.plan.spec
        return list(spec.shape_of(*self.placement.views) if spec.is_open else spec.shape)

    @property
    def window(self) -> tuple[int, int, int, int]:
        """Region (top, left, bottom, right) of the canvas that shows the photo. It is empty if no part is visible.

        Later ops, such as a rotation, may move this region; see ``is_moved``.
        """
        (top, left), region = self.placement.at, self.placement.region
        bottom, right = top + region[2] - region[0], left + region[3] - region[1]
        if any(self.placement.margins):  # unlike the photo, the region includes the support of the filter
            photo = moved(np.array([self.placement.box[1::-1] + self.placement.box[:1:-1]]), self.placement.transform)
            left, top, right, bottom = photo[0].round().astype(int).clip((left, top) * 2, (right, bottom) * 2).tolist()
        return top, left, bottom, right

    @property
    def is_moved(self) -> bool:
        """Whether later ops, such as a rotation, a shear or a crop, move the pixels of the canvas."""
        return any(True for _ in motions(self.placement.levels, *self.placement.canvas))

    @property
    def _is_replaced(self) -> bool:
        """Whether a custom operator may have computed the pixels from arbitrary parts of the photo."""
        return any(step.no_places for step in self.placement.levels)

    @property
    def is_empty(self) -> bool:
        """Whether no part of the photo is visible."""
        top, left, bottom, right = self.window
        return top == bottom or left == right or not (self._mask is None or self._mask.any())

    @property
    def margin(self) -> float:
        """Fraction of the tensor that is padding, or 0 if it is unknown."""
        if self._is_replaced:
            return 0.0
        top, left, bottom, right = self.window
        seen = (bottom - top) * (right - left) if self._mask is None else int(self._mask.sum())
        return 1 - seen / (self.tensor.shape[0] * self.tensor.shape[1])

    @cached_property
    def _mask(self) -> npt.NDArray[np.bool_] | None:
        """Mask of the tensor's pixels that show the photo, bool (height, width). None: no op moved the canvas.

        The mask is computed by moving a white canvas in the same way.
        """
        if not self.is_moved or self._is_replaced:
            return None
        top, left, bottom, right = self.window
        canvas = np.zeros((*self.placement.canvas, 1), np.uint8)
        canvas[top:bottom, left:right] = 255
        return apply_steps(moving(self.placement.levels, *self.placement.canvas, (0,)), canvas)[:, :, 0] >= 128

    @property
    def source(self) -> tuple[float, ...]:
        """Visible region (top, left, bottom, right) in pixels of the decoded photo."""
        first, whole = (
            around(visible(each)[None], np.linalg.inv(each.matrix))[0].round(6)
            for each in (self.placement._replace(levels=()), self.placement)
        )
        left, top, right, bottom = whole.clip(first[[0, 1, 0, 1]], first[[2, 3, 2, 3]]).tolist()
        return top, left, bottom, right

    def of_photo(self, pixels: Array) -> Array:
        """Return the part of ``tensor`` or ``levels`` that shows the photo, without padding.

        If no part of the photo is visible, all pixels are returned. If the visible part is not a rectangle, its pixels
        are returned as one column.
        """
        if self.is_empty or self._is_replaced:
            return pixels
        top, left, bottom, right = self.window
        rows, columns = self.placement.size
        return pixels[top:bottom, left:right] if self._mask is None else pixels[:rows, :columns][self._mask][:, None]


@dataclass(frozen=True)
class Preview:
    """Preview of a photo in all tensors of a pipeline.

    Attributes:
        height, width: Size of the decoded photo in pixels.
        tensors: Tensors of the photo, in the order of the pipeline's outputs.
    """

    height: int
    width: int
    tensors: tuple[Shown, ...]

    def lines(self) -> Iterator[str]:
        """Yield lines of text about each tensor: its range, the means of its channels, and notes on unusual values."""
        for shown in self.tensors:
            means = zip(shown.channels, shown.tensor.mean(axis=(0, 1), dtype=np.float64), strict=True)
            ends = f"{float(shown.tensor.min()):.4g} to {float(shown.tensor.max()):.4g}"
            yield f'"{shown.name}": {ends}; mean {", ".join(f"{name} {mean:.4g}" for name, mean in means)}'
            for note in notes(shown):
                yield f'"{shown.name}": {note}'


def preview(pipeline: Pipeline, encoded: Encoded, options: EngineOptions = DEFAULT) -> Preview:
    """Run a pipeline on one photo on the CPU, and return each tensor with its pixel values before normalization.

    For a pipeline that accepts pixels, the photo is decoded first, and its EXIF orientation is applied. For a pipeline
    that accepts clips, the photo is used as a frame.

    Args:
        pipeline: Pipeline to run. If it has inputs, their values are ``Pipeline.example_inputs``.
        encoded: Encoded bytes of the photo; see ``still``.
        options: Options of the engine.

    Raises:
        ImageError: The photo cannot be decoded, or a crop of the pipeline exceeds it.
        PipelineError: The pipeline has random ops.
    """
    encoded = still(pipeline, encoded, options.limits)
    pipeline = pipeline.for_photos()
    if pipeline.plan.is_random:
        raise PipelineError(
            "a preview of one photo does not support random ops: use for_serving(), or preview a data set with "
            "pixprep preview"
        )
    decode = msgspec.structs.replace(pipeline.side_ops[0], name=_DECODED)
    ops: list[Op] = [decode, OriginalSize(name="size")]
    plans: dict[str, TensorPlan] = {}
    for name, plan in pipeline.plan.tensors.items():
        *chain, end = pipeline.outputs[name].chain[1:]
        if isinstance(end, Tensor | Patches | SlicePatches | Tiles):
            index = len(plans)
            plans[name] = plan
            if isinstance(
                end, Patches | SlicePatches | Tiles
            ):  # the picture shows the image before it is split into patches
                end = Tensor(dtype=end.dtype)
            dtype: TensorDType = "float32" if plan.is_real else "uint8"
            levels = Tensor(dtype=dtype, layout="hwc", max_size=end.max_size, name=f"levels_{index}")
            ops += _branch(chain, msgspec.structs.replace(end, name=f"tensor_{index}"))
            ops += _branch([op for op in chain if not isinstance(op, Normalize)], levels)
    own = Pipeline(ops, operators=pipeline.operators)
    with Engine(own, **vars(replace(options, threads=1, odd_range=True))) as engine:
        batch = engine.run_batch([encoded], inputs=own.example_inputs())
    if batch.errors[0] is not None:
        raise batch.errors[0]
    height, width = map(int, batch.outputs["size"][0])
    assert batch.placed[0] is not None
    placements = batch.placed[0].placements
    return Preview(
        height,
        width,
        tuple(
            Shown(
                name,
                plan,
                placements[f"tensor_{index}"],
                plan.spec.floats(
                    own.outputs[f"tensor_{index}"].spec.view(batch.outputs[f"tensor_{index}"][0], "hwc")[
                        :, :, : plan.spec.channels
                    ]
                ),
                batch.outputs[f"levels_{index}"][0][:, :, : plan.spec.channels],
            )
            for index, (name, plan) in enumerate(plans.items())
        ),
    )


def still(pipeline: Pipeline, encoded: Encoded, limits: Limits = DEFAULT.limits) -> Encoded:
    """Return the still image that a preview shows: the photo itself or, for a clip, the middle frame as PNG.

    Raises:
        ImageError: The clip cannot be decoded.
        SetupError: PyAV is not installed.
    """
    reader = pipeline.plan.clip
    if reader is None or not is_clip(pipeline, encoded):
        return encoded
    clip = needed("frames")(
        encoded,
        lambda frames: [len(frames.times) // 2],
        limits,
        apply_rotation=reader.apply_rotation,
    )
    return to_png(clip.frames[0])


def is_clip(pipeline: Pipeline, encoded: Encoded) -> bool:
    """Return whether a file is a clip that the pipeline accepts, and not a photo that is used as a frame."""
    return pipeline.plan.clip is not None and sniff(memoryview(encoded)) is None


def _branch(chain: Sequence[Op], end: Op) -> list[Op]:
    """Return the ops from the decoded image to an output."""
    bare = [msgspec.structs.replace(op, name=None, from_=None, only=None) for op in chain]
    ops = [*bare, msgspec.structs.replace(end, from_=None, only=None)]
    return [msgspec.structs.replace(ops[0], from_=_DECODED), *ops[1:]]


def notes(shown: Shown) -> Iterator[str]:
    """Yield notes on unusual values of one tensor of one photo."""
    if shown.is_empty:
        yield "no part of the photo is visible"
        return
    if shown.margin:
        yield f"{shown.margin:.0%} of the tensor is padding"
    levels = shown.of_photo(shown.levels)
    ends = [(channel.min(), channel.max()) for channel in np.moveaxis(levels, 2, 0)]
    for index, (name, (low, high)) in enumerate(zip(shown.channels, ends, strict=True)):
        channel = levels[:, :, index]
        if low == high and channel.size > 1:
            yield f"{name} is constant, with pixel value {low:.4g} of 0 to 255"
            continue
        for level, word in ((0, "lowest"), (255, "highest")):
            share = float(np.mean(channel == level))
            if share > _CLIPPED:
                yield f"{share:.0%} of {name} have the {word} value: the photo is very dark or bright, or clipped"
    if levels.shape[2] == 3 and (levels == levels[:, :, :1]).all():
        yield "the channels are equal (a gray photo), so the preview cannot show whether their order is correct"
