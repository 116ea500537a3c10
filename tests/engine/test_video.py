"""Tests that a pipeline processes clips: all frames have the same geometry, each clip has one random sample, and every
tensor layout works.
"""

import io
from concurrent.futures import ThreadPoolExecutor, wait
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.engine.decoders.clips.decoder import ClipDecoder
from pixprep.errors import ImageError, PipelineError
from pixprep.plan.clip_frames import Sampling
from pixprep.show.words import op_words
from support.clips import clip, number, pixels

av = pytest.importorskip("av")
made = cache(clip)
COUNT = 70
END = [pp.resize(64), pp.center_crop(56), pp.normalize(mean=0.4, std=0.2)]


def frames_of(encoded, indices):
    with av.open(io.BytesIO(encoded)) as file:
        every = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    return [every[index] for index in indices]


def png(frame):
    memory = io.BytesIO()
    Image.fromarray(frame).save(memory, "PNG")
    return memory.getvalue()


def frame_by_frame(frames, ops, **tensor):
    """Run each frame as a separate image through the same ops."""
    engine = pp.Engine(pp.Pipeline([pp.decode(), *ops, pp.tensor(**tensor)]))
    return np.stack(engine.run([png(frame) for frame in frames]))


def divided(frames, patch, merge, per_patch, order):
    """Divide frames (t, 3, height, width) into patches in the order of Qwen2-VL, with NumPy."""
    frames = np.concatenate([frames, *[frames[-1:]] * (-len(frames) % per_patch)])
    times, rows, columns = len(frames) // per_patch, frames.shape[2] // patch, frames.shape[3] // patch
    split = frames.reshape(times, per_patch, 3, rows // merge, merge, patch, columns // merge, merge, patch)
    axes = {"chw": (2, 1, 5, 8), "tchw": (1, 2, 5, 8), "hwc": (1, 5, 8, 2)}[order]
    return split.transpose(0, 3, 6, 4, 7, *axes).reshape(times * rows * columns, -1), [times, rows, columns]


@pytest.mark.parametrize("order", ["chw", "tchw", "hwc"])
@pytest.mark.parametrize(("count", "per_patch"), [(1, 1), (5, 1), (4, 2), (5, 2), (5, 3), (2, 4)])
@pytest.mark.parametrize("ops", [[], [pp.solarize(99)]], ids=["direct", "with a step on pixel values"])
def test_patches_of_a_clip_contain_its_frames_in_order(ops, count, per_patch, order):
    geometry = [pp.resize(height=32, width=64), *ops, pp.normalize(mean=0.4, std=0.2)]
    sizes = {"merge_size": 2, "temporal_patch_size": per_patch}
    outputs = [pp.patches(8, layout=order, **sizes), pp.patch_grid(8, order="thw", **sizes), pp.token_count(8, **sizes)]
    clips = [made("h264.mp4"), b"no clip", made("vp9.webm")]
    with pp.Engine(pp.Pipeline([pp.decode_video(frames=count), *geometry, *outputs]), threads=2) as engine:
        batch = engine.run_batch(clips)
        assert batch.errors[1].reason == "UNKNOWN_FORMAT"
        for row in (0, 2):
            frames = frame_by_frame(frames_of(clips[row], batch.placed[row].frames), geometry)
            wanted, grid = divided(frames, 8, 2, per_patch, order)
            np.testing.assert_array_equal(batch.outputs["patches"][row], wanted)
            assert batch.outputs["patch_grid"][row].tolist() == grid
            assert batch.outputs["token_count"][row].tolist() == [len(wanted) // 4]


def test_a_number_of_frames_that_depends_on_the_clip_determines_the_size_of_the_frames():
    first = pp.decode_video(frames=20, rate=6, min_frames=2, frames_multiple=2, sample="segments")
    budget = pp.resize_to_pixels(
        multiple=16, min_pixels=5000, max_pixels=40_000, frames="clip", temporal_patch_size=2, filter="bicubic"
    )
    sizes = {"merge_size": 2, "temporal_patch_size": 2}
    pipeline = pp.Pipeline([first, budget, pp.patches(8, **sizes), pp.patch_grid(8, order="thw", **sizes)])
    clips = [clip("h264.mp4", count) for count in (1, 7, 35, 70)]
    with pp.Engine(pipeline) as engine:
        batch = engine.run_batch(clips)
    assert "1 frames: the clip is too short for 6 frames per second (2 to 20 frames, a multiple of 2)" in str(
        batch.errors[0]
    )
    grids = [batch.outputs["patch_grid"][row].tolist() for row in (1, 2, 3)]
    assert [len(placed.frames) for placed in batch.placed[1:]] == [2, 6, 14]
    assert grids == [[1, 12, 20], [3, 6, 12], [7, 4, 8]]
    for row, grid in zip((1, 2, 3), grids, strict=True):
        assert batch.outputs["patches"][row].shape == (np.prod(grid), 384)
        assert np.prod(grid) <= pipeline.outputs["patches"].spec.largest[0]
    assert [*pipeline.outputs] == ["patches", "patch_grid"]


def test_frames_of_a_clip_are_tiles():
    ops = [pp.resize(height=32, width=64), pp.normalize()]
    first = pp.decode_video(frames=9, rate=3, sample="rounded")
    seconds = pp.seconds_per_patch(2)
    with pp.Engine(pp.Pipeline([first, *ops, pp.tiles(32), pp.tile_count(32), seconds])) as engine:
        batch = engine.run_batch([made("h264.mp4")])
    assert batch.outputs["seconds_per_patch"].tolist() == [[np.float32(2 / (7 / 70 * 30))]]
    frames = frame_by_frame(frames_of(made("h264.mp4"), batch.placed[0].frames), ops)
    assert batch.placed[0].frames == (0, 12, 23, 34, 46, 58, 69)  # round(i * 69 / 6), ties to even
    tiles = frames.reshape(7, 3, 32, 2, 32).transpose(0, 3, 1, 2, 4).reshape(14, 3, 32, 32)
    np.testing.assert_array_equal(batch.outputs["tiles"][0], tiles)
    assert batch.outputs["tile_count"].tolist() == [[14]]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("layout", ["tchw", "thwc", "cthw", "hwct", "1ctwh"])
def test_a_clip_equals_its_frames_through_the_same_ops(layout, threads):
    pipeline = pp.Pipeline([pp.decode_video(frames=5), *END, pp.tensor(layout=layout)])
    shape = pipeline.outputs["tensor"].spec.shape
    encoded = [made("h264.mp4"), b"no clip", made("vp9.webm")]
    with pp.Engine(pipeline, threads=threads) as engine:
        first, bad, last = engine.run(encoded)
    assert bad.reason == "UNKNOWN_FORMAT"
    wanted = [0, 17, 34, 51, 69]
    for tensor, source in ((first, encoded[0]), (last, encoded[2])):
        assert tensor.shape == shape
        frames = frame_by_frame(frames_of(source, wanted), END, layout="hwc")
        axes = ["thwc".index(axis) for axis in layout if axis != "1"]
        np.testing.assert_array_equal(tensor.reshape(tensor.shape[layout.count("1") :]), frames.transpose(axes))


def test_pixel_values_bgr_and_gray():
    ops = [pp.resize(64), pp.center_crop(56), pp.contrast(1.4), pp.saturation(0.5)]
    encoded = made("h264.mp4")
    for color in ("rgb", "bgr"):
        pipeline = pp.Pipeline([pp.decode_video(frames=4, color=color), *ops, pp.tensor(layout="tchw", dtype="uint8")])
        (tensor,) = pp.Engine(pipeline).run([encoded])
        whole = frame_by_frame(frames_of(encoded, [0, 23, 46, 69]), ops, dtype="uint8")
        np.testing.assert_array_equal(tensor, whole[:, ::-1] if color == "bgr" else whole)
    gray = pp.Pipeline([pp.decode_video(frames=4, color="gray"), *ops[:2], pp.tensor(layout="thwc", dtype="uint8")])
    assert pp.Engine(gray).run([encoded])[0].shape == (4, 56, 56, 1)


def test_random_ops_are_sampled_once_per_clip():
    pipeline = pp.Pipeline(
        [
            pp.decode_video(frames=6), pp.random_resized_crop(48), pp.random_flip(), pp.color_jitter(0.4, 0.4, 0.4),
            pp.resize(56, only="serving"), pp.center_crop(48, only="serving"), pp.tensor(layout="tchw", dtype="uint8"),
        ]
    ).for_training()  # fmt: skip
    plan = pipeline.plan
    (numbers,) = plan.draw(seed=3, epoch=1, indices=[7])
    encoded = made("h264.mp4")
    engine = pp.Engine(pipeline)
    batch = engine.run_batch([encoded], places=[plan.placing(numbers)])
    again = engine.run_batch([encoded], places=[plan.replaying(batch.draws[0])])
    np.testing.assert_array_equal(batch["tensor"], again["tensor"])
    images = pp.Pipeline([pp.decode(), *pipeline.ops[1:4], pp.tensor(dtype="uint8", only="training")])
    frames = frames_of(encoded, [0, 13, 27, 41, 55, 69])
    single = pp.Engine(images).run_batch(
        [png(frame) for frame in frames], places=[images.plan.replaying(batch.draws[0])] * 6
    )
    np.testing.assert_array_equal(batch["tensor"][0], single["tensor"])


def test_a_repeated_frame_does_not_use_more_of_the_budget():
    """The budget has room for 6 decoded frames. Two clips use 3 each, from which 16 output frames are produced."""
    pipeline = pp.Pipeline([pp.decode_video(frames=16, short="repeat"), *END, pp.tensor(layout="tchw")])
    room = 2 * 3 * 96 * 160
    decoder = ClipDecoder(pipeline.plan, pp.Limits(max_pixels_in_flight=room), lambda frame: frame)
    chunk, other = decoder.chunks([clip("h264.mp4", 3)] * 2, [pipeline.plan.place] * 2)

    def decoded():
        with decoder.decode(other) as (result,):
            return len({id(frame) for frame in result.pixels}), len(result.pixels)

    with ThreadPoolExecutor(1) as threads:
        with decoder.decode(chunk):
            second = threads.submit(decoded)
            wait([second], timeout=30)
            has_waited = not second.done()
        assert second.result() == (3, 16)
    assert not has_waited


def test_random_frames_are_sampled_and_replayed():
    pipeline = pp.Pipeline(
        [
            pp.decode_video(frames=7, sample="random", only="training"),
            pp.decode_video(frames=7, only="serving"),
            pp.resize(height=96, width=160),
            pp.tensor(layout="thwc", dtype="uint8"),
        ]
    ).for_training()
    plan, encoded = pipeline.plan, made("h264.mp4")
    engine = pp.Engine(pipeline)
    seen = set()
    for epoch in range(6):
        (numbers,) = plan.draw(seed=1, epoch=epoch, indices=[0])
        batch = engine.run_batch([encoded], places=[plan.placing(numbers)])
        found = [number(frame) for frame in batch["tensor"][0]]
        assert all(10 * part <= index < 10 * (part + 1) for part, index in enumerate(found))
        again = engine.run_batch([encoded], places=[plan.replaying(batch.draws[0])])
        np.testing.assert_array_equal(batch["tensor"], again["tensor"])
        assert batch.placed[0].frames == tuple(found)
        seen.add(tuple(found))
    assert len(seen) > 3


@pytest.mark.parametrize("sample", ["random", "uniform", {"step": 5}])
def test_a_batch_of_clips_reports_the_frame_indices(sample):
    first = pp.decode_video(frames=4, sample=sample, only="training" if sample == "random" else None)
    others = [pp.decode_video(frames=4, only="serving")] * (sample == "random")
    ops = [first, *others, pp.resize(height=96, width=160), pp.tensor(layout="thwc", dtype="uint8")]
    with pp.Loader([{"image": made("h264.mp4")}] * 3, pp.Pipeline(ops).for_training(), batch_size=3) as loader:
        for batch in (next(iter(loader)), loader.replay(0, 1)):
            assert batch["frames"].dtype == np.int64
            assert batch["frames"].tolist() == [[number(frame) for frame in clip] for clip in batch["tensor"]]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"sample": "first"}, [0, 1, 2, 3]),
        ({"sample": {"step": 5}}, [0, 5, 10, 15]),
        ({"sample": {"step": 5}, "start": "middle"}, [27, 32, 37, 42]),
        ({"sample": {"fps": 10}}, [0, 3, 6, 9]),
        ({"sample": {"fps": 10}, "start": "middle"}, [30, 33, 36, 39]),
        ({"sample": "uniform"}, [0, 23, 46, 69]),
        ({"sample": "uniform", "frames": 5}, [0, 17, 34, 51, 69]),
        ({"sample": {"step": 30}, "short": "repeat"}, [0, 30, 60, 69]),
        ({"sample": {"fps": 1}, "short": "repeat"}, [0, 30, 60, 69]),
        ({"sample": {"seconds": 1}}, [0, 9, 19, 29]),
        ({"sample": {"seconds": 1}, "start": "middle"}, [20, 29, 39, 49]),
        ({"sample": {"step": 5}, "clips": 3, "clip": 1}, [27, 32, 37, 42]),
    ],
)
def test_frame_selection(fields, wanted):
    pipeline = pp.Pipeline(
        [
            pp.decode_video(**{"frames": 4} | fields),
            pp.resize(height=96, width=160),
            pp.tensor(layout="thwc", dtype="uint8"),
        ]
    )
    assert pp.Pipeline.from_json(pipeline.to_json()) == pipeline
    (tensor,) = pp.Engine(pipeline).run([made("h264.mp4")])
    assert [number(frame) for frame in tensor] == wanted
    assert op_words(pipeline)[0].startswith(f"decode {len(wanted)} frames, ")


CLIPS = [
    ({"step": 5}, [[0, 5, 10, 15], [27, 32, 37, 42], [54, 59, 64, 69]]),
    ({"fps": 20}, [[0, 1, 3, 4], [31, 33, 34, 36], [63, 64, 66, 67]]),
    ({"seconds": 1}, [[0, 9, 19, 29], [14, 23, 33, 43], [27, 36, 46, 56]]),
]


@pytest.mark.parametrize("layout", ["ntchw", "nthwc", "ncthw", "1cnthw"])
@pytest.mark.parametrize(("sample", "wanted"), CLIPS)
def test_evenly_spaced_clips_are_rows_of_one_tensor(sample, wanted, layout):
    ops = [pp.resize(height=96, width=160), pp.tensor(layout=layout, dtype="uint8")]
    pipeline = pp.Pipeline([pp.decode_video(frames=4, clips=3, sample=sample), *ops])
    assert pp.Pipeline.from_json(pipeline.to_json()) == pipeline
    with pp.Loader([{"image": made("h264.mp4")}] * 2, pipeline, batch_size=2) as loader:
        batch = next(iter(loader))
    assert batch["tensor"].shape[1:] == pipeline.outputs["tensor"].spec.shape
    axes = [layout.index(axis) + 1 - layout.count("1") for axis in "nthwc"]
    for tensor in batch["tensor"]:
        every = np.squeeze(tensor, 0) if layout[0] == "1" else tensor
        clips = every.transpose([axis - 1 for axis in axes])
        assert [[number(frame) for frame in clip] for clip in clips] == wanted
    assert batch["frames"].tolist() == [wanted] * 2
    for index, frames in enumerate(wanted):
        one = pp.decode_video(frames=4, clips=3, clip=index, sample=sample)
        assert one.sampling.indices([Fraction(time, 30) for time in range(COUNT)]) == frames
        assert one.infer().frames == 4


def test_clips_of_steps_equal_mmaction2():
    """SampleFrames(test_mode=True) of mmaction2 1.2 rounds multiples of a float64 to integers, with ties to even."""
    for count, frames, step, clips in product((1, 3, 40, 77, 250, 301), (2, 8, 32), (1, 2, 7), (1, 2, 3, 10, 30)):
        last = max(count - (frames - 1) * step - 1, 0)
        offsets = np.round(np.arange(clips) * (last / (clips - 1))).astype(int) if clips > 1 else np.array([last // 2])
        every = offsets[:, None] + np.arange(frames) * step
        times = [Fraction(index, 30) for index in range(count)]
        fields = {"frames": frames, "clips": clips, "sample": {"step": step}}
        looped = pp.decode_video(**fields, short="loop").sampling.indices(times)
        assert looped == (every % count).ravel().tolist()
        repeated = pp.decode_video(**fields, short="repeat").sampling.indices(times)
        highest = np.where(every < count, every, 0).max(1, keepdims=True)
        assert repeated == np.where(every < count, every, highest).ravel().tolist()
        if every.max() < count:
            assert pp.decode_video(**fields).sampling.indices(times) == repeated
        else:
            with pytest.raises(ValueError, match=f"{count} frames"):
                pp.decode_video(**fields).sampling.indices(times)


def test_clips_of_windows_equal_pytorchvideo():
    """The expected frames are those of ConstantClipsPerVideoSampler and UniformTemporalSubsample (version 0.1.5)."""
    for count, seconds, clips, rate in product(
        (40, 77, 301), (1, 1.28, 2.5), (1, 3, 10), (25, 30, Fraction(24000, 1001))
    ):
        times, length = [index / Fraction(rate) for index in range(count)], Fraction(seconds).limit_denominator(100)
        wanted = []
        for place in range(clips):
            begin = max(count / Fraction(rate) - length, Fraction(0)) / clips * place
            inside = [index for index, time in enumerate(times) if begin <= time < begin + length]
            wanted += [inside[index] for index in np.linspace(0, len(inside) - 1, 8).astype(np.float32).astype(int)]
        op = pp.decode_video(frames=8, clips=clips, sample={"seconds": seconds}, short="repeat")
        assert op.sampling.indices(times) == wanted


def test_a_clip_that_is_too_short_is_rejected_unless_frames_repeat():
    short = clip("h264.mp4", 3)
    clips = [{"clips": 2, "clip": 1, "sample": sample} for sample in ({"step": 2}, {"fps": 30}, {"seconds": 1})]
    for fields in ({}, {"sample": "first"}, {"sample": {"fps": 2}}, {"sample": {"seconds": 0.1}}, *clips):
        ops = [pp.resize(height=96, width=160), pp.tensor(layout="thwc", dtype="uint8")]
        (error,) = pp.Engine(pp.Pipeline([pp.decode_video(frames=5, **fields), *ops])).run([short])
        assert isinstance(error, ImageError)
        assert error.reason == "DOES_NOT_FIT"
        (tensor,) = pp.Engine(pp.Pipeline([pp.decode_video(frames=5, short="repeat", **fields), *ops])).run([short])
        assert number(tensor[-1]) == 2


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ({"step": 1}, "4 frames, consecutive"),
        ({"step": 3}, "4 frames, one of every 3"),
        ({"fps": 2}, "4 frames, at 2 frames per second"),
        ("uniform", "4 frames, evenly spaced from the first to the last"),
        ({"seconds": 2}, "4 frames, evenly spaced in a window of 2 s"),
    ],
)
def test_explain_describes_the_frame_selection(sample, words):
    pipeline = pp.Pipeline(
        [pp.decode_video(frames=4, sample=sample), pp.resize(height=8, width=8), pp.tensor(layout="thwc")]
    )
    assert str(pipeline.plan.clip.sampling) == words


def test_uniform_frames_equal_numpy():
    for count in (1, 2, 7, 16, 33, 300, 301):
        for frames in (1, 2, 5, 8, 16, 32):
            times = [Fraction(index) for index in range(count)]
            found = Sampling(frames=frames, rule="uniform", short="repeat").indices(times)
            exact = [index * (count - 1) // max(frames - 1, 1) for index in range(frames)]
            assert found == exact
            assert np.abs(np.linspace(0, count - 1, frames).astype(int) - found).max() <= 1
    assert pixels(5).shape == (96, 160, 3)


@pytest.mark.parametrize("preset", ["ultrafast", "fast", "medium"])
@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_flow_equals_a_manual_computation_with_opencv(preset, color):
    cv2 = pytest.importorskip("cv2")
    ops = [pp.decode_video(frames=4, sample={"step": 2}, color=color), pp.resize(72), pp.center_crop(64)]
    pipeline = pp.Pipeline([*ops, pp.optical_flow(preset=preset), pp.tensor(layout="thwc", dtype="uint8")])
    assert pipeline.outputs["optical_flow"].spec.shape == (3, 2, 64, 64)
    batch = pp.Engine(pipeline).run_batch([made("h264.mp4"), b"none", made("vp9.webm")])
    code = {"rgb": cv2.COLOR_RGB2GRAY, "bgr": cv2.COLOR_BGR2GRAY}.get(color)
    create = getattr(cv2, f"DISOPTICAL_FLOW_PRESET_{preset.upper()}")
    for row in (0, 2):
        frames = batch["tensor"][row]
        grays = [frame if code is None else cv2.cvtColor(frame, code) for frame in frames]
        dis = cv2.DISOpticalFlow_create(create)
        for index in range(3):
            by_hand = dis.calc(grays[index], grays[index + 1], None)
            np.testing.assert_array_equal(batch["optical_flow"][row, index], by_hand.transpose(2, 0, 1))
        assert np.abs(batch["optical_flow"][row]).max() > 0.1
    assert batch.errors[1] is not None
    assert not batch["optical_flow"][1].any()


@pytest.mark.parametrize("size", [(32, 32), (32, 700), (32, 1500), (700, 32)])
def test_flow_of_small_and_of_long_frames(size):
    pytest.importorskip("cv2")
    ops = [pp.decode_video(frames=3), pp.resize(height=size[0], width=size[1]), pp.optical_flow()]
    batch = pp.Engine(pp.Pipeline([*ops, pp.tensor(layout="tchw")])).run_batch([made("h264.mp4")])
    assert np.isfinite(batch["optical_flow"]).all()


@pp.operator("acme.halved", version=1, place="tensor")
def halved(tensor):
    """Return half of the tensor's values."""
    return tensor / 2


@pp.operator("acme.inverted", version=1)
def inverted(pixels):
    """Return the complement of the pixel values."""
    return 255 - pixels


def test_custom_operators_receive_frames_and_not_clips():
    ops = [pp.decode_video(frames=3), pp.resize(height=32, width=32)]
    with pytest.raises(PipelineError, match="not of clips"):
        pp.Pipeline([*ops, pp.tensor(layout="tchw"), halved()])
    plain, changed = (
        pp.Engine(pp.Pipeline([*ops, *extra, pp.tensor(layout="tchw", dtype="uint8")])).run([made("h264.mp4")])[0]
        for extra in ([], [inverted()])
    )
    np.testing.assert_array_equal(changed, 255 - plain)


def test_a_photo_has_no_seconds_per_patch():
    budget = pp.resize_to_pixels(multiple=32, max_pixels=9999, frames="clip", temporal_patch_size=2)
    outputs = [pp.patches(16, merge_size=2, temporal_patch_size=2), pp.seconds_per_patch(2)]
    pipeline = pp.Pipeline([pp.decode_video(frames=9, rate=3), budget, *outputs])
    with pp.Engine(pipeline.for_photos()) as engine:
        assert engine.run_batch([png(pixels(1))]).outputs["seconds_per_patch"].tolist() == [[0.0]]


def test_run_accepts_clips_and_rejects_photos(tmp_path, capsys):
    pipeline = pp.Pipeline([pp.decode_video(frames=2), pp.resize(height=32, width=48), pp.tensor(layout="tchw")])
    pipeline.save(tmp_path / "clip.json")
    (tmp_path / "a.mp4").write_bytes(made("h264.mp4"))
    (tmp_path / "b.png").write_bytes(png(pixels(1)))
    assert main(["run", str(tmp_path / "clip.json"), str(tmp_path / "a.mp4")]) == 0
    assert "float32 [2, 3, 32, 48]" in capsys.readouterr().out
    assert main(["run", str(tmp_path / "clip.json"), str(tmp_path / "b.png")]) == 1
    assert "UNKNOWN_FORMAT" in "".join(capsys.readouterr())
    frame = pipeline.for_photos()
    assert (pipeline.for_files(), frame.outputs["tensor"].spec.shape) == (pipeline, (3, 32, 48))


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [
        ("first", 10, [0, 2, 5, 7]),
        ("middle", 10, [1, 3, 6, 8]),
        ("first", 4, [0, 1, 2, 3]),
        ("middle", 3, [0, 1, 1, 2]),  # repeated
    ],
)
def test_segments_select_their_first_or_middle_frame(start, count, expected):
    sampling = pp.decode_video(frames=4, sample="segments", start=start, short="repeat").sampling
    assert sampling.indices([Fraction(index, 25) for index in range(count)]) == expected
