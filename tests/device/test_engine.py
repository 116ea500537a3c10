"""The engine: batches, order, broken images, threads, outputs."""

import gc
import pickle
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import pixprep as pp
import reference
from compare import EQUAL, assert_close
from images import JUNK, jpeg, jpegs, noise, others, photo, png, scene, with_exif

PIPELINE = pp.Pipeline([pp.decode(), pp.resize(24), pp.center_crop(20), pp.normalize(), pp.tensor()])
SEVERAL = pp.Pipeline(
    [
        pp.decode(name="decoded"),
        pp.original_size(),
        pp.letterbox(32, 40, name="boxed"),
        pp.transform(),
        pp.tensor(name="pixels", dtype="uint8", layout="hwc"),
        pp.flip(from_="boxed"),
        pp.transform(name="mirrored_transform"),
        pp.normalize(),
        pp.tensor(name="mirrored", dtype="float16"),
        pp.center_crop(10, from_="decoded"),
        pp.tensor(name="middle", dtype="uint8"),
    ]
)
GOOD = [*jpegs().values(), *others().values()]


@pytest.fixture(scope="module")
def engine():
    with pp.Engine(PIPELINE, threads=2) as engine:
        yield engine


def test_a_batch_of_n_equals_n_batches_of_one(engine):
    together = engine.run(GOOD)
    for tensor, encoded in zip(together, GOOD, strict=True):
        assert_close(tensor, engine.run([encoded])[0], EQUAL)


def test_the_order_is_kept(engine):
    encoded = [png(np.full((30, 30, 3), level, np.uint8)) for level in range(0, 250, 5)]
    levels = [round(float(tensor[0, 0, 0]) * 255) for tensor in engine.run(encoded)]
    assert levels == list(range(0, 250, 5))


def test_one_thread_and_four_give_the_same():
    results = []
    for threads in (1, 4):
        with pp.Engine(PIPELINE, threads=threads) as engine:
            results.append(engine.run(GOOD * 3))
    for one, four in zip(*results, strict=True):
        assert_close(four, one, EQUAL)


def test_a_broken_image_fails_only_itself(engine):
    broken = photo()[:50_000]
    encoded = [GOOD[0], broken, GOOD[1], b"", GOOD[2], b"text", GOOD[3]]
    results = engine.run(encoded)
    for index in (0, 2, 4, 6):
        assert_close(results[index], engine.run([encoded[index]])[0], EQUAL)
    assert [str(results[index]) for index in (1, 3, 5)] == [
        "[TRUNCATED] the JPEG ends after 50,000 bytes, before its last row",
        "[EMPTY] no bytes",
        "[UNKNOWN_FORMAT] not a JPEG, PNG, WebP, BMP, TIFF or GIF file",
    ]


def test_the_row_of_a_broken_image_is_zeros_in_every_output():
    with pp.Engine(SEVERAL, threads=2) as engine:
        for _ in range(3):  # the memory of an earlier batch may come again
            batch = engine.run_batch([GOOD[0], b"broken", photo()[:9000], GOOD[1]])
            assert [error is None for error in batch.errors] == [True, False, False, True]
            assert list(batch.outputs) == list(SEVERAL.outputs)
            for name, array in batch.outputs.items():
                assert not array[1:3].any(), name
                assert array[0].any(), name
                assert array[3].any(), name


def test_an_image_that_the_window_does_not_fit_in_fails_only_itself():
    pipeline = pp.Pipeline([pp.decode(), pp.crop(10, 10, 30, 30), pp.tensor(dtype="uint8")])
    with pp.Engine(pipeline) as engine:
        small, large = engine.run([png(noise(39, 50)), png(noise(40, 40))])
    assert str(small) == "[DOES_NOT_FIT] 39 x 50 pixels are too small for the window of 30 x 30 at 10, 10"
    assert large.shape == (3, 30, 30)


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        (
            [pp.pad(20, 20)],
            "[DOES_NOT_FIT] 24 x 33 pixels are larger than the canvas of 20 x 20",
        ),
        (
            [pp.center_crop(30), pp.resize(height=8, width=8)],
            "[DOES_NOT_FIT] 24 x 33 pixels are too small for the window of 30 x 30",
        ),
    ],
)
def test_an_image_without_a_place_is_refused_in_words(ops, message):
    with pp.Engine(pp.Pipeline([pp.decode(), *ops, pp.tensor()])) as engine:
        (error,) = engine.run([others()["png"]])
    assert str(error) == message


def test_an_image_without_a_place_in_one_output_has_no_result_whichever_is_asked_for():
    pipeline = pp.Pipeline([pp.decode(), pp.original_size(), pp.crop(0, 0, 30, 30), pp.tensor()])
    with pp.Engine(pipeline) as engine:
        for outputs in (None, ["original_size"], []):
            (error,) = engine.run_batch([png(noise(20, 20))], outputs=outputs).errors
            assert str(error) == "[DOES_NOT_FIT] 20 x 20 pixels are too small for the window of 30 x 30 at 0, 0"


def test_a_batch_that_fails_waits_for_its_threads_and_the_next_one_runs(monkeypatch):
    has_begun, has_ended = threading.Event(), threading.Event()

    def decode(_):
        if threading.current_thread() is threading.main_thread():
            assert has_begun.wait(10)
            raise MemoryError
        has_begun.set()
        has_ended.wait(0.2)
        has_ended.set()
        return [noise(24, 24, 4)]

    with pp.Engine(PIPELINE, threads=2) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(engine._decoder, "decode", decode)
            with pytest.raises(MemoryError):
                engine.run([b"", b""])
            assert has_ended.is_set()
        assert len(engine.run(GOOD)) == len(GOOD)


@pytest.mark.parametrize("filter_name", ["nearest", "box", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(3, 200), (200, 3)])
def test_the_crop_of_a_thin_image_equals_that_of_pillows_whole_resize(filter_name, size):
    pixels = noise(*size)
    ops = [pp.decode(), pp.resize(64, filter=filter_name), pp.center_crop(50)]
    with pp.Engine(pp.Pipeline([*ops, pp.tensor(dtype="uint8", layout="hwc")])) as engine:
        (tensor,) = engine.run([png(pixels)])
    resized = (64, 64 * 200 // 3) if size[0] < size[1] else (64 * 200 // 3, 64)
    whole = np.asarray(Image.fromarray(pixels).resize(resized[::-1], getattr(Image.Resampling, filter_name.upper())))
    assert_close(tensor, reference.center_crop(whole, 50, 50), EQUAL)


def test_of_a_thin_image_only_the_crop_is_computed():
    with pp.Engine(pp.presets.imagenet()) as engine:
        start = time.process_time()
        (tensor,) = engine.run([png(noise(4, 16000))])
        assert tensor.shape == (3, 224, 224)
        assert time.process_time() - start < 2


def test_a_resize_to_a_gigantic_image_is_refused():
    with pp.Engine(pp.Pipeline([pp.decode(), pp.resize(16384), pp.center_crop(4), pp.tensor()])) as engine:
        (error,) = engine.run([png(noise(1, 60))])
    assert str(error) == (
        "[BAD_DIMENSIONS] its 1 x 60 pixels would be resized to 16384 x 983040, more than 268,435,456 pixels"
    )


def test_outputs_have_the_shape_and_dtype_that_the_pipeline_says():
    with pp.Engine(SEVERAL) as engine:
        batch = engine.run_batch([photo(), jpegs()["progressive"]])
    for name, output in SEVERAL.outputs.items():
        assert batch.outputs[name].shape == (2, *output.spec.shape)
        assert batch.outputs[name].dtype == output.spec.dtype
        assert batch.outputs[name].min() >= output.spec.low
        assert batch.outputs[name].max() <= np.float32(output.spec.high)


def test_outputs_of_branches_are_what_their_chains_say():
    encoded = png(scene(48, 100))
    with pp.Engine(SEVERAL) as engine:
        outputs = engine.run_batch([encoded]).outputs
    assert outputs["original_size"].tolist() == [[48, 100]]
    assert_close(outputs["transform"][0], np.float32([19 / 48, 40 / 100, 6, 0]), EQUAL)
    assert_close(outputs["mirrored_transform"][0], np.float32([19 / 48, -40 / 100, 6, 40]), EQUAL)
    mirrored = (outputs["pixels"][0][:, ::-1].astype(float) / 255).astype(np.float16).transpose(2, 0, 1)
    assert_close(outputs["mirrored"][0], mirrored, EQUAL)
    middle = reference.center_crop(scene(48, 100), 10, 10)
    assert_close(outputs["middle"][0], middle.transpose(2, 0, 1), EQUAL)


def test_original_size_is_of_the_upright_image():
    pipeline = pp.Pipeline([pp.decode(), pp.original_size(), pp.center_crop(4), pp.tensor()])
    with pp.Engine(pipeline) as engine:
        assert engine.run_batch([with_exif(6), with_exif(1)]).outputs["original_size"].tolist() == [[40, 24], [24, 40]]


def test_only_the_outputs_asked_for_are_computed():
    with pp.Engine(SEVERAL) as engine:
        assert list(engine.run_batch([GOOD[0]], outputs=["middle"]).outputs) == ["middle"]
        assert engine.run_batch([b"broken"], outputs=[]).outputs == {}


def test_run_gives_the_first_tensor_of_the_pipeline():
    with pp.Engine(SEVERAL) as engine:
        (tensor,) = engine.run([GOOD[0]])
        assert_close(tensor, engine.run_batch([GOOD[0]]).outputs["pixels"][0], EQUAL)


def test_an_unknown_output_is_a_pipeline_error(engine):
    with pytest.raises(pp.PipelineError) as caught:
        engine.run_batch([], outputs=["logits"])
    assert str(caught.value) == 'no output "logits"; there are tensor'


def test_an_empty_batch_is_an_empty_result(engine):
    assert engine.run([]) == []
    assert engine.run_batch([]).outputs["tensor"].shape == (0, 3, 20, 20)


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8).data])
def test_any_buffer_of_bytes_is_read(engine, kind):
    for encoded in (GOOD[0], others()["png"]):
        assert_close(engine.run([kind(encoded)])[0], engine.run([encoded])[0], EQUAL)


def test_tensors_outlive_the_next_batch(engine):
    (first,) = engine.run([GOOD[0]])
    kept = first.copy()
    engine.run(GOOD)
    assert_close(first, kept, EQUAL)


def test_times_are_told_for_each_image(engine):
    batch = engine.run_batch([photo(), b"broken"])
    assert [seconds > 0 for seconds in batch.decode_s] == [True, True]
    assert batch.transform_s[0] > 0


def test_a_missing_library_of_a_device_is_a_setup_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, "pixprep.devices.gpu", raising=False)
    with pytest.raises(pp.SetupError) as caught:
        pp.Engine(PIPELINE, device="gpu")
    assert str(caught.value) == (
        'device "gpu" needs cupy: pip install "pixprep[gpu-cuda12]" (or gpu-cuda13), or take the device "cpu"'
    )


def test_limits_reach_the_decoder():
    with pp.Engine(PIPELINE, limits=pp.Limits(max_pixels=100)) as engine:
        assert (
            str(engine.run([photo()])[0])
            == "[TOO_MANY_PIXELS] 427 x 640 pixels; the limit is 100 (parameter max_pixels)"
        )


@pytest.mark.parametrize(
    "preset", [pp.presets.imagenet, pp.presets.clip, pp.presets.efficientnet_lite0, pp.presets.letterbox]
)
def test_every_preset_runs(preset):
    with pp.Engine(preset()) as engine:
        results = engine.run([photo(), *GOOD])
    assert all(isinstance(tensor, np.ndarray) for tensor in results)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.lists(st.one_of(st.binary(max_size=200), st.sampled_from(GOOD[:12]), st.sampled_from(list(JUNK.values())))))
def test_any_bytes_at_all_give_a_tensor_or_an_image_error(encoded):
    with pp.Engine(PIPELINE, threads=2) as engine:
        for result in engine.run(encoded):
            if not isinstance(result, pp.ImageError):
                assert result.shape == (3, 20, 20)
                assert np.isfinite(result).all()


MAGIC = [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBP", b"GIF89a", b"II*\0", b"MM\0*", b"BM"]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(MAGIC), st.binary(max_size=120))
def test_any_bytes_after_a_known_beginning_give_a_tensor_or_an_image_error(magic, rest):
    with pp.Engine(PIPELINE, threads=1, limits=pp.Limits(max_pixels=1_000_000)) as engine:
        (result,) = engine.run([magic + rest])
    assert isinstance(result, pp.ImageError | np.ndarray)


@pytest.mark.parametrize(("most", "together"), [(1, 1), (24 * 24 * 3, 3), (1_000_000, 4)])
def test_so_many_pixels_are_in_flight_at_once(monkeypatch, most, together):
    images = [jpeg(noise(24, 24, seed=seed)) for seed in range(12)] + [b"junk", jpeg(noise(24, 24))[:400]]
    with pp.Engine(PIPELINE, threads=4, limits=pp.Limits(max_pixels_in_flight=most)) as engine:
        budget, refuse, peak = engine._decoder._budget, engine._refuse_misfits, []
        meeting = threading.Barrier(together)

        def refuse_together(decoded):
            if not any(isinstance(pixels, pp.ImageError) for pixels in decoded.values()):
                meeting.wait(timeout=10)  # so many come here at once
                peak.append(budget._used)
                meeting.wait(timeout=10)
            refuse(decoded)

        monkeypatch.setattr(engine, "_refuse_misfits", refuse_together)
        batch = engine.run_batch(images)
        assert max(peak) == together * 24 * 24
        assert budget._used == 0
    assert [error is None for error in batch.errors] == [True] * 12 + [False] * 2


def test_an_image_error_survives_pickling():
    error = pp.ImageError("TRUNCATED", "the JPEG ends early")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  (our own bytes)
    assert (copy.reason, copy.detail, str(copy)) == (error.reason, error.detail, str(error))
    assert copy.at(2, 8) == "[TRUNCATED] image 3 of 8: the JPEG ends early"


def test_a_jpeg_of_every_size_up_to_40_gives_a_tensor(engine):
    encoded = [jpeg(noise(height, width)) for height in range(1, 41, 3) for width in range(1, 41, 4)]
    assert all(isinstance(tensor, np.ndarray) for tensor in engine.run(encoded))


def _cut(encoded):
    """Half of the image, an end in the middle of it, and bits flipped there."""
    half = len(encoded) // 2
    return [encoded[:half], encoded[:half] + b"\xff\xd9", encoded[:half] + b"\x55\xaa" * 9 + encoded[half + 18 :]]


REFUSED = [*JUNK.values(), *(cut for encoded in [photo(), *GOOD] for cut in _cut(encoded))]


@pytest.mark.parametrize("damage", ["strict", "lenient"])
@pytest.mark.parametrize("ops", [[pp.resize(32), pp.center_crop(32)], [pp.crop(500, 500, 8, 8)]], ids=["bytes", "size"])
def test_a_refused_image_keeps_nothing_of_its_batch_alive(ops, damage):
    """What only the garbage collector can free, a server does not free in time: it grew by 0.6 MB a bad request."""
    gc.disable()
    try:
        with pp.Engine(pp.Pipeline([pp.decode(damage=damage), *ops, pp.tensor()]), threads=1) as engine:
            reasons = set()
            for encoded in REFUSED:
                batch = engine.run_batch([encoded, photo()])
                reasons |= {error.reason for error in batch.errors if error is not None}
                tensors = weakref.ref(batch.outputs["tensor"])
                del batch
                assert tensors() is None, encoded[:40]
            assert len(reasons) >= 4, reasons
    finally:
        gc.enable()


def _private_mib():
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) / 1024


def test_a_trim_gives_the_memory_back_that_is_kept_for_the_next_batch():
    large = jpeg(np.zeros((3000, 4000, 3), np.uint8))
    with pp.Engine(PIPELINE, threads=1) as engine:
        engine.trim()
        before = _private_mib()
        engine.run([large])
        kept = _private_mib() - before
        engine.trim()
        assert kept > 40  # 12 million pixels of four bytes are 46 MiB
        assert _private_mib() - before < kept - 40


def test_a_trim_while_others_work_changes_nothing():
    with pp.Engine(PIPELINE, threads=2) as engine:
        wanted = engine.run(GOOD)
        done = threading.Event()

        def trim():
            while not done.is_set():
                engine.trim()

        with ThreadPoolExecutor(1) as pool:
            pool.submit(trim)
            for _ in range(10):
                for tensor, expected in zip(engine.run(GOOD), wanted, strict=True):
                    assert_close(tensor, expected, EQUAL)
            done.set()
