"""NVRTC from its wheel, by ctypes: compiles CUDA code for a GPU that need not be there."""

import ctypes
import importlib.util
from pathlib import Path


def library():
    """The path of NVRTC in its wheel for CUDA 12 or 13; None if none is installed."""
    for package in ("nvidia.cuda_nvrtc", "nvidia.cu13"):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for path in sorted(Path(folder, "lib").glob("libnvrtc.so.*")):
                return path
    return None


def compile_ptx(code, options):
    """The PTX of CUDA code; raises with the compiler's log if it does not compile. Warnings count."""
    nvrtc = ctypes.CDLL(str(library()))
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"kernels.cu", 0, None, None) == 0
    words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    error = nvrtc.nvrtcCompileProgram(program, len(options), words)
    log = _text(nvrtc, program, "ProgramLog")
    if error or log.strip():
        raise AssertionError(log)
    return _text(nvrtc, program, "PTX")


def _text(nvrtc, program, what):
    size = ctypes.c_size_t()
    assert getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
    text = ctypes.create_string_buffer(size.value)
    assert getattr(nvrtc, f"nvrtcGet{what}")(program, text) == 0
    return text.value.decode()
