"""Tests surface.cu, which converts NV12 to RGB: the kernel runs on the CPU, and FFmpeg's own conversion is the
reference.
"""

import ctypes

import numpy as np
import pytest

from gpu import cuda_builds, cuda_shim
from pixprep.gpu import launch, nvrtc, surfaces
from pixprep.gpu.structs import TILE

av = pytest.importorskip("av")
pytestmark = pytest.mark.skipif(cuda_shim.COMPILER is None, reason="NO C++ COMPILER: the CUDA kernels do not run here")
BT709, BT601 = 1, 5
MATRICES = (0, BT709, 2, 4, BT601, 6, 7, 9)  # matrix coefficients of ISO/IEC 23091-2 that FFmpeg converts
SIZES = ((2, 2), (48, 64), (96, 162), (50, 174), (34, 226))


@pytest.fixture(scope="module")
def library(folder):
    return cuda_shim.build_code(launch.surface_code(), [], folder)


def noise(height, width, form="yuv420p", matrix=0, color_range=0):
    """Return a frame of noise from FFmpeg, and its planes."""
    numbers = np.random.default_rng((height, width, matrix))
    frame = av.VideoFrame(width, height, form)
    planes = []
    for plane in frame.planes:
        levels = numbers.integers(0, 256, (plane.height, plane.line_size), np.uint8)
        plane.update(levels.tobytes())
        planes.append(levels[:, : plane.width])
    frame.colorspace, frame.color_range = matrix, color_range
    return frame, surfaces.Planes(*planes)


def shown(library, planes, numbers, *, turn=0, gap=0):
    """Return the RGB pixels that the kernel computes from planes in NVDEC's layout."""
    height, width = planes.luma.shape
    surface = np.full((height + height // 2, width + gap), 77, np.uint8)
    surface[:height, :width] = planes.luma
    surface[height:, 0:width:2], surface[height:, 1:width:2] = planes.u, planes.v
    size = (width, height) if turn % 2 else (height, width)
    pixels = np.full((*size, 3), 99, np.uint8)
    where = surfaces.Surface(surface.ctypes.data, surface[height:].ctypes.data, width + gap, height, width, turn)
    struct = surfaces.struct(where, numbers, pixels.ctypes.data)
    grid = (ctypes.c_uint * 3)(-(-width // TILE[0]), -(-height // TILE[1]), 1)
    library.run_show_surface(grid, ctypes.c_void_p(struct.ctypes.data))
    return pixels


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", ["yuv420p", "yuvj420p"])
@pytest.mark.parametrize("matrix", MATRICES)
def test_a_frame_has_the_same_colours_as_in_ffmpeg(library, size, form, matrix):
    for color_range in (0, 1, 2):  # unspecified, limited, full
        frame, planes = noise(*size, form, matrix, color_range)
        expected = frame.to_ndarray(format="rgb24")
        numbers = surfaces.coefficients(planes, expected)
        assert numbers is not None
        np.testing.assert_array_equal(shown(library, planes, numbers), expected)


@pytest.mark.parametrize("turn", [0, 1, 2, 3])
@pytest.mark.parametrize("gap", [0, 6])
def test_a_frame_is_rotated_during_the_conversion(library, turn, gap):
    frame, planes = noise(50, 174)
    expected = frame.to_ndarray(format="rgb24")
    numbers = surfaces.coefficients(planes, expected)
    np.testing.assert_array_equal(shown(library, planes, numbers, turn=turn, gap=gap), np.rot90(expected, turn))


def test_a_different_matrix_or_range_is_detected():
    frame, planes = noise(48, 64, matrix=BT709)
    right = surfaces.coefficients(planes, frame.to_ndarray(format="rgb24"))
    for matrix, color_range in ((BT601, 1), (BT709, 2), (9, 1)):
        other, _ = noise(48, 64, matrix=matrix, color_range=color_range)
        other.planes[0].update(bytes(frame.planes[0]))
        other.planes[1].update(bytes(frame.planes[1]))
        other.planes[2].update(bytes(frame.planes[2]))
        assert surfaces.coefficients(planes, other.to_ndarray(format="rgb24")) not in (right, None)


def test_unknown_matrices_are_not_approximated():
    frame, planes = noise(48, 64)
    expected = frame.to_ndarray(format="rgb24")
    expected[3, 5, 1] ^= 1
    assert surfaces.coefficients(planes, expected) is None


@pytest.mark.skipif(cuda_builds.cuda() is None, reason="NO NVRTC: pip install nvidia-cuda-nvrtc-cu12")
@pytest.mark.parametrize("capability", cuda_builds.EACH)
def test_the_kernel_compiles_for_a_gpu(capability):
    image, remarks = nvrtc.compiled(launch.surface_code(), [], capability=capability, cuda=cuda_builds.cuda())
    assert (image[:4], remarks) == (b"\x7fELF", "")
