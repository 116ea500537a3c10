"""Tests of the backend's own logic, with a fake of Triton's Python module."""

import base64
import io
import json
import struct
import sys
import threading
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.engine.engine import Engine
from pixprep.serving.triton import pool
from pixprep.serving.triton.patience import ASK_BYTES
from support import images


class FakeMetric:
    is_open = threading.Event()  # Triton's metrics accept only a float
    is_open.set()
    is_told = threading.Event()

    def __init__(self, family, labels):
        self.family, self.labels, self.values = family, labels, []

    def increment(self, value):
        self.is_told.set()
        assert self.is_open.wait(120)
        self.values.append(value)

    observe = set = increment


class FakeFamily:
    COUNTER, HISTOGRAM, GAUGE = "counter", "histogram", "gauge"
    made: list = []  # noqa: RUF012  (one fake server's metrics; the fixture empties it)

    def __init__(self, *, name, description, kind):
        assert description
        self.name, self.kind = name, kind

    def Metric(self, *, labels, buckets=None):
        assert (buckets is not None) == (self.kind == self.HISTOGRAM)
        FakeFamily.made.append(FakeMetric(self.name, labels))
        return FakeFamily.made[-1]


class FakeError:
    INVALID_ARG, INTERNAL, CANCELLED, UNAVAILABLE = "INVALID_ARG", "INTERNAL", "CANCELLED", "UNAVAILABLE"

    def __init__(self, message, code):
        self.message, self.code = message, code


@dataclass
class FakeRequest:
    images: object
    outputs: tuple = ("tensor",)
    name: str = "image"
    numbers: dict = field(default_factory=dict)
    word: str = ""
    is_given_up: bool = False

    def is_cancelled(self):
        return self.is_given_up

    def parameters(self):
        return json.dumps({"pixprep-probe": self.word} if self.word else {})

    def requested_output_names(self):
        return set(self.outputs)  # Triton also returns a set


@dataclass
class FakeTensor:
    name: str
    values: object

    @classmethod
    def from_dlpack(cls, name, values):
        return cls(name, ("dlpack", values))

    def as_numpy(self):
        return self.values

    def is_cpu(self):
        return True


@dataclass
class FakeResponse:
    output_tensors: list = field(default_factory=list)
    error: FakeError | None = None

    def __getitem__(self, name):
        return next(tensor.values for tensor in self.output_tensors if tensor.name == name)


def input_of(request, name):
    if name in request.numbers:
        return FakeTensor(name, np.asarray(request.numbers[name]))
    assert name == request.name
    if isinstance(request.images, np.ndarray):
        return FakeTensor(name, request.images)
    rows = np.empty((len(request.images), 1), dtype=np.object_)
    rows[:, 0] = request.images
    return FakeTensor(name, rows)


@pytest.fixture
def model_class(monkeypatch):
    FakeFamily.made = []
    logged = []
    log = SimpleNamespace(log_error=logged.append, log_warn=logged.append, log_info=logged.append)
    fake = SimpleNamespace(
        MetricFamily=FakeFamily, TritonError=FakeError, Tensor=FakeTensor, InferenceResponse=FakeResponse, Logger=log,
        get_input_tensor_by_name=input_of,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake)
    monkeypatch.delitem(sys.modules, "pixprep.serving.triton.model", raising=False)
    from pixprep.serving.triton.model import TritonPythonModel  # noqa: PLC0415  (it imports the fake)

    TritonPythonModel.logged = logged
    yield TritonPythonModel
    sys.modules.pop("pixprep.serving.triton.model")


@pytest.fixture
def start(model_class, tmp_path):
    started = []

    def _start(pipeline=None, device="CPU", **config):
        (tmp_path / "1").mkdir(exist_ok=True)
        pipeline = pipeline or pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor(dtype="uint8")])
        pipeline.save(tmp_path / "1" / "pipeline.json")
        model = model_class()
        model.initialize(
            {
                "model_config": json.dumps(config),
                "model_repository": str(tmp_path),
                "model_version": "1",
                "model_name": "pre",
                "model_instance_kind": device,
                "model_instance_device_id": "1",
            }
        )
        started.append(model)
        return model

    yield _start
    for model in started:
        model.finalize()


def jpeg(height=20, width=30, level=128):
    return images.jpeg(np.full((height, width, 3), (level, 0, 255 - level), np.uint8))


def zero(**parameters):
    return {"parameters": {key: {"string_value": value} for key, value in parameters.items()}}


def counted(model):
    """Wait until all metrics are sent, and return the values that Triton received, by metric and result."""
    model.finalize()
    return {(metric.family, metric.labels.get("result")): metric.values for metric in FakeFamily.made}


def test_a_broken_image_fails_only_its_own_request(start):
    valid, bad, other = start().execute(
        [FakeRequest([jpeg()]), FakeRequest([jpeg(), b"junk", jpeg()[:60]]), FakeRequest([jpeg()])]
    )
    assert valid.error is None
    assert other.error is None
    assert bad.error.code == "INVALID_ARG"
    two, three = bad.error.message.split("; ")
    assert two.startswith("[UNKNOWN_FORMAT] image 2 of 3: ")
    assert three.startswith("[TRUNCATED] image 3 of 3: ")
    (many,) = start().execute([FakeRequest([b"x"] * 5)])  # the message lists three errors and counts the rest
    assert many.error.message.count("UNKNOWN_FORMAT") == 3
    assert many.error.message.endswith("; and 2 more")


def test_each_request_is_padded_to_its_own_largest_image(start):
    pipeline = pp.Pipeline(
        [pp.decode(), pp.resize(height=8, max_size=90), pp.image_size(name="size"), pp.tensor(pad_value=7.0)]
    )
    model = start(pipeline, **zero(on_error="zero"))
    names = ("tensor", "size", "status")
    two, one, none = model.execute(
        [
            FakeRequest([jpeg(16, 16), jpeg(16, 60), b"junk"], names),
            FakeRequest([jpeg(16, 24)], names),
            FakeRequest([b"junk"], names),
        ]
    )
    assert two["tensor"].shape == (3, 3, 8, 30)
    assert two["size"].tolist() == [[8, 8], [8, 30], [0, 0]]
    assert (two["tensor"][0, :, :, 8:] == 7).all()
    assert not (two["tensor"][0, :, :, :8] == 7).all()
    assert one["tensor"].shape == (1, 3, 8, 12)
    assert none["tensor"].shape == (1, 3, 8, 1)
    assert none["status"][0][0].startswith(b"[UNKNOWN_FORMAT]")


CROPS = pp.Pipeline([pp.decode(), pp.crop(box="boxes"), pp.resize(height=8, width=8), pp.tensor(dtype="uint8")])
BOXES = [[0, 0, 30, 20], [5, 5, 9, 9]]


def test_inputs_belong_to_the_images_of_their_request(start):
    model = start(pp.Pipeline([pp.decode(), pp.letterbox(8, 8, fill="paint"), pp.tensor(dtype="uint8")]))
    paints = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    requests = [
        FakeRequest([jpeg(), jpeg()], numbers={"paint": np.array(paints[:2], np.uint8)}),
        FakeRequest([]),
        FakeRequest([jpeg()], numbers={"paint": np.array(paints[2:], np.uint8)}),
    ]
    first, empty, last = model.execute(requests)
    assert empty.error.code == "INVALID_ARG"
    assert [tensor[:, 0, 0].tolist() for tensor in (*first["tensor"], *last["tensor"])] == paints


def test_invalid_boxes_are_named_and_fail_only_their_own_request(start):
    bad = [[40, 0, 50, 9], BOXES[0], [5, 5, 5, 9]]
    requests = [FakeRequest([jpeg()], numbers={"boxes": np.array(boxes, np.float32)}) for boxes in (bad, BOXES)]
    refused, valid = start(CROPS).execute(requests)
    assert valid["tensor"].shape == (2, 3, 8, 8)
    assert refused.error.message == (
        '[DOES_NOT_FIT] image 1 of 1: "boxes", row 1 of 3: 40, 0, 50, 9 is outside the image of 20 x 30 pixels; '
        '[BAD_INPUT] image 1 of 1: "boxes", row 3 of 3: must be left, top, right, bottom with left < right and top < '
        "bottom, not 5, 5, 5, 9"
    )


@pytest.mark.parametrize("on_error", ["fail", "zero"])
def test_a_cancelled_request_is_not_decoded_if_it_is_large_or_follows_another_one(start, on_error):
    """The requests with large images come first. The last request is also cancelled, but cancellation is not checked
    right before it.
    """
    model, small, large = start(**zero(on_error=on_error, threads="1")), jpeg(), images.jpeg(images.noise(400, 400))
    assert len(large) > ASK_BYTES > 9 * len(small)
    sent = [([small, large], True), ([small], True), ([small], False), ([small], True)]
    requests = [FakeRequest(files, is_given_up=is_given_up) for files, is_given_up in sent]
    *refused, valid, unasked = model.execute(requests)
    for response in refused:
        assert response.error.code == "CANCELLED"
        assert response.error.message == "[ABANDONED] the client cancelled the request"
    assert valid["tensor"].shape == unasked["tensor"].shape == (1, 3, 8, 8)
    told = counted(model)
    assert (told["pixprep_images_total", "ok"], told["pixprep_images_total", "ABANDONED"]) == ([2], [3])


def test_only_a_request_whose_tensors_do_not_fit_into_memory_fails(start, monkeypatch):
    """The device has memory for the tensors of two images, but the outputs of all requests are allocated together."""
    model = start()
    engine, made = model._engine, model._engine._device.empty

    def empty(shape, dtype):
        if shape[0] > 2:
            raise MemoryError("Out of memory allocating 576 bytes")
        return made(shape, dtype)

    monkeypatch.setattr(engine._device, "empty", empty)
    sent = [[jpeg(level=1)], [jpeg(level=2)] * 3, [jpeg(level=3), jpeg(level=4)]]
    one, refused, two = model.execute([FakeRequest(files) for files in sent])
    assert (refused.error.code, refused.error.message) == (
        "UNAVAILABLE",
        "[NO_MEMORY] Out of memory allocating 576 bytes",
    )
    for response, files in ((one, sent[0]), (two, sent[2])):
        assert np.array_equal(response["tensor"], engine.run(files))


@pytest.mark.parametrize("on_error", ["fail", "zero"])
def test_an_image_that_does_not_fit_into_memory_can_be_sent_again(start, monkeypatch, on_error):
    """The error is temporary, unlike that of an invalid image, and does not affect the other request."""
    model, run = start(**zero(on_error=on_error)), Engine._run_chunk

    def run_chunk(engine, chunk, valid, *more, **options):
        if any(valid[index] == 1 for index in chunk.indices):
            raise MemoryError
        return run(engine, chunk, valid, *more, **options)

    monkeypatch.setattr(Engine, "_run_chunk", run_chunk)
    small, refused = model.execute([FakeRequest([jpeg()]), FakeRequest([jpeg()])])
    assert small["tensor"].any()
    if on_error == "fail":
        assert refused.error.code == "UNAVAILABLE"
        assert refused.error.message.startswith("[NO_MEMORY] image 1 of 1: the device does not have enough free memory")
    else:
        assert not refused["tensor"].any()


def test_a_broken_photo_is_reported_once_for_all_its_boxes(start):
    (refused,) = start(CROPS).execute([FakeRequest([b"junk"], numbers={"boxes": np.array(BOXES * 9, np.float32)})])
    assert refused.error.message.startswith("[UNKNOWN_FORMAT] image 1 of 1: ")
    assert ";" not in refused.error.message


def test_each_box_is_counted(start):
    model = start(CROPS)
    boxes = np.array([*BOXES, [40, 0, 50, 9]], np.float32)
    model.execute([FakeRequest([jpeg()], numbers={"boxes": boxes})])
    told = counted(model)
    assert (told["pixprep_images_total", "ok"], told["pixprep_images_total", "DOES_NOT_FIT"]) == ([2], [1])
    assert told["pixprep_encoded_bytes_total", None] == [len(jpeg())]


@pytest.mark.parametrize("images", [[], np.empty((0,), np.object_), np.empty((1, 0), np.uint8)])
def test_a_request_without_images_is_rejected(start, images):
    (response,) = start().execute([FakeRequest(images)])
    assert (response.error.code, response.error.message) == (
        "INVALID_ARG",
        "[EMPTY] the request does not contain an image",
    )


def test_only_requested_outputs_are_computed_and_sent(start, monkeypatch):
    pipeline = pp.Pipeline([pp.decode(), pp.original_size(), pp.resize(height=8, width=8), pp.tensor()])
    model = start(pipeline)
    kernel = model._engine._kernels["tensor"]
    monkeypatch.setattr(kernel, "run", lambda *_: pytest.fail("the tensor was not asked for"))
    (response,) = model.execute([FakeRequest([jpeg(20, 30)], ("original_size",))])
    assert [tensor.name for tensor in response.output_tensors] == ["original_size"]
    assert response["original_size"].tolist() == [[20, 30]]


def test_a_queue_that_makes_triton_stall_is_named(start):
    batching = {"dynamic_batching": {"default_queue_policy": {"max_queue_size": 4}}}
    assert start(**batching, instance_group=[{"count": 2}]).logged == []
    (line,) = start(**batching, instance_group=[{"count": 1}]).logged
    assert line.startswith("pre: with a queue policy and only one instance, Triton 2.51 delays requests")


def test_an_internal_error_is_logged_and_not_shown_and_ends_the_process_only_if_the_gpu_failed(start, monkeypatch):
    """If the process did not end after a GPU failure, every later request would fail, because Triton would continue to
    use the process.
    """
    model, ended = start(), []
    monkeypatch.setattr(model._watchdog, "end", ended.append)
    monkeypatch.setattr(model._engine, "run_batch", lambda *_, **__: 1 / 0)
    (response,) = model.execute([FakeRequest([jpeg()])])
    assert response.error.code == "INTERNAL"
    assert response.error.message == "internal error of pixprep: see the log of the server"
    assert "ZeroDivisionError" in model.logged[-1]
    assert ended == []
    monkeypatch.setattr(model._engine, "is_working", lambda: False)
    model.execute([FakeRequest([jpeg()])])
    assert ended == ["the GPU can no longer be used by this process"]


def test_pillows_warnings_about_a_file_are_not_logged(start):
    file = io.BytesIO()
    Image.new("RGB", (20, 20), (9, 9, 9)).save(file, "TIFF")
    layout = struct.pack("<HHI", 284, 3, 1)  # this tag occurs twice below, but Pillow expects it once
    assert file.getvalue().count(layout) == 1
    remarkable = file.getvalue().replace(layout, struct.pack("<HHI", 284, 3, 2))
    with pytest.warns(UserWarning, match="too many entries"), Image.open(io.BytesIO(remarkable)) as image:
        image.load()
    (response,) = start().execute([FakeRequest([remarkable])])  # pytest turns warnings into errors here
    assert response["tensor"].max() == 9


def test_limits_are_parameters_of_the_model(start):
    model = start(**zero(max_pixels="500", max_image_bytes="5000"))
    many, large = model.execute([FakeRequest([jpeg(20, 30)]), FakeRequest([b"\xff" * 5001])])
    assert (
        many.error.message == "[TOO_MANY_PIXELS] image 1 of 1: 20 x 30 pixels; the limit is 500 (parameter max_pixels)"
    )
    assert (
        large.error.message
        == "[TOO_LARGE_BYTES] image 1 of 1: 5,001 bytes; the limit is 5,000 (parameter max_image_bytes)"
    )


def test_limits_apply_to_the_decoded_base64(start):
    encoded = jpeg()
    limits = {"accept_base64": "true", "max_request_bytes": str(2 * len(encoded)), "max_image_bytes": str(len(encoded))}
    model = start(**zero(**limits))
    one, long, huge = (base64.b64encode(encoded + bytes(more)) for more in (0, 1, 100))
    two, three, larger, longest = model.execute(
        [FakeRequest([one] * 2), FakeRequest([one] * 3), FakeRequest([long]), FakeRequest([huge])]
    )
    assert len(two["tensor"]) == 2
    assert "[TOO_LARGE_BYTES] the images of the request have " in three.error.message
    for response, n_bytes in ((larger, len(encoded) + 1), (longest, len(huge))):
        assert response.error.message == (
            f"[TOO_LARGE_BYTES] image 1 of 1: {n_bytes:,} bytes; the limit is {len(encoded):,} "
            "(parameter max_image_bytes)"
        )


def test_an_oversized_request_is_rejected_and_others_are_processed(start):
    encoded = jpeg()
    model = start(**zero(max_request_bytes=str(2 * len(encoded))))
    two, three = model.execute([FakeRequest([encoded] * 2), FakeRequest([encoded] * 3)])
    assert len(two["tensor"]) == 2
    assert three.error.code == "INVALID_ARG"
    assert three.error.message == (
        f"[TOO_LARGE_BYTES] the images of the request have {3 * len(encoded):,} bytes, but the limit is "
        f"{2 * len(encoded):,} (parameter max_request_bytes)"
    )


def test_the_engine_receives_the_damage_policy(start, gpu_engines):
    start(device="GPU", **zero(damage="lenient", decoder="cuda", outputs="cpu"))
    ways = [(options["damage"], options["decoder"]) for _, options in gpu_engines]
    assert ways == [("lenient", "cuda")]


def test_decoded_damaged_jpegs_are_counted(start):
    model = start(**zero(damage="lenient"))
    (response,) = model.execute([FakeRequest([jpeg(), jpeg()[:-4], b"junk"])])
    assert response.error.message.startswith("[UNKNOWN_FORMAT] image 3 of 3")
    (response,) = model.execute([FakeRequest([jpeg(), jpeg()[:-4], jpeg()[:-3]])])
    assert len(response["tensor"]) == 3
    assert sum(counted(model)["pixprep_recovered_total", None]) == 3


def test_everything_is_counted(start):
    model = start()
    model.execute([FakeRequest([jpeg(), b"junk"]), FakeRequest([jpeg()])])
    told = counted(model)
    assert (told["pixprep_images_total", "ok"], told["pixprep_images_total", "UNKNOWN_FORMAT"]) == ([2], [1])
    assert told["pixprep_encoded_bytes_total", None] == [2 * len(jpeg()) + 4]
    assert told["pixprep_batch_images", None] == [3]
    (size,) = {*told["pixprep_shared_memory_size_bytes", None]}
    assert 0 <= max(told["pixprep_shared_memory_used_bytes", None]) <= size
    assert len(told["pixprep_decode_seconds", None]) == 2
    assert min(told["pixprep_transform_seconds", None]) > 0
    assert {"model": "pre", "version": "1", "result": "ok"} in [metric.labels for metric in FakeFamily.made]


def test_a_supervisors_probe_is_answered_and_counts_neither_as_request_nor_as_work(start, monkeypatch):
    monkeypatch.setenv("PIXPREP_PROBE", "0123abcd")
    model = start()
    limits, limit = [], model._watchdog.limit
    monkeypatch.setattr(model._watchdog, "limit", lambda *args, **options: limits.append(options) or limit(*args))
    probe, forged = (FakeRequest([jpeg(level=level)], word=word) for level, word in ((9, "0123abcd"), (60, "0123")))
    for requests in ([probe], [forged, probe, FakeRequest([jpeg(), b"junk"])], [probe]):
        assert [response.error is None for response in model.execute(requests)] == [True, True, False][: len(requests)]
    told = counted(model)
    assert (told["pixprep_images_total", "ok"], told["pixprep_images_total", "UNKNOWN_FORMAT"]) == ([2], [1])
    assert told["pixprep_encoded_bytes_total", None] == [len(forged.images[0]) + len(jpeg()) + 4]
    assert told["pixprep_batch_images", None] == [3]
    assert limits == [{"is_work": False}, {"is_work": True}, {"is_work": False}]


def test_no_image_is_decoded_while_metrics_are_sent_to_triton(start):
    """A hostile image might crash the stub. If the stub dies while it sends metrics, Triton also crashes."""
    model, answers = start(), []
    FakeMetric.is_told.clear()
    FakeMetric.is_open.clear()
    try:
        model.execute([FakeRequest([jpeg()])])
        assert FakeMetric.is_told.wait(120)
        second = threading.Thread(target=lambda: answers.extend(model.execute([FakeRequest([jpeg()])])))
        second.start()
        second.join(1)
        assert answers == []
    finally:
        FakeMetric.is_open.set()
    second.join(60)
    assert answers[0]["tensor"].shape == (1, 3, 8, 8)


class OnGpu:
    """Array that claims to be on a GPU: it has CuPy's ``get`` method and is not a NumPy array."""

    def __init__(self, values):
        self.values = values

    def __getitem__(self, rows):
        return OnGpu(self.values[rows])

    def get(self):
        return self.values


@pytest.fixture
def gpu_engines(monkeypatch, model_class):
    """Replace the GPU engines with fakes that compute on the CPU and report that their tensors are on the GPU."""
    asked = []
    module = sys.modules[model_class.__module__]

    class Engine(pp.Engine):
        def __init__(self, pipeline, *, device, **options):
            asked.append((device, options))
            super().__init__(pipeline, **options)

        def run_batch(self, encoded, **options):
            batch = super().run_batch(encoded, **options)
            batch.outputs.update({name: OnGpu(array) for name, array in batch.outputs.items() if name == "tensor"})
            return batch

    monkeypatch.setattr(module, "Engine", Engine)
    return asked


DECODED = "pre: images are decoded by libjpeg-turbo and Pillow"  # these tests use the CPU engine


def test_a_gpu_instance_computes_on_its_own_gpu_and_leaves_tensors_there(start, gpu_engines, monkeypatch):
    for name, value in pool.variables(1 << 30).items():
        monkeypatch.setenv(name, value)
    model = start(device="GPU", max_batch_size=8)
    (response,) = model.execute([FakeRequest([jpeg(), jpeg()])])
    how, rows = response["tensor"]
    assert ([device for device, _ in gpu_engines], how) == (["gpu:1"], "dlpack")
    assert rows.values.shape == (2, 3, 8, 8)
    assert model.logged == [DECODED]
    # recreating a GPU decoder is slow, so the idle period is longer
    assert model._watchdog._idle_s == 12 * start()._watchdog._idle_s


def test_a_pool_that_is_too_small_sends_tensors_through_the_cpu_and_warns_once(start, gpu_engines, monkeypatch):
    monkeypatch.setenv("PIXPREP_CUDA_POOL_BYTES", "1000")
    model = start(device="GPU", max_batch_size=8)
    for _ in range(2):
        (response,) = model.execute([FakeRequest([jpeg()])])
        assert isinstance(response["tensor"], np.ndarray)
    assert [device for device, _ in gpu_engines] == ["gpu:1"]
    assert model.logged == [
        DECODED,
        "pre: output tensors are copied to host memory: the CUDA memory pool of 0 MiB is too small; start Triton with "
        "--cuda-memory-pool-byte-size=1:147456 --pinned-memory-pool-byte-size=0, PIXPREP_CUDA_POOL_BYTES=147456 "
        "and PIXPREP_PINNED_POOL_BYTES=0",
    ]


@pytest.mark.usefixtures("gpu_engines")
def test_tensors_pass_through_the_cpu_if_the_parameter_requests_it(start, monkeypatch):
    for name, value in pool.variables(1 << 30).items():
        monkeypatch.setenv(name, value)
    (response,) = start(device="GPU", **zero(outputs="cpu")).execute([FakeRequest([jpeg()])])
    assert isinstance(response["tensor"], np.ndarray)


def test_images_that_only_the_cpu_could_decode_are_counted_once(start, monkeypatch):
    model = start()
    run_batch = model._engine.run_batch
    for count in (3, 0, 2):
        monkeypatch.setattr(
            model._engine,
            "run_batch",
            lambda *args, n=count, **options: replace(run_batch(*args, **options), fallbacks=n),
        )
        model.execute([FakeRequest([jpeg()])])
    assert sum(counted(model)["pixprep_fallback_cpu_total", None]) == 5


FRAMES = pp.Pipeline([pp.pixels(given="bgr"), pp.resize(height=8, width=8), pp.tensor(dtype="uint8")])


def test_a_request_without_frames_or_with_too_many_bytes_is_rejected(start):
    model = start(FRAMES, **zero(max_request_bytes="2000"))
    none, much = model.execute(
        [FakeRequest(np.zeros((0, 20, 30, 3), np.uint8)), FakeRequest(np.zeros((2, 20, 30, 3), np.uint8))]
    )
    assert none.error.message == "[EMPTY] the request does not contain an image"
    assert much.error.message == (
        "[TOO_LARGE_BYTES] the images of the request have 3,600 bytes, but the limit is 2,000 (parameter "
        "max_request_bytes)"
    )
