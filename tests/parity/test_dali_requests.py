"""Tests DALI graphs whose numbers or frames are per-request inputs, against DALI for the same inputs and 26 images."""

import numpy as np
import pytest

import pixprep as pp
from pixprep.importers.dali import from_dali
from support.compare import EQUAL, Tolerance, assert_close
from support.images import jpeg, photo, png, scene, with_exif

dali = pytest.importorskip("nvidia.dali", reason="NO DALI: graphs with inputs can only be compared with it")
fn, types = dali.fn, dali.types

SIZES = [(120, 90), (75, 200), (333, 77), (61, 47), (60, 60), (99, 101), (640, 480), (427, 641), (51, 300), (224, 224)]
PHOTOS = [
    *(photo(name) for name in ("china", "flower")),
    *(jpeg(scene(*size), subsampling=index % 3) for index, size in enumerate(SIZES)),
    *(png(scene(*size)) for size in SIZES[:6]),
    *(with_exif(orientation, size=(61, 83)) for orientation in range(1, 9)),
]
COUNT = len(PHOTOS)
WARPS = Tolerance(1, 0.995, "the places of an affine map in float32: many of a photo lie halfway between two levels")
ROUNDED = Tolerance(0.51 / 4, 0.0, "DALI rounds no value of a resize of float32, and pixprep rounds it to a level")
RNG = np.random.default_rng(7)
BOTH = {"mean": [1.0, 2.0, 3.0], "std": [4.0, 5.0, 6.0]}


def floats(count=1, low=0.0, high=1.0):
    return [RNG.uniform(low, high, count).astype(np.float32) for _ in range(COUNT)]


def whole(low, high, count=1, dtype=np.float32):
    return [RNG.integers(low, high, count).astype(dtype) for _ in range(COUNT)]


def source(name, **fields):
    return fn.external_source(name=name, **fields)


def decoded():
    return fn.decoders.image(source("E"))


def sliced(*names, **fields):
    return fn.resize(fn.slice(decoded(), *map(source, names), **fields), size=[30, 31])


def cropped_by_elements():
    roi = source("R")
    return fn.crop(decoded(), crop=(20, 20), crop_pos_x=roi[0], crop_pos_y=fn.cast(roi[1], dtype=types.FLOAT))


def letterboxed():
    fitted = fn.resize(decoded(), resize_x=source("W"), resize_y=source("H"), mode="not_larger")
    sides = {"crop_w": source("V"), "crop_h": source("U")}
    return fn.crop(fitted, out_of_bounds_policy="pad", fill_values=9, **sides)


INT32 = {"dtype": types.INT32}
WIDTHS, HEIGHTS = whole(30, 99), whole(30, 99)
GRAPHS = {
    "a corner": (
        lambda: fn.crop(decoded(), crop=(40, 41), crop_pos_x=source("X"), crop_pos_y=source("Y")),
        {"X": floats(), "Y": floats()},
        {},
    ),
    "a corner and a mirror": (
        lambda: fn.crop_mirror_normalize(
            decoded(), crop=(40, 41), crop_pos_x=source("X"), mirror=source("M", **INT32), rounding="truncate", **BOTH
        ),
        {"X": floats(), "M": whole(0, 2, dtype=np.int32)},
        {},
    ),
    "a size": (
        lambda: fn.resize(fn.crop(decoded(), crop_w=source("W"), crop_h=source("H")), size=[30, 31]),
        {"W": whole(1, 47), "H": whole(1, 47)},
        {},
    ),
    "a size of two numbers": (
        lambda: fn.crop(decoded(), crop=source("C"), crop_pos_x=0.3),
        {"C": whole(1, 47, 2)},
        {"max_size": 64},
    ),
    "numbers of one input": (cropped_by_elements, {"R": floats(2)}, {}),
    "shares": (lambda: sliced("A", "S"), {"A": floats(2, 0, 0.5), "S": floats(2, 0.1, 0.5)}, {}),
    "pixels": (
        lambda: sliced("A", "S", axis_names="HW", normalized_anchor=False, normalized_shape=False),
        {"A": whole(0, 20, 2), "S": whole(1, 27, 2)},
        {},
    ),
    "integers": (
        lambda: fn.slice(decoded(), start=source("A", **INT32), shape=[20, 27], axis_names="HW"),
        {"A": whole(0, 20, 2, np.int32)},
        {},
    ),
    "both sides": (
        lambda: fn.resize(decoded(), resize_x=source("W"), resize_y=source("H")),
        {"W": whole(1, 99), "H": whole(1, 99)},
        {"max_size": 99},
    ),
    "around both": (
        lambda: fn.crop(fn.resize(decoded(), size=source("S"), mode="not_smaller"), crop=(20, 20)),
        {"S": whole(30, 99, 2)},
        {},
    ),
    "the shorter side": (
        lambda: fn.crop(fn.resize(decoded(), resize_shorter=source("S")), crop=(20, 20)),
        {"S": whole(30, 99)},
        {},
    ),
    "the longer side": (
        lambda: fn.resize(decoded(), resize_longer=source("S")),
        {"S": whole(30, 99)},
        {"max_size": 99},
    ),
    "a part": (
        lambda: fn.resize(decoded(), size=[30, 31], roi_start=source("A"), roi_end=source("B"), roi_relative=True),
        {"A": floats(2), "B": floats(2)},
        {},
    ),
    "a part in pixels and a size": (
        lambda: fn.resize(decoded(), size=source("S"), mode="not_larger", roi_start=(3.25, 40), roi_end=source("B")),
        {"S": whole(30, 99, 2), "B": floats(2, 4, 39)},
        {"max_size": 99},
    ),
    "an angle": (
        lambda: fn.resize(fn.rotate(decoded(), angle=source("A"), keep_size=True, fill_value=7), size=[30, 31]),
        {"A": floats(1, -200, 200)},
        {},
    ),
    "an affine map": (
        lambda: fn.warp_affine(decoded(), matrix=source("M"), size=[50, 61], fill_value=7),
        {"M": [(np.eye(2, 3) + RNG.normal(0, 0.2, (2, 3))).astype(np.float32) for _ in range(COUNT)]},
        {},
    ),
    "a letterbox": (
        letterboxed,
        {"W": WIDTHS, "H": HEIGHTS, "V": WIDTHS, "U": HEIGHTS},
        {"max_size": 99},
    ),
}
FRAMES = [scene(*SIZES[index % len(SIZES)]) for index in range(COUNT)]
FORMS = {
    "HWC": (lambda: source("F", layout="HWC"), FRAMES, EQUAL),
    "CHW": (lambda: source("F", layout="CHW"), [frame.transpose(2, 0, 1).copy() for frame in FRAMES], EQUAL),
    "float": (
        lambda: source("F", layout="HWC", dtype=types.FLOAT),
        [frame.astype(np.float32) for frame in FRAMES],
        ROUNDED,
    ),
}


def both(build, images, numbers, change=None, **options):
    """Return pixprep's and DALI's tensors for each image."""
    pipe = dali.Pipeline(batch_size=COUNT, num_threads=2, device_id=None)
    with pipe:
        pipe.set_outputs(build())
    pipeline = from_dali(pipe.serialize(), **options)
    pipe.build()
    for name, values in numbers.items():
        pipe.feed_input(name, values)
    name = "E" if isinstance(images[0], bytes) else "F"
    pipe.feed_input(name, [np.frombuffer(i, np.uint8) if isinstance(i, bytes) else i for i in images])
    (made,) = pipe.run()
    if change:
        pipeline = pp.Pipeline([change(op) for op in pipeline.ops])
    with pp.Engine(pipeline, threads=1, odd_range=True) as engine:
        ours = engine.run(images, inputs={name: numbers[name] for name in pipeline.inputs})
    return [(ours[index], np.asarray(made.at(index))) for index in range(COUNT)]


def assert_near(pairs, tolerance):
    for actual, expected in pairs:
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
    assert_close(*(np.concatenate([array.ravel() for array in side]) for side in zip(*pairs, strict=True)), tolerance)


@pytest.mark.parametrize("name", GRAPHS)
def test_per_request_numbers_equal_dali(name):
    build, numbers, options = GRAPHS[name]
    assert_near(both(build, PHOTOS, numbers, **options), WARPS if name in ("an angle", "an affine map") else EQUAL)


@pytest.mark.parametrize("form", FORMS)
def test_frames_equal_dali(form):
    make, frames, tolerance = FORMS[form]
    layout = "CHW" if form == "CHW" else "HWC"
    assert_near(both(lambda: fn.crop(make(), crop=(40, 41)), frames, {}), EQUAL)
    resized = both(
        lambda: fn.crop_mirror_normalize(fn.resize(make(), size=[40, 51]), crop=(30, 31), output_layout=layout, **BOTH),
        frames,
        {},
    )
    assert_near(resized, tolerance)


@pytest.mark.parametrize("unit", ["share", "share32"])
def test_normalized_slices_equal_dalis_crops(unit):
    count = 4000
    lengths = RNG.integers(5, 6000, count)
    begins = (RNG.integers(0, lengths * 19 // 20) + 0.5) / lengths * RNG.choice([1, 1 - 1e-7, 1 + 1e-7], count)
    begins = np.where(RNG.random(count) < 0.5, np.round(begins, 2), begins).astype(np.float32)
    sizes = (RNG.uniform(0.01, 1, count) * (1 - begins)).astype(np.float32)
    sources = [np.arange(length, dtype=np.int32) for length in lengths], list(begins[:, None]), list(sizes[:, None])
    pipeline = dali.Pipeline(batch_size=count, num_threads=2, device_id=None)
    with pipeline:
        line, begin, size = (fn.external_source(source=[each], batch=True) for each in sources)
        window = {"rel_start": begin, "rel_shape": size} if unit == "share32" else {}
        pipeline.set_outputs(fn.slice(line, *[] if window else (begin, size), axes=[0], **window))
    pipeline.build()
    (found,) = pipeline.run()
    for index, (length, begin, size) in enumerate(zip(lengths, begins, sizes, strict=True)):
        crop = pp.crop(float(begin), 0.0, float(size), 1.0, unit=unit)
        top, _, rows, _ = crop._window.of(int(length), 1)
        assert np.array_equal(found.at(index), np.arange(top, top + rows))
