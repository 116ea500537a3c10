"""Tests that the facts which pixprep derives from a clip's packets match the options of FFmpeg's encoders."""

import io

import numpy as np
import pytest

from pixprep.engine.decoders.clips.sequences import SEQUENCES
from support.clips import clip

av = pytest.importorskip("av")
FILTERS = {"h264": "h264_mp4toannexb", "hevc": "hevc_mp4toannexb"}


def packets(encoded):
    """Return the codec's name, and (bytes, whether it is a key frame) for each packet."""
    found = []
    with av.open(io.BytesIO(encoded)) as file:
        stream = file.streams.video[0]
        name = stream.codec_context.name.replace("libdav1d", "av1")
        changed = av.bitstream.BitStreamFilterContext(FILTERS[name], stream) if name in FILTERS else None
        for packet in file.demux(stream):
            if packet.size:
                is_key = packet.is_keyframe
                found.append((b"".join(map(bytes, changed.filter(packet))) if changed else bytes(packet), is_key))
    return name, found


@pytest.mark.parametrize("name", ["h264.mp4", "h264.mov", "h265.mp4", "h265.mkv", "vp9.webm", "av1.mp4", "av1.webm"])
def test_a_clip_has_one_header_and_begins_at_key_frames(name):
    codec, found = packets(clip(name, 50))
    says = SEQUENCES[codec]
    (header,) = {each for data, _ in found for each in says.headers(data)}
    assert says.is_plain(header)
    assert [says.begins(data) for data, is_key in found if is_key] == [True] * sum(is_key for _, is_key in found)
    assert not [1 for data, is_key in found if says.begins(data) and not is_key]


@pytest.mark.parametrize("name", ["h264-open.mkv", "h264-refresh.mp4"])
def test_a_key_frame_that_depends_on_others_is_not_a_start(name):
    codec, found = packets(clip(name, 50))
    begins = [SEQUENCES[codec].begins(data) for data, is_key in found if is_key]
    assert len(begins) > 1
    assert begins == [True] + [False] * (len(begins) - 1)


def test_h265_pictures_at_which_decoding_can_start_are_bla_idr_and_cra():
    kinds = [kind for kind in range(64) if SEQUENCES["hevc"].begins(b"\0\0\1" + bytes([kind << 1, 1, 0x80]))]
    assert kinds == [16, 17, 18, 19, 20, 21]  # H.265, table 7-1


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("h264.mp4", {"colorspace": 5}), ("h264.mp4", {"width": 176}), ("h265.mp4", {"colorspace": 5}),
        ("h265.mp4", {"width": 176}), ("vp9.webm", {"colorspace": 5}), ("vp9.webm", {"width": 176}),
        ("vp9.webm", {"color_range": 2}), ("av1.mp4", {"colorspace": 5}), ("av1.mp4", {"width": 176}),
    ],
)  # fmt: skip
def test_a_different_matrix_or_size_is_a_new_header(name, change):
    headers = []
    for more in ({"colorspace": 1}, {"colorspace": 1} | change):
        codec, found = packets(clip(name, 3, **more))
        headers.append({each for data, _ in found for each in SEQUENCES[codec].headers(data)})
    assert len(headers[0] | headers[1]) == 2


@pytest.mark.parametrize(
    ("how", "is_plain"),
    [
        (("libx264", "mp4", {}), True),
        (("libx264", "mp4", {"profile": "baseline"}), True),
        (("libx264", "mp4", {"profile": "main"}), True),
        (("libx264", "mp4", {"bf": "0"}), True),
        (("libx264", "mp4", {"x264-params": "interlaced=1"}), False),
        (("libx264", "mp4", {"x264-params": "fake-interlaced=1"}), False),
        (("libx265", "mp4", {"x265-params": "log-level=none"}), True),
        (("libx265", "mp4", {"x265-params": "log-level=none:interlace=tff"}), False),
        (("libsvtav1", "mp4", {"preset": "12", "svtav1-params": "lp=1"}), True),
        (("libsvtav1", "mp4", {"preset": "12", "svtav1-params": "lp=1:film-grain=8"}), False),
    ],
)
def test_interlaced_clips_and_film_grain_are_reported(how, is_plain):
    codec, found = packets(clip(how, 12))
    headers = {each for data, _ in found for each in SEQUENCES[codec].headers(data)}
    assert [SEQUENCES[codec].is_plain(each) for each in headers] == [is_plain]


def test_a_hidden_intra_frame_of_vp9_counts_as_a_new_header():
    says = SEQUENCES["vp9"]
    assert says.headers(b"\x84\x80\x49") == {b"by itself"}
    assert says.headers(b"\x84\x00\x49") == says.headers(b"\x86\x80") == set()


@pytest.mark.parametrize("codec", SEQUENCES)
def test_damage_gives_a_result_or_a_value_or_index_error(codec):
    name = {"h264": "h264.mp4", "hevc": "h265.mp4", "vp9": "vp9.webm", "av1": "av1.mp4"}[codec]
    _, found = packets(clip(name, 3))
    says, numbers, answers = SEQUENCES[codec], np.random.default_rng(0), 0
    for _ in range(400):
        data = bytearray(found[0][0][: int(numbers.integers(1, 200))])
        for _ in range(int(numbers.integers(0, 6))):
            data[int(numbers.integers(0, len(data)))] = int(numbers.integers(0, 256))
        try:
            says.begins(bytes(data))
            for header in says.headers(bytes(data)):
                assert says.is_plain(header) in (True, False)
            answers += 1
        except (ValueError, IndexError):
            pass
    assert answers > 50
