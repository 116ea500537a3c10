"""Tests of the backend in a real Triton server: the responses to all kinds of requests."""

import io
import json
import re
import shutil
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import tritonclient.grpc
from PIL import Image
from tritonclient.utils import InferenceServerException

import pixprep as pp
from pixprep.serving.embedded.server import Server
from support.images import stills
from support.serving import LARGE, RAW, address, client_of, infer, post, wait_until, write_pipeline

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[3]
PHOTOS = [ROOT / "client_examples" / "images" / name for name in ("china.jpg", "flower.jpg")]
PIPELINE = pp.presets.imagenet()
DETECTOR = pp.Pipeline(
    [pp.decode(), pp.original_size(), pp.letterbox(96, 128), pp.transform(), pp.tensor(dtype="uint8", layout="hwc")]
)
TRAINED = pp.Pipeline(
    [
        pp.decode(), pp.random_resized_crop(176), pp.random_flip(), pp.resize(256, only="serving"),
        pp.center_crop(224, only="serving"), *PIPELINE.ops[3:],
    ]
)  # fmt: skip
ODD = pp.Pipeline(
    [
        *(pp.decode(), pp.resize(224), pp.center_crop(256)),
        *(pp.normalize(mean=(123.7, 116.3, 103.5), std=58.0), pp.tensor()),
    ]
)
MEANT = 'parameters { key: "odd_range" value { string_value: "meant" } }\n'
ZERO = 'parameters { key: "on_error" value { string_value: "zero" } }\n'
STRUCTURAL = 'parameters { key: "damage" value { string_value: "structural" } }\n'
STILLS = {name: stills()[name] for name in ("avif china", "avif alpha", "heic china", "heic odd") if name in stills()}
FORMATS = ["jpeg", *sorted({name.split()[0] for name in STILLS})]
RAGGED = (
    'backend: "pixprep"\nmax_batch_size: 8\ninput { name: "DALI_INPUT_0" data_type: TYPE_UINT8 dims: [ -1 ] }\n'
    "dynamic_batching { preferred_batch_size: [ 3 ] max_queue_delay_microseconds: 2000000 }\n"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    write_pipeline(repository, "pre.pixprep", PIPELINE)
    write_pipeline(repository, "ragged", DETECTOR, RAGGED)
    write_pipeline(repository, "trained.pixprep", TRAINED)
    write_pipeline(repository, "zero", DETECTOR, f'backend: "pixprep"\n{ZERO}')
    formats = f'parameters {{ key: "formats" value {{ string_value: "{" ".join(FORMATS)}" }} }}\n'
    write_pipeline(repository, "plain", PIPELINE, f'backend: "python"\n{STRUCTURAL}{formats}')
    shutil.copy(ROOT / "backend" / "model.py", repository / "plain" / "1" / "model.py")
    write_pipeline(repository, "odd.pixprep", ODD)
    write_pipeline(repository, "meant", ODD, f'backend: "pixprep"\n{MEANT}')
    return repository


@pytest.fixture(scope="module")
def engine():
    with pp.Engine(PIPELINE) as engine:
        yield engine


def get(server, path):
    with urllib.request.urlopen(f"{server.http_url}{path}", timeout=120) as response:
        return json.load(response)


def eight_sizes():
    """Return eight JPEGs of different sizes: two unchanged photos and six crops of them."""
    encoded = [path.read_bytes() for path in PHOTOS]
    for index, size in enumerate([(80, 60), (33, 200), (501, 499), (224, 224), (600, 77), (300, 427)]):
        with Image.open(PHOTOS[index % 2]) as photo:
            file = io.BytesIO()
            photo.crop((0, 0, *size)).save(file, "JPEG", quality=90)
            encoded.append(file.getvalue())
    return encoded


def test_a_training_file_serves_its_serving_ops_and_the_log_reports_omitted_ops(triton, server, engine):
    images = eight_sizes()
    ours = infer(triton, "trained.pixprep", image=images).as_numpy("tensor")
    np.testing.assert_array_equal(ours, np.stack(engine.run(images)))
    output = 'trained.pixprep: serving omits ops[1] "random_resized_crop", ops[2] "random_flip"'
    assert output in server.log_file.read_text().replace('\\"', '"')


def test_a_model_without_a_config_is_complete(server):
    config = get(server, "/v2/models/pre.pixprep/config")
    assert config["max_batch_size"] == 64
    assert [(i["name"], i["data_type"], i["dims"]) for i in config["input"]] == [("image", "TYPE_STRING", [1])]
    assert [(o["name"], o["data_type"], o["dims"]) for o in config["output"]] == [
        ("tensor", "TYPE_FP32", [3, 224, 224])
    ]
    assert "dynamic_batching" in config


@pytest.mark.parametrize("model", ["pre.pixprep", "plain"])
def test_the_tensor_equals_the_engines_bit_for_bit(triton, engine, model):
    images = eight_sizes()
    tensors = infer(triton, model, image=images).as_numpy("tensor")
    assert tensors.dtype == np.float32
    assert np.array_equal(tensors, np.stack(engine.run(images)))


@pytest.mark.parametrize("model", ["pre.pixprep", "plain"])
def test_a_broken_image_is_rejected_with_its_index_and_the_reason(triton, model):
    """On the CPU, the policy ``structural`` also detects this damage."""
    images = eight_sizes()
    images[4] = images[4][: len(images[4]) // 2]
    with pytest.raises(InferenceServerException) as caught:
        infer(triton, model, image=images)
    size = f"{len(images[4]):,}"
    words = f"the JPEG ends after {size} bytes, before its last row (parameter damage)"
    assert caught.value.message() == f"[TRUNCATED] image 5 of 8: {words}"
    assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")


def test_avif_and_heic_are_accepted_if_the_parameter_names_them(triton):
    images = [*STILLS.values(), PHOTOS[0].read_bytes()]
    with pp.Engine(PIPELINE, limits=pp.Limits(formats=FORMATS)) as engine:
        expected = np.stack(engine.run(images))
    assert np.array_equal(infer(triton, "plain", image=images).as_numpy("tensor"), expected)
    for name, encoded in STILLS.items():
        with pytest.raises(
            InferenceServerException,
            match=rf"an? {name.split()[0].upper()} is not accepted .parameter formats: jpeg, png",
        ):
            infer(triton, "pre.pixprep", image=[encoded])


def test_on_error_zero_keeps_the_valid_images(triton):
    images = [PHOTOS[0].read_bytes(), b"junk", PHOTOS[1].read_bytes()]
    answer = infer(triton, "zero", image=images)
    with pp.Engine(DETECTOR) as engine:
        expected = engine.run_batch(images)
    for name in ("original_size", "transform", "tensor"):
        assert np.array_equal(answer.as_numpy(name), expected.outputs[name]), name
    assert not answer.as_numpy("tensor")[1].any()
    assert [text.partition(b" ")[0] for (text,) in answer.as_numpy("status")] == [b"", b"[UNKNOWN_FORMAT]", b""]


def test_only_requested_outputs_are_returned(triton):
    answer = infer(triton, "zero", ["original_size"], image=[PHOTOS[0].read_bytes()])
    assert answer.as_numpy("original_size").tolist() == [[427, 640]]
    assert answer.as_numpy("tensor") is None


def test_requests_of_different_lengths_share_a_batch(server):
    encoded = [np.frombuffer(image, np.uint8)[None] for image in eight_sizes()[:3]]
    with client_of(server, "grpc") as client:

        def one(row):
            return infer(client, "ragged", DALI_INPUT_0=row).as_numpy("tensor")[0]

        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(one, encoded))
    with pp.Engine(DETECTOR) as engine:
        expected = engine.run([row.tobytes() for row in encoded])
    for answer, tensor in zip(answers, expected, strict=True):
        assert np.array_equal(answer, tensor)
    (stats,) = get(server, "/v2/models/ragged/stats")["model_stats"]
    assert (stats["inference_count"], stats["execution_count"]) == (3, 1)


def metrics_of(server):
    with urllib.request.urlopen(server.metrics_url) as response:
        return response.read().decode()


def test_a_cancelled_grpc_request_is_abandoned_and_counted_and_the_next_one_is_right(server, engine):
    """The test is repeated until a cancellation is counted. If Triton removes a cancelled request from its queue, the
    request does not reach the model.
    """
    (expected,) = engine.run([LARGE])
    tensor = tritonclient.grpc.InferInput("image", [1, 1], "BYTES").set_data_from_numpy(np.array([[LARGE]], np.object_))

    def is_counted():
        first = Event()
        calls = [client.async_infer("pre.pixprep", [tensor], lambda **_: first.set()) for _ in range(8)]
        assert first.wait(120)
        for call in calls:
            call.cancel()
        assert np.array_equal(infer(client, "pre.pixprep", image=[LARGE]).as_numpy("tensor")[0], expected)
        return re.search(r'pixprep_images_total{model="pre.pixprep",result="ABANDONED".*} [1-9]', metrics_of(server))

    with client_of(server, "grpc") as client:
        wait_until(is_counted, "never abandoned", within_s=120)


def test_the_metrics_port_counts_images_by_outcome(server):
    for body in (b"<html>", PHOTOS[0].read_bytes()):
        post(address(server), "/v2/models/pre.pixprep/infer", RAW, body)
    lines = (
        r'pixprep_images_total{model="pre.pixprep",result="ok",version="1"} [1-9]',
        r'pixprep_images_total{model="pre.pixprep",result="UNKNOWN_FORMAT",version="1"} [1-9]',
        r'pixprep_encoded_bytes_total{model="pre.pixprep",version="1"} [1-9]',
        r'pixprep_decode_seconds_count{model="pre.pixprep",version="1"} [1-9]',
        r'pixprep_transform_seconds_bucket{model="pre.pixprep",version="1",le="\+Inf"} [1-9]',
        r'pixprep_batch_images_count{model="pre.pixprep",version="1"} [1-9]',
        r'pixprep_shared_memory_used_bytes{model="pre.pixprep",version="1"} [1-9]',
    )

    def missing():  # the metrics are updated every two seconds
        return [line for line in lines if not re.search(line, metrics_of(server))]

    wait_until(lambda: not missing(), missing)


def test_the_page_of_metrics_lists_every_metric_of_the_port(server):
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \|", page, re.MULTILINE))
    exported = dict(re.findall(r"^# TYPE (\w+) (\w+)$", metrics_of(server), re.MULTILINE))
    exported = {name: kind for name, kind in exported.items() if not name.startswith("nv_gpu_")}
    assert exported == {name: kind for name, kind in listed.items() if name in exported}
    assert set(listed) - set(exported) <= {"pixprep_frames_total"}


def test_the_self_contained_backend_directory_serves(tmp_path, engine):
    """This is the setup for NVIDIA's container, where model.py and the package are in the same folder."""
    from pixprep.serving.embedded.wheel import assemble_backends  # noqa: PLC0415
    from pixprep.serving.repository.backend import install_backend  # noqa: PLC0415  (this test's own subject)

    backends = tmp_path / "backends"
    server = Server(
        tmp_path / "models", backend_directory=backends, http_port=0, grpc_port=0, metrics_port=0, grace_s=0
    )
    assemble_backends(backends)
    shutil.rmtree(backends / "pixprep")
    installed = install_backend(backends)
    assert (installed / "pixprep" / "engine" / "engine.py").is_file()
    write_pipeline(tmp_path / "models", "pre", PIPELINE, 'backend: "pixprep"\n')
    with server:
        (tensor,) = engine.run([PHOTOS[1].read_bytes()])
        assert post(address(server), "/v2/models/pre/infer", RAW, PHOTOS[1].read_bytes())[2].endswith(tensor.tobytes())


def test_an_unchecked_model_warns_about_odd_ranges_and_black_padding(server):
    """The model is written by hand, and Triton is started directly. `check` and `build` would have reported the same
    problems earlier.
    """
    margins = (
        'ops[2] "center_crop": a photo of 480 x 640 fills only 224 x 256 pixels of "tensor", and the rest of its '
        "256 x 256 pixels is black: increase the size of the resize, or decrease the size of the crop"
    )
    lines = re.findall(r'^W\d{4} .*\] (".*")$', server.log_file.read_text(), re.MULTILINE)
    output = [text for text in map(json.loads, lines) if text.startswith(("meant: ops[", "odd.pixprep: ops["))]
    assert sorted(output) == [
        f"meant: {margins}",
        f"odd.pixprep: {margins}",
        'odd.pixprep: ops[3] "normalize": the values of "tensor" range from -2.133 to -1.767 (a range of only '
        '0.017): did you mean "scale": 1?',
    ]
