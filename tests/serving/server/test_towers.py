"""Tests that vision encoders exported as on docs/vision-language.md return, for a raw photo sent to a real Triton, the
features that transformers' own image processor and model return (see ``make models``).
"""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tritonclient import grpc

from pixprep.cli.parser import main
from pixprep.serving.embedded.server import Server
from support.images import jpeg, scene
from support.serving import client_of

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "vision-language.md").read_text(encoding="utf-8")
PYTHON = ROOT / ".venv-models" / "bin" / "python"
LAYERS = '"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4'

RANDOM_MODELS = {
    "internvl": f"""
from transformers import GotOcr2ImageProcessor, InternVLConfig, InternVLModel
vision = {{{LAYERS}, "image_size": [64, 64], "patch_size": [16, 16]}}
text = {{{LAYERS}, "model_type": "qwen2", "num_key_value_heads": 4, "vocab_size": 100}}
model = InternVLModel(InternVLConfig(vision_config=vision, text_config=text, image_seq_length=4)).eval()
processor = GotOcr2ImageProcessor(
    size={{"height": 64, "width": 64}}, crop_to_patches=True, min_patches=1, max_patches=6,
    image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225],
)

def features_of(inputs):
    return model.get_image_features(pixel_values=inputs["pixel_values"]).pooler_output
""",
    "siglip2": f"""
from transformers import Siglip2ImageProcessor, Siglip2VisionConfig, Siglip2VisionModel
model = Siglip2VisionModel(Siglip2VisionConfig(**{{{LAYERS}}}, num_patches=256, patch_size=16)).eval()
processor = Siglip2ImageProcessor()

def features_of(inputs):
    features = model(**inputs).last_hidden_state
    return features[inputs["pixel_attention_mask"].bool()]
""",
}
THEIRS = """
import sys
import numpy as np
import torch
from PIL import Image
torch.manual_seed(0)
{define}
model.save_pretrained(sys.argv[1])
processor.save_pretrained(sys.argv[1])
for number, photo in enumerate(sys.argv[2:]):
    with torch.no_grad():
        found = features_of(processor(Image.open(photo).convert("RGB"), return_tensors="pt"))
    np.save(f"{{sys.argv[1]}}/{{number}}.npy", found.numpy())
"""

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not PYTHON.with_name("rapidocr").exists(), reason="run make models"),
]


def run_python(program, *arguments, cwd):
    subprocess.run([PYTHON, "-c", program, *arguments], cwd=cwd, check=True, timeout=200)


@pytest.mark.parametrize("name", RANDOM_MODELS)
def test_the_features_of_a_photo_equal_those_of_transformers(name, tmp_path):
    photos = [tmp_path / f"{number}.jpg" for number in range(3)]
    for photo, size in zip(photos, [(480, 640), (300, 90), (64, 64)], strict=True):
        photo.write_bytes(jpeg(scene(*size), quality=90))
    run_python(THEIRS.format(define=RANDOM_MODELS[name]), name, *map(str, photos), cwd=tmp_path)
    (export,) = (
        block
        for block in re.findall(r"^```\n(import torch.*?)^```", DOC, re.MULTILINE | re.DOTALL)
        if f'("{name}")' in block
    )
    run_python(export, cwd=tmp_path)

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
