"""Layout of tensors of patches, the input of vision transformers.

The image is divided into a grid of patches of equal size. A row of the tensor contains the values of one patch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

PatchOrder = Literal["chw", "tchw", "hwc"]
"""Order of the values within a patch.

``chw``: channel, frame, row, column; ``tchw``: frame, channel, row, column; ``hwc``: frame, row, column, channel.
"""


Size = tuple[int, int]


@dataclass(frozen=True)
class PatchLayout:
    """Layout of a tensor of patches, (patches, values per patch).

    Attributes:
        size: Height and width of a patch in pixels.
        channels: Number of channels. 0 means that the tensor is a mask, whose patches do not have a channel axis.
        merge: Height and width of a merge window in patches. The ``merge * merge`` patches of a window are consecutive
            in the tensor. Windows, and patches within a window, are in row-major order.
        frames: Number of frames per patch. If a patch is incomplete, the image or the last frame of the clip is
            repeated.
        layout: Order of the values within a patch.
        fixed: Fixed number of patches, including padding. None means that the number depends on the image.
        thumbnail: Position of an additional patch that contains the whole image. None means that there is no such
            patch.
        is_always: Whether an image that consists of a single patch also has a thumbnail.
        omits_one: Whether the tensor is empty for an image that consists of a single patch.
        is_clip: Whether the patches contain the frames of a clip. If false, a patch contains the same image in all of
            its frames.
        cells: Height and width in pixels of the cells of a mask. Each cell has one value.
        is_flat: Whether the values of a patch form a single axis of the tensor. If false, a patch is an array (channels
            * frames, rows, columns) in the layout ``chw``, and (rows, columns, channels) in the layout ``hwc``, with
            the frames as the first axis if there are several.
        is_numbered: Whether the row and the column of a patch, counted from 1, precede its values. Only a flat patch
            can be numbered.
    """

    size: tuple[int, int]
    channels: int
    merge: int = 1
    frames: int = 1
    layout: PatchOrder = "chw"
    fixed: int | None = None
    is_flat: bool = True
    thumbnail: Literal["first", "last"] | None = None
    is_always: bool = False
    omits_one: bool = False
    cells: int = 1
    is_clip: bool = False
    is_numbered: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a patch in the tensor."""
        if self.is_flat:
            return (self.values,)
        if not self.channels:
            return self.size[0] // self.cells, self.size[1] // self.cells
        if self.layout == "chw":
            return self.channels * self.frames, *self.size
        return *((self.frames,) * (self.frames > 1)), *self.size, self.channels

    @property
    def values(self) -> int:
        """Number of values per patch, including the row and the column."""
        return prod(self.size) * self.channels * self.frames + self._prefix

    @property
    def _prefix(self) -> int:
        return 2 * self.is_numbered

    @property
    def multiples(self) -> tuple[int, int]:
        """The height and the width of the image must be multiples of these numbers, respectively."""
        return self.size[0] * self.merge, self.size[1] * self.merge

    @property
    def frame_size(self) -> int:
        """Stride between consecutive frames within a patch, in values."""
        return prod(self.size) * (1 if self.layout == "chw" else self.channels)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return the number of rows and columns of patches of an image of this size."""
        return height // self.size[0], width // self.size[1]

    def count(self, height: int, width: int) -> int:
        """Return the number of patches of an image of this size, without the thumbnail."""
        return prod(self.grid(height, width))

    def total(self, height: int, width: int) -> int:
        """Return the number of patches of an image of this size, including the thumbnail."""
        count = self.count(height, width)
        if self.omits_one and count == 1:
            return 0
        return count + (self.thumbnail is not None and (self.is_always or count > 1))

    def fits(self, height: int, width: int) -> bool:
        """Return whether an image of this size consists of complete merge windows and has at most ``fixed`` patches."""
        rows, columns = self.multiples
        is_complete = height % rows == width % columns == 0
        return is_complete and (self.fixed is None or self.count(height, width) <= self.fixed)

    def groups(self, frames: int) -> int:
        """Return the number of patches along the time axis of a clip. The last patch may repeat the last frame."""
        return -(-frames // self.frames)

    def slots(self, frame: int, frames: int) -> tuple[int, tuple[int, int]]:
        """Return the positions in the patches at which a frame of a clip with ``frames`` frames is written.

        Returns:
            Index of the patch along the time axis, and the range of frames within the patch. The range is longer than
            one frame if the frame is repeated to complete the patch.
        """
        group, begin = divmod(frame, self.frames)
        return group, (begin, self.frames if frame == frames - 1 else begin + 1)

    def blocks(self, tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a view (patches, frames, channels, rows, columns) of a C-contiguous tensor of patches."""
        tensor = tensor[:, self._prefix :]
        count, frames, channels, size = len(tensor), self.frames, self.channels, self.size
        if self.layout == "chw":
            view = tensor.reshape(count, channels, frames, *size).swapaxes(1, 2)
        elif self.layout == "tchw":
            view = tensor.reshape(count, frames, channels, *size)
        else:
            view = np.moveaxis(tensor.reshape(count, frames, *size, channels), -1, 2)
        assert np.may_share_memory(view, tensor) or not tensor.size, f"a copy of {tensor.strides}"
        return view

    def number(self, tensor: npt.NDArray[Any], height: int, width: int) -> None:
        """Write the row and the column of each patch of an image of this size to ``tensor`` if patches are numbered."""
        if self.is_numbered:
            positions = np.indices(self.grid(height, width)).reshape(2, -1)
            tensor[: positions.shape[1], : self._prefix] = positions.T + 1

    def split(self, image: npt.NDArray[Any], blocks: npt.NDArray[Any]) -> None:
        """Write an image (channels, height, width) to every frame of its patches, a view from ``blocks``."""
        rows, columns = self.grid(*image.shape[1:])
        merge, (height, width) = self.merge, self.size
        windows = image.reshape(
            self.channels, rows // merge, merge, height, columns // merge, merge, width
        )  # channel, window row, patch row, pixel row, window column, patch column, pixel column
        blocks[...] = windows.transpose(1, 4, 2, 5, 0, 3, 6).reshape(len(blocks), 1, *blocks.shape[2:])

    def shape_of(
        self, height: int, width: int, frames: int = 1, cuts: Size = (1, 1), whole: Size | None = None
    ) -> tuple[int, ...]:
        """Return the shape of the tensor for an image or clip of this size.

        Only ``ViewLayout`` uses the other arguments.
        """
        del cuts, whole
        return self.fixed or self.groups(frames) * self.total(height, width), *self.shape

    def __str__(self) -> str:
        order = "channel, frame, row, column" if self.frames > 1 else "channel, row, column"
        if self.layout != "chw":
            order = "row, column, channel" if self.layout == "hwc" else "channel, row, column"
            order = f"{'frame, ' * (self.frames > 1)}{order}"
        order = f"row and column of the patch, then {order}" if self.is_numbered else order
        windows = f", {self.merge} x {self.merge} of a merge window adjacent" if self.merge > 1 else ""
        return f"patches of {self.size[0]} x {self.size[1]} pixels ({order}){windows}"


@dataclass(frozen=True, kw_only=True)
class ViewLayout(PatchLayout):
    """Layout of the patches of several views of an image: the slices of a grid, and the whole image.

    If ``fixed`` is given, the shape is (views, ``fixed``, values per patch). Otherwise, the patches of all views are
    side by side, and the shape is (1, channels, rows of a patch, patches * columns of a patch).

    Attributes:
        max_views: Maximum number of views.
        numbers: Number of values per view, for an output that describes the views instead of containing their patches.
    """

    max_views: int
    numbers: int | None = None

    def views(self, height: int, width: int, frames: int, cuts: Size, whole: Size | None) -> list[Size]:
        """Return the number of rows and columns of patches in each view.

        Args:
            height: Height of the grid of slices in pixels.
            width: Width of the grid of slices in pixels.
            frames: Number of frames, which is always 1 and is not used.
            cuts: Number of rows and columns of slices.
            whole: Height and width of the whole image, or None if the whole image is not one of the views.
        """
        del frames
        slices = [self.grid(height // cuts[0], width // cuts[1])] * prod(cuts)
        others = [] if whole is None else [self.grid(*whole)]
        return [*others, *slices] if self.thumbnail == "first" else [*slices, *others]

    def shape_of(
        self, height: int, width: int, frames: int = 1, cuts: Size = (1, 1), whole: Size | None = None
    ) -> tuple[int, ...]:
        """Return the shape of the tensor of an image; the arguments are those of ``views``."""
        views = self.views(height, width, frames, cuts, whole)
        if self.numbers is not None:
            return len(views), self.numbers
        if self.fixed is not None:
            return len(views), self.fixed, self.values
        return 1, self.channels, self.size[0], sum(map(prod, views)) * self.size[1]

    def targets(self, out: npt.NDArray[Any], views: list[Size]) -> Iterator[npt.NDArray[Any]]:
        """Yield the part of an image's tensor that belongs to each view, and fill the padding with zeros.

        Each part is a view (patches, values per patch), or (patches, channels, rows, columns) without ``fixed``.
        """
        if self.fixed is None:
            rows, columns = self.size
            out = out[0].reshape(self.channels, rows, -1, columns).transpose(2, 0, 1, 3)
        begin = 0
        for index, count in enumerate(map(prod, views)):
            if self.fixed is None:
                yield out[begin : begin + count]
                begin += count
            else:
                out[index, count:] = 0
                yield out[index, :count]
