"""Tests that one photo is run through the models of a repository, which shows the tensors and classes, and detects a
classifier that no server could run.
"""

import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import pixprep as pp
from pixprep.errors import PipelineError
from pixprep.serving.repository import build, try_out
from pixprep.serving.repository.trial import MAX_ONNX_BYTES, to_probabilities
from support import detectors
from support.images import photo, png

RED = png(np.full((20, 20, 3), (200, 20, 10), np.uint8))


COLORS = """<ir_version: 8, opset_import: ["": 18]>
colors (float[batch, 3, 16, 16] images) => (float[batch, 3] scores) {
    pooled = GlobalAveragePool (images)
    means = Flatten (pooled)
    scores = Add (means, bias)
}"""


def save(path, text, **constants):
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(np.float32(each), name) for name, each in constants.items())
    onnx.save(model, path)
    return path


def color_model(path, *, bias=(0.0, 0.0, 0.0), op="GlobalAveragePool", twice=False):
    """Save a classifier whose scores are the means of red, green and blue, plus a constant."""
    text = COLORS.replace("GlobalAveragePool", op)
    if twice:
        text = text.replace("Flatten (pooled)", "Flatten (both)").replace(
            "    means", "    both = Concat <axis = 0> (pooled, pooled)\n    means", 1
        )
    return save(path, text, bias=bias)


@pytest.fixture
def build_repository(tmp_path):
    """Return a function that builds a repository with this classifier and returns its path."""
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=16, width=16), pp.normalize(scale=0.02), pp.tensor()])

    def make(*labels, name="", **options):
        (tmp_path / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
        build(
            tmp_path / "models",
            pipeline=pipeline,
            onnx=color_model(tmp_path / "colors.onnx", **options),
            labels=tmp_path / "labels.txt" if labels else None,
            name=name,
        )
        return tmp_path / "models"

    return make


def classes(repository, encoded=RED, **options):
    """Return the notes about the classes that the classifier found."""
    return [line for line in try_out(repository, encoded, **options) if not line.startswith('"tensor"')]


def test_the_best_classes_are_printed_with_softmax_values_below_the_preview(build_repository):
    powers = np.exp([4.0, 0.4, 0.2])
    shown = [f"{share:.2f}" for share in powers / powers.sum()]
    first, *_, last = try_out(build_repository("rose", "leaf", "sea"), RED)
    assert first == '"tensor": 0.2 to 4; mean red 4, green 0.4, blue 0.2'
    assert last == f'"scores": rose {shown[0]}, leaf {shown[1]}, sea {shown[2]}'


def test_without_labels_classes_are_numbers(build_repository):
    (line,) = classes(build_repository(bias=(0.0, 9.0, 0.0)))
    assert line == '"scores": class 1 1.00, class 0 0.00, class 2 0.00'


def test_a_detector_has_no_classes_unless_an_output_has_labels(tmp_path):
    """A detector's scores share an output with its boxes or, as here, form one row per class. Neither counts as a list
    of classes.
    """
    pipeline = pp.Pipeline([pp.decode(), pp.letterbox(16, 16), pp.normalize(), pp.transform(), pp.tensor()])
    build(tmp_path / "models", pipeline=pipeline, onnx=color_model(tmp_path / "model.onnx"), classifier="onnxruntime")
    *_, last = try_out(tmp_path / "models", RED)
    assert last == '"scores": float32 [3]'
    labels = tmp_path / "labels.txt"  # an output with labels contains scores, as for `send`
    labels.write_text("rose\nleaf\nsea\n")
    build(tmp_path / "models", pipeline=pipeline, onnx=tmp_path / "model.onnx", labels=labels, classifier="onnxruntime")
    *_, last = try_out(tmp_path / "models", RED)
    assert last.startswith('"scores": rose 0.')


def test_the_objects_of_a_detector_are_listed(tmp_path):
    model = detectors.save(tmp_path / "m.onnx")
    tail = [pp.transform(), pp.original_size(), pp.tensor()]
    build(
        tmp_path / "models",
        pipeline=pp.Pipeline([pp.decode(), pp.letterbox(320, 320), pp.normalize(), *tail]),
        onnx=model,
    )
    things = detectors.photo(480, 640, red=(130, 90, 290, 330), blue=(380, 180, 510, 410))
    last = "2 objects: red box 0.82 [130, 90, 290, 330], blue box 0.82 [380, 180, 510, 410]"
    assert classes(tmp_path / "models", png(things)) == ['"output0": float32 [6, 8]', last]
    assert classes(tmp_path / "models", png(np.full((48, 64, 3), 120, np.uint8)))[1:] == ["0 objects"]


def test_outputs_of_a_detector_without_a_size_have_only_shapes(tmp_path):
    text = """<ir_version: 8, opset_import: ["": 18]>
    heads (float[batch, 3, 16, 16] images) => (float[batch, 40, 97] tokens, float[batch, n, k] logits,
                                               float[batch, n, k] dets) {
        flat = Flatten (images)
        axis = Constant <value_ints = [1]> ()
        mean = ReduceMean (flat, axis)
        means = Unsqueeze (mean, axis)
        zero = Constant <value = float {0}> ()
        none = Mul (means, zero)
        tokens = Add (none, token)
        logits = Add (none, row)
        dets = Add (none, row)
    }"""
    model = save(tmp_path / "m.onnx", text, token=np.zeros((1, 40, 97)), row=np.zeros((1, 9, 5)))
    pipeline = pp.Pipeline([pp.decode(), pp.letterbox(16, 16), pp.normalize(), pp.transform(), pp.tensor()])
    build(tmp_path / "models", pipeline=pipeline, onnx=model)
    assert classes(tmp_path / "models") == [
        '"tokens": float32 [40, 97]',
        '"logits": float32 [9, 5]',
        '"dets": float32 [9, 5]',
    ]


def test_equal_scores_are_reported(build_repository):
    gray = png(np.full((20, 20, 3), 100, np.uint8))
    assert classes(build_repository(), gray) == ['"scores": every class has the same score']


def test_non_finite_scores_are_reported(build_repository):
    assert classes(build_repository(bias=(float("inf"), 0.0, 0.0))) == ['"scores": some values are not finite']


def test_more_rows_than_images_are_reported(build_repository):
    first, *_ = classes(build_repository(twice=True))
    assert first == '"scores" is [2, 3] for one image, so its first dimension is not the batch'


def test_a_model_that_does_not_run_is_an_error_if_it_would_be_served_that_way(build_repository):
    repository = build_repository(op="NoSuchOp")
    with pytest.raises(PipelineError) as caught:
        classes(repository)
    message = str(caught.value)
    assert message.startswith("classifier/1/model.onnx: ONNX Runtime could not run it: ")
    assert "NoSuchOp" in message
    assert message.endswith(": the repository was written, but its model does not load: export the model again")
    assert str(repository) not in message
    config = repository / "classifier" / "config.pbtxt"  # a model that fails on the CPU may still run on a GPU
    config.write_text(config.read_text().replace("kind: KIND_CPU", "kind: KIND_GPU"))
    (line,) = classes(repository)
    assert line.startswith("the classifier was not tried: ONNX Runtime could not run it: ")


def test_a_large_model_is_not_loaded(build_repository):
    repository = build_repository()
    with (repository / "classifier" / "1" / "model.onnx").open("r+b") as file:
        file.truncate(MAX_ONNX_BYTES + 1)
    assert classes(repository) == ["the classifier was not tried: its file exceeds 1 GiB"]


def test_without_onnx_runtime_it_names_the_package_to_install(build_repository):
    program = (
        "import sys; from pathlib import Path; sys.modules['onnxruntime'] = None\n"
        "from pixprep.serving.repository import try_out\n"
        "print(list(try_out(Path(sys.argv[1]), Path(sys.argv[2]).read_bytes()))[-1])"
    )
    (build_repository().parent / "photo.png").write_bytes(RED)
    command = [sys.executable, "-c", program, build_repository(), build_repository().parent / "photo.png"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == 'the classifier was not tried: pip install ".[classifier]" in a checkout of pixprep\n'


def test_the_named_ensemble_or_all_ensembles_are_tried(build_repository):
    build_repository("rose", "leaf", "sea")
    repository = build_repository("r", "g", "b", name="other")
    (named,) = classes(repository, name="other")
    assert named.startswith('"scores": r ')
    other, usual = classes(repository)
    assert other == named
    assert usual.startswith('"scores": rose ')


def test_a_repository_without_a_classifier_shows_its_tensors(tmp_path):
    for version in ("1", "2", "x"):
        folder = tmp_path / "models" / "photo.pixprep" / version
        folder.mkdir(parents=True)
        size = 8 if version == "2" else 16
        pp.Pipeline([pp.decode(), pp.resize(height=size, width=size), pp.tensor()]).save(folder / "pipeline.json")
    (line,) = try_out(tmp_path / "models", photo())
    (tensor,) = pp.Engine(pp.load(tmp_path / "models" / "photo.pixprep" / "2" / "pipeline.json")).run([photo()])
    assert line.startswith(f'"tensor": {tensor.min():.4g} to {tensor.max():.4g}; mean red ')


def test_scores_that_are_probabilities_are_shown_unchanged():
    assert to_probabilities(np.array([0.2, 0.7, 0.1])) == pytest.approx([0.2, 0.7, 0.1])
    assert to_probabilities(np.array([2.0, 2.0])) == pytest.approx([0.5, 0.5])
    assert to_probabilities(np.array([-1e30, 0.0, 1e30])) == pytest.approx([0, 0, 1])


def test_a_shared_preprocess_feeds_each_of_its_classifiers(build_repository, tmp_path):
    repository = build_repository("rose", "leaf", "sea")
    build(repository, preprocess="preprocess", onnx=color_model(tmp_path / "other.onnx", bias=(0, 9, 0)), name="other")
    assert [line.split()[1] for line in classes(repository)] == ["rose", "class"]
