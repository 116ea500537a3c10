"""Attack: an ONNX file whose weights lie in "model.py", "../../.bashrc" or "torch.so": ``build`` copies them along.

Defence: weights lie beside the ONNX file, and are no file that Python runs.
Outcome: refused. Before the mend the stranger's model.py took the place of ours, and Triton would have run it.
"""

import pytest
from onnx import TensorProto, helper

import pixprep as pp
from attacks.pipelines import VALID
from pixprep import repository

NAMES = ("model.py", "torch.py", "numpy.so", "x.pyc", "../model.py", "/etc/passwd", "..", ".", "a/b", "a\0b", "")


def save(path, location):
    """A model that adds weights, which are said to lie in a file of their own."""
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value=location)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3, 8, 8])
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], initializer=[weights])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]).SerializeToString())


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_weights_that_are_code_or_elsewhere_are_refused_and_nothing_is_written(tmp_path, name):
    save(tmp_path / "model.onnx", name)
    (tmp_path / "model.py").write_text("raise SystemExit")
    with pytest.raises(pp.PipelineError, match="has weights in"):
        repository.build(tmp_path / "out", pipeline=pp.Pipeline.from_json(VALID), onnx=tmp_path / "model.onnx")
    assert not (tmp_path / "out").exists()
