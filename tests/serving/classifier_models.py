"""Shared parts of the tests of the standalone classifier models: a fake of Triton's Python module, and a small
model.
"""

import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace

import onnx
from onnx import TensorProto, helper


class Tensor:
    """Fake of Triton's tensor. ``values`` is a NumPy array, or after ``from_dlpack`` the object that the array came
    from.
    """

    def __init__(self, name, values):
        self.name, self.values = name, values

    @classmethod
    def from_dlpack(cls, name, capsule):
        return cls(name, capsule)

    def is_cpu(self):
        return True

    def as_numpy(self):
        return self.values

    def to_dlpack(self):
        return self.values.__dlpack__()


class OnDevice(Tensor):
    """Tensor that claims to be on a GPU. It has only one of Triton's two methods to access its data, and the data is in
    CPU memory.
    """

    def is_cpu(self):
        return False

    def as_numpy(self):
        raise AssertionError("this would copy it")


class Error(Exception):
    INTERNAL = "INTERNAL"

    def __init__(self, message, code=None):
        super().__init__(message)
        self.code = code


class Request:
    def __init__(self, output_names=("double", "pairs"), **inputs):
        self.wanted = list(output_names)
        self.inputs = {
            name: values if isinstance(values, Tensor) else Tensor(name, values) for name, values in inputs.items()
        }

    def requested_output_names(self):
        return set(self.wanted)  # Triton also returns a set


def response(tensors=(), error=None):
    return SimpleNamespace(outputs={tensor.name: tensor.values for tensor in tensors}, error=error)


def load(file, monkeypatch):
    """Import the module of a classifier model. Return the module and its log, which has ``errors``, ``warnings`` and
    ``infos``.
    """
    logs = SimpleNamespace(errors=[], warnings=[], infos=[])
    triton = ModuleType("triton_python_backend_utils")
    triton.Tensor = Tensor
    triton.TritonError = triton.TritonModelException = Error
    triton.InferenceResponse = response
    triton.Logger = SimpleNamespace(
        log_error=logs.errors.append, log_warn=logs.warnings.append, log_info=logs.infos.append
    )
    triton.get_input_tensor_by_name = lambda request, name: request.inputs.get(name)
    monkeypatch.setitem(sys.modules, triton.__name__, triton)
    spec = importlib.util.spec_from_file_location("model", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "model", module)  # dataclasses search for their module here
    spec.loader.exec_module(module)
    return module, logs


def save(folder, nodes, inputs, outputs, constants=()):
    """Write a model directory with these nodes. Inputs and outputs are float32, given as shapes by name."""
    faces = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in side.items()]
        for side in (inputs, outputs)
    ]
    graph = helper.make_graph([helper.make_node(*node[:3], **dict(*node[3:])) for node in nodes], "small", *faces)
    graph.initializer.extend(constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    (folder / "1").mkdir(exist_ok=True)
    onnx.save(model, folder / "1" / "model.onnx")
    return folder


def save_small(folder):
    """Write a model that doubles x [n, m] and reshapes it to pairs. An odd m makes its second output fail."""
    return save(
        folder,
        [("Add", ["x", "x"], ["double"]), ("Reshape", ["x", "shape"], ["pairs"])],
        {"x": ["n", "m"]},
        {"double": ["n", "m"], "pairs": ["n", "k", 2]},
        [helper.make_tensor("shape", TensorProto.INT64, [3], [0, -1, 2])],
    )


def one(name="x", data_type="TYPE_FP32", dims=(-1,)):
    return [{"name": name, "data_type": data_type, "dims": list(dims)}]


def config(**changes):
    """Return the configuration of the small model, with changes."""
    return {"max_batch_size": 8, "input": one(), "output": one("double") + one("pairs", dims=(-1, 2))} | changes


def started(module, folder, *, device="CPU", number="0", **changes):
    """Create and initialize the model as Triton does."""
    model = module.TritonPythonModel()
    model.initialize(
        {
            "model_name": "small",
            "model_repository": str(folder),
            "model_version": "1",
            "model_instance_kind": device,
            "model_instance_device_id": number,
            "model_config": json.dumps(config(**changes)),
        }
    )
    return model


def parameter(name, value):
    return {"parameters": {name: {"string_value": value}}}


# each case: a configuration that contradicts the small model, and the resulting error
DISAGREEMENTS = [
    ({"input": one("y")}, "config.pbtxt declares the inputs ['y'], but model.onnx has ['x']"),
    ({"input": []}, "config.pbtxt declares the inputs [], but model.onnx has ['x']"),
    ({"output": one("logits")}, "config.pbtxt declares the outputs ['logits'], but model.onnx has ['double', 'pairs']"),
    (
        {"input": one(data_type="TYPE_FP16")},
        'input "x" is TYPE_FP16 [-1, -1] in config.pbtxt, but TYPE_FP32 [-1, -1] in model.onnx (-1: any)',
    ),
    (
        {"output": one("pairs", dims=(-1, 3))},
        'output "pairs" is TYPE_FP32 [-1, -1, 3] in config.pbtxt, but TYPE_FP32 [-1, -1, 2] in model.onnx (-1: any)',
    ),
    (
        {"max_batch_size": 0},
        'input "x" is TYPE_FP32 [-1] in config.pbtxt, but TYPE_FP32 [-1, -1] in model.onnx (-1: any)',
    ),
    *(
        (parameter("threads", text), f'parameter "threads" must be an integer of at least 1, not "{text}"')
        for text in ("0", "two")
    ),
    (parameter("outputs", "both"), 'parameter "outputs" must be "cpu" or "gpu", not "both"'),
]
