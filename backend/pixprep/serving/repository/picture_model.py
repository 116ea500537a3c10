"""Triton Python model that encodes picture outputs of a model as PNG or JPEG.

``pixprep build --picture`` copies this file to ``picture/1/model.py``. The parameters of the model in ``config.pbtxt``
declare the pictures.
"""

from __future__ import annotations

import json
import traceback
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from pixprep.postprocessing.pictures import Picture
from pixprep.serving.pictures import encode


class TritonPythonModel:
    """Class that Triton's Python backend calls. It encodes the pictures for each photo in a request."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the declarations."""
        config = json.loads(args["model_config"])
        parameters = {name: entry["string_value"] for name, entry in config["parameters"].items()}
        self._name, self._image = args["model_name"], parameters["image"]
        self._encoding: Any = parameters["encoding"]
        self._pictures = {name: Picture.parse(text) for name, text in json.loads(parameters["pictures"]).items()}
        self._inputs = [entry["name"] for entry in config["input"]]
        self._is_batched = config["max_batch_size"] > 0

    def execute(self, requests: list[Any]) -> list[Any]:
        """Process each request separately. An error only affects its own request."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            arrays = {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self._inputs}
            rows = len(next(iter(arrays.values()))) if self._is_batched else 1
            tensors = []
            for name, picture in self._pictures.items():
                made = np.empty((rows, 1), np.object_)
                for row in range(rows):
                    outputs = {each: array[row] if self._is_batched else array for each, array in arrays.items()}
                    photo = outputs.pop(self._image, np.array(b"")).item()
                    made[row, 0] = encode(outputs, name, picture, photo, encoding=self._encoding)
                tensors.append(pb_utils.Tensor(f"{name}_{self._encoding}", made if self._is_batched else made[0]))
        except Exception as error:  # noqa: BLE001  (anything that a picture or a photo may raise)
            pb_utils.Logger.log_error(traceback.format_exc())
            words = f"{self._name}: {error}"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(words, pb_utils.TritonError.INTERNAL))
        return pb_utils.InferenceResponse(tensors)
