"""Small samples and pipelines for the tests of the Loader."""

import json
import os
import signal
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path

import numpy as np

import pixprep as pp
from support.images import jpeg, scene

PLAIN = pp.Pipeline([pp.decode(), pp.resize(height=24, width=24), pp.tensor(dtype="uint8")])

TRAINING = pp.Pipeline(
    [
        pp.decode(),
        pp.random_resized_crop(height=24, width=24),
        pp.random_flip(),
        pp.resize(height=24, width=24, only="serving"),
        pp.normalize(mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25]),
        pp.tensor(),
    ]
).for_training()
RANDOM = pp.Pipeline(
    [
        pp.decode(),
        pp.random_resized_crop(height=24, width=24),
        pp.random_flip(),
        pp.resize(height=24, width=24, only="serving"),
        pp.tensor(dtype="uint8"),
    ]
).for_training()
DETECTION = pp.Pipeline(
    [pp.decode(), pp.random_flip(), pp.resize(height=24, width=24), pp.boxes(normalized=True), pp.tensor()]
).for_training()


@cache
def encoded(index):
    """Return a JPEG whose size and pixels depend on the index."""
    return jpeg(scene(30 + index % 7, 40 + index % 5, seed=index))


def samples(count=40):
    """Return ``count`` samples as a list of dicts, which can be used as a source."""
    return [{"image": encoded(index), "label": index % 3, "name": f"photo {index}"} for index in range(count)]


def loader(source=None, pipeline=PLAIN, **options):
    """Create a Loader with small batches and two threads."""
    return pp.Loader(samples() if source is None else source, pipeline, **{"batch_size": 8, "threads": 2} | options)


def loader_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("pixprep")]


def same(one, other):
    """Return whether two batches have equal outputs, random parameters, and fields except for the names of samples."""
    if one.draws != other.draws or one.fields.keys() != other.fields.keys():
        return False
    pairs = [(one[name], other[name]) for name in (*one.outputs, *one.fields) if name != "name"]
    return all(len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs)) for ours, theirs in pairs)


def expected(index, pipeline=PLAIN):
    """Return the tensor that an engine computes for this sample on its own."""
    with pp.Engine(pipeline, threads=1) as engine:
        return engine.run([encoded(index)])[0]


def _environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}


def killed(code, count):
    """Run code until it has printed ``count`` lines, and kill it with SIGKILL. Return the lines, parsed as JSON."""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=_environment())
    lines = [json.loads(child.stdout.readline()) for _ in range(count)]
    child.send_signal(signal.SIGKILL)
    child.communicate()
    return lines


def run(code, **options):
    """Run code in a separate process that defines ``loader``, a Loader with 400 samples."""
    head = "import signal\nfrom support.loading import PLAIN, samples\nimport pixprep as pp\n"
    head += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored if the tests run in the background
    head += "loader = pp.Loader(samples(400), PLAIN, batch_size=8, threads=2)\n"
    command = [sys.executable, "-W", "error", "-c", head + code]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run(command, text=True, env=_environment(), timeout=120, check=False, **options)
