"""Attack: ``build`` previews an ONNX file that never terminates, allocates a terabyte, or reads a file in a different
folder.

Defence: ONNX Runtime runs the model in a separate process, with limits on time and address space. External weights must
be in the model's folder.

Outcome: Instead of the classes, the preview shows the error in one line. The command continues, and the repository that
it built is not affected.
"""

import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

import pixprep as pp
from pixprep.serving.repository import pbtxt, try_out
from pixprep.serving.repository.pbtxt import Step
from support.images import jpeg, noise
from support.serving import write_model

HOSTILE = """<ir_version: 8, opset_import: ["": 18]>
hostile (float[batch, 3, 8, 8] images) => (float[batch, 3, 8, 8] scores)
<bool yes = {{1}}, int64[1] terabyte = {{274877906944}}> {{ {} }}"""
TIME = """scores = Loop <body = endless (int64 step, bool go_on, float held) => (bool still, float next) {
    still = Identity (go_on)
    next = Identity (held)
}> (, yes, images)"""
MEMORY = """zeros = ConstantOfShape (terabyte)
sum = ReduceSum (zeros)
scores = Add (images, sum)"""


@pytest.fixture
def repository(tmp_path):
    """Return a function that creates a repository in the form in which ``build`` writes it, with a classifier of these
    nodes.
    """

    def make(nodes):
        preprocess, classifier = (tmp_path / "models" / model / "1" for model in ("preprocess", "classifier"))
        for folder in (preprocess, classifier):
            folder.mkdir(parents=True)
        pipeline = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor()])
        pipeline.save(preprocess / "pipeline.json")
        onnx.save(onnx.parser.parse_model(HOSTILE.format(nodes)), classifier / "model.onnx")
        steps = [Step("preprocess", {}, {"tensor": "tensor"}), Step("classifier", {"images": "tensor"}, {})]
        write_model(tmp_path / "models", "ensemble", pbtxt.ensemble(steps, 1, [], [], {}))
        return tmp_path / "models"

    return make


def last_line(repository, **options):
    return list(try_out(repository, jpeg(noise(16, 16)), **options))[-1]


def test_a_model_that_never_ends_is_stopped(repository):
    assert last_line(repository(TIME), limit_s=1) == "the classifier was not tried: it takes more than 1 s"


def test_a_model_that_allocates_a_terabyte_fails(repository):
    line = last_line(repository(MEMORY))
    assert line.startswith("the classifier was not tried: ONNX Runtime could not run it: ")
    assert "alloc" in line.lower() or "memory" in line.lower()
    assert len(line) < 400


def test_a_model_whose_weights_are_elsewhere_is_rejected(repository):
    models = repository("scores = Add (images, weights)")
    path = models / "classifier" / "1" / "model.onnx"
    model = onnx.load(path)
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [1], [0.0])
    weights.ClearField("float_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../../../secret.bin")
    model.graph.initializer.append(weights)
    path.write_bytes(model.SerializeToString())
    (models.parent / "secret.bin").write_bytes(bytes(4))
    with pytest.raises(pp.PipelineError, match="which is not a data file in the same folder"):
        last_line(models)
