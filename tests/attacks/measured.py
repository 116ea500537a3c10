"""Decodes images, each in a separate process, and prints the result: a program, see ``conftest.measure``.

A process that has imported everything forks for each image, so that the memory is that of one decode, and a crash is a
result. Input on stdin: eight bytes of length and a pipeline file, followed by an image in the same form. Output on
stdout: a line of JSON.
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
ROOM = 2 << 30  # address space above the process's own use: larger allocations raise a MemoryError


def pages(index):
    """Return a column of /proc/self/statm in bytes: 0 is the address space, 1 the resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[index]) * resource.getpagesize()


def decode(pipeline, encoded, answer):
    """In the child process, return the reason or ``ok``, and the seconds of processor time."""
    signal.alarm(PATIENCE_S)
    resource.setrlimit(resource.RLIMIT_AS, (pages(0) + ROOM,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with pp.Engine(pp.Pipeline.from_json(pipeline), threads=1, limits=LIMITS) as engine:
        before = pages(1)
        start = time.process_time()
        (result,) = engine.run([encoded])
        seconds = time.process_time() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    text = str(result) if isinstance(result, pp.ImageError) else "ok"
    os.write(answer, json.dumps({"text": text, "seconds": seconds, "mib": max(0, grown) / (1 << 20)}).encode())


def measure(pipeline, encoded):
    """Fork, decode, and wait."""
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
    """Return one part of stdin, or None at its end."""
    head = file.read(8)
    return file.read(int.from_bytes(head, "big")) if head else None


if __name__ == "__main__":
    ops = [pp.decode(), pp.center_crop(8), pp.tensor()]
    with pp.Engine(pp.Pipeline(ops), threads=1, limits=LIMITS) as engine:
        warm_up(engine)
    while (pipeline := read(sys.stdin.buffer)) is not None:
        sys.stdout.write(measure(pipeline, read(sys.stdin.buffer)) + "\n")
        sys.stdout.flush()
