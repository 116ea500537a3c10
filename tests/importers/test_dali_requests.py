"""DALI graphs whose numbers or frames come with the request: which fields they become, and what is refused."""

import pytest

import pixprep as pp
from pixprep.importers.dali import from_dali
from support.dali_graphs import EXPRESSION, FLOAT, UINT8, graph, operator
from support.importing import refusal

INT32 = 6
HALF = {"rounding": "half_away"}


def made(*steps, inputs=("X", "Y"), types=None, photo="E", **options):
    """The ops of steps (operator, constant arguments, arguments of inputs, further inputs) behind the decoder."""
    nodes = [operator("ExternalSource", [], [name], **(types or {}).get(name, {})) for name in (photo, *inputs)]
    last = photo
    if photo == "E":
        nodes.append(operator("decoders__Image", [photo], ["decoded"]))
        last = "decoded"
    for index, (name, constants, computed, *more) in enumerate(steps):
        nodes.append(operator(name, [last, *(more[0] if more else [])], [f"t{index}"], computed=computed, **constants))
        last = f"t{index}"
    return from_dali(graph(*nodes, outputs=[last]), **options)


CROP = {"crop": [8.0, 9.0]}
SIZED = ("Resize", {"size": [40.0, 50.0]}, {})
AT = {"crop_pos_x": "X", "crop_pos_y": "Y"}
BECOMES = {
    "a corner": ([("Crop", CROP, AT)], {}, [pp.crop("Y", "X", 8, 9, unit="free", **HALF)]),
    "one side of a corner": (
        [("Crop", {**CROP, "crop_pos_y": 0.25, "rounding": "truncate"}, {"crop_pos_x": "X"})],
        {},
        [pp.crop(0.25, "X", 8, 9, unit="free", rounding="down")],
    ),
    "a size": (
        [("Crop", {}, {"crop_h": "Y", "crop_w": "X"}), SIZED],
        {},
        [pp.crop(0.5, 0.5, "Y", "X", unit="free", **HALF), pp.resize(height=40, width=50, like="dali")],
    ),
    "a size of one input, which the tensor has": (
        [("Crop", {}, {"crop": "X"})],
        {"max_size": 64},
        [pp.crop(0.5, 0.5, "X", "X[1]", unit="free", max_size=64, **HALF)],
    ),
    "a size with margins": (
        [("Crop", {"out_of_bounds_policy": "pad", "fill_values": 7.0}, {"crop": "X"})],
        {"max_size": 64},
        [pp.crop(0.5, 0.5, "X", "X[1]", unit="free", max_size=64, smaller="pad", fill=7, **HALF)],
    ),
    "a mirror": (
        [("CropMirrorNormalize", {**CROP, "dtype": UINT8}, {"mirror": "X"})],
        {},
        [pp.center_crop(8, 9, smaller="refuse", **HALF), pp.flip(when="X")],
    ),
    "mirrors": (
        [("Crop", CROP, {}), ("Flip", {"horizontal": 0}, {"vertical": "X"})],
        {},
        [pp.center_crop(8, 9, smaller="refuse", **HALF), pp.flip("vertical", when="X")],
    ),
    "both sides": (
        [("Resize", {}, {"resize_x": "X", "resize_y": "Y"})],
        {"max_size": 99},
        [pp.resize(height="Y", width="X", like="dali", max_size=99)],
    ),
    "a side beside a fixed one": (
        [("Resize", {"resize_x": 30.0}, {"resize_y": "Y"})],
        {"max_size": 99},
        [pp.resize(height="Y", width=30, like="dali", max_size=99)],
    ),
    "a size to fit": (
        [("Resize", {"mode": "not_larger"}, {"size": "X"})],
        {"max_size": 99},
        [pp.resize(height="X", width="X[1]", mode="fit", like="dali", max_size=99)],
    ),
    "a part": (
        [("Resize", {"size": [8.0, 9.0], "roi_relative": True}, {"roi_start": "X", "roi_end": "Y"})],
        {},
        [pp.resize(height=8, width=9, like="dali", roi=("X", "X[1]", "Y", "Y[1]"), roi_unit="share")],
    ),
    "an end of a part": (
        [("Resize", {"resize_shorter": 8.0, "roi_start": [1.5, 2.0]}, {"roi_end": "Y"}), ("Crop", CROP, {})],
        {},
        [
            pp.resize(8, like="dali", roi=(1.5, 2, "Y", "Y[1]")),
            pp.center_crop(8, 9, smaller="refuse", **HALF),
        ],
    ),
    "the shorter side": (
        [("Resize", {}, {"resize_shorter": "X"}), ("Crop", CROP, {})],
        {},
        [pp.resize("X", like="dali", max_size=16384), pp.center_crop(8, 9, smaller="refuse", **HALF)],
    ),
    "shares of a slice": (
        [("Slice", {}, {}, ["X", "Y"]), SIZED],
        {},
        [
            pp.crop("X[1]", "X", "Y[1]", "Y", unit="share", **HALF),
            pp.resize(height=40, width=50, like="dali"),
        ],
    ),
    "shares of a slice, named, one of them fixed": (
        [("Slice", {"rel_shape": [0.1, 0.7]}, {"rel_start": "X"}), SIZED],
        {},
        [pp.crop("X[1]", "X", 0.7, 0.1, unit="share32", **HALF), pp.resize(height=40, width=50, like="dali")],
    ),
    "pixels of a slice, of rows first": (
        [("Slice", {"axis_names": "HW", "normalized_anchor": False, "normalized_shape": False}, {}, ["X", "Y"]), SIZED],
        {},
        [pp.crop("X", "X[1]", "Y", "Y[1]"), pp.resize(height=40, width=50, like="dali")],
    ),
    "whole numbers of a slice": (
        [("Slice", {}, {}, ["X", "Y"]), SIZED],
        {"types": {name: {"dtype": INT32} for name in "XY"}},
        [pp.crop("X[1]", "X", "Y[1]", "Y"), pp.resize(height=40, width=50, like="dali")],
    ),
    "an angle": (
        [("Rotate", {"fill_value": 7.0}, {"angle": "X"}), SIZED],
        {},
        [
            pp.rotate("X", filter="bilinear", expand=True, fill=7, like="dali"),
            pp.resize(height=40, width=50, like="dali"),
        ],
    ),
    "an affine map": (
        [("WarpAffine", {"size": [9.0, 8.0]}, {"matrix": "X"})],
        {},
        [pp.warp(matrix="X", height=9, width=8, like="dali", padding_mode="edge", inverse_map=True)],
    ),
    "a start alone": (
        [("Slice", {"axes": [0, 1], "shape": [20, 30]}, {"start": "X"})],
        {},
        [pp.crop("X", "X[1]", 20, 30)],
    ),
}


@pytest.mark.parametrize("case", BECOMES)
def test_numbers_of_a_request_become_fields_that_name_them(case):
    steps, options, ops = BECOMES[case]
    pipeline = made(*steps, **options)
    assert list(pipeline.ops[1:-1]) == ops
    assert pipeline.ops[0] == pp.decode()
    assert set(pipeline.inputs) <= {"X", "Y"}


def test_numbers_may_be_cast_and_taken_out_of_an_input():
    nodes = [
        *(operator("ExternalSource", [], [name]) for name in ("E", "roi")),
        operator("decoders__Image", ["E"], ["decoded"]),
        operator("Cast", ["roi"], ["cast"], dtype=FLOAT),
        operator("_TensorSubscript", ["cast"], ["x"], num_subscripts=1, at_0=0),
        operator("_TensorSubscript", ["cast"], ["y"], num_subscripts=1, at_0=3),
        operator("Crop", ["decoded"], ["t"], computed={"crop_pos_x": "x", "crop_pos_y": "y"}, **CROP),
    ]
    pipeline = from_dali(graph(*nodes, outputs=["t"]))
    assert pipeline.ops[1] == pp.crop("roi[3]", "roi", 8, 9, unit="free", **HALF)
    assert pipeline.inputs["roi"].count == 4


FRAMES = {
    "without a layout": ({}, pp.pixels(), "uint8", "hwc"),
    "HWC": ({"layout": "HWC", "dtype": UINT8}, pp.pixels(), "uint8", "hwc"),
    "CHW": ({"layout": "CHW"}, pp.pixels(layout="chw"), "uint8", "chw"),
    "float": ({"layout": "CHW", "dtype": FLOAT}, pp.pixels(layout="chw", dtype="float32"), "float32", "chw"),
}


@pytest.mark.parametrize("case", FRAMES)
def test_an_input_that_nothing_decodes_is_frames(case):
    types, first, dtype, layout = FRAMES[case]
    pipeline = made(SIZED, inputs=(), photo="F", types={"F": types})
    assert pipeline.ops == (
        first,
        pp.resize(height=40, width=50, like="dali"),
        pp.tensor(dtype=dtype, layout=layout),
    )


def test_a_number_that_is_computed_from_one_of_the_request_is_refused():
    nodes = [
        *(operator("ExternalSource", [], [name]) for name in ("E", "X")),
        operator("decoders__Image", ["E"], ["decoded"]),
        operator(EXPRESSION, ["X"], ["x"], expression_desc="fdiv(&0 $0:float32)", real_constants=[224.0]),
        operator("Crop", ["decoded"], ["t"], computed={"crop_pos_x": "x"}, **CROP),
    ]
    assert '"crop_pos_x" is computed from "X" of the request, which is not understood: let clients send' in refusal(
        from_dali, graph(*nodes, outputs=["t"])
    )


def test_a_decoder_takes_the_start_and_the_shape_of_its_slice_from_a_request():
    how = {"normalized_anchor": False, "normalized_shape": False}
    nodes = [
        *(operator("ExternalSource", [], [name]) for name in "EXY"),
        operator("decoders__ImageSlice", [*"EXY"], ["part"], **how),
        operator("Resize", ["part"], ["t"], size=[40.0, 50.0]),
    ]
    assert from_dali(graph(*nodes, outputs=["t"])).ops[1] == pp.crop("X[1]", "X", "Y[1]", "Y")
    cropped = operator("decoders__ImageCrop", [*"EXY"], ["part"], crop=[8.0, 9.0])
    text = refusal(from_dali, graph(*nodes[:3], cropped, nodes[4], outputs=["t"]))
    assert text.endswith('its input "E", "X", "Y" is not the encoded image')


def test_frames_exchange_channels_from_the_order_that_comes():
    swap = ("ColorSpaceConversion", {"image_type": 0, "output_type": 1}, {})
    pipeline = made(swap, SIZED, inputs=(), photo="F", types={"F": {"layout": "HWC"}})
    assert pipeline.ops[0] == pp.pixels(color="bgr", given="rgb")
    with pytest.raises(pp.PipelineError, match="let clients send frames with the model's channels"):
        made(("ColorSpaceConversion", {"image_type": 2, "output_type": 0}, {}), inputs=(), photo="F")


def test_several_numbers_of_an_input_are_refused_by_name():
    nodes = [
        *(operator("ExternalSource", [], [name]) for name in "EX"),
        operator("decoders__Image", ["E"], ["photo"]),
        operator("_TensorSubscript", ["X"], ["two"], num_subscripts=1, lo_0=0, hi_0=2),
        operator("Slice", ["photo"], ["t"], computed={"start": "two"}, shape=[8, 9]),
    ]
    text = refusal(from_dali, graph(*nodes, outputs=["t"]))
    assert "is understood of one of an input's numbers from the first on, such as roi[0], not of several" in text


REFUSED = [
    ([("Crop", {}, {"crop": "X"})], {}, "the request says how large its tensor is: say the most pixels of a side"),
    ([("Crop", CROP, AT)], {"max_size": 9}, "the option max_size is of a size that comes with the request"),
    (
        [("Crop", {}, {"crop": "X"}), SIZED],
        {"max_size": 9},
        "the option max_size is of a tensor whose size comes with the request, and this is fixed",
    ),
    (
        [("Resize", {}, {"resize_shorter": "X"})],
        {"max_size": 99},
        "a resize of one side to a number of the request is understood where a crop follows",
    ),
    ([("Resize", {}, {"resize_x": "X"})], {"max_size": 99}, "a resize of one side to a number of the request"),
    (
        [("Resize", {"resize_x": 9.0, "roi_end": [1.0, 2.0]}, {"roi_start": "X"}), ("Crop", CROP, {})],
        {},
        '"roi_start": (of the request) comes with the request, which is understood where both sides are given',
    ),
    (
        [("CropMirrorNormalize", CROP, {"mean": "X"})],
        {},
        '"CropMirrorNormalize": its argument "mean" comes with the request, which is not understood: give a number',
    ),
    ([("Crop", CROP, {}), ("Water", {}, {"ampl_x": "X"})], {}, '"Water": its argument "ampl_x" comes with the request'),
    (
        [SIZED, ("WarpAffine", {"size": [9.0, 9.0]}, {"matrix": "X"})],
        {},
        "must come before what moves pixels: its numbers are in pixels of the photo",
    ),
    ([("Pad", {}, {"shape": "X"})], {}, '"Pad": its argument "shape" comes with the request'),
    (
        [("Slice", {"axes": [0]}, {"start": "X", "shape": "Y"})],
        {},
        "is understood of a start and a shape of both axes, where one comes with the request",
    ),
    ([("Slice", {}, {"start": "X"})], {}, "is understood of a start and a shape of both axes"),
    (
        [("Slice", {"out_of_bounds_policy": "pad"}, {}, ["X", "Y"])],
        {},
        "is not understood of shares that come with the request",
    ),
    (
        [("Crop", {}, {"crop": "X"}), ("Shapes", {}, {})],
        {},
        "computes with the size of an image that the request says, which is not understood",
    ),
]


@pytest.mark.parametrize(("steps", "options", "words"), REFUSED)
def test_what_cannot_come_with_a_request_is_refused(steps, options, words):
    with pytest.raises(pp.PipelineError) as caught:
        made(*steps, **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ({"layout": "FHWC"}, 'the input "F" of the layout "FHWC": HWC and CHW are taken'),
        ({"dtype": INT32}, 'the input "F" of int32: frames of uint8 and float32 are taken'),
    ],
)
def test_frames_of_another_form_are_refused(types, words):
    with pytest.raises(pp.PipelineError) as caught:
        made(SIZED, inputs=(), photo="F", types={"F": types})
    assert words in str(caught.value)
    assert "F" in refusal(from_dali, graph(operator("ExternalSource", [], ["F"]), outputs=["F"]))
