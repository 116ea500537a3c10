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
from pixprep.importers.transformers.classes import VIDEO_DEFAULTS
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
    """The frames of UniformClipSampler and VideoClips(frame_rate=...), for files with constant frame rates."""
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
        fps, rate = random.choice([15, 10, 12.5, 24, 30, 60]), Fraction(*random.choice(RATES))
        files = {"video_paths": [""], "video_pts": [torch.arange(count)], "video_fps": [float(rate)]}
        with warnings.catch_warnings(action="ignore"):  # about files that are too short
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


RATES = [(25,), (30,), (24,), (30000, 1001), (24000, 1001), (50,), (10,)]
SIZES = [(96, 160), (240, 320), (300, 226), (720, 1280)]


def result_of(processor, frames, **options):
    """Return the frames that a video processor of transformers returns."""
    found = processor(np.stack(frames), return_tensors="np", **options)
    (name,) = found.keys() & {"pixel_values", "pixel_values_videos"}
    return np.asarray(found[name][0])


@pytest.mark.parametrize("kind", VIDEO_DEFAULTS)
@pytest.mark.parametrize("size", SIZES)
def test_the_import_of_a_video_processor_equals_it(kind, size):
    transformers = pytest.importorskip("transformers")
    encoded = clip("h264.mp4", 20, height=size[0], width=size[1])
    pipeline = from_transformers({"video_processor_type": kind}, frames=4)
    (tensor,) = pp.Engine(pipeline).run([encoded])
    frames = [frame[:, :, :3] for frame in ffmpeg.decode(encoded, lambda _: [0, 6, 12, 19], Limits()).frames]
    processor = getattr(transformers, kind)()
    wanted = result_of(processor, frames)
    np.testing.assert_array_equal(tensor, wanted)
    assert not np.array_equal(result_of(processor, frames[::-1]), wanted)


SAMPLES = {
    "LlavaOnevisionVideoProcessor": {"num_frames": 6},
    "LlavaNextVideoVideoProcessor": {"num_frames": 7, "crop_size": {"height": 160, "width": 200}},
    "PerceptionLMVideoProcessor": {"num_frames": 16, "size": {"height": 224, "width": 224}},
    "VJEPA2VideoProcessor": {"num_frames": 3, "crop_size": {"height": 160, "width": 160}},
    "InternVLVideoProcessor": {"num_frames": 8},
    "InternVLVideoProcessor, from the first": {"num_frames": 8, "initial_shift": False},
}


@pytest.mark.parametrize("case", SAMPLES)
@pytest.mark.parametrize("count", [16, 20, 37, 61])
def test_the_frames_are_selected_as_by_the_class(case, count):
    transformers = pytest.importorskip("transformers")
    kind, fields = case.split(",")[0], {**SAMPLES[case], "do_sample_frames": True}
    encoded = clip("h264.mp4", count, height=120, width=160)
    (tensor,) = pp.Engine(from_transformers({"video_processor_type": kind, **fields})).run([encoded])
    frames = ffmpeg.decode(encoded, lambda _: range(count), Limits(max_image_bytes=1 << 28)).frames
    processor = getattr(transformers, kind)(**fields)
    metadata = {"total_num_frames": count, "fps": 25.0}
    wanted = result_of(processor, [frame[:, :, :3] for frame in frames], video_metadata=metadata)
    np.testing.assert_array_equal(tensor, wanted)


@pytest.mark.parametrize("kind", VIDEO_DEFAULTS)
def test_the_defaults_equal_the_class(kind):
    transformers = pytest.importorskip("transformers")
    processor = getattr(transformers, kind)()
    for field, value in VIDEO_DEFAULTS[kind].items():
        theirs = getattr(processor, field)
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
            {"frames": 8},
            "depends on the clip, which is not supported: set num_frames instead",
        ),
        ({"video_processor_type": "Qwen2VLVideoProcessor"}, {"frames": 8}, "is not supported"),
        ({"image_processor_type": "ViTImageProcessor"}, {"frames": 8}, "applies only to video processors"),
    ):
        with pytest.raises(pp.PipelineError, match=message):
            from_transformers(config, **options)
    old = {"feature_extractor_type": "VideoMAEFeatureExtractor", "image_mean": [0.485, 0.456, 0.406]}
    assert from_transformers(old, frames=16).ops[0].frames == 16
