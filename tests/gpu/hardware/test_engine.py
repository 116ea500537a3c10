"""Tests that the engine on a GPU matches the CPU: errors, order, chunks, workers, memory, and identical bytes in every
run.
"""

import gc
import itertools
import threading

import numpy as np
import pytest

import pixprep as pp
from support.images import JUNK, jpeg, jpegs, noise, others, photo, png, scene

pytestmark = pytest.mark.gpu

KEPT = 40 << 20
"""Limit on the growth of device memory in bytes.

nvImageCodec allocates from CUDA's own pool, which grows in steps of 32 MiB. A leak of the images of 100 engines, or of
2,000 small images, would exceed the limit.
"""


def pipeline(dtype="uint8"):
    return pp.Pipeline(
        [
            pp.decode(), pp.original_size(), pp.resize(40, filter="bicubic"), pp.center_crop(36), pp.transform(),
            pp.tensor(dtype=dtype),
        ]
    )  # fmt: skip


def distinct(count, *, seed=0):
    """Return JPEGs of different sizes."""
    encodings = ({}, {"subsampling": 0}, {"progressive": True})
    return [
        jpeg(scene(50 + index % 37, 70 + index % 23, seed + index), **encodings[index % 3]) for index in range(count)
    ]


def damaged():
    whole = jpeg(scene(90, 80))
    return [
        *JUNK.values(), whole[:700], whole[: len(whole) // 2], whole[:-40], whole.replace(b"\xff\xc4", b"\xff\xc5", 1),
    ]  # fmt: skip


def mixed():
    """Return every kind of image that pixprep decodes and every kind of damage, in an order without a pattern."""
    images = [*jpegs().values(), *others().values(), *damaged(), photo(), photo("flower"), png(noise(60, 61))]
    return [images[index] for index in np.random.default_rng(7).permutation(len(images))]


def run(engine, images, **options):
    """Return the batch with its arrays in host memory."""
    batch = engine.run_batch(images, **options)
    return {name: array if isinstance(array, np.ndarray) else array.get() for name, array in batch.outputs.items()}, [
        str(error) if error else None for error in batch.errors
    ]


def on_cpu(images):
    with pp.Engine(pipeline()) as engine:
        return run(engine, images)


def assert_same(ours, theirs, *, largest_mean=0.0):
    """Compare errors word for word, compare sizes and transforms exactly, and compare each image's tensor by its mean
    difference.
    """
    (arrays, errors), (expected, reasons) = ours, theirs
    assert errors == reasons
    for name in ("original_size", "transform"):
        assert np.array_equal(arrays[name], expected[name]), name
    levels = np.abs(arrays["tensor"].astype(int) - expected["tensor"]).mean(axis=(1, 2, 3))
    assert levels.max() <= largest_mean, f"image {levels.argmax()}: a mean difference of {levels.max():.3f} levels"


@pytest.fixture
def engine_of(gpu):  # noqa: ARG001  (first it must be there)
    """Return ``engine_of(mode)``, which creates an engine on the GPU that rejects the same images as the CPU.

    The engine is closed after the test.
    """
    engines = []

    def engine_of(mode="consistent", damage="strict"):
        engines.append(pp.Engine(pipeline(), device="gpu", decoder=mode, damage=damage))
        return engines[-1]

    yield engine_of
    for engine in engines:
        engine.close()


def test_with_libjpeg_turbo_every_value_equals_the_cpu_engine(engine_of):
    images = mixed()
    assert_same(run(engine_of("cpu"), images), on_cpu(images))


def test_a_mixed_batch_has_the_cpu_engines_errors_order_and_almost_its_values(engine_of):
    images = mixed()
    ours = run(engine_of(), images)
    assert sum(error is not None for error in ours[1]) >= len(JUNK)
    assert_same(ours, on_cpu(images), largest_mean=4.0)  # noise with 4:2:0 subsampling has the largest differences


def test_the_tensors_stay_on_the_gpu(cupy, engine_of):
    batch = engine_of().run_batch(distinct(3))
    assert isinstance(batch.outputs["tensor"], cupy.ndarray)
    assert batch.outputs["tensor"].flags.c_contiguous
    tensor, error = engine_of().run([jpeg(scene(50, 60)), b"junk"])
    assert isinstance(tensor, cupy.ndarray)
    assert error.reason == "UNKNOWN_FORMAT"


@pytest.mark.parametrize("bad", [0, 57, 127])
def test_one_invalid_image_among_128_fails_alone(engine_of, bad):
    engine = engine_of()
    images = distinct(128)
    alone, _ = run(engine, images)
    for junk in damaged()[::3]:
        arrays, errors = run(engine, [*images[:bad], junk, *images[bad + 1 :]])
        assert [index for index, error in enumerate(errors) if error] == [bad]
        assert not arrays["tensor"][bad].any()
        others = [index for index in range(128) if index != bad]
        assert np.array_equal(arrays["tensor"][others], alone["tensor"][others])


def test_an_image_that_nvimagecodec_fails_on_does_not_affect_the_next_batch(engine_of):
    """Buffers are reused. After a failure, no two images may share a buffer. The structure of the failing image is
    intact.
    """
    engine, images = engine_of("consistent", "structural"), [jpeg(scene(60, 80, seed)) for seed in range(6)]
    expected, _ = run(engine, images)
    table = images[1].index(b"\xff\xc4") + 5
    broken = images[1][:table] + b"\xff" + images[1][table + 1 :]  # 255 Huffman codes of one bit
    for _ in range(4):  # either worker may take the batch
        arrays, errors = run(engine, [images[0], broken, *images[2:]])
        assert [error is None for error in errors] == [True, False, True, True, True, True]
        for after in (arrays["tensor"][[0, 2, 3, 4, 5]], run(engine, images)[0]["tensor"][[0, 2, 3, 4, 5]]):
            assert np.array_equal(after, expected["tensor"][[0, 2, 3, 4, 5]])


def test_a_batch_of_only_invalid_images_and_an_empty_batch(engine_of):
    engine = engine_of()
    images = damaged()
    assert_same(run(engine, images), on_cpu(images))
    arrays, errors = run(engine, [])
    assert errors == []
    assert arrays["tensor"].shape == (0, 3, 36, 36)
    assert all(error is None for error in run(engine, distinct(2))[1])


def test_many_chunks_on_two_workers_equal_one_chunk(engine_of):
    lanes = set()

    class Watched(pp.Limits):
        """Records which thread reads the headers. A worker reads the headers of the chunk that it takes."""

        def check_size(self, height, width, n_bytes=None):
            lanes.add(threading.get_ident())
            super().check_size(height, width, n_bytes)

    images = [*distinct(12), *damaged()[::9]]
    arrays, errors = run(engine_of(), images)
    with pp.Engine(pipeline(), device="gpu", limits=Watched(), damage="strict") as engine:
        lanes.clear()
        for _ in range(10):
            many, reasons = run(engine, images * 30)
            assert reasons == errors * 30
            assert all(np.array_equal(many[name], np.concatenate([arrays[name]] * 30)) for name in arrays)
    assert len(lanes) == 2


@pytest.mark.parametrize("damage", ["structural", "strict"])
def test_damage_inside_a_scan_fails_only_its_image(engine_of, record, damage):
    """nvJPEG may decode images that libjpeg-turbo rejects.

    The number of these images is recorded. No other image may be affected.
    """
    rng = np.random.default_rng(11)
    engine, good = engine_of("consistent", damage), distinct(8)
    expected = [tensor.tobytes() for tensor in run(engine_of(), good)[0]["tensor"]]
    numbers = {"images": 0, "refused_by_both": 0, "refused_on_cpu_only": 0, "refused_on_gpu_only": 0}
    for seed in range(40):
        fuzzed = []
        for image in distinct(8, seed=100 * seed):
            data = bytearray(image)
            scan = image.rindex(b"\xff\xda") + 14
            for place in rng.integers(scan, len(data) - 2, 3):
                data[place] = rng.integers(256)
            fuzzed.append(bytes(data))
        arrays, errors = run(engine, [image for pair in zip(good, fuzzed, strict=True) for image in pair])
        assert [tensor.tobytes() for tensor in arrays["tensor"][::2]] == expected
        assert errors[::2] == [None] * 8
        for ours, theirs in zip(errors[1::2], on_cpu(fuzzed)[1], strict=True):
            numbers["images"] += 1
            numbers["refused_by_both"] += bool(ours and theirs)
            numbers["refused_on_cpu_only"] += bool(theirs and not ours)
            numbers["refused_on_gpu_only"] += bool(ours and not theirs)
    record("damage inside a scan", damage=damage, **numbers)
    assert numbers["refused_on_cpu_only"] == 0 or damage == "structural"
    assert numbers["refused_on_gpu_only"] == 0  # the CPU decoder decides which images are rejected
    assert numbers["images"] == 320


def _encodings():
    # at 1,050 x 1,200, Huffman codes are decoded on the GPU
    large = np.repeat(np.repeat(scene(350, 400), 3, axis=0), 3, axis=1)
    return {
        "4:2:0": jpeg(scene(375, 500)),
        "4:4:4": jpeg(scene(375, 500, 1), subsampling=0),
        "progressive": jpeg(scene(375, 500, 2), progressive=True),
        "gray": jpegs()["gray"],
        "over a megapixel": jpeg(large),
        "over a megapixel, progressive": jpeg(large, progressive=True),
        "photo": photo(),
    }


@pytest.mark.parametrize("encoding", _encodings())
def test_an_image_has_the_same_bytes_alone_in_a_batch_of_128_and_20_times(engine_of, encoding):
    image = _encodings()[encoding]
    (alone,) = run(engine_of(), [image])[0]["tensor"]
    engine = engine_of()
    around = distinct(127, seed=1000)
    for index in range(20):
        place = 6 * index
        tensors = run(engine, [*around[:place], image, *around[place:]])[0]["tensor"]
        assert tensors[place].tobytes() == alone.tobytes(), f"repetition {index}"
        assert run(engine, [image])[0]["tensor"].tobytes() == alone.tobytes()
    for tensor in run(engine, [image] * 128)[0]["tensor"]:
        assert tensor.tobytes() == alone.tobytes()


def test_100_closed_engines_free_their_memory(gpu, free_bytes, record):  # noqa: ARG001
    images = [*distinct(16), photo(), png(noise(60, 61))]

    def cycle():
        with pp.Engine(pipeline(), device="gpu") as engine:
            engine.run_batch(images)

    for _ in range(3):
        cycle()
    before, threads = free_bytes(), threading.active_count()
    for _ in range(100):
        cycle()
        gc.collect()
    after = free_bytes()
    record("device memory", what="100 engines made and closed", free_before=before, free_after=after)
    assert before - after <= KEPT
    assert threading.active_count() == threads


def test_2000_invalid_images_do_not_affect_the_memory_and_the_next_batch(engine_of, free_bytes, record):
    engine = engine_of()
    good = distinct(32)
    expected = run(engine, good)
    bad = damaged() + [image[: 300 + 40 * index] for index, image in enumerate(good)]
    refused = [image for image, error in zip(bad, on_cpu(bad)[1], strict=True) if error]
    stream = itertools.cycle(refused)
    run(engine, [next(stream) for _ in range(50)])
    before, count = free_bytes(), 0
    while count < 2000:
        batch = engine.run_batch([next(stream) for _ in range(50)])
        assert all(batch.errors)
        count += 50
        del batch
    after = free_bytes()
    record("device memory", what="2,000 bad images", free_before=before, free_after=after)
    assert before - after <= KEPT
    assert_same(run(engine, good), expected)
