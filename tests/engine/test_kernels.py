"""Tests that the C kernels of a resize do not depend on the region, the memory layout, the padding or the thread, and
the errors if their library is missing. ``frozen_pixels`` and the libraries themselves define the values.
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

from engine.guarded import guarded
from pixprep.engine.decoders.structure import MAX_KEPT, ROW
from pixprep.engine.kernels import colours, native, resampling, resize
from pixprep.engine.kernels.margins import Margins
from pixprep.engine.kernels.resize import RECENT
from pixprep.errors import SetupError
from pixprep.importers.verify import Originals
from pixprep.importers.verify.libraries import find
from pixprep.patch_layout import PatchLayout
from pixprep.pipeline import ops
from pixprep.plan.profiles import PROFILES
from pixprep.plan.profiles.profile import ARITHMETICS
from pixprep.plan.profiles.windows import Axis, Curve, Passes, Rule
from pixprep.spec import Like, PaddingMode
from support.images import checkerboard, noise
from support.resize_cases import LEVELS, assert_equal, resampling_of

TESTS = Path(__file__).parents[1]
KERNELS = TESTS.parent / "backend" / "pixprep" / "engine" / "kernels"
spec = importlib.util.spec_from_file_location("hatch_build", TESTS.parent / "hatch_build.py")
hatch_build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hatch_build)
FOUND = {PROFILES[like].formula(method, "fixed") for like in get_args(Like) for method in PROFILES[like].methods}
FORMULAS = sorted((each for each in FOUND if each and not each.is_rule), key=str)
METHODS = [(like, *method) for like in get_args(Like) for method in PROFILES[like].methods]
INSTALLED = [
    (like, filter_name, antialias)
    for like, filter_name, antialias in METHODS
    if find(PROFILES[like].original.key).version
    and (antialias or like == "opencv")  # Pillow has no function without antialiasing
    and (like, filter_name) != ("opencv", "bicubic")  # OpenCV rounds the ends of rows differently
]
"""Methods whose library is installed and computes the same values at any position."""


def pixels(height, width, channels, seed=0):
    """Return noise and pixel values for which a filter with negative lobes overshoots the value range."""
    sharp = checkerboard(height, width)[:, :, :1]
    levels = [noise(height, width, 1, seed=seed), sharp, noise(height, width, 1, seed=seed + 1), 255 - sharp]
    return np.ascontiguousarray(np.concatenate(levels[:channels], axis=2))


def resampled(method, size, resized, region=None):
    """Return the ``Resampling`` of a resize with a method, which is (profile, filter, whether to antialias)."""
    like, filter_name, antialias = method
    return resampling_of(like, filter_name, size, resized, antialias=antialias, region=region)


def test_the_cache_of_filter_taps_is_bounded():
    """The bound holds for images of all sizes: axes have at most 16,384 positions before and after the resize."""
    lengths = (1, 100, 10_923, 16_383, 16_384)
    largest = max(
        resize.coefficients.__wrapped__(formula, Axis(before, after, before / after, 0, after)).memory.nbytes
        for formula, before, after in product(FORMULAS, lengths, (224, 16_384))
    )
    assert RECENT * largest < 20 << 20


def layouts(image):
    """Return an image in other memory layouts: surrounded by other pixels, mirrored, transposed and with gaps."""
    around = np.pad(image, ((2, 1), (3, 2), (0, 0)), constant_values=99)
    return [
        around[2:-1, 3:-2],
        image[::-1].copy()[::-1],
        image[:, ::-1].copy()[:, ::-1],
        np.asfortranarray(image),
        image.transpose(1, 0, 2).copy().transpose(1, 0, 2),
        np.repeat(image, 2, axis=1)[:, ::2],
    ]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_any_part_of_a_resize_equals_that_of_the_complete_image(method):
    """The sizes shrink, grow, are halved, change by integer factors or become one pixel. The complete image has its
    padding as pixels, is contiguous in memory and is not flipped.
    """
    rng, values = np.random.default_rng(METHODS.index(method)), LEVELS if PROFILES[method[0]].takes_real else None

    def pairs():
        for index in range(40):
            size = tuple(int(n) for n in rng.integers(1, (7, 90)[index % 4 > 0], 2))
            is_padded = index % 4 == 3 and not PROFILES[method[0]].reads_all
            before, behind = ([int(n) for n in rng.integers(0, 9, 2)] if is_padded else [0, 0] for _ in range(2))
            padding = [*zip(before, behind, strict=True), (0, 0)]
            fill = np.array([7, 250, 9, 114], np.uint8)[: 1 + index % 4]
            image = pixels(*size, len(fill), seed=index)
            canvas = np.stack(
                [np.pad(image, padding, constant_values=level)[:, :, n] for n, level in enumerate(fill)], 2
            )
            laid = canvas.shape[:2]
            resized = tuple(
                (int(rng.integers(1, 90)), side, 2 * side, max(side // 2, 1), max(side // 3, 1), 1)[rng.integers(6)]
                for side in laid
            )
            top, left = (int(rng.integers(0, side)) if index % 3 else 0 for side in resized)
            bottom, right = (int(rng.integers(at, side)) + 1 for at, side in zip((top, left), resized, strict=True))
            flips = bool(rng.integers(2)), bool(rng.integers(2))
            whole = resize.resize(np.ascontiguousarray(canvas), resampled(method, laid, resized), values=values)
            part = resize.resize(
                layouts(image)[index % 6],
                resampled(method, laid, resized, (top, left, bottom, right)),
                flips=flips,
                around=Margins(tuple(before), laid, fill) if before + behind != [0, 0, 0, 0] else None,
                remembers=bool(index % 2),
                values=values,
            )
            expected = whole[top:bottom, left:right][:: -1 if flips[0] else 1, :: -1 if flips[1] else 1]
            yield f"{size}, {laid} to {resized}", part, expected
            if len(fill) == 4:  # the fourth channel does not affect the others
                colours = resize.resize(canvas[:, :, :3], resampled(method, laid, resized), values=values)
                yield "colours", colours, whole[:, :, :3]

    assert_equal(pairs())


@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_taps_of_a_part_are_those_of_the_complete_axis(formula):
    """The precision of the weights depends on all taps of an axis, whichever are requested."""
    rng = np.random.default_rng(FORMULAS.index(formula))
    for length, out_length in np.exp(rng.uniform(0, np.log(900), (200, 2))).astype(int).tolist():
        whole = resize.windows(formula, Axis(length, out_length, length / out_length, 0, out_length))
        begin = int(rng.integers(out_length))
        part = resize.windows(formula, Axis(length, out_length, length / out_length, begin, begin + 1))
        assert (part.bits, part.first[0], part.count[0]) == (whole.bits, whole.first[begin], whole.count[begin])
        assert np.array_equal(part.weights[0, : part.count[0]], whole.weights[begin, : part.count[0]])


@pytest.mark.parametrize("method", INSTALLED, ids=str)
def test_small_images_of_every_size_equal_an_installed_library(method):
    """The widths are those at which the kernels change from vectors to single values."""
    like, filter_name, antialias = method
    for size in product((1, 2, 3, 5, 15, 16, 17, 33), repeat=2):
        for height, width in ((1, 1), (4, 3), (5, 18), (19, 5)):
            op = ops.Resize(height=height, width=width, like=like, filter=filter_name, antialias=antialias)
            image, how = pixels(*size, 3), resampled(method, size, (height, width))
            expected = Originals().resizer(op).run(image)
            assert np.array_equal(resize.resize(image, how), expected), (size, height, width)


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


@pytest.mark.parametrize("order", ["chw", "tchw", "hwc"])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_values_are_looked_up_for_patches_of_any_width(dtype, order):
    """Separate C functions process narrow patches, repeated frames and interleaved channels."""
    rng = np.random.default_rng(3)
    for channels, width, frames, merge in product((1, 3), (1, 2, 7, 40, 63, 64, 128, 130), (1, 3), (1, 2)):
        layout = PatchLayout((3, width), channels, merge, frames, order)
        rows, columns = 3 * 2 * merge, width * 5 * merge
        table = rng.integers(0, 255, (channels, 256)).astype(dtype)
        image = pixels(rows, columns, 4, seed=width)[:, :, :channels]
        tensor, expected = np.full((2, layout.count(rows, columns) + 2, layout.values), 77, dtype)
        grid, first = resize.grid(layout, layout.blocks(tensor[1:-1]), columns)
        resize.look_up(image, table, first, grid)
        whole = np.stack([table[plane][image[:, :, plane]] for plane in range(channels)])
        layout.split(whole, layout.blocks(expected[1:-1]))
        assert np.array_equal(tensor, expected), (channels, width, frames, merge)


def test_values_are_looked_up_for_every_layout_of_the_output():
    """Sizes, regions, flips, order of passes, channels, layouts and tables are chosen at random. Other memory must stay
    unchanged.
    """
    rng = np.random.default_rng(8)
    methods = [each for each in METHODS if each[1] not in PROFILES[each[0]].real]
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
        how = resampled(methods[index % len(methods)], size, resized, (*begin, *end))
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


def sums_of(windows, values):
    """Apply filter coefficients with integer weights along the first axis of an array, with rounding and clipping."""
    half = 1 << (windows.bits - 1)
    rows = [
        np.tensordot(weights[:count].astype(np.int64), values[first : first + count].astype(np.int64), 1)
        for first, count, weights in zip(windows.first, windows.count, windows.weights, strict=True)
    ]
    return (np.stack(rows) + half >> windows.bits).clip(0, 255)


@pytest.mark.parametrize("level", native.levels())
def test_taps_in_pairs_equal_the_weighted_sums_on_each_level_of_the_kernels(level, monkeypatch):
    """The first tap is at an even or an odd column, the number of taps is even or odd, and the pixels are read in place
    or copied.
    """
    folder = Path(native.library()._name).parent  # `make sanitize` sets it to the folder of the sanitized libraries
    library = ctypes.CDLL(str(folder / f"pixprep-{level}.so"))
    monkeypatch.setattr(resize, "library", lambda: library)
    rng = np.random.default_rng(11)
    methods = [("torchvision", name, antialias) for name in ("bilinear", "bicubic") for antialias in (True, False)]
    starts, counts = set(), set()
    for index in range(240):
        size = tuple(int(n) for n in rng.integers(1, (6, 70, 150)[index % 3], 2))
        resized = tuple(int(rng.integers(1, (8, 90)[index % 2])) for _ in size)
        top, left = (int(rng.integers(0, side)) if index % 5 == 0 else 0 for side in resized)
        how = resampled(methods[index % 4], size, resized, (top, left, *resized))
        rows, columns = resampling.windows(how)
        image = pixels(*size, 1 + int(rng.integers(4)), seed=index)
        expected = sums_of(rows, sums_of(columns, image.swapaxes(0, 1)).swapaxes(0, 1))
        flips = bool(rng.integers(2)), bool(rng.integers(2))
        for laid in (image, *layouts(image)):
            result = resize.resize(laid, how, flips=flips)
            assert np.array_equal(result[:: -1 if flips[0] else 1, :: -1 if flips[1] else 1], expected), (index, how)
        starts |= {*(columns.first % 2)}
        counts |= {*columns.count, *rows.count}
    assert starts == {0, 1}
    assert {1, 2, 3, 4, 5, 6, 7, 8, 9} <= counts


def test_threads_do_not_interfere():
    images = [pixels(300, 400, 4, seed=seed) for seed in range(4)]
    hows = [resampled(METHODS[0], (300, 400), (150, 200 + n)) for n in range(10)]
    expected = [[resize.resize(image, how) for how in hows] for image in images]

    def work(index):
        assert_equal(
            ("", resize.resize(images[index], how), one) for how, one in zip(hows, expected[index], strict=True)
        )

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
    assert enums["operation"] == [*resize.OPERATIONS]


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
