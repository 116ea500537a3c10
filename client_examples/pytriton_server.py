"""A pipeline served by PyTriton: an Engine bound to a model, without a model repository.

pip install ".[server]"
python pytriton_server.py pipeline.json --http-port 8000 --grpc-port 8001

A Python of pyenv, conda or uv keeps its library to itself; Triton finds it by
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
    """Serve the model ``preprocess`` on this machine: images in, their tensors and what is wrong with them out."""
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
        # an exception would fail the whole batch, the requests of others among it
        status = [[str(error or "").encode()] for error in done.errors]
        return {name: done.outputs[name], "status": np.array(status, dtype=np.object_)}

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # PyTriton knows Ctrl-C alone
    local = {f"{port}_address": "127.0.0.1" for port in ("http", "grpc", "metrics")}  # not every address
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
