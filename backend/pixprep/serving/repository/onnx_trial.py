"""Program that runs an ONNX file, in a separate process so that a crash or high memory use does no harm.

python -m pixprep.serving.repository.onnx_trial model.onnx

The program runs the file once for each set of inputs. It reads set N from ``inputsN.npz`` in the current folder, where
the keys are the names of the inputs, and writes the outputs to ``outputsN.npz``, where the keys are the indices of the
outputs. If the first run fails, the program exits. If another run fails, the program writes the reason to ``failureN``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime

from pixprep.cores import cores
from pixprep.serving.repository.trial_limits import limit_memory


def main(onnx: str) -> None:
    """Run an ONNX file, as the docstring of this module describes."""
    limit_memory()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores()
    session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    for number in range(len(list(Path().glob("inputs*.npz")))):
        with np.load(f"inputs{number}.npz") as found:
            inputs = dict(found)
        try:
            outputs = session.run([tensor.name for tensor in session.get_outputs()], inputs)
        except Exception as error:
            if not number:
                raise
            Path(f"failure{number}").write_text(_first_line(error), encoding="utf-8")
            continue
        arrays = [np.asarray(value) for value in outputs]
        numbers = [
            array if array.dtype.kind in "fiub" else np.zeros(0) for array in arrays
        ]  # only numeric outputs are saved
        np.savez(f"outputs{number}.npz", **{str(index): array for index, array in enumerate(numbers)})


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:  # noqa: BLE001  (ONNX Runtime's exceptions have no common base class)
        sys.exit(_first_line(error))
