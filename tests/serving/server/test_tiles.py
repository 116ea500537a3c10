"""Tests that tiles pass through a real Triton: the tiles of several images are one tensor, which a model receives."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tritonclient import grpc

import pixprep as pp
from pixprep.serving.repository import build
from support.images import png, scene
from support.serving import client_of

pytestmark = pytest.mark.server

TILE = 32
PIPELINE = pp.Pipeline(
    [
        pp.decode(),
        pp.resize_to_tiles(tile_size=TILE, max_tiles=6, filter="bicubic", like="torchvision"),
        pp.normalize(mean=0.5, std=0.25),
        pp.tiles(TILE, thumbnail="last", name="pixel_values"),
        pp.tile_count(TILE, thumbnail="last", name="num_patches"),
    ]
)
PHOTOS = [png(scene(120, 90)), png(scene(50, 300)), png(scene(20, 20))]


def save_tower(path):
    """Save a model that returns the mean of each channel of each tile."""
    nodes = [helper.make_node("ReduceMean", ["pixel_values"], ["features"], axes=[2, 3], keepdims=0)]
    inputs = [helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, ["tiles", 3, TILE, TILE])]
    outputs = [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["tiles", 3])]
    graph = helper.make_graph(nodes, "tower", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiles")
    build(folder / "models", pipeline=PIPELINE, onnx=save_tower(folder / "tower.onnx"))
    return folder / "models"


def infer(client, model, photos, *outputs):
    """Send photos as one request, and return the named outputs."""
    image = grpc.InferInput("image", [len(photos)], "BYTES")
    image.set_data_from_numpy(np.array(photos, np.object_))
    found = client.infer(model, [image], outputs=[grpc.InferRequestedOutput(name) for name in outputs])
    return [found.as_numpy(name) for name in outputs]


def test_the_tiles_of_all_images_are_one_tensor_with_a_count_per_image(server):
    client = client_of(server, "grpc")
    with pp.Engine(PIPELINE) as engine:
        batch = engine.run_batch(PHOTOS)
    tiles, counts = infer(client, "preprocess", PHOTOS, "pixel_values", "num_patches")
    assert counts.tolist() == [[len(each)] for each in batch.outputs["pixel_values"]]
    assert counts.tolist()[2] == [1]
    assert max(counts) > 3
    assert np.array_equal(tiles, np.concatenate(batch.outputs["pixel_values"]))
    (features,) = infer(client, "ensemble", PHOTOS, "features")
    np.testing.assert_allclose(features, tiles.mean(axis=(2, 3)), atol=1e-5)
