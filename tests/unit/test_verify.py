"""The certificate: what it compares, what it catches, and what it says."""

import ast
import hashlib
import json
import sys
from dataclasses import replace
from itertools import starmap
from pathlib import Path

import numpy as np
import pytest

import pixprep as pp
from images import checkerboard, jpeg, noise, photo, png, scene
from pixprep import ops
from pixprep.verify import Certificate, Originals, frozen, libraries, originals, verify
from pixprep.verify.comparison import compare
from pixprep.verify.images import generated
from pixprep.verify.libraries import absent, find
from pixprep.verify.originals import Original
from pixprep.verify.report import Tally, Tolerance
from pixprep.verify.stages import Stage

IMAGES = [
    ("scene", jpeg(scene(75, 61))),
    ("noise", png(noise(40, 90))),
    ("board", png(checkerboard(64, 64))),
    ("row", png(noise(1, 50))),
]
EVERY_FILTER = [
    (like, antialias, name)
    for (like, antialias), names in ops.FILTERS.items()
    for name in names
    if like != "pillow" or antialias
]


def pipeline(*, arithmetic="divide", filter="bilinear", dtype="float32", source=None):  # noqa: A002
    return pp.Pipeline(
        [
            pp.decode(),
            pp.resize(32, filter=filter),
            pp.center_crop(29),
            pp.normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), arithmetic=arithmetic),
            pp.tensor(dtype=dtype),
        ],
        source=source,
    )


def nothing_but(*keys):
    """Libraries of which only these are installed."""

    def look(key):
        library = find(key)
        return library if key in (*keys, "numpy") else replace(library, version=None, problem="not installed")

    return look


BARE = Originals(nothing_but("pillow"))


class Wrong(Originals):
    """Pillow and NumPy, with one stage done otherwise."""

    def __init__(self, stage, change):
        super().__init__(nothing_but("pillow"))
        self._stage = stage
        self._change = change

    def _made(self, stage, original, op):
        if stage != self._stage:
            return original
        return Original(original.library, lambda value: self._change(original.run(value), op))

    def decoder(self, op):
        return self._made("decode", super().decoder(op), op)

    def resizer(self, op):
        return self._made("resize", super().resizer(op), op)

    def normalizer(self, op, *, is_real):
        return self._made("tensor", super().normalizer(op, is_real=is_real), op)


class Other(Originals):
    """Pillow with another filter than the pipeline says."""

    def __init__(self, filter_name):
        super().__init__(nothing_but("pillow"))
        self._filter = filter_name

    def resizer(self, op):
        return super().resizer(ops.Resize(op.size, filter=self._filter, rounding=op.rounding, antialias=op.antialias))


def rows(certificate):
    return {row.stage: row for row in certificate.rows}


def off_by(levels):
    """One value in the middle of each image is off."""

    def change(values, _):
        changed = values.copy()
        place = tuple(side // 2 for side in values.shape)
        changed[place] = values[place] + levels if values[place] < 128 else values[place] - levels
        return changed

    return change


def test_an_exact_pipeline_has_a_row_for_each_stage_and_no_difference():
    certificate = compare(pipeline(), IMAGES, BARE)
    assert [row.stage for row in certificate.rows] == ["decode", "resize", "tensor", "end to end"]
    for row in certificate.rows:
        assert (row.images, row.max, row.mean, row.differing, row.worst, row.frozen) == (4, 0, 0, 0, None, False)
    assert certificate.rows[0].values == sum(image.size for image in map(pixels_of, IMAGES))
    assert certificate.is_exact
    assert certificate.holds
    assert str(certificate).endswith(f"\nexact: the pixels of {find('pillow')}")


def pixels_of(image):
    return originals._decode(image[1], ops.Decode())


@pytest.mark.parametrize("other", ["hamming", "box", "bicubic", "nearest"])
def test_a_neighbouring_filter_is_caught(other):
    certificate = compare(pipeline(), IMAGES, Other(other))
    by_stage = rows(certificate)
    assert not certificate.holds
    assert not by_stage["resize"].holds
    assert not by_stage["end to end"].holds
    assert by_stage["decode"].holds
    assert by_stage["tensor"].holds
    assert certificate.summary.startswith('NOT exact: resize of "tensor": ')


def test_the_right_filter_passes_through_the_same_seam():
    assert compare(pipeline(filter="hamming"), IMAGES, Other("hamming")).is_exact


@pytest.mark.parametrize(
    ("stage", "change", "failing"),
    [
        ("decode", lambda pixels, _: pixels[:, :, ::-1], ["decode", "end to end"]),
        ("decode", off_by(1), ["decode"]),
        ("resize", off_by(1), ["resize", "end to end"]),
        ("resize", lambda levels, _: levels[::-1], ["resize", "end to end"]),
        ("tensor", lambda values, _: np.nextafter(values, np.float32(9)), ["tensor", "end to end"]),
        ("tensor", lambda values, op: values * op.std[0], ["tensor", "end to end"]),
    ],
)
def test_a_difference_is_shown_where_it_arises(stage, change, failing):
    certificate = compare(pipeline(), IMAGES[:2], Wrong(stage, change))
    wrong = [row.stage for row in certificate.rows if not row.holds]
    assert wrong[: len(failing)] == failing
    assert set(wrong) <= {*failing, "end to end"}
    assert not certificate.holds
    assert not certificate.is_exact


def test_the_worst_image_is_named():
    def change(levels, _):
        return levels ^ np.uint8(64) if levels.shape[1] > 60 else off_by(1)(levels, None)

    row = rows(compare(pipeline(), IMAGES, Wrong("resize", change)))["resize"]
    assert (row.max, row.worst) == (64, "noise")


def test_one_level_is_allowed_where_exactness_is_not_claimed():
    class Near(Originals):
        """In DALI's place pixprep itself, by so many levels beside."""

        def __init__(self, by):
            super().__init__(nothing_but("pillow"))
            self._by = by

        def resizer(self, op):
            ours = Stage([ops.Decode(), op])
            return Original(find("pillow"), lambda pixels: add(ours.run(png(pixels)), self._by))

    resize = pp.resize(height=30, width=31, like="dali")
    near = pp.Pipeline([pp.decode(), resize, pp.normalize(mean=0.5, std=0.2), pp.tensor()])
    equal, one, two = (compare(near, IMAGES, Near(by)) for by in (0, 1, 2))
    assert rows(equal)["end to end"].differing == 0
    assert rows(one)["end to end"].differing == 1
    assert (one.claim, one.holds, one.is_exact) == ("near", True, False)
    assert "within one level of Pillow" in one.summary
    assert (two.holds, two.is_exact) == (False, False)
    assert two.summary.startswith('NOT within its tolerance: resize of "tensor"')


def add(levels, by):
    return np.where(levels < 128, levels + by, levels - by).astype(np.uint8)


def test_float64_may_be_one_ulp_off_and_float32_arithmetic_may_not():
    def nudge(values, _):
        return np.nextafter(values.astype(np.float32), np.float32(9))

    wrong = Wrong("tensor", nudge)
    assert compare(pipeline(arithmetic="float64"), IMAGES[:1], wrong).holds
    assert not compare(pipeline(arithmetic="divide"), IMAGES[:1], wrong).holds
    twice = Wrong("tensor", lambda values, _: nudge(nudge(values, _), _))
    assert not compare(pipeline(arithmetic="float64"), IMAGES[:1], twice).holds


@pytest.mark.parametrize("arithmetic", ["float64", "divide", "multiply", "fused", "fused_multiply"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_each_arithmetic_equals_its_own_formula(arithmetic, dtype):
    certificate = compare(pipeline(arithmetic=arithmetic, dtype=dtype), IMAGES[:2], BARE)
    assert certificate.is_exact, certificate


def test_another_arithmetic_is_caught():
    class Multiplied(Originals):
        def normalizer(self, op, *, is_real):
            return super().normalizer(ops.Normalize(mean=op.mean, std=op.std, arithmetic="multiply"), is_real=is_real)

    certificate = compare(pipeline(), IMAGES, Multiplied(nothing_but("pillow")))
    assert [row.stage for row in certificate.rows if not row.holds] == ["tensor", "end to end"]


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
    "letterbox": [pp.decode(), pp.letterbox(48, 53), pp.normalize(), pp.transform(), pp.tensor()],
    "crop before": [pp.decode(), pp.center_crop(fraction=0.9), pp.resize(height=9, width=8), pp.tensor()],
    "not widened": [
        pp.decode(),
        pp.resize(height=21, width=80, antialias=False, filter="bicubic"),
        pp.tensor(),
    ],
    "crop after normalize": [
        pp.decode(),
        pp.resize(32),
        pp.normalize(),
        pp.flip(),
        pp.crop(1, 2, 20, 21),
        pp.normalize(mean=0.25, std=0.5, scale=1),
        pp.tensor(),
    ],
}


@pytest.mark.parametrize("name", AWKWARD)
def test_every_op_has_an_original(name):
    certificate = compare(pp.Pipeline(AWKWARD[name]), IMAGES, BARE)
    assert certificate.is_exact, certificate
    assert not certificate.refused


def test_each_tensor_of_a_pipeline_has_its_own_rows():
    two = pp.Pipeline(
        [
            pp.decode(name="image"),
            pp.resize(32),
            pp.center_crop(32),
            pp.tensor(name="small", dtype="uint8"),
            pp.resize(height=50, width=40, filter="box", from_="image"),
            pp.original_size(),
            pp.tensor(name="large"),
        ]
    )
    certificate = compare(two, IMAGES, BARE)
    assert [row.output for row in certificate.rows] == ["", *["small"] * 3, *["large"] * 3]
    assert certificate.is_exact


def test_an_image_that_the_pipeline_refuses_is_named_and_not_compared():
    crop = pp.Pipeline([pp.decode(), pp.crop(0, 0, 30, 30), pp.tensor()])
    certificate = compare(crop, [*IMAGES, ("broken", b"\xff\xd8\xff no image")], BARE)
    assert [refusal.image for refusal in certificate.refused] == ["row", "broken"]
    assert "DOES_NOT_FIT" in certificate.refused[0].reason
    assert [row.images for row in certificate.rows] == [4, 3, 3, 3]
    assert certificate.is_exact
    assert "row: not compared" in str(certificate)


def test_an_image_that_only_the_original_refuses_is_named():
    def change(_, __):
        raise ValueError("no such sampling")

    with pytest.raises(pp.PixprepError, match=r"no image was compared.*no such sampling"):
        compare(pipeline(), IMAGES, Wrong("decode", change))


def test_a_certificate_of_no_image_is_not_given():
    crop = pp.Pipeline([pp.decode(), pp.crop(0, 0, 3000, 3000), pp.tensor()])
    with pytest.raises(pp.PixprepError, match=r"no image was compared, of 4; scene: .*DOES_NOT_FIT"):
        compare(crop, IMAGES, BARE)


def test_a_missing_library_is_replaced_by_frozen_results_and_the_report_says_so():
    torch = pp.Pipeline([pp.decode(), pp.resize(height=30, width=31, like="torchvision"), pp.tensor(dtype="uint8")])
    certificate = compare(torch, IMAGES, BARE)
    assert [(row.stage, row.frozen) for row in certificate.rows] == [
        ("decode", False),
        ("resize", True),
        ("tensor", False),
    ]
    assert rows(certificate)["resize"].images == len(frozen.CASES)
    (absence,) = certificate.absent
    assert (absence.library, absence.problem) == ("torchvision", "not installed")
    assert absence.remedy == "pip install torchvision"
    assert "nothing end to end" in absence.instead
    assert ", and as far as frozen results say, those of torchvision 0." in certificate.summary
    assert certificate.is_exact


def test_frozen_results_may_be_forbidden():
    torch = pp.Pipeline([pp.decode(), pp.resize(height=30, width=31, like="torchvision"), pp.tensor(dtype="uint8")])
    with pytest.raises(pp.SetupError, match=r"torchvision: not installed .*: pip install torchvision"):
        compare(torch, IMAGES, BARE, may_freeze=False)


@pytest.mark.parametrize(("idct", "chroma"), [("accurate", "fancy"), ("accurate", "fast"), ("fast", "fancy")])
def test_each_kind_of_decoding_equals_its_frozen_results(idct, chroma):
    decode = pp.Pipeline([pp.decode(idct=idct, chroma=chroma), pp.center_crop(20), pp.tensor(dtype="uint8")])
    row = compare(decode, IMAGES[:1], Originals(absent)).rows[0]
    assert (row.stage, row.frozen, row.images, row.max) == ("decode", True, 5, 0)


def test_another_kind_of_decoding_differs_from_the_frozen_results():
    kinds = [ops.Decode(idct=idct, chroma=chroma) for idct in ("accurate", "fast") for chroma in ("fancy", "fast")]
    pixels = [np.concatenate([x.ravel() for x in frozen.decoded(op).outputs]).astype(int) for op in kinds]
    for index, one in enumerate(pixels):
        for other in pixels[index + 1 :]:
            assert (one != other).mean() > 0.02


@pytest.mark.parametrize(("like", "antialias", "name"), EVERY_FILTER)
def test_every_filter_equals_its_frozen_results(like, antialias, name):
    resize = pp.resize(height=8, width=9, like=like, filter=name, antialias=antialias)
    certificate = compare(pp.Pipeline([pp.decode(), resize, pp.tensor()]), IMAGES[:1], Originals(absent))
    row = rows(certificate)["resize"]
    assert (row.frozen, row.images) == (True, len(frozen.CASES))
    assert certificate.holds, certificate
    assert certificate.claim == ("near" if like == "dali" else "exact")


NEIGHBOURS = [
    (("pillow", True, "bilinear"), ("torchvision", True, "bilinear")),
    (("pillow", True, "bicubic"), ("torchvision", True, "bicubic")),
    (("torchvision", True, "bicubic"), ("torch", True, "bicubic")),
    (("torchvision", False, "bilinear"), ("opencv", False, "bilinear")),
    (("opencv", False, "bicubic"), ("torchvision", False, "bicubic")),
    (("opencv", False, "area"), ("pillow", True, "box")),
    (("opencv", False, "nearest"), ("pillow", True, "nearest")),
    (("tensorflow", False, "bilinear"), ("tensorflow", True, "bilinear")),
    (("dali", True, "bilinear"), ("pillow", True, "bilinear")),
]


@pytest.mark.parametrize(("one", "other"), NEIGHBOURS)
def test_the_frozen_results_of_a_neighbour_differ(one, other):
    def outputs(key):
        like, antialias, name = key
        vectors = frozen.resized(ops.Resize(height=1, width=1, like=like, antialias=antialias, filter=name))
        return np.concatenate([output.ravel() for output in vectors.outputs]).astype(float)

    assert (outputs(one) != outputs(other)).mean() > 0.001


def test_frozen_images_can_be_made_again_to_the_last_bit():
    digest = hashlib.sha256(b"".join(frozen.source(index).tobytes() for index in range(len(frozen.CASES))))
    assert digest.hexdigest() == "ff4bbce75b3e3d84349061eef04ce54fa4be328bc99d5c6bd2f5e90323a30514"


def test_the_frozen_file_is_small_and_the_same_arrays_give_the_same_bytes(tmp_path):
    assert frozen.FILE.stat().st_size <= 400_000
    arrays, names = frozen.load(frozen.FILE)
    frozen.save(tmp_path / "again.npz", arrays, names)
    assert (tmp_path / "again.npz").read_bytes() == frozen.FILE.read_bytes()


def test_the_json_has_these_fields():
    document = json.loads(compare(pipeline(), [*IMAGES, ("broken", b"x")], BARE).to_json())
    assert list(document) == ["claim", "is_exact", "holds", "summary", "rows", "absent", "refused"]
    assert list(document["rows"][0]) == [
        *("output", "stage", "original", "frozen", "images", "values", "max", "mean", "differing", "worst"),
        *("allowed", "why", "beyond", "holds"),
    ]
    assert [list(absence) for absence in document["absent"]] == [["library", "problem", "remedy", "instead"]]
    assert document["refused"] == [
        {"image": "broken", "by": "pixprep", "reason": "[UNKNOWN_FORMAT] not a JPEG, PNG, WebP, BMP, TIFF or GIF file"}
    ]


def test_another_shape_is_a_failure_and_valid_json():
    certificate = compare(
        pipeline(), IMAGES, Wrong("decode", lambda pixels, _: pixels[:-1] if len(pixels) > 1 else pixels)
    )
    assert not certificate.holds
    assert json.loads(certificate.to_json())["rows"][0]["max"] is None


def test_not_a_number_is_a_failure():
    tally = Tally("", "tensor", ["x"], Tolerance(1, 1, "anything"))
    tally.add("image", np.array([np.nan, 0], np.float32), np.zeros(2, np.float32))
    assert tally.row.beyond == 1


def test_no_difference_is_rounded_away_in_the_table():
    tally = Tally("", "resize", ["x"], Tolerance(0, 0, ""))
    big = np.zeros(100_000, np.uint8)
    tally.add("a", big, big)
    tally.add("b", np.array([1], np.uint8), np.array([0], np.uint8))
    certificate = Certificate(claim="exact", rows=(tally.row,), absent=(), refused=())
    assert "<0.01%" in str(certificate)
    assert not certificate.holds


def test_verify_takes_files_beside_the_generated_images(tmp_path):
    (tmp_path / "china.jpg").write_bytes(photo())
    done = []
    certificate = verify(
        pipeline(), images=[tmp_path / "china.jpg"], originals=BARE, on_progress=lambda *pair: done.append(pair)
    )
    count = len(generated()) + 1
    assert certificate.is_exact, certificate
    assert {row.images for row in certificate.rows} == {count}
    assert done[0] == (0, count)
    assert done[-1] == (count, count)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(pp.PixprepError, match=r"none\.jpg: cannot be read: No such file"):
        compare(pipeline(), [("none", tmp_path / "none.jpg")], BARE)


def test_frozen_true_takes_no_library_at_all():
    names = [image for image in IMAGES if image[0] == "row"]
    certificate = compare(pipeline(), names, Originals(absent))
    assert [row.frozen for row in certificate.rows] == [True, True, False]
    assert {absence.problem for absence in certificate.absent} == {"left out for frozen vectors"}


def test_the_whole_transform_of_the_source_is_compared_with():
    class Known(Originals):
        def __init__(self, scale):
            super().__init__(nothing_but("pillow"))
            self._scale = scale

        def complete(self, source, size):
            assert (source.name, size) == ("a model", (29, 29))
            return Original(find("numpy"), self._transform)

        def _transform(self, pixels):
            chain = pipeline().ops
            resized = originals.geometry(chain, self.resizer(chain[1]).run, pixels)
            return self.normalizer(chain[3], is_real=False).run(resized) * self._scale

    imported = pipeline(source=pp.Source(library="timm", version="1", name="a model", profile="pillow"))
    right, wrong = (compare(imported, IMAGES, Known(np.float32(scale))) for scale in (1, 1.001))
    assert right.rows[-1].stage == wrong.rows[-1].stage == "source"
    assert right.is_exact
    assert wrong.summary.startswith('NOT exact: source of "tensor"')


def test_a_source_whose_name_says_no_transform_is_noted():
    source = pp.Source(library="transformers", version="5", name="a/model", profile="pillow")
    certificate = compare(pipeline(source=source), IMAGES[:1], BARE)
    assert 'transformers: has no transform by the name "a/model" alone; compared op by op' in str(certificate)
    assert certificate.is_exact


def test_a_library_that_fails_to_import_is_not_usable(tmp_path, monkeypatch):
    (tmp_path / "keras.py").write_text("raise RuntimeError('operator torchvision::nms does not exist\\nmore')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    library = find.__wrapped__("keras")
    assert not library.is_usable
    assert library.problem == "installed, but not usable: operator torchvision::nms does not exist"


def test_a_library_that_lacks_a_dependency_says_which(tmp_path, monkeypatch):
    (tmp_path / "timm.py").write_text("import no_such_module_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    assert find.__wrapped__("timm").problem == "needs no_such_module_at_all"


def test_every_library_of_a_filter_is_in_the_table():
    assert {like for like, _ in ops.FILTERS} <= {*libraries.TABLE, "torch"}


def test_the_originals_share_no_pixel_code_with_pixprep():
    tree = ast.parse(Path(originals.__file__).read_text(encoding="utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("pixprep")
        for name in [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    }
    allowed = {"pixprep", "pixprep.ops", "pixprep.pipeline_file", "pixprep.spec", "pixprep.verify"}
    for name in imported:
        assert name in allowed or name.rpartition(".")[0] in allowed or name.startswith("pixprep.verify."), name


def test_generated_images_are_many_and_named_apart():
    images = generated()
    assert len({name for name, _ in images}) == len(images) >= 20
    sizes = list(starmap(lambda _, encoded: pixels_of(("", encoded)).shape, images))
    assert any(1 in size[:2] for size in sizes)
    assert max(height * width for height, width, _ in sizes) > 1_000_000


def test_a_stage_is_the_pipeline_up_to_there():
    (levels,) = (Stage([ops.Decode(), ops.CenterCrop(height=20)]).run(encoded) for _, encoded in IMAGES[:1])
    assert np.array_equal(levels, originals.geometry([ops.CenterCrop(height=20)], np.asarray, pixels_of(IMAGES[0])))
