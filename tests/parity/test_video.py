"""Tests that pixprep selects the same frames as torchcodec and decord, by index and by pixels."""

import io
import warnings
from fractions import Fraction
from importlib.util import find_spec
from random import Random

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.decoders import Limits
from pixprep.engine.decoders.clips import ffmpeg
from pixprep.importers.transformers import from_transformers
from pixprep.importers.transformers.patches import VIDEO_PATCHED
from pixprep.importers.transformers.sizes import VIDEO_SIZED
from pixprep.importers.transformers.videos import VIDEOS
from support.clips import CODECS, clip

av = pytest.importorskip("av")
COUNT, WANTED = 70, [0, 1, 19, 20, 21, 33, 34, 68, 69]


def ours(encoded):
    found = ffmpeg.decode(encoded, lambda _: WANTED, Limits(max_image_bytes=1 << 28))
    return np.stack([frame[:, :, :3] for frame in found.frames])


@pytest.fixture(scope="module", params=[name for name in CODECS if "avi" not in name])
def encoded(request):
    if find_spec("torchcodec") is None and find_spec("decord") is None:
        pytest.skip("NO TORCHCODEC, NO DECORD: pixprep's frames were not compared")
    return clip(request.param, COUNT)


def test_torchcodec(encoded):
    try:
        from torchcodec.decoders import VideoDecoder  # noqa: PLC0415
    except (ImportError, OSError, RuntimeError) as error:  # torchcodec needs FFmpeg libraries on the system
        pytest.skip(f"torchcodec: {str(error)[:200]}")
    theirs = VideoDecoder(encoded, dimension_order="NHWC", seek_mode="exact").get_frames_at(WANTED).data.numpy()
    np.testing.assert_array_equal(ours(encoded), theirs)


def test_decord(encoded):
    decord = pytest.importorskip("decord")
    if av.open(io.BytesIO(encoded)).streams.video[0].codec_context.name == "libdav1d":
        pytest.skip("decord's FFmpeg knows no AV1")
    if encoded == clip("h264-refresh.mp4", COUNT):
        pytest.skip("decord gives frame 69 for 68 where no key frame is one; torchcodec gives the right one")
    reader = decord.VideoReader(io.BytesIO(encoded))
    np.testing.assert_array_equal(ours(encoded), reader.get_batch(WANTED).asnumpy())


def test_torchvision_clips():
    """The frames equal those of UniformClipSampler and VideoClips(frame_rate=...) at constant frame rates."""
    torch = pytest.importorskip("torch")
    from torchvision.datasets.samplers import UniformClipSampler  # noqa: PLC0415
    from torchvision.datasets.video_utils import VideoClips  # noqa: PLC0415

    random, refused = Random(1), 0
    for _ in range(1500):
        count, frames, clips = (
            random.randint(2, 700),
            random.choice([2, 8, 16, 32]),
            random.choice([1, 2, 3, 5, 10, 30]),
        )
        fps, rate = random.choice([15, 10, 12.5, 24, 30, 60]), Fraction(*random.choice(FRAME_RATES))
        files = {"video_paths": [""], "video_pts": [torch.arange(count)], "video_fps": [float(rate)]}
        with warnings.catch_warnings(action="ignore"):  # warnings about files that are too short
            video = VideoClips([""], frames, 1, fps, _precomputed_metadata=files)
        sampling = pp.decode_video(frames=frames, clips=clips, sample={"fps": fps}).sampling
        times = [index / rate for index in range(count)]
        if video.num_clips():
            wanted = [index for clip in UniformClipSampler(video, clips) for index in video.clips[0][clip].tolist()]
            assert sampling.indices(times) == wanted
        else:
            refused += 1
            with pytest.raises(ValueError, match="frames at"):
                sampling.indices(times)
    assert 20 < refused < 750


FRAME_RATES = [(25,), (30,), (24,), (30000, 1001), (24000, 1001), (50,), (10,)]
SIZES = [(96, 160), (240, 320), (300, 226), (720, 1280)]


def result_of(processor, frames, **options):
    """Return the outputs of a video processor for one clip, as a list of arrays without the batch dimension."""
    found = dict(processor(np.stack(frames), return_tensors="np", **options))
    if "video_grid_thw" in found:
        return [np.asarray(found["pixel_values_videos"]), np.asarray(found["video_grid_thw"])[0]]
    (name,) = found.keys() & {"pixel_values", "pixel_values_videos"}
    return [np.asarray(found[name][0])]


def assert_equal(outputs, wanted):
    for ours_, theirs in zip(outputs, wanted, strict=False):
        np.testing.assert_array_equal(ours_, theirs)


@pytest.mark.parametrize("kind", VIDEOS)
@pytest.mark.parametrize("size", SIZES)
def test_the_import_of_a_video_processor_equals_it(kind, size):
    transformers = pytest.importorskip("transformers")
    encoded = clip("h264.mp4", 20, height=size[0], width=size[1])
    pipeline = from_transformers({"video_processor_type": kind, "do_sample_frames": False}, frames=4)
    with pp.Engine(pipeline, threads=1) as engine:
        outputs = engine.run([encoded])
    frames = [frame[:, :, :3] for frame in ffmpeg.decode(encoded, lambda _: [0, 6, 12, 19], Limits()).frames]
    processor = getattr(transformers, kind)(do_sample_frames=False)
    wanted = result_of(processor, frames)
    assert_equal(outputs, wanted)
    assert not np.array_equal(result_of(processor, frames[::-1])[0], wanted[0])


SMALL = {"shortest_edge": 4000, "longest_edge": 200_000}
SAMPLES = {
    "LlavaOnevisionVideoProcessor": {"num_frames": 6},
    "LlavaNextVideoVideoProcessor": {"num_frames": 7, "crop_size": {"height": 160, "width": 200}},
    "PerceptionLMVideoProcessor": {"num_frames": 16, "size": {"height": 224, "width": 224}},
    "VJEPA2VideoProcessor": {"num_frames": 3, "crop_size": {"height": 160, "width": 160}},
    "InternVLVideoProcessor": {"num_frames": 8},
    "InternVLVideoProcessor, from the first": {"num_frames": 8, "initial_shift": False},
    "InternVLVideoProcessor, by time": {"fps": 5},
    "LlavaOnevisionVideoProcessor, by time": {"fps": 4, "size": {"height": 96, "width": 96}},
    "Qwen2VLVideoProcessor": {"num_frames": 7, "size": SMALL},
    "Qwen2VLVideoProcessor, by time": {"fps": 6, "size": SMALL, "max_frames": 10},
    "Qwen3VLVideoProcessor": {"num_frames": 9, "fps": None, "size": SMALL},
    "Qwen3VLVideoProcessor, by time": {"fps": 3, "size": SMALL, "min_frames": 5, "max_frames": 7},
    "Qwen3VLVideoProcessor, small frames": {"fps": 2, "size": {"shortest_edge": 9000, "longest_edge": 16000}},
    "SmolVLMVideoProcessor": {"fps": 5, "num_frames": 8, "size": {"longest_edge": 200}},
    "SmolVLMVideoProcessor, short": {"fps": 0.1, "num_frames": 3, "max_image_size": {"longest_edge": 98}},
}


@pytest.mark.parametrize("case", SAMPLES)
@pytest.mark.parametrize("count", [16, 20, 37, 61])
def test_the_frames_are_selected_as_by_the_class(case, count):
    transformers = pytest.importorskip("transformers")
    kind, fields = case.split(",")[0], {**SAMPLES[case], "do_sample_frames": True}
    encoded = clip("h264.mp4", count, height=120, width=160)
    limit = 64 if "fps" in fields and kind not in VIDEO_PATCHED | VIDEO_SIZED else None
    with pp.Engine(from_transformers({"video_processor_type": kind, **fields}, frames=limit), threads=1) as engine:
        outputs = [np.asarray(output) for output in engine.run([encoded])]
    frames = ffmpeg.decode(encoded, lambda _: range(count), Limits(max_image_bytes=1 << 28)).frames
    processor = getattr(transformers, kind)(**fields)
    metadata = {"total_num_frames": count, "fps": 30.0, "duration": count / 30.0}
    wanted = result_of(processor, [frame[:, :, :3] for frame in frames], video_metadata=metadata)
    assert_equal(outputs, wanted)
    if len(outputs) > len(wanted):
        assert outputs[1].tolist() == [len(wanted[0])]


def test_seconds_per_patch_equal_those_of_the_whole_processor():
    transformers = pytest.importorskip("transformers")
    for count, fps in ((61, 2), (37, 6), (40, 1.3)):
        metadata = transformers.video_utils.VideoMetadata(total_num_frames=count, fps=30.0)
        processor = transformers.Qwen2VLVideoProcessor()
        metadata.frames_indices = processor.sample_frames(metadata, fps=fps).tolist()
        ops = from_transformers(
            {"video_processor_type": "Qwen2VLVideoProcessor", "size": SMALL}, fps=fps, frames=64
        ).ops
        pipeline = pp.Pipeline([*ops, pp.seconds_per_patch(2)])
        with pp.Engine(pipeline, threads=1) as engine:
            found = engine.run_batch([clip("h264.mp4", count)]).outputs["seconds_per_patch"]
        expected = processor.temporal_patch_size / metadata.sampled_fps  # as in Qwen2_5_VLProcessor
        assert found[0, 0] == np.float32(expected)


RATES = [0.1, 0.4, 1, 2, 2.5, 7, 30]


@pytest.mark.parametrize("kind", ["LlavaOnevision", "InternVL", "Qwen2VL", "Qwen3VL", "SmolVLM"])
def test_the_same_indices_are_selected_for_all_lengths_and_rates(kind):
    transformers = pytest.importorskip("transformers")
    metadata, name, compared = transformers.video_utils.VideoMetadata, f"{kind}VideoProcessor", 0
    processor = getattr(transformers, name)()
    config = {"video_processor_type": name, "do_sample_frames": True, "max_frames": 96, "size": None}
    config = {key: value for key, value in config.items() if key != "max_frames" or "Qwen" in kind}
    for fps in RATES:
        most = 96 if "Qwen" in kind else 64 if kind == "SmolVLM" else 4096
        size = {"size": {"height": 16, "width": 16}} if most == 4096 else {"size": VIDEOS[name]["size"]}
        if "Qwen" in kind:
            size = {"size": SMALL}
        sampling = from_transformers({**config, **size}, frames=most, fps=fps).ops[0].sampling
        for count in [*range(1, 130), 480, 719, 720, 1801, 4000]:
            for rate in (8.0, 15.0, 23.976, 25.0, 29.97, 30.0, 59.94):
                given = metadata(total_num_frames=count, fps=rate, duration=count / rate)
                limits = {"max_frames": 96} if kind == "Qwen2VL" else {"num_frames": 64} if kind == "SmolVLM" else {}
                processor.max_frames = 96
                try:
                    wanted = np.asarray(processor.sample_frames(given, fps=fps, **limits)).tolist()
                except (ValueError, ZeroDivisionError):  # the class selects no frame, or more than the clip has
                    continue
                if len(wanted) > most or wanted[-1] >= count:
                    continue  # because of a rounding error in InternVL's class, see docs/video.md
                compared += 1
                assert sampling.indices([Fraction(index, 25) for index in range(count)], (), rate) == wanted, (
                    fps,
                    count,
                    rate,
                )
    assert compared > 3000


@pytest.mark.parametrize("kind", VIDEOS)
def test_the_defaults_equal_the_class(kind):
    transformers = pytest.importorskip("transformers")
    processor = getattr(transformers, kind)()
    for field, value in VIDEOS[kind].items():
        theirs = getattr(processor, field, None)
        theirs = {key: side for key, side in dict(theirs).items() if side} if hasattr(theirs, "keys") else theirs
        assert theirs == (pytest.approx(value) if isinstance(value, float) else value), field


def test_unsupported_video_processors_are_rejected():
    for config, options, message in (
        ({"video_processor_type": "VideoMAEVideoProcessor"}, {}, "frames=16"),
        (
            {"video_processor_type": "VideoMAEVideoProcessor"},
            {"frames": 8, "backend": "pil"},
            'does not have the backend "pil"',
        ),
        (
            {"video_processor_type": "VideoMAEVideoProcessor", "do_sample_frames": True, "fps": 2},
            {},
            "does not limit the number of frames that fps selects",
        ),
        ({"video_processor_type": "Glm4vVideoProcessor"}, {"frames": 8}, "is not supported"),
        (
            {"video_processor_type": "Qwen3VLVideoProcessor", "cap_pixels_per_frame": True},
            {},
            '"cap_pixels_per_frame": True is not supported for this class unless it is false',
        ),
        ({"video_processor_type": "Qwen3VLVideoProcessor", "num_frames": 8}, {}, "contradicts num_frames"),
        ({"image_processor_type": "ViTImageProcessor"}, {"frames": 8}, "applies only to video processors"),
    ):
        with pytest.raises(pp.PipelineError, match=message):
            from_transformers(config, **options)
    old = {"feature_extractor_type": "VideoMAEFeatureExtractor", "image_mean": [0.485, 0.456, 0.406]}
    assert from_transformers(old, frames=16).ops[0].frames == 16
