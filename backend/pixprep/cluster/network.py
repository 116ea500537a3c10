"""Runs an ONNX model on the tensors of a batch. Requires onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from pixprep.errors import PixprepError

Array = npt.NDArray[Any]


class Network:
    """ONNX Runtime session for one model.

    Args:
        path: Path of the ONNX file.
        device: ``cpu`` or ``gpu``.
        threads: Number of threads on the CPU.

    Attributes:
        lists: Outputs whose rows may differ in shape: the ONNX type of each output and the number of dimensions of its
            rows, by name.

    Raises:
        PixprepError: ONNX Runtime cannot load the file.
    """

    def __init__(self, path: Path, device: str, threads: int | None) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        providers = ["CUDAExecutionProvider"] if device.startswith("gpu") else ["CPUExecutionProvider"]
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=providers)
        except Exception as error:  # noqa: BLE001  (ONNX Runtime's exceptions have no common base class)
            raise PixprepError(f"{path}: ONNX Runtime cannot load the file: {_line(error)}") from None
        self._path = path
        self._inputs = {port.name: port.shape for port in self._session.get_inputs()}
        self._outputs = {port.name: port.shape for port in self._session.get_outputs()}
        self._is_single = any(shape and shape[0] == 1 for shape in self._inputs.values())
        self.lists = {
            port.name: (port.type, len(self._of_row(port.name)))
            for port in self._session.get_outputs()
            if not all(isinstance(side, int) for side in self._of_row(port.name))
        }

    def __call__(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model. Return its outputs, together with the tensors that are not inputs of the model.

        Each input receives the tensor with the same name. If the model has a single input, this input may also receive
        the only tensor with the same number of dimensions. If the batch size of the file is fixed to 1, the rows are
        processed one after the other. An output whose first dimension is not 1, such as a list of boxes, then belongs
        entirely to one row.

        Args:
            tensors: Arrays (rows, ...) by name.

        Returns:
            Arrays (rows, ...) by name. The outputs in ``lists`` are object arrays with one array per row.

        Raises:
            PixprepError: The tensors do not match the inputs, or the model fails.
        """
        fed = {name: tensors[self._tensor(name, tensors)] for name in self._inputs}
        (rows,) = {len(array) for array in fed.values()}
        parts = [slice(row, row + 1) for row in range(rows)] if self._is_single else [slice(None)]
        try:
            found = [
                self._session.run([*self._outputs], {name: each[part] for name, each in fed.items()}) for part in parts
            ]
        except Exception as error:  # noqa: BLE001
            raise PixprepError(f"{self._path}: ONNX Runtime rejects the tensors: {_line(error)}") from None
        outputs = {}
        for name, *arrays in zip(self._outputs, *found, strict=True):
            each = (
                arrays if self._is_single and not self._is_batched(name) else [row for array in arrays for row in array]
            )
            if len(each) != rows:
                raise PixprepError(f'{self._path}: output "{name}" {list(arrays[0].shape)} does not have {rows} rows')
            outputs[name] = np.empty(rows, object) if name in self.lists else np.stack(each)
            if name in self.lists:
                outputs[name][:] = each
        taken = {self._tensor(name, tensors) for name in self._inputs}
        return {name: array for name, array in tensors.items() if name not in taken} | outputs

    def _is_batched(self, name: str) -> bool:
        """Return whether an output has a batch dimension."""
        shape = self._outputs[name]
        return bool(shape) and (not self._is_single or shape[0] == 1)

    def _of_row(self, name: str) -> list[Any]:
        """Return the declared shape of one row of an output. A dynamic dimension is a name or None."""
        shape: list[Any] = self._outputs[name]
        return shape[1:] if self._is_batched(name) else shape

    def _tensor(self, name: str, tensors: Mapping[str, Array]) -> str:
        if name in tensors:
            return name
        alike = [each for each, array in tensors.items() if array.ndim == len(self._inputs[name])]
        if len(self._inputs) > 1 or len(alike) != 1:
            raise PixprepError(
                f'{self._path}: the pipeline has no output for the input "{name}": its outputs are {", ".join(tensors)}'
            )
        return alike[0]


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
