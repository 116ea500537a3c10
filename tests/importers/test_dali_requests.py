"""Tests DALI graphs whose numbers or frames are per-request inputs: which fields they become, and which graphs are
rejected.
"""

import pytest

import pixprep as pp
from pixprep.importers.dali import from_dali
from support.dali_graphs import EXPRESSION, FLOAT, UINT8, asked, graph, operator
from support.importing import refusal

INT32 = 6
HALF = {"rounding": "half_away"}


CROP = {"crop": [8.0, 9.0]}
SIZED = ("Resize", {"size": [40.0, 50.0]}, {})


def test_numbers_can_be_cast_and_sliced_from_an_input():
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
def test_an_input_that_is_not_decoded_is_frames(case):
    types, first, dtype, layout = FRAMES[case]
    pipeline = asked(SIZED, inputs=(), photo="F", types={"F": types})
    assert pipeline.ops == (
        first,
        pp.resize(height=40, width=50, like="dali"),
        pp.tensor(dtype=dtype, layout=layout),
    )


def test_a_number_computed_from_a_request_input_is_rejected():
    nodes = [
        *(operator("ExternalSource", [], [name]) for name in ("E", "X")),
        operator("decoders__Image", ["E"], ["decoded"]),
        operator(EXPRESSION, ["X"], ["x"], expression_desc="fdiv(&0 $0:float32)", real_constants=[224.0]),
        operator("Crop", ["decoded"], ["t"], computed={"crop_pos_x": "x"}, **CROP),
    ]
    message = refusal(from_dali, graph(*nodes, outputs=["t"]))
    assert '"crop_pos_x" is computed from the input "X" of the request, which is not supported: add an' in message


def test_a_decoder_gets_the_start_and_shape_of_its_slice_from_a_request():
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


def test_frames_swap_channels_from_the_input_order():
    swap = ("ColorSpaceConversion", {"image_type": 0, "output_type": 1}, {})
    pipeline = asked(swap, SIZED, inputs=(), photo="F", types={"F": {"layout": "HWC"}})
    assert pipeline.ops[0] == pp.pixels(color="bgr", given="rgb")
    with pytest.raises(pp.PipelineError, match="send frames with the channels of the model"):
        asked(("ColorSpaceConversion", {"image_type": 2, "output_type": 0}, {}), inputs=(), photo="F")


def test_several_numbers_of_an_input_are_rejected_by_name():
    nodes = [
        *(operator("ExternalSource", [], [name]) for name in "EX"),
        operator("decoders__Image", ["E"], ["photo"]),
        operator("_TensorSubscript", ["X"], ["two"], num_subscripts=1, lo_0=0, hi_0=2),
        operator("Slice", ["photo"], ["t"], computed={"start": "two"}, shape=[8, 9]),
    ]
    text = refusal(from_dali, graph(*nodes, outputs=["t"]))
    assert "is supported only for a single number of an input with a non-negative index, such as roi[0]" in text


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ({"layout": "FHWC"}, 'the input "F" has the layout "FHWC": only HWC and CHW are supported'),
        ({"dtype": INT32}, 'the input "F" has the type int32: only uint8 and float32 are supported for frames'),
    ],
)
def test_frames_of_a_different_form_are_rejected(types, words):
    with pytest.raises(pp.PipelineError) as caught:
        asked(SIZED, inputs=(), photo="F", types={"F": types})
    assert words in str(caught.value)
    assert "F" in refusal(from_dali, graph(operator("ExternalSource", [], ["F"]), outputs=["F"]))
