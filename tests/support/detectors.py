"""An untrained detector: an ONNX model in YOLO's format that finds a red and a blue box in a gray photo."""

import re

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper

RED, BLUE, GRAY = (230, 20, 20), (20, 20, 230), (120, 120, 120)
NAMES = ["red box", "blue box"]

# The redness of a pixel is the fraction of the pixel that the red box covers, so edges are found with subpixel
# precision. Each colour has four candidates. Three of them are slightly shifted and have lower scores, so that non-
# maximum suppression removes them.
_MODEL = """<ir_version: 8, opset_import: ["": 18]>
boxes (float[batch, 3, HEIGHT, WIDTH] images) => (float[batch, SHAPE] output0) {
    one = Constant <value_ints = [1]> ()
    two = Constant <value_ints = [2]> ()
    three = Constant <value_ints = [3]> ()
    colours = Constant <value_ints = [COLOURS]> ()
    strong = Gather <axis = 1> (images, colours)
    green = Gather <axis = 1> (images, one)
    difference = Sub (strong, green)
    level = Relu (difference)
    tiny = Constant <value_float = 0.000001> ()
    begin = Constant <value_float = 0.5> ()
    step = Constant <value_float = 1.0> ()
    none = Constant <value = float[1, 1, 4] {0, 0, 0, 0}> ()
    shifts = Constant <value = float[1, 1, 4] {0, 1.5, -2, 2.5}> ()
    AXIS_X
    AXIS_Y
    rows = ReduceMax <keepdims = 0> (level, three)
    best = ReduceMax <keepdims = 1> (rows, two)
    surely = Constant <value = float[1, 1, 4] {1, 0.9, 0.8, 0.7}> ()
    score = Mul (best, surely)
    END
}"""
_AXIS = """
    line_A = ReduceSum <keepdims = 0> (level, ACROSS)
    whole_A = ReduceSum <keepdims = 1> (line_A, two)
    some_A = Add (whole_A, tiny)
    most_A = ReduceMax <keepdims = 1> (line_A, two)
    any_A = Add (most_A, tiny)
    length_A = Div (whole_A, any_A)
    side_A = Add (length_A, none)
    last_A = Constant <value_float = LENGTH.5> ()
    places_A = Range (begin, last_A, step)
    moments_A = Mul (line_A, places_A)
    moment_A = ReduceSum <keepdims = 1> (moments_A, two)
    mean_A = Div (moment_A, some_A)
    middle_A = Add (mean_A, OFF)
"""
_MIDDLES = """
    each = Constant <value_ints = [0, 1, 8]> ()
    x = Reshape (middle_x, each)
    y = Reshape (middle_y, each)
    w = Reshape (side_x, each)
    h = Reshape (side_y, each)
    scores = Unsqueeze (score, one)
    own = Constant <value = float[1, 2, 2, 1] {1, 0, 0, 1}> ()
    owned = Mul (scores, own)
    classes = Constant <value_ints = [0, 2, 8]> ()
    of_class = Reshape (owned, classes)
    output0 = Concat <axis = 1> (x, y, w, h, of_class)
"""
_CORNERS = """
    half_w = Mul (side_x, begin)
    half_h = Mul (side_y, begin)
    left = Sub (middle_x, half_w)
    right = Add (middle_x, half_w)
    top = Sub (middle_y, half_h)
    bottom = Add (middle_y, half_h)
    number = Constant <value = float[1, 2, 1] {0, 1}> ()
    nothing = Mul (score, none)
    class = Add (nothing, number)
    fields = Constant <value_ints = [0, 8, 1]> ()
    l = Reshape (left, fields)
    t = Reshape (top, fields)
    r = Reshape (right, fields)
    b = Reshape (bottom, fields)
    s = Reshape (score, fields)
    c = Reshape (class, fields)
    output0 = Concat <axis = 2> (l, t, r, b, s, c)
"""


def photo(height, width, red, blue):
    """Return a gray photo, uint8 (height, width, 3), with a red and a blue box. Each box is given as (left, top, right,
    bottom).
    """
    pixels = np.full((height, width, 3), GRAY, np.uint8)
    for colour, (left, top, right, bottom) in ((RED, red), (BLUE, blue)):
        pixels[top:bottom, left:right] = colour
    return pixels


def save(path, *, size=(320, 320), channels="rgb", corners=False, **metadata):
    """Write the detector. Its input is ``images``, float32 (n, 3, height, width), with values from 0 to 1.

    Args:
        path: Path of the ONNX file. Its folder is created.
        size: Height and width of the input.
        channels: ``rgb`` or ``bgr``.
        corners: If true, the output is (n, 8, 6) with corners, score and class, as from a model with NMS. Otherwise, it
            is (n, 4 + 2, 8) with centre, size, and one score for each of two classes.
        metadata: Metadata entries to add to those that Ultralytics' exporter writes.
    """
    height, width = size
    text = _MODEL.replace("END", _CORNERS if corners else _MIDDLES)
    for axis, across, length, off in (("x", "two", width, "shifts"), ("y", "three", height, "none")):
        steps = _AXIS.replace("ACROSS", across).replace("LENGTH", str(length)).replace("OFF", off)
        text = text.replace(f"AXIS_{axis.upper()}", re.sub(r"_A\b", f"_{axis}", steps))
    text = text.replace("HEIGHT", str(height)).replace("WIDTH", str(width))
    text = text.replace("SHAPE", "8, 6" if corners else "6, 8")
    text = text.replace("COLOURS", f"{channels.index('r')}, {channels.index('b')}")
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model)
    names = str(dict(enumerate(NAMES)))
    said = {"task": "detect", "imgsz": str([*size]), "names": names, "version": "8.4.0", "stride": "32", "batch": "1"}
    for key, value in (said | metadata).items():
        model.metadata_props.add(key=key, value=value)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def save_echo(path, inputs):
    """Write a model whose output ``boxes`` concatenates the channel means of the image and the values of the other
    inputs.

    Args:
        path: Path of the ONNX file. Its folder is created.
        inputs: Type and shape of each input, by name.
    """
    nodes, parts, width = [], [], 0
    for name, (_, shape) in inputs.items():
        nodes.append(helper.make_node("Cast", [name], [f"{name}_real"], to=TensorProto.FLOAT))
        parts.append(f"{name}_real")
        if len(shape) == 4:
            parts[-1] = f"{name}_mean"
            nodes.append(helper.make_node("ReduceMean", [f"{name}_real"], parts[-1:], axes=[2, 3], keepdims=0))
        width += shape[1]
    nodes.append(helper.make_node("Concat", parts, ["boxes"], axis=1))
    takes = [
        helper.make_tensor_value_info(name, getattr(TensorProto, kind), dims) for name, (kind, dims) in inputs.items()
    ]
    gives = [helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["n", width])]
    graph = helper.make_graph(nodes, "echo", takes, gives)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def save_constant(path, outputs, *, size=(320, 320), **metadata):
    """Write a model that returns the same arrays for every image, in the output format of a task's exported models.

    Args:
        path: Path of the ONNX file. Its folder is created.
        outputs: Arrays for one image, by output name.
        size: Height and width of the input ``images``, which is float32 (n, 3, height, width).
        metadata: Metadata entries as Ultralytics' exporter writes them. Default: no metadata.
    """
    nodes = [helper.make_node("ReduceMean", ["images"], ["mean"], axes=[1, 2, 3], keepdims=1)]
    nodes += [helper.make_node("Sub", ["mean", "mean"], ["nothing"])]
    gives, constants = [], []
    for name, array in outputs.items():
        constants += [
            onnx.numpy_helper.from_array(np.array(array, np.float32)[None], f"{name}_one"),
            onnx.numpy_helper.from_array(np.array([-1] + [1] * array.ndim), f"{name}_form"),
        ]
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        nodes += [
            helper.make_node("Reshape", ["nothing", f"{name}_form"], [f"{name}_nothing"]),
            helper.make_node("Add", [f"{name}_one", f"{name}_nothing"], [f"{name}_each"]),
            helper.make_node("Cast", [f"{name}_each"], [name], to=kind),
        ]
        gives.append(helper.make_tensor_value_info(name, kind, ["n", *array.shape]))
    takes = [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, *size])]
    graph = helper.make_graph(nodes, "constant", takes, gives, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path
