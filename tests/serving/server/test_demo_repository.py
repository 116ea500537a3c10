"""The demo, end to end: a photo goes into a real Triton, its class comes out, and every number on the way is right."""

import json
import urllib.request
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

import pixprep as pp

pytestmark = pytest.mark.server

IMAGES = Path(__file__).parents[3] / "client_examples" / "images"
PHOTOS = {"flower.jpg": "daisy", "china.jpg": "palace"}
ENCODED = [(IMAGES / name).read_bytes() for name in PHOTOS]
PROTOCOLS = [tritonclient.http, tritonclient.grpc]
IDS = ["http", "grpc"]


def client(protocol, server):
    url = server.http_url if protocol is tritonclient.http else server.grpc_url
    return protocol.InferenceServerClient(url.removeprefix("http://"))


def ask(protocol, server, model, output, encoded, **options):
    """Send one request of several images; the named output."""
    images = protocol.InferInput("image", [len(encoded), 1], "BYTES")
    images.set_data_from_numpy(np.array([[image] for image in encoded], dtype=np.object_))
    with client(protocol, server) as connection:
        answer = connection.infer(model, [images], outputs=[protocol.InferRequestedOutput(output, **options)])
    return answer.as_numpy(output)


def post(server, model, body):
    """Send as ``curl --data-binary`` does; each output by name."""
    request = urllib.request.Request(
        f"{server.http_url}/v2/models/{model}/infer",
        data=body,
        headers={"Inference-Header-Content-Length": "0", "Content-Type": "application/octet-stream"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status == 200
        length = int(response.headers["Inference-Header-Content-Length"])
        answer = response.read()
    (output,) = json.loads(answer[:length])["outputs"]
    return output["name"], output["shape"], np.frombuffer(answer[length:], np.float32)


@pytest.fixture(scope="module")
def tensors(demo_repository):
    """Tensors that the engine gives for the photos, without a server."""
    with pp.Engine(pp.load(demo_repository / "preprocess" / "1" / "pipeline.json")) as engine:
        return np.stack(engine.run(ENCODED))


@pytest.fixture(scope="module")
def logits(demo_repository, tensors):
    """Scores that ONNX Runtime gives for these tensors, without a server."""
    path = demo_repository / "classifier" / "1" / "model.onnx"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"input": tensors})[0]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=IDS)
def test_the_ensemble_gives_1000_logits_for_each_photo_with_the_right_class_first(
    demo, demo_repository, protocol, logits
):
    labels = (demo_repository / "classifier" / "labels.txt").read_text().splitlines()
    answer = ask(protocol, demo, "ensemble", "logits", ENCODED)
    assert (answer.shape, answer.dtype) == ((2, 1000), np.float32)
    assert [labels[index] for index in answer.argmax(1)] == list(PHOTOS.values())
    np.testing.assert_array_equal(answer, logits)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=IDS)
@pytest.mark.parametrize(("encoded", "label"), list(zip(ENCODED, PHOTOS.values(), strict=True)), ids=PHOTOS)
def test_tritons_classification_extension_gives_labels_through_the_ensemble(demo, protocol, encoded, label):
    (best, second), *_ = ask(protocol, demo, "ensemble", "logits", [encoded], class_count=2)
    score, _, name = best.decode().split(":")
    assert name == label
    assert float(score) > float(second.decode().split(":")[0])


def test_a_bare_jpeg_can_be_posted_to_both_models(demo, tensors, logits):
    name, shape, values = post(demo, "preprocess", ENCODED[0])
    assert (name, shape) == ("tensor", [1, 3, 224, 224])
    np.testing.assert_array_equal(values.reshape(shape), tensors[:1])
    name, shape, values = post(demo, "ensemble", ENCODED[0])
    assert (name, shape) == ("logits", [1, 1000])
    np.testing.assert_array_equal(values.reshape(shape), logits[:1])


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=IDS)
def test_a_bad_image_fails_the_ensembles_request_with_the_reason(demo, protocol):
    with pytest.raises(InferenceServerException) as caught:
        ask(protocol, demo, "ensemble", "logits", [ENCODED[0], b"not an image"])
    assert caught.value.message().startswith("in ensemble 'ensemble', [UNKNOWN_FORMAT] image 2 of 2: ")
