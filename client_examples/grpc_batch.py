"""Send photos of different sizes in one gRPC request, and print the best class of each.

pip install "tritonclient[all]"
python grpc_batch.py *.jpg --url localhost:8001
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException


def main() -> None:
    """Send all photos in one request and print one line per photo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs="*", default=sorted(Path(__file__).parent.glob("images/**/*.jpg")))
    parser.add_argument("--url", default="localhost:8001")
    arguments = parser.parse_args()

    # each element is a complete file, so photos of different sizes need no padding
    encoded = [[photo.read_bytes()] for photo in arguments.photos]
    images = triton.InferInput("image", [len(encoded), 1], "BYTES")
    images.set_data_from_numpy(np.array(encoded, dtype=np.object_))
    scores = triton.InferRequestedOutput("logits", class_count=1)
    with triton.InferenceServerClient(arguments.url) as client:
        start = time.perf_counter()
        answer = client.infer("ensemble", [images], outputs=[scores])
        elapsed_ms = 1e3 * (time.perf_counter() - start)
    for photo, (image,), (best,) in zip(arguments.photos, encoded, answer.as_numpy("logits"), strict=True):
        score, index, *label = best.decode().split(":", 2)
        print(f"{photo.name:24} {len(image):9,} bytes  {float(score):6.2f}  class {index}  {''.join(label)}")
    print(f"{len(encoded)} images in one request: {elapsed_ms:.1f} ms")


if __name__ == "__main__":
    try:
        main()
    except (OSError, InferenceServerException) as error:
        sys.exit(f"grpc_batch.py: {error}")
