"""Tests that timm's configurations are imported without timm, and the errors for unsupported configurations."""

import json
import sys

import pytest

import pixprep as pp
from pixprep.importers import import_pipeline
from pixprep.importers.timm import from_timm
from support.importing import only, refusal
from support.sources import TIMM as CONFIG

HUB = {"architecture": "some", "num_features": 9, "tags": ["of the hub"], "pretrained_cfg": CONFIG | {"tag": "thing"}}


def resize(*size, **options):
    return pp.resize(*size, filter="bicubic", like="pillow", **options)


def test_the_origin_is_timm_and_the_pixels_are_pillows():
    origin = from_timm(CONFIG, name="some.thing").origin
    assert (origin.library, origin.name, origin.profile) == ("timm", "some.thing", "pillow")


def test_the_test_size_is_used_on_request():
    assert list(from_timm(CONFIG, use_test_size=True).ops[1:-2]) == [resize(288), pp.center_crop(288)]
    without = {name: value for name, value in CONFIG.items() if not name.startswith("test_")}
    assert from_timm(without, use_test_size=True).ops == from_timm(without).ops


def write(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_the_configuration_of_a_hub_is_read_without_timm(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm.models", None)
    pipeline = from_timm(write(tmp_path, HUB))
    assert pipeline == from_timm(str(tmp_path / "config.json"))
    assert pipeline.ops == from_timm(CONFIG).ops == from_timm(HUB).ops
    assert pipeline.origin.name == "some.thing"


def test_the_flat_configuration_of_an_old_hub_is_also_read(tmp_path):
    flat = CONFIG | {"architecture": "some", "labels": ["cat"], "num_features": 9}
    assert from_timm(write(tmp_path, flat)).ops == from_timm(CONFIG).ops


def test_a_model_name_without_timm_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm.models", None)
    with pytest.raises(
        pp.SetupError, match=r'"resnet50" is the name of a model, which requires timm \(import of timm\.models'
    ):
        from_timm("resnet50")


def test_timms_arguments_become_training_ops():
    pipeline = from_timm(CONFIG, training={})
    assert pipeline.sides == ("serving", "training")
    assert pipeline.side_ops == tuple(
        only(op, "serving") if isinstance(op, pp.resize | pp.center_crop) else op for op in from_timm(CONFIG).ops
    )
    assert pipeline.for_training().side_ops[1:-2] == (
        pp.random_resized_crop(224, filter="bicubic"),
        pp.random_flip(),
        pp.color_jitter(0.4, 0.4, 0.4),
    )
    assert pp.Pipeline.from_json(pipeline.to_json()) == pipeline


SPELLED = {
    "aa": "rand-m9",
    "--reprob": 0.2,
    "recount": 3,
    "remode": "const",
    "color-jitter": 0.3,
    "train_interpolation": "bicubic",
}
"""Options as timm's train.py defines them."""


def test_command_line_options_are_arguments_with_different_names():
    plain = {"auto_augment": "rand-m9", "re_prob": 0.2, "re_count": 3, "color_jitter": 0.3, "interpolation": "bicubic"}
    assert from_timm(CONFIG, training=SPELLED).ops == from_timm(CONFIG, training=plain).ops


def test_command_line_options_can_be_combined_with_the_importers_options(tmp_path):
    config, train = write(tmp_path, HUB), tmp_path / "train.json"
    train.write_text(json.dumps({"aa": "rand-m9", "remode": "const"}), encoding="utf-8")
    rest = {name.strip("-").replace("-", "_"): SPELLED[name] for name in SPELLED if name not in ("aa", "remode")}
    whole = import_pipeline(f"timm:{config}", training=str(train), **rest)
    assert whole.ops == from_timm(CONFIG, training=SPELLED).ops
    assert import_pipeline(f"timm:{config}", scale=[0.2, 0.9]).for_training().side_ops[1].scale == (0.2, 0.9)
    twice = refusal(import_pipeline, f"timm:{config}", training=str(train), auto_augment="v0")
    assert twice == "train.json: auto_augment is given twice, once as 'auto_augment'"
    wrong = refusal(import_pipeline, f"timm:{config}", use_testsize=True)
    assert wrong == 'options of train.py and create_transform: "use_testsize": True is not supported'


def test_command_line_options_imply_the_command_lines_defaults():
    plain = {"re_prob": 0.2, "re_mode": "pixel", "interpolation": "random"}
    assert from_timm(CONFIG, training={"reprob": 0.2}).ops == from_timm(CONFIG, training=plain).ops
    assert from_timm(CONFIG, training={"re_num_splits": 0}).ops == from_timm(CONFIG, training={}).ops
    squeezed = from_timm(CONFIG, training={"no-aug": True}).for_training().side_ops
    assert squeezed[1] == pp.resize(height=224, width=224, filter="bicubic", only="training")


def test_different_means_in_training_are_rejected():
    text = refusal(from_timm, CONFIG, training={"mean": (0.5, 0.5, 0.5)}, name="some")
    assert text.startswith('some: ops: the values of the tensor "tensor" must be the same in training (')
