"""Models that only declare their inputs and outputs, and functions that read the repositories built from them."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pixprep as pp
from pixprep.errors import PipelineError
from pixprep.serving.repository import build
from pixprep.serving.repository.ports import declared, load_onnx

MODELS = ("classifier", "ensemble", "preprocess")
PLAN = b"ftrt and what follows"
"""Content of a file that begins like a TensorRT plan."""
UNASKED = (
    "TensorRT's parser has not checked model.onnx: to check it without a GPU, "
    'pip install ".[tensorrt]" in a checkout of pixprep'
)
"""Note of a build for TensorRT on a machine without TensorRT for RTX."""
PIPELINE = pp.presets.imagenet()
WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)


def value(name, dtype="FLOAT", shape=("batch", 3, 224, 224)):
    return helper.make_tensor_value_info(name, TensorProto.DataType.Value(dtype), shape)


def save_onnx(path, inputs=(("input",),), outputs=(("logits", "FLOAT", ("batch", 4)),)):
    """Write a model that only declares inputs and outputs, because these tests do not run it."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["weights"], ["same"])],
        "face",
        [value(*entry) for entry in inputs],
        [value(*entry) for entry in outputs],
        [numpy_helper.from_array(WEIGHTS, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


def folder(built):
    return Path(built.paths[0]).parents[2]


def files(root):
    """Return the content of every file in a repository by its relative path, without the ONNX files."""
    found = [path for path in root.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found if path.name != "model.onnx"}


def tensor_pipeline(**fields):
    return pp.Pipeline([pp.decode(), pp.resize(256), pp.center_crop(224), pp.tensor(**fields)])


TWO = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor(name="a"), pp.tensor(name="b")])


def refusal(path, pipeline=PIPELINE):
    """Return the message with which ``build`` rejects an ONNX file. Assert that ``build`` leaves no files."""
    with pytest.raises(PipelineError) as caught:
        build(path.parent / "out", pipeline=pipeline, onnx=path)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    return str(caught.value).removeprefix(f"{path.name}: ")


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def read_onnx(path):
    """Return the inputs and outputs that an ONNX file declares."""
    return declared(load_onnx(path)[1], path.name)
