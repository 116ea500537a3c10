"""Serve a pipeline with PyTriton: the model calls an Engine, and no model repository is needed.

pip install ".[server]"
python pytriton_server.py pipeline.json --http-port 8000 --grpc-port 8001

If your Python comes from pyenv, conda or uv, Triton finds its shared library only with
LD_LIBRARY_PATH=$(python -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')
"""

import argparse
import signal
import sys
from pathlib import Path

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

import pixprep as pp


def main() -> None:
    """Serve the model ``preprocess`` on this machine. It returns each image's tensor, and its error in ``status``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--http-port", type=int, default=8000)
    parser.add_argument("--grpc-port", type=int, default=8001)
    parser.add_argument("--metrics-port", type=int, default=8002)
    arguments = vars(parser.parse_args())
    engine = pp.Engine(pp.load(arguments.pop("pipeline")))
    name, output = next(iter(engine.pipeline.outputs.items()))

    @batch
    def preprocess(image: np.ndarray) -> dict[str, np.ndarray]:
        done = engine.run_batch([row[0] for row in image], outputs=[name])
        # an exception would fail the whole batch, including the requests of other clients
        status = [[str(error or "").encode()] for error in done.errors]
        return {name: done.outputs[name], "status": np.array(status, dtype=np.object_)}

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # PyTriton handles only Ctrl-C
    local = {f"{port}_address": "127.0.0.1" for port in ("http", "grpc", "metrics")}  # default: all addresses
    with Triton(config=TritonConfig(**arguments, **local)) as triton:
        triton.bind(
            model_name="preprocess",
            infer_func=preprocess,
            inputs=[Tensor(name="image", dtype=bytes, shape=(1,))],
            outputs=[
                Tensor(name=name, dtype=np.dtype(output.spec.dtype), shape=output.spec.shape),
                Tensor(name="status", dtype=bytes, shape=(1,)),
            ],
            config=ModelConfig(max_batch_size=64, batcher=DynamicBatcher()),
        )
        triton.serve()


if __name__ == "__main__":
    main()
