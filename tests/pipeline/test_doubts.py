"""Tests that valid but probably unintended pipelines are rejected or reported, and that no common pipeline is."""

import pytest

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.errors import PipelineError
from pixprep.importers.transformers import from_transformers
from pixprep.importers.verify import verify
from pixprep.pipeline.warnings import black_margins, odd_ranges
from pixprep.serving.repository import build, check, check_pipeline
from pixprep.show.preview import preview
from support.hub_configs import EXACT
from support.images import jpeg, scene

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
LEVEL_MEAN, LEVEL_STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
USUAL = [
    pp.normalize(mean=MEAN, std=STD), pp.normalize(mean=LEVEL_MEAN, std=LEVEL_STD, scale=1),
    pp.normalize(mean=LEVEL_MEAN, scale=1), pp.normalize(mean=0.5, std=0.5), pp.normalize(mean=1, scale=1 / 127.5),
    pp.normalize(scale=1), pp.normalize(),
]  # fmt: skip
SCALE_1 = 'did you mean "scale": 1?'
DEFAULT = 'did you mean "scale": 1/255, the default?'


def pipeline(*ops, size=256, crop=224):
    return pp.Pipeline([pp.decode(), pp.resize(size), pp.center_crop(crop), *ops, pp.tensor()])


UNUSUAL_RANGES = pipeline(pp.normalize(mean=LEVEL_MEAN, std=LEVEL_STD))
ODD_TEXT = f'ops[3] "normalize": the values of "tensor" range from -2.118 to -1.787 (a range of only 0.017): {SCALE_1}'


@pytest.mark.parametrize("op", USUAL)
def test_common_value_ranges_are_not_reported(op):
    assert odd_ranges(pipeline(op)) == []


def test_no_processor_of_the_hub_has_an_odd_range_or_black_padding():
    for config in EXACT.values():
        imported = from_transformers(config)
        assert (odd_ranges(imported), black_margins(imported)) == ([], [])


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (pp.normalize(mean=127.5, std=127.5), f"-1 to -0.9922 (a range of only 0.0078): {SCALE_1}"),
        (
            pp.normalize(mean=MEAN, std=STD, scale=1),
            f"-2.118 to 1136 (neither pixel values of 0 to 255 nor normalized values): {DEFAULT}",
        ),
        (
            pp.normalize(mean=MEAN, scale=1),
            f"-0.485 to 254.6 (pixel values of 0 to 255 minus a mean of 0.485): {DEFAULT}",
        ),
        (
            pp.normalize(mean=30, std=2, scale=0.02),
            "-15 to -12.45 (far from 0): compare mean, std and scale with those of the training",
        ),
    ],
)
def test_an_odd_range_is_reported_with_the_probable_intention(op, text):
    assert odd_ranges(pipeline(op)) == [f'ops[3] "normalize": the values of "tensor" range from {text}']


def test_the_first_use_of_a_pipeline_reports_its_odd_range(caplog):
    photo = jpeg(scene(300, 300))
    for use in (pp.Engine, lambda each, **options: pp.Loader([{"image": photo}], each, batch_size=1, **options)):
        use(UNUSUAL_RANGES, odd_range=True).close()
        use(pipeline(USUAL[0])).close()
        assert caplog.text == ""
        use(UNUSUAL_RANGES).close()
        assert [record.message for record in caplog.records] == [
            f"{ODD_TEXT}; if this is intended, pass odd_range=True"
        ]
        caplog.clear()


def test_tools_that_show_a_pipeline_do_not_warn_about_their_own_pipelines(caplog):
    preview(UNUSUAL_RANGES, jpeg(scene(300, 300)))
    verify(UNUSUAL_RANGES, images=[("photo", jpeg(scene(300, 300)))], generate=False)
    assert caplog.text == ""


def test_the_odd_one_of_several_outputs_is_named():
    several = pp.Pipeline(
        [
            pp.decode(), pp.resize(height=8, width=8), pp.tensor(name="levels", dtype="uint8"),
            pp.normalize(mean=LEVEL_MEAN, std=LEVEL_STD), pp.tensor(name="small"), pp.transform(),
        ]
    )  # fmt: skip
    assert [text.partition(" range")[0] for text in odd_ranges(several)] == [
        'ops[3] "normalize": the values of "small"'
    ]


def test_a_second_normalize_is_reported():
    once = pp.normalize(mean=MEAN, std=STD)
    (text,) = odd_ranges(pipeline(once, once))
    assert text.startswith('ops[4] "normalize": ')
    assert text.endswith(": ops[3] already normalizes: remove this op")
    (text,) = odd_ranges(pipeline(pp.normalize(scale=1), pp.normalize(mean=MEAN, std=STD, scale=1)))
    assert text.endswith(DEFAULT)


def test_a_crop_larger_than_the_resized_image_is_reported():
    assert black_margins(pipeline(size=224, crop=256)) == [
        'ops[2] "center_crop": a photo of 480 x 640 fills only 224 x 256 pixels of "tensor", and the rest of its '
        "256 x 256 pixels is black: increase the size of the resize, or decrease the size of the crop"
    ]
    assert black_margins(pipeline()) == []
    meant = pp.Pipeline(
        [pp.decode(), pp.resize(224, side="longer"), pp.pad(256, 256), pp.center_crop(224), pp.tensor()]
    )
    assert black_margins(meant) == []


def test_check_and_build_reject_an_odd_range_unless_it_is_meant(tmp_path, capsys):
    file, models = tmp_path / "pipeline.json", tmp_path / "models"
    UNUSUAL_RANGES.save(file)
    assert list(map(str, check_pipeline(file))) == [
        f"pipeline.json: {ODD_TEXT}: or pass --odd-range if this is intended"
    ]
    assert check_pipeline(file, odd_range=True) == []
    assert main(["check", str(file), "--odd-range"]) == 0
    assert capsys.readouterr() == (f"{file}: no problem found\n", "")
    with pytest.raises(PipelineError) as caught:
        build(models, pipeline=UNUSUAL_RANGES)
    assert str(caught.value) == f"{ODD_TEXT}; or pass --odd-range if this is intended"
    assert not models.exists()
    capsys.readouterr()


def test_check_warns_about_black_padding(tmp_path, capsys):
    file = tmp_path / "pipeline.json"
    margin = pipeline(size=224, crop=256)
    margin.save(file)
    assert main(["check", str(file), "--odd-range"]) == 0
    assert capsys.readouterr() == (f"{file}: no problem found\n", f"pipeline.json: {black_margins(margin)[0]}\n")


def test_a_repository_can_declare_that_an_odd_range_is_meant(tmp_path):
    folder = tmp_path / "models" / "photo.pixprep"
    (folder / "1").mkdir(parents=True)
    UNUSUAL_RANGES.save(folder / "1" / "pipeline.json")
    remedy = 'or set the parameter odd_range to "meant" in photo.pixprep/config.pbtxt'
    assert list(map(str, check(folder.parent))) == [f"photo.pixprep/1/pipeline.json: {ODD_TEXT}: {remedy}"]
    (folder / "config.pbtxt").write_text('parameters { key: "odd_range" value { string_value: "meant" } }')
    assert check(folder.parent) == []
