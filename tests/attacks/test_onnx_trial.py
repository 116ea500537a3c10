"""Attack: an ONNX file that never ends, asks for a terabyte, or reads a file elsewhere, for the preview of a build.

Defence: ONNX Runtime runs it in a process of its own, with a limit of time and of addresses; its weights lie beside it.
Outcome: the preview says in one line why there are no classes. The command goes on; what it built is not touched.
"""

import onnx
import pytest
from onnx import TensorProto, helper

import pixprep as pp
from images import jpeg, noise
from pixprep.repository import try_out

ENDLESS = helper.make_graph(
    [
        helper.make_node("Identity", ["go_on"], ["still"]),
        helper.make_node("Identity", ["held"], ["next"]),
    ],
    "body",
    [
        helper.make_tensor_value_info("step", TensorProto.INT64, []),
        helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
        helper.make_tensor_value_info("held", TensorProto.FLOAT, None),
    ],
    [
        helper.make_tensor_value_info("still", TensorProto.BOOL, []),
        helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
    ],
)
TIME = [helper.make_node("Loop", ["", "yes", "images"], ["scores"], body=ENDLESS)]
MEMORY = [
    helper.make_node("ConstantOfShape", ["terabyte"], ["zeros"]),
    helper.make_node("ReduceSum", ["zeros"], ["sum"]),
    helper.make_node("Add", ["images", "sum"], ["scores"]),
]


@pytest.fixture
def repository(tmp_path):
    """A repository as ``build`` writes it: with a classifier of these nodes."""
    pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor()]).save(tmp_path / "pipeline.json")

    def make(nodes):
        for model, name in (("preprocess", "pipeline.json"), ("classifier", "model.onnx")):
            folder = tmp_path / "models" / model / "1"
            folder.mkdir(parents=True)
            if name == "pipeline.json":
                (tmp_path / name).rename(folder / name)
                continue
            graph = helper.make_graph(
                nodes,
                "hostile",
                [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 8, 8])],
                [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3, 8, 8])],
                [
                    helper.make_tensor("yes", TensorProto.BOOL, [], [True]),
                    helper.make_tensor("terabyte", TensorProto.INT64, [1], [1 << 38]),
                ],
            )
            onnx.save(
                helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), folder / name
            )
        return tmp_path / "models"

    return make


def last_line(repository, **options):
    return list(try_out(repository, jpeg(noise(16, 16)), **options))[-1]


def test_a_model_that_never_ends_is_ended(repository):
    assert last_line(repository(TIME), limit_s=1) == "the classifier was not tried: it takes over 1 s"


def test_a_model_that_asks_for_a_terabyte_gets_none(repository):
    line = last_line(repository(MEMORY))
    assert line.startswith("the classifier was not tried: ONNX Runtime could not run it: ")
    assert "alloc" in line.lower() or "memory" in line.lower()
    assert len(line) < 400


def test_a_model_whose_weights_lie_elsewhere_is_refused(repository):
    models = repository([helper.make_node("Add", ["images", "weights"], ["scores"])])
    path = models / "classifier" / "1" / "model.onnx"
    model = onnx.load(path)
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [1], [0.0])
    weights.ClearField("float_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../../../secret.bin")
    model.graph.initializer.append(weights)
    path.write_bytes(model.SerializeToString())
    (models.parent / "secret.bin").write_bytes(bytes(4))
    with pytest.raises(pp.PipelineError, match="which is no data file beside it"):
        last_line(models)
