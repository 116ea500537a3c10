"""The machine code equals NumPy's ``resample`` and indexing in every value; and life without it."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from images import checkerboard, noise
from pixprep.kernels import compiled
from pixprep.kernels.resample import resample
from pixprep.ops import FILTERS
from pixprep.profiles import resampling
from pixprep.profiles.taps import Resampling, Taps, single
from resize_cases import assert_equal, placement, resize

TESTS = Path(__file__).parents[1]
RESIZES = [
    (like, name, antialias)
    for (like, antialias), names in FILTERS.items()
    for name in names
    if like in ("pillow", "torchvision")
]
SIZES = [
    ((1, 1), (1, 9)),
    ((1, 9), (9, 1)),
    ((1, 300), (7, 20)),
    ((300, 1), (20, 7)),
    ((2, 3), (3, 2)),
    ((3, 5), (40, 41)),
    ((7, 7), (7, 5)),
    ((16, 16), (15, 17)),
    ((60, 90), (37, 31)),
    ((64, 48), (16, 48)),
    ((60, 90), (60, 11)),
    ((33, 20), (100, 71)),
    ((97, 131), (13, 130)),
    ((400, 23), (9, 22)),
]


def pixels(height, width, channels, seed=0):
    """Levels that a filter with negative lobes carries out of their range, and noise."""
    sharp = checkerboard(height, width)[:, :, :1]
    levels = [noise(height, width, 1, seed=seed), sharp, noise(height, width, 1, seed=seed + 1), 255 - sharp]
    return np.ascontiguousarray(np.concatenate(levels[:channels], axis=2))


def how(like, filter_name, size, resized_size, *, antialias, region=None):
    return resampling(
        resize(like, filter_name, resized_size, antialias=antialias), placement(size, resized_size, region)
    )


def both(name, source, rule):
    return name, resample(source, rule, compiled.along), resample(source, rule)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_machine_code_equals_numpy(like, filter_name, antialias, channels):
    def pairs():
        for size, resized_size in SIZES:
            found = how(like, filter_name, size, resized_size, antialias=antialias)
            for is_vertical_first in (False, True):
                rule = replace(found, vertical_first=is_vertical_first)
                yield both(f"{size} {resized_size}", pixels(*size, channels), rule)

    assert_equal(pairs())


@pytest.mark.parametrize(("like", "filter_name"), [("pillow", "lanczos"), ("torchvision", "bilinear")])
def test_every_small_size_equals_numpy(like, filter_name):
    def pairs():
        for size in product((1, 2, 3, 4, 5, 15, 16, 17, 33), repeat=2):
            for resized_size in ((1, 1), (4, 3), (5, 18), (19, 5), (34, 35)):
                if size != resized_size:
                    rule = how(like, filter_name, size, resized_size, antialias=True)
                    yield from (both(f"{size} {resized_size}", pixels(*size, n), rule) for n in (1, 4))

    assert_equal(pairs())


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_regions_equal_numpy(channels):
    rng = np.random.default_rng(3)

    def pairs():
        for _ in range(60):
            size, resized_size = (tuple(int(n) for n in rng.integers(1, 120, 2)) for _ in range(2))
            top, left = (int(rng.integers(0, side)) for side in resized_size)
            bottom, right = (
                int(rng.integers(begin, side)) + 1 for begin, side in zip((top, left), resized_size, strict=True)
            )
            region = (top, left, bottom, right)
            for like, name in (("pillow", "bicubic"), ("torchvision", "lanczos")):
                if size != resized_size:
                    rule = how(like, name, size, resized_size, antialias=True, region=region)
                    yield both(f"{size} {resized_size} {region}", pixels(*size, channels), rule)

    assert_equal(pairs())


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_strides_make_no_difference(channels):
    large = pixels(90, 70, channels)
    views = {
        "a part": large[11:71, 7:57],
        "a part at the end": large[30:, 20:],
        "upside down": large[70:10:-1, 7:57],
        "mirrored": large[11:71, 56:6:-1],
        "every other": large[::1, ::1][10:70, 5:55].copy()[:, ::1],
        "Fortran's order": np.asfortranarray(large[11:71, 7:57]),
        "transposed": large[7:57, 5:65].transpose(1, 0, 2),
        "columns apart": np.repeat(large[11:71, 7:57], 2, axis=1)[:, ::2],
        "one row again and again": np.broadcast_to(large[5:6, 7:57], (60, 50, channels)),
    }
    rule = how("pillow", "bicubic", (60, 50), (23, 31), antialias=True)

    def pairs():
        for name, view in views.items():
            assert view.shape == (60, 50, channels)
            for is_vertical_first in (False, True):
                yield both(name, view, replace(rule, vertical_first=is_vertical_first))

    assert_equal(pairs())


@pytest.mark.parametrize("bits", [1, 9, 15, 22])
def test_windows_of_any_place_length_and_weights_equal_numpy(bits):
    """Some reach over the border, some clip, and those of one axis have several lengths."""
    rng = np.random.default_rng(bits)

    def taps():
        count = rng.integers(1, 8, 21).astype(np.int32)
        weights = rng.integers(-(1 << bits), 1 << bits, (21, int(count.max()))).astype(np.int32)
        weights[np.arange(weights.shape[1]) >= count[:, None]] = 0
        return Taps(rng.integers(-8, 20, 21).astype(np.int32), count, weights, bits)

    def pairs():
        for index in range(40):
            columns = single(np.arange(17)) if index % 4 == 0 else taps()
            rule = Resampling("fixed", taps(), columns, vertical_first=index % 2 == 0)
            yield both(str(index), pixels(12, 17, 4, seed=index), rule)

    assert_equal(pairs())


def test_a_change_of_one_weight_is_seen():
    rule = how("pillow", "bicubic", (60, 90), (37, 31), antialias=True)
    weights = rule.columns.weights.copy()
    weights[11, 3] += 1 << 15
    name, actual, expected = both(
        "off", pixels(60, 90, 4), replace(rule, columns=replace(rule.columns, weights=weights))
    )
    assert_equal([(name, actual, expected)])
    with pytest.raises(AssertionError, match="differ"):
        assert_equal([(name, actual, resample(pixels(60, 90, 4), rule))])


GUARDED = """
import ctypes, mmap, sys
import numpy as np
from pixprep.kernels import compiled
from pixprep.profiles.taps import Taps

PAGE = mmap.PAGESIZE
memory = mmap.mmap(-1, 6 * PAGE)
whole = np.frombuffer(memory, np.uint8)
for page in (0, 5):
    address = ctypes.c_void_p(whole.ctypes.data + page * PAGE)
    assert ctypes.CDLL(None).mprotect(address, ctypes.c_size_t(PAGE), 0) == 0
inside = whole[PAGE : 5 * PAGE]
if "beyond" in sys.argv:
    print(whole[5 * PAGE])
for height, width, channels, taps in [
    (h, w, c, t) for h in (1, 3, 5) for w in (1, 3, 4, 5, 16, 19) for c in (1, 3, 4) for t in (1, 3, 6, 17)
]:
    size = height * width * channels
    for levels in (inside[:size], inside[-size:]):
        values = levels.reshape(height, width, channels)
        for axis in (0, 1):
            longest = min(taps, values.shape[axis])
            first = np.arange(values.shape[axis] - longest + 1, dtype=np.int32)
            weights = np.ones((len(first), longest), np.int32)
            compiled.along(axis, values, Taps(first, np.full(len(first), longest, np.int32), weights, 3))
        out = np.empty((channels, height, width), np.float32)
        compiled.look_up(values, np.zeros((channels, 256), np.float32), out)
"""


def _guarded(*arguments):
    command = [sys.executable, "-W", "error", "-c", GUARDED, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_no_pass_reads_beyond_the_pixels():
    """The pages before and after them cannot be read."""
    done = _guarded()
    assert done.returncode == 0, done.stderr
    assert _guarded("beyond").returncode < 0


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
            compiled.look_up(view, table, whole[:, 4 : 4 + rows, 6 : 6 + columns])
            expected = np.full((3, 50, 40), 77, dtype)
            for plane in range(3):
                expected[plane, 4 : 4 + rows, 6 : 6 + columns] = table[plane][view[:, :, plane]]
            assert (whole == expected).all()


def test_threads_do_not_meet():
    rule = how("pillow", "lanczos", (300, 400), (150, 200), antialias=True)
    images = [pixels(300, 400, 4, seed=seed) for seed in range(4)]
    expected = [resample(image, rule) for image in images]

    def work(index):
        results = [resample(images[index], rule, compiled.along) for _ in range(30)]
        return all((result == expected[index]).all() for result in results)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def _python(code):
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


ENGINE = """
import sys
import pixprep as pp
from images import photo

def engine(**resize):
    ops = [pp.decode(), pp.resize(64, **resize), pp.center_crop(56), pp.normalize(), pp.tensor()]
    return pp.Engine(pp.Pipeline(ops), threads=2)

def is_loaded():
    return "llvmlite" in sys.modules
"""


def test_the_code_is_made_with_the_engine_and_nothing_with_the_first_image():
    code = """
with engine(filter="bicubic") as running:
    assert "pixprep.kernels.compiled" in sys.modules
    before = set(sys.modules)
    running.run([photo()] * 4)
    print(len(set(sys.modules) - before))
"""
    assert _python(ENGINE + code) == ["0"]


def test_an_engine_without_a_use_for_it_does_not_load_llvm():
    code = """
engine(filter="nearest")
engine(like="opencv", filter="bilinear", antialias=False)
print(is_loaded())
engine(like="torchvision")
print(is_loaded())
"""
    assert _python(ENGINE + code) == ["False", "True"]


def test_without_llvmlite_tensors_are_the_same():
    code = """
import hashlib
for resize in ({"filter": "bilinear"}, {"filter": "lanczos"}, {"like": "torchvision"}):
    (tensor,) = engine(**resize).run([photo()])
    print(hashlib.sha256(tensor.tobytes()).hexdigest())
print(is_loaded())
"""
    *with_it, is_loaded = _python(ENGINE + code)
    *without, is_still = _python(
        "import sys\nsys.modules['llvmlite'] = None\n" + ENGINE.replace('"llvmlite" in sys.modules', "False") + code
    )
    assert with_it == without
    assert len(set(with_it)) == 3
    assert (is_loaded, is_still) == ("True", "False")


def test_without_llvmlite_the_kernel_passes_its_tests():
    """Pillow and NumPy serve there; a few tests of each."""
    chosen = "random_sizes or preset or normalize_equals"
    code = f"""
import sys
sys.modules["llvmlite"] = None
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "device/test_kernel.py", "-k", {chosen!r}]))
"""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
