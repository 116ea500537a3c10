"""Tests of the engine: batches keep their order, broken images fail alone, and threads and outputs behave as
documented.
"""

import gc
import pickle
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pixprep as pp
from pixprep.engine.decoders import Kept
from pixprep.engine.decoders.images import CpuDecoder
from pixprep.engine.kernels import resize
from support import reference
from support.compare import EQUAL, assert_close
from support.decoding import PLAN
from support.images import JUNK, jpeg, jpegs, noise, others, photo, png, scene, with_exif

PIPELINE = pp.Pipeline([pp.decode(), pp.resize(24), pp.center_crop(20), pp.normalize(), pp.tensor()])
SEVERAL = pp.Pipeline(
    [
        pp.decode(name="decoded"), pp.original_size(), pp.letterbox(32, 40, name="boxed"), pp.transform(),
        pp.tensor(name="pixels", dtype="uint8", layout="hwc"), pp.flip(from_="boxed"),
        pp.transform(name="mirrored_transform"), pp.normalize(), pp.tensor(name="mirrored", dtype="float16"),
        pp.center_crop(10, from_="decoded"), pp.tensor(name="middle", dtype="uint8"),
    ]
)  # fmt: skip
GOOD = [*jpegs().values(), *others().values()]


@pytest.fixture(scope="module")
def engine():
    with pp.Engine(PIPELINE, threads=2) as engine:
        yield engine


def test_a_batch_equals_its_images_one_by_one_with_any_number_of_threads(engine):
    alone = [engine.run([encoded])[0] for encoded in GOOD * 2]
    for threads in (1, 2, 4):
        with pp.Engine(PIPELINE, threads=threads) as other:
            for tensor, expected in zip(other.run(GOOD * 2), alone, strict=True):
                assert_close(tensor, expected, EQUAL)


def test_a_jpeg_of_a_batch_takes_few_calls():
    """Each additional JPEG in a batch requires at most 90 Python calls to become a tensor."""
    counts = []
    with pp.Engine(PIPELINE, threads=1) as engine:
        for images in (3, 1, 3):  # the first run fills the caches
            calls = []
            sys.setprofile(lambda _, event, __, calls=calls: calls.append(event) if event == "call" else None)
            try:
                engine.run([photo()] * images)
            finally:
                sys.setprofile(None)
            counts.append(len(calls))
    assert counts[2] - counts[1] <= 2 * 90


def test_the_order_is_preserved(engine):
    encoded = [png(np.full((30, 30, 3), level, np.uint8)) for level in range(0, 250, 5)]
    levels = [round(float(tensor[0, 0, 0]) * 255) for tensor in engine.run(encoded)]
    assert levels == list(range(0, 250, 5))


def test_a_broken_image_fails_alone(engine):
    broken = photo()[:50_000]
    encoded = [GOOD[0], broken, GOOD[1], b"", GOOD[2], b"text", GOOD[3]]
    results = engine.run(encoded)
    for index in (0, 2, 4, 6):
        assert_close(results[index], engine.run([encoded[index]])[0], EQUAL)
    assert [results[index].reason for index in (1, 3, 5)] == ["TRUNCATED", "EMPTY", "UNKNOWN_FORMAT"]


def test_an_unreadable_image_keeps_its_error_and_its_position(engine):
    error = pp.ImageError("BAD_RECORD", "photo.jpg: cannot be read")
    whole = engine.run(GOOD[:3])
    found = engine.run([error, GOOD[0], GOOD[1], error, GOOD[2]])
    assert found[0] is found[3] is error
    for tensor, expected in zip([found[1], found[2], found[4]], whole, strict=True):
        assert_close(tensor, expected, EQUAL)
    kept = []
    batch = engine.run_batch([error, GOOD[0], error], rows=[2, 0, 1], keep=lambda place, _: kept.append(place))
    assert (batch.errors, batch.decode_s[2], kept, batch.rows[1]) == ([None, error, error], 0, [1], slice(0, 1))
    assert_close(batch["tensor"][0], whole[0], EQUAL)
    assert not batch["tensor"][1:].any()
    assert batch.draws == [{}] * 3
    assert engine.run([error]) == [error]
    arrays = pp.Pipeline([pp.pixels(), *PIPELINE.ops[1:]])
    with pp.Engine(arrays) as other:
        assert other.run([error, scene(30, 40), error])[::2] == [error, error]


def test_a_broken_image_has_zeros_in_every_output():
    with pp.Engine(SEVERAL, threads=2) as engine:
        for _ in range(3):  # the memory of an earlier batch may be reused
            batch = engine.run_batch([GOOD[0], b"broken", photo()[:9000], GOOD[1]])
            assert [error is None for error in batch.errors] == [True, False, False, True]
            assert list(batch.outputs) == list(SEVERAL.outputs)
            for name, array in batch.outputs.items():
                assert not array[1:3].any(), name
                assert array[0].any(), name
                assert array[3].any(), name


NO_PLACE = [
    ([pp.crop(10, 10, 30, 30)], (39, 50), "39 x 50 pixels are too small for the window of 30 x 30 at 10, 10"),
    ([pp.pad(20, 20)], (24, 33), "24 x 33 pixels are larger than the canvas of 20 x 20"),
    ([pp.center_crop(30), pp.resize(8)], (24, 33), "24 x 33 pixels are too small for the window of 30 x 30"),
    (
        [pp.resize(16384), pp.center_crop(4)],
        (1, 60),
        "its 1 x 60 pixels would be resized to 16384 x 983040, which exceeds the limit of 268,435,456 pixels",
    ),
]


@pytest.mark.parametrize(("ops", "size", "words"), NO_PLACE, ids=[words for *_, words in NO_PLACE])
def test_an_image_that_is_too_small_is_rejected_for_any_requested_output(ops, size, words):
    if isinstance(ops[-1], pp.resize):
        ops = [*ops, pp.center_crop(8)]
    pipeline = pp.Pipeline([pp.decode(), pp.original_size(), *ops, pp.tensor()])
    fitting = png(noise(40, 40) if isinstance(ops[0], pp.crop | pp.center_crop) else noise(20, 20))
    with pp.Engine(pipeline) as engine:
        for outputs in (None, ["original_size"], []):
            refused, fits = engine.run_batch([png(noise(*size)), fitting], outputs=outputs).errors
            assert str(refused).partition("] ")[2] == words
            assert fits is None


def test_an_image_too_small_for_a_later_output_is_rejected_for_any_requested_output():
    pipeline = pp.Pipeline(
        [
            pp.decode(name="decoded"),
            pp.letterbox(16, 16),
            pp.tensor(name="fits"),
            pp.crop(0, 0, 30, 30, from_="decoded"),
            pp.tensor(name="cut"),
        ]
    )
    with pp.Engine(pipeline) as engine:
        for outputs in (None, ["fits"], ["cut"], []):
            refused, fits = engine.run_batch([png(noise(24, 33)), png(noise(40, 40))], outputs=outputs).errors
            assert refused.reason == "DOES_NOT_FIT"
            assert fits is None


def test_an_image_that_is_too_small_is_rejected_before_decoding():
    """The engine rejects the size in the header. The data after the header are not even JPEG data."""
    encoded = jpeg(noise(24, 33))
    scan = encoded.index(b"\xff\xda") + 14
    broken = encoded[:scan] + bytes(len(encoded) - scan)
    with (
        pp.Engine(pp.Pipeline([pp.decode(), pp.crop(0, 0, 30, 30), pp.tensor()])) as small,
        pp.Engine(pp.Pipeline([pp.decode(), pp.crop(0, 0, 20, 20), pp.tensor()])) as fits,
    ):
        assert small.run([broken])[0].reason == "DOES_NOT_FIT"
        assert fits.run([broken])[0].reason in ("CORRUPT", "TRUNCATED")


def test_a_failing_batch_waits_for_its_threads_and_the_next_batch_runs():
    has_begun, has_ended = threading.Event(), threading.Event()

    def fail(*_):
        """Raise an error in the caller's thread while another thread is working."""
        if threading.current_thread() is threading.main_thread():
            assert has_begun.wait(20)
            raise ArithmeticError
        has_begun.set()
        has_ended.wait(0.2)
        has_ended.set()

    with pp.Engine(PIPELINE, threads=2) as engine:
        with pytest.raises(ArithmeticError):
            engine.run_batch([photo(), photo()], keep=fail)
        assert has_ended.is_set()
        assert len(engine.run(GOOD)) == len(GOOD)


def test_only_the_crop_of_a_thin_image_is_computed():
    with pp.Engine(pp.presets.imagenet()) as engine:
        start = time.process_time()
        (tensor,) = engine.run([png(noise(4, 16000))])
        assert tensor.shape == (3, 224, 224)
        assert time.process_time() - start < 20


def test_outputs_have_the_declared_shape_and_dtype():
    with pp.Engine(SEVERAL) as engine:
        batch = engine.run_batch([photo(), jpegs()["progressive"]])
    for name, output in SEVERAL.outputs.items():
        assert batch.outputs[name].shape == (2, *output.spec.shape)
        assert batch.outputs[name].dtype == output.spec.dtype
        assert batch.outputs[name].min() >= output.spec.low
        assert batch.outputs[name].max() <= np.float32(output.spec.high)


def test_requested_outputs_are_computed_and_the_first_tensor_by_default():
    with pp.Engine(SEVERAL) as engine:
        assert list(engine.run_batch([GOOD[0]], outputs=["middle"]).outputs) == ["middle"]
        assert engine.run_batch([b"broken"], outputs=[]).outputs == {}
        assert_close(engine.run([GOOD[0]])[0], engine.run_batch([GOOD[0]]).outputs["pixels"][0], EQUAL)


def test_outputs_of_branches_equal_their_chains():
    encoded = png(scene(48, 100))
    with pp.Engine(SEVERAL) as engine:
        outputs = engine.run_batch([encoded, with_exif(6)]).outputs
    assert outputs["original_size"].tolist() == [[48, 100], [40, 24]]  # the size of the oriented image
    assert_close(outputs["transform"][0], np.float32([19 / 48, 40 / 100, 6, 0]), EQUAL)
    assert_close(outputs["mirrored_transform"][0], np.float32([19 / 48, -40 / 100, 6, 40]), EQUAL)
    mirrored = (outputs["pixels"][0][:, ::-1].astype(float) / 255).astype(np.float16).transpose(2, 0, 1)
    assert_close(outputs["mirrored"][0], mirrored, EQUAL)
    middle = reference.center_crop(scene(48, 100), 10, 10)
    assert_close(outputs["middle"][0], middle.transpose(2, 0, 1), EQUAL)


def test_an_empty_batch_has_an_empty_result(engine):
    assert engine.run([]) == []
    assert engine.run_batch([]).outputs["tensor"].shape == (0, 3, 20, 20)


def test_tensors_outlive_the_next_batch(engine):
    (first,) = engine.run([GOOD[0]])
    kept = first.copy()
    engine.run(GOOD)
    assert_close(first, kept, EQUAL)


def test_times_are_reported_for_each_image(engine):
    batch = engine.run_batch([photo(), b"broken"])
    assert [seconds > 0 for seconds in batch.decode_s] == [True, True]
    assert batch.transform_s[0] > 0


def test_a_gpu_without_cupy_is_rejected_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, "pixprep.gpu.device", raising=False)
    with pytest.raises(pp.SetupError) as caught:
        pp.Engine(PIPELINE, device="gpu")
    assert str(caught.value) == (
        'device "gpu" requires cupy: pip install ".[gpu-cuda12]" (or gpu-cuda13) in a checkout of pixprep, or use the '
        'device "cpu"'
    )


def test_sequences_and_subclasses_of_bytes_are_accepted(engine):
    (expected,) = engine.run(GOOD[:1])
    for images in ((GOOD[0],), [bytearray(GOOD[0])], [memoryview(GOOD[0])], [np.bytes_(GOOD[0])]):
        assert_close(engine.run(images)[0], expected, EQUAL)


def test_recovered_jpegs_are_counted_per_batch():
    encoded = photo()[:50_000]
    with pp.Engine(PIPELINE, damage="lenient", threads=2) as engine:
        assert [engine.run_batch([encoded] * n + GOOD[:3] + [b"junk"]).recovered for n in (3, 0, 1)] == [3, 0, 1]
        assert engine.run_batch([encoded]).fallbacks == 0


MAGIC = [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBP", b"GIF89a", b"II*\0", b"MM\0*", b"BM"]
any_bytes = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(GOOD[:12]),
    st.sampled_from(list(JUNK.values())),
    st.builds(bytes.__add__, st.sampled_from(MAGIC), st.binary(max_size=120)),
)


@settings(max_examples=120, derandomize=True)
@given(st.lists(any_bytes))
def test_random_bytes_give_a_tensor_or_an_image_error(encoded):
    with pp.Engine(PIPELINE, threads=2, limits=pp.Limits(max_pixels=1_000_000)) as engine:
        for result in engine.run(encoded):
            if not isinstance(result, pp.ImageError):
                assert result.shape == (3, 20, 20)
                assert np.isfinite(result).all()


@pytest.mark.parametrize(("most", "together"), [(1, 1), (24 * 24 * 3, 3)])
def test_images_beyond_the_pixel_budget_wait(most, together):
    decoder = CpuDecoder(PLAN, pp.Limits(max_pixels_in_flight=most))
    encoded = jpeg(noise(24, 24))

    def one_more():
        with decoder.decoded(encoded) as image:
            return image.pixels.shape

    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):  # a rejected or finished call must not hold resources
            with ExitStack() as held:
                for refused in (b"junk", encoded[:400]):
                    held.enter_context(decoder.decoded(refused))
                for _ in range(together):
                    held.enter_context(decoder.decoded(encoded))
                waiting = pool.submit(one_more)
                with pytest.raises(NotYet):
                    waiting.result(timeout=0.2)
            assert waiting.result(timeout=10) == (24, 24, 4)


def test_a_batch_beyond_the_pixel_budget_is_complete():
    images = [jpeg(noise(24, 24, seed=seed)) for seed in range(12)] + [b"junk", jpeg(noise(24, 24))[:400]]
    with pp.Engine(PIPELINE, threads=4, limits=pp.Limits(max_pixels_in_flight=1)) as engine:
        batch = engine.run_batch(images)
    assert [error is None for error in batch.errors] == [True] * 12 + [False] * 2


def test_an_image_error_can_be_pickled():
    error = pp.ImageError("TRUNCATED", "the JPEG ends early")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  (our own bytes)
    assert (copy.reason, copy.detail, str(copy)) == (error.reason, error.detail, str(error))
    assert copy.at(2, 8) == "[TRUNCATED] image 3 of 8: the JPEG ends early"


def _cut(encoded):
    """Return three damaged files: half of the image, the image with an end marker in the middle, and the image with
    flipped bits there.
    """
    half = len(encoded) // 2
    return [encoded[:half], encoded[:half] + b"\xff\xd9", encoded[:half] + b"\x55\xaa" * 9 + encoded[half + 18 :]]


REFUSED = [*JUNK.values(), *(cut for encoded in [photo(), *GOOD] for cut in _cut(encoded))]


@pytest.mark.parametrize("damage", ["strict", "lenient"])
@pytest.mark.parametrize("ops", [[pp.resize(32), pp.center_crop(32)], [pp.crop(500, 500, 8, 8)]], ids=["bytes", "size"])
def test_a_rejected_image_does_not_keep_its_batch_alive(ops, damage):
    """Memory that only the garbage collector can free stays allocated for too long: a server once grew by 0.6 MB per
    bad request.
    """
    gc.disable()
    try:
        with pp.Engine(pp.Pipeline([pp.decode(), *ops, pp.tensor()]), damage=damage, threads=1) as engine:
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


def test_trim_frees_the_memory_kept_for_the_next_batch():
    large = jpeg(np.zeros((3000, 4000, 3), np.uint8))
    with pp.Engine(PIPELINE, threads=1) as engine:
        engine.trim()
        before = _private_mib()
        engine.run([large])
        kept = _private_mib() - before
        engine.trim()
        assert kept > 40  # 12 million pixels of four bytes take 46 MiB
        assert _private_mib() - before < kept - 40


def test_trim_frees_the_cached_filter_taps():
    sizes = [(3 + index, 900 - index) for index in range(2 * resize.RECENT)]
    with pp.Engine(pp.Pipeline([pp.decode(), pp.resize(height=32, width=32), pp.tensor()]), threads=1) as engine:
        engine.run([jpeg(np.zeros((*size, 3), np.uint8)) for size in sizes])
        assert resize.coefficients.cache_info().currsize == resize.RECENT
        engine.trim()
        assert resize.coefficients.cache_info().currsize == 0


def test_trim_during_other_work_does_not_change_results():
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


def test_images_are_written_into_rows_of_given_arrays():
    images = [photo("china"), b"no image", photo("flower")]
    with pp.Engine(PIPELINE) as engine:
        expected = engine.run_batch(images)
        room = {"tensor": np.full((5, 3, 20, 20), 7, np.float32)}
        batch = engine.run_batch(images, into=room, rows=[4, 1, 0])
        assert batch["tensor"] is room["tensor"]
        assert [error and error.reason for error in batch.errors] == [None, "UNKNOWN_FORMAT", None, None, None]
        for row, place in ((4, 0), (1, 1), (0, 2)):
            assert np.array_equal(room["tensor"][row], expected["tensor"][place])
        assert (room["tensor"][2:4] == 7).all()


def test_cached_pixels_give_the_same_tensors():
    images = [photo("china"), b"no image", with_exif(6), png(noise(20, 30))]
    kept = {}
    with pp.Engine(PIPELINE) as engine:
        first = engine.run_batch(
            images, keep=lambda place, image: kept.setdefault(place, Kept(np.array(image.pixels, order="C")))
        )
        assert sorted(kept) == [0, 2, 3]
        second = engine.run_batch([kept.get(place, image) for place, image in enumerate(images)])
        assert np.array_equal(first["tensor"], second["tensor"])
        assert first.placed == second.placed
        assert [error and error.reason for error in second.errors] == [None, "UNKNOWN_FORMAT", None, None]
