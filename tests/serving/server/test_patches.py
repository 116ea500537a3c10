"""Tests of patches in a real Triton server: several images per request without a batch dimension, followed by a vision
tower.
"""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tritonclient import grpc
from tritonclient.utils import InferenceServerException

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.errors import PipelineError
from pixprep.serving.page.answer import Photos
from pixprep.serving.repository import build, check
from support.images import png, scene
from support.serving import address, client_of

pytestmark = pytest.mark.server

PIPELINE = pp.Pipeline(
    [
        pp.decode(),
        pp.resize_to_pixels(multiple=28, min_pixels=3136, max_pixels=40_000, filter="bicubic", like="torchvision"),
        pp.normalize(mean=0.5, std=0.25),
        pp.patches(14, 2, temporal_patch_size=2, name="pixel_values"),
        pp.patch_grid(14, 2, order="thw", name="image_grid_thw"),
    ]
)
WEIGHTS = np.random.default_rng(0).normal(size=(1176, 6)).astype(np.float32) / 30


def save_tower(path, *, values=1176, grid="INT64", batch=()):
    """Save a small vision tower without a batch dimension. It returns features per patch, and the number of patches per
    image.
    """
    nodes = [
        helper.make_node("MatMul", ["pixel_values", "weights"], ["features"]),
        helper.make_node("ReduceProd", ["image_grid_thw"], ["counts"], axes=[1], keepdims=1),
    ]
    inputs = [
        helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, [*batch, "patches", values]),
        helper.make_tensor_value_info("image_grid_thw", TensorProto.DataType.Value(grid), ["images", 3]),
    ]
    outputs = [
        helper.make_tensor_value_info("features", TensorProto.FLOAT, [*batch, "patches", 6]),
        helper.make_tensor_value_info("counts", TensorProto.DataType.Value(grid), ["images", 1]),
    ]
    weights = numpy_helper.from_array(np.resize(WEIGHTS, (values, 6)), "weights")
    graph = helper.make_graph(nodes, "tower", inputs, outputs, [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("patches")
    build(folder / "models", pipeline=PIPELINE, onnx=save_tower(folder / "tower.onnx"))
    return folder / "models"


PHOTOS = [png(scene(120, 90)), png(scene(50, 300)), png(scene(333, 222))]


def ask(client, model, photos, *outputs):
    image = grpc.InferInput("image", [len(photos)], "BYTES")
    image.set_data_from_numpy(np.array(photos, np.object_))
    found = client.infer(model, [image], outputs=[grpc.InferRequestedOutput(name) for name in outputs])
    return [found.as_numpy(name) for name in outputs]


def test_the_patches_of_all_images_are_one_tensor_with_a_grid_per_image(server):
    client = client_of(server, "grpc")
    with pp.Engine(PIPELINE) as engine:
        batch = engine.run_batch(PHOTOS)
    patches, grids = ask(client, "preprocess", PHOTOS, "pixel_values", "image_grid_thw")
    assert np.array_equal(grids, batch.outputs["image_grid_thw"])
    assert np.array_equal(patches, np.concatenate(batch.outputs["pixel_values"]))
    assert np.array_equal(patches, batch.packed("pixel_values"))
    assert len(patches) == grids.prod(axis=1).sum()
    features, counts = ask(client, "ensemble", PHOTOS, "features", "counts")
    np.testing.assert_allclose(features, patches @ WEIGHTS, atol=1e-3)
    assert counts.tolist() == grids.prod(axis=1)[:, None].tolist()
    alone, count = ask(client, "ensemble", PHOTOS[1:2], "features", "counts")
    np.testing.assert_allclose(alone, features[counts[0, 0] : counts[0, 0] + count[0, 0]], atol=1e-3)


def test_a_broken_image_is_named_and_fails_only_its_request(server):
    client = client_of(server, "grpc")
    with pytest.raises(InferenceServerException) as caught:
        ask(client, "ensemble", [PHOTOS[0], b"no image", PHOTOS[1]], "features")
    assert "[UNKNOWN_FORMAT] image 2 of 3" in caught.value.message()
    assert len(ask(client, "ensemble", PHOTOS[:1], "features")[0])


def test_the_command_line_shows_the_patches_of_a_photo(server, tmp_path):
    (tmp_path / "photo.png").write_bytes(PHOTOS[0])
    command = [sys.executable, "-m", "pixprep", "send", "--url", address(server), "--json"]
    done = subprocess.run([*command, tmp_path / "photo.png"], capture_output=True, text=True, check=True)
    outputs = json.loads(done.stdout)["outputs"]
    assert {len(row) for row in outputs["features"]} == {6}
    assert outputs["counts"] == [[len(outputs["features"])]]


def test_the_page_shows_the_patches_and_the_tokens_of_a_photo(server, models):
    page = Photos(["preprocess", "ensemble"], folder=models, http_url=server.http_url, grpc_url=server.grpc_url)
    with pp.Engine(PIPELINE) as engine:
        ((_, rows, columns),) = engine.run_batch(PHOTOS[:1]).packed("image_grid_thw").tolist()
    shown = {each["name"]: each for each in page.answer("preprocess", PHOTOS[:1], names=["a.png"])["outputs"]}
    assert shown["pixel_values"]["shape"] == [rows * columns, 1176]
    assert shown["image_grid_thw"]["values"] == [1, rows, columns]
    features, _ = page.answer("ensemble", PHOTOS[:1], names=["a.png"])["outputs"]
    assert features["shape"] == [rows * columns, 6]
    words = [word for panel in page.stages("ensemble", PHOTOS[0])["tensors"][0]["panels"] for word in panel["words"]]
    assert f"The grid has {rows} rows and {columns} columns of 14 x 14 pixels." in words
    assert f"The {rows * columns // 4} windows become the image tokens of the language model." in words


def test_several_images_per_request_are_refused_by_the_command_line(server, tmp_path, capsys):
    (tmp_path / "photo.png").write_bytes(PHOTOS[0])
    command = ["send", "--url", address(server), "--batch", "2", *[str(tmp_path / "photo.png")] * 2]
    assert main(command) == 1
    assert 'model "ensemble" concatenates the patches or tiles of all images of a request' in capsys.readouterr().err


def test_the_repository_has_no_problem_and_declares_no_batch(models):
    assert not [problem for problem in check(models) if problem.is_error]
    text = (models / "ensemble" / "config.pbtxt").read_text()
    assert "max_batch_size: 0" in text
    assert "dims: [ -1, 6 ]" in text


REFUSED = {
    "a batch dimension": ({"batch": (1,)}, "a model of patches has no batch dimension: export it with [-1, 1176]"),
    "patches of another size": ({"values": 588}, 'but "pixel_values" is [-1, 588]'),
    "a grid of another type": ({"grid": "INT32"}, "set patch_grid dtype to int32"),
    "a grid of floats": ({"grid": "FLOAT16"}, 'input "image_grid_thw" is float16: export the model with int64'),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_tower_that_does_not_fit_is_rejected_with_the_fix(case, tmp_path):
    fields, message = REFUSED[case]
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "models", pipeline=PIPELINE, onnx=save_tower(tmp_path / "tower.onnx", **fields))
    assert message in str(caught.value)


def test_a_batch_size_is_rejected(tmp_path):
    with pytest.raises(PipelineError, match="without a batch dimension: leave the option out"):
        build(tmp_path / "models", pipeline=PIPELINE, onnx=save_tower(tmp_path / "tower.onnx"), max_batch_size=4)
