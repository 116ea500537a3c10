"""timm's configurations, read without timm: what is understood, and what is said of the rest."""

import json
import sys

import pytest

import pixprep as pp
from pixprep import PipelineError, SetupError
from pixprep.importers.timm import from_timm, load

CONFIG = {
    "url": "",
    "hf_hub_id": "timm/some.thing",
    "input_size": [3, 224, 224],
    "test_input_size": [3, 288, 288],
    "test_crop_pct": 1.0,
    "interpolation": "bicubic",
    "crop_pct": 0.95,
    "crop_mode": "center",
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    "fixed_input_size": False,
    "num_classes": 1000,
    "pool_size": None,
    "classifier": "fc",
}
HUB = {"architecture": "some", "num_features": 9, "tags": ["of the hub"], "pretrained_cfg": CONFIG | {"tag": "thing"}}


def resize(*size, **options):
    return pp.resize(*size, filter="bicubic", like="pillow", **options)


def test_the_ops_of_a_configuration():
    pipeline = from_timm(CONFIG, name="some.thing")
    assert list(pipeline.ops) == [
        pp.decode(apply_exif_orientation=False),
        resize(235),
        pp.center_crop(224),
        pp.normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), arithmetic="divide"),
        pp.tensor(),
    ]
    assert (pipeline.source.library, pipeline.source.name, pipeline.source.profile) == ("timm", "some.thing", "pillow")


def fit(height, width):
    return resize(height=height, width=width, mode="fit", rounding="half_even")


GEOMETRIES = [
    ({"crop_pct": 0.875}, [resize(256), pp.center_crop(224)]),
    ({"crop_pct": None}, [resize(256), pp.center_crop(224)]),
    ({"crop_pct": 1.15}, [resize(194), pp.center_crop(224)]),
    ({"crop_mode": "squash"}, [resize(height=235, width=235), pp.center_crop(224)]),
    ({"crop_mode": "border", "crop_pct": 1}, [fit(224, 224), pp.pad(224, 224, fill=(124, 116, 104))]),
    (
        {"input_size": (3, 1024, 768), "crop_pct": 1.0},
        [resize(height=1024, width=768, mode="cover", rounding="half_even"), pp.center_crop(1024, 768)],
    ),
]


@pytest.mark.parametrize(("changes", "expected"), GEOMETRIES, ids=str)
def test_the_geometry_of_a_crop_mode(changes, expected):
    assert list(from_timm(CONFIG | changes).ops[1:-2]) == expected


def test_the_size_for_tests_is_taken_when_asked_for():
    assert list(from_timm(CONFIG, use_test_size=True).ops[1:-2]) == [resize(288), pp.center_crop(288)]
    without = {name: value for name, value in CONFIG.items() if not name.startswith("test_")}
    assert from_timm(without, use_test_size=True).ops == from_timm(without).ops


MISTAKES = [
    ({"interpolation": "random"}, "\"interpolation\": 'random' is none of nearest, box, bilinear"),
    ({"interpolation": 3}, '"interpolation": 3 must be str'),
    ({"crop_mode": "fancy"}, "\"crop_mode\": 'fancy' is none of center, squash, border"),
    ({"input_size": [1, 28, 28]}, '"input_size": [1, 28, 28] has not 3 channels'),
    ({"input_size": [3, 224]}, '"input_size": [3, 224] must be channels, height and width'),
    ({"input_size": None}, '"input_size": None must be channels, height and width'),
    ({"input_size": 224}, '"input_size": 224 must be list or tuple'),
    ({"input_size": [3, 10**9, 224]}, '"input_size": [3, 1000000000, 224] must be channels, height and width'),
    ({"input_size": [3, 224.5, 224]}, '"input_size": [3, 224.5, 224] must be channels, height and width'),
    ({"input_size": [3, 0, 224]}, '"input_size": [3, 0, 224] must be channels, height and width'),
    ({"crop_pct": 1e-9}, '"crop_pct": 1e-09 must make 1 to 16384 pixels of each side of 224 x 224'),
    ({"crop_pct": 5e-324}, '"crop_pct": 5e-324 must make 1 to 16384 pixels'),
    ({"crop_pct": 10**400}, '"crop_pct": 1000'),
    ({"crop_pct": float("nan")}, '"crop_pct": nan must make 1 to 16384 pixels'),
    ({"crop_pct": -1}, '"crop_pct": -1 must make 1 to 16384 pixels'),
    ({"crop_pct": "0.9"}, "\"crop_pct\": '0.9' must be int or float"),
    ({"mean": [0.5, 0.5]}, '"mean": [0.5, 0.5] must be three numbers'),
    ({"mean": [0.5, float("inf"), 0.5]}, '"mean": [0.5, inf, 0.5] must be three numbers'),
    ({"mean": [10**400, 0, 0]}, '"mean": [1000'),
    ({"std": [0.5, 0, 0.5]}, '"std": [0.5, 0, 0.5] must be over 0'),
    ({"std": [0.5, "0.5", 0.5]}, "\"std\": [0.5, '0.5', 0.5] must be three numbers"),
    ({"crop_mode": "border"}, '"crop_pct": 0.95 must be 1 with "crop_mode": "border"'),
    ({"crop_mode": "border", "crop_pct": 1, "mean": [-1, 0, 2]}, '"mean": [-1, 0, 2] is not the colour of a margin'),
    ({"rotate": 90}, '"rotate": 90 is not understood'),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES, ids=lambda x: str(x)[:40])
def test_what_is_not_understood_is_refused_by_its_field(changes, message):
    with pytest.raises(PipelineError) as error:
        from_timm(CONFIG | changes, name="some.thing")
    assert str(error.value).startswith(f"some.thing: {message}")


def test_a_field_of_the_test_size_is_named_as_such():
    with pytest.raises(PipelineError, match=r'"test_input_size": .* must be channels'):
        from_timm(CONFIG | {"test_input_size": [288]}, use_test_size=True)
    with pytest.raises(PipelineError, match='"test_crop_pct": 99999 must make'):
        from_timm(CONFIG | {"test_crop_pct": 99999}, use_test_size=True)


def write(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def test_the_configuration_of_a_hub_is_read_without_timm(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm.models", None)
    pipeline = load(write(tmp_path, HUB))
    assert pipeline.ops == from_timm(CONFIG).ops
    assert pipeline.source.name == "some.thing"


def test_the_flat_configuration_of_an_old_hub_is_read_too(tmp_path):
    flat = CONFIG | {"architecture": "some", "labels": ["cat"], "num_features": 9}
    assert load(write(tmp_path, flat)).ops == from_timm(CONFIG).ops


FILES = [
    ({"architectures": ["ViTModel"], "hidden_size": 768}, 'config.json: has no "input_size"'),
    ({"pretrained_cfg": {"architecture": "some"}}, 'config.json: has no "input_size"'),
    ({"pretrained_cfg": 3}, 'config.json: "pretrained_cfg": 3 must be Mapping'),
    (HUB | {"model_args": {"in_chans": 1}}, 'config.json: model_args: "in_chans": 1 is not 3'),
    ([1, 2], "config.json: must be a JSON object"),
    ("{", "config.json: is not JSON"),
    ("[" * 100_000, "config.json: is not JSON"),
    ('{"input_size": 1' + "0" * 5000 + "}", "config.json: is not JSON"),
    ("", "config.json: is not JSON"),
]


@pytest.mark.parametrize(("content", "message"), FILES, ids=lambda x: str(x)[:40])
def test_a_file_that_is_something_else_is_refused(content, message, tmp_path):
    with pytest.raises(PipelineError) as error:
        load(write(tmp_path, content))
    assert str(error.value).startswith(message)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(PipelineError, match=r"^config\.json: cannot be read: No such file"):
        load(str(tmp_path / "config.json"))


def test_a_name_needs_timm_and_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm.models", None)
    with pytest.raises(SetupError, match=r'^"resnet50" is the name of a model.*: pip install timm, or give the config'):
        load("resnet50")
