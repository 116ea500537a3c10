"""Tests of ONNX files as they are exported in practice: fixed dimensions, a batch that is not the first dimension,
several heads, and the report on a file.
"""

import onnx
import onnx.parser
import pytest

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.errors import PipelineError
from pixprep.serving.repository import build, check
from support.faces import read_onnx

PIPELINE = pp.Pipeline([pp.decode(), pp.resize(height=64, width=48), pp.normalize(), pp.tensor()])
HEAD = '<ir_version: 8, opset_import: ["": 18]>\n'
FROZEN = """face (float[10, 3, 32, 32] input) => (float[10, 1, 32, 32] heat, float[10, 2] sums) {
    channels = Constant <value_ints = [1]> ()
    heat = ReduceMean <keepdims = 1> (input, channels)
    sides = Constant <value_ints = [1, 2, 3]> ()
    flat = ReduceMean <keepdims = 0> (input, sides)
    axis = Constant <value_ints = [1]> ()
    one = Unsqueeze (flat, axis)
    sums = Concat <axis = 1> (one, one)
}"""
RESHAPED = """face (float[10, 3, 32, 32] input) => (float[10, 3072] flat) {
    shape = Constant <value_ints = [10, 3072]> ()
    flat = Reshape (input, shape)
}"""
MIXED = """face (float[2, 3, 64, 48] input) => (float[2, 1, 1, 1] scores) {
    sides = Constant <value_ints = [1, 2, 3]> ()
    mean = ReduceMean <keepdims = 1> (input, sides)
    rows = Constant <value_ints = [0]> ()
    all = ReduceMean <keepdims = 1> (mean, rows)
    scores = Sub (mean, all)
}"""
SECOND = """lines (float[batch, 3, 64, 48] input) => (float[20, batch, 37] logits) {
    logits = Identity (input)
}"""
SECOND_OF_ONE = """lines (float[1, 3, 64, 48] input) => (float[20, 1, 37] logits) {
    sides = Constant <value_ints = [1, 2]> ()
    means = ReduceMean <keepdims = 0> (input, sides)
    starts = Constant <value_ints = [0]> ()
    ends = Constant <value_ints = [37]> ()
    axes = Constant <value_ints = [1]> ()
    some = Slice (means, starts, ends, axes)
    one = Unsqueeze (some, starts)
    times = Constant <value_ints = [20, 1, 1]> ()
    logits = Tile (one, times)
}"""
SECOND_MEANS = SECOND_OF_ONE.replace("float[1,", "float[batch,").replace("[20, 1, 37]", "[20, batch, 37]", 1)
HEADS = """heads (float[batch, 3, 64, 48] input) => (float[batch, 3] colour, float[batch, 2] size) {
    sides = Constant <value_ints = [2, 3]> ()
    colour = ReduceMean <keepdims = 0> (input, sides)
    starts = Constant <value_ints = [0]> ()
    ends = Constant <value_ints = [2]> ()
    axes = Constant <value_ints = [1]> ()
    size = Slice (colour, starts, ends, axes)
}"""
SCALED = """scaled (float[1, 3, 64, 48] input) => (float[1, 3] scores) {
    mean = Constant <value_float = 127.5> ()
    centred = Sub (input, mean)
    scaled = Div (centred, mean)
    sides = Constant <value_ints = [2, 3]> ()
    scores = ReduceMean <keepdims = 0> (scaled, sides)
}"""


INPUTS = """inputs (
    float[3, 64, 48] input, float[1] conf, float[batch, 2] scale_factor, int64[batch, l] ids,
    int64[batch, h, w] pixel_mask
) => (float[n, 7] dets) {
    dets = Identity (conf)
}"""


def save(path, text):
    onnx.save(onnx.parser.parse_model(HEAD + text), path)
    return path


def test_fixed_batch_dims_are_opened_if_the_model_then_runs(tmp_path):
    frozen = save(tmp_path / "frozen.onnx", FROZEN)
    with pytest.raises(PipelineError, match=r"fixed at 10: export the model .* or try --free-dims"):
        build(tmp_path / "models", pipeline=pp.Pipeline([*PIPELINE.ops[:1], pp.resize(height=32, width=32),
              *PIPELINE.ops[2:]]), onnx=frozen)  # fmt: skip
    build(tmp_path / "models", pipeline=PIPELINE, onnx=frozen, free_dims=True)
    assert check(tmp_path / "models") == []
    written = read_onnx(tmp_path / "models" / "classifier" / "1" / "model.onnx")
    assert [tensor.shape for tensor in (*written.inputs, *written.outputs)] == [
        (-1, 3, 64, 48), (-1, 1, 64, 48), (-1, 2),
    ]  # fmt: skip
    assert main(["check", str(tmp_path / "models")]) == 0


@pytest.mark.parametrize("form", ["Constant <value_ints = [10, 3072]>", "Constant <value = int64[2] {10, -1}>"])
def test_a_reshape_to_the_fixed_batch_is_also_changed(tmp_path, form):
    text = RESHAPED.replace("Constant <value_ints = [10, 3072]>", form)
    small = pp.Pipeline([pp.decode(), pp.resize(height=32, width=32), pp.normalize(), pp.tensor()])
    build(tmp_path / "models", pipeline=small, onnx=save(tmp_path / "m.onnx", text), free_dims=True)
    (output,) = read_onnx(tmp_path / "models" / "classifier" / "1" / "model.onnx").outputs
    assert output.shape == (-1, 3072)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            RESHAPED,
            '--free-dims: output "flat" has the shape [3, 3072] for one image and [6, 3072] for two: its first '
            "dimension is not the batch",
        ),
        (
            RESHAPED.replace("[10, 3072]", "[3072, 10]"),
            "--free-dims: the model does not run with 1 image: ONNX Runtime could not run it: Non-zero status code",
        ),
        (MIXED, '--free-dims: output "scores" of an image depends on other images of the batch'),
    ],
)
def test_dims_that_cannot_be_opened_are_rejected_after_the_trial(tmp_path, text, said):
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "models", pipeline=PIPELINE, onnx=save(tmp_path / "m.onnx", text), free_dims=True)
    assert str(caught.value).startswith(f"m.onnx: {said}")
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(("text", "options"), [(SECOND_MEANS, {}), (SECOND_OF_ONE, {"free_dims": True})])
def test_a_batch_as_second_dimension_is_transposed(tmp_path, text, options):
    path = save(tmp_path / "lines.onnx", text)
    before = path.read_bytes()
    notes = build(tmp_path / "models", pipeline=PIPELINE, onnx=path, **options).notes
    assert 'lines.onnx: Transpose [1, 0, 2] after output "logits"' in notes
    (output,) = read_onnx(tmp_path / "models" / "classifier" / "1" / "model.onnx").outputs
    assert (output.name, output.shape) == ("logits", (-1, 20, 37))
    assert check(tmp_path / "models") == []
    assert path.read_bytes() == before


def test_each_head_has_its_labels(tmp_path, capsys):
    path = save(tmp_path / "heads.onnx", HEADS)
    files = {"colour": "red\ngreen\nblue\n", "size": "small\nlarge\n"}
    words = []
    for head, text in files.items():
        (tmp_path / f"{head}.txt").write_text(text)
        words += ["--labels", f"{head}={tmp_path / head}.txt"]
    PIPELINE.save(tmp_path / "p.json")
    command = [
        "build",
        "--pipeline",
        str(tmp_path / "p.json"),
        "--onnx",
        str(path),
        "--output",
        str(tmp_path / "models"),
    ]
    for _ in range(2):
        assert main([*command, *words]) == 0
    said = capsys.readouterr().err
    assert '"colour": ' in said
    assert '"size": ' in said
    config = (tmp_path / "models" / "classifier" / "config.pbtxt").read_text()
    for head, text in files.items():
        assert (tmp_path / "models" / "classifier" / f"labels_{head}.txt").read_text() == text
        assert f'label_filename: "labels_{head}.txt"' in config
    assert check(tmp_path / "models") == []


QUANTIZED = """quantized (int8[N, 3, 64, 48] input) => (float[N, 3, 64, 48] values)
<float s = {0.0078125}, int8 z = {-128}> {
    moved = Transpose (input)
    values = DequantizeLinear (moved, s, z)
}"""
LOOKS = [
    (
        QUANTIZED,
        [
            'input  "input" TYPE_INT8 [-1, 3, 64, 48]',
            "       quantized with scale 0.0078125 and zero point -128: build adds a QuantizeLinear if the pipeline "
            "returns float32",
            'output "values" TYPE_FP32 [-1, 3, 64, 48]',
        ],
    ),
    (
        SCALED,
        [
            'input  "input" TYPE_FP32 [1, 3, 64, 48]',
            '       begins with Sub "centred", Div "scaled": value * [0.00784314] + [-1]',
            "       batch size fixed at 1: --free-dims tries to make it dynamic",
            'output "scores" TYPE_FP32 [1, 3]',
        ],
    ),
    (
        SECOND,
        [
            'input  "input" TYPE_FP32 [-1, 3, 64, 48]',
            'output "logits" TYPE_FP32 [20, -1, 37]',
            "       the batch is the second dimension: build appends a Transpose",
        ],
    ),
    (
        HEADS,
        [
            'input  "input" TYPE_FP32 [-1, 3, 64, 48]',
            'output "colour" TYPE_FP32 [-1, 3]',
            'output "size" TYPE_FP32 [-1, 2]',
            "       to label several outputs, pass --labels colour=FILE for each of them",
        ],
    ),
    (
        INPUTS,
        [
            'input  "input" TYPE_FP32 [3, 64, 48]',
            "       has no batch dimension: build adds a Squeeze",
            'input  "conf" TYPE_FP32 [1]',
            "       replaced by 0.25; --constant conf=VALUE sets another value",
            'input  "scale_factor" TYPE_FP32 [-1, 2]',
            '       computed by {"op": "scale_factor"}',
            'input  "ids" TYPE_INT64 [-1, -1]',
            "       sent by clients with each image, unless an op has this name, or --constant sets the value",
            'input  "pixel_mask" TYPE_INT64 [-1, -1, -1]',
            "       a mask of the pixels: build computes it",
            'output "dets" TYPE_FP32 [-1, 7]',
            "       may be one list for all images: build tries it",
        ],
    ),
    (
        SECOND.replace("3, 64, 48]", "1, 3, 64, 48]").replace("20, batch", "batch, 20"),
        [
            'input  "input" TYPE_FP32 [-1, 1, 3, 64, 48]',
            "       accepts clips (decode_video), or images in a layout of five dims",
            'output "logits" TYPE_FP32 [-1, 20, 37]',
        ],
    ),
]


@pytest.mark.parametrize(("text", "lines"), LOOKS)
def test_an_inspection_of_a_file_names_the_next_steps(tmp_path, capsys, text, lines):
    assert main(["build", "--explain", str(save(tmp_path / "found.onnx", text))]) == 0
    assert capsys.readouterr().out.splitlines() == [*lines, "opset  18"]
