"""Tests a plan's steps on pixel values in CUDA without a GPU: NVRTC compiles them, and the same code runs on the CPU in
a shim.
"""

import itertools

import numpy as np
import pytest

import pixprep as pp
from gpu import cuda_builds, cuda_shim, level_cases
from gpu.cuda_cases import images, plan_of
from gpu.level_cases import SIZE, TYPES, photo, plan_with_levels, singles
from pixprep.gpu import canvases, launch, nvrtc
from pixprep.plan.steps import levels
from pixprep.plan.steps.levels import Erase, Hue, Take

needs_compiler = pytest.mark.skipif(
    cuda_shim.COMPILER is None, reason="NO C++ COMPILER: the CUDA kernels do not run here"
)
needs_nvrtc = pytest.mark.skipif(cuda_builds.cuda() is None, reason="NO NVRTC: pip install nvidia-cuda-nvrtc-cu12")


def kernel_tensors(folder, plan, batch, placements, *, change=None, **options):
    """Return the tensors that the kernels compute. ``change`` may edit the kernels' code before it is compiled."""
    code = launch.levels_code()
    if change:
        before, after = change
        assert before in code, before
        code = code.replace(before, after)
    library = cuda_shim.build_code(code, launch.levels_options(plan), folder)
    return cuda_shim.run(cuda_shim.build(plan, folder), plan, batch, placements=placements, levels=library, **options)


def one_launch(folder, plan, lists, **options):
    """Return the tensors of a photo after each list of steps, computed by the kernels and by the CPU."""
    image = photo(len(plan.channels))
    (placement,) = cuda_shim.placed(plan, [image])
    placements = [placement._replace(levels=steps) for steps in lists]
    batch = [image] * len(lists)
    return kernel_tensors(folder, plan, batch, placements, **options), cuda_shim.expected(plan, batch, placements)


@needs_nvrtc
@pytest.mark.parametrize("capability", cuda_builds.EACH)
@pytest.mark.parametrize("name", ["rgb", "gray"])
def test_the_kernel_compiles_for_every_gpu_without_register_spills(capability, name):
    """``make gpu-installs`` tests all other sets of options. Each of 512 threads may use 128 registers."""
    options = launch.levels_options(plan_with_levels(name))
    (usage,) = cuda_builds.usage(launch.levels_code(), options, capability).values()
    assert 0 < usage.registers <= 128
    assert (usage.spilled, usage.stack) == (0, 0)


@needs_nvrtc
@pytest.mark.parametrize("plain", [False, True])
def test_the_passes_that_write_canvases_compile_without_register_spills(plain):
    plan = plan_with_levels("rgb")
    usages = cuda_builds.usage(launch.code(plan, plain=plain), launch.options(plan, plain=plain), 90)
    assert set(usages) == {"first_pass", "second_pass"}
    assert not any(usage.spilled or usage.stack for usage in usages.values())


@needs_nvrtc
def test_the_compiler_fuses_only_the_products_and_sums_that_the_cpu_fuses():
    options = launch.levels_options(plan_with_levels("rgb"))

    def image(*more):
        built = nvrtc.compiled(launch.levels_code(), [*options, *more], capability=90, cuda=cuda_builds.cuda())
        return built.image

    assert image() == image("--fmad=false") != image("--fmad=true")


@needs_compiler
@pytest.mark.parametrize("name", TYPES)
def test_every_step_equals_the_cpu_bit_for_bit(folder, name):
    plan = plan_with_levels(name)
    names, lists = singles(len(plan.channels))
    ours, theirs = one_launch(folder, plan, lists)
    different = [one for one, our, their in zip(names, ours, theirs, strict=True) if not np.array_equal(our, their)]
    assert different == []
    nothing = one_launch(folder, plan, [()])[1][0]
    idle = ("hue", "blend with its own", "permute") if name == "gray" else ("hue, 0.0, torchvision",)
    changing = [their for one, their in zip(names, theirs, strict=True) if not one.startswith(idle)]
    assert not any(np.array_equal(their, nothing) for their in changing)
    assert len(changing) > 45


@needs_compiler
@pytest.mark.parametrize("name", TYPES)
def test_long_random_lists_equal_the_cpu_bit_for_bit(folder, name):
    """One launch contains all images. Each image has its own steps and size, and some images have no steps."""
    plan = plan_with_levels(name)
    rng = np.random.default_rng(len(name))
    lists = [(), *level_cases.lists_of(rng, SIZE, len(plan.channels), count=400), ()]
    ours, theirs = one_launch(folder, plan, lists)
    for steps, our, their in zip(lists, ours, theirs, strict=True):
        assert np.array_equal(our, their), steps
    assert len({their.tobytes() for their in theirs}) > 350


@needs_compiler
@pytest.mark.parametrize("plain", [False, True])
def test_canvases_of_many_sizes_are_computed_in_one_launch(folder, plain):
    """The shorter side is resized to a fixed length, and the crop follows a step on the whole image."""
    rotated = pp.rotate(30, filter="bilinear", expand=True, fill=(1, 2, 3))
    plan = plan_of(pp.resize(40), rotated, pp.equalize(), pp.center_crop(33, 35), pp.normalize(), pp.tensor())
    rng = np.random.default_rng(7)
    sides = [(1, 1), (40, 40), (64, 97), (131, 58), (37, 53), (200, 33), (30, 120), (90, 21), (50, 58), (77, 40)]
    batch = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sides]
    placements = cuda_shim.placed(plan, batch)
    assert len({placement.canvas for placement in placements}) > 8
    library = cuda_shim.build(plan, folder, plain=plain)
    levels_library = cuda_shim.build_levels(plan, folder)
    theirs = cuda_shim.expected(plan, batch)
    for middle_bytes in (1 << 62, 200_000, 1):
        ours = cuda_shim.run(library, plan, batch, levels=levels_library, plain=plain, middle_bytes=middle_bytes)
        assert all(map(np.array_equal, ours, theirs)), middle_bytes


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("number", "arithmetic", "middle"),
    [("max", "float64", []), ("mean", "divide", [pp.equalize()]), ("max", "divide", [pp.rotate(30), pp.contrast(0.2)])],
)
def test_an_image_can_be_scaled_by_its_own_maximum(folder, number, arithmetic, middle, dtype):
    normalize = pp.normalize(mean=(0.485, 0.456, 0.406), std=0.225, scale=number, arithmetic=arithmetic)
    ops = [pp.letterbox(24, 20, fill=(9, 0, 1)), *middle, normalize, pp.tensor(dtype=dtype)]
    for color in ("bgr", "gray"):
        these = [pp.letterbox(24, 20, fill=9), *middle, pp.normalize(scale=number), ops[-1]] if color == "gray" else ops
        plan = plan_of(*these, color=color)
        channels = 1 if color == "gray" else 3
        batch = [np.zeros((9, 7, channels), np.uint8), *(image[:, :, :channels] // 3 for image in images(6))]
        batch = list(map(np.ascontiguousarray, batch))
        ours = cuda_shim.run(cuda_shim.build(plan, folder), plan, batch, levels=cuda_shim.build_levels(plan, folder))
        assert all(map(np.array_equal, ours, cuda_shim.expected(plan, batch)))


@needs_compiler
def test_padding_before_the_resize_and_the_fill_of_a_letterbox_are_processed(folder):
    square = pp.pad(square=True, fill=(1, 200, 3))
    for ops in ([square, pp.resize(height=29, width=40)], [pp.letterbox(50, 60, fill=(0, 114, 255))]):
        plan = plan_of(*ops, pp.contrast(1.5), pp.hue(0.2), pp.flip(), pp.tensor(dtype="uint8"), color="bgr")
        batch = images(8)
        ours = cuda_shim.run(cuda_shim.build(plan, folder), plan, batch, levels=cuda_shim.build_levels(plan, folder))
        assert all(map(np.array_equal, ours, cuda_shim.expected(plan, batch)))


@needs_compiler
@pytest.mark.parametrize(
    ("like", "dtype", "layout"),
    [("pillow", "float16", "hwc"), ("tensorflow", "float32", "chw"), ("pillow", "uint8", "chw")],
)
def test_rectangles_of_the_tensor_are_erased_in_order(folder, like, dtype, layout):
    """The test includes profiles that do not round to pixel values. The fill values are values of the tensor."""
    normalize = [] if dtype == "uint8" else [pp.normalize(mean=0.5, std=0.25)]
    value = (7.0, 8.0, 9.0) if dtype == "uint8" else (0.1, -1.7, 1e-3)
    erasing = pp.random_erasing(value=value, p=1.0)
    plan = plan_of(
        pp.resize(height=30, width=34, like=like),
        *normalize,
        erasing,
        pp.tensor(dtype=dtype, layout=layout, only="training"),
        color="bgr",
    )
    batch = images(9)[3:]
    erasures = (
        *(Erase(3, 4, 10, 30, value), Erase(5, 6, 25, 2, tuple(2 * each for each in value))),
        # the rectangle extends over the edge
        *(Erase(8, 1, 9, 30, (), (0xDEADBEEF, 7, 1)), Erase(0, 30, 31, 9, (), (3, 4, 0))),
    )
    placements = [
        each._replace(erasures=erasures[: index % 5]) for index, each in enumerate(cuda_shim.placed(plan, batch))
    ]
    library, levels_library = cuda_shim.build(plan, folder), cuda_shim.build_levels(plan, folder)
    ours = cuda_shim.run(library, plan, batch, placements=placements, levels=levels_library)
    theirs = cuda_shim.expected(plan, batch, placements)
    assert all(map(np.array_equal, ours, theirs))


def test_a_plan_without_steps_is_launched_without_their_kernels():
    plan = plan_of(pp.resize(height=30, width=34), pp.tensor())
    batch = images(2)
    prepared = cuda_shim.prepare(plan, batch, batch, room=cuda_shim.Room())
    assert [part.canvases for part in prepared.parts] == [None]
    assert canvases.canvas_plan(plan) is plan
    assert not canvases.needs_canvases(plan)


def test_memory_areas_of_steps_do_not_overlap():
    """Each image has separate areas for the passes, the canvas, and the intermediate results of a step."""
    plan = plan_with_levels("rgb")
    batch = images(5)
    rng = np.random.default_rng(1)
    lists = level_cases.lists_of(rng, SIZE, 3, count=len(batch))
    placements = [each._replace(levels=steps) for each, steps in zip(cuda_shim.placed(plan, batch), lists, strict=True)]
    room = cuda_shim.Room()
    prepared = cuda_shim.prepare(plan, batch, batch, room=room, placements=placements)
    those = prepared.memory[prepared.parts[0].canvases :][: len(batch) * canvases.CANVAS.itemsize].view(canvases.CANVAS)
    spans = []
    for image, canvas, placement in zip(prepared.images, those, placements, strict=True):
        sizes = [
            placement.canvas,
            *(levels.size_after(placement.levels[: i + 1], *placement.canvas) for i in range(13)),
        ]
        largest = 3 * max(height * width for height, width in sizes[: len(placement.levels)])
        assert image["tensor"] == canvas["levels"]
        middle = (
            int(image["intermediate"]),
            4 * 3 * int(image["intermediate_height"]) * int(image["intermediate_width"]),
        )
        spans += [middle, (int(canvas["levels"]), 3 * SIZE[0] * SIZE[1])]
        if largest > 3 * SIZE[0] * SIZE[1] or any(isinstance(step, Take) for step in placement.levels):
            spans.append((int(canvas["other"]), 1))
    spans.sort()
    assert spans[0][0] >= room.between.ctypes.data
    assert spans[-1][0] + spans[-1][1] <= room.between.ctypes.data + room.between.nbytes
    assert all(first + size <= second for (first, size), (second, _) in itertools.pairwise(spans))


MISTAKES = {
    "half a pixel": ("step.mode, x + 0.5, y + 0.5", "step.mode, x, y + 0.5"),
    "no barrier before a step that looks elsewhere": (
        "else __syncthreads();\n        image = result;",
        "image = result;",
    ),
}


@needs_compiler
@pytest.mark.parametrize("wrong", MISTAKES)
def test_the_comparison_detects_mistakes(folder, wrong):
    """As a negative control, each mistake is made in the kernels' code, and the tensors must differ."""
    plan = plan_with_levels("rgb")
    _, lists = singles(3)
    # one step writes where the other step reads
    lists += [(Hue(0.1, "pillow"), Take(0, 0, *SIZE, (True, True), (0, 0, 0)))]
    lists += level_cases.lists_of(np.random.default_rng(8), SIZE, 3, count=100)
    ours, theirs = one_launch(folder, plan, lists, change=MISTAKES[wrong])
    assert not all(map(np.array_equal, ours, theirs))
