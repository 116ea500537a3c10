"""A process that runs an ONNX file once, and nothing else: what that costs, and how it ends, is its own.

python -m pixprep.repository.onnx_trial model.onnx

It reads ``inputs.npz`` of the current folder, the inputs by name, and writes ``outputs.npz``, by their numbers.
"""

from __future__ import annotations

import resource
import sys

import numpy as np
import onnxruntime

MAX_BYTES = 16 << 30
"""Of addresses: an ONNX file may ask for any amount."""


def main(onnx: str) -> None:
    """Run it."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MAX_BYTES if hard == resource.RLIM_INFINITY else min(MAX_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    with np.load("inputs.npz") as inputs:
        outputs = session.run([tensor.name for tensor in session.get_outputs()], dict(inputs))
    arrays = [np.asarray(value) for value in outputs]
    numbers = [array if array.dtype.kind in "fiub" else np.zeros(0) for array in arrays]  # words are no scores
    np.savez("outputs.npz", **{str(index): array for index, array in enumerate(numbers)})


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:  # noqa: BLE001  (ONNX Runtime's share no base)
        sys.exit((str(error) or type(error).__name__).splitlines()[0])
