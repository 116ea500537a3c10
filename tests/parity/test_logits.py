"""Tests the effect of pixprep's pixels on a network. EfficientNet-lite0 computes logits for 20 labelled photos that are
preprocessed by pixprep, and for the same photos preprocessed by a reference.

The photos are in the foolbox wheel, and their file names end with the ImageNet label. pip downloads the wheel once into
pytest's cache.
"""

import io
import subprocess
import sys
import zipfile

import msgspec
import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.errors import SetupError

onnxruntime = pytest.importorskip("onnxruntime", reason="NO ONNX RUNTIME: logits are not compared")

WHEEL = "foolbox==3.3.4"


@pytest.fixture(scope="module")
def photos(request):
    """Return the bytes of each photo and its label."""
    folder = request.config.cache.mkdir("foolbox")
    if not any(folder.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
        fetched = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        if fetched.returncode != 0:
            pytest.skip(f"NO PHOTOS: pip cannot fetch {WHEEL}: logits are not compared")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(name for name in archive.namelist() if name.startswith("foolbox/data/imagenet_"))
        assert len(names) == 20
        return [(archive.read(name), int(name.removesuffix(".jpg").rpartition("_")[2])) for name in names]


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Return a function from tensors (n, 3, 224, 224) to logits (n, 1000)."""
    path = tmp_path_factory.mktemp("lite0") / "model.onnx"
    try:
        from pixprep.serving.repository import lite0  # noqa: PLC0415  (needs the packages of the demo)

        path.write_bytes(lite0.export(lite0.find_checkpoint())[0])
    except SetupError as missing:
        pytest.skip(f"NO CLASSIFIER: {missing}: logits are not compared")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda tensors: session.run(None, {"input": tensors})[0]


def reference(encoded):
    """Return the reference preprocessing with Pillow and NumPy: the central 0.875 of the shorter side, resized with
    bicubic, and (value - 127) / 128.
    """
    image = Image.open(io.BytesIO(encoded)).convert("RGB")
    side = int(0.875 * min(image.size))
    left, top = ((length - side + 1) // 2 for length in image.size)
    image = image.crop((left, top, left + side, top + side)).resize((224, 224), Image.Resampling.BICUBIC)
    return ((np.asarray(image, np.float32) - 127) / 128).transpose(2, 0, 1)


@pytest.fixture(scope="module")
def expected(photos, network):
    return network(np.stack([reference(encoded) for encoded, _ in photos]))


def preset(**resize):
    ops = pp.presets.efficientnet_lite0().ops
    return pp.Pipeline([msgspec.structs.replace(op, **resize) if isinstance(op, pp.resize) else op for op in ops])


def logits(network, photos, pipeline):
    with pp.Engine(pipeline, threads=1) as engine:
        return network(np.stack(engine.run([encoded for encoded, _ in photos])))


def top_count(values, photos, count):
    """Return the number of photos whose label is among the ``count`` largest logits."""
    best = np.argsort(-values, axis=1)[:, :count]
    return sum(label in row for row, (_, label) in zip(best, photos, strict=True))


def test_the_preset_gives_the_logits_of_the_reference(photos, network, expected):
    values = logits(network, photos, preset())
    assert np.abs(values - expected).max() < 1e-4
    assert np.array_equal(values.argmax(1), expected.argmax(1))


def test_the_labels_are_predicted(photos, expected):
    assert (top_count(expected, photos, 1), top_count(expected, photos, 5)) == (18, 19)
