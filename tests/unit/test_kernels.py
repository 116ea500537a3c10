"""The kernels in C equal NumPy's windows, passes and indexing in every value; and life without them."""

import ctypes
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from images import checkerboard, noise
from pixprep.decoders.structure import MOST_KEPT, ROW
from pixprep.draws import erasing
from pixprep.kernels import fixed, native
from pixprep.kernels.cpu import noise as kernel_noise
from pixprep.kernels.fixed import RECENT
from pixprep.kernels.resample import resample
from pixprep.kernels.resampling import axes
from pixprep.kernels.structs import ALIGNMENT, DIGITS, IMAGE, PIXELS, TAPS
from pixprep.profiles import PROFILES, Method
from pixprep.profiles.formula import Curve
from pixprep.profiles.formula import windows as in_numpy
from pixprep.profiles.windows import IDENTITY_BITS, Axis, Windows
from resize_cases import assert_equal, placement, resize, windows

TESTS = Path(__file__).parents[1]
KERNELS = TESTS.parent / "backend" / "pixprep" / "kernels"
spec = importlib.util.spec_from_file_location("hatch_build", TESTS.parent / "hatch_build.py")
hatch_build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hatch_build)
RESIZES = [
    (like, method) for like in ("pillow", "torchvision") for method in PROFILES[like].methods
    if PROFILES[like].formula(method)
]  # fmt: skip
FORMULAS = sorted({PROFILES[like].formula(method) for like, method in RESIZES}, key=str)
SIZES = [
    ((1, 1), (1, 9)), ((1, 9), (9, 1)), ((1, 300), (7, 20)), ((300, 1), (20, 7)), ((2, 3), (3, 2)),
    ((3, 5), (40, 41)), ((7, 7), (7, 5)), ((16, 16), (15, 17)), ((60, 90), (37, 31)), ((64, 48), (16, 48)),
    ((60, 90), (60, 11)), ((33, 20), (100, 71)), ((97, 131), (13, 130)), ((400, 23), (9, 22)),
    ((300, 400), (11, 13)),
]  # fmt: skip


def pixels(height, width, channels, seed=0):
    """Levels that a filter with negative lobes carries out of their range, and noise."""
    sharp = checkerboard(height, width)[:, :, :1]
    levels = [noise(height, width, 1, seed=seed), sharp, noise(height, width, 1, seed=seed + 1), 255 - sharp]
    return np.ascontiguousarray(np.concatenate(levels[:channels], axis=2))


def both(image, like, method, resized_size, *, region=None, vertical_first=False):
    """(name, the region in C, the same in NumPy)."""
    size, (name, antialias) = image.shape[:2], method
    where = placement(size, resized_size, region)
    formula = PROFILES[like].formula(Method(*method))
    mine = fixed.resample(image, formula, *axes(resize(like, name, resized_size), where), vertical_first=vertical_first)
    how = windows(like, name, size, resized_size, antialias=antialias, region=region)
    return f"{size} {resized_size} {region}", mine, resample(image, replace(how, vertical_first=vertical_first))


def test_the_windows_that_are_remembered_have_a_bound():
    """Whatever the images are: axes of up to 16,384 positions, as the limits have them, before and after."""
    lengths = (1, 100, 10_923, 16_383, 16_384)
    largest = max(
        fixed.grouped.__wrapped__(formula, Axis(before, after, before / after, 0, after), 16).memory.nbytes
        for formula, before, after in product(FORMULAS, lengths, (224, 16_384))
        if before != after
    )
    assert RECENT * largest < 20 << 20


def random_axes(count, seed):
    """Axes that shrink and grow, whole and in part, and of images that were decoded to a fraction of their size."""
    rng = np.random.default_rng(seed)
    while count:
        length, out_length = (int(n) for n in np.exp(rng.uniform(0, np.log(2500), 2)))
        begin = int(rng.integers(0, out_length))
        end = int(rng.integers(begin, out_length)) + 1
        if rng.integers(2):
            begin, end = 0, out_length
        axis = Axis(length=length, out_length=out_length, ratio=length / out_length, begin=begin, end=end)
        if rng.integers(4) == 0:
            denominator, offset = 2 ** int(rng.integers(1, 4)), float(rng.random())
            decoded = int(np.ceil(offset + length / denominator))
            axis = axis._replace(length=decoded, ratio=axis.ratio / denominator, offset=offset)
        if axis.length != out_length:
            yield axis
            count -= 1


def made_windows(formula, axis):
    """Those of ``grouped``, in groups of one."""
    made = fixed.grouped(formula, axis, 1)
    first, count = made.memory[: 2 * made.windows.size].reshape(2, -1)
    return Windows(
        first,
        count,
        made.memory[2 * made.windows.size :].reshape(made.windows.size, made.windows.taps),
        made.windows.bits,
    )


def assert_same_windows(mine, theirs):
    taps = theirs.weights.shape[1]
    assert mine.bits == theirs.bits
    assert np.array_equal(mine.first, theirs.first)
    assert np.array_equal(mine.count, theirs.count)
    assert np.array_equal(mine.weights[:, :taps], theirs.weights)
    assert not mine.weights[:, taps:].any()


@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_windows_equal_those_of_numpy(formula):
    for axis in random_axes(150, FORMULAS.index(formula)):
        if formula.curve in ("two", "four"):  # torchvision's, which is given no fractions
            axis = axis._replace(ratio=axis.length / axis.out_length, offset=0.0)  # noqa: PLW2901
        assert_same_windows(made_windows(formula, axis), in_numpy(formula, axis))


@pytest.mark.parametrize("group", [4, 16])
@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_groups_hold_the_same_weights_and_stay_inside_what_is_read(formula, group):
    for axis in random_axes(30, group):
        made, theirs = fixed.grouped(formula, axis, group), in_numpy(formula, axis)
        first, groups = made.memory[: 2 * made.windows.size].reshape(2, -1)
        assert (made.windows.begin, made.windows.end) == theirs.span(axis.length)
        assert made.windows.begin <= first.min()
        assert (first + groups * group).max() <= max(made.windows.end, made.windows.begin + made.windows.taps)
        mine, expected = np.zeros((2, made.windows.size, axis.length + made.windows.taps), np.int32)
        rows = made.memory[2 * made.windows.size :].reshape(made.windows.size, -1)
        for index, (at, count) in enumerate(zip(first, groups * group, strict=True)):
            mine[index, at : at + count] = rows[index, :count]
            count = theirs.count[index]  # noqa: PLW2901
            expected[index, theirs.first[index] :][:count] = theirs.weights[index, :count]
        assert np.array_equal(mine, expected)


def test_another_formula_makes_other_windows():
    """A negative control: each formula against its neighbour, and of fewer bits."""
    axis = Axis(length=100, out_length=37, ratio=100 / 37, begin=0, end=37)
    for formula, other in zip(FORMULAS, [*FORMULAS[1:], FORMULAS[0]], strict=True):
        with pytest.raises(AssertionError):
            assert_same_windows(made_windows(formula, axis), in_numpy(other, axis))
        with pytest.raises(AssertionError):
            assert_same_windows(made_windows(formula._replace(bits=9), axis), in_numpy(formula, axis))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize(("like", "method"), RESIZES)
def test_a_resize_equals_numpys(like, method, channels):
    assert_equal(
        both(pixels(*size, channels), like, method, resized_size, vertical_first=is_vertical_first)
        for size, resized_size in SIZES
        for is_vertical_first in (False, True)
    )


@pytest.mark.parametrize(("like", "filter_name"), [("pillow", "lanczos"), ("torchvision", "bilinear")])
def test_every_small_size_equals_numpys(like, filter_name):
    assert_equal(
        both(pixels(*size, channels), like, (filter_name, True), resized_size)
        for size in product((1, 2, 3, 4, 5, 15, 16, 17, 33), repeat=2)
        for resized_size in ((1, 1), (4, 3), (5, 18), (19, 5), (34, 35))
        for channels in (1, 4)
        if size != resized_size
    )


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(
    ("like", "method"),
    [("pillow", ("bicubic", True)), ("torchvision", ("lanczos", True)), ("torchvision", ("bicubic", False))],
)
def test_regions_equal_numpys(like, method, channels):
    rng = np.random.default_rng(3)

    def pairs():
        for index in range(60):
            size, resized_size = (tuple(int(n) for n in rng.integers(1, 120, 2)) for _ in range(2))
            begin = [int(rng.integers(0, side)) for side in resized_size]
            end = [int(rng.integers(first, side)) + 1 for first, side in zip(begin, resized_size, strict=True)]
            yield both(
                pixels(*size, channels), like, method, resized_size, region=(*begin, *end),
                vertical_first=index % 2 == 0,
            )  # fmt: skip

    assert_equal(pairs())


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_strides_make_no_difference(channels):
    large = pixels(90, 70, channels)
    views = {
        "a part": large[11:71, 7:57],
        "a part at the end": large[30:, 20:],
        "upside down": large[70:10:-1, 7:57],
        "mirrored": large[11:71, 56:6:-1],
        "Fortran's order": np.asfortranarray(large[11:71, 7:57]),
        "transposed": large[7:57, 5:65].transpose(1, 0, 2),
        "columns apart": np.repeat(large[11:71, 7:57], 2, axis=1)[:, ::2],
        "one row again and again": np.broadcast_to(large[5:6, 7:57], (60, 50, channels)),
    }
    assert {view.shape for view in views.values()} == {(60, 50, channels)}
    assert_equal(
        both(view, "pillow", ("bicubic", True), (23, 31), vertical_first=is_vertical_first)
        for view in views.values()
        for is_vertical_first in (False, True)
    )


def test_a_change_of_one_weight_is_seen():
    image, formula = pixels(60, 90, 4), PROFILES["pillow"].formula(Method("bicubic", antialias=True))
    axis = Axis(length=90, out_length=31, ratio=90 / 31, begin=0, end=31)
    made = fixed.grouped(formula, axis, 4)
    numbers = {name: getattr(made.windows, name) for name in ("size", "taps", "group", "begin", "end", "bits")}
    wrong = fixed.laid(made.memory.copy(), **numbers)
    wrong.memory[2 * made.windows.size + 11 * made.windows.taps + 3] += 1 << 15
    right = fixed.along(1, image, made)
    with pytest.raises(AssertionError, match="differ"):
        assert_equal([("off", fixed.along(1, image, wrong), right)])


GUARDED = """
import ctypes, mmap, sys
import numpy as np
from pixprep.kernels import fixed, native
from pixprep.kernels.fixed import laid, neighbours
from pixprep.profiles.formula import Formula
from pixprep.profiles.windows import Axis

FORMULAS = [Formula("bilinear", True, 22), Formula("lanczos", True, 22), Formula("four", False, None)]
PAGE = mmap.PAGESIZE
memory = mmap.mmap(-1, 6 * PAGE)
whole = np.frombuffer(memory, np.uint8)
for page in (0, 5):
    address = ctypes.c_void_p(whole.ctypes.data + page * PAGE)
    assert ctypes.CDLL(None).mprotect(address, ctypes.c_size_t(PAGE), 0) == 0
inside = whole[PAGE : 5 * PAGE]
if "beyond" in sys.argv:
    ctypes.memset(whole.ctypes.data + 5 * PAGE, 0, 1)
for height, width, channels, taps in [
    (h, w, c, t) for h in (1, 3, 5) for w in (1, 3, 4, 5, 16, 19) for c in (1, 3, 4) for t in (1, 3, 6, 17)
]:
    size = height * width * channels
    for levels in (inside[:size], inside[-size:]):
        values = levels.reshape(height, width, channels)
        for axis in (0, 1):
            group = neighbours(channels) if axis else 1
            longest = -(-min(taps, values.shape[axis]) // group) * group
            first = np.arange(max(1, values.shape[axis] - longest + 1), dtype=np.int32)
            rest = np.repeat([longest // group, 1], [len(first), longest * len(first)])
            memory = np.concatenate([first, rest]).astype(np.int32)
            numbers = {"size": len(first), "taps": longest, "group": group, "bits": 3, "end": values.shape[axis]}
            fixed.along(axis, values, laid(memory, **numbers))
        out = np.empty((channels, height, width), np.float32)
        fixed.look_up(values, np.zeros((channels, 256), np.float32), out)
        if channels != 3:
            finish = fixed.finish(np.zeros((1, 256), np.float32), (channels - 1,), np.zeros((1, 2)))
            for n in (1, 2, 7, 40):
                rows, columns = (Axis(length, n, length / n, 0, n) for length in values.shape[:2])
                for is_down in (False, True):
                    for formula in FORMULAS:
                        out = np.empty((1, n, n), np.float32)
                        fixed.write(
                            values, formula, rows, columns,
                            finish=finish, out=out, vertical_first=is_down, flips=(is_down, True), remembers=n == 7,
                        )
rows = columns = 24
out = np.empty((rows * columns + 8) * 4, np.uint8)
for height, width, (channels, apart), kind in [
    (h, w, c, k) for h in (1, 2, 5) for w in (1, 2, 3, 9) for c in ((1, 1), (3, 3), (3, 4)) for k in range(4)
]:
    size = max((height * max(width, 2) - 1) * apart + channels, 8)
    one = 65536 if kind == 3 else 1.0 if kind == 0 else 2 / width
    for levels in (inside[:size], inside[-size:]):
        native.kernels().warp(ctypes.byref(native.Warp(
            levels.ctypes.data, max(width, 2) * apart, height, width, channels, apart,
            out.ctypes.data, rows, columns, -5, -5, kind,
            one, 0, 0, 0, one, 0, width / 2, height / 2, width / 2, height / 2, 7, True,
        )))
"""


def _guarded(*arguments):
    command = [sys.executable, "-W", "error", "-c", GUARDED, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_nothing_is_read_beyond_the_pixels():
    """The pages before and after them cannot be read."""
    done = _guarded()
    assert done.returncode == 0, done.stderr
    assert _guarded("beyond").returncode != 0


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_a_look_up_equals_indexing_and_leaves_the_rest_alone(dtype):
    table = np.random.default_rng(5).integers(0, 255, (3, 256)).astype(dtype)
    levels = pixels(37, 29, 4)
    views = [levels[:, :, :3], levels[:, :, 2::-1], levels[::-1, :, :3], levels[:, ::-1, :3], levels[3:4, 5:6, :3]]
    for view in views:
        rows, columns = view.shape[:2]
        canvas = np.full((3, 50, 40), 77, dtype)
        planes = np.full((50, 40, 3), 77, dtype)
        for whole in (canvas, planes.transpose(2, 0, 1)):
            fixed.look_up(view, table, whole[:, 4 : 4 + rows, 6 : 6 + columns])
            expected = np.full((3, 50, 40), 77, dtype)
            for plane in range(3):
                expected[plane, 4 : 4 + rows, 6 : 6 + columns] = table[plane][view[:, :, plane]]
            assert (whole == expected).all()


def in_one_call(image, formula, size, region, *, table, channels, layout, lines, **how):
    """(whether it was done, what ``write`` left in an array, the same by ``resample`` and indexing)."""
    axes_ = [
        Axis(length, out, length / out, begin, end)
        for length, out, begin, end in zip(image.shape, size, region[:2], region[2:], strict=False)
    ]
    high, wide = region[2] - region[0], region[3] - region[1]
    shape = (len(channels), high + 3, wide + 5)
    left, expected = (
        np.full(shape, 77, table.dtype) if layout == "chw" else np.full((*shape[1:], shape[0]), 77, table.dtype)
        for _ in range(2)
    )
    planes, whole = (array if layout == "chw" else array.transpose(2, 0, 1) for array in (left, expected))
    finish = fixed.finish(table, channels, lines)
    target = planes[:, 2 : 2 + high, 4 : 4 + wide]
    done = fixed.write(image, formula, *axes_, finish=finish, out=target, **how)
    block = fixed.resample(image, formula, *axes_, vertical_first=how["vertical_first"])
    block = block[:: -1 if how["flips"][0] else 1, :: -1 if how["flips"][1] else 1]
    for plane, channel in enumerate(channels):
        whole[plane, 2 : 2 + high, 4 : 4 + wide] = table[plane][block[:, :, channel]]
    return done, left, expected, finish.lines is not None


def test_one_call_gives_what_several_do():
    """Sizes, regions, flips, orders of passes, channels, layouts and tables at random."""
    rng = np.random.default_rng(8)
    seen = {"done": 0, "left to the others": 0, "by lines": 0}
    for index in range(400):
        formula = FORMULAS[index % len(FORMULAS)]
        size, resized_size = (tuple(int(n) for n in rng.integers(1, (60, 90), 2)) for _ in range(2))
        begin = [int(rng.integers(0, side)) for side in resized_size] if index % 3 else [0, 0]
        end = [int(rng.integers(first, side)) + 1 for first, side in zip(begin, resized_size, strict=True)]
        if size[0] == resized_size[0] or size[1] == resized_size[1]:
            continue
        channels = [(0,), (0, 1, 2), (2, 1, 0)][index % 3 if index % 7 else 0]
        lines = rng.normal(size=(len(channels), 2))
        levels = np.arange(256) * lines[:, :1] + lines[:, 1:]
        dtype = ["float32", "float32", "float16", "uint8"][int(rng.integers(4))]
        table = (levels % 256 if dtype == "uint8" else levels).astype(dtype)
        if is_curved := bool(rng.integers(2)):
            table[:, 200] += 1
        large = pixels(size[0] + 2, size[1] + 3, 1 if len(channels) == 1 else 4, seed=index)
        done, left, expected, is_line = in_one_call(
            large[1:-1, 2:-1], formula, resized_size, (*begin, *end), vertical_first=bool(rng.integers(2)),
            flips=(bool(rng.integers(2)), bool(rng.integers(2))), remembers=bool(rng.integers(2)), table=table,
            channels=channels, layout=["chw", "hwc"][int(rng.integers(2))], lines=lines,
        )  # fmt: skip
        assert is_line == (dtype == "float32" and not is_curved)
        seen["done" if done else "left to the others"] += 1
        seen["by lines"] += is_line
        if done:
            assert_equal([(f"{index}: {size} {resized_size} {begin} {end}", left, expected)])
        else:
            assert (left == 77).all()
    assert min(seen.values()) > 50, seen


def test_threads_do_not_meet():
    images = [pixels(300, 400, 4, seed=seed) for seed in range(4)]

    def work(index):
        assert_equal(both(images[index], "pillow", ("lanczos", True), (150, 200 + n)) for n in range(30))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def _python(code, **environment):
    command = [sys.executable, "-W", "error", "-c", code]
    run = {"capture_output": True, "text": True, "check": False, "cwd": TESTS, "env": os.environ | environment}
    done = subprocess.run(command, **run)  # noqa: PLW1510  (in the options)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


ENGINE = """
import sys
import pixprep as pp
from images import photo
from pixprep.kernels import native

def engine(**resize):
    ops = [pp.decode(), pp.resize(64, **resize), pp.center_crop(56), pp.normalize(), pp.tensor()]
    return pp.Engine(pp.Pipeline(ops), threads=2)

def is_loaded():
    return native.library.cache_info().currsize > 0
"""


def test_the_library_is_loaded_with_the_engine_and_nothing_with_the_first_image():
    code = """
with engine(filter="bicubic") as running:
    assert is_loaded()
    before = set(sys.modules)
    running.run([photo()] * 4)
    print(len(set(sys.modules) - before))
"""
    assert _python(ENGINE + code) == ["0"]


def test_an_engine_without_a_use_for_it_does_not_load_it():
    code = """
engine(filter="nearest")
engine(like="opencv", filter="bilinear", antialias=False)
print(is_loaded())
engine(like="torchvision")
print(is_loaded())
"""
    assert _python(ENGINE + code) == ["False", "True"]


LEVELS = [level for level in native.LEVELS if level in native.levels()]


@pytest.mark.parametrize("level", [*LEVELS[1:], "none"])
def test_tensors_are_the_same_on_each_level_and_without_a_library(level):
    code = """
import hashlib
ops = [
    pp.decode(), pp.resize(64), pp.center_crop(56), pp.rotate(20, filter="bilinear"), pp.saturation(1.3), pp.hue(0.2),
    pp.normalize(), pp.tensor(),
]
engines = [engine(filter="bilinear"), engine(filter="lanczos"), engine(like="torchvision"), pp.Engine(pp.Pipeline(ops))]
for each in engines:
    (tensor,) = each.run([photo()])
    print(hashlib.sha256(tensor.tobytes()).hexdigest())
print(native.library() is not None)
"""
    *best, is_there = _python(ENGINE + code)
    *other, is_still = _python(ENGINE + code, PIXPREP_KERNELS=level)
    assert other == best
    assert len(set(best)) == 4
    assert (is_there, is_still) == ("True", str(level != "none"))


def test_noise_equals_numpys():
    for shape in ((1, 1, 1), (3, 5, 7), (3, 40, 33)):
        words = (0xFFFFFFF1, 7, shape[1])
        assert np.array_equal(kernel_noise(words, shape), erasing.noise(words, shape))
    assert not np.array_equal(kernel_noise((1, 2, 3), (1, 2, 2)), erasing.noise((1, 2, 4), (1, 2, 2)))


def test_without_a_library_the_kernel_passes_its_tests():
    """Pillow and NumPy serve there; a few tests of each."""
    chosen = "random_sizes or normalize_equals"
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "device/test_kernel.py"]
    environment = os.environ | {"PIXPREP_KERNELS": "none"}
    done = subprocess.run(
        [*command, "-k", chosen], capture_output=True, text=True, check=False, cwd=TESTS, env=environment
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


def test_a_processor_without_a_library_is_told_so_once():
    code = """
import logging, platform
logging.basicConfig()
platform.machine = lambda: "vax"
from pixprep.kernels import native
print(native.library(), native.library())
"""
    environment = os.environ | {"PIXPREP_KERNELS": ""}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "None None\n"
    assert done.stderr == (
        "WARNING:pixprep.kernels.native:no kernels in C work here, on vax (none is installed), so that NumPy and "
        "Pillow do, several times more slowly; a wheel for this machine has them, and so has what is built on it: pip "
        "install --no-binary pixprep\n"
    )


def test_the_structs_of_python_are_those_of_c(tmp_path):
    """The compiler checks what ctypes has."""
    lines = ["#include <stddef.h>", '#include "arguments.h"']
    for name, struct in native.STRUCTS.items():
        lines.append(f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(struct)}, "{name}");')
        for field, *_ in struct._fields_:
            where = getattr(struct, field)
            lines += [
                f'_Static_assert(offsetof(struct {name}, {field}) == {where.offset}, "{name}.{field}");',
                f'_Static_assert(sizeof(((struct {name} *)0)->{field}) == {where.size}, "{name}.{field}");',
            ]
    lines += [f'_Static_assert(offsetof(struct jpeg, {name}) == {8 * i}, "{name}");' for i, name in enumerate(ROW)]
    lines.append(f'_Static_assert(sizeof(struct jpeg) == {8 * (len(ROW) + MOST_KEPT)}, "jpeg");')
    lines += [f'_Static_assert({curve.upper()} == {i}, "{curve}");' for i, curve in enumerate(get_args(Curve))]
    lines.append('#include "structs.h"')
    for name in IMAGE.names:
        lines.append(f'_Static_assert(offsetof(struct Image, {name}) == {IMAGE.fields[name][1]}, "{name}");')
    lines.append(f'_Static_assert(sizeof(struct Image) == {IMAGE.itemsize}, "Image");')
    lines.append(f'_Static_assert({TAPS} == TAPS && {DIGITS} == DIGITS && {PIXELS} == PIXELS, "numbers");')
    lines.append(f'_Static_assert({ALIGNMENT} == ALIGNMENT && {IDENTITY_BITS} == IDENTITY_BITS, "numbers");')
    right, wrong = "\n".join(lines), "\n".join(lines).replace(" == 8,", " == 16,", 1)
    assert right != wrong
    assert [compiles(code, tmp_path) for code in (right, wrong)] == [True, False]


def compiles(code, folder):
    path = folder / "layout.c"
    path.write_text(code, encoding="utf-8")
    command = [*hatch_build.compiler(platform.machine()), "-std=gnu11", "-c", "-I", str(KERNELS), str(path), "-o"]
    environment = os.environ | {"ZIG_LOCAL_CACHE_DIR": str(folder), "ZIG_GLOBAL_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [*command, str(folder / "layout.o")], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0 or "_Static_assert" in done.stderr or "static assertion" in done.stderr, done.stderr
    return done.returncode == 0


def test_sine_and_cosine_are_those_of_the_c_library():
    """Zig has its own, which differ in the last bit of 3 % of their values."""
    libraries = sorted(KERNELS.glob("pixprep-*.so"))
    assert libraries
    for path in libraries:
        names = path.read_bytes()
        assert b"\0sin\0" in names
        assert b"\0cos\0" in names


@pytest.mark.parametrize("path", sorted(KERNELS.glob("pixprep-*.so")), ids=lambda path: path.stem)
def test_no_product_and_sum_are_fused_in_float64(path):
    """What ``-ffp-contract=off`` is for: the windows would differ in their last bit."""
    if shutil.which("objdump") is None:
        pytest.skip("NO OBJDUMP: the machine code is not looked at; apt-get install binutils")
    code = subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True).stdout
    assert "mulpd" in code or "fmul" in code
    assert not re.findall(r"vfn?m(?:add|sub)\w*[ps]d\b|\bfmadd\td", code)


def test_libraries_are_compiled_when_a_source_is_newer_and_zig_is_fetched_unless_another_compiler_is_named(
    tmp_path, monkeypatch
):
    source = tmp_path / "warp.c"
    for place in (source, *(tmp_path / f"pixprep-{level}.so" for level in native.LEVELS)):
        place.touch()
        os.utime(place, (1 << 31, (1 << 31) + (place != source)))  # newer than hatch_build.py
    assert hatch_build.is_new(tmp_path, "x86_64")
    assert not hatch_build.is_new(tmp_path, "aarch64")
    os.utime(source, (1 << 31, (1 << 31) + 2))
    assert not hatch_build.is_new(tmp_path, "x86_64")
    monkeypatch.delenv("PIXPREP_CC", raising=False)
    hook = hatch_build.Kernels(str(tmp_path), {}, None, None, str(tmp_path), "wheel")
    assert hook.dependencies() == [hatch_build.ZIG]
    monkeypatch.setenv("PIXPREP_CC", "gcc")
    assert hook.dependencies() == []
    assert hatch_build.compiler("x86_64") == ["gcc"]
