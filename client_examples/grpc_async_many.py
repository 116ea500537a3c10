"""Send many concurrent gRPC requests, one of them with a broken image: only that request fails.

pip install "tritonclient[all]"
python grpc_async_many.py photos --requests 64 --url localhost:8001
"""

import argparse
import sys
import time
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from queue import Empty, Queue

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException


def files(paths: list[Path]) -> list[Path]:
    """Return the given files, and all JPEGs in the given folders."""
    found = [file for path in paths for file in ([path] if not path.is_dir() else sorted(path.rglob("*.jp*g")))]
    return found or sys.exit("grpc_async_many.py: no JPEG files found: pass JPEG files or folders that contain some")


def main() -> None:
    """Send all requests before waiting for the first response, then count the responses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "photos", type=Path, nargs="*", default=[Path(__file__).parent / "images"], help="photos or folders of JPEGs"
    )
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--url", default="localhost:8001")
    arguments = parser.parse_args()

    encoded = list(islice(cycle(photo.read_bytes() for photo in files(arguments.photos)), arguments.requests))
    broken = len(encoded) // 2
    encoded[broken] = encoded[broken][:1000]  # simulate an upload that stopped early
    answers: Queue[tuple[int, object, InferenceServerException]] = (
        Queue()
    )  # tritonclient runs the callbacks in its own thread
    with triton.InferenceServerClient(arguments.url) as client:
        client.is_server_live()  # raises an error if no server is reachable
        start = time.perf_counter()
        for number, image in enumerate(encoded):
            tensor = triton.InferInput("image", [1, 1], "BYTES")
            tensor.set_data_from_numpy(np.array([[image]], dtype=np.object_))
            callback = partial(lambda number, result, error: answers.put((number, result, error)), number)
            client.async_infer("ensemble", [tensor], callback)
        received = [answers.get(timeout=60) for _ in encoded]
        elapsed_s = time.perf_counter() - start
    failed = {number: error for number, _, error in received if error}
    good = len(encoded) - len(failed)
    print(f"{good} of {len(encoded)} requests succeeded in {elapsed_s:.2f} s: {good / elapsed_s:.0f} images/s")
    for number, error in sorted(failed.items())[:3]:
        print(f"request {number} failed: {error.message()}")
    if list(failed) != [broken]:
        sys.exit(f"grpc_async_many.py: only request {broken} should have failed")


if __name__ == "__main__":
    try:
        main()
    except Empty:
        sys.exit("grpc_async_many.py: no response within 60 s")
    except (OSError, InferenceServerException) as error:
        sys.exit(f"grpc_async_many.py: {error}")
