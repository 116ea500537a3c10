"""Tests of a classifier's labels, which can be in files of common formats or in a model's metadata, and of models with
several heads.
"""

import re
from pathlib import Path

import onnx
import pytest

from pixprep.errors import PipelineError, SetupError
from pixprep.serving.repository import build, check
from support.faces import PIPELINE, PLAN, read_onnx, save_onnx


@pytest.mark.parametrize(
    "text",
    [
        "cat\ndog\r\n fish \nbird",
        '["cat", "dog", "fish", "bird"]',
        '{"0": "cat", "2": "fish", "1": "dog", "3": "bird"}',
        '{"dog": 1, "cat": 0, "bird": 3, "fish": 2}',
        "cat\ndog\nfish\nbird\n\n \n",
        '{"architectures": ["ViT"], "id2label": {"0": "cat", "1": "dog", "2": "fish", "3": "bird"}}',
    ],
)
def test_labels_are_read_in_common_formats(model, tmp_path, text):
    (tmp_path / "labels").write_text(text)
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model, labels=tmp_path / "labels")
    assert (out / "classifier" / "labels.txt").read_text() == "cat\ndog\nfish\nbird\n"
    assert 'label_filename: "labels.txt"' in (out / "classifier" / "config.pbtxt").read_text()
    assert check(out) == []
    (note,) = build(out, pipeline=PIPELINE, onnx=model).notes
    assert note == f"{out}/classifier/labels.txt: kept from the last build; to replace the labels, pass --labels"
    assert (out / "classifier" / "labels.txt").read_text() == "cat\ndog\nfish\nbird\n"


HEADS = {"age": 8, "gender": 2, "race": 7, "mood": 8, "count": 1}


def test_heads_without_labels_are_reported(tmp_path):
    outputs = [(name, "FLOAT", ("batch", length)) for name, length in HEADS.items()]
    heads, labels = save_onnx(tmp_path / "heads.onnx", outputs=outputs), tmp_path / "labels.txt"
    labels.write_text("\n".join("abcdefg"))
    own = "to assign labels to each output, pass --labels OUTPUT=FILE"
    out = tmp_path / "out"
    assert build(out, pipeline=PIPELINE, onnx=heads, labels=labels).notes == (
        f'the labels are used for output "race" [7], and "age" [8], "gender" [2], "mood" [8] have no labels: {own}',
    )
    labels.write_text("\n".join("abcdefgh"))
    assert build(out, pipeline=PIPELINE, onnx=heads, labels=labels).notes == (
        'the labels are used for output "age" [8], and "gender" [2], "race" [7], "mood" [8] have no labels; '
        f'they would also fit "mood": {own}',
    )
    entries = re.findall(r"output \{\n(.*?)\n\}", (out / "classifier" / "config.pbtxt").read_text(), re.DOTALL)
    assert [name for name, entry in zip(HEADS, entries, strict=True) if "label_filename" in entry] == ["age"]


def test_an_output_with_the_same_number_of_scores_is_preferred(tmp_path):
    outputs = [("features", "FLOAT", ("batch", "m")), ("logits", "FLOAT", ("batch", 4))]
    model, labels = save_onnx(tmp_path / "two.onnx", outputs=outputs), tmp_path / "labels.txt"
    labels.write_text("a\nb\nc\nd")
    build(tmp_path / "out", pipeline=PIPELINE, onnx=model, labels=labels)
    text = (tmp_path / "out" / "classifier" / "config.pbtxt").read_text()
    assert [part.split('"')[1] for part in text.split("output {")[1:] if "label_filename" in part] == ["logits"]


def test_a_git_lfs_pointer_instead_of_labels_is_reported(model, tmp_path):
    (tmp_path / "labels.txt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(SetupError, match="it is a Git LFS pointer instead of the file"):
        build(tmp_path / "out", pipeline=PIPELINE, onnx=model, labels=tmp_path / "labels.txt")


def test_labels_belong_to_the_classifier_whose_classes_they_name(model, tmp_path):
    out, labels = tmp_path / "out", tmp_path / "labels.txt"
    labels.write_text("cat\ndog\nfish\nbird\n")
    build(out, pipeline=PIPELINE, onnx=model, labels=labels)
    other = save_onnx(tmp_path / "other.onnx", outputs=[("scores", "FLOAT", ("batch", 4))])
    (note,) = build(out, pipeline=PIPELINE, onnx=other).notes
    kept = f"{out}/classifier/labels.txt"
    assert note == f"{kept}: removed, because it contains the labels of a different model; to set labels, pass --labels"
    assert not Path(kept).exists()
    assert "label_filename" not in (out / "classifier" / "config.pbtxt").read_text()
    words, plan = ["input:FP32:3x224x224", "logits:FP32:4"], tmp_path / "my.plan"
    for content, is_kept in ((b"one", True), (b"one", True), (b"two", False)):
        plan.write_bytes(PLAN + content)
        given = labels if not Path(kept).exists() else None
        build(out, pipeline=PIPELINE, plan=plan, classifier_io=words, classifier="tensorrt", labels=given)
        assert Path(kept).exists() is is_kept


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("labels", '["cat", "dog", "fish", "bird"]'),
        ("labels", "cat\ndog\nfish\nbird"),
        ("character", "cat\ndog\nfish\nbird\n"),
        ("names", "{0: 'cat', 1: 'dog', 2: 'fish', 3: 'b\\x1b[31m'}"),  # the format that Ultralytics writes
        ("names", "{0: 'person', 1: 'car'}"),  # a detector's output does not have one score per name
    ],
)
def test_names_in_the_metadata_of_a_classifier_become_its_labels(model, tmp_path, key, text):
    file = onnx.load(model)
    onnx.helper.set_model_props(file, {"task": "some", "names": "of nothing:", key: text})
    onnx.save(file, model)
    build(tmp_path / "out", pipeline=PIPELINE, onnx=model)
    labels = tmp_path / "out" / "classifier" / "labels.txt"
    last = r"b\x1b[31m" if "x1b" in text else "bird"
    assert labels.exists() == ("person" not in text)
    assert not labels.exists() or labels.read_text() == f"cat\ndog\nfish\n{last}\n"


FORMS = (
    "does not contain labels: write one name per line, or JSON: a list of names, an object from numbers to names "
    "(alone or as "
    "`id2label` of Hugging Face's config.json), or an object from names to numbers (Keras' class_indices)"
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cat", '1 label, but the model has no output with one score per label; its outputs are "logits" [4]'),
        (b"cat\ndog", '2 labels, but the model has no output with one score per label; its outputs are "logits" [4]'),
        (b"", f"labels.txt {FORMS}"),
        (
            b"cat\n\ndog",
            "labels.txt: line 2 is empty, but each line must be a class name: remove the line",
        ),
        (b'{"cat": 0, "dog": 2}', f"labels.txt {FORMS}"),
        (b"\xff\xd8\xff", f"labels.txt {FORMS}"),
        (b'{"0": "cat", "2": "dog"}', f"labels.txt {FORMS}"),
        (b'{"cat": 0}', '1 label, but the model has no output with one score per label; its outputs are "logits" [4]'),
        (b"[[[", f"labels.txt {FORMS}"),
        (b"[" * 100_000, f"labels.txt {FORMS}"),
    ],
)
def test_a_file_that_does_not_contain_this_models_labels_is_rejected(model, tmp_path, content, message):
    (tmp_path / "labels.txt").write_bytes(content)
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "out", pipeline=PIPELINE, onnx=model, labels=tmp_path / "labels.txt")
    assert str(caught.value) == message
    assert not (tmp_path / "out").exists()


def test_an_empty_folder_is_treated_like_a_missing_one_and_a_file_is_not(model, tmp_path):
    (tmp_path / "empty").mkdir()
    build(tmp_path / "empty", pipeline=PIPELINE, onnx=model)
    for force in (False, True):
        with pytest.raises(SetupError) as caught:
            build(model, pipeline=PIPELINE, onnx=model, force=force)
        assert str(caught.value) == f"{model} is a file: pass a folder to --output"
    assert read_onnx(model).source == "my.onnx"
