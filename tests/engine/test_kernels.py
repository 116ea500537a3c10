"""Tests that the C kernels match NumPy for all filter taps and values at each x86-64 level, and the errors if the
library is missing.
"""

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from engine import twins
from engine.guarded import guarded
from engine.resize_twin import resample, windows_of
from pixprep.engine.decoders.structure import MAX_KEPT, ROW
from pixprep.engine.kernels import colours, native, resize
from pixprep.engine.kernels.margins import Margins
from pixprep.engine.kernels.resampling import axes
from pixprep.engine.kernels.resize import RECENT
from pixprep.errors import SetupError
from pixprep.plan.profiles import PROFILES, Method
from pixprep.plan.profiles.warps import ARITHMETICS
from pixprep.plan.profiles.windows import Axis, Curve, Formula, Passes, Resampling, Rule
from pixprep.spec import Like, PaddingMode
from support.images import checkerboard, noise
from support.resize_cases import assert_equal, placement, resampling_of, resize_step

TESTS = Path(__file__).parents[1]
KERNELS = TESTS.parent / "backend" / "pixprep" / "engine" / "kernels"
spec = importlib.util.spec_from_file_location("hatch_build", TESTS.parent / "hatch_build.py")
hatch_build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hatch_build)
FOUND = {PROFILES[like].formula(method, "fixed") for like in get_args(Like) for method in PROFILES[like].methods}
FORMULAS = sorted((each for each in FOUND if each and not each.is_rule), key=str)
BICUBIC = PROFILES["pillow"].formula(Method("bicubic", antialias=True), "fixed")


def pixels(height, width, channels, seed=0):
    """Return noise and pixel values for which a filter with negative lobes overshoots the value range."""
    sharp = checkerboard(height, width)[:, :, :1]
    levels = [noise(height, width, 1, seed=seed), sharp, noise(height, width, 1, seed=seed + 1), 255 - sharp]
    return np.ascontiguousarray(np.concatenate(levels[:channels], axis=2))


def axes_of(size, resized, region=None):
    """Return the axes (rows, columns) of a resize from ``size`` to ``resized`` that is restricted to a region."""
    return axes(resize_step("pillow", "bicubic", resized), placement(size, resized, region))


def fixed(formula, rows, columns, *, vertical_first=False):
    """Return a ``Resampling`` with integer weights."""
    return Resampling("fixed", rows, columns, formula, vertical_first=vertical_first)


def both(image, how, **more):
    """Yield (name, the region computed in C, the same region computed in NumPy)."""
    twin = resample(image, how, more.get("around"), more.get("flips", (False, False)))
    return f"{image.shape} {how} {more}", resize.resize(image, how, **more), twin


def test_the_cache_of_filter_taps_is_bounded():
    """The bound holds for images of all sizes: axes have at most 16,384 positions before and after the resize."""
    lengths = (1, 100, 10_923, 16_383, 16_384)
    largest = max(
        resize.coefficients.__wrapped__(formula, Axis(before, after, before / after, 0, after)).memory.nbytes
        for formula, before, after in product(FORMULAS, lengths, (224, 16_384))
    )
    assert RECENT * largest < 20 << 20


def random_axes(count, seed):
    """Yield complete axes and parts of axes that shrink or grow. Some belong to images that were decoded at a fraction
    of their size.
    """
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


def assert_same_windows(mine, theirs):
    assert mine.bits == theirs.bits
    assert all(np.array_equal(getattr(mine, name), getattr(theirs, name)) for name in ("first", "count", "weights"))


@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_filter_taps_equal_numpy(formula):
    for axis in random_axes(100, FORMULAS.index(formula)):
        if formula.curve in ("two", "four"):  # these curves of torchvision do not support fractional edges
            axis = axis._replace(ratio=axis.length / axis.out_length, offset=0.0)  # noqa: PLW2901
        assert_same_windows(resize.windows(formula, axis), twins.windows(formula, axis))


def test_a_different_formula_gives_different_taps():
    """As a negative control, each formula is compared with a similar formula and with one that uses fewer bits."""
    axis = Axis(length=100, out_length=37, ratio=100 / 37, begin=0, end=37)
    for formula, other in zip(FORMULAS, [*FORMULAS[1:], FORMULAS[0]], strict=True):
        for wrong in (twins.windows(other, axis), twins.windows(formula._replace(bits=9), axis)):
            with pytest.raises(AssertionError):
                assert_same_windows(resize.windows(formula, axis), wrong)


@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_random_resizes_equal_numpy(formula):
    """Sizes, regions, flips, channels, padding, axes of unchanged length and the order of the passes are chosen at
    random.
    """
    rng = np.random.default_rng(FORMULAS.index(formula))

    def pairs():
        for index in range(60):
            size, resized = (tuple(int(n) for n in rng.integers(1, (7, 120)[index % 4 > 0], 2)) for _ in range(2))
            if index % 9 == 0:
                resized = (size[0], resized[1])
            image, around, laid = pixels(*size, 1 + index % 4, seed=index), None, size
            if index % 5 == 0:
                before, laid = (3, 40), (size[0] + 9, size[1] + 50)
                around = Margins(before, laid, np.array([7, 250, 9, 114], np.uint8)[: image.shape[2]])
            begin = [int(rng.integers(0, side)) if index % 3 else 0 for side in resized]
            end = [int(rng.integers(first, side)) + 1 for first, side in zip(begin, resized, strict=True)]
            how = fixed(formula, *axes_of(laid, resized, (*begin, *end)), vertical_first=bool(index % 2))
            yield both(image, how, flips=(bool(rng.integers(2)), bool(rng.integers(2))), around=around)

    assert_equal(pairs())


@pytest.mark.parametrize("formula", [BICUBIC, Formula("two", is_widened=False, bits=None)], ids=str)
def test_every_small_size_equals_numpy(formula):
    assert_equal(
        both(pixels(*size, channels), fixed(formula, *axes_of(size, resized)))
        for size in product((1, 2, 3, 5, 15, 16, 17, 33), repeat=2)
        for resized in ((1, 1), (4, 3), (5, 18), (19, 5))
        for channels in (1, 3)
    )


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_strides_do_not_change_results(channels):
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
        both(view, fixed(BICUBIC, *axes_of((60, 50), (23, 31)), vertical_first=is_vertical_first))
        for view in views.values()
        for is_vertical_first in (False, True)
    )


def test_a_changed_weight_is_detected():
    image, how = pixels(60, 90, 4), fixed(BICUBIC, *axes_of((60, 90), (60, 31)))
    right = resize.resize(image, how)
    made = resize.coefficients(BICUBIC, how.columns)
    made.memory[2 * made.struct.size + 11 * made.struct.taps + 2] += 1 << 15
    with pytest.raises(AssertionError, match="differ"):
        assert_equal([("off", resize.resize(image, how), right)])
    resize.coefficients.cache_clear()


METHODS = [(like, *method) for like in get_args(Like) for method in PROFILES[like].methods]


def made_by(like, filter_name, antialias):
    """Return a function that creates the method's ``Resampling`` from the sizes and the region."""
    return lambda *sizes: resampling_of(like, filter_name, *sizes[:2], antialias=antialias, region=sizes[2])


TO_LEVELS = [made_by(*method) for method in METHODS if method[1] not in PROFILES[method[0]].real]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_every_librarys_resize_equals_numpy(method):
    """The sizes shrink, grow, are halved, change by integer factors or become one pixel. Regions, flips, channels,
    strides and padding vary.
    """
    rng = np.random.default_rng(METHODS.index(method))

    def pairs():
        for index in range(40):
            size = tuple(int(n) for n in rng.integers(1, (7, 90)[index % 4 > 0], 2))
            before, behind = ([int(n) for n in rng.integers(0, 9, 2)] if index % 4 == 3 else [0, 0] for _ in range(2))
            laid = tuple(side + first + last for side, first, last in zip(size, before, behind, strict=True))
            resized = [
                (int(rng.integers(1, 90)), side, 2 * side, max(side // 2, 1), max(side // 3, 1), 1)[
                    int(rng.integers(6))
                ]
                for side in laid
            ]
            begin = [int(rng.integers(0, side)) if index % 3 else 0 for side in resized]
            end = [int(rng.integers(first, side)) + 1 for first, side in zip(begin, resized, strict=True)]
            image = pixels(size[0] + 2, size[1] + 3, 1 + index % 4, seed=index)[1:-1, 2:-1]
            fill = np.array([7, 250, 9, 114], np.uint8)[: image.shape[2]]
            yield both(
                image[:, ::-1] if index % 5 == 0 else image,
                made_by(*method)(laid, tuple(resized), (*begin, *end)),
                flips=(bool(rng.integers(2)), bool(rng.integers(2))),
                around=Margins(tuple(before), laid, fill) if before + behind != [0, 0, 0, 0] else None,
                remembers=bool(index % 2),
            )

    assert_equal(pairs())


@pytest.mark.parametrize("method", [each for each in METHODS if not each[1].startswith("nearest")], ids=str)
def test_taps_of_a_rule_equal_numpy(method):
    for axis in random_axes(60, METHODS.index(method)):
        how = made_by(*method)((axis.length, axis.length), (axis.out_length,) * 2, (axis.begin,) * 2 + (axis.end,) * 2)
        if how.formula is None or not how.formula.is_rule:
            continue
        for each in (how.rows, how.columns, *parts_of(how.rows) * (method[0] == "dali")):
            assert_same_windows(resize.windows(how.formula, each), windows_of(how, each))


def parts_of(axis):
    """Return the same axis for a resize of a region, with the region counted from the beginning or from the end of the
    axis.
    """
    part = axis._replace(offset=axis.length * 0.3 + 0.17, ratio=axis.ratio * 0.41)
    return part, part._replace(ratio=-part.ratio), axis._replace(offset=-3.3)


def test_a_region_counted_from_its_end_has_different_taps():
    formula = PROFILES["dali"].formula(Method("lanczos", antialias=True), "float_even")
    part, swapped, beyond = (resize.windows(formula, each) for each in parts_of(Axis(100, 37, 100 / 37, 0, 37)))
    assert np.array_equal(part.first, swapped.first)
    assert 0 < np.abs(part.weights - swapped.weights).max() < 1e-4
    assert beyond.first.min() < 0


GUARDED = """
from pixprep.engine.kernels import resize
from pixprep.plan.profiles.windows import Axis, Formula, Resampling

FIXED = [Formula("bilinear", True, 22), Formula("lanczos", True, 22), Formula("four", False, None)]
RULES = {
    "opencv_linear": "opencv_linear", "opencv_cubic": "opencv_cubic", "opencv_lanczos": "opencv_lanczos4",
    "float_even": "opencv_cut", "dali": "dali_bilinear", "float_fused": "torch_bicubic", "real": "tensorflow_triangle",
    "lerp": "tensorflow_linear",
}
FORMULAS = [("fixed", each) for each in FIXED] + [(passes, Formula(rule, True)) for passes, rule in RULES.items()]
for height, width, channels in [(h, w, c) for h in (1, 3, 5) for w in (1, 3, 4, 5, 16, 19) for c in (1, 3, 4)]:
    size = height * width * channels
    planes = min(channels, 3)
    finish = resize.finish(np.zeros((planes, 256), np.float32), range(planes), np.zeros((planes, 2)))
    for levels in (inside[:size], inside[-size:]):
        values = levels.reshape(height, width, channels)
        resize.look_up(values, np.zeros((channels, 256), np.float32), np.empty((channels, height, width), np.float32))
        for n in (1, 2, 7, 40):
            rows, columns = (Axis(length, n, length / n, 0, n) for length in values.shape[:2])
            for is_down in (False, True):
                for passes, formula in FORMULAS:
                    is_first = is_down and passes in ("fixed", "dali", "real")
                    how = Resampling(passes, rows, columns, formula, vertical_first=is_first)
                    flips = {"flips": (is_down, True), "remembers": n == 7}
                    out = np.empty((planes, n, n), np.float32)
                    last = resize.finish_real(range(planes), ()) if passes in ("real", "lerp") else finish
                    resize.resize(values, how, finish=last, out=out, **flips)
                    resize.resize(values, how, **flips)
"""


def test_nothing_is_read_outside_the_pixels():
    """The memory pages before and after the pixels are unreadable."""
    done = guarded(GUARDED)
    assert done.returncode == 0, done.stderr
    for code, ends_well in (("inside[-1]", True), ("ctypes.string_at(inside.ctypes.data + inside.size, 1)", False)):
        assert (guarded(code).returncode == 0) == ends_well


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_a_lookup_equals_indexing_and_writes_nothing_else(dtype):
    table = np.random.default_rng(5).integers(0, 255, (3, 256)).astype(dtype)
    levels = pixels(37, 29, 4)
    views = [levels[:, :, :3], levels[:, :, 2::-1], levels[::-1, :, :3], levels[:, ::-1, :3], levels[3:4, 5:6, :3]]
    for view in views:
        rows, columns = view.shape[:2]
        canvas = np.full((3, 50, 40), 77, dtype)
        planes = np.full((50, 40, 3), 77, dtype)
        for whole in (canvas, planes.transpose(2, 0, 1)):
            resize.look_up(view, table, whole[:, 4 : 4 + rows, 6 : 6 + columns])
            expected = np.full((3, 50, 40), 77, dtype)
            for plane in range(3):
                expected[plane, 4 : 4 + rows, 6 : 6 + columns] = table[plane][view[:, :, plane]]
            assert (whole == expected).all()


def test_values_are_looked_up_for_every_layout_of_the_output():
    """Sizes, regions, flips, order of passes, channels, layouts and tables are chosen at random. Other memory must stay
    unchanged.
    """
    rng = np.random.default_rng(8)
    by_lines = 0
    for index in range(300):
        size, resized = (tuple(int(n) for n in rng.integers(1, (60, 90), 2)) for _ in range(2))
        begin = [int(rng.integers(0, side)) for side in resized] if index % 3 else [0, 0]
        end = [int(rng.integers(first, side)) + 1 for first, side in zip(begin, resized, strict=True)]
        channels = [(0,), (0, 1, 2), (2, 1, 0)][index % 3 if index % 7 else 0]
        lines = rng.normal(size=(len(channels), 2))
        levels = np.arange(256) * lines[:, :1] + lines[:, 1:]
        dtype = ["float32", "float32", "float16", "uint8"][int(rng.integers(4))]
        table = (levels % 256 if dtype == "uint8" else levels).astype(dtype)
        if is_curved := bool(rng.integers(2)):
            table[:, 200] += 1
        finish = resize.finish(table, channels, lines)
        assert (finish.lines != 0) == (dtype == "float32" and not is_curved)
        by_lines += finish.lines != 0
        image = pixels(size[0] + 2, size[1] + 3, 1 if len(channels) == 1 else 4, seed=index)[1:-1, 2:-1]
        flips = bool(rng.integers(2)), bool(rng.integers(2))
        how = TO_LEVELS[index % len(TO_LEVELS)](size, resized, (*begin, *end))
        block = resize.resize(image, how, flips=flips)
        (high, wide), count = block.shape[:2], len(channels)
        left, expected = np.full((2, count, high + 3, wide + 5), 77, dtype)
        if rng.integers(2):
            left = np.ascontiguousarray(left.transpose(1, 2, 0)).transpose(2, 0, 1)
        target, remembers = left[:, 2 : 2 + high, 4 : 4 + wide], bool(rng.integers(2))
        assert resize.resize(image, how, flips=flips, finish=finish, out=target, remembers=remembers) is None
        for plane, channel in enumerate(channels):
            expected[plane, 2 : 2 + high, 4 : 4 + wide] = table[plane][block[:, :, channel]]
        assert np.array_equal(left, expected), (index, how)
    assert by_lines > 50


def test_threads_do_not_interfere():
    images = [pixels(300, 400, 4, seed=seed) for seed in range(4)]

    def work(index):
        assert_equal(both(images[index], fixed(BICUBIC, *axes_of((300, 400), (150, 200 + n)))) for n in range(10))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def _python(code, **environment):
    command = [sys.executable, "-W", "error", "-c", code]
    run = {"capture_output": True, "text": True, "check": False, "cwd": TESTS, "env": os.environ | environment}
    done = subprocess.run(command, **run)  # noqa: PLW1510  ("run" contains check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


ENGINE = """
import sys
import pixprep as pp
from support.images import photo
from pixprep.engine.kernels import native

def engine(**resize):
    ops = [pp.decode(), pp.resize(64, **resize), pp.center_crop(56), pp.normalize(), pp.tensor()]
    return pp.Engine(pp.Pipeline(ops), threads=2)

def is_loaded():
    return native.library.cache_info().currsize > 0
"""


def test_the_library_is_loaded_with_the_engine_and_not_with_the_first_image():
    code = """
assert not is_loaded()
with engine(filter="bicubic") as running:
    assert is_loaded()
    before = set(sys.modules)
    running.run([photo()] * 4)
    print(len(set(sys.modules) - before))
"""
    assert _python(ENGINE + code) == ["0"]


LEVELS = native.levels()


@pytest.mark.parametrize("level", LEVELS[1:])
def test_tensors_are_the_same_on_each_level(level):
    code = """
import hashlib
ops = [
    pp.decode(), pp.resize(64), pp.center_crop(56), pp.rotate(20, filter="bilinear"), pp.saturation(1.3), pp.hue(0.2),
    pp.saturation(0.8, like="torchvision"), pp.hue(-0.2, like="torchvision"), pp.normalize(), pp.tensor(),
]
engines = [engine(filter="bilinear"), engine(filter="lanczos"), engine(like="torchvision"), pp.Engine(pp.Pipeline(ops))]
for each in engines:
    (tensor,) = each.run([photo()])
    print(hashlib.sha256(tensor.tobytes()).hexdigest())
print(native.library()._name)
"""
    *best, _ = _python(ENGINE + code)
    *other, chosen = _python(ENGINE + code, PIXPREP_KERNELS=level)
    assert other == best
    assert len(set(best)) == 4
    assert Path(chosen).stem == f"pixprep-{level}"


def test_a_processor_without_higher_levels_uses_the_first(monkeypatch):
    for has, expected in (
        (set(), ["x86-64"]),
        (native.LEVELS["x86-64-v2"] | {"fma"}, ["x86-64-v2", "x86-64"]),
        (native.LEVELS["x86-64-v3"] | native.LEVELS["x86-64-v4"], ["x86-64"]),
        (set().union(*native.LEVELS.values()), list(native.LEVELS)),
    ):
        monkeypatch.setattr(native, "_instructions", lambda has=has: has)
        assert native.levels() == expected


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ("x86-64-v4", "this processor does not support avx512f"),
        ("v9", "this is not an x86-64 level"),
        ("./nowhere.so", "the file does not exist"),
        (__file__, "invalid ELF header"),
    ],
)
def test_an_invalid_setting_is_rejected_before_anything_is_loaded(monkeypatch, chosen, words):
    has = set().union(*native.LEVELS.values()) - {"avx512f"}
    monkeypatch.setattr(native, "_instructions", lambda: has)
    monkeypatch.setattr(native.platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("PIXPREP_KERNELS", chosen)
    with pytest.raises(SetupError) as refused:
        native.library.__wrapped__()
    assert str(refused.value).startswith(f"PIXPREP_KERNELS={chosen}: ")
    assert words in str(refused.value)
    if "/" not in chosen:
        remedy = "set it to x86-64-v3 or x86-64-v2 or x86-64, or to the path of a library that contains a /"
        assert str(refused.value).endswith(f"{remedy}, or unset PIXPREP_KERNELS")


def test_a_machine_without_a_library_is_reported_by_the_first_engine():
    code = """
import platform
platform.machine = lambda: "vax"
import pixprep as pp
from pixprep.serving.embedded import doctor
pipeline = pp.presets.imagenet()
try:
    pp.Engine(pipeline)
except pp.SetupError as error:
    print(error)
print(*[check.found for check in doctor.checks(serves=False) if check.name == "kernels"])
"""
    environment = os.environ | {"PIXPREP_KERNELS": ""}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=TESTS, env=environment)
    why = "the C kernels cannot be loaded on Linux vax (no library is installed)"
    assert done.stdout.splitlines() == [
        f"{why}: on Linux, install pixprep again with a compiler: PIXPREP_CC=cc pip install "
        "--force-reinstall --no-deps --no-binary pixprep pixprep",
        why,
    ]


def test_structs_repeated_in_python_match_the_order_in_c():
    assert [name for name, _ in native.STRUCTS["jpeg"]._fields_] == [*ROW, "segments"]
    assert ctypes.sizeof(native.STRUCTS["jpeg"]) == 8 * (len(ROW) + MAX_KEPT)
    texts = [(KERNELS / name).read_text(encoding="utf-8") for name in ("arguments.h", "formulas.h")]
    text = re.sub("//.*", "", "".join(texts))
    enums = {
        name: re.findall(r"\w+", body.lower()) for name, body in re.findall(r"enum (\w+) \{(.*?)\};", text, re.DOTALL)
    }
    assert [name.removeprefix("filter_") for name in enums["filter_type"]] == [*get_args(Curve), *get_args(Rule)]
    assert [name.removeprefix("passes_") for name in enums["passes"]] == [*get_args(Passes), "copied"]
    assert [name.removeprefix("warp_") for name in enums["warps"]] == [*ARITHMETICS]
    assert [name.removeprefix("like_") for name in enums["like"]] == [*colours.LIKES]
    assert [name.removeprefix("padding_") for name in enums["padding"]] == [*get_args(PaddingMode)]
    assert enums["operation"] == ["affine", *resize.OPERATIONS]


def test_sine_and_cosine_equal_the_c_library():
    """Zig's own functions differ in the last bit for 3 % of the values."""
    libraries = sorted(KERNELS.glob("pixprep-*.so"))
    assert libraries
    for path in libraries:
        names = path.read_bytes()
        assert b"\0sin\0" in names
        assert b"\0cos\0" in names


@pytest.mark.parametrize("path", sorted(KERNELS.glob("pixprep-*.so")), ids=lambda path: path.stem)
def test_no_product_and_sum_are_fused_in_float64(path):
    """The kernels are compiled with ``-ffp-contract=off``, because the last bit of the filter taps would differ
    otherwise.
    """
    if shutil.which("objdump") is None:
        pytest.skip("NO OBJDUMP: the machine code is not looked at; apt-get install binutils")
    code = subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True).stdout
    assert "mulpd" in code or "fmul" in code
    assert not re.findall(r"vfn?m(?:add|sub)\w*[ps]d\b|\bfmadd\td", code)


def test_libraries_are_rebuilt_for_a_newer_source_and_zig_is_downloaded_unless_a_compiler_is_set(tmp_path, monkeypatch):
    kernels, gpu = (tmp_path / folder for folder in hatch_build.FOLDERS)
    source = gpu / "fill.c"
    for place in (source, *(kernels / f"pixprep-{level}.so" for level in native.LEVELS)):
        place.parent.mkdir(parents=True, exist_ok=True)
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
