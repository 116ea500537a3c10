"""Fills the image structs and the filter windows of a chunk, in C for fast.cu and in NumPy for plain.cu."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import byref
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels import resampling, resize
from pixprep.engine.kernels.layout import packer
from pixprep.engine.kernels.native import STRUCTS, checked, formula_numbers, library
from pixprep.gpu.structs import ALIGNMENT, IMAGE
from pixprep.plan.geometry_steps import Resize
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.plan.profiles import PROFILES
from pixprep.plan.profiles.profile import never_vertical_first
from pixprep.plan.profiles.windows import Formula, Passes, Windows

U8 = npt.NDArray[np.uint8]
PASSES: tuple[Passes, ...] = get_args(Passes)
_PLACED = packer(STRUCTS["placed_image"])


class PixelBuffer(NamedTuple):
    """Decoded pixels in device memory: uint8 (height, width, channels), with a row stride of ``pitch`` bytes."""

    address: int
    height: int
    width: int
    pitch: int


class Chunk(NamedTuple):
    """Chunk of images whose structs are to be filled.

    Attributes:
        plan: Plan of the tensor.
        pixels: Decoded images.
        placements: Placement of each image.
        tensors: Device address of each image's output.
        which: For each image, the index of the first image with the same placement.
        upload: Function that returns the memory for the structs; see ``launch.Room.upload``.
    """

    plan: TensorPlan
    pixels: Sequence[PixelBuffer]
    placements: Sequence[Placement]
    tensors: Sequence[int]
    which: Sequence[int]
    upload: Callable[[int], tuple[U8, int]]


Filled = tuple[U8, int, tuple[int, int]]
"""Result of filling the structs: the host memory, the total size of the intermediate images in bytes, and the size of
the first pass, as the maximum number of threads in x and the maximum number of rows. The field ``intermediate`` of each
struct contains an offset, as if the intermediate images of the whole chunk were contiguous."""


def fill_fast(formula: Formula, chunk: Chunk) -> Filled:
    """Fill all structs for fast.cu in one call."""
    order = _order(chunk.plan.geometry.resize)
    images = b"".join([  # a list, because a generator is slower: it is resumed for each image
        _PLACED.pack(
            *p.ratio, *p.box, *p.resized, *p.region, *p.at, *p.mirrors, *p.flips,
            like == index and order(p), like, *one, tensor,
        )
        for index, (p, like, one, tensor) in enumerate(
            zip(chunk.placements, chunk.which, chunk.pixels, chunk.tensors, strict=True)
        )
    ])  # fmt: skip
    address = np.frombuffer(images, np.uint8).ctypes.data
    arguments = STRUCTS["chunk"](formula_numbers(formula), address, len(chunk.which), len(chunk.plan.channels))
    run = library().fill_chunk
    checked(run(byref(arguments)))  # the first call, without memory, only computes the size
    memory, arguments.device_address = chunk.upload(arguments.n_bytes)
    arguments.memory = memory.ctypes.data
    checked(run(byref(arguments)))
    return memory, arguments.intermediate_bytes, (arguments.max_width, arguments.max_height)


def _order(resize: Resize | None) -> Callable[[Placement], bool]:
    """Return a function that returns whether the first pass for a placement is vertical."""
    if resize is None or (profile := PROFILES[resize.like]).is_vertical_first is never_vertical_first:
        return lambda _: False
    method = resize.method
    return lambda p: profile.is_vertical_first(method, *resampling.axes(resize, p))


def fill_plain(chunk: Chunk) -> Filled:
    """Fill structs and windows for plain.cu."""
    windows, middle, channels = bytearray(), 0, len(chunk.plan.channels)
    table = chunk.plan.resized_values
    if table is not None:
        windows += table.tobytes()
    images = np.zeros(len(chunk.pixels), IMAGE)
    for index, (one, placement, tensor, first) in enumerate(
        zip(chunk.pixels, chunk.placements, chunk.tensors, chunk.which, strict=True)
    ):
        image = images[index]
        if first < index:
            images[index] = images[first]
        else:
            for name, value in _placed(chunk.plan, placement, windows).items():
                image[name] = value
        top, left, bottom, right = placement.read
        mirror_y, mirror_x = placement.mirrors
        row, column = (bottom - 1 if mirror_y else top), (right - 1 if mirror_x else left)
        image["pixels"] = one.address + row * one.pitch + column * channels
        image["pitch"] = -one.pitch if mirror_y else one.pitch
        image["tensor"], image["intermediate"] = tensor, middle
        n_bytes = 4 * channels * int(image["intermediate_height"]) * int(image["intermediate_width"])
        middle += -(-n_bytes // ALIGNMENT) * ALIGNMENT
    begin = -(-images.nbytes // 16) * 16
    memory, address = chunk.upload(begin + len(windows))
    for axis in ("rows", "columns"):
        for name in ("first", "count", "weights"):
            images[axis][name] += np.uint64(address + begin)
    images["away"] += np.uint64(address + begin)
    images["values"] = 0 if table is None else address + begin
    memory[: images.nbytes] = images.view(np.uint8)
    memory[begin:] = np.frombuffer(windows, np.uint8)
    return memory, middle, (int(images["intermediate_width"].max()), int(images["intermediate_height"].max()))


def _placed(plan: TensorPlan, placement: Placement, windows: bytearray) -> dict[str, Any]:
    """Return the fields of an ``IMAGE`` that depend on its placement, and append its filter windows to ``windows``.

    The addresses of the windows are offsets in ``windows``.
    """
    how, fill = resampling.resampling(plan.geometry.resize, placement), placement.fill or plan.fill
    own = resampling.windows(how)
    rows, columns = (
        _packed(each, windows, is_flipped=is_flipped) for each, is_flipped in zip(own, placement.flips, strict=True)
    )
    away = len(windows)
    if how.passes == "dali":
        windows += resize.ties(how, len(plan.channels), is_mirrored=placement.flips[1]).tobytes()
        windows += bytes(-len(windows) % 16)
    (top, bottom), (left, right) = own[0].span(placement.laid[0]), own[1].span(placement.laid[1])
    above, before, below, behind = placement.margins
    read = placement.read
    return {
        "rows": rows,
        "columns": columns,
        "column_stride": -len(plan.channels) if placement.mirrors[1] else len(plan.channels),
        "height": read[2] - read[0],
        "width": read[3] - read[1],
        "vertical_first": how.vertical_first,
        "intermediate_top": left if how.vertical_first else top,
        "intermediate_height": len(own[0].first) if how.vertical_first else bottom - top,
        "intermediate_width": right - left if how.vertical_first else len(own[1].first),
        "top": placement.at[0],
        "left": placement.at[1],
        "passes": PASSES.index(how.passes),
        "factor": how.factor,
        "pad_top": above,
        "pad_left": before,
        "pad_bottom": below,
        "pad_right": behind,
        "away": away,
        "fill": sum(level << 8 * channel for channel, level in zip(plan.channels, fill, strict=True)),
    }


def _packed(windows: Windows, memory: bytearray, *, is_flipped: bool) -> tuple[int, ...]:
    """Append the filter windows of an axis to the memory, and return their ``WINDOWS`` struct.

    The memory contains the first input positions, then the numbers of taps, and then the weights, grouped by tap.
    """
    size, at = len(windows.first), len(memory)
    order = slice(None, None, -1 if is_flipped else 1)
    memory += windows.first[order].tobytes() + windows.count[order].tobytes() + bytes(8 * size % 16)
    weights = len(memory)
    memory += windows.weights[order].T.tobytes()
    memory += bytes(-len(memory) % 16)
    return at, at + 4 * size, weights, size, windows.bits
