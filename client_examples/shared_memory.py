"""Send a photo and receive its tensor through system shared memory: the request itself contains neither.

pip install "tritonclient[all]"
pixprep serve --allow-shared-memory
python shared_memory.py photo.jpg --url localhost:8000
"""

import argparse
import os
import sys
import time
from contextlib import ExitStack
from http.client import HTTPException
from math import prod
from pathlib import Path

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException, serialize_byte_tensor, shared_memory, triton_to_np_dtype


def main() -> None:
    """Create a region for the photo and one for the tensor, run the model, and remove both regions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photo", type=Path, nargs="?", default=Path(__file__).parent / "images" / "china.jpg")
    parser.add_argument("--url", default="localhost:8000", help="HOST:PORT of a server on this machine")
    arguments = parser.parse_args()

    encoded = np.array([[arguments.photo.read_bytes()]], dtype=np.object_)
    with triton.InferenceServerClient(arguments.url) as client:
        (output,) = client.get_model_metadata("preprocess")["outputs"]
        shape, dtype = [1, *output["shape"][1:]], triton_to_np_dtype(output["datatype"])
        sizes = {"image": 4 + len(encoded[0, 0]), output["name"]: prod(shape) * np.dtype(dtype).itemsize}
        with ExitStack() as cleanup:
            regions, names = {}, {tensor: f"pixprep-{os.getpid()}-{tensor}" for tensor in sizes}
            for tensor, name in names.items():
                regions[tensor] = shared_memory.create_shared_memory_region(name, f"/{name}", sizes[tensor])
                cleanup.callback(shared_memory.destroy_shared_memory_region, regions[tensor])
                client.register_system_shared_memory(name, f"/{name}", sizes[tensor])
                cleanup.callback(unregister, client, name)
            shared_memory.set_shared_memory_region(regions["image"], [serialize_byte_tensor(encoded)])
            image = triton.InferInput("image", [1, 1], "BYTES")
            image.set_shared_memory(names["image"], sizes["image"])
            wanted = triton.InferRequestedOutput(output["name"])
            wanted.set_shared_memory(names[output["name"]], sizes[output["name"]])
            client.infer("preprocess", [image], outputs=[wanted])
            tensor = shared_memory.get_contents_as_numpy(regions[output["name"]], dtype, shape)  # a view: no copy
            print(f"{arguments.photo.name}: {sizes['image']:,} bytes in, {sizes[output['name']]:,} bytes out")
            print(f"{output['name']} {tensor.shape} {tensor.dtype}: {tensor.min():.3f} to {tensor.max():.3f}")


def unregister(client: triton.InferenceServerClient, name: str, within_s: float = 5) -> None:
    """Unregister a region, with retries: Triton may still use it shortly after its response."""
    last = time.monotonic() + within_s
    while True:
        try:
            return client.unregister_system_shared_memory(name)
        except InferenceServerException as error:
            if "in use" not in str(error) or time.monotonic() > last:
                raise
        time.sleep(0.01)


if __name__ == "__main__":
    try:
        main()
    except (ConnectionError, HTTPException) as error:
        sys.exit(f"shared_memory.py: {error}: check that `pixprep serve` is running and --url is its HTTP port")
    except InferenceServerException as error:
        is_closed = error.status() == "403"
        hint = (
            ": shared memory requires `pixprep serve --allow-shared-memory`, or Triton without this restriction"
            if is_closed
            else ""
        )
        sys.exit(f"shared_memory.py: {error}{hint}")
    except (OSError, shared_memory.SharedMemoryException) as error:
        sys.exit(f"shared_memory.py: {error}")
