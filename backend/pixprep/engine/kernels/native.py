"""The kernels in C: a library for each level of processor, compiled when the wheel was built, and the structs it takes.

``hatch_build.py`` compiles them. ``arguments.h`` says what each field of a struct is. ctypes lets other threads run
during every call.
"""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pixprep.engine.kernels.layout import structs
from pixprep.errors import SetupError
from pixprep.plan.profiles.windows import Curve, Formula, Passes, Rule

LANES = 16
"""Products of one vector, bytes of the shortest row of levels, and pixels of a vector of ``colours.c``."""
LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"},
    "x86-64-v2": {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"},
    "x86-64": set[str](),
}
"""The best first: what Linux calls the instructions that each level has beside those of the next."""
SETTING = "PIXPREP_KERNELS"
"""The environment variable that names a level, or a library's file; for tests and comparisons."""
STRUCTS: dict[str, Any] = dict(structs(Path(__file__).with_name("arguments.h")))
"""Structs by their names in arguments.h."""
_CURVES = get_args(Curve) + get_args(Rule)
PASSES = {name: number for number, name in enumerate((*get_args(Passes), "copied"))}
"""The number that C has for each arithmetic; ``copied`` is ``fixed`` of one position a window."""


@cache
def formula_numbers(formula: Formula) -> tuple[int, bool, int]:
    """A formula as C reads it."""
    return _CURVES.index(formula.curve), formula.is_widened, formula.bits or 0


def checked(answer: int) -> None:
    """Look at the answer of a function that needs memory.

    Raises:
        MemoryError: there is none.
    """
    if answer:
        raise MemoryError


@cache
def library() -> ctypes.CDLL:
    """The library for this processor, in 1 ms.

    Raises:
        SetupError: there is none that works, or the setting names one that does not exist or would not work.
    """
    chosen, folder, why = os.environ.get(SETTING), Path(__file__).parent, "none is installed"
    paths = (
        [Path(chosen).absolute()]
        if chosen and "/" in chosen
        else [folder / f"pixprep-{level}.so" for level in _chosen(chosen)]
    )
    for path in paths:
        try:
            if path.exists():
                return ctypes.CDLL(str(path))
        except OSError as error:  # of another C library, or compiled for another machine
            why = str(error)
    if chosen and "/" in chosen:
        why = why if paths[0].exists() else "there is no such file"
        raise SetupError(f"{SETTING}={chosen}: {why}; unset {SETTING} to load the kernels for this processor")
    raise SetupError(
        f"no kernels in C work here, on {platform.system()} {chosen or platform.machine()} ({why}): pixprep runs on "
        "Linux; install it there again, with a compiler: PIXPREP_CC=cc pip install --force-reinstall --no-deps "
        "--no-binary pixprep pixprep"
    )


def _chosen(level: str | None) -> list[str]:
    """The level that the setting names, or all levels of this processor, the best first.

    Raises:
        SetupError: the processor does not have the level: its first vector would end the process.
    """
    there = levels()
    if not level or level in there:
        return [level] if level else there
    remedy = f"write one of {', '.join(there)}, or the path of a library with a / in it, or unset {SETTING}"
    if level not in LEVELS:
        raise SetupError(f"{SETTING}={level}: there is no such level: {remedy}")
    names = list(LEVELS)
    lacks = sorted(set().union(*(LEVELS[name] for name in names[names.index(level) :])) - _instructions())
    raise SetupError(f"{SETTING}={level}: this processor does not have {', '.join(lacks)}: {remedy}")


def levels() -> list[str]:
    """The levels that this processor has, the best first; of another architecture its name."""
    if platform.machine() != "x86_64":
        return [platform.machine()]
    has = _instructions()
    names = list(LEVELS)
    best = next(n for n in range(len(names)) if all(LEVELS[name] <= has for name in names[n:]))
    return names[best:]


def _instructions() -> set[str]:
    """Instructions of the first processor, as Linux lists them."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        for line in lines:  # the file of a large machine takes 20 ms
            if line.startswith("flags"):
                return set(line.split())
    return set()
