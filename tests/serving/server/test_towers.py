"""Tests that vision encoders exported as on docs/vision-language.md return, for a raw photo sent to a real Triton, the
features that transformers' own image processor and model return (see ``make models``).
"""

from pathlib import Path

import numpy as np
import pytest
from tritonclient import grpc

from pixprep.cli.parser import main
from pixprep.serving.embedded.server import Server
from support.images import jpeg, scene
from support.serving import client_of
from support.towers import RANDOM_MODELS, export_tower

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-models" / "bin" / "python"

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not PYTHON.with_name("rapidocr").exists(), reason="run make models"),
]


@pytest.mark.parametrize("name", RANDOM_MODELS)
def test_the_features_of_a_photo_equal_those_of_transformers(name, tmp_path):
    photos = [tmp_path / f"{number}.jpg" for number in range(3)]
    for photo, size in zip(photos, [(480, 640), (300, 90), (64, 64)], strict=True):
        photo.write_bytes(jpeg(scene(*size), quality=90))
    export_tower(PYTHON, name, tmp_path, photos)

    pipeline, models = str(tmp_path / "pipeline.json"), tmp_path / "models"
    assert main(["import", str(tmp_path / name / "preprocessor_config.json"), pipeline]) == 0
    onnx = str(tmp_path / f"{name}.onnx")
    assert main(["build", "--pipeline", pipeline, "--onnx", onnx, "--output", str(models)]) == 0
    with Server(models, http_port=0, grpc_port=0, metrics_port=0, grace_s=0) as server:
        client = client_of(server, "grpc")
        for number, photo in enumerate(photos):
            shape = [1] if name == "internvl" else [1, 1]
            image = grpc.InferInput("image", shape, "BYTES")
            image.set_data_from_numpy(np.array([photo.read_bytes()], np.object_).reshape(shape))
            features = client.infer("ensemble", [image]).as_numpy("features")
            theirs = np.load(tmp_path / name / f"{number}.npy")
            if name == "siglip2":
                features = features[0, : len(theirs)]
            assert features.shape == theirs.shape
            np.testing.assert_allclose(features, theirs, atol=1e-4)
            assert np.ptp(theirs) > 0.01
