"""A Triton Python-backend model that calls the function ``rows`` of the ``rows.py`` beside it.

``pixprep build --boxes-from`` copies this file to ``rows/1/model.py``. It stands between a detector and a pipeline that
takes rows with each photo, such as boxes (n, 4) or quads (n, 4, 2). The parameters of the function are the outputs of
the detector for one photo, without the batch. It gives the rows of the pipeline's input; of several inputs, a dict of
the rows of each. No rows are an empty list.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

_FILE = "rows.py"


class TritonPythonModel:
    """Triton's view of the user's function."""

    def initialize(self, args: dict[str, str]) -> None:
        """Import the file.

        Raises:
            TritonModelException: it fails, or has no such function.
        """
        config = json.loads(args["model_config"])
        self._name = args["model_name"]
        path = Path(args["model_repository"], args["model_version"], _FILE)
        self._inputs = [entry["name"] for entry in config["input"]]
        self._is_batched = "batched" in config["parameters"]
        self._outputs = {
            entry["name"]: (
                [int(length) for length in entry["dims"][1:]],
                pb_utils.triton_string_to_numpy(entry["data_type"]),
            )
            for entry in config["output"]
        }
        try:
            spec = spec_from_file_location(f"{self._name}_{path.stem}", path)
            assert spec
            assert spec.loader
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            self._rows = module.rows
        except Exception as error:  # noqa: BLE001  (the user's code may raise anything)
            pb_utils.Logger.log_error(traceback.format_exc())
            raise pb_utils.TritonModelException(f"{self._name}: {_FILE}: {type(error).__name__}: {error}") from None

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request by itself; an error is of its request alone."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            arrays = {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self._inputs}
            found = self._rows(**{name: array[0] if self._is_batched else array for name, array in arrays.items()})
            tensors = [pb_utils.Tensor(name, self._array(name, found)) for name in self._outputs]
        except Exception as error:  # noqa: BLE001  (the user's code may raise anything)
            pb_utils.Logger.log_error(traceback.format_exc())
            words = f"{self._name}: {_FILE}: {type(error).__name__}: {error}"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(words, pb_utils.TritonError.INTERNAL))
        return pb_utils.InferenceResponse(tensors)

    def _array(self, name: str, found: Any) -> Any:
        """Rows of one input.

        Raises:
            ValueError: they are none.
        """
        dims, dtype = self._outputs[name]
        array = np.asarray(found[name] if isinstance(found, Mapping) else found)
        if array.size == 0:
            return np.zeros((0, *dims), dtype)
        if list(array.shape[1:]) != dims:
            raise ValueError(f'rows gives {list(array.shape)} for "{name}", which takes {["n", *dims]}')
        return np.ascontiguousarray(array, dtype)
