"""Program that asks TensorRT for RTX about an ONNX file, in a separate process so that a crash does no harm.

python -m pixprep.serving.repository.tensorrt_trial model.onnx

TensorRT for RTX contains the ONNX parser of TensorRT and, unlike TensorRT, needs no GPU. The program reads the
optimization profile from ``profile.json`` in the current folder: for each input with dynamic dimensions, its minimum,
optimum and maximum shape. It writes ``answer.json``:

- ``version``: Version of TensorRT for RTX.
- ``rejected``: Nodes that the parser rejects, each with its name, its operator and the parser's reason.
- ``inputs``, ``outputs``: Data types by name, as TensorRT names them.
- ``layers``: Number of layers of the network.
- ``error``: Error of the builder, or an empty string. The builder only runs if there is a profile, and if the parser
  accepts the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tensorrt_rtx_bindings as trt

from pixprep.serving.repository.trial_limits import limit_memory


class _Log(trt.ILogger):  # type: ignore[misc]
    """Collects the errors, which TensorRT reports only in its log."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []

    def log(self, severity: Any, message: str) -> None:
        if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
            self.errors.append(message)


def main(onnx: str) -> None:
    """Parse an ONNX file and build its engine, as the docstring of this module describes."""
    limit_memory()
    profile = json.loads(Path("profile.json").read_text(encoding="utf-8"))
    log = _Log()
    builder = trt.Builder(log)
    network = builder.create_network()
    parser = trt.OnnxParser(network, log)
    is_parsed = parser.parse_from_file(onnx)
    answer: dict[str, Any] = {
        "version": trt.__version__,
        "rejected": [_rejected(parser.get_error(index)) for index in range(parser.num_errors)],
        "inputs": _types(network.get_input, network.num_inputs),
        "outputs": _types(network.get_output, network.num_outputs),
        "layers": network.num_layers,
        "error": "",
    }
    if is_parsed and profile is not None:
        log.errors.clear()
        config = builder.create_builder_config()
        shapes = builder.create_optimization_profile()
        for name, least_to_most in profile.items():
            shapes.set_shape(name, *least_to_most)
        if profile:
            config.add_optimization_profile(shapes)
        if builder.build_serialized_network(network, config) is None:
            answer["error"] = log.errors[0] if log.errors else "the builder returned no engine"
    Path("answer.json").write_text(json.dumps(answer), encoding="utf-8")


def _rejected(error: Any) -> tuple[str, str, str]:
    """Return the name of a node, its operator, and the parser's reason.

    For an input that the parser rejects, TensorRT logs the name of the input in place of the source file, and does not
    log an operator.
    """
    is_input = not error.node_operator() and error.func() == "importInput"
    return (error.file() if is_input else error.node_name()), error.node_operator(), error.desc()


def _types(get: Any, count: int) -> dict[str, str]:
    return {get(index).name: get(index).dtype.name for index in range(count)}


if __name__ == "__main__":
    main(*sys.argv[1:])
