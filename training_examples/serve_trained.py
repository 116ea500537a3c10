"""Build what pytorch_train.py wrote for Triton, serve it, and compare the served answers with the training's own.

python serve_trained.py --trained trained
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime

from pixprep.serve import client
from pixprep.serve.server import Server

PIPELINE = Path(__file__).with_name("photos.json")


def main() -> None:
    """Send every photo of the evaluation, and compare tensor and logits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trained", type=Path, default=Path("trained"))
    trained = parser.parse_args().trained

    build = [sys.executable, "-m", "pixprep", "build", "--force", "--output", trained / "models"]
    files = ["--pipeline", PIPELINE, "--onnx", trained / "model.onnx", "--labels", trained / "labels.txt"]
    subprocess.run([*build, *files], check=True)

    evaluation = np.load(trained / "evaluation.npz")
    paths = [Path(path) for path in evaluation["paths"]]
    with Server(trained / "models", http_port=0, grpc_port=0, metrics_port=0) as server:
        url = server.http_url.removeprefix("http://")
        tensors, logits = (
            np.stack([answer.outputs[output] for answer in client.send(paths, url=url, model=model)])
            for model, output in (("preprocess", "tensor"), ("ensemble", "logits"))
        )
    network = onnxruntime.InferenceSession(trained / "model.onnx", providers=["CPUExecutionProvider"])
    alone = np.concatenate([network.run(None, {"tensor": tensor[None]})[0] for tensor in evaluation["tensor"]])
    off = np.abs(logits - evaluation["logits"]).max()
    print(f"{len(paths)} photos served")
    print(f"tensors that differ from the training's: {np.sum(np.any(tensors != evaluation['tensor'], axis=(1, 2, 3)))}")
    print(f"logits that differ from ONNX Runtime's: {np.sum(logits != alone)}; from PyTorch's by at most {off:.1e}")
    if not (np.array_equal(tensors, evaluation["tensor"]) and np.array_equal(logits, alone) and off <= 1e-4):
        sys.exit("serve_trained.py: the served model is not the one that was trained")


if __name__ == "__main__":
    main()
