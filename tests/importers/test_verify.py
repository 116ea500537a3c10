"""Tests the certificate of ``verify``: its comparisons, the errors that they detect, and its text."""

import ast
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import get_args

import numpy as np
import PIL
import pytest

import pixprep as pp
from pixprep.importers.verify import (
    Certificate,
    Originals,
    Row,
    frozen,
    images,
    libraries,
    originals,
    twins,
    verify,
    verify_training,
)
from pixprep.importers.verify.drawn import settled, steps
from pixprep.importers.verify.libraries import absent, find
from pixprep.importers.verify.originals import FORMULA, Original
from pixprep.importers.verify.report import Tolerance
from pixprep.importers.verify.stages import Stage
from pixprep.pipeline import ops
from pixprep.plan.profiles import PROFILES
from pixprep.spec import Like
from support.images import NO_IMAGE, checkerboard, jpeg, noise, photo, png, scene
from support.resize_cases import INSTALLED

IMAGES = [
    ("scene", jpeg(scene(75, 61))),
    ("noise", png(noise(40, 90))),
    ("board", png(checkerboard(64, 64))),
    ("row", png(noise(1, 50))),
]


def pipeline(*, arithmetic="divide", filter="bilinear", like="pillow", dtype="float32", origin=None):  # noqa: A002
    return pp.Pipeline(
        [
            pp.decode(),
            pp.resize(32, filter=filter, like=like),
            pp.center_crop(29),
            pp.normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), arithmetic=arithmetic),
            pp.tensor(dtype=dtype),
        ],
        origin=origin,
    )


def only_pillow(key):
    """Simulate an environment in which Pillow is the only installed image library."""
    if key == "pillow":
        return find(key)
    title, _, packages = libraries.TABLE[key]
    return libraries.Library(title, None, "not installed", f"pip install {packages}")


ONLY_PILLOW = Originals(only_pillow)


def compare(checked, some=IMAGES, beside=ONLY_PILLOW, **options):
    return verify(checked, images=some, generate=False, originals=beside, **options)


class ReplacedOriginals(Originals):
    """Original library made of Pillow and NumPy, with some stages replaced. A replacement receives the right result and
    the op.
    """

    def __init__(self, **others):
        super().__init__(only_pillow)
        self._others = others

    def _original(self, stage, original, op):
        return self._others.get(stage, lambda right, _: right)(original, op)

    def decoder(self, op):
        return self._original("decode", super().decoder(op), op)

    def resizer(self, op):
        return self._original("resize", super().resizer(op), op)

    def colourist(self, op):
        return self._original("levels", super().colourist(op), op)

    def normalizer(self, op, *, is_real, origin):
        return self._original("tensor", super().normalizer(op, is_real=is_real, origin=origin), op)


def with_changed_stage(stage, change):
    """Return an original library in which the result of one stage is changed."""
    return ReplacedOriginals(
        **{stage: lambda right, op: replace(right, run=lambda values: change(right.run(values), op))}
    )


def other_resize(**fields):
    """Return an original library whose resize differs from the pipeline's."""
    return ReplacedOriginals(
        resize=lambda _, op: ONLY_PILLOW.resizer(ops.Resize(op.size, **{"filter": op.filter} | fields))
    )


def rows(certificate):
    return {row.stage: row for row in certificate.rows}


def failed_stages(certificate):
    return [row.stage for row in certificate.rows if not row.holds]


def decoded(encoded):
    return Originals().decoder(ops.Decode()).run(encoded)


def off_by_one(values, _):
    """Change one value in the centre of each image by one."""
    changed, middle = values.copy(), tuple(side // 2 for side in values.shape)
    changed[middle] = values[middle] + 1 if values[middle] < 128 else values[middle] - 1
    return changed


def test_an_exact_pipeline_has_a_row_for_each_stage_and_no_difference():
    certificate = compare(pipeline(like=INSTALLED))
    assert [row.stage for row in certificate.rows] == ["decode", "resize", "tensor", "end to end"]
    for row in certificate.rows:
        assert (row.images, row.max, row.mean, row.differing, row.worst, row.frozen) == (4, 0, 0, 0, None, False)
    assert certificate.rows[0].values == sum(decoded(encoded).size for _, encoded in IMAGES)
    assert certificate.is_exact
    assert str(certificate).endswith(f"\nexact, op by op: the pixels of {find('pillow')}")


@pytest.mark.parametrize("other", ["hamming", "box", "bicubic", "nearest"])
def test_a_similar_filter_is_detected(other):
    certificate = compare(pipeline(), beside=other_resize(filter=other))
    assert failed_stages(certificate) == ["resize", "end to end"]
    assert certificate.summary.startswith('NOT exact: resize of "tensor": ')
    assert compare(pipeline(filter=other), beside=other_resize(filter=other)).is_exact


@pytest.mark.parametrize(
    ("stage", "change", "failing"),
    [
        ("decode", lambda pixels, _: pixels[:, :, ::-1], ["decode", "end to end"]),
        ("decode", off_by_one, ["decode"]),
        ("decode", lambda pixels, _: pixels[:-1], ["decode", "end to end"]),
        ("resize", off_by_one, ["resize", "end to end"]),
        ("resize", lambda levels, _: levels[::-1], ["resize", "end to end"]),
        ("tensor", lambda values, _: np.nextafter(values, np.float32(9)), ["tensor", "end to end"]),
        ("tensor", lambda values, op: values * op.std[0], ["tensor", "end to end"]),
        ("tensor", lambda values, _: np.where(values == values.max(), np.nan, values), ["tensor", "end to end"]),
    ],
)
def test_a_difference_is_shown_at_the_stage_where_it_arises(stage, change, failing):
    certificate = compare(pipeline(), IMAGES[:2], with_changed_stage(stage, change))
    assert failed_stages(certificate)[: len(failing)] == failing
    assert set(failed_stages(certificate)) <= {*failing, "end to end"}
    assert not certificate.is_exact
    json.loads(certificate.to_json())


COLOURED = pp.Pipeline(
    [
        pp.decode(), pp.resize(height=30, width=31, like=INSTALLED), pp.hue(factor=0.1), pp.contrast(factor=1.3),
        pp.normalize(), pp.tensor(),
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        lambda right, op: Originals().colourist(ops.Contrast(factor=1.31)) if isinstance(op, ops.Contrast) else right,
        lambda right, op: replace(FORMULA, library=right.library) if isinstance(op, ops.Hue) else right,
    ],
    ids=["another contrast", "no hue"],
)
def test_different_colours_are_shown_at_the_stage_of_pixel_values(change):
    assert compare(COLOURED).is_exact
    certificate = compare(COLOURED, beside=ReplacedOriginals(levels=change))
    assert failed_stages(certificate) == ["levels", "end to end"]
    assert rows(certificate)["levels"].original == f"Pillow {PIL.__version__}"


def test_a_difference_of_one_is_too_much():
    """In this test, pixprep replaces DALI, first unchanged and then with one value off by one."""

    def beside(by):
        def shifted(op, pixels):
            levels = Stage([ops.Decode(), op]).run(png(pixels))
            return np.where(levels < 128, levels + by, levels - by).astype(np.uint8)

        return ReplacedOriginals(resize=lambda _, op: Original(find("pillow"), partial(shifted, op)))

    resize = pp.resize(height=30, width=31, like="dali")
    checked = pp.Pipeline([pp.decode(), resize, pp.normalize(mean=0.5, std=0.2), pp.tensor()])
    equal, one = (compare(checked, beside=beside(by)) for by in (0, 1))
    assert equal.is_exact
    assert rows(equal)["end to end"].differing == 0
    assert rows(one)["end to end"].differing == 1
    assert not one.is_exact


def test_float64_may_differ_by_one_ulp_and_float32_arithmetic_may_not():
    def nudge(values, _):
        return np.nextafter(values.astype(np.float32), np.float32(9))

    once, twice = (
        with_changed_stage("tensor", nudge),
        with_changed_stage("tensor", lambda values, _: nudge(nudge(values, _), _)),
    )
    assert compare(pipeline(arithmetic="float64"), IMAGES[:1], once).is_exact
    assert not compare(pipeline(arithmetic="divide"), IMAGES[:1], once).is_exact
    assert not compare(pipeline(arithmetic="float64"), IMAGES[:1], twice).is_exact


@pytest.mark.parametrize("arithmetic", get_args(ops.Arithmetic))
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_each_arithmetic_equals_its_own_formula(arithmetic, dtype):
    certificate = compare(pipeline(arithmetic=arithmetic, dtype=dtype), IMAGES[:2])
    assert certificate.is_exact, certificate


AWKWARD = {
    "gray": [pp.decode(color="gray"), pp.center_crop(20, rounding="down"), pp.tensor(dtype="uint8")],
    "bgr and margins": [
        pp.decode(color="bgr"),
        pp.resize(height=40, width=37, mode="fit", filter="lanczos", rounding="half_even"),
        pp.flip(),
        pp.pad(44, 45, fill=(1, 2, 3)),
        pp.flip("vertical"),
        pp.tensor(layout="hwc"),
    ],
    "a bgr margin before the resize": [
        pp.decode(color="bgr"),
        pp.pad(square=True, fill=(200, 2, 99)),
        pp.resize(height=40, width=40, filter="bicubic"),
        pp.tensor(),
    ],
    "letterbox": [pp.decode(), pp.letterbox(48, 53), pp.normalize(), pp.transform(), pp.tensor()],
    "not enlarged": [pp.decode(), pp.letterbox(48, 53, enlarge=False), pp.tensor()],
    "crop before": [pp.decode(), pp.center_crop(fraction=0.9), pp.resize(height=9, width=8), pp.tensor()],
    "not widened": [pp.decode(), pp.resize(height=21, width=80, antialias=False, filter="bicubic"), pp.tensor()],
    "bgr colours among moves": [
        pp.decode(color="bgr"), pp.resize(40), pp.brightness(factor=1.2), pp.center_crop(30), pp.contrast(factor=0.7),
        pp.flip(), pp.hue(factor=0.2), pp.pad(33, 34, fill=(9, 99, 200)), pp.equalize(), pp.normalize(), pp.tensor(),
    ],
    "turned and moved": [
        pp.decode(color="bgr"),
        pp.resize(40),
        pp.center_crop(height=36, width=30),
        pp.brightness(factor=1.2),
        pp.rotate(angle=90, expand=True),
        pp.sharpness(factor=1.7),
        pp.rotate(angle=20, filter="bilinear", expand=True, fill=(9, 99, 200)),
        pp.center_crop(33),
        pp.normalize(),
        pp.tensor(),
    ],
    "gray and turned": [
        pp.decode(color="gray"), pp.resize(40), pp.rotate(angle=-30, fill=77), pp.center_crop(20),
        pp.tensor(dtype="uint8"),
    ],
    "gray colours": [
        pp.decode(color="gray"), pp.saturation(factor=2), pp.autocontrast(), pp.center_crop(20),
        pp.contrast(factor=1.4), pp.hue(factor=0.1), pp.grayscale(), pp.tensor(dtype="uint8"),
    ],
    "crop after normalize": [
        pp.decode(), pp.resize(32), pp.normalize(), pp.flip(), pp.crop(1, 2, 20, 21),
        pp.normalize(mean=0.25, std=0.5, scale=1), pp.tensor(),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", AWKWARD)
def test_every_op_has_an_original(name):
    certificate = compare(pp.Pipeline(AWKWARD[name]))
    assert certificate.is_exact, certificate
    assert not certificate.refused


def test_an_op_without_an_original_is_not_skipped():
    class Warp(ops.ImageOp, frozen=True):
        """Op that no library has."""

    with pytest.raises(AssertionError, match=r"Warp\(.* is compared with nothing"):
        originals.geometry([Warp()], np.asarray, noise(2, 2))


def test_every_profile_and_every_arithmetic_has_an_original():
    assert {"float64", "bfloat16", *originals.NORMALIZERS} == set(get_args(ops.Arithmetic))
    assert {PROFILES[like].original.key for like in get_args(Like)} <= set(libraries.TABLE)


TALL = [("tall", png(noise(300, 40))), ("scene", jpeg(scene(230, 60)))]


@pytest.mark.parametrize(("like", "order"), [("pillow", 13), ("pillow12", 12)])
@pytest.mark.parametrize("antialias", [True, False])
def test_pillow_is_compared_in_the_order_of_the_profile_which_the_row_shows(like, order, antialias):
    resize = pp.resize(24, like=like, filter="bicubic", antialias=antialias)
    checked = pp.Pipeline([pp.decode(), resize, pp.center_crop(24), pp.tensor(dtype="uint8")])
    row = rows(certificate := compare(checked, TALL))["resize"]
    assert certificate.is_exact, certificate
    if antialias:
        how = "" if like == INSTALLED else f" (one pass at a time in the order of Pillow {order})"
        assert row.original == f"Pillow {PIL.__version__}{how}"
    other = other_resize(like="pillow12" if like == "pillow" else "pillow", antialias=antialias)
    assert failed_stages(compare(checked, TALL, other)) == ["resize", "end to end"]


def test_an_installed_library_that_behaves_differently_is_not_used():
    installed = Originals(lambda key: libraries.Library(key, "1"))
    by_dali = installed.resizer(ops.Resize(64, like="dali", rounding="down")).library
    assert (by_dali.version, by_dali.problem) == (None, 'does not support the rounding "down"')


def test_each_tensor_of_a_pipeline_has_its_own_rows():
    first = [pp.decode(name="image"), pp.resize(32), pp.center_crop(32), pp.tensor(name="small", dtype="uint8")]
    other = [pp.resize(height=50, width=40, filter="box", from_="image"), pp.original_size(), pp.tensor(name="large")]
    certificate = compare(pp.Pipeline(first + other))
    assert [row.output for row in certificate.rows] == ["", *["small"] * 3, *["large"] * 3]
    assert certificate.is_exact


def test_an_image_that_the_pipeline_rejects_is_named_and_not_compared():
    crop = pp.Pipeline([pp.decode(), pp.crop(0, 0, 30, 30), pp.tensor()])
    certificate = compare(crop, [*IMAGES, ("broken", b"x")])
    assert [str(refusal) for refusal in certificate.refused] == [
        'row: pixprep\'s output "tensor" rejects it: [DOES_NOT_FIT] 1 x 50 pixels are too small for the window of '
        "30 x 30 at 0, 0; not compared",
        f"broken: pixprep rejects it: [UNKNOWN_FORMAT] {NO_IMAGE}; not compared",
    ]
    assert [row.images for row in certificate.rows] == [4, 3, 3, 3]
    assert certificate.is_exact


def test_a_certificate_without_images_is_rejected():
    def refuse(_, __):
        raise ValueError("no such sampling")

    with pytest.raises(
        pp.PixprepError, match=r"none of the 4 images was compared; scene: Pillow .* rejects it: no such sampling"
    ):
        compare(pipeline(), beside=with_changed_stage("decode", refuse))
    crop = pp.Pipeline([pp.decode(), pp.crop(0, 0, 3000, 3000), pp.tensor()])
    with pytest.raises(pp.PixprepError, match=r"none of the 4 images was compared; scene: .*DOES_NOT_FIT"):
        compare(crop)


TORCH = pp.Pipeline([pp.decode(), pp.resize(height=30, width=31, like="torchvision"), pp.tensor(dtype="uint8")])


def test_a_missing_library_is_replaced_by_frozen_results_and_reported():
    certificate = compare(TORCH)
    found = [(row.stage, row.frozen) for row in certificate.rows]
    assert found == [("decode", False), ("resize", True), ("tensor", False)]
    assert rows(certificate)["resize"].images == len(frozen.SIZES)
    assert list(map(str, certificate.absent)) == [
        "torchvision: not installed (pip install torchvision); only its filter, without the geometry, was compared "
        "with 12 frozen results of torchvision 0.28.0 (PyTorch 2.13.0); nothing was compared end to end"
    ]
    assert certificate.summary == (
        f"exact, op by op: the pixels of {find('pillow')}; according to frozen results, the pixels of torchvision "
        "0.28.0 (PyTorch 2.13.0)"
    )


def test_a_missing_library_without_frozen_results_is_an_error():
    message = (
        "resize cannot be compared with torchvision: not installed (frozen vectors exist, but are not allowed): pip "
        "install torchvision"
    )
    with pytest.raises(pp.SetupError, match=f"^{re.escape(message)}$"):
        compare(TORCH, frozen=False)


def test_frozen_results_need_no_library():
    certificate = compare(pipeline(), IMAGES[-1:], None, frozen=True)
    assert [row.frozen for row in certificate.rows] == [True, True, False]
    assert {absence.why for absence in certificate.absent} == {"not used, because frozen vectors were requested"}


@pytest.mark.parametrize("op", frozen.every(), ids=frozen.key)
def test_every_op_on_pixel_values_equals_its_frozen_results(op):
    is_decoding, is_filter = isinstance(op, ops.Decode), isinstance(op, ops.Resize)
    checked = [op, pp.center_crop(20)] if is_decoding else [pp.decode(), op, pp.center_crop(1)]
    certificate = compare(pp.Pipeline([*checked, pp.tensor()]), IMAGES[:1], Originals(absent))
    row = rows(certificate)["decode" if is_decoding else "resize" if is_filter else "levels"]
    assert (row.frozen, row.images) == (True, len(frozen.cases(op)))
    assert "end to end" not in rows(certificate)
    assert certificate.is_exact, certificate
    assert row.max == 0


EQUAL_FILTERS = [
    {"pillow nearest", "pillow12 nearest"},
    {"pillow box antialias", "pillow12 box antialias"},
    {"torchvision nearest", "opencv nearest"},
    {"torchvision nearest_exact", "tensorflow nearest", "dali nearest"},
]
"""Filters that produce the same pixel values for these images."""


def test_the_frozen_results_of_any_two_decodings_or_filters_differ():
    """As a negative control of every comparison with a library, the results of similar libraries must differ.

    For colours, the two libraries are similar: they agree in brightness, and nearly agree in gamma and sharpness.
    """
    values = {
        frozen.key(op): np.concatenate([output.ravel() for output in frozen.outputs(op)[1]]) for op in frozen.every()
    }
    for one, other in combinations(values, 2):
        (stage, _, what), (other_stage, _, other_what) = one.partition(" "), other.partition(" ")
        if stage == other_stage and stage not in ("brightness", "gamma", "sharpness"):
            is_alike = any({what, other_what} <= alike for alike in EQUAL_FILTERS)
            share = (values[one] != values[other]).mean()
            assert is_alike or share > (0.02 if stage == "decode" else 0.003), (one, other)


def test_the_json_has_these_fields_and_null_for_infinity():
    narrow = with_changed_stage("decode", lambda pixels, _: pixels[:, :-1])
    document = json.loads(compare(pipeline(), [*IMAGES, ("broken", b"x")], narrow).to_json())
    assert list(document) == ["is_exact", "summary", "source", "differences", "uncompared", "rows", "absent", "refused"]
    first = document["rows"][0]
    assert " ".join(first) == (
        "output stage original tolerance frozen images values max mean differing beyond worst holds"
    )
    assert (first["max"], " ".join(first["tolerance"])) == (None, "largest ulps why")
    assert [" ".join(omission) for omission in document["absent"] + document["refused"]] == [
        "what why instead remedy"
    ] * 2


def test_differences_are_never_rounded_to_zero_in_the_table():
    row = Row(output="", stage="resize", original="x", tolerance=Tolerance(0, 0, ""))
    row.add("a", np.zeros(100_000, np.uint8), np.zeros(100_000, np.uint8))
    row.add("b", np.array([1], np.uint8), np.array([0], np.uint8))
    assert "<0.01%" in str(Certificate([row])).splitlines()[1]
    assert not Certificate([row]).is_exact
    row.add("c", np.ones(1000, np.uint8), np.zeros(1000, np.uint8))
    assert " 0.99%" in str(Certificate([row])).splitlines()[1]


def test_verify_accepts_files_in_addition_to_generated_images(tmp_path):
    (tmp_path / "china.jpg").write_bytes(photo())
    done = []
    certificate = verify(
        pipeline(), images=[tmp_path / "china.jpg"], originals=ONLY_PILLOW, on_progress=lambda *pair: done.append(pair)
    )
    count = len(images.generated()) + 1
    assert certificate.is_exact, certificate
    assert {row.images for row in certificate.rows} == {count}
    assert done == [(index, count) for index in range(count + 1)]


def test_an_unreadable_file_is_an_error(tmp_path):
    with pytest.raises(pp.PixprepError, match=r"none\.jpg: cannot be read: "):
        compare(pipeline(), [tmp_path / "none.jpg"])


LIBRARIES = {
    "raise RuntimeError('no operator\\nand more')": "installed, but not usable: no operator",
    "import no_such_module": "needs no_such_module",
    "__version__ = '3.1+cpu'": "Keras 3.1",
}


@pytest.mark.parametrize("module", LIBRARIES)
def test_a_library_has_its_version_or_the_reason_why_it_cannot_be_used(tmp_path, module):
    (tmp_path / "keras.py").write_text(module)
    code = "from pixprep.importers.verify.libraries import find; print(find('keras').problem or find('keras'))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert said.stdout.strip() == LIBRARIES[module]


@pytest.mark.parametrize("module", [originals, twins])
def test_the_originals_share_no_pixel_code_with_pixprep(module):
    those = ("images", "libraries", "twins")
    allowed = ("errors", "pipeline.ops", "pipeline.file", "plan.profiles", "spec", "plan.draws.motions.coefficients")
    allowed += tuple(f"importers.verify.{name}" for name in those)
    for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("pixprep"):
            for alias in node.names:
                assert f"{node.module}.{alias.name}.".startswith(tuple(f"pixprep.{name}." for name in allowed))


def test_a_resize_of_normalized_values_cannot_be_compared_with_a_library():
    resize = pp.resize(height=8, width=8, like="torch_float")
    with pytest.raises(pp.PipelineError, match='"torch_float" cannot be verified, because normalize may precede it'):
        verify(pp.Pipeline([pp.decode(), pp.normalize(arithmetic="multiply"), resize, pp.tensor()]))


@pytest.mark.parametrize(
    "op",
    [pp.resize_by_rule(rule="contain", size=64), pp.resize_to_pixels(multiple=28, max_pixels=3136)],
    ids=["a rule", "a number of pixels"],
)
def test_a_resize_by_a_rule_cannot_be_compared_with_a_library(op):
    with pytest.raises(
        pp.PipelineError, match=r"^resize_\w+: an op that computes its size by a rule cannot be verified"
    ):
        verify(pp.Pipeline([pp.decode(), op, pp.tensor(max_size=4096)]))


@pytest.mark.parametrize("op", [pp.crop(box="boxes"), pp.flip(when="boxes"), pp.pad(square=True, fill="boxes")])
def test_per_request_numbers_cannot_be_compared_with_a_library(op):
    with pytest.raises(
        pp.PipelineError, match='"boxes" is an input of the pipeline, which cannot be verified: replace it'
    ):
        verify(pp.Pipeline([pp.decode(), op, pp.resize(height=8, width=8), pp.tensor()]))


# ------------------------------------------------------------------------------------------------ training

TRAINED = [
    pp.decode(),
    pp.random_resized_crop(24, 30, name="window", like=INSTALLED),
    pp.random_flip(),
    pp.color_jitter(0.4, 0.4, 0.4, 0.1, p=0.8),
    pp.random_rotate(30, filter="bilinear", fill=(1, 2, 3)),
    *(pp.random_gray(p=0.3), pp.random_posterize(bits=3), pp.random_solarize(threshold=99), pp.random_invert()),
    *(pp.random_equalize(), pp.random_sharpness(2), pp.random_autocontrast()),
    pp.boxes(),
    pp.normalize(mean=0.4, std=0.3),
    pp.random_erasing(p=1.0, value="random"),
    pp.tensor(only="training"),
]


def certified(ops_, beside=ONLY_PILLOW, **options):
    return verify_training(pp.Pipeline(ops_), images=IMAGES[:2], generate=False, originals=beside, **options)


def test_training_ops_are_compared_with_the_fixed_ops_of_each_sample():
    certificate = certified(TRAINED)
    assert [row.stage for row in certificate.rows] == ["decode", "draw", "resize", "levels", "tensor", "end to end"]
    assert certificate.is_exact, certificate
    assert {row.images for row in certificate.rows} <= {1, 2}
    assert rows(certificate)["draw"].values == 2 * 24 * 30 * 3
    assert json.loads(certificate.to_json())["rows"][1]["stage"] == "draw"


@pytest.mark.parametrize(
    "op",
    [
        pp.random_shortest_size((24, 31, 40), 36, like=INSTALLED),
        pp.random_resize(24, 41, like=INSTALLED),
        pp.scale_jitter(40, 30, like=INSTALLED),
    ],
)
def test_a_random_size_is_compared_with_a_resize_to_it(op):
    certificate = certified([pp.decode(), op, pp.random_flip(), pp.center_crop(24), TRAINED[-1]])
    assert certificate.is_exact, certificate
    assert {"draw", "resize"} <= {row.stage for row in certificate.rows}


RESIZED_TWICE = [
    [pp.resize(40, like=INSTALLED), pp.random_apply([pp.resize(30, like=INSTALLED)], p=0.99)],
    [pp.resize(40, like=INSTALLED), pp.random_rotate(9), pp.random_resized_crop(24, like=INSTALLED)],
]


@pytest.mark.parametrize("ops_", RESIZED_TWICE)
@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_an_image_resized_twice_is_compared_resize_by_resize(ops_, color):
    colours = [] if color == "gray" else [pp.hue(0.1)]
    chain = [pp.decode(color=color), *ops_, pp.center_crop(24), *colours, TRAINED[-1]]
    certificate = certified(chain)
    assert certificate.is_exact, certificate
    assert rows(certificate)["draw"].images == 2
    assert rows(certificate)["resize"].images == 4

    def change(right, op):
        return Original(FORMULA.library, lambda pixels: right.run(pixels) // 2) if op.like == INSTALLED else right

    assert "resize" in failed_stages(certified(chain, ReplacedOriginals(resize=change)))


def test_a_difference_in_training_is_shown_at_the_stage_where_it_arises():
    def change(right, op):
        return Originals().colourist(ops.Hue(factor=op.factor + 0.05)) if isinstance(op, ops.Hue) else right

    chain = [pp.decode(), pp.random_resized_crop(24, like=INSTALLED), pp.color_jitter(hue=0.3), TRAINED[-1]]
    assert certified(chain).is_exact
    found = certified(chain, ReplacedOriginals(levels=change))
    assert failed_stages(found) == ["levels", "end to end"]
    assert rows(found)["levels"].images == 2


def test_recorded_parameters_match_the_pixels():
    """Each recorded parameter must matter: fixed ops with one changed number must give a different tensor."""
    training = pp.Pipeline(
        [*TRAINED[:3], pp.color_jitter(0.4, 0.4, 0.4, 0.1), pp.random_rotate((20, 40)), TRAINED[-1]]
    ).for_training()
    plan, encoded = training.plan, IMAGES[0][1]
    (numbers,) = plan.draw(seed=2, epoch=0, indices=[1])
    with pp.Engine(training) as engine:
        batch = engine.run_batch([encoded], places=[plan.placing(numbers)])
    draws = dict(batch.placed[0].draws)

    def tensor(draws):
        ((_, _, made),) = steps(settled(training, draws), encoded)
        return made["tensor"][0]

    assert np.array_equal(tensor(draws), batch["tensor"][0])
    words = [("window", word) for word in ("top", "left")]
    words += [(key, word) for key in ("color_jitter#0", "random_rotate#0") for word in draws[key]]
    for key, word in words:
        more = 0.1 if isinstance(draws[key][word], float) else 1
        other = draws | {key: draws[key] | {word: draws[key][word] + more * (1 if word != "top" else -1)}}
        other[key] |= {"angle": draws[key]["angle"] + 3} if word == "angle" else {}
        assert not np.array_equal(tensor(other), batch["tensor"][0]), (key, word)
    assert not np.array_equal(
        tensor(draws | {"random_flip#0": {"flip": not draws["random_flip#0"]["flip"]}}), tensor(draws)
    )


OPEN_TENSOR = pp.tensor(name="a", max_size=99, only="training")


@pytest.mark.parametrize(
    ("ops_", "message"),
    [
        (
            [pp.random_zoom_out(), pp.resize(height=9, width=9)],
            "random_zoom_out: no deterministic op is equivalent to this random op",
        ),
        ([pp.random_crop(9, padding=2)], "random_crop: no deterministic op is equivalent to this random op"),
        ([pp.random_iou_crop(), pp.resize(height=9, width=9)], 'random_iou_crop needs the "boxes" of each sample'),
        (
            [pp.random_crop(9), pp.trivial_augment(like="torchvision", filter="bilinear"), pp.equalize()],
            'trivial_augment: "fill": null cannot be verified, because no op with fixed parameters supports it',
        ),
        (
            [pp.resize(20), OPEN_TENSOR, pp.random_rotate(3), pp.random_resized_crop(9)],
            "resize: a tensor before a second resize cannot be verified: remove that tensor",
        ),
        (
            [pp.random_crop(9), pp.aug_mix()],
            "aug_mix: no op with fixed parameters mixes images: verify the pipeline without it",
        ),
    ],
)
def test_ops_without_a_fixed_form_are_rejected_with_a_message(ops_, message):
    def until_a_policy_moves_pixels():
        for seed in range(20):
            certified([pp.decode(), *ops_, TRAINED[-1]], seed=seed)

    with pytest.raises(pp.PipelineError) as caught:
        until_a_policy_moves_pixels()
    assert str(caught.value).startswith(message)


def test_training_ops_with_branches_and_no_training_ops_are_rejected():
    branches = [pp.decode(name="photo"), pp.random_resized_crop(9), TRAINED[-1]]
    branches += [pp.random_resized_crop(8, from_="photo"), pp.tensor(name="small", only="training")]
    with pytest.raises(pp.PipelineError, match=r'"from": a training side with branches cannot be verified: verify'):
        certified(branches)
    with pytest.raises(pp.PipelineError, match="the pipeline has no training side"):
        certified([pp.decode(), pp.center_crop(9), pp.tensor(only="serving")])


def test_an_opencv_warp_is_compared_with_opencv_itself():
    cv2 = pytest.importorskip("cv2", reason="NO OPENCV: its warps were not compared")
    if not cv2.__version__.startswith("4."):
        pytest.skip("NO OPENCV 4: the warps of OpenCV 5 have another arithmetic")
    pixels = noise(40, 50)
    face = ((10.0, 12.0), (30.5, 11.0), (21.0, 22.0))
    for op in (
        ops.Warp(matrix=((1.2, 0.1, -3), (0.2, 0.9, 4)), height=30, width=20, fill=9),
        ops.Warp(quad=((3, 4), (40, 2), (45, 38), (1, 30)), max_size=99, turn=0.5, filter="bicubic"),
        ops.Warp(points=face, template=((5, 5), (25, 5), (15, 16)), height=30, width=30, padding_mode="reflect"),
    ):
        with pp.Engine(pp.Pipeline([ops.Decode(), op, ops.Tensor(dtype="uint8", layout="hwc")])) as engine:
            assert np.array_equal(engine.run([png(pixels)])[0], twins.recoloured(op, pixels))
