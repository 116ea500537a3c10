"""Tests each op's own checks, and the spec of the op's result."""

import runpy
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import pixprep as pp
from pixprep.importers.verify.twins import ALBUMENTATIONS, OPENCV, PILLOW, TORCHVISION
from pixprep.pipeline.ops import OPS, AnnotationOp, ColorOp, FirstOp, ImageOp, OutputOp, SteadyOp
from support.canonical import smallest

STUBS = runpy.run_path(Path(__file__).parents[2] / "tools" / "stubs.py")
SQUARE = pp.ImageSpec().sized(100, 100)
WIDE = pp.ImageSpec().sized(40, 100)

SIDES = ("size", "height", "width", "max_size", "multiple", "up_to", "min_height", "min_width")
LIMITS = {
    **dict.fromkeys(SIDES, ([-1, 0, 16385], "between 1 and 16384 pixels")),
    **dict.fromkeys(("top", "left"), ([-1, 16385], "between 0 and 16384")),
    **dict.fromkeys(("p", "min_visible", "distortion_scale"), ([-0.5, 1.5, float("nan")], "between 0 and 1")),
    **dict.fromkeys(("fill", "add"), ([-1, 256], "between 0 and 255")),
    "threshold": ([-0.5, 255.5, float("nan")], "between 0 and 255"),
    "bits": ([0, 9], "between 1 and 8"),
    "gain": ([-0.5, 1000.5, float("inf")], "between 0 and 1000"),
    "pad": ([0, 100_001], "between 1 and 100000 rows"),
    "trials": ([0, 1001], "between 1 and 1000"),
    "num_ops": ([-1, 21], "between 0 and 20"),
    "num_magnitude_bins": ([1, 1001], "between 2 and 1000"),
    "magnitude_max": ([-0.5, 100.5], "between 0 and 100"),
    "frames": ([0, 4097], "between 1 and 4096"),
    "version": ([0, 1_000_001], "between 1 and 1000000"),
}


@pytest.mark.parametrize("entry", list(smallest()), ids=str)
def test_a_field_has_the_same_limits_in_every_op(entry):
    cls = OPS[entry["op"]]
    for field in LIMITS.keys() & {*cls.__struct_fields__}:
        values, limits = LIMITS[field]
        for value in values:
            with pytest.raises(pp.PipelineError, match=f'^"{field}" must be {limits}, not {value}'):
                msgspec.convert(entry | {field: value}, cls)


def test_an_op_cannot_be_changed():
    with pytest.raises(AttributeError):
        pp.resize(8).size = 9


@pytest.mark.parametrize(
    ("op", "image", "expected"),
    [
        (pp.decode(), None, "? x ? rgb, uint8 0..255"),
        (pp.decode(color="gray"), None, "? x ? gray, uint8 0..255"),
        (pp.resize(50), pp.ImageSpec(), "? x ? rgb, uint8 0..255"),
        (pp.resize(50), SQUARE, "50 x 50 rgb, uint8 0..255"),
        (pp.resize(50), WIDE, "50 x 125 rgb, uint8 0..255"),
        (pp.resize(50, side="longer"), WIDE, "20 x 50 rgb, uint8 0..255"),
        (pp.resize(height=3, width=4), WIDE, "3 x 4 rgb, uint8 0..255"),
        (pp.center_crop(7, 9), pp.ImageSpec(), "7 x 9 rgb, uint8 0..255"),
        (pp.center_crop(fraction=0.5), pp.ImageSpec(), "? x ? rgb, uint8 0..255"),
        (pp.center_crop(fraction=0.5), WIDE, "20 x 20 rgb, uint8 0..255"),
        (pp.crop(1, 2, 3, 4), pp.ImageSpec(), "3 x 4 rgb, uint8 0..255"),
        (pp.crop(box="boxes"), SQUARE, "? x ? rgb, uint8 0..255"),
        (pp.pad(100, 120), SQUARE, "100 x 120 rgb, uint8 0..255"),
        (pp.pad(square=True), pp.ImageSpec(), "? x ? rgb, uint8 0..255"),
        (pp.pad(square=True), pp.ImageSpec().sized(30, 20), "30 x 30 rgb, uint8 0..255"),
        (pp.pad(9, 9, larger="keep"), pp.ImageSpec(), "? x ? rgb, uint8 0..255"),
        (pp.pad(9, 9, larger="keep"), pp.ImageSpec().within((1, 20), (9, 20)), "9 x 20 rgb, uint8 0..255"),
        (pp.letterbox(64, 80), pp.ImageSpec(), "64 x 80 rgb, uint8 0..255"),
        (pp.flip(), WIDE, "40 x 100 rgb, uint8 0..255"),
        (pp.random_resized_crop(7, 9, like="tensorflow"), WIDE, "7 x 9 rgb, real 0..255"),
        (pp.random_crop(7, 9), pp.ImageSpec(), "7 x 9 rgb, uint8 0..255"),
        (pp.random_crop(44, 104, padding=2), WIDE, "44 x 104 rgb, uint8 0..255"),
        (pp.random_crop(41, pad_if_needed=True), WIDE, "41 x 41 rgb, uint8 0..255"),
        (pp.random_zoom_out(), WIDE, "? x ? rgb, uint8 0..255"),
        (pp.random_shortest_size((7, 9)), WIDE, "? x ? rgb, uint8 0..255"),
        (pp.scale_jitter(7, 9, like="tensorflow"), WIDE, "? x ? rgb, real 0..255"),
        (pp.random_iou_crop(), WIDE, "? x ? rgb, uint8 0..255"),
        (pp.normalize(), WIDE, "40 x 100 rgb, real 0..1"),
        (pp.normalize(mean=0.5, std=0.5), WIDE, "40 x 100 rgb, real -1..1"),
        (pp.normalize(scale=-1), WIDE, "40 x 100 rgb, real -255..0"),
        (pp.tensor(), WIDE, "float32 [3, 40, 100] chw, values 0..255"),
        (pp.tensor(dtype="uint8", layout="hwc"), WIDE, "uint8 [40, 100, 3] hwc, values 0..255"),
        (pp.original_size(), pp.ImageSpec(), "int32 [2]"),
        (pp.transform(), pp.ImageSpec(), "float32 [4]"),
    ],
)
def test_an_op_returns_the_spec_of_its_result(op, image, expected):
    assert str(op.infer(image) if image else op.infer()) == expected


@pytest.mark.parametrize(("side", "least"), [("shorter", 50), ("longer", 1)])
def test_a_resize_of_the_shorter_side_guarantees_a_minimum_size(side, least):
    spec = pp.resize(50, side=side).infer(pp.ImageSpec())
    assert (spec.min_height, spec.min_width) == (least, least)


@pytest.mark.parametrize(
    ("size", "side", "image", "expected"),
    [
        (256, "shorter", (427, 640), (256, 383)), (256, "shorter", (640, 427), (383, 256)),
        (256, "longer", (427, 640), (170, 256)), (256, "longer", (640, 427), (256, 170)),
        (9, "shorter", (5, 5), (9, 9)), (9, "longer", (5, 5), (9, 9)), (1, "longer", (3, 1000), (1, 1)),
    ],
)  # fmt: skip
def test_the_longer_side_is_rounded_down_like_torchvision(size, side, image, expected):
    spec = pp.resize(size, side=side).infer(pp.ImageSpec().sized(*image))
    assert (spec.height, spec.width) == expected


def test_every_op_has_its_public_name():
    assert {name: getattr(pp, name) for name in OPS} == OPS
    assert {cls.__name__: getattr(pp.ops, cls.__name__) for cls in OPS.values()} == {
        cls.__name__: cls for cls in OPS.values()
    }
    assert set(OPS) <= set(pp.__all__)


@pytest.mark.parametrize(("file", "made"), [("__init__.pyi", "of_package"), ("pipeline/ops/__init__.pyi", "of_ops")])
def test_the_stubs_for_type_checkers_are_current(file, made):
    assert Path(pp.__file__).with_name("py.typed").exists()
    assert Path(pp.__file__).parent.joinpath(file).read_text() == STUBS[made](), "run `make docs`"


def test_dir_lists_the_names_that_are_imported_lazily():
    code = "import pixprep, sys; print({'read', 'Loader'} <= {*dir(pixprep)}, 'pixprep.training.loader' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert said.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("cls", OPS.values())
def test_every_op_has_its_spec_and_its_lowering(cls):
    kinds = (FirstOp, ImageOp, OutputOp, AnnotationOp)
    (kind,) = (kind for kind in kinds if issubclass(cls, kind))
    assert kind in (AnnotationOp, ImageOp) or cls.infer is not kind.infer
    assert kind is FirstOp or cls.lower is not kind.lower
    assert not issubclass(cls, ColorOp) or cls.step is not ColorOp.step
    assert not issubclass(cls, SteadyOp) or cls.home or cls in PILLOW | TORCHVISION | OPENCV | ALBUMENTATIONS
