"""Tests that `build` rejects combinations of a pipeline and a model that do not match, with messages that contain the
fix.
"""

import sys

import pytest

import pixprep as pp
from pixprep.errors import PipelineError, SetupError
from pixprep.serving.repository import build, check
from pixprep.serving.repository.ports import load_onnx, parse_io
from support.faces import PIPELINE, PLAN, TWO, refusal, save_onnx, tensor_pipeline

HWC = tensor_pipeline(layout="hwc")
FOUR = tensor_pipeline(channels=4)
GRAY = pp.Pipeline([pp.decode(color="gray"), pp.resize(height=224, width=224), pp.tensor()])
SIZED = pp.Pipeline([pp.decode(), pp.resize(height=256, width=256), pp.center_crop(224), pp.tensor()])
WARPED = pp.Pipeline([pp.decode(), pp.warp([[1, 0, 0], [0, 1, 0]], height=24, width=24), pp.tensor()])
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
STACKED = "6 channels do not fit, because an image has 1, 3 or 4 channels"
SCALED = ", or pass --quantization input=[SCALE,ZERO_POINT] of the model"
INT8 = "normalize with mean 128, std 1 and scale 1"
WANTS = 'the pipeline returns float32, but input "input" is'
NO_ALPHA = (
    'set tensor channels to 4, which fills the fourth channel with "pad_value" and ignores the alpha channel of the '
    "file (for an RGBA model, use the value of alpha 255 in its training)"
)
BEHIND = ", or tensor channels to 1 after grayscale"
OTHER = ", or, if the width comes first in the model, set tensor layout to "


@pytest.mark.parametrize(
    ("pipeline", "shape", "remedy"),
    [
        (PIPELINE, (3, 256, 256), "set center_crop to height 256, width 256"),
        (PIPELINE, (3, 256, 257), "set center_crop to height 256, width 257 and resize to at least that size"),
        (SIZED, (3, 288, 288), "set center_crop to height 288, width 288 and resize to at least that size"),
        (WARPED, (3, 9, 9), "set warp to height 9, width 9"),
        (GRAY, (1, 32, 100), "set resize to height 32, width 100"),
        (PIPELINE, (224, 224, 3), 'set tensor layout to "hwc"'),
        (HWC, (3, "any", 256), 'set tensor layout to "chw" and set center_crop to height 224, width 256'),
        (PIPELINE, (1, 224, 224), f'set decode color to "gray"{BEHIND}'),
        (PIPELINE, (4, 224, 224), NO_ALPHA),
        (GRAY, (4, 224, 224), f'set decode color to "rgb" and {NO_ALPHA}'),
        (HWC, (224, 224, 4), NO_ALPHA),
        (FOUR, (3, 224, 224), "remove channels from tensor"),
        (GRAY, (3, 224, 224), 'set decode color to "rgb"'),
        (WIDE, (3, 100, 32), f'set resize to height 100, width 32{OTHER}"cwh"'),
        (WIDE, ("image_width", "H", 3), 'set tensor layout to "whc"'),
        (WIDE, (100, 32, 3), f'set tensor layout to "hwc" and set resize to height 100, width 32{OTHER}"whc"'),
        (WIDE, (3, 1, 32, 64), 'set tensor layout to "c1hw" and set resize to height 32, width 64'),
        (PIPELINE, (1, 1, 224, 224), f'set tensor layout to "1chw" and set decode color to "gray"{BEHIND}'),
        (PIPELINE, (1, 1, 1, 3, 224, 224), EXPORT),
        (ONE_MORE, (3, 224, 224), 'set tensor layout to "chw"'),
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


@pytest.mark.parametrize("words", [("width", "height"), ("W", "H"), ("height", "width"), ("a", "b")])
@pytest.mark.parametrize("layout", ["chw", "cwh"])
def test_the_metadata_of_an_onnx_file_may_say_that_its_width_comes_first(tmp_path, words, layout):
    path = save_onnx(tmp_path / "my.onnx", [("input", "FLOAT", ("batch", 3, *words))])
    built = build(tmp_path / "models", pipeline=tensor_pipeline(layout=layout), onnx=path)
    order = "".join(word[0].lower() for word in words)
    other = {"chw": "cwh", "cwh": "chw"}[layout]
    note = (
        f'my.onnx: the dims of input "input" are named 3, {", ".join(words)}: if that is their order, set tensor '
        f'layout to "{other}"'
    )
    assert (note in built.notes) == (order in other)
    assert sum("the dims of input" in each for each in built.notes) == (order in other)


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
    message = 'the pipeline has the tensors "a", "b": rename the one for the model to "input", the name of its input'
    assert refusal(path, TWO) == message


@pytest.mark.parametrize("content", [b"", b"not an ONNX file"])
def test_a_file_of_a_different_format_is_rejected(tmp_path, content):
    path = tmp_path / "my.onnx"
    path.write_bytes(content)
    assert refusal(path) == "not an ONNX file, or incomplete: export or copy it again"


GIVE_IO = (
    "a TensorRT plan does not declare its inputs: also pass the --onnx file that it was made from, or its "
    "inputs and outputs, such as --classifier-io input:FP32:3x224x224 logits:FP32:1000"
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_batch_size": 0}, "max_batch_size must be at least 1, not 0"),
        ({"classifier_io": ["a:FP32:3", "b:FP32:4"]}, GIVE_IO),
        ({"pipeline": PIPELINE, "onnx": "my.plan", "classifier_io": ["a:FP32:3", "b:FP32:4"]}, GIVE_IO),
        ({"pipeline": PIPELINE, "plan": "my.plan", "classifier": "tensorrt"}, GIVE_IO),
    ],
)
def test_contradictory_arguments_are_rejected(tmp_path, arguments, message):
    (tmp_path / "my.plan").write_bytes(PLAN)
    paths = {key: tmp_path / arguments[key] for key in ("onnx", "plan") if key in arguments}
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "out", **{**arguments, **paths})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["input:FP32:3x8x8"], "pass the input and each output, such as input:FP32:3x224x224 logits:FP32:1000"),
        (["input", "a:FP32:4"], 'expected NAME:TYPE:DIMS such as input:FP32:3x224x224, not "input"'),
        (["in:FP32:3x0", "a:FP32:4"], 'expected NAME:TYPE:DIMS such as input:FP32:3x224x224, not "in:FP32:3x0"'),
        (["in:fp32:3", "a:FP32:4"], '"in:fp32:3": unknown type "fp32"; did you mean "FP32"?'),
        (
            ["in:real:3", "a:FP32:4"],
            '"in:real:3": unknown type "real"; available: FP32, FP16, FP64, BF16, STRING, BOOL, UINT8, UINT16, UINT32, '
            "UINT64, INT8, INT16, INT32, INT64",
        ),
    ],
)
def test_options_that_do_not_describe_a_tensor_are_rejected(texts, message):
    with pytest.raises(PipelineError) as caught:
        parse_io(texts, source="my.plan")
    assert str(caught.value) == f"--classifier-io: {message}"


def test_options_can_contain_names_with_colons_and_open_dimensions():
    notes = parse_io(["input:0:FP16:3x-1x224", "a:INT64:4", "b:BOOL:1"], source="my.plan")
    assert [(tensor.name, tensor.data_type, tensor.shape) for tensor in (*notes.inputs, *notes.outputs)] == [
        ("input:0", "TYPE_FP16", (-1, 3, -1, 224)),
        ("a", "TYPE_INT64", (-1, 4)),
        ("b", "TYPE_BOOL", (-1, 1)),
    ]


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
