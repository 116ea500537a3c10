"""Print the best class of each box in a photo, in one request to a model that accepts boxes.

pip install "tritonclient[all]"
python boxes.py photo.jpg 130,90,290,330 380,180,510,410 --labels labels.txt --url localhost:8000
"""

import argparse
import sys
from http.client import HTTPException
from pathlib import Path

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException


def box(text: str) -> list[float]:
    """Parse left, top, right and bottom, in pixels of the photo after its EXIF orientation is applied."""
    left, top, right, bottom = map(float, text.split(","))
    return [left, top, right, bottom]


def main() -> None:
    """Send the photo with its boxes and print the best class of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photo", type=Path)
    parser.add_argument("boxes", type=box, nargs="+", metavar="LEFT,TOP,RIGHT,BOTTOM")
    parser.add_argument("--labels", type=Path, help="file of class names, one per line")
    parser.add_argument("--model", default="ensemble")
    parser.add_argument("--output", default="scores", help="output of the model with one score per class")
    parser.add_argument("--url", default="localhost:8000")
    arguments = parser.parse_args()

    names = arguments.labels.read_text(encoding="utf-8").splitlines() if arguments.labels else []
    image = triton.InferInput("image", [1], "BYTES")
    image.set_data_from_numpy(np.array([arguments.photo.read_bytes()], dtype=np.object_))
    boxes = triton.InferInput("boxes", [len(arguments.boxes), 4], "FP32")
    boxes.set_data_from_numpy(np.array(arguments.boxes, np.float32))
    with triton.InferenceServerClient(arguments.url) as client:
        scores = client.infer(arguments.model, [image, boxes]).as_numpy(arguments.output)
    for corners, row in zip(arguments.boxes, scores, strict=True):  # one row per box, in the same order
        best = int(row.argmax())
        print(f"{row[best]:8.4f}  {names[best] if names else f'class {best}'}  {corners}")


if __name__ == "__main__":
    try:
        main()
    except (ConnectionError, HTTPException) as error:
        sys.exit(f"boxes.py: {error}: check that `pixprep serve` is running and --url is its HTTP port")
    except (OSError, InferenceServerException) as error:
        sys.exit(f"boxes.py: {error}")
