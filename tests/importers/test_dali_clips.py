"""Tests DALI graphs of clips: which frames are selected, and that graphs without a fixed number of frames are
rejected.
"""

import pytest

import pixprep as pp
from pixprep.importers.dali import from_dali, interface
from support.dali_graphs import graph, operator

RESIZE = ("Resize", {"size": [40.0, 50.0]})
SIZED = pp.resize(height=40, width=50, like="dali")


def first(frames=8, sample="first", **fields):
    return pp.decode_video(frames=frames, sample=sample, **fields)


@pytest.mark.parametrize("name", ["inputs__Video", "experimental__inputs__Video"])
def test_a_stream_is_rejected_unless_only_its_first_sequence_is_requested(name):
    data = graph(
        operator(name, [], ["INPUT"], sequence_length=5),
        operator("Resize", ["INPUT"], ["t"], **RESIZE[1]),
        outputs=["t"],
    )
    with pytest.raises(
        pp.PipelineError, match="returns one response for each sequence of a clip, but pixprep returns a single"
    ):
        from_dali(data)
    assert from_dali(data, clip="first").ops == (first(5), SIZED, pp.tensor("uint8", "thwc"))
    assert interface(data, "model.dali")[0] == {"INPUT": None}
