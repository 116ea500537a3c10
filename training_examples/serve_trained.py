"""Serve a trained model with Triton, and compare its outputs with those that the training has saved.

python serve_trained.py --trained trained                                         after pytorch_train.py
python serve_trained.py --trained trained/segmented --pipeline segmentation.json  after pytorch_segment.py
python serve_trained.py --trained trained/detector --pipeline detection.json      after pytorch_detect.py
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from measures import measured

from pixprep.serving.embedded import client
from pixprep.serving.embedded.server import Server

HERE = Path(__file__).parent


def main() -> None:
    """Send all validation images to the server, and compare the tensors, the logits and the metric."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trained", type=Path, default=Path("trained"))
    parser.add_argument("--pipeline", default="photos.json", help="pipeline file of the training, in this folder")
    options = parser.parse_args()
    trained, labels = options.trained, options.trained / "labels.txt"

    build = [sys.executable, "-m", "pixprep", "build", "--force", "--output", trained / "models"]
    files = ["--pipeline", HERE / options.pipeline, "--onnx", trained / "model.onnx"]
    subprocess.run([*build, *files, *(["--labels", labels] if labels.exists() else [])], check=True)

    evaluation = np.load(trained / "evaluation.npz")
    paths = [Path(path) for path in evaluation["paths"]]
    with Server(trained / "models", http_port=0, grpc_port=0, metrics_port=0) as server:
        url = server.http_url.removeprefix("http://")
        tensors, logits = (
            np.stack([response.outputs[output] for response in client.send(paths, url=url, model=model)])
            for model, output in (("preprocess", "tensor"), ("ensemble", "logits"))
        )
    network = onnxruntime.InferenceSession(trained / "model.onnx", providers=["CPUExecutionProvider"])
    local = np.concatenate([network.run(None, {"tensor": tensor[None]})[0] for tensor in evaluation["tensor"]])
    error = np.abs(logits - evaluation["logits"]).max()
    print(f"images served: {len(paths)}")
    print(f"tensors that differ from the training: {np.sum(np.any(tensors != evaluation['tensor'], axis=(1, 2, 3)))}")
    print(
        f"logits that differ from ONNX Runtime: {np.sum(logits != local)}; largest difference to PyTorch: {error:.1e}"
    )
    name, number = measured(logits, evaluation)
    print(f"{name} of the served model: {number:.4f}, after training: {evaluation['number']:.4f}")
    same_number = abs(number - evaluation["number"]) <= 1e-3
    if not (
        same_number
        and np.array_equal(tensors, evaluation["tensor"])
        and np.array_equal(logits, local)
        and error <= 1e-4
    ):
        sys.exit("serve_trained.py: the outputs of the served model differ from those of the training")


if __name__ == "__main__":
    main()
