"""Vision towers of transformers with random weights, which tests export to ONNX as in docs/vision-language.md."""

import re
import subprocess
from pathlib import Path

DOC = (Path(__file__).parents[2] / "docs" / "vision-language.md").read_text(encoding="utf-8")
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


def run_python(python, program, *arguments, cwd):
    subprocess.run([python, "-c", program, *arguments], cwd=cwd, check=True, timeout=200)


def export_tower(python, name, folder, photos=()):
    """Write the model and the configuration of its processor to a folder, and export the model to ONNX.

    Args:
        python: Interpreter with PyTorch and transformers.
        name: Key of ``RANDOM_MODELS``.
        folder: Folder for ``NAME/preprocessor_config.json`` and ``NAME.onnx``. The features that transformers computes
            for the photos are written to ``NAME/0.npy``, ``NAME/1.npy`` and so on.
        photos: Paths of photos.
    """
    run_python(python, THEIRS.format(define=RANDOM_MODELS[name]), name, *map(str, photos), cwd=folder)
    (export,) = (
        block
        for block in re.findall(r"^```\n(import torch.*?)^```", DOC, re.MULTILINE | re.DOTALL)
        if f'("{name}")' in block
    )
    run_python(python, export, cwd=folder)
