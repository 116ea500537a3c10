"""The kernels in C: a library for each level of processor, compiled when the wheel was built, and the structs it takes.

``hatch_build.py`` compiles them. ``arguments.h`` has the same structs, and says what each field is. ctypes lets other
threads run during every call.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from ctypes import c_double, c_float, c_int32, c_int64, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, cast, get_args

from pixprep.profiles.formula import RADIUS, Curve, Formula
from pixprep.profiles.windows import Axis

log = logging.getLogger(__name__)

LANES = 16
"""Products of one vector, and pixels of one of ``colours.c``."""
TOO_NARROW = 2
"""The answer of ``resize`` where too few columns are wanted, or read."""
LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"},
    "x86-64-v2": {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"},
}
"""The best first: what Linux calls the instructions that each level has beside those of the next."""
SETTING = "PIXPREP_KERNELS"
"""The environment variable that names a level, or a library's file, or ``none``; for tests and comparisons."""
_CURVES = get_args(Curve)


class Struct(ctypes.Structure):
    """A struct of arguments.h; its fields by name."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = ()


def _fields(**kinds: str) -> list[tuple[str, Any]]:
    """Fields of one kind each, in their order."""
    types = {"i": c_int64, "d": c_double, "p": c_void_p}
    return [(name, types[kind]) for kind, names in kinds.items() for name in names.split()]


class FormulaStruct(Struct):
    """``struct formula``."""

    _fields_ = (
        ("radius", c_double), ("curve", c_int32), ("is_widened", c_int32), ("bits", c_int32), ("unused", c_int32)
    )  # fmt: skip


class AxisStruct(Struct):
    """``struct axis``."""

    _fields_ = _fields(d="ratio offset", i="length out_length begin end")


class Windows(Struct):
    """``struct windows``."""

    _fields_ = _fields(p="first count weights", i="size taps group begin end bits")


class Making(Struct):
    """``struct making``."""

    _fields_ = (("formula", FormulaStruct), ("axis", AxisStruct), ("windows", Windows))


class Pass(Struct):
    """``struct pass``."""

    _fields_ = (
        ("windows", Windows), ("levels", c_void_p), ("pitch", c_int64), ("out", c_void_p),
        *_fields(i="out_pitch out_step rows length channels"),
    )  # fmt: skip


class Values(Struct):
    """``struct values``."""

    _fields_ = (
        ("levels", c_void_p), *_fields(i="levels_plane levels_row levels_column"),
        ("out", c_void_p), *_fields(i="out_plane out_row out_column"),
        *_fields(p="table lines", i="planes rows columns size"),
    )  # fmt: skip


class Resize(Struct):
    """``struct resize``."""

    _fields_ = (
        ("formula", FormulaStruct), ("rows", AxisStruct), ("columns", AxisStruct),
        *_fields(
            p="made_rows made_columns pixels",
            i="pitch channels is_vertical_first is_flipped is_mirrored first_channel channel_step",
        ),
        ("values", Values),
    )  # fmt: skip


class Placed(Struct):
    """``struct placed``."""

    _fields_ = (
        ("ratio", 2 * c_double),
        *((name, 2 * c_int64) for name in ["begin", "end", "resized", "first", "last", "at", "mirror", "flip"]),
        *_fields(i="is_vertical_first like address height width pitch tensor"),
    )


class Chunk(Struct):
    """``struct chunk``."""

    _fields_ = (
        ("formula", FormulaStruct), ("images", c_void_p), ("count", c_int64), ("channels", c_int64),
        ("memory", c_void_p), *_fields(i="address n_bytes middle wide high"),
    )  # fmt: skip


class Colours(Struct):
    """``struct colours``."""

    _fields_ = (
        ("pixels", c_void_p), ("count", c_int64), ("turn", c_double), ("gray", c_float), ("factor", c_float),
        ("rest", c_float), ("like", c_int32), ("total", c_int64), ("curves", c_void_p), ("counts", c_void_p),
    )  # fmt: skip


class Noise(Struct):
    """``struct noise``."""

    _fields_ = (
        ("out", c_void_p), ("count", c_int64), ("table", c_void_p),
        ("key", 2 * c_uint32), ("which", c_uint32), ("unused", c_uint32),
    )  # fmt: skip


class Warp(Struct):
    """``struct warp``."""

    _fields_ = (
        ("pixels", c_void_p), *_fields(i="pitch height width channels apart"),
        ("out", c_void_p), *_fields(i="rows columns left top kind"),
        *_fields(d="a b c d e f half_width half_height middle_x middle_y"), ("fill", c_uint32), ("is_filled", c_int32),
        *_fields(d="g h", i="is_perspective"), ("x", c_void_p), ("y", c_void_p),
    )  # fmt: skip


STRUCTS: dict[str, type[Struct]] = {
    "formula": FormulaStruct, "axis": AxisStruct, "windows": Windows, "making": Making, "pass": Pass, "values": Values,
    "resize": Resize, "placed": Placed, "chunk": Chunk, "colours": Colours, "noise": Noise, "warp": Warp,
}  # fmt: skip
"""By their names in arguments.h."""


@cache
def formula_struct(formula: Formula) -> FormulaStruct:
    """A formula as C reads it; it is not written to."""
    return FormulaStruct(RADIUS[formula.curve], _CURVES.index(formula.curve), formula.is_widened, formula.bits or 0)


def axis_struct(axis: Axis) -> AxisStruct:
    """An axis as C reads it."""
    return AxisStruct(axis.ratio, axis.offset, axis.length, axis.out_length, axis.begin, axis.end)


def checked(answer: int) -> int:
    """The answer of a function that needs memory.

    Raises:
        MemoryError: there is none.
    """
    if answer == 1:
        raise MemoryError
    return answer


def kernels() -> ctypes.CDLL:
    """The library, where it is known that there is one."""
    loaded = library()
    assert loaded is not None
    return loaded


@cache
def library() -> ctypes.CDLL | None:
    """The library for this processor, in 1 ms; None where there is none, which is said once."""
    folder = Path(__file__).parent
    chosen = os.environ.get(SETTING)
    if chosen == "none":
        return None
    if chosen:
        return ctypes.CDLL(chosen if "/" in chosen else str(folder / f"pixprep-{chosen}.so"))
    why = "none is installed"
    for level in levels():
        path = folder / f"pixprep-{level}.so"
        try:
            if path.exists():
                return ctypes.CDLL(str(path))
        except OSError as error:  # of another C library, or compiled for another machine
            why = str(error)
    log.warning(
        "no kernels in C work here, on %s (%s), so that NumPy and Pillow do, several times more slowly; a wheel for "
        "this machine has them, and so has what is built on it: pip install --no-binary pixprep",
        platform.machine(),
        why,
    )
    return None


def levels() -> list[str]:
    """The levels that this processor has, the best first; of another architecture its name."""
    if platform.machine() != "x86_64":
        return [platform.machine()]
    has, found = _instructions(), cast("list[str]", [])
    for level in reversed(LEVELS):
        if not LEVELS[level] <= has:
            break
        found.insert(0, level)
    return found


def _instructions() -> set[str]:
    """Instructions of the first processor, as Linux lists them."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        for line in lines:  # the file of a large machine takes 20 ms
            if line.startswith("flags"):
                return set(line.split())
    return set()
