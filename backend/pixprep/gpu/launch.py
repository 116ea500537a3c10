"""Prepares the source code, the structs and the grids of the CUDA kernels. This module does not require CUDA.

``fast.cu`` implements resizes whose filters have a formula; nearly every plan has such a resize. ``plain.cu``
implements every arithmetic of ``plan.profiles.windows``. ``levels.cu`` runs after either of them if a plan changes
pixel values. With ``plain=True``, the functions of this module use plain.cu, even if fast.cu supports the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pixprep.engine import kernels
from pixprep.engine.kernels.resampling import formula
from pixprep.gpu.canvases import KINDS, Canvases, canvas_plan, needs_canvases
from pixprep.gpu.fill import PASSES, Chunk, PixelBuffer, fill_fast, fill_plain
from pixprep.gpu.structs import CANVAS, IMAGE, LAYOUT, PIXELS, STEPS, TILE, TILE_ROWS
from pixprep.patch_layout import ViewLayout
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.plan.profiles.windows import IDENTITY_BITS, Formula

VALUES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int"}

U8 = npt.NDArray[np.uint8]


class Room(Protocol):
    """Memory for the data of a launch. The result of a method is valid until the next call of the same method."""

    def upload(self, n_bytes: int) -> tuple[U8, int]:
        """Return host memory to fill, and the device address that it will have after the upload, a multiple of 16."""

    def middle(self, n_bytes: int) -> int:
        """Return the device address of memory for intermediate images and canvases, a multiple of ``ALIGNMENT``."""


class Part(NamedTuple):
    """Part of a chunk whose images are processed in one launch.

    Attributes:
        first: Index of the part's first image.
        last: Index after the part's last image.
        first_grid, second_grid: Grids of the two passes, (x, y, z) in blocks of ``TILE`` threads.
        canvases: Offset of these images' ``CANVAS`` structs in the uploaded memory; None if levels.cu is not launched.
    """

    first: int
    last: int
    first_grid: tuple[int, int, int]
    second_grid: tuple[int, int, int]
    canvases: int | None = None

    @property
    def levels_grid(self) -> tuple[int, int, int]:
        """Grid of levels.cu, in blocks of ``LEVEL_THREADS``."""
        return self.last - self.first, 1, 1


class Launch(NamedTuple):
    """Input of the launches of a chunk.

    Attributes:
        memory: Host memory to upload. It contains one struct per image, the filter windows (stored only once for equal
            placements) and, for levels.cu, the structs of the canvases and the steps.
        images: Array (n,) of ``IMAGE``, a view of the structs in ``memory``.
        parts: Parts of the chunk. They are launched in sequence, because they share the memory for intermediate images.
    """

    memory: U8
    images: npt.NDArray[np.void]
    parts: list[Part]


def is_fast(plan: TensorPlan) -> bool:
    """Return whether fast.cu supports a plan.

    fast.cu requires filters with a formula, no padding before the resize, and the same fill color for all images.
    Its resize returns rounded pixel values, so plans with ``is_real`` are not supported.
    """
    geometry = plan.geometry
    is_padded = geometry.resize is not None and geometry.is_padded
    return _formula(plan) is not None and geometry.fill is None and not is_padded and not plan.is_real


def code(plan: TensorPlan, *, plain: bool = False) -> str:
    """Return the CUDA code of the plan's two passes."""
    return _code("fast.cu" if is_fast(plan) and not plain else "plain.cu", PASSES=PASSES, STEP=STEPS)


def levels_code() -> str:
    """Return the CUDA code of the kernel that changes pixel values."""
    return _code("formulas.h", "steps.cu", "levels.cu", LEVEL=KINDS, STEP=STEPS)


def surface_code() -> str:
    """Return the CUDA code of the kernel that converts NVDEC's frames to RGB."""
    tile = f"#define TILE_WIDTH {TILE[0]}\n#define TILE_HEIGHT {TILE[1]}\n"
    return tile + _text("surface.cu")


def _code(*names: str, **constants: Sequence[str]) -> str:
    numbered = ((f"{kind}_{one}".upper(), i) for kind, names in constants.items() for i, one in enumerate(names))
    lines = [f"#define {one} {i}\n" for one, i in numbered]
    files = (_text(each) for each in ("structs.h", "canvas.cu", *names))
    return "".join([*lines, *files])


def _text(name: str) -> str:
    """Read a source file from this folder or from the folder of the C kernels."""
    here = Path(__file__).with_name(name)
    return (here if here.exists() else Path(kernels.__file__).with_name(name)).read_text(encoding="utf-8")


def options(plan: TensorPlan, *, plain: bool = False) -> list[str]:
    """Return the compiler's -D options for the two passes of a plan."""
    options = _tensor_options(canvas_plan(plan))
    if plain or not is_fast(plan):
        return [*options, f"-DREAL_VALUES={int(plan.is_real)}"]
    rule = _formula(plan)
    return [*options, f"-DBITS={(rule and rule.bits) or 'coefficients.bits'}"]


def levels_options(plan: TensorPlan) -> list[str]:
    """Return the compiler's -D options with which levels.cu is compiled for a plan."""
    return _tensor_options(plan)


def _tensor_options(plan: TensorPlan) -> list[str]:
    spec, patches = plan.spec, plan.spec.patches
    height, width = patches.size if patches else (0, 0)
    is_interleaved = patches.layout == "hwc" if patches else (spec.layout or "").endswith("wc")
    return [
        f"-DCHANNELS={len(plan.channels)}",
        f"-DPLANES={spec.channels}",
        f"-DFOURTH={int(spec.fourth is not None)}",
        f"-DINTERLEAVED={int(is_interleaved)}",
        f"-DVALUE={VALUES[spec.array_dtype.itemsize]}",
        f"-DFILL_VALUE={int(plan.fill_value is not None)}",
        f"-DPATCH_HEIGHT={height}",
        f"-DPATCH_WIDTH={width}",
        f"-DMERGE={patches.merge if patches else 1}",
        f"-DSLICES={int(isinstance(patches, ViewLayout))}",
        f"-DFRAMES={patches.frames if patches and not patches.is_clip else 1}",
        f"-DFRAME_STRIDE={patches.frame_size if patches else 0}",
    ]


def prepare(
    plan: TensorPlan,
    pixels: Sequence[PixelBuffer],
    placements: Sequence[Placement],
    tensors: Sequence[int],
    layouts: npt.NDArray[np.void],
    *,
    room: Room,
    middle_bytes: int = 1 << 62,
    plain: bool = False,
) -> Launch:
    """Prepare the structs, the filter windows and the grids of one chunk.

    Args:
        plan: Plan of the tensor.
        pixels: Decoded images, at least one.
        placements: Placement of each image. For images that share a ``Placement`` object, the windows are computed
            only once.
        tensors: Device address of each image's output.
        layouts: ``LAYOUT`` of each output, or one for all of them.
        room: Memory for the uploads and the intermediate images.
        middle_bytes: Maximum number of bytes for intermediate images and canvases, unless a single image needs more.
        plain: Whether to use plain.cu even if fast.cu supports the plan.
    """
    rule = _formula(plan) if is_fast(plan) and not plain else None
    alike: dict[int, int] = {}  # images with the same placement have structs that differ only in their addresses
    which = [alike.setdefault(id(placement), index) for index, placement in enumerate(placements)]
    canvases = Canvases(plan, placements) if needs_canvases(plan) else None
    uploads = _Uploads(room, canvases.n_bytes if canvases else 0)
    chunk = Chunk(plan, pixels, placements, tensors, which, uploads.take)
    memory, middle_end, (wide, high) = fill_fast(rule, chunk) if rule else fill_plain(chunk)
    images = memory[: IMAGE.itemsize * len(pixels)].view(IMAGE)
    middles = images["intermediate"]
    scratch = np.zeros(len(pixels), np.uint64)
    if canvases:  # the memory of levels.cu follows that of the passes
        scratch += np.diff(middles, append=np.uint64(middle_end))
        ends = canvases.scratch.sum(axis=1).cumsum().astype(np.uint64)
        middles[1:] += ends[:-1]
        middle_end += int(ends[-1])
    parts, most = _parts(middles, middle_end, middle_bytes)
    middles += np.uint64(room.middle(most))
    if canvases:
        scratch += middles
        canvases.write(
            uploads.memory[uploads.end :], uploads.address + uploads.end,
            scratch=scratch, tensors=tensors, layouts=layouts,
        )  # fmt: skip
    if plan.has_canvas:
        images["tensor"] = scratch
        layouts = _dense([placement.canvas for placement in placements], len(plan.channels))
    images["layout"] = layouts
    height, width = map(max, zip(*{placement.canvas for placement in placements}, strict=True))
    middle = _tiles(wide, TILE[0]), _tiles(high, TILE_ROWS)
    canvas = _tiles(width, TILE[0] * (PIXELS if rule else 1)), _tiles(height, TILE[1])
    cut = [
        Part(
            first,
            last,
            (*middle, last - first),
            (*canvas, last - first),
            uploads.end + first * CANVAS.itemsize if canvases else None,
        )
        for first, last in parts
    ]
    return Launch(uploads.memory, images, cut)


def _dense(sizes: Sequence[tuple[int, int]], channels: int) -> npt.NDArray[np.void]:
    """Return the ``LAYOUT`` of canvases of these sizes, with interleaved channels and without gaps."""
    layouts = np.zeros(len(sizes), LAYOUT)
    layouts["height"], layouts["width"] = np.array(sizes).T
    layouts["strides"][:, 0], layouts["strides"][:, 2] = 1, channels
    layouts["strides"][:, 1] = channels * layouts["width"]
    return layouts


class _Uploads:
    """Requests upload memory from a room, with ``more`` additional bytes for levels.cu.

    Attributes:
        end: Offset of the additional bytes in the memory, a multiple of 16.
    """

    def __init__(self, room: Room, more: int) -> None:
        self._room, self._more = room, more
        self.end = 0

    def take(self, n_bytes: int) -> tuple[U8, int]:
        """See ``Room.upload``."""
        self.end = -(-n_bytes // 16) * 16 if self._more else n_bytes
        self.memory, self.address = self._room.upload(self.end + self._more)
        return self.memory[:n_bytes], self.address


def _formula(plan: TensorPlan) -> Formula | None:
    """Return the formula of a plan's filter windows, or None if both axes do not share a formula."""
    if plan.geometry.resize is None:  # the lengths of the axes do not change, so any formula is correct
        return Formula("box", is_widened=False, bits=IDENTITY_BITS)
    return formula(plan.geometry.resize)


def _parts(begins: npt.NDArray[np.uint64], end: int, most: int) -> tuple[list[tuple[int, int]], int]:
    """Split images into ranges such that the intermediate images of each range fit into the buffer.

    The offsets in ``begins`` are changed in place, and become relative to the beginning of their range.

    Args:
        begins: Offset of each image's memory if the memory of all images is contiguous.
        end: End of the last image's memory.
        most: Maximum number of bytes per range, unless a single image needs more.

    Returns:
        The ranges (first, last), where ``last`` is exclusive, and the size of the largest range in bytes.
    """
    if end <= most or len(begins) == 1:
        return [(0, len(begins))], end
    ends = [*begins[1:].tolist(), end]
    parts: list[tuple[int, int]] = []
    first = used = largest = 0
    for last in range(1, len(ends) + 1):
        if last == len(ends) or ends[last] - used > most:
            parts.append((first, last))
            begins[first:last] -= np.uint64(used)
            largest = max(largest, ends[last - 1] - used)
            first, used = last, ends[last - 1]
    return parts, largest


def _tiles(size: int, tile: int) -> int:
    return max(1, -(-size // tile))
