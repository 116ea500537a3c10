"""Program that runs an ONNX file, in a separate process so that a crash or high memory use does no harm.

python -m pixprep.serving.repository.onnx_trial model.onnx

The program runs the file once for each set of inputs. It reads set N from ``inputsN.npz`` in the current folder, where
the keys are the names of the inputs, and writes the outputs to ``outputsN.npz``, where the keys are the indices of the
outputs. If the first run fails, the program searches for an input shape that the model accepts, writes this shape to
``shape.json``, and exits. If another run fails, the program writes the reason to ``failureN``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from pixprep.cores import cores
from pixprep.serving.repository.trial_limits import limit_memory

_SIDES = (112, 128, 160, 192, 224, 240, 256, 260, 288, 299, 300, 320, 336, 384, 416, 448, 480, 512, 608, 640, 768, 800)
_SEARCH_S = 5.0


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
            if number:
                Path(f"failure{number}").write_text(_first_line(error), encoding="utf-8")
                continue
            if len(inputs) == 1:
                Path("shape.json").write_text(json.dumps(_shape(session, *inputs.values())), encoding="utf-8")
            raise
        arrays = [np.asarray(value) for value in outputs]
        numbers = [
            array if array.dtype.kind in "fiub" else np.zeros(0) for array in arrays
        ]  # only numeric outputs are saved
        np.savez(f"outputs{number}.npz", **{str(index): array for index, array in enumerate(numbers)})


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _shape(session: Any, example: Any) -> list[int] | None:
    """Return a similar shape that the model accepts, or None if its dimensions are fixed or no such shape is found."""
    (tensor,) = session.get_inputs()
    end = time.monotonic() + _SEARCH_S
    for shape in _shapes(example.shape, tensor.shape):
        if time.monotonic() > end:
            break
        try:
            session.run(None, {tensor.name: np.zeros(shape, example.dtype)})
        except Exception:  # noqa: BLE001, S112  (no common base class; only the first error is reported)
            continue
        return shape
    return None


def _shapes(shape: tuple[int, ...], declared: list[Any]) -> Iterator[list[int]]:
    """Yield shapes to try.

    First, round the height and the width up to multiples of 32. Then try squares, beginning with the nearest size.
    """
    free = [axis for axis in range(1, len(shape)) if not isinstance(declared[axis], int) and shape[axis] > 4]
    if not free:
        return
    yield [-(-length // 32) * 32 if axis in free else length for axis, length in enumerate(shape)]
    for side in sorted(_SIDES, key=lambda side: abs(side - shape[free[0]])):
        yield [side if axis in free else length for axis, length in enumerate(shape)]


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:  # noqa: BLE001  (ONNX Runtime's exceptions have no common base class)
        sys.exit(_first_line(error))
