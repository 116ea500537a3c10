"""Tests that `build` rejects combinations of a pipeline and a model that do not match, with messages that contain the
fix.
"""

import sys

import pytest

import pixprep as pp
from pixprep.errors import PipelineError, SetupError
from pixprep.serving.repository import build, check
from pixprep.serving.repository.ports import load_onnx
from support.faces import PIPELINE, PLAN, TWO, refusal, save_onnx, tensor_pipeline

HWC = tensor_pipeline(layout="hwc")
FOUR = tensor_pipeline(channels=4)
GRAY = pp.Pipeline([pp.decode(color="gray"), pp.resize(height=224, width=224), pp.tensor()])
WIDE = pp.Pipeline([pp.decode(), pp.resize(height=32, width=100), pp.tensor()])
ONE_MORE = tensor_pipeline(layout="1chw")
EXPORT = "export the model with [batch, 3, 224, 224]"
EXPORTED = "is fixed at {}: export the model with a dynamic batch dimension"
BATCH = f"{EXPORTED}, or try --free-dims"
ONE = f"{EXPORTED.format(1)}, or pass --max-batch-size 1, or try --free-dims"
VALUES = (
    "the pipeline returns values from -2.118 to 2.64, which a Cast would change: return the integers that the model "
    "was trained or quantized with"
)
OTHER = ", or, if its width comes first, to layout "
STACKED = "6 channels do not fit, because an image has 1, 3 or 4 channels"
SCALED = ", or pass --quantization input=[SCALE,ZERO_POINT] of the model"
INT8 = "normalize with mean 128, std 1 and scale 1"
WANTS = 'the pipeline returns float32, but input "input" is'


@pytest.mark.parametrize(
    ("pipeline", "shape", "remedy"),
    [
        (PIPELINE, (3, 256, 257), "change the pipeline to height 256, width 257"),
        (PIPELINE, (224, 224, 3), 'change the pipeline to layout "hwc"'),
        (HWC, (3, "any", 256), 'change the pipeline to layout "chw", width 256'),
        (PIPELINE, (4, 224, 224), "change the pipeline to channels 4"),
        (FOUR, (3, 224, 224), "change the pipeline to channels 3"),
        (WIDE, (100, 32, 3), f'change the pipeline to layout "hwc", height 100, width 32{OTHER}"whc"'),
        (WIDE, (3, 1, 32, 64), 'change the pipeline to layout "c1hw", width 64'),
        (PIPELINE, (1, 1, 224, 224), 'change the pipeline to layout "1chw", channels 1'),
        (PIPELINE, (1, 1, 1, 3, 224, 224), EXPORT),
        (ONE_MORE, (3, 224, 224), 'change the pipeline to layout "chw"'),
        (PIPELINE, (6, 224, 224), STACKED),
        (PIPELINE, (150528,), EXPORT),
    ],
)
def test_an_input_of_a_different_shape_is_rejected_with_the_fix(tmp_path, pipeline, shape, remedy):
    gives = list(pipeline.outputs["tensor"].spec.shape)
    wants = [-1 if isinstance(length, str) else length for length in shape]
    path = save_onnx(tmp_path / "my.onnx", [("input", "FLOAT", ("batch", *shape))])
    words = f'the pipeline returns {gives}, but input "input" of the model is {wants}: {remedy}'
    assert refusal(path, pipeline) == words


@pytest.mark.parametrize(
    ("side", "tensor", "message"),
    [
        ("inputs", ("input", "INT64"), f'input "input" is int64, but {VALUES}, for example with tensor dtype uint8'),
        ("inputs", ("input", "INT8"), f'input "input" is int8, but {VALUES}, for example with {INT8}{SCALED}'),
        ("inputs", ("input", "COMPLEX64"), f"{WANTS} of an unsupported type: export the model with float32"),
        ("inputs", ("input", "FLOAT", None), f'input "input" has no batch dimension: {EXPORT}'),
        ("inputs", ("input", "FLOAT", (8, 3, 224, 224)), f'the batch size of input "input" {BATCH.format(8)}'),
        ("outputs", ("logits", "FLOAT", (1, 4)), f'the batch size of output "logits" {ONE}'),
        (
            "outputs",
            ("a", "FLOAT", None),
            'output "a" has no shape: add it with onnx.shape_inference.infer_shapes_path',
        ),
        (
            "outputs",
            ("a", "COMPLEX64", ("batch", 4)),
            'output "a" has a type that Triton does not support: remove it from the model',
        ),
        *(
            (
                "outputs",
                (name, "FLOAT", ("batch", 4)),
                f'output "{name}": the ensemble already has a tensor with this name: rename it',
            )
            for name in ("tensor", "image", "status")
        ),
    ],
)
def test_a_tensor_that_triton_cannot_pass_on_is_rejected(tmp_path, side, tensor, message):
    assert refusal(save_onnx(tmp_path / "my.onnx", **{side: [tensor]})) == message


def test_one_of_two_tensors_must_be_named(tmp_path):
    path = save_onnx(tmp_path / "my.onnx", [("input", "FLOAT", ("batch", 3, 8, 8))])
    message = 'the pipeline has the tensors "a", "b": name the one for the model "input", as its input'
    assert refusal(path, TWO) == message


@pytest.mark.parametrize("content", [b"", b"not an ONNX file"])
def test_a_file_of_a_different_format_is_rejected(tmp_path, content):
    path = tmp_path / "my.onnx"
    path.write_bytes(content)
    assert refusal(path) == "not an ONNX file, or incomplete: export or copy it again"


GIVE_ONNX = "a TensorRT plan does not declare its inputs: also pass the --onnx file that it was made from"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_batch_size": 0}, "max_batch_size must be at least 1, not 0"),
        ({"pipeline": PIPELINE, "plan": "my.plan", "classifier": "tensorrt"}, GIVE_ONNX),
    ],
)
def test_contradictory_arguments_are_rejected(tmp_path, arguments, message):
    (tmp_path / "my.plan").write_bytes(PLAN)
    paths = {key: tmp_path / arguments[key] for key in ("onnx", "plan") if key in arguments}
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "out", **{**arguments, **paths})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("package", "command", "message"),
    [
        (
            "onnx",
            lambda path: load_onnx(path / "x"),
            'reading an ONNX file requires onnx: pip install ".[classifier]" in a checkout of pixprep',
        ),
        (
            "tritonclient.grpc",
            check,
            "reading a config.pbtxt that `pixprep build` did not write requires tritonclient: "
            'pip install ".[client]" in a checkout of pixprep',
        ),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch, package, command, message):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.pbtxt").write_text('backend: "python"')
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SetupError) as caught:
        command(tmp_path)
    assert str(caught.value) == message
