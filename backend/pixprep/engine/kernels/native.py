"""Load the C kernels, one shared library per x86-64 level, and declare the structs that their functions receive.

``hatch_build.py`` compiles the libraries when the wheel is built. ``arguments.h`` documents the fields of the structs.
ctypes releases the GIL during every call.
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
"""Number of SIMD lanes of a vector. It is also the minimum length of a row in bytes, and the number of pixels that
``colours.c`` processes at a time."""
LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"},
    "x86-64-v2": {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"},
    "x86-64": set[str](),
}
"""Instruction set extensions that each x86-64 level adds to the level below it, by their names in Linux. The highest
level is first."""
SETTING = "PIXPREP_KERNELS"
"""Environment variable that selects an x86-64 level, or the path of a library, for tests and comparisons."""
STRUCTS: dict[str, Any] = dict(structs(Path(__file__).with_name("arguments.h")))
"""Structs, by their names in arguments.h."""
_CURVES = get_args(Curve) + get_args(Rule)
PASSES = {name: number for number, name in enumerate((*get_args(Passes), "copied"))}
"""Number of each arithmetic in C. ``copied`` is ``fixed`` with a single tap per output position."""


@cache
def formula_numbers(formula: Formula) -> tuple[int, bool, int]:
    """Return the fields of a formula as numbers for C."""
    return _CURVES.index(formula.curve), formula.is_widened, formula.bits or 0


def checked(code: int) -> None:
    """Check the return code of a C function that allocates memory.

    Raises:
        MemoryError: The allocation failed.
    """
    if code:
        raise MemoryError


@cache
def library() -> ctypes.CDLL:
    """Load the library for this processor. The first call takes 1 ms.

    Raises:
        SetupError: None of the libraries can be loaded, or the library that ``PIXPREP_KERNELS`` selects does not exist
            or is not supported by this processor.
    """
    chosen, folder, why = os.environ.get(SETTING), Path(__file__).parent, "no library is installed"
    paths = (
        [Path(chosen).absolute()]
        if chosen and "/" in chosen
        else [folder / f"pixprep-{level}.so" for level in _chosen(chosen)]
    )
    for path in paths:
        try:
            if path.exists():
                return ctypes.CDLL(str(path))
        except OSError as error:  # a different C library, or a different architecture
            why = str(error)
    if chosen and "/" in chosen:
        why = why if paths[0].exists() else "the file does not exist"
        raise SetupError(f"{SETTING}={chosen}: {why}; unset {SETTING} to load the kernels for this processor")
    raise SetupError(
        f"the C kernels cannot be loaded on {platform.system()} {chosen or platform.machine()} ({why}): on Linux, "
        "install pixprep again with a compiler: PIXPREP_CC=cc pip install --force-reinstall --no-deps --no-binary "
        "pixprep pixprep"
    )


def _chosen(level: str | None) -> list[str]:
    """Return the selected level, or all levels that this processor supports, the highest first.

    Raises:
        SetupError: The processor does not support the level, and an illegal instruction would end the process.
    """
    supported = levels()
    if not level or level in supported:
        return [level] if level else supported
    hint = f"set it to {' or '.join(supported)}, or to the path of a library that contains a /, or unset {SETTING}"
    if level not in LEVELS:
        raise SetupError(f"{SETTING}={level}: this is not an x86-64 level: {hint}")
    names = list(LEVELS)
    lacks = sorted(set().union(*(LEVELS[name] for name in names[names.index(level) :])) - _instructions())
    raise SetupError(f"{SETTING}={level}: this processor does not support {', '.join(lacks)}: {hint}")


def levels() -> list[str]:
    """Return the x86-64 levels that this processor supports, the highest first.

    On other architectures, return the name of the architecture.
    """
    if platform.machine() != "x86_64":
        return [platform.machine()]
    has = _instructions()
    names = list(LEVELS)
    best = next(n for n in range(len(names)) if all(LEVELS[name] <= has for name in names[n:]))
    return names[best:]


def _instructions() -> set[str]:
    """Return the instruction set extensions of the first processor, as Linux lists them."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        for line in lines:  # reading the whole file takes 20 ms on a large machine
            if line.startswith("flags"):
                return set(line.split())
    return set()
