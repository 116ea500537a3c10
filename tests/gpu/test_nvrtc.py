"""Tests that NVRTC is loaded by its library name, what it compiles for each GPU, and the errors if it is missing or
rejects the code.
"""

import re

import pytest

from gpu import cuda_builds
from pixprep.gpu import nvrtc

CODE = 'extern "C" __global__ void half(int *values) { values[threadIdx.x] /= 2; }'
KNOWN = [75, 80, 86, 90, 100]
needs_nvrtc = pytest.mark.skipif(cuda_builds.cuda() is None, reason="NO NVRTC: pip install nvidia-cuda-nvrtc-cu12")


@pytest.mark.parametrize(
    ("capability", "expected"),
    [(80, "sm_80"), (90, "sm_90"), (87, "sm_86"), (89, "sm_86"), (103, "sm_100"), (120, "compute_100")],
)
def test_a_gpu_gets_code_that_it_supports(capability, expected):
    assert nvrtc.architecture(capability, KNOWN) == expected


def test_a_gpu_older_than_all_code_is_rejected():
    with pytest.raises(
        RuntimeError, match=r"^NVRTC does not support compute capability 6.1; the oldest it supports is 7.5$"
    ):
        nvrtc.architecture(61, KNOWN)


def test_a_missing_cuda_is_named():
    with pytest.raises(RuntimeError, match=r"^NVRTC of CUDA 7 cannot be loaded \(libnvrtc.so.7: cannot open"):
        nvrtc.library(7)


@needs_nvrtc
def test_a_gpu_gets_machine_code_and_a_later_gpu_ptx():
    image, remarks = nvrtc.compiled(CODE, [], capability=80, cuda=cuda_builds.cuda())
    assert (image[:4], remarks) == (b"\x7fELF", "")
    image, remarks = nvrtc.compiled(CODE, [], capability=990, cuda=cuda_builds.cuda())
    assert remarks == ""
    assert b".entry half(" in image
    assert re.search(rb"\.target sm_1\d\d", image)
    assert image[-1] == 0  # the driver reads the image up to a zero byte


@needs_nvrtc
def test_code_that_does_not_compile_is_an_error_with_the_reason():
    with pytest.raises(RuntimeError, match=r'^NVRTC cannot compile for sm_80: .*identifier "thread" is undefined'):
        nvrtc.compiled(CODE.replace("threadIdx", "thread"), [], capability=80, cuda=cuda_builds.cuda())
