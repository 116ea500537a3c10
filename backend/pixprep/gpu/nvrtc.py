"""Compiles CUDA code to machine code with NVRTC from its wheel. The target GPU need not be present.

CuPy can also call NVRTC. However, CuPy 13.6 does not find the wheel, and CuPy 14.2 also requires the headers of the
CUDA runtime. Both versions store compiled code in the home directory, which the user account of a server often does not
have. This module does not write files.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

_HOW = ("-std=c++11", "--fmad=false")
"""Compiler options. Without fused multiply-add, each product and sum is rounded separately, as in C."""
_WHEELS = {12: "nvidia.cuda_nvrtc", 13: "nvidia.cu13"}


class Compiled(NamedTuple):
    """Result of a compilation.

    Attributes:
        image: Machine code, or PTX that the driver compiles.
        remarks: The compiler's log. It is empty, unless a compiler option requests more output.
    """

    image: bytes
    remarks: str


def compiled(code: str, options: Sequence[str], *, capability: int, cuda: int) -> Compiled:
    """Compile kernels to machine code for a GPU, or to PTX if the GPU is too new for NVRTC.

    Args:
        code: CUDA C++ without include directives.
        options: Compiler options in addition to the architecture and C++11.
        capability: Compute capability of the GPU, times 10: 90 means 9.0.
        cuda: Major version of CUDA whose NVRTC is used, 12 or 13.

    Raises:
        RuntimeError: NVRTC is missing or does not support the GPU, or the code does not compile.
    """
    nvrtc = library(cuda)
    target = architecture(capability, _architectures(nvrtc))
    program = ctypes.c_void_p()
    _check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"kernels.cu", 0, None, None))
    try:
        words = [option.encode() for option in (f"--gpu-architecture={target}", *_HOW, *options)]
        error = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
        remarks = _result(nvrtc, program, "ProgramLog").decode(errors="replace").strip("\0\n")
        if error:
            raise RuntimeError(f"NVRTC cannot compile for {target}: {remarks or _name(nvrtc, error)}")
        return Compiled(_result(nvrtc, program, "CUBIN" if target.startswith("sm_") else "PTX"), remarks)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def architecture(capability: int, known: Sequence[int]) -> str:
    """Return the compiler's name of the best architecture for a GPU.

    It is the GPU's own architecture or, if the compiler does not support that, the newest older architecture. A GPU can
    run machine code for an earlier minor version of its own major version, and PTX for any earlier version.

    Args:
        capability: Compute capability of the GPU, times 10.
        known: Compute capabilities that the compiler supports, times 10.

    Raises:
        RuntimeError: The compiler supports only newer GPUs.
    """
    older = [each for each in known if each <= capability]
    if not older:
        raise RuntimeError(
            f"NVRTC does not support compute capability {capability / 10}; the oldest it supports is {min(known) / 10}"
        )
    best = max(older)
    return f"{'sm' if best // 10 == capability // 10 else 'compute'}_{best}"


@cache
def library(cuda: int) -> ctypes.CDLL:
    """Load the NVRTC library of a CUDA major version from its wheel, or from the system's library path.

    Once the library is loaded, CuPy's own calls to NVRTC also find it.

    Raises:
        RuntimeError: NVRTC is not installed.
    """
    name = f"libnvrtc.so.{cuda}"
    try:
        spec = importlib.util.find_spec(_WHEELS.get(cuda, "nvidia"))
    except ModuleNotFoundError:
        spec = None
    folders = (spec.submodule_search_locations or ()) if spec else ()
    paths = [path for folder in folders if (path := Path(folder, "lib", name)).is_file()]
    try:
        return ctypes.CDLL(str(paths[0]) if paths else name)
    except OSError as error:
        raise RuntimeError(f"NVRTC of CUDA {cuda} cannot be loaded ({error})") from None


def _architectures(nvrtc: ctypes.CDLL) -> list[int]:
    count = ctypes.c_int()
    _check(nvrtc, nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    known = (ctypes.c_int * count.value)()
    _check(nvrtc, nvrtc.nvrtcGetSupportedArchs(known))
    return list(known)


def _result(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    result = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, result))
    return result.raw


def _check(nvrtc: ctypes.CDLL, error: int) -> None:
    if error:
        raise RuntimeError(f"NVRTC: {_name(nvrtc, error)}")


def _name(nvrtc: ctypes.CDLL, error: int) -> str:
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    return str(nvrtc.nvrtcGetErrorString(error).decode())
