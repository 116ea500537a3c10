"""Print the five best classes of each clip, averaged over its frames, with one HTTP request per clip.

pip install "tritonclient[all]"
python clip.py clip.mp4 --url localhost:8000

The server needs an ensemble of a pipeline and a classifier for clips; docs/video.md shows how to create both.
"""

import argparse
import sys
from http.client import HTTPException
from pathlib import Path

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException


def main() -> None:
    """Send the clips and print their classes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", type=Path, nargs="+", metavar="CLIP")
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("--model", default="ensemble")
    parser.add_argument("--output", default="logits", help="output of the model with one score per class")
    arguments = parser.parse_args()

    with triton.InferenceServerClient(arguments.url) as client:
        for path in arguments.clips:
            clip = triton.InferInput("image", [1, 1], "BYTES")  # a batch of one: the unchanged file
            clip.set_data_from_numpy(np.array([[path.read_bytes()]], dtype=np.object_))
            scores = triton.InferRequestedOutput(arguments.output, class_count=5)
            answer = client.infer(arguments.model, [clip], outputs=[scores])
            print(path.name)
            for entry in answer.as_numpy(arguments.output)[0]:
                score, index, *label = entry.decode().split(":", 2)
                print(f"  {float(score):6.2f}  class {index}  {''.join(label)}")


if __name__ == "__main__":
    try:
        main()
    except (ConnectionError, HTTPException) as error:
        sys.exit(f"clip.py: {error}: check that `pixprep serve` is running and --url is its HTTP port")
    except (OSError, InferenceServerException) as error:
        sys.exit(f"clip.py: {error}")
