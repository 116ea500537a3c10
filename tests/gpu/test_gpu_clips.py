"""Tests the code for clips on a GPU, on a machine without a GPU: PyNvVideoCodec is mocked with PyAV, CuPy is mocked,
and the real kernels run in a shim.
"""

import io
import logging
import struct
import sys
from functools import cache

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.decoders.clips import ffmpeg as video
from pixprep.engine.decoders.clips.sequences import SEQUENCES
from support.clips import CODECS, clip, edited, pixels

av = pytest.importorskip("av")
AFTER = [pp.resize(height=30, width=40), pp.tensor(layout="tchw", dtype="uint8")]
PIPELINE = pp.Pipeline([pp.decode_video(frames=5), *AFTER])
ON_NVDEC = [name for name in CODECS if name.partition(".")[2] != "avi" and not name.startswith(("vp8", "mpeg4"))]
made = cache(clip)


@pytest.fixture
def mock_nvdec(monkeypatch, gpu):  # noqa: ARG001  (this fixture mocks CuPy and nvImageCodec)
    """Return the decoder class of the mocked PyNvVideoCodec."""
    from gpu import fake_nvdec  # noqa: PLC0415  (needs nvImageCodec)

    module = fake_nvdec.played()
    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", module)
    return module.PyNvDecoder


def results(encoded, pipeline=PIPELINE, **options):
    """Assert that errors and tensors are equal on both devices.

    Return the errors, and how many clips the CPU decoded for the GPU.
    """
    batches = []
    for device in ("cpu", "gpu"):
        with pp.Engine(pipeline, device=device, **options) as engine:
            batch = engine.run_batch(encoded)
            batches.append(({name: np.array(each) for name, each in batch.outputs.items()}, batch))
    (ours, batch), (theirs, on_gpu) = batches
    for name, each in ours.items():
        assert len(each) == len(encoded)
        np.testing.assert_array_equal(each, theirs[name])
    errors = [each and (each.reason, each.detail) for each in batch.errors]
    assert errors == [each and (each.reason, each.detail) for each in on_gpu.errors]
    return errors, on_gpu.fallbacks


def test_clips_decoded_by_nvdec_have_the_tensors_of_the_cpu(mock_nvdec):
    encoded = [made(name) for name in ON_NVDEC]
    assert len(encoded) == 11
    assert results(encoded) == ([None] * 11, 0)
    assert mock_nvdec.made == 4 + len(encoded)  # a sample of each codec, and a decoder for each clip
    assert mock_nvdec.outside == 0


@pytest.mark.parametrize("name", ["h264.mp4", "h264-refresh.mp4", "h265.mkv", "vp9.webm"])
def test_the_requested_frames_of_a_clip_are_decoded(mock_nvdec, name):
    pipeline = pp.Pipeline([pp.decode_video(frames=70), pp.resize(height=96, width=160), pp.tensor(layout="tchw")])
    assert results([made(name)], pipeline) == ([None], 0)
    by_host = pp.clahe(only="serving")
    for layout, *ops in (("cthw", by_host), ("thwc",), ("hwct",), ("chtw", by_host), ("hwct", by_host), ("1wtch",)):
        ops += [pp.tensor(layout=layout, dtype="uint8")]
        step = pp.Pipeline([pp.decode_video(frames=4, sample={"step": 19}), AFTER[0], *ops])
        assert results([made(name)], step) == ([None], 0)
    assert mock_nvdec.made > 4


SIZES = {"merge_size": 2, "temporal_patch_size": 2}
BUDGET = pp.resize_to_pixels(multiple=16, max_pixels=30_000, frames="clip", temporal_patch_size=2, like="torchvision")
LANCZOS = {"filter": "lanczos", "like": "torchvision"}
SMOLVLM = [pp.resize_by_rule(rule="idefics3", size=70, **LANCZOS)]
SMOLVLM += [pp.resize_by_rule(rule="square", size=32, again=True, **LANCZOS)]
BY_TIME = pp.decode_video(frames=9, rate=3, sample="rounded")
PATCHED = {
    "Qwen3-VL": [BY_TIME, BUDGET, pp.normalize(), pp.patches(8, **SIZES), pp.patch_grid(8, order="thw", **SIZES)],
    "three frames per patch": [
        pp.decode_video(frames=5), AFTER[0], pp.solarize(99), pp.patches(10, layout="tchw", temporal_patch_size=3)
    ],
    "interleaved": [pp.decode_video(frames=4), AFTER[0], pp.patches(10, layout="hwc", temporal_patch_size=2)],
    "two resizes": [BY_TIME, *SMOLVLM, pp.normalize(), pp.tiles(32), pp.tile_count(32)],
    "on the host": [
        pp.decode_video(frames=3), AFTER[0], pp.median_blur(3),
        pp.patches(10, temporal_patch_size=2),
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", PATCHED)
def test_patches_of_clips_equal_the_cpu(mock_nvdec, case):
    pipeline = pp.Pipeline(PATCHED[case])
    encoded = [made("h264.mp4"), b"no clip", clip("vp9.webm", 21)]
    with pp.Engine(pipeline, device="gpu") as engine, pp.Engine(pipeline) as cpu:
        ours, theirs = engine.run_batch(encoded), cpu.run_batch(encoded)
    assert [error and error.reason for error in ours.errors] == [None, "UNKNOWN_FORMAT", None]
    for name, values in theirs.outputs.items():
        for row in (0, 2):
            assert values[row].any()
            np.testing.assert_array_equal(np.asarray(ours.outputs[name][row]), values[row])
    assert (mock_nvdec.made > 4) == (case != "on the host")


@pytest.mark.parametrize("name", ["h264-open.mkv", "h265.mp4", "vp9.webm", "av1.webm"])
def test_a_clip_cut_between_key_frames_begins_at_the_same_frame_as_on_the_cpu(mock_nvdec, name):
    encoded = clip(name, cut=5)
    count = []
    video.decode(encoded, lambda frames: count.append(len(frames.times)) or [0], pp.Limits())
    assert 30 < count[0] < 60
    middle = pp.decode_video(frames=3, sample={"step": 2}, start="middle")
    for decode in (pp.decode_video(frames=count[0]), middle):
        errors, fallbacks = results([encoded], pp.Pipeline([decode, *AFTER]))
        assert errors == [None]
        assert fallbacks == (name == "h264-open.mkv")  # the key frames of this clip are not IDR pictures
    assert mock_nvdec.made > 4


def test_packets_outside_the_needed_range_are_not_decoded(mock_nvdec):
    encoded = made("h264.mp4")  # this clip has a key frame every 30 frames
    pipeline = pp.Pipeline([pp.decode_video(frames=2, sample={"step": 1}, start="middle"), *AFTER])
    with pp.Engine(pipeline, device="gpu") as engine:
        before = mock_nvdec.packets
        engine.run_batch([encoded])
        assert mock_nvdec.packets - before < 12


def test_pictures_displayed_before_the_first_are_not_decoded(mock_nvdec):
    """In H.265, pictures after a CRA picture may reference pictures before it, which NVDEC does not have."""
    encoded, wanted = made("h265.mp4"), 30
    with av.open(io.BytesIO(encoded)) as file:
        packets = [(packet.pts, packet.is_keyframe) for packet in file.demux(video=0) if packet.size]
    shown = sorted(packets)[wanted][0]
    begin = max(at for at, (stamp, is_key) in enumerate(packets) if is_key and stamp <= shown)
    needed = packets[begin : packets.index((shown, False)) + 1]
    later = [stamp for stamp, _ in needed if stamp >= packets[begin][0]]
    assert begin > 0
    assert len(later) < len(needed)
    pipeline = pp.Pipeline([pp.decode_video(frames=1, sample={"step": 1}, start="middle"), *AFTER])
    with pp.Engine(pipeline, device="gpu") as engine:
        before = mock_nvdec.packets
        half = clip("h265.mp4", 2 * wanted + 1)
        assert engine.run_batch([half]).errors == [None]
        assert mock_nvdec.packets - before == len(later) + 1  # plus the packet that ends the stream


@pytest.mark.parametrize("turn", ["clockwise", "anticlockwise", "upside down"])
def test_a_rotated_clip_is_rotated_by_the_kernel(mock_nvdec, turn):
    a, b = {"clockwise": (0, 1), "anticlockwise": (0, -1), "upside down": (-1, 0)}[turn]
    turned = bytearray(made("h264.mp4"))
    at = turned.index(b"tkhd") + 44
    turned[at : at + 36] = struct.pack(">9i", a << 16, b << 16, 0, -b << 16, a << 16, 0, 0, 0, 1 << 30)
    assert results([bytes(turned)]) == ([None], 0)
    assert mock_nvdec.made == 4 + 1


@pytest.mark.parametrize("matrix", [1, 4, 5, 7, 9])
@pytest.mark.parametrize("form", ["yuv420p", "yuvj420p"])
def test_colours_use_the_matrix_and_the_range_of_the_stream(mock_nvdec, matrix, form):
    encoded = clip("h264.mp4", 5, colorspace=matrix, pixel_format=form)
    assert results([encoded]) == ([None], 0)
    assert mock_nvdec.made == 4 + 1


def test_timestamps_and_edit_lists_are_handled_as_on_the_cpu(mock_nvdec):
    stamps = [0, 10, 20, 400, 410, 420, 1000, 1500, 1501, 3000]
    irregular = clip("h264.mp4", len(stamps), stamps=stamps)
    trimmed = bytearray(made("h264.mp4"))
    at = trimmed.index(b"elst") + 4 + 8 + 4
    (begin,) = struct.unpack(">i", trimmed[at : at + 4])
    trimmed[at : at + 4] = struct.pack(">i", begin + 512 * 35)
    assert results([irregular, bytes(trimmed)]) == ([None, None], 0)
    rate = pp.Pipeline([pp.decode_video(frames=7, sample={"fps": 2}), *AFTER])
    assert results([irregular], rate) == ([None], 0)
    assert mock_nvdec.made == 4 + 2 + 4 + 1


@pytest.mark.parametrize("name", ["h264.mp4", "h265.mp4"])
def test_parts_joined_by_an_edit_list_have_their_own_frames(mock_nvdec, name):
    joined = edited(made(name), (5, 9), (42, 9))
    every = pp.Pipeline([pp.decode_video(frames=18), *AFTER])
    assert results([joined], every) == ([None], 0)
    assert mock_nvdec.made == 4 + 1


def grain():
    return clip(("libsvtav1", "mp4", {"preset": "12", "svtav1-params": "lp=1:film-grain=20"}), 10)


def interlaced():
    return clip(("libx264", "mp4", {"x264-params": "interlaced=1"}), 10)


def fields():
    """Return an H.265 clip whose pictures declare that they are fields, although the header does not."""
    whole = clip(("libx265", "mp4", {"x265-params": "log-level=none:interlace=tff"}), 10)
    with av.open(io.BytesIO(whole)) as file:
        extra = file.streams.video[0].codec_context.extradata
    says = SEQUENCES["hevc"]
    at = extra.index(b"\x42\x01")
    header = extra[at : at + int.from_bytes(extra[at - 2 : at], "big")]
    changed = [header[:i] + bytes([header[i] ^ 0x40]) + header[i + 1 :] for i in range(8, 11)]
    (plain,) = (each for each in changed if says.is_plain(each))
    assert not says.is_plain(header)
    return whole.replace(header, plain)


@cache
def of_bt709():
    return clip("h264.mp4", 60, colorspace=1)


def two_matrices():
    """Return a clip whose second half declares a different matrix in its in-band parameter sets."""
    one, other = of_bt709(), clip("h264.mp4", 60, colorspace=5)
    with av.open(io.BytesIO(other)) as file:
        extra = file.streams.video[0].codec_context.extradata
    at = 6  # offset in an avcC: one sequence parameter set, then a count and one picture parameter set
    parameters = b""
    for _ in range(2):
        length = int.from_bytes(extra[at : at + 2], "big")
        parameters += length.to_bytes(4, "big") + extra[at + 2 : at + 2 + length]
        at += 2 + length + 1
    memory = io.BytesIO()
    with av.open(io.BytesIO(one)) as file, av.open(memory, "w", format="mp4") as changed:
        track = changed.add_stream_from_template(file.streams.video[0])
        for index, packet in enumerate(each for each in file.demux(video=0) if each.size):
            ours = av.Packet(parameters + bytes(packet)) if index and packet.is_keyframe else packet
            ours.pts, ours.dts, ours.time_base, ours.stream = packet.pts, packet.dts, packet.time_base, track
            ours.is_keyframe = packet.is_keyframe
            changed.mux(ours)
    return memory.getvalue()


def nested(count=8):
    """Return ``count`` key frames, each of which has a frame that is displayed after it.

    All frames between the key frames seem to be needed.
    """
    memory, packets = io.BytesIO(), []
    with av.open(memory, "w", format="mp4") as file:
        options = {"g": "500", "forced-idr": "1", "tune": "zerolatency"}
        track = file.add_stream("libx264", rate=30, options=options)
        track.width, track.height, track.pix_fmt = 160, 96, "yuv420p"
        for index in range(2 * count):
            frame = av.VideoFrame.from_ndarray(pixels(index), format="rgb24")
            frame.pict_type = int(index < count)  # an intra frame, or the type that the encoder chooses
            packets += track.encode(frame)
        for index, packet in enumerate([*packets, *track.encode()]):
            packet.dts, packet.pts = index, 2 * (index % count) + index // count + 2 * count
            file.mux(packet)
    return memory.getvalue()


GRAY = pp.Pipeline([pp.decode_video(frames=5, color="gray"), *AFTER])
REFUSED = {
    "MPEG-4": (lambda: made("mpeg4.mp4"), PIPELINE),
    "VP8": (lambda: made("vp8.webm"), PIPELINE),
    "packets without times": (lambda: made("h264-b.avi"), PIPELINE),
    "gray": (lambda: made("h264.mp4"), GRAY),
    "odd sides": (lambda: clip("vp9.webm", 8, height=97, width=161), PIPELINE),
    "ten bits": (lambda: clip("h265.mp4", 8, pixel_format="yuv420p10le"), PIPELINE),
    "more chroma": (lambda: clip("h264.mp4", 8, pixel_format="yuv444p"), PIPELINE),
    "interlaced": (interlaced, PIPELINE),
    "fields": (fields, PIPELINE),
    "a film's grain": (grain, PIPELINE),
    "two matrices": (two_matrices, PIPELINE),
    "groups inside each other": (nested, pp.Pipeline([pp.decode_video(frames=16), *AFTER])),
}


@pytest.mark.parametrize("why", REFUSED)
def test_clips_that_nvdec_might_decode_differently_use_the_cpu_and_are_counted(mock_nvdec, why):
    make, pipeline = REFUSED[why]
    assert results([make(), made("h265.mp4")], pipeline) == ([None, None], 2 if why == "gray" else 1)
    assert mock_nvdec.made == 4 + (why != "gray")


@pytest.mark.parametrize("how", ["a fault", "frames that never come"])
def test_if_nvdec_fails_the_cpu_decodes_with_one_warning(mock_nvdec, caplog, how):
    with pp.Engine(PIPELINE, device="gpu") as engine:
        if how == "a fault":
            mock_nvdec.fault = "HandlePictureDecode :\nError code : 700\nat NvDecoder.cpp:885"
        else:
            mock_nvdec.lost = range(3, 60)
        with caplog.at_level(logging.WARNING):
            batches = [engine.run_batch([made("h264.mp4"), made("vp9.webm")]) for _ in range(2)]
    with pp.Engine(PIPELINE) as engine:
        expected = engine.run_batch([made("h264.mp4"), made("vp9.webm")])
    for batch in batches:
        assert batch.fallbacks == 2
        np.testing.assert_array_equal(batch["tensor"], expected["tensor"])
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (how == "a fault")
    assert all("Error code : 700 at NvDecoder.cpp:885" in each for each in said)


def test_a_codec_whose_sample_has_wrong_pixels_is_not_decoded_by_nvdec(mock_nvdec, caplog):
    mock_nvdec.change = lambda memory: memory ^ (np.arange(memory.size).reshape(memory.shape) == 777)
    assert results([made("h264.mp4")]) == ([None], 1)
    assert mock_nvdec.made == 4
    assert caplog.text.count("differ from FFmpeg's") == 4


@pytest.mark.parametrize("error", [ValueError("no"), MemoryError("no"), RuntimeError("no")])
def test_an_error_in_a_sample_does_not_keep_an_engine_from_starting(mock_nvdec, caplog, error):
    def fail(_):
        raise error

    mock_nvdec.change = fail
    assert results([made("h264.mp4")]) == ([None], 1)
    assert caplog.text.count("because NVDEC cannot be used") == 4


def test_a_codec_that_a_gpu_does_not_support_is_decoded_on_the_cpu(mock_nvdec, caplog):
    mock_nvdec.codecs = {codec for codec in mock_nvdec.codecs if codec.name != "AV1"}
    assert results([made("av1.mp4"), made("h264.mp4")]) == ([None, None], 1)
    assert mock_nvdec.made == 4 + 1
    assert (
        "the CPU decodes av1 clips, because NVDEC cannot be used: HandleVideoSequence : Error code : 801" in caplog.text
    )


@pytest.mark.parametrize("options", [{"damage": "strict"}, {"decoder": "cpu"}])
def test_the_decoder_option_cpu_is_respected(mock_nvdec, options):
    assert results([made("h264.mp4")], **options) == ([None], 0)
    assert mock_nvdec.made == 0


@pytest.mark.parametrize("name", ["PyNvVideoCodec", "a driver"])
def test_without_pynvvideocodec_the_cpu_decodes_and_the_frames_are_uploaded(mock_nvdec, monkeypatch, caplog, name):
    if name == "PyNvVideoCodec":
        monkeypatch.setitem(sys.modules, name, None)
    else:  # like its __init__, at length
        monkeypatch.setitem(sys.modules, "PyNvVideoCodec", None)
        monkeypatch.setattr(sys, "meta_path", [NoDriver(), *sys.meta_path])
        monkeypatch.delitem(sys.modules, "PyNvVideoCodec")
    with caplog.at_level(logging.INFO):
        assert results([made("h264.mp4"), made("mpeg4.avi")]) == ([None, None], 0)
    assert mock_nvdec.made == 0
    assert ("PyNvVideoCodec>=2.2" if name == "PyNvVideoCodec" else "libnvidia-encode.so.1: cannot open") in caplog.text


class NoDriver:
    """Finds a PyNvVideoCodec that fails to load."""

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002
        if name == "PyNvVideoCodec":
            raise RuntimeError("libnvidia-encode.so.1: cannot open shared object file\n\n=== TROUBLESHOOTING STEPS ===")


def bad_clips():
    whole = made("h264.mp4")
    playlist = b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"
    return [
        *(made(name)[: len(made(name)) // 2] for name in ("h264.mp4", "h265.mkv", "vp9.webm", "av1.mp4")),
        *(b"", b"junk", playlist, b"\0\0\0\x10ftypisom" + playlist, whole[:300] + bytes(len(whole) - 300)),
    ]


def test_invalid_clips_have_the_same_reasons_as_on_the_cpu(mock_nvdec):
    errors, fallbacks = results([*bad_clips(), made("h264.mp4")])
    assert [bool(each) for each in errors] == [True] * 9 + [False]
    assert (fallbacks, mock_nvdec.made) == (0, 4 + 1)


@pytest.mark.parametrize(
    "limit", [{"max_clip_s": 2}, {"max_clip_frames": 60}, {"max_clip_pixels": 4 * 96 * 160}, {"max_side": 100}]
)
def test_limits_are_checked_before_nvdec_receives_a_clip(mock_nvdec, limit):
    ((error,), fallbacks) = results([made("h264.mp4")], limits=pp.Limits(**limit))
    assert next(iter(limit)) in error[1]
    assert (fallbacks, mock_nvdec.made) == (0, 4)


def test_damage_inside_a_packet_is_found_only_by_strict(mock_nvdec):
    """The mock follows NVDEC's documentation: it conceals damage for which PyAV raises an error."""
    whole = made("h264.mp4")
    rng = np.random.default_rng(1)
    begin, end = whole.index(b"mdat") + 4, whole.index(b"moov")
    hidden = 0
    for _ in range(12):
        bad = bytearray(whole)
        at = int(rng.integers(begin + 2000, end - 200))
        bad[at : at + 60] = rng.integers(0, 256, 60, np.uint8).tobytes()
        with pp.Engine(PIPELINE, device="gpu") as engine, pp.Engine(PIPELINE, device="gpu", damage="strict") as strict:
            (lax,), (error,) = engine.run_batch([bytes(bad)]).errors, strict.run_batch([bytes(bad)]).errors
        assert error is not None or lax is None
        hidden += error is not None and lax is None
    assert hidden
    assert mock_nvdec.made


def test_overwritten_frames_are_never_returned(mock_nvdec):
    """The next call reuses a frame's memory, which would change the numbers in the frames."""
    pipeline = pp.Pipeline(
        [pp.decode_video(frames=5), pp.resize(height=96, width=160), pp.tensor(layout="thwc", dtype="uint8")]
    )
    with pp.Engine(pipeline, device="gpu") as engine:
        (tensor,) = np.array(engine.run_batch([made("h264.mp4")])["tensor"])
    for index, frame in zip((0, 17, 34, 51, 69), tensor, strict=True):
        assert np.abs(frame.astype(int) - pixels(index)).mean() < 6
    assert mock_nvdec.made == 5
