"""Tests that the CUDA kernels on a GPU compute the same bits as the CPU kernel from the same pixels."""

import importlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pixprep as pp
from gpu import cuda_shim, level_cases
from gpu.cuda_cases import cases, images, is_real, patch_cases, plan_of, resizes, synthetic_library

pytestmark = pytest.mark.gpu

BATCHES, BATCH = 20, 10  # number of random sizes for each of Pillow's filters; a fifth of it for the other libraries
RESIZES = list(resizes())


@pytest.fixture(scope="module", autouse=True)
def _synthetic():
    with synthetic_library():
        yield


@pytest.fixture(scope="module")
def kernels(gpu):  # noqa: ARG001  (first it must be there)
    return importlib.import_module("pixprep.gpu.kernel")


@pytest.fixture
def run(cupy, kernels):
    """Return ``run(plan, images)``, which runs the kernels and returns the tensors. Every output is poisoned before the
    run.
    """

    def run(plan, batch, kernel=None):
        return launch(cupy, kernel or kernels.GpuKernel(plan), plan, [cupy.asarray(image) for image in batch])

    return run


def launch(cupy, kernel, plan, pixels, placements=None):
    placements = placements or [plan.geometry.place(*image.shape[:2]) for image in pixels]
    empty = cuda_shim.empty(plan, placements, 77)
    outs = [cupy.asarray(each) for each in empty] if plan.spec.is_open else cupy.asarray(np.stack(empty))
    cupy.cuda.get_current_stream().synchronize()
    with cupy.cuda.Device(0), importlib.import_module("pixprep.gpu.lanes").Lane():
        kernel.run(pixels, placements, outs, range(len(pixels)))
    return [cupy.asnumpy(out) for out in outs]


def assert_equal(plan, batch, ours):
    theirs = cuda_shim.expected(plan, batch)
    for image, our, their in zip(batch, ours, theirs, strict=True):
        where = np.argwhere(our != their)
        assert len(where) == 0, f"{len(where)} values differ, first {where[0]}; image {image.shape}, {plan.geometry}"


def test_every_case_equals_the_cpu_kernel(run):
    count = 0
    for plan, batch in cases():
        assert_equal(plan, batch, run(plan, batch))
        count += len(batch)
    assert count > 1000


def test_every_tensor_of_patches_equals_the_cpu_kernel(run):
    for plan, batch in patch_cases():
        assert_equal(plan, batch, run(plan, batch))


@pytest.mark.parametrize("seed", range(BATCHES))
def test_steps_on_pixel_values_equal_the_cpu_kernel(cupy, kernels, seed):
    """One launch contains images with a single step and images with long random lists of steps."""
    for plan, batch, placements in level_cases.cases(seed=seed, count=200):
        kernel = kernels.GpuKernel(plan)
        ours = launch(cupy, kernel, plan, [cupy.asarray(image) for image in batch], placements)
        for steps, our, their in zip(placements, ours, cuda_shim.expected(plan, batch, placements), strict=True):
            assert np.array_equal(our, their), steps.levels


@pytest.mark.parametrize("size", [(224, 224), (1024, 1024)])
def test_large_canvases_equal_the_cpu_kernel(run, size):
    """The canvases have the size of photos, which is far more pixels than a block has threads."""
    rng = np.random.default_rng(size)
    batch = [rng.integers(0, 256, (*side, 3), np.uint8) for side in ((375, 500), (1300, 900))]
    changes = [pp.contrast(1.3), pp.rotate(20, filter="bilinear"), pp.hue(0.1), pp.equalize(), pp.gaussian_blur(7)]
    plan = plan_of(pp.resize(height=size[0], width=size[1]), *changes, pp.normalize(), pp.tensor())
    assert_equal(plan, batch, run(plan, batch))


@pytest.mark.parametrize("options", RESIZES, ids=lambda options: " ".join(map(str, options.values())))
def test_random_sizes_equal_the_cpu_kernel(run, options):
    rng = np.random.default_rng((200, RESIZES.index(options)))
    for _ in range(BATCHES if options["like"] == "pillow" else BATCHES // 5):
        plan = _random_plan(rng, options)
        sides = np.exp(rng.uniform(0, np.log(1200), (BATCH, 2))).astype(int)
        batch = [rng.integers(0, 256, (*side, 3), np.uint8) for side in sides]
        assert_equal(plan, batch, run(plan, batch))


def _random_plan(rng, options):
    height, width = (int(side) for side in rng.integers(1, 320, 2))
    op = pp.letterbox if rng.integers(2) else pp.resize
    resize = op(height=height, width=width, **options)
    crop = pp.center_crop(int(rng.integers(1, height + 1)), int(rng.integers(1, width + 1)))
    flips = [pp.flip(axis) for axis in ("horizontal", "vertical") if rng.integers(2)]
    ops = [resize, crop, *flips] if rng.integers(2) else [*flips, resize, crop]
    dtype = ("float32", "float16")[rng.integers(2)] if is_real(options) else "uint8"
    return plan_of(*ops, pp.tensor(dtype=dtype, layout=("chw", "hwc")[rng.integers(2)]))


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("layout", ["chw", "hwc"])
@pytest.mark.parametrize("like", ["pillow", "torchvision"])
def test_an_engine_uses_the_fast_kernels(gpu, caplog, dtype, layout, like):
    """The engine compares the kernels with the CPU when it is created, and uses the plain kernels if the fast ones
    differ.
    """
    plan = plan_of(pp.resize(64, like=like), pp.center_crop(60), pp.tensor(dtype=dtype, layout=layout))
    assert not gpu.Gpu(0).kernel(plan).is_plain, caplog.text


def test_a_wrong_pixel_is_detected(run):
    """As a negative control, one value of one pixel changes by one, and the tensors must differ."""
    plan = plan_of(pp.center_crop(30), pp.tensor(dtype="uint8"))
    batch = [image for image in images(1) if min(image.shape[:2]) > 30]
    ours = run(plan, batch)
    ours[0][1, 7, 9] ^= 1
    with pytest.raises(AssertionError, match=r"^1 values differ, first \[1 7 9\]"):
        assert_equal(plan, batch, ours)


def test_rows_can_have_any_stride_and_alignment(cupy, kernels):
    """nvImageCodec may pad the rows of its buffers, and may start the rows at any address."""
    plan = plan_of(pp.resize(height=40, width=50, filter="bicubic"), pp.tensor(dtype="uint8"))
    batch = images(2)
    pixels = []
    for index, image in enumerate(batch):
        height, width, _ = image.shape
        around = np.full((height + 2, width + 5 + index, 3), 200, np.uint8)
        around[1 : height + 1, index : index + width] = image
        pixels.append(cupy.asarray(around)[1 : height + 1, index : index + width])
    assert_equal(plan, batch, launch(cupy, kernels.GpuKernel(plan), plan, pixels))


def test_two_threads_share_a_kernel_in_separate_lanes(cupy, kernels):
    plan = plan_of(pp.resize(64, filter="lanczos"), pp.center_crop(60), pp.tensor())
    kernel = kernels.GpuKernel(plan)

    def work(seed):
        batch = images(seed)
        return batch, launch(cupy, kernel, plan, [cupy.asarray(image) for image in batch])

    with ThreadPoolExecutor(2) as pool:
        for batch, ours in pool.map(work, range(24)):
            assert_equal(plan, batch, ours)
