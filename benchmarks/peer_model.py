"""Model for Triton's Python backend that runs a contender, as a user without pixprep would write it.

``config.pbtxt`` specifies the contender, its number of threads, the folder of ``contenders``, and the folder of the
contender's libraries.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Triton's interface to a model that runs a contender."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the contender."""
        parameters = json.loads(args["model_config"])["parameters"]
        given = {key: value["string_value"] for key, value in parameters.items()}
        sys.path += [given["FOLDER"], given["LIBRARIES"]]
        contender = importlib.import_module(f"contenders.{given['CONTENDER']}")
        self._run = contender.prepare("bilinear", int(given["THREADS"]))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Respond to requests. The images of all requests form one batch."""
        inputs = [pb_utils.get_input_tensor_by_name(request, "image").as_numpy().reshape(-1) for request in requests]
        tensors = self._run([image for images in inputs for image in images])
        if hasattr(tensors, "as_array"):
            tensors = tensors.as_array()
        ends = np.cumsum([len(images) for images in inputs])[:-1]
        return [
            pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("tensor", part)])
            for part in np.split(tensors, ends)
        ]
