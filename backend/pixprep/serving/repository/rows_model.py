"""Triton Python model that calls the function ``rows`` in the ``rows.py`` of its folder.

``pixprep build --boxes-from`` copies this file to ``rows/1/model.py``. The model converts the outputs of a detector to
a numeric input of a pipeline, such as boxes (n, 4) or quads (n, 4, 2). The parameters of the function are outputs of
the detector for one photo, without the batch dimension. The function returns the rows of the pipeline's input, or, if
there are several inputs, a dict with the rows of each input. Without detections, it returns an empty list.

Boxes that do not contain a pixel are omitted, because the preprocess model would reject their photo. Such boxes occur
in the padding of a letterbox: ``boxes_to_original`` clips them to the edge of the photo.
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
    """Class that Triton's Python backend calls. It calls the user's function once per request."""

    def initialize(self, args: dict[str, str]) -> None:
        """Import the user's file.

        Raises:
            TritonModelException: The import fails, or the file does not define the function.
        """
        config = json.loads(args["model_config"])
        self._name = args["model_name"]
        path = Path(args["model_repository"], args["model_version"], _FILE)
        self._inputs = [entry["name"] for entry in config["input"]]
        parameters = {name: entry["string_value"] for name, entry in config["parameters"].items()}
        self._is_batched = "batched" in parameters
        self._boxes = [name for name in parameters.get("boxes", "").split("\n") if name]
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
        """Process each request separately. An error only affects its own request."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            arrays = {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self._inputs}
            found = self._rows(**{name: array[0] if self._is_batched else array for name, array in arrays.items()})
            rows = {name: self._array(name, found) for name in self._outputs}
            kept = self._with_pixels(rows)
            tensors = [pb_utils.Tensor(name, np.ascontiguousarray(array[kept])) for name, array in rows.items()]
        except Exception as error:  # noqa: BLE001  (the user's code may raise anything)
            pb_utils.Logger.log_error(traceback.format_exc())
            words = f"{self._name}: {_FILE}: {type(error).__name__}: {error}"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(words, pb_utils.TritonError.INTERNAL))
        return pb_utils.InferenceResponse(tensors)

    def _array(self, name: str, found: Any) -> Any:
        """Convert the result of the user's function to the array of one input.

        Raises:
            ValueError: The rows have the wrong shape.
        """
        dims, dtype = self._outputs[name]
        array = np.asarray(found[name] if isinstance(found, Mapping) else found)
        if array.size == 0:
            return np.zeros((0, *dims), dtype)
        if list(array.shape[1:]) != dims:
            raise ValueError(f'rows returns the shape {list(array.shape)} for "{name}", which must be {["n", *dims]}')
        return array.astype(dtype)

    def _with_pixels(self, rows: Mapping[str, Any]) -> Any:
        """Return a mask of the rows whose boxes are not empty after the rounding of the op ``crop``.

        Other invalid boxes, such as inverted or normalized boxes, remain, so that the preprocess model reports them.

        Raises:
            ValueError: The inputs have different numbers of rows.
        """
        if len({len(array) for array in rows.values()}) > 1:
            raise ValueError(
                f"rows returns { {name: len(array) for name, array in rows.items()} } rows: return as many for each"
            )
        kept = np.ones(len(next(iter(rows.values()))), bool)
        for name in self._boxes:
            edges = rows[name] if (rows[name] <= 1).all() else np.rint(rows[name])
            kept &= (edges[:, :2] != edges[:, 2:]).all(axis=1)
        return kept
