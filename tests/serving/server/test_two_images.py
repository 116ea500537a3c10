"""A model that compares two images, by the ensemble of docs/deploy.md: each image goes through the same pipeline."""

import re
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc

import pixprep as pp
from images import photo, png, scene
from pixprep.serving.repository import check, side_notes
from serving import Serve, write_model

pytestmark = pytest.mark.server

PAGE = (Path(__file__).parents[3] / "docs" / "deploy.md").read_text(encoding="utf-8")
ENSEMBLE = re.search(r"### A model of two images.*?```protobuf\n(.*?)```", PAGE, re.DOTALL)[1]
PIPELINE = pp.Pipeline([pp.decode(), pp.resize(height=16, width=16), pp.normalize(), pp.tensor()])
COMPARE = """\
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            left, right = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("left", "right"))
            distance = (left - right).mean(axis=(1, 2, 3), dtype=np.float32)[:, None]
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("distance", distance)]))
        return answers
"""
CONFIG = """\
backend: "python"
max_batch_size: 64
input [ { name: "left" data_type: TYPE_FP32 dims: [ 3, 16, 16 ] }, \
{ name: "right" data_type: TYPE_FP32 dims: [ 3, 16, 16 ] } ]
output { name: "distance" data_type: TYPE_FP32 dims: [ 1 ] }
"""


def test_each_image_goes_through_the_pipeline_and_the_model_gets_both(tmp_path):
    models = tmp_path / "models"
    write_model(models, "preprocess", 'backend: "pixprep"\n', {"pipeline.json": PIPELINE.to_json()})
    write_model(models, "compare", CONFIG, {"model.py": COMPARE})
    write_model(models, "pairs", ENSEMBLE, {".gitkeep": ""})
    assert (check(models), side_notes(models)) == ([], [])
    sides = [[photo(), png(scene(40, 30))], [png(scene(30, 30)), photo()]]
    with pp.Engine(PIPELINE) as engine:
        left, right = (np.stack(engine.run(each)) for each in sides)
    expected = (left - right).mean(axis=(1, 2, 3), dtype=np.float32)[:, None]
    assert (np.abs(expected) > 0.01).all()
    inputs = []
    for name, encoded in zip(("left_image", "right_image"), sides, strict=True):
        inputs.append(tritonclient.grpc.InferInput(name, [2, 1], "BYTES"))
        inputs[-1].set_data_from_numpy(np.array(encoded, dtype=np.object_)[:, None])
    with (
        Serve(models, triton_log=tmp_path / "log") as serve,
        tritonclient.grpc.InferenceServerClient(serve.grpc) as client,
    ):
        assert np.array_equal(client.infer("pairs", inputs).as_numpy("distance"), expected)
