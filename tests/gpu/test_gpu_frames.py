"""Tests arrays in device memory: frames, arrays for custom operators, and batches that are passed to CuPy."""

import re

import numpy as np
import pytest

import pixprep as pp
from gpu.played import AFTER_DECODE, PIPELINE, jpeg
from pixprep.engine.options import EngineOptions
from pixprep.serving.triton.warm_up import warm_up
from support.images import scene


def test_a_batch_is_handed_to_cupy_in_place(gpu):
    """Pixels on the GPU are not copied. Host arrays are uploaded, and strings stay on the host."""
    source = [{"image": jpeg(60 + index, 80, index), "label": index, "name": str(index)} for index in range(8)]
    for device in ("gpu", "cpu"):
        with pp.Loader(source, PIPELINE, batch_size=8, device=device) as ours:
            (batch,) = ours
            images, labels = batch.cupy("tensor", "label")
            assert type(images) is type(labels) is gpu.cupy.ndarray
            assert np.shares_memory(images, batch["tensor"]) == (device == "gpu")
            assert np.array_equal(images.get(), np.asarray(batch["tensor"]))
            assert labels.get().tolist() == list(range(8))
            assert batch.cupy()["name"] == [str(index) for index in range(8)]


class OfTriton:
    """Tensor of Triton's Python backend in device memory, as CUDA shared memory provides it."""

    def __init__(self, array):
        self._array = array

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self):
        return self._array


class OfTorch(OfTriton):
    """Tensor of PyTorch. Its array interface does not name the stream that computes it, but DLPack waits for it."""

    @property
    def __cuda_array_interface__(self):
        raise AssertionError("nobody waits for the stream that computes the tensor")


class Elsewhere(OfTriton):
    def __dlpack_device__(self):
        return 2, 1


def test_the_work_that_computes_the_pixels_is_waited_for(gpu):
    """The lanes wait for the streams of all callers, because several threads may call an engine."""
    device, stream = gpu.Gpu(0), gpu.cupy.cuda.Stream
    pixels = OfTorch(gpu.cupy.asarray(scene(60, 90)))
    callers = [stream(non_blocking=True) for _ in range(2)]
    stream.waited_for = ()
    for number, caller in enumerate(callers):
        caller.ptr = number + 1
        with caller:
            caller.enqueue(lambda: None)
            device.array(pixels)
    with device.lane():
        assert [event.stream for event in stream.waited_for] == callers
    own = stream.current()
    own.enqueue(lambda: None)
    device.follow()  # forgets the work that has finished
    stream.waited_for = ()
    with device.lane():
        assert [event.stream for event in stream.waited_for] == [own]
    device.close()


def test_the_lanes_wait_for_the_stream_of_a_cupy_array(gpu):
    device, stream = gpu.Gpu(0), gpu.cupy.cuda.Stream
    caller = stream(non_blocking=True)
    with caller:
        device.array(gpu.cupy.asarray(scene(60, 90)))
    stream.waited_for = ()
    with device.lane():
        assert caller in [event.stream for event in stream.waited_for]
    device.close()


def test_pixels_in_the_memory_of_another_gpu_are_rejected(gpu):
    """A kernel that reads them would end all work of the process on the GPU."""
    pipeline = pp.Pipeline([pp.pixels(), *AFTER_DECODE])
    elsewhere = gpu.cupy.asarray(scene(60, 90))
    elsewhere.gpu_index = 1
    message = (
        "is in the memory of GPU 1, but the device of the engine is gpu:0: copy the array to that GPU, or "
        'create an engine with device="gpu:1"'
    )
    with pp.Engine(pipeline, device="gpu") as engine:
        for array in (elsewhere, Elsewhere(elsewhere)):
            with pytest.raises(TypeError, match=f"^image 1 of 1: {type(array).__name__} {re.escape(message)}$"):
                engine.run([array])


@pytest.mark.usefixtures("gpu")
def test_failed_rows_and_padded_batches_are_written_on_the_engines_own_gpu():
    """The mock rejects writes outside of a device context, where CUDA would use the first GPU."""
    resize = pp.Pipeline([pp.decode(), pp.resize(32, max_size=96), pp.tensor(dtype="uint8")])
    for pipeline in (PIPELINE, resize):
        images = [pp.ImageError("READ", "the object is missing"), jpeg(60, 80), jpeg(90, 50)]
        expected = pp.Engine(pipeline).run_batch(images)
        with pp.Engine(pipeline, device="gpu") as engine:
            batch = engine.run_batch(images)
            padded = batch.padded("tensor") if pipeline is resize else batch["tensor"]
            assert np.array_equal(padded.get(), expected.padded("tensor") if pipeline is resize else expected["tensor"])
            assert not padded.get()[0].any()


@pytest.mark.parametrize("given", ["rgb", "bgr"])
def test_frames_in_device_memory_are_used_in_place(gpu, given):
    pipeline = pp.Pipeline([pp.pixels(color="rgb", given=given), *AFTER_DECODE])
    photos = [scene(60 + 7 * n, 90 - 5 * n, n) for n in range(9)]
    expected = pp.Engine(pipeline, threads=1).run_batch(photos)
    on_device = [gpu.cupy.asarray(photo) for photo in photos]
    rows_apart = gpu.cupy.asarray(np.pad(photos[0], [(0, 0), (0, 5), (0, 0)]))[:, :-5]
    with pp.Engine(pipeline, device="gpu") as engine:
        for arrays in (photos, on_device, [*photos[:4], *on_device[4:]], [rows_apart, *on_device[1:]]):
            batch = engine.run_batch(arrays)
            assert batch.errors == [None] * 9
            assert np.array_equal(batch["tensor"].get(), expected["tensor"])
            assert np.array_equal(batch["transform"], expected["transform"])
        refused = engine.run([photos[0], np.zeros((20, 30), np.uint8), np.zeros((0, 30, 3), np.uint8)])
        assert [getattr(result, "reason", None) for result in refused] == [None, "UNSUPPORTED", "BAD_DIMENSIONS"]
        frames = engine.split(OfTriton(gpu.cupy.asarray(np.stack([photos[0], photos[0]]))))
        assert len(frames) == 2
        assert all(np.array_equal(one.get(), expected["tensor"][0]) for one in engine.run(frames))
        warm_up(engine)


def test_a_frame_in_device_memory_is_not_copied(gpu):
    plan = pp.Pipeline([pp.pixels(), *AFTER_DECODE]).plan
    device = gpu.Gpu(0)
    decoder = device.decoder(plan, EngineOptions())
    frames = [gpu.cupy.asarray(scene(60, 90, n)) for n in range(5)]
    chunks = list(decoder.chunks(frames, [plan.place] * 5))
    assert [len(chunk.indices) for chunk in chunks] == [3, 2]
    with device.lane(), decoder.decode(chunks[0]) as images:
        assert [image.pixels.data.ptr for image in images] == [frame.data.ptr for frame in frames[:3]]
    device.close()


def test_operators_receive_arrays_of_the_library_that_they_declare(gpu):
    seen = []

    @pp.operator("acme.either", version=1, arrays=("numpy", "cupy"))
    def either(pixels):
        seen.append(isinstance(pixels, gpu.cupy.ndarray))
        return pixels[::-1]

    @pp.operator("acme.host", version=1)
    def host(pixels):
        seen.append(isinstance(pixels, gpu.cupy.ndarray))
        return np.minimum(pixels, 99)

    @pp.operator("acme.cuda", version=1, place="tensor", shape=(36, 108), dtype="uint8", arrays="cupy")
    def cuda(tensor):
        seen.append(isinstance(tensor, gpu.cupy.ndarray))
        return gpu.cupy.ascontiguousarray(tensor.transpose(1, 2, 0)).reshape(36, 108)

    @pp.operator("acme.odd", version=1)
    def odd(pixels):
        if pixels[0, 0, 0] == 3:
            raise ValueError
        return pixels

    crop = pp.resize(height=36, width=36)
    ops = [pp.pixels(), crop, either(), host(), odd(), pp.tensor(dtype="uint8"), cuda()]
    photos = [scene(60 + 7 * n, 90, n) for n in range(4)]
    with pp.Engine(pp.Pipeline(ops), device="gpu") as engine:
        results = engine.run([*photos, np.full((50, 50, 3), 3, np.uint8)])
    assert len(seen) == 4 * 3 + 2
    assert sum(seen) == 4 * 2 + 1
    by_hand = [np.minimum(pp.apply(crop, photo)[::-1], 99) for photo in photos]
    for result, levels in zip(results, by_hand, strict=False):
        assert np.array_equal(result.get(), levels.reshape(36, 108))
    assert results[-1].reason == "OPERATOR"
