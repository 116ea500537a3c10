"""Show what is in a clip: the five best classes of the mean over its frames, one HTTP request a clip.

pip install "tritonclient[all]"
python clip.py clip.mp4 --url localhost:8000

The server has an ensemble of a pipeline and a classifier of clips; docs/video.md has the lines that make both.
"""

import argparse
import sys
from http.client import HTTPException
from pathlib import Path

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException


def main() -> None:
    """Send the clips and print what comes back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", type=Path, nargs="+", metavar="CLIP")
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("--model", default="ensemble")
    parser.add_argument("--output", default="logits", help="the output of the model that has a score for each class")
    arguments = parser.parse_args()

    with triton.InferenceServerClient(arguments.url) as client:
        for path in arguments.clips:
            clip = triton.InferInput("image", [1, 1], "BYTES")  # of a batch of one: the file, as it is
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
        sys.exit(f"clip.py: {error}: is `pixprep serve` running at --url, its HTTP port?")
    except (OSError, InferenceServerException) as error:
        sys.exit(f"clip.py: {error}")
