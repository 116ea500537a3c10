"""Each operator's own checks and the spec of its result."""

import runpy
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import pixprep as pp
from canonical import smallest
from pixprep.pipeline.ops import OPS, AnnotationOp, ColorOp, FirstOp, ImageOp, OutputOp, SteadyOp

STUBS = runpy.run_path(Path(__file__).parents[2] / "tools" / "stubs.py")
SQUARE = pp.ImageSpec().sized(100, 100)
WIDE = pp.ImageSpec().sized(40, 100)

MISTAKES = [
    (pp.resize, 'needs either "size", or "height" or "width" or both'),
    (lambda: pp.resize(8, height=8, width=8), 'needs either "size", or "height" or "width" or both'),
    (
        lambda: pp.resize(height=8, mode="fit"),
        '"mode" is stretch, fit or cover with "height" and "width", and scale with "size"',
    ),
    (lambda: pp.resize(8, enlarge=False), '"enlarge" and "shrink" go with "mode": "scale"'),
    (lambda: pp.resize(8, mode="scale", enlarge=False, shrink=False), '"enlarge" or "shrink" must be true'),
    (
        lambda: pp.resize(8, side="longer", max_size=9),
        '"max_size" goes with "size" of the shorter side, or with "height" or "width" alone',
    ),
    (lambda: pp.resize(8, max_size=8), '"max_size" must be over "size", which is 8, not 8'),
    (
        lambda: pp.resize(height=8, width=8, multiple=4),
        '"multiple" goes with "size", or with "height" or "width" alone',
    ),
    (lambda: pp.resize(height=8, up_to=32), '"up_to" goes with "height" or "width" alone, and with "rounding": "up"'),
    (
        lambda: pp.resize(8, rounding="detr"),
        '"rounding": "detr" goes with "size" of the shorter side and "max_size", without "mode"',
    ),
    (
        lambda: pp.resize(8, max_size=9, like="dali", subpixel=True),
        '"subpixel" goes without "max_size", "multiple" and "mode": "scale"',
    ),
    (lambda: pp.tensor(dtype="uint8", pad_value=0.5), '"pad_value" must be a value of uint8, not 0.5'),
    (lambda: pp.tensor(dtype="float16", pad_value=1e5), '"pad_value" must be a value of float16, not 100000'),
    (lambda: pp.resize(height=8, width=8, side="longer"), '"side" goes with "size", not with "height" and "width"'),
    (lambda: pp.resize(8, mode="fit"), '"mode" goes with "height" and "width", not with "size"'),
    (lambda: pp.resize(8, subpixel=True), '"subpixel" goes with "like": "dali"'),
    (pp.center_crop, 'needs either "height" and "width", or "fraction"'),
    (lambda: pp.center_crop(width=8), 'needs either "height" and "width", or "fraction"'),
    (lambda: pp.center_crop(fraction=0.5, smaller="pad"), '"smaller" goes with "height" and "width"'),
    (lambda: pp.center_crop(fraction=0), '"fraction" must be over 0 and at most 1, not 0'),
    (lambda: pp.center_crop(fraction=1.5), '"fraction" must be over 0 and at most 1, not 1.5'),
    (lambda: pp.center_crop(fraction=float("nan")), '"fraction" must be over 0 and at most 1, not nan'),
    (lambda: pp.pad(8), 'needs either "height" and "width", or "square": true'),
    (lambda: pp.pad(8, 8, square=True), 'needs either "height" and "width", or "square": true'),
    (pp.crop, 'needs either "top", "left", "height" and "width", or "box"'),
    (lambda: pp.crop(0, 0, 4), 'needs either "top", "left", "height" and "width", or "box"'),
    (lambda: pp.crop(0, 0, 4, 4, box="a"), 'needs either "top", "left", "height" and "width", or "box"'),
    (lambda: pp.crop(top=0, box="a"), 'needs either "top", "left", "height" and "width", or "box"'),
    (lambda: pp.pad(8, 8, fill=(1, -2, 3)), '"fill" must be 0 to 255, not 1, -2, 3'),
    (lambda: pp.random_resized_crop(8, scale=(0.5, 0.4)), '"scale" must rise from over 0 to 1 at most, not 0.5, 0.4'),
    (lambda: pp.random_resized_crop(8, scale=(0.5, 1.1)), '"scale" must rise from over 0 to 1 at most, not 0.5, 1.1'),
    (lambda: pp.random_resized_crop(8, ratio=(0, 1)), '"ratio" must rise from 0.001 to 1000 at most, not 0, 1'),
    (
        lambda: pp.random_resized_crop(8, filter="area"),
        '"area" with antialias true is not for "like": "pillow", which has nearest, box, bilinear, hamming, bicubic, '
        "lanczos; of the others none has it",
    ),
    (
        lambda: pp.random_crop(8, padding=(1, 2, 3)),
        '"padding" must be 1, 2 or 4 numbers of 0 to 16384, as torchvision has them, not 1, 2, 3',
    ),
    (
        lambda: pp.pad(8, 8, fill="gray"),
        '"fill" is levels, or the name of an input: for gray write 128; an input needs another name',
    ),
    (lambda: pp.random_zoom_out(side_range=(0.5, 2)), '"side_range" must rise from 1 to 16 at most, not 0.5, 2'),
    (lambda: pp.random_zoom_out(side_range=(3,)), '"side_range" is 2 numbers, not 1'),
    (lambda: pp.random_shortest_size(()), '"min_size" must be 1 to 1000 sizes, not 0'),
    (lambda: pp.random_shortest_size((8, 0)), '"min_size" must be 1 to 16384 pixels, not 0'),
    (lambda: pp.scale_jitter(8, scale_range=(1, 17)), '"scale_range" must rise from over 0 to 16 at most, not 1, 17'),
    (lambda: pp.random_iou_crop(min_scale=0), '"min_scale, max_scale" must rise from over 0 to 1 at most, not 0, 1'),
    (
        lambda: pp.random_iou_crop(max_aspect_ratio=0.1),
        '"min_aspect_ratio, max_aspect_ratio" must rise from over 0 to 1000 at most, not 0.5, 0.1',
    ),
    (
        lambda: pp.random_iou_crop(sampler_options=()),
        '"sampler_options" must be numbers of at least 0; 1 and more leave the image whole',
    ),
    (lambda: pp.normalize(mean=float("nan")), '"mean" must be finite, not nan'),
    (lambda: pp.normalize(std=float("inf")), '"std" must be finite, not inf'),
    (lambda: pp.normalize(std=0), '"std" must be over 0, not 0'),
    (lambda: pp.normalize(std=(1, -1, 1, 1)), '"std" must be over 0, not 1, -1, 1, 1'),
    (lambda: pp.normalize(std=(1, -1, 1, 1, 1)), '"std" must be over 0, not 1, -1, 1, 1, ...'),
    (lambda: pp.color_jitter(hue=(-0.1, 0.1, 0.2)), '"hue" is 2 numbers, not 3'),
    (lambda: pp.random_erasing(count=()), '"count" is 2 numbers, not 0'),
    (lambda: pp.points(flip_pairs=((0, 1), (2, 3, 4))), '"flip_pairs" is 2 numbers, not 3'),
    (lambda: pp.normalize(scale=0), '"scale" must not be 0: every pixel would become the same value'),
    (lambda: pp.pad(4, "x"), "pad: width: expected a whole number, got a string"),
    (lambda: pp.resize("256"), "resize: size: expected a whole number, got a string"),
    (lambda: pp.normalize(std="x"), "normalize: std: expected a number or a list, got a string"),
]


@pytest.mark.parametrize(("make", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_an_op_that_contradicts_itself_is_refused_in_words(make, message):
    with pytest.raises(pp.PipelineError) as caught:
        make()
    op, _, said = str(caught.value).partition(": ")
    assert message in (said, f"{op}: {said}")


SIDES = ("size", "height", "width", "max_size", "multiple", "up_to", "min_height", "min_width")
LIMITS = {
    **dict.fromkeys(SIDES, ([-1, 0, 16385], "1 to 16384 pixels")),
    **dict.fromkeys(("top", "left"), ([-1, 16385], "0 to 16384")),
    **dict.fromkeys(("p", "min_visible", "distortion_scale"), ([-0.5, 1.5, float("nan")], "0 to 1")),
    **dict.fromkeys(("fill", "add"), ([-1, 256], "0 to 255")),
    "threshold": ([-0.5, 255.5, float("nan")], "0 to 255"),
    "bits": ([0, 9], "1 to 8"),
    "gain": ([-0.5, 1000.5, float("inf")], "0 to 1000"),
    "pad": ([0, 100_001], "1 to 100000 rows"),
    "trials": ([0, 1001], "1 to 1000"),
    "num_ops": ([-1, 21], "0 to 20"),
    "num_magnitude_bins": ([1, 1001], "2 to 1000"),
    "magnitude_max": ([-0.5, 100.5], "0 to 100"),
    "frames": ([0, 4097], "1 to 4096"),
    "version": ([0, 1_000_001], "1 to 1000000"),
}


@pytest.mark.parametrize("entry", list(smallest()), ids=str)
def test_a_field_has_its_limits_in_every_op(entry):
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
def test_an_op_says_the_spec_of_its_result(op, image, expected):
    assert str(op.infer(image) if image else op.infer()) == expected


@pytest.mark.parametrize(("side", "least"), [("shorter", 50), ("longer", 1)])
def test_a_resize_of_the_shorter_side_promises_at_least_that_side(side, least):
    spec = pp.resize(50, side=side).infer(pp.ImageSpec())
    assert (spec.min_height, spec.min_width) == (least, least)


def test_a_random_crop_that_no_image_here_could_hold_is_refused():
    with pytest.raises(pp.PipelineError, match=r"^its height is 41, but that of the image is 40: pad_if_needed allows"):
        pp.random_crop(41).infer(WIDE)


@pytest.mark.parametrize(
    ("size", "side", "image", "expected"),
    [
        (256, "shorter", (427, 640), (256, 383)), (256, "shorter", (640, 427), (383, 256)),
        (256, "longer", (427, 640), (170, 256)), (256, "longer", (640, 427), (256, 170)),
        (9, "shorter", (5, 5), (9, 9)), (9, "longer", (5, 5), (9, 9)), (1, "longer", (3, 1000), (1, 1)),
    ],
)  # fmt: skip
def test_the_other_side_is_rounded_down_as_torchvision_does(size, side, image, expected):
    spec = pp.resize(size, side=side).infer(pp.ImageSpec().sized(*image))
    assert (spec.height, spec.width) == expected


def test_every_op_has_its_public_name():
    assert {name: getattr(pp, name) for name in OPS} == OPS
    assert {cls.__name__: getattr(pp.ops, cls.__name__) for cls in OPS.values()} == {
        cls.__name__: cls for cls in OPS.values()
    }
    assert set(OPS) <= set(pp.__all__)


@pytest.mark.parametrize(("file", "made"), [("__init__.pyi", "of_package"), ("pipeline/ops/__init__.pyi", "of_ops")])
def test_the_names_for_type_checkers_are_current(file, made):
    assert Path(pp.__file__).with_name("py.typed").exists()
    assert Path(pp.__file__).parent.joinpath(file).read_text() == STUBS[made](), "run `make docs`"


def test_a_module_is_listed_with_what_is_imported_when_it_is_asked_for():
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
    assert not issubclass(cls, SteadyOp) or cls.twin is not SteadyOp.twin
