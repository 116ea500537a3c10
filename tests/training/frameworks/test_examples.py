"""Each program of training_examples/, run as a user runs it; each where its framework is installed."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pixprep as pp

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "training_examples"
SERVING = ROOT / ".venv" / "bin" / "python"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone")

needs_torch = pytest.mark.skipif(not find_spec("torch"), reason="NO PYTORCH: make training")
needs_onnx = pytest.mark.skipif(not find_spec("onnx"), reason="NO ONNX: make training")
needs_serving = pytest.mark.skipif(not SERVING.exists(), reason="NO TRITON: make demo makes its environment")
needs_keras = pytest.mark.skipif(not find_spec("tensorflow"), reason="NO TENSORFLOW: make parity-tensorflow")


def run(folder, *words, python=sys.executable):
    """Output of a program; raises unless it ends with 0."""
    names = ("PYTHONPATH", "WORLD_SIZE", "RANK") if python == SERVING else ("WORLD_SIZE", "RANK")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment["OMP_NUM_THREADS"] = "1"  # more only wait for each other where other programs run: 22 s of CPU for 8
    command = [python, *map(str, words)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accuracy(printed):
    (share,) = re.findall(r"^([\d.]+) of 80 photos that it has not seen are right$", printed, re.MULTILINE)
    return float(share)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    run(folder, EXAMPLES / "cut_photos.py", folder)
    return folder


@needs_torch
@needs_onnx
@needs_serving
def test_a_network_that_was_trained_is_served_with_the_logits_of_its_training(tmp_path):
    assert accuracy(run(tmp_path, EXAMPLES / "pytorch_train.py")) > 0.9
    printed = run(tmp_path, EXAMPLES / "serve_trained.py", python=SERVING)
    *_, photos, tensors, logits = printed.splitlines()
    assert photos == "80 photos served"
    assert tensors == "tensors that differ from the training's: 0"
    off = re.fullmatch(r"logits that differ from ONNX Runtime's: 0; from PyTorch's by at most (.*)", logits)
    assert float(off[1]) <= 1e-4

    evaluation = dict(np.load(tmp_path / "trained" / "evaluation.npz"))
    evaluation["tensor"][7, 0, 0, 0] += 0.01
    np.savez(tmp_path / "trained" / "evaluation.npz", **evaluation)
    with pytest.raises(AssertionError, match=r"(?s)training's: 1\n.*the served model is not the one"):
        run(tmp_path, EXAMPLES / "serve_trained.py", python=SERVING)


def served(folder, trained, pipeline):
    """Answer of a training's own server; raises unless it is what the training had."""
    printed = run(
        folder, EXAMPLES / "serve_trained.py", "--trained", trained, "--pipeline", pipeline, python=SERVING
    ).splitlines()
    assert printed[-3:-1] == ["2 photos served", "tensors that differ from the training's: 0"]
    assert re.match(
        r"logits that differ from ONNX Runtime's: 0; from PyTorch's by at most [\d.]+e-0[5-9]$", printed[-1]
    )


@needs_torch
@needs_onnx
@needs_serving
def test_a_network_that_segments_is_served_with_the_logits_of_its_training(tmp_path):
    printed = run(tmp_path, EXAMPLES / "pytorch_segment.py")
    assert float(re.search(r"^([\d.]+) of the pixels of windows", printed, re.MULTILINE)[1]) > 0.93
    served(tmp_path, "trained/segmented", "segmentation.json")


@needs_torch
@needs_onnx
@needs_serving
def test_a_detector_that_was_trained_on_padded_batches_is_served(tmp_path):
    printed = run(tmp_path, EXAMPLES / "pytorch_detect.py")
    sides = re.findall(r"the last batch is \(8, 3, (\d+), (\d+)\)", printed)
    assert len({*sides}) > 1
    for name, label, annotated in (
        ("china", "pavilion", (62, 29, 373, 400)),
        ("flower", "flower", (168, 84, 447, 357)),
    ):
        (found,) = re.findall(rf"^{name}.jpg {label} (\d+) (\d+) (\d+) (\d+)$", printed, re.MULTILINE)
        assert overlap(np.array(found, float), np.array(annotated)) > 0.5
    served(tmp_path, "trained/detector", "detection.json")


def overlap(one, other):
    """The IoU of two boxes."""
    shared = np.prod(np.clip(np.minimum(one, other)[2:] - np.maximum(one, other)[:2], 0, None))
    return shared / (sum(np.prod(box[2:] - box[:2]) for box in (one, other)) - shared)


@needs_torch
def test_two_processes_see_every_sample_once_in_the_batches_of_one(photos):
    one, two = (
        run(photos, *TORCHRUN, f"--nproc-per-node={count}", EXAMPLES / "pytorch_shards.py", photos / "train")
        for count in (1, 2)
    )
    assert one == two
    lines = one.splitlines()
    assert [line for line in lines if "pixels" not in line] == [
        f"epoch {epoch}: 240 of 240 samples, 240 different ones" for epoch in range(2)
    ]
    batches = re.findall(r"^epoch (\d): pixels (\w{8}), samples \[(.*)\]$", one, re.MULTILINE)
    for epoch in "01":
        seen = [int(index) for number, _, indices in batches if number == epoch for index in indices.split(", ")]
        assert sorted(seen) == list(range(240))
    assert len({pixels for _, pixels, _ in batches}) == len(batches) == 10


@needs_keras
def test_keras_learns_from_tfrecord_files(tmp_path):
    assert accuracy(run(tmp_path, EXAMPLES / "keras_tfrecord.py")) > 0.9


def test_boxes_are_drawn_where_the_objects_are(tmp_path):
    lines = run(tmp_path, EXAMPLES / "coco_boxes.py").splitlines()
    assert len(lines) == 12
    assert {line.partition(":")[0] for line in lines} == {"china.jpg", "flower.jpg"}
    sheet = np.asarray(Image.open(tmp_path / "boxes.png"))
    assert sheet.shape == (900, 1200, 3)
    for number, line in enumerate(lines):
        top, left = 300 * (number // 4), 300 * (number % 4)
        tile = sheet[top : top + 300, left : left + 300].astype(int)
        assert int(re.search(r": (\d) boxes; ", line)[1]) > 0
        if line.startswith("flower"):  # the rectangle is cyan, and holds what is orange
            rows, columns = np.nonzero((tile == (0, 255, 255)).all(axis=2))
            orange = (tile[..., 0] > 200) & (tile[..., 2] < 150) & (tile[..., 1] > 60)
            inside = orange[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
            assert inside.sum() > 0.97 * orange.sum() > 50
            assert inside.mean() > 0.25


def test_the_data_set_has_240_photos_to_learn_from_and_80_to_hold_out(photos):
    for part, count in (("train", 240), ("valid", 80)):
        source = pp.read.files(photos / part)
        assert (len(source), source.classes, source.labels.mean()) == (count, ("china", "flower"), 0.5)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path):
    assert len(path.read_text().splitlines()) <= 80
