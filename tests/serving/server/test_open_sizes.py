"""Tests of tensors whose sizes depend on the image, in a real Triton server: concurrent requests with several widths,
and a model that processes the tensors.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

import pixprep as pp
from pixprep.serving.embedded.wheel import SHARED_MEMORY
from pixprep.serving.repository import build
from support.detectors import save_echo
from support.images import png, scene
from support.serving import client_of, infer

pytestmark = pytest.mark.server

PIPELINE = pp.Pipeline(
    [
        pp.decode(),
        pp.resize(height=48, max_size=640, rounding="up", up_to=320, like="opencv"),
        pp.normalize(mean=0.5, std=0.5),
        pp.image_size(),
        pp.pixel_mask(min_width=160, multiple=16, dtype="uint8"),
        pp.tensor(min_width=160, multiple=16, pad_value=-3.0),
    ]
)
MAX_BYTES = (3 * 4 + 1) * 48 * 640 + 8  # bytes of the widest tensor, its mask and its size
WIDTHS = (40, 200, 300, 333, 500, 900, 3000)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("open")
    onnx = save_echo(folder / "line.onnx", {"x": ("FLOAT", ["n", 3, 48, "w"])})
    build(folder / "models", pipeline=PIPELINE, onnx=onnx, parameters={"max_response_bytes": str(8 * MAX_BYTES)})
    return folder / "models"


def shared_bytes(server):
    """Return the size of the server's shared memory regions in /dev/shm, in bytes."""
    return sum(region.stat().st_size for region in SHARED_MEMORY.glob(f"{server._prefix}*"))


def ask(client, model, photos, *outputs):
    answer = infer(client, model, outputs, image=photos)
    return [answer.as_numpy(name) for name in outputs]


def test_every_request_is_padded_to_its_own_widest_image_under_concurrent_load(server):
    photos = [png(scene(50, width)) for width in WIDTHS]
    with pp.Engine(PIPELINE) as engine:
        alone = engine.run(photos)
    assert [tensor.shape[2] for tensor in alone] == [160, 192, 288, 320, 480, 640, 640]
    client = client_of(server, "grpc")
    requests = [(first, last) for first in range(len(WIDTHS)) for last in range(first + 1, len(WIDTHS) + 1)]

    def check(first, last):
        names = "tensor", "image_size", "pixel_mask"
        tensor, size, mask = ask(client, "preprocess", photos[first:last], *names)
        assert np.array_equal(mask, (tensor != -3).any(axis=1))
        assert tensor.shape == (last - first, 3, 48, max(each.shape[2] for each in alone[first:last]))
        for row, own, (rows, columns) in zip(tensor, alone[first:last], size, strict=True):
            assert np.array_equal(row[:, :, : own.shape[2]], own)
            assert (row[:, :, columns:] == -3).all()
            assert rows == 48
        means = ask(client, "ensemble", photos[first:last], "boxes")[0]
        np.testing.assert_allclose(means, tensor.mean(axis=(2, 3)), rtol=1e-3, atol=1e-4)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(check, *request) for request in requests * 3]:
            done.result()


def test_an_oversized_request_is_rejected_and_concurrent_requests_succeed(server):
    wide, narrow = png(scene(50, 900)), png(scene(50, 40))
    client = client_of(server, "grpc")
    ask(client, "preprocess", [wide] * 8, "tensor", "image_size")
    before = shared_bytes(server)

    def refused():
        with pytest.raises(InferenceServerException) as caught:
            infer(client, "ensemble", ["boxes"], image=[narrow] * 60 + [wide])
        assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
        message = caught.value.message()
        assert "[TOO_LARGE_RESPONSE] the tensors of the request take at least " in message
        assert message.endswith(f"{8 * MAX_BYTES:,} (parameter max_response_bytes): send fewer images in a request")

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(refused) for _ in range(6)]
        answered = [pool.submit(ask, client, "preprocess", [narrow], "tensor") for _ in range(30)]
        for each in asked:
            each.result()
        assert [each.result()[0].shape for each in answered] == [(1, 3, 48, 160)] * 30
    assert shared_bytes(server) < before + 4 * MAX_BYTES
