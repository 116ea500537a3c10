"""Tests the demo end to end: a real Triton server returns the class of a photo, and all intermediate tensors are
correct.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tritonclient.utils import InferenceServerException

import pixprep as pp
from support.serving import RAW, address, infer, post

pytestmark = pytest.mark.server

IMAGES = Path(__file__).parents[3] / "client_examples" / "images"
PHOTOS = {"flower.jpg": "daisy", "china.jpg": "palace"}
ENCODED = [(IMAGES / name).read_bytes() for name in PHOTOS]


@pytest.fixture(scope="module")
def models(demo_repository):
    return demo_repository


@pytest.fixture(scope="module")
def tensors(models):
    """Return the tensors that the engine computes for the photos, without a server."""
    with pp.Engine(pp.load(models / "preprocess" / "1" / "pipeline.json")) as engine:
        return np.stack(engine.run(ENCODED))


@pytest.fixture(scope="module")
def logits(models, tensors):
    """Return the scores that ONNX Runtime computes for these tensors, without a server."""
    path = models / "classifier" / "1" / "model.onnx"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"input": tensors})[0]


def test_the_ensemble_returns_1000_logits_for_each_photo_with_the_right_class_first(triton, models, logits):
    labels = (models / "classifier" / "labels.txt").read_text().splitlines()
    answer = infer(triton, "ensemble", image=ENCODED).as_numpy("logits")
    assert (answer.shape, answer.dtype) == ((2, 1000), np.float32)
    assert [labels[index] for index in answer.argmax(1)] == list(PHOTOS.values())
    np.testing.assert_array_equal(answer, logits)


def test_a_large_jpeg_can_be_posted_with_curls_default_content_type(server, tensors):
    """Without the front, Triton crashes if such a body has more than 4 MB. The decoder ignores bytes after the end of a
    JPEG.
    """
    headers = {**RAW, "Content-Type": "application/x-www-form-urlencoded"}
    path = "/v2/models/preprocess/infer"
    status, _, body = post(address(server), path, headers, ENCODED[0] + bytes(8 << 20))
    assert (status, body[-tensors[0].nbytes :]) == (200, tensors[0].tobytes())


def test_a_bare_jpeg_can_be_posted_to_both_models(server, tensors, logits):
    for model, name, expected in (("preprocess", "tensor", tensors), ("ensemble", "logits", logits)):
        status, headers, answer = post(address(server), f"/v2/models/{model}/infer", RAW, ENCODED[0])
        split = int(headers["Inference-Header-Content-Length"])
        (output,) = json.loads(answer[:split])["outputs"]
        assert (status, output["name"], output["shape"]) == (200, name, list(expected[:1].shape))
        assert answer[split:] == expected[:1].tobytes()


def test_an_invalid_image_fails_the_ensembles_request_with_the_reason(triton):
    with pytest.raises(InferenceServerException) as caught:
        infer(triton, "ensemble", image=[ENCODED[0], b"not an image"])
    assert caught.value.message().startswith("in ensemble 'ensemble', [UNKNOWN_FORMAT] image 2 of 2: ")
