"""Tests files with two modes, training and serving: their ops, their comparison, and the mode that each caller uses."""

import json
from pathlib import Path

import numpy as np
import pytest

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.serving.repository import build
from pixprep.show.words import explain
from support.images import photo, png, scene
from support.refusals import refusal

SERVED = [pp.resize(256, only="serving"), pp.center_crop(224, only="serving")]
TRAINED = [pp.random_resized_crop(176, scale=(0.35, 1.0)), pp.random_flip()]
END = [pp.normalize(mean=0.5, std=0.5), pp.tensor()]
OPS = [pp.decode(), *TRAINED, *SERVED, *END]


def kind(op):
    return type(op).__struct_config__.tag


def kinds(pipeline):
    return [*map(kind, pipeline.side_ops)]


def test_each_mode_has_its_own_ops_and_sizes():
    pipeline = pp.Pipeline(OPS)
    assert pipeline.side == "serving"
    assert kinds(pipeline) == ["decode", "resize", "center_crop", "normalize", "tensor"]
    assert pipeline.outputs["tensor"].spec.shape == (3, 224, 224)
    training = pipeline.for_training()
    assert training.side == "training"
    assert kinds(training) == ["decode", "random_resized_crop", "random_flip", "normalize", "tensor"]
    assert training.outputs["tensor"].spec.shape == (3, 176, 176)
    assert training.ops == pipeline.ops == tuple(pp.Pipeline(OPS).ops)
    assert training.for_serving() == pipeline
    assert training.for_serving().plan is pipeline.plan
    assert training != pipeline
    assert hash(training) == hash(pp.Pipeline(OPS).for_training())
    ops = {name: getattr(pp, name) for name in pp.__all__}
    assert eval(repr(training), ops | {cls.__name__: cls for cls in pp.ops.OPS.values()}) == training  # noqa: S307


@pytest.mark.parametrize("side", ["serving", "training"])
def test_ops_belong_to_both_modes_even_after_an_insertion(side):
    pipeline = pp.Pipeline(OPS).at(side)
    assert pp.Pipeline(list(pipeline.ops)).at(side) == pipeline
    for before in ("tensor", 6, -1):
        made = pipeline.inserting(pp.mask(), before=before)
        assert made.side == side
        assert made.ops == (*pipeline.ops[:-1], pp.mask(), pp.tensor())
        assert kinds(made.for_training()) == ["decode", *map(kind, TRAINED), "normalize", "mask", "tensor"]
    flipped = pipeline.inserting(pp.flip(only="serving"), pp.invert(), before="normalize")
    assert kinds(flipped.for_training()) == ["decode", *map(kind, TRAINED), "invert", "normalize", "tensor"]
    assert kinds(flipped.for_serving()) == ["decode", "resize", "center_crop", "flip", "invert", "normalize", "tensor"]


def test_an_origin_is_kept_when_an_op_is_inserted():
    made = pp.presets.imagenet()
    assert made.inserting(pp.mask(), before="normalize").origin == made.origin


def test_a_file_without_modes_has_one_chain_for_both():
    pipeline = pp.presets.imagenet()
    assert not pipeline.has_sides
    assert pipeline.for_training().plan is pipeline.plan
    assert pipeline.left_out == pipeline.for_training().left_out == ""
    assert "only" not in pipeline.to_json()
    assert "training" not in explain(pipeline)


def test_saving_either_mode_writes_the_whole_file():
    pipeline = pp.Pipeline(OPS)
    text = pipeline.to_json()
    assert '{"op": "resize", "size": 256, "only": "serving"}' in text
    assert '{"op": "random_flip"}' in text
    assert pipeline.for_training().to_json() == text
    assert pp.Pipeline.from_json(text) == pipeline


def test_serving_computes_the_same_as_a_file_without_random_ops():
    encoded = [png(scene(300, 400))]
    plain = pp.Pipeline([pp.decode(), pp.resize(256), pp.center_crop(224), *END])
    (ours,), (expected,) = (pp.Engine(each, threads=1).run(encoded) for each in (pp.Pipeline(OPS), plain))
    np.testing.assert_array_equal(ours, expected)


def test_the_page_shows_the_actual_message():
    page = " ".join((Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8").split())
    assert refusal("[decode(), random_resized_crop(224), tensor()]") in page


def test_names_can_be_reused_in_the_other_mode():
    ops = [pp.resize(height=8, width=8, name="small", only="serving")]
    ops += [pp.random_resized_crop(9, name="small"), pp.flip(from_="small"), pp.tensor()]
    pipeline = pp.Pipeline([pp.decode(), *ops])
    assert pipeline.outputs["tensor"].spec.shape == (3, 8, 8)
    assert pipeline.for_training().outputs["tensor"].spec.shape == (3, 9, 9)
    assert [step.key for step in pipeline.for_training().plan.random_steps] == ["small"]


ONE_SIDED = pp.Pipeline([pp.decode(), pp.random_resized_crop(32), pp.tensor(only="training")])


def test_a_pipeline_without_serving_ops_reports_it(tmp_path):
    assert ONE_SIDED.side == "training"
    assert ONE_SIDED.for_training() is ONE_SIDED
    message = 'the pipeline has no serving side, because every tensor is "only": "training"'
    with pytest.raises(pp.PipelineError, match=f"^{message}$"):
        ONE_SIDED.for_serving()
    with pytest.raises(pp.PipelineError, match=message):
        build(tmp_path / "models", pipeline=ONE_SIDED)


def test_random_ops_need_random_numbers():
    with pytest.raises(pp.PipelineError, match="random ops need random numbers: use a Loader, or pass places="):
        pp.Engine(ONE_SIDED, threads=1).run([photo()])


def test_a_notebook_shows_one_mode_and_what_it_omits():
    pipeline = pp.Pipeline([*OPS[:-1], pp.boxes(), pp.points(), OPS[-1]])
    assert "Pipeline, in serving: serving omits ops[1]" in pipeline._repr_html_().replace("&quot;", '"')
    assert "random_flip</td>" in pipeline.for_training()._repr_html_()
    assert "output the boxes of the image at this point" in pipeline.for_training()._repr_html_()
    assert "the pipeline does not have another side" in ONE_SIDED._repr_html_()


def test_explain_shows_both_modes_with_positions_in_the_file():
    text = explain(pp.Pipeline(OPS))
    serving, training = text.split("pipeline in training")
    assert serving.startswith("pipeline in serving")
    assert "   5  normalize" in serving
    assert "   5  normalize" in training
    assert "random" not in serving
    assert "crop a random window with 0.35 to 1 of the area and an aspect ratio of 0.75 to 1.333" in training
    assert "flip 0.5 of the images horizontally" in training
    every = [pp.decode(), pp.random_zoom_out(), pp.random_iou_crop(), pp.random_crop(40, padding=2), pp.boxes(pad=9)]
    text = explain(pp.Pipeline([*every, pp.points(), pp.tensor(only="training")]))
    assert "boxes: xyxy boxes in pixels of the image at this op, 9 rows per image, padded with -1" in text
    assert "points: points, x before y, in pixels of the image at this op, one array per image" in text
    assert "place 0.5 of the images at a random position of a canvas 1 to 4 times as high and wide" in text
    assert "crop a random window of 40 x 40, after padding by 2, 2, 2, 2 pixels" in text
    resized = [pp.decode(), pp.random_zoom_out(), pp.resize(height=9, width=9), pp.tensor()]
    assert "e.g. 480 x 640: padded to 1185 x 1580, with the image at row 345, column 460, resized to 9 x 9" in explain(
        pp.Pipeline(resized)
    )


LEFT_OUT = 'serving omits ops[1] "random_resized_crop", ops[2] "random_flip"'


@pytest.mark.parametrize(
    ("command", "stream"),
    [
        (["check", "pipeline.json"], "out"),
        (["check", "models"], "out"),
        (["verify", "pipeline.json"], "err"),
        (["run", "pipeline.json", "photo.png"], "err"),
        (["build", "--pipeline", "pipeline.json", "--output", "models", "--force"], "err"),
    ],
    ids=lambda part: part[0] if isinstance(part, list) else part,
)
@pytest.mark.usefixtures("few_images")
def test_commands_use_the_serving_ops_and_report_what_they_omit(command, stream, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photo.png").write_bytes(png(scene(30, 40)))
    pipeline = pp.Pipeline(OPS)
    pipeline.save("pipeline.json")
    build(tmp_path / "models", pipeline=pipeline)
    assert main(command) == 0
    assert LEFT_OUT in getattr(capsys.readouterr(), stream)
    assert (tmp_path / "models" / "preprocess" / "1" / "pipeline.json").read_text() == pipeline.to_json()


def test_check_reports_that_a_training_only_file_cannot_be_served(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ONE_SIDED.save("pipeline.json")
    assert main(["check", "pipeline.json"]) == 0
    assert "pipeline.json: the pipeline is for training only and has no serving side" in capsys.readouterr().out
    (tmp_path / "photo.png").write_bytes(png(scene(30, 40)))
    assert main(["run", "pipeline.json", "photo.png"]) == 1
    assert "the pipeline has no serving side" in capsys.readouterr().err


def test_a_doubt_names_the_position_in_the_file(tmp_path, capsys):
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    pp.Pipeline([*OPS[:-2], pp.normalize(mean=mean, std=std, scale=1), pp.tensor()]).save(tmp_path / "pipeline.json")
    assert main(["check", str(tmp_path / "pipeline.json"), "--json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)
    assert problem["what"].startswith('ops[5] "normalize"')


def test_modes_that_resize_differently_are_reported(tmp_path, capsys):
    ops = [pp.decode(), pp.random_resized_crop(64, like="torchvision"), pp.resize(height=64, width=64, only="serving")]
    pp.Pipeline([*ops, *END]).save(tmp_path / "pipeline.json")
    assert main(["check", str(tmp_path / "pipeline.json")]) == 0
    assert (
        '"tensor": training resizes with "like": "torchvision", "filter": "bilinear", "antialias": true, '
        'but serving with "like": "pillow", "filter": "bilinear", "antialias": true'
    ) in capsys.readouterr().out
    pp.Pipeline(OPS).save(tmp_path / "pipeline.json")
    assert main(["check", str(tmp_path / "pipeline.json")]) == 0
    assert "training resizes" not in capsys.readouterr().out
