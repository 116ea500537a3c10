"""The same frames as torchcodec and decord: their numbers and their pixels."""

import io

import numpy as np
import pytest

from clips import CODECS, clip
from pixprep.decoders import Limits, video

av = pytest.importorskip("av")
COUNT, WANTED = 70, [0, 1, 19, 20, 21, 33, 34, 68, 69]


def ours(encoded):
    found = video.decode(encoded, lambda _: WANTED, Limits(max_image_bytes=1 << 28))
    return np.stack([frame[:, :, :3] for frame in found.frames])


@pytest.fixture(scope="module", params=[name for name in CODECS if "avi" not in name])
def encoded(request):
    return clip(request.param, COUNT)


def test_torchcodec(encoded):
    try:
        from torchcodec.decoders import VideoDecoder  # noqa: PLC0415
    except (ImportError, OSError, RuntimeError) as error:  # it looks for FFmpeg's libraries of the system
        pytest.skip(f"torchcodec: {str(error)[:200]}")
    theirs = VideoDecoder(encoded, dimension_order="NHWC", seek_mode="exact").get_frames_at(WANTED).data.numpy()
    np.testing.assert_array_equal(ours(encoded), theirs)


def test_decord(encoded):
    decord = pytest.importorskip("decord")
    if av.open(io.BytesIO(encoded)).streams.video[0].codec_context.name == "libdav1d":
        pytest.skip("decord's FFmpeg knows no AV1")
    reader = decord.VideoReader(io.BytesIO(encoded))
    np.testing.assert_array_equal(ours(encoded), reader.get_batch(WANTED).asnumpy())


def test_a_neighbour_or_another_matrix_would_be_seen(encoded):
    frames = ours(encoded)
    neighbours = video.decode(encoded, lambda _: [index + (index < COUNT - 1) for index in WANTED], Limits()).frames
    assert all((frame != other[:, :, :3]).any() for frame, other in zip(frames[:-1], neighbours, strict=False))
