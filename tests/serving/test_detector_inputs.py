"""Tests of YOLOX's letterbox and a detector's additional inputs: sizes and scales in every type and order."""

import cv2
import numpy as np
import onnx
import onnx.parser
import pytest

import pixprep as pp
from pixprep.errors import PipelineError
from pixprep.serving.repository import build, check
from pixprep.serving.repository.pbtxt import parse
from pixprep.serving.repository.trial import try_out
from pixprep.show.words import explain
from support.detectors import save_echo
from support.faces import read_onnx
from support.images import png, scene, with_exif

SIZES = [(480, 640), (427, 641), (33, 1000), (1, 1), (1080, 1919)]
PADDLE = [
    pp.decode(), pp.resize(height=64, width=96, like="opencv"), pp.normalize(),
    pp.image_size(name="im_shape", dtype="float32"), pp.scale_factor(), pp.tensor(),
]  # fmt: skip
RTDETR = [
    pp.decode(),
    pp.original_size(name="orig_target_sizes", dtype="int64", order="wh"),
    pp.resize(height=64, width=96, like="opencv"),
    pp.normalize(),
    pp.tensor(name="images"),
]


def outputs(ops, *encoded):
    with pp.Engine(pp.Pipeline(ops), threads=1) as engine:
        batch = engine.run_batch(encoded)
    assert not any(batch.errors)
    return batch.outputs


@pytest.mark.parametrize("size", SIZES)
def test_sizes_and_scales_equal_those_of_each_library(size):
    height, width = size
    results = outputs(PADDLE, png(scene(*size)))
    assert results["im_shape"].tolist() == [[64, 96]]
    paddle = np.array([64 / float(height), 96 / float(width)]).astype(np.float32)
    assert np.array_equal(results["scale_factor"][0], paddle)
    results = outputs(RTDETR, png(scene(*size)))
    assert results["orig_target_sizes"].tolist() == [[width, height]]
    assert [results["orig_target_sizes"].dtype, results["images"].dtype] == [np.int64, np.float32]


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_each_size_has_the_requested_type_and_order(dtype):
    rotated_photo = with_exif(6, size=(80, 60))  # the stored size is 80 x 60; the EXIF orientation rotates it
    for order, expected in (("hw", [[60, 80], [30, 40]]), ("wh", [[80, 60], [40, 30]])):
        fields = {"dtype": dtype, "order": order}
        ops = [pp.decode(), pp.original_size(**fields), pp.resize(30), pp.image_size(**fields), pp.pad(64, 64)]
        results = outputs([*ops, pp.tensor()], rotated_photo)
        assert [results[name][0].tolist() for name in ("original_size", "image_size")] == expected
        assert {results[name].dtype for name in ("original_size", "image_size")} == {np.dtype(dtype)}


def test_a_scale_is_the_first_half_of_the_transform_in_either_order():
    ops = [pp.decode(), pp.letterbox(64, 96), pp.flip(), pp.transform(), pp.scale_factor(), pp.tensor()]
    results = outputs(ops, png(scene(48, 31)))
    assert results["scale_factor"].tolist() == results["transform"][:, :2].tolist()
    assert results["scale_factor"][0, 1] < 0  # the image is mirrored
    swapped = outputs([*ops[:4], pp.scale_factor(order="xy"), pp.tensor()], png(scene(48, 31)))
    assert swapped["scale_factor"].tolist() == results["scale_factor"][:, ::-1].tolist()


def test_a_scale_after_a_rotation_is_rejected():
    with pytest.raises(PipelineError, match=r'"scale_factor": a scale and an offset cannot describe rotations'):
        pp.Pipeline([pp.decode(), pp.center_crop(32), pp.rotate(10), pp.scale_factor(), pp.tensor()])


def test_each_of_them_is_explained_and_drawn():
    text = explain(pp.Pipeline([*PADDLE[:-1], pp.original_size(order="wh"), pp.tensor()]))
    for words in (
        "height, width: size of the image at this op",
        "width, height: size of the decoded image",
        "scale_y, scale_x: image at this op =",
    ):
        assert words in text


def yolox(bgr, height, width):
    """Prepare a photo as YOLOX does: round the resized size down, and place the image in the upper left corner of a
    gray canvas.
    """
    scale = min(height / bgr.shape[0], width / bgr.shape[1])
    rows, columns = int(bgr.shape[0] * scale), int(bgr.shape[1] * scale)
    canvas = np.full((height, width, 3), 114, np.uint8)
    canvas[:rows, :columns] = cv2.resize(bgr, (columns, rows), interpolation=cv2.INTER_LINEAR)
    return canvas.transpose(2, 0, 1).astype(np.float32)


@pytest.mark.parametrize("canvas", [(416, 416), (64, 96), (640, 640)])
@pytest.mark.parametrize("size", [(480, 640), (427, 641), (641, 427), (99, 101), (333, 500), (70, 640)])
def test_a_letterbox_that_rounds_down_equals_yolox(canvas, size):
    fields = {"anchor": "top_left", "like": "opencv"}
    pixels = scene(*size)

    def tensor(**more):
        ops = [pp.decode(color="bgr"), pp.letterbox(*canvas, **fields, **more), pp.transform(), pp.tensor()]
        return outputs(ops, png(pixels))

    expected = yolox(np.ascontiguousarray(pixels[:, :, ::-1]), *canvas)
    results = tensor(rounding="down")
    assert np.array_equal(results["tensor"][0], expected)
    scale = min(canvas[0] / size[0], canvas[1] / size[1])
    np.testing.assert_allclose(results["transform"][0, 2:], 0, atol=1e-9)
    sides = [int(side * scale) for side in size]
    np.testing.assert_allclose(results["transform"][0, :2], np.divide(sides, size), rtol=1e-6)
    if sides != [round(side * scale) for side in size]:  # negative control: without "floor", the result differs
        assert not np.array_equal(tensor()["tensor"][0], expected)


PADDLE_INPUTS = {
    "im_shape": ("FLOAT", ["n", 2]),
    "image": ("FLOAT", ["n", 3, 64, 96]),
    "scale_factor": ("FLOAT", ["n", 2]),
}
RTDETR_INPUTS = {"images": ("FLOAT", ["n", 3, 64, 96]), "orig_target_sizes": ("INT64", ["n", 2])}


@pytest.mark.parametrize(
    ("ops", "inputs"), [(PADDLE, PADDLE_INPUTS), (RTDETR, RTDETR_INPUTS)], ids=["paddle", "rtdetr"]
)
def test_a_detector_with_several_inputs_is_built_and_run(tmp_path, ops, inputs):
    onnx_file = save_echo(tmp_path / "model.onnx", inputs)
    notes = build(tmp_path / "models", pipeline=pp.Pipeline(ops), onnx=onnx_file).notes
    assert not any("looks like boxes" in note for note in notes)  # the model itself maps the boxes back to the photo
    assert check(tmp_path / "models") == []
    config = (tmp_path / "models" / "ensemble" / "config.pbtxt").read_text()
    for name in inputs:
        given = "tensor" if name == "image" else name
        assert f'input_map {{ key: "{name}" value: "{given}" }}' in config
    assert list(try_out(tmp_path / "models", png(scene(48, 64))))


def test_the_boxes_of_an_rtdetr_are_not_mapped_to_the_photo_twice(tmp_path):
    """An export that includes the post-processing multiplies the boxes by ``orig_target_sizes``."""
    text = """rtdetr (float[n, 3, 64, 96] images, int64[n, 2] orig_target_sizes)
        => (int64[n, 1] labels, float[n, 1, 4] boxes, float[n, 1] scores) {
        sizes = Cast <to = 1> (orig_target_sizes)
        both = Concat <axis = 1> (sizes, sizes)
        shares = Constant <value_floats = [0.25, 0.5, 0.75, 1.0]> ()
        each = Mul (both, shares)
        axis = Constant <value_ints = [1]> ()
        boxes = Unsqueeze (each, axis)
        rest = Constant <value_ints = [1, 2, 3]> ()
        mean = ReduceMean <keepdims = 0> (images, rest)
        one = Unsqueeze (mean, axis)
        zero = Sub (one, one)
        half = Constant <value_float = 0.5> ()
        scores = Add (zero, half)
        labels = Cast <to = 7> (zero)
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]>\n{text}')
    onnx.save(model, tmp_path / "model.onnx")
    for name, ops in (("plain", RTDETR), ("mapped", [*RTDETR[:-1], pp.transform(), RTDETR[-1]])):
        build(tmp_path / name, pipeline=pp.Pipeline(ops), onnx=tmp_path / "model.onnx")
        assert check(tmp_path / name) == []
        outputs = parse((tmp_path / name / "ensemble" / "config.pbtxt").read_text())["output"]
        assert "orig_target_sizes" in [output["name"] for output in outputs]
        assert list(try_out(tmp_path / name, png(scene(48, 64))))[-1] == "1 object: class 0 0.50 [16, 24, 48, 48]"


def test_the_number_of_boxes_is_one_value_per_image(tmp_path):
    """PaddleDetection's exports have two outputs: the boxes [rows, 6], and the number of boxes per image [batch]."""
    path = save_echo(tmp_path / "model.onnx", PADDLE_INPUTS)
    model = onnx.load(path)
    model.graph.node.append(onnx.helper.make_node("ReduceSum", ["boxes"], ["count"], keepdims=0))
    model.graph.node[-1].input.append("axes")
    model.graph.initializer.append(onnx.helper.make_tensor("axes", onnx.TensorProto.INT64, [1], [1]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("count", onnx.TensorProto.FLOAT, ["n"]))
    onnx.save(model, path)
    notes = build(tmp_path / "models", pipeline=pp.Pipeline(PADDLE), onnx=path).notes
    assert notes == ('model.onnx: Unsqueeze of axis 1 after output "count"',)
    assert check(tmp_path / "models") == []
    assert [tensor.shape for tensor in read_onnx(tmp_path / "models/classifier/1/model.onnx").outputs] == [
        (-1, 7),
        (-1, 1),
    ]
    assert list(try_out(tmp_path / "models", png(scene(48, 64))))


def refusal(tmp_path, ops, inputs):
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "models", pipeline=pp.Pipeline(ops), onnx=save_echo(tmp_path / "model.onnx", inputs))
    assert not (tmp_path / "models").exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("ops", "inputs", "message"),
    [
        (
            [RTDETR[0], pp.original_size(name="orig_target_sizes"), *RTDETR[2:]],
            RTDETR_INPUTS,
            'int32, but input "orig_target_sizes" is int64: set original_size dtype to int64',
        ),
        (
            PADDLE,
            PADDLE_INPUTS | {"scale_factor": ("FLOAT16", ["n", 2])},
            'float32, but input "scale_factor" is float16: export the model with float32',
        ),
        (
            RTDETR,
            RTDETR_INPUTS | {"orig_target_sizes": ("INT64", ["n", 4])},
            '[2], but input "orig_target_sizes" of the model is [4]: export the model with [batch, 2]',
        ),
    ],
)
def test_inputs_of_a_different_type_or_count_are_rejected_with_the_fix(tmp_path, ops, inputs, message):
    assert refusal(tmp_path, ops, inputs) == f"model.onnx: the pipeline returns {message}"


def test_inputs_of_known_detectors_are_named_with_the_op_that_computes_them(tmp_path):
    message = refusal(tmp_path, [op for op in PADDLE if op.name is None and op != pp.scale_factor()], PADDLE_INPUTS)
    assert message == (
        'model.onnx: the model has the inputs "im_shape", "image", "scale_factor", but the pipeline has the outputs '
        '"tensor": add an output with the name of each input, such as {"op": "image_size", "dtype": "float32", "name": '
        '"im_shape"} for im_shape, {"op": "scale_factor"} for scale_factor'
    )


PAIR = {"left": ("FLOAT", ["n", 3, 64, 96]), "right": ("FLOAT", ["n", 3, 64, 96])}
SIZED = [pp.decode(), pp.resize(height=64, width=96), pp.normalize()]
EACH = "pass --pipeline INPUT=FILE for each input"


@pytest.mark.parametrize("name", [None, "left"])
def test_a_model_of_two_images_is_rejected_with_one_pipeline(tmp_path, name):
    assert refusal(tmp_path, [*SIZED, pp.tensor(name=name)], PAIR) == (
        'model.onnx: the model has 2 image inputs, "left", "right", but a pipeline processes one image: if '
        f"the model compares images, {EACH}; if it needs several versions of one image, add a tensor with the name "
        "of each input to the pipeline"
    )


def test_a_model_that_gets_one_image_twice_is_noted(tmp_path):
    model = save_echo(tmp_path / "model.onnx", PAIR)
    two = pp.Pipeline([*SIZED, pp.tensor(name="left"), pp.tensor(name="right")])
    assert build(tmp_path / "models", pipeline=two, onnx=model).notes[0] == (
        'model.onnx: the inputs "left", "right" receive the same image of a request: if the model compares images, '
        f"{EACH}"
    )
    one = save_echo(tmp_path / "one.onnx", RTDETR_INPUTS)
    assert build(tmp_path / "one", pipeline=pp.Pipeline(RTDETR), onnx=one).notes == ()


def test_an_input_that_is_neither_an_image_nor_numbers_is_named(tmp_path):
    masked = {"pixel_values": PAIR["left"], "features": ("FLOAT", ["n", 256, 64, 64])}
    assert '"features", TYPE_FP32 [-1, 256, 64, 64], but a pipeline' in refusal(tmp_path, [*SIZED, pp.tensor()], masked)


def test_an_input_image_gets_the_only_tensor_and_no_output_can_have_its_name(tmp_path):
    two = [*PADDLE[:-1], pp.tensor(name="a"), pp.tensor(name="b")]
    inputs = {"image": PADDLE_INPUTS["image"]}
    assert refusal(tmp_path, two, inputs) == (
        'model.onnx: the pipeline has the tensors "a", "b", but the model has one input: remove the others'
    )
    with pytest.raises(PipelineError, match='name: "image" is reserved'):
        pp.Pipeline([pp.decode(), pp.center_crop(8), pp.tensor(name="image")])
