"""Tests the CUDA kernels without a GPU: NVRTC compiles them, and the same code runs on the CPU in a shim."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import pixprep as pp
from gpu import cuda_builds, cuda_shim
from gpu.cuda_cases import PASSES, cases, images, patch_cases, plan_of, special_tensors, synthetic_library
from pixprep.engine.kernels.resampling import resampling
from pixprep.gpu import launch, nvrtc, structs
from pixprep.gpu.canvases import needs_canvases
from pixprep.plan.profiles import PROFILES

needs_compiler = pytest.mark.skipif(
    cuda_shim.COMPILER is None, reason="NO C++ COMPILER: the CUDA kernels do not run here"
)
needs_nvrtc = pytest.mark.skipif(cuda_builds.cuda() is None, reason="NO NVRTC: pip install nvidia-cuda-nvrtc-cu12")


@pytest.fixture(scope="module", autouse=True)
def _synthetic():
    with synthetic_library():
        yield


@needs_nvrtc
@pytest.mark.parametrize(
    ("capability", "every"),
    [(90, 6), *(pytest.param(each, 1, marks=cuda_builds.SLOW) for each in cuda_builds.CAPABILITIES)],
)
def test_the_kernels_compile_for_every_gpu_without_register_spills(capability, every):
    """A spilled register would be stored in slow memory. ``make gpu-installs`` checks all other sets of options."""
    plans = [*(plan for plan, _ in (*cases(), *patch_cases())), *special_tensors()]
    variants = {tuple(launch.options(plan)): launch.code(plan) for plan in plans}
    assert len({*variants.values()}) == 2  # one from fast.cu, and one from plain.cu
    with ThreadPoolExecutor(2) as pool:
        chosen = [*variants.items()][::every]
        found = list(pool.map(lambda one: cuda_builds.usage(one[1], one[0], capability), chosen))
    for kernels in found:
        assert set(kernels) == {"first_pass", "second_pass"}
        for usage in kernels.values():
            assert 0 < usage.registers <= 128
            assert (usage.spilled, usage.stack) == (0, 0)


@needs_nvrtc
@pytest.mark.parametrize(("like", "dtype"), [("opencv", "float32"), ("tensorflow", "float16"), ("pillow", "float32")])
def test_the_passes_do_not_depend_on_fused_multiply_add(like, dtype):
    """The code specifies the rounding of each product and sum. ``make gpu-installs`` tests every set of options."""
    plan = plan_of(pp.resize(height=30, width=30, like=like), pp.normalize(), pp.tensor(dtype=dtype))
    code = launch.code(plan)
    assert not is_contracted(code, plan)
    plain = code.replace("__fadd_rn(sums[c], __fmul_rn(value, weight))", "sums[c] + value * weight")
    # Pillow's passes have no such sum, so they are the negative control
    assert is_contracted(plain, plan) == (like != "pillow")


def is_contracted(code, plan):
    fused, unfused = (
        nvrtc.compiled(code, [*launch.options(plan), more], capability=90, cuda=cuda_builds.cuda()).image
        for more in ("--fmad=true", "--fmad=false")
    )
    return fused != unfused


@needs_compiler
def test_structs_and_tiles_are_the_same_on_both_sides(folder):
    plan, _ = next(cases())
    sizes = (cuda_shim.ctypes.c_size_t * 6)()
    cuda_shim.build(plan, folder).sizes(sizes)
    those = (structs.IMAGE, structs.PLAN, structs.STEP)
    assert list(sizes) == [*(struct.itemsize for struct in those), *structs.TILE, structs.TILE_ROWS]


ALL = pytest.param(1, marks=pytest.mark.slow(reason="all of the cases, with the same kernels"))


@needs_compiler
@pytest.mark.parametrize("every", [13, ALL])
def test_the_kernels_equal_the_cpu_bit_for_bit(folder, every):
    cuda_shim.build_all((plan for plan, _ in cases(every=every)), folder)
    count, seen = 0, set()
    for plan, batch in cases(every=every):
        ours = cuda_shim.run(cuda_shim.build(plan, folder), plan, batch)
        theirs = cuda_shim.expected(plan, batch)
        for image, our, their in zip(batch, ours, theirs, strict=True):
            assert np.array_equal(our, their), (plan.geometry, image.shape, np.argwhere(our != their)[:3])
            how = resampling(plan.geometry.resize, plan.geometry.place(*image.shape[:2]))
            seen.add((launch.is_fast(plan), how.passes))
            count += 1
    assert seen == {(True, "fixed"), *((False, passes) for passes in ("fixed", "float_pairs", *PASSES))}
    assert count > 3000 // every


@needs_compiler
@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_dalis_ties_are_rounded_as_on_the_cpu(folder, color):
    """The ties are halves, in rows of two values that are enlarged by 2.

    As a negative control, some values differ if all ties are rounded to even.
    """
    tensor, count, differing = pp.tensor(dtype="uint8"), 1 if color == "gray" else 3, 0
    halves, doubles = ({"height": side, "width": 43, "like": "dali", "antialias": False} for side in (32, 128))
    for geometry in (
        [pp.resize(**halves)],
        [pp.resize(**doubles), pp.flip(), pp.crop(5, 0, 90, 39)],
        [pp.flip(), pp.resize(**halves), pp.flip(), pp.crop(2, 0, 20, 13)],
        [pp.resize(**halves), pp.pad(40, 60, fill=7)],
        [pp.resize(**doubles), pp.brightness(factor=1.2), pp.flip()],
        *[[pp.grayscale(), pp.resize(**doubles), pp.crop(5, 3, 90, 39)]] * (color != "gray"),
    ):
        plan = plan_of(*geometry, tensor, color=color)
        batch = [np.random.default_rng(seed).integers(0, 256, (64, 86, count), np.uint8) for seed in range(2)]
        levels = cuda_shim.build_levels(plan, folder) if needs_canvases(plan) else None
        library, theirs = cuda_shim.build(plan, folder), cuda_shim.expected(plan, batch)
        ours = cuda_shim.run(library, plan, batch, levels=levels)
        assert all(map(np.array_equal, ours, theirs))

        def even(prepared):
            prepared.images["passes"] = PASSES.index("float_even") + 1

        ours = cuda_shim.run(library, plan, batch, levels=levels, corrupt=even)
        differing += not any(map(np.array_equal, ours, theirs))
    assert differing >= 3


@needs_compiler
def test_the_plain_kernels_equal_the_fast_ones(folder):
    """An engine uses the plain kernels if the fast kernels fail."""
    count = 0
    for plan, batch in cases(every=13):
        if launch.is_fast(plan):
            ours = cuda_shim.run(cuda_shim.build(plan, folder, plain=True), plan, batch, plain=True)
            assert all(map(np.array_equal, ours, cuda_shim.expected(plan, batch)))
            count += 1
    assert count > 10


@needs_compiler
@pytest.mark.parametrize("plain", [False, True])
def test_a_fourth_channel_one_of_three_and_padding_of_any_value_equal_the_cpu(folder, plain):
    for plan in special_tensors():
        library = cuda_shim.build(plan, folder, plain=plain)
        batch = images(5)
        found = cuda_shim.run(library, plan, batch, plain=plain or not launch.is_fast(plan))
        assert all(map(np.array_equal, found, cuda_shim.expected(plan, batch)))


@needs_compiler
@pytest.mark.parametrize(
    "plain", [False, pytest.param(True, marks=pytest.mark.slow(reason="the plain kernels of the same plans"))]
)
def test_patches_tiles_and_slices_equal_the_cpu(folder, plain):
    cuda_shim.build_all((plan for plan, _ in patch_cases()), folder, plain=plain)
    count = 0
    for plan, batch in patch_cases():
        levels = cuda_shim.build_levels(plan, folder) if needs_canvases(plan) else None
        library = cuda_shim.build(plan, folder, plain=plain)
        ours = cuda_shim.run(library, plan, batch, levels=levels, plain=plain or not launch.is_fast(plan))
        for image, our, their in zip(batch, ours, cuda_shim.expected(plan, batch), strict=True):
            assert np.array_equal(our, their), (plan.spec, image.shape, np.argwhere(our != their)[:3])
            count += 1
    assert count > 100


WRONG_ORDERS = {
    "merge windows": ("row % MERGE * MERGE + column % MERGE", "column % MERGE * MERGE + row % MERGE"),
    "channels": ("c * layout.strides[0] + index", "(PLANES - 1 - c) * layout.strides[0] + index"),
    "frames": ("frame * FRAME_STRIDE", "frame"),
}


@needs_compiler
@pytest.mark.parametrize("name", WRONG_ORDERS)
def test_the_comparison_of_patches_detects_a_wrong_order(folder, name):
    """Negative control: one term of the formula for the position of a value is wrong."""
    plan, batch = next(patch_cases())
    code = launch.code(plan)
    before, after = WRONG_ORDERS[name]
    assert code.count(before) == 1
    library = cuda_shim.build_code(code.replace(before, after), launch.options(plan), folder)
    ours = cuda_shim.run(library, plan, batch[-3:])
    assert not any(map(np.array_equal, ours, cuda_shim.expected(plan, batch[-3:])))


@needs_compiler
def test_float16_is_rounded_once_and_ties_to_even(folder):
    bits = np.arange(0x7BFF, dtype=np.uint16)  # all non-negative finite float16 numbers except the largest
    low, high = (b.view(np.float16).astype(np.float64) for b in (bits, bits + np.uint16(1)))
    tie = (low + high) / 2
    values = np.concatenate([low, tie, np.nextafter(tie, 0), np.nextafter(tie, np.inf), [65519.999, 1e-300]])
    values = np.concatenate([values, -values])
    out = np.empty(len(values), np.uint16)
    real = plan_of(pp.resize(height=9, width=9, like="tensorflow"), pp.tensor(dtype="float16", layout="hwc"))
    library = cuda_shim.build(real, folder)
    library.halves(*(cuda_shim.ctypes.c_void_p(array.ctypes.data) for array in (values, out)), len(values))
    assert np.array_equal(out, values.astype(np.float16).view(np.uint16))


@needs_compiler
@pytest.mark.parametrize("barrier", range(3))
def test_the_comparison_detects_a_missing_barrier(folder, barrier):
    """As a negative control, a barrier is removed.

    A block that stages its rows in parts needs two barriers, and one more after it has read the tables.
    """
    plan = plan_of(pp.resize(height=20, width=70, filter="bicubic"), pp.tensor(dtype="uint8"))
    batch = [np.random.default_rng(5).integers(0, 256, (40, 6000, 3), np.uint8)]
    kept = launch.code(plan).split("__syncthreads()")
    assert len(kept) == 4
    code = "__syncthreads()".join([*kept[:barrier], "(void)0".join(kept[barrier : barrier + 2]), *kept[barrier + 2 :]])
    (ours,) = cuda_shim.run(cuda_shim.build_code(code, launch.options(plan), folder), plan, batch)
    assert not np.array_equal(ours, *cuda_shim.expected(plan, batch))


@pytest.mark.slow(reason="half a minute of builds; run make test-slow after a change of a kernel")
@needs_compiler
def test_nothing_is_read_or_written_outside(folder):
    """AddressSanitizer checks a part of the cases in a separate process, because it must be loaded before Python.

    UndefinedBehaviorSanitizer also checks the alignment, because a misaligned vector is an error on a GPU.
    """
    asked = [cuda_shim.COMPILER, "-print-file-name=libasan.so"]
    sanitizer = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(sanitizer).is_file():
        pytest.skip("NO ADDRESSSANITIZER beside the compiler")
    environment = {"LD_PRELOAD": sanitizer, "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0"}
    done = subprocess.run(
        [sys.executable, cuda_shim.__file__, str(folder)],
        env=os.environ | environment | {"PYTHONPATH": str(Path(cuda_shim.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[0]) > 200


def test_images_of_equal_size_share_their_filter_taps():
    plan = plan_of(pp.resize(height=20, width=20), pp.tensor())
    batch = [np.zeros((100, width, 3), np.uint8) for width in (70, 60, 70)]
    room = cuda_shim.Room()
    prepared = cuda_shim.prepare(plan, batch, batch, room=room)
    for axis in ("rows", "columns"):
        first, other, third = prepared.images[axis]
        assert first == third
        assert len({int(first["first"]), int(other["first"])}) == 2
        assert not any(int(struct[name]) % 16 for struct in (first, other) for name in ("first", "weights"))


@pytest.mark.parametrize("name", PROFILES["pillow"].reducible)
def test_a_launch_covers_every_pixel_of_the_batch(name):
    plan = plan_of(pp.resize(100, filter=name), pp.center_crop(90, 97), pp.tensor())
    batch = [np.zeros((300, 200, 3), np.uint8), np.zeros((128, 1024, 3), np.uint8)[:, :1000]]
    room = cuda_shim.Room()
    prepared = cuda_shim.prepare(plan, batch, batch, room=room)
    images, (part,) = prepared.images, prepared.parts
    assert (part.first, part.last) == (0, 2)
    assert part.first_grid[0] * structs.TILE[0] >= images["columns"]["size"].max()
    assert part.first_grid[1] * structs.TILE_ROWS >= structs.TAPS * images["intermediate_height"].max()
    assert part.second_grid == (1, 23, 2)
    words = images["intermediate_height"].astype(int) * images["intermediate_width"]
    begins = images["intermediate"] - room.between.ctypes.data
    assert begins[1] >= 4 * 3 * words[0]
    assert len(room.between) >= begins[1] + 4 * 3 * words[1]
    assert not (begins % structs.ALIGNMENT).any()


@pytest.mark.parametrize("most", [0, 1, 20_000, 40_000, 10**9])
def test_images_are_launched_in_parts_that_fit_into_the_intermediate_memory(most):
    plan = plan_of(pp.resize(height=20, width=20), pp.tensor())
    batch = [np.zeros((100 + 37 * index % 90, 60, 3), np.uint8) for index in range(13)]
    room = cuda_shim.Room()
    prepared = cuda_shim.prepare(plan, batch, batch, room=room, middle_bytes=most)
    sizes = 4 * 3 * prepared.images["intermediate_height"].astype(int) * prepared.images["intermediate_width"]
    begins = prepared.images["intermediate"] - room.between.ctypes.data
    assert len(room.between) <= max(most, structs.ALIGNMENT * -(-sizes.max() // structs.ALIGNMENT))
    assert [part.first for part in prepared.parts] == [0, *(part.last for part in prepared.parts[:-1])]
    assert prepared.parts[-1].last == len(batch)
    for first, last, first_grid, second_grid, _ in prepared.parts:
        assert first_grid[2] == second_grid[2] == last - first > 0
        ends = begins[first:last] + sizes[first:last]
        assert begins[first] == 0
        assert (ends[:-1] <= begins[first + 1 : last]).all()
        assert ends[-1] <= len(room.between)
    assert (len(prepared.parts) == 13) == (most < 2)
    assert (len(prepared.parts) == 1) == (most == 10**9)
