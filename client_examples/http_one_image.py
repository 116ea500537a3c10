"""Print the five best classes of each photo, with one HTTP request per photo.

pip install "tritonclient[all]"
python http_one_image.py photo.jpg --url localhost:8000
"""

import argparse
import sys
import time
from http.client import HTTPException
from pathlib import Path

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException


def main() -> None:
    """Send the photos and print their classes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs="*", default=sorted(Path(__file__).parent.glob("images/*.jpg")))
    parser.add_argument("--url", default="localhost:8000")
    arguments = parser.parse_args()

    with triton.InferenceServerClient(arguments.url) as client:
        for photo in arguments.photos:
            image = triton.InferInput("image", [1, 1], "BYTES")
            image.set_data_from_numpy(np.array([[photo.read_bytes()]], dtype=np.object_))
            scores = triton.InferRequestedOutput("logits", class_count=5)  # without class_count: float32 (1, 1000)
            start = time.perf_counter()
            answer = client.infer("ensemble", [image], outputs=[scores])
            print(f"{photo.name}  {1e3 * (time.perf_counter() - start):.1f} ms")
            for entry in answer.as_numpy("logits")[0]:
                score, index, *label = entry.decode().split(":", 2)
                print(f"  {float(score):6.2f}  class {index}  {''.join(label)}")


if __name__ == "__main__":
    try:
        main()
    except (ConnectionError, HTTPException) as error:
        sys.exit(f"http_one_image.py: {error}: check that `pixprep serve` is running and --url is its HTTP port")
    except (OSError, InferenceServerException) as error:
        sys.exit(f"http_one_image.py: {error}")
