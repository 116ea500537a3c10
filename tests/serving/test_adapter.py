"""Tests that models built from ONNX files with many signatures return the values that the files compute.

Each row of ``SIGNATURES`` is a small file with the types, dimensions and inputs of a kind of published model. The model
returns the mean of its image plus the means of its other inputs, in one of the forms of ``FORMS``.
"""

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import pixprep as pp
from pixprep.errors import PipelineError
from pixprep.serving.repository import build, check
from pixprep.serving.repository.pbtxt import parse
from pixprep.serving.repository.trial import example_tensors

SIZED = [pp.decode(), pp.resize(height=32, width=48)]
FLOATS = [*SIZED, pp.normalize(), pp.tensor()]
BYTES = [*SIZED, pp.tensor(dtype="uint8")]
SIGNED = [*SIZED, pp.normalize(mean=128, std=1, scale=1), pp.tensor()]
ROWS_FIRST = [*SIZED, pp.tensor(dtype="uint8", layout="hwc")]
GRAY = [pp.decode(color="gray"), *FLOATS[1:]]
BOXES = [pp.decode(), pp.crop(box="boxes"), *FLOATS[1:]]
PADDED = [pp.decode(), pp.resize(32, mode="scale", max_size=64), pp.image_size(), pp.tensor(multiple=32)]
TILES = [
    pp.decode(),
    pp.resize_to_tiles(tile_size=32, max_tiles=6, filter="bicubic", like="torchvision"),
    pp.normalize(),
]
TARGETS = [pp.decode(), pp.original_size(name="orig_target_sizes", dtype="int64", order="wh"), *FLOATS[1:]]
NCHW = ["N", 3, 32, 48]
BIASES = np.array([0.5, 0.25, 0, -0.25, -0.5], np.float32)
TABLE = np.arange(21, dtype=np.float32).reshape(3, 7)


def constant(name, values):
    return numpy_helper.from_array(np.array(values), name)


def model_of(image, *, name="x", extras=(), form="scores", quantized=None, opset=17, ir=8):
    """Return an ONNX model with the given inputs and output.

    Args:
        image: Type and shape of the input that receives the image.
        name: Name of that input.
        extras: Name, type and shape of each other input.
        form: Form of the output, a key of ``FORMS``.
        quantized: Scale and zero point of the image, which the model dequantizes after a Transpose and a Flatten.
    """
    kind, dims = image
    nodes = [helper.make_node("Cast", [name], ["real"], to=TensorProto.FLOAT)]
    if quantized:
        nodes = [
            helper.make_node("Transpose", [name], ["moved"], perm=[0, 2, 3, 1]),
            helper.make_node("Flatten", ["moved"], ["row"]),
            helper.make_node("DequantizeLinear", ["row", "scale", "zero"], ["real"]),
        ]
    has_batch = len(dims) > 3 or dims[0] == "N"
    if not has_batch or (len(dims) == 5 and dims[0] == 1):  # one photo, or the crops of one photo
        nodes.append(helper.make_node("Reshape", ["real", "one_row"], ["rows"]))
    else:
        nodes.append(helper.make_node("Flatten", ["real"], ["rows"]))
    nodes.append(helper.make_node("ReduceMean", ["rows"], ["mean"], axes=[1], keepdims=1))
    total = "mean"
    for other, _, shape in extras:
        axes = {"axes": list(range(1, len(shape))), "keepdims": 1} if shape[:1] == ["N"] else {"keepdims": 0}
        nodes += [
            helper.make_node("Cast", [other], [f"{other}_real"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", [f"{other}_real"], [f"{other}_mean"], **axes),
        ]
        if len(shape) == 3:
            nodes[-1].output[0] = f"{other}_means"
            nodes.append(helper.make_node("Squeeze", [f"{other}_means", "last"], [f"{other}_mean"]))
        nodes.append(helper.make_node("Add", [total, f"{other}_mean"], [f"{other}_total"]))
        total = f"{other}_total"
    constants = [constant("one_row", [1, -1]), constant("last", [2]), constant("biases", BIASES)]
    constants += [constant("table", TABLE), constant("axis", [0]), constant("second", [1]), constant("four", [4, 1, 1])]
    constants += [constant("never", np.float32(0.3)), constant("square", [-1])]
    if quantized:
        dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind))
        constants += [constant("scale", np.float32(quantized[0])), constant("zero", dtype.type(quantized[1]))]
    nodes.append(helper.make_node("Add", [total, "biases"], ["all"]))
    steps, outputs = FORMS[form]
    nodes += [helper.make_node(kind_, inputs, [end], **fields) for kind_, inputs, end, fields in steps]
    takes = [
        helper.make_tensor_value_info(each, getattr(TensorProto, type_), shape)
        for each, type_, shape in ((name, kind, dims), *extras)
    ]
    gives = [
        helper.make_tensor_value_info(end, type_, (dims[:1] if has_batch else [1]) + shape if batched else shape)
        for end, type_, shape, batched in outputs
    ]
    graph = helper.make_graph(nodes, "found", takes, gives, constants)
    if ir < 4:
        graph.input.extend(
            helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in graph.initializer
        )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


SCORES = ("Identity", ["all"], "scores", {})
SOME = [  # the rows of the table whose score is above 0.3
    ("Squeeze", ["all", "axis"], "vector", {}),
    ("Greater", ["vector", "never"], "is_kept", {}),
    ("NonZero", ["is_kept"], "places", {}),
    ("Squeeze", ["places", "axis"], "kept", {}),
]
FORMS = {
    "scores": ([SCORES], [("scores", TensorProto.FLOAT, [5], True)]),
    "label": (
        [("ArgMax", ["all"], "label", {"axis": 1, "keepdims": 0})],
        [("label", TensorProto.INT64, [], True)],
    ),
    "both": (
        [SCORES, ("ArgMax", ["all"], "label", {"axis": 1, "keepdims": 0})],
        [("label", TensorProto.INT64, [], True), ("scores", TensorProto.FLOAT, [5], True)],
    ),
    "vector": ([("Squeeze", ["all", "axis"], "scores", {})], [("scores", TensorProto.FLOAT, [5], False)]),
    "number": (
        [("ReduceMax", ["all"], "best", {"keepdims": 0})],
        [("best", TensorProto.FLOAT, [], False)],
    ),
    "column": (
        [("Transpose", ["all"], "column", {"perm": [1, 0]})],
        [("column", TensorProto.FLOAT, [5, 1], False)],
    ),
    "bfloat16": (
        [("Cast", ["all"], "scores", {"to": TensorProto.BFLOAT16})],
        [("scores", TensorProto.BFLOAT16, [5], True)],
    ),
    "time": (
        [("Unsqueeze", ["all", "axis"], "one", {}), ("Tile", ["one", "four"], "steps", {})],
        [("steps", TensorProto.FLOAT, [4, "N", 5], False)],
    ),
    "rows": (
        [*SOME, ("Gather", ["vector", "kept"], "found", {}), ("Unsqueeze", ["found", "second"], "dets", {})],
        [("dets", TensorProto.FLOAT, ["n_dets", 1], False)],
    ),
    "lists": (
        [*SOME, ("Gather", ["vector", "kept"], "scores", {}), ("Identity", ["kept"], "labels", {})],
        [("scores", TensorProto.FLOAT, ["n"], False), ("labels", TensorProto.INT64, ["n"], False)],
    ),
}


def row(image, pipeline, said="", **more):
    return image, pipeline, said, more


SIGNATURES = {
    # types
    "float32": row(("FLOAT", NCHW), FLOATS),
    "uint8": row(("UINT8", NCHW), BYTES),
    "uint8 rows first": row(("UINT8", ["N", 32, 48, 3]), ROWS_FIRST),
    "float16": row(("FLOAT16", NCHW), FLOATS, "Cast to float16 before input"),
    "float64": row(("DOUBLE", NCHW), FLOATS, "Cast to double before input"),
    "bfloat16": row(("BFLOAT16", NCHW), FLOATS, "Cast to bfloat16 before input"),
    "int8": row(("INT8", NCHW), SIGNED, "Cast to int8 before input"),
    "int16": row(("INT16", NCHW), SIGNED, "Cast to int16 before input"),
    "int32": row(("INT32", NCHW), BYTES, "Cast to int32 before input"),
    "int64": row(("INT64", NCHW), BYTES, "Cast to int64 before input"),
    "uint8 of whole floats": row(
        ("UINT8", NCHW), [*SIZED, pp.normalize(scale=1), pp.tensor()], "Cast to uint8 before input"
    ),
    "int8 with its scale": row(
        ("INT8", NCHW),
        FLOATS,
        "QuantizeLinear with scale 0.0078125 and zero point -128 before",
        quantized=(1 / 128, -128),
    ),
    "uint8 with its scale": row(
        ("UINT8", NCHW),
        [*SIZED, pp.normalize(mean=0.5, std=0.5), pp.tensor(dtype="float16")],
        "Cast to float, QuantizeLinear with scale 0.0078431 and zero point 128 before",
        quantized=(0.0078431, 128),
    ),
    "int8 with a given scale": row(
        ("INT8", NCHW),
        FLOATS,
        "QuantizeLinear with scale 0.01 and zero point -100 before",
        quantizations={"x": [0.01, -100]},
        integers=(0.01, -100),
    ),
    # batch and dimensions
    "batch of 1": row(("FLOAT", [1, 3, 32, 48]), FLOATS, "one image, because the batch size of input"),
    "batch of 8 made dynamic": row(("FLOAT", [8, 3, 32, 48]), FLOATS, "batch dimension is dynamic", free_dims=True),
    "no batch": row(("FLOAT", [3, 32, 48]), FLOATS, "Squeeze of axis 0 before input"),
    "no batch, rows first": row(("UINT8", ["H", "W", 3]), ROWS_FIRST, "Squeeze of axis 0 before input"),
    "no channels": row(("FLOAT", ["N", 32, 48]), GRAY, "Squeeze of axis 1 before input"),
    "one crop": row(("FLOAT", ["N", 1, 3, 32, 48]), FLOATS, "Unsqueeze of axis 1 before input"),
    "crops of one photo": row(("FLOAT", [1, "crops", 3, 32, 48]), BOXES, "Unsqueeze of axis 0 before input"),
    "tiles of one photo": row(
        ("FLOAT", [1, "crops", 3, 32, 32]),
        [*TILES, pp.tiles(32, thumbnail="last", name="tensor")],
        'a request has one image, because input "x" contains the tiles of one image',
    ),
    "tiles of one photo, any batch": row(
        ("FLOAT16", ["N", "crops", 3, 32, 32]),
        [*TILES, pp.tiles(32, thumbnail="last", name="tensor")],
        "Unsqueeze of axis 0, Cast to float16 before input",
    ),
    "tiles of fixed count": row(("FLOAT", ["N", 6, 3, 32, 32]), [*TILES, pp.tiles(32, max_tiles=6, name="tensor")]),
    "any size": row(("FLOAT", ["N", 3, "H", "W"]), FLOATS),
    "external weights": row(("FLOAT", [1, 3, 32, 48]), FLOATS, "batch dimension is dynamic", free_dims=True, data=True),
    "names of TensorFlow": row(("FLOAT", ["unk__1", 3, 32, 48]), FLOATS, name="serving/x:0"),
    "before IR 4": row(("FLOAT", NCHW), FLOATS, opset=8, ir=3),
    # inputs besides the image
    "threshold": row(
        ("FLOAT", NCHW), FLOATS, 'input "conf" is the constant 0.25', extras=[("conf", "FLOAT", [1])], adds=0.25
    ),
    "threshold by option": row(
        ("FLOAT", NCHW),
        FLOATS,
        'input "conf" is the constant 0.5',
        extras=[("conf", "FLOAT", [])],
        constants={"conf": 0.5},
        adds=0.5,
    ),
    "mode": row(("FLOAT", NCHW), FLOATS, 'input "training" is the constant False', extras=[("training", "BOOL", [])]),
    "bits of a watermark": row(
        ("FLOAT", NCHW),
        FLOATS,
        'input "bits" is the constant [0, 1, 1, 1]',
        extras=[("bits", "FLOAT", ["N", 4])],
        constants={"bits": [0, 1, 1, 1]},
        adds=0.75,
    ),
    "sizes of the pipeline": row(("FLOAT", NCHW), TARGETS, extras=[("orig_target_sizes", "INT64", ["N", 2])], adds=560),
    "sizes of the client": row(
        ("FLOAT", NCHW), FLOATS, 'clients must send "size", INT64 [2]', extras=[("size", "INT64", ["N", 2])], adds=7
    ),
    "one size": row(
        ("FLOAT", NCHW), FLOATS, 'clients must send "size", INT64 [2]', extras=[("size", "INT64", [2])], adds=7
    ),
    "tokens": row(
        ("FLOAT", NCHW), FLOATS, 'clients must send "ids", INT64 [-1]', extras=[("ids", "INT64", ["N", "L"])], adds=7
    ),
    "points": row(
        ("FLOAT", NCHW),
        FLOATS,
        'clients must send "points", FP32 [-1, 2]',
        extras=[("points", "FLOAT", ["N", "k", 2])],
        adds=7,
    ),
    "mask": row(
        ("FLOAT", NCHW),
        FLOATS,
        'input "pixel_mask" is a mask of ones',
        extras=[("pixel_mask", "INT64", ["N", "H", "W"])],
        adds=1,
    ),
    "mask of a fixed size": row(
        ("FLOAT", NCHW),
        FLOATS,
        'input "pixel_mask" is a mask of ones',
        extras=[("pixel_mask", "BOOL", ["N", 64, 64])],
        adds=1,
    ),
    "mask of the padding": row(
        ("FLOAT", ["N", 3, "H", "W"]),
        PADDED,
        'input "pixel_mask" is computed from "image_size"',
        extras=[("pixel_mask", "INT64", ["N", "H", "W"])],
        adds=42 / 64,
    ),
    # outputs
    "label": row(("FLOAT", NCHW), FLOATS, "Unsqueeze of axis 1 after output", form="label"),
    "label and scores": row(("FLOAT", NCHW), FLOATS, "Unsqueeze of axis 1 after output", form="both"),
    "rows": row(("FLOAT", [1, 3, 32, 48]), FLOATS, "Unsqueeze of axis 0 after output", form="rows"),
    "lists": row(("FLOAT", [1, 3, 32, 48]), FLOATS, "Unsqueeze of axis 0 after output", form="lists"),
    "vector": row(("FLOAT", [3, 32, 48]), FLOATS, "Unsqueeze of axis 0 after output", form="vector"),
    "number": row(("FLOAT", NCHW), FLOATS, "Unsqueeze of axis 0, Unsqueeze of axis 0 after", form="number"),
    "rows of fixed count": row(("FLOAT", [1, 3, 32, 48]), FLOATS, "Unsqueeze of axis 0 after", form="column"),
    "bfloat16 scores": row(("FLOAT", NCHW), FLOATS, "Cast to float after output", form="bfloat16"),
    "time first": row(("FLOAT", NCHW), FLOATS, "Transpose [1, 0, 2] after output", form="time"),
}
REFUSED = {
    "int8 of fractions": row(("INT8", NCHW), FLOATS, 'input "x" is int8, but the pipeline returns values from 0 to 1'),
    "int8 of a different range": row(
        ("INT8", NCHW),
        [*SIZED, pp.normalize(scale=1), pp.tensor()],
        'input "x" is int8 with scale 0.015625 and zero point 0, which represent values from -2 to 1.984, but the '
        "pipeline returns values from 0 to 255: normalize as in the training",
        quantized=(1 / 64, 0),
    ),
    "int8 with few values": row(
        ("INT8", NCHW), FLOATS, "which represent values from -128 to 127, but the pipeline returns", quantized=(1, 0)
    ),
    "a scale of a float input": row(
        ("FLOAT", NCHW), FLOATS, "--quantization x: the input is float", quantizations={"x": [0.1, 0]}
    ),
    "a zero point of a different type": row(
        ("INT8", NCHW), FLOATS, "an integer from -128 to 127, not [0.1, 200]", quantizations={"x": [0.1, 200]}
    ),
    "no zero point": row(
        ("INT8", NCHW), FLOATS, "expected the scale and the zero point, such as x=[", quantizations={"x": 0.1}
    ),
    "tiles of fixed count": row(
        ("FLOAT", [1, 4, 3, 32, 32]),
        [*TILES, pp.tiles(32, name="tensor")],
        '[-1, 3, 32, 32], where -1 depends on the image, but "x" is [4, 3, 32, 32]: export the model with a dynamic '
        "axis, or set tiles max_tiles to 4",
    ),
    "no such quantized input": row(
        ("INT8", NCHW), FLOATS, '--quantization: the model has no input "y"; available: x', quantizations={"y": [1, 0]}
    ),
    "batch of 8": row(("FLOAT", [8, 3, 32, 48]), FLOATS, 'batch size of input "x" is fixed at 8: export the model'),
    "six channels": row(("FLOAT", ["N", 6, 32, 48]), FLOATS, "6 channels do not fit, because an image"),
    "features": row(("FLOAT", NCHW), FLOATS, 'has the input "f", TYPE_FP32', extras=[("f", "FLOAT", ["N", 256, 8, 8])]),
    "billions of thresholds": row(
        ("FLOAT", NCHW), FLOATS, 'has the input "conf", TYPE_FP32', extras=[("conf", "FLOAT", [1 << 31])]
    ),
    "mask of unknown padding": row(
        ("FLOAT", ["N", 3, "H", "W"]),
        [*PADDED[:2], *PADDED[3:]],
        'input "pixel_mask" is a mask, and the pipeline pads the image: add {"op": "image_size"}',
        extras=[("pixel_mask", "INT64", ["N", "H", "W"])],
    ),
    "lists of a batch": row(
        ("FLOAT", [1, 3, 32, 48]), FLOATS, "a request can have only one image", form="rows", max_batch_size=4
    ),
    "no such constant": row(("FLOAT", NCHW), FLOATS, '--constant: the model has no input "c"', constants={"c": 1}),
    "constant of a different shape": row(
        ("FLOAT", NCHW),
        FLOATS,
        "--constant conf: the value must have the shape [1] of the input",
        extras=[("conf", "FLOAT", [1])],
        constants={"conf": [1, 2]},
    ),
}


def found(tmp_path, image, *, data=False, **fields):
    """Write the ONNX file of a row of ``SIGNATURES``. Return its path and the options of the build."""
    names = ("free_dims", "constants", "quantizations", "max_batch_size")
    options = {key: fields.pop(key) for key in names if key in fields}
    for key in ("adds", "integers"):
        fields.pop(key, None)
    path = tmp_path / "found.onnx"
    onnx.save(model_of(image, **fields), path, save_as_external_data=data, location="found.data", size_threshold=0)
    return path, options


@pytest.mark.parametrize("signature", SIGNATURES)
def test_a_found_file_is_built_and_answers(tmp_path, signature):
    image, ops, said, fields = SIGNATURES[signature]
    path, options = found(tmp_path, image, **fields)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    pipeline = pp.Pipeline(ops)
    notes = build(tmp_path / "models", pipeline=pipeline, onnx=path, **options).notes
    assert any(said in note for note in notes) or not said, notes
    assert check(tmp_path / "models") == []
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before
    session = onnxruntime.InferenceSession(tmp_path / "models" / "classifier" / "1" / "model.onnx")
    tensors = example_tensors(pipeline, "noise")
    names = [each.name for each in session.get_inputs()]
    sent = {}
    for name, _, dims in fields.get("extras", ()):
        if name in names and name not in tensors:
            declared = next(each.shape for each in session.get_inputs() if each.name == name)
            sent[name] = np.full([1, *(3 if isinstance(side, str) else side for side in declared[1:])], 7, np.float32)
            sent[name] = sent[name].astype(np.float32 if name == "points" else np.int64)
            assert len(declared) == max(2, len(dims))
    ours = {name: tensors.get(name, tensors["tensor"]) for name in names if name not in sent}
    outputs = dict(zip([each.name for each in session.get_outputs()], session.run(None, ours | sent), strict=True))
    assert all(array.shape[:1] == (1,) and array.ndim > 1 for array in outputs.values())
    values = tensors["tensor"].astype(np.float64)
    if "integers" in fields:  # the model computes with the quantized values
        scale, zero = fields["integers"]
        values = np.clip(np.round(values / scale) + zero, -128, 127)
    scores = values.mean() + fields.get("adds", 0) + BIASES
    kept = [number for number, score in enumerate(scores) if score > 0.3]
    expected = {
        "label": [[0]],
        "best": [[scores[0]]],
        "column": scores[None, :, None],
        "steps": np.tile(scores, (1, 4, 1)),
        "dets": scores[kept][None, :, None],
        "labels": [kept],
        "scores": scores[kept][None] if fields.get("form") == "lists" else scores[None],
    }
    for name, array in outputs.items():
        assert array == pytest.approx(np.array(expected[name]), rel=5e-3, abs=5e-3), name
    assert session.get_outputs()[0].name in outputs


@pytest.mark.parametrize("signature", REFUSED)
def test_a_file_that_does_not_fit_is_rejected_with_the_reason(tmp_path, signature):
    image, ops, said, fields = REFUSED[signature]
    path, options = found(tmp_path, image, **fields)
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "models", pipeline=pp.Pipeline(ops), onnx=path, **options)
    assert said in str(caught.value)
    assert not (tmp_path / "models").exists()


QUANTIZED = """<ir_version: 8, opset_import: ["": 17]>
found (int8[N, 3, 32, 48] x) => (float[N, 1, 32, 48] scores)
<float s = {0.0078125}, int8 z = {-128}, int8[1, 3, 1, 1] w = {1, 1, 1}, float one = {1.0}, int8 zero = {0}> {
    y = QLinearConv (x, s, z, w, one, zero, one, zero)
    scores = DequantizeLinear (y, one, zero)
}"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("QLinearConv (x,", "QLinearConv (x,", "QuantizeLinear with scale 0.0078125 and zero point -128 before"),
        ("s = {0.0078125}", "s = {0.0078125}, float unused = {2.0}", "QuantizeLinear with scale 0.0078125"),
        ("    scores = ", "    other = DequantizeLinear (x, one, zero)\n    scores = ", "which a Cast would change"),
        ("    scores = ", "    other = Cast <to = 1> (x)\n    scores = ", "which a Cast would change"),
        ("(x, s, z, w, one, zero, one, zero)", "(x, s, z, w, one, zero, one, zero)\n    s = Mul (one, one)", "a Cast"),
    ],
    ids=["a convolution", "an unused constant", "two scales", "a second consumer", "a computed scale"],
)
def test_the_scale_of_an_input_is_read_from_its_first_nodes(tmp_path, old, new, said):
    text = QUANTIZED.replace(old, new)
    text = text.replace("float s = {0.0078125}, ", "") if "s = Mul" in new else text
    onnx.save(onnx.parser.parse_model(text), tmp_path / "found.onnx")
    try:
        notes = build(tmp_path / "models", pipeline=pp.Pipeline(FLOATS), onnx=tmp_path / "found.onnx").notes
    except PipelineError as error:
        notes = (str(error),)
        assert said.endswith(("change", "a Cast"))
    assert said in notes[0]


@pytest.mark.parametrize("value", [0.0, 0.6])
def test_a_list_may_be_empty(tmp_path, value):
    path, _ = found(tmp_path, ("FLOAT", [1, 3, 32, 48]), form="lists")
    build(tmp_path / "models", pipeline=pp.Pipeline(FLOATS), onnx=path)
    session = onnxruntime.InferenceSession(tmp_path / "models" / "classifier" / "1" / "model.onnx")
    scores, labels = session.run(None, {"x": np.full((1, 3, 32, 48), value - 0.5, np.float32)})
    count = sum(value - 0.5 + BIASES > np.float32(0.3))
    assert (scores.shape, labels.shape, labels.dtype) == ((1, count), (1, count), np.int64)


def test_an_ensemble_passes_the_inputs_of_clients_to_the_model(tmp_path):
    path, _ = found(tmp_path, ("FLOAT", NCHW), extras=[("points", "FLOAT", ["N", "k", 2])])
    build(tmp_path / "models", pipeline=pp.Pipeline(FLOATS), onnx=path)
    config = parse((tmp_path / "models" / "ensemble" / "config.pbtxt").read_text())
    assert [(each["name"], each["dims"]) for each in config["input"]] == [("image", ["1"]), ("points", ["-1", "2"])]
    assert config["ensemble_scheduling"]["step"][1]["input_map"] == {"x": "tensor", "points": "points"}
