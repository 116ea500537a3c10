"""Program of ``conftest.measure`` that decodes each image in a separate process and prints the result.

The program imports everything once and forks for each image. The measured memory is therefore that of one decode, and a
crash is reported as a result. On stdin, it reads a pipeline file and an image, each preceded by its length in eight
bytes. On stdout, it prints one line of JSON per image.
"""

import json
import os
import resource
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from PIL import features

import pixprep as pp
from pixprep.engine.decoders import USUAL
from pixprep.serving.triton.warm_up import warm_up

PATIENCE_S = 20
LIMITS = pp.Limits(
    formats=(*USUAL, *["avif"] * features.check("avif"), *["heic"] * (find_spec("pillow_heif") is not None))
)
EXTRA_ADDRESS_SPACE = 2 << 30  # limit on additional address space; larger allocations raise MemoryError


def memory_bytes(index):
    """Return the size of the process in bytes, from /proc/self/statm: column 0 is the address space, 1 the resident
    memory.
    """
    return int(Path("/proc/self/statm").read_text().split()[index]) * resource.getpagesize()


def decode(pipeline, encoded, pipe_fd):
    """Run in the child process: decode the image, and write the result and its cost to the pipe ``answer`` as JSON."""
    signal.alarm(PATIENCE_S)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes(0) + EXTRA_ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with pp.Engine(pp.Pipeline.from_json(pipeline), threads=1, limits=LIMITS) as engine:
        before = memory_bytes(1)
        start = time.process_time()
        (result,) = engine.run([encoded])
        seconds = time.process_time() - start
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    text = str(result) if isinstance(result, pp.ImageError) else "ok"
    os.write(pipe_fd, json.dumps({"text": text, "seconds": seconds, "mib": max(0, growth) / (1 << 20)}).encode())


def measure(pipeline, encoded):
    """Decode the image in a forked process, and return its result as JSON."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            decode(pipeline, encoded, writer)
        except BaseException as error:  # noqa: BLE001  (whatever it is, it is the finding)
            os.write(writer, json.dumps({"text": f"raised {error!r}", "seconds": 0, "mib": 0}).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return text or json.dumps({"text": f"ended with status {status}", "seconds": PATIENCE_S, "mib": 0})


def read(file):
    """Return the next length-prefixed part of stdin, or None at the end of the input."""
    head = file.read(8)
    return file.read(int.from_bytes(head, "big")) if head else None


if __name__ == "__main__":
    ops = [pp.decode(), pp.center_crop(8), pp.tensor()]
    with pp.Engine(pp.Pipeline(ops), threads=1, limits=LIMITS) as engine:
        warm_up(engine)
    while (pipeline := read(sys.stdin.buffer)) is not None:
        sys.stdout.write(measure(pipeline, read(sys.stdin.buffer)) + "\n")
        sys.stdout.flush()
