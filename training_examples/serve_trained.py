"""Build what a training wrote for Triton, serve it, and compare the served answers with the training's own.

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
    """Send every photo of the evaluation; compare the tensors, the logits and what they are worth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trained", type=Path, default=Path("trained"))
    parser.add_argument("--pipeline", default="photos.json", help="that it was trained with, beside this program")
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
            np.stack([answer.outputs[output] for answer in client.send(paths, url=url, model=model)])
            for model, output in (("preprocess", "tensor"), ("ensemble", "logits"))
        )
    network = onnxruntime.InferenceSession(trained / "model.onnx", providers=["CPUExecutionProvider"])
    alone = np.concatenate([network.run(None, {"tensor": tensor[None]})[0] for tensor in evaluation["tensor"]])
    off = np.abs(logits - evaluation["logits"]).max()
    print(f"{len(paths)} photos served")
    print(f"tensors that differ from the training's: {np.sum(np.any(tensors != evaluation['tensor'], axis=(1, 2, 3)))}")
    print(f"logits that differ from ONNX Runtime's: {np.sum(logits != alone)}; from PyTorch's by at most {off:.1e}")
    name, number = measured(logits, evaluation)
    print(f"{name} of the served model: {number:.4f}, in training: {evaluation['number']:.4f}")
    same_number = abs(number - evaluation["number"]) <= 1e-3
    if not (
        same_number and np.array_equal(tensors, evaluation["tensor"]) and np.array_equal(logits, alone) and off <= 1e-4
    ):
        sys.exit("serve_trained.py: the served model is not the one that was trained")


if __name__ == "__main__":
    main()
