"""Tests crops in DALI graphs: fixed and computed crops, slices and padding, and the values after them."""

import numpy as np
import pytest

import pixprep as pp
from pixprep.importers.dali import from_dali
from support.dali_graphs import DECODE, EXPRESSION, FLOAT, RESIZE, chain, graph, imported, operator
from support.images import png, scene
from support.importing import refusal

FIT = ("Resize", {"size": [40.0, 50.0], "mode": "not_larger"})
PAD = {"out_of_bounds_policy": "pad"}
CORNER = {"paste_x": 0.0, "paste_y": 0.0}
PADDED = {"smaller": "pad", "fill": 114}


@pytest.mark.parametrize("size", [(30, 70), (50, 60), (80, 40)])
def test_a_crop_with_padding_is_the_image_that_a_following_resize_receives(size):
    """The image is cropped on one axis and padded on the other, or padded on both axes."""
    image, canvas = scene(*size), np.full((60, 50, 3), (9, 120, 250), np.uint8)
    top, left = -5, 7
    seen = image[: 60 + top, left : left + 50]
    canvas[-top : -top + seen.shape[0], : seen.shape[1]] = seen
    crop = pp.crop(top, left, 60, 50, smaller="pad", fill=(9, 120, 250))
    for how in (pp.resize(height=33, width=21), pp.resize(40, like="dali")):
        assert np.array_equal(pp.apply([crop, how], image), pp.apply(how, canvas))


def test_a_slice_with_a_constant_start_is_fixed_and_with_a_computed_one_a_rule():
    """The computed start is that of the canvas of a letterbox, ``-((side - resized) // 2)``."""
    begin = (operator("ExternalSource", [], ["in"]), operator("decoders__Image", ["in"], ["pixels"]))
    small = operator("Resize", ["pixels"], ["small"], resize_longer=50.0)
    half = [
        operator("Shapes", ["small"], ["shape"], dtype=6),
        operator("Slice", ["shape"], ["size"], start=[0], shape=[2], axes=[0]),
        operator(EXPRESSION, ["size"], ["free"], expression_desc="sub($0:int32 &0)", integer_constants=[50]),
        operator(EXPRESSION, ["free"], ["half"], expression_desc="div(&0 $0:int32)", integer_constants=[2]),
        operator(EXPRESSION, ["half"], ["start"], expression_desc="minus(&0)"),
    ]
    fixed = [operator("Constant", [], ["start"], idata=[-5, -6], shape=[2])]
    window = {"shape": [50, 50], "axes": [0, 1], "fill_values": [114.0], **PAD}
    taken = operator("Slice", ["small"], ["taken"], {"start": "start"}, **window)
    assert from_dali(graph(*begin, small, *half, taken, outputs=["taken"])).ops[2] == pp.pad(50, 50, 114)
    assert from_dali(graph(*begin, small, *fixed, taken, outputs=["taken"])).ops[2] == pp.crop(-5, -6, 50, 50, **PADDED)
    wrong = operator(EXPRESSION, ["size"], ["start"], expression_desc="minus(&0)")
    assert refusal(from_dali, graph(*begin, small, *half[:2], wrong, taken, outputs=["taken"])).endswith(
        "its window is computed in a way that the ops crop and pad do not support; for example, in an image of "
        "38 x 50 pixels, it has 50 x 50 pixels and begins at row -38, column -50"
    )


# values


def test_a_canvas_of_the_longer_side_is_a_square():
    nodes = [
        operator("ExternalSource", [], ["in"]),
        operator("decoders__Image", ["in"], ["pixels"]),
        operator("Shapes", ["pixels"], ["shape"], dtype=FLOAT),
        *(operator("_TensorSubscript", ["shape"], [n], at_0=i, num_subscripts=1) for i, n in enumerate("hw")),
        operator(EXPRESSION, ["h", "w"], ["side"], expression_desc="max(&0 &1)"),
        operator(
            "Crop", ["pixels"], ["t"], {"crop_h": "side", "crop_w": "side"}, crop_pos_x=0.0, crop_pos_y=0.0, **PAD
        ),
        operator("Resize", ["t"], ["small"], size=[40.0, 50.0]),
    ]
    square = pp.pad(square=True, anchor="top_left")
    assert from_dali(graph(*nodes, outputs=["small"])).ops[1] == square


@pytest.mark.parametrize(
    ("how", "anchor"), [({"crop_pos_x": 0.0, "crop_pos_y": 0.0}, "top_left"), ({"rounding": "truncate"}, "center")]
)
def test_a_canvas_of_the_next_multiples_is_a_pad(how, anchor):
    nodes = [
        operator("ExternalSource", [], ["in"]),
        operator("decoders__Image", ["in"], ["pixels"]),
        operator("Shapes", ["pixels"], ["shape"], dtype=FLOAT),
    ]
    for index, name in enumerate("hw"):
        nodes += [
            operator("_TensorSubscript", ["shape"], [name], at_0=index, num_subscripts=1),
            operator(EXPRESSION, [name], [f"{name} 1"], expression_desc="fdiv(&0 $0:int32)", integer_constants=[32]),
            operator(EXPRESSION, [f"{name} 1"], [f"{name} 2"], expression_desc="ceil(&0)"),
            operator(
                EXPRESSION, [f"{name} 2"], [f"{name} 3"], expression_desc="mul(&0 $0:int32)", integer_constants=[32]
            ),
        ]
    nodes.append(operator("Crop", ["pixels"], ["t"], {"crop_h": "h 3", "crop_w": "w 3"}, **how, **PAD))
    assert from_dali(graph(*nodes, outputs=["t"])).ops[1] == pp.pad(multiple=32, anchor=anchor)


def test_a_crop_that_fits_inside_the_canvas_does_not_pad():
    large = ("Paste", {"ratio": 1.5, "min_canvas_size": 50.0, "fill_value": [0], **CORNER})
    corner = {"crop": [50.0, 50.0], "crop_pos_x": 0.0, "crop_pos_y": 0.0, "mean": 3.0, "std": 7.0}
    assert imported(FIT, large, ("CropMirrorNormalize", corner | PAD)) == imported(
        FIT, large, ("CropMirrorNormalize", corner)
    )


@pytest.mark.parametrize(
    ("expression", "constants", "op"),
    [
        ("sub($0:float32 &0)", [1.0], pp.normalize(-1.0, scale=-1.0, arithmetic="multiply")),
        ("sub(&0 &1)", [[1.0, 2.0, 3.0]], pp.normalize((1.0, 2.0, 3.0), scale=1.0, arithmetic="divide")),
        ("fdiv(&0 &1)", [[1.0, 2.0, 3.0]], pp.normalize(std=(1.0, 2.0, 3.0), scale=1.0, arithmetic="divide")),
        ("mul(&1 &0)", [[1.0, 2.0, 4.0]], pp.normalize(std=(1.0, 0.5, 0.25), scale=1.0, arithmetic="fused_multiply")),
    ],
)
def test_arithmetic_with_a_number_per_channel_is_a_normalize(expression, constants, op):
    values = constants[0] if isinstance(constants[0], list) else []
    steps = [operator("ExternalSource", [], ["in"]), operator("decoders__Image", ["in"], ["pixels"])]
    steps += [operator("Resize", ["pixels"], ["small"], size=[40.0])]
    steps += [operator("Constant", [], ["array"], fdata=values, shape=[3], dtype=FLOAT)] if values else []
    real = {} if values else {"real_constants": constants}
    names = ["small", "array"] if values else ["small"]
    data = graph(*steps, operator(EXPRESSION, names, ["done"], expression_desc=expression, **real), outputs=["done"])
    assert from_dali(data).ops[2] == op


# colours


def test_a_colour_matrix_refers_to_the_decoders_rgb():
    def matrix(step, decode=DECODE):
        return from_dali(chain(decode, RESIZE, step)).ops[2].matrix

    gray = ("BrightnessContrast", {"brightness": 2.0, "contrast": 0.5, "brightness_shift": 0.1})
    offset = pytest.approx(2 * (128 - 64) + 25.5, rel=1e-6)
    assert matrix(gray) == ((1, 0, 0, offset), (0, 1, 0, offset), (0, 0, 1, offset))
    hue = matrix(("Hue", {"hue": 90.0}))
    # each row sums to 1, so gray pixels do not change
    assert [sum(row[:3]) for row in hue] == pytest.approx([1, 1, 1], abs=0.01)
    assert hue[0][0] == pytest.approx(0.299 + 0.956 * 0.211 - 0.621 * 0.596, abs=1e-3)
    bgr = matrix(("Hue", {"hue": 90.0}), ("decoders__Image", {"output_type": 1}))
    assert bgr == tuple((*row[2::-1], row[3]) for row in hue[::-1])


# tensors


def test_a_tensor_of_the_photos_own_size_has_a_bound():
    pipeline = from_dali(chain(DECODE))
    assert pipeline.ops == (pp.decode(), pp.tensor(dtype="uint8", layout="hwc", max_size=4096))
    with pp.Engine(pp.Pipeline([*pipeline.ops[:-1], pp.tensor(max_size=40)]), threads=1) as engine:
        batch = engine.run_batch([png(scene(40, 30)), png(scene(20, 41))])
    assert batch["tensor"][0].shape[-2:] == (40, 30)
    assert batch.errors[0] is None
    assert str(batch.errors[1]) == "[DOES_NOT_FIT] the result has 20 x 41 pixels; the limit is 40 per side (max_size)"
