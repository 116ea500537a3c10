"""Tests that the video decoder returns exactly the requested frames in order, and that it rejects unsuitable clips."""

import contextlib
import io
import struct
from functools import cache
from itertools import dropwhile

import numpy as np
import pytest

from pixprep.engine.decoders import Limits
from pixprep.engine.decoders.clips import ffmpeg
from pixprep.errors import ImageError
from pixprep.plan.clip_frames import Sampling
from support.clips import CODECS, clip, edited, number, pixels

av = pytest.importorskip("av")
av.logging.set_level(None)
LIMITS = Limits()
COUNT = 70
made = cache(clip)


def chosen(*indices):
    return lambda _: list(indices)


def uniform(frames, count=9):
    return Sampling(frames=count, rule="uniform", short="repeat").indices(frames.times)


def every_frame(encoded, form="rgb24"):
    with av.open(io.BytesIO(encoded)) as file:
        return [frame.to_ndarray(format=form) for frame in file.decode(video=0)]


def refused(encoded, limits=LIMITS, choose=uniform):
    with pytest.raises(ImageError) as caught:
        ffmpeg.decode(encoded, choose, limits)
    return caught.value


@pytest.mark.parametrize("name", CODECS)
def test_the_requested_frame_numbers_are_decoded(name):
    encoded = made(name)
    whole = every_frame(encoded)
    assert len(whole) == COUNT
    for wanted in ([0], [COUNT - 1], [33], [0, 1, 2, 35, 36, 68, 69], [5, 19, 20, 21, 24, 25, 41, 60], [*range(COUNT)]):
        found = ffmpeg.decode(encoded, chosen(*wanted), LIMITS)
        assert [number(frame) for frame in found.frames] == wanted == found.indices
        for index, frame in zip(wanted, found.frames, strict=True):
            np.testing.assert_array_equal(frame[:, :, :3], whole[index])
            assert frame.shape == (96, 160, 3)
            assert frame.flags.c_contiguous


@pytest.mark.parametrize("name", ["h265.mp4", "h265.mkv", "h265-layers.mp4"])
def test_frames_without_dependents_are_not_decoded(name):
    encoded = made(name)
    with av.open(io.BytesIO(encoded)) as file:
        packets = sorted((packet for packet in file.demux(video=0) if packet.size), key=lambda packet: packet.pts)
    slices = [data[4:] for data in map(bytes, packets) if len(data) == 4 + int.from_bytes(data[:4], "big")]
    layers = {data[1] & 7 for data in slices}
    assert (len(layers) > 1) == ("layers" in name)
    needed, spare = 0, 0
    for index, packet in enumerate(packets[:40]):
        data = bytes(packet)
        at = encoded.index(data)
        bad = encoded[: at + 8] + bytes(len(data) - 8) + encoded[at + len(data) :]
        others = [each for each in (0, 15, 39, 55) if each != index]
        is_spare = data[4] >> 1 in (0, 2, 4, 6, 8) and data[5] & 7 == max(layers)
        try:
            found = ffmpeg.decode(bad, chosen(*others), LIMITS).frames
            is_same = all(map(np.array_equal, found, (all_frames(name)[each] for each in others)))
        except ImageError:
            is_same = False
        if is_spare:
            spare += 1
            assert is_same, f"frame {index} was decoded"
        else:
            needed += not is_same
    assert spare > 10
    assert needed > 5


@cache
def all_frames(name):
    return every_frame(made(name))


def decodable(encoded):
    """Return the frames that PyAV decodes, from the first frame that does not depend on frames before the clip."""
    found = []
    with av.open(io.BytesIO(encoded)) as file:
        for packet in file.demux(video=0):
            try:
                found += packet.decode()
            except av.error.InvalidDataError:
                assert not found
        if file.streams.video[0].codec_context.name == "mpeg4":  # PyAV shows the first frames in gray
            found = [*dropwhile(lambda frame: not frame.key_frame, found)]
    return [frame.to_ndarray(format="rgb24") for frame in found]


CUT = CODECS | {
    "h264-keys.avi": ("libx264", "avi", {"bf": "0", "g": "20"}),
    "h265-open.mkv": ("libx265", "matroska", {"x265-params": "log-level=none:keyint=24:bframes=3:b-adapt=0"}),
    "mpeg4-b.mkv": ("mpeg4", "matroska", {"g": "12", "bf": "2"}),
}
ONE_KEY = ("h264-one-key.mp4", "h264.avi", "h264-b.avi")


@pytest.mark.parametrize(
    ("name", "packets"),
    [
        *((name, 5) for name in CUT if name not in ONE_KEY),
        *((name, packets) for name in ("h264.mp4", "h265-open.mkv", "vp9.webm") for packets in (1, 13)),
    ],
)
def test_a_clip_cut_between_key_frames_begins_with_the_first_decodable_frame(monkeypatch, name, packets):
    monkeypatch.setitem(CODECS, name, CUT[name])
    check_cut(clip(name, cut=packets))


def check_cut(encoded):
    whole = decodable(encoded)
    assert 0 < len(whole) < COUNT - 5
    assert [number(frame) for frame in whole] == [*range(COUNT - len(whole), COUNT)]
    times = []
    found = ffmpeg.decode(encoded, lambda frames: times.extend(frames.times) or [*range(len(frames.times))], LIMITS)
    assert (times[0], len(times)) == (0, len(whole))
    for ours, theirs in zip(found.frames, whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    middle = Sampling(frames=1, rule="step", start="middle")
    (frame,) = ffmpeg.decode(encoded, lambda frames: middle.indices(frames.times), LIMITS).frames
    np.testing.assert_array_equal(frame, whole[(len(whole) - 1) // 2])


def test_undecodable_frames_of_an_open_group_are_not_counted(monkeypatch):
    """These frames follow the first key frame in the file, but precede it in display order."""
    name = "h265-open.mkv"
    monkeypatch.setitem(CODECS, name, CUT[name])
    with av.open(io.BytesIO(clip(name))) as file:
        keys = [place for place, packet in enumerate(file.demux(video=0)) if packet.is_keyframe]
    encoded = clip(name, cut=keys[1])
    with av.open(io.BytesIO(encoded)) as file:
        first, second, *_ = (packet for packet in file.demux(video=0) if packet.size)
    assert first.is_keyframe
    assert second.pts < first.pts
    check_cut(encoded)


def test_decoding_starts_at_key_frames_that_an_mp4_does_not_list(monkeypatch):
    name = "mpeg4-b.mp4"
    monkeypatch.setitem(CODECS, name, ("mpeg4", "mp4", {"g": "12", "bf": "2"}))
    check_cut(clip(name, cut=5).replace(b"stss", b"free"))
    for each in ("h265.mp4", "mpeg4.mp4"):
        unnamed = bytearray(made(each))
        at = unnamed.index(b"stss") + 12
        unnamed[at : at + 4] = struct.pack(">I", 2)  # the table lists the second packet instead of the first
        found = ffmpeg.decode(bytes(unnamed), chosen(*range(COUNT)), LIMITS)
        assert [number(frame) for frame in found.frames] == [*range(COUNT)]


@pytest.mark.parametrize("name", ["h264.mp4", "h265.mkv", "vp9.webm", "av1.mp4", "mpeg4.avi"])
@pytest.mark.parametrize("cut", [0, 5])
def test_a_damaged_first_key_frame_is_not_skipped(name, cut):
    encoded = clip(name, cut=cut)
    with av.open(io.BytesIO(encoded)) as file:
        key = bytes(next(packet for packet in file.demux(video=0) if packet.is_keyframe))
    count = []
    ffmpeg.decode(encoded, lambda frames: count.append(len(frames.times)) or [0], LIMITS)
    for part in (3, 4, 8):
        at = encoded.index(key) + len(key) // part
        damaged = encoded[:at] + bytes(len(key) // 2) + encoded[at + len(key) // 2 :]
        with contextlib.suppress(ImageError):
            ffmpeg.decode(damaged, lambda frames: count.append(len(frames.times)) or [0], LIMITS)
    assert len({*count}) == 1


@pytest.mark.parametrize("name", [*ONE_KEY, "mpeg4-one-key.mp4"])
def test_a_clip_without_a_key_frame_is_rejected(monkeypatch, name):
    monkeypatch.setitem(CODECS, "mpeg4-one-key.mp4", ("mpeg4", "mp4", {"g": "500"}))
    assert (
        str(refused(clip(name, cut=1)))
        == "[CORRUPT] no frame can be decoded, because the clip does not contain a complete key frame"
    )


def test_timestamps_of_a_variable_frame_rate_are_used():
    stamps = [0, 10, 20, 400, 410, 420, 1000, 1500, 1501, 3000]
    encoded = clip("h264.mp4", len(stamps), stamps=stamps)
    seen = []
    found = ffmpeg.decode(encoded, lambda frames: seen.extend(frames.times) or [*range(10)], LIMITS)
    assert [round(1000 * time) for time in seen] == stamps
    assert [number(frame) for frame in found.frames] == [*range(10)]
    rate = Sampling(frames=7, rule="fps", by=2)  # the frames that are visible at 0, 0.5, ... 3 s
    found = ffmpeg.decode(encoded, lambda frames: rate.indices(frames.times), LIMITS)
    assert [number(frame) for frame in found.frames] == [0, 5, 6, 7, 8, 8, 9]
    assert found.frames[4] is found.frames[5]


@pytest.mark.parametrize("width", [160, 162, 164, 166, 174, 226, 228])
def test_every_column_is_decoded(width):
    encoded = clip("h264.mp4", 4, width=width)
    (frame,) = ffmpeg.decode(encoded, chosen(2), LIMITS).frames
    error = np.abs(frame.astype(int) - pixels(2, 96, width))[20:, -4:]
    np.testing.assert_array_equal(frame, every_frame(encoded)[2])
    assert np.median(error) < 5


def test_odd_sizes_and_gray():
    encoded = clip("vp9.webm", 12, height=97, width=161)
    found = ffmpeg.decode(encoded, chosen(3, 9), LIMITS)
    assert [number(frame) for frame in found.frames] == [3, 9]
    assert found.frames[0].shape == (97, 161, 3)
    gray = ffmpeg.decode(encoded, chosen(9), LIMITS, is_gray=True)
    assert gray.frames[0].shape == (97, 161, 1)
    np.testing.assert_array_equal(gray.frames[0][:, :, 0], every_frame(encoded, "gray")[9])


@pytest.mark.parametrize(
    ("matrix", "weights"), [(1, (0.2126, 0.7152)), (5, None), (7, (0.212, 0.701)), (9, (0.2627, 0.678))]
)
def test_gray_is_the_bt601_luma_of_the_colours_for_any_declared_matrix(matrix, weights):
    """Pillow, OpenCV and torchvision compute the same gray from RGB, and PyAV computes it from a clip."""
    encoded = clip("h264.mp4", 3, colorspace=matrix, pixel_format="yuv444p")
    (gray,) = ffmpeg.decode(encoded, chosen(1), LIMITS, is_gray=True).frames
    np.testing.assert_array_equal(gray[:, :, 0], every_frame(encoded, "gray")[1])
    (frame,) = ffmpeg.decode(encoded, chosen(1), LIMITS).frames
    assert np.abs(frame @ np.array([0.299, 0.587, 0.114]) - gray[:, :, 0]).max() < 1.6
    if weights:  # the luma in the stream differs
        red, green = weights
        assert np.abs(frame @ np.array([red, green, 1 - red - green]) - gray[:, :, 0]).max() > 4


@pytest.mark.parametrize(("matrix", "other"), [(1, 5), (5, 1)])
def test_colours_use_the_declared_matrix(matrix, other):
    """Matrix 1 is BT.709, and matrix 5 is BT.601 for 625 lines."""
    encoded = clip("h264.mp4", 3, colorspace=matrix)
    (frame,) = ffmpeg.decode(encoded, chosen(1), LIMITS).frames
    with av.open(io.BytesIO(encoded)) as file:
        source = [*file.decode(video=0)][1]
    assert source.colorspace == matrix
    right = source.to_ndarray(format="rgb24", src_colorspace=matrix).astype(int)
    wrong = source.to_ndarray(format="rgb24", src_colorspace=other).astype(int)
    np.testing.assert_array_equal(frame[:, :, :3], right)
    assert np.abs(right - wrong).max() > 5


def test_full_range_differs_from_limited_range():
    full, limited = (clip("h264.mp4", 2, pixel_format=form) for form in ("yuvj420p", "yuv420p"))
    wanted = pixels(1).astype(int)
    for encoded in (full, limited):
        (frame,) = ffmpeg.decode(encoded, chosen(1), LIMITS).frames
        assert np.abs(frame[:, :, :3].astype(int) - wanted)[20:].mean() < 4


def matrix(*numbers):
    """Return a clip whose track has the given display matrix, as two rows of integers."""
    turned = bytearray(made("h264.mp4"))
    at = turned.index(b"tkhd") + 44  # a track header of version 0: nine numbers in 16.16 and 2.30
    a, b, c, d = (number << 16 for number in numbers)
    turned[at : at + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    return bytes(turned)


@pytest.mark.parametrize(("numbers", "turns"), [((0, 1, -1, 0), -1), ((0, -1, 1, 0), 1), ((-1, 0, 0, -1), 2)])
def test_a_clip_is_rotated_as_its_container_declares(numbers, turns):
    (upright,) = ffmpeg.decode(made("h264.mp4"), chosen(7), LIMITS).frames
    (turned,) = ffmpeg.decode(matrix(*numbers), chosen(7), LIMITS).frames
    np.testing.assert_array_equal(turned, np.rot90(upright, turns))
    (stored,) = ffmpeg.decode(matrix(*numbers), chosen(7), LIMITS, apply_rotation=False).frames
    np.testing.assert_array_equal(stored, upright)


@pytest.mark.parametrize("numbers", [(-1, 0, 0, 1), (1, 0, 0, -1)])
def test_a_mirrored_clip_is_rejected(numbers):
    assert refused(matrix(*numbers), choose=chosen(0)).detail == "a clip that its container mirrors is not supported"


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_clip_is_rejected(name, share):
    encoded = made(name)
    error = refused(encoded[: int(share * len(encoded))])
    assert error.reason in ("TRUNCATED", "CORRUPT")


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"max_image_bytes": 1000}, "TOO_LARGE_BYTES"),
        ({"max_clip_s": 2}, "TOO_MANY_PIXELS"),
        ({"max_clip_frames": 60}, "TOO_MANY_PIXELS"),
        ({"max_clip_pixels": 8 * 96 * 160}, "TOO_MANY_PIXELS"),
        ({"max_side": 100}, "BAD_DIMENSIONS"),
        ({"max_decode_s": 0}, "TOO_MANY_PIXELS"),
    ],
)
def test_exceeding_a_limit_is_rejected_by_name(limit, reason):
    error = refused(made("h264.mp4"), Limits(**limit))
    assert error.reason == reason
    assert next(iter(limit)) in error.detail


def test_a_repeated_frame_counts_once():
    limits = Limits(max_clip_pixels=2 * 96 * 160)
    first, again, *_ = ffmpeg.decode(made("h264.mp4"), chosen(3, 3, 3, 9, 9), limits).frames
    assert first is again


PLAYLISTS = {
    "hls": b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
    "concat": b"ffconcat version 1.0\nfile /etc/passwd\n",
    "dash": b'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"></MPD>',
    "sdp": b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 1234 RTP/AVP 96\n",
    "path": b"/etc/passwd",
    "address": b"http://127.0.0.1:1/a.mp4",
}


@pytest.mark.parametrize("name", PLAYLISTS)
def test_playlists_that_name_other_files_are_rejected(name):
    assert refused(PLAYLISTS[name]).reason == "UNKNOWN_FORMAT"
    assert refused(b"\0\0\0\x10ftypisom" + PLAYLISTS[name]).reason in ("CORRUPT", "TRUNCATED")
    assert refused(b"\x1aE\xdf\xa3" + PLAYLISTS[name]).reason in ("CORRUPT", "TRUNCATED")


def test_a_movie_cannot_read_samples_from_other_files(tmp_path):
    whole = clip("h264.mov", 5)
    target = tmp_path / "secret.mov"
    target.write_bytes(whole)
    at = whole.index(b"dref") + 4 + 8  # version and count precede this 12-byte entry, which means "in this file"
    assert whole[at + 4 : at + 8] in (b"url ", b"alis")
    for flags in (b"\0\0\0\0", b"\0\0\0\1"):
        path = str(target).encode()
        entry = struct.pack(">I4s", 12 + len(path) + 1, b"url ") + flags + path + b"\0"
        outside = whole[:at] + entry + whole[at + 12 :]
        error = refused(outside, choose=chosen(0))
        assert error.reason in ("CORRUPT", "TRUNCATED", "UNSUPPORTED")


def test_a_file_with_only_sound_or_an_unknown_codec_is_rejected():
    memory = io.BytesIO()
    with av.open(memory, "w", format="mp4") as file:
        track = file.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 8000
        for packet in (*track.encode(frame), *track.encode()):
            file.mux(packet)
    assert refused(memory.getvalue()).reason == "UNSUPPORTED"
    memory = io.BytesIO()
    with av.open(memory, "w", format="avi") as file:
        track = file.add_stream("mjpeg", rate=5)
        track.width, track.height, track.pix_fmt = 64, 64, "yuvj420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
        for packet in (*track.encode(frame), *track.encode()):
            file.mux(packet)
    assert "H.264" in refused(memory.getvalue()).detail


@pytest.mark.parametrize("wanted", [40, 55])
def test_damage_is_an_error_and_never_a_frame_of_noise(wanted):
    """By default, FFmpeg conceals lost regions. The test excludes undetectable damage, such as one wrong pixel."""
    encoded = made("h264.mp4")
    (whole,) = ffmpeg.decode(encoded, chosen(wanted), LIMITS).frames
    rng = np.random.default_rng(1)
    begin, end = encoded.index(b"mdat") + 4, encoded.index(b"moov")
    for _ in range(40):
        bad = bytearray(encoded)
        at = int(rng.integers(begin, end - 200))
        bad[at : at + 200] = rng.integers(0, 256, 200, np.uint8).tobytes()
        try:
            (frame,) = ffmpeg.decode(bytes(bad), chosen(wanted), LIMITS).frames
        except ImageError:
            continue
        np.testing.assert_array_equal(frame, whole)  # this frame does not need the damaged data


@pytest.mark.parametrize("cut", [1, 5, 8, 31, 35, 65])
def test_a_losslessly_trimmed_clip_begins_where_its_edit_list_specifies(cut):
    trimmed = bytearray(made("h264.mp4"))
    at = trimmed.index(b"elst") + 4 + 8 + 4  # the media time follows version and flags, count and duration
    (begin,) = struct.unpack(">i", trimmed[at : at + 4])
    trimmed[at : at + 4] = struct.pack(">i", begin + 512 * cut)
    whole = every_frame(bytes(trimmed))
    assert len(whole) == COUNT - cut
    found = ffmpeg.decode(bytes(trimmed), lambda frames: [*range(len(frames.times))], LIMITS)
    assert len(found.frames) == len(whole)
    for ours, theirs in zip(found.frames, whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["h264.mp4", "h265.mp4", "h265-layers.mp4", "mpeg4.mp4"])
@pytest.mark.parametrize("second", [42, 30, 3])
def test_parts_joined_by_an_edit_list_have_their_own_frames(name, second):
    """Packets that are needed only to decode the second part have the same timestamps as frames of the first part."""
    joined = edited(made(name), (5, 9), (second, 9))
    with av.open(io.BytesIO(joined)) as file:
        packets = [(packet.pts, packet.is_discard) for packet in file.demux(video=0) if packet.size]
    assert {stamp for stamp, is_left_out in packets if is_left_out} & {stamp for stamp, left in packets if not left}
    whole = every_frame(made(name))
    numbers = [*range(5, 14), *range(second, second + 9)]
    for wanted in ([0], [8], [9], [17], [2, 12], [*range(18)]):
        found = ffmpeg.decode(joined, chosen(*wanted), LIMITS)
        for index, frame in zip(wanted, found.frames, strict=True):
            np.testing.assert_array_equal(frame, whole[numbers[index]])


def test_a_vp8_frame_that_is_never_shown_is_not_counted():
    encoded = bytearray(made("vp8.webm"))
    with av.open(io.BytesIO(bytes(encoded))) as file:
        packet = [packet for packet in file.demux(video=0) if packet.size][10]
    at = bytes(encoded).index(bytes(packet))
    encoded[at] &= ~0x10  # the flag bit (RFC 6386, 9.1)
    whole = every_frame(bytes(encoded))
    assert len(whole) == COUNT - 1
    found = ffmpeg.decode(bytes(encoded), lambda frames: [*range(len(frames.times))], LIMITS)
    assert len(found.frames) == len(whole)
    np.testing.assert_array_equal(found.frames[11], whole[11])


def test_packets_that_repeat_the_same_bytes_are_counted():
    encoded = made("mpeg4.mp4")
    offsets = bytearray(encoded)
    at = offsets.index(b"stsz") + 4 + 8
    (count,) = struct.unpack(">I", offsets[at : at + 4])
    for index in range(count):  # each sample is declared to have half the size of the file
        place = at + 4 + 4 * index
        offsets[place : place + 4] = struct.pack(">I", len(encoded) // 2)
    assert refused(bytes(offsets), Limits(max_image_bytes=len(encoded)), choose=chosen(0)).reason in (
        "TOO_LARGE_BYTES",
        "TRUNCATED",
        "CORRUPT",
    )


@pytest.mark.parametrize("table", ["stsz", "trun"])
def test_tables_that_declare_millions_of_samples_are_rejected_before_ffmpeg_reads_them(table):
    def box(kind, *parts):
        content = b"".join(parts)
        return struct.pack(">I4s", 8 + len(content), kind) + content

    millions = 60_000_000
    if table == "stsz":
        stbl = box(b"stbl", box(b"stsz", struct.pack(">III", 0, 1, millions)))
        movie = box(b"moov", box(b"trak", box(b"mdia", box(b"minf", stbl))))
    else:
        movie = box(b"moof", box(b"traf", box(b"trun", struct.pack(">II", 0, millions))))
    error = refused(box(b"ftyp", b"isom", bytes(4)) + movie)
    assert (error.reason, f"{millions:,}" in error.detail) == ("UNSUPPORTED", True)


@pytest.mark.parametrize(
    ("begin", "part"),
    [
        (b"\x1aE\xdf\xa3\x80", b"\xec\x80"),
        (b"\0\0\0\x08ftyp", b"\0\0\0\x08free"),
        (b"RIFF\x04\0\0\0AVI ", b"RIFF\0\0\0\0"),
    ],
)
def test_a_container_of_many_empty_parts_is_rejected_quickly(begin, part):
    assert refused(begin + part * 200_000).reason in ("UNSUPPORTED", "UNKNOWN_FORMAT")


def test_parsing_ends_at_a_box_smaller_than_its_header():
    damaged = b"\0\0\0\x08ftyp" + b"\0\0\0\3moov" + bytes(99)
    assert refused(damaged).reason == "CORRUPT"


def test_data_after_a_complete_clip_is_ignored():
    for name in ("h264.mp4", "h264-open.mkv", "h264.avi"):
        for behind in (b"junkjunk", bytes(1000), b"\xff" * 77, struct.pack(">I4sQ", 1, b"free", 16)):
            found = ffmpeg.decode(made(name) + behind, chosen(5), LIMITS)
            assert number(found.frames[0]) == 5
