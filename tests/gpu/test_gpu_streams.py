"""Tests the streams, threads and memory of an engine on a GPU."""

import gc
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pixprep as pp

pytest.importorskip("nvidia.nvimgcodec", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
from gpu import fake_cupy
from gpu.fake_cupy import COUNTS, Memory
from gpu.played import PIPELINE, baseline, decoder_of, jpeg, mixed, on_gpu, same
from pixprep.engine.kernels.kernel import CpuKernel
from pixprep.serving.triton.warm_up import warm_up
from support.images import noise

OPEN = pp.Pipeline([pp.decode(), pp.resize(40, max_size=80), pp.tensor(dtype="uint8")])


@pytest.mark.parametrize("most", [1, 10_000, 30_000])
def test_a_batch_is_launched_in_parts_to_limit_the_intermediate_memory(gpu, monkeypatch, most):
    images = [jpeg(50 + index % 7, 900, index) for index in range(28)]
    taken, empty = [], gpu.cupy.empty
    gpu.cupy.empty = lambda shape, dtype: taken.append(shape) or empty(shape, dtype)

    def between(encoded):
        """Return how much memory a batch's intermediate results need that the engine has not allocated yet."""
        engine.trim()
        taken.clear()
        same(engine.run_batch(encoded), cpu.run_batch(encoded))
        return max(shape for shape in taken if isinstance(shape, int))

    with on_gpu() as engine, pp.Engine(PIPELINE) as cpu:
        assert between(images) > 30_000
        largest_of_one_image = max(between([image]) for image in images)
        monkeypatch.setattr(sys.modules["pixprep.gpu.kernel"], "MIDDLE_BYTES", most)
        for _ in range(2):
            assert 0 < between(images) <= max(most, largest_of_one_image)


def test_a_stream_outlives_its_thread_and_its_device_and_is_reused(gpu):
    """nvImageCodec frees memory at any later time, on the stream on which it was allocated."""
    fake = gpu.cupy.cuda.Stream

    def streams():
        device = gpu.Gpu(0)

        def stream():
            with device.lane():
                return id(fake.current())

        with device.lane(), ThreadPoolExecutor(1) as pool:  # the threads use two lanes at the same time
            return {id(fake.current()), pool.submit(stream).result(), pool.submit(stream).result()}

    gc.collect()  # collects objects of earlier tests
    made, destroyed = fake.made, fake.destroyed
    first = streams()
    assert len(first) == 2
    for _ in range(3):
        gc.collect()
        assert streams() == first
    assert fake.made <= made + 2  # streams of earlier tests may be reused
    assert fake.destroyed == destroyed


def test_memory_does_not_depend_on_the_number_of_calling_threads_and_outputs(gpu):  # noqa: ARG001  (it makes "gpu" the fake one)
    """Lanes own the buffers."""
    ops = [pp.decode(), pp.resize(height=36, width=36, name="small"), pp.tensor(name="one")]
    pipeline = pp.Pipeline([*ops, pp.tensor(name="two", from_="small")])
    images = [jpeg(600, 56, seed) for seed in range(4)] * 5

    def used(threads, **options):
        """Return the number of used bytes after each thread has run one batch. All threads exist at the same time."""
        before, meeting, turn = Memory.settled(), threading.Barrier(threads + 1, timeout=60), threading.Lock()
        with on_gpu(pipeline) as engine, ThreadPoolExecutor(threads) as pool:

            def call():
                with turn:
                    engine.run_batch(images, **options)
                meeting.wait()

            started = [pool.submit(call) for _ in range(threads)]
            meeting.wait()
            for each in started:
                each.result()
            return Memory.settled() - before

    both = used(1)
    assert used(8) == both
    assert both < 1.5 * used(1, outputs=["one"])


class DeviceImage:
    """Image of nvImageCodec in device memory, whose rows may have a pitch."""

    def __init__(self, gpu, values, stream, *, gap):
        height, width, channels = values.shape
        pitch = width * channels + gap
        self.buffer_kind = gpu.codec.ImageBufferKind.STRIDED_DEVICE
        self.memory = np.full(height * pitch, 99, np.uint8)
        rows = np.lib.stride_tricks.as_strided(self.memory, values.shape, (pitch, channels, 1))
        rows[...] = values
        data = (self.memory.ctypes.data, False)
        strides = (pitch, channels, 1) if gap else None
        self.__cuda_array_interface__ = {
            "shape": values.shape, "strides": strides, "typestr": "|u1", "data": data, "version": 3, "stream": stream
        }  # fmt: skip


@pytest.mark.parametrize("gap", [0, 5])
def test_pixels_from_the_workers_own_stream_do_not_cause_a_wait(gpu, gap):
    """A wait would cost one synchronization per image. It is necessary only if the pixels come from a different
    stream.
    """
    to_array = sys.modules["pixprep.gpu.nvimagecodec"].to_array
    values, stream = noise(30, 41), gpu.cupy.cuda.Stream(non_blocking=True)
    stream.ptr = 4711
    for said, waited in ((4711, ()), (4712, (4712,))):
        gpu.cupy.cuda.Stream.synchronized = ()
        with stream:
            array = to_array(DeviceImage(gpu, values, said, gap=gap))
        assert gpu.cupy.cuda.Stream.synchronized == waited
        assert np.array_equal(array, values)
        assert array.strides[0] == 41 * 3 + gap
        gc.collect()  # the array must keep the image's memory alive
        assert np.array_equal(array, values)


def test_memory_can_be_freed_while_a_batch_runs(engine):
    """The watchdog's thread frees memory. Images that a worker is processing stay allocated until they are finished."""
    images = [jpeg(50, 70, seed) for seed in range(64)]
    whole = engine.run_batch(images)

    def trim():
        for _ in range(20):
            time.sleep(0.0005)
            engine.trim()

    with ThreadPoolExecutor(1) as pool:
        trimmed = pool.submit(trim)
        while not trimmed.done():
            same(engine.run_batch(images), whole)
        trimmed.result()


@pytest.mark.parametrize("pipeline", [PIPELINE, OPEN], ids=["fixed size", "open size"])
def test_the_kernels_wait_for_work_that_the_caller_has_queued(gpu, pipeline):
    """An output may reuse the memory of a tensor that the caller has freed, but that the caller's model may still be
    reading.
    """
    fake = gpu.cupy.cuda.Stream
    with on_gpu(pipeline) as engine:
        for _ in range(2):
            fake.waited_for = ()
            with fake(non_blocking=True) as callers:
                callers.enqueue(lambda: None)
                engine.run_batch([jpeg(50, 70, seed) for seed in range(8)])
            assert {event.stream for event in fake.waited_for} == {callers}


def test_the_kernels_wait_for_the_work_of_every_thread_that_calls_the_engine(gpu, monkeypatch):
    """Two threads allocate their outputs at the same time, on default streams of their own with the same address."""
    fake, device = gpu.cupy.cuda.Stream, gpu.Gpu(0)
    first, second = fake(non_blocking=True), fake(non_blocking=True)
    first.ptr = second.ptr = 2

    def allocate(stream):
        with stream:
            stream.enqueue(lambda: None)
            device.follow()

    def record(record=first.record):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(allocate, second).result()
        return record()

    monkeypatch.setattr(first, "record", record)
    allocate(first)
    monkeypatch.setattr(fake, "waited_for", ())
    with device.lane():
        assert {event.stream for event in fake.waited_for} == {first, second}


OPS = {
    "a fixed size": ([pp.resize(height=24, width=20), pp.tensor()], (4, 2, 0, 2)),
    "open sizes": ([pp.resize(20, max_size=40), pp.normalize(), pp.tensor()], (4, 2, 0, 2)),
    "open sizes, changed levels": ([pp.resize(20, max_size=40), pp.contrast(1.5), pp.tensor()], (6, 2, 0, 2)),
    "padded patches": (
        [pp.resize_to_patches(patch_size=16, max_patches=9),
         pp.patches(16, max_patches=16, layout="hwc", name="tensor")], (4, 2, 2, 2),
    ),
    "tiles and thumbnails": (
        [pp.resize_to_tiles(tile_size=28, max_tiles=4), pp.tiles(28, thumbnail="last", name="tensor")], (4, 2, 0, 2),
    ),
    "thumbnails of the tiles": (
        [pp.resize_by_rule(rule="idefics3", size=40), pp.resize_by_rule(rule="up", multiple=28, again=True),
         pp.tiles(28, thumbnail="last", thumbnail_of="tiles", name="tensor")], (12, 6, 0, 2),
    ),
    "a step of the CPU": ([pp.resize(height=24, width=20), pp.clahe(only="serving"), pp.tensor()], (0, 128, 0, 128)),
}  # fmt: skip


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", OPS)
def test_images_of_all_sizes_share_the_launches_of_their_chunk(name):
    """Each of the two chunks needs one upload, and one wait at its end.

    If the CPU runs the plan, the only copies are those of the tensors.
    """
    ops, expected = OPS[name]
    images = [jpeg(30 + index, 40 + 3 * index % 64, index) for index in range(128)]
    pipeline = pp.Pipeline([pp.decode(), *ops])
    with on_gpu(pipeline) as engine, pp.Engine(pipeline) as cpu:
        for _ in range(2):  # the first batch allocates the buffers
            COUNTS.clear()
            batch = engine.run_batch(images)
            assert tuple(COUNTS[each] for each in ("launches", "copies", "memsets", "waits")) == expected
        for ours, theirs in zip(batch["tensor"], cpu.run_batch(images)["tensor"], strict=True):
            assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("pipeline", [PIPELINE, OPEN], ids=["fixed size", "open size"])
def test_two_batches_are_in_flight_and_the_third_waits_for_the_first(gpu, pipeline):
    """The mock of nvImageCodec overwrites its images immediately, and the kernels run as late as possible."""
    gpu.codec.Decoder.hardware = 7
    groups = [[jpeg(40 + index % 9, 56 + group, 9 * group + index) for index in range(24)] for group in range(5)]
    with on_gpu(pipeline) as engine, pp.Engine(pipeline) as cpu:
        batches = []
        for group, images in enumerate(groups):
            COUNTS.clear()
            batches.append(engine.run_batch(images, wait=False))
            assert COUNTS["waits"] == (0 if group < 2 else 2)  # one for each of the two chunks
        assert all((tensor == 99).all() for tensor in batches[-1]["tensor"])  # not computed yet
        for batch, images in zip(batches, groups, strict=True):
            batch.wait()
            theirs = cpu.run_batch(images)["tensor"]
            assert all(np.array_equal(ours, each) for ours, each in zip(batch["tensor"], theirs, strict=True))


@pytest.mark.usefixtures("gpu")
def test_the_memory_of_a_batch_in_flight_is_kept_until_its_work_has_finished():
    """The caller may drop the batch. CuPy's pool must not give its memory to the next batch yet."""
    with on_gpu() as engine:
        batch = engine.run_batch(baseline(3), wait=False)
        dropped, queued = weakref.ref(batch["tensor"]), batch.queued
        del batch
        assert dropped() is not None
        for each in queued:
            each.wait()
        assert dropped() is None


def test_the_thread_of_a_loader_reads_the_next_batch_without_waiting_for_the_gpu(gpu):  # noqa: ARG001
    """The consumer waits when it receives a batch. A broken sample is replaced after a wait."""
    source = [{"image": b"no image" if index == 50 else jpeg(60 + index % 7, 80, index)} for index in range(72)]
    options = {"batch_size": 24, "prefetch": 2, "on_error": "replace", "max_errors": 1}
    with pp.Loader(source, PIPELINE, device="gpu", **options) as ours, pp.Loader(source, PIPELINE, **options) as cpu:
        COUNTS.clear()
        batches = iter(ours)
        while len(batches._ready._ready) < 2:
            time.sleep(0.001)
        assert not COUNTS["waits"]
        for batch, expected in zip(batches, cpu, strict=True):
            assert np.abs(batch["tensor"].astype(int) - expected["tensor"].astype(int)).mean() < 3
        assert COUNTS["waits of MainThread"]


@pytest.mark.parametrize(("codec", "is_behind"), [("consistent", False), ("cuda", True)])
def test_before_a_hardware_decode_alone_the_host_waits_for_the_caller(gpu, monkeypatch, codec, is_behind):
    """nvJPEG's hardware decoder may write before the work queued earlier in its stream has finished."""
    fake, decoder, behind = gpu.cupy.cuda.Stream, gpu.codec.Decoder, []
    decoder.hardware = 7
    decode = decoder.decode
    with on_gpu(decoder=codec) as engine, fake(non_blocking=True) as caller:
        monkeypatch.setattr(
            decoder, "decode", lambda *given, **more: (behind.append(bool(caller.queue)), decode(*given, **more))[1]
        )
        caller.enqueue(lambda: None)
        engine.run_batch(baseline(3))
    assert behind == [is_behind]


def test_a_kernel_that_is_called_again_does_not_wait_for_its_last_upload(gpu):
    """Each upload of a lane has its own memory. The mock reads this memory only when the lane waits."""
    plan = PIPELINE.plan.outputs["tensor"]
    pixels = [noise(50 + index, 70, seed=index) for index in range(9)]
    expected = np.empty((len(pixels), *plan.spec.shape), plan.spec.dtype)
    placements = [plan.geometry.place(*image.shape[:2]) for image in pixels]
    padded = [np.dstack([image, image[:, :, :1]]) for image in pixels]
    CpuKernel(plan).run(padded, placements, expected, range(len(pixels)))
    device = gpu.Gpu(0)
    kernel, outs = device.kernel(plan), gpu.cupy.empty(expected.shape, plan.spec.dtype)
    COUNTS.clear()
    for _ in range(2):  # the second time, the lane has memory for all uploads
        with device.lane():
            for index, image in enumerate(pixels):
                kernel.run([gpu.cupy.asarray(image)], [placements[index]], outs, [index])
        assert np.array_equal(outs, expected)
        outs.fill(99)
    assert COUNTS["waits"] == 2


@pytest.mark.parametrize(("ops", "decoders"), [([], 1), ([pp.clahe()], 0)], ids=["GPU", "CPU"])
def test_a_closed_engine_has_no_threads_and_no_decoder(gpu, ops, decoders):
    """If the CPU runs the plan, the engine does not create a decoder of nvImageCodec."""
    before = threading.active_count()
    with on_gpu(PIPELINE.inserting(*ops) if ops else PIPELINE, threads=2) as engine:
        engine.run_batch(mixed())
        assert threading.active_count() > before
        assert len(gpu.codec.Decoder.alive) == decoders
        engine.trim()
    assert threading.active_count() == before
    assert not gpu.codec.Decoder.alive  # a living decoder would keep nvImageCodec's threads and device memory
    engine.close()  # a user may close an engine after a with statement has closed it


def test_an_error_reports_that_the_gpu_has_stopped_working(engine, gpu, monkeypatch):
    """After an illegal address, for example, every CUDA call of this process fails."""
    runtime = gpu.cupy.cuda.runtime
    monkeypatch.setattr(runtime, "broken", "cudaErrorIllegalAddress: an illegal memory access was encountered")
    with pytest.raises(runtime.CUDARuntimeError):
        engine.run_batch([jpeg(50, 70)])
    assert not engine.is_working()
    monkeypatch.undo()
    assert engine.is_working()


@pytest.mark.parametrize(("threads", "expected"), [(1, (1, 1)), (5, (5, 5)), (12, (12, 8)), (96, (12, 8))])
def test_nvimagecodec_uses_only_as_many_threads_and_streams_as_memory_allows(gpu, monkeypatch, threads, expected):
    """It must also use fewer threads than there are cores; otherwise, each decoder would print a warning and use one
    thread less.
    """
    monkeypatch.setattr(sys.modules["pixprep.gpu.nvimagecodec"], "cores", lambda: 13)
    with on_gpu(threads=threads):
        made = gpu.codec.Decoder.made[-1]
    assert (made.threads, made.options[0]) == (expected[0], f":num_cuda_streams={expected[1]}")


def test_a_used_decoder_is_recreated_to_free_memory(engine, gpu):
    """The decoder is recreated between batches. Like the first decoder, the new one starts with a full batch."""
    decoder = gpu.codec.Decoder

    def made():
        """Return how many decoders were created since the engine started. Only the last decoder may be alive."""
        assert len(decoder.alive) == 1
        return len(decoder.made) - at_first

    at_first = len(decoder.made)
    engine.trim()
    assert made() == 0
    engine.run_batch(baseline(3))
    decoder.shares = ()
    engine.trim()
    assert made() == 1
    assert decoder.shares == ((0, 128),)
    engine.trim()
    assert made() == 1
    engine.run_batch(baseline(3))
    decoder.fault = "out of memory"  # the new decoder fails, because the old one keeps its stream
    engine.trim()
    assert made() == 2
    decoder.fault = None
    assert engine.run_batch(baseline(3)).fallbacks == 0


def test_cudas_own_pool_keeps_freed_memory_until_a_trim(gpu):
    """nvImageCodec allocates its buffers from this pool."""
    fake_cupy.OWN_POOL.clear()
    with on_gpu() as engine:
        runtime = gpu.cupy.cuda.runtime
        kept, no_other_stream = (
            runtime.cudaMemPoolAttrReleaseThreshold,
            runtime.cudaMemPoolReuseAllowInternalDependencies,
        )
        assert {kept: 1 << 30, no_other_stream: 0} == fake_cupy.OWN_POOL
        engine.trim()
        assert fake_cupy.OWN_POOL["trimmed"] == 0


def test_a_gpu_without_cudas_memory_pool_is_supported(gpu, monkeypatch):
    monkeypatch.setattr(gpu.cupy.cuda.runtime, "poolless", True)
    with on_gpu() as engine:
        assert engine.run_batch(baseline(1)).errors == [None]
        engine.trim()


def test_no_decoder_is_freed_while_its_images_are_in_use(gpu):
    decoder = decoder_of(gpu)
    at_first = len(gpu.codec.Decoder.made)
    (chunk,) = decoder.chunks(baseline(3), [PIPELINE.plan.place] * 3)
    with decoder.lane, decoder.decode(chunk):
        decoder.trim()
        assert len(gpu.codec.Decoder.made) == at_first
    decoder.trim()
    assert len(gpu.codec.Decoder.made) == at_first + 1


def test_nvimagecodec_is_only_called_on_the_engines_gpu(gpu):
    """This applies to creation, comparison with the CPU, decoding and recreation.

    Outside the engine's device context, nvImageCodec would use the first GPU.
    """
    gpu.codec.Decoder.hardware = 7
    with on_gpu() as engine:
        engine.run_batch(baseline(40))
        engine.trim()
    assert gpu.codec.Decoder.outside == 0
    decoder_of(gpu)
    assert gpu.codec.Decoder.outside > 0  # as a negative control, calls outside are counted


def test_warm_up_runs_on_both_workers(gpu):
    with on_gpu() as engine:
        gpu.codec.Decoder.shares = ()
        warm_up(engine)
    assert gpu.codec.Decoder.shares == ((0, 8), (0, 8))
