"""DALI graphs of clips: which frames are taken, and which graphs have no fixed number of them."""

import pytest

import pixprep as pp
from pixprep.importers.dali import from_dali, interface
from support.dali_graphs import FLOAT, UINT8, chain, graph, operator

VIDEO = ("decoders__Video", {"sequence_length": 8})
RESIZE = ("Resize", {"size": [40.0, 50.0]})
CMN = ("CropMirrorNormalize", {"crop": [30.0, 30.0], "output_layout": "FCHW", "dtype": FLOAT})
CROP = pp.center_crop(30, smaller="refuse", rounding="half_away")
SIZED = pp.resize(height=40, width=50, like="dali")


def first(frames=8, sample="first", **fields):
    return pp.decode_video(frames=frames, sample=sample, **fields)


BECOMES = {
    "resized": ([VIDEO, RESIZE], [first(), SIZED, pp.tensor("uint8", "thwc")]),
    "cropped": ([VIDEO, RESIZE, CMN], [first(), SIZED, CROP, pp.tensor(layout="tchw")]),
    "every second": (
        [("decoders__Video", {"sequence_length": 8, "stride": 2}), RESIZE],
        [first(sample={"step": 2}), SIZED, pp.tensor("uint8", "thwc")],
    ),
    "to an end": (
        [("experimental__decoders__Video", {"end_frame": 7, "stride": 2}), RESIZE],
        [first(4, {"step": 2}), SIZED, pp.tensor("uint8", "thwc")],
    ),
    "repeated": (
        [("decoders__Video", {"sequence_length": 8, "pad_mode": "edge"}), RESIZE],
        [first(short="repeat"), SIZED, pp.tensor("uint8", "thwc")],
    ),
    "transposed": (
        [VIDEO, RESIZE, ("Transpose", {"perm": [3, 0, 1, 2]})],
        [first(), SIZED, pp.tensor("uint8", "cthw")],
    ),
}
REFUSED = {
    "all frames": (
        [("decoders__Video", {}), RESIZE],
        '"decoders__Video": without "sequence_length" a clip has as many frames as its file, which no tensor of one '
        "size holds: say it",
    ),
    "frames by number": ([("decoders__Video", {"frames": [1, 5]}), RESIZE], '"frames": [1, 5] is not understood'),
    "a later start": (
        [("decoders__Video", {"sequence_length": 8, "start_frame": 3}), RESIZE],
        '"start_frame": 3 must be',
    ),
    "a colour behind": (
        [("decoders__Video", {"sequence_length": 8, "pad_mode": "constant"}), RESIZE],
        "\"pad_mode\": 'constant' must be one of none, edge",
    ),
    "a turn": ([VIDEO, ("Rotate", {"angle": 90.0})], '"Rotate": is not understood of a clip; of these are Resize,'),
    "an image's layout": ([VIDEO, RESIZE, ("CropMirrorNormalize", {"output_layout": "CHW"})], "must be one of FCHW,"),
    "photos in it": ([VIDEO, ("decoders__Image", {})], "is not understood of a clip"),
}


@pytest.mark.parametrize("case", BECOMES)
def test_a_clip_of_a_fixed_number_of_frames_is_imported(case):
    steps, ops = BECOMES[case]
    assert list(from_dali(chain(*steps)).ops) == ops


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_understood_of_a_clip_is_refused(case):
    steps, words = REFUSED[case]
    with pytest.raises(pp.PipelineError) as caught:
        from_dali(chain(*steps))
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["inputs__Video", "experimental__inputs__Video"])
def test_a_stream_is_refused_unless_its_first_sequence_is_meant(name):
    data = graph(
        operator(name, [], ["INPUT"], sequence_length=5),
        operator("Resize", ["INPUT"], ["t"], **RESIZE[1]),
        outputs=["t"],
    )
    with pytest.raises(
        pp.PipelineError, match="answers a request with a sequence after the other, as long as the clip"
    ):
        from_dali(data)
    assert from_dali(data, clip="first").ops == (first(5), SIZED, pp.tensor("uint8", "thwc"))
    assert interface(data, "model.dali")[0] == {"INPUT": None}


def test_a_cast_of_a_clip_and_a_division_by_255():
    steps = [VIDEO, RESIZE, ("Cast", {"dtype": UINT8})]
    divided = ("_ArithmeticGenericOp", {"expression_desc": "fdiv(&0 $0:float32)", "real_constants": [255.0]})
    ops = from_dali(chain(*steps, divided)).ops
    assert ops[2] == pp.normalize(scale=1 / 255, arithmetic="divide")
    assert ops[-1] == pp.tensor(layout="thwc")
