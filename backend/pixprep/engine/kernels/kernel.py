"""Run a plan on the CPU. One call of the C kernels resizes an image and writes its tensor.

Measurements are in docs/decisions-kernels.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels import levels, resize
from pixprep.engine.kernels.alpha import divide_by_alpha, premultiplied
from pixprep.engine.kernels.margins import margins
from pixprep.engine.kernels.native import library
from pixprep.engine.kernels.noise import noise
from pixprep.engine.kernels.resampling import resampled, resampling
from pixprep.patch_layout import PatchLayout, ViewLayout
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import NO_MARGINS, Placement
from pixprep.plan.profiles import PROFILES
from pixprep.plan.steps.arithmetic import statistic_of
from pixprep.plan.steps.curves import Curve
from pixprep.plan.steps.levels import LevelStep, Resample

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]
Planes = npt.NDArray[np.generic]


class CpuKernel:
    """Kernel of the CPU; see ``Kernel``.

    Raises:
        SetupError: The C kernels cannot be loaded.
    """

    def __init__(self, plan: TensorPlan) -> None:
        library()
        self._plan = plan
        self._table = plan.table
        self._padding = plan.spec.margin.reshape(-1, 1, 1)
        self._is_identity = plan.spec.dtype == "uint8" and not plan.arithmetic
        self._is_real = plan.is_real
        self._values = plan.resized_values
        self._own = plan.own
        self._is_premultiplied = plan.is_premultiplied
        self._resize = plan.geometry.resize
        self._remembers = not plan.geometry.random_steps  # with random crops, coefficients are rarely reused
        self._finish: resize.Finish | None = None
        self._latest: tuple[bytes, Planes, resize.Finish | None] = b"", self._table, None
        if not plan.is_real:
            self._finish = resize.finish(self._table, plan.channels, plan.lines)
        elif plan.spec.dtype == "float32" and not any(step.operation == "bfloat16" for step in plan.arithmetic):
            # values of other dtypes are computed by NumPy in float64, and rounded once
            self._finish = resize.finish_real(plan.channels, plan.arithmetic)

    def run(self, images: Sequence[U8], placements: Sequence[Placement], outs: Planes, places: Sequence[int]) -> None:
        """See ``Kernel.run``."""
        patches = self._plan.spec.patches
        for pixels, placement, place in zip(images, placements, places, strict=True):
            if patches is None:
                self._run_one(pixels, placement, self._plan.spec.view(outs[place], "chw"))
            elif isinstance(patches, ViewLayout):
                self._run_views(pixels, placement, patches, outs[place])
            else:
                self._run_patches(pixels, placement, patches, outs[place])

    def _run_one(self, pixels: U8, placement: Placement, whole: Planes) -> None:
        """Write the tensor of one image, given as an array (channels, height, width) with any strides."""
        planes = self._image(whole, placement.size)
        *steps, last = placement.levels or (None,)
        table, finish = self._table, self._finish
        if isinstance(last, Curve) and not self._own:  # combine the last step with the look-up of tensor values
            table, finish = self._after_curve(last.table)
        elif last is not None:
            steps.append(last)
        if self._plan.luma is not None:
            canvas = levels.apply_steps(steps, self._canvas(pixels, placement))
            values = np.empty(planes.shape, np.float32)
            self._look_up(canvas, table, values)
            planes[...] = levels.to_luma(values, self._plan.channels, self._plan.luma)
        elif steps or self._own:
            canvas = levels.apply_steps(steps, self._canvas(pixels, placement))
            self._look_up(canvas, self._table_of(canvas) if self._own else table, planes)
        else:
            self._write(pixels, placement, table, finish, planes)
        for erase in placement.erasures:
            rows, columns = slice(erase.top, erase.top + erase.height), slice(erase.left, erase.left + erase.width)
            erased = planes[:, rows, columns]
            values = np.reshape(erase.values[: len(planes)], (-1, 1, 1))
            erased[:] = noise(erase.noise, erased.shape) if erase.noise else values
        if (
            self._plan.spec.fourth is not None
        ):  # last, because kernels that write three of four bytes may also write the fourth
            whole[3] = self._plan.spec.cast(self._plan.spec.fourth)

    def _after_curve(self, curve: bytes) -> tuple[Planes, resize.Finish | None]:
        """Return the look-up of tensor values after a curve. It is kept for the next image with the same curve."""
        latest = self._latest  # another thread may replace it
        if latest[0] != curve:
            table = self._table.take(np.frombuffer(curve, np.uint8), 1)
            self._latest = latest = curve, table, self._finish and self._finish.of(table)
        return latest[1:]

    def _run_patches(self, pixels: U8, placement: Placement, patches: PatchLayout, out: Planes) -> None:
        """Write the patches of an image or of a frame of a clip, and the padding after them.

        The resize writes each value directly to its patch, unless a later step has to read the whole image. A thumbnail
        that is resized from this image, and not from the photo, also requires the whole image.
        """
        rows, columns = placement.size
        assert patches.fits(rows, columns), (
            f"{rows} x {columns} pixels for {patches}"
        )  # if not, C would write beyond the tensor
        count, total = patches.count(rows, columns), patches.total(rows, columns)
        if not total:
            return
        group, slots = patches.slots(placement.frame, placement.frames)
        out = out[group * total : (group + 1) * total] if placement.frames > 1 else out
        out[total:] = self._plan.spec.margin
        patches.number(out, rows, columns)
        thumbnail = placement.thumbnail if total > count else None
        is_first = thumbnail is not None and patches.thumbnail == "first"
        blocks = patches.blocks(out)[int(is_first) :, slice(*slots)][:count]
        of_canvas = _steps_after(placement, thumbnail) if thumbnail is not None else ()
        is_filled = self._plan.fill_value is not None and _size(placement) != (rows, columns)
        if placement.erasures or self._is_real or is_filled or self._plan.luma:
            whole = np.empty((len(self._plan.channels), rows, columns), out.dtype)
            self._run_one(pixels, placement, whole)
            patches.split(whole, blocks)
            of_canvas = ()
        else:
            grid, first = resize.grid(patches, blocks, columns)
            is_one_pass = not (placement.levels or self._own or placement.flips[0] or of_canvas)
            if is_one_pass and _size(placement) == (rows, columns):
                self._write(pixels, placement, self._table, self._finish, first, grid=grid)
            else:
                canvas = levels.apply_steps(placement.levels, self._canvas(pixels, placement))
                self._look_up(canvas, self._table_of(canvas), first, grid)
        if thumbnail is not None:
            planes = out[0 if is_first else count]
            if of_canvas and isinstance(last := of_canvas[-1], Resample) and PROFILES[last.like].takes_real:
                order = list(self._plan.channels)
                values = np.zeros((4, 256), np.float32)
                values[order] = self._table
                canvas = levels.apply_steps(of_canvas[:-1], canvas)
                planes[...] = resampled(last, canvas, values)[:, :, order].transpose(2, 0, 1)
            elif of_canvas:
                canvas = levels.apply_steps(of_canvas, canvas)
                self._look_up(canvas, self._table_of(canvas), planes)
            else:
                self._run_one(pixels, thumbnail, planes)

    def _run_views(self, pixels: U8, placement: Placement, layout: ViewLayout, out: Planes) -> None:
        """Write the patches of an image that is cut into slices, and the padding after the patches of each view."""
        parts = [(placement, placement.cuts)]
        if placement.thumbnail is not None:
            parts.insert(0 if layout.thumbnail == "first" else 1, (placement.thumbnail, (1, 1)))
        views = layout.views(*placement.views)
        if layout.fixed is not None:
            assert max(map(prod, views)) <= layout.fixed, f"{views} for {layout}"
        targets = layout.targets(out, views)
        for part, cuts in parts:
            canvas = levels.apply_steps(part.levels, self._canvas(pixels, part))
            rows, columns = (side // count for side, count in zip(canvas.shape, cuts, strict=False))
            for row, column in product(range(cuts[0]), range(cuts[1])):
                block = canvas[row * rows : (row + 1) * rows, column * columns : (column + 1) * columns]
                grid, first = resize.grid(layout, layout.blocks(next(targets)), columns)
                self._look_up(block, self._table, first, grid)

    def _table_of(self, canvas: U8) -> Planes:
        """Return the look-up table of tensor values, which may depend on the statistics of the image."""
        return self._plan.table_of(levels.statistic(self._own, canvas)) if self._own else self._table

    def _image(self, planes: Planes, size: tuple[int, int]) -> Planes:
        """Write the padding of a tensor below and to the right of the image, and return a view of the rest."""
        rows, columns = size
        if planes.shape[1:] != size:
            planes[:, rows:] = planes[:, :rows, columns:] = self._padding
        image = planes[: len(self._plan.channels), :rows, :columns]
        assert image.shape[1:] == size, f"{size} for {planes.shape}"  # if not, C would write beyond the tensor
        return image

    def _canvas(self, pixels: U8, placement: Placement) -> U8:
        """Return the canvas with the image and the fill around it, (height, width, channels).

        It may be a view of the pixels.
        """
        count = len(self._plan.channels)
        (top, left), (rows, columns) = placement.at, _size(placement)
        block = self._block(pixels, placement) if rows and columns else None
        if block is not None and (rows, columns) == placement.canvas:
            return cast("U8", block[:, :, :count])
        canvas = resize.blank(*placement.canvas, count)
        canvas[:, :, list(self._plan.channels)] = placement.fill or self._plan.fill
        if block is not None:
            resize.move(block[:, :, :count], canvas[top : top + rows, left : left + columns])
        return canvas

    def _write(
        self,
        pixels: U8,
        placement: Placement,
        table: Planes,
        finish: resize.Finish | None,
        planes: Planes,
        *,
        grid: resize.Grid | None = None,
    ) -> None:
        """Write the tensor values of an image in one pass, including the fill around the image.

        With a ``grid``, ``planes`` is the first patch, and the image must fill the canvas.
        """
        rows, columns = _size(placement)
        if (rows, columns) != placement.canvas:
            fills = placement.fill or self._plan.fill
            values: Any = [row[fill] for row, fill in zip(table, fills, strict=True)]
            if self._plan.fill_value is not None:
                values = self._plan.spec.cast(self._plan.fill_value)
            for plane, value in zip(planes, values, strict=False):
                plane[...] = value
            top, left = placement.at
            planes = planes[:, top : top + rows, left : left + columns]
        if rows and columns:
            block = self._block(pixels, placement, finish, planes, grid)
            if block is not None:
                self._look_up(block[:, :, : len(self._plan.channels)], table, planes, grid)

    def _block(
        self,
        pixels: U8,
        placement: Placement,
        finish: resize.Finish | None = None,
        out: Planes | None = None,
        grid: resize.Grid | None = None,
    ) -> Any:
        """Compute the region of the resized image that is visible on the canvas.

        Args:
            pixels: Pixels from the decoder.
            placement: Placement of the image. At least a part of the image must be visible.
            finish: Last step, which converts pixel values to tensor values.
            out: Array to which the tensor values may be written.
            grid: Grid of patches if ``out`` is the first patch.

        Returns:
            The region, (rows, columns, channels), or None if the tensor values were written to ``out``. The region
            contains uint8 pixel values, possibly as a view of ``pixels``, or float32 values if the resize returns them.
        """
        top, left, bottom, right = placement.read
        pixels, values = pixels[top:bottom, left:right], self._values
        if self._resize is not None and self._resize.reads_all:
            pixels = pixels[:, :, : len(self._plan.channels)]  # without the unused byte of each pixel
            if (statistic := statistic_of(self._resize.arithmetic)) is not None:
                values = self._plan.resized_values_of(levels.statistic(statistic, pixels))
        pixels = pixels[_directions(placement.mirrors)]
        around = None if placement.margins == NO_MARGINS else margins(self._plan, placement, pixels.shape[2])
        if around is None and placement.is_kept:
            top, left, bottom, right = placement.region
            kept = pixels[top:bottom, left:right][_directions(placement.flips)]
            return kept if values is None else values[range(kept.shape[2]), kept]
        if self._is_premultiplied:
            pixels, finish = premultiplied(pixels), None
        block = resize.resize(
            pixels,
            resampling(self._resize, placement),
            flips=placement.flips,
            around=around,
            remembers=self._remembers,
            finish=finish,
            out=out,
            grid=grid,
            values=values,
        )
        if self._is_premultiplied and block is not None:
            divide_by_alpha(block)
        return block

    def _look_up(self, block: U8 | F32, table: Planes, planes: Planes, grid: resize.Grid | None = None) -> None:
        """Write the tensor values of a block of pixels. If the tensor has one channel, only the first one is used."""
        ordered = block[:, :, ::-1] if self._plan.channels[0] > 0 else block  # channels are in order or reversed
        if self._is_real:
            found = self._plan.values(ordered.transpose(2, 0, 1).astype(np.float32))[: len(planes)]
            planes[...] = self._plan.spec.cast(found)
        else:
            is_same = self._is_identity and table is self._table
            resize.look_up(cast("U8", ordered[:, :, : len(planes)]), None if is_same else table, planes, grid)


def _size(placement: Placement) -> tuple[int, int]:
    """Return (rows, columns) of the visible region of the image."""
    top, left, bottom, right = placement.region
    return bottom - top, right - left


def _steps_after(placement: Placement, thumbnail: Placement) -> tuple[LevelStep, ...]:
    """Return the steps that make a thumbnail from the finished canvas; empty for a thumbnail of the photo."""
    count = len(placement.levels)
    is_continued = thumbnail._replace(levels=thumbnail.levels[:count]) == placement._replace(thumbnail=None)
    return thumbnail.levels[count:] if is_continued else ()


def _directions(backwards: tuple[bool, bool]) -> tuple[slice, slice]:
    vertical, horizontal = backwards
    return slice(None, None, -1 if vertical else 1), slice(None, None, -1 if horizontal else 1)
