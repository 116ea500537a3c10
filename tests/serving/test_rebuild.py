"""Tests of `build` with an output folder that already contains models: which are replaced, kept, built again, or
rejected.
"""

import errno
import re
import shutil
import sys
from pathlib import Path

import pytest

import pixprep as pp
from pixprep.errors import PipelineError, SetupError
from pixprep.postprocessing.pictures import Picture
from pixprep.serving.repository import build, check, pbtxt, plan_repository
from support.faces import MODELS, PIPELINE, files, replace, save_onnx


def test_building_again_replaces_built_models_and_keeps_other_models(model, tmp_path):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model, max_batch_size=8)
    (out / "other" / "1").mkdir(parents=True)
    (out / "classifier" / "1" / "__pycache__").mkdir()  # Triton leaves this folder when it serves the model
    (out / "classifier" / "1" / "__pycache__" / "model.pyc").touch()
    build(out, pipeline=PIPELINE, onnx=out / "classifier" / "1" / "model.onnx", classifier="tensorrt")
    assert not (out / "classifier" / "1" / "model.py").exists()
    assert (out / "classifier" / "1" / "model.onnx").read_bytes() == model.read_bytes()
    assert "max_batch_size: 8" in (out / "preprocess" / "config.pbtxt").read_text()
    assert sorted(path.name for path in out.iterdir()) == [*sorted([*MODELS, "other"])]


def replace_with_foreign_model(out):
    shutil.rmtree(out)
    (out / "classifier").mkdir(parents=True)
    (out / "classifier" / "config.pbtxt").write_text("mine")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            replace_with_foreign_model,
            " contains files that `pixprep build` did not write: choose a different folder, or pass --force",
        ),
        (
            lambda out: replace(out / "classifier" / "config.pbtxt", "max_batch_size: 64", "max_batch_size: 6"),
            "/classifier/config.pbtxt was changed after `pixprep build` wrote it: pass the change as an option "
            "(--max-batch-size, --input, --parameter), or overwrite the file with --force",
        ),
        (
            lambda out: replace(
                out / "preprocess" / "config.pbtxt",
                "dynamic_batching",
                'parameters { key: "no such" value { string_value: "parameter" } }\ndynamic_batching',
            ),
            "/preprocess/config.pbtxt was changed after `pixprep build` wrote it: pass the change as an option "
            "(--max-batch-size, --input, --parameter), or overwrite the file with --force",
        ),
        (
            lambda out: (out / "classifier" / "config.pbtxt").write_text("mine"),
            "/classifier/config.pbtxt was not written by `pixprep build`: choose a different --name, or pass --force",
        ),
        (
            lambda out: (out / "classifier" / "1" / "model.plan").write_bytes(b"ten minutes of work"),
            "/classifier/1/model.plan was not written by `pixprep build` and would be removed: move it, or pass "
            "--force",
        ),
    ],
    ids=["a folder", "a changed file", "a parameter", "another file", "a plan"],
)
def test_files_that_build_did_not_write_are_only_overwritten_with_force(model, tmp_path, edit, message):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model, classifier="tensorrt")
    edit(out)
    before = files(out)
    with pytest.raises(SetupError) as caught:
        build(out, pipeline=PIPELINE, onnx=model)
    assert str(caught.value) == f"{out}{message}"
    assert files(out) == before
    build(out, pipeline=PIPELINE, onnx=model, force=True)
    assert check(out) == []


def test_a_build_repeats_the_options_of_the_last_one_and_reports_it(model, tmp_path):
    out = tmp_path / "out"
    first = build(
        out, pipeline=PIPELINE, onnx=model, input_="dali", max_batch_size=8,
        parameters={"threads": "2", "formats": "jpeg png"},
    )  # fmt: skip
    assert first.notes == ()
    text = (out / "preprocess" / "config.pbtxt").read_text()
    again = build(out, pipeline=PIPELINE, onnx=model)
    assert (out / "preprocess" / "config.pbtxt").read_text() == text
    assert again.notes == (
        "options repeated from the last build: --input dali --max-batch-size 8 "
        "--parameter 'formats=jpeg png' --parameter threads=2; to ignore them, pass --force",
    )
    for line in ('name: "DALI_INPUT_0"', "data_type: TYPE_UINT8", "max_batch_size: 8", 'key: "threads"'):
        assert line in text
    assert check(out) == []
    (note,) = build(out, pipeline=PIPELINE, onnx=model, max_batch_size=4, parameters={}).notes
    assert note == "options repeated from the last build: --input dali; to ignore them, pass --force"
    assert build(out, pipeline=PIPELINE, onnx=model, force=True).notes == ()
    assert "max_batch_size: 64" in (out / "preprocess" / "config.pbtxt").read_text()


CROPS = [pp.decode(), pp.crop(box="boxes"), pp.resize(height=224, width=224), pp.normalize(mean=0.5, std=0.5)]


@pytest.mark.parametrize(
    ("pipeline", "options", "repeated"),
    [
        (PIPELINE, {"on_error": "zero", "odd_range": True}, "--on-error zero --odd-range"),
        (PIPELINE, {"parameters": {"PATH": 'a "b" \\ ü\n'}}, "--parameter 'PATH=a \"b\" \\ ü\n'"),
        (PIPELINE, {"on_error": "fail", "input_": "bytes", "max_batch_size": 64}, ""),  # no values are set
        # the pipeline has boxes as a per-request input
        (pp.Pipeline([*CROPS, pp.tensor()]), {"max_batch_size": 5}, "--max-batch-size 5"),
        (pp.Pipeline([*PIPELINE.ops[:-1], pp.tensor(name="DALI_INPUT_0")]), {}, ""),
        (pp.Pipeline([pp.pixels(), *PIPELINE.ops[1:]]), {"max_batch_size": 3}, "--max-batch-size 3"),
    ],
)
def test_options_are_read_back_from_the_built_files(model, tmp_path, pipeline, options, repeated):
    out = tmp_path / "out"
    build(out, pipeline=pipeline, onnx=model, **options)
    before = files(out)
    notes = build(out, pipeline=pipeline, onnx=model).notes
    assert [note for note in notes if "repeat" in note] == (
        [f"options repeated from the last build: {repeated}; to ignore them, pass --force"] if repeated else []
    )
    assert files(out) == before


def test_a_plan_lists_the_files_of_a_build_and_changes_nothing(model, tmp_path):
    out = tmp_path / "new" / "out"
    planned = plan_repository(out, pipeline=PIPELINE, onnx=model)
    assert (sorted(planned.models), planned.replaced, (tmp_path / "new").exists()) == ([*MODELS], [], False)
    built = build(out, pipeline=PIPELINE, onnx=model)
    assert built == planned
    # if no file is written, inodes and modification times are unchanged
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")}
    assert sorted(plan_repository(out, pipeline=PIPELINE, onnx=model).replaced) == [*MODELS]
    assert plan_repository(out, preprocess="preprocess", onnx=model, name="dogs").replaced == []
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")} == before


def test_two_ensembles_with_different_names_share_one_repository(model, tmp_path):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model, name="cats")
    build(out, pipeline=PIPELINE, onnx=model, name="dogs", max_batch_size=2)
    build(out, pipeline=PIPELINE, onnx=model, name="cats")
    assert sorted(path.name for path in out.iterdir()) == [
        *("cats", "cats_classifier", "cats_preprocess"),
        *("dogs", "dogs_classifier", "dogs_preprocess"),
    ]
    assert 'model_name: "dogs_preprocess"' in (out / "dogs" / "config.pbtxt").read_text()
    assert check(out) == []
    with pytest.raises(PipelineError) as caught:
        build(out, pipeline=PIPELINE, onnx=model, name="../x")
    assert str(caught.value) == '--name must be up to 64 letters, digits, _ and -, not "../x"'


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("", "classifier", 'classifier is also part of the ensemble "ensemble": choose a different --name'),
        ("", "preprocess", 'preprocess is also part of the ensemble "ensemble": choose a different --name'),
        ("a", "a_classifier", 'a_classifier is also part of the ensemble "a": choose a different --name'),
        ("", "ensemble", "ensemble is an ensemble of preprocess, classifier: choose a different --name"),
    ],
)
def test_a_name_that_another_ensemble_uses_is_rejected_and_nothing_is_written(model, tmp_path, first, second, message):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model, name=first)
    before = files(out)
    for force in (False, True):
        with pytest.raises(SetupError) as caught:
            build(out, pipeline=PIPELINE, onnx=model, name=second, force=force)
        assert str(caught.value) == f"{out}/{message}"
    assert files(out) == before


FACE = """platform: "ensemble"
max_batch_size: 8
input { name: "image" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "tensor" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }
ensemble_scheduling { step { %s model_version: -1 %s } }
"""
MAPS = 'input_map { key: "image" value: "image" } output_map { key: "tensor" value: "tensor" }'
VALUES = 'input_map { value: "image" key: "image" } output_map { value: "tensor" key: "tensor" }'
THEIRS = {
    "as build writes it": ('model_name: "preprocess"', MAPS),
    "in single quotes": ("model_name: 'preprocess'", MAPS.replace('"', "'")),
    "in two parts": ('model_name: "pre" "process"', MAPS),
    "the value first": ('model_name: "preprocess"', VALUES),
    "with a comment": ('model_name: "preprocess" # was model_name: "classifier"\n', MAPS),
    "in brackets": ('model_name: "preprocess"', f"{MAPS.replace('{', '<').replace('}', '>')}"),
}


@pytest.mark.parametrize("way", THEIRS)
def test_a_model_of_a_handwritten_ensemble_is_not_replaced(model, tmp_path, way):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model)
    (out / "theirs" / "1").mkdir(parents=True)
    (out / "theirs" / "config.pbtxt").write_text(FACE % THEIRS[way])
    assert check(out) == []
    before = files(out)
    for force in (False, True):
        with pytest.raises(SetupError) as caught:
            build(out, pipeline=PIPELINE, onnx=model, max_batch_size=4, force=force)
        assert str(caught.value) == f'{out}/preprocess is also part of the ensemble "theirs": choose a different --name'
    assert files(out) == before


def test_nothing_is_replaced_next_to_an_unreadable_configuration(model, tmp_path):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model)
    (out / "theirs" / "1").mkdir(parents=True)
    (out / "theirs" / "config.pbtxt").write_text('platform: "ensemble" no_such_field: 1')
    with pytest.raises(SetupError, match=r"theirs/config\.pbtxt: cannot be parsed: .*: fix the file, or move theirs$"):
        build(out, pipeline=PIPELINE, onnx=model, force=True)


def test_a_build_that_cannot_install_its_last_model_changes_none(model, tmp_path, monkeypatch):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model)
    before, rename = files(out), Path.rename

    def refuse(path, target):
        if path.parent.name == "new" and path.name == "preprocess":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(SetupError, match=r"not written: .*: Input/output error"):
        build(out, pipeline=PIPELINE, onnx=model, max_batch_size=4)
    assert files(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.onnx", "out"]


@pytest.mark.parametrize(
    "options",
    [
        {"max_batch_size": 8, "on_error": "zero", "parameters": {"PATH": 'a "b" \\ ü\n{}[],:'}},
        {"pipeline": pp.Pipeline([*CROPS, pp.tensor()])},
        {"classifier": "onnxruntime-gpu", "input_": "dali"},
    ],
)
def test_built_files_are_read_the_same_with_and_without_tritonclient(model, tmp_path, monkeypatch, options):
    out = tmp_path / "out"
    build(out, onnx=model, **{"pipeline": PIPELINE, **options})
    texts = {path: path.read_text(encoding="utf-8") for path in out.glob("*/config.pbtxt")}
    found = {path: pbtxt.parse(text) for path, text in texts.items()}
    monkeypatch.setitem(sys.modules, "tritonclient.grpc", None)
    for path, text in texts.items():
        assert with_string_numbers(pbtxt.parse(text)) == with_string_numbers(found[path])
    assert (sorted(build(out, onnx=model, **{"pipeline": PIPELINE, **options}).replaced), check(out)) == ([*MODELS], [])
    replace(out / "classifier" / "config.pbtxt", "data_type", "data_type ")
    with pytest.raises(SetupError, match=r"a config\.pbtxt that `pixprep build` did not write requires tritonclient"):
        check(out)


def with_string_numbers(config):
    """Return a configuration whose numbers are strings, as protobuf's JSON format writes 64-bit integers."""
    if isinstance(config, dict):
        return {
            key: with_string_numbers(value) for key, value in config.items() if (key, value) != ("max_batch_size", 0)
        }
    return [with_string_numbers(each) for each in config] if isinstance(config, list) else str(config)


def test_two_classifiers_share_one_preprocess_with_its_pipeline_and_options(model, tmp_path):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model, max_batch_size=2, on_error="zero")
    built = build(out, preprocess="preprocess", onnx=model, name="dogs")
    assert sorted({path.relative_to(out).parts[0] for path in built.paths}) == ["dogs", "dogs_classifier"]
    assert built.notes == ()
    config = (out / "dogs" / "config.pbtxt").read_text()
    assert re.findall('model_name: "(.*)"', config) == ["preprocess", "dogs_classifier"]
    assert "max_batch_size: 2" in config
    assert check(out) == []
    build(out, pipeline=PIPELINE, onnx=model)  # building it again does not affect the second ensemble
    with pytest.raises(SetupError, match='preprocess is also part of the ensemble "dogs"'):
        build(out, pipeline=PIPELINE, onnx=model, max_batch_size=3)
    with pytest.raises(PipelineError) as caught:
        build(out, preprocess="preproces", onnx=model, name="dogs")
    assert str(caught.value) == f'--preprocess: {out} has no preprocess model "preproces"; did you mean "preprocess"?'
    with pytest.raises(PipelineError, match="remove --pipeline, --preset, --input, --on-error"):
        build(out, preprocess="preprocess", pipeline=PIPELINE, onnx=model, name="dogs")


@pytest.mark.parametrize("name", ["", "cutout"])
def test_a_model_that_the_new_ensemble_does_not_use_is_removed(model, tmp_path, name):
    """The first build has pictures or several inputs, and the second build removes the models for them."""
    out, base = tmp_path / "out", f"{name}_" * bool(name)
    build(out, pipeline=PIPELINE, onnx=model, name="other")
    pair = save_onnx(tmp_path / "pair.onnx", [(each, "FLOAT", ("batch", 3, 224, 224)) for each in ("left", "right")])
    build(out, pipeline={"left": PIPELINE, "right": PIPELINE}, onnx=pair, name=name)
    (out / f"{base}preprocess_mine").mkdir()
    left = build(out, pipeline=PIPELINE, onnx=model, name=name)
    ensemble = name or "ensemble"
    removed = [f"{base}preprocess_{side}: removed, because {ensemble} no longer uses it" for side in ("left", "right")]
    assert sorted(note for note in left.notes if "removed" in note) == removed
    kept = {"other", "other_preprocess", "other_classifier", f"{base}preprocess_mine"}
    assert {path.name for path in out.iterdir()} == kept | {ensemble, f"{base}preprocess", f"{base}classifier"}
    mapped = pp.Pipeline([pp.decode(), pp.original_size(), *PIPELINE.ops[1:-1], pp.transform(), PIPELINE.ops[-1]])
    picture = {"logits": Picture.parse("image,range=0..1")}
    image = save_onnx(tmp_path / "image.onnx", outputs=[("logits", "FLOAT", ("batch", 3, 224, 224))])
    build(out, pipeline=mapped, onnx=image, name=name, pictures=picture)
    assert (out / f"{base}picture").is_dir()
    (out / f"{base}picture" / "notes.txt").write_text("mine")
    with pytest.raises(SetupError, match=r"notes.txt was not written by `pixprep build` and would be removed"):
        build(out, pipeline=mapped, onnx=image, name=name)
    (out / f"{base}picture" / "notes.txt").unlink()
    build(out, pipeline=mapped, onnx=image, name=name)
    assert not (out / f"{base}picture").exists()
    (out / f"{base}preprocess_mine").rmdir()
    assert check(out) == []
