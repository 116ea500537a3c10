"""Tests that an import merges training and serving ops into one list, and tests ``pixprep import --training``."""

import json
import sys

import pytest

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.importers.assembly import both_sides
from support.importing import only

CONFIG = {"input_size": [3, 224, 224]}

DECODE, TENSOR = pp.decode(), pp.tensor()
CROP, FLIP = pp.random_resized_crop(8), pp.random_flip()
RESIZE, CENTER, NORMALIZE = pp.resize(9), pp.center_crop(8), pp.normalize(mean=0.5)


def test_common_ops_are_written_once():
    training = [DECODE, CROP, FLIP, NORMALIZE, pp.random_erasing(), TENSOR]
    serving = [DECODE, RESIZE, CENTER, NORMALIZE, TENSOR]
    expected = [DECODE, CROP, FLIP, only(RESIZE, "serving"), only(CENTER, "serving"), NORMALIZE, pp.random_erasing()]
    assert both_sides(training, serving) == [*expected, TENSOR]


def test_an_op_of_only_one_mode_is_marked():
    joined = both_sides([DECODE, pp.resize(7), CENTER, TENSOR], [DECODE, RESIZE, CENTER, TENSOR])
    assert joined == [DECODE, only(pp.resize(7), "training"), only(RESIZE, "serving"), CENTER, TENSOR]


@pytest.mark.parametrize("serving", [[DECODE, RESIZE, CENTER, TENSOR], [DECODE, CENTER, NORMALIZE, TENSOR]])
@pytest.mark.parametrize("training", [[DECODE, NORMALIZE, CENTER, TENSOR], [DECODE, RESIZE, NORMALIZE, FLIP, TENSOR]])
def test_each_mode_keeps_the_order_of_its_ops(training, serving):
    joined = both_sides(training, serving)
    for side, ops in (("training", training), ("serving", serving)):
        assert [op if op.home else only(op, None) for op in joined if side == (op.only or op.home or side)] == ops


def test_a_pipeline_decodes_once():
    with pytest.raises(pp.PipelineError, match="training and serving decode images differently, but a"):
        both_sides([pp.decode(idct="fast"), TENSOR], [DECODE, TENSOR])


def test_the_command_writes_both_modes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "some", "pretrained_cfg": CONFIG}))
    (tmp_path / "train.json").write_text(json.dumps({"hflip": 0.25}))
    assert main(["import", "config.json", "p.json", "--training", "train.json"]) == 0
    assert capsys.readouterr().out.startswith("p.json: some of timm")
    pipeline = pp.load("p.json")
    assert pipeline.for_training().side_ops[2] == pp.random_flip(p=0.25)
    assert pipeline.origin.name == "some"
    (tmp_path / "train.json").write_text(json.dumps({"hflip": 0.25, "warp": 1}))
    assert main(["import", "config.json", "q.json", "--training", "train.json"]) == 1
    assert capsys.readouterr().err == 'pixprep: train.json: "warp": 1 is not supported\n'
    assert main(["import", "ultralytics:detect", "q.json", "--training", "train.json"]) == 1
    assert 'unknown option "training" for the ultralytics importer' in capsys.readouterr().err


def test_the_command_imports_without_serving_ops(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    assert main(["import", "torchvision:ResNet50_Weights.DEFAULT", "p.json", "--training", "no.py:train"]) == 1
    assert "which requires torchvision" in capsys.readouterr().err
