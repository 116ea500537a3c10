"""Tests clips in DALI graphs against DALI: the selected frames are the same, and the pixels differ only because of
DALI's colour conversion.
"""

import numpy as np
import pytest

import pixprep as pp
from pixprep.importers.dali import from_dali
from support import clips

dali = pytest.importorskip("nvidia.dali", reason="NO DALI: clips can only be compared with it")
fn = dali.fn
GRAPHS = {
    "first": lambda video: fn.decoders.video(video, sequence_length=6),
    "every third": lambda video: fn.decoders.video(video, sequence_length=6, stride=3),
    "to an end": lambda video: fn.decoders.video(video, end_frame=11, stride=2),
    "repeated": lambda video: fn.decoders.video(video, sequence_length=30, pad_mode="edge"),
}


def run(build, clip):
    pipe = dali.Pipeline(batch_size=1, num_threads=1, device_id=None)
    with pipe:
        pipe.set_outputs(build(fn.external_source(name="VIDEO")))
    graph = pipe.serialize()
    pipe.build()
    pipe.feed_input("VIDEO", [np.frombuffer(clip, np.uint8)])
    (ours,) = pp.Engine(from_dali(graph), threads=1).run([clip])
    return ours, np.asarray(pipe.run()[0].at(0))


@pytest.mark.parametrize("name", ["vp9.webm", "vp8.webm"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_frames_equal_those_of_dali(name, graph):
    def cropped(video):
        return fn.crop(GRAPHS[graph](video), crop=(96, 160))

    ours, theirs = run(cropped, clips.clip(name, 20))
    assert ours.shape == theirs.shape
    assert [*map(clips.number, ours)] == [*map(clips.number, theirs)]
    difference = np.abs(ours.astype(int) - theirs)
    print(f"\n{name}, {graph}: mean {difference.mean():.2f}, max {difference.max()}")
    assert difference.mean() < 1.5
    assert difference.max() <= 25


def test_a_resized_clip_differs_only_slightly():
    ours, theirs = run(lambda video: fn.resize(GRAPHS["first"](video), size=[48, 80]), clips.clip("vp9.webm", 20))
    assert np.abs(ours.astype(int) - theirs).max() <= 12


FOURTH_CHANNELS = [
    ({}, 0),
    ({"fill_values": 3.0}, 3),
    ({"fill_values": [1.0, 2.0, 3.0, 4.5]}, 4.5),
    ({"mean": [9.0, 8.0, 7.0], "fill_values": [-9.0, -8.0, -7.0]}, 0),
]


@pytest.mark.parametrize("layout", ["FCHW", "FHWC", "CFHW"])
@pytest.mark.parametrize(("options", "value"), FOURTH_CHANNELS)
def test_the_fourth_channel_of_a_clip_equals_dali(layout, options, value):
    def padded(video):
        how = {"crop": (120, 200), "out_of_bounds_policy": "pad", "pad_output": True, "output_layout": layout}
        return fn.crop_mirror_normalize(GRAPHS["first"](video), **how, **options)

    ours, theirs = run(padded, clips.clip("vp9.webm", 20))
    assert ours.shape == theirs.shape
    assert np.abs(ours.astype(float) - theirs).max() <= 25
    for each in (ours, theirs):
        assert (each.take(3, axis=layout.index("C")) == value).all()
