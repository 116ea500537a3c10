"""Sizes that follow the image, in a real Triton: requests of several widths at once, and a model behind them."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pixprep as pp
from detectors import save_echo
from images import png, scene
from pixprep.repository import build
from pixprep.serve.server import Server
from serving import client_of, infer

pytestmark = pytest.mark.server

PIPELINE = pp.Pipeline(
    [
        pp.decode(),
        pp.resize(height=48, max_size=640, rounding="up", up_to=320, like="opencv"),
        pp.normalize(mean=0.5, std=0.5),
        pp.image_size(),
        pp.tensor(min_width=160, multiple=16, pad_value=-3.0),
    ]
)
WIDTHS = (40, 200, 300, 333, 500, 900, 3000)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("open")
    onnx = save_echo(folder / "line.onnx", {"x": ("FLOAT", ["n", 3, 48, "w"])})
    build(folder / "models", pipeline=PIPELINE, onnx=onnx)
    with Server(folder / "models", http_port=0, grpc_port=0, metrics_port=0, grace_s=0) as server:
        yield server


def ask(client, model, photos, *outputs):
    answer = infer(client, model, outputs, image=photos)
    return [answer.as_numpy(name) for name in outputs]


def test_every_request_gets_its_images_padded_to_their_widest_whoever_else_is_asking(server):
    photos = [png(scene(50, width)) for width in WIDTHS]
    with pp.Engine(PIPELINE) as engine:
        alone = engine.run(photos)
    assert [tensor.shape[2] for tensor in alone] == [160, 192, 288, 320, 480, 640, 640]
    client = client_of(server, "grpc")
    requests = [(first, last) for first in range(len(WIDTHS)) for last in range(first + 1, len(WIDTHS) + 1)]

    def check(first, last):
        tensor, size = ask(client, "preprocess", photos[first:last], "tensor", "image_size")
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
