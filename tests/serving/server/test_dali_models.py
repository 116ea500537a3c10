"""Tests that imported model folders of dali_backend are served, and that their ensembles and clients do not need any
changes.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.importers.dali import from_dali
from pixprep.serving.repository import check
from support.images import jpeg as encode
from support.images import photo, scene
from support.serving import address, write_model

pytestmark = pytest.mark.server

FROZEN = Path(__file__).parents[2] / "parity" / "frozen" / "dali"
CLASSES = 1000
MODEL = """\
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            image = pb_utils.get_input_tensor_by_name(request, "{input}").as_numpy()
            values = image.reshape(len(image), 3, -1)[:, :, :: image[0, 0].size // {count} or 1]
            rows = values.reshape(len(image), -1)[:, : {count}].reshape(len(image), *{dims})
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("{output}", rows.copy())]))
        return answers
"""
"""A model that returns some of its input values, as a replacement for a network."""
ECHO_MODEL = """\
backend: "python"
max_batch_size: {batch}
input [ {{ name: "{input}" data_type: TYPE_FP32 dims: [ 3, {side}, {side} ] }} ]
output [ {{ name: "{output}" data_type: TYPE_FP32 dims: {dims} }} ]
instance_group [ {{ kind: KIND_CPU }} ]
"""
DALI = """\
name: "{name}"
backend: "dali"
max_batch_size: {batch}
input [
  {{ name: "DALI_INPUT_0" data_type: TYPE_UINT8 dims: [ -1 ] }}
]
output [
  {{ name: "DALI_OUTPUT_0" data_type: TYPE_FP32 dims: [ 3, {side}, {side} ] }}
]
parameters: [ {{ key: "num_threads" value: {{ string_value: "2" }} }} ]
"""
ENSEMBLE = """\
platform: "ensemble"
max_batch_size: {batch}
input [ {{ name: "INPUT" data_type: TYPE_UINT8 dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT" data_type: TYPE_FP32 dims: {dims} }} ]
ensemble_scheduling {{
  step [
    {{ model_name: "{name}" model_version: -1
      input_map {{ key: "DALI_INPUT_0" value: "INPUT" }} output_map {{ key: "DALI_OUTPUT_0" value: "preprocessed" }} }},
    {{ model_name: "{model}" model_version: -1
      input_map {{ key: "{input}" value: "preprocessed" }} output_map {{ key: "{output}" value: "OUTPUT" }} }}
  ]
}}
"""
REPOSITORIES = {
    "classifier": {
        "graph": "stretched", "name": "dali", "model": "resnet50_trt", "ensemble": "ensemble_dali_resnet50",
        "input": "input", "output": "output", "batch": 256, "side": 224, "dims": [CLASSES], "count": CLASSES,
    },
    "detector": {
        "graph": "letterboxed", "name": "dali_preprocessing", "model": "yolo_trt", "ensemble": "ensemble_dali_yolo",
        "input": "images", "output": "output0", "batch": 8, "side": 640, "dims": [300, 6], "count": 1800,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return repositories that ``import`` created, with models and ensembles like those of dali_backend."""
    folder = tmp_path_factory.mktemp("dali")
    models = folder / "served"
    for facts in REPOSITORIES.values():
        theirs = folder / "theirs" / facts["name"]
        (theirs / "1").mkdir(parents=True)
        (theirs / "config.pbtxt").write_text(DALI.format(**facts))
        shutil.copy(FROZEN / f"{facts['graph']}.dali", theirs / "1" / "model.dali")
        assert main(["import", str(theirs), str(models / facts["name"])]) == 0
        write_model(models, facts["model"], ECHO_MODEL.format(**facts), {"model.py": MODEL.format(**facts)})
        write_model(models, facts["ensemble"], ENSEMBLE.format(**facts), {".gitkeep": ""})
    assert check(models) == []
    return models


def tensors(facts, encoded):
    with pp.Engine(from_dali(FROZEN / f"{facts['graph']}.dali"), threads=1) as engine:
        return np.stack(engine.run(encoded))


def model_inputs(facts, images):
    """Return the values that reach the model which replaces the network."""
    values = images.reshape(len(images), 3, -1)[:, :, :: facts["side"] ** 2 // facts["count"] or 1]
    return values.reshape(len(images), -1)[:, : facts["count"]].reshape(len(images), *facts["dims"])


def test_the_client_of_a_classifier_gets_its_class_over_grpc(server, tmp_path):
    facts = REPOSITORIES["classifier"]
    (tmp_path / "photo.jpg").write_bytes(photo())
    image = np.expand_dims(np.fromfile(tmp_path / "photo.jpg", dtype="uint8"), axis=0)
    inputs = [tritonclient.grpc.InferInput("INPUT", image.shape, "UINT8")]
    inputs[0].set_data_from_numpy(image)
    with tritonclient.grpc.InferenceServerClient(url=address(server, "grpc")) as client:
        outputs = [tritonclient.grpc.InferRequestedOutput("OUTPUT")]
        scores = client.infer(model_name="ensemble_dali_resnet50", inputs=inputs, outputs=outputs).as_numpy("OUTPUT")
    expected = model_inputs(facts, tensors(facts, [photo()]))
    assert np.array_equal(scores, expected)
    assert scores.argmax(axis=1) == expected.argmax(axis=1)


def test_the_client_of_a_detector_gets_its_rows_over_http(server, tmp_path):
    facts = REPOSITORIES["detector"]
    (tmp_path / "image.jpg").write_bytes(photo("flower"))
    image = np.expand_dims(np.fromfile(tmp_path / "image.jpg", dtype="uint8"), axis=0)
    tensor = tritonclient.http.InferInput("INPUT", image.shape, "UINT8")
    tensor.set_data_from_numpy(image)
    with tritonclient.http.InferenceServerClient(url=address(server)) as client:
        rows = client.infer(model_name="ensemble_dali_yolo", inputs=[tensor]).as_numpy("OUTPUT")
    assert rows.shape == (1, 300, 6)
    assert np.array_equal(rows, model_inputs(facts, tensors(facts, [photo("flower")])))


@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_batch_of_padded_photos_gives_their_tensors(server, name):
    facts = REPOSITORIES[name]
    encoded = [photo(), encode(scene(333, 77)), encode(scene(90, 300))]
    longest = max(map(len, encoded))
    rows = np.stack([np.pad(np.frombuffer(each, np.uint8), (0, longest - len(each))) for each in encoded])
    tensor = tritonclient.http.InferInput("DALI_INPUT_0", rows.shape, "UINT8")
    tensor.set_data_from_numpy(rows)
    with tritonclient.http.InferenceServerClient(url=address(server)) as client:
        answer = client.infer(facts["name"], [tensor]).as_numpy("DALI_OUTPUT_0")
    assert np.array_equal(answer, tensors(facts, encoded))
