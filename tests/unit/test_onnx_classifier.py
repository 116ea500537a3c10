"""The stand-alone classifier model, with a stand-in for the module that Triton's stub gives it."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

MODEL = Path(__file__).parents[2] / "backend" / "pixprep" / "demo" / "onnx_classifier.py"


class Tensor:
    def __init__(self, name, values):
        self.name, self.values = name, values

    def as_numpy(self):
        return self.values


class Error(Exception):
    INTERNAL = "INTERNAL"

    def __init__(self, message, code=None):
        super().__init__(message)
        self.code = code


class Request:
    def __init__(self, wanted=("double", "pairs"), **inputs):
        self.wanted = list(wanted)
        self.inputs = {name: Tensor(name, values) for name, values in inputs.items()}

    def requested_output_names(self):
        return set(self.wanted)  # as in Triton


def response(tensors=(), error=None):
    return SimpleNamespace(outputs={tensor.name: tensor.values for tensor in tensors}, error=error)


@pytest.fixture
def logged():
    return []


@pytest.fixture
def module(monkeypatch, logged):
    triton = ModuleType("triton_python_backend_utils")
    triton.Tensor = Tensor
    triton.TritonError = triton.TritonModelException = Error
    triton.InferenceResponse = response
    triton.Logger = SimpleNamespace(log_error=logged.append)
    triton.get_input_tensor_by_name = lambda request, name: request.inputs.get(name)
    monkeypatch.setitem(sys.modules, triton.__name__, triton)
    spec = importlib.util.spec_from_file_location("model", MODEL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path):
    """A model directory whose ONNX file doubles x [n, m], and cuts it in pairs: odd m makes the second fail."""
    nodes = [helper.make_node("Add", ["x", "x"], ["double"]), helper.make_node("Reshape", ["x", "shape"], ["pairs"])]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])],
        [
            helper.make_tensor_value_info("double", TensorProto.FLOAT, ["n", "m"]),
            helper.make_tensor_value_info("pairs", TensorProto.FLOAT, ["n", "k", 2]),
        ],
        [helper.make_tensor("shape", TensorProto.INT64, [3], [0, -1, 2])],
    )
    (tmp_path / "1").mkdir()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, tmp_path / "1" / "model.onnx")
    return tmp_path


def config(**changes):
    return {
        "max_batch_size": 8,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [
            {"name": "double", "data_type": "TYPE_FP32", "dims": [-1]},
            {"name": "pairs", "data_type": "TYPE_FP32", "dims": [-1, 2]},
        ],
    } | changes


def loaded(module, folder, **changes):
    model = module.TritonPythonModel()
    model.initialize(
        {
            "model_name": "small",
            "model_repository": str(folder),
            "model_version": "1",
            "model_config": json.dumps(config(**changes)),
        }
    )
    return model


def test_it_imports_nothing_of_pixprep():
    tree = ast.parse(MODEL.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    third_party = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert third_party == {"onnxruntime", "triton_python_backend_utils"}


def test_each_request_gets_what_the_onnx_file_computes(module, folder):
    first, second = (np.arange(n * 4, dtype=np.float32).reshape(n, 4) for n in (1, 3))
    one, three = loaded(module, folder).execute([Request(x=first), Request(x=second)])
    for answer, x in ((one, first), (three, second)):
        np.testing.assert_array_equal(answer.outputs["double"], x * 2)
        np.testing.assert_array_equal(answer.outputs["pairs"], x.reshape(len(x), 2, 2))


def test_a_request_gets_only_the_outputs_that_it_asks_for(module, folder):
    x = np.ones((1, 4), np.float32)
    (answer,) = loaded(module, folder).execute([Request(["double"], x=x)])
    assert answer.error is None
    assert answer.outputs.keys() == {"double"}


def test_a_request_that_fails_fails_alone_and_its_client_sees_no_details(module, folder, logged):
    good, bad = np.ones((1, 4), np.float32), np.ones((1, 3), np.float32)
    before, failed, missing, after = loaded(module, folder).execute(
        [Request(x=good), Request(x=bad), Request(), Request(x=good)]
    )
    message = "small: ONNX Runtime could not run this request; the server's log says why"
    for answer in (failed, missing):
        assert (str(answer.error), answer.error.code) == (message, "INTERNAL")
    for answer in (before, after):
        assert answer.error is None
        np.testing.assert_array_equal(answer.outputs["double"], good * 2)
    assert len(logged) == 2
    assert "Reshape" in logged[0]


def test_a_config_may_leave_outputs_out_and_fix_open_lengths(module, folder):
    fixed = [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}]
    loaded(module, folder, input=fixed, output=[{"name": "pairs", "data_type": "TYPE_FP32", "dims": ["2", "2"]}])
    loaded(module, folder, max_batch_size=0, input=[fixed[0] | {"dims": [1, 4]}], output=[])


BATCH = " (the batch first, -1: any)"


def one(name="x", data_type="TYPE_FP32", dims=(-1,)):
    return [{"name": name, "data_type": data_type, "dims": list(dims)}]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": one("y")}, 'config.pbtxt declares input "y", model.onnx has "x"'),
        ({"input": []}, 'model.onnx needs input "x", which config.pbtxt does not declare'),
        ({"output": one("logits")}, 'config.pbtxt declares output "logits", model.onnx has "double", "pairs"'),
        (
            {"input": one(data_type="TYPE_FP16")},
            'input "x" is TYPE_FP16 [-1, -1] in config.pbtxt, TYPE_FP32 [-1, -1] in model.onnx' + BATCH,
        ),
        (
            {"output": one("pairs", dims=(-1, 3))},
            'output "pairs" is TYPE_FP32 [-1, -1, 3] in config.pbtxt, TYPE_FP32 [-1, -1, 2] in model.onnx' + BATCH,
        ),
        (
            {"max_batch_size": 0},
            'input "x" is TYPE_FP32 [-1] in config.pbtxt, TYPE_FP32 [-1, -1] in model.onnx (-1: any)',
        ),
        (
            {"parameters": {"threads": {"string_value": "0"}}},
            'parameter "threads" is "0", expected a whole number from 1',
        ),
        (
            {"parameters": {"threads": {"string_value": "two"}}},
            'parameter "threads" is "two", expected a whole number from 1',
        ),
    ],
)
def test_a_config_that_disagrees_with_the_onnx_file_is_refused_in_one_line(module, folder, changes, message):
    with pytest.raises(Error) as caught:
        loaded(module, folder, **changes)
    assert str(caught.value) == f"small: {message}"


def test_a_missing_onnx_file_is_named(module, folder):
    (folder / "1" / "model.onnx").unlink()
    with pytest.raises(Error) as caught:
        loaded(module, folder)
    assert str(caught.value) == "small: model.onnx is missing in version 1 of the model"


def test_a_broken_onnx_file_is_refused_in_one_line_without_its_path(module, folder):
    (folder / "1" / "model.onnx").write_bytes(b"junk")
    with pytest.raises(Error) as caught:
        loaded(module, folder)
    message = str(caught.value)
    assert message.startswith("small: ONNX Runtime cannot load model.onnx: ")
    assert "\n" not in message
    assert str(folder) not in message


def test_threads_are_the_parameter_or_the_cores_that_the_process_may_use(module):
    assert module._threads({"parameters": {"threads": {"string_value": "3"}}}) == 3
    assert module._threads({}) == len(os.sched_getaffinity(0))
