"""Tests that the packages of ``pip install ".[gpu-cuda12]"`` (or 13, with or without ``server``) are sufficient to
compile kernels.

``make gpu-installs`` runs these tests in four clean environments in which the machine's own CUDA is hidden
(tools/without_cuda.sh). A GPU is not needed, because the tests specify the GPU for which the product's code is
compiled.
"""

import importlib
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpu import cuda_builds
from pixprep.engine.devices import device_for
from pixprep.errors import SetupError
from pixprep.gpu import nvrtc

if os.environ.get("PIXPREP_GPU_INSTALLS") != "1":
    pytest.skip("GPU INSTALLS: make gpu-installs", allow_module_level=True)

ROOT = Path(__file__).parents[2]
CUPYS_OWN = """
#include <cupy/complex.cuh>
#include <cupy/carray.cuh>
#include <cupy/atomics.cuh>
#include <cupy/math_constants.h>
#include <cuda_fp16.h>
extern "C" __global__ void round_all(const CArray<float, 2> from, CArray<float, 2> to, CIndexer<2> each) {
    CUPY_FOR(i, each.size()) {
        each.set(i);
        to[each.get()] = __half2float(__float2half(from[each.get()]));
    }
}
"""


@pytest.fixture(scope="module")
def cupy():
    """Import CuPy as pixprep does, on a machine that lacks only the GPU driver."""
    with pytest.raises(SetupError, match=r'^device "gpu:0": the NVIDIA driver cannot be used .*use the device "cpu"$'):
        device_for("gpu:0")
    return importlib.import_module("cupy")


@pytest.fixture(scope="module")
def cuda(cupy):
    """Return the major version of CUDA, determined in the same way as in gpu/kernel.py."""
    return cupy.cuda.runtime.runtimeGetVersion() // 1000


def test_only_the_wheels_contain_cuda():
    assert shutil.which("nvcc") is None
    assert not [path for folder in Path("/usr/local").glob("cuda*") for path in folder.iterdir()]
    with pytest.raises(OSError, match="no-home"):
        Path("~/.cupy").expanduser().mkdir(parents=True)


def test_nvrtc_is_that_of_the_wheel_and_of_cupys_cuda(cuda):
    assert cuda_builds.cuda() == cuda
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libnvrtc" in line}
    assert loaded
    assert all(Path(path).is_relative_to(sys.prefix) for path in loaded)


def test_cupy_matches_this_numpy(cupy):
    assert cupy.__version__.startswith("14." if np.__version__.startswith("2.") else "13.")


@pytest.mark.parametrize("capability", cuda_builds.CAPABILITIES)
def test_every_kernel_compiles_for_every_gpu_without_register_spills(cupy, capability):
    """The environment with ``server`` has the same NVRTC and an older CuPy, so one GPU suffices for it."""
    if cupy.__version__.startswith("13.") and capability != cuda_builds.CAPABILITIES[0]:
        pytest.skip("SAME NVRTC: the environment without server compiles for this GPU")
    command = [sys.executable, ROOT / "tools" / "registers.py", str(capability)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"| sm_{capability} |") == 5


@pytest.mark.parametrize("capability", cuda_builds.CAPABILITIES)
def test_cupys_own_kernels_compile_in_the_same_environment(cupy, cuda, capability):
    """Users compute with the tensors in CuPy. Because CuPy first queries a GPU, this test begins after the query."""
    assert cuda_builds.cuda() == cuda
    core = importlib.import_module("cupy._core.core")
    nvrtc = importlib.import_module("cupy_backends.cuda.libs.nvrtc")
    # this function exists only in CuPy 13
    folders = getattr(cupy.cuda.compiler, "_get_extra_include_dir_opts", tuple)()
    options = (*core.assemble_cupy_compiler_options(()), *folders, "--device-as-default-execution-space")
    program = nvrtc.createProgram(CUPYS_OWN, "copy.cu", (), ())
    try:
        nvrtc.compileProgram(program, (*options, f"-arch=sm_{capability}"))
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program))
    assert nvrtc.getCUBIN(program).startswith(b"\x7fELF")


def test_nvimagecodec_finds_nvjpeg():
    """nvImageCodec reports missing libraries on stderr."""
    command = [sys.executable, "-c", "from nvidia import nvimgcodec; print(nvimgcodec.__version__)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip()
    assert "nvjpeg library" not in done.stderr


def test_the_passes_do_not_depend_on_fused_multiply_add(cuda):
    """The passes specify the rounding of each product and sum, so they do not depend on the option. levels.cu and
    formulas.h do depend on --fmad=false.
    """
    passes = [(code, options) for code, options in cuda_builds.builds() if "LEVEL_CURVE" not in code]
    assert len(passes) >= 50
    for code, options in passes:
        fused, unfused = (
            _machine_code(nvrtc.compiled(code, [*options, more], capability=90, cuda=cuda).image)
            for more in ("--fmad=true", "--fmad=false")
        )
        assert fused == unfused, options


def _machine_code(image):
    """Return the kernels' instructions by section of the ELF file.

    Other sections may differ: since CUDA 13, a note contains the compiler's options.
    """
    (table,), (size, count, names) = struct.unpack_from("<Q", image, 40), struct.unpack_from("<3H", image, 58)
    sections = [struct.unpack_from("<2I4Q", image, table + size * index) for index in range(count)]
    start = sections[names][4]
    code = {}
    for name, _, _, _, begin, length in sections:
        text = image[start + name : image.index(b"\0", start + name)]
        if text.startswith(b".text."):
            code[text] = image[begin : begin + length]
    assert {b".text.first_pass", b".text.second_pass"} <= code.keys()
    return code
