"""Tests each program of training_examples/ by running it like a user, if its framework is installed."""

import json
import os
import re
import runpy
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
needs_serving = pytest.mark.skipif(not SERVING.exists(), reason="NO TRITON: make demo installs it")
needs_keras = pytest.mark.skipif(not find_spec("tensorflow"), reason="NO TENSORFLOW: make parity-tensorflow")


def run(folder, *words, python=sys.executable):
    """Run a program and return its output. Raise CalledProcessError unless the exit status is 0."""
    names = ("PYTHONPATH", "WORLD_SIZE", "RANK") if python == SERVING else ("WORLD_SIZE", "RANK")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    # with more threads, they would only wait for each other while other programs run: 22 s of CPU time instead of 8
    environment["OMP_NUM_THREADS"] = "1"
    command = [python, *map(str, words)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accuracy(printed):
    (number,) = re.findall(r"^accuracy on 80 validation photos: ([\d.]+)$", printed, re.MULTILINE)
    return float(number)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    run(folder, EXAMPLES / "cut_photos.py", folder)
    return folder


@needs_torch
@needs_onnx
@needs_serving
def test_a_trained_network_is_served_with_the_logits_of_its_training(tmp_path):
    assert accuracy(run(tmp_path, EXAMPLES / "pytorch_train.py")) > 0.9
    printed = run(tmp_path, EXAMPLES / "serve_trained.py", python=SERVING)
    *_, photos, tensors, logits, accuracies = printed.splitlines()
    assert len({*re.findall(r"[\d.]{6}", accuracies)}) == 1
    assert photos == "images served: 80"
    assert tensors == "tensors that differ from the training: 0"
    off = re.fullmatch(r"logits that differ from ONNX Runtime: 0; largest difference to PyTorch: (.*)", logits)
    assert float(off[1]) <= 1e-4

    evaluation = dict(np.load(tmp_path / "trained" / "evaluation.npz"))
    wrong = evaluation["tensor"].copy()
    wrong[7, 0, 0, 0] += 0.01
    for said, field in (("the training: 1", {"tensor": wrong}), ("after training: 0.5000", {"number": 0.5})):
        np.savez(tmp_path / "trained" / "evaluation.npz", **(evaluation | field))
        with pytest.raises(AssertionError, match=rf"(?s){said}\n.*the outputs of the served model differ from"):
            run(tmp_path, EXAMPLES / "serve_trained.py", python=SERVING)


def served(folder, trained, pipeline, photos, measure):
    """Assert that a server of the trained network gives the same value of a metric as the training itself."""
    printed = run(
        folder, EXAMPLES / "serve_trained.py", "--trained", trained, "--pipeline", pipeline, python=SERVING
    ).splitlines()
    assert printed[-4:-2] == [f"images served: {photos}", "tensors that differ from the training: 0"]
    assert re.match(
        r"logits that differ from ONNX Runtime: 0; largest difference to PyTorch: [\d.]+e-0[5-9]$", printed[-2]
    )
    assert printed[-1] == f"{measure[0]} of the served model: {measure[1]}, after training: {measure[1]}"


@needs_torch
@needs_onnx
@needs_serving
def test_a_segmentation_network_is_served_with_the_logits_of_its_training(tmp_path):
    printed = run(tmp_path, EXAMPLES / "pytorch_segment.py")
    (number,) = re.findall(r"^mIoU on 12 validation images: ([\d.]+)$", printed, re.MULTILINE)
    assert float(number) > 0.55
    served(tmp_path, "trained/segmented", "segmentation.json", 12, ("mIoU", number))


@needs_torch
@needs_onnx
@needs_serving
def test_a_detector_trained_on_padded_batches_is_served(tmp_path):
    printed = run(tmp_path, EXAMPLES / "pytorch_detect.py")
    sides = re.findall(r"shape of the last batch \(8, 3, (\d+), (\d+)\)", printed)
    assert len({*sides}) > 1
    (number,) = re.findall(r"^mAP on 40 validation images: ([\d.]+)$", printed, re.MULTILINE)
    assert float(number) > 0.5
    served(tmp_path, "trained/detector", "detection.json", 40, ("mAP", number))


def test_metrics_equal_manually_computed_ones():
    measures = runpy.run_path(EXAMPLES / "measures.py")
    told, true = np.array([[0, 0, 1, 1]]), np.array([[0, 1, 1, 255]])
    # class 2 is absent, and the last pixel has no label
    assert measures["mean_iou"](told, true, 3) == (1 / 2 + 1 / 2) / 2
    answers = np.full((1, 5, 1, 3), -9.0)
    answers[0, 1:] = 8 / 64  # each cell of 16 pixels predicts its own box
    answers[0, 0, 0] = [2, 3, 1]  # the cell at 16 to 32 has the highest score
    ap = measures["mean_ap"]
    first, both = [[0, 0, 16, 16]], [[0, 0, 16, 16], [32, 0, 48, 16]]
    assert ap(answers, np.array([first]), np.array([[0]])) == 1 / 2  # the object is found with the second highest score
    # both objects are found after three predictions
    assert ap(answers, np.array([both]), np.array([[0, 0]])) == pytest.approx(2 / 3)
    assert ap(answers, np.array([both]), np.array([[0, -1]])) == 1 / 2  # the second row is padding
    assert ap(answers, np.array([[[0, 0, 7, 16]]]), np.array([[0]])) == 0  # the overlap is 7 / 16


@needs_torch
def test_two_processes_see_every_sample_once_in_the_batches_of_one_process(photos):
    one, two = (
        run(photos, *TORCHRUN, f"--nproc-per-node={count}", EXAMPLES / "pytorch_shards.py", photos / "train")
        for count in (1, 2)
    )
    assert one == two
    lines = one.splitlines()
    assert [line for line in lines if "pixels" not in line] == [
        f"epoch {epoch}: 240 of 240 samples, 240 of them distinct" for epoch in range(2)
    ]
    batches = re.findall(r"^epoch (\d): pixels (\w{8}), samples \[(.*)\]$", one, re.MULTILINE)
    for epoch in "01":
        seen = [int(index) for number, _, indices in batches if number == epoch for index in indices.split(", ")]
        assert sorted(seen) == list(range(240))
    assert len({pixels for _, pixels, _ in batches}) == len(batches) == 10


RESUMED = """
import json, sys
from pathlib import Path
from torch import distributed
import pixprep as pp

folder, state, most = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
distributed.init_process_group("gloo")
pipeline = pp.load(Path(sys.argv[4])).for_training()
world, batches = distributed.get_world_size(), 0
shard = distributed.get_rank(), world
loader = pp.Loader(pp.read.files(folder), pipeline, batch_size=48 // world, shuffle=True, seed=1, shard=shard)
if state.exists():
    loader.load_state_dict(json.loads(state.read_text()))
while loader.epoch < 2 and batches < most:
    for batch in loader:
        parts = [None] * world
        distributed.all_gather_object(parts, [*zip(batch["index"].tolist(), batch["tensor"].sum((1, 2, 3)).tolist())])
        if shard[0] == 0:
            print(json.dumps([loader.epoch, sum(parts, [])]))
        batches += 1
        if batches == most:
            break
distributed.barrier()
if shard[0] == 0 and not state.exists():
    state.write_text(json.dumps(loader.state_dict()))
distributed.destroy_process_group()
"""


@needs_torch
def test_two_processes_resume_mid_epoch_without_losing_or_repeating_samples(photos, tmp_path):
    """Two processes are stopped after 7 of 10 batches. Training resumes with two processes and with one, with the same
    random parameters.
    """
    (program := tmp_path / "resumed.py").write_text(RESUMED)

    def seen(count, most, state):
        launched = (
            *TORCHRUN,
            f"--nproc-per-node={count}",
            program,
            photos / "train",
            state,
            most,
            EXAMPLES / "photos.json",
        )
        return [json.loads(line) for line in run(photos, *launched).splitlines()]

    whole, stopped = seen(1, 10, tmp_path / "none.json"), seen(2, 7, tmp_path / "state.json")
    assert (len(whole), len(stopped)) == (10, 7)
    for count in (2, 1):
        assert stopped + seen(count, 10, tmp_path / "state.json") == whole
    for epoch in range(2):
        indices = [index for number, rows in whole if number == epoch for index, _ in rows]
        assert sorted(indices) == list(range(240))


@needs_keras
def test_keras_learns_from_tfrecord_files(tmp_path):
    assert accuracy(run(tmp_path, EXAMPLES / "keras_tfrecord.py")) > 0.9


def test_boxes_are_drawn_around_the_objects(tmp_path):
    lines = run(tmp_path, EXAMPLES / "coco_boxes.py").splitlines()
    assert len(lines) == 12
    assert {line.partition(":")[0] for line in lines} == {"china.jpg", "flower.jpg"}
    sheet = np.asarray(Image.open(tmp_path / "boxes.png"))
    assert sheet.shape == (900, 1200, 3)
    for number, line in enumerate(lines):
        top, left = 300 * (number // 4), 300 * (number % 4)
        tile = sheet[top : top + 300, left : left + 300].astype(int)
        assert int(re.search(r": (\d) boxes; ", line)[1]) > 0
        if line.startswith("flower"):  # the rectangle is cyan and contains the orange pixels
            rows, columns = np.nonzero((tile == (0, 255, 255)).all(axis=2))
            orange = (tile[..., 0] > 200) & (tile[..., 2] < 150) & (tile[..., 1] > 60)
            inside = orange[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
            assert inside.sum() > 0.97 * orange.sum() > 50
            assert inside.mean() > 0.25


def test_the_data_set_has_240_training_photos_and_80_validation_photos(photos):
    for part, count in (("train", 240), ("valid", 80)):
        source = pp.read.files(photos / part)
        assert (len(source), source.classes, source.labels.mean()) == (count, ("china", "flower"), 0.5)


@pytest.mark.parametrize(
    "path", sorted({*EXAMPLES.glob("*.py")} - {EXAMPLES / "recipes.py"}), ids=lambda path: path.name
)
def test_an_example_is_short(path):
    assert len(path.read_text().splitlines()) <= 90
