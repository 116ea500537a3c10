"""Tests that tiles pass through a real Triton: the tiles of several images are one tensor, which a model receives."""

import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tritonclient import grpc
from tritonclient.utils import InferenceServerException

import pixprep as pp
from pixprep.bfloat16 import bfloat16_floats
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
        pp.tile_mask(TILE, thumbnail="last", dtype="bool", name="pixel_attention_mask"),
        pp.constant([1], name="batch_num_images"),
    ]
)
SLICES = pp.Pipeline(
    [
        pp.decode(),
        pp.resize_to_slices(rule="minicpm", slice_size=64, multiple=16, max_slices=4),
        pp.slice_patches(8, name="pixel_values"),
        pp.slice_grids(8, dtype="int32", name="target_sizes"),
    ]
)
SHORT = pp.Pipeline(
    [
        pp.decode(),
        pp.resize_to_tiles(tile_size=TILE, max_tiles=6),
        pp.normalize(mean=0.5, std=0.25, arithmetic="bfloat16"),
        pp.tiles(TILE, dtype="bfloat16", name="pixel_values"),
    ]
)
PHOTOS = [png(scene(120, 90)), png(scene(50, 300)), png(scene(20, 20))]


def save_tower(path, batch=(), kind=TensorProto.FLOAT):
    """Save a model that returns the mean of each channel of each tile.

    ``batch`` contains the leading dimensions of its input and output, and ``kind`` is the type of the input.
    """
    axes = [len(batch) + 2, len(batch) + 3]
    nodes = [
        helper.make_node("Cast", ["pixel_values"], ["values"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["values"], ["features"], axes=axes, keepdims=0),
    ]
    inputs = [helper.make_tensor_value_info("pixel_values", kind, [*batch, "tiles", 3, TILE, TILE])]
    outputs = [helper.make_tensor_value_info("features", TensorProto.FLOAT, [*batch, "tiles", 3])]
    graph = helper.make_graph(nodes, "tower", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiles")
    build(folder / "models", pipeline=PIPELINE, onnx=save_tower(folder / "tower.onnx"))
    build(folder / "models", pipeline=PIPELINE, onnx=save_tower(folder / "one.onnx", [1]), name="one")
    build(folder / "more", pipeline=SLICES, onnx=save_identity(folder / "identity.onnx"))
    short = save_tower(folder / "short.onnx", kind=TensorProto.BFLOAT16)
    with pytest.raises(pp.PipelineError, match='input "pixel_values" is bfloat16, which ONNX Runtime accepts only ins'):
        build(folder / "short", pipeline=SHORT, onnx=short)
    build(folder / "short", pipeline=SHORT, onnx=short, classifier="tensorrt")
    for source, name in ("more", "slices"), ("short", "short"):
        shutil.copytree(folder / source / "preprocess", folder / "models" / name)
        config = folder / "models" / name / "config.pbtxt"
        config.write_text(config.read_text().replace('name: "preprocess"', f'name: "{name}"'))
    return folder / "models"


def save_identity(path):
    """Save a model that returns the patches and the grids of slices."""
    shapes = {"pixel_values": (TensorProto.FLOAT, [1, 3, 8, "columns"]), "target_sizes": (TensorProto.INT32, ["n", 2])}
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in shapes]
    inputs, outputs = (
        [helper.make_tensor_value_info(f"{name}{end}", *shape) for name, shape in shapes.items()]
        for end in ("", "_out")
    )
    graph = helper.make_graph(nodes, "identity", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


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
    mask, ones = infer(client, "preprocess", PHOTOS, "pixel_attention_mask", "batch_num_images")
    assert np.array_equal(mask, np.ones((counts.sum(), TILE, TILE), bool))
    assert ones.tolist() == [[1]] * len(PHOTOS)
    assert counts.tolist() == [[len(each)] for each in batch.outputs["pixel_values"]]
    assert counts.tolist()[2] == [1]
    assert max(counts) > 3
    assert np.array_equal(tiles, np.concatenate(batch.outputs["pixel_values"]))
    (features,) = infer(client, "ensemble", PHOTOS, "features")
    np.testing.assert_allclose(features, tiles.mean(axis=(2, 3)), atol=1e-5)


def test_a_model_of_the_tiles_of_one_image_receives_one_image_per_request(server):
    client = client_of(server, "grpc")
    for photo in PHOTOS:
        (several,) = infer(client, "ensemble", [photo], "features")
        (features,) = infer(client, "one", [photo], "features")
        assert np.array_equal(features, several[None])
    with pytest.raises(InferenceServerException, match=r"unexpected shape for input 'image' .*Expected \[1\]"):
        infer(client, "one", PHOTOS[:2], "features")


def test_a_client_receives_bfloat16_tensors_as_float32(server):
    client = client_of(server, "grpc")
    with pp.Engine(SHORT) as engine:
        batch = engine.run_batch(PHOTOS)
    (tiles,) = infer(client, "short", PHOTOS, "pixel_values")
    assert client.get_model_metadata("short").outputs[0].datatype == "BF16"
    assert tiles.dtype == np.float32
    assert np.array_equal(tiles, bfloat16_floats(batch.packed("pixel_values")))


def test_the_slices_of_all_images_are_one_tensor(server):
    with pp.Engine(SLICES) as engine:
        batch = engine.run_batch(PHOTOS)
    found = infer(client_of(server, "grpc"), "slices", PHOTOS, "pixel_values", "target_sizes")
    for name, values in zip(("pixel_values", "target_sizes"), found, strict=True):
        assert np.array_equal(values, batch.packed(name))
    patches, grids = found
    assert patches.shape[3] == 8 * grids.prod(axis=1).sum()
