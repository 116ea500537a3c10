"""The CUDA kernels with no GPU: NVRTC compiles them, and the same source runs on the CPU through a shim."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cuda_shim
import nvrtc
import pixprep as pp
from fused_cases import FILTERS, cases, images, plan_of
from pixprep.kernels import launch

needs_compiler = pytest.mark.skipif(
    cuda_shim.COMPILER is None, reason="NO C++ COMPILER: the CUDA kernels do not run here"
)
needs_nvrtc = pytest.mark.skipif(nvrtc.library() is None, reason="NO NVRTC: pip install nvidia-cuda-nvrtc-cu12")
SOURCE = (cuda_shim.KERNELS / "fused.cu").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shim")


@needs_nvrtc
@pytest.mark.parametrize("architecture", [75, 80, 86, 89, 90, 100, 120])
def test_nvrtc_compiles_the_kernels_for_every_gpu(architecture):
    for options in sorted({tuple(launch.options(plan)) for plan, _ in cases()}):
        ptx = nvrtc.compile_ptx(SOURCE, [f"--gpu-architecture=sm_{architecture}", "-std=c++11", *options])
        assert ptx.count(".entry") == 2


@needs_compiler
def test_structs_and_tiles_are_the_same_on_both_sides(folder):
    plan, _ = next(cases())
    sizes = (cuda_shim.ctypes.c_size_t * 5)()
    cuda_shim.build(plan, folder).sizes(sizes)
    assert list(sizes) == [launch.IMAGE.itemsize, launch.PLAN.itemsize, *launch.TILE, launch.TILE_ROWS]


@needs_compiler
def test_the_kernels_equal_the_cpu_bit_for_bit(folder):
    count = 0
    for plan, batch in cases():
        ours = cuda_shim.run(cuda_shim.build(plan, folder), plan, batch)
        theirs = cuda_shim.expected(plan, batch)
        for image, our, their in zip(batch, ours, theirs, strict=True):
            assert np.array_equal(our, their), (plan.geometry, image.shape, np.argwhere(our != their)[:3])
            count += 1
    assert count == 680


@needs_compiler
@pytest.mark.parametrize("wrong", ["first", "count", "weights"])
def test_the_comparison_sees_a_wrong_window(folder, wrong, monkeypatch):
    """A negative control: one number of one window off, and the tensors differ."""
    plan = plan_of(pp.resize(height=20, width=20, filter="bicubic", exact=True), pp.tensor(dtype="uint8"))
    (batch,) = [[image for image in images(3) if min(image.shape[:2]) > 30]]
    theirs = cuda_shim.expected(plan, batch)
    real = launch.axis.__wrapped__

    def off(*arguments):
        axis = real(*arguments)
        packed = axis.packed.copy()
        index = {"first": 5, "count": axis.size + 5, "weights": 2 * axis.size + 3 * axis.size + 5}[wrong]
        packed[index] -= {"first": 1, "count": 1, "weights": 1 << 18}[wrong]
        return launch.Axis(packed, axis.size, axis.begin, axis.end)

    monkeypatch.setattr(launch, "axis", off)
    ours = cuda_shim.run(cuda_shim.build(plan, folder), plan, batch)
    assert not any(np.array_equal(our, their) for our, their in zip(ours, theirs, strict=True))


@needs_compiler
def test_nothing_is_read_or_written_outside(folder):
    """AddressSanitizer over a third of the cases, in a process of its own, where it is loaded first."""
    asked = [cuda_shim.COMPILER, "-print-file-name=libasan.so"]
    sanitizer = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(sanitizer).is_file():
        pytest.skip("NO ADDRESSSANITIZER beside the compiler")
    done = subprocess.run(
        [sys.executable, cuda_shim.__file__, str(folder)],
        env=os.environ | {"LD_PRELOAD": sanitizer, "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[0]) > 200


def test_windows_are_built_once_for_equal_axes():
    resize = plan_of(pp.resize(height=20, width=20), pp.tensor()).geometry.resize
    assert launch.axis(100, 20, 0, 20, resize) is launch.axis(100, 20, 0, 20, resize)


@pytest.mark.parametrize("name", FILTERS)
def test_a_launch_covers_every_pixel_of_the_batch(name):
    plan = plan_of(pp.resize(100, filter=name), pp.center_crop(90, 97), pp.tensor())
    sources = [launch.Source(1 << 20, 300, 200, 600), launch.Source(1 << 30, 128, 1000, 3072)]
    placements = [plan.geometry.place(source.height, source.width) for source in sources]
    prepared = launch.prepare(plan, sources, placements, [0, 0], upload=lambda _: 0)
    middle = prepared.images
    assert prepared.first_grid[0] * launch.TILE[0] >= middle["middle_width"].max()
    assert prepared.first_grid[1] * launch.TILE_ROWS >= middle["middle_height"].max()
    assert prepared.second_grid == (2, 23, 2)
    sizes = [int(h) * int(w) * 3 for h, w in zip(middle["middle_height"], middle["middle_width"], strict=True)]
    assert middle["middle"][1] >= sizes[0]
    assert prepared.middle_bytes >= middle["middle"][1] + sizes[1]
    assert not (middle["middle"] % launch.ALIGNMENT).any()
