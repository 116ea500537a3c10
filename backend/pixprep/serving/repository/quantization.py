"""Quantization of an integer input: finds its scale and zero point in an ONNX file, and compares them with a pipeline.

An integer q of the input represents the real value ``(q - zero_point) * scale``. A pipeline returns real values, which
``QuantizeLinear`` converts to integers: ``round(value / scale) + zero_point``, with ties to even, limited to the range
of the type.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError
from pixprep.serving.repository.onnx_edit import MOVES, Array, Edit, constant_of

_TAKERS = ("DequantizeLinear", "QLinearConv", "QLinearMatMul", "QGemm")
"""Operators whose first three inputs are a quantized tensor, its scale and its zero point."""
_MAX_NODES = 16
_FIRST_OPSET = {"INT8": 10, "UINT8": 10, "INT16": 21, "UINT16": 21}
"""First opset in which QuantizeLinear can return each type."""
_MAX_CLIPPED, _MIN_DISTINCT = 0.1, 32
"""Maximum fraction of the pixel values that are clipped to the range of the input, and minimum number of different
integers. A calibration on few photos clips a few values. A wrong normalization clips more values, or maps many values
to the same integer."""


class Quantization(NamedTuple):
    """Scale (float32) and zero point (with the integer type of the input). Both are 0-dimensional arrays."""

    scale: npt.NDArray[np.float32]
    zero_point: Array

    def __str__(self) -> str:
        return f"scale {self.scale:g} and zero point {self.zero_point}"

    def mismatch(self, values: Array, kind: str) -> str:
        """Describe why the range of this quantization does not match the values of a pipeline.

        Args:
            values: Value of the tensor for each pixel value, float64 (channels, 256).
            kind: Type of the input, such as ``INT8``.

        Returns:
            The description with its fix, or an empty string if the range matches.
        """
        limits, scale, zero = np.iinfo(kind.lower()), float(self.scale), int(self.zero_point)
        integers = np.round(values / scale) + zero
        clipped = np.clip(integers, limits.min, limits.max)
        is_range = (np.abs(clipped - integers) > 1).mean() <= _MAX_CLIPPED
        if is_range and max(len(np.unique(row)) for row in clipped) >= _MIN_DISTINCT:
            return ""
        low, high = ((end - zero) * scale for end in (limits.min, limits.max))
        return (
            f"{self}, which represent values from {low:.4g} to {high:.4g}, but the pipeline returns values from "
            f"{values.min():.4g} to {values.max():.4g}: normalize as in the training of the model"
        )


def given_quantization(name: str, value: Any, kind: str, edit: Edit) -> Quantization:
    """Return the quantization that the user has set for an input.

    Raises:
        PipelineError: The value is not a scale and a zero point, or the type of the input cannot be quantized.
    """
    prefix = f"{edit.classifier.source}: --quantization {name}"
    if edit.opset < _FIRST_OPSET.get(kind, edit.opset + 1):
        known = ", ".join(f"{key.lower()} from opset {first}" for key, first in _FIRST_OPSET.items())
        raise PipelineError(
            f"{prefix}: the input is {kind.lower()}, which QuantizeLinear of opset {edit.opset} cannot return (it "
            f"returns {known})"
        )
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    if not is_pair or not all(isinstance(each, int | float) and not isinstance(each, bool) for each in value):
        raise PipelineError(f"{prefix}: expected the scale and the zero point, such as {name}=[0.0078125,0]")
    limits = np.iinfo(kind.lower())
    if not value[0] > 0 or value[1] != int(value[1]) or not limits.min <= value[1] <= limits.max:
        raise PipelineError(
            f"{prefix}: the scale must be greater than 0, and the zero point an integer from {limits.min} to "
            f"{limits.max}, not {list(value)}"
        )
    return _quantization(value[0], value[1], kind)


def quantization_of(edit: Edit, name: str, kind: str) -> Quantization | None:
    """Return the quantization of an input that the graph contains.

    The result is None if the nodes that read the input do not specify a quantization, if they specify different ones,
    or if the quantization has one value per channel.
    """
    if edit.opset < _FIRST_OPSET.get(kind, edit.opset + 1):
        return None
    found: set[tuple[float, float]] = set()
    names = [name]
    for current in names:
        takers = [node for node in edit.graph.node if current in node.input and node.op_type not in ("Shape", "Size")]
        for node in takers:
            if node.op_type in MOVES and node.input[0] == current and len(names) < _MAX_NODES:
                names.append(node.output[0])
                continue
            if node.op_type not in _TAKERS or node.input[0] != current or list(node.input).count(current) > 1:
                return None
            scale = constant_of(edit.graph, node.input[1])
            has_zero = len(node.input) > 2 and node.input[2]
            zero = constant_of(edit.graph, node.input[2]) if has_zero else np.zeros(1)
            if scale is None or zero is None or len(scale) != 1 or len(zero) != 1:
                return None
            found.add((float(scale[0]), float(zero[0])))
    if len(found) != 1:
        return None
    ((scale_value, zero_value),) = found
    return _quantization(scale_value, zero_value, kind)


def _quantization(scale: float, zero_point: float, kind: str) -> Quantization:
    return Quantization(np.array(scale, np.float32), np.array(zero_point, kind.lower()))
